//! The sink of records for a subscription: its open packet, and from there its session's queue, over whatever carries
//! that.

use crate::counters::DropReason;
use crate::graph::spill::Spill;
use crate::net::carrier::{Carrier, Recipient, Whole, Wire};
use crate::net::space::OpenPacket;
use crossdock_engine::Sink;
use crossdock_mailbox::{Batch, Fragments};
use crossdock_transport::{HEADER_BYTES, MAX_SUPER_BYTES};
use std::ops::Range;

/// Wanted sizes of packets in bytes: the next is larger when one was filled and smaller when one left nearly empty, so
/// that a slow stream's few records do not hold large buffers.
const WANTED_BYTES: Range<usize> = 4 << 10..64 << 10;

/// A subscription's output: the packet that is being filled.
#[derive(Debug, Default)]
pub(crate) struct Output {
    open: Option<OpenPacket>,
    /// Wanted size of the next packet, in bytes.
    wanted_bytes: usize,
}

impl Output {
    /// When the packet was opened, if one is.
    #[inline]
    pub(crate) fn opened_ns(&self) -> Option<u64> {
        self.open.as_ref().map(|open| open.opened_ns)
    }

    /// The open packet joins the session's queue, before it is full; whether there was one.
    pub(crate) fn flush(&mut self, carrier: &mut dyn Carrier, wire: &mut Wire<'_>, to: Recipient) -> bool {
        let Some(open) = self.open.take() else { return false };
        if open.space.len() < self.wanted_bytes / 4 {
            self.wanted_bytes = (self.wanted_bytes / 4).max(WANTED_BYTES.start);
        }
        carrier.send(wire, open, to);
        true
    }
}

/// The sink of one format's records for one subscription.
pub(crate) struct SessionSink<'a> {
    output: &'a mut Output,
    carrier: &'a mut dyn Carrier,
    wire: Wire<'a>,
    to: Recipient,
    /// Format of the records pushed, by id.
    format: u64,
    /// The longest record that is taken, in bytes.
    longest: usize,
    /// Takes the records for which there is no buffer, in order, to be sent before all others.
    spill: &'a mut Spill,
    /// Records taken, and their size.
    pub(crate) taken: u64,
    pub(crate) bytes: usize,
    /// Records for which there was no buffer, and no room in the spill; they are reported to the subscriber.
    pub(crate) no_buffer: u64,
    /// Records that are too long; the same.
    pub(crate) too_long: u64,
}

impl Sink for SessionSink<'_> {
    #[inline]
    fn push(&mut self, record: &[u8]) {
        self.push_all(record, 1);
    }
}

impl<'a> SessionSink<'a> {
    /// A sink of records of a format and a longest length to a subscription whose peer `carrier` carries.
    pub(crate) fn new(
        output: &'a mut Output,
        carrier: &'a mut dyn Carrier,
        wire: Wire<'a>,
        to: Recipient,
        (format, longest): (u64, usize),
        spill: &'a mut Spill,
    ) -> SessionSink<'a> {
        SessionSink { output, carrier, wire, to, format, longest, spill, taken: 0, bytes: 0, no_buffer: 0, too_long: 0 }
    }

    /// Takes a batch whose records all leave unchanged. Whether it is to join the queue by reference instead,
    /// behind all that was pushed before.
    pub(crate) fn take_whole(&mut self, batch: &Batch) -> bool {
        match self.carrier.whole(batch) {
            Whole::Shared => {
                self.output.flush(self.carrier, &mut self.wire, self.to);
                return true;
            }
            // In packets of its own, and out of its pieces.
            _ if batch.is_in_pieces() => self.push_into_new(batch.fragments(0), 1),
            Whole::Slices => {
                for (index, slice) in batch.slices.iter().enumerate() {
                    self.push_all(batch.slice(index), slice.records as u16);
                }
            }
            Whole::Records => (0..batch.len()).for_each(|index| self.push_all(batch.record(index), 1)),
        }
        false
    }

    /// Takes `records` records that lie back to back.
    #[inline]
    fn push_all(&mut self, bytes: &[u8], records: u16) {
        if let Some(open) = &mut self.output.open
            && open.format == self.format
            && open.space.push(bytes, records)
        {
            self.taken += u64::from(records);
            self.bytes += bytes.len();
            return;
        }
        self.push_into_new(bytes.into(), records);
    }

    #[cold]
    fn push_into_new(&mut self, bytes: Fragments<'_>, records: u16) {
        if !self.spill.is_empty() {
            return self.put_off(bytes, records);
        }
        let Output { open, wanted_bytes } = &mut *self.output;
        if let Some(full) = open.take() {
            *wanted_bytes = (*wanted_bytes * 4).min(WANTED_BYTES.end);
            self.carrier.send(&mut self.wire, full, self.to);
        }
        *wanted_bytes = (*wanted_bytes).clamp(WANTED_BYTES.start, WANTED_BYTES.end);
        let needed = HEADER_BYTES + bytes.len();
        let done = match needed {
            0..=MAX_SUPER_BYTES => self.carrier.open(&mut self.wire, needed, *wanted_bytes).map(|mut space| {
                let is_taken = space.push(bytes.whole(), records);
                debug_assert!(is_taken, "there is room for what it was opened for");
                *open = Some(OpenPacket { space, format: self.format, opened_ns: self.wire.now_ns });
            }),
            _ if bytes.len() <= self.longest => self.carrier.send_long(&mut self.wire, bytes, self.format, self.to),
            _ => Err(DropReason::TooLong),
        };
        match done {
            Ok(()) => {
                self.taken += u64::from(records);
                self.bytes += bytes.len();
            }
            Err(DropReason::NoBuffer) => self.put_off(bytes, records),
            Err(reason) => {
                self.wire.counters.drop(reason, records.into());
                self.too_long += u64::from(records);
            }
        }
    }

    /// Keeps a record for which there is no buffer. Where records come several at once, there always is one.
    #[cold]
    fn put_off(&mut self, bytes: Fragments<'_>, records: u16) {
        debug_assert_eq!(records, 1, "only packets of sessions over packets need buffers");
        if !self.spill.push(bytes.whole()) {
            self.wire.counters.drop(DropReason::NoBuffer, records.into());
            self.no_buffer += u64::from(records);
        }
    }
}
