//! GROUP BY: groups by key, and in each the parts of windows that are open.
//!
//! A *part* has the aggregates of a group's rows in a stretch of time: a tumbling window, one step of hopping ones, a session, or
//! all time. A part of fixed length is found by its group's key and its start, so that a row costs one look-up, however many windows
//! it is in and however many are open. When a hopping window closes, its parts are added up.
//!
//! A call closes a bounded number of parts (see [`Budget`]). Other windows that are due stay, and the next call goes on.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use crossdock_format::{Format, Record, RecordBuilder, Value};
use crossdock_query::{Aggregation, EvalError, MAX_WINDOWS, RowTime, Window};

use super::accumulate::{Slots, Stores};
use super::arena::Arena;
use super::keys::{ENTRY_BYTES, KeyColumns, Keys, NONE};
use super::moment::{Budget, Emit, Lost, Moment, refused};

/// The state of GROUP BY.
#[derive(Debug)]
pub(super) struct Windows {
    window: Span,
    by_arrival: bool,
    columns: KeyColumns,
    slots: Slots,
    keys: Keys,
    /// By a key's number: its part; of sessions, how many parts the group has.
    of_key: Vec<u32>,
    parts: Vec<Part>,
    /// The parts' slots, one after the other.
    sums: Vec<u8>,
    vacant: u32,
    there: usize,
    /// Of windows of fixed length: the parts by their start, rising.
    steps: VecDeque<WindowStep>,
    /// The end of the hopping window that closes next.
    next_end: i64,
    /// Of sessions: when each may end; it is looked at again then.
    ends: BinaryHeap<Reverse<(i64, u32, u32)>>,
    /// The sessions that are open, by the number of their key and by their start.
    sessions: BTreeMap<(u32, i64), u32>,
    stores: Stores,
    row: RecordBuilder,
    input: Format,
    key: Vec<u8>,
    /// The parts of the windows that close together; the next one is the last.
    closing: Vec<Closing>,
    total: Vec<u8>,
    arrived: i64,
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
struct Part {
    key: u32,
    /// The next one of its step, or the next that is free.
    next: u32,
    /// How often its number was given out.
    stamp: u32,
    start: i64,
    /// The time of the last row, of a session.
    last: i64,
}

/// The parts that begin at one time.
#[derive(Clone, Copy, Debug)]
struct WindowStep {
    start: i64,
    first: u32,
}

/// A part of a window that closes.
#[derive(Clone, Copy, Debug)]
struct Closing {
    end: i64,
    /// The first bytes of its group's key.
    prefix: u64,
    part: u32,
    /// The stamp that the part had: with another one it is gone.
    stamp: u32,
}

/// The bytes of a start behind the key of a group.
const START_BYTES: usize = size_of::<i64>();

/// The bytes that a session takes in the table by start, with the room that its nodes leave free.
const SESSION_BYTES: usize = 2 * size_of::<((u32, i64), u32)>();

/// The entries of sessions that are gone, beside as many as there are sessions, before they are removed.
const MOST_STALE: usize = 64;

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
        let slots = Slots::of(&aggregation.aggregates, input, by_arrival)?;
        let stores = Stores::of(slots.distinct(input)?);
        Ok(Windows {
            window,
            by_arrival,
            columns: KeyColumns::of(input, &aggregation.keys, false)?,
            total: vec![0; slots.bytes()],
            slots,
            keys: Keys::default(),
            of_key: Vec::new(),
            parts: Vec::new(),
            sums: Vec::new(),
            vacant: NONE,
            there: 0,
            steps: VecDeque::new(),
            next_end: i64::MAX,
            ends: BinaryHeap::new(),
            sessions: BTreeMap::new(),
            stores,
            row: RecordBuilder::new(rows),
            input: input.clone(),
            key: Vec::new(),
            closing: Vec::new(),
            arrived: 0,
            lost: Lost::default(),
        })
    }

    /// Whether its windows are of the time of arrival.
    pub(super) fn wants_time(&self) -> bool {
        self.by_arrival && self.window != Span::Running
    }

    /// How many bytes are in use.
    pub(super) fn used(&self) -> usize {
        let part = size_of::<Part>() + size_of::<Closing>() + self.slots.bytes();
        self.keys.len() * (ENTRY_BYTES + size_of::<u32>())
            + self.there * part
            + self.steps.len() * size_of::<WindowStep>()
            + self.ends.len() * size_of::<Reverse<(i64, u32, u32)>>()
            + self.sessions.len() * SESSION_BYTES
            + self.stores.used()
    }

    /// The time at which the next window ends, if there is one.
    pub(super) fn next_end(&self) -> Option<i64> {
        match self.window {
            Span::Running => None,
            Span::Fixed { .. } => (!self.steps.is_empty()).then_some(self.next_end),
            Span::Session { .. } => self.ends.peek().map(|Reverse((end, ..))| *end),
        }
    }

    /// The least start or end of the windows that are yet to leave, at this watermark.
    pub(super) fn given(&self, time: RowTime, watermark: i64) -> i64 {
        let closing = self.closing.last().map_or(i64::MAX, |next| next.end);
        let end = watermark.min(closing).min(self.next_end().unwrap_or(i64::MAX));
        match (time, self.window) {
            (RowTime::WindowEnd, Span::Fixed { .. } | Span::Session { .. }) => end,
            (RowTime::WindowStart, Span::Fixed { size, .. }) => end.saturating_sub(size),
            _ => i64::MIN,
        }
    }

    /// Takes a row, at a time that the watermark has not passed; but rows of windows that are closed, or beyond all times, are late.
    pub(super) fn take(&mut self, bytes: &[u8], moment: Moment, emit: Emit<'_>) {
        let input = self.input.clone();
        let row = Record::assume_checked(&input, bytes);
        let Moment { time, watermark, .. } = moment;
        let Some(start) = self.start_of(time, watermark) else {
            self.lost.late += 1;
            return;
        };
        let mut key = std::mem::take(&mut self.key);
        self.columns.read(&row, &mut key);
        if matches!(self.window, Span::Fixed { .. }) {
            key.extend_from_slice(&start.to_le_bytes());
        }
        let (number, is_new) = self.keys.enter(&key, &mut self.stores.arena);
        self.key = key;
        if self.of_key.len() <= number as usize {
            self.of_key.resize(number as usize + 1, 0);
        }
        let part = match self.window {
            Span::Session { gap } => {
                if is_new {
                    self.of_key[number as usize] = 0;
                }
                self.session(number, time, gap)
            }
            _ if is_new => self.first_part(number, start, watermark),
            _ => self.of_key[number as usize],
        };
        let order = if self.by_arrival {
            self.arrived += 1;
            self.arrived
        } else {
            time
        };
        if let Some(sums) = slots_of(&mut self.sums, part, self.slots.bytes()) {
            self.slots.update(sums, &mut self.stores, part, &row, order);
        }
        if self.window == Span::Running {
            self.keys.used(number, is_new);
            self.emit_part(part, None, emit);
        }
    }

    /// Where the part of a row begins; `None` if its last window is closed, or one of its windows would not be within all times.
    fn start_of(&self, time: i64, watermark: i64) -> Option<i64> {
        match self.window {
            Span::Running => Some(0),
            Span::Fixed { size, step } => {
                let start = time.div_euclid(step).checked_mul(step)?;
                start.checked_add(step)?.checked_sub(size)?;
                start.checked_add(size).filter(|end| *end > watermark).map(|_| start)
            }
            Span::Session { gap } => time.checked_add(gap).filter(|end| *end > watermark).map(|_| time),
        }
    }

    fn first_part(&mut self, number: u32, start: i64, watermark: i64) -> u32 {
        let fresh = self.add(Part { key: number, next: NONE, stamp: 0, start, last: start });
        self.of_key[number as usize] = fresh;
        if let Span::Fixed { step, .. } = self.window {
            self.add_to_step(fresh, start, step, watermark);
        }
        fresh
    }

    fn add_to_step(&mut self, at: u32, start: i64, step: i64, watermark: i64) {
        let place = match self.steps.back() {
            Some(last) if last.start == start => self.steps.len() - 1,
            _ => match self.steps.binary_search_by_key(&start, |step| step.start) {
                Ok(place) => place,
                Err(place) => {
                    self.steps.insert(place, WindowStep { start, first: NONE });
                    if place == 0 {
                        // The first window that it is in ends with it; but those that end before the watermark are closed.
                        let open = watermark.div_euclid(step).saturating_add(1).saturating_mul(step);
                        let end = start.saturating_add(step).max(open);
                        self.next_end = if self.steps.len() == 1 { end } else { self.next_end.min(end) };
                    }
                    place
                }
            },
        };
        if let Some(step) = self.steps.get_mut(place) {
            let next = std::mem::replace(&mut step.first, at);
            if let Some(part) = self.parts.get_mut(at as usize) {
                part.next = next;
            }
        }
    }

    /// The session of a group that a row at a time is in: one that it makes longer, or a new one. Two that it joins are one.
    fn session(&mut self, number: u32, time: i64, gap: i64) -> u32 {
        let before = self.sessions.range((number, i64::MIN)..=(number, time)).next_back().map(|(_, at)| *at);
        let before = before.filter(|at| self.parts[*at as usize].last.saturating_add(gap) > time);
        let behind = self.sessions.range((number, time)..=(number, i64::MAX)).next();
        let behind = behind.filter(|((_, start), _)| *start < time.saturating_add(gap)).map(|(_, at)| *at);
        match (before, behind) {
            (Some(before), behind) => {
                let last = &mut self.parts[before as usize].last;
                *last = time.max(*last);
                if let Some(behind) = behind.filter(|behind| *behind != before) {
                    self.join_sessions(before, behind);
                }
                before
            }
            (None, Some(behind)) => {
                let start = std::mem::replace(&mut self.parts[behind as usize].start, time);
                self.sessions.remove(&(number, start));
                self.sessions.insert((number, time), behind);
                behind
            }
            (None, None) => {
                let fresh = self.add(Part { key: number, next: NONE, stamp: 0, start: time, last: time });
                self.of_key[number as usize] += 1;
                self.sessions.insert((number, time), fresh);
                self.ends.push(Reverse((time.saturating_add(gap), fresh, self.parts[fresh as usize].stamp)));
                fresh
            }
        }
    }

    /// Makes one of two sessions of a group.
    fn join_sessions(&mut self, into: u32, behind: u32) {
        let bytes = self.slots.bytes();
        let mut from = std::mem::take(&mut self.total);
        if let Some(sums) = slots_of(&mut self.sums, behind, bytes) {
            from.copy_from_slice(sums);
        }
        if let Some(into_sums) = slots_of(&mut self.sums, into, bytes) {
            self.slots.merge(into_sums, into, &from, &mut self.stores);
        }
        self.total = from;
        self.total.fill(0);
        let Part { key, start, last, .. } = self.parts[behind as usize];
        let of_into = &mut self.parts[into as usize].last;
        *of_into = last.max(*of_into);
        self.sessions.remove(&(key, start));
        self.of_key[key as usize] -= 1;
        // Its time to end stays where it is, and finds another stamp.
        self.free(behind);
        if self.ends.len() > 2 * self.there + MOST_STALE {
            let parts = &self.parts;
            self.ends.retain(|Reverse((_, at, stamp))| parts[*at as usize].stamp == *stamp);
        }
    }

    fn add(&mut self, part: Part) -> u32 {
        self.there += 1;
        match self.parts.get_mut(self.vacant as usize) {
            Some(vacant) => {
                let (next, stamp) = (vacant.next, vacant.stamp);
                *vacant = Part { stamp, ..part };
                std::mem::replace(&mut self.vacant, next)
            }
            None => {
                self.parts.push(part);
                self.sums.resize(self.sums.len() + self.slots.bytes(), 0);
                self.parts.len() as u32 - 1
            }
        }
    }

    /// Lets go of a part that no group leads to.
    fn free(&mut self, at: u32) {
        if let Some(sums) = slots_of(&mut self.sums, at, self.slots.bytes()) {
            self.slots.clear(sums, &mut self.stores);
        }
        if let Some(part) = self.parts.get_mut(at as usize) {
            part.stamp = part.stamp.wrapping_add(1);
            part.next = std::mem::replace(&mut self.vacant, at);
            self.there -= 1;
        }
    }

    /// Lets go of a part, and of its key with the last one.
    fn remove(&mut self, at: u32) {
        let Some(&Part { key, start, .. }) = self.parts.get(at as usize) else { return };
        let mut is_last = true;
        if matches!(self.window, Span::Session { .. }) {
            // One that closes is no longer among them.
            if self.sessions.get(&(key, start)) == Some(&at) {
                self.sessions.remove(&(key, start));
            }
            self.of_key[key as usize] -= 1;
            is_last = self.of_key[key as usize] == 0;
        }
        self.free(at);
        if is_last {
            self.keys.remove(key, &mut self.stores.arena);
        }
        if self.there == 0 {
            self.ends.clear();
        }
    }

    /// Closes windows that end at this time or before, as far as the budget goes; returns whether there are more. Rows leave in order of
    /// end and key.
    #[inline]
    pub(super) fn close(&mut self, watermark: i64, budget: &Budget, emit: Emit<'_>) -> bool {
        while self.is_due(watermark) {
            if budget.is_spent() {
                return true;
            }
            match self.window {
                Span::Running => return false,
                Span::Fixed { size, step } if size == step => self.close_tumbling(size, budget, emit),
                Span::Fixed { size, step } => self.close_hopping(size, step, budget, emit),
                Span::Session { gap } => self.close_sessions(watermark, gap, budget, emit),
            }
        }
        false
    }

    fn is_due(&self, watermark: i64) -> bool {
        !self.closing.is_empty() || self.next_end().is_some_and(|end| end <= watermark)
    }

    fn close_tumbling(&mut self, size: i64, budget: &Budget, emit: Emit<'_>) {
        if self.closing.is_empty()
            && let Some(WindowStep { start, first }) = self.steps.pop_front()
        {
            self.gather(first, start.saturating_add(size));
            self.next_end = self.steps.front().map_or(i64::MAX, |step| step.start.saturating_add(size));
            self.sort_closing();
        }
        self.emit_closing(budget, emit);
    }

    fn close_sessions(&mut self, watermark: i64, gap: i64, budget: &Budget, emit: Emit<'_>) {
        if self.closing.is_empty() {
            self.gather_sessions(watermark, gap);
        }
        self.emit_closing(budget, emit);
    }

    /// Takes the sessions that are over from those that rows may belong to.
    fn gather_sessions(&mut self, watermark: i64, gap: i64) {
        while let Some(&Reverse((end, at, stamp))) = self.ends.peek()
            && end <= watermark
        {
            self.ends.pop();
            let Some(&part) = self.parts.get(at as usize).filter(|part| part.stamp == stamp) else { continue };
            let actual = part.last.saturating_add(gap);
            if actual <= watermark {
                self.sessions.remove(&(part.key, part.start));
                let prefix = prefix_of(self.group(part.key));
                self.closing.push(Closing { end: actual, prefix, part: at, stamp });
            } else {
                self.ends.push(Reverse((actual, at, stamp)));
            }
        }
        self.sort_closing();
    }

    /// Adds the parts of a step to those that close.
    fn gather(&mut self, first: u32, end: i64) {
        let mut at = first;
        while let Some(&Part { key, next, stamp, .. }) = self.parts.get(at as usize) {
            let prefix = prefix_of(self.group(key));
            self.closing.push(Closing { end, prefix, part: at, stamp });
            at = next;
        }
    }

    /// The key of a group, from that of a part.
    fn group(&self, number: u32) -> &[u8] {
        group_of(&self.keys, &self.stores.arena, self.window, number)
    }

    /// Emits the parts that close, in order, and lets go of them.
    fn emit_closing(&mut self, budget: &Budget, emit: Emit<'_>) {
        while !budget.is_spent()
            && let Some(Closing { end, part: at, stamp, .. }) = self.closing.pop()
        {
            if let Some(part) = self.parts.get(at as usize).filter(|part| part.stamp == stamp) {
                budget.spend(1);
                let window = (part.start, end);
                self.emit_part(at, Some(window), emit);
                self.remove(at);
            }
        }
    }

    /// By end, then by key, then by start; the first is the last.
    fn sort_closing(&mut self) {
        let mut closing = std::mem::take(&mut self.closing);
        let part =
            |closing: &Closing| self.parts.get(closing.part as usize).map_or((NONE, 0), |part| (part.key, part.start));
        closing.sort_unstable_by(|one, other| {
            (other.end, other.prefix).cmp(&(one.end, one.prefix)).then_with(|| {
                let ((one_key, one_start), (other_key, other_start)) = (part(one), part(other));
                self.group(other_key).cmp(self.group(one_key)).then(other_start.cmp(&one_start))
            })
        });
        self.closing = closing;
    }

    fn close_hopping(&mut self, size: i64, step: i64, budget: &Budget, emit: Emit<'_>) {
        // A window that closes goes on, also where all of its parts were forgotten and the next one ends later.
        let end = self.closing.first().map_or(self.next_end, |closing| closing.end);
        let start = end.saturating_sub(size);
        if self.closing.is_empty() {
            for number in 0..self.steps.len() {
                let of_step = self.steps[number];
                if of_step.start >= end {
                    break;
                }
                if of_step.start >= start {
                    self.gather(of_step.first, end);
                }
            }
            self.sort_closing();
        }
        while !self.closing.is_empty() {
            if budget.is_spent() {
                return;
            }
            self.emit_window((start, end), budget, emit);
        }
        let next = end.saturating_add(step);
        while let Some(&WindowStep { start, first }) = self.steps.front()
            && start < next.saturating_sub(size)
        {
            self.steps.pop_front();
            self.remove_all(first);
        }
        self.next_end = self.steps.front().map_or(i64::MAX, |first| next.max(first.start.saturating_add(step)));
    }

    fn remove_all(&mut self, first: u32) {
        let mut at = first;
        while let Some(part) = self.parts.get(at as usize) {
            let next = part.next;
            self.remove(at);
            at = next;
        }
    }

    /// Emits a hopping window of the group that is next: its parts together.
    fn emit_window(&mut self, window: (i64, i64), budget: &Budget, emit: Emit<'_>) {
        let Some(first) = self.next_closing(None, budget) else { return };
        let key = self.parts[first as usize].key;
        let Some(second) = self.next_closing(Some(key), budget) else {
            return self.emit_part(first, Some(window), emit);
        };
        let mut total = std::mem::take(&mut self.total);
        let bytes = self.slots.bytes();
        let (mut at, mut next) = (first, Some(second));
        loop {
            if let Some(sums) = slots_of(&mut self.sums, at, bytes) {
                self.slots.merge(&mut total, TOTAL, sums, &mut self.stores);
            }
            let Some(behind) = next else { break };
            (at, next) = (behind, self.next_closing(Some(key), budget));
        }
        self.emit(key, &total, Some(window), emit);
        self.slots.clear(&mut total, &mut self.stores);
        self.total = total;
    }

    /// The next part that closes, of the group of a key if there is one.
    fn next_closing(&mut self, key: Option<u32>, budget: &Budget) -> Option<u32> {
        while let Some(&Closing { part, stamp, .. }) = self.closing.last() {
            let there = self.parts.get(part as usize).filter(|part| part.stamp == stamp).map(|part| part.key);
            if let (Some(own), Some(key)) = (there, key)
                && self.group(own) != self.group(key)
            {
                return None;
            }
            self.closing.pop();
            if there.is_some() {
                budget.spend(1);
                return Some(part);
            }
        }
        None
    }

    fn emit_part(&mut self, at: u32, window: Option<(i64, i64)>, emit: Emit<'_>) {
        let Some(key) = self.parts.get(at as usize).map(|part| part.key) else { return };
        let bytes = self.slots.bytes();
        let mut total = std::mem::take(&mut self.total);
        if let Some(sums) = slots_of(&mut self.sums, at, bytes) {
            total.copy_from_slice(sums);
        }
        self.emit(key, &total, window, emit);
        total.fill(0);
        self.total = total;
    }

    /// Emits the row of a group.
    fn emit(&mut self, number: u32, sums: &[u8], window: Option<(i64, i64)>, emit: Emit<'_>) {
        let Windows { window: window_kind, columns, slots, keys, stores, row, .. } = self;
        row.clear();
        let mut column = 0;
        let mut result: Result<(), EvalError> = Ok(());
        let mut set = |row: &mut RecordBuilder, value: Value<'_>| {
            column += 1;
            row.set(column - 1, value).map_err(|error| refused(&error))
        };
        columns.values(group_of(keys, &stores.arena, *window_kind, number), |_, value| {
            if result.is_ok() {
                result = set(row, value);
            }
        });
        if let Some((start, end)) = window {
            result =
                result.and_then(|()| set(row, Value::Timestamp(start))).and_then(|()| set(row, Value::Timestamp(end)));
        }
        let result = result
            .and_then(|()| slots.results(sums, stores, |_, value| set(row, value)))
            .and_then(|()| row.finish().map_err(|_| EvalError::RecordTooLong));
        emit(result);
    }

    /// Forgets the oldest: of windows the part that began first, of sessions the one that ends first, of groups without windows the
    /// one that was not used for the longest. Returns whether there was one.
    pub(super) fn forget(&mut self) -> bool {
        let at = match self.window {
            Span::Running => match self.keys.oldest() {
                Some(number) => {
                    self.keys.unlink(number);
                    self.of_key.get(number as usize).copied().unwrap_or(NONE)
                }
                None => NONE,
            },
            Span::Fixed { .. } => self.pop_of_first_step(),
            Span::Session { .. } => self.pop_first_session(),
        };
        let at = if at == NONE { self.pop_last_closing() } else { at };
        let is_there = self.parts.get(at as usize).is_some();
        if is_there {
            self.remove(at);
            self.lost.forgotten += 1;
        }
        is_there
    }

    /// Of those that close, the one that would leave last.
    fn pop_last_closing(&mut self) -> u32 {
        while !self.closing.is_empty() {
            let Closing { part, stamp, .. } = self.closing.remove(0);
            if self.parts.get(part as usize).is_some_and(|part| part.stamp == stamp) {
                return part;
            }
        }
        NONE
    }

    fn pop_of_first_step(&mut self) -> u32 {
        let Some(step) = self.steps.front_mut() else { return NONE };
        let at = step.first;
        step.first = self.parts.get(at as usize).map_or(NONE, |part| part.next);
        if step.first == NONE {
            self.steps.pop_front();
            let (size, step) = match self.window {
                Span::Fixed { size, step } => (size, step),
                _ => (0, 0),
            };
            let ends = |start: i64| start.saturating_add(if size == step { size } else { step });
            self.next_end = self.steps.front().map_or(i64::MAX, |first| self.next_end.max(ends(first.start)));
        }
        at
    }

    fn pop_first_session(&mut self) -> u32 {
        let Span::Session { gap } = self.window else { return NONE };
        while let Some(Reverse((end, at, stamp))) = self.ends.pop() {
            let Some(part) = self.parts.get(at as usize).filter(|part| part.stamp == stamp) else { continue };
            let actual = part.last.saturating_add(gap);
            if actual <= end {
                return at;
            }
            self.ends.push(Reverse((actual, at, stamp)));
        }
        NONE
    }
}

/// The key of a group: that of its parts, whose last bytes are their start where windows are of fixed length.
fn group_of<'k>(keys: &'k Keys, arena: &'k Arena, window: Span, number: u32) -> &'k [u8] {
    let key = keys.key(number, arena);
    let start = if matches!(window, Span::Fixed { .. }) { START_BYTES } else { 0 };
    key.get(..key.len().saturating_sub(start)).unwrap_or_default()
}

/// The first bytes of a key as a number: of two keys with others, the lesser one has the lesser number.
fn prefix_of(key: &[u8]) -> u64 {
    let mut prefix = [0; 8];
    let len = key.len().min(8);
    prefix[..len].copy_from_slice(&key[..len]);
    u64::from_be_bytes(prefix)
}

#[inline]
fn slots_of(sums: &mut [u8], at: u32, bytes: usize) -> Option<&mut [u8]> {
    let start = at as usize * bytes;
    sums.get_mut(start..start + bytes)
}
