//! The client process: mailboxes and tasks on the daemon, and the messages that go there and come back.

use super::floor::Floor;
use super::measure::{
    BATCH, ONE_WAY_BYTES, SINGLE, check, fill, for_a_while, read, round_trips, round_trips_and_floor,
};
use super::unix::Waiting;
use crate::cpu::Error;
use crate::process::{say, wait_for_go};
use crossdock_device::pin_to_cpu;
use crossdock_mailbox::attach::AttachAddr;
use crossdock_mailbox::client::Attachment;
use crossdock_nectarine::{
    Implementation, MailboxOptions, Message, Node, Put, Reader, Transport, Writer, WriterOptions,
};
use serde_json::json;
use std::time::{Duration, Instant};

/// The mailbox that the client writes and a task on the core (or another process) reads, and the one that is answered in.
const REQUESTS: &str = "requests";
const REPLIES: &str = "replies";

/// The work on a message on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Work {
    /// It is handed on, to and fro, and nobody touches its bytes
    Enqueue,
    /// Both ways: a message is allocated, every byte filled, every byte read
    PutGet,
}

/// Which implementation both mailboxes have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum By {
    Rings,
    SignalQueue,
}

/// A round trip's settings.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Ping {
    addr: String,
    cpu: usize,
    work: Work,
    bytes: usize,
    waiting: Waiting,
    #[arg(long, default_value = "rings")]
    by: By,
    /// Nobody on the core answers: another process does, which says when it is ready (a line on standard input)
    #[arg(long)]
    no_task: bool,
    /// The floor is measured in turn, with this core at its other end
    #[arg(long)]
    floor_cpu: Option<usize>,
}

/// The daemon, by shared memory or not at all.
fn node(addr: &str) -> Result<Node, Error> {
    Ok(Node::builder(addr).transport(Transport::Shm).connect()?)
}

/// A client's two mailboxes.
struct Ends {
    writer: Writer,
    reader: Reader,
    waiting: Waiting,
}

impl Ends {
    #[inline]
    fn begin_put(&mut self, bytes: usize) -> Result<Put, Error> {
        if self.waiting == Waiting::Blocking {
            return Ok(self.writer.begin_put(bytes)?);
        }
        loop {
            if let Some(put) = self.writer.try_begin_put(bytes)? {
                return Ok(put);
            }
        }
    }

    #[inline]
    fn begin_get(&mut self) -> Result<Message, Error> {
        if self.waiting == Waiting::Blocking {
            return Ok(self.reader.begin_get()?);
        }
        loop {
            if let Some(message) = self.reader.try_begin_get()? {
                return Ok(message);
            }
        }
    }

    /// Hands on the message that came back last, or a first one, and gets it back.
    fn enqueue_trip(&mut self, message: Option<Message>, bytes: usize) -> Result<Message, Error> {
        match message {
            Some(message) => self.reader.enqueue(message, &mut self.writer)?,
            None => {
                let put = self.begin_put(bytes)?;
                self.writer.end_put(put)?;
            }
        }
        let message = self.begin_get()?;
        if message.len() == bytes { Ok(message) } else { Err("another message came back".into()) }
    }

    fn put_get_trip(&mut self, bytes: usize, number: u64) -> Result<(), Error> {
        let mut put = self.begin_put(bytes)?;
        fill(&mut put, number);
        self.writer.end_put(put)?;
        let message = self.begin_get()?;
        check(&message, bytes, number)?;
        self.reader.end_get(message);
        Ok(())
    }
}

/// Makes both mailboxes, has a task answer, and times round trips.
pub(super) fn ping(ping: &Ping) -> Result<(), Error> {
    let node = node(&ping.addr)?;
    let implementation = match ping.by {
        By::Rings => Implementation::Rings,
        By::SignalQueue => Implementation::SignalQueue,
    };
    for name in [REQUESTS, REPLIES] {
        node.create_mailbox(name, MailboxOptions { implementation, ..MailboxOptions::default() })?;
    }
    if ping.no_task {
        say(&json!({"ready": true}));
        wait_for_go()?;
    } else {
        let task = if ping.work == Work::Enqueue { "echo" } else { "copy" };
        node.create_task(task, REQUESTS, [("to", REPLIES)])?;
    }
    let message_bytes = Some(u32::try_from(ping.bytes)?);
    let writer = node.writer_with(REQUESTS, WriterOptions { message_bytes, ..WriterOptions::default() })?;
    let mut ends = Ends { writer, reader: node.reader(REPLIES)?, waiting: ping.waiting };
    pin_to_cpu(ping.cpu)?;
    let batch = if ping.waiting == Waiting::Polling && ping.bytes < 1 << 16 { BATCH } else { SINGLE };
    let batch = if ping.work == Work::Enqueue && ping.waiting == Waiting::Polling { BATCH } else { batch };
    let (bytes, mut number, mut message) = (ping.bytes, 0, None);
    let trip = || match ping.work {
        Work::Enqueue => {
            message = Some(ends.enqueue_trip(message.take(), bytes)?);
            Ok(())
        }
        Work::PutGet => {
            number += 1;
            ends.put_get_trip(bytes, number)
        }
    };
    match ping.floor_cpu {
        Some(cpu) => round_trips_and_floor(&mut Floor::start(cpu)?, batch, trip),
        None => round_trips(batch, trip),
    }
}

/// A thread of another process in the place of the task: it waits for messages, asleep, and hands them on.
pub(super) fn answer(addr: &str, cpu: usize) -> Result<(), Error> {
    let node = node(addr)?;
    let mut reader = node.reader(REQUESTS)?;
    let mut writer = node.writer(REPLIES)?;
    pin_to_cpu(cpu)?;
    say(&json!({"ready": true}));
    // Until the mailboxes go with the client that made them.
    while let Ok(message) = reader.begin_get() {
        reader.enqueue(message, &mut writer)?;
    }
    Ok(())
}

/// Puts messages as fast as a task on the core takes them: many with one call, or each with its own.
pub(super) fn one_way(addr: &str, cpu: usize, task: &str, single: bool) -> Result<(), Error> {
    let node = node(addr)?;
    node.create_mailbox(REQUESTS, MailboxOptions::default())?;
    node.create_task(task, REQUESTS, [("", ""); 0])?;
    let message_bytes = Some(ONE_WAY_BYTES as u32);
    let mut writer = node.writer_with(REQUESTS, WriterOptions { message_bytes, ..WriterOptions::default() })?;
    pin_to_cpu(cpu)?;
    let start = Instant::now();
    let messages = for_a_while(|number, count| {
        if !single {
            writer.put_many_with(count, ONE_WAY_BYTES, |at, message| fill(message, number + at as u64))?;
            return Ok(());
        }
        for number in number..number + count as u64 {
            let mut put = loop {
                if let Some(put) = writer.try_begin_put(ONE_WAY_BYTES)? {
                    break put;
                }
            };
            fill(&mut put, number);
            writer.end_put(put)?;
        }
        Ok(())
    })?;
    // The core has a few hundred messages at most left to take; that it took all is seen in its list afterwards.
    let elapsed = start.elapsed();
    say(&json!({"msgs_per_s": messages as f64 / elapsed.as_secs_f64(), "messages": messages}));
    wait_for_go()
}

/// Messages that the reader of a one-way run takes with one call, at most.
const GET_BURST: usize = 32;

/// Sends messages to the process of [`sink`] as fast as that takes them, and an empty one at the end.
pub(super) fn source(addr: &str, cpu: usize) -> Result<(), Error> {
    let node = node(addr)?;
    node.create_mailbox(REQUESTS, MailboxOptions::default())?;
    let message_bytes = Some(ONE_WAY_BYTES as u32);
    let mut writer = node.writer_with(REQUESTS, WriterOptions { message_bytes, ..WriterOptions::default() })?;
    pin_to_cpu(cpu)?;
    say(&json!({"ready": true}));
    wait_for_go()?;
    let start = Instant::now();
    let messages = for_a_while(|number, count| {
        writer.put_many_with(count, ONE_WAY_BYTES, |at, message| fill(message, number + at as u64))?;
        Ok(())
    })?;
    let elapsed = start.elapsed();
    writer.put(&[])?;
    say(&json!({"msgs_per_s": messages as f64 / elapsed.as_secs_f64(), "messages": messages}));
    wait_for_go()
}

/// Takes what [`source`] sends, many messages with one call, and reads every byte.
pub(super) fn sink(addr: &str, cpu: usize) -> Result<(), Error> {
    let mut reader = node(addr)?.reader(REQUESTS)?;
    pin_to_cpu(cpu)?;
    say(&json!({"ready": true}));
    let (mut messages, mut sum, mut is_over) = (0u64, 0u64, false);
    while !is_over {
        for message in &reader.get_many(GET_BURST)? {
            is_over |= message.is_empty();
            messages += u64::from(!message.is_empty());
            sum = sum.wrapping_add(read(message));
        }
    }
    say(&json!({"messages": messages, "sum": sum}));
    wait_for_go()
}

/// Allocates a sync (the same place again each time), has the core write it, reads it.
pub(super) fn sync(addr: &str, cpu: usize, floor_cpu: usize) -> Result<(), Error> {
    let attachment = Attachment::connect(&AttachAddr::for_listen(addr.parse()?))?;
    pin_to_cpu(cpu)?;
    let (mut number, mut sync) = (0, attachment.alloc_sync()?);
    round_trips_and_floor(&mut Floor::start(floor_cpu)?, BATCH, || {
        if number > 0 {
            sync.renew()?;
        }
        number += 1;
        attachment.write_sync(sync.address(), number)?;
        let value = loop {
            if let Some(value) = sync.try_read()? {
                break value;
            }
        };
        if value == number { Ok(()) } else { Err("another value was written".into()) }
    })
}

/// The procedure that is called, and what is sent to it.
const PROCEDURE: &str = "copy";
const CALL_BYTES: usize = 64;

/// Serves a procedure whose result is its request, until standard input says so.
pub(super) fn serve(addr: &str, cpu: usize) -> Result<(), Error> {
    // The service's threads have the core of the one that starts them.
    pin_to_cpu(cpu)?;
    let service = node(addr)?.serve(PROCEDURE, |request, reply| {
        reply.extend_from_slice(request);
        Ok(())
    })?;
    say(&json!({"ready": true}));
    wait_for_go()?;
    service.stop();
    Ok(())
}

/// Times calls of that procedure.
pub(super) fn call(addr: &str, cpu: usize) -> Result<(), Error> {
    const DEADLINE: Duration = Duration::from_secs(10);
    pin_to_cpu(cpu)?;
    let procedure = node(addr)?.procedure(PROCEDURE)?;
    let (mut number, mut request) = (0, [0; CALL_BYTES]);
    round_trips(BATCH, || {
        number += 1;
        fill(&mut request, number);
        let reply = procedure.call(&request, DEADLINE)?;
        check(&reply, CALL_BYTES, number)?;
        procedure.end_reply(reply);
        Ok(())
    })
}

/// Waits for a message that never comes.
pub(super) fn idle(addr: &str) -> Result<(), Error> {
    let node = node(addr)?;
    node.create_mailbox(REPLIES, MailboxOptions::default())?;
    let mut reader = node.reader(REPLIES)?;
    say(&json!({"ready": true}));
    reader.begin_get()?;
    Err("a message came that nobody sent".into())
}
