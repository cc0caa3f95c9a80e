//! Super-packets that are sent in envelopes, which make each packet longer: one super-packet may become two.

use crate::{Device, MAX_SUPER_BYTES, Sent};
use std::io::{self, IoSlice};
use std::net::SocketAddr;

/// The memory for the envelopes of one super-packet, and what of them the device has not taken yet.
pub struct SealedSender {
    overhead_bytes: usize,
    sealed: Box<[u8]>,
    waiting: Option<Waiting>,
}

/// Envelopes that the device had no room for.
struct Waiting {
    to: SocketAddr,
    bytes: usize,
    stride: usize,
    /// ECN's bits.
    ecn: u8,
}

/// A part of a super-packet, slice by slice.
pub struct Part<'a> {
    slices: std::slice::Iter<'a, IoSlice<'a>>,
    skip: usize,
    left: usize,
}

impl<'a> Iterator for Part<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        while self.left > 0 {
            let slice: &'a [u8] = self.slices.next()?;
            let from = self.skip.min(slice.len());
            self.skip -= from;
            let part = &slice[from..];
            let part = &part[..part.len().min(self.left)];
            self.left -= part.len();
            if !part.is_empty() {
                return Some(part);
            }
        }
        None
    }
}

impl SealedSender {
    /// For envelopes that make a packet `overhead_bytes` longer.
    #[must_use]
    pub fn new(overhead_bytes: usize) -> SealedSender {
        SealedSender { overhead_bytes, sealed: vec![0; MAX_SUPER_BYTES].into(), waiting: None }
    }

    /// Makes envelopes `overhead_bytes` longer than their packets from now on.
    #[inline]
    pub fn set_overhead(&mut self, overhead_bytes: usize) {
        self.overhead_bytes = overhead_bytes;
    }

    /// Whether something waits that the device had no room for.
    #[inline]
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Sends what the device had no room for; whether there is room for it now.
    pub fn flush(&mut self, device: &mut dyn Device) -> Sent {
        if let Some(Waiting { to, bytes, stride, ecn }) = self.waiting {
            let others = device.ecn();
            device.set_ecn(ecn);
            let sent = device.send(to, &[IoSlice::new(&self.sealed[..bytes])], stride);
            device.set_ecn(others);
            // Refused by the network: as good as lost on the way.
            if let Ok(Sent::Full) = sent {
                return Sent::Full;
            }
            self.waiting = None;
        }
        Sent::Done
    }

    /// Sends a super-packet ([`Device::send`]) in envelopes: `seal` puts those of a part of it into memory, one behind the other, and
    /// returns their bytes. The rest of it that the device has no room for goes before the next one, or with
    /// [`SealedSender::flush`].
    ///
    /// # Errors
    /// Those of the device; `InvalidInput` if a packet is too long for an envelope, `Other` if `seal` returns nothing.
    pub fn send(
        &mut self,
        device: &mut dyn Device,
        to: SocketAddr,
        (slices, stride): (&[IoSlice<'_>], usize),
        mut seal: impl FnMut(Part<'_>, usize, &mut [u8]) -> Option<usize>,
    ) -> io::Result<Sent> {
        if self.flush(device) == Sent::Full {
            return Ok(Sent::Full);
        }
        let bytes: usize = slices.iter().map(|slice| slice.len()).sum();
        let stride = stride.clamp(1, bytes.max(1));
        let sealed_stride = stride.saturating_add(self.overhead_bytes);
        let part_bytes = MAX_SUPER_BYTES / sealed_stride * stride;
        if part_bytes == 0 {
            let why = format!("a packet of {stride} bytes is too long for an envelope");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        for skip in (0..bytes).step_by(part_bytes) {
            let part = Part { slices: slices.iter(), skip, left: part_bytes.min(bytes - skip) };
            let sealed = seal(part, stride, &mut self.sealed).filter(|bytes| *bytes > 0);
            let bytes = sealed.ok_or_else(|| io::Error::other("the packet cannot be sealed"))?;
            match device.send(to, &[IoSlice::new(&self.sealed[..bytes])], sealed_stride)? {
                Sent::Done => {}
                Sent::Full if skip == 0 => return Ok(Sent::Full),
                // Behind it may be a last packet at most, and as good as lost.
                Sent::Full => {
                    self.waiting = Some(Waiting { to, bytes, stride: sealed_stride, ecn: device.ecn() });
                    break;
                }
            }
        }
        Ok(Sent::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Frame, MemoryDevice, MemoryOptions};
    use crossdock_mailbox::{Pool, PoolConfig};

    /// Eight bytes in front of each packet.
    fn seal(part: Part<'_>, stride: usize, out: &mut [u8]) -> Option<usize> {
        let content: Vec<u8> = part.flatten().copied().collect();
        let sealed: Vec<u8> = content.chunks(stride).flat_map(|packet| [&[9; 8][..], packet].concat()).collect();
        out.get_mut(..sealed.len())?.copy_from_slice(&sealed);
        Some(sealed.len())
    }

    fn frames(device: &mut MemoryDevice) -> Vec<Frame> {
        let (mut pool, mut frames) = (Pool::new(PoolConfig::default()).unwrap(), Vec::new());
        device.receive(&mut pool, &mut frames, 64).unwrap();
        frames
    }

    fn receive(device: &mut MemoryDevice) -> Vec<(usize, Vec<u8>)> {
        let frames = frames(device);
        let open = |packet: &[u8]| {
            assert_eq!(packet[..8], [9; 8]);
            packet[8..].to_vec()
        };
        frames.iter().map(|frame| (frame.packets().len(), frame.packets().flat_map(open).collect())).collect()
    }

    #[test]
    fn a_super_packet_that_is_too_long_in_envelopes_goes_in_two() {
        let (mut near, mut far) = MemoryDevice::pair(MemoryOptions::default()).unwrap();
        let (mut sender, to) = (SealedSender::new(8), far.local_addr());
        let bytes: Vec<u8> = (0..65_480u32).map(|at| at as u8).collect();
        let slices = [&bytes[..5], &[], &bytes[5..40_000], &bytes[40_000..]].map(IoSlice::new);
        for (stride, packets) in [(1440, vec![45, 1]), (8184, vec![7, 2]), (65_480, vec![1]), (32_740, vec![2])] {
            assert_eq!(sender.send(&mut near, to, (&slices, stride), seal).unwrap(), Sent::Done);
            let got = receive(&mut far);
            assert_eq!(got.iter().map(|(packets, _)| *packets).collect::<Vec<_>>(), packets, "{stride}");
            assert_eq!(got.into_iter().flat_map(|(_, bytes)| bytes).collect::<Vec<u8>>(), bytes);
        }
        let long = vec![0; 65_504];
        let refused = sender.send(&mut near, to, (&[IoSlice::new(&long)], long.len()), seal).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        assert!(sender.send(&mut near, to, (&slices, 1440), |_, _, _| None).is_err());
    }

    #[test]
    fn the_rest_of_a_super_packet_goes_before_the_next_one() {
        let options = MemoryOptions { queue_bytes: 65_500, ..MemoryOptions::default() };
        let (mut near, mut far) = MemoryDevice::pair(options).unwrap();
        let (mut sender, to) = (SealedSender::new(8), far.local_addr());
        let (first, second) = (vec![1; 64_800], vec![2; 100]);
        near.set_ecn(2);
        assert_eq!(sender.send(&mut near, to, (&[IoSlice::new(&first)], 1440), seal).unwrap(), Sent::Done);
        let again = [IoSlice::new(&second)];
        assert_eq!(
            sender.send(&mut near, to, (&[IoSlice::new(&first)], 1440), seal).unwrap(),
            Sent::Full,
            "nothing fits"
        );
        receive(&mut far);
        let long = vec![3; 65_480];
        assert_eq!(sender.send(&mut near, to, (&[IoSlice::new(&long)], 1440), seal).unwrap(), Sent::Done);
        assert_eq!(sender.send(&mut near, to, (&again, 100), seal).unwrap(), Sent::Full, "the rest waits");
        assert!(sender.is_waiting() && sender.flush(&mut near) == Sent::Full);
        assert_eq!(receive(&mut far).len(), 1);
        near.set_ecn(0);
        assert!(sender.flush(&mut near) == Sent::Done && !sender.is_waiting());
        let rest = frames(&mut far);
        assert_eq!((rest.len(), rest[0].len, rest[0].ecn), (1, 688, 2), "it needs no other packet to go");
        assert_eq!(sender.send(&mut near, to, (&again, 100), seal).unwrap(), Sent::Done);
        let got = receive(&mut far);
        assert_eq!(got.iter().map(|(_, bytes)| bytes[0]).collect::<Vec<_>>(), [2]);
    }
}
