//! What processes on this machine may share with the daemon, and how this node stands among others: `[host]`, `[attach]`, `[node]`,
//! `[services]`, `[[mailbox]]` and `[[task]]`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crossdock_mailbox::HugePages;
use crossdock_mailbox::attach::AttachAddr;
use crossdock_mailbox::host::{HostConfig, Implementation, MailboxOptions};
use crossdock_runtime::{Allowed, AttachConfig, ContextConfig, ServicesConfig};
use serde::Deserialize;

use super::values::{allowed, auto_or_attach, auto_or_node, domains, name, off_or_path, perhaps_within, within};

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
    #[serde(deserialize_with = "HugePagesWord::deserialize")]
    huge_pages: HugePages,
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
        }
    }

    /// What does not go together.
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

/// `[attach]`: the settings of [`AttachConfig`], under the same names.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AttachSection {
    enabled: bool,
    #[serde(deserialize_with = "auto_or_attach")]
    address: Option<AttachAddr>,
    #[serde(deserialize_with = "allowed")]
    uids: Allowed,
    #[serde(deserialize_with = "allowed")]
    gids: Allowed,
    #[serde(deserialize_with = "domains")]
    domains: Vec<(String, Vec<u32>)>,
}

impl Default for AttachSection {
    fn default() -> AttachSection {
        let AttachConfig { enabled, address, uids, gids, domains, huge_pages: _ } = AttachConfig::default();
        AttachSection { enabled, address, uids, gids, domains }
    }
}

impl AttachSection {
    /// Whether anybody may attach.
    pub(crate) fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Where, if that is configured.
    pub(crate) fn address(&self) -> Option<&AttachAddr> {
        self.address.as_ref()
    }

    /// Who may attach, and where, with memory as `[host]` says.
    pub(super) fn settings(&self, host: &HostSection) -> AttachConfig {
        let AttachSection { enabled, address, uids, gids, domains } = self.clone();
        AttachConfig { enabled, address, uids, gids, domains, huge_pages: host.huge_pages }
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

/// `[[node.peer]]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PeerSection {
    /// Its name.
    #[serde(deserialize_with = "name")]
    pub(super) name: String,
    /// The UDP address of its daemon.
    pub(super) address: SocketAddr,
}

/// `[services]`: the settings of [`ServicesConfig`], under the same names.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ServicesSection {
    #[serde(deserialize_with = "off_or_path")]
    files: Option<PathBuf>,
    #[serde(deserialize_with = "off_or_path")]
    dumps: Option<PathBuf>,
}

impl ServicesSection {
    /// What tasks may ask of the host; the paths are relative to `directory`, the configuration's.
    pub(super) fn settings(&self, directory: &Path) -> ServicesConfig {
        let place = |path: &Option<PathBuf>| path.as_ref().map(|path| directory.join(path));
        ServicesConfig { files: place(&self.files), dumps: place(&self.dumps) }
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
