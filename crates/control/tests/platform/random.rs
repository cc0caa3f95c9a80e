//! Random contexts, costs and needs.

use crossdock_control::admission::{Class, Need};
use crossdock_control::load::{Capacity, Context, Contexts, CoreKind, Cost, Flow, Load, SLICE_NS};
use proptest::prelude::*;

pub(crate) const MS: u64 = 1_000_000;

pub(crate) fn time(ms_per_s: u64) -> Load {
    Load { time_ns_per_s: ms_per_s * MS, ..Load::default() }
}

/// With little of everything, so that all three resources get scarce.
pub(crate) fn load() -> impl Strategy<Value = Load> {
    (0..500u64, 0..40u64, 0..1000u64).prop_map(|(ms, buffers, bytes_per_s)| Load { buffers, bytes_per_s, ..time(ms) })
}

pub(crate) fn capacity() -> impl Strategy<Value = Capacity> {
    let kind = prop_oneof![Just(CoreKind::CCore), Just(CoreKind::GCore)];
    let most = (500..=1000u64, 40..200u64, prop_oneof![Just(u64::MAX), 1000..5000u64]);
    let most = most.prop_map(|(ms, buffers, bytes_per_s)| Load { buffers, bytes_per_s, ..time(ms) });
    (kind, prop::option::of(0..3u32), most, 0..40u8).prop_map(|(kind, cpu, most, margin_percent)| Capacity {
        kind,
        cpu,
        most,
        margin_percent,
        slice_ns: SLICE_NS,
    })
}

/// Up to five contexts, named as in a daemon.
pub(crate) fn contexts() -> impl Strategy<Value = Vec<Context>> {
    let system = (0..100u64, 0..8u64).prop_map(|(ms, buffers)| Load { buffers, ..time(ms) });
    prop::collection::vec((capacity(), system), 1..6).prop_map(|all| {
        let named = all.into_iter().enumerate().map(|(number, (capacity, system))| {
            let kind = if capacity.kind == CoreKind::CCore { "c-core" } else { "g-core" };
            Context { name: format!("{kind}-{number}"), capacity, system }
        });
        named.collect()
    })
}

/// The same with loads committed.
pub(crate) fn committed() -> impl Strategy<Value = Contexts> {
    (contexts(), prop::collection::vec((any::<prop::sample::Index>(), load()), 0..6)).prop_map(|(list, loads)| {
        let many = list.len();
        let mut contexts = Contexts::new(list).unwrap();
        for (at, load) in loads {
            contexts.commit(at.index(many), load);
        }
        contexts
    })
}

pub(crate) fn cost() -> impl Strategy<Value = Cost> {
    let times = (0.0..5_000.0, 0.0..500.0, 0.0..5_000.0);
    let sizes = (0.0..3.0, 0.0..2_000.0, 8.0..2_000.0, 1.0..300.0);
    (times, sizes).prop_map(|((ns_per_batch, ns_per_message, tail), (out, bytes_out, bytes_in, batch))| Cost {
        ns_per_batch,
        ns_per_message,
        tail_ns_per_message: ns_per_message + tail,
        messages_out_per_message: out,
        bytes_out_per_message: bytes_out,
        bytes_in_per_message: bytes_in,
        messages_per_batch: batch,
        sample_messages: 1000,
        is_provisional: false,
    })
}

pub(crate) fn need() -> impl Strategy<Value = Need> {
    let step = prop_oneof![4 => Just(SLICE_NS), 1 => Just(SLICE_NS + 1)];
    let reserve = prop_oneof![3 => Just(Load::default()), 1 => load()];
    (load(), reserve, step, prop::bool::weighted(0.8)).prop_map(|(load, reserve, step_ns, is_metered)| Need {
        load,
        reserve,
        rate_msgs_per_s: 1_000_000,
        step_ns,
        class: if step_ns > SLICE_NS { Class::Computation } else { Class::Communication },
        is_metered,
        is_provisional: false,
    })
}

/// Flows whose crossing takes up to about 180 ms per s.
pub(crate) fn flow() -> impl Strategy<Value = Flow> {
    (0..200_000u64, 0..50_000_000u64, 0..3_000_000_000u64)
        .prop_map(|(batches_per_s, messages_per_s, bytes_per_s)| Flow { batches_per_s, messages_per_s, bytes_per_s })
}
