//! The daemon's catalog: its streams with their names, numbers, formats and versions, the conversions between formats,
//! and what of that is kept across restarts. There is one, on the control thread ([`thread`]), so whoever names a
//! stream first on two contexts at once gets the same number for it. Contexts and managers make requests, and hold
//! immutable snapshots.
//!
//! Nothing slow is done here: queries are planned and conversions compiled by the planner, before or after a request.

mod activity;
mod conversions;
pub(crate) mod durable;
mod expiry;
mod formats;
mod journal;
mod removal;
mod snapshot;
#[cfg(test)]
mod tests;
pub(crate) mod thread;

pub(crate) use snapshot::{Conversions, Snapshot, StreamEntry};

use crate::principal::Principal;
use crate::publications::{Publications, Taken};
use crate::refusal::refuse;
use crate::state::StateSide;
use crossdock_control::conversions::Owner;
use crossdock_engine::Tables;
use crossdock_format::FormatId;
use crossdock_format::registry::{Registry, Stream as RegisteredStream};
use crossdock_transport::FormatName;
use crossdock_transport::control::{Publication, Refusal, RefusalCode};
use expiry::Expiry;
use journal::Journal;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The longest name of a stream, in bytes.
const MAX_NAME_BYTES: usize = 255;

/// Called with each new snapshot and the numbers of the streams that have changed; `false` when it need not be called
/// any more.
pub(crate) type Watcher = Box<dyn Fn(&Arc<Snapshot>, &Arc<[u32]>) -> bool + Send>;

/// The formats that a conversion stands between, as they were named, and its stream.
pub(crate) struct Between<'a> {
    pub(crate) stream: &'a str,
    pub(crate) from: &'a FormatName,
    pub(crate) to: &'a FormatName,
}

/// The users of a stream in all contexts. A stream is known as long as it has one, or is kept.
#[derive(Clone, Copy, Debug, Default)]
struct Uses {
    /// Sessions that publish it.
    publishers: u32,
    /// I/O contexts with subscriptions, or with sessions that listen for wanted conversions.
    others: u32,
}

/// All streams of a daemon, and the conversions between their formats.
pub(crate) struct Catalog {
    now: Arc<Snapshot>,
    /// By stream number.
    uses: BTreeMap<u32, Uses>,
    registry: Registry,
    /// Conversions on all streams.
    conversions: usize,
    max_streams: usize,
    /// The origins of the streams that sessions announced first since the start, by stream number.
    announcers: BTreeMap<u32, Principal>,
    max_streams_per_peer: u32,
    /// The origins of the formats that sessions brought first since the start, by stream number.
    bringers: BTreeMap<(u32, FormatId), Principal>,
    /// Formats that sessions brought and that have had no record yet.
    unproven: BTreeSet<(u32, FormatId)>,
    /// The formats that sessions publish, with the number of these sessions.
    publishing: BTreeMap<(u32, FormatId), u32>,
    publications: Publications,
    /// The numbers of streams at an earlier daemon that have not come back.
    former_numbers: BTreeMap<String, u64>,
    expiry: Expiry,
    journal: Journal,
    /// Numbers of the streams that have changed since the last snapshot was given out.
    changed: BTreeSet<u32>,
    watchers: Vec<Watcher>,
    /// Earlier snapshots that somebody still holds: they are freed on this thread.
    retired: Vec<Arc<Snapshot>>,
}

impl Catalog {
    /// An empty catalog for this many streams; one origin may announce `max_streams_per_peer` of them.
    pub(crate) fn new(max_streams: usize, max_streams_per_peer: u32) -> Catalog {
        Catalog {
            now: Arc::default(),
            uses: BTreeMap::new(),
            registry: Registry::default(),
            conversions: 0,
            max_streams,
            announcers: BTreeMap::new(),
            max_streams_per_peer,
            bringers: BTreeMap::new(),
            unproven: BTreeSet::new(),
            publishing: BTreeMap::new(),
            publications: Publications::default(),
            former_numbers: BTreeMap::new(),
            expiry: Expiry::default(),
            journal: Journal::default(),
            changed: BTreeSet::new(),
            watchers: Vec::new(),
            retired: Vec::new(),
        }
    }

    /// With these reference tables, whose names no stream has.
    #[must_use]
    pub(crate) fn with_tables(mut self, tables: Tables) -> Catalog {
        Arc::make_mut(&mut self.now).tables = tables;
        self
    }

    /// Takes in the kept state; returns the entries that no longer fit, in words. Each later change is written
    /// down by `state`, if there is one.
    pub(crate) fn restore(&mut self, registry: &Registry, state: Option<StateSide>) -> Vec<String> {
        let mut complaints = Vec::new();
        let refused =
            |stream: &str, what: &str, why: &str| format!("{what} of stream `{stream}` is not restored: {why}");
        self.registry = registry.clone();
        for (name, kept) in registry.streams() {
            for format in kept.versions().iter().filter_map(|id| registry.format(*id)) {
                let declared = self.declare(name, format);
                complaints.extend(declared.err().map(|why| refused(name, "a version", &why.message)));
            }
            if let Some(entry) = self.now.find(name).map(StreamEntry::number).and_then(|number| self.entry_mut(number))
            {
                let graph = &mut Arc::make_mut(&mut entry.conversions).graph;
                registry.guarded(name).for_each(|format| graph.guard(format));
            }
        }
        for (name, from, to, conversion) in registry.conversions() {
            let description = |id| registry.format(id).map(|format| FormatName::Description(format.describe()));
            let (Some(from), Some(to)) = (description(from), description(to)) else {
                complaints.push(refused(name, "a conversion", "one of its formats is not stored"));
                continue;
            };
            let between = Between { stream: name, from: &from, to: &to };
            let compiled = self.now.compile(&between, &conversion.to_string());
            let registered = compiled.and_then(|compiled| self.register(Owner::Kept, name, compiled));
            complaints.extend(registered.err().map(|why| refused(name, "a conversion", &why.message)));
        }
        self.journal = Journal::new(state);
        complaints
    }

    /// The catalog as it is now; it never changes.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.now)
    }

    /// Has a function called with each new snapshot.
    pub(crate) fn watch(&mut self, watcher: Watcher) {
        self.watchers.push(watcher);
    }

    /// Gives a snapshot to the watchers, if anything has changed since the last one.
    pub(crate) fn publish_snapshot(&mut self) {
        if !self.changed.is_empty() {
            let changed: Arc<[u32]> = std::mem::take(&mut self.changed).into_iter().collect();
            let now = Arc::clone(&self.now);
            self.watchers.retain(|watcher| watcher(&now, &changed));
        }
        self.retired.retain(|snapshot| Arc::strong_count(snapshot) > 1);
    }

    /// A stream by name, made if it is new.
    ///
    /// # Errors
    /// The name is not valid, or the table is full.
    fn stream_named(&mut self, name: &str) -> Result<u32, Refusal> {
        if let Some(number) = self.now.find(name).map(StreamEntry::number) {
            self.expiry.note_use(number);
            return Ok(number);
        }
        if name.is_empty() || name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
            let message = format!("a stream's name has 1 to {MAX_NAME_BYTES} bytes and no control characters");
            return Err(refuse(RefusalCode::State, message));
        }
        if self.now.len() >= self.max_streams {
            let message = format!(
                "the daemon has {} streams, the bound: `crossdock streams rm` removes unused ones",
                self.max_streams
            );
            return Err(refuse(RefusalCode::Limit, message));
        }
        let policy = self.registry.stream(name).map(RegisteredStream::policy).unwrap_or_default();
        let number = self.now_mut().insert(name, policy);
        self.restore_number(number);
        // It may have been another's before.
        self.expiry.note_use(number);
        self.changed.insert(number);
        Ok(number)
    }

    /// An I/O context uses a stream from now on, until [`Catalog::leave`]. `None` if nobody has brought a
    /// format of it yet, and the user does not wait for one.
    ///
    /// # Errors
    /// The name is not valid, or there are too many streams.
    pub(crate) fn enter(&mut self, name: &str, waits: bool) -> Result<Option<u32>, Refusal> {
        let known = self.now.find(name).is_some_and(|entry| !entry.formats().is_empty());
        if !known && !waits {
            return Ok(None);
        }
        let number = self.stream_named(name)?;
        let uses = self.uses.entry(number).or_default();
        uses.others += 1;
        self.now.get(number).into_iter().for_each(|entry| entry.activity().set_readers(uses.others));
        Ok(Some(number))
    }

    /// A use of a stream has ended.
    pub(crate) fn leave(&mut self, number: u32) {
        if let Some(uses) = self.uses.get_mut(&number) {
            uses.others = uses.others.saturating_sub(1);
            self.now.get(number).into_iter().for_each(|entry| entry.activity().set_readers(uses.others));
        }
        self.forget_if_unused(number);
    }

    /// The first record of a format has come from a session: the stream keeps the format, over a restart too.
    pub(crate) fn note_record(&mut self, number: u32, format: FormatId) {
        self.unproven.remove(&(number, format));
        if let Some(entry) = self.now.get(number) {
            self.journal.release(entry.name(), format);
        }
    }

    /// A session no longer publishes a stream in this format. Precedes [`Catalog::end_publishing`].
    pub(crate) fn end_format(&mut self, number: u32, format: FormatId) {
        let of = (number, format);
        if let Some(sessions) = self.publishing.get_mut(&of) {
            *sessions -= 1;
            if *sessions == 0 {
                self.publishing.remove(&of);
            }
        }
        self.forget_if_unused(number);
    }

    /// A session no longer publishes a stream.
    pub(crate) fn end_publishing(&mut self, number: u32) {
        if let Some(uses) = self.uses.get_mut(&number) {
            uses.publishers = uses.publishers.saturating_sub(1);
        }
        self.forget_if_unused(number);
    }

    /// A session brings the records of a publication of a stream from now on: how many were taken, over all sessions.
    pub(crate) fn resume(&mut self, stream: &str, publication: Publication) -> Taken {
        self.publications.resume(stream, publication, crossdock_device::now())
    }

    /// A handler reads a stream from now on, which need not be there yet; its number.
    ///
    /// # Errors
    /// Its name is not valid, or there are too many streams.
    pub(crate) fn claim(&mut self, name: &str) -> Result<u32, Refusal> {
        let number = self.stream_named(name)?;
        if let Some(entry) = self.entry_mut(number) {
            entry.claims += 1;
        }
        Ok(number)
    }

    /// A handler reads or makes a stream no longer.
    pub(crate) fn disclaim(&mut self, number: u32) {
        if let Some(entry) = self.entry_mut(number) {
            entry.claims = entry.claims.saturating_sub(1);
        }
        self.forget_if_unused(number);
    }

    /// No handler makes a stream any more.
    pub(crate) fn underive(&mut self, number: u32) {
        if let Some(entry) = self.entry_mut(number).filter(|entry| entry.made_by.is_some()) {
            entry.made_by = None;
            self.disclaim(number);
        }
    }

    /// The snapshot, to change. Others keep theirs.
    fn now_mut(&mut self) -> &mut Snapshot {
        if Arc::strong_count(&self.now) > 1 {
            let changed = Arc::new(Snapshot::clone(&self.now));
            self.retired.push(std::mem::replace(&mut self.now, changed));
        }
        Arc::make_mut(&mut self.now)
    }

    /// A stream, which is about to change.
    fn entry_mut(&mut self, number: u32) -> Option<&mut StreamEntry> {
        self.now.get(number)?;
        self.changed.insert(number);
        self.now_mut().get_mut(number)
    }

    /// A stream that is there.
    #[track_caller]
    fn present(&self, number: u32) -> Option<&StreamEntry> {
        let entry = self.now.get(number).map(AsRef::as_ref);
        debug_assert!(entry.is_some(), "stream {number} is unknown");
        entry
    }

    /// The same, to change.
    #[track_caller]
    fn present_mut(&mut self, number: u32) -> Option<&mut StreamEntry> {
        let entry = self.entry_mut(number);
        debug_assert!(entry.is_some(), "stream {number} is unknown");
        entry
    }

    /// The format of this id of a stream, if a conversion may have left it before it was a version.
    fn is_guarded(&self, number: u32, format: FormatId) -> bool {
        self.now.get(number).is_some_and(|entry| entry.conversions().graph().is_guarded(format))
    }

    /// A stream goes: it counts for nobody any more.
    fn forget_origins(&mut self, number: u32) {
        self.announcers.remove(&number);
        self.bringers.retain(|(of, _), _| *of != number);
    }

    /// Removes a stream that has no user any more, and that only handlers have made or nobody has brought a record of.
    fn forget_if_unused(&mut self, number: u32) {
        let uses = self.uses.get(&number).copied().unwrap_or_default();
        if uses.publishers > 0 || uses.others > 0 {
            return;
        }
        self.uses.remove(&number);
        self.forget_unproven(number);
        if self.now.get(number).is_some_and(|entry| entry.is_unused()) {
            self.forget_origins(number);
            self.now_mut().remove(number);
            self.changed.insert(number);
        }
    }
}
