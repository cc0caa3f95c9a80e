//! The cost of a message between a process and the core, without a daemon around it: a client's thread and a core's thread of
//! one process, each tied to a core of its own, beside a bare atomic that goes to and fro between the same two cores.
//!
//! `cargo run --release -p crossdock-bench --example echo_ns`
//!
//! With `one-thread` behind it, only the cases in which one thread does both sides' parts: the cost of the instructions.

#![allow(clippy::print_stdout)] // the figures are what it is for

use crossdock_mailbox::attach::{AttachAddr, AttachListener, AttachRequest};
use crossdock_mailbox::client::{Attachment, Reader, Wait, Writer};
use crossdock_mailbox::host::{
    Arrival, ClientKey, DomainSegments, HostConfig, HostInterface, MailboxKey, MailboxOptions, Message, Owner,
    PortOptions, Prepared, Side,
};
use crossdock_mailbox::{DoorbellPage, HugePages};
use std::error::Error;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// Round trips that are timed together.
const TRIPS: u32 = 2_000;
/// Times that they are.
const ROUNDS: usize = 21;

fn pin(core: usize) {
    if crossdock_device::pin_to_cpu(core).is_err() {
        eprintln!("core {core} cannot be had: the figures are of wherever the threads ran");
    }
}

/// The median time of a round trip in ns.
fn timed(mut trip: impl FnMut()) -> f64 {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            (0..TRIPS).for_each(|_| trip());
            start.elapsed().as_nanos() as f64 / f64::from(TRIPS)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

fn floor() -> f64 {
    let word = Arc::new(AtomicU64::new(0));
    let other = word.clone();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let (ready, is_ready) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        pin(1);
        let _heard = ready.send(());
        let mut seen = 1;
        while !stopped.load(Ordering::Relaxed) {
            if other.load(Ordering::Acquire) == seen {
                other.store(seen + 1, Ordering::Release);
                seen += 2;
            }
        }
    });
    let _heard = is_ready.recv();
    pin(0);
    let mut next = 1;
    let ns = timed(|| {
        word.store(next, Ordering::Release);
        while word.load(Ordering::Acquire) != next + 1 {}
        next += 2;
    });
    stop.store(true, Ordering::Relaxed);
    let _joined = thread.join();
    ns
}

/// The core's operation for a request.
const ECHO: u32 = 0;
const COPY: u32 = 1;
const DISCARD: u32 = 2;

/// The mailboxes, and the upcalls of those that the core reads.
const SIDES: [(&str, Option<u32>); 5] = [
    ("echo", Some(ECHO)),
    ("copy", Some(COPY)),
    ("copy long", Some(COPY)),
    ("discard", Some(DISCARD)),
    ("replies", None),
];

struct Core {
    host: HostInterface,
    replies: Option<MailboxKey>,
    /// Messages that were read and freed.
    discarded: u64,
}

impl Core {
    fn turn(&mut self) {
        while let Some(arrival) = self.host.poll_active() {
            let Arrival::Upcall { upcall, message, .. } = arrival else {
                let burst = self.host.take_burst();
                burst.iter().for_each(|message| self.read(message));
                self.discarded += burst.len() as u64;
                self.host.keep_burst(burst);
                continue;
            };
            match (upcall, self.replies) {
                (ECHO, Some(replies)) => self.host.put(replies, message),
                (COPY, Some(replies)) => {
                    let _put = self.host.put_copy(replies, &message);
                    self.host.free(message);
                }
                (_, _) => {
                    self.read(&message);
                    self.discarded += 1;
                    self.host.free(message);
                }
            }
        }
        self.host.end_look();
    }

    /// Reads the bytes of a short message.
    fn read(&self, message: &Message) {
        let mut bytes = [0; 64];
        self.host.read(message, 0, &mut bytes);
        std::hint::black_box(bytes);
    }
}

fn core(
    address: &AttachAddr,
    opened: &std::sync::mpsc::Sender<[(u16, Option<u16>); SIDES.len()]>,
    stop: &AtomicBool,
) -> Core {
    let run = || -> Result<Core, Box<dyn Error>> {
        let listener = AttachListener::bind(address, false)?;
        let config = HostConfig::default();
        let domain = DomainSegments::new("one", config.shared_bytes, config.inbox_bytes, HugePages::None)?;
        let (domain, bell) = (Arc::new(domain), DoorbellPage::new()?);
        let mut core = Core { host: HostInterface::new(config, DoorbellPage::new()?)?, replies: None, discarded: 0 };
        let (peer, socket) = loop {
            if let Some(came) = listener.accept()? {
                break came;
            }
            std::thread::yield_now();
        };
        while AttachRequest::receive(socket.as_fd())?.is_none() {
            std::thread::yield_now();
        }
        let (prepared, reply) = Prepared::new(peer, socket, &domain, &bell)?;
        let client: ClientKey = core.host.admit(prepared, 0)?;
        for (name, upcall) in SIDES {
            let key = core.host.create(Owner::Daemon, name, MailboxOptions::default())?;
            match upcall {
                Some(upcall) => core.host.attach_upcall(key, upcall)?,
                None => core.replies = Some(key),
            }
        }
        let mut sides = [(0, None); SIDES.len()];
        for (at, (name, upcall)) in SIDES.into_iter().enumerate() {
            let side = if upcall.is_none() { Side::Read } else { Side::Write };
            // Enough buffers for two bursts.
            let options = PortOptions { ahead: Some(2 * BURST as u32), ..PortOptions::default() };
            let side = core.host.open(client, name, side, options)?;
            sides[at] = (side.number, side.port);
        }
        reply.send(client)?;
        opened.send(sides)?;
        pin(1);
        while !stop.load(Ordering::Relaxed) {
            // As the runtime does: the fence now and then.
            (0..32).for_each(|_| core.turn());
            core.host.end_turn();
        }
        Ok(core)
    };
    match run() {
        Ok(core) => core,
        Err(error) => {
            eprintln!("the core: {error}");
            std::process::exit(1);
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let address = AttachAddr::Abstract(format!("crossdock-echo-ns-{}", std::process::id()));
    let (opened, sides) = std::sync::mpsc::channel();
    let stop = Arc::new(AtomicBool::new(false));
    let (at, stopped) = (address.clone(), stop.clone());
    let thread = std::thread::spawn(move || core(&at, &opened, &stopped));
    let attachment = loop {
        match Attachment::connect(&address) {
            Ok(attachment) => break attachment,
            Err(_) => std::thread::yield_now(),
        }
    };
    let sides = sides.recv()?;
    pin(0);
    let mut reader = attachment.reader(sides[4].0, sides[4].1)?;
    // Once each: the rings of a port hold the entries of whoever had them open before.
    let [mut echo, mut copy, mut copy_long, mut discard] = {
        let [echo, copy, long, discard, _] = sides;
        let open = |(number, port)| attachment.writer(number, port);
        [open(echo)?, open(copy)?, open(long)?, open(discard)?]
    };
    // Under `valgrind --tool=callgrind`, which counts instructions, two threads that wait for one another take forever.
    if !std::env::args().any(|arg| arg == "one-thread") {
        let copies = [("put_get_64", 64, &mut copy), ("put_get_1024", 1024, &mut copy_long)];
        between_threads(&mut echo, sides[0].0, copies, &mut reader, &mut discard);
    }
    stop.store(true, Ordering::Relaxed);
    if let Ok(mut core) = thread.join() {
        in_one_thread(&mut core, &mut reader, &mut discard, sides[0].0);
        put_get_in_one_thread(&mut core, &mut reader, &mut copy);
        let ns = timed_burst(&mut core, &mut discard);
        println!("one way, 1 thread  {ns:8.1} ns a message: the same of a burst of {BURST}");
    }
    Ok(())
}

/// The same both ways where no line has to move.
#[inline(never)]
fn in_one_thread(core: &mut Core, reader: &mut Reader, writer: &mut Writer, echo: u16) {
    core.turn();
    let mut message = None;
    let ns = timed(|| {
        let handed_on = match message.take() {
            Some(message) => reader.enqueue(message, echo),
            None => writer.begin_put(64, Wait::Poll).and_then(|put| writer.enqueue(put, echo)),
        };
        while handed_on.is_ok() && message.is_none() {
            core.turn();
            message = reader.try_begin_get().unwrap_or_default();
        }
    });
    println!("enqueue, 1 thread  {ns:8.1} ns: what instructions take where no line has to move");
    let ns = timed(|| core.turn());
    println!("an idle look       {ns:8.1} ns");
}

/// A message of 64 bytes that the core copies into another, both of whose bytes are read.
#[inline(never)]
fn put_get_in_one_thread(core: &mut Core, reader: &mut Reader, writer: &mut Writer) {
    let ns = timed(|| {
        let Ok(mut put) = writer.begin_put(64, Wait::Poll) else { return };
        put.fill(7);
        let _ended = writer.end_put(put);
        let message = loop {
            core.turn();
            if let Ok(Some(message)) = reader.try_begin_get() {
                break message;
            }
        };
        let words = message.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        std::hint::black_box(words.fold(0, u64::wrapping_add));
        reader.end_get(message);
    });
    println!("put_get, 1 thread  {ns:8.1} ns: the same with two messages, each written and read");
}

/// Messages of a burst.
const BURST: usize = 32;

/// The time of a message that is put and taken with others: each of two sides does its part for a burst of them.
#[inline(never)]
fn timed_burst(core: &mut Core, writer: &mut Writer) -> f64 {
    let ns = timed(|| {
        let _put = writer.put_many_with(BURST, 64, Wait::Poll, |_, place| place.fill(7));
        let all = core.discarded + BURST as u64;
        while core.discarded < all {
            core.turn();
        }
    });
    ns / BURST as f64
}

/// Round trips and messages between two threads.
fn between_threads(
    echo: &mut Writer,
    echo_number: u16,
    copies: [(&str, usize, &mut Writer); 2],
    reader: &mut Reader,
    discard: &mut Writer,
) {
    let floor = floor();
    println!("atomic floor       {floor:8.1} ns");
    pin(0);
    let mut message = None;
    let ns = timed(|| {
        let handed_on = match message.take() {
            Some(message) => reader.enqueue(message, echo_number),
            None => echo.begin_put(64, Wait::Poll).and_then(|put| echo.end_put(put)),
        };
        message = handed_on.and_then(|()| reader.begin_get(Wait::Poll)).ok();
    });
    drop(message);
    println!("enqueue both ways  {ns:8.1} ns, {:5.2} times the floor", ns / floor);
    for (name, bytes, writer) in copies {
        let mut sum = 0u64;
        let ns = timed(|| {
            let Ok(mut put) = writer.begin_put(bytes, Wait::Poll) else { return };
            put.fill(7);
            let _ended = writer.end_put(put);
            let Ok(message) = reader.begin_get(Wait::Poll) else { return };
            let words = message.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
            sum = words.fold(sum, u64::wrapping_add);
            reader.end_get(message);
        });
        std::hint::black_box(sum);
        println!("{name:18} {ns:8.1} ns, {:5.2} times the floor", ns / floor);
    }
    let ns = timed(|| {
        if let Ok(mut put) = discard.begin_put(64, Wait::Poll) {
            put.fill(7);
            let _ended = discard.end_put(put);
        }
    });
    println!("one_way_64         {ns:8.1} ns, {:.1} M/s", 1e3 / ns);
}
