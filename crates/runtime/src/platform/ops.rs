//! What is changed between two batches. Everything in it was made off the core; what it takes the place of comes back in it.

use crate::platform::edge::Receiver;
use crate::platform::stage::{Instance, Output, Stage, Terms};
use crate::platform::{ContextIndex, Origin, StageId};
use crossdock_engine::{Handler, ParameterValues};
use crossdock_mailbox::ring::{Consumer, Producer};

/// One step of a change. All that it puts in is taken out of it, and what it takes out is put in.
pub(crate) enum Op {
    /// A stage comes.
    Put(Option<Box<Stage>>),
    /// A stage goes, with what waits for it and the ends of its queues; or only if nothing waits.
    Take { stage: StageId, only_idle: bool, taken: Option<Box<Stage>> },
    /// A stage's instances are replaced: hot-swap. Those of the same format take over the state of those before, if it is kept;
    /// `lost` counts those that could not.
    Instances { stage: StageId, instances: Vec<Instance>, keeps_state: bool, lost: u32 },
    /// An instance for one more format.
    Instance { stage: StageId, instance: Option<Instance> },
    /// Other values of a program's parameters, for the instances of these formats; how many did not take them.
    Parameters { stage: StageId, values: Vec<(u64, ParameterValues)>, refused: u32 },
    /// One more way for what an origin brings.
    Output { from: Origin, output: Option<Output> },
    /// One way less. What waits in it still goes.
    NoOutput { from: Origin, to: StageId },
    /// A way's stage is about to be at another context than what leads to it: a direct call becomes a ring, of which these are the
    /// ends. A ring that has not become a direct call yet stays one, and the ends are left here.
    Part { from: Origin, to: StageId, context: ContextIndex, ends: Option<(Output, Receiver)> },
    /// A way's stage is at another context from now on.
    Target { from: Origin, to: StageId, context: ContextIndex },
    /// Whether what finds no room in a way is dropped.
    Drops { from: Origin, to: StageId, drops: bool },
    /// One more queue of a stage.
    Input { stage: StageId, receiver: Option<Receiver> },
    /// A queue within this context becomes a direct call, once it is empty.
    Join { from: Origin, to: StageId },
    /// How it is served, and with it, if that changes, which streams it reads.
    Terms { stage: StageId, terms: Terms, reads: Option<Vec<u32>> },
    /// How many batches may wait in each queue that leads away.
    Limit(usize),
    /// What comes for a stage is dropped and counted, until its instances are replaced.
    Fail { stage: StageId },
    /// Whether a stage may be served.
    #[cfg(feature = "bench")]
    Hold { stage: StageId, is_held: bool },
}

/// A list of steps that a context carries out in one go.
pub(crate) struct Change {
    pub(crate) number: u64,
    pub(crate) ops: Vec<Op>,
}

/// A context's side of the signal queue by which it is changed.
#[derive(Debug)]
pub(crate) struct Signals {
    pub(crate) changes: Consumer<Change>,
    /// Changes that were carried out, with what they took out.
    pub(crate) done: Producer<Change>,
    /// How far the change is that is under way.
    pub(crate) progress: Progress,
}

/// How far a context is with a change.
#[derive(Debug, Default)]
pub(crate) enum Progress {
    #[default]
    None,
    Fetched(Change),
    Warmed(Change),
}

impl Change {
    /// Has this core fetch what handlers come with, so that their first batch need not wait for it.
    pub(crate) fn warm(&self) {
        for op in &self.ops {
            let instances = match op {
                Op::Instances { instances, .. } => instances.as_slice(),
                Op::Instance { instance, .. } => instance.as_slice(),
                _ => &[],
            };
            instances.iter().filter_map(|instance| instance.handler.as_deref()).for_each(Handler::warm);
        }
    }
}

impl std::fmt::Debug for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Change {{ number: {}, ops: {} }}", self.number, self.ops.len())
    }
}
