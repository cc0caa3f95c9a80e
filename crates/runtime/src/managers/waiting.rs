//! Requests that are answered later: those whose handlers are compiled and measured first, those in which a context takes part that
//! is busy with another change, and those whose change is made but for what contexts are to report. Others are answered
//! meanwhile.

use crate::graph::ContextIndex;
use crate::info::{AppliedInfo, PlanInfo};
use crate::managers::change::{Applied, NotMade};
use crate::managers::estimated::QueryEstimate;
use crate::managers::measure::{Measured, Measurements, Outcomes};
use crate::managers::request::ControlRequest;
use crate::managers::watch::MAX_ABANDONED;
use crate::managers::{Asked, Caller, Managers, Progress, Unconfirmed, Unmeasured};
use crate::platform::overlay::NotDone;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Callers' requests that may wait for handlers to be measured.
const MAX_MEASURING: usize = 256;

/// The answer to a request.
pub(super) enum Answered {
    /// It is answered, or will be once contexts have reported.
    Now,
    /// Handlers are to be measured for it before.
    Unmeasured(ControlRequest),
    /// A context hinders it, with the plan so far: it is tried again.
    Hindered { at: ContextIndex, plan: PlanInfo, request: ControlRequest },
}

impl Managers {
    /// Answers one request, or has it wait. The answer is discarded if the caller has gone.
    pub(super) fn answer(&mut self, request: ControlRequest) {
        match request {
            ControlRequest::Measured { request, measured } => self.take_measured(request, measured),
            request => {
                let asked =
                    Asked { request, since: crossdock_device::now(), hindered: None, progress: Progress::default() };
                self.answer_with(asked, Outcomes::default());
            }
        }
    }

    /// Answers a request for which this was measured.
    fn answer_with(&mut self, asked: Asked, outcomes: Outcomes) {
        self.compiler.costs.begin(outcomes);
        let Asked { request, since, hindered, progress } = asked;
        self.progress = progress;
        let answered = self.try_answer(request, since);
        let progress = std::mem::take(&mut self.progress);
        match answered {
            Answered::Now => {}
            Answered::Unmeasured(request) => {
                let (outcomes, left) = self.compiler.costs.end();
                self.measure_for(Asked { request, since, hindered, progress }, outcomes, left);
            }
            Answered::Hindered { at, plan, request } => {
                let hindered = hindered.unwrap_or_else(crossdock_device::now);
                use ControlRequest::{Change, Connect, DeclareKey, PlaceQuery};
                let is_callers = matches!(request, Change { .. } | Connect(_) | DeclareKey(_) | PlaceQuery(_));
                let is_lost = is_callers && self.watch.lost(at).is_some();
                match !is_lost && crossdock_device::elapsed(hindered) < self.watch.patience() {
                    // The facts of the streams are asked for again then.
                    true => {
                        let progress = Progress { known: None, ..progress };
                        self.hindered.push(Asked { request, since, hindered: Some(hindered), progress });
                    }
                    false => self.refuse_unanswered(at, plan, request),
                }
            }
        }
    }

    /// Tries anew what a context has hindered.
    pub(super) fn try_hindered(&mut self) {
        for asked in std::mem::take(&mut self.hindered) {
            self.answer_with(asked, Outcomes::default());
        }
    }

    /// Answers a request, unless it has to wait; then it comes back, and nothing has changed.
    fn try_answer(&mut self, request: ControlRequest, since: Instant) -> Answered {
        match request {
            ControlRequest::Change { change, discard_state, to } => {
                let answer = match self.make_asked(&change, discard_state, since) {
                    Err(NotMade::Unmeasured) => {
                        return Answered::Unmeasured(ControlRequest::Change { change, discard_state, to });
                    }
                    Err(NotMade::Hindered { at, plan }) => {
                        let request = ControlRequest::Change { change, discard_state, to };
                        return Answered::Hindered { at, plan, request };
                    }
                    Err(NotMade::Refused(plan)) => Err(plan),
                    Ok(applied) => Ok(applied),
                };
                self.answer_change(answer, to);
            }
            ControlRequest::Plan { change, discard_state, to } => match self.plan_asked(&change, discard_state) {
                None => return Answered::Unmeasured(ControlRequest::Plan { change, discard_state, to }),
                Some(plan) => drop(to.send(plan)),
            },
            ControlRequest::EstimateQuery { query, to } => return self.answer_estimate(query, to),
            ControlRequest::AddNative { kind, to } => {
                self.compiler.natives.add(*kind);
                let _ = to.send(());
            }
            ControlRequest::NewFormat { stream, reader } => {
                // One that is measured for this stream looks for what is new when it is done.
                let is_it = |other: &ControlRequest| matches!(other, ControlRequest::NewFormat { stream: of, reader: by } if (*of, by) == (stream, &reader));
                if !self.measuring.has(is_it) {
                    self.take_new_format(stream, reader.as_deref());
                    self.publish_changed();
                }
                return self.unless_missing(ControlRequest::NewFormat { stream, reader });
            }
            ControlRequest::PlaceQuery(query) => return self.place_query(query),
            ControlRequest::ReadState(read) => self.read_state(*read),
            ControlRequest::DeclareKey(declaration) => return self.declare_key(declaration, since),
            ControlRequest::WalkState { handler, key } => self.walk_state(&handler, &key),
            ControlRequest::Connect(connection) => {
                if let Some((at, connection)) = self.connect(*connection) {
                    let request = ControlRequest::Connect(Box::new(connection));
                    return Answered::Hindered { at, plan: PlanInfo::default(), request };
                }
            }
            ControlRequest::Disconnect(flow) => drop(self.disconnected.insert(flow)),
            ControlRequest::RemoveQuery { handler, uses } => {
                let hindered = self.end_uses(&handler, uses);
                self.publish_changed();
                // They have ended, whenever the handler goes.
                let request = ControlRequest::RemoveQuery { handler, uses: 0 };
                return match hindered {
                    Some(at) => Answered::Hindered { at, plan: PlanInfo::default(), request },
                    None => self.unless_missing(request),
                };
            }
            ControlRequest::Restart { handler, node, version } => {
                self.restart(&handler, node, version);
                return self.unless_missing(ControlRequest::Restart { handler, node, version });
            }
            ControlRequest::MeasureRule(name) => {
                self.measure_rule(&name);
                return self.unless_missing(ControlRequest::MeasureRule(name));
            }
            ControlRequest::Event(kind, at, text) => self.note_event(kind, at, text),
            ControlRequest::Restored(to) => drop(to.send(())),
            ControlRequest::Measured { .. } | ControlRequest::Stop => {}
        }
        Answered::Now
    }

    /// A request is answered, unless what it needs is missing.
    fn unless_missing(&self, request: ControlRequest) -> Answered {
        if self.compiler.costs.is_missing() { Answered::Unmeasured(request) } else { Answered::Now }
    }

    /// A context has hindered a request for too long.
    fn refuse_unanswered(&mut self, at: ContextIndex, plan: PlanInfo, request: ControlRequest) {
        match request {
            ControlRequest::Change { to, .. } => drop(to.send(Err(self.refuse_hindered(at, plan)))),
            ControlRequest::PlaceQuery(query) => (query.then)(Err(self.note_unanswered(at))),
            ControlRequest::DeclareKey(declaration) => (declaration.then)(Err(self.note_unanswered(at))),
            ControlRequest::Connect(connection) => (connection.then)(Err(self.note_unanswered(at))),
            // A handler of subscriptions that have gone is tried again.
            _ => drop(self.note_unanswered(at)),
        }
    }

    /// Answers a change, or has the caller wait for what contexts report.
    fn answer_change(&mut self, answer: Result<Applied, PlanInfo>, to: oneshot::Sender<Result<AppliedInfo, PlanInfo>>) {
        self.report_room(false);
        // The caller sees the result as soon as it is answered.
        self.publish_changed();
        match answer {
            Ok(Applied { info, change: None, orders }) if orders.is_empty() => drop(to.send(Ok(info))),
            Ok(Applied { info, change, orders }) => self.confirm_later(change, orders, Caller::Change { info, to }),
            Err(plan) => drop(to.send(Err(plan))),
        }
    }

    /// Has a caller wait until contexts have completed a change, and reported on orders.
    pub(super) fn confirm_later(&mut self, change: Option<u64>, orders: BTreeSet<u64>, caller: Caller) {
        let (since, refused) = (crossdock_device::now(), 0);
        self.unconfirmed.push(Unconfirmed { change, orders, refused, unknown: None, failed: None, since, caller });
    }

    /// Takes what contexts have reported, and answers the callers that wait for it. A context may be busy for as long as its
    /// handlers are allowed to; one that is lost is not waited for.
    pub(super) fn confirm(&mut self) {
        if self.overlay.is_finishing() {
            self.resume();
        }
        for (order, outcome) in self.overlay.done() {
            if outcome.is_err() {
                self.checkpoints.note_undone(order);
            }
            // Nobody waits for most orders.
            if let Some(waiting) = self.unconfirmed.iter_mut().find(|waiting| waiting.orders.contains(&order)) {
                waiting.orders.remove(&order);
                match outcome {
                    Ok(refused) => waiting.refused += refused,
                    Err(NotDone::UnknownNode(node)) => waiting.unknown = Some(node),
                    Err(NotDone::Panicked(at)) => waiting.failed = Some(at),
                }
            }
        }
        for waiting in std::mem::take(&mut self.unconfirmed) {
            match self.outcome(&waiting) {
                None => self.unconfirmed.push(waiting),
                Some(outcome) => self.answer_caller(waiting.caller, crossdock_device::elapsed(waiting.since), outcome),
            }
        }
    }

    /// The result of a change that a caller waits for; nothing yet if contexts may still report.
    fn outcome(&mut self, waiting: &Unconfirmed) -> Option<Result<(), String>> {
        let Unconfirmed { change, orders, refused, unknown, failed, since, .. } = waiting;
        if let Some(at) = change.and_then(|change| self.overlay.change_awaits(change)) {
            if crossdock_device::elapsed(*since) < self.watch.patience() && self.watch.lost(at).is_none() {
                return None;
            }
            change.and_then(|change| self.following.get_mut(&change)).into_iter().for_each(|of| of.is_reported = true);
            return Some(Err(self.note_unanswered(at)));
        }
        if let Some(at) = failed {
            return Some(Err(self.failed_text(*at)));
        }
        let lost = orders.iter().find_map(|order| self.lost_text(self.overlay.awaits(*order)?));
        match (lost, unknown) {
            (Some(lost), _) => Some(Err(format!("{lost}; the parameters are set when it answers"))),
            (None, _) if !orders.is_empty() => None,
            (None, Some(node)) => Some(Err(format!("there is no node {} any more: the handler was removed", node.0))),
            (None, None) if *refused > 0 => Some(Err(format!("{refused} of its instances refused the parameters"))),
            (None, None) => Some(Ok(())),
        }
    }

    /// Answers a caller that has waited for contexts for so long.
    fn answer_caller(&mut self, caller: Caller, waited: Duration, outcome: Result<(), String>) {
        match (caller, outcome) {
            (Caller::Change { mut info, to }, Ok(())) => {
                info.took_us += waited.as_micros() as u64;
                drop(to.send(Ok(info)));
            }
            (Caller::Change { mut info, to }, Err(why)) => {
                info.plan.refusals.push(why);
                info.plan.is_begun = true;
                drop(to.send(Err(info.plan)));
            }
            (Caller::Connection(connection), Ok(())) => self.answer_connection(connection),
            (Caller::Connection(connection), Err(why)) => (connection.then)(Err(why)),
            (Caller::Key(then), outcome) => then(outcome),
        }
    }

    /// Has handlers measured for a request, which is answered then.
    fn measure_for(&mut self, asked: Asked, outcomes: Outcomes, left: Measurements) {
        let is_callers = |request: &ControlRequest| {
            use ControlRequest::{Change, DeclareKey, EstimateQuery, PlaceQuery, Plan};
            matches!(request, Change { .. } | DeclareKey(_) | EstimateQuery { .. } | Plan { .. } | PlaceQuery(_))
        };
        if is_callers(&asked.request) && self.measuring.requests.len() >= MAX_MEASURING {
            return self.refuse_unmeasured(asked.request);
        }
        self.measuring.numbers += 1;
        let number = self.measuring.numbers;
        self.measuring.requests.push(Unmeasured { number, asked, outcomes, left: Some(left) });
        self.start_measuring();
    }

    /// Measures for requests that wait, each on a thread of its own, as far as there may be more threads.
    fn start_measuring(&mut self) {
        let at_work = self.measuring.requests.iter().filter(|request| request.left.is_none()).count();
        let waiting =
            self.measuring.requests.iter_mut().filter_map(|request| Some((request.number, request.left.take()?)));
        let mut failed = Vec::new();
        #[cfg(test)]
        if crossdock_device::simulated::is_active() {
            let measured =
                waiting.map(|(number, left)| ControlRequest::Measured { request: number, measured: left.run() });
            return measured.for_each(|measured| drop(self.requests.send(measured)));
        }
        for (number, left) in waiting.take(MAX_ABANDONED.saturating_sub(at_work)) {
            let requests = Arc::clone(&self.requests);
            // If no thread can be had, the measurements come back.
            let (give, taken) = oneshot::channel::<Measurements>();
            let run = move || {
                if let Ok(left) = taken.recv() {
                    // They may have stopped.
                    let _ = requests.send(ControlRequest::Measured { request: number, measured: left.run() });
                }
            };
            match std::thread::Builder::new().name("measurements".into()).spawn(run) {
                Ok(_) => drop(give.send(left)),
                Err(error) => failed.push((number, left.refuse(&format!("it cannot be measured: {error}")))),
            }
        }
        for (number, measured) in failed {
            self.take_measured(number, measured);
        }
    }

    /// Handlers were measured for a request: it is answered anew.
    fn take_measured(&mut self, number: u64, measured: Vec<Measured>) {
        let at = self.measuring.requests.iter().position(|request| request.number == number);
        debug_assert!(at.is_some(), "what is measured is measured for a request that waits");
        if let Some(at) = at {
            let Unmeasured { asked, mut outcomes, .. } = self.measuring.requests.remove(at);
            self.compiler.costs.take(measured, &mut outcomes);
            self.answer_with(asked, outcomes);
        }
        self.start_measuring();
    }

    /// Refuses a request, since too many wait.
    fn refuse_unmeasured(&mut self, request: ControlRequest) {
        let why = format!("{MAX_MEASURING} requests wait for handlers to be measured: try again later");
        let plan = || PlanInfo { refusals: vec![why.clone()], ..PlanInfo::default() };
        match request {
            ControlRequest::Change { to, .. } => drop(to.send(Err(plan()))),
            ControlRequest::Plan { to, .. } => drop(to.send(plan())),
            ControlRequest::EstimateQuery { to, .. } => drop(to.send(QueryEstimate::refused(&why))),
            ControlRequest::PlaceQuery(query) => (query.then)(Err(why)),
            ControlRequest::DeclareKey(declaration) => (declaration.then)(Err(why)),
            _ => debug_assert!(false, "only callers' requests are refused"),
        }
    }
}
