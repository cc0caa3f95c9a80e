//! Reads the system: the only module of `check` that touches the machine. A value that cannot be read is absent.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crossdock_mailbox::attach::{AttachAddr, AttachListener};
use crossdock_runtime::{ContextConfig, probe_udp};
use rustix::fs::{Access, AtFlags, CWD, MemfdFlags, SealFlags, accessat, fcntl_add_seals, ftruncate, memfd_create};
use rustix::process::{Resource, getrlimit};
use rustix::thread::{CpuSet, sched_getaffinity};

use super::cgroup;
use super::wanted::Wanted;
use crate::config::TableSection;
use crate::http::Health;
use crate::http::client::Client;

/// A limit of the process: what holds, and what it may be raised to. `u64::MAX` is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    /// The present limit.
    pub(crate) soft: u64,
    /// The highest limit that the process can set by itself.
    pub(crate) hard: u64,
}

/// The offload that the kernel grants the UDP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offload {
    /// It cuts super-packets.
    pub(crate) gso: bool,
    /// It joins packets.
    pub(crate) gro: bool,
}

/// The result of a trial: the error's kind and text.
pub(crate) type Tried<T = ()> = Result<T, (io::ErrorKind, String)>;

/// The place of a socket or a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PathState {
    /// It is there: a socket, or a folder that may be written to.
    Usable,
    /// It is not there, and can be made.
    Absent,
    /// Something of another kind has the name.
    Taken,
    /// It is there or in a folder that is there, and belongs to this user, which is neither root nor this process's.
    Foreign(String),
    /// This folder is there and may not be written to.
    Refused(PathBuf),
    /// This folder is not there, and cannot be made by this user.
    Missing(PathBuf),
}

/// A reference table, as it is read.
#[derive(Clone, Debug)]
pub(crate) struct TableRead {
    /// Its name.
    pub(crate) name: String,
    /// Its file.
    pub(crate) path: PathBuf,
    /// Its rows and their bytes of memory; or what is wrong, and where.
    pub(crate) read: Result<(u64, u64), String>,
}

/// The values of the machine. Text is unchanged from the kernel.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    /// `/proc/self/status`.
    pub(crate) status: Option<String>,
    /// `/proc/meminfo`.
    pub(crate) meminfo: Option<String>,
    /// The kernel's release.
    pub(crate) release: String,
    /// `RLIMIT_NOFILE`.
    pub(crate) files: Limit,
    /// `RLIMIT_MEMLOCK`.
    pub(crate) locked: Limit,
    /// `RLIMIT_NICE`.
    pub(crate) nice: Limit,
    /// Settings of the kernel, by their path below `/proc/sys` or `/sys`.
    pub(crate) settings: BTreeMap<&'static str, String>,
    /// The CPUs that this process may use.
    pub(crate) cpus: Option<Vec<usize>>,
    /// Cores' worth of time that the control group may use each second, if that is bounded.
    pub(crate) quota: Option<f64>,
    /// Bytes that the control group may still use, if that is bounded.
    pub(crate) room_bytes: Option<u64>,
    /// `thread_siblings_list` of CPUs.
    pub(crate) siblings: BTreeMap<usize, String>,
    /// `scaling_governor` of CPUs.
    pub(crate) governors: BTreeMap<usize, String>,
    /// Shared memory without a file: whether it can be made and sealed.
    pub(crate) memfd: Tried,
    /// The UDP socket at the configured address.
    pub(crate) udp: Tried<Offload>,
    /// The same at any port of the loopback interface.
    pub(crate) offload: Tried<Offload>,
    /// The TCP address of the HTTP API, if one is configured.
    pub(crate) http: Option<Tried>,
    /// The place of the control socket.
    pub(crate) control: PathState,
    /// The attach socket: its place, or for one without a file whether the name can be had.
    pub(crate) attach: Option<Tried<PathState>>,
    /// The folder of what is kept.
    pub(crate) state: Option<PathState>,
    /// The reference tables.
    pub(crate) tables: Vec<TableRead>,
    /// The UDP address of the daemon that answers at the control socket.
    pub(crate) running: Option<SocketAddr>,
}

/// Settings that are read, by the path that they are named by.
const SETTINGS: [&str; 10] = [
    "/proc/sys/net/core/rmem_max",
    "/proc/sys/net/core/wmem_max",
    "/proc/sys/vm/nr_hugepages",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/kernel/mm/transparent_hugepage/shmem_enabled",
    "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages",
    "/sys/devices/system/cpu/isolated",
    "/sys/devices/system/cpu/online",
    "/sys/devices/system/clocksource/clocksource0/current_clocksource",
    "/sys/devices/system/clocksource/clocksource0/available_clocksource",
];

impl Machine {
    /// Reads all values. Sockets are opened and closed again.
    pub(crate) fn read(wanted: &Wanted) -> Machine {
        let config = &wanted.context;
        let cpus = sched_getaffinity(None).ok();
        let cpus = cpus.map(|set| (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect::<Vec<_>>());
        let of_cpu = |file: &str| -> BTreeMap<usize, String> {
            let path = |cpu: &usize| format!("/sys/devices/system/cpu/cpu{cpu}/{file}");
            cpus.iter().flatten().filter_map(|cpu| Some((*cpu, text(path(cpu))?))).collect()
        };
        let (siblings, governors) = (of_cpu("topology/thread_siblings_list"), of_cpu("cpufreq/scaling_governor"));
        let group = text("/proc/self/cgroup").unwrap_or_default();
        let loopback = ContextConfig { listen: SocketAddr::from(([127, 0, 0, 1], 0)), ..config.clone() };
        let http = wanted.http.map(|address| TcpListener::bind(address).map(drop).map_err(complaint));
        Machine {
            status: text("/proc/self/status"),
            meminfo: text("/proc/meminfo"),
            release: rustix::system::uname().release().to_string_lossy().into_owned(),
            files: limit(Resource::Nofile),
            locked: limit(Resource::Memlock),
            nice: limit(Resource::Nice),
            settings: SETTINGS.into_iter().filter_map(|path| Some((path, text(path)?))).collect(),
            quota: cgroup::quota(&group, text),
            room_bytes: cgroup::room_bytes(&group, text),
            cpus,
            siblings,
            governors,
            memfd: memfd().map_err(complaint),
            udp: udp(config),
            offload: udp(&loopback),
            http,
            control: socket_place(&wanted.control),
            attach: wanted.attach.as_ref().map(attach_place),
            state: config.morph.state_dir.as_deref().map(folder_place),
            tables: wanted.tables.iter().map(|table| table_read(table, &wanted.directory)).collect(),
            running: running(&wanted.control),
        }
    }

    /// A setting's text, without spaces around it.
    pub(crate) fn setting(&self, path: &str) -> Option<&str> {
        self.settings.get(path).map(|text| text.trim())
    }

    /// The other user whose daemon has the sockets, as far as their places say.
    pub(crate) fn other_user(&self) -> Option<&str> {
        let places = [Some(&self.control), self.attach.as_ref().and_then(|tried| tried.as_ref().ok())];
        places.into_iter().flatten().find_map(|place| match place {
            PathState::Foreign(user) if self.running.is_none() => Some(user.as_str()),
            _ => None,
        })
    }

    /// Whether this process has a capability now, by its number. False where the system does not say.
    pub(crate) fn may(&self, capability: u32) -> bool {
        let line = self.status.iter().flat_map(|text| text.lines()).find_map(|line| line.strip_prefix("CapEff:"));
        let mask = line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        mask.is_some_and(|mask| mask >> capability & 1 == 1)
    }
}

fn table_read(table: &TableSection, directory: &Path) -> TableRead {
    let spec = table.spec(directory).map_err(|failure| failure.message().to_owned());
    TableRead { name: table.name.clone(), path: directory.join(&table.path), read: spec.and_then(|spec| spec.check()) }
}

fn text(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok()
}

fn limit(resource: Resource) -> Limit {
    let limit = getrlimit(resource);
    Limit { soft: limit.current.unwrap_or(u64::MAX), hard: limit.maximum.unwrap_or(u64::MAX) }
}

#[allow(clippy::needless_pass_by_value, reason = "used as `map_err(complaint)`")]
fn complaint(error: io::Error) -> (io::ErrorKind, String) {
    (error.kind(), error.to_string())
}

fn udp(config: &ContextConfig) -> Tried<Offload> {
    let granted = probe_udp(config).map(|info| Offload { gso: info.cuts_in_kernel, gro: info.joins_in_kernel });
    granted.map_err(complaint)
}

/// As segments are made.
fn memfd() -> io::Result<()> {
    let file = memfd_create("crossdock-check", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, 4096)?;
    Ok(fcntl_add_seals(&file, SealFlags::GROW | SealFlags::SHRINK | SealFlags::FUTURE_WRITE)?)
}

/// The daemon that answers at a control socket.
fn running(control: &Path) -> Option<SocketAddr> {
    if !fs::metadata(control).is_ok_and(|found| found.file_type().is_socket()) {
        return None;
    }
    let health: Health = Client::of_socket(control).get("/v1/health").ok()?;
    health.address.parse().ok()
}

fn attach_place(address: &AttachAddr) -> Tried<PathState> {
    match address {
        AttachAddr::Path(path) => Ok(socket_place(path)),
        AttachAddr::Abstract(_) => AttachListener::bind(address, false).map(|_| PathState::Absent).map_err(complaint),
    }
}

/// Whether a socket's file can be made at a path.
fn socket_place(path: &Path) -> PathState {
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => PathState::Taken,
        found => {
            let folder = match path.parent() {
                Some(folder) if folder != Path::new("") => folder,
                _ => Path::new("."),
            };
            match (is_writable(folder), found) {
                (false, Ok(socket)) => foreign_socket(&socket, folder),
                (false, Err(_)) => refused(folder),
                (true, Ok(_)) => PathState::Usable,
                (true, Err(_)) => PathState::Absent,
            }
        }
    }
}

/// A socket that this process cannot replace. systemd makes those that it passes as root, in the folder of the service's user.
fn foreign_socket(socket: &fs::Metadata, folder: &Path) -> PathState {
    let owners = [fs::metadata(folder).map_or(0, |found| found.uid()), socket.uid()];
    let own = rustix::process::geteuid().as_raw();
    let user = owners.into_iter().find(|uid| ![0, own].contains(uid)).unwrap_or(socket.uid());
    if user == own { PathState::Refused(folder.to_owned()) } else { PathState::Foreign(user_name(user)) }
}

/// A folder in which no file can be made.
fn refused(folder: &Path) -> PathState {
    let nearest = ancestors(folder).find_map(|nearest| Some((nearest == folder, fs::metadata(nearest).ok()?.uid())));
    let own = rustix::process::geteuid().as_raw();
    match nearest {
        Some((_, user)) if ![0, own].contains(&user) => PathState::Foreign(user_name(user)),
        Some((true, _)) => PathState::Refused(folder.to_owned()),
        _ => PathState::Missing(folder.to_owned()),
    }
}

/// A path and the folders above it, the working folder being `.`.
fn ancestors(path: &Path) -> impl Iterator<Item = &Path> {
    path.ancestors().map(|folder| if folder == Path::new("") { Path::new(".") } else { folder })
}

/// The name of a user, or `#NUMBER` as `sudo -u` takes it.
fn user_name(uid: u32) -> String {
    let users = text("/etc/passwd").unwrap_or_default();
    let mut names = users.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    });
    names.next().unwrap_or_else(|| format!("#{uid}"))
}

/// Whether files can be made in a folder, which is made first where it is not there.
fn folder_place(path: &Path) -> PathState {
    if let Ok(found) = fs::metadata(path) {
        return match (found.is_dir(), is_writable(path)) {
            (false, _) => PathState::Taken,
            (true, true) => PathState::Usable,
            (true, false) => refused(path),
        };
    }
    match ancestors(path).skip(1).find(|folder| folder.exists()) {
        Some(folder) if is_writable(folder) => PathState::Absent,
        _ => refused(path),
    }
}

fn is_writable(folder: &Path) -> bool {
    accessat(CWD, folder, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS).is_ok()
}
