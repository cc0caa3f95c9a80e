//! The daemon's end of attaching: a socket that takes processes as they come.

use super::{AttachAddr, Peer};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, chmod};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen, socket_with,
};
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Processes that may wait to be taken. Linux lets a client's `connect` wait, or fail, beyond that.
const BACKLOG: i32 = 128;

/// A listening attach socket. A file that it made is removed when it is dropped.
#[derive(Debug)]
pub struct AttachListener {
    /// Before the socket, so that the file is gone when others could find that nobody listens on it.
    _file: Option<SocketFile>,
    socket: OwnedFd,
    address: AttachAddr,
}

/// The file that a socket is bound to, removed when dropped if it is still that one.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|now| (now.dev(), now.ino()) == (self.device, self.inode)) {
            let _removed = fs::remove_file(&self.path);
        }
    }
}

impl AttachListener {
    /// Listens at `address`. A file can be used by this process's user only, or by everyone if `open_to_others`; one that is
    /// left from a daemon that is gone is taken over.
    ///
    /// # Errors
    /// `AddrInUse` if another daemon listens there, or something else than a socket is there; else the kernel's error.
    pub fn bind(address: &AttachAddr, open_to_others: bool) -> io::Result<AttachListener> {
        let socket = new_socket(SocketFlags::NONBLOCK)?;
        let named = address.to_socket_addr()?;
        match (bind(&socket, &named), address) {
            (Err(Errno::ADDRINUSE), AttachAddr::Path(path)) => {
                remove_if_stale(path, &named)?;
                bind(&socket, &named)?;
            }
            (result, _) => result?,
        }
        let file = match address {
            AttachAddr::Abstract(_) => None,
            AttachAddr::Path(path) => {
                let made = fs::symlink_metadata(path)?;
                let file = SocketFile { path: path.clone(), device: made.dev(), inode: made.ino() };
                // Nobody can connect before `listen`, so nobody slips in between.
                chmod(path, Mode::from_raw_mode(if open_to_others { 0o666 } else { 0o600 }))?;
                Some(file)
            }
        };
        listen(&socket, BACKLOG)?;
        Ok(AttachListener { _file: file, socket, address: address.clone() })
    }

    /// Where it listens.
    pub fn address(&self) -> &AttachAddr {
        &self.address
    }

    /// Takes the next process that asks to attach, with its socket, which never blocks this process; none if nobody asks
    /// now. Wait for the next by polling [`AttachListener::as_fd`] for input.
    ///
    /// # Errors
    /// The kernel's, such as too many open files: then the asker waits on.
    pub fn accept(&self) -> io::Result<Option<(Peer, OwnedFd)>> {
        loop {
            return match accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => Ok(Some((Peer::of(socket.as_fd())?, socket))),
                Err(Errno::AGAIN) => Ok(None),
                // One that gave up before it was taken; the next may not have.
                Err(Errno::CONNABORTED | Errno::INTR) => continue,
                Err(error) => Err(error.into()),
            };
        }
    }
}

impl AsFd for AttachListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A Unix socket that keeps packets apart.
pub(super) fn new_socket(flags: SocketFlags) -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC | flags, None)?)
}

/// Removes the socket at `path` if nobody listens on it any more.
fn remove_if_stale(path: &Path, address: &SocketAddrUnix) -> io::Result<()> {
    let in_use = |why: &str| Err(io::Error::new(io::ErrorKind::AddrInUse, why));
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return in_use("something else than a socket has that name");
    }
    let probe = new_socket(SocketFlags::NONBLOCK)?;
    match connect(&probe, address) {
        Err(Errno::CONNREFUSED) => fs::remove_file(path),
        _ => in_use("someone listens there already"),
    }
}
