//! The cost of a plan, from its steps and from how long records are.

use super::Plan;
use super::compile::{Code, Content, ListCode};
use super::step::{Op, Step};
use crate::element::Count;
use crate::format::Format;

/// The cost of a plan, roughly: for choosing between plans, and for their order in a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cost {
    /// Nanoseconds for a record on a current machine; at least 1.
    pub ns_per_record: u32,
    /// Bytes of a record that comes in: see [`expected_bytes`].
    pub bytes_in: u32,
    /// Bytes of a record that goes out, computed alike.
    pub bytes_out: u32,
}

/// The assumed length of a `string` or `bytes` field where only the format is known, in bytes.
pub const TEXT_BYTES: u32 = 16;

/// Elements that a list of any length is taken to have where only the format is known.
pub const LIST_ELEMENTS: u32 = 4;

// Thousandths of a nanosecond.
const RECORD: u64 = 1500;
const MOVE: u64 = 500;
/// Of eight bytes, with others in one loop.
const COPY: u64 = 250;
const CONVERSION: u64 = 700;
const VALUE: u64 = 8000;
const TEXT: u64 = 8000;

impl Plan {
    /// The cost of the plan.
    #[must_use]
    pub fn cost(&self) -> Cost {
        let picoseconds = match self.is_identity() {
            true => RECORD,
            false => {
                let written = if self.inner.foreign.is_some() { self.to().fields().len() as u64 } else { 0 };
                (RECORD + VALUE * written).saturating_add(of(&self.inner.code))
            }
        };
        Cost {
            ns_per_record: u32::try_from(picoseconds / 1000).unwrap_or(u32::MAX).max(1),
            bytes_in: expected_bytes(self.from()),
            bytes_out: expected_bytes(self.to()),
        }
    }
}

/// Bytes of a typical record, with a guess of [`TEXT_BYTES`] for each `string` or `bytes` and of [`LIST_ELEMENTS`] for each
/// list.
#[must_use]
pub fn expected_bytes(format: &Format) -> u32 {
    let behind = format.fields().iter().map(|field| match field.element() {
        None if field.ty.is_variable() => TEXT_BYTES,
        None => 0,
        Some(element) => {
            let bytes = expected_bytes(&element.format);
            match element.count {
                Count::Slot => bytes.saturating_mul(LIST_ELEMENTS),
                // A list in the fixed part is counted with it.
                Count::Fixed(count) => bytes.saturating_sub(element.stride).saturating_mul(count),
            }
        }
    });
    behind.fold(format.fixed_bytes() as u32, u32::saturating_add)
}

fn of(code: &Code) -> u64 {
    let steps = code.heads.iter().chain(&code.steps).map(step);
    let texts = code.variable.iter().map(|field| match &field.content {
        Content::Path(_) => TEXT + VALUE,
        Content::List(list) => elements(list),
        Content::Slot { .. } | Content::Constant(_) => TEXT,
    });
    steps.chain(texts).fold(0, u64::saturating_add)
}

fn step(step: &Step) -> u64 {
    match &step.op {
        Op::Move(bytes) => MOVE * u64::from(*bytes).div_ceil(32),
        Op::Words(words) => {
            let (copies, others) = words.count();
            COPY * copies as u64 + CONVERSION * others as u64
        }
        Op::Value { .. } | Op::Group { .. } | Op::Union(_) => VALUE,
        _ => CONVERSION,
    }
}

fn elements(list: &ListCode) -> u64 {
    let count = match list.count {
        Count::Slot => LIST_ELEMENTS,
        Count::Fixed(count) => count,
    };
    let each = if list.is_copied { 0 } else { of(&list.code).saturating_mul(count.into()) };
    (TEXT + VALUE).saturating_add(each)
}
