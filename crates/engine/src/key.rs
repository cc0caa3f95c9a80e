//! Values as keys: `i64` numbers that stand in the same order as the values of a column, so that every comparison of a
//! column with a constant is one test whether a key lies within two bounds.

use std::cmp::Ordering;

use crossdock_format::FieldType;
use crossdock_query::{CompareOp, Constant};

/// How a column's value is loaded and made a key. A `Char` of up to 8 bytes is a number whose first byte counts most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Load {
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F32,
    F64,
    Char(u16),
}

/// The longest `char[N]` that a key holds, in bytes.
const MAX_CHAR_BYTES: u16 = 8;

impl Load {
    /// How a column of this type is loaded; `None` if its values are no keys.
    pub(crate) fn of(ty: FieldType) -> Option<Load> {
        Some(match ty {
            FieldType::Bool | FieldType::U8 => Load::U8,
            FieldType::I8 => Load::I8,
            FieldType::I16 => Load::I16,
            FieldType::I32 | FieldType::Decimal { bytes: 4, .. } => Load::I32,
            FieldType::I64 | FieldType::Timestamp | FieldType::Decimal { bytes: 8, .. } => Load::I64,
            FieldType::U16 => Load::U16,
            FieldType::U32 => Load::U32,
            FieldType::U64 => Load::U64,
            FieldType::F32 => Load::F32,
            FieldType::F64 => Load::F64,
            FieldType::Char(bytes) if bytes <= MAX_CHAR_BYTES => Load::Char(bytes),
            FieldType::Char(_)
            | FieldType::String
            | FieldType::Bytes
            | FieldType::Decimal { .. }
            | FieldType::Enum { .. }
            | FieldType::List => return None,
        })
    }

    /// The least and the greatest value of a column of whole numbers.
    fn whole_range(self) -> Option<(i128, i128)> {
        Some(match self {
            Load::I8 => (i8::MIN.into(), i8::MAX.into()),
            Load::I16 => (i16::MIN.into(), i16::MAX.into()),
            Load::I32 => (i32::MIN.into(), i32::MAX.into()),
            Load::I64 => (i64::MIN.into(), i64::MAX.into()),
            Load::U8 => (0, u8::MAX.into()),
            Load::U16 => (0, u16::MAX.into()),
            Load::U32 => (0, u32::MAX.into()),
            Load::U64 => (0, u64::MAX.into()),
            Load::F32 | Load::F64 | Load::Char(_) => return None,
        })
    }
}

/// The key of an unsigned number.
#[inline]
pub(crate) fn of_u64(value: u64) -> i64 {
    (value ^ (1 << 63)) as i64
}

/// The key of a float: NaN is greater than every other number, -0 is 0.
#[inline]
pub(crate) fn of_f64(value: f64) -> i64 {
    if value.is_nan() {
        return i64::MAX;
    }
    // The sum makes 0 of -0. Of negative numbers the greater has the lesser bits.
    let bits = (value + 0.0).to_bits() as i64;
    bits ^ (((bits >> 63) as u64) >> 1) as i64
}

/// The key of a `char[N]`'s bytes, which come in an integer, the first one lowest, zeros above.
#[inline]
pub(crate) fn of_char(bytes: u64) -> i64 {
    of_u64(bytes.swap_bytes())
}

/// The keys that a condition holds for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Bounds {
    /// For no value.
    Nothing,
    /// For every value that is not null.
    Everything,
    /// From the first to the second, both included; never from least to greatest.
    Within(i64, i64),
    /// Everything but that.
    Outside(i64, i64),
}

impl Bounds {
    /// The keys of a column of this type for which `value op constant` is TRUE; `None` if the two do not compare, or not by
    /// keys.
    pub(crate) fn of(ty: FieldType, load: Load, op: CompareOp, constant: &Constant) -> Option<Bounds> {
        let FieldType::Decimal { scale, .. } = ty else { return Bounds::of_load(load, op, constant) };
        // In the units that the column counts.
        match *constant {
            Constant::Null => Some(Bounds::Nothing),
            Constant::Int(value) => whole_with_decimal(load, op, value, i32::from(scale)),
            Constant::Decimal(value) => {
                whole_with_decimal(load, op, value.unscaled, i32::from(scale) - i32::from(value.scale))
            }
            _ => None,
        }
    }

    fn of_load(load: Load, op: CompareOp, constant: &Constant) -> Option<Bounds> {
        match constant {
            Constant::Null => Some(Bounds::Nothing),
            Constant::Bool(value) if load == Load::U8 => whole(load, op, i128::from(*value)),
            Constant::Int(value) => match load {
                Load::F32 | Load::F64 => Some(float_with_whole(op, *value)),
                _ => whole(load, op, *value),
            },
            Constant::Timestamp(value) if load == Load::I64 => whole(load, op, (*value).into()),
            Constant::Float(value) => match load {
                Load::F32 | Load::F64 => Some(ordered(op, of_f64(*value).into(), i64::MIN.into(), i64::MAX.into())),
                _ => whole_with_float(load, op, *value),
            },
            Constant::Decimal(value) => match load {
                Load::F32 | Load::F64 => {
                    Some(ordered(op, of_f64(value.to_f64()).into(), i64::MIN.into(), i64::MAX.into()))
                }
                _ => whole_with_decimal(load, op, value.unscaled, -i32::from(value.scale)),
            },
            Constant::Text(text) => match load {
                Load::Char(bytes) => Some(char_with_text(bytes, op, text.as_bytes())),
                _ => None,
            },
            _ => None,
        }
    }

    /// The values that lie within both.
    pub(crate) fn and(self, other: Bounds) -> Option<Bounds> {
        Some(match (self, other) {
            (Bounds::Nothing, _) | (_, Bounds::Nothing) => Bounds::Nothing,
            (Bounds::Everything, bounds) | (bounds, Bounds::Everything) => bounds,
            (Bounds::Within(low, high), Bounds::Within(other_low, other_high)) => {
                let (low, high) = (low.max(other_low), high.min(other_high));
                if low <= high { Bounds::Within(low, high) } else { Bounds::Nothing }
            }
            _ => return None,
        })
    }

    /// The values that are not null and not within.
    pub(crate) fn negated(self) -> Bounds {
        match self {
            Bounds::Nothing => Bounds::Everything,
            Bounds::Everything => Bounds::Nothing,
            Bounds::Within(low, high) => Bounds::Outside(low, high),
            Bounds::Outside(low, high) => Bounds::Within(low, high),
        }
    }
}

/// The bounds of `value op point`, where values go from `least` to `most`; all in one order with keys unchanged.
fn ordered(op: CompareOp, point: i128, least: i128, most: i128) -> Bounds {
    let within = |low: i128, high: i128| {
        let (low, high) = (low.max(least), high.min(most));
        if low > high {
            Bounds::Nothing
        } else if low == least && high == most {
            Bounds::Everything
        } else {
            // Callers give bounds that are keys.
            Bounds::Within(low as i64, high as i64)
        }
    };
    match op {
        CompareOp::Eq => within(point, point),
        CompareOp::Ne => within(point, point).negated(),
        CompareOp::Lt => within(least, point.saturating_sub(1)),
        CompareOp::Le => within(least, point),
        CompareOp::Gt => within(point.saturating_add(1), most),
        CompareOp::Ge => within(point, most),
    }
}

fn whole(load: Load, op: CompareOp, point: i128) -> Option<Bounds> {
    let (least, most) = load.whole_range()?;
    Some(match load {
        // Keys of u64 are the numbers less 2^63.
        Load::U64 => {
            let shift = 1 << 63;
            ordered(op, point - shift, least - shift, most - shift)
        }
        _ => ordered(op, point, least, most),
    })
}

/// Whole numbers against a float: those beside it, without rounding.
fn whole_with_float(load: Load, op: CompareOp, point: f64) -> Option<Bounds> {
    // Every number is less than NaN. (Casts saturate, far outside of every type's range.)
    let (below, above) = match point.is_nan() {
        true => (i128::MAX, i128::MAX),
        false => (point.floor() as i128, point.ceil() as i128),
    };
    whole_between(load, op, below, above, below == above && point.is_finite())
}

/// Whole numbers against `point` times 10 to the power of `tens`, without rounding.
fn whole_with_decimal(load: Load, op: CompareOp, point: i128, tens: i32) -> Option<Bounds> {
    // Both saturate far outside of every type's range, and no number of digits is beyond 2^7.
    let power = 10_i128.checked_pow(tens.unsigned_abs()).unwrap_or(i128::MAX);
    if tens >= 0 {
        let point = point.saturating_mul(power);
        return whole_between(load, op, point, point, true);
    }
    let below = point.div_euclid(power);
    let is_whole = point.rem_euclid(power) == 0;
    whole_between(load, op, below, if is_whole { below } else { below + 1 }, is_whole)
}

/// Whole numbers against a point that lies at a whole number, or between the two that are next to it.
fn whole_between(load: Load, op: CompareOp, below: i128, above: i128, is_whole: bool) -> Option<Bounds> {
    match op {
        CompareOp::Eq if !is_whole => Some(Bounds::Nothing),
        CompareOp::Ne if !is_whole => Some(Bounds::Everything),
        CompareOp::Eq | CompareOp::Ne => whole(load, op, clipped(below)),
        CompareOp::Lt | CompareOp::Ge => whole(load, op, clipped(above)),
        CompareOp::Le | CompareOp::Gt => whole(load, op, clipped(below)),
    }
}

/// Far enough from every type's range, near enough not to overflow.
fn clipped(value: i128) -> i128 {
    value.clamp(-(1 << 100), 1 << 100)
}

/// Floats against a whole number that no float may be equal to.
fn float_with_whole(op: CompareOp, point: i128) -> Bounds {
    let near = point as f64;
    let op = match (near as i128).cmp(&point) {
        Ordering::Equal => op,
        // `near` is the first float above: to be less than the number is to be less than `near`.
        Ordering::Greater => match op {
            CompareOp::Eq => return Bounds::Nothing,
            CompareOp::Ne => return Bounds::Everything,
            CompareOp::Lt | CompareOp::Le => CompareOp::Lt,
            CompareOp::Gt | CompareOp::Ge => CompareOp::Ge,
        },
        Ordering::Less => match op {
            CompareOp::Eq => return Bounds::Nothing,
            CompareOp::Ne => return Bounds::Everything,
            CompareOp::Lt | CompareOp::Le => CompareOp::Le,
            CompareOp::Gt | CompareOp::Ge => CompareOp::Gt,
        },
    };
    ordered(op, of_f64(near).into(), i64::MIN.into(), i64::MAX.into())
}

/// `char[N]` against a text, which may be longer.
fn char_with_text(bytes: u16, op: CompareOp, text: &[u8]) -> Bounds {
    let room = text.len().min(bytes.into());
    let mut padded = [0; 8];
    padded[..room].copy_from_slice(&text[..room]);
    let point = of_char(u64::from_le_bytes(padded));
    // A column's value that is all of a longer text's beginning is still less than that text.
    let op = match (text.len() > room, op) {
        (false, op) => op,
        (true, CompareOp::Eq) => return Bounds::Nothing,
        (true, CompareOp::Ne) => return Bounds::Everything,
        (true, CompareOp::Lt | CompareOp::Le) => CompareOp::Le,
        (true, CompareOp::Gt | CompareOp::Ge) => CompareOp::Gt,
    };
    ordered(op, point.into(), i64::MIN.into(), i64::MAX.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_floats_stand_in_order() {
        let rising = [f64::NEG_INFINITY, -1e300, -1.5, -1e-300, 0.0, 1e-300, 1.5, 1e300, f64::INFINITY, f64::NAN];
        for pair in rising.windows(2) {
            assert!(of_f64(pair[0]) < of_f64(pair[1]), "{pair:?}");
        }
        assert_eq!(of_f64(-0.0), of_f64(0.0));
        assert_eq!(of_f64(-f64::NAN), of_f64(f64::NAN));
    }

    #[test]
    fn keys_of_chars_stand_in_order() {
        let key = |text: &[u8]| {
            let mut padded = [0; 8];
            padded[..text.len()].copy_from_slice(text);
            of_char(u64::from_le_bytes(padded))
        };
        for pair in [&b""[..], b"\x01", b"A", b"AB", b"AC", b"B", b"a", b"\xff"].windows(2) {
            assert!(key(pair[0]) < key(pair[1]), "{pair:?}");
        }
    }

    #[test]
    fn bounds_beyond_the_type_are_everything_or_nothing() {
        let of = |load, op, value| Bounds::of_load(load, op, &Constant::Int(value)).unwrap();
        assert_eq!(of(Load::I8, CompareOp::Gt, 127), Bounds::Nothing);
        assert_eq!(of(Load::I8, CompareOp::Ge, -128), Bounds::Everything);
        assert_eq!(of(Load::I8, CompareOp::Ne, 1000), Bounds::Everything);
        assert_eq!(of(Load::U8, CompareOp::Lt, 0), Bounds::Nothing);
        assert_eq!(of(Load::U64, CompareOp::Ge, 1 << 63), Bounds::Within(0, i64::MAX));
        assert_eq!(of(Load::U64, CompareOp::Eq, -1), Bounds::Nothing);
        assert_eq!(of(Load::I64, CompareOp::Le, u64::MAX.into()), Bounds::Everything);
        for load in [Load::I8, Load::U8, Load::I64, Load::U64] {
            for point in [1e300, -1e300, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, f64::MAX, f64::MIN] {
                let of = |op| Bounds::of_load(load, op, &Constant::Float(point)).unwrap();
                let is_above = point.is_nan() || point > 0.0;
                let (below, above) = match is_above {
                    true => (Bounds::Everything, Bounds::Nothing),
                    false => (Bounds::Nothing, Bounds::Everything),
                };
                assert_eq!((of(CompareOp::Eq), of(CompareOp::Ne)), (Bounds::Nothing, Bounds::Everything));
                assert_eq!((of(CompareOp::Lt), of(CompareOp::Le)), (below, below), "{load:?} {point}");
                assert_eq!((of(CompareOp::Gt), of(CompareOp::Ge)), (above, above), "{load:?} {point}");
            }
        }
    }
}
