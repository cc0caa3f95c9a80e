//! The sides of mailboxes that sessions over packets have open.

use crossdock_mailbox::host::{HostInterface, MailboxKey, Message};
use crossdock_transport::control::Side;
use std::collections::VecDeque;

/// One side of a mailbox that a session over packets has open.
pub(crate) struct RemoteSide {
    /// Key of its peer.
    pub(crate) peer: usize,
    /// The session's number for it.
    pub(crate) number: u16,
    pub(crate) mailbox: MailboxKey,
    pub(crate) side: Side,
    /// Of a writer: messages that it may put. Of a reader: messages that it takes, however many it says.
    pub(crate) credit: u64,
    /// Of a writer: the most that it may put ahead.
    pub(crate) ahead: u64,
    /// Of a writer: what was put, while there is no memory to put it into the mailbox. Of a reader: what was got, while
    /// there is no buffer to send it in.
    pub(crate) waiting: VecDeque<Waiting>,
}

/// A message that waits for memory.
pub(crate) enum Waiting {
    Put(Box<[u8]>),
    Got(Message),
}

/// All sides that sessions over packets have open.
#[derive(Default)]
pub(crate) struct Remote {
    pub(crate) sides: Vec<RemoteSide>,
}

impl Remote {
    #[inline]
    pub(crate) fn find(&mut self, peer: usize, number: u16) -> Option<&mut RemoteSide> {
        self.sides.iter_mut().find(|side| side.peer == peer && side.number == number)
    }
}

impl RemoteSide {
    /// Ends it: a message that it had got and not sent goes with it.
    pub(crate) fn end(self, host: &mut HostInterface) {
        for waiting in self.waiting {
            if let Waiting::Got(message) = waiting {
                host.free(message);
            }
        }
    }

    /// Puts what waits into the mailbox, as far as there is memory for it.
    pub(crate) fn serve_writer(&mut self, host: &mut HostInterface) {
        while let Some(Waiting::Put(bytes)) = self.waiting.front() {
            // There is no memory now, or the mailbox has gone.
            let Ok(mut draft) = host.begin_put(self.mailbox, bytes.len()) else { return };
            draft.copy_from_slice(bytes);
            let len = bytes.len();
            self.waiting.pop_front();
            host.put(self.mailbox, draft.finish(len));
        }
    }
}
