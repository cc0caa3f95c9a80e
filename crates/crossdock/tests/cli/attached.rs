//! Processes that exchange messages with the daemon by shared memory: which are attached, which may be, what is left of them.

use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Resource, Rlimit, Signal, getgid, getrlimit, getuid, prlimit};
use serde_json::Value;

use crate::place::{Daemon, FLIGHTS_CSV, FLIGHTS_SCHEMA, Process, Sandbox, argument, io_count, skip, with_io_contexts};

const HEADER: &str = "carrier,flight,origin,dest,dep_delay,note\n";

/// A daemon that knows stream A, with these sections in its configuration.
fn with_sections(sections: &str) -> (Sandbox, Daemon) {
    Sandbox::with_configured_daemon(&format!("\n{sections}"))
}

fn uses(clients: &[Value], pid: u32) -> Option<&Value> {
    clients.iter().find(|client| client["pid"] == pid)
}

#[test]
fn on_this_machine_records_go_by_shared_memory_by_default() {
    let (place, _daemon) = Sandbox::with_daemon();
    let subscriber = place.spawn(["subscribe", "SELECT flight FROM A", "--until-end", "--wait"]);
    place.wait_for_subscriptions(1);
    let mut publisher = place.spawn_fed(["publish", "A", "--schema", "a.schema", "--linger", "1ms"]);
    publisher.feed(HEADER);
    place.wait_for("streams", |list| list[0]["publishers"] == 1);
    publisher.feed("UA,1,EWR,IAH,2,\n");
    subscriber.stdout_line(|line| line == "{\"flight\":1}");

    let clients = place.run(["clients", "--json"]).with_code(0).json();
    assert_eq!(clients.len(), 2, "{clients:?}");
    let one = uses(&clients, subscriber.pid()).unwrap();
    let other = uses(&clients, publisher.pid()).unwrap();
    for client in [one, other] {
        assert_eq!(client["process"], "crossdock");
        assert_eq!(client["uid"], getuid().as_raw());
        assert_eq!(client["gid"], getgid().as_raw());
        assert_eq!(client["quota_bytes"], 64 << 20);
        assert!(
            client["id"].is_u64() && client["attached_s"].is_u64() && client["huge_pages"].is_boolean(),
            "{client}"
        );
        assert!(client["bytes_held"].as_u64() <= Some(64 << 20), "{client}");
    }
    assert_eq!(one["domain"], other["domain"]);
    assert_eq!((&one["subscriptions"], one["publishes"].as_array().map(Vec::len)), (&1.into(), Some(0)));
    assert_eq!((&other["subscriptions"], &other["publishes"][0]), (&0.into(), &"A".into()));
    assert!(other["messages_in"].as_u64() > Some(0) && one["messages_out"].as_u64() > Some(0), "{clients:?}");
    let peer = place.list("subscriptions")[0]["peer"].clone();
    let called = format!("client {} (pid {} crossdock)", one["id"], subscriber.pid());
    assert_eq!(peer.as_str(), Some(called.as_str()));
    let context = &place.list("contexts")[0];
    assert_eq!(
        (&context["clients"], &context["max_clients"], &context["sessions"]),
        (&2.into(), &(1024 * io_count()).into(), &0.into())
    );

    publisher.end().with_code(0).saying(&["published 1 record (", ", by shared memory"]);
    subscriber.end().with_code(0).saying(&["1 record (", ", by shared memory"]);
    place.wait_for("clients", <[Value]>::is_empty);
    place.run(["clients"]).with_code(0).saying(&["no clients"]);
}

#[test]
fn a_client_that_requests_packets_is_not_attached() {
    let (place, _daemon) = Sandbox::with_daemon();
    let subscriber = place.spawn(["subscribe", "SELECT flight FROM A", "--until-end", "--wait", "--transport", "udp"]);
    place.wait_for_subscriptions(1);
    assert!(place.list("clients").is_empty());
    assert_eq!(place.list("contexts")[0]["sessions"], 1);
    place.write("flights.csv", FLIGHTS_CSV);
    // The one by packets and the other by shared memory: what is published is the same.
    let arguments = ["publish", "A", "flights.csv", "--schema", "a.schema", "--transport", "shm"];
    place.run(arguments).with_code(0).saying(&["published 4 records (", ", by shared memory"]);
    let received = subscriber.end().with_code(0).saying(&["4 records (", ", by UDP"]);
    assert_eq!(received.stdout.lines().count(), 4);
    let published = place.command(["publish", "A", "flights.csv", "--schema", "a.schema"]);
    let published = crate::place::Process::spawn({ published }.env("CROSSDOCK_TRANSPORT", "udp")).end();
    published.with_code(0).saying(&[", by UDP"]);
}

#[test]
fn an_attach_socket_of_ones_own_is_an_address() {
    let (place, daemon) = with_sections("[attach]\naddress = \"unix:attach.sock\"\n");
    let attach = place.path("attach.sock");
    assert!(attach.exists() && daemon.line.contains("attach=\"unix:attach.sock\""), "{}", daemon.line);
    place.write("flights.csv", FLIGHTS_CSV);
    let address = format!("unix:{}", argument(&attach));
    let subscriber = place.spawn(["subscribe", "SELECT flight FROM A", "--until-end", "--wait", "--address", &address]);
    place.wait_for_subscriptions(1);
    assert_eq!(place.list("clients")[0]["pid"], subscriber.pid());
    // The other's address gives no hint of where to attach, so it goes by packets.
    place.run(["publish", "A", "flights.csv", "--schema", "a.schema"]).with_code(0).saying(&[", by UDP"]);
    assert_eq!(subscriber.end().with_code(0).stdout.lines().count(), 4);
    let arguments = ["subscribe", "SELECT * FROM A", "--address", &address, "--transport", "udp"];
    place.run(arguments).with_code(2).saying(&[&address]);
    daemon.process.signal(Signal::INT);
    daemon.process.end().with_code(0);
    assert!(!attach.exists());
}

#[test]
fn where_nobody_can_be_attached_to_is_said_with_a_remedy() {
    let place = Sandbox::new();
    place.write("flights.csv", FLIGHTS_CSV);
    let shm = ["--transport", "shm"];
    let commands = [&["publish", "A", "flights.csv"][..], &["subscribe", "SELECT * FROM A"]];
    for command in commands {
        let ended = place.run(command.iter().chain(&shm)).with_code(1);
        let ended = ended.saying(&["unix:@crossdock-shm-127.0.0.1:", "[attach]", "`udp`"]);
        assert_eq!(ended.stdout, "");
    }
    for address in ["unix:@crossdock-nobody", "unix:nobody.sock"] {
        place.run(["subscribe", "SELECT * FROM A", "--address", address]).with_code(1).saying(&[address]);
    }
    place.run(["subscribe", "SELECT * FROM A", "--address", "unix:"]).with_code(2).saying(&["unix:PATH or unix:@NAME"]);
    place
        .run(["subscribe", "SELECT * FROM A", "--transport", "tcp"])
        .with_code(2)
        .saying(&["[possible values: auto, shm, udp]"]);
}

#[test]
fn a_daemon_that_lets_nobody_attach_is_reached_by_packets() {
    let (place, daemon) = with_sections("[attach]\nenabled = false\n");
    assert!(daemon.line.contains("attach=\"off\""), "{}", daemon.line);
    place.write("flights.csv", FLIGHTS_CSV);
    place.run(["publish", "A", "flights.csv", "--schema", "a.schema"]).with_code(0).saying(&[", by UDP"]);
    place.run(["subscribe", "SELECT * FROM A", "--transport", "shm"]).with_code(1).saying(&["[attach]"]);
}

#[test]
fn a_daemon_without_free_descriptors_reports_it_to_clients_and_in_its_events() {
    let (place, daemon) = Sandbox::with_daemon();
    place.write("flights.csv", FLIGHTS_CSV);
    let pid = daemon.process.pid();
    let of = Pid::from_raw(pid as i32);
    let allowed = getrlimit(Resource::Nofile).maximum;
    let limit = |files| prlimit(of, Resource::Nofile, Rlimit { current: files, maximum: allowed }).unwrap();
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count() as u64;
    let publish = ["publish", "A", "flights.csv", "--schema", "a.schema"];
    // None is free, and too few for a client.
    for free in [0, 3] {
        limit(Some(open + free));
        let ended = place.run(publish.iter().chain(&["--transport", "shm"])).with_code(1);
        ended.saying(&["limit of open files", "LimitNOFILE"]);
    }
    place.run(publish).with_code(0).saying(&[", by UDP", "limit of open files"]);
    limit(allowed);
    place.run(publish).with_code(0).saying(&[", by shared memory"]);
    let events = place.run(["events"]).with_code(0);
    assert_eq!(events.stdout.matches("attach_failed").count(), 1, "{}", events.stdout);
}

#[test]
fn a_client_that_may_not_attach_gets_the_reason_and_uses_packets() {
    let (place, _daemon) = with_sections("[attach]\nuids = [4294967294]\n");
    place.write("flights.csv", FLIGHTS_CSV);
    let said = [", by UDP", "more processor time than shared memory", "may not attach here"];
    place.run(["publish", "A", "flights.csv", "--schema", "a.schema"]).with_code(0).saying(&said);
    let subscriber = place.spawn(["subscribe", "SELECT * FROM A", "--until-end", "--wait"]);
    subscriber.stderr_line(|line| line.contains("may not attach here"));
    let user = getuid().as_raw().to_string();
    place.run(["subscribe", "SELECT * FROM A", "--transport", "shm"]).with_code(1).saying(&[&user, "uids"]);
}

/// A daemon of user `uid` that listens on a free port and whose attach socket has this address. `None`, with the reason
/// reported, where this process may not become another user.
fn of_another_user(uid: u32, attach: &str) -> Option<(Sandbox, Daemon)> {
    let mut place = Sandbox::new();
    place.write("flights.csv", FLIGHTS_CSV);
    place.write("a.schema", FLIGHTS_SCHEMA);
    let config = format!(
        "[[stream]]\nname = \"A\"\nschema = \"a.schema\"\n[context]\nlisten = \"127.0.0.1:0\"\n\
         [attach]\naddress = \"{attach}\"\nuids = \"any\"\n"
    );
    place.write("crossdock.toml", with_io_contexts(&config));
    if std::os::unix::fs::chown(place.path("."), Some(uid), Some(uid)).is_err() {
        skip("this process may not become another user");
        return None;
    }
    // By this name also a user can run it who may not enter the folders that lead to it.
    let binary = std::fs::File::open(env!("CARGO_BIN_EXE_crossdock")).unwrap();
    let mut command = Command::new(format!("/proc/self/fd/{}", binary.as_raw_fd()));
    command.args(["serve", "--config", "crossdock.toml"]).current_dir(place.path("."));
    command.env("CROSSDOCK_SOCKET", place.socket()).env_remove("CROSSDOCK_ADDRESS").stdin(Stdio::null());
    let daemon = Daemon::start(command.uid(uid).gid(uid));
    place.uses(&daemon.address);
    Some((place, daemon))
}

#[test]
fn a_process_of_another_user_that_took_the_attach_address_is_refused() {
    const NOBODY: u32 = 65_534;
    let publish = ["publish", "A", "flights.csv", "--schema", "a.schema", "--transport", "shm"];
    // A port that is the other user's, so its daemon is too.
    let Some((place, _daemon)) = of_another_user(NOBODY, "auto") else { return };
    place.run(publish).with_code(0).saying(&["published 4 records (", ", by shared memory"]);

    // A port that is nobody's, and one that is this user's.
    let own = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let bound = UdpSocket::bind("127.0.0.1:0").unwrap();
    for taken in [own, bound.local_addr().unwrap().to_string()] {
        let attach = format!("unix:@crossdock-shm-{taken}");
        let Some((mut place, _daemon)) = of_another_user(NOBODY, &attach) else { return };
        place.uses(&taken);
        let refused = place.run(publish).with_code(1);
        refused.saying(&["a process of user id 65534 answers", "not the daemon"]);
        // An address that was given by name is not checked.
        place.uses(&attach);
        place.run(publish).with_code(0).saying(&["published 4 records (", ", by shared memory"]);
    }
}

#[test]
fn one_client_more_than_there_may_be_is_answered_with_the_bound() {
    let (place, _daemon) = with_sections("[host]\nmax_clients = 1\n");
    // Each I/O context takes one.
    let attached: Vec<Process> = (1..=io_count())
        .map(|count| {
            let client = place.spawn(["subscribe", "SELECT * FROM A"]);
            place.wait_for_subscriptions(count);
            client
        })
        .collect();
    place.run(["subscribe", "SELECT * FROM A", "--transport", "shm"]).with_code(1).saying(&["max_clients", "[host]"]);
    let clients = place.list("clients");
    let is_there = |client: &Process| clients.iter().any(|there| there["pid"] == client.pid());
    assert!(attached.iter().all(is_there), "{clients:?}");
}

#[test]
fn a_client_that_is_killed_is_gone_at_once_with_all_it_held() {
    let (place, _daemon) = Sandbox::with_daemon();
    let survivor = place.spawn(["subscribe", "SELECT flight FROM A", "--until-end", "--wait"]);
    let victim = place.spawn(["subscribe", "SELECT * FROM A"]);
    place.wait_for_subscriptions(2);
    let mut publisher = place.spawn_fed(["publish", "A", "--schema", "a.schema"]);
    publisher.feed(HEADER);
    publisher.feed("UA,1,EWR,IAH,2,\n");
    victim.stdout_line(|line| line.contains("\"flight\":1"));
    // It holds what it cannot take while it is stopped.
    victim.signal(Signal::STOP);
    publisher.feed(&"UA,2,EWR,IAH,2,a note\n".repeat(1000));
    victim.signal(Signal::KILL);
    place.wait_for("clients", |clients| uses(clients, victim.pid()).is_none());
    place.wait_for_subscriptions(1);
    assert_eq!(place.list("contexts")[0]["clients"], 2);
    publisher.end().with_code(0).saying(&["published 1,001 records"]);
    assert_eq!(survivor.end().with_code(0).stdout.lines().count(), 1001);
    place.wait_for("clients", <[Value]>::is_empty);
}

/// The names of sockets without files that hold `part`, over all processes of this machine.
fn socket_names(part: &str) -> Vec<String> {
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
    sockets.lines().filter(|line| line.contains(part)).map(str::to_owned).collect()
}

fn names_in(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn nothing_is_left_of_a_daemon_and_its_clients() {
    for signal in [Signal::INT, Signal::KILL] {
        let (place, daemon) = Sandbox::with_daemon();
        let name = format!("@crossdock-shm-{}", daemon.address);
        assert!(daemon.line.contains(&format!("attach=\"unix:{name}\"")), "{}", daemon.line);
        let subscriber = place.spawn(["subscribe", "SELECT * FROM A"]);
        place.wait_for("clients", |clients| clients.len() == 1);
        assert!(!socket_names(&name).is_empty());
        daemon.process.signal(signal);
        daemon.process.end();
        subscriber.end().with_code(1).saying(&["error: "]);
        assert_eq!(socket_names(&name), [""; 0]);
        // A file by which the daemon is asked is all that one leaves behind that was killed, for the next to take over.
        let mut left = vec!["a.schema", "crossdock.sock", "crossdock.toml"];
        left.retain(|name| signal == Signal::KILL || *name != "crossdock.sock");
        assert_eq!(names_in(place.path(".").as_path()), left);
        let shared = names_in(Path::new("/dev/shm"));
        assert!(!shared.iter().any(|name| name.contains("crossdock")), "{shared:?}");
    }
}

#[test]
fn clients_come_back_to_a_daemon_that_was_restarted() {
    for signal in [Signal::TERM, Signal::KILL] {
        let (place, daemon) = Sandbox::with_daemon();
        let subscriber = place.spawn([
            "subscribe",
            "SELECT flight FROM A",
            "--reconnect",
            "--until-end",
            "--wait",
            "--transport",
            "shm",
        ]);
        place.wait_for_subscriptions(1);
        let mut publisher =
            place.spawn_fed(["publish", "A", "--schema", "a.schema", "--reconnect", "--transport", "shm"]);
        publisher.feed(HEADER);
        publisher.feed("UA,1,EWR,IAH,2,\n");
        subscriber.stdout_line(|line| line == "{\"flight\":1}");
        let address = daemon.address.clone();
        daemon.process.signal(signal);
        daemon.process.end();

        let _second = Daemon::start(&mut place.command(["serve", "--config", "crossdock.toml", "--listen", &address]));
        subscriber.stderr_line(|line| line.contains("is restored"));
        place.wait_for("streams", |list| list[0]["publishers"] == 1);
        place.wait_for("clients", |clients| {
            uses(clients, subscriber.pid()).is_some() && uses(clients, publisher.pid()).is_some()
        });
        place.wait_for_subscriptions(1);
        publisher.feed("UA,2,EWR,IAH,2,\n");
        publisher.end().with_code(0).saying(&[", by shared memory"]);
        // The records that the first daemon had not acknowledged may have been sent again.
        let received = subscriber.end().with_code(0).saying(&[", by shared memory"]).stdout;
        assert!(received.ends_with("{\"flight\":2}\n"), "{received}");
    }
}

#[test]
fn configured_mailboxes_and_tasks_are_there_from_the_start() {
    let sections = "[node]\nname = \"west\"\n\
                    [[mailbox]]\nname = \"requests\"\nbound_messages = 7\n\
                    [[mailbox]]\nname = \"replies\"\nimplementation = \"signal_queue\"\n\
                    [[task]]\ntask = \"echo\"\nmailbox = \"requests\"\narguments = { to = \"replies\" }\n";
    let (place, daemon) = with_sections(sections);
    assert!(daemon.line.contains("mailboxes=2 tasks=1"), "{}", daemon.line);
    let mailboxes = place.run(["mailboxes", "--json"]).with_code(0).json();
    let [replies, requests] = &mailboxes[..] else { panic!("{mailboxes:?}") };
    assert_eq!((&requests["address"], &requests["owner"]), (&"west/requests".into(), &"daemon".into()));
    assert_eq!((&requests["upcall"], &requests["bound_messages"]), (&"echo".into(), &7.into()));
    assert_eq!((&requests["implementation"], &replies["implementation"]), (&"rings".into(), &"signal_queue".into()));
    assert_eq!((&replies["upcall"], &replies["bound_messages"]), (&Value::Null, &1024.into()));
    for key in ["depth", "bytes", "bound_bytes", "waits", "puts", "gets", "readers", "writers"] {
        assert!(requests[key].is_u64(), "{key}: {requests}");
    }
    assert!(requests["dropped"].is_array());
    let table = place.run(["mailboxes"]).with_code(0).stdout;
    assert!(table.contains("west/requests") && table.contains("task echo") && table.contains("0 of 7"), "{table}");
}

#[test]
fn an_impossible_configuration_is_reported_at_the_start() {
    let place = Sandbox::new();
    let mailbox = "[[mailbox]]\nname = \"requests\"\n";
    for (sections, words) in [
        (
            format!("{mailbox}[[task]]\ntask = \"ecko\"\nmailbox = \"requests\"\n"),
            &["task `ecko`", "requests", "echo"][..],
        ),
        (format!("{mailbox}[[task]]\ntask = \"echo\"\nmailbox = \"requests\"\n"), &["task `echo`", "`to`"]),
        (
            format!("{mailbox}[host]\nmax_mailboxes = 1\n{}", mailbox.replace("requests", "more")),
            &["mailbox `more`", "max_mailboxes"],
        ),
    ] {
        place.write("bad.toml", with_io_contexts(&sections));
        let command = &mut place.command(["serve", "--config", "bad.toml", "--listen", "127.0.0.1:0"]);
        let process = Process::spawn(command);
        process.stderr_line(move |line| words.iter().all(|word| line.contains(word)));
        process.stderr_line(|line| line.contains("refused=1"));
        process.signal(Signal::INT);
        process.end().with_code(0);
    }
    for (sections, words) in [
        ("[attach]\nadress = \"auto\"\n", &["bad.toml:2:1", "did you mean `address`?"][..]),
        ("[services]\nfile = \"off\"\n", &["bad.toml:2:1", "did you mean `files`?"]),
    ] {
        place.write("bad.toml", sections);
        place.run(["serve", "--config", "bad.toml", "--listen", "127.0.0.1:0"]).with_code(2).saying(words);
    }
    place.write("a.schema", FLIGHTS_SCHEMA);
    for (sections, words) in [
        ("[services]\nfiles = \"nowhere\"\n", &["[services]", "nowhere"][..]),
        ("[attach]\naddress = \"unix:a.schema\"\n", &["unix:a.schema", "something else than a socket"]),
    ] {
        place.write("bad.toml", sections);
        place.run(["serve", "--config", "bad.toml", "--listen", "127.0.0.1:0"]).with_code(1).saying(words);
    }
    assert_eq!(names_in(place.path(".").as_path()), ["a.schema", "bad.toml"]);
}
