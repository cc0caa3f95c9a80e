//! Records for a subscriber that is slow, or that gets a limited number of them a second (`ON SLOW`, `MAX RATE`): a part of
//! the node that ends in its session.
//!
//! While the session takes nothing, the node goes on with what comes: the query's condition runs over each batch, and of the
//! records that it selects the policy keeps some, as copies. Once the session takes records again, the kept ones go through
//! the query before all others. So the node's queue does not fill, and only `BLOCK`, which has no part here, holds publishers
//! back. With a rate, all records come this way: those above it are dropped before they are kept, or, where the last of each
//! key is kept anyway, stay kept until it is their turn.
//!
//! Of a query of a stream's state the records are changes, and all of them count: the part is behind the query then ([`changes`]).

mod changes;
mod kept;
mod rate;
mod steps;

use crate::graph::bounds::{SLOW_BYTES, SLOW_RECORDS};
use crate::graph::edge::Held;
use crate::graph::gauges::{Loss, NodeGauges};
use crossdock_engine::{ChangeMerger, Handler, KeyFields, KeyHasher, SelectHandler};
use crossdock_format::Format;
use crossdock_mailbox::{Batch, Pool, Selection};
use crossdock_query::{Program, Projection, QueryError, Select, SlowPolicy};
use kept::{Kept, Put};
use rate::Rate;
use std::fmt;

/// How often records that wait for their rate are looked at, at most, in ns.
const RATE_STEP_NS: u64 = 1_000_000;

/// Records that are looked at each time, of keys whose rates may differ.
const LOOKS: usize = 1024;

/// Runs a condition, which narrows the selection to the records of a batch that it holds for; whether it ran to its end.
type Narrow = fn(&mut dyn Handler, &Batch, &mut Selection) -> bool;

/// The policy, with what it has to remember.
#[derive(Clone, Copy, Debug)]
enum Policy {
    /// Records wait in the queue, or leave it, as for any subscription.
    Queue,
    /// Of each key the last one is kept.
    Conflate,
    /// Of `one_in` records the last is kept; `seen` since the last one that was.
    Sample { one_in: u32, seen: u32 },
    /// Those that meet a condition are kept.
    Keep,
    /// Of what the query gives of a state all is kept; if it `conflates`, of each row one change.
    Changes { conflates: bool },
}

/// The part of a query's clauses for the records of one format.
pub(crate) struct Reducer {
    format: u64,
    reduces: Reduces,
}

enum Reduces {
    /// Records, before the query.
    Records(Selects),
    /// Changes, behind it.
    Changes(Box<ChangeMerger>),
}

/// The conditions and keys that select among records.
struct Selects {
    /// The query's condition.
    selects: Box<dyn Handler>,
    /// The condition of `KEEP WHERE`.
    keeps: Option<Box<dyn Handler>>,
    /// The key of `CONFLATE BY`, or that of `MAX RATE … BY`: where there are both, they are the same.
    key: Option<KeyFields>,
}

impl Reducer {
    /// That of a query for a format; none if the query has no clause that needs one. Slow: not for a core.
    ///
    /// # Errors
    /// A name, type or condition of the clauses does not fit the format.
    pub(crate) fn of(select: &Select, format: &Format) -> Result<Option<Reducer>, QueryError> {
        let (policy, rate) = (select.on_slow(), select.max_rate());
        if rate.is_none() && !policy.as_ref().is_some_and(SlowPolicy::selects) {
            return Ok(None);
        }
        let handler = |select: &Select| -> Result<Box<dyn Handler>, QueryError> {
            let program = select.plan(format)?;
            // Through a view it has the view's columns, which nobody takes here: it only narrows the selection.
            let condition = Program { projection: Projection::All, output: program.input.clone(), ..program };
            Ok(Box::new(SelectHandler::new(condition)))
        };
        let keeps = match &policy {
            Some(SlowPolicy::Keep(condition)) => Some(handler(&condition.select)?),
            _ => None,
        };
        let conflates = match &policy {
            Some(SlowPolicy::Conflate(key)) => Some(&key.select),
            _ => None,
        };
        let key = conflates.or(rate.as_ref().and_then(|rate| Some(&rate.by.as_ref()?.select)));
        let key = key.map(|key| KeyFields::of(&key.plan(format)?).map_err(in_words)).transpose()?;
        let selects = Selects { selects: handler(&select.selected())?, keeps, key };
        Ok(Some(Reducer { format: format.id().0, reduces: Reduces::Records(selects) }))
    }

    /// That of a query that conflates changes of a state, whose rows have this format.
    pub(crate) fn of_changes(merger: ChangeMerger, rows: &Format) -> Reducer {
        Reducer { format: rows.id().0, reduces: Reduces::Changes(Box::new(merger)) }
    }

    /// The fields of a format that the clauses of a query read, a flag a field.
    ///
    /// # Errors
    /// As [`Reducer::of`].
    pub(crate) fn reads(select: &Select, format: &Format) -> Result<Vec<bool>, QueryError> {
        let mut reads = vec![false; format.fields().len()];
        let (policy, rate) = (select.on_slow(), select.max_rate());
        let of_rate = rate.as_ref().and_then(|rate| Some(&rate.by.as_ref()?.select));
        for part in policy.as_ref().and_then(SlowPolicy::reads).into_iter().chain(of_rate) {
            let read = part.plan(format)?.reads;
            reads.iter_mut().enumerate().for_each(|(at, flag)| *flag |= read.contains(&at));
        }
        Ok(reads)
    }

    /// The format, by id.
    pub(crate) fn format(&self) -> u64 {
        self.format
    }

    fn selects(&self) -> Option<&Selects> {
        if let Reduces::Records(selects) = &self.reduces { Some(selects) } else { None }
    }

    fn selects_mut(&mut self) -> Option<&mut Selects> {
        if let Reduces::Records(selects) = &mut self.reduces { Some(selects) } else { None }
    }

    /// The merger that makes one change of several, if they have this format.
    fn merger(&mut self, changes: u64) -> Option<&mut ChangeMerger> {
        match &mut self.reduces {
            Reduces::Changes(merger) if merger.format().0 == changes => Some(merger),
            Reduces::Changes(_) | Reduces::Records(_) => None,
        }
    }
}

fn in_words(message: String) -> QueryError {
    QueryError { message, position: None, hint: None, excerpt: None }
}

/// The part of a subscription's node.
pub(crate) struct Slow {
    policy: Policy,
    reducers: Vec<Reducer>,
    rate: Option<Rate>,
    hasher: KeyHasher,
    kept: Kept,
    /// The most bytes that may be kept.
    most_bytes: usize,
    /// When a kept record may leave for its rate, in ns.
    due_ns: u64,
    /// Kept records on their way into a batch, and the batch, whose first records have left.
    next: Held,
    leaving: Option<(Batch, usize)>,
    /// Why its subscription ends: there was no room for a change.
    failure: Option<String>,
}

impl fmt::Debug for Slow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slow").field("policy", &self.policy).field("kept", &self.kept.len()).finish_non_exhaustive()
    }
}

impl Slow {
    /// That of a query, if it has a clause that needs one.
    pub(crate) fn of(select: &Select) -> Option<Box<Slow>> {
        let rate = select.max_rate().map(|rate| Rate::new(&rate));
        let policy = match select.on_slow() {
            Some(SlowPolicy::Conflate(_)) => Policy::Conflate,
            Some(SlowPolicy::Sample(one_in)) => Policy::Sample { one_in: one_in.get(), seen: 0 },
            Some(SlowPolicy::Keep(_)) => Policy::Keep,
            Some(SlowPolicy::Block | SlowPolicy::DropOldest | SlowPolicy::Disconnect) | None if rate.is_none() => {
                return None;
            }
            _ => Policy::Queue,
        };
        Some(Slow::with(policy, rate))
    }

    /// That of a query of a state, whose subscriber has this policy, if it needs one.
    pub(crate) fn of_changes(select: &Select, policy: &SlowPolicy) -> Option<Box<Slow>> {
        let conflates = match policy {
            SlowPolicy::Conflate(_) => true,
            SlowPolicy::Disconnect => false,
            // The last three are refused.
            SlowPolicy::Block | SlowPolicy::DropOldest | SlowPolicy::Sample(_) | SlowPolicy::Keep(_) => return None,
        };
        let mut slow = Slow::with(Policy::Changes { conflates }, select.max_rate().map(|rate| Rate::new(&rate)));
        slow.most_bytes = usize::try_from(select.state_bytes()).unwrap_or(usize::MAX);
        slow.kept = Kept::of_many();
        Some(slow)
    }

    fn with(policy: Policy, rate: Option<Rate>) -> Box<Slow> {
        Box::new(Slow {
            policy,
            reducers: Vec::new(),
            rate,
            hasher: KeyHasher::default(),
            kept: Kept::default(),
            most_bytes: SLOW_BYTES,
            due_ns: 0,
            next: Held::new(0, 0),
            leaving: None,
            failure: None,
        })
    }

    /// The clauses of a query and their bounds, in lines of a plan.
    pub(crate) fn explain(select: &Select) -> String {
        let bounds = match (select.snapshot(), select.on_slow()) {
            (None, _) => {
                format!("at most {SLOW_RECORDS} records and {} MiB are kept, then the oldest goes", SLOW_BYTES >> 20)
            }
            (Some(_), Some(SlowPolicy::Disconnect)) => {
                "as many bytes as of the state are kept, then its session ends".into()
            }
            (Some(_), _) => "as many bytes as of the state are kept, then the subscription ends".into(),
        };
        let keeps = |policy: &SlowPolicy| {
            policy.selects() || (select.snapshot().is_some() && matches!(policy, SlowPolicy::Disconnect))
        };
        let slow = select.on_slow().map(|policy| match keeps(&policy) {
            true => format!("slow     {policy}; {bounds}\n"),
            false => format!("slow     {policy}\n"),
        });
        let rate = select.max_rate().map(|rate| match rate.by {
            Some(_) => format!("rate     at most {rate}; of at most {SLOW_RECORDS} keys, and none of others then\n"),
            None => format!("rate     at most {rate}\n"),
        });
        slow.into_iter().chain(rate).collect()
    }

    /// Whether it goes on with what comes while its session takes nothing.
    #[inline]
    pub(super) fn selects(&self) -> bool {
        !matches!(self.policy, Policy::Queue)
    }

    /// Whether every record comes this way, and not only those that come while its session takes nothing.
    #[inline]
    pub(super) fn is_limited(&self) -> bool {
        self.rate.is_some()
    }

    /// Records that it has.
    pub(super) fn len(&self) -> u64 {
        let leaving = self.leaving.as_ref().map_or(0, |(batch, done)| (batch.len() - done) as u64);
        self.kept.len() + self.next.records() + leaving
    }

    /// Bytes of the records that are kept.
    pub(super) fn kept_bytes(&self) -> usize {
        self.kept.bytes()
    }

    /// The formats of the records that it has.
    pub(super) fn formats(&self) -> impl Iterator<Item = u64> {
        let leaving = self.leaving.as_ref().map(|(batch, _)| batch.format);
        let next = (self.next.records() > 0).then_some(self.next.format);
        self.kept.formats().chain(leaving).chain(next)
    }

    /// Whether some of them may leave now.
    #[inline]
    fn may_leave(&self, now_ns: u64) -> bool {
        self.leaving.is_some() || self.next.records() > 0 || (!self.kept.is_empty() && now_ns >= self.due_ns)
    }

    /// Whether records wait for their rate where they are kept, rather than being dropped before.
    fn waits_for_rate(&self) -> bool {
        self.rate.is_some() && matches!(self.policy, Policy::Conflate | Policy::Changes { .. })
    }

    /// Selects and keeps records of a batch, from one on, as they come while its session takes nothing (`is_full`) or takes
    /// records at a rate. False if a condition has panicked.
    fn reduce(
        &mut self,
        (batch, done): (&Batch, usize),
        selection: &mut Selection,
        (is_full, now_ns): (bool, u64),
        (gauges, narrow): (&NodeGauges, Narrow),
    ) -> bool {
        selection.select_range(done..batch.len(), batch.len());
        let (records, before) = (selection.len() as u64, self.kept.len());
        let is_sound = self.select(batch, selection, is_full, (gauges, narrow)) && {
            self.keep(batch, selection, (is_full, now_ns), gauges);
            true
        };
        // A record that is kept counts as read by the query when it leaves.
        gauges.records_in.add((records + before).saturating_sub(self.kept.len()));
        is_sound
    }

    /// Narrows the selection to what the query's condition and the policy select.
    fn select(
        &mut self,
        batch: &Batch,
        selection: &mut Selection,
        is_full: bool,
        (gauges, narrow): (&NodeGauges, Narrow),
    ) -> bool {
        let reducer = self.reducers.iter_mut().find(|reducer| reducer.format == batch.format);
        let Some(reducer) = reducer.and_then(Reducer::selects_mut) else {
            gauges.lose(Loss::Unreadable, selection.len() as u64);
            selection.narrow(|_| false);
            return true;
        };
        let (came, counted) = (selection.len() as u64, reducer.selects.counters());
        if !narrow(&mut *reducer.selects, batch, selection) {
            gauges.lose(Loss::Failed, came);
            return false;
        }
        let row_errors = gauges.note_counts(&counted, &reducer.selects.counters());
        if row_errors > 0 {
            gauges.note_row_errors(row_errors, &mut *reducer.selects);
        }
        let selected = selection.len() as u64;
        let why = match &mut self.policy {
            Policy::Keep if is_full => {
                if !reducer.keeps.as_mut().is_some_and(|keeps| narrow(&mut **keeps, batch, selection)) {
                    gauges.lose(Loss::Failed, selected);
                    return false;
                }
                Loss::NotKept
            }
            Policy::Sample { one_in, seen } if is_full => {
                selection.narrow(|_| {
                    *seen = (*seen + 1) % *one_in;
                    *seen == 0
                });
                Loss::Sampled
            }
            Policy::Queue | Policy::Conflate | Policy::Keep | Policy::Sample { .. } | Policy::Changes { .. } => {
                return true;
            }
        };
        gauges.lose(why, selected - selection.len() as u64);
        true
    }

    /// Keeps the selected records, as far as they may pass.
    fn keep(&mut self, batch: &Batch, selection: &Selection, (is_full, now_ns): (bool, u64), gauges: &NodeGauges) {
        let (conflates, waits) = (matches!(self.policy, Policy::Conflate), self.waits_for_rate());
        // One batch at most leaves at once.
        let most_bytes = if is_full || waits { self.most_bytes } else { usize::MAX };
        let Slow { reducers, rate, hasher, kept, due_ns, .. } = self;
        let reducer = reducers.iter().find(|reducer| reducer.format == batch.format);
        let key = reducer.and_then(|of| of.selects()?.key.as_ref());
        let (mut conflated, mut lost, mut over) = (0, 0, 0);
        for index in selection {
            let record = batch.record(index);
            let key = key.map(|key| key.key_of(hasher, record));
            if !waits && rate.as_mut().is_some_and(|rate| !rate.passes(key, now_ns)) {
                over += 1;
                continue;
            }
            let Put { replaced, lost: more } = kept.put(key.filter(|_| conflates), batch.format, record, most_bytes);
            (conflated, lost) = (conflated + replaced, lost + more);
            if let Some(rate) = rate.as_ref().filter(|_| waits && replaced == 0) {
                let others_ns = if kept.len() > 1 { *due_ns } else { u64::MAX };
                *due_ns = rate.due_ns(key).min(others_ns);
            }
        }
        for (why, records) in [(Loss::Conflated, conflated), (Loss::QueueFull, lost), (Loss::OverRate, over)] {
            if records > 0 {
                gauges.lose(why, records);
            }
        }
    }

    /// Takes kept records that may leave now out, into an empty descriptor with a buffer of the pool; the descriptor comes back
    /// if none may, if a batch is leaving already, or if there is no buffer.
    fn load(&mut self, mut batch: Batch, now_ns: u64, pool: &mut Pool) -> Option<Batch> {
        if self.leaving.is_some() || !self.load_next(now_ns) || !self.next.fill(&mut batch, pool) {
            return Some(batch);
        }
        self.next.reset();
        self.leaving = Some((batch, 0));
        None
    }

    /// Takes kept records that may leave now out, for one buffer; if none may, it is known when that is to be looked at again.
    fn load_next(&mut self, now_ns: u64) -> bool {
        let waits = self.waits_for_rate();
        let Slow { rate, kept, due_ns, next, .. } = self;
        let by_key = rate.as_ref().is_some_and(Rate::is_by_key);
        if next.records() == 0 {
            let most_stay = if by_key { LOOKS } else { 0 };
            kept.take(next, most_stay, |key| !waits || rate.as_mut().is_none_or(|rate| rate.passes(key, now_ns)));
        }
        if next.records() == 0 {
            let due = |rate: &Rate| kept.keys().take(LOOKS).map(|key| rate.due_ns(key)).min();
            let due = rate.as_ref().and_then(due).filter(|_| !by_key || kept.len() <= LOOKS as u64);
            *due_ns = due.unwrap_or_default().max(now_ns + RATE_STEP_NS);
        }
        next.records() > 0
    }

    /// Lets all go that it has: how many records, and a descriptor that is needed no more.
    fn clear(&mut self) -> (u64, Option<Batch>) {
        let records = self.len();
        self.kept.clear();
        self.next.reset();
        (records, self.leaving.take().map(|(batch, _)| batch))
    }
}
