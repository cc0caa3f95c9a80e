//! Two real processes over one control segment: what was handed over at attaching works from both sides, asleep and
//! awake, and what a client may only read it cannot write.

#![allow(clippy::unwrap_used)] // a test that fails may panic

use super::{
    ARRIVAL_CONDITION, ArmedFlag, ControlLayout, CoreBell, DOORBELL_PAGE_BYTES, Descriptor, DoorbellPage,
    FREE_CONDITION, HostCondition, RingReader, RingWriter, SIGNAL_ENTRIES, Signal, SyncCell, down, up,
};
use crate::attach::{AttachAddr, AttachListener, AttachRequest, Handles, Welcome, connect};
use crate::segment::{HugePages, Segment};
use crate::sync::{Arc, Ordering, fence};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::pipe::{PipeFlags, pipe_with};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Says to the test that is run again as a process of its own where to attach.
const ADDRESS: &str = "CROSSDOCK_TEST_ATTACH";
const ROUNDS: u32 = 300;
/// Long enough for the slowest machine: only a broken test waits so long.
const PATIENCE: Duration = Duration::from_secs(60);

fn condition(control: &Arc<Segment>, index: u16) -> HostCondition {
    HostCondition::new(control, ControlLayout::condition(index.into())).unwrap()
}

/// The client's process: sends back each signal; asleep in between, in turn by each of the ways there are.
#[test]
fn client_process() {
    let Ok(address) = std::env::var(ADDRESS) else { return };
    let request = AttachRequest { uses_mailboxes: true };
    let admitted = connect(&address.parse().unwrap(), request, PATIENCE).unwrap();
    let Welcome { client, control_bytes, shared_bytes, inbox_bytes } = admitted.welcome;
    let map = |fd: OwnedFd, bytes: u64, writable| Segment::map(fd, bytes as usize, writable).map(Arc::new);
    let copy = |fd: &OwnedFd| fd.try_clone().unwrap();
    let Handles { control, shared, inbox, bell, doorbell, wake } = admitted.handles;
    assert!(map(copy(&inbox), inbox_bytes, true).is_err(), "messages of other domains are to be read only");
    assert!(map(copy(&bell), DOORBELL_PAGE_BYTES as u64, true).is_err());
    let control = map(control, control_bytes, true).unwrap();
    let shared = map(shared, shared_bytes, true).unwrap();
    let inbox = map(inbox, inbox_bytes, false).unwrap();
    let bell = CoreBell::new(&map(bell, DOORBELL_PAGE_BYTES as u64, false).unwrap(), doorbell).unwrap();
    let mut reader = RingReader::<Signal>::new(&control, ControlLayout::signal_down(), SIGNAL_ENTRIES).unwrap();
    let mut writer = RingWriter::<Signal>::new(&control, ControlLayout::signal_up(), SIGNAL_ENTRIES).unwrap();
    let (arrival, other) = (condition(&control, ARRIVAL_CONDITION), condition(&control, FREE_CONDITION));
    let (armed, sync) = (ArmedFlag::new(&control).unwrap(), SyncCell::new(&control, ControlLayout::client_sync(3)));
    let sync = sync.unwrap();

    let mut rung = 0;
    for round in 0..ROUNDS {
        assert!(sync.alloc(round as u16));
        let signal = loop {
            if let Some(signal) = reader.pop() {
                break signal;
            }
            if round % 2 == 0 {
                arrival.wait_unless(arrival.value(), Some(PATIENCE), || reader.is_ready());
            } else {
                armed.arm();
                if !reader.is_ready() {
                    assert_eq!(rustix::io::read(&wake, &mut [0; 1]), Ok(1));
                }
            }
        };
        let mut message = [0; 8];
        let from = if signal.head.target == 0 { &shared } else { &inbox };
        assert!(from.read_into(signal.head.offset as usize, &mut message));
        assert!(shared.write_from(64, &message));
        writer.push(Signal { head: Descriptor { op: up::SIGNAL_PUT, ..signal.head }, a: client.into(), b: signal.a });
        bell.ring_if_asleep(&mut rung);
        // The answer to that: a value, then a signal of the plain kind.
        let value = loop {
            let seen = other.value();
            if let Some(value) = sync.poll(round as u16) {
                break value;
            }
            other.wait_unless(seen, Some(PATIENCE), || other.value() != seen);
        };
        assert_eq!(value, signal.a + 1);
    }
    // Gone without a word: the daemon's end of the socket says so.
}

/// The client's process; it does not outlive a test that failed.
struct Client(Child);

impl Client {
    fn run(address: &AttachAddr) -> Client {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "shared::processes::client_process", "--nocapture"]);
        Client(command.env(ADDRESS, address.to_string()).stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// Waits until `fd` is readable.
fn await_input(fd: impl AsFd) {
    let timeout = PATIENCE.try_into().unwrap();
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    assert_eq!(poll(&mut fds, Some(&timeout)), Ok(1), "the client does nothing");
}

/// The core's side of a round, asleep until the client has answered.
fn answer_to(reader: &mut RingReader<Signal>, page: &DoorbellPage, doorbell: &OwnedFd) -> Signal {
    loop {
        if let Some(answer) = reader.pop() {
            return answer;
        }
        page.before_sleep();
        if !reader.is_ready() {
            await_input(doorbell);
            // A daemon never reads a doorbell, but looks at its edges only; `poll` knows none.
            let _count = rustix::io::read(doorbell, &mut [0; 8]);
        }
        page.after_sleep();
    }
}

#[test]
fn two_processes_share_all_that_is_handed_over() {
    let address = AttachAddr::Abstract(format!("crossdock-test-processes-{}", std::process::id()));
    let listener = AttachListener::bind(&address, false).unwrap();
    let mut client = Client::run(&address);
    await_input(&listener);
    let (peer, socket) = listener.accept().unwrap().unwrap();
    assert_eq!(peer.pid, client.0.id());
    await_input(&socket);
    assert_eq!(AttachRequest::receive(socket.as_fd()), Ok(Some(AttachRequest { uses_mailboxes: true })));

    let control = Arc::new(Segment::shared(ControlLayout::BYTES, HugePages::None).unwrap());
    let shared = Segment::shared(1 << 16, HugePages::Transparent).unwrap();
    let inbox = Segment::shared_for_readers(1 << 16, HugePages::Transparent).unwrap();
    let page = DoorbellPage::new().unwrap();
    let doorbell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
    let (wake_read, wake) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let mut writer = RingWriter::<Signal>::new(&control, ControlLayout::signal_down(), SIGNAL_ENTRIES).unwrap();
    let mut reader = RingReader::<Signal>::new(&control, ControlLayout::signal_up(), SIGNAL_ENTRIES).unwrap();
    let (arrival, other) = (condition(&control, ARRIVAL_CONDITION), condition(&control, FREE_CONDITION));
    let (armed, sync) = (ArmedFlag::new(&control).unwrap(), SyncCell::new(&control, ControlLayout::client_sync(3)));
    let sync = sync.unwrap();
    let [control_bytes, shared_bytes, inbox_bytes] = [control.bytes(), shared.bytes(), inbox.bytes()].map(|n| n as u64);
    let welcome = Welcome { client: 41, control_bytes, shared_bytes, inbox_bytes };
    let handles = Handles {
        control: control.fd().unwrap(),
        shared: shared.fd().unwrap(),
        inbox: inbox.fd().unwrap(),
        bell: page.segment().fd().unwrap(),
        doorbell: doorbell.as_fd(),
        wake: wake_read.as_fd(),
    };
    welcome.send(socket.as_fd(), &handles).unwrap();

    for round in 0..ROUNDS {
        let (number, area) = (u64::from(round) << 33 | 5, round % 3 / 2);
        let segment = if area == 0 { &shared } else { &inbox };
        assert!(segment.write_from(round as usize * 128 + 200, &number.to_ne_bytes()));
        let head = Descriptor {
            op: down::MESSAGE,
            offset: round * 128 + 200,
            target: area as u16,
            len: 8,
            ..Descriptor::default()
        };
        writer.push(Signal { head, a: number, b: 0 });
        fence(Ordering::SeqCst);
        if arrival.has_sleepers() {
            arrival.wake();
        }
        if armed.take() {
            assert_eq!(rustix::io::write(&wake, &[0]), Ok(1));
        }
        let answer = answer_to(&mut reader, &page, &doorbell);
        assert_eq!((answer.head.op, answer.head.offset), (up::SIGNAL_PUT, head.offset));
        assert_eq!((answer.a, answer.b), (41, number));
        let mut message = [0; 8];
        assert!(shared.read_into(64, &mut message) && u64::from_ne_bytes(message) == number);
        let _outcome = sync.write(round as u16, number + 1);
        other.signal();
    }
    await_input(&socket);
    assert_eq!(rustix::io::read(&socket, &mut [0; 1]), Ok(0), "hung up");
    await_input(peer.pidfd.unwrap());
    assert!(client.0.wait().unwrap().success());
}
