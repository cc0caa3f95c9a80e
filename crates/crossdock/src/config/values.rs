//! Values as people write them: numbers in bounds, and words that stand for the absence of one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use crossdock_mailbox::attach::AttachAddr;
use crossdock_runtime::Allowed;
use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};

/// An integer in bounds, both included.
pub(super) fn within<'de, D, T, const LEAST: u64, const MOST: u64>(deserializer: D) -> Result<T, D::Error>
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
pub(super) fn perhaps_within<'de, D, T, const LEAST: u64, const MOST: u64>(
    deserializer: D,
) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<u64>,
{
    within::<D, T, LEAST, MOST>(deserializer).map(Some)
}

pub(super) fn auto_or_packet<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    match Scalar::deserialize(deserializer)? {
        Scalar::Word(word) if word == "auto" => Ok(None),
        Scalar::Number(bytes @ 512..=65_000) => Ok(u32::try_from(bytes).ok()),
        _ => Err(de::Error::custom("expected \"auto\" or an integer from 512 to 65000")),
    }
}

pub(super) fn none_or_cpu<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    match Scalar::deserialize(deserializer)? {
        Scalar::Word(word) if word == "none" => Ok(None),
        Scalar::Number(cpu @ 0..1024) => Ok(usize::try_from(cpu).ok()),
        _ => Err(de::Error::custom("expected \"none\" or the number of a CPU, from 0")),
    }
}

/// A thread's priority among ordinary ones.
pub(super) fn none_or_nice<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i32>, D::Error> {
    match Scalar::deserialize(deserializer)? {
        Scalar::Word(word) if word == "none" => Ok(None),
        Scalar::Number(nice @ -20..=19) => Ok(i32::try_from(nice).ok()),
        _ => Err(de::Error::custom("expected \"none\" or an integer from -20, the highest priority, to 19")),
    }
}

/// A bandwidth in Mbit a second, 1 Tbit/s at most.
pub(super) fn none_or_mbit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    match Scalar::deserialize(deserializer)? {
        Scalar::Word(word) if word == "none" => Ok(None),
        Scalar::Number(mbit @ 1..=1_000_000) => Ok(u32::try_from(mbit).ok()),
        _ => Err(de::Error::custom("expected \"none\" or an integer from 1 to 1000000, in Mbit a second")),
    }
}

pub(super) fn auto_or_path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
    path_unless("auto", deserializer)
}

pub(super) fn off_or_path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
    path_unless("off", deserializer)
}

fn path_unless<'de, D: Deserializer<'de>>(word: &str, deserializer: D) -> Result<Option<PathBuf>, D::Error> {
    let path = String::deserialize(deserializer)?;
    if path.is_empty() {
        return Err(de::Error::custom(format!("expected \"{word}\" or a path")));
    }
    Ok((path != word).then(|| PathBuf::from(path)))
}

pub(super) fn off_or_loopback<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
    let address = String::deserialize(deserializer)?;
    if address == "off" {
        return Ok(None);
    }
    let address: SocketAddr = address.parse().map_err(|_| {
        de::Error::custom("expected \"off\" or a loopback address with a port, such as \"127.0.0.1:7441\"")
    })?;
    if !address.ip().is_loopback() {
        return Err(de::Error::custom(format!(
            "{} is not a loopback address: the API is neither encrypted nor closed to readers, so it is not offered to the network",
            address.ip()
        )));
    }
    Ok(Some(address))
}

pub(super) fn auto_or_attach<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<AttachAddr>, D::Error> {
    let address = String::deserialize(deserializer)?;
    if address == "auto" {
        return Ok(None);
    }
    address.parse().map(Some).map_err(|why| de::Error::custom(format!("expected \"auto\" or an attach address: {why}")))
}

/// What stands in front of the `/` of a mailbox's address; empty for `auto`.
pub(super) fn auto_or_node<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let name = String::deserialize(deserializer)?;
    Ok(if name == "auto" { String::new() } else { checked_name(name)? })
}

/// The name of a node, a mailbox or a domain.
pub(super) fn name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    checked_name(String::deserialize(deserializer)?)
}

/// Longest name, in bytes.
const MOST_NAME_BYTES: usize = 255;

fn checked_name<E: de::Error>(name: String) -> Result<String, E> {
    if (1..=MOST_NAME_BYTES).contains(&name.len()) && !name.contains(|c: char| c == '/' || c.is_control()) {
        return Ok(name);
    }
    Err(E::custom(format!("expected a name: 1 to {MOST_NAME_BYTES} bytes, no `/` and no control characters")))
}

/// Users or groups: `"own"`, `"any"`, or a list of ids.
pub(super) fn allowed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Allowed, D::Error> {
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
pub(super) fn domains<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(String, Vec<u32>)>, D::Error> {
    let domains = BTreeMap::<String, Vec<u32>>::deserialize(deserializer)?;
    let mut seen = BTreeSet::new();
    for (name, uids) in &domains {
        checked_name(name.clone())?;
        if let Some(uid) = uids.iter().find(|uid| !seen.insert(**uid)) {
            return Err(de::Error::custom(format!("user {uid} stands twice in the domains; a user can be in one")));
        }
    }
    Ok(domains.into_iter().collect())
}

/// A quantity as people write it, such as `"5us"`.
pub(super) fn in_words<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    read: fn(&str) -> Result<T, String>,
) -> Result<T, D::Error> {
    read(&String::deserialize(deserializer)?).map_err(de::Error::custom)
}

/// A table of texts, in which numbers and truth values are taken as they are written.
pub(super) fn scalars<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    let values = BTreeMap::<String, AnyScalar>::deserialize(deserializer)?;
    Ok(values.into_iter().map(|(name, AnyScalar(value))| (name, value)).collect())
}

/// A single value of any type, as text.
struct AnyScalar(String);

impl<'de> Deserialize<'de> for AnyScalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<AnyScalar, D::Error> {
        struct Any;
        impl Visitor<'_> for Any {
            type Value = AnyScalar;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, a number, true or false")
            }

            fn visit_bool<E>(self, value: bool) -> Result<AnyScalar, E> {
                Ok(AnyScalar(value.to_string()))
            }

            fn visit_i64<E>(self, value: i64) -> Result<AnyScalar, E> {
                Ok(AnyScalar(value.to_string()))
            }

            fn visit_f64<E>(self, value: f64) -> Result<AnyScalar, E> {
                Ok(AnyScalar(value.to_string()))
            }

            fn visit_str<E>(self, value: &str) -> Result<AnyScalar, E> {
                Ok(AnyScalar(value.to_owned()))
            }
        }
        deserializer.deserialize_any(Any)
    }
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
