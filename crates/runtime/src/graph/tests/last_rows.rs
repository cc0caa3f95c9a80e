//! Handlers that make their last rows of the end of what they read: these come to all readers before the end does.

use super::moves::Turns;
use super::*;

/// Keeps the numbers that come, and makes a record of each once its stream has ended: because it is due, or in a walk.
pub(super) struct Collecting {
    kept: Vec<u64>,
    has_ended: bool,
    walks: bool,
    /// The length of what it makes, in bytes.
    row_bytes: usize,
}

/// The time from 1970 to the zero of the contexts' clock with which it is due, in ns.
pub(super) const COLLECTING_EPOCH_NS: u64 = 1;

impl Collecting {
    pub(super) fn instance(row_bytes: usize, walks: bool) -> Instance {
        let handler = Collecting { kept: Vec::new(), has_ended: false, walks, row_bytes };
        Instance { stream: None, format: FORMAT, handler: Some(Box::new(handler)), output: FORMAT }
    }

    fn has_rows(&self) -> bool {
        self.has_ended && !self.kept.is_empty()
    }

    fn make(&mut self, out: &mut dyn Sink) -> usize {
        let mut row = vec![0; self.row_bytes];
        for number in &self.kept {
            row[..8].copy_from_slice(&number.to_le_bytes());
            out.push(&row);
        }
        std::mem::take(&mut self.kept).len()
    }
}

impl Handler for Collecting {
    fn process(&mut self, batch: &Batch, selection: &mut Selection, _: &mut dyn Sink) -> Verdict {
        self.has_ended = false;
        self.kept.extend(selection.iter().map(|at| u64::from_le_bytes(batch.record(at).try_into().unwrap())));
        Verdict::Hold
    }

    fn counters(&self) -> HandlerCounters {
        HandlerCounters::default()
    }

    fn wants_time(&self) -> bool {
        true
    }

    fn advance(&mut self, _: u64, out: &mut dyn Sink) -> usize {
        if self.has_rows() && !self.walks { self.make(out) } else { 0 }
    }

    fn end_stream(&mut self) {
        self.has_ended = true;
    }

    fn due_ns(&self) -> Option<u64> {
        (self.has_rows() && !self.walks).then_some(COLLECTING_EPOCH_NS)
    }

    fn has_walk(&self) -> bool {
        self.has_rows() && self.walks
    }

    fn walk(&mut self, out: &mut dyn Sink) -> usize {
        self.make(out)
    }
}

/// Such a handler and one that reads its stream, at these contexts: the records of both come before the ends of their streams.
fn collect((records, row_bytes): (u64, usize), walks: bool, (collects_at, reads_at): (u8, u8)) {
    let about = format!("{records} records of {row_bytes} bytes, walks: {walks}, at {collects_at}, read at {reads_at}");
    let (mut world, mut overlay) = World::new(2, 1, 4);
    world.graphs.iter_mut().for_each(|(graph, _)| graph.set_epoch(COLLECTING_EPOCH_NS));
    let policy = SchedulingPolicy::default();
    let collects = added(NodeId(0), vec![Collecting::instance(row_bytes, walks)], (&[0], 9), policy);
    let handler = Box::new(Many { times: 1, ..Many::default() });
    let copies = Instance { stream: None, format: FORMAT, handler: Some(handler), output: FORMAT };
    let reads = added(NodeId(1), vec![copies], (&[9], 10), policy);
    let edits = add(collects, collects_at).into_iter().chain(add(reads, reads_at)).collect();
    overlay.change(edits, &mut Turns { world: &mut world, left: 100_000 }).unwrap();
    [9, 10].into_iter().for_each(|stream| world.subscribe(stream));
    while world.next[0] < records {
        world.offer(0);
        world.settle();
    }
    assert!(world.sessions.delivered.is_empty(), "{about}");
    world.graphs[0].0.arrive_end(0, 0, true);
    world.settle();
    let made = world.next[0];
    world.sessions.ends.sort_unstable();
    assert_eq!(world.sessions.ends, [(9, made), (10, made)], "{about}");
    assert_eq!(world.sessions.wrong, 0, "{about}");
}

#[test]
fn the_end_of_a_stream_follows_what_its_handler_makes_last() {
    // The short records have room in one batch; the long ones are more than a run may make.
    for rows in [(1, 8), (60, 60_000)] {
        for walks in [false, true] {
            [(0, 0), (0, 1), (1, 0), (1, 1)].into_iter().for_each(|places| collect(rows, walks, places));
        }
    }
}
