//! GROUP BY: groups by key, and in each the parts of windows that are open.
//!
//! A *part* has the aggregates of a group's rows in a stretch of time: a tumbling window, one step of hopping ones, a session, or
//! all time. The parts of a group are linked, the newest first; so a row costs one look-up, however many windows it is in. When a
//! hopping window closes, its parts are added up.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crossdock_format::{Format, Record, RecordBuilder, Value};
use crossdock_query::{Aggregation, EvalError, RowTime, Window};

use super::accumulate::{Slots, Stores};
use super::keys::{ENTRY_BYTES, KeyColumns, Keys, NONE};
use super::moment::{Emit, Lost, Moment, refused};

/// The state of GROUP BY.
#[derive(Debug)]
pub(super) struct Windows {
    window: Span,
    by_arrival: bool,
    columns: KeyColumns,
    slots: Slots,
    keys: Keys,
    /// By a key's number: its newest part.
    newest: Vec<u32>,
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
    stores: Stores,
    row: RecordBuilder,
    input: Format,
    key: Vec<u8>,
    /// The windows that close together.
    closing: Vec<(i64, u64, u32)>,
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
    /// The next older one of its group.
    older: u32,
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
        if matches!(window, Span::Fixed { size, step } if size % step != 0) {
            return Err("the length of a window is a multiple of its slide".to_owned());
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
            newest: Vec::new(),
            parts: Vec::new(),
            sums: Vec::new(),
            vacant: NONE,
            there: 0,
            steps: VecDeque::new(),
            next_end: i64::MAX,
            ends: BinaryHeap::new(),
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
        let part = size_of::<Part>() + self.slots.bytes() + if self.ends.is_empty() { 0 } else { 16 };
        self.keys.len() * (ENTRY_BYTES + size_of::<u32>()) + self.there * part + self.stores.used()
    }

    /// The time at which the next window ends, if there is one.
    pub(super) fn next_end(&self) -> Option<i64> {
        match self.window {
            Span::Running => None,
            Span::Fixed { .. } => (!self.steps.is_empty()).then_some(self.next_end),
            Span::Session { .. } => self.ends.peek().map(|Reverse((end, ..))| *end),
        }
    }

    /// The least start or end of the windows that are yet to close, at this watermark.
    pub(super) fn given(&self, time: RowTime, watermark: i64) -> i64 {
        match (time, self.window) {
            (RowTime::WindowEnd, Span::Fixed { .. } | Span::Session { .. }) => watermark,
            (RowTime::WindowStart, Span::Fixed { size, .. }) => watermark.saturating_sub(size),
            _ => i64::MIN,
        }
    }

    /// Takes a row, at a time that the watermark has not passed; but rows of windows that are closed are late.
    pub(super) fn take(&mut self, bytes: &[u8], moment: Moment, emit: Emit<'_>) {
        let input = self.input.clone();
        let row = Record::assume_checked(&input, bytes);
        let Moment { time, watermark, .. } = moment;
        let start = match self.window {
            Span::Running => 0,
            Span::Fixed { size, step } => {
                let start = time.div_euclid(step).saturating_mul(step);
                if start.saturating_add(size) <= watermark {
                    self.lost.late += 1;
                    return;
                }
                start
            }
            Span::Session { gap } => {
                if time.saturating_add(gap) <= watermark {
                    self.lost.late += 1;
                    return;
                }
                time
            }
        };
        let mut key = std::mem::take(&mut self.key);
        self.columns.read(&row, &mut key);
        let (number, is_new) = self.keys.enter(&key, &mut self.stores.arena);
        self.key = key;
        if is_new {
            if self.newest.len() <= number as usize {
                self.newest.resize(number as usize + 1, NONE);
            }
            self.newest[number as usize] = NONE;
        }
        let part = match self.window {
            Span::Session { gap } => self.session(number, time, gap),
            _ => self.part_of(number, start, watermark),
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

    /// The part of a group that begins at a time.
    #[inline]
    fn part_of(&mut self, number: u32, start: i64, watermark: i64) -> u32 {
        let mut before = NONE;
        let mut at = self.newest.get(number as usize).copied().unwrap_or(NONE);
        while let Some(part) = self.parts.get(at as usize) {
            if part.start == start {
                return at;
            }
            if part.start < start {
                break;
            }
            (before, at) = (at, part.older);
        }
        let fresh = self.add(Part { key: number, older: at, next: NONE, stamp: 0, start, last: start });
        self.link(number, before, fresh);
        if let Span::Fixed { step, .. } = self.window {
            self.add_to_step(fresh, start, step, watermark);
        }
        fresh
    }

    fn link(&mut self, number: u32, before: u32, at: u32) {
        match self.parts.get_mut(before as usize) {
            Some(before) => before.older = at,
            None => {
                if let Some(newest) = self.newest.get_mut(number as usize) {
                    *newest = at;
                }
            }
        }
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
        let mut before = NONE;
        let mut at = self.newest.get(number as usize).copied().unwrap_or(NONE);
        while let Some(part) = self.parts.get(at as usize).copied() {
            if part.last.saturating_add(gap) <= time {
                break;
            }
            if time.saturating_add(gap) > part.start {
                let (start, last) = (part.start.min(time), part.last.max(time));
                if let Some(part) = self.parts.get_mut(at as usize) {
                    (part.start, part.last) = (start, last);
                }
                self.join_older(at, gap);
                return at;
            }
            (before, at) = (at, part.older);
        }
        let fresh = self.add(Part { key: number, older: at, next: NONE, stamp: 0, start: time, last: time });
        self.link(number, before, fresh);
        let stamp = self.parts.get(fresh as usize).map_or(0, |part| part.stamp);
        self.ends.push(Reverse((time.saturating_add(gap), fresh, stamp)));
        fresh
    }

    /// Makes one of a session and the one before it, if they are no longer apart.
    fn join_older(&mut self, at: u32, gap: i64) {
        let Some(part) = self.parts.get(at as usize).copied() else { return };
        let Some(older) = self.parts.get(part.older as usize).copied() else { return };
        if older.last.saturating_add(gap) <= part.start {
            return;
        }
        let bytes = self.slots.bytes();
        let mut from = std::mem::take(&mut self.total);
        if let Some(sums) = slots_of(&mut self.sums, part.older, bytes) {
            from.copy_from_slice(sums);
        }
        if let Some(into) = slots_of(&mut self.sums, at, bytes) {
            self.slots.merge(into, at, &from, &mut self.stores);
        }
        self.total = from;
        self.total.fill(0);
        if let Some(part) = self.parts.get_mut(at as usize) {
            (part.start, part.older) = (older.start, older.older);
        }
        // Its time to end stays where it is, and finds another stamp.
        self.free(part.older);
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

    /// Takes a part out of its group, and lets go of it; the group, if it was its last.
    fn remove(&mut self, at: u32) {
        let Some(part) = self.parts.get(at as usize).copied() else { return };
        let mut before = NONE;
        let mut place = self.newest.get(part.key as usize).copied().unwrap_or(NONE);
        while place != at && place != NONE {
            before = place;
            place = self.parts.get(place as usize).map_or(NONE, |part| part.older);
        }
        self.link(part.key, before, part.older);
        self.free(at);
        if self.newest.get(part.key as usize) == Some(&NONE) {
            self.keys.remove(part.key, &mut self.stores.arena);
        }
    }

    /// Closes the windows that end at this time or before; their rows leave in order of end and key.
    #[inline]
    pub(super) fn close(&mut self, watermark: i64, emit: Emit<'_>) {
        if self.next_end().is_none_or(|end| end > watermark) {
            return;
        }
        match self.window {
            Span::Running => {}
            Span::Fixed { size, step } if size == step => self.close_tumbling(watermark, size, emit),
            Span::Fixed { size, step } => self.close_hopping(watermark, size, step, emit),
            Span::Session { gap } => self.close_sessions(watermark, gap, emit),
        }
    }

    fn close_tumbling(&mut self, watermark: i64, size: i64, emit: Emit<'_>) {
        while let Some(&WindowStep { start, first }) = self.steps.front()
            && start.saturating_add(size) <= watermark
        {
            self.steps.pop_front();
            let end = start.saturating_add(size);
            let mut at = first;
            while let Some(part) = self.parts.get(at as usize) {
                self.closing.push((end, self.keys.prefix(part.key, &self.stores.arena), at));
                at = part.next;
            }
            self.next_end = self.steps.front().map_or(i64::MAX, |step| step.start.saturating_add(size));
            self.emit_closing(|_, _| (start, end), emit);
        }
    }

    fn close_sessions(&mut self, watermark: i64, gap: i64, emit: Emit<'_>) {
        while let Some(&Reverse((end, at, stamp))) = self.ends.peek()
            && end <= watermark
        {
            self.ends.pop();
            let Some(part) = self.parts.get(at as usize).filter(|part| part.stamp == stamp) else { continue };
            let actual = part.last.saturating_add(gap);
            if actual <= watermark {
                self.closing.push((actual, self.keys.prefix(part.key, &self.stores.arena), at));
            } else {
                self.ends.push(Reverse((actual, at, stamp)));
            }
        }
        self.emit_closing(|part, end| (part.start, end), emit);
    }

    /// Emits the parts that close, in order, and lets go of them.
    fn emit_closing(&mut self, window: impl Fn(&Part, i64) -> (i64, i64), emit: Emit<'_>) {
        let mut closing = std::mem::take(&mut self.closing);
        self.sort(&mut closing, |windows, at| windows.parts.get(at as usize).map_or(NONE, |part| part.key));
        for &(end, _, at) in &closing {
            if let Some(part) = self.parts.get(at as usize) {
                let window = window(part, end);
                self.emit_part(at, Some(window), emit);
                self.remove(at);
            }
        }
        closing.clear();
        self.closing = closing;
    }

    /// By end, then by key.
    fn sort(&self, closing: &mut [(i64, u64, u32)], key: impl Fn(&Windows, u32) -> u32) {
        let bytes = |at| self.keys.key(key(self, at), &self.stores.arena);
        closing.sort_unstable_by(|one, other| {
            (one.0, one.1).cmp(&(other.0, other.1)).then_with(|| bytes(one.2).cmp(bytes(other.2)))
        });
    }

    fn close_hopping(&mut self, watermark: i64, size: i64, step: i64, emit: Emit<'_>) {
        while !self.steps.is_empty() && self.next_end <= watermark {
            let end = self.next_end;
            let start = end.saturating_sub(size);
            let mut closing = std::mem::take(&mut self.closing);
            for number in 0..self.keys.numbers() as u32 {
                // Numbers that are free lead to no part.
                if self.within(number, start, end) != NONE {
                    closing.push((end, self.keys.prefix(number, &self.stores.arena), number));
                }
            }
            self.sort(&mut closing, |_, number| number);
            for &(_, _, number) in &closing {
                self.emit_window(number, (start, end), emit);
            }
            closing.clear();
            self.closing = closing;
            let next = end.saturating_add(step);
            while let Some(&WindowStep { start, first }) = self.steps.front()
                && start < next.saturating_sub(size)
            {
                self.steps.pop_front();
                self.remove_all(first);
            }
            self.next_end = self.steps.front().map_or(i64::MAX, |first| next.max(first.start.saturating_add(step)));
            if next == i64::MAX {
                break;
            }
        }
    }

    fn remove_all(&mut self, first: u32) {
        let mut at = first;
        while let Some(part) = self.parts.get(at as usize) {
            let next = part.next;
            self.remove(at);
            at = next;
        }
    }

    /// The newest part of a group that begins in a window.
    fn within(&self, number: u32, start: i64, end: i64) -> u32 {
        let mut at = self.newest.get(number as usize).copied().unwrap_or(NONE);
        while let Some(part) = self.parts.get(at as usize) {
            if part.start < end {
                return if part.start >= start { at } else { NONE };
            }
            at = part.older;
        }
        NONE
    }

    /// Emits a hopping window of a group: its parts together.
    fn emit_window(&mut self, number: u32, window: (i64, i64), emit: Emit<'_>) {
        let mut at = self.within(number, window.0, window.1);
        let is_only = |windows: &Windows, part: &Part| {
            windows.parts.get(part.older as usize).is_none_or(|older| older.start < window.0)
        };
        if self.parts.get(at as usize).is_some_and(|part| is_only(self, part)) {
            return self.emit_part(at, Some(window), emit);
        }
        let mut total = std::mem::take(&mut self.total);
        let bytes = self.slots.bytes();
        while let Some(part) = self.parts.get(at as usize).filter(|part| part.start >= window.0) {
            if let Some(sums) = slots_of(&mut self.sums, at, bytes) {
                self.slots.merge(&mut total, TOTAL, sums, &mut self.stores);
            }
            at = part.older;
        }
        self.emit(number, &total, Some(window), emit);
        self.slots.clear(&mut total, &mut self.stores);
        self.total = total;
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
        let Windows { columns, slots, keys, stores, row, .. } = self;
        row.clear();
        let mut column = 0;
        let mut result: Result<(), EvalError> = Ok(());
        let mut set = |row: &mut RecordBuilder, value: Value<'_>| {
            column += 1;
            row.set(column - 1, value).map_err(|error| refused(&error))
        };
        columns.values(keys.key(number, &stores.arena), |_, value| {
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
                    self.newest.get(number as usize).copied().unwrap_or(NONE)
                }
                None => NONE,
            },
            Span::Fixed { .. } => self.pop_of_first_step(),
            Span::Session { .. } => self.pop_first_session(),
        };
        let is_there = self.parts.get(at as usize).is_some();
        if is_there {
            self.remove(at);
            self.lost.forgotten += 1;
        }
        is_there
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

#[inline]
fn slots_of(sums: &mut [u8], at: u32, bytes: usize) -> Option<&mut [u8]> {
    let start = at as usize * bytes;
    sums.get_mut(start..start + bytes)
}
