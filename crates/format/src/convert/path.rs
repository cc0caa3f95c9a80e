//! Where each field of a new record comes from: the plan before it is steps, which composing, explaining a refusal and
//! costing look at.

use super::body::ListPath;
use super::error::ConvertProblem;
use super::value::{Constant, Hop, NullRule, allowed, convert, may_refuse};
use crate::field::{Field, FieldType};
use crate::record::{Record, Value};

/// Where a target's field comes from.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// It is always null.
    Null,
    /// It is always this, of the field's type.
    Constant(Constant),
    /// A field of the source.
    Field(Path),
    /// A list of the source.
    List(Box<ListPath>),
}

impl Source {
    /// The value that arrives, of a field that is no list.
    pub(super) fn eval<'a>(&'a self, record: &Record<'a>) -> Result<Value<'a>, ConvertProblem> {
        match self {
            Source::Field(path) => path.eval(record),
            Source::Constant(constant) => Ok(constant.value()),
            Source::Null | Source::List(_) => Ok(Value::Null),
        }
    }

    /// Whether any record may be refused for what is in this field.
    pub(super) fn may_refuse(&self) -> bool {
        match self {
            Source::Null | Source::Constant(_) => false,
            Source::Field(path) => path.may_refuse(),
            Source::List(list) => list.may_refuse(),
        }
    }

    /// The source of a field that is made of this one by `path`; `None` if every record is refused there.
    pub(super) fn then(&self, path: &Path) -> Option<Source> {
        let made = |value| match path.apply(value).ok()? {
            Value::Null => Some(Source::Null),
            value => Constant::of(value).map(Source::Constant),
        };
        match self {
            Source::Null => made(Value::Null),
            Source::Constant(constant) => made(constant.value()),
            Source::Field(first) => Some(Source::Field(first.then(path))),
            Source::List(_) => None,
        }
    }
}

/// A field of the source, and what becomes of its values.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Path {
    /// Index of the field.
    pub(super) from: usize,
    /// Its type.
    pub(super) ty: FieldType,
    /// Whether it can be null.
    pub(super) nullable: bool,
    /// The conversions on the way, one after the other, each to a type that differs from the one before.
    pub(super) hops: Vec<Hop>,
    /// The rule for null in the end, where the nested records that the target's field lies in are there.
    pub(super) null: NullRule,
    /// The type that it arrives at.
    pub(super) to: FieldType,
}

impl Path {
    /// A field of the same format, as it is.
    pub(super) fn same(index: usize, field: &Field) -> Path {
        Path {
            from: index,
            ty: field.ty,
            nullable: field.nullable,
            hops: Vec::new(),
            null: NullRule::Keep,
            to: field.ty,
        }
    }

    /// The value that arrives.
    pub(super) fn eval<'a>(&'a self, record: &Record<'a>) -> Result<Value<'a>, ConvertProblem> {
        self.apply(record.get(self.from))
    }

    /// The rest of a value of the source's field.
    pub(super) fn apply<'a>(&'a self, value: Value<'a>) -> Result<Value<'a>, ConvertProblem> {
        match (value, &self.null) {
            (Value::Null, NullRule::Keep) => Ok(Value::Null),
            (Value::Null, NullRule::Refuse) => Err(ConvertProblem::Null),
            (Value::Null, NullRule::Default(constant)) => Ok(constant.value()),
            (value, _) => self.hops.iter().try_fold(value, convert),
        }
    }

    /// Whether any record may be refused on this path.
    pub(super) fn may_refuse(&self) -> bool {
        let mut ty = self.ty;
        let mut hops = self.hops.iter();
        (self.nullable && self.null == NullRule::Refuse)
            || hops.any(|hop| may_refuse(std::mem::replace(&mut ty, hop.to), hop))
    }

    /// This path and then another, which starts at the type where this one arrives.
    pub(super) fn then(&self, next: &Path) -> Path {
        let null = match (&self.null, &next.null) {
            (NullRule::Refuse, _) => NullRule::Refuse,
            (NullRule::Keep, next) => next.clone(),
            (NullRule::Default(constant), _) => match next.apply(constant.value()).ok().and_then(Constant::of) {
                Some(constant) => NullRule::Default(constant),
                // The default's conversion is refused, so null is.
                None => NullRule::Refuse,
            },
        };
        let hops = self.hops.iter().chain(&next.hops).cloned().collect();
        Path { hops: shorten(self.ty, hops), null, to: next.to, ..self.clone() }
    }
}

/// Leaves out types on the way that make no difference: those that hold every value of the type before them exactly.
fn shorten(from: FieldType, mut hops: Vec<Hop>) -> Vec<Hop> {
    let mut index = 0;
    while index + 1 < hops.len() {
        let before = index.checked_sub(1).map_or(from, |before| hops[before].to);
        let (on_the_way, after) = (hops[index].to, hops[index + 1].to);
        let keeps_meaning = match after {
            FieldType::Timestamp => before.is_integer() && on_the_way.is_integer(),
            after => before == after || allowed(before, after, false).is_ok(),
        };
        if is_exact(before, on_the_way) && keeps_meaning {
            hops.remove(index);
            if before == after {
                hops.remove(index);
            }
            index = index.saturating_sub(1);
        } else {
            index += 1;
        }
    }
    hops
}

/// Whether every value of one type is one of the other, from where it means the same to all other types.
fn is_exact(from: FieldType, to: FieldType) -> bool {
    use FieldType as T;
    match (from, to) {
        (T::Char(from), T::Char(to)) => from <= to,
        (T::Char(_), T::String) | (T::F32, T::F64) => true,
        (from, T::F64) => from.is_integer() && from.size() <= 4,
        (from, T::F32) => from.is_integer() && from.size() <= 2,
        (T::Bool, to) => to.is_integer(),
        (from, to) => match (from.integer_range(), to.integer_range()) {
            (Some((low, high)), Some((least, greatest))) => low >= least && high <= greatest,
            _ => false,
        },
    }
}
