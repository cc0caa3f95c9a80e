//! Packets that a peer sends while one of its requests is with the planner or the catalog: they wait, in order, until
//! the answer is there. So a session's requests take effect in the order in which they were sent, and so do its records.
//!
//! A session over packets can have at most its credit waiting, for data and for control: neither is renewed once a packet
//! of its waits. An attached client's packets stay in its own memory, and it gets no new buffers.

use crate::context::Context;
use crate::dispatch::Data;
use crate::net::payload::Parked;
use crate::net::peers::PeerRef;
use crossdock_transport::header::PayloadSpan;

impl Context {
    /// From here on the peer's packets wait.
    pub(crate) fn pause(&mut self, key: usize) -> Option<PeerRef> {
        let peer = self.peers.get_mut(key)?;
        peer.is_paused = true;
        Some(PeerRef { key, serial: peer.serial })
    }

    /// The key of a peer that is still there.
    pub(crate) fn still_there(&self, peer: PeerRef) -> Option<usize> {
        self.peers.get(peer.key).filter(|there| there.serial == peer.serial).map(|_| peer.key)
    }

    /// Whether a peer has gone and only records that it had put before remain; nothing can be sent to it any more.
    pub(crate) fn leaves(&self, key: usize) -> bool {
        self.peers.get(key).is_some_and(|peer| peer.carrier().leaves())
    }

    /// Takes what a peer has sent since it was paused, up to the next request that pauses it.
    pub(crate) fn resume(&mut self, key: usize) {
        let Some(peer) = self.peers.get_mut(key) else { return };
        peer.is_paused = false;
        if self.straggle(key) {
            return self.look_after_stragglers();
        }
        while let Some(parked) = self.next_parked(key) {
            match parked {
                Parked::Packets { buffer, header, spans, stride } => {
                    self.deliver(key, Data { buffer, header, spans: &spans, stride }, 0);
                }
                Parked::End(why) => return self.remove_peer(key, why, None),
            }
        }
        self.grant_credit(key);
        self.peers.touch(key);
    }

    /// The next packets that wait of a session which is not paused.
    fn next_parked(&mut self, key: usize) -> Option<Parked> {
        if self.peers.get(key)?.is_paused {
            return None;
        }
        self.peers.link_mut(key)?.parked.pop_front()
    }

    /// Packets of a peer that is paused wait behind those that wait already.
    pub(crate) fn park(&mut self, key: usize, data: &Data<'_>, spans: &[PayloadSpan]) {
        let Some(link) = self.peers.link_mut(key) else { return };
        let Data { buffer, header, stride, .. } = data;
        let (buffer, spans) = (buffer.clone(), spans.to_vec());
        link.parked.push_back(Parked::Packets { buffer, header: *header, spans, stride: *stride });
    }

    /// A session over packets has ended: at once, or behind what waits.
    pub(crate) fn end_session(&mut self, key: usize, why: &'static str) {
        let is_paused = self.peers.get(key).is_some_and(|peer| peer.is_paused);
        match self.peers.link_mut(key).filter(|_| is_paused) {
            None => self.remove_peer(key, why, None),
            Some(link) if matches!(link.parked.back(), Some(Parked::End(_))) => {}
            Some(link) => link.parked.push_back(Parked::End(why)),
        }
    }
}
