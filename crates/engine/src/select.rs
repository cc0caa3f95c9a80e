//! The handler of a query: WHERE narrows the selection, the select list makes new records.

use std::fmt;

use crossdock_format::{MAX_RECORD_BYTES, Record};
use crossdock_mailbox::{Batch, Selection};
use crossdock_query::{EvalError, Interpreter, Program, Projection};

use crate::filter::{Filter, reach};
use crate::handler::{Handler, HandlerCounters, ParameterValues, Sink, Verdict};
use crate::kernel::Records;
use crate::project::RowPlan;
use crate::row_error::{RowError, RowErrorCounts};
use crate::warm::WarmPiece;

/// Runs one program over batches of the format that it was planned for.
///
/// Which records pass, and what their rows hold, is what the interpreter says; row errors are counted the same. The
/// conditions run over the batch one after the other; cheap ones come first where no row error could show it.
///
/// Verdicts: [`Verdict::Forward`] for `SELECT *`, [`Verdict::Emit`] for a select list, [`Verdict::Drop`] if nothing
/// leaves.
#[derive(Debug)]
pub struct SelectHandler {
    resolved: Resolved,
    interpreter: Interpreter,
    counters: HandlerCounters,
    errors: Errors,
}

/// The row errors of a query.
#[derive(Debug, Default)]
pub(crate) struct Errors {
    /// Those that were not asked for yet.
    pub(crate) counts: RowErrorCounts,
    pub(crate) first: Option<String>,
}

impl Errors {
    #[cold]
    pub(crate) fn note(&mut self, error: EvalError, program: &Program, record: &Record<'_>) {
        self.counts[RowError::from(error) as usize] += 1;
        self.first.get_or_insert_with(|| program.example(error, record));
    }
}

/// A program, and what was resolved of it.
#[derive(Debug)]
struct Resolved {
    program: Program,
    filter: Filter,
    /// How rows are made; `None` where they are the records.
    rows: Option<RowPlan>,
}

impl Resolved {
    fn of(program: Program) -> Resolved {
        let filter = Filter::of(&program.filter, &program.input);
        let rows = match &program.projection {
            Projection::All => None,
            Projection::Fields(outputs) => Some(RowPlan::of(outputs, &program.input, &program.output)),
        };
        Resolved { program, filter, rows }
    }
}

/// How a part of a program runs. `Display` gives one word, or `unchanged`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Form {
    /// Resolved to loads, comparisons and copies at known offsets.
    Kernel,
    /// By the interpreter, expression by expression.
    Interpreted,
    /// Not at all: records leave as they came.
    Direct,
    /// Written in Rust.
    Native,
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Form::Kernel => "kernel",
            Form::Interpreted => "interpreted",
            Form::Direct => "unchanged",
            Form::Native => "native",
        })
    }
}

/// A part of a program, and how it runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProgramPart {
    /// A condition as SQL; empty for the select list, which comes last, and for a native handler.
    pub condition: String,
    /// How it runs.
    pub form: Form,
}

impl SelectHandler {
    /// Resolves the program's common forms; done once for a subscription and format.
    pub fn new(program: Program) -> SelectHandler {
        let (resolved, interpreter) = (Resolved::of(program), Interpreter::new());
        SelectHandler { resolved, interpreter, counters: HandlerCounters::default(), errors: Errors::default() }
    }

    /// Makes values of a query's parameters ready for [`Handler::set_parameters`] of a handler of that query and format:
    /// `program` is its program [with these values](Program::with_values).
    pub fn prepare(program: Program) -> ParameterValues {
        ParameterValues::new(Resolved::of(program))
    }

    /// The program that it runs.
    pub fn program(&self) -> &Program {
        &self.resolved.program
    }

    /// The conditions in the order in which they run, and the select list, with their forms.
    pub fn steps(&self) -> Vec<ProgramPart> {
        let Resolved { program, filter, rows } = &self.resolved;
        let conditions = filter.conditions().iter().filter_map(|condition| {
            let expr = program.filter.get(condition.number);
            debug_assert!(expr.is_some(), "a condition's number is its place in the program");
            let expr = expr?;
            let form = if condition.kernel.is_some() { Form::Kernel } else { Form::Interpreted };
            Some(ProgramPart { condition: expr.sql(&program.input).to_string(), form })
        });
        let form = match rows {
            None => Form::Direct,
            Some(plan) if plan.only_copies() => Form::Kernel,
            Some(_) => Form::Interpreted,
        };
        conditions.chain([ProgramPart { condition: String::new(), form }]).collect()
    }
}

impl Handler for SelectHandler {
    fn process(&mut self, batch: &Batch, selection: &mut Selection, out: &mut dyn Sink) -> Verdict {
        let SelectHandler { resolved: Resolved { program, filter, rows }, interpreter, counters, errors } = self;
        counters.records_in += selection.len() as u64;
        filter.narrow(&program.filter, &program.input, interpreter, batch, selection, |error, record| {
            counters.row_errors += 1;
            errors.note(error, program, record);
        });
        let Some(plan) = rows else {
            counters.passed += selection.len() as u64;
            return Verdict::forward(selection);
        };
        let mut made = 0;
        let outputs = match &program.projection {
            Projection::Fields(outputs) => &outputs[..],
            Projection::All => &[],
        };
        let within = reach(outputs.iter().map(|output| &output.expr), &program.input, batch);
        let (count, mut records) = (selection.len(), Records::within(batch, within));
        let selected = selection.into_iter().map(|index| records.record(index));
        let note = |record, error| {
            counters.row_errors += 1;
            // One in pieces is a batch alone.
            let whole = if batch.is_in_pieces() { batch.record(0) } else { record };
            errors.note(error, program, &Record::assume_checked(&program.input, whole));
        };
        plan.make_all((count, selected), &program.input, interpreter, note, |rows| {
            rows.iter().for_each(|row| out.push(row));
            made += rows.len();
        });
        counters.passed += made as u64;
        Verdict::emit(made)
    }

    fn counters(&self) -> HandlerCounters {
        self.counters
    }

    fn refusal(&self) -> Option<String> {
        self.errors.first.clone()
    }

    fn take_row_errors(&mut self) -> RowErrorCounts {
        std::mem::take(&mut self.errors.counts)
    }

    fn most_out_bytes(&self) -> Option<usize> {
        let Resolved { program: Program { output, .. }, rows, .. } = &self.resolved;
        let is_variable = output.fields().iter().any(|field| field.ty.is_variable());
        // Records that leave unchanged are no longer than those that came.
        rows.as_ref().map(|_| if is_variable { MAX_RECORD_BYTES } else { output.fixed_bytes() })
    }

    fn warm(&mut self, piece: &mut WarmPiece) {
        let Resolved { program, filter, rows } = &mut self.resolved;
        piece.touch_fields(&program.input);
        filter.warm(piece);
        rows.iter_mut().for_each(|rows| rows.warm(piece));
        piece.own(std::slice::from_mut(&mut self.counters));
    }

    fn set_parameters(&mut self, values: &mut ParameterValues) -> bool {
        match values.get_mut::<Resolved>() {
            Some(other)
                if other.program.sql == self.resolved.program.sql
                    && other.program.input == self.resolved.program.input =>
            {
                std::mem::swap(other, &mut self.resolved);
                if let (Some(rows), Some(before)) = (&mut self.resolved.rows, &mut other.rows) {
                    rows.exchange_memory(before);
                }
                true
            }
            _ => false,
        }
    }
}
