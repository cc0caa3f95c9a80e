//! Parts of texts, read where they lie, eight bytes at a time: the grammar of JSON's texts and numbers, columns of CSV, and numbers
//! of the usual size in any encoding. An unusual number is `None`, which says nothing about it: the standard library reads it then.

use crate::builder::{ByteRun, Place, RecordBuilder};
use crate::field::{FieldType, enum_range};
use crate::format::Format;

/// A byte in each byte of a word.
const fn each(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

const TOP_BITS: u64 = each(0x80);
/// As many digits as a float's digits may be, so that they are exact.
const EXACT_DIGITS: usize = 15;
/// As many digits as an `f32` has for every integer.
const NARROW_DIGITS: usize = 7;
const POWERS: [u64; EXACT_DIGITS + 1] = {
    let mut powers = [1; EXACT_DIGITS + 1];
    let mut at = 1;
    while at < powers.len() {
        powers[at] = powers[at - 1] * 10;
        at += 1;
    }
    powers
};

/// The rest of a line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scan<'a> {
    rest: &'a [u8],
}

/// An integer as it is written: a sign, and what the digits come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Integer {
    pub(crate) is_negative: bool,
    pub(crate) magnitude: u64,
}

/// A number as it is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Digits<'a> {
    pub(crate) text: ByteRun<'a>,
    /// Its value, if it is an integer of at most 64 bits.
    pub(crate) whole: Option<Integer>,
}

impl<'a> Scan<'a> {
    pub(crate) fn new(line: &'a [u8]) -> Self {
        Self { rest: line }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    #[inline]
    pub(crate) fn skip_blanks(&mut self) {
        while let [b' ' | b'\t' | b'\r' | b'\n', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }

    /// The byte that comes next, without taking it.
    #[inline]
    pub(crate) fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// Takes the byte that comes next.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    /// Takes these bytes, if they come next.
    #[inline(always)]
    pub(crate) fn take(&mut self, bytes: &[u8]) -> bool {
        match self.rest.strip_prefix(bytes) {
            Some(rest) => self.rest = rest,
            None => return false,
        }
        true
    }

    /// Takes this byte, if it comes next.
    #[inline(always)]
    pub(crate) fn take_byte(&mut self, byte: u8) -> bool {
        match self.rest {
            [first, rest @ ..] if *first == byte => self.rest = rest,
            _ => return false,
        }
        true
    }

    /// Takes a text that was made ready to be looked for, if it comes next.
    #[inline(always)]
    pub(crate) fn take_needle(&mut self, needle: &Needle) -> bool {
        let rest = needle.behind(self.rest);
        if let Some(rest) = rest {
            self.rest = rest;
        }
        rest.is_some()
    }

    /// How many bytes are left.
    #[inline]
    pub(crate) fn left(&self) -> usize {
        self.rest.len()
    }

    /// Takes a text of JSON up to its closing quote, behind the opening one, with nothing in it that stands for something
    /// else; `None`, and it stops there, at what is in its way. That it is UTF-8 is not looked into.
    #[inline(always)]
    pub(crate) fn text(&mut self) -> Option<ByteRun<'a>> {
        let (run, _) = self.run(text_ends, is_text_end);
        self.take_byte(b'"').then_some(run)
    }

    /// Goes on with a text of JSON, which is put here without its escapes, up to its closing quote.
    ///
    /// # Errors
    /// It ends, or is not text from where this stops: what was expected there.
    #[inline(never)]
    pub(crate) fn escaped_text(&mut self, text: &mut Vec<u8>) -> Result<(), &'static str> {
        loop {
            let (run, _) = self.run(text_ends, is_text_end);
            text.extend_from_slice(run.bytes);
            match self.peek() {
                Some(b'"') => {
                    self.next();
                    return Ok(());
                }
                Some(b'\\') => {
                    self.next();
                    self.escape(text)?;
                }
                Some(_) => return Err("an escape in its place, such as \\n"),
                None => return Err("the `\"` that ends the text"),
            }
        }
    }

    /// Takes what follows a backslash.
    fn escape(&mut self, text: &mut Vec<u8>) -> Result<(), &'static str> {
        let byte = match self.peek() {
            Some(byte @ (b'"' | b'\\' | b'/')) => byte,
            Some(b'b') => 8,
            Some(b'f') => 12,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'u') => {
                self.next();
                let digits = *self;
                let mut unit = self.hex_digits()?;
                if (0xd800..0xdc00).contains(&unit) {
                    let expected = "the second half of a character, \\udc00 to \\udfff";
                    let before = *self;
                    let low = if self.take(b"\\u") { self.hex_digits()?.wrapping_sub(0xdc00) } else { u32::MAX };
                    if low >= 0x400 {
                        *self = before;
                        return Err(expected);
                    }
                    unit = 0x1_0000 + ((unit - 0xd800) << 10 | low);
                }
                let Some(character) = char::from_u32(unit) else {
                    *self = digits;
                    return Err("the first half of a character in front of its second");
                };
                text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
            _ => return Err("one of the escapes \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\u"),
        };
        self.next();
        text.push(byte);
        Ok(())
    }

    fn hex_digits(&mut self) -> Result<u32, &'static str> {
        (0..4).try_fold(0, |number, _| {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16)).ok_or("four hexadecimal digits")?;
            self.next();
            Ok(number << 4 | digit)
        })
    }

    /// Takes a number of JSON (RFC 8259, section 6). A negative zero is a float.
    ///
    /// # Errors
    /// It is no number from where this stops: what was expected there.
    #[inline(always)]
    pub(crate) fn digits(&mut self) -> Result<Digits<'a>, &'static str> {
        let start = self.rest;
        let (is_negative, unsigned) = self.sign();
        self.rest = unsigned;
        let before = unsigned.first();
        let (magnitude, count) = self.any_digits()?;
        if count > 1 && before == Some(&b'0') {
            self.rest = unsigned;
            return Err("a number without zeros in front");
        }
        let mut whole = magnitude.filter(|magnitude| !is_negative || *magnitude > 0);
        if let Some(b'.' | b'e' | b'E') = self.rest.first() {
            self.fraction()?;
            whole = None;
        }
        let bytes = start.get(..start.len() - self.rest.len()).unwrap_or_default();
        let whole = whole.map(|magnitude| Integer { is_negative, magnitude });
        Ok(Digits { text: ByteRun { bytes, ahead: start }, whole })
    }

    /// Takes a fraction and an exponent; there may be both.
    fn fraction(&mut self) -> Result<(), &'static str> {
        if self.take_byte(b'.') {
            self.any_digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.next();
            if let Some(b'+' | b'-') = self.peek() {
                self.next();
            }
            self.any_digits()?;
        }
        Ok(())
    }

    /// Takes digits: what they come to, if 64 bits have room for it, and how many there are.
    #[inline(always)]
    fn any_digits(&mut self) -> Result<(Option<u64>, usize), &'static str> {
        let (number, count) = match run_of_digits(self.rest) {
            Some((number, count)) => (Some(number), count),
            None => (None, self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count()),
        };
        self.rest = self.rest.get(count..).unwrap_or_default();
        if count == 0 { Err("a digit") } else { Ok((number, count)) }
    }

    /// Takes all that comes before a byte that is an end: `ends` says so of a word, the lowest top bit that it sets
    /// being exact.
    #[inline(always)]
    fn run(&mut self, ends: impl Fn(u64) -> u64, is_end: impl Fn(&u8) -> bool) -> (ByteRun<'a>, bool) {
        let ahead = self.rest;
        let (mut at, mut high) = (0, 0);
        let end = loop {
            let rest = ahead.get(at..).unwrap_or_default();
            let Some(block) = rest.first_chunk() else {
                let end = rest.iter().position(is_end).unwrap_or(rest.len());
                high |= u64::from(!rest.get(..end).unwrap_or_default().is_ascii()) * TOP_BITS;
                break at + end;
            };
            let word = u64::from_le_bytes(*block);
            let found = ends(word) & TOP_BITS;
            if found != 0 {
                high |= word & (found & found.wrapping_neg()).wrapping_sub(1);
                break at + found.trailing_zeros() as usize / 8;
            }
            high |= word;
            at += 8;
        };
        let (bytes, rest) = ahead.split_at_checked(end).unwrap_or((ahead, &[]));
        self.rest = rest;
        (ByteRun { bytes, ahead }, high & TOP_BITS == 0)
    }

    /// Takes an integer of up to 64 bits and its sign. The text behind it may make it another number: `None` is not
    /// said then.
    #[inline]
    fn integer(&mut self) -> Option<Integer> {
        let (is_negative, unsigned) = self.sign();
        let (digits, count) = run_of_digits(unsigned)?;
        self.rest = unsigned.get(count..)?;
        Some(Integer { is_negative, magnitude: digits })
    }

    /// Takes a number, to the nearest float there is.
    #[inline]
    pub(crate) fn float(&mut self) -> Option<f64> {
        let (is_negative, unsigned) = self.sign();
        let (mut digits, count) = run_of_digits(unsigned)?;
        let mut rest = unsigned.get(count..)?;
        let mut places = 0;
        if let [b'.', behind @ ..] = rest {
            let (fraction, count) = run_of_digits(behind)?;
            rest = behind.get(count..)?;
            places = count;
            if let Some(power) = POWERS.get(count) {
                digits = digits.wrapping_mul(*power).wrapping_add(fraction);
            }
        }
        let has_exponent = matches!(rest, [b'e' | b'E', ..]);
        if count > EXACT_DIGITS && places == 0 && !has_exponent {
            // An integer that may be between two floats.
            return None;
        }
        if count + places > EXACT_DIGITS || has_exponent {
            return self.any_float(str::parse).filter(|value: &f64| value.is_finite());
        }
        self.rest = rest;
        // Digits and power of ten are exact as floats, so their quotient is rounded once, as it has to be.
        let value = digits as f64 / *POWERS.get(places)? as f64;
        Some(f64::from_bits(value.to_bits() | u64::from(is_negative) << 63))
    }

    /// Takes a number, to the nearest `f32` there is: by way of an `f64` it would be rounded twice.
    pub(crate) fn narrow_float(&mut self) -> Option<f32> {
        let (_, unsigned) = self.sign();
        let (_, count) = run_of_digits(unsigned)?;
        if count > NARROW_DIGITS && !matches!(unsigned.get(count), Some(b'.' | b'e' | b'E')) {
            // An integer that may be between two floats.
            return None;
        }
        self.any_float(str::parse).filter(|value: &f32| value.is_finite())
    }

    /// Takes any number, which the standard library reads: to the nearest float, as the JSON library does.
    #[inline(never)]
    fn any_float<N, E>(&mut self, parse: impl FnOnce(&str) -> Result<N, E>) -> Option<N> {
        let (_, unsigned) = self.sign();
        let (_, count) = run_of_digits(unsigned)?;
        let mut rest = unsigned.get(count..)?;
        if let [b'.', behind @ ..] = rest {
            rest = behind.get(run_of_digits(behind)?.1..)?;
        }
        if let [b'e' | b'E', behind @ ..] = rest {
            let digits = match behind {
                [b'+' | b'-', digits @ ..] => digits,
                digits => digits,
            };
            rest = digits.get(run_of_digits(digits)?.1..)?;
        }
        let number = self.rest.get(..self.rest.len() - rest.len())?;
        self.rest = rest;
        parse(str::from_utf8(number).ok()?).ok()
    }

    #[inline]
    fn sign(&self) -> (bool, &'a [u8]) {
        // No branch: of delays, which are negative is anybody's guess.
        let is_negative = self.rest.first() == Some(&b'-');
        (is_negative, self.rest.get(usize::from(is_negative)..).unwrap_or_default())
    }
}

/// Shows where each part of a line starts and ends, between delimiters.
#[inline]
pub(crate) fn split(line: &[u8], delimiter: u8, mut part: impl FnMut(usize, usize)) {
    let (blocks, rest) = line.as_chunks::<8>();
    let mut start = 0;
    let mut end_at = |end: usize| {
        part(start, end);
        start = end + 1;
    };
    for (index, block) in blocks.iter().enumerate() {
        // A zero in each byte that is the delimiter. Nothing is carried from byte to byte, so all of them are found.
        let other = u64::from_le_bytes(*block) ^ each(delimiter);
        let mut found = !((other & !TOP_BITS).wrapping_add(!TOP_BITS) | other) & TOP_BITS;
        while found != 0 {
            end_at(8 * index + found.trailing_zeros() as usize / 8);
            found &= found - 1;
        }
    }
    let behind = line.len() - rest.len();
    for (index, byte) in rest.iter().enumerate() {
        if *byte == delimiter {
            end_at(behind + index);
        }
    }
    end_at(line.len());
}

/// Where a value goes that is read from text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) place: Place,
    /// The greatest magnitude of an integer: without a sign, and with one. Zeros for a type that takes none.
    most: [u64; 2],
}

impl Target {
    /// A field of records, or elements, of this format; `None` if it has no such field.
    pub(crate) fn of(format: &Format, field: usize) -> Option<Self> {
        let place = Place::of(format, field)?;
        let range = match place.ty() {
            FieldType::Enum { bytes, signed } => Some(enum_range(bytes, signed)),
            ty => ty.integer_range(),
        };
        let (least, most) = range.unwrap_or_default();
        Some(Self { place, most: [u64::try_from(most).ok()?, u64::try_from(-least).ok()?] })
    }

    /// The same, with a [promise](Place::promised).
    pub(crate) fn promised(self) -> Self {
        Self { place: self.place.promised(), ..self }
    }

    /// Takes a number, if that is what the field holds, and puts it into the record. The text behind it may make it another
    /// number, which may then be put there instead.
    #[inline(always)]
    pub(crate) fn number(&self, builder: &mut RecordBuilder, scan: &mut Scan<'_>) -> Option<()> {
        match self.place.ty() {
            FieldType::F64 => builder.put(self.place, scan.float()?.to_le_bytes()),
            FieldType::F32 => builder.put(self.place, scan.narrow_float()?.to_le_bytes()),
            ty if ty.is_integer() => {
                let integer = scan.integer()?;
                return self.put_integer(builder, integer).then_some(());
            }
            _ => return None,
        }
        Some(())
    }

    /// Puts an integer into the record, if the field is one of integers or an enumeration, and has room for it.
    #[inline(always)]
    pub(crate) fn put_integer(&self, builder: &mut RecordBuilder, integer: Integer) -> bool {
        let Integer { is_negative, magnitude } = integer;
        let is_whole = self.place.ty().is_integer() || matches!(self.place.ty(), FieldType::Enum { .. });
        if !is_whole || magnitude > self.most[usize::from(is_negative)] {
            return false;
        }
        let sign = u64::from(is_negative).wrapping_neg();
        builder.put_integer(self.place, (magnitude ^ sign).wrapping_sub(sign));
        true
    }
}

/// A text that is looked for again and again, in a form that compares in one go.
#[derive(Debug)]
pub(crate) struct Needle {
    bytes: Box<[u8]>,
    block: u128,
    used: u128,
}

const BLOCK: usize = 16;

impl Needle {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        let mut block = [0; BLOCK];
        block.iter_mut().zip(&bytes).for_each(|(to, from)| *to = *from);
        let unused = 8 * BLOCK.saturating_sub(bytes.len()) as u32;
        let used = u128::MAX.checked_shr(unused).unwrap_or_default();
        Self { bytes: bytes.into(), block: u128::from_le_bytes(block), used }
    }

    /// The bytes behind this text, if the bytes begin with it.
    #[inline]
    pub(crate) fn behind<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let found = match bytes.first_chunk() {
            Some(block) => {
                (u128::from_le_bytes(*block) ^ self.block) & self.used == 0
                    && self
                        .bytes
                        .get(BLOCK..)
                        .is_none_or(|tail| bytes.get(BLOCK..).unwrap_or_default().starts_with(tail))
            }
            None => bytes.starts_with(&self.bytes),
        };
        bytes.get(self.bytes.len()..).filter(|_| found)
    }
}

/// A top bit for each byte that ends a plain text of JSON. Of each kind the lowest is exact: what is borrowed goes up only.
#[inline]
const fn text_ends(word: u64) -> u64 {
    zeros(word ^ each(b'"')) | zeros(word ^ each(b'\\')) | below_blank(word)
}

#[inline]
fn is_text_end(byte: &u8) -> bool {
    matches!(byte, b'"' | b'\\' | ..b' ')
}

/// A top bit for each zero byte; above the lowest of them there may be more.
#[inline]
const fn zeros(word: u64) -> u64 {
    word.wrapping_sub(each(1)) & !word
}

/// A top bit for each control character; above the lowest of them there may be more.
#[inline]
const fn below_blank(word: u64) -> u64 {
    word.wrapping_sub(each(b' ')) & !word
}

/// Digits, at least one: what they come to, and how many there are. A number beyond 64 bits is `None`.
#[inline]
fn run_of_digits(bytes: &[u8]) -> Option<(u64, usize)> {
    match bytes.first_chunk() {
        Some(block) => {
            let word = u64::from_le_bytes(*block) ^ each(b'0');
            // Of bytes above 9, the lowest is found for sure: what is carried goes up only.
            let ends = (word.wrapping_add(each(0x76)) | word) & TOP_BITS;
            match ends.trailing_zeros() / 8 {
                0 => None,
                8 => many_digits(bytes),
                // To the top: in front of the first digit there are zeros then.
                count => Some((eight_digits(word << (64 - 8 * count)), count as usize)),
            }
        }
        None => many_digits(bytes),
    }
}

/// The value of eight digits; the first is in the lowest byte.
#[inline]
const fn eight_digits(word: u64) -> u64 {
    let word = (word.wrapping_mul(1 + (10 << 8)) >> 8) & 0x00ff_00ff_00ff_00ff;
    let word = (word.wrapping_mul(1 + (100 << 16)) >> 16) & 0x0000_ffff_0000_ffff;
    word.wrapping_mul(1 + (10_000 << 32)) >> 32
}

#[inline(never)]
fn many_digits(bytes: &[u8]) -> Option<(u64, usize)> {
    let (mut number, mut count) = (0_u64, 0);
    while let Some(byte) = bytes.get(count) {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        number = number.checked_mul(10)?.checked_add(digit.into())?;
        count += 1;
    }
    (count > 0).then_some((number, count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn integer(text: &str) -> Option<i128> {
        let mut scan = Scan::new(text.as_bytes());
        let Integer { is_negative, magnitude } = scan.integer()?;
        scan.is_empty().then_some(if is_negative { -i128::from(magnitude) } else { magnitude.into() })
    }

    fn float(text: &str) -> Option<u64> {
        let mut scan = Scan::new(text.as_bytes());
        let number = scan.float()?;
        scan.is_empty().then_some(number.to_bits())
    }

    proptest! {
        #[test]
        fn numbers_are_those_of_the_standard_library(
            text in prop_oneof!["-?[0-9]{0,20}", "-?[0-9]{1,9}\\.[0-9]{1,9}", "-?[0-9]{0,4}[.eE+ x-]?[0-9]{0,9}"]
        ) {
            if let Some(number) = integer(&text) {
                prop_assert_eq!(text.parse(), Ok(number));
            }
            if let Some(number) = float(&text) {
                prop_assert_eq!(text.parse().map(f64::to_bits), Ok(number));
            }
        }

        #[test]
        fn lines_are_split_at_each_delimiter(line in "[ab,\x7f\x2b-\x2d]{0,40}") {
            let mut parts = Vec::new();
            split(line.as_bytes(), b',', |start, end| parts.push(&line[start..end]));
            prop_assert_eq!(parts, line.split(',').collect::<Vec<_>>());
        }

        #[test]
        fn usual_numbers_are_read(number in -999_999_999_999_999_i64..999_999_999_999_999, places in 0_usize..7) {
            prop_assert_eq!(integer(&number.to_string()), Some(number.into()));
            let text = format!("{:.places$}", number as f64 / 1e8);
            prop_assert_eq!(float(&text), text.parse().ok().map(f64::to_bits));
        }
    }
}
