//! Whether a handler fits, and where.
//!
//! Admission control as the papers have it (overlay-network-processors-2003, 3.2): headroom is compared with what the handler
//! takes, before it is let in; "if resources are not available, handlers are executed on the host". Here time, buffers
//! and bandwidth are all compared, and what fits nowhere is refused with the figures of every context.

use crate::figures::{Bandwidth, Rate, Span, Time};
use crate::load::{Context, Contexts, CoreKind, Cost, Flow, HANDING_NS_PER_BATCH, Load, SLICE_NS, at_least, whole};
use std::cmp::Reverse;
use std::fmt;

/// The time of the line for a byte, in ps, at 10 Gbit/s.
pub const LINE_PS_PER_BYTE: u64 = 800;
/// The least that a message occupies on the line, in bytes: the smallest frame of an Ethernet with what is around it.
pub const LINE_BYTES_AT_LEAST: u64 = 84;

/// The nature of a handler (c-core-2005, 3.1: "handlers are classified into communication- and computation-centric ones").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// It keeps up with a line: it takes no longer for a message than the line does.
    #[default]
    Communication,
    /// It does not, or its steps are longer than a c-core's slice.
    Computation,
}

impl Class {
    /// By what was measured.
    ///
    /// The paper compares a handler's time with "the total number of cycles that can be allocated to a single packet's
    /// processing", which is what the line leaves between two messages: their length times [`LINE_PS_PER_BYTE`], for at least
    /// [`LINE_BYTES_AT_LEAST`]. The longer of what it reads and what it makes counts, since both have to pass a line.
    #[must_use]
    pub fn of(cost: &Cost) -> Class {
        let bytes = at_least(LINE_BYTES_AT_LEAST as f64, cost.bytes_in_per_message);
        let line_ps = at_least(bytes, cost.bytes_out_per_message) * LINE_PS_PER_BYTE as f64;
        // The context's work for a batch is not the handler's.
        let of_batch = at_least(0.0, cost.ns_per_batch - HANDING_NS_PER_BATCH as f64);
        let own_ps = (of_batch / cost.batch() + cost.ns_per_message) * 1000.0;
        match cost.step_ns() > SLICE_NS || whole(own_ps) > whole(line_ps) {
            true => Class::Computation,
            false => Class::Communication,
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Class::Communication => "communication-centric",
            Class::Computation => "computation-centric",
        })
    }
}

/// The needs of a handler at a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// Its predicted load.
    pub load: Load,
    /// The load that is kept for it whether it takes it or not.
    pub reserve: Load,
    /// The rate that the prediction is for, in messages per s.
    pub rate_msgs_per_s: u64,
    /// The longest that it holds its context, in ns.
    pub step_ns: u64,
    /// Its nature.
    pub class: Class,
    /// Whether it is bounded by construction. A handler that is not never goes to a c-core.
    pub is_metered: bool,
    /// Whether the prediction is from no real messages.
    pub is_provisional: bool,
}

impl Need {
    /// The needs of a metered handler of this cost at a rate, with nothing reserved.
    #[must_use]
    pub fn of(cost: &Cost, rate_msgs_per_s: u64) -> Need {
        Need {
            load: cost.load(rate_msgs_per_s),
            reserve: Load::default(),
            rate_msgs_per_s,
            step_ns: cost.step_ns(),
            class: Class::of(cost),
            is_metered: true,
            is_provisional: cost.is_provisional,
        }
    }

    /// The needs of a handler that has several formats or streams to read: the loads and rates of both, the longer step.
    #[must_use]
    pub fn and(self, other: Need) -> Need {
        Need {
            load: self.load + other.load,
            reserve: self.reserve.max(other.reserve),
            rate_msgs_per_s: self.rate_msgs_per_s.saturating_add(other.rate_msgs_per_s),
            step_ns: self.step_ns.max(other.step_ns),
            class: self.class.max(other.class),
            is_metered: self.is_metered && other.is_metered,
            is_provisional: self.is_provisional || other.is_provisional,
        }
    }

    /// Its share of its context's headroom, crossings included: what is predicted, or reserved where that is more.
    #[must_use]
    pub fn committed(&self, crossing: Load) -> Load {
        (self.load + crossing).max(self.reserve)
    }
}

/// Where a handler is to be.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContextChoice {
    /// Wherever it fits best.
    #[default]
    Auto,
    /// At the context of this name and nowhere else.
    Named(String),
}

/// Where a handler is to be, and where its input comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdmissionRequest {
    /// Where it is to be.
    pub place: ContextChoice,
    /// The contexts that its inputs come from, and what flows from there: at another one they have to be taken over.
    pub inputs: Vec<(usize, Flow)>,
}

impl AdmissionRequest {
    /// The cost at a context of taking over the inputs that come from others.
    #[must_use]
    pub fn crossing(&self, at: usize) -> Load {
        let others = self.inputs.iter().filter(|(from, _)| *from != at);
        others.fold(Load::default(), |sum, (_, flow)| sum + flow.crossing())
    }

    /// The context that most of its input comes from.
    fn nearest(&self) -> Option<usize> {
        self.inputs.iter().map(|(from, _)| *from).min_by_key(|from| (self.crossing(*from).time_ns_per_s, *from))
    }
}

/// A handler that fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// Where.
    pub context: usize,
    /// Its share of the headroom there.
    pub committed: Load,
    /// Its nature.
    pub class: Class,
    /// Why there, for people.
    pub why: String,
}

/// Why a handler does not fit at a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// It is a c-core, and the handler is not metered.
    Unmetered,
    /// It is a c-core, and a step of the handler is longer than a slice there.
    Step {
        /// The longest step, in ns.
        needs_ns: u64,
        /// The slice, in ns.
        has_ns: u64,
    },
    /// Time, in ns per s.
    Time {
        /// The load that it would take, crossings included.
        needs: u64,
        /// The amount that exists.
        has: u64,
    },
    /// Buffers.
    Buffers {
        /// The buffers that it would hold.
        needs: u64,
        /// The amount that exists.
        has: u64,
    },
    /// Bandwidth, in bytes per s.
    Bandwidth {
        /// The bytes that it would make.
        needs: u64,
        /// The amount that exists.
        has: u64,
    },
}

/// A context that a handler does not fit at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    /// Its name.
    pub context: String,
    /// Why not.
    pub obstacle: Obstacle,
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.context;
        match self.obstacle {
            Obstacle::Unmetered => write!(f, "{name} accepts only metered handlers"),
            Obstacle::Step { needs_ns, has_ns } => {
                write!(f, "{name} accepts no step over {} and its steps take {}", Span(has_ns), Span(needs_ns))
            }
            Obstacle::Time { needs, has } => {
                write!(f, "{name} has {} left of the {} that it needs there", Time(has), Time(needs))
            }
            Obstacle::Buffers { needs, has } => write!(f, "{name} has {has} buffers left of the {needs} that it needs"),
            Obstacle::Bandwidth { needs, has } => {
                write!(f, "{name} has {} left of the {} that it sends", Bandwidth(has), Bandwidth(needs))
            }
        }
    }
}

/// Why a handler is not let in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// There is no such context.
    #[error("there is no context {named}: name one of {}", known.join(", "))]
    Unknown {
        /// The name that was given.
        named: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// It fits nowhere, or not where it has to be.
    #[error("{}", no_room(need, tried))]
    NoRoom {
        /// Its needs.
        need: Need,
        /// Each context that was tried.
        tried: Vec<Tried>,
    },
}

fn no_room(need: &Need, tried: &[Tried]) -> String {
    let mut text = needs(need) + if need.is_provisional { " (measured on made-up messages)" } else { "" };
    for one in tried {
        // Where nothing else is in the way, the two figures to compare are this one and the one above.
        match one.obstacle {
            Obstacle::Time { needs, has } if needs == need.committed(Load::default()).time_ns_per_s => {
                text += &format!(", {} has {}", one.context, Time(has));
            }
            _ => text += &format!(", {one}"),
        }
    }
    if tried.is_empty() {
        text += ", and there is no context";
    }
    let less = if need.reserve.is_within(need.load) { "declare a lower rate" } else { "reserve less" };
    text + &format!(": remove or move a handler, {less}, or add a context")
}

/// Its needs, and at which rate or since it is reserved.
fn needs(need: &Need) -> String {
    let time = Time(need.committed(Load::default()).time_ns_per_s);
    match need.reserve.time_ns_per_s > need.load.time_ns_per_s {
        true => format!("needs {time} as reserved"),
        false => format!("needs {time} at {}", Rate(need.rate_msgs_per_s)),
    }
}

/// Whether a handler fits at a context.
///
/// # Errors
/// The obstacle: the first of meter, step, time, buffers, bandwidth.
pub fn fit(need: &Need, crossing: Load, contexts: &Contexts, at: usize) -> Result<(), Obstacle> {
    let has = contexts.headroom(at);
    fit_within(need, crossing, &contexts.list()[at], has)
}

/// The same against another headroom than the context's own.
pub(crate) fn fit_within(need: &Need, crossing: Load, context: &Context, has: Load) -> Result<(), Obstacle> {
    let needs = need.committed(crossing);
    let Context { capacity, .. } = context;
    match capacity.kind {
        CoreKind::CCore if !need.is_metered => return Err(Obstacle::Unmetered),
        CoreKind::CCore if need.step_ns > capacity.slice_ns => {
            return Err(Obstacle::Step { needs_ns: need.step_ns, has_ns: capacity.slice_ns });
        }
        _ => {}
    }
    let (time, time_left) = (needs.time_ns_per_s, has.time_ns_per_s);
    match () {
        () if time > time_left => Err(Obstacle::Time { needs: time, has: time_left }),
        () if needs.buffers > has.buffers => Err(Obstacle::Buffers { needs: needs.buffers, has: has.buffers }),
        () if needs.bytes_per_s > has.bytes_per_s => {
            Err(Obstacle::Bandwidth { needs: needs.bytes_per_s, has: has.bytes_per_s })
        }
        () => Ok(()),
    }
}

/// The contexts in the order in which they are tried: c-cores before g-cores; of each kind the nearest first, then those
/// with the most time left, then by name.
pub(crate) fn order(contexts: &Contexts, nearest: Option<usize>) -> Vec<usize> {
    let list = contexts.list();
    let mut order: Vec<usize> = (0..list.len()).collect();
    order.sort_by_cached_key(|&at| {
        let Context { name, capacity, .. } = &list[at];
        (capacity.kind, nearest != Some(at), Reverse(contexts.headroom(at).time_ns_per_s), name.as_str())
    });
    order
}

/// Finds the context for a handler: the c-core that its input comes from if it fits there with the margin, else another c-core, else a
/// g-core. Nothing is committed yet.
///
/// # Errors
/// There is no context of the name, or it does not fit; then with what is in the way at each that was tried.
pub fn admit(need: &Need, contexts: &Contexts, request: &AdmissionRequest) -> Result<Admitted, Refused> {
    let nearest = request.nearest();
    let order = match &request.place {
        ContextChoice::Auto => order(contexts, nearest),
        ContextChoice::Named(name) => match contexts.find(name) {
            Some(at) => vec![at],
            None => {
                let known = contexts.list().iter().map(|context| context.name.clone()).collect();
                return Err(Refused::Unknown { named: name.clone(), known });
            }
        },
    };
    let mut tried = Vec::new();
    for at in order {
        match fit(need, request.crossing(at), contexts, at) {
            Ok(()) => {
                let committed = need.committed(request.crossing(at));
                let why = why(need, contexts, at, nearest, &tried, &request.place);
                return Ok(Admitted { context: at, committed, class: need.class, why });
            }
            Err(obstacle) => tried.push(Tried { context: contexts.list()[at].name.clone(), obstacle }),
        }
    }
    Err(Refused::NoRoom { need: *need, tried })
}

fn why(
    need: &Need,
    contexts: &Contexts,
    at: usize,
    nearest: Option<usize>,
    tried: &[Tried],
    place: &ContextChoice,
) -> String {
    let name = &contexts.list()[at].name;
    let has = Time(contexts.headroom(at).time_ns_per_s);
    let mut text = format!("{}, {}: {name} has {has}", need.class, needs(need));
    match place {
        ContextChoice::Named(_) => text += " and is the named context",
        ContextChoice::Auto if nearest == Some(at) => text += " and its input comes from there",
        ContextChoice::Auto => {}
    }
    for one in tried {
        text += &format!("; {one}");
    }
    text
}
