//! The aggregate functions of the dialect: one table, from which the planner and the documentation (`docs/sql.md`) are made.

use super::program::AggregateFunction;

/// The entry of an aggregate function in the table.
#[derive(Debug)]
pub struct AggregateEntry {
    /// Its name in lower case.
    pub name: &'static str,
    /// Its arguments.
    pub arguments: &'static [AggregateArgument],
    /// The type of its result.
    pub gives: AggregateType,
    /// Its meaning, in a few words.
    pub meaning: &'static str,
    /// The difference from PostgreSQL, and why; empty if nothing does.
    pub deviation: &'static str,
    pub(crate) function: AggregateFunction,
}

/// The values that an argument of an aggregate may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AggregateArgument {
    /// Any value.
    Any,
    /// A number.
    Number,
    /// A number, read as a float.
    Float,
    /// A number, a text, a time or bytes.
    Ordered,
    /// A condition.
    Condition,
    /// A text.
    Text,
    /// A text that is the same for all rows: a literal or a parameter.
    Separator,
    /// A literal from 0 to 1.
    Fraction,
}

/// The type of an aggregate's result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AggregateType {
    /// A whole number, never null.
    Count,
    /// That of the first argument, wider: `bigint`, `numeric` or `double precision`.
    Sum,
    /// `numeric`, or `double precision` of floats.
    Mean,
    /// That of the first argument.
    First,
    /// `double precision`.
    Float,
    /// `boolean`.
    Condition,
    /// `text`.
    Text,
    /// A list of values of the first argument's type, never null.
    List,
}

const fn entry(
    name: &'static str,
    arguments: &'static [AggregateArgument],
    gives: AggregateType,
    function: AggregateFunction,
    (meaning, deviation): (&'static str, &'static str),
) -> AggregateEntry {
    AggregateEntry { name, arguments, gives, meaning, deviation, function }
}

use AggregateArgument as A;
use AggregateFunction as F;
use AggregateType as T;

const FLOATS: &str = "always a float, where PostgreSQL gives `numeric` for whole numbers and decimals";
const DUCKDB: &str = "not in PostgreSQL; as in DuckDB";

/// All aggregate functions, in the order of the documentation.
pub static AGGREGATES: [AggregateEntry; 26] = [
    entry("count", &[], T::Count, F::Count, ("`count(*)`: the number of rows", "")),
    entry("count", &[A::Any], T::Count, F::Count, ("the number of values", "")),
    entry(
        "sum",
        &[A::Number],
        T::Sum,
        F::Sum,
        (
            "the sum; exact for whole numbers and decimals",
            "whole numbers give `bigint`, and a sum that does not fit is a row error; floats are added in 64 bits",
        ),
    ),
    entry(
        "avg",
        &[A::Number],
        T::Mean,
        F::Avg,
        ("the mean", "of whole numbers and decimals with as many digits behind the point as `/` has: 16 or more"),
    ),
    entry("min", &[A::Ordered], T::First, F::Min, ("the least value", "")),
    entry("max", &[A::Ordered], T::First, F::Max, ("the greatest value", "")),
    entry("stddev", &[A::Float], T::Float, F::StddevSamp, ("the same as `stddev_samp`", FLOATS)),
    entry("stddev_samp", &[A::Float], T::Float, F::StddevSamp, ("the standard deviation of a sample", FLOATS)),
    entry("stddev_pop", &[A::Float], T::Float, F::StddevPop, ("the standard deviation of a population", FLOATS)),
    entry("variance", &[A::Float], T::Float, F::VarSamp, ("the same as `var_samp`", FLOATS)),
    entry("var_samp", &[A::Float], T::Float, F::VarSamp, ("the variance of a sample", FLOATS)),
    entry("var_pop", &[A::Float], T::Float, F::VarPop, ("the variance of a population", FLOATS)),
    entry(
        "first",
        &[A::Any],
        T::First,
        F::First,
        (
            "the value of the row that comes first by event time, of rows of one time the least (for `last` the greatest), so that arrival does not matter; without event time, by arrival",
            DUCKDB,
        ),
    ),
    entry("last", &[A::Any], T::First, F::Last, ("the value of the row that comes last", DUCKDB)),
    entry("any_value", &[A::Any], T::First, F::First, ("a value: here that of `first`", "")),
    entry(
        "arg_max",
        &[A::Any, A::Ordered],
        T::First,
        F::ArgMax,
        ("the first argument of the row whose second is greatest", DUCKDB),
    ),
    entry("max_by", &[A::Any, A::Ordered], T::First, F::ArgMax, ("the same as `arg_max`", DUCKDB)),
    entry(
        "arg_min",
        &[A::Any, A::Ordered],
        T::First,
        F::ArgMin,
        ("the first argument of the row whose second is least", DUCKDB),
    ),
    entry("min_by", &[A::Any, A::Ordered], T::First, F::ArgMin, ("the same as `arg_min`", DUCKDB)),
    entry(
        "approx_count_distinct",
        &[A::Any],
        T::Count,
        F::ApproxCountDistinct,
        ("about how many different values there are", DUCKDB),
    ),
    entry(
        "approx_quantile",
        &[A::Float, A::Fraction],
        T::Float,
        F::ApproxQuantile(0.5),
        (
            "about the value below which this part of the values lies",
            "not in PostgreSQL; as in DuckDB, but always a float",
        ),
    ),
    entry("bool_and", &[A::Condition], T::Condition, F::BoolAnd, ("whether all are true", "")),
    entry("every", &[A::Condition], T::Condition, F::BoolAnd, ("the same as `bool_and`", "")),
    entry("bool_or", &[A::Condition], T::Condition, F::BoolOr, ("whether one is true", "")),
    entry(
        "string_agg",
        &[A::Text, A::Separator],
        T::Text,
        F::StringAgg,
        (
            "the texts in order of time (with `DISTINCT` in their own), with the separator between them, a literal or a parameter",
            "`ORDER BY` within it is not possible; a result beyond 1 MiB is a row error",
        ),
    ),
    entry(
        "array_agg",
        &[A::Any],
        T::List,
        F::ArrayAgg,
        (
            "the values as a list, in order of time (with `DISTINCT` in their own)",
            "nulls are left out, and without values the list is empty: a list has no nulls and is none; `ORDER BY` within it is not possible; values beyond 1 MiB, or more than 87,381, are a row error",
        ),
    ),
];

impl AggregateEntry {
    /// The entries of this name, in lower case.
    pub(crate) fn named(name: &str) -> impl Iterator<Item = &'static AggregateEntry> {
        AGGREGATES.iter().filter(move |entry| entry.name == name)
    }

    /// As the documentation shows it: `arg_max(any, ordered) → type of the first`.
    #[must_use]
    pub fn signature(&self) -> String {
        let arguments: Vec<&str> = self
            .arguments
            .iter()
            .map(|argument| match argument {
                AggregateArgument::Any => "any",
                AggregateArgument::Number => "number",
                AggregateArgument::Float => "double precision",
                AggregateArgument::Ordered => "number, text, time or bytes",
                AggregateArgument::Condition => "boolean",
                AggregateArgument::Text => "text",
                AggregateArgument::Separator => "separator",
                AggregateArgument::Fraction => "0 to 1",
            })
            .collect();
        let gives = match self.gives {
            AggregateType::Count => "bigint",
            AggregateType::Sum => "bigint, numeric or double precision",
            AggregateType::Mean => "numeric or double precision",
            AggregateType::First => "the type of the first",
            AggregateType::Float => "double precision",
            AggregateType::Condition => "boolean",
            AggregateType::Text => "text",
            AggregateType::List => "a list of the type of the first",
        };
        let arguments = if arguments.is_empty() { "*".to_owned() } else { arguments.join("; ") };
        format!("{}({arguments}) → {gives}", self.name)
    }
}
