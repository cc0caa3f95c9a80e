//! A queue by time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Items by time. Those that come in order of time go into a run, where each costs a step; a heap has the others.
#[derive(Debug)]
pub(super) struct TimeQueue<T> {
    run: VecDeque<(i64, T)>,
    others: BinaryHeap<Reverse<(i64, T)>>,
}

impl<T: Ord> Default for TimeQueue<T> {
    fn default() -> TimeQueue<T> {
        TimeQueue { run: VecDeque::new(), others: BinaryHeap::new() }
    }
}

impl<T: Copy + Ord> TimeQueue<T> {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.run.len() + self.others.len()
    }

    /// Adds one.
    #[inline]
    pub(super) fn push(&mut self, time: i64, what: T) {
        if self.run.back().is_none_or(|(last, _)| *last <= time) {
            self.run.push_back((time, what));
        } else {
            self.others.push(Reverse((time, what)));
        }
    }

    /// The one of the least time.
    #[inline]
    pub(super) fn peek(&self) -> Option<(i64, T)> {
        let (run, other) = (self.run.front().copied(), self.others.peek().map(|Reverse(other)| *other));
        if self.is_run(run, other) { run } else { other }
    }

    /// Takes the one of the least time out.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<(i64, T)> {
        let (run, other) = (self.run.front().copied(), self.others.peek().map(|Reverse(other)| *other));
        if self.is_run(run, other) { self.run.pop_front() } else { self.others.pop().map(|Reverse(other)| other) }
    }

    /// The same, if this holds for its time.
    #[inline]
    pub(super) fn pop_if(&mut self, is_wanted: impl Fn(i64) -> bool) -> Option<T> {
        let (time, what) = if self.others.is_empty() { self.run.front().copied() } else { self.peek() }?;
        if !is_wanted(time) {
            return None;
        }
        if self.others.is_empty() {
            self.run.pop_front()
        } else {
            self.pop()
        };
        Some(what)
    }

    /// All of them, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (i64, T)> {
        self.run.iter().copied().chain(self.others.iter().map(|Reverse(other)| *other))
    }

    /// Whether the run has the next one.
    fn is_run(&self, run: Option<(i64, T)>, other: Option<(i64, T)>) -> bool {
        match (run, other) {
            (Some((run, _)), Some((other, _))) => run <= other,
            (run, _) => run.is_some(),
        }
    }

    /// Keeps only those for which this holds.
    pub(super) fn retain(&mut self, mut is_kept: impl FnMut(i64, &T) -> bool) {
        self.run.retain(|(time, what)| is_kept(*time, what));
        self.others.retain(|Reverse((time, what))| is_kept(*time, what));
    }

    /// Takes all out.
    pub(super) fn clear(&mut self) {
        self.run.clear();
        self.others.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_leave_in_order_of_time_in_whatever_order_they_came() {
        let mut queue = TimeQueue::default();
        for (number, time) in [3, 4, 1, 9, 2, 9, 12, 4].into_iter().enumerate() {
            queue.push(time, number);
        }
        assert_eq!((queue.len(), queue.peek()), (8, Some((1, 2))));
        assert_eq!((queue.pop_if(|time| time < 1), queue.pop_if(|time| time < 2)), (None, Some(2)));
        queue.push(1, 2);
        queue.retain(|_, number| *number != 3);
        let times: Vec<i64> = std::iter::from_fn(|| queue.pop()).map(|(time, _)| time).collect();
        assert_eq!(times, [1, 2, 3, 4, 4, 9, 12]);
        assert_eq!(queue.peek(), None);
    }
}
