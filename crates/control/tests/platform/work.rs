//! The cost of a handler that counts: its estimate, and then what it takes at work.

use crossdock_control::load::Cost;
use crossdock_control::work::{AtWork, PROBATION_S, Worked};
use proptest::prelude::*;

const ESTIMATE: Cost = Cost {
    ns_per_batch: 1000.0,
    ns_per_message: 50.0,
    tail_ns_per_message: 100.0,
    messages_out_per_message: 1.0,
    bytes_out_per_message: 10.0,
    bytes_in_per_message: 20.0,
    messages_per_batch: 100.0,
    sample_messages: 500,
    is_provisional: false,
};

/// A second in which this many messages came, and an eighth of them was measured.
fn second(messages: f64, messages_per_batch: f64, ns: f64) -> Worked {
    Worked {
        batches: messages / messages_per_batch,
        messages,
        bytes: messages * 40.0,
        messages_out: messages / 2.0,
        bytes_out: messages * 5.0,
        measured_messages: messages / 8.0,
        measured_ns: messages / 8.0 * ns,
    }
}

#[test]
fn a_handler_counts_with_its_estimate_and_a_margin_and_then_with_what_it_takes() {
    let mut work = AtWork::default();
    assert_eq!(work.costs(&[(ESTIMATE, 1.0)]), [ESTIMATE.with_margin()]);
    // Seconds in which nothing comes, or nothing is measured, do not count.
    assert!(
        !work.second(&Worked::default()) && !work.second(&Worked { measured_messages: 0.0, ..second(1e3, 10.0, 1.0) })
    );
    for number in 1..=PROBATION_S {
        assert!(work.is_on_probation());
        assert_eq!(work.costs(&[(ESTIMATE, 1.0)]), [ESTIMATE.with_margin()]);
        assert_eq!(work.second(&second(1e5, 10.0, 225.0)), number == PROBATION_S);
    }
    let [cost] = work.costs(&[(ESTIMATE, 1.0)])[..] else { panic!("one for each") };
    // In batches of 10 the estimate was 150 ns a message: it takes half as long again, for all that it does.
    assert_eq!((cost.messages_per_batch, cost.ns_of_message()), (10.0, 225.0));
    assert_eq!((cost.ns_per_batch, cost.tail_ns_per_message), (1500.0, 150.0));
    assert_eq!(
        (cost.messages_out_per_message, cost.bytes_out_per_message, cost.bytes_in_per_message),
        (0.5, 5.0, 40.0)
    );
    assert_eq!(cost.load(1_000_000).time_ns_per_s, 225_000_000);
    // It follows what it takes by and by.
    work.second(&second(1e5, 10.0, 100.0));
    let ns = work.ns_per_message().unwrap();
    assert!(ns > 150.0 && ns < 225.0, "{ns}");
    (0..40).for_each(|_| _ = work.second(&second(1e5, 10.0, 100.0)));
    assert!((99.9..100.1).contains(&work.ns_per_message().unwrap()));
}

#[test]
fn formats_keep_their_parts_of_what_was_measured_together() {
    let dear = Cost { ns_per_batch: 0.0, ns_per_message: 300.0, ..ESTIMATE };
    let cheap = Cost { ns_per_message: 100.0, ..dear };
    let mut work = AtWork::default();
    (0..PROBATION_S).for_each(|_| _ = work.second(&second(1e5, 10.0, 300.0)));
    // Three of four messages are cheap: 150 ns on average were expected.
    let costs = work.costs(&[(dear, 1.0), (cheap, 3.0)]);
    assert_eq!(costs.iter().map(|cost| cost.ns_per_message).collect::<Vec<_>>(), [600.0, 200.0]);
    let costs = work.costs(&[(dear, 0.0), (cheap, 0.0)]);
    assert_eq!(costs.iter().map(|cost| cost.ns_per_message).collect::<Vec<_>>(), [450.0, 150.0], "no part is known");
    let nothing = Cost { ns_per_batch: 0.0, ns_per_message: 0.0, ..ESTIMATE };
    assert_eq!(work.costs(&[(nothing, 1.0)])[0].ns_per_message, 300.0);
    assert_eq!(work.costs(&[]), []);
}

#[test]
fn on_probation_a_handler_may_not_take_far_more_than_its_estimate() {
    let far = |rate: f64, ns: f64, seconds: u32| {
        let mut work = AtWork::default();
        (0..seconds).for_each(|_| _ = work.second(&second(rate, 100.0, ns)));
        work.is_far_over(&[(ESTIMATE, 1.0)])
    };
    // 60 ns were expected; and a batch may always take 5 us more.
    assert!(far(1e6, 171.0, 1) && !far(1e6, 170.0, 1));
    assert!(!far(1e6, 171.0, 0), "nothing is known yet");
    assert!(!far(1e5, 500.0, 1), "some ms a second matter to nobody");
    assert!(!far(1e6, 171.0, PROBATION_S), "from then on it counts with what it takes");
}

proptest! {
    #[test]
    fn counts_at_work_give_a_cost(
        counts in prop::collection::vec(prop::array::uniform7(0.0..1e9f64), 0..10),
        part in 0.0..10.0f64,
    ) {
        let mut work = AtWork::default();
        for [batches, messages, bytes, messages_out, bytes_out, measured_messages, measured_ns] in counts {
            let worked =
                Worked { batches, messages, bytes, messages_out, bytes_out, measured_messages, measured_ns };
            work.second(&worked);
            for cost in work.costs(&[(ESTIMATE, part), (ESTIMATE, 1.0)]) {
                prop_assert!(cost.load(1000).time_ns_per_s < u64::MAX && cost.messages_per_batch >= 1.0, "{:?}", cost);
            }
        }
    }
}
