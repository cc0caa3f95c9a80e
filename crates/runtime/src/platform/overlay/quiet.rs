//! Whether all contexts have worked on all that came, for a cut of the whole graph.

use super::Overlay;
use crate::graph::ContextIndex;
use crate::graph::change::{Op, Order, Report};
use crate::graph::quiescence::Quiescence;

/// Contexts that were asked what is left there.
#[derive(Debug, Default)]
pub(crate) struct QuietRound {
    /// Those that have not answered, with the orders' numbers.
    awaited: Vec<(ContextIndex, u64)>,
    found: Quiescence,
}

impl QuietRound {
    /// A context that has not answered.
    pub(crate) fn awaits(&self) -> Option<ContextIndex> {
        self.awaited.first().map(|(at, _)| *at)
    }

    /// The rest at all of them, once all have answered.
    pub(crate) fn found(&self) -> Quiescence {
        self.found
    }
}

impl Overlay {
    /// Whether no change is under way, and no order for a node that changes waits.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.unfinished.is_empty() && self.ordered.is_empty()
    }

    /// Asks all contexts what is left of what came; their nodes run for nothing else from now on.
    ///
    /// # Errors
    /// The context that has no place for the order.
    pub(crate) fn ask_quiet(&mut self) -> Result<QuietRound, ContextIndex> {
        let mut round = QuietRound { found: Quiescence { is_dry: true, moved: 0 }, ..QuietRound::default() };
        for at in (0..self.ports.len()).map(|at| ContextIndex(at as u8)) {
            let number = self.order_times(at, true).ok_or(at)?;
            round.awaited.push((at, number));
        }
        Ok(round)
    }

    /// Takes what contexts have answered; whether all have.
    pub(crate) fn take_quiet(&mut self, round: &mut QuietRound) -> bool {
        let mut found = round.found;
        round.awaited.retain(|(at, number)| match self.report(*at, *number) {
            Some(Report::Done(ops, _)) => {
                for op in ops {
                    if let Op::Quiet { found: here, .. } = op {
                        found.is_dry &= here.is_dry;
                        found.moved = found.moved.wrapping_add(here.moved);
                    }
                }
                false
            }
            Some(_) => {
                found.is_dry = false;
                false
            }
            None => true,
        });
        round.found = found;
        round.awaited.is_empty()
    }

    /// Nodes run when their time has come, too, from now on. The contexts that have no place for the order.
    pub(crate) fn release_times(&mut self, at: &[ContextIndex]) -> Vec<ContextIndex> {
        at.iter().copied().filter(|at| self.order_times(*at, false).is_none()).collect()
    }

    fn order_times(&mut self, at: ContextIndex, is_held: bool) -> Option<u64> {
        self.numbers += 1;
        let (number, op) = (self.numbers, Op::Quiet { is_held, found: Quiescence::default() });
        self.port_mut(at).send(number, Order::Now(vec![op])).ok().map(|()| number)
    }
}
