//! Slots: what a client may use now, and under which number it says so. Private to the daemon.
//!
//! A descriptor from a client names a slot of its own port, never a buffer. Whether that slot exists, is in the life that
//! the client means, holds a buffer in the state that the operation needs, and whether the range lies inside that buffer
//! is all decided here, from what the daemon wrote down when it filled the slot.

use super::message::{Message, Span};
use crate::shared::Descriptor;

/// The content of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Nothing.
    Empty,
    /// A buffer to write to.
    Granted,
    /// A message to read.
    Delivered,
}

struct Slot {
    state: State,
    /// Counts the slot's lives, so that a descriptor of an earlier one is found out.
    generation: u16,
    /// How many messages were delivered before this one.
    order: u32,
    /// The buffer that was in it last.
    buffer: u32,
    /// The buffer, as a message that covers what was handed out; none in an empty slot.
    message: Option<Message>,
}

/// The slots of one port.
pub(crate) struct Slots {
    slots: Vec<Slot>,
    empty: Vec<u16>,
    granted: u32,
    delivered: u32,
    /// Messages that were ever delivered.
    deliveries: u32,
    /// Bytes of the buffers in them.
    bytes: u64,
    delivered_bytes: u64,
}

/// Why a descriptor is refused; each is a violation of the protocol, since no correct client can send it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum ProtocolViolation {
    #[error("slot {0} does not exist")]
    NoSlot(u16),
    #[error("slot {0} is not the client's, or is in another of its lives")]
    NotHeld(u16),
    #[error("slot {0} holds a message to read, which cannot be put")]
    NotGranted(u16),
    #[error("bytes {offset} to {offset}+{len} do not lie in the buffer of slot {slot}")]
    Outside { slot: u16, offset: u32, len: u32 },
    #[error("operation {0} is not known here")]
    Operation(u8),
    #[error("mailbox number {0} is not open")]
    NotOpen(u16),
    #[error("{0:#x} names no sync or condition that it may have written")]
    NoSync(u64),
    #[error("its lane brought an entry that is not next in order")]
    Astray,
    #[error("more requests wait than the rings can answer")]
    TooMany,
}

/// The message that a client gave back.
pub(crate) struct Given {
    /// The area that it now covers.
    pub(crate) message: Message,
    /// Length of what was handed out, in bytes, if it was a delivered message.
    pub(crate) delivered: Option<u32>,
}

impl Slots {
    /// `count` slots, whose generations start at `generation`.
    pub(crate) fn new(count: u16, generation: u16) -> Slots {
        let slot = || Slot { state: State::Empty, generation, order: 0, buffer: u32::MAX, message: None };
        Slots {
            slots: std::iter::repeat_with(slot).take(count.into()).collect(),
            empty: (0..count).rev().collect(),
            granted: 0,
            delivered: 0,
            deliveries: 0,
            bytes: 0,
            delivered_bytes: 0,
        }
    }

    /// Slots that hold nothing.
    #[inline]
    pub(crate) fn vacant(&self) -> usize {
        self.empty.len()
    }

    /// Slots with a buffer to write to.
    #[inline]
    pub(crate) fn granted(&self) -> u32 {
        self.granted
    }

    /// Slots with a message to read.
    #[inline]
    pub(crate) fn delivered(&self) -> u32 {
        self.delivered
    }

    /// Length of the messages to read, in bytes.
    #[inline]
    pub(crate) fn delivered_bytes(&self) -> u64 {
        self.delivered_bytes
    }

    /// Bytes of the buffers in all slots.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Fills a slot; the descriptor to send, `op` and `target` left to the caller. Gives the message back if none is empty.
    #[inline(always)]
    fn fill(&mut self, state: State, message: Message) -> Result<Descriptor, Message> {
        let Some(number) = self.empty.pop() else { return Err(message) };
        let slot = &mut self.slots[number as usize];
        let Span { start: offset, len, first, end, buffer, .. } = *message.0;
        slot.buffer = buffer;
        slot.generation = slot.generation.wrapping_add(1);
        slot.state = state;
        slot.message = Some(message);
        self.bytes += u64::from(end - first);
        Ok(Descriptor { op: 0, slot: number, generation: slot.generation, target: 0, offset, len })
    }

    /// Hands out a buffer, all of it, to be written.
    #[inline(always)]
    pub(crate) fn grant(&mut self, message: Message) -> Result<Descriptor, Message> {
        let descriptor = self.fill(State::Granted, message)?;
        self.granted += 1;
        Ok(descriptor)
    }

    /// Hands out a buffer, all of it, in the slot in which its writer had it last: that slot. Gives the message back if that is not the
    /// one that was emptied last, or has had another buffer since.
    #[inline(always)]
    pub(crate) fn grant_again(&mut self, message: Message) -> Result<u16, Message> {
        let number = message.0.slot;
        if self.empty.last() != Some(&number) {
            return Err(message);
        }
        let slot = &mut self.slots[usize::from(number)];
        if slot.buffer != message.0.buffer {
            return Err(message);
        }
        self.empty.pop();
        self.bytes += u64::from(message.0.end - message.0.first);
        self.granted += 1;
        slot.generation = slot.generation.wrapping_add(1);
        slot.state = State::Granted;
        slot.message = Some(message);
        Ok(number)
    }

    /// Hands out a message to be read.
    #[inline(always)]
    pub(crate) fn deliver(&mut self, message: Message) -> Result<Descriptor, Message> {
        let len = message.0.len;
        let descriptor = self.fill(State::Delivered, message)?;
        self.slots[descriptor.slot as usize].order = self.deliveries;
        self.deliveries = self.deliveries.wrapping_add(1);
        self.delivered += 1;
        self.delivered_bytes += u64::from(len);
        Ok(descriptor)
    }

    /// Reclaims what a descriptor names: with `range`, as the part of it that the descriptor says.
    ///
    /// # Errors
    /// The client does not hold it, or it does not lie in its buffer; nothing has changed then.
    #[inline(always)]
    pub(crate) fn take(&mut self, from: &Descriptor, range: bool) -> Result<Given, ProtocolViolation> {
        let slot = self.slots.get_mut(from.slot as usize).ok_or(ProtocolViolation::NoSlot(from.slot))?;
        let held = slot.message.take_if(|_| slot.generation == from.generation);
        let mut message = held.ok_or(ProtocolViolation::NotHeld(from.slot))?;
        let span = &mut *message.0;
        let delivered = (slot.state == State::Delivered).then_some(span.len);
        if range {
            let end = u64::from(from.offset) + u64::from(from.len);
            if from.offset < span.first || end > u64::from(span.end) {
                slot.message = Some(message);
                return Err(ProtocolViolation::Outside { slot: from.slot, offset: from.offset, len: from.len });
            }
            (span.start, span.len) = (from.offset, from.len);
        }
        self.bytes -= u64::from(span.end - span.first);
        match delivered {
            Some(len) => {
                self.delivered -= 1;
                self.delivered_bytes -= u64::from(len);
            }
            None => {
                self.granted -= 1;
                span.slot = from.slot;
            }
        }
        slot.state = State::Empty;
        self.empty.push(from.slot);
        Ok(Given { message, delivered })
    }

    /// As [`Slots::take`] for a put: the slot must have been granted.
    ///
    /// # Errors
    /// As there, or it holds a message to read.
    #[inline(always)]
    pub(crate) fn take_granted(&mut self, from: &Descriptor) -> Result<Message, ProtocolViolation> {
        match self.slots.get(from.slot as usize) {
            Some(slot) if slot.state == State::Delivered => Err(ProtocolViolation::NotGranted(from.slot)),
            _ => self.take(from, true).map(|given| given.message),
        }
    }

    /// The part of a granted buffer that a descriptor of another than the slots' client says: for a message with a claim of its own,
    /// while the slot keeps the buffer, so that nobody is granted that whom its writer did not leave it to. Once in a slot's life.
    ///
    /// # Errors
    /// As [`Slots::take`]; or it holds no buffer to write to, or was shared before.
    pub(crate) fn share(&mut self, from: &Descriptor) -> Result<Span, ProtocolViolation> {
        let slot = self.slots.get_mut(from.slot as usize).ok_or(ProtocolViolation::NoSlot(from.slot))?;
        let is_meant = slot.generation == from.generation && slot.state == State::Granted;
        let held = slot.message.as_mut().filter(|message| is_meant && !message.0.is_shared);
        let span = &mut *held.ok_or(ProtocolViolation::NotHeld(from.slot))?.0;
        let end = u64::from(from.offset) + u64::from(from.len);
        if from.offset < span.first || end > u64::from(span.end) {
            return Err(ProtocolViolation::Outside { slot: from.slot, offset: from.offset, len: from.len });
        }
        span.is_shared = true;
        Ok(Span { start: from.offset, len: from.len, ..*span })
    }

    /// Messages that were ever delivered.
    pub(crate) fn deliveries(&self) -> u32 {
        self.deliveries
    }

    /// How many of the messages to read were delivered when `deliveries` ever had been.
    pub(crate) fn delivered_before(&self, deliveries: u32) -> usize {
        let age = self.deliveries.wrapping_sub(deliveries);
        let is_older = |slot: &&Slot| self.deliveries.wrapping_sub(slot.order) > age;
        self.slots.iter().filter(|slot| slot.state == State::Delivered).filter(is_older).count()
    }

    /// Empties all slots: the messages that were delivered, in that order, and the buffers to write to.
    pub(crate) fn drain_in_order(&mut self) -> (Vec<Message>, Vec<Message>) {
        let deliveries = self.deliveries;
        let age = |slot: &Slot| deliveries.wrapping_sub(slot.order);
        let slots = self.slots.iter().enumerate().filter(|(_, slot)| slot.state == State::Delivered);
        let mut delivered: Vec<(u32, usize)> = slots.map(|(at, slot)| (age(slot), at)).collect();
        delivered.sort_unstable_by_key(|(age, _)| std::cmp::Reverse(*age));
        let messages = delivered.into_iter().filter_map(|(_, at)| self.slots[at].message.take()).collect();
        (messages, self.drain().collect())
    }

    /// Empties all slots: what was in them.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Message> + '_ {
        let count = self.slots.len() as u16;
        self.empty = (0..count).rev().collect();
        (self.granted, self.delivered, self.bytes, self.delivered_bytes) = (0, 0, 0, 0);
        self.slots.iter_mut().filter_map(|slot| {
            slot.state = State::Empty;
            slot.message.take()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::Area;
    use super::*;
    use proptest::prelude::*;

    /// The first `len` bytes of a buffer at `first` of 64.
    fn message(first: u32, len: u32) -> Message {
        Message(Box::new(Span { len, ..Span::of(0, Area::Shared, 0, (first, 64)) }))
    }

    #[test]
    fn only_what_was_handed_out_can_be_given_back_and_once() {
        let mut slots = Slots::new(2, 0);
        let grant = slots.grant(message(128, 64)).unwrap();
        let put = Descriptor { offset: 136, len: 56, ..grant };
        for (wrong, violation) in [
            (Descriptor { slot: 2, ..put }, ProtocolViolation::NoSlot(2)),
            (Descriptor { slot: 1, ..put }, ProtocolViolation::NotHeld(1)),
            (Descriptor { generation: put.generation + 1, ..put }, ProtocolViolation::NotHeld(put.slot)),
            (Descriptor { len: 57, ..put }, ProtocolViolation::Outside { slot: put.slot, offset: 136, len: 57 }),
            (Descriptor { offset: 127, ..put }, ProtocolViolation::Outside { slot: put.slot, offset: 127, len: 56 }),
            (
                Descriptor { len: u32::MAX, ..put },
                ProtocolViolation::Outside { slot: put.slot, offset: 136, len: u32::MAX },
            ),
        ] {
            assert_eq!(slots.take_granted(&wrong).err(), Some(violation));
        }
        let taken = slots.take_granted(&put).unwrap();
        assert_eq!((taken.0.start, taken.0.len), (136, 56));
        assert_eq!(slots.take_granted(&put).err(), Some(ProtocolViolation::NotHeld(put.slot)));
        let delivered = slots.deliver(message(0, 10)).unwrap();
        assert_eq!(slots.take_granted(&delivered).err(), Some(ProtocolViolation::NotGranted(delivered.slot)));
        assert_eq!(slots.take(&delivered, false).unwrap().delivered, Some(10));
        assert_eq!((slots.bytes(), slots.granted(), slots.delivered(), slots.vacant()), (0, 0, 0, 2));
    }

    proptest! {
        /// Random descriptors against random hand-outs: what is taken was handed out and not yet taken, and the sums agree.
        #[test]
        fn random_descriptors_take_only_what_is_held(
            steps in prop::collection::vec((0u8..4, any::<u16>(), any::<u16>(), any::<u32>(), any::<u32>()), 1..300),
        ) {
            let mut slots = Slots::new(8, u16::MAX - 1);
            let mut held: Vec<(Descriptor, bool)> = Vec::new();
            for (step, slot, generation, offset, len) in steps {
                match step {
                    0 => {
                        if let Ok(grant) = slots.grant(message(64, 64)) { held.push((grant, true)); }
                    }
                    1 => {
                        if let Ok(delivery) = slots.deliver(message(64, 32)) { held.push((delivery, false)); }
                    }
                    _ => {
                        let guess = Descriptor { op: 0, slot: slot % 10, generation: generation % 4, target: 0, offset: offset % 200, len: len % 200 };
                        let known = held.iter().position(|(d, _)| d.slot == guess.slot && d.generation == guess.generation);
                        match slots.take(&guess, step == 3) {
                            Ok(given) => {
                                let (_, granted) = held.swap_remove(known.unwrap());
                                prop_assert_eq!(given.delivered.is_none(), granted);
                                prop_assert!(given.message.0.first == 64 && given.message.0.start >= 64 && given.message.0.start + given.message.0.len <= 128);
                            }
                            Err(_) => prop_assert!(known.is_none() || step == 3),
                        }
                    }
                }
                prop_assert_eq!(slots.vacant() + held.len(), 8);
                prop_assert_eq!(slots.bytes(), 64 * held.len() as u64);
                prop_assert_eq!(slots.granted() as usize, held.iter().filter(|(_, granted)| *granted).count());
            }
            prop_assert_eq!(slots.drain().count(), held.len());
            prop_assert_eq!((slots.vacant(), slots.bytes()), (8, 0));
        }
    }
}
