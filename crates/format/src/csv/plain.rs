//! Rows as programs write them, read in one go and put where they go in a record: single values without quotes.
//!
//! What is not as usual (a value of another type, blanks around a number, too few columns) is not judged here: the row is
//! then read field by field, and taken after all or refused with a reason. So this may say no to anything, but what it
//! takes is what would be taken there; tests hold it to that.

use super::CsvOptions;
use crate::direct::{DirectBuilder, FieldWriter};
use crate::field::FieldType;
use crate::format::Format;
use crate::scan::{Scan, Target, Zeros};
use crate::text;

/// Reads plain rows into records of one format.
#[derive(Debug)]
pub(super) struct Plain {
    columns: Box<[Column]>,
    builder: DirectBuilder,
    /// Bytes of the longest null word.
    longest_null: usize,
}

/// Where a column goes; `None` for one that is passed over.
#[derive(Debug)]
struct Column {
    target: Option<Target>,
    nullable: bool,
}

impl Plain {
    /// For columns that go to these fields; `None` where values need more to tell them apart: for a format that has
    /// more than numbers, text and times, for a delimiter or a null word that could be part of a number.
    pub(super) fn of(
        format: &Format,
        fields: impl Iterator<Item = Option<usize>>,
        options: &CsvOptions,
    ) -> Option<Self> {
        let is_of_number = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
        let has_digit = |word: &String| word.bytes().any(|byte| byte.is_ascii_digit());
        if format.is_foreign()
            || !format.is_flat()
            || is_of_number(options.delimiter)
            || options.all_null_words().any(has_digit)
        {
            return None;
        }
        let column = |field: Option<usize>| {
            let Some(index) = field else { return Some(Column { target: None, nullable: true }) };
            let field = format.fields().get(index)?;
            let is_read = !matches!(field.ty, FieldType::Bytes | FieldType::Enum { .. });
            let target = Target::of(format, index).filter(|_| is_read)?;
            Some(Column { target: Some(target), nullable: field.nullable })
        };
        let columns = fields.map(column).collect::<Option<Box<[Column]>>>()?;
        let builder = DirectBuilder::new(format, std::iter::empty(), &[]);
        let longest_null = options.all_null_words().map(String::len).max().unwrap_or(0);
        Some(Self { columns, builder, longest_null })
    }

    /// Reads a row; false where it has to be read otherwise.
    #[inline]
    pub(super) fn read(&mut self, options: &CsvOptions, line: &[u8]) -> bool {
        self.row(options, line).is_some()
    }

    /// The record of the row that was read last.
    #[inline]
    pub(super) fn record(&self) -> &[u8] {
        self.builder.record()
    }

    #[inline]
    fn row(&mut self, options: &CsvOptions, line: &[u8]) -> Option<()> {
        let Self { columns, builder, longest_null } = self;
        builder.start(line.len()).ok()?;
        let mut scan = Scan::new(line);
        let mut is_first = true;
        for Column { target, nullable } in columns {
            if !std::mem::take(&mut is_first) && scan.next()? != options.delimiter {
                return None;
            }
            let Some(target) = target else {
                scan.up_to(options.delimiter);
                continue;
            };
            let before = scan;
            if number(target, builder, &mut scan).is_some() {
                continue;
            }
            scan = before;
            let (run, is_ascii) = scan.up_to(options.delimiter);
            // Unset is null.
            if *nullable && run.bytes.len() <= *longest_null && options.is_null_word(run.bytes, target.place.ty) {
                continue;
            }
            match target.place.ty {
                FieldType::Char(_) | FieldType::String => {
                    (is_ascii || str::from_utf8(run.bytes).is_ok()).then_some(())?;
                    builder.put_run(target.place, run).ok()?;
                }
                FieldType::Timestamp => {
                    let nanoseconds = text::parse_time(run.bytes.trim_ascii())?;
                    builder.put(target.place, nanoseconds.to_le_bytes()).ok()?;
                }
                FieldType::Bool => builder.put(target.place, [u8::from(text::parse_bool(run.bytes)?)]).ok()?,
                _ => return None,
            }
        }
        scan.is_empty().then_some(())?;
        builder.finish().ok()
    }
}

/// Takes a number, if that is what the field holds, and puts it into the record.
#[inline]
fn number(target: &Target, builder: &mut DirectBuilder, scan: &mut Scan<'_>) -> Option<()> {
    match target.place.ty {
        FieldType::F64 => builder.put(target.place, scan.float(Zeros::Any)?.to_le_bytes()).ok(),
        FieldType::F32 => builder.put(target.place, scan.narrow_float(Zeros::Any)?.to_le_bytes()).ok(),
        FieldType::Char(_) | FieldType::String | FieldType::Timestamp | FieldType::Bool => None,
        _ => target.put(builder, scan.integer(Zeros::Any)?),
    }
}
