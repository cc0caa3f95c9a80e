//! The last row by key, and a walk over all of them beside what changes.
//!
//! The output is one sequence of rows, from which each reader takes its part ([`SnapshotHandler`](crate::SnapshotHandler)): a change
//! is the row of before and the row of now. A walk gives all rows, some at a time, between two marks. Of a change the reader
//! learns whether the walk has passed the key: if not, the walk brings the row that is there then. So a reader that begins with a walk
//! has every row once, and every change behind it, while the state is kept once for all readers.

use crossdock_format::{Format, Record};
use crossdock_query::LatestByKey;

use super::arena::{Arena, Block};
use super::gathered::Gathered;
use super::keys::{ENTRY_BYTES, KeyColumns, Keys};
use super::moment::{Budget, Emit, Lost, Made};
use super::use_order::{PLACES, UseOrder};
use crate::handler::ParameterValues;
use crate::kernel::FieldPosition;
use crate::saved::{SavedBytes, put_bytes, put_flag, put_i64};
use crate::snapshot::{StateStep, UNWALKED};

/// Bytes of the rows that one step of a walk gives, and keys that it looks at: what comes meanwhile waits no longer than that.
const WALK_BYTES: usize = 32 << 10;
const WALK_KEYS: u32 = 2048;
/// Keys that one row lets go where a bound has become smaller.
const MOST_SHED: usize = 64;
/// Keys that move up in the order of use for each row that is put in.
const TIDIED: usize = 4;
/// The bytes that a key takes besides the block of its row, and besides its own bytes if they are many.
const KEY_BYTES: usize = ENTRY_BYTES + PLACES * size_of::<u32>();
/// The bytes before a row in its block: the block's length, the number of the walk in which its key came first, and when the row came.
const HEADER: usize = 16;
/// Groups of rows that are gathered: of the second one the entries of keys are prefetched, of the third one the blocks.
const DEPTH: usize = 4;

/// The state.
#[derive(Debug)]
pub(super) struct Latest {
    columns: KeyColumns,
    format: Format,
    /// Where the step is in a row.
    step: FieldPosition,
    max_keys: usize,
    max_bytes: usize,
    max_age: Option<i64>,
    /// Beside each its place in the order of use, and the place of its row's block.
    keys: Keys,
    order: UseOrder,
    arena: Arena,
    /// The bytes of a block that are prefetched.
    ahead: usize,
    /// How many take what leaves; without any nothing does.
    readers: u32,
    /// Walks that were asked for, and whether one of them has not begun.
    walks: u64,
    wants_walk: bool,
    walk: Option<Walk>,
    /// The number of the walk, or of the last one.
    walk_number: u32,
    /// A row as it leaves.
    row: Vec<u8>,
    /// A row of no key, for marks.
    blank: Vec<u8>,
    key: Vec<u8>,
    /// With the time at which they came.
    gathered: Gathered<i64, DEPTH>,
    pub(super) lost: Lost,
}

/// The last row of a key, as its block's header says.
#[derive(Clone, Copy, Debug)]
struct Kept {
    block: Block,
    /// The number of the walk in which the key came first.
    born: u32,
    /// When the row came, in ns since 1970.
    time: i64,
}

impl Kept {
    /// The bytes before this row in its block.
    fn header(row: &[u8], born: u32, time: i64) -> [u8; HEADER] {
        let length = (HEADER + row.len()) as u32;
        (u128::from(length) | u128::from(born) << 32 | u128::from(time as u64) << 64).to_le_bytes()
    }

    /// The row whose block is at this place.
    #[inline]
    fn at(place: u32, arena: &Arena) -> Option<Kept> {
        let header = u128::from_le_bytes(arena.first_bytes(place)?);
        Some(Kept { block: Block::of(place, header as u32), born: (header >> 32) as u32, time: (header >> 64) as i64 })
    }

    fn row(self, arena: &Arena) -> &[u8] {
        arena.get(self.block).get(HEADER..).unwrap_or_default()
    }
}

/// How far a walk has come, in keys by number.
#[derive(Clone, Copy, Debug)]
struct Walk {
    next: u32,
    end: u32,
}

/// An order to the handler of a stream's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StateOrder {
    /// How many subscriptions take what it makes.
    pub readers: u32,
    /// How many of them have been there since the start of the daemon: each begins with a walk over all rows.
    pub walks: u64,
}

impl StateOrder {
    /// The order in the form in which a handler takes it: [`Handler::set_parameters`](crate::Handler::set_parameters).
    #[must_use]
    pub fn into_values(self) -> ParameterValues {
        ParameterValues::new(self)
    }
}

impl Latest {
    /// The state for rows of this format.
    ///
    /// # Errors
    /// In words: the columns do not fit.
    pub(super) fn of(plan: &LatestByKey, format: &Format) -> Result<Latest, String> {
        let step = format.fields().last().ok_or("a state's rows have a column for their step")?;
        let mut blank = vec![0; format.fixed_bytes()];
        let length = blank.len() as u32;
        blank.first_chunk_mut().into_iter().for_each(|word| *word = length.to_le_bytes());
        let mut latest = Latest {
            columns: KeyColumns::of(format, &plan.keys, false)?,
            format: format.clone(),
            step: FieldPosition::of(step),
            max_keys: 0,
            max_bytes: 0,
            max_age: None,
            keys: Keys::default(),
            order: UseOrder::default(),
            arena: Arena::default(),
            ahead: HEADER + format.fixed_bytes(),
            readers: 0,
            walks: 0,
            wants_walk: false,
            walk: None,
            walk_number: 0,
            row: Vec::with_capacity(blank.len()),
            blank,
            key: Vec::new(),
            gathered: Gathered::default(),
            lost: Lost::default(),
        };
        latest.adopt(plan);
        Ok(latest)
    }

    /// Goes by the bounds of this plan.
    pub(super) fn adopt(&mut self, plan: &LatestByKey) {
        self.max_keys = usize::try_from(plan.max_keys).unwrap_or(usize::MAX);
        self.max_bytes = usize::try_from(plan.max_bytes).unwrap_or(usize::MAX);
        self.max_age = plan.max_age_ns.map(|age| i64::try_from(age).unwrap_or(i64::MAX));
        self.arena.bound(self.max_bytes);
    }

    /// Carries out an order.
    pub(super) fn order(&mut self, order: StateOrder) {
        self.readers = order.readers;
        if order.readers == 0 {
            (self.walk, self.wants_walk) = (None, false);
        } else if order.walks > self.walks {
            self.wants_walk = true;
        }
        self.walks = self.walks.max(order.walks);
    }

    /// Keys that it keeps.
    pub(super) fn kept(&self) -> usize {
        self.keys.len()
    }

    /// How many bytes are in use.
    #[inline]
    pub(super) fn used(&self) -> usize {
        self.arena.used() + self.keys.len() * KEY_BYTES
    }

    /// Whether it has more than one of its bounds allows: in bytes that of its rows and keys, since the memory that they leave
    /// free comes back only by and by. The arena has a bound for that itself.
    #[inline]
    fn is_past_a_bound(&self) -> bool {
        self.keys.len() > self.max_keys || self.arena.live() + self.keys.len() * KEY_BYTES > self.max_bytes
    }

    /// Takes rows that came at this time.
    #[inline]
    pub(super) fn take(&mut self, rows: &[&[u8]], now: i64, emit: Emit<'_>) {
        for row in rows {
            let Latest { columns, format, key, keys, gathered, .. } = self;
            columns.read(&Record::assume_checked(format, row), key);
            if gathered.push(row, key, keys, now) {
                self.put_last(emit);
            }
        }
    }

    /// Puts the rows in that were gathered.
    pub(super) fn settle(&mut self, emit: Emit<'_>) {
        while !self.gathered.is_empty() {
            self.put_last(emit);
        }
    }

    /// Puts the rows of the last group in.
    fn put_last(&mut self, emit: Emit<'_>) {
        let (last, most) = self.gathered.take_last();
        let (mut rows, mut count) = (last.iter(), 0);
        for place in 0..most {
            self.prefetch_ahead(place);
            if let Some((row, key, hash, now)) = rows.next() {
                self.put((row, key, hash), *now, emit);
                count += 1;
            }
        }
        drop(rows);
        self.gathered.move_on(last);
        let Latest { keys, order, .. } = self;
        order.tidy(TIDIED * count, |number, place| keys.set_first_beside(number, place));
    }

    #[inline]
    fn prefetch_ahead(&mut self, place: usize) {
        let Latest { keys, order, arena, ahead, gathered, .. } = self;
        if let Some(number) = gathered.found(2, place) {
            let [place, block] = keys.beside(number);
            order.prefetch(place);
            arena.prefetch(block, *ahead);
        }
        if let Some(number) = gathered.find(place, keys) {
            keys.prefetch_entry(number);
        }
    }

    /// The row of a key that is there; none while a new one has none.
    #[inline]
    fn kept_of(&self, number: u32) -> Option<Kept> {
        let [_, place] = self.keys.beside(number);
        Kept::at(place, &self.arena)
    }

    #[inline]
    fn put(&mut self, (row, key, hash): (&[u8], &[u8], u32), now: i64, emit: Emit<'_>) {
        let Some((number, is_new)) = self.enter(key, hash, emit) else { return };
        let [place, block] = self.keys.beside(number);
        let before = Kept::at(block, &self.arena);
        let born = before.map_or(self.walk_number, |before| before.born);
        if self.has_begun() {
            let mark = self.mark(number, born);
            if let Some(before) = before {
                self.emit_kept(before, StateStep::Before, mark, emit);
            }
            self.emit(row, StateStep::After, mark, emit);
        }
        let place = if is_new { self.order.push(number) } else { self.order.again(place, number) };
        let block = before.map_or(Block::default(), |before| before.block);
        let block = self.store(block, row, born, now);
        self.keys.set_beside(number, [place, block.place()]);
        if block.len() == 0 {
            self.put_again(number, row, (born, now), emit);
        }
        self.shed(emit);
    }

    /// Stores a row in a block in place of this one, which is empty if there is no room.
    #[inline]
    fn store(&mut self, block: Block, row: &[u8], born: u32, now: i64) -> Block {
        let block = self.arena.renew(block, HEADER + row.len());
        if let Some((header, rest)) = self.arena.get_mut(block).and_then(|bytes| bytes.split_first_chunk_mut()) {
            *header = Kept::header(row, born, now);
            if rest.len() == row.len() {
                rest.copy_from_slice(row);
            }
        }
        block
    }

    /// The number of a key, and whether it is a new one. Others go for a new one where the arena has no room; if that is not enough,
    /// its row is one that is forgotten at once.
    fn enter(&mut self, key: &[u8], hash: u32, emit: Emit<'_>) -> Option<(u32, bool)> {
        loop {
            let entered = self.keys.enter_hashed(key, hash, &mut self.arena);
            if entered.is_some() {
                return entered;
            }
            if !self.forget(emit) {
                self.lost.forgotten += 1;
                return None;
            }
        }
    }

    /// Puts the row of the newest key in, for which the arena had no room: others go for it, or, if that is not enough, the key itself.
    #[cold]
    fn put_again(&mut self, number: u32, row: &[u8], (born, now): (u32, i64), emit: Emit<'_>) {
        let length = HEADER + row.len();
        while !self.arena.has_room(length) && self.order.oldest() != Some(number) && self.forget(emit) {}
        let block = self.store(Block::default(), row, born, now);
        if block.len() > 0 {
            let [place, _] = self.keys.beside(number);
            return self.keys.set_beside(number, [place, block.place()]);
        }
        if self.has_begun() {
            self.emit(row, StateStep::Gone, self.mark(number, born), emit);
        }
        self.let_go(number);
    }

    /// Whether a reader may have begun with this state: until its first walk, those that there are know another one, or none.
    #[inline]
    fn has_begun(&self) -> bool {
        self.readers > 0 && self.walk_number > 0
    }

    /// Whether no row leaves, whatever comes, because none takes it.
    #[inline]
    pub(super) fn is_silent(&self) -> bool {
        self.readers == 0
    }

    /// The mark of a change of a key: whether the walk is yet to come to it.
    #[inline]
    fn mark(&self, number: u32, born: u32) -> u8 {
        match self.walk {
            Some(walk) if number >= walk.next && born != self.walk_number => UNWALKED,
            _ => 0,
        }
    }

    #[inline]
    fn emit(&mut self, row: &[u8], step: StateStep, mark: u8, emit: Emit<'_>) {
        self.row.clear();
        self.row.extend_from_slice(row);
        if let Some(place) = self.row.get_mut(self.step.at) {
            *place = step as u8 | mark;
        }
        emit(Ok(Made::row(&self.row)));
    }

    fn emit_kept(&mut self, kept: Kept, step: StateStep, mark: u8, emit: Emit<'_>) {
        self.row.clear();
        self.row.extend_from_slice(kept.row(&self.arena));
        if let Some(place) = self.row.get_mut(self.step.at) {
            *place = step as u8 | mark;
        }
        emit(Ok(Made::row(&self.row)));
    }

    fn emit_mark(&mut self, step: StateStep, emit: Emit<'_>) {
        let blank = std::mem::take(&mut self.blank);
        self.emit(&blank, step, 0, emit);
        self.blank = blank;
    }

    /// Lets keys go until the state is within its bounds, or many have gone.
    #[inline]
    fn shed(&mut self, emit: Emit<'_>) {
        for _ in 0..MOST_SHED {
            if !self.is_past_a_bound() || !self.forget(emit) {
                return;
            }
        }
    }

    /// Lets the key go that had no row for the longest; returns whether there was one.
    fn forget(&mut self, emit: Emit<'_>) -> bool {
        let Some(number) = self.order.oldest() else { return false };
        if let Some(kept) = self.kept_of(number).filter(|_| self.has_begun()) {
            self.emit_kept(kept, StateStep::Gone, self.mark(number, kept.born), emit);
        }
        self.let_go(number);
        true
    }

    /// Forgets a key with its row.
    fn let_go(&mut self, number: u32) {
        if let Some(kept) = self.kept_of(number) {
            self.arena.free(kept.block);
        }
        self.order.remove(self.keys.beside(number)[0]);
        self.keys.remove(number, &mut self.arena);
        self.lost.forgotten += 1;
    }

    /// Lets the keys go whose rows are too old, and those that are too many since a bound has become smaller, as far as the budget goes;
    /// returns whether there are more.
    pub(super) fn expire(&mut self, now: i64, budget: &Budget, emit: Emit<'_>) -> bool {
        self.settle(emit);
        while self.next_end().is_some_and(|end| end <= now) {
            if budget.is_spent() {
                return true;
            }
            budget.spend(1);
            if !self.forget(emit) {
                return false;
            }
        }
        false
    }

    /// When the next key goes: at once where there are too many, else when the oldest row is too old.
    pub(super) fn next_end(&self) -> Option<i64> {
        if self.is_past_a_bound() && self.keys.len() > 0 {
            return Some(i64::MIN);
        }
        let oldest = self.order.oldest().and_then(|number| self.kept_of(number));
        Some(oldest?.time.saturating_add(self.max_age?))
    }

    /// Writes the rows, in the order in which their keys were used.
    pub(super) fn save(&self, out: &mut Vec<u8>) {
        for kept in self.order.iter().filter_map(|number| self.kept_of(number)) {
            put_flag(out, true);
            put_i64(out, kept.time);
            put_bytes(out, kept.row(&self.arena));
        }
        put_flag(out, false);
    }

    /// Takes the rows that were written, into a state without any, which has no readers yet. It keeps within its bounds.
    ///
    /// # Errors
    /// They were not written by a state like this. It is of no use then.
    pub(super) fn restore(&mut self, from: &mut SavedBytes<'_>) -> Result<(), &'static str> {
        let mut key = Vec::new();
        while from.flag()? {
            let (time, row) = (from.i64()?, from.row(&self.format)?);
            self.columns.read(&Record::assume_checked(&self.format, row), &mut key);
            let hash = self.keys.hash(&key);
            self.put((row, &key, hash), time, &mut |_| {});
        }
        Ok(())
    }

    /// Whether rows are to be walked over.
    pub(super) fn has_walk(&self) -> bool {
        self.walk.is_some() || self.wants_walk
    }

    /// Goes a step on with the walk.
    pub(super) fn walk(&mut self, emit: Emit<'_>) {
        let mut walk = match self.walk {
            Some(walk) => walk,
            None if self.wants_walk => self.begin_walk(emit),
            None => return,
        };
        let (mut bytes, until) = (0, walk.end.min(walk.next.saturating_add(WALK_KEYS)));
        while walk.next < until && bytes < WALK_BYTES {
            if self.keys.is_there(walk.next)
                && let Some(kept) = self.kept_of(walk.next)
                && kept.born != self.walk_number
            {
                self.emit_kept(kept, StateStep::Row, 0, emit);
                bytes += kept.block.len();
            }
            walk.next += 1;
        }
        self.walk = Some(walk);
        if walk.next >= walk.end {
            self.walk = None;
            self.emit_mark(StateStep::End, emit);
        }
    }

    fn begin_walk(&mut self, emit: Emit<'_>) -> Walk {
        self.wants_walk = false;
        let first = self.walk_number == 0;
        // 0 is the number of none.
        self.walk_number = self.walk_number.checked_add(1).unwrap_or(1);
        self.emit_mark(if first { StateStep::BeginOfNew } else { StateStep::Begin }, emit);
        Walk { next: 0, end: self.keys.end() }
    }
}
