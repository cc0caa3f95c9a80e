//! The type that holds all numbers of a member, none of them rounded.

use crate::field::FieldType;
use crate::text;

/// Digits that every decimal of 16 bytes has room for.
const MAX_DIGITS: u32 = 38;

/// The properties that numbers have in common.
#[derive(Clone, Debug)]
pub(super) struct Numbers {
    /// The least and the greatest of the integers; `None` while there is none, or where one is beyond 128 bits.
    range: Option<(i128, i128)>,
    has_integers: bool,
    /// Whether one has a point or an exponent.
    has_floats: bool,
    /// Whether each integer is equal to a float.
    is_exact: bool,
    /// The digits that a decimal needs in front of the point and behind it; `None` where no decimal holds them all.
    digits: Option<(u32, u8)>,
}

impl Default for Numbers {
    fn default() -> Self {
        Self { range: None, has_integers: false, has_floats: false, is_exact: true, digits: Some((0, 0)) }
    }
}

impl Numbers {
    /// Adds a number, as JSON writes it.
    pub(super) fn see(&mut self, number: &str) {
        // The negative zero is a float.
        if number == "-0" || number.contains(['.', 'e', 'E']) {
            self.has_floats = true;
        } else {
            let value: Option<i128> = number.parse().ok();
            self.range = match (value, self.range) {
                (Some(value), None) if !self.has_integers => Some((value, value)),
                (Some(value), Some((least, greatest))) => Some((least.min(value), greatest.max(value))),
                _ => None,
            };
            self.has_integers = true;
            self.is_exact &= !text::is_inexact(number.as_bytes(), FieldType::F64);
        }
        self.digits = self.digits.and_then(|(whole, behind)| {
            let (unscaled, scale) = text::parse_decimal(number.as_bytes())?;
            let digits = unscaled.unsigned_abs().checked_ilog10().map_or(0, |log| log + 1);
            let (whole, behind) = (whole.max(digits.saturating_sub(scale.into())), behind.max(scale));
            (whole + u32::from(behind) <= MAX_DIGITS).then_some((whole, behind))
        });
    }

    /// Their type; `None` where no type holds them all.
    pub(super) fn ty(&self) -> Option<FieldType> {
        let decimal = self.digits.map(|(_, scale)| FieldType::Decimal { bytes: 16, scale });
        if self.has_floats {
            return if self.is_exact { Some(FieldType::F64) } else { decimal };
        }
        let fits = |ty: &FieldType| {
            let holds = |(least, greatest)| self.range.is_some_and(|(from, to)| from >= least && to <= greatest);
            ty.integer_range().is_some_and(holds)
        };
        [FieldType::I64, FieldType::U64].into_iter().find(fits).or(decimal)
    }
}
