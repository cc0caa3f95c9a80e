//! The last rows of each key: rings of cells, for the columns that are read again.

use crossdock_format::{Format, Record, Value};

use super::arena::{Arena, Block};
use super::cell::{Cell, plain};
use crate::saved::{SavedBytes, put_flag};

/// The columns of the rows that are kept, and their memory. A row begins with a byte for each column that says whether it has a value.
#[derive(Debug, Default)]
pub(super) struct PastRows {
    columns: Vec<PastColumn>,
    /// The places and lengths of the bytes beside a row.
    beside: Vec<(usize, usize)>,
    /// The bytes of a row.
    bytes: usize,
    /// How many rows of a key are kept.
    rows: usize,
    rings: Arena,
    texts: Arena,
}

#[derive(Clone, Copy, Debug)]
struct PastColumn {
    /// The column of the row that it is of.
    index: usize,
    cell: Cell,
    at: usize,
}

/// The rows of a key.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Past {
    /// The ring, which has room for the first rows only until there are more.
    ring: Block,
    /// How many rows there were.
    count: u64,
}

/// The rows that a ring begins with room for.
const FIRST_ROWS: usize = 4;

impl Past {
    /// How many rows there were.
    pub(super) fn count(&self) -> u64 {
        self.count
    }
}

/// A row that is kept.
#[derive(Clone, Copy)]
pub(super) struct PastRow<'p> {
    of: &'p PastRows,
    bytes: &'p [u8],
}

impl<'p> PastRow<'p> {
    /// The value of a column, by the number that [`PastRows::column`] gave it.
    #[inline]
    pub(super) fn value(&self, column: usize) -> Value<'p> {
        match self.of.columns.get(column) {
            Some(of) if self.bytes.get(column).is_some_and(|byte| *byte != 0) => {
                of.cell.value(self.bytes, of.at, &self.of.texts)
            }
            _ => Value::Null,
        }
    }
}

impl PastRows {
    /// Keeps a column of rows of this format; its number here.
    ///
    /// # Errors
    /// In words: it is a list, or not there.
    pub(super) fn column(&mut self, format: &Format, index: usize) -> Result<usize, String> {
        if let Some(known) = self.columns.iter().position(|column| column.index == index) {
            return Ok(known);
        }
        let field = format.fields().get(index).ok_or("a column of OVER is not there")?;
        let cell = Cell::of(field.ty).ok_or("a column of OVER is a list")?;
        self.columns.push(PastColumn { index, cell, at: 0 });
        Ok(self.columns.len() - 1)
    }

    /// Keeps that many bytes beside each row, which [`PastRows::beside`] has; a number for them.
    pub(super) fn add_beside(&mut self, bytes: usize) -> usize {
        self.beside.push((0, bytes));
        self.beside.len() - 1
    }

    /// Keeps at least as many rows of each key.
    pub(super) fn reserve(&mut self, rows: usize) {
        self.rows = self.rows.max(rows);
    }

    /// Gives the columns their places, once all are known.
    pub(super) fn lay_out(&mut self) {
        self.bytes = self.columns.len().next_multiple_of(8);
        for column in &mut self.columns {
            column.at = self.bytes;
            self.bytes += column.cell.size();
        }
        for (at, bytes) in &mut self.beside {
            *at = self.bytes;
            self.bytes += bytes.next_multiple_of(8);
        }
    }

    /// How many bytes are in use.
    #[inline]
    pub(super) fn used(&self) -> usize {
        self.rings.used() + self.texts.used()
    }

    /// Adds a row to those of a key, in place of the oldest if there are as many as are kept.
    #[inline]
    pub(super) fn push(&mut self, past: &mut Past, row: &Record<'_>) {
        let before = past.count;
        past.count += 1;
        if self.rows == 0 {
            return;
        }
        let (place, is_first) = match usize::try_from(before) {
            Ok(before) if before < self.rows => (before, true),
            _ => ((before % self.rows as u64) as usize, false),
        };
        let (start, end) = (place * self.bytes, (place + 1) * self.bytes);
        if end > past.ring.len() {
            self.widen(past, end);
        }
        let Some(bytes) = self.rings.get_mut(past.ring).and_then(|ring| ring.get_mut(start..end)) else { return };
        if is_first {
            bytes.fill(0);
        }
        for (number, column) in self.columns.iter().enumerate() {
            let value = plain(row.get(column.index));
            let has_value = !value.is_null();
            if has_value {
                column.cell.set(bytes, column.at, &mut self.texts, &value);
            } else {
                column.cell.clear(bytes, column.at, &mut self.texts);
            }
            if let Some(byte) = bytes.get_mut(number) {
                *byte = u8::from(has_value);
            }
        }
    }

    #[cold]
    fn widen(&mut self, past: &mut Past, least: usize) {
        let most = self.rows * self.bytes;
        let wanted = (past.ring.len() * 2).max(FIRST_ROWS * self.bytes).min(most).max(least);
        past.ring = self.rings.grow(past.ring, wanted);
    }

    /// The row of a key that is `distance` rows before the last one.
    #[inline]
    pub(super) fn row(&self, past: &Past, distance: u32) -> Option<PastRow<'_>> {
        if u64::from(distance) >= past.count || distance as usize >= self.rows {
            return None;
        }
        self.at(past, self.place(past, distance))
    }

    /// The bytes beside a row that is there.
    #[inline]
    pub(super) fn beside(&self, past: &Past, distance: u32, number: usize) -> Option<&[u8]> {
        let &(at, bytes) = self.beside.get(number)?;
        self.row(past, distance)?.bytes.get(at..at + bytes)
    }

    /// The same, to be written.
    #[inline]
    pub(super) fn beside_mut(&mut self, past: &Past, distance: u32, number: usize) -> Option<&mut [u8]> {
        let &(at, bytes) = self.beside.get(number)?;
        if u64::from(distance) >= past.count || distance as usize >= self.rows {
            return None;
        }
        let at = self.place(past, distance) * self.bytes + at;
        self.rings.get_mut(past.ring)?.get_mut(at..at + bytes)
    }

    /// Hands over the rows from one distance to another, the oldest first, with their numbers within the key.
    #[inline]
    pub(super) fn each(&self, past: &Past, (from, until): (u32, u32), mut each: impl FnMut(PastRow<'_>, u64)) {
        let most = past.count.min(self.rows as u64);
        let Some(from) = most.checked_sub(1).and_then(|last| u32::try_from(last).ok()).map(|last| from.min(last))
        else {
            return;
        };
        if until > from {
            return;
        }
        let mut place = self.place(past, from);
        for distance in (until..=from).rev() {
            if let Some(row) = self.at(past, place) {
                each(row, past.count - 1 - u64::from(distance));
            }
            place = if place + 1 == self.rows { 0 } else { place + 1 };
        }
    }

    #[inline]
    fn place(&self, past: &Past, distance: u32) -> usize {
        ((past.count - 1 - u64::from(distance)) % self.rows as u64) as usize
    }

    #[inline]
    fn at(&self, past: &Past, place: usize) -> Option<PastRow<'_>> {
        let bytes = self.rings.get(past.ring).get(place * self.bytes..(place + 1) * self.bytes)?;
        Some(PastRow { of: self, bytes })
    }

    /// How many rows of a key are kept.
    fn kept(&self, past: &Past) -> usize {
        usize::try_from(past.count).unwrap_or(usize::MAX).min(self.rows)
    }

    /// Writes the rows of a key, the oldest first, without the bytes beside them.
    pub(super) fn save(&self, past: &Past, out: &mut Vec<u8>) {
        for distance in (0..self.kept(past) as u32).rev() {
            let row = self.at(past, self.place(past, distance)).map_or(&[][..], |row| row.bytes);
            for (number, column) in self.columns.iter().enumerate() {
                put_flag(out, row.get(number).is_some_and(|byte| *byte != 0));
                column.cell.save(row, column.at, &self.texts, out);
            }
        }
    }

    /// Takes the rows that were written of a key that has had this number of them.
    ///
    /// # Errors
    /// They were not written by rows like these. Some of them may be there then.
    pub(super) fn restore(&mut self, count: u64, from: &mut SavedBytes<'_>) -> Result<Past, &'static str> {
        let mut past = Past { ring: Block::default(), count };
        let kept = self.kept(&past);
        if kept.saturating_mul(self.columns.len()) > from.len() {
            return Err("it ends too early");
        }
        if kept == 0 || self.bytes == 0 {
            return Ok(past);
        }
        self.widen(&mut past, kept * self.bytes);
        self.rings.get_mut(past.ring).into_iter().for_each(|ring| ring.fill(0));
        for distance in (0..kept as u32).rev() {
            let start = self.place(&past, distance) * self.bytes;
            let place = self.rings.get_mut(past.ring).and_then(|ring| ring.get_mut(start..start + self.bytes));
            let row = place.ok_or("a row has no place")?;
            for (number, column) in self.columns.iter().enumerate() {
                let has_value = from.flag()?;
                column.cell.restore(row, column.at, &mut self.texts, from)?;
                row.get_mut(number).into_iter().for_each(|byte| *byte = u8::from(has_value));
            }
        }
        Ok(past)
    }

    /// Lets go of the rows of a key.
    pub(super) fn free(&mut self, past: &mut Past) {
        let rows = self.kept(past);
        let Past { ring, .. } = std::mem::take(past);
        if let Some(bytes) = self.rings.get_mut(ring) {
            for row in bytes.chunks_exact_mut(self.bytes.max(1)).take(rows) {
                self.columns.iter().for_each(|column| column.cell.clear(row, column.at, &mut self.texts));
            }
        }
        self.rings.free(ring);
    }
}
