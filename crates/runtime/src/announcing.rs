//! Announces the formats of streams, by sessions or by the daemon's configuration. The queries of a stream's
//! subscriptions are planned for a new format, off the core, before it is taken in; so no record of it comes before
//! that.

use crate::admission::QueryCostModel;
use crate::context::Context;
use crate::inbox::Inbox;
use crate::managers::request::ControlRequest;
use crate::net::peers::Publishing;
use crate::planner::Panicked;
use crate::refusal::{Stopped, fits_a_packet, refuse};
use crate::streams::{Sample, StreamFormat};
use crate::subscriptions::Planned;
use crossdock_format::Format;
use crossdock_query::Select;
use crossdock_transport::control::{Refusal, RefusalCode};
use crossdock_transport::{ControlMessage, Notice, Reply};
use std::collections::HashMap;

/// Announced stream numbers of one session at most.
const MAX_PUBLISHING: usize = 256;
/// Formats of one stream at most.
const MAX_FORMATS: usize = 64;
/// The longest name of a stream, in bytes.
const MAX_NAME_BYTES: usize = 255;
/// Times that an announcement waits for plans, while more and more subscriptions come. The subscriptions left after
/// that are planned in place, so that the announcement does not wait indefinitely.
const MAX_ROUNDS: u32 = 8;

/// A stream that a session announces.
pub(crate) struct Announcement {
    /// The request's number.
    pub(crate) id: u32,
    /// The session's number for the stream.
    pub(crate) number: u32,
    /// The stream's name.
    pub(crate) name: String,
    /// The description of its format.
    pub(crate) format: String,
}

/// A query to be planned for a format that its stream is to have: the subscription's id, and both.
pub(crate) type Unplanned = (u64, Select, Format);

/// Queries planned for formats that their streams are to have.
#[derive(Default)]
pub(crate) struct Plans {
    /// By the ids of subscription and format.
    planned: HashMap<(u64, u64), Planned>,
}

impl Plans {
    /// Plans queries, on a thread that has the time.
    pub(crate) fn add(&mut self, unplanned: Vec<Unplanned>) {
        let plan = |(id, select, format): Unplanned| ((id, format.id().0), Planned::new(&select, &format));
        self.planned.extend(unplanned.into_iter().map(plan));
    }

    fn has(&self, subscription: u64, format: &Format) -> bool {
        self.planned.contains_key(&(subscription, format.id().0))
    }

    fn take(&mut self, subscription: u64, format: &Format) -> Option<Planned> {
        self.planned.remove(&(subscription, format.id().0))
    }
}

impl Inbox {
    /// Plans the queries that read a stream, on this thread, for formats that the stream is to have.
    ///
    /// # Errors
    /// The context has stopped.
    pub(crate) fn plans(&self, stream: &str, formats: &[Format]) -> Result<Plans, Stopped> {
        let (name, formats) = (stream.to_owned(), formats.to_vec());
        let mut plans = Plans::default();
        plans.add(self.run(move |context| context.unplanned(&name, &formats, &Plans::default()))?);
        Ok(plans)
    }
}

impl Context {
    /// A stream by name, made if it is new.
    ///
    /// # Errors
    /// The name is none, or the table is full.
    pub(crate) fn stream_named(&mut self, name: &str) -> Result<usize, Refusal> {
        if name.is_empty() || name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
            let message = format!("a stream's name has 1 to {MAX_NAME_BYTES} bytes and no control characters");
            return Err(refuse(RefusalCode::State, message));
        }
        if self.streams.find(name).is_none() && self.streams.len() >= self.config.max_streams as usize {
            let message = format!("the daemon knows {} streams, its bound", self.config.max_streams);
            return Err(refuse(RefusalCode::Limit, message));
        }
        Ok(self.streams.find_or_make(name))
    }

    /// The queries that are still to be planned before a stream has these formats.
    pub(crate) fn unplanned(&self, name: &str, formats: &[Format], plans: &Plans) -> Vec<Unplanned> {
        let Some(stream) = self.streams.find(name).and_then(|key| self.streams.get(key)) else { return Vec::new() };
        let new = formats.iter().filter(|format| !stream.has_format(format.id()));
        let of_format = |format: &Format| {
            // Of one that says what it accepts, the ways are planned, not the query.
            let subscriptions = stream.subscriptions.iter().filter_map(|key| self.subscriptions.get(*key));
            let left = subscriptions.filter(|s| s.accept.is_none() && !plans.has(s.id, format));
            left.map(|s| (s.id, s.select.clone(), format.clone())).collect::<Vec<Unplanned>>()
        };
        new.flat_map(of_format).collect()
    }

    /// Makes a format known on a stream, and keeps it. Its subscriptions' queries have been planned for it; one of
    /// which none has is planned in place.
    pub(crate) fn declare(&mut self, name: &str, format: &Format, plans: &mut Plans) -> Result<usize, Refusal> {
        self.make_known(name, format, plans, true)
    }

    /// The same; a format that a handler makes is kept with the handler, and in the registry only where that knows its
    /// stream.
    pub(crate) fn make_known(
        &mut self,
        name: &str,
        format: &Format,
        plans: &mut Plans,
        keeps: bool,
    ) -> Result<usize, Refusal> {
        let key = self.stream_named(name)?;
        if keeps || self.morph.registry.stream(name).is_some() {
            self.keep_versions(key)?;
        }
        let Some(stream) = self.streams.get_mut(key) else { return Ok(key) };
        if stream.has_format(format.id()) {
            return Ok(key);
        }
        if stream.formats.len() >= MAX_FORMATS {
            let message = format!("stream `{name}` has {MAX_FORMATS} formats, the bound");
            return Err(refuse(RefusalCode::Limit, message));
        }
        let (was_left, is_kept) = (stream.morphing.graph.is_guarded(format.id()), stream.is_kept);
        if is_kept {
            self.note_version(name, format, was_left).inspect_err(|_| self.streams.forget_if_unused(key))?;
        }
        let Some(stream) = self.streams.get_mut(key) else { return Ok(key) };
        stream.formats.push(StreamFormat { format: format.clone(), sample: Sample::default() });
        if stream.claims > 0 {
            // The managers may have ended before.
            let _ = self.news.send(ControlRequest::NewFormat { stream: key as u32 });
        }
        for subscription in stream.subscriptions.clone() {
            self.take_plan(subscription, format, plans);
        }
        self.replan(key);
        Ok(key)
    }

    /// Takes a subscription's compiled query for one more format; the result is reported to the subscriber.
    fn take_plan(&mut self, key: usize, format: &Format, plans: &mut Plans) {
        let Some(subscription) = self.subscriptions.get_mut(key).filter(|s| s.accept.is_none()) else { return };
        let (peer, number) = (subscription.peer, subscription.number);
        let planned = plans.take(subscription.id, format);
        let planned = planned.unwrap_or_else(|| Planned::new(&subscription.select, format));
        let planned = subscription.add_planned(planned);
        let awaiting = subscription.awaiting.take();
        let message: ControlMessage = match (planned, awaiting) {
            (Ok(_), Some(id)) => return self.confirm_subscription(peer, id, number),
            (Ok(output), None) => Notice::Format { subscription: number, format: output.describe() }.into(),
            (Err(error), Some(id)) => {
                self.remove_subscription(key);
                Reply::Refused { id, refusal: refuse(RefusalCode::Query, error.to_string()) }.into()
            }
            (Err(error), None) => Notice::Unreadable { subscription: number, message: error.to_string() }.into(),
        };
        self.tell(peer, &message);
    }

    /// A session announces a stream. It is answered, and may publish, once all that reads the stream can.
    pub(crate) fn announce(&mut self, key: usize, announcement: Announcement) {
        let checked = Format::parse(&announcement.format)
            .map_err(|error| refuse(RefusalCode::Format, format!("the announced format is refused: {error}")))
            .and_then(|format| fits_a_packet(&format).map(|()| format));
        match checked {
            Ok(format) => self.take_announced(key, announcement, format, Plans::default(), 0),
            Err(refusal) => self.tell(key, &Reply::Refused { id: announcement.id, refusal }.into()),
        }
    }

    /// Takes an announced stream in, or has what reads it planned before.
    fn take_announced(
        &mut self,
        key: usize,
        announcement: Announcement,
        format: Format,
        mut plans: Plans,
        rounds: u32,
    ) {
        let unplanned = self.unplanned(&announcement.name, std::slice::from_ref(&format), &plans);
        if !unplanned.is_empty()
            && rounds < MAX_ROUNDS
            && let Some(peer) = self.pause(key)
        {
            let work = move |_: &mut QueryCostModel| {
                plans.add(unplanned);
                plans
            };
            let then = move |context: &mut Context, plans: Result<Plans, Panicked>| {
                let Some(key) = context.still_there(peer) else { return };
                match plans {
                    Ok(plans) => context.take_announced(key, announcement, format, plans, rounds + 1),
                    Err(panicked) => {
                        let refusal = refuse(RefusalCode::State, format!("stream `{}`: {panicked}", announcement.name));
                        context.tell(key, &Reply::Refused { id: announcement.id, refusal }.into());
                        context.resume(key);
                    }
                }
            };
            return self.plan(work, then);
        }
        let id = announcement.id;
        let reply = match self.publish(key, &announcement, format, plans) {
            Ok(()) => Reply::Done { id },
            Err(refusal) => Reply::Refused { id, refusal },
        };
        self.tell(key, &ControlMessage::Reply(reply));
        if rounds > 0 {
            self.resume(key);
        }
    }

    /// A session publishes a stream in a format from now on.
    fn publish(&mut self, key: usize, of: &Announcement, format: Format, mut plans: Plans) -> Result<(), Refusal> {
        let number = of.number;
        self.check_publishable(&of.name)?;
        let stream = self.declare(&of.name, &format, &mut plans)?;
        let Some(peer) = self.peers.get_mut(key) else { return Ok(()) };
        if peer.publishing.iter().any(|p| p.number == number && p.stream != stream) {
            let message = format!("stream number {number} already stands for another stream in this session");
            return Err(refuse(RefusalCode::State, message));
        }
        let again = peer.publishing.iter().any(|p| p.number == number && p.format.id() == format.id());
        if !again && peer.publishing.len() >= MAX_PUBLISHING {
            let message = format!("this session has announced {MAX_PUBLISHING} streams and formats, the bound");
            return Err(refuse(RefusalCode::Limit, message));
        }
        if !again {
            peer.publishing.push(Publishing { number, stream, format });
        }
        if let Some(stream) = self.streams.get_mut(stream)
            && !stream.publishers.contains(&key)
        {
            stream.publishers.push(key);
        }
        Ok(())
    }
}
