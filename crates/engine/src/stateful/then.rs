//! The programs behind stages.

use crossdock_format::Record;
use crossdock_query::{EvalError, Interpreter, Port, Program, Projection, Stage, StageOutput, StatefulProgram};

use super::moment::Pair;
use super::pair::PairPlan;
use super::row_tests::RowTests;
use crate::kernel::FieldPosition;
use crate::project::RowPlan;

/// The parts that follow behind a stage, one for each place where its rows go.
pub(super) type Thens = Vec<Then>;

/// A part that follows behind a stage.
#[derive(Debug)]
pub(super) struct Then {
    program: Program,
    /// Its conditions, if they need no interpreter.
    tests: Option<RowTests>,
    rows: Option<RowPlan>,
    /// Behind a join.
    pub(super) pairs: Option<PairPlan>,
    pub(super) to: Option<Port>,
    /// Where a record says which kind of change it is, if it does.
    pub(super) word: Option<FieldPosition>,
    /// The row that another takes the place of.
    pub(super) former: Vec<u8>,
    /// Rows that went to another stage, which are yet to be counted.
    pub(super) passed: u64,
}

/// A row that a stage makes: in one piece, or in the form of a join's two sides.
#[derive(Clone, Copy)]
pub(super) enum StageRow<'r> {
    Whole(&'r [u8]),
    Pair(Pair<'r>),
}

impl Then {
    /// The programs behind the stages.
    ///
    /// # Errors
    /// In words: one does not fit its stage.
    pub(super) fn all(program_of: &StatefulProgram) -> Result<Vec<Thens>, String> {
        let then = |stage: &Stage, StageOutput { then, to }: &StageOutput| -> Result<Then, String> {
            let program = then.clone();
            let rows = match &program.projection {
                Projection::All => None,
                Projection::Fields(outputs) => Some(RowPlan::of(outputs, &program.input, &program.output)),
            };
            let word = then.output.fields().last().filter(|_| program_of.changes && to.is_none());
            let (to, word) = (*to, word.map(FieldPosition::of));
            let tests = RowTests::of(&program.filter, &program.input);
            let pairs = PairPlan::of(stage, &program, rows.as_ref())?;
            Ok(Then { program, tests, rows, pairs, to, word, former: Vec::new(), passed: 0 })
        };
        let thens = |stage: &Stage| -> Result<Thens, String> {
            stage.outputs.iter().map(|output| then(stage, output)).collect()
        };
        program_of.stages.iter().map(thens).collect()
    }

    /// The row that the program makes of one; nothing if it does not pass.
    #[inline]
    pub(super) fn made<'m>(
        &'m mut self,
        row: &'m [u8],
        interpreter: &mut Interpreter,
    ) -> Result<Option<&'m [u8]>, EvalError> {
        let Then { program, tests, rows, .. } = self;
        if !passes(program, tests.as_ref(), row, interpreter)? {
            return Ok(None);
        }
        selected(program, rows, row, interpreter)
    }

    /// The same of the row of a join, made of its two sides.
    #[inline]
    pub(super) fn made_of_pair(
        &mut self,
        pair: Pair<'_>,
        interpreter: &mut Interpreter,
    ) -> Result<Option<&[u8]>, EvalError> {
        let Then { program, tests, rows, pairs: Some(pairs), .. } = self else {
            debug_assert!(false, "a stage that makes pairs has a plan for them");
            return Ok(None);
        };
        if !pairs.may_pass(pair) {
            return Ok(None);
        }
        let (has_conditions, has_columns) = pairs.rest();
        let row = pairs.make(pair)?;
        if has_conditions && !passes(program, tests.as_ref(), row, interpreter)? {
            return Ok(None);
        }
        if has_columns { selected(program, rows, row, interpreter) } else { Ok(Some(row)) }
    }

    /// The same in either form.
    pub(super) fn made_of<'m>(
        &'m mut self,
        row: StageRow<'m>,
        interpreter: &mut Interpreter,
    ) -> Result<Option<&'m [u8]>, EvalError> {
        match row {
            StageRow::Whole(row) => self.made(row, interpreter),
            StageRow::Pair(pair) => self.made_of_pair(pair, interpreter),
        }
    }
}

/// Whether the conditions of a program hold for a row.
#[inline]
fn passes(
    program: &Program,
    tests: Option<&RowTests>,
    row: &[u8],
    interpreter: &mut Interpreter,
) -> Result<bool, EvalError> {
    match tests {
        Some(tests) => Ok(tests.hold(row)),
        None => interpreter.matches(program, &Record::assume_checked(&program.input, row)),
    }
}

/// The columns of a program for a row that passes.
#[inline]
fn selected<'m>(
    program: &Program,
    rows: &'m mut Option<RowPlan>,
    row: &'m [u8],
    interpreter: &mut Interpreter,
) -> Result<Option<&'m [u8]>, EvalError> {
    match rows {
        Some(plan) => plan.make(row, &program.input, interpreter).map(Some),
        None => Ok(Some(row)),
    }
}
