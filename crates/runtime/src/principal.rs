//! The origin of a peer, by which the daemon's tables are shared out: no origin can take all of a table.

use crate::refusal::refuse;
use crossdock_transport::control::{Refusal, RefusalCode};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// The origin of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Principal {
    /// The address of sessions over packets.
    Address(IpAddr),
    /// The user of attached clients.
    User(u32),
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Principal::Address(address) => write!(f, "address {address}"),
            Principal::User(uid) => write!(f, "user {uid}"),
        }
    }
}

impl Principal {
    /// The origin of packets from an address.
    pub(crate) fn of_address(addr: SocketAddr) -> Principal {
        Principal::Address(addr.ip().to_canonical())
    }

    /// Refuses one more of what this origin has as many of as it may.
    pub(crate) fn refuse_more(self, what: &str, bound: u32, key: &str) -> Refusal {
        let message = format!(
            "{self} has made {bound} {what}, the bound of one address or user (`{key}` in [context] of the daemon's configuration)"
        );
        refuse(RefusalCode::Limit, message)
    }
}
