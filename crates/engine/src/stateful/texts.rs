//! Texts that are joined in order of time.

use crossdock_format::Value;
use crossdock_query::{EvalError, MAX_MADE_TEXT_BYTES};

use super::arena::{Arena, Block};
use super::cell::{load, store};

/// The texts of a group one after the other, each behind its order and its length.
pub(super) struct Texts;

/// The bytes in front of a text.
const HEAD_BYTES: usize = 12;

impl Texts {
    /// The bytes of its cell: the block, the bytes in it, the block of the separator.
    pub(super) const SIZE: usize = 24;

    /// Adds a text; `separator` is that of all, or null.
    pub(super) fn add(
        group: &mut [u8],
        at: usize,
        arena: &mut Arena,
        order: i64,
        text: &Value<'_>,
        separator: &Value<'_>,
    ) {
        if let Value::Text(separator) = separator {
            let block = Block::from_bytes(load(group, at + 16));
            if arena.get(block) != *separator {
                store(group, at + 16, arena.replace(block, separator).to_bytes());
            }
        }
        let (Value::Text(text) | Value::Bytes(text)) = text else { return };
        let mut head = [0; HEAD_BYTES];
        store(&mut head, 0, order.to_le_bytes());
        store(&mut head, 8, (text.len() as u32).to_le_bytes());
        let used = u64::from_le_bytes(load(group, at + 8)) as usize;
        let with = used + HEAD_BYTES + text.len();
        // More than a result may have: the rest is as good as there.
        if used > 2 * MAX_MADE_TEXT_BYTES {
            return;
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
    }

    /// Adds the texts of another group.
    pub(super) fn merge(into: &mut [u8], from: &[u8], at: usize, arena: &mut Arena) {
        let used = u64::from_le_bytes(load(from, at + 8)) as usize;
        // Copied first: the arena may have to move them.
        let texts = arena.get(Block::from_bytes(load(from, at))).get(..used).unwrap_or_default().to_vec();
        let separator = arena.get(Block::from_bytes(load(from, at + 16))).to_vec();
        for (order, text) in parts(&texts) {
            Texts::add(into, at, arena, order, &Value::Text(text), &Value::Text(&separator));
        }
    }

    /// The texts in order of time, those of one time in their own.
    ///
    /// # Errors
    /// They are too long together.
    pub(super) fn join<'m>(
        group: &[u8],
        at: usize,
        arena: &Arena,
        made: &'m mut Vec<u8>,
    ) -> Result<&'m [u8], EvalError> {
        let used = u64::from_le_bytes(load(group, at + 8)) as usize;
        let texts = arena.get(Block::from_bytes(load(group, at))).get(..used).unwrap_or_default();
        let separator = arena.get(Block::from_bytes(load(group, at + 16)));
        let mut ordered: Vec<(i64, &[u8])> = parts(texts).collect();
        ordered.sort_unstable();
        made.clear();
        for (number, (_, text)) in ordered.into_iter().enumerate() {
            if number > 0 {
                made.extend_from_slice(separator);
            }
            made.extend_from_slice(text);
            if made.len() > MAX_MADE_TEXT_BYTES {
                return Err(EvalError::TextTooLong);
            }
        }
        Ok(made)
    }

    /// Lets go of its memory.
    pub(super) fn clear(group: &mut [u8], at: usize, arena: &mut Arena) {
        arena.free(Block::from_bytes(load(group, at)));
        arena.free(Block::from_bytes(load(group, at + 16)));
        store(group, at, [0; 24]);
    }
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
