//! Conditions on one row that need no interpreter: comparisons of columns of eight bytes with constants and with each other.

use crossdock_format::{FieldType, Format};
use crossdock_query::{CompareOp, Expr, Node};

use super::moment::Pair;
use super::word::WordColumn;
use crate::kernel::{FieldPosition, Kernel};
use crate::key::Load;

/// Conditions that all have to be TRUE. None of them can have a row error.
#[derive(Debug, Default)]
pub(super) struct RowTests(Box<[RowTest]>);

#[derive(Clone, Copy, Debug)]
enum RowTest {
    /// Within the bounds, or outside of them.
    Range { column: TestColumn, low: i64, high: i64, outside: bool },
    /// Two columns of one type.
    Order { left: TestColumn, op: CompareOp, right: TestColumn },
}

/// A column, and the row that has it: of one row the first, of a join's two its side.
#[derive(Clone, Copy, Debug)]
struct TestColumn {
    side: usize,
    column: WordColumn,
}

/// The columns of the rows that the conditions are on, with their sides.
struct Columns<'c> {
    format: &'c Format,
    of: &'c dyn Fn(usize) -> Option<(usize, WordColumn)>,
}

impl RowTests {
    /// The tests for these conditions on rows of a format; `None` if one of them has another form.
    pub(super) fn of(conditions: &[Expr], format: &Format) -> Option<RowTests> {
        RowTests::of_pairs(conditions, format, &|index| Some((0, WordColumn::of(format, index)?)))
    }

    /// The tests for conditions on rows of this format, whose columns are on the sides of a join: which, and where there.
    pub(super) fn of_pairs(
        conditions: &[Expr],
        format: &Format,
        of: &dyn Fn(usize) -> Option<(usize, WordColumn)>,
    ) -> Option<RowTests> {
        let (columns, mut tests) = (Columns { format, of }, Vec::with_capacity(conditions.len()));
        conditions.iter().try_for_each(|condition| columns.add(condition, &mut tests))?;
        Some(RowTests(tests.into()))
    }

    /// Whether there are none.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether all of them are TRUE for a row.
    #[inline]
    pub(super) fn hold(&self, row: &[u8]) -> bool {
        self.all(|of| of.column.get(row))
    }

    /// Whether all of them are TRUE for the row of both sides, where the columns of one that is not there are null.
    #[inline]
    pub(super) fn hold_pair(&self, pair: Pair<'_>) -> bool {
        self.all(|of| of.column.get(pair.get(of.side).copied().flatten()?))
    }

    #[inline(always)]
    fn all(&self, word: impl Fn(TestColumn) -> Option<i64>) -> bool {
        self.0.iter().all(|test| match *test {
            RowTest::Range { column, low, high, outside } => {
                word(column).is_some_and(|word| (low..=high).contains(&word) != outside)
            }
            RowTest::Order { left, op, right } => match (word(left), word(right)) {
                (Some(left), Some(right)) => op.holds(left.cmp(&right)),
                _ => false,
            },
        })
    }
}

impl Columns<'_> {
    fn add(&self, condition: &Expr, tests: &mut Vec<RowTest>) -> Option<()> {
        match &condition.node {
            Node::And(all) => return all.iter().try_for_each(|condition| self.add(condition, tests)),
            Node::Compare { op, left, right } if right.as_known().is_none() => {
                tests.push(self.order(left, *op, right)?);
            }
            Node::Between { negated: false, operand, low, high } if low.as_known().is_none() => {
                tests.push(self.order(operand, CompareOp::Ge, low)?);
                tests.push(self.order(operand, CompareOp::Le, high)?);
            }
            _ => match Kernel::of(condition, self.format)? {
                Kernel::Range { place, load: Load::I64, low, high, outside } => {
                    let index =
                        self.format.fields().iter().position(|field| FieldPosition::of(field).at == place.at)?;
                    tests.push(RowTest::Range { column: self.column(index)?, low, high, outside });
                }
                _ => return None,
            },
        }
        Some(())
    }

    fn column(&self, index: usize) -> Option<TestColumn> {
        WordColumn::of(self.format, index)?;
        let (side, column) = (self.of)(index)?;
        Some(TestColumn { side, column })
    }

    /// The comparison of two columns of one type.
    fn order(&self, left: &Expr, op: CompareOp, right: &Expr) -> Option<RowTest> {
        let column = |expr: &Expr| -> Option<(TestColumn, FieldType)> {
            let Node::Field(index) = expr.node else { return None };
            let ty = self.format.fields().get(index)?.ty;
            self.column(index).filter(|_| ty == expr.ty).map(|column| (column, ty))
        };
        let ((left, of_left), (right, of_right)) = (column(left)?, column(right)?);
        (of_left == of_right).then_some(RowTest::Order { left, op, right })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use super::*;
    use crossdock_format::{Record, RecordBuilder};
    use crossdock_query::{Interpreter, parse};

    /// For all rows of a few numbers and nulls, also those at both ends.
    #[test]
    fn they_say_what_the_interpreter_says() {
        let format = Format::parse_schema("a i64 null\nb i64\nt timestamp\nu timestamp null\n").unwrap();
        let numbers = [i64::MIN, -1, 0, 1, 7, i64::MAX];
        let mut rows = Vec::new();
        let mut row = RecordBuilder::new(&format);
        for a in numbers.map(Some).into_iter().chain([None]) {
            for b in numbers {
                for u in [Some(-1), Some(5), None] {
                    row.clear();
                    a.into_iter().for_each(|a| row.set_i64(0, a).unwrap());
                    row.set_i64(1, b).unwrap();
                    row.set_timestamp(2, b / 2).unwrap();
                    u.into_iter().for_each(|u| row.set_timestamp(3, u).unwrap());
                    rows.push(row.finish().unwrap().to_vec());
                }
            }
        }
        for condition in [
            "a < b",
            "a = b",
            "b <> a",
            "a >= b AND b > 0",
            "a BETWEEN b AND b",
            "t BETWEEN u AND t",
            "u <= t",
            "a > 3",
            "b <> 7",
            "a BETWEEN -1 AND 1",
            "b NOT BETWEEN 0 AND 5",
            "t < TIMESTAMP '1970-01-01'",
        ] {
            let program = parse(&format!("SELECT * FROM s WHERE {condition}")).unwrap().plan(&format).unwrap();
            let tests = RowTests::of(&program.filter, &format).unwrap_or_else(|| panic!("{condition}"));
            for row in &rows {
                let record = Record::assume_checked(&format, row);
                let holds = Interpreter::new().matches(&program, &record).unwrap();
                assert_eq!(tests.hold(row), holds, "{condition}: {record:?}");
            }
        }
        for condition in ["a + 1 > b", "a < b OR a > 3", "a IS NULL", "a NOT BETWEEN b AND 3"] {
            let program = parse(&format!("SELECT * FROM s WHERE {condition}")).unwrap().plan(&format).unwrap();
            assert!(RowTests::of(&program.filter, &format).is_none(), "{condition}");
        }
    }
}
