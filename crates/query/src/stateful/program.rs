//! A query with state once its names and types are settled: stages that keep rows or groups, and the programs between them.
//!
//! Rows between stages are records of natural formats. Work that needs no state (conditions on one stream, columns and expressions
//! that later stages read) is done by the [`Program`]s in front of and behind the stages, so that a stage sees few and small rows.

use crossdock_format::{FieldType, Format};

use crate::parse::SortDirection;
use crate::program::Program;

/// The bound of a query's state, in bytes, where it has no clause `MAX STATE`.
pub const MAX_STATE_BYTES: usize = 256 << 20;

/// The policy of a state at its bound: the group, key or row that was there first, or was not used for the longest, goes, and is counted.
pub const STATE_POLICY: &str = "sheds the oldest";

/// The most hopping windows that a row is in.
pub const MAX_WINDOWS: u64 = 4096;

/// The most rows before the present one that a frame of OVER begins with, and that `lag` goes back.
pub const MAX_ROWS_BEFORE: u32 = 1000;

/// The input of a stage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Port {
    /// The stage, by its place in [`StatefulProgram::stages`].
    pub stage: usize,
    /// Its input, from 0.
    pub input: usize,
}

/// A query with state, planned.
#[derive(Clone, Debug)]
pub struct StatefulProgram {
    /// The text that it was planned from.
    pub sql: String,
    /// The stages. Each gives its rows to some behind it; the last one makes the output.
    pub stages: Vec<Stage>,
    /// The places where it reads streams.
    pub sources: Vec<StreamSource>,
    /// The most bytes that its state may take; past that the oldest goes, and is counted.
    pub max_state_bytes: usize,
    /// Whether its records are changes (`CHANGES`): the last column says which kind of change each is.
    pub changes: bool,
}

/// A place where a query with state reads a stream. A stream that is joined with itself has two.
#[derive(Clone, Debug)]
pub struct StreamSource {
    /// The stream, by its name.
    pub stream: String,
    /// Where the rows go.
    pub port: Port,
    /// From records of the stream to rows of the port, for the format that decided the rows' types. Its input is this format, or what the
    /// view leaves of it that the query reads the stream through.
    pub program: Program,
}

/// A step that keeps state.
#[derive(Clone, Debug)]
pub struct Stage {
    /// Its inputs.
    pub inputs: Vec<StageInput>,
    /// Its work.
    pub operator: Operator,
    /// The format of the rows that the operator makes.
    pub rows: Format,
    /// The places where its rows go, never none: several where the query has the part that ends here several times. Each row goes to all of
    /// them, in this order, before the next one does.
    pub outputs: Vec<StageOutput>,
}

/// A place where a stage's rows go.
#[derive(Clone, Debug)]
pub struct StageOutput {
    /// The work that follows on these rows: HAVING, the select list. Its output is the row of the next stage's input, or the query's output.
    pub then: Program,
    /// Where the output of `then` goes; `None` for the last stage: it is the query's output.
    pub to: Option<Port>,
}

/// An input of a stage.
#[derive(Clone, PartialEq, Debug)]
pub struct StageInput {
    /// The format of its rows.
    pub row: Format,
    /// The column with the event time, a timestamp; `None` where time is that of arrival, or has no part.
    pub time: Option<usize>,
    /// How much older than the newest a row may be and still count, in ns of event time. The input's *watermark* is its newest event
    /// time less this; a row from before a window or a join that its stage's watermark has closed is *late*, dropped and counted.
    pub lateness_ns: u64,
    /// Where the watermark is that of the stage that makes the rows, so that none of them is late: the time in its rows. The lateness
    /// is of no account then.
    pub derived: Option<DerivedTime>,
}

/// A time of a stage's rows that the stage knows a bound of: all rows that it is yet to make are at this bound or later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowTime {
    /// The start of a window of fixed length.
    WindowStart,
    /// The end of a window.
    WindowEnd,
    /// The time of a join's left row.
    Left,
    /// The time of a join's right row.
    Right,
    /// The end of a window of fixed length: all that end before this bound have left, also the one that ends at the watermark.
    Closed,
}

/// A time of a stage's rows, and an interval added to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DerivedTime {
    /// The time.
    pub of: RowTime,
    /// The interval, in ns.
    pub plus_ns: i64,
}

/// The work of a stage.
#[derive(Clone, PartialEq, Debug)]
pub enum Operator {
    /// The rows of all inputs, as they come; all are of one format.
    Union,
    /// Groups by key and window of one input.
    Aggregate(Aggregation),
    /// Values over the rows of one input that came before each.
    Over(OverRows),
    /// Pairs of rows of two inputs whose times are near each other.
    Join(IntervalJoin),
    /// Each row of the left input with the latest row of the right one by key.
    Asof(AsofJoin),
    /// Each row of one input with the rows of a reference table by key.
    Lookup(TableLookup),
    /// The last row by key of one input, and what changes.
    Latest(LatestByKey),
    /// The first rows of each window of one input, in order.
    First(FirstRows),
}

/// GROUP BY. Its rows are: the keys' columns, `window_start` and `window_end` (timestamps, not for [`Window::Running`]), one column
/// for each aggregate.
#[derive(Clone, PartialEq, Debug)]
pub struct Aggregation {
    /// The columns of the key; none: one group.
    pub keys: Vec<usize>,
    /// The window.
    pub window: Window,
    /// The aggregates.
    pub aggregates: Vec<Aggregate>,
    /// Whether its rows may be taken back or replaced: they come from groups that change. Only for [`Window::Running`].
    pub corrects: bool,
    /// Whether it gives the row that a group had together with the row that it has. Otherwise a step behind it, or the output, takes the
    /// present row of a group as a row of its own. Only for [`Window::Running`].
    pub gives_changes: bool,
}

/// How rows fall into windows. Windows of fixed length begin at multiples of their step since 1970-01-01 UTC, and contain their start, not
/// their end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Window {
    /// None: each row brings the present row of its group.
    Running,
    /// One window behind the other, of this many ns.
    Tumble {
        /// The length.
        size_ns: u64,
    },
    /// Windows that overlap.
    Hop {
        /// The length; a multiple of the slide, at most of [`MAX_WINDOWS`].
        size_ns: u64,
        /// From the start of one to the start of the next.
        slide_ns: u64,
    },
    /// From the first row of a key to the last that no pause of this many ns comes before.
    Session {
        /// The pause that ends it.
        gap_ns: u64,
    },
}

/// An aggregate.
#[derive(Clone, PartialEq, Debug)]
pub struct Aggregate {
    /// The function.
    pub function: AggregateFunction,
    /// The columns that it reads, by the function's number of arguments.
    pub arguments: Vec<usize>,
    /// Whether equal values count once.
    pub distinct: bool,
    /// A column of type bool: rows where it is not TRUE do not count (`FILTER (WHERE …)`).
    pub filter: Option<usize>,
    /// The type of the result, as its column in the rows has it.
    pub ty: FieldType,
}

/// A function over the rows of a group. Nulls do not count, but for `COUNT(*)`; a group without values gives null, COUNT 0.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum AggregateFunction {
    /// `COUNT(*)` without an argument, `COUNT(x)` with one.
    Count,
    /// The sum; whole numbers and decimals exactly, and a row error where it does not fit.
    Sum,
    /// The mean: of whole numbers and decimals a decimal, of floats a float.
    Avg,
    /// The least.
    Min,
    /// The greatest.
    Max,
    /// The standard deviation of a sample.
    StddevSamp,
    /// The standard deviation of a population.
    StddevPop,
    /// The variance of a sample.
    VarSamp,
    /// The variance of a population.
    VarPop,
    /// The value of the row that came first by event time; of rows of one time the least, and without event time by arrival.
    First,
    /// The value of the row that came last.
    Last,
    /// The first argument where the second is greatest; of equal ones that of the first row.
    ArgMax,
    /// The first argument where the second is least.
    ArgMin,
    /// About how many different values there are.
    ApproxCountDistinct,
    /// About the value below which this part of the values lies, 0 to 1.
    ApproxQuantile(f64),
    /// Whether all are true.
    BoolAnd,
    /// Whether one is true.
    BoolOr,
    /// The texts, joined by the separator, in order of time.
    StringAgg,
    /// The values as a list, in order of time; empty without values.
    ArrayAgg,
}

impl AggregateFunction {
    /// Whether a row can be taken out of it again.
    pub(super) fn can_correct(self) -> bool {
        use AggregateFunction as F;
        match self {
            F::Count | F::Sum | F::Avg | F::Min | F::Max | F::BoolAnd | F::BoolOr => true,
            F::StddevSamp | F::StddevPop | F::VarSamp | F::VarPop => true,
            F::First | F::Last | F::ArgMax | F::ArgMin => false,
            F::ApproxCountDistinct | F::ApproxQuantile(_) | F::StringAgg | F::ArrayAgg => false,
        }
    }
}

/// OVER. Each row of the input makes one at once, in the order in which they come: its first columns, then a column for each value.
#[derive(Clone, PartialEq, Debug)]
pub struct OverRows {
    /// The number of columns of the input that pass.
    pub passed: usize,
    /// The columns of each PARTITION BY; without columns all rows are together.
    pub partitions: Vec<Vec<usize>>,
    /// The values.
    pub values: Vec<OverValue>,
    /// For rows of groups that change: the columns that are the same in all rows of one group. A row that is replaced keeps its place among
    /// those of its partition, and brings the rows whose frames it is in. All frames begin with a row at a distance then.
    pub identity: Option<Vec<usize>>,
    /// How many rows before its own the longest frame begins, for rows of groups that change.
    pub reach: u32,
    /// Whether it gives a row that is replaced together with the one in its place.
    pub gives_changes: bool,
}

/// A value over the rows of a partition.
#[derive(Clone, PartialEq, Debug)]
pub struct OverValue {
    /// The partition, by its place in [`OverRows::partitions`].
    pub partition: usize,
    /// The function.
    pub function: OverFunction,
}

/// A function with OVER. Columns are those of the input.
#[derive(Clone, PartialEq, Debug)]
pub enum OverFunction {
    /// An aggregate of the rows of a frame.
    Aggregate(Aggregate, RowFrame),
    /// The value of a row before, null too.
    Lag {
        /// The column.
        column: usize,
        /// How many rows before the present one; 0 is the present one.
        rows: u32,
        /// The column of the present row that stands in for it where there is no such row; without one it is null then.
        default: Option<usize>,
    },
    /// The value of a frame's first row, null too.
    First {
        /// The column.
        column: usize,
        /// The frame.
        frame: RowFrame,
    },
}

/// The rows of a partition that count, by their distance from the present one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RowFrame {
    /// The distance of the first row, at most [`MAX_ROWS_BEFORE`]; `None`: it is the first of the partition.
    pub from: Option<u32>,
    /// The distance of the last row; not more than that of the first.
    pub until: u32,
}

/// Which rows leave a join that have no partner: with nulls in place of the partner's columns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JoinKind {
    /// None.
    Inner,
    /// Those of the left input.
    Left,
    /// Those of both inputs.
    Full,
}

/// `A JOIN B ON A.k = B.k AND B.ts BETWEEN A.ts - x AND A.ts + y`. Its rows are the columns of the left input, then those of the right
/// one. A row waits until the other input's watermark shows that no partner can come any more. [Without bounds](IntervalJoin::is_bounded)
/// both inputs are kept by key, and have no time.
#[derive(Clone, PartialEq, Debug)]
pub struct IntervalJoin {
    /// Which rows leave without a partner.
    pub kind: JoinKind,
    /// Columns that are equal, of the left and the right input; both of one type, and null equals nothing.
    pub keys: Vec<(usize, usize)>,
    /// The least and the greatest value of the right row's time less the left row's, in ns, both included; [`IntervalJoin::UNBOUNDED`]
    /// without bounds.
    pub within_ns: (i64, i64),
    /// Further conditions, over the stage's rows: a pair for which they do not hold is none.
    pub condition: Option<Program>,
}

/// `A ASOF [LEFT] JOIN B ON A.k = B.k AND A.ts >= B.ts`: each left row with the right row of its key that is latest and not later. Its
/// rows are the columns of the left input, then those of the right one. It keeps, by key, the right rows that left rows may need.
#[derive(Clone, PartialEq, Debug)]
pub struct AsofJoin {
    /// [`JoinKind::Inner`] or [`JoinKind::Left`].
    pub kind: JoinKind,
    /// Columns that are equal, of the left and the right input; both of one type, and null equals nothing.
    pub keys: Vec<(usize, usize)>,
    /// Whether the right row has to be earlier (`>` in place of `>=`).
    pub is_strict: bool,
    /// Whether a left row waits for the right input's watermark, so that the result does not depend on the order of arrival. Else it is
    /// joined at once with what has come.
    pub waits: bool,
}

/// `A [LEFT] JOIN T ON A.x = T.key`: each row of the only input with all rows of a reference table that have its key, as the table is when
/// the row comes. Its rows are the columns of the input, then the ones that are read of the table. It keeps nothing.
#[derive(Clone, PartialEq, Debug)]
pub struct TableLookup {
    /// [`JoinKind::Inner`] or [`JoinKind::Left`].
    pub kind: JoinKind,
    /// The table, by its name.
    pub table: String,
    /// The format of the table's rows.
    pub format: Format,
    /// The columns of the input that have the values of the table's key, in its order; null is the key of no row.
    pub keys: Vec<usize>,
    /// The columns of the key in the table's format.
    pub key: Vec<usize>,
    /// The columns of the table's format that are in the stage's rows, behind those of the input.
    pub columns: Vec<usize>,
    /// Further conditions, over the stage's rows: a row of the table for which they do not hold is none.
    pub condition: Option<Program>,
}

/// The last row by key. Its rows are those of its input, whose last column, of type u8, says what a row is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LatestByKey {
    /// The columns of the key.
    pub keys: Vec<usize>,
    /// The most keys; past that the one goes that had no row for the longest.
    pub max_keys: u64,
    /// The most bytes; past that the same.
    pub max_bytes: u64,
    /// How long a key is kept without a row, in ns.
    pub max_age_ns: Option<u64>,
}

/// `ORDER BY … LIMIT n` of windows: of the rows of each window the first ones, which leave in order once it is closed. Its rows are those of
/// its input, whose windows come in order of their ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FirstRows {
    /// The columns that rows are put in order by. The last ones are the key of the groups, so that no two rows of a window are equal.
    pub order: Vec<(usize, SortDirection)>,
    /// How many rows of a window leave at most.
    pub limit: u32,
    /// The columns with the start and the end of the window.
    pub window: (usize, usize),
    /// The length of a window.
    pub size_ns: u64,
}

impl IntervalJoin {
    /// No bounds of time.
    pub const UNBOUNDED: (i64, i64) = (i64::MIN, i64::MAX);

    /// Whether rows leave once no partner can come any more. The other kind is an inner join, whose rows stay until the state has reached
    /// its bound.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        self.within_ns != IntervalJoin::UNBOUNDED
    }
}

impl Stage {
    /// The time that a column of its rows has, if the stage knows a bound of it.
    pub(super) fn row_time(&self, column: usize) -> Option<RowTime> {
        let [left, right] = [0, 1].map(|input| self.inputs.get(input));
        let is_left = || left?.time.filter(|time| *time == column).map(|_| RowTime::Left);
        match &self.operator {
            Operator::Aggregate(Aggregation { keys, window, .. }) if *window != Window::Running => {
                match column.checked_sub(keys.len())? {
                    0 if !matches!(window, Window::Session { .. }) => Some(RowTime::WindowStart),
                    1 => Some(RowTime::WindowEnd),
                    _ => None,
                }
            }
            Operator::Join(_) => is_left().or_else(|| {
                let right = left?.row.fields().len() + right?.time?;
                (right == column).then_some(RowTime::Right)
            }),
            Operator::Asof(join) if join.waits => is_left(),
            Operator::First(FirstRows { window: (start, _), .. }) if *start == column => Some(RowTime::WindowStart),
            Operator::First(FirstRows { window: (_, end), .. }) if *end == column => Some(RowTime::WindowEnd),
            _ => None,
        }
    }

    /// The columns of its inputs' rows that a column of its rows lets pass as they arrive, each with its input; `None` if it makes the
    /// column, or lets rows wait.
    pub(super) fn passed(&self, column: usize) -> Option<Vec<(usize, usize)>> {
        match &self.operator {
            Operator::Union => Some((0..self.inputs.len()).map(|input| (input, column)).collect()),
            Operator::Aggregate(Aggregation { keys, window: Window::Running, .. }) => {
                keys.get(column).map(|key| vec![(0, *key)])
            }
            Operator::Over(over) => (column < over.passed).then(|| vec![(0, column)]),
            Operator::Asof(AsofJoin { waits: false, .. }) | Operator::Lookup(_) => {
                let left = self.inputs.first()?.row.fields().len();
                (column < left).then(|| vec![(0, column)])
            }
            _ => None,
        }
    }
}

/// The stage whose rows come to a port, and the number of the output that brings them.
pub(super) fn stage_before(stages: &[Stage], port: Port) -> Option<(usize, usize)> {
    let output_of = |stage: &Stage| stage.outputs.iter().position(|output| output.to == Some(port));
    stages.iter().enumerate().find_map(|(number, stage)| Some((number, output_of(stage)?)))
}

impl StatefulProgram {
    /// The format of the records that it makes.
    ///
    /// # Panics
    /// Never for a planned query, which has a stage, and this an output.
    #[must_use]
    pub fn output(&self) -> &Format {
        &self.stages[self.stages.len() - 1].outputs[0].then.output
    }

    /// The stage whose rows come to a port, and which of its outputs brings them; `None` where they come from a stream.
    #[must_use]
    pub fn before(&self, port: Port) -> Option<(usize, usize)> {
        stage_before(&self.stages, port)
    }

    /// The names of the reference tables that it looks rows up in, each once.
    #[must_use]
    pub fn tables(&self) -> Vec<&str> {
        let mut tables: Vec<&str> = (self.stages.iter())
            .filter_map(|stage| match &stage.operator {
                Operator::Lookup(lookup) => Some(lookup.table.as_str()),
                _ => None,
            })
            .collect();
        tables.sort_unstable();
        tables.dedup();
        tables
    }
}
