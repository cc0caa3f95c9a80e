//! Rows of a join: columns of a left row and of a right one, and the programs behind them.

use crossdock_format::convert::Moves;
use crossdock_format::{Field, FieldType, Format, Record, RecordBuilder};
use crossdock_query::{EvalError, Expr, Interpreter, Operator as Plan, Output, Program, Projection, Stage};

use super::moment::{Change, Emit, Made, Pair, refused};
use super::row_tests::RowTests;
use super::word::WordColumn;
use crate::kernel::{FieldPosition, is_null, slot_text};
use crate::project::{RowPlan, append, set_null};

/// Most pairs of a chunk: their columns are moved column by column, and a step does for all of them what it has to do once.
pub(super) const CHUNK: usize = 32;
/// Fewer pairs than this are made one by one.
const FEW: usize = 4;
/// About how many bytes the rows of a chunk have together: they are to stay in the nearest cache.
const CHUNK_BYTES: usize = 12 << 10;

/// A column of a row that is one of a side.
#[derive(Clone, Copy, Debug)]
pub(super) struct SideColumn {
    /// Its place in the row.
    place: usize,
    side: usize,
    /// Its place in the side's rows.
    column: usize,
}

/// The two sides of a join, and the columns of its rows.
#[derive(Clone, Debug)]
pub(super) struct Sides<'p> {
    formats: [&'p Format; 2],
    columns: Vec<SideColumn>,
    rows: &'p Format,
}

impl<'p> Sides<'p> {
    /// Those of a stage; nothing if it is no join.
    ///
    /// # Errors
    /// In words: its rows have other columns.
    pub(super) fn of(stage: &'p Stage) -> Result<Option<Sides<'p>>, String> {
        let Some(left) = stage.inputs.first().map(|input| &input.row) else { return Ok(None) };
        let (right, of_right) = match &stage.operator {
            Plan::Join(_) | Plan::Asof(_) => {
                let right = &stage.inputs.get(1).ok_or("a join has two inputs")?.row;
                (right, (0..right.fields().len()).collect())
            }
            Plan::Lookup(lookup) => (&lookup.format, lookup.columns.clone()),
            _ => return Ok(None),
        };
        Sides::new([left, right], of_right, &stage.rows).map(Some)
    }

    /// Rows of all columns of the left side, then of these of the right one.
    pub(super) fn new(formats: [&'p Format; 2], of_right: Vec<usize>, rows: &'p Format) -> Result<Sides<'p>, String> {
        let of_left = (0..formats[0].fields().len()).map(|column| (0, column));
        let all = of_left.chain(of_right.into_iter().map(|column| (1, column)));
        let columns: Vec<SideColumn> =
            all.enumerate().map(|(place, (side, column))| SideColumn { place, side, column }).collect();
        let sides = Sides { formats, columns, rows };
        if sides.columns.len() != rows.fields().len() || sides.columns.iter().any(|of| sides.field(of).is_none()) {
            return Err("the rows of a join have the columns of both inputs".to_owned());
        }
        Ok(sides)
    }

    fn field(&self, of: &SideColumn) -> Option<&'p Field> {
        self.formats.get(of.side)?.fields().get(of.column)
    }

    /// These conditions on its rows as tests of the sides' rows; `None` if one of them needs more.
    fn tests(&self, conditions: &[Expr]) -> Option<RowTests> {
        RowTests::of_pairs(conditions, self.rows, &|index| {
            let of = self.columns.get(index)?;
            let is_same = self.field(of)?.ty == self.rows.fields().get(index)?.ty;
            WordColumn::of(self.formats.get(of.side)?, of.column).filter(|_| is_same).map(|column| (of.side, column))
        })
    }
}

/// Makes the rows in a buffer that is used again.
#[derive(Debug)]
pub(super) struct Pairs {
    sides: [Side; 2],
    /// The columns of the variable part, in the order of the row: their sides, where they are there, and where in the row.
    texts: Box<[(usize, FieldPosition, FieldPosition)]>,
    /// The fixed part of a row before its columns are in it: its length, where all have the same, zeros, and what is the same in all.
    blank: Box<[u8]>,
    row: Vec<u8>,
    /// The pairs of a chunk, where all rows have the same length; else 0.
    chunk: usize,
    /// Blank rows, and rows, of a chunk.
    blanks: Box<[u8]>,
    rows: Box<[u8]>,
    /// Set where a column is no plain load or slot: then all are set by value.
    by_value: Option<Box<RecordBuilder>>,
}

#[derive(Debug)]
struct Side {
    format: Format,
    columns: Box<[SideColumn]>,
    /// Those of the fixed part.
    moves: Moves,
    /// Where all of them are in the row.
    places: Box<[FieldPosition]>,
}

impl Pairs {
    /// The rows of a join.
    pub(super) fn of(sides: &Sides<'_>) -> Pairs {
        Pairs::with(sides.formats, &sides.columns, sides.rows, vec![0; sides.rows.fixed_bytes()].into())
    }

    /// The rows behind a select list on a join's rows; `None` where it does more than to copy columns.
    fn selected(sides: &Sides<'_>, program: &Program, rows: &RowPlan) -> Option<Pairs> {
        let (blank, Projection::Fields(outputs)) = (rows.blank_of_copies()?, &program.projection) else { return None };
        let column = |(place, output): (usize, &Output)| {
            let of = sides.columns.get(output.plain_field()?)?;
            Some(SideColumn { place, ..*of })
        };
        // The others are the same in all rows.
        let columns: Vec<SideColumn> = outputs.iter().enumerate().filter_map(column).collect();
        let pairs = Pairs::with(sides.formats, &columns, &program.output, blank.into());
        pairs.by_value.is_none().then_some(pairs)
    }

    fn with(formats: [&Format; 2], columns: &[SideColumn], rows: &Format, mut blank: Box<[u8]>) -> Pairs {
        let from = |of: &SideColumn| formats.get(of.side).and_then(|format| format.fields().get(of.column));
        let fields = || columns.iter().filter_map(|of| Some((of, from(of)?, rows.fields().get(of.place)?)));
        let plain = |(_, from, to): (&SideColumn, &Field, &Field)| {
            from.is_plain()
                && to.is_plain()
                && (from.ty, from.size, &from.detail) == (to.ty, to.size, &to.detail)
                && (to.nullable || !from.nullable)
                && from.ty != FieldType::List
        };
        let by_value = !fields().all(plain) || rows.is_foreign();
        let side = |side: usize| {
            let own = || fields().filter(move |(of, ..)| of.side == side);
            let fixed = own().filter(|(_, from, _)| !from.ty.is_variable() && !by_value);
            Side {
                format: Format::clone(formats[side]),
                columns: own().map(|(of, ..)| *of).collect(),
                moves: Moves::new(formats[side], rows, fixed.map(|(of, ..)| (of.column, of.place))),
                places: own().map(|(.., to)| FieldPosition::of(to)).collect(),
            }
        };
        let texts = fields().filter(|(_, from, _)| from.ty.is_variable());
        let texts: Box<[_]> =
            texts.map(|(of, from, to)| (of.side, FieldPosition::of(from), FieldPosition::of(to))).collect();
        let mut chunk = 0;
        if texts.is_empty() && !by_value {
            let length = blank.len();
            blank.first_chunk_mut().into_iter().for_each(|word| *word = (length as u32).to_le_bytes());
            chunk = (CHUNK_BYTES / length.max(1)).clamp(1, CHUNK);
        }
        let blanks: Box<[u8]> = blank.repeat(chunk).into();
        let by_value = by_value.then(|| Box::new(RecordBuilder::new(rows)));
        let (sides, rows) = ([side(0), side(1)], blanks.clone());
        Pairs { sides, texts, blank, row: Vec::new(), chunk, blanks, rows, by_value }
    }

    /// The row of two rows; nulls in place of one that is not there.
    #[inline]
    pub(super) fn make(&mut self, pair: Pair<'_>) -> Result<&[u8], EvalError> {
        let Pairs { sides, texts, blank, row, by_value, .. } = self;
        if let Some(builder) = by_value {
            return set_all(sides, builder, pair);
        }
        row.clear();
        row.extend_from_slice(blank);
        for (side, of_side) in sides.iter().zip(pair) {
            match of_side {
                Some(bytes) => side.moves.run(bytes, row),
                None => side.set_nulls(row),
            }
        }
        if texts.is_empty() {
            return Ok(row);
        }
        for &(side, from, to) in texts.iter() {
            let Some(bytes) = pair.get(side).copied().flatten() else { continue };
            if is_null(bytes, from) {
                set_null(row, to);
            } else {
                append(row, to, slot_text(bytes, from.at))?;
            }
        }
        let length = row.len().next_multiple_of(8);
        row.resize(length, 0);
        if let Some(word) = row.first_chunk_mut() {
            *word = (length as u32).to_le_bytes();
        }
        Ok(row)
    }

    /// The rows of the pairs of a chunk, back to back, and the length of each.
    #[inline]
    fn make_chunk(&mut self, pairs: &[Pair<'_>]) -> (&[u8], usize) {
        let Pairs { sides, blank, blanks, rows, .. } = self;
        let (row_bytes, length) = (blank.len().max(1), pairs.len() * blank.len());
        let (rows, blanks) = (rows.get_mut(..length).unwrap_or_default(), blanks.get(..length).unwrap_or_default());
        rows.copy_from_slice(blanks);
        for (number, side) in sides.iter().enumerate() {
            let mut own: [&[u8]; CHUNK] = [&[]; CHUNK];
            for ((own, pair), row) in own.iter_mut().zip(pairs).zip(rows.chunks_exact_mut(row_bytes)) {
                match pair.get(number).copied().flatten() {
                    Some(bytes) => *own = bytes,
                    // Of the empty record in its place nothing is moved.
                    None => side.set_nulls(row),
                }
            }
            side.moves.run_all(own.get(..pairs.len()).unwrap_or_default(), rows);
        }
        (rows, row_bytes)
    }
}

impl Side {
    fn set_nulls(&self, row: &mut [u8]) {
        self.places.iter().for_each(|place| set_null(row, *place));
    }
}

fn set_all<'r>(sides: &[Side; 2], builder: &'r mut RecordBuilder, pair: Pair<'_>) -> Result<&'r [u8], EvalError> {
    builder.clear();
    for (side, row) in sides.iter().zip(pair) {
        let record = row.map(|row| Record::assume_checked(&side.format, row));
        for SideColumn { place, column, .. } in &side.columns {
            let set = match &record {
                Some(record) => builder.set(*place, record.get(*column)),
                None => builder.set_null(*place),
            };
            set.map_err(|error| refused(&error))?;
        }
    }
    builder.finish().map_err(|_| EvalError::RecordTooLong)
}

/// The program behind a join, for pairs: its conditions and its select list work on the sides' rows themselves where that is all that
/// they need.
#[derive(Debug)]
pub(super) struct PairPlan {
    /// The conditions, if they need no row of both sides.
    tests: Option<RowTests>,
    /// Makes the row behind the select list if it `is_direct`, else that of both sides.
    pairs: Pairs,
    is_direct: bool,
}

impl PairPlan {
    /// The plan for a program that follows a stage, which makes rows so; nothing if the stage is no join.
    ///
    /// # Errors
    /// In words: the columns do not fit.
    pub(super) fn of(stage: &Stage, program: &Program, rows: Option<&RowPlan>) -> Result<Option<PairPlan>, String> {
        let Some(sides) = Sides::of(stage)? else { return Ok(None) };
        let tests = sides.tests(&program.filter);
        let direct = match rows {
            _ if tests.is_none() => None,
            None => Some(Pairs::of(&sides)),
            Some(rows) => Pairs::selected(&sides, program, rows),
        };
        let is_direct = direct.is_some();
        let pairs = direct.unwrap_or_else(|| Pairs::of(&sides));
        Ok(Some(PairPlan { tests, pairs, is_direct }))
    }

    /// Whether the conditions hold for a pair, as far as is known from the sides.
    #[inline]
    pub(super) fn may_pass(&self, pair: Pair<'_>) -> bool {
        self.tests.as_ref().is_none_or(|tests| tests.hold_pair(pair))
    }

    /// The conditions that are yet to be looked at on its row, and whether that is to be run through the select list.
    #[inline]
    pub(super) fn rest(&self) -> (bool, bool) {
        (self.tests.is_none(), !self.is_direct)
    }

    /// The row of a pair.
    #[inline]
    pub(super) fn make(&mut self, pair: Pair<'_>) -> Result<&[u8], EvalError> {
        self.pairs.make(pair)
    }

    /// Hands over what is made of these pairs that pass, if all of them can be made together: rows back to back, and the length of
    /// each. Whether they can.
    #[inline]
    pub(super) fn make_all(&mut self, pairs: &[Pair<'_>], mut made: impl FnMut(&[u8], usize)) -> bool {
        let PairPlan { tests, pairs: rows, is_direct } = self;
        let is_chunk = *is_direct && pairs.len() >= FEW && rows.chunk >= FEW;
        let Some(tests) = tests.as_ref().filter(|_| is_chunk) else { return false };
        for pairs in pairs.chunks(rows.chunk) {
            if tests.is_empty() {
                let (rows, length) = rows.make_chunk(pairs);
                made(rows, length);
                continue;
            }
            let mut passed: [Pair<'_>; CHUNK] = [[None; 2]; CHUNK];
            let passing = pairs.iter().filter(|pair| tests.hold_pair(**pair));
            let count = passed.iter_mut().zip(passing).fold(0, |count, (place, pair)| {
                *place = *pair;
                count + 1
            });
            let (rows, length) = rows.make_chunk(passed.get(..count).unwrap_or_default());
            made(rows, length);
        }
        true
    }
}

/// The further conditions on the pairs of a join.
#[derive(Debug)]
pub(super) enum PairCondition {
    /// Of the sides' rows.
    Tests(RowTests),
    /// Of rows of both.
    Interpreted(Box<Interpreted>),
}

#[derive(Debug)]
pub(super) struct Interpreted {
    program: Program,
    pairs: Pairs,
    interpreter: Interpreter,
}

impl PairCondition {
    /// The conditions of a join with these sides.
    pub(super) fn of(condition: Option<&Program>, sides: &Sides<'_>) -> PairCondition {
        let conditions: &[Expr] = condition.map_or(&[], |program| &program.filter);
        match (sides.tests(conditions), condition) {
            (None, Some(program)) => {
                let (program, pairs, interpreter) = (program.clone(), Pairs::of(sides), Interpreter::new());
                PairCondition::Interpreted(Box::new(Interpreted { program, pairs, interpreter }))
            }
            (tests, _) => PairCondition::Tests(tests.unwrap_or_default()),
        }
    }

    /// Emits a pair for which the conditions hold, as one that comes or as one that goes; whether they do.
    #[inline]
    pub(super) fn emit(&mut self, pair: Pair<'_>, comes: bool, emit: Emit<'_>) -> bool {
        match self {
            PairCondition::Tests(tests) => {
                let holds = tests.hold_pair(pair);
                if holds {
                    emit(Ok(Made::Pair { pair, comes }));
                }
                holds
            }
            PairCondition::Interpreted(interpreted) => interpreted.emit(pair, comes, emit),
        }
    }
}

impl Interpreted {
    fn emit(&mut self, pair: Pair<'_>, comes: bool, emit: Emit<'_>) -> bool {
        let Interpreted { program, pairs, interpreter } = self;
        let made = pairs.make(pair).and_then(|row| {
            let holds = interpreter.matches(program, &Record::assume_checked(&program.input, row))?;
            Ok(holds.then_some(row))
        });
        let made = made.map(|row| row.map(|row| if comes { Change::row(row) } else { Change::gone(row) }));
        let holds = matches!(made, Ok(Some(_)));
        made.map(|change| change.map(Made::Change)).transpose().into_iter().for_each(emit);
        holds
    }
}

/// Emits a row of a side without a partner.
pub(super) fn emit_alone(side: usize, bytes: &[u8], emit: Emit<'_>) {
    emit(Ok(Made::pair(if side == 0 { [Some(bytes), None] } else { [None, Some(bytes)] })));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use super::*;
    use crossdock_format::Value;
    use crossdock_query::{Query, parse_query};
    use std::collections::BTreeMap;

    const LEFT: &str = "k char[3]\na i64 null\nt timestamp\nword string null\nd f64 null\nb bool\n";
    const RIGHT: &str = "rk char[3]\nx i64\nu timestamp\nnote string\ny f32 null\nz bool null\n";

    fn stage(query: &str) -> Stage {
        let formats = [LEFT, RIGHT].map(|schema| Format::parse_schema(schema).unwrap());
        let Query::Stateful(query) = parse_query(query).unwrap() else { panic!("it has no join") };
        let streams = [("l", &formats[0]), ("r", &formats[1])];
        query.plan(&streams, &BTreeMap::new()).unwrap().stages.pop().unwrap()
    }

    /// A row of any values, many of them null.
    fn row(format: &Format, random: &mut fastrand::Rng) -> Vec<u8> {
        let mut row = RecordBuilder::new(format);
        for (index, field) in format.fields().iter().enumerate() {
            let text = "w".repeat(random.usize(0..4));
            let value = match field.ty {
                _ if field.nullable && random.bool() => Value::Null,
                FieldType::I64 => Value::Int(random.i64(-3..3)),
                FieldType::Timestamp => Value::Timestamp(random.i64(-3..3)),
                FieldType::F32 | FieldType::F64 => Value::Float(f64::from(random.i8(..))),
                FieldType::Bool => Value::Bool(random.bool()),
                _ => Value::Text(text.as_bytes()),
            };
            row.set(index, value).unwrap();
        }
        row.finish().unwrap().to_vec()
    }

    /// The row that the program makes of that of both sides.
    fn by_whole(stage: &Stage, pair: Pair<'_>) -> Option<Vec<u8>> {
        let (mut whole, program) = (Pairs::of(&Sides::of(stage).unwrap().unwrap()), &stage.outputs[0].then);
        let (row, mut interpreter) = (whole.make(pair).unwrap().to_vec(), Interpreter::new());
        let record = Record::check(&program.input, &row).unwrap();
        if !interpreter.matches(program, &record).unwrap() {
            return None;
        }
        Some(match &program.projection {
            Projection::All => row,
            Projection::Fields(outputs) => {
                let mut plan = RowPlan::of(outputs, &program.input, &program.output);
                plan.make(&row, &program.input, &mut interpreter).unwrap().to_vec()
            }
        })
    }

    /// For pairs with both sides and with one, one by one and in chunks of all lengths.
    #[test]
    fn a_pair_gives_the_row_that_the_row_of_both_sides_gives() {
        const JOIN: &str = "LEFT JOIN r ON l.k = r.rk AND r.u BETWEEN l.t - INTERVAL '1 second' AND l.t";
        let mut random = fastrand::Rng::with_seed(7);
        for (select, rest, is_direct) in [
            ("l.a, r.x, r.y, l.b", "", true),
            ("r.y, l.d, l.d AS again, r.z, l.k, 7 AS n, r.rk", "", true),
            ("r.note, l.word, r.x, l.word AS again", "", true),
            ("*", "", true),
            ("r.x, l.a", "WHERE l.a < r.x AND r.u <= l.t", true),
            ("r.note, l.a", "WHERE l.a BETWEEN -1 AND 1", true),
            ("l.a + r.x AS sum, l.d, r.note", "", false),
            ("l.a * 2 AS twice, r.x", "WHERE l.a <> r.x", false),
            ("l.a, r.x", "WHERE l.a + 1 > r.x OR r.z IS NULL", false),
        ] {
            let stage = stage(&format!("SELECT {select} FROM l {JOIN} {rest}"));
            let program = &stage.outputs[0].then;
            let plan_of = |outputs: &Vec<Output>| RowPlan::of(outputs, &program.input, &program.output);
            let rows = match &program.projection {
                Projection::All => None,
                Projection::Fields(outputs) => Some(plan_of(outputs)),
            };
            let mut plan = PairPlan::of(&stage, program, rows.as_ref()).unwrap().unwrap();
            assert_eq!(plan.is_direct, is_direct, "{select} {rest}");
            let sides = [&stage.inputs[0].row, &stage.inputs[1].row];
            let both: Vec<[Option<Vec<u8>>; 2]> = (0..70)
                .map(|_| {
                    let [left, right] = sides.map(|format| row(format, &mut random));
                    [Some(left), (random.u8(..) > 50).then_some(right)]
                })
                .collect();
            let pairs: Vec<Pair<'_>> = both.iter().map(|pair| [pair[0].as_deref(), pair[1].as_deref()]).collect();
            let wanted: Vec<Option<Vec<u8>>> = pairs.iter().map(|pair| by_whole(&stage, *pair)).collect();
            for (pair, wanted) in pairs.iter().zip(&wanted) {
                let passes = plan.may_pass(*pair);
                if plan.is_direct {
                    let made = passes.then(|| plan.make(*pair).unwrap().to_vec());
                    assert_eq!(&made, wanted, "{select} {rest}: {pair:?}");
                }
                assert!(passes || wanted.is_none(), "{select} {rest}: {pair:?}");
            }
            for count in [1, 4, 31, 32, 33, 70] {
                let mut made = Vec::new();
                if plan.make_all(&pairs[..count], |rows, length| made.extend(rows.chunks(length).map(<[u8]>::to_vec))) {
                    let wanted: Vec<_> = wanted[..count].iter().flatten().cloned().collect();
                    assert_eq!(made, wanted, "{select} {rest}");
                }
            }
        }
    }
}
