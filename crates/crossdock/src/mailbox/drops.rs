//! Messages of a mailbox that were dropped while messages were put into it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crossdock_nectarine::{Node, Writer};

use crate::failure::{Failure, Outcome};
use crate::out;
use crate::quantity::counted;

/// How often they are asked for while messages are put.
const LOOK: Duration = Duration::from_secs(1);
/// How long a report that has come takes to be found.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// The interval of the daemon's reports, and some more.
const INTERVAL: Duration = Duration::from_millis(120);

/// The drops that the daemon has reported, by reason.
pub(super) struct Drops {
    by_reason: BTreeMap<String, u64>,
    next: Instant,
}

impl Drops {
    pub(super) fn new() -> Drops {
        Drops { by_reason: BTreeMap::new(), next: Instant::now() + LOOK }
    }

    /// Takes what was reported, now and then, and shows it.
    pub(super) fn look(&mut self, writer: &mut Writer) {
        if Instant::now() >= self.next {
            self.take(writer, Duration::ZERO);
            self.next = Instant::now() + LOOK;
        }
    }

    /// Takes what was reported, with what was dropped of the messages put last, unless the command was cut short.
    pub(super) fn look_last(&mut self, node: &Node, writer: &mut Writer, is_cut_short: bool) {
        let mailbox = writer.mailbox().to_owned();
        // The daemon answers in order. It may refuse a second writer, which is an answer too.
        let round_trip = || drop(node.writer(&mailbox));
        let mut wait = Duration::ZERO;
        if !is_cut_short {
            // Once the first is answered, the daemon has the messages, and a report of them is at most one interval away. The reports of
            // that time come before the answer to the last one.
            round_trip();
            self.take(writer, INTERVAL);
            round_trip();
            round_trip();
            wait = LOOK_AGAIN;
        }
        self.take(writer, wait);
    }

    /// An error is left to the next put, or to the flush before.
    fn take(&mut self, writer: &mut Writer, wait: Duration) {
        let end = Instant::now() + wait;
        let left = || end.saturating_duration_since(Instant::now());
        let mut found = BTreeMap::<String, u64>::new();
        while let Ok(Some(dropped)) = writer.next_dropped(Some(left())) {
            *found.entry(dropped.reason).or_default() += dropped.messages;
        }
        for (reason, messages) in found {
            out::say(format_args!("{} of {} dropped: {reason}", counted(messages, "message"), writer.mailbox()));
            *self.by_reason.entry(reason).or_default() += messages;
        }
    }

    /// The reasons by name, as `crossdock mailboxes` has them, each with the number of messages.
    pub(super) fn by_name(&self) -> Vec<(&str, u64)> {
        let name = |reason: &'_ str| -> Option<(usize, usize)> {
            let inner = reason.strip_suffix(')')?;
            Some((inner.rfind('(')? + 1, inner.len()))
        };
        let names = self.by_reason.iter().map(|(reason, messages)| match name(reason) {
            Some((from, to)) => (&reason[from..to], *messages),
            None => (&reason[..], *messages),
        });
        names.collect()
    }

    /// A failure if any were dropped.
    pub(super) fn check(&self, mailbox: &str) -> Outcome {
        if self.by_reason.is_empty() {
            return Ok(());
        }
        let all = counted(self.by_reason.values().sum(), "message");
        Err(Failure::failed(format!("{all} of mailbox {mailbox} were dropped while this command put messages into it"))
            .hint("`crossdock mailboxes` shows the numbers by reason, for all writers"))
    }
}
