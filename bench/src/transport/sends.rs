//! The sending side of the transport benchmark.

use crate::cpu::Error;

/// The length of a message of a round trip: 8 bytes of its own length, 8 of its number, and more.
pub(super) const RTT_BYTES: usize = 64;

/// The sending side of a carrier.
pub(super) trait Sends {
    /// Sends a message and waits for its echo in `message`, polling.
    fn round_trip(&mut self, message: &mut [u8]) -> Result<(), Error>;
    /// Sends a message of that length with that number on its way, polling while there is no room for it.
    fn send(&mut self, bytes: usize, number: u64) -> Result<(), Error>;
    /// Waits until all messages have arrived; how many bytes the other side says it has.
    fn arrived(self: Box<Self>) -> Result<u64, Error>;
}

/// Writes a message's length, as a record begins, and its number.
pub(super) fn number(message: &mut [u8], number: u64) {
    let len = message.len() as u64;
    message[..8].copy_from_slice(&len.to_le_bytes());
    message[8..16].copy_from_slice(&number.to_le_bytes());
}
