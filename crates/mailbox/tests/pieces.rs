//! A record in pieces reads as the record joined: whatever its pieces are, and whoever reads what of it, in whatever order.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used)] // a test that fails may panic

use crossdock_mailbox::{Batch, BufferMut, Pool, PoolConfig, Slice};
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Capacity of the buffers that pieces come in, in bytes, and of the one for the whole record.
const PACKET_BYTES: usize = 128;
const WHOLE_BYTES: usize = 4096;

fn pool() -> Pool {
    Pool::new(PoolConfig { classes: vec![(PACKET_BYTES, 64), (WHOLE_BYTES, 2)] }).unwrap()
}

/// The record that pieces of these lengths make, and the batch of the pieces: each behind a gap in its buffer, some in the buffer of the
/// one before.
fn pieces(pool: &mut Pool, lengths: &[(usize, usize, bool)]) -> (Vec<u8>, Batch) {
    let (mut record, mut batch, mut open) = (Vec::new(), Batch::new(), None::<(BufferMut, usize)>);
    let mut places = Vec::new();
    for &(gap, len, shares) in lengths {
        let fits = |open: &(BufferMut, usize)| open.1 + gap + len <= PACKET_BYTES;
        let (mut buffer, used) = match open.take() {
            Some(open) if shares && fits(&open) => open,
            full => {
                if let Some((buffer, _)) = full {
                    batch.push_buffer(buffer.freeze()).unwrap();
                }
                (pool.alloc(PACKET_BYTES).unwrap(), 0)
            }
        };
        let start = used + gap;
        let bytes: Vec<u8> = (0..len).map(|at| ((record.len() + at) * 7) as u8).collect();
        buffer.fill(0xee);
        places.push((batch.buffers.len() as u16, start, len));
        record.extend_from_slice(&bytes);
        open = Some((buffer, start + len));
    }
    if let Some((buffer, _)) = open {
        batch.push_buffer(buffer.freeze()).unwrap();
    }
    // The buffers are full of other bytes; now the pieces are put into them.
    let mut at = 0;
    let mut buffers: Vec<BufferMut> = batch.buffers.drain(..).map(|buffer| buffer.try_mut().unwrap()).collect();
    for &(buffer, start, len) in &places {
        buffers[usize::from(buffer)][start..start + len].copy_from_slice(&record[at..at + len]);
        at += len;
    }
    for buffer in buffers {
        batch.push_buffer(buffer.freeze()).unwrap();
    }
    for (buffer, start, len) in places {
        batch.push_slice(Slice { buffer, start: start as u32, len: len as u32, records: 9 }).unwrap();
    }
    (record, batch)
}

fn lengths() -> impl Strategy<Value = Vec<(usize, usize, bool)>> {
    prop::collection::vec((0usize..40, 1usize..80, any::<bool>()), 1..40)
}

fn concat(batch: &Batch, range: std::ops::Range<usize>) -> Vec<u8> {
    batch.fragments(0).range(range).flatten().copied().collect()
}

proptest! {
    #[test]
    fn slices_read_as_the_record_joined(
        lengths in lengths(),
        ranges in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..8),
        joins_before in any::<prop::sample::Index>(),
    ) {
        let (mut pool, joins) = (pool(), Arc::new(AtomicU64::new(0)));
        let (record, mut batch) = pieces(&mut pool, &lengths);
        let reserved = pool.alloc(record.len()).unwrap();
        let (capacity, first) = (batch.buffers[0].capacity(), lengths[0].1);
        let put = batch.put_in_pieces(reserved, &joins);
        prop_assert_eq!(put.is_ok(), record.len() > capacity);
        prop_assert_eq!(batch.is_in_pieces(), put.is_ok());
        if let Err(mut memory) = put {
            batch.copy_slices(&mut memory);
            prop_assert!(memory[..record.len()] == record);
            prop_assert!(batch.is_empty());
            return Ok(());
        }
        prop_assert_eq!((batch.len(), batch.payload_bytes(), batch.is_whole()), (1, record.len(), true));
        prop_assert_eq!(batch.slices.iter().map(|slice| slice.records).sum::<u32>(), 1);
        let other = batch.clone();
        let joins_before = joins_before.index(ranges.len() + 1);
        for (at, (one, two)) in ranges.iter().enumerate() {
            if at == joins_before {
                // A clone joins it for all.
                prop_assert!(other.record(0) == record);
            }
            let (one, two) = (one.index(record.len() + 1), two.index(record.len() + 1));
            let range = one.min(two)..one.max(two);
            prop_assert!(concat(&batch, range.clone()) == record[range.clone()]);
            let mut copy = vec![0; range.len()];
            batch.fragments(0).copy_range(range.clone(), &mut copy);
            prop_assert!(copy == record[range]);
            let front = if at >= joins_before { record.len() } else { first };
            prop_assert!(batch.front(0) == &record[..front]);
            prop_assert_eq!(batch.fragments(0).len(), record.len());
        }
        prop_assert_eq!(joins.load(Ordering::Relaxed), u64::from(joins_before < ranges.len()));
        prop_assert!(batch.record(0) == record);
        prop_assert!(batch.fragments(0).whole() == record);
        prop_assert!(batch.selected().eq([&record[..]]));
        prop_assert_eq!(joins.load(Ordering::Relaxed), 1);
        drop(other);
        batch.clear();
        prop_assert!(!batch.is_in_pieces());
        prop_assert!(pool.stats().classes.iter().all(|class| class.in_use() == 0));
    }
}

#[test]
fn threads_that_read_at_once_join_once() {
    let (mut pool, joins) = (pool(), Arc::new(AtomicU64::new(0)));
    let (record, mut batch) = pieces(&mut pool, &[(0, 100, false); 30]);
    batch.put_in_pieces(pool.alloc(record.len()).unwrap(), &joins).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let (batch, record) = (batch.clone(), &record);
            scope.spawn(move || assert!(batch.record(0) == record));
        }
    });
    assert_eq!(joins.load(Ordering::Relaxed), 1);
}

#[test]
fn a_batch_with_records_takes_no_pieces() {
    let (mut pool, joins) = (pool(), Arc::new(AtomicU64::new(0)));
    let (record, mut batch) = pieces(&mut pool, &[(0, 100, false); 3]);
    batch.put_in_pieces(pool.alloc(record.len()).unwrap(), &joins).unwrap();
    let again = batch.put_in_pieces(pool.alloc(record.len()).unwrap(), &joins);
    assert!(again.is_err() && batch.record(0) == record);
}

#[test]
fn a_pool_is_mostly_free_for_its_own_buffers_while_three_quarters_of_their_class_are() {
    let (mut pool, mut other) = (pool(), pool());
    let mut held: Vec<_> = (0..16).map(|_| pool.alloc(PACKET_BYTES).unwrap().freeze()).collect();
    // The larger ones are free, and do not count.
    assert!(pool.is_mostly_free(&held[0]));
    held.push(pool.alloc(1).unwrap().freeze());
    assert!(!pool.is_mostly_free(&held[0]));
    held.pop();
    assert!(pool.is_mostly_free(&held[0]));
    let elsewhere = other.alloc(PACKET_BYTES).unwrap().freeze();
    assert!(other.is_mostly_free(&elsewhere) && !pool.is_mostly_free(&elsewhere));
}
