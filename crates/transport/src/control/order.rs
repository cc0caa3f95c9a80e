//! What must be sent before a control message: everything else it may overtake.
//!
//! A request must not overtake the data that it ends or takes the ground from. (Requests also keep their order among themselves:
//! a client sends one that would follow nothing behind those that wait.) A notice about a subscription's records keeps its place
//! among them; so does the answer that begins or ends a subscription or a side of a mailbox, since its number may be used again.
//! No other answer waits for data.

use super::{ControlMessage, Notice, Reply, Request};
use crate::credit::{Follows, Origin};

impl Request {
    /// What must be sent before the request.
    #[must_use]
    pub fn follows(&self) -> Follows {
        match self {
            Request::Finish { stream, .. } => Follows::Origin(Origin::Stream(*stream)),
            Request::CloseMailbox { number, .. } => Follows::Origin(Origin::Mailbox((*number).into())),
            Request::DeleteMailbox { .. } | Request::EndTask { .. } => Follows::Mailboxes,
            // Records that were published before may need the conversion.
            Request::UnregisterConversion { .. } | Request::Terminate => Follows::Everything,
            Request::Announce { .. }
            | Request::Subscribe { .. }
            | Request::Unsubscribe { .. }
            | Request::RegisterConversion { .. }
            | Request::ListenForConverters { .. }
            | Request::CreateMailbox { .. }
            | Request::OpenMailbox { .. }
            | Request::GetMessages { .. }
            | Request::CreateTask { .. }
            | Request::FindNode { .. } => Follows::Nothing,
        }
    }

    /// What must be sent before a reply that says no more than that the request was carried out, or refused.
    #[must_use]
    pub fn reply_follows(&self) -> Follows {
        match self {
            Request::Unsubscribe { subscription, .. } => Follows::Origin(Origin::Stream(*subscription)),
            Request::CloseMailbox { number, .. } => Follows::Origin(Origin::Mailbox((*number).into())),
            _ => Follows::Nothing,
        }
    }
}

impl ControlMessage {
    /// What must be sent before the message. Of the reply to a request that ends something, see
    /// [`Request::reply_follows`].
    #[must_use]
    pub fn follows(&self) -> Follows {
        match self {
            ControlMessage::Request(request) => request.follows(),
            ControlMessage::Reply(Reply::Subscribed { subscription, .. })
            | ControlMessage::Notice(
                Notice::Format { subscription, .. }
                | Notice::StreamEnded { subscription, .. }
                | Notice::Dropped { subscription, .. }
                | Notice::Unreadable { subscription, .. }
                | Notice::NoReader { subscription, .. }
                | Notice::Readable { subscription, .. },
            ) => Follows::Origin(Origin::Stream(*subscription)),
            ControlMessage::Reply(Reply::MailboxOpened { number, .. })
            | ControlMessage::Notice(Notice::MailboxClosed { number, .. }) => {
                Follows::Origin(Origin::Mailbox((*number).into()))
            }
            ControlMessage::Reply(Reply::Done { .. } | Reply::Node { .. } | Reply::Refused { .. })
            | ControlMessage::Notice(Notice::ConverterWanted { .. } | Notice::MayPut { .. }) => Follows::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_data_follows_it_and_answers_do_not() {
        let stream = |number| Follows::Origin(Origin::Stream(number));
        assert_eq!(Request::Finish { id: 1, stream: 7 }.follows(), stream(7));
        assert_eq!(Request::Terminate.follows(), Follows::Everything);
        assert_eq!(ControlMessage::from(Notice::StreamEnded { subscription: 3, publishers: 0 }).follows(), stream(3));
        assert_eq!(ControlMessage::from(Reply::Done { id: 1 }).follows(), Follows::Nothing);
        let unsubscribe = Request::Unsubscribe { id: 1, subscription: 3 };
        assert_eq!((unsubscribe.follows(), unsubscribe.reply_follows()), (Follows::Nothing, stream(3)));
    }
}
