//! What the builders have in common: where the daemon is, by which way to reach it, and how long to try.

use crate::error::Error;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

/// How an application and its daemon exchange messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Transport {
    /// By shared memory if the daemon is on this machine and lets this process attach, else by packets.
    #[default]
    Auto,
    /// By shared memory only.
    Shm,
    /// By packets only, also on this machine.
    Udp,
}

impl std::fmt::Display for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Transport::Auto => "auto",
            Transport::Shm => "shm",
            Transport::Udp => "udp",
        })
    }
}

impl std::str::FromStr for Transport {
    type Err = String;

    fn from_str(text: &str) -> Result<Transport, String> {
        match text {
            "auto" => Ok(Transport::Auto),
            "shm" => Ok(Transport::Shm),
            "udp" => Ok(Transport::Udp),
            other => Err(format!("unknown transport `{other}`: one of auto, shm, udp")),
        }
    }
}

/// How a link is set up.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) addr: String,
    pub(crate) transport: Transport,
    pub(crate) connect_timeout: Duration,
    pub(crate) reconnect: bool,
}

impl Settings {
    pub(crate) fn new(addr: impl Into<String>) -> Settings {
        Settings {
            addr: addr.into(),
            transport: Transport::Auto,
            connect_timeout: Duration::from_secs(3),
            reconnect: true,
        }
    }
}

/// The methods by which every builder changes its [`Settings`], which it keeps in a field `settings`.
macro_rules! setting_methods {
    () => {
        /// Shared memory or packets; [`Transport::Auto`](crate::Transport::Auto) unless set.
        #[must_use]
        pub fn transport(mut self, transport: $crate::Transport) -> Self {
            self.settings.transport = transport;
            self
        }

        /// Whether to come back when the daemon has gone; yes unless set.
        #[must_use]
        pub fn reconnect(mut self, reconnect: bool) -> Self {
            self.settings.reconnect = reconnect;
            self
        }

        /// How long to wait for the daemon's first answer; 3 s unless set.
        #[must_use]
        pub fn connect_timeout(mut self, timeout: std::time::Duration) -> Self {
            self.settings.connect_timeout = timeout;
            self
        }
    };
}
pub(crate) use setting_methods;

/// Where a daemon is to be found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Where it takes packets, if it may be spoken to by packets.
    pub(crate) packets: Option<SocketAddr>,
}

impl Place {
    /// What the settings' address stands for.
    ///
    /// # Errors
    /// It is none, its name is not known, or it cannot be reached by the transport asked for.
    pub(crate) fn of(settings: &Settings) -> Result<Place, Error> {
        let addr = &settings.addr;
        let wrong = |reason: &str| Error::Address { addr: addr.clone(), reason: reason.to_owned() };
        let plain = addr.strip_prefix("udp://").unwrap_or(addr);
        if plain.contains("://") {
            return Err(wrong("only udp:// is known"));
        }
        let mut found = plain.to_socket_addrs().map_err(|error| wrong(&error.to_string()))?;
        let packets = found.next().ok_or_else(|| wrong("the name stands for no address"))?;
        Ok(Place { packets: Some(packets) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transport_is_named_by_its_word() {
        for transport in [Transport::Auto, Transport::Shm, Transport::Udp] {
            assert_eq!(transport.to_string().parse(), Ok(transport));
        }
        assert!("tcp".parse::<Transport>().unwrap_err().contains("auto, shm, udp"));
    }
}
