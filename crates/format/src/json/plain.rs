//! Lines as programs write them, read in one go and put where they go in a record: objects of single values, in
//! whatever order, with or without blanks.
//!
//! What is not as usual (a name with an escape, a member twice or missing, a value of another type) is not judged here: the line is
//! then read by the JSON library, which takes it after all or tells what is wrong. So this may say no to anything, but
//! what it takes is what the library would take; tests hold it to that.
//!
//! That there is this beside the library has its reason in time: by its visitors, which look up each member's name and give each
//! value by itself, a line takes three times as long (`cargo xtask bench formats`, case `json_decode`).

use super::JsonOptions;
use super::shape::{Shape, What};
use crate::builder::{RecordBuilder, Run};
use crate::field::FieldType;
use crate::format::Format;
use crate::scan::{Needle, Scan, Target, Zeros};
use crate::text;

/// Reads plain lines into records of one format.
#[derive(Debug)]
pub(super) struct Plain {
    members: Box<[Member]>,
    /// For each member, which one came after it the last time; in front of them, which one came first.
    next: Box<[usize]>,
    /// One bit a member: those that were there.
    seen: Box<[u64]>,
    /// One bit a member: those without which there is no record.
    required: Box<[u64]>,
    format: Format,
    /// A text without its escapes.
    unescaped: Vec<u8>,
    scratch: Vec<u8>,
}

/// A member of the object.
#[derive(Debug)]
struct Member {
    /// Its name in quotes.
    name: Needle,
    target: Target,
}

impl Plain {
    /// `None` for a format that has more than single values, or a name that is not written as it is.
    pub(super) fn of(format: &Format, shape: &Shape) -> Option<Self> {
        if format.is_foreign() || !format.is_flat() {
            return None;
        }
        let mut required = vec![0; shape.entries.len().div_ceil(64)].into_boxed_slice();
        let mut members = Vec::with_capacity(shape.entries.len());
        for (index, entry) in shape.entries.iter().enumerate() {
            let What::Value(field, _) = entry.what else { return None };
            if entry.name.bytes().any(|byte| matches!(byte, b'"' | b'\\' | ..b' ')) {
                return None;
            }
            let name = Needle::new(format!("\"{}\"", entry.name).into_bytes());
            let member = Member { name, target: Target::of(format, field)? };
            let own = format.fields().get(field)?;
            if !own.nullable && own.default_text().is_none() {
                required[index / 64] |= 1 << (index % 64);
            }
            members.push(member);
        }
        let next = (0..=members.len()).collect();
        let seen = required.clone();
        let format = format.clone();
        Some(Self { members: members.into(), next, seen, required, format, unescaped: Vec::new(), scratch: Vec::new() })
    }

    /// Reads a line; false where the library has to.
    #[inline]
    pub(super) fn read(
        &mut self,
        builder: &mut RecordBuilder,
        shape: &Shape,
        options: &JsonOptions,
        line: &[u8],
    ) -> bool {
        self.object(builder, shape, options, line).is_some()
    }

    fn object(&mut self, builder: &mut RecordBuilder, shape: &Shape, options: &JsonOptions, line: &[u8]) -> Option<()> {
        builder.clear();
        self.seen.fill(0);
        let mut scan = Scan::new(line);
        scan.skip_blanks();
        scan.take(b"{").then_some(())?;
        scan.skip_blanks();
        let mut before = 0;
        let mut is_more = !scan.take(b"}");
        while is_more {
            match self.member(shape, before, &mut scan)? {
                Some(index) => {
                    skip_colon(&mut scan)?;
                    self.value(builder, options, index, &mut scan)?;
                    before = index + 1;
                }
                None if options.ignore_unknown_fields => {
                    skip_colon(&mut scan)?;
                    skip_value(&mut scan)?;
                }
                None => return None,
            }
            scan.skip_blanks();
            is_more = match scan.next()? {
                b',' => true,
                b'}' => false,
                _ => return None,
            };
            scan.skip_blanks();
        }
        let is_whole = self.required.iter().zip(&self.seen).all(|(required, seen)| required & !seen == 0);
        (is_whole && scan.is_empty()).then_some(())
    }

    /// Takes the name of a member that was not there before, and notes that it is now; within, `None` for one that the
    /// format does not have.
    #[inline]
    fn member(&mut self, shape: &Shape, before: usize, scan: &mut Scan<'_>) -> Option<Option<usize>> {
        let likely = *self.next.get(before)?;
        let index = match self.members.get(likely) {
            Some(member) if scan.take_needle(&member.name) => likely,
            _ => match self.look_up(shape, before, scan)? {
                Some(index) => index,
                None => return Some(None),
            },
        };
        let (word, bit) = (self.seen.get_mut(index / 64)?, 1 << (index % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new.then_some(Some(index))
    }

    /// Finds a member that is not the likely one, and expects it here from now on.
    #[inline(never)]
    fn look_up(&mut self, shape: &Shape, before: usize, scan: &mut Scan<'_>) -> Option<Option<usize>> {
        scan.take(b"\"").then_some(())?;
        let name = str::from_utf8(scan.text()?.bytes).ok()?;
        let found = shape.entry(name, before);
        if let Some(index) = found {
            *self.next.get_mut(before)? = index;
        }
        Some(found)
    }

    /// Takes the value of a member, and puts it into the record.
    #[inline]
    fn value(
        &mut self,
        builder: &mut RecordBuilder,
        options: &JsonOptions,
        index: usize,
        scan: &mut Scan<'_>,
    ) -> Option<()> {
        let member = self.members.get(index)?;
        let place = member.target.place;
        match scan.peek()? {
            b'"' => return self.put_text(builder, options, index, scan),
            b'n' => {
                scan.take(b"null").then_some(())?;
                return builder.put_null(place).ok();
            }
            _ => {}
        }
        match place.ty() {
            FieldType::Bool if scan.take(b"true") => builder.put(place, [1]),
            FieldType::Bool if scan.take(b"false") => builder.put(place, [0]),
            FieldType::Enum { .. } => return member.target.integer(builder, scan, Zeros::Json),
            _ => return member.target.number(builder, scan, Zeros::Json),
        }
        Some(())
    }

    /// Takes a value in quotes.
    #[inline]
    fn put_text(
        &mut self,
        builder: &mut RecordBuilder,
        options: &JsonOptions,
        index: usize,
        scan: &mut Scan<'_>,
    ) -> Option<()> {
        scan.next()?;
        let Self { members, format, unescaped, scratch, .. } = self;
        let before = *scan;
        let run = match scan.text() {
            Some(run) => run,
            None => {
                *scan = before;
                scan.escaped_text(unescaped)?;
                Run::alone(unescaped)
            }
        };
        let place = members.get(index)?.target.place;
        let is_null_word = options.null_words.iter().any(|word| word.as_bytes() == run.bytes);
        if is_null_word && builder.put_null(place).is_ok() {
            return Some(());
        }
        match place.ty() {
            FieldType::String | FieldType::Char(_) => return builder.put_run(place, run).ok(),
            FieldType::Timestamp => {
                let nanoseconds = text::parse_time(run.bytes.trim_ascii())?;
                builder.put(place, nanoseconds.to_le_bytes());
            }
            FieldType::Bytes => {
                text::decode_base64(run.bytes, scratch).ok()?;
                return builder.put_run(place, Run::alone(scratch)).ok();
            }
            FieldType::Enum { .. } => {
                let enumeration = format.layout().enumeration(place.index())?;
                let number = enumeration.number(str::from_utf8(run.bytes).ok()?)?;
                builder.put_integer(place, number as u64);
            }
            _ => return None,
        }
        Some(())
    }
}

#[inline]
fn skip_colon(scan: &mut Scan<'_>) -> Option<()> {
    scan.skip_blanks();
    scan.take(b":").then_some(())?;
    scan.skip_blanks();
    Some(())
}

/// Passes over a single value.
fn skip_value(scan: &mut Scan<'_>) -> Option<()> {
    match scan.peek()? {
        b'"' => {
            scan.next()?;
            scan.text()?;
        }
        b't' => scan.take(b"true").then_some(())?,
        b'f' => scan.take(b"false").then_some(())?,
        b'n' => scan.take(b"null").then_some(())?,
        _ => {
            scan.float(Zeros::Json)?;
        }
    }
    Some(())
}
