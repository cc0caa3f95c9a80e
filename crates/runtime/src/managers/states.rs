//! The states of streams: each is a handler that keeps the last record by key, declared for its stream, and whose rows subscriptions
//! with `SNAPSHOT` take. The handler has orders: how many there are, and to walk over its rows for each that comes.

use crate::elsewhere::{Elsewhere, HandlerGauges, HandlerWork};
use crate::graph::node::StateLoss;
use crate::managers::change::{Applied, NotMade};
use crate::managers::deployed::{Decided, Status};
use crate::managers::events::About;
use crate::managers::queries::Placement;
use crate::managers::request::{ChangeRequest, ControlRequest, KeyDeclaration, StateRead};
use crate::managers::spec::HandlerSpec;
use crate::managers::state_spec::{StateSpec, no_state, state_name};
use crate::managers::waiting::Answered;
use crate::managers::{Caller, Managers};
use crossdock_engine::StateOrder;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// The subscriptions that take a state.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StateReaders {
    there: u32,
    /// How many have begun.
    walks: u64,
    /// The order that the handler has, and which of its instances.
    given: Option<(StateOrder, InstancesOf)>,
}

/// The instances of a handler: its version, and the number of formats that it takes.
type InstancesOf = (u32, usize);

impl Managers {
    /// A subscription is to read the state of a stream.
    pub(super) fn read_state(&mut self, read: StateRead) {
        let StateRead { stream, top, keeps_changes, then } = read;
        let name = state_name(&stream);
        let state = self.handlers.get(&name).and_then(|there| there.spec.state.as_ref()).map(|state| state.of(&stream));
        let there = self.handlers.get(&name).map(|there| (&there.status, Arc::clone(&there.gauges)));
        let made = match there.zip(state) {
            None => Err(no_state(&stream)),
            Some(((Status::Failed(why), _), _)) => Err(format!("the state of stream `{stream}` has failed: {why}")),
            Some(((Status::Running | Status::Waiting(_), gauges), state)) => {
                let ordered = top.map_or(0, |top| top.most_bytes(state.max_bytes));
                let changes = if keeps_changes { state.max_bytes } else { 0 };
                self.take_ordered(ordered.saturating_add(changes)).map(|bytes| {
                    self.states.entry(name.clone()).or_default().there += 1;
                    let (managers, ordered_bytes) = (Arc::clone(&self.requests), Arc::clone(&self.ordered_bytes));
                    let end = move |handler| {
                        ordered_bytes.fetch_sub(bytes, Ordering::Relaxed);
                        // The managers may have ended before.
                        let _ = managers.send(ControlRequest::RemoveQuery { handler, uses: 1 });
                    };
                    let gauges = HandlerGauges { work: HandlerWork::State, own: gauges, reductions: Vec::new() };
                    (state, Elsewhere::new(name, gauges, end))
                })
            }
        };
        then(made);
    }

    /// A publisher declares the key of its stream. The first one stands, whoever declared it, until it is taken back.
    pub(super) fn declare_key(&mut self, declaration: Box<KeyDeclaration>, since: Instant) -> Answered {
        let KeyDeclaration { stream, key, may_declare, .. } = &*declaration;
        let (name, is_alike) = (state_name(stream), |(one, other): (&String, &String)| one.eq_ignore_ascii_case(other));
        let made = match self.handlers.get(&name).and_then(|there| there.spec.state.as_ref()) {
            Some(state) if state.key.len() == key.len() && state.key.iter().zip(key).all(is_alike) => Ok(None),
            Some(state) => Err(format!(
                "stream `{stream}` has the key ({}), and its publisher declares ({}): publish without a key or with that one; \
                 `crossdock streams set` changes it",
                state.key.join(", "),
                key.join(", ")
            )),
            None if !may_declare => {
                Err(format!("the key of stream `{stream}` was taken back just now: publish it again"))
            }
            None => {
                let state = StateSpec { key: key.clone(), ..StateSpec::default() };
                let change = ChangeRequest::Deploy(HandlerSpec::of_state(stream, state));
                match self.make_asked(&change, false, since) {
                    Err(NotMade::Unmeasured) => return Answered::Unmeasured(ControlRequest::DeclareKey(declaration)),
                    Err(NotMade::Hindered { at, plan }) => {
                        return Answered::Hindered { at, plan, request: ControlRequest::DeclareKey(declaration) };
                    }
                    Err(NotMade::Refused(plan)) => Err(plan.refusals.join("; ")),
                    Ok(applied) => Ok(Some(applied)),
                }
            }
        };
        if let Err(why) = &made {
            self.events.note("refused", About { handler: Some(&name), context: None }, why.clone());
        }
        self.report_room(false);
        self.publish_changed();
        let KeyDeclaration { then, .. } = *declaration;
        match made {
            // Its first record is to be kept.
            Ok(Some(Applied { change, orders, .. })) if change.is_some() || !orders.is_empty() => {
                self.confirm_later(change, orders, Caller::Key(then));
            }
            made => then(made.map(drop)),
        }
        Answered::Now
    }

    /// Takes room for the rows that a subscription keeps in order, and for the changes that wait for it, these bytes at most.
    fn take_ordered(&self, bytes: u64) -> Result<u64, String> {
        if let Some((taken, most)) = self.lacks_state_room(bytes).filter(|_| bytes > 0) {
            return Err(format!(
                "the rows that it keeps in order or while it is slow may take {bytes} bytes, the states of streams and the other queries with state of \
                 subscriptions {taken}, and all together no more than {most}: declare the key with fewer (`--max-bytes`), wait until one \
                 has gone, or raise `max_query_state_bytes` under [platform]"
            ));
        }
        self.ordered_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(bytes)
    }

    /// A subscription that reads a state is in its place: it begins with all that is there.
    pub(super) fn walk_state(&mut self, handler: &str, key: &[String]) {
        let Some(readers) = self.states.get_mut(handler) else { return };
        readers.walks += 1;
        self.order_state(handler);
        // It may have gone while the subscription was on its way.
        match self.handlers.get(handler).map(|there| (&there.status, &there.spec.state)) {
            None => self.lose_state(handler, StateLoss::Withdrawn),
            Some((Status::Failed(_), _)) => self.lose_state(handler, StateLoss::Failed),
            // Another key was declared meanwhile.
            Some((Status::Running | Status::Waiting(_), Some(state))) if state.key != key => {
                self.lose_readers_of_others(handler, &state.key);
            }
            Some((Status::Running | Status::Waiting(_), _)) => {}
        }
    }

    /// A state has this key from now on: the subscriptions whose queries were planned for another one hear that it has begun anew.
    pub(super) fn lose_readers_of_others(&self, handler: &str, key: &[String]) {
        if !self.states.contains_key(handler) {
            return;
        }
        for io in &self.io {
            let (handler, key) = (handler.to_owned(), key.to_vec());
            // It may have stopped.
            let _ = io.inbox.post(move |context| {
                let streams = &context.streams;
                context.subscriptions.lose_readers_of_others(&handler, &key, streams, &mut context.graph);
            });
        }
    }

    /// A state is gone: the subscriptions that read it hear so.
    pub(super) fn lose_state(&self, handler: &str, loss: StateLoss) {
        if !self.states.contains_key(handler) {
            return;
        }
        for io in &self.io {
            let handler = handler.to_owned();
            // It may have stopped.
            let _ = io.inbox.post(move |context| context.streams.lose_state(&handler, loss, &mut context.graph));
        }
    }

    /// `uses` subscriptions that read a state have gone; whether there is such a state.
    pub(super) fn end_reads(&mut self, handler: &str, uses: u32) -> bool {
        let Some(readers) = self.states.get_mut(handler) else { return false };
        readers.there = readers.there.saturating_sub(uses);
        self.order_state(handler);
        true
    }

    /// Has the handlers of states know what they are to do, also those that have begun anew or for another format meanwhile.
    pub(super) fn order_states(&mut self) {
        let read: Vec<String> =
            self.states.iter().filter(|(_, of)| of.there > 0).map(|(name, _)| name.clone()).collect();
        read.iter().for_each(|name| self.order_state(name));
    }

    /// A handler begins anew after a fault: that of a state has no order yet.
    pub(super) fn order_restarted(&mut self, name: &str) {
        if let Some(there) = self.handlers.get_mut(name) {
            there.given_tables = None;
        }
        if let Some(readers) = self.states.get_mut(name) {
            readers.given = None;
            self.order_state(name);
        }
    }

    fn order_state(&mut self, name: &str) {
        let (Some(readers), Some(there)) = (self.states.get(name), self.handlers.get(name)) else { return };
        let order = StateOrder { readers: readers.there, walks: readers.walks };
        let given = Some((order, (there.version, there.entries.len())));
        if readers.given == given {
            return;
        }
        let fitting = there.entries.iter().filter(|entry| entry.output.is_some());
        let values = fitting.map(|entry| (entry.place(&there.reads), order.into_values())).collect();
        let node = there.node;
        // If there is no place for it now, it is given later.
        let is_given = self.order(|overlay| overlay.set_parameters(node, values)).is_ok();
        self.states.get_mut(name).into_iter().for_each(|readers| readers.given = given.filter(|_| is_given));
    }

    /// The bytes that the states of all streams may take, but for those of one.
    pub(super) fn state_bytes_but(&self, but: &str) -> u64 {
        let others = self.handlers.iter().filter(|(name, _)| *name != but);
        others.filter_map(|(_, there)| there.spec.state.as_ref()).map(StateSpec::bytes).sum()
    }

    /// The bytes that the queries of subscriptions may take, all together.
    pub(super) fn query_bytes(&self) -> u64 {
        let of_queries = self.queries.values().filter_map(Placement::max_state_bytes);
        of_queries.chain([self.ordered_bytes.load(Ordering::Relaxed)]).fold(0, u64::saturating_add)
    }

    /// The formats that have decided the rows of a stream's state, which stay with its key: other bounds must not lose it.
    pub(super) fn kept_formats(&self, spec: &HandlerSpec, discard_state: bool) -> Option<Decided> {
        let there = self.handlers.get(&spec.name).filter(|_| !discard_state)?;
        let (before, after) = (there.spec.state.as_ref()?, spec.state.as_ref()?);
        let decided = there.entries.iter().find_map(|entry| entry.decided.clone());
        decided.filter(|_| before.key == after.key)
    }

    /// Why a state finds no room beside the others and the queries with state, if it finds none.
    pub(super) fn refused_state(&self, spec: &HandlerSpec) -> Option<String> {
        let (wanted, most) = (spec.state.as_ref()?.bytes(), self.config.max_query_state_bytes);
        let taken = self.state_bytes_but(&spec.name).saturating_add(self.query_bytes());
        (taken.saturating_add(wanted) > most).then(|| {
            format!(
                "it may take {wanted} bytes, other states and the queries with state of subscriptions {taken}, and all together no more \
                 than {most}: declare it with fewer (`max_bytes`), or raise `max_query_state_bytes` under [platform]"
            )
        })
    }
}
