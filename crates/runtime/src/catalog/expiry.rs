//! Streams that have been unused for long are removed, where the configuration says so.

use super::Catalog;
use crossdock_format::registry::Policy;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The shortest and the longest pause between two looks at the streams.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Called with the name of each stream that is removed.
type Report = Box<dyn Fn(&str) + Send>;

/// After which time unused streams are removed.
struct Rule {
    after: Duration,
    next: Instant,
    report: Report,
}

/// What is known of unused streams.
#[derive(Default)]
pub(super) struct Expiry {
    rule: Option<Rule>,
    /// Since when they were seen unused, by number.
    unused_since: BTreeMap<u32, Instant>,
}

impl Expiry {
    /// A stream is about to be used.
    pub(super) fn note_use(&mut self, number: u32) {
        self.unused_since.remove(&number);
    }
}

impl Catalog {
    /// Has streams removed that were unused for so long, the first of them no earlier than that from now on.
    pub(crate) fn expire_unused(&mut self, after: Duration, now: Instant, report: impl Fn(&str) + Send + 'static) {
        self.expiry.rule = Some(Rule { after, next: now, report: Box::new(report) });
        self.expire(now);
    }

    /// When [`Catalog::expire`] is to be called next, if ever.
    pub(crate) fn expiry_due(&self) -> Option<Instant> {
        self.expiry.rule.as_ref().map(|rule| rule.next)
    }

    /// Removes the streams that have been unused for long. Those with a policy or a kept conversion stay: somebody has set them up.
    pub(crate) fn expire(&mut self, now: Instant) {
        let Some(mut rule) = self.expiry.rule.take_if(|rule| rule.next <= now) else { return };
        rule.next = now + (rule.after / 8).clamp(PAUSE.0, PAUSE.1);
        let is_set_up = |number: u32| {
            let Some(entry) = self.now.get(number) else { return false };
            let is_kept = || self.registry.conversions().any(|(of, ..)| of == entry.name());
            entry.policy() != Policy::default() || !entry.conversions().graph().conversions().is_empty() || is_kept()
        };
        let unused = self.now.iter().filter(|entry| self.check_unused(entry.name()).is_ok());
        let unused: Vec<u32> = unused.map(|entry| entry.number()).filter(|number| !is_set_up(*number)).collect();
        let before = std::mem::take(&mut self.expiry.unused_since);
        let since = |number| (number, before.get(&number).copied().unwrap_or(now));
        self.expiry.unused_since = unused.into_iter().map(since).collect();
        let is_old = |since: Instant| now.saturating_duration_since(since) >= rule.after;
        let old = self.expiry.unused_since.iter().filter(|(_, since)| is_old(**since)).map(|(number, _)| *number);
        for number in old.collect::<Vec<_>>() {
            let Some(name) = self.now.get(number).map(|entry| entry.name().to_owned()) else { continue };
            // If the disk is behind, it stays until the next look.
            if self.remove_stream(&name).is_ok() {
                self.expiry.note_use(number);
                (rule.report)(&name);
            }
        }
        self.expiry.rule = Some(rule);
    }
}
