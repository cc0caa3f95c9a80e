//! Rings between the daemon and a client, one writer and one reader each, whose entries say themselves whether they are
//! new.
//!
//! The first word of an entry carries the *lap*: how often the writer has been around the ring. The reader looks at the
//! next entry's first word and nowhere else, so that a message costs the move of one cache line from core to core; an
//! index of its own for the writer would cost a second.
//!
//! There is no way to be full: who may write an entry owns a slot or a credit for it, and a ring holds twice the slots.
//! A client that writes more than it owns overwrites its own entries, and the daemon then finds slots that are not
//! there.

use super::words::Words;
use crate::sync::Ordering;
use std::marker::PhantomData;
#[cfg(not(loom))]
use {super::layout::ControlLayout, crate::segment::Segment, crate::sync::Arc};

/// Laps count from 1 to this and on from 1 again; 0 is in memory that was never written.
const LAPS: u8 = u8::MAX;
/// Words of a cache line.
const LINE_WORDS: usize = 8;
/// Words of the longest entry.
const MOST_WORDS: usize = 4;

/// One operation on a slot, in 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Descriptor {
    /// The operation, of [`super::up`] or [`super::down`].
    pub op: u8,
    /// The port's slot.
    pub slot: u16,
    /// Which of the slot's uses is meant.
    pub generation: u16,
    /// Mailbox, area, procedure or reason, as the operation says.
    pub target: u16,
    /// Bytes from the start of the slot's buffer, or of the segment on the way down.
    pub offset: u32,
    /// Bytes.
    pub len: u32,
}

/// One entry of a signal queue, in 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Signal {
    /// The operation and the slot that it is about, if any.
    pub head: Descriptor,
    /// Tag, or what the operation says.
    pub a: u64,
    /// As the operation says.
    pub b: u64,
}

/// An entry of a ring: a few words; the lowest byte of the first is left to the ring.
pub(crate) trait Entry: Copy {
    /// How many words: a power of two, and at most four.
    const WORDS: usize;

    /// The words; those from [`Entry::WORDS`] on are nothing.
    fn encode(self) -> [u64; MOST_WORDS];

    /// The meaning of the words. Any words say something: whether that may be is checked by who knows the slots.
    fn decode(words: [u64; MOST_WORDS]) -> Self;
}

impl Entry for Descriptor {
    const WORDS: usize = 2;

    #[inline(always)]
    fn encode(self) -> [u64; MOST_WORDS] {
        let head = u64::from(self.op) << 8
            | u64::from(self.slot) << 16
            | u64::from(self.generation) << 32
            | u64::from(self.target) << 48;
        [head, u64::from(self.offset) | u64::from(self.len) << 32, 0, 0]
    }

    #[inline(always)]
    fn decode([head, span, ..]: [u64; MOST_WORDS]) -> Descriptor {
        Descriptor {
            op: (head >> 8) as u8,
            slot: (head >> 16) as u16,
            generation: (head >> 32) as u16,
            target: (head >> 48) as u16,
            offset: span as u32,
            len: (span >> 32) as u32,
        }
    }
}

impl Entry for Signal {
    const WORDS: usize = 4;

    #[inline(always)]
    fn encode(self) -> [u64; MOST_WORDS] {
        let [head, span, ..] = self.head.encode();
        [head, span, self.a, self.b]
    }

    #[inline(always)]
    fn decode(words: [u64; MOST_WORDS]) -> Signal {
        Signal { head: Descriptor::decode(words), a: words[2], b: words[3] }
    }
}

/// One side's place on its way around a ring.
struct RingPosition<E> {
    words: Words,
    /// First word of the next entry.
    next: usize,
    lap: u8,
    /// Entries so far.
    passed: u64,
    _entries: PhantomData<fn(E) -> E>,
}

impl<E: Entry> RingPosition<E> {
    fn new(words: Words) -> Option<RingPosition<E>> {
        (words.count() >= E::WORDS).then_some(RingPosition { words, next: 0, lap: 1, passed: 0, _entries: PhantomData })
    }

    #[cfg(not(loom))]
    fn in_segment(segment: &Arc<Segment>, at: usize, entries: usize) -> Option<RingPosition<E>> {
        RingPosition::new(Words::new(segment, at, entries.checked_mul(E::WORDS)?)?)
    }

    /// Loads the words behind the first of the entry that begins at word `next`.
    #[inline(always)]
    fn rest(&self, next: usize, words: &mut [u64; MOST_WORDS]) {
        let mut at = 1;
        while at < E::WORDS {
            words[at] = self.words.word(next + at).load(Ordering::Relaxed);
            at += 1;
        }
    }

    #[inline(always)]
    fn step(&mut self) {
        self.passed += 1;
        self.next += E::WORDS;
        if self.next == self.words.count() {
            self.next = 0;
            self.lap = if self.lap == LAPS { 1 } else { self.lap + 1 };
        }
    }
}

/// The side that writes entries. One thread at a time holds it, and only one such is ever made for a ring.
pub(crate) struct RingWriter<E>(RingPosition<E>);

impl<E: Entry> RingWriter<E> {
    /// The writer of the ring of `entries` (a power of two) that begins `at` bytes into `segment` and was never
    /// written; none if it is not inside.
    #[cfg(not(loom))]
    pub(crate) fn new(segment: &Arc<Segment>, at: usize, entries: usize) -> Option<RingWriter<E>> {
        RingPosition::in_segment(segment, at, entries).map(RingWriter)
    }

    /// The writer of the ring in `words`, which are zero.
    #[cfg(loom)]
    pub(crate) fn over(words: Words) -> Option<RingWriter<E>> {
        RingPosition::new(words).map(RingWriter)
    }

    /// Writes an entry. It cannot be refused: the slots bound what is under way.
    #[inline(always)]
    pub(crate) fn push(&mut self, entry: E) {
        let place = &mut self.0;
        let encoded = entry.encode();
        // By count, which is known to the compiler: it then writes the few stores out.
        let mut at = 1;
        while at < E::WORDS {
            place.words.word(place.next + at).store(encoded[at], Ordering::Relaxed);
            at += 1;
        }
        if place.next.is_multiple_of(LINE_WORDS) {
            // The reader had the lines behind this one, a lap ago.
            place.words.prefetch(place.next + 2 * LINE_WORDS);
        }
        // Release: who sees this lap sees the words above, and what was done to the slot's buffer.
        place.words.word(place.next).store(encoded[0] & !0xff | u64::from(place.lap), Ordering::Release);
        place.step();
    }

    /// Entries written so far.
    pub(crate) fn position(&self) -> u64 {
        self.0.passed
    }
}

/// The side that reads entries. One thread at a time holds it, and only one such is ever made for a ring.
pub(crate) struct RingReader<E>(RingPosition<E>);

impl<E: Entry> RingReader<E> {
    /// The reader of the ring of `entries` (a power of two) that begins `at` bytes into `segment`; nothing was
    /// read yet; none if it is not inside.
    #[cfg(not(loom))]
    pub(crate) fn new(segment: &Arc<Segment>, at: usize, entries: usize) -> Option<RingReader<E>> {
        RingPosition::in_segment(segment, at, entries).map(RingReader)
    }

    /// The reader of the ring in `words`; nothing was read yet.
    #[cfg(loom)]
    pub(crate) fn over(words: Words) -> Option<RingReader<E>> {
        RingPosition::new(words).map(RingReader)
    }

    /// Takes the next entry, if it was written. Each word is loaded once.
    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<E> {
        self.pop_if(|_| true)
    }

    /// Takes the next entry, if it was written and is `wanted`. Each word is loaded once.
    #[inline(always)]
    pub(crate) fn pop_if(&mut self, wanted: impl FnOnce(&E) -> bool) -> Option<E> {
        let place = &mut self.0;
        let mut words = [0; MOST_WORDS];
        // Acquire: with the lap come the other words, and what was done to the slot's buffer.
        words[0] = place.words.word(place.next).load(Ordering::Acquire);
        if words[0] as u8 != place.lap {
            return None;
        }
        place.rest(place.next, &mut words);
        let entry = E::decode(words);
        if !wanted(&entry) {
            return None;
        }
        place.step();
        Some(entry)
    }

    /// How many entries, `most` at most, were written and not taken, as far as they lie before the ring's end.
    #[inline(always)]
    pub(crate) fn ready(&self, most: usize) -> usize {
        let RingPosition { words, next, lap, .. } = &self.0;
        let most = most.min((words.count() - next) / E::WORDS);
        // Acquire: what the other side did before it wrote the entry is seen after this.
        let is_written = |at: &usize| words.word(next + at * E::WORDS).load(Ordering::Acquire) as u8 == *lap;
        (0..most).take_while(is_written).count()
    }

    /// Goes on at entry number `position`, counted from 0 at the ring's beginning.
    pub(crate) fn skip_to(&mut self, position: u64) {
        let place = &mut self.0;
        let entries = (place.words.count() / E::WORDS) as u64;
        place.passed = position;
        place.next = (position % entries) as usize * E::WORDS;
        place.lap = (position / entries % u64::from(LAPS)) as u8 + 1;
    }

    /// Whether [`RingReader::pop`] would give something.
    #[inline(always)]
    pub(crate) fn is_ready(&self) -> bool {
        self.0.words.word(self.0.next).load(Ordering::Acquire) as u8 == self.0.lap
    }

    /// The entry `behind` places after the next one, without taking it, if that entry was written and lies before the
    /// ring's end. Its words may have changed by the time it is taken.
    #[inline(always)]
    pub(crate) fn peek(&self, behind: usize) -> Option<E> {
        let at = self.0.next + behind * E::WORDS;
        let mut words = [0; MOST_WORDS];
        words[0] = self.0.words.word(at).load(Ordering::Acquire);
        if words[0] as u8 != self.0.lap || at >= self.0.words.count() {
            return None;
        }
        self.0.rest(at, &mut words);
        Some(E::decode(words))
    }

    /// Entries read so far.
    pub(crate) fn position(&self) -> u64 {
        self.0.passed
    }
}

/// How many entries of a ring its reader has taken, as it says now and then: for a writer whose entries nobody answers
/// and no slot bounds, or one that must know what is left when the reader dies.
pub(crate) struct TakenCount(Words);

impl TakenCount {
    /// The count of the signal queue to the core; none if the control segment is too short.
    #[cfg(not(loom))]
    pub(crate) fn new(control: &Arc<Segment>) -> Option<TakenCount> {
        Words::new(control, ControlLayout::signal_taken(), 1).map(TakenCount)
    }

    /// The count of the session's ring to the core; none if the control segment is too short.
    #[cfg(not(loom))]
    pub(crate) fn of_session(control: &Arc<Segment>) -> Option<TakenCount> {
        Words::new(control, ControlLayout::session_taken(), 1).map(TakenCount)
    }

    /// The count in these words, which are zero.
    #[cfg(loom)]
    pub(crate) fn over(words: Words) -> TakenCount {
        TakenCount(words)
    }

    /// By the writer: entries taken so far, at least. Their places may be written again.
    #[inline(always)]
    pub(crate) fn load(&self) -> u64 {
        self.0.word(0).load(Ordering::Acquire)
    }

    /// By the reader: the number of entries it has taken.
    #[inline(always)]
    pub(crate) fn store(&self, taken: u64) {
        self.0.word(0).store(taken, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used)] // a test that fails may panic
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    const ENTRIES: usize = 4;

    fn cases() -> ProptestConfig {
        let usual = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
        if cfg!(miri) { ProptestConfig { cases: 6, ..usual } } else { usual }
    }

    fn ring<E: Entry>(entries: usize) -> (Arc<Segment>, RingWriter<E>, RingReader<E>) {
        let segment = Arc::new(Segment::new(64 + entries * E::WORDS * 8).unwrap());
        let (writer, reader) = (RingWriter::new(&segment, 64, entries), RingReader::new(&segment, 64, entries));
        (segment, writer.unwrap(), reader.unwrap())
    }

    fn descriptor() -> impl Strategy<Value = Descriptor> {
        (any::<u8>(), any::<[u16; 3]>(), any::<[u32; 2]>()).prop_map(
            |(op, [slot, generation, target], [offset, len])| Descriptor { op, slot, generation, target, offset, len },
        )
    }

    fn signal() -> impl Strategy<Value = Signal> {
        (descriptor(), any::<[u64; 2]>()).prop_map(|(head, [a, b])| Signal { head, a, b })
    }

    #[test]
    fn an_entry_lies_in_its_words_as_the_contract_says() {
        let entry = Descriptor { op: 1, slot: 0x0302, generation: 0x0504, target: 0x0706, offset: 0x0b0a_0908, len: 9 };
        assert_eq!(entry.encode(), [0x0706_0504_0302_0100, 0x0000_0009_0b0a_0908, 0, 0]);
        let signal = Signal { head: entry, a: 10, b: 11 };
        assert_eq!(signal.encode(), [0x0706_0504_0302_0100, 0x0000_0009_0b0a_0908, 10, 11]);
        let (segment, mut writer, _) = ring::<Descriptor>(ENTRIES);
        writer.push(entry);
        let mut bytes = [0; 16];
        assert!(segment.read_into(64, &mut bytes));
        assert_eq!(bytes, [1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 9, 0, 0, 0], "lap 1 in the lowest byte");
    }

    #[test]
    fn a_ring_outside_its_segment_is_not_made() {
        let segment = Arc::new(Segment::new(4096).unwrap());
        for (at, entries) in [
            (4096, 4),
            (4096 - 32, 4),
            (8, 256),
            (0, 3),
            (0, 0),
            (4, 4),
            (usize::MAX, 4),
            (0, usize::MAX),
            (0, 1 << 63),
        ] {
            assert!(RingWriter::<Descriptor>::new(&segment, at, entries).is_none(), "{at} {entries}");
            assert!(RingReader::<Signal>::new(&segment, at, entries).is_none(), "{at} {entries}");
        }
        assert!(RingWriter::<Descriptor>::new(&segment, 0, 256).is_some());
        assert!(RingReader::<Signal>::new(&segment, 4096 - 128, 4).is_some());
    }

    #[test]
    fn laps_go_around_many_times() {
        let (_segment, mut writer, mut reader) = ring::<Descriptor>(ENTRIES);
        let total = ENTRIES as u32 * u32::from(LAPS) * 2 + 3;
        for number in 0..total {
            assert!(!reader.is_ready() && reader.pop().is_none(), "{number}");
            writer.push(Descriptor { offset: number, ..Descriptor::default() });
            assert!(reader.is_ready());
            assert_eq!(reader.pop().unwrap().offset, number);
        }
        assert_eq!((writer.position(), reader.position()), (total.into(), total.into()));
    }

    proptest! {
        #![proptest_config(cases())]

        #[test]
        fn a_reader_that_skips_goes_on_where_one_that_reads_does(before in 0u64..ENTRIES as u64 * 600) {
            let before = if cfg!(miri) { before % 16 } else { before };
            let (segment, mut writer, mut reader) = ring::<Signal>(ENTRIES);
            for number in 0..before {
                writer.push(Signal { a: number, ..Signal::default() });
                prop_assert!(reader.pop().is_some());
            }
            let mut other = RingReader::<Signal>::new(&segment, 64, ENTRIES).unwrap();
            other.skip_to(before);
            prop_assert!(other.pop().is_none());
            writer.push(Signal { a: before, ..Signal::default() });
            prop_assert_eq!((other.pop(), other.position()), (reader.pop(), before + 1));
        }

        #[test]
        fn any_descriptor_and_signal_come_out_as_they_went_in(
            descriptors in prop::collection::vec(descriptor(), 1..ENTRIES),
            signals in prop::collection::vec(signal(), 1..ENTRIES),
        ) {
            let (_segment, mut writer, mut reader) = ring(ENTRIES);
            descriptors.iter().for_each(|&entry| writer.push(entry));
            for entry in descriptors {
                prop_assert_eq!(reader.pop(), Some(entry));
            }
            let (_segment, mut writer, mut reader) = ring(ENTRIES);
            signals.iter().for_each(|&entry| writer.push(entry));
            for entry in signals {
                prop_assert_eq!(reader.pop(), Some(entry));
            }
        }

        #[test]
        fn a_ring_is_a_queue(steps in prop::collection::vec(any::<bool>(), 0..200), before in 0usize..ENTRIES * 300) {
            let (_segment, mut writer, mut reader) = ring::<Signal>(ENTRIES);
            let before = if cfg!(miri) { before % 16 } else { before };
            for _ in 0..before {
                writer.push(Signal::default());
                prop_assert_eq!(reader.pop(), Some(Signal::default()));
            }
            let (mut model, mut next) = (VecDeque::new(), 0);
            for push in steps {
                if push && model.len() < ENTRIES {
                    next += 1;
                    let entry = Signal { a: next, b: !next, ..Signal::default() };
                    writer.push(entry);
                    model.push_back(entry);
                } else {
                    prop_assert_eq!(reader.is_ready(), !model.is_empty());
                    prop_assert_eq!(reader.pop(), model.pop_front());
                }
                prop_assert_eq!(writer.position() - reader.position(), model.len() as u64);
            }
        }

        /// A hostile writer writes what it likes where it likes: the reader reads something, one entry a call, and soon
        /// finds no more if the writer stops.
        #[test]
        fn garbage_is_read_as_entries_and_no_worse(
            writes in prop::collection::vec((0usize..ENTRIES * 2, any::<u64>(), 0u8..4), 0..100),
        ) {
            let (_segment, writer, mut reader) = ring::<Descriptor>(ENTRIES);
            for (at, word, lap) in writes {
                // The lap that is waited for, now and then: else hardly anything would be read.
                let word = if lap == 0 { word } else { word & !0xff | u64::from(reader.0.lap) };
                writer.0.words.word(at).store(word, Ordering::Relaxed);
                let (ready, position) = (reader.is_ready(), reader.position());
                let entry = reader.pop();
                prop_assert_eq!(entry.is_some(), ready);
                prop_assert_eq!(reader.position(), position + u64::from(ready));
            }
            let more = std::iter::from_fn(|| reader.pop()).take(ENTRIES + 1).count();
            prop_assert!(more <= ENTRIES, "words that nobody changes are read once around");
        }
    }

    #[test]
    fn everything_crosses_between_threads_in_order() {
        let total: u32 = if cfg!(miri) { 100 } else { 100_000 };
        let (_up, mut up, mut up_end) = ring::<Signal>(ENTRIES);
        let (_down, mut down, mut down_end) = ring::<Descriptor>(ENTRIES);
        let echo = std::thread::spawn(move || {
            for number in 0..total {
                let entry = loop {
                    match up_end.pop() {
                        Some(entry) => break entry,
                        None => std::thread::yield_now(),
                    }
                };
                assert_eq!((entry.head.offset, entry.a, entry.b), (number, !u64::from(number), u64::from(number) << 7));
                down.push(entry.head);
            }
        });
        let (mut sent, mut back) = (0, 0);
        while back < total {
            // Half the entries, as slots would bound it.
            while sent < total && sent - back < ENTRIES as u32 / 2 {
                let head = Descriptor { offset: sent, ..Descriptor::default() };
                up.push(Signal { head, a: !u64::from(sent), b: u64::from(sent) << 7 });
                sent += 1;
            }
            match down_end.pop() {
                Some(entry) => {
                    assert_eq!(entry.offset, back);
                    back += 1;
                }
                None => std::thread::yield_now(),
            }
        }
        echo.join().unwrap();
    }
}
