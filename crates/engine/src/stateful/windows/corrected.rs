//! Groups without a window that give changes: the row that a group had, and the one in its place. And groups of such rows, which are taken
//! out again.

use crossdock_format::Record;

use super::super::moment::{Change, Emit, Made};
use super::Windows;

impl Windows {
    /// Adds a row to a group, and gives what changes with it.
    pub(super) fn put_with_change(
        &mut self,
        (number, is_new, part): (u32, bool, u32),
        bytes: &[u8],
        order: i64,
        emit: Emit<'_>,
    ) {
        self.keys.used(number, is_new);
        let Windows { slots, parts, stores, input, .. } = self;
        let keeps = |sums: &mut [u8]| slots.keeps_results(sums, stores, &Record::assume_checked(input, bytes));
        if !is_new && parts.slots_mut(part).is_some_and(keeps) {
            return self.update(part, bytes, order);
        }
        let had = !is_new && self.make_former(number, part);
        self.update(part, bytes, order);
        self.emit_change(number, part, had, emit);
    }

    /// Takes a change of rows: the row of before is taken out of its group.
    pub(in super::super) fn correct(&mut self, change: Change<'_>, emit: Emit<'_>) {
        let (mut key, mut other) = (std::mem::take(&mut self.other_key), std::mem::take(&mut self.key));
        let Change { before, after } = change;
        for (row, key) in [(before, &mut key), (after, &mut other)] {
            if let Some(row) = row {
                self.columns.read(&Record::assume_checked(&self.input, row), key);
            }
        }
        if before.is_some() && after.is_some() && key != other {
            self.correct_group(&key, Change { after: None, ..change }, emit);
            self.correct_group(&other, Change { before: None, ..change }, emit);
        } else {
            self.correct_group(if after.is_some() { &other } else { &key }, change, emit);
        }
        (self.other_key, self.key) = (key, other);
    }

    fn correct_group(&mut self, key: &[u8], change: Change<'_>, emit: Emit<'_>) {
        let found = match change.after {
            Some(_) => Some(self.keys.enter(key, &mut self.stores.arena)),
            None => self.keys.find(key, &self.stores.arena).map(|number| (number, false)),
        };
        // The group of a row that is taken out may have been forgotten.
        let Some((number, is_new)) = found else { return };
        if is_new {
            self.begin_group(number);
        }
        let part = self.part(number, 0);
        let had = !is_new && self.gives_changes && self.make_former(number, part);
        let rows = self.correct_part(part, change);
        self.keys.used(number, is_new);
        // Without keys there is one group, also of no rows.
        if rows == 0 && !key.is_empty() {
            self.emit_leave(had, emit);
            self.keys.unlink(number);
            return self.remove(part);
        }
        self.emit_change(number, part, had, emit);
    }

    /// Takes one row out of a part and adds another; how many rows it has then.
    fn correct_part(&mut self, part: u32, Change { before, after }: Change<'_>) -> i64 {
        let Windows { slots, stores, input, parts, .. } = self;
        let mut rows = parts.get(part).map_or(0, |part| part.last);
        let Some(sums) = parts.slots_mut(part) else { return 0 };
        for (row, adds) in [(before, false), (after, true)] {
            let Some(row) = row else { continue };
            if adds {
                rows += 1;
            } else if rows > 0 {
                rows -= 1;
            } else {
                // It was one of a group that was forgotten.
                continue;
            }
            slots.correct(sums, stores, part, &Record::assume_checked(input, row), adds);
        }
        parts.change(part, |part| part.last = rows);
        rows
    }

    /// Makes the row that a group has before it changes; whether there is one.
    fn make_former(&mut self, number: u32, part: u32) -> bool {
        let mut former = std::mem::take(&mut self.former);
        former.clear();
        let made = self.make(number, Some(part), None).map(|row| former.extend_from_slice(row)).is_ok();
        self.former = former;
        made
    }

    /// Emits the row of a group in the place of the one that it had, if it has changed.
    fn emit_change(&mut self, number: u32, part: u32, had: bool, emit: Emit<'_>) {
        let former = std::mem::take(&mut self.former);
        let before = had.then_some(&former[..]);
        match self.make(number, Some(part), None) {
            Ok(after) if before == Some(after) => {}
            Ok(after) => emit(Ok(Made::Change(Change { before, after: Some(after) }))),
            Err(error) => {
                if had {
                    emit(Ok(Made::Change(Change { before, after: None })));
                }
                emit(Err(error));
            }
        }
        self.former = former;
    }

    fn emit_leave(&mut self, had: bool, emit: Emit<'_>) {
        if had {
            emit(Ok(Made::Change(Change::gone(&self.former))));
        }
    }

    /// Lets the row of a group leave that is forgotten, if it gives changes.
    pub(super) fn leave(&mut self, part: u32, emit: Emit<'_>) {
        let Some(number) = self.parts.get(part).map(|part| part.key).filter(|_| self.gives_changes) else {
            return;
        };
        let had = self.make_former(number, part);
        self.emit_leave(had, emit);
    }
}
