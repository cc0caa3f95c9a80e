//! Vectors that state is kept in: they grow as all do, and ask for huge pages once they are large. A row finds its group anywhere in
//! them, so that with small pages most of the time is for the page table.

use crossdock_mailbox::prefer_huge_pages;

/// Adds one.
#[inline]
pub(super) fn push<T>(to: &mut Vec<T>, one: T) {
    reserve(to, 1);
    to.push(one);
}

/// Makes it this long: with defaults, or less.
#[inline]
pub(super) fn resize<T: Clone + Default>(of: &mut Vec<T>, len: usize) {
    reserve(of, len.saturating_sub(of.len()));
    of.resize(len, T::default());
}

#[inline]
fn reserve<T>(of: &mut Vec<T>, more: usize) {
    if of.capacity() - of.len() < more {
        grow(of, more);
    }
}

#[cold]
fn grow<T>(of: &mut Vec<T>, more: usize) {
    of.reserve(more);
    prefer_huge_pages(of);
}

/// Zeros.
pub(super) fn zeros(count: usize) -> Box<[u64]> {
    let zeros = vec![0; count];
    // Nothing of them was touched yet.
    prefer_huge_pages(&zeros);
    zeros.into()
}
