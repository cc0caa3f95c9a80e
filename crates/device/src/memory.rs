//! Two devices joined in memory, for tests and for programs that are their own peer: nothing is lost or reordered.

use crate::{Device, DeviceCounters, Frame, MAX_SUPER_BYTES, Sent, check_super, hand_over};
use crossdock_mailbox::Pool;
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How a pair behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryOptions {
    /// Bytes that may wait each way; more makes `send` say [`Sent::Full`]. Default: no bound.
    pub queue_bytes: usize,
    /// Packet length in bytes that both ends advise. Default 8192.
    pub packet_bytes: usize,
    /// Super-packets arrive joined, as they do with GRO; else packet by packet. Default true.
    pub joins: bool,
}

impl Default for MemoryOptions {
    fn default() -> MemoryOptions {
        MemoryOptions { queue_bytes: usize::MAX, packet_bytes: 8192, joins: true }
    }
}

/// One direction's queue.
struct Direction {
    state: Mutex<Waiting>,
    /// Readable just while something waits.
    readable: OwnedFd,
}

#[derive(Default)]
struct Waiting {
    /// With the stride and ECN's bits.
    arrivals: VecDeque<(Vec<u8>, usize, u8)>,
    bytes: usize,
    /// Memory of earlier arrivals, for later ones.
    spare: Vec<Vec<u8>>,
    receiver_gone: bool,
}

/// Spare arrivals' memory kept for each direction.
const MAX_SPARE: usize = 64;

impl Direction {
    fn new() -> io::Result<Arc<Direction>> {
        let readable = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Arc::new(Direction { state: Mutex::default(), readable }))
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_readable(&self, readable: bool) {
        // Neither can fail in a way that matters: the count is 0 or 1, and the descriptor never blocks.
        if readable {
            let _raised = rustix::io::write(&self.readable, &1u64.to_ne_bytes());
        } else {
            let _lowered = rustix::io::read(&self.readable, &mut [0; 8]);
        }
    }
}

/// One end of a pair; see [`MemoryDevice::pair`].
pub struct MemoryDevice {
    local: SocketAddr,
    peer: SocketAddr,
    inbound: Arc<Direction>,
    outbound: Arc<Direction>,
    options: MemoryOptions,
    ecn: u8,
    counters: DeviceCounters,
}

impl MemoryDevice {
    /// Two ends at 192.0.2.1:1 and 192.0.2.2:2 (addresses for documentation), each the other's one peer.
    ///
    /// # Errors
    /// The kernel's, when it has no more descriptors.
    pub fn pair(options: MemoryOptions) -> io::Result<(MemoryDevice, MemoryDevice)> {
        let (a, b) = (Direction::new()?, Direction::new()?);
        let at = |host| SocketAddr::from((Ipv4Addr::new(192, 0, 2, host), u16::from(host)));
        let end = |local, peer, inbound: &Arc<Direction>, outbound: &Arc<Direction>| MemoryDevice {
            local,
            peer,
            inbound: inbound.clone(),
            outbound: outbound.clone(),
            options,
            ecn: 0,
            counters: DeviceCounters::default(),
        };
        Ok((end(at(1), at(2), &a, &b), end(at(2), at(1), &b, &a)))
    }
}

impl Device for MemoryDevice {
    fn local_addr(&self) -> SocketAddr {
        self.local
    }

    fn receive(&mut self, pool: &mut Pool, frames: &mut Vec<Frame>, max: usize) -> io::Result<usize> {
        let before = frames.len();
        let way = self.inbound.clone();
        let mut waiting = way.lock();
        for _ in 0..max {
            let Some((arrival, stride, ecn)) = waiting.arrivals.pop_front() else {
                break;
            };
            waiting.bytes -= arrival.len();
            if waiting.arrivals.is_empty() {
                way.set_readable(false);
            }
            match pool.alloc(arrival.len()) {
                Some(mut buffer) => {
                    buffer[..arrival.len()].copy_from_slice(&arrival);
                    frames.push(hand_over(&mut self.counters, buffer, arrival.len(), stride, (self.peer, ecn)));
                }
                None => self.counters.dropped_no_buffer += arrival.len().div_ceil(stride) as u64,
            }
            if waiting.spare.len() < MAX_SPARE {
                waiting.spare.push(arrival);
            }
        }
        Ok(frames.len() - before)
    }

    fn send(&mut self, to: SocketAddr, slices: &[IoSlice<'_>], stride: usize) -> io::Result<Sent> {
        let (bytes, packets) = check_super(slices, stride)?;
        if to != self.peer {
            let what = format!("this device speaks with {} only, not with {to}", self.peer);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let way = self.outbound.clone();
        let mut waiting = way.lock();
        if waiting.receiver_gone {
            self.counters.errors += 1;
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        if waiting.bytes.saturating_add(bytes) > self.options.queue_bytes {
            self.counters.full += 1;
            return Ok(Sent::Full);
        }
        let mut joined = waiting.spare.pop().unwrap_or_default();
        joined.clear();
        slices.iter().for_each(|slice| joined.extend_from_slice(slice));
        if waiting.arrivals.is_empty() {
            way.set_readable(true);
        }
        waiting.bytes += bytes;
        if self.options.joins || packets == 1 {
            waiting.arrivals.push_back((joined, stride.min(bytes), self.ecn));
        } else {
            let ecn = self.ecn;
            waiting.arrivals.extend(joined.chunks(stride).map(|packet| (packet.to_vec(), packet.len(), ecn)));
        }
        self.counters.supers_sent += 1;
        self.counters.packets_sent += packets as u64;
        self.counters.bytes_sent += bytes as u64;
        Ok(Sent::Done)
    }

    fn set_ecn(&mut self, bits: u8) {
        self.ecn = bits;
    }

    fn ecn(&self) -> u8 {
        self.ecn
    }

    fn packet_bytes(&self, _to: SocketAddr) -> usize {
        self.options.packet_bytes.clamp(8, MAX_SUPER_BYTES) & !7
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.inbound.readable.as_fd())
    }

    fn counters(&self) -> DeviceCounters {
        self.counters
    }
}

impl Drop for MemoryDevice {
    fn drop(&mut self) {
        let mut waiting = self.inbound.lock();
        waiting.receiver_gone = true;
        waiting.arrivals.clear();
        waiting.bytes = 0;
    }
}

impl std::fmt::Debug for MemoryDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryDevice")
            .field("local", &self.local)
            .field("peer", &self.peer)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}
