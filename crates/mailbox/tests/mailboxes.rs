//! Both implementations of mailboxes, from the clients' side, held to one behaviour: real attachments, and a thread that is
//! the daemon's core.

#![cfg(not(any(loom, miri)))]
#![allow(clippy::unwrap_used)] // a test that fails may panic

use crossdock_mailbox::attach::{AttachAddr, AttachListener, AttachRequest};
use crossdock_mailbox::client::{Attachment, MailboxError, Reader, Wait, Writer};
use crossdock_mailbox::host::{
    Arrival, ClientKey, DomainSegments, HostConfig, HostInterface, Implementation, MailboxOptions, Owner, PortOptions,
    Prepared, Side,
};
use crossdock_mailbox::{DoorbellPage, HugePages};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const BOTH: [Implementation; 2] = [Implementation::Rings, Implementation::SignalQueue];

type Work = Box<dyn FnOnce(&mut HostInterface) + Send>;

/// A thread that owns a host interface, as a context does, and lets processes attach.
struct Daemon {
    work: Option<Sender<Work>>,
    address: AttachAddr,
    thread: Option<JoinHandle<()>>,
    arrivals: Arc<Mutex<Vec<Arrival>>>,
}

impl Daemon {
    fn new(config: HostConfig) -> Daemon {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("crossdock-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let address = AttachAddr::Abstract(name);
        let listener = AttachListener::bind(&address, true).unwrap();
        let (work, todo) = channel();
        let arrivals = Arc::new(Mutex::new(Vec::new()));
        let seen = arrivals.clone();
        let thread = std::thread::spawn(move || run(config, &listener, &todo, &seen));
        Daemon { work: Some(work), address, thread: Some(thread), arrivals }
    }

    fn attach(&self) -> (Attachment, ClientKey) {
        let attachment = Attachment::connect(&self.address).unwrap();
        let number = attachment.client_number();
        let key =
            self.ask(move |host| host.clients().iter().map(|client| client.key).find(|key| key.number() == number));
        (attachment, key.unwrap())
    }

    /// Does `work` on the core's thread.
    fn ask<R: Send + 'static>(&self, work: impl FnOnce(&mut HostInterface) -> R + Send + 'static) -> R {
        let (answer, answered) = channel();
        let work: Work = Box::new(move |host| drop(answer.send(work(host))));
        self.work.as_ref().unwrap().send(work).unwrap();
        answered.recv().unwrap()
    }

    fn create(&self, name: &'static str, implementation: Implementation, bound_messages: u32) {
        let options = MailboxOptions { implementation, bound_messages: Some(bound_messages), bound_bytes: None };
        self.ask(move |host| host.create(Owner::Daemon, name, options)).unwrap();
    }

    fn writer(&self, (client, key): &(Attachment, ClientKey), name: &'static str) -> (Writer, u16) {
        let key = *key;
        let opened = self.ask(move |host| host.open(key, name, Side::Write, PortOptions::default())).unwrap();
        (client.writer(opened.number, opened.port).unwrap(), opened.number)
    }

    fn reader(&self, (client, key): &(Attachment, ClientKey), name: &'static str) -> (Reader, u16) {
        let key = *key;
        let opened = self.ask(move |host| host.open(key, name, Side::Read, PortOptions::default())).unwrap();
        (client.reader(opened.number, opened.port).unwrap(), opened.number)
    }

    fn close(&self, (_, key): &(Attachment, ClientKey), number: u16) {
        let key = *key;
        self.ask(move |host| host.close(key, number)).unwrap();
    }

    /// Bytes of buffers in the hands of a client's process.
    fn held_bytes(&self, (_, key): &(Attachment, ClientKey)) -> u64 {
        let key = *key;
        self.ask(move |host| {
            host.clients().iter().find(|client| client.key == key).map_or(0, |client| client.bytes_held)
        })
    }

    /// Waits until `is_so`, which has to become so.
    fn until(&self, is_so: impl Fn(&mut HostInterface) -> bool + Clone + Send + 'static) {
        let end = Instant::now() + Duration::from_secs(20);
        while !self.ask(is_so.clone()) {
            assert!(Instant::now() < end, "it did not become so");
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(self.work.take());
        self.thread.take().unwrap().join().unwrap();
    }
}

fn run(config: HostConfig, listener: &AttachListener, todo: &Receiver<Work>, seen: &Mutex<Vec<Arrival>>) {
    let domain =
        Arc::new(DomainSegments::new("test", config.shared_bytes, config.inbox_bytes, HugePages::None).unwrap());
    let bell = DoorbellPage::new().unwrap();
    let mut host = HostInterface::new(config, DoorbellPage::new().unwrap()).unwrap();
    loop {
        match todo.try_recv() {
            Ok(work) => work(&mut host),
            Err(std::sync::mpsc::TryRecvError::Disconnected) => return,
            Err(std::sync::mpsc::TryRecvError::Empty) => {}
        }
        if let Some((peer, socket)) = listener.accept().unwrap() {
            while AttachRequest::receive(socket.as_fd()).unwrap().is_none() {}
            let (prepared, reply) = Prepared::new(peer, socket, &domain, &bell).unwrap();
            let key = host.admit(prepared, 0).unwrap();
            reply.send(key).unwrap();
        }
        while let Some(arrival) = host.poll() {
            seen.lock().unwrap().push(arrival);
        }
        host.end_turn();
        std::thread::yield_now();
    }
}

#[test]
fn messages_come_in_order_however_their_puts_overlap() {
    for implementation in BOTH {
        let daemon = Daemon::new(HostConfig::default());
        let client = daemon.attach();
        daemon.create("m", implementation, 16);
        let ((mut writer, _), (mut reader, _)) = (daemon.writer(&client, "m"), daemon.reader(&client, "m"));
        let write = std::thread::spawn(move || {
            for at in 0..2000u32 {
                let mut first = writer.begin_put(4, Wait::Block).unwrap();
                let mut second = writer.begin_put(4 + at as usize % 100, Wait::Block).unwrap();
                second[..4].copy_from_slice(&(2 * at + 1).to_le_bytes());
                first.copy_from_slice(&(2 * at).to_le_bytes());
                writer.end_put(first).unwrap();
                writer.end_put(second).unwrap();
            }
        });
        for expected in 0..4000u32 {
            let message = reader.begin_get(Wait::Block).unwrap();
            assert_eq!(message[..4], expected.to_le_bytes(), "{implementation:?}");
            let extra = if expected % 2 == 0 { 0 } else { (expected / 2) as usize % 100 };
            assert_eq!(message.len(), 4 + extra);
            reader.end_get(message);
        }
        write.join().unwrap();
        assert!(reader.try_begin_get().unwrap().is_none());
        assert_eq!(reader.begin_get(Wait::Until(Instant::now())).unwrap_err(), MailboxError::TimedOut);
    }
}

#[test]
fn short_messages_use_the_buffer_that_came_back_last_and_long_ones_take_turns() {
    let daemon = Daemon::new(HostConfig::default());
    let client = daemon.attach();
    for (name, bytes, most, least) in [("short", 1024, 4, 1), ("long", 64 << 10, 40, 24)] {
        daemon.create(name, Implementation::Rings, 128);
        let (key, options) = (client.1, PortOptions { message_bytes: Some(bytes), ahead: None });
        let opened = daemon.ask(move |host| host.open(key, name, Side::Write, options)).unwrap();
        let mut writer = client.0.writer(opened.number, opened.port).unwrap();
        let (mut reader, _) = daemon.reader(&client, name);
        let mut used = std::collections::BTreeSet::new();
        for _ in 0..200 {
            let put = writer.begin_put(bytes as usize, Wait::Block).unwrap();
            used.insert(put.as_ptr().addr());
            writer.end_put(put).unwrap();
            let message = reader.begin_get(Wait::Block).unwrap();
            reader.end_get(message);
            // Between the two the core takes all that the rings hold.
            (0..2).for_each(|_| daemon.ask(|_| ()));
        }
        assert!((least..=most).contains(&used.len()), "{name}: {} buffers were used", used.len());
    }
}

/// Writes `count` messages, numbered from 0, through `writer`.
fn write_numbered(mut writer: Writer, count: u32, bytes: usize) -> JoinHandle<Writer> {
    std::thread::spawn(move || {
        for number in 0..count {
            let mut put = writer.begin_put(bytes, Wait::Block).unwrap();
            put[..4].copy_from_slice(&number.to_le_bytes());
            writer.end_put(put).unwrap();
        }
        writer
    })
}

fn number_of(message: &[u8]) -> u32 {
    u32::from_le_bytes(*message.first_chunk().unwrap())
}

#[test]
fn messages_written_in_place_are_read_in_place_and_adjusted() {
    for implementation in BOTH {
        let daemon = Daemon::new(HostConfig::default());
        let client = daemon.attach();
        daemon.create("m", implementation, 16);
        let ((mut writer, _), (mut reader, _)) = (daemon.writer(&client, "m"), daemon.reader(&client, "m"));
        // From nothing over what is granted ahead to the longest there may be.
        for bytes in [0, 1, 64, 4096, 4097, 65_536, 1 << 20, 16 << 20] {
            let mut put = writer.begin_put(bytes, Wait::Block).unwrap();
            assert_eq!(put.len(), bytes);
            for (at, byte) in put.iter_mut().enumerate() {
                *byte = (at * 7 + bytes) as u8;
            }
            writer.end_put(put).unwrap();
            let message = reader.begin_get(Wait::Block).unwrap();
            assert_eq!(message.len(), bytes);
            assert!(message.iter().enumerate().all(|(at, &byte)| byte == (at * 7 + bytes) as u8), "{bytes}");
            reader.end_get(message);
        }
        let too_long = writer.begin_put((16 << 20) + 1, Wait::Block).unwrap_err();
        assert_eq!(too_long, MailboxError::TooLong { bytes: (16 << 20) + 1, most: 16 << 20 }, "{implementation:?}");
        assert!(matches!(writer.try_begin_put(usize::MAX), Err(MailboxError::TooLong { .. })));

        let mut put = writer.begin_put(10, Wait::Block).unwrap();
        put.copy_from_slice(b"0123456789");
        assert_eq!(put.adjust(5, 6), Err(MailboxError::TooShort { bytes: 10 }));
        put.adjust(2, 1).unwrap();
        writer.end_put(put).unwrap();
        let mut message = reader.begin_get(Wait::Block).unwrap();
        assert_eq!(&message[..], b"2345678");
        message.adjust(1, 1).unwrap();
        assert_eq!(&message[..], b"34567");
        assert_eq!(message.adjust(usize::MAX, 1), Err(MailboxError::TooShort { bytes: 5 }));
        message.adjust(5, 0).unwrap();
        assert!(message.is_empty());
    }
}

#[test]
fn a_message_moves_on_uncopied_as_it_was_adjusted() {
    for implementation in BOTH {
        let daemon = Daemon::new(HostConfig::default());
        let client = daemon.attach();
        for name in ["a", "b", "c"] {
            daemon.create(name, implementation, 16);
        }
        let ((mut write_a, _), (mut read_a, _)) = (daemon.writer(&client, "a"), daemon.reader(&client, "a"));
        let ((mut write_b, to_b), (mut read_b, _)) = (daemon.writer(&client, "b"), daemon.reader(&client, "b"));
        let mut put = write_a.begin_put(8, Wait::Block).unwrap();
        put.copy_from_slice(b"abcdefgh");
        let written_at = put.as_ptr();
        write_a.end_put(put).unwrap();
        let mut message = read_a.begin_get(Wait::Block).unwrap();
        assert_eq!(message.as_ptr(), written_at, "not copied");
        message.adjust(2, 2).unwrap();
        read_a.enqueue(message, to_b).unwrap();
        let message = read_b.begin_get(Wait::Block).unwrap();
        assert_eq!((&message[..], message.as_ptr()), (&b"cdef"[..], written_at.wrapping_add(2)));
        read_b.end_get(message);
        // One that was never in the first mailbox may go to the second just so.
        let mut put = write_a.begin_put(1, Wait::Block).unwrap();
        put[0] = 1;
        write_a.enqueue(put, to_b).unwrap();
        assert_eq!(read_b.begin_get(Wait::Block).unwrap()[..], [1]);
        assert!(read_a.try_begin_get().unwrap().is_none());
        // A message of another side is refused, and comes home all the same.
        let put = write_a.begin_put(1, Wait::Block).unwrap();
        assert_eq!(write_b.end_put(put), Err(MailboxError::Foreign));
        let put = write_a.begin_put(1, Wait::Block).unwrap();
        write_a.end_put(put).unwrap();
        let message = read_a.begin_get(Wait::Block).unwrap();
        assert_eq!(read_b.enqueue(message, to_b), Err(MailboxError::Foreign));
        assert!(read_b.try_begin_get().unwrap().is_none());
    }
}

#[test]
fn a_full_mailbox_holds_its_writer_up_until_a_message_is_ended() {
    for implementation in BOTH {
        let daemon = Daemon::new(HostConfig::default());
        let client = daemon.attach();
        daemon.create("m", implementation, 4);
        let ((mut writer, _), (mut reader, _)) = (daemon.writer(&client, "m"), daemon.reader(&client, "m"));
        let mut written = 0u32;
        // The buffers granted ahead may be used beyond the bound.
        while let Some(mut put) = writer.try_begin_put(4).unwrap() {
            put.copy_from_slice(&written.to_le_bytes());
            writer.end_put(put).unwrap();
            written += 1;
            assert!(written <= 4 + 64, "nothing delays it");
            daemon.ask(|_| ());
        }
        assert!(written >= 4, "{implementation:?}: {written}");
        assert_eq!(writer.begin_put(4, Wait::Until(Instant::now())).unwrap_err(), MailboxError::TimedOut);
        assert!(writer.try_begin_put(1 << 20).unwrap().is_none(), "nor one that must be asked for");
        let more = write_numbered(writer, 1000, 4);
        for expected in (0..written).chain(0..1000) {
            let message = reader.begin_get(Wait::Block).unwrap();
            assert_eq!(number_of(&message), expected);
            reader.end_get(message);
        }
        more.join().unwrap();
    }
}

#[test]
fn messages_dropped_anywhere_come_home() {
    for implementation in BOTH {
        let daemon = Daemon::new(HostConfig::default());
        let client = daemon.attach();
        daemon.create("m", implementation, 2000);
        let ((writer, _), (mut reader, _)) = (daemon.writer(&client, "m"), daemon.reader(&client, "m"));
        let (pass, take) = channel();
        let dropper = std::thread::spawn(move || take.iter().for_each(drop));
        // More than there are slots: without those that the other thread drops it would not get to the end.
        let write = write_numbered(writer, 3000, 64);
        for expected in 0..3000 {
            let message = reader.begin_get(Wait::Block).unwrap();
            assert_eq!(number_of(&message), expected);
            pass.send(message).unwrap();
        }
        drop(pass);
        dropper.join().unwrap();
        let mut writer = write.join().unwrap();
        for _ in 0..1000 {
            let put = writer.begin_put(64, Wait::Block).unwrap();
            std::thread::scope(|scope| drop(scope.spawn(move || drop(put))));
        }
        assert!(reader.try_begin_get().unwrap().is_none());
        let key = client.1;
        daemon.until(move |host| {
            host.mailboxes().iter().all(|mailbox| mailbox.depth == 0) && host.clients()[0].key == key
        });
        drop((reader, writer));
        drop(client);
        daemon.ask(move |host| host.detach(key));
        assert_eq!(daemon.ask(|host| host.clients().len()), 0);
    }
}

#[test]
fn a_side_is_unused_when_nothing_of_it_is_left_and_what_was_put_before_it_closed_arrives() {
    for implementation in BOTH {
        let daemon = Daemon::new(HostConfig::default());
        let client = daemon.attach();
        daemon.create("m", implementation, 100);
        let unused = Arc::new(Mutex::new(Vec::new()));
        let noted = unused.clone();
        client.0.on_unused(move |number| noted.lock().unwrap().push(number));
        let (mut reader, read_number) = daemon.reader(&client, "m");
        // Again and again: the port, its rings and its slots are used anew each time.
        for round in 0..50u32 {
            let (mut writer, number) = daemon.writer(&client, "m");
            let mut puts: Vec<_> = (0..3).map(|_| writer.begin_put(4, Wait::Block).unwrap()).collect();
            let kept = puts.pop().unwrap();
            for mut put in puts {
                put.copy_from_slice(&round.to_le_bytes());
                writer.end_put(put).unwrap();
            }
            drop(writer);
            assert!(unused.lock().unwrap().is_empty(), "{implementation:?}: a put is still there");
            drop(kept);
            assert_eq!(std::mem::take(&mut *unused.lock().unwrap()), [number]);
            daemon.close(&client, number);
            for _ in 0..2 {
                assert_eq!(number_of(&reader.begin_get(Wait::Block).unwrap()), round, "{implementation:?}");
            }
        }
        assert!(reader.try_begin_get().unwrap().is_none());
        drop(reader);
        assert_eq!(*unused.lock().unwrap(), [read_number]);
        daemon.close(&client, read_number);
        assert!(!client.0.is_gone(), "{:?}", client.0.gone());
        let counters = daemon.ask(|host| host.counters());
        assert_eq!(counters.violations, 0);
        assert!(daemon.arrivals.lock().unwrap().is_empty());
        assert_eq!(daemon.held_bytes(&client), session_bytes(&daemon, &client));
    }
}

/// The memory that the session alone has granted ahead, in bytes.
fn session_bytes(daemon: &Daemon, _of: &(Attachment, ClientKey)) -> u64 {
    let other = daemon.attach();
    daemon.held_bytes(&other)
}

#[test]
fn taken_and_untaken_puts_of_a_session_are_known_after_the_daemons_death() {
    let daemon = Daemon::new(HostConfig::default());
    let client = daemon.attach();
    let (mut writer, _reader) = client.0.session().unwrap();
    let put = |writer: &mut Writer, text: &[u8]| {
        let mut put = writer.begin_put(text.len() + 2, Wait::Block).unwrap();
        put[..text.len()].copy_from_slice(text);
        put.adjust(0, 2).unwrap();
        writer.end_put(put).unwrap();
    };
    for text in [&b"taken"[..], b"this too"] {
        put(&mut writer, text);
    }
    drop(writer.begin_put(9, Wait::Block).unwrap());
    let arrivals = daemon.arrivals.clone();
    daemon.until(move |_| arrivals.lock().unwrap().len() == 2);
    // The core is busy while the rest is put, and then dies.
    let (go, gone) = channel::<()>();
    let (stopped, stops) = channel();
    let busy: Work = Box::new(move |host| {
        stopped.send(()).unwrap();
        gone.recv().unwrap();
        *host = HostInterface::new(HostConfig::default(), DoorbellPage::new().unwrap()).unwrap();
    });
    daemon.work.as_ref().unwrap().send(busy).unwrap();
    stops.recv().unwrap();
    for text in [&b"left"[..], b"and this"] {
        put(&mut writer, text);
    }
    go.send(()).unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    while !client.0.is_gone() {
        assert!(Instant::now() < end, "the death was not noticed");
    }
    // A buffer that is at hand is still one, and what it holds is not lost either.
    put(&mut writer, b"late");
    assert_eq!(writer.untaken(), [&b"left"[..], b"and this", b"late"]);
    assert!(writer.untaken().is_empty(), "given out once");
}

#[test]
fn a_call_that_waits_can_be_interrupted_and_nothing_is_lost_by_it() {
    for implementation in BOTH {
        let daemon = Daemon::new(HostConfig::default());
        let client = daemon.attach();
        daemon.create("m", implementation, 1);
        let ((mut writer, _), (mut reader, _)) = (daemon.writer(&client, "m"), daemon.reader(&client, "m"));
        let interrupter = reader.interrupter();
        let waiting = std::thread::spawn(move || {
            let interrupted = reader.begin_get(Wait::Block).unwrap_err();
            (interrupted, reader)
        });
        interrupter.interrupt();
        let (interrupted, mut reader) = waiting.join().unwrap();
        assert_eq!(interrupted, MailboxError::Interrupted, "{implementation:?}");
        assert_eq!(reader.begin_get(Wait::Until(Instant::now())).unwrap_err(), MailboxError::TimedOut);
        // Set before there is anything to interrupt, it ends the next wait, but no call that need not wait.
        interrupter.interrupt();
        let put = writer.begin_put(4, Wait::Block).unwrap();
        writer.end_put(put).unwrap();
        daemon.until(|host| host.mailboxes().iter().any(|mailbox| mailbox.puts == 1));
        drop(reader.begin_get(Wait::Block).or_else(|error| {
            assert_eq!(error, MailboxError::Interrupted);
            reader.begin_get(Wait::Block)
        }));
        // A writer waits for room that nobody makes.
        let put = writer.begin_put(4, Wait::Block).unwrap();
        writer.end_put(put).unwrap();
        daemon.until(|host| host.mailboxes().iter().any(|mailbox| mailbox.depth == 1));
        let mut held = Vec::new();
        while let Some(put) = writer.try_begin_put(4).unwrap() {
            held.push(put);
        }
        let interrupter = writer.interrupter();
        let waiting = std::thread::spawn(move || writer.begin_put(4, Wait::Poll).map(drop));
        interrupter.interrupt();
        assert_eq!(waiting.join().unwrap(), Err(MailboxError::Interrupted), "{implementation:?}");
        interrupter.interrupt(); // its writer is gone
    }
}
