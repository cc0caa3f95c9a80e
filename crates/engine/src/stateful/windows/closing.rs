//! How windows close: the row of each group, in order of the windows' ends.

use super::super::keys::NONE;
use super::super::moment::{Budget, Emit};
use super::{Closing, Span, TOTAL, WindowStep, Windows, end_behind};

/// How many visits before that of a group its parts are prefetched, and how many before that the memory that leads there.
const AHEAD: usize = 16;

impl Windows {
    /// Whether no window ends between the last watermark and this one, and all that was due is done.
    #[inline]
    pub(in super::super) fn rests(&mut self, watermark: i64) -> bool {
        let rests = self.rest.contains(&watermark);
        if rests {
            self.watermark = watermark;
        }
        rests
    }

    /// Prefetches memory of some groups that are visited after the first of these: the second part of one, the parts at the ends of one
    /// that is behind it, and behind that a group itself and its key.
    #[inline]
    fn prefetch_visits(&self, numbers: &[u32]) {
        let group = |ahead: usize| self.groups.get(*numbers.get(ahead)? as usize);
        if let Some(oldest) = group(AHEAD).and_then(|group| self.parts.get(group.oldest)) {
            self.parts.prefetch(oldest.newer);
        }
        if let Some(group) = group(2 * AHEAD) {
            self.parts.prefetch(group.oldest);
            self.parts.prefetch(group.newest);
        }
        if let Some(number) = numbers.get(3 * AHEAD) {
            self.keys.prefetch_entry(*number);
            self.groups.prefetch(*number as usize);
        }
    }

    /// Closes windows that end at this time or before, as far as the budget goes; returns whether there are more. Rows leave in order of
    /// the windows' ends.
    #[inline]
    pub(in super::super) fn close(&mut self, watermark: i64, budget: &Budget, emit: Emit<'_>) -> bool {
        self.watermark = watermark;
        self.rest = 0..0;
        while self.next_end().is_some_and(|end| end <= watermark) {
            if budget.is_spent() {
                return true;
            }
            match self.window {
                Span::Running => return false,
                Span::Fixed { size, step } => self.close_fixed(size, step, budget, emit),
                Span::Session { gap } => self.close_session(gap, budget, emit),
            }
        }
        if let Span::Fixed { step, .. } = self.window {
            self.rest = watermark..end_behind(watermark, step);
        }
        false
    }

    /// Emits the session that may end first, if it does end then.
    fn close_session(&mut self, gap: i64, budget: &Budget, emit: Emit<'_>) {
        let Some((end, (at, stamp))) = self.ends.pop() else { return };
        budget.spend(1);
        let Some(part) = self.parts.get(at).filter(|part| part.stamp == stamp) else { return };
        let actual = part.last.saturating_add(gap);
        if actual > end {
            return self.ends.push(actual, (at, stamp));
        }
        self.emit(part.key, Some(at), Some((part.start, end)), emit);
        self.remove(at);
    }

    /// Goes on with the window of fixed length that closes, or begins the next.
    fn close_fixed(&mut self, size: i64, step: i64, budget: &Budget, emit: Emit<'_>) {
        let Closing { end, step: mut at, mut visited } = match self.closing {
            Some(closing) => closing,
            None => {
                // Rows may be of this window.
                self.settle(emit);
                self.round = self.round.wrapping_add(1);
                Closing { end: self.next_end, step: i64::MIN, visited: 0 }
            }
        };
        let mut place = self.steps.partition_point(|step| step.start < at);
        while let Some(WindowStep { start, groups }) = self.steps.get(place).filter(|step| step.start < end) {
            if *start != at {
                (at, visited) = (*start, 0);
            }
            let Some(&number) = groups.get(visited) else {
                place += 1;
                continue;
            };
            if budget.is_spent() {
                self.closing = Some(Closing { end, step: at, visited });
                return;
            }
            self.prefetch_visits(groups.get(visited..).unwrap_or_default());
            visited += 1;
            self.visit(number, (size, step), end, budget, emit);
        }
        self.closing = None;
        let next = end.saturating_add(step);
        while self.steps.front().is_some_and(|first| first.start < next.saturating_sub(size)) {
            self.pop_step();
        }
        self.next_end = self.steps.front().map_or(i64::MAX, |first| next.max(first.start.saturating_add(step)));
    }

    /// Ends the window that closes, before a row of its time: one that comes after the end of its stream begins the window anew.
    pub(super) fn finish_closing(&mut self, start: i64, size: i64, step: i64, emit: Emit<'_>) {
        let budget = Budget::default();
        while self.closing.is_some_and(|closing| start < closing.end) {
            budget.renew(1);
            self.close_fixed(size, step, &budget, emit);
        }
    }

    pub(super) fn pop_step(&mut self) {
        if let Some(WindowStep { mut groups, .. }) = self.steps.pop_front() {
            groups.clear();
            self.spare = groups;
        }
    }

    /// Emits a group's row for the window that closes, if it was not yet visited, and lets go of the parts that are in no later one.
    #[inline]
    fn visit(&mut self, number: u32, (size, step): (i64, i64), end: i64, budget: &Budget, emit: Emit<'_>) {
        budget.spend(1);
        let Some(group) = self.groups.get_mut(number as usize) else { return };
        if std::mem::replace(&mut group.round, self.round) == self.round {
            return;
        }
        let (start, leave) = (end.saturating_sub(size), end.saturating_add(step).saturating_sub(size));
        let (mut at, mut gone) = (group.oldest, 0);
        let mut added = std::mem::take(&mut self.added);
        while let Some(part) = self.parts.get(at).filter(|part| part.start < end) {
            budget.spend(1);
            if part.start >= start {
                added.push(at);
            }
            gone += usize::from(part.start < leave);
            at = part.newer;
        }
        self.emit_sum(number, &mut added, (start, end), emit);
        self.added = added;
        for _ in 0..gone {
            let oldest = self.groups.get(number as usize).map_or(NONE, |group| group.oldest);
            self.remove(oldest);
        }
    }

    /// Emits the row of a window: its parts together, the oldest first.
    fn emit_sum(&mut self, number: u32, added: &mut Vec<u32>, window: (i64, i64), emit: Emit<'_>) {
        match added.as_slice() {
            [] => return,
            [only] => self.emit(number, Some(*only), Some(window), emit),
            _ => {
                let mut total = std::mem::take(&mut self.total);
                for at in added.iter() {
                    if let Some(sums) = self.parts.slots(*at) {
                        self.slots.merge(&mut total, TOTAL, sums, &mut self.stores);
                    }
                }
                self.total = total;
                self.emit(number, None, Some(window), emit);
                self.slots.clear(&mut self.total, &mut self.stores);
            }
        }
        added.clear();
    }
}
