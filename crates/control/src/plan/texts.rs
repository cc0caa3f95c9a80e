//! Plans and refusals in words.

use super::{Action, Change, Definition, Note, Room, State};
use crate::figures::{Bandwidth, Time};
use crate::load::Load;
use std::collections::BTreeSet;
use std::fmt::{self, Display};

/// `a, b and c`.
pub(super) fn list<T: Display>(names: &[T]) -> String {
    match names {
        [] => String::new(),
        [one] => one.to_string(),
        [first @ .., last] => {
            let first: Vec<String> = first.iter().map(T::to_string).collect();
            format!("{} and {last}", first.join(", "))
        }
    }
}

/// `` `a` -> `b` -> `a` ``.
pub(super) fn cycle(handlers: &[String]) -> String {
    handlers.iter().chain(handlers.first()).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" -> ")
}

pub(super) fn room(room: Option<&Room>) -> String {
    room.map_or_else(String::new, |Room { handler, from, to }| {
        format!("; to move {handler} from {from} to {to} would make room")
    })
}

/// The policy for the version before.
pub(super) fn swap(from: u64, to: u64, state: State, kind: Option<&String>) -> String {
    let kind = kind.map_or("", String::as_str);
    match state {
        State::None => format!("version {to} replaces {from}"),
        State::Kept => format!("version {to} replaces {from} and takes over its state `{kind}`"),
        State::Discarded => {
            format!("version {to} replaces {from}; the state `{kind}` is lost, as permitted")
        }
    }
}

/// The parameters that get other values.
pub(super) fn parameters(from: &Definition, to: &Definition) -> String {
    let names: BTreeSet<&String> = from.parameters.keys().chain(to.parameters.keys()).collect();
    let changed = names.into_iter().filter(|&name| from.parameters.get(name) != to.parameters.get(name));
    let value = |value: Option<&String>| value.map_or_else(|| "unset".to_owned(), |value| format!("`{value}`"));
    let text = |name| format!("{name} from {} to {}", value(from.parameters.get(name)), value(to.parameters.get(name)));
    changed.map(text).collect::<Vec<_>>().join(", ")
}

/// The streams that it reads and makes.
pub(super) fn wiring(from: &Definition, to: &Definition) -> String {
    let text = |definition: &Definition| {
        let reads: Vec<&String> = definition.reads.iter().collect();
        format!("reads {} and produces {}", list(&reads), definition.makes)
    };
    format!("{} where it now {}", text(to), text(from))
}

/// The load that is kept for it.
pub(super) fn reserve(from: Load, to: Load) -> String {
    let text = |load: Load| {
        format!("{}, {} buffers and {}", Time(load.time_ns_per_s), load.buffers, Bandwidth(load.bytes_per_s))
    };
    format!("{} where it was {}", text(to), text(from))
}

/// As in `deploy late on c-core-0: …`.
impl Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let context = self.after.as_ref().map_or("", |after| after.context.as_str());
        let handler = &self.handler;
        match &self.action {
            Action::Deploy => write!(f, "deploy {handler} on {context}")?,
            Action::Swap(_) => write!(f, "swap {handler} on {context}")?,
            Action::SetParameters => write!(f, "set parameters of {handler}")?,
            Action::Rewire => write!(f, "rewire {handler}")?,
            Action::Declare => write!(f, "declare another rate of {handler}")?,
            Action::Reserve => write!(f, "reserve for {handler} on {context}")?,
            Action::Move { from } => write!(f, "move {handler} from {from} to {context}")?,
            Action::Remove => write!(f, "remove {handler}")?,
        }
        write!(f, ": {}", self.why)
    }
}

impl Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::NoProducer { handler, stream } => {
                write!(f, "{handler} reads the stream {stream}, which no publisher or handler produces now")
            }
            Note::TakesNone { handler, stream } => {
                write!(f, "{handler} can read none of the formats in which the stream {stream} is published")
            }
        }
    }
}
