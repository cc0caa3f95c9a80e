//! Both implementations of mailboxes, from the clients' side, held to one behaviour: real attachments, and a thread that is
//! the daemon's core.

#![cfg(not(any(loom, miri)))]
#![allow(clippy::unwrap_used)] // a test that fails may panic

use crossdock_mailbox::attach::{AttachAddr, AttachListener};
use crossdock_mailbox::client::{Attachment, MailboxError, Reader, Wait, Writer};
use crossdock_mailbox::host::{
    Arrival, ClientKey, DomainSegments, HostConfig, HostInterface, Implementation, MailboxOptions, Owner, PortOptions,
    Prepared, Side,
};
use crossdock_mailbox::{BellPage, HugePages};
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
    let bell = BellPage::new().unwrap();
    let mut host = HostInterface::new(config, BellPage::new().unwrap()).unwrap();
    loop {
        match todo.try_recv() {
            Ok(work) => work(&mut host),
            Err(std::sync::mpsc::TryRecvError::Disconnected) => return,
            Err(std::sync::mpsc::TryRecvError::Empty) => {}
        }
        if let Some((peer, socket)) = listener.accept().unwrap() {
            let (prepared, parcel) = Prepared::new(peer, socket, &domain, &bell).unwrap();
            let key = host.admit(prepared, 0).unwrap();
            parcel.send(key).unwrap();
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
