//! The control manager's own actions, once a second: it moves handlers off a c-core that has lost its headroom, and
//! back; has handlers at an overloaded context go by their overload rules; moves, limits or stops handlers that exceed
//! their budget.

use crate::admission::{ALWAYS_PERCENT, RoomReport};
use crate::graph::gauges::Loss;
use crate::graph::node::StateLoss;
use crate::managers::change::checked;
use crate::managers::deployed::{KnownStream, Status};
use crate::managers::rule;
use crate::managers::spec::OverBudget;
use crate::managers::{IoHandle, Managers};
use crate::present::present;
use crate::refusal::Stopped;
use crate::streams::StreamFacts;
use crossdock_control::admission::{ContextChoice, Need};
use crossdock_control::balance::{Decision, HandlerSample, Overrun, Sample};
use crossdock_control::load::{Contexts, Load};
use std::collections::{BTreeMap, BTreeSet};

/// A handler counts as over its budget if at least one in this many of its timed batches is over it.
const OVER_OF: u64 = 10;

impl Managers {
    /// Reports handlers whose records contexts have begun to shed by themselves, and handlers for which that is over; and handlers
    /// that could not compute records. A record that a subscription's own query could not compute is reported by its
    /// subscription.
    pub(crate) fn note_sampled(&mut self) {
        let mut events = Vec::new();
        for (name, there) in &mut self.handlers {
            let (batches, left_out) = (there.gauges.batches_shed.get(), there.gauges.lost(Loss::Sampled));
            events
                .extend(there.sampling_events.second(batches, left_out).map(|(kind, text)| (name.clone(), kind, text)));
            if !self.queries.contains_key(name) {
                let row_errors = there.row_error_events.second(&there.gauges, self.views.hides_values);
                events.extend(row_errors.map(|text| (name.clone(), "dropped", text)));
            }
        }
        for (name, kind, text) in events {
            self.note(kind, &name, text);
        }
    }

    /// Reports to each I/O context the time that it has left for subscriptions' queries; `is_second`: at the end of a second.
    pub(crate) fn report_room(&mut self, is_second: bool) {
        let contexts = self.contexts();
        // The inbox of one that is lost would fill up.
        let answering = self.io.iter().filter(|io| self.watch.lost(io.at).is_none());
        answering.for_each(|io| report_room(io, &contexts, is_second));
    }

    /// The known formats and rates of some streams.
    pub(crate) fn known_streams(&mut self, names: &BTreeSet<String>) -> Result<BTreeMap<String, KnownStream>, Stopped> {
        let facts = self.facts(names)?;
        let known = |(name, facts): (String, StreamFacts)| {
            // Records that handlers make are counted at one context, wherever they were made.
            let peaks = facts.peaks.iter().filter(|_| facts.made_by.is_none());
            let peaks = peaks.map(|(at, peak)| (self.watch.name(*at).to_owned(), *peak)).collect();
            (name, KnownStream { peaks, ..KnownStream::from(facts) })
        };
        Ok(facts.into_iter().map(known).collect())
    }

    /// Evaluates the last second, and carries out the changes that it requires.
    pub(crate) fn balance(&mut self) {
        let contexts = checked(Contexts::new(self.context_list()));
        let delayed = self.delayed();
        let mut handlers = Vec::new();
        let overlay = &self.overlay;
        let placed = self.handlers.iter_mut().filter_map(|of| overlay.placed(of.1.node).map(|placed| (of, placed)));
        for ((name, there), node) in placed {
            let rates = self.monitor.handler(name);
            let overruns = node.gauges.overruns.get();
            let timed = node.gauges.timed_batches.get();
            let seen = std::mem::replace(&mut there.overruns_seen, overruns);
            let timed_seen = std::mem::replace(&mut there.timed_seen, timed);
            let (over, of) = (overruns.saturating_sub(seen), timed.saturating_sub(timed_seen));
            // A few overruns are interrupts and page faults.
            let is_over = over * OVER_OF >= of.max(1);
            if matches!(there.status, Status::Failed(_)) {
                continue;
            }
            let load = Load {
                time_ns_per_s: rates.busy_ns_per_s,
                buffers: node.gauges.queued.get(),
                bytes_per_s: rates.bytes_out_per_s,
            };
            let (context, need) = (usize::from(node.at.0), Need { load, ..there.need });
            let Some(there_is) = present(contexts.list().get(context), "context", context) else { continue };
            let cost = there.costs.first().copied().unwrap_or_default();
            handlers.push(HandlerSample {
                name: name.clone(),
                context,
                need,
                place: there.spec.place.clone().map_or(ContextChoice::Auto, ContextChoice::Named),
                arriving: cost.arriving(rates.msgs_in_per_s),
                leaving: cost.leaving(rates.msgs_in_per_s),
                overruns: if is_over { over as u32 } else { 0 },
                is_far_over: there.is_far_over,
                is_limited: there.limit_ns_per_s.is_some(),
                policy: match there.spec.over_budget {
                    OverBudget::Move => Overrun::Move,
                    OverBudget::Stop => Overrun::Stop,
                },
                budget_ns_per_s: there.budget_ns_per_s(there_is.capacity),
                rule: rule::second(there, load, rates.msgs_in_per_s),
            });
        }
        let second = Sample { contexts: &contexts, handlers: &handlers, delayed: &delayed };
        for decision in self.balance.second(&second) {
            if let Err(why) = self.decide(decision) {
                self.events.note("undone", Default::default(), why);
            }
        }
    }

    /// For each context whether runnable batches have waited too long for it in the last second.
    fn delayed(&mut self) -> Vec<bool> {
        let now: Vec<u64> = self.overlay.ports.iter().map(|port| port.gauges.delayed.get()).collect();
        let before = std::mem::replace(&mut self.delayed_before, now.clone());
        now.into_iter().zip(before.into_iter().chain(std::iter::repeat(0))).map(|(now, before)| now > before).collect()
    }

    fn decide(&mut self, decision: Decision) -> Result<(), String> {
        let (Decision::Move { handler, .. }
        | Decision::Limit { handler, .. }
        | Decision::Degrade { handler, .. }
        | Decision::Stop { handler, .. }) = &decision;
        let node = self.there(handler).map(|there| there.node);
        let placed = node.and_then(|node| self.overlay.placed(node));
        if placed.is_some_and(|placed| self.watch.lost(placed.at).is_some()) {
            return Ok(());
        }
        match decision {
            Decision::Move { handler, to, why, .. } => match self.watch.find(&to) {
                Some(to) => self.move_handler(&handler, to, &why),
                None => Ok(()),
            },
            Decision::Limit { handler, ns_per_s, why } => {
                self.there(&handler).into_iter().for_each(|there| there.limit_ns_per_s = ns_per_s);
                self.set_policy(&handler);
                match ns_per_s {
                    Some(_) => self.note("over_budget", &handler, why),
                    None => self.note("restored", &handler, format!("its limit is lifted: {why}")),
                }
                Ok(())
            }
            Decision::Degrade { handler, applies, why } => {
                self.degrade(&handler, applies, &why);
                Ok(())
            }
            Decision::Stop { handler, why } => {
                if let Some(there) = self.there(&handler) {
                    there.status = Status::Failed(why.clone());
                    let node = there.node;
                    self.order(|overlay| overlay.fail(node))?;
                    self.lose_state(&handler, StateLoss::Failed);
                }
                self.note("stopped", &handler, format!("{why}: its input is dropped and counted until it is swapped"));
                Ok(())
            }
        }
    }
}

/// Reports to an I/O context the time that it has left for subscriptions' queries. Nobody waits for it: what comes to the
/// context after this comes after its report.
fn report_room(io: &IoHandle, contexts: &Contexts, is_second: bool) {
    let at = usize::from(io.at.0);
    let context = &contexts.list()[at];
    let report = RoomReport {
        left: contexts.headroom(at).time_ns_per_s,
        measured: context.system.time_ns_per_s,
        always: context.capacity.most.time_ns_per_s / 100 * ALWAYS_PERCENT,
        is_second,
    };
    // It may have stopped.
    let _ = io.inbox.post(move |context| context.admission.take_room(report));
}
