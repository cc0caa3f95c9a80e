//! Records to batches.

use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, BooleanBuilder, PrimitiveBuilder, StringBuilder};
use arrow_array::types::{
    Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimestampNanosecondType,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{ArrayRef, FixedSizeListArray, ListArray, RecordBatch, StructArray};
use arrow_buffer::{NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, FieldRef, Fields, Schema as ArrowSchema, SchemaRef};

use super::schema::export;
use super::{BATCH_BYTES, BATCH_ROWS};
use crate::element::{Group, Member as TreeMember};
use crate::encoding::{EncodingError, EncodingOptions, Loss};
use crate::field::FieldType;
use crate::format::Format;
use crate::record::{List, Record, Value};
use crate::text;

/// The least number that Arrow's decimals of 38 digits do not reach.
const DECIMAL_BOUND: u128 = 10_u128.pow(38);

/// Gathers records as columns.
pub(in crate::encoding) struct BatchWriter {
    schema: SchemaRef,
    members: Vec<Member>,
    checked: Vec<Checked>,
    rows: usize,
    bytes: usize,
    allow_invalid: bool,
}

/// A column, and what of a record goes into it.
struct Member {
    source: MemberSource,
    column: Column,
}

enum MemberSource {
    Value(usize),
    Group(Group),
}

/// A field whose values may be none that a column takes.
enum Checked {
    Value(usize),
    /// A list, with those in its elements.
    List(usize, Vec<Checked>),
}

enum Column {
    Bool(BooleanBuilder),
    I8(PrimitiveBuilder<Int8Type>),
    I16(PrimitiveBuilder<Int16Type>),
    I32(PrimitiveBuilder<Int32Type>),
    I64(PrimitiveBuilder<Int64Type>),
    U8(PrimitiveBuilder<UInt8Type>),
    U16(PrimitiveBuilder<UInt16Type>),
    U32(PrimitiveBuilder<UInt32Type>),
    U64(PrimitiveBuilder<UInt64Type>),
    F32(PrimitiveBuilder<Float32Type>),
    F64(PrimitiveBuilder<Float64Type>),
    Timestamp(PrimitiveBuilder<TimestampNanosecondType>),
    Decimal(PrimitiveBuilder<Decimal128Type>),
    Text(StringBuilder),
    Bytes(BinaryBuilder),
    Struct { members: Vec<Member>, fields: Fields, nulls: NullBufferBuilder },
    List { elements: Box<Column>, item: FieldRef, ends: Vec<i32>, nulls: NullBufferBuilder },
    FixedList { elements: Box<Column>, item: FieldRef, length: i32, nulls: NullBufferBuilder },
}

impl BatchWriter {
    pub(in crate::encoding) fn new(format: &Format, options: &EncodingOptions) -> Self {
        let schema = export(format, options);
        Self {
            members: members(format, format.tree(), schema.fields()),
            checked: checked(format),
            schema: Arc::new(schema),
            rows: 0,
            bytes: 0,
            allow_invalid: options.allows(Loss::InvalidText),
        }
    }

    pub(in crate::encoding) fn schema(&self) -> &ArrowSchema {
        &self.schema
    }

    /// Takes a record.
    ///
    /// # Errors
    /// A text is no UTF-8, or a decimal is too long; the record is not taken.
    pub(in crate::encoding) fn push(&mut self, record: &Record<'_>) -> Result<(), EncodingError> {
        for checked in &self.checked {
            checked.check(record, self.allow_invalid)?;
        }
        push_record(&mut self.members, record);
        self.rows += 1;
        self.bytes += record.bytes().len();
        Ok(())
    }

    /// Whether it is time to take the batch.
    pub(in crate::encoding) fn is_full(&self) -> bool {
        self.rows >= BATCH_ROWS || self.bytes >= BATCH_BYTES
    }

    /// The gathered records, if anything was.
    pub(in crate::encoding) fn take(&mut self) -> Result<Option<RecordBatch>, EncodingError> {
        if self.rows == 0 {
            return Ok(None);
        }
        (self.rows, self.bytes) = (0, 0);
        let batch =
            take_all(&mut self.members).and_then(|columns| RecordBatch::try_new(Arc::clone(&self.schema), columns));
        batch.map(Some).map_err(|error| EncodingError::schema(error.to_string()))
    }

    /// Forgets what was gathered.
    pub(in crate::encoding) fn clear(&mut self) {
        // Whether the columns go together is of no interest.
        let _ = take_all(&mut self.members);
        (self.rows, self.bytes) = (0, 0);
    }
}

/// The columns of a format's fields, or of those in a nested record, which the schema has in the same order.
fn members(format: &Format, places: &[TreeMember], fields: &Fields) -> Vec<Member> {
    let member = |(place, field): (&TreeMember, &FieldRef)| match place {
        TreeMember::Leaf(leaf) => {
            let of = format.fields().get(*leaf)?;
            let column = match of.element() {
                None => Column::of(of.ty, field.data_type()),
                Some(element) => Column::of_list(element.format(), element.is_record, field.data_type())?,
            };
            Some(Member { source: MemberSource::Value(*leaf), column })
        }
        TreeMember::Group(group) => {
            let DataType::Struct(fields) = field.data_type() else { return None };
            let members = members(format, &group.members, fields);
            let column = Column::Struct { members, fields: fields.clone(), nulls: NullBufferBuilder::new(0) };
            Some(Member { source: MemberSource::Group(group.clone()), column })
        }
    };
    places.iter().zip(fields).filter_map(member).collect()
}

fn push_record(members: &mut [Member], record: &Record<'_>) {
    for Member { source, column } in members {
        match source {
            MemberSource::Value(field) => column.push(record.get(*field)),
            MemberSource::Group(group) if record.group_is_null(group) => column.push_null(),
            MemberSource::Group(_) => {
                if let Column::Struct { members, nulls, .. } = column {
                    nulls.append_non_null();
                    push_record(members, record);
                }
            }
        }
    }
}

fn take_all(members: &mut [Member]) -> Result<Vec<ArrayRef>, ArrowError> {
    // All of them, come what may: none is to keep something for the next batch.
    let taken: Vec<Result<ArrayRef, ArrowError>> = members.iter_mut().map(|member| member.column.take()).collect();
    taken.into_iter().collect()
}

fn checked(format: &Format) -> Vec<Checked> {
    let fields = format.fields().iter().enumerate();
    let of = fields.filter_map(|(index, field)| match field.ty {
        FieldType::Char(_) | FieldType::String | FieldType::Decimal { bytes: 16, .. } => Some(Checked::Value(index)),
        FieldType::List => {
            let inner = checked(field.element()?.format());
            (!inner.is_empty()).then_some(Checked::List(index, inner))
        }
        _ => None,
    });
    of.collect()
}

impl Checked {
    fn check(&self, record: &Record<'_>, allow_invalid: bool) -> Result<(), EncodingError> {
        let name = |field: usize| record.format().fields().get(field).map_or("", |field| field.name.as_str());
        match self {
            Self::Value(field) => match record.get(*field) {
                Value::Text(text) if !allow_invalid && str::from_utf8(text).is_err() => {
                    let found = format!("`{}`, which is no UTF-8", text::shorten(text));
                    let expected = format!("UTF-8 (--allow {} replaces what is not)", Loss::InvalidText);
                    Err(EncodingError::value(found, expected).in_field(name(*field)))
                }
                Value::Decimal { unscaled, .. } if unscaled.unsigned_abs() >= DECIMAL_BOUND => {
                    let found = format!("a decimal of 39 digits ({unscaled})");
                    Err(EncodingError::value(found, "at most 38 digits").in_field(name(*field)))
                }
                _ => Ok(()),
            },
            Self::List(field, inner) => {
                let Value::List(list) = record.get(*field) else { return Ok(()) };
                for index in 0..list.len() {
                    let Some(element) = list.record(index) else { break };
                    for checked in inner {
                        checked.check(&element, allow_invalid).map_err(|error| {
                            let inner = error.field.clone().filter(|_| list.element().is_record);
                            let inner = inner.map_or_else(String::new, |inner| format!(".{inner}"));
                            error.in_field(format!("{}[{index}]{inner}", name(*field)))
                        })?;
                    }
                }
                Ok(())
            }
        }
    }
}

impl Column {
    /// A column of single values; enumerations are numbers or symbols, as the schema has it.
    fn of(ty: FieldType, column: &DataType) -> Column {
        match (ty, column) {
            (FieldType::Bool, _) => Self::Bool(BooleanBuilder::new()),
            (_, DataType::Int8) => Self::I8(PrimitiveBuilder::new()),
            (_, DataType::Int16) => Self::I16(PrimitiveBuilder::new()),
            (_, DataType::Int32) => Self::I32(PrimitiveBuilder::new()),
            (_, DataType::Int64) => Self::I64(PrimitiveBuilder::new()),
            (_, DataType::UInt8) => Self::U8(PrimitiveBuilder::new()),
            (_, DataType::UInt16) => Self::U16(PrimitiveBuilder::new()),
            (_, DataType::UInt32) => Self::U32(PrimitiveBuilder::new()),
            (_, DataType::UInt64) => Self::U64(PrimitiveBuilder::new()),
            (_, DataType::Float32) => Self::F32(PrimitiveBuilder::new()),
            (_, DataType::Float64) => Self::F64(PrimitiveBuilder::new()),
            (FieldType::Timestamp, _) => Self::Timestamp(PrimitiveBuilder::new().with_timezone("UTC")),
            (FieldType::Decimal { .. }, _) => Self::Decimal(PrimitiveBuilder::new().with_data_type(column.clone())),
            (_, DataType::Utf8) => Self::Text(StringBuilder::new()),
            _ => Self::Bytes(BinaryBuilder::new()),
        }
    }

    /// A column of lists with elements of this layout.
    fn of_list(element: &Format, is_record: bool, column: &DataType) -> Option<Column> {
        let (DataType::List(item) | DataType::FixedSizeList(item, _)) = column else { return None };
        let elements = match (element.fields().first()?, item.data_type()) {
            (_, DataType::Struct(fields)) if is_record => {
                let members = members(element, element.tree(), fields);
                Self::Struct { members, fields: fields.clone(), nulls: NullBufferBuilder::new(0) }
            }
            (field, found) => match field.element() {
                None => Self::of(field.ty, found),
                Some(inner) => Self::of_list(inner.format(), inner.is_record, found)?,
            },
        };
        let (elements, item, nulls) = (Box::new(elements), Arc::clone(item), NullBufferBuilder::new(0));
        Some(match column {
            DataType::FixedSizeList(_, length) => Self::FixedList { elements, item, length: *length, nulls },
            _ => Self::List { elements, item, ends: vec![0], nulls },
        })
    }

    /// Takes a value of the column's type, or null.
    #[inline]
    fn push(&mut self, value: Value<'_>) {
        // A field's values are of its type, so that none of these numbers is cut.
        let int = match value {
            Value::Int(value) | Value::Enum { number: value, .. } => Some(value),
            _ => None,
        };
        let uint = match value {
            Value::Uint(value) => Some(value),
            Value::Enum { number, .. } => Some(number as u64),
            _ => None,
        };
        let float = if let Value::Float(value) = value { Some(value) } else { None };
        match self {
            Self::Bool(column) => column.append_option(if let Value::Bool(value) = value { Some(value) } else { None }),
            Self::I8(column) => column.append_option(int.map(|value| value as i8)),
            Self::I16(column) => column.append_option(int.map(|value| value as i16)),
            Self::I32(column) => column.append_option(int.map(|value| value as i32)),
            Self::I64(column) => column.append_option(int),
            Self::U8(column) => column.append_option(uint.map(|value| value as u8)),
            Self::U16(column) => column.append_option(uint.map(|value| value as u16)),
            Self::U32(column) => column.append_option(uint.map(|value| value as u32)),
            Self::U64(column) => column.append_option(uint),
            Self::F32(column) => column.append_option(float.map(|value| value as f32)),
            Self::F64(column) => column.append_option(float),
            Self::Timestamp(column) => {
                column.append_option(if let Value::Timestamp(value) = value { Some(value) } else { None });
            }
            Self::Decimal(column) => {
                column.append_option(if let Value::Decimal { unscaled, .. } = value { Some(unscaled) } else { None });
            }
            Self::Text(column) => match value {
                Value::Text(text) => column.append_value(String::from_utf8_lossy(text)),
                Value::Enum { symbol: Some(symbol), .. } => column.append_value(symbol),
                Value::Enum { number, .. } => column.append_value(number.to_string()),
                _ => column.append_null(),
            },
            Self::Bytes(column) => match value {
                Value::Bytes(bytes) => column.append_value(bytes),
                _ => column.append_null(),
            },
            Self::Struct { .. } | Self::List { .. } | Self::FixedList { .. } => self.push_nested(value),
        }
    }

    fn push_nested(&mut self, value: Value<'_>) {
        match (&mut *self, value) {
            (Self::Struct { members, nulls, .. }, Value::Record(record)) => {
                nulls.append_non_null();
                push_record(members, &record);
            }
            (Self::List { elements, ends, nulls, .. }, Value::List(list)) => {
                let count = elements.push_all(list, usize::MAX);
                nulls.append_non_null();
                // A batch has at most BATCH_BYTES and a record's worth of elements.
                ends.push(ends.last().copied().unwrap_or(0) + count as i32);
            }
            (Self::FixedList { elements, length, nulls, .. }, Value::List(list)) => {
                nulls.append_non_null();
                let length = usize::try_from(*length).unwrap_or(0);
                for _ in elements.push_all(list, length)..length {
                    elements.push_null();
                }
            }
            _ => self.push_null(),
        }
    }

    /// Takes at most `most` elements of a list; how many that were.
    fn push_all(&mut self, list: List<'_>, most: usize) -> usize {
        let mut count = 0;
        for value in list.iter().take(most) {
            self.push(value);
            count += 1;
        }
        count
    }

    fn push_null(&mut self) {
        match self {
            Self::Struct { members, nulls, .. } => {
                nulls.append_null();
                members.iter_mut().for_each(|member| member.column.push_null());
            }
            Self::List { ends, nulls, .. } => {
                nulls.append_null();
                ends.push(ends.last().copied().unwrap_or(0));
            }
            Self::FixedList { elements, length, nulls, .. } => {
                nulls.append_null();
                (0..*length).for_each(|_| elements.push_null());
            }
            column => column.push(Value::Null),
        }
    }

    fn take(&mut self) -> Result<ArrayRef, ArrowError> {
        Ok(match self {
            Self::Bool(column) => Arc::new(column.finish()),
            Self::I8(column) => Arc::new(column.finish()),
            Self::I16(column) => Arc::new(column.finish()),
            Self::I32(column) => Arc::new(column.finish()),
            Self::I64(column) => Arc::new(column.finish()),
            Self::U8(column) => Arc::new(column.finish()),
            Self::U16(column) => Arc::new(column.finish()),
            Self::U32(column) => Arc::new(column.finish()),
            Self::U64(column) => Arc::new(column.finish()),
            Self::F32(column) => Arc::new(column.finish()),
            Self::F64(column) => Arc::new(column.finish()),
            Self::Timestamp(column) => Arc::new(column.finish()),
            Self::Decimal(column) => Arc::new(column.finish()),
            Self::Text(column) => Arc::new(column.finish()),
            Self::Bytes(column) => Arc::new(column.finish()),
            Self::Struct { members, fields, nulls } => {
                let nulls = nulls.finish();
                Arc::new(StructArray::try_new(fields.clone(), take_all(members)?, nulls)?)
            }
            Self::List { elements, item, ends, nulls } => {
                let ends = std::mem::replace(ends, vec![0]);
                let (ends, nulls) = (OffsetBuffer::new(ScalarBuffer::from(ends)), nulls.finish());
                Arc::new(ListArray::try_new(Arc::clone(item), ends, elements.take()?, nulls)?)
            }
            Self::FixedList { elements, item, length, nulls } => {
                let nulls = nulls.finish();
                Arc::new(FixedSizeListArray::try_new(Arc::clone(item), *length, elements.take()?, nulls)?)
            }
        })
    }
}
