//! Every counter against what was sent and received: random publishers, subscribers, handlers and mailboxes from a seed, and a model
//! of each counter that is declared. A counter that has neither a model nor a reason to have none fails the test.

mod checks;
mod model;
mod models;
mod world;

use crate::contexts::tries;
use crossdock_runtime::info::{
    ClientInfo, ContextInfo, ControlInfo, HandlerContextInfo, HandlerInfo, MailboxInfo, StreamInfo, SubscriptionInfo,
    TableInfo,
};
use fastrand::Rng;
use std::collections::BTreeSet;
use world::World;

/// Rounds of a run; after each all counters are compared.
const ROUNDS: usize = 6;

#[test]
fn every_counter_says_what_was_sent_and_received() {
    let name = "every_counter_says_what_was_sent_and_received";
    let runs = tries(8, 4);
    let mut causes = BTreeSet::new();
    crossdock_sim::check(name, runs, |seed| {
        let mut rng = Rng::with_seed(seed);
        let mut world = World::new(seed, rng.fork());
        for round in 0..ROUNDS {
            for _ in 0..if round == 0 { 10 } else { rng.u8(1..5) } {
                world.change();
            }
            world.traffic();
            world.settle();
        }
        world.leave();
        world.settle();
        causes.append(&mut world.causes());
    });
    // That all of it happens at all, with the seeds that are always tried.
    if ["CROSSDOCK_SEED", "CROSSDOCK_SEARCH"].iter().all(|variable| std::env::var_os(variable).is_none()) {
        let wanted = ["record_queue_full", "record_row_error", "record_unclaimed"];
        assert!(wanted.iter().all(|cause| causes.contains(*cause)), "{causes:?}");
    }
}

/// A new counter needs a model in `models`, or a place in the list of those that have none.
#[test]
fn every_counter_has_a_model_or_a_reason_to_have_none() {
    let without = [
        checks::without_model::<StreamInfo>(),
        checks::without_model::<SubscriptionInfo>(),
        checks::without_model::<ContextInfo>(),
        checks::without_model::<ClientInfo>(),
        checks::without_model::<MailboxInfo>(),
        checks::without_model::<HandlerInfo>(),
        checks::without_model::<HandlerContextInfo>(),
        checks::without_model::<ControlInfo>(),
        checks::without_model::<TableInfo>(),
    ];
    assert_eq!(without.concat(), [""; 0]);
}
