//! Requests to the managers, by the rest of the daemon and by contexts; and the queue in which they wait.

use crate::elsewhere::Elsewhere;
use crate::graph::{ContextIndex, NodeId};
use crate::info::{AppliedInfo, PlanInfo};
use crate::managers::estimated::QueryEstimate;
use crate::managers::measure::Measured;
use crate::managers::spec::HandlerSpec;
use crate::refusal::Stopped;
use crate::streams::StreamFacts;
use crossdock_engine::NativeKind;
use crossdock_format::Format;
use crossdock_query::{KeyedState, Select, StatefulQuery, TopN};
use crossdock_transport::control::RowErrors;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A change of the wanted handlers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ChangeRequest {
    /// A new handler.
    Deploy(HandlerSpec),
    /// Another version of a handler that is there.
    Swap(HandlerSpec),
    /// Other values of some of a handler's parameters.
    SetParameters {
        /// Its name.
        handler: String,
        /// By name; the others stay.
        parameters: BTreeMap<String, String>,
    },
    /// Another place for a handler; any that it fits when absent.
    Move {
        /// Its name.
        handler: String,
        /// A context's name.
        place: Option<String>,
    },
    /// One handler less.
    Remove {
        /// Its name.
        handler: String,
    },
    /// These handlers and no others.
    All(Vec<HandlerSpec>),
    /// New handlers, which come together: the parts of one query. It is none of the control API's requests.
    #[serde(skip)]
    Parts(Vec<HandlerSpec>),
}

/// A request to the managers.
pub(crate) enum ControlRequest {
    Change {
        change: ChangeRequest,
        discard_state: bool,
        to: oneshot::Sender<Result<AppliedInfo, PlanInfo>>,
    },
    Plan {
        change: ChangeRequest,
        discard_state: bool,
        to: oneshot::Sender<PlanInfo>,
    },
    /// From the context: a stream that handlers read has one more format. From the managers themselves: it may have, for this
    /// reader.
    NewFormat {
        stream: u32,
        reader: Option<String>,
    },
    /// The place and cost of a query with state, for `explain`.
    EstimateQuery {
        query: Box<SharedQuery>,
        to: oneshot::Sender<QueryEstimate>,
    },
    /// From the context: a subscription's query is to run elsewhere, since the context has no time for it.
    PlaceQuery(Box<Query>),
    /// From the context: a subscription is to read the state of a stream.
    ReadState(Box<StateRead>),
    /// From an I/O context: a publisher declares the key of its stream.
    DeclareKey(Box<KeyDeclaration>),
    /// From the context: a subscription that reads the state which this handler keeps is in its place.
    WalkState {
        handler: String,
        /// The columns of the key by which its query was planned.
        key: Vec<String>,
    },
    /// From the context: `uses` subscriptions whose query this handler runs have gone.
    RemoveQuery {
        handler: String,
        uses: u32,
    },
    /// From an I/O context: a stream is to be led from or to its sessions. Each session has one such request under way at most.
    Connect(Box<Connection>),
    /// From an I/O context: a stream need not be led there any more.
    Disconnect(Flow),
    /// From an I/O context: an event, in words.
    Event(EventKind, ContextIndex, String),
    /// One more kind of native handler.
    AddNative {
        kind: Box<NativeKind>,
        to: oneshot::Sender<()>,
    },
    /// Answered once the kept handlers are restored.
    Restored(oneshot::Sender<()>),
    /// From the managers themselves: a handler's overload rule is to be measured.
    MeasureRule(String),
    /// From the managers themselves: this version of a handler panicked or did not return, and is to be restarted.
    Restart {
        handler: String,
        node: NodeId,
        version: u32,
    },
    /// From a thread that measures: what a request waits for, by the request's number.
    Measured {
        request: u64,
        measured: Vec<Measured>,
    },
    Stop,
}

/// The continuation of a query that is to run elsewhere: a query that takes all of its handler's stream and the use of that
/// handler, or the reason why there is no handler.
pub(crate) type Placed = Box<dyn FnOnce(Result<(Select, Elsewhere), String>) + Send>;

/// A key that a publisher declares for its stream.
pub(crate) struct KeyDeclaration {
    /// The stream, in the spelling of the catalog.
    pub(crate) stream: String,
    /// The columns of the key.
    pub(crate) key: Vec<String>,
    /// Whether it was found to be allowed to declare a new one; else the stream had a key.
    pub(crate) may_declare: bool,
    /// Called on the managers' thread once the stream has this key, or with why it does not get it.
    pub(crate) then: KeyDeclared,
}

/// The continuation of a publisher's announcement whose key is declared.
pub(crate) type KeyDeclared = Box<dyn FnOnce(Result<(), String>) + Send>;

/// A subscription that is to read the state of a stream.
pub(crate) struct StateRead {
    /// The stream, in the spelling of the catalog.
    pub(crate) stream: String,
    /// The rows that it keeps in order, if it does.
    pub(crate) top: Option<TopN>,
    /// Whether it keeps changes while its subscriber is slow.
    pub(crate) keeps_changes: bool,
    /// Called on the managers' thread with the state and the use of its handler, or with why there is none.
    pub(crate) then: StateFound,
}

/// The continuation of a subscription that reads a state.
pub(crate) type StateFound = Box<dyn FnOnce(Result<(KeyedState, Elsewhere), String>) + Send>;

/// A query that is to run elsewhere.
pub(crate) struct Query {
    /// Its subscription's id.
    pub(crate) subscription: u64,
    /// Its text.
    pub(crate) sql: String,
    /// Its treatment of a record that it cannot compute.
    pub(crate) row_errors: RowErrors,
    /// The streams that it reads, in the spelling of the catalog.
    pub(crate) streams: Vec<String>,
    /// Set where subscribers with the same query share its handler.
    pub(crate) shared: Option<SharedQuery>,
    /// Called with the outcome, on the managers' thread.
    pub(crate) then: Placed,
}

/// A query with state, and all that its rows depend on beside its streams: equal ones share a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SharedQuery {
    /// Its text, with one space for each between its words.
    pub(crate) sql: String,
    pub(crate) streams: Vec<String>,
    /// The views that it reads streams through, by stream.
    pub(crate) views: BTreeMap<String, String>,
    pub(crate) null_for_errors: bool,
    /// The most bytes that its state may take, which its text says.
    pub(crate) max_state_bytes: u64,
}

impl SharedQuery {
    /// A query over these streams, in the spelling of the catalog, with its views, without the clauses of its subscription.
    pub(crate) fn of(query: &StatefulQuery, streams: &[String], null_for_errors: bool) -> SharedQuery {
        let view = |stream: &str| Some((stream.to_owned(), query.view(stream)?.sql().to_owned()));
        let read = streams.iter().map(String::as_str).chain(query.tables());
        SharedQuery {
            sql: query.own_sql().into_owned(),
            streams: streams.to_vec(),
            views: read.filter_map(view).collect(),
            null_for_errors,
            max_state_bytes: query.max_state_bytes() as u64,
        }
        .with_single_spaces()
    }

    /// The same with one space for each between the words of its text. One with comments, or with texts that are not in plain quotes,
    /// stays as it is.
    pub(crate) fn with_single_spaces(self) -> SharedQuery {
        SharedQuery { sql: with_single_spaces(&self.sql), ..self }
    }
}

/// A flow of a stream: what sessions of an I/O context publish of a stream to all that take it, or what is published
/// anywhere to its sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Flow {
    pub(crate) stream: u32,
    /// The I/O context.
    pub(crate) at: ContextIndex,
    /// Whether its sessions publish the stream, rather than take it.
    pub(crate) is_publishing: bool,
}

/// A stream that is to be led somewhere.
pub(crate) struct Connection {
    pub(crate) flow: Flow,
    /// Formats in which it is published there: the I/O contexts that see it take them in before.
    pub(crate) formats: Vec<Format>,
    /// Called with what the I/O contexts know of the stream, on the managers' thread, or with why it is not led there.
    pub(crate) then: Box<dyn FnOnce(Result<Option<StreamFacts>, String>) + Send>,
}

/// The name of the handler that runs a subscription's query, and of the stream that it makes.
pub(crate) fn handler_of(subscription: u64) -> String {
    format!("subscription-{subscription}")
}

/// A query's text with one space for each between its words, so that equal ones are found to be. One with comments, or with texts that
/// are not in plain quotes, stays as it is.
fn with_single_spaces(sql: &str) -> String {
    if ["--", "/*", "$", "\\"].iter().any(|mark| sql.contains(mark)) {
        return sql.to_owned();
    }
    let (mut text, mut within, mut waits) = (String::with_capacity(sql.len()), None, false);
    for c in sql.trim().chars() {
        match within {
            Some(quote) if c == quote => within = None,
            Some(_) => {}
            None if c == '\'' || c == '"' => within = Some(c),
            None if c.is_whitespace() => {
                waits = true;
                continue;
            }
            None => {}
        }
        if std::mem::take(&mut waits) {
            text.push(' ');
        }
        text.push(c);
    }
    text
}

/// The kinds of events that I/O contexts report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EventKind {
    /// A subscription's query fits nowhere.
    Refused,
    /// A subscription's query has panicked.
    Failed,
    /// Records did not reach a subscriber.
    Dropped,
    /// A subscriber has come back, and has missed records.
    Missed,
    /// A peer was disconnected.
    Disconnected,
    /// A subscriber that takes nothing has a stream's publishers wait.
    Blocked,
    /// A client has gone without finishing what it published, or without ending its subscriptions.
    Gone,
}

impl EventKind {
    /// The event's kind.
    pub(crate) fn word(self) -> &'static str {
        match self {
            EventKind::Refused => "refused",
            EventKind::Failed => "failed",
            EventKind::Dropped => "dropped",
            EventKind::Missed => "missed",
            EventKind::Disconnected => "disconnected",
            EventKind::Blocked => "blocked",
            EventKind::Gone => "gone",
        }
    }
}

/// Requests that may wait for the managers.
const MAX_REQUESTS: usize = 256;
/// Events of one kind that may wait with their texts; of more, the number is kept.
const MAX_EVENTS_OF_A_KIND: usize = 64;

/// Why something that a context reports or wants was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotTaken {
    /// There is no place for it.
    #[error("{} requests wait for the managers already: try again later", MAX_REQUESTS)]
    Full,
    /// The managers have stopped.
    #[error(transparent)]
    Stopped(Stopped),
}

/// The requests that wait for the managers. They are bounded: a caller waits for a place, while what contexts report is
/// merged where it is about the same, and refused otherwise. So a context never waits for the managers, who wait for
/// contexts.
#[derive(Default)]
pub(crate) struct RequestQueue {
    waiting: Mutex<Waiting>,
    has_come: Condvar,
    has_place: Condvar,
}

#[derive(Default)]
struct Waiting {
    requests: VecDeque<ControlRequest>,
    /// Reports of contexts, merged.
    new_formats: BTreeSet<(u32, Option<String>)>,
    removed_queries: BTreeMap<String, u32>,
    walked_states: BTreeSet<(String, Vec<String>)>,
    disconnected: BTreeSet<Flow>,
    /// As many as there are sessions, at most.
    connections: VecDeque<ControlRequest>,
    /// Events, merged by their kinds.
    events: BTreeMap<EventKind, Merged>,
    /// The measurements. There are as many as are measured at a time.
    measured: Vec<ControlRequest>,
    is_stopping: bool,
    /// Nothing is taken any more.
    is_closed: bool,
}

/// Events of one kind that wait: as many as there is room for, and how many came after them.
#[derive(Default)]
struct Merged {
    texts: VecDeque<(ContextIndex, String)>,
    others: u64,
}

impl Merged {
    fn add(&mut self, at: ContextIndex, text: String) {
        match self.texts.len() < MAX_EVENTS_OF_A_KIND {
            true => self.texts.push_back((at, text)),
            false => self.others += 1,
        }
    }

    /// The first, and with the last how many others there were.
    fn take(&mut self) -> Option<(ContextIndex, String)> {
        let (at, text) = self.texts.pop_front()?;
        match self.others {
            others @ 1.. if self.texts.is_empty() => {
                self.others = 0;
                Some((at, format!("{text} (and {others} more after it)")))
            }
            _ => Some((at, text)),
        }
    }
}

impl Waiting {
    fn next(&mut self) -> Option<ControlRequest> {
        if self.is_stopping {
            return Some(ControlRequest::Stop);
        }
        let measured = self.measured.pop();
        let report = || {
            let format = self.new_formats.pop_first();
            let format = format.map(|(stream, reader)| ControlRequest::NewFormat { stream, reader });
            let query = || {
                let (handler, uses) = self.removed_queries.pop_first()?;
                Some(ControlRequest::RemoveQuery { handler, uses })
            };
            let walk = || {
                let (handler, key) = self.walked_states.pop_first()?;
                Some(ControlRequest::WalkState { handler, key })
            };
            let flow = || self.disconnected.pop_first().map(ControlRequest::Disconnect);
            let connection = || self.connections.pop_front();
            let event = || {
                self.events.retain(|_, merged| !merged.texts.is_empty());
                let (kind, merged) = self.events.iter_mut().next()?;
                merged.take().map(|(at, text)| ControlRequest::Event(*kind, at, text))
            };
            format.or_else(query).or_else(walk).or_else(flow).or_else(connection).or_else(event)
        };
        measured.or_else(report).or_else(|| self.requests.pop_front())
    }
}

impl RequestQueue {
    /// Whether a request waits that may change what runs.
    pub(crate) fn has_waiting(&self) -> bool {
        let waiting = self.waiting();
        let has_reports = !waiting.new_formats.is_empty() || !waiting.walked_states.is_empty();
        let has_requests =
            !waiting.requests.is_empty() || !waiting.connections.is_empty() || !waiting.measured.is_empty();
        has_reports || has_requests || !waiting.removed_queries.is_empty()
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts in a caller's request; waits for a place.
    ///
    /// # Errors
    /// [`Stopped`].
    pub(crate) fn ask(&self, request: ControlRequest) -> Result<(), Stopped> {
        let is_full = |waiting: &mut Waiting| !waiting.is_closed && waiting.requests.len() >= MAX_REQUESTS;
        let mut waiting = self.has_place.wait_while(self.waiting(), is_full).unwrap_or_else(PoisonError::into_inner);
        if waiting.is_closed {
            return Err(Stopped::default());
        }
        waiting.requests.push_back(request);
        self.has_come.notify_one();
        Ok(())
    }

    /// Puts in what a context reports or wants, without a wait.
    ///
    /// # Errors
    /// There is no place for it, or the managers have stopped.
    pub(crate) fn send(&self, request: ControlRequest) -> Result<(), NotTaken> {
        let mut waiting = self.waiting();
        if waiting.is_closed {
            return Err(NotTaken::Stopped(Stopped::default()));
        }
        match request {
            ControlRequest::NewFormat { stream, reader } => drop(waiting.new_formats.insert((stream, reader))),
            ControlRequest::RemoveQuery { handler, uses } => {
                *waiting.removed_queries.entry(handler).or_default() += uses;
            }
            ControlRequest::WalkState { handler, key } => drop(waiting.walked_states.insert((handler, key))),
            ControlRequest::Disconnect(flow) => drop(waiting.disconnected.insert(flow)),
            ControlRequest::Connect(_) => waiting.connections.push_back(request),
            ControlRequest::Event(kind, at, text) => waiting.events.entry(kind).or_default().add(at, text),
            ControlRequest::Measured { .. } => waiting.measured.push(request),
            _ if waiting.requests.len() >= MAX_REQUESTS => return Err(NotTaken::Full),
            other => waiting.requests.push_back(other),
        }
        self.has_come.notify_one();
        Ok(())
    }

    /// Has the managers stop, before what waits.
    pub(crate) fn stop(&self) {
        self.waiting().is_stopping = true;
        self.has_come.notify_one();
    }

    /// Takes what comes next, within a time.
    pub(crate) fn take(&self, within: Duration) -> Option<ControlRequest> {
        let until = crossdock_device::now() + within;
        let mut waiting = self.waiting();
        loop {
            let was_full = waiting.requests.len() >= MAX_REQUESTS;
            if let Some(next) = waiting.next() {
                if was_full {
                    self.has_place.notify_one();
                }
                return Some(next);
            }
            let left = until.checked_duration_since(crossdock_device::now()).filter(|left| !left.is_zero())?;
            waiting = self.has_come.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Requests are no longer accepted; callers get an error.
    pub(crate) fn close(&self) {
        let mut waiting = self.waiting();
        let left = std::mem::take(&mut *waiting);
        waiting.is_closed = true;
        drop(waiting);
        drop(left);
        self.has_place.notify_all();
    }
}

impl std::fmt::Debug for RequestQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RequestQueue").finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn restored() -> (ControlRequest, oneshot::Receiver<()>) {
        let (to, wait) = oneshot::channel();
        (ControlRequest::Restored(to), wait)
    }

    fn query(subscription: u64) -> ControlRequest {
        ControlRequest::PlaceQuery(Box::new(Query {
            subscription,
            sql: String::new(),
            row_errors: RowErrors::Skip,
            streams: Vec::new(),
            shared: None,
            then: Box::new(drop),
        }))
    }

    fn now(queue: &RequestQueue) -> Option<ControlRequest> {
        queue.take(Duration::ZERO)
    }

    #[test]
    fn reports_of_contexts_are_merged_whatever_their_number() {
        let queue = RequestQueue::default();
        for number in 0..100_000 {
            assert!(queue.send(ControlRequest::NewFormat { stream: number % 3, reader: None }).is_ok());
            assert!(
                queue
                    .send(ControlRequest::Event(EventKind::Refused, ContextIndex(0), format!("the {number}th")))
                    .is_ok()
            );
            assert!(queue.send(ControlRequest::Event(EventKind::Failed, ContextIndex(0), "a flaw".to_owned())).is_ok());
            let handler = format!("q{}", number % 2);
            assert!(queue.send(ControlRequest::RemoveQuery { handler, uses: 1 }).is_ok());
        }
        for stream in 0..3 {
            assert!(matches!(now(&queue), Some(ControlRequest::NewFormat { stream: found, .. }) if found == stream));
        }
        for name in ["q0", "q1"] {
            let is_it = |next: &ControlRequest| matches!(next, ControlRequest::RemoveQuery { handler, uses: 50_000 } if handler == name);
            assert!(now(&queue).is_some_and(|next| is_it(&next)));
        }
        let most = MAX_EVENTS_OF_A_KIND as u64;
        let mut events = std::iter::from_fn(|| match now(&queue) {
            Some(ControlRequest::Event(kind, _, text)) => Some((kind, text)),
            _ => None,
        });
        for number in 0..most {
            let others = format!(" (and {} more after it)", 100_000 - most);
            let wanted = format!("the {number}th{}", if number + 1 == most { &others } else { "" });
            assert_eq!(events.next(), Some((EventKind::Refused, wanted)));
        }
        assert_eq!(events.filter(|(kind, _)| *kind == EventKind::Failed).count() as u64, most);
        assert!(now(&queue).is_none());
    }

    #[test]
    fn a_full_queue_refuses_a_context_and_has_a_caller_wait() {
        let queue = Arc::new(RequestQueue::default());
        for subscription in 0..MAX_REQUESTS as u64 {
            assert!(queue.send(query(subscription)).is_ok());
        }
        assert_eq!(queue.send(query(7777)), Err(NotTaken::Full));
        let (request, _wait) = restored();
        let asking = {
            let queue = Arc::clone(&queue);
            std::thread::spawn(move || queue.ask(request))
        };
        // An event that can be merged always has a place.
        assert!(queue.send(ControlRequest::NewFormat { stream: 1, reader: None }).is_ok());
        assert!(matches!(now(&queue), Some(ControlRequest::NewFormat { stream: 1, .. })));
        for subscription in 0..MAX_REQUESTS as u64 {
            let Some(ControlRequest::PlaceQuery(query)) = now(&queue) else { panic!("a query is next") };
            assert_eq!(query.subscription, subscription);
        }
        assert!(matches!(queue.take(Duration::from_secs(600)), Some(ControlRequest::Restored(_))));
        assert!(asking.join().unwrap().is_ok());
    }

    #[test]
    fn all_callers_hear_that_the_managers_have_stopped() {
        let queue = Arc::new(RequestQueue::default());
        (0..MAX_REQUESTS as u64).for_each(|number| assert!(queue.send(query(number)).is_ok()));
        let callers: Vec<_> = (0..3)
            .map(|_| {
                let queue = Arc::clone(&queue);
                std::thread::spawn(move || queue.ask(restored().0))
            })
            .collect();
        queue.stop();
        assert!(matches!(now(&queue), Some(ControlRequest::Stop)));
        queue.close();
        callers.into_iter().for_each(|caller| assert!(caller.join().unwrap().is_err()));
        assert_eq!(queue.send(query(1)), Err(NotTaken::Stopped(Stopped::default())));
    }

    #[test]
    fn queries_are_the_same_that_differ_in_the_space_between_words() {
        let wanted = "SELECT 'a  b', \"c  d\" FROM s";
        assert_eq!(with_single_spaces("  SELECT 'a  b',\n\t\"c  d\"   FROM s "), wanted);
        assert_ne!(with_single_spaces("SELECT 'a b', \"c  d\" FROM s"), wanted);
        for kept in
            ["SELECT a -- b\n FROM s", "SELECT /* a */  b FROM s", "SELECT $$a  b$$ FROM s", "SELECT E'\\'  ' FROM s"]
        {
            assert_eq!(with_single_spaces(kept), kept);
        }
        // Two quotes in a text are one.
        assert_eq!(with_single_spaces("SELECT 'it''s  so'  FROM s"), "SELECT 'it''s  so' FROM s");
    }
}
