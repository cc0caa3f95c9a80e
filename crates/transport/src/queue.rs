//! What waits for its first transmission: control that leaves next, and behind it data with the control that follows it.

use crate::credit::{Follows, Origin, Traffic};
use crate::unit::Unit;
use std::collections::VecDeque;

/// A unit, or the rest of one that was sent in part.
#[derive(Debug)]
pub(crate) struct Queued<P> {
    pub(crate) payload: P,
    /// The packets of the payload that were sent before.
    pub(crate) from: u32,
    pub(crate) packets: u32,
    /// Bytes of a packet.
    pub(crate) packet_bytes: u64,
    /// Bytes of the payload.
    pub(crate) bytes: u64,
    pub(crate) traffic: Traffic,
    pub(crate) origin: Option<Origin>,
    pub(crate) droppable: bool,
}

impl<P> Queued<P> {
    fn new(payload: P, packets: u32, bytes: u64, traffic: Traffic) -> Queued<P> {
        // Rounded up: nothing is on the way for free.
        let packet_bytes = bytes.div_ceil(packets.max(1).into()).max(1);
        Queued { payload, from: 0, packets, packet_bytes, bytes, traffic, origin: None, droppable: false }
    }

    pub(crate) fn into_unit(self, first_seq: u64) -> Unit<P> {
        Unit {
            first_seq,
            packets: self.packets,
            packet_bytes: self.packet_bytes,
            bytes: self.bytes,
            payload: Some(self.payload),
            from: self.from,
            traffic: self.traffic,
            origin: self.origin,
            sent: 0,
            fresh_from: 0,
            sent_ns: 0,
            acked: 0,
            lost: 0,
            again: 0,
            first_tx: u64::MAX,
            resends: Vec::new(),
        }
    }
}

/// The queue of a sender. Nothing overtakes control: what was queued after it may depend on it.
#[derive(Debug)]
pub(crate) struct Queue<P> {
    /// Control that follows nothing in `line`.
    control: VecDeque<Queued<P>>,
    /// Data, and control that follows some of it.
    line: VecDeque<Queued<P>>,
    bytes: u64,
}

impl<P> Queue<P> {
    pub(crate) fn new() -> Queue<P> {
        Queue { control: VecDeque::new(), line: VecDeque::new(), bytes: 0 }
    }

    pub(crate) fn push_data(&mut self, payload: P, packets: u32, bytes: u64, origin: Origin, droppable: bool) {
        self.bytes += bytes;
        let queued = Queued::new(payload, packets, bytes, Traffic::Data);
        self.line.push_back(Queued { origin: Some(origin), droppable, ..queued });
    }

    /// Control takes one packet. `begun`: what belongs in front of all that is queued, if it follows that.
    pub(crate) fn push_control(&mut self, payload: P, bytes: u64, follows: Follows, begun: Option<Origin>) {
        self.bytes += bytes;
        let waits = begun.is_some_and(|origin| follows.covers(Some(origin)))
            || self.line.iter().any(|queued| follows.covers(queued.origin));
        let queued = Queued { origin: follows.origin(), ..Queued::new(payload, 1, bytes, Traffic::Control) };
        if waits { self.line.push_back(queued) } else { self.control.push_back(queued) }
    }

    /// Puts the rest of a unit back, in front of what it was queued before.
    pub(crate) fn put_back(&mut self, rest: Queued<P>) {
        self.bytes += rest.bytes;
        self.line.push_front(rest);
    }

    /// Whether control waits for data that it follows.
    pub(crate) fn has_following(&self) -> bool {
        self.line.iter().any(|queued| queued.traffic == Traffic::Control)
    }

    /// Whether the next is control that all data must let pass.
    pub(crate) fn has_control(&self) -> bool {
        !self.control.is_empty()
    }

    /// The next to be sent.
    pub(crate) fn front(&self) -> Option<&Queued<P>> {
        self.control.front().or_else(|| self.line.front())
    }

    pub(crate) fn pop_front(&mut self) -> Option<Queued<P>> {
        let next = self.control.pop_front().or_else(|| self.line.pop_front())?;
        self.bytes -= next.bytes;
        Some(next)
    }

    /// The payload of the unit whose rest was put back.
    pub(crate) fn rest_mut(&mut self) -> Option<&mut P> {
        self.line.front_mut().map(|rest| &mut rest.payload)
    }

    /// Takes out the oldest droppable unit.
    pub(crate) fn drop_oldest(&mut self) -> Option<Queued<P>> {
        let index = self.line.iter().position(|queued| queued.droppable)?;
        let dropped = self.line.remove(index)?;
        self.bytes -= dropped.bytes;
        Some(dropped)
    }

    /// Bytes of all that is queued.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.control.len() + self.line.len()
    }

    pub(crate) fn drain(&mut self) -> impl Iterator<Item = P> + '_ {
        self.bytes = 0;
        self.control.drain(..).chain(self.line.drain(..)).map(|queued| queued.payload)
    }
}
