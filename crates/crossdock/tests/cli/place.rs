//! Where a test plays: a directory, perhaps a daemon in it, and processes that are ended with it.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Notes why a test cannot run here. With `CI` set it fails: there everything is installed.
pub(crate) fn skip(reason: &str) {
    assert!(std::env::var_os("CI").is_none(), "{reason}");
    eprintln!("skipped: {reason}");
}

/// Whatever has not happened after this long on a busy machine never will.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// How often a state is asked for.
const POLL: Duration = Duration::from_millis(10);

/// A few flights; the third has a null, the last a text that needs quotes.
pub(crate) const FLIGHTS_CSV: &str = "\
carrier,flight,origin,dest,dep_delay,note
UA,1545,EWR,IAH,2,
AA,1141,JFK,MIA,-5,late crew
B6,725,JFK,BQN,NA,cancelled
DL,120,JFK,LAX,21,\"fog, then rain\"
";

/// The schema of those.
pub(crate) const FLIGHTS_SCHEMA: &str = "\
carrier   char[2]
flight    i16
origin    char[3]
dest      char[3]
dep_delay i16 null  # minutes
note      string null
";

/// The ways by which commands reach a daemon.
pub(crate) const TRANSPORTS: [&str; 2] = ["shm", "udp"];

/// A directory, and the address and socket of a daemon, whether or not it runs.
pub(crate) struct Sandbox {
    directory: tempfile::TempDir,
    address: String,
    /// The way that its commands are to take; their default when absent.
    way: Option<&'static str>,
}

/// A configuration with the I/O contexts that `CROSSDOCK_TEST_IO_CONTEXTS` specifies, unless it has contexts of its own. With one,
/// it is unchanged. `cargo xtask test` runs all tests with one and with three.
pub(crate) fn with_io_contexts(config: &str) -> String {
    let has_own = config.lines().any(|line| line.starts_with("[[platform.context]]") || line.starts_with("[platform]"));
    match io_count() - 1 {
        0 => config.to_owned(),
        _ if has_own => config.to_owned(),
        further => {
            let io = "[[platform.context]]\nkind = \"c-core\"\nio = true\n".repeat(further);
            format!("[[platform.context]]\nkind = \"g-core\"\n{io}{config}")
        }
    }
}

/// The I/O contexts of the daemons of tests.
pub(crate) fn io_count() -> usize {
    std::env::var("CROSSDOCK_TEST_IO_CONTEXTS").ok().map_or(1, |count| count.parse().unwrap())
}

impl Sandbox {
    pub(crate) fn new() -> Sandbox {
        // A port that was free a moment ago and that nobody answers on.
        let port = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        Sandbox { directory: tempfile::tempdir().unwrap(), address: port.to_string(), way: None }
    }

    /// A place with a running daemon, which knows stream A with the fields of [`FLIGHTS_SCHEMA`].
    pub(crate) fn with_daemon() -> (Sandbox, Daemon) {
        Sandbox::with_configured_daemon("")
    }

    /// The same, with more lines for its `[context]`, or for sections behind that.
    pub(crate) fn with_configured_daemon(context: &str) -> (Sandbox, Daemon) {
        Sandbox::with_configured_daemon_and(context, |_| {})
    }

    /// The same with files that the configuration names.
    pub(crate) fn with_configured_daemon_and(context: &str, files: impl FnOnce(&Sandbox)) -> (Sandbox, Daemon) {
        let mut place = Sandbox::new();
        files(&place);
        place.write("a.schema", FLIGHTS_SCHEMA);
        let config =
            format!("[[stream]]\nname = \"A\"\nschema = \"a.schema\"\n[context]\nlisten = \"127.0.0.1:0\"\n{context}");
        let config = place.write("crossdock.toml", with_io_contexts(&config));
        let daemon = Daemon::start(place.command(["serve", "--config"]).arg(config));
        place.address.clone_from(&daemon.address);
        (place, daemon)
    }

    /// Its commands take this way from here on.
    pub(crate) fn by(mut self, way: &'static str) -> Sandbox {
        self.way = Some(way);
        self
    }

    /// Its commands use the daemon of this address from here on.
    pub(crate) fn uses(&mut self, address: &str) {
        address.clone_into(&mut self.address);
    }

    /// The address that its commands use.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path("crossdock.sock")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// `crossdock` with these arguments, in this directory, for this daemon.
    pub(crate) fn command<S: AsRef<std::ffi::OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_crossdock"));
        command.args(arguments).current_dir(self.directory.path());
        // A daemon listens where its configuration or options say: the variable would go before the configuration.
        match command.get_args().next().is_some_and(|first| first == "serve") {
            true => command.env_remove("CROSSDOCK_ADDRESS"),
            false => command.env("CROSSDOCK_ADDRESS", &self.address),
        };
        command.env("CROSSDOCK_SOCKET", self.socket());
        command.env_remove("CROSSDOCK_KEY").env_remove("CROSSDOCK_DAEMON_KEY");
        command.env_remove("CROSSDOCK_CONFIG").env_remove("CROSSDOCK_TRANSPORT").env_remove("COLUMNS");
        if let Some(way) = self.way {
            command.env("CROSSDOCK_TRANSPORT", way);
        }
        command.stdin(Stdio::null());
        command
    }

    /// `crossdock serve` without a configuration of the test's own, on a free port.
    pub(crate) fn serve(&self) -> Command {
        let mut command = self.command(["serve", "--listen", "127.0.0.1:0"]);
        let config = with_io_contexts("");
        if !config.is_empty() {
            command.arg("--config").arg(self.write("contexts.toml", config));
        }
        command
    }

    /// Runs it to its end.
    pub(crate) fn run<S: AsRef<std::ffi::OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Ended {
        Process::spawn(&mut self.command(arguments)).end()
    }

    /// Starts it.
    pub(crate) fn spawn<S: AsRef<std::ffi::OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Process {
        Process::spawn(&mut self.command(arguments))
    }

    /// Starts it with an open standard input.
    pub(crate) fn spawn_fed<S: AsRef<std::ffi::OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Process {
        Process::spawn(self.command(arguments).stdin(Stdio::piped()))
    }

    /// Starts it with its standard output in a file of this name.
    pub(crate) fn spawn_into<S: AsRef<std::ffi::OsStr>>(
        &self,
        file: &str,
        arguments: impl IntoIterator<Item = S>,
    ) -> Process {
        let file = std::fs::File::create(self.path(file)).unwrap();
        let mut child = self.command(arguments).stdout(file).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = Lines::of(child.stderr.take().unwrap());
        Process { child, stdin: None, stdout: Lines::of(std::io::empty()), stderr }
    }

    /// The answer's body to a request to the HTTP API, and its status.
    pub(crate) fn http(&self, request: &str) -> (u16, Value) {
        let mut stream = UnixStream::connect(self.socket()).unwrap();
        exchange(&mut stream, request)
    }

    /// The same, whatever the answer is.
    pub(crate) fn http_text(&self, request: &str) -> (u16, String) {
        let mut stream = UnixStream::connect(self.socket()).unwrap();
        exchange_text(&mut stream, request)
    }

    /// A list of the API, such as `streams`.
    pub(crate) fn list(&self, name: &str) -> Vec<Value> {
        let (status, mut body) = self.http(&get(&format!("/v1/{name}")));
        assert_eq!(status, 200, "{body}");
        body[name].as_array_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Waits until a list of the API is as wanted.
    pub(crate) fn wait_for(&self, name: &str, wanted: impl Fn(&[Value]) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let list = self.list(name);
            if wanted(&list) {
                return;
            }
            assert!(Instant::now() < deadline, "{name} stayed {list:?}");
            std::thread::sleep(POLL);
        }
    }

    /// Waits until this number of subscribers is there.
    pub(crate) fn wait_for_subscriptions(&self, number: usize) {
        self.wait_for("subscriptions", |list| list.len() == number);
    }
}

/// A request without a body.
pub(crate) fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
}

/// A request with a body.
pub(crate) fn post(path: &str, body: &str) -> String {
    with_body("POST", path, body)
}

/// A request of any method with a body.
pub(crate) fn with_body(method: &str, path: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

/// Sends a request, reads the answer to its end, which is JSON.
pub(crate) fn exchange(stream: &mut (impl Read + Write), request: &str) -> (u16, Value) {
    let (status, body) = exchange_text(stream, request);
    (status, serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body:?}")))
}

/// The same, whatever the answer is.
pub(crate) fn exchange_text(stream: &mut (impl Read + Write), request: &str) -> (u16, String) {
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    // A server that refuses a body closes while it is still being sent, which may reset the connection.
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}"));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
    (status, body.to_owned())
}

/// A daemon. Killed with the test, if it has not ended before.
pub(crate) struct Daemon {
    pub(crate) process: Process,
    pub(crate) address: String,
    /// The line that says what it serves.
    pub(crate) line: String,
}

impl Daemon {
    /// Starts it and waits until it serves.
    pub(crate) fn start(command: &mut Command) -> Daemon {
        let process = Process::spawn(command);
        let line = process.stderr_line(|line| line.contains(" serving "));
        let address = word_after(&line, "address=").to_owned();
        Daemon { process, address, line }
    }
}

/// The word that follows a key in a log line.
pub(crate) fn word_after<'a>(line: &'a str, key: &str) -> &'a str {
    let rest = line.split(key).nth(1).unwrap_or_else(|| panic!("no {key} in {line}"));
    rest.split(' ').next().unwrap_or_default().trim_matches('"')
}

/// A running process, its output gathered as it comes.
pub(crate) struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Lines,
    stderr: Lines,
}

/// The result of a process.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The exit status; none if a signal killed it.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Process {
    pub(crate) fn spawn(command: &mut Command) -> Process {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.take();
        let stdout = Lines::of(child.stdout.take().unwrap());
        let stderr = Lines::of(child.stderr.take().unwrap());
        Process { child, stdin, stdout, stderr }
    }

    /// Writes to its standard input.
    pub(crate) fn feed(&mut self, text: &str) {
        self.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// The first line of standard output, from here on, that is as wanted.
    pub(crate) fn stdout_line(&self, wanted: impl Fn(&str) -> bool) -> String {
        self.stdout.find(wanted)
    }

    /// The same for standard error.
    pub(crate) fn stderr_line(&self, wanted: impl Fn(&str) -> bool) -> String {
        self.stderr.find(wanted)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal. With one that stops it, this waits until each of its threads has stopped: a process takes such
    /// a signal when a thread of it is scheduled next, and its other threads run until then.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
        while signal == Signal::STOP && !self.is_stopped() {
            std::thread::yield_now();
        }
    }

    fn is_stopped(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
        threads.filter_map(Result::ok).all(|thread| {
            // A thread that has ended in the meantime has stopped as well.
            std::fs::read_to_string(thread.path().join("stat")).map_or(true, |stat| stat.contains(") T "))
        })
    }

    /// Closes its standard input and waits for its end; gives the lines that were not waited for before.
    pub(crate) fn end(mut self) -> Ended {
        self.stdin = None;
        self.end_by_itself()
    }

    /// Waits for its end, which is not for want of input.
    pub(crate) fn end_by_itself(mut self) -> Ended {
        let stdout = self.stdout.rest();
        let stderr = self.stderr.rest();
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "it closed its output and did not end");
            std::thread::sleep(POLL);
        };
        Ended { code: status.code(), stdout, stderr }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has ended already where the test went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The lines of an output, read by a thread so that a process never waits for its reader.
struct Lines(Receiver<String>);

impl Lines {
    fn of(output: impl Read + Send + 'static) -> Lines {
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                if line.map(|line| sender.send(line)).is_err() {
                    return;
                }
            }
        });
        Lines(receiver)
    }

    fn find(&self, wanted: impl Fn(&str) -> bool) -> String {
        let mut seen = Vec::new();
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.0.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) if wanted(&line) => return line,
                Ok(line) => seen.push(line),
                Err(_) => panic!("the line did not come; these did: {seen:#?}"),
            }
        }
    }

    fn rest(&self) -> String {
        let mut text = String::new();
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.0.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => text += &(line + "\n"),
                Err(RecvTimeoutError::Disconnected) => return text,
                Err(RecvTimeoutError::Timeout) => panic!("it does not end; it said: {text}"),
            }
        }
    }
}

impl Ended {
    /// Checks the exit status, and shows everything if it is another.
    #[track_caller]
    pub(crate) fn with_code(self, code: i32) -> Ended {
        assert_eq!(self.code, Some(code), "{}{}", self.stdout, self.stderr);
        self
    }

    /// Checks that standard error has all of these.
    #[track_caller]
    pub(crate) fn saying(self, texts: &[&str]) -> Ended {
        for text in texts {
            assert!(self.stderr.contains(text), "no `{text}` in {}", self.stderr);
        }
        self
    }

    /// Its standard output as JSON, an object a line.
    #[track_caller]
    pub(crate) fn json(&self) -> Vec<Value> {
        let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        self.stdout.lines().map(parse).collect()
    }
}

/// A text file packed with gzip.
pub(crate) fn gzip(text: &str) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packer.write_all(text.as_bytes()).unwrap();
    packer.finish().unwrap()
}

/// As an argument.
pub(crate) fn argument(path: &Path) -> &str {
    path.to_str().unwrap()
}
