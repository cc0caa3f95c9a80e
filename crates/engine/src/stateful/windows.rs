//! GROUP BY: groups by key, and in each the parts of windows that are open.
//!
//! A *part* has the aggregates of a group's rows in a stretch of time: a tumbling window, one step of hopping ones, a session, or
//! all time. A group's parts are in a list by their starts that is gone through from both ends, so that a row costs one look-up of its
//! key, and a step for each part of its group between its own and the nearer end. When a window of fixed length closes, the groups that
//! have a part in it are visited, and the parts of each are added up, from the oldest on.
//!
//! A call closes a bounded number of parts (see [`Budget`]). Other windows that are due stay, and the next call goes on.

mod closing;
mod corrected;
mod parts;
mod saved;

use std::collections::VecDeque;
use std::ops::Range;

use crossdock_format::{Format, Record, RecordBuilder, Value};
use crossdock_mailbox::MappedVec;
use crossdock_query::{Aggregation, EvalError, MAX_WINDOWS, RowTime, Window};

use super::accumulate::{Slots, Stores};
use super::gathered::Gathered;
use super::keys::{ENTRY_BYTES, KeyColumns, Keys, NONE};
use super::moment::{Emit, Lost, Made, Moment, refused};
use super::time_queue::TimeQueue;
use super::word::WordRow;
use parts::{Part, WindowParts};

/// The state of GROUP BY.
#[derive(Debug)]
pub(super) struct Windows {
    window: Span,
    by_arrival: bool,
    /// Whether rows are taken out of groups again.
    pub(super) corrects: bool,
    /// Whether a group's row leaves together with the one that it had.
    gives_changes: bool,
    columns: KeyColumns,
    slots: Slots,
    keys: Keys,
    /// By a key's number.
    groups: MappedVec<Group>,
    parts: WindowParts,
    /// Of windows of fixed length: where parts begin, rising.
    steps: VecDeque<WindowStep>,
    /// The end of the window of fixed length that closes next.
    next_end: i64,
    /// The window of fixed length that closes, as far as it has come.
    closing: Option<Closing>,
    /// The number of the window of fixed length that closes, or closed last.
    round: u32,
    /// Of sessions: when each may end; it is looked at again then.
    ends: TimeQueue<(u32, u32)>,
    stores: Stores,
    row: RecordBuilder,
    /// Makes the rows in its place, where it can.
    word_row: Option<WordRow>,
    input: Format,
    key: Vec<u8>,
    /// The key of a row that takes the place of another.
    other_key: Vec<u8>,
    /// The row that a group had.
    former: Vec<u8>,
    /// The parts of a group that are added up.
    added: Vec<u32>,
    total: Vec<u8>,
    /// The memory of a step that is gone, for the next one.
    spare: Vec<u32>,
    arrived: i64,
    /// Rows of parts that begin with the newest step: they change nothing about which window closes next. With their times, and
    /// where their parts begin.
    gathered: Gathered<(i64, i64), DEPTH>,
    /// The last watermark.
    watermark: i64,
    /// From the watermark at which all that was due was done, until the one at which the next window of fixed length may end.
    rest: Range<i64>,
    pub(super) lost: Lost,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Span {
    Running,
    /// `size` is a multiple of `step`; they are the same for tumbling windows.
    Fixed {
        size: i64,
        step: i64,
    },
    Session {
        gap: i64,
    },
}

#[derive(Clone, Copy, Debug)]
struct Group {
    newest: u32,
    oldest: u32,
    /// The last window that it was visited for, or in whose time it came.
    round: u32,
}

/// The parts that begin at one time.
#[derive(Debug)]
struct WindowStep {
    start: i64,
    /// The numbers of their keys. Those of parts that have left stay until the step is gone, which is when their window has closed.
    groups: Vec<u32>,
}

/// How far a window has come that closes.
#[derive(Clone, Copy, Debug)]
struct Closing {
    end: i64,
    /// The step whose groups are visited, and how many of them were.
    step: i64,
    visited: usize,
}

/// The entries of sessions that are gone, beside as many as there are sessions, before they are removed.
const MOST_STALE: usize = 64;
/// Groups of rows that are gathered: of the second one the entries of keys are prefetched, of the third one the parts of windows.
const DEPTH: usize = 4;

/// The owner of values that are added up for a window.
const TOTAL: u32 = u32::MAX;

impl Windows {
    /// The state of a GROUP BY over rows of this format.
    ///
    /// # Errors
    /// In words: the columns do not fit.
    pub(super) fn of(
        aggregation: &Aggregation,
        input: &Format,
        has_time: bool,
        rows: &Format,
    ) -> Result<Windows, String> {
        let whole = |ns: u64| i64::try_from(ns).unwrap_or(i64::MAX).max(1);
        let window = match aggregation.window {
            Window::Running => Span::Running,
            Window::Tumble { size_ns } => Span::Fixed { size: whole(size_ns), step: whole(size_ns) },
            Window::Hop { size_ns, slide_ns } => Span::Fixed { size: whole(size_ns), step: whole(slide_ns) },
            Window::Session { gap_ns } => Span::Session { gap: whole(gap_ns) },
        };
        if matches!(window, Span::Fixed { size, step } if size % step != 0 || size / step > MAX_WINDOWS as i64) {
            return Err("the length of a window is a multiple of its slide, and not of too many".to_owned());
        }
        let by_arrival = window == Span::Running || !has_time;
        let Aggregation { corrects, gives_changes, .. } = *aggregation;
        if (corrects || gives_changes) && window != Span::Running {
            return Err("the rows of windows do not change".to_owned());
        }
        let slots = match corrects {
            true => Slots::correcting(&aggregation.aggregates, input)?,
            false => Slots::of(&aggregation.aggregates, input, by_arrival)?,
        };
        let stores = Stores::of(slots.distinct(input)?, slots.values(input)?);
        Ok(Windows {
            window,
            by_arrival,
            corrects,
            gives_changes,
            columns: KeyColumns::of(input, &aggregation.keys, false)?,
            total: vec![0; slots.bytes()],
            parts: WindowParts::of(slots.bytes()),
            slots,
            keys: Keys::default(),
            groups: MappedVec::default(),
            steps: VecDeque::new(),
            next_end: i64::MAX,
            closing: None,
            round: 0,
            ends: TimeQueue::default(),
            stores,
            row: RecordBuilder::new(rows),
            word_row: WordRow::of(rows),
            input: input.clone(),
            key: Vec::new(),
            other_key: Vec::new(),
            former: Vec::new(),
            added: Vec::new(),
            spare: Vec::new(),
            arrived: 0,
            gathered: Gathered::default(),
            watermark: i64::MIN,
            rest: 0..0,
            lost: Lost::default(),
        })
    }

    /// Whether its windows are of the time of arrival.
    pub(super) fn wants_time(&self) -> bool {
        self.by_arrival && self.window != Span::Running
    }

    /// Groups and windows of them that it keeps.
    pub(super) fn kept(&self) -> usize {
        self.parts.len()
    }

    /// Whether rows were put in since this was last asked; those that are corrected are at once.
    #[inline]
    pub(super) fn has_put_since(&mut self) -> bool {
        self.corrects || self.gathered.has_put_since()
    }

    /// How many bytes are in use.
    pub(super) fn used(&self) -> usize {
        let part = self.parts.part_bytes() + size_of::<u32>();
        self.keys.len() * (ENTRY_BYTES + size_of::<Group>())
            + self.parts.len() * part
            + self.steps.len() * size_of::<WindowStep>()
            + self.ends.len() * size_of::<(i64, u32, u32)>()
            + self.stores.used()
    }

    /// The time at which the next window ends, if there is one.
    pub(super) fn next_end(&self) -> Option<i64> {
        match self.window {
            Span::Running => None,
            Span::Fixed { .. } => match self.closing {
                Some(closing) => Some(closing.end),
                None => (!self.steps.is_empty()).then_some(self.next_end),
            },
            Span::Session { .. } => self.ends.peek().map(|(end, _)| end),
        }
    }

    /// The least start or end of the windows that are yet to leave, at this watermark.
    pub(super) fn given(&self, time: RowTime, watermark: i64) -> i64 {
        let next = self.next_end().unwrap_or(i64::MAX);
        match (time, self.window) {
            (RowTime::WindowEnd, Span::Session { .. }) => watermark.min(next),
            (RowTime::WindowEnd | RowTime::Closed, Span::Fixed { step, .. }) => next.min(end_behind(watermark, step)),
            (RowTime::WindowStart, Span::Fixed { size, step }) => {
                next.min(end_behind(watermark, step)).saturating_sub(size)
            }
            _ => i64::MIN,
        }
    }

    /// Takes a row, at a time that the watermark has not passed; but rows of windows that are closed, or beyond all times, are late.
    pub(super) fn take(&mut self, bytes: &[u8], moment: Moment, emit: Emit<'_>) {
        let Moment { time, watermark, .. } = moment;
        self.watermark = watermark;
        let Some(start) = self.start_of(time, watermark) else {
            self.lost.late += 1;
            return;
        };
        let can_wait = match self.window {
            Span::Fixed { .. } => self.is_newest_step(start),
            // A running group gives a row for each, in its place among those of other inputs; its changes may come together.
            Span::Running => self.gives_changes,
            Span::Session { .. } => false,
        } && self.closing.is_none_or(|closing| start >= closing.end);
        if !can_wait {
            self.settle(emit);
            if let Span::Fixed { size, step } = self.window {
                self.finish_closing(start, size, step, emit);
            }
        }
        let mut key = std::mem::take(&mut self.key);
        self.columns.read(&Record::assume_checked(&self.input, bytes), &mut key);
        if !can_wait {
            self.put(bytes, (&key, self.keys.hash(&key)), (time, start), emit);
            self.gathered.note_put();
        } else if self.gathered.push(bytes, &key, &self.keys, (time, start)) {
            self.put_last(emit);
        }
        self.key = key;
    }

    #[inline]
    fn is_newest_step(&self, start: i64) -> bool {
        self.steps.back().is_some_and(|newest| newest.start == start)
    }

    /// Puts the rows in that were gathered.
    #[inline]
    pub(super) fn settle(&mut self, emit: Emit<'_>) {
        while !self.gathered.is_empty() {
            self.put_last(emit);
        }
    }

    /// Puts the rows of the last group in.
    fn put_last(&mut self, emit: Emit<'_>) {
        let (last, most) = self.gathered.take_last();
        let mut rows = last.iter();
        for place in 0..most {
            self.prefetch_ahead(place);
            if let Some((row, key, hash, times)) = rows.next() {
                self.put(row, (key, hash), *times, emit);
            }
        }
        drop(rows);
        self.gathered.move_on(last);
    }

    #[inline]
    fn prefetch_ahead(&mut self, place: usize) {
        let Windows { keys, groups, parts, gathered, .. } = self;
        if let Some(group) = gathered.found(2, place).and_then(|number| groups.get(number as usize)) {
            parts.prefetch(group.newest);
            parts.prefetch(group.oldest);
        }
        if let Some(number) = gathered.find(place, keys) {
            keys.prefetch_entry(number);
            groups.prefetch(number as usize);
        }
    }

    #[inline]
    fn put(&mut self, bytes: &[u8], (key, hash): (&[u8], u32), (time, start): (i64, i64), emit: Emit<'_>) {
        let is_closed = match self.window {
            // The step of a row that waited may have been forgotten, and its windows may have closed since.
            Span::Fixed { size, .. } => !self.is_newest_step(start) && start.saturating_add(size) <= self.watermark,
            Span::Running | Span::Session { .. } => false,
        };
        let entered = if is_closed { None } else { self.keys.enter_hashed(key, hash, &mut self.stores.arena) };
        let Some((number, is_new)) = entered else {
            self.lost.forgotten += 1;
            return;
        };
        if is_new {
            self.begin_group(number);
        }
        let part = match self.window {
            Span::Session { gap } => self.session(number, time, gap),
            Span::Running | Span::Fixed { .. } => self.part(number, start),
        };
        let order = if self.by_arrival {
            self.arrived += 1;
            self.arrived
        } else {
            time
        };
        if self.gives_changes {
            return self.put_with_change((number, is_new, part), bytes, order, emit);
        }
        self.update(part, bytes, order);
        if self.window == Span::Running {
            self.keys.used(number, is_new);
            self.emit(number, Some(part), None, emit);
        }
    }

    fn begin_group(&mut self, number: u32) {
        let fresh = Group { newest: NONE, oldest: NONE, round: self.round };
        match self.groups.get_mut(number as usize) {
            Some(group) => *group = fresh,
            None => self.groups.push(fresh),
        }
    }

    /// Adds a row to a part.
    #[inline]
    fn update(&mut self, part: u32, bytes: &[u8], order: i64) {
        let Windows { slots, parts, stores, input, .. } = self;
        if let Some(sums) = parts.slots_mut(part) {
            slots.update(sums, stores, part, &Record::assume_checked(input, bytes), order);
        }
    }

    /// Where the part of a row begins; `None` if its last window is closed, or one of its windows would not be within all times.
    fn start_of(&self, time: i64, watermark: i64) -> Option<i64> {
        match self.window {
            Span::Running => Some(0),
            Span::Fixed { size, step } => {
                let is_in = |start: i64| time.checked_sub(start).is_some_and(|behind| (0..step).contains(&behind));
                // Most rows are of the newest step, for which the division was done.
                let start = match self.steps.back() {
                    Some(newest) if is_in(newest.start) => newest.start,
                    _ => time.div_euclid(step).checked_mul(step)?,
                };
                start.checked_add(step)?.checked_sub(size)?;
                start.checked_add(size).filter(|end| *end > watermark).map(|_| start)
            }
            Span::Session { gap } => time.checked_add(gap).filter(|end| *end > watermark).map(|_| time),
        }
    }

    /// The part of a group that begins at a time.
    #[inline]
    fn part(&mut self, number: u32, start: i64) -> u32 {
        let (newer, at) = self.around(number, start);
        if self.parts.get(at).is_some_and(|part| part.start == start) {
            return at;
        }
        if let Span::Fixed { step, .. } = self.window {
            self.add_to_step(number, start, step);
        }
        self.add(Part { key: number, older: at, newer, stamp: 0, start, last: start })
    }

    /// Of the parts of a group: the first one that begins after a time, and the one before it.
    #[inline]
    fn around(&self, number: u32, time: i64) -> (u32, u32) {
        let Some(&Group { newest, oldest, .. }) = self.groups.get(number as usize) else { return (NONE, NONE) };
        let (mut from_newest, mut from_oldest) = (newest, oldest);
        loop {
            match self.parts.get(from_newest) {
                Some(part) if part.start > time => from_newest = part.older,
                Some(part) => return (part.newer, from_newest),
                None => return (oldest, NONE),
            }
            match self.parts.get(from_oldest) {
                Some(part) if part.start <= time => from_oldest = part.newer,
                Some(part) => return (from_oldest, part.older),
                None => return (NONE, newest),
            }
        }
    }

    fn add_to_step(&mut self, number: u32, start: i64, step: i64) {
        let place = match self.steps.back() {
            Some(last) if last.start == start => self.steps.len() - 1,
            _ => match self.steps.binary_search_by_key(&start, |step| step.start) {
                Ok(place) => place,
                Err(place) => {
                    self.steps.insert(place, WindowStep { start, groups: std::mem::take(&mut self.spare) });
                    if place == 0 {
                        // The first window that it is in ends with it; but those that end before the watermark are closed.
                        let end = start.saturating_add(step).max(end_behind(self.watermark, step));
                        self.next_end = if self.steps.len() == 1 { end } else { self.next_end.min(end) };
                    }
                    place
                }
            },
        };
        if let Some(step) = self.steps.get_mut(place) {
            step.groups.push(number);
        }
    }

    /// The session of a group that a row at a time is in: one that it makes longer, or a new one. Two that it joins are one.
    fn session(&mut self, number: u32, time: i64, gap: i64) -> u32 {
        let (newer, older) = self.around(number, time);
        let before = self.parts.get(older).filter(|part| part.last.saturating_add(gap) > time).map(|_| older);
        let behind = self.parts.get(newer).filter(|part| part.start < time.saturating_add(gap)).map(|_| newer);
        match (before, behind) {
            (Some(before), behind) => {
                self.parts.change(before, |part| part.last = time.max(part.last));
                if let Some(behind) = behind {
                    self.join_sessions(before, behind);
                }
                before
            }
            (None, Some(behind)) => {
                self.parts.change(behind, |part| part.start = time);
                behind
            }
            (None, None) => {
                let fresh = self.add(Part { key: number, older, newer, stamp: 0, start: time, last: time });
                let stamp = self.parts.get(fresh).map_or(0, |part| part.stamp);
                self.ends.push(time.saturating_add(gap), (fresh, stamp));
                fresh
            }
        }
    }

    /// Makes one of two sessions of a group.
    fn join_sessions(&mut self, into: u32, behind: u32) {
        let mut from = std::mem::take(&mut self.total);
        if let Some(sums) = self.parts.slots(behind) {
            from.copy_from_slice(sums);
        }
        if let Some(into_sums) = self.parts.slots_mut(into) {
            self.slots.merge(into_sums, into, &from, &mut self.stores);
        }
        self.total = from;
        self.total.fill(0);
        let last = self.parts.get(behind).map_or(i64::MIN, |part| part.last);
        self.parts.change(into, |part| part.last = last.max(part.last));
        // Its time to end stays where it is, and finds another stamp.
        self.remove(behind);
        if self.ends.len() > 2 * self.parts.len() + MOST_STALE {
            let parts = &self.parts;
            self.ends.retain(|_, (at, stamp)| parts.get(*at).is_some_and(|part| part.stamp == *stamp));
        }
    }

    /// Puts a part between its neighbours.
    fn add(&mut self, part: Part) -> u32 {
        let at = self.parts.add(part);
        self.lead(part.key, (part.newer, at), (at, part.older));
        at
    }

    /// Lets a newer part of a group lead to one that is older, and an older one to one that is newer; where there is none, the group.
    fn lead(&mut self, key: u32, (newer, to_older): (u32, u32), (to_newer, older): (u32, u32)) {
        let Some(group) = self.groups.get_mut(key as usize) else { return };
        if !self.parts.change(newer, |newer| newer.older = to_older) {
            group.newest = to_older;
        }
        if !self.parts.change(older, |older| older.newer = to_newer) {
            group.oldest = to_newer;
        }
    }

    /// Lets go of a part, and of its key with the last one.
    fn remove(&mut self, at: u32) {
        let Some(Part { key, older, newer, .. }) = self.parts.get(at) else { return };
        self.lead(key, (newer, older), (newer, older));
        self.free(at);
        self.remove_key(key);
    }

    /// Lets go of a part that nothing leads to.
    fn free(&mut self, at: u32) {
        if let Some(sums) = self.parts.slots_mut(at) {
            self.slots.clear(sums, &mut self.stores);
        }
        self.parts.free(at);
        if self.parts.len() == 0 {
            self.ends.clear();
        }
    }

    /// Forgets a key if its group has no parts.
    fn remove_key(&mut self, key: u32) {
        if self.groups.get(key as usize).is_some_and(|group| group.newest == NONE) {
            self.keys.remove(key, &mut self.stores.arena);
        }
    }

    /// Emits the row of a group: of a part, or of the total.
    fn emit(&mut self, number: u32, part: Option<u32>, window: Option<(i64, i64)>, emit: Emit<'_>) {
        emit(self.make(number, part, window).map(Made::row));
    }

    /// Makes the row of a group.
    fn make(&mut self, number: u32, part: Option<u32>, window: Option<(i64, i64)>) -> Result<&[u8], EvalError> {
        let Windows { columns, slots, keys, stores, row, word_row, parts, total, .. } = self;
        let sums = match part {
            Some(at) => parts.slots(at).unwrap_or_default(),
            None => total,
        };
        let key = |stores: &Stores, each: &mut dyn FnMut(Value<'_>)| {
            columns.values(keys.key(number, &stores.arena), |_, value| each(value));
        };
        let window = window.map(|(start, end)| [start, end].map(Value::Timestamp));
        let mut column = 0;
        if let Some(words) = word_row {
            words.clear();
            let mut set = |value: &Value<'_>| {
                column += 1;
                words.set(column - 1, value)
            };
            let mut fits = true;
            key(stores, &mut |value| fits &= set(&value));
            window.iter().flatten().for_each(|time| fits &= set(time));
            slots.results(sums, stores, |_, value| {
                fits &= set(&value);
                Ok(())
            })?;
            if fits {
                return Ok(words.row());
            }
            column = 0;
        }
        row.clear();
        let mut set = |value: Value<'_>| {
            column += 1;
            row.set(column - 1, value).map_err(|error| refused(&error))
        };
        let mut result: Result<(), EvalError> = Ok(());
        key(stores, &mut |value| {
            if result.is_ok() {
                result = set(value);
            }
        });
        result?;
        window.into_iter().flatten().try_for_each(&mut set)?;
        slots.results(sums, stores, |_, value| set(value))?;
        row.finish().map_err(|_| EvalError::RecordTooLong)
    }

    /// Forgets the oldest: of windows a part that began first, of sessions the one that ends first, of groups without windows the
    /// one that was not used for the longest. Memory that is kept for results goes before. Returns whether there was one.
    pub(super) fn forget(&mut self, emit: Emit<'_>) -> bool {
        if self.stores.release() {
            return true;
        }
        let at = match self.window {
            Span::Running => self.keys.oldest().map_or(NONE, |number| {
                self.keys.unlink(number);
                self.groups.get(number as usize).map_or(NONE, |group| group.newest)
            }),
            Span::Fixed { step, .. } => self.pop_of_first_step(step),
            Span::Session { gap } => self.pop_first_session(gap),
        };
        let is_there = self.parts.get(at).is_some();
        if is_there {
            self.leave(at, emit);
            self.remove(at);
            self.lost.forgotten += 1;
        }
        is_there
    }

    fn pop_of_first_step(&mut self, step: i64) -> u32 {
        while let Some(first) = self.steps.front_mut() {
            let start = first.start;
            let number = first.groups.pop();
            if first.groups.is_empty() {
                self.pop_step();
                let first_end = self.steps.front().map_or(i64::MAX, |first| first.start.saturating_add(step));
                self.next_end = if self.steps.is_empty() { i64::MAX } else { self.next_end.max(first_end) };
            }
            // It may have left with the window that closes.
            if let Some(number) = number
                && let (_, at) = self.around(number, start)
                && self.parts.get(at).is_some_and(|part| part.start == start)
            {
                return at;
            }
        }
        NONE
    }

    fn pop_first_session(&mut self, gap: i64) -> u32 {
        while let Some((end, (at, stamp))) = self.ends.pop() {
            let Some(part) = self.parts.get(at).filter(|part| part.stamp == stamp) else { continue };
            let actual = part.last.saturating_add(gap);
            if actual <= end {
                return at;
            }
            self.ends.push(actual, (at, stamp));
        }
        NONE
    }
}

/// The first end of a window behind this time, where windows begin at multiples of the step.
#[inline]
fn end_behind(time: i64, step: i64) -> i64 {
    time.div_euclid(step).saturating_add(1).saturating_mul(step)
}
