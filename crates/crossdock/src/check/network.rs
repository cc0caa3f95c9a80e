//! The UDP socket, its offload by the kernel, and the TCP address of the HTTP API.

use std::io::ErrorKind;
use std::net::SocketAddr;

use super::finding::{Finding, size};
use super::limits::CAP_NET_ADMIN;
use super::machine::{Machine, Offload, Tried};
use super::place;
use super::wanted::Wanted;

/// The file that keeps settings of the kernel. One with the name of the packaged file would hide that one.
pub(super) const SYSCTL_FILE: &str = "/etc/sysctl.d/70-crossdock-local.conf";

/// The value of an address that a program has.
const IN_USE: &str = "in use";

/// The findings.
pub(super) fn findings(machine: &Machine, wanted: &Wanted) -> Vec<Finding> {
    let listen = wanted.context.listen;
    let bytes = u64::from(wanted.context.socket_buffer_bytes);
    let may_exceed = machine.may(CAP_NET_ADMIN);
    let buffer = |name: &'static str, path| {
        let found = machine.setting(path).and_then(|text| text.parse().ok());
        socket_buffer(name, found, bytes, may_exceed)
    };
    let mut findings = vec![
        of_other_user(address("UDP address", listen, machine.udp.as_ref().err(), machine.running), machine, wanted),
        buffer("net.core.rmem_max", "/proc/sys/net/core/rmem_max"),
        buffer("net.core.wmem_max", "/proc/sys/net/core/wmem_max"),
        offload("UDP GSO", "4.18", wanted.context.gso, &machine.offload, |offload| offload.gso),
        offload("UDP GRO", "5.0", wanted.context.gso, &machine.offload, |offload| offload.gro),
    ];
    if !listen.ip().is_loopback() {
        findings.push(keys(wanted));
    }
    if let (Some(http), Some(tried)) = (wanted.http, &machine.http) {
        // The daemon with this UDP address has the HTTP address too.
        let running = machine.running.filter(|running| *running == listen).map(|_| http);
        findings.push(of_other_user(address("HTTP address", http, tried.as_ref().err(), running), machine, wanted));
        if !http.ip().is_loopback() {
            findings.push(certificate(wanted));
        }
    }
    findings
}

/// The keys of a daemon that is reached from beyond this machine.
fn keys(wanted: &Wanted) -> Finding {
    const WANTED: &str = "a key, or a trusted network";
    if !wanted.is_open {
        return Finding::ok("network keys", "set", WANTED);
    }
    Finding::ok("network keys", "none", WANTED)
        .problem(
            "the daemon does not start: set `key`, and authorise clients, or list networks as `trusted` ([security])",
        )
        .command("crossdock keygen --output daemon.key")
}

/// The certificate of an HTTP API that is reached from beyond this machine.
fn certificate(wanted: &Wanted) -> Finding {
    const WANTED: &str = "a certificate, or a trusted network";
    if !wanted.is_http_open {
        return Finding::ok("HTTP encryption", "set", WANTED);
    }
    Finding::ok("HTTP encryption", "none", WANTED).problem(
        "the daemon does not start: set `tls_cert` and `tls_key` ([control]), or list networks as `trusted` ([security])",
    )
}

fn socket_buffer(name: &'static str, found: Option<u64>, wanted: u64, may_exceed: bool) -> Finding {
    let Some(found) = found else {
        return Finding::unknown(name, wanted, format_args!("/proc/sys/{} cannot be read", name.replace('.', "/")));
    };
    let finding = Finding::ok(name, found, wanted);
    if found >= wanted || may_exceed {
        return finding;
    }
    finding
        .advice(format_args!(
            "the socket's buffer has {} instead of `socket_buffer_bytes`: bursts beyond it are lost and sent again",
            size(found)
        ))
        .command(format_args!("sudo sysctl -w {name}={wanted}"))
        .lasting(SYSCTL_FILE, format_args!("{name} = {wanted}"))
}

fn offload(
    name: &'static str,
    since: &str,
    is_wanted: bool,
    tried: &Tried<Offload>,
    has: impl Fn(&Offload) -> bool,
) -> Finding {
    if !is_wanted {
        return Finding::ok(name, "not tried", "off (`gso`)");
    }
    match tried {
        Ok(offload) if has(offload) => Finding::ok(name, "yes", "yes"),
        Ok(_) => Finding::ok(name, "no", "yes").advice(format_args!(
            "packets go through the kernel one by one; Linux {since} and later joins and cuts them"
        )),
        Err((_, why)) => Finding::unknown(name, "yes", format_args!("no UDP socket can be opened: {why}")),
    }
}

/// An address that is to be bound. `running` is that of a daemon which has it already.
fn address(
    name: &'static str,
    wanted: SocketAddr,
    error: Option<&(ErrorKind, String)>,
    running: Option<SocketAddr>,
) -> Finding {
    let Some((kind, why)) = error else { return Finding::ok(name, "free", wanted) };
    if *kind == ErrorKind::AddrInUse && running == Some(wanted) {
        return Finding::ok(name, "used by the daemon", wanted);
    }
    let (listing, flags) =
        if name.starts_with("UDP") { ("[context]: listen", "-lunp") } else { ("[control]: http", "-ltnp") };
    match kind {
        ErrorKind::AddrInUse => Finding::ok(name, IN_USE, wanted)
            .problem(format_args!("another program uses it; end that program, or set another address ({listing})"))
            .command(format_args!("sudo ss {flags} 'sport = :{}'", wanted.port())),
        ErrorKind::AddrNotAvailable => Finding::ok(name, "not here", wanted)
            .problem(format_args!("no interface of this machine has it; set one of those listed ({listing})"))
            .command("ip -brief address"),
        ErrorKind::PermissionDenied => Finding::ok(name, "refused", wanted)
            .problem(format_args!("ports below 1024 need CAP_NET_BIND_SERVICE; or choose another port"))
            .command("sudo setcap cap_net_bind_service=ep \"$(command -v crossdock)\""),
        _ => Finding::ok(name, "refused", wanted).problem(why),
    }
}

/// An address in use is most likely that of another user's daemon, where there is one.
fn of_other_user(finding: Finding, machine: &Machine, wanted: &Wanted) -> Finding {
    match machine.other_user() {
        Some(user) if finding.found == IN_USE => place::foreign_address(finding.item, finding.wanted, user, wanted),
        _ => finding,
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict;
    use super::*;

    #[test]
    fn buffers_are_advised_with_the_command_and_the_file() {
        for (found, may_exceed, verdict) in [
            (Some(212_992), false, Verdict::Advice),
            (Some(212_992), true, Verdict::Ok),
            (Some(4_194_304), false, Verdict::Ok),
            (None, false, Verdict::Unknown),
        ] {
            assert_eq!(socket_buffer("net.core.rmem_max", found, 4_194_304, may_exceed).verdict, verdict);
        }
        let finding = socket_buffer("net.core.rmem_max", Some(212_992), 4_194_304, false);
        assert_eq!(finding.command.as_deref(), Some("sudo sysctl -w net.core.rmem_max=4194304"));
        let lasting = "/etc/sysctl.d/70-crossdock-local.conf: net.core.rmem_max = 4194304";
        assert_eq!(finding.lasting.as_deref(), Some(lasting));
        assert!(finding.why.contains("208 KiB"), "{}", finding.why);
    }

    #[test]
    fn a_daemon_that_would_be_open_to_the_network_is_a_problem() {
        let verdict = |text: &str| {
            let config: crate::config::Config = toml::from_str(text).unwrap();
            keys(&Wanted::of(&config, std::path::Path::new(""))).verdict
        };
        let open = "[context]\nlisten = \"0.0.0.0:7440\"\n";
        assert_eq!(verdict(open), Verdict::Problem);
        for more in ["key = \"daemon.key\"", "trusted = [\"10.0.0.0/8\"]"] {
            assert_eq!(verdict(&format!("{open}[security]\n{more}\n")), Verdict::Ok, "{more}");
        }
        let of_http = |more: &str| {
            let text = format!("[control]\nhttp = \"0.0.0.0:7441\"\n{more}\n");
            let config: crate::config::Config = toml::from_str(&text).unwrap();
            certificate(&Wanted::of(&config, std::path::Path::new(""))).verdict
        };
        assert_eq!(of_http("[security]\nkey = \"daemon.key\""), Verdict::Problem);
        assert_eq!(of_http("tls_cert = \"a.pem\"\ntls_key = \"a.key\""), Verdict::Ok);
        assert_eq!(of_http("[security]\ntrusted = [\"10.0.0.0/8\"]"), Verdict::Ok);
    }

    #[test]
    fn an_address_in_use_is_a_problem_unless_the_daemon_has_it() {
        let wanted: SocketAddr = "127.0.0.1:7440".parse().unwrap();
        let other = "127.0.0.1:7450".parse().ok();
        let error = |kind| (kind, "why".to_owned());
        for (kind, running, verdict, command) in [
            (ErrorKind::AddrInUse, None, Verdict::Problem, Some("sudo ss -lunp 'sport = :7440'")),
            (ErrorKind::AddrInUse, other, Verdict::Problem, Some("sudo ss -lunp 'sport = :7440'")),
            (ErrorKind::AddrInUse, Some(wanted), Verdict::Ok, None),
            (ErrorKind::AddrNotAvailable, None, Verdict::Problem, Some("ip -brief address")),
            (ErrorKind::OutOfMemory, None, Verdict::Problem, None),
        ] {
            let finding = address("UDP address", wanted, Some(&error(kind)), running);
            assert_eq!((finding.verdict, finding.command.as_deref()), (verdict, command), "{kind:?}");
        }
        assert_eq!(address("UDP address", wanted, None, None).verdict, Verdict::Ok);
        let refused = address("HTTP address", wanted, Some(&error(ErrorKind::AddrInUse)), None);
        assert_eq!(refused.command.as_deref(), Some("sudo ss -ltnp 'sport = :7440'"));
    }

    #[test]
    fn offload_is_advised_where_it_is_wanted_and_absent() {
        let had = |gso, gro| Ok(Offload { gso, gro });
        let verdict = |wanted, tried| offload("UDP GSO", "4.18", wanted, &tried, |offload| offload.gso).verdict;
        assert_eq!(verdict(true, had(true, false)), Verdict::Ok);
        assert_eq!(verdict(true, had(false, true)), Verdict::Advice);
        assert_eq!(verdict(false, had(false, false)), Verdict::Ok);
        assert_eq!(verdict(true, Err((ErrorKind::PermissionDenied, "no".to_owned()))), Verdict::Unknown);
    }
}
