//! The stages of a query, how far each has come in time, and how rows go from one to the next.

use crossdock_format::{Format, Record, Value};
use crossdock_query::{DerivedTime, EvalError, Interpreter, Port, StatefulProgram, StreamSource};

use super::latest::StateOrder;
use super::moment::{Budget, Change, Lost, Made, Moment, Pair};
use super::operator::Operator;
use super::pair::CHUNK;
use super::table::{StageTables, TableRows};
use super::then::{StageRow, Then, Thens};
use super::word::WordColumn;
use crate::handler::{OperatorCounters, Sink};
use crate::saved::{SavedBytes, put_flag, put_i64};

/// The latest time that a row may have, in ns since 1970: 100 days before the times end. Past it no window could end, and a record
/// with such a time, which stands for `never`, would let all windows go and all later records be late.
pub(super) const LATEST: i64 = i64::MAX - 100 * 86_400 * 1_000_000_000;

/// All that a query keeps between batches. One, whatever the streams and formats that it reads.
#[derive(Debug)]
pub(super) struct State {
    stages: Vec<Stage>,
    /// The wall clock, as it was given last.
    now: i64,
    max_bytes: usize,
    budget: Budget,
    /// The counts of the sources, in the order of the plan.
    sources: Vec<SourceCounts>,
}

/// The records that came by a source, and their fates.
#[derive(Clone, Copy, Debug, Default)]
struct SourceCounts {
    port: Option<Port>,
    records: u64,
    rows: u64,
}

#[derive(Debug)]
struct Stage {
    operator: Operator,
    inputs: Vec<Input>,
    /// The marks of its inputs, and the least of them, as a row's [`Moment`] has them.
    marks: [i64; 2],
    least_mark: i64,
    outputs: Vec<OutputCounts>,
    /// The rows that were lost.
    lost: Lost,
    /// Whether more of it is due than the last call has done.
    is_behind: bool,
    /// The bytes that it used when it was last fed or settled.
    used: usize,
}

/// A place where rows of a stage went, `None` for the output; and how many left behind the program that follows.
#[derive(Debug)]
struct OutputCounts {
    to: Option<Port>,
    rows: u64,
}

#[derive(Debug)]
struct Input {
    row: Format,
    time: Option<usize>,
    /// The place of the time, if one load reads it.
    time_place: Option<WordColumn>,
    lateness: i64,
    /// The time of the stage before whose bound is its watermark, if there is one.
    derived: Option<DerivedTime>,
    mark: i64,
    /// The stream has ended, or the stage before: no row comes until it goes on.
    is_over: bool,
    /// The watermark with which it goes on when one comes again, while `mark` is the greatest time.
    open_mark: Option<i64>,
}

impl Input {
    /// Whether a row has come that others may wait for. Those that come from a stage need none: it ends after its rows.
    fn has_begun(&self) -> bool {
        self.time.is_none() || self.derived.is_some() || self.mark > i64::MIN
    }

    /// The watermark by a row of this time, and whether that is a newer one.
    #[inline]
    fn mark_of(&self, time: i64) -> (i64, bool) {
        let mark = time.saturating_sub(self.lateness);
        (mark, self.time.is_some() && self.derived.is_none() && mark > self.mark)
    }

    fn end(&mut self) {
        if self.open_mark.is_none() {
            self.open_mark = Some(std::mem::replace(&mut self.mark, i64::MAX));
        }
    }

    fn reopen(&mut self) {
        self.is_over = false;
        if let Some(mark) = self.open_mark.take() {
            self.mark = mark;
        }
    }
}

/// The words for changes, as long as their column.
const UPDATE: [u8; 6] = *b"update";
const LEAVE: [u8; 6] = *b"leave\0";

/// Where rows leave, and what became of those that did not.
pub(super) struct Flow<'a> {
    pub(super) out: &'a mut dyn Sink,
    pub(super) made: usize,
    /// Rows without a time.
    pub(super) late: u64,
    /// Rows between and behind stages that could not be computed.
    pub(super) errors: u64,
    /// The latest of those.
    pub(super) error: Option<EvalError>,
    pub(super) interpreter: &'a mut Interpreter,
    /// The rows that stages look up.
    pub(super) tables: &'a StageTables,
}

impl Flow<'_> {
    /// The row that was made; an error is counted.
    #[inline]
    fn counted<T>(&mut self, made: Result<Option<T>, EvalError>) -> Option<T> {
        made.unwrap_or_else(|error| {
            self.errors += 1;
            self.error = Some(error);
            None
        })
    }

    #[inline]
    fn push(&mut self, row: &[u8]) {
        self.out.push(row);
        self.made += 1;
    }

    /// The same for rows of this length, back to back.
    #[inline]
    fn push_rows(&mut self, rows: &[u8], length: usize) {
        self.out.push_rows(rows, length);
        self.made += rows.len() / length.max(1);
    }
}

impl Stage {
    /// No row comes by an input until it goes on. One by which none has come counts as open until all others are over: its stream may be about to
    /// begin.
    fn end(&mut self, input: usize) {
        if let Some(input) = self.inputs.get_mut(input) {
            input.is_over = true;
        }
        let all_are = self.inputs.iter().all(|input| input.is_over);
        self.inputs.iter_mut().filter(|input| input.is_over && (all_are || input.has_begun())).for_each(Input::end);
        self.note_marks();
        self.is_behind = true;
    }

    /// Whether it makes no more rows unless some come.
    fn is_over(&self) -> bool {
        let waits = self.is_behind || (self.operator.wants_time() && self.operator.next_end().is_some());
        !waits && self.inputs.iter().all(|input| input.is_over)
    }

    /// Takes the time of a row that an input has taken. Whether the stage is to be settled then.
    #[inline]
    fn goes_on(&mut self, input: usize, time: i64) -> bool {
        let is_only = self.inputs.len() == 1;
        let Some(input) = self.inputs.get_mut(input) else { return false };
        let (mark, is_newest) = input.mark_of(time);
        if is_newest {
            input.mark = mark;
            self.note_marks();
        }
        self.is_behind || (is_newest && !(is_only && self.operator.rests(mark)))
    }

    /// Takes a change of an input's rows; `pass` hands on what is made of it. Whether the stage is to be settled then.
    #[inline]
    fn give(
        &mut self,
        input: usize,
        change: Change<'_>,
        (now, table): (i64, Option<&TableRows>),
        flow: &mut Flow<'_>,
        pass: &mut impl FnMut(Result<Made<'_>, EvalError>, &mut Flow<'_>),
    ) -> bool {
        let Some(row) = change.after.or(change.before) else { return false };
        if change.after.is_none() && self.inputs.get(input).is_some_and(|input| input.time.is_some()) {
            // A step that goes by time keeps a row that is withdrawn.
            return false;
        }
        let Some(time) = self.time_of(input, row, now) else {
            if self.operator.leaves_alone(input) {
                self.operator.leave(input, row, &mut |row| pass(row, flow));
            } else {
                flow.late += 1;
            }
            return false;
        };
        let moment = self.moment(time, now);
        self.operator.take((input, change), moment, table, &mut |row| pass(row, flow));
        self.goes_on(input, time)
    }

    /// The same for rows of a source, up to one after which the stage is to be settled: how many, and whether it is. Each has a budget of
    /// its own; those that the operator takes at once have it together.
    #[inline]
    fn give_rows(
        &mut self,
        input: usize,
        rows: &[&[u8]],
        (now, table, budget): (i64, Option<&TableRows>, &Budget),
        flow: &mut Flow<'_>,
        pass: &mut impl FnMut(Result<Made<'_>, EvalError>, &mut Flow<'_>),
    ) -> (usize, bool) {
        let mut given = 0;
        let mut times = [now; CHUNK];
        while let Some(rows) = rows.get(given..).filter(|rows| !rows.is_empty()) {
            let count = if self.operator.takes_several() { self.at_once(input, rows, &mut times) } else { 0 };
            budget.renew(count.max(1));
            let is_due = match (rows.get(..count), times.get(..count)) {
                (Some(rows), Some(times @ [.., last])) => {
                    let moment = self.moment(*last, now);
                    self.operator.take_rows(input, (rows, times), moment, &mut |row| pass(row, flow));
                    self.goes_on(input, *last)
                }
                _ => self.give(input, Change::row(rows[0]), (now, table), flow, pass),
            };
            given += count.max(1);
            if is_due {
                return (given, true);
            }
        }
        (given, false)
    }

    /// How many of these rows come at the same marks, with their times: up to the first that is the newest of its input. None if that
    /// one has no time, or if more is due than was done.
    #[inline]
    fn at_once(&self, input: usize, rows: &[&[u8]], times: &mut [i64; CHUNK]) -> usize {
        let most = rows.len().min(CHUNK);
        match self.inputs.get(input) {
            _ if self.is_behind => return 0,
            Some(Input { time: Some(_), .. }) => {}
            _ => return most,
        }
        let mut count = 0;
        for (row, place) in rows.iter().zip(times) {
            let Some(time) = self.time_of(input, row, i64::MIN) else { break };
            *place = time;
            count += 1;
            if self.inputs.get(input).is_some_and(|input| input.mark_of(time).1) {
                break;
            }
        }
        count
    }

    /// The time of a row of an input; `None` if it has none and needs one.
    #[inline]
    fn time_of(&self, input: usize, row: &[u8], now: i64) -> Option<i64> {
        let input = self.inputs.get(input)?;
        match (input.time, input.time_place) {
            (None, _) => Some(now),
            (_, Some(place)) => place.get(row).filter(|time| *time <= LATEST),
            (Some(time), None) => match Record::assume_checked(&input.row, row).get(time) {
                Value::Timestamp(time) if time <= LATEST => Some(time),
                _ => None,
            },
        }
    }

    /// The mark of an input has changed.
    fn note_marks(&mut self) {
        let timed = self.inputs.iter().map(|input| if input.time.is_some() { input.mark } else { i64::MAX });
        let least = timed.clone().min();
        self.marks.iter_mut().zip(timed).for_each(|(mark, now)| *mark = now);
        let is_timed = self.inputs.iter().any(|input| input.time.is_some());
        self.least_mark = least.filter(|_| is_timed).unwrap_or(i64::MIN);
    }

    #[inline]
    fn moment(&self, time: i64, now: i64) -> Moment {
        let watermark = if self.operator.wants_time() { now } else { self.least_mark };
        Moment { time, watermark, marks: self.marks }
    }
}

impl State {
    /// The state of a query before its first row.
    ///
    /// # Errors
    /// In words: the plan does not fit its formats.
    pub(super) fn of(program: &StatefulProgram) -> Result<State, String> {
        let mut stages: Vec<Stage> = Vec::with_capacity(program.stages.len());
        for (number, plan) in program.stages.iter().enumerate() {
            let input = |input: &crossdock_query::StageInput| Input {
                row: input.row.clone(),
                time: input.time,
                time_place: input.time.and_then(|time| WordColumn::time(&input.row, time)),
                lateness: lateness(input),
                derived: input.derived,
                mark: i64::MIN,
                is_over: false,
                open_mark: None,
            };
            let inputs: Vec<Input> = plan.inputs.iter().map(input).collect();
            let mut ports = plan.outputs.iter().filter_map(|output| output.to);
            if ports.any(|to| to.stage <= number || to.stage >= program.stages.len()) {
                return Err("a stage gives its rows to those behind it".to_owned());
            }
            let (operator, lost) = (Operator::of(plan)?, Lost::default());
            let outputs = plan.outputs.iter().map(|output| OutputCounts { to: output.to, rows: 0 }).collect();
            let (marks, least_mark) = ([i64::MAX; 2], i64::MIN);
            stages.push(Stage { operator, inputs, marks, least_mark, outputs, lost, is_behind: false, used: 0 });
            stages.last_mut().into_iter().for_each(Stage::note_marks);
        }
        if stages.is_empty() {
            return Err("a query with state has a stage".to_owned());
        }
        let source = |source: &StreamSource| SourceCounts { port: Some(source.port), ..SourceCounts::default() };
        let sources = program.sources.iter().map(source).collect();
        Ok(State { stages, now: 0, max_bytes: program.max_state_bytes, budget: Budget::default(), sources })
    }

    /// Goes by the bound, the lateness and the times of a query whose state has the same layout.
    pub(super) fn adopt(&mut self, program: &StatefulProgram) {
        self.max_bytes = program.max_state_bytes;
        for (stage, plan) in self.stages.iter_mut().zip(&program.stages) {
            stage.operator.adopt(&plan.operator);
            for (input, plan) in stage.inputs.iter_mut().zip(&plan.inputs) {
                (input.lateness, input.derived) = (lateness(plan), plan.derived);
            }
        }
    }

    /// Writes all of it. No row waits to be put in between two batches.
    pub(super) fn save(&self, out: &mut Vec<u8>) {
        put_i64(out, self.now);
        for stage in &self.stages {
            put_flag(out, stage.is_behind);
            for Input { mark, is_over, open_mark, .. } in &stage.inputs {
                put_i64(out, *mark);
                put_flag(out, *is_over);
                put_flag(out, open_mark.is_some());
                put_i64(out, open_mark.unwrap_or_default());
            }
            stage.operator.save(out);
        }
    }

    /// Takes what was written of a state with the same plan, before its first row. It keeps within its bound.
    ///
    /// # Errors
    /// It was not written by such a state. This one is of no use then.
    pub(super) fn restore(&mut self, from: &mut SavedBytes<'_>) -> Result<(), &'static str> {
        self.now = from.i64()?;
        for stage in &mut self.stages {
            stage.is_behind = from.flag()?;
            for input in &mut stage.inputs {
                (input.mark, input.is_over) = (from.i64()?, from.flag()?);
                let (has_open_mark, open_mark) = (from.flag()?, from.i64()?);
                input.open_mark = has_open_mark.then_some(open_mark);
            }
            stage.note_marks();
            stage.operator.restore(from)?;
            stage.used = stage.operator.used();
        }
        // If it is too much, the oldest goes with the first row that comes.
        from.end()
    }

    /// Takes rows that a reader made, few at a time.
    pub(super) fn take(&mut self, thens: &mut [Thens], port: Port, rows: &[&[u8]], flow: &mut Flow<'_>) {
        self.walk(thens).feed_rows(port, rows, flow);
        // A stage by itself keeps within the bound. Those that no row came to use what they did.
        if self.stages.len() > 1 && self.stages.iter().map(|stage| stage.used).sum::<usize>() > self.max_bytes {
            self.shed(thens, flow);
        }
    }

    /// Whether no row leaves, whatever comes.
    #[inline]
    pub(super) fn is_silent(&self) -> bool {
        matches!(&self.stages[..], [stage] if stage.operator.is_silent())
    }

    fn walk<'w>(&'w mut self, thens: &'w mut [Thens]) -> Walk<'w> {
        let State { stages, now, max_bytes, budget, .. } = self;
        Walk { stages, thens, first: 0, now: *now, max_bytes: *max_bytes, budget }
    }

    /// Moves the wall clock on, and does more of what is due.
    pub(super) fn advance(&mut self, thens: &mut [Thens], now_ns: u64, flow: &mut Flow<'_>) {
        self.now = self.now.max(i64::try_from(now_ns).unwrap_or(i64::MAX));
        self.budget.renew(1);
        for number in 0..self.stages.len() {
            if self.stages[number].is_behind || self.stages[number].operator.wants_time() {
                self.walk(thens).settle(number, flow);
            }
        }
        self.settle_gathered(thens, flow);
    }

    /// Whether a stage has rows to walk over.
    pub(super) fn has_walk(&self) -> bool {
        self.stages.iter().any(|stage| stage.operator.has_walk())
    }

    /// Goes a step on with that.
    pub(super) fn walk_on(&mut self, thens: &mut [Thens], flow: &mut Flow<'_>) {
        for number in 0..self.stages.len() {
            let mut walk = self.walk(thens);
            let Some((stage, thens, mut behind)) = walk.at(number) else { continue };
            stage.operator.walk(&mut |row| behind.pass(thens, row, flow));
        }
        self.settle_gathered(thens, flow);
    }

    /// Puts the rows in that operators have gathered: there is none that waits for another batch.
    pub(super) fn settle_gathered(&mut self, thens: &mut [Thens], flow: &mut Flow<'_>) {
        for number in 0..self.stages.len() {
            let mut walk = self.walk(thens);
            let Some((stage, thens, mut behind)) = walk.at(number) else { continue };
            stage.operator.settle(&mut |row| behind.pass(thens, row, flow));
        }
        self.stages.iter_mut().for_each(|stage| stage.used = stage.operator.used());
        if self.used() > self.max_bytes {
            self.shed(thens, flow);
        }
    }

    /// Carries out an order to the state of a stream.
    pub(super) fn order(&mut self, order: StateOrder) {
        self.stages.iter_mut().for_each(|stage| stage.operator.order(order));
    }

    /// The stream of a reader has ended. The work that is due with that is done when the clock is moved on.
    pub(super) fn end(&mut self, port: Port) {
        if let Some(stage) = self.stages.get_mut(port.stage) {
            stage.end(port.input);
        }
    }

    /// When the wall clock is to be moved on next.
    pub(super) fn due(&self) -> Option<u64> {
        if self.stages.iter().any(|stage| stage.is_behind) {
            return Some(0);
        }
        let timed = self.stages.iter().filter(|stage| stage.operator.wants_time());
        timed.filter_map(|stage| stage.operator.next_end()).min().map(|end| u64::try_from(end).unwrap_or(0))
    }

    /// How many bytes are in use.
    pub(super) fn used(&self) -> usize {
        self.stages.iter().map(|stage| stage.operator.used()).sum()
    }

    /// Makes the state smaller than its bound: the stage that keeps most forgets its oldest, until it is.
    #[cold]
    fn shed(&mut self, thens: &mut [Thens], flow: &mut Flow<'_>) {
        while self.used() > self.max_bytes {
            let most = self.stages.iter().enumerate().max_by_key(|(_, stage)| stage.operator.used());
            let Some(number) = most.map(|(number, _)| number) else { return };
            let mut walk = self.walk(thens);
            let Some((stage, thens, mut behind)) = walk.at(number) else { return };
            if !stage.operator.forget(&mut |row| behind.pass(thens, row, flow)) {
                break;
            }
        }
        self.stages.iter_mut().for_each(|stage| stage.used = stage.operator.used());
    }

    /// The rows that were dropped since this was last asked.
    pub(super) fn take_lost(&mut self) -> Lost {
        self.stages.iter_mut().fold(Lost::default(), |sum, stage| {
            let lost = stage.operator.take_lost();
            stage.lost = Lost { late: stage.lost.late + lost.late, forgotten: stage.lost.forgotten + lost.forgotten };
            Lost { late: sum.late + lost.late, forgotten: sum.forgotten + lost.forgotten }
        })
    }

    /// Counts a batch of a source: its records, and the rows that were made of them.
    pub(super) fn count_source(&mut self, port: Port, records: u64, rows: u64) {
        if let Some(source) = self.sources.iter_mut().find(|source| source.port == Some(port)) {
            source.records += records;
            source.rows += rows;
        }
    }

    /// Counts the rows that have left stages since this was last called; `made` of them are output.
    pub(super) fn count_rows(&mut self, thens: &mut [Thens], made: u64) {
        for (stage, thens) in self.stages.iter_mut().zip(thens) {
            for (output, then) in stage.outputs.iter_mut().zip(thens) {
                output.rows += std::mem::take(&mut then.passed);
            }
        }
        if let Some(last) = self.stages.last_mut().and_then(|stage| stage.outputs.last_mut()) {
            last.rows += made;
        }
    }

    /// The counts of all sources, then of all stages with their first outputs, then of their further outputs.
    pub(super) fn operator_counters(&self, report: &mut dyn FnMut(usize, OperatorCounters)) {
        for (number, source) in self.sources.iter().enumerate() {
            let counts =
                OperatorCounters { rows_in: source.records, rows_out: source.rows, ..OperatorCounters::default() };
            report(number, counts);
        }
        for (number, stage) in self.stages.iter().enumerate() {
            let is_here = |port: Option<Port>| port.is_some_and(|port| port.stage == number);
            let read: u64 = self.sources.iter().filter(|source| is_here(source.port)).map(|source| source.rows).sum();
            let outputs = self.stages.iter().flat_map(|stage| &stage.outputs);
            let passed: u64 = outputs.filter(|output| is_here(output.to)).map(|output| output.rows).sum();
            let counts = OperatorCounters {
                rows_in: read + passed,
                rows_out: stage.outputs.first().map_or(0, |output| output.rows),
                late: stage.lost.late,
                forgotten: stage.lost.forgotten,
                kept_rows: stage.operator.kept() as u64,
                kept_bytes: stage.operator.used() as u64,
            };
            report(self.sources.len() + number, counts);
        }
        let further = self.stages.iter().flat_map(|stage| stage.outputs.iter().skip(1));
        for (number, output) in further.enumerate() {
            let counts = OperatorCounters { rows_out: output.rows, ..OperatorCounters::default() };
            report(self.sources.len() + self.stages.len() + number, counts);
        }
    }
}

fn lateness(input: &crossdock_query::StageInput) -> i64 {
    i64::try_from(input.lateness_ns).unwrap_or(i64::MAX)
}

/// A stage and those behind it, with the programs behind each.
struct Walk<'w> {
    stages: &'w mut [Stage],
    thens: &'w mut [Thens],
    /// The number of the first of these stages.
    first: usize,
    now: i64,
    max_bytes: usize,
    budget: &'w Budget,
}

impl<'w> Walk<'w> {
    /// A stage, the programs behind it, and the stages behind it.
    #[inline]
    fn at(&mut self, number: usize) -> Option<(&mut Stage, &mut [Then], Walk<'_>)> {
        let place = number.checked_sub(self.first)?;
        let (stage, stages) = self.stages.get_mut(place..)?.split_first_mut()?;
        let (behind, thens) = self.thens.get_mut(place..)?.split_first_mut()?;
        let Walk { now, max_bytes, budget, .. } = *self;
        Some((stage, behind, Walk { stages, thens, first: number + 1, now, max_bytes, budget }))
    }

    /// Gives rows of a source to a stage, and lets time go on with each that is the newest of its input.
    #[inline]
    fn feed_rows(&mut self, port: Port, mut rows: &[&[u8]], flow: &mut Flow<'_>) {
        let (now, table, budget) = (self.now, flow.tables.rows(port.stage), self.budget);
        if self.is_over(port) {
            self.reopen(port);
        }
        while !rows.is_empty() {
            let Some((stage, thens, mut behind)) = self.at(port.stage) else { return };
            let mut pass = |made: Result<Made<'_>, EvalError>, flow: &mut Flow<'_>| behind.pass(thens, made, flow);
            let (given, is_due) = stage.give_rows(port.input, rows, (now, table, budget), flow, &mut pass);
            rows = rows.get(given..).unwrap_or_default();
            if is_due {
                self.settle(port.stage, flow);
            }
            self.keep_within(port.stage, false, flow);
        }
    }

    /// The same for a change by another stage, within the budget of the row that it comes of.
    #[inline]
    fn feed(&mut self, port: Port, change: Change<'_>, flow: &mut Flow<'_>) {
        let (now, table) = (self.now, flow.tables.rows(port.stage));
        if self.is_over(port) {
            self.reopen(port);
        }
        let Some((stage, thens, mut behind)) = self.at(port.stage) else { return };
        let mut pass = |made: Result<Made<'_>, EvalError>, flow: &mut Flow<'_>| behind.pass(thens, made, flow);
        if stage.give(port.input, change, (now, table), flow, &mut pass) {
            self.settle(port.stage, flow);
        }
        self.keep_within(port.stage, change.before.is_some(), flow);
    }

    /// Looks at the bytes that a stage keeps: few rows may bring many to the stages behind, before those of all are looked at.
    #[inline]
    fn keep_within(&mut self, number: usize, is_corrected: bool, flow: &mut Flow<'_>) {
        let place = number.checked_sub(self.first);
        let Some(stage) = place.and_then(|place| self.stages.get_mut(place)) else { return };
        if stage.operator.may_have_grown() || is_corrected {
            stage.used = stage.operator.used();
        }
        if stage.used > self.max_bytes {
            self.forget_beyond(number, flow);
        }
    }

    /// Makes what a stage keeps smaller than the bound.
    #[cold]
    fn forget_beyond(&mut self, number: usize, flow: &mut Flow<'_>) {
        let max_bytes = self.max_bytes;
        let Some((stage, thens, mut behind)) = self.at(number) else { return };
        while stage.used > max_bytes && stage.operator.forget(&mut |row| behind.pass(thens, row, flow)) {
            stage.used = stage.operator.used();
        }
    }

    #[inline]
    fn is_over(&self, port: Port) -> bool {
        let stage = port.stage.checked_sub(self.first).and_then(|place| self.stages.get(place));
        stage.and_then(|stage| stage.inputs.get(port.input)).is_some_and(|input| input.is_over)
    }

    /// A row comes by an input that was over: so may rows of the stages behind it.
    #[cold]
    fn reopen(&mut self, port: Port) {
        let Some((stage, thens, mut behind)) = self.at(port.stage) else { return };
        stage.inputs.get_mut(port.input).into_iter().for_each(Input::reopen);
        stage.note_marks();
        thens.iter().filter_map(|then| then.to).for_each(|to| behind.reopen(to));
    }

    /// Does what is due in a stage, and reports to the next ones how far it has come: to each behind all the rows that it has got.
    fn settle(&mut self, number: usize, flow: &mut Flow<'_>) {
        let now = self.now;
        let Some((stage, thens, mut behind)) = self.at(number) else { return };
        let moment = stage.moment(i64::MIN, now);
        let budget = behind.budget;
        stage.is_behind = stage.operator.advance(moment, budget, &mut |row| behind.pass(thens, row, flow));
        if stage.is_over() {
            // The rows of before its end.
            stage.operator.settle(&mut |row| behind.pass(thens, row, flow));
        }
        stage.used = stage.operator.used();
        for to in thens.iter().filter_map(|then| then.to) {
            let Some((next, ..)) = behind.at(to.stage) else { continue };
            let Some(input) = next.inputs.get_mut(to.input) else { continue };
            if stage.is_over() {
                if !input.is_over {
                    next.end(to.input);
                    behind.settle(to.stage, flow);
                }
                continue;
            }
            let Some(derived) = input.derived else { continue };
            let mark = stage.operator.given(derived.of, moment).saturating_add(derived.plus_ns);
            if mark > input.mark {
                input.mark = mark;
                next.note_marks();
                behind.settle(to.stage, flow);
            }
        }
    }

    /// Hands something that a stage has made on to each place where its rows go.
    #[inline]
    fn pass(&mut self, thens: &mut [Then], made: Result<Made<'_>, EvalError>, flow: &mut Flow<'_>) {
        match made {
            // To several places each pair goes before the next one.
            Ok(Made::Pairs(pairs)) if thens.len() > 1 => {
                pairs.iter().for_each(|pair| self.pass(thens, Ok(Made::pair(*pair)), flow));
            }
            Ok(made) => thens.iter_mut().for_each(|then| self.pass_by(then, made, flow)),
            Err(error) => _ = flow.counted::<()>(Err(error)),
        }
    }

    /// Runs a program behind a stage on what it has made, and hands on the rows that come of it.
    #[inline]
    fn pass_by(&mut self, then: &mut Then, made: Made<'_>, flow: &mut Flow<'_>) {
        let to = then.to;
        let made = match made {
            Made::Change(Change { before: None, after: Some(row) }) => then.made(row, flow.interpreter),
            Made::Pair { pair, comes: true } => then.made_of_pair(pair, flow.interpreter),
            Made::Pairs(pairs) => return self.pass_pairs(then, pairs, flow),
            Made::Pair { pair, comes: false } => {
                return self.pass_change(then, (Some(StageRow::Pair(pair)), None), flow);
            }
            Made::Change(Change { before, after }) => {
                return self.pass_change(then, (before.map(StageRow::Whole), after.map(StageRow::Whole)), flow);
            }
        };
        let Some(made) = flow.counted(made) else { return };
        match to {
            Some(port) => {
                self.feed(port, Change::row(made), flow);
                then.passed += 1;
            }
            None => flow.push(made),
        }
    }

    /// The same for the rows of a join that come together.
    fn pass_pairs(&mut self, then: &mut Then, pairs: &[Pair<'_>], flow: &mut Flow<'_>) {
        let Then { pairs: plan, to, passed, .. } = then;
        let are_made = plan.as_mut().is_some_and(|plan| {
            plan.make_all(pairs, |rows, length| match *to {
                Some(port) => rows.chunks_exact(length).for_each(|row| {
                    self.feed(port, Change::row(row), flow);
                    *passed += 1;
                }),
                None => flow.push_rows(rows, length),
            })
        });
        if !are_made {
            pairs.iter().for_each(|pair| self.pass_by(then, Made::pair(*pair), flow));
        }
    }

    /// The same for a row that comes in the place of another, or that is taken back: by what the program makes of each.
    fn pass_change(
        &mut self,
        then: &mut Then,
        (before, after): (Option<StageRow<'_>>, Option<StageRow<'_>>),
        flow: &mut Flow<'_>,
    ) {
        let (to, word) = (then.to, then.word);
        let mut former = std::mem::take(&mut then.former);
        former.clear();
        // A row that could not be computed was none.
        let mut had = false;
        if let Some(row) = before
            && let Ok(Some(made)) = then.made_of(row, flow.interpreter)
        {
            former.extend_from_slice(made);
            had = true;
        }
        let made = after.map_or(Ok(None), |row| then.made_of(row, flow.interpreter));
        let made = flow.counted(made);
        let mut changed = false;
        match (to, made) {
            (_, Some(made)) if had && made == former => {}
            (_, None) if !had => {}
            (Some(port), after) => {
                self.feed(port, Change { before: had.then_some(&former[..]), after }, flow);
                changed = true;
            }
            (None, after) => {
                let shown = match (had, after, word) {
                    (true, _, Some(word)) => {
                        let kind = if after.is_some() { UPDATE } else { LEAVE };
                        if let Some(row) = after {
                            former.clear();
                            former.extend_from_slice(row);
                        }
                        former
                            .get_mut(word.at..word.at + kind.len())
                            .into_iter()
                            .for_each(|at| at.copy_from_slice(&kind));
                        Some(&former[..])
                    }
                    (_, after, _) => after,
                };
                shown.into_iter().for_each(|row| flow.push(row));
            }
        }
        then.former = former;
        then.passed += u64::from(changed);
    }
}
