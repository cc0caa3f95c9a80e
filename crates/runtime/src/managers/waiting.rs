//! Requests that are answered later: those whose handlers are compiled and measured first, and those whose change is made but for
//! a report that a context owes. Others are answered meanwhile.

use crate::info::{AppliedInfo, PlanInfo};
use crate::managers::change::{Applied, NotMade};
use crate::managers::measure::{Measured, Measurements, Outcomes};
use crate::managers::request::ControlRequest;
use crate::managers::watch::MAX_ABANDONED;
use crate::managers::{Managers, Unconfirmed, Unmeasured};
use std::sync::Arc;
use std::time::Instant;

/// Callers' requests that may wait for handlers to be measured.
const MAX_MEASURING: usize = 256;

impl Managers {
    /// Answers one request, or has it wait. The answer is discarded if the caller has gone.
    pub(super) fn answer(&mut self, request: ControlRequest) {
        match request {
            ControlRequest::Measured { request, measured } => self.take_measured(request, measured),
            request => self.answer_with(request, Instant::now(), Outcomes::default()),
        }
    }

    /// Answers a request for which this was measured.
    fn answer_with(&mut self, request: ControlRequest, since: Instant, outcomes: Outcomes) {
        self.workshop.costs.begin(outcomes);
        if let Some(request) = self.try_answer(request, since) {
            let (outcomes, left) = self.workshop.costs.end();
            self.measure_for(request, since, outcomes, left);
        }
    }

    /// Answers a request, unless handlers are to be measured before; then it comes back, and nothing has changed.
    fn try_answer(&mut self, request: ControlRequest, since: Instant) -> Option<ControlRequest> {
        match request {
            ControlRequest::Change { wish, discard_state, to } => match self.make(&wish, discard_state, true, since) {
                Err(NotMade::Unmeasured) => return Some(ControlRequest::Change { wish, discard_state, to }),
                answer => self.answer_change(answer, to),
            },
            ControlRequest::Plan { wish, discard_state, to } => match self.plan(&wish, discard_state) {
                None => return Some(ControlRequest::Plan { wish, discard_state, to }),
                Some(plan) => drop(to.send(plan)),
            },
            ControlRequest::AddNative { kind, to } => {
                self.workshop.natives.add(*kind);
                let _ = to.send(());
            }
            ControlRequest::NewFormat { stream } => {
                // One that is measured for this stream looks for what is new when it is done.
                if !self
                    .measuring
                    .has(|other| matches!(other, ControlRequest::NewFormat { stream: of } if *of == stream))
                {
                    self.take_new_format(stream);
                    self.publish_snapshot();
                }
                return self.workshop.costs.is_missing().then_some(ControlRequest::NewFormat { stream });
            }
            ControlRequest::PlaceQuery(query) => {
                return self.place_query(*query).map(|query| ControlRequest::PlaceQuery(Box::new(query)));
            }
            ControlRequest::Connect(connection) => self.connect(*connection),
            ControlRequest::Disconnect(flow) => drop(self.disconnected.insert(flow)),
            ControlRequest::RemoveQuery(name) => {
                self.remove_query(&name);
                self.publish_snapshot();
                return self.workshop.costs.is_missing().then_some(ControlRequest::RemoveQuery(name));
            }
            ControlRequest::Restart { handler, node, version } => {
                self.restart(&handler, node, version);
                let again = ControlRequest::Restart { handler, node, version };
                return self.workshop.costs.is_missing().then_some(again);
            }
            ControlRequest::MeasureRule(name) => {
                self.measure_rule(&name);
                return self.workshop.costs.is_missing().then_some(ControlRequest::MeasureRule(name));
            }
            ControlRequest::QueryRefused(at, text) => self.note_query("refused", at, text),
            ControlRequest::QueryFailed(at, text) => self.note_query("failed", at, text),
            // Requests are taken once that is done.
            ControlRequest::Restored(to) => drop(to.send(())),
            ControlRequest::Measured { .. } | ControlRequest::Stop => {}
        }
        None
    }

    /// Answers a change, or has the caller wait for what contexts report.
    fn answer_change(&mut self, answer: Result<Applied, NotMade>, to: oneshot::Sender<Result<AppliedInfo, PlanInfo>>) {
        self.tell_room();
        // The caller sees the result as soon as it is answered.
        self.publish_snapshot();
        match answer {
            Ok(Applied { info, orders }) if orders.is_empty() => drop(to.send(Ok(info))),
            Ok(Applied { info, orders }) => self.unconfirmed.push(Unconfirmed { orders, refused: 0, info, to }),
            Err(NotMade::Refused(plan)) => drop(to.send(Err(plan))),
            Err(NotMade::Unmeasured) => debug_assert!(false, "it is answered once it is measured"),
        }
    }

    /// Takes what contexts have reported, and answers the callers that wait for it. A context may be busy for as long as its
    /// handlers are allowed to; one that is lost is not waited for.
    pub(super) fn confirm(&mut self) {
        for (order, refused) in self.overlay.done() {
            if let Some(change) = self.unconfirmed.iter_mut().find(|change| change.orders.contains(&order)) {
                change.orders.remove(&order);
                change.refused += refused;
            }
        }
        for mut change in std::mem::take(&mut self.unconfirmed) {
            let lost = change.orders.iter().find_map(|order| self.lost_text(self.overlay.awaits(*order)?));
            let why = match lost {
                Some(lost) => format!("{lost}; the parameters are set when it does"),
                None if !change.orders.is_empty() => {
                    self.unconfirmed.push(change);
                    continue;
                }
                None if change.refused == 0 => {
                    let _ = change.to.send(Ok(change.info));
                    continue;
                }
                None => format!("{} of its instances did not take the parameters", change.refused),
            };
            change.info.plan.refusals.push(why);
            change.info.plan.is_begun = true;
            let _ = change.to.send(Err(change.info.plan));
        }
    }

    /// Has handlers measured for a request, which is answered then.
    fn measure_for(&mut self, request: ControlRequest, since: Instant, outcomes: Outcomes, left: Measurements) {
        let is_callers = |request: &ControlRequest| {
            use ControlRequest::{Change, PlaceQuery, Plan};
            matches!(request, Change { .. } | Plan { .. } | PlaceQuery(_))
        };
        if is_callers(&request) && self.measuring.requests.len() >= MAX_MEASURING {
            return self.refuse_unmeasured(request);
        }
        self.measuring.numbers += 1;
        let number = self.measuring.numbers;
        self.measuring.requests.push(Unmeasured { number, request, since, outcomes, left: Some(left) });
        self.start_measuring();
    }

    /// Measures for requests that wait, each on a thread of its own, as far as there may be more threads.
    fn start_measuring(&mut self) {
        let at_work = self.measuring.requests.iter().filter(|request| request.left.is_none()).count();
        let waiting = self.measuring.requests.iter_mut().filter(|request| request.left.is_some());
        let mut failed = Vec::new();
        for request in waiting.take(MAX_ABANDONED.saturating_sub(at_work)) {
            let Some(left) = request.left.take() else { continue };
            let (number, requests) = (request.number, Arc::clone(&self.requests));
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
            let Unmeasured { request, since, mut outcomes, .. } = self.measuring.requests.remove(at);
            self.workshop.costs.take(measured, &mut outcomes);
            self.answer_with(request, since, outcomes);
        }
        self.start_measuring();
    }

    /// Refuses a request, since too many wait.
    fn refuse_unmeasured(&mut self, request: ControlRequest) {
        let why = format!("{MAX_MEASURING} requests wait for handlers to be measured: ask again later");
        let plan = || PlanInfo { refusals: vec![why.clone()], ..PlanInfo::default() };
        match request {
            ControlRequest::Change { to, .. } => drop(to.send(Err(plan()))),
            ControlRequest::Plan { to, .. } => drop(to.send(plan())),
            ControlRequest::PlaceQuery(query) => (query.then)(Err(why)),
            _ => debug_assert!(false, "only callers' requests are refused"),
        }
    }
}
