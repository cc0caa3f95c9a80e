//! A format for a CSV file, from its header and some of its rows.

use super::decode::read_header;
use super::rows::RowReader;
use super::{CsvError, CsvOptions, CsvProblem};
use crate::field::FieldType;
use crate::format::Format;
use crate::spec::FieldSpec;
use crate::text;

/// The assumptions of inference on the rows that it does not see.
///
/// A sample proves little about the rest of a file, so by default a type is chosen that longer or larger values do not
/// break:
/// `i64` whatever the range, `string` whatever the length. The options trade that for smaller and faster records.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct InferOptions {
    /// The first row is no header: the columns are called by their numbers, `column_1` and so on.
    pub no_header: bool,
    /// Every field nullable, though the sample may have no null in it.
    pub all_nullable: bool,
    /// The smallest signed integer type that holds the sample's values, instead of `i64`.
    pub narrow_integers: bool,
    /// `char[N]` instead of `string` where every text of the sample has the same `N` bytes, 1 to 16: codes of carriers,
    /// airports, currencies.
    pub codes_as_char: bool,
}

/// Longest text that is taken for a code, in bytes.
const MOST_CODE_BYTES: usize = 16;

/// Finds a format for rows of these columns. A column's type is the first of these that all its values are written in,
/// nulls aside: `bool` (`true` and `false` in any case), `i64`, `u64`, `f64`, `timestamp` (RFC 3339), else `string`.
/// Digits that a number would lose (leading zeros, a plus sign, more than 64 bits) make a column text. A column of
/// nulls alone is a nullable `string`. A field is nullable if a null was seen.
///
/// # Errors
/// The names make no format: one is there twice, is empty, or is no name.
pub fn infer_csv<Rows, Row, Value>(
    header: &[impl AsRef<str>],
    rows: Rows,
    csv: &CsvOptions,
    options: &InferOptions,
) -> Result<Format, CsvError>
where
    Rows: IntoIterator<Item = Row>,
    Row: IntoIterator<Item = Value>,
    Value: AsRef<[u8]>,
{
    let mut columns = vec![Column::default(); header.len()];
    for row in rows {
        for (column, value) in columns.iter_mut().zip(row) {
            column.see(value.as_ref(), false, csv);
        }
    }
    to_format(header, &columns, options)
}

/// As [`infer_csv`], from the first bytes of a file, with a header row unless the options say otherwise; `whole` if they are all of it, otherwise the
/// last row is left out, since it may be cut off. Rows that are wrong are left out too.
///
/// # Errors
/// As [`infer_csv`]; the sample has no whole header row.
pub fn infer_csv_sample(
    sample: &[u8],
    whole: bool,
    csv: &CsvOptions,
    options: &InferOptions,
) -> Result<Format, CsvError> {
    let end = if whole { sample.len() } else { memchr::memrchr(b'\n', sample).map_or(0, |end| end + 1) };
    let mut input = sample.get(..end).unwrap_or_default();
    let mut rows = RowReader::new(csv)?;
    let header = match options.no_header {
        true => number_columns(csv, input)?,
        false => read_header(&mut rows, &mut input)?,
    };
    let mut columns = vec![Column::default(); header.len()];
    loop {
        let outcome = rows.read(&mut input, |_, row| {
            if row.len() == columns.len() {
                for (column, (value, quoted)) in columns.iter_mut().zip(row.fields()) {
                    column.see(value.bytes, quoted, csv);
                }
            }
        });
        match outcome {
            Ok(Some(())) => {}
            Ok(None) => break,
            Err(error) if error.is_row() => {}
            Err(error) => return Err(error),
        }
    }
    to_format(&header, &columns, options)
}

/// As many names as the first row has columns.
fn number_columns(csv: &CsvOptions, mut input: &[u8]) -> Result<Vec<String>, CsvError> {
    let columns = RowReader::new(csv)?.read(&mut input, |_, row| row.len())?;
    let columns = columns.ok_or_else(|| CsvError::at_header(CsvProblem::NoHeader))?;
    Ok((1..=columns).map(|number| format!("column_{number}")).collect())
}

/// The properties that the values of a column have in common.
#[derive(Clone, Copy, Debug)]
struct Column {
    values: u64,
    nulls: u64,
    /// Words that are null if the column turns out not to be text.
    value_nulls: u64,
    /// Null words in quotes: null if the column turns out not to be text.
    quoted_nulls: u64,
    bool: bool,
    integer: bool,
    float: bool,
    timestamp: bool,
    /// Values that are digits, for a column of `inf` and `nan` alone is text.
    numbers: u64,
    least: i128,
    greatest: i128,
    shortest: usize,
    longest: usize,
}

impl Default for Column {
    fn default() -> Self {
        Self {
            values: 0,
            nulls: 0,
            value_nulls: 0,
            quoted_nulls: 0,
            bool: true,
            integer: true,
            float: true,
            timestamp: true,
            numbers: 0,
            least: i128::MAX,
            greatest: i128::MIN,
            shortest: usize::MAX,
            longest: 0,
        }
    }
}

impl Column {
    fn see(&mut self, value: &[u8], quoted: bool, csv: &CsvOptions) {
        if csv.is_null_word(value, FieldType::String) {
            if quoted && !csv.quoted_nulls {
                self.quoted_nulls += 1;
            } else {
                self.nulls += 1;
            }
            return;
        }
        self.shortest = self.shortest.min(value.len());
        self.longest = self.longest.max(value.len());
        if csv.is_null_word(value, FieldType::I64) {
            self.value_nulls += 1;
            return;
        }
        self.values += 1;
        let word = value.trim_ascii();
        self.bool &= word.eq_ignore_ascii_case(b"true") || word.eq_ignore_ascii_case(b"false");
        match integer(word) {
            Some(value) => {
                self.numbers += 1;
                self.least = self.least.min(value);
                self.greatest = self.greatest.max(value);
            }
            None => {
                self.integer = false;
                self.float &= is_float(word);
                self.numbers += u64::from(word.iter().any(u8::is_ascii_digit));
            }
        }
        self.timestamp = self.timestamp && text::parse_timestamp(word).is_some();
    }

    fn spec(&self, name: &str, options: &InferOptions) -> FieldSpec {
        let ty = self.ty(options);
        let nulls = if ty.is_text() { self.nulls } else { self.nulls + self.value_nulls + self.quoted_nulls };
        FieldSpec { nullable: options.all_nullable || nulls > 0, ..FieldSpec::new(name, ty) }
    }

    fn ty(&self, options: &InferOptions) -> FieldType {
        /// Up to here every integer is a float of its own.
        const EXACT: i128 = 1 << f64::MANTISSA_DIGITS;
        let within = |ty: FieldType| {
            ty.integer_range().is_some_and(|(least, greatest)| self.least >= least && self.greatest <= greatest)
        };
        let signed = [FieldType::I8, FieldType::I16, FieldType::I32, FieldType::I64];
        let candidates = if options.narrow_integers { &signed[..] } else { &signed[3..] };
        if self.values == 0 {
            return FieldType::String;
        }
        if self.bool {
            return FieldType::Bool;
        }
        if self.integer {
            let fits = candidates.iter().chain(&[FieldType::U64]).find(|ty| within(**ty));
            return fits.copied().unwrap_or(FieldType::String);
        }
        let exact = self.least >= -EXACT && self.greatest <= EXACT;
        // No integer was seen if the greatest is below the least.
        if self.float && self.numbers > 0 && (exact || self.greatest < self.least) {
            return FieldType::F64;
        }
        if self.timestamp {
            return FieldType::Timestamp;
        }
        let is_code = self.shortest == self.longest && self.longest <= MOST_CODE_BYTES && self.quoted_nulls == 0;
        match u16::try_from(self.longest) {
            Ok(bytes @ 1..) if options.codes_as_char && is_code => FieldType::Char(bytes),
            _ => FieldType::String,
        }
    }
}

/// An integer that its digits are the only way to write.
fn integer(word: &[u8]) -> Option<i128> {
    let digits = word.strip_prefix(b"-").unwrap_or(word);
    if has_lost_zero(digits) || digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    str::from_utf8(word).ok()?.parse().ok()
}

fn is_float(word: &[u8]) -> bool {
    let digits = word.strip_prefix(b"-").unwrap_or(word);
    // More digits than 64 bits: an identifier, not a quantity.
    let is_long_integer = digits.iter().all(u8::is_ascii_digit);
    !digits.starts_with(b"+") && !has_lost_zero(digits) && !is_long_integer && text::parse_f64(word).is_some()
}

/// Whether the digits start with a zero that a number would not keep.
fn has_lost_zero(digits: &[u8]) -> bool {
    matches!(digits, [b'0', b'0'..=b'9', ..])
}

fn to_format(header: &[impl AsRef<str>], columns: &[Column], options: &InferOptions) -> Result<Format, CsvError> {
    let specs = header.iter().zip(columns).map(|(name, column)| column.spec(name.as_ref(), options));
    Format::natural(specs).map_err(|error| CsvError::at_header(CsvProblem::Format(error)))
}
