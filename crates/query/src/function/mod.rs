//! The functions of the dialect: one table, from which the planner, the interpreter, the documentation (`docs/sql.md`) and the
//! tests are made. An entry has a function's name, types, meaning, what PostgreSQL does otherwise, an example and what that gives.

mod choice;
mod json;
mod list;
mod number;
mod regex;
mod text;
mod time;
mod time_text;

use std::fmt;
use std::sync::Arc;

use crossdock_format::{FieldType, List, Record};

use crate::decimal::Decimal;
use crate::expr::{Constant, Expr};
use crate::interpret::{Datum, EvalError, MAX_MADE_TEXT_BYTES};

pub(crate) use regex::Pattern;
pub(crate) use time::{Interval, Unit};

/// The most arguments of a call (`COALESCE` takes any number).
pub(crate) const MAX_ARGUMENTS: usize = 16;

/// All functions, by section, in the order of the documentation.
pub static FUNCTIONS: [(&str, &[Function]); 7] = [
    ("Choice", choice::FUNCTIONS),
    ("Numbers", number::FUNCTIONS),
    ("Text", text::FUNCTIONS),
    ("Regular expressions", regex::FUNCTIONS),
    ("Time", time::FUNCTIONS),
    ("JSON in text", json::FUNCTIONS),
    ("Lists (`stops` has the elements `DEN` and `ORD`)", list::FUNCTIONS),
];

/// The entry of a function or operator in the table. Several entries may have one name, for other types.
pub struct Function {
    /// Its name in lower case, or the operator.
    pub name: &'static str,
    /// The kinds of its arguments.
    pub arguments: &'static [Kind],
    /// How many of its last arguments may be left out.
    pub optional: usize,
    /// Whether more arguments of the last kind may follow, up to 16 in all.
    pub is_variadic: bool,
    /// Its meaning, in a few words.
    pub meaning: &'static str,
    /// The difference from PostgreSQL, and why; empty if nothing does.
    pub deviation: &'static str,
    /// An expression that calls it.
    pub example: &'static str,
    /// The value of the example, as text; `null` for null.
    pub gives: &'static str,
    pub(crate) result: Gives,
    pub(crate) body: Body,
    pub(crate) is_fallible: bool,
    /// Whether it can be null though no argument is.
    pub(crate) is_nullable: bool,
    /// The longest text that it makes; `None` if its arguments decide.
    pub(crate) most_bytes: Option<usize>,
    pub(crate) prepare: Option<Prepare>,
}

/// The values that an argument of a function may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A text.
    Text,
    /// A text that is known when the query is planned: a literal or a parameter.
    Word,
    /// A whole number.
    Integer,
    /// A whole number that is a literal.
    Digits,
    /// A decimal or a whole number.
    Decimal,
    /// Any number, as a float.
    Float,
    /// A time.
    Timestamp,
    /// Bytes.
    Bytes,
    /// `INTERVAL '…'`.
    Interval,
    /// Any value.
    Any,
    /// Values of one type, whatever it is.
    Same,
    /// Any value that has a text, as text.
    Printed,
    /// A list.
    List,
    /// A list whose elements are single values.
    Values,
    /// A value that compares with those.
    Element,
}

/// The type of a function's result.
#[derive(Clone, Copy)]
pub(crate) enum Gives {
    /// Always this one.
    Type(FieldType),
    /// A decimal of as many digits behind the point as follow from the arguments.
    Decimal(fn(&[Expr]) -> u8),
    /// That of the first argument.
    First,
    /// That of the elements of the first argument.
    Element,
}

/// How a function is computed.
#[derive(Clone, Copy)]
pub(crate) enum Body {
    /// From the values of its arguments; null if one of them is.
    Values(fn(&Arguments<'_, '_>, &mut Scratch) -> Result<Answer, EvalError>),
    /// From the values of its arguments; any of them may be null.
    Nulls(fn(&Arguments<'_, '_>, &mut Scratch) -> Result<Answer, EvalError>),
    /// From one float, or two.
    Float(fn(f64) -> f64),
    TryFloat(fn(f64) -> Result<f64, EvalError>),
    TwoFloats(fn(f64, f64) -> Result<f64, EvalError>),
    /// The planner makes other expressions of it.
    Form(Form),
}

/// Functions that the planner makes other expressions of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    Coalesce,
    NullIf,
    Try,
}

/// Makes ready what does not depend on the record; an error with the number of the argument that it is in.
pub(crate) type Prepare = fn(&[Expr]) -> Result<Prepared, (usize, String)>;

/// The part of a call's work that is done when the query is planned.
#[derive(Clone, Debug)]
pub(crate) enum Prepared {
    None,
    Pattern(Arc<Pattern>),
    Unit(Unit),
    Interval(Interval),
    Template(Arc<[time_text::Piece]>),
}

/// The result of a function.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Decimal(Decimal),
    Timestamp(i64),
    /// The text (or bytes) in the scratch.
    Made,
    /// These bytes of a text that is an argument.
    Part {
        argument: usize,
        from: usize,
        to: usize,
    },
    /// The value of an argument.
    Argument(usize),
    /// An element of a list that is an argument, by its number from 0; null beyond the end.
    Element {
        argument: usize,
        index: usize,
    },
}

/// Memory of an interpreter that functions make their results in.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// The text that is made.
    pub(crate) text: Vec<u8>,
    /// Where the groups of regular expressions matched, by how many groups these have.
    pub(crate) groups: Vec<Option<regex_lite::CaptureLocations>>,
}

impl Scratch {
    /// Appends to the text that is made, as far as there may be.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), EvalError> {
        if self.text.len() + bytes.len() > MAX_MADE_TEXT_BYTES {
            return Err(EvalError::TextTooLong);
        }
        self.text.extend_from_slice(bytes);
        Ok(())
    }

    pub(crate) fn push_char(&mut self, char: char) -> Result<(), EvalError> {
        self.push(char.encode_utf8(&mut [0; 4]).as_bytes())
    }
}

/// The values of the arguments of one call.
pub(crate) struct Arguments<'a, 'm> {
    pub(crate) values: &'m [Datum<'a>],
    pub(crate) made: &'m [u8],
    pub(crate) prepared: &'m Prepared,
    pub(crate) ty: FieldType,
    /// The record that lists lie in.
    pub(crate) record: Option<&'a Record<'a>>,
}

impl<'a, 'm> Arguments<'a, 'm> {
    pub(crate) fn count(&self) -> usize {
        self.values.len()
    }

    /// The bytes of a text or of bytes.
    pub(crate) fn bytes(&self, index: usize) -> Result<&'m [u8], EvalError> {
        match self.values.get(index) {
            Some(Datum::Text(chunk) | Datum::Bytes(chunk)) => Ok(chunk.bytes(self.made)),
            _ => Err(EvalError::IllTyped),
        }
    }

    pub(crate) fn text(&self, index: usize) -> Result<&'m str, EvalError> {
        str::from_utf8(self.bytes(index)?).map_err(|_| EvalError::NotText)
    }

    pub(crate) fn int(&self, index: usize) -> Result<i128, EvalError> {
        match self.values.get(index) {
            Some(Datum::Int(value)) => Ok(*value),
            _ => Err(EvalError::IllTyped),
        }
    }

    /// A whole number as one that counts: numbers far outside are as good as the nearest.
    pub(crate) fn count_at(&self, index: usize) -> Result<i64, EvalError> {
        self.int(index).map(|value| value.clamp(-(1 << 40), 1 << 40) as i64)
    }

    pub(crate) fn float(&self, index: usize) -> Result<f64, EvalError> {
        match self.values.get(index) {
            Some(Datum::Float(value)) => Ok(*value),
            _ => Err(EvalError::IllTyped),
        }
    }

    pub(crate) fn decimal(&self, index: usize) -> Result<Decimal, EvalError> {
        match self.values.get(index) {
            Some(&Datum::Decimal { unscaled, scale }) => Ok(Decimal { unscaled, scale }),
            _ => Err(EvalError::IllTyped),
        }
    }

    pub(crate) fn list(&self, index: usize) -> Result<List<'a>, EvalError> {
        self.values.get(index).ok_or(EvalError::IllTyped)?.list(self.record)
    }

    pub(crate) fn time(&self, index: usize) -> Result<i64, EvalError> {
        match self.values.get(index) {
            Some(Datum::Timestamp(value)) => Ok(*value),
            _ => Err(EvalError::IllTyped),
        }
    }
}

impl Function {
    /// An entry: name, arguments, type of the result, meaning, example and its value, how it is computed.
    pub(crate) const fn new(
        (name, arguments, result): (&'static str, &'static [Kind], Gives),
        meaning: &'static str,
        (example, gives): (&'static str, &'static str),
        body: Body,
    ) -> Function {
        Function {
            name,
            arguments,
            optional: 0,
            is_variadic: false,
            meaning,
            deviation: "",
            example,
            gives,
            result,
            body,
            is_fallible: true,
            is_nullable: false,
            most_bytes: None,
            prepare: None,
        }
    }

    /// The same function; its last `optional` arguments may be left out.
    const fn optional(self, optional: usize) -> Function {
        Function { optional, ..self }
    }

    /// The same function; more arguments of the last kind may follow.
    const fn variadic(self) -> Function {
        Function { is_variadic: true, ..self }
    }

    /// The same function, with what deviates from PostgreSQL.
    const fn but(self, deviation: &'static str) -> Function {
        Function { deviation, ..self }
    }

    /// The same function; it has no row errors.
    const fn sure(self) -> Function {
        Function { is_fallible: false, ..self }
    }

    /// The same function; it may be null though no argument is.
    const fn nullable(self) -> Function {
        Function { is_nullable: true, ..self }
    }

    /// The same function; it makes no longer text.
    const fn within(self, bytes: usize) -> Function {
        Function { most_bytes: Some(bytes), ..self }
    }

    /// The same function; part of it is done when the query is planned.
    const fn prepared(self, prepare: Prepare) -> Function {
        Function { prepare: Some(prepare), ..self }
    }

    /// The functions of this name.
    pub fn named(name: &str) -> impl Iterator<Item = &'static Function> {
        FUNCTIONS.iter().flat_map(|(_, functions)| *functions).filter(move |function| function.name == name)
    }

    /// The names of all functions that are not operators, each once.
    pub fn names() -> Vec<&'static str> {
        let mut names: Vec<&str> =
            FUNCTIONS.iter().flat_map(|(_, functions)| *functions).map(|function| function.name).collect();
        names.retain(|name| !is_operator(name));
        names.dedup();
        names
    }

    /// Whether it is written between its operands.
    pub fn is_operator(&self) -> bool {
        is_operator(self.name)
    }

    /// The type of the result, for the arguments that it is called with.
    pub(crate) fn result_type(&self, arguments: &[Expr]) -> FieldType {
        match self.result {
            Gives::Type(ty) => ty,
            Gives::Decimal(scale) => FieldType::Decimal { bytes: 16, scale: scale(arguments) },
            Gives::First | Gives::Element => arguments.first().map_or(FieldType::String, |first| first.ty),
        }
    }

    /// The types of the arguments and of the result: `left(text, bigint) → text`.
    pub fn signature(&self) -> String {
        let mut words: Vec<String> = self.arguments.iter().map(ToString::to_string).collect();
        let result = match self.result {
            Gives::First => "the same type",
            Gives::Element => "the type of the elements",
            Gives::Decimal(_) => "numeric",
            Gives::Type(ty) => type_word(ty),
        };
        if let ("[]", [list, index]) = (self.name, &words[..]) {
            return format!("{list}[{index}] → {result}");
        }
        if let (true, [left, right]) = (self.is_operator(), &words[..]) {
            return format!("{left} {} {right} → {result}", self.name);
        }
        if self.is_variadic {
            words.push("…".to_owned());
        }
        let first_optional = words.len() - self.optional;
        let mut text = format!("{}(", self.name);
        for (index, word) in words.iter().enumerate() {
            text.push_str(if index >= first_optional { "[" } else { "" });
            text.push_str(if index > 0 { ", " } else { "" });
            text.push_str(word);
        }
        text.push_str(&"]".repeat(self.optional));
        format!("{text}) → {result}")
    }
}

fn is_operator(name: &str) -> bool {
    !name.starts_with(|first: char| first.is_ascii_lowercase())
}

fn type_word(ty: FieldType) -> &'static str {
    match ty {
        FieldType::Bool => "boolean",
        FieldType::I64 => "bigint",
        FieldType::F64 => "double precision",
        FieldType::Timestamp => "timestamp",
        FieldType::Bytes => "bytea",
        _ => "text",
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Text => "text",
            Kind::Word => "'text'",
            Kind::Integer => "bigint",
            Kind::Digits => "number",
            Kind::Decimal => "numeric",
            Kind::Float => "double precision",
            Kind::Timestamp => "timestamp",
            Kind::Bytes => "bytea",
            Kind::Interval => "INTERVAL '…'",
            Kind::List | Kind::Values => "list",
            Kind::Element => "element",
            Kind::Any | Kind::Same | Kind::Printed => "any",
        })
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.signature())
    }
}

/// Entries are the same if they are one.
impl PartialEq for Function {
    fn eq(&self, other: &Function) -> bool {
        std::ptr::eq(self, other)
    }
}

/// The text of an argument that is known when the query is planned.
pub(crate) fn known_text(arguments: &[Expr], index: usize) -> Result<Option<&str>, (usize, String)> {
    match arguments.get(index).map(Expr::as_known) {
        Some(Some(Constant::Text(text))) => Ok(Some(text)),
        Some(Some(Constant::Null)) | None => Ok(None),
        _ => Err((index, "this must be a literal or a parameter: it is prepared once, not for each record".to_owned())),
    }
}

/// The whole number of an argument that is a literal: the type of a result may follow from it.
pub(crate) fn literal_int(argument: Option<&Expr>) -> Option<i128> {
    match argument.and_then(Expr::as_constant) {
        Some(Constant::Int(value)) => Some(*value),
        _ => None,
    }
}
