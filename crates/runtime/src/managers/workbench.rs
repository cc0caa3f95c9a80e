//! A workbench for handlers that are measured: it loads the processor and its caches as a context does.

use crate::graph::build::Workspace;
use crossdock_engine::{Sink, Workplace};
use crossdock_mailbox::{Pool, PoolConfig};
use std::hint::black_box;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

/// How long measuring rests between its rounds, of which there are some ten: together longer than others of the host
/// usually slow it down, and far from the time after which it counts as stuck.
pub(crate) const PAUSE: Duration = Duration::from_millis(10);
/// Polls for the next batch: for about 20 us, while a context has time for more.
const POLLS: usize = 24;
/// Other memory that is touched meanwhile, in bytes: sessions, streams, packets.
const OTHER_BYTES: usize = 64 << 10;
/// The most bytes that a packet holds.
const PACKET_BYTES: usize = 63_000;
/// Buffers of each size for what handlers make of a batch.
const BUFFERS: usize = 8;

/// Polls, takes a packet from the network, and looks at other memory, between two batches; rows are packed into buffers
/// of a pool.
#[derive(Debug)]
pub(crate) struct Workbench {
    pause: Duration,
    /// A socket to itself; without one the workbench only lets time pass.
    socket: Option<UdpSocket>,
    received: Vec<u8>,
    other: Vec<u8>,
    /// Memory for what handlers make, if there is some.
    made: Option<Workspace>,
}

impl Workbench {
    /// A workbench with pauses of `pause` between the measured rounds.
    pub(crate) fn new(pause: Duration) -> Workbench {
        let to_itself = || -> std::io::Result<UdpSocket> {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
            socket.connect(socket.local_addr()?)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        Workbench {
            pause,
            socket: to_itself().ok(),
            received: vec![0; PACKET_BYTES],
            other: vec![1; OTHER_BYTES],
            made: Pool::new(PoolConfig { classes: vec![(2 << 10, BUFFERS), (64 << 10, BUFFERS)] })
                .ok()
                .map(Workspace::new),
        }
    }

    fn poll(&mut self) {
        // Whether something is there makes no difference here.
        let _ = self.socket.as_ref().map(|socket| socket.recv(&mut self.received));
    }
}

impl Sink for Workbench {
    fn push(&mut self, record: &[u8]) {
        if let Some(made) = &mut self.made {
            made.sink().push(record);
        }
    }
}

impl Workplace for Workbench {
    fn elsewhere(&mut self) {
        (0..POLLS).for_each(|_| self.poll());
        black_box(self.other.iter().step_by(64).fold(0u8, |all, byte| all ^ byte));
    }

    fn bring(&mut self, next: &[u8]) {
        self.made.iter_mut().for_each(Workspace::discard);
        let packet = next.get(..PACKET_BYTES).unwrap_or(next);
        // It is there at once, but where the kernel has no memory for it.
        if self.socket.as_ref().is_some_and(|socket| socket.send(packet).is_ok()) {
            self.poll();
        }
        self.made.iter_mut().for_each(|made| made.builder.begin(next.len(), BUFFERS));
    }

    fn pause(&mut self) {
        std::thread::sleep(self.pause);
    }
}
