//! Queries that keep state: joins, windows, groups.

pub(crate) mod aggregates;
mod group;
mod join;
mod plan;
pub(crate) mod program;
mod query;
mod read;
mod rows;
mod show;

pub use aggregates::{AGGREGATES, AggregateArgument, AggregateEntry, AggregateType};
pub use program::{
    Aggregate, AggregateFunction, Aggregation, AsofJoin, DerivedTime, IntervalJoin, JoinKind, MAX_STATE_BYTES,
    MAX_WINDOWS, Operator, Port, RowTime, Stage, StageInput, StatefulProgram, StreamSource, Window,
};
pub use query::{Query, StatefulQuery, parse_query};
