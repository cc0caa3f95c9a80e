//! The groups of a GROUP BY as bytes: part by part, each with the key of its group.

use super::{Closing, Group, Part, Span, TOTAL, Windows};
use crate::saved::{SavedBytes, counted, put_bytes, put_flag, put_i64};
use crate::stateful::keys::NONE;
use crate::stateful::state::LATEST;

impl Windows {
    /// Writes all parts: of windows of fixed length those that begin together in the order of their groups, of groups without windows in
    /// the order in which they were used.
    pub(in crate::stateful) fn save(&self, out: &mut Vec<u8>) {
        put_i64(out, self.watermark);
        put_i64(out, self.arrived);
        put_flag(out, self.closing.is_some());
        put_i64(out, self.closing.map_or(self.next_end, |closing| closing.end));
        match self.window {
            Span::Running => {
                let newest = |number: u32| self.groups.get(number as usize).map_or(NONE, |group| group.newest);
                self.keys.in_order_of_use().for_each(|number| self.save_part(newest(number), out));
            }
            Span::Fixed { .. } => {
                for step in &self.steps {
                    for number in &step.groups {
                        let (_, at) = self.around(*number, step.start);
                        if self.parts.get(at).is_some_and(|part| part.start == step.start) {
                            self.save_part(at, out);
                        }
                    }
                }
            }
            Span::Session { .. } => {
                for number in self.keys.numbers() {
                    let mut at = self.groups.get(number as usize).map_or(NONE, |group| group.oldest);
                    while let Some(part) = self.parts.get(at) {
                        self.save_part(at, out);
                        at = part.newer;
                    }
                }
            }
        }
        put_flag(out, false);
    }

    fn save_part(&self, at: u32, out: &mut Vec<u8>) {
        let (Some(part), Some(sums)) = (self.parts.get(at), self.parts.slots(at)) else { return };
        put_flag(out, true);
        put_bytes(out, self.keys.key(part.key, &self.stores.arena));
        put_flag(out, self.groups.get(part.key as usize).is_some_and(|group| group.round == self.round));
        put_i64(out, part.start);
        put_i64(out, part.last);
        self.slots.save(sums, &self.stores, out);
    }

    /// Takes what was written, into windows without groups.
    ///
    /// # Errors
    /// It was not written by windows like these. They are of no use then.
    pub(in crate::stateful) fn restore(&mut self, from: &mut SavedBytes<'_>) -> Result<(), &'static str> {
        self.watermark = from.i64()?;
        self.arrived = counted(from.u64()?)? as i64;
        let (is_closing, end) = (from.flag()?, from.i64()?);
        // Groups that were visited for the window that closes are not visited again.
        self.round = 1;
        while from.flag()? {
            self.restore_part(from)?;
        }
        match self.window {
            Span::Running => {}
            Span::Fixed { size, step } => self.restore_end(size, step, (is_closing, end))?,
            Span::Session { gap } => {
                let ends = self.parts.iter().zip(0..).map(|(part, at)| (part.last.saturating_add(gap), (at, 0)));
                let mut ends: Vec<(i64, (u32, u32))> = ends.collect();
                ends.sort_unstable();
                ends.into_iter().for_each(|(end, part)| self.ends.push(end, part));
            }
        }
        Ok(())
    }

    /// The window that closes next, or that has begun to. Parts that had left are not there any more, and with them the windows of none but
    /// those.
    fn restore_end(&mut self, size: i64, step: i64, (is_closing, end): (bool, i64)) -> Result<(), &'static str> {
        let Some(first) = self.steps.front().map(|first| first.start) else { return Ok(()) };
        if end > first.saturating_add(size) || end.rem_euclid(step) != 0 {
            return Err("a window ends at a time that is no end");
        }
        let is_there = end > first;
        self.next_end = if is_there { end } else { first.saturating_add(step) };
        self.closing = (is_closing && is_there).then_some(Closing { end, step: i64::MIN, visited: 0 });
        Ok(())
    }

    fn restore_part(&mut self, from: &mut SavedBytes<'_>) -> Result<(), &'static str> {
        let (key, is_visited) = (from.bytes()?, from.flag()?);
        let (start, last) = (from.i64()?, from.i64()?);
        let (number, is_new) = self.keys.enter(key, &mut self.stores.arena);
        if is_new {
            let fresh = Group { newest: NONE, oldest: NONE, round: u32::from(is_visited) };
            match self.groups.get_mut(number as usize) {
                Some(group) => *group = fresh,
                None => self.groups.push(fresh),
            }
        }
        let newest = self.groups.get(number as usize).and_then(|group| self.parts.get(group.newest));
        let at = match self.window {
            Span::Running if is_new && start == 0 => {
                self.keys.used(number, true);
                let at = self.part(number, 0);
                if self.corrects {
                    // How many rows it has.
                    let rows = counted(last as u64)? as i64;
                    self.parts.change(at, |part| part.last = rows);
                }
                at
            }
            Span::Fixed { .. } if start <= LATEST && self.start_of(start, i64::MIN) == Some(start) => {
                let (_, at) = self.around(number, start);
                if self.parts.get(at).is_some_and(|part| part.start == start) {
                    // Of a key that had come again, and was listed twice.
                    let mut twice = vec![0; self.slots.bytes()];
                    let restored = self.slots.restore(&mut twice, TOTAL, &mut self.stores, from);
                    self.slots.clear(&mut twice, &mut self.stores);
                    return restored;
                }
                self.part(number, start)
            }
            Span::Session { gap } if start <= last && last <= LATEST => {
                if newest.is_some_and(|newest| newest.last.saturating_add(gap) > start) {
                    return Err("two sessions of a group are one");
                }
                let older = self.groups.get(number as usize).map_or(NONE, |group| group.newest);
                self.add(Part { key: number, older, newer: NONE, stamp: 0, start, last })
            }
            _ => return Err("a part of a window begins at a time that is no beginning"),
        };
        let Windows { slots, parts, stores, .. } = self;
        match parts.slots_mut(at) {
            Some(sums) => slots.restore(sums, at, stores, from),
            None => Err("a part has no place"),
        }
    }
}
