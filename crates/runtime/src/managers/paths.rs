//! Service paths with reservations. The rate of records at a path's beginning is specified at its last handler. Each
//! handler on the path reserves the load of the records that reach it at that rate, by its measured cost and by the
//! measured output of the handlers before it.

use crate::managers::deployed::{Deployed, Entry, dearest};
use crossdock_control::load::{Cost, Load};
use std::collections::{BTreeMap, BTreeSet};

/// A handler as far as paths are concerned.
pub(crate) struct PathNode<'a> {
    /// The streams that it reads.
    pub(crate) reads: Vec<&'a str>,
    /// The stream that it makes.
    pub(crate) makes: &'a str,
    /// Its entry for each format, and the entry's cost.
    pub(crate) entries: Vec<(&'a Entry, &'a Cost)>,
    /// The rate that the path which ends here reserves for, in messages per s, if it does.
    pub(crate) path_msgs_per_s: Option<u64>,
}

impl<'a> PathNode<'a> {
    /// A handler that is there.
    pub(crate) fn of(there: &'a Deployed) -> PathNode<'a> {
        PathNode {
            reads: there.reads.iter().map(|(stream, _)| stream.as_str()).collect(),
            makes: there.spec.derived(),
            entries: there.entries.iter().zip(&there.costs).collect(),
            path_msgs_per_s: there.spec.reserve_path_msgs_per_s,
        }
    }
}

/// The reservation of each handler that lies on a reserving path, by name. Of several paths the one with the highest
/// rate counts, since they carry the same records there.
pub(crate) fn reserves(path_nodes: &BTreeMap<&str, PathNode<'_>>) -> BTreeMap<String, Load> {
    let mut makers: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    path_nodes.iter().for_each(|(name, path_node)| makers.entry(path_node.makes).or_default().push(name));
    let mut rates: BTreeMap<&str, u64> = BTreeMap::new();
    for (last, path_node) in path_nodes {
        // Its path reserves nothing.
        let Some(rate) = path_node.path_msgs_per_s else { continue };
        // Back to the streams that no handler makes.
        let (mut left, mut seen) = (vec![*last], BTreeSet::from([*last]));
        while let Some(name) = left.pop() {
            let most = rates.entry(name).or_default();
            *most = rate.max(*most);
            let before = path_nodes.get(name).into_iter().flat_map(|path_node| &path_node.reads);
            let before = before.filter_map(|stream| makers.get(stream)).flatten().copied();
            left.extend(before.filter(|maker| seen.insert(*maker)));
        }
    }
    let mut shares = Shares { path_nodes, makers: &makers, known: BTreeMap::new() };
    let reserving = path_nodes.iter().filter_map(|(name, path_node)| Some((*name, path_node, *rates.get(name)?)));
    reserving.map(|(name, path_node, rate)| (name.to_owned(), shares.load(path_node, rate))).collect()
}

/// How many messages handlers make of one that comes in at the beginning.
struct Shares<'s, 'a> {
    path_nodes: &'s BTreeMap<&'a str, PathNode<'a>>,
    /// Of each stream one handler, or the replicas of one.
    makers: &'s BTreeMap<&'a str, Vec<&'a str>>,
    known: BTreeMap<&'s str, f64>,
}

impl<'s> Shares<'s, '_> {
    /// The load of a handler when `rate_msgs_per_s` messages come in at the path's beginning.
    fn load(&mut self, path_node: &PathNode<'_>, rate_msgs_per_s: u64) -> Load {
        let costs = dearest(path_node.entries.iter().copied());
        let mut sum = Load::default();
        for stream in &path_node.reads {
            // A format that two of its streams have is the business of one entry; one that waits has none.
            let Some((_, cost)) = costs.get(stream).or_else(|| costs.values().next()) else { continue };
            let rate = rate_msgs_per_s as f64 * self.of_stream(stream);
            sum = sum + cost.load(rate.ceil() as u64);
        }
        sum
    }

    fn of_stream(&mut self, stream: &str) -> f64 {
        // Replicas make equally many of one.
        let maker = self.makers.get(stream).and_then(|makers| makers.first());
        // It is published.
        let Some((name, path_node)) = maker.and_then(|maker| self.path_nodes.get_key_value(maker)) else {
            return 1.0;
        };
        if let Some(known) = self.known.get(name) {
            return *known;
        }
        // Planning refuses cycles; here a cycle has to terminate.
        self.known.insert(name, 0.0);
        let incoming: f64 = path_node.reads.iter().map(|stream| self.of_stream(stream)).sum();
        let makes = path_node.entries.iter().map(|(_, cost)| cost.messages_out_per_message).fold(0.0, f64::max);
        self.known.insert(name, incoming * makes);
        incoming * makes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::managers::deployed::KnownStream;
    use crossdock_format::{FieldSpec, FieldType, Format};

    fn entry(stream: &str, ns_per_message: f64, makes: f64) -> Entry {
        let format = Format::natural([FieldSpec::new("n", FieldType::U64)]).unwrap();
        let stream = KnownStream { name: stream.into(), ..KnownStream::default() };
        // In batches so long that it does not matter what one costs.
        let (messages_out_per_message, messages_per_batch) = (makes, 1e30);
        let cost = Cost { ns_per_message, messages_out_per_message, messages_per_batch, ..Cost::default() };
        Entry { output: Some(format.clone()), cost, ..Entry::unfit(&stream, &format, String::new()) }
    }

    fn path_node<'a>(entries: &'a [Entry], makes: &'a str, path_msgs_per_s: Option<u64>) -> PathNode<'a> {
        let reads = entries.iter().map(|entry| entry.stream.as_str()).collect();
        PathNode { reads, makes, entries: entries.iter().map(|entry| (entry, &entry.cost)).collect(), path_msgs_per_s }
    }

    fn times(path_nodes: &[(&'static str, PathNode<'_>)]) -> BTreeMap<String, u64> {
        let path_nodes = path_nodes.iter().map(|(name, of)| {
            let PathNode { reads, makes, entries, path_msgs_per_s } = of;
            let (reads, entries) = (reads.clone(), entries.clone());
            (*name, PathNode { reads, makes, entries, path_msgs_per_s: *path_msgs_per_s })
        });
        reserves(&path_nodes.collect()).into_iter().map(|(name, load)| (name, load.time_ns_per_s)).collect()
    }

    #[test]
    fn each_handler_on_a_path_keeps_what_it_takes_of_what_reaches_it() {
        let (first, second, both) =
            ([entry("A", 100.0, 0.5)], [entry("a", 200.0, 0.1)], [entry("b", 10.0, 1.0), entry("A", 30.0, 1.0)]);
        let other = [entry("A", 1000.0, 1.0)];
        let path_nodes = |last| {
            [
                ("first", path_node(&first, "a", None)),
                ("second", path_node(&second, "b", None)),
                ("last", path_node(&both, "c", last)),
                ("other", path_node(&other, "d", None)),
            ]
        };
        assert_eq!(times(&path_nodes(None)), BTreeMap::new());
        // Half of them reach the second, a twentieth the last, which reads what comes in as well.
        let wanted = [("first", 100_000), ("last", 10 * 50 + 30_000), ("second", 100_000)];
        assert_eq!(times(&path_nodes(Some(1000))), wanted.map(|(name, ns)| (name.to_owned(), ns)).into());
        // Another path that ends on the way: what is most counts.
        let mut two = path_nodes(Some(1000));
        two[1].1.path_msgs_per_s = Some(4000);
        let wanted = [("first", 400_000), ("last", 10 * 50 + 30_000), ("second", 400_000)];
        assert_eq!(times(&two), wanted.map(|(name, ns)| (name.to_owned(), ns)).into());
    }

    #[test]
    fn a_cycle_comes_to_an_end_and_what_is_not_measured_keeps_nothing() {
        let (one, other) = ([entry("b", 10.0, 1.0)], [entry("a", 10.0, 1.0)]);
        let cycle = [("one", path_node(&one, "a", Some(1000))), ("other", path_node(&other, "b", None))];
        assert_eq!(times(&cycle).len(), 2);
        let waits = PathNode { reads: vec!["A"], makes: "a", entries: Vec::new(), path_msgs_per_s: Some(1000) };
        assert_eq!(times(&[("waits", waits)]), BTreeMap::from([("waits".to_owned(), 0)]));
    }
}
