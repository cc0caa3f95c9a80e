//! Keys in the order in which they were used, for state in which a key is used anywhere: each use writes behind the last one, and
//! to the key's own entry, where a list would write to those of two neighbours.

use crossdock_mailbox::MappedVec;

/// Places that there may be for each key before the order is tidied, and beside those: a key moves up once while it is used three times.
pub(super) const PLACES: usize = 4;
const SPARE: usize = 1024;

/// Numbers of keys, in order of use. A place is left empty where its key is used again, or goes; then those behind it move up,
/// some with each use, so that places are not many times as many as keys.
#[derive(Debug)]
pub(super) struct UseOrder {
    /// The number at each place; any where it is empty.
    numbers: MappedVec<u32>,
    /// A bit for each place that is not empty.
    there: MappedVec<u64>,
    len: usize,
    /// The first place that is not empty.
    first: usize,
    pass: Option<Pass>,
}

/// How far places have moved up: all between the two are empty.
#[derive(Clone, Copy, Debug)]
struct Pass {
    to: usize,
    from: usize,
}

impl Default for UseOrder {
    /// With room for the places of few keys, so that these allocate nothing later.
    fn default() -> UseOrder {
        let (mut numbers, mut there) = (MappedVec::filled(PLACES * SPARE, 0), MappedVec::zeros(PLACES * SPARE / 64));
        numbers.clear();
        there.clear();
        UseOrder { numbers, there, len: 0, first: 0, pass: None }
    }
}

impl UseOrder {
    /// Notes that a key is used now: its place, which it keeps until it is used again or [moves](UseOrder::tidy).
    #[inline]
    pub(super) fn push(&mut self, number: u32) -> u32 {
        let place = self.numbers.len();
        self.numbers.push(number);
        if place / 64 == self.there.len() {
            self.there.push(0);
        }
        if let Some(word) = self.there.get_mut(place / 64) {
            *word |= 1 << (place % 64);
        }
        self.len += 1;
        // There is no memory for the keys of more places than that.
        place as u32
    }

    /// Notes that the key at this place is used now; its place from here on.
    #[inline]
    pub(super) fn again(&mut self, place: u32, number: u32) -> u32 {
        if place as usize + 1 == self.numbers.len() {
            return place;
        }
        self.remove(place);
        self.push(number)
    }

    /// Takes the key at this place out.
    #[inline]
    pub(super) fn remove(&mut self, place: u32) {
        let place = place as usize;
        let Some(word) = self.there.get_mut(place / 64) else { return };
        *word &= !(1 << (place % 64));
        self.len -= 1;
        if self.len == 0 {
            self.numbers.clear();
            self.there.clear();
            (self.first, self.pass) = (0, None);
        } else if place == self.first {
            self.first = self.next(place + 1);
        }
    }

    /// The first place from this one on that is not empty.
    #[inline]
    fn next(&self, mut at: usize) -> usize {
        loop {
            if let Some(Pass { to, from }) = self.pass
                && (to..from).contains(&at)
            {
                at = from;
            }
            let Some(word) = self.there.get(at / 64) else { return self.numbers.len() };
            match word >> (at % 64) {
                0 => at = (at / 64 + 1) * 64,
                rest => return at + rest.trailing_zeros() as usize,
            }
        }
    }

    /// The key that was not used for the longest.
    #[inline]
    pub(super) fn oldest(&self) -> Option<u32> {
        self.numbers.get(self.first).copied().filter(|_| self.len > 0)
    }

    /// The keys, from the one that was not used for the longest on.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        let places = std::iter::successors((self.len > 0).then_some(self.first), |place| Some(self.next(place + 1)));
        places.take(self.len).filter_map(|place| self.numbers.get(place).copied())
    }

    /// Asks for the memory of a place, which will be emptied soon.
    #[inline]
    pub(super) fn prefetch(&self, place: u32) {
        self.there.prefetch(place as usize / 64);
    }

    /// Moves keys up where many places are empty, that many or fewer; `moved` learns the new place of each.
    #[inline]
    pub(super) fn tidy(&mut self, most: usize, mut moved: impl FnMut(u32, u32)) {
        if self.pass.is_none() && self.numbers.len() < PLACES * self.len + SPARE {
            return;
        }
        let Pass { mut to, mut from } = self.pass.unwrap_or(Pass { to: 0, from: self.first });
        for _ in 0..most {
            let Some(word) = self.there.get_mut(from / 64).filter(|_| from < self.numbers.len()) else {
                self.numbers.truncate(to);
                self.there.truncate(to.div_ceil(64));
                self.pass = None;
                return;
            };
            let rest = *word >> (from % 64);
            if rest == 0 {
                // A key that is used meanwhile has a place in the rest of the last word.
                from = ((from / 64 + 1) * 64).min(self.numbers.len());
                continue;
            }
            let at = from + rest.trailing_zeros() as usize;
            *word &= !(1 << (at % 64));
            if let (Some(word), Some(&number)) = (self.there.get_mut(to / 64), self.numbers.get(at)) {
                *word |= 1 << (to % 64);
                self.numbers[to] = number;
                moved(number, to as u32);
            }
            if at == self.first {
                self.first = to;
            }
            (to, from) = (to + 1, at + 1);
        }
        self.pass = Some(Pass { to, from });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a list, in which a key moves to the end when it is used.
        #[test]
        fn keys_stand_in_the_order_of_their_last_use(
            steps in prop::collection::vec((0..10u8, any::<u32>(), 1..200usize), 0..60), keys in 1..400u32, most in 0..40usize,
        ) {
            let (mut order, mut model) = (UseOrder::default(), Vec::new());
            let mut places = vec![None; keys as usize];
            for (kind, first, count) in steps {
                for step in 0..count as u32 {
                    // By chance, in turn, or the same one again.
                    let number = match kind {
                        0..4 => first.wrapping_mul(step.wrapping_mul(2_654_435_761) | 1) % keys,
                        4..7 => first.wrapping_add(step) % keys,
                        7 => first % keys,
                        _ => match order.oldest() {
                            Some(oldest) => oldest,
                            None => break,
                        },
                    };
                    let place = places[number as usize];
                    model.retain(|other| *other != number);
                    if kind == 9 {
                        order.remove(place.unwrap());
                        places[number as usize] = None;
                    } else {
                        let place = match place {
                            Some(place) => order.again(place, number),
                            None => order.push(number),
                        };
                        places[number as usize] = Some(place);
                        model.push(number);
                    }
                    order.tidy(most, |number, place| places[number as usize] = Some(place));
                    prop_assert_eq!(order.oldest(), model.first().copied());
                }
                prop_assert_eq!(order.iter().collect::<Vec<_>>(), &model[..]);
                let bound = if most < 4 { usize::MAX } else { 6 * keys as usize + SPARE + 64 };
                prop_assert!(order.numbers.len() <= bound, "{} places", order.numbers.len());
            }
        }
    }
}
