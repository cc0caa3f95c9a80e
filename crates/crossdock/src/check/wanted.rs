//! The demands of a configuration on the machine, as numbers.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crossdock_mailbox::attach::AttachAddr;
use crossdock_runtime::{ContextConfig, ContextKind, ContextSpec};

use crate::config::{Config, TableSection};
use crate::http::connections::MOST as MOST_CONNECTIONS;
use crate::http::socket;

/// Descriptors of a daemon beside those below, as counted in /proc/PID/fd: standard input, output and error, the control socket, and
/// those of its threads.
const OWN_FILES: u64 = 12;
/// Further ones with an attach socket.
const OWN_FILES_ATTACH: u64 = 5;
/// Further ones for each I/O context.
const OWN_FILES_IO: u64 = 10;
/// Further ones for each other context.
const OWN_FILES_CONTEXT: u64 = 4;
/// Further ones with a `state_dir`, and with a TCP address for HTTP.
const OWN_FILES_STATE: u64 = 2;
const OWN_FILES_HTTP: u64 = 1;
/// Descriptors for an attached client: its socket, doorbell, pipe (two) and process.
const CLIENT_FILES: u64 = 5;
/// The two segments of a protection domain, at each I/O context that has a client of it.
const DOMAIN_FILES: u64 = 2;
/// Connections that wait for admission: processes that have not sent their attach request.
const PENDING_FILES: u64 = 64;

/// Buffers of each context for what its handlers make, in bytes.
const CONTEXT_BYTES: u64 = 130 << 20;

/// The demands of a configuration on the machine.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// The settings of the contexts.
    pub(crate) context: ContextConfig,
    /// The control socket.
    pub(crate) control: PathBuf,
    /// The TCP address of the HTTP API.
    pub(crate) http: Option<SocketAddr>,
    /// The attach socket.
    pub(crate) attach: Option<AttachAddr>,
    /// Whether it would be open to a network that nobody has said to be trusted.
    pub(crate) is_open: bool,
    /// Whether its HTTP API would be.
    pub(crate) is_http_open: bool,
    /// The reference tables.
    pub(crate) tables: Vec<TableSection>,
    /// The folder of relative paths.
    pub(crate) directory: PathBuf,
    /// The configuration's file, if it has one.
    pub(crate) file: Option<PathBuf>,
}

impl Wanted {
    /// The demands of this configuration; its relative paths are those from `directory`.
    pub(crate) fn of(config: &Config, directory: &Path) -> Wanted {
        let context = config.of_context(directory);
        let named = || context.attach.address.clone().unwrap_or_else(|| AttachAddr::for_listen(context.listen));
        Wanted {
            control: config.control.socket.clone().unwrap_or_else(socket::default_path),
            http: config.control.http,
            attach: context.attach.enabled.then(named),
            is_open: config.security.is_open(context.listen),
            is_http_open: config.control.http.is_some_and(|http| config.is_open_at(http)),
            context,
            tables: config.table.clone(),
            directory: directory.to_owned(),
            file: None,
        }
    }

    /// The command that checks the same as another user.
    pub(crate) fn check_as(&self, user: &str) -> String {
        // A user without a name is `#NUMBER`, which the shell would take for a comment.
        let quote = if user.starts_with('#') { "'" } else { "" };
        let file = self.file.iter().map(|file| format!(" --config {}", file.display()));
        format!("sudo -u {quote}{user}{quote} crossdock check{}", file.collect::<String>())
    }

    /// Open files of the daemon without clients.
    fn own_files(&self) -> u64 {
        let contexts = &self.context.platform.contexts;
        let others = contexts.iter().filter(|context| !context.io).count() as u64;
        let attach = if self.attach.is_some() { OWN_FILES_ATTACH } else { 0 };
        let state = if self.context.morph.state_dir.is_some() { OWN_FILES_STATE } else { 0 };
        let http = if self.http.is_some() { OWN_FILES_HTTP } else { 0 };
        OWN_FILES + attach + OWN_FILES_IO * self.io_contexts() + OWN_FILES_CONTEXT * others + state + http
    }

    /// Clients that may attach, by the configuration.
    fn clients(&self) -> u64 {
        if self.attach.is_some() { u64::from(self.context.host.max_clients) * self.io_contexts() } else { 0 }
    }

    /// Open files of the daemon with the segments of its protection domains.
    fn files_before_clients(&self) -> u64 {
        let domains = if self.attach.is_some() { self.domains() * self.io_contexts() } else { 0 };
        self.own_files() + DOMAIN_FILES * domains
    }

    /// Open files, with every table full.
    pub(crate) fn files(&self) -> u64 {
        let listeners = 1 + u64::from(self.http.is_some());
        let pending = if self.attach.is_some() { PENDING_FILES } else { 0 };
        self.files_before_clients() + CLIENT_FILES * self.clients() + pending + listeners * MOST_CONNECTIONS as u64
    }

    /// The meaning of a limit of open files, if it lets fewer clients attach than the configuration.
    pub(crate) fn few_files(&self, limit: u64) -> Option<String> {
        let clients = limit.saturating_sub(self.files_before_clients()) / CLIENT_FILES;
        (clients < self.clients()).then(|| {
            format!(
                "the limit of open files, {limit}, lets about {clients} clients attach, and not the {} of `max_clients` in [host]: \
                 raise it to {} (`ulimit -n`, or LimitNOFILE of the service)",
                self.context.host.max_clients,
                self.files()
            )
        })
    }

    /// The two segments of one protection domain, in bytes.
    pub(crate) fn domain_bytes(&self) -> u64 {
        match self.attach {
            Some(_) => self.context.host.shared_bytes + self.context.host.inbox_bytes,
            None => 0,
        }
    }

    /// Protection domains that the configuration names, or else the one of the daemon's own user.
    pub(crate) fn domains(&self) -> u64 {
        self.context.attach.domains.len().max(1) as u64
    }

    /// Buffers and segments, in bytes, when all of them are in use.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let contexts = self.contexts().len() as u64;
        // Each I/O context has buffers of its own, and segments of the domains of its clients.
        // As much again for records that are longer than a packet.
        let of_io_context = 2 * self.context.buffer_bytes + self.domains() * self.domain_bytes();
        contexts * CONTEXT_BYTES + self.io_contexts() * of_io_context
    }

    /// The contexts with their names; none where they contradict one another, which has been refused before.
    fn contexts(&self) -> Vec<(String, ContextSpec)> {
        self.context.contexts().unwrap_or_default()
    }

    /// Contexts with sessions.
    fn io_contexts(&self) -> u64 {
        self.contexts().iter().filter(|(_, context)| context.io).count() as u64
    }

    /// Contexts that are tied to a CPU: name and CPU. c-cores of one CPU share a thread.
    pub(crate) fn pinned(&self) -> Vec<(String, usize)> {
        self.contexts().into_iter().filter_map(|(name, context)| Some((name, context.cpu?))).collect()
    }

    /// Threads of contexts: each g-core and each I/O context has one, and so have the c-cores of each CPU.
    pub(crate) fn threads(&self) -> usize {
        let contexts: Vec<ContextSpec> = self.contexts().into_iter().map(|(_, context)| context).collect();
        let shares =
            |context: &&ContextSpec| context.kind == ContextKind::CCore && context.cpu.is_some() && !context.io;
        let shared: BTreeSet<Option<usize>> = contexts.iter().filter(shares).map(|context| context.cpu).collect();
        shared.len() + contexts.iter().filter(|context| !shares(context)).count()
    }

    /// The highest priority that a context is to have, if one is to be above the ordinary one.
    pub(crate) fn highest_nice(&self) -> Option<i32> {
        self.contexts().iter().filter_map(|(_, context)| context.nice).min().filter(|nice| *nice < 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_are_counted_by_their_threads() {
        let mut wanted = Wanted::of(&Config::default(), Path::new(""));
        let context = |kind, cpu, nice| ContextSpec { cpu, nice, ..ContextSpec::new(kind) };
        wanted.context.platform.contexts = vec![context(ContextKind::GCore, None, None)];
        assert_eq!((wanted.threads(), wanted.pinned().len(), wanted.highest_nice()), (2, 0, None));
        let memory_bytes = wanted.memory_bytes();
        wanted.context.platform.contexts.push(ContextSpec { io: true, ..context(ContextKind::CCore, Some(1), None) });
        assert_eq!(wanted.threads(), 3);
        assert!(wanted.memory_bytes() >= memory_bytes + wanted.context.buffer_bytes);
        wanted.context.platform.contexts = vec![
            context(ContextKind::CCore, Some(1), Some(-5)),
            context(ContextKind::CCore, Some(1), Some(5)),
            context(ContextKind::CCore, Some(2), None),
            context(ContextKind::CCore, None, None),
            context(ContextKind::GCore, None, None),
        ];
        wanted.context.pin_cpu = Some(0);
        assert_eq!((wanted.threads(), wanted.highest_nice()), (5, Some(-5)));
        let pinned: Vec<(String, usize)> = wanted.pinned();
        let names: Vec<(&str, usize)> = pinned.iter().map(|(name, cpu)| (name.as_str(), *cpu)).collect();
        assert_eq!(names, [("c-core-0", 0), ("c-core-1", 1), ("c-core-2", 1), ("c-core-3", 2)]);
    }

    #[test]
    fn a_low_limit_of_open_files_is_reported_as_clients() {
        let wanted = Wanted::of(&Config::default(), Path::new(""));
        assert_eq!(wanted.few_files(wanted.files()), None);
        let words = wanted.few_files(1024).unwrap();
        assert!(words.contains("1024, lets about 198 clients") && words.contains("raise it to 5345"), "{words}");
        assert!(wanted.few_files(10).unwrap().contains("about 0 clients"));
    }

    #[test]
    fn without_attaching_there_is_no_memory_and_no_descriptor_for_it() {
        let mut wanted = Wanted::of(&Config::default(), Path::new(""));
        assert_eq!(wanted.memory_bytes(), (2 * 128 + 2 * 130 + 256 + 128) << 20);
        assert_eq!(wanted.files(), 31 + 2 + 5 * 1024 + 64 + 128);
        wanted.attach = None;
        assert_eq!((wanted.memory_bytes(), wanted.files()), ((2 * 128 + 2 * 130) << 20, 26 + 128));
    }
}
