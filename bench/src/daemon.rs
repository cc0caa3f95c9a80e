//! The daemon as its own process, on a free port.

use crate::cpu::{self, Error};
use crate::process::Process;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A running daemon; it ends, and its files go, when this is dropped.
pub(crate) struct Daemon {
    process: Process,
    /// Where it receives, `host:port`.
    pub(crate) addr: String,
    /// Its control socket.
    pub(crate) socket: String,
    _files: Files,
}

/// The control socket and the configuration; they go when this is dropped, as the daemon is killed and removes nothing.
struct Files([PathBuf; 2]);

impl Drop for Files {
    fn drop(&mut self) {
        for path in &self.0 {
            let _gone = std::fs::remove_file(path);
        }
    }
}

impl Daemon {
    /// Starts it with the text of a configuration file.
    pub(crate) fn start(config: &str) -> Result<Daemon, Error> {
        static STARTED: AtomicU64 = AtomicU64::new(0);
        let (pid, number) = (std::process::id(), STARTED.fetch_add(1, Ordering::Relaxed));
        let file = |kind: &str| std::env::temp_dir().join(format!("crossdock-bench-{pid}-{number}.{kind}"));
        let files = Files([file("sock"), file("toml")]);
        let [socket, path] = &files.0;
        std::fs::write(path, config)?;
        let (socket, path) = (socket.to_string_lossy().into_owned(), path.to_string_lossy());
        let args = ["serve", "--listen", "127.0.0.1:0", "--socket", &socket, "--config", &path].map(str::to_owned);
        let (process, serving) = Process::daemon(&args)?;
        let addr = serving.split_once("address=").and_then(|(_, rest)| rest.split_whitespace().next());
        let addr = addr.ok_or_else(|| format!("the daemon did not say where it listens: {serving}"))?.to_owned();
        Ok(Daemon { process, addr, socket, _files: files })
    }

    /// The daemon's rows in one of the product's lists, as JSON; nothing where the list is empty.
    pub(crate) fn list(&self, what: &str) -> Result<Vec<Value>, Error> {
        let args = [what, "--json", "--socket", &self.socket].map(str::to_owned);
        Process::crossdock(&args)?.reports()
    }

    /// Waits until a subscription stands, by the product's own list.
    pub(crate) fn await_subscription(&self) -> Result<(), Error> {
        const TRIES: u32 = 500;
        for _ in 0..TRIES {
            if !self.list("subscriptions")?.is_empty() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err("the subscriber did not subscribe".into())
    }

    /// CPU time so far, in ns.
    pub(crate) fn cpu_ns(&self) -> Result<u64, Error> {
        cpu::process_ns(self.process.pid())
    }

    /// Memory at its largest, in bytes.
    pub(crate) fn peak_memory_bytes(&self) -> Result<u64, Error> {
        cpu::peak_memory_bytes(self.process.pid())
    }
}
