//! Sums over publishers that come and go, and over daemons that are killed: what a subscriber got and what it has missed are all.

use super::*;
use crossdock_sim::{Rng, check};
use crossdock_transport::control::PublisherPosition;
use std::collections::{HashSet, VecDeque};

/// A publisher as its daemons have it.
#[derive(Clone, Copy)]
struct Publisher {
    id: u128,
    /// Where it began at this daemon, and its next record.
    began: u64,
    position: u64,
    is_there: bool,
}

/// A daemon with one stream and its publishers.
struct Daemon {
    epoch: u64,
    passed: u64,
    left_out: Option<u64>,
    publishers: Vec<Publisher>,
}

impl Daemon {
    fn new(epoch: u64) -> Daemon {
        Daemon { epoch, passed: 0, left_out: None, publishers: Vec::new() }
    }

    fn publish(&mut self, id: u128, records: u64) {
        let publisher = self.publishers.iter_mut().find(|publisher| publisher.id == id).unwrap();
        publisher.position += records;
        self.passed += records;
    }

    /// A publisher comes that has had `acknowledged` records acknowledged before.
    fn come(&mut self, id: u128, acknowledged: u64) {
        self.publishers.push(Publisher { id, began: acknowledged, position: acknowledged, is_there: true });
    }

    fn position(&self) -> Position {
        let listed = |of: &Publisher| PublisherPosition {
            publisher: PublisherId(of.id),
            began: of.began,
            position: of.position,
            ended: !of.is_there,
        };
        let publishers = self.publishers.iter().map(listed).collect();
        let Daemon { epoch, passed, left_out, .. } = *self;
        Position { epoch, passed, number: None, left_out, publishers, unlisted: 0 }
    }
}

fn exactly(records: u64) -> Option<Missed> {
    Some(Missed { records: Some(records), at_most: false })
}

#[test]
fn a_position_that_a_new_daemon_sends_before_its_answer_hides_nothing() {
    let (mut account, mut daemon) = (Account::default(), Daemon::new(1));
    daemon.come(1, 0);
    assert_eq!(account.begin(Some(daemon.position())), None);
    account.note(20);
    let mut next = Daemon::new(2);
    assert_eq!(account.report(next.position()), None);
    assert_eq!(account.begin(Some(next.position())), None);
    next.come(1, 25);
    assert_eq!(account.report(next.position()), exactly(5));
}

#[test]
fn at_the_same_daemon_the_difference_of_the_counts_was_missed() {
    let (mut account, mut daemon) = (Account::default(), Daemon::new(1));
    daemon.come(1, 0);
    daemon.publish(1, 10);
    assert_eq!(account.begin(Some(daemon.position())), None);
    daemon.publish(1, 5);
    account.note(5);
    // Nothing passes while it is away; then a publisher comes, publishes and goes meanwhile.
    assert_eq!(account.begin(Some(daemon.position())), None);
    daemon.publish(1, 3);
    daemon.come(2, 0);
    daemon.publish(2, 7);
    daemon.publishers.pop();
    assert_eq!(account.begin(Some(daemon.position())), exactly(10));
    assert_eq!((account.report(daemon.position()), account.uncounted_publishers()), (None, 0));
}

#[test]
fn after_a_restart_all_publishers_are_summed_up_as_they_come_back() {
    let (mut account, mut daemon) = (Account::default(), Daemon::new(1));
    (1..=3).for_each(|id| daemon.come(id, 0));
    assert_eq!(account.begin(Some(daemon.position())), None);
    (1..=3).for_each(|id| daemon.publish(id, 100));
    account.note(300);
    assert_eq!(account.report(daemon.position()), None);
    // After the last report 60 pass, and 40 of them came; then the daemon is killed.
    daemon.publish(1, 30);
    daemon.publish(2, 30);
    account.note(40);

    let mut second = Daemon::new(2);
    // The first is back, and publishes on; a new one too. The second comes later, the third never.
    second.come(1, 130);
    second.publish(1, 11);
    second.come(9, 0);
    second.publish(9, 4);
    // 15 have passed here, and 30 of the first publisher are known to have passed there: 40 of all came.
    assert_eq!(account.begin(Some(second.position())), exactly(5));
    assert_eq!(account.uncounted_publishers(), 2);
    second.publish(1, 1);
    account.note(1);
    assert_eq!(account.report(second.position()), None);
    second.come(2, 130);
    assert_eq!(account.report(second.position()), exactly(30));
    assert_eq!((account.report(second.position()), account.uncounted_publishers()), (None, 1));
}

#[test]
fn records_that_a_condition_leaves_out_are_not_missed_and_make_the_count_a_bound() {
    let (mut account, mut daemon) = (Account::default(), Daemon::new(1));
    daemon.come(1, 0);
    daemon.left_out = Some(0);
    assert_eq!(account.begin(Some(daemon.position())), None);
    daemon.publish(1, 100);
    account.note(25);
    daemon.left_out = Some(75);
    assert_eq!(account.report(daemon.position()), None);
    daemon.publish(1, 8);
    daemon.left_out = Some(0);
    assert_eq!(account.begin(Some(daemon.position())), Some(Missed { records: Some(8), at_most: true }));
}

#[test]
fn a_daemon_that_does_not_count_leaves_it_open() {
    let mut account = Account::default();
    assert_eq!(account.begin(None), None);
    let unknown = Some(Missed { records: None, at_most: false });
    assert_eq!(account.begin(None), unknown);
    assert_eq!(account.begin(Some(Daemon::new(1).position())), unknown);
    assert_eq!(account.begin(Some(Daemon::new(1).position())), None);
    account.note(7);
    assert_eq!(account.begin(None), unknown);
}

/// Publishers at several daemons, one after the other, each killed; reports at any time. All come back in the end.
#[test]
fn received_and_missed_records_are_all() {
    check("received_and_missed_records_are_all", 300, |seed| {
        let mut rng = Rng::with_seed(seed);
        let (mut account, mut daemon) = (Account::default(), Daemon::new(1));
        (0..rng.u128(1..5)).for_each(|id| daemon.come(id, 0));
        account.begin(Some(daemon.position()));
        let (mut published, mut came, mut missed) = (0, 0, 0);
        let mut count = |more: Option<Missed>| missed += more.map_or(0, |more| more.records.unwrap());
        for epoch in 2..2 + rng.u64(1..5) {
            for _ in 0..rng.u32(..20) {
                let (id, records) = (rng.u128(..daemon.publishers.len() as u128), rng.u64(..1000));
                daemon.publish(id, records);
                published += records;
                came += records;
                account.note(records);
                if rng.bool() {
                    count(account.report(daemon.position()));
                }
            }
            // The records that the daemon has taken and does not deliver any more.
            let lost = rng.u64(..100);
            daemon.publish(0, lost);
            published += lost;
            let mut next = Daemon::new(epoch);
            let mut away: Vec<Publisher> = daemon.publishers.clone();
            rng.shuffle(&mut away);
            let late = away.split_off(rng.usize(..=away.len()));
            for of in &away {
                next.come(of.id, of.position);
                let records = rng.u64(..50);
                next.publish(of.id, records);
                published += records;
            }
            let new = daemon.publishers.len() as u128;
            next.come(new, 0);
            next.publish(new, 3);
            published += 3;
            count(account.begin(Some(next.position())));
            for of in &late {
                next.come(of.id, of.position);
                count(account.report(next.position()));
            }
            daemon = next;
        }
        assert_eq!((came + missed, account.uncounted_publishers()), (published, 0));
    });
}

#[test]
fn repeated_records_of_one_publisher_make_up_for_nothing_that_another_lost() {
    for is_late in [false, true] {
        let (mut account, mut daemon) = (Account::default(), Daemon::new(1));
        (1..=2).for_each(|id| daemon.come(id, 0));
        assert_eq!(account.begin(Some(daemon.position())), None);
        (1..=2).for_each(|id| daemon.publish(id, 100));
        account.note(200);
        assert_eq!(account.report(daemon.position()), None);
        // 10 of the second are lost in the daemon. The last 30 of the first came, and were not acknowledged.
        daemon.publish(2, 10);
        let mut next = Daemon::new(2);
        next.come(2, 110);
        if !is_late {
            next.come(1, 70);
        }
        next.come(3, 0);
        next.publish(3, 4);
        assert_eq!(account.begin(Some(next.position())), exactly(14));
        if is_late {
            next.come(1, 70);
        }
        next.publish(1, 30);
        account.note(30);
        assert_eq!((account.report(next.position()), account.uncounted_publishers()), (None, 0));
        // At the same daemon nothing makes up for what is missed.
        next.publish(2, 5);
        assert_eq!(account.begin(Some(next.position())), exactly(5));
    }
}

#[test]
fn repeated_records_of_a_publisher_make_up_for_its_own() {
    let (mut account, mut daemon) = (Account::default(), Daemon::new(1));
    daemon.come(1, 0);
    assert_eq!(account.begin(Some(daemon.position())), None);
    // Of 100 it gets 80, and the daemon has acknowledged 85.
    daemon.publish(1, 100);
    account.note(80);
    assert_eq!(account.report(daemon.position()), None);
    let mut next = Daemon::new(2);
    next.come(1, 85);
    assert_eq!(account.begin(Some(next.position())), exactly(5));
}

/// A daemon's records on their way to the subscriber, and those that arrive, by publisher and number.
#[derive(Default)]
struct Traffic {
    queue: VecDeque<(u128, u64)>,
    came: HashSet<(u128, u64)>,
}

impl Traffic {
    fn publish(&mut self, daemon: &mut Daemon, id: u128, records: u64) {
        let next = daemon.publishers.iter().find(|publisher| publisher.id == id).unwrap().position;
        self.queue.extend((next..next + records).map(|number| (id, number)));
        daemon.publish(id, records);
    }

    fn deliver(&mut self, account: &mut Account, records: usize) {
        let records = records.min(self.queue.len());
        self.came.extend(self.queue.drain(..records));
        account.note(records as u64);
    }
}

/// A daemon with records in it is killed, and has acknowledged less than it has taken. The records reported as missed
/// were missed: all of it if there is one publisher, or if what had passed at the last report is what came.
#[test]
fn records_reported_as_missed_were_missed() {
    check("records_reported_as_missed_were_missed", 2000, |seed| {
        let mut rng = Rng::with_seed(seed);
        let (mut account, mut daemon, mut traffic) = (Account::default(), Daemon::new(1), Traffic::default());
        let count = rng.u128(1..4);
        (0..count).for_each(|id| daemon.come(id, 0));
        account.begin(Some(daemon.position()));
        for _ in 0..rng.u32(..12) {
            traffic.publish(&mut daemon, rng.u128(..count), rng.u64(..20));
            traffic.deliver(&mut account, rng.usize(..30));
        }
        assert_eq!(account.report(daemon.position()), None);
        let waits = traffic.queue.len();
        for _ in 0..rng.u32(..6) {
            traffic.publish(&mut daemon, rng.u128(..count), rng.u64(..20));
        }
        let delivered = if rng.bool() { 0 } else { rng.usize(..=traffic.queue.len()) };
        traffic.deliver(&mut account, delivered);
        traffic.queue.clear();

        let mut next = Daemon::new(2);
        let mut away: Vec<Publisher> = daemon.publishers.clone();
        rng.shuffle(&mut away);
        let late = away.split_off(rng.usize(..=away.len()));
        let come = |next: &mut Daemon, rng: &mut Rng, of: &Publisher| {
            next.come(of.id, of.position.saturating_sub(rng.u64(..15)));
        };
        for of in &away {
            come(&mut next, &mut rng, of);
            next.publish(of.id, rng.u64(..30));
        }
        next.come(count, 0);
        next.publish(count, 3);
        let mut said = account.begin(Some(next.position())).map_or(0, |missed| missed.records.unwrap());
        for of in &late {
            come(&mut next, &mut rng, of);
            said += account.report(next.position()).map_or(0, |missed| missed.records.unwrap());
        }
        // All that come from here on arrive, those that had been taken before included.
        let taken = |id: u128| daemon.publishers.iter().find(|of| of.id == id).map_or(0, |of| of.position);
        let (mut missed, here) = (0, next.publishers.clone());
        for of in here {
            let last = taken(of.id).max(of.position);
            traffic.publish(&mut next, of.id, last - of.position);
            traffic.deliver(&mut account, usize::MAX);
            missed += (0..last).filter(|number| !traffic.came.contains(&(of.id, *number))).count() as u64;
        }
        if delivered < waits && !late.is_empty() {
            // It is said before these publishers repeat some of it.
            return;
        }
        assert!(said <= missed, "{said} of {missed}");
        if count == 1 || delivered == waits {
            assert_eq!(said, missed);
        }
    });
}

/// Where each record has the same number at all daemons, it is known which come once more and which are missing.
#[test]
fn records_with_numbers_are_repeated_or_missed() {
    let position = |epoch, number| Some(Position { epoch, number: Some(number), ..Position::default() });
    let mut account = Account::default();
    assert_eq!(account.begin(position(1, 100)), None);
    assert_eq!(account.number(10), RecordNumbers { first: Some(100), repeated: 0 });
    account.note(5);
    // The next daemon begins with a checkpoint of before. Those that were dropped come now.
    assert_eq!(account.begin(position(2, 103)), None);
    assert_eq!(account.number(4), RecordNumbers { first: Some(103), repeated: 4 });
    assert_eq!(account.begin(position(3, 100)), None);
    assert_eq!(account.number(17), RecordNumbers { first: Some(100), repeated: 10 });
    assert_eq!((account.number(3), account.repeated()), (RecordNumbers { first: Some(117), repeated: 0 }, 14));
    // It came back too late.
    assert_eq!(account.begin(position(3, 125)), exactly(5));
    assert_eq!(account.number(1), RecordNumbers { first: Some(125), repeated: 0 });
    account.forget_numbers();
    assert_eq!(account.number(1), RecordNumbers::default());
}
