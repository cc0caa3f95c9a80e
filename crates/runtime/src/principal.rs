//! The origin of a peer, by which the daemon's tables are shared out: no origin can take all of a table.

use crate::refusal::refuse;
use crossdock_transport::control::{Refusal, RefusalCode};
use crossdock_transport::secure::PublicKey;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// The origin of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Principal {
    /// The address of sessions over packets.
    Address(IpAddr),
    /// The key of secure sessions, where there are access rules.
    Key(PublicKey),
    /// The user of attached clients.
    User(u32),
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Principal::Address(address) => write!(f, "address {address}"),
            Principal::Key(key) => write!(f, "key {key}"),
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
    pub(crate) fn refuse_more(self, what: &str, bound: Bound) -> Refusal {
        let Bound { most, key, is_quota } = bound;
        let place = match is_quota {
            true => format!("its quota (`max_{what}` in its [[access]] section of the daemon's configuration)"),
            false => format!("the bound of one address or user (`{key}` in [context] of the daemon's configuration)"),
        };
        refuse(RefusalCode::Limit, format!("{self} has made {most} {what}, {place}"))
    }
}

/// A bound on what one origin may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    pub(crate) most: u32,
    /// The key of the configuration that sets it for all.
    key: &'static str,
    /// Whether it is the quota of the origin's own rule.
    is_quota: bool,
}

impl Bound {
    /// The bound that a key of the configuration sets for all.
    pub(crate) fn new(most: u32, key: &'static str) -> Bound {
        Bound { most, key, is_quota: false }
    }

    /// The same where the origin's rule has a quota.
    pub(crate) fn with_quota(self, quota: u32) -> Bound {
        Bound { most: quota, is_quota: true, ..self }
    }
}
