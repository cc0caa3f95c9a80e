//! Every atomic of this crate comes from here, so that loom can put its own in their place (`--cfg loom`).

#[cfg(not(loom))]
pub(crate) use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicIsize, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};

#[cfg(loom)]
pub(crate) use loom::sync::{
    Arc,
    atomic::{AtomicBool, AtomicIsize, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};

/// Atomics that may lie over mapped memory, which loom's cannot: for the bytes of messages, where it has nothing to
/// find.
pub(crate) mod mapped {
    pub(crate) use std::sync::atomic::{AtomicU8, AtomicU64};
}

#[cfg(loom)]
pub(crate) use loom::thread::yield_now;
#[cfg(not(loom))]
pub(crate) use std::thread::yield_now;

/// A place that one side at a time may touch; loom checks that it is so.
#[cfg(loom)]
pub(crate) use loom::cell::UnsafeCell;

/// A place that one side at a time may touch; with the face of loom's.
#[cfg(not(loom))]
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(crate) fn new(value: T) -> UnsafeCell<T> {
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }

    /// Gives `visit` the address, to read.
    #[inline(always)]
    pub(crate) fn with<R>(&self, visit: impl FnOnce(*const T) -> R) -> R {
        visit(self.0.get())
    }

    /// Gives `visit` the address, to write.
    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, visit: impl FnOnce(*mut T) -> R) -> R {
        visit(self.0.get())
    }
}

/// Keeps what two cores write apart: 128 bytes, because x86 fetches cache lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct CachePadded<T>(pub(crate) T);

impl<T> std::ops::Deref for CachePadded<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}
