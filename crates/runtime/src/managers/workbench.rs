//! A workplace for handlers that are measured, which does to the processor what a context does.

use crate::platform::making::{Maker, Making};
use crossdock_engine::{Sink, Workplace};
use crossdock_mailbox::{Pool, PoolConfig};
use std::hint::black_box;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

/// How long measuring rests between its rounds, of which there are some ten: together longer than others of the host usually slow
/// it down, and far from the time after which it counts as stuck.
pub(crate) const PAUSE: Duration = Duration::from_millis(10);
/// How often it is polled for the next batch: for some 20 us, while a context has time for more.
const POLLS: usize = 24;
/// What it uses of memory meanwhile: sessions, streams, packets.
const OTHER_BYTES: usize = 64 << 10;
/// What a packet holds at most.
const PACKET_BYTES: usize = 63_000;
/// Buffers of each size for what handlers make of a batch.
const BUFFERS: usize = 8;

/// Polls, takes a packet from the network, and looks at other memory, between two batches; rows are packed into buffers of a pool.
#[derive(Debug)]
pub(crate) struct Workbench {
    pause: Duration,
    /// To itself; without one it only lets time pass.
    socket: Option<UdpSocket>,
    received: Vec<u8>,
    other: Vec<u8>,
    making: Making,
    pool: Option<Pool>,
    /// What each time took that it polled and looked at memory, in ns, which is the same work each time.
    took_ns: Vec<u64>,
}

impl Workbench {
    /// One with pauses so long between what is measured.
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
            making: Making::default(),
            pool: Pool::new(PoolConfig { classes: vec![(2 << 10, BUFFERS), (64 << 10, BUFFERS)] }).ok(),
            took_ns: Vec::new(),
        }
    }

    /// How long its own work took, which is the same each time: how fast the processor was, in ns. Without the fifth that took the
    /// least, and the most, which is as measuring does it.
    pub(crate) fn pace_ns(&mut self) -> Option<f64> {
        self.took_ns.sort_unstable();
        let end = self.took_ns.len() / 5;
        let middle = &self.took_ns[end..self.took_ns.len() - end];
        let sum: u64 = middle.iter().sum();
        (sum > 0).then(|| sum as f64 / middle.len() as f64)
    }
}

impl Sink for Workbench {
    fn push(&mut self, record: &[u8]) {
        if let Some(pool) = &mut self.pool {
            Maker { making: &mut self.making, pool }.push(record);
        }
    }
}

impl Workplace for Workbench {
    fn between(&mut self, next: &[u8]) {
        self.making.close();
        for batch in std::mem::take(&mut self.making.made) {
            self.making.keep(batch);
        }
        let mut poll = || self.socket.as_ref().and_then(|socket| socket.recv(&mut self.received).ok());
        let start = Instant::now();
        for _ in 0..POLLS {
            poll();
        }
        black_box(self.other.iter().step_by(64).fold(0u8, |all, byte| all ^ byte));
        self.took_ns.push(start.elapsed().as_nanos() as u64);
        let packet = next.get(..PACKET_BYTES).unwrap_or(next);
        // It is there at once, but where the kernel has no memory for it.
        if self.socket.as_ref().is_some_and(|socket| socket.send(packet).is_ok()) {
            poll();
        }
        self.making.begin(next.len());
    }

    fn pause(&mut self) {
        std::thread::sleep(self.pause);
    }
}
