//! A client that follows commands, word by word: in a thread of this process or in a process of its own, so that a test of
//! mailboxes need not care where their ends are.

use super::LONG;
use super::client::{Client, soon};
use crossdock_mailbox::client::{Attachment, Message, Put, Reader, Wait, Writer};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::Instant;

/// Says to a process of its own where to attach; see [`start_process`].
const ADDRESS: &str = "CROSSDOCK_TEST_ADDRESS";

/// The test that is what a process of its own runs.
const PROCESS_TEST: &str = "a_process_of_its_own";

/// Starts this test binary again, in a process that has `input` as its standard input. There it runs test
/// `a_process_of_its_own`, which every test binary that does this has.
pub(crate) fn start_process(address: &str, set: &[(&str, &str)], input: OwnedFd) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([PROCESS_TEST, "--exact", "--nocapture", "--test-threads=1"]).env(ADDRESS, address);
    command.envs(set.iter().copied()).stdin(input).stdout(Stdio::null());
    command.spawn().unwrap()
}

/// In a process that was started so: where to attach, and its input. None in any other.
pub(crate) fn started() -> Option<(String, OwnedFd)> {
    let address = std::env::var(ADDRESS).ok()?;
    Some((address, std::io::stdin().as_fd().try_clone_to_owned().unwrap()))
}

/// Content of a message: distinguished by `seed`, and no two stretches of it alike.
pub(crate) fn fill(bytes: &mut [u8], seed: u64) {
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = (at as u64 * 7 + (at as u64 >> 8) + seed * 31) as u8;
    }
}

/// A reader's mark of bytes that it sees: their length, and a sum that is another one for other bytes.
pub(crate) fn mark(bytes: &[u8]) -> String {
    let sum = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    format!("{}:{sum:x}", bytes.len())
}

/// A reader's mark of the bytes `from..to` of a message of that content.
pub(crate) fn mark_of(seed: u64, from: usize, to: usize) -> String {
    let mut bytes = vec![0; to];
    fill(&mut bytes, seed);
    mark(&bytes[from..])
}

/// The agent, for the test's thread.
pub(crate) struct Agent {
    stream: BufReader<UnixStream>,
    process: Option<Child>,
    thread: Option<JoinHandle<()>>,
    is_killed: bool,
}

impl Agent {
    /// In a thread of this process.
    pub(crate) fn here(address: &str) -> Agent {
        let (stream, other) = UnixStream::pair().unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        let address = address.to_owned();
        let thread = std::thread::Builder::new().name("agent".to_owned());
        let thread = thread.spawn(move || serve(&address, other)).unwrap();
        Agent { stream: BufReader::new(stream), process: None, thread: Some(thread), is_killed: false }
    }

    /// In a process of its own.
    pub(crate) fn elsewhere(address: &str) -> Agent {
        Agent::with(address, &[])
    }

    /// In a process of its own that kills itself at a failpoint.
    pub(crate) fn doomed(address: &str, failpoint: &str) -> Agent {
        let mut agent = Agent::with(address, &[("CROSSDOCK_FAILPOINT", failpoint)]);
        agent.is_killed = true;
        agent
    }

    fn with(address: &str, set: &[(&str, &str)]) -> Agent {
        let (stream, other) = UnixStream::pair().unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        let process = start_process(address, set, other.into());
        Agent { stream: BufReader::new(stream), process: Some(process), thread: None, is_killed: false }
    }

    /// Ends it: with SIGKILL, if it is a process of its own.
    pub(crate) fn end(mut self) {
        if let Some(process) = &mut self.process {
            process.kill().unwrap();
            self.is_killed = true;
        }
    }

    /// Whether it has killed itself.
    pub(crate) fn is_dead(&mut self) -> bool {
        self.process.as_mut().unwrap().try_wait().unwrap().is_some()
    }

    /// The number of its process.
    pub(crate) fn pid(&self) -> u32 {
        self.process.as_ref().unwrap().id()
    }

    /// Gives an order; [`Agent::answer`] is what became of it.
    pub(crate) fn order(&mut self, order: &str) {
        writeln!(self.stream.get_mut(), "{order}").unwrap();
    }

    /// The answer to the last order.
    #[track_caller]
    pub(crate) fn answer(&mut self) -> Result<String, String> {
        let mut line = String::new();
        if let Err(error) = self.stream.read_line(&mut line) {
            panic!("an agent does not answer: {error}");
        }
        match line.trim_end_matches('\n').split_once(' ') {
            Some(("ok", said)) => Ok(said.to_owned()),
            Some(("no", why)) => Err(why.to_owned()),
            _ => panic!("an agent answers `{line}`"),
        }
    }

    /// Whether the last order is still being carried out.
    pub(crate) fn is_busy(&mut self) -> bool {
        self.stream.get_ref().set_nonblocking(true).unwrap();
        let arrived = self.stream.fill_buf().map(<[u8]>::len);
        self.stream.get_ref().set_nonblocking(false).unwrap();
        arrived.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    }

    /// Gives an order and waits for its outcome.
    #[track_caller]
    pub(crate) fn try_to(&mut self, order: &str) -> Result<String, String> {
        self.order(order);
        self.answer()
    }

    /// Gives an order that must succeed.
    #[track_caller]
    pub(crate) fn does(&mut self, order: &str) -> String {
        self.try_to(order).unwrap_or_else(|why| panic!("`{order}` failed: {why}"))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ended = self.stream.get_ref().shutdown(std::net::Shutdown::Both);
        // It may wait for what does not come.
        let has_failed = std::thread::panicking();
        if let Some(mut process) = self.process.take() {
            let _killed = has_failed.then(|| process.kill());
            let ended = process.wait().unwrap();
            assert!(ended.success() || self.is_killed || has_failed, "an agent failed");
        }
        if let Some(thread) = self.thread.take().filter(|_| !has_failed) {
            assert!(thread.join().is_ok(), "an agent failed");
        }
    }
}

/// Carries out orders until there are no more.
pub(crate) fn serve(address: &str, stream: UnixStream) {
    let mut hands = Hands {
        client: Client::attach(&address.parse().unwrap()),
        writers: HashMap::new(),
        readers: HashMap::new(),
        puts: HashMap::new(),
        messages: HashMap::new(),
    };
    let mut answers = stream.try_clone().unwrap();
    for order in BufReader::new(stream).lines().map_while(Result::ok) {
        let outcome = hands.obey(&order).map_or_else(|why| format!("no {why}"), |said| format!("ok {said}"));
        if writeln!(answers, "{outcome}").is_err() {
            return;
        }
    }
}

/// The sides and messages that an agent has in its hands: sides of mailboxes by the mailbox's name, puts and messages
/// by a number.
struct Hands {
    client: Client,
    writers: HashMap<String, (Writer, u16)>,
    readers: HashMap<String, (Reader, u16)>,
    puts: HashMap<u32, Put>,
    messages: HashMap<u32, Message>,
}

fn number<T: std::str::FromStr>(word: &str) -> T {
    word.parse().unwrap_or_else(|_| panic!("`{word}` is no number"))
}

fn wait(word: &str) -> Wait {
    match word {
        "block" => Wait::Block,
        "poll" => Wait::Poll,
        "now" => Wait::Until(Instant::now()),
        _ => panic!("wait `{word}`"),
    }
}

impl Hands {
    /// Carries out one order. An error is a [`crossdock_mailbox::client::MailboxError`] as it is debugged, or what the core
    /// said.
    fn obey(&mut self, order: &str) -> Result<String, String> {
        let words: Vec<&str> = order.split(' ').collect();
        match words[0] {
            "write" | "read" | "close-writer" | "close-reader" | "create" => self.obey_open(&words),
            "begin-put" | "try-put" | "fill" | "cut-put" | "end-put" | "move-put" | "put" | "put-many" | "pour" => {
                self.obey_put(&words)
            }
            _ => self.obey_get(&words),
        }
    }

    fn obey_open(&mut self, words: &[&str]) -> Result<String, String> {
        match *words {
            ["write", name] => {
                let writer = self.client.writer(name)?;
                self.writers.insert(name.to_owned(), writer);
            }
            ["read", name] => {
                let reader = self.client.reader(name)?;
                self.readers.insert(name.to_owned(), reader);
            }
            ["close-writer", name] => {
                let (writer, number) = self.writers.remove(name).unwrap();
                drop(writer);
                self.client.close(number);
            }
            ["close-reader", name] => {
                let (reader, number) = self.readers.remove(name).unwrap();
                drop(reader);
                self.client.close(number);
            }
            _ => return self.client.ask(&words.join(" ")),
        }
        Ok(String::new())
    }

    fn obey_put(&mut self, words: &[&str]) -> Result<String, String> {
        let reported = |error| format!("{error:?}");
        let to = words.last().and_then(|name| self.writers.get(*name)).map(|(_, number)| *number);
        let mut writer = words.get(1).and_then(|name| self.writers.get_mut(*name)).map(|(writer, _)| writer);
        let mut writer = || writer.take().unwrap();
        match *words {
            ["begin-put", _, id, len, how] => {
                let put = writer().begin_put(number(len), wait(how)).map_err(reported)?;
                self.puts.insert(number(id), put);
            }
            ["try-put", _, id, len] => match writer().try_begin_put(number(len)).map_err(reported)? {
                Some(put) => drop(self.puts.insert(number(id), put)),
                None => return Ok("none".to_owned()),
            },
            ["fill", id, seed] => fill(self.puts.get_mut(&number(id)).unwrap(), number(seed)),
            ["cut-put", id, prefix, suffix] => {
                self.puts.get_mut(&number(id)).unwrap().adjust(number(prefix), number(suffix)).map_err(reported)?;
            }
            ["end-put", _, id] => writer().end_put(self.puts.remove(&number(id)).unwrap()).map_err(reported)?,
            ["move-put", _, id, _] => {
                writer().enqueue(self.puts.remove(&number(id)).unwrap(), to.unwrap()).map_err(reported)?;
            }
            ["put", _, seed, len] => {
                let writer = writer();
                let mut put = writer.begin_put(number(len), Wait::Block).map_err(reported)?;
                fill(&mut put, number(seed));
                writer.end_put(put).map_err(reported)?;
            }
            // A number of messages, by one call.
            ["put-many", _, seed, count, len] => {
                let (seed, count) = (number::<u64>(seed), number(count));
                let put = writer()
                    .put_many_with(count, number(len), Wait::Block, |at, bytes| fill(bytes, seed + at as u64))
                    .map_err(reported)?;
                assert_eq!(put, count);
            }
            // A number of messages that say who wrote them and as which.
            ["pour", _, from, count] => {
                let writer = writer();
                for at in 0..number::<u32>(count) {
                    let text = format!("{from}:{at}");
                    let mut put = writer.begin_put(text.len(), Wait::Block).map_err(reported)?;
                    put.copy_from_slice(text.as_bytes());
                    writer.end_put(put).map_err(reported)?;
                }
            }
            _ => panic!("order `{words:?}`"),
        }
        Ok(String::new())
    }

    fn obey_get(&mut self, words: &[&str]) -> Result<String, String> {
        let reported = |error| format!("{error:?}");
        let to = words.last().and_then(|name| self.writers.get(*name)).map(|(_, number)| *number);
        let mut reader = words.get(1).and_then(|name| self.readers.get_mut(*name)).map(|(reader, _)| reader);
        let mut reader = || reader.take().unwrap();
        match *words {
            ["get", _, id, how] => {
                let message = reader().begin_get(wait(how)).map_err(reported)?;
                let seen = mark(&message);
                self.messages.insert(number(id), message);
                return Ok(seen);
            }
            // Waits at all that the attachment has, and not at this reader.
            ["get-any", _, id] => {
                let message = get_any(&self.client.attachment, reader())?;
                let seen = mark(&message);
                self.messages.insert(number(id), message);
                return Ok(seen);
            }
            ["try-get", _, id] => {
                let Some(message) = reader().try_begin_get().map_err(reported)? else { return Ok("none".to_owned()) };
                let seen = mark(&message);
                self.messages.insert(number(id), message);
                return Ok(seen);
            }
            // Gets a message and ends it; what it says.
            ["get-text", _] => {
                let reader = reader();
                let message = reader.begin_get(soon()).map_err(reported)?;
                let text = String::from_utf8(message.to_vec()).unwrap();
                reader.end_get(message);
                return Ok(text);
            }
            ["look", id] => return Ok(mark(&self.messages[&number(id)])),
            ["place", id] => return Ok(place(self.messages[&number(id)].as_ptr())),
            ["place-of-put", id] => return Ok(place(self.puts[&number(id)].as_ptr())),
            ["cut", id, prefix, suffix] => {
                self.messages.get_mut(&number(id)).unwrap().adjust(number(prefix), number(suffix)).map_err(reported)?;
            }
            ["end-get", _, id] => reader().end_get(self.messages.remove(&number(id)).unwrap()),
            ["move", _, id, _] => {
                let message = self.messages.remove(&number(id)).unwrap();
                reader().enqueue(message, to.unwrap()).map_err(reported)?;
            }
            // On another thread.
            ["drop", id] => {
                let held = (self.puts.remove(&number(id)), self.messages.remove(&number(id)));
                assert!(held.0.is_some() || held.1.is_some());
                std::thread::spawn(move || drop(held)).join().unwrap();
            }
            // The messages that are there, some at least, and all of them ended.
            ["get-many", _, most] => {
                let burst = reader().get_many(number(most), soon()).map_err(reported)?;
                return Ok(burst.iter().map(|message| mark(message)).collect::<Vec<_>>().join(" "));
            }
            ["drain", _] => return drain(reader()),
            _ => panic!("order `{words:?}`"),
        }
        Ok(String::new())
    }
}

/// Gets messages up to an empty one; what they say.
fn drain(reader: &mut Reader) -> Result<String, String> {
    let mut said = Vec::new();
    loop {
        let message = reader.begin_get(soon()).map_err(|error| format!("{error:?}"))?;
        let text = String::from_utf8(message.to_vec()).unwrap();
        reader.end_get(message);
        if text.is_empty() {
            return Ok(said.join(" "));
        }
        said.push(text);
    }
}

/// The next message, waited for at all that the attachment has.
fn get_any(attachment: &Attachment, reader: &mut Reader) -> Result<Message, String> {
    let found = attachment.wait_until(soon(), || reader.try_begin_get().transpose());
    found.and_then(|found| found).map_err(|error| format!("{error:?}"))
}

/// Where an address is in shared memory, as all processes see it: the segment's file, the byte in it, and how this process has
/// it mapped.
fn place(address: *const u8) -> String {
    let hex = |text: &str| usize::from_str_radix(text, 16).unwrap();
    for line in std::fs::read_to_string("/proc/self/maps").unwrap().lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (start, end) = fields[0].split_once('-').map(|(start, end)| (hex(start), hex(end))).unwrap();
        if (start..end).contains(&address.addr()) {
            return format!("file {} byte {} {}", fields[4], address.addr() - start + hex(fields[2]), fields[1]);
        }
    }
    panic!("{address:?} is not mapped");
}
