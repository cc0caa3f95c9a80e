//! The costs of handlers, their loads at a rate, and the headroom of contexts.
//!
//! A [`Cost`] is measured on a sample of a stream's real messages. With the stream's peak rate it gives a [`Load`]: time,
//! buffers and bandwidth. A context's *headroom* is its capacity less a margin, less what system work takes (transport, acks,
//! control, which always come first), less the loads that are committed there.
//!
//! The papers read headroom as "the total number of cycles that can be allocated to a single packet's processing"
//! (overlay-network-processors-2003, 3.2): the same time divided by the rate, [`Load::ns_per_message`].

use std::collections::BTreeMap;
use std::ops::{Add, Sub};
use std::sync::Arc;

/// Handlers of a platform at most.
pub const MAX_HANDLERS: usize = 1024;
/// Contexts of a platform at most.
pub const MAX_CONTEXTS: usize = 64;
/// The time of a CPU, in ns per s.
pub const CPU_NS_PER_S: u64 = 1_000_000_000;
/// Share of a capacity that is left free, in percent: what measured rates and times stray by from second to second.
pub const MARGIN_PERCENT: u8 = 20;
/// Time that one step of a handler may take on a c-core: what everything else there may have to wait. An ack that is so much
/// later is still far from a sender's time-out.
pub const SLICE_NS: u64 = 200_000;
/// The cost of a batch that goes to another context: an entry of the ring, and the ring's two indices, each a cache line
/// that the other core has just written.
pub const CROSSING_NS_PER_BATCH: u64 = 150;
/// The expected cost to a context of bringing a batch to a handler, besides what the handler does with it: it is put into a
/// queue and taken out, counted, and its descriptor kept for the next. Some lines of memory that others have displaced. Only
/// estimates need it: what is measured at work has it in it.
pub const HANDING_NS_PER_BATCH: u64 = 300;
/// The margin on an estimate, in percent, until it is known what a handler takes at work.
pub const ESTIMATE_MARGIN_PERCENT: u8 = 10;
/// The further cost of each message of such a batch: its place in the list of record boundaries.
pub const CROSSING_NS_PER_MESSAGE: u64 = 1;
/// The cost of each byte of it, in ps: it is read from another core's cache.
pub const CROSSING_PS_PER_BYTE: u64 = 32;
/// Buffers of a handler that never waits: one that is being filled, one that is being read.
const BUFFERS_AT_LEAST: u64 = 2;
/// No load counts for more than this, so that the sum of all handlers' fits.
const MOST: u64 = u64::MAX >> 12;

/// The cost of one handler on one input format, as measured on a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Time that each batch takes, whatever is in it, in ns.
    pub ns_per_batch: f64,
    /// Time that each message takes besides, in ns, on the average.
    pub ns_per_message: f64,
    /// The same of the slowest messages (99th percentile), in ns.
    pub tail_ns_per_message: f64,
    /// Messages that it makes of one.
    pub messages_out_per_message: f64,
    /// Bytes that it makes of one message.
    pub bytes_out_per_message: f64,
    /// Length of a message that it reads, in bytes.
    pub bytes_in_per_message: f64,
    /// Messages of a batch.
    pub messages_per_batch: f64,
    /// Messages that were measured.
    pub sample_messages: u64,
    /// Whether no real messages were there yet, so that made-up ones were measured.
    pub is_provisional: bool,
}

impl Cost {
    /// Its load at a rate.
    ///
    /// Buffers are what flows in and out times how long it stays (Little's law): a batch waits for one round of its context
    /// ([`SLICE_NS`]) and is then worked on; what was made waits for the next round, to leave. To that a few that are
    /// always there. Bytes are those that it makes.
    ///
    /// A figure that is none (a division by zero in what was measured) counts as more than any context has.
    #[must_use]
    pub fn load(&self, rate_msgs_per_s: u64) -> Load {
        let rate = rate_msgs_per_s as f64;
        let of_batches = self.batches_per_s(rate) * at_least(0.0, self.ns_per_batch);
        let time = of_batches + rate * at_least(0.0, self.ns_per_message);
        let second = CPU_NS_PER_S as f64;
        let of_step = at_least(0.0, self.ns_per_batch) + self.batch() * at_least(0.0, self.ns_per_message);
        let incoming = self.batches_per_s(rate) * (SLICE_NS as f64 + of_step) / second;
        let outgoing = self.batches_per_s(self.messages_out(rate)) * SLICE_NS as f64 / second;
        Load {
            time_ns_per_s: whole(time),
            buffers: whole(incoming).saturating_add(whole(outgoing)).saturating_add(BUFFERS_AT_LEAST),
            bytes_per_s: whole(rate * at_least(0.0, self.bytes_out_per_message)),
        }
    }

    /// One that takes `times` times as long for all of it.
    #[must_use]
    pub fn slower(self, times: f64) -> Cost {
        Cost {
            ns_per_batch: self.ns_per_batch * times,
            ns_per_message: self.ns_per_message * times,
            tail_ns_per_message: self.tail_ns_per_message * times,
            ..self
        }
    }

    /// The cost of an estimate where it is to be decided whether it fits: with [`ESTIMATE_MARGIN_PERCENT`] more.
    #[must_use]
    pub fn with_margin(self) -> Cost {
        self.slower(1.0 + f64::from(ESTIMATE_MARGIN_PERCENT) / 100.0)
    }

    /// Time that a message takes with its part of a batch's, in ns.
    #[must_use]
    pub fn ns_of_message(&self) -> f64 {
        at_least(0.0, self.ns_per_batch) / self.batch() + at_least(0.0, self.ns_per_message)
    }

    /// The flow that reaches it at a rate.
    #[must_use]
    pub fn arriving(&self, rate_msgs_per_s: u64) -> Flow {
        let rate = rate_msgs_per_s as f64;
        Flow {
            batches_per_s: whole(self.batches_per_s(rate)),
            messages_per_s: rate_msgs_per_s,
            bytes_per_s: whole(rate * at_least(0.0, self.bytes_in_per_message)),
        }
    }

    /// The flow that it makes at a rate. It hands on batches, so as many as it got, or fewer where hardly one has a
    /// message left.
    #[must_use]
    pub fn leaving(&self, rate_msgs_per_s: u64) -> Flow {
        let rate = rate_msgs_per_s as f64;
        let messages = self.messages_out(rate);
        Flow {
            batches_per_s: whole(self.batches_per_s(rate).min(messages)),
            messages_per_s: whole(messages),
            bytes_per_s: whole(rate * at_least(0.0, self.bytes_out_per_message)),
        }
    }

    /// The longest that it holds its context: a batch of its slowest messages, in ns.
    #[must_use]
    pub fn step_ns(&self) -> u64 {
        let slowest = at_least(at_least(0.0, self.ns_per_message), self.tail_ns_per_message);
        whole(at_least(0.0, self.ns_per_batch) + self.batch() * slowest)
    }

    /// Messages of a batch: one at least.
    pub(crate) fn batch(&self) -> f64 {
        at_least(1.0, self.messages_per_batch)
    }

    fn batches_per_s(&self, messages_per_s: f64) -> f64 {
        messages_per_s / self.batch()
    }

    fn messages_out(&self, rate: f64) -> f64 {
        rate * at_least(0.0, self.messages_out_per_message)
    }
}

/// The larger of both; none if one of them is no number.
pub(crate) fn at_least(least: f64, figure: f64) -> f64 {
    if figure < least || least.is_nan() { least } else { figure }
}

/// Rounded up; what is no number is more than there is of anything.
pub(crate) fn whole(figure: f64) -> u64 {
    if figure.is_nan() { u64::MAX } else { figure.ceil() as u64 }
}

/// The load that a handler is for its context, or the capacity of a context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Time of a core, in ns per s.
    pub time_ns_per_s: u64,
    /// Buffers held at a time.
    pub buffers: u64,
    /// Bytes made per s.
    pub bytes_per_s: u64,
}

impl Load {
    /// All of everything.
    pub const MAX: Load = Load { time_ns_per_s: u64::MAX, buffers: u64::MAX, bytes_per_s: u64::MAX };

    /// The larger of both, resource by resource.
    #[must_use]
    pub fn max(self, other: Load) -> Load {
        self.zip(other, u64::max)
    }

    /// The smaller of both, resource by resource.
    #[must_use]
    pub fn min(self, other: Load) -> Load {
        self.zip(other, u64::min)
    }

    /// Whether it is within another in all resources.
    #[must_use]
    pub fn is_within(self, other: Load) -> bool {
        self.min(other) == self
    }

    /// The time there is for one message at a rate, if this is what a context has left, in ns: the papers' headroom.
    #[must_use]
    pub fn ns_per_message(self, rate_msgs_per_s: u64) -> u64 {
        self.time_ns_per_s.checked_div(rate_msgs_per_s).unwrap_or(u64::MAX)
    }

    /// Less a margin.
    fn less_percent(self, percent: u8) -> Load {
        let rest = u128::from(100 - percent.min(100));
        // Not more than the figure itself, so it fits again.
        let less = |figure: u64, _| (u128::from(figure) * rest / 100) as u64;
        self.zip(self, less)
    }

    fn zip(self, other: Load, with: impl Fn(u64, u64) -> u64) -> Load {
        Load {
            time_ns_per_s: with(self.time_ns_per_s, other.time_ns_per_s),
            buffers: with(self.buffers, other.buffers),
            bytes_per_s: with(self.bytes_per_s, other.bytes_per_s),
        }
    }
}

/// At most [`Load::MAX`].
impl Add for Load {
    type Output = Load;

    fn add(self, other: Load) -> Load {
        self.zip(other, u64::saturating_add)
    }
}

/// At least nothing.
impl Sub for Load {
    type Output = Load;

    fn sub(self, other: Load) -> Load {
        self.zip(other, u64::saturating_sub)
    }
}

/// The flow from one place to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// Batches per s.
    pub batches_per_s: u64,
    /// Messages per s.
    pub messages_per_s: u64,
    /// Bytes per s.
    pub bytes_per_s: u64,
}

impl Flow {
    /// The load of taking this flow over from another context.
    ///
    /// The reading side pays: the writer's stores are buffered and it goes on, the reader waits for the lines.
    #[must_use]
    pub fn crossing(self) -> Load {
        let of_batches = self.batches_per_s.saturating_mul(CROSSING_NS_PER_BATCH);
        let of_messages = self.messages_per_s.saturating_mul(CROSSING_NS_PER_MESSAGE);
        let of_bytes = self.bytes_per_s.saturating_mul(CROSSING_PS_PER_BYTE).div_ceil(1000);
        let time_ns_per_s = of_batches.saturating_add(of_messages).saturating_add(of_bytes);
        Load { time_ns_per_s, ..Load::default() }
    }
}

/// The two kinds of execution contexts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CoreKind {
    /// On a communication core: polled, run to completion, only for metered handlers.
    CCore,
    /// On a general core: for handlers that compute long, hold much state or may block.
    GCore,
}

/// The capacity of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Which kind of context it is.
    pub kind: CoreKind,
    /// The CPU that it runs on. Contexts of the same CPU share its time. `None`: whichever is free, so that it shares with
    /// none; what it takes from others is then measured as theirs.
    pub cpu: Option<u32>,
    /// The most that its handlers and its system work may take: time of its CPU, buffers of its pool, bytes.
    pub most: Load,
    /// Share of that to be left free, in percent.
    pub margin_percent: u8,
    /// The longest that one step of a handler may take on a c-core, in ns.
    pub slice_ns: u64,
}

impl Capacity {
    /// A context that may take all the time of its CPU, with the usual margin and slice and no bound in bytes.
    #[must_use]
    pub fn of_cpu(kind: CoreKind, cpu: Option<u32>, buffers: u64) -> Capacity {
        let most = Load { time_ns_per_s: CPU_NS_PER_S, buffers, bytes_per_s: u64::MAX };
        Capacity { kind, cpu, most, margin_percent: MARGIN_PERCENT, slice_ns: SLICE_NS }
    }
}

/// An execution context, with what its system work takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    /// As in `c-core-0`.
    pub name: String,
    /// Its capacity.
    pub capacity: Capacity,
    /// The load of transport, acks, control and subscriptions take, as measured.
    pub system: Load,
}

/// Why a list of contexts is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContextsError {
    /// Over the bound.
    #[error("{0} contexts, the bound is {MAX_CONTEXTS}: configure fewer")]
    TooMany(usize),
    /// A name stands for one context.
    #[error("two contexts are named {0}: give each its own name")]
    Twice(String),
}

/// The contexts of a platform, with the loads that are committed there. A context is meant by its place in the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contexts {
    /// Shared, since plans try things out on many copies.
    list: Arc<[Context]>,
    /// System work and committed loads, by context.
    used: Vec<Load>,
    /// Time of that, by CPU, and the widest margin there.
    cpus: BTreeMap<u32, (u64, u8)>,
}

impl Contexts {
    /// These contexts, with nothing committed.
    ///
    /// # Errors
    /// More than [`MAX_CONTEXTS`], or two of one name.
    pub fn new(list: Vec<Context>) -> Result<Contexts, ContextsError> {
        if list.len() > MAX_CONTEXTS {
            return Err(ContextsError::TooMany(list.len()));
        }
        let twice = list.iter().enumerate().find(|(at, context)| list[..*at].iter().any(|c| c.name == context.name));
        if let Some((_, context)) = twice {
            return Err(ContextsError::Twice(context.name.clone()));
        }
        let (used, list): (_, Arc<[Context]>) = (vec![Load::default(); list.len()], list.into());
        let mut contexts = Contexts { list, used, cpus: BTreeMap::new() };
        for at in 0..contexts.list.len() {
            let capacity = contexts.list[at].capacity;
            if let Some(cpu) = capacity.cpu {
                let (_, margin) = contexts.cpus.entry(cpu).or_default();
                *margin = capacity.margin_percent.max(*margin);
            }
            contexts.commit(at, contexts.list[at].system);
        }
        Ok(contexts)
    }

    /// All of them, in their order.
    #[must_use]
    pub fn list(&self) -> &[Context] {
        &self.list
    }

    /// Where the context of this name is.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<usize> {
        self.list.iter().position(|context| context.name == name)
    }

    /// The part of a load that counts.
    pub(crate) fn bounded(load: Load) -> Load {
        load.min(Load { time_ns_per_s: MOST, buffers: MOST, bytes_per_s: MOST })
    }

    /// Adds a load to what a context has to do.
    pub fn commit(&mut self, at: usize, load: Load) {
        self.commit_sum(at, Contexts::bounded(load));
    }

    /// Adds the sum of several handlers' loads, where each counts for no more than it does alone.
    pub fn commit_sum(&mut self, at: usize, load: Load) {
        self.used[at] = self.used[at] + load;
        if let Some((time, _)) = self.list[at].capacity.cpu.and_then(|cpu| self.cpus.get_mut(&cpu)) {
            *time = time.saturating_add(load.time_ns_per_s);
        }
    }

    /// Takes a load away that was committed there.
    pub fn release(&mut self, at: usize, load: Load) {
        let load = Contexts::bounded(load);
        self.used[at] = self.used[at] - load;
        if let Some((time, _)) = self.list[at].capacity.cpu.and_then(|cpu| self.cpus.get_mut(&cpu)) {
            *time = time.saturating_sub(load.time_ns_per_s);
        }
    }

    /// System work and committed loads of a context.
    #[must_use]
    pub fn used(&self, at: usize) -> Load {
        self.used[at]
    }

    /// The headroom of a context, less its margin. Of the time no more than its CPU has left for all that share it.
    #[must_use]
    pub fn headroom(&self, at: usize) -> Load {
        self.headroom_with(at, 0)
    }

    /// The same with another margin, if that is wider.
    #[must_use]
    pub fn headroom_with(&self, at: usize, margin_percent: u8) -> Load {
        let (own, of_cpu) = self.margins(at);
        let (most, cpu_most) = self.most(at, own.max(margin_percent), of_cpu.max(margin_percent));
        let own = most - self.used[at];
        Load { time_ns_per_s: own.time_ns_per_s.min(cpu_most.saturating_sub(self.used_of_cpu(at))), ..own }
    }

    /// How much more than its capacity less its margin a context has to do; what its CPU has too much counts for each context
    /// there.
    #[must_use]
    pub fn excess(&self, at: usize) -> Load {
        let (own, of_cpu) = self.margins(at);
        self.over(at, self.most(at, own, of_cpu))
    }

    /// The same over another mark: the capacity less `margin_percent` percent.
    #[must_use]
    pub fn excess_with(&self, at: usize, margin_percent: u8) -> Load {
        self.over(at, self.most(at, margin_percent, margin_percent))
    }

    fn over(&self, at: usize, (most, cpu_most): (Load, u64)) -> Load {
        let own = self.used[at] - most;
        Load { time_ns_per_s: own.time_ns_per_s.max(self.used_of_cpu(at).saturating_sub(cpu_most)), ..own }
    }

    /// Whether two contexts share a CPU.
    #[must_use]
    pub fn is_same_cpu(&self, one: usize, other: usize) -> bool {
        let cpu = |at: usize| self.list[at].capacity.cpu;
        one == other || (cpu(one).is_some() && cpu(one) == cpu(other))
    }

    /// A context's margin, and the widest on its CPU.
    fn margins(&self, at: usize) -> (u8, u8) {
        let own = self.list[at].capacity.margin_percent;
        (own, self.cpu(at).map_or(own, |(_, widest)| *widest))
    }

    /// The most that a context may take, and the time that all on its CPU may.
    fn most(&self, at: usize, margin_percent: u8, of_cpu_percent: u8) -> (Load, u64) {
        let cpu = Load { time_ns_per_s: CPU_NS_PER_S, ..Load::default() };
        let cpu = self.cpu(at).map_or(u64::MAX, |_| cpu.less_percent(of_cpu_percent).time_ns_per_s);
        (self.list[at].capacity.most.less_percent(margin_percent), cpu)
    }

    fn used_of_cpu(&self, at: usize) -> u64 {
        self.cpu(at).map_or(0, |(used, _)| *used)
    }

    fn cpu(&self, at: usize) -> Option<&(u64, u8)> {
        self.list[at].capacity.cpu.and_then(|cpu| self.cpus.get(&cpu))
    }
}
