//! The daemon's end of attaching: a socket that takes processes as they come.

use super::{AttachAddr, Peer};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, chmod};
use rustix::io::{Errno, FdFlags, fcntl_setfd, ioctl_fionbio};
use rustix::net::sockopt::{socket_acceptconn, socket_type};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, getsockname, listen,
    socket_with,
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
    /// Listens at `address`. A file can be used by this process's user only, or by everyone if `open_to_others`; one
    /// that is left from a daemon that is gone is taken over.
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

    /// A socket that listens already, such as one that a service manager has passed on. Its file, if it has one, stays when this
    /// is dropped: it belongs to that manager.
    ///
    /// # Errors
    /// `InvalidInput` for anything else than a listening Unix socket with a name that keeps packets apart (`SOCK_SEQPACKET`).
    pub fn over(socket: OwnedFd) -> io::Result<AttachListener> {
        let refuse = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, why.to_owned());
        if socket_type(&socket).ok() != Some(SocketType::SEQPACKET) || !socket_acceptconn(&socket).unwrap_or(false) {
            return Err(refuse("not a listening socket of sequential packets"));
        }
        let name = SocketAddrUnix::try_from(getsockname(&socket)?).map_err(|_| refuse("not a Unix socket"))?;
        let address = AttachAddr::of_socket_addr(&name).ok_or_else(|| refuse("a socket without a name"))?;
        ioctl_fionbio(&socket, true)?;
        fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
        Ok(AttachListener { _file: None, socket, address })
    }

    /// Where it listens.
    pub fn address(&self) -> &AttachAddr {
        &self.address
    }

    /// Takes the next process that asks to attach, with its socket, which never blocks this process; none if nobody
    /// asks now. Wait for the next by polling [`AttachListener::as_fd`] for input.
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

#[cfg(all(test, not(miri)))]
#[allow(clippy::unwrap_used)] // a test that fails may panic
mod tests {
    use super::*;
    use std::io::ErrorKind;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A directory of this test's own, removed after it.
    struct Directory(PathBuf);

    impl Directory {
        fn new() -> Directory {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("crossdock-listener-{}-{number}", std::process::id()));
            fs::create_dir(&path).unwrap();
            Directory(path)
        }

        fn address(&self) -> AttachAddr {
            AttachAddr::Path(self.0.join("attach"))
        }

        fn mode(&self) -> u32 {
            fs::metadata(self.0.join("attach")).unwrap().permissions().mode() & 0o7777
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _removed = fs::remove_dir_all(&self.0);
        }
    }

    fn connected(address: &AttachAddr) -> OwnedFd {
        let socket = new_socket(SocketFlags::empty()).unwrap();
        connect(&socket, &address.to_socket_addr().unwrap()).unwrap();
        socket
    }

    #[test]
    fn the_kernel_says_whose_the_request_is() {
        let directory = Directory::new();
        let name = AttachAddr::Abstract(format!("crossdock-test-who-{}", std::process::id()));
        for address in [directory.address(), name] {
            let listener = AttachListener::bind(&address, false).unwrap();
            assert_eq!(listener.address(), &address);
            assert!(listener.accept().unwrap().is_none(), "nobody asks, nobody waits");
            let _client = connected(&address);
            let (peer, socket) = listener.accept().unwrap().unwrap();
            assert_eq!(peer.pid, std::process::id());
            assert_eq!((peer.uid, peer.gid), (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw()));
            assert!(peer.is_in_group(peer.gid) && peer.groups.iter().all(|&group| peer.is_in_group(group)));
            let own = fs::read_to_string(format!("/proc/{}/comm", peer.pid)).unwrap();
            assert_eq!(peer.process, own.trim_end());
            assert!(peer.pidfd.is_some());
            let flags = rustix::fs::fcntl_getfl(&socket).unwrap();
            assert!(flags.contains(rustix::fs::OFlags::NONBLOCK));
            assert!(rustix::io::fcntl_getfd(&socket).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        }
    }

    #[test]
    fn one_that_gave_up_is_still_distinguished() {
        let address = AttachAddr::Abstract(format!("crossdock-test-gone-{}", std::process::id()));
        let listener = AttachListener::bind(&address, false).unwrap();
        drop(connected(&address));
        let _second = connected(&address);
        for _ in 0..2 {
            assert!(listener.accept().unwrap().is_some());
        }
        assert!(listener.accept().unwrap().is_none());
        assert_eq!(AttachListener::bind(&address, false).unwrap_err().kind(), ErrorKind::AddrInUse);
    }

    #[test]
    fn a_file_is_open_to_whom_it_should_be_and_goes_with_its_listener() {
        let directory = Directory::new();
        let address = directory.address();
        for (open_to_others, mode) in [(false, 0o600), (true, 0o666)] {
            let listener = AttachListener::bind(&address, open_to_others).unwrap();
            assert_eq!(directory.mode(), mode);
            let error = AttachListener::bind(&address, true).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AddrInUse, "someone listens: {error}");
            assert_eq!(directory.mode(), mode);
            drop(listener);
            assert_eq!(fs::read_dir(&directory.0).unwrap().count(), 0);
        }
    }

    #[test]
    fn a_dead_daemons_file_is_taken_over_and_anything_else_is_not() {
        let directory = Directory::new();
        let address = directory.address();
        let path = directory.0.join("attach");
        let dead = new_socket(SocketFlags::empty()).unwrap();
        bind(&dead, &address.to_socket_addr().unwrap()).unwrap();
        listen(&dead, 1).unwrap();
        drop(dead);
        assert!(path.exists(), "what SIGKILL leaves");
        let listener = AttachListener::bind(&address, false).unwrap();
        let _client = connected(&address);

        // Its file is replaced under it: the other's stays.
        fs::remove_file(&path).unwrap();
        fs::write(&path, "mine").unwrap();
        drop(listener);
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
        assert_eq!(AttachListener::bind(&address, false).unwrap_err().kind(), ErrorKind::AddrInUse);
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/null", &path).unwrap();
        assert_eq!(AttachListener::bind(&address, false).unwrap_err().kind(), ErrorKind::AddrInUse);
    }

    #[test]
    fn a_socket_that_listens_already_is_taken_over_and_its_file_stays() {
        let directory = Directory::new();
        let name = AttachAddr::Abstract(format!("crossdock-test-passed-{}", std::process::id()));
        for address in [directory.address(), name] {
            let socket = new_socket(SocketFlags::empty()).unwrap();
            bind(&socket, &address.to_socket_addr().unwrap()).unwrap();
            assert_eq!(AttachListener::over(socket.try_clone().unwrap()).unwrap_err().kind(), ErrorKind::InvalidInput);
            listen(&socket, 1).unwrap();
            let listener = AttachListener::over(socket).unwrap();
            assert_eq!(listener.address(), &address);
            assert!(listener.accept().unwrap().is_none(), "it does not block");
            let _client = connected(&address);
            assert_eq!(listener.accept().unwrap().unwrap().0.pid, std::process::id());
        }
        assert!(directory.0.join("attach").exists());
        let unnamed = new_socket(SocketFlags::empty()).unwrap();
        assert_eq!(AttachListener::over(unnamed).unwrap_err().kind(), ErrorKind::InvalidInput);
        let stream = std::os::unix::net::UnixListener::bind(directory.0.join("stream")).unwrap();
        assert_eq!(AttachListener::over(stream.into()).unwrap_err().kind(), ErrorKind::InvalidInput);
    }

    #[test]
    fn a_file_that_cannot_be_made_is_an_error() {
        let address = AttachAddr::Path("/proc/no/such/place".into());
        assert_eq!(AttachListener::bind(&address, false).unwrap_err().kind(), ErrorKind::NotFound);
        let address = AttachAddr::Path("x".repeat(200).into());
        assert!(AttachListener::bind(&address, false).is_err());
    }
}
