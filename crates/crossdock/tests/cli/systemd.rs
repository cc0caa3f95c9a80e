//! The daemon under systemd: passed sockets and notifications.

use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::process::Command;

use rustix::process::Signal;

use crate::place::{
    Daemon, PATIENCE, Sandbox, TRANSPORTS, argument, exchange, get, skip, with_io_contexts, word_after,
};

/// Opens sockets as systemd does, and becomes the program. Each of its first arguments is NAME|KIND|ADDRESS; the others are the
/// program and its arguments, behind `--`.
const PASS: &str = r#"
import fcntl, os, socket, sys
at = sys.argv.index("--")
opened = []
for text in sys.argv[1:at]:
    name, kind, address = text.split("|")
    family = socket.AF_UNIX if kind.startswith("unix") else socket.AF_INET
    types = {"dgram": socket.SOCK_DGRAM, "stream": socket.SOCK_STREAM, "seqpacket": socket.SOCK_SEQPACKET}
    made = socket.socket(family, types[kind.split("-")[1]])
    if family == socket.AF_UNIX:
        # A name without a file may be that of the UDP address before it.
        if address.startswith("@"):
            udp = "%s:%d" % opened[0][1].getsockname()
            address = "\0" + address[1:].replace("UDP", udp)
        made.bind(address)
    else:
        host, port = address.split(":")
        made.bind((host, int(port)))
    if not kind.endswith("dgram"):
        made.listen(16)
    opened.append((name, made))
moved = [fcntl.fcntl(made.fileno(), fcntl.F_DUPFD, 100) for _, made in opened]
for number, fd in enumerate(moved):
    os.dup2(fd, 3 + number)
    os.close(fd)
os.environ["LISTEN_FDS"] = str(len(opened))
os.environ["LISTEN_FDNAMES"] = ":".join(name for name, _ in opened)
os.environ["LISTEN_PID"] = str(os.getpid())
os.execv(sys.argv[at + 1], sys.argv[at + 1:])
"#;

/// The command with these sockets; none, with the reason printed, where there is no Python.
fn with_sockets(sockets: &[&str], command: &Command) -> Option<Command> {
    if !Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success()) {
        skip("sockets are passed by python3, which is not there");
        return None;
    }
    let mut passing = Command::new("python3");
    passing.args(["-c", PASS]).args(sockets).arg("--").arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => passing.env(name, value),
            None => passing.env_remove(name),
        };
    }
    passing.current_dir(command.get_current_dir().unwrap());
    Some(passing)
}

const CONFIG: &str = "[control]\nsocket = \"configured.sock\"\n[context]\nlisten = \"127.0.0.1:1\"\n";

#[test]
fn sockets_that_are_passed_are_used_and_stay() {
    let place = Sandbox::new();
    place.write("c.toml", with_io_contexts(CONFIG));
    let control = place.path("control.sock");
    let of_control = format!("control|unix-stream|{}", argument(&control));
    // The names are those of one socket unit, except for one; the purpose follows from the kind.
    let sockets = [
        "crossdock.socket|ip-dgram|127.0.0.1:0",
        &of_control,
        "x|unix-seqpacket|@crossdock-shm-UDP",
        "|ip-stream|127.0.0.1:0",
    ];
    let mut serve = place.command(["serve", "--config", "c.toml"]);
    serve.env_remove("CROSSDOCK_SOCKET");
    let Some(mut serve) = with_sockets(&sockets, &serve) else { return };
    let daemon = Daemon::start(&mut serve);
    assert!(daemon.address != "127.0.0.1:1" && daemon.line.contains(argument(&control)), "{}", daemon.line);
    assert!(daemon.line.contains(&format!("unix:@crossdock-shm-{}", daemon.address)), "{}", daemon.line);
    assert!(!place.path("configured.sock").exists());

    let mut http = TcpStream::connect(word_after(&daemon.line, "http=")).unwrap();
    let (status, health) = exchange(&mut http, &get("/v1/health"));
    assert_eq!((status, health["address"].as_str()), (200, Some(daemon.address.as_str())));

    place.write("a.csv", "n\n1\n2\n");
    for way in TRANSPORTS {
        let reach = |words: &[&str]| {
            let mut command = place.command(words);
            command.env("CROSSDOCK_ADDRESS", &daemon.address).env("CROSSDOCK_TRANSPORT", way);
            command.env("CROSSDOCK_SOCKET", &control);
            crate::place::Process::spawn(&mut command)
        };
        let subscriber = reach(&["subscribe", "SELECT * FROM A", "--wait", "--until-end"]);
        let deadline = std::time::Instant::now() + PATIENCE;
        while !reach(&["subscriptions", "--json"]).end().with_code(0).stdout.contains("SELECT") {
            assert!(std::time::Instant::now() < deadline, "the subscription did not come");
        }
        reach(&["publish", "A", "a.csv"]).end().with_code(0);
        assert_eq!(subscriber.end().with_code(0).stdout, "{\"n\":1}\n{\"n\":2}\n", "{way}");
    }
    daemon.process.signal(Signal::TERM);
    daemon.process.end().with_code(0).saying(&["goodbye"]);
    assert!(control.exists(), "the file belongs to the process that passed it");
}

#[test]
fn sockets_that_go_with_nothing_are_refused_with_the_reason() {
    let place = Sandbox::new();
    place.write("off.toml", "[attach]\nenabled = false\n");
    let stream = format!("|unix-stream|{}", argument(&place.path("s")));
    let wrong = format!("udp|unix-stream|{}", argument(&place.path("w")));
    let datagram = format!("udp|unix-dgram|{}", argument(&place.path("d")));
    let attach = format!("attach|unix-seqpacket|{}", argument(&place.path("a")));
    let udp = "udp|ip-dgram|127.0.0.1:0";
    for (sockets, arguments, said) in [
        (&[udp, udp][..], &[][..], ["`udp`", "another of its kind", "ListenDatagram=IP:PORT"]),
        (&[&wrong], &[], ["`udp`", "its kind is that of `control`", "ListenDatagram=IP:PORT"]),
        (&[&datagram], &[], ["`udp`", "the daemon does not use sockets of its kind", "ListenSequentialPacket="]),
        (&["http|ip-stream|0.0.0.0:0"], &[], ["0.0.0.0", "has no certificate for TLS", "127.0.0.1"]),
        (&[&attach], &["--config", "off.toml"], ["unix:/", "enabled = false", "take one of them out"]),
        (&[udp], &["--listen", "127.0.0.1:9"], ["127.0.0.1:", "--listen 127.0.0.1:9", "take one of them out"]),
        (&[&stream], &["--socket", "other.sock"], ["control socket", "--socket other.sock", "take one of them out"]),
    ] {
        for file in ["s", "w", "d", "a"] {
            let _ = std::fs::remove_file(place.path(file));
        }
        let mut serve = place.command([&["serve"], arguments].concat());
        serve.env_remove("CROSSDOCK_SOCKET");
        let Some(mut serve) = with_sockets(sockets, &serve) else { return };
        crate::place::Process::spawn(&mut serve).end().with_code(2).saying(&said);
    }
}

#[test]
fn sockets_for_another_process_are_left_alone() {
    let place = Sandbox::new();
    let mut serve = place.serve();
    serve.env("LISTEN_FDS", "1").env("LISTEN_PID", "1").env("LISTEN_FDNAMES", "udp");
    let daemon = Daemon::start(&mut serve);
    assert!(place.socket().exists(), "{}", daemon.line);
}

#[test]
fn systemd_is_notified_of_start_life_and_end() {
    let place = Sandbox::new();
    let path = place.path("notify.sock");
    let notify = UnixDatagram::bind(&path).unwrap();
    notify.set_read_timeout(Some(PATIENCE)).unwrap();
    let said = |wanted: &str| {
        let mut bytes = [0; 512];
        loop {
            let length = notify.recv(&mut bytes).unwrap_or_else(|error| panic!("{wanted} did not come: {error}"));
            let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
            if text.lines().any(|line| line == wanted) {
                return text;
            }
        }
    };
    let mut serve = place.serve();
    // The heartbeat is faster than usual then.
    serve.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "100000").env_remove("WATCHDOG_PID");
    let daemon = Daemon::start(&mut serve);
    let ready = said("READY=1");
    assert!(ready.contains(&format!("STATUS=serving on {}\n", daemon.address)), "{ready}");
    for _ in 0..3 {
        said("WATCHDOG=1");
    }
    daemon.process.signal(Signal::TERM);
    said("STOPPING=1");
    daemon.process.end().with_code(0).saying(&["goodbye"]);
}
