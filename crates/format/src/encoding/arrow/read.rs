//! Batches to records.

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field as ArrowField, Fields, Schema as ArrowSchema};
use std::collections::HashSet;

use super::MAX_ROWS;
use super::columns::Column;
use super::schema::{goes_into, variants_of, within};
use crate::builder::RecordBuilder;
use crate::element::{Count, Group, Member, VALUE};
use crate::encoding::{EncodingError, EncodingOptions, Loss};
use crate::field::{Field, FieldType};
use crate::format::Format;
use crate::record::Value;
use crate::spec::Evolution;
use crate::text::{self, Rounding};

/// Gives the rows of batches as records of one format.
pub(in crate::encoding) struct BatchReader {
    builder: RecordBuilder,
    /// Indices of the columns that are read.
    projection: Vec<usize>,
    /// Where the values of each of them go.
    targets: Vec<ColumnTarget>,
    columns: Vec<Column>,
    row: usize,
    rows: usize,
    scratch: Vec<u8>,
    rounding: Rounding,
    /// Rows so far, with those that were wrong.
    items: u64,
}

/// Where a column's values go, in the innermost open record.
enum ColumnTarget {
    Value {
        field: usize,
        ty: FieldType,
    },
    List {
        field: usize,
        element: Box<ColumnTarget>,
    },
    /// The records that a list has as its elements: for each member, which column in the column it is.
    Element(Vec<(usize, ColumnTarget)>),
    /// The records of one nullable value that a list has as its elements, where the column has the value without a record.
    Nullable(Box<ColumnTarget>),
    Group {
        group: Group,
        members: Vec<(usize, ColumnTarget)>,
    },
}

impl BatchReader {
    /// A reader of batches of this schema.
    ///
    /// # Errors
    /// A column that is no field or of another type, or a field that may not be null and has no column.
    pub(in crate::encoding) fn new(
        format: &Format,
        schema: &ArrowSchema,
        options: &EncodingOptions,
    ) -> Result<Self, EncodingError> {
        let targets = members(format, format.tree(), 0, schema.fields(), options)?;
        let mut builder = RecordBuilder::with_defaults(format);
        let has_column = |field: usize| targets.iter().any(|(_, target)| target.field() == Some(field));
        for member in format.tree() {
            if let Member::Leaf(field) = member
                && !has_column(*field)
            {
                builder.start_with_default(*field);
            }
        }
        let (projection, targets) = targets.into_iter().unzip();
        Ok(Self {
            builder,
            projection,
            targets,
            columns: Vec::new(),
            row: 0,
            rows: 0,
            scratch: Vec::new(),
            rounding: Rounding::of(options.allows(Loss::Rounding)),
            items: 0,
        })
    }

    /// Indices of the columns that [`BatchReader::load`] is to be given, in rising order.
    pub(in crate::encoding) fn projection(&self) -> &[usize] {
        &self.projection
    }

    /// The next rows are those of this batch, which has the columns of the projection.
    pub(in crate::encoding) fn load(&mut self, batch: &RecordBatch) -> Result<(), EncodingError> {
        self.columns.clear();
        self.rows = 0;
        if batch.num_rows() > MAX_ROWS {
            let message = format!("found a batch of {} rows, expected at most {MAX_ROWS}", batch.num_rows());
            return Err(EncodingError::syntax(message));
        }
        for index in 0..self.targets.len() {
            let Some(column) = batch.columns().get(index).and_then(Column::of) else {
                let message = "a column of the batch is not as the schema says, or its lists overlap too often";
                return Err(EncodingError::syntax(message));
            };
            self.columns.push(column);
        }
        (self.row, self.rows) = (0, batch.num_rows());
        Ok(())
    }

    /// Whether the batch has rows that were not read.
    pub(in crate::encoding) fn has_rows(&self) -> bool {
        self.row < self.rows
    }

    /// The next row as a record; `None` when the batch has no more.
    pub(in crate::encoding) fn next_record(&mut self) -> Option<Result<&[u8], EncodingError>> {
        if self.row >= self.rows {
            return None;
        }
        let row = self.row;
        self.row += 1;
        self.items += 1;
        let item = self.items;
        self.builder.clear();
        let mut writer = Writer { builder: &mut self.builder, scratch: &mut self.scratch, rounding: self.rounding };
        for (target, column) in self.targets.iter().zip(&self.columns) {
            if let Err(error) = writer.fill(target, column, row) {
                return Some(Err(error.of_item(item)));
            }
        }
        Some(self.builder.finish().map_err(|error| EncodingError::from(error).of_item(item)))
    }
}

/// For each column that is read, its index and where it goes. `path` is how much of the fields' names is the path of what
/// they are in.
fn members(
    format: &Format,
    places: &[Member],
    path: usize,
    columns: &Fields,
    options: &EncodingOptions,
) -> Result<Vec<(usize, ColumnTarget)>, EncodingError> {
    let name_of = |place| own_name(format, place, path);
    let mut targets = Vec::new();
    let mut taken = vec![false; places.len()];
    let names: HashSet<&str> = columns.iter().map(|column| column.name().as_str()).collect();
    for (index, column) in columns.iter().enumerate() {
        let by_alias = |place: &Member| {
            let aliases = evolution(format, place).map_or(&[][..], |evolution| &evolution.aliases);
            let first = aliases.iter().find(|alias| names.contains(alias.as_str()));
            first.is_some_and(|first| first == column.name()) && !names.contains(own_name(format, place, path))
        };
        let by_name = places.iter().position(|place| name_of(place) == column.name());
        let Some(found) = by_name.or_else(|| places.iter().position(by_alias)) else {
            if options.ignore_unknown {
                continue;
            }
            let known: Vec<&str> = places.iter().map(name_of).collect();
            let message = format!("the format has no field for this column; it has: {}", known.join(", "));
            return Err(EncodingError::schema(message).in_field(column.name()));
        };
        if std::mem::replace(&mut taken[found], true) {
            return Err(EncodingError::schema("there are two columns of this name").in_field(column.name()));
        }
        let target = match &places[found] {
            Member::Leaf(leaf) => match format.fields().get(*leaf) {
                Some(field) => target(field, *leaf, column, options),
                None => continue,
            },
            Member::Group(group) => group_target(format, group, column, options),
        };
        targets.push((index, target.map_err(|error| within(column.name(), error))?));
    }
    for (place, taken) in places.iter().zip(taken) {
        if !taken && !may_be_missing(format, place) {
            let message = "there is no column of this name, and the field is not nullable";
            return Err(EncodingError::schema(message).in_field(name_of(place)));
        }
    }
    Ok(targets)
}

/// Whether a record without a column for it is whole: it is null then, or has its defaults.
fn may_be_missing(format: &Format, place: &Member) -> bool {
    match place {
        Member::Leaf(leaf) => {
            format.fields().get(*leaf).is_none_or(|field| field.nullable || field.default_text().is_some())
        }
        Member::Group(group) if group.nullable || group.union.is_some() => group.nullable,
        Member::Group(group) => group.members.iter().all(|member| may_be_missing(format, member)),
    }
}

/// The statement of a member on other versions.
fn evolution<'m>(format: &'m Format, place: &'m Member) -> Option<&'m Evolution> {
    match place {
        Member::Leaf(leaf) => format.fields().get(*leaf)?.evolution.as_deref(),
        Member::Group(group) => group.evolution.as_deref(),
    }
}

/// A member's name without those of what it is in.
fn own_name<'m>(format: &'m Format, place: &'m Member, path: usize) -> &'m str {
    match place {
        Member::Leaf(leaf) => format.fields().get(*leaf).and_then(|field| field.name.get(path..)).unwrap_or_default(),
        Member::Group(group) => &group.name,
    }
}

fn target(
    field: &Field,
    index: usize,
    column: &ArrowField,
    options: &EncodingOptions,
) -> Result<ColumnTarget, EncodingError> {
    let found = column.data_type();
    let other = || {
        let own = field.ty;
        EncodingError::schema(format!("the column is a {found}, and the field {own}"))
    };
    let Some(of) = field.element() else {
        return if goes_into(found, field.ty, options) {
            Ok(ColumnTarget::Value { field: index, ty: field.ty })
        } else {
            Err(other())
        };
    };
    let item = match (found, of.count) {
        (DataType::FixedSizeList(_, length), Count::Fixed(count)) if i64::from(*length) != i64::from(count) => {
            return Err(EncodingError::schema(format!(
                "the column has {length} elements a row, and the field {count}"
            )));
        }
        (DataType::List(item) | DataType::LargeList(item) | DataType::Map(item, _), _) => item,
        (DataType::ListView(item) | DataType::LargeListView(item) | DataType::FixedSizeList(item, _), _) => item,
        _ => return Err(other()),
    };
    let element = match (of.format().fields().first(), item.data_type()) {
        (Some(scalar), _) if !of.is_record => target(scalar, 0, item, options)?,
        _ if of.is_nullable_value() && !is_wrapper(item.data_type()) => {
            let target = match of.format().tree() {
                [Member::Group(group)] => group_target(of.format(), group, item, options)?,
                _ => match of.format().fields().first() {
                    Some(value) => target(value, 0, item, options)?,
                    None => return Err(other()),
                },
            };
            ColumnTarget::Nullable(Box::new(target))
        }
        (_, DataType::Struct(columns)) => {
            ColumnTarget::Element(members(of.format(), of.format().tree(), 0, columns, options)?)
        }
        _ => return Err(other()),
    };
    Ok(ColumnTarget::List { field: index, element: Box::new(element) })
}

/// Whether a column is of records of one value of that name.
fn is_wrapper(found: &DataType) -> bool {
    matches!(found, DataType::Struct(columns) if columns.len() == 1 && columns.iter().all(|column| column.name() == VALUE))
}

fn group_target(
    format: &Format,
    group: &Group,
    column: &ArrowField,
    options: &EncodingOptions,
) -> Result<ColumnTarget, EncodingError> {
    let columns = match column.data_type() {
        DataType::Struct(columns) => columns.clone(),
        DataType::Union(variants, _) if group.union.is_some() => variants_of(variants),
        found => {
            let own = if group.union.is_some() { "union" } else { "record" };
            return Err(EncodingError::schema(format!("the column is a {found}, and the field a {own}")));
        }
    };
    let members = members(format, &group.members, group.path.len() + 1, &columns, options)?;
    Ok(ColumnTarget::Group { group: group.clone(), members })
}

/// Puts values into a record.
struct Writer<'a> {
    builder: &'a mut RecordBuilder,
    scratch: &'a mut Vec<u8>,
    rounding: Rounding,
}

impl ColumnTarget {
    /// The field that it is, if it is one.
    fn field(&self) -> Option<usize> {
        match self {
            ColumnTarget::Value { field, .. } | ColumnTarget::List { field, .. } => Some(*field),
            ColumnTarget::Group { .. } | ColumnTarget::Element(_) | ColumnTarget::Nullable(_) => None,
        }
    }
}

impl Writer<'_> {
    fn fill(&mut self, target: &ColumnTarget, column: &Column, row: usize) -> Result<(), EncodingError> {
        match target {
            ColumnTarget::Value { field, ty } => self.value(*field, *ty, column, row),
            // Unset is null, or missing.
            _ if column.is_null(row) => Ok(()),
            ColumnTarget::Group { group, members } => {
                if let Some((variant, column, row)) = column.variant(row) {
                    let target = members.iter().find(|(index, _)| *index == variant);
                    return target.map_or(Ok(()), |(_, target)| self.fill(target, column, row));
                }
                if group.union.is_some() {
                    check_variants(group, members, column, row)?;
                }
                self.builder.set_group_present(group);
                self.members(members, column, row)
            }
            ColumnTarget::List { field, element } => self.list(*field, element, column, row),
            ColumnTarget::Element(members) => self.members(members, column, row),
            ColumnTarget::Nullable(value) => self.fill(value, column, row),
        }
    }

    fn members(&mut self, members: &[(usize, ColumnTarget)], column: &Column, row: usize) -> Result<(), EncodingError> {
        for (index, target) in members {
            if let Some(column) = column.members().get(*index) {
                self.fill(target, column, row)?;
            }
        }
        Ok(())
    }

    fn list(&mut self, field: usize, element: &ColumnTarget, column: &Column, row: usize) -> Result<(), EncodingError> {
        let Some((elements, range)) = column.list(row) else { return Ok(()) };
        self.builder.begin_list(field)?;
        for (place, row) in range.enumerate() {
            // The list is open: the builder's own words for where it is are of the element.
            let at = |writer: &Self, error: EncodingError| {
                let name = writer.builder.format().fields().get(field).map_or("", |field| field.name.as_str());
                error.in_field(format!("{name}[{place}]"))
            };
            if elements.is_null(row) && !matches!(element, ColumnTarget::Nullable(_)) {
                let expected = "an element; a schema takes null elements where it has `record { value TYPE null }[]` for \
                                the list";
                let error = EncodingError::value("null", expected);
                return Err(at(self, error));
            }
            match element {
                ColumnTarget::Value { ty, .. } => {
                    if let Err(error) = self.push(*ty, elements, row) {
                        return Err(at(self, error));
                    }
                }
                ColumnTarget::List { field, element } => self.list(*field, element, elements, row)?,
                target => {
                    self.builder.begin_element()?;
                    self.fill(target, elements, row)?;
                    self.builder.end_element()?;
                }
            }
        }
        self.builder.end_list()?;
        Ok(())
    }

    /// Puts a single value at the end of the open list.
    fn push(&mut self, ty: FieldType, column: &Column, row: usize) -> Result<(), EncodingError> {
        let Some(value) = column.value(row) else { return Err(column.beyond()) };
        let value = match (value, ty) {
            (value @ (Value::Int(_) | Value::Uint(_)), FieldType::F32 | FieldType::F64) => {
                Value::Float(float(value, ty, self.rounding)?)
            }
            (Value::Bytes(bytes), FieldType::Char(_) | FieldType::String) => Value::Text(checked_text(bytes)?),
            // A symbol, or the number that stands for none.
            (Value::Text(word), FieldType::Enum { .. }) => {
                let number = str::from_utf8(word).ok().and_then(|word| word.parse().ok()).map(Value::Int);
                match (self.builder.push(value), number) {
                    (Err(_), Some(number)) => number,
                    (outcome, _) => return Ok(outcome?),
                }
            }
            (value, _) => value,
        };
        Ok(self.builder.push(value)?)
    }

    #[inline]
    fn value(&mut self, field: usize, ty: FieldType, column: &Column, row: usize) -> Result<(), EncodingError> {
        let Some(value) = column.value(row) else { return Err(self.named(field, column.beyond())) };
        let outcome = match (value, ty) {
            // Unset is null, or the default of a field that is never null, or missing.
            (Value::Null, _) => return Ok(()),
            (value @ (Value::Int(_) | Value::Uint(_)), FieldType::F32 | FieldType::F64) => {
                match float(value, ty, self.rounding) {
                    Ok(value) => self.builder.set_f64(field, value),
                    Err(error) => return Err(self.named(field, error)),
                }
            }
            (Value::Bytes(bytes), FieldType::Char(_) | FieldType::String) => match checked_text(bytes) {
                Ok(text) => self.builder.set_text(field, text),
                Err(error) => return Err(self.named(field, error)),
            },
            // A symbol, or the number that stands for none.
            (Value::Text(word), FieldType::Enum { .. }) => {
                return text::set_from_text(self.builder, self.scratch, field, word, self.rounding).map_err(|_| {
                    let found = format!("`{}`", text::shorten(word));
                    self.named(field, EncodingError::value(found, "a symbol of the enumeration, or its number"))
                });
            }
            (value, _) => self.builder.set(field, value),
        };
        outcome.map_err(EncodingError::from)
    }

    fn named(&self, field: usize, error: EncodingError) -> EncodingError {
        match self.builder.format().fields().get(field) {
            Some(field) => error.in_field(&field.name),
            None => error,
        }
    }
}

/// An integer for a field of floats.
#[inline]
fn float(value: Value<'_>, ty: FieldType, rounding: Rounding) -> Result<f64, EncodingError> {
    let number = match value {
        Value::Uint(value) => i128::from(value),
        Value::Int(value) => i128::from(value),
        _ => 0,
    };
    let float = rounding.float(number, ty);
    float.ok_or_else(|| EncodingError::value(number.to_string(), format!("{ty}, {}", text::exactly(ty))))
}

fn checked_text(bytes: &[u8]) -> Result<&[u8], EncodingError> {
    match str::from_utf8(bytes) {
        Ok(_) => Ok(bytes),
        Err(_) => Err(EncodingError::value(format!("`{}`, which is no UTF-8", text::shorten(bytes)), "text")),
    }
}

/// Of a union's variants there is one.
fn check_variants(
    group: &Group,
    members: &[(usize, ColumnTarget)],
    column: &Column,
    row: usize,
) -> Result<(), EncodingError> {
    let there =
        |(index, _): &&(usize, ColumnTarget)| column.members().get(*index).is_some_and(|column| !column.is_null(row));
    match members.iter().filter(there).count() {
        1 => Ok(()),
        0 if group.nullable => Ok(()),
        count => Err(EncodingError::value(format!("{count} variants"), "one of the union's").in_field(&group.path)),
    }
}
