//! The handler of a query with state: windows, joins, groups, OVER.
//!
//! A [`StatefulHandler`] runs for the records of one stream and format. Its *readers* narrow them and make the rows of stages'
//! inputs; the *stages* keep rows or groups, and the programs behind them make the rows of the next stage, or of the output. All
//! handlers of a query share one state, which the caller moves to the one that runs.
//!
//! **Time.** An input's watermark is its newest event time less its lateness, and rises row by row, so that neither batches nor
//! hand-overs change a result; a stage's is the least of its inputs', and goes on to the next stage. As long as rows are no later than
//! their input's lateness, the results of windows, of joins by time, and of ASOF joins that wait do not depend on the order in which
//! rows come, but for three things: joins, and windows that end at one time, give the same rows in another
//! order; sums, means and deviations of floats may differ in
//! their last bits (sums are compensated, by Neumaier); and running groups and ASOF joins that do not wait go by arrival.
//! A row whose event time is null is late. Where a stream has ended, its input's watermark is the greatest time, until a row comes again;
//! a stage whose inputs have all ended, and that has nothing left to do, ends that of the next stage.
//!
//! **Bounds.** One row, or one look at the clock, closes and releases a bounded number of rows; the rest follows with the next rows, or
//! when the handler is due, which it is at once. The bytes of rows, keys and groups are counted, with what the tables keep for each of them; past the bound the stage
//! that keeps most forgets its oldest. Tables grow by doubling, so that the memory that is taken may be up to twice that.

mod accumulate;
mod arena;
mod asof;
mod cell;
mod corrected_over;
mod distinct;
mod first_rows;
mod frames;
mod gathered;
mod hash;
mod join;
mod keys;
mod latest;
mod lookup;
mod moment;
mod multiset;
mod operator;
mod over;
mod pair;
mod past_rows;
mod ranked;
mod row_tests;
mod rows;
mod sketch;
mod state;
mod table;
mod texts;
mod then;
mod time_queue;
mod use_order;
mod windows;
mod word;

use std::fmt::Write as _;
use std::sync::Arc;

use crossdock_format::Record;
use crossdock_mailbox::{Batch, Selection};
use crossdock_query::{
    EvalError, Interpreter, Operator, Port, Program, Projection, Stage, StatefulProgram, TableLookup, Window,
};

use crate::filter::Filter;
use crate::handler::{Handler, HandlerCounters, HandlerState, OperatorCounters, ParameterValues, Sink, Verdict};
use crate::kernel::Records;
use crate::project::{CHUNK_RECORDS, RowPlan};
use crate::row_error::{RowError, RowErrorCounts};
use crate::saved::{self, SavedStateError};
use crate::select::{Form, ProgramPart};
use crate::warm::WarmPiece;
pub use latest::StateOrder;
pub(crate) use ranked::Ranked;
use state::{Flow, State};
use table::StageTables;
pub use table::{SharedTable, TableOrder, TableRows, Tables};
use then::{Then, Thens};

/// Runs a query with state over the records of one of its streams, in one format.
///
/// Verdicts: [`Verdict::Emit`] with the rows that leave, however many records they come from; [`Verdict::Hold`] if records were only
/// taken; [`Verdict::Drop`] if none was.
#[derive(Debug)]
pub struct StatefulHandler {
    program: Arc<StatefulProgram>,
    readers: Vec<Reader>,
    thens: Vec<Thens>,
    /// The rows that its stages look up. They are its own, not of the state: each handler that shares that has the same ones.
    tables: StageTables,
    /// Not there from the time when it was handed over.
    state: Option<Box<State>>,
    /// The state that it had before it took over another's: freed with the handler, off the core.
    spare: Option<Box<State>>,
    kind: Arc<str>,
    /// Of the readers, whose rows are in it while the stages work.
    interpreter: Interpreter,
    /// Of the programs behind the stages.
    within: Interpreter,
    wants_time: bool,
    counters: HandlerCounters,
    errors: RowErrorCounts,
    first_error: Option<String>,
}

/// Makes rows of an input from the records.
#[derive(Debug)]
struct Reader {
    port: Port,
    program: Program,
    filter: Filter,
    /// How rows are made; `None` where they are the records.
    rows: Option<RowPlan>,
    /// Of a batch, the records that pass the conditions; where there are several readers.
    passed: Selection,
    /// Whether that is all that were selected.
    passes_all: bool,
    /// The number of these that made no row.
    left_out: u64,
}

impl StatefulHandler {
    /// A handler for records of one stream and format; `readers` are the places where the query reads that stream, with the program
    /// that makes the rows of each from these records.
    ///
    /// # Errors
    /// In words: a program does not fit the place that it makes rows for, or a stage its formats; it looks rows up in a table.
    pub fn new(program: Arc<StatefulProgram>, readers: Vec<(Port, Program)>) -> Result<StatefulHandler, String> {
        StatefulHandler::with_tables(program, readers, &Tables::default())
    }

    /// The same for a query that may look rows up in these reference tables: in the rows that they have now, until it is
    /// [ordered](TableOrder) to take others.
    ///
    /// # Errors
    /// As [`StatefulHandler::new`]; a table is not there.
    pub fn with_tables(
        program: Arc<StatefulProgram>,
        readers: Vec<(Port, Program)>,
        tables: &Tables,
    ) -> Result<StatefulHandler, String> {
        let (state, tables, thens) = (State::of(&program)?, StageTables::of(&program, tables)?, Then::all(&program)?);
        let reader = |(port, reads): (Port, Program)| {
            let input = program.stages.get(port.stage).and_then(|stage| stage.inputs.get(port.input));
            if !input.is_some_and(|input| input.row == reads.output) {
                return Err("what is read from the stream does not fit its stage".to_owned());
            }
            let filter = Filter::of(&reads.filter, &reads.input);
            let rows = match &reads.projection {
                Projection::All => None,
                Projection::Fields(outputs) => Some(RowPlan::of(outputs, &reads.input, &reads.output)),
            };
            Ok(Reader {
                port,
                program: reads,
                filter,
                rows,
                passed: Selection::default(),
                passes_all: false,
                left_out: 0,
            })
        };
        let readers: Vec<Reader> = readers.into_iter().map(reader).collect::<Result<_, String>>()?;
        if readers.iter().any(|reader| reader.program.input != readers[0].program.input) {
            return Err("a handler reads records of one format".to_owned());
        }
        Ok(StatefulHandler {
            thens,
            tables,
            kind: kind_of(&program).into(),
            wants_time: program.stages.iter().any(wants_time),
            state: Some(Box::new(state)),
            spare: None,
            interpreter: Interpreter::new(),
            within: Interpreter::new(),
            counters: HandlerCounters::default(),
            errors: RowErrorCounts::default(),
            first_error: None,
            program,
            readers,
        })
    }

    /// The query.
    pub fn program(&self) -> &StatefulProgram {
        &self.program
    }

    /// How many bytes its state takes; 0 while another handler has it.
    pub fn state_bytes(&self) -> usize {
        self.state.as_ref().map_or(0, |state| state.used())
    }

    /// The conditions of its readers and how they make rows, with their forms.
    pub fn steps(&self) -> Vec<ProgramPart> {
        let mut steps = Vec::new();
        for Reader { program, filter, rows, .. } in &self.readers {
            for condition in filter.conditions() {
                let Some(expr) = program.filter.get(condition.number) else { continue };
                let form = if condition.kernel.is_some() { Form::Kernel } else { Form::Interpreted };
                steps.push(ProgramPart { condition: expr.sql(&program.input).to_string(), form });
            }
            let form = match rows {
                None => Form::Direct,
                Some(plan) if plan.only_copies() => Form::Kernel,
                Some(_) => Form::Interpreted,
            };
            steps.push(ProgramPart { condition: String::new(), form });
        }
        steps
    }

    /// The handler in parts that can be worked on together; `None` where there can be no state.
    fn parts<'h>(&'h mut self, out: &'h mut dyn Sink) -> Option<Parts<'h>> {
        if self.state.is_none() {
            self.state = State::of(&self.program).ok().map(Box::new);
            debug_assert!(self.state.is_some(), "a state was made once from this program");
        }
        let StatefulHandler { readers, thens, tables, state, counters, errors, first_error, .. } = self;
        let flow = Flow { out, made: 0, late: 0, errors: 0, error: None, interpreter: &mut self.within, tables };
        let reading = Reading { interpreter: &mut self.interpreter, counters, errors, first_error };
        Some(Parts { readers, thens, state: state.as_mut()?, flow, reading })
    }
}

struct Parts<'h> {
    readers: &'h mut [Reader],
    thens: &'h mut [Thens],
    state: &'h mut State,
    flow: Flow<'h>,
    reading: Reading<'h>,
}

/// The counts of the readers, and the means that they run with.
struct Reading<'h> {
    interpreter: &'h mut Interpreter,
    counters: &'h mut HandlerCounters,
    errors: &'h mut RowErrorCounts,
    first_error: &'h mut Option<String>,
}

impl Parts<'_> {
    /// Takes the records of a batch through the only reader.
    fn read_one(&mut self, batch: &Batch, selection: &mut Selection) {
        let Parts { readers, thens, state, flow, reading: Reading { interpreter, counters, errors, first_error } } =
            self;
        let Some(Reader { port, program, filter, rows, .. }) = readers.first_mut() else { return };
        let (mut taken, mut failed, came) = (0, 0, selection.len() as u64);
        let mut note = |error: EvalError, record: &Record<'_>| {
            failed += 1;
            errors[RowError::from(error) as usize] += 1;
            first_error.get_or_insert_with(|| program.example(error, record));
        };
        filter.narrow(&program.filter, &program.input, interpreter, batch, selection, &mut note);
        let (count, mut records) = (selection.len(), Records::of(batch));
        let mut selected = selection.into_iter().map(|index| records.record(index));
        let mut take = |rows: &[&[u8]]| {
            taken += rows.len() as u64;
            state.take(thens, *port, rows, flow);
        };
        match rows {
            None => {
                let mut chunk: [&[u8]; CHUNK_RECORDS] = [&[]; CHUNK_RECORDS];
                loop {
                    let filled = chunk.iter_mut().zip(selected.by_ref()).map(|(place, record)| *place = record).count();
                    if filled == 0 {
                        break;
                    }
                    take(chunk.get(..filled).unwrap_or_default());
                }
            }
            Some(plan) => {
                let note = |record, error| note(error, &Record::assume_checked(&program.input, record));
                plan.make_all((count, selected), &program.input, interpreter, note, take);
            }
        }
        counters.taken += taken;
        counters.row_errors += failed;
        state.count_source(*port, came, taken);
    }

    /// Takes the records of a batch, each through all readers: one that two read goes to both before the next one does. It is taken
    /// if one of them takes it, and a row error if none does and one failed.
    fn read_all(&mut self, batch: &Batch, selection: &Selection) {
        let Parts { readers, thens, state, flow, reading: Reading { interpreter, counters, errors, first_error } } =
            self;
        for Reader { program, filter, passed, passes_all, .. } in readers.iter_mut() {
            passed.clone_from(selection);
            if !program.filter.iter().any(crossdock_query::Expr::is_fallible) {
                filter.narrow(&program.filter, &program.input, interpreter, batch, passed, |_, _| {});
            }
            *passes_all = passed.len() == selection.len();
        }
        let mut records = Records::of(batch);
        for index in selection {
            let bytes = records.record(index);
            let (mut is_taken, mut failed) = (false, None);
            for reader in readers.iter_mut().filter(|reader| reader.passes_all || reader.passed.contains(index)) {
                let port = reader.port;
                match reader.make(bytes, interpreter) {
                    Ok(Some(row)) => {
                        is_taken = true;
                        state.take(thens, port, &[row.unwrap_or(bytes)], flow);
                    }
                    Ok(None) => reader.left_out += 1,
                    Err(error) => {
                        reader.left_out += 1;
                        failed = Some(error);
                        let record = Record::assume_checked(&reader.program.input, bytes);
                        first_error.get_or_insert_with(|| reader.program.example(error, &record));
                    }
                }
            }
            counters.taken += u64::from(is_taken);
            if let Some(error) = failed.filter(|_| !is_taken) {
                counters.row_errors += 1;
                errors[RowError::from(error) as usize] += 1;
            }
        }
        for reader in readers.iter_mut() {
            let rows = (reader.passed.len() as u64).saturating_sub(std::mem::take(&mut reader.left_out));
            state.count_source(reader.port, selection.len() as u64, rows);
        }
    }

    /// Counts what became of rows; returns how many left.
    fn finish(self) -> usize {
        let Flow { made, late, errors, error, .. } = self.flow;
        let Reading { counters, first_error, .. } = self.reading;
        let lost = self.state.take_lost();
        counters.late += late + lost.late;
        counters.forgotten += lost.forgotten;
        counters.stage_errors += errors;
        self.state.count_rows(self.thens, made as u64);
        if let Some(error) = error {
            first_error.get_or_insert_with(|| format!("a row of the query: {error}"));
        }
        made
    }
}

impl Reader {
    /// Runs its program on a record that passes the conditions without row errors: the row, `Some(None)` where it is the record, or
    /// `None` if it does not pass.
    #[expect(clippy::option_option, reason = "a record that passes is a row as it is, or is made one")]
    fn make(&mut self, record: &[u8], interpreter: &mut Interpreter) -> Result<Option<Option<&[u8]>>, EvalError> {
        let Reader { program, rows, .. } = self;
        if program.filter.iter().any(crossdock_query::Expr::is_fallible)
            && !interpreter.matches(program, &Record::assume_checked(&program.input, record))?
        {
            return Ok(None);
        }
        match rows {
            None => Ok(Some(None)),
            Some(plan) => plan.make(record, &program.input, interpreter).map(|row| Some(Some(row))),
        }
    }
}

impl Handler for StatefulHandler {
    fn operator_counters(&self, report: &mut dyn FnMut(usize, OperatorCounters)) {
        self.state.iter().for_each(|state| state.operator_counters(report));
    }

    fn state_bytes(&self) -> usize {
        StatefulHandler::state_bytes(self)
    }

    fn max_state_bytes(&self) -> usize {
        self.program.max_state_bytes
    }

    /// Known of the state of a stream without subscriptions: nothing leaves it.
    fn most_out_bytes(&self) -> Option<usize> {
        self.state.as_ref().filter(|state| state.is_silent()).map(|_| 0)
    }

    fn process(&mut self, batch: &Batch, selection: &mut Selection, out: &mut dyn Sink) -> Verdict {
        self.counters.records_in += selection.len() as u64;
        let taken = self.counters.taken;
        let is_one = self.readers.len() == 1;
        let Some(mut parts) = self.parts(out) else { return Verdict::Drop };
        if is_one {
            parts.read_one(batch, selection);
        } else {
            parts.read_all(batch, selection);
        }
        parts.state.settle_gathered(parts.thens, &mut parts.flow);
        match parts.finish() {
            0 if self.counters.taken > taken => Verdict::Hold,
            made => Verdict::emit(made),
        }
    }

    fn counters(&self) -> HandlerCounters {
        self.counters
    }

    fn refusal(&self) -> Option<String> {
        self.first_error.clone()
    }

    fn take_row_errors(&mut self) -> RowErrorCounts {
        std::mem::take(&mut self.errors)
    }

    fn warm(&mut self, piece: &mut WarmPiece) {
        for Reader { program, filter, rows, .. } in &mut self.readers {
            piece.touch_fields(&program.input);
            filter.warm(piece);
            rows.iter_mut().for_each(|rows| rows.warm(piece));
        }
        piece.own(std::slice::from_mut(&mut self.counters));
    }

    fn state_kind(&self) -> Option<&str> {
        Some(&self.kind)
    }

    fn shares_state(&self) -> bool {
        true
    }

    fn hand_over(&mut self) -> Option<HandlerState> {
        Some(HandlerState::new(Arc::clone(&self.kind), self.state.take()?))
    }

    fn take_over(&mut self, state: HandlerState) -> Result<(), HandlerState> {
        let mut taken: Box<State> = state.of_kind(&self.kind)?;
        taken.adopt(&self.program);
        if let Some(before) = self.state.replace(taken) {
            self.spare = Some(before);
        }
        Ok(())
    }

    fn save(&self, out: &mut Vec<u8>) -> bool {
        let Some(state) = &self.state else { return false };
        saved::begin(&self.kind, out);
        state.save(out);
        true
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), SavedStateError> {
        let mut from = saved::open(saved, &self.kind)?;
        let mut state = State::of(&self.program).map_err(|_| SavedStateError::OtherKind)?;
        state.restore(&mut from)?;
        self.state = Some(Box::new(state));
        Ok(())
    }

    fn wants_time(&self) -> bool {
        self.wants_time
    }

    fn advance(&mut self, now_ns: u64, out: &mut dyn Sink) -> usize {
        let Some(mut parts) = self.parts(out) else { return 0 };
        parts.state.advance(parts.thens, now_ns, &mut parts.flow);
        parts.finish()
    }

    fn has_walk(&self) -> bool {
        self.state.as_ref().is_some_and(|state| state.has_walk())
    }

    fn walk(&mut self, out: &mut dyn Sink) -> usize {
        let Some(mut parts) = self.parts(out) else { return 0 };
        parts.state.walk_on(parts.thens, &mut parts.flow);
        parts.finish()
    }

    fn set_parameters(&mut self, values: &mut ParameterValues) -> bool {
        if let Some(order) = values.get_mut::<TableOrder>() {
            return self.tables.exchange(order);
        }
        let Some(order) = values.get_mut::<StateOrder>() else { return false };
        // It goes to the state, whichever of those that share it has it.
        self.state.iter_mut().for_each(|state| state.order(*order));
        true
    }

    fn end_stream(&mut self) {
        if let Some(state) = &mut self.state {
            self.readers.iter().for_each(|reader| state.end(reader.port));
        }
    }

    fn due_ns(&self) -> Option<u64> {
        self.state.as_ref()?.due()
    }
}

/// Whether a stage closes windows or lets go of rows: by the clock, or a part at a time.
fn wants_time(stage: &Stage) -> bool {
    match &stage.operator {
        Operator::Union | Operator::Over(_) | Operator::Lookup(_) => false,
        Operator::Aggregate(aggregation) => aggregation.window != Window::Running,
        Operator::Join(join) => join.is_bounded(),
        Operator::Asof(_) | Operator::Latest(_) | Operator::First(_) => true,
    }
}

/// The kind of a query's state: all that its layout depends on, and the meaning of the values in it, which is that of the expressions that
/// make the stages' rows. Conditions on rows before a stage may differ.
fn kind_of(program: &StatefulProgram) -> String {
    let mut kind = "stateful/1".to_owned();
    // Writing to a text does not fail.
    for (number, stage) in program.stages.iter().enumerate() {
        for (input, of) in stage.inputs.iter().enumerate() {
            let _ = write!(kind, " {}@{:?}", of.row.id(), of.time);
            let port = Port { stage: number, input };
            let source = program.sources.iter().find(|source| source.port == port).map(|source| &source.program);
            let before = || program.before(port).map(|(stage, output)| &program.stages[stage].outputs[output].then);
            if let Some(before) = source.or_else(before) {
                kind.push_str(&columns_of(before));
            }
        }
        let _ = write!(kind, " -> {} ", stage.rows.id());
        for output in &stage.outputs {
            let _ = write!(kind, "{:?} ", output.to);
        }
        let _ = match &stage.operator {
            Operator::Union => write!(kind, "union;"),
            Operator::Aggregate(aggregation) => write!(kind, "{aggregation:?};"),
            Operator::Over(over) => write!(kind, "{over:?};"),
            Operator::First(first) => write!(kind, "{first:?};"),
            Operator::Asof(asof) => write!(kind, "{asof:?};"),
            Operator::Latest(latest) => write!(kind, "latest {:?};", latest.keys),
            Operator::Lookup(TableLookup { kind: of, table, keys, columns, condition, .. }) => {
                write!(kind, "{of:?} table {table:?} {keys:?} {columns:?} {:?};", conditions_of(condition.as_ref()))
            }
            Operator::Join(join) => {
                let conditions = conditions_of(join.condition.as_ref());
                write!(kind, "{:?} {:?} {:?} {conditions:?};", join.kind, join.keys, join.within_ns)
            }
        };
    }
    kind
}

/// The conditions on pairs, as SQL with the values of parameters.
fn conditions_of(program: Option<&Program>) -> Vec<String> {
    let of = |program: &Program| {
        let text = |condition: &crossdock_query::Expr| condition.sql(&program.input).with_values().to_string();
        program.filter.iter().map(text).collect()
    };
    program.map(of).unwrap_or_default()
}

/// The columns that a program makes, as SQL with the values of parameters.
fn columns_of(program: &Program) -> String {
    let columns: Vec<String> = match &program.projection {
        Projection::All => vec!["*".to_owned()],
        Projection::Fields(outputs) => {
            outputs.iter().map(|output| output.expr.sql(&program.input).with_values().to_string()).collect()
        }
    };
    format!(" of {:?} {columns:?}", program.stream)
}
