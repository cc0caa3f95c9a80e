//! How long a packet may be on the way to an address: the route's MTU, asked of the kernel once and remembered.

use rustix::net::sockopt;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Destinations remembered; a daemon has about a thousand peers at most, and asking again costs about 10 us.
const MAX_PATHS: usize = 1024;
/// The bytes of an IPv4 header without options and a UDP header, in bytes.
const HEADERS_V4: usize = 28;
/// The bytes of an IPv6 and a UDP header, in bytes.
const HEADERS_V6: usize = 48;
/// The kernel's MTU of Linux's loopback interface (65,536) over IPv4; any route that has it stays in the machine.
const LOOPBACK_MTU: usize = 65_535;
/// MTU assumed where the kernel will not say: the least that IPv6 allows.
const LEAST_MTU: usize = 1280;

/// One destination's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PathLimit {
    /// Longest UDP payload in bytes that crosses unfragmented, not rounded.
    pub(crate) payload_bytes: usize,
    /// The way there stays inside the machine.
    pub(crate) is_local: bool,
}

/// Remembered limits by destination address.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    known: HashMap<IpAddr, PathLimit>,
    /// The one asked for last, since most calls are about the same.
    last: Option<(IpAddr, PathLimit)>,
}

impl Paths {
    /// The limit towards `to`.
    pub(crate) fn limit(&mut self, to: SocketAddr) -> PathLimit {
        let ip = to.ip();
        if let Some((last, limit)) = self.last
            && last == ip
        {
            return limit;
        }
        let Some(&limit) = self.known.get(&ip) else { return self.ask(to) };
        self.last = Some((ip, limit));
        limit
    }

    /// The limit towards `to`, asked of the kernel anew.
    pub(crate) fn ask(&mut self, to: SocketAddr) -> PathLimit {
        self.note(to, route_mtu(to).unwrap_or(LEAST_MTU))
    }

    /// The same for a socket that is connected there: it knows its route, and costs no other socket.
    pub(crate) fn learn(&mut self, to: SocketAddr, connected: &UdpSocket) {
        if let Ok(mtu) = mtu_of(to, connected) {
            self.note(to, mtu);
        }
    }

    fn note(&mut self, to: SocketAddr, mtu: usize) -> PathLimit {
        let limit = limit_of(to.ip(), mtu);
        if self.known.len() >= MAX_PATHS {
            self.known.clear(); // rare, and what is still used is asked for again
        }
        self.known.insert(to.ip(), limit);
        self.last = Some((to.ip(), limit));
        limit
    }
}

fn limit_of(ip: IpAddr, mtu: usize) -> PathLimit {
    let headers = if ip.is_ipv4() { HEADERS_V4 } else { HEADERS_V6 };
    PathLimit {
        payload_bytes: mtu.saturating_sub(headers).clamp(8, crate::MAX_SUPER_BYTES),
        is_local: ip.is_loopback() || mtu >= LOOPBACK_MTU,
    }
}

/// The MTU of the route to `to`, by connecting a socket there, which sends nothing.
fn route_mtu(to: SocketAddr) -> io::Result<usize> {
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(to)?;
    mtu_of(to, &socket)
}

/// The MTU of the route of a socket that is connected to `to`.
fn mtu_of(to: SocketAddr, socket: &UdpSocket) -> io::Result<usize> {
    let mtu = if to.is_ipv4() { sockopt::ip_mtu(socket)? } else { sockopt::ipv6_mtu(socket)? };
    Ok(mtu as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_by_family_and_mtu() {
        let (v4, v6) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]));
        let table = [(v4, 1500, 1472), (v6, 1500, 1452), (v4, 9000, 8972), (v4, 0, 8), (v4, 1 << 20, 65_504)];
        for (ip, mtu, expected) in table {
            assert_eq!(limit_of(ip, mtu).payload_bytes, expected, "{ip} at {mtu}");
        }
        assert!(!limit_of(v4, 9000).is_local);
        assert!(limit_of(v4, 65_535).is_local, "an address of this machine");
        assert!(limit_of(Ipv6Addr::LOCALHOST.into(), 1500).is_local);
    }

    #[test]
    fn a_connected_socket_knows_its_path() {
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (addr, mut paths) = (peer.local_addr().unwrap(), Paths::default());
        paths.learn(addr, &socket);
        assert!(paths.known.is_empty(), "it is connected to none");
        socket.connect(addr).unwrap();
        paths.learn(addr, &socket);
        let learnt = paths.known.get(&addr.ip()).copied();
        assert_eq!(learnt, Some(Paths::default().ask(addr)));
        assert_eq!(paths.limit(addr), learnt.unwrap());
    }

    #[test]
    fn remembered_paths_are_bounded() {
        let mut paths = Paths::default();
        for at in 0..=MAX_PATHS as u32 {
            let ip = Ipv4Addr::from(0x7f00_0001 + at);
            assert!(paths.limit(SocketAddr::new(ip.into(), 9)).is_local);
        }
        assert_eq!(paths.known.len(), 1);
    }
}
