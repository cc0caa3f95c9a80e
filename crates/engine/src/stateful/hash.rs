//! The hash of a key's bytes, which are few, and whether two keys are the same.

use std::hash::{BuildHasher, Hasher, RandomState};

use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;

/// Up to this length, two words say all about a key besides its length.
const SHORT: usize = 16;

/// A secret number by which keys are hashed, so that no keys with equal hashes can be chosen.
#[derive(Debug)]
pub(super) struct Secret(SeedableRandomState);

impl Secret {
    /// Another one each time: from the system, where `foldhash` takes it from addresses and the time.
    pub(super) fn new() -> Secret {
        Secret(SeedableRandomState::with_seed(RandomState::new().hash_one(0), SharedSeed::global_random()))
    }

    /// The hash of these bytes.
    #[inline]
    pub(super) fn hash(&self, key: &[u8]) -> u32 {
        let mut hasher = self.0.build_hasher();
        hasher.write(key);
        hasher.finish() as u32
    }
}

/// The first and the last bytes, which overlap: of short keys of one length other ones where the keys differ.
#[inline]
fn ends(bytes: &[u8]) -> (u64, u64) {
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        return (u64::from_le_bytes(*first), u64::from_le_bytes(*last));
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        return (u32::from_le_bytes(*first).into(), u32::from_le_bytes(*last).into());
    }
    let byte = |at: usize| bytes.get(at).copied().map_or(0, u64::from);
    (byte(0) | byte(1) << 8, byte(2))
}

/// Whether two keys are the same.
#[inline]
pub(super) fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && if one.len() <= SHORT { ends(one) == ends(other) } else { one == other }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hashes_of_numbers_and_texts_spread_over_all_bits() {
        let secret = Secret::new();
        let numbers = (0..10_000u64).map(|number| (number << 20).to_be_bytes().to_vec());
        let texts = (0..10_000).map(|number| format!("{number:>24}").into_bytes());
        for keys in [numbers.collect::<Vec<_>>(), texts.collect()] {
            let mut hashes: Vec<u32> = keys.iter().map(|key| secret.hash(key)).collect();
            for bit in 0..32 {
                let set = hashes.iter().filter(|hash| *hash >> bit & 1 != 0).count();
                assert!((4500..5500).contains(&set), "bit {bit} is set in {set}");
            }
            hashes.sort_unstable();
            hashes.dedup();
            assert!(hashes.len() > 9980, "{}", hashes.len());
        }
    }

    proptest! {
        /// Keys of up to 40 bytes that differ in one byte at most, or in length.
        #[test]
        fn equal_keys_have_equal_hashes(
            key in prop::collection::vec(any::<u8>(), 0..40), at in any::<usize>(), byte in any::<u8>(), len in 0..40usize,
        ) {
            let secret = Secret::new();
            let mut other = key.clone();
            other.iter_mut().skip(at % key.len().max(1)).take(1).for_each(|place| *place = byte);
            prop_assert_eq!(is_same(&key, &other), key == other);
            prop_assert_eq!(secret.hash(&key) == secret.hash(&other), key == other);
            let shorter = key.get(..len).unwrap_or_default();
            prop_assert_eq!(is_same(&key, shorter), key == shorter);
        }
    }
}
