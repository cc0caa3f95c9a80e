//! The traffic class of each control message: which data it follows. See [`crate::order`] for the rule.
//!
//! A request follows the data that it ends, or that needs what it withdraws. A notice about a subscription's records keeps its
//! place among them, and so does the reply that begins or ends a subscription or a side of a mailbox, since its number may be
//! used again. Nothing else follows data.

use super::{ControlMessage, Notice, Reply, Request};
use crate::order::{Follows, Origin, TrafficClass};

impl Request {
    /// The subscription or the side of a mailbox that it ends: a reply to it follows what was queued for that.
    #[must_use]
    pub fn ends(&self) -> Option<Origin> {
        match self {
            Request::Unsubscribe { subscription, .. } => Some(Origin::Stream(*subscription)),
            Request::CloseMailbox { number, .. } => Some(Origin::Mailbox((*number).into())),
            _ => None,
        }
    }

    fn follows(&self) -> Follows {
        match self {
            Request::Finish { stream, .. } => Follows::Origin(Origin::Stream(*stream)),
            Request::CloseMailbox { number, .. } => Follows::Origin(Origin::Mailbox((*number).into())),
            Request::DeleteMailbox { .. } | Request::EndTask { .. } => Follows::Mailboxes,
            // Records that were published before may need the conversion.
            Request::UnregisterConversion { .. } | Request::Terminate => Follows::Everything,
            Request::Announce { .. }
            | Request::Subscribe { .. }
            | Request::SetQuery { .. }
            | Request::Unsubscribe { .. }
            | Request::RegisterConversion { .. }
            | Request::ListenForConverters { .. }
            | Request::CreateMailbox { .. }
            | Request::OpenMailbox { .. }
            | Request::GetMessages { .. }
            | Request::ReportMalformed { .. }
            | Request::ReportMissed { .. }
            | Request::OpenCircuit { .. }
            | Request::UseDatagrams { .. }
            | Request::CountSubscriptions { .. }
            | Request::CreateTask { .. }
            | Request::FindNode { .. } => Follows::Nothing,
        }
    }
}

impl Reply {
    fn follows(&self) -> Follows {
        match self {
            Reply::Subscribed { subscription, .. } => Follows::Origin(Origin::Stream(*subscription)),
            Reply::MailboxOpened { number, .. } => Follows::Origin(Origin::Mailbox((*number).into())),
            Reply::Done { .. }
            | Reply::Announced { .. }
            | Reply::Subscriptions { .. }
            | Reply::Node { .. }
            | Reply::Refused { .. } => Follows::Nothing,
        }
    }
}

impl Notice {
    fn follows(&self) -> Follows {
        match self {
            Notice::Format { subscription, .. }
            | Notice::StreamEnded { subscription, .. }
            | Notice::Position { subscription, .. }
            | Notice::Dropped { subscription, .. }
            | Notice::Unreadable { subscription, .. }
            | Notice::NoReader { subscription, .. }
            | Notice::Readable { subscription, .. } => Follows::Origin(Origin::Stream(*subscription)),
            // The reply that opened the side may wait for the messages of one that had its number.
            Notice::MailboxClosed { number, .. }
            | Notice::MessagesDropped { number, .. }
            | Notice::MayPut { number, .. } => Follows::Origin(Origin::Mailbox((*number).into())),
            Notice::ConverterWanted { .. } | Notice::Durable { .. } => Follows::Nothing,
        }
    }
}

impl ControlMessage {
    /// The message's traffic class. Of a reply to a request that ends something, see [`Request::ends`].
    #[must_use]
    pub fn class(&self) -> TrafficClass {
        match self {
            ControlMessage::Request(request) => TrafficClass::Exchange(request.follows()),
            ControlMessage::Reply(reply) => TrafficClass::Exchange(reply.follows()),
            ControlMessage::Notice(notice) => TrafficClass::Notice(notice.follows()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_that_ends_data_follows_it_and_other_control_does_not() {
        let stream = |number| Follows::Origin(Origin::Stream(number));
        let class = |request| ControlMessage::Request(request).class();
        assert_eq!(class(Request::Finish { id: 1, stream: 7 }), TrafficClass::Exchange(stream(7)));
        assert_eq!(class(Request::Terminate), TrafficClass::Exchange(Follows::Everything));
        let ended = Notice::StreamEnded { subscription: 3, publishers: 0, lost: 0 };
        assert_eq!(ControlMessage::from(ended).class(), TrafficClass::Notice(stream(3)));
        assert_eq!(ControlMessage::from(Reply::Done { id: 1 }).class(), TrafficClass::Exchange(Follows::Nothing));
        let unsubscribe = Request::Unsubscribe { id: 1, subscription: 3 };
        assert_eq!(unsubscribe.ends(), Some(Origin::Stream(3)));
        assert_eq!(class(unsubscribe), TrafficClass::Exchange(Follows::Nothing));
    }
}
