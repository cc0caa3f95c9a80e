//! The units that wait for their first transmission: control that leaves next, and behind it data with the control that
//! waits for it.

use crate::order::{Traffic, TrafficClass};
use crate::unit::Queued;
use std::collections::VecDeque;

/// The queue of a sender.
#[derive(Debug)]
pub(crate) struct Queue<P> {
    /// Control that waits for no data.
    control: VecDeque<Queued<P>>,
    /// Data, and control that waits for some of it.
    line: VecDeque<Queued<P>>,
    bytes: u64,
}

impl<P> Queue<P> {
    pub(crate) fn new() -> Queue<P> {
        Queue { control: VecDeque::new(), line: VecDeque::new(), bytes: 0 }
    }

    /// `begun`: data that was sent in part, and the rest precedes the line.
    pub(crate) fn push(&mut self, queued: Queued<P>, begun: Option<TrafficClass>) {
        self.bytes += queued.bytes;
        let class = queued.class;
        if class.traffic() == Traffic::Data {
            return self.line.push_back(queued);
        }
        let line = begun.into_iter().chain(self.line.iter().map(|earlier| earlier.class));
        match class.position(line) {
            0 => self.control.push_back(queued),
            position => self.line.insert(position - usize::from(begun.is_some()), queued),
        }
    }

    /// Puts the rest of a unit back, in front of what it was queued before.
    pub(crate) fn put_back(&mut self, rest: Queued<P>) {
        self.bytes += rest.bytes;
        self.line.push_front(rest);
    }

    /// Whether the next is control that waits for no data.
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
