//! Small orders for nodes, which take effect between two batches. Nobody waits for them: a context may be busy for long,
//! and reports what it has done when it has.

use super::{After, Committing, Overlay};
use crate::graph::change::{NewValues, ORDERS, Op, Order, Report};
use crate::graph::node::{Instance, SchedulingPolicy};
use crate::graph::save::SaveState;
use crate::graph::{ContextIndex, NodeId};

/// Small orders that may wait for their nodes' changes.
const MAX_WAITING: usize = 4 * ORDERS;

/// Why a small order was not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotOrdered {
    /// There is no such node.
    UnknownNode(NodeId),
    /// The context has not taken those that it was given before.
    NoPlace(ContextIndex),
}

/// Why a small order was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotDone {
    /// There is no such node any more.
    UnknownNode(NodeId),
    /// The context panicked at it.
    Panicked(ContextIndex),
}

/// A small order for a node, under its number.
#[derive(Debug)]
pub(super) enum Ordered {
    /// It waits until the node's changes are complete.
    Waits(NodeId, Op),
    /// It was sent to this context.
    Sent(ContextIndex),
    /// Its node has ended meanwhile.
    Void(NodeId),
}

impl Overlay {
    /// Has a node's context do something small when it next looks, once the changes that the node takes part in are
    /// complete. The number under which [`Overlay::done`] reports it.
    ///
    /// # Errors
    /// There is no such node, or its context has no place for it.
    fn order(&mut self, node: NodeId, op: Op) -> Result<u64, NotOrdered> {
        let at = self.nodes.get(&node).ok_or(NotOrdered::UnknownNode(node))?.at;
        self.numbers += 1;
        let number = self.numbers;
        if self.is_changing(node) {
            let waiting = self.ordered.values().filter(|ordered| matches!(ordered, Ordered::Waits(..)));
            if waiting.count() >= MAX_WAITING {
                return Err(NotOrdered::NoPlace(at));
            }
            self.ordered.insert(number, Ordered::Waits(node, op));
            return Ok(number);
        }
        match self.port_mut(at).send(number, Order::Now(vec![op])) {
            Ok(()) => {
                self.ordered.insert(number, Ordered::Sent(at));
                Ok(number)
            }
            Err(_) => Err(NotOrdered::NoPlace(at)),
        }
    }

    /// Whether a change that a node takes part in is not complete.
    pub(crate) fn is_changing(&self, node: NodeId) -> bool {
        self.unfinished.iter().any(|change| change.nodes.contains(&node))
    }

    /// Whether an order for a node has not been sent yet.
    pub(super) fn has_waiting(&self, node: NodeId) -> bool {
        self.ordered.values().any(|ordered| matches!(ordered, Ordered::Waits(of, _) if *of == node))
    }

    /// Sends the small orders whose nodes' changes are complete.
    pub(super) fn send_waiting(&mut self) {
        for (number, ordered) in std::mem::take(&mut self.ordered) {
            let ordered = match ordered {
                Ordered::Waits(node, op) if !self.is_changing(node) => {
                    match self.nodes.get(&node).map(|node| node.at) {
                        Some(at) if self.port_mut(at).has_place(ORDERS) => {
                            let sent = self.port_mut(at).send(number, Order::Now(vec![op]));
                            debug_assert!(sent.is_ok(), "there is a place");
                            Ordered::Sent(at)
                        }
                        Some(_) => Ordered::Waits(node, op),
                        None => Ordered::Void(node),
                    }
                }
                ordered => ordered,
            };
            self.ordered.insert(number, ordered);
        }
    }

    /// The small orders that contexts have carried out since the last call: their numbers, and how many instances did
    /// not take their parameters.
    pub(crate) fn done(&mut self) -> Vec<(u64, Result<u32, NotDone>)> {
        let mut done = Vec::new();
        for (number, ordered) in std::mem::take(&mut self.ordered) {
            match ordered {
                Ordered::Void(node) => done.push((number, Err(NotDone::UnknownNode(node)))),
                Ordered::Sent(at) => match self.report(at, number) {
                    Some(Report::Done(_, Some(node))) => {
                        debug_assert!(false, "the overlay has node {node:?} at {at:?}");
                        done.push((number, Err(NotDone::UnknownNode(node))));
                    }
                    Some(Report::Panicked) => done.push((number, Err(NotDone::Panicked(at)))),
                    Some(Report::Done(ops, None)) => {
                        let refused = ops.into_iter().map(|op| match op {
                            Op::Parameters { refused, .. } => refused,
                            Op::Save { node, order } => {
                                self.saved.push((node, order));
                                0
                            }
                            _ => 0,
                        });
                        done.push((number, Ok(refused.sum())));
                    }
                    _ => drop(self.ordered.insert(number, Ordered::Sent(at))),
                },
                waits @ Ordered::Waits(..) => drop(self.ordered.insert(number, waits)),
            }
        }
        done
    }

    /// The context that an order waits for; nothing once it has reported.
    pub(crate) fn awaits(&self, order: u64) -> Option<ContextIndex> {
        match self.ordered.get(&order)? {
            Ordered::Waits(node, _) => {
                let change = self.unfinished.iter().find(|change| change.nodes.contains(node));
                change.and_then(Committing::awaits).or_else(|| self.nodes.get(node).map(|placed| placed.at))
            }
            Ordered::Sent(at) => Some(*at),
            Ordered::Void(_) => None,
        }
    }

    /// Gives a node that has failed new instances, with new state.
    ///
    /// # Errors
    /// As [`Overlay::order`].
    pub(crate) fn restart(&mut self, node: NodeId, instances: Vec<Instance>) -> Result<u64, NotOrdered> {
        self.order(node, Op::Restart { node, instances })
    }

    /// Adds the instance for one more format.
    ///
    /// # Errors
    /// As [`Overlay::order`].
    pub(crate) fn add_instance(&mut self, node: NodeId, instance: Instance) -> Result<u64, NotOrdered> {
        self.order(node, Op::Instance { node, instance: Some(instance) })
    }

    /// Exchanges parameters' values.
    ///
    /// # Errors
    /// As [`Overlay::order`].
    pub(crate) fn set_parameters(&mut self, node: NodeId, values: Vec<NewValues>) -> Result<u64, NotOrdered> {
        self.order(node, Op::Parameters { node, values, refused: 0 })
    }

    /// Has the state of a node copied; [`Overlay::take_saved`] has it once its context has done that.
    ///
    /// # Errors
    /// As [`Overlay::order`].
    pub(crate) fn save_state(&mut self, node: NodeId, order: SaveState) -> Result<u64, NotOrdered> {
        self.order(node, Op::Save { node, order })
    }

    /// The states that were copied since the last call, each with what came of it.
    pub(crate) fn take_saved(&mut self) -> Vec<(NodeId, SaveState)> {
        std::mem::take(&mut self.saved)
    }

    /// Makes a node drop and count its input, until it is swapped.
    ///
    /// # Errors
    /// As [`Overlay::order`].
    pub(crate) fn fail(&mut self, node: NodeId) -> Result<u64, NotOrdered> {
        self.order(node, Op::Fail { node })
    }

    /// Holds a node back, or no longer; without a planner, a context does that while it loads the next handler.
    ///
    /// # Errors
    /// As [`Overlay::order`].
    #[cfg(any(test, feature = "bench"))]
    pub(crate) fn hold(&mut self, node: NodeId, is_held: bool) -> Result<u64, NotOrdered> {
        self.order(node, Op::Hold { node, is_held })
    }

    /// Has a context do something small that could be sent later as well; whether there was ample room for it.
    pub(super) fn post(&mut self, at: ContextIndex, ops: Vec<Op>) -> bool {
        self.forget_reports();
        self.numbers += 1;
        let number = self.numbers;
        let port = self.port_mut(at);
        port.has_place(ORDERS / 2) && port.send(number, Order::Now(ops)).is_ok()
    }

    /// Sets a node's scheduling policy, which its context takes up when it next looks. Whether that was sent: one that
    /// changes, or whose context does not answer, gets it later.
    pub(crate) fn set_policy(&mut self, node: NodeId, policy: SchedulingPolicy) -> bool {
        if self.is_changing(node) {
            return false;
        }
        let Some(placed) = self.placed(node) else { return false };
        let (before, at, reads) = (placed.policy, placed.at, placed.reads.clone());
        if !self.post(at, vec![Op::Policy { node, policy }]) {
            return false;
        }
        self.nodes.entry(node).and_modify(|placed| placed.policy = policy);
        if before.drops == policy.drops {
            return true;
        }
        for stream in reads {
            let view = self.view(stream, None);
            for (from, _) in view.edges().into_iter().filter(|(_, to)| *to == at) {
                let overflow = self.overflow(&view, at, &After::default());
                self.post(from, vec![Op::Overflow { stream, to: at, overflow }]);
            }
        }
        true
    }
}
