//! The I/O contexts of a daemon, each with a socket, sessions and attached clients of its own, as one of them sees them.
//!
//! A session's number names its context. The kernel brings the packets of one peer to one socket; those that come to another
//! context than their session's all the same are handed over. Where mailboxes and tasks are is the *home* context.

use crossdock_device::{Doorbell, Frame};
use crossdock_mailbox::Buffer;
use crossdock_mailbox::ring::{Consumer, Producer, ring};
use std::net::SocketAddr;

/// Frames that may wait to be taken over by another context; more are dropped, as on the way.
const FRAMES: usize = 64;

/// An I/O context's place among all of the daemon's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IoPlace {
    /// Which of them it is.
    pub(crate) index: usize,
    /// How many there are.
    pub(crate) of: usize,
    /// Which of them is the home context.
    pub(crate) home: usize,
}

impl IoPlace {
    /// Whether there is no other.
    pub(crate) fn is_only(self) -> bool {
        self.of == 1
    }

    /// Whether mailboxes and tasks are here, and the records of derived streams are counted here.
    pub(crate) fn is_home(self) -> bool {
        self.index == self.home
    }

    /// Bits that name one of them.
    pub(crate) fn bits(self) -> u32 {
        self.of.next_power_of_two().trailing_zeros()
    }
}

/// A frame whose session is at another context than the one that received it.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) buffer: Buffer,
    pub(crate) len: usize,
    /// Bytes from one packet to the next.
    pub(crate) stride: usize,
    pub(crate) from: SocketAddr,
    /// ECN's bits.
    pub(crate) ecn: u8,
}

/// An object that is handed over to another context.
#[derive(Debug)]
pub(crate) enum Handed {
    Frame(Received),
    /// Nobody receives at an address any more, by what the network reported to this context.
    Refused(SocketAddr),
}

impl From<Frame> for Received {
    fn from(frame: Frame) -> Received {
        let Frame { buffer, len, stride, from, ecn } = frame;
        Received { buffer: buffer.freeze(), len, stride, from, ecn }
    }
}

/// One context's ends of the rings by which frames are handed over, by the other contexts' places.
#[derive(Debug, Default)]
pub(crate) struct HandOver {
    to: Vec<Option<(Producer<Handed>, Doorbell)>>,
    from: Vec<Consumer<Handed>>,
}

impl HandOver {
    /// The ends of all contexts, which these doorbells wake.
    pub(crate) fn between(doorbells: &[Doorbell]) -> Vec<HandOver> {
        let mut all: Vec<HandOver> = doorbells.iter().map(|_| HandOver::default()).collect();
        for from in 0..doorbells.len() {
            for (to, doorbell) in doorbells.iter().enumerate() {
                let end = (from != to).then(|| {
                    let (producer, consumer) = ring(FRAMES);
                    all[to].from.push(consumer);
                    (producer, doorbell.clone())
                });
                all[from].to.push(end);
            }
        }
        all
    }

    /// Hands something over to the context of a place.
    ///
    /// # Errors
    /// There is none, or it has not taken what it was handed before.
    pub(crate) fn push(&mut self, to: usize, handed: Handed) -> Result<(), Handed> {
        let Some(Some((ring, doorbell))) = self.to.get_mut(to) else { return Err(handed) };
        ring.push(handed)?;
        doorbell.ring();
        Ok(())
    }

    /// Notifies all other contexts that nobody receives at an address any more. One that does not take it now notices by the
    /// peer's silence.
    pub(crate) fn refused(&mut self, addr: SocketAddr) {
        for to in 0..self.to.len() {
            let _ = self.push(to, Handed::Refused(addr));
        }
    }

    /// The next that was handed over to this context.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Handed> {
        self.from.iter_mut().find_map(Consumer::pop)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;
    use crossdock_device::Poller;
    use crossdock_mailbox::{Pool, PoolConfig};

    #[test]
    fn frames_reach_the_context_that_they_are_handed_to_as_far_as_there_is_room() {
        let mut pool = Pool::new(PoolConfig { classes: vec![(512, 256)] }).unwrap();
        let mut frame = |first: u8| {
            let mut buffer = pool.alloc(512).unwrap();
            buffer[0] = first;
            let from = SocketAddr::from(([127, 0, 0, 1], 7));
            Handed::Frame(Received::from(Frame { buffer, len: 1, stride: 1, from, ecn: 0 }))
        };
        let first = |handed: Handed| match handed {
            Handed::Frame(frame) => frame.buffer[0],
            Handed::Refused(addr) => panic!("a frame was handed over, not {addr}"),
        };
        let pollers: Vec<Poller> = (0..3).map(|_| Poller::new().unwrap()).collect();
        let doorbells: Vec<Doorbell> = pollers.iter().map(Poller::doorbell).collect();
        let mut all = HandOver::between(&doorbells);
        for (from, to) in [(0, 1), (1, 0), (2, 0), (0, 2)] {
            all[from].push(to, frame((10 * from + to) as u8)).unwrap();
        }
        let mut got = |at: usize| std::iter::from_fn(|| all[at].pop()).map(first).collect::<Vec<_>>();
        assert_eq!((got(0), got(1), got(2)), (vec![10, 20], vec![1], vec![2]));
        for number in 0..FRAMES {
            all[0].push(1, frame(number as u8)).unwrap();
        }
        assert!(all[0].push(1, frame(0)).is_err(), "the ring is full");
        assert!(all[0].push(0, frame(0)).is_err() && all[0].push(3, frame(0)).is_err(), "there is no such way");
        assert_eq!(first(all[1].pop().unwrap()), 0);
        all[0].push(1, frame(7)).unwrap();
        let addr = SocketAddr::from(([127, 0, 0, 1], 9));
        all[2].refused(addr);
        assert!(matches!(all[0].pop(), Some(Handed::Refused(gone)) if gone == addr));
    }

    #[test]
    fn a_place_is_named_by_as_many_bits_as_are_needed() {
        let bits = |of| IoPlace { index: 0, of, home: 0 }.bits();
        assert_eq!([1, 2, 3, 4, 5, 64].map(bits), [0, 1, 2, 2, 3, 6]);
    }
}
