//! CSV rows to records.

use std::io::BufRead;

use super::plain::Plain;
use super::rows::{RawField, Row, RowReader};
use super::{CsvError, CsvOptions, CsvProblem};
use crate::builder::RecordBuilder;
use crate::field::{Field, FieldSpec, FieldType};
use crate::format::Format;
use crate::json::{JsonDecoder, JsonError, JsonOptions, JsonProblem};
use crate::record::Record;
use crate::text::{self, Rounding, Unfit};

/// Reads CSV rows into records of one format, without allocating once its buffers have grown to the rows' sizes.
///
/// Give it a reader with a large buffer (64 KiB): a row that crosses from one buffer to the next is read more slowly.
#[derive(Debug)]
pub struct CsvDecoder {
    rows: RowReader,
    convert: Convert,
}

/// What makes a record of a row's fields.
#[derive(Debug)]
struct Convert {
    /// What reads most rows; `None` where each needs a closer look.
    plain: Option<Plain>,
    /// Whether it has read the last row; if not, the builder has its record.
    is_plain: bool,
    builder: RecordBuilder,
    columns: Vec<Column>,
    options: CsvOptions,
    scratch: Vec<u8>,
    /// What reads lists, by the indices of their fields.
    lists: Vec<(usize, JsonList)>,
}

/// A list, written as a JSON array: read as the only member of an object.
#[derive(Debug)]
struct JsonList {
    format: Format,
    decoder: JsonDecoder,
    object: Vec<u8>,
}

impl JsonList {
    fn of(field: &Field, csv: &CsvOptions) -> Option<Self> {
        let ty = (field.ty == FieldType::List).then(|| field.type_spec())?;
        let format = Format::natural([FieldSpec::new("list", ty)]).ok()?;
        // The row has a bound of its own.
        let rounds_integers = csv.rounds_integers;
        let options = JsonOptions { max_line_bytes: usize::MAX, rounds_integers, ..JsonOptions::default() };
        Some(Self { decoder: JsonDecoder::new(&format, &options), object: Vec::new(), format })
    }

    /// Gives the builder's field the list that a text is.
    fn set(&mut self, builder: &mut RecordBuilder, field: usize, text: &[u8]) -> Result<(), JsonError> {
        self.object.clear();
        for part in [b"{\"list\":", text, b"}"] {
            self.object.extend_from_slice(part);
        }
        let record = Record::assume_checked(&self.format, self.decoder.decode(&self.object)?);
        builder.set(field, record.get(0)).map_err(|error| {
            let problem = JsonProblem::Refused { problem: error.problem };
            JsonError { line: 1, field: error.path(), problem }
        })
    }
}

/// Where a column goes.
#[derive(Clone, Copy, Debug)]
struct Column {
    /// Index of the field; `None` for a column that is passed over.
    field: Option<usize>,
    ty: FieldType,
    nullable: bool,
}

/// Why a row made no record; the column is an index.
enum RowFlaw {
    Value { column: usize },
    ColumnCount { found: usize },
}

impl CsvDecoder {
    /// A decoder for rows whose columns have these names; the input has no header row of its own. A nullable field that
    /// no column is named after is null in every record.
    ///
    /// # Errors
    /// A column that is no field (unless extra columns are ignored), that is there twice, or that is missing for a
    /// field that is not nullable; options that cannot be.
    pub fn new(format: &Format, header: &[impl AsRef<str>], options: &CsvOptions) -> Result<Self, CsvError> {
        Self::with_rows(RowReader::new(options)?, format, header, options)
    }

    /// A decoder for an input that starts with a header row, which is read now.
    ///
    /// # Errors
    /// As [`CsvDecoder::new`]; there is no header, or it cannot be read.
    pub fn from_header<R: BufRead + ?Sized>(
        format: &Format,
        input: &mut R,
        options: &CsvOptions,
    ) -> Result<Self, CsvError> {
        let mut rows = RowReader::new(options)?;
        let header = read_header(&mut rows, input)?;
        Self::with_rows(rows, format, &header, options)
    }

    fn with_rows(
        rows: RowReader,
        format: &Format,
        header: &[impl AsRef<str>],
        options: &CsvOptions,
    ) -> Result<Self, CsvError> {
        let columns = map_columns(format, header, options)?;
        let builder = RecordBuilder::new(format);
        let fields = format.fields().iter().enumerate();
        let lists = fields.filter_map(|(index, field)| Some((index, JsonList::of(field, options)?))).collect();
        let plain = Plain::of(format, columns.iter().map(|column| column.field), options);
        let options = options.clone();
        let convert = Convert { plain, is_plain: false, builder, columns, options, scratch: Vec::new(), lists };
        Ok(Self { rows, convert })
    }

    /// The next row as a record; `None` at the end of the input. Always give it the same input.
    ///
    /// # Errors
    /// The row is wrong, and the next call goes on with the row after it ([`CsvError::is_row`]); or the input cannot be
    /// read.
    #[inline]
    pub fn next_record<R: BufRead + ?Sized>(&mut self, input: &mut R) -> Result<Option<&[u8]>, CsvError> {
        let Self { rows, convert } = self;
        match rows.read(input, |line, row| convert.row(line, row).map(|()| line))? {
            None => Ok(None),
            Some(outcome) => convert.finish(outcome?).map(Some),
        }
    }
}

impl Convert {
    #[inline]
    fn row(&mut self, line: u64, row: Row<'_>) -> Result<(), CsvError> {
        self.is_plain = match (&mut self.plain, row) {
            (Some(plain), Row::Plain { line, .. }) => plain.read(&self.options, line),
            _ => false,
        };
        if self.is_plain {
            return Ok(());
        }
        let expected = self.columns.len();
        self.builder.clear();
        let flaw = match row.try_each(|column, field| self.field(column, field)) {
            Ok(found) if found == expected => return Ok(()),
            Ok(found) => RowFlaw::ColumnCount { found },
            Err(flaw) => flaw,
        };
        Err(self.explain(line, row, &flaw))
    }

    #[inline]
    fn finish(&mut self, line: u64) -> Result<&[u8], CsvError> {
        match &self.plain {
            Some(plain) if self.is_plain => return Ok(plain.record()),
            _ => {}
        }
        // Each value has room in its field, but a union may have two, and a nested record lack one.
        self.builder.finish().map_err(|error| CsvError {
            line,
            column: error.path(),
            problem: CsvProblem::Refused { problem: error.problem },
        })
    }

    #[inline]
    fn field(&mut self, index: usize, (text, quoted): RawField<'_>) -> Result<(), RowFlaw> {
        let Some(column) = self.columns.get(index) else {
            // Counted on, so that the error can tell how many there are.
            return Ok(());
        };
        let Some(field) = column.field else { return Ok(()) };
        if column.nullable && self.options.is_null_word(text, column.ty) {
            let text_or_bytes = column.ty.is_text() || matches!(column.ty, FieldType::Bytes | FieldType::List);
            if !quoted || self.options.quoted_nulls || !text_or_bytes {
                // Unset is null.
                return Ok(());
            }
        }
        if column.ty == FieldType::List {
            return self.list(field, text).map_err(|_| RowFlaw::Value { column: index });
        }
        let rounding = Rounding::of(self.options.rounds_integers);
        text::set_from_text(&mut self.builder, &mut self.scratch, field, column.ty, text, rounding)
            .map_err(|Unfit| RowFlaw::Value { column: index })
    }

    #[inline(never)]
    fn list(&mut self, field: usize, text: &[u8]) -> Result<(), JsonError> {
        match self.lists.iter_mut().find(|(index, _)| *index == field) {
            Some((_, list)) => list.set(&mut self.builder, field, text),
            None => Ok(()),
        }
    }

    /// Puts a flaw into words. A row with a wrong number of columns is said to be that, though a value was tripped over
    /// first.
    #[cold]
    fn explain(&mut self, line: u64, row: Row<'_>, flaw: &RowFlaw) -> CsvError {
        let fields = row.fields();
        let expected = self.columns.len();
        let column = match flaw {
            RowFlaw::Value { column } if fields.len() == expected => *column,
            RowFlaw::Value { .. } => {
                let problem = CsvProblem::ColumnCount { found: fields.len(), expected };
                return CsvError { line, column: None, problem };
            }
            RowFlaw::ColumnCount { found } => {
                let problem = CsvProblem::ColumnCount { found: *found, expected };
                return CsvError { line, column: None, problem };
            }
        };
        let text = fields.get(column).map_or(&b""[..], |field| field.0);
        let found = text::shorten(text);
        let index = self.columns.get(column).and_then(|column| column.field).unwrap_or_default();
        let list = self.list(index, text).err();
        let Some(field) = self.builder.format().fields().get(index) else {
            return CsvError { line, column: None, problem: CsvProblem::MissingColumn };
        };
        let mut expected = text::expected_not(text, field, "RFC 3339, such as 2013-01-01T10:00:00Z");
        if let Some(JsonError { field, problem, .. }) = list {
            // Of the path, what is behind the object's only member.
            let path = field.as_deref().and_then(|path| path.strip_prefix("list")).unwrap_or_default();
            let place = if path.is_empty() { String::new() } else { format!("{path}: ") };
            expected = format!("{expected}, as a JSON array ({place}{problem})");
        }
        match self.options.null_words_text(field.ty) {
            Some(words) if field.nullable => expected = format!("{expected}, or {words} for null"),
            _ if !field.nullable && self.options.is_null_word(text, field.ty) => {
                expected.push_str("; the field is not nullable");
            }
            _ => {}
        }
        CsvError { line, column: Some(field.name.clone()), problem: CsvProblem::Value { found, expected } }
    }
}

/// Reads the header row. Blanks around a name do not count, unless it is in quotes. A column without a name (the row
/// names of R, the index of pandas) is called by its number.
pub(super) fn read_header<R: BufRead + ?Sized>(rows: &mut RowReader, input: &mut R) -> Result<Vec<String>, CsvError> {
    let header = rows.read(input, |line, row| {
        let names = row.fields().into_iter().enumerate().map(|(column, (name, quoted))| match str::from_utf8(name) {
            Ok(name) if name.is_empty() || (!quoted && name.trim().is_empty()) => Ok(format!("column_{}", column + 1)),
            Ok(name) => Ok(if quoted { name } else { name.trim() }.to_owned()),
            Err(_) => {
                let problem = CsvProblem::HeaderNotText { found: text::shorten(name) };
                Err(CsvError { line, column: None, problem })
            }
        });
        names.collect()
    })?;
    header.unwrap_or(Err(CsvError::at_header(CsvProblem::NoHeader)))
}

fn map_columns(format: &Format, header: &[impl AsRef<str>], options: &CsvOptions) -> Result<Vec<Column>, CsvError> {
    let at_column = |name: &str, problem| CsvError { line: 0, column: Some(name.to_owned()), problem };
    let mut taken = vec![false; format.fields().len()];
    let mut columns = Vec::with_capacity(header.len());
    for name in header {
        let name = name.as_ref();
        let Some(index) = format.field(name) else {
            if options.ignore_extra_columns {
                columns.push(Column { field: None, ty: FieldType::Bytes, nullable: true });
                continue;
            }
            let known: Vec<&str> = format.fields().iter().map(|field| field.name.as_str()).collect();
            return Err(at_column(name, CsvProblem::ExtraColumn { known: known.join(", ") }));
        };
        if std::mem::replace(&mut taken[index], true) {
            return Err(at_column(name, CsvProblem::SameColumn));
        }
        let field = &format.fields()[index];
        columns.push(Column { field: Some(index), ty: field.ty, nullable: field.nullable });
    }
    for (field, taken) in format.fields().iter().zip(taken) {
        if !taken && !field.nullable {
            return Err(at_column(&field.name, CsvProblem::MissingColumn));
        }
    }
    Ok(columns)
}
