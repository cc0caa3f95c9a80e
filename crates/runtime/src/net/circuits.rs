//! Circuits (Nectar paper, section 2.1: the network has circuit switching beside packet switching): reserved paths of single sessions
//! through the context.
//!
//! A circuit is buffers that belong to one session for its life. The session's records lie in these and in no others, so they are let
//! in while other traffic has used up the buffers of all; and they take none of those. The session's window of data grows
//! within the circuit, and not at the cost of other windows. For the way out, each circuit has the packets to all other sessions leave
//! some of the common buffers free, for packets with records of its streams.
//!
//! Records that are longer than a packet are joined in the buffers of all, and datagrams are never let in by a circuit.

use super::Net;
use crate::net::peers::Peer;
use crate::refusal::refuse;
use crossdock_mailbox::{Buffer, BufferMut, Pool, PoolConfig};
use crossdock_transport::control::{Refusal, RefusalCode};
use crossdock_transport::{MAX_SUPER_BYTES, Session};
use std::collections::HashMap;
use std::io;

/// The smallest circuit, in bytes: two super-packets, and as many bytes of shorter packets.
const LEAST_BYTES: u64 = 256 << 10;
/// Large buffers that packets to other sessions leave free for each circuit.
const SPARE_PACKETS: usize = 4;
/// Sizes of a circuit's buffers, and the part of its bytes that each has.
const CLASSES: [(usize, u64); 3] = [(2 << 10, 4), (16 << 10, 4), (64 << 10, 2)];

/// The buffers of one session.
pub(crate) struct Circuit {
    pool: Pool,
    bytes: u64,
    /// Bytes by which the session's window has grown within it.
    grown_bytes: u64,
}

impl Circuit {
    /// A circuit of `bytes` bytes. To be made off the core: it maps memory.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn new(bytes: u64) -> io::Result<Circuit> {
        let class = |(size, part): (usize, u64)| (size, ((bytes / part) as usize).div_ceil(size));
        let pool = Pool::new(PoolConfig { classes: CLASSES.map(class).to_vec() })?;
        Ok(Circuit { pool, bytes, grown_bytes: 0 })
    }

    /// Its buffers.
    #[inline]
    pub(super) fn pool_mut(&mut self) -> &mut Pool {
        &mut self.pool
    }

    /// Whether it has room for a super-packet.
    #[inline]
    fn has_room(&mut self) -> bool {
        self.pool.has_free(MAX_SUPER_BYTES, 1)
    }

    /// Lets the window of its session grow, up to its size.
    pub(super) fn grow_window<P, R>(&mut self, session: &mut Session<P, R>, now_ns: u64) {
        let spare_bytes = self.bytes.saturating_sub(session.window_bytes());
        self.grown_bytes += session.grow_window(now_ns, spare_bytes);
    }
}

/// The circuits of a context.
pub(super) struct Circuits {
    by_peer: HashMap<usize, Circuit>,
    /// Bytes of all of them, and the bound on that.
    bytes: u64,
    most_bytes: u64,
}

impl Circuits {
    pub(super) fn new(most_bytes: u64) -> Circuits {
        Circuits { by_peer: HashMap::new(), bytes: 0, most_bytes }
    }

    /// That of a peer, if it has one.
    #[inline]
    pub(super) fn of(&mut self, peer: usize) -> Option<&mut Circuit> {
        if self.by_peer.is_empty() { None } else { self.by_peer.get_mut(&peer) }
    }

    /// Large buffers that other sessions' packets leave free, of `large` that the context has.
    #[inline]
    pub(super) fn spare(&self, large: usize) -> usize {
        (SPARE_PACKETS * self.by_peer.len()).min(large / 8)
    }

    /// Refuses a circuit for which there is no room.
    fn admit(&self, peer: usize, bytes: u64) -> Result<(), Refusal> {
        if self.by_peer.contains_key(&peer) {
            return Err(refuse(RefusalCode::State, "this session has a circuit already: it has one at most"));
        }
        let left = self.most_bytes.saturating_sub(self.bytes);
        if bytes > left {
            let message = format!(
                "a circuit of {bytes} bytes, and {left} of {} are left for circuits: ask for fewer, or raise `max_circuit_bytes` in \
                 [context] of the daemon's configuration",
                self.most_bytes
            );
            return Err(refuse(RefusalCode::Limit, message));
        }
        Ok(())
    }

    /// The end of a peer: its circuit is released. By how many bytes its window had grown within it.
    pub(super) fn close(&mut self, peer: usize) -> u64 {
        let Some(Circuit { bytes, grown_bytes, .. }) = self.by_peer.remove(&peer) else { return 0 };
        self.bytes -= bytes;
        grown_bytes
    }
}

impl Net {
    /// The size of a circuit for a peer that has asked for one of `bytes`: what the peer may send ahead by now must have room in it.
    ///
    /// # Errors
    /// There is no room for it, or the peer has one.
    pub(crate) fn admit_circuit(&mut self, key: usize, bytes: u64) -> Result<u64, Refusal> {
        let window = self.peers.link_mut(key).map_or(0, |link| link.session.window_bytes());
        let bytes = bytes.max(LEAST_BYTES).max(window);
        self.circuits.admit(key, bytes).map(|()| bytes)
    }

    /// A peer has a circuit from now on.
    ///
    /// # Errors
    /// There is no room for it any more, or the peer has one.
    pub(crate) fn open_circuit(&mut self, key: usize, circuit: Circuit) -> Result<(), Refusal> {
        self.circuits.admit(key, circuit.bytes)?;
        self.circuits.bytes += circuit.bytes;
        self.circuits.by_peer.insert(key, circuit);
        Ok(())
    }

    /// Bytes of a peer's circuit; 0 if it has none.
    pub(crate) fn circuit_bytes(&self, key: usize) -> u64 {
        self.circuits.by_peer.get(&key).map_or(0, |circuit| circuit.bytes)
    }

    /// Whether a peer with a circuit publishes a stream.
    #[inline]
    pub(crate) fn has_circuit(&self, stream: usize) -> bool {
        let publishes = |peer: &Peer| peer.publishing().iter().any(|publishing| publishing.stream == stream);
        self.circuits.by_peer.keys().any(|key| self.peers.get(*key).is_some_and(publishes))
    }

    /// Whether so few buffers are free that data of a peer is better sent again later.
    #[inline]
    pub(crate) fn lacks_buffers(&mut self, key: usize) -> bool {
        match self.circuits.of(key) {
            Some(circuit) => !circuit.has_room(),
            None => self.is_short_of_buffers(),
        }
    }

    /// A buffer for data of a peer.
    #[inline]
    pub(crate) fn alloc_for(&mut self, key: usize, bytes: usize) -> Option<BufferMut> {
        match self.circuits.of(key) {
            Some(circuit) => circuit.pool.alloc(bytes),
            None => self.pool.alloc(bytes),
        }
    }

    /// The first `end` bytes of a buffer with data of a peer, in its circuit's buffers if it has one; else the buffer itself.
    #[inline]
    pub(crate) fn in_circuit(&mut self, key: usize, buffer: &Buffer, end: usize) -> Buffer {
        let own = self.circuits.of(key).and_then(|circuit| circuit.pool.own(buffer, end));
        own.unwrap_or_else(|| buffer.clone())
    }
}
