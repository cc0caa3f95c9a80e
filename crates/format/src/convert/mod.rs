//! Conversion plans: records of one format made from records of another, `f_out = h(f_in)`.
//!
//! A [`Plan`] is compiled once for a pair of formats and [`Rules`], and then run: it copies stretches of bytes, converts
//! values, moves null bits, and appends what is in the variable part. It does not allocate once its output has room, and
//! no bytes whatever make it panic.
//!
//! # Conversion rules
//!
//! Fields are found by their names, or as `rename` rules say. A field of the target that the source does not have is
//! null, or what a `default` rule says; a target that is never null and has neither has no plan. Fields of the source
//! that the target does not have are left out. The source may be of any layout: what is not read by a load is read as
//! [`Record::get`](crate::Record::get) does. Records of a foreign target are made in its natural format
//! ([`Format::natural_format`]) and then written as the layout has them; what its fields have no room for refuses the record. How
//! long a record is, and how many elements a list has, is then worked out, unless a `rename` rule says where it comes from.
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
//! | decimal | decimal, integer | the same number; one that would lose digits, or has no room, refuses the record |
//! | integer | decimal | the same number; one that has no room refuses the record |
//! | decimal | `f32`, `f64` | the nearest float |
//! | `f32`, `f64` | decimal | the nearest decimal, the even one of two; NaN and what has no room refuse the record |
//! | enumeration | enumeration | by the symbol: a number without one, or a symbol that the target lacks, refuses the record. If both have the same symbols and numbers, by the number, as an integer |
//! | enumeration | integer | its number, and back: any that has room, be there a symbol for it or not |
//! | enumeration | `char[N]`, `string` | its symbol, and back; a number without one, and a text that is none, refuse the record |
//! | list | list | element by element; another number of elements than a fixed one refuses the record |
//! | nested record | nested record | field by field; it is there where the source's is |
//! | union | union | variant by variant, by their names; a variant that the target lacks refuses the record, unless a rule drops or renames it |
//! | null | nullable | null |
//! | null | never null | what a `default` rule says; without one it refuses the record |
//!
//! A nested record that may be null, and which the source does not have under its name, is there where any of the fields that
//! `rename` rules bring into it is not null, or where one of its fields has a `default` rule; with neither it is null. If
//! the source's nested record is null and the target has none, or one that is never null, its fields are null one by
//! one. Of a union whose variants come from elsewhere there must be one, as always.
//!
//! # Paths
//!
//! Rules name fields by their paths: `pos.x` is a field of a nested record, `legs[].km` one of each element of a list of
//! records, `stamps[]` the value of each element of a list. A `rename` or `drop` rule may name a whole nested record, union or
//! list: what lies in it goes along under its own names. A member of a list's elements comes from the elements of the one
//! list that it is made from.
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

mod body;
mod by_name;
mod codec;
mod compat;
mod compile;
mod cost;
mod decimal;
mod error;
mod fill;
mod in_place;
mod moves;
mod narrow;
mod path;
mod rules;
mod run;
mod step;
mod value;
mod why;
mod words;

pub use codec::{Codec, MESSAGE_FIELD};
pub(crate) use compat::{CompatReport, FieldCompat};
pub use cost::{Cost, LIST_ELEMENTS, TEXT_BYTES, expected_bytes};
pub use error::{ConvertError, ConvertProblem, PlanError, PlanFlaw, PlanProblem};
pub use in_place::InPlace;
pub use moves::Moves;
pub use rules::{
    Conversion, ConversionError, MAX_CONVERSION_BYTES, MAX_RULES, Rule, Rules, RulesError, RulesProblem, TimeUnit,
};

use std::fmt;
use std::sync::Arc;

use body::Body;
use compile::Code;

use crate::MAX_RECORD_BYTES;
use crate::format::{Format, RECORD_ALIGN};

/// How records of one format become records of another. Cheap to clone (shared).
#[derive(Clone)]
pub struct Plan {
    inner: Arc<Inner>,
}

struct Inner {
    body: Body,
    code: Code,
    /// The target where it is foreign: the body makes records of its natural format, which are then written as it has them.
    foreign: Option<Format>,
}

impl Plan {
    /// The plan that makes records of `to` from records of `from`, field by field of the same name, and as the rules say.
    ///
    /// # Errors
    /// Every field of `to` that cannot be had, and every rule that speaks of a field which is not there, with what would
    /// correct it.
    pub fn by_name(from: &Format, to: &Format, rules: &Rules) -> Result<Plan, PlanError> {
        match by_name::body(from, to, rules) {
            (body, flaws) if flaws.is_empty() => {
                // A foreign format is made of itself as it is.
                let foreign = (to.is_foreign() && !body.to.is_foreign()).then_some(to);
                Ok(Plan::of(body, foreign))
            }
            (_, flaws) => Err(PlanError { flaws }),
        }
    }

    /// The plan of a body; with the foreign layout that its records are written in.
    fn of(body: Body, foreign: Option<&Format>) -> Plan {
        Plan::bounded(body, foreign, MAX_RECORD_BYTES)
    }

    fn bounded(body: Body, foreign: Option<&Format>, most_bytes: usize) -> Plan {
        let code = compile::compile(&body, true, most_bytes.clamp(RECORD_ALIGN, MAX_RECORD_BYTES));
        Plan { inner: Arc::new(Inner { body, code, foreign: foreign.cloned() }) }
    }

    /// The format of the records that come in.
    #[must_use]
    pub fn from(&self) -> &Format {
        &self.inner.body.from
    }

    /// The format of the records that go out.
    #[must_use]
    pub fn to(&self) -> &Format {
        self.inner.foreign.as_ref().unwrap_or(&self.inner.body.to)
    }

    /// Whether a record is the same bytes in both formats, which then differ in names alone: there is nothing to run.
    #[must_use]
    pub fn is_identity(&self) -> bool {
        self.inner.code.is_identity && self.inner.foreign.is_none()
    }

    /// Whether some records may be refused for what is in them.
    #[must_use]
    pub fn may_refuse(&self) -> bool {
        self.inner.code.may_refuse || self.inner.foreign.is_some()
    }

    /// Whether all new records are of one length, [`Format::fixed_bytes`] of the target.
    #[must_use]
    pub fn is_fixed(&self) -> bool {
        self.inner.code.is_fixed() && self.inner.foreign.is_none()
    }

    /// The same plan, refusing records that would become longer than `most_bytes` bytes: for callers with no room for
    /// longer ones. By default [`MAX_RECORD_BYTES`] is the bound; it still is for foreign targets, and is again for
    /// plans made of this one.
    #[must_use]
    pub fn within(&self, most_bytes: usize) -> Plan {
        match self.to().is_foreign() {
            true => self.clone(),
            false => Plan::bounded(self.inner.body.clone(), None, most_bytes),
        }
    }

    /// One plan that does what this one does and then the next one: it gives the same records and refuses the same ones,
    /// though it may name another field where several are in the way. `None` if `next` does not begin where this plan
    /// ends, if the two together refuse every record, or if no one plan does what both do: where this one refuses some
    /// records for their unions, where nested records that may be null are made of fields from elsewhere on the way, or
    /// where this one makes records of a foreign layout.
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
        // The refusals of a foreign layout, and its descriptions of values, are seen only once a record is written.
        if self.inner.foreign.is_some() {
            return None;
        }
        let foreign = next.inner.foreign.as_ref();
        self.inner.body.then(&next.inner.body).map(|body| Plan::of(body, foreign))
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { body, code, .. } = &*self.inner;
        f.debug_struct("Plan").field("from", &body.from).field("to", self.to()).field("code", code).finish()
    }
}
