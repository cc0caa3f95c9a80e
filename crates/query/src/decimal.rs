//! Decimals: whole numbers of units of 10 to the power of minus a scale, computed exactly up to 38 digits, with the rules of
//! PostgreSQL's `numeric` for the scale of a result. A scale belongs to the type, not to the value as in PostgreSQL.

use std::cmp::Ordering;
use std::fmt;
use std::io::Write as _;

/// The most digits behind the point.
pub(crate) const MAX_SCALE: u8 = 38;

/// Digits behind the point that a quotient has at least: as many as PostgreSQL gives a quotient from 1 to 9999.
pub(crate) const QUOTIENT_SCALE: u8 = 16;

/// Significant digits of an `f64` and of an `f32` that become a decimal, as in PostgreSQL, less the one before the point.
const F64_FRACTION: usize = 14;
const F32_FRACTION: usize = 5;

/// A decimal: `unscaled` units of 10 to the power of minus `scale`. `Display` writes all digits of the scale.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Decimal {
    /// The number of units.
    pub unscaled: i128,
    /// Digits behind the point, 0 to 38.
    pub scale: u8,
}

/// Why a text is no decimal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BadDecimal {
    /// It does not say a number.
    NotANumber,
    /// It says one of more than 38 digits, altogether or behind the point.
    OutOfRange,
}

/// 10 to this power; `None` beyond 128 bits.
fn power(exponent: u8) -> Option<i128> {
    10_i128.checked_pow(exponent.into())
}

/// `left / right`, rounded to the nearest, the one farther from zero of two.
fn divide_rounded(left: i128, right: i128) -> Option<i128> {
    let (quotient, rest) = (left.checked_div(right)?, left.checked_rem(right)?);
    let up = rest.unsigned_abs() >= right.unsigned_abs() - rest.unsigned_abs();
    let away = if (left < 0) == (right < 0) { 1 } else { -1 };
    if up { quotient.checked_add(away) } else { Some(quotient) }
}

/// Ten times the rest, divided: the quotient and the rest. The rest is less than the divisor, which has at most 127 bits, so
/// that the sum of two has room where ten times it may have none.
fn next_digit(rest: u128, divisor: u128) -> (u128, u128) {
    let (mut digit, mut sum) = (0, 0);
    for _ in 0..10 {
        sum += rest;
        if sum >= divisor {
            sum -= divisor;
            digit += 1;
        }
    }
    (digit, sum)
}

impl Decimal {
    pub(crate) fn new(unscaled: i128, scale: u8) -> Decimal {
        Decimal { unscaled, scale }
    }

    /// The same number, unless it has more than 38 digits.
    fn within_digits(self) -> Option<Decimal> {
        (self.unscaled.unsigned_abs() < 10_u128.pow(MAX_SCALE.into())).then_some(self)
    }

    /// The same number at another scale, rounded half away from zero where digits go; `None` if it has no room.
    pub(crate) fn rescaled(self, scale: u8) -> Option<Decimal> {
        self.at_scale(scale)?.within_digits()
    }

    /// The same as far as 128 bits hold it: columns may hold more than 38 digits.
    fn at_scale(self, scale: u8) -> Option<Decimal> {
        let unscaled = match scale.checked_sub(self.scale) {
            Some(0) => self.unscaled,
            Some(_) if self.unscaled == 0 => 0,
            Some(more) => self.unscaled.checked_mul(power(more)?)?,
            None => divide_rounded(self.unscaled, power(self.scale - scale)?)?,
        };
        Some(Decimal { unscaled, scale })
    }

    /// The same number at another scale; `None` if digits would go, or it has no room.
    pub(crate) fn rescaled_exactly(self, scale: u8) -> Option<Decimal> {
        self.rescaled(scale).filter(|other| other.compare(self).is_eq())
    }

    /// Without the digits behind the first `scale`; the scale stays where there are fewer.
    pub(crate) fn truncated(self, scale: u8) -> Option<Decimal> {
        let Some(fewer) = self.scale.checked_sub(scale) else { return self.rescaled(scale) };
        Some(Decimal { unscaled: self.unscaled.checked_div(power(fewer)?)?, scale })
    }

    /// Rounded (or cut) to a multiple of 10 to the power of `digits`, at scale 0; `None` if it has no room.
    pub(crate) fn to_tens(self, digits: u8, cut: bool) -> Option<Decimal> {
        // Below half of the least unit nothing is left.
        let Some(unit) = self.scale.checked_add(digits).and_then(power) else { return Some(Decimal::new(0, 0)) };
        let units = if cut { self.unscaled.checked_div(unit)? } else { divide_rounded(self.unscaled, unit)? };
        let whole = if units == 0 { 0 } else { units.checked_mul(power(digits)?)? };
        Decimal::new(whole, 0).within_digits()
    }

    /// The greatest whole number that is not greater.
    pub(crate) fn floor(self) -> Option<Decimal> {
        Some(Decimal::new(self.unscaled.div_euclid(power(self.scale)?), 0))
    }

    /// The least whole number that is not less.
    pub(crate) fn ceil(self) -> Option<Decimal> {
        let floor = self.floor()?;
        if floor.compare(self).is_eq() { Some(floor) } else { Some(Decimal::new(floor.unscaled.checked_add(1)?, 0)) }
    }

    pub(crate) fn negated(self) -> Option<Decimal> {
        Some(Decimal { unscaled: self.unscaled.checked_neg()?, ..self })
    }

    /// Both at the greater scale of the two.
    fn aligned(self, other: Decimal) -> Option<(i128, i128, u8)> {
        let scale = self.scale.max(other.scale);
        Some((self.rescaled(scale)?.unscaled, other.rescaled(scale)?.unscaled, scale))
    }

    pub(crate) fn plus(self, other: Decimal) -> Option<Decimal> {
        let (left, right, scale) = self.aligned(other)?;
        Decimal { unscaled: left.checked_add(right)?, scale }.within_digits()
    }

    pub(crate) fn minus(self, other: Decimal) -> Option<Decimal> {
        let (left, right, scale) = self.aligned(other)?;
        Decimal { unscaled: left.checked_sub(right)?, scale }.within_digits()
    }

    pub(crate) fn times(self, other: Decimal) -> Option<Decimal> {
        Decimal { unscaled: self.unscaled.checked_mul(other.unscaled)?, scale: self.scale + other.scale }
            .within_digits()
    }

    /// The remainder, with the sign of `self`; `None` if there is no room, or `other` is zero.
    pub(crate) fn remainder(self, other: Decimal) -> Option<Decimal> {
        let (left, right, scale) = self.aligned(other)?;
        Some(Decimal { unscaled: left.checked_rem(right)?, scale })
    }

    /// The quotient at this scale, which is at least that of `self`, rounded half away from zero; `None` if there is no room,
    /// or `other` is zero.
    pub(crate) fn divided(self, other: Decimal, scale: u8) -> Option<Decimal> {
        let more = (scale + other.scale).checked_sub(self.scale)?;
        if let Some(left) = power(more).and_then(|power| self.unscaled.checked_mul(power)) {
            return Decimal { unscaled: divide_rounded(left, other.unscaled)?, scale }.within_digits();
        }
        // Digit by digit, as on paper, where only the quotient has room.
        let (left, right) = (self.unscaled.unsigned_abs(), other.unscaled.unsigned_abs());
        let (mut quotient, mut rest) = (left.checked_div(right)?, left.checked_rem(right)?);
        for _ in 0..more {
            let (digit, next) = next_digit(rest, right);
            quotient = quotient.checked_mul(10)?.checked_add(digit)?;
            rest = next;
        }
        if rest >= right - rest {
            quotient = quotient.checked_add(1)?;
        }
        let unscaled = i128::try_from(quotient).ok()?;
        Decimal { unscaled: if (self.unscaled < 0) == (other.unscaled < 0) { unscaled } else { -unscaled }, scale }
            .within_digits()
    }

    /// How the two numbers stand to each other, whatever their scales.
    pub(crate) fn compare(self, other: Decimal) -> Ordering {
        if self.scale == other.scale {
            return self.unscaled.cmp(&other.unscaled);
        }
        let scale = self.scale.max(other.scale);
        match (self.at_scale(scale), other.at_scale(scale)) {
            (Some(left), Some(right)) => left.unscaled.cmp(&right.unscaled),
            // The one that has no room at the other's scale is farther from zero.
            (None, _) => self.unscaled.cmp(&0),
            (_, None) => 0.cmp(&other.unscaled),
        }
    }

    /// The nearest `f64`.
    pub fn to_f64(self) -> f64 {
        // An f64 holds both exactly, so the quotient is rounded once.
        if self.unscaled.unsigned_abs() <= 1 << 53 && self.scale <= 22 {
            return self.unscaled as f64 / 10_f64.powi(self.scale.into());
        }
        self.with_digits(|digits| digits.parse().unwrap_or(f64::NAN))
    }

    /// The nearest `f32`.
    pub(crate) fn to_f32(self) -> f32 {
        self.with_digits(|digits| digits.parse().unwrap_or(f32::NAN))
    }

    fn with_digits<T>(self, read: impl FnOnce(&str) -> T) -> T {
        let mut buffer = [0; 64];
        let mut rest = &mut buffer[..];
        let written = write!(rest, "{}e-{}", self.unscaled, self.scale);
        debug_assert!(written.is_ok(), "40 digits, a sign and an exponent have room");
        let length = 64 - rest.len();
        read(buffer.get(..length).and_then(|digits| str::from_utf8(digits).ok()).unwrap_or_default())
    }

    /// A float at this scale: of its first 15 digits (6 of an `f32`), as in PostgreSQL, rounded half away from zero. `None`
    /// if it has no room, or is no number.
    pub(crate) fn of_float(value: f64, is_single: bool, scale: u8) -> Option<Decimal> {
        let mut buffer = [0; 32];
        let mut rest = &mut buffer[..];
        let digits = if is_single { F32_FRACTION } else { F64_FRACTION };
        write!(rest, "{value:.digits$e}").ok()?;
        let length = 32 - rest.len();
        Decimal::parse(str::from_utf8(buffer.get(..length)?).ok()?, Some(scale)).ok()
    }

    /// A number that a text says, with an exponent perhaps: at this scale, rounded half away from zero, or with the digits
    /// that it has.
    pub(crate) fn parse(text: &str, scale: Option<u8>) -> Result<Decimal, BadDecimal> {
        let (is_negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let exponent_digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        if whole.len() + fraction.len() == 0
            || exponent_digits.is_empty()
            || ![whole, fraction, exponent_digits].into_iter().all(are_digits)
        {
            return Err(BadDecimal::NotANumber);
        }
        let exponent: i64 = exponent.parse().map_err(|_| BadDecimal::OutOfRange)?;
        let exponent = exponent.clamp(-1 << 32, 1 << 32);
        let scale = match scale {
            Some(scale) => i64::from(scale),
            None => (fraction.len() as i64 - exponent).max(0),
        };
        let scale_byte = u8::try_from(scale).ok().filter(|scale| *scale <= MAX_SCALE).ok_or(BadDecimal::OutOfRange)?;
        let digits = whole.bytes().chain(fraction.bytes()).map(|byte| i128::from(byte - b'0'));
        let negated = units(digits, whole.len() as i64 + exponent + scale).ok_or(BadDecimal::OutOfRange)?;
        let unscaled = if is_negative { Some(negated) } else { negated.checked_neg() };
        let value = unscaled.and_then(|unscaled| Decimal { unscaled, scale: scale_byte }.within_digits());
        value.ok_or(BadDecimal::OutOfRange)
    }

    /// Writes the number with all digits of its scale.
    pub(crate) fn print(self, out: &mut Vec<u8>) -> std::io::Result<()> {
        write!(out, "{self}")
    }
}

/// The first `count` of these digits as a number below zero, with zeros where there are fewer digits, rounded by the digit that
/// follows.
fn units(digits: impl Iterator<Item = i128>, count: i64) -> Option<i128> {
    let (mut value, mut taken) = (0_i128, 0);
    for digit in digits {
        if taken < count {
            value = value.checked_mul(10)?.checked_sub(digit)?;
        } else {
            let rounds_up = taken == count && digit >= 5;
            return value.checked_sub(rounds_up.into());
        }
        taken += 1;
    }
    match u8::try_from(count - taken) {
        _ if value == 0 || count <= taken => Some(value),
        Ok(zeros) => value.checked_mul(power(zeros)?),
        Err(_) => None,
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.unscaled < 0 { "-" } else { "" };
        let units = self.unscaled.unsigned_abs();
        let unit = 10_u128.pow(self.scale.min(MAX_SCALE).into());
        if self.scale == 0 {
            return write!(f, "{sign}{units}");
        }
        write!(f, "{sign}{}.{:0width$}", units / unit, units % unit, width = usize::from(self.scale))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(text: &str) -> Decimal {
        Decimal::parse(text, None).unwrap()
    }

    #[test]
    fn texts_are_read_with_their_digits_and_written_back() {
        for text in ["0", "0.10", "-0.05", "12345678901234567890.123456789", "0.00000000000000000000000000000000000001"]
        {
            assert_eq!(decimal(text).to_string(), text);
        }
        for (text, shown) in [("1e3", "1000"), ("1.50e1", "15.0"), (".5", "0.5"), ("5.", "5"), ("+1.2e-3", "0.0012")] {
            assert_eq!(decimal(text).to_string(), shown);
        }
        for text in ["", ".", "-", "1e", "e1", "1.2.3", "1_0", "NaN", "0x1", "1e+-2", " 1"] {
            assert_eq!(Decimal::parse(text, None), Err(BadDecimal::NotANumber), "{text}");
        }
        for text in ["1e38", "200000000000000000000000000000000000000", "1e-39", "1e99999999999999999999"] {
            assert_eq!(Decimal::parse(text, None), Err(BadDecimal::OutOfRange), "{text}");
        }
        assert_eq!(Decimal::parse("0e500", Some(2)), Ok(Decimal::new(0, 2)));
    }

    #[test]
    fn digits_that_go_are_rounded_half_away_from_zero() {
        for (text, scale, shown) in [
            ("0.125", 2, "0.13"),
            ("-0.125", 2, "-0.13"),
            ("2.5", 0, "3"),
            ("0.05", 0, "0"),
            ("0.5", 0, "1"),
            ("0.4999", 0, "0"),
            ("9.995", 2, "10.00"),
            ("0.000001", 2, "0.00"),
        ] {
            assert_eq!(decimal(text).rescaled(scale).unwrap().to_string(), shown);
            assert_eq!(Decimal::parse(text, Some(scale)).unwrap().to_string(), shown);
        }
        assert_eq!(decimal("1.50").rescaled_exactly(1), Some(decimal("1.5")));
        assert_eq!(decimal("1.55").rescaled_exactly(1), None);
        assert_eq!(decimal("1555").to_tens(2, false), Some(decimal("1600")));
        assert_eq!(decimal("-1555.9").to_tens(2, true), Some(decimal("-1500")));
        assert_eq!(decimal("7").to_tens(60, false), Some(decimal("0")));
    }

    #[test]
    fn operations_are_exact_or_have_no_result() {
        assert_eq!(decimal("0.10").times(decimal("3")).unwrap().to_string(), "0.30");
        assert_eq!(decimal("0.1").plus(decimal("0.25")).unwrap().to_string(), "0.35");
        assert_eq!(decimal("1").minus(decimal("0.001")).unwrap().to_string(), "0.999");
        assert_eq!(decimal("-7.5").remainder(decimal("2")).unwrap().to_string(), "-1.5");
        assert_eq!(decimal("2").divided(decimal("3"), 16).unwrap().to_string(), "0.6666666666666667");
        assert_eq!(decimal("-1").divided(decimal("8"), 2).unwrap().to_string(), "-0.13");
        // The numerator has no room at this scale, the quotient has.
        let large = decimal("123456789012345678901234567890");
        assert_eq!(
            large.divided(decimal("123456789012345678901234567.89"), 16).unwrap().to_string(),
            "1000.0000000000000000"
        );
        assert_eq!(large.times(large), None);
        let divisor = decimal("90000000000000000000000000000000000000");
        assert_eq!(
            decimal("45000000000000000000000000000000000000").divided(divisor, 16).unwrap().to_string(),
            "0.5000000000000000"
        );
        assert_eq!(decimal("99999999999999999999999999999999999999").to_tens(1, false), None);
        let most = decimal("99999999999999999999999999999999999999");
        assert_eq!((most.plus(decimal("1")), most.plus(decimal("0")), most.rescaled(1)), (None, Some(most), None));
        assert_eq!(large.divided(decimal("0"), 16), None);
        assert_eq!(decimal("1").remainder(decimal("0")), None);
        let least = Decimal::new(i128::MIN, 0);
        assert_eq!((least.negated(), least.plus(decimal("0"))), (None, None));
    }

    #[test]
    fn comparisons_do_not_depend_on_the_scale() {
        let rising = ["-99999999999999999999999999999999999999", "-1", "-0.1", "0", "0.0000000001", "0.1", "1", "1e37"];
        for pair in rising.windows(2) {
            assert_eq!(decimal(pair[0]).compare(decimal(pair[1])), Ordering::Less, "{pair:?}");
            assert_eq!(decimal(pair[1]).compare(decimal(pair[0])), Ordering::Greater, "{pair:?}");
        }
        assert_eq!(decimal("1.50").compare(decimal("1.5")), Ordering::Equal);
        assert_eq!(decimal("-1.5").floor(), Some(decimal("-2")));
        assert_eq!(decimal("-1.5").ceil(), Some(decimal("-1")));
        assert_eq!(decimal("2.0").ceil(), Some(decimal("2")));
    }

    #[test]
    fn floats_become_decimals_of_fifteen_digits() {
        for (value, scale, shown) in
            [(0.1, 20, "0.10000000000000000000"), (0.125, 2, "0.13"), (1e15, 0, "1000000000000000")]
        {
            assert_eq!(Decimal::of_float(value, false, scale).unwrap().to_string(), shown);
        }
        assert_eq!(Decimal::of_float(f64::from(0.1f32), true, 10).unwrap().to_string(), "0.1000000000");
        for value in [f64::NAN, f64::INFINITY, 1e300] {
            assert_eq!(Decimal::of_float(value, false, 2), None);
        }
        for text in ["0.1", "12345.6789", "9007199254740993", "0.00000000000000000000000000000000000001"] {
            assert_eq!(decimal(text).to_f64(), text.parse::<f64>().unwrap(), "{text}");
            assert_eq!(decimal(text).to_f32(), text.parse::<f32>().unwrap(), "{text}");
        }
    }
}
