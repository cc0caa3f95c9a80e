//! Admission against a plain search, and the words in which it refuses.

use crate::random::{self, MS, time};
use crossdock_control::admission::{
    AdmissionRequest, Class, ContextChoice, Need, Obstacle, Refused, Tried, admit, fit,
};
use crossdock_control::load::{Capacity, Context, Contexts, CoreKind, Cost, Flow, Load, SLICE_NS};
use proptest::prelude::*;
use std::cmp::Reverse;

fn platform(free_ms: &[(&str, u64)]) -> Contexts {
    let context = |(name, free): &(&str, u64)| {
        let kind = if name.starts_with('c') { CoreKind::CCore } else { CoreKind::GCore };
        let capacity = Capacity::of_cpu(kind, None, 1000);
        Context { name: (*name).to_owned(), capacity, system: time(800 - free) }
    };
    Contexts::new(free_ms.iter().map(context).collect()).unwrap()
}

fn needing(ms: u64) -> Need {
    Need { load: time(ms), rate_msgs_per_s: 2_100_000, is_metered: true, ..Need::of(&Cost::default(), 0) }
}

fn auto(inputs: &[(usize, Flow)]) -> AdmissionRequest {
    AdmissionRequest { place: ContextChoice::Auto, inputs: inputs.to_vec() }
}

fn named(name: &str) -> AdmissionRequest {
    AdmissionRequest { place: ContextChoice::Named(name.to_owned()), inputs: Vec::new() }
}

const SOME: Flow = Flow { batches_per_s: 10_000, messages_per_s: 2_000_000, bytes_per_s: 120_000_000 };

#[test]
fn the_nearest_c_core_then_another_then_a_g_core_then_none() {
    let contexts = platform(&[("c-core-0", 120), ("c-core-1", 400), ("c-core-2", 500), ("g-core-0", 800)]);
    let at = |ms, request: &AdmissionRequest| admit(&needing(ms), &contexts, request).map(|admitted| admitted.context);
    let near = auto(&[(0, SOME)]);
    assert_eq!(at(120, &near), Ok(0), "where its input comes from, as long as it fits");
    assert_eq!(at(121, &near), Ok(2), "then where most is left");
    assert_eq!(at(120, &auto(&[])), Ok(2));
    assert_eq!(at(492, &near), Ok(2));
    assert_eq!(at(493, &near), Ok(3), "taking the input over is part of what it takes");
    assert_eq!(at(350, &auto(&[(0, SOME), (1, Flow { bytes_per_s: 130_000_000, ..SOME })])), Ok(1));
    assert_eq!(at(300, &auto(&[(3, SOME)])), Ok(2), "a c-core first, also from a g-core");
    let equal = platform(&[("c-core-2", 300), ("c-core-1", 300)]);
    assert_eq!(admit(&needing(10), &equal, &auto(&[])).unwrap().context, 1, "of equal ones the first by name");
}

#[test]
fn a_refusal_reports_what_each_context_lacks() {
    let contexts = platform(&[("c-core-0", 120), ("c-core-1", 30), ("g-core-0", 90)]);
    let refused = admit(&needing(310), &contexts, &auto(&[])).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "needs 310 ms/s at 2.1 M msgs/s, c-core-0 has 120 ms/s, c-core-1 has 30 ms/s, g-core-0 has 90 ms/s: \
         remove or move a handler, declare a lower rate, or add a context"
    );
    let odd = Need { is_metered: false, is_provisional: true, ..needing(80) };
    let text = admit(&odd, &contexts, &auto(&[(0, Flow { messages_per_s: 11_000_000, ..SOME })])).unwrap_err();
    assert_eq!(
        text.to_string(),
        "needs 80 ms/s at 2.1 M msgs/s (measured on made-up messages), c-core-0 accepts only metered handlers, \
         c-core-1 accepts only metered handlers, g-core-0 has 90 ms/s left of the 96 ms/s that it needs there: \
         remove or move a handler, declare a lower rate, or add a context"
    );
    let unknown = admit(&needing(1), &contexts, &named("c-core-7")).unwrap_err();
    assert_eq!(unknown.to_string(), "there is no context c-core-7: name one of c-core-0, c-core-1, g-core-0");
    let none = admit(&needing(1), &Contexts::default(), &auto(&[])).unwrap_err();
    assert!(none.to_string().contains("there is no context"), "{none}");
    let fitting = admit(&needing(40), &contexts, &auto(&[(1, SOME)])).unwrap();
    assert_eq!(
        fitting.why,
        "communication-centric, needs 40 ms/s at 2.1 M msgs/s: c-core-0 has 120 ms/s; \
         c-core-1 has 30 ms/s left of the 40 ms/s that it needs there"
    );
}

#[test]
fn a_named_context_is_the_only_one() {
    let contexts = platform(&[("c-core-0", 100), ("c-core-1", 700), ("g-core-0", 800)]);
    assert_eq!(admit(&needing(100), &contexts, &named("c-core-0")).unwrap().context, 0);
    let obstacle = Obstacle::Time { needs: 101 * MS, has: 100 * MS };
    let tried = vec![Tried { context: "c-core-0".to_owned(), obstacle }];
    let refused = Refused::NoRoom { need: needing(101), tried };
    assert_eq!(admit(&needing(101), &contexts, &named("c-core-0")), Err(refused));
}

#[test]
fn each_resource_is_checked_and_what_is_reserved_counts() {
    let mut list = platform(&[("c-core-0", 800)]).list().to_vec();
    list[0].capacity.most.bytes_per_s = 1000;
    let contexts = Contexts::new(list).unwrap();
    let fits = |load: Load, reserve: Load| fit(&Need { load, reserve, ..needing(0) }, Load::default(), &contexts, 0);
    let buffers = |buffers| Load { buffers, ..Load::default() };
    let bytes = |bytes_per_s| Load { bytes_per_s, ..Load::default() };
    assert_eq!(fits(buffers(800) + bytes(800) + time(800), Load::default()), Ok(()));
    assert_eq!(fits(buffers(801), Load::default()), Err(Obstacle::Buffers { needs: 801, has: 800 }));
    assert_eq!(fits(bytes(801), Load::default()), Err(Obstacle::Bandwidth { needs: 801, has: 800 }));
    assert_eq!(fits(time(1), time(801)), Err(Obstacle::Time { needs: 801 * MS, has: 800 * MS }));
    assert_eq!(fits(time(500), time(800)), Ok(()), "the larger counts, not the sum");
    let long = Need { step_ns: SLICE_NS + 1, ..needing(1) };
    let too_long = Obstacle::Step { needs_ns: SLICE_NS + 1, has_ns: SLICE_NS };
    assert_eq!(fit(&long, Load::default(), &contexts, 0), Err(too_long));
}

#[test]
fn a_handler_at_line_rate_is_communication_centric() {
    let cost = |ns_per_message, tail_ns_per_message, bytes| Cost {
        ns_per_message,
        tail_ns_per_message,
        bytes_in_per_message: bytes,
        messages_per_batch: 100.0,
        ..Cost::default()
    };
    // 84 bytes at the least, of 0.8 ns each.
    assert_eq!(Class::of(&cost(67.0, 67.0, 8.0)), Class::Communication);
    assert_eq!(Class::of(&cost(68.0, 68.0, 8.0)), Class::Computation);
    assert_eq!(Class::of(&cost(800.0, 800.0, 1000.0)), Class::Communication);
    assert_eq!(Class::of(&Cost { ns_per_batch: 500.0, ..cost(800.0, 800.0, 1000.0) }), Class::Computation);
    let brought = Cost { ns_per_batch: 300.0, messages_per_batch: 1.0, ..cost(67.0, 67.0, 8.0) };
    assert_eq!(Class::of(&brought), Class::Communication, "what it takes to bring a batch is the context's");
    assert_eq!(Class::of(&Cost { bytes_out_per_message: 2000.0, ..cost(1600.0, 1600.0, 10.0) }), Class::Communication);
    assert_eq!(Class::of(&cost(5.0, 2001.0, 100.0)), Class::Computation, "a step longer than a slice");
    assert_eq!(Class::of(&cost(f64::NAN, 1.0, 100.0)), Class::Computation);
}

#[test]
fn a_handler_of_several_inputs_needs_the_sum() {
    let one = Need { step_ns: 10, reserve: time(300), ..needing(100) };
    let other = Need { step_ns: 20, is_metered: false, class: Class::Computation, ..needing(150) };
    let both = one.and(other);
    assert_eq!((both.load, both.reserve, both.rate_msgs_per_s), (time(250), time(300), 4_200_000));
    assert_eq!((both.step_ns, both.is_metered, both.class), (20, false, Class::Computation));
    assert_eq!(both.committed(time(10)), time(300));
    assert_eq!(both.committed(time(60)), time(310));
}

proptest! {
    #[test]
    fn admission_is_the_first_that_fits_of_the_order_that_it_claims(
        contexts in random::committed(),
        need in random::need(),
        inputs in prop::collection::vec((any::<prop::sample::Index>(), random::flow()), 0..3),
    ) {
        let many = contexts.list().len();
        let inputs: Vec<(usize, Flow)> = inputs.into_iter().map(|(at, flow)| (at.index(many), flow)).collect();
        let request = auto(&inputs);
        let takes = |at: usize| {
            let others = inputs.iter().filter(|(from, _)| *from != at);
            (others.fold(need.load, |sum, (_, flow)| sum + flow.crossing())).max(need.reserve)
        };
        // The work of a context then must be within its capacity less its margin, alone and with those on its CPU.
        let fits = |at: usize| {
            let c_core = contexts.list()[at].capacity.kind == CoreKind::CCore;
            let mut then = contexts.clone();
            then.commit(at, takes(at));
            let (takes, over) = (takes(at), then.excess(at));
            let within = (takes.time_ns_per_s == 0 || over.time_ns_per_s == 0)
                && (takes.buffers == 0 || over.buffers == 0)
                && (takes.bytes_per_s == 0 || over.bytes_per_s == 0);
            within && !(c_core && (!need.is_metered || need.step_ns > SLICE_NS))
        };
        let fitting: Vec<bool> = (0..many).map(fits).collect();
        let crossing_ns = |from: usize| request.crossing(from).time_ns_per_s;
        let nearest = inputs.iter().map(|(from, _)| *from).min_by_key(|from| (crossing_ns(*from), *from));
        let key = |at: &usize| {
            let Context { name, capacity, .. } = &contexts.list()[*at];
            (capacity.kind, Some(*at) != nearest, Reverse(contexts.headroom(*at).time_ns_per_s), name.clone())
        };
        let best = (0..many).filter(|at| fitting[*at]).min_by_key(key);
        match admit(&need, &contexts, &request) {
            Ok(admitted) => {
                prop_assert_eq!(Some(admitted.context), best);
                prop_assert_eq!(admitted.committed, takes(admitted.context));
            }
            Err(refused) => {
                prop_assert_eq!(best, None, "{}", refused);
                let Refused::NoRoom { tried, .. } = refused else { panic!("{refused}") };
                prop_assert_eq!(tried.len(), many);
            }
        }
        for (at, context) in contexts.list().iter().enumerate() {
            let there = AdmissionRequest { place: ContextChoice::Named(context.name.clone()), inputs: inputs.clone() };
            prop_assert_eq!(admit(&need, &contexts, &there).ok().map(|admitted| admitted.context), fitting[at].then_some(at));
        }
    }
}
