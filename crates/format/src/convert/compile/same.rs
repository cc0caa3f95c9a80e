//! Whether records need no conversion at all.

use crate::convert::body::{Body, Presence};
use crate::convert::path::Source;
use crate::convert::value::NullRule;
use crate::format::Layout;

/// Whether both formats lay the same values at the same places, whatever they call them.
pub(super) fn is_identity(body: &Body) -> bool {
    let (from, to) = (&body.from, &body.to);
    let is_straight = |(index, source): (usize, &Source)| match source {
        // After two steps null may be something else though both formats have it.
        Source::Field(path) => path.from == index && path.hops.is_empty() && path.null == NullRule::Keep,
        Source::List(list) => {
            let is_same = list.from == index && list.counts.0 == list.counts.1 && list.null == NullRule::Keep;
            is_same && is_identity(&list.body)
        }
        Source::Null | Source::Constant(_) => false,
    };
    let is_there = |(index, presence): (usize, &Presence)| *presence == Presence::Group(index);
    (from == to || is_alike(from.layout(), to.layout()))
        && body.sources.iter().enumerate().all(is_straight)
        && body.groups.iter().enumerate().all(is_there)
        && body.unions.iter().all(|union| union.lost.is_empty())
        && body.checks.is_empty()
}

/// Whether everything is at the same place, and null by the same bits.
fn is_alike(from: &Layout, to: &Layout) -> bool {
    from.foreign.is_none()
        && to.foreign.is_none()
        && from.blank.len() == to.blank.len()
        && from.cells == to.cells
        && from.groups == to.groups
        && from.unions == to.unions
}
