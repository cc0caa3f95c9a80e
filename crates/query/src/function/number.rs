//! Functions of numbers. Decimals are exact; what PostgreSQL computes as `numeric` and cannot be exact is a float here.

use crossdock_format::FieldType;

use super::{Answer, Arguments, Body, Function, Gives, Kind, literal_int};
use crate::decimal::{Decimal, MAX_SCALE};
use crate::expr::{Constant, Expr};
use crate::interpret::{Datum, EvalError};

const I64: Gives = Gives::Type(FieldType::I64);
const F64: Gives = Gives::Type(FieldType::F64);
const WHOLE: Gives = Gives::Decimal(|_| 0);
const FLOAT: &[Kind] = &[Kind::Float];
const FLOATS: &[Kind] = &[Kind::Float, Kind::Float];
const DECIMAL: &[Kind] = &[Kind::Decimal];
const DIGITS: &[Kind] = &[Kind::Decimal, Kind::Digits];

const OF_DECIMALS: &str = "of decimals too it is computed as `double precision`";
const DIGITS_KNOWN: &str = "the number of digits is a literal: a column has one scale";

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new(("abs", &[Kind::Integer], I64), "the absolute value", ("abs(-5)", "5"), Body::Values(abs)),
    Function::new(("abs", FLOAT, F64), "", ("abs(-2.5::float8)", "2.5"), Body::Values(abs)),
    Function::new(("abs", DECIMAL, Gives::Decimal(same_scale)), "", ("abs(-2.50)", "2.50"), Body::Values(abs)),
    float("sign", "-1, 0 or 1", ("sign(-3::float8)", "-1"), |value| {
        if value == 0.0 || value.is_nan() { value } else { value.signum() }
    }),
    Function::new(
        ("sign", DECIMAL, WHOLE),
        "",
        ("sign(-0.5)", "-1"),
        Body::Values(|arguments, _| Ok(Answer::Decimal(Decimal::new(arguments.decimal(0)?.unscaled.signum(), 0)))),
    ),
    float("round", "the nearest whole number; of two the even one", ("round(2.5::float8)", "2"), f64::round_ties_even),
    Function::new(
        ("round", DIGITS, Gives::Decimal(digits_scale)),
        "the nearest decimal with `number` digits behind the point (0 if left out); of two the one farther from zero",
        ("round(2.345, 2)", "2.35"),
        Body::Values(|arguments, _| rounded(arguments, false)),
    )
    .optional(1)
    .but(DIGITS_KNOWN)
    .prepared(needs_digits),
    float("trunc", "the whole number without the fraction", ("trunc(-2.7::float8)", "-2"), f64::trunc),
    Function::new(
        ("trunc", DIGITS, Gives::Decimal(digits_scale)),
        "the decimal with `number` digits behind the point (0 if left out), the others cut off",
        ("trunc(-2.345, 2)", "-2.34"),
        Body::Values(|arguments, _| rounded(arguments, true)),
    )
    .optional(1)
    .but(DIGITS_KNOWN)
    .prepared(needs_digits),
    float("ceil", "the least whole number that is not less", ("ceil(2.1::float8)", "3"), f64::ceil),
    Function::new(
        ("ceil", DECIMAL, WHOLE),
        "",
        ("ceil(-2.1)", "-2"),
        Body::Values(|arguments, _| arguments.decimal(0)?.ceil().map(Answer::Decimal).ok_or(EvalError::OutOfRange)),
    ),
    float("ceiling", "the same as `ceil`", ("ceiling(2.1::float8)", "3"), f64::ceil),
    Function::new(
        ("ceiling", DECIMAL, WHOLE),
        "",
        ("ceiling(2.1)", "3"),
        Body::Values(|arguments, _| arguments.decimal(0)?.ceil().map(Answer::Decimal).ok_or(EvalError::OutOfRange)),
    ),
    float("floor", "the greatest whole number that is not greater", ("floor(2.9::float8)", "2"), f64::floor),
    Function::new(
        ("floor", DECIMAL, WHOLE),
        "",
        ("floor(-2.1)", "-3"),
        Body::Values(|arguments, _| arguments.decimal(0)?.floor().map(Answer::Decimal).ok_or(EvalError::OutOfRange)),
    ),
    Function::new(
        ("div", &[Kind::Decimal, Kind::Decimal], WHOLE),
        "the quotient without its fraction",
        ("div(9.5, 2)", "4"),
        Body::Values(|arguments, _| {
            let (left, right) = (arguments.decimal(0)?, arguments.decimal(1)?);
            if right.unscaled == 0 {
                return Err(EvalError::DivisionByZero);
            }
            // Less its remainder the number divides without a rest.
            let whole =
                left.remainder(right).and_then(|rest| left.minus(rest)?.divided(right, left.scale.max(right.scale)));
            whole.and_then(|whole| whole.truncated(0)).map(Answer::Decimal).ok_or(EvalError::OutOfRange)
        }),
    ),
    Function::new(
        ("mod", &[Kind::Integer, Kind::Integer], I64),
        "the remainder, as `%`",
        ("mod(-7, 3)", "-1"),
        Body::Values(|arguments, _| {
            let (left, right) = (arguments.int(0)?, arguments.int(1)?);
            left.checked_rem(right).map(Answer::Int).ok_or(EvalError::DivisionByZero)
        }),
    ),
    Function::new(
        ("mod", &[Kind::Decimal, Kind::Decimal], Gives::Decimal(greater_scale)),
        "",
        ("mod(7.5, 2)", "1.5"),
        Body::Values(|arguments, _| {
            let (left, right) = (arguments.decimal(0)?, arguments.decimal(1)?);
            if right.unscaled == 0 {
                return Err(EvalError::DivisionByZero);
            }
            left.remainder(right).map(Answer::Decimal).ok_or(EvalError::OutOfRange)
        }),
    ),
    Function::new(
        ("gcd", &[Kind::Integer, Kind::Integer], I64),
        "the greatest common divisor",
        ("gcd(12, 18)", "6"),
        Body::Values(|arguments, _| Ok(Answer::Int(gcd(arguments.int(0)?, arguments.int(1)?)))),
    ),
    Function::new(
        ("lcm", &[Kind::Integer, Kind::Integer], I64),
        "the least common multiple",
        ("lcm(4, 6)", "12"),
        Body::Values(|arguments, _| {
            let (left, right) = (arguments.int(0)?, arguments.int(1)?);
            let multiple = (left / gcd(left, right).max(1)).checked_mul(right);
            multiple.map(|multiple| Answer::Int(multiple.abs())).ok_or(EvalError::OutOfRange)
        }),
    ),
    two_floats("power", "the first to the power of the second, as `^`", ("power(2, 10)", "1024"), |base, exponent| {
        if base == 0.0 && exponent < 0.0 {
            return Err(EvalError::Domain("zero to a power below zero"));
        }
        if base < 0.0 && base.is_finite() && exponent.is_finite() && exponent != exponent.trunc() {
            return Err(EvalError::Domain("a negative number to a power with a fraction"));
        }
        let result = base.powf(exponent);
        let is_finite = base.is_finite() && exponent.is_finite();
        if is_finite && (result.is_infinite() || (result == 0.0 && base != 0.0)) {
            Err(EvalError::OutOfRange)
        } else {
            Ok(result)
        }
    })
    .but(OF_DECIMALS),
    root("sqrt", "the square root", ("sqrt(2.25)", "1.5"), |value| {
        if value < 0.0 { Err(EvalError::Domain("the square root of a negative number")) } else { Ok(value.sqrt()) }
    }),
    root("cbrt", "the cube root", ("cbrt(27)", "3"), |value| Ok(value.cbrt())),
    root("exp", "e to the power", ("exp(0)", "1"), |value| {
        let result = value.exp();
        if value.is_finite() && (result.is_infinite() || result == 0.0) {
            Err(EvalError::OutOfRange)
        } else {
            Ok(result)
        }
    }),
    root("ln", "the natural logarithm", ("ln(1)", "0"), |value| logarithm(value, f64::ln)),
    root("log", "the logarithm to the base 10", ("log(1000)", "3"), |value| logarithm(value, f64::log10)),
    root("log10", "the same as `log`", ("log10(1000)", "3"), |value| logarithm(value, f64::log10)),
    trigonometric("sin", "the sine of an angle in radians", ("sin(0)", "0"), |value| turn(value, f64::sin)),
    trigonometric("cos", "the cosine", ("cos(0)", "1"), |value| turn(value, f64::cos)),
    trigonometric("tan", "the tangent", ("tan(0)", "0"), |value| turn(value, f64::tan)),
    trigonometric("asin", "the inverse sine, in radians", ("asin(0)", "0"), |value| inverse(value, f64::asin)),
    trigonometric("acos", "the inverse cosine", ("acos(1)", "0"), |value| inverse(value, f64::acos)),
    trigonometric("atan", "the inverse tangent", ("atan(0)", "0"), |value| Ok(value.atan())),
    two_floats("atan2", "the inverse tangent of the quotient", ("atan2(0, 1)", "0"), |y, x| Ok(y.atan2(x))),
    trigonometric("degrees", "radians as degrees", ("degrees(0)", "0"), |value| finite(value, value.to_degrees())),
    trigonometric("radians", "degrees as radians", ("radians(0)", "0"), |value| finite(value, value.to_radians())),
    Function::new(
        ("pi", &[], F64),
        "the number pi",
        ("pi()", "3.141592653589793"),
        Body::Values(|_, _| Ok(Answer::Float(std::f64::consts::PI))),
    )
    .sure(),
];

/// A function of a float that has a value for each.
const fn float(
    name: &'static str,
    meaning: &'static str,
    example: (&'static str, &'static str),
    of: fn(f64) -> f64,
) -> Function {
    Function::new((name, FLOAT, F64), meaning, example, Body::Float(of))
}

/// One of two floats.
const fn two_floats(
    name: &'static str,
    meaning: &'static str,
    example: (&'static str, &'static str),
    of: fn(f64, f64) -> Result<f64, EvalError>,
) -> Function {
    Function::new((name, FLOATS, F64), meaning, example, Body::TwoFloats(of))
}

/// One that PostgreSQL has for decimals too.
const fn root(
    name: &'static str,
    meaning: &'static str,
    example: (&'static str, &'static str),
    of: fn(f64) -> Result<f64, EvalError>,
) -> Function {
    Function::new((name, FLOAT, F64), meaning, example, Body::TryFloat(of)).but(OF_DECIMALS)
}

const fn trigonometric(
    name: &'static str,
    meaning: &'static str,
    example: (&'static str, &'static str),
    of: fn(f64) -> Result<f64, EvalError>,
) -> Function {
    Function::new((name, FLOAT, F64), meaning, example, Body::TryFloat(of))
}

fn logarithm(value: f64, of: fn(f64) -> f64) -> Result<f64, EvalError> {
    if value <= 0.0 { Err(EvalError::Domain("the logarithm of zero or of a negative number")) } else { Ok(of(value)) }
}

fn turn(value: f64, of: fn(f64) -> f64) -> Result<f64, EvalError> {
    if value.is_infinite() { Err(EvalError::Domain("an angle that is infinite")) } else { Ok(of(value)) }
}

fn inverse(value: f64, of: fn(f64) -> f64) -> Result<f64, EvalError> {
    if value.abs() > 1.0 { Err(EvalError::Domain("no angle has this sine or cosine")) } else { Ok(of(value)) }
}

fn finite(value: f64, result: f64) -> Result<f64, EvalError> {
    if value.is_finite() && result.is_infinite() { Err(EvalError::OutOfRange) } else { Ok(result) }
}

fn gcd(left: i128, right: i128) -> i128 {
    let (mut left, mut right) = (left.abs(), right.abs());
    while right != 0 {
        (left, right) = (right, left % right);
    }
    left
}

fn abs(arguments: &Arguments<'_, '_>, _: &mut super::Scratch) -> Result<Answer, EvalError> {
    match arguments.values.first() {
        Some(Datum::Int(value)) => Ok(Answer::Int(value.abs())),
        Some(Datum::Float(value)) => Ok(Answer::Float(value.abs())),
        Some(Datum::Decimal { .. }) => {
            let value = arguments.decimal(0)?;
            let value = if value.unscaled < 0 { value.negated() } else { Some(value) };
            value.map(Answer::Decimal).ok_or(EvalError::OutOfRange)
        }
        _ => Err(EvalError::IllTyped),
    }
}

/// The scale of a decimal argument; a whole number has none.
pub(super) fn scale_of(argument: Option<&Expr>) -> u8 {
    match argument.map(|argument| argument.ty) {
        Some(FieldType::Decimal { scale, .. }) => scale,
        _ => 0,
    }
}

fn same_scale(arguments: &[Expr]) -> u8 {
    scale_of(arguments.first())
}

fn greater_scale(arguments: &[Expr]) -> u8 {
    scale_of(arguments.first()).max(scale_of(arguments.get(1)))
}

/// As many digits as the second argument says, at least none.
fn digits_scale(arguments: &[Expr]) -> u8 {
    literal_int(arguments.get(1)).map_or(0, |digits| digits.clamp(0, MAX_SCALE.into()) as u8)
}

fn needs_digits(arguments: &[Expr]) -> Result<super::Prepared, (usize, String)> {
    match literal_int(arguments.get(1)) {
        None if arguments.get(1).is_some_and(|digits| digits.as_constant() != Some(&Constant::Null)) => {
            Err((1, "the number of digits must be a literal: the column has that scale".to_owned()))
        }
        Some(digits) if digits > MAX_SCALE.into() => {
            Err((1, format!("a decimal has at most {MAX_SCALE} digits behind the point")))
        }
        _ => Ok(super::Prepared::None),
    }
}

fn rounded(arguments: &Arguments<'_, '_>, cut: bool) -> Result<Answer, EvalError> {
    let value = arguments.decimal(0)?;
    let digits = if arguments.count() > 1 { arguments.count_at(1)? } else { 0 };
    let FieldType::Decimal { scale, .. } = arguments.ty else { return Err(EvalError::IllTyped) };
    let result = match u8::try_from(-digits) {
        Ok(tens) if tens > 0 => value.to_tens(tens, cut),
        Err(_) if digits < 0 => Some(Decimal::new(0, 0)),
        _ if cut => value.truncated(scale),
        _ => value.rescaled(scale),
    };
    result.map(Answer::Decimal).ok_or(EvalError::OutOfRange)
}
