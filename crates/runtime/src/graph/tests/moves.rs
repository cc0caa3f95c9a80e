//! Changes of nodes whose output waits, and small orders for nodes that are on their way.

use super::*;
use crate::graph::change::{Op, Order, Report};
use crate::platform::overlay::NotOrdered;

/// Output that found no buffer leaves before the marker of a change after which nobody knows its format.
#[test]
fn output_that_waits_for_buffers_leaves_before_its_format_goes() {
    const NEXT: u64 = FORMAT + 1;
    let many = |format, output, times| {
        let handler = Box::new(Many { times, ..Many::default() });
        Instance { stream: None, format, handler: Some(handler), output }
    };
    // The handler stays where it is, or goes elsewhere.
    for to in [1, 0, 2] {
        let (mut world, mut overlay) = World::with_buffers(3, 1, 4, 24);
        let maker = added(NodeId(0), vec![many(FORMAT, FORMAT, 100)], (&[0], 9), SchedulingPolicy::default());
        let reader = added(NodeId(1), vec![many(FORMAT, FORMAT, 0)], (&[9], 10), SchedulingPolicy::default());
        let [made, read] = [&maker, &reader].map(|node| Arc::clone(&node.gauges));
        let [maker, reader] = [(maker, 1), (reader, 2)].map(|(node, at)| Edit::Add { node, at: ContextIndex(at) });
        overlay.change(vec![maker, reader], &mut Turns { world: &mut world, left: 100_000 }).unwrap();
        // Nobody takes what is made, until some of it finds no buffer.
        world.offer(0);
        for turn in 0..100 {
            world.turn(turn % 2);
        }
        assert!(world.graphs[1].0.node(NodeId(0)).is_some_and(|node| !node.spill.is_empty()));
        let version = |id, (format, output, times), at: Option<u8>| {
            let (instances, at) = (Some((vec![many(format, output, times)], false)), at.map(ContextIndex));
            Edit::Change { id: NodeId(id), instances, policy: None, reads: None, at }
        };
        let edits = vec![version(0, (FORMAT, NEXT, 100), Some(to)), version(1, (NEXT, NEXT, 0), None)];
        overlay.change(edits, &mut Turns { world: &mut world, left: 100_000 }).unwrap();
        world.offer(0);
        world.settle();
        assert_eq!(made.records_out.get(), world.next[0] * 100, "to context {to}");
        assert_eq!(read.records_in.get(), made.records_out.get(), "to context {to}");
        assert_eq!((made.losses(), read.losses()), (vec![], vec![]));
    }
}

/// A small order for a node that is on its way to another context is carried out when it has come there.
#[test]
fn an_order_for_a_node_that_moves_follows_it() {
    const NEXT: u64 = FORMAT + 1;
    let (mut world, mut overlay, id) = world_with(3, 64, (1, &[0]), SchedulingPolicy::default());
    let gauges = Arc::clone(&overlay.node(id).unwrap().gauges);
    world.settle();
    let (in_before, sent_before) = (gauges.records_in.get(), world.next[0]);
    // The contexts have the change, and do not carry it out before they are no longer waited for.
    let begins = (1..1000).any(|left| {
        let at = Some(ContextIndex(2));
        let edits = vec![Edit::Change { id, instances: None, policy: None, reads: None, at }];
        match overlay.change(edits, &mut Turns { world: &mut world, left }) {
            Ok(Changed { unfinished: Some(_), .. }) => true,
            Err(NotChanged::Unanswered { .. }) => false,
            other => panic!("{other:?}"),
        }
    });
    assert!(begins && overlay.unanswered().is_some());
    let instance = Instance { stream: None, format: NEXT, output: NEXT, ..InOrder::instance(false, &Arc::default()) };
    let order = overlay.add_instance(id, instance).unwrap();
    world.offer(0);
    world.offer_as(0, NEXT);
    world.settle();
    assert_eq!(overlay.done(), [], "the node is not there yet");
    while overlay.unanswered().is_some() {
        overlay.resume();
        world.settle();
    }
    assert_eq!(overlay.done(), [(order, Ok(0))]);
    assert_eq!(gauges.records_in.get() - in_before, world.next[0] - sent_before);
    assert_eq!(world.graphs[2].0.node(id).unwrap().instances.len(), 2);
}

/// A request for a node that is not there is answered with that node: a change, an order, and what has come to a context.
#[test]
fn an_unknown_node_is_an_error() {
    let (mut world, mut overlay, id) = world_with(2, 64, (1, &[0]), SchedulingPolicy::default());
    let unknown = NodeId(id.0 + 1);
    let version = Edit::Change { id: unknown, instances: None, policy: None, reads: None, at: Some(ContextIndex(0)) };
    for edit in [Edit::Remove { id: unknown }, version] {
        let changed = overlay.change(vec![edit], &mut Turns { world: &mut world, left: 1000 });
        assert_eq!(changed, Err(NotChanged::UnknownNode(unknown)));
    }
    assert_eq!(overlay.fail(unknown), Err(NotOrdered::UnknownNode(unknown)));
    let (orders, mut control) = signal_queue();
    let pool = Pool::new(PoolConfig { classes: vec![(512, 1)] }).unwrap();
    let (mut graph, mut ws) = (Graph::new(FIRST, orders, Vec::new()), Workspace::new(pool));
    let ops = vec![Op::Fail { node: unknown }, Op::Limit(1)];
    assert!(control.orders.push((1, Order::Now(ops))).is_ok());
    while graph.take_orders(&mut ws) {}
    assert!(matches!(control.reports.pop(), Some((1, Report::Done(_, Some(node)))) if node == unknown));
}

/// Lets contexts have their turns, and nothing more come, while something is waited for.
pub(super) struct Turns<'a> {
    pub(super) world: &'a mut World,
    pub(super) left: u32,
}

impl Waiting for Turns<'_> {
    fn begin(&mut self) {}

    fn wait(&mut self) -> bool {
        self.left -= 1;
        let at = self.left as usize % self.world.graphs.len();
        self.world.turn(at);
        self.left > 0
    }
}
