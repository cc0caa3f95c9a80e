//! The client's side against a daemon that the test plays by hand: every entry of the rings in the open, in any order, late,
//! or wrong.

mod direct;
#[cfg(feature = "failpoints")]
mod hostile;
mod lane;
mod ports;
mod signals;

use super::{Attachment, MailboxError, Wait};
use crate::attach::{AttachAddr, AttachListener, AttachRequest};
use crate::host::{AttachReply, ClientKey, DomainSegments, Prepared};
use crate::shared::{
    ControlLayout, CoreLane, Descriptor, DoorbellPage, HostCondition, PORT_ENTRIES, Passed, RingReader, RingWriter,
    SIGNAL_ENTRIES, Signal, SyncAddress, SyncCell, TakenCount, down,
};
use crate::{HugePages, Reason};
use rustix::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const SEGMENT_BYTES: u32 = 1 << 20;

/// A daemon whose every byte is the test's to choose.
struct Fake {
    prepared: Prepared,
    domain: Arc<DomainSegments>,
    lane: Arc<Mutex<CoreLane>>,
    signal_up: RingReader<Signal>,
    signal_down: RingWriter<Signal>,
    taken: TakenCount,
    arrivals: HostCondition,
    upcalled: HostCondition,
}

/// One port of it.
struct FakePort {
    number: u16,
    lane: Arc<Mutex<CoreLane>>,
    up: RingReader<Descriptor>,
    down: RingWriter<Descriptor>,
    arrivals: HostCondition,
}

/// An attachment, and the daemon that it is to.
fn attach() -> (Attachment, Fake) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("crossdock-fake-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let address = AttachAddr::Abstract(name);
    let listener = AttachListener::bind(&address, true).unwrap();
    let connect = std::thread::spawn(move || Attachment::connect(&address).unwrap());
    let (peer, socket) = loop {
        match listener.accept().unwrap() {
            Some(asker) => break asker,
            None => std::thread::yield_now(),
        }
    };
    while AttachRequest::receive(socket.as_fd()) == Ok(None) {}
    let bytes = u64::from(SEGMENT_BYTES);
    let domain = Arc::new(DomainSegments::new("fake", bytes, bytes, HugePages::None).unwrap());
    let (prepared, reply): (Prepared, AttachReply) =
        Prepared::new(peer, socket, &domain, &DoorbellPage::new().unwrap()).unwrap();
    reply.send(ClientKey::new(1, 7)).unwrap();
    let control = &prepared.control;
    let condition = |index| HostCondition::new(control, ControlLayout::condition(index)).unwrap();
    let mut fake = Fake {
        lane: Arc::new(Mutex::new(CoreLane::new(control).unwrap())),
        signal_up: RingReader::new(control, ControlLayout::signal_up(), SIGNAL_ENTRIES).unwrap(),
        signal_down: RingWriter::new(control, ControlLayout::signal_down(), SIGNAL_ENTRIES).unwrap(),
        taken: TakenCount::new(control).unwrap(),
        arrivals: condition(0),
        upcalled: condition(1),
        domain,
        prepared,
    };
    let attachment = connect.join().unwrap();
    for _ in 0..super::signal::MAX_ERRORS {
        assert_eq!(fake.next_signal(), super::signal::listen(crate::shared::up::LISTEN_ERRORS));
    }
    (attachment, fake)
}

impl Fake {
    fn port(&self, number: usize) -> FakePort {
        let control = &self.prepared.control;
        FakePort {
            number: number as u16,
            lane: self.lane.clone(),
            up: RingReader::new(control, ControlLayout::port_up(number), PORT_ENTRIES).unwrap(),
            down: RingWriter::new(control, ControlLayout::port_down(number), PORT_ENTRIES).unwrap(),
            arrivals: HostCondition::new(control, ControlLayout::condition(0)).unwrap(),
        }
    }

    /// The next signal of the client, which is to come.
    fn next_signal(&mut self) -> Signal {
        let signal = eventually(|| self.pop());
        self.taken.store(self.signal_up.position());
        signal
    }

    /// The next signal, if it is there.
    fn pop(&mut self) -> Option<Signal> {
        let is_ready = self.signal_up.is_ready();
        let passed = take_passed(&self.lane, u16::MAX, self.signal_up.position());
        passed.map(|passed| passed.signal).or_else(|| if is_ready { self.signal_up.pop() } else { None })
    }

    /// Sends a signal and wakes who sleeps, as the core's turn does.
    fn send(&mut self, signal: Signal) {
        self.signal_down.push(signal);
        self.arrivals.signal_if_asleep();
    }

    fn answer(&mut self, tag: u64, head: Descriptor) {
        self.send(Signal { head, a: tag, b: 0 });
    }

    fn write_sync(&mut self, address: SyncAddress, value: u64) {
        let at = ControlLayout::client_sync(address.index.into());
        SyncCell::new(&self.prepared.control, at).unwrap().write(address.generation, value);
        self.arrivals.signal_if_asleep();
    }

    /// Writes into one of the domain's segments, as another process or the core does.
    fn fill(&self, is_inbox: bool, offset: u32, bytes: &[u8]) {
        let segment = if is_inbox { self.domain.inbox() } else { self.domain.shared() };
        assert!(segment.write_from(offset as usize, bytes));
    }

    fn bytes_at(&self, offset: u32, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        assert!(self.domain.shared().read_into(offset as usize, &mut bytes));
        bytes
    }
}

impl FakePort {
    fn send(&mut self, entry: Descriptor) {
        self.down.push(entry);
        self.arrivals.signal_if_asleep();
    }

    /// The next entry of the client, which is to come.
    fn next(&mut self) -> Descriptor {
        eventually(|| self.pop())
    }

    /// The next entry, if it is there.
    fn pop(&mut self) -> Option<Descriptor> {
        let is_ready = self.up.is_ready();
        let passed = take_passed(&self.lane, self.number, self.up.position());
        passed.map(|passed| passed.signal.head).or_else(|| if is_ready { self.up.pop() } else { None })
    }
}

/// The entry passed for that port, if it is the next one after `position` entries of its ring.
fn take_passed(lane: &Mutex<CoreLane>, port: u16, position: u64) -> Option<Passed> {
    let mut lane = lane.lock().unwrap();
    let passed = lane.peek().filter(|passed| (passed.port, passed.after) == (port, position as u32))?;
    lane.accept();
    Some(passed)
}

fn grant(slot: u16, offset: u32, len: u32) -> Descriptor {
    Descriptor { op: down::GRANT, slot, generation: slot + 100, target: 0, offset, len }
}

fn message(slot: u16, offset: u32, len: u32, area: u16) -> Descriptor {
    Descriptor { op: down::MESSAGE, slot, generation: slot + 100, target: area, offset, len }
}

fn refused(reason: Reason) -> Descriptor {
    Descriptor { op: down::REFUSED, target: reason.code(), ..Descriptor::default() }
}

/// The final result of `look`. It has to, soon.
fn eventually<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "it did not come");
        std::thread::yield_now();
    }
}

/// A time that has passed already.
fn now() -> Wait {
    Wait::Until(Instant::now())
}

fn is_gone(error: &MailboxError, says: &str) -> bool {
    matches!(error, MailboxError::Gone { reason, .. } if reason.contains(says))
}
