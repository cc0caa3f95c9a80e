//! This test binary again, as another process that attaches: to be killed, stopped, or of another user.

use super::session::{Session, await_that, get, patience, payloads, put};
use crossdock_mailbox::client::Attachment;
use crossdock_runtime::ContextHandle;
use crossdock_transport::Request;
use crossdock_transport::control::{Implementation, Overflow};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdout, Command, Stdio};

/// Says in the environment that this process is a child, and what it does.
const ROLE: &str = "CROSSDOCK_TEST_CHILD";
/// The attach address.
const ADDRESS: &str = "CROSSDOCK_TEST_ADDRESS";

pub(crate) struct Child {
    process: std::process::Child,
    out: BufReader<ChildStdout>,
}

impl Child {
    /// Starts it, of another user if one is given, and waits until it has done what its role is to do first.
    pub(crate) fn start(role: &str, context: &ContextHandle, uid: Option<u32>) -> Child {
        // By this name also another user can run it who may not enter the folders that lead to it.
        let mut command = Command::new("/proc/self/exe");
        command.args(["--exact", "attached::child::acts_its_role", "--nocapture", "--test-threads=1"]);
        command.env(ROLE, role).env(ADDRESS, context.attach_addr().unwrap().to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some(uid) = uid {
            command.uid(uid).gid(uid).current_dir("/");
        }
        let mut process = command.spawn().unwrap();
        let out = BufReader::new(process.stdout.take().unwrap());
        let mut child = Child { process, out };
        assert_eq!(child.line(), "ready");
        child
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The next line that it says, those of the test harness apart.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.out.read_line(&mut line).unwrap() > 0, "the child ended");
            // The harness writes the name of the test in front of the first one.
            if let Some((_, said)) = line.trim_end().split_once("child: ") {
                return said.to_owned();
            }
        }
    }

    fn signal(&self, signal: &str) {
        let pid = self.pid().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// Stops it (SIGSTOP), and waits until it has.
    pub(crate) fn stop(&self) {
        self.signal("-STOP");
        let stat = format!("/proc/{}/stat", self.pid());
        await_that("a stopped process", || std::fs::read_to_string(&stat).unwrap().contains(") T "));
    }

    /// Kills it (SIGKILL).
    pub(crate) fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[expect(clippy::print_stdout, reason = "its parent reads it")]
fn say(what: &str) {
    println!("child: {what}");
}

/// Does nothing, unless this process was started as a child.
#[test]
fn acts_its_role() {
    let (Ok(role), Ok(address)) = (std::env::var(ROLE), std::env::var(ADDRESS)) else { return };
    let mut session = Session::over(Attachment::connect(&address.parse().unwrap()).unwrap());
    match role.as_str() {
        "holder" => hold(&mut session),
        "reader" => read(&mut session),
        "neighbour" => cross(&mut session),
        "sender" => send(&mut session),
        "circuit" => reserve(&mut session),
        other => panic!("{other}"),
    }
}

/// Lasts until it is killed, or its parent has ended.
fn last() {
    say("ready");
    let _ = std::io::stdin().read(&mut [0]);
}

/// Holds as much as it can of everything, in the middle of every operation.
fn hold(session: &mut Session) {
    session.announce(1, "held");
    session.subscribe(1, "SELECT * FROM N", Some(Overflow::DropOldest));
    session.subscribe(2, "SELECT * FROM N WHERE grp = 1", Some(Overflow::Block));
    session.create("of the child", Implementation::Rings);
    session.create("another of the child", Implementation::SignalQueue);
    session.task("echo", "of the child", &[("to", "another of the child")]);
    let mut writer = session.open_writer("of the child");
    for _ in 0..10 {
        put(&mut writer, &[1; 1000]).unwrap();
    }
    let mut puts = Vec::new();
    while let Ok(Some(put)) = writer.try_begin_put(1000) {
        puts.push(put);
    }
    let mut shared = session.open_reader("work");
    let got: Vec<_> = (0..5).map(|_| shared.begin_get(patience()).unwrap()).collect();
    let mut other = session.open_writer("other work");
    let large = other.begin_put(3 << 20, patience()).unwrap();
    let sync = session.attachment.alloc_sync().unwrap();
    last();
    drop((puts, got, large, sync));
}

/// Subscribes, and reads nothing.
fn read(session: &mut Session) {
    session.subscribe(1, "SELECT * FROM N", Some(Overflow::DropOldest));
    session.subscribe(2, "SELECT number FROM N", Some(Overflow::DropOldest));
    let _reader = session.open_reader("work");
    last();
}

/// Sends nine of ten records out of a mailbox to a stream, and holds the last one.
fn send(session: &mut Session) {
    session.announce(7, "N");
    session.create("of the child", Implementation::Rings);
    let (mut writer, mut reader) = (session.open_writer("of the child"), session.open_reader("of the child"));
    for (record, _) in payloads(0, 10, 0) {
        put(&mut writer, &record).unwrap();
    }
    let mut messages: Vec<_> = (0..10).map(|_| reader.begin_get(patience()).unwrap()).collect();
    let held = messages.pop();
    messages.into_iter().for_each(|message| reader.send(message, 7).unwrap());
    last();
    drop(held);
}

/// Has a circuit of all that there is for circuits.
fn reserve(session: &mut Session) {
    session.must(|id| Request::OpenCircuit { id, bytes: 1 << 20 });
    last();
}

/// In another domain: echoes by hand what comes, and sums up a stream.
fn cross(session: &mut Session) {
    let (mut requests, mut replies) = (session.open_reader("requests"), session.open_writer("replies"));
    let format = session.subscribe(1, "SELECT * FROM N", None);
    say("ready");
    for _ in 0..100 {
        put(&mut replies, &get(&mut requests)).unwrap();
    }
    // Moved without a copy in this domain, copied once into the other.
    let message = requests.begin_get(patience()).unwrap();
    session.create("aside", Implementation::Rings);
    session.task("echo", "aside", &[("to", "replies")]);
    let aside = session.open_number("aside");
    requests.enqueue(message, aside).unwrap();
    let (found, dropped) = session.collect(1, &format);
    say(&format!("{} {} {dropped}", found.len(), found.iter().sum::<u64>()));
    last();
}
