//! The resources that processes on this machine may share with the daemon, and how this node stands among others:
//! `[host]`, `[node]`, `[[mailbox]]` and `[[task]]`.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crossdock_mailbox::HugePages;
use crossdock_mailbox::host::{HostConfig, Implementation, MailboxOptions};
use crossdock_nectarine::PublicKey;
use crossdock_runtime::settings::{name, perhaps_within, within};
use crossdock_runtime::{ContextConfig, MAX_NEIGHBOURS, NodeAddress};
use serde::Deserialize;

use super::values::{auto_or_node, perhaps_key};

/// `[host]`: the bounds of [`HostConfig`], under the same names, and what memory they lie in.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct HostSection {
    #[serde(deserialize_with = "within::<_, u32, 1, 4096>")]
    max_clients: u32,
    #[serde(deserialize_with = "within::<_, u32, 1, 1_048_576>")]
    max_mailboxes: u32,
    // A segment's offsets have 32 bits; with the rounding to huge pages that leaves 4 GiB less 2 MiB.
    #[serde(deserialize_with = "within::<_, u64, 1_048_576, 4_292_870_144>")]
    shared_bytes: u64,
    #[serde(deserialize_with = "within::<_, u64, 1_048_576, 4_292_870_144>")]
    inbox_bytes: u64,
    // Twice what a segment can have: a client may hold parts of both.
    #[serde(deserialize_with = "within::<_, u64, 1_048_576, 8_589_934_592>")]
    client_bytes: u64,
    #[serde(deserialize_with = "within::<_, u32, 1, 1_048_576>")]
    bound_messages: u32,
    #[serde(deserialize_with = "within::<_, u64, 1, 8_589_934_592>")]
    bound_bytes: u64,
    // At least what a session's packets take.
    #[serde(deserialize_with = "within::<_, u32, 65_536, 16_777_216>")]
    max_message_bytes: u32,
    direct_rings: bool,
    #[serde(deserialize_with = "HugePagesWord::deserialize")]
    pub(super) huge_pages: HugePages,
}

/// The words for [`HugePages`].
#[derive(Deserialize)]
#[serde(remote = "HugePages", rename_all = "snake_case")]
enum HugePagesWord {
    None,
    Transparent,
    Reserved,
}

impl Default for HostSection {
    fn default() -> HostSection {
        let ContextConfig { host, attach, .. } = ContextConfig::default();
        HostSection {
            max_clients: host.max_clients,
            max_mailboxes: host.max_mailboxes,
            shared_bytes: host.shared_bytes,
            inbox_bytes: host.inbox_bytes,
            client_bytes: host.client_bytes,
            bound_messages: host.bound_messages,
            bound_bytes: host.bound_bytes,
            max_message_bytes: host.max_message_bytes,
            direct_rings: host.direct_rings,
            huge_pages: attach.huge_pages,
        }
    }
}

impl HostSection {
    /// The bounds.
    pub(super) fn bounds(&self) -> HostConfig {
        HostConfig {
            max_clients: self.max_clients,
            max_mailboxes: self.max_mailboxes,
            shared_bytes: self.shared_bytes,
            inbox_bytes: self.inbox_bytes,
            client_bytes: self.client_bytes,
            bound_messages: self.bound_messages,
            bound_bytes: self.bound_bytes,
            max_message_bytes: self.max_message_bytes,
            direct_rings: self.direct_rings,
        }
    }

    /// Values that do not go together.
    pub(super) fn contradiction(&self) -> Option<String> {
        let longest = self.max_message_bytes;
        let memories = [
            ("shared_bytes", self.shared_bytes),
            ("inbox_bytes", self.inbox_bytes),
            ("client_bytes", self.client_bytes),
        ];
        let (key, bytes) = memories.into_iter().find(|(_, bytes)| *bytes < u64::from(longest))?;
        Some(format!("[host]: `{key}` is {bytes}, and could never hold a message of `max_message_bytes`, {longest}"))
    }
}

/// `[node]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NodeSection {
    /// The name of this node; empty for the host's.
    #[serde(deserialize_with = "auto_or_node")]
    pub(super) name: String,
    /// Other nodes.
    pub(super) peer: Vec<PeerSection>,
}

impl NodeSection {
    /// The nodes that packets with source routes are handed on to.
    pub(super) fn neighbours(&self) -> impl Iterator<Item = &PeerSection> {
        self.peer.iter().filter(|peer| peer.route)
    }

    /// Values that do not go together; `has_key`: the daemon has a key of its own.
    pub(super) fn contradiction(&self, has_key: bool) -> Option<String> {
        let mut keys = BTreeMap::new();
        for peer in self.neighbours() {
            let name = &peer.name;
            let Some(key) = peer.key else {
                return Some(format!(
                    "[[node.peer]]: `{name}` has `route = true` and no `key`: name its daemon's public key \
                     (`crossdock keys show` prints it there)"
                ));
            };
            if !has_key {
                return Some(format!(
                    "[[node.peer]]: `{name}` has `route = true`, and this daemon has no key: packets with source routes are \
                     sealed for each hop (`key` in [security]; `crossdock keygen` makes one)"
                ));
            }
            if let Some(other) = keys.insert(*key.bytes(), name) {
                return Some(format!("[[node.peer]]: `{other}` and `{name}` have the same key and `route = true`"));
            }
        }
        (keys.len() > MAX_NEIGHBOURS)
            .then(|| format!("[[node.peer]]: {} have `route = true`; the bound is {MAX_NEIGHBOURS}", keys.len()))
    }
}

/// `[[node.peer]]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PeerSection {
    /// Its name.
    #[serde(deserialize_with = "name")]
    pub(super) name: String,
    /// The UDP address of its daemon.
    pub(super) address: SocketAddr,
    /// Its daemon's public key.
    #[serde(default, deserialize_with = "perhaps_key")]
    pub(super) key: Option<PublicKey>,
    /// Whether packets with source routes are handed on to it, and come from it.
    #[serde(default)]
    pub(super) route: bool,
}

impl PeerSection {
    /// As the context has it.
    pub(super) fn node(&self) -> NodeAddress {
        NodeAddress { name: self.name.clone(), address: self.address, key: self.key }
    }
}

/// `[[mailbox]]`: a mailbox of the daemon's own.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MailboxSection {
    /// Its name.
    #[serde(deserialize_with = "name")]
    pub(crate) name: String,
    #[serde(default, deserialize_with = "ImplementationWord::deserialize")]
    implementation: Implementation,
    #[serde(default, deserialize_with = "perhaps_within::<_, u32, 1, 1_048_576>")]
    bound_messages: Option<u32>,
    #[serde(default, deserialize_with = "perhaps_within::<_, u64, 1, 8_589_934_592>")]
    bound_bytes: Option<u64>,
}

/// The words for [`Implementation`].
#[derive(Deserialize)]
#[serde(remote = "Implementation", rename_all = "snake_case")]
enum ImplementationWord {
    Rings,
    SignalQueue,
}

impl MailboxSection {
    /// How it is made.
    pub(crate) fn options(&self) -> MailboxOptions {
        MailboxOptions {
            implementation: self.implementation,
            bound_messages: self.bound_messages,
            bound_bytes: self.bound_bytes,
        }
    }
}

/// `[[task]]`: a task that runs on the core from the start.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TaskSection {
    /// Which one.
    pub(crate) task: String,
    /// The mailbox whose messages it takes.
    pub(crate) mailbox: String,
    /// Its arguments.
    #[serde(default)]
    pub(crate) arguments: BTreeMap<String, String>,
}
