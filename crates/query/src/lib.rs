//! SQL text → a checked plan → typed expression code, and the interpreter that says what it means.
//!
//! [`parse`] reads one query of PostgreSQL's dialect; [`Select::plan`] settles its names and types against a format and
//! gives a [`Program`]; an [`Interpreter`] runs programs over records. [`parse_query`] also reads queries that join, group
//! and combine streams, which [`StatefulQuery::plan`] makes a [`StatefulProgram`] of: stages that keep state, with
//! programs between them. Names are resolved once per format, never per
//! message. Other forms of a program (native code and the like) are held to the interpreter.
//!
//! # The dialect
//!
//! `SELECT` columns and expressions `FROM` one stream `WHERE` a condition. The list may have `*` (with expressions
//! beside it), aliases, and columns qualified by the stream's name or alias. Everything else that SQL has is refused at
//! its place.
//!
//! * **Names** match exactly; a name without quotes also matches the only column that differs from it in case alone.
//!   A column of the output has the name that AS gives it, else that of its column, else the one PostgreSQL gives it
//!   (`case`, `coalesce`, `nullif`, `?column?`); a name that is taken gets `_2`, `_3` … behind it.
//! * **Operators**: `+ - * / % ^`, `||`, `~ ~* !~ !~*`, `-> ->> #> #>>`, `= <> < <= > >=`, `AND OR NOT`, `[NOT] IN (list)`, `[NOT] BETWEEN`, `[NOT] LIKE`
//!   and `ILIKE` with `ESCAPE`, `IS [NOT] NULL | TRUE | FALSE | UNKNOWN`, `IS [NOT] DISTINCT FROM`, `CASE` in both
//!   forms, `CAST` and `::`. **Functions** are those of the table [`FUNCTIONS`].
//! * **Null** follows SQL's three-valued logic. A record passes if WHERE is TRUE, not if it is null.
//! * **Order of evaluation.** The conditions that WHERE joins by AND are computed from left to right, up to the first
//!   that is not TRUE. Within an expression AND ends at the first FALSE, OR at the first TRUE, IN at the first that is
//!   equal; CASE and COALESCE compute what they choose and nothing after it.
//! * **Row errors.** Overflow, division by zero, a CAST that cannot be done: the record is counted and dropped, the
//!   stream goes on. WHERE `CASE` guards (`CASE WHEN x <> 0 THEN y / x > 2 END`) hold.
//! * **Whole numbers** of any type are computed exactly and give an `i64`; a result that does not fit is a row error.
//!   `/` of whole numbers drops the fraction, `%` has the sign of the left operand. Literals are `i64` (`u64` beyond its
//!   range).
//! * **Decimals** are computed exactly, with up to 38 digits; more are a row error. Literals with a point or an exponent are
//!   decimals (`f64` if no decimal holds them). A scale belongs to the type: that of `+`, `-`, `%` is the greater one of the
//!   operands, of `*` the sum, of `/` the greater one but at least 16. Digits that go are rounded half away from zero.
//! * **Floats** are computed in 64 bits, as soon as one operand is a float. As in PostgreSQL, finite operands that give
//!   infinity, or zero where it is not due, and division by zero are row errors; NaN equals itself and is greater than
//!   every other number; -0 equals 0. `%` of floats, which PostgreSQL lacks, is C's `fmod`.
//! * **Comparisons** of numbers are exact (`i64` with `f64` too), but a decimal is the nearest `f64` beside one. Texts compare by their bytes,
//!   `char[N]` without its padding, and blanks count. A text literal across from a timestamp is read as one (RFC 3339;
//!   UTC without an offset); across from bytes it is read as hexadecimal (`'\x00ff'`). Other mixtures are refused.
//! * **LIKE**: `_` is one character, `%` any text, `\` or the ESCAPE character takes their meaning from them. ILIKE
//!   compares letters by their lower case, one by one.
//! * **CAST**, as PostgreSQL: floats round to the even neighbour, and become decimals by their first 15 digits; a number out of range is a row error; text is read
//!   without blanks around it; to `char(N)` text is cut, here to N bytes. A timestamp as text is RFC 3339, as a whole
//!   number the nanoseconds since 1970. The names of types are PostgreSQL's and those of formats.
//!
//! * **Parameters**: `$name` or `$1` wherever a value may be written, for a query that is planned
//!   [with their values](Select::plan_with), which can be [changed](Program::with_values) without planning it again.
//!
//! * **Clauses of a subscription** ([`parse_subscription`]), behind WHERE and in either order: `ON SLOW BLOCK`, `DROP OLDEST`,
//!   `CONFLATE BY (column, …)`, `SAMPLE n`, `KEEP WHERE condition` or `DISCONNECT`, and `MAX RATE n PER SECOND [BY column, …]`.
//!   They say what its subscriber gets, not what the query means: [`Select::on_slow`], [`Select::max_rate`].
//!
//! * **`SNAPSHOT [THEN CHANGES [DELTA]]`** behind the stream or behind WHERE: what is there of a stream with a [state](KeyedState), and what
//!   changes from then on: [`Select::snapshot`], [`Select::plan_snapshot`]. `ORDER BY … LIMIT n` behind it: the first rows of that
//!   ([`Select::top_n`]).
//!
//! * **`MAX STATE n MB`** behind a query with state: its [bound](StatefulQuery::max_state_bytes).
//!
//! A query may be planned [through a view](Select::through), which is all that it sees of its stream.
//!
//! Bounds: [`MAX_SQL_BYTES`], [`MAX_OPERATORS`], [`MAX_NESTING`], [`MAX_MADE_TEXT_BYTES`].
#![forbid(unsafe_code)]

mod bind;
mod bound;
mod change;
mod decimal;
mod error;
mod example;
mod expr;
mod function;
mod interpret;
mod parse;
mod print;
mod program;
mod slow;
mod snapshot;
mod stateful;
mod tokens;
mod top_n;
mod view;

pub use crossdock_format::MAX_NESTING;
pub use decimal::Decimal;
pub use error::{Excerpt, Position, QueryError};
pub use expr::{ArithmeticOp, Call, CompareOp, Constant, Expr, Like, Node, Parameter};
pub use function::{FUNCTIONS, Function, Kind};
pub use interpret::{EvalError, Interpreter, MAX_MADE_TEXT_BYTES};
pub use parse::{MAX_OPERATORS, MAX_SQL_BYTES, Select, Snapshot, SortDirection, parse, parse_subscription};
pub use print::SqlText;
pub use program::{Explain, ExplainedField, Output, Program, Projection};
pub use slow::{ClausePart, MaxRate, SlowPolicy};
pub use snapshot::{DeltaProgram, SnapshotProgram};
pub use stateful::{
    AGGREGATES, Aggregate, AggregateArgument, AggregateEntry, AggregateFunction, AggregateType, Aggregation, AsofJoin,
    DerivedTime, FirstRows, IntervalJoin, JoinKind, KeyedState, LatestByKey, MAX_ROWS_BEFORE, MAX_STATE_BYTES,
    MAX_WINDOWS, Operator, OperatorKind, OverFunction, OverRows, OverValue, PlanOperator, Port, Query, ReferenceTable,
    RowFrame, RowTime, STATE_POLICY, Stage, StageInput, StageOutput, StatefulProgram, StatefulQuery, StreamSource,
    TableLookup, Window, parse_query, reduction,
};
pub use top_n::{MAX_LIMIT, MAX_ORDERED_ROW_BYTES, TopN, TopNProgram};
pub use view::View;
