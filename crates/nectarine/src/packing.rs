//! Records of a publisher that wait for company.

use crate::link::{Link, MAX_PAYLOAD_BYTES};
use crate::outgoing::{Outgoing, PacketBuffer};
use crate::settings::DeliveryClass;
use crossdock_transport::SuperPacket;
use std::time::Duration;

/// Records that are being packed for a stream.
pub(crate) struct Packing {
    stream: u32,
    format: u64,
    class: DeliveryClass,
    linger_ns: u64,
    open: Option<SuperPacket<PacketBuffer>>,
    /// The session in which that was begun.
    session: u64,
    flush_ns: u64,
}

impl Packing {
    pub(crate) fn new(stream: u32, format: u64, class: DeliveryClass, linger: Duration) -> Packing {
        let linger_ns = u64::try_from(linger.as_nanos()).unwrap_or(u64::MAX);
        Packing { stream, format, class, linger_ns, open: None, session: 0, flush_ns: u64::MAX }
    }

    /// Packs a record; `false` when there is no room before the daemon takes some of what it was sent.
    #[inline]
    pub(crate) fn pack(&mut self, link: &mut Link, record: &[u8]) -> bool {
        if let Some(open) = &mut self.open
            && open.push(record)
        {
            return true;
        }
        self.pack_into_new(link, record)
    }

    #[cold]
    fn pack_into_new(&mut self, link: &mut Link, record: &[u8]) -> bool {
        self.flush(link);
        if record.len() > MAX_PAYLOAD_BYTES {
            return link.send_record(record, self.stream, self.format);
        }
        let Some(mut packet) = link.begin_packet() else { return false };
        let fits = packet.push(record);
        debug_assert!(fits, "an empty packet has room for a record that was checked");
        self.open = fits.then_some(packet);
        self.session = link.session();
        self.flush_ns = link.now_ns().saturating_add(self.linger_ns);
        fits
    }

    /// The packed records join the link's queue.
    pub(crate) fn flush(&mut self, link: &mut Link) {
        if let Some(packet) = self.open.take() {
            self.flush_ns = u64::MAX;
            let Packing { stream, format, .. } = *self;
            let unit = match self.class {
                DeliveryClass::Reliable => Outgoing::Records { packet, stream, format },
                DeliveryClass::Datagram => Outgoing::Datagrams { packet, stream, format },
            };
            link.end_packet(unit, self.session);
        }
    }

    /// When the linger of what is packed ends, in ns.
    #[inline]
    pub(crate) fn flush_ns(&self) -> u64 {
        self.flush_ns
    }
}
