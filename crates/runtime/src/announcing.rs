//! Announces the formats of streams. The catalog has a new format first; a context takes it in once the queries of the
//! stream's subscriptions there are planned for it, off the core. No record of it comes before that, since its
//! publisher is answered then.

use crate::admission::QueryCostModel;
use crate::catalog::{Catalog, Snapshot};
use crate::context::Context;
use crate::graph::Graph;
use crate::inbox::{AwaitedFormats, Inbox};
use crate::managers::request::ControlRequest;
use crate::morph::routes::{RoutePlan, RouteRequest};
use crate::net::Net;
use crate::net::peers::Publishing;
use crate::pending::Pending;
use crate::publications::Taken;
use crate::refusal::{Stopped, refuse};
use crate::streams::{Stream, Streams};
use crate::subscriptions::{Planned, Subscriptions};
use crossdock_format::{Format, FormatId};
use crossdock_query::Select;
use crossdock_transport::control::{Publication, Refusal, RefusalCode};
use crossdock_transport::handshake::Close;
use crossdock_transport::{Notice, Reply};
use std::collections::HashMap;
use std::sync::Arc;

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
    /// Whose records they are.
    pub(crate) publication: Option<Publication>,
    /// The columns of the key that it declares; none: it declares none.
    pub(crate) key: Vec<String>,
}

/// A publication of a session that is new to it.
#[derive(Clone, Copy, Debug, Default)]
struct Announced {
    is_new_stream: bool,
    is_new_format: bool,
}

/// A query to be planned for a format that its stream is to have: the subscription's id, and both.
type Unplanned = (u64, Arc<Select>, Format);

/// Queries planned for formats that their streams are to have, and the routes of those formats.
#[derive(Default)]
pub(crate) struct Plans {
    /// By the ids of subscription and format.
    planned: HashMap<(u64, u64), Planned>,
    routes: Option<RoutePlan>,
}

impl Plans {
    /// Plans queries, on a thread that has the time.
    fn add(&mut self, unplanned: Vec<Unplanned>) {
        let plan = |(id, select, format): Unplanned| ((id, format.id().0), Planned::guarded(&select, &format));
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
    /// Has a context say when it has taken in formats that the catalog has.
    ///
    /// # Errors
    /// The context has stopped.
    pub(crate) fn when_known(&self, stream: u32, formats: &[Format]) -> Result<oneshot::Receiver<()>, Stopped> {
        let (answer, wait) = oneshot::channel();
        let ids = formats.iter().map(Format::id).collect();
        self.post(move |context| {
            // The caller may have gone.
            context.when_known(stream as usize, ids, move |_| drop(answer.send(())));
        })?;
        Ok(wait)
    }

    /// Waits until a context has planned the routes of a stream for what it has taken in of the catalog.
    ///
    /// # Errors
    /// The context has stopped.
    pub(crate) fn wait_for_routes(&self, stream: String) -> Result<(), Stopped> {
        let (answer, wait) = oneshot::channel();
        self.post(move |context| {
            // The caller may have gone.
            context.when_routed(&stream, move |_| drop(answer.send(())));
        })?;
        self.wait(&wait)
    }
}

impl Context {
    /// Takes in what has changed in the catalog.
    pub(crate) fn take_snapshot(&mut self, snapshot: Arc<Snapshot>, changed: &[u32]) {
        self.streams.take_snapshot(snapshot);
        for &number in changed {
            // A number is given again when its stream has gone: another stream under it was none.
            let name = self.streams.snapshot().get(number).map(|entry| entry.name());
            let before = self.streams.get(number as usize);
            let was_made = before.is_some_and(|stream| stream.is_made() && name == Some(stream.name()));
            match self.streams.take_entry(number) {
                Some(gone) => {
                    let is_made = self.streams.get(number as usize).filter(|stream| stream.is_made() && !was_made);
                    if let Some(name) = is_made.map(|stream| stream.name().to_owned()) {
                        let (net, snapshot) = (&self.net, self.streams.snapshot());
                        let refused = self.access.refused_readers(net, snapshot, &self.subscriptions, &name);
                        for (peer, Refusal { message, .. }) in refused {
                            self.remove_peer(peer, "access", Some(Close { again: false, reason: message }));
                        }
                    }
                    if let Some(stream) = self.streams.get(number as usize) {
                        self.subscriptions.forget_plans(stream, &gone, &mut self.graph);
                    }
                    self.take_formats(number as usize, Plans::default());
                }
                None => self.finish_awaited(number as usize),
            }
        }
    }

    /// Runs a function once a stream has these formats here, but for those that the catalog has no longer.
    fn when_known(&mut self, key: usize, formats: Vec<FormatId>, then: impl FnOnce(&mut Context) + 'static) {
        self.inbox.await_formats(AwaitedFormats { stream: key, formats, routes: false, then: Box::new(then) });
        self.finish_awaited(key);
    }

    /// Runs a function once the routes of a stream are planned for what it has here, or it is gone.
    pub(crate) fn when_routed(&mut self, stream: &str, then: impl FnOnce(&mut Context) + 'static) {
        // One that is gone has no routes to wait for.
        let Some(key) = self.streams.find(stream) else { return then(self) };
        self.inbox.await_formats(AwaitedFormats {
            stream: key,
            formats: Vec::new(),
            routes: true,
            then: Box::new(then),
        });
        self.finish_awaited(key);
    }

    /// Runs what waits for formats that a stream has now.
    fn finish_awaited(&mut self, key: usize) {
        let stream = self.streams.get(key);
        // One that the catalog has no longer does not come.
        let is_here = |stream: &Stream, id: FormatId| stream.has_format(id) || !stream.entry().has_format(id);
        let are_here = |formats: &[FormatId]| stream.is_none_or(|s| formats.iter().all(|id| is_here(s, *id)));
        let is_routed = stream.is_none_or(Stream::is_routed);
        let is_due = |awaited: &mut AwaitedFormats| {
            awaited.stream == key && are_here(&awaited.formats) && (is_routed || !awaited.routes)
        };
        self.inbox.take_formats(is_due).into_iter().for_each(|awaited| (awaited.then)(self));
    }

    /// Takes in those formats of a stream that the queries and routes here are planned for, and has these planned for
    /// the others.
    pub(crate) fn take_formats(&mut self, key: usize, mut plans: Plans) {
        if let Some(routes) = plans.routes.take() {
            self.install_routes(key, routes);
        }
        // It may have gone while it was planned.
        let Some(stream) = self.streams.get_mut(key) else { return self.finish_awaited(key) };
        if stream.needs_no_routes() {
            stream.end_routes();
            let (peers, here) = ((&mut self.net, &mut self.host), (&self.inbox, self.place));
            self.streams.note_wanted(key, &self.subscriptions, peers, here);
        }
        if let Some(stream) = self.streams.get(key) {
            self.subscriptions.forget_half_taken(stream, &mut self.graph);
        }
        let mut unplanned = Vec::new();
        while let Some(stream) = self.streams.get(key)
            && let Some(format) = stream.next_format().cloned()
        {
            unplanned = self.subscriptions.unplanned(stream, &format, &plans);
            if !unplanned.is_empty() {
                break;
            }
            self.take_format(key, &format, &mut plans);
        }
        self.finish_awaited(key);
        self.plan_formats(key, plans, unplanned);
    }

    /// Has queries and routes of a stream planned, if any are to be; once at a time.
    fn plan_formats(&mut self, key: usize, mut plans: Plans, unplanned: Vec<Unplanned>) {
        if self.streams.get(key).is_some_and(Stream::is_planned) {
            return;
        }
        let routes = self.streams.route_request(key, &self.subscriptions, (&self.morph, &self.config.morph));
        if routes.is_none() && unplanned.is_empty() {
            return;
        }
        let Some(stream) = self.streams.present_mut(key) else { return };
        stream.note_planned(true);
        let work = move |_: &QueryCostModel| {
            plans.add(unplanned);
            plans.routes = routes.map(RouteRequest::plan);
            plans
        };
        self.plan(work, move |context, plans| {
            if let Some(stream) = context.streams.get_mut(key) {
                stream.note_planned(false);
            }
            let plans = plans.unwrap_or_else(|panicked| {
                context.give_up_routes(key, panicked);
                Plans::default()
            });
            context.take_formats(key, plans);
        });
    }

    /// Records of a format may come from now on. A panic has it planned and taken once more; if there is another one, it is taken as it
    /// is, so that its publishers go on.
    fn take_format(&mut self, key: usize, format: &Format, plans: &mut Plans) {
        let Some(stream) = self.streams.present_mut(key) else { return };
        let is_second_try = stream.begin_taking();
        if is_second_try {
            stream.take_format(format.clone());
        }
        for subscription in stream.subscriptions().to_vec() {
            self.take_plan(subscription, format, plans);
        }
        let Some(stream) = self.streams.present_mut(key) else { return };
        if !is_second_try {
            stream.take_format(format.clone());
        }
        if stream.entry().is_claimed() {
            // The managers may have ended before.
            let _ = self.to_managers.send(ControlRequest::NewFormat { stream: key as u32, reader: None });
        }
    }

    /// Takes a subscription's compiled query for one more format; the result is reported to the subscriber.
    fn take_plan(&mut self, key: usize, format: &Format, plans: &mut Plans) {
        let Some(subscription) = self.subscriptions.present_mut(key) else { return };
        let (peer, number) = (subscription.peer(), subscription.number());
        // One that came while the others were planned, or whose query was changed, has been planned for the format already.
        let planned = plans.take(subscription.id(), format).filter(|_| !subscription.has_entry(format));
        let Some(planned) = planned else { return };
        let (planned, awaiting) = (subscription.add_planned(planned), subscription.awaited());
        self.subscriptions.update_node(key, &mut self.graph);
        match (planned, awaiting) {
            (Ok(_), Some(id)) => {
                let (mut sessions, streams, graph) = self.sessions();
                sessions.confirm((peer, id, number), streams, graph);
                // Not before: a panic would leave it without an answer.
                if let Some(subscription) = self.subscriptions.present_mut(key) {
                    subscription.note_answered();
                }
            }
            (Ok(output), None) => {
                let notice = Notice::Format { subscription: number, format: output.describe() };
                self.send_control(peer, &notice.into());
            }
            (Err(error), Some(id)) => {
                let refusal = refuse(RefusalCode::Query, error.to_string());
                self.send_control(peer, &Reply::Refused { id, refusal }.into());
                self.remove_subscription(key);
            }
            (Err(error), None) => {
                let notice = Notice::Unreadable { subscription: number, message: error.to_string() };
                self.send_control(peer, &notice.into());
            }
        }
    }

    /// A session announces a stream. It is answered, and may publish, once all that reads the stream can.
    pub(crate) fn announce(&mut self, key: usize, announcement: Announcement) {
        let Some(pending) = self.pause(key, announcement.id) else { return };
        let work = move |_: &QueryCostModel| {
            let checked = Format::parse(&announcement.format)
                .map_err(|error| refuse(RefusalCode::Format, format!("the announced format is refused: {error}")));
            (checked, announcement)
        };
        self.plan(work, move |context, checked| match checked {
            Ok((Ok(format), announcement)) => context.take_announced(pending, announcement, format),
            Ok((Err(refusal), _)) => context.answer(&pending, Err(refusal)),
            Err(panicked) => context.answer(&pending, Err(refuse(RefusalCode::Format, panicked.to_string()))),
        });
    }

    /// Has the catalog take an announced format, and then waits until queries here are planned for it.
    fn take_announced(&mut self, pending: Pending, announcement: Announcement, format: Format) {
        let (name, announced) = (announcement.name.clone(), format.clone());
        // One that has gone is not answered.
        let still_there = self.net.still_there(pending.peer());
        let Some((key, by)) = still_there.and_then(|key| Some((key, self.net.principal(key)?))) else { return };
        let taken =
            announcement.publication.and_then(|publication| self.net.taken_here(key, &announcement, publication));
        let quota = self.access.quotas(by).streams;
        let to_resume = announcement.publication.filter(|_| taken.is_none());
        let request = move |catalog: &mut Catalog| {
            let number = catalog.publish_as((by, quota), &name, &announced)?;
            Ok((number, to_resume.map(|publication| catalog.resume(&name, publication))))
        };
        self.inbox.own().ask(self.streams.catalog(), request, move |context, published| match published {
            Ok((number, resumed)) => context.when_known(number as usize, vec![format.id()], move |context| {
                context.declare_key(pending, announcement, (format, taken.or(resumed)), number as usize);
            }),
            Err(refusal) => context.answer(&pending, Err(refusal)),
        });
    }

    /// Leads what the session is going to publish to all that take it.
    pub(crate) fn lead_announced(
        &mut self,
        pending: Pending,
        announcement: Announcement,
        (format, taken): (Format, Option<Taken>),
        stream: usize,
    ) {
        self.when_published(stream, vec![format.clone()], move |context, led| match led {
            Ok(()) => context.finish_announcing(&pending, &announcement, (format, taken), stream),
            Err(refusal) => context.refuse_announced(&pending, (stream, format.id()), refusal),
        });
    }

    /// A stream in the catalog is not published after all.
    pub(crate) fn refuse_announced(
        &mut self,
        pending: &Pending,
        (stream, format): (usize, FormatId),
        refusal: Refusal,
    ) {
        self.streams.end_format(stream, format);
        self.streams.end_publishing(stream);
        self.answer(pending, Err(refusal));
    }

    /// The catalog has a session as a publisher of a stream, and the stream has the format here.
    fn finish_announcing(
        &mut self,
        pending: &Pending,
        announcement: &Announcement,
        (format, taken): (Format, Option<Taken>),
        stream: usize,
    ) {
        let (so_far, publication) = (taken.as_ref().map(|taken| taken.count.get()), taken.clone());
        let durable = taken.as_ref().map(|taken| taken.count.durable()).filter(|_| self.durability.is_durable());
        let id_of_format = format.id();
        let publishing = Publishing { number: announcement.number, stream, format, taken, has_records: false };
        let Context { net, streams, graph, .. } = self;
        let key = net.still_there(pending.peer());
        let published = key.map(|key| net.publish(key, publishing, streams, graph));
        // The catalog has counted this session twice.
        if !matches!(published, Some(Ok(Announced { is_new_format: true, .. }))) {
            self.streams.end_format(stream, id_of_format);
        }
        if !matches!(published, Some(Ok(Announced { is_new_stream: true, .. }))) {
            self.streams.end_publishing(stream);
        }
        let (id, most_record_bytes) = (pending.id(), self.net.most_record_bytes() as u64);
        match published {
            None => {}
            Some(Ok(_)) => {
                let entry = self.streams.present(stream).map(|stream| Arc::clone(stream.entry()));
                let subscriptions = entry.as_ref().map(|entry| entry.activity().subscriptions());
                if let (Some(entry), Some(publication)) = (entry, publication) {
                    entry.activity().begin_publication(&publication);
                    // Before its first record.
                    self.report_publication(stream as u32);
                }
                let reply = Reply::Announced { id, most_record_bytes, taken: so_far, subscriptions, durable };
                self.answer_with(pending, reply);
            }
            Some(Err(refusal)) => self.answer(pending, Err(refusal)),
        }
    }

    /// Answers a request for which a peer was paused, and goes on with what it has sent meanwhile.
    pub(crate) fn answer(&mut self, pending: &Pending, outcome: Result<(), Refusal>) {
        self.answer_with(pending, reply(pending.id(), outcome));
    }
}

impl Subscriptions {
    /// The queries on a stream are no longer planned for these formats of it. A format that a subscription accepts stays.
    fn forget_plans(&mut self, stream: &Stream, gone: &[FormatId], graph: &mut Graph) {
        if gone.is_empty() {
            return;
        }
        for &key in stream.subscriptions() {
            let subscription = self.get_mut(key).filter(|subscription| subscription.accept().is_none());
            if let Some(subscription) = subscription {
                subscription.forget_formats(gone);
                self.update_node(key, graph);
            }
        }
    }

    /// After a panic as a format was taken in: what was planned for it is planned anew, since its subscriber may not know of it.
    fn forget_half_taken(&mut self, stream: &Stream, graph: &mut Graph) {
        if stream.is_taking() {
            let half_taken = stream.next_format().map(Format::id);
            self.forget_plans(stream, half_taken.as_slice(), graph);
        }
    }

    /// The queries that are still to be planned before a stream has a format here. Of subscriptions that say what they
    /// accept, the routes are planned, not the query.
    fn unplanned(&self, stream: &Stream, format: &Format, plans: &Plans) -> Vec<Unplanned> {
        let subscriptions = stream.subscriptions().iter().filter_map(|key| self.get(*key));
        let left = subscriptions.filter(|s| s.accept().is_none() && !s.has_entry(format) && !plans.has(s.id(), format));
        left.map(|s| (s.id(), s.select().clone(), format.clone())).collect()
    }
}

impl Net {
    /// The count of a publication that the session has announced before, in another format or again.
    fn taken_here(&self, key: usize, of: &Announcement, publication: Publication) -> Option<Taken> {
        let publishing = self.present_peer(key)?.publishing();
        let before = publishing.iter().filter(|p| p.number == of.number).filter_map(|p| p.taken.as_ref());
        before.clone().find(|taken| taken.publisher == publication.publisher).cloned()
    }

    /// A session publishes a stream in a format from now on.
    fn publish(
        &mut self,
        key: usize,
        publishing: Publishing,
        streams: &mut Streams,
        graph: &mut Graph,
    ) -> Result<Announced, Refusal> {
        let Some(peer) = self.present_peer_mut(key) else { return Ok(Announced::default()) };
        let stream = publishing.stream;
        let is_new_format = peer.publish(publishing)?;
        let announced = Announced { is_new_format, ..Announced::default() };
        let Some(published) = streams.present_mut(stream) else { return Ok(announced) };
        // It publishes the stream already, in another format or under another number.
        let Some(publishers) = published.begin_publisher(key) else { return Ok(announced) };
        graph.note_publishers(stream as u32, publishers);
        Ok(Announced { is_new_stream: true, ..announced })
    }
}

/// The reply to a request that has no other answer than its outcome.
pub(crate) fn reply(id: u32, outcome: Result<(), Refusal>) -> Reply {
    match outcome {
        Ok(()) => Reply::Done { id },
        Err(refusal) => Reply::Refused { id, refusal },
    }
}
