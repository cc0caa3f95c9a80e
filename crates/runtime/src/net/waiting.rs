//! The waiting packets of peers: packets that came while a request of theirs is with the planner or the catalog, and
//! attached clients that have to be looked at each turn.
//!
//! A session over packets can have at most its credit waiting, for data and for control: neither is renewed once a packet
//! of its waits. An attached client's packets stay in its own memory, and it gets no new buffers.

use super::Net;
use crate::net::carrier::Carrier;
use crate::net::frames::Data;
use crate::net::memory::Attached;
use crate::net::payload::Deferred;
use crate::net::peers::{Peer, PeerRef};
use crossdock_mailbox::host::{HostInterface, Message};
use crossdock_transport::handshake::Close;
use crossdock_transport::header::PayloadSpan;

/// An attached client shows about once a second that it runs: for less time than this, in ms, it is never taken for stopped.
const LEAST_PATIENCE_MS: u64 = 3000;
/// A peer whose queue has been full for so long, in ns, is worth an event; and how often that is looked for.
const HOLDING_NS: u64 = 1_000_000_000;
/// How often there is such an event of one peer at most, in ns.
const NOTED_EVERY_NS: u64 = 10_000_000_000;

impl Net {
    /// From here on the packets of a peer wait, except the one that is being taken.
    pub(crate) fn pause(&mut self, key: usize) -> Option<PeerRef> {
        let peer = self.peers.present_mut(key)?;
        peer.is_paused = true;
        Some(PeerRef { key, serial: peer.serial })
    }

    /// Whether a request of a peer's is with the planner or the catalog, or it publishes and no records are taken in.
    #[inline]
    pub(crate) fn is_paused(&self, key: usize) -> bool {
        self.peers.get(key).is_some_and(|peer| peer.is_paused || (self.holds_intake && !peer.publishing().is_empty()))
    }

    /// From now on what publishers send waits, or no longer.
    pub(crate) fn hold_intake(&mut self, is_held: bool) {
        self.holds_intake = is_held;
    }

    /// A peer, for what is done later.
    pub(crate) fn reference(&self, key: usize) -> Option<PeerRef> {
        self.peers.get(key).map(|peer| PeerRef { key, serial: peer.serial })
    }

    /// A peer's packets wait no longer; whether it is there.
    pub(crate) fn unpause(&mut self, key: usize) -> bool {
        self.peers.get_mut(key).map(|peer| peer.is_paused = false).is_some()
    }

    /// The key of a peer that is still there.
    pub(crate) fn still_there(&self, peer: PeerRef) -> Option<usize> {
        self.peers.get(peer.key).filter(|there| there.serial == peer.serial).map(|_| peer.key)
    }

    /// Whether a peer has gone and only records that it had put before remain; nothing can be sent to it any more.
    pub(crate) fn leaves(&self, key: usize) -> bool {
        self.peers.get(key).is_some_and(|peer| peer.carrier().leaves())
    }

    /// Packets of a peer that is paused wait behind those that wait already.
    pub(crate) fn defer_packets(&mut self, key: usize, data: &Data<'_>, spans: &[PayloadSpan]) {
        let Some(link) = self.peers.present_link_mut(key) else { return };
        let Data { buffer, header, stride, .. } = data;
        let end = spans.last().map_or(0, |span| span.range().end);
        // A buffer of another context's goes back there soon, unless there is none to take its place.
        let buffer = self.pool.own(buffer, end).unwrap_or_else(|| buffer.clone());
        let spans = spans.to_vec();
        link.deferred.push_back(Deferred::Packets { buffer, header: *header, spans, stride: *stride });
    }

    /// The end of a session over packets that is paused waits behind its packets; whether it does.
    pub(crate) fn defer_end(&mut self, key: usize, why: &'static str) -> bool {
        if !self.is_paused(key) {
            return false;
        }
        // An attached client ends otherwise.
        let Some(link) = self.peers.link_mut(key) else { return false };
        if !matches!(link.deferred.back(), Some(Deferred::End(_))) {
            link.deferred.push_back(Deferred::End(why));
        }
        true
    }

    /// The next packets that wait of a session which is not paused.
    pub(crate) fn next_deferred_packets(&mut self, key: usize) -> Option<Deferred> {
        if self.is_paused(key) {
            return None;
        }
        self.peers.link_mut(key)?.deferred.pop_front()
    }

    /// Whether packets of an attached client wait.
    #[inline]
    pub(crate) fn has_deferred(&self, key: usize) -> bool {
        self.peers.attached(key).is_some_and(|attached| !attached.deferred.is_empty())
    }

    /// A packet of an attached client waits behind those that wait already; it comes back if there are none.
    #[inline]
    pub(crate) fn defer_behind(&mut self, key: usize, message: Message) -> Option<Message> {
        match self.peers.attached_mut(key).filter(|attached| !attached.deferred.is_empty()) {
            Some(attached) => {
                attached.deferred.push_back(message);
                None
            }
            None => Some(message),
        }
    }

    /// A packet of an attached client waits, and the client is served each turn; it comes back if the client has gone.
    pub(crate) fn defer(&mut self, key: usize, message: Message) -> Option<Message> {
        let Some(attached) = self.peers.attached_mut(key) else { return Some(message) };
        attached.deferred.push_back(message);
        self.note_lagging(key);
        None
    }

    /// A packet that was taken out waits again, before all others; it comes back if the client has gone.
    pub(crate) fn defer_again(&mut self, key: usize, message: Message) -> Option<Message> {
        let Some(attached) = self.peers.attached_mut(key) else { return Some(message) };
        attached.deferred.push_front(message);
        None
    }

    /// The next packet that waits of an attached client which is not paused.
    pub(crate) fn next_deferred(&mut self, key: usize) -> Option<Message> {
        if self.is_paused(key) {
            return None;
        }
        self.peers.attached_mut(key)?.deferred.pop_front()
    }

    /// Whether an attached client has gone, and nothing that it had put before waits.
    pub(crate) fn has_left(&self, key: usize) -> bool {
        let has_left = |attached: &Attached| attached.leaves() && attached.deferred.is_empty();
        !self.is_paused(key) && self.peers.attached(key).is_some_and(has_left)
    }

    /// Gives an attached client the messages that its inbox had no room for before, as far as it has now.
    pub(crate) fn retry(&mut self, key: usize, host: &mut HostInterface) {
        if let Some(attached) = self.peers.attached_mut(key) {
            attached.retry(host);
        }
    }

    /// Whether an attached client puts more records than it can have had buffers for.
    #[inline]
    pub(crate) fn is_beyond_grants(&self, key: usize) -> bool {
        self.peers.attached(key).is_some_and(Attached::is_beyond_grants)
    }

    /// Notes that a packet of an attached client's records was taken.
    #[inline]
    pub(crate) fn note_taken(&mut self, key: usize) {
        if let Some(attached) = self.peers.attached_mut(key) {
            attached.note_taken();
        }
    }

    /// Notes an attached peer that has to be served each turn until it has caught up. Whether the peer is one.
    pub(crate) fn note_lagging(&mut self, key: usize) -> bool {
        let now_ns = self.now_ns();
        let Some(attached) = self.peers.attached_mut(key) else { return false };
        if attached.begin_lagging(now_ns) {
            self.lagging.push(key);
        }
        true
    }

    /// The peers whose queue has been full for a while, each once for each time that it is; looked for about once a second.
    pub(crate) fn take_holding(&mut self) -> Vec<usize> {
        let now_ns = self.now_ns();
        if !self.has_full || now_ns < self.holding_due_ns {
            return Vec::new();
        }
        self.holding_due_ns = now_ns + HOLDING_NS;
        let is_holding = |peer: &Peer| {
            let is_long = peer.full_since_ns.is_some_and(|since| since + HOLDING_NS <= now_ns);
            peer.full && is_long && peer.noted_ns.is_none_or(|noted| noted + NOTED_EVERY_NS <= now_ns)
        };
        let holding: Vec<usize> = self.peers.iter().filter(|(_, peer)| is_holding(peer)).map(|(key, _)| key).collect();
        for key in &holding {
            let peer = self.peers.get_mut(*key);
            peer.into_iter().for_each(|peer| (peer.full_since_ns, peer.noted_ns) = (None, Some(now_ns)));
        }
        self.has_full = self.peers.iter().any(|(_, peer)| peer.full_since_ns.is_some());
        holding
    }

    /// When peers that delay others are checked next, in ns; nothing wakes the context for them.
    pub(crate) fn watch_due_ns(&self) -> u64 {
        let is_watched = self.has_full || !self.lagging.is_empty();
        if is_watched { self.now_ns() + HOLDING_NS } else { u64::MAX }
    }

    /// Whether the process of an attached peer that is behind has been stopped for as long as a session over packets may be
    /// silent: why it is ended, then.
    pub(crate) fn is_stopped(&mut self, key: usize, host: &HostInterface) -> Option<Close> {
        let (now_ns, patience_ms) = (self.now_ns(), u64::from(self.limits.idle_timeout_ms).max(LEAST_PATIENCE_MS));
        let is_full = self.peers.get(key)?.full;
        let attached = self.peers.attached_mut(key)?;
        if !is_full && !attached.is_behind() {
            attached.forget_beats(now_ns);
            return None;
        }
        let stopped_ms = attached.stopped_ns(host, now_ns) / 1_000_000;
        let reason = || format!("its process has not run for {stopped_ms} ms, and its queue is full");
        (stopped_ms >= patience_ms).then(|| Close { again: true, reason: reason() })
    }

    /// The attached peers that are to be served this turn, if there are any; the caller gives those that are still behind back
    /// with [`Net::keep_lagging`].
    #[inline]
    pub(crate) fn take_lagging(&mut self) -> Option<Vec<usize>> {
        (!self.lagging.is_empty()).then(|| std::mem::take(&mut self.lagging))
    }

    /// Puts back the peers that are still behind: those that were noted meanwhile come after them.
    pub(crate) fn keep_lagging(&mut self, mut lagging: Vec<usize>) {
        lagging.append(&mut self.lagging);
        self.lagging = lagging;
    }

    /// After a panic: looks at all peers again, since the lists of those that had something to do are incomplete.
    #[cold]
    pub(crate) fn recover(&mut self) {
        self.peers.touch_all();
        let keys: Vec<usize> = self.peers.iter().map(|(key, _)| key).collect();
        self.lagging =
            keys.into_iter().filter(|key| self.peers.attached_mut(*key).is_some_and(|of| of.is_lagging)).collect();
    }

    /// Whether an attached peer has to be served in the next turn too.
    pub(crate) fn is_still_behind(&mut self, key: usize) -> bool {
        let is_full = self.peers.get(key).is_some_and(|peer| peer.full);
        // It has gone, or was noted anew and is in the list already.
        let Some(attached) = self.peers.attached_mut(key).filter(|attached| attached.is_lagging) else { return false };
        attached.is_lagging = is_full || attached.is_behind() || !attached.deferred.is_empty();
        attached.is_lagging
    }
}
