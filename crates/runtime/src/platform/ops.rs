//! Changes to a context's table, carried out between two batches. All new objects are made off the core; the objects
//! that they replace come back in the change.

use crate::platform::edge::Receiver;
use crate::platform::stage::{Instance, Output, SchedulingPolicy, Stage};
use crate::platform::{ContextIndex, Origin, StageId};
use crossdock_engine::{Handler, ParameterValues};
use crossdock_mailbox::ring::{Consumer, Producer};

/// One step of a change. Objects that it puts into the table are moved out of it, and replaced ones are moved into it.
pub(crate) enum Op {
    /// Adds a stage.
    Put(Option<Box<Stage>>),
    /// Removes a stage with its waiting batches and the ends of its queues; with `only_idle`, only if no batch waits.
    Take { stage: StageId, only_idle: bool, taken: Option<Box<Stage>> },
    /// A stage's instances are replaced: hot-swap. Those of the same format take over the state of those before, if it
    /// is kept; `lost` counts those that could not.
    Instances { stage: StageId, instances: Vec<Instance>, keeps_state: bool, lost: u32 },
    /// An instance for one more format.
    Instance { stage: StageId, instance: Option<Instance> },
    /// Other values of a program's parameters, for the instances of these formats; `refused` counts those that did not
    /// take them.
    Parameters { stage: StageId, values: Vec<(u64, ParameterValues)>, refused: u32 },
    /// Adds an output to an origin.
    Output { from: Origin, output: Option<Output> },
    /// Removes an output. The batches that wait in it are still delivered.
    NoOutput { from: Origin, to: StageId },
    /// The stage of an output is about to be at another context than the origin: the direct call becomes a ring with
    /// these ends. A ring that has not become a direct call yet stays one, and the ends are left here.
    Part { from: Origin, to: StageId, context: ContextIndex, ends: Option<(Output, Receiver)> },
    /// The stage of an output is at another context from now on.
    Target { from: Origin, to: StageId, context: ContextIndex },
    /// Whether batches that find no room in an output are dropped.
    Drops { from: Origin, to: StageId, drops: bool },
    /// One more queue of a stage.
    Input { stage: StageId, receiver: Option<Receiver> },
    /// A queue within this context becomes a direct call, once it is empty.
    Join { from: Origin, to: StageId },
    /// A stage's scheduling policy, and, if they change, the streams that it reads.
    SchedulingPolicy { stage: StageId, terms: SchedulingPolicy, reads: Option<Vec<u32>> },
    /// How many batches may wait in each queue that leads away.
    Limit(usize),
    /// Input of a stage is dropped and counted, until its instances are replaced.
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
    /// Changes that were carried out, with the objects that they took out.
    pub(crate) done: Producer<Change>,
    /// The progress of the change that is under way.
    pub(crate) progress: Progress,
}

/// A context's progress with a change.
#[derive(Debug, Default)]
pub(crate) enum Progress {
    #[default]
    None,
    Fetched(Change),
    Warmed(Change),
}

impl Change {
    /// Prefetches new handlers' memory into this core's cache, so that their first batch need not wait for it.
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
