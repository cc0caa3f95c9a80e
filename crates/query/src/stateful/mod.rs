//! Queries that keep state: joins, windows, groups, values over rows before.

pub(crate) mod aggregates;
mod group;
mod join;
mod latest;
mod operators;
mod over;
mod plan;
pub(crate) mod program;
mod query;
mod read;
mod reduce;
mod rows;
mod share;
mod show;
mod table;
mod using;

pub use aggregates::{AGGREGATES, AggregateArgument, AggregateEntry, AggregateType};
pub use latest::KeyedState;
pub use operators::{OperatorKind, PlanOperator};
pub use program::{
    Aggregate, AggregateFunction, Aggregation, AsofJoin, DerivedTime, FirstRows, IntervalJoin, JoinKind, LatestByKey,
    MAX_ROWS_BEFORE, MAX_STATE_BYTES, MAX_WINDOWS, Operator, OverFunction, OverRows, OverValue, Port, RowFrame,
    RowTime, STATE_POLICY, Stage, StageInput, StageOutput, StatefulProgram, StreamSource, TableLookup, Window,
};
pub use query::{Query, StatefulQuery, parse_query};
pub use reduce::reduction;
pub use table::ReferenceTable;
