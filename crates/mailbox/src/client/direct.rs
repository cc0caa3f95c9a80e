//! Direct rings to the client at the other end of a mailbox: see [`crate::shared`] for what both ends see.
//!
//! An entry of the other end is checked as one of the daemon is: a slot that exists, that is not in this process's hands, and
//! bytes inside the segment. Beyond that its own words are kept here: which slots it has lent the other end, and under which of
//! their generations. Whoever breaks that ends the mailbox for both, and nothing else.

use super::watcher::{Sleeper, Watch};
use crate::failpoint::failpoint;
use crate::segment::Segment;
use crate::shared::{
    Descriptor, DirectBlock, DirectCounts, Regrants, RingReader, RingWriter, SLOTS, SleepFlag, down, up,
};
use std::sync::Arc;

/// The first of the numbers by which a reader names slots of the writer's.
const FIRST_OF_PEER: u16 = SLOTS as u16;

/// The block that an entry of the core's names; none if it is not inside the segment.
fn block<'a>(shared: &'a Arc<Segment>, entry: &Descriptor) -> Option<DirectBlock<'a>> {
    DirectBlock::new(shared, entry.offset, entry.target & 1 == 1)
}

/// Whether a writer is without a buffer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Dry {
    No,
    /// More are asked for.
    Asked,
    /// It is counted.
    Counted,
}

/// The writer's end.
pub(crate) struct WriterLink {
    sleeper: Sleeper,
    forward: RingWriter<Descriptor>,
    back: RingReader<Descriptor>,
    /// From the core: what the reader gave back from outside its ring.
    returned: RingReader<Descriptor>,
    /// The rest of an entry of several slots.
    freed: Regrants,
    reader: SleepFlag,
    counts: DirectCounts,
    puts: u64,
    bytes: u64,
    waits: u64,
    /// Of each slot that the reader has, the generation and one.
    lent: Box<[u32]>,
    lent_count: u32,
    /// How many there may be.
    most: u32,
    /// How many buffers this writer is to have ahead without direct rings.
    usual: u16,
    dry: Dry,
    /// Whether the core is asked to look at what this writer is due, and whether to ask once more after that.
    asks: (bool, bool),
}

impl WriterLink {
    /// That in the block that the core's entry names; none if it is not inside the segment.
    pub(crate) fn new(shared: &Arc<Segment>, watch: &Arc<Watch>, port: u16, entry: &Descriptor) -> Option<WriterLink> {
        let block = block(shared, entry)?;
        let ((forward, back), returned) = (block.for_writer()?, block.returned()?);
        let ([reader, writer], [counts, _]) = (block.flags()?, block.counts()?);
        Some(WriterLink {
            sleeper: watch.note_sleeper(port, writer),
            forward,
            back,
            returned,
            freed: Regrants::default(),
            reader,
            counts,
            puts: 0,
            bytes: 0,
            waits: 0,
            lent: vec![0; SLOTS].into(),
            lent_count: 0,
            most: entry.len,
            usual: entry.slot,
            dry: Dry::No,
            asks: (false, false),
        })
    }

    /// Puts a message. Whether the reader sleeps or the core wants this writer back: see [`WriterLink::calls`].
    #[inline(always)]
    pub(crate) fn put(&mut self, entry: Descriptor) -> bool {
        failpoint!("direct.put.before_push");
        let lent = &mut self.lent[usize::from(entry.slot) % SLOTS];
        self.lent_count += u32::from(*lent == 0);
        *lent = u32::from(entry.generation) + 1;
        self.forward.push(Descriptor { op: down::MESSAGE, target: 0, ..entry });
        failpoint!("direct.put.after_push");
        self.puts += 1;
        self.bytes += u64::from(entry.len);
        self.counts.set(DirectCounts::MESSAGES, self.puts);
        self.counts.set(DirectCounts::BYTES, self.bytes);
        self.reader.wants()
    }

    /// Whether to wake the reader: once for each sleep.
    pub(crate) fn calls(&self) -> bool {
        self.reader.take()
    }

    /// Whether the core wants this writer back.
    pub(crate) fn is_recalled(&self) -> bool {
        self.reader.is_recalled()
    }

    /// The next slot that the reader gave back, and its generation.
    ///
    /// # Errors
    /// It gave back what it does not have.
    #[inline(always)]
    pub(crate) fn reclaim(&mut self) -> Result<Option<(u16, u16)>, ()> {
        if let Some(slot) = self.freed.pop() {
            return self.reclaim_slot(slot, None);
        }
        let Some(entry) = self.back.pop().or_else(|| self.returned.pop()) else {
            self.sleeper.note_look();
            return Ok(None);
        };
        match entry.op {
            up::FREE => self.reclaim_slot(entry.slot, Some(entry.generation)),
            up::FREE_MANY => {
                self.freed = Regrants::of(entry).ok_or(())?;
                let first = self.freed.pop().ok_or(())?;
                self.reclaim_slot(first, None)
            }
            _ => Err(()),
        }
    }

    /// A slot comes back, by the generation that the other end says or the one that it was lent in.
    #[inline(always)]
    fn reclaim_slot(&mut self, slot: u16, said: Option<u16>) -> Result<Option<(u16, u16)>, ()> {
        let lent = self.lent.get_mut(usize::from(slot)).ok_or(())?;
        let generation = lent.checked_sub(1).ok_or(())? as u16;
        if said.is_some_and(|said| said != generation) {
            return Err(());
        }
        *lent = 0;
        self.lent_count -= 1;
        self.dry = Dry::No;
        Ok(Some((slot, generation)))
    }

    /// How many buffers this writer is to have ahead once it uses these rings no more.
    pub(crate) fn usual_ahead(&self) -> usize {
        self.usual.into()
    }

    /// The core granted a buffer.
    #[inline]
    pub(crate) fn note_grant(&mut self) {
        self.dry = Dry::No;
    }

    /// There is no buffer. Whether to ask for more; if it has been asked, that is counted, once until there is one.
    #[cold]
    pub(crate) fn note_dry(&mut self) -> bool {
        let before = self.dry;
        self.dry = match before {
            Dry::No if self.lent_count < self.most => Dry::Asked,
            _ => Dry::Counted,
        };
        if before != Dry::Counted && self.dry == Dry::Counted {
            self.waits += 1;
            self.counts.set(DirectCounts::THIRD, self.waits);
        }
        self.dry == Dry::Asked
    }

    /// Asks the core to look at what this writer is due: whether to send that now. One is under way at most.
    pub(crate) fn ask(&mut self) -> bool {
        self.asks.1 = self.asks.0;
        !std::mem::replace(&mut self.asks.0, true)
    }

    /// The core has looked: whether to ask it once more.
    pub(crate) fn asked(&mut self) -> bool {
        let (_, again) = std::mem::take(&mut self.asks);
        again && self.ask()
    }

    /// The entries that leave to the core what the reader has.
    pub(crate) fn left(&self) -> impl Iterator<Item = Descriptor> + '_ {
        let lent = (0..).zip(&self.lent).filter(|(_, lent)| **lent != 0);
        lent.map(|(slot, lent)| Descriptor {
            op: up::LEFT,
            slot,
            generation: (lent - 1) as u16,
            ..Descriptor::default()
        })
    }
}

/// Whether the reader looks at what comes over direct rings.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pause {
    No,
    /// Until it finds nothing.
    Soon,
    Yes,
}

/// The reader's end.
pub(crate) struct ReaderLink {
    sleeper: Sleeper,
    forward: RingReader<Descriptor>,
    back: RingWriter<Descriptor>,
    writer: SleepFlag,
    counts: DirectCounts,
    /// Messages ended or moved on, and their bytes.
    gets: u64,
    bytes: u64,
    /// Slots of messages that are ended together, and in no entry yet.
    freed: Regrants,
    /// Messages of this side that had been dropped before.
    dropped_before: u32,
    /// The writer puts nothing more in.
    is_over: bool,
    /// An entry that comes in is not looked at until the writer puts nothing more in.
    pause: Pause,
}

impl ReaderLink {
    /// That in the block that the core's entry names; none if it is not inside the segment.
    ///
    /// Of the messages of this side `dropped_before` had been dropped by then.
    pub(crate) fn new(
        shared: &Arc<Segment>,
        watch: &Arc<Watch>,
        port: u16,
        entry: &Descriptor,
        dropped_before: u32,
    ) -> Option<ReaderLink> {
        let block = block(shared, entry)?;
        let (forward, back) = block.for_reader()?;
        let ([reader, writer], [_, counts]) = (block.flags()?, block.counts()?);
        Some(ReaderLink {
            sleeper: watch.note_sleeper(port, reader),
            forward,
            back,
            writer,
            counts,
            gets: 0,
            bytes: 0,
            freed: Regrants::default(),
            dropped_before,
            is_over: false,
            pause: Pause::No,
        })
    }

    /// The next message, as an entry for the records of this side.
    ///
    /// # Errors
    /// The writer wrote what is no message.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Result<Option<Descriptor>, ()> {
        if self.pause == Pause::Yes {
            return Ok(None);
        }
        let Some(entry) = self.forward.pop() else {
            self.sleeper.note_look();
            if self.pause == Pause::Soon {
                self.pause = Pause::Yes;
            }
            return Ok(None);
        };
        self.counts.set(DirectCounts::THIRD, self.forward.position());
        if entry.op != down::MESSAGE || entry.slot >= FIRST_OF_PEER {
            return Err(());
        }
        failpoint!("direct.get.after_pop");
        Ok(Some(Descriptor { slot: entry.slot + FIRST_OF_PEER, target: 0, ..entry }))
    }

    /// Ends a message that came over these rings. Whether to wake the writer.
    #[inline(always)]
    pub(crate) fn end(&mut self, entry: Descriptor, whole_len: u32) -> bool {
        failpoint!("direct.end_get.before_push");
        self.count(whole_len);
        self.back.push(Descriptor { slot: entry.slot - FIRST_OF_PEER, ..entry });
        failpoint!("direct.end_get.after_push");
        self.writer.wants() && self.writer.take()
    }

    /// The same for one of several messages; the last of them is followed by [`ReaderLink::end_burst`].
    #[inline(always)]
    pub(crate) fn end_one_of_many(&mut self, slot: u16, whole_len: u32) -> bool {
        let wakes = self.freed.count() == Regrants::MOST && self.end_burst();
        self.freed.add(slot - FIRST_OF_PEER);
        self.gets += 1;
        self.bytes += u64::from(whole_len);
        wakes
    }

    /// Gives the slots back that are in no entry yet. Whether to wake the writer.
    #[inline]
    pub(crate) fn end_burst(&mut self) -> bool {
        if self.freed.count() == 0 {
            return false;
        }
        failpoint!("direct.end_get.before_push");
        self.counts.set(DirectCounts::MESSAGES, self.gets);
        self.counts.set(DirectCounts::BYTES, self.bytes);
        self.back.push(std::mem::take(&mut self.freed).entry(up::FREE_MANY));
        failpoint!("direct.end_get.after_push");
        self.writer.wants() && self.writer.take()
    }

    /// Notes a message as ended here: it goes to the core.
    #[inline]
    pub(crate) fn count(&mut self, whole_len: u32) {
        self.gets += 1;
        self.bytes += u64::from(whole_len);
        self.counts.set(DirectCounts::MESSAGES, self.gets);
        self.counts.set(DirectCounts::BYTES, self.bytes);
    }

    /// Notes that the writer puts nothing more in.
    pub(crate) fn note_over(&mut self) {
        (self.is_over, self.pause) = (true, Pause::No);
    }

    /// Notes that what comes in after what is there now comes behind what the core sends next.
    pub(crate) fn note_pause(&mut self) {
        self.pause = Pause::Soon;
    }

    /// Whether nothing more comes.
    #[inline(always)]
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether besides all that came is ended, moved on or dropped: of the messages of this side `dropped` were.
    #[cold]
    pub(crate) fn is_done(&self, dropped: u32) -> bool {
        let dropped = dropped.wrapping_sub(self.dropped_before);
        // `dropped` wraps.
        let gone = (self.gets as u32).wrapping_add(dropped);
        self.is_over && !self.forward.is_ready() && self.forward.position() as u32 == gone
    }
}

/// Whether a slot is one of the writer's at the other end of direct rings.
#[inline(always)]
pub(crate) fn is_of_peer(slot: u16) -> bool {
    slot >= FIRST_OF_PEER
}
