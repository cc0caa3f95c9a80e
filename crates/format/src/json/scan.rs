//! Parts of a line of JSON, read where they lie, eight bytes at a time: numbers of the usual size and texts without
//! escapes. What is anything else is `None`, which says nothing about it: whoever asked has another parser look.

use crate::direct::Run;

/// A byte in each byte of a word.
const fn each(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

const TOP_BITS: u64 = each(0x80);
/// As many digits as a float's digits may be, so that they are exact.
const EXACT_DIGITS: usize = 15;
const POWERS: [u64; EXACT_DIGITS + 1] = {
    let mut powers = [1; EXACT_DIGITS + 1];
    let mut at = 1;
    while at < powers.len() {
        powers[at] = powers[at - 1] * 10;
        at += 1;
    }
    powers
};

/// What is left of a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scan<'a> {
    rest: &'a [u8],
}

/// An integer as it is written: a sign, and digits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Integer {
    pub(super) is_negative: bool,
    pub(super) digits: u64,
}

impl<'a> Scan<'a> {
    pub(super) fn new(line: &'a [u8]) -> Self {
        Self { rest: line }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    #[inline]
    pub(super) fn skip_blanks(&mut self) {
        while let [b' ' | b'\t' | b'\r' | b'\n', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }

    /// The byte that comes next, without taking it.
    #[inline]
    pub(super) fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// Takes the byte that comes next.
    #[inline]
    pub(super) fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    /// Takes these bytes, if they come next.
    #[inline]
    pub(super) fn take(&mut self, bytes: &[u8]) -> bool {
        match self.rest.strip_prefix(bytes) {
            Some(rest) => self.rest = rest,
            None => return false,
        }
        true
    }

    /// Takes a text that was made ready to be looked for, if it comes next.
    #[inline]
    pub(super) fn take_sought(&mut self, sought: &Sought) -> bool {
        let found = match self.rest.first_chunk() {
            Some(block) => {
                (u128::from_le_bytes(*block) ^ sought.block) & sought.used == 0
                    && sought
                        .bytes
                        .get(BLOCK..)
                        .is_none_or(|tail| self.rest.get(BLOCK..).unwrap_or_default().starts_with(tail))
            }
            None => self.rest.starts_with(&sought.bytes),
        };
        if found {
            self.rest = self.rest.get(sought.bytes.len()..).unwrap_or_default();
        }
        found
    }

    /// Takes a text up to its closing quote, behind the opening one; `None` if there is an escape in it, or what is no
    /// text.
    #[inline]
    pub(super) fn text(&mut self) -> Option<Run<'a>> {
        let ahead = self.rest;
        let (mut at, mut is_ascii) = (0, true);
        let end = loop {
            let Some(block) = ahead.get(at..).and_then(|rest| rest.first_chunk()) else {
                let tail = ahead.get(at..)?;
                let end = tail.iter().position(|byte| matches!(byte, b'"' | b'\\' | ..0x20))?;
                is_ascii &= tail.get(..end)?.is_ascii();
                break at + end;
            };
            let word = u64::from_le_bytes(*block);
            // Of each, the lowest bit is exact: what is borrowed goes up only.
            let ends = (zeros(word ^ each(b'"')) | zeros(word ^ each(b'\\')) | below_blank(word)) & TOP_BITS;
            if ends != 0 {
                is_ascii &= word & (ends & ends.wrapping_neg()).wrapping_sub(1) & TOP_BITS == 0;
                break at + ends.trailing_zeros() as usize / 8;
            }
            is_ascii &= word & TOP_BITS == 0;
            at += 8;
        };
        let (bytes, rest) = ahead.split_at_checked(end)?;
        let [b'"', rest @ ..] = rest else { return None };
        if !is_ascii && str::from_utf8(bytes).is_err() {
            return None;
        }
        self.rest = rest;
        Some(Run { bytes, ahead })
    }

    /// Takes an integer of up to 64 bits and its sign. What follows may make it another number: `None` is not said then.
    #[inline]
    pub(super) fn integer(&mut self) -> Option<Integer> {
        let (is_negative, unsigned) = self.sign();
        let (digits, count) = whole(unsigned)?;
        // JSON has a negative zero, which is a float.
        if is_negative & (digits == 0) {
            return None;
        }
        self.rest = unsigned.get(count..)?;
        Some(Integer { is_negative, digits })
    }

    /// Takes a number, to the nearest float there is.
    #[inline]
    pub(super) fn float(&mut self) -> Option<f64> {
        let (is_negative, unsigned) = self.sign();
        let (mut digits, count) = whole(unsigned)?;
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
        if count + places > EXACT_DIGITS || matches!(rest, [b'e' | b'E', ..]) {
            return self.any_float(str::parse).filter(|value: &f64| value.is_finite());
        }
        self.rest = rest;
        // Digits and power of ten are exact as floats, so their quotient is rounded once, as it has to be.
        let value = digits as f64 / *POWERS.get(places)? as f64;
        Some(f64::from_bits(value.to_bits() | u64::from(is_negative) << 63))
    }

    /// Takes a number, to the nearest `f32` there is: by way of an `f64` it would be rounded twice.
    pub(super) fn narrow_float(&mut self) -> Option<f32> {
        self.any_float(str::parse).filter(|value: &f32| value.is_finite())
    }

    /// Takes any number, which the standard library reads: to the nearest float, as the JSON library does.
    #[inline(never)]
    fn any_float<N, E>(&mut self, parse: impl FnOnce(&str) -> Result<N, E>) -> Option<N> {
        let (_, unsigned) = self.sign();
        let (_, count) = whole(unsigned)?;
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

/// A text that is looked for again and again, in a form that compares in one go.
#[derive(Debug)]
pub(super) struct Sought {
    bytes: Box<[u8]>,
    block: u128,
    used: u128,
}

const BLOCK: usize = 16;

impl Sought {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        let mut block = [0; BLOCK];
        block.iter_mut().zip(&bytes).for_each(|(to, from)| *to = *from);
        let unused = 8 * BLOCK.saturating_sub(bytes.len()) as u32;
        let used = u128::MAX.checked_shr(unused).unwrap_or_default();
        Self { bytes: bytes.into(), block: u128::from_le_bytes(block), used }
    }
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

/// Digits in front of a point, of which there is at least one, the first not a zero for nothing: what they come to, and
/// how many there are.
#[inline]
fn whole(bytes: &[u8]) -> Option<(u64, usize)> {
    let (digits, count) = run_of_digits(bytes)?;
    (count == 1 || bytes.first() != Some(&b'0')).then_some((digits, count))
}

/// Digits, of which there is at least one: what they come to, and how many there are. What is beyond 64 bits is `None`.
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

/// What eight digits come to; the first is in the lowest byte.
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
