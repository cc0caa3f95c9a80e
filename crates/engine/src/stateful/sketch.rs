//! Estimates: how many different values there are, and below which value a part of them lies.
//!
//! Both are few lines, add in any order to the same result, and live in blocks of the group's arena, which no crate's sketch would.

use crossdock_format::Value;

use super::arena::{Arena, Block};
use super::cell::{load, store};
use crate::saved::{SavedBytes, counted, put_bytes};

/// HyperLogLog with 2,048 registers: the standard error is 2.3 %. Until it has many values, a list of the registers that are not zero.
pub(super) struct Registers;

const REGISTER_BITS: u32 = 11;
const REGISTERS: usize = 1 << REGISTER_BITS;
/// The longest list, in bytes.
const LIST_BYTES: usize = 512;
/// The greatest rank that a hash has.
const MOST_RANK: usize = 64 - REGISTER_BITS as usize + 1;

impl Registers {
    /// The bytes of its cell: the block.
    pub(super) const SIZE: usize = 8;

    /// Adds a value.
    pub(super) fn add(group: &mut [u8], at: usize, arena: &mut Arena, value: &Value<'_>) {
        let hash = hash_of(value);
        let register = (hash >> (64 - REGISTER_BITS)) as usize;
        let rank = ((hash << REGISTER_BITS) | 1 << (REGISTER_BITS - 1)).leading_zeros() + 1;
        Registers::raise(group, at, arena, register, rank as u8);
    }

    fn raise(group: &mut [u8], at: usize, arena: &mut Arena, register: usize, rank: u8) {
        let mut block = Block::from_bytes(load(group, at));
        if block.len() < REGISTERS {
            let entry = (register as u32) << 8 | u32::from(rank);
            if let Some(known) = arena.get_mut(block) {
                for place in known.as_chunks_mut::<4>().0 {
                    let there = u32::from_le_bytes(*place);
                    if there == 0 || there >> 8 == entry >> 8 {
                        *place = there.max(entry).to_le_bytes();
                        return;
                    }
                }
            }
            let len = block.len();
            if len < LIST_BYTES {
                block = arena.grow(block, (len * 2).max(16));
                if let Some(fresh) = arena.get_mut(block).and_then(|bytes| bytes.get_mut(len..)) {
                    fresh.fill(0);
                    store(fresh, 0, entry.to_le_bytes());
                }
                return store(group, at, block.to_bytes());
            }
            let mut dense = [0; REGISTERS];
            entries(arena.get(block)).for_each(|(register, rank)| dense[register] = rank);
            arena.free(block);
            block = arena.put(&dense);
            store(group, at, block.to_bytes());
        }
        if let Some(place) = arena.get_mut(block).and_then(|bytes| bytes.get_mut(register)) {
            *place = rank.max(*place);
        }
    }

    /// Adds the values of another group.
    pub(super) fn merge(into: &mut [u8], from: &[u8], at: usize, arena: &mut Arena) {
        let block = Block::from_bytes(load(from, at));
        let mut copy = [0; REGISTERS];
        entries(arena.get(block)).for_each(|(register, rank)| copy[register] = rank);
        for (register, rank) in copy.into_iter().enumerate().filter(|(_, rank)| *rank > 0) {
            Registers::raise(into, at, arena, register, rank);
        }
    }

    /// How many different values there are, about (Ertl's estimator, which has no bias at either end).
    pub(super) fn estimate(group: &[u8], at: usize, arena: &Arena) -> u64 {
        let mut with_rank = [0u32; MOST_RANK + 1];
        let mut there = 0;
        for (_, rank) in entries(arena.get(Block::from_bytes(load(group, at)))) {
            with_rank[usize::from(rank).min(MOST_RANK)] += 1;
            there += 1;
        }
        let (all, empty) = (REGISTERS as f64, f64::from(REGISTERS as u32 - there));
        let mut sum = all * tau(1.0 - f64::from(with_rank[MOST_RANK]) / all);
        for &count in with_rank[1..MOST_RANK].iter().rev() {
            sum = 0.5 * (sum + f64::from(count));
        }
        sum += all * sigma(empty / all);
        (all * all / (2.0 * std::f64::consts::LN_2 * sum)).round() as u64
    }

    /// Writes the registers.
    pub(super) fn save(group: &[u8], at: usize, arena: &Arena, out: &mut Vec<u8>) {
        put_bytes(out, arena.get(Block::from_bytes(load(group, at))));
    }

    /// Takes those that were written into an empty group.
    pub(super) fn restore(
        group: &mut [u8],
        at: usize,
        arena: &mut Arena,
        from: &mut SavedBytes<'_>,
    ) -> Result<(), &'static str> {
        let bytes = from.bytes()?;
        if bytes.len() != REGISTERS && (bytes.len() > LIST_BYTES || !bytes.len().is_multiple_of(4)) {
            return Err("registers have another length");
        }
        store(group, at, arena.put(bytes).to_bytes());
        Ok(())
    }

    /// Lets go of its memory.
    pub(super) fn clear(group: &mut [u8], at: usize, arena: &mut Arena) {
        arena.free(Block::from_bytes(load(group, at)));
        store(group, at, [0; 8]);
    }
}

/// The registers that are not zero.
fn entries(bytes: &[u8]) -> impl Iterator<Item = (usize, u8)> {
    let is_dense = bytes.len() >= REGISTERS;
    let (dense, list) = if is_dense { (bytes, &[][..]) } else { (&[][..], bytes) };
    let dense = dense.iter().enumerate().map(|(register, rank)| (register, *rank));
    let list = list.as_chunks::<4>().0.iter().map(|entry| u32::from_le_bytes(*entry));
    let list = list.map(|entry| ((entry >> 8) as usize % REGISTERS, entry as u8));
    dense.chain(list).filter(|(_, rank)| *rank > 0)
}

fn sigma(mut x: f64) -> f64 {
    if x >= 1.0 {
        return f64::INFINITY;
    }
    let (mut factor, mut sum) = (1.0, x);
    loop {
        x *= x;
        let before = sum;
        sum += x * factor;
        factor += factor;
        if sum == before {
            return sum;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return 0.0;
    }
    let (mut factor, mut sum) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = sum;
        factor *= 0.5;
        sum -= (1.0 - x) * (1.0 - x) * factor;
        if sum == before {
            return sum / 3.0;
        }
    }
}

/// A hash that is the same everywhere: estimates do not depend on which core made them.
fn hash_of(value: &Value<'_>) -> u64 {
    match value {
        Value::Int(value) | Value::Timestamp(value) => mixed(*value as u64),
        Value::Uint(value) => mixed(*value),
        Value::Bool(value) => mixed(u64::from(*value)),
        Value::Float(value) => mixed(crate::key::of_f64(*value) as u64),
        Value::Decimal { unscaled, .. } => mixed(*unscaled as u64 ^ mixed((*unscaled >> 64) as u64)),
        Value::Text(text) | Value::Bytes(text) => {
            let mut hash = mixed(text.len() as u64);
            for chunk in text.chunks(8) {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                hash = mixed(hash ^ u64::from_le_bytes(word));
            }
            hash
        }
        _ => 0,
    }
}

/// A number whose bits all depend on all of the given one's (the end of SplitMix64).
fn mixed(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// A DDSketch: how many values lie in each of the ranges whose ends are 2 % apart, so that an estimate is at most 1 % from a value.
pub(super) struct Quantiles;

/// The ratio of a range's ends.
const GAMMA: f64 = 1.01 / 0.99;
/// Ranges that are counted; past that, the lowest ones are one.
const MOST_RANGES: usize = 2048;
/// The bytes of a range: its number, and how many values lie in it.
const RANGE_BYTES: usize = 12;
/// Between the numbers of the ranges of positive numbers and 0, and beyond all of them.
const OFFSET: i32 = 50_000;
const INFINITE: i32 = 200_000;

impl Quantiles {
    /// The bytes of its cell: the block, and how many ranges are in it.
    pub(super) const SIZE: usize = 16;

    /// Adds a value that came a number of times.
    pub(super) fn add(group: &mut [u8], at: usize, arena: &mut Arena, value: f64, times: u64) {
        Quantiles::add_to(group, at, arena, range_of(value), times);
    }

    fn add_to(group: &mut [u8], at: usize, arena: &mut Arena, range: i32, times: u64) {
        let mut block = Block::from_bytes(load(group, at));
        let len = u64::from_le_bytes(load(group, at + 8)) as usize;
        let place = match find(arena.get(block), len, range) {
            Ok(found) => {
                if let Some(bytes) = arena.get_mut(block) {
                    let count = u64::from_le_bytes(load(bytes, found * RANGE_BYTES + 4)) + times;
                    store(bytes, found * RANGE_BYTES + 4, count.to_le_bytes());
                }
                return;
            }
            Err(place) => place,
        };
        if len == MOST_RANGES {
            // The lowest counts for what would be lower, and for what is to make room.
            if let Some(bytes) = arena.get_mut(block) {
                let first = u64::from_le_bytes(load(bytes, 4));
                if place > 1 {
                    let next = u64::from_le_bytes(load(bytes, RANGE_BYTES + 4));
                    store(bytes, RANGE_BYTES + 4, (next + first).to_le_bytes());
                    bytes.copy_within(RANGE_BYTES..place * RANGE_BYTES, 0);
                    write_range(bytes, place - 1, range, times);
                } else {
                    let lowest = if place == 0 { range_at(bytes, 0).0 } else { range };
                    write_range(bytes, 0, lowest, first + times);
                }
            }
            return;
        }
        if (len + 1) * RANGE_BYTES > block.len() {
            block = arena.grow(block, (block.len() * 2).max(8 * RANGE_BYTES));
        }
        if let Some(bytes) = arena.get_mut(block) {
            bytes.copy_within(place * RANGE_BYTES..len * RANGE_BYTES, (place + 1) * RANGE_BYTES);
            write_range(bytes, place, range, times);
        }
        store(group, at, block.to_bytes());
        store(group, at + 8, (len as u64 + 1).to_le_bytes());
    }

    /// Adds the values of another group.
    pub(super) fn merge(into: &mut [u8], from: &[u8], at: usize, arena: &mut Arena) {
        let block = Block::from_bytes(load(from, at));
        for number in 0..u64::from_le_bytes(load(from, at + 8)) as usize {
            let (range, times) = range_at(arena.get(block), number);
            Quantiles::add_to(into, at, arena, range, times);
        }
    }

    /// The value below which this part of the values lies, about.
    pub(super) fn estimate(group: &[u8], at: usize, arena: &Arena, part: f64) -> f64 {
        let bytes = arena.get(Block::from_bytes(load(group, at)));
        let len = u64::from_le_bytes(load(group, at + 8)) as usize;
        let all: u64 = (0..len).map(|number| range_at(bytes, number).1).sum();
        let rank = (part.clamp(0.0, 1.0) * all.saturating_sub(1) as f64).floor() as u64;
        let (mut below, mut last) = (0, 0);
        for number in 0..len {
            let (range, times) = range_at(bytes, number);
            (below, last) = (below + times, range);
            if below > rank {
                break;
            }
        }
        value_of(last)
    }

    /// Writes the ranges.
    pub(super) fn save(group: &[u8], at: usize, arena: &Arena, out: &mut Vec<u8>) {
        let len = u64::from_le_bytes(load(group, at + 8)) as usize;
        put_bytes(out, arena.get(Block::from_bytes(load(group, at))).get(..len * RANGE_BYTES).unwrap_or_default());
    }

    /// Takes those that were written into an empty group.
    pub(super) fn restore(
        group: &mut [u8],
        at: usize,
        arena: &mut Arena,
        from: &mut SavedBytes<'_>,
    ) -> Result<(), &'static str> {
        let bytes = from.bytes()?;
        let len = bytes.len() / RANGE_BYTES;
        if len > MOST_RANGES || !bytes.len().is_multiple_of(RANGE_BYTES) {
            return Err("ranges have another length");
        }
        let mut lowest = -INFINITE - 1;
        for (range, times) in (0..len).map(|number| range_at(bytes, number)) {
            if range < lowest || range > INFINITE + 1 {
                return Err("ranges are not in order");
            }
            (lowest, _) = (range + 1, counted(times)?);
        }
        store(group, at, arena.put(bytes).to_bytes());
        store(group, at + 8, (len as u64).to_le_bytes());
        Ok(())
    }

    /// Lets go of its memory.
    pub(super) fn clear(group: &mut [u8], at: usize, arena: &mut Arena) {
        arena.free(Block::from_bytes(load(group, at)));
        store(group, at, [0; 16]);
    }
}

/// Where a range is among those of the block, or would be.
fn find(bytes: &[u8], len: usize, range: i32) -> Result<usize, usize> {
    let (mut low, mut high) = (0, len);
    while low < high {
        let middle = (low + high) / 2;
        match range_at(bytes, middle).0.cmp(&range) {
            std::cmp::Ordering::Less => low = middle + 1,
            std::cmp::Ordering::Equal => return Ok(middle),
            std::cmp::Ordering::Greater => high = middle,
        }
    }
    Err(low)
}

fn range_at(bytes: &[u8], number: usize) -> (i32, u64) {
    let at = number * RANGE_BYTES;
    (i32::from_le_bytes(load(bytes, at)), u64::from_le_bytes(load(bytes, at + 4)))
}

fn write_range(bytes: &mut [u8], number: usize, range: i32, times: u64) {
    store(bytes, number * RANGE_BYTES, range.to_le_bytes());
    store(bytes, number * RANGE_BYTES + 4, times.to_le_bytes());
}

/// The number of the range that a value lies in; they rise with the values.
fn range_of(value: f64) -> i32 {
    let size = value.abs();
    let number = match size {
        size if size.is_nan() => return INFINITE + 1,
        0.0 => return 0,
        f64::INFINITY => INFINITE,
        size => (size.ln() / GAMMA.ln()).ceil() as i32 + OFFSET,
    };
    if value < 0.0 { -number } else { number }
}

/// The value in the middle of a range.
fn value_of(range: i32) -> f64 {
    let size = match range.abs() {
        0 => 0.0,
        INFINITE => f64::INFINITY,
        number if number > INFINITE => f64::NAN,
        // By the half first: the end of the last range is beyond all floats.
        number => (GAMMA.ln() * f64::from(number - OFFSET)).exp() * (2.0 / (GAMMA + 1.0)),
    };
    if range < 0 { -size } else { size }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_values_are_estimated_within_a_few_percent() {
        let (mut arena, mut group, mut other) = (Arena::default(), [0; 8], [0; 8]);
        for (seen, bound) in [(10, 0.001), (100, 0.03), (1000, 0.06), (20_000, 0.08), (300_000, 0.08)] {
            for value in 0..seen {
                Registers::add(&mut group, 0, &mut arena, &Value::Int(value * 7919 - 5));
                Registers::add(&mut other, 0, &mut arena, &Value::Int(value * 7919 - 5));
            }
            let estimate = Registers::estimate(&group, 0, &arena) as f64;
            assert!((estimate / seen as f64 - 1.0).abs() <= bound, "{seen}: {estimate}");
            Registers::merge(&mut group, &other, 0, &mut arena);
            assert_eq!(Registers::estimate(&group, 0, &arena) as f64, estimate, "the same values");
        }
        Registers::clear(&mut group, 0, &mut arena);
        Registers::clear(&mut other, 0, &mut arena);
        assert_eq!(arena.used(), 0);
    }

    #[test]
    fn quantiles_are_one_percent_from_a_value() {
        let mut values: Vec<f64> = (0..5000).map(|n| (f64::from(n) * 0.37).sin() * 10f64.powi(n % 9 - 4)).collect();
        values.extend([0.0, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, f64::MIN_POSITIVE]);
        let (mut arena, mut group, mut half) = (Arena::default(), [0; 16], [0; 16]);
        for (number, value) in values.iter().enumerate() {
            let group = if number % 2 == 0 { &mut group } else { &mut half };
            Quantiles::add(group, 0, &mut arena, *value, 1);
        }
        Quantiles::merge(&mut group, &half, 0, &mut arena);
        values.sort_by(f64::total_cmp);
        for part in [0.0, 0.001, 0.1, 0.25, 0.5, 0.9, 0.999, 1.0] {
            let wanted = values[(part * (values.len() - 1) as f64).floor() as usize];
            let estimate = Quantiles::estimate(&group, 0, &arena, part);
            let is_near = wanted == estimate || (wanted - estimate).abs() <= wanted.abs() * 0.0101;
            assert!(is_near, "{part}: {estimate} for {wanted}");
        }
    }

    #[test]
    fn ranges_past_the_bound_do_not_depend_on_the_order_of_arrival() {
        let ranges = |mut values: Vec<i32>, seed: u64| {
            let (mut arena, mut group, mut random) = (Arena::default(), [0; 16], fastrand::Rng::with_seed(seed));
            random.shuffle(&mut values);
            values.into_iter().for_each(|n| Quantiles::add(&mut group, 0, &mut arena, 1.021f64.powi(n), 1));
            let block = Block::from_bytes(load(&group, 0));
            (0..MOST_RANGES).map(|n| range_at(arena.get(block), n)).collect::<Vec<_>>()
        };
        let first = ranges((0..2100).collect(), 0);
        assert!((1..20).all(|seed| ranges((0..2100).collect(), seed) == first));
    }

    #[test]
    fn ranges_past_the_bound_are_one() {
        let (mut arena, mut group) = (Arena::default(), [0; 16]);
        (0..4000).for_each(|n| Quantiles::add(&mut group, 0, &mut arena, 1.021f64.powi(n % 4000), 1));
        assert_eq!(u64::from_le_bytes(load(&group, 8)), MOST_RANGES as u64);
        let highest = Quantiles::estimate(&group, 0, &arena, 1.0);
        assert!((highest / 1.021f64.powi(3999) - 1.0).abs() < 0.0101);
        let all: u64 = (0..MOST_RANGES).map(|n| range_at(arena.get(Block::from_bytes(load(&group, 0))), n).1).sum();
        assert_eq!(all, 4000);
    }
}
