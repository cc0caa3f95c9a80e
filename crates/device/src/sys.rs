//! The system calls that no safe crate offers, as safe functions: `sendmsg` with UDP_SEGMENT, `sendmmsg`, `recvmmsg`
//! with UDP_GRO, `epoll_pwait2` and `sched_setattr`. The only unsafe code of this crate.

#![allow(unsafe_code)]

use crossdock_mailbox::BufferMut;
use libc::{c_int, c_void, cmsghdr, iovec, mmsghdr, msghdr, sockaddr_storage, socklen_t};
use std::io::{self, IoSlice};
use std::mem::{self, MaybeUninit};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// Most arrivals that one call takes.
pub(crate) const MAX_ARRIVALS: usize = 8;

/// Room for control messages, aligned as they need: a GRO segment size, a drop count and a traffic class take 72 bytes, a traffic
/// class and a report over IPv6 take 88.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; CONTROL_BYTES]);

const CONTROL_BYTES: usize = 96;

/// A socket address as the kernel writes it.
#[derive(Clone, Copy)]
pub(crate) struct Name {
    storage: sockaddr_storage,
    len: socklen_t,
}

impl Name {
    /// All zero: no address.
    fn none() -> Name {
        // SAFETY: sockaddr_storage is plain integers, for which zero is a value.
        let storage = unsafe { mem::zeroed() };
        Name { storage, len: 0 }
    }

    /// `addr` for a socket of the IPv6 family (`v6`), where IPv4 addresses are written mapped, or of the IPv4 family;
    /// `None` if an IPv6 address is meant for an IPv4 socket.
    pub(crate) fn new(addr: SocketAddr, v6: bool) -> Option<Name> {
        let mut name = Name::none();
        match (addr, v6) {
            (SocketAddr::V4(addr), false) => {
                let raw = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: addr.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(addr.ip().octets()) },
                    sin_zero: [0; 8],
                };
                name.put(raw);
            }
            (SocketAddr::V6(_), false) => return None,
            (SocketAddr::V4(addr), true) => {
                name.put_v6(SocketAddrV6::new(addr.ip().to_ipv6_mapped(), addr.port(), 0, 0));
            }
            (SocketAddr::V6(addr), true) => name.put_v6(addr),
        }
        Some(name)
    }

    fn put_v6(&mut self, addr: SocketAddrV6) {
        self.put(libc::sockaddr_in6 {
            sin6_family: libc::AF_INET6 as libc::sa_family_t,
            sin6_port: addr.port().to_be(),
            sin6_flowinfo: addr.flowinfo(),
            sin6_addr: libc::in6_addr { s6_addr: addr.ip().octets() },
            sin6_scope_id: addr.scope_id(),
        });
    }

    fn put<T>(&mut self, raw: T) {
        const { assert!(mem::size_of::<T>() <= mem::size_of::<sockaddr_storage>()) };
        const { assert!(mem::align_of::<T>() <= mem::align_of::<sockaddr_storage>()) };
        // SAFETY: the storage is large and aligned enough for `T`, one of the kernel's address types.
        unsafe { (&raw mut self.storage).cast::<T>().write(raw) };
        self.len = mem::size_of::<T>() as socklen_t;
    }

    /// The first `len` bytes of `storage`.
    ///
    /// # Safety
    /// They were written, as far as they lie in it.
    unsafe fn written(storage: &MaybeUninit<sockaddr_storage>, len: socklen_t) -> Name {
        let mut name = Name::none();
        let len = (len as usize).min(mem::size_of::<sockaddr_storage>());
        // SAFETY: between two storages of at least that size, and what is copied was written.
        unsafe { std::ptr::copy_nonoverlapping(storage.as_ptr().cast::<u8>(), (&raw mut name.storage).cast(), len) };
        name.len = len as socklen_t;
        name
    }

    /// The address, a mapped IPv4 one as IPv4; `None` if it is of another family or cut short.
    fn address(&self) -> Option<SocketAddr> {
        let len = self.len as usize;
        match c_int::from(self.storage.ss_family) {
            libc::AF_INET if len >= mem::size_of::<libc::sockaddr_in>() => {
                // SAFETY: the family says so, the length was checked, and every bit pattern is a value.
                let raw = unsafe { &*(&raw const self.storage).cast::<libc::sockaddr_in>() };
                let ip = Ipv4Addr::from(raw.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddrV4::new(ip, u16::from_be(raw.sin_port)).into())
            }
            libc::AF_INET6 if len >= mem::size_of::<libc::sockaddr_in6>() => {
                // SAFETY: as above.
                let raw = unsafe { &*(&raw const self.storage).cast::<libc::sockaddr_in6>() };
                let ip = Ipv6Addr::from(raw.sin6_addr.s6_addr);
                let port = u16::from_be(raw.sin6_port);
                Some(match ip.to_ipv4_mapped() {
                    Some(ip) => SocketAddrV4::new(ip, port).into(),
                    None => SocketAddrV6::new(ip, port, 0, raw.sin6_scope_id).into(),
                })
            }
            _ => None,
        }
    }
}

/// One arrival, as [`receive`] found it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Arrived {
    /// Bytes in the buffer.
    pub(crate) len: usize,
    /// GRO segment size in bytes; `len` if the kernel named none.
    pub(crate) stride: usize,
    /// `None` if the sender's address cannot be understood.
    pub(crate) from: Option<SocketAddr>,
    /// It was longer than its buffer.
    pub(crate) truncated: bool,
    /// The kernel's count of packets dropped on this socket so far, if it reported one.
    pub(crate) dropped: Option<u32>,
    /// The two bits of ECN.
    pub(crate) ecn: u8,
}

fn empty_header() -> msghdr {
    // SAFETY: msghdr is integers and pointers, for which zero is a value: no name, no data, no control.
    unsafe { mem::zeroed() }
}

/// Whether a call that failed with `error` only met an empty or full queue.
pub(crate) fn would_block(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

fn retry_interrupted(mut call: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        if let Ok(done) = usize::try_from(call()) {
            return Ok(done);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Takes up to one arrival for each of `buffers` (at most [`MAX_ARRIVALS`]), the first into the first; never blocks.
/// Returns how many. Given a `peer`, all are from it, and the kernel is not asked.
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    peer: Option<SocketAddr>,
    buffers: &mut [BufferMut],
    arrived: &mut [Arrived; MAX_ARRIVALS],
) -> io::Result<usize> {
    let count = buffers.len().min(MAX_ARRIVALS);
    let mut names = [const { MaybeUninit::<sockaddr_storage>::uninit() }; MAX_ARRIVALS];
    let mut controls = [const { MaybeUninit::<Control>::uninit() }; MAX_ARRIVALS];
    let mut parts = [const { MaybeUninit::<iovec>::uninit() }; MAX_ARRIVALS];
    let mut headers = [const { MaybeUninit::<mmsghdr>::uninit() }; MAX_ARRIVALS];
    // Only what is used is written: most calls are for one arrival, and find none.
    for (at, buffer) in buffers.iter_mut().enumerate().take(count) {
        let part = iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        let mut header = empty_header();
        if peer.is_none() {
            header.msg_name = names[at].as_mut_ptr().cast();
            header.msg_namelen = mem::size_of::<sockaddr_storage>() as socklen_t;
        }
        header.msg_iov = parts[at].write(part);
        header.msg_iovlen = 1;
        header.msg_control = controls[at].as_mut_ptr().cast();
        header.msg_controllen = mem::size_of::<Control>() as _;
        headers[at].write(mmsghdr { msg_hdr: header, msg_len: 0 });
    }
    // SAFETY: the first `count` headers were just written.
    let headers = unsafe { std::slice::from_raw_parts_mut(headers.as_mut_ptr().cast::<mmsghdr>(), count) };
    let got = retry_interrupted(|| {
        if let [header] = &mut *headers {
            // SAFETY: as below, for one header.
            let len = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header.msg_hdr, libc::MSG_DONTWAIT) };
            header.msg_len = u32::try_from(len).unwrap_or(0);
            return if len < 0 { len } else { 1 };
        }
        // SAFETY: `count` headers, each pointing at a name, one part and control room that live until after the
        // call; the parts are the buffers' own bytes, borrowed mutably, with their true lengths.
        let got = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                count as libc::c_uint,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        got as isize
    })?;
    for at in 0..got.min(count) {
        let header = &headers[at].msg_hdr;
        // SAFETY: the kernel wrote that many bytes, which may be none.
        let from = || unsafe { Name::written(&names[at], header.msg_namelen) }.address();
        let len = (headers[at].msg_len as usize).min(buffers[at].len());
        let Received { segment, dropped, class } = read_control(header);
        arrived[at] = Arrived {
            len,
            stride: segment.filter(|&segment| segment > 0 && segment < len).unwrap_or(len),
            from: peer.or_else(from),
            truncated: header.msg_flags & libc::MSG_TRUNC != 0,
            dropped,
            ecn: class & ECN_BITS,
        };
    }
    Ok(got)
}

/// The bits of explicit congestion notification in a traffic class (RFC 3168).
const ECN_BITS: u8 = 0b11;

/// The content of a received message's control messages.
#[derive(Default)]
struct Received {
    segment: Option<usize>,
    dropped: Option<u32>,
    class: u8,
}

/// Gives `take` the level, the kind and the data of each control message of a received message, in the kernel's order.
fn each_control(header: &msghdr, mut take: impl FnMut(c_int, c_int, &[u8])) {
    // SAFETY: `header` is as a receiving call left it, its control room still alive, `msg_controllen` the length written; the CMSG
    // functions stay inside that.
    let mut at: *const cmsghdr = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !at.is_null() {
        // SAFETY: inside the control room. The kernel states the length of what it wrote, also where the room was too short.
        let (level, kind, data) = unsafe {
            let message = &*at;
            let len = (message.cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize);
            (message.cmsg_level, message.cmsg_type, std::slice::from_raw_parts(libc::CMSG_DATA(at), len))
        };
        take(level, kind, data);
        // SAFETY: as above.
        at = unsafe { libc::CMSG_NXTHDR(header, at) };
    }
}

/// The 32-bit number with which the data of a control message begins.
fn number(data: &[u8]) -> Option<u32> {
    data.first_chunk().copied().map(u32::from_ne_bytes)
}

/// The GRO segment size, the drop count and the traffic class among a received message's control messages.
fn read_control(header: &msghdr) -> Received {
    let mut received = Received::default();
    each_control(header, |level, kind, data| match (level, kind) {
        (libc::SOL_UDP, libc::UDP_GRO) => {
            received.segment = number(data).and_then(|segment| usize::try_from(segment).ok());
        }
        (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => received.dropped = number(data),
        // One byte over IPv4, four over IPv6.
        (libc::IPPROTO_IP, libc::IP_TOS) => received.class = data.first().copied().unwrap_or(0),
        (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => received.class = number(data).unwrap_or(0) as u8,
        _ => {}
    });
    received
}

/// Takes one report off the socket's error queue (IP_RECVERR): the error's number, and where the datagram went that met it.
/// `None` when there is none; never blocks.
pub(crate) fn take_error(socket: BorrowedFd<'_>) -> Option<(c_int, SocketAddr)> {
    let mut name = Name::none();
    let mut control = Control([0; CONTROL_BYTES]);
    let mut header = empty_header();
    header.msg_name = (&raw mut name.storage).cast();
    header.msg_namelen = mem::size_of::<sockaddr_storage>() as socklen_t;
    header.msg_control = (&raw mut control).cast();
    header.msg_controllen = mem::size_of::<Control>() as _;
    retry_interrupted(|| {
        // SAFETY: name and control room outlive the call and have the lengths named; there is no data part to write to.
        unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT) }
    })
    .ok()?;
    name.len = header.msg_namelen;
    let mut error = 0;
    // The report is behind what the socket is to learn of each packet (IP_RECVTOS); it begins with the error's number.
    each_control(&header, |level, kind, data| {
        if matches!((level, kind), (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)) {
            error = number(data).map_or(0, u32::cast_signed);
        }
    });
    Some((error, name.address()?))
}

/// Takes one arrival off the socket and forgets it; never blocks.
pub(crate) fn discard(socket: BorrowedFd<'_>) -> io::Result<()> {
    retry_interrupted(|| {
        // SAFETY: a receive into no bytes writes nothing.
        unsafe { libc::recv(socket.as_raw_fd(), std::ptr::null_mut(), 0, libc::MSG_DONTWAIT) }
    })?;
    Ok(())
}

/// The control messages of what is sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    /// The length of the packets into which the kernel cuts it.
    pub(crate) segment: Option<u16>,
    /// The two bits of ECN, if they are not 0, and whether the packet goes over IPv6.
    pub(crate) ecn: Option<(u8, bool)>,
}

impl Options {
    /// Writes the control messages into `control`, and names them in `header`.
    fn write(self, control: &mut Control, header: &mut msghdr) {
        if self.segment.is_none() && self.ecn.is_none() {
            return;
        }
        header.msg_control = (&raw mut *control).cast::<c_void>();
        header.msg_controllen = mem::size_of::<Control>() as _;
        let mut used = 0;
        // SAFETY: the first control message begins the room just named, which is aligned and, for two messages of 4 bytes at most,
        // large enough. CMSG_NXTHDR reads the length that was written before it.
        unsafe {
            let mut message = libc::CMSG_FIRSTHDR(&raw const *header);
            if let Some(segment) = self.segment {
                (*message).cmsg_level = libc::SOL_UDP;
                (*message).cmsg_type = libc::UDP_SEGMENT;
                (*message).cmsg_len = libc::CMSG_LEN(2) as _;
                libc::CMSG_DATA(message).cast::<u16>().write_unaligned(segment);
                used += libc::CMSG_SPACE(2);
                message = libc::CMSG_NXTHDR(&raw const *header, message);
            }
            if let Some((bits, is_v6)) = self.ecn {
                let (level, kind) =
                    if is_v6 { (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) } else { (libc::IPPROTO_IP, libc::IP_TOS) };
                (*message).cmsg_level = level;
                (*message).cmsg_type = kind;
                (*message).cmsg_len = libc::CMSG_LEN(4) as _;
                libc::CMSG_DATA(message).cast::<c_int>().write_unaligned(c_int::from(bits));
                used += libc::CMSG_SPACE(4);
            }
        }
        header.msg_controllen = used as _;
    }
}

/// Sends one datagram, or with a segment one super-packet that the kernel cuts; never blocks. No `to` for a connected
/// socket.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    to: Option<&Name>,
    slices: &[IoSlice<'_>],
    options: Options,
) -> io::Result<()> {
    const FLAGS: c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    if let ([slice], None, None) = (slices, options.segment, options.ecn) {
        // The kernel then reads no header, slices and control messages from here.
        let (name, len) = to.map_or((std::ptr::null(), 0), |name| ((&raw const name.storage).cast(), name.len));
        retry_interrupted(|| {
            // SAFETY: name and slice outlive the call and have the lengths named; sendto writes to neither.
            unsafe { libc::sendto(socket.as_raw_fd(), slice.as_ptr().cast(), slice.len(), FLAGS, name, len) }
        })?;
        return Ok(());
    }
    let mut header = header_for(to, slices);
    let mut control = Control([0; CONTROL_BYTES]);
    options.write(&mut control, &mut header);
    retry_interrupted(|| {
        // SAFETY: name, slices and control outlive the call; sendmsg writes to none of them.
        unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const header, FLAGS) }
    })?;
    Ok(())
}

/// A header for sending: the kernel reads through its pointers and never writes, whatever their types say.
fn header_for(to: Option<&Name>, slices: &[IoSlice<'_>]) -> msghdr {
    let mut header = empty_header();
    if let Some(name) = to {
        header.msg_name = (&raw const name.storage).cast_mut().cast();
        header.msg_namelen = name.len;
    }
    // An IoSlice is an iovec in memory, as the standard library promises on Unix.
    header.msg_iov = slices.as_ptr().cast_mut().cast::<iovec>();
    header.msg_iovlen = slices.len() as _;
    header
}

/// Sends the packets one by one in one call, each joined from its run of `slices` (`ends` says where each run ends; at
/// most [`crate::MAX_SEGMENTS`]); never blocks. Returns how many went.
pub(crate) fn send_each(
    socket: BorrowedFd<'_>,
    to: Option<&Name>,
    slices: &[IoSlice<'_>],
    ends: &[usize],
    options: Options,
) -> io::Result<usize> {
    let mut headers = [mmsghdr { msg_hdr: empty_header(), msg_len: 0 }; crate::MAX_SEGMENTS];
    let count = ends.len().min(headers.len());
    let mut start = 0;
    let mut control = Control([0; CONTROL_BYTES]);
    for (header, &end) in headers.iter_mut().zip(ends) {
        header.msg_hdr = header_for(to, &slices[start..end]);
        // The same for all.
        options.write(&mut control, &mut header.msg_hdr);
        start = end;
    }
    retry_interrupted(|| {
        // SAFETY: `count` headers whose names, slices and control outlive the call; sendmmsg writes only their `msg_len`.
        let sent = unsafe {
            libc::sendmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                count as libc::c_uint,
                (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as _,
            )
        };
        sent as isize
    })
}

/// Sets an integer option of a socket.
pub(crate) fn set_option(socket: BorrowedFd<'_>, level: c_int, option: c_int, value: c_int) -> io::Result<()> {
    // SAFETY: passes one integer with its length.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            mem::size_of::<c_int>() as socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Waits until something in `epoll` is ready, or only looks; fills in and returns how many events. A signal ends the wait
/// with none.
pub(crate) fn epoll_wait(epoll: BorrowedFd<'_>, events: &mut [libc::epoll_event], sleeps: bool) -> io::Result<usize> {
    let count = c_int::try_from(events.len()).unwrap_or(c_int::MAX);
    let limit = if sleeps { -1 } else { 0 };
    // SAFETY: `count` events' room, which outlives the call.
    let got = unsafe { libc::epoll_wait(epoll.as_raw_fd(), events.as_mut_ptr(), count, limit) };
    match usize::try_from(got) {
        Ok(got) => Ok(got),
        Err(_) => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            error => Err(error),
        },
    }
}

/// Bytes that each arena of the allocator keeps free, takes at a time, and has at most in one piece: larger ones are the kernel's.
#[cfg(target_env = "gnu")]
const ALLOCATOR: [(c_int, c_int); 3] =
    [(libc::M_TRIM_THRESHOLD, 8 << 20), (libc::M_TOP_PAD, 512 << 10), (libc::M_MMAP_THRESHOLD, 4 << 20)];

/// Sets the allocator so; glibc's begins with 128 KiB, and changes it as it likes.
pub(crate) fn keep_freed_memory() {
    #[cfg(target_env = "gnu")]
    for (parameter, bytes) in ALLOCATOR {
        // SAFETY: passes two integers; the call takes the allocator's lock, and one that it refuses changes nothing.
        let _taken = unsafe { libc::mallopt(parameter, bytes) };
    }
}

/// Gives a thread of this process (0: this one) a share of the processor. As an ordinary one: a priority from -20 to 19, and how long
/// it goes on, in ns, while another waits that should go first; kernels before 6.12 take that and do not use it. Else it gets
/// what no ordinary one wants.
pub(crate) fn set_share(thread: i32, ordinary: Option<(i32, u64)>) -> io::Result<()> {
    let (nice, slice_ns) = ordinary.unwrap_or_default();
    let policy = if ordinary.is_some() { libc::SCHED_OTHER } else { libc::SCHED_IDLE };
    let attributes = libc::sched_attr {
        size: mem::size_of::<libc::sched_attr>() as u32,
        sched_policy: policy as u32,
        sched_flags: 0,
        sched_nice: nice,
        sched_priority: 0,
        sched_runtime: slice_ns,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the kernel reads `size` bytes of a struct that lives until after the call.
    let done = unsafe { libc::syscall(libc::SYS_sched_setattr, thread, &raw const attributes, 0) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The processor time that a thread of this process has had; `None` if it has ended.
pub(crate) fn processor_time(thread: i32) -> Option<Duration> {
    // A clock is named by its thread's number, inverted, and two for "of a thread" and "as the scheduler counts it" (Linux,
    // posix-timers.h).
    let clock = !thread << 3 | 4 | 2;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes to a struct that lives until after the call.
    let done = unsafe { libc::clock_gettime(clock, &raw mut time) };
    let is_known = done == 0;
    is_known.then(|| Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0)))
}
