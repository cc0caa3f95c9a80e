//! A daemon, its clients, and what this test knows of what they have sent and received.

use super::checks::{Reports, Seen, compare};
use super::model::{QUERIES, Query, Range, Row, format, row};
use crossdock_format::{Format, RecordBuilder, Value};
use crossdock_nectarine::{
    DropCause, Event, Implementation, MailboxOptions, Node, Overflow, Publisher, Reader, Subscriber, Transport, Writer,
};
use crossdock_runtime::info::SubscriptionInfo;
use crossdock_runtime::{ChangeRequest, ContextConfig, ContextHandle, ContextKind, ContextSpec, HandlerSpec};
use fastrand::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

/// Counters that do not agree by then never will.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often a publisher may find no room before subscribers that do not read are made to.
const TRIES: u32 = 200;
const PLACES: [&str; 3] = ["c-core-0", "c-core-1", "g-core-0"];
pub(crate) const MAILBOX_BOUND: u32 = 8;

/// A stream, and what its subscriptions did that have ended.
#[derive(Default)]
pub(crate) struct Stream {
    pub(crate) rows: Vec<Row>,
    pub(crate) bytes: u64,
    /// Rows that came while nothing read the stream.
    unclaimed: u64,
    /// Those of them that came before anything had read it.
    never_claimed: u64,
    was_read: bool,
    /// How many rows there were, and how many of them were unclaimed, when all counters were compared last.
    settled: (usize, u64),
    pub(crate) ended: Totals,
    /// Whether its rows have the fields of what is published.
    has_fields: bool,
}

/// The counts of subscriptions.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) queried: Range,
    /// Records that were sent.
    pub(crate) out: Range,
    /// Records that were dropped from a queue.
    pub(crate) unsent: Range,
    pub(crate) row_errors: Range,
    /// Records that came for them.
    pub(crate) published: Range,
    pub(crate) filtered: Range,
    pub(crate) dropped: Range,
}

pub(crate) struct Publishing {
    publisher: Publisher,
    pub(crate) stream: String,
    pub(crate) way: Transport,
}

pub(crate) struct Subscribing {
    subscriber: Subscriber,
    pub(crate) id: u64,
    pub(crate) stream: String,
    pub(crate) query: &'static Query,
    pub(crate) overflow: Overflow,
    pub(crate) way: Transport,
    /// Whether it reads nothing while records come.
    sleeps: bool,
    /// Whether the daemon has disconnected it, as its policy says.
    is_disconnected: bool,
    /// The row of the stream that is its first.
    pub(crate) since: usize,
    pub(crate) received: u64,
    /// As the daemon has reported it to the subscriber.
    pub(crate) dropped: BTreeMap<DropCause, u64>,
    /// The daemon's last report.
    pub(crate) info: SubscriptionInfo,
}

/// A subscription that has ended.
struct Ended {
    stream: String,
    /// The row that was its first, if records came meanwhile.
    since: Option<usize>,
    /// The daemon's last report.
    info: SubscriptionInfo,
    query: &'static Query,
}

pub(crate) struct Deployed {
    pub(crate) name: String,
    pub(crate) source: String,
    pub(crate) query: &'static Query,
    pub(crate) place: &'static str,
    pub(crate) since: usize,
    /// The size of what it makes of a row, unless the row goes on as it came.
    pub(crate) made_bytes: Option<u64>,
}

/// The handlers that were at a context and have gone.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gone {
    pub(crate) records_in: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) batches_in: Range,
}

/// A mailbox with a writer and a reader.
pub(crate) struct Post {
    _node: Node,
    pub(crate) way: Transport,
    writer: Writer,
    reader: Reader,
    pub(crate) puts: u64,
    pub(crate) gets: u64,
    pub(crate) lengths: Vec<u64>,
}

pub(crate) struct World {
    seed: u64,
    rng: Rng,
    pub(crate) context: ContextHandle,
    /// The configured bound of a subscription's queue.
    pub(crate) queue_bytes: u64,
    addr: String,
    builder: RecordBuilder,
    pub(crate) streams: BTreeMap<String, Stream>,
    pub(crate) publishers: Vec<Publishing>,
    pub(crate) subscribers: Vec<Subscribing>,
    ended: Vec<Ended>,
    pub(crate) handlers: Vec<Deployed>,
    /// The counts of the handlers that have gone, by their contexts.
    gone: BTreeMap<&'static str, Gone>,
    /// Records of the streams that have gone, and what the subscriptions to them did.
    pub(crate) gone_records: u64,
    pub(crate) gone_unclaimed: Range,
    pub(crate) gone_totals: Totals,
    pub(crate) post: Post,
    pub(crate) subscriptions_made: u64,
    pub(crate) changes_made: u64,
    /// Attached clients that have left.
    pub(crate) left: u64,
    /// Bytes of the records published by packets, and by shared memory.
    published: [u64; 2],
    names: u32,
    seen: Seen,
}

impl World {
    pub(crate) fn new(seed: u64, mut rng: Rng) -> World {
        let mut config =
            ContextConfig { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), ..ContextConfig::default() };
        config.queue_bytes = [65_536, 65_536, 300_000, 8 << 20][rng.usize(0..4)];
        let io = ContextSpec { io: true, ..ContextSpec::new(ContextKind::CCore) };
        config.platform.contexts = vec![ContextSpec::new(ContextKind::CCore), ContextSpec::new(ContextKind::GCore)];
        if seed % 2 == 1 {
            config.platform.contexts.extend([io.clone(), io]);
        }
        let queue_bytes = config.queue_bytes;
        let context = ContextHandle::start(config).unwrap();
        let addr = context.local_addr().to_string();
        let mut streams = BTreeMap::new();
        for name in ["S0", "S1"] {
            context.declare_stream(name, &format()).unwrap().unwrap();
            streams.insert(name.to_owned(), Stream { has_fields: true, ..Stream::default() });
        }
        let post = Post::new(&addr, way(&mut rng));
        World {
            seed,
            rng,
            context,
            queue_bytes,
            addr,
            builder: RecordBuilder::new(&format()),
            streams,
            publishers: Vec::new(),
            subscribers: Vec::new(),
            ended: Vec::new(),
            handlers: Vec::new(),
            gone: BTreeMap::new(),
            gone_records: 0,
            gone_unclaimed: Range::default(),
            gone_totals: Totals::default(),
            post,
            subscriptions_made: 0,
            changes_made: 0,
            left: 0,
            published: [0; 2],
            names: 0,
            seen: Seen::default(),
        }
    }

    /// The counts at a context of handlers that have gone.
    pub(crate) fn gone(&self, context: &str) -> Gone {
        self.gone.get(context).copied().unwrap_or_default()
    }

    /// Bytes of the records that were published this way.
    pub(crate) fn published(&self, way: Transport) -> u64 {
        self.published[usize::from(way == Transport::Shm)]
    }

    /// Something comes or goes, while nothing is on its way.
    pub(crate) fn change(&mut self) {
        match self.rng.u8(0..12) {
            0..3 if self.publishers.len() < 4 => self.announce(),
            3..6 if self.subscribers.len() < 6 => self.subscribe(),
            6..8 if self.handlers.len() < 3 => self.deploy(),
            8 => self.remove_handler(),
            9 if !self.subscribers.is_empty() => {
                let at = self.rng.usize(0..self.subscribers.len());
                self.unsubscribe(at, true);
            }
            10 if !self.publishers.is_empty() => {
                let at = self.rng.usize(0..self.publishers.len());
                let (publishing, finishes) = (self.publishers.swap_remove(at), self.rng.bool());
                self.end(publishing, finishes);
            }
            _ => self.post.work(&mut self.rng),
        }
    }

    fn announce(&mut self) {
        let (stream, way) = (format!("S{}", self.rng.u8(0..2)), way(&mut self.rng));
        let publisher =
            Publisher::builder(&self.addr).transport(way).stream(&stream).format(&format()).connect().unwrap();
        self.publishers.push(Publishing { publisher, stream, way });
    }

    fn subscribe(&mut self) {
        let Some((stream, has_fields, since)) = self.pick_stream() else { return };
        let query = &QUERIES[if has_fields { self.rng.usize(0..QUERIES.len()) } else { 0 }];
        let overflow =
            [Overflow::Block, Overflow::Block, Overflow::DropOldest, Overflow::DropOldest, Overflow::Disconnect]
                [self.rng.usize(0..5)];
        let (way, sleeps) = (way(&mut self.rng), self.rng.bool());
        let known: Vec<u64> = self.context.subscriptions().unwrap().iter().map(|known| known.id).collect();
        let builder = Subscriber::builder(&self.addr).transport(way).overflow(overflow);
        let subscriber = builder.sql(query.sql(&stream)).connect().unwrap();
        let infos = self.context.subscriptions().unwrap();
        let info = infos.into_iter().find(|info| !known.contains(&info.id)).unwrap();
        self.streams.get_mut(&stream).unwrap().was_read = true;
        self.subscriptions_made += 1;
        self.subscribers.push(Subscribing {
            subscriber,
            id: info.id,
            stream,
            query,
            overflow,
            way,
            sleeps,
            is_disconnected: false,
            since,
            received: 0,
            dropped: BTreeMap::new(),
            info,
        });
    }

    /// A stream that is there, whether its rows have the fields of what is published, and how many it has had.
    fn pick_stream(&mut self) -> Option<(String, bool, usize)> {
        let at = self.rng.usize(0..self.streams.len().max(1));
        let (name, stream) = self.streams.iter().nth(at)?;
        Some((name.clone(), stream.has_fields, stream.rows.len()))
    }

    /// A subscription ends, quietly or while records come; it may still see some of them.
    fn unsubscribe(&mut self, at: usize, is_quiet: bool) {
        let gone = self.subscribers.swap_remove(at);
        self.left += u64::from(gone.way == Transport::Shm);
        let Subscribing { subscriber, id, stream, since, info, query, .. } = gone;
        drop(subscriber);
        if is_quiet {
            // Until the daemon knows, it would have what is published next.
            let subscriptions = || self.context.subscriptions();
            self.wait("subscription", || subscriptions().unwrap().iter().all(|info| info.id != id));
        }
        self.ended.push(Ended { stream, since: (!is_quiet).then_some(since), info, query });
    }

    /// Adds up what the subscriptions did that have ended, now that all records have been published.
    fn add_ended(&mut self) {
        for Ended { stream, since, info, query } in self.ended.drain(..) {
            let stream = self.streams.get_mut(&stream).unwrap();
            let most = |exact: u64| since.map_or(exact, |since| (stream.rows.len() - since) as u64);
            let range = |exact: u64| Range::new(exact, most(exact));
            stream.ended.add(Totals {
                queried: range(info.records_in),
                // A record that had joined the queue may have been dropped since.
                out: since.map_or(info.records_out.into(), |_| Range::new(0, most(0))),
                unsent: since.map_or(query.unsent(&info), |_| Range::new(0, most(0))),
                row_errors: range(info.row_errors),
                published: range(info.published),
                filtered: range(info.filtered),
                dropped: range(info.dropped),
            });
            if since.is_some() {
                // A record that was still on its way finds nothing that reads it, perhaps.
                stream.unclaimed = stream.settled.1 + (stream.rows.len() - stream.settled.0) as u64;
            }
        }
    }

    fn deploy(&mut self) {
        let Some((source, true, since)) = self.pick_stream() else { return };
        let (place, at) = (PLACES[self.rng.usize(0..PLACES.len())], self.rng.usize(0..3));
        let query = &QUERIES[at];
        let name = format!("h{}", self.names);
        self.names += 1;
        let sql = query.sql(&source);
        let made_bytes = (at == 2).then(|| self.made_bytes(&sql));
        let spec = HandlerSpec {
            name: name.clone(),
            sql: Some(sql),
            place: Some(place.to_owned()),
            peak_msgs_per_s: Some(1000),
            budget_ns: Some(1_000_000_000),
            ..HandlerSpec::default()
        };
        // One that was measured on long records may take too long at a time for a c-core.
        if !self.apply(ChangeRequest::Deploy(spec)) {
            return;
        }
        self.streams.get_mut(&source).unwrap().was_read = true;
        let has_fields = made_bytes.is_none();
        let stream = Stream { has_fields, ..Stream::default() };
        self.streams.insert(name.clone(), stream);
        self.handlers.push(Deployed { name, source, query, place, since, made_bytes });
    }

    /// Makes a change, unless it is refused.
    fn apply(&mut self, change: ChangeRequest) -> bool {
        let applied = self.context.manager().change(change, false).unwrap();
        self.changes_made += u64::from(applied.is_ok());
        applied.is_ok()
    }

    /// The size of what a query for two numbers makes of a row.
    fn made_bytes(&self, sql: &str) -> u64 {
        let output = self.context.explain(sql, &[]).unwrap().unwrap().output;
        let format = Format::parse(&output).unwrap();
        let mut builder = RecordBuilder::new(&format);
        builder.set(0, Value::Uint(1)).unwrap();
        builder.set(1, Value::Int(1)).unwrap();
        builder.finish().unwrap().len() as u64
    }

    fn remove_handler(&mut self) {
        let is_read = |name: &str| {
            self.subscribers.iter().any(|of| of.stream == name) || self.handlers.iter().any(|of| of.source == name)
        };
        let Some(at) = self.handlers.iter().position(|handler| !is_read(&handler.name)) else { return };
        self.add_ended();
        let handler = self.handlers.swap_remove(at);
        let infos = self.context.manager().handlers().unwrap();
        let info = infos.iter().find(|info| info.name == handler.name).unwrap();
        let gone = self.gone.entry(handler.place).or_default();
        gone.records_in += info.records_in;
        gone.bytes_in += info.bytes_in;
        gone.bytes_out += info.bytes_out;
        gone.batches_in += info.batches_in.into();
        let stream = self.streams.remove(&handler.name).unwrap();
        self.gone_records += stream.rows.len() as u64;
        self.gone_unclaimed += stream.unclaimed();
        self.gone_totals.add(stream.ended);
        assert!(self.apply(ChangeRequest::Remove { handler: handler.name }));
        // The gauges of queues are updated some time later.
        let manager = self.context.manager();
        self.wait("handler", || manager.contexts().unwrap().iter().all(|of| of.queued <= of.queue_bound));
    }

    /// Waits until something that ends has ended.
    fn wait(&self, what: &str, has_ended: impl Fn() -> bool) {
        let began = Instant::now();
        while !has_ended() {
            assert!(began.elapsed() < PATIENCE, "seed {:#x}: a {what} does not end", self.seed);
            thread::yield_now();
        }
    }

    /// A publisher ends. One that does not finish takes with it what has not been sent.
    fn end(&mut self, publishing: Publishing, finishes: bool) {
        self.left += u64::from(publishing.way == Transport::Shm);
        let publisher = publishing.publisher;
        if !finishes {
            return drop(publisher);
        }
        thread::scope(|scope| {
            let finishing = scope.spawn(move || publisher.finish().unwrap());
            while !finishing.is_finished() {
                self.drain(true);
                thread::yield_now();
            }
        });
    }

    /// Publishers publish, all at a time, while some subscribers read, and some of either end.
    pub(crate) fn traffic(&mut self) {
        let mut publishers = std::mem::take(&mut self.publishers);
        for _ in 0..self.rng.u32(1..6) {
            for publishing in &mut publishers {
                for _ in 0..self.rng.u32(0..800) {
                    self.publish(publishing);
                }
                publishing.publisher.flush().unwrap();
            }
            self.look();
            if self.rng.u8(0..4) == 0 && !self.subscribers.is_empty() {
                let at = self.rng.usize(0..self.subscribers.len());
                self.unsubscribe(at, false);
            }
            if self.rng.u8(0..4) == 0 && !publishers.is_empty() {
                let publishing = publishers.swap_remove(self.rng.usize(0..publishers.len()));
                self.end(publishing, true);
            }
        }
        self.publishers = publishers;
    }

    fn publish(&mut self, publishing: &mut Publishing) {
        let n = self.streams[&publishing.stream].rows.len() as u64;
        let row = row(&mut self.builder, n, &mut self.rng);
        self.count(&publishing.stream.clone(), row);
        self.published[usize::from(publishing.way == Transport::Shm)] += row.bytes;
        let mut tries = 0;
        while !publishing.publisher.try_publish(self.builder.finish().unwrap()).unwrap() {
            tries += 1;
            self.drain(tries % TRIES == 0);
            thread::yield_now();
        }
    }

    /// A row joins a stream, and what handlers make of it their streams.
    fn count(&mut self, name: &str, row: Row) {
        let reads = self.subscribers.iter().any(|of| of.stream == name);
        let readers = self.handlers.iter().filter(|of| of.source == name);
        let makes: Vec<(String, Row)> = readers
            .clone()
            .filter(|of| (of.query.of)(&row) == Ok(true))
            .map(|of| (of.name.clone(), Row { bytes: of.made_bytes.unwrap_or(row.bytes), ..row }))
            .collect();
        let is_unclaimed = !reads && readers.count() == 0;
        let stream = self.streams.get_mut(name).unwrap();
        stream.rows.push(row);
        stream.bytes += row.bytes;
        stream.unclaimed += u64::from(is_unclaimed);
        stream.never_claimed += u64::from(is_unclaimed && !stream.was_read);
        makes.into_iter().for_each(|(name, row)| self.count(&name, row));
    }

    /// Subscribers take what is there, those that sleep only if they are woken.
    fn drain(&mut self, wakes: bool) {
        for of in self.subscribers.iter_mut().filter(|of| wakes || !of.sleeps) {
            loop {
                let event = match of.subscriber.try_next_event() {
                    Ok(Some(event)) => event,
                    Ok(None) => break,
                    Err(error) => {
                        assert!(of.overflow == Overflow::Disconnect, "{error}");
                        of.is_disconnected = true;
                        break;
                    }
                };
                match event {
                    Event::Records(records) => of.received += records.len() as u64,
                    Event::Dropped { records, cause, .. } => *of.dropped.entry(cause).or_default() += records,
                    Event::StreamEnded { .. } | Event::Format(_) => {}
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    /// The invariants.
    fn look(&mut self) {
        let reports = Reports::of(&self.context);
        for of in &mut self.subscribers {
            match reports.subscriptions.iter().find(|info| info.id == of.id) {
                Some(info) => of.info = info.clone(),
                None => {
                    assert!(of.overflow == Overflow::Disconnect, "subscription {} is gone", of.id);
                    of.is_disconnected = true;
                }
            }
        }
        while let Some(at) = self.subscribers.iter().position(|of| of.is_disconnected) {
            self.unsubscribe(at, false);
        }
        let mut wrong = self.seen.take(&reports);
        wrong.extend(reports.subscriptions.iter().filter_map(unbalanced));
        assert_eq!(wrong, [""; 0], "seed {:#x}", self.seed);
    }

    /// Waits until all counters say what they should.
    pub(crate) fn settle(&mut self) {
        let began = Instant::now();
        loop {
            self.drain(true);
            self.publishers.iter_mut().for_each(|of| of.publisher.flush().unwrap());
            self.look();
            self.add_ended();
            let wrong = compare(self, &Reports::of(&self.context));
            if wrong.is_empty() {
                // All have come to what was compared.
                self.look();
                let streams = self.streams.values_mut();
                return streams.for_each(|stream| stream.settled = (stream.rows.len(), stream.unclaimed));
            }
            assert!(began.elapsed() < PATIENCE, "seed {:#x}: {wrong:#?}", self.seed);
            thread::yield_now();
        }
    }

    /// Why the daemon has dropped something.
    pub(crate) fn causes(&self) -> BTreeSet<String> {
        let info = self.context.context().unwrap();
        info.dropped.into_iter().map(|(cause, _)| cause).collect()
    }

    /// All go.
    pub(crate) fn leave(&mut self) {
        while !self.subscribers.is_empty() {
            self.unsubscribe(0, true);
        }
        for publishing in std::mem::take(&mut self.publishers) {
            self.end(publishing, false);
        }
        while !self.handlers.is_empty() {
            self.remove_handler();
        }
    }
}

impl Stream {
    /// Rows that nothing read. Behind a last reader, the daemon may go on bringing the stream to where that was for a while.
    pub(crate) fn unclaimed(&self) -> Range {
        Range::new(self.never_claimed, self.unclaimed)
    }
}

impl Totals {
    pub(crate) fn add(&mut self, other: Totals) {
        self.queried += other.queried;
        self.out += other.out;
        self.unsent += other.unsent;
        self.row_errors += other.row_errors;
        self.published += other.published;
        self.filtered += other.filtered;
        self.dropped += other.dropped;
    }
}

impl Post {
    fn new(addr: &str, way: Transport) -> Post {
        let node = Node::builder(addr).transport(way).connect().unwrap();
        let implementation = Implementation::SignalQueue;
        let options = MailboxOptions { implementation, bound_messages: Some(MAILBOX_BOUND), bound_bytes: None };
        node.create_mailbox("post", options).unwrap();
        let (writer, reader) = (node.writer("post").unwrap(), node.reader("post").unwrap());
        Post { _node: node, way, writer, reader, puts: 0, gets: 0, lengths: Vec::new() }
    }

    /// Puts some messages, and gets some of those that are there.
    fn work(&mut self, rng: &mut Rng) {
        while self.puts - self.gets < u64::from(MAILBOX_BOUND) / 2 {
            let len = rng.usize(1..2000);
            self.writer.put(&vec![1; len]).unwrap();
            self.lengths.push(len as u64);
            self.puts += 1;
        }
        for _ in 0..rng.u64(0..=self.puts - self.gets) {
            let message = self.reader.begin_get().unwrap();
            self.reader.end_get(message);
            self.gets += 1;
        }
    }
}

/// A ledger that does not balance to the record.
fn unbalanced(of: &SubscriptionInfo) -> Option<String> {
    let gone = of.filtered + of.taken + of.conflated + of.sampled + of.dropped + of.row_errors;
    let (came, found) = (of.published + of.rows_made, of.records_out + gone + of.in_flight);
    (came != found).then(|| format!("{found} of {came} records are accounted for: {of:?}"))
}

fn way(rng: &mut Rng) -> Transport {
    if rng.bool() { Transport::Udp } else { Transport::Shm }
}
