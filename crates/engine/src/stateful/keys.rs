//! Keys: some columns of a row as bytes in a canonical form, and the table of those that are known.

use crossdock_format::{Field, FieldType, Format, Record, Value};
use crossdock_mailbox::MappedVec;

use super::arena::{Arena, Block};
use super::hash::{Secret, is_same};
use super::word::WordColumn;
use crate::key::of_f64;

/// No entry.
pub(super) const NONE: u32 = u32::MAX;

/// The columns of a key, and how their values become bytes: equal values the same ones, and in the order of the values as long as
/// no text stands before others.
#[derive(Clone, Debug)]
pub(super) struct KeyColumns {
    columns: Vec<KeyColumn>,
    texts: usize,
    has_plain_text: bool,
    /// The only column, where one load reads it.
    only: Option<Only>,
}

/// A key of one column that is read at once.
#[derive(Clone, Copy, Debug)]
enum Only {
    /// Of a word; a null is of no use, or there is none.
    Word(WordColumn),
    /// As [`Plain::Short`].
    Short { at: usize, shift: u32, mask: u64 },
}

#[derive(Clone, Copy, Debug)]
struct KeyColumn {
    index: usize,
    ty: FieldType,
    /// Whether a byte before the value says if it is null.
    marks_null: bool,
    /// Whether a value of an enumeration is its symbol, and not its number.
    by_symbol: bool,
    /// Its place, if one load reads it.
    word: Option<WordColumn>,
    /// The same of another type, if it is never null.
    plain: Option<Plain>,
}

/// Columns that are read without a value.
#[derive(Clone, Copy, Debug)]
enum Plain {
    I32(usize),
    /// A text of at most a word: the word of the record that it is in, and its bits there.
    Short {
        at: usize,
        shift: u32,
        mask: u64,
    },
    Char(usize, usize),
}

impl Plain {
    fn of(field: &Field, format: &Format) -> Option<Plain> {
        let at = field.offset as usize;
        match field.ty {
            _ if field.nullable || !field.is_plain() => None,
            FieldType::I32 => Some(Plain::I32(at)),
            FieldType::Char(bytes @ 1..=8) if format.fixed_bytes() >= 8 => {
                // The word that ends with it, or the first one.
                let word = (at + usize::from(bytes)).saturating_sub(8);
                let mask = u64::MAX >> (64 - 8 * u32::from(bytes));
                Some(Plain::Short { at: word, shift: 8 * (at - word) as u32, mask })
            }
            FieldType::Char(bytes) => Some(Plain::Char(at, bytes.into())),
            _ => None,
        }
    }

    /// Appends the value of a row; returns its length as a text.
    #[inline]
    fn append(self, row: &[u8], key: &mut Vec<u8>) -> usize {
        match self {
            Plain::I32(at) => key.extend_from_slice(&ordered(i32::from_le_bytes(load(row, at)).into())),
            Plain::Short { at, shift, mask } => {
                let (text, length) = short_text(row, at, shift, mask);
                let end = key.len() + length;
                key.extend_from_slice(&text.to_le_bytes());
                key.truncate(end);
                return length;
            }
            Plain::Char(at, bytes) => {
                let padded = row.get(at..at + bytes).unwrap_or_default();
                let length = padded.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
                key.extend_from_slice(padded.get(..length).unwrap_or_default());
                return length;
            }
        }
        0
    }
}

/// A text of at most a word, as [`Plain::Short`] says where it is, and its length.
#[inline]
fn short_text(row: &[u8], at: usize, shift: u32, mask: u64) -> (u64, usize) {
    let text = u64::from_le_bytes(load(row, at)) >> shift & mask;
    (text, 8 - text.leading_zeros() as usize / 8)
}

impl KeyColumns {
    /// The key of these columns; `is_shared` for keys of rows of several formats, whose enumerations may have other numbers, and
    /// whose columns may be null in one of them only. A shared key with a null is of no use: it equals none, not even itself.
    ///
    /// # Errors
    /// In words: one is a list, or is not there.
    pub(super) fn of(format: &Format, columns: &[usize], is_shared: bool) -> Result<KeyColumns, String> {
        let column = |&index: &usize| {
            let field = format.fields().get(index).ok_or("a column of the key is not there")?;
            crate::identity::compared(format, index)?;
            let (ty, marks_null) = (field.ty, field.nullable && !is_shared);
            let (word, plain) = (WordColumn::of(format, index), Plain::of(field, format));
            Ok(KeyColumn { index, ty, marks_null, by_symbol: is_shared, word, plain })
        };
        let columns: Vec<KeyColumn> = columns.iter().map(column).collect::<Result<_, String>>()?;
        let texts = columns.iter().filter(|column| column.is_text()).count();
        let is_plain = |column: &KeyColumn| matches!(column.plain, Some(Plain::Short { .. } | Plain::Char(..)));
        let has_plain_text = columns.iter().any(is_plain);
        let only = match columns[..] {
            [KeyColumn { word: Some(word), marks_null: false, .. }] => Some(Only::Word(word)),
            [KeyColumn { plain: Some(Plain::Short { at, shift, mask }), .. }] => Some(Only::Short { at, shift, mask }),
            _ => None,
        };
        Ok(KeyColumns { columns, texts, has_plain_text, only })
    }

    /// Writes the key of a row; returns whether one of its values is null.
    #[inline]
    pub(super) fn read(&self, row: &Record<'_>, key: &mut Vec<u8>) -> bool {
        key.clear();
        debug_assert_eq!(row.base(), 0, "a row is no element of a list");
        match self.only {
            Some(Only::Word(word)) => {
                let value = word.get(row.bytes());
                value.into_iter().for_each(|value| key.extend_from_slice(&ordered(value)));
                return value.is_none();
            }
            Some(Only::Short { at, shift, mask }) => {
                let (text, length) = short_text(row.bytes(), at, shift, mask);
                // With its length behind it.
                let bytes = u128::from(text) | (length as u128) << (8 * length);
                key.extend_from_slice(&bytes.to_le_bytes());
                key.truncate(length + size_of::<u32>());
                return false;
            }
            None => {}
        }
        self.read_columns(row, key)
    }

    /// The same for any columns, behind what is in the key.
    fn read_columns(&self, row: &Record<'_>, key: &mut Vec<u8>) -> bool {
        let (mut has_null, mut length) = (false, 0);
        for column in &self.columns {
            match (column.word, column.plain) {
                (Some(word), _) => has_null |= column.append_word(word.get(row.bytes()), key),
                (_, Some(plain)) => length += plain.append(row.bytes(), key),
                _ => has_null |= column.append(&row.get(column.index), key),
            }
        }
        match self.texts {
            0 => {}
            // The length of the only text, where it is known already.
            1 if self.has_plain_text => key.extend_from_slice(&(length as u32).to_le_bytes()),
            _ => self.append_lengths(row, key),
        }
        has_null
    }

    /// Behind the values, so that the bytes of a text come first and several texts cannot be taken for others.
    fn append_lengths(&self, row: &Record<'_>, key: &mut Vec<u8>) {
        for column in self.columns.iter().filter(|column| column.is_text()) {
            let len = match row.get(column.index) {
                Value::Text(text) | Value::Bytes(text) => text.len(),
                Value::Enum { symbol: Some(symbol), .. } => symbol.len(),
                _ => 0,
            };
            key.extend_from_slice(&(len as u32).to_le_bytes());
        }
    }

    /// Writes the key of a single value, which is the only column.
    pub(super) fn read_value(&self, value: &Value<'_>, key: &mut Vec<u8>) {
        for column in &self.columns {
            column.append(value, key);
            if let (true, Value::Text(text) | Value::Bytes(text)) = (column.is_text(), value) {
                key.extend_from_slice(&(text.len() as u32).to_le_bytes());
            }
        }
    }

    /// Appends a value that is not null, which is the only column, so that the bytes stand in the order of values.
    pub(super) fn append_single(&self, value: &Value<'_>, key: &mut Vec<u8>) {
        for column in &self.columns {
            column.append(value, key);
        }
    }

    /// The value of these bytes.
    pub(super) fn single<'k>(&self, bytes: &'k [u8]) -> Value<'k> {
        let mut rest = bytes;
        self.columns.first().map_or(Value::Null, |column| column.value(&mut rest, bytes.len()))
    }

    /// Hands over the values of a key, in order of the columns.
    pub(super) fn values<'k>(&self, key: &'k [u8], mut each: impl FnMut(usize, Value<'k>)) {
        let (mut rest, mut lengths) = key.split_at(key.len().saturating_sub(4 * self.texts));
        for (number, column) in self.columns.iter().enumerate() {
            let length = if column.is_text() { u32::from_le_bytes(take(&mut lengths)) as usize } else { 0 };
            if column.marks_null && take::<1>(&mut rest) == [0] {
                each(number, Value::Null);
                continue;
            }
            each(number, column.value(&mut rest, length));
        }
    }
}

impl KeyColumn {
    fn is_text(&self) -> bool {
        match self.ty {
            FieldType::Enum { .. } => self.by_symbol,
            ty => ty.is_text() || ty == FieldType::Bytes,
        }
    }

    /// Returns whether the value is null.
    #[inline]
    fn append(&self, value: &Value<'_>, key: &mut Vec<u8>) -> bool {
        let is_null = matches!(value, Value::Null | Value::List(_) | Value::Record(_))
            || (self.by_symbol && matches!(value, Value::Enum { symbol: None, .. }));
        if self.marks_null {
            key.push(u8::from(!is_null));
        }
        match value {
            Value::Int(value) | Value::Timestamp(value) => key.extend_from_slice(&ordered(*value)),
            Value::Uint(value) => key.extend_from_slice(&value.to_be_bytes()),
            Value::Bool(value) => key.push(u8::from(*value)),
            Value::Float(value) => key.extend_from_slice(&ordered(of_f64(*value))),
            Value::Decimal { unscaled, .. } => key.extend_from_slice(&(unscaled ^ i128::MIN).to_be_bytes()),
            Value::Text(text) | Value::Bytes(text) => key.extend_from_slice(text),
            Value::Enum { symbol, .. } if self.by_symbol => {
                key.extend_from_slice(symbol.unwrap_or_default().as_bytes());
            }
            Value::Enum { number, .. } => key.extend_from_slice(&ordered(*number)),
            Value::Null | Value::List(_) | Value::Record(_) => {}
        }
        is_null
    }

    /// The same for a number or a time.
    #[inline]
    fn append_word(&self, value: Option<i64>, key: &mut Vec<u8>) -> bool {
        if self.marks_null {
            key.push(u8::from(value.is_some()));
        }
        value.into_iter().for_each(|value| key.extend_from_slice(&ordered(value)));
        value.is_none()
    }

    fn value<'k>(&self, rest: &mut &'k [u8], length: usize) -> Value<'k> {
        match self.ty {
            FieldType::Bool => Value::Bool(take::<1>(rest) != [0]),
            FieldType::U8 | FieldType::U16 | FieldType::U32 | FieldType::U64 => {
                Value::Uint(u64::from_be_bytes(take(rest)))
            }
            FieldType::F32 | FieldType::F64 => Value::Float(float_of(number(take(rest)))),
            FieldType::Timestamp => Value::Timestamp(number(take(rest))),
            FieldType::Decimal { scale, .. } => {
                Value::Decimal { unscaled: i128::from_be_bytes(take(rest)) ^ i128::MIN, scale }
            }
            FieldType::Enum { .. } if !self.by_symbol => Value::Int(number(take(rest))),
            FieldType::Char(_) | FieldType::String | FieldType::Bytes | FieldType::Enum { .. } => {
                let (text, behind) = rest.split_at_checked(length).unwrap_or_default();
                *rest = behind;
                if self.ty == FieldType::Bytes { Value::Bytes(text) } else { Value::Text(text) }
            }
            _ => Value::Int(number(take(rest))),
        }
    }
}

/// A number whose bytes stand in the order of numbers.
#[inline]
fn ordered(value: i64) -> [u8; 8] {
    ((value as u64) ^ (1 << 63)).to_be_bytes()
}

fn number(bytes: [u8; 8]) -> i64 {
    (u64::from_be_bytes(bytes) ^ (1 << 63)) as i64
}

/// The float of a key that [`of_f64`] made.
fn float_of(key: i64) -> f64 {
    if key == i64::MAX { f64::NAN } else { f64::from_bits((key ^ (((key >> 63) as u64) >> 1) as i64) as u64) }
}

#[inline]
fn load<const N: usize>(row: &[u8], at: usize) -> [u8; N] {
    row.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

fn take<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
    let (first, behind) = rest.split_first_chunk().unwrap_or((&[0; N], &[]));
    *rest = behind;
    *first
}

/// Places of the index where a key is looked for that will be entered soon: nearly all keys are at one of them.
const GLANCES: usize = 8;

/// Keys up to this length stand in their entries.
const INLINE: usize = 16;

/// The keys that are known, by numbers that are used again once a key is gone. Their owner keeps what belongs to each under its
/// number.
#[derive(Debug)]
pub(super) struct Keys {
    secret: Secret,
    /// At the place that the key's hash says or behind it: the hash's lower half, and below it one more than the key's number; 0
    /// where there is none. At most half full.
    index: MappedVec<u64>,
    entries: MappedVec<Entry>,
    there: usize,
    /// The first of the numbers that are free; `newer` leads to the next one.
    vacant: u32,
    newest: u32,
    oldest: u32,
}

/// None lies in two lines of the cache.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct Entry {
    /// The key, or the block that it is in.
    key: [u8; INLINE],
    len: u32,
    hash: u32,
    /// The entry that was asked for next before this one, and next after it; of those that are to be linked.
    older: u32,
    newer: u32,
}

/// The bytes that an entry takes, with its places in the index; its key, if it is long, takes a block besides.
pub(super) const ENTRY_BYTES: usize = size_of::<Entry>() + 4 * size_of::<u64>();

impl Default for Keys {
    fn default() -> Keys {
        Keys {
            secret: Secret::new(),
            index: MappedVec::zeros(64),
            entries: MappedVec::default(),
            there: 0,
            vacant: NONE,
            newest: NONE,
            oldest: NONE,
        }
    }
}

impl Keys {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.there
    }

    /// All numbers are less than this one.
    pub(super) fn end(&self) -> u32 {
        self.entries.len() as u32
    }

    /// Whether there is a key of this number; one has a byte at least.
    #[inline]
    pub(super) fn is_there(&self, number: u32) -> bool {
        self.entries.get(number as usize).is_some_and(|entry| entry.len > 0)
    }

    /// The number of a key, and whether it is a new one.
    #[inline]
    pub(super) fn enter(&mut self, key: &[u8], arena: &mut Arena) -> (u32, bool) {
        let hash = self.hash(key);
        match self.place_of(key, hash, arena) {
            (_, Some(number)) => (number, false),
            (place, None) => (self.insert(place, key, hash, arena), true),
        }
    }

    /// The same, where the key's hash is known; nothing if it is a new one for which the arena has no room.
    #[inline]
    pub(super) fn enter_hashed(&mut self, key: &[u8], hash: u32, arena: &mut Arena) -> Option<(u32, bool)> {
        match self.place_of(key, hash, arena) {
            (_, Some(number)) => Some((number, false)),
            _ if key.len() > INLINE && !arena.has_room(key.len()) => None,
            (place, None) => Some((self.insert(place, key, hash, arena), true)),
        }
    }

    /// Asks for the place of a key with this hash in the index, where it will be looked for soon.
    #[inline]
    pub(super) fn prefetch(&self, hash: u32) {
        self.index.prefetch(hash as usize & (self.index.len() - 1));
    }

    /// The same for the entry of a key of this number.
    #[inline]
    pub(super) fn prefetch_entry(&self, number: u32) {
        self.entries.prefetch(number as usize);
    }

    /// The number of the key with this hash, if there is one at its place or a few places behind it.
    #[inline]
    pub(super) fn glance(&self, hash: u32) -> Option<u32> {
        let mask = self.index.len() - 1;
        for behind in 0..GLANCES {
            let found = *self.index.get((hash as usize).wrapping_add(behind) & mask)?;
            if found == 0 {
                return None;
            }
            if (found >> 32) as u32 == hash {
                return Some(found as u32 - 1);
            }
        }
        None
    }

    /// Two numbers that stand beside a key in the place of its neighbours, for an owner that keeps no order of use here.
    #[inline]
    pub(super) fn beside(&self, number: u32) -> [u32; 2] {
        self.entries.get(number as usize).map_or([NONE; 2], |entry| [entry.older, entry.newer])
    }

    /// Sets them.
    #[inline]
    pub(super) fn set_beside(&mut self, number: u32, beside: [u32; 2]) {
        if let Some(entry) = self.entries.get_mut(number as usize) {
            [entry.older, entry.newer] = beside;
        }
    }

    /// Sets the first of them.
    #[inline]
    pub(super) fn set_first_beside(&mut self, number: u32, first: u32) {
        if let Some(entry) = self.entries.get_mut(number as usize) {
            entry.older = first;
        }
    }

    /// The number of a key, if it is known.
    #[inline]
    pub(super) fn find(&self, key: &[u8], arena: &Arena) -> Option<u32> {
        self.place_of(key, self.hash(key), arena).1
    }

    #[inline]
    pub(super) fn hash(&self, key: &[u8]) -> u32 {
        self.secret.hash(key)
    }

    #[inline]
    fn place_of(&self, key: &[u8], hash: u32, arena: &Arena) -> (usize, Option<u32>) {
        let mask = self.index.len() - 1;
        let mut place = hash as usize & mask;
        while let Some(&found) = self.index.get(place)
            && found != 0
        {
            if (found >> 32) as u32 == hash {
                let number = found as u32 - 1;
                if is_same(self.key(number, arena), key) {
                    return (place, Some(number));
                }
            }
            place = (place + 1) & mask;
        }
        (place, None)
    }

    fn insert(&mut self, place: usize, key: &[u8], hash: u32, arena: &mut Arena) -> u32 {
        let mut entry = Entry { key: [0; INLINE], len: key.len() as u32, hash, older: NONE, newer: NONE };
        match entry.key.get_mut(..key.len()) {
            Some(inline) => inline.copy_from_slice(key),
            None => super::cell::store(&mut entry.key, 0, arena.put(key).to_bytes()),
        }
        let number = match self.entries.get_mut(self.vacant as usize) {
            Some(vacant) => {
                let next = vacant.newer;
                *vacant = entry;
                std::mem::replace(&mut self.vacant, next)
            }
            None => {
                self.entries.push(entry);
                self.entries.len() as u32 - 1
            }
        };
        if let Some(place) = self.index.get_mut(place) {
            *place = u64::from(hash) << 32 | u64::from(number + 1);
        }
        self.there += 1;
        if self.there * 2 > self.index.len() {
            self.widen();
        }
        number
    }

    fn widen(&mut self) {
        let mut index = MappedVec::zeros(self.index.len() * 2);
        let mask = index.len() - 1;
        for &found in self.index.iter().filter(|found| **found != 0) {
            let mut place = (found >> 32) as usize & mask;
            while index[place] != 0 {
                place = (place + 1) & mask;
            }
            index[place] = found;
        }
        self.index = index;
    }

    /// A key's bytes.
    #[inline]
    pub(super) fn key<'k>(&'k self, number: u32, arena: &'k Arena) -> &'k [u8] {
        let Some(entry) = self.entries.get(number as usize) else { return &[] };
        match entry.key.get(..entry.len as usize) {
            Some(inline) => inline,
            None => arena.get(Block::from_bytes(super::cell::load(&entry.key, 0))),
        }
    }

    /// Forgets a key that is there; it must not be linked.
    pub(super) fn remove(&mut self, number: u32, arena: &mut Arena) {
        let Some(entry) = self.entries.get_mut(number as usize) else { return };
        let hash = entry.hash;
        if entry.len as usize > INLINE {
            arena.free(Block::from_bytes(super::cell::load(&entry.key, 0)));
        }
        (entry.len, entry.newer) = (0, std::mem::replace(&mut self.vacant, number));
        self.there -= 1;
        let mask = self.index.len() - 1;
        let mut gap = hash as usize & mask;
        while self.index[gap] as u32 != number + 1 {
            debug_assert!(self.index[gap] != 0, "the key is there");
            if self.index[gap] == 0 {
                return;
            }
            gap = (gap + 1) & mask;
        }
        // Those behind it move up, so that none is separated from its first place.
        let mut place = (gap + 1) & mask;
        while self.index[place] != 0 {
            let first = (self.index[place] >> 32) as usize & mask;
            if place.wrapping_sub(first) & mask >= place.wrapping_sub(gap) & mask {
                self.index[gap] = self.index[place];
                gap = place;
            }
            place = (place + 1) & mask;
        }
        self.index[gap] = 0;
    }

    /// The key that was not [used](Keys::used) for the longest.
    pub(super) fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    /// Notes that a key is used now; `is_new` for one that was not noted yet.
    pub(super) fn used(&mut self, number: u32, is_new: bool) {
        if number == self.newest {
            return;
        }
        if !is_new {
            self.unlink(number);
        }
        let before = std::mem::replace(&mut self.newest, number);
        match self.entries.get_mut(before as usize) {
            Some(entry) => entry.newer = number,
            None => self.oldest = number,
        }
        if let Some(entry) = self.entries.get_mut(number as usize) {
            (entry.older, entry.newer) = (before, NONE);
        }
    }

    /// The keys that are in the order of use, from the one that was not used for the longest on.
    pub(super) fn in_order_of_use(&self) -> impl Iterator<Item = u32> {
        std::iter::successors(self.oldest(), |number| {
            self.entries.get(*number as usize).map(|entry| entry.newer).filter(|newer| *newer != NONE)
        })
    }

    /// All keys, in no order.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.index.iter().filter(|found| **found != 0).map(|found| *found as u32 - 1)
    }

    /// Takes a key out of the order of use.
    pub(super) fn unlink(&mut self, number: u32) {
        let Some(&Entry { older, newer, .. }) = self.entries.get(number as usize) else { return };
        match self.entries.get_mut(older as usize) {
            Some(entry) => entry.newer = newer,
            None => self.oldest = newer,
        }
        match self.entries.get_mut(newer as usize) {
            Some(entry) => entry.older = older,
            None => self.newest = older,
        }
    }
}
