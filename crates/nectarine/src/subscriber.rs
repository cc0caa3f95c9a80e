//! Receiving what a query selects.

use crate::client::{Client, Interrupter};
use crate::conversions::FormatRef;
use crate::error::Error;
use crate::incoming::{Arrived, Bytes, Incoming};
use crate::link::NOBODY;
use crate::settings::{Settings, Transport, setting_methods};
use crossdock_format::{Format, FormatId, Record};
use crossdock_transport::control::{Activity, DropCause, Overflow, RowErrors, Unreadable};
use crossdock_transport::{Notice, Request};
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

/// The subscriber's own number for its one subscription.
const SUBSCRIPTION: u32 = 1;

/// Sets up a [`Subscriber`].
#[derive(Clone, Debug)]
pub struct SubscriberBuilder {
    settings: Settings,
    sql: Option<String>,
    overflow: Option<Overflow>,
    wait_for_stream: Option<Duration>,
    accept: Vec<FormatRef>,
    unreadable: Option<Unreadable>,
    row_errors: RowErrors,
}

impl SubscriberBuilder {
    /// The query: `SELECT … FROM stream [WHERE …]`.
    #[must_use]
    pub fn sql(mut self, sql: impl Into<String>) -> Self {
        self.sql = Some(sql.into());
        self
    }

    /// What happens when this subscriber is too slow; as the daemon is configured unless set.
    #[must_use]
    pub fn overflow(mut self, overflow: Overflow) -> Self {
        self.overflow = Some(overflow);
        self
    }

    /// How long to wait for the stream to be announced; an unknown stream is an error at once unless set. Of a stream that
    /// was waited for, no record is missed.
    #[must_use]
    pub fn wait_for_stream(mut self, wait: impl Into<Option<Duration>>) -> Self {
        self.wait_for_stream = wait.into();
        self
    }

    /// A format that this subscriber accepts; with several of these calls, several. The query is then planned for what is
    /// accepted, and the daemon converts records in other formats where registered conversions lead to one of those. One that
    /// the stream does not have yet may come later; if none is known, connecting waits for one as it does for the stream.
    #[must_use]
    pub fn accept(mut self, format: impl Into<FormatRef>) -> Self {
        self.accept.push(format.into());
        self
    }

    /// With [`SubscriberBuilder::accept`]: what happens to records that nothing converts; as the daemon is configured unless
    /// set.
    #[must_use]
    pub fn unreadable(mut self, policy: Unreadable) -> Self {
        self.unreadable = Some(policy);
        self
    }

    /// What happens to a record that the query cannot compute (a division by zero, an overflow, a CAST that cannot be done); it is
    /// dropped, counted and reported ([`Event::Dropped`]) unless set.
    #[must_use]
    pub fn row_errors(mut self, row_errors: RowErrors) -> Self {
        self.row_errors = row_errors;
        self
    }

    setting_methods!();

    /// Connects and subscribes.
    ///
    /// # Errors
    /// Nobody answers, or the daemon refuses the query; then the message says where and what is possible.
    pub fn connect(self) -> Result<Subscriber, Error> {
        let sql = self.sql.clone().ok_or(Error::Incomplete("a subscriber needs a query"))?;
        let client = Client::connect(self.settings.clone())?;
        {
            let mut inner = client.shared.lock();
            let id = inner.link.request_id();
            let subscribe = |wait| {
                let (sql, overflow, unreadable) = (sql.clone(), self.overflow, self.unreadable);
                let row_errors = self.row_errors;
                let accept = self.accept.iter().map(FormatRef::name).collect();
                Request::Subscribe {
                    id,
                    subscription: SUBSCRIPTION,
                    sql,
                    overflow,
                    wait,
                    accept,
                    unreadable,
                    row_errors,
                }
            };
            // A daemon that has been restarted may not know the stream yet: then it is always waited for.
            inner.link.open_with(subscribe(self.wait_for_stream.is_some()), subscribe(true));
        }
        let formats = Vec::new();
        let mut subscriber = Subscriber {
            client,
            formats,
            format: None,
            activity: Activity::default(),
            pending: VecDeque::new(),
            consumed: 0,
        };
        if !subscriber.await_subscription(self.wait_for_stream)? {
            // Asked without waiting, the daemon says what it knows; or it has the stream by now.
            drop(subscriber);
            return SubscriberBuilder { wait_for_stream: None, ..self.sql(sql) }.connect();
        }
        Ok(subscriber)
    }
}

/// What a subscriber is given, in order.
#[derive(Debug)]
pub enum Event {
    /// Records that the query selected.
    Records(Records),
    /// Records in another format may follow.
    Format(Format),
    /// A publisher of the stream has finished or gone.
    StreamEnded {
        /// Publishers that are still there.
        publishers_left: u32,
        /// Whether all that have gone since the stream had none had finished ([`Publisher::finish`](crate::Publisher::finish)). If
        /// not, one has crashed, was killed or disconnected, and records of its may be missing.
        finished: bool,
    },
    /// Records were dropped in the daemon, or were invalid; an event for each cause.
    Dropped {
        /// How many.
        records: u64,
        /// Why.
        cause: DropCause,
        /// The same in words, with what is known of these records.
        reason: String,
    },
    /// Records came in a format that nothing converts to an accepted one; they wait in the daemon, which has asked for a
    /// conversion. [`Event::Readable`] follows if one comes, [`Event::Dropped`] if none comes in time.
    Held {
        /// The format that they came in.
        format: FormatId,
        /// What is missing.
        message: String,
    },
    /// Records of a format that could not be read are converted from here on; those that waited come first.
    Readable {
        /// The format.
        format: FormatId,
        /// The formats on the way, the accepted one last; none if it is accepted as it is.
        chain: Vec<FormatId>,
        /// Records that waited.
        records: u64,
    },
    /// A publisher brought a format that the query does not fit, or that nothing converts to an accepted one; its records are
    /// dropped.
    Unreadable {
        /// What does not fit.
        message: String,
    },
    /// The daemon was gone and is back; what was published between may be missing.
    Reconnected,
}

/// Records that arrived together, read in place. They hold a buffer until they are dropped.
///
/// By shared memory the place may be one that other processes of the same protection domain (by default: of the same user) can
/// write. They are trusted to leave alone what they have handed over, as the domain's processes trust one another in all else.
/// Each record was checked when it arrived; what a process of another domain sent lies where no client can write.
#[derive(Debug)]
pub struct Records {
    format: Format,
    bytes: Bytes,
    payloads: Vec<Range<usize>>,
    count: usize,
}

impl Records {
    /// The records' format.
    #[must_use]
    pub fn format(&self) -> &Format {
        &self.format
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The records' bytes, in order; each was checked when it arrived.
    pub fn bytes(&self) -> impl Iterator<Item = &[u8]> {
        self.payloads.iter().flat_map(move |payload| {
            let mut rest = &self.bytes[payload.clone()];
            std::iter::from_fn(move || {
                let (record, after) = rest.split_at_checked(self.format.record_len(rest)?)?;
                rest = after;
                Some(record)
            })
        })
    }

    /// The records, in order.
    pub fn iter(&self) -> impl Iterator<Item = Record<'_>> {
        self.bytes().map(|bytes| Record::assume_checked(&self.format, bytes))
    }
}

/// Receives what its query selects. When it has come back to a daemon that was gone, it says so ([`Event::Reconnected`]).
pub struct Subscriber {
    client: Client,
    /// All formats that records may come in.
    formats: Vec<Format>,
    format: Option<Format>,
    activity: Activity,
    /// What was taken from the link and not yet given to the application.
    pending: VecDeque<Incoming>,
    consumed: u64,
}

impl Subscriber {
    /// Begins to set up a subscriber at the daemon's address, `host:port`.
    #[must_use]
    pub fn builder(addr: impl Into<String>) -> SubscriberBuilder {
        SubscriberBuilder {
            settings: Settings::new(addr),
            sql: None,
            overflow: None,
            wait_for_stream: None,
            accept: Vec::new(),
            unreadable: None,
            row_errors: RowErrors::default(),
        }
    }

    /// The format of the records to come, as far as it is known: that of the stream's newest format.
    #[must_use]
    pub fn format(&self) -> Option<&Format> {
        self.format.as_ref()
    }

    /// What was going on at the stream when the subscription began, or began again after a lost connection: records that were
    /// published before do not come.
    #[must_use]
    pub fn activity(&self) -> Activity {
        self.activity
    }

    /// Waits until the daemon has confirmed the subscription; `false` when it has not within the timeout.
    fn await_subscription(&mut self, timeout: Option<Duration>) -> Result<bool, Error> {
        while self.format.is_none() {
            match self.client.wait(timeout, |inner| inner.link.inbox.pop_front())? {
                Some(Incoming::Subscribed { format, activity }) => {
                    self.activity = activity;
                    self.learn(&format)?;
                }
                Some(other) => self.pending.push_back(other),
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Notes a format that records may come in.
    fn learn(&mut self, description: &str) -> Result<Format, Error> {
        let format = Format::parse(description).map_err(|error| Error::Malformed(error.to_string()))?;
        if !self.formats.contains(&format) {
            self.formats.push(format.clone());
        }
        self.format = Some(format.clone());
        Ok(format)
    }

    /// The next event, in order. `None` when nothing came within the timeout; without one it waits as long as it takes.
    ///
    /// # Errors
    /// The link has ended for good, or the call was interrupted.
    pub fn next_event(&mut self, timeout: Option<Duration>) -> Result<Option<Event>, Error> {
        loop {
            let incoming = match self.pending.pop_front() {
                Some(incoming) => Some(incoming),
                None => {
                    // What was given out last time is consumed by now.
                    let consumed = std::mem::take(&mut self.consumed);
                    let mut inner = self.client.shared.lock();
                    inner.link.consumed_to(consumed);
                    let ready = inner.link.inbox.pop_front();
                    drop(inner);
                    match ready {
                        Some(incoming) => Some(incoming),
                        None => self.client.wait(timeout, |inner| inner.link.inbox.pop_front())?,
                    }
                }
            };
            let Some(incoming) = incoming else { return Ok(None) };
            if let Some(event) = self.event(incoming)? {
                return Ok(Some(event));
            }
        }
    }

    /// The events as an iterator: it waits for each as long as it takes, and its last item is the error that ended it.
    pub fn events(&mut self) -> impl Iterator<Item = Result<Event, Error>> + '_ {
        let mut ended = false;
        std::iter::from_fn(move || {
            if ended {
                return None;
            }
            let event = self.next_event(None).transpose();
            ended = !matches!(event, Some(Ok(_)));
            event
        })
    }

    /// What an arrival means to the application; some only to this library.
    fn event(&mut self, incoming: Incoming) -> Result<Option<Event>, Error> {
        Ok(match incoming {
            Incoming::Records(arrived) => {
                self.consumed = arrived.data_end;
                Some(self.records(arrived)?)
            }
            Incoming::Reconnected => Some(Event::Reconnected),
            Incoming::Subscribed { format, activity } => {
                self.activity = activity;
                let before = self.format.clone();
                let format = self.learn(&format)?;
                (before.as_ref() != Some(&format)).then_some(Event::Format(format))
            }
            Incoming::Notice(Notice::Format { format, .. }) => Some(Event::Format(self.learn(&format)?)),
            Incoming::Notice(Notice::StreamEnded { publishers, lost, .. }) => {
                Some(Event::StreamEnded { publishers_left: publishers, finished: !lost })
            }
            Incoming::Notice(Notice::Dropped { records, cause, reason, .. }) => {
                Some(Event::Dropped { records, cause, reason })
            }
            Incoming::Notice(Notice::Unreadable { message, .. }) => Some(Event::Unreadable { message }),
            Incoming::Notice(Notice::NoReader { policy: Unreadable::Drop, message, .. }) => {
                Some(Event::Unreadable { message })
            }
            Incoming::Notice(Notice::NoReader { format, message, .. }) => {
                Some(Event::Held { format: id_of(&format)?, message })
            }
            Incoming::Notice(Notice::Readable { format, chain, records, .. }) => {
                let chain = chain.iter().map(|id| id_of(id)).collect::<Result<_, Error>>()?;
                Some(Event::Readable { format: id_of(&format)?, chain, records })
            }
            Incoming::Notice(
                Notice::MailboxClosed { .. }
                | Notice::MessagesDropped { .. }
                | Notice::MayPut { .. }
                | Notice::ConverterWanted { .. },
            )
            // A subscriber opens no mailboxes, and listens for no conversions.
            | Incoming::Opened(_)
            | Incoming::Message { .. } => None,
        })
    }

    /// Checks records that arrived. Those in an attached publisher's memory were not read by the daemon: if they are invalid, they
    /// are lost, and the daemon is notified.
    fn records(&self, arrived: Arrived) -> Result<Event, Error> {
        let Arrived { bytes, header, spans, .. } = arrived;
        let Some(format) = self.formats.iter().find(|f| f.id().0 == header.format) else {
            return Err(Error::Malformed(format!("format {:016x} was never announced", header.format)));
        };
        let (mut payloads, mut count) = (Vec::with_capacity(spans.len()), 0);
        for span in &spans {
            let flaw = match format.check_records(&bytes[span.range()], |_, _| {}) {
                Ok(found) if found as u64 == u64::from(span.records) => {
                    count += found;
                    payloads.push(span.range());
                    continue;
                }
                Ok(found) => format!("the header of a packet names {} records, and it contains {found}", span.records),
                Err(error) => error.to_string(),
            };
            let link = &mut self.client.shared.lock().link;
            if link.transport() != Transport::Shm {
                return Err(Error::Malformed(flaw));
            }
            link.ask(Request::ReportMalformed { subscription: SUBSCRIPTION });
            let records = spans.iter().map(|span| u64::from(span.records)).sum();
            let reason = format!("a publisher's packet contains an invalid record: {flaw}");
            return Ok(Event::Dropped { records, cause: DropCause::Malformed, reason });
        }
        Ok(Event::Records(Records { format: format.clone(), bytes, payloads, count }))
    }

    /// Why the records come by packets, where shared memory was tried first: in words, for people.
    #[must_use]
    pub fn not_attached(&self) -> Option<String> {
        self.client.shared.lock().link.not_attached().map(str::to_owned)
    }

    /// The way that the records come now: [`Transport::Shm`] or [`Transport::Udp`].
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.client.shared.lock().link.transport()
    }

    /// Makes a waiting call return, from another thread.
    #[must_use]
    pub fn interrupter(&self) -> Interrupter {
        self.client.interrupter()
    }
}

/// A format's id, as the daemon wrote it.
fn id_of(text: &str) -> Result<FormatId, Error> {
    text.parse().map_err(|error| Error::Malformed(format!("{error}")))
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        let link = &mut self.client.shared.lock().link;
        // An attachment lasts as long as records of it are in the application's hands; the subscription does not.
        link.ask(Request::Unsubscribe { id: NOBODY, subscription: SUBSCRIPTION });
        link.say_close();
    }
}

impl std::fmt::Debug for Subscriber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscriber").field("formats", &self.formats.len()).finish_non_exhaustive()
    }
}
