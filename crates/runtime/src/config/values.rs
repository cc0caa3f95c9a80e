//! Values of settings as people write them: numbers in bounds, and words that stand for the absence of one.

use super::Allowed;
use crossdock_mailbox::attach::AttachAddr;
use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

/// An integer in bounds, both included.
///
/// # Errors
/// It is something else; the text says what is expected.
pub fn within<'de, D, T, const LEAST: u64, const MOST: u64>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<u64>,
{
    let number = match Scalar::deserialize(deserializer)? {
        Scalar::Number(number) => u64::try_from(number).ok(),
        Scalar::Word(_) => None,
    };
    let number = number.filter(|number| (LEAST..=MOST).contains(number));
    let number = number.and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| de::Error::custom(format!("expected an integer from {LEAST} to {MOST}")))
}

/// The same of a key that may be left out.
///
/// # Errors
/// It is something else; the text says what is expected.
pub fn perhaps_within<'de, D, T, const LEAST: u64, const MOST: u64>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<u64>,
{
    within::<D, T, LEAST, MOST>(deserializer).map(Some)
}

/// The rate of a session in bytes a second: 0 for none, or enough for several packets, so that no session stalls.
///
/// # Errors
/// It is something else; the text says what is expected.
pub fn zero_or_rate<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    match Scalar::deserialize(deserializer)? {
        Scalar::Number(rate @ (0 | 10_000..=1_000_000_000_000)) => u64::try_from(rate).map_err(de::Error::custom),
        _ => Err(de::Error::custom("expected 0 or an integer from 10000 to 1000000000000")),
    }
}

/// The size of a packet in bytes; none for `auto`.
///
/// # Errors
/// It is something else; the text says what is expected.
pub fn auto_or_packet<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    match Scalar::deserialize(deserializer)? {
        Scalar::Word(word) if word == "auto" => Ok(None),
        Scalar::Number(bytes @ 512..=65_000) => Ok(u32::try_from(bytes).ok()),
        _ => Err(de::Error::custom("expected \"auto\" or an integer from 512 to 65000")),
    }
}

/// The number of a CPU; none for `none`.
///
/// # Errors
/// It is something else; the text says what is expected.
pub fn none_or_cpu<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    match Scalar::deserialize(deserializer)? {
        Scalar::Word(word) if word == "none" => Ok(None),
        Scalar::Number(cpu @ 0..1024) => Ok(usize::try_from(cpu).ok()),
        _ => Err(de::Error::custom("expected \"none\" or the number of a CPU, from 0")),
    }
}

/// A thread's priority among ordinary ones.
///
/// # Errors
/// It is something else; the text says what is expected.
pub fn none_or_nice<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i32>, D::Error> {
    match Scalar::deserialize(deserializer)? {
        Scalar::Word(word) if word == "none" => Ok(None),
        Scalar::Number(nice @ -20..=19) => Ok(i32::try_from(nice).ok()),
        _ => Err(de::Error::custom("expected \"none\" or an integer from -20, the highest priority, to 19")),
    }
}

/// A bandwidth in Mbit a second, 1 Tbit/s at most.
///
/// # Errors
/// It is something else; the text says what is expected.
pub fn none_or_mbit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    match Scalar::deserialize(deserializer)? {
        Scalar::Word(word) if word == "none" => Ok(None),
        Scalar::Number(mbit @ 1..=1_000_000) => Ok(u32::try_from(mbit).ok()),
        _ => Err(de::Error::custom("expected \"none\" or an integer from 1 to 1000000, in Mbit a second")),
    }
}

/// A path; none for `off`.
///
/// # Errors
/// It is something else; the text says what is expected.
pub fn off_or_path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
    path_unless("off", deserializer)
}

/// A path; none for this word.
///
/// # Errors
/// It is something else; the text says what is expected.
pub fn path_unless<'de, D: Deserializer<'de>>(word: &str, deserializer: D) -> Result<Option<PathBuf>, D::Error> {
    let path = String::deserialize(deserializer)?;
    if path.is_empty() {
        return Err(de::Error::custom(format!("expected \"{word}\" or a path")));
    }
    Ok((path != word).then(|| PathBuf::from(path)))
}

/// An attach address; none for `auto`.
///
/// # Errors
/// It is something else; the text says what is expected.
pub fn auto_or_attach<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<AttachAddr>, D::Error> {
    let address = String::deserialize(deserializer)?;
    if address == "auto" {
        return Ok(None);
    }
    address.parse().map(Some).map_err(|why| de::Error::custom(format!("expected \"auto\" or an attach address: {why}")))
}

/// The name of a node, a mailbox or a domain.
///
/// # Errors
/// It is something else; the text says what is expected.
pub fn name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    checked_name(String::deserialize(deserializer)?)
}

/// Longest name, in bytes.
const MOST_NAME_BYTES: usize = 255;

/// A name, unless it is too long or has characters that no name has.
///
/// # Errors
/// The fault of the name.
pub fn checked_name<E: de::Error>(name: String) -> Result<String, E> {
    if (1..=MOST_NAME_BYTES).contains(&name.len()) && !name.contains(|c: char| c == '/' || c.is_control()) {
        return Ok(name);
    }
    Err(E::custom(format!("expected a name: 1 to {MOST_NAME_BYTES} bytes, no `/` and no control characters")))
}

/// A name that may be left out.
///
/// # Errors
/// It is something else; the text says what is expected.
pub fn perhaps_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    name(deserializer).map(Some)
}

/// Users or groups: `"own"`, `"any"`, or a list of ids.
///
/// # Errors
/// It is something else; the text says what is expected.
pub fn allowed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Allowed, D::Error> {
    struct Ids;
    impl<'de> Visitor<'de> for Ids {
        type Value = Allowed;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("\"own\", \"any\" or a list of numeric ids, such as [1000, 1001]")
        }

        fn visit_str<E: de::Error>(self, word: &str) -> Result<Allowed, E> {
            match word {
                "own" => Ok(Allowed::Own),
                "any" => Ok(Allowed::Any),
                _ => Err(E::invalid_value(de::Unexpected::Str(word), &self)),
            }
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Allowed, A::Error> {
            let mut ids = Vec::new();
            while let Some(id) = list.next_element()? {
                ids.push(id);
            }
            Ok(Allowed::List(ids))
        }
    }
    deserializer.deserialize_any(Ids)
}

/// Protection domains: a table of names, each with a list of user ids. A user has one domain.
///
/// # Errors
/// It is something else; the text says what is expected.
pub fn domains<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(String, Vec<u32>)>, D::Error> {
    let domains = BTreeMap::<String, Vec<u32>>::deserialize(deserializer)?;
    let mut seen = BTreeSet::new();
    for (name, uids) in &domains {
        checked_name(name.clone())?;
        if let Some(uid) = uids.iter().find(|uid| !seen.insert(**uid)) {
            return Err(de::Error::custom(format!(
                "user {uid} is listed twice in the domains; a user can be in one only"
            )));
        }
    }
    Ok(domains.into_iter().collect())
}

/// A value that is an integer or a word.
enum Scalar {
    Number(i64),
    Word(String),
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Scalar, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = Scalar;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an integer or a word in quotes")
            }

            fn visit_i64<E>(self, number: i64) -> Result<Scalar, E> {
                Ok(Scalar::Number(number))
            }

            fn visit_str<E>(self, word: &str) -> Result<Scalar, E> {
                Ok(Scalar::Word(word.to_owned()))
            }
        }
        deserializer.deserialize_any(Either)
    }
}
