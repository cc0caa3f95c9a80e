//! Writing records with the places of their fields known beforehand: for decoders that are compiled for a format.
//!
//! What a builder's `set` calls look up for every value (where it goes, whether the type takes it) such a decoder looks
//! up once, when it is made. It promises that a value has as many bytes as the field's type, and that text is UTF-8.
//! [`DirectBuilder`] takes records whose variable part cannot be longer than the item that they are decoded from; for
//! other cases (a string that is set twice, an array) it reports to the caller that a [`RecordBuilder`] is needed.

use crate::builder::{RecordBuilder, ValueError, ValueProblem};
use crate::element::{Group, Member};
use crate::encoding::{EncodingError, EncodingProblem};
use crate::field::FieldType;
use crate::format::{Format, LENGTH_BYTES, RECORD_ALIGN};
use crate::record::Value;

/// Short texts are moved and looked at in blocks of this many bytes: more than most of them have.
const BLOCK: usize = 16;
const TOP_BITS: u128 = u128::from_le_bytes([0x80; BLOCK]);

/// Where a field's value and its null bit are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) field: u32,
    pub(crate) ty: FieldType,
    /// Whether this is the single value that a list's element is.
    is_element: bool,
    offset: u32,
    null_byte: u32,
    null_mask: u8,
    /// Whether a record without it is to be refused.
    required: bool,
}

impl Place {
    /// The place of a field; `None` if the format has no such field. A record without a field that is `required` is
    /// refused.
    pub(crate) fn of(format: &Format, field: usize, required: bool) -> Option<Self> {
        let found = format.fields().get(field)?;
        Some(Self {
            field: u32::try_from(field).ok()?,
            ty: found.ty,
            is_element: false,
            offset: found.offset,
            null_byte: found.null_bit.map_or(0, |bit| LENGTH_BYTES as u32 + u32::from(bit) / 8),
            null_mask: found.null_bit.map_or(0, |bit| 1 << (bit % 8)),
            required,
        })
    }

    /// The place of the next element, where the elements of a list are single values of this type.
    pub(crate) fn element(ty: FieldType) -> Self {
        Self { field: 0, ty, is_element: true, offset: 0, null_byte: 0, null_mask: 0, required: false }
    }

    /// The place of a field in a record that is an element of a list: a [`RecordBuilder`] knows where that is.
    pub(crate) fn inner(field: usize, ty: FieldType) -> Self {
        // No more than MAX_FIELDS.
        Self { field: field as u32, is_element: false, ..Self::element(ty) }
    }

    /// The index of the field.
    #[inline]
    pub(crate) fn index(self) -> usize {
        self.field as usize
    }
}

/// A text or bytes, and what follows it where it came from: so that short ones can be moved in one piece.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run<'a> {
    pub(crate) bytes: &'a [u8],
    /// The same bytes with those behind them.
    pub(crate) ahead: &'a [u8],
}

impl Run<'_> {
    /// Whether this is UTF-8.
    #[inline]
    pub(crate) fn is_text(&self) -> bool {
        match self.ahead.first_chunk() {
            Some(block) if self.bytes.len() <= BLOCK => {
                let used = u128::MAX.checked_shr(8 * (BLOCK - self.bytes.len()) as u32).unwrap_or_default();
                u128::from_le_bytes(*block) & used & TOP_BITS == 0 || str::from_utf8(self.bytes).is_ok()
            }
            _ => str::from_utf8(self.bytes).is_ok(),
        }
    }
}

/// The numbers that an enumeration of `bytes` bytes has room for.
pub(crate) fn enum_range(bytes: u8, signed: bool) -> (i128, i128) {
    let bits = u32::from(bytes) * 8;
    match signed {
        true => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
        false => (0, (1 << bits) - 1),
    }
}

/// Why a value was not taken.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Refusal {
    /// The value is none for the field.
    Problem(ValueProblem),
    /// Only a [`RecordBuilder`] can take it.
    Slow,
}

impl From<ValueProblem> for Refusal {
    fn from(problem: ValueProblem) -> Self {
        Self::Problem(problem)
    }
}

impl From<ValueError> for Refusal {
    fn from(error: ValueError) -> Self {
        Self::Problem(error.problem)
    }
}

/// What is wrong with a value that was refused, for messages.
pub(crate) fn refused(problem: ValueProblem, expected: String) -> EncodingProblem {
    match problem {
        ValueProblem::NotSet => EncodingProblem::Missing,
        ValueProblem::NotNullable => EncodingProblem::Value { found: "null".to_owned(), expected },
        problem => {
            let text = problem.to_string();
            let text = text.strip_prefix("found ").unwrap_or(&text);
            let (found, expected) = text.split_once(", expected ").unwrap_or((text, &expected));
            EncodingProblem::Value { found: found.to_owned(), expected: expected.to_owned() }
        }
    }
}

/// What takes a record's values.
pub(crate) trait FieldWriter {
    /// Stores a value of a fixed size, given as it lies in a record.
    fn put<const N: usize>(&mut self, place: Place, value: [u8; N]) -> Result<(), Refusal>;

    /// Stores the value of a `char[N]`, `string` or `bytes` field.
    fn put_run(&mut self, place: Place, run: Run<'_>) -> Result<(), Refusal>;

    /// Makes a field null.
    fn put_null(&mut self, place: Place) -> Result<(), Refusal>;

    /// Begins the list of this field; in a list of lists, the next element.
    fn begin_list(&mut self, field: usize) -> Result<(), Refusal>;

    /// Begins the next record of the open list.
    fn begin_element(&mut self) -> Result<(), Refusal>;

    /// Ends the record that was begun.
    fn end_element(&mut self) -> Result<(), Refusal>;

    /// Ends the open list.
    fn end_list(&mut self) -> Result<(), Refusal>;

    /// Makes a nested record null, or be there.
    fn put_group(&mut self, group: &Group, is_null: bool) -> Result<(), Refusal>;

    /// Makes all variants of a union null, of which one is to come.
    fn put_variants_null(&mut self, union: &Group) -> Result<(), Refusal>;

    /// Stores a decimal, whose scale need not be the field's.
    fn put_decimal(&mut self, place: Place, unscaled: i128, scale: u8) -> Result<(), Refusal>;

    /// Stores an integer of as many bytes as the field has: the low ones of `value`.
    #[inline]
    fn put_integer(&mut self, place: Place, value: u64) -> Result<(), Refusal> {
        match place.ty.size() {
            1 => self.put(place, (value as u8).to_le_bytes()),
            2 => self.put(place, (value as u16).to_le_bytes()),
            4 => self.put(place, (value as u32).to_le_bytes()),
            _ => self.put(place, value.to_le_bytes()),
        }
    }

    /// Makes a field zero, or empty.
    fn put_zero(&mut self, place: Place) -> Result<(), Refusal> {
        match place.ty {
            FieldType::Char(_) | FieldType::String | FieldType::Bytes => {
                self.put_run(place, Run { bytes: &[], ahead: &[] })
            }
            FieldType::Decimal { bytes: 16, .. } => self.put(place, [0; 16]),
            FieldType::List => {
                self.begin_list(place.index())?;
                self.end_list()
            }
            _ => self.put_integer(place, 0),
        }
    }
}

/// Writes records of one format in the natural layout.
#[derive(Debug)]
pub(crate) struct DirectBuilder {
    /// Longer than any record needed so far; what a record does not fill is of earlier ones.
    bytes: Vec<u8>,
    /// Where the variable part ends.
    end: usize,
    /// What a record starts from.
    blank: Box<[u8]>,
    required: Box<[u64]>,
    missing: Box<[u64]>,
}

impl DirectBuilder {
    /// A builder of records that have a value for each required one of these places. What has none is null, or zero
    /// where it is one of `zeros`.
    pub(crate) fn new(format: &Format, places: impl Iterator<Item = Place>, zeros: &[Place]) -> Self {
        let mut required = vec![0; format.fields().len().div_ceil(64)].into_boxed_slice();
        for place in places.filter(|place| place.required) {
            required[place.index() / 64] |= 1 << (place.index() % 64);
        }
        let mut blank = format.layout().blank.clone();
        for place in zeros {
            if let Some(byte) = blank.get_mut(place.null_byte as usize) {
                *byte &= !place.null_mask;
            }
        }
        Self { bytes: Vec::new(), end: 0, blank, missing: required.clone(), required }
    }

    /// Starts a record whose values of any size have at most `variable_bytes` bytes together.
    ///
    /// # Errors
    /// The record could be too long.
    #[inline]
    pub(crate) fn start(&mut self, variable_bytes: usize) -> Result<(), Refusal> {
        let room = self.blank.len() + variable_bytes;
        if room > crate::MAX_RECORD_BYTES - RECORD_ALIGN {
            return Err(Refusal::Slow);
        }
        let needed = room + 2 * BLOCK;
        if self.bytes.len() < needed {
            self.bytes.resize(needed, 0);
        }
        if let Some(fixed) = self.bytes.get_mut(..self.blank.len()) {
            fixed.copy_from_slice(&self.blank);
        }
        self.end = self.blank.len();
        self.missing.copy_from_slice(&self.required);
        Ok(())
    }

    /// The finished record.
    ///
    /// # Errors
    /// A required field has no value: its index.
    #[inline]
    pub(crate) fn finish(&mut self) -> Result<(), usize> {
        if let Some(word) = self.missing.iter().position(|word| *word != 0) {
            return Err(word * 64 + self.missing[word].trailing_zeros() as usize);
        }
        let len = self.end.next_multiple_of(RECORD_ALIGN);
        // At least a block is free behind the values: see `start`.
        if let Some(padding) = self.bytes.get_mut(self.end..).and_then(|rest| rest.first_chunk_mut()) {
            *padding = [0; RECORD_ALIGN];
        }
        if let Some(word) = self.bytes.first_chunk_mut() {
            // At most MAX_RECORD_BYTES: see `start`.
            *word = (len as u32).to_le_bytes();
        }
        self.end = len;
        Ok(())
    }

    /// The record that was finished last.
    #[inline]
    pub(crate) fn record(&self) -> &[u8] {
        self.bytes.get(..self.end).unwrap_or_default()
    }

    #[inline]
    fn mark(&mut self, place: Place) {
        if let Some(byte) = self.bytes.get_mut(place.null_byte as usize) {
            *byte &= !place.null_mask;
        }
        if place.required
            && let Some(word) = self.missing.get_mut(place.index() / 64)
        {
            *word &= !(1 << (place.index() % 64));
        }
    }

    #[inline]
    fn store<const N: usize>(&mut self, at: u32, value: [u8; N]) {
        let at = at as usize;
        if let Some(slot) = self.bytes.get_mut(at..at + N) {
            slot.copy_from_slice(&value);
        }
    }

    #[inline]
    fn store_char(&mut self, place: Place, room: u16, text: &[u8]) -> Result<(), Refusal> {
        check_char(text, room)?;
        let at = place.offset as usize;
        if let Some((head, padding)) =
            self.bytes.get_mut(at..at + usize::from(room)).and_then(|slot| slot.split_at_mut_checked(text.len()))
        {
            head.copy_from_slice(text);
            padding.fill(0);
        }
        self.mark(place);
        Ok(())
    }
}

/// Refuses a text that a `char[N]` cannot hold.
fn check_char(text: &[u8], room: u16) -> Result<(), ValueProblem> {
    if text.len() > usize::from(room) {
        return Err(ValueProblem::TextTooLong { found: text.len(), room });
    }
    if text.last() == Some(&0) {
        return Err(ValueProblem::EndsInNul);
    }
    Ok(())
}

impl FieldWriter for DirectBuilder {
    #[inline]
    fn put<const N: usize>(&mut self, place: Place, value: [u8; N]) -> Result<(), Refusal> {
        self.store(place.offset, value);
        self.mark(place);
        Ok(())
    }

    #[inline]
    fn put_run(&mut self, place: Place, run: Run<'_>) -> Result<(), Refusal> {
        if let FieldType::Char(room) = place.ty {
            return self.store_char(place, room, run.bytes);
        }
        let (start, len) = (self.end, run.bytes.len());
        let at = place.offset as usize;
        if self.bytes.get(at..at + 8).is_some_and(|slot| slot != [0; 8]) {
            return Err(Refusal::Slow);
        }
        match (run.ahead.first_chunk::<BLOCK>(), self.bytes.get_mut(start..).and_then(|rest| rest.first_chunk_mut())) {
            (Some(from), Some(to)) if len <= BLOCK => *to = *from,
            _ => match self.bytes.get_mut(start..start + len) {
                Some(to) => to.copy_from_slice(run.bytes),
                None => return Err(Refusal::Slow),
            },
        }
        self.end = start + len;
        if self.end + 2 * BLOCK > self.bytes.len() {
            // More than was promised: the padding needs its room.
            return Err(Refusal::Slow);
        }
        self.store(place.offset, (start as u64 | (len as u64) << 32).to_le_bytes());
        self.mark(place);
        Ok(())
    }

    #[inline]
    fn put_null(&mut self, place: Place) -> Result<(), Refusal> {
        if place.null_mask == 0 {
            return Err(ValueProblem::NotNullable.into());
        }
        // It is null when a record begins; what was set before needs the other builder.
        match self.bytes.get(place.null_byte as usize) {
            Some(byte) if byte & place.null_mask != 0 => Ok(()),
            _ => Err(Refusal::Slow),
        }
    }

    fn begin_list(&mut self, _: usize) -> Result<(), Refusal> {
        Err(Refusal::Slow)
    }

    fn begin_element(&mut self) -> Result<(), Refusal> {
        Err(Refusal::Slow)
    }

    fn end_element(&mut self) -> Result<(), Refusal> {
        Err(Refusal::Slow)
    }

    fn end_list(&mut self) -> Result<(), Refusal> {
        Err(Refusal::Slow)
    }

    fn put_group(&mut self, _: &Group, _: bool) -> Result<(), Refusal> {
        Err(Refusal::Slow)
    }

    fn put_variants_null(&mut self, _: &Group) -> Result<(), Refusal> {
        Err(Refusal::Slow)
    }

    fn put_decimal(&mut self, _: Place, _: i128, _: u8) -> Result<(), Refusal> {
        Err(Refusal::Slow)
    }
}

impl FieldWriter for RecordBuilder {
    fn put<const N: usize>(&mut self, place: Place, value: [u8; N]) -> Result<(), Refusal> {
        let mut wide = [0; 16];
        wide.iter_mut().zip(value).for_each(|(to, from)| *to = from);
        let whole = i128::from_le_bytes(wide);
        let word = whole as u64;
        let value = match place.ty {
            FieldType::Bool => Value::Bool(word != 0),
            FieldType::I8 => Value::Int((word as i8).into()),
            FieldType::I16 => Value::Int((word as i16).into()),
            FieldType::I32 => Value::Int((word as i32).into()),
            FieldType::I64 => Value::Int(word as i64),
            FieldType::F32 => Value::Float(f32::from_bits(word as u32).into()),
            FieldType::F64 => Value::Float(f64::from_bits(word)),
            FieldType::Timestamp => Value::Timestamp(word as i64),
            FieldType::Decimal { bytes, scale } => {
                let unscaled = match bytes {
                    4 => i128::from(word as i32),
                    8 => i128::from(word as i64),
                    _ => whole,
                };
                Value::Decimal { unscaled, scale }
            }
            FieldType::Enum { bytes, signed } => {
                let number = match (bytes, signed) {
                    (1, true) => i64::from(word as i8),
                    (2, true) => i64::from(word as i16),
                    (4, true) => i64::from(word as i32),
                    _ => word as i64,
                };
                Value::Enum { number, symbol: None }
            }
            _ => Value::Uint(word),
        };
        put_value(self, place, value)
    }

    fn put_run(&mut self, place: Place, run: Run<'_>) -> Result<(), Refusal> {
        let value = match place.ty {
            FieldType::Bytes => Value::Bytes(run.bytes),
            _ => Value::Text(run.bytes),
        };
        put_value(self, place, value)
    }

    fn put_null(&mut self, place: Place) -> Result<(), Refusal> {
        put_value(self, place, Value::Null)
    }

    fn begin_list(&mut self, field: usize) -> Result<(), Refusal> {
        Ok(self.begin_list(field)?)
    }

    fn begin_element(&mut self) -> Result<(), Refusal> {
        Ok(self.begin_element()?)
    }

    fn end_element(&mut self) -> Result<(), Refusal> {
        Ok(self.end_element()?)
    }

    fn end_list(&mut self) -> Result<(), Refusal> {
        Ok(self.end_list()?)
    }

    fn put_group(&mut self, group: &Group, is_null: bool) -> Result<(), Refusal> {
        if is_null {
            return Ok(self.set_group_null(group)?);
        }
        self.set_group_present(group);
        Ok(())
    }

    fn put_variants_null(&mut self, union: &Group) -> Result<(), Refusal> {
        for variant in &union.members {
            match variant {
                Member::Leaf(field) => self.set_null(*field)?,
                Member::Group(group) => self.set_group_null(group)?,
            }
        }
        Ok(())
    }

    fn put_decimal(&mut self, place: Place, unscaled: i128, scale: u8) -> Result<(), Refusal> {
        put_value(self, place, Value::Decimal { unscaled, scale })
    }
}

#[inline]
fn put_value(builder: &mut RecordBuilder, place: Place, value: Value<'_>) -> Result<(), Refusal> {
    match place.is_element {
        true => Ok(builder.push(value)?),
        false => Ok(builder.set(place.index(), value)?),
    }
}

/// The two builders that a decoder has, and which of them has the record.
#[derive(Debug)]
pub(crate) struct Builders {
    /// `None` for formats with more than single values in them.
    direct: Option<DirectBuilder>,
    slow: RecordBuilder,
    is_slow: bool,
}

impl Builders {
    /// For these places of a format; see [`DirectBuilder::new`].
    pub(crate) fn new(format: &Format, places: impl Iterator<Item = Place>, zeros: &[Place]) -> Self {
        let is_plain =
            !format.is_foreign() && format.is_flat() && format.fields().iter().all(|field| field.ty != FieldType::List);
        let direct = is_plain.then(|| DirectBuilder::new(format, places, zeros));
        Self { direct, slow: RecordBuilder::new(format), is_slow: false }
    }

    /// Where a record goes that is made from at most `variable_bytes` bytes; `None` if that is the slow builder.
    #[inline]
    pub(crate) fn start(&mut self, variable_bytes: usize) -> Option<&mut DirectBuilder> {
        let direct = self.direct.as_mut()?;
        self.is_slow = false;
        direct.start(variable_bytes).ok()?;
        Some(direct)
    }

    /// Where all other records go.
    pub(crate) fn start_slow(&mut self) -> &mut RecordBuilder {
        self.is_slow = true;
        self.slow.clear();
        &mut self.slow
    }

    /// The finished record.
    ///
    /// # Errors
    /// A field that is not nullable has no value, or what else the slow builder refuses.
    #[inline]
    pub(crate) fn finish(&mut self) -> Result<&[u8], Unfinished> {
        match &mut self.direct {
            Some(direct) if !self.is_slow => match direct.finish() {
                Ok(()) => Ok(direct.record()),
                Err(field) => Err(Unfinished::Missing(field)),
            },
            _ => self.slow.finish().map_err(Unfinished::Refused),
        }
    }
}

/// Why a record could not be finished.
#[derive(Debug)]
pub(crate) enum Unfinished {
    /// The field of this index has no value.
    Missing(usize),
    Refused(ValueError),
}

impl Unfinished {
    #[cold]
    pub(crate) fn explain(self, format: &Format) -> EncodingError {
        match self {
            Self::Refused(error) => error.into(),
            Self::Missing(field) => {
                let name = format.fields().get(field).map(|field| field.name.clone()).unwrap_or_default();
                EncodingError::new(EncodingProblem::Missing).in_field(name)
            }
        }
    }
}
