//! Consistent cuts: checkpoints of the whole graph, of a daemon that is `durable`.
//!
//! At the interval the I/O contexts take no more records in, and nodes run for nothing but what has come. Once nothing of that is left
//! anywhere, and the subscribers that block have what was made of it, all states are copied and all positions noted; then traffic goes on.
//! If that takes longer than it may, the cut is put off. A thread away from the cores writes it, and publishers are acknowledged when it is
//! on disk.

use crate::checkpoints::Checkpoint;
use crate::config::MorphConfig;
use crate::context::Context;
use crate::cuts::{Cut, CutState, CutWriter, LoadedCut, Manifest, WrittenCut, load};
use crate::failpoint::failpoint;
use crate::graph::ContextIndex;
use crate::graph::gauges::Gauge;
use crate::managers::deployed::{Deployed, Status};
use crate::managers::events::{About, now_ms};
use crate::managers::{Managers, REPORT_TICK};
use crossdock_device::nap;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The counts of cuts that are shown.
#[derive(Debug, Default)]
pub(crate) struct CutCounts {
    pub(crate) made: Gauge,
    pub(crate) put_off: Gauge,
    pub(crate) failed: Gauge,
}

/// The cuts of a daemon that is `durable`.
#[derive(Debug)]
pub(crate) struct Cuts {
    writer: CutWriter,
    /// How long records may wait for one.
    longest_pause: Duration,
    /// The number of the last that was begun.
    number: u64,
    /// The last that is on disk.
    last: Option<Manifest>,
    /// The states in it that were not given to handlers yet.
    states: BTreeMap<String, Checkpoint>,
    complaints: Vec<String>,
    /// The states of the one that is being made.
    collected: Option<Vec<CutState>>,
    /// Why a state of it could not be copied.
    refused: Option<String>,
    is_writing: bool,
    /// Whether the last one was put off.
    is_put_off: bool,
    /// Subscriptions without which the daemon takes no records in after its start, by stream, and until when.
    awaited: Option<(BTreeMap<String, u32>, Instant)>,
    longest_wait: Duration,
    /// Contexts whose nodes are still to run when their time has come.
    held: Vec<ContextIndex>,
}

/// A cut that is made, but for its writing.
enum Taken {
    /// There is nothing in it that is not in the last one.
    Same,
    Another(Cut),
}

impl Cuts {
    /// Those in the directory for what is kept.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn open(state_dir: &Path, config: &MorphConfig) -> io::Result<Cuts> {
        let (directory, mut loaded) = load(state_dir)?;
        let writer = CutWriter::start(directory, &loaded)?;
        let LoadedCut { manifest, states, complaints, .. } = &mut loaded;
        Ok(Cuts {
            writer,
            longest_pause: Duration::from_millis(config.checkpoint_pause_ms.into()),
            number: manifest.as_ref().map_or(0, |manifest| manifest.cut),
            last: manifest.take(),
            states: std::mem::take(states),
            complaints: std::mem::take(complaints),
            collected: None,
            refused: None,
            is_writing: false,
            is_put_off: false,
            awaited: None,
            longest_wait: Duration::from_millis(config.await_subscribers_ms.into()),
            held: Vec::new(),
        })
    }

    /// The cut with which the daemon begins.
    pub(crate) fn last(&self) -> Option<&Manifest> {
        self.last.as_ref()
    }

    /// The state of a handler in it.
    pub(super) fn state_of(&self, handler: &str) -> Option<&Checkpoint> {
        self.states.get(handler)
    }

    /// The handlers that have not begun with theirs.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &str> {
        self.states.keys().map(String::as_str)
    }

    /// A handler has begun with its state.
    pub(super) fn forget_state(&mut self, handler: &str) {
        self.states.remove(handler);
    }

    /// Takes a state that was copied, unless the cut that it is of was put off.
    pub(super) fn collect(&mut self, handler: String, records: u64, state: Vec<u8>) {
        if let Some(all) = &mut self.collected {
            all.push(CutState { handler, records, state });
        }
    }

    /// A state cannot be copied.
    pub(super) fn refuse(&mut self, why: String) {
        self.refused = Some(why);
    }
}

impl Managers {
    /// Notes what the daemon begins with. It takes no records in before the subscriptions are there that there were at the cut, since what
    /// is repeated is for them.
    pub(super) fn begin_with_cut(&mut self) {
        let Some(cuts) = self.checkpoints.cuts_mut() else { return };
        let complaints = std::mem::take(&mut cuts.complaints);
        let wanted = cuts.last.as_ref().map(|last| last.positions.subscriptions.clone()).unwrap_or_default();
        if !wanted.is_empty() && !cuts.longest_wait.is_zero() {
            cuts.awaited = Some((wanted, crossdock_device::now() + cuts.longest_wait));
            self.post_to_io(|context| {
                context.hold_intake(0);
            });
            self.hold_all_times();
            // A context that has just started has a place for the order.
            let _ = self.overlay.ask_quiet();
        }
        for why in complaints {
            self.events.note(
                "checkpoint_failed",
                About::default(),
                format!("a whole checkpoint is passed over: {why}"),
            );
        }
    }

    /// Makes a cut when one `is_due`, and acknowledges what is on disk.
    pub(super) fn tick_cuts(&mut self, is_due: bool) {
        self.take_written_cut();
        self.release_held();
        if self.awaits_subscribers() {
            return;
        }
        let Some(cuts) = self.checkpoints.cuts_mut() else { return };
        if is_due
            && !cuts.is_writing
            && cuts.held.is_empty()
            && self.unconfirmed.is_empty()
            && self.hindered.is_empty()
            && !self.requests.has_waiting()
            && self.overlay.is_at_rest()
        {
            self.make_cut();
        }
    }

    /// Makes the last cut, before the contexts are stopped.
    pub(super) fn make_last_cut(&mut self) {
        self.take_written_cut();
        self.release_held();
        let has_room = self.checkpoints.cuts_mut().is_some_and(|cuts| !cuts.is_writing && cuts.held.is_empty());
        if has_room && self.overlay.is_at_rest() {
            self.make_cut();
        }
    }

    /// Whether records still wait for subscriptions.
    fn awaits_subscribers(&mut self) -> bool {
        let Some((wanted, until)) = self.checkpoints.cuts_mut().and_then(|cuts| cuts.awaited.clone()) else {
            return false;
        };
        let Ok(streams) = self.catalog.snapshot() else { return true };
        let present = |stream: &str| streams.find(stream).map_or(0, |entry| entry.activity().subscriptions());
        let missing: Vec<String> = wanted
            .iter()
            .filter(|(stream, count)| present(stream) < **count)
            .map(|(stream, _)| format!("`{stream}`"))
            .collect();
        if !missing.is_empty() && crossdock_device::now() < until {
            return true;
        }
        if !missing.is_empty() {
            let text = format!(
                "subscribers of {} have not come back in time (`await_subscribers_ms` in [morph]): they miss what is repeated now",
                missing.join(", ")
            );
            self.events.note("subscribers_missing", About::default(), text);
        }
        if let Some(cuts) = self.checkpoints.cuts_mut() {
            cuts.awaited = None;
        }
        self.go_on();
        false
    }

    fn make_cut(&mut self) {
        let Some(cuts) = self.checkpoints.cuts_mut() else { return };
        cuts.number += 1;
        (cuts.collected, cuts.refused) = (Some(Vec::new()), None);
        let (number, until) = (cuts.number, crossdock_device::now() + cuts.longest_pause);
        let taken = self.take_cut(number, until);
        self.go_on();
        failpoint!("cut.released");
        let Some(cuts) = self.checkpoints.cuts_mut() else { return };
        cuts.collected = None;
        let was_put_off = std::mem::replace(&mut cuts.is_put_off, taken.is_err());
        match taken {
            Ok(Taken::Same) => {}
            Ok(Taken::Another(cut)) => {
                cuts.is_writing = true;
                cuts.writer.write(cut);
            }
            Err(why) => {
                // Traffic has as much time as the cut had.
                let pause = cuts.longest_pause;
                self.checkpoints.put_off_next(pause);
                self.checkpoints.forget_copies();
                self.views.cuts.put_off.add(1);
                // Once for all in a row: the count says how many.
                if !was_put_off {
                    let text = format!(
                        "a whole checkpoint is put off, and publishers are not acknowledged before the next: {why}"
                    );
                    self.events.note("checkpoint_put_off", About::default(), text);
                }
            }
        }
    }

    /// Copies all states and positions at one moment.
    ///
    /// # Errors
    /// Why that could not be done in time, in words.
    fn take_cut(&mut self, number: u64, until: Instant) -> Result<Taken, String> {
        let is_finishing = self.hold_intake(number, until)?;
        failpoint!("cut.held");
        self.run_dry(until)?;
        failpoint!("cut.dry");
        let mut positions = self.catalog.run(|catalog| catalog.positions()).map_err(|stopped| stopped.to_string())?;
        // Subscriptions' own queries and their streams end with the daemon.
        positions.numbers.retain(|stream, _| !self.queries.contains_key(stream));
        positions.subscriptions.retain(|stream, _| !self.queries.contains_key(stream));
        let is_same = |last: &Manifest| last.positions == positions;
        let has_moved = self.has_changed_states();
        let cuts = self.checkpoints.cuts_mut();
        if !is_finishing && !has_moved && cuts.and_then(|cuts| cuts.last.as_ref()).is_some_and(is_same) {
            return Ok(Taken::Same);
        }
        let states = self.copy_states(until)?;
        failpoint!("cut.copied");
        Ok(Taken::Another(Cut { number, at_ms: now_ms(), states, positions }))
    }

    /// Has the I/O contexts take no records in; whether publishers wait for the cut to finish.
    fn hold_intake(&mut self, number: u64, until: Instant) -> Result<bool, String> {
        let held = self.ask_each_io(until, move |context| context.hold_intake(number))?;
        Ok(held.into_iter().any(|is_finishing| is_finishing))
    }

    /// Waits until nothing of what came is left, and the subscribers that block have what was made of it.
    fn run_dry(&mut self, until: Instant) -> Result<(), String> {
        let mut before = None;
        loop {
            self.hold_all_times();
            let mut round = self.overlay.ask_quiet().map_err(|at| self.unanswered(at))?;
            while !self.overlay.take_quiet(&mut round) {
                if crossdock_device::now() >= until {
                    return Err(round.awaits().map(|at| self.unanswered(at)).unwrap_or_default());
                }
                nap(REPORT_TICK);
            }
            let delivered = self.ask_each_io(until, Context::has_delivered)?;
            let found = round.found();
            let is_dry = found.is_dry && delivered.into_iter().all(|is_delivered| is_delivered);
            if is_dry && before == Some(found.moved) {
                return Ok(());
            }
            before = is_dry.then_some(found.moved);
            // A handler may wait for these requests, such as one for the format of its next stream.
            if self.requests.has_waiting() {
                return Err("a change of what runs is to be made first".to_owned());
            }
            if crossdock_device::now() >= until {
                let pause_ms = self.checkpoints.cuts_mut().map_or(0, |cuts| cuts.longest_pause.as_millis());
                return Err(format!(
                    "after {pause_ms} ms (`checkpoint_pause_ms` in [morph]) records were on their way, to a subscriber that is slow and \
                     whose policy is block, or in a handler"
                ));
            }
            nap(REPORT_TICK);
        }
    }

    /// Whether a state may be another one than in the last cut.
    fn has_changed_states(&self) -> bool {
        self.stateful().any(|(name, there)| !self.checkpoints.is_as_copied(name, there))
    }

    /// The handlers whose states belong to a cut.
    fn stateful(&self) -> impl Iterator<Item = (&String, &Deployed)> {
        let is_whole = move |(name, there): &(&String, &Deployed)| {
            there.status == Status::Running && !self.is_query(name) && there.keeps_state()
        };
        self.handlers.iter().filter(is_whole)
    }

    /// Copies the states of all handlers.
    fn copy_states(&mut self, until: Instant) -> Result<Vec<CutState>, String> {
        self.checkpoints.forget_copies();
        let due: Vec<String> = self.stateful().map(|(name, _)| name.clone()).collect();
        for name in due {
            let Some(there) = self.handlers.get(&name) else { continue };
            let order = self.checkpoints.order_for(&name, there);
            let order =
                order.ok_or_else(|| format!("an earlier copy of the state of handler `{name}` is still under way"))?;
            let (node, version) = (there.node, there.version);
            let sent = self.overlay.save_state(node, order);
            let number =
                sent.map_err(|_| format!("the context of handler `{name}`, version {version}, takes no orders"))?;
            if let Some(there) = self.handlers.get(&name) {
                self.checkpoints.note_ordered(&name, there, number);
            }
        }
        while self.checkpoints.is_under_way() {
            self.confirm();
            self.take_saved();
            if crossdock_device::now() >= until && self.checkpoints.is_under_way() {
                return Err("the states were not copied in time".to_owned());
            }
            nap(REPORT_TICK);
        }
        // A handler that waits for the formats of its streams has not begun: its state is that of the last cut.
        let waiting = self.checkpoints.waiting_states().filter(|name| self.handlers.contains_key(*name));
        let kept: Vec<String> = waiting.map(str::to_owned).collect();
        let Some(cuts) = self.checkpoints.cuts_mut() else { return Ok(Vec::new()) };
        if let Some(why) = cuts.refused.take() {
            return Err(why);
        }
        let mut all = cuts.collected.take().unwrap_or_default();
        for handler in kept {
            if let Some(Checkpoint { records, state, .. }) = cuts.states.get(&handler)
                && all.iter().all(|other| other.handler != handler)
            {
                all.push(CutState { records: *records, state: state.clone(), handler });
            }
        }
        Ok(all)
    }

    /// Traffic goes on.
    fn go_on(&mut self) {
        self.post_to_io(Context::release_intake);
        self.release_held();
    }

    fn hold_all_times(&mut self) {
        let all = (0..self.watch.seats.len()).map(|at| ContextIndex(at as u8)).collect();
        if let Some(cuts) = self.checkpoints.cuts_mut() {
            cuts.held = all;
        }
    }

    /// Nodes run when their time has come, too; a context that has no place for the order gets it with the next tick.
    fn release_held(&mut self) {
        let Some(cuts) = self.checkpoints.cuts_mut().filter(|cuts| cuts.awaited.is_none()) else { return };
        let held = std::mem::take(&mut cuts.held);
        let left = self.overlay.release_times(&held);
        if let Some(cuts) = self.checkpoints.cuts_mut() {
            cuts.held = left;
        }
    }

    /// Acknowledges what a cut has that is on disk.
    fn take_written_cut(&mut self) {
        let Some(WrittenCut { number, outcome, spare }) =
            self.checkpoints.cuts_mut().and_then(|cuts| cuts.writer.written())
        else {
            return;
        };
        self.checkpoints.keep_spare(spare);
        let Some(cuts) = self.checkpoints.cuts_mut() else { return };
        cuts.is_writing = false;
        match outcome {
            Ok(manifest) => {
                let sizes: Vec<(String, u64)> =
                    manifest.states.iter().map(|(name, state)| (name.clone(), state.bytes)).collect();
                let (at_ms, publications) = (manifest.at_ms, Arc::new(manifest.positions.publications.clone()));
                cuts.last = Some(manifest);
                self.checkpoints.note_cut(&sizes, at_ms);
                self.views.cuts.made.add(1);
                // The daemon is stopping if it does not answer.
                let _ = self.catalog.run(move |catalog| catalog.note_durable(&publications));
                failpoint!("cut.noted");
                self.post_to_io(move |context| context.report_durable(number));
                failpoint!("cut.reported");
            }
            Err(why) => {
                self.checkpoints.forget_copies();
                self.views.cuts.failed.add(1);
                self.events.note(
                    "checkpoint_failed",
                    About::default(),
                    format!("a whole checkpoint is not written: {why}"),
                );
            }
        }
    }

    /// Has each I/O context do something; one that has stopped does not.
    fn post_to_io(&self, work: impl Fn(&mut Context) + Clone + Send + 'static) {
        for io in &self.io {
            let work = work.clone();
            let _ = io.inbox.post(move |context| work(context));
        }
    }

    /// Asks all I/O contexts for something.
    fn ask_each_io<T: Send + 'static>(
        &mut self,
        until: Instant,
        work: impl FnOnce(&mut Context) -> T + Clone + Send + 'static,
    ) -> Result<Vec<T>, String> {
        let asked: Vec<_> = self.io.iter().map(|io| (io.at, io.inbox.request(work.clone()))).collect();
        let mut answers = Vec::with_capacity(asked.len());
        for (at, answer) in asked {
            let answer = answer.ok().and_then(|answer| self.watch.wait_for(at, &answer, until));
            answers.push(answer.ok_or_else(|| self.unanswered(at))?);
        }
        Ok(answers)
    }

    fn unanswered(&self, at: ContextIndex) -> String {
        format!("context {} does not answer in time", self.watch.name(at))
    }
}
