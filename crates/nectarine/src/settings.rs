//! The settings that the builders have in common: where the daemon is, by which way to reach it, and how long to try.

use crate::error::Error;
use crate::route::NodeRoute;
use crate::trace::Trace;
use crossdock_mailbox::attach::{AttachAddr, candidates};
use crossdock_transport::secure::{AuthorizedKeys, PrivateKey, PublicKey};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

/// The callback when a stream is waited for.
#[derive(Clone)]
pub(crate) struct OnWait(pub(crate) Arc<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for OnWait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OnWait")
    }
}

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

/// The keys of secure sessions.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    /// This client's.
    pub(crate) private: PrivateKey,
    /// The daemon's.
    pub(crate) daemon: PublicKey,
}

/// The keys of a program that waits for another one.
#[derive(Clone, Debug)]
pub(crate) struct Clients {
    /// Its own.
    pub(crate) private: PrivateKey,
    /// Of those that may dial it.
    pub(crate) authorized: Arc<AuthorizedKeys>,
}

/// The delivery of records on their way to the daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DeliveryClass {
    /// Each arrives once and in order; a publisher waits while the daemon takes no more.
    #[default]
    Reliable,
    /// Each is sent once, and arrives once at most, in any order. A publisher never waits: what the path or the daemon has no room
    /// for is dropped and counted. By shared memory nothing is lost, and a publisher waits as with reliable records.
    Datagram,
}

impl std::fmt::Display for DeliveryClass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            DeliveryClass::Reliable => "reliable",
            DeliveryClass::Datagram => "datagram",
        })
    }
}

impl std::str::FromStr for DeliveryClass {
    type Err = String;

    fn from_str(text: &str) -> Result<DeliveryClass, String> {
        match text {
            "reliable" => Ok(DeliveryClass::Reliable),
            "datagram" => Ok(DeliveryClass::Datagram),
            other => Err(format!("unknown class `{other}`: one of reliable, datagram")),
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
    pub(crate) wait_for_daemon: bool,
    /// Whether it is for mailboxes and what comes with them, which says where in the daemon the session has to be.
    pub(crate) uses_mailboxes: bool,
    /// Whether records of subscriptions come as datagrams, where they come in packets.
    pub(crate) takes_datagrams: bool,
    /// Of secure sessions, if sessions over packets are to be.
    pub(crate) keys: Option<Keys>,
    /// The nodes that packets take, if they are not to go straight to the daemon.
    pub(crate) route: Option<NodeRoute>,
    /// The file that gets the sessions' events, if one does.
    pub(crate) trace: Option<Trace>,
    /// Its simulated device, if a simulation drives it.
    #[cfg(feature = "simulation")]
    pub(crate) simulated: Option<crate::SimulatedDevice>,
}

impl Settings {
    pub(crate) fn new(addr: impl Into<String>) -> Settings {
        Settings {
            addr: addr.into(),
            transport: Transport::Auto,
            connect_timeout: Duration::from_secs(3),
            reconnect: true,
            wait_for_daemon: false,
            uses_mailboxes: false,
            takes_datagrams: false,
            keys: None,
            route: None,
            trace: None,
            #[cfg(feature = "simulation")]
            simulated: None,
        }
    }
}

impl Settings {
    /// # Errors
    /// There can be no source route with them.
    fn check_route(&self) -> Result<(), Error> {
        let wrong = |why: &str| Err(Error::Route(why.to_owned()));
        if self.keys.is_none() {
            return wrong("takes keys: this client's own, and the public key of the first node's daemon");
        }
        if self.transport == Transport::Shm || self.addr.starts_with("unix:") {
            return wrong("goes by packets, and shared memory was requested");
        }
        Ok(())
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

        /// Has sessions over packets be secure: `private` is this client's key, which the daemon has to know, and `daemon` the
        /// daemon's public key. With them nothing is sent to a daemon that does not have that key, nor outside of envelopes.
        #[must_use]
        pub fn keys(mut self, private: $crate::PrivateKey, daemon: $crate::PublicKey) -> Self {
            self.settings.keys = Some($crate::settings::Keys { private, daemon });
            self
        }

        /// Has the session be with the last node of a route, whose first node is the daemon at the address. It takes `keys`, with the
        /// public key of that first node's daemon, and goes by packets.
        #[must_use]
        pub fn route(mut self, route: $crate::NodeRoute) -> Self {
            self.settings.route = Some(route);
            self
        }

        /// Has the session write its events to a trace. It goes by packets then, also on one machine;
        /// [`Transport::Shm`](crate::Transport::Shm) with it is an error.
        #[must_use]
        pub fn trace(mut self, trace: &$crate::Trace) -> Self {
            self.settings.trace = Some(trace.clone());
            self
        }

        /// Has sessions go over a simulated device, by packets; the caller drives what is made.
        #[cfg(feature = "simulation")]
        #[must_use]
        pub fn simulated(mut self, device: &$crate::SimulatedDevice) -> Self {
            self.settings.simulated = Some(device.clone());
            self.transport($crate::Transport::Udp)
        }

        /// Whether to come back when the daemon has gone; yes unless set.
        #[must_use]
        pub fn reconnect(mut self, reconnect: bool) -> Self {
            self.settings.reconnect = reconnect;
            self
        }

        /// Whether to wait, for as long as it takes, for a daemon that is not there when this connects; no unless set: then that is
        /// [`Error::NoDaemon`](crate::Error::NoDaemon), or the same with shared memory only.
        #[must_use]
        pub fn wait_for_daemon(mut self, wait: bool) -> Self {
            self.settings.wait_for_daemon = wait;
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
pub(crate) struct DaemonAddress {
    /// Where it can be attached to, if this process may share memory with it; the likeliest first.
    pub(crate) shared: Vec<AttachAddr>,
    /// The UDP port that these addresses follow from, if they were not given by name.
    pub(crate) port: Option<u16>,
    /// Where it takes packets, if it may be spoken to by packets.
    pub(crate) packets: Option<SocketAddr>,
}

impl DaemonAddress {
    /// The daemon of the settings' address.
    ///
    /// # Errors
    /// It is none, its name is not known, or it cannot be reached by the transport asked for.
    pub(crate) fn of(settings: &Settings) -> Result<DaemonAddress, Error> {
        let addr = &settings.addr;
        let wrong = |reason: &str| Error::Address { addr: addr.clone(), reason: reason.to_owned() };
        let is_traced = settings.trace.is_some();
        if settings.route.is_some() {
            settings.check_route()?;
        }
        if addr.starts_with("unix:") {
            if is_traced {
                return Err(wrong("a trace is of packets, and a daemon's address for packets is host:port"));
            }
            if settings.transport == Transport::Udp {
                return Err(wrong("a daemon's address for packets is host:port"));
            }
            let named = addr.parse().map_err(|reason: String| wrong(&reason))?;
            return Ok(DaemonAddress { shared: vec![named], port: None, packets: None });
        }
        let plain = addr.strip_prefix("udp://");
        let transport = match (plain, settings.transport) {
            (Some(_), Transport::Shm) => {
                return Err(wrong("udp:// means packets, and only shared memory was requested"));
            }
            (_, Transport::Shm) if is_traced => {
                return Err(wrong("a trace is of packets, and only shared memory was requested"));
            }
            (_, Transport::Auto) if is_traced || settings.route.is_some() => Transport::Udp,
            (Some(_), Transport::Auto) => Transport::Udp,
            (_, transport) => transport,
        };
        let plain = plain.unwrap_or(addr);
        if plain.contains("://") {
            return Err(wrong("the only known scheme is udp://"));
        }
        let found: Vec<SocketAddr> = plain.to_socket_addrs().map_err(|error| wrong(&error.to_string()))?.collect();
        let first = *found.first().ok_or_else(|| wrong("the name has no address"))?;
        let mut shared = Vec::new();
        if transport != Transport::Udp {
            // Of another machine's address, who listens under its name here is not its daemon.
            shared.extend(found.into_iter().filter(|addr| is_own(addr.ip())).flat_map(candidates));
        }
        let packets = (transport != Transport::Shm).then_some(first);
        Ok(DaemonAddress { shared, port: Some(first.port()), packets })
    }
}

/// Whether an address is this machine's: just those can be bound, and port 0 disturbs nobody.
fn is_own(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_ok()
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

    #[test]
    fn a_class_is_named_by_its_word() {
        for class in [DeliveryClass::Reliable, DeliveryClass::Datagram] {
            assert_eq!(class.to_string().parse(), Ok(class));
        }
        assert!("fast".parse::<DeliveryClass>().unwrap_err().contains("reliable, datagram"));
    }

    fn place(addr: &str, transport: Transport) -> Result<(Vec<String>, Option<String>), String> {
        let place =
            DaemonAddress::of(&Settings { transport, ..Settings::new(addr) }).map_err(|error| error.to_string())?;
        let shared = place.shared.iter().map(ToString::to_string).collect();
        Ok((shared, place.packets.map(|addr| addr.to_string())))
    }

    #[test]
    fn an_address_says_by_which_ways_a_daemon_is_reached() {
        let (shared, packets) = place("127.0.0.1:7440", Transport::Auto).unwrap();
        assert_eq!(shared.first().map(String::as_str), Some("unix:@crossdock-shm-127.0.0.1:7440"));
        assert_eq!(packets.as_deref(), Some("127.0.0.1:7440"));
        assert_eq!(place("127.0.0.1:7440", Transport::Shm), Ok((shared, None)));
        let by_packets = Ok((Vec::new(), Some("127.0.0.1:7440".to_owned())));
        assert_eq!(place("127.0.0.1:7440", Transport::Udp), by_packets);
        assert_eq!(place("udp://127.0.0.1:7440", Transport::Auto), by_packets);
        assert_eq!(place("unix:@here", Transport::Auto), Ok((vec!["unix:@here".to_owned()], None)));
        // TEST-NET-1: nobody's, so none of this machine's sockets is asked.
        assert_eq!(place("192.0.2.1:7440", Transport::Auto), Ok((Vec::new(), Some("192.0.2.1:7440".to_owned()))));
        assert_eq!(place("192.0.2.1:7440", Transport::Shm), Ok((Vec::new(), None)));
    }

    #[test]
    fn a_traced_session_goes_by_packets() {
        let trace = Trace::create("/dev/null", "a test", |_| {}).unwrap();
        let of = |addr: &str, transport| {
            DaemonAddress::of(&Settings { transport, trace: Some(trace.clone()), ..Settings::new(addr) })
        };
        for transport in [Transport::Auto, Transport::Udp] {
            let place = of("127.0.0.1:7440", transport).unwrap();
            assert!(place.shared.is_empty() && place.packets.is_some());
        }
        for (addr, transport) in [("127.0.0.1:7440", Transport::Shm), ("unix:@here", Transport::Auto)] {
            assert!(of(addr, transport).unwrap_err().to_string().contains("a trace is of packets"));
        }
    }

    #[test]
    fn impossible_addresses_are_refused_in_words() {
        for (addr, transport, words) in [
            ("unix:/run/crossdock.sock", Transport::Udp, "host:port"),
            ("unix:", Transport::Auto, "names nothing"),
            ("udp://127.0.0.1:1", Transport::Shm, "only shared memory"),
            ("tcp://127.0.0.1:1", Transport::Auto, "is udp://"),
            ("nowhere", Transport::Auto, "nowhere"),
        ] {
            let error = place(addr, transport).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
