//! The peer of those that die: feeds them, listens to them, waits for them, and takes their place when they are gone.

use crate::daemon::Daemon;
use crate::daemon::client::{Client, soon};
use crate::victim::{BOTH, BOUND};
use crossdock_mailbox::client::{MailboxError, Reader, Wait, Writer};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

/// Ends an ordered stream of numbers.
const END: u64 = u64::MAX;

/// An attached client of this process, with threads that write to, read from and wait for the victim.
pub(crate) struct Friend {
    client: Client,
    is_over: Arc<AtomicBool>,
    /// Messages of the victim's that came.
    heard: Arc<AtomicU64>,
    feeders: Vec<JoinHandle<(Writer, u16, u64)>>,
    collectors: Vec<JoinHandle<(Reader, u64)>>,
    waiters: Vec<JoinHandle<MailboxError>>,
    /// Held for its address.
    condition: crossdock_mailbox::client::Condition,
}

impl Friend {
    pub(crate) fn new(daemon: &Daemon) -> Friend {
        let mut client = Client::attach(daemon.address(0));
        let condition = client.attachment.condition().unwrap();
        let (is_over, heard) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (mut feeders, mut collectors) = (Vec::new(), Vec::new());
        for (implementation, kind) in BOTH {
            let (input, output) = (format!("in-{kind}"), format!("out-{kind}"));
            client.create(&input, implementation, BOUND);
            client.create(&output, implementation, BOUND);
            let (mut writer, number) = client.writer(&input).unwrap();
            let is_over = is_over.clone();
            feeders.push(std::thread::spawn(move || {
                let sent = feed(&mut writer, &is_over);
                (writer, number, sent)
            }));
            let (mut reader, _) = client.reader(&output).unwrap();
            let heard = heard.clone();
            collectors.push(std::thread::spawn(move || {
                let count = collect(&mut reader, &heard);
                (reader, count)
            }));
        }
        Friend { client, is_over, heard, feeders, collectors, waiters: Vec::new(), condition }
    }

    /// A condition that the victim may signal, as a word.
    pub(crate) fn condition(&self) -> u64 {
        self.condition.address().to_word()
    }

    /// How many messages of the victim's came.
    pub(crate) fn heard(&self) -> u64 {
        self.heard.load(Ordering::Relaxed)
    }

    /// Waits at the victim's own mailboxes: for messages that do not come, and for room in which nobody makes any. Those that are
    /// gone already are left out.
    pub(crate) fn wait_at_own(&mut self) {
        for (_, kind) in BOTH {
            if let Ok((mut reader, _)) = self.client.reader(&format!("idle-{kind}")) {
                self.waiters.push(std::thread::spawn(move || reader.begin_get(Wait::Block).unwrap_err()));
            }
            if let Ok((mut writer, _)) = self.client.writer(&format!("full-{kind}")) {
                self.waiters.push(std::thread::spawn(move || {
                    loop {
                        match writer.begin_put(8, Wait::Block).map(|put| writer.end_put(put)) {
                            Ok(Ok(())) => {}
                            Ok(Err(error)) | Err(error) => return error,
                        }
                    }
                }));
            }
        }
    }

    /// The victim is gone: the waiters at its mailboxes are notified, its sides are free, and what went between it and this
    /// friend goes on from where it was. `said` is how many messages it said it had put.
    pub(crate) fn outlives(mut self, said: [u64; BOTH.len()]) {
        for waiter in self.waiters {
            let reported = waiter.join().unwrap();
            assert!(matches!(reported, MailboxError::Closed { .. }), "{reported:?}");
        }
        self.is_over.store(true, Ordering::Relaxed);
        for ((_, kind), feeder) in BOTH.into_iter().zip(self.feeders) {
            let (mut reader, _) = self.client.reader(&format!("in-{kind}")).unwrap();
            let mut left = Vec::new();
            loop {
                match number(&mut reader) {
                    END => break,
                    number => left.push(number),
                }
            }
            let (_writer, _, sent) = feeder.join().unwrap();
            // All that the victim had not been handed, to the last, in order. In front of it may be the messages that the daemon had handed
            // it: they come back. Those that it had in hand over direct rings, which followed them, are lost with it.
            let missing = left.windows(2).filter(|pair| pair[0] + 1 != pair[1]).count();
            let is_ordered =
                left.is_sorted_by(|one, next| one < next) && left.last().is_none_or(|last| last + 1 == sent);
            let may_be_missing = usize::from(kind == "rings");
            assert!(is_ordered && missing <= may_be_missing, "{left:?} of {sent} through {kind}");
        }
        for (((_, kind), collector), said) in BOTH.into_iter().zip(self.collectors).zip(said) {
            let (mut writer, _) = self.client.writer(&format!("out-{kind}")).unwrap();
            put(&mut writer, END);
            let (_reader, came) = collector.join().unwrap();
            // It may have died between putting one and saying so.
            assert!((said..=said + 1).contains(&came), "{came} came through {kind} where it had put {said}");
        }
    }
}

fn put(writer: &mut Writer, number: u64) {
    let mut put = writer.begin_put(8, Wait::Block).unwrap();
    put.copy_from_slice(&number.to_le_bytes());
    writer.end_put(put).unwrap();
}

/// The number that the next message begins with.
fn number(reader: &mut Reader) -> u64 {
    let message = reader.begin_get(soon()).unwrap();
    let number = u64::from_le_bytes(*message.first_chunk().unwrap());
    reader.end_get(message);
    number
}

/// Writes numbers from 0 on until it is over, and the end; how many there were.
fn feed(writer: &mut Writer, is_over: &AtomicBool) -> u64 {
    let mut next = 0;
    while !is_over.load(Ordering::Relaxed) {
        put(writer, next);
        next += 1;
    }
    put(writer, END);
    next
}

/// Reads numbers, with none missing, until the end; how many there were.
fn collect(reader: &mut Reader, heard: &AtomicU64) -> u64 {
    let mut next = 0;
    loop {
        match number(reader) {
            END => return next,
            number => assert_eq!(number, next),
        }
        next += 1;
        heard.fetch_add(1, Ordering::Relaxed);
    }
}
