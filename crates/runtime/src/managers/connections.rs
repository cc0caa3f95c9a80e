//! Leads streams between I/O contexts: from those whose sessions publish them to those whose sessions take them.

use crate::catalog::StreamEntry;
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
        match flow.is_publishing {
            true => self.request_formats(flow.stream, formats, Some(flow.at)),
            // The context may not have seen any of its records yet.
            false => {
                let catalog = self.catalog.snapshot().ok();
                let formats =
                    catalog.as_ref().and_then(|catalog| catalog.get(flow.stream)).map(|entry| entry.formats());
                self.request_formats(flow.stream, formats.unwrap_or_default(), Some(flow.at));
            }
        }
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

    /// The I/O contexts at which a stream's records are seen: those to which it comes or that publish it, and the home context,
    /// where the records of derived streams are counted.
    fn sees(&self, stream: u32) -> BTreeSet<ContextIndex> {
        let mut there = self.overlay.contexts_of(stream);
        there.insert(self.home);
        there
    }

    /// Has the I/O contexts at which a stream's records are seen, and `at`, take in formats of it, and plan the queries there for
    /// them. The next change of the graph waits for that while it is prepared, in the same round trip: neither waits for the
    /// other. The other contexts take them in as they take in the catalog's snapshot, and nobody waits for that.
    pub(super) fn request_formats(&mut self, stream: u32, formats: &[Format], at: Option<ContextIndex>) {
        let mut there = self.sees(stream);
        there.extend(at);
        for IoHandle { inbox, at } in self.io.iter().filter(|io| there.contains(&io.at)) {
            // One that has stopped takes nothing in.
            let taken_in = inbox.when_known(stream, formats);
            self.awaited_formats.extend(taken_in.ok().map(|taken_in| (*at, taken_in)));
        }
    }

    /// The records of a derived stream have an end at every I/O context: they reach its subscribers before they hear of it, and
    /// before the stream's number is given again.
    pub(super) fn end_at_contexts(&mut self, stream: u32) {
        let there = self.sees(stream);
        // One that does not see it, or does not answer, comes to this before it comes to what follows all the same.
        for io in self.io.iter().filter(|io| !there.contains(&io.at) || self.watch.lost(io.at).is_some()) {
            let _ = io.inbox.post(move |context| context.streams.end_derived(stream, &mut context.graph));
        }
        let _ = self.ask_io(
            |at| there.contains(&at),
            move |context| {
                context.streams.end_derived(stream, &mut context.graph);
            },
        );
    }

    /// Has some I/O contexts run something short, all at once. Those that do not answer are left out: what they take part in is
    /// not changed meanwhile.
    ///
    /// # Errors
    /// None of them answers.
    pub(super) fn ask_io<T: Send + 'static>(
        &mut self,
        is_asked: impl Fn(ContextIndex) -> bool,
        work: impl FnOnce(&mut Context) -> T + Clone + Send + 'static,
    ) -> Result<Vec<T>, Stopped> {
        let post = |io: &IoHandle| {
            let ((answer, wait), work) = (oneshot::channel(), work.clone());
            // It may have stopped; then this side of the answer is gone.
            let _ = io.inbox.post(move |context| drop(answer.send(work(context))));
            (io.at, wait)
        };
        let mut asked = self.io.iter().filter(|io| is_asked(io.at)).peekable();
        if asked.peek().is_none() {
            return Ok(Vec::new());
        }
        self.progress.round_trips += 1;
        // The inbox of one that is lost would fill up.
        let waits: Vec<_> = asked.filter(|io| self.watch.lost(io.at).is_none()).map(post).collect();
        let until = crossdock_device::now() + self.watch.patience();
        let answers: Vec<T> =
            waits.into_iter().filter_map(|(at, wait)| self.watch.wait_for(at, &wait, until)).collect();
        let home = self.home_name();
        if answers.is_empty() { Err(Stopped::unanswered(home)) } else { Ok(answers) }
    }

    /// The name of a stream that has this number.
    pub(super) fn name_of(&self, stream: u32) -> Result<Option<String>, Stopped> {
        Ok(self.catalog.snapshot()?.get(stream).map(|entry| entry.name().to_owned()))
    }

    /// The facts of a stream that has this number.
    fn facts_of(&mut self, stream: u32) -> Option<StreamFacts> {
        let name = self.name_of(stream).ok()??;
        self.facts(&BTreeSet::from([name])).ok()?.into_values().next()
    }

    /// The facts of streams, by name: the catalog's, and what the I/O contexts have counted at which records of them came. Those
    /// are asked at once, and no others, so that a context without an answer delays only those who read what comes there.
    ///
    /// # Errors
    /// The control thread has stopped, or none of these contexts answers.
    pub(super) fn facts(&mut self, names: &BTreeSet<String>) -> Result<BTreeMap<String, StreamFacts>, Stopped> {
        let catalog = self.catalog.snapshot()?;
        let entries: Vec<&StreamEntry> = names.iter().filter_map(|name| catalog.find(name)).collect();
        let mut all: BTreeMap<String, StreamFacts> =
            entries.iter().map(|entry| (entry.name().to_owned(), StreamFacts::new(entry))).collect();
        let is_counting = |at| entries.iter().any(|entry| entry.activity().is_counted_at(at));
        let names = names.clone();
        let counted = self.ask_io(is_counting, move |context| {
            names
                .iter()
                .filter_map(|name| Some((name.clone(), context.streams.counted(name, context.net.now_ns())?)))
                .collect::<Vec<_>>()
        })?;
        for (name, counted) in counted.into_iter().flatten() {
            all.entry(name).and_modify(|facts| facts.add(counted));
        }
        Ok(all)
    }
}
