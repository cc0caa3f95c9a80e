//! Brings memory that another core wrote last to this one, before it is needed.

use crossdock_format::Format;
use std::hint::black_box;

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// Reads some memory, a word of each cache line, so that this core has it.
pub(crate) fn touch<T: Copy>(items: &[T]) {
    items.iter().step_by((LINE_BYTES / size_of::<T>().max(1)).max(1)).for_each(|item| _ = black_box(*item));
}

/// Writes some memory as it is, a word of each cache line, so that this core has it for itself.
pub(crate) fn own<T: Copy>(items: &mut [T]) {
    items.iter_mut().step_by((LINE_BYTES / size_of::<T>().max(1)).max(1)).for_each(|item| *item = black_box(*item));
}

/// Reads where a format's fields are.
pub(crate) fn touch_fields(format: &Format) {
    format.fields().iter().for_each(|field| _ = black_box((field.offset, field.size)));
}
