//! The order in which a session sends what it has queued.
//!
//! A packet gets its sequence number when it is first sent, and the receiver delivers in the order of these numbers. So the
//! sender alone chooses the order: both ends need one reordering buffer, and no numbers that say what waits for what.
//!
//! 1. Data is sent in the order in which it was queued, after all that was queued before it.
//! 2. Control is sent before the data that waits, except for the data that it follows: a message that ends or describes
//!    certain records waits for these ([`Follows`]).
//! 3. Requests keep their order, and so do replies: each waits for those before it. So a reply that waits for records delays
//!    the replies after it. A notice delays nothing but the control that follows the same records.

use std::iter;

/// The window in which a packet is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Records and mailbox messages.
    Data,
    /// Control messages.
    Control,
}

/// The origin of data, as its header says: a stream or subscription, or a mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Records of the stream or subscription of that number.
    Stream(u32),
    /// Messages of the mailbox open under that number.
    Mailbox(u32),
}

/// The queue before a control message that must be sent before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follows {
    /// Nothing.
    Nothing,
    /// All data of that origin, and the control that follows it.
    Origin(Origin),
    /// The messages of all mailboxes.
    Mailboxes,
    /// All data and all control.
    Everything,
}

impl Follows {
    fn covers(self, origin: Option<Origin>) -> bool {
        match self {
            Follows::Nothing => false,
            Follows::Origin(own) => origin == Some(own),
            Follows::Mailboxes => matches!(origin, Some(Origin::Mailbox(_))),
            Follows::Everything => true,
        }
    }
}

/// The class of a queued unit, as far as the order goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrafficClass {
    /// Records or mailbox messages.
    Data(Origin),
    /// A request or a reply.
    Exchange(Follows),
    /// A notice.
    Notice(Follows),
}

impl TrafficClass {
    /// The window in which it is counted.
    #[must_use]
    pub fn traffic(self) -> Traffic {
        match self {
            TrafficClass::Data(_) => Traffic::Data,
            TrafficClass::Exchange(_) | TrafficClass::Notice(_) => Traffic::Control,
        }
    }

    /// Whether it must be sent after `earlier`, which was queued before it.
    #[must_use]
    pub fn follows(self, earlier: TrafficClass) -> bool {
        match (self, earlier) {
            (TrafficClass::Data(_), _) | (TrafficClass::Exchange(_), TrafficClass::Exchange(_)) => true,
            (TrafficClass::Exchange(follows) | TrafficClass::Notice(follows), _) => follows.covers(earlier.origin()),
        }
    }

    /// Its place in a queue, as an index: after all that it follows and the control next to that, before everything else.
    #[must_use]
    pub fn position(self, queued: impl IntoIterator<Item = TrafficClass>) -> usize {
        let mut position = 0;
        for (end, earlier) in iter::zip(1.., queued) {
            let is_next = position + 1 == end && earlier.traffic() == Traffic::Control;
            if is_next || self.follows(earlier) {
                position = end;
            }
        }
        position
    }

    /// The data to which it belongs.
    fn origin(self) -> Option<Origin> {
        match self {
            TrafficClass::Data(origin)
            | TrafficClass::Exchange(Follows::Origin(origin))
            | TrafficClass::Notice(Follows::Origin(origin)) => Some(origin),
            TrafficClass::Exchange(_) | TrafficClass::Notice(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Origin = Origin::Stream(1);
    const TWO: Origin = Origin::Stream(2);

    /// Queues one after the other; the numbers of what was queued, as it leaves.
    fn order(queued: &[TrafficClass]) -> Vec<usize> {
        let mut queue: Vec<usize> = Vec::new();
        for (number, class) in queued.iter().enumerate() {
            let position = class.position(queue.iter().map(|&earlier| queued[earlier]));
            queue.insert(position, number);
        }
        queue
    }

    #[test]
    fn control_is_sent_before_the_data_that_it_does_not_follow() {
        use TrafficClass::{Data, Exchange, Notice};
        let (one, two) = (Follows::Origin(ONE), Follows::Origin(TWO));
        let table: [(&[TrafficClass], &[usize]); 5] = [
            (&[Data(ONE), Data(TWO), Exchange(Follows::Nothing)], &[2, 0, 1]),
            (&[Data(ONE), Data(TWO), Notice(one), Notice(two)], &[0, 2, 1, 3]),
            (&[Data(ONE), Exchange(Follows::Everything), Data(ONE)], &[0, 1, 2]),
            // A notice behind the same records stays behind the notices before it, though these have gone.
            (&[Data(TWO), Notice(Follows::Everything), Notice(one), Notice(one)], &[2, 3, 0, 1]),
            // Nothing overtakes the control before it for nothing.
            (&[Notice(one), Notice(two), Exchange(Follows::Nothing)], &[0, 1, 2]),
        ];
        for (queued, expected) in table {
            assert_eq!(order(queued), expected, "{queued:?}");
        }
    }

    #[test]
    fn replies_keep_their_order_and_notices_delay_none() {
        use TrafficClass::{Data, Exchange, Notice};
        let ended = Exchange(Follows::Origin(ONE));
        let queued = [Data(ONE), Data(TWO), ended, Exchange(Follows::Nothing), Notice(Follows::Nothing)];
        assert_eq!(order(&queued), [4, 0, 2, 3, 1]);
        let queued = [Data(ONE), Notice(Follows::Origin(ONE)), Exchange(Follows::Nothing)];
        assert_eq!(order(&queued), [2, 0, 1]);
    }

    #[test]
    fn messages_of_any_mailbox_precede_what_follows_mailboxes() {
        let class = TrafficClass::Exchange(Follows::Mailboxes);
        assert!(class.follows(TrafficClass::Data(Origin::Mailbox(3))));
        assert!(!class.follows(TrafficClass::Data(ONE)));
    }
}
