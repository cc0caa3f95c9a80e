//! The socket of a session over packets, whose packets are in envelopes if the session has keys.

use crate::settings::Keys;
use crossdock_device::{Device, DeviceCounters, Frame, SealedSender, Sent, UdpDevice};
use crossdock_mailbox::Pool;
use crossdock_transport::secure::envelope::Envelope;
use crossdock_transport::secure::{Code, Initiator, OVERHEAD_BYTES, RANDOM_BYTES};
use rustix::rand::{GetRandomFlags, getrandom};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

/// The longest packet that waits for keys, in bytes: a hello is shorter.
const HELD_BYTES: usize = 512;

/// The socket towards the daemon.
pub(super) struct SecureDevice {
    device: UdpDevice,
    peer: SocketAddr,
    keys: Option<Box<Secure>>,
    now_ns: u64,
    /// The daemon's refusal of a packet in no envelope.
    refused: Option<Code>,
}

struct Secure {
    initiator: Initiator,
    sender: SealedSender,
    /// The last packet that was to be sent before there were keys; it goes once there are.
    held: Option<Vec<u8>>,
    /// This side's public key.
    own: String,
}

impl SecureDevice {
    pub(super) fn new(device: UdpDevice, peer: SocketAddr, keys: Option<&Keys>, uses_mailboxes: bool) -> SecureDevice {
        let secure = |keys: &Keys| {
            Box::new(Secure {
                initiator: Initiator::new(keys.private.clone(), keys.daemon, uses_mailboxes),
                sender: SealedSender::new(OVERHEAD_BYTES),
                held: None,
                own: keys.private.public().to_string(),
            })
        };
        SecureDevice { device, peer, keys: keys.map(secure), now_ns: 0, refused: None }
    }

    /// Another session begins, with keys of its own.
    pub(super) fn forget(&mut self) {
        self.refused = None;
        if let Some(secure) = &mut self.keys {
            secure.initiator.forget();
            secure.held = None;
        }
    }

    /// The time for all that follows.
    pub(super) fn set_now(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// Sends what the handshake has to send now.
    ///
    /// # Errors
    /// The network's, or the system has no random bytes.
    pub(super) fn tick(&mut self) -> io::Result<()> {
        let SecureDevice { device, peer, keys, now_ns, .. } = self;
        let Some(Secure { initiator, sender, .. }) = keys.as_deref_mut() else { return Ok(()) };
        // If it is still full, the next packet or the next turn sends it.
        let _ = sender.flush(device);
        if initiator.should_begin(*now_ns) {
            let mut random = [0; RANDOM_BYTES];
            getrandom(&mut random[..], GetRandomFlags::empty())?;
            initiator.begin(*now_ns, random);
        }
        if let Some(packet) = initiator.poll(*now_ns) {
            // A full device loses it; it is repeated.
            let _ = device.send(*peer, &[IoSlice::new(packet)], packet.len())?;
        }
        Ok(())
    }

    /// When [`SecureDevice::tick`] has something to do by itself, in ns.
    pub(super) fn due_ns(&self) -> u64 {
        self.keys.as_ref().map_or(u64::MAX, |secure| secure.initiator.next_ns())
    }

    /// Why there is no session, as far as it is a matter of keys; and whether the daemon has said so.
    pub(super) fn refusal(&self) -> Option<(String, bool)> {
        let Some(Secure { initiator, own, .. }) = self.keys.as_deref() else {
            let why = "it takes packets from this network only in secure sessions: give this client a key of its own \
                       (`crossdock keygen`) and the daemon's public key";
            return self.refused.map(|_| (why.to_owned(), true));
        };
        Some(match initiator.refused() {
            Some(Code::UnknownKey) => {
                (format!("it has not authorised this client's key {own} (`crossdock keys add`)"), true)
            }
            Some(Code::Limit) => ("it has as many clients with keys as it takes".to_owned(), true),
            _ if initiator.has_keys() => return None,
            _ => (
                "no answer to the secure handshake (has it a key, and is its public key the one given here?)"
                    .to_owned(),
                false,
            ),
        })
    }

    /// Opens the envelopes of frames that have arrived; what is in none is left out.
    fn open(&mut self, frames: &mut Vec<Frame>, from: usize) -> io::Result<()> {
        let SecureDevice { device, peer, keys, now_ns, refused } = self;
        let Some(Secure { initiator, sender, held, .. }) = keys.as_deref_mut() else {
            for frame in &frames[from..] {
                if let Some(Envelope::Refusal { code, .. }) = frame.packets().next().and_then(Envelope::read) {
                    *refused = Some(code);
                }
            }
            return Ok(());
        };
        for frame in &mut frames[from..] {
            let heard = initiator.open_frame(&mut frame.buffer[..frame.len], frame.stride, *now_ns);
            (frame.len, frame.stride) = (heard.len, heard.stride.min(heard.len.max(1)));
            if let Some(packet) = held.take_if(|_| heard.has_keys) {
                let sealed =
                    sender.send(device, *peer, (&[IoSlice::new(&packet)], packet.len()), |part, stride, out| {
                        initiator.seal(part, stride, out, *now_ns).map(|sealed| sealed.bytes)
                    });
                // A full device loses it; it is repeated.
                let _ = sealed?;
            }
        }
        frames.retain(|frame| frame.len > 0);
        self.tick()
    }
}

impl Device for SecureDevice {
    fn local_addr(&self) -> SocketAddr {
        self.device.local_addr()
    }

    fn receive(&mut self, pool: &mut Pool, frames: &mut Vec<Frame>, max: usize) -> io::Result<usize> {
        let before = frames.len();
        let received = self.device.receive(pool, frames, max);
        let opened = self.open(frames, before);
        // An empty frame was something too: more may be there.
        received.and_then(|count| opened.map(|()| count))
    }

    fn send(&mut self, to: SocketAddr, slices: &[IoSlice<'_>], stride: usize) -> io::Result<Sent> {
        let SecureDevice { device, keys, now_ns, .. } = self;
        let Some(Secure { initiator, sender, held, .. }) = keys.as_deref_mut() else {
            return device.send(to, slices, stride);
        };
        if !initiator.has_keys() {
            // Only hellos are sent before there is a session.
            let packet = slices.iter().flat_map(|slice| slice.iter().copied());
            *held = Some(packet.take(HELD_BYTES).collect());
            self.tick()?;
            return Ok(Sent::Done);
        }
        sender.send(device, to, (slices, stride), |part, stride, out| {
            initiator.seal(part, stride, out, *now_ns).map(|sealed| sealed.bytes)
        })
    }

    fn packet_bytes(&self, to: SocketAddr) -> usize {
        let bytes = self.device.packet_bytes(to);
        if self.keys.is_some() { bytes.saturating_sub(OVERHEAD_BYTES) & !7 } else { bytes }
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.device.as_fd()
    }

    fn counters(&self) -> DeviceCounters {
        self.device.counters()
    }
}
