//! Mailboxes that sessions over packets have open: each message is one packet, and each open side has its own credit,
//! so that a full mailbox or a slow reader delays nothing else of its session.

use super::Host;
use super::remote::Line;
use crate::net::sides::{RemoteSide, Waiting};
use crate::refusal::refuse;
use crossdock_mailbox::host::{self, HostError, HostInterface, Implementation, Losses, MailboxKey};
use crossdock_transport::control::{Refusal, RefusalCode, Side};
use crossdock_transport::{Notice, Reply, control};

/// Sides of mailboxes that one session may have open.
const MAX_SIDES: usize = 256;
/// Messages that a remote writer may put ahead: the default, and the most. This number of messages of 64 KiB may wait
/// for memory.
const AHEAD: (u32, u32) = (16, 64);
/// Shortest interval between two reports of dropped messages to writers, in ns.
const LOSSES_INTERVAL_NS: u64 = 100_000_000;

/// The result of a message for a mailbox.
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
        if self.remote.count(peer) >= MAX_SIDES {
            let message = format!("this session has {MAX_SIDES} sides of mailboxes open, the bound; close some");
            return Err(refuse(RefusalCode::Limit, message));
        }
        let number = self.remote.unused_number(peer);
        let ahead = ahead.unwrap_or(AHEAD.0);
        let ahead = if side == Side::Write { ahead.clamp(1, AHEAD.1) } else { ahead };
        let of_session = RemoteSide::new(peer, number, mailbox, side, ahead);
        let key = self.remote.insert(of_session, &mut self.interface);
        if side == Side::Read {
            self.remote.make_due(key);
        }
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
        let count = |side| self.remote.at(mailbox).filter(|(_, s)| s.side == side).count() as u32;
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
        let writers = self.remote.at(mailbox).filter(|(_, side)| side.side == Side::Write);
        writers.map(|(_, side)| (side.peer, side.number))
    }

    /// Closes a side; false if it is not open.
    pub(crate) fn close_remote(&mut self, peer: usize, number: u16) -> bool {
        let found = self.remote.find(peer, number);
        found.is_some_and(|key| self.end_side(key).is_some())
    }

    /// Closes all that a session has open.
    pub(crate) fn close_all_remote(&mut self, peer: usize) {
        while let Some(key) = self.remote.any_of(peer) {
            self.end_side(key);
        }
        self.replenished.retain(|(to, _)| *to != peer);
    }

    /// Ends a side; its peer, and the peer's number for it.
    fn end_side(&mut self, key: usize) -> Option<(usize, u16)> {
        let side = self.remote.remove(key, &mut self.interface)?;
        let ended = (side.peer, side.number);
        let (mailbox, is_reader) = (side.mailbox, side.side == Side::Read);
        side.end(&mut self.interface);
        // The message that it would have got is for the next one.
        if is_reader && self.interface.has_message(mailbox) {
            self.remote.call(mailbox, Line::Message);
        }
        Some(ended)
    }

    /// The next open side whose mailbox is gone, taken out: its peer, and the notice to it.
    pub(crate) fn next_closed_side(&mut self) -> Option<(usize, Notice)> {
        self.take_changes();
        while let Some(mailbox) = self.gone.last().copied() {
            let next = self.remote.at(mailbox).next().map(|(key, _)| key);
            if let Some((peer, number)) = next.and_then(|key| self.end_side(key)) {
                let reason = "the mailbox was deleted, or its creator has gone".to_owned();
                return Some((peer, Notice::MailboxClosed { number, reason }));
            }
            self.gone.pop();
        }
        None
    }

    /// Has those sides looked at that wait for what has changed.
    fn take_changes(&mut self) {
        while let Some(mailbox) = self.interface.next_changed() {
            if self.interface.name_of(mailbox).is_none() {
                self.gone.push(mailbox);
                continue;
            }
            // The next one is called when the first has taken what it takes.
            if self.interface.has_message(mailbox) {
                self.remote.call(mailbox, Line::Message);
            }
            if !self.interface.is_full(mailbox) {
                while self.remote.call(mailbox, Line::Room) {}
            }
        }
    }

    /// A reader has ended messages, except those in `held`, and takes more ([`RemoteSide::ended`]).
    pub(crate) fn get_messages(&mut self, peer: usize, number: u16, messages: u32, held: &[u32]) {
        // It may have been closed meanwhile, or the number is wrong.
        let Some(key) = self.remote.find(peer, number) else { return };
        if let Some(side) = self.remote.side_mut(key).filter(|side| side.side == Side::Read) {
            side.ended(messages, held, &mut self.interface);
            self.remote.join(key, Line::Due);
        }
    }

    /// A message of a session over packets, for the mailbox that it has open for writing under `number`.
    pub(crate) fn put_message(&mut self, peer: usize, number: u32, payload: &[u8]) -> MessagePut {
        let key = u16::try_from(number).ok().and_then(|number| self.remote.find(peer, number));
        let Some((key, side)) = key.and_then(|key| Some((key, self.remote.side_mut(key)?))) else {
            return MessagePut::NotOpen;
        };
        if side.side != Side::Write {
            return MessagePut::NotOpen;
        }
        if side.credit == 0 {
            return MessagePut::BeyondCredit;
        }
        side.credit -= 1;
        side.waiting.push_back(Waiting::Put(payload.into()));
        if self.serve_writer(key) {
            // It may wait for room as well.
            self.remote.make_due(key);
        }
        MessagePut::Done
    }

    /// Whether sessions over packets have no side of a mailbox open.
    #[inline]
    pub(crate) fn has_no_sides(&self) -> bool {
        self.remote.is_empty()
    }

    /// Serves the sides that are due: puts what waits of writers into their mailboxes, and calls `send` for readers.
    pub(crate) fn serve_sides(&mut self, mut send: impl FnMut(&mut RemoteSide, &mut HostInterface)) {
        // Those that cannot go on now are looked at in the next turn.
        let mut again = std::mem::take(&mut self.again);
        loop {
            self.take_changes();
            let Some(key) = self.remote.next_due() else { break };
            let Some(side) = self.remote.side_mut(key) else { continue };
            if side.side == Side::Write {
                if self.serve_writer(key) {
                    again.push(key);
                }
                continue;
            }
            send(side, &mut self.interface);
            let (mailbox, takes, holds) = (side.mailbox, side.takes_messages(), !side.waiting.is_empty());
            let has_message = self.interface.has_message(mailbox);
            if takes && (has_message || holds) {
                again.push(key);
            } else if takes {
                self.remote.join(key, Line::Message);
            }
            if has_message {
                self.remote.call(mailbox, Line::Message);
            }
        }
        again.drain(..).for_each(|key| self.remote.join(key, Line::Due));
        self.again = again;
    }

    /// Puts what waits of a writer into its mailbox, and gives it credit back if the mailbox has room. Whether it is to be looked at
    /// again, since there is no memory for what it has put.
    fn serve_writer(&mut self, key: usize) -> bool {
        let Some(side) = self.remote.side_mut(key) else { return false };
        side.serve_writer(&mut self.interface);
        let (mailbox, number, peer) = (side.mailbox, side.number, side.peer);
        match side.due_credit() {
            Some(_) if self.interface.is_full(mailbox) => self.remote.join(key, Line::Room),
            Some(used) => {
                side.replenish();
                self.replenished.push_back((peer, Notice::MayPut { number, messages: used as u32 }));
            }
            None => return !side.waiting.is_empty(),
        }
        false
    }

    /// The next writer that got credit back: its peer, and the notice to it.
    pub(crate) fn next_replenished(&mut self) -> Option<(usize, Notice)> {
        self.replenished.pop_front()
    }
}
