//! Where a value goes, looked up once.

use crate::field::FieldType;
use crate::format::{Cell, Format};

/// Short texts are moved and looked at in blocks of this many bytes: more than most of them have.
pub(super) const BLOCK: usize = 16;
const TOP_BITS: u128 = u128::from_le_bytes([0x80; BLOCK]);

/// Where the value of a field of the innermost open record goes. A builder makes one for each value that is set by the
/// field's index; a decoder makes them when it is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(super) cell: Cell,
    pub(super) field: u32,
    /// Whether more is noted of a value than that the field is not null: that it is not missing, that nested records are there.
    pub(super) is_noted: bool,
}

impl Place {
    /// The place of a field in records, or elements, of this format; `None` if it has no such field.
    #[inline]
    pub(crate) fn of(format: &Format, field: usize) -> Option<Self> {
        let cell = *format.layout().cells.get(field)?;
        // No more than MAX_FIELDS.
        Some(Self { cell, field: field as u32, is_noted: cell.null_mask == 0 || cell.group != 0 })
    }

    /// The same, of a field for which every record gets a value, or is given up: see
    /// [`RecordBuilder::promise`](super::RecordBuilder). Of no effect where the field may be null.
    pub(crate) fn promised(self) -> Self {
        Self { is_noted: self.is_noted && self.cell.null_mask != 0, ..self }
    }

    #[inline]
    pub(crate) fn ty(self) -> FieldType {
        self.cell.ty
    }

    /// Whether the field may be null where the nested record that it is in is there.
    pub(crate) fn may_be_null(self) -> bool {
        self.cell.null_mask != 0 && !self.cell.is_shared()
    }

    /// The index of the field.
    #[inline]
    pub(crate) fn index(self) -> usize {
        self.field as usize
    }
}

/// A text or bytes, and what follows it where it came from: so that short ones can be moved in one piece.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByteRun<'a> {
    pub(crate) bytes: &'a [u8],
    /// The same bytes with those behind them.
    pub(crate) ahead: &'a [u8],
}

impl<'a> ByteRun<'a> {
    /// Bytes with nothing behind them.
    #[inline]
    pub(crate) fn alone(bytes: &'a [u8]) -> Self {
        Self { bytes, ahead: bytes }
    }

    /// Whether this is UTF-8.
    #[inline]
    pub(crate) fn is_text(&self) -> bool {
        let len = self.bytes.len();
        let is_ascii = match (self.ahead.first_chunk(), self.bytes.last_chunk()) {
            (Some(block), _) if len <= BLOCK => {
                let used = u128::MAX.checked_shr(8 * (BLOCK - len) as u32).unwrap_or_default();
                u128::from_le_bytes(*block) & used & TOP_BITS == 0
            }
            // Two that may overlap.
            (Some(first), Some(last)) if len <= 2 * BLOCK => {
                (u128::from_le_bytes(*first) | u128::from_le_bytes(*last)) & TOP_BITS == 0
            }
            _ => false,
        };
        is_ascii || str::from_utf8(self.bytes).is_ok()
    }
}
