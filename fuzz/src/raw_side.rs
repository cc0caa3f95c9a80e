//! The entries written by hand on either side of a client's rings: the steps that the two targets of rings have in common.
//!
//! An input's bytes stand for the fields in their order, so the kept seeds depend on it.

use arbitrary::Arbitrary;
use crossdock_mailbox::client::raw::RawDaemon;
use crossdock_mailbox::host::raw::{RawClient, RawDescriptor};

/// A side of the rings whose every byte is the caller's to choose.
pub trait RawSide {
    fn push(&mut self, port: u16, entry: RawDescriptor);
    fn pushed(&self, port: u16) -> u32;
    fn pass(&mut self, port: u16, after: u32, entry: RawDescriptor, a: u64, b: u64) -> bool;
    fn push_signal(&mut self, head: RawDescriptor, a: u64, b: u64);
    fn scribble(&mut self, offset: usize, bytes: &[u8]);
}

macro_rules! raw_side {
    ($side:ty) => {
        impl RawSide for $side {
            fn push(&mut self, port: u16, entry: RawDescriptor) {
                <$side>::push(self, port, entry);
            }

            fn pushed(&self, port: u16) -> u32 {
                <$side>::pushed(self, port)
            }

            fn pass(&mut self, port: u16, after: u32, entry: RawDescriptor, a: u64, b: u64) -> bool {
                <$side>::pass(self, port, after, entry, a, b)
            }

            fn push_signal(&mut self, head: RawDescriptor, a: u64, b: u64) {
                <$side>::push_signal(self, head, a, b);
            }

            fn scribble(&mut self, offset: usize, bytes: &[u8]) {
                <$side>::scribble(self, offset, bytes);
            }
        }
    };
}

raw_side!(RawClient);
raw_side!(RawDaemon);

/// Any entry in any ring.
#[derive(Arbitrary, Debug)]
pub struct Entry {
    port: u8,
    entry: RawDescriptor,
}

impl Entry {
    pub fn push(self, side: &mut impl RawSide) {
        side.push(u16::from(self.port % 8), self.entry);
    }
}

/// Any entry over the lane.
#[derive(Arbitrary, Debug)]
pub struct Lane {
    port: u8,
    after: u8,
    entry: RawDescriptor,
    a: u64,
}

impl Lane {
    pub fn pass(self, side: &mut impl RawSide, b: u64) {
        let port = if self.port > 250 { u16::MAX } else { u16::from(self.port % 8) };
        let after = side.pushed(port).wrapping_add(u32::from(self.after % 3));
        side.pass(port, after, self.entry, self.a, b);
    }
}

/// Any signal.
#[derive(Arbitrary, Debug)]
pub struct AnySignal {
    head: RawDescriptor,
    a: u64,
    b: u64,
}

impl AnySignal {
    pub fn push(self, side: &mut impl RawSide) {
        side.push_signal(self.head, self.a, self.b);
    }
}

/// Bytes anywhere in the control segment.
#[derive(Arbitrary, Debug)]
pub struct Bytes {
    offset: u32,
    bytes: [u8; 8],
}

impl Bytes {
    pub fn scribble(self, side: &mut impl RawSide) {
        side.scribble(self.offset as usize, &self.bytes);
    }
}
