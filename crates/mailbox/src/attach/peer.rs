//! The process at the other end of a Unix socket, from the kernel.

#![allow(unsafe_code)]

use rustix::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;
use std::sync::Arc;

/// Groups that one process can have (the kernel's `NGROUPS_MAX`).
const MOST_GROUPS: usize = 65536;
/// Groups that most processes have room in.
const USUAL_GROUPS: usize = 64;

/// A process that asks to attach, as the kernel saw it when it connected.
#[derive(Debug)]
pub struct Peer {
    /// Its number; 0 if it lives where this process cannot see it (another container's process name space).
    pub pid: u32,
    /// Its user id.
    pub uid: u32,
    /// Its group id.
    pub gid: u32,
    /// Its other groups.
    pub groups: Vec<u32>,
    /// Its name, as `ps` prints it; empty if unknown. For people to read: a process chooses its own.
    pub process: String,
    /// Becomes readable when the process ends; none where the kernel has no such thing for it.
    pub pidfd: Option<Arc<OwnedFd>>,
}

impl Peer {
    /// The process that connected to the other end of `socket`.
    ///
    /// # Errors
    /// The kernel's, for what is no connected Unix socket.
    pub fn of(socket: BorrowedFd<'_>) -> io::Result<Peer> {
        let mut ucred = [0; 3];
        if socket_option(socket, libc::SO_PEERCRED, &mut ucred)? != 3 {
            return Err(io::Error::other("the kernel did not say who connected"));
        }
        let [pid, uid, gid] = ucred;
        let groups = peer_groups(socket).unwrap_or_default();
        let pidfd = peer_pidfd(socket).or_else(|_| open_pidfd(pid)).ok().map(Arc::new);
        Ok(Peer { pid, uid, gid, groups, process: process_name(pid), pidfd })
    }

    /// Whether it is in group `gid`.
    pub fn is_in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// Reads a socket option that is an array of 32-bit words; returns how many there were.
fn socket_option(socket: BorrowedFd<'_>, option: libc::c_int, into: &mut [u32]) -> io::Result<usize> {
    let mut bytes = libc::socklen_t::try_from(size_of_val(into)).map_err(io::Error::other)?;
    // SAFETY: the kernel writes `bytes` bytes at most, which `into` has, and says in `bytes` how many; any bits are a
    // u32.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, into.as_mut_ptr().cast(), &raw mut bytes)
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(bytes as usize / size_of::<u32>())
}

fn peer_groups(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    let mut groups = vec![0; USUAL_GROUPS];
    let count = match socket_option(socket, libc::SO_PEERGROUPS, &mut groups) {
        Err(error) if error.raw_os_error() == Some(libc::ERANGE) => {
            groups.resize(MOST_GROUPS, 0);
            socket_option(socket, libc::SO_PEERGROUPS, &mut groups)?
        }
        other => other?,
    };
    groups.truncate(count);
    Ok(groups)
}

/// The very process that connected, on kernels that say so (6.5).
fn peer_pidfd(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut pidfd = [0];
    if socket_option(socket, libc::SO_PEERPIDFD, &mut pidfd)? != 1 {
        return Err(io::Error::from(io::ErrorKind::Unsupported));
    }
    // SAFETY: the kernel has just opened this descriptor for this process, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(pidfd[0].cast_signed()) })
}

/// The process that has number `pid` now. If the one that connected is gone, that may be another; the socket's hang-up
/// says so then.
fn open_pidfd(pid: u32) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(pid.cast_signed()).ok_or(io::ErrorKind::NotFound)?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

fn process_name(pid: u32) -> String {
    let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name = String::from_utf8_lossy(name.strip_suffix(b"\n").unwrap_or(&name));
    name.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}
