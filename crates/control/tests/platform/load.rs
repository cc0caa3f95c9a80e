//! Loads from costs; what contexts have left against a plain sum.

use crate::random::{self, MS, time};
use crossdock_control::load::{
    CPU_NS_PER_S, Capacity, Context, Contexts, ContextsError, CoreKind, Cost, Flow, Load, MAX_CONTEXTS, SLICE_NS,
};
use proptest::prelude::*;

const COST: Cost = Cost {
    ns_per_batch: 400.0,
    ns_per_message: 3.0,
    tail_ns_per_message: 20.0,
    messages_out_per_message: 0.5,
    bytes_out_per_message: 30.0,
    bytes_in_per_message: 60.0,
    messages_per_batch: 200.0,
    sample_messages: 10_000,
    is_provisional: false,
};

#[test]
fn a_load_is_the_cost_at_a_rate() {
    // 10,000 batches of 200: 400 ns each, and 3 ns a message.
    let load = COST.load(2_000_000);
    assert_eq!(load.time_ns_per_s, 10_000 * 400 + 2_000_000 * 3);
    assert_eq!(COST.ns_of_message(), 400.0 / 200.0 + 3.0);
    assert!(COST.with_margin().load(2_000_000).time_ns_per_s.abs_diff(11 * MS) <= 1);
    assert_eq!(load.bytes_per_s, 60_000_000);
    // 10,000 batches that stay 200 µs and 1 µs: 2.01; 5,000 made that stay 200 µs: 1; and the two that are always there.
    assert_eq!(load.buffers, 3 + 1 + 2);
    assert_eq!(COST.step_ns(), 400 + 200 * 20);
    let arriving = Flow { batches_per_s: 10_000, messages_per_s: 2_000_000, bytes_per_s: 120_000_000 };
    assert_eq!(COST.arriving(2_000_000), arriving);
    assert_eq!(arriving.crossing().time_ns_per_s, 10_000 * 150 + 2_000_000 + 120_000 * 32);
    let leaving = Flow { batches_per_s: 10_000, messages_per_s: 1_000_000, bytes_per_s: 60_000_000 };
    assert_eq!(COST.leaving(2_000_000), leaving);
    let slower = Cost { ns_per_batch: 800.0, ns_per_message: 6.0, tail_ns_per_message: 40.0, ..COST };
    assert_eq!(COST.slower(2.0), slower);
    assert_eq!(Cost::default().load(0), Load { buffers: 2, ..Load::default() });
}

#[test]
fn a_load_that_is_no_number_fits_nowhere() {
    for broken in [
        Cost { ns_per_message: f64::NAN, ..COST },
        Cost { ns_per_batch: f64::INFINITY, ..COST },
        Cost { messages_per_batch: f64::NAN, ..COST },
    ] {
        assert_eq!(broken.load(1000).time_ns_per_s, u64::MAX, "{broken:?}");
        assert_eq!(broken.step_ns(), u64::MAX, "{broken:?}");
    }
    // A fit through noisy points may come out below nothing.
    let below = Cost { ns_per_batch: -300.0, ..COST };
    assert_eq!(below.load(2_000_000).time_ns_per_s, 6 * MS);
    assert_eq!(Cost { bytes_out_per_message: f64::NAN, ..COST }.load(1).bytes_per_s, u64::MAX);
}

#[test]
fn headroom_is_also_the_time_for_a_message() {
    assert_eq!(time(400).ns_per_message(2_000_000), 200);
    assert_eq!(time(400).ns_per_message(0), u64::MAX);
    assert_eq!(Load::default().ns_per_message(5), 0);
}

#[test]
fn contexts_of_one_cpu_share_its_time() {
    let context = |name: &str, cpu, margin_percent| {
        let capacity = Capacity { margin_percent, ..Capacity::of_cpu(CoreKind::CCore, cpu, 100) };
        Context { name: name.to_owned(), capacity, system: Load::default() }
    };
    let list = vec![context("a", Some(1), 20), context("b", Some(1), 10), context("c", None, 20)];
    let mut contexts = Contexts::new(list).unwrap();
    contexts.commit(0, time(300));
    let left = |contexts: &Contexts| [0, 1, 2].map(|at| contexts.headroom(at).time_ns_per_s / MS);
    assert_eq!(left(&contexts), [500, 500, 800], "the widest margin on a CPU is that of the CPU");
    contexts.commit(1, time(600));
    assert_eq!(left(&contexts), [0, 0, 800]);
    assert_eq!([0, 1, 2].map(|at| contexts.excess(at).time_ns_per_s / MS), [100, 100, 0]);
    assert_eq!(contexts.excess_with(0, 5), Load::default());
    assert!(contexts.is_same_cpu(0, 1) && !contexts.is_same_cpu(1, 2) && contexts.is_same_cpu(2, 2));
    contexts.release(1, time(600));
    assert_eq!(left(&contexts), [500, 500, 800]);
    assert_eq!(contexts.headroom_with(0, 40).time_ns_per_s, 300 * MS);
    assert_eq!(contexts.headroom_with(0, 5), contexts.headroom(0), "a margin may only be wider");
}

#[test]
fn contexts_have_names_and_a_bound() {
    let context = |number: usize| Context {
        name: format!("c-core-{number}"),
        capacity: Capacity::of_cpu(CoreKind::CCore, None, 1),
        system: Load::default(),
    };
    let twice = Contexts::new(vec![context(1), context(2), context(1)]);
    assert_eq!(twice, Err(ContextsError::Twice("c-core-1".to_owned())));
    assert!(Contexts::new((0..MAX_CONTEXTS).map(context).collect()).is_ok());
    let many = Contexts::new((0..=MAX_CONTEXTS).map(context).collect());
    assert_eq!(many, Err(ContextsError::TooMany(MAX_CONTEXTS + 1)));
}

proptest! {
    #[test]
    fn more_messages_are_more_load(cost in random::cost(), rate in 0..10_000_000u64, more in 0..10_000_000u64) {
        prop_assert!(cost.load(rate).is_within(cost.load(rate + more)));
        prop_assert!(cost.step_ns() as f64 >= cost.ns_per_batch + cost.messages_per_batch * cost.ns_per_message);
        let (arriving, leaving) = (cost.arriving(rate), cost.leaving(rate));
        prop_assert!(leaving.batches_per_s <= arriving.batches_per_s);
        prop_assert!(leaving.batches_per_s <= leaving.messages_per_s);
    }

    #[test]
    fn headroom_is_what_a_plain_sum_leaves(
        list in random::contexts(),
        loads in prop::collection::vec((any::<prop::sample::Index>(), random::load()), 0..8),
        kept in any::<prop::sample::Index>(),
    ) {
        let mut contexts = Contexts::new(list.clone()).unwrap();
        let loads: Vec<(usize, Load)> = loads.into_iter().map(|(at, load)| (at.index(list.len()), load)).collect();
        let kept = kept.index(loads.len() + 1);
        loads.iter().for_each(|(at, load)| contexts.commit(*at, *load));
        loads[kept..].iter().for_each(|(at, load)| contexts.release(*at, *load));
        let used = |at: usize| {
            let here = loads[..kept].iter().filter(|(to, _)| *to == at);
            here.fold(list[at].system, |sum, (_, load)| sum + *load)
        };
        let less = |figure: u64, percent: u8| (u128::from(figure) * u128::from(100 - percent) / 100) as u64;
        for (at, context) in list.iter().enumerate() {
            let Capacity { cpu, most, margin_percent, slice_ns, .. } = context.capacity;
            prop_assert_eq!(slice_ns, SLICE_NS);
            let same_cpu: Vec<usize> =
                (0..list.len()).filter(|&o| o == at || (cpu.is_some() && list[o].capacity.cpu == cpu)).collect();
            let widest = same_cpu.iter().map(|&o| list[o].capacity.margin_percent).max().unwrap();
            let of_cpu: u64 = same_cpu.iter().map(|&o| used(o).time_ns_per_s).sum();
            let time_left = less(most.time_ns_per_s, margin_percent).saturating_sub(used(at).time_ns_per_s);
            let cpu_left = less(CPU_NS_PER_S, widest).saturating_sub(of_cpu);
            let headroom = contexts.headroom(at);
            prop_assert_eq!(headroom.time_ns_per_s, if cpu.is_some() { time_left.min(cpu_left) } else { time_left });
            prop_assert_eq!(headroom.buffers, less(most.buffers, margin_percent).saturating_sub(used(at).buffers));
            prop_assert_eq!(contexts.used(at), used(at));
            // Over and headroom exclude each other, and one of them is there unless it fits exactly.
            let excess = contexts.excess(at);
            prop_assert!(excess.time_ns_per_s == 0 || headroom.time_ns_per_s == 0);
            prop_assert!(excess.buffers == 0 || headroom.buffers == 0);
        }
    }
}
