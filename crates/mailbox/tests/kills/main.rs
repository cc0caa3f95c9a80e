//! The remains of a process that is killed or stopped, at every step of every operation and at any moment: nothing, and
//! nobody else has to wait.

#![cfg(not(any(loom, miri)))]
#![allow(clippy::unwrap_used)] // a test that fails may panic

mod bystander;
#[path = "../daemon/mod.rs"]
mod daemon;
mod friend;
mod victim;

use bystander::Bystander;
use crossdock_mailbox::failpoint::FAILPOINTS;
use crossdock_mailbox::host::HostConfig;
use daemon::agent::{self, start_process};
use daemon::{AHEAD, Core, Daemon, How, InUse};
use friend::Friend;
use rustix::fd::OwnedFd;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{
    Pid, PidfdFlags, PidfdGetfdFlags, Signal, WaitOptions, kill_process, pidfd_getfd, pidfd_open, waitpid,
};
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::sync::{Mutex, MutexGuard, PoisonError};
use victim::{BOUND, OWN};

/// The process that the other tests start; by itself it does nothing.
#[test]
fn a_process_of_its_own() {
    if let Some((address, said)) = agent::started() {
        victim::run(&address, &said);
    }
}

/// A daemon and a bystander, and what there was of all things when there was nobody else.
struct Scene {
    daemon: Daemon,
    bystander: Bystander,
    in_use: InUse,
    mailboxes: u32,
    traces: Traces,
    /// The tests count what this process holds, so only one may be at it.
    _alone: MutexGuard<'static, ()>,
}

/// The system's things that this process, which is the daemon's too, holds.
#[derive(Debug, PartialEq, Eq)]
struct Traces {
    descriptors: usize,
    mappings: usize,
}

impl Traces {
    fn now() -> Traces {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        Traces {
            descriptors: std::fs::read_dir("/proc/self/fd").unwrap().count(),
            mappings: maps.lines().filter(|line| line.contains("/memfd:")).count(),
        }
    }
}

/// The names of files that shared memory could have.
fn shared_files() -> Vec<std::ffi::OsString> {
    let mut names: Vec<_> = std::fs::read_dir("/dev/shm").unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

impl Scene {
    fn new() -> Scene {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let daemon = Daemon::new(HostConfig { direct_rings: true, ..HostConfig::default() }, 2);
        let bystander = Bystander::new(&daemon);
        bystander.moves(100);
        let (in_use, mailboxes, traces) =
            bystander.at_rest(|| (daemon.in_use(), daemon.ask(|core| core.host.mailbox_count()), Traces::now()));
        Scene { daemon, bystander, in_use, mailboxes, traces, _alone: alone }
    }

    /// Starts a victim in that domain, which dies at `failpoint` if one is given, and lets a friend of it wait at its mailboxes
    /// once they are there.
    fn start(&self, domain: usize, failpoint: Option<&str>) -> Victim<'_> {
        let mut friend = Friend::new(&self.daemon);
        let condition = friend.condition().to_string();
        let mut set = vec![(victim::SIGNALLED, &*condition)];
        set.extend(failpoint.map(|name| (victim::FAILPOINT, name)));
        let said = memfd_create("said", MemfdFlags::CLOEXEC).unwrap();
        rustix::io::pwrite(&said, &[0; 16], 0).unwrap();
        let process = start_process(&self.daemon.address(domain).to_string(), &set, said.try_clone().unwrap());
        let pid = process.id();
        self.daemon.ask(move |core| core.watch_process(pid));
        let last = OWN[OWN.len() - 1];
        let is_ready = move |core: &Core| core.mailbox(last).is_some() || core.dead.contains(&pid);
        self.daemon.until("the victim's mailboxes are there, or it is gone", is_ready);
        friend.wait_at_own();
        Victim { scene: self, friend, process, pid: Pid::from_raw(pid.cast_signed()).unwrap(), said }
    }

    /// The end: everyone is gone, and so is everything.
    fn end(self) {
        self.bystander.at_rest(|| {
            let (in_use, mailboxes) = (self.in_use, self.mailboxes);
            self.daemon.until("all is as it was", move |core| {
                (core.in_use(), core.host.mailbox_count(), core.host.attached()) == (in_use, mailboxes, 1)
            });
            self.daemon.ask(|core| {
                assert!(
                    !core.ended.iter().any(|ended| matches!(ended.how, How::ProtocolViolation(_))),
                    "{:?}",
                    core.ended
                );
                assert_eq!(core.host.counters().violations, 0);
            });
            assert_eq!(Traces::now(), self.traces);
        });
        self.bystander.end();
        self.daemon.until("nothing is in use", |core| core.in_use() == InUse::default());
        drop(self.daemon);
        assert_eq!(Traces::now().mappings, 0);
        assert!(shared_files().iter().all(|name| !name.to_string_lossy().contains("crossdock")));
    }
}

/// A process that is to be killed, and its friend.
struct Victim<'a> {
    scene: &'a Scene,
    friend: Friend,
    process: Child,
    pid: Pid,
    /// The puts that it reported.
    said: OwnedFd,
}

impl Victim<'_> {
    fn signal(&self, signal: Signal) {
        kill_process(self.pid, signal).unwrap();
    }

    /// Waits until `count` more of its messages have come.
    fn speaks(&mut self, count: u64) {
        let goal = self.friend.heard() + count;
        while self.friend.heard() < goal {
            assert!(self.process.try_wait().unwrap().is_none(), "it ended by itself");
            std::thread::yield_now();
        }
    }

    /// Stops it.
    fn stop(&self) {
        self.signal(Signal::STOP);
        let (_, status) = waitpid(Some(self.pid), WaitOptions::UNTRACED).unwrap().unwrap();
        assert!(status.stopped());
    }

    /// It is dead, or will be at once: the core finds out by itself, what it had is taken back, its waiters are
    /// notified, and the bystander saw nothing of it all. How the core found out, if it ever knew the victim.
    fn forgotten(mut self, was_attached: bool, what: &str) -> Option<How> {
        let status = self.process.wait().unwrap();
        assert_eq!(status.signal(), Some(Signal::KILL.as_raw()), "{what}: {status}");
        let (daemon, pid) = (&self.scene.daemon, self.process.id());
        if was_attached {
            let is_ended = move |core: &Core| core.ended.iter().any(|ended| ended.pid == pid);
            daemon.until("the core knows that its client is dead", is_ended);
        }
        let said = [0, 8].map(|at| {
            let mut word = [0; 8];
            assert_eq!(rustix::io::pread(&self.said, &mut word, at), Ok(8));
            u64::from_le_bytes(word)
        });
        self.friend.outlives(said);
        self.scene.bystander.moves(30);
        let (in_use, mailboxes) = (self.scene.in_use, self.scene.mailboxes);
        self.scene.bystander.at_rest(|| {
            daemon.until("all that the dead one and its friend had is back", move |core| {
                core.in_use() == in_use && core.host.mailbox_count() == mailboxes
            });
        });
        daemon.ask(move |core| core.ended.iter().rfind(|ended| ended.pid == pid).map(|ended| ended.how.clone()))
    }
}

#[test]
fn a_process_killed_at_any_step_of_any_operation_leaves_nothing() {
    let scene = Scene::new();
    for (at, &name) in FAILPOINTS.iter().enumerate() {
        if name.starts_with("direct.") {
            // See `tests/direct.rs`, which has them begin and end all the time.
            continue;
        }
        let happens_once = name.starts_with("attach.") || name.starts_with("session.");
        // While it begins, and in the middle of its work.
        let passes: &[usize] = if happens_once { &[1] } else { &[1, 12 + at % 7] };
        for pass in passes {
            let failpoint = format!("{name}:{pass}");
            let victim = scene.start((at + pass) % 2, Some(&failpoint));
            let was_attached = !["attach.before_connect", "attach.before_request"].contains(&name);
            let how = victim.forgotten(was_attached, &failpoint);
            assert!(!matches!(how, Some(How::ProtocolViolation(_))), "{failpoint}: {how:?}");
        }
    }
    scene.end();
}

#[test]
fn a_process_killed_at_any_moment_leaves_nothing() {
    let scene = Scene::new();
    let seed = std::env::var("CROSSDOCK_TEST_SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    eprintln!("CROSSDOCK_TEST_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for turn in 0..30 {
        let mut victim = scene.start(turn % 2, None);
        victim.speaks(random.u64(0..60));
        for _ in 0..random.u32(0..2000) {
            std::hint::spin_loop();
        }
        victim.signal(Signal::KILL);
        victim.forgotten(true, &format!("seed {seed}, turn {turn}"));
    }
    scene.end();
}

#[test]
fn a_stopped_process_blocks_nobody_and_goes_on_without_loss() {
    let scene = Scene::new();
    for domain in [0, 1] {
        let mut victim = scene.start(domain, None);
        for _ in 0..5 {
            victim.speaks(40);
            victim.stop();
            // Its friend's messages to it back up to the bound, and in rings by what was granted before that was reached.
            let depths = |core: &Core| ["in-rings", "in-queue"].map(|name| core.mailbox(name).unwrap().depth);
            scene.daemon.until("its mailboxes are full", move |core| depths(core).iter().all(|&depth| depth >= BOUND));
            scene.bystander.moves(300);
            let [rings, queue] = scene.daemon.ask(move |core| depths(core));
            assert!(rings < BOUND + AHEAD && queue == BOUND, "{rings}, {queue}");
            victim.signal(Signal::CONT);
        }
        victim.speaks(40);
        victim.stop();
        victim.signal(Signal::KILL);
        victim.forgotten(true, "stopped");
    }
    scene.end();
}

/// The socket does not hang up while anyone has it, so it is the end of the process that shows it.
#[test]
fn a_dead_process_whose_socket_somebody_keeps_is_known_to_be_dead() {
    let scene = Scene::new();
    let mut victim = scene.start(0, None);
    victim.speaks(10);
    let process = pidfd_open(victim.pid, PidfdFlags::empty()).unwrap();
    let mut kept: Vec<OwnedFd> = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{}/fd", victim.process.id())).unwrap() {
        let path = entry.unwrap().path();
        if std::fs::read_link(&path).is_ok_and(|to| to.to_string_lossy().starts_with("socket:")) {
            let number = path.file_name().unwrap().to_string_lossy().parse().unwrap();
            kept.push(pidfd_getfd(&process, number, PidfdGetfdFlags::empty()).unwrap());
        }
    }
    assert!(!kept.is_empty());
    victim.signal(Signal::KILL);
    assert_eq!(victim.forgotten(true, "with its socket kept"), Some(How::ProcessEnded));
    drop((kept, process));
    scene.end();
}
