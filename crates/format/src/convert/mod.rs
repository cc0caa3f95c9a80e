//! Conversion plans: records of one format made from records of another, `f_out = h(f_in)`.
//!
//! A [`Plan`] is compiled once for a pair of formats and [`Rules`], and then run: it copies stretches of bytes, converts
//! values, moves null bits, and appends what is in the variable part. It does not allocate once its output has room, and
//! no bytes whatever make it panic.
//!
//! # What becomes of what
//!
//! Fields are found by their names, or as `rename` rules say. A field of the target that the source does not have is
//! null, or what a `default` rule says; a target that is never null and has neither has no plan. Fields of the source
//! that the target does not have are left out.
//!
//! | from | to | how |
//! |---|---|---|
//! | any | the same | as it is |
//! | integer | integer | the same number; one that the target has no room for refuses the record |
//! | integer | `f32`, `f64` | the nearest float |
//! | `f32`, `f64` | integer | the nearest integer, the even one of two; NaN and what has no room refuse the record |
//! | `f64` | `f32` | the nearest; a finite one that would be infinite refuses the record |
//! | `bool` | integer | 0 or 1, and back; other integers refuse the record |
//! | `timestamp` | integer | with `unit`: whole units since 1970, rounded down |
//! | integer | `timestamp` | with `unit`; what is beyond its years refuses the record |
//! | `char[N]`, `string` | `char[N]`, `string`, `bytes` | the same bytes; a text that has no room, or ends in NUL, refuses the record |
//! | `bytes` | `char[N]`, `string` | the same bytes; what is not UTF-8 refuses the record |
//! | enumeration, decimal, list | another | only between a format and itself; else as SQL |
//! | nested record | nested record | field by field, where the target's is never null |
//! | null | nullable | null |
//! | null | never null | what a `default` rule says; without one it refuses the record |
//!
//! ```
//! use crossdock_format::convert::Plan;
//! use crossdock_format::{Format, Record, RecordBuilder, Value};
//!
//! let from = Format::parse_schema("carrier char[2]\nflight u16\ndelay f32 null")?;
//! let to = Format::parse_schema("flight u32\ndep_delay f64 null\nsource string")?;
//! let plan = Plan::by_name(&from, &to, &"rename delay dep_delay\ndefault source feed".parse()?)?;
//! let mut builder = RecordBuilder::new(&from);
//! builder.set_text(0, "UA")?;
//! builder.set_u64(1, 1545)?;
//! let mut out = Vec::new();
//! plan.run(builder.finish()?, &mut out)?;
//! let record = Record::check(&to, &out)?;
//! assert_eq!((record.get(0), record.get(1), record.get(2)), (Value::Uint(1545), Value::Null, Value::Text(b"feed")));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod by_name;
mod codec;
mod compile;
mod error;
mod narrow;
mod path;
mod rules;
mod run;
mod step;
mod value;

pub use codec::{Codec, MESSAGE_FIELD};
pub use error::{ConvertError, ConvertProblem, PlanError, PlanFlaw, PlanProblem};
pub use rules::{
    Conversion, ConversionError, MAX_CONVERSION_BYTES, MAX_RULES, Rule, Rules, RulesError, RulesProblem, TimeUnit,
};

use std::fmt;
use std::sync::Arc;

use compile::{Code, Text};
use path::{Path, Source};
use step::Op;

use crate::field::Field;
use crate::format::Format;

/// How records of one format become records of another. Cheap to clone (shared).
#[derive(Clone)]
pub struct Plan {
    inner: Arc<Inner>,
}

struct Inner {
    from: Format,
    to: Format,
    /// Where each field of `to` comes from.
    sources: Vec<Source>,
    /// Paths to fields that were left out on the way, followed for what they refuse.
    checks: Vec<Path>,
    code: Code,
}

/// What a plan costs, roughly: for choosing between plans, and for their order in a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cost {
    /// Nanoseconds for a record on a current machine; at least 1.
    pub ns_per_record: u32,
    /// Bytes of a record that comes in: its fixed part, and a guess of [`TEXT_BYTES`] for each `string` or `bytes`.
    pub bytes_in: u32,
    /// Bytes of a record that goes out, reckoned alike.
    pub bytes_out: u32,
}

/// What a `string` or `bytes` field is taken to hold where only the format is known, in bytes.
pub const TEXT_BYTES: u32 = 16;

impl Plan {
    /// The plan that makes records of `to` from records of `from`, field by field of the same name, and as the rules say.
    ///
    /// # Errors
    /// Every field of `to` that cannot be had, and every rule that speaks of a field which is not there, with what would
    /// mend it.
    pub fn by_name(from: &Format, to: &Format, rules: &Rules) -> Result<Plan, PlanError> {
        let sources = by_name::sources(from, to, rules)?;
        Ok(Plan::of(from, to, sources, Vec::new()))
    }

    fn of(from: &Format, to: &Format, sources: Vec<Source>, checks: Vec<Path>) -> Plan {
        let code = compile::compile(from, to, &sources, &checks);
        Plan { inner: Arc::new(Inner { from: from.clone(), to: to.clone(), sources, checks, code }) }
    }

    /// Whether a value of one field that is not null may be refused on its way to the other.
    pub(crate) fn field_may_refuse(from: &Field, to: &Field) -> bool {
        value::may_refuse(from.ty, to.ty)
    }

    /// The format of the records that come in.
    #[must_use]
    pub fn from(&self) -> &Format {
        &self.inner.from
    }

    /// The format of the records that go out.
    #[must_use]
    pub fn to(&self) -> &Format {
        &self.inner.to
    }

    /// Whether a record is the same bytes in both formats, which then differ in names alone: there is nothing to run.
    #[must_use]
    pub fn is_identity(&self) -> bool {
        self.inner.code.is_identity
    }

    /// Whether some records may be refused for what is in them.
    #[must_use]
    pub fn may_refuse(&self) -> bool {
        self.inner.code.may_refuse
    }

    /// Whether all new records are of one length: [`Format::fixed_bytes`] of the target.
    #[must_use]
    pub fn is_fixed(&self) -> bool {
        self.inner.code.variable.is_empty()
    }

    /// One plan that does what this one does and then the next one: it gives the same records and refuses the same ones,
    /// though it may name another field where several are in the way. `None` if `next` does not begin where this plan
    /// ends, or if the two together refuse every record.
    #[must_use]
    pub fn compose(&self, next: &Plan) -> Option<Plan> {
        if self.to() != next.from() {
            return None;
        }
        // Between one format and itself there may be more than a plan by name could make.
        if self.from() == self.to() && self.is_identity() {
            return Some(next.clone());
        }
        if next.from() == next.to() && next.is_identity() {
            return Some(self.clone());
        }
        let first = &self.inner.sources;
        let mut used = vec![false; first.len()];
        let mut sources = Vec::with_capacity(next.inner.sources.len());
        for source in &next.inner.sources {
            sources.push(match source {
                Source::Null | Source::Constant(_) => source.clone(),
                Source::Field(path) => {
                    used[path.from] = true;
                    first.get(path.from)?.then(path)?
                }
            });
        }
        let mut checks = self.inner.checks.clone();
        for path in &next.inner.checks {
            used[path.from] = true;
            if let Source::Field(path) = first.get(path.from)?.then(path)? {
                checks.push(path);
            }
        }
        let left_out = first.iter().zip(used).filter_map(|(source, used)| match source {
            Source::Field(path) if !used && path.may_refuse() => Some(path.clone()),
            _ => None,
        });
        checks.extend(left_out);
        Some(Plan::of(self.from(), next.to(), sources, checks))
    }

    /// What the plan costs.
    #[must_use]
    pub fn cost(&self) -> Cost {
        // Thousandths of a nanosecond.
        const RECORD: u64 = 1500;
        const MOVE: u64 = 500;
        const CONVERSION: u64 = 700;
        const VALUE: u64 = 8000;
        const TEXT: u64 = 8000;
        let code = &self.inner.code;
        let steps = code.steps.iter().map(|step| match &step.op {
            Op::Move(bytes) => MOVE * u64::from(*bytes).div_ceil(32),
            Op::Value { .. } => VALUE,
            _ => CONVERSION,
        });
        let texts = code.variable.iter().map(|field| match field.text {
            Text::Path(_) => TEXT + VALUE,
            _ => TEXT,
        });
        let picoseconds = match self.is_identity() {
            true => RECORD,
            false => RECORD + steps.chain(texts).sum::<u64>(),
        };
        Cost {
            ns_per_record: u32::try_from(picoseconds / 1000).unwrap_or(u32::MAX).max(1),
            bytes_in: expected_bytes(self.from()),
            bytes_out: expected_bytes(self.to()),
        }
    }
}

/// Bytes of a typical record.
fn expected_bytes(format: &Format) -> u32 {
    // At most MAX_FIXED_BYTES and MAX_FIELDS times TEXT_BYTES.
    let texts = format.fields().iter().filter(|field| field.ty.is_variable()).count() as u32;
    format.fixed_bytes() as u32 + texts * TEXT_BYTES
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { from, to, code, .. } = &*self.inner;
        f.debug_struct("Plan").field("from", from).field("to", to).field("code", code).finish()
    }
}
