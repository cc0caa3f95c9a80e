//! A format: fields with their places, an id, and what checking and reading its records needs, worked out once.

use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::description::{self, FormatId};
use crate::field::{ByteOrder, Field, FieldSpec, FieldType, FieldTypeError};
use crate::{MAX_FIELDS, MAX_FIXED_BYTES, MAX_NAME_BYTES};

/// Bytes of the record's length, in front of the null bitmap.
pub(crate) const LENGTH_BYTES: usize = 4;
/// Records and their fixed parts are a multiple of this long.
pub(crate) const RECORD_ALIGN: usize = 8;

/// A list of fields with their places in a record. Cheap to clone (shared); equal when the ids are equal.
#[derive(Clone)]
pub struct Format {
    inner: Arc<Inner>,
}

struct Inner {
    fields: Vec<Field>,
    by_name: HashMap<String, usize>,
    id: FormatId,
    layout: Layout,
}

/// Where the value of one field is: what reading it needs, in 16 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    pub(crate) ty: FieldType,
    pub(crate) offset: u32,
    /// The byte of the null bitmap, counted from the start of the record; with `null_mask` 0 it is never looked at.
    pub(crate) null_byte: u32,
    /// The bit in that byte; 0 for a field that is never null.
    pub(crate) null_mask: u8,
}

/// A format without its names.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) cells: Box<[Cell]>,
    /// Offsets of the slots of `string` and `bytes` fields.
    pub(crate) slots: Box<[u32]>,
    /// Offsets of `bool` fields.
    pub(crate) bools: Box<[u32]>,
    /// The fixed part of a record all of whose nullable fields are null: what a builder starts from.
    pub(crate) blank: Box<[u8]>,
    /// One bit a field, set for those that every record must have a value for.
    pub(crate) required: Box<[u64]>,
}

impl Format {
    /// Gives the fields their places in the natural layout (see the crate's page), in the order given.
    ///
    /// # Errors
    /// No field or more than [`MAX_FIELDS`]; a name that is empty, too long, has control characters or occurs twice;
    /// `char[0]`; a fixed part over [`MAX_FIXED_BYTES`].
    pub fn natural(fields: impl IntoIterator<Item = FieldSpec>) -> Result<Format, FormatError> {
        let specs: Vec<FieldSpec> = fields.into_iter().take(MAX_FIELDS + 1).collect();
        let by_name = check_specs(&specs).map_err(|problem| FormatError { line: None, problem })?;
        let bitmap_bytes = specs.iter().filter(|spec| spec.nullable).count().div_ceil(8);
        let mut at = LENGTH_BYTES + bitmap_bytes;
        let mut nullable_fields = 0_u16;
        let mut fields = Vec::with_capacity(specs.len());
        for FieldSpec { name, ty, nullable } in specs {
            let offset = at.next_multiple_of(ty.align());
            at = offset + ty.size();
            if at > MAX_FIXED_BYTES {
                return Err(FormatError { line: None, problem: FormatProblem::FixedPartTooLong { name } });
            }
            let null_bit = nullable.then_some(nullable_fields);
            nullable_fields += u16::from(nullable);
            // Both are at most MAX_FIXED_BYTES.
            let (offset, size) = (offset as u32, ty.size() as u32);
            fields.push(Field { name, ty, nullable, offset, size, byte_order: ByteOrder::Little, null_bit });
        }
        let fixed_bytes = at.next_multiple_of(RECORD_ALIGN);
        let id = FormatId::of(&description::describe(&fields, fixed_bytes));
        let layout = Layout::of(&fields, fixed_bytes);
        Ok(Format { inner: Arc::new(Inner { fields, by_name, id, layout }) })
    }

    /// The fields in declared order.
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        &self.inner.fields
    }

    /// The index of the field of this name (names are case-sensitive).
    #[must_use]
    pub fn field(&self, name: &str) -> Option<usize> {
        self.inner.by_name.get(name).copied()
    }

    /// The format's id: the same on every machine.
    #[must_use]
    pub fn id(&self) -> FormatId {
        self.inner.id
    }

    /// Length in bytes of the fixed part, with the record's length and the null bitmap; a multiple of 8.
    #[must_use]
    pub fn fixed_bytes(&self) -> usize {
        self.inner.layout.blank.len()
    }

    /// The canonical description: one text for a format, which its id is the hash of.
    #[must_use]
    pub fn describe(&self) -> String {
        description::describe(&self.inner.fields, self.fixed_bytes())
    }

    /// The format in people's notation, which [`Format::parse_schema`] reads back.
    #[must_use]
    pub fn schema(&self) -> String {
        description::schema(&self.inner.fields)
    }

    /// Reads a canonical description back.
    ///
    /// # Errors
    /// Any text that [`Format::describe`] does not write, with the line that differs and what it should be.
    pub fn parse(description: &str) -> Result<Format, FormatError> {
        description::parse(description)
    }

    /// Reads people's notation, as in files for `--schema`: `name type` a line, ` null` behind it if the field may be
    /// null; a name that is no plain word stands in double quotes; `#` starts a comment.
    ///
    /// # Errors
    /// A line that is not so, a type that is not known, or what [`Format::natural`] refuses, with the line.
    pub fn parse_schema(text: &str) -> Result<Format, FormatError> {
        description::parse_schema(text)
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.inner.layout
    }
}

impl Layout {
    fn of(fields: &[Field], fixed_bytes: usize) -> Self {
        let cells = fields.iter().map(|field| Cell {
            ty: field.ty,
            offset: field.offset,
            null_byte: field.null_bit.map_or(0, |bit| LENGTH_BYTES as u32 + u32::from(bit) / 8),
            null_mask: field.null_bit.map_or(0, |bit| 1 << (bit % 8)),
        });
        let cells: Box<[Cell]> = cells.collect();
        let offsets_of = |wanted: fn(FieldType) -> bool| -> Box<[u32]> {
            fields.iter().filter(|field| wanted(field.ty)).map(|field| field.offset).collect()
        };
        let mut blank = vec![0; fixed_bytes].into_boxed_slice();
        let mut required = vec![0; fields.len().div_ceil(64)].into_boxed_slice();
        for (index, cell) in cells.iter().enumerate() {
            blank[cell.null_byte as usize] |= cell.null_mask;
            required[index / 64] |= u64::from(cell.null_mask == 0) << (index % 64);
        }
        Self {
            slots: offsets_of(FieldType::is_variable),
            bools: offsets_of(|ty| ty == FieldType::Bool),
            cells,
            blank,
            required,
        }
    }
}

/// Refuses what no format may be; gives the index of each name.
fn check_specs(specs: &[FieldSpec]) -> Result<HashMap<String, usize>, FormatProblem> {
    if specs.is_empty() {
        return Err(FormatProblem::NoFields);
    }
    if specs.len() > MAX_FIELDS {
        return Err(FormatProblem::TooManyFields);
    }
    let mut by_name = HashMap::with_capacity(specs.len());
    for (field, FieldSpec { name, ty, .. }) in specs.iter().enumerate() {
        let flaw = match name.len() {
            0 => Some("is empty"),
            1..=MAX_NAME_BYTES => name.chars().any(char::is_control).then_some("has control characters"),
            _ => Some("is longer than 255 bytes"),
        };
        if let Some(flaw) = flaw {
            return Err(FormatProblem::Name { field, flaw });
        }
        if *ty == FieldType::Char(0) {
            return Err(FormatProblem::EmptyChar { field, name: name.clone() });
        }
        if by_name.insert(name.clone(), field).is_some() {
            return Err(FormatProblem::SameName { field, name: name.clone() });
        }
    }
    Ok(by_name)
}

impl PartialEq for Format {
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

impl Eq for Format {}

impl Hash for Format {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id().hash(state);
    }
}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Format {} [{}]", self.id(), self.schema().trim_end().replace('\n', ", "))
    }
}

/// Why a format was refused, and on which line where it came as text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FormatError {
    /// The line of the text, counted from 1; `None` where there was no text.
    pub line: Option<usize>,
    /// What is wrong.
    pub problem: FormatProblem,
}

impl FormatError {
    /// The same error for a text that has one field a line, the first on `first_line`.
    pub(crate) fn on_line(self, first_line: usize) -> Self {
        Self { line: self.problem.field().map(|field| first_line + field), ..self }
    }
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.problem),
            None => write!(f, "{}", self.problem),
        }
    }
}

impl std::error::Error for FormatError {}

/// What can be wrong with a format.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FormatProblem {
    /// There is no field.
    #[error("a format has at least one field")]
    NoFields,
    /// There are too many fields.
    #[error("a format has at most 4096 fields")]
    TooManyFields,
    /// A name is not fit to be one.
    #[error("the name of field {} {flaw}", field + 1)]
    Name {
        /// Index of the field.
        field: usize,
        /// What is wrong with the name.
        flaw: &'static str,
    },
    /// Two fields have one name.
    #[error("there are two fields of the name `{name}`")]
    SameName {
        /// Index of the second.
        field: usize,
        /// The name.
        name: String,
    },
    /// A `char[0]` could hold nothing.
    #[error("field `{name}`: char[N] holds 1 to 65535 bytes")]
    EmptyChar {
        /// Index of the field.
        field: usize,
        /// Its name.
        name: String,
    },
    /// The fixed part would be longer than allowed.
    #[error("field `{name}` makes the fixed part longer than 1 MiB; use `string` for long text")]
    FixedPartTooLong {
        /// The field that does not fit.
        name: String,
    },
    /// A type is not known.
    #[error(transparent)]
    Type(FieldTypeError),
    /// A line is not in the notation.
    #[error("found `{found}`, expected {expected}")]
    Syntax {
        /// The text.
        found: String,
        /// What it should be.
        expected: String,
    },
    /// A description differs from the canonical one of the same fields.
    #[error("not the canonical description of these fields: found `{found}`, expected {expected}")]
    NotCanonical {
        /// The line as it is.
        found: String,
        /// The line as it should be.
        expected: String,
    },
}

impl FormatProblem {
    /// Index of the field that is at fault, where it is one.
    pub(crate) fn field(&self) -> Option<usize> {
        match self {
            Self::Name { field, .. } | Self::SameName { field, .. } | Self::EmptyChar { field, .. } => Some(*field),
            _ => None,
        }
    }
}
