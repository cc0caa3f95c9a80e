//! Which records of a batch are meant: all of them, or a list.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many records the user of a [`Selection`] has gone on to: its thread counts, any other reads.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<AtomicU64>);

impl Progress {
    /// Records so far, over all batches.
    pub fn records(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    #[inline]
    fn step(&self) {
        // One thread writes, so no locked instruction is needed.
        self.0.store(self.records().wrapping_add(1), Ordering::Relaxed);
    }
}

/// Which records of a batch are meant, by their indices in rising order. A filter narrows it; a batch that passes whole
/// stays "all" and costs no list. Cleared and used again, it allocates nothing.
#[derive(Debug, Default)]
pub struct Selection {
    total: u32,
    /// Whether `chosen` counts; else all of `total` are meant.
    listed: bool,
    chosen: Vec<u32>,
    /// Counts the records that are gone on to, if that is watched.
    progress: Option<Progress>,
}

impl Selection {
    /// All of `total` records.
    pub fn all(total: usize) -> Selection {
        let mut selection = Selection::default();
        selection.select_all(total);
        selection
    }

    /// Means all of `total` records from now on; `total` is cut at `u32::MAX`.
    pub fn select_all(&mut self, total: usize) {
        self.total = u32::try_from(total).unwrap_or(u32::MAX);
        self.listed = false;
        self.chosen.clear();
    }

    /// Means those of `total` records whose indices are in this range from now on; both are cut at `u32::MAX`.
    pub fn select_range(&mut self, range: Range<usize>, total: usize) {
        self.select_all(total);
        let of = |index: usize| u32::try_from(index).unwrap_or(u32::MAX).min(self.total);
        let (from, until) = (of(range.start), of(range.end));
        self.listed = (from, until) != (0, self.total);
        if self.listed {
            self.chosen.extend(from..until);
        }
    }

    /// Counts each record that [`Selection::narrow`] and [`Selection::iter`] go on to from here on.
    pub fn watch(&mut self, progress: &Progress) {
        self.progress = Some(progress.clone());
    }

    /// Nothing of nothing, the list's memory kept.
    pub fn clear(&mut self) {
        self.select_all(0);
    }

    /// Keeps of the records meant those for which `keep` says so; it is asked in order, once for each.
    #[inline]
    pub fn narrow(&mut self, mut keep: impl FnMut(usize) -> bool) {
        match self.progress.take() {
            None => self.keep(keep),
            Some(progress) => {
                self.keep(|index| {
                    progress.step();
                    keep(index)
                });
                self.progress = Some(progress);
            }
        }
    }

    #[inline]
    fn keep(&mut self, mut keep: impl FnMut(usize) -> bool) {
        // Every index is written, and the answer only moves the place of the next one: what a filter says is hard to
        // predict, and a branch for each record would cost more than the write.
        let mut kept = 0;
        if self.listed {
            for at in 0..self.chosen.len() {
                let index = self.chosen[at];
                self.chosen[kept] = index;
                kept += usize::from(keep(index as usize));
            }
        } else {
            self.chosen.resize(self.total as usize, 0);
            for index in 0..self.total {
                self.chosen[kept] = index;
                kept += usize::from(keep(index as usize));
            }
            self.listed = kept < self.total as usize;
        }
        // A whole pass keeps no list.
        self.chosen.truncate(if self.listed { kept } else { 0 });
    }

    /// How many records are meant.
    pub fn len(&self) -> usize {
        if self.listed { self.chosen.len() } else { self.total as usize }
    }

    /// Whether none is meant.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether every record of the batch is meant.
    pub fn is_all(&self) -> bool {
        !self.listed
    }

    /// How many records it chooses from.
    pub fn total(&self) -> usize {
        self.total as usize
    }

    /// Whether record `index` is meant.
    pub fn contains(&self, index: usize) -> bool {
        let Ok(index) = u32::try_from(index) else {
            return false;
        };
        if self.listed { self.chosen.binary_search(&index).is_ok() } else { index < self.total }
    }

    /// The indices meant, rising.
    pub fn iter(&self) -> Chosen<'_> {
        let progress = self.progress.as_ref();
        let indices = if self.listed { Indices::Listed(self.chosen.iter()) } else { Indices::All(0..self.total) };
        Chosen { indices, progress }
    }
}

impl Clone for Selection {
    fn clone(&self) -> Selection {
        Selection { total: self.total, listed: self.listed, chosen: self.chosen.clone(), progress: None }
    }

    /// Takes over what `from` means, in the memory that this one has; not what watches it.
    fn clone_from(&mut self, from: &Selection) {
        self.total = from.total;
        self.listed = from.listed;
        self.chosen.clone_from(&from.chosen);
    }
}

impl<'a> IntoIterator for &'a Selection {
    type Item = usize;
    type IntoIter = Chosen<'a>;
    fn into_iter(self) -> Chosen<'a> {
        self.iter()
    }
}

/// The indices of a [`Selection`], rising.
#[derive(Clone, Debug)]
pub struct Chosen<'a> {
    indices: Indices<'a>,
    progress: Option<&'a Progress>,
}

#[derive(Clone, Debug)]
enum Indices<'a> {
    /// Every index.
    All(std::ops::Range<u32>),
    /// Those listed.
    Listed(std::slice::Iter<'a, u32>),
}

impl Iterator for Chosen<'_> {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if let Some(progress) = self.progress {
            progress.step();
        }
        match &mut self.indices {
            Indices::All(range) => range.next().map(|index| index as usize),
            Indices::Listed(list) => list.next().map(|&index| index as usize),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match &self.indices {
            Indices::All(range) => range.size_hint(),
            Indices::Listed(list) => list.size_hint(),
        }
    }
}

impl ExactSizeIterator for Chosen<'_> {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_whole_pass_keeps_no_list() {
        let mut selection = Selection::all(5);
        selection.narrow(|_| true);
        assert!(selection.is_all());
        assert!(selection.chosen.is_empty());
        assert_eq!(selection.iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn each_record_that_is_gone_on_to_is_progress() {
        let (progress, mut seen) = (Progress::default(), Vec::new());
        let mut selection = Selection::all(4);
        selection.watch(&progress);
        selection.narrow(|index| {
            seen.push(progress.records());
            index > 0
        });
        assert_eq!(seen, [1, 2, 3, 4]);
        let records: Vec<u64> = selection.iter().map(|_| progress.records()).collect();
        assert_eq!(records, [5, 6, 7]);
        let before = progress.records();
        selection.clone().iter().for_each(drop);
        assert_eq!(progress.records(), before, "a copy is not watched");
    }

    #[test]
    fn nothing_of_nothing() {
        let mut selection = Selection::default();
        selection.narrow(|_| false);
        assert!(selection.is_empty() && selection.is_all());
        assert!(!selection.contains(0));
    }

    proptest! {
        #[test]
        #[cfg_attr(miri, ignore = "nothing unsafe in it")]
        fn a_range_is_what_is_in_it(total in 0usize..300, from in 0usize..300, until in 0usize..310) {
            let (mut ranged, mut narrowed) = (Selection::all(7), Selection::all(total));
            ranged.select_range(from..until, total);
            narrowed.narrow(|index| (from..until).contains(&index));
            prop_assert_eq!(ranged.iter().collect::<Vec<_>>(), narrowed.iter().collect::<Vec<_>>());
            prop_assert_eq!((ranged.is_all(), ranged.total()), (narrowed.is_all(), total));
        }

        #[test]
        #[cfg_attr(miri, ignore = "nothing unsafe in it")]
        fn narrowing_is_filtering(total in 0usize..300, rounds in prop::collection::vec(any::<u64>(), 0..5)) {
            let keep = |round: u64, index: usize| round.rotate_left(index as u32 % 64) & 1 == 1 || round.is_multiple_of(3);
            let mut selection = Selection::all(total);
            let mut expected: Vec<usize> = (0..total).collect();
            for &round in &rounds {
                let mut asked = Vec::new();
                selection.narrow(|index| { asked.push(index); keep(round, index) });
                prop_assert_eq!(&asked, &expected);
                expected.retain(|&index| keep(round, index));
            }
            prop_assert_eq!(selection.iter().collect::<Vec<_>>(), expected.clone());
            prop_assert_eq!(selection.len(), expected.len());
            prop_assert_eq!(selection.is_all(), expected.len() == total);
            for index in 0..total + 2 {
                prop_assert_eq!(selection.contains(index), expected.contains(&index));
            }
            let mut copy = Selection::all(7);
            copy.clone_from(&selection);
            prop_assert_eq!(copy.iter().collect::<Vec<_>>(), expected);
        }
    }
}
