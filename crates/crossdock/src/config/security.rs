//! `[security]`: the daemon's key, the clients that may connect, and the networks whose hosts need no keys.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crossdock_runtime::settings::off_or_path;
use crossdock_runtime::{Authorized, AuthorizedKeys, Network, SecurityConfig};
use serde::{Deserialize, Deserializer, de};

use crate::failure::Outcome;
use crate::keyfile;

/// `[security]`. Paths are relative to the configuration's directory.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SecuritySection {
    /// The file with the daemon's key, if it has one.
    #[serde(deserialize_with = "off_or_path")]
    pub(crate) key: Option<PathBuf>,
    /// Clients that may connect.
    #[serde(deserialize_with = "keys")]
    pub(crate) authorized: Vec<Authorized>,
    /// The file with further ones.
    #[serde(deserialize_with = "off_or_path")]
    pub(crate) authorized_file: Option<PathBuf>,
    /// Networks whose hosts need no keys.
    pub(crate) trusted: Vec<Network>,
}

impl Default for SecuritySection {
    fn default() -> SecuritySection {
        let (key, authorized, authorized_file) = (None, Vec::new(), None);
        SecuritySection { key, authorized, authorized_file, trusted: Network::loopback() }
    }
}

impl SecuritySection {
    /// Whether a daemon that listens there would be open to a network that nobody has said to be trusted, so that it does not start.
    pub(crate) fn is_open(&self, listen: SocketAddr) -> bool {
        let trusted = self.trusted.clone();
        self.key.is_none() && SecurityConfig { trusted, ..SecurityConfig::default() }.is_open(listen)
    }

    /// The clients that may connect, those of the file included.
    ///
    /// # Errors
    /// The file cannot be read, or has something else.
    pub(crate) fn clients(&self, directory: &Path) -> Outcome<AuthorizedKeys> {
        let file = self.authorized_file.as_ref().map(|path| keyfile::read_authorized(&directory.join(path)));
        let mut keys = file.transpose()?.unwrap_or_default();
        keys.extend(self.authorized.iter().cloned());
        Ok(keys)
    }

    /// The settings, with the keys that its files have.
    ///
    /// # Errors
    /// A file cannot be read, or has something else.
    pub(crate) fn read(&self, directory: &Path) -> Outcome<SecurityConfig> {
        let key = self.key.as_ref().map(|path| keyfile::read_private(&directory.join(path))).transpose()?;
        Ok(SecurityConfig { key, authorized: Arc::new(self.clients(directory)?), trusted: self.trusted.clone() })
    }
}

/// A list of `KEY NAME`.
fn keys<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Authorized>, D::Error> {
    let all = Vec::<String>::deserialize(deserializer)?;
    all.iter().map(|text| text.parse().map_err(de::Error::custom)).collect()
}
