//! Copies out of and into memory that other processes may write at the same time.
//!
//! Rust gives a meaning to such an access only if it is atomic, so these are loops of relaxed atomic loads or stores, a
//! word of eight bytes a step, which the processor runs as plain ones. What is copied is then private, and what it is
//! checked for stays true.

#![allow(unsafe_code)]

use crate::sync::mapped::{AtomicU8, AtomicU64};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

/// Bytes up to the next address that a word may lie at.
#[inline]
fn to_aligned(address: NonNull<u8>) -> usize {
    address.addr().get().wrapping_neg() % 8
}

/// Copies `to.len()` bytes out.
///
/// # Safety
/// So many bytes from `from` on are mapped, and stay so meanwhile.
#[inline]
pub(crate) unsafe fn copy_out(from: NonNull<u8>, to: &mut [u8]) {
    let (head, rest) = to.split_at_mut(to_aligned(from).min(to.len()));
    let (words, tail) = rest.as_chunks_mut::<8>();
    // SAFETY: the parts lie one after the other in the range that the caller vouches for; `middle` is where words may.
    unsafe {
        bytes_out(from, head);
        let middle = from.add(head.len());
        for (at, word) in words.iter_mut().enumerate() {
            *word = AtomicU64::from_ptr(middle.cast::<u64>().add(at).as_ptr()).load(Ordering::Relaxed).to_ne_bytes();
        }
        bytes_out(middle.add(words.len() * 8), tail);
    }
}

/// Copies all of `from` in.
///
/// # Safety
/// So many bytes from `to` on are mapped, and stay so meanwhile, and may be written.
#[inline]
pub(crate) unsafe fn copy_in(from: &[u8], to: NonNull<u8>) {
    let (head, rest) = from.split_at(to_aligned(to).min(from.len()));
    let (words, tail) = rest.as_chunks::<8>();
    // SAFETY: the parts lie one after the other in the range that the caller vouches for; `middle` is where words may.
    unsafe {
        bytes_in(head, to);
        let middle = to.add(head.len());
        for (at, word) in words.iter().enumerate() {
            let place = AtomicU64::from_ptr(middle.cast::<u64>().add(at).as_ptr());
            place.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
        }
        bytes_in(tail, middle.add(words.len() * 8));
    }
}

/// # Safety
/// As for [`copy_out`].
#[inline]
unsafe fn bytes_out(from: NonNull<u8>, to: &mut [u8]) {
    for (at, byte) in to.iter_mut().enumerate() {
        // SAFETY: within the caller's range; a byte is never misaligned.
        *byte = unsafe { AtomicU8::from_ptr(from.add(at).as_ptr()) }.load(Ordering::Relaxed);
    }
}

/// # Safety
/// As for [`copy_in`].
#[inline]
unsafe fn bytes_in(from: &[u8], to: NonNull<u8>) {
    for (at, byte) in from.iter().enumerate() {
        // SAFETY: within the caller's range; a byte is never misaligned.
        unsafe { AtomicU8::from_ptr(to.add(at).as_ptr()) }.store(*byte, Ordering::Relaxed);
    }
}
