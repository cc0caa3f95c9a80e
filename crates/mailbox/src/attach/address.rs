//! Where a daemon can be attached to, and how that follows from its UDP address.

use rustix::net::SocketAddrUnix;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::str::FromStr;

/// The most bytes that a socket's name may have: the kernel's `sun_path` less one.
const MOST_NAME_BYTES: usize = 107;

/// The name of a daemon's attach socket: `unix:@NAME` or `unix:PATH`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AttachAddr {
    /// In the kernel's own name space: no file, gone with its daemon. Any process of the machine (strictly: of its
    /// network name space) can ask to attach, which is then settled by its credentials.
    Abstract(String),
    /// A file. A process that may not write it cannot even ask.
    Path(PathBuf),
}

impl AttachAddr {
    /// The name that a daemon takes that listens on UDP address `listen`, printed as it was given.
    pub fn for_listen(listen: SocketAddr) -> AttachAddr {
        AttachAddr::Abstract(format!("crossdock-shm-{listen}"))
    }

    /// The address in the kernel's form; none for a socket without a name, or one whose name is not text.
    pub(super) fn of_socket_addr(name: &SocketAddrUnix) -> Option<AttachAddr> {
        if let Some(name) = name.abstract_name() {
            return String::from_utf8(name.to_vec()).ok().map(AttachAddr::Abstract);
        }
        let path = name.path()?;
        Some(AttachAddr::Path(PathBuf::from(path.to_str().ok()?)))
    }

    /// The kernel's form.
    pub(super) fn to_socket_addr(&self) -> io::Result<SocketAddrUnix> {
        Ok(match self {
            AttachAddr::Abstract(name) => SocketAddrUnix::new_abstract_name(name.as_bytes())?,
            AttachAddr::Path(path) => SocketAddrUnix::new(path)?,
        })
    }
}

impl fmt::Display for AttachAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttachAddr::Abstract(name) => write!(f, "unix:@{name}"),
            AttachAddr::Path(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl FromStr for AttachAddr {
    type Err = String;

    fn from_str(text: &str) -> Result<AttachAddr, String> {
        let Some(name) = text.strip_prefix("unix:") else {
            return Err(format!("`{text}` is no attach address: write unix:PATH or unix:@NAME"));
        };
        let (address, bytes) = match name.strip_prefix('@') {
            Some(name) => (AttachAddr::Abstract(name.to_owned()), name.as_bytes()),
            None => (AttachAddr::Path(PathBuf::from(name)), name.as_bytes()),
        };
        match bytes.len() {
            0 => Err(format!("`{text}` names nothing: write unix:PATH or unix:@NAME")),
            _ if bytes.contains(&0) => Err(format!("`{}` has a zero byte in its name", text.escape_debug())),
            1..=MOST_NAME_BYTES => Ok(address),
            len => Err(format!("`{text}`: a socket's name has {MOST_NAME_BYTES} bytes at most, not {len}")),
        }
    }
}

/// The attach addresses at which the daemon with UDP address `address` may be found, the likeliest first: its own, and
/// if that IP address is this machine's, those of a daemon that listens on all addresses of the machine.
pub fn candidates(address: SocketAddr) -> Vec<AttachAddr> {
    let mut listens = vec![address];
    // An address can be bound exactly if it is this machine's; port 0 disturbs nobody.
    if UdpSocket::bind((address.ip(), 0)).is_ok() {
        for any in [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)] {
            let listen = SocketAddr::new(any, address.port());
            if listen != address {
                listens.push(listen);
            }
        }
    }
    listens.into_iter().map(AttachAddr::for_listen).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_back_as_they_print() {
        for text in ["unix:@crossdock-shm-127.0.0.1:7440", "unix:/run/crossdock.sock", "unix:here", "unix:@@"] {
            assert_eq!(text.parse::<AttachAddr>().unwrap().to_string(), text);
        }
        let long = format!("unix:@{}", "n".repeat(107));
        assert!(long.parse::<AttachAddr>().unwrap().to_socket_addr().is_ok());
        let long = format!("unix:/{}", "n".repeat(106));
        assert!(long.parse::<AttachAddr>().unwrap().to_socket_addr().is_ok());
        for text in ["", "127.0.0.1:7440", "@name", "/run/a", "unix:", "unix:@", "unix:a\0b", &format!("{long}n")] {
            assert!(text.parse::<AttachAddr>().is_err(), "{text}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore)] // binds a socket
    fn a_local_daemon_may_listen_on_all_addresses() {
        let names = |address: &str| -> Vec<String> {
            candidates(address.parse().unwrap()).iter().map(ToString::to_string).collect()
        };
        assert_eq!(
            names("127.0.0.1:7440"),
            ["unix:@crossdock-shm-127.0.0.1:7440", "unix:@crossdock-shm-0.0.0.0:7440", "unix:@crossdock-shm-[::]:7440"]
        );
        assert_eq!(names("0.0.0.0:9"), ["unix:@crossdock-shm-0.0.0.0:9", "unix:@crossdock-shm-[::]:9"]);
        // TEST-NET-1: nobody's.
        assert_eq!(names("192.0.2.1:7440"), ["unix:@crossdock-shm-192.0.2.1:7440"]);
    }
}
