//! The meaning of a program: a plain walk over its expressions. Every other form of a program is held to this one.
//!
//! A condition is TRUE, FALSE or null. A record passes WHERE if every one of the conditions that WHERE joins by AND is
//! TRUE; they are computed from left to right, and the first that is not TRUE ends it. A **row error** (overflow,
//! division by zero, a CAST that cannot be done) in WHERE or in the select list drops the record; it is counted, and
//! nothing else happens.

mod cast;
mod like;
mod number;

use std::cmp::Ordering;
use std::fmt;

use crossdock_format::{FieldType, List, Record, RecordBuilder, Value, ValueError, ValueProblem};

use crate::decimal::Decimal;
use crate::expr::{Call, CompareOp, Constant, Expr, Like, Node};
use crate::function::{Answer, Arguments, Body, MAX_ARGUMENTS, Scratch};

pub(crate) use cast::{parse_timestamp, print};
pub(crate) use like::ends_in_escape;
pub(crate) use number::result_scale;

/// The most bytes of text that computing one expression may make. A join of a few long strings fits.
pub const MAX_MADE_TEXT_BYTES: usize = 1 << 20;

/// Why a row was dropped: a row error, which its values caused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EvalError {
    /// The result of an operation on numbers, or of a CAST to a narrower type, does not fit its type.
    OutOfRange,
    /// `/` or `%` by zero.
    DivisionByZero,
    /// A CAST of a text that does not say a value of the type.
    NotAValue(FieldType),
    /// A LIKE pattern from a column ends in its escape character.
    BadPattern,
    /// An argument that a function has no value for.
    Domain(&'static str),
    /// A text is no UTF-8, and a function looks at its characters.
    NotText,
    /// A text is no JSON.
    NotJson,
    /// The texts that were joined are too long.
    TextTooLong,
    /// The row that was made does not fit into a record.
    RecordTooLong,
    /// The expression was not made by a planner, or the record has another format.
    IllTyped,
}

impl fmt::Display for EvalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EvalError::OutOfRange => f.write_str("a number is out of the range of its type"),
            EvalError::DivisionByZero => f.write_str("division by zero"),
            EvalError::NotAValue(ty) => write!(f, "a text does not say a {ty}"),
            EvalError::BadPattern => f.write_str("a LIKE pattern ends in its escape character"),
            EvalError::Domain(problem) => write!(f, "there is no result: {problem}"),
            EvalError::NotText => f.write_str("a text is not UTF-8"),
            EvalError::NotJson => f.write_str("a text is not JSON"),
            EvalError::TextTooLong => write!(f, "an expression makes more than {MAX_MADE_TEXT_BYTES} bytes of text"),
            EvalError::RecordTooLong => f.write_str("the row does not fit into a record"),
            EvalError::IllTyped => f.write_str("an expression does not fit the record"),
        }
    }
}

impl std::error::Error for EvalError {}

/// Runs programs over records, one at a time. Keeps buffers for the texts that expressions make, so that nothing is
/// allocated for a record once the buffers have grown to what the query needs.
#[derive(Debug, Default)]
pub struct Interpreter {
    made: Vec<u8>,
    scratch: Scratch,
}

impl Interpreter {
    /// An interpreter; it allocates when the first text is made.
    pub fn new() -> Interpreter {
        Interpreter::default()
    }

    /// The value of a condition for this record: TRUE, FALSE, or `None` for null.
    ///
    /// # Errors
    /// A row error; [`EvalError::IllTyped`] for an expression that is no condition.
    pub fn holds(&mut self, condition: &Expr, record: &Record<'_>) -> Result<Option<bool>, EvalError> {
        self.made.clear();
        Walk { record: Some(record), made: &mut self.made, scratch: &mut self.scratch }.truth(condition)
    }

    /// Computes one expression into one field of `row`.
    ///
    /// # Errors
    /// A row error; [`EvalError::IllTyped`] if the field is not of the expression's type.
    pub fn set(
        &mut self,
        expr: &Expr,
        record: &Record<'_>,
        row: &mut RecordBuilder,
        field: usize,
    ) -> Result<(), EvalError> {
        let value = match expr.node {
            // Copied as it is: also what no expression could make.
            Node::Field(index) => record.get(index),
            _ => self.value(expr, record)?,
        };
        row.set(field, value).map_err(|error| refused(&error))
    }

    /// Computes one expression; a text that it makes stands in the interpreter until the next is computed.
    ///
    /// # Errors
    /// A row error.
    pub fn value<'v>(&'v mut self, expr: &'v Expr, record: &'v Record<'v>) -> Result<Value<'v>, EvalError> {
        self.made.clear();
        let datum = Walk { record: Some(record), made: &mut self.made, scratch: &mut self.scratch }.value(expr)?;
        Ok(match datum {
            Datum::Null => Value::Null,
            Datum::Bool(value) => Value::Bool(value),
            Datum::Int(value) if is_unsigned(expr.ty) => {
                Value::Uint(u64::try_from(value).map_err(|_| EvalError::OutOfRange)?)
            }
            Datum::Int(value) => Value::Int(i64::try_from(value).map_err(|_| EvalError::OutOfRange)?),
            Datum::Float(value) => Value::Float(value),
            Datum::Decimal { unscaled, scale } => Value::Decimal { unscaled, scale },
            Datum::Timestamp(value) => Value::Timestamp(value),
            Datum::Text(text) => Value::Text(text.bytes(&self.made)),
            Datum::Bytes(bytes) => Value::Bytes(bytes.bytes(&self.made)),
            Datum::List(_) | Datum::Composed => return Err(EvalError::IllTyped),
        })
    }
}

/// The value of a constant expression, as a constant; `None` if it is a row error (which it then is for every record).
pub(crate) fn constant(expr: &Expr) -> Option<Constant> {
    let mut made = Vec::new();
    let mut scratch = Scratch::default();
    let datum = Walk { record: None, made: &mut made, scratch: &mut scratch }.value(expr).ok()?;
    Some(match datum {
        Datum::Null => Constant::Null,
        Datum::Bool(value) => Constant::Bool(value),
        Datum::Int(value) => Constant::Int(value),
        Datum::Float(value) => Constant::Float(value),
        Datum::Decimal { unscaled, scale } => Constant::Decimal(Decimal { unscaled, scale }),
        Datum::Timestamp(value) => Constant::Timestamp(value),
        Datum::Text(text) => Constant::Text(std::str::from_utf8(text.bytes(&made)).ok()?.to_owned()),
        Datum::Bytes(bytes) => Constant::Bytes(bytes.bytes(&made).to_vec()),
        Datum::List(_) | Datum::Composed => return None,
    })
}

/// A value that a field of the type holds.
fn fitting(value: Datum<'_>, ty: FieldType) -> Result<Datum<'_>, EvalError> {
    let fits = match value {
        Datum::Int(value) => ty.integer_range().is_none_or(|(least, most)| (least..=most).contains(&value)),
        Datum::Float(value) => ty != FieldType::F32 || !value.is_finite() || (value as f32).is_finite(),
        _ => true,
    };
    if fits { Ok(value) } else { Err(EvalError::OutOfRange) }
}

/// Why a value that has the field's type does not go into the row.
pub(crate) fn refused(error: &ValueError) -> EvalError {
    match error.problem {
        ValueProblem::WrongType { .. } | ValueProblem::NoSuchField { .. } | ValueProblem::NotNullable => {
            EvalError::IllTyped
        }
        ValueProblem::IntegerRange { .. } | ValueProblem::FloatRange { .. } => EvalError::OutOfRange,
        _ => EvalError::RecordTooLong,
    }
}

fn is_unsigned(ty: FieldType) -> bool {
    matches!(ty, FieldType::U8 | FieldType::U16 | FieldType::U32 | FieldType::U64)
}

/// A value on the way. Whole numbers are wide enough for `i64` and `u64`, and for what one operation makes of them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Datum<'a> {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    /// In one piece with the kind of value, which keeps every value at 32 bytes.
    Decimal {
        unscaled: i128,
        scale: u8,
    },
    Timestamp(i64),
    Text(Text<'a>),
    Bytes(Text<'a>),
    /// A list: that of this field of the record, so that a value stays as small as it is.
    List(usize),
    /// An element that is a list or a record: not null, and nothing else is known of it.
    Composed,
}

impl Datum<'_> {
    /// The list that it is, of the record that it was read from.
    pub(crate) fn list<'a>(&self, record: Option<&'a Record<'a>>) -> Result<List<'a>, EvalError> {
        match (self, record) {
            (Datum::List(field), Some(record)) => match record.get(*field) {
                Value::List(list) => Ok(list),
                _ => Err(EvalError::IllTyped),
            },
            _ => Err(EvalError::IllTyped),
        }
    }
}

/// Text or bytes that stand in the record or in the program, or that were made and stand in the walk's buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Text<'a> {
    Standing(&'a [u8]),
    Made { start: usize, end: usize },
}

impl<'a> Text<'a> {
    pub(crate) fn bytes<'b>(&self, made: &'b [u8]) -> &'b [u8]
    where
        'a: 'b,
    {
        match *self {
            Text::Standing(bytes) => bytes,
            Text::Made { start, end } => {
                debug_assert!(start <= end && end <= made.len(), "what was made stands until the next walk");
                made.get(start..end).unwrap_or_default()
            }
        }
    }

    /// These bytes of it.
    fn part(self, from: usize, to: usize) -> Text<'a> {
        match self {
            Text::Standing(bytes) => Text::Standing(bytes.get(from..to).unwrap_or_default()),
            Text::Made { start, .. } => Text::Made { start: start + from, end: start + to },
        }
    }
}

impl From<Decimal> for Datum<'_> {
    fn from(Decimal { unscaled, scale }: Decimal) -> Self {
        Datum::Decimal { unscaled, scale }
    }
}

impl<'a> From<Value<'a>> for Datum<'a> {
    fn from(value: Value<'a>) -> Datum<'a> {
        match value {
            Value::Null => Datum::Null,
            Value::Bool(value) => Datum::Bool(value),
            Value::Int(value) => Datum::Int(value.into()),
            Value::Uint(value) => Datum::Int(value.into()),
            Value::Float(value) => Datum::Float(value),
            Value::Timestamp(value) => Datum::Timestamp(value),
            Value::Text(bytes) => Datum::Text(Text::Standing(bytes)),
            Value::Bytes(bytes) => Datum::Bytes(Text::Standing(bytes)),
            Value::Decimal { unscaled, scale } => Datum::Decimal { unscaled, scale },
            Value::Enum { symbol, .. } => {
                symbol.map_or(Datum::Null, |symbol| Datum::Text(Text::Standing(symbol.as_bytes())))
            }
            Value::List(_) | Value::Record(_) => Datum::Composed,
        }
    }
}

impl<'a> From<&'a Constant> for Datum<'a> {
    fn from(constant: &'a Constant) -> Datum<'a> {
        match constant {
            Constant::Null => Datum::Null,
            Constant::Bool(value) => Datum::Bool(*value),
            Constant::Int(value) => Datum::Int(*value),
            Constant::Float(value) => Datum::Float(*value),
            Constant::Decimal(value) => (*value).into(),
            Constant::Timestamp(value) => Datum::Timestamp(*value),
            Constant::Text(text) => Datum::Text(Text::Standing(text.as_bytes())),
            Constant::Bytes(bytes) => Datum::Bytes(Text::Standing(bytes)),
        }
    }
}

/// One walk over one expression and, unless it is constant, one record.
struct Walk<'a, 'm> {
    record: Option<&'a Record<'a>>,
    made: &'m mut Vec<u8>,
    scratch: &'m mut Scratch,
}

impl<'a> Walk<'a, '_> {
    fn value(&mut self, expr: &'a Expr) -> Result<Datum<'a>, EvalError> {
        match &expr.node {
            Node::Field(index) => match self.record {
                Some(record) => Ok(match record.get(*index) {
                    Value::List(_) => Datum::List(*index),
                    value => value.into(),
                }),
                None => Err(EvalError::IllTyped),
            },
            Node::Const(constant) => Ok(constant.into()),
            Node::Parameter(parameter) => Ok((&parameter.value).into()),
            Node::Arithmetic { op, left, right } => {
                let (left, right) = (self.value(left)?, self.value(right)?);
                number::arithmetic(*op, left, right)
            }
            Node::Negate(operand) => number::negate(self.value(operand)?),
            Node::Concat(parts) => self.concat(parts),
            Node::Case { operand, branches, otherwise } => {
                self.case(operand.as_deref(), branches, otherwise.as_deref())
            }
            Node::Coalesce(options) => {
                for option in options {
                    let value = self.value(option)?;
                    if !matches!(value, Datum::Null) {
                        return Ok(value);
                    }
                }
                Ok(Datum::Null)
            }
            Node::NullIf(left, right) => {
                let value = self.value(left)?;
                let other = self.value(right)?;
                let equal = compare(value, other, self.made)?.is_some_and(Ordering::is_eq);
                Ok(if equal { Datum::Null } else { value })
            }
            Node::Cast(operand) => {
                let value = self.value(operand)?;
                cast::cast(value, operand.ty, expr.ty, self.made)
            }
            Node::Call(call) => self.call(call, expr.ty),
            Node::Try(operand) => {
                let mark = self.made.len();
                match self.value(operand).and_then(|value| fitting(value, operand.ty)) {
                    Err(EvalError::IllTyped) => Err(EvalError::IllTyped),
                    Err(_) => {
                        self.made.truncate(mark);
                        Ok(Datum::Null)
                    }
                    value => value,
                }
            }
            _ => Ok(self.truth(expr)?.map_or(Datum::Null, Datum::Bool)),
        }
    }

    /// A condition. The texts that were made for it are given up: nothing of them is in a truth value.
    fn truth(&mut self, expr: &'a Expr) -> Result<Option<bool>, EvalError> {
        let mark = self.made.len();
        let truth = self.truth_of(expr);
        self.made.truncate(mark);
        truth
    }

    fn truth_of(&mut self, expr: &'a Expr) -> Result<Option<bool>, EvalError> {
        match &expr.node {
            Node::Compare { op, left, right } => {
                let (left, right) = (self.value(left)?, self.value(right)?);
                Ok(compare(left, right, self.made)?.map(|order| op.holds(order)))
            }
            Node::Quantified { op, is_all, left, right } => self.quantified((*op, *is_all), left, right),
            Node::Distinct { negated, left, right } => {
                let (left, right) = (self.value(left)?, self.value(right)?);
                let same = match (&left, &right) {
                    (Datum::Null, Datum::Null) => true,
                    (Datum::Null, _) | (_, Datum::Null) => false,
                    _ => compare(left, right, self.made)?.is_some_and(Ordering::is_eq),
                };
                Ok(Some(same == *negated))
            }
            Node::And(all) => self.junction(all, false),
            Node::Or(all) => self.junction(all, true),
            Node::Not(operand) => Ok(self.truth(operand)?.map(|truth| !truth)),
            Node::IsNull { negated, operand } => {
                let is_null = matches!(self.value(operand)?, Datum::Null);
                Ok(Some(is_null != *negated))
            }
            Node::IsTruth { truth, negated, operand } => Ok(Some((self.truth(operand)? == *truth) != *negated)),
            Node::In { negated, operand, list } => Ok(self.is_in(operand, list)?.map(|found| found != *negated)),
            Node::Between { negated, operand, low, high } => {
                let (value, low, high) = (self.value(operand)?, self.value(low)?, self.value(high)?);
                let above = compare(value, low, self.made)?.map(Ordering::is_ge);
                let below = compare(value, high, self.made)?.map(Ordering::is_le);
                Ok(and(above, below).map(|within| within != *negated))
            }
            Node::Like(like) => self.like(like),
            Node::Field(_)
            | Node::Const(_)
            | Node::Parameter(_)
            | Node::Case { .. }
            | Node::Coalesce(_)
            | Node::NullIf(..)
            | Node::Cast(_)
            | Node::Call(_)
            | Node::Try(_) => match self.value(expr)? {
                Datum::Bool(truth) => Ok(Some(truth)),
                Datum::Null => Ok(None),
                _ => Err(EvalError::IllTyped),
            },
            Node::Arithmetic { .. } | Node::Negate(_) | Node::Concat(_) => Err(EvalError::IllTyped),
        }
    }

    /// AND (which FALSE decides) and OR (which TRUE decides).
    fn junction(&mut self, all: &'a [Expr], decisive: bool) -> Result<Option<bool>, EvalError> {
        let mut result = Some(!decisive);
        for condition in all {
            match self.truth(condition)? {
                Some(truth) if truth == decisive => return Ok(Some(decisive)),
                Some(_) => {}
                None => result = None,
            }
        }
        Ok(result)
    }

    #[inline(never)]
    fn is_in(&mut self, operand: &'a Expr, list: &'a [Expr]) -> Result<Option<bool>, EvalError> {
        let value = self.value(operand)?;
        let mark = self.made.len();
        let mut found = Some(false);
        for item in list {
            let item = self.value(item)?;
            match compare(value, item, self.made)? {
                Some(Ordering::Equal) => return Ok(Some(true)),
                Some(_) => {}
                None => found = None,
            }
            self.made.truncate(mark);
        }
        Ok(found)
    }

    /// ANY, which one TRUE decides, or ALL, which one FALSE decides.
    #[inline(never)]
    fn quantified(
        &mut self,
        (op, is_all): (CompareOp, bool),
        left: &'a Expr,
        right: &'a Expr,
    ) -> Result<Option<bool>, EvalError> {
        let value = self.value(left)?;
        let list = match self.value(right)? {
            Datum::Null => return Ok(None),
            list => list.list(self.record)?,
        };
        let mut result = Some(is_all);
        for element in list.iter() {
            match compare(value, element.into(), self.made)?.map(|order| op.holds(order)) {
                Some(truth) if truth != is_all => return Ok(Some(truth)),
                Some(_) => {}
                None => result = None,
            }
        }
        Ok(result)
    }

    #[inline(never)]
    fn like(&mut self, like: &'a Like) -> Result<Option<bool>, EvalError> {
        let (text, pattern) = (self.value(&like.operand)?, self.value(&like.pattern)?);
        match (text, pattern) {
            (Datum::Null, _) | (_, Datum::Null) => Ok(None),
            (Datum::Text(text), Datum::Text(pattern)) => {
                let (text, pattern) = (text.bytes(self.made), pattern.bytes(self.made));
                if ends_in_escape(pattern, like.escape) {
                    return Err(EvalError::BadPattern);
                }
                Ok(Some(like::is_like(text, pattern, like.escape, like.any_case) != like.negated))
            }
            _ => Err(EvalError::IllTyped),
        }
    }

    #[inline(never)]
    fn case(
        &mut self,
        operand: Option<&'a Expr>,
        branches: &'a [(Expr, Expr)],
        otherwise: Option<&'a Expr>,
    ) -> Result<Datum<'a>, EvalError> {
        let operand = match operand {
            Some(operand) => Some(self.value(operand)?),
            None => None,
        };
        for (condition, result) in branches {
            let chosen = match operand {
                Some(operand) => {
                    let value = self.value(condition)?;
                    compare(operand, value, self.made)?.is_some_and(Ordering::is_eq)
                }
                None => self.truth(condition)? == Some(true),
            };
            if chosen {
                return self.value(result);
            }
        }
        otherwise.map_or(Ok(Datum::Null), |otherwise| self.value(otherwise))
    }

    /// Every part goes to the end of the buffer, right behind the one before; what else a part left there is overwritten.
    #[inline(never)]
    fn concat(&mut self, parts: &'a [Expr]) -> Result<Datum<'a>, EvalError> {
        let start = self.made.len();
        let mut is_null = false;
        for part in parts {
            let mark = self.made.len();
            match self.value(part)? {
                Datum::Null => {
                    self.made.truncate(mark);
                    is_null = true;
                }
                Datum::Text(Text::Standing(bytes)) => {
                    self.made.truncate(mark);
                    if mark + bytes.len() > MAX_MADE_TEXT_BYTES {
                        return Err(EvalError::TextTooLong);
                    }
                    self.made.extend_from_slice(bytes);
                }
                Datum::Text(Text::Made { start, end }) => {
                    self.made.copy_within(start..end, mark);
                    self.made.truncate(mark + end - start);
                }
                _ => return Err(EvalError::IllTyped),
            }
        }
        if is_null {
            self.made.truncate(start);
            return Ok(Datum::Null);
        }
        Ok(Datum::Text(Text::Made { start, end: self.made.len() }))
    }

    /// Calls a function. A text that it makes takes the place of those that were made for its arguments.
    #[inline(never)]
    fn call(&mut self, call: &'a Call, ty: FieldType) -> Result<Datum<'a>, EvalError> {
        let mark = self.made.len();
        let mut values = [Datum::Null; MAX_ARGUMENTS];
        for (value, argument) in values.iter_mut().zip(&call.arguments) {
            *value = self.value(argument)?;
        }
        let values = values.get(..call.arguments.len()).ok_or(EvalError::IllTyped)?;
        let takes_nulls = matches!(call.function.body, Body::Nulls(_));
        if !takes_nulls && values.iter().any(|value| matches!(value, Datum::Null)) {
            self.made.truncate(mark);
            return Ok(Datum::Null);
        }
        self.scratch.text.clear();
        let arguments = Arguments { values, made: self.made, prepared: &call.prepared, ty, record: self.record };
        let answer = match call.function.body {
            Body::Values(run) | Body::Nulls(run) => run(&arguments, self.scratch)?,
            Body::Float(of) => Answer::Float(of(arguments.float(0)?)),
            Body::TryFloat(of) => Answer::Float(of(arguments.float(0)?)?),
            Body::TwoFloats(of) => Answer::Float(of(arguments.float(0)?, arguments.float(1)?)?),
            Body::Form(_) => return Err(EvalError::IllTyped),
        };
        let value = match answer {
            Answer::Null => Datum::Null,
            Answer::Bool(value) => Datum::Bool(value),
            Answer::Int(value) => Datum::Int(i64::try_from(value).map_err(|_| EvalError::OutOfRange)?.into()),
            Answer::Float(value) => Datum::Float(value),
            Answer::Decimal(value) => value.into(),
            Answer::Timestamp(value) => Datum::Timestamp(value),
            Answer::Made => {
                self.made.truncate(mark);
                if mark + self.scratch.text.len() > MAX_MADE_TEXT_BYTES {
                    return Err(EvalError::TextTooLong);
                }
                self.made.extend_from_slice(&self.scratch.text);
                let text = Text::Made { start: mark, end: self.made.len() };
                return Ok(if ty == FieldType::Bytes { Datum::Bytes(text) } else { Datum::Text(text) });
            }
            Answer::Element { argument, index } => {
                let list = values.get(argument).ok_or(EvalError::IllTyped)?.list(self.record)?;
                list.get(index).into()
            }
            Answer::Argument(index) => return values.get(index).copied().ok_or(EvalError::IllTyped),
            Answer::Part { argument, from, to } => match values.get(argument) {
                Some(Datum::Text(text)) => return Ok(Datum::Text(text.part(from, to))),
                _ => return Err(EvalError::IllTyped),
            },
        };
        // Nothing of the texts is in another value.
        self.made.truncate(mark);
        Ok(value)
    }
}

/// How two values of one class stand to each other, whose made texts stand in `made`; `None` if one is null.
pub(crate) fn compare(left: Datum<'_>, right: Datum<'_>, made: &[u8]) -> Result<Option<Ordering>, EvalError> {
    Ok(Some(match (left, right) {
        (Datum::Null, _) | (_, Datum::Null) => return Ok(None),
        (Datum::Bool(left), Datum::Bool(right)) => left.cmp(&right),
        (Datum::Timestamp(left), Datum::Timestamp(right)) => left.cmp(&right),
        (Datum::Text(left), Datum::Text(right)) | (Datum::Bytes(left), Datum::Bytes(right)) => {
            left.bytes(made).cmp(right.bytes(made))
        }
        (Datum::Int(left), Datum::Int(right)) => left.cmp(&right),
        (Datum::Float(left), Datum::Float(right)) => number::compare_floats(left, right),
        (Datum::Int(left), Datum::Float(right)) => number::compare_exactly(left, right),
        (Datum::Float(left), Datum::Int(right)) => number::compare_exactly(right, left).reverse(),
        // As in PostgreSQL, so that 0.1 is the float that is written so.
        (Datum::Float(left), right) => number::compare_floats(left, number::as_float(right)?),
        (left, Datum::Float(right)) => number::compare_floats(number::as_float(left)?, right),
        (left, right) => number::as_decimal(left)?.compare(number::as_decimal(right)?),
    }))
}

fn and(left: Option<bool>, right: Option<bool>) -> Option<bool> {
    match (left, right) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}
