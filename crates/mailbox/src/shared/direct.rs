//! Direct rings: what the writer and the reader of one mailbox share, where they are two clients of one domain.
//!
//! A block of the domain's shared segment, which the core allocates and clears: a ring from the writer to the reader, by which
//! slots go that the core granted to the writer, and one back; and one from the core to the writer, for slots that the reader
//! gives back from outside its ring. The core knows which slots are the writer's, and takes the place of whoever leaves. Beside
//! the rings are the words by which a side says that it sleeps, and counts that the core reads when it is asked for them.
//!
//! A side that goes to sleep says so, and has everybody's fences made before its last look (see [`super::bell`]); who
//! publishes looks afterwards whether the other side sleeps, and has the core wake it then. Nobody pays for a side that
//! polls.

use super::layout::SLOTS;
use super::ring::{Descriptor, Entry};
use super::words::Words;
use crate::sync::{Ordering, fence};
#[cfg(not(loom))]
use {
    super::ring::{RingReader, RingWriter},
    crate::segment::Segment,
    crate::sync::Arc,
};

/// Entries of each direct ring: each that was not taken yet is of another slot of the writer's port.
pub(crate) const DIRECT_ENTRIES: usize = SLOTS;

/// Areas start on two cache lines: x86 fetches them in pairs.
const PADDING_BYTES: usize = 128;
const RING_BYTES: usize = DIRECT_ENTRIES * Descriptor::WORDS * 8;

/// Where everything lies in a block, in bytes from its start.
pub(crate) struct DirectLayout;

impl DirectLayout {
    const READER_SLEEPS: usize = 0;
    const WRITER_SLEEPS: usize = PADDING_BYTES;
    const PUT: usize = 2 * PADDING_BYTES;
    const GOT: usize = 3 * PADDING_BYTES;
    const FORWARD: usize = 4 * PADDING_BYTES;
    const BACK: usize = Self::FORWARD + RING_BYTES + PADDING_BYTES;
    const RETURNED: usize = Self::BACK + RING_BYTES + PADDING_BYTES;
    /// Length of a block.
    pub(crate) const BYTES: usize = Self::RETURNED + RING_BYTES;
}

/// A block in a segment, for whoever takes hold of its parts: the writer, the reader, the core.
#[cfg(not(loom))]
pub(crate) struct DirectBlock<'a> {
    segment: &'a Arc<Segment>,
    at: usize,
    /// A side that publishes makes the fences itself.
    fences: bool,
}

#[cfg(not(loom))]
impl<'a> DirectBlock<'a> {
    /// The block that begins `at` bytes into `segment`; none if it is not all inside.
    pub(crate) fn new(segment: &'a Arc<Segment>, at: u32, fences: bool) -> Option<DirectBlock<'a>> {
        let at = at as usize;
        segment.at(at, DirectLayout::BYTES)?;
        Some(DirectBlock { segment, at, fences })
    }

    /// The ring from the writer to the reader, and that back, for the writer.
    pub(crate) fn for_writer(&self) -> Option<(RingWriter<Descriptor>, RingReader<Descriptor>)> {
        let [forward, back] = [DirectLayout::FORWARD, DirectLayout::BACK].map(|at| self.at + at);
        let forward = RingWriter::new(self.segment, forward, DIRECT_ENTRIES)?;
        Some((forward, RingReader::new(self.segment, back, DIRECT_ENTRIES)?))
    }

    /// The same for the reader.
    pub(crate) fn for_reader(&self) -> Option<(RingReader<Descriptor>, RingWriter<Descriptor>)> {
        let [forward, back] = [DirectLayout::FORWARD, DirectLayout::BACK].map(|at| self.at + at);
        let forward = RingReader::new(self.segment, forward, DIRECT_ENTRIES)?;
        Some((forward, RingWriter::new(self.segment, back, DIRECT_ENTRIES)?))
    }

    /// The ring from the core to the writer, for the writer.
    pub(crate) fn returned(&self) -> Option<RingReader<Descriptor>> {
        RingReader::new(self.segment, self.at + DirectLayout::RETURNED, DIRECT_ENTRIES)
    }

    /// The same for the core.
    pub(crate) fn for_returns(&self) -> Option<RingWriter<Descriptor>> {
        RingWriter::new(self.segment, self.at + DirectLayout::RETURNED, DIRECT_ENTRIES)
    }

    /// The flag that says whether the reader sleeps, and that of the writer.
    pub(crate) fn flags(&self) -> Option<[SleepFlag; 2]> {
        let flag = |at: usize| {
            let words = Words::new(self.segment, self.at + at, 2)?;
            Some(SleepFlag { words, fences: self.fences })
        };
        Some([flag(DirectLayout::READER_SLEEPS)?, flag(DirectLayout::WRITER_SLEEPS)?])
    }

    /// The counts of the writer, and those of the reader.
    pub(crate) fn counts(&self) -> Option<[DirectCounts; 2]> {
        let counts = |at: usize| Words::new(self.segment, self.at + at, 4).map(DirectCounts);
        Some([counts(DirectLayout::PUT)?, counts(DirectLayout::GOT)?])
    }
}

/// Whether one side sleeps, and besides, in the reader's, whether the core wants the writer back: two words of a line that the other
/// side looks at each time it has published something, and that hardly ever change.
pub(crate) struct SleepFlag {
    words: Words,
    fences: bool,
}

impl SleepFlag {
    /// That in these two words.
    #[cfg(loom)]
    pub(crate) fn over(words: Words) -> SleepFlag {
        SleepFlag { words, fences: true }
    }

    /// By the side that goes to sleep, at all of these places: it looks once more after this, and then sleeps.
    pub(crate) fn fall_asleep<'a>(flags: impl Iterator<Item = &'a SleepFlag>) {
        let (mut is_any, mut is_made) = (false, true);
        for flag in flags {
            flag.words.word(0).store(1, Ordering::Relaxed);
            (is_any, is_made) = (true, is_made && flag.fences);
        }
        if is_any {
            fence(Ordering::SeqCst);
        }
        #[cfg(not(loom))]
        if !is_made {
            let _fenced = super::bell::barrier::fence_registered();
        }
        #[cfg(loom)]
        assert!(is_made, "the kernel's barrier is no part of the model");
    }

    /// By the same, when it looks by itself again: nobody need wake it.
    pub(crate) fn wake_up(&self) {
        self.words.word(0).store(0, Ordering::Relaxed);
    }

    /// By the other side, after publishing: whether there is anything to see to.
    #[inline(always)]
    pub(crate) fn wants(&self) -> bool {
        #[cfg(not(loom))]
        match self.fences {
            true => fence(Ordering::SeqCst),
            // The processor's part is done by who goes to sleep, or by the core, at the latest between its word and its last look.
            false => std::sync::atomic::compiler_fence(Ordering::SeqCst),
        }
        #[cfg(loom)]
        fence(Ordering::SeqCst);
        self.words.word(0).load(Ordering::Relaxed) | self.words.word(1).load(Ordering::Relaxed) != 0
    }

    /// By the other side: whether to wake this one. One yes for one sleep.
    pub(crate) fn take(&self) -> bool {
        // An exchange: what it takes is the latest sleep, and whatever that side did before it fell asleep is seen by who wakes it.
        self.words.word(0).swap(0, Ordering::AcqRel) != 0
    }

    /// By the side that has said that it goes to sleep, at its last look: whether it is to be woken already. A caller
    /// that does so may have come too early to see it asleep.
    pub(crate) fn is_called(&self) -> bool {
        self.words.word(0).load(Ordering::Relaxed) == 0
    }

    /// By the core: wants the writer back. It makes a fence and looks once more at what the writer put.
    pub(crate) fn recall(&self) {
        self.words.word(1).store(1, Ordering::Release);
    }

    /// By the writer: whether the core wants it back.
    #[inline]
    pub(crate) fn is_recalled(&self) -> bool {
        self.words.word(1).load(Ordering::Acquire) != 0
    }
}

/// Numbers that one side counts up and the core reads when it is asked for them.
#[cfg(not(loom))]
pub(crate) struct DirectCounts(Words);

#[cfg(not(loom))]
impl DirectCounts {
    /// Messages put; of the reader's, those ended.
    pub(crate) const MESSAGES: usize = 0;
    /// Their bytes.
    pub(crate) const BYTES: usize = 1;
    /// Of the writer's, times that it had no buffer; of the reader's, messages taken from the ring.
    pub(crate) const THIRD: usize = 2;

    /// Says a number, by its side.
    #[inline(always)]
    pub(crate) fn set(&self, which: usize, value: u64) {
        self.0.word(which).store(value, Ordering::Relaxed);
    }

    /// The value of a side for a number: it may have written what it likes.
    pub(crate) fn get(&self, which: usize) -> u64 {
        self.0.word(which).load(Ordering::Relaxed)
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used)] // a test that fails may panic
mod tests {
    use super::*;

    #[test]
    fn parts_lie_apart_on_their_boundaries() {
        let ends = [
            (DirectLayout::READER_SLEEPS, 16),
            (DirectLayout::WRITER_SLEEPS, 16),
            (DirectLayout::PUT, 32),
            (DirectLayout::GOT, 32),
            (DirectLayout::FORWARD, RING_BYTES),
            (DirectLayout::BACK, RING_BYTES),
            (DirectLayout::RETURNED, RING_BYTES),
            (DirectLayout::BYTES, 0),
        ];
        for pair in ends.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0 && pair[0].0 % PADDING_BYTES == 0, "{pair:?}");
        }
    }

    #[test]
    fn a_block_outside_its_segment_is_none() {
        let segment = Arc::new(Segment::new(4 * 4096).unwrap());
        let last = segment.bytes() - DirectLayout::BYTES;
        assert!(DirectBlock::new(&segment, last as u32 + 1, true).is_none());
        assert!(DirectBlock::new(&segment, u32::MAX, true).is_none());
        for at in [0, last as u32 / 64 * 64] {
            let block = DirectBlock::new(&segment, at, true).unwrap();
            assert!(block.for_writer().is_some() && block.for_reader().is_some());
            assert!(block.flags().is_some() && block.counts().is_some());
        }
        let askew = DirectBlock::new(&segment, 4, true).unwrap();
        assert!(askew.for_writer().is_none() && askew.for_reader().is_none());
        assert!(askew.returned().is_none() && askew.for_returns().is_none());
        assert!(askew.flags().is_none() && askew.counts().is_none());
    }

    #[test]
    fn slots_go_to_and_fro_and_sleep_is_seen_once() {
        let segment = Arc::new(Segment::new(4 * 4096).unwrap());
        let block = DirectBlock::new(&segment, 64, true).unwrap();
        let ((mut forward, mut returned), (mut arrived, mut back)) =
            (block.for_writer().unwrap(), block.for_reader().unwrap());
        let ([of_reader, of_writer], [seen, _]) = (block.flags().unwrap(), block.flags().unwrap());
        for number in 0..3 * DIRECT_ENTRIES as u32 {
            forward.push(Descriptor { offset: number, ..Descriptor::default() });
            let entry = arrived.pop().unwrap();
            assert_eq!(entry.offset, number);
            back.push(entry);
            assert_eq!(returned.pop(), Some(entry));
        }
        assert!(!seen.wants() && !of_writer.wants());
        SleepFlag::fall_asleep([&of_reader].into_iter());
        assert!(seen.wants() && seen.take() && !seen.take() && !seen.wants());
        SleepFlag::fall_asleep([&of_reader].into_iter());
        of_reader.wake_up();
        assert!(!seen.wants() && !seen.is_recalled());
        of_reader.recall();
        assert!(seen.wants() && !seen.take() && seen.is_recalled() && !of_writer.wants());
    }
}
