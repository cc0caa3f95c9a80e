//! The interface to systemd: sockets that it passes, and notifications of readiness, life and end. Without systemd all of
//! it does nothing.

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::Duration;

use crossdock_mailbox::attach::{AttachAddr, AttachListener};
use listenfd::ListenFd;
use rustix::net::sockopt::socket_acceptconn;
use rustix::net::{AddressFamily, SocketType};
use sd_notify::NotifyState;

use crate::cli::{Listen, Serve};
use crate::config::Config;
use crate::failure::{Failure, Outcome};

/// More sockets than there is any use for; a number beyond is a mistake.
const MAX_SOCKETS: usize = 16;

/// The sockets that systemd passed, each in place of one that is configured.
#[derive(Debug, Default)]
pub(crate) struct Passed {
    /// For the context to receive on.
    pub(crate) udp: Option<UdpSocket>,
    /// The control socket.
    pub(crate) control: Option<UnixListener>,
    /// The attach socket.
    pub(crate) attach: Option<AttachListener>,
    /// The HTTP API over TCP.
    pub(crate) http: Option<TcpListener>,
}

/// The purpose of a socket, which follows from its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Udp,
    Control,
    Attach,
    Http,
}

impl Purpose {
    const ALL: [Purpose; 4] = [Purpose::Udp, Purpose::Control, Purpose::Attach, Purpose::Http];

    /// The name that says so in `FileDescriptorName=`.
    fn name(self) -> &'static str {
        match self {
            Purpose::Udp => "udp",
            Purpose::Control => "control",
            Purpose::Attach => "attach",
            Purpose::Http => "http",
        }
    }

    /// The line of a socket unit that makes one.
    fn line(self) -> &'static str {
        match self {
            Purpose::Udp => "ListenDatagram=IP:PORT",
            Purpose::Control => "ListenStream=/PATH",
            Purpose::Attach => "ListenSequentialPacket=/PATH or @NAME",
            Purpose::Http => "ListenStream=IP:PORT",
        }
    }
}

impl Passed {
    /// Takes over the sockets that were passed to this process. Changes its environment, so it must be called while there is no
    /// other thread.
    pub(crate) fn take() -> Outcome<Passed> {
        let variable = |name| std::env::var(name).ok();
        let names = announced(
            variable("LISTEN_PID").as_deref(),
            variable("LISTEN_FDS").as_deref(),
            variable("LISTEN_FDNAMES").as_deref(),
            std::process::id(),
        )?;
        let mut passed = Passed::default();
        if names.is_empty() {
            return Ok(passed);
        }
        let mut sockets = ListenFd::from_env();
        for (at, name) in names.iter().enumerate() {
            let purpose = passed.take_one(&mut sockets, at, name)?;
            let named = Purpose::ALL.into_iter().find(|purpose| purpose.name() == name);
            if let Some(named) = named.filter(|named| *named != purpose) {
                return Err(refused(name, &format!("its kind is that of `{}`", purpose.name()))
                    .hint(format!("a socket unit with FileDescriptorName={name} has {}", named.line())));
            }
        }
        Ok(passed)
    }

    /// Takes the socket with a number over by its kind.
    fn take_one(&mut self, sockets: &mut ListenFd, at: usize, name: &str) -> Outcome<Purpose> {
        if let Ok(Some(udp)) = sockets.take_udp_socket(at) {
            return keep(&mut self.udp, udp, Purpose::Udp);
        }
        if let Ok(Some(tcp)) = sockets.take_tcp_listener(at) {
            return keep(&mut self.http, listening(tcp, name)?, Purpose::Http);
        }
        if let Ok(Some(unix)) = sockets.take_unix_listener(at) {
            return keep(&mut self.control, listening(unix, name)?, Purpose::Control);
        }
        let (family, kind) = (AddressFamily::UNIX.as_raw().into(), SocketType::SEQPACKET.as_raw());
        let kind = i32::try_from(kind).unwrap_or_default();
        let taken = sockets.take_custom::<OwnedFd>(at, family, kind, "socket");
        let Ok(Some(socket)) = taken else {
            let lines = Purpose::ALL.map(Purpose::line).join(", ");
            return Err(refused(name, "the daemon does not use sockets of its kind").hint(format!("it takes {lines}")));
        };
        let listener = AttachListener::over(socket).map_err(|error| refused(name, &error.to_string()))?;
        keep(&mut self.attach, listener, Purpose::Attach)
    }

    /// The UDP address.
    pub(crate) fn udp_addr(&self) -> Option<SocketAddr> {
        self.udp.as_ref()?.local_addr().ok()
    }

    /// The control socket's path, if it has one.
    pub(crate) fn control_path(&self) -> Option<PathBuf> {
        self.control.as_ref()?.local_addr().ok()?.as_pathname().map(PathBuf::from)
    }

    fn http_addr(&self) -> Option<SocketAddr> {
        self.http.as_ref()?.local_addr().ok()
    }

    fn attach_addr(&self) -> Option<&AttachAddr> {
        self.attach.as_ref().map(AttachListener::address)
    }

    /// Refuses sockets that contradict the command line or the configuration.
    pub(crate) fn check(&self, arguments: &Serve, config: &Config) -> Outcome {
        let differs = |what: &str, passed: &str, said: &str| {
            Failure::usage(format!("systemd passed the {what} {passed}, and {said} was requested"))
                .hint("take one of them out: the option, or the line of the socket unit")
        };
        if let (Some(passed), Some(Listen::Udp(said))) = (self.udp_addr(), &arguments.listen)
            && passed != *said
        {
            return Err(differs("UDP address", &passed.to_string(), &format!("--listen {said}")));
        }
        if let (Some(passed), Some(said)) = (self.control_path(), &arguments.socket)
            && passed != *said
        {
            let said = format!("--socket {}", said.display());
            return Err(differs("control socket", &passed.display().to_string(), &said));
        }
        if let Some(passed) = self.attach_addr()
            && !config.attach.enabled
        {
            return Err(differs("attach socket", &passed.to_string(), "`enabled = false` under [attach]"));
        }
        if self.control.is_some() && self.control_path().is_none() {
            return Err(
                refused("control", "it has no path").hint("let the socket unit listen on one: ListenStream=/PATH")
            );
        }
        Ok(())
    }

    /// Logs which configured addresses are not used, since the sockets were passed.
    pub(crate) fn log(&self, config: &Config) {
        let replaced = |what: &str, passed: Option<String>, configured: Option<String>| {
            if let (Some(passed), Some(configured)) = (passed, configured)
                && passed != configured
            {
                tracing::info!(passed, configured, "the {what} is the one that systemd passed");
            }
        };
        let text = |path: PathBuf| path.display().to_string();
        replaced("UDP address", self.udp_addr().map(|it| it.to_string()), Some(config.context.listen.to_string()));
        replaced("control socket", self.control_path().map(text), config.control.socket.clone().map(text));
        let attach = config.attach.address.as_ref().map(ToString::to_string);
        replaced("attach socket", self.attach_addr().map(ToString::to_string), attach);
        let http = config.control.http.map(|http| http.to_string());
        replaced("HTTP address", self.http_addr().map(|it| it.to_string()), http);
    }
}

/// The names of the sockets that are announced to the process with this number, in their order; empty ones where none is given.
fn announced(pid: Option<&str>, number: Option<&str>, names: Option<&str>, own: u32) -> Outcome<Vec<String>> {
    // Sockets for another process, such as the shell that started this one, stay untouched.
    let (Some(number), true) = (number, pid.and_then(|pid| pid.trim().parse().ok()) == Some(own)) else {
        return Ok(Vec::new());
    };
    let count = number.trim().parse().ok().filter(|count| *count <= MAX_SOCKETS).ok_or_else(|| {
        Failure::usage(format!("LISTEN_FDS={number} is not a number of sockets"))
            .hint(format!("systemd sets it to the number of sockets that it passes, {MAX_SOCKETS} at most here"))
    })?;
    let mut names: Vec<String> = names.unwrap_or_default().split(':').map(str::to_owned).collect();
    names.resize(count, String::new());
    Ok(names)
}

/// Keeps a socket for its purpose, which no other has.
fn keep<T>(place: &mut Option<T>, socket: T, purpose: Purpose) -> Outcome<Purpose> {
    if place.replace(socket).is_some() {
        let name = purpose.name();
        return Err(refused(name, "another of its kind came before it")
            .hint(format!("leave one {} in the socket units of the daemon", purpose.line())));
    }
    Ok(purpose)
}

/// A stream socket that connections can be taken from.
fn listening<T: AsFd>(socket: T, name: &str) -> Outcome<T> {
    match socket_acceptconn(&socket) {
        Ok(true) => Ok(socket),
        _ => Err(refused(name, "it does not listen").hint("set Accept=no in its socket unit")),
    }
}

fn refused(name: &str, why: &str) -> Failure {
    let name = if name.is_empty() { "without a name".to_owned() } else { format!("`{name}`") };
    Failure::usage(format!("the socket {name} that systemd passed cannot be used: {why}"))
}

/// Notifies systemd that the daemon serves at this address.
pub(crate) fn ready(address: SocketAddr) {
    notify(&[NotifyState::Ready, NotifyState::Status(&format!("serving on {address}"))]);
}

/// Notifies systemd that the daemon is about to end.
pub(crate) fn stopping() {
    notify(&[NotifyState::Stopping, NotifyState::Status("ending its sessions")]);
}

/// Notifies systemd that the daemon is alive, if a watchdog is set.
pub(crate) fn alive() {
    if sd_notify::watchdog_enabled().is_some() {
        notify(&[NotifyState::Watchdog]);
    }
}

/// How often to say [`alive`]: twice in the time that systemd waits for it, and no less often than `usual`.
pub(crate) fn heartbeat(usual: Duration) -> Duration {
    heartbeat_for(sd_notify::watchdog_enabled(), usual)
}

fn heartbeat_for(watchdog: Option<Duration>, usual: Duration) -> Duration {
    // Zero would make the loop spin.
    let half = watchdog.map(|watchdog| (watchdog / 2).max(Duration::from_millis(1)));
    half.map_or(usual, |half| half.min(usual))
}

fn notify(state: &[NotifyState<'_>]) {
    // A failed notification stops nothing: systemd has its own timeouts.
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "cannot notify systemd (NOTIFY_SOCKET)");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_taken_by_the_process_that_they_are_meant_for() {
        let names = |pid, number, names| announced(pid, number, names, 7).map_err(|failure| failure.text());
        assert_eq!(names(Some("7"), Some("2"), Some("udp:control")), Ok(vec!["udp".into(), "control".into()]));
        assert_eq!(names(Some("7"), Some("2"), Some("udp")), Ok(vec!["udp".into(), String::new()]));
        assert_eq!(names(Some("7"), Some("1"), Some("a:b")), Ok(vec!["a".into()]));
        assert_eq!(names(Some("7"), Some("1"), None), Ok(vec![String::new()]));
        for (pid, number) in [(Some("8"), Some("1")), (None, Some("1")), (Some(""), Some("1")), (Some("7"), None)] {
            assert_eq!(names(pid, number, None), Ok(vec![]), "{pid:?} {number:?}");
        }
        assert_eq!(names(Some("7"), Some("0"), Some("")), Ok(vec![]));
        for number in ["17", "-1", "many", "99999999999999999999"] {
            assert!(names(Some("7"), Some(number), None).is_err_and(|why| why.contains(number)));
        }
    }

    #[test]
    fn the_heartbeat_is_twice_as_fast_as_the_watchdog_waits() {
        let (usual, s) = (Duration::from_secs(5), Duration::from_secs);
        assert_eq!(heartbeat_for(None, usual), usual);
        assert_eq!(heartbeat_for(Some(s(60)), usual), usual);
        assert_eq!(heartbeat_for(Some(s(4)), usual), s(2));
        assert_eq!(heartbeat_for(Some(s(0)), usual), Duration::from_millis(1));
    }
}
