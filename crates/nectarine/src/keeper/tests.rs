//! The one keeper of many links.

use super::*;
use crate::carrier::Carrier;
use crate::carrier::conformance::{Daemon, Remote, eventually};
use crate::incoming::Heard;
use crate::link::Link;
use crate::outgoing::{Outgoing, PacketBuffer, Unsent};
use crate::settings::Transport;
use crossdock_device::Idler;
use crossdock_transport::SuperPacket;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// A link over packets whose application is away, and its daemon.
struct Away {
    keeper: Keeper,
    shared: Arc<Shared>,
    daemon: Remote,
}

impl Away {
    fn new() -> Away {
        let (carrier, daemon) = Remote::connect();
        let shared = Arc::new(Shared::new(Link::over(carrier)));
        Away { keeper: Keeper::start(Arc::clone(&shared)).unwrap(), shared, daemon }
    }

    /// Asks whether the client is there, and waits for the answer.
    fn ask(&self) {
        self.daemon.ask();
        eventually("an answer", || self.daemon.is_answered());
    }
}

#[test]
fn a_link_whose_application_is_away_answers_while_another_is_busy() {
    let (away, busy) = (Away::new(), Away::new());
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                busy.daemon.ask();
                let mut inner = busy.shared.lock();
                inner.drive();
                inner.driven_ns = inner.link.now_ns();
                busy.keeper.tick(&mut inner);
            }
        });
        (0..100).for_each(|_| away.ask());
        over.store(true, Ordering::Relaxed);
    });
    busy.ask();
}

#[test]
fn a_link_whose_lock_is_held_delays_no_other() {
    let (away, held) = (Away::new(), Away::new());
    let inner = held.shared.lock();
    held.daemon.ask();
    (0..100).for_each(|_| away.ask());
    drop(inner);
    eventually("an answer", || held.daemon.is_answered());
}

#[test]
fn links_that_are_heard_at_the_same_time_all_answer() {
    // More than a poller reports at once.
    let links: Vec<Away> = (0..100).map(|_| Away::new()).collect();
    for _ in 0..3 {
        links.iter().for_each(|link| link.daemon.ask());
        links.iter().for_each(|link| eventually("an answer", || link.daemon.is_answered()));
    }
}

#[test]
fn a_dropped_link_is_gone_at_once_while_others_are_served() {
    let others: Vec<Away> = (0..4).map(|_| Away::new()).collect();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                others.iter().for_each(|other| other.daemon.ask());
                std::thread::yield_now();
            }
        });
        for at in 0..40 {
            let link = Away::new();
            // Some were served before, some may be at this moment, some were never looked at.
            match at % 4 {
                0 => link.ask(),
                1 => (0..10).for_each(|_| link.daemon.ask()),
                2 => eventually("a first look", || link.shared.lock().keeper_ns > TICK_NS * 2),
                _ => {}
            }
            let Away { keeper, shared, .. } = link;
            drop(keeper);
            assert_eq!(Arc::strong_count(&shared), 1);
        }
        others.iter().for_each(Away::ask);
        over.store(true, Ordering::Relaxed);
    });
}

/// A carrier that cannot be driven.
struct Broken;

impl Carrier for Broken {
    fn transport(&self) -> Transport {
        Transport::Udp
    }

    fn begin_packet(&mut self) -> Option<SuperPacket<PacketBuffer>> {
        None
    }

    fn send(&mut self, unit: Outgoing) -> Result<(), Outgoing> {
        Err(unit)
    }

    fn receive(&mut self, _: u64, _: &mut Idler, _: &mut Vec<Heard>) {
        panic!("on purpose: the keeper must go on with other links");
    }

    fn due_ns(&self) -> u64 {
        0
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn lose(&mut self) -> Vec<Unsent> {
        Vec::new()
    }
}

#[test]
fn a_panic_ends_the_service_of_one_link_only() {
    let away = Away::new();
    away.ask();
    let shared = Arc::new(Shared::new(Link::over(Box::new(Broken))));
    let keeper = Keeper::start(Arc::clone(&shared)).unwrap();
    eventually("the keeper lets go of the link", || Arc::strong_count(&shared) == 1);
    away.ask();
    keeper.tick(&mut shared.lock());
    drop(keeper);
    away.ask();
}

#[test]
fn the_thread_is_woken_only_for_what_is_due_before_it_wakes() {
    let mut poller = Poller::new().unwrap();
    let bell = Some(poller.doorbell());
    let (links, due) = (BTreeMap::new(), BTreeSet::new());
    let mut schedule = Schedule { bell, links, due, wakes_ns: 0, ends_ns: 0, numbers: 0 };
    let mut is_rung = || !poller.wait(Some(Duration::from_nanos(1))).unwrap().is_empty();
    let slot = || Arc::new(Mutex::new(None));
    let mut round = Vec::new();

    let [first, later] = [schedule.add(slot(), 100), schedule.add(slot(), 200)];
    assert!(!is_rung(), "it is awake");
    assert_eq!(schedule.sleep_ns(40), Some(60));
    let latest = schedule.add(slot(), 300);
    schedule.plan(later, 150);
    schedule.plan(first, 170);
    assert!(!is_rung(), "it wakes before");
    schedule.plan(latest, 50);
    assert!(is_rung());
    schedule.plan(latest, 49);
    schedule.wake(&[first, Poller::DOORBELL], 60, &mut round);
    assert!(round.drain(..).map(|(link, _)| link).eq([first, latest]), "one was heard, one is due");
    assert_eq!(schedule.sleep_ns(60), Some(90), "those two have no plan yet");
    schedule.remove(first);
    schedule.remove(latest);
    schedule.wake(&[first], 150, &mut round);
    assert!(round.drain(..).map(|(link, _)| link).eq([later]), "what is gone is not looked at");
    schedule.remove(later);
    assert!(schedule.due.is_empty());
    let ends_ns = schedule.ends_ns;
    assert_eq!(schedule.sleep_ns(ends_ns - 1), Some(1));
    assert_eq!(schedule.sleep_ns(ends_ns), None);
}
