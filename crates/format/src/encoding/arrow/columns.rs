//! Columns of a batch, read value by value.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowDictionaryKeyType, ArrowPrimitiveType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type,
    Decimal256Type, DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType, DurationSecondType,
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, RunEndIndexType,
    Time32MillisecondType, Time32SecondType, Time64MicrosecondType, Time64NanosecondType, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type,
    UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BinaryViewArray, BooleanArray, FixedSizeBinaryArray, LargeBinaryArray,
    LargeStringArray, StringArray, StringViewArray,
};
use arrow_buffer::{ArrowNativeType, NullBuffer, OffsetBuffer, ScalarBuffer, i256};
use arrow_schema::{DataType, TimeUnit};
use half::f16;

use super::MAX_ROWS;
use crate::encoding::EncodingError;
use crate::record::Value;

/// A column of a batch.
pub(super) struct Column {
    rows: usize,
    nulls: Option<NullBuffer>,
    values: Values,
}

enum Values {
    Null,
    Bool(BooleanArray),
    I8(ScalarBuffer<i8>),
    I16(ScalarBuffer<i16>),
    I32(ScalarBuffer<i32>),
    I64(ScalarBuffer<i64>),
    U8(ScalarBuffer<u8>),
    U16(ScalarBuffer<u16>),
    U32(ScalarBuffer<u32>),
    U64(ScalarBuffer<u64>),
    F16(ScalarBuffer<f16>),
    F32(ScalarBuffer<f32>),
    F64(ScalarBuffer<f64>),
    /// Times, and how many nanoseconds a unit has.
    Time(ScalarBuffer<i64>, i64),
    /// Days.
    Date(ScalarBuffer<i32>),
    Utf8(StringArray),
    LargeUtf8(LargeStringArray),
    Utf8View(StringViewArray),
    Binary(BinaryArray),
    LargeBinary(LargeBinaryArray),
    BinaryView(BinaryViewArray),
    FixedBinary(FixedSizeBinaryArray),
    Decimal32(ScalarBuffer<i32>, u8),
    Decimal64(ScalarBuffer<i64>, u8),
    Decimal128(ScalarBuffer<i128>, u8),
    Decimal256(ScalarBuffer<i256>, u8),
    /// Where in the values each one is.
    Dictionary(Vec<u32>, Box<Column>),
    /// The end of each value, in rows counted from `n` rows before the first; `n`; and the values.
    Runs(Vec<usize>, usize, Box<Column>),
    Struct(Vec<Column>),
    List(Ends, Box<Column>),
    Union(Variants),
}

/// A column each of whose rows is of one of several columns.
struct Variants {
    /// For each row, the number of its column.
    ids: ScalarBuffer<i8>,
    /// Where in that column it is; without, in the row itself.
    rows: Option<ScalarBuffer<i32>>,
    columns: Vec<(i8, Column)>,
}

/// Where each list's elements are among all of them.
enum Ends {
    Short(OffsetBuffer<i32>),
    Long(OffsetBuffer<i64>),
    Fixed(usize),
    /// Where they start, and how many they are.
    ShortViews(ScalarBuffer<i32>, ScalarBuffer<i32>),
    LongViews(ScalarBuffer<i64>, ScalarBuffer<i64>),
}

/// Refuses views that all together speak of more elements than there can be rows: they may overlap, and so make much out of
/// little.
fn bounded<O: ArrowNativeType>(sizes: &ScalarBuffer<O>) -> Option<()> {
    let claimed = sizes.iter().try_fold(0_usize, |sum, size| sum.checked_add(size.as_usize()))?;
    (claimed <= MAX_ROWS).then_some(())
}

const DAY: i64 = 86_400 * 1_000_000_000;

impl Column {
    /// `None` for a type that the schema's import does not know.
    pub(super) fn of(array: &ArrayRef) -> Option<Column> {
        let nulls = array.nulls().cloned();
        let values = match array.data_type() {
            DataType::Null => Values::Null,
            DataType::Boolean => Values::Bool(array.as_boolean_opt()?.clone()),
            DataType::Int8 => Values::I8(numbers::<Int8Type>(array)?),
            DataType::Int16 => Values::I16(numbers::<Int16Type>(array)?),
            DataType::Int32 => Values::I32(numbers::<Int32Type>(array)?),
            DataType::Int64 => Values::I64(numbers::<Int64Type>(array)?),
            DataType::UInt8 => Values::U8(numbers::<UInt8Type>(array)?),
            DataType::UInt16 => Values::U16(numbers::<UInt16Type>(array)?),
            DataType::UInt32 => Values::U32(numbers::<UInt32Type>(array)?),
            DataType::UInt64 => Values::U64(numbers::<UInt64Type>(array)?),
            DataType::Float16 => Values::F16(numbers::<Float16Type>(array)?),
            DataType::Float32 => Values::F32(numbers::<Float32Type>(array)?),
            DataType::Float64 => Values::F64(numbers::<Float64Type>(array)?),
            DataType::Timestamp(TimeUnit::Second, _) => {
                Values::Time(numbers::<TimestampSecondType>(array)?, 1_000_000_000)
            }
            DataType::Timestamp(TimeUnit::Millisecond, _) => {
                Values::Time(numbers::<TimestampMillisecondType>(array)?, 1_000_000)
            }
            DataType::Timestamp(TimeUnit::Microsecond, _) => {
                Values::Time(numbers::<TimestampMicrosecondType>(array)?, 1000)
            }
            DataType::Timestamp(TimeUnit::Nanosecond, _) => Values::Time(numbers::<TimestampNanosecondType>(array)?, 1),
            DataType::Date32 => Values::Date(numbers::<Date32Type>(array)?),
            DataType::Date64 => Values::Time(numbers::<Date64Type>(array)?, 1_000_000),
            DataType::Time32(TimeUnit::Second) => Values::I32(numbers::<Time32SecondType>(array)?),
            DataType::Time32(_) => Values::I32(numbers::<Time32MillisecondType>(array)?),
            DataType::Time64(TimeUnit::Microsecond) => Values::I64(numbers::<Time64MicrosecondType>(array)?),
            DataType::Time64(_) => Values::I64(numbers::<Time64NanosecondType>(array)?),
            DataType::Duration(TimeUnit::Second) => Values::I64(numbers::<DurationSecondType>(array)?),
            DataType::Duration(TimeUnit::Millisecond) => Values::I64(numbers::<DurationMillisecondType>(array)?),
            DataType::Duration(TimeUnit::Microsecond) => Values::I64(numbers::<DurationMicrosecondType>(array)?),
            DataType::Duration(TimeUnit::Nanosecond) => Values::I64(numbers::<DurationNanosecondType>(array)?),
            DataType::Utf8 => Values::Utf8(array.as_string_opt()?.clone()),
            DataType::LargeUtf8 => Values::LargeUtf8(array.as_string_opt()?.clone()),
            DataType::Utf8View => Values::Utf8View(array.as_string_view_opt()?.clone()),
            DataType::Binary => Values::Binary(array.as_binary_opt()?.clone()),
            DataType::LargeBinary => Values::LargeBinary(array.as_binary_opt()?.clone()),
            DataType::BinaryView => Values::BinaryView(array.as_binary_view_opt()?.clone()),
            DataType::FixedSizeBinary(_) => Values::FixedBinary(array.as_fixed_size_binary_opt()?.clone()),
            DataType::Decimal32(_, scale) => {
                Values::Decimal32(numbers::<Decimal32Type>(array)?, u8::try_from(*scale).ok()?)
            }
            DataType::Decimal64(_, scale) => {
                Values::Decimal64(numbers::<Decimal64Type>(array)?, u8::try_from(*scale).ok()?)
            }
            DataType::Decimal128(_, scale) => {
                Values::Decimal128(numbers::<Decimal128Type>(array)?, u8::try_from(*scale).ok()?)
            }
            DataType::Decimal256(_, scale) => {
                Values::Decimal256(numbers::<Decimal256Type>(array)?, u8::try_from(*scale).ok()?)
            }
            _ => return Column::nested(array, nulls),
        };
        Some(Column { rows: array.len(), nulls, values })
    }

    /// Columns of columns: what [`Column::of`] has no single values of.
    fn nested(array: &ArrayRef, nulls: Option<NullBuffer>) -> Option<Column> {
        let values = match array.data_type() {
            DataType::Struct(_) => {
                let members: Option<Vec<Column>> = array.as_struct_opt()?.columns().iter().map(Column::of).collect();
                Values::Struct(members?)
            }
            DataType::List(_) => {
                let list = array.as_list_opt::<i32>()?;
                Values::List(Ends::Short(list.offsets().clone()), Box::new(Column::of(list.values())?))
            }
            DataType::LargeList(_) => {
                let list = array.as_list_opt::<i64>()?;
                Values::List(Ends::Long(list.offsets().clone()), Box::new(Column::of(list.values())?))
            }
            DataType::FixedSizeList(_, length) => {
                let list = array.as_fixed_size_list_opt()?;
                let length = usize::try_from(*length).ok()?;
                Values::List(Ends::Fixed(length), Box::new(Column::of(list.values())?))
            }
            DataType::ListView(_) => {
                let list = array.as_list_view_opt::<i32>()?;
                bounded(list.sizes())?;
                let ends = Ends::ShortViews(list.offsets().clone(), list.sizes().clone());
                Values::List(ends, Box::new(Column::of(list.values())?))
            }
            DataType::LargeListView(_) => {
                let list = array.as_list_view_opt::<i64>()?;
                bounded(list.sizes())?;
                let ends = Ends::LongViews(list.offsets().clone(), list.sizes().clone());
                Values::List(ends, Box::new(Column::of(list.values())?))
            }
            DataType::RunEndEncoded(ends, _) => match ends.data_type() {
                DataType::Int16 => runs::<Int16Type>(array)?,
                DataType::Int32 => runs::<Int32Type>(array)?,
                _ => runs::<Int64Type>(array)?,
            },
            DataType::Union(variants, _) => {
                let array = array.as_union_opt()?;
                let column = |(id, _)| Some((id, Column::of(array.child(id))?));
                let columns: Option<Vec<(i8, Column)>> = variants.iter().map(column).collect();
                let (ids, rows) = (array.type_ids().clone(), array.offsets().cloned());
                Values::Union(Variants { ids, rows, columns: columns? })
            }
            DataType::Map(..) => {
                let map = array.as_map_opt()?;
                let entries: ArrayRef = Arc::new(map.entries().clone());
                Values::List(Ends::Short(map.offsets().clone()), Box::new(Column::of(&entries)?))
            }
            DataType::Dictionary(keys, _) => {
                let (keys, values) = match **keys {
                    DataType::Int8 => dictionary::<Int8Type>(array)?,
                    DataType::Int16 => dictionary::<Int16Type>(array)?,
                    DataType::Int32 => dictionary::<Int32Type>(array)?,
                    DataType::Int64 => dictionary::<Int64Type>(array)?,
                    DataType::UInt8 => dictionary::<UInt8Type>(array)?,
                    DataType::UInt16 => dictionary::<UInt16Type>(array)?,
                    DataType::UInt32 => dictionary::<UInt32Type>(array)?,
                    DataType::UInt64 => dictionary::<UInt64Type>(array)?,
                    _ => return None,
                };
                Values::Dictionary(keys, Box::new(Column::of(&values)?))
            }
            _ => return None,
        };
        Some(Column { rows: array.len(), nulls, values })
    }

    /// Whether there is nothing in a row.
    #[inline]
    pub(super) fn is_null(&self, row: usize) -> bool {
        row >= self.rows || self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }

    /// The columns in a column of records.
    pub(super) fn members(&self) -> &[Column] {
        match &self.values {
            Values::Struct(members) => members,
            _ => &[],
        }
    }

    /// The elements of the list in a row, as rows of a column of elements.
    pub(super) fn list(&self, row: usize) -> Option<(&Column, Range<usize>)> {
        let Values::List(ends, elements) = &self.values else { return None };
        let range = match ends {
            Ends::Short(ends) => ends.get(row)?.as_usize()..ends.get(row + 1)?.as_usize(),
            Ends::Long(ends) => ends.get(row)?.as_usize()..ends.get(row + 1)?.as_usize(),
            Ends::ShortViews(starts, sizes) => view(starts, sizes, row)?,
            Ends::LongViews(starts, sizes) => view(starts, sizes, row)?,
            Ends::Fixed(length) => row.checked_mul(*length)?..(row + 1).checked_mul(*length)?,
        };
        Some((elements, range))
    }

    /// Which column of a union a row is in, counted from 0, that column, and the row there.
    pub(super) fn variant(&self, row: usize) -> Option<(usize, &Column, usize)> {
        let Values::Union(variants) = &self.values else { return None };
        let id = variants.ids.get(row)?;
        let index = variants.columns.iter().position(|(own, _)| own == id)?;
        let row = match &variants.rows {
            Some(rows) => rows.get(row)?.as_usize(),
            None => row,
        };
        Some((index, &variants.columns.get(index)?.1, row))
    }

    /// The error of a value that [`Column::value`] has none for.
    #[cold]
    pub(super) fn beyond(&self) -> EncodingError {
        match &self.values {
            Values::Decimal256(..) => EncodingError::value("a decimal of 256 bits", "one of at most 128 bits"),
            Values::Dictionary(_, values) | Values::Runs(_, _, values) => values.beyond(),
            _ => EncodingError::value("a time outside of 64 bits of nanoseconds", "one in the years 1678 to 2261"),
        }
    }

    /// The value in a row, null for one that the batch does not have; `None` for a time that 64 bits of nanoseconds do
    /// not reach, and for a decimal that 128 bits do not hold: see [`Column::beyond`].
    #[inline]
    pub(super) fn value(&self, row: usize) -> Option<Value<'_>> {
        if self.is_null(row) {
            return Some(Value::Null);
        }
        Some(match &self.values {
            Values::Null => Value::Null,
            Values::Bool(values) => Value::Bool(values.value(row)),
            Values::I8(values) => Value::Int(i64::from(*values.get(row)?)),
            Values::I16(values) => Value::Int(i64::from(*values.get(row)?)),
            Values::I32(values) => Value::Int(i64::from(*values.get(row)?)),
            Values::I64(values) => Value::Int(*values.get(row)?),
            Values::U8(values) => Value::Uint(u64::from(*values.get(row)?)),
            Values::U16(values) => Value::Uint(u64::from(*values.get(row)?)),
            Values::U32(values) => Value::Uint(u64::from(*values.get(row)?)),
            Values::U64(values) => Value::Uint(*values.get(row)?),
            Values::F16(values) => Value::Float(f64::from(*values.get(row)?)),
            Values::F32(values) => Value::Float(f64::from(*values.get(row)?)),
            Values::F64(values) => Value::Float(*values.get(row)?),
            Values::Time(values, unit) => Value::Timestamp(values.get(row)?.checked_mul(*unit)?),
            Values::Date(values) => Value::Timestamp(i64::from(*values.get(row)?).checked_mul(DAY)?),
            Values::Utf8(values) => Value::Text(values.value(row).as_bytes()),
            Values::LargeUtf8(values) => Value::Text(values.value(row).as_bytes()),
            Values::Utf8View(values) => Value::Text(values.value(row).as_bytes()),
            Values::Binary(values) => Value::Bytes(values.value(row)),
            Values::LargeBinary(values) => Value::Bytes(values.value(row)),
            Values::BinaryView(values) => Value::Bytes(values.value(row)),
            Values::FixedBinary(values) => Value::Bytes(values.value(row)),
            Values::Decimal32(values, scale) => decimal(i128::from(*values.get(row)?), *scale),
            Values::Decimal64(values, scale) => decimal(i128::from(*values.get(row)?), *scale),
            Values::Decimal128(values, scale) => decimal(*values.get(row)?, *scale),
            Values::Decimal256(values, scale) => decimal(values.get(row)?.to_i128()?, *scale),
            Values::Dictionary(keys, values) => values.value(*keys.get(row)? as usize)?,
            Values::Runs(ends, before, values) => values.value(ends.partition_point(|end| *end <= row + before))?,
            // Read by their parts.
            Values::Struct(_) | Values::List(..) | Values::Union(_) => Value::Null,
        })
    }
}

fn decimal(unscaled: i128, scale: u8) -> Value<'static> {
    Value::Decimal { unscaled, scale }
}

fn numbers<T: ArrowPrimitiveType>(array: &ArrayRef) -> Option<ScalarBuffer<T::Native>> {
    Some(array.as_primitive_opt::<T>()?.values().clone())
}

fn view<O: ArrowNativeType>(starts: &ScalarBuffer<O>, sizes: &ScalarBuffer<O>, row: usize) -> Option<Range<usize>> {
    let start = starts.get(row)?.as_usize();
    Some(start..start.checked_add(sizes.get(row)?.as_usize())?)
}

/// Values that stand for several rows each.
fn runs<R: RunEndIndexType>(array: &ArrayRef) -> Option<Values> {
    let array = array.as_run_opt::<R>()?;
    let ends = array.run_ends();
    let places = ends.values().iter().map(|end| end.as_usize()).collect();
    Some(Values::Runs(places, ends.offset(), Box::new(Column::of(array.values())?)))
}

/// The places of the values, 0 for null, and the values. A key was checked to be within them when the array was made.
fn dictionary<K: ArrowDictionaryKeyType>(array: &ArrayRef) -> Option<(Vec<u32>, ArrayRef)> {
    let array = array.as_dictionary_opt::<K>()?;
    let keys = array.keys().values().iter().map(|key| u32::try_from(key.as_usize()).unwrap_or(0));
    Some((keys.collect(), Arc::clone(array.values())))
}
