//! The changes of each handler, and their order.

use super::sites::PlacementDecision;
use super::streams::Streams;
use super::{Action, Change, Current, Deployed, Difference, Refusal, State, Wanted, WantedHandler, texts};
use crate::load::{Contexts, CoreKind};
use std::collections::BTreeMap;

/// The changes of one handler, one change right after the other.
struct Unit<'a> {
    name: &'a str,
    before: Option<&'a Deployed>,
    after: Option<&'a Deployed>,
    changes: Vec<Change>,
    /// Units that stop to make what this one begins to make, that make what this one no longer reads since it goes, or that
    /// begin to read what this one begins to make.
    waits_for: Vec<usize>,
    is_done: bool,
}

/// All changes in the order in which they are made.
///
/// # Errors
/// The contexts are not in order.
pub(super) fn changes<'a>(
    current: &'a Current,
    wanted: &'a Wanted,
    streams: &Streams<'a>,
    targets: &'a BTreeMap<&'a str, PlacementDecision>,
) -> Result<Vec<Change>, Vec<Refusal>> {
    let contexts = current.committed().map_err(|error| vec![error.into()])?;
    let mut units: Vec<Unit<'a>> = Vec::new();
    for (name, deployed) in &current.handlers {
        if !wanted.contains_key(name) {
            units.push(removal(name, deployed));
        }
    }
    // Readers before makers, and of those that are independent the last by name first: the order of the data turned round.
    for &name in streams.order.iter().rev() {
        if let (Some(target), Some(&difference)) = (targets.get(name), streams.differences.get(name)) {
            let before = current.handlers.get(name);
            let changes = match before {
                None => vec![change(name, Action::Deploy, &target.deployed, &target.why)],
                Some(before) => of(name, before, target, difference, &wanted[name], &contexts),
            };
            let after = Some(&target.deployed);
            units.push(Unit { name, before, after, changes, waits_for: Vec::new(), is_done: false });
        }
    }
    wait(&mut units, streams);
    Ok(in_order(units, contexts))
}

fn removal<'a>(name: &'a str, deployed: &'a Deployed) -> Unit<'a> {
    let why = "it is no longer wanted".to_owned();
    let change = Change { handler: name.to_owned(), action: Action::Remove, after: None, why };
    let (waits_for, is_done) = (Vec::new(), false);
    Unit { name, before: Some(deployed), after: None, changes: vec![change], waits_for, is_done }
}

fn change(name: &str, action: Action, after: &Deployed, why: &str) -> Change {
    Change { handler: name.to_owned(), action, after: Some(after.clone()), why: why.to_owned() }
}

/// The changes of a handler that is at work.
fn of(
    name: &str,
    before: &Deployed,
    target: &PlacementDecision,
    difference: Difference,
    wanted: &WantedHandler,
    contexts: &Contexts,
) -> Vec<Change> {
    let after = &target.deployed;
    let mut now = before.clone();
    let mut changes = Vec::new();
    let moves = before.context != after.context;
    let move_last = moves && may_be_at(before, after, wanted, contexts);
    let moved = Action::Move { from: before.context.clone() };
    if moves && !move_last {
        now.context.clone_from(&after.context);
        changes.push(change(name, moved.clone(), &now, &target.why));
    }
    if difference.is_of_content() {
        (now.load, now.leaving) = (after.load, after.leaving);
    }
    let (is, to_be) = (&before.definition, &after.definition);
    if difference.version {
        let state = match &before.state {
            None => State::None,
            Some(kind) if wanted.takes_state.contains(kind) => State::Kept,
            Some(_) => State::Discarded,
        };
        let wiring = (now.definition.reads, now.definition.makes);
        now.definition = to_be.clone();
        (now.definition.reads, now.definition.makes) = wiring;
        now.state.clone_from(&after.state);
        let why = texts::swap(is.version, to_be.version, state, before.state.as_ref());
        changes.push(change(name, Action::Swap(state), &now, &why));
    } else if difference.parameters {
        now.definition.parameters.clone_from(&to_be.parameters);
        changes.push(change(name, Action::SetParameters, &now, &texts::parameters(is, to_be)));
    }
    if difference.rate && !difference.version {
        now.definition.peak_msgs_per_s = to_be.peak_msgs_per_s;
        changes.push(change(name, Action::Declare, &now, &target.why));
    }
    if difference.wiring {
        now.definition = to_be.clone();
        changes.push(change(name, Action::Rewire, &now, &texts::wiring(is, to_be)));
    }
    if difference.reserve {
        now.reserve = after.reserve;
        changes.push(change(name, Action::Reserve, &now, &texts::reserve(before.reserve, after.reserve)));
    }
    if moves && move_last {
        changes.push(change(name, moved, after, &target.why));
    }
    if let Some(last) = changes.last_mut() {
        last.after = Some(after.clone());
    }
    changes
}

/// Whether what a handler becomes can first be where it was: then it moves last, and takes no more than it did until it is there.
fn may_be_at(before: &Deployed, after: &Deployed, wanted: &WantedHandler, contexts: &Contexts) -> bool {
    contexts.find(&before.context).is_some_and(|at| {
        let capacity = contexts.list()[at].capacity;
        let is_allowed = wanted.need.is_metered && wanted.need.step_ns <= capacity.slice_ns;
        (capacity.kind == CoreKind::GCore || is_allowed) && after.committed().is_within(before.committed())
    })
}

/// Says which units have to wait for which.
fn wait(units: &mut [Unit<'_>], streams: &Streams<'_>) {
    let numbers: BTreeMap<&str, usize> = units.iter().enumerate().map(|(number, unit)| (unit.name, number)).collect();
    let makes = |deployed: Option<&Deployed>| deployed.map(|deployed| deployed.definition.makes.clone());
    let mut makers: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (number, unit) in units.iter().enumerate() {
        makes(unit.before).into_iter().for_each(|stream| makers.entry(stream).or_default().push(number));
    }
    for number in 0..units.len() {
        let unit = &units[number];
        let (made, will_make) = (makes(unit.before), makes(unit.after));
        let mut waits_for = Vec::new();
        if let Some(stream) = &will_make {
            // The present maker has to have stopped.
            waits_for.extend(makers.get(stream).filter(|_| made != will_make).into_iter().flatten());
            let is_of_streams = |unit: &Unit<'_>| unit.changes.iter().any(|change| change.action.is_of_streams());
            let readers = streams.readers(stream).iter().filter_map(|reader| numbers.get(reader).copied());
            if is_of_streams(unit) {
                waits_for.extend(readers.filter(|reader| is_of_streams(&units[*reader])));
            }
        } else if let Some(before) = unit.before {
            // A handler that feeds one that goes, and goes too, goes first.
            let feeding = before.definition.reads.iter().filter_map(|stream| makers.get(stream)).flatten();
            waits_for.extend(feeding.filter(|maker| units[**maker].after.is_none()));
        }
        units[number].waits_for = waits_for;
    }
}

/// Of those that need not wait the first that there is room for, else the first: who takes more waits for who takes less.
fn in_order(mut units: Vec<Unit<'_>>, mut contexts: Contexts) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut first = 0;
    while let Some(next) = next(&units[first..], &units, &mut contexts) {
        let unit = &mut units[first + next];
        unit.is_done = true;
        changes.append(&mut unit.changes);
        leave(unit, &mut contexts);
        arrive(unit, &mut contexts);
        first += units[first..].iter().take_while(|unit| unit.is_done).count();
    }
    changes
}

fn next(left: &[Unit<'_>], all: &[Unit<'_>], contexts: &mut Contexts) -> Option<usize> {
    let is_ready = |unit: &Unit<'_>| !unit.is_done && unit.waits_for.iter().all(|other| all[*other].is_done);
    let with_room = left.iter().position(|unit| is_ready(unit) && has_room(unit, contexts));
    let ready = || left.iter().position(is_ready);
    // Two that wait for each other change roles; then one of them has to be first.
    with_room.or_else(ready).or_else(|| left.iter().position(|unit| !unit.is_done))
}

/// Whether the unit's commitment to its context does not grow.
fn takes_no_more(unit: &Unit<'_>) -> bool {
    match (unit.before, unit.after) {
        (_, None) => true,
        (None, _) => false,
        (Some(before), Some(after)) => {
            before.context == after.context && after.committed().is_within(before.committed())
        }
    }
}

/// Whether there is room for what it becomes.
fn has_room(unit: &Unit<'_>, contexts: &mut Contexts) -> bool {
    let Some(after) = unit.after.filter(|_| !takes_no_more(unit)) else { return true };
    leave(unit, contexts);
    let has_room = contexts.find(&after.context).is_some_and(|at| after.committed().is_within(contexts.headroom(at)));
    if let Some((at, before)) = unit.before.and_then(|before| Some((contexts.find(&before.context)?, before))) {
        contexts.commit(at, before.committed());
    }
    has_room
}

fn leave(unit: &Unit<'_>, contexts: &mut Contexts) {
    if let Some((at, before)) = unit.before.and_then(|before| Some((contexts.find(&before.context)?, before))) {
        contexts.release(at, before.committed());
    }
}

fn arrive(unit: &Unit<'_>, contexts: &mut Contexts) {
    if let Some((at, after)) = unit.after.and_then(|after| Some((contexts.find(&after.context)?, after))) {
        contexts.commit(at, after.committed());
    }
}
