//! Streams: their names, formats, publishers, and the service path that each format takes.

use crate::catalog::thread::CatalogHandle;
use crate::catalog::{Snapshot, StreamEntry};
use crate::graph::ContextIndex;
use crate::info::StreamInfo;
use crate::ledger::Served;
use crate::morph::Morphing;
use crate::net::peers::Publishing;
use crate::present::present;
use crate::subscriptions::Subscription;
use crossdock_format::{Format, FormatId};
use crossdock_mailbox::Batch;
use crossdock_query::{QueryError, Select};
use std::collections::HashMap;
use std::sync::Arc;

mod sample;

pub(crate) use sample::{Peak, Sample};

/// One format of a stream, and how often it is announced now.
#[derive(Debug)]
pub(crate) struct StreamFormat {
    pub(crate) format: Format,
    pub(crate) sample: Sample,
}

/// The known facts of a stream that handlers read.
#[derive(Clone, Debug)]
pub(crate) struct StreamFacts {
    /// Its number, which batches carry.
    pub(crate) number: u32,
    pub(crate) name: String,
    /// Its formats, newest last, each with some of its latest records, if there are any.
    pub(crate) formats: Vec<(Format, Arc<[u8]>)>,
    /// The highest rate of the last minute.
    pub(crate) peak_msgs_per_s: u64,
    pub(crate) records_in: u64,
    pub(crate) bytes_in: u64,
    pub(crate) batches_in: u64,
    /// The handler that makes it, if one does.
    pub(crate) made_by: Option<String>,
    pub(crate) publishers: u32,
    /// The highest rate at each I/O context.
    pub(crate) peaks: Vec<(ContextIndex, u64)>,
}

impl StreamFacts {
    /// The catalog's facts.
    pub(crate) fn new(entry: &StreamEntry) -> StreamFacts {
        StreamFacts {
            number: entry.number(),
            name: entry.name().to_owned(),
            formats: entry.formats().iter().map(|format| (format.clone(), Arc::default())).collect(),
            peak_msgs_per_s: 0,
            records_in: 0,
            bytes_in: 0,
            batches_in: 0,
            made_by: entry.made_by().map(str::to_owned),
            publishers: entry.activity().publishers(),
            peaks: Vec::new(),
        }
    }

    /// Adds what an I/O context has counted, and some of the records.
    pub(crate) fn add(&mut self, counted: Counted) {
        self.take_samples(counted.samples);
        self.peak_msgs_per_s += counted.peak_msgs_per_s;
        self.records_in += counted.records_in;
        self.bytes_in += counted.bytes_in;
        self.batches_in += counted.batches_in;
        self.peaks.push((counted.at, counted.peak_msgs_per_s));
    }

    /// The I/O context where most of it is published; of several the first.
    pub(crate) fn busiest(&self) -> Option<ContextIndex> {
        self.peaks.iter().rev().max_by_key(|(_, peak)| peak).map(|(at, _)| *at)
    }

    /// The longer sample of each format stands for it.
    fn take_samples(&mut self, others: Vec<(FormatId, Arc<[u8]>)>) {
        for (format, sample) in others {
            if let Some((_, known)) = self.formats.iter_mut().find(|(known, _)| known.id() == format)
                && known.len() < sample.len()
            {
                *known = sample;
            }
        }
    }
}

/// An I/O context's counts of a stream: of records that its sessions publish, and at the home context of those that handlers make.
#[derive(Debug)]
pub(crate) struct Counted {
    at: ContextIndex,
    /// Some of the latest records of each format.
    samples: Vec<(FormatId, Arc<[u8]>)>,
    peak_msgs_per_s: u64,
    records_in: u64,
    bytes_in: u64,
    batches_in: u64,
}

/// Whether what sessions of other I/O contexts publish of a stream comes here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// It does not: no session here takes it.
    #[default]
    Absent,
    /// The managers were asked for it.
    Asked,
    There,
}

/// One stream at this context.
#[derive(Debug)]
pub(crate) struct Stream {
    /// As the catalog has it.
    entry: Arc<StreamEntry>,
    name: String,
    /// This context.
    at: ContextIndex,
    /// Those of its formats that the queries here are planned for, newest last: its first ones.
    formats: Vec<StreamFormat>,
    /// Whether queries are being planned for more of its formats.
    is_planned: bool,
    /// Whether the next of its formats is being taken in; after a panic, that this was begun.
    is_taking: bool,
    /// Keys of the peers that publish it; one that announced two formats is here once.
    publishers: Vec<usize>,
    /// Keys of the subscriptions to it: where its batches go.
    subscriptions: Vec<usize>,
    /// Those among them that say which formats they accept.
    accepting: u32,
    records_in: u64,
    bytes_in: u64,
    unclaimed: u64,
    malformed: u64,
    /// Whether a subscriber got invalid records of it by reference: every packet is checked until the publisher of such records is
    /// found.
    is_suspect: bool,
    batches_in: u64,
    /// The counts of subscriptions that have ended.
    served: Served,
    peak: Peak,
    /// Of what other contexts have counted, and sessions here take.
    peak_elsewhere: Peak,
    /// Whether what is published at other I/O contexts comes here.
    delivery: Delivery,
    /// Sessions here that are about to publish it.
    announcing: u32,
    /// Subscriptions and others here because of whom it has to stay; the catalog counts all of them as one use.
    uses: u32,
    /// The handler that makes it, if one does.
    made_by: Option<Box<str>>,
    /// The routes between its formats, which are `morph`'s.
    morphing: Morphing,
}

impl Stream {
    /// A stream that nobody uses here yet.
    fn new(entry: &Arc<StreamEntry>, at: ContextIndex) -> Stream {
        Stream {
            entry: Arc::clone(entry),
            name: entry.name().to_owned(),
            at,
            formats: Vec::new(),
            is_planned: false,
            is_taking: false,
            publishers: Vec::new(),
            subscriptions: Vec::new(),
            accepting: 0,
            records_in: 0,
            bytes_in: 0,
            unclaimed: 0,
            malformed: 0,
            is_suspect: false,
            batches_in: 0,
            served: Served::default(),
            peak: Peak::default(),
            peak_elsewhere: Peak::default(),
            delivery: Delivery::default(),
            announcing: 0,
            uses: 0,
            made_by: entry.made_by().map(Into::into),
            morphing: Morphing::default(),
        }
    }

    /// Whether records of a format may come.
    pub(crate) fn has_format(&self, id: FormatId) -> bool {
        self.formats.iter().any(|f| f.format.id() == id)
    }

    /// Whether its routes are planned for the formats and conversions that it has now.
    pub(crate) fn is_routed(&self) -> bool {
        self.morphing.is_routed(&self.entry)
    }

    /// Whether its routes are to be planned: for these, or for other subscriptions.
    pub(crate) fn needs_routes(&self) -> bool {
        self.morphing.needs_routes(&self.entry)
    }

    /// Forgets the formats that the catalog has no longer, and returns them. The samples of the others stay.
    fn forget_formats(&mut self) -> Vec<FormatId> {
        let entry = &self.entry;
        let gone = self.formats.extract_if(.., |known| !entry.has_format(known.format.id()));
        let mut gone: Vec<FormatId> = gone.map(|known| known.format.id()).collect();
        // One that went and came again between two snapshots is the newest now, and the first ones are to be the catalog's.
        let both = self.formats.iter().zip(entry.formats());
        let same = both.take_while(|(known, format)| known.format == **format).count();
        gone.extend(self.formats.drain(same..).map(|known| known.format.id()));
        self.morphing.forget_formats(same);
        gone
    }

    /// As the catalog has it.
    #[inline]
    pub(crate) fn entry(&self) -> &Arc<StreamEntry> {
        &self.entry
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Those of its formats that the queries here are planned for, newest last.
    #[inline]
    pub(crate) fn formats(&self) -> &[StreamFormat] {
        &self.formats
    }

    /// Keys of the peers that publish it.
    #[inline]
    pub(crate) fn publishers(&self) -> &[usize] {
        &self.publishers
    }

    /// Keys of the subscriptions to it.
    #[inline]
    pub(crate) fn subscriptions(&self) -> &[usize] {
        &self.subscriptions
    }

    /// Whether every subscription takes it in any format.
    pub(crate) fn needs_no_routes(&self) -> bool {
        self.accepting == 0
    }

    /// A subscription begins, which says what formats it `accepts`, or does not.
    pub(crate) fn begin_subscription(&mut self, key: usize, accepts: bool) {
        self.entry.activity().begin_subscription(accepts);
        self.subscriptions.push(key);
        self.accepting += u32::from(accepts);
    }

    /// A subscription ends; what it did counts on.
    pub(crate) fn end_subscription(&mut self, key: usize, subscription: &Subscription) {
        let accepts = subscription.accept().is_some();
        self.entry.activity().end_subscription(accepts);
        self.subscriptions.retain(|&other| other != key);
        self.accepting -= u32::from(accepts);
        self.served.add_ended(subscription);
    }

    /// A peer publishes it; the number of publishers, if it has not before.
    pub(crate) fn begin_publisher(&mut self, peer: usize) -> Option<u32> {
        if self.publishers.contains(&peer) {
            return None;
        }
        self.publishers.push(peer);
        Some(self.publishers.len() as u32)
    }

    /// A peer publishes it no longer; the number of publishers that are left, if it has before.
    pub(crate) fn end_publisher(&mut self, peer: usize) -> Option<u32> {
        let at = self.publishers.iter().position(|&other| other == peer)?;
        self.publishers.remove(at);
        Some(self.publishers.len() as u32)
    }

    /// Whether queries are being planned for more of its formats.
    pub(crate) fn is_planned(&self) -> bool {
        self.is_planned
    }

    /// Queries are planned for more of its formats, or no longer.
    pub(crate) fn note_planned(&mut self, is_planned: bool) {
        self.is_planned = is_planned;
    }

    /// Whether taking in its next format was begun, and not ended for a panic.
    pub(crate) fn is_taking(&self) -> bool {
        self.is_taking
    }

    /// Begins to take in its next format. Returns whether that was begun before, and not ended for a panic.
    pub(crate) fn begin_taking(&mut self) -> bool {
        std::mem::replace(&mut self.is_taking, true)
    }

    /// Records of a format may come from now on.
    pub(crate) fn take_format(&mut self, format: Format) {
        self.is_taking = false;
        self.formats.push(StreamFormat { format, sample: Sample::default() });
    }

    /// Counts records that nobody takes.
    #[inline]
    pub(crate) fn note_unclaimed(&mut self, records: u64) {
        self.unclaimed += records;
    }

    /// A subscriber got invalid records of it by reference: every packet is checked until their publisher is found.
    pub(crate) fn suspect(&mut self) {
        self.is_suspect = true;
    }

    /// Whether every packet is to be checked.
    #[inline]
    pub(crate) fn is_suspect(&self) -> bool {
        self.is_suspect
    }

    /// Counts invalid records, whose publisher is found with them.
    pub(crate) fn note_malformed(&mut self, records: u64) {
        self.malformed += records;
        self.is_suspect = false;
    }

    /// Whether a handler makes it.
    #[inline]
    pub(crate) fn is_made(&self) -> bool {
        self.made_by.is_some()
    }

    /// No handler makes it any more.
    pub(crate) fn end_made(&mut self) {
        self.made_by = None;
    }

    /// Whether what is published at other I/O contexts comes here.
    pub(crate) fn is_delivered(&self) -> bool {
        self.delivery == Delivery::There
    }

    /// The batches published elsewhere are to come here; whether that is asked for already.
    pub(crate) fn await_delivery(&mut self) -> bool {
        std::mem::replace(&mut self.delivery, Delivery::Asked) == Delivery::Asked
    }

    /// The batches published elsewhere come here from now on, unless that was refused.
    pub(crate) fn note_delivery(&mut self, is_there: bool) {
        self.delivery = if is_there { Delivery::There } else { Delivery::Absent };
    }

    /// Ends its delivery, if nobody here takes it; whether there was any to end.
    pub(crate) fn end_delivery(&mut self) -> bool {
        let ends = self.subscriptions.is_empty() && self.is_delivered();
        if ends {
            self.delivery = Delivery::Absent;
        }
        ends
    }

    /// A session here is about to publish it.
    pub(crate) fn begin_announcing(&mut self) {
        self.announcing += 1;
    }

    /// A session here publishes it, or is not going to.
    pub(crate) fn end_announcing(&mut self) {
        debug_assert!(self.announcing > 0, "what ends has begun");
        self.announcing = self.announcing.saturating_sub(1);
    }

    /// Whether no session here publishes it, or is about to.
    pub(crate) fn is_unpublished(&self) -> bool {
        self.publishers.is_empty() && self.announcing == 0
    }

    /// The highest rate of the last minute at which it is published here.
    pub(crate) fn peak_msgs_per_s(&self, now_ns: u64) -> u64 {
        self.peak.msgs_per_s(now_ns)
    }

    /// The counts of subscriptions that have ended.
    pub(crate) fn served(&self) -> Served {
        self.served
    }

    /// The facts of it without its subscriptions.
    pub(crate) fn info(&self, now_ns: u64) -> StreamInfo {
        StreamInfo {
            name: self.name.clone(),
            formats: self.formats.iter().map(|f| f.format.id().to_string()).collect(),
            publishers: self.publishers.len() as u32,
            subscriptions: self.subscriptions.len() as u32,
            records_in: self.records_in,
            bytes_in: self.bytes_in,
            records_unclaimed: self.unclaimed,
            records_malformed: self.malformed,
            policy: self.entry.policy().to_string(),
            made_by: self.made_by.as_deref().map(str::to_owned),
            peak_msgs_per_s: self.peak_msgs_per_s(now_ns),
            ..StreamInfo::default()
        }
    }

    /// Its routes stay unchanged, whatever has changed: they could not be planned.
    pub(crate) fn adopt_routes(&mut self) {
        self.morphing.adopt_routes(&self.entry);
    }

    /// None of its subscriptions needs routes.
    pub(crate) fn end_routes(&mut self) {
        self.morphing.end_routes(&self.entry);
    }

    /// The routes between its formats, for `morph`.
    pub(crate) fn morphing(&self) -> &Morphing {
        &self.morphing
    }

    /// The same, to change.
    pub(crate) fn morphing_mut(&mut self) -> &mut Morphing {
        &mut self.morphing
    }

    /// The first format that the queries here are not planned for yet, if its routes are.
    pub(crate) fn next_format(&self) -> Option<&Format> {
        let next = self.formats.len();
        self.entry.formats().get(next).filter(|_| self.morphing.covers(next))
    }

    /// Whether a format of it is known, so that it can be asked for.
    pub(crate) fn is_known(&self) -> bool {
        !self.formats.is_empty()
    }

    /// Takes over what other contexts know of it, as far as nothing of it has come here yet.
    pub(crate) fn learn(&mut self, facts: StreamFacts, now_ns: u64) {
        let elsewhere = facts.peak_msgs_per_s.saturating_sub(self.peak.msgs_per_s(now_ns));
        self.peak_elsewhere.at_least(elsewhere, now_ns);
        for (format, records) in facts.formats {
            if let Some(known) = self.formats.iter_mut().find(|known| known.format == format) {
                known.sample.learn(&records);
            }
        }
    }

    /// Counts a batch of its records, and keeps a sample of them. Each record counts at one context, where `is_first`; at
    /// others it belongs to the rate of what the queries there see.
    #[inline]
    pub(crate) fn note_batch(&mut self, batch: &Batch, is_first: bool, now_ns: u64) {
        let records = batch.len() as u64;
        if is_first {
            self.count(records, batch.payload_bytes() as u64, now_ns);
        } else {
            self.peak_elsewhere.note(records, now_ns);
        }
        if let Some(known) = self.formats.iter_mut().find(|f| f.format.id().0 == batch.format) {
            known.sample.offer(now_ns, batch);
        }
    }

    /// Counts a batch that was published here. The activity in all contexts counts it before.
    #[inline]
    pub(crate) fn count(&mut self, records: u64, bytes: u64, now_ns: u64) {
        if self.batches_in == 0 {
            self.entry.activity().begin_counting(self.at);
        }
        self.peak.note(records, now_ns);
        self.batches_in += 1;
        self.records_in += records;
        self.bytes_in += bytes;
    }

    /// The highest rate of the last minute at which its records come to the queries here.
    pub(crate) fn rate_here_msgs_per_s(&self, now_ns: u64) -> u64 {
        self.peak.msgs_per_s(now_ns) + self.peak_elsewhere.msgs_per_s(now_ns)
    }

    /// Records of a batch, on average.
    pub(crate) fn records_per_batch(&self) -> f64 {
        (self.records_in as f64 / self.batches_in.max(1) as f64).max(1.0)
    }

    /// The counts of it here.
    pub(crate) fn counted(&self, now_ns: u64) -> Counted {
        Counted {
            at: self.at,
            samples: self.formats.iter().map(|known| (known.format.id(), known.sample.records())).collect(),
            peak_msgs_per_s: self.peak.msgs_per_s(now_ns),
            records_in: self.records_in,
            bytes_in: self.bytes_in,
            batches_in: self.batches_in,
        }
    }

    /// Whether something is to be taken for the sample of a format.
    pub(crate) fn wants_sample(&self, format: u64, now_ns: u64) -> bool {
        self.formats.iter().any(|f| f.format.id().0 == format && f.sample.is_due(now_ns))
    }
}

/// The catalog at a context: its snapshot as far as it is taken in, and the streams, which come and go with the catalog's.
#[derive(Debug)]
pub(crate) struct Streams {
    catalog: CatalogHandle,
    /// This context.
    at: ContextIndex,
    snapshot: Arc<Snapshot>,
    /// By number.
    all: Vec<Option<Stream>>,
    by_name: HashMap<String, usize>,
    is_numbered: bool,
}

impl Streams {
    /// No streams, before anything of the catalog is taken in. Their records are numbered for subscribers if `is_numbered`.
    pub(crate) fn new(catalog: CatalogHandle, at: ContextIndex, is_numbered: bool) -> Streams {
        Streams { catalog, at, snapshot: Arc::default(), all: Vec::new(), by_name: HashMap::new(), is_numbered }
    }

    /// The context that it is at.
    pub(crate) fn at(&self) -> ContextIndex {
        self.at
    }

    /// Whether the records of streams are numbered for subscribers.
    pub(crate) fn is_numbered(&self) -> bool {
        self.is_numbered
    }

    /// The way to the control thread.
    pub(crate) fn catalog(&self) -> &CatalogHandle {
        &self.catalog
    }

    /// The catalog, as far as its changes are taken in here.
    pub(crate) fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// The catalog has changed; the caller takes in what has with [`Streams::take_entry`].
    pub(crate) fn take_snapshot(&mut self, snapshot: Arc<Snapshot>) {
        self.snapshot = snapshot;
    }

    /// A stream that is used here is used once more, and stays for that; its key. Any other is for the catalog to find.
    pub(crate) fn use_again(&mut self, name: &str, waits: bool) -> Option<usize> {
        let key = self.find(name)?;
        let stream = self.get_mut(key).filter(|stream| stream.uses > 0)?;
        if !waits && stream.entry.formats().is_empty() {
            return None;
        }
        stream.uses += 1;
        Some(key)
    }

    /// The catalog counts a use of a stream for this context; it needs one only.
    pub(crate) fn note_use(&mut self, key: usize) {
        let Some(stream) = self.present_mut(key) else { return };
        stream.uses += 1;
        if stream.uses > 1 {
            self.catalog.post(move |catalog| catalog.leave(key as u32));
        }
    }

    /// A use of a stream, as a subscription is one, has ended here.
    pub(crate) fn leave(&mut self, key: usize) {
        let Some(stream) = self.present_mut(key) else { return };
        debug_assert!(stream.uses > 0, "what ends has begun");
        stream.uses = stream.uses.saturating_sub(1);
        if stream.uses == 0 {
            self.catalog.post(move |catalog| catalog.leave(key as u32));
        }
    }

    /// The first record of a session's has come in this format: the stream keeps it.
    #[cold]
    pub(crate) fn keep_format(&self, key: usize, format: FormatId) {
        self.catalog.post(move |catalog| catalog.note_record(key as u32, format));
    }

    /// A session here publishes a stream in this format no longer.
    pub(crate) fn end_format(&self, key: usize, format: FormatId) {
        self.catalog.post(move |catalog| catalog.end_format(key as u32, format));
    }

    /// A session here publishes a stream no longer.
    pub(crate) fn end_publishing(&self, key: usize) {
        self.get(key).into_iter().for_each(|stream| stream.entry.activity().end_publishing());
        self.catalog.post(move |catalog| catalog.end_publishing(key as u32));
    }

    /// A session here brings the records of a publisher no longer.
    pub(crate) fn end_publication(&self, publishing: &Publishing) {
        if let (Some(stream), Some(taken)) = (self.get(publishing.stream), &publishing.taken) {
            stream.entry.activity().end_publication(taken);
        }
    }

    /// Records of a stream that sessions here published, or that are counted here.
    pub(crate) fn records_seen(&self, name: &str) -> u64 {
        self.find(name).and_then(|key| self.get(key)).map_or(0, |stream| stream.records_in)
    }

    /// The error for a query on a stream that is not there: what is, and what may have been meant.
    pub(crate) fn unknown_stream(&self, select: &Select) -> QueryError {
        let known: Vec<&str> = self.iter().filter(|s| !s.formats.is_empty()).map(|s| s.name.as_str()).collect();
        select.unknown_stream(&known)
    }

    /// All streams.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Stream> {
        self.all.iter().flatten()
    }

    /// The same, with their keys.
    pub(crate) fn keyed(&self) -> impl Iterator<Item = (usize, &Stream)> {
        self.all.iter().enumerate().filter_map(|(key, stream)| Some((key, stream.as_ref()?)))
    }

    /// A stream by its key, which is its number.
    #[inline]
    pub(crate) fn get(&self, key: usize) -> Option<&Stream> {
        self.all.get(key)?.as_ref()
    }

    /// The same, to change.
    #[inline]
    pub(crate) fn get_mut(&mut self, key: usize) -> Option<&mut Stream> {
        self.all.get_mut(key)?.as_mut()
    }

    /// A stream that is there: sessions here subscribe to it or publish it, or the graph has records of it.
    #[inline]
    #[track_caller]
    pub(crate) fn present(&self, key: usize) -> Option<&Stream> {
        present(self.get(key), "stream", key)
    }

    /// See [`Streams::present`].
    #[inline]
    #[track_caller]
    pub(crate) fn present_mut(&mut self, key: usize) -> Option<&mut Stream> {
        present(self.get_mut(key), "stream", key)
    }

    /// The key of a stream.
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// Takes in what the snapshot has under a number. The formats that the stream there has no longer; `None` if there is none.
    pub(crate) fn take_entry(&mut self, number: u32) -> Option<Vec<FormatId>> {
        let entry = self.snapshot.get(number);
        let key = number as usize;
        if self.all.len() <= key {
            self.all.resize_with(key + 1, || None);
        }
        let slot = self.all.get_mut(key)?;
        // A number is given again when its stream has gone.
        let is_other = |stream: &mut Stream| entry.is_none_or(|entry| entry.name() != stream.name);
        if let Some(gone) = slot.take_if(is_other)
            // It may be there again already, under another number.
            && self.by_name.get(&gone.name) == Some(&key)
        {
            self.by_name.remove(&gone.name);
        }
        let entry = entry?;
        let stream = slot.get_or_insert_with(|| Stream::new(entry, self.at));
        stream.entry = Arc::clone(entry);
        if stream.batches_in > 0 {
            entry.activity().begin_counting(self.at);
        }
        let gone = stream.forget_formats();
        stream.made_by = entry.made_by().map(Into::into);
        self.by_name.insert(entry.name().to_owned(), key);
        Some(gone)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use super::*;
    use crossdock_format::registry::Policy;

    #[test]
    fn a_stream_that_went_and_came_again_between_two_snapshots_is_found() {
        let mut snapshot = Snapshot::default();
        // Numbers that were used rest before they are given again: so the later one can be the lower one.
        let numbers: Vec<u32> = (0..300).map(|at| snapshot.insert(&format!("S{at}"), Policy::None)).collect();
        numbers[..299].iter().for_each(|number| snapshot.remove(*number));
        let mut streams = Streams::new(CatalogHandle::new().0, ContextIndex(0), false);
        streams.take_snapshot(Arc::new(snapshot.clone()));
        streams.take_entry(299);
        snapshot.remove(299);
        assert_eq!(snapshot.insert("S299", Policy::None), 0);
        streams.take_snapshot(Arc::new(snapshot));
        // Of two snapshots in a row the changes come in the order of the numbers.
        [0, 299].into_iter().for_each(|number| drop(streams.take_entry(number)));
        assert_eq!(streams.find("S299"), Some(0));
    }
}
