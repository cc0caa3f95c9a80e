use super::*;
use crate::order::{Follows, Origin};

const STREAM: TrafficClass = TrafficClass::Data(Origin::Stream(1));
/// Control that waits for nothing.
const FREE: TrafficClass = TrafficClass::Exchange(Follows::Nothing);

fn send_all(sender: &mut Sender<u32>, now_ns: u64) -> Vec<(u64, bool)> {
    let mut sent = Vec::new();
    while let Some(t) = sender.poll() {
        sent.extend(t.packets.clone().map(|p| (t.first_seq + u64::from(p), t.resend)));
        sender.transmitted(now_ns);
    }
    sent
}

#[test]
fn credit_bounds_what_is_sent_even_within_a_unit() {
    let mut sender = Sender::new(1472, 5);
    sender.enqueue(0, 3, 3000, STREAM, true);
    sender.enqueue(1, 8, 8000, STREAM, true);
    assert_eq!(send_all(&mut sender, 0).len(), 5);
    sender.on_ack(&Ack::new(5, 6), 10, |p| assert_eq!(p, 0)).unwrap();
    assert_eq!(send_all(&mut sender, 10), [(5, false)]);
    sender.on_ack(&Ack::new(6, 6), 20, |_| panic!()).unwrap();
    assert!(sender.is_starved() && !sender.is_idle());
    sender.on_ack(&Ack::new(6, 100), 30, |_| panic!()).unwrap();
    assert_eq!(send_all(&mut sender, 30).len(), 5);
    let mut released = Vec::new();
    sender.on_ack(&Ack::new(11, 100), 40, |p| released.push(p)).unwrap();
    assert_eq!((released, sender.is_idle(), sender.backlog_bytes()), (vec![1], true, 0));
}

/// The units that leave, as payloads with the numbers of their packets.
fn sent_payloads(sender: &mut Sender<u32>) -> Vec<(u32, Range<u32>, u64)> {
    let mut sent = Vec::new();
    while let Some(t) = sender.poll() {
        sent.push((*t.payload, t.packets.clone(), t.first_seq + u64::from(t.packets.start)));
        sender.transmitted(0);
    }
    sent
}

#[test]
fn control_divides_a_unit_that_waits_for_credit() {
    let mut sender = Sender::new(1472, 3);
    sender.enqueue(0, 8, 800, STREAM, true);
    assert_eq!(sent_payloads(&mut sender), [(0, 0..3, 0)]);
    sender.enqueue(1, 1, 10, FREE, false);
    assert_eq!(sent_payloads(&mut sender), [(1, 0..1, 3)]);
    sender.on_ack(&Ack::new(4, 5).with_ranges([]), 1, |p| assert_eq!(p, 1)).unwrap();
    assert_eq!(sent_payloads(&mut sender), [(0, 3..5, 4)]);
    sender.enqueue(2, 1, 10, FREE, false);
    assert_eq!(sent_payloads(&mut sender), [(2, 0..1, 6)]);
    // The oldest packets probe the path.
    sender.on_timer(sender.deadline_ns().unwrap());
    assert_eq!(sent_payloads(&mut sender), [(0, 3..5, 4)]);
    assert!(!sender.is_starved() && sender.drop_oldest().is_none());
    let mut released = Vec::new();
    sender.on_ack(&Ack::new(7, 100), 2, |p| released.push(p)).unwrap();
    assert_eq!(sent_payloads(&mut sender), [(0, 5..8, 7)]);
    sender.on_ack(&Ack::new(10, 100), 3, |p| released.push(p)).unwrap();
    assert_eq!((released, sender.is_idle(), sender.backlog_bytes()), (vec![2, 0], true, 0));
    assert_eq!(sender.queued_bytes(), 0);
}

#[test]
fn a_divided_unit_that_is_lost_is_sent_again_from_the_queue() {
    let mut sender = Sender::new(1472, 2);
    sender.enqueue(0, 4, 400, STREAM, true);
    sender.enqueue(1, 1, 100, STREAM, true);
    send_all(&mut sender, 0);
    sender.enqueue(2, 1, 10, FREE, false);
    send_all(&mut sender, 0);
    sender.on_timer(sender.deadline_ns().unwrap());
    assert_eq!(sent_payloads(&mut sender), [(0, 0..2, 0)]);
    assert_eq!(sender.take_unacknowledged().collect::<Vec<_>>(), [2, 0, 1]);
}

#[test]
fn control_waits_for_the_data_that_it_follows_and_for_no_credit_after_that() {
    let other = Origin::Stream(2);
    let notice = |follows| TrafficClass::Notice(follows);
    let mut sender = Sender::new(1472, 1);
    sender.enqueue(0, 2, 200, STREAM, true);
    send_all(&mut sender, 0);
    sender.enqueue(1, 1, 10, notice(Follows::Origin(Origin::Stream(1))), false);
    sender.enqueue(2, 1, 10, notice(Follows::Origin(other)), false);
    sender.enqueue(3, 1, 10, notice(Follows::Mailboxes), false);
    sender.enqueue(4, 1, 100, TrafficClass::Data(other), true);
    sender.enqueue(5, 1, 10, notice(Follows::Everything), false);
    // After what follows the same, but before the data that does not concern it.
    sender.enqueue(6, 1, 10, notice(Follows::Origin(Origin::Stream(1))), false);
    let payloads = |sent: Vec<(u32, Range<u32>, u64)>| sent.into_iter().map(|sent| sent.0).collect::<Vec<_>>();
    assert_eq!(payloads(sent_payloads(&mut sender)), [2, 3]);
    sender.on_ack(&Ack::new(3, 2), 1, |_| {}).unwrap();
    assert_eq!(payloads(sent_payloads(&mut sender)), [0, 1, 6]);
    sender.on_ack(&Ack::new(6, 3), 1, |_| {}).unwrap();
    assert_eq!(payloads(sent_payloads(&mut sender)), [4, 5]);
}

#[test]
fn replies_keep_their_order_while_one_waits_for_records() {
    let mut sender = Sender::new(1472, 1);
    sender.enqueue(0, 2, 200, STREAM, true);
    send_all(&mut sender, 0);
    sender.enqueue(1, 1, 10, TrafficClass::Exchange(Follows::Origin(Origin::Stream(1))), false);
    sender.enqueue(2, 1, 10, FREE, false);
    sender.enqueue(3, 1, 10, TrafficClass::Notice(Follows::Nothing), false);
    assert_eq!(sent_payloads(&mut sender), [(3, 0..1, 1)]);
    sender.on_ack(&Ack::new(2, 2), 1, |_| {}).unwrap();
    assert_eq!(sent_payloads(&mut sender), [(0, 1..2, 2), (1, 0..1, 3), (2, 0..1, 4)]);
}

#[test]
fn nothing_overtakes_control_that_waits_for_credit_of_its_own() {
    let mut sender = Sender::new(1472, 100);
    (0..=CONTROL_WINDOW_PACKETS).for_each(|n| sender.enqueue(n, 1, 10, FREE, false));
    sender.enqueue(999, 1, 100, STREAM, true);
    assert_eq!(send_all(&mut sender, 0).len(), CONTROL_WINDOW_PACKETS as usize);
    sender.on_ack(&Ack::new(64, 100), 1, |_| {}).unwrap();
    assert!(sender.is_starved());
    let mut ack = Ack::new(64, 100);
    ack.control_limit = 65;
    sender.on_ack(&ack, 1, |_| {}).unwrap();
    assert_eq!(sent_payloads(&mut sender).iter().map(|sent| sent.0).collect::<Vec<_>>(), [64, 999]);
}

#[test]
fn a_hole_is_sent_again_once() {
    let mut sender = Sender::new(1472, 100);
    sender.enqueue(0, 10, 1000, STREAM, true);
    send_all(&mut sender, 0);
    let ack = Ack::new(2, 100).with_ranges([4..10]);
    sender.on_ack(&ack, 1000, |_| panic!()).unwrap();
    assert_eq!(send_all(&mut sender, 1000), [(2, true), (3, true)]);
    sender.on_ack(&ack, 1001, |_| panic!()).unwrap();
    assert_eq!(send_all(&mut sender, 1001), []);
    let SenderStats { packets, resent, timeouts, .. } = sender.stats();
    assert_eq!((packets, resent, timeouts), (10, 2, 0));
}

#[test]
fn withdrawn_packets_are_sent_again() {
    let mut sender = Sender::new(1472, 6);
    sender.enqueue(0, 6, 600, STREAM, true);
    send_all(&mut sender, 0);
    sender.on_ack(&Ack::new(1, 6).with_ranges([2..6]), 1000, |_| panic!()).unwrap();
    assert_eq!(send_all(&mut sender, 1000), [(1, true)]);
    // Packet 1 fills the hole, and there is no room for those behind it.
    let ack = Ack::new(2, 6).with_ranges([3..6]);
    sender.on_ack(&ack, 2000, |_| panic!()).unwrap();
    assert_eq!((send_all(&mut sender, 2000), sender.is_starved()), (vec![(2, true)], false));
    sender.on_ack(&ack, 2001, |_| panic!()).unwrap();
    assert_eq!(send_all(&mut sender, 2001), [], "once");
    // An older ack, which comes late, does not say that it has arrived.
    sender.on_ack(&Ack::new(1, 6).with_ranges([2..6]), 2002, |_| panic!()).unwrap();
    assert!(sender.deadline_ns().is_some(), "it is in flight still");
    sender.on_timer(sender.deadline_ns().unwrap());
    assert_eq!(send_all(&mut sender, 900_000_000), [(2, true)]);
    let mut released = Vec::new();
    sender.on_ack(&Ack::new(6, 6), 900_001_000, |p| released.push(p)).unwrap();
    assert_eq!((released, sender.is_idle()), (vec![0], true));
}

/// A sender of one unit of `packets` packets, all in flight, on a path that has shown a round trip of `rtt_ns`: packet 0 has
/// been acknowledged, and the time is `rtt_ns`.
fn after_one_round_trip(packets: u32, rtt_ns: u64) -> Sender<u32> {
    let mut sender = Sender::new(1472, 1000);
    sender.enqueue(9, 1, 1000, STREAM, true);
    send_all(&mut sender, 0);
    sender.on_ack(&Ack::new(1, 1000), rtt_ns, |_| {}).unwrap();
    sender.enqueue(0, packets, 1000 * u64::from(packets), STREAM, true);
    while sender.stats().packets < 1 + u64::from(packets) {
        send_all(&mut sender, rtt_ns);
        sender.on_timer(rtt_ns);
        if sender.poll().is_none() {
            break;
        }
    }
    sender
}

#[test]
fn a_packet_that_one_has_overtaken_is_lost_after_nine_eighths_of_a_round_trip() {
    const RTT_NS: u64 = 1_600_000;
    let mut sender = after_one_round_trip(4, RTT_NS);
    // Packets 1 to 4 are in flight; the third came, and only two were overtaken by too few.
    sender.on_ack(&Ack::new(1, 1000).with_ranges([3..4]), 2 * RTT_NS, |_| panic!()).unwrap();
    assert_eq!(send_all(&mut sender, 2 * RTT_NS), []);
    let lost_ns = RTT_NS + RTT_NS * 9 / 8;
    assert!(sender.deadline_ns().unwrap().abs_diff(lost_ns) < 100, "{:?} {lost_ns}", sender.deadline_ns());
    sender.on_timer(lost_ns - 100);
    assert_eq!(send_all(&mut sender, lost_ns), []);
    sender.on_timer(lost_ns);
    assert_eq!(send_all(&mut sender, lost_ns), [(1, true), (2, true)]);
    assert_eq!(sender.stats().timeouts, 0);
}

#[test]
fn a_silent_path_is_probed_with_two_packets_and_what_the_answer_shows_is_sent_again() {
    const RTT_NS: u64 = 1_000_000;
    let mut sender = after_one_round_trip(40, RTT_NS);
    let at = sender.deadline_ns().unwrap();
    sender.on_timer(at - 1);
    assert_eq!(send_all(&mut sender, at - 1), []);
    sender.on_timer(at);
    assert_eq!(send_all(&mut sender, at), [(1, true), (2, true)]);
    assert!(sender.deadline_ns().unwrap() > at);
    let answered_ns = at + RTT_NS;
    sender.on_ack(&Ack::new(3, 1000), answered_ns, |_| {}).unwrap();
    // All of it is older than a round trip and was overtaken. One silence is no persistent congestion.
    assert_eq!(send_all(&mut sender, answered_ns).len(), 38);
    let SenderStats { packets, resent, timeouts, .. } = sender.stats();
    assert_eq!((packets, resent, timeouts), (41, 40, 1));
}

#[test]
fn a_probe_leaves_even_where_the_window_is_full() {
    let mut sender = Sender::new(1472, 1000);
    sender.enqueue(0, 64, 65_536, STREAM, true);
    sender.enqueue(1, 1, 1000, STREAM, true);
    assert_eq!(send_all(&mut sender, 0).len(), 64, "a window");
    sender.on_timer(sender.deadline_ns().unwrap());
    assert_eq!(send_all(&mut sender, 0), [(0, true), (1, true)]);
}

#[test]
fn losses_after_a_long_silence_shrink_the_window_to_the_least() {
    const RTT_NS: u64 = 1_000_000;
    let mut sender = after_one_round_trip(60, RTT_NS);
    for _ in 0..2 {
        let at = sender.deadline_ns().unwrap();
        sender.on_timer(at);
        assert_eq!(send_all(&mut sender, at), [(1, true), (2, true)]);
    }
    let answered_ns = sender.now_ns + RTT_NS;
    sender.on_ack(&Ack::new(3, 1000), answered_ns, |_| {}).unwrap();
    assert_eq!(send_all(&mut sender, answered_ns).len(), 16, "16 KiB");
}

#[test]
fn a_peer_that_was_delayed_has_lost_nothing() {
    const RTT_NS: u64 = 100_000;
    let mut sender = after_one_round_trip(64, RTT_NS);
    for _ in 0..3 {
        let at = sender.deadline_ns().unwrap();
        sender.on_timer(at);
        assert_eq!(send_all(&mut sender, at).len(), 2);
    }
    // It acknowledges what it got before the probes, and which of the first two it means cannot be seen.
    let answered_ns = sender.now_ns + 5 * RTT_NS;
    sender.on_ack(&Ack::new(33, 1000), answered_ns, |_| {}).unwrap();
    assert_eq!(send_all(&mut sender, answered_ns), []);
    sender.on_ack(&Ack::new(65, 1000), answered_ns + 1, |_| {}).unwrap();
    assert!(sender.is_idle());
    sender.enqueue(1, 64, 64_000, STREAM, true);
    assert_eq!(send_all(&mut sender, answered_ns + 1).len(), 64, "the window is as large as before");
}

#[test]
fn an_ack_of_the_unsent_changes_nothing() {
    let mut sender = Sender::new(1472, 100);
    sender.enqueue(0, 4, 400, STREAM, true);
    send_all(&mut sender, 0);
    assert!(sender.on_ack(&Ack::new(5, 100), 1, |_| panic!()).is_err());
    assert!(sender.on_ack(&Ack::new(1, 100).with_ranges([2..9]), 1, |_| panic!()).is_err());
    assert!(!sender.is_idle());
}

#[test]
fn the_oldest_unsent_data_can_be_dropped_but_nothing_else() {
    let mut sender = Sender::new(1472, 1);
    sender.enqueue(0, 1, 100, STREAM, true);
    send_all(&mut sender, 0);
    sender.enqueue(1, 1, 100, STREAM, false);
    sender.enqueue(2, 1, 100, STREAM, true);
    assert_eq!(sender.drop_oldest(), Some(2));
    assert_eq!(sender.drop_oldest(), None);
    assert_eq!(sender.take_unacknowledged().collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn only_the_newest_packet_measures_the_round_trip() {
    const MS: u64 = 1_000_000;
    let mut sender = Sender::new(1472, 100);
    sender.enqueue(0, 10, 1000, STREAM, true);
    send_all(&mut sender, 0);
    sender.on_ack(&Ack::new(0, 100).with_ranges([5..6]), MS, |_| panic!()).unwrap();
    assert_eq!(sender.rtt_ns(), MS);
    // A packet that arrived long ago and is acknowledged only now was not on its way for so long.
    sender.on_ack(&Ack::new(3, 100).with_ranges([5..6]), 6000 * MS, |_| panic!()).unwrap();
    assert_eq!(sender.rtt_ns(), MS);
    // Nor does the second part of a unit say when its first part left.
    let mut sender = Sender::new(1472, 2);
    sender.enqueue(0, 4, 400, STREAM, true);
    send_all(&mut sender, 0);
    sender.on_ack(&Ack::new(0, 4), 99 * MS, |_| panic!()).unwrap();
    send_all(&mut sender, 99 * MS);
    sender.on_ack(&Ack::new(2, 4), 100 * MS, |_| panic!()).unwrap();
    assert_eq!(sender.rtt_ns(), 0);
}

#[test]
fn packets_lost_again_are_noticed_without_a_time_out() {
    let mut sender = Sender::new(1472, 100);
    sender.enqueue(0, 5, 500, STREAM, true);
    send_all(&mut sender, 0);
    let ack = Ack::new(0, 100).with_ranges([1..5]);
    sender.on_ack(&ack, 1_000_000, |_| panic!()).unwrap();
    sender.enqueue(1, 4, 400, STREAM, true);
    let sent = [(0, true), (5, false), (6, false), (7, false), (8, false)];
    assert_eq!(send_all(&mut sender, 1_000_000), sent);
    // Three transmissions after the second of packet 0.
    let ack = Ack::new(0, 100).with_ranges([1..7]);
    sender.on_ack(&ack, 2_000_000, |_| panic!()).unwrap();
    assert_eq!(send_all(&mut sender, 2_000_000), []);
    let ack = Ack::new(0, 100).with_ranges([1..8]);
    sender.on_ack(&ack, 2_000_000, |_| panic!()).unwrap();
    assert_eq!(send_all(&mut sender, 2_000_000), [(0, true)]);
    assert_eq!(sender.stats().timeouts, 0);
}

#[test]
fn a_path_that_mixes_packets_up_gets_more_patience() {
    let mut sender = Sender::new(1472, 100);
    sender.enqueue(0, 20, 2000, STREAM, true);
    send_all(&mut sender, 0);
    sender.on_ack(&Ack::new(0, 100).with_ranges([3..4]), 1_000_000, |_| panic!()).unwrap();
    sender.on_ack(&Ack::new(4, 100), 1_100_000, |_| panic!()).unwrap();
    sender.on_ack(&Ack::new(4, 100).with_ranges([5..10]), 1_200_000, |_| panic!()).unwrap();
    assert_eq!(send_all(&mut sender, 1_200_000), []);
    sender.on_ack(&Ack::new(4, 100).with_ranges([5..11]), 1_300_000, |_| panic!()).unwrap();
    assert_eq!(send_all(&mut sender, 1_300_000), [(4, true)]);
}

#[test]
fn a_long_path_is_sent_to_at_a_pace() {
    let mut sender = Sender::new(1472, 1000);
    sender.enqueue(0, 1, 1000, STREAM, true);
    send_all(&mut sender, 0);
    sender.on_ack(&Ack::new(1, 1000), 20_000_000, |p| assert_eq!(p, 0)).unwrap();
    for unit in 1..=4 {
        sender.enqueue(unit, 10, 10_000, STREAM, true);
    }
    let (mut now_ns, mut sent) = (20_000_000, 0);
    loop {
        let burst = send_all(&mut sender, now_ns).len();
        assert!((1..=20).contains(&burst), "{burst} packets at once");
        sent += burst;
        if sent == 40 {
            break;
        }
        let due_ns = sender.deadline_ns().unwrap();
        assert!(due_ns > now_ns);
        now_ns = due_ns;
        sender.on_timer(now_ns);
    }
    assert_eq!(sender.stats().timeouts, 0);
    assert!(now_ns < 40_000_000, "a window takes no longer than a round trip: {now_ns}");
}

#[test]
fn the_window_of_a_long_path_does_not_outgrow_its_use() {
    const RTT_NS: u64 = 50_000_000;
    const PACKET_BYTES: u64 = 1400;
    let mut sender = Sender::new(1472, 1 << 20);
    // Each ack comes a round trip after its packets: until when everything below a number has arrived.
    let (mut acks, mut now_ns, mut acked) = (VecDeque::new(), 0, 0);
    let mut run = |sender: &mut Sender<u32>, until_ns: u64, acks_come: bool| {
        let mut sent_bytes = 0;
        while now_ns < until_ns {
            let sent = send_all(sender, now_ns).len() as u64;
            sent_bytes += sent * PACKET_BYTES;
            if sent > 0 {
                acks.push_back((now_ns + RTT_NS, sender.stats().packets));
            }
            let next_ack = acks.front().copied().filter(|_| acks_come);
            now_ns = next_ack.map(|ack| ack.0).into_iter().chain(sender.deadline_ns()).min().unwrap_or(until_ns);
            now_ns = now_ns.min(until_ns);
            if let Some((_, packets)) = next_ack.filter(|ack| ack.0 <= now_ns) {
                acks.pop_front();
                acked = packets;
                sender.on_ack(&Ack::new(acked, 1 << 20), now_ns, |_| {}).unwrap();
            }
            sender.on_timer(now_ns);
        }
        sent_bytes
    };
    // A unit of 64 packets in each round trip, all of it at once: 90 KB.
    for round in 1..=200 {
        sender.enqueue(0, 64, 64 * PACKET_BYTES, STREAM, true);
        run(&mut sender, round * RTT_NS, true);
    }
    (0..100).for_each(|unit| sender.enqueue(unit, 64, 64 * PACKET_BYTES, STREAM, true));
    let burst_bytes = run(&mut sender, 201 * RTT_NS - 1, false);
    assert!((80_000..250_000).contains(&burst_bytes), "{burst_bytes} bytes leave before an ack");
    assert_eq!((sender.stats().resent, sender.stats().timeouts), (0, 0));
}

#[test]
fn an_ack_that_comes_after_its_probe_withdraws_no_decrease() {
    const RTT_NS: u64 = 1_000_000;
    let mut sender = after_one_round_trip(10, RTT_NS);
    // Packet 1 of 1 to 10 is lost indeed, and the window shrinks.
    let mut now_ns = 2 * RTT_NS;
    sender.on_ack(&Ack::new(1, 1000).with_ranges([2..11]), now_ns, |_| {}).unwrap();
    assert_eq!(send_all(&mut sender, now_ns), [(1, true)]);
    now_ns += RTT_NS;
    sender.on_ack(&Ack::new(11, 1000), now_ns, |_| {}).unwrap();
    assert!(sender.is_idle());
    // The peer is slow to answer, so two packets of the next unit are sent again although they have arrived.
    sender.enqueue(1, 4, 4000, STREAM, true);
    send_all(&mut sender, now_ns);
    now_ns = sender.deadline_ns().unwrap();
    sender.on_timer(now_ns);
    assert_eq!(send_all(&mut sender, now_ns), [(11, true), (12, true)]);
    sender.on_ack(&Ack::new(12, 1000).with_ranges([13..14]), now_ns + 1000, |_| {}).unwrap();
    sender.on_ack(&Ack::new(15, 1000), now_ns + 2000, |_| {}).unwrap();
    assert!(sender.is_idle());
    sender.enqueue(2, 64, 64_000, STREAM, true);
    assert_eq!(send_all(&mut sender, now_ns + 2000).len(), 65_536 * 7 / 10 / 1000, "a window after a loss");
}

#[test]
fn control_goes_before_datagrams_and_data_in_turn_with_them() {
    let mut sender = Sender::new(1472, 100);
    for payload in 0..3 {
        sender.enqueue_datagrams(payload, 1, 1000, |_, _| panic!());
        sender.enqueue(10 + payload, 1, 1000, STREAM, true);
    }
    sender.enqueue(20, 1, 10, FREE, false);
    let sent: Vec<_> = sent_payloads(&mut sender).into_iter().map(|(payload, ..)| payload).collect();
    assert_eq!(sent, [20, 0, 10, 1, 11, 2, 12]);
}

#[test]
fn lost_packets_wait_for_no_datagrams() {
    let mut sender = Sender::new(1472, 100);
    sender.enqueue(0, 5, 5000, STREAM, true);
    assert_eq!(send_all(&mut sender, 0).len(), 5);
    sender.enqueue_datagrams(1, 1, 1000, |_, _| panic!());
    sender.on_ack(&Ack::new(0, 100).with_ranges([4..5]), 10, |_| panic!()).unwrap();
    assert_eq!(sent_payloads(&mut sender), [(0, 0..2, 0), (1, 0..1, 0)]);
}

#[test]
fn datagrams_that_cannot_be_sent_are_dropped_and_delay_nothing() {
    let mut sender = Sender::new(1472, 100);
    sender.enqueue_datagrams(0, 2, 2000, |_, _| panic!());
    sender.enqueue(1, 1, 1000, STREAM, true);
    assert_eq!(*sender.poll().unwrap().payload, 0);
    let mut dropped = Vec::new();
    assert!(sender.transmission_failed(|payload, packets| dropped.push((payload, packets))));
    assert_eq!((dropped, sender.datagram_stats().dropped, sender.flight_bytes()), (vec![(0, 0..2)], 2, 0));
    assert_eq!(*sender.poll().unwrap().payload, 1);
    assert!(!sender.transmission_failed(|_, _| panic!()));
    assert_eq!(send_all(&mut sender, 0), [(0, false)]);
}

const MS: u64 = 1_000_000;

/// Sends as many datagrams of 1000 bytes as the path has room for; how many.
fn send_datagrams(sender: &mut Sender<u32>, now_ns: u64) -> u64 {
    let before = sender.datagram_stats().sent;
    for _ in 0..8 {
        sender.enqueue_datagrams(0, 64, 64_000, |_, _| ());
        send_all(sender, now_ns);
    }
    sender.datagram_stats().sent - before
}

fn report(sender: &mut Sender<u32>, end: u64, arrived: u64, now_ns: u64) {
    let mut ack = Ack::new(0, 100);
    ack.datagrams = crate::DatagramReport { end, arrived };
    sender.on_ack(&ack, now_ns, |_| panic!()).unwrap();
}

#[test]
fn datagrams_measure_the_path() {
    let mut sender = Sender::new(1472, 100);
    sender.enqueue_datagrams(0, 3, 3000, |_, _| panic!());
    send_all(&mut sender, MS);
    report(&mut sender, 2, 1, 6 * MS);
    assert_eq!(sender.rtt_ns(), 5 * MS);
    sender.enqueue_datagrams(0, 1, 1000, |_, _| panic!());
    send_all(&mut sender, 7 * MS);
    // An ack that reports no later one is no sample.
    report(&mut sender, 2, 2, 20 * MS);
    assert_eq!(sender.rtt_ns(), 5 * MS);
    report(&mut sender, 4, 4, 20 * MS);
    assert_eq!(sender.rtt_ns(), 6 * MS);
}

#[test]
fn datagrams_on_a_dead_path_become_few() {
    let mut sender = Sender::new(1472, 100);
    sender.enqueue_datagrams(0, 1, 1000, |_, _| ());
    send_all(&mut sender, 0);
    report(&mut sender, 1, 1, MS);
    let (mut now_ns, mut sent, mut gaps_ns) = (MS, Vec::new(), Vec::new());
    for _ in 0..6 {
        sent.push(send_datagrams(&mut sender, now_ns));
        let due_ns = sender.deadline_ns().unwrap();
        gaps_ns.push(due_ns - now_ns);
        now_ns = due_ns;
        sender.on_timer(now_ns);
    }
    assert!(sent[0] > 60 && sent[1..].iter().all(|&sent| sent == 16), "{sent:?}");
    assert_eq!(gaps_ns, [30 * MS, 60 * MS, 120 * MS, 240 * MS, 480 * MS, 500 * MS]);
    // It is there again: those that were given up are no further loss, and the window doubles.
    let end = sender.datagram_stats().sent + send_datagrams(&mut sender, now_ns);
    let arrived = end - sent.iter().sum::<u64>();
    report(&mut sender, end, arrived, now_ns + MS);
    report(&mut sender, end, arrived, now_ns + 500 * MS);
    assert_eq!(sender.congestion_window_bytes(), Some((16 << 10) + 16_000));
}

#[test]
fn datagrams_that_are_lost_let_no_window_grow_and_shrink_it_once_in_a_round_trip() {
    let mut sender = Sender::new(1472, 100);
    let first = send_datagrams(&mut sender, 0);
    let window = sender.congestion_window_bytes().unwrap();
    report(&mut sender, first, 10, MS);
    let grown = sender.congestion_window_bytes().unwrap();
    assert_eq!(grown, window + 10_000, "only what has come lets it grow");
    let sent = first + send_datagrams(&mut sender, 2 * MS);
    report(&mut sender, first + 1, 21, 3 * MS);
    report(&mut sender, first + 1, 21, 10 * MS);
    let shrunk = sender.congestion_window_bytes().unwrap();
    assert!(shrunk < grown, "{shrunk} of {grown}");
    report(&mut sender, first + 2, 21, 11 * MS);
    report(&mut sender, first + 2, 21, 40 * MS);
    report(&mut sender, sent, sent - first + 19, 41 * MS);
    assert_eq!(sender.congestion_window_bytes(), Some(shrunk), "of the same round trip");
}
