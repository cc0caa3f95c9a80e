//! Typed views: a Rust struct over some fields of a format, bound once, then read and written with no look-ups.
//!
//! [`record!`](crate::record) declares the struct; [`View::bind`] finds its fields in a format, whatever their order and
//! whatever else the format has; [`View::read`] is a load a field. Where the struct has every field that a record must
//! have, [`View::write`] makes records.
//!
//! ```
//! use crossdock_format::{Format, Record, View, record};
//!
//! record! {
//!     /// The fields that identify a late flight.
//!     #[derive(Debug, PartialEq)]
//!     pub struct Late<'a> {
//!         /// The flight's number.
//!         pub flight: u16,
//!         /// Minutes.
//!         pub dep_delay: Option<f64>,
//!         /// Of the aircraft.
//!         pub tailnum: &'a [u8],
//!     }
//! }
//!
//! let format = Format::parse_schema("tailnum string\nflight u16\ndep_delay f64 null\nremarks string null")?;
//! let view = View::<Late>::bind(&format)?;
//! let mut payload = Vec::new();
//! view.write(&Late { flight: 1545, dep_delay: None, tailnum: b"N14228" }, &mut payload)?;
//! let record = Record::check(&format, &payload)?;
//! assert_eq!(view.read(&record), Late { flight: 1545, dep_delay: None, tailnum: b"N14228" });
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::marker::PhantomData;

use crate::MAX_RECORD_BYTES;
use crate::builder::{ValueError, ValueProblem};
use crate::field::{Field, FieldType};
use crate::format::{Format, LENGTH_BYTES, RECORD_ALIGN};
use crate::record::Record;

/// A struct that is some fields of records; [`record!`](crate::record) implements it.
pub trait Shape {
    /// The struct with the lifetime of the bytes that it was read from.
    type Of<'r>;
    /// An array of one place a field.
    type Places: AsRef<[ViewField]> + AsMut<[ViewField]> + Copy + Send + Sync;

    /// No places yet.
    const NOWHERE: Self::Places;
    /// The fields' names, and what they take.
    const FIELDS: &'static [(&'static str, Takes)];

    /// Reads all fields.
    fn read<'r>(places: &Self::Places, record: &'r [u8]) -> Self::Of<'r>;

    /// Bytes of the variable part.
    fn variable_bytes(places: &Self::Places, value: &Self::Of<'_>) -> usize;

    /// Writes all fields into a row of zeros.
    fn write(places: &Self::Places, value: &Self::Of<'_>, row: &mut Row<'_>);
}

/// The types that a field of a struct takes.
#[derive(Clone, Copy, Debug)]
pub struct Takes {
    /// The type in words.
    pub words: &'static str,
    /// Whether it takes null.
    pub null: bool,
    /// Whether it takes values of a type.
    pub fits: fn(FieldType) -> bool,
}

/// Where a field of a struct is in a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ViewField {
    at: u32,
    /// Bytes of a `char[N]`; 0 for a slot, and for numbers.
    room: u16,
    null_mask: u8,
    null_byte: u32,
}

impl ViewField {
    /// Of nothing.
    pub const NOWHERE: ViewField = ViewField { at: 0, room: 0, null_mask: 0, null_byte: 0 };

    fn of(field: &Field) -> ViewField {
        ViewField {
            at: field.offset,
            room: match field.ty {
                FieldType::Char(room) => room,
                _ => 0,
            },
            null_byte: field.null_bit.map_or(0, |bit| LENGTH_BYTES as u32 + u32::from(bit) / 8),
            null_mask: field.null_bit.map_or(0, |bit| 1 << (bit % 8)),
        }
    }
}

/// A row that is being written: the whole record, and how far its variable part has got.
#[derive(Debug)]
pub struct Row<'w> {
    bytes: &'w mut [u8],
    end: usize,
    /// The place of a text that does not fit it, and what is wrong.
    flaw: Option<(u32, ValueProblem)>,
}

impl Row<'_> {
    #[inline]
    fn put<const N: usize>(&mut self, at: u32, value: [u8; N]) {
        let at = at as usize;
        if let Some(place) = self.bytes.get_mut(at..at + N).and_then(|place| place.first_chunk_mut()) {
            *place = value;
        }
    }

    #[inline]
    fn put_null(&mut self, place: ViewField) {
        if let Some(byte) = self.bytes.get_mut(place.null_byte as usize) {
            *byte |= place.null_mask;
        }
    }

    #[inline]
    fn put_bytes(&mut self, place: ViewField, value: &[u8]) {
        if place.room > 0 {
            let at = place.at as usize;
            if value.len() > usize::from(place.room) {
                self.flaw = Some((place.at, ValueProblem::TextTooLong { found: value.len(), room: place.room }));
            } else if value.last() == Some(&0) {
                self.flaw = Some((place.at, ValueProblem::EndsInNul));
            } else if let Some(place) = self.bytes.get_mut(at..at + value.len()) {
                place.copy_from_slice(value);
            }
        } else if let Some(room) = self.bytes.get_mut(self.end..self.end + value.len()) {
            room.copy_from_slice(value);
            self.put(place.at, (self.end as u64 | (value.len() as u64) << 32).to_le_bytes());
            self.end += value.len();
        }
    }
}

/// A type that fields of a struct may have: the integers and floats, `bool`, `[u8; N]` for `char[N]` with its padding,
/// `&[u8]` for `char[N]` without it, `string` and `bytes`, and [`Nanoseconds`]; `Option` of each takes null.
pub trait FieldValue<'r>: Sized {
    /// The types that it takes.
    const TAKES: Takes;

    /// Reads it.
    fn load(place: ViewField, record: &'r [u8]) -> Self;

    /// Bytes that it takes in the variable part.
    #[inline]
    fn variable_bytes(&self, place: ViewField) -> usize {
        let _ = place;
        0
    }

    /// Writes it.
    fn store(&self, place: ViewField, row: &mut Row<'_>);
}

/// A value of a `timestamp` field: nanoseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Nanoseconds(
    /// How many.
    pub i64,
);

/// `N` bytes from `at` on; zeros where the record has fewer.
#[inline]
fn load<const N: usize>(record: &[u8], at: u32) -> [u8; N] {
    let at = at as usize;
    record.get(at..at + N).and_then(|bytes| bytes.first_chunk()).copied().unwrap_or([0; N])
}

macro_rules! numbers {
    ($($number:ty, $words:literal, $ty:ident;)+) => {$(
        impl<'r> FieldValue<'r> for $number {
            const TAKES: Takes = Takes { words: $words, null: false, fits: |ty| matches!(ty, FieldType::$ty) };

            #[inline]
            fn load(place: ViewField, record: &'r [u8]) -> Self {
                Self::from_le_bytes(load(record, place.at))
            }

            #[inline]
            fn store(&self, place: ViewField, row: &mut Row<'_>) {
                row.put(place.at, self.to_le_bytes());
            }
        }
    )+};
}

numbers! {
    i8, "i8", I8; i16, "i16", I16; i32, "i32", I32; i64, "i64", I64;
    u8, "u8", U8; u16, "u16", U16; u32, "u32", U32; u64, "u64", U64;
    f32, "f32", F32; f64, "f64", F64;
}

impl<'r> FieldValue<'r> for Nanoseconds {
    const TAKES: Takes = Takes { words: "timestamp", null: false, fits: |ty| matches!(ty, FieldType::Timestamp) };

    #[inline]
    fn load(place: ViewField, record: &'r [u8]) -> Self {
        Self(i64::load(place, record))
    }

    #[inline]
    fn store(&self, place: ViewField, row: &mut Row<'_>) {
        self.0.store(place, row);
    }
}

impl<'r> FieldValue<'r> for bool {
    const TAKES: Takes = Takes { words: "bool", null: false, fits: |ty| matches!(ty, FieldType::Bool) };

    #[inline]
    fn load(place: ViewField, record: &'r [u8]) -> Self {
        load(record, place.at) != [0]
    }

    #[inline]
    fn store(&self, place: ViewField, row: &mut Row<'_>) {
        row.put(place.at, [u8::from(*self)]);
    }
}

impl<'r, const N: usize> FieldValue<'r> for [u8; N] {
    const TAKES: Takes = Takes {
        words: "char[N] of just the array's length",
        null: false,
        fits: |ty| matches!(ty, FieldType::Char(room) if room as usize == N),
    };

    #[inline]
    fn load(place: ViewField, record: &'r [u8]) -> Self {
        load(record, place.at)
    }

    #[inline]
    fn store(&self, place: ViewField, row: &mut Row<'_>) {
        row.put(place.at, *self);
    }
}

impl<'r> FieldValue<'r> for &'r [u8] {
    const TAKES: Takes = Takes {
        words: "char[N], string or bytes",
        null: false,
        fits: |ty| matches!(ty, FieldType::Char(_) | FieldType::String | FieldType::Bytes),
    };

    #[inline]
    fn load(place: ViewField, record: &'r [u8]) -> Self {
        if place.room > 0 {
            let at = place.at as usize;
            let mut text = record.get(at..at + usize::from(place.room)).unwrap_or_default();
            while let [rest @ .., 0] = text {
                text = rest;
            }
            return text;
        }
        let slot = u64::from_le_bytes(load(record, place.at));
        let (start, length) = ((slot & 0xffff_ffff) as usize, (slot >> 32) as usize);
        record.get(start..start + length).unwrap_or_default()
    }

    #[inline]
    fn variable_bytes(&self, place: ViewField) -> usize {
        if place.room > 0 { 0 } else { self.len() }
    }

    #[inline]
    fn store(&self, place: ViewField, row: &mut Row<'_>) {
        row.put_bytes(place, self);
    }
}

impl<'r, T: FieldValue<'r>> FieldValue<'r> for Option<T> {
    const TAKES: Takes = Takes { null: true, ..T::TAKES };

    #[inline]
    fn load(place: ViewField, record: &'r [u8]) -> Self {
        let byte = record.get(place.null_byte as usize).copied().unwrap_or(0);
        if byte & place.null_mask == 0 { Some(T::load(place, record)) } else { None }
    }

    #[inline]
    fn variable_bytes(&self, place: ViewField) -> usize {
        self.as_ref().map_or(0, |value| value.variable_bytes(place))
    }

    #[inline]
    fn store(&self, place: ViewField, row: &mut Row<'_>) {
        match self {
            Some(value) => value.store(place, row),
            None => row.put_null(place),
        }
    }
}

/// A struct bound to a format: where each of its fields is.
pub struct View<T: Shape> {
    format: Format,
    places: T::Places,
    /// Null bits of the fields that the struct does not have: byte and mask.
    others: Box<[(u32, u8)]>,
    /// The first field that the struct does not have, and that a record must.
    missing: Option<usize>,
    shape: PhantomData<fn() -> T>,
}

impl<T: Shape> Clone for View<T> {
    fn clone(&self) -> Self {
        Self { format: self.format.clone(), others: self.others.clone(), ..*self }
    }
}

impl<T: Shape> fmt::Debug for View<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").field("format", &self.format).field("places", &self.places.as_ref()).finish()
    }
}

impl<T: Shape> View<T> {
    /// Finds the struct's fields in a format, by name.
    ///
    /// # Errors
    /// A field that the format does not have, has of another type, has nullable where the struct takes no null, or has in
    /// a foreign layout where reading it takes more than a load.
    pub fn bind(format: &Format) -> Result<View<T>, BindError> {
        let mut places = T::NOWHERE;
        let mut bound = vec![false; format.fields().len()];
        for (place, (name, takes)) in places.as_mut().iter_mut().zip(T::FIELDS) {
            let problem = match format.field(name) {
                None => BindProblem::NoSuchField,
                Some(index) => {
                    let field = &format.fields()[index];
                    bound[index] = true;
                    *place = ViewField::of(field);
                    if !(takes.fits)(field.ty) {
                        BindProblem::WrongType { found: field.ty, expected: takes.words }
                    } else if !field.is_plain() {
                        BindProblem::NotPlain
                    } else if field.nullable && !takes.null {
                        BindProblem::Nullable
                    } else {
                        continue;
                    }
                }
            };
            return Err(BindError { field: name, problem });
        }
        let fields = format.fields().iter().zip(bound);
        let others: Vec<&Field> = fields.filter(|(_, bound)| !bound).map(|(field, _)| field).collect();
        Ok(View {
            missing: others.iter().find(|field| !field.nullable).and_then(|field| format.field(&field.name)),
            others: others
                .iter()
                .map(|field| (ViewField::of(field).null_byte, ViewField::of(field).null_mask))
                .collect(),
            format: format.clone(),
            places,
            shape: PhantomData,
        })
    }

    /// The format.
    #[must_use]
    pub fn format(&self) -> &Format {
        &self.format
    }

    /// The fields of a record of the view's format.
    #[inline]
    #[must_use]
    pub fn read<'r>(&self, record: &Record<'r>) -> T::Of<'r> {
        T::read(&self.places, record.bytes())
    }

    /// Appends a record. Fields that the struct does not have are null.
    ///
    /// # Errors
    /// The layout is foreign, the format has a field that is never null and that the struct does not have, a text does not fit its `char[N]`, or
    /// the record would be longer than [`MAX_RECORD_BYTES`]; nothing was appended.
    #[inline]
    pub fn write(&self, value: &T::Of<'_>, out: &mut Vec<u8>) -> Result<(), ValueError> {
        if let Some(field) = self.missing {
            return Err(self.refuse(field, ValueProblem::NotSet));
        }
        if self.format.is_foreign() {
            return Err(self.refuse(0, ValueProblem::Foreign));
        }
        let fixed = self.format.fixed_bytes();
        let length = (fixed + T::variable_bytes(&self.places, value)).next_multiple_of(RECORD_ALIGN);
        if length > MAX_RECORD_BYTES {
            return Err(self.refuse(0, ValueProblem::RecordTooLong { found: length }));
        }
        let start = out.len();
        out.resize(start + length, 0);
        let mut row = Row { bytes: &mut out[start..], end: fixed, flaw: None };
        row.put(0, (length as u32).to_le_bytes());
        for (byte, mask) in &self.others {
            row.put_null(ViewField { null_byte: *byte, null_mask: *mask, ..ViewField::NOWHERE });
        }
        T::write(&self.places, value, &mut row);
        match row.flaw {
            None => Ok(()),
            Some((at, problem)) => {
                out.truncate(start);
                let field = self.format.fields().iter().position(|field| field.offset == at);
                Err(self.refuse(field.unwrap_or(0), problem))
            }
        }
    }

    #[cold]
    fn refuse(&self, field: usize, problem: ValueProblem) -> ValueError {
        ValueError::new(&self.format, field, problem)
    }
}

/// Why a struct is no view of a format.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BindError {
    /// The field's name.
    pub field: &'static str,
    /// The problem.
    pub problem: BindProblem,
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "field `{}`: {}", self.field, self.problem)
    }
}

impl std::error::Error for BindError {}

/// The problems of a field of a struct.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BindProblem {
    /// The format does not have it.
    #[error("the format has no such field")]
    NoSuchField,
    /// It is of another type.
    #[error(
        "it is {found} in the format, and the struct takes {expected}; convert the records first, or change the struct"
    )]
    WrongType {
        /// The field's type.
        found: FieldType,
        /// The types that the struct's field takes.
        expected: &'static str,
    },
    /// It may be null, and the struct has no place for that.
    #[error("it may be null, so the struct's field has to be an Option")]
    Nullable,
    /// The layout is foreign, and its bytes are not those of the type.
    #[error(
        "reading it takes more than a load in this foreign layout; read it by `Record::get`, or convert the records"
    )]
    NotPlain,
}

/// Declares a struct that is a typed view of records: see the page of [`view`](crate::view).
#[macro_export]
macro_rules! record {
    ($(#[$meta:meta])* $vis:vis struct $name:ident<$life:lifetime> {
        $($(#[$of_field:meta])* $field_vis:vis $field:ident: $ty:ty),+ $(,)?
    }) => {
        $(#[$meta])* $vis struct $name<$life> { $($(#[$of_field])* $field_vis $field: $ty),+ }
        $crate::record!(@shape [$life] [$name<$life>] [$name<'of>] $name { $($field: $ty),+ });
    };
    ($(#[$meta:meta])* $vis:vis struct $name:ident {
        $($(#[$of_field:meta])* $field_vis:vis $field:ident: $ty:ty),+ $(,)?
    }) => {
        $(#[$meta])* $vis struct $name { $($(#[$of_field])* $field_vis $field: $ty),+ }
        $crate::record!(@shape ['any] [$name] [$name] $name { $($field: $ty),+ });
    };
    (@shape [$life:lifetime] [$own:ty] [$of:ty] $name:ident { $($field:ident: $ty:ty),+ }) => {
        impl<$life> $crate::view::Shape for $own {
            type Of<'of> = $of;
            type Places = [$crate::view::ViewField; [$(stringify!($field)),+].len()];

            const NOWHERE: Self::Places = [$crate::view::ViewField::NOWHERE; [$(stringify!($field)),+].len()];
            const FIELDS: &'static [(&'static str, $crate::view::Takes)] =
                &[$((stringify!($field), <$ty as $crate::view::FieldValue<$life>>::TAKES)),+];

            #[inline]
            fn read<'of>(places: &Self::Places, record: &'of [u8]) -> Self::Of<'of> {
                let [$($field),+] = *places;
                $name { $($field: $crate::view::FieldValue::load($field, record)),+ }
            }

            #[inline]
            fn variable_bytes(places: &Self::Places, value: &Self::Of<'_>) -> usize {
                let [$($field),+] = *places;
                0 $(+ $crate::view::FieldValue::variable_bytes(&value.$field, $field))+
            }

            #[inline]
            fn write(places: &Self::Places, value: &Self::Of<'_>, row: &mut $crate::view::Row<'_>) {
                let [$($field),+] = *places;
                $($crate::view::FieldValue::store(&value.$field, $field, row);)+
            }
        }
    };
}
