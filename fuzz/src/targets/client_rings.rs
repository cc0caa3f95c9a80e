//! The client's side of rings, lane, syncs and signal queues, against a hostile daemon: whatever it writes, and whenever,
//! every call ends, nothing panics, and what the client reads and writes lies in its segments.
//!
//! The daemon's steps come between the client's calls and, at the places that failpoints name, within them: a client that
//! would sleep has the next step instead, and when there are none left the daemon hangs up.

use crate::raw_side::{AnySignal, Bytes, Entry, Lane};

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use arbitrary::{Arbitrary, Unstructured};
use crossdock_mailbox::client::raw::RawDaemon;
use crossdock_mailbox::client::{Attachment, Condition, Message, Put, Reader, SyncWord, Wait, Writer};
use crossdock_mailbox::failpoint::observe;
use crossdock_mailbox::host::DomainSegments;
use crossdock_mailbox::{ConditionAddress, HugePages, SyncAddress, SyncPool};

const SEGMENT_BYTES: u64 = 1 << 20;
/// Slots of a writer are granted again.
const REGRANT: u8 = 9;
/// Steps of an input: fewer than make a ring that nobody empties full.
const MOST_STEPS: usize = 200;
/// Unrequested signals: with what the client sends in this number of steps they leave room in its ring. A client waits for
/// room as long as its daemon is there.
const MOST_UNASKED: u16 = 300;
/// Messages and puts that the client keeps.
const MOST_KEPT: usize = 300;

/// An act of the daemon.
#[derive(Arbitrary, Debug)]
enum Act {
    Entry(Entry),
    /// A grant, a message or a refusal that may be right.
    Near {
        port: u8,
        op: u8,
        slot: u8,
        target: u8,
        offset: u32,
        len: u16,
    },
    /// This number of grants or messages, of slots that follow each other.
    Many {
        port: u8,
        op: u8,
        slot: u8,
        count: u8,
    },
    /// With its second word.
    Pass(Lane, u64),
    /// A value for a sync, over the lane.
    PassSync {
        index: u8,
        generation: u8,
        value: u64,
    },
    /// It takes what the client passed.
    TakePassed,
    Signal(AnySignal),
    /// An answer to what the client asked, by some operation.
    Answer {
        op: u8,
        slot: u8,
        target: u8,
        offset: u16,
        len: u16,
    },
    /// This number of errors or upcalls.
    Unasked {
        op: u8,
        count: u16,
    },
    /// It says how much it has taken.
    Taken {
        of_session: bool,
        count: u64,
    },
    Scribble(Bytes),
    /// Bytes in a message.
    Write {
        inbox: bool,
        offset: u16,
        bytes: [u8; 8],
    },
    /// It falls asleep, or wakes up.
    Sleep {
        asleep: bool,
    },
    /// A packet over the socket.
    Say {
        packet: Vec<u8>,
    },
    HangUp,
}

/// A call of the client.
#[derive(Arbitrary, Debug)]
enum Call {
    BeginPut {
        writer: u8,
        bytes: u16,
        blocks: bool,
    },
    TryBeginPut {
        writer: u8,
        bytes: u16,
    },
    EndPut {
        writer: u8,
    },
    EnqueuePut {
        writer: u8,
        to: u8,
    },
    BeginGet {
        reader: u8,
        blocks: bool,
    },
    TryBeginGet {
        reader: u8,
    },
    EndGet {
        reader: u8,
    },
    Enqueue {
        reader: u8,
        to: u8,
    },
    /// Some of a put, and some of a message, is left out.
    Adjust {
        prefix: u16,
        suffix: u16,
    },
    DropPut,
    DropMessage,
    Untaken,
    AllocSync,
    ReadSync {
        blocks: bool,
    },
    RenewSync,
    DropSync,
    WriteSync {
        address: u64,
    },
    SignalCondition {
        address: u64,
    },
    WaitCondition {
        blocks: bool,
    },
    RemoteCall {
        argument: u64,
    },
    ServeUpcalls,
    Errors,
    Arm,
}

#[derive(Arbitrary, Debug)]
enum RingEvent {
    Daemon(Act),
    /// An act of the daemon within the client's next calls.
    Later(Act),
    Client(Call),
}

/// The daemon's side, shared with the observer.
struct World {
    daemon: RawDaemon,
    later: VecDeque<Act>,
    /// Tags of what the client asked over the signal queue.
    asked: VecDeque<u64>,
    /// Unasked signals that are left.
    unasked: u16,
}

impl World {
    fn act(&mut self, act: Act) {
        while let Some((head, a, _)) = self.daemon.pop_signal() {
            if matches!(head.0, 16 | 18) && self.asked.len() < MOST_KEPT {
                self.asked.push_back(a);
            }
        }
        let daemon = &mut self.daemon;
        match act {
            Act::Entry(entry) => entry.push(daemon),
            Act::Near { port, op, slot, target, offset, len } => {
                let op = [1, 2, 3, 4, REGRANT][usize::from(op % 5)];
                let entry = (op, slot.into(), 1, u16::from(target % 4), offset % (1 << 20), len.into());
                daemon.push(u16::from(port % 4), entry);
            }
            Act::Many { port, op, slot, count } => {
                for at in 0..u16::from(count) {
                    let slot = (u16::from(slot) + at) % 256;
                    daemon.push(u16::from(port % 4), (1 + op % 2, slot, at, 0, u32::from(slot) * 4096, 4096));
                }
            }
            Act::Pass(entry, b) => entry.pass(daemon, b),
            Act::PassSync { index, generation, value } => {
                let (index, generation) = (u16::from(index), u16::from(generation % 4));
                let address = SyncAddress { client: 0, pool: SyncPool::Client, index, generation };
                daemon.pass(u16::MAX, 0, (29, 0, 0, 0, 0, 0), address.to_word(), value);
            }
            Act::TakePassed => drop(daemon.take_passed()),
            Act::Signal(signal) => signal.push(daemon),
            Act::Answer { op, slot, target, offset, len } => {
                let tag = self.asked.pop_front().unwrap_or(u64::from(slot));
                let head = (1 + op % 3, slot.into(), 1, u16::from(target % 16), offset.into(), len.into());
                daemon.push_signal(head, tag, 0);
            }
            Act::Unasked { op, count } => {
                let count = (count % 512).min(self.unasked);
                self.unasked -= count;
                for at in 0..count {
                    daemon.push_signal((26 + op % 2, 0, 0, at % 16, 0, 0), at.into(), 0);
                }
            }
            Act::Taken { of_session, count } => {
                let count = if count % 2 == 0 { daemon.popped_signals() } else { count };
                daemon.say_taken(of_session, count);
            }
            Act::Scribble(bytes) => bytes.scribble(daemon),
            Act::Write { inbox, offset, bytes } => drop(daemon.write(inbox, offset.into(), &bytes)),
            Act::Sleep { asleep } => daemon.sleep(asleep),
            Act::Say { packet } => daemon.say(&packet),
            Act::HangUp => daemon.hang_up(),
        }
    }

    /// At a failpoint of the client's.
    fn at(&mut self, place: &str) {
        match self.later.pop_front() {
            Some(act) => self.act(act),
            None if place == "wait.before_sleep" => self.daemon.hang_up(),
            None => {}
        }
        // Whoever sleeps for this is to see it.
        self.daemon.wake();
    }
}

/// The client, with all that it holds.
struct Client {
    attachment: Attachment,
    writers: Vec<Writer>,
    readers: Vec<Reader>,
    puts: VecDeque<Put>,
    messages: VecDeque<Message>,
    syncs: VecDeque<SyncWord>,
    condition: Option<Condition>,
}

/// A wait that has no time, or one without end.
fn wait(blocks: bool) -> Wait {
    if blocks { Wait::Block } else { Wait::Until(Instant::now()) }
}

impl Client {
    fn new(attachment: Attachment) -> Option<Client> {
        let (writer, reader) = attachment.session()?;
        let writers = vec![writer, attachment.writer(1, Some(2)).ok()?, attachment.writer(2, None).ok()?];
        let readers = vec![reader, attachment.reader(3, Some(3)).ok()?, attachment.reader(4, None).ok()?];
        let (puts, messages, syncs) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        let condition = attachment.condition().ok();
        Some(Client { attachment, writers, readers, puts, messages, syncs, condition })
    }

    fn call(&mut self, call: Call) {
        let Client { attachment, writers, readers, puts, messages, syncs, condition } = self;
        let writer = |at: u8| usize::from(at) % 3;
        match call {
            Call::BeginPut { writer: at, bytes, blocks } => {
                keep_put(puts, writers[writer(at)].begin_put(bytes.into(), wait(blocks)).ok());
            }
            Call::TryBeginPut { writer: at, bytes } => {
                keep_put(puts, writers[writer(at)].try_begin_put(bytes.into()).ok().flatten());
            }
            Call::EndPut { writer: at } => {
                let _ = puts.pop_front().map(|put| writers[writer(at)].end_put(put));
            }
            Call::EnqueuePut { writer: at, to } => {
                let _ = puts.pop_front().map(|put| writers[writer(at)].enqueue(put, to.into()));
            }
            Call::BeginGet { reader, blocks } => {
                keep_message(messages, readers[writer(reader)].begin_get(wait(blocks)).ok());
            }
            Call::TryBeginGet { reader } => {
                keep_message(messages, readers[writer(reader)].try_begin_get().ok().flatten());
            }
            Call::EndGet { reader } => {
                if let Some(message) = messages.pop_front() {
                    readers[writer(reader)].end_get(message);
                }
            }
            Call::Enqueue { reader, to } => {
                let _ = messages.pop_front().map(|message| readers[writer(reader)].enqueue(message, to.into()));
            }
            Call::Adjust { prefix, suffix } => {
                let _ = puts.front_mut().map(|put| put.adjust(prefix.into(), suffix.into()));
                let _ = messages.front_mut().map(|message| message.adjust(prefix.into(), suffix.into()));
            }
            Call::DropPut => drop(puts.pop_back()),
            Call::DropMessage => drop(messages.pop_back()),
            Call::Untaken => {
                let bytes: usize = writers[0].untaken().iter().map(Vec::len).sum();
                assert!(bytes <= 512 * SEGMENT_BYTES as usize);
            }
            Call::AllocSync => syncs.extend(attachment.alloc_sync().ok()),
            Call::ReadSync { blocks } => drop(syncs.front_mut().map(|sync| sync.read(wait(blocks)))),
            Call::RenewSync => drop(syncs.front_mut().map(SyncWord::renew)),
            Call::DropSync => drop(syncs.pop_front()),
            Call::WriteSync { address } => {
                let _ = SyncAddress::from_word(address).map(|address| attachment.write_sync(address, 1));
            }
            Call::SignalCondition { address } => {
                let _ = ConditionAddress::from_word(address).map(|address| attachment.signal(address));
            }
            Call::WaitCondition { blocks } => {
                let _ = condition.as_ref().map(|condition| condition.wait(condition.value(), wait(blocks)));
            }
            Call::RemoteCall { argument } => drop(attachment.call(1, argument, wait(argument % 2 == 0))),
            Call::ServeUpcalls => drop(attachment.on_upcall(|_, argument| argument)),
            Call::Errors => assert!(attachment.errors().len() <= 16),
            Call::Arm => attachment.arm(),
        }
    }
}

/// Reads and writes all of what was granted.
fn keep_put(puts: &mut VecDeque<Put>, put: Option<Put>) {
    if let Some(mut put) = put {
        assert!(put.len() <= SEGMENT_BYTES as usize);
        put.fill(7);
        puts.push_back(put);
    }
    puts.truncate(MOST_KEPT);
}

/// Reads all of what was delivered.
fn keep_message(messages: &mut VecDeque<Message>, message: Option<Message>) {
    if let Some(message) = message {
        assert!(message.len() <= SEGMENT_BYTES as usize);
        std::hint::black_box(message.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte)));
        messages.push_back(message);
    }
    messages.truncate(MOST_KEPT);
}

static DOMAIN: LazyLock<Arc<DomainSegments>> = LazyLock::new(|| {
    Arc::new(DomainSegments::new("raw", SEGMENT_BYTES, SEGMENT_BYTES, HugePages::None).expect("two MiB"))
});

/// Takes one input.
pub fn fuzz(input: &[u8]) {
    let mut bytes = Unstructured::new(input);
    let Ok((daemon, attachment)) = RawDaemon::new(&DOMAIN) else { return };
    let world =
        Rc::new(RefCell::new(World { daemon, later: VecDeque::new(), asked: VecDeque::new(), unasked: MOST_UNASKED }));
    let observed = world.clone();
    observe(Some(Box::new(move |place| observed.borrow_mut().at(place))));
    if let Some(mut client) = Client::new(attachment) {
        for _ in 0..MOST_STEPS {
            let Ok(step) = RingEvent::arbitrary(&mut bytes) else { break };
            match step {
                RingEvent::Daemon(act) => world.borrow_mut().act(act),
                RingEvent::Later(act) => world.borrow_mut().later.push_back(act),
                RingEvent::Client(call) => client.call(call),
            }
            if bytes.is_empty() {
                break;
            }
        }
    }
    observe(None);
}
