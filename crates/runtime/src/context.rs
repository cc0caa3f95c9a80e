//! One execution context on a communication core: its state and its loop.
//!
//! The state is in owners with private fields ([`Net`], [`Host`], [`Streams`], [`Subscriptions`], [`Graph`],
//! [`ContextInbox`]); what is written for [`Context`] passes between them, and carries out what they return. A turn serves timers
//! and requests of the rest of the daemon (`maintain`), takes frames from the device ([`crate::dispatch`]) and messages from attached
//! clients' rings ([`crate::rings`]; both `ingress`), lets handlers work, and sends outputs (`egress`). After a turn without input the
//! context naps while traffic is heavy, so that the next turn finds more frames, and otherwise sleeps in epoll on its socket, its
//! doorbell and those of its clients.

#[cfg(test)]
mod stepping;

use crate::access::Access;
use crate::admission::{Admission, QueryCostModel};
use crate::catalog::thread::CatalogHandle;
use crate::clock::TurnClock;
use crate::config::{ContextConfig, MorphConfig};
use crate::counters::Levels;
use crate::departures::Departures;
use crate::durability::Durability;
use crate::graph::bounds::{HoldLimits, session_batches};
use crate::graph::build::Workspace;
use crate::graph::{Graph, NodeId};
use crate::host::Host;
use crate::host::services::Services;
use crate::inbox::{Command, Commands, ContextInbox, Inbox};
use crate::io::{Handed, IoPlace, Received};
use crate::managers::request::RequestQueue;
use crate::morph::{Accept, Morph};
use crate::net::peers::PeerRef;
use crate::net::{Net, NetParts};
use crate::planner::{self, Panicked, Planner};
use crate::streams::Streams;
use crate::subscriptions::Subscriptions;
use crossdock_device::ThreadNumber;
use crossdock_mailbox::Pool;
use crossdock_mailbox::host::{ClientKey, HostInterface, Owner};
use crossdock_transport::ControlMessage;
use crossdock_transport::handshake::Close;
use std::any::Any;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Frames taken in one turn at most: enough to share a turn's costs, few enough to stay in the cache.
const FRAMES_A_TURN: usize = 8;
/// The longest sleep; requests ring the doorbell, so this only bounds the error of a forgotten timer.
const LONGEST_SLEEP_NS: u64 = 5_000_000_000;
/// The longest sleep while batches wait for room in a queue to another context.
const FULL_SLEEP_NS: u64 = 50_000;
/// The same while records are awaited to have crossed to other contexts.
const CROSSING_SLEEP_NS: u64 = 1_000_000;
/// Control messages that may wait for a peer, in bytes: a peer that sends requests without taking the answers is
/// disconnected.
const MAX_CONTROL_BYTES: u64 = 1 << 20;

/// The parts of a context, all made before its thread.
pub(crate) struct Parts {
    pub(crate) config: ContextConfig,
    /// Its name.
    pub(crate) name: String,
    /// The inboxes of all I/O contexts.
    pub(crate) inboxes: Arc<[Inbox]>,
    /// The device, the pool and what else its network side is made of.
    pub(crate) net: NetParts,
    /// Buffers between the parts of conversion chains.
    pub(crate) morph_pool: Pool,
    /// Its own inbox, and the context's end of it.
    pub(crate) inbox: Inbox,
    pub(crate) commands: Commands,
    pub(crate) host: HostInterface,
    pub(crate) services: Services,
    /// The nodes that run here, and the memory in which they run.
    pub(crate) graph: Graph,
    pub(crate) workspace: Workspace,
    /// For reports to the managers.
    pub(crate) to_managers: Arc<RequestQueue>,
    pub(crate) planner: Planner,
    pub(crate) catalog: CatalogHandle,
    pub(crate) access: Arc<Access>,
}

/// The result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    Nothing,
    Something,
    /// Something, and more may be there already.
    More,
}

/// A context: its owners, each with fields of its own, and what it knows of the rest of the daemon.
pub(crate) struct Context {
    pub(crate) config: ContextConfig,
    /// Its name.
    pub(crate) name: String,
    /// Which of the I/O contexts it is.
    pub(crate) place: IoPlace,
    /// The device, the peers and what they are owed.
    pub(crate) net: Net,
    /// Attached clients, mailboxes and tasks.
    pub(crate) host: Host,
    /// The catalog's snapshot, and the streams here.
    pub(crate) streams: Streams,
    /// The subscriptions of the peers here.
    pub(crate) subscriptions: Subscriptions,
    /// The memory of conversion chains, and the streams whose routes are to be planned.
    pub(crate) morph: Morph,
    /// The nodes that run here, and the memory in which they run.
    pub(crate) graph: Graph,
    pub(crate) workspace: Workspace,
    /// The time that queries take and may take.
    pub(crate) admission: Admission,
    /// How far the gauges are up to date that need not be each turn.
    pub(crate) levels: Levels,
    /// The events of clients that went without an end.
    pub(crate) departures: Departures,
    /// The commands of the rest of the daemon, and what waits here for a format or a stream.
    pub(crate) inbox: ContextInbox,
    /// The rules that say what its peers may do.
    pub(crate) access: Arc<Access>,
    /// For reports to the managers.
    pub(crate) to_managers: Arc<RequestQueue>,
    /// The threads for slow work.
    pub(crate) planner: Planner,
    /// Its part in cuts of the whole graph.
    pub(crate) durability: Durability,
    /// Whose packet or message is in work.
    pub(crate) in_work: Option<InWork>,
    /// After a panic: the first stream whose planning is to be resumed at the end of a turn.
    resumes_from: Option<usize>,
    /// The stream whose planning is being resumed.
    pub(crate) resuming: Option<usize>,
}

/// A peer, whose packet or message is in work.
#[derive(Clone, Copy, Debug)]
pub(crate) enum InWork {
    /// A frame from this address.
    Frame(SocketAddr),
    /// A message of an attached client.
    Message(ClientKey),
    /// Packets or messages that have waited, of the peer with this key.
    Deferred(usize),
}

impl Context {
    pub(crate) fn new(parts: Parts) -> Context {
        let config = parts.config;
        let place = parts.net.place;
        let net = Net::new(parts.net, &config);
        let mut graph = parts.graph;
        graph.limit_sessions(session_batches(net.large_buffers(), parts.workspace.large_buffers));
        let MorphConfig { hold_bytes, hold_total_bytes, hold_ms, .. } = &config.morph;
        let longest_ns = u64::from(*hold_ms) * 1_000_000;
        graph.limit_holding(HoldLimits { bytes: *hold_bytes, total_bytes: *hold_total_bytes, longest_ns });
        Context {
            name: parts.name,
            place,
            net,
            // With several contexts the count of a stream is not one of the records that have come here.
            streams: Streams::new(parts.catalog, graph.index(), config.morph.durable && place.is_only()),
            subscriptions: Subscriptions::new(place),
            host: Host::new(parts.host, parts.services),
            morph: Morph::new(parts.morph_pool),
            graph,
            workspace: parts.workspace,
            to_managers: parts.to_managers,
            planner: parts.planner,
            access: parts.access,
            admission: Admission::default(),
            levels: Levels::default(),
            departures: Departures::default(),
            durability: Durability::new(config.morph.durable),
            in_work: None,
            resumes_from: None,
            resuming: None,
            inbox: ContextInbox::new(parts.inbox, parts.commands, parts.inboxes),
            config,
        }
    }

    /// The loop, until a stop command or until its handles are gone: maintain, ingress, work and egress, each of them bounded.
    pub(crate) fn run(mut self) {
        planner::enter_context();
        self.graph.gauges().thread.set(ThreadNumber::of_this_thread().into());
        let mut turn_clock = TurnClock::start(self.net.clock_ns());
        loop {
            match catch_unwind(AssertUnwindSafe(|| self.turn(&mut turn_clock))) {
                Ok(goes_on) if goes_on => {}
                Ok(_) => break,
                Err(panic) => self.recover(panic),
            }
        }
        self.say_goodbye();
    }

    /// One turn. `false` when the context should stop.
    fn turn(&mut self, turn_clock: &mut TurnClock) -> bool {
        let Some(is_idle) = self.serve_turn(turn_clock) else { return false };
        if is_idle {
            self.idle();
        }
        // Now that all of it went without a panic.
        self.graph.gauges().turns.add(1);
        if let Some(stream) = self.resumes_from.take() {
            self.resume_planning(stream);
        }
        true
    }

    /// The work of a turn; then whether nothing more is there. Nothing when the context should stop.
    fn serve_turn(&mut self, turn_clock: &mut TurnClock) -> Option<bool> {
        if !self.maintain(turn_clock) {
            return None;
        }
        let came = self.ingress();
        // The output of it leaves before handlers work, which may take a whole slice (`slice_us`).
        self.egress();
        let more = self.work();
        if self.net.is_dirty() {
            self.egress();
        }
        self.end_turn(came != Came::Nothing || more, turn_clock);
        Some(came != Came::More && !more && !self.morph.has_left() && self.resumes_from.is_none())
    }

    /// Goes on after a panic, which is a mistake of Crossdock's: what was in work is lost, and a peer's session with it, so that
    /// the peer does not bring it again.
    #[cold]
    fn recover(&mut self, panic: Box<dyn Any + Send>) {
        let at_work = self.graph.recover(panic, &mut self.workspace);
        self.net.recover();
        self.subscriptions.recover();
        // Later, since it may panic too; a stream at which it has done so is left out then.
        self.resumes_from = Some(self.resuming.take().map_or(0, |stream| stream + 1));
        if let Some(key) = at_work.and_then(NodeId::subscription) {
            self.fail_query(key);
        }
        let peer = self.in_work.take().and_then(|in_work| match in_work {
            InWork::Frame(from) => self.net.session_at(from),
            InWork::Message(client) => self.net.of_client(client.number()),
            InWork::Deferred(key) => Some(key),
        });
        if let Some(key) = peer {
            let reason = "the daemon failed on what this session sent, because of a bug in the daemon".to_owned();
            self.remove_peer(key, "failed", Some(Close { again: true, reason }));
        }
    }

    /// Begins a turn: the time, the timers, the commands of the rest of the daemon, clients that have gone. `false` when the
    /// context should stop.
    fn maintain(&mut self, turn_clock: &mut TurnClock) -> bool {
        self.net.begin_turn();
        let now_ns = self.net.now_ns();
        self.graph.note_away(now_ns, turn_clock.begin(now_ns));
        self.run_timers();
        let goes_on = self.take_commands();
        // Clients that are gone are noticed now and then in a context that is too busy to sleep.
        if self.net.is_look_due() {
            self.look_around(Duration::ZERO);
        }
        goes_on
    }

    /// Takes what has come: frames, messages of attached clients, answers of services; and gives it to the nodes that read it.
    fn ingress(&mut self) -> Came {
        let (frames, taken) = (self.take_frames(), self.host.interface().taken());
        let is_full = self.take_rings();
        self.tick_lagging();
        self.host.take_answers();
        self.net.serve_remote(&mut self.host);
        self.net.report_losses(&mut self.host);
        self.tick_waiting();
        self.serve_sessions();
        // A socket that was not full has nothing more now; should it have, the poller says so at once.
        match frames {
            FRAMES_A_TURN.. => Came::More,
            _ if is_full => Came::More,
            0 if self.host.interface().taken() == taken => Came::Nothing,
            _ => Came::Something,
        }
    }

    /// Sends what is ready for the peers: replies, acks, and packets filled in part unless more is to come soon.
    fn egress(&mut self) {
        if !self.net.is_dirty() && !self.subscriptions.has_opened() {
            return;
        }
        // Super-packets that were filled in part leave at once in quiet times, and when their linger has passed in busy ones.
        let linger_ns = if self.net.is_heavy() { u64::from(self.config.linger_us) * 1000 } else { 0 };
        self.sessions().0.flush_opened(linger_ns);
        self.service_peers();
    }

    /// Takes the changes that came, and lets handlers work for a slice. Whether there is more to do at once.
    fn work(&mut self) -> bool {
        let changed = self.graph.take_orders(&mut self.workspace);
        if self.graph.is_empty() && !changed && !self.graph.has_turned() {
            return false;
        }
        let slice_ns = self.config.platform.slice_us.saturating_mul(1000);
        let more = self.graph.serve(slice_ns, self.net.now_ns(), &mut self.workspace);
        let Context { graph, net, streams, workspace, .. } = self;
        let arrived = streams.note_arrived(self.place.is_home(), graph, net, &mut workspace.spares);
        self.serve_sessions();
        let has_turned = self.net.turn_credit(&mut self.graph, &self.streams, &mut self.host);
        arrived || more || changed || has_turned || self.graph.is_changing()
    }

    /// Takes packets and clients from now on.
    ///
    /// # Errors
    /// The kernel's: the socket cannot be watched.
    pub(crate) fn open(&mut self) -> std::io::Result<()> {
        if self.inbox.is_open() {
            return Ok(());
        }
        let early = self.inbox.open();
        // Not before: packets that nobody takes would keep the context from sleeping.
        self.net.open()?;
        early.into_iter().for_each(|command| self.carry_out_command(command));
        Ok(())
    }

    /// Has some work done on one of the planner's threads, and then runs a function here with its outcome.
    pub(crate) fn plan<T: Send + 'static>(
        &self,
        work: impl FnOnce(&QueryCostModel) -> T + Send + 'static,
        then: impl FnOnce(&mut Context, Result<T, Panicked>) + Send + 'static,
    ) {
        let inbox = self.inbox.own().clone();
        self.planner.give(work, move |outcome| {
            // The context may have stopped.
            let _ = inbox.post(move |context| then(context, outcome));
        });
    }

    /// Carries out one command. The answer is discarded if the caller has gone.
    fn carry_out_command(&mut self, command: Command) {
        match command {
            Command::Run(work) => work(self),
            Command::Snapshot(snapshot, changed) => self.take_snapshot(snapshot, &changed),
            Command::Attach(prepared, to) => {
                // A caller that waited for too long has refused the client.
                let (of, gauges) = ((&self.config, &*self.access), self.graph.gauges());
                let admitted = self.net.admit(*prepared, &mut self.host, of, gauges);
                if let Err(unheard) = to.send(admitted)
                    && let Ok(client) = unheard.into_inner()
                {
                    self.carry_out_command(Command::Detach(client));
                }
            }
            Command::Detach(client) => {
                if let Some(key) = self.net.of_client(client.number()) {
                    self.remove_peer(key, "gone", None);
                }
            }
            Command::Stop => {}
        }
    }

    /// Takes the frames that have arrived, and those that other I/O contexts have handed over.
    fn take_frames(&mut self) -> usize {
        if !self.inbox.is_open() {
            return 0;
        }
        let (mut frames, count) = self.net.receive(FRAMES_A_TURN);
        for frame in frames.drain(..) {
            self.take_arrived(frame.into());
        }
        self.net.keep_frames(frames);
        let mut handed = 0;
        while handed < FRAMES_A_TURN
            && let Some(next) = self.net.next_handed()
        {
            match next {
                Handed::Frame(frame) => self.take_arrived(frame),
                Handed::Refused(addr) => self.end_refused(addr),
            }
            handed += 1;
        }
        while let Some(addr) = self.net.next_refused() {
            self.end_refused(addr);
        }
        count.max(handed)
    }

    #[inline]
    fn take_arrived(&mut self, frame: Received) {
        self.net.note_arrival(frame.len);
        self.in_work = Some(InWork::Frame(frame.from));
        self.take_frame(frame);
        self.in_work = None;
    }

    /// Nobody receives at an address any more. On this machine the process is gone, and its socket with it: its queue need not
    /// block publishers until its timeout.
    fn end_refused(&mut self, addr: SocketAddr) {
        if let Some(key) = self.net.local_at(addr) {
            self.end_session(key, "refused");
        }
    }

    /// Nothing more is there: nap while traffic is heavy, spin while messages follow one another closely, else sleep
    /// until something comes or is due.
    fn idle(&mut self) {
        if !self.net.pause_turns() {
            return;
        }
        let sleep_ns = self.sleep_ns();
        self.net.counters_mut().sleeps += 1;
        self.graph.gauges().sleeps.add(1);
        let by_arrival = self.sleep(sleep_ns);
        self.net.note_slept(by_arrival);
        self.levels.note_work(by_arrival);
    }

    /// How long it may sleep until something is due by itself, in ns.
    fn sleep_ns(&mut self) -> u64 {
        let due_ns = self.net.due_ns().min(self.graph.hold_expires_ns()).min(self.host.losses_due_ns());
        let due_ns = due_ns.min(self.subscriptions.looks_again_ns()).min(self.net.watch_due_ns());
        let due_ns = due_ns.min(self.subscriptions.positions_due_ns()).min(self.graph.slow_due_ns());
        let due_ns = due_ns.min(self.graph.due_ns());
        // No doorbell is rung when the queue to another context has room again, or a buffer is free.
        let longest_ns = match () {
            () if self.graph.is_full() => FULL_SLEEP_NS,
            () if self.morph.awaits_crossing() => CROSSING_SLEEP_NS,
            () => LONGEST_SLEEP_NS,
        };
        due_ns.saturating_sub(self.net.now_ns()).min(longest_ns).min(self.levels.update(
            &mut self.graph,
            &self.net,
            &self.workspace,
        ))
    }

    /// Ends the peers that are gone by what the timers say.
    fn run_timers(&mut self) {
        while let Some((key, close)) = self.net.next_silent() {
            self.remove_peer(key, "silent", Some(close));
        }
        self.graph.wake_slow(self.net.now_ns());
        self.tick_losses();
        self.note_gone(None);
        let (mut sessions, streams, _) = self.sessions();
        sessions.tick_positions(streams);
        for key in self.net.take_holding() {
            self.note_event(self.subscriptions.holding_event(key, &self.net));
        }
    }

    /// Sends, acknowledges and re-arms the timer of every peer that was touched this turn. Acks leave behind the records of all
    /// peers: an ack may be late by a delay that its receiver knows of, and a subscriber waits for its record.
    pub(crate) fn service_peers(&mut self) {
        let dirty = self.net.begin_sending();
        for &key in &dirty {
            if self.net.untaken_control_bytes(key, self.host.interface()) > MAX_CONTROL_BYTES {
                let reason = format!("{MAX_CONTROL_BYTES} bytes of replies are unread");
                self.remove_peer(key, "answers_not_taken", Some(Close { again: false, reason }));
            } else {
                self.net.send_queued(key);
            }
        }
        dirty.iter().for_each(|key| self.net.send_short(*key));
        self.net.end_sending(dirty);
    }

    /// A publisher gets new credit unless a stream of its is held back by a full queue; an attached one loses it then. The
    /// credit for control depends on no stream.
    pub(crate) fn grant_credit(&mut self, key: usize) {
        let graph = &self.graph;
        self.net.grant_credit(key, self.host.interface_mut(), |stream| graph.is_blocked(stream as u32));
    }

    /// Ends a session with its subscriptions and its publishing. If `close` is given, the peer is sent the reason.
    pub(crate) fn remove_peer(&mut self, key: usize, why: &'static str, close: Option<Close>) {
        // One that ends in the middle of a turn may be ended again for another reason in the same turn.
        let Some(subscriptions) = self.net.peer(key).map(|peer| peer.subscriptions().to_vec()) else { return };
        let event = self.net.departure(key, (why, close.as_ref()), &self.streams, &self.subscriptions);
        self.note_gone(event);
        for subscription in subscriptions {
            self.remove_subscription(subscription);
        }
        let Some(peer) = self.net.remove(key) else {
            debug_assert!(false, "peer {key} is there");
            return;
        };
        self.host.close_all_remote(key);
        for publishing in peer.publishing() {
            self.streams.end_publication(publishing);
            // A publisher that comes back after a restart finds the version that it had, and subscribers at contexts that have not
            // stopped yet hear of the daemon's end, and not of an end of its streams.
            if why == "shutdown" {
                self.streams.end_publishing(publishing.stream);
                continue;
            }
            self.streams.end_format(publishing.stream, publishing.format.id());
            // One that goes on in a later session has lost nothing.
            let (of, managers) = ((key, publishing.stream), (self.place, &*self.to_managers));
            self.streams.end_publisher(of, publishing.goes_on(), &mut self.graph, managers);
        }
        self.morph.end_conversions(PeerRef { key, serial: peer.serial() }, &mut self.streams, &mut self.graph);
        self.net.end(peer, self.host.interface_mut(), why, close);
        self.host.disown(Owner::Session(key as u32));
        self.net.report_closed_sides(&mut self.host);
    }

    /// A client is gone. It goes on as a publisher, and as nothing else, until the context has had the buffers for what
    /// it put before.
    pub(crate) fn end_gone(&mut self, key: usize) {
        if !self.net.is_paused(key) && !self.net.has_deferred(key) {
            return self.remove_peer(key, "gone", None);
        }
        // One that has ended its subscriptions itself has said so in what waits.
        if !self.net.has_deferred(key) {
            let event = self.net.present_peer(key).and_then(|peer| self.subscriptions.gone_event(peer));
            self.note_gone(event);
        }
        let mut unrouted = Vec::new();
        for subscription in self.net.present_peer(key).map(|peer| peer.subscriptions().to_vec()).unwrap_or_default() {
            unrouted.extend(self.subscriptions.accept_mut(subscription).and_then(Accept::give_up));
            self.remove_subscription(subscription);
        }
        self.net.leave(key, self.host.interface_mut());
        // No answer comes any more.
        unrouted.iter().for_each(|pending| self.go_on_unanswered(pending));
        self.host.prune();
        self.net.report_closed_sides(&mut self.host);
    }

    /// Queues a control message for a peer.
    pub(crate) fn send_control(&mut self, key: usize, message: &ControlMessage) {
        self.net.send(key, message, self.host.interface_mut());
    }

    /// Carries out the commands of the handles; `false` when the context should stop.
    fn take_commands(&mut self) -> bool {
        loop {
            match self.inbox.next() {
                Ok(Some(command)) => self.carry_out_command(command),
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    /// Notifies every peer that the daemon stops, so that no peer has to wait for a timeout.
    fn say_goodbye(&mut self) {
        let keys: Vec<usize> = self.net.peers().map(|(key, _)| key).collect();
        self.sessions().0.flush_opened(0);
        self.service_peers();
        for key in keys {
            let reason = "the daemon is shutting down".to_owned();
            self.remove_peer(key, "shutdown", Some(Close { again: true, reason }));
        }
    }
}
