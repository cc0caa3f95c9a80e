//! The resource monitor: the use of resources by contexts and handlers, per second, over the last minutes; and the
//! headroom.

use crate::graph::gauges::NodeGauges;
use crate::info::{HistoryInfo, MomentInfo};
use crate::managers::deployed::Deployed;
use crate::platform::overlay::Overlay;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Readings that are kept for the figures of the last second: one each time the managers look.
const READINGS: usize = 11;

/// The counters of a context or handler at one time.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    at_ns: u64,
    busy_ns: u64,
    handler_ns: u64,
    records_in: u64,
    records_out: u64,
    bytes_in: u64,
    bytes_out: u64,
    network_bytes: u64,
    timed_records: u64,
    timed_ns: u64,
    /// Of then: batches that waited, and buffers in use.
    queued: u64,
    buffers: u64,
}

/// Its rates over about the last second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Rates {
    /// Processor time in which it worked, in ns a second.
    pub(crate) busy_ns_per_s: u64,
    /// The same that went into deployed handlers, and into bringing batches to them.
    pub(crate) handler_ns_per_s: u64,
    pub(crate) msgs_in_per_s: u64,
    pub(crate) msgs_out_per_s: u64,
    pub(crate) bytes_in_per_s: u64,
    pub(crate) bytes_out_per_s: u64,
    /// Bytes received from and sent to the network.
    pub(crate) network_bytes_per_s: u64,
    /// Time for a record, in ns: the mean of those measured.
    pub(crate) ns_per_record: f64,
}

/// The readings and the history of one context or handler.
#[derive(Debug, Default)]
struct Track {
    /// The gauges of a handler: a new handler of the same name begins new readings.
    gauges: Option<Arc<NodeGauges>>,
    readings: VecDeque<Reading>,
    moments: VecDeque<MomentInfo>,
}

impl Track {
    fn rates(&self) -> Rates {
        // Nothing was read yet.
        let (Some(first), Some(last)) = (self.readings.front(), self.readings.back()) else { return Rates::default() };
        let ns = last.at_ns.saturating_sub(first.at_ns);
        if ns == 0 {
            return Rates::default();
        }
        let rate = |of: fn(&Reading) -> u64| {
            (u128::from(of(last).saturating_sub(of(first))) * 1_000_000_000 / u128::from(ns)) as u64
        };
        let timed = last.timed_records.saturating_sub(first.timed_records);
        let timed_ns = last.timed_ns.saturating_sub(first.timed_ns);
        Rates {
            // Of a handler: what was measured in this second, or else ever, stands for all.
            busy_ns_per_s: match (timed, last.timed_records) {
                (0, 0) => rate(|reading| reading.busy_ns),
                (0, ever) => (rate(|reading| reading.records_in) as f64 * last.timed_ns as f64 / ever as f64) as u64,
                (timed, _) => (rate(|reading| reading.records_in) as f64 * timed_ns as f64 / timed as f64) as u64,
            },
            handler_ns_per_s: rate(|reading| reading.handler_ns),
            msgs_in_per_s: rate(|reading| reading.records_in),
            msgs_out_per_s: rate(|reading| reading.records_out),
            bytes_in_per_s: rate(|reading| reading.bytes_in),
            bytes_out_per_s: rate(|reading| reading.bytes_out),
            network_bytes_per_s: rate(|reading| reading.network_bytes),
            ns_per_record: if timed > 0 { timed_ns as f64 / timed as f64 } else { 0.0 },
        }
    }

    fn take(&mut self, reading: Reading) {
        self.readings.push_back(reading);
        if self.readings.len() > READINGS {
            self.readings.pop_front();
        }
    }

    /// Adds the last second to the history, which keeps `kept` seconds.
    fn keep_second(&mut self, at_s: u64, headroom_ns_per_s: u64, kept: usize) {
        debug_assert!(!self.readings.is_empty(), "gauges are read before a second is kept");
        let (queued, buffers) = self.readings.back().map_or((0, 0), |last| (last.queued, last.buffers));
        let rates = self.rates();
        self.moments.push_back(MomentInfo {
            at_s,
            busy_share: rates.busy_ns_per_s as f64 / 1e9,
            msgs_in_per_s: rates.msgs_in_per_s,
            msgs_out_per_s: rates.msgs_out_per_s,
            bytes_in_per_s: rates.bytes_in_per_s,
            bytes_out_per_s: rates.bytes_out_per_s,
            queued,
            buffers,
            headroom_ns_per_s,
        });
        if self.moments.len() > kept {
            self.moments.pop_front();
        }
    }
}

/// The resource monitor. Cheap to clone: all clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Monitor(Arc<Mutex<Tracks>>);

#[derive(Debug, Default)]
struct Tracks {
    contexts: Vec<Track>,
    handlers: BTreeMap<String, Track>,
    kept: usize,
}

impl Monitor {
    /// Keeps a history of `kept` seconds.
    pub(crate) fn new(kept: usize) -> Monitor {
        Monitor(Arc::new(Mutex::new(Tracks { kept, ..Tracks::default() })))
    }

    fn tracks(&self) -> MutexGuard<'_, Tracks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads all gauges.
    pub(crate) fn take(&self, overlay: &Overlay, handlers: &BTreeMap<String, Deployed>, since: Duration) {
        let at_ns = since.as_nanos() as u64;
        let mut tracks = self.tracks();
        let Tracks { contexts: of_contexts, handlers: of_handlers, .. } = &mut *tracks;
        of_contexts.resize_with(overlay.ports.len(), Track::default);
        for (track, port) in of_contexts.iter_mut().zip(&overlay.ports) {
            let gauges = &port.gauges;
            let reading = Reading {
                at_ns,
                busy_ns: gauges.busy_ns.get(),
                handler_ns: gauges.handler_ns.get(),
                records_in: gauges.records_in.get(),
                bytes_in: gauges.bytes_in.get(),
                bytes_out: gauges.bytes_out.get(),
                network_bytes: gauges.network_bytes.get(),
                queued: gauges.queued.get(),
                buffers: gauges.buffers_in_use.get(),
                ..Reading::default()
            };
            track.take(reading);
        }
        of_handlers.retain(|name, _| handlers.contains_key(name));
        for (name, handler) in handlers {
            let gauges = &handler.gauges;
            let track = of_handlers.entry(name.clone()).or_default();
            if !track.gauges.as_ref().is_some_and(|read| Arc::ptr_eq(read, gauges)) {
                *track = Track { gauges: Some(Arc::clone(gauges)), ..Track::default() };
            }
            let (timed_ns, timed_records) = (gauges.timed_ns.get(), gauges.timed_records.get());
            let records_in = gauges.records_in.get();
            let reading = Reading {
                at_ns,
                records_in,
                records_out: gauges.records_out.get(),
                bytes_in: gauges.bytes_in.get(),
                bytes_out: gauges.bytes_out.get(),
                timed_records,
                timed_ns,
                queued: gauges.queued.get(),
                // Each batch that waits has one.
                buffers: gauges.queued.get(),
                ..Reading::default()
            };
            track.take(reading);
        }
    }

    /// Adds the last second to all histories, with the headroom of the contexts.
    pub(crate) fn keep_second(&self, at_s: u64, headroom_ns_per_s: impl Fn(usize) -> u64) {
        let mut tracks = self.tracks();
        let kept = tracks.kept;
        for (at, track) in tracks.contexts.iter_mut().enumerate() {
            track.keep_second(at_s, headroom_ns_per_s(at), kept);
        }
        for track in tracks.handlers.values_mut() {
            track.keep_second(at_s, 0, kept);
        }
    }

    /// A context's rates over the last second.
    pub(crate) fn context(&self, at: usize) -> Rates {
        self.tracks().contexts.get(at).map(Track::rates).unwrap_or_default()
    }

    /// A handler's rates over the last second.
    pub(crate) fn handler(&self, name: &str) -> Rates {
        self.tracks().handlers.get(name).map(Track::rates).unwrap_or_default()
    }

    /// The last minutes of all; the contexts' names in their order.
    pub(crate) fn histories<'n>(&self, names: impl Iterator<Item = &'n str>) -> Vec<HistoryInfo> {
        let tracks = self.tracks();
        let history = |name: &str, kind: &str, track: &Track| HistoryInfo {
            name: name.to_owned(),
            kind: kind.to_owned(),
            moments: track.moments.iter().copied().collect(),
        };
        let contexts = names.zip(&tracks.contexts).map(|(name, track)| history(name, "context", track));
        contexts.chain(tracks.handlers.iter().map(|(name, track)| history(name, "handler", track))).collect()
    }
}
