//! Facts of the checkpoints of deployed handlers' states, and the states with which handlers begin.

use crate::checkpoints::{Checkpoint, CheckpointWriter, RecordCounts, Written, open_directory, read, remove_others};
use crate::config::MorphConfig;
use crate::graph::gauges::Gauge;
use crate::graph::node::Instance;
use crate::graph::save::{SaveState, Saved};
use crate::info::HandlerInfo;
use crate::managers::cuts::Cuts;
use crate::managers::deployed::Deployed;
use crate::managers::events::now_ms;
use crate::managers::spec::HandlerSpec;
use crossdock_engine::Handler;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// States whose memory is kept for the next ones.
const MOST_SPARE: usize = 2;

/// The checkpoints of all handlers; none without a directory for what is kept.
#[derive(Debug, Default)]
pub(crate) struct Checkpoints(Option<Store>);

#[derive(Debug)]
struct Store {
    directory: PathBuf,
    /// None: only when the daemon stops.
    interval: Option<Duration>,
    most_bytes: usize,
    writer: CheckpointWriter,
    counts: RecordCounts,
    /// How many records kept handlers had taken that have not begun yet: each is to begin with its checkpoint.
    waiting: BTreeMap<String, u64>,
    handlers: BTreeMap<String, OfHandler>,
    /// When the next are due.
    next: Instant,
    /// Memory for states.
    spare: Vec<Vec<u8>>,
    /// The whole graph is copied at once.
    cuts: Option<Box<Cuts>>,
}

/// The checkpoints of a handler.
#[derive(Debug, Default)]
struct OfHandler {
    /// The records that it had taken before this daemon.
    before: u64,
    /// How it began: with a state that is there on disk, or why not.
    begin: Option<Begin>,
    /// The order to copy its state that is under way.
    order: Option<u64>,
    /// Records and rows when its state was last copied: with the same, the state is the same.
    seen: Option<[u64; 3]>,
    is_too_large: bool,
    shown: Shown,
}

#[derive(Debug)]
enum Begin {
    Restored {
        at_ms: u64,
        bytes: usize,
    },
    /// There was no checkpoint.
    None,
    Refused(String),
}

/// The facts of them that are shown.
#[derive(Clone, Copy, Debug, Default)]
struct Shown {
    written: u64,
    failed: u64,
    bytes: u64,
    at_ms: u64,
    /// Records that are not in the state with which it began.
    missing: u64,
}

impl Checkpoints {
    /// Those in the configured directory.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn open(config: &MorphConfig) -> io::Result<Checkpoints> {
        let Some(state_dir) = &config.state_dir else { return Ok(Checkpoints::default()) };
        let directory = open_directory(state_dir)?;
        let cuts = config.durable.then(|| Cuts::open(state_dir, config)).transpose()?;
        let (counts, waiting) = RecordCounts::open(&directory);
        let interval = Duration::from_millis(config.checkpoint_interval_ms.into());
        Ok(Checkpoints(Some(Store {
            interval: (!interval.is_zero()).then_some(interval),
            most_bytes: usize::try_from(config.checkpoint_max_bytes).unwrap_or(usize::MAX),
            writer: CheckpointWriter::start(&directory)?,
            counts,
            waiting,
            handlers: BTreeMap::new(),
            next: crossdock_device::now() + interval,
            spare: Vec::new(),
            cuts: cuts.map(Box::new),
            directory,
        })))
    }

    /// The counts of records, to be noted once more when the contexts have ended.
    pub(crate) fn counts(&self) -> RecordCounts {
        self.0.as_ref().map(|store| store.counts.clone()).unwrap_or_default()
    }

    /// These handlers are to begin with their checkpoints; those of all others go.
    pub(super) fn expect(&mut self, kept: &[HandlerSpec]) {
        let Some(store) = &mut self.0 else { return };
        remove_others(&store.directory, kept.iter().map(|spec| spec.name.as_str()));
        let mut former = std::mem::take(&mut store.waiting);
        if let Some(cuts) = store.cuts.as_ref().filter(|cuts| cuts.last().is_some()) {
            // Records that were taken later come again.
            let count = |spec: &HandlerSpec| Some((spec.name.clone(), cuts.state_of(&spec.name)?.records));
            former = kept.iter().filter_map(count).collect();
        }
        let count = |spec: &HandlerSpec| (spec.name.clone(), former.get(&spec.name).copied().unwrap_or(0));
        store.waiting = kept.iter().map(count).collect();
        store.waiting.iter().for_each(|(name, before)| store.counts.set(name, None, *before));
    }

    /// Gives a handler that is to begin the state of its checkpoint, if there is one.
    pub(super) fn restore(&mut self, name: &str, instances: &mut [Instance]) {
        let Some(store) = &mut self.0 else { return };
        let Some(known) = store.waiting.get(name).copied() else { return };
        let mut handlers = instances.iter_mut().filter_map(|instance| instance.handler.as_deref_mut());
        let Some(handler) = handlers.find(|handler| handler.shares_state()) else { return };
        let of = store.handlers.entry(name.to_owned()).or_default();
        (of.before, of.shown.missing) = (known, known);
        of.begin = Some(match &store.cuts {
            Some(cuts) if cuts.last().is_some() => match cuts.state_of(name) {
                None => Begin::None,
                Some(checkpoint) => of.take(handler, checkpoint),
            },
            _ => match read(&store.directory, name) {
                Ok(None) => Begin::None,
                Ok(Some(checkpoint)) => of.take(handler, &checkpoint),
                Err(why) => Begin::Refused(why),
            },
        });
    }

    /// Whether a handler that is about to begin has the state of its checkpoint.
    pub(super) fn is_restored(&self, name: &str) -> bool {
        let of = self.0.as_ref().and_then(|store| store.handlers.get(name));
        of.is_some_and(|of| matches!(of.begin, Some(Begin::Restored { .. })))
    }

    /// A handler has begun: what became of its checkpoint, as a kind of event and in words, if it was to begin with one.
    pub(super) fn begun(&mut self, name: &str, there: &Deployed) -> Option<(&'static str, String)> {
        let store = self.0.as_mut()?;
        let of = store.handlers.entry(name.to_owned()).or_default();
        store.waiting.remove(name);
        store.cuts.iter_mut().for_each(|cuts| cuts.forget_state(name));
        store.counts.set(name, Some(Arc::clone(&there.gauges)), of.before);
        let missing = of.shown.missing;
        let records = if missing == 1 { "record" } else { "records" };
        match of.begin.take()? {
            Begin::Restored { at_ms, bytes } => {
                let age_s = now_ms().saturating_sub(at_ms) / 1000;
                let text = format!(
                    "its state is that of its checkpoint of {age_s} s ago, {bytes} bytes; at least {missing} {records} that the daemon \
                     before took later are not in it"
                );
                Some(("restored", text))
            }
            Begin::None if missing == 0 => None,
            Begin::None => {
                let text = format!("it had no checkpoint: its state is empty, without at least {missing} {records}");
                Some(("state_not_restored", text))
            }
            Begin::Refused(why) => {
                of.shown.failed += 1;
                let text = format!("its state is empty, without at least {missing} {records}: {why}");
                Some(("state_not_restored", text))
            }
        }
    }

    /// A handler of this name is gone, or its state is.
    pub(super) fn forget(&mut self, name: &str, is_gone: bool) {
        let Some(store) = &mut self.0 else { return };
        store.writer.remove(name);
        store.cuts.iter_mut().for_each(|cuts| cuts.forget_state(name));
        if is_gone {
            store.handlers.remove(name);
            store.waiting.remove(name);
            store.counts.remove(name);
        } else if let Some(of) = store.handlers.get_mut(name) {
            of.seen = None;
        }
    }

    /// An order was not carried out.
    pub(super) fn note_undone(&mut self, order: u64) {
        let Some(store) = &mut self.0 else { return };
        let Some((name, of)) = store.handlers.iter_mut().find(|(_, of)| of.order == Some(order)) else { return };
        (of.order, of.seen) = (None, None);
        if let Some(cuts) = &mut store.cuts {
            cuts.refuse(format!("its context has not copied the state of handler `{name}`"));
        }
    }

    /// The facts of a handler's checkpoints that are shown.
    pub(super) fn show(&self, name: &str, info: &mut HandlerInfo) {
        let Some(of) = self.0.as_ref().and_then(|store| store.handlers.get(name)) else { return };
        let Shown { written, failed, bytes, at_ms, missing } = of.shown;
        (info.checkpoints, info.checkpoint_failures) = (written, failed);
        (info.checkpoint_bytes, info.checkpoint_at_ms, info.gap_records) = (bytes, at_ms, missing);
    }

    /// Notes how many records handlers have taken; whether it is time for checkpoints.
    pub(super) fn tick(&mut self) -> bool {
        let Some(store) = &mut self.0 else { return false };
        store.counts.note();
        let now = crossdock_device::now();
        let interval = store.interval.filter(|_| now >= store.next);
        interval.into_iter().for_each(|interval| store.next = now + interval);
        interval.is_some()
    }

    /// The order to copy the state of a handler, if that may be another one than in its checkpoint.
    pub(super) fn order_for(&mut self, name: &str, there: &Deployed) -> Option<SaveState> {
        let store = self.0.as_mut()?;
        let of = store.handlers.entry(name.to_owned()).or_default();
        if of.order.is_some() || of.seen == Some(figures(there)) {
            return None;
        }
        let mut bytes = store.spare.pop().unwrap_or_default();
        let expected = usize::try_from(there.gauges.state_bytes.get()).unwrap_or(usize::MAX);
        bytes.reserve(expected.min(store.most_bytes).saturating_add(1 << 12));
        let (handler, version, most_bytes) = (name.to_owned(), there.version, store.most_bytes);
        Some(SaveState { handler, version, most_bytes, bytes, saved: Saved::Nothing })
    }

    /// The order for a handler has this number.
    pub(super) fn note_ordered(&mut self, name: &str, there: &Deployed, number: u64) {
        let of = self.0.as_mut().and_then(|store| store.handlers.get_mut(name));
        of.into_iter().for_each(|of| (of.order, of.seen) = (Some(number), Some(figures(there))));
    }

    /// Takes what came of an order: has the state written, if the handler `is_same` still; or why that cannot be, in words, the first
    /// time.
    pub(super) fn take_saved(&mut self, order: SaveState, is_same: bool) -> Option<String> {
        let store = self.0.as_mut()?;
        let SaveState { handler, bytes, saved, most_bytes, .. } = order;
        let of = store.handlers.get_mut(&handler)?;
        of.order = None;
        match saved {
            Saved::Whole { records_in } if is_same => {
                of.is_too_large = false;
                let records = of.before + records_in;
                match &mut store.cuts {
                    Some(cuts) => cuts.collect(handler, records, bytes),
                    None => store.writer.write(handler, (records, now_ms()), bytes),
                }
                None
            }
            Saved::TooLarge { bytes } if is_same => {
                of.shown.failed += 1;
                let is_first = !std::mem::replace(&mut of.is_too_large, true);
                if let Some(cuts) = &mut store.cuts {
                    cuts.refuse(format!(
                        "the state of handler `{handler}` has {bytes} bytes, and checkpoints are made of {most_bytes} at most \
                         (`checkpoint_max_bytes` in [morph])"
                    ));
                    return None;
                }
                is_first.then(|| {
                    format!(
                        "its state has {bytes} bytes, and checkpoints are made of {most_bytes} at most (`checkpoint_max_bytes` in \
                         [morph]): after a restart it begins with an older one, or with none"
                    )
                })
            }
            Saved::Whole { .. } | Saved::TooLarge { .. } | Saved::Nothing => None,
        }
    }

    /// Notes what was written; the handlers whose checkpoint was not, and why.
    pub(super) fn take_written(&mut self) -> Vec<(String, String)> {
        let Some(store) = &mut self.0 else { return Vec::new() };
        let mut failures = Vec::new();
        for Written { handler, outcome, spare } in store.writer.written() {
            if store.spare.len() < MOST_SPARE {
                store.spare.push(spare);
            }
            let Some(of) = store.handlers.get_mut(&handler) else { continue };
            match outcome {
                Ok((bytes, at_ms)) => {
                    of.shown.written += 1;
                    (of.shown.bytes, of.shown.at_ms) = (bytes, at_ms);
                }
                Err(why) => {
                    // It is tried again, also where no record comes.
                    (of.shown.failed, of.seen) = (of.shown.failed + 1, None);
                    failures.push((handler, why));
                }
            }
        }
        failures
    }

    /// The cuts of the whole graph, if the daemon is `durable`.
    pub(crate) fn cuts_mut(&mut self) -> Option<&mut Cuts> {
        self.0.as_mut()?.cuts.as_deref_mut()
    }

    /// The handlers that have not begun with their states of the last cut.
    pub(super) fn waiting_states(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|store| store.cuts.as_deref()).flat_map(Cuts::waiting)
    }

    /// The next ones are not due for a while.
    pub(super) fn put_off_next(&mut self, pause: Duration) {
        self.0.iter_mut().for_each(|store| store.next = store.next.max(crossdock_device::now() + pause));
    }

    /// Whether the state of a handler is the one that was copied last.
    pub(super) fn is_as_copied(&self, name: &str, there: &Deployed) -> bool {
        let of = self.0.as_ref().and_then(|store| store.handlers.get(name));
        of.is_some_and(|of| of.order.is_none() && of.seen == Some(figures(there)))
    }

    /// All states are to be copied again, also where no record comes.
    pub(super) fn forget_copies(&mut self) {
        self.0.iter_mut().flat_map(|store| store.handlers.values_mut()).for_each(|of| of.seen = None);
    }

    /// A cut is on disk, with states of these sizes, which were copied at this time, in ms since 1970.
    pub(super) fn note_cut(&mut self, sizes: &[(String, u64)], at_ms: u64) {
        let Some(store) = &mut self.0 else { return };
        for (handler, bytes) in sizes {
            // It may have gone meanwhile.
            let Some(of) = store.handlers.get_mut(handler) else { continue };
            of.shown.written += 1;
            (of.shown.bytes, of.shown.at_ms) = (*bytes, at_ms);
        }
    }

    /// Keeps the memory of states for the next ones.
    pub(super) fn keep_spare(&mut self, spare: Vec<Vec<u8>>) {
        let Some(store) = &mut self.0 else { return };
        let room = MOST_SPARE.saturating_sub(store.spare.len());
        let cleared = spare.into_iter().take(room).map(|mut state| {
            state.clear();
            state
        });
        store.spare.extend(cleared);
    }

    /// Whether some are made at all.
    pub(super) fn are_made(&self) -> bool {
        self.0.is_some()
    }

    /// Whether a state is yet to be copied.
    pub(super) fn is_under_way(&self) -> bool {
        self.0.iter().flat_map(|store| store.handlers.values()).any(|of| of.order.is_some())
    }
}

impl OfHandler {
    /// Gives a handler the state of a checkpoint.
    fn take(&mut self, handler: &mut dyn Handler, checkpoint: &Checkpoint) -> Begin {
        self.before = self.before.max(checkpoint.records);
        let missing = self.before - checkpoint.records;
        match handler.restore(&checkpoint.state) {
            Ok(()) => {
                self.shown.missing = missing;
                Begin::Restored { at_ms: checkpoint.at_ms, bytes: checkpoint.state.len() }
            }
            Err(error) => {
                self.shown.missing = self.before;
                Begin::Refused(format!("its checkpoint is not taken: {error}"))
            }
        }
    }
}

/// The figures that say whether a state may be another one than before.
fn figures(there: &Deployed) -> [u64; 3] {
    [&there.gauges.records_in, &there.gauges.records_out, &there.gauges.forgotten].map(Gauge::get)
}
