//! How a service takes callers in: a thread that sleeps on the service's mailbox, so no call waits while a mailbox is made.

use super::super::{Implementation, MailboxOptions, Node, Reader, ReaderOptions, Writer, WriterOptions};
use super::caller::{Caller, fill};
use super::control::Control;
use super::header::{HEADER_BYTES, Header, MessageKind};
use super::{MOST_CALLERS, MOST_CALLS, OwnMailbox, reply_mailbox, request_mailbox};
use crate::error::Error;
use std::sync::Arc;
use std::time::Duration;

/// How long it waits over shared memory, for a buffer that the daemon grants once there is memory: briefly, since callers behind wait too.
const WELCOME_PATIENCE_IN_MEMORY: Duration = Duration::from_millis(5);
/// How long the answer to a caller that says hello waits over packets, for the connection's own room.
const WELCOME_PATIENCE: Duration = Duration::from_secs(1);

/// The part of a service that takes callers in.
pub(super) struct Admission {
    pub(super) node: Node,
    pub(super) name: String,
    pub(super) control: Arc<Control>,
    pub(super) hellos: Reader,
    /// The service's own; it goes after its reader.
    pub(super) mailbox: OwnMailbox,
}

impl Admission {
    /// Until the service stops or the connection is gone.
    pub(super) fn run(mut self) {
        self.admit_all();
        let Admission { hellos, mailbox, .. } = self;
        drop(hellos);
        mailbox.delete();
    }

    fn admit_all(&mut self) {
        loop {
            match self.hellos.begin_get() {
                Ok(message) => {
                    let header = Header::parse(&message);
                    self.hellos.end_get(message);
                    match header {
                        Some(Header { kind: MessageKind::Hello, number, .. }) => self.admit(number),
                        _ => self.control.counts.malformed.add(),
                    }
                }
                Err(Error::Interrupted) => {}
                Err(error) => return self.control.end(Some(error)),
            }
            if self.control.has_ended() {
                return;
            }
        }
    }

    fn admit(&self, number: u64) {
        // It was taken in before: a second writer would end the direct rings of the first.
        if self.control.has_caller(number) {
            return self.control.counts.malformed.add();
        }
        let opened = self.node.open_writer(&reply_mailbox(&self.name, number), WriterOptions::default());
        let mut replies = match opened {
            Ok((replies, Implementation::Rings)) => replies,
            // Without a mailbox for the answer it is no caller, and nothing is made for it; neither is one whose mailbox has another's writer.
            // A writer of such a mailbox does not learn whether its reader is there.
            Ok((_, Implementation::SignalQueue)) | Err(Error::UnknownMailbox(_) | Error::Busy(_)) => {
                return self.control.counts.malformed.add();
            }
            // All ports of this process may be in use.
            Err(_) => return self.control.counts.refused.add(),
        };
        let has_room = self.control.callers() < MOST_CALLERS;
        let opened = match has_room.then(|| self.open(number)).transpose() {
            // It was taken in before.
            Err(Error::Exists(_)) => return self.control.counts.malformed.add(),
            // The daemon may allow this process no further mailboxes, or all ports are in use.
            Err(_) => None,
            Ok(opened) => opened,
        };
        let answer = if opened.is_some() { MessageKind::Welcome } else { MessageKind::Full };
        let answered = put(&mut replies, Header::new(answer, number));
        match opened {
            Some((mailbox, requests)) if answered => {
                self.control.admit(Caller::new(number, mailbox, requests, replies));
            }
            _ => self.control.counts.refused.add(),
        }
    }

    fn open(&self, number: u64) -> Result<(OwnMailbox, Reader), Error> {
        // Beside the calls that wait there are those that were given up.
        let messages = Some(2 * MOST_CALLS as u32);
        let options = MailboxOptions { bound_messages: messages, ..MailboxOptions::default() };
        let mailbox = OwnMailbox::create(&self.node.session, request_mailbox(&self.name, number), options)?;
        let requests = self.node.reader_with(&mailbox.name, ReaderOptions { ahead: messages })?;
        Ok((mailbox, requests))
    }
}

/// Puts a header alone into a mailbox that nobody has put anything into; whether it was put. Other callers wait meanwhile, so none waits
/// for long for a mailbox that is full.
fn put(to: &mut Writer, header: Header) -> bool {
    let patience = if to.is_in_memory() { WELCOME_PATIENCE_IN_MEMORY } else { WELCOME_PATIENCE };
    match to.begin_put_timeout(HEADER_BYTES, patience) {
        Ok(Some(mut put)) => {
            fill(&mut put, header, &[]);
            to.end_put(put).is_ok()
        }
        Ok(None) | Err(_) => false,
    }
}
