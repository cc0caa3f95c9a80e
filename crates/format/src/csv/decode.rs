//! CSV rows to records.

use std::collections::HashSet;
use std::io::BufRead;

use super::rows::{Row, RowReader};
use super::{CsvError, CsvOptions, CsvProblem};
use crate::builder::{ByteRun, RecordBuilder};
use crate::element::Member;
use crate::field::{Field, FieldSpec, FieldType};
use crate::format::Format;
use crate::json::{JsonError, JsonOptions, JsonProblem, JsonValueDecoder};
use crate::record::Record;
use crate::scan::Target;
use crate::text::{self, Rounding, Unfit};

/// Reads CSV rows into records of one format, without allocating once its buffers have grown to the rows' sizes.
///
/// Give it a reader with a large buffer (64 KiB): a row that crosses from one buffer to the next is read more slowly.
#[derive(Debug)]
pub struct CsvDecoder {
    rows: RowReader,
    convert: Convert,
}

/// The converter that makes a record of a row's fields.
#[derive(Debug)]
struct Convert {
    columns: Vec<Column>,
    values: Values,
}

/// The builder that puts values into a record.
#[derive(Debug)]
struct Values {
    builder: RecordBuilder,
    options: CsvOptions,
    scratch: Vec<u8>,
    /// The readers of lists, by the indices of their fields.
    lists: Vec<(usize, JsonList)>,
    /// Bytes of the longest null word.
    longest_null: usize,
}

/// A list, written as a JSON array.
#[derive(Debug)]
struct JsonList {
    format: Format,
    decoder: JsonValueDecoder,
}

impl JsonList {
    fn of(field: &Field, csv: &CsvOptions) -> Option<Self> {
        let ty = (field.ty == FieldType::List).then(|| field.type_spec())?;
        let format = Format::natural([FieldSpec::new("list", ty)]).ok()?;
        let options = JsonOptions { rounds_integers: csv.rounds_integers, ..JsonOptions::default() };
        Some(Self { decoder: JsonValueDecoder::new(&format, &options), format })
    }

    /// Gives the builder's field the list that a text is.
    fn set(&mut self, builder: &mut RecordBuilder, field: usize, text: &[u8]) -> Result<(), JsonError> {
        let record = Record::assume_checked(&self.format, self.decoder.decode(text)?);
        builder.set(field, record.get(0)).map_err(|error| {
            let problem = JsonProblem::Refused { problem: error.problem };
            JsonError { line: 1, field: error.path(), problem }
        })
    }
}

/// Where a column goes.
#[derive(Clone, Copy, Debug)]
struct Column {
    /// `None` for a column that is passed over.
    target: Option<Target>,
    nullable: bool,
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
        let mut builder = RecordBuilder::with_defaults(format);
        let targets = || columns.iter().filter_map(|column| column.target);
        let has_column = |field: usize| targets().any(|target| target.place.index() == field);
        let lacking = own_fields(format).filter(|field| !has_column(*field));
        lacking.for_each(|field| builder.start_with_default(field));
        targets().for_each(|target| builder.promise(target.place));
        let fields = format.fields().iter().enumerate();
        let lists = fields.filter_map(|(index, field)| Some((index, JsonList::of(field, options)?))).collect();
        let longest_null = options.all_null_words().map(String::len).max().unwrap_or(0);
        let values = Values { builder, options: options.clone(), scratch: Vec::new(), lists, longest_null };
        Ok(Self { rows, convert: Convert { columns, values } })
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
        let Self { columns, values } = self;
        if row.len() != columns.len() {
            let problem = CsvProblem::ColumnCount { found: row.len(), expected: columns.len() };
            return Err(CsvError { line, column: None, problem });
        }
        values.builder.clear();
        for (index, (column, (run, quoted))) in columns.iter().zip(row.fields()).enumerate() {
            if let Some(target) = &column.target
                && values.set(column, target, run, quoted).is_err()
            {
                return Err(self.explain(line, index, run.bytes));
            }
        }
        Ok(())
    }

    fn finish(&mut self, line: u64) -> Result<&[u8], CsvError> {
        // Each value has room in its field, but a union may have two, and a nested record lack one.
        self.values.builder.finish().map_err(|error| CsvError {
            line,
            column: error.path(),
            problem: CsvProblem::Refused { problem: error.problem },
        })
    }

    /// Puts into words that a column's text is no value of its field.
    #[cold]
    fn explain(&mut self, line: u64, column: usize, text: &[u8]) -> CsvError {
        let found = text::shorten(text);
        let target = self.columns.get(column).and_then(|column| column.target);
        let index = target.map_or(0, |target| target.place.index());
        let list = self.values.list(index, text).err();
        let Some(field) = self.values.builder.format().fields().get(index) else {
            return CsvError { line, column: None, problem: CsvProblem::MissingColumn };
        };
        let mut expected = text::expected_not(text, field, "RFC 3339, such as 2013-01-01T10:00:00Z");
        if let Some(JsonError { line, field, problem }) = list {
            // Of the path, what is behind the name that the list has there.
            let path = field.as_deref().and_then(|path| path.strip_prefix("list")).unwrap_or_default();
            let place = if path.is_empty() { String::new() } else { format!("{path}: ") };
            let line = if line == 1 { String::new() } else { format!("its line {line}, ") };
            expected = format!("{expected}, as a JSON array ({line}{place}{problem})");
        }
        match self.values.options.null_words_text(field.ty) {
            Some(words) if field.nullable => expected = format!("{expected}, or {words} for null"),
            _ if !field.nullable && self.values.options.is_null_word(text, field.ty) => {
                expected.push_str("; the field is not nullable");
            }
            _ => {}
        }
        CsvError { line, column: Some(field.name.clone()), problem: CsvProblem::Value { found, expected } }
    }
}

impl Values {
    /// Gives a field the value that a text is.
    #[inline]
    fn set(&mut self, column: &Column, target: &Target, run: ByteRun<'_>, quoted: bool) -> Result<(), Unfit> {
        let ty = target.place.ty();
        if column.nullable && self.is_null(run.bytes, quoted, ty) {
            // Unset is null, or the default of a field that is never null.
            return Ok(());
        }
        if ty == FieldType::List {
            return self.list(target.place.index(), run.bytes).map_err(|_| Unfit);
        }
        let rounding = Rounding::of(self.options.rounds_integers);
        text::put_from_text(&mut self.builder, &mut self.scratch, target, run, rounding)
    }

    #[inline]
    fn is_null(&self, text: &[u8], quoted: bool, ty: FieldType) -> bool {
        let is_word = text.len() <= self.longest_null && self.options.is_null_word(text, ty);
        let text_or_bytes = ty.is_text() || matches!(ty, FieldType::Bytes | FieldType::List);
        is_word && (!quoted || self.options.quoted_nulls || !text_or_bytes)
    }

    #[inline(never)]
    fn list(&mut self, field: usize, text: &[u8]) -> Result<(), JsonError> {
        match self.lists.iter_mut().find(|(index, _)| *index == field) {
            Some((_, list)) => list.set(&mut self.builder, field, text),
            None => Ok(()),
        }
    }
}

/// Reads the header row. Blanks around a name do not count, unless it is in quotes. A column without a name (the row
/// names of R, the index of pandas) is called by its number.
pub(super) fn read_header<R: BufRead + ?Sized>(rows: &mut RowReader, input: &mut R) -> Result<Vec<String>, CsvError> {
    let header = rows.read(input, |line, row| {
        let names = row.fields().enumerate().map(|(column, (name, quoted))| match str::from_utf8(name.bytes) {
            Ok(name) if name.is_empty() || (!quoted && name.trim().is_empty()) => Ok(format!("column_{}", column + 1)),
            Ok(name) => Ok(if quoted { name } else { name.trim() }.to_owned()),
            Err(_) => {
                let problem = CsvProblem::HeaderNotText { found: text::shorten(name.bytes) };
                Err(CsvError { line, column: None, problem })
            }
        });
        names.collect()
    })?;
    header.unwrap_or(Err(CsvError::at_header(CsvProblem::NoHeader)))
}

/// The fields of the record itself, in no nested record.
fn own_fields(format: &Format) -> impl Iterator<Item = usize> {
    format.tree().iter().filter_map(|member| match member {
        Member::Leaf(field) => Some(*field),
        Member::Group(_) => None,
    })
}

/// The field that had this name, where there is no column of its own name, nor of an alias that precedes this one. A nested
/// record's fields are found by their names alone.
fn by_alias(format: &Format, columns: &HashSet<&str>, name: &str) -> Option<usize> {
    own_fields(format).find(|field| {
        let field = &format.fields()[*field];
        let aliases = field.evolution.as_ref().map_or(&[][..], |evolution| &evolution.aliases);
        let first = aliases.iter().find(|alias| columns.contains(alias.as_str()));
        first.is_some_and(|first| first == name) && !columns.contains(field.name.as_str())
    })
}

fn map_columns(format: &Format, header: &[impl AsRef<str>], options: &CsvOptions) -> Result<Vec<Column>, CsvError> {
    let at_column = |name: &str, problem| CsvError { line: 0, column: Some(name.to_owned()), problem };
    let mut taken = vec![false; format.fields().len()];
    let mut columns = Vec::with_capacity(header.len());
    let names: HashSet<&str> = header.iter().map(AsRef::as_ref).collect();
    for name in header {
        let name = name.as_ref();
        let Some(index) = format.field(name).or_else(|| by_alias(format, &names, name)) else {
            if options.ignore_extra_columns {
                columns.push(Column { target: None, nullable: true });
                continue;
            }
            let known: Vec<&str> = format.fields().iter().map(|field| field.name.as_str()).collect();
            return Err(at_column(name, CsvProblem::ExtraColumn { known: known.join(", ") }));
        };
        if std::mem::replace(&mut taken[index], true) {
            return Err(at_column(name, CsvProblem::SameColumn));
        }
        let target = Target::of(format.natural_format(), index).map(Target::promised);
        let field = &format.fields()[index];
        columns.push(Column { target, nullable: field.nullable || field.default_text().is_some() });
    }
    for (field, taken) in format.fields().iter().zip(taken) {
        if !taken && !field.nullable && field.default_text().is_none() {
            return Err(at_column(&field.name, CsvProblem::MissingColumn));
        }
    }
    Ok(columns)
}
