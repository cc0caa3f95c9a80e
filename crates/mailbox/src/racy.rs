//! Copies out of and into memory that other processes may write at the same time.
//!
//! Rust gives a meaning to such an access only if it is atomic, so copies of less than a cache line are loops of relaxed atomic loads
//! or stores, a word of eight bytes a step, which the processor runs as plain ones. Longer ones are moves of x86's own, by
//! 64 bytes a step or, if they are long, its string move: what an instruction in assembly reads is whatever is there, and the compiler
//! assumes nothing about it. The string move is as fast as `memcpy`, and more than twice as fast as the loop where the bytes come from
//! another core or from memory.
//!
//! The copy is then private, and what it is checked for stays true.

#![allow(unsafe_code)]

use crate::sync::mapped::{AtomicU8, AtomicU64};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

/// From this length on (bytes) the string move, which takes some time to start, is the faster.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const LONG_BYTES: usize = 512;

/// Bytes of a step in shorter copies.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const BLOCK_BYTES: usize = 64;

/// Bytes up to the next address that a word may lie at.
#[inline]
fn to_aligned(address: NonNull<u8>) -> usize {
    address.addr().get().wrapping_neg() % 8
}

/// Copies `to.len()` bytes out.
///
/// # Safety
/// The bytes from `from` on that are copied are mapped, and stay so meanwhile.
#[inline]
pub(crate) unsafe fn copy_out(from: NonNull<u8>, to: &mut [u8]) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if to.len() >= LONG_BYTES {
        // SAFETY: the caller's range; `to` may be written, and is this process's own.
        unsafe { string_move(from, NonNull::from(&mut *to).cast(), to.len()) };
        return;
    }
    // SAFETY: as above; what is left is not longer than the rest of the range.
    let moved = unsafe { move_blocks(from, NonNull::from(&mut *to).cast(), to.len()) };
    // SAFETY: see `moved`.
    let (from, to) = (unsafe { from.add(moved) }, &mut to[moved..]);
    if to.is_empty() {
        return;
    }
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
/// The bytes from `to` on that are copied are mapped, and stay so meanwhile, and may be written.
#[inline]
pub(crate) unsafe fn copy_in(from: &[u8], to: NonNull<u8>) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if from.len() >= LONG_BYTES {
        // SAFETY: the caller's range; `from` is this process's own, and not in it.
        unsafe { string_move(NonNull::from(from).cast(), to, from.len()) };
        return;
    }
    // SAFETY: as above; what is left is not longer than the rest of the range.
    let moved = unsafe { move_blocks(NonNull::from(from).cast(), to, from.len()) };
    // SAFETY: see `moved`.
    let (from, to) = (&from[moved..], unsafe { to.add(moved) });
    if from.is_empty() {
        return;
    }
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

/// Copies `bytes` from one such place to another.
///
/// # Safety
/// `bytes` bytes from `from` and from `to` on are mapped, and stay so meanwhile, and the latter may be written. The two
/// do not overlap.
#[inline]
pub(crate) unsafe fn copy_across(from: NonNull<u8>, to: NonNull<u8>, bytes: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if bytes >= LONG_BYTES {
        // SAFETY: the caller's ranges.
        unsafe { string_move(from, to, bytes) };
        return;
    }
    // SAFETY: the caller's ranges.
    let moved = unsafe { move_blocks(from, to, bytes) };
    if moved == bytes {
        return;
    }
    let mut piece = [0; 256];
    for at in (moved..bytes).step_by(piece.len()) {
        let piece = &mut piece[..(bytes - at).min(256)];
        // SAFETY: this piece of the caller's ranges.
        unsafe {
            copy_out(from.add(at), piece);
            copy_in(piece, to.add(at));
        }
    }
}

/// Copies what of `bytes` bytes is whole blocks: how many bytes that was.
///
/// # Safety
/// As for [`string_move`].
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
unsafe fn move_blocks(from: NonNull<u8>, to: NonNull<u8>, bytes: usize) -> usize {
    let mut moved = 0;
    while bytes - moved >= BLOCK_BYTES {
        // SAFETY: it reads and writes one block of the caller's two ranges, and four registers. It is fenced by nothing, like relaxed
        // accesses.
        unsafe {
            std::arch::asm!(
                "movups {a}, [{from}]",
                "movups {b}, [{from} + 16]",
                "movups {c}, [{from} + 32]",
                "movups {d}, [{from} + 48]",
                "movups [{to}], {a}",
                "movups [{to} + 16], {b}",
                "movups [{to} + 32], {c}",
                "movups [{to} + 48], {d}",
                from = in(reg) from.as_ptr().add(moved),
                to = in(reg) to.as_ptr().add(moved),
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                options(nostack, preserves_flags)
            );
        }
        moved += BLOCK_BYTES;
    }
    moved
}

/// Leaves all to the loops of words.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
unsafe fn move_blocks(_from: NonNull<u8>, _to: NonNull<u8>, _bytes: usize) -> usize {
    0
}

/// Copies `bytes` from one place to another by the processor's own means.
///
/// # Safety
/// `bytes` bytes from `from` and from `to` on are mapped, and stay so meanwhile, and the latter may be written. The two
/// do not overlap.
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn string_move(from: NonNull<u8>, to: NonNull<u8>, bytes: usize) {
    // SAFETY: it reads and writes just the caller's two ranges; the direction is upwards, as it always is between
    // functions. It is fenced by nothing, like relaxed accesses: whoever hands over a buffer does so by an atomic.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") bytes => _,
            inout("rsi") from.as_ptr() => _,
            inout("rdi") to.as_ptr() => _,
            options(nostack, preserves_flags)
        );
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

/// Asks for the cache line of `place`, to be read or written soon, out of whatever other core's cache has it. A hint: any address
/// will do.
///
/// It asks for the right to write too, also where the line will only be read: a one-way stream of messages of 64 bytes was measured
/// to be half as fast again as with a plain prefetch.
#[inline]
pub(crate) fn prefetch(place: NonNull<u8>) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch is a hint that faults at no address; processors without this one take it for a no-op. Spelt
    // out, since compilers make the plain one of the intrinsic unless the target has both.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) place.as_ptr(), options(nostack, preserves_flags));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _no_hint = place;
}
