//! Streams: their names, formats, publishers, and the service path that each format takes.

use crate::morph::Morphing;
use crate::platform::StageId;
use crossdock_format::{Format, FormatId};
use slab::Slab;
use std::collections::HashMap;

/// Bytes of a stream's latest records that are kept, so that `explain` can measure on real ones.
const SAMPLE_BYTES: usize = 16 << 10;
/// How often the sample is taken anew, in ns.
const SAMPLE_INTERVAL_NS: u64 = 1_000_000_000;

/// The latest records of one format: what cost estimates rest on.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    pub(crate) payload: Vec<u8>,
    taken_ns: Option<u64>,
}

impl Sample {
    /// Whether it is old enough to be taken anew.
    #[inline]
    fn is_due(&self, now_ns: u64) -> bool {
        self.taken_ns.is_none_or(|at| now_ns >= at + SAMPLE_INTERVAL_NS)
    }

    /// Takes a copy of whole records from a payload, at most once a second.
    #[inline]
    pub(crate) fn offer<'a>(&mut self, now_ns: u64, records: impl Iterator<Item = &'a [u8]>) {
        if !self.is_due(now_ns) {
            return;
        }
        self.taken_ns = Some(now_ns);
        self.payload.clear();
        for record in records {
            if self.payload.len() + record.len() > SAMPLE_BYTES {
                break;
            }
            self.payload.extend_from_slice(record);
        }
    }
}

/// The most records a second that came, over windows of 100 ms: what handlers have to keep up with.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Peak {
    began_ns: u64,
    records: u64,
    most: u64,
}

impl Peak {
    /// The length of a window, in ns.
    const WINDOW_NS: u64 = 100_000_000;

    #[inline]
    pub(crate) fn note(&mut self, records: u64, now_ns: u64) {
        if now_ns >= self.began_ns + Self::WINDOW_NS {
            self.most = self.most.max(self.records);
            (self.began_ns, self.records) = (now_ns, 0);
        }
        self.records += records;
    }

    /// In records a second.
    pub(crate) fn msgs_per_s(&self) -> u64 {
        self.most.max(self.records) * (1_000_000_000 / Self::WINDOW_NS)
    }
}

/// One format of a stream, and how often it is announced now.
#[derive(Debug)]
pub(crate) struct StreamFormat {
    pub(crate) format: Format,
    pub(crate) sample: Sample,
}

/// One stream.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    pub(crate) name: String,
    /// Newest last.
    pub(crate) formats: Vec<StreamFormat>,
    /// Whether one of them was announced or declared, so that the registry has it; else handlers made them all.
    pub(crate) is_kept: bool,
    /// Keys of the peers that publish it; one that announced two formats is here once.
    pub(crate) publishers: Vec<usize>,
    /// Keys of the subscriptions to it: where its batches go.
    pub(crate) subscriptions: Vec<usize>,
    /// `block` subscriptions whose queue is full now; while there is one, its publishers get no new credit.
    pub(crate) blocked_by: u32,
    pub(crate) records_in: u64,
    pub(crate) bytes_in: u64,
    pub(crate) unclaimed: u64,
    pub(crate) malformed: u64,
    pub(crate) batches_in: u64,
    pub(crate) peak: Peak,
    /// The handler that makes it, if one does, and by which stage it is delivered to its subscriptions.
    pub(crate) made_by: Option<Box<str>>,
    pub(crate) delivery: Option<StageId>,
    /// Handlers that read it or make it: it stays known for these.
    pub(crate) claims: u32,
    /// The conversions between its formats.
    pub(crate) morphing: Morphing,
}

impl Stream {
    pub(crate) fn has_format(&self, id: FormatId) -> bool {
        self.formats.iter().any(|f| f.format.id() == id)
    }

    /// Whether a format of it is known, so that it can be asked for.
    pub(crate) fn is_known(&self) -> bool {
        !self.formats.is_empty()
    }

    /// A format that it has, or that one of its conversions speaks of.
    pub(crate) fn format(&self, id: FormatId) -> Option<&Format> {
        let here = self.formats.iter().map(|known| &known.format).find(|format| format.id() == id);
        here.or_else(|| self.morphing.format(id))
    }

    /// Whether the sample of a format is to be taken anew.
    pub(crate) fn wants_sample(&self, format: u64, now_ns: u64) -> bool {
        self.formats.iter().any(|f| f.format.id().0 == format && f.sample.is_due(now_ns))
    }
}

/// All streams; once announced or declared they stay known as long as the daemon runs. Those that only handlers made stay as long
/// as anybody has to do with them.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    all: Slab<Stream>,
    by_name: HashMap<String, usize>,
}

impl Streams {
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Stream> {
        self.all.iter().map(|(_, stream)| stream)
    }

    /// The same, with their keys.
    pub(crate) fn keyed(&self) -> impl Iterator<Item = (usize, &Stream)> {
        self.all.iter()
    }

    #[inline]
    pub(crate) fn get(&self, key: usize) -> Option<&Stream> {
        self.all.get(key)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: usize) -> Option<&mut Stream> {
        self.all.get_mut(key)
    }

    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// The stream of that name, made if it is new. The caller keeps the bound.
    pub(crate) fn find_or_make(&mut self, name: &str) -> usize {
        *self
            .by_name
            .entry(name.to_owned())
            .or_insert_with(|| self.all.insert(Stream { name: name.to_owned(), ..Stream::default() }))
    }

    /// Lets go of a stream that was only ever waited for or made by handlers, once nobody waits for it or makes it any more.
    pub(crate) fn forget_if_unused(&mut self, key: usize) {
        let is_nobodys = |s: &Stream| s.made_by.is_none() && s.publishers.is_empty() && s.subscriptions.is_empty();
        let unused = |s: &Stream| {
            let is_left = !s.is_kept || s.formats.is_empty();
            is_left && s.claims == 0 && is_nobodys(s) && s.morphing.is_unused()
        };
        if self.all.get(key).is_some_and(unused) {
            let stream = self.all.remove(key);
            self.by_name.remove(&stream.name);
        }
    }
}
