//! Functions of texts and bytes. Positions and lengths count characters, unless they say bytes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use crossdock_format::FieldType;
use md5::Md5;
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};

use super::{Answer, Arguments, Body, Function, Gives, Kind, Prepared, Scratch, known_text};
use crate::expr::Expr;
use crate::interpret::{Datum, EvalError};

const TEXT: Gives = Gives::Type(FieldType::String);
const I64: Gives = Gives::Type(FieldType::I64);
const ONE: &[Kind] = &[Kind::Text];
const TWO: &[Kind] = &[Kind::Text, Kind::Text];

/// The most characters of a set of characters: each character of a text is looked for among them.
const MAX_SET_CHARS: usize = 256;
const SET: &str = "more than 256 of these characters are a row error";

pub(super) const FUNCTIONS: &[Function] = &[
    length("length", "the number of characters", ("length('日本')", "2")),
    length("char_length", "the same as `length`", ("char_length('é')", "1")),
    length("character_length", "the same as `length`", ("character_length('abc')", "3")),
    Function::new(
        ("octet_length", ONE, I64),
        "the number of bytes",
        ("octet_length('日本')", "6"),
        Body::Values(bytes_of),
    )
    .sure(),
    Function::new(
        ("octet_length", &[Kind::Bytes], I64),
        "",
        ("octet_length('\\x00ff'::bytea)", "2"),
        Body::Values(bytes_of),
    )
    .sure(),
    Function::new(
        ("upper", ONE, TEXT),
        "in capital letters",
        ("upper('äb')", "ÄB"),
        Body::Values(|arguments, out| each_char(arguments, out, upper)),
    )
    .but("letter by letter, whatever the locale: `ß` stays"),
    Function::new(
        ("lower", ONE, TEXT),
        "in small letters",
        ("lower('ÄB')", "äb"),
        Body::Values(|arguments, out| each_char(arguments, out, lower)),
    )
    .but("letter by letter, whatever the locale"),
    Function::new(
        ("initcap", ONE, TEXT),
        "the first letter of each word a capital, the others small",
        ("initcap('new york')", "New York"),
        Body::Values(|arguments, out| {
            let mut in_word = false;
            for char in arguments.text(0)?.chars() {
                out.push_char(if in_word { lower(char) } else { upper(char) })?;
                in_word = char.is_alphanumeric();
            }
            Ok(Answer::Made)
        }),
    ),
    trim(
        "btrim",
        "without these characters (blanks if left out) at both ends",
        ("btrim('xxaxx', 'x')", "a"),
        |a, o| trimmed(a, o, true, true),
    ),
    trim("ltrim", "without these characters at the start", ("ltrim('  a')", "a"), |a, o| trimmed(a, o, true, false)),
    trim("rtrim", "without these characters at the end", ("rtrim('a.', '.')", "a"), |a, o| trimmed(a, o, false, true)),
    Function::new(
        ("substring", &[Kind::Text, Kind::Integer, Kind::Integer], TEXT),
        "the characters from the one with the second number on, as many as the third says (all if left out); also `substring(text FROM 2 FOR 3)`",
        ("substring('streams', 4, 2)", "ea"),
        Body::Values(substring),
    )
    .optional(1),
    Function::new(
        ("substr", &[Kind::Text, Kind::Integer, Kind::Integer], TEXT),
        "the same as `substring`",
        ("substr('streams', 4)", "eams"),
        Body::Values(substring),
    )
    .optional(1),
    Function::new(
        ("left", &[Kind::Text, Kind::Integer], TEXT),
        "the first `n` characters; if `n` is below zero, all but the last",
        ("left('streams', -4)", "str"),
        Body::Values(|arguments, _| {
            let count = signed_count(arguments)?;
            chars_from(arguments, 0, count)
        }),
    ),
    Function::new(
        ("right", &[Kind::Text, Kind::Integer], TEXT),
        "the last `n` characters; if `n` is below zero, all but the first",
        ("right('streams', 4)", "eams"),
        Body::Values(|arguments, _| {
            let length = arguments.text(0)?.chars().count() as i64;
            chars_from(arguments, length - signed_count(arguments)?, length)
        }),
    ),
    Function::new(
        ("strpos", TWO, I64),
        "where the second text begins in the first, from 1; 0 if nowhere. Also `position(second IN first)`",
        ("strpos('streams', 'eam')", "4"),
        Body::Values(|arguments, _| {
            let (text, wanted) = (arguments.text(0)?, arguments.text(1)?);
            let before = text.find(wanted).and_then(|at| text.get(..at));
            Ok(Answer::Int(before.map_or(0, |before| before.chars().count() as i128 + 1)))
        }),
    ),
    Function::new(
        ("starts_with", TWO, Gives::Type(FieldType::Bool)),
        "whether the first text begins with the second",
        ("starts_with('crossdock', 'cross')", "true"),
        Body::Values(|arguments, _| Ok(Answer::Bool(arguments.bytes(0)?.starts_with(arguments.bytes(1)?)))),
    )
    .sure(),
    Function::new(
        ("replace", &[Kind::Text, Kind::Text, Kind::Text], TEXT),
        "every occurrence of the second text replaced by the third",
        ("replace('a-b-c', '-', '+')", "a+b+c"),
        Body::Values(|arguments, out| {
            let (text, from, to) = (arguments.text(0)?, arguments.text(1)?, arguments.text(2)?);
            if from.is_empty() {
                return Ok(Answer::Argument(0));
            }
            let mut pieces = text.split(from);
            out.push(pieces.next().unwrap_or_default().as_bytes())?;
            for piece in pieces {
                out.push(to.as_bytes())?;
                out.push(piece.as_bytes())?;
            }
            Ok(Answer::Made)
        }),
    ),
    Function::new(
        ("translate", &[Kind::Text, Kind::Text, Kind::Text], TEXT),
        "each character of the second text replaced by the one at its place in the third, or left out",
        ("translate('12345', '143', 'ax')", "a2x5"),
        Body::Values(|arguments, out| {
            let (from, to) = (char_set(arguments, 1)?, arguments.text(2)?);
            for char in arguments.text(0)?.chars() {
                match from.chars().position(|other| other == char) {
                    None => out.push_char(char)?,
                    Some(place) => to.chars().nth(place).map_or(Ok(()), |char| out.push_char(char))?,
                }
            }
            Ok(Answer::Made)
        }),
    )
    .but("more than 256 characters in the second text are a row error"),
    Function::new(
        ("repeat", &[Kind::Text, Kind::Integer], TEXT),
        "the text, `n` times",
        ("repeat('ab', 3)", "ababab"),
        Body::Values(|arguments, out| {
            let (text, count) = (arguments.bytes(0)?, arguments.count_at(1)?);
            for _ in 0..if text.is_empty() { 0 } else { count } {
                out.push(text)?;
            }
            Ok(Answer::Made)
        }),
    ),
    Function::new(
        ("reverse", ONE, TEXT),
        "its characters backwards",
        ("reverse('abc')", "cba"),
        Body::Values(|arguments, out| {
            arguments.text(0)?.chars().rev().try_for_each(|char| out.push_char(char))?;
            Ok(Answer::Made)
        }),
    ),
    pad(
        "lpad",
        "filled at the start (with blanks if left out) or cut to `n` characters",
        ("lpad('7', 3, '0')", "007"),
        |a, o| padded(a, o, true),
    ),
    pad("rpad", "filled at the end or cut to `n` characters", ("rpad('7', 3, 'x')", "7xx"), |a, o| {
        padded(a, o, false)
    }),
    Function::new(
        ("split_part", &[Kind::Text, Kind::Text, Kind::Integer], TEXT),
        "the part with this number (from the end if below zero) between the separators; empty if there is none",
        ("split_part('a,b,c', ',', 2)", "b"),
        Body::Values(split_part),
    ),
    Function::new(
        ("concat", &[Kind::Printed], TEXT),
        "all values as text, one behind the other; null is nothing",
        ("concat('a', NULL, 1)", "a1"),
        Body::Nulls(|arguments, out| {
            for (index, value) in arguments.values.iter().enumerate() {
                if !matches!(value, Datum::Null) {
                    out.push(arguments.bytes(index)?)?;
                }
            }
            Ok(Answer::Made)
        }),
    )
    .but("a boolean is `true` or `false`, as in a cast, not `t` or `f`")
    .variadic(),
    Function::new(
        ("concat_ws", &[Kind::Text, Kind::Printed], TEXT),
        "all values but the first that are not null, as text, with the first between them",
        ("concat_ws('-', 2013, NULL, 7)", "2013-7"),
        Body::Nulls(concat_with),
    )
    .variadic()
    .nullable(),
    Function::new(
        ("ascii", ONE, I64),
        "the number of the first character in Unicode; 0 of an empty text",
        ("ascii('é')", "233"),
        Body::Values(|arguments, _| {
            Ok(Answer::Int(arguments.text(0)?.chars().next().map_or(0, |char| i128::from(u32::from(char)))))
        }),
    ),
    Function::new(
        ("chr", &[Kind::Integer], TEXT),
        "the character with this number",
        ("chr(233)", "é"),
        Body::Values(|arguments, out| {
            let number = u32::try_from(arguments.int(0)?).ok().filter(|number| *number != 0);
            let char = number.and_then(char::from_u32).ok_or(EvalError::Domain("no character has this number"))?;
            out.push_char(char)?;
            Ok(Answer::Made)
        }),
    )
    .within(4),
    Function::new(
        ("to_hex", &[Kind::Integer], TEXT),
        "in hexadecimal, as 64 bits",
        ("to_hex(255)", "ff"),
        Body::Values(|arguments, out| {
            // Below zero in two's complement.
            let bits = arguments.int(0)? as u64;
            out.push(format_hex(bits, &mut [0; 16]))?;
            Ok(Answer::Made)
        }),
    )
    .but("numbers below zero have 16 digits: whole numbers are of 64 bits")
    .within(16)
    .sure(),
    Function::new(
        ("md5", &[Kind::Bytes], TEXT),
        "the MD5 hash, in hexadecimal",
        ("md5('\\x616263'::bytea)", "900150983cd24fb0d6963f7d28e17f72"),
        Body::Values(md5),
    )
    .within(32)
    .sure(),
    Function::new(("md5", ONE, TEXT), "", ("md5('abc')", "900150983cd24fb0d6963f7d28e17f72"), Body::Values(md5))
        .within(32)
        .sure(),
    Function::new(
        ("sha224", &[Kind::Bytes], Gives::Type(FieldType::Bytes)),
        "the SHA-224 hash",
        (
            "encode(sha224('\\x616263'::bytea), 'hex')",
            "23097d223405d8228642a477bda255b32aadbce4bda0b3f7e36c9da7",
        ),
        Body::Values(digest::<Sha224>),
    )
    .within(28)
    .sure(),
    Function::new(
        ("sha224", ONE, Gives::Type(FieldType::Bytes)),
        "",
        (
            "encode(sha224('abc'), 'hex')",
            "23097d223405d8228642a477bda255b32aadbce4bda0b3f7e36c9da7",
        ),
        Body::Values(digest::<Sha224>),
    )
    .but("PostgreSQL hashes bytes only; a text's are those of its UTF-8")
    .within(28)
    .sure(),
    Function::new(
        ("sha256", &[Kind::Bytes], Gives::Type(FieldType::Bytes)),
        "the SHA-256 hash",
        (
            "encode(sha256('\\x616263'::bytea), 'hex')",
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        ),
        Body::Values(digest::<Sha256>),
    )
    .within(32)
    .sure(),
    Function::new(
        ("sha256", ONE, Gives::Type(FieldType::Bytes)),
        "",
        (
            "encode(sha256('abc'), 'hex')",
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        ),
        Body::Values(digest::<Sha256>),
    )
    .but("PostgreSQL hashes bytes only; a text's are those of its UTF-8")
    .within(32)
    .sure(),
    Function::new(
        ("sha384", &[Kind::Bytes], Gives::Type(FieldType::Bytes)),
        "the SHA-384 hash",
        (
            "encode(sha384('\\x616263'::bytea), 'hex')",
            "cb00753f45a35e8bb5a03d699ac65007272c32ab0eded1631a8b605a43ff5bed8086072ba1e7cc2358baeca134c825a7",
        ),
        Body::Values(digest::<Sha384>),
    )
    .within(48)
    .sure(),
    Function::new(
        ("sha384", ONE, Gives::Type(FieldType::Bytes)),
        "",
        (
            "encode(sha384('abc'), 'hex')",
            "cb00753f45a35e8bb5a03d699ac65007272c32ab0eded1631a8b605a43ff5bed8086072ba1e7cc2358baeca134c825a7",
        ),
        Body::Values(digest::<Sha384>),
    )
    .but("PostgreSQL hashes bytes only; a text's are those of its UTF-8")
    .within(48)
    .sure(),
    Function::new(
        ("sha512", &[Kind::Bytes], Gives::Type(FieldType::Bytes)),
        "the SHA-512 hash",
        (
            "encode(sha512('\\x616263'::bytea), 'hex')",
            "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
        ),
        Body::Values(digest::<Sha512>),
    )
    .within(64)
    .sure(),
    Function::new(
        ("sha512", ONE, Gives::Type(FieldType::Bytes)),
        "",
        (
            "encode(sha512('abc'), 'hex')",
            "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
        ),
        Body::Values(digest::<Sha512>),
    )
    .but("PostgreSQL hashes bytes only; a text's are those of its UTF-8")
    .within(64)
    .sure(),
    Function::new(
        ("encode", &[Kind::Bytes, Kind::Word], TEXT),
        "bytes as text: `'hex'` or `'base64'`",
        ("encode('\\x00ff'::bytea, 'base64')", "AP8="),
        Body::Values(encode),
    )
    .but("base64 has no line ends")
    .prepared(encoding),
    Function::new(
        ("decode", &[Kind::Text, Kind::Word], Gives::Type(FieldType::Bytes)),
        "the bytes that a text in `'hex'` or `'base64'` says",
        ("octet_length(decode('00ff', 'hex'))", "2"),
        Body::Values(decode),
    )
    .prepared(encoding),
];

const fn length(name: &'static str, meaning: &'static str, example: (&'static str, &'static str)) -> Function {
    Function::new(
        (name, ONE, I64),
        meaning,
        example,
        Body::Values(|arguments, _| {
            // Every character has one byte that does not go on with another.
            Ok(Answer::Int(arguments.bytes(0)?.iter().filter(|byte| **byte & 0xc0 != 0x80).count() as i128))
        }),
    )
    .sure()
}

type TextFn = fn(&Arguments<'_, '_>, &mut Scratch) -> Result<Answer, EvalError>;

const fn trim(
    name: &'static str,
    meaning: &'static str,
    example: (&'static str, &'static str),
    run: TextFn,
) -> Function {
    Function::new((name, TWO, TEXT), meaning, example, Body::Values(run)).optional(1).but(SET)
}

const fn pad(
    name: &'static str,
    meaning: &'static str,
    example: (&'static str, &'static str),
    run: TextFn,
) -> Function {
    Function::new((name, &[Kind::Text, Kind::Integer, Kind::Text], TEXT), meaning, example, Body::Values(run))
        .optional(1)
}

fn bytes_of(arguments: &Arguments<'_, '_>, _: &mut Scratch) -> Result<Answer, EvalError> {
    Ok(Answer::Int(arguments.bytes(0)?.len() as i128))
}

/// The capital of a letter, if that is one letter.
fn upper(char: char) -> char {
    let mut capital = char.to_uppercase();
    match (capital.next(), capital.next()) {
        (Some(capital), None) => capital,
        _ => char,
    }
}

fn lower(char: char) -> char {
    let mut small = char.to_lowercase();
    match (small.next(), small.next()) {
        (Some(small), None) => small,
        _ => char,
    }
}

fn each_char(arguments: &Arguments<'_, '_>, out: &mut Scratch, of: fn(char) -> char) -> Result<Answer, EvalError> {
    arguments.text(0)?.chars().try_for_each(|char| out.push_char(of(char)))?;
    Ok(Answer::Made)
}

/// A text that is a set of characters.
fn char_set<'m>(arguments: &Arguments<'_, 'm>, index: usize) -> Result<&'m str, EvalError> {
    let set = arguments.text(index)?;
    match set.chars().nth(MAX_SET_CHARS) {
        None => Ok(set),
        Some(_) => Err(EvalError::Domain("a set of more than 256 characters")),
    }
}

fn trimmed(arguments: &Arguments<'_, '_>, _: &mut Scratch, start: bool, end: bool) -> Result<Answer, EvalError> {
    let text = arguments.text(0)?;
    let unwanted = if arguments.count() > 1 { char_set(arguments, 1)? } else { " " };
    let rest = if start { text.trim_start_matches(|char| unwanted.contains(char)) } else { text };
    let from = text.len() - rest.len();
    let rest = if end { rest.trim_end_matches(|char| unwanted.contains(char)) } else { rest };
    Ok(Answer::Part { argument: 0, from, to: from + rest.len() })
}

/// The characters of the first argument from one number up to before another; both may lie outside.
fn chars_from(arguments: &Arguments<'_, '_>, from: i64, to: i64) -> Result<Answer, EvalError> {
    let text = arguments.text(0)?;
    let byte_of = |index: i64| {
        let index = usize::try_from(index).unwrap_or(0);
        text.char_indices().nth(index).map_or(text.len(), |(at, _)| at)
    };
    let (from, to) = (byte_of(from), byte_of(to));
    Ok(Answer::Part { argument: 0, from, to: to.max(from) })
}

fn substring(arguments: &Arguments<'_, '_>, _: &mut Scratch) -> Result<Answer, EvalError> {
    let from = arguments.count_at(1)? - 1;
    let to = match arguments.count() {
        3 => from + arguments.count_at(2)?,
        _ => i64::MAX,
    };
    if to < from {
        return Err(EvalError::Domain("a substring of negative length"));
    }
    chars_from(arguments, from, to)
}

/// The second argument as a number of characters of the first; below zero, it counts from the end.
fn signed_count(arguments: &Arguments<'_, '_>) -> Result<i64, EvalError> {
    let count = arguments.count_at(1)?;
    Ok(if count < 0 { (arguments.text(0)?.chars().count() as i64 + count).max(0) } else { count })
}

fn padded(arguments: &Arguments<'_, '_>, out: &mut Scratch, at_start: bool) -> Result<Answer, EvalError> {
    let (text, wanted) = (arguments.text(0)?, arguments.count_at(1)?.max(0));
    let fill = if arguments.count() > 2 { arguments.text(2)? } else { " " };
    let missing = wanted - text.chars().count() as i64;
    if missing <= 0 || fill.is_empty() {
        return chars_from(arguments, 0, wanted);
    }
    if !at_start {
        out.push(text.as_bytes())?;
    }
    for char in fill.chars().cycle().take(missing as usize) {
        out.push_char(char)?;
    }
    if at_start {
        out.push(text.as_bytes())?;
    }
    Ok(Answer::Made)
}

fn split_part(arguments: &Arguments<'_, '_>, _: &mut Scratch) -> Result<Answer, EvalError> {
    let (text, separator, number) = (arguments.text(0)?, arguments.text(1)?, arguments.count_at(2)?);
    let index = usize::try_from(number.unsigned_abs()).ok().and_then(|number| number.checked_sub(1));
    let index = index.ok_or(EvalError::Domain("a part with the number 0"))?;
    let part = match (separator.is_empty(), number > 0) {
        (true, _) => (index == 0).then_some(text),
        (false, true) => text.split(separator).nth(index),
        // The parts are those from the start, even where the separator overlaps itself.
        (false, false) => {
            let from_start = text.split(separator).count().checked_sub(index + 1);
            from_start.and_then(|index| text.split(separator).nth(index))
        }
    };
    let from = part.map_or(0, |part| part.as_ptr().addr() - text.as_ptr().addr());
    Ok(Answer::Part { argument: 0, from, to: from + part.map_or(0, str::len) })
}

fn concat_with(arguments: &Arguments<'_, '_>, out: &mut Scratch) -> Result<Answer, EvalError> {
    if matches!(arguments.values.first(), Some(Datum::Null)) {
        return Ok(Answer::Null);
    }
    let mut is_first = true;
    for (index, value) in arguments.values.iter().enumerate().skip(1) {
        if matches!(value, Datum::Null) {
            continue;
        }
        if !is_first {
            out.push(arguments.bytes(0)?)?;
        }
        out.push(arguments.bytes(index)?)?;
        is_first = false;
    }
    Ok(Answer::Made)
}

const HEX: &[u8; 16] = b"0123456789abcdef";

/// The digits of a number, without zeros before the first.
fn format_hex(bits: u64, room: &mut [u8; 16]) -> &[u8] {
    for (place, digit) in room.iter_mut().rev().enumerate() {
        *digit = HEX[(bits >> (4 * place)) as usize & 15];
    }
    let zeros = (bits.leading_zeros() as usize / 4).min(15);
    &room[zeros..]
}

fn digest<D: Digest>(arguments: &Arguments<'_, '_>, out: &mut Scratch) -> Result<Answer, EvalError> {
    out.push(&D::digest(arguments.bytes(0)?))?;
    Ok(Answer::Made)
}

fn md5(arguments: &Arguments<'_, '_>, out: &mut Scratch) -> Result<Answer, EvalError> {
    push_hex(&Md5::digest(arguments.bytes(0)?), out)?;
    Ok(Answer::Made)
}

fn push_hex(bytes: &[u8], out: &mut Scratch) -> Result<(), EvalError> {
    bytes.iter().try_for_each(|byte| out.push(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]))
}

fn encoding(arguments: &[Expr]) -> Result<Prepared, (usize, String)> {
    match known_text(arguments, 1)? {
        None | Some("hex" | "base64") => Ok(Prepared::None),
        Some(other) => Err((1, format!("there is no encoding '{other}'; there are 'hex' and 'base64'"))),
    }
}

fn encode(arguments: &Arguments<'_, '_>, out: &mut Scratch) -> Result<Answer, EvalError> {
    let bytes = arguments.bytes(0)?;
    if arguments.bytes(1)? == b"hex" {
        push_hex(bytes, out)?;
        return Ok(Answer::Made);
    }
    let length = base64::encoded_len(bytes.len(), true).ok_or(EvalError::TextTooLong)?;
    if length > crate::interpret::MAX_MADE_TEXT_BYTES {
        return Err(EvalError::TextTooLong);
    }
    out.text.resize(length, 0);
    BASE64.encode_slice(bytes, &mut out.text).map_err(|_| EvalError::TextTooLong)?;
    Ok(Answer::Made)
}

/// Whether `decode` passes over this byte.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

fn decode(arguments: &Arguments<'_, '_>, out: &mut Scratch) -> Result<Answer, EvalError> {
    let not_bytes = EvalError::NotAValue(FieldType::Bytes);
    let text = arguments.bytes(0)?;
    if arguments.bytes(1)? == b"hex" {
        let digit = |byte: u8| char::from(byte).to_digit(16).ok_or(not_bytes);
        // Blanks may stand between the pairs, not within one.
        let mut rest = text.iter().copied();
        while let Some(high) = rest.find(|byte| !is_blank(*byte)) {
            let low = rest.next().ok_or(not_bytes)?;
            out.push(&[(digit(high)? * 16 + digit(low)?) as u8])?;
        }
        return Ok(Answer::Made);
    }
    let without_blanks: Vec<u8>;
    let text = if text.iter().any(|byte| is_blank(*byte)) {
        without_blanks = text.iter().copied().filter(|byte| !is_blank(*byte)).collect();
        &without_blanks[..]
    } else {
        text
    };
    out.text.resize(base64::decoded_len_estimate(text.len()), 0);
    let length = BASE64.decode_slice(text, &mut out.text).map_err(|_| not_bytes)?;
    out.text.truncate(length);
    Ok(Answer::Made)
}
