//! Sequenced telemetry: readings that are worth something only while they are new.
//!
//! A reading is sent once, as a datagram. One that comes after a newer one is refused at its start, so it takes no memory; readings
//! that are missing are counted. No other protocol of a session does that: records are delivered all, and in order, and datagrams in
//! any order.
//!
//! The header: `T`, the version, the number of the source, a zero, and the sequence number (`u32`, lowest byte first).

use crossdock_nectarine::{ArrivedData, DataPlace, DeliveryClass, HeaderTemplate, Protocol, StartOfData};

/// The protocol's number, which both programs know.
pub(crate) const NUMBER: u16 = 17;
/// The longest reading, in bytes.
const MOST_BYTES: usize = 1024;
const HEADER_BYTES: usize = 8;
/// The first bytes of each header: the protocol and its version.
const MAGIC: [u8; 2] = [b'T', 1];

/// A receiver's counts of its source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The sequence number behind the newest reading's.
    pub(crate) end: u32,
    /// Readings that were delivered.
    pub(crate) delivered: u32,
    /// Readings that came too late.
    pub(crate) late: u32,
}

/// The function that gets readings with their sequence numbers.
type Upcall = Box<dyn FnMut(u32, &[u8]) + Send>;

/// One side of the protocol.
pub(crate) struct Telemetry {
    source: u8,
    next: u32,
    pub(crate) seen: Seen,
    upcall: Upcall,
}

impl Telemetry {
    /// The side of a source with that number; `upcall` gets the readings of the other side with their sequence numbers.
    pub(crate) fn new(source: u8, upcall: impl FnMut(u32, &[u8]) + Send + 'static) -> Telemetry {
        Telemetry { source, next: 0, seen: Seen::default(), upcall: Box::new(upcall) }
    }

    fn sequence(header: &[u8]) -> Option<u32> {
        let header: &[u8; HEADER_BYTES] = header.try_into().ok()?;
        let number = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
        header.starts_with(&MAGIC).then_some(number)
    }
}

impl Protocol for Telemetry {
    fn template(&self) -> HeaderTemplate {
        HeaderTemplate::new(DeliveryClass::Datagram, [MAGIC[0], MAGIC[1], self.source, 0, 0, 0, 0, 0])
    }

    fn complete(&mut self, header: &mut [u8], _: &[u8]) {
        header[4..HEADER_BYTES].copy_from_slice(&self.next.to_le_bytes());
        self.next = self.next.wrapping_add(1);
    }

    fn start_of_data(&mut self, start: &StartOfData<'_>) -> DataPlace {
        match Telemetry::sequence(start.header) {
            Some(number) if number >= self.seen.end && start.data_bytes <= MOST_BYTES => DataPlace::Upcall,
            Some(_) => {
                self.seen.late += 1;
                DataPlace::Refused
            }
            None => DataPlace::Refused,
        }
    }

    fn end_of_data(&mut self, start: &StartOfData<'_>, data: ArrivedData<'_>) {
        let Some(number) = Telemetry::sequence(start.header) else { return };
        self.seen.end = number.saturating_add(1);
        self.seen.delivered += 1;
        (self.upcall)(number, &data);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(number: u32) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        let mut sender = Telemetry::new(3, |_, _| {});
        header.copy_from_slice(&[b'T', 1, 3, 0, 0, 0, 0, 0]);
        sender.next = number;
        sender.complete(&mut header, b"");
        header
    }

    #[test]
    fn a_reading_behind_a_newer_one_is_refused_at_its_start() {
        let mut telemetry = Telemetry::new(1, |_, _| {});
        let mut taken = Vec::new();
        for number in [0, 1, 4, 2, 3, 4, 5] {
            let header = header(number);
            let start = StartOfData { header: &header, data_bytes: 1, now_ns: 0 };
            if matches!(telemetry.start_of_data(&start), DataPlace::Upcall) {
                telemetry.end_of_data(&start, ArrivedData::InPacket(b"x"));
                taken.push(number);
            }
        }
        assert_eq!(taken, [0, 1, 4, 5]);
        assert_eq!(telemetry.seen, Seen { end: 6, delivered: 4, late: 3 });
    }

    #[test]
    fn headers_of_others_and_long_readings_are_refused() {
        let mut telemetry = Telemetry::new(1, |_, _| {});
        let mut refused = |header: &[u8], data_bytes| {
            matches!(telemetry.start_of_data(&StartOfData { header, data_bytes, now_ns: 0 }), DataPlace::Refused)
        };
        assert!(refused(b"U\x01\x03\0\0\0\0\0", 1) && refused(b"T\x02\x03\0\0\0\0\0", 1) && refused(b"T\x01", 1));
        assert!(refused(&header(0), MOST_BYTES + 1) && !refused(&header(0), MOST_BYTES));
    }
}
