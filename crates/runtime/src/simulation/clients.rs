//! The applications: a publisher that sends bursts of records, and a subscriber that takes some events at a time.

use super::model::{Judge, Model, Published, Query, format, record, stream_name};
use crossdock_format::{RecordBuilder, Value};
use crossdock_nectarine::{
    Announcement, AskedQuery, DropCause, Event, NodeRoute, PrivateKey, PublicKey, Publisher, SimulatedDevice,
    Subscriber,
};
use crossdock_sim::Rng;
use std::time::Duration;

/// The time until an application looks again that could not go on, in ns.
const AGAIN_NS: u64 = 1_000_000;

/// How a client reaches the daemon.
#[derive(Clone, Debug)]
pub(super) struct ClientAccess {
    pub(super) daemon: String,
    pub(super) device: SimulatedDevice,
    /// The client's key and the daemon's, of a secure session.
    pub(super) keys: Option<(PrivateKey, PublicKey)>,
    /// The route to the daemon, of a client that reaches it by another one.
    pub(super) route: Option<NodeRoute>,
}

/// Sets what both builders have in common.
macro_rules! over {
    ($builder:expr, $access:expr) => {{
        let builder = $builder.simulated(&$access.device).wait_for_daemon(true);
        let builder = match $access.keys.clone() {
            Some((own, daemon)) => builder.keys(own, daemon),
            None => builder,
        };
        match $access.route.clone() {
            Some(route) => builder.route(route),
            None => builder,
        }
    }};
}

/// The progress of a publisher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Announcing,
    Publishing,
    Finishing,
    Finished,
}

/// An application that publishes.
pub(super) struct PublisherApp {
    pub(super) id: usize,
    publisher: Option<Publisher>,
    announcement: Announcement,
    pub(super) stage: Stage,
    row: RecordBuilder,
    /// Records of a burst at most, and the time between two bursts, in ns.
    burst: usize,
    interval_ns: u64,
    next_ns: u64,
    /// Whether it makes no new records until it is let go on.
    pub(super) rests: bool,
}

impl PublisherApp {
    /// A publisher of a stream, which has begun to connect.
    pub(super) fn begin(
        access: &ClientAccess,
        stream: usize,
        (burst, interval_ns): (usize, u64),
        model: &mut Model,
    ) -> PublisherApp {
        let builder = Publisher::builder(&*access.daemon).stream(stream_name(stream)).format(&format());
        let (publisher, announcement) = over!(builder, access).begin().expect("it begins to connect");
        model.publishers.push(Published {
            stream,
            handed: 0,
            settled: 0,
            is_sound: true,
            repeats_from: None,
            times_ns: Vec::new(),
        });
        PublisherApp {
            id: model.publishers.len() - 1,
            publisher: Some(publisher),
            announcement,
            stage: Stage::Announcing,
            row: RecordBuilder::new(&format()),
            burst,
            interval_ns,
            next_ns: 0,
            rests: false,
        }
    }

    /// Whether all that was handed over is acknowledged.
    pub(super) fn is_settled(&self, model: &Model) -> bool {
        self.stage != Stage::Announcing && model.publishers[self.id].settled == model.publishers[self.id].handed
    }

    /// Finishes the stream, from the next turn on.
    pub(super) fn finish(&mut self) {
        if self.stage == Stage::Publishing {
            self.stage = Stage::Finishing;
        }
    }

    /// Goes on; in how many ns it is due.
    fn turn(&mut self, now_ns: u64, rng: &mut Rng, model: &mut Model) -> u64 {
        let Some(publisher) = &mut self.publisher else { return u64::MAX };
        publisher.go_on();
        let of = &mut model.publishers[self.id];
        match self.stage {
            Stage::Announcing => {
                if publisher
                    .is_announced(&self.announcement)
                    .unwrap_or_else(|error| panic!("publisher {}: {error}", self.id))
                {
                    (self.stage, self.next_ns) = (Stage::Publishing, now_ns + rng.u64(..=self.interval_ns));
                }
            }
            Stage::Publishing if !self.rests && now_ns >= self.next_ns => {
                for _ in 0..rng.usize(1..=self.burst) {
                    let bytes = record(&mut self.row, self.id, of.handed);
                    if !publisher.try_publish(&bytes).unwrap_or_else(|error| panic!("publisher {}: {error}", self.id)) {
                        break;
                    }
                    of.handed += 1;
                    of.times_ns.push(now_ns);
                }
                self.next_ns = now_ns + rng.u64(..=2 * self.interval_ns);
            }
            Stage::Finishing => {
                if publisher.try_finish().unwrap_or_else(|error| panic!("publisher {}: {error}", self.id)) {
                    (self.stage, of.settled) = (Stage::Finished, of.handed);
                    self.publisher = None;
                    return u64::MAX;
                }
            }
            Stage::Publishing | Stage::Finished => {}
        }
        if self.stage == Stage::Publishing
            && (self.rests || rng.u8(..8) == 0)
            && publisher.is_settled().unwrap_or_else(|error| panic!("publisher {}: {error}", self.id))
        {
            of.settled = of.handed;
        }
        let due_ns = publisher.go_on();
        match self.stage {
            Stage::Publishing if !self.rests => due_ns.min(self.next_ns.saturating_sub(now_ns)),
            _ => due_ns.min(20 * AGAIN_NS),
        }
    }
}

/// An application that subscribes.
pub(super) struct SubscriberApp {
    pub(super) id: usize,
    pub(super) stream: usize,
    pub(super) query: Query,
    subscriber: Subscriber,
    is_subscribed: bool,
    pub(super) judge: Judge,
    /// Events that it takes in a turn, and the time between two turns, in ns.
    at_once: usize,
    interval_ns: u64,
    next_ns: u64,
    /// Whether the stream's last publisher has gone, as far as is known.
    pub(super) has_ended: bool,
    /// Another query that it is to have, and whether it has asked the daemon for that.
    wanted: Option<(Query, Option<AskedQuery>)>,
    /// How often it got another query.
    pub(super) queries: u64,
}

impl SubscriberApp {
    /// A subscriber to a stream, which has begun to connect.
    pub(super) fn begin(
        access: &ClientAccess,
        (id, stream, query): (usize, usize, Query),
        (at_once, interval_ns): (usize, u64),
    ) -> SubscriberApp {
        let builder =
            Subscriber::builder(&*access.daemon).sql(query.sql(stream)).wait_for_stream(Duration::from_secs(3600));
        SubscriberApp {
            id,
            stream,
            query,
            subscriber: over!(builder, access).begin().expect("it begins to connect"),
            is_subscribed: false,
            judge: Judge::new(stream, query),
            at_once,
            interval_ns,
            next_ns: 0,
            has_ended: false,
            wanted: None,
            queries: 0,
        }
    }

    /// Has it get another query, unless it is about to get one.
    pub(super) fn change_query(&mut self, query: Query) {
        let (query, _) = *self.wanted.get_or_insert((query, None));
        self.judge.expect_query(query);
    }

    /// Whether it is to get another query.
    pub(super) fn is_changing(&self) -> bool {
        self.wanted.is_some()
    }

    /// Asks for the query that it is to have. A daemon refuses it while a snapshot by the query before is under way, and where the session is
    /// lost nobody answers: it asks again then.
    fn go_on_changing(&mut self) {
        let Some((query, asked)) = self.wanted.take() else { return };
        let outcome = match asked {
            None => self.subscriber.begin_query(query.sql(self.stream)).map(Some),
            Some(asked) => self.subscriber.has_query(&asked).map(|has_it| (!has_it).then_some(asked)),
        };
        match outcome {
            Ok(None) => {
                (self.query, self.queries) = (query, self.queries + 1);
                self.judge.change_query(query);
            }
            Ok(asked) => self.wanted = Some((query, asked)),
            Err(_) => self.wanted = Some((query, None)),
        }
    }

    /// Goes on; in how many ns it is due.
    fn turn(&mut self, now_ns: u64, rng: &mut Rng, model: &Model) -> u64 {
        let due_ns = self.take_events(now_ns, rng, model);
        if self.is_subscribed {
            self.go_on_changing();
        }
        if self.is_changing() { self.subscriber.go_on().min(due_ns).min(20 * AGAIN_NS) } else { due_ns }
    }

    fn take_events(&mut self, now_ns: u64, rng: &mut Rng, model: &Model) -> u64 {
        self.subscriber.go_on();
        let failed =
            |error: &dyn std::fmt::Display| -> ! { panic!("subscriber {} ({:?}): {error}", self.id, self.query) };
        if !self.is_subscribed {
            match self.subscriber.is_subscribed() {
                Ok(true) => {
                    self.is_subscribed = true;
                    self.judge.begin(model);
                }
                Ok(false) => return self.subscriber.go_on().min(20 * AGAIN_NS),
                Err(error) => failed(&error),
            }
        }
        if now_ns < self.next_ns {
            return self.subscriber.go_on().min(self.next_ns - now_ns);
        }
        for _ in 0..rng.usize(1..=self.at_once) {
            match self.subscriber.try_next_event() {
                Ok(Some(event)) => {
                    take(&mut self.judge, &mut self.has_ended, event, model).unwrap_or_else(|why| failed(&why));
                }
                Ok(None) => {
                    self.next_ns = 0;
                    return self.subscriber.go_on();
                }
                Err(error) => failed(&error),
            }
        }
        self.next_ns = now_ns + rng.u64(..=self.interval_ns);
        self.subscriber.go_on().min(self.next_ns - now_ns)
    }

    /// Records that the library says were missed; none if it does not know the number.
    pub(super) fn reported_missed(&self) -> Option<u64> {
        (self.subscriber.uncounted_publishers() == 0).then(|| self.subscriber.missed())
    }
}

/// Judges an event.
fn take(judge: &mut Judge, has_ended: &mut bool, event: Event, model: &Model) -> Result<(), String> {
    match event {
        Event::Records(records) => {
            *has_ended = false;
            for (at, record) in records.iter().enumerate() {
                let field = |name: &str| match record.field(name)? {
                    Value::Text(text) if name == "_change" => text.first().copied().map(i64::from),
                    Value::Uint(value) => Some(value as i64),
                    Value::Int(value) | Value::Timestamp(value) => Some(value),
                    Value::Text(text) => Some(text.len() as i64),
                    // The columns that have changed, by their bits.
                    Value::Bytes(bytes) => bytes.first().copied().map(i64::from),
                    Value::Decimal { unscaled, scale: 0 } => i64::try_from(unscaled).ok(),
                    _ => None,
                };
                judge.take(model, at < records.repeated(), field)?;
            }
        }
        Event::Reconnected => judge.reconnect(model),
        Event::StreamEnded { publishers_left, .. } => *has_ended = publishers_left == 0,
        // A later change of the same row has come in place of each.
        Event::Dropped { cause: DropCause::Conflated, .. } if judge.conflates() => {}
        Event::Dropped { records, reason, .. } => return Err(format!("{records} records were dropped: {reason}")),
        Event::Unreadable { message } => return Err(format!("unreadable: {message}")),
        Event::Held { message, .. } => return Err(format!("held: {message}")),
        Event::Format(_) | Event::Readable { .. } | Event::Missed { .. } => {}
    }
    Ok(())
}

/// A client's application.
pub(super) enum App {
    Publisher(Box<PublisherApp>),
    Subscriber(Box<SubscriberApp>),
}

impl App {
    /// Goes on; in how many ns it is due.
    pub(super) fn turn(&mut self, now_ns: u64, rng: &mut Rng, model: &mut Model) -> u64 {
        match self {
            App::Publisher(publisher) => publisher.turn(now_ns, rng, model),
            App::Subscriber(subscriber) => subscriber.turn(now_ns, rng, model),
        }
    }
}
