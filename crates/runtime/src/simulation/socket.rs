//! The device of a node: what the network has brought, and what it is to take.

use crossdock_device::{Device, DeviceCounters, Frame, Sent};
use crossdock_mailbox::Pool;
use crossdock_sim::Frame as Arrival;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A super-packet that was sent: its receiver, its bytes, the stride of its packets, ECN's bits.
pub(super) type Sending = (SocketAddr, Vec<u8>, usize, u8);

/// The queues of a socket, and the packets that its interface takes.
#[derive(Debug)]
struct Queues {
    arrived: VecDeque<Arrival>,
    sent: Vec<Sending>,
    sent_bytes: usize,
    /// Bytes that may wait to leave.
    room_bytes: usize,
    was_full: bool,
}

/// The network's end of a socket. Cheap to clone: all clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Wire(Arc<Mutex<Queues>>);

impl Wire {
    /// A socket that takes `room_bytes` before it is full.
    pub(super) fn new(room_bytes: usize) -> Wire {
        let (arrived, sent) = (VecDeque::new(), Vec::new());
        Wire(Arc::new(Mutex::new(Queues { arrived, sent, sent_bytes: 0, room_bytes, was_full: false })))
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something has arrived.
    pub(super) fn arrive(&self, arrival: Arrival) {
        self.queues().arrived.push_back(arrival);
    }

    /// Whether something that has arrived was not taken, or something was to be sent that the socket had no room for.
    pub(super) fn is_behind(&self) -> bool {
        let mut queues = self.queues();
        std::mem::take(&mut queues.was_full) || !queues.arrived.is_empty()
    }

    /// Takes what was sent.
    pub(super) fn take_sent(&self) -> Vec<Sending> {
        let mut queues = self.queues();
        queues.sent_bytes = 0;
        std::mem::take(&mut queues.sent)
    }

    /// The device at its other end, at an address, whose interface takes packets of `most_bytes` and has sessions begin with
    /// `packet_bytes`.
    pub(super) fn device(&self, address: SocketAddr, (packet_bytes, most_bytes): (usize, usize)) -> SimulatedSocket {
        let (wire, counters) = (self.clone(), DeviceCounters::default());
        SimulatedSocket { address, wire, packet_bytes, most_bytes, ecn: 0, counters }
    }
}

/// A device whose packets cross the simulated network.
pub(super) struct SimulatedSocket {
    address: SocketAddr,
    wire: Wire,
    packet_bytes: usize,
    most_bytes: usize,
    ecn: u8,
    counters: DeviceCounters,
}

impl Device for SimulatedSocket {
    fn local_addr(&self) -> SocketAddr {
        self.address
    }

    fn receive(&mut self, pool: &mut Pool, frames: &mut Vec<Frame>, max: usize) -> io::Result<usize> {
        let before = frames.len();
        let mut queues = self.wire.queues();
        while frames.len() < before + max
            && let Some(Arrival { from, stride, bytes, ecn }) = queues.arrived.pop_front()
        {
            if bytes.is_empty() {
                self.counters.dropped_empty += 1;
                continue;
            }
            let Some(mut buffer) = pool.alloc(bytes.len()) else {
                self.counters.dropped_no_buffer += bytes.len().div_ceil(stride) as u64;
                continue;
            };
            buffer[..bytes.len()].copy_from_slice(&bytes);
            self.counters.packets_received += bytes.len().div_ceil(stride) as u64;
            self.counters.bytes_received += bytes.len() as u64;
            frames.push(Frame { buffer, len: bytes.len(), stride, from, ecn });
        }
        Ok(frames.len() - before)
    }

    fn send(&mut self, to: SocketAddr, slices: &[IoSlice<'_>], stride: usize) -> io::Result<Sent> {
        let mut bytes = Vec::with_capacity(slices.iter().map(|slice| slice.len()).sum());
        slices.iter().for_each(|slice| bytes.extend_from_slice(slice));
        if bytes.len().min(stride) > self.most_bytes {
            return Err(rustix::io::Errno::MSGSIZE.into());
        }
        let mut queues = self.wire.queues();
        if queues.sent_bytes + bytes.len() > queues.room_bytes {
            queues.was_full = true;
            self.counters.full += 1;
            return Ok(Sent::Full);
        }
        queues.sent_bytes += bytes.len();
        self.counters.packets_sent += bytes.len().div_ceil(stride.max(1)) as u64;
        self.counters.bytes_sent += bytes.len() as u64;
        queues.sent.push((to, bytes, stride, self.ecn));
        Ok(Sent::Done)
    }

    fn set_ecn(&mut self, bits: u8) {
        self.ecn = bits;
    }

    fn ecn(&self) -> u8 {
        self.ecn
    }

    fn packet_bytes(&self, _: SocketAddr) -> usize {
        self.packet_bytes
    }

    fn most_packet_bytes(&self, _: SocketAddr) -> usize {
        self.most_bytes
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn counters(&self) -> DeviceCounters {
        self.counters
    }
}
