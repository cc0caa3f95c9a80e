//! Values as people write them, beside those of the daemon's own settings ([`crossdock_runtime::settings`]).

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use crossdock_nectarine::PublicKey;
use crossdock_runtime::settings::{checked_name, path_unless};
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

pub(super) fn auto_or_path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
    path_unless("auto", deserializer)
}

pub(super) fn off_or_address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
    let address = String::deserialize(deserializer)?;
    if address == "off" {
        return Ok(None);
    }
    let address: SocketAddr = address
        .parse()
        .map_err(|_| de::Error::custom("expected \"off\" or an address with a port, such as \"127.0.0.1:7441\""))?;
    Ok(Some(address))
}

/// The part in front of the `/` of a mailbox's address; empty for `auto`.
pub(super) fn auto_or_node<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let name = String::deserialize(deserializer)?;
    Ok(if name == "auto" { String::new() } else { checked_name(name)? })
}

/// A daemon's public key.
pub(super) fn perhaps_key<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PublicKey>, D::Error> {
    in_words(deserializer, str::parse).map(Some)
}

/// A quantity as people write it, such as `"5us"`.
pub(super) fn in_words<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    read: fn(&str) -> Result<T, String>,
) -> Result<T, D::Error> {
    read(&String::deserialize(deserializer)?).map_err(de::Error::custom)
}

/// A table of texts, in which numbers and truth values are taken as written.
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
