//! UDP sockets that move super-packets: the kernel cuts them apart (GSO) and joins them (GRO), or where it or the path
//! refuses, packets go and come in batches (`sendmmsg`, `recvmmsg`).

use crate::path::Paths;
use crate::sys::{self, Arrived, MAX_ARRIVALS, Name, Options};
use crate::{
    COPY_BYTES, Device, DeviceCounters, Frame, MAX_SEGMENTS, MAX_SLICES, MAX_SUPER_BYTES, POSTED_BYTES, Sent,
    check_super, hand_over,
};
use crossdock_mailbox::{BufferMut, Pool};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};
use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The errors as which a socket reports ICMP messages about packets that it has sent, besides ECONNREFUSED.
const REPORTS: [i32; 9] = [
    libc::EMSGSIZE,
    libc::EHOSTUNREACH,
    libc::ENETUNREACH,
    libc::EHOSTDOWN,
    libc::ENONET,
    libc::ENOPROTOOPT,
    libc::EOPNOTSUPP,
    libc::EPROTO,
    libc::EACCES,
];

/// ECT(0): the bits of ECN that sessions send with, but on paths that lose what has them.
const MOST_SENT_ECN: u8 = 0b10;

/// How a socket is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpOptions {
    /// Receive buffer asked for, in bytes; the kernel may give less (`net.core.rmem_max`), see [`UdpInfo`]. Default
    /// 4 MiB: 32 super-packets at the 128 KiB that the kernel charges for one.
    pub receive_buffer_bytes: usize,
    /// Send buffer asked for, in bytes; the kernel may give less (`net.core.wmem_max`). Default 4 MiB, for the same.
    pub send_buffer_bytes: usize,
    /// Packet length in bytes towards addresses of this machine to begin with, where no network bounds it. Default 8192.
    pub loopback_packet_bytes: usize,
    /// Use GSO and GRO where the kernel has them. Default true.
    pub offload: bool,
    /// 64 KiB buffers kept posted for arrivals: the most that one system call takes. 1 to 8; default 8.
    pub posted_buffers: usize,
    /// Bind beside other sockets of this user that share the port (SO_REUSEPORT): the kernel brings all packets of one peer to one of
    /// them, as long as there are as many. Default false. See [`UdpDevice::bind_shared`].
    pub share_port: bool,
}

impl Default for UdpOptions {
    fn default() -> UdpOptions {
        UdpOptions {
            receive_buffer_bytes: 4 << 20,
            send_buffer_bytes: 4 << 20,
            loopback_packet_bytes: 8192,
            offload: true,
            posted_buffers: MAX_ARRIVALS,
            share_port: false,
        }
    }
}

/// The features that the kernel granted a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdpInfo {
    /// Super-packets are cut by the kernel (GSO) when sent.
    pub cuts_in_kernel: bool,
    /// Packets are joined by the kernel (GRO) before they are received.
    pub joins_in_kernel: bool,
    /// Actual receive buffer in bytes, the kernel's own overhead included.
    pub receive_buffer_bytes: usize,
    /// Actual send buffer in bytes, the kernel's own overhead included.
    pub send_buffer_bytes: usize,
}

/// A UDP socket as a device. Bound ones speak with anyone, connected ones with one peer.
pub struct UdpDevice {
    socket: UdpSocket,
    local: SocketAddr,
    peer: Option<SocketAddr>,
    options: UdpOptions,
    info: UdpInfo,
    /// Buffers that wait for arrivals, kept between calls.
    posted: Vec<BufferMut>,
    /// Those of the call in work.
    arrived: [Arrived; MAX_ARRIVALS],
    paths: RefCell<Paths>,
    /// The two bits of ECN of what is sent.
    ecn: u8,
    /// Those that the socket gives by itself. Others go as control messages, and for each the kernel looks up the route anew.
    own_ecn: u8,
    counters: DeviceCounters,
    /// The kernel's count of packets dropped on this socket, as far as it is known: of all devices over duplicates of it.
    dropped_kernel: Arc<AtomicU64>,
    /// The error queue may hold reports.
    reports: bool,
}

/// A socket at a port of the kernel's choosing, except this one: where nobody listens there yet, the socket would speak with
/// itself, and keep the one that is to listen from its port.
fn bind_beside(port: u16, bind: impl Fn() -> io::Result<UdpSocket>) -> io::Result<UdpSocket> {
    let socket = bind()?;
    // While the first one is open, the second has another port.
    if socket.local_addr()?.port() == port { bind() } else { Ok(socket) }
}

impl UdpDevice {
    /// A socket at `addr` (port 0: any) that speaks with anyone.
    ///
    /// # Errors
    /// `AddrInUse`, `AddrNotAvailable`, `PermissionDenied` and others of the kernel's, naming the address.
    pub fn bind(addr: SocketAddr, options: UdpOptions) -> io::Result<UdpDevice> {
        let socket = bind_socket(addr, options.share_port).map_err(|error| annotate(&error, "listen at", addr))?;
        UdpDevice::set_up(socket, None, options)
    }

    /// `count` sockets at `addr` (port 0: any, the same for all) that speak with anyone: each peer's packets come to the same one of
    /// them. The port is shared with no other program of this user that was there before.
    ///
    /// # Errors
    /// As [`UdpDevice::bind`].
    pub fn bind_shared(addr: SocketAddr, count: usize, options: &UdpOptions) -> io::Result<Vec<UdpDevice>> {
        let first = UdpDevice::bind(addr, UdpOptions { share_port: false, ..options.clone() })?;
        // Only now, so that the port is refused if another daemon has it, which would share it too.
        sockopt::set_socket_reuseport(first.socket.as_fd(), true)?;
        let (local, mut devices) = (first.local, vec![first]);
        while devices.len() < count {
            devices.push(UdpDevice::bind(local, UdpOptions { share_port: true, ..options.clone() })?);
        }
        Ok(devices)
    }

    /// A second device over the same socket, for another thread, where the address cannot be bound once more: a socket that was
    /// passed by another user's process. Each packet comes to one of them, whichever looks first, and so does the word that a peer is
    /// gone ([`Device::refused`]).
    ///
    /// # Errors
    /// The kernel has no more descriptors.
    pub fn try_clone(&self) -> io::Result<UdpDevice> {
        let mut device = UdpDevice::set_up(self.socket.try_clone()?, self.peer, self.options.clone())?;
        device.dropped_kernel = Arc::clone(&self.dropped_kernel);
        Ok(device)
    }

    /// A socket that is bound already, such as one that a service manager has passed on. It speaks with anyone.
    ///
    /// # Errors
    /// `InvalidInput` for one that is bound to no port or speaks with one peer only; else the kernel's.
    pub fn over(socket: UdpSocket, options: UdpOptions) -> io::Result<UdpDevice> {
        let refuse = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        match (socket.local_addr()?.port(), socket.peer_addr()) {
            (0, _) => refuse("the UDP socket is bound to no port"),
            (_, Ok(_)) => refuse("the UDP socket is connected: it receives from one peer only"),
            (_, Err(_)) => UdpDevice::set_up(socket, None, options),
        }
    }

    /// A socket at an address of the kernel's choosing that speaks with `addr` only. Nothing is sent yet; if nobody
    /// listens there, a later `send` or `receive` says `ConnectionRefused`.
    ///
    /// # Errors
    /// `NetworkUnreachable` and others of the kernel's, naming the address.
    pub fn connect(addr: SocketAddr, options: UdpOptions) -> io::Result<UdpDevice> {
        let any: IpAddr = if addr.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = bind_beside(addr.port(), || UdpSocket::bind((any, 0)));
        let socket = socket.map_err(|error| annotate(&error, "speak with", addr))?;
        socket.connect(addr).map_err(|error| annotate(&error, "speak with", addr))?;
        UdpDevice::set_up(socket, Some(addr), options)
    }

    fn set_up(socket: UdpSocket, peer: Option<SocketAddr>, mut options: UdpOptions) -> io::Result<UdpDevice> {
        options.posted_buffers = options.posted_buffers.clamp(1, MAX_ARRIVALS);
        options.loopback_packet_bytes = (options.loopback_packet_bytes.clamp(8, MAX_SUPER_BYTES)) & !7;
        socket.set_nonblocking(true)?;
        let local = socket.local_addr()?;
        let fd = socket.as_fd();
        // Beyond the system's bound where privilege allows, else up to it, which the kernel does by itself.
        let (receive, send) = (options.receive_buffer_bytes, options.send_buffer_bytes);
        sockopt::set_socket_recv_buffer_size_force(fd, receive)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(fd, receive))?;
        sockopt::set_socket_send_buffer_size_force(fd, send)
            .or_else(|_| sockopt::set_socket_send_buffer_size(fd, send))?;
        forbid_fragments(fd, local.is_ipv6())?;
        // Where the kernel does not say what came marked, packets are sent as not capable of it soon.
        let _reads_class = sys::set_option(fd, libc::IPPROTO_IP, libc::IP_RECVTOS, 1);
        if local.is_ipv6() {
            let _reads_class = sys::set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1);
        }
        let own_ecn = if marks_by_itself(fd, local.is_ipv6()) { MOST_SENT_ECN } else { 0 };
        // Where the kernel cannot count its drops, they show up as the transport's losses only.
        let _counts_drops = sys::set_option(fd, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1);
        let info = UdpInfo {
            // Setting "no segmentation" succeeds just where the kernel knows the option.
            cuts_in_kernel: options.offload && sys::set_option(fd, libc::SOL_UDP, libc::UDP_SEGMENT, 0).is_ok(),
            joins_in_kernel: options.offload && sys::set_option(fd, libc::SOL_UDP, libc::UDP_GRO, 1).is_ok(),
            receive_buffer_bytes: sockopt::socket_recv_buffer_size(fd)?,
            send_buffer_bytes: sockopt::socket_send_buffer_size(fd)?,
        };
        if peer.is_none() {
            // Where the kernel keeps no reports, peers that are gone are noticed by their silence only. An IPv6 socket may speak IPv4
            // too.
            let _keeps_reports = sys::set_option(fd, libc::IPPROTO_IP, libc::IP_RECVERR, 1);
            if local.is_ipv6() {
                let _keeps_reports = sys::set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1);
            }
        }
        let posted = Vec::with_capacity(options.posted_buffers);
        let mut paths = Paths::default();
        peer.into_iter().for_each(|peer| paths.learn(peer, &socket));
        let (paths, counters) = (RefCell::new(paths), DeviceCounters::default());
        let dropped_kernel = Arc::default();
        let (ecn, reports) = (0, false);
        let arrived = [Arrived::default(); MAX_ARRIVALS];
        Ok(UdpDevice {
            socket,
            local,
            peer,
            options,
            info,
            posted,
            arrived,
            paths,
            ecn,
            own_ecn,
            counters,
            dropped_kernel,
            reports,
        })
    }

    /// The granted features, and whether offload is still in use.
    pub fn info(&self) -> UdpInfo {
        self.info
    }

    /// The one peer of a connected device.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Takes the arrival in `posted[at]` over into a frame, or says by `None` that it was dropped.
    fn take(&mut self, at: usize, pool: &mut Pool) -> Option<Frame> {
        let arrived = self.arrived[at];
        if let Some(dropped) = arrived.dropped {
            self.counters.dropped_kernel += new_drops(&self.dropped_kernel, dropped);
        }
        if arrived.truncated {
            self.counters.dropped_truncated += 1;
            return None;
        }
        let Some(from) = arrived.from.filter(|_| arrived.len > 0) else {
            self.counters.dropped_empty += 1;
            return None;
        };
        let (len, stride) = (arrived.len, arrived.stride);
        let posted = &mut self.posted[at];
        let wanted = if len > COPY_BYTES { posted.capacity() } else { len };
        let Some(mut buffer) = pool.alloc(wanted) else {
            self.counters.dropped_no_buffer += len.div_ceil(stride) as u64;
            return None;
        };
        if buffer.capacity() >= posted.capacity() {
            std::mem::swap(&mut buffer, posted);
        } else {
            buffer[..len].copy_from_slice(&posted[..len]);
        }
        Some(hand_over(&mut self.counters, buffer, len, stride, (from, arrived.ecn)))
    }

    /// Takes one arrival off the socket that there is no buffer for at all.
    fn drop_one(&mut self) -> io::Result<()> {
        self.counters.receive_calls += 1;
        sys::discard(self.socket.as_fd())?;
        self.counters.dropped_no_buffer += 1;
        Ok(())
    }

    /// Whether an error may be a report of the network (ICMP) about some earlier packet: the call has done nothing yet then, and is
    /// to be made again. On a socket that speaks with anyone the report also waits in the error queue; a socket with one peer passes
    /// on that this peer has gone.
    fn is_report(&mut self, error: &io::Error) -> bool {
        let is_anyones = self.peer.is_none();
        let report = match error.raw_os_error() {
            Some(libc::ECONNREFUSED) => is_anyones,
            error => error.is_some_and(|error| REPORTS.contains(&error)),
        };
        self.reports |= report && is_anyones;
        report
    }

    /// Makes a call that sends, and makes it again if it has met a report about an earlier packet.
    fn call<T>(&mut self, send: impl Fn(BorrowedFd<'_>) -> io::Result<T>) -> io::Result<T> {
        self.counters.send_calls += 1;
        let sent = send(self.socket.as_fd());
        if sent.as_ref().is_err_and(|error| self.is_report(error)) {
            self.counters.send_calls += 1;
            return send(self.socket.as_fd());
        }
        sent
    }

    fn name_of(&self, to: SocketAddr) -> io::Result<Option<Name>> {
        let refuse = |what: String| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        match self.peer {
            Some(peer) if peer == to => Ok(None),
            Some(peer) => refuse(format!("this socket speaks with {peer} only, not with {to}")),
            None => match Name::new(to, self.local.is_ipv6()) {
                Some(name) => Ok(Some(name)),
                None => refuse(format!("{} is an IPv4 socket and cannot reach {to}: listen at [::]", self.local)),
            },
        }
    }

    /// The control messages of what goes to `to`. An IPv6 socket speaks IPv4 with mapped addresses.
    fn sending(&self, to: SocketAddr, segment: Option<u16>) -> Options {
        let is_v6 = matches!(to.ip().to_canonical(), IpAddr::V6(_));
        Options { segment, ecn: (self.ecn != self.own_ecn).then_some((self.ecn, is_v6)) }
    }

    /// Sends `packets` packets the best way there is. Returns how many went.
    fn send_once(
        &mut self,
        to: SocketAddr,
        name: Option<&Name>,
        slices: &[IoSlice<'_>],
        stride: usize,
        packets: usize,
    ) -> io::Result<usize> {
        if packets == 1 {
            let options = self.sending(to, None);
            return self.call(|socket| sys::send(socket, name, slices, options)).map(|()| 1);
        }
        if self.send_cut(to, name, slices, stride)? {
            return Ok(packets);
        }
        self.counters.supers_split += 1;
        self.send_split(to, name, slices, stride)
    }

    /// Sends packet by packet, a system call for up to [`MAX_SEGMENTS`] of them. Returns how many went.
    fn send_split(
        &mut self,
        to: SocketAddr,
        name: Option<&Name>,
        slices: &[IoSlice<'_>],
        stride: usize,
    ) -> io::Result<usize> {
        let options = self.sending(to, None);
        let mut pieces = [IoSlice::new(&[]); MAX_SLICES + MAX_SEGMENTS];
        let mut ends = [0usize; MAX_SEGMENTS];
        let (mut piece, mut packet, mut room) = (0, 0, stride);
        for slice in slices {
            let mut rest: &[u8] = slice;
            while !rest.is_empty() {
                if room == 0 {
                    packet += 1;
                    room = stride;
                }
                let (head, tail) = rest.split_at(rest.len().min(room));
                pieces[piece] = IoSlice::new(head);
                piece += 1;
                ends[packet] = piece;
                room -= head.len();
                rest = tail;
            }
        }
        let mut sent = 0;
        while sent <= packet {
            let start = if sent == 0 { 0 } else { ends[sent - 1] };
            let mut shifted = [0usize; MAX_SEGMENTS];
            for (shifted, end) in shifted.iter_mut().zip(&ends[sent..=packet]) {
                *shifted = end - start;
            }
            let (pieces, ends) = (&pieces[start..], &shifted[..=packet - sent]);
            match self.call(|socket| sys::send_each(socket, name, pieces, ends, options)) {
                Ok(count) => sent += count,
                Err(_) if sent > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(sent)
    }

    /// Sends `slices` as one super-packet that the kernel cuts. False, with nothing sent, if it will not.
    fn send_cut(
        &mut self,
        to: SocketAddr,
        name: Option<&Name>,
        slices: &[IoSlice<'_>],
        stride: usize,
    ) -> io::Result<bool> {
        let Ok(segment) = u16::try_from(stride) else {
            return Ok(false);
        };
        if !self.info.cuts_in_kernel || stride > self.paths.get_mut().limit(to).payload_bytes {
            return Ok(false);
        }
        let options = self.sending(to, Some(segment));
        let error = match self.call(|socket| sys::send(socket, name, slices, options)) {
            Ok(()) => return Ok(true),
            Err(error) => error,
        };
        match error.raw_os_error() {
            // The route has become too narrow for this stride, which is the destination's matter, not the socket's.
            Some(libc::EINVAL | libc::EMSGSIZE) if stride > self.paths.get_mut().ask(to).payload_bytes => Ok(false),
            Some(libc::EINVAL | libc::EMSGSIZE | libc::EIO | libc::EOPNOTSUPP) => {
                self.info.cuts_in_kernel = false;
                self.counters.fallbacks += 1;
                Ok(false)
            }
            _ => Err(error),
        }
    }
}

impl Device for UdpDevice {
    fn local_addr(&self) -> SocketAddr {
        self.local
    }

    fn receive(&mut self, pool: &mut Pool, frames: &mut Vec<Frame>, max: usize) -> io::Result<usize> {
        let before = frames.len();
        let mut left = max;
        while left > 0 {
            let count = left.min(self.options.posted_buffers);
            while self.posted.len() < count {
                match pool.alloc(POSTED_BYTES.min(pool.largest_bytes())) {
                    Some(buffer) => self.posted.push(buffer),
                    None => break,
                }
            }
            let count = count.min(self.posted.len());
            let got = if count == 0 {
                self.drop_one().map(|()| 1)
            } else {
                self.counters.receive_calls += 1;
                sys::receive(self.socket.as_fd(), self.peer, &mut self.posted[..count], &mut self.arrived)
            };
            match got {
                Ok(got) => {
                    for at in 0..got.min(count) {
                        if let Some(frame) = self.take(at, pool) {
                            frames.push(frame);
                        }
                    }
                    left -= got.min(left);
                    if got < count {
                        break; // the socket was empty
                    }
                }
                Err(error) if sys::would_block(&error) => break,
                Err(error) if self.is_report(&error) => left -= 1,
                Err(error) => {
                    self.counters.errors += 1;
                    if frames.len() == before {
                        return Err(error);
                    }
                    break;
                }
            }
        }
        Ok(frames.len() - before)
    }

    fn refused(&mut self) -> Option<SocketAddr> {
        while self.reports {
            match sys::take_error(self.socket.as_fd()) {
                Some((libc::ECONNREFUSED, to)) => return Some(to),
                Some(_) => {}
                None => self.reports = false,
            }
        }
        None
    }

    fn send(&mut self, to: SocketAddr, slices: &[IoSlice<'_>], stride: usize) -> io::Result<Sent> {
        let (bytes, packets) = check_super(slices, stride)?;
        let name = self.name_of(to)?;
        match self.send_once(to, name.as_ref(), slices, stride, packets) {
            Ok(sent) => {
                self.counters.supers_sent += 1;
                self.counters.packets_sent += sent as u64;
                self.counters.bytes_sent += bytes.min(sent * stride) as u64;
                self.counters.dropped_partial += (packets - sent) as u64;
                Ok(Sent::Done)
            }
            // No room in the socket's buffer, or in the interface's queue.
            Err(error) if sys::would_block(&error) || error.raw_os_error() == Some(libc::ENOBUFS) => {
                self.counters.full += 1;
                Ok(Sent::Full)
            }
            Err(error) => {
                self.counters.errors += 1;
                Err(error)
            }
        }
    }

    /// The kernel then knows the route of what is sent. It drops what comes from others, and a later call says `ConnectionRefused` when
    /// nobody listens at the peer's address any more. Packets of others that were in the socket before are taken
    /// for the peer's.
    fn keep_to(&mut self, peer: SocketAddr) {
        let addr = match (self.local.is_ipv6(), peer) {
            (true, SocketAddr::V4(v4)) => SocketAddr::from((v4.ip().to_ipv6_mapped(), v4.port())),
            _ => peer,
        };
        // Where it cannot be, the socket goes on speaking with anyone.
        if self.peer.is_none() && self.socket.connect(addr).is_ok() {
            self.peer = Some(peer);
            self.paths.get_mut().learn(peer, &self.socket);
            // Calls report what happens to this peer; nobody would empty the queue of reports.
            let fd = self.socket.as_fd();
            let _keeps_reports = sys::set_option(fd, libc::IPPROTO_IP, libc::IP_RECVERR, 0);
            if self.local.is_ipv6() {
                let _keeps_reports = sys::set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 0);
            }
        }
    }

    fn set_ecn(&mut self, bits: u8) {
        self.ecn = bits;
    }

    fn ecn(&self) -> u8 {
        self.ecn
    }

    fn packet_bytes(&self, to: SocketAddr) -> usize {
        let limit = self.paths.borrow_mut().limit(to);
        let most = if limit.is_local { self.options.loopback_packet_bytes } else { usize::MAX };
        most.min(limit.payload_bytes) & !7
    }

    fn most_packet_bytes(&self, to: SocketAddr) -> usize {
        self.paths.borrow_mut().limit(to).payload_bytes & !7
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn counters(&self) -> DeviceCounters {
        self.counters
    }
}

impl std::fmt::Debug for UdpDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UdpDevice")
            .field("local", &self.local)
            .field("peer", &self.peer)
            .field("info", &self.info)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

/// Has a socket mark what it sends with the bits that most packets have; whether it does so for every address that it reaches.
fn marks_by_itself(fd: BorrowedFd<'_>, v6: bool) -> bool {
    let mark = |level, option, bits: u8| sys::set_option(fd, level, option, bits.into()).is_ok();
    // An IPv6 socket may speak IPv4 too (mapped addresses); the IPv4 option then holds for that.
    let marks = mark(libc::IPPROTO_IP, libc::IP_TOS, MOST_SENT_ECN);
    if !v6 || marks && mark(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, MOST_SENT_ECN) {
        return marks;
    }
    mark(libc::IPPROTO_IP, libc::IP_TOS, 0);
    false
}

/// Has packets cross the path whole or not at all (the don't-fragment bit), and the kernel believe nobody about what it takes but its
/// own interface: whoever can forge a report could make it narrow (RFC 8899, 4.5).
fn forbid_fragments(fd: BorrowedFd<'_>, v6: bool) -> io::Result<()> {
    // An IPv6 socket may speak IPv4 too (mapped addresses); the IPv4 option then holds for that.
    let v4 = sockopt::set_ip_mtu_discover(fd, sockopt::Ipv4PathMtuDiscovery::PROBE);
    if v6 { Ok(sockopt::set_ipv6_mtu_discover(fd, sockopt::Ipv6PathMtuDiscovery::PROBE)?) } else { Ok(v4?) }
}

/// A socket bound to `addr`, beside others that share the port if this one does.
fn bind_socket(addr: SocketAddr, share_port: bool) -> io::Result<UdpSocket> {
    let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    if share_port {
        sockopt::set_socket_reuseport(&socket, true)?;
    }
    bind(&socket, &addr)?;
    Ok(socket.into())
}

/// Carries the 64-bit count of a socket's drops on by the kernel's 32-bit one, which wraps, and gives what is new of them. Of two
/// devices over one socket, either may see the other's change first.
fn new_drops(count: &AtomicU64, low: u32) -> u64 {
    let seen = count.load(Ordering::Relaxed);
    let Ok(ahead) = u64::try_from(low.wrapping_sub(seen as u32).cast_signed()) else { return 0 };
    let before = count.fetch_max(seen + ahead, Ordering::Relaxed);
    (seen + ahead).saturating_sub(before)
}

fn annotate(error: &io::Error, what: &str, addr: SocketAddr) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {what} {addr}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_does_not_get_the_port_that_it_is_to_speak_with() {
        let wanted = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = wanted.local_addr().unwrap().port();
        // The kernel offers that very port first.
        let offered = std::cell::Cell::new(Some(wanted));
        let bind = || offered.take().map_or_else(|| UdpSocket::bind("127.0.0.1:0"), Ok);
        let socket = bind_beside(port, bind).unwrap();
        assert_ne!(socket.local_addr().unwrap().port(), port);
        assert!(UdpSocket::bind(("127.0.0.1", port)).is_ok(), "the port is free for the one that is to listen");
    }

    #[test]
    fn the_kernels_drop_count_is_carried_on() {
        let count = AtomicU64::new(0);
        for (low, new, all) in [(7, 7, 7), (7, 0, 7), (3, 0, 7), (i32::MAX as u32, (1 << 31) - 8, (1 << 31) - 1)] {
            assert_eq!((new_drops(&count, low), count.load(Ordering::Relaxed)), (new, all), "{low}");
        }
        let count = AtomicU64::new(u64::from(u32::MAX));
        assert_eq!((new_drops(&count, 1), count.load(Ordering::Relaxed)), (2, (1 << 32) + 1), "it wrapped");
        assert_eq!(new_drops(&count, u32::MAX), 0, "another thread's, which is older");
    }

    /// A socket without checksums is one that the kernel will not segment for.
    #[test]
    fn refused_offload_is_given_up_for_good_and_loses_nothing() {
        let any = "127.0.0.1:0".parse().unwrap();
        let mut to = UdpDevice::bind(any, UdpOptions::default()).unwrap();
        let mut from = UdpDevice::bind(any, UdpOptions::default()).unwrap();
        if !from.info().cuts_in_kernel {
            println!("skipped: this kernel has no UDP segmentation offload");
            return;
        }
        sys::set_option(from.socket.as_fd(), libc::SOL_SOCKET, libc::SO_NO_CHECK, 1).unwrap();
        let mut pool = Pool::new(crossdock_mailbox::PoolConfig::default()).unwrap();
        let bytes: Vec<u8> = (0..10_000u32).map(|at| at as u8).collect();
        for _ in 0..2 {
            assert_eq!(from.send(to.local_addr(), &[IoSlice::new(&bytes)], 1000).unwrap(), Sent::Done);
            let (mut frames, mut got) = (Vec::new(), Vec::new());
            while got.len() < bytes.len() {
                to.receive(&mut pool, &mut frames, 8).unwrap();
                got.extend(frames.drain(..).flat_map(|frame| frame.buffer[..frame.len].to_vec()));
            }
            assert_eq!(got, bytes);
        }
        assert!(!from.info().cuts_in_kernel);
        let counters = from.counters();
        assert_eq!((counters.fallbacks, counters.supers_split, counters.packets_sent), (1, 2, 20));
        assert_eq!((counters.send_calls, counters.errors), (3, 0), "one refused, two that went");
    }
}
