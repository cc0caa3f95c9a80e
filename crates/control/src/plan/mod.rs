//! From what is wanted to the changes that bring it about, or to why they cannot be made.
//!
//! The paper's Control Manager "enables the (re-)configuration of the datapaths through the platform overlay"
//! (data-compatibility-2005, 4.2). Here it compares the wanted state with the current one; what comes out is the smallest
//! list of changes, in an order in which each may be made, or a list of refusals, and then nothing changes.
//!
//! Handlers that are wanted unchanged stay where they are, also where a better place exists or another one would fit in
//! their stead: to move what nobody asked about is the business of balance. A handler that changes stays too, if it fits.
//!
//! A handler's load is what it takes at its context, with what it costs to take its input over from others. It is predicted
//! when the handler is placed and should be replaced by what is measured. The change of other handlers' costs after a
//! neighbour has moved is left to measuring.

pub mod scope;
mod sites;
mod steps;
mod streams;
mod texts;

use crate::admission::{ContextChoice, Need};
use crate::load::{Context, Contexts, ContextsError, Flow, Load, MAX_HANDLERS};
use crossdock_format::FormatId;
use scope::Others;
use std::collections::{BTreeMap, BTreeSet};

/// A handler's program and its connections to others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Definition {
    /// Of its program.
    pub version: u64,
    /// Values of its parameters, by name.
    pub parameters: BTreeMap<String, String>,
    /// The rate that it was declared to have to bear, in messages per s.
    pub peak_msgs_per_s: Option<u64>,
    /// The streams that it reads.
    pub reads: BTreeSet<String>,
    /// The derived stream that it makes.
    pub makes: String,
    /// The formats that it can read; `None` if any.
    pub takes: Option<BTreeSet<FormatId>>,
    /// The formats that it makes, as far as known.
    pub gives: BTreeSet<FormatId>,
    /// The handler that it is a replica of, if it is one. A replica reads what is published or made at its own context, and
    /// all replicas of a handler make one stream.
    pub replica_of: Option<String>,
}

impl Definition {
    /// The name under which a handler of this name is known to people: of a replica that of its handler.
    fn known_as<'a>(&'a self, name: &'a str) -> &'a str {
        self.replica_of.as_deref().unwrap_or(name)
    }
}

/// A handler at work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deployed {
    /// Its definition.
    pub definition: Definition,
    /// The name of its context.
    pub context: String,
    /// Its load there.
    pub load: Load,
    /// The load that is kept for it there whether it takes it or not.
    pub reserve: Load,
    /// The flow that it makes.
    pub leaving: Flow,
    /// The kind of state that it keeps, such as `tally/1`.
    pub state: Option<String>,
}

impl Deployed {
    /// Its share of its context's headroom.
    #[must_use]
    pub fn committed(&self) -> Load {
        self.load.max(self.reserve)
    }
}

/// A stream that comes from publishers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// The context that it arrives at.
    pub context: String,
    /// The flow that arrives.
    pub flow: Flow,
    /// The formats that were announced.
    pub formats: BTreeSet<FormatId>,
}

/// The present state, or the part of it that a [change concerns](scope).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Current {
    /// All contexts.
    pub contexts: Vec<Context>,
    /// The name of the home context: what no handler reads leaves there.
    pub delivered_at: Option<String>,
    /// The streams that publishers publish, by name.
    pub published: BTreeMap<String, Published>,
    /// The handlers at work, by name: all, or those that a change concerns.
    pub handlers: BTreeMap<String, Deployed>,
    /// The other handlers at work, which stay unchanged.
    pub others: Others,
}

impl Current {
    /// The contexts with what the handlers take committed; one at a context that is not there counts nowhere.
    ///
    /// # Errors
    /// As [`Contexts::new`].
    pub fn committed(&self) -> Result<Contexts, ContextsError> {
        let mut contexts = self.with_others()?;
        for handler in self.handlers.values() {
            if let Some(at) = contexts.find(&handler.context) {
                contexts.commit(at, handler.committed());
            }
        }
        Ok(contexts)
    }

    /// The contexts with what the other handlers take committed.
    fn with_others(&self) -> Result<Contexts, ContextsError> {
        let mut contexts = Contexts::new(self.contexts.clone())?;
        for (at, load) in self.others.committed.iter().enumerate().take(self.contexts.len()) {
            contexts.commit_sum(at, *load);
        }
        Ok(contexts)
    }
}

/// A handler that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedHandler {
    /// Its definition.
    pub definition: Definition,
    /// Where.
    pub place: ContextChoice,
    /// Its needs, as predicted. Not looked at as long as nothing else is to change.
    pub need: Need,
    /// The flow that it will make, as predicted.
    pub leaving: Flow,
    /// The kind of state that it keeps.
    pub state: Option<String>,
    /// The kinds of state that it can take over from the version before.
    pub takes_state: BTreeSet<String>,
    /// Whether state that it cannot take over may be lost.
    pub discard_state: bool,
}

/// The wanted state: handlers by name.
pub type Wanted = BTreeMap<String, WantedHandler>;

/// The policy for the state of a version that is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It kept none.
    None,
    /// The new version takes it over.
    Kept,
    /// It is lost, as was allowed.
    Discarded,
}

/// A change of a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// It starts.
    Deploy,
    /// Another version takes its place.
    Swap(State),
    /// Its parameters get other values, with no rebuild.
    SetParameters,
    /// It reads or makes other streams.
    Rewire,
    /// It is to bear another rate.
    Declare,
    /// More or less is kept for it.
    Reserve,
    /// It goes to another context, with its state and its queues.
    Move {
        /// The context that it leaves.
        from: String,
    },
    /// It ends.
    Remove,
}

impl Action {
    /// Whether the handler may read or make something else after it.
    fn is_of_streams(&self) -> bool {
        matches!(self, Action::Deploy | Action::Swap(_) | Action::Rewire)
    }
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The handler's name.
    pub handler: String,
    /// The change.
    pub action: Action,
    /// The handler after this change; `None` once it is removed.
    pub after: Option<Deployed>,
    /// Why, for people.
    pub why: String,
}

/// Something that is no obstacle, but that people should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// Nobody makes or publishes a stream that is read now.
    NoProducer {
        /// Its reader.
        handler: String,
        /// The stream.
        stream: String,
    },
    /// A stream is published in formats that the handler cannot read.
    TakesNone {
        /// The handler.
        handler: String,
        /// The stream.
        stream: String,
    },
}

/// The changes that lead from the current state to the wanted one. Either all of them are made or none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// In the order in which they are made: what frees room first; who reads a stream before who makes it.
    pub changes: Vec<Change>,
    /// Notes for people.
    pub notes: Vec<Note>,
}

/// Why nothing is changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Over the bound.
    #[error("{0} handlers, the bound is {MAX_HANDLERS}: remove some")]
    TooMany(usize),
    /// The contexts are not in order.
    #[error(transparent)]
    Contexts(#[from] ContextsError),
    /// A stream has one maker, or the replicas of one.
    #[error("{} produce the same stream {stream}: give each a stream of its own", texts::list(handlers))]
    SameStream {
        /// The stream.
        stream: String,
        /// Its makers.
        handlers: Vec<String>,
    },
    /// Replicas read what a handler makes at one context.
    #[error(
        "{handler} has replicas, and {maker} makes the stream {stream}, which it reads, at one context: \
         give {maker} replicas too, or {handler} none"
    )]
    OneMaker {
        /// The handler with replicas.
        handler: String,
        /// The stream.
        stream: String,
        /// Its maker.
        maker: String,
    },
    /// A derived stream cannot have publishers too.
    #[error("{handler} produces the stream {stream}, which has publishers: give its output another name")]
    MakesPublished {
        /// The handler.
        handler: String,
        /// The stream.
        stream: String,
    },
    /// A handler's output comes back to it.
    #[error(
        "handlers {} form a cycle, each reads the stream of the one before it: let one of them read another stream",
        texts::cycle(handlers)
    )]
    Cycle {
        /// Each reads what the one before it makes, the first what the last makes.
        handlers: Vec<String>,
    },
    /// The stream of a handler that goes is read.
    #[error(
        "{handler} would no longer produce the stream {stream}, which {} read: remove or rewire them too",
        texts::list(readers)
    )]
    StillRead {
        /// The handler.
        handler: String,
        /// The stream.
        stream: String,
        /// Those who read it.
        readers: Vec<String>,
    },
    /// A handler makes what the next one cannot read.
    #[error(
        "{maker} produces the stream {stream} in format {}, which {reader} cannot read: \
         give it a version that can, or convert in between",
        texts::list(formats)
    )]
    Formats {
        /// The maker of the stream.
        maker: String,
        /// Its reader.
        reader: String,
        /// The stream.
        stream: String,
        /// The formats that do not fit.
        formats: Vec<FormatId>,
    },
    /// State would be lost.
    #[error(
        "version {to} of {handler} cannot take the state `{state}` of version {from}: it would be lost; \
         --discard-state permits that"
    )]
    State {
        /// The handler.
        handler: String,
        /// The version that keeps the state.
        from: u64,
        /// The version that is to take its place.
        to: u64,
        /// The kind of state.
        state: String,
    },
    /// It has no place.
    #[error("{handler}: {refused}{}", texts::room(room.as_ref()))]
    NoPlace {
        /// The handler.
        handler: String,
        /// Why.
        refused: crate::admission::Refused,
        /// The move that would make room.
        room: Option<Room>,
    },
}

/// A move that a plan does not make by itself, but that would make room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// The handler that would have to move.
    pub handler: String,
    /// From which context.
    pub from: String,
    /// To which one.
    pub to: String,
}

/// The plan that leads from the current state to the wanted one. Both may be restricted to the handlers that a change
/// [concerns](scope): the plan is the same, but for notes on others, and for what would make room.
///
/// # Errors
/// Everything that stands against it; then nothing is to change.
pub fn plan(current: &Current, wanted: &Wanted) -> Result<Plan, Vec<Refusal>> {
    let many = wanted.len() + current.others.handlers;
    if many > MAX_HANDLERS {
        return Err(vec![Refusal::TooMany(many)]);
    }
    let contexts = current.with_others().map_err(|error| vec![error.into()])?;
    let streams = streams::Streams::new(current, wanted)?;
    let targets = sites::targets(current, wanted, &streams, contexts)?;
    Ok(Plan { changes: steps::changes(current, wanted, &streams, &targets)?, notes: streams.notes })
}

/// The state after a plan.
#[must_use]
pub fn apply(current: &Current, plan: &Plan) -> Current {
    let mut after = current.clone();
    plan.changes.iter().for_each(|change| change.apply(&mut after.handlers));
    after
}

impl Change {
    /// Makes the change to a list of handlers.
    pub fn apply(&self, handlers: &mut BTreeMap<String, Deployed>) {
        match &self.after {
            Some(after) => handlers.insert(self.handler.clone(), after.clone()),
            None => handlers.remove(&self.handler),
        };
    }
}

/// In what a wanted handler differs from the one at work.
#[derive(Clone, Copy, Debug, Default)]
struct Difference {
    is_new: bool,
    version: bool,
    parameters: bool,
    rate: bool,
    wiring: bool,
    reserve: bool,
    place: bool,
}

impl Difference {
    fn between(deployed: Option<&Deployed>, wanted: &WantedHandler, contexts: &[Context]) -> Difference {
        let Some(deployed) = deployed else { return Difference { is_new: true, ..Difference::default() } };
        let (is, to_be) = (&deployed.definition, &wanted.definition);
        let is_elsewhere = match &wanted.place {
            ContextChoice::Named(name) => *name != deployed.context,
            ContextChoice::Auto => contexts.iter().all(|context| context.name != deployed.context),
        };
        Difference {
            is_new: false,
            version: is.version != to_be.version,
            parameters: is.parameters != to_be.parameters,
            rate: is.peak_msgs_per_s != to_be.peak_msgs_per_s,
            wiring: is.reads != to_be.reads || is.makes != to_be.makes,
            reserve: deployed.reserve != wanted.need.reserve,
            place: is_elsewhere,
        }
    }

    /// Whether it will do something else, or more or less of it, so that what it takes has to be predicted anew.
    fn is_of_content(self) -> bool {
        self.is_of_streams() || self.parameters || self.rate
    }

    /// Whether it may read or make something else.
    fn is_of_streams(self) -> bool {
        self.is_new || self.version || self.wiring
    }

    fn is_any(self) -> bool {
        self.is_of_content() || self.reserve || self.place
    }
}
