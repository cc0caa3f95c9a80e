//! WHERE over a whole batch: one condition after the other narrows the selection.

use crossdock_format::{FieldType, Format, Record};
use crossdock_mailbox::{Batch, Selection};
use crossdock_query::{EvalError, Expr, Interpreter, Node};

use crate::kernel::{FieldPosition, Kernel, Records};
use crate::warm::WarmPiece;

/// The conditions that must all be TRUE, in the order in which they run.
#[derive(Debug)]
pub(crate) struct Filter {
    conditions: Vec<Condition>,
}

/// One condition, with its number in the program's list.
#[derive(Debug)]
pub(crate) struct Condition {
    pub(crate) number: usize,
    pub(crate) kernel: Option<Kernel>,
}

/// The cost of an interpreted condition beside a kernel's nanoseconds.
const INTERPRETED_COST: u32 = 30;

impl Filter {
    /// Finds the kernels among a program's conditions, and puts the cheap ones first, but moves nothing past a condition
    /// that can have a row error: which records have one must not depend on the order.
    pub(crate) fn of(conditions: &[Expr], format: &Format) -> Filter {
        let mut ordered: Vec<Condition> = Vec::with_capacity(conditions.len());
        let mut run_start = 0;
        for (number, condition) in conditions.iter().enumerate() {
            let kernel = Kernel::of(condition, format);
            let is_fallible = kernel.is_none() && condition.is_fallible();
            ordered.push(Condition { number, kernel });
            if is_fallible {
                let end = ordered.len() - 1;
                ordered[run_start..end].sort_by_key(Condition::cost);
                run_start = ordered.len();
            }
        }
        ordered[run_start..].sort_by_key(Condition::cost);
        Filter { conditions: ordered }
    }

    /// In the order in which they run.
    pub(crate) fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    /// Reads through what its kernels compare with.
    pub(crate) fn warm(&self, piece: &mut WarmPiece) {
        self.conditions.iter().filter_map(|condition| condition.kernel.as_ref()).for_each(|kernel| kernel.warm(piece));
    }

    /// Keeps the selected records that pass every condition; shows those that had a row error.
    pub(crate) fn narrow(
        &self,
        conditions: &[Expr],
        format: &Format,
        interpreter: &mut Interpreter,
        batch: &Batch,
        selection: &mut Selection,
        mut failed: impl FnMut(EvalError, &Record<'_>),
    ) {
        for condition in &self.conditions {
            if selection.is_empty() {
                break;
            }
            match (&condition.kernel, conditions.get(condition.number)) {
                (Some(kernel), _) => kernel.narrow(batch, selection),
                (None, Some(expr)) => {
                    let mut records = Records::within(batch, reach([expr], format, batch));
                    selection.narrow(|index| {
                        let record = Record::assume_checked(format, records.record(index));
                        match interpreter.holds(expr, &record) {
                            Ok(truth) => truth == Some(true),
                            Err(error) => {
                                failed(error, &Record::assume_checked(format, batch.record(index)));
                                false
                            }
                        }
                    });
                }
                (None, None) => debug_assert!(false, "a condition's number is its place in the program"),
            }
        }
    }
}

impl Condition {
    fn cost(&self) -> u32 {
        self.kernel.as_ref().map_or(INTERPRETED_COST, Kernel::cost)
    }
}

/// How many of a record's first bytes expressions read; it is only looked for where the batch is a record in pieces.
pub(crate) fn reach<'e>(exprs: impl IntoIterator<Item = &'e Expr>, format: &Format, batch: &Batch) -> usize {
    if !batch.is_in_pieces() {
        return usize::MAX;
    }
    let ends = exprs.into_iter().map(|expr| end_of(expr, format, batch));
    ends.max().unwrap_or(0).max(format.fixed_bytes())
}

fn end_of(expr: &Expr, format: &Format, batch: &Batch) -> usize {
    let Node::Field(index) = expr.node else {
        return expr.operands().into_iter().map(|operand| end_of(operand, format, batch)).max().unwrap_or(0);
    };
    match format.fields().get(index) {
        Some(field) if field.is_plain() && field.ty != FieldType::List => {
            FieldPosition::of(field).end(batch, (!field.ty.is_variable()).then_some(field.size as usize))
        }
        // The bytes of a list's elements may lie anywhere.
        _ => usize::MAX,
    }
}
