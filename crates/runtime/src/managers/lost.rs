//! Contexts that do not answer: how they are reported, and which changes are refused meanwhile.

use super::change::PlanStep;
use crate::graph::ContextIndex;
use crate::managers::Managers;
use crate::managers::events::About;
use crate::managers::request::ControlRequest;
use crate::managers::spec::HandlerSpec;
use crate::managers::watch::Lost;
use crate::platform::overlay::{Changed, Finished};
use std::collections::BTreeSet;
use std::time::Duration;

/// How long nodes that end with a change may work on what has come for them.
const FORCE_AFTER: Duration = Duration::from_millis(500);

fn not_until_it_answers(why: &str) -> String {
    format!("{why}; no change that involves it is made until it answers")
}

impl Managers {
    /// That a change is finished when a context answers.
    pub(super) fn unfinished(&self, at: ContextIndex) -> String {
        let name = self.watch.name(at);
        format!(
            "context {name} does not answer: the change that waits for it is completed when it answers, and until \
             then no other change that involves it is made (if it never answers, restart the daemon: the change \
             state is kept)"
        )
    }

    /// Reports that a context does not answer, while a change waits for it; in words.
    pub(super) fn note_unanswered(&mut self, at: ContextIndex) -> String {
        let why = self.lost_text(at).unwrap_or_else(|| self.unfinished(at));
        let name = self.watch.name(at).to_owned();
        self.events.note("unanswered", About { handler: None, context: Some(&name) }, why.clone());
        why
    }

    /// Goes on with changes that wait for contexts.
    pub(super) fn resume(&mut self) {
        self.overlay.force_after(FORCE_AFTER);
        for Finished { change, changed: Changed { lost_states, dropped, failed, .. } } in self.overlay.resume() {
            self.unconfirmed
                .iter_mut()
                .filter(|caller| caller.change == Some(change))
                .for_each(|caller| (caller.change, caller.failed) = (None, failed));
            let following = self.following.remove(&change).unwrap_or_default();
            if following.is_reported || lost_states > 0 || dropped > 0 {
                let text = format!(
                    "the change that waited for contexts is complete; {lost_states} states were lost, and {dropped} \
                     records that waited for removed handlers were dropped"
                );
                self.events.note("answered", About::default(), text);
            }
            self.follow(following);
        }
    }

    /// That a context has not changed all that it was to, in words.
    pub(super) fn failed_text(&self, at: ContextIndex) -> String {
        let name = self.watch.name(at);
        format!(
            "context {name} panicked while it carried out its part of the change, which is a mistake of Crossdock's, and its part \
             is not complete: restart the daemon (the change state is kept)"
        )
    }

    /// Why a context does not answer, in words, if it does not.
    pub(super) fn lost_text(&self, at: ContextIndex) -> Option<String> {
        let why = match self.watch.lost(at)? {
            Lost::Ended => "its thread has ended, which is a mistake of Crossdock's: restart the daemon".to_owned(),
            Lost::Waits => {
                "its thread has ended, which is a mistake of Crossdock's, and the system refuses a new one; the daemon asks again"
                    .to_owned()
            }
            Lost::Stuck(node) => {
                let handler = self.handlers.iter().find(|(_, there)| Some(there.node) == node).map(|(name, _)| name);
                let from = handler.map_or_else(|| "a step".to_owned(), |name| format!("handler `{name}`"));
                format!("its thread has not returned from {from}")
            }
        };
        Some(format!("context {} does not answer: {why}", self.watch.name(at)))
    }

    /// Whether any context does not answer.
    fn is_anything_lost(&self) -> bool {
        (0..self.watch.seats.len()).any(|at| self.watch.lost(ContextIndex(at as u8)).is_some())
    }

    /// Why some steps cannot be carried out now, if they need a context that does not answer.
    pub(super) fn lost_for(&self, steps: &[PlanStep]) -> Option<String> {
        if !self.is_anything_lost() {
            return None;
        }
        let touched: BTreeSet<ContextIndex> = steps.iter().flat_map(|step| self.touched(step)).collect();
        let why = touched.into_iter().find_map(|at| self.lost_text(at))?;
        Some(not_until_it_answers(&why))
    }

    /// Why a handler cannot go where it is to be, if it is not there and that context does not answer.
    pub(super) fn lost_at_place(&self, spec: &HandlerSpec) -> Option<String> {
        let at = self.watch.find(spec.place.as_deref()?)?;
        let there = self.handlers.get(&spec.name).and_then(|there| self.overlay.placed(there.node));
        let is_there = there.is_some_and(|placed| placed.at == at);
        self.lost_text(at).filter(|_| !is_there).map(|why| not_until_it_answers(&why))
    }

    /// The context for which some steps have to wait, since a change that it has not completed takes part in them.
    pub(super) fn hindered_by(&self, steps: &[PlanStep]) -> Option<ContextIndex> {
        let touched = steps.iter().flat_map(|step| self.touched(step)).collect();
        let node = |step: &PlanStep| self.handlers.get(step.about().0).map(|there| there.node);
        self.overlay.busy(&touched, &steps.iter().filter_map(node).collect::<Vec<_>>())
    }

    /// The contexts that a step needs: those of its handler, and of its neighbours.
    fn touched(&self, step: &PlanStep) -> Vec<ContextIndex> {
        let (name, reads, to) = step.about();
        let near = self.neighbours(name, reads).into_iter().filter_map(|name| self.handlers.get(name));
        near.filter_map(|handler| self.overlay.placed(handler.node)).map(|placed| placed.at).chain(to).collect()
    }

    /// Reports the contexts that were lost or came back since the last call.
    pub(super) fn note_turned(&mut self) {
        for at in std::mem::take(&mut self.watch.panicked) {
            let (name, total) =
                (self.watch.name(at).to_owned(), self.watch.seats[usize::from(at.0)].gauges.panics.get());
            let text = format!(
                "a step of context {name} panicked, which is a mistake of Crossdock's ({total} since the start): what was in \
                 work is lost, and the context goes on; the log above has the place"
            );
            self.events.note("panicked", About { handler: None, context: Some(&name) }, text);
        }
        for at in std::mem::take(&mut self.watch.restarted) {
            let name = self.watch.name(at).to_owned();
            let text = format!(
                "the thread of context {name} has ended after panics in a row, which is a mistake of Crossdock's: another thread goes \
                 on with its handlers and their state; the log above has the place"
            );
            self.events.note("restarted", About { handler: None, context: Some(&name) }, text);
        }
        let turned = std::mem::take(&mut self.watch.turned);
        // While one is lost there is nothing new for it to take.
        let retries = !turned.is_empty() || !self.is_anything_lost();
        for at in turned {
            let name = self.watch.name(at).to_owned();
            let lost = self.lost_text(at);
            let (kind, text) = match lost {
                Some(why) => ("lost", why),
                None => ("returned", format!("context {name} answers again")),
            };
            self.events.note(kind, About { handler: None, context: Some(&name) }, text);
        }
        if retries {
            for stream in std::mem::take(&mut self.formats_to_retry) {
                self.answer(ControlRequest::NewFormat { stream, reader: None });
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use crate::context::Context;
    use crate::info::{AppliedInfo, PlanInfo};
    use crate::{ChangeRequest, ContextConfig, ContextHandle, ContextKind, ContextSpec, HandlerSpec};
    use crossdock_engine::{Handler, HandlerCounters, NativeKind, Sink, Verdict};
    use crossdock_format::{Format, RecordBuilder, Value};
    use crossdock_mailbox::{Batch, Selection};
    use crossdock_nectarine::Publisher;
    use std::net::{Ipv4Addr, SocketAddr};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Lets a context go on, at the latest when the test has failed.
    #[derive(Default)]
    struct LetGo(Arc<AtomicBool>);

    impl LetGo {
        /// Keeps the context that runs it until it may go on.
        fn wait(&self) -> impl Fn(&mut Context) + Send + 'static {
            let goes_on = Arc::clone(&self.0);
            move |_| {
                while !goes_on.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
            }
        }
    }

    impl Drop for LetGo {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
        }
    }

    /// The number from which [`Stays`] does not return.
    const STAYS_AT: i64 = 7_777_777;

    /// Passes all records, up to a number.
    struct Stays(Arc<AtomicBool>, HandlerCounters);

    impl Handler for Stays {
        fn process(&mut self, batch: &Batch, selection: &mut Selection, _: &mut dyn Sink) -> Verdict {
            self.1.records_in += selection.len() as u64;
            let is_it = |index| batch.record(index)[8..16] == STAYS_AT.to_le_bytes();
            if selection.into_iter().any(is_it) {
                while !self.0.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
            }
            self.1.passed += selection.len() as u64;
            Verdict::Forward
        }

        fn counters(&self) -> HandlerCounters {
            self.1
        }
    }

    /// A daemon with a c-core, and a second I/O context behind it.
    fn daemon() -> (ContextHandle, Format) {
        daemon_with(ContextKind::CCore)
    }

    /// The same with a context of that kind in place of the c-core.
    fn daemon_with(kind: ContextKind) -> (ContextHandle, Format) {
        daemon_as(kind, 200)
    }

    fn daemon_as(kind: ContextKind, stuck_after_ms: u32) -> (ContextHandle, Format) {
        let mut config =
            ContextConfig { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), ..ContextConfig::default() };
        let io = ContextSpec { io: true, ..ContextSpec::new(ContextKind::CCore) };
        config.platform.contexts = vec![ContextSpec::new(kind), io];
        config.platform.stuck_after_ms = stuck_after_ms;
        let (context, format) = (ContextHandle::start(config).unwrap(), Format::parse_schema("n i64").unwrap());
        context.declare_stream("N", &format).unwrap().unwrap();
        (context, format)
    }

    fn deploy(context: &ContextHandle, name: &str, replicas: bool) -> Result<AppliedInfo, PlanInfo> {
        deploy_as(context, HandlerSpec { replicas, place: (!replicas).then(|| "c-core-1".into()), ..handler(name) })
    }

    fn deploy_at(context: &ContextHandle, name: &str, place: &str) -> Result<AppliedInfo, PlanInfo> {
        deploy_as(context, HandlerSpec { place: Some(place.into()), ..handler(name) })
    }

    fn deploy_as(context: &ContextHandle, spec: HandlerSpec) -> Result<AppliedInfo, PlanInfo> {
        context.manager().change(ChangeRequest::Deploy(spec), false).unwrap()
    }

    fn handler(name: &str) -> HandlerSpec {
        let (sql, peak_msgs_per_s) = (Some("SELECT * FROM N".into()), Some(1000));
        HandlerSpec { name: name.into(), sql, peak_msgs_per_s, ..HandlerSpec::default() }
    }

    fn until(mut is_it: impl FnMut() -> bool) {
        while !is_it() {
            std::thread::yield_now();
        }
    }

    /// Why the second I/O context does not answer.
    fn lost(context: &ContextHandle) -> Option<String> {
        context.manager().contexts().unwrap()[2].lost.clone()
    }

    fn is_reported(context: &ContextHandle, kind: &str) -> bool {
        is_reported_of("c-core-2", context, kind)
    }

    fn is_reported_of(name: &str, context: &ContextHandle, kind: &str) -> bool {
        let events = context.manager().events(0).unwrap();
        events.iter().any(|event| event.kind == kind && event.context.as_deref() == Some(name))
    }

    #[test]
    fn an_io_context_that_does_not_come_back_from_a_step_blocks_only_what_it_takes_part_in() {
        let (context, format) = daemon();
        let (inboxes, catalog) = context.inside();
        let let_go = LetGo::default();
        inboxes[1].post(let_go.wait()).unwrap();
        // While nobody knows yet.
        deploy(&context, "first", false).unwrap();
        until(|| lost(&context).is_some());
        let why = lost(&context).unwrap();
        assert_eq!(why, "context c-core-2 does not answer: its thread has not returned from a step");
        until(|| is_reported(&context, "lost"));
        // More than its inbox has places for.
        for number in 0..200 {
            let (name, format) = (format!("S{number}"), format.clone());
            catalog.run(move |catalog| catalog.declare(&name, &format)).unwrap().unwrap();
            if number % 20 == 0 {
                deploy(&context, &format!("handler{number}"), false).unwrap();
            }
        }
        let refused = deploy(&context, "everywhere", true).unwrap_err();
        assert!(refused.refusals[0].starts_with(&why), "{refused:?}");
        context.manager().change(ChangeRequest::Remove { handler: "first".into() }, false).unwrap().unwrap();
        // A caller that needs it gets an error.
        let unanswered = context.streams().unwrap_err();
        assert_eq!(unanswered.to_string(), why);
        drop(let_go);
        until(|| lost(&context).is_none() && is_reported(&context, "returned"));
        // The load that was measured for it meanwhile is forgotten first.
        until(|| deploy(&context, "everywhere", true).is_ok());
        assert_eq!(context.streams().unwrap().iter().filter(|stream| stream.name.starts_with('S')).count(), 200);
        context.stop().unwrap();
    }

    /// Nobody knows yet that it does not answer, and would wait for a minute.
    #[test]
    fn changes_in_which_an_io_context_takes_no_part_do_not_wait_for_it() {
        let (context, _) = daemon_as(ContextKind::CCore, 60_000);
        let (inboxes, _) = context.inside();
        let let_go = LetGo::default();
        inboxes[1].post(let_go.wait()).unwrap();
        deploy(&context, "first", false).unwrap();
        let narrower = HandlerSpec { sql: Some("SELECT n + 1 AS more FROM N".into()), ..handler("first") };
        let swap = |spec| context.manager().change(ChangeRequest::Swap(spec), false).unwrap().unwrap();
        swap(HandlerSpec { place: Some("c-core-1".into()), ..narrower });
        deploy_as(&context, HandlerSpec { sql: Some("SELECT more FROM first".into()), ..handler("behind") }).unwrap();
        for name in ["behind", "first"] {
            context.manager().change(ChangeRequest::Remove { handler: name.into() }, false).unwrap().unwrap();
        }
        assert_eq!(lost(&context), None);
        drop(let_go);
        context.stop().unwrap();
    }

    #[test]
    fn a_daemon_stops_without_an_io_context_that_does_not_come_back_from_a_step() {
        let (context, _) = daemon();
        let (inboxes, _) = context.inside();
        let let_go = LetGo::default();
        let (begun, begins) = oneshot::channel();
        let wait = let_go.wait();
        inboxes[1]
            .post(move |context| {
                begun.send(()).unwrap();
                wait(context);
            })
            .unwrap();
        begins.recv().unwrap();
        let stuck = context.stop().unwrap_err();
        assert_eq!(stuck.to_string(), "context c-core-2 does not answer: its thread has not returned from a step");
        assert!(inboxes[0].is_closed());
        assert_eq!(context.stop().unwrap_err().to_string(), stuck.to_string());
        drop(let_go);
        context.stop().unwrap();
        assert!(inboxes[1].is_closed());
    }

    #[test]
    fn an_io_context_goes_on_after_a_panic() {
        let (context, _) = daemon();
        let (inboxes, _) = context.inside();
        inboxes[1].post(|_| panic!("as the test wants")).unwrap();
        until(|| is_reported(&context, "panicked"));
        assert_eq!(context.manager().contexts().unwrap()[2].panics, 1);
        assert_eq!((lost(&context), context.streams().unwrap().len()), (None, 1));
        until(|| deploy(&context, "everywhere", true).is_ok());
        context.stop().unwrap();
    }

    /// It does so at each of more streams than steps in a row may panic.
    #[test]
    fn an_io_context_goes_on_after_panics_as_it_resumes_planning() {
        let (context, format) = daemon();
        for number in 0..20 {
            context.declare_stream(&format!("S{number}"), &format).unwrap().unwrap();
        }
        let (inboxes, _) = context.inside();
        inboxes[1].run(|context| context.graph.gauges().wanted_bad_resumptions.set(u64::MAX)).unwrap();
        inboxes[1].post(|_| panic!("as the test wants")).unwrap();
        until(|| context.manager().contexts().unwrap()[2].panics == 22 || context.has_ended());
        assert_eq!((lost(&context), context.streams().unwrap().len()), (None, 21));
        assert_eq!(context.manager().contexts().unwrap()[2].panics, 22);
        until(|| deploy(&context, "everywhere", true).is_ok());
        context.stop().unwrap();
    }

    /// The caller gets an error, and other changes go on.
    #[test]
    fn a_panic_in_a_change_is_the_callers_error() {
        let (context, _) = daemon();
        let (inboxes, _) = context.inside();
        let deploy_as = |sql: &str| {
            let (sql, place, peak_msgs_per_s) = (Some(sql.into()), Some("c-core-0".into()), Some(1000));
            let spec = HandlerSpec { name: "first".into(), sql, place, peak_msgs_per_s, ..HandlerSpec::default() };
            context.manager().change(ChangeRequest::All(vec![spec]), false).unwrap()
        };
        deploy_as("SELECT * FROM N").unwrap();
        inboxes[0].run(|context| context.graph.panic_in_changes(0, 1)).unwrap();
        let refused = deploy_as("SELECT * FROM N WHERE n > 1").unwrap_err();
        let why = "context c-core-0 panicked while it carried out its part of the change";
        assert!(refused.is_begun && refused.refusals[0].starts_with(why), "{refused:?}");
        until(|| deploy_as("SELECT * FROM N WHERE n > 2").is_ok());
        context.stop().unwrap();
    }

    /// Another thread goes on with the graph, some times.
    #[test]
    fn a_context_without_sessions_whose_thread_has_ended_goes_on_in_another_thread() {
        for kind in [ContextKind::CCore, ContextKind::GCore] {
            let (context, format) = daemon_with(kind);
            context.declare_stream("M", &format).unwrap().unwrap();
            let place = context.manager().contexts().unwrap()[1].name.clone();
            let deploy = |name: &str, stream: &str| {
                let (sql, place) = (Some(format!("SELECT * FROM {stream}")), Some(place.clone()));
                let spec = HandlerSpec {
                    name: name.into(),
                    sql,
                    place,
                    peak_msgs_per_s: Some(1000),
                    ..HandlerSpec::default()
                };
                context.manager().change(ChangeRequest::Deploy(spec), false).unwrap()
            };
            let panic = |times| context.manager().gauges(1).wanted_panics.set(times);
            deploy("before", "N").unwrap();
            panic(17);
            deploy("after", "M").unwrap();
            until(|| is_reported_of(&place, &context, "restarted"));
            let handlers = context.manager().handlers().unwrap();
            assert_eq!(handlers.iter().map(|there| there.context.as_ref()).collect::<Vec<_>>(), [Some(&place); 2]);
            assert!(handlers.iter().all(|there| there.faults == 0));
            assert!(!context.has_ended() && context.manager().contexts().unwrap()[1].lost.is_none());
            // Twice more, and then no other thread is started.
            panic(3 * 17);
            let _ = deploy("late", "N");
            until(|| context.has_ended());
            until(|| context.manager().contexts().unwrap()[1].lost.is_some());
            let refused = deploy("later", "N").unwrap_err();
            assert!(refused.refusals[0].contains("its thread has ended"), "{refused:?}");
            context.stop().unwrap();
        }
    }

    /// The verdict is on the thread, not on each context.
    #[test]
    fn contexts_of_one_thread_end_together() {
        let start = |cpu| {
            let mut config =
                ContextConfig { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), ..ContextConfig::default() };
            let core = ContextSpec { cpu: Some(cpu), ..ContextSpec::new(ContextKind::CCore) };
            config.platform.contexts = vec![core.clone(), core];
            ContextHandle::start(config).ok()
        };
        // The test may not have each of the machine's.
        let context = (0..1024).find_map(start).unwrap();
        context.declare_stream("N", &Format::parse_schema("n i64").unwrap()).unwrap().unwrap();
        context.manager().gauges(1).wanted_panics.set(4 * 17);
        let _ = deploy(&context, "first", false);
        until(|| context.has_ended());
        let contexts = context.manager().contexts().unwrap();
        for context in &contexts[1..] {
            assert!(context.lost.as_deref().is_some_and(|why| why.contains("restart the daemon")), "{context:?}");
        }
        let events = context.manager().events(0).unwrap();
        for name in ["c-core-1", "c-core-2"] {
            let times =
                |kind: &str| events.iter().filter(|e| e.kind == kind && e.context.as_deref() == Some(name)).count();
            assert_eq!((times("restarted"), times("lost"), times("returned")), (3, 1, 0), "{name}");
        }
        context.stop().unwrap();
    }

    /// As it may be for a moment where there are many threads or little memory.
    #[test]
    fn a_thread_that_the_system_refuses_is_asked_for_again() {
        for kind in [ContextKind::CCore, ContextKind::GCore] {
            let (context, _) = daemon_with(kind);
            let place = context.manager().contexts().unwrap()[1].name.clone();
            let gauges = context.manager().gauges(1).clone();
            gauges.wanted_refusals.set(7);
            gauges.wanted_panics.set(17);
            // It reaches the context, which then has a turn.
            let _ = deploy_at(&context, "first", &place);
            until(|| is_reported_of(&place, &context, "returned") || context.has_ended());
            assert!(is_reported_of(&place, &context, "lost") && is_reported_of(&place, &context, "restarted"));
            assert_eq!((gauges.wanted_refusals.get(), context.has_ended()), (0, false));
            until(|| deploy_at(&context, "second", &place).is_ok());
            context.stop().unwrap();
        }
    }

    /// The one that does not return from its handler has been left behind by then.
    #[test]
    fn a_thread_in_place_of_a_stuck_one_is_asked_for_again() {
        let (context, format) = daemon_with(ContextKind::GCore);
        let (place, let_go) = (context.manager().contexts().unwrap()[1].name.clone(), LetGo::default());
        let stays = Arc::clone(&let_go.0);
        let kind = NativeKind::new("stays", "does not return", &[], move |format, _| {
            Ok((Box::new(Stays(Arc::clone(&stays), HandlerCounters::default())), format.clone()))
        });
        context.manager().add_native(kind).unwrap();
        let spec = HandlerSpec { native: Some("stays".into()), input_streams: vec!["N".into()], ..handler("stuck") };
        deploy_as(&context, HandlerSpec { sql: None, place: Some(place.clone()), ..spec }).unwrap();
        context.manager().gauges(1).wanted_refusals.set(7);
        let addr = context.local_addr().to_string();
        let mut publisher = Publisher::builder(addr).stream("N").format(&format).connect().unwrap();
        let mut record = RecordBuilder::new(&format);
        record.set(0, Value::Int(STAYS_AT)).unwrap();
        publisher.publish(record.finish().unwrap()).unwrap();
        publisher.flush().unwrap();
        until(|| is_reported_of(&place, &context, "returned") || context.has_ended());
        assert!(is_reported_of(&place, &context, "replaced") && is_reported_of(&place, &context, "lost"));
        assert_eq!((context.manager().gauges(1).wanted_refusals.get(), context.has_ended()), (0, false));
        until(|| deploy_at(&context, "second", &place).is_ok());
        drop(let_go);
        context.stop().unwrap();
    }

    /// Nobody knows what the graph has lost.
    #[test]
    fn no_thread_goes_on_with_a_graph_whose_recovery_has_panicked() {
        for kind in [ContextKind::CCore, ContextKind::GCore] {
            let (context, _) = daemon_with(kind);
            let place = context.manager().contexts().unwrap()[1].name.clone();
            let gauges = context.manager().gauges(1);
            gauges.wanted_bad_recoveries.set(1);
            gauges.wanted_panics.set(1);
            let _ = deploy_at(&context, "first", &place);
            until(|| context.has_ended() || is_reported_of(&place, &context, "restarted"));
            let why = context.manager().contexts().unwrap()[1].lost.clone();
            assert!(why.is_some_and(|why| why.contains("restart the daemon")) && context.has_ended());
            context.stop().unwrap();
        }
    }

    /// Nothing but a new start helps there, and others go on meanwhile.
    #[test]
    fn an_io_context_whose_thread_has_ended_blocks_only_what_it_takes_part_in() {
        let (context, _) = daemon();
        let (inboxes, _) = context.inside();
        let let_go = LetGo::default();
        inboxes[1].post(let_go.wait()).unwrap();
        // No turn is complete between them.
        (0..17).for_each(|_| inboxes[1].post(|_| panic!("as the test wants")).unwrap());
        drop(let_go);
        until(|| lost(&context).is_some_and(|why| why.contains("its thread has ended")));
        assert!(context.has_ended() && context.streams().is_err());
        deploy(&context, "first", false).unwrap();
        let refused = deploy(&context, "everywhere", true).unwrap_err();
        assert!(refused.refusals[0].contains("its thread has ended"), "{refused:?}");
        context.stop().unwrap();
    }
}
