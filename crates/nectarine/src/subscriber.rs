//! Receiving what a query selects.

use crate::account::{Account, Missed};
use crate::client::{Client, Interrupter};
use crate::conversions::FormatRef;
use crate::error::Error;
use crate::incoming::{Arrived, Incoming};
use crate::link::NOBODY;
use crate::records::{ReceivedRecord, Records};
use crate::settings::{OnWait, Settings, Transport, setting_methods};
use crate::signal::Signal;
use crossdock_format::{Format, FormatId};
use crossdock_transport::control::{Activity, DropCause, Overflow, RowErrors, Unreadable};
use crossdock_transport::{Notice, Request};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::{Poll, Waker, ready};
use std::time::Duration;

/// The subscriber's own number for its one subscription.
const SUBSCRIPTION: u32 = 1;

/// After which a wait is reported.
const MOMENT: Duration = Duration::from_millis(500);

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
    one_format: bool,
    on_wait: Option<OnWait>,
}

impl SubscriberBuilder {
    /// The query: `SELECT … FROM stream [WHERE …] [ON SLOW …] [MAX RATE …]`.
    #[must_use]
    pub fn sql(mut self, sql: impl Into<String>) -> Self {
        self.sql = Some(sql.into());
        self
    }

    /// The policy when this subscriber is too slow, for those that need no columns; as the query says (`ON SLOW …`), or as the
    /// daemon is configured, unless set. Setting another than the query says is refused.
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

    /// With [`SubscriberBuilder::wait_for_stream`]: called once, by [`SubscriberBuilder::connect`], if the stream does not come within
    /// half a second, so that this can be reported to a person.
    #[must_use]
    pub fn on_wait(mut self, on_wait: impl Fn() + Send + Sync + 'static) -> Self {
        self.on_wait = Some(OnWait(Arc::new(on_wait)));
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

    /// Without [`SubscriberBuilder::accept`]: whether records are wanted in one format. Where conversions that are registered by then
    /// lead from formats of the stream to another one, these records are converted; all others come unchanged. Off unless set.
    #[must_use]
    pub fn one_format(mut self, one_format: bool) -> Self {
        self.one_format = one_format;
        self
    }

    /// With [`SubscriberBuilder::accept`]: what happens to records that nothing converts; as the daemon is configured unless
    /// set.
    #[must_use]
    pub fn unreadable(mut self, policy: Unreadable) -> Self {
        self.unreadable = Some(policy);
        self
    }

    /// The policy for a record that the query cannot compute (a division by zero, an overflow, a CAST that cannot be
    /// done); it is dropped, counted and reported ([`Event::Dropped`]) unless set.
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
        let mut subscriber = self.open(&sql, Client::connect)?;
        let mut left = self.wait_for_stream;
        if let (Some(wait), Some(on_wait)) = (&mut left, &self.on_wait) {
            let first = MOMENT.min(*wait);
            *wait -= first;
            if !subscriber.await_subscription(Some(first))? {
                (on_wait.0)();
            }
        }
        if !subscriber.await_subscription(left)? {
            // Asked without waiting, the daemon says what it knows; or it has the stream by now.
            drop(subscriber);
            return SubscriberBuilder { wait_for_stream: None, ..self.sql(sql) }.connect();
        }
        Ok(subscriber)
    }
}

/// The events of a subscriber, in order.
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
        /// Whether all that have gone since the subscription began had finished ([`Publisher::finish`](crate::Publisher::finish)).
        /// If not, records may be missing. `false` also behind [`Event::Reconnected`] if nobody publishes the stream any more:
        /// what was published meanwhile is missing.
        finished: bool,
        /// How many have gone that had not finished: they crashed, were killed, or lost their connections.
        lost: u32,
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
        /// The missing part.
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
    /// dropped. Or a query with `SNAPSHOT` makes no more, since the state that it reads is gone, or there is no room for the rows that its
    /// `ORDER BY` keeps; then [`Event::StreamEnded`] follows, with `finished: false`.
    Unreadable {
        /// The reason.
        message: String,
    },
    /// The daemon was gone and is back. The records missed between follow as [`Event::Missed`].
    Reconnected,
    /// Records of the stream passed while the connection was lost, or were in a daemon that was killed. More of these events may
    /// follow as the stream's publishers come back; they add up. There is none if nothing was missed.
    Missed {
        /// How many records of the stream, before the query's condition. None if nobody counts them: those of streams that handlers
        /// make, and those of a daemon of an earlier release.
        records: Option<u64>,
        /// Whether it may be fewer, since the query has a condition and records that do not meet it are not sent.
        at_most: bool,
    },
}

/// The callback of a subscriber for the events that its iterators pass over.
type OnEvent = Box<dyn FnMut(Event) + Send>;

/// Receives what its query selects. When it has come back to a daemon that was gone, it says so ([`Event::Reconnected`]).
///
/// A loop over the subscriber (`for record in &mut subscriber`), or over its [batches](Subscriber::batches), gives the records and
/// ends when the stream does. All other events are apart: a loop passes them to the function that
/// [`Subscriber::on_event`] has set, and [`Subscriber::dropped`] counts the records that were dropped.
pub struct Subscriber {
    client: Client,
    /// All formats that records may come in.
    formats: Vec<Format>,
    format: Option<Format>,
    activity: Activity,
    /// In the daemon's list.
    number: Option<u64>,
    /// The arrivals that were taken from the link and not yet given to the application.
    pending: VecDeque<Incoming>,
    /// The rest of a batch whose first records were given out.
    open: Option<Records>,
    consumed: u64,
    on_event: Option<OnEvent>,
    /// The descriptor that becomes readable when there is something to be taken, if that was asked for.
    signal: Option<Signal>,
    /// Whether the last item that a loop was given is an error.
    has_failed: bool,
    /// Whether the stream's last publisher has gone, and nothing has come of another one.
    has_ended: bool,
    /// Whether records of a publisher have come since the subscription began.
    has_begun: bool,
    dropped: u64,
    reconnections: u64,
    account: Account,
    missed: u64,
    /// Publishers that have gone without finishing, in all sessions and in those before this one.
    lost: u32,
    lost_before: u32,
}

impl Subscriber {
    fn new(client: Client) -> Subscriber {
        Subscriber {
            client,
            formats: Vec::new(),
            format: None,
            activity: Activity::default(),
            number: None,
            pending: VecDeque::new(),
            open: None,
            consumed: 0,
            on_event: None,
            signal: None,
            has_failed: false,
            has_ended: false,
            has_begun: false,
            dropped: 0,
            reconnections: 0,
            account: Account::default(),
            missed: 0,
            lost: 0,
            lost_before: 0,
        }
    }

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
            one_format: false,
            on_wait: None,
        }
    }

    /// The format of the records to come, as far as it is known: that of the stream's newest format.
    #[must_use]
    pub fn format(&self) -> Option<&Format> {
        self.format.as_ref()
    }

    /// The activity of the stream when the subscription began, or began again after a lost connection: records that were
    /// published before do not come.
    #[must_use]
    pub fn activity(&self) -> Activity {
        self.activity
    }

    /// Waits until the daemon has confirmed the subscription; `false` when it has not within the timeout.
    fn await_subscription(&mut self, timeout: Option<Duration>) -> Result<bool, Error> {
        while self.format.is_none() {
            match self.client.wait(timeout, |inner| inner.link.inbox.pop_front())? {
                Some(Incoming::Subscribed { format, activity, position, number }) => {
                    (self.activity, self.number) = (activity, number);
                    self.account.begin(position.map(|position| *position));
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

    /// Has `on_event` called with each event that a loop over the records passes over: all but [`Event::Records`], in their order
    /// among the records, on the thread that loops. [`Subscriber::next_event`] and [`Subscriber::events`] give events to their
    /// caller instead.
    pub fn on_event(&mut self, on_event: impl FnMut(Event) + Send + 'static) {
        self.on_event = Some(Box::new(on_event));
    }

    /// Records that did not arrive, as the events so far say ([`Event::Dropped`]), whether or not the application has looked at
    /// them.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// How often the connection to the daemon was lost and restored ([`Event::Reconnected`]), as far as the events so far say.
    #[must_use]
    pub fn reconnections(&self) -> u64 {
        self.reconnections
    }

    /// Records of the stream that were missed while the connection was lost, as the events so far say ([`Event::Missed`]).
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// Publishers that were there when the connection was lost and have not come back: what they published meanwhile is not in
    /// [`Subscriber::missed`].
    #[must_use]
    pub fn uncounted_publishers(&self) -> u32 {
        self.account.uncounted_publishers()
    }

    /// The next record; waits as long as it takes. `None` at the stream's end: its last publisher has gone. Should another one
    /// come, the next call goes on with its records if they have arrived; to wait for it, use [`Subscriber::next_event`] with a
    /// timeout, or [`Subscriber::events`]. Of a stream that nobody publishes, the first publisher is waited for;
    /// [`Subscriber::activity`] says how many there are. Events that are no records go to [`Subscriber::on_event`].
    ///
    /// # Errors
    /// [`Error::Unfinished`] once, in place of the end, if a publisher has gone that had not finished. The link has ended for good,
    /// or the call was interrupted.
    pub fn next_record(&mut self) -> Result<Option<ReceivedRecord>, Error> {
        loop {
            if let Some(record) = self.take_open() {
                return Ok(Some(record));
            }
            self.open = self.next_batch()?;
            if self.open.is_none() {
                return Ok(None);
            }
        }
    }

    /// The next records, as they arrived together; waits and ends as [`Subscriber::next_record`] does.
    ///
    /// # Errors
    /// As for [`Subscriber::next_record`].
    pub fn next_batch(&mut self) -> Result<Option<Records>, Error> {
        while let Some(event) = self.next_event(None)? {
            match event {
                Event::Records(records) => return Ok(Some(records)),
                other => {
                    if self.pass_over(other)? {
                        break;
                    }
                }
            }
        }
        Ok(None)
    }

    /// The next item of a loop; none after an error, so that a loop that skips errors ends too.
    pub(crate) fn until_failure<T>(
        &mut self,
        next: impl FnOnce(&mut Subscriber) -> Result<Option<T>, Error>,
    ) -> Option<Result<T, Error>> {
        if std::mem::take(&mut self.has_failed) {
            return None;
        }
        let item = next(self).transpose();
        self.has_failed = matches!(item, Some(Err(_)));
        item
    }

    /// Another loop begins.
    pub(crate) fn forget_failure(&mut self) {
        self.has_failed = false;
    }

    /// Gives the application an event apart from the records; whether the stream ends with it.
    ///
    /// # Errors
    /// The stream ends, and a publisher has gone without finishing.
    fn pass_over(&mut self, event: Event) -> Result<bool, Error> {
        let end = match event {
            Event::StreamEnded { publishers_left: 0, finished, .. } => Some(finished),
            _ => None,
        };
        if let Some(on_event) = &mut self.on_event {
            on_event(event);
        }
        match end {
            Some(false) => Err(Error::Unfinished),
            end => Ok(end.is_some()),
        }
    }

    /// The next record of the batch that is partly given out.
    fn take_open(&mut self) -> Option<ReceivedRecord> {
        let record = self.open.as_mut()?.take_first();
        if self.open.as_ref().is_some_and(Records::is_empty) {
            self.open = None;
        }
        record
    }

    /// The next event, in order. With a timeout, `None` when nothing came within it. Without one it waits as long as it takes;
    /// after the stream's end, which [`Event::StreamEnded`] with no publisher left has reported, it waits no more: `None`
    /// when nothing further has arrived. A publisher may come later: to wait for it, call this with a timeout.
    ///
    /// # Errors
    /// The link has ended for good, or the call was interrupted.
    pub fn next_event(&mut self, timeout: Option<Duration>) -> Result<Option<Event>, Error> {
        if timeout.is_some() || !self.has_ended {
            return self.await_event(timeout);
        }
        self.look();
        self.await_event(Some(Duration::ZERO))
    }

    /// The next event, if it is there; waits for nothing.
    ///
    /// With a [descriptor](Subscriber::descriptor), `None` means that the descriptor becomes readable when this is worth another
    /// call: take events until there are none, then wait for the descriptor.
    ///
    /// # Errors
    /// The link has ended for good; without a descriptor, also: the call was interrupted.
    pub fn try_next_event(&mut self) -> Result<Option<Event>, Error> {
        let Some(signal) = &self.signal else {
            self.look();
            return self.await_event(Some(Duration::ZERO));
        };
        signal.clear();
        let waker = signal.waker.clone();
        match self.poll_event(&waker) {
            Poll::Ready(event) => event.map(Some),
            Poll::Pending => Ok(None),
        }
    }

    /// A descriptor for an event loop of the application's own (poll, epoll, an `AsyncFd` of tokio): it is readable when
    /// [`Subscriber::try_next_event`] is worth a call, which also makes it unreadable again. All descriptors of a subscriber are
    /// duplicates of one, which stays the same when the connection is lost and restored.
    ///
    /// With a descriptor, take events by [`Subscriber::try_next_event`] only. The calls that wait, the loops and the streams take
    /// events too, and do not make the descriptor readable for those that they leave.
    ///
    /// ```no_run
    /// use crossdock_nectarine::{Event, Subscriber};
    /// use rustix::event::{PollFd, PollFlags, poll};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut subscriber = Subscriber::builder("127.0.0.1:7440").sql("SELECT * FROM flights").connect()?;
    /// let descriptor = subscriber.descriptor()?;
    /// loop {
    ///     poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], None)?; // and the program's other descriptors
    ///     while let Some(event) = subscriber.try_next_event()? {
    ///         match event {
    ///             Event::Records(records) => println!("{records:?}"),
    ///             Event::StreamEnded { publishers_left: 0, .. } => return Ok(()),
    ///             _ => {}
    ///         }
    ///     }
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// The kernel has no more descriptors.
    pub fn descriptor(&mut self) -> Result<OwnedFd, Error> {
        let signal = match self.signal.take() {
            Some(signal) => signal,
            None => Signal::new()?,
        };
        self.signal.insert(signal).duplicate()
    }

    /// The next event, also of another publisher; if none is there, the task is woken when there may be.
    pub(crate) fn poll_event(&mut self, waker: &Waker) -> Poll<Result<Event, Error>> {
        if let Some(rest) = self.open.take() {
            return Poll::Ready(Ok(Event::Records(rest)));
        }
        loop {
            let incoming = match self.take_incoming() {
                Some(incoming) => incoming,
                None => ready!(self.client.poll(waker, |inner| inner.link.inbox.pop_front()))?,
            };
            if let Some(event) = self.event(incoming)? {
                self.note(&event);
                return Poll::Ready(Ok(event));
            }
        }
    }

    /// As [`Subscriber::next_batch`], for a task, which is woken when there may be more.
    #[cfg(feature = "futures")]
    pub(crate) fn poll_batch(&mut self, waker: &Waker) -> Poll<Result<Option<Records>, Error>> {
        loop {
            let event = match self.has_ended {
                // It waits for nothing.
                true => self.next_event(None)?,
                false => Some(ready!(self.poll_event(waker))?),
            };
            let is_end = match event {
                Some(Event::Records(records)) => return Poll::Ready(Ok(Some(records))),
                Some(other) => self.pass_over(other)?,
                None => true,
            };
            if is_end {
                return Poll::Ready(Ok(None));
            }
        }
    }

    /// As [`Subscriber::next_record`], for a task, which is woken when there may be more.
    #[cfg(feature = "futures")]
    pub(crate) fn poll_record(&mut self, waker: &Waker) -> Poll<Result<Option<ReceivedRecord>, Error>> {
        loop {
            if let Some(record) = self.take_open() {
                return Poll::Ready(Ok(Some(record)));
            }
            self.open = ready!(self.poll_batch(waker))?;
            if self.open.is_none() {
                return Poll::Ready(Ok(None));
            }
        }
    }

    /// Takes in what has arrived and nobody has taken in yet.
    fn look(&self) {
        self.client.look(|inner| (!inner.link.inbox.is_empty()).then_some(()));
    }

    /// The next event; without a timeout it waits as long as it takes, also for another publisher.
    fn await_event(&mut self, timeout: Option<Duration>) -> Result<Option<Event>, Error> {
        if let Some(rest) = self.open.take() {
            return Ok(Some(Event::Records(rest)));
        }
        loop {
            let Some(incoming) = self.await_incoming(timeout)? else { return Ok(None) };
            if let Some(event) = self.event(incoming)? {
                self.note(&event);
                return Ok(Some(event));
            }
        }
    }

    fn await_incoming(&mut self, timeout: Option<Duration>) -> Result<Option<Incoming>, Error> {
        match self.take_incoming() {
            Some(incoming) => Ok(Some(incoming)),
            None => self.client.wait(timeout, |inner| inner.link.inbox.pop_front()),
        }
    }

    /// The next arrival that was taken in before.
    fn take_incoming(&mut self) -> Option<Incoming> {
        self.pending.pop_front().or_else(|| {
            // The records that were given out last time are consumed by now.
            let consumed = std::mem::take(&mut self.consumed);
            let mut inner = self.client.shared.lock();
            inner.link.consumed_to(consumed);
            inner.link.inbox.pop_front()
        })
    }

    /// Counts what an event says.
    fn note(&mut self, event: &Event) {
        match event {
            Event::Records(_) | Event::Held { .. } | Event::Unreadable { .. } => {
                self.has_ended = false;
                self.has_begun = true;
            }
            Event::StreamEnded { publishers_left, .. } => self.has_ended = *publishers_left == 0,
            Event::Dropped { records, .. } => self.dropped += records,
            Event::Reconnected => self.reconnections += 1,
            Event::Missed { records, .. } => self.missed += records.unwrap_or(0),
            Event::Format(_) | Event::Readable { .. } => {}
        }
    }

    /// All events as an iterator, for programs that outlive the stream's publishers: it does not end when the stream does, but
    /// waits for the next publisher. It waits for each event as long as it takes, and its last item is the error that ended it.
    pub fn events(&mut self) -> impl Iterator<Item = Result<Event, Error>> + '_ {
        let mut ended = false;
        std::iter::from_fn(move || {
            if ended {
                return None;
            }
            let event = self.await_event(None).transpose();
            ended = !matches!(event, Some(Ok(_)));
            event
        })
    }

    /// The meaning of an arrival to the application; some only to this library.
    fn event(&mut self, incoming: Incoming) -> Result<Option<Event>, Error> {
        Ok(match incoming {
            Incoming::Records(arrived) => {
                self.consumed = arrived.data_end;
                let mut event = self.records(arrived)?;
                match &mut event {
                    Event::Records(records) => records.set_numbers(self.account.number(records.len())),
                    Event::Dropped { records, .. } => self.account.note(*records),
                    _ => {}
                }
                Some(event)
            }
            Incoming::Reconnected => Some(Event::Reconnected),
            Incoming::Subscribed { format, activity, position, number } => {
                self.number = number;
                self.subscribed_again(activity);
                let before = self.format.clone();
                let format = self.learn(&format)?;
                if before.as_ref() != Some(&format) {
                    self.pending.push_front(Incoming::Notice(Notice::Format {
                        subscription: SUBSCRIPTION,
                        format: format.describe(),
                    }));
                }
                let missed = self.account.begin(position.map(|position| *position));
                missed.map(|missed| self.missed_event(missed))
            }
            Incoming::Notice(Notice::Position { position, .. }) => {
                let missed = self.account.report(position);
                missed.map(|missed| self.missed_event(missed))
            }
            Incoming::Notice(Notice::Format { format, .. }) => Some(Event::Format(self.learn(&format)?)),
            Incoming::Notice(Notice::StreamEnded { publishers, lost, .. }) => {
                // The daemon counts anew for each session.
                self.lost = self.lost_before + lost;
                let lost = self.lost;
                Some(Event::StreamEnded { publishers_left: publishers, finished: lost == 0, lost })
            }
            Incoming::Notice(Notice::Dropped { records, cause, reason, .. }) => {
                self.account.note(records);
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
                | Notice::Durable { .. }
                | Notice::ConverterWanted { .. },
            )
            // A subscriber opens no mailboxes, and listens for no conversions.
            | Incoming::Opened(_)
            | Incoming::Message { .. } => None,
        })
    }

    /// Something was missed, which the daemon is to know too.
    fn missed_event(&self, missed: Missed) -> Event {
        let Missed { records, at_most } = missed;
        if let Some(records) = records {
            let report = Request::ReportMissed { subscription: SUBSCRIPTION, records };
            self.client.shared.lock().link.ask(report);
        }
        Event::Missed { records, at_most }
    }

    /// The subscription stands again after a lost connection. If the stream has ended meanwhile, nothing else reports that.
    fn subscribed_again(&mut self, activity: Activity) {
        let before = std::mem::replace(&mut self.activity, activity);
        self.lost_before = self.lost;
        // Without a publisher then and now, the first one is still waited for.
        let is_unused = !self.has_begun && before.publishers == Some(0) && before.records == activity.records;
        if activity.publishers == Some(0) && !self.has_ended && !is_unused {
            let end = Notice::StreamEnded { subscription: SUBSCRIPTION, publishers: 0, lost: 1 };
            self.pending.push_front(Incoming::Notice(end));
        }
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
        Ok(Event::Records(Records::new(format.clone(), bytes, payloads, count)))
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

mod class;
mod numbers;
mod opening;
mod query;
#[cfg(feature = "simulation")]
mod simulated;
#[cfg(feature = "simulation")]
pub use simulated::AskedQuery;
#[cfg(test)]
mod tests;
