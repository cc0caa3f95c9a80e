//! Streams and versions that have been unused for long are removed, where the configuration says so.

use super::{Catalog, StreamEntry};
use crossdock_format::registry::Policy;
use crossdock_format::{Format, FormatId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// The shortest and the longest pause between two looks at the streams.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Called with the name of each stream that is removed, and with the number of the version if only that is.
type Report = Box<dyn Fn(&str, Option<u32>) + Send>;

/// A stream by its number, or a version of it by its format.
type Part = (u32, Option<FormatId>);

/// After which time what is unused is removed.
struct Rule {
    after: Duration,
    next: Instant,
    report: Report,
}

/// The known times of unused streams and versions.
#[derive(Default)]
pub(super) struct Expiry {
    rule: Option<Rule>,
    /// Since when they were seen unused.
    unused_since: BTreeMap<Part, Instant>,
}

impl Expiry {
    /// A stream is about to be used.
    pub(super) fn note_use(&mut self, number: u32) {
        self.unused_since.remove(&(number, None));
    }

    /// A version of a stream is announced or declared.
    pub(super) fn note_use_of_version(&mut self, number: u32, format: FormatId) {
        self.unused_since.remove(&(number, Some(format)));
    }
}

/// The kept conversions, by their streams and the formats at their ends.
type Kept = BTreeSet<(Box<str>, FormatId)>;

impl Catalog {
    /// Has streams and versions removed that were unused for so long, the first of them no earlier than that from now on.
    pub(crate) fn expire_unused(
        &mut self,
        after: Duration,
        now: Instant,
        report: impl Fn(&str, Option<u32>) + Send + 'static,
    ) {
        self.expiry.rule = Some(Rule { after, next: now, report: Box::new(report) });
        self.expire(now);
    }

    /// When [`Catalog::expire`] is to be called next, if ever.
    pub(crate) fn expiry_due(&self) -> Option<Instant> {
        self.expiry.rule.as_ref().map(|rule| rule.next)
    }

    /// Removes the streams and versions that have been unused for long.
    pub(crate) fn expire(&mut self, now: Instant) {
        let Some(mut rule) = self.expiry.rule.take_if(|rule| rule.next <= now) else { return };
        rule.next = now + (rule.after / 8).clamp(PAUSE.0, PAUSE.1);
        let before = std::mem::take(&mut self.expiry.unused_since);
        let since = |part| (part, before.get(&part).copied().unwrap_or(now));
        self.expiry.unused_since = self.unused().into_iter().map(since).collect();
        let is_old = |since: Instant| now.saturating_duration_since(since) >= rule.after;
        let old = self.expiry.unused_since.iter().filter(|(_, since)| is_old(**since)).map(|(part, _)| *part);
        // A stream comes before its versions, and they go with it.
        for (number, version) in old.collect::<Vec<_>>() {
            let Some(entry) = self.now.get(number) else { continue };
            let (name, of_version) = (entry.name().to_owned(), version.and_then(|format| entry.version(format)));
            // If the disk is behind, it stays until the next look.
            let is_removed = match version {
                None => self.remove_stream(&name).is_ok(),
                Some(format) => self.journal.check().is_ok_and(|()| {
                    self.drop_version(&name, Some(number), format);
                    true
                }),
            };
            if is_removed {
                self.expiry.unused_since.remove(&(number, version));
                (rule.report)(&name, of_version);
            }
        }
        self.expiry.rule = Some(rule);
    }

    /// The unused streams, and the unused versions of all streams.
    fn unused(&self) -> Vec<Part> {
        let ends = self.registry.conversions().flat_map(|(of, from, to, _)| [(of.into(), from), (of.into(), to)]);
        let kept: Kept = ends.collect();
        let mut unused = Vec::new();
        for entry in self.now.iter() {
            let number = entry.number();
            unused.extend(self.is_unused_stream(entry, &kept).then_some((number, None)));
            unused.extend(self.unused_versions(entry, &kept).map(|format| (number, Some(format))));
        }
        unused
    }

    /// Whether a stream is unused. One with a policy or a kept conversion is not: somebody has set it up.
    fn is_unused_stream(&self, entry: &StreamEntry, kept: &Kept) -> bool {
        let has_kept =
            || kept.range((entry.name().into(), FormatId(0))..).next().is_some_and(|(of, _)| **of == *entry.name());
        entry.policy() == Policy::default()
            && entry.conversions().graph().conversions().is_empty()
            && !has_kept()
            && self.check_unused(entry.name()).is_ok()
    }

    /// The versions of a stream that nobody uses, of those before the newest one. As long as the stream has a policy, a handler or
    /// a subscription that accepts certain formats only, all its versions are used: they are what the policy or the handler is
    /// about, and the subscription has a route from each. A version that a conversion is from or to is used as well, and one that a
    /// conversion ever left stays, since what is made of its records by name alone depends on that.
    fn unused_versions<'c>(&'c self, entry: &'c StreamEntry, kept: &'c Kept) -> impl Iterator<Item = FormatId> + 'c {
        let uses_all = !entry.is_kept
            || entry.is_claimed()
            || entry.policy() != Policy::default()
            || entry.activity().has_routes();
        let older = entry.formats().split_last().filter(|_| !uses_all).map_or(&[][..], |(_, older)| older);
        let graph = entry.conversions().graph();
        let is_used = move |format: FormatId| {
            self.publishing.contains_key(&(entry.number(), format))
                || graph.is_guarded(format)
                || graph.conversions().iter().any(|conversion| [conversion.from, conversion.to].contains(&format))
                || kept.contains(&(entry.name().into(), format))
        };
        older.iter().map(Format::id).filter(move |format| !is_used(*format))
    }
}
