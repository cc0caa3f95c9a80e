//! Publishing a stream.

use crate::carrier::DatagramCounts;
use crate::client::{Client, Interrupter};
use crate::conversions::{self, ConverterWanted, FormatRef};
use crate::error::Error;
use crate::link::MAX_PAYLOAD_BYTES;
use crate::link::awaiting::{AwaitSubscribers, Awaiting, OnPublisherEvent, PublisherEvent};
use crate::packing::Packing;
use crate::settings::{DeliveryClass, Settings, Transport, setting_methods};
use crate::shared::Inner;
use crossdock_device::random;
use crossdock_format::convert::Conversion;
use crossdock_format::typed::{RecordWriter, TypedError};
use crossdock_format::{Format, Record};
use crossdock_transport::Request;
use crossdock_transport::control::{Publication, PublisherId};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex, PoisonError};
#[cfg(feature = "futures")]
use std::task::{Poll, Waker, ready};
use std::time::Duration;

/// The publisher's own number for its one stream.
const STREAM: u32 = 1;
/// Records that are gathered before the link is taken for them.
const GATHERED: usize = 64;
/// Super-packets that may be unacknowledged before sending another looks for acks. They are counted, not measured: each brings an
/// ack, however small it is.
const UNACKNOWLEDGED: usize = 16;
/// How long a dropped publisher tries to get rid of what it has.
const FAREWELL: Duration = Duration::from_millis(250);

/// The stream of a publisher, the format of its records, and their class.
type Parts = (String, Format, DeliveryClass);

/// The callback for the events of publishers.
type OnEvent = Arc<Mutex<dyn FnMut(PublisherEvent) + Send>>;

#[cfg(feature = "simulation")]
pub use simulated::Announcement;

/// Sets up a [`Publisher`].
#[derive(Clone)]
pub struct PublisherBuilder {
    settings: Settings,
    stream: Option<String>,
    format: Option<Result<Format, TypedError>>,
    key: Vec<String>,
    linger: Duration,
    class: DeliveryClass,
    /// Bytes of the circuit that it asks for.
    circuit: Option<u64>,
    await_subscribers: Option<AwaitSubscribers>,
    on_event: Option<OnEvent>,
}

impl PublisherBuilder {
    /// The stream to publish.
    #[must_use]
    pub fn stream(mut self, name: impl Into<String>) -> Self {
        self.stream = Some(name.into());
        self
    }

    /// The format of its records.
    #[must_use]
    pub fn format(mut self, format: &Format) -> Self {
        self.format = Some(Ok(format.clone()));
        self
    }

    /// The format of its records: the one that follows from a type ([`Format::of`]), whose values [`Publisher::send`] then publishes.
    /// A type without a format is an error when the publisher connects.
    #[must_use]
    pub fn typed<T: Deserialize<'static>>(mut self) -> Self {
        self.format = Some(Format::of::<T>());
        self
    }

    /// Declares the key of the stream: these columns, whose last record the daemon keeps from the first one on, for queries with
    /// `SNAPSHOT`. The key then stands as one that `crossdock streams set` declares, also without this publisher.
    ///
    /// The publisher does not connect if the stream has another key, or if the access rules do not let it declare one.
    #[must_use]
    pub fn key<S: Into<String>>(mut self, columns: impl IntoIterator<Item = S>) -> Self {
        self.key = columns.into_iter().map(Into::into).collect();
        self
    }

    /// How long a record may wait for company before it is sent; 1 ms unless set.
    #[must_use]
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }

    /// Whether records are delivered reliably or as datagrams; [`DeliveryClass::Reliable`] unless set.
    #[must_use]
    pub fn class(mut self, class: DeliveryClass) -> Self {
        self.class = class;
        self
    }

    /// Has the daemon reserve a circuit for the publisher: at least `bytes` bytes of buffers, with the credit for them, that no other
    /// traffic takes while the publisher is connected. Only for [`DeliveryClass::Reliable`]. The publisher does not connect if the daemon
    /// has no room for it; after a lost connection it goes on without one in this case.
    #[must_use]
    pub fn circuit(mut self, bytes: u64) -> Self {
        self.circuit = Some(bytes);
        self
    }

    /// Has the publisher wait for subscribers when it has connected again after a lost connection: it sends no more records before
    /// its stream has as many subscriptions as it had before, and `least` at least, or `bound` has passed. With a `least` of more
    /// than 0 it waits in the same way when it connects for the first time. Subscribers are counted, not identified, and those of
    /// streams that handlers make of this one do not count.
    ///
    /// [`PublisherBuilder::on_event`] is called when it begins to wait and when it goes on.
    #[must_use]
    pub fn await_subscribers(mut self, bound: Duration, least: u32) -> Self {
        self.await_subscribers = Some(AwaitSubscribers { bound, least });
        self
    }

    /// Has `on_event` called with what the publisher does while its calls wait. It is called on any thread, and must neither use
    /// the publisher nor take long.
    #[must_use]
    pub fn on_event(mut self, on_event: impl FnMut(PublisherEvent) + Send + 'static) -> Self {
        self.on_event = Some(Arc::new(Mutex::new(on_event)));
        self
    }

    setting_methods!();

    /// Connects and announces the stream.
    ///
    /// # Errors
    /// Nobody answers, the daemon refuses the stream or format, or the type has no format.
    pub fn connect(self) -> Result<Publisher, Error> {
        let (mut client, id, (stream, format, class)) = self.open(Client::connect)?;
        client.wait(None, |inner| inner.link.answer(id))?.transpose()?;
        Ok(Publisher::new(client, stream, format, class))
    }

    /// Makes a client, and has it announce the stream in each session, the first one included; with the number of the first request,
    /// and what a [`Publisher`] is made of.
    fn open(self, connect: impl FnOnce(Settings) -> Result<Client, Error>) -> Result<(Client, u32, Parts), Error> {
        let stream = self.stream.ok_or(Error::Incomplete("a publisher needs a stream"))?;
        let format = self.format.ok_or(Error::Incomplete("a publisher needs a format"))??;
        if self.circuit.is_some() && self.class == DeliveryClass::Datagram {
            return Err(Error::Incomplete("a circuit is for records that are delivered reliably, not as datagrams"));
        }
        // From the system's randomness: two publishers that have the same would end each other's sessions, also where one process was
        // copied from the other.
        let id = random().map_err(Error::system("cannot get random bytes for the publisher's id"))?;
        let publisher = PublisherId(u128::from_ne_bytes(id));
        let mut client = connect(self.settings)?;
        if let Some(bytes) = self.circuit {
            let id = {
                let mut inner = client.shared.lock();
                let id = inner.link.request_id();
                let request = Request::OpenCircuit { id, bytes };
                inner.link.open_with(request.clone(), request);
                id
            };
            client.wait(None, |inner| inner.link.answer(id))?.transpose()?;
        }
        let id = {
            let mut inner = client.shared.lock();
            inner.link.awaiting = self.await_subscribers.map(|settings| {
                let on_event = self.on_event.map(|on_event| {
                    let call = move |event| (on_event.lock().unwrap_or_else(PoisonError::into_inner))(event);
                    Box::new(call) as OnPublisherEvent
                });
                Awaiting::new(settings, STREAM, on_event)
            });
            let id = inner.link.request_id();
            let announce = Request::Announce {
                id,
                stream: STREAM,
                name: stream.clone(),
                format: format.describe(),
                // Datagrams are not sent again, so none is taken twice.
                publication: (self.class == DeliveryClass::Reliable).then_some(Publication { publisher, first: 0 }),
                key: self.key,
            };
            inner.link.open_with(announce.clone(), announce);
            inner.link.published = Some(format.clone());
            inner.packing = Some(Packing::new(STREAM, format.id().0, self.class, self.linger));
            id
        };
        Ok((client, id, (stream, format, self.class)))
    }
}

impl std::fmt::Debug for PublisherBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let PublisherBuilder { settings, stream, .. } = self;
        f.debug_struct("PublisherBuilder").field("settings", settings).field("stream", stream).finish_non_exhaustive()
    }
}

/// The counts of a publisher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PublishSummary {
    /// Records published.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets that had to be sent again.
    pub resent_packets: u64,
    /// Records that were dropped before they were sent, as the path had no room for them; only of datagrams.
    pub dropped_records: u64,
    /// Packets of datagrams that the daemon misses, by its last word: lost, or late.
    pub missing_packets: u64,
    /// Records that were sent again in another session: the daemon had not taken them, or was started again and has them in no checkpoint.
    pub repeated_records: u64,
}

/// Sends the records of one stream. When its session was lost, it begins another one, and sends from the first record on that
/// the daemon has not taken: each arrives once. Only a daemon that was started again, or has not heard of the publisher for 15
/// minutes, does not know what was taken; what was not acknowledged may arrive twice then. With a daemon that is `durable`, each also
/// counts once over a restart: the publisher keeps records, up to 64 MiB, until they are in one of the daemon's checkpoints, and
/// sends the others again. Beyond that a call waits, as for credit. Dropped without [`Publisher::finish`], it tries for a moment to send what it has.
pub struct Publisher {
    client: Client,
    stream: String,
    format: Format,
    class: DeliveryClass,
    /// Makes records of values.
    writer: RecordWriter,
    /// The longest record that the daemon takes, in bytes.
    most_record_bytes: usize,
    records: u64,
    bytes: u64,
    /// A record that was taken without waiting, and for which there is no room yet.
    held: Vec<u8>,
    /// The number of the request that finishes the stream, once it was made.
    finishing: Option<u32>,
    finished: bool,
}

impl Publisher {
    /// Begins to set up a publisher at the daemon's address, `host:port`.
    #[must_use]
    pub fn builder(addr: impl Into<String>) -> PublisherBuilder {
        PublisherBuilder {
            settings: Settings::new(addr),
            stream: None,
            format: None,
            key: Vec::new(),
            linger: Duration::from_millis(1),
            class: DeliveryClass::Reliable,
            circuit: None,
            await_subscribers: None,
            on_event: None,
        }
    }

    fn new(client: Client, stream: String, format: Format, class: DeliveryClass) -> Publisher {
        let most_record_bytes = client.shared.lock().link.most_record_bytes;
        Publisher {
            client,
            stream,
            writer: RecordWriter::new(&format),
            format,
            class,
            most_record_bytes,
            records: 0,
            bytes: 0,
            held: Vec::new(),
            finishing: None,
            finished: false,
        }
    }

    /// The format of the stream's records.
    #[must_use]
    pub fn format(&self) -> &Format {
        &self.format
    }

    /// Refuses what comes after the stream's end was said.
    #[inline]
    fn check_open(&self) -> Result<(), Error> {
        if self.finished || self.finishing.is_some() { Err(Error::Finished) } else { Ok(()) }
    }

    fn check(&self, record: &[u8]) -> Result<(), Error> {
        Record::check(&self.format, record)?;
        fits(record, self.most_record_bytes, self.class)
    }

    /// Publishes a value as a record of the stream's format, its fields by their names; blocks as [`Publisher::publish`] does.
    ///
    /// # Errors
    /// The value is no record of the format ([`Error::Typed`] names the field), the link has ended, or it was interrupted; the value
    /// was not taken then. [`Error::Finished`] after the publisher was asked to finish.
    pub fn send<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.check_open()?;
        self.wait_held()?;
        let record = self.writer.write(value)?;
        fits(record, self.most_record_bytes, self.class)?;
        // It is the writer's, so it needs no check.
        if offer(&self.client, &[record])? == 0 {
            self.client.wait(None, |inner| inner.pack(record).then_some(()))?;
        }
        self.records += 1;
        self.bytes += record.len() as u64;
        Ok(())
    }

    /// Publishes a record (what a `RecordBuilder` of the format gives). Blocks while the daemon gives no credit, because
    /// a subscriber is slow.
    ///
    /// # Errors
    /// The bytes are not one record of the format, the link has ended, or it was interrupted; the record was not taken then.
    /// [`Error::Finished`] after the publisher was asked to finish.
    #[inline]
    pub fn publish(&mut self, record: &[u8]) -> Result<(), Error> {
        self.check(record)?;
        self.publish_checked(&[record])
    }

    /// Publishes records one after the other; cheaper than one by one.
    ///
    /// # Errors
    /// As [`Publisher::publish`]; those before the failing one were taken.
    pub fn publish_all<'a>(&mut self, records: impl IntoIterator<Item = &'a [u8]>) -> Result<(), Error> {
        // They are gathered first: the iterator may take its time, and the link is not held meanwhile.
        let mut gathered: [&[u8]; GATHERED] = [&[]; GATHERED];
        let mut count = 0;
        for record in records {
            if let Err(error) = self.check(record) {
                self.publish_checked(&gathered[..count])?;
                return Err(error);
            }
            gathered[count] = record;
            count += 1;
            if count == GATHERED {
                self.publish_checked(&gathered)?;
                count = 0;
            }
        }
        self.publish_checked(&gathered[..count])
    }

    /// Takes records that were checked.
    fn publish_checked(&mut self, records: &[&[u8]]) -> Result<(), Error> {
        self.check_open()?;
        self.wait_held()?;
        let mut rest = records;
        loop {
            let taken = offer(&self.client, rest)?;
            self.records += taken as u64;
            self.bytes += rest[..taken].iter().map(|record| record.len() as u64).sum::<u64>();
            rest = &rest[taken..];
            let Some(record) = rest.first() else { return Ok(()) };
            self.client.wait(None, |inner| inner.pack(record).then_some(()))?;
            self.records += 1;
            self.bytes += record.len() as u64;
            rest = &rest[1..];
        }
    }

    /// Publishes a record if that needs no waiting; `false` if it would.
    ///
    /// # Errors
    /// As [`Publisher::publish`].
    pub fn try_publish(&mut self, record: &[u8]) -> Result<bool, Error> {
        self.check_open()?;
        self.check(record)?;
        if !self.try_held()? {
            return Ok(false);
        }
        let mut taken = offer(&self.client, &[record])?;
        if taken == 0 {
            self.client.shared.lock().drive();
            taken = offer(&self.client, &[record])?;
        }
        self.records += taken as u64;
        self.bytes += (taken * record.len()) as u64;
        Ok(taken > 0)
    }

    /// Packs the record that was taken without room for it, if there is room now. Whether none is left.
    fn try_held(&mut self) -> Result<bool, Error> {
        if !self.held.is_empty() {
            if offer(&self.client, &[&self.held])? == 0 {
                return Ok(false);
            }
            self.held.clear();
        }
        Ok(true)
    }

    /// The same, and waits until there is room.
    #[inline]
    fn wait_held(&mut self) -> Result<(), Error> {
        if !self.held.is_empty() && !self.try_held()? {
            let held = &self.held;
            self.client.wait(None, |inner| inner.pack(held).then_some(()))?;
            self.held.clear();
        }
        Ok(())
    }

    /// Sends what is packed now, without waiting for company.
    ///
    /// # Errors
    /// The link has ended. [`Error::Finished`] after the publisher was asked to finish.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.check_open()?;
        let mut inner = self.client.shared.lock();
        inner.flush_packing();
        send(&mut inner);
        self.client.tick(&mut inner);
        inner.link.fault().map_or(Ok(()), Err)
    }

    /// Waits for subscribers no more ([`PublisherBuilder::await_subscribers`]), until the connection is lost again: the records go on
    /// at once.
    pub fn stop_awaiting_subscribers(&self) {
        let mut inner = self.client.shared.lock();
        inner.link.stop_awaiting();
        self.client.tick(&mut inner);
    }

    /// Registers a conversion between two formats of the stream for as long as this publisher is there; in place of the one that
    /// it registered between the same formats before. From the next batch on it is used.
    ///
    /// # Errors
    /// The daemon does not know the formats, or the conversion does not lead from the one to the other; nothing has changed
    /// then.
    pub fn register_conversion(
        &mut self,
        from: impl Into<FormatRef>,
        to: impl Into<FormatRef>,
        conversion: &Conversion,
    ) -> Result<(), Error> {
        self.check_open()?;
        conversions::register(&mut self.client, &self.stream, (&from.into(), &to.into()), conversion, false)
    }

    /// Withdraws a conversion that this publisher registered.
    ///
    /// # Errors
    /// It registered none between the two.
    pub fn unregister_conversion(&mut self, from: impl Into<FormatRef>, to: impl Into<FormatRef>) -> Result<(), Error> {
        self.check_open()?;
        conversions::unregister(&mut self.client, &self.stream, (&from.into(), &to.into()), false)
    }

    /// Has the daemon say which conversions the stream's subscribers lack: [`Publisher::converter_wanted`] then says.
    ///
    /// # Errors
    /// The link has ended, or too many listen on the stream.
    pub fn listen_for_converters(&mut self) -> Result<(), Error> {
        self.check_open()?;
        conversions::listen(&mut self.client, &self.stream)
    }

    /// The next conversion that a subscriber of the stream lacks; `None` when none was within the timeout.
    ///
    /// # Errors
    /// The link has ended, or the call was interrupted.
    pub fn converter_wanted(&mut self, timeout: Option<Duration>) -> Result<Option<ConverterWanted>, Error> {
        self.check_open()?;
        conversions::wanted(&mut self.client, timeout)
    }

    /// Why the records go by packets, where shared memory was tried first: in words, for people.
    #[must_use]
    pub fn not_attached(&self) -> Option<String> {
        self.client.shared.lock().link.not_attached().map(str::to_owned)
    }

    /// The way that the records go now: [`Transport::Shm`] or [`Transport::Udp`].
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.client.shared.lock().link.transport()
    }

    /// The counts so far.
    #[must_use]
    pub fn stats(&self) -> PublishSummary {
        let inner = self.client.shared.lock();
        let (resent_packets, DatagramCounts { dropped_records, missing_packets }) =
            (inner.link.resent(), inner.link.datagrams());
        PublishSummary {
            records: self.records,
            bytes: self.bytes,
            resent_packets,
            dropped_records,
            missing_packets,
            repeated_records: inner.link.repeated_records(),
        }
    }

    /// Makes a blocked call return, from another thread.
    #[must_use]
    pub fn interrupter(&self) -> Interrupter {
        self.client.interrupter()
    }

    /// Sends everything, waits until the daemon has acknowledged it all, and notifies the stream's subscribers that this
    /// publisher is done. A daemon that is `durable` acknowledges with the checkpoint that has all of it.
    ///
    /// # Errors
    /// The link has ended or was interrupted before that.
    pub fn finish(mut self) -> Result<PublishSummary, Error> {
        self.wait_held()?;
        if !self.finished {
            self.client.wait(None, have_left)?;
            let id = self.request_finish();
            let answer = self.client.wait(None, |inner| inner.link.answer(id))?.transpose();
            self.finish_answered(answer.map(drop))?;
        }
        Ok(self.stats())
    }

    /// Asks the daemon to finish the stream behind everything sent; returns the request's number.
    fn request_finish(&mut self) -> u32 {
        let client = &self.client;
        *self.finishing.get_or_insert_with(|| {
            let mut inner = client.shared.lock();
            inner.flush_packing();
            let id = inner.link.request_id();
            // As part of every session from here on: should this one be lost, the next one finishes too.
            inner.link.finish_with(Request::Finish { id, stream: STREAM });
            id
        })
    }

    /// The daemon has answered the request to finish.
    fn finish_answered(&mut self, answer: Result<(), Error>) -> Result<(), Error> {
        let link = &mut self.client.shared.lock().link;
        match &answer {
            Ok(()) => {
                self.finished = true;
                link.say_close();
            }
            Err(_) => {
                // The answer was taken: who finishes once more asks once more.
                self.finishing = None;
                link.unfinish();
            }
        }
        answer
    }
}

/// Publishing without waiting, for a task that is woken when it may go on.
#[cfg(feature = "futures")]
impl Publisher {
    /// Whether another record can be taken.
    pub(crate) fn poll_room(&mut self, waker: &Waker) -> Poll<Result<(), Error>> {
        self.check_open()?;
        self.poll_held(waker)
    }

    /// Whether the record that was taken without room for it is packed.
    fn poll_held(&mut self, waker: &Waker) -> Poll<Result<(), Error>> {
        if !self.try_held()? {
            let held = &self.held;
            ready!(self.client.poll(waker, |inner| inner.pack(held).then_some(())))?;
            self.held.clear();
        }
        Poll::Ready(Ok(()))
    }

    /// Takes a record, after there was room.
    pub(crate) fn start(&mut self, record: &[u8]) -> Result<(), Error> {
        self.check_open()?;
        self.check(record)?;
        check_ready(&self.held)?;
        start(&self.client, &mut self.held, record)?;
        self.records += 1;
        self.bytes += record.len() as u64;
        Ok(())
    }

    /// Takes a value, after there was room.
    pub(crate) fn start_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.check_open()?;
        check_ready(&self.held)?;
        let record = self.writer.write(value)?;
        fits(record, self.most_record_bytes, self.class)?;
        start(&self.client, &mut self.held, record)?;
        self.records += 1;
        self.bytes += record.len() as u64;
        Ok(())
    }

    /// Whether the daemon has everything that was taken.
    pub(crate) fn poll_settled(&mut self, waker: &Waker) -> Poll<Result<(), Error>> {
        ready!(self.poll_room(waker))?;
        self.flush()?;
        self.client.poll(waker, |inner| (inner.link.fault().is_none() && inner.link.is_settled()).then_some(()))
    }

    /// Whether the stream is finished, as [`Publisher::finish`] does it.
    pub(crate) fn poll_finish(&mut self, waker: &Waker) -> Poll<Result<(), Error>> {
        if self.finished {
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_held(waker))?;
        ready!(self.client.poll(waker, have_left))?;
        let id = self.request_finish();
        let answer = ready!(self.client.poll(waker, |inner| inner.link.answer(id)))?;
        Poll::Ready(self.finish_answered(answer.map(drop)))
    }
}

/// Packs a record, or holds it until there is room.
#[cfg(feature = "futures")]
fn start(client: &Client, held: &mut Vec<u8>, record: &[u8]) -> Result<(), Error> {
    if offer(client, &[record])? == 0 {
        held.extend_from_slice(record);
    }
    Ok(())
}

/// Refuses a record while another one is held.
#[cfg(feature = "futures")]
fn check_ready(held: &[u8]) -> Result<(), Error> {
    if held.is_empty() { Ok(()) } else { Err(Error::Incomplete("a sink takes a record after it was ready for one")) }
}

/// Whether a record is no longer than the daemon takes.
fn fits(record: &[u8], most: usize, class: DeliveryClass) -> Result<(), Error> {
    let bytes = record.len();
    match class {
        _ if bytes > most => Err(Error::TooLong { bytes, most }),
        DeliveryClass::Datagram if bytes > MAX_PAYLOAD_BYTES => {
            Err(Error::DatagramTooLong { bytes, most: MAX_PAYLOAD_BYTES })
        }
        _ => Ok(()),
    }
}

/// Packs records as long as there is room, and sends what is full. Returns how many were taken.
#[inline]
fn offer(client: &Client, records: &[&[u8]]) -> Result<usize, Error> {
    let mut inner = client.shared.lock();
    let flush_ns = inner.flush_ns();
    let taken = records.iter().take_while(|record| inner.pack(record)).count();
    let is_long = |record: &&[u8]| record.len() > MAX_PAYLOAD_BYTES;
    if inner.flush_ns() != flush_ns || records[..taken].iter().any(is_long) {
        // A super-packet was begun, so the one before it, if any, is complete; what is longer than one is complete itself.
        send(&mut inner);
        client.tick(&mut inner);
    }
    match inner.link.fault() {
        Some(fault) if taken < records.len() => Err(fault),
        _ => Ok(taken),
    }
}

/// Whether all datagrams have left, so that the end of their stream does not overtake them; what is packed is sent.
fn have_left(inner: &mut Inner) -> Option<()> {
    inner.flush_packing();
    inner.link.transmit();
    (inner.link.queued_datagrams() == 0).then_some(())
}

/// Sends what is queued; looks for acks now and then, not for each super-packet, and so that nothing is left for the keeper to take:
/// it would have the link while the application wants it.
fn send(inner: &mut Inner) {
    let now_ns = inner.link.now_ns();
    inner.driven_ns = now_ns;
    inner.link.transmit();
    let is_much = inner.link.backlog_units() > UNACKNOWLEDGED || inner.link.queued_datagrams() > 0;
    if is_much || (inner.link.is_up() && inner.link.awaits_look(now_ns)) {
        inner.link.receive();
        inner.link.transmit();
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        // Nobody is there to take an error any more.
        if !self.held.is_empty() {
            let held = &self.held;
            let _ = self.client.wait(Some(FAREWELL), |inner| inner.pack(held).then_some(()));
        }
        {
            let mut inner = self.client.shared.lock();
            inner.flush_packing();
            inner.link.transmit();
        }
        if self.class == DeliveryClass::Datagram {
            let _ = self.client.wait(Some(FAREWELL), have_left);
        }
        self.client.shared.lock().link.ask(Request::Terminate);
        let _ = self.client.wait(Some(FAREWELL), |inner| inner.link.is_settled().then_some(()));
    }
}

impl std::fmt::Debug for Publisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Publisher").field("records", &self.records).finish_non_exhaustive()
    }
}

#[cfg(feature = "simulation")]
mod simulated;
#[cfg(test)]
mod tests;
