//! The configuration of a context: every bound in one place. The structures are the sections of the daemon's configuration file.

mod networks;
pub mod values;

pub use networks::Network;

use crate::tables::TableSpec;
use crossdock_control::access::Rules;
use crossdock_mailbox::HugePages;
use crossdock_mailbox::attach::AttachAddr;
use crossdock_mailbox::host::HostConfig;
use crossdock_transport::MAX_MESSAGE_BYTES;
use crossdock_transport::control::{Overflow, Unreadable};
use crossdock_transport::credit::{MAX_WINDOW_BYTES, WINDOW_BYTES};
use crossdock_transport::secure::{AuthorizedKeys, PrivateKey, PublicKey};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use values::{
    allowed, auto_or_attach, auto_or_packet, domains, none_or_cpu, none_or_mbit, none_or_nice, off_or_path,
    perhaps_name, within, zero_or_rate,
};

/// Most neighbours that packets with source routes may be handed on to.
pub const MAX_NEIGHBOURS: usize = 64;

/// Another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAddress {
    /// Its name.
    pub name: String,
    /// The address that its daemon receives on.
    pub address: SocketAddr,
    /// Its daemon's public key; absent where it has none, or is one that the clients know.
    pub key: Option<PublicKey>,
}

/// Settings of a context. The bounds add up to its memory: all buffers (`buffer_bytes`), a few KiB a session for what
/// is in flight, the tables, and the segments that attached clients share (see [`HostConfig`]). A setting that has a
/// section of its own in the configuration file is no key of this one.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ContextConfig {
    /// UDP address to receive on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The policy when a subscriber's queue is full, unless the subscriber asked for something else.
    pub overflow: Overflow,
    /// Bound of a subscriber's queue in bytes (queued and unacknowledged), beyond which `overflow` applies. The records that
    /// publishers may still send by the credit they already have comes on top.
    #[serde(deserialize_with = "within::<_, u64, 65_536, 1_099_511_627_776>")]
    pub queue_bytes: u64,
    /// Credit of a session: bytes that a publisher may send ahead, at first.
    #[serde(deserialize_with = "within::<_, u32, 16_384, 1_073_741_824>")]
    pub window_bytes: u32,
    /// The same at most, on a path that needs more. All sessions together have at most a quarter of `buffer_bytes` more than
    /// `window_bytes` each.
    #[serde(deserialize_with = "within::<_, u32, 16_384, 1_073_741_824>")]
    pub max_window_bytes: u32,
    /// Bound on the bytes of all circuits together, beside `buffer_bytes`; 0: none is opened.
    #[serde(deserialize_with = "within::<_, u64, 0, 1_099_511_627_776>")]
    pub max_circuit_bytes: u64,
    /// The rate at which each session over the network is sent to, in bytes a second, whatever is lost: 10,000 or more; 0: what
    /// congestion control finds.
    #[serde(deserialize_with = "zero_or_rate")]
    pub pace_bytes_per_s: u64,
    /// Bound on sessions.
    #[serde(deserialize_with = "within::<_, u32, 1, 65_536>")]
    pub max_sessions: u32,
    /// Bound on the sessions of one IP address, and on the attached clients of one user.
    #[serde(deserialize_with = "within::<_, u32, 1, 65_536>")]
    pub max_sessions_per_peer: u32,
    /// Bound on streams.
    #[serde(deserialize_with = "within::<_, u32, 1, 1_048_576>")]
    pub max_streams: u32,
    /// Bound on the streams that sessions of one IP address, or attached clients of one user, have announced first.
    #[serde(deserialize_with = "within::<_, u32, 1, 1_048_576>")]
    pub max_streams_per_peer: u32,
    /// After how many seconds an unused stream is removed, with its versions, and of other streams the versions that are unused and
    /// not the newest; 0: never. A stream with a policy or a kept conversion stays.
    #[serde(deserialize_with = "within::<_, u32, 0, 315_360_000>")]
    pub unused_stream_expiry_s: u32,
    /// Bound on the mailboxes of sessions of one IP address, or of attached clients of one user.
    #[serde(deserialize_with = "within::<_, u32, 1, 1_048_576>")]
    pub max_mailboxes_per_peer: u32,
    /// Bound on subscriptions, over all sessions.
    #[serde(deserialize_with = "within::<_, u32, 1, 1_048_576>")]
    pub max_subscriptions: u32,
    /// Bound on the subscriptions of sessions of one IP address, or of attached clients of one user.
    #[serde(deserialize_with = "within::<_, u32, 1, 1_048_576>")]
    pub max_subscriptions_per_peer: u32,
    /// How long records for a subscriber may wait for company while traffic is heavy, in µs.
    #[serde(deserialize_with = "within::<_, u32, 0, 1_000_000>")]
    pub linger_us: u32,
    /// How long the context polls before it sleeps, while messages come one by one at shorter intervals than that, in
    /// µs; 0: never.
    pub spin_us: u32,
    /// A peer that was silent for so long, though asked, is gone. In ms.
    #[serde(deserialize_with = "within::<_, u32, 100, 86_400_000>")]
    pub idle_timeout_ms: u32,
    /// Length of the packets with which a session begins, in bytes, header included; what the interface takes when absent.
    #[serde(deserialize_with = "auto_or_packet")]
    pub packet_bytes: Option<u32>,
    /// The longest packet that a session tries whether its path takes it, in bytes; when absent `packet_bytes`, and without that what
    /// the interface takes.
    #[serde(deserialize_with = "auto_or_packet")]
    pub max_packet_bytes: Option<u32>,
    /// Length of the packets with which a session begins on the loopback interface, in bytes.
    #[serde(deserialize_with = "within::<_, u32, 512, 65_000>")]
    pub loopback_packet_bytes: u32,
    /// Whether super-packets may be used (UDP GSO and GRO).
    pub gso: bool,
    /// The CPU to pin the context to; it goes where the system puts it when absent.
    #[serde(deserialize_with = "none_or_cpu")]
    pub pin_cpu: Option<usize>,
    /// The priority of the context's thread among ordinary ones, from -20, the highest, to 19; the daemon's when
    /// absent.
    #[serde(deserialize_with = "none_or_nice")]
    pub nice: Option<i32>,
    /// Socket buffers to ask for, in bytes, each way.
    #[serde(deserialize_with = "within::<_, u32, 65_536, 1_073_741_824>")]
    pub socket_buffer_bytes: u32,
    /// Memory for buffers, in bytes, and up to as much again for records that are longer than a packet; only what is used is ever
    /// touched. A record may have a quarter of this memory, and 16 MiB at most.
    #[serde(deserialize_with = "within::<_, u64, 4_194_304, 1_099_511_627_776>")]
    pub buffer_bytes: u64,
    /// The name by which other machines call this one's mailboxes (`node/mailbox`); the host's name when empty.
    #[serde(skip)]
    pub node: String,
    /// Other nodes.
    #[serde(skip)]
    pub nodes: Vec<NodeAddress>,
    /// Those of them that packets with source routes are handed on to, and come from; each has a key, and so has this node.
    #[serde(skip)]
    pub neighbours: Vec<NodeAddress>,
    /// The policy for processes that attach by shared memory.
    #[serde(skip)]
    pub attach: AttachConfig,
    /// The bounds of what attached clients use: clients, mailboxes, memory.
    #[serde(skip)]
    pub host: HostConfig,
    /// The services of the host for tasks on the core.
    #[serde(skip)]
    pub services: ServicesConfig,
    /// How records are converted for subscribers that say which formats they accept.
    #[serde(skip)]
    pub morph: MorphConfig,
    /// The reference tables.
    #[serde(skip)]
    pub tables: Vec<TableSpec>,
    /// The further contexts, where handlers run, and how they are run there.
    #[serde(skip)]
    pub platform: PlatformConfig,
    /// The daemon's key, and the clients that may connect.
    #[serde(skip)]
    pub security: SecurityConfig,
    /// The rules that say what each identity may do; none: whoever is let in may do everything.
    #[serde(skip)]
    pub access: Option<Arc<Rules>>,
}

/// The daemon's key, the clients that may connect over the network, and the networks whose clients need no keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecurityConfig {
    /// The daemon's key; without one it has no secure sessions.
    pub key: Option<PrivateKey>,
    /// The clients that may connect.
    pub authorized: Arc<AuthorizedKeys>,
    /// Networks whose packets are taken without envelopes.
    pub trusted: Vec<Network>,
}

impl SecurityConfig {
    /// Whether a daemon without a key could be reached from a network that nobody has said to be trusted.
    #[must_use]
    pub fn is_open(&self, listen: SocketAddr) -> bool {
        let is_local = listen.ip().to_canonical().is_loopback();
        self.key.is_none() && !is_local && self.trusted.iter().all(Network::is_loopback)
    }
}

impl Default for SecurityConfig {
    fn default() -> SecurityConfig {
        SecurityConfig { key: None, authorized: Arc::default(), trusted: Network::loopback() }
    }
}

/// The further contexts, where handlers run, and how they are run there.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PlatformConfig {
    /// Share of a core's time that admission leaves free, so that a surge does not fill it; in %.
    #[serde(deserialize_with = "within::<_, u32, 0, 90>")]
    pub margin_percent: u32,
    /// How long a context works on one handler's batches before another has its turn, in µs.
    #[serde(deserialize_with = "within::<_, u32, 10, 1_000_000>")]
    pub slice_us: u32,
    /// Bound of a queue between two contexts, in batches.
    #[serde(deserialize_with = "within::<_, u32, 2, 65_536>")]
    pub queue_batches: u32,
    /// A handler on a g-core that has gone on to no further record for so long is given up, and its context's thread
    /// replaced, unless the handler has a limit of its own; in ms.
    #[serde(deserialize_with = "within::<_, u32, 10, 86_400_000>")]
    pub stuck_after_ms: u32,
    /// How long runnable batches may wait for a c-core before handlers that allow it are sampled; in µs. At a g-core a round
    /// of its handlers is added.
    #[serde(deserialize_with = "within::<_, u32, 10, 10_000_000>")]
    pub shed_after_us: u32,
    /// How long back the history of contexts and handlers goes, in s, one entry each.
    #[serde(deserialize_with = "within::<_, u32, 10, 3600>")]
    pub history_s: u32,
    /// The bandwidth of each context, in Mbit a second: what its handlers make, and at an I/O context what the
    /// network brings and takes. Not bounded when absent.
    #[serde(deserialize_with = "none_or_mbit")]
    pub bandwidth_mbit_per_s: Option<u32>,
    /// Whether the queries of subscriptions are measured too; what an I/O context has no time for runs
    /// elsewhere, or is refused.
    pub admit_subscriptions: bool,
    /// Bound on the state of all subscriptions' queries with state together, with the states of streams, in bytes: each different one
    /// counts with the most that it may keep, and so does each subscription that keeps rows of a state in order.
    #[serde(deserialize_with = "within::<_, u64, 0, 1_125_899_906_842_624>")]
    pub max_query_state_bytes: u64,
    /// Whether the queries of subscriptions with state are cut: the part that needs no state then runs as a handler of its own, where the
    /// stream's records come.
    pub query_cuts: QueryCuts,
    /// The contexts beside the [first](ContextConfig::first_context). Without any such setting: a g-core, and
    /// further I/O contexts, one for each four CPUs.
    #[serde(rename = "context")]
    pub contexts: Vec<ContextSpec>,
}

/// Where queries with state are cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueryCuts {
    /// Where the parts together take less time than the query in one piece, by the estimates, with what crosses between contexts.
    #[default]
    Auto,
    /// In front of each stream that a query reads in part.
    Always,
    /// Nowhere.
    Never,
}

/// A further context.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContextSpec {
    /// Its name; the kind and a number when absent.
    #[serde(default, deserialize_with = "perhaps_name")]
    pub name: Option<String>,
    /// Its kind.
    pub kind: ContextKind,
    /// Whether it is an I/O context: a c-core that has a socket at the daemon's address, and sessions and attached clients of
    /// its own.
    #[serde(default)]
    pub io: bool,
    /// The CPU that it is pinned to; it goes where the system puts it when absent. c-cores of the same CPU share a
    /// thread.
    #[serde(default, deserialize_with = "none_or_cpu")]
    pub cpu: Option<usize>,
    /// Its bandwidth, in Mbit a second; as [`PlatformConfig::bandwidth_mbit_per_s`] says when absent.
    #[serde(default, deserialize_with = "none_or_mbit")]
    pub bandwidth_mbit_per_s: Option<u32>,
    /// The priority of its thread among ordinary ones, from -20, the highest, to 19; the daemon's when absent. Of
    /// c-cores that share a thread the highest counts.
    #[serde(default, deserialize_with = "none_or_nice")]
    pub nice: Option<i32>,
}

impl ContextSpec {
    /// One of a kind, with nothing else said of it.
    #[must_use]
    pub fn new(kind: ContextKind) -> ContextSpec {
        ContextSpec { name: None, kind, io: false, cpu: None, bandwidth_mbit_per_s: None, nice: None }
    }
}

/// The purpose of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ContextKind {
    /// A communication core: polled, each batch run to completion, only metered handlers.
    CCore,
    /// A general core: handlers there may compute long, hold large state or block.
    GCore,
}

impl ContextKind {
    /// `c-core` or `g-core`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ContextKind::CCore => "c-core",
            ContextKind::GCore => "g-core",
        }
    }
}

impl PlatformConfig {
    /// Most further contexts.
    pub const MAX_CONTEXTS: usize = 63;

    /// The bandwidth of a context, in bytes a second, if that is bounded: what is said of it, or of all.
    #[must_use]
    pub fn bandwidth_bytes_per_s(&self, context: &ContextSpec) -> Option<u64> {
        context.bandwidth_mbit_per_s.or(self.bandwidth_mbit_per_s).map(|mbit| u64::from(mbit) * 125_000)
    }
}

impl ContextConfig {
    /// The I/O context that the settings beside the further contexts describe; mailboxes and tasks are there.
    #[must_use]
    pub fn first_context(&self) -> ContextSpec {
        let name = Some(format!("{}-0", ContextKind::CCore.name()));
        let (io, cpu, nice) = (true, self.pin_cpu, self.nice);
        ContextSpec { name, io, cpu, nice, ..ContextSpec::new(ContextKind::CCore) }
    }

    /// All contexts with their names, in the order of their numbers. Those that were given no name have that of their kind and
    /// a number, past the names that others were given.
    ///
    /// # Errors
    /// There are too many of them, two have the same name, or a g-core is to be an I/O context; in words.
    pub fn contexts(&self) -> Result<Vec<(String, ContextSpec)>, String> {
        let further = &self.platform.contexts;
        if further.len() > PlatformConfig::MAX_CONTEXTS {
            let most = PlatformConfig::MAX_CONTEXTS;
            return Err(format!("{} further contexts are configured; the bound is {most}", further.len()));
        }
        let all: Vec<ContextSpec> = std::iter::once(self.first_context()).chain(further.iter().cloned()).collect();
        let mut taken = BTreeSet::new();
        for name in all.iter().filter_map(|context| context.name.as_ref()) {
            if !taken.insert(name.clone()) {
                return Err(format!("two contexts are named `{name}`"));
            }
        }
        let mut named = |context: ContextSpec| {
            let mut numbers = (0..=PlatformConfig::MAX_CONTEXTS).map(|at| format!("{}-{at}", context.kind.name()));
            // There are as many numbers as contexts.
            let free = || numbers.find(|name| taken.insert(name.clone())).unwrap_or_default();
            (context.name.clone().unwrap_or_else(free), context)
        };
        let named: Vec<(String, ContextSpec)> = all.into_iter().map(&mut named).collect();
        match named.iter().find(|(_, context)| context.io && context.kind != ContextKind::CCore) {
            Some((name, _)) => {
                Err(format!("context `{name}` is a g-core with `io = true`: only c-cores have sessions"))
            }
            None => Ok(named),
        }
    }
}

/// CPUs per I/O context where nothing else is said.
const CPUS_PER_IO_CONTEXT: usize = 4;

/// The contexts beside the home context on a machine with this many CPUs, where nothing else is said.
fn default_contexts(cpus: usize) -> Vec<ContextSpec> {
    let io = ContextSpec { io: true, ..ContextSpec::new(ContextKind::CCore) };
    let further = (cpus / CPUS_PER_IO_CONTEXT).clamp(1, PlatformConfig::MAX_CONTEXTS) - 1;
    std::iter::once(ContextSpec::new(ContextKind::GCore)).chain(std::iter::repeat_n(io, further)).collect()
}

impl Default for PlatformConfig {
    fn default() -> PlatformConfig {
        PlatformConfig {
            contexts: default_contexts(std::thread::available_parallelism().map_or(1, usize::from)),
            margin_percent: 20,
            slice_us: 200,
            queue_batches: 256,
            stuck_after_ms: 1000,
            shed_after_us: 250,
            history_s: 300,
            bandwidth_mbit_per_s: None,
            admit_subscriptions: true,
            max_query_state_bytes: 8 << 30,
            query_cuts: QueryCuts::Auto,
        }
    }
}

/// How records are converted for subscribers that say which formats they accept, and what waits where nothing converts
/// them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MorphConfig {
    /// The policy for records that nothing converts, unless the subscriber asked for something else.
    pub unreadable: Unreadable,
    /// Bound of what waits for one subscription, in bytes; beyond, the oldest records are dropped and counted. The
    /// records that publishers may still send by the credit they already have comes on top while waiting records leave.
    #[serde(deserialize_with = "within::<_, u64, 4096, 1_099_511_627_776>")]
    pub hold_bytes: u64,
    /// Bound of what waits for all subscriptions together, in bytes.
    #[serde(deserialize_with = "within::<_, u64, 4096, 1_099_511_627_776>")]
    pub hold_total_bytes: u64,
    /// How long a record waits at most, in ms; then it is dropped and counted.
    pub hold_ms: u32,
    /// Where records are converted by their fields' names without a registered conversion.
    pub by_name: ByName,
    /// The directory where the versions of streams and kept conversions outlive the daemon; nowhere when absent.
    #[serde(deserialize_with = "off_or_path")]
    pub state_dir: Option<PathBuf>,
    /// How often the states of deployed handlers are written there, in ms; 0: only when the daemon stops.
    #[serde(deserialize_with = "within::<_, u32, 0, 86_400_000>")]
    pub checkpoint_interval_ms: u32,
    /// The largest state that is written, in bytes: its context copies it between two batches, while all else there waits.
    #[serde(deserialize_with = "within::<_, u64, 0, 68_719_476_736>")]
    pub checkpoint_max_bytes: u64,
    /// Whether a checkpoint is one of all states and positions at one moment, and publishers are acknowledged when their records are in
    /// one on disk: then nothing is missing after a kill. Takes a `state_dir` and an interval.
    pub durable: bool,
    /// With `durable`: how long records may wait for a checkpoint, in ms. If not all of those before have arrived by then, because a
    /// subscriber is slow, the checkpoint is put off.
    #[serde(deserialize_with = "within::<_, u32, 1, 60_000>")]
    pub checkpoint_pause_ms: u32,
    /// With `durable`: for how long no records are taken in after the start while subscriptions of before have not come back, in ms.
    #[serde(deserialize_with = "within::<_, u32, 0, 3_600_000>")]
    pub await_subscribers_ms: u32,
}

impl MorphConfig {
    /// Checks that `durable` has what it takes.
    ///
    /// # Errors
    /// The missing setting, in words.
    pub fn check_durable(&self) -> Result<(), &'static str> {
        match (self.durable, &self.state_dir, self.checkpoint_interval_ms) {
            (true, None, _) => Err(
                "[morph]: `durable = true` needs a place for checkpoints: set `state_dir` in [morph] to a directory",
            ),
            (true, _, 0) => Err(
                "[morph]: `durable = true` needs checkpoints while the daemon runs: set `checkpoint_interval_ms` above 0",
            ),
            _ => Ok(()),
        }
    }
}

/// Where records are converted by their fields' names without a registered conversion, beside what the policies of streams say
/// is readable. Never from a format that a registered conversion leaves, or ever left: that conversion defines how the format
/// is to be read, and may serve to strip it of private fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ByName {
    /// Nowhere.
    #[default]
    Off,
    /// Between formats that were announced on the same stream, or declared for it.
    VersionsOfStream,
}

impl Default for MorphConfig {
    fn default() -> MorphConfig {
        MorphConfig {
            unreadable: Unreadable::Hold,
            hold_bytes: 16 << 20,
            hold_total_bytes: 128 << 20,
            hold_ms: 60_000,
            by_name: ByName::Off,
            state_dir: None,
            checkpoint_interval_ms: 10_000,
            checkpoint_max_bytes: 16 << 20,
            durable: false,
            checkpoint_pause_ms: 200,
            await_subscribers_ms: 10_000,
        }
    }
}

/// The processes that may attach by shared memory, the socket, and the groups that share message buffers.
///
/// A process is let in when both its user id and its group id are allowed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AttachConfig {
    /// Whether anybody may.
    pub enabled: bool,
    /// The attach socket; the one that belongs to the address that the context receives on when absent
    /// ([`AttachAddr::for_listen`]).
    #[serde(deserialize_with = "auto_or_attach")]
    pub address: Option<AttachAddr>,
    /// Users that may.
    #[serde(deserialize_with = "allowed")]
    pub uids: Allowed,
    /// Groups whose processes may.
    #[serde(deserialize_with = "allowed")]
    pub gids: Allowed,
    /// Protection domains of several users: a name, and the user ids that trust one another with each other's messages.
    /// Every user that is in none has a domain of its own.
    #[serde(deserialize_with = "domains")]
    pub domains: Vec<(String, Vec<u32>)>,
    /// Huge pages for the domains' segments.
    #[serde(skip)]
    pub huge_pages: HugePages,
}

/// The services of the host for tasks on the core. Nothing outside these directories is read or written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServicesConfig {
    /// The directory below which files may be read; none when absent.
    #[serde(deserialize_with = "off_or_path")]
    pub files: Option<PathBuf>,
    /// The directory that breakpoint dumps go to; none are written when absent.
    #[serde(deserialize_with = "off_or_path")]
    pub dumps: Option<PathBuf>,
}

/// A set of user or group ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// The daemon's own.
    Own,
    /// Every one.
    Any,
    /// These.
    List(Vec<u32>),
}

impl Default for AttachConfig {
    fn default() -> AttachConfig {
        AttachConfig {
            enabled: true,
            address: None,
            uids: Allowed::Own,
            gids: Allowed::Any,
            domains: Vec::new(),
            huge_pages: HugePages::Transparent,
        }
    }
}

impl ContextConfig {
    /// The longest record that is taken, in bytes: a quarter of the memory for buffers, so that others find room beside it.
    #[must_use]
    pub fn most_record_bytes(&self) -> usize {
        usize::try_from(self.buffer_bytes / 4).unwrap_or(usize::MAX).min(MAX_MESSAGE_BYTES) & !63
    }
}

impl Default for ContextConfig {
    fn default() -> ContextConfig {
        ContextConfig {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7440)),
            overflow: Overflow::Block,
            queue_bytes: 8 << 20,
            window_bytes: WINDOW_BYTES,
            max_window_bytes: MAX_WINDOW_BYTES,
            max_circuit_bytes: 64 << 20,
            pace_bytes_per_s: 0,
            max_sessions: 1024,
            max_sessions_per_peer: 768,
            max_streams: 1024,
            max_streams_per_peer: 512,
            unused_stream_expiry_s: 0,
            max_mailboxes_per_peer: 2048,
            max_subscriptions: 4096,
            max_subscriptions_per_peer: 3072,
            linger_us: 1000,
            spin_us: 100,
            idle_timeout_ms: 10_000,
            packet_bytes: None,
            max_packet_bytes: None,
            loopback_packet_bytes: 8184,
            gso: true,
            pin_cpu: None,
            nice: None,
            socket_buffer_bytes: 4 << 20,
            buffer_bytes: 128 << 20,
            node: String::new(),
            nodes: Vec::new(),
            neighbours: Vec::new(),
            attach: AttachConfig::default(),
            host: HostConfig::default(),
            services: ServicesConfig::default(),
            morph: MorphConfig::default(),
            tables: Vec::new(),
            platform: PlatformConfig::default(),
            security: SecurityConfig::default(),
            access: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::de::value::{self, MapDeserializer};

    #[test]
    fn contexts_are_named_by_kind_and_number_past_the_names_that_were_given() {
        let context =
            |name: Option<&str>, kind| ContextSpec { name: name.map(str::to_owned), ..ContextSpec::new(kind) };
        let (c, g) = (ContextKind::CCore, ContextKind::GCore);
        let mut config = ContextConfig::default();
        let names = |config: &ContextConfig| {
            config.contexts().map(|all| all.into_iter().map(|(name, _)| name).collect::<Vec<String>>())
        };
        config.platform.contexts = default_contexts(1);
        assert_eq!(names(&config), Ok(["c-core-0", "g-core-0"].map(str::to_owned).to_vec()));
        config.platform.contexts =
            vec![context(None, c), context(Some("g-core-0"), g), context(None, g), context(None, c)];
        let wanted = ["c-core-0", "c-core-1", "g-core-0", "g-core-1", "c-core-2"];
        assert_eq!(names(&config), Ok(wanted.map(str::to_owned).to_vec()));
        config.platform.contexts.push(context(Some("c-core-0"), c));
        assert_eq!(names(&config), Err("two contexts are named `c-core-0`".to_owned()));
        config.platform.contexts = vec![context(None, g); PlatformConfig::MAX_CONTEXTS];
        assert_eq!(names(&config).map(|names| names.last().cloned()), Ok(Some("g-core-62".to_owned())));
        config.platform.contexts.push(context(None, c));
        assert!(names(&config).is_err_and(|why| why.contains("the bound is 63")));
    }

    #[test]
    fn a_stated_rate_is_none_or_enough_for_several_packets() {
        let rate = |rate: i64| {
            let keys = MapDeserializer::<_, value::Error>::new([("pace_bytes_per_s", rate)].into_iter());
            ContextConfig::deserialize(keys).map(|config| config.pace_bytes_per_s).map_err(|why| why.to_string())
        };
        for accepted in [0, 10_000, 20_000_000, 1_000_000_000_000] {
            assert_eq!(rate(accepted), Ok(accepted.cast_unsigned()));
        }
        for refused in [-1, 1, 9_999, 1_000_000_000_001] {
            let why = rate(refused).unwrap_err();
            assert!(why.contains("expected 0 or an integer from 10000 to 1000000000000"), "{refused}: {why}");
        }
    }

    #[test]
    fn the_first_context_is_as_its_settings_say() {
        let config = ContextConfig { pin_cpu: Some(1), nice: Some(-2), ..ContextConfig::default() };
        let (name, first) = config.contexts().unwrap().swap_remove(0);
        assert_eq!((&*name, first.kind, first.io), ("c-core-0", ContextKind::CCore, true));
        assert_eq!((first.cpu, first.nice, first.bandwidth_mbit_per_s), (Some(1), Some(-2), None));
    }
}
