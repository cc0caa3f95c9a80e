//! Queries of subscriptions that run as handlers: those for which the context with the subscription has no time, and all that keep
//! state. The subscription takes the handler's stream, and the handler is removed with it; it is not part of the wanted
//! specifications, and not kept across restarts. Subscriptions with the same query with state share one handler.

use crate::elsewhere::{Elsewhere, HandlerGauges, HandlerWork};
use crate::graph::ContextIndex;
use crate::info::PlanInfo;
use crate::managers::Managers;
use crate::managers::change::{Applied, NotMade};
use crate::managers::deployed::{Deployed, Status};
use crate::managers::events::About;
use crate::managers::query_cuts::{CutQuery, ReducedStream};
use crate::managers::request::{ChangeRequest, ControlRequest, EventKind, Query, SharedQuery, handler_of};
use crate::managers::spec::HandlerSpec;
use crate::managers::waiting::Answered;
use crossdock_query::{QueryError, Select};
use std::sync::Arc;
use std::time::Instant;

/// A handler that runs subscriptions' query.
#[derive(Debug, Default)]
pub(super) struct Placement {
    /// The subscriptions.
    uses: u32,
    /// The query that they share; none where there is one subscription.
    query: Option<SharedQuery>,
    /// The reductions that it reads, where it was cut; each counts it as a use.
    reductions: Vec<String>,
    /// The reduction that it is, rather than a subscriptions' query.
    pub(super) reduced: Option<ReducedStream>,
}

impl Placement {
    /// The most bytes that the query's state may take, if it keeps one.
    pub(super) fn max_state_bytes(&self) -> Option<u64> {
        Some(self.query.as_ref()?.max_state_bytes)
    }

    /// The reductions in front of it, where it was cut.
    pub(super) fn reductions(&self) -> &[String] {
        &self.reductions
    }

    /// Whether the query keeps state.
    pub(super) fn keeps_state(&self) -> bool {
        self.query.is_some()
    }
}

/// The specification of the handler that runs a subscription's query.
pub(super) fn query_spec(name: &str, sql: &str, streams: &[String], shared: Option<&SharedQuery>) -> HandlerSpec {
    HandlerSpec {
        name: name.to_owned(),
        sql: Some(sql.to_owned()),
        input_streams: streams.to_vec(),
        subscription_views: shared.map(|shared| shared.views.clone()),
        ..HandlerSpec::default()
    }
}

impl Managers {
    /// Deploys a subscription's query where it fits, unless a handler runs the same already.
    pub(super) fn place_query(&mut self, query: Box<Query>) -> Answered {
        if let Some(name) = self.running(query.shared.as_ref()) {
            let made = self.use_query(&name);
            (query.then)(made);
            return Answered::Now;
        }
        let name = handler_of(query.subscription);
        let spec = HandlerSpec {
            on_row_error: query.row_errors.into(),
            ..query_spec(&name, &query.sql, &query.streams, query.shared.as_ref())
        };
        if self.handlers.contains_key(&name) {
            // A user deployed a handler of that name.
            (query.then)(Err(format!("handler `{name}` exists already: remove it")));
            return Answered::Now;
        }
        if let Some(why) = self.refused_for_state(query.shared.as_ref()) {
            (query.then)(Err(why));
            return Answered::Now;
        }
        let Ok(cut) = self.cut(query.shared.as_ref(), spec) else {
            return Answered::Unmeasured(ControlRequest::PlaceQuery(query));
        };
        // From now on, so that it is never written down.
        self.note_placed(&query, &cut);
        let made = match self.make(&cut.change(), false, false, crossdock_device::now()) {
            Err(NotMade::Unmeasured) => {
                self.forget_placed(&cut);
                return Answered::Unmeasured(ControlRequest::PlaceQuery(query));
            }
            Err(NotMade::Hindered { at, plan }) => {
                self.forget_placed(&cut);
                return Answered::Hindered { at, plan, request: ControlRequest::PlaceQuery(query) };
            }
            Err(NotMade::Refused(plan)) => Err(plan.refusals.join("; ")),
            Ok(_) => self.use_query(&name),
        };
        if made.is_err() {
            // A context that hinders that is asked again later.
            self.end_uses(&name, 0);
        }
        self.report_room(false);
        // The subscription's answer comes after the snapshot that shows the result.
        self.publish_changed();
        (query.then)(made);
        Answered::Now
    }

    /// A query's handlers are to be there from now on.
    fn note_placed(&mut self, query: &Query, cut: &CutQuery) {
        for (spec, reduced) in &cut.new {
            let placement = Placement { reduced: Some(reduced.clone()), ..Placement::default() };
            self.queries.insert(spec.name.clone(), placement);
        }
        for name in &cut.reductions {
            self.queries.entry(name.clone()).and_modify(|placement| placement.uses += 1);
        }
        let (query, reductions) = (query.shared.clone(), cut.reductions.clone());
        self.queries.insert(cut.spec.name.clone(), Placement { query, reductions, ..Placement::default() });
    }

    /// They are not there yet.
    fn forget_placed(&mut self, cut: &CutQuery) {
        self.queries.remove(&cut.spec.name);
        for name in &cut.reductions {
            self.queries.entry(name.clone()).and_modify(|placement| placement.uses = placement.uses.saturating_sub(1));
        }
        cut.new.iter().for_each(|(spec, _)| drop(self.queries.remove(&spec.name)));
    }

    /// A query reads these reductions no more: those that no other reads go.
    fn end_reductions(&mut self, reductions: Vec<String>) {
        for name in reductions {
            // One that has no room to go now goes with a later change.
            let _ = self.end_uses(&name, 1);
        }
    }

    /// Whether these bytes of state are more than there is room for: how many are taken then, by queries and the states of streams, and
    /// how many all may take.
    pub(super) fn lacks_state_room(&self, wanted: u64) -> Option<(u64, u64)> {
        let taken = self.state_bytes_but("").saturating_add(self.query_bytes());
        let most = self.config.max_query_state_bytes;
        (taken.saturating_add(wanted) > most).then_some((taken, most))
    }

    /// Why one more query with state finds no room, if all of them together could take more memory than they may.
    pub(super) fn refused_for_state(&self, query: Option<&SharedQuery>) -> Option<String> {
        let wanted = query?.max_state_bytes;
        let there = self.queries.values().filter_map(Placement::max_state_bytes).count();
        self.lacks_state_room(wanted).map(|(taken, most)| {
            format!(
                "the query's state may take {wanted} bytes, and {there} different queries of subscriptions and the states of streams {taken}; \
                 together they may take {most}: use the text of one of them, set a smaller MAX STATE behind the query, wait until one has \
                 gone, or raise `max_query_state_bytes` under [platform]"
            )
        })
    }

    /// The handler that runs a query which subscriptions share.
    pub(super) fn running(&self, query: Option<&SharedQuery>) -> Option<String> {
        let is_it = |(name, placement): &(&String, &Placement)| {
            let works = |there: &Deployed| !matches!(there.status, Status::Failed(_));
            placement.query.as_ref() == query && self.handlers.get(*name).is_some_and(works)
        };
        query.and_then(|_| self.queries.iter().find(is_it)).map(|(name, _)| name.clone())
    }

    /// One more subscription takes what a query's handler makes.
    fn use_query(&mut self, name: &str) -> Result<(Select, Elsewhere), String> {
        let all = all_of(name).map_err(|error| error.to_string())?;
        let of = |name: &str| self.handlers.get(name).map(|handler| Arc::clone(&handler.gauges));
        let (Some(placement), Some(own)) = (self.queries.get_mut(name), of(name)) else {
            return Err("its handler is gone".to_owned());
        };
        placement.uses += 1;
        let work = if placement.keeps_state() { HandlerWork::Stateful } else { HandlerWork::Select };
        let reductions = placement.reductions.iter().filter_map(|reduction| of(reduction)).collect();
        let gauges = HandlerGauges { work, own, reductions };
        let managers = Arc::clone(&self.requests);
        let end = move |handler| {
            // The managers may have ended before.
            let _ = managers.send(ControlRequest::RemoveQuery { handler, uses: 1 });
        };
        Ok((all, Elsewhere::new(name.to_owned(), gauges, end)))
    }

    /// `uses` subscriptions of a query have gone. With the last goes its handler, which stays where another is to be measured
    /// before, and while a handler reads what it makes. The context that hinders it, if one does.
    pub(crate) fn end_uses(&mut self, name: &str, uses: u32) -> Option<ContextIndex> {
        if self.end_reads(name, uses) {
            return None;
        }
        // It may have gone with a change that named it.
        let placement = self.queries.get_mut(name)?;
        placement.uses = placement.uses.saturating_sub(uses);
        if placement.uses > 0 {
            return None;
        }
        if !self.handlers.contains_key(name) {
            let reductions = self.queries.remove(name).map(|placement| placement.reductions).unwrap_or_default();
            self.end_reductions(reductions);
            return None;
        }
        if self.joined.readers(name).next().is_some() {
            // It goes once that one has gone.
            return None;
        }
        let change = ChangeRequest::Remove { handler: name.to_owned() };
        match self.make(&change, true, false, crossdock_device::now()) {
            Ok(_) => {
                let reductions = self.queries.remove(name).map(|placement| placement.reductions).unwrap_or_default();
                self.end_reductions(reductions);
                self.remove_unused();
            }
            Err(NotMade::Hindered { at, .. }) => return Some(at),
            Err(NotMade::Unmeasured | NotMade::Refused(_)) => {}
        }
        None
    }

    /// Handlers have changed, or contexts may answer again: those of subscriptions that have gone may go now.
    pub(super) fn remove_unused(&self) {
        let waits = |name: &str| {
            let is_it = |request: &ControlRequest| match request {
                ControlRequest::RemoveQuery { handler, .. } => handler == name,
                _ => false,
            };
            self.measuring.has(is_it) || self.hindered.iter().any(|asked| is_it(&asked.request))
        };
        let unused = self.queries.iter().filter(|(name, placement)| {
            placement.uses == 0 && self.joined.readers(name).next().is_none() && !waits(name)
        });
        for (handler, _) in unused {
            // It fails once the managers are to stop.
            let _ = self.requests.send(ControlRequest::RemoveQuery { handler: handler.clone(), uses: 0 });
        }
    }

    /// Carries out a change that a caller asked for.
    pub(super) fn make_asked(
        &mut self,
        change: &ChangeRequest,
        discard_state: bool,
        since: Instant,
    ) -> Result<Applied, NotMade> {
        if let Some(plan) = self.refused_for_subscribers(change) {
            return Err(NotMade::Refused(plan));
        }
        let applied = self.make(change, discard_state, true, since)?;
        self.remove_unused();
        Ok(applied)
    }

    /// The plan of such a change; nothing if handlers are to be measured before.
    pub(super) fn plan_asked(&mut self, change: &ChangeRequest, discard_state: bool) -> Option<PlanInfo> {
        self.refused_for_subscribers(change).or_else(|| self.plan(change, discard_state))
    }

    /// The refusal of a change that would take a subscription's handler from it, or give it another query: its subscribers see of
    /// streams what the access rules leave them, which no request says.
    fn refused_for_subscribers(&mut self, change: &ChangeRequest) -> Option<PlanInfo> {
        let name = match change {
            ChangeRequest::Swap(spec) => &spec.name,
            ChangeRequest::SetParameters { handler, .. } | ChangeRequest::Remove { handler } => handler,
            _ => return None,
        };
        if !self.is_query(name) {
            return None;
        }
        let why = format!(
            "handler `{name}` runs a subscription's query, which only its subscribers change: it goes with the last of them"
        );
        self.events.note("refused", About { handler: Some(name), context: None }, why.clone());
        Some(PlanInfo { refusals: vec![why], ..PlanInfo::default() })
    }

    /// Notes an event that an I/O context reports.
    pub(super) fn note_event(&mut self, kind: EventKind, at: ContextIndex, text: String) {
        self.events.note(kind.word(), About { handler: None, context: Some(self.watch.name(at)) }, text);
    }

    /// Whether a handler is a subscription's own query.
    pub(crate) fn is_query(&self, name: &str) -> bool {
        self.queries.contains_key(name)
    }
}

/// The query that takes all of a stream.
fn all_of(stream: &str) -> Result<Select, QueryError> {
    crossdock_query::parse(&format!("SELECT * FROM \"{stream}\""))
}
