//! The peers of a context, and how messages reach them. [`carrier`] is the face that a session over packets
//! ([`packets`]) and an attached client ([`memory`]) share, [`sink`] the one way of a subscription's records to either,
//! [`peers`] the table of both. Imports point from the table down to the packets' memory; nothing here knows the
//! context.

pub(crate) mod carrier;
pub(crate) mod memory;
pub(crate) mod packets;
pub(crate) mod payload;
pub(crate) mod peers;
pub(crate) mod sides;
pub(crate) mod sink;
pub(crate) mod space;

#[cfg(test)]
mod tests;
