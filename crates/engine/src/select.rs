//! The handler of a query: WHERE narrows the selection, the select list makes new records.

use crossdock_format::{Record, RecordBuilder};
use crossdock_mailbox::{Batch, Selection};
use crossdock_query::{Interpreter, Program, Projection};

use crate::filter::Filter;
use crate::handler::{Handler, HandlerCounters, Sink, Verdict};
use crate::kernel::Records;
use crate::project::CopyPlan;

/// Runs one program over batches of the format that it was planned for.
///
/// Which records pass, and what their rows hold, is what the interpreter says; row errors are counted the same. The
/// conditions run over the batch one after the other; cheap ones come first where no row error could tell.
///
/// Verdicts: [`Verdict::Forward`] for `SELECT *`, [`Verdict::Emit`] for a select list, [`Verdict::Drop`] if nothing
/// leaves.
#[derive(Debug)]
pub struct SelectHandler {
    program: Program,
    filter: Filter,
    rows: Rows,
    interpreter: Interpreter,
    counters: HandlerCounters,
}

/// How output rows come to be.
#[derive(Debug)]
enum Rows {
    /// They are the records.
    AsTheyAre,
    /// Plain fields are copied.
    Copied(Box<CopyPlan>),
    /// There are expressions among them.
    Computed(Box<RecordBuilder>),
}

/// How a part of a program runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Resolved to loads, comparisons and copies at known offsets.
    Kernel,
    /// By the interpreter, expression by expression.
    Interpreted,
    /// Not at all: records leave as they came.
    AsTheyAre,
}

/// A part of a program, and how it runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// A condition as SQL; empty for the select list, which comes last.
    pub condition: String,
    /// How it runs.
    pub form: Form,
}

impl SelectHandler {
    /// Resolves the program's common forms; done once for a subscription and format.
    pub fn new(program: Program) -> SelectHandler {
        let filter = Filter::of(&program.filter, &program.input);
        let rows = match &program.projection {
            Projection::All => Rows::AsTheyAre,
            Projection::Fields(outputs) => match CopyPlan::of(outputs, &program.input, &program.output) {
                Some(plan) => Rows::Copied(Box::new(plan)),
                None => Rows::Computed(Box::new(RecordBuilder::new(&program.output))),
            },
        };
        SelectHandler { program, filter, rows, interpreter: Interpreter::new(), counters: HandlerCounters::default() }
    }

    /// The program that it runs.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The conditions in the order in which they run, and the select list, with their forms.
    pub fn steps(&self) -> Vec<Step> {
        let conditions = self.filter.conditions().iter().filter_map(|condition| {
            let expr = self.program.filter.get(condition.number)?;
            let form = if condition.kernel.is_some() { Form::Kernel } else { Form::Interpreted };
            Some(Step { condition: expr.sql(&self.program.input).to_string(), form })
        });
        let form = match self.rows {
            Rows::AsTheyAre => Form::AsTheyAre,
            Rows::Copied(_) => Form::Kernel,
            Rows::Computed(_) => Form::Interpreted,
        };
        conditions.chain([Step { condition: String::new(), form }]).collect()
    }

    /// Makes the rows of the selected records; returns how many, and how many had a row error.
    fn emit(&mut self, batch: &Batch, selection: &Selection, out: &mut dyn Sink) -> (usize, u64) {
        let (mut made, mut row_errors) = (0, 0);
        let mut records = Records::of(batch);
        match &mut self.rows {
            Rows::AsTheyAre => made = selection.len(),
            Rows::Copied(plan) => {
                for index in selection {
                    match plan.copy(records.record(index)) {
                        Some(row) => {
                            out.push(row);
                            made += 1;
                        }
                        None => row_errors += 1,
                    }
                }
            }
            Rows::Computed(row) => {
                for index in selection {
                    let record = Record::assume_checked(&self.program.input, records.record(index));
                    match self.interpreter.project(&self.program, &record, row) {
                        Ok(()) => match row.finish() {
                            Ok(row) => {
                                out.push(row);
                                made += 1;
                            }
                            Err(_) => row_errors += 1,
                        },
                        Err(_) => row_errors += 1,
                    }
                }
            }
        }
        (made, row_errors)
    }
}

impl Handler for SelectHandler {
    fn process(&mut self, batch: &Batch, selection: &mut Selection, out: &mut dyn Sink) -> Verdict {
        self.counters.records_in += selection.len() as u64;
        let program = &self.program;
        self.counters.row_errors +=
            self.filter.narrow(&program.filter, &program.input, &mut self.interpreter, batch, selection);
        if selection.is_empty() {
            return Verdict::Drop;
        }
        let (passed, row_errors) = self.emit(batch, selection, out);
        self.counters.passed += passed as u64;
        self.counters.row_errors += row_errors;
        match self.rows {
            Rows::AsTheyAre => Verdict::Forward,
            _ if passed == 0 => Verdict::Drop,
            _ => Verdict::Emit(passed),
        }
    }

    fn counters(&self) -> HandlerCounters {
        self.counters
    }
}
