//! Functions that choose among values.

use std::cmp::Ordering;

use super::{Answer, Arguments, Body, Form, Function, Gives, Kind};
use crate::interpret::{Datum, EvalError, compare};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new(
        ("coalesce", &[Kind::Any], Gives::First),
        "the first value that is not null; nothing after it is computed",
        ("coalesce(NULL, 'a', 'b')", "a"),
        Body::Form(Form::Coalesce),
    )
    .variadic(),
    Function::new(
        ("nullif", &[Kind::Any, Kind::Any], Gives::First),
        "null if both are equal, else the first",
        ("nullif(5, 5)", "null"),
        Body::Form(Form::NullIf),
    ),
    Function::new(
        ("greatest", &[Kind::Same], Gives::First),
        "the greatest value that is not null",
        ("greatest(1, NULL, 2.5)", "2.5"),
        Body::Nulls(|arguments, _| extreme(arguments, Ordering::Greater)),
    )
    .variadic()
    .sure(),
    Function::new(
        ("least", &[Kind::Same], Gives::First),
        "the least value that is not null",
        ("least('b', 'a', 'c')", "a"),
        Body::Nulls(|arguments, _| extreme(arguments, Ordering::Less)),
    )
    .variadic()
    .sure(),
    Function::new(
        ("try", &[Kind::Any], Gives::First),
        "null if the value has a row error",
        ("try(1 / 0)", "null"),
        Body::Form(Form::Try),
    )
    .but("PostgreSQL has no `TRY`"),
];

fn extreme(arguments: &Arguments<'_, '_>, wanted: Ordering) -> Result<Answer, EvalError> {
    let mut chosen: Option<(usize, Datum<'_>)> = None;
    for (index, value) in arguments.values.iter().enumerate() {
        let is_better = match chosen {
            _ if matches!(value, Datum::Null) => false,
            None => true,
            Some((_, best)) => compare(*value, best, arguments.made)? == Some(wanted),
        };
        if is_better {
            chosen = Some((index, *value));
        }
    }
    Ok(chosen.map_or(Answer::Null, |(index, _)| Answer::Argument(index)))
}
