//! A process that has nothing to do with those that die: its messages go on and come in order, whatever happens beside it.

use crate::daemon::client::{Client, soon};
use crate::daemon::{Daemon, Upcall};
use crossdock_mailbox::client::{Reader, Writer};
use crossdock_mailbox::host::Implementation;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

/// Its ways: where it writes, and where it reads what it wrote.
const ROUTES: [(&str, &str); 3] = [("by-rings", "by-rings"), ("by-queue", "by-queue"), ("by-asked", "by-answered")];
/// Messages that it writes on one way before it reads them.
const BATCH: u64 = 3;

/// An attached client of this process, with a thread for each of its ways.
pub(crate) struct Bystander {
    client: Client,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    gate: Gate,
    is_over: AtomicBool,
    /// Messages that came back, by way.
    moved: [AtomicU64; ROUTES.len()],
}

/// Lets the threads go on from one batch to the next, or holds them where they have nothing in hand.
#[derive(Default)]
struct Gate {
    /// Whether it is closed, and how many are inside.
    state: Mutex<(bool, usize)>,
    changed: Condvar,
}

impl Gate {
    fn pass<R>(&self, work: impl FnOnce() -> R) -> R {
        let mut state = self.changed.wait_while(self.state.lock().unwrap(), |(is_closed, _)| *is_closed).unwrap();
        state.1 += 1;
        drop(state);
        let done = work();
        self.state.lock().unwrap().1 -= 1;
        self.changed.notify_all();
        done
    }
}

impl Bystander {
    pub(crate) fn new(daemon: &Daemon) -> Bystander {
        let mut client = Client::attach(daemon.address(0));
        for (name, implementation) in [
            ("by-rings", Implementation::Rings),
            ("by-queue", Implementation::SignalQueue),
            ("by-asked", Implementation::Rings),
            ("by-answered", Implementation::Rings),
        ] {
            client.create(name, implementation, 16);
        }
        daemon.attach_upcall("by-asked", Upcall::Echo, "by-answered");
        let shared = Arc::new(Shared::default());
        let mut threads = Vec::new();
        for (way, (to, from)) in ROUTES.into_iter().enumerate() {
            let (mut writer, _) = client.writer(to).unwrap();
            let (mut reader, _) = client.reader(from).unwrap();
            let shared = shared.clone();
            threads.push(std::thread::spawn(move || {
                let mut next = 0;
                while !shared.is_over.load(Ordering::Relaxed) {
                    shared.gate.pass(|| batch(&mut writer, &mut reader, next));
                    next += BATCH;
                    shared.moved[way].store(next, Ordering::Relaxed);
                    // There are others on this machine.
                    std::thread::yield_now();
                }
            }));
        }
        Bystander { client, shared, threads }
    }

    /// Waits until `count` more messages have come back on each way.
    pub(crate) fn moves(&self, count: u64) {
        let moved = || self.shared.moved.each_ref().map(|moved| moved.load(Ordering::Relaxed));
        let goal = moved().map(|moved| moved + count);
        while moved().iter().zip(&goal).any(|(moved, goal)| moved < goal) {
            assert!(self.threads.iter().all(|thread| !thread.is_finished()), "a message is missing");
            std::thread::yield_now();
        }
    }

    /// Does `work` while the bystander has nothing in hand.
    pub(crate) fn at_rest<R>(&self, work: impl FnOnce() -> R) -> R {
        let gate = &self.shared.gate;
        let mut state = gate.state.lock().unwrap();
        state.0 = true;
        drop(gate.changed.wait_while(state, |(_, inside)| *inside > 0).unwrap());
        let done = work();
        gate.state.lock().unwrap().0 = false;
        gate.changed.notify_all();
        done
    }

    /// Ends it: all its messages came.
    pub(crate) fn end(self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
        drop(self.client);
    }
}

/// Writes some numbers, and reads them.
fn batch(writer: &mut Writer, reader: &mut Reader, first: u64) {
    for number in first..first + BATCH {
        let mut put = writer.begin_put(8, soon()).unwrap();
        put.copy_from_slice(&number.to_le_bytes());
        writer.end_put(put).unwrap();
    }
    for number in first..first + BATCH {
        let message = reader.begin_get(soon()).unwrap();
        assert_eq!(*message, number.to_le_bytes());
        reader.end_get(message);
    }
}
