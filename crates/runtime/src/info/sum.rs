//! The sum of several I/O contexts' reports of the same thing.

use super::{ContextInfo, ConversionInfo, DomainInfo, HistogramInfo, PathInfo, StreamInfo};

/// Adds the counts of each reason.
fn add_reasons(all: &mut Vec<(String, u64)>, more: Vec<(String, u64)>) {
    for (reason, count) in more {
        match all.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, known)) => *known += count,
            None => all.push((reason, count)),
        }
    }
    all.sort();
}

impl StreamInfo {
    /// Adds what another context reports of the stream.
    fn add(&mut self, other: StreamInfo) {
        if other.formats.len() > self.formats.len() {
            self.formats = other.formats;
        }
        self.publishers += other.publishers;
        self.subscriptions += other.subscriptions;
        self.records_in += other.records_in;
        self.bytes_in += other.bytes_in;
        self.records_unclaimed += other.records_unclaimed;
        self.records_malformed += other.records_malformed;
        self.blocked += other.blocked;
        self.made_by = self.made_by.take().or(other.made_by);
        self.peak_msgs_per_s += other.peak_msgs_per_s;
        self.records_out += other.records_out;
        self.records_queued += other.records_queued;
        self.records_unsent += other.records_unsent;
        self.records_queried += other.records_queried;
        self.row_errors += other.row_errors;
        self.records_offered += other.records_offered;
        self.rows_made += other.rows_made;
        self.records_filtered += other.records_filtered;
        self.records_taken += other.records_taken;
        self.records_conflated += other.records_conflated;
        self.records_sampled += other.records_sampled;
        self.records_in_flight += other.records_in_flight;
        self.records_dropped += other.records_dropped;
        if other.backlog_bytes > self.backlog_bytes {
            (self.backlog_bytes, self.queue_bytes) = (other.backlog_bytes, other.queue_bytes);
        }
        self.held_records += other.held_records;
    }
}

impl ContextInfo {
    /// Adds what another context reports.
    pub(crate) fn add(&mut self, other: ContextInfo) {
        self.name = format!("{}, {}", self.name, other.name);
        self.sessions += other.sessions;
        self.max_sessions += other.max_sessions;
        self.turns += other.turns;
        self.busy_turns += other.busy_turns;
        self.sleeps += other.sleeps;
        self.frames_in += other.frames_in;
        self.packets_in += other.packets_in;
        self.packets_out += other.packets_out;
        self.packets_resent += other.packets_resent;
        self.packets_routed += other.packets_routed;
        self.datagrams_in += other.datagrams_in;
        self.datagrams_missing += other.datagrams_missing;
        self.network_bytes_in += other.network_bytes_in;
        self.network_bytes_out += other.network_bytes_out;
        self.records_in += other.records_in;
        self.messages_joined += other.messages_joined;
        self.records_out += other.records_out;
        self.records_queued += other.records_queued;
        self.records_unsent += other.records_unsent;
        self.batches_whole += other.batches_whole;
        add_reasons(&mut self.dropped, other.dropped);
        self.buffers_in_use += other.buffers_in_use;
        self.buffers += other.buffers;
        self.buffer_bytes += other.buffer_bytes;
        self.clients += other.clients;
        self.max_clients += other.max_clients;
        self.mailboxes += other.mailboxes;
        self.max_mailboxes += other.max_mailboxes;
        add_reasons(&mut self.detached, other.detached);
        self.subscriptions_refused += other.subscriptions_refused;
        self.subscribe_time.add(&other.subscribe_time);
        self.client_messages_in += other.client_messages_in;
        self.client_messages_out += other.client_messages_out;
        self.client_bytes_in += other.client_bytes_in;
        self.client_bytes_out += other.client_bytes_out;
        self.client_waits += other.client_waits;
        self.client_bytes_held += other.client_bytes_held;
        self.client_quota_used_bytes += other.client_quota_used_bytes;
        self.client_quota_bytes += other.client_quota_bytes;
        for domain in other.domains {
            match self.domains.iter_mut().find(|known| known.name == domain.name) {
                Some(known) => known.add(&domain),
                None => self.domains.push(domain),
            }
        }
    }
}

impl HistogramInfo {
    /// Adds another histogram, which has the same ranges.
    fn add(&mut self, other: &HistogramInfo) {
        if self.buckets.is_empty() {
            return self.clone_from(other);
        }
        for (bucket, more) in self.buckets.iter_mut().zip(&other.buckets) {
            debug_assert_eq!(bucket.up_to_ns, more.up_to_ns, "all histograms have the same ranges");
            bucket.count += more.count;
        }
        self.above += other.above;
        self.sum_ns += other.sum_ns;
    }
}

impl DomainInfo {
    fn add(&mut self, other: &DomainInfo) {
        self.clients += other.clients;
        self.shared_buffers += other.shared_buffers;
        self.shared_bytes += other.shared_bytes;
        self.inbox_buffers += other.inbox_buffers;
        self.inbox_bytes += other.inbox_bytes;
    }
}

/// All streams, each as the contexts together have it.
pub(crate) fn streams(of: Vec<Vec<StreamInfo>>) -> Vec<StreamInfo> {
    let mut all: Vec<StreamInfo> = Vec::new();
    for stream in of.into_iter().flatten() {
        match all.iter_mut().find(|known| known.name == stream.name) {
            Some(known) => known.add(stream),
            None => all.push(stream),
        }
    }
    all
}

/// All paths, each as the contexts together have it.
pub(crate) fn paths(of: Vec<Vec<PathInfo>>) -> Vec<PathInfo> {
    let mut all: Vec<PathInfo> = Vec::new();
    for path in of.into_iter().flatten() {
        let is_same = |known: &&mut PathInfo| {
            let is_between = (&known.stream, &known.from, &known.to) == (&path.stream, &path.from, &path.to);
            is_between && known.steps == path.steps && known.parts == path.parts
        };
        match all.iter_mut().find(is_same) {
            Some(known) => {
                known.subscriptions += path.subscriptions;
                known.records_in += path.records_in;
                known.records_out += path.records_out;
                known.refused += path.refused;
                known.waiting += path.waiting;
                known.refusal = known.refusal.take().or(path.refusal);
            }
            None => all.push(path),
        }
    }
    all.sort_by(|one, other| (&one.stream, &one.from, &one.to).cmp(&(&other.stream, &other.from, &other.to)));
    all
}

/// All conversions; each context names those owners that have their sessions there.
pub(crate) fn conversions(of: Vec<Vec<ConversionInfo>>) -> Vec<ConversionInfo> {
    let mut contexts = of.into_iter();
    let mut all = contexts.next().unwrap_or_default();
    for other in contexts.flatten() {
        let is_same = |known: &&mut ConversionInfo| {
            known.owner == ConversionInfo::GONE
                && (&known.stream, &known.from, &known.to) == (&other.stream, &other.from, &other.to)
                && known.conversion == other.conversion
        };
        if other.owner != ConversionInfo::GONE
            && let Some(known) = all.iter_mut().find(is_same)
        {
            known.owner = other.owner;
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_of_contexts_are_summed_by_name_and_reason() {
        let stream = |name: &str, records: u64| StreamInfo {
            name: name.to_owned(),
            records_in: records,
            backlog_bytes: records,
            queue_bytes: 10 * records,
            ..StreamInfo::default()
        };
        let all = streams(vec![vec![stream("A", 1), stream("B", 2)], vec![stream("B", 3)], vec![stream("A", 4)]]);
        let figures: Vec<(&str, u64, u64, u64)> =
            all.iter().map(|s| (s.name.as_str(), s.records_in, s.backlog_bytes, s.queue_bytes)).collect();
        assert_eq!(figures, [("A", 5, 4, 40), ("B", 5, 3, 30)]);
        let mut one = ContextInfo { turns: 1, dropped: vec![("b".into(), 2)], ..ContextInfo::default() };
        one.add(ContextInfo { turns: 3, dropped: vec![("a".into(), 1), ("b".into(), 5)], ..ContextInfo::default() });
        assert_eq!((one.turns, one.dropped), (4, vec![("a".into(), 1), ("b".into(), 7)]));
    }
}
