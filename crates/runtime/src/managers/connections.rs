//! Leads streams between I/O contexts: from those whose sessions publish them to those whose sessions take them.

use crate::context::Context;
use crate::graph::ContextIndex;
use crate::managers::change::Failed;
use crate::managers::request::{Connection, Flow};
use crate::managers::{Caller, IoHandle, Managers};
use crate::platform::overlay::{Changed, Edit};
use crate::refusal::Stopped;
use crate::streams::StreamFacts;
use crossdock_format::Format;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// The edit that leads a stream, or no longer.
fn edit(flow: Flow, is_led: bool) -> Edit {
    let Flow { stream, at, is_publishing } = flow;
    match is_publishing {
        true => Edit::Publish { stream, at, is_published: is_led },
        false => Edit::Deliver { stream, at, is_delivered: is_led },
    }
}

impl Managers {
    /// Leads a stream from an I/O context's sessions, or to them; the connection comes back if a context hinders that now.
    pub(super) fn connect(&mut self, connection: Connection) -> Option<(ContextIndex, Connection)> {
        let Connection { flow, formats, .. } = &connection;
        self.disconnected.remove(flow);
        self.awaited_formats.clear();
        self.request_formats(flow.stream, formats);
        self.resume();
        match self.change_graph(vec![edit(*flow, true)]) {
            Ok(Changed { failed: Some(at), .. }) => (connection.then)(Err(self.failed_text(at))),
            Ok(Changed { unfinished: None, .. }) => self.answer_connection(connection),
            Ok(Changed { unfinished, .. }) => {
                self.confirm_later(unfinished, BTreeSet::new(), Caller::Connection(connection));
            }
            Err(Failed::Hindered(at)) => return Some((at, connection)),
            Err(Failed::Refused(why) | Failed::Partly(why)) => (connection.then)(Err(why)),
        }
        None
    }

    /// A stream is led where it was to be.
    pub(super) fn answer_connection(&mut self, Connection { flow, then, .. }: Connection) {
        // The facts known elsewhere are those that queries are measured on, before anything has come.
        then(Ok(if flow.is_publishing { None } else { self.facts_of(flow.stream) }));
    }

    /// Ends what I/O contexts need no more. Not at once: where subscriptions come and go, the next one finds it there.
    pub(super) fn end_flows(&mut self) {
        if self.disconnected.is_empty() {
            return;
        }
        // A connection that a context without an answer has a part in is tried again.
        let is_lost = |at: &ContextIndex| self.watch.lost(*at).is_some();
        let may_end = |flow: &&Flow| !is_lost(&flow.at) && !self.overlay.contexts_of(flow.stream).iter().any(is_lost);
        let ending: Vec<Flow> = self.disconnected.iter().filter(may_end).copied().collect();
        self.resume();
        if !ending.is_empty() && self.change_graph(ending.iter().map(|flow| edit(*flow, false)).collect()).is_ok() {
            self.disconnected.retain(|flow| !ending.contains(flow));
        }
    }

    /// The home context, where the records of derived streams are counted.
    pub(super) fn home(&self) -> ContextIndex {
        self.home
    }

    /// The home context's name.
    pub(super) fn home_name(&self) -> &str {
        self.watch.name(self.home())
    }

    /// Has all I/O contexts take in formats of a stream, and plan the queries there for them. The next change of the graph
    /// waits for that while it is prepared, in the same round trip: neither waits for the other. A context that does not answer is waited for only if the stream comes there.
    pub(super) fn request_formats(&mut self, stream: u32, formats: &[Format]) {
        for IoHandle { inbox, at } in &self.io {
            if self.watch.lost(*at).is_some() && !self.overlay.contexts_of(stream).contains(at) {
                continue;
            }
            // One that has stopped takes nothing in.
            let taken_in = inbox.when_known(stream, formats);
            self.awaited_formats.extend(taken_in.ok().map(|taken_in| (*at, taken_in)));
        }
    }

    /// Has all I/O contexts run something short, all at once. Those that do not answer are left out: what they take part in is
    /// not changed meanwhile.
    ///
    /// # Errors
    /// None answers.
    pub(super) fn ask_io<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Context) -> T + Clone + Send + 'static,
    ) -> Result<Vec<T>, Stopped> {
        let post = |io: &IoHandle| {
            let ((answer, wait), work) = (oneshot::channel(), work.clone());
            // It may have stopped; then this side of the answer is gone.
            let _ = io.inbox.post(move |context| drop(answer.send(work(context))));
            (io.at, wait)
        };
        self.progress.round_trips += 1;
        // The inbox of one that is lost would fill up.
        let answering = self.io.iter().filter(|io| self.watch.lost(io.at).is_none());
        let waits: Vec<_> = answering.map(post).collect();
        let until = Instant::now() + self.watch.patience();
        let answers: Vec<T> =
            waits.into_iter().filter_map(|(at, wait)| self.watch.wait_for(at, &wait, until)).collect();
        let home = self.home_name();
        if answers.is_empty() { Err(Stopped::unanswered(home)) } else { Ok(answers) }
    }

    /// The name of a stream that has this number.
    pub(super) fn name_of(&self, stream: u32) -> Result<Option<String>, Stopped> {
        Ok(self.catalog.snapshot()?.get(stream).map(|entry| entry.name().to_owned()))
    }

    /// The I/O contexts' facts of a stream that has this number.
    fn facts_of(&mut self, stream: u32) -> Option<StreamFacts> {
        let name = self.name_of(stream).ok()??;
        self.facts(&BTreeSet::from([name])).ok()?.into_values().next()
    }

    /// The I/O contexts' facts of streams, by name. They are asked at once.
    ///
    /// # Errors
    /// No context answers.
    pub(super) fn facts(&mut self, names: &BTreeSet<String>) -> Result<BTreeMap<String, StreamFacts>, Stopped> {
        let names = names.clone();
        let known = self.ask_io(move |context| {
            let facts = |name: &String| context.streams.find(name).and_then(|key| context.facts(key));
            names.iter().filter_map(facts).collect::<Vec<StreamFacts>>()
        })?;
        let mut all = BTreeMap::<String, StreamFacts>::new();
        for facts in known.into_iter().flatten() {
            match all.get_mut(&facts.name) {
                Some(known) => known.add(facts),
                None => drop(all.insert(facts.name.clone(), facts)),
            }
        }
        Ok(all)
    }
}
