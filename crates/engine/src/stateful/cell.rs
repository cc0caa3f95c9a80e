//! Values of aggregates, in cells of 8 or 16 bytes: numbers unchanged, texts by the block that they are in.

use std::cmp::Ordering;

use crossdock_format::{FieldType, Value};

use super::arena::{Arena, Block};
use crate::saved::{SavedBytes, put_bytes};

/// The value of a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cell {
    Bool,
    Int,
    Uint,
    Float,
    Timestamp,
    Decimal { scale: u8 },
    Text,
    Bytes,
}

impl Cell {
    /// The cell for values of a type; `None` for lists.
    pub(super) fn of(ty: FieldType) -> Option<Cell> {
        Some(match ty {
            FieldType::Bool => Cell::Bool,
            FieldType::I8 | FieldType::I16 | FieldType::I32 | FieldType::I64 => Cell::Int,
            FieldType::U8 | FieldType::U16 | FieldType::U32 | FieldType::U64 => Cell::Uint,
            FieldType::F32 | FieldType::F64 => Cell::Float,
            FieldType::Timestamp => Cell::Timestamp,
            FieldType::Decimal { scale, .. } => Cell::Decimal { scale },
            FieldType::Char(_) | FieldType::String | FieldType::Enum { .. } => Cell::Text,
            FieldType::Bytes => Cell::Bytes,
            FieldType::List => return None,
        })
    }

    /// How many bytes it takes.
    pub(super) fn size(self) -> usize {
        if matches!(self, Cell::Decimal { .. }) { 16 } else { 8 }
    }

    /// Its value.
    pub(super) fn value<'v>(self, bytes: &[u8], at: usize, arena: &'v Arena) -> Value<'v> {
        let word = u64::from_le_bytes(load(bytes, at));
        match self {
            Cell::Bool => Value::Bool(word != 0),
            Cell::Int => Value::Int(word as i64),
            Cell::Uint => Value::Uint(word),
            Cell::Float => Value::Float(f64::from_bits(word)),
            Cell::Timestamp => Value::Timestamp(word as i64),
            Cell::Decimal { scale } => Value::Decimal { unscaled: i128::from_le_bytes(load(bytes, at)), scale },
            Cell::Text => Value::Text(arena.get(Block::from_bytes(load(bytes, at)))),
            Cell::Bytes => Value::Bytes(arena.get(Block::from_bytes(load(bytes, at)))),
        }
    }

    /// Gives it another value, of its type.
    pub(super) fn set(self, bytes: &mut [u8], at: usize, arena: &mut Arena, value: &Value<'_>) {
        match (self, value) {
            (Cell::Bool, Value::Bool(value)) => store(bytes, at, u64::from(*value).to_le_bytes()),
            (Cell::Int, Value::Int(value)) | (Cell::Timestamp, Value::Timestamp(value)) => {
                store(bytes, at, value.to_le_bytes());
            }
            (Cell::Uint, Value::Uint(value)) => store(bytes, at, value.to_le_bytes()),
            (Cell::Float, Value::Float(value)) => store(bytes, at, value.to_le_bytes()),
            (Cell::Decimal { .. }, Value::Decimal { unscaled, .. }) => store(bytes, at, unscaled.to_le_bytes()),
            (Cell::Text, Value::Text(text)) | (Cell::Bytes, Value::Bytes(text)) => {
                let block = arena.replace(Block::from_bytes(load(bytes, at)), text);
                store(bytes, at, block.to_bytes());
            }
            _ => debug_assert!(false, "a cell has the type of its column"),
        }
    }

    /// A value's bytes by themselves: of a text its own, else in `raw`. If it stands `for_equal` ones, floats that are equal have the same.
    pub(super) fn raw<'r>(value: &Value<'r>, for_equal: bool, raw: &'r mut [u8; 16]) -> &'r [u8] {
        match value {
            Value::Text(text) | Value::Bytes(text) => return text,
            Value::Decimal { unscaled, .. } => {
                *raw = unscaled.to_le_bytes();
                return raw;
            }
            Value::Bool(value) => store(raw, 0, u64::from(*value).to_le_bytes()),
            Value::Int(value) | Value::Timestamp(value) => store(raw, 0, value.to_le_bytes()),
            Value::Uint(value) => store(raw, 0, value.to_le_bytes()),
            Value::Float(value) if for_equal => {
                let value = if value.is_nan() { f64::NAN } else { value + 0.0 };
                store(raw, 0, value.to_le_bytes());
            }
            Value::Float(value) => store(raw, 0, value.to_le_bytes()),
            Value::Null | Value::Enum { .. } | Value::List(_) | Value::Record(_) => {
                debug_assert!(false, "a value of a cell is plain");
            }
        }
        &raw[..8]
    }

    /// The length of [such bytes](Cell::raw), unless it is the value's own.
    pub(super) fn raw_bytes(self) -> Option<usize> {
        match self {
            Cell::Text | Cell::Bytes => None,
            Cell::Decimal { .. } => Some(16),
            _ => Some(8),
        }
    }

    /// The value of [such bytes](Cell::raw).
    pub(super) fn of_raw(self, raw: &[u8]) -> Value<'_> {
        match self {
            Cell::Text => Value::Text(raw),
            Cell::Bytes => Value::Bytes(raw),
            Cell::Bool => Value::Bool(load(raw, 0) != [0; 8]),
            Cell::Int => Value::Int(i64::from_le_bytes(load(raw, 0))),
            Cell::Uint => Value::Uint(u64::from_le_bytes(load(raw, 0))),
            Cell::Float => Value::Float(f64::from_le_bytes(load(raw, 0))),
            Cell::Timestamp => Value::Timestamp(i64::from_le_bytes(load(raw, 0))),
            Cell::Decimal { scale } => Value::Decimal { unscaled: i128::from_le_bytes(load(raw, 0)), scale },
        }
    }

    /// Writes its value.
    pub(super) fn save(self, bytes: &[u8], at: usize, arena: &Arena, out: &mut Vec<u8>) {
        match self {
            Cell::Text | Cell::Bytes => put_bytes(out, arena.get(Block::from_bytes(load(bytes, at)))),
            Cell::Decimal { .. } => out.extend_from_slice(&load::<16>(bytes, at)),
            _ => out.extend_from_slice(&load::<8>(bytes, at)),
        }
    }

    /// Gives an empty one the value that was written.
    pub(super) fn restore(
        self,
        bytes: &mut [u8],
        at: usize,
        arena: &mut Arena,
        from: &mut SavedBytes<'_>,
    ) -> Result<(), &'static str> {
        let value: &[u8] = match self {
            Cell::Text | Cell::Bytes => &arena.put(from.bytes()?).to_bytes(),
            _ => from.take(self.size())?,
        };
        let place = bytes.get_mut(at..at + value.len()).ok_or("a value has no place")?;
        place.copy_from_slice(value);
        Ok(())
    }

    /// Lets go of the memory of its value, which is gone then.
    pub(super) fn clear(self, bytes: &mut [u8], at: usize, arena: &mut Arena) {
        if matches!(self, Cell::Text | Cell::Bytes) {
            arena.free(Block::from_bytes(load(bytes, at)));
            store(bytes, at, [0; 8]);
        }
    }
}

/// A value as aggregates see it: of an enumeration its symbol, or null if it has none.
pub(super) fn plain(value: Value<'_>) -> Value<'_> {
    match value {
        Value::Enum { symbol: Some(symbol), .. } => Value::Text(symbol.as_bytes()),
        Value::Enum { symbol: None, .. } => Value::Null,
        value => value,
    }
}

/// The order of two values of one type, as comparisons have it: NaN is greatest, -0 is 0.
pub(super) fn compare(one: &Value<'_>, other: &Value<'_>) -> Ordering {
    match (one, other) {
        (Value::Int(one), Value::Int(other)) | (Value::Timestamp(one), Value::Timestamp(other)) => one.cmp(other),
        (Value::Uint(one), Value::Uint(other)) => one.cmp(other),
        (Value::Bool(one), Value::Bool(other)) => one.cmp(other),
        (Value::Float(one), Value::Float(other)) => crate::key::of_f64(*one).cmp(&crate::key::of_f64(*other)),
        (Value::Decimal { unscaled: one, .. }, Value::Decimal { unscaled: other, .. }) => one.cmp(other),
        (Value::Text(one), Value::Text(other)) | (Value::Bytes(one), Value::Bytes(other)) => one.cmp(other),
        _ => Ordering::Equal,
    }
}

/// The same, but of equal floats the one with the lesser bits first: for values that must not depend on which of them came first.
pub(super) fn compare_exactly(one: &Value<'_>, other: &Value<'_>) -> Ordering {
    compare(one, other).then_with(|| match (one, other) {
        (Value::Float(one), Value::Float(other)) => one.total_cmp(other),
        _ => Ordering::Equal,
    })
}

/// `N` bytes from `at` on.
#[inline]
pub(super) fn load<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    debug_assert!(at + N <= bytes.len(), "cells have their places");
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

/// Writes `N` bytes from `at` on.
#[inline]
pub(super) fn store<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    debug_assert!(at + N <= bytes.len(), "cells have their places");
    if let Some(place) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
        *place = value;
    }
}
