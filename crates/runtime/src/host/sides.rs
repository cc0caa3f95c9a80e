//! Mailboxes that sessions over packets have open: each message is one packet, and each open side has its own credit,
//! so that a full mailbox or a slow reader holds up nothing else of its session.

use super::Host;
use crate::net::sides::{RemoteSide, Waiting};
use crate::refusal::refuse;
use crossdock_mailbox::host::{self, HostError, HostInterface, Implementation, Losses, MailboxKey};
use crossdock_transport::control::{Refusal, RefusalCode, Side};
use crossdock_transport::{Notice, Reply, control};
use std::collections::VecDeque;

/// Sides of mailboxes that one session may have open.
const MAX_SIDES: usize = 256;
/// Messages that a remote writer may put ahead: the default, and the most. This number of messages of 64 KiB may wait
/// for memory.
const AHEAD: (u32, u32) = (16, 64);
/// Shortest interval between two reports of dropped messages to writers, in ns.
const LOSSES_INTERVAL_NS: u64 = 100_000_000;

/// What has become of a message for a mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessagePut {
    /// It is in the mailbox, or waits for memory there.
    Done,
    /// The session has no such mailbox open for writing.
    NotOpen,
    /// The session was not allowed to put it.
    BeyondCredit,
}

/// As the session names one.
pub(crate) fn implementation_of(of: host::Implementation) -> control::Implementation {
    match of {
        host::Implementation::Rings => control::Implementation::Rings,
        host::Implementation::SignalQueue => control::Implementation::SignalQueue,
    }
}

impl Host {
    /// Opens a side of a mailbox for a session over packets.
    pub(crate) fn open_remote(
        &mut self,
        peer: usize,
        id: u32,
        name: &str,
        side: Side,
        ahead: Option<u32>,
    ) -> Result<Reply, Refusal> {
        let unknown = |error: HostError| refuse(RefusalCode::UnknownMailbox, error.to_string());
        let mailbox = self.interface.find(name).map_err(unknown)?;
        let implementation = self.interface.implementation_of(mailbox).unwrap_or_default();
        if side == Side::Read {
            self.refuse_second_reader(name)?;
            let status = self.interface.mailboxes().into_iter().find(|status| status.key == mailbox);
            let taken =
                status.is_some_and(|s| s.upcall.is_some() || implementation == Implementation::Rings && s.readers > 0);
            if taken {
                let message = format!("the read side of mailbox `{name}` is taken by a task or another reader");
                return Err(refuse(RefusalCode::Busy, message));
            }
        }
        let numbers = || self.remote.sides.iter().filter(|s| s.peer == peer).map(|s| s.number);
        if numbers().count() >= MAX_SIDES {
            let message = format!("this session has {MAX_SIDES} sides of mailboxes open, the bound; close some");
            return Err(refuse(RefusalCode::Limit, message));
        }
        let number = (0..=u16::MAX).find(|number| !numbers().any(|n| n == *number)).unwrap_or_default();
        let ahead = ahead.unwrap_or(AHEAD.0);
        let ahead = if side == Side::Write { ahead.clamp(1, AHEAD.1) } else { ahead };
        let (credit, waiting) = (ahead.into(), VecDeque::new());
        self.remote.sides.push(RemoteSide { peer, number, mailbox, side, credit, ahead: credit, waiting });
        let implementation = implementation_of(implementation);
        let ahead = (side == Side::Write).then_some(ahead);
        Ok(Reply::MailboxOpened { id, number, port: None, implementation, ahead })
    }

    /// Refuses a reader of a `rings` mailbox that a session over packets reads, and a task where one reads at all.
    pub(crate) fn refuse_second_reader(&self, name: &str) -> Result<(), Refusal> {
        // Opening it says that there is none.
        let Ok(mailbox) = self.interface.find(name) else { return Ok(()) };
        let rings = self.interface.implementation_of(mailbox) == Some(Implementation::Rings);
        let (_, readers) = self.remote_sides(mailbox);
        if readers > 0 && rings {
            let message = format!("the read side of mailbox `{name}` is taken by a session over packets");
            return Err(refuse(RefusalCode::Busy, message));
        }
        Ok(())
    }

    /// Writers and readers over packets that a mailbox has.
    pub(crate) fn remote_sides(&self, mailbox: MailboxKey) -> (u32, u32) {
        let count = |side| self.remote.sides.iter().filter(|s| s.mailbox == mailbox && s.side == side).count() as u32;
        (count(Side::Write), count(Side::Read))
    }

    /// When writers are to be notified of losses, in ns.
    pub(crate) fn losses_due_ns(&self) -> u64 {
        if self.interface.has_unreported() { self.next_losses_ns } else { u64::MAX }
    }

    /// The mailboxes whose writers are to be notified of losses now.
    pub(crate) fn take_losses(&mut self, now_ns: u64) -> Vec<(MailboxKey, Losses)> {
        if now_ns < self.losses_due_ns() {
            return Vec::new();
        }
        self.next_losses_ns = now_ns + LOSSES_INTERVAL_NS;
        self.interface.take_unreported()
    }

    /// The sessions over packets that have a mailbox open for writing, each with its number for it.
    pub(crate) fn remote_writers(&self, mailbox: MailboxKey) -> impl Iterator<Item = (usize, u16)> {
        let writers = self.remote.sides.iter().filter(move |side| side.mailbox == mailbox && side.side == Side::Write);
        writers.map(|side| (side.peer, side.number))
    }

    /// Closes a side; false if it is not open.
    pub(crate) fn close_remote(&mut self, peer: usize, number: u16) -> bool {
        let found = self.remote.sides.iter().position(|side| side.peer == peer && side.number == number);
        match found {
            Some(at) => self.remote.sides.swap_remove(at).end(&mut self.interface),
            None => return false,
        }
        true
    }

    /// Closes all that a session has open.
    pub(crate) fn close_all_remote(&mut self, peer: usize) {
        while let Some(number) = self.remote.sides.iter().find(|side| side.peer == peer).map(|side| side.number) {
            self.close_remote(peer, number);
        }
    }

    /// The next open side whose mailbox is gone, taken out: its peer, and the notice to it.
    pub(crate) fn next_closed_side(&mut self) -> Option<(usize, Notice)> {
        let is_gone = |side: &RemoteSide| self.interface.name_of(side.mailbox).is_none();
        let at = self.remote.sides.iter().position(is_gone)?;
        let side = self.remote.sides.swap_remove(at);
        let (peer, number) = (side.peer, side.number);
        side.end(&mut self.interface);
        let reason = "the mailbox was deleted, or its creator has gone".to_owned();
        Some((peer, Notice::MailboxClosed { number, reason }))
    }

    /// A reader takes more messages.
    pub(crate) fn get_messages(&mut self, peer: usize, number: u16, messages: u32) {
        if let Some(side) = self.remote.find(peer, number).filter(|side| side.side == Side::Read) {
            side.credit = side.credit.saturating_add(messages.into());
        }
    }

    /// A message of a session over packets, for the mailbox that it has open for writing under `number`.
    pub(crate) fn put_message(&mut self, peer: usize, number: u32, payload: &[u8]) -> MessagePut {
        let side = u16::try_from(number).ok().and_then(|number| self.remote.find(peer, number));
        let Some(side) = side.filter(|side| side.side == Side::Write) else { return MessagePut::NotOpen };
        if side.credit == 0 {
            return MessagePut::BeyondCredit;
        }
        side.credit -= 1;
        side.waiting.push_back(Waiting::Put(payload.into()));
        side.serve_writer(&mut self.interface);
        MessagePut::Done
    }

    /// Whether sessions over packets have no side of a mailbox open.
    #[inline]
    pub(crate) fn has_no_sides(&self) -> bool {
        self.remote.sides.is_empty()
    }

    /// Puts what waits of writers into their mailboxes, and calls `send` for the sides of readers.
    pub(crate) fn serve_sides(&mut self, mut send: impl FnMut(&mut RemoteSide, &mut HostInterface)) {
        for side in &mut self.remote.sides {
            match side.side {
                Side::Write => side.serve_writer(&mut self.interface),
                Side::Read => send(side, &mut self.interface),
            }
        }
    }

    /// Gives the next writer whose mailbox has room, from the side at `next` on, the credit back that it used: its peer, and
    /// the notice to it.
    pub(crate) fn next_replenished(&mut self, next: &mut usize) -> Option<(usize, Notice)> {
        while let Some(side) = self.remote.sides.get_mut(*next) {
            *next += 1;
            let used = side.ahead.saturating_sub(side.credit);
            // A notice for every message would double the packets.
            let is_due = side.side == Side::Write && used > 0 && used >= side.ahead / 2;
            if !is_due || !side.waiting.is_empty() || self.interface.is_full(side.mailbox) {
                continue;
            }
            side.credit = side.ahead;
            return Some((side.peer, Notice::MayPut { number: side.number, messages: used as u32 }));
        }
        None
    }
}
