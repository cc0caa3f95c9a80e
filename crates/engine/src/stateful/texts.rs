//! Texts that are joined in order of time, and values that make a list.

use crossdock_format::{Field, FieldSpec, Format, Record, RecordBuilder, TypeSpec, Value};
use crossdock_query::{EvalError, MAX_MADE_TEXT_BYTES};

use super::arena::{Arena, Block};
use super::cell::{Cell, compare_exactly, load, store};
use super::moment::refused;
use crate::saved::{SavedBytes, put_bytes};

/// The texts of a group one after the other, each behind its order and its length.
pub(super) struct Texts;

/// A result, and the places of its texts with their orders: memory that is used again.
#[derive(Debug, Default)]
pub(super) struct Joined {
    made: Vec<u8>,
    places: Vec<(i64, u32, u32)>,
    /// Records of a list, one for each type of lists.
    lists: Vec<RecordBuilder>,
    /// The bytes of the longest of those, and while it was made.
    list_bytes: usize,
}

impl Joined {
    /// The bytes of its memory.
    pub(super) fn taken(&self) -> usize {
        self.made.capacity()
            + self.places.capacity() * size_of::<(i64, u32, u32)>()
            + self.lists.len() * self.list_bytes
    }
}

/// The bytes in front of a text.
const HEAD_BYTES: usize = 12;

impl Texts {
    /// The bytes of its cell: the block, the bytes in it, the block of the separator.
    pub(super) const SIZE: usize = 24;

    /// Adds a text; `separator` is that of all, or null. Returns whether the result is then not too long; `texts` is how many there were.
    #[must_use]
    pub(super) fn add(
        group: &mut [u8],
        at: usize,
        arena: &mut Arena,
        (order, texts): (i64, u64),
        text: &Value<'_>,
        separator: &Value<'_>,
    ) -> bool {
        if let Value::Text(separator) = separator {
            let block = Block::from_bytes(load(group, at + 16));
            if arena.get(block) != *separator {
                store(group, at + 16, arena.replace(block, separator).to_bytes());
            }
        }
        let (Value::Text(text) | Value::Bytes(text)) = text else { return true };
        let mut head = [0; HEAD_BYTES];
        store(&mut head, 0, order.to_le_bytes());
        store(&mut head, 8, (text.len() as u32).to_le_bytes());
        let used = u64::from_le_bytes(load(group, at + 8)) as usize;
        let with = used + HEAD_BYTES + text.len();
        let separators = Block::from_bytes(load(group, at + 16)).len() * texts as usize;
        let heads = (texts as usize + 1) * HEAD_BYTES;
        // Texts of few bytes are bounded by their heads.
        if with - heads + separators > MAX_MADE_TEXT_BYTES || heads > MAX_MADE_TEXT_BYTES {
            return false;
        }
        let mut block = Block::from_bytes(load(group, at));
        if with > block.len() {
            block = arena.grow(block, with.max(block.len() * 2));
            store(group, at, block.to_bytes());
        }
        if let Some(place) = arena.get_mut(block).and_then(|bytes| bytes.get_mut(used..with)) {
            place[..HEAD_BYTES].copy_from_slice(&head);
            place[HEAD_BYTES..].copy_from_slice(text);
        }
        store(group, at + 8, (with as u64).to_le_bytes());
        true
    }

    /// Adds the texts of another group; returns whether the result is then not too long.
    #[must_use]
    pub(super) fn merge(
        into: &mut [u8],
        from: &[u8],
        at: usize,
        (arena, copy): (&mut Arena, &mut Vec<u8>),
        mut texts: u64,
    ) -> bool {
        // Copied first: the arena may have to move them.
        copy.clear();
        let used = u64::from_le_bytes(load(from, at + 8)) as usize;
        let separator = arena.get(Block::from_bytes(load(from, at + 16)));
        let behind = separator.len();
        copy.extend_from_slice(separator);
        copy.extend_from_slice(arena.get(Block::from_bytes(load(from, at))).get(..used).unwrap_or_default());
        let (separator, all) = copy.split_at(behind);
        let separator = if behind == 0 { Value::Null } else { Value::Text(separator) };
        parts(all).all(|(order, text)| {
            texts += 1;
            Texts::add(into, at, arena, (order, texts - 1), &Value::Text(text), &separator)
        })
    }

    /// The separator of another group for one without.
    pub(super) fn adopt_separator(into: &mut [u8], from: &[u8], at: usize, arena: &mut Arena, copy: &mut Vec<u8>) {
        copy.clear();
        copy.extend_from_slice(arena.get(Block::from_bytes(load(from, at + 16))));
        if !copy.is_empty() && Block::from_bytes(load(into, at + 16)).len() == 0 {
            store(into, at + 16, arena.put(copy).to_bytes());
        }
    }

    /// The texts in order of time, those of one time in their own.
    pub(super) fn join<'m>(
        group: &[u8],
        at: usize,
        arena: &Arena,
        Joined { made, places, .. }: &'m mut Joined,
    ) -> &'m [u8] {
        let used = u64::from_le_bytes(load(group, at + 8)) as usize;
        let texts = arena.get(Block::from_bytes(load(group, at))).get(..used).unwrap_or_default();
        let separator = arena.get(Block::from_bytes(load(group, at + 16)));
        let text = |place: &(i64, u32, u32)| part(texts, place);
        find(texts, places);
        places.sort_unstable_by(|one, other| one.0.cmp(&other.0).then_with(|| text(one).cmp(text(other))));
        made.clear();
        for (number, place) in places.iter().enumerate() {
            if number > 0 {
                made.extend_from_slice(separator);
            }
            made.extend_from_slice(text(place));
        }
        made
    }

    /// The values in order of time, those of one time in their own, as the only column of a record.
    ///
    /// # Errors
    /// The record would be too long.
    pub(super) fn list<'m>(
        group: &[u8],
        at: usize,
        arena: &Arena,
        Joined { places, lists, list_bytes, .. }: &'m mut Joined,
        (cell, format): (Cell, &'m Format),
    ) -> Result<Value<'m>, EvalError> {
        let used = u64::from_le_bytes(load(group, at + 8)) as usize;
        let all = arena.get(Block::from_bytes(load(group, at))).get(..used).unwrap_or_default();
        let value = |place: &(i64, u32, u32)| cell.of_raw(part(all, place));
        find(all, places);
        places.sort_unstable_by(|one, other| {
            one.0.cmp(&other.0).then_with(|| compare_exactly(&value(one), &value(other)))
        });
        let number = lists.iter().position(|row| row.format() == format).unwrap_or_else(|| {
            lists.push(RecordBuilder::new(format));
            lists.len() - 1
        });
        let row = &mut lists[number];
        row.clear();
        row.begin_list(0).map_err(|error| refused(&error))?;
        places.iter().try_for_each(|place| row.push(value(place))).map_err(|error| refused(&error))?;
        row.end_list().map_err(|error| refused(&error))?;
        let made = row.finish().map_err(|_| EvalError::RecordTooLong)?;
        *list_bytes = (*list_bytes).max(2 * made.len());
        Ok(Record::assume_checked(format, made).get(0))
    }

    /// Writes the texts and their separator.
    pub(super) fn save(group: &[u8], at: usize, arena: &Arena, out: &mut Vec<u8>) {
        let used = u64::from_le_bytes(load(group, at + 8)) as usize;
        put_bytes(out, arena.get(Block::from_bytes(load(group, at))).get(..used).unwrap_or_default());
        put_bytes(out, arena.get(Block::from_bytes(load(group, at + 16))));
    }

    /// Takes those that were written, of this number and perhaps each of the same length, into an empty group.
    pub(super) fn restore(
        group: &mut [u8],
        at: usize,
        arena: &mut Arena,
        (texts, length): (u64, Option<usize>),
        from: &mut SavedBytes<'_>,
    ) -> Result<(), &'static str> {
        let (all, separator) = (from.bytes()?, from.bytes()?);
        let (mut found, mut bytes) = (0, 0);
        parts(all).for_each(|(_, text)| (found, bytes) = (found + 1, bytes + HEAD_BYTES + text.len()));
        if length.is_some_and(|length| parts(all).any(|(_, text)| text.len() != length)) {
            return Err("a value has another length");
        }
        if found != texts || bytes != all.len() {
            return Err("texts do not fit their number");
        }
        store(group, at, arena.put(all).to_bytes());
        store(group, at + 8, (all.len() as u64).to_le_bytes());
        store(group, at + 16, arena.put(separator).to_bytes());
        Ok(())
    }

    /// Lets go of its memory.
    pub(super) fn clear(group: &mut [u8], at: usize, arena: &mut Arena) {
        arena.free(Block::from_bytes(load(group, at)));
        arena.free(Block::from_bytes(load(group, at + 16)));
        store(group, at, [0; 24]);
    }
}

/// The format of a record whose only column is a list of a column's values.
pub(super) fn list_format(field: &Field) -> Result<Format, String> {
    let list = FieldSpec::new("list", TypeSpec::list(field.spec().ty));
    Format::natural([list]).map_err(|error| error.to_string())
}

/// Finds the places of all texts.
fn find(texts: &[u8], places: &mut Vec<(i64, u32, u32)>) {
    places.clear();
    let mut start = 0;
    for (order, text) in parts(texts) {
        places.push((order, start + HEAD_BYTES as u32, text.len() as u32));
        start += (HEAD_BYTES + text.len()) as u32;
    }
}

/// The text at a place.
fn part<'t>(texts: &'t [u8], (_, start, len): &(i64, u32, u32)) -> &'t [u8] {
    texts.get(*start as usize..(*start + *len) as usize).unwrap_or_default()
}

/// The texts with their orders.
fn parts(mut texts: &[u8]) -> impl Iterator<Item = (i64, &[u8])> {
    std::iter::from_fn(move || {
        let (head, rest) = texts.split_first_chunk::<HEAD_BYTES>()?;
        let (text, rest) = rest.split_at_checked(u32::from_le_bytes(load(head, 8)) as usize)?;
        texts = rest;
        Some((i64::from_le_bytes(load(head, 0)), text))
    })
}
