//! `crossdock mailbox`: mailboxes of the daemon, and messages in and out of them.

mod drops;

use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::path::Path;
use std::time::{Duration, Instant};

use crossdock_nectarine::{Error, Message, Node, Reader, ReaderOptions, SyncWord, Trace, Transport, Wait, Writer};
use hyper::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;

use crate::cli::{
    Answer, CreateMailbox, GetMessages, Link, Mailbox, MailboxCommand, MailboxSync, MailboxTask, MessageOutput,
    PutMessages, RemoveMailbox,
};
use crate::failure::{Failure, Outcome};
use crate::formats::report;
use crate::http::client::Client;
use crate::http::{NewMailbox, NewTask};
use crate::input::Interruptible;
use crate::quantity::{bytes, counted, rate, seconds, way};
use crate::signals::Interrupt;
use crate::{connecting, out};
use drops::Drops;

/// The longest message of a mailbox: a line that is longer is refused before it is read whole.
pub(crate) const MAX_MESSAGE_BYTES: u64 = 16 << 20;
/// Bytes of the input that are read at a time.
const BATCH_BYTES: usize = 64 << 10;
/// How often a wait looks whether a signal has come, or the reader of the output has gone.
const LOOK: Duration = Duration::from_millis(100);

/// `crossdock mailbox`.
pub(crate) fn run(arguments: &Mailbox) -> Outcome {
    match &arguments.command {
        MailboxCommand::Create(create) => self::create(create),
        MailboxCommand::Rm(RemoveMailbox { name, answer }) => change(answer, Method::DELETE, &path(name), &()),
        MailboxCommand::Put(put) => self::put(put),
        MailboxCommand::Get(get) => self::get(get),
        MailboxCommand::Tail(tail) => {
            let Takes { end, .. } = take(&tail.link, &tail.mailbox, tail.output, None, None)?;
            // Only a signal ends it.
            end.map(drop)
        }
        MailboxCommand::Task(task) => self::task(task),
        MailboxCommand::Sync(sync) => self::sync(sync),
    }
}

fn create(arguments: &CreateMailbox) -> Outcome {
    let bound_messages = arguments.bound_messages.map(u32::try_from).transpose();
    let new = NewMailbox {
        name: arguments.name.clone(),
        implementation: arguments.implementation,
        bound_messages: bound_messages.map_err(|_| Failure::usage("--bound-messages is at most 4294967295"))?,
        bound_bytes: arguments.bound_bytes,
    };
    change(&arguments.answer, Method::POST, "/v1/mailboxes", &new)
}

fn task(arguments: &MailboxTask) -> Outcome {
    let path = format!("{}/task", path(&arguments.mailbox));
    match &arguments.task {
        Some(task) => {
            let arguments_of_it = arguments.arguments.iter().cloned().collect();
            change(&arguments.answer, Method::PUT, &path, &NewTask { task: task.clone(), arguments: arguments_of_it })
        }
        None => change(&arguments.answer, Method::DELETE, &path, &()),
    }
}

fn change(answer: &Answer, method: Method, path: &str, what: &impl Serialize) -> Outcome {
    report(Client::new(&answer.control)?.ask(method, path, what)?, answer.json)
}

/// A mailbox in a path of the API.
fn path(name: &str) -> String {
    format!("/v1/mailboxes/{}", utf8_percent_encode(name, NON_ALPHANUMERIC))
}

/// The node of a mailbox, and the mailbox's name there.
pub(crate) fn find<'a>(link: &Link, mailbox: &'a str, trace: Option<&Trace>) -> Outcome<(Node, &'a str)> {
    let here = connect(link, trace)?;
    match mailbox.split_once('/') {
        Some((node, name)) => Ok((here.named(node).map_err(failure)?, name)),
        None => Ok((here, mailbox)),
    }
}

pub(crate) fn connect(link: &Link, trace: Option<&Trace>) -> Outcome<Node> {
    let mut builder = Node::builder(&link.address).transport(link.transport);
    if let Some(trace) = trace {
        builder = builder.trace(trace);
    }
    if let Some((own, daemons)) = connecting::keys(&link.keys)? {
        builder = builder.keys(own, daemons);
    }
    if let Some(route) = connecting::route(&link.keys)? {
        builder = builder.route(route);
    }
    builder.connect().map_err(failure)
}

pub(crate) fn failure(error: Error) -> Failure {
    let hint = match &error {
        Error::UnknownMailbox(_) => {
            Some("`crossdock mailboxes` lists them; `crossdock mailbox create NAME` creates one")
        }
        _ => None,
    };
    let failure = if error.is_usage() { Failure::usage(error) } else { Failure::failed(error) };
    hint.into_iter().fold(failure, Failure::hint)
}

/// The report in standard output with `put --json`.
#[derive(Serialize)]
struct Report<'a> {
    mailbox: &'a str,
    messages: u64,
    bytes: u64,
    seconds: f64,
    /// Messages of the mailbox that were dropped meanwhile, by reason.
    dropped: Vec<(&'a str, u64)>,
}

/// The messages that were put or taken.
#[derive(Clone, Copy, Default)]
struct Tally {
    messages: u64,
    bytes: u64,
}

impl Tally {
    fn add(&mut self, message: usize) {
        self.messages += 1;
        self.bytes += message as u64;
    }

    fn say(self, verb: &str, mailbox: &str, time: Duration, transport: Transport) {
        out::say(format_args!(
            "{verb} {mailbox}: {} ({}) in {}, {}, {}",
            counted(self.messages, "message"),
            bytes(self.bytes),
            seconds(time),
            rate(self.messages, time),
            way(transport),
        ));
    }
}

fn put(arguments: &PutMessages) -> Outcome {
    let interrupt = Interrupt::install()?;
    let input = match arguments.count {
        Some(_) => None,
        None => Some(open(arguments.file.as_deref(), &interrupt)?),
    };
    let (node, name) = find(&arguments.link, &arguments.mailbox, None)?;
    let mut writer = node.writer(name).map_err(failure)?;
    let interrupter = writer.interrupter();
    interrupt.on_raise(move || interrupter.interrupt());
    interrupt.arm();
    let (started, mut tally, mut drops) = (Instant::now(), Tally::default(), Drops::new());
    let end = match (input, arguments.count) {
        (Some(input), _) if arguments.whole => put_whole(input, &mut writer, &mut tally),
        (Some(input), _) => put_lines(input, &mut writer, (&mut tally, &mut drops), &interrupt),
        (None, count) => {
            let messages = (count.unwrap_or(0), arguments.size);
            put_counted(messages, &mut writer, (&mut tally, &mut drops), &interrupt)
        }
    };
    // Over packets, messages that were put may be on their way still: also after a signal, which ends a wait for the mailbox.
    interrupt.settle();
    writer.interrupter().withdraw();
    let flushed = writer.flush().map_err(failure);
    let end = end.and(flushed);
    let time = started.elapsed();
    // Without the daemon, there is nobody to ask.
    let is_cut_short = end.is_err() || interrupt.caught().is_some();
    drops.look_last(&node, &mut writer, is_cut_short);
    let end = end.and_then(|()| drops.check(&arguments.mailbox));
    match arguments.json {
        true => out::print_json(&Report {
            mailbox: &arguments.mailbox,
            messages: tally.messages,
            bytes: tally.bytes,
            seconds: time.as_secs_f64(),
            dropped: drops.by_name(),
        })?,
        false => tally.say("put into", &arguments.mailbox, time, node.transport()),
    }
    interrupt.caught().map_or(end, |signal| Err(Failure::Interrupted(signal)))
}

/// The input: a file, or standard input. A signal ends a wait for it.
fn open(file: Option<&Path>, interrupt: &Interrupt) -> Outcome<BufReader<Interruptible>> {
    let named = file.filter(|file| *file != Path::new("-"));
    let name = named.map_or("standard input".to_owned(), |path| path.display().to_string());
    let source = Interruptible::open(named, interrupt);
    let source = source.map_err(|error| Failure::usage(format!("cannot read {name}: {error}")))?;
    if named.is_none() && io::stdin().is_terminal() {
        out::say("each line is a message; Ctrl-D ends them");
    }
    Ok(BufReader::with_capacity(BATCH_BYTES, source))
}

fn read_failure(error: &io::Error) -> Failure {
    Failure::failed(format!("cannot read the input: {error}"))
}

fn too_long(what: &str) -> Failure {
    Failure::failed(format!("{what} is longer than 16 MiB, the longest message"))
        .hint("divide it: each line, or each file with --whole, is one message")
}

fn put_whole(input: BufReader<Interruptible>, writer: &mut Writer, tally: &mut Tally) -> Outcome {
    let mut message = Vec::new();
    input.take(MAX_MESSAGE_BYTES + 1).read_to_end(&mut message).map_err(|error| read_failure(&error))?;
    if message.len() as u64 > MAX_MESSAGE_BYTES {
        return Err(too_long("the input"));
    }
    writer.put(&message).map_err(failure)?;
    tally.add(message.len());
    Ok(())
}

fn put_lines(
    mut input: BufReader<Interruptible>,
    writer: &mut Writer,
    (tally, drops): (&mut Tally, &mut Drops),
    interrupt: &Interrupt,
) -> Outcome {
    let mut line = Vec::new();
    while interrupt.caught().is_none() {
        line.clear();
        let limit = MAX_MESSAGE_BYTES + 1;
        if input.by_ref().take(limit).read_until(b'\n', &mut line).map_err(|error| read_failure(&error))? == 0 {
            break;
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        if line.len() as u64 > MAX_MESSAGE_BYTES {
            return Err(too_long(&format!("line {} of the input", tally.messages + 1)));
        }
        writer.put(&line).map_err(failure)?;
        tally.add(line.len());
        drops.look(writer);
    }
    Ok(())
}

fn put_counted(
    (count, size): (u64, u64),
    writer: &mut Writer,
    (tally, drops): (&mut Tally, &mut Drops),
    interrupt: &Interrupt,
) -> Outcome {
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    for number in 0..count {
        if interrupt.caught().is_some() {
            break;
        }
        let mut message = writer.begin_put(size).map_err(failure)?;
        let digits = number.to_le_bytes();
        message.fill(0);
        let shown = digits.len().min(size);
        message[..shown].copy_from_slice(&digits[..shown]);
        writer.end_put(message).map_err(failure)?;
        tally.add(size);
        drops.look(writer);
    }
    Ok(())
}

fn get(arguments: &GetMessages) -> Outcome {
    let GetMessages { mailbox, limit, duration, output, link } = arguments;
    let Takes { tally, end } = take(link, mailbox, *output, Some(*limit), *duration)?;
    match end? {
        // Fewer than were asked for.
        Some(signal) if tally.messages < *limit => Err(Failure::Interrupted(signal)),
        _ => Ok(()),
    }
}

/// The messages that were taken, and the signal or other event that ended it.
struct Takes {
    tally: Tally,
    end: Outcome<Option<i32>>,
}

/// Takes messages out of a mailbox and prints them.
fn take(
    link: &Link,
    mailbox: &str,
    output: MessageOutput,
    limit: Option<u64>,
    duration: Option<Duration>,
) -> Outcome<Takes> {
    let interrupt = Interrupt::install()?;
    let (node, name) = find(link, mailbox, None)?;
    // Over packets: what was sent ahead and is not taken comes late to the next reader.
    let reader = node.reader_with(name, ReaderOptions { ahead: Some(1) }).map_err(failure)?;
    let interrupter = reader.interrupter();
    interrupt.on_raise(move || interrupter.interrupt());
    interrupt.arm();
    let started = Instant::now();
    let printer = Printer { output, is_terminal: io::stdout().is_terminal(), waiting: Vec::new() };
    let mut taker = Taker { reader, printer, interrupt, tally: Tally::default() };
    let end = taker.run(limit, duration.map(|duration| started + duration));
    if !matches!(end, Err(Failure::OutputClosed)) {
        taker.tally.say("taken out of", mailbox, started.elapsed(), node.transport());
    }
    Ok(Takes { tally: taker.tally, end: end.map(|()| taker.interrupt.caught()) })
}

struct Taker {
    reader: Reader,
    printer: Printer,
    interrupt: Interrupt,
    tally: Tally,
}

impl Taker {
    fn run(&mut self, limit: Option<u64>, deadline: Option<Instant>) -> Outcome {
        while limit.is_none_or(|limit| self.tally.messages < limit) && self.interrupt.caught().is_none() {
            let Some(message) = self.next(deadline)? else { break };
            // It is written before it is ended: what cannot be written costs one message at most.
            self.printer.print(&message, &self.interrupt)?;
            self.tally.add(message.len());
            self.reader.end_get(message);
        }
        Ok(())
    }

    /// The next message; `None` when the time is over or a signal has come.
    fn next(&mut self, deadline: Option<Instant>) -> Outcome<Option<Message>> {
        loop {
            if self.printer.output != MessageOutput::None && out::is_closed() {
                return Err(Failure::OutputClosed);
            }
            let left = deadline.map_or(LOOK, |deadline| deadline.saturating_duration_since(Instant::now()));
            match self.reader.begin_get_by(Wait::at_most(left.min(LOOK))) {
                Ok(Some(message)) => return Ok(Some(message)),
                Ok(None) if left > LOOK || deadline.is_none() => {}
                Ok(None) | Err(Error::Interrupted) => return Ok(None),
                Err(error) => return Err(failure(error)),
            }
        }
    }
}

/// A message as a JSON object.
#[derive(Serialize)]
struct Shown<'a> {
    bytes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hex: Option<String>,
}

/// Messages on their way to standard output.
struct Printer {
    output: MessageOutput,
    is_terminal: bool,
    waiting: Vec<u8>,
}

impl Printer {
    fn print(&mut self, message: &[u8], interrupt: &Interrupt) -> Outcome {
        self.waiting.clear();
        match self.output {
            MessageOutput::None => return Ok(()),
            MessageOutput::Raw => self.waiting.extend_from_slice(message),
            MessageOutput::Text if self.is_terminal => {
                let text = String::from_utf8_lossy(message);
                text.chars().for_each(|c| push_printable(&mut self.waiting, c));
            }
            MessageOutput::Text => self.waiting.extend_from_slice(message),
            MessageOutput::Hex => self.waiting.extend_from_slice(hex(message).as_bytes()),
            MessageOutput::Json => {
                // JSON escapes no control characters above those of ASCII.
                let text = std::str::from_utf8(message)
                    .ok()
                    .filter(|text| !text.contains(|c| ('\u{7f}'..='\u{9f}').contains(&c)));
                let hex = text.is_none().then(|| hex(message));
                let shown = serde_json::to_vec(&Shown { bytes: message.len(), text, hex });
                let shown = shown.map_err(|error| Failure::failed(format!("cannot write JSON: {error}")))?;
                self.waiting.extend_from_slice(&shown);
            }
        }
        if self.output != MessageOutput::Raw {
            self.waiting.push(b'\n');
        }
        out::print_until(&self.waiting, interrupt).1
    }
}

/// A character as a terminal may have it.
fn push_printable(to: &mut Vec<u8>, c: char) {
    match c {
        '\\' => to.extend_from_slice(b"\\\\"),
        c if (c.is_control() && c != '\t') || is_invisible(c) => to.extend(c.escape_default().map(|c| c as u8)),
        c => to.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

/// A character that changes how a terminal shows others: marks of direction, line and paragraph separators, zero widths.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn sync(arguments: &MailboxSync) -> Outcome {
    let node = Node::builder(&arguments.daemon).transport(Transport::Shm).connect().map_err(failure)?;
    if let Some((address, value)) = arguments.address.zip(arguments.value) {
        return node.write_sync(address, value).map_err(failure);
    }
    let interrupt = Interrupt::install()?;
    let mut sync = node.sync().map_err(failure)?;
    interrupt.arm();
    out::print(format!("{:#018x}\n", sync.address().to_word()))?;
    let deadline = arguments.duration.map(|duration| Instant::now() + duration);
    match await_value(&mut sync, deadline, &interrupt)? {
        Some(value) => out::print(format!("{value}\n")),
        None => match interrupt.caught() {
            Some(signal) => Err(Failure::Interrupted(signal)),
            None => Err(Failure::failed("the sync was not written in this time")
                .hint("write it with `crossdock mailbox sync ADDRESS VALUE`; another wait has another address")),
        },
    }
}

/// A sync's value; `None` when the time is over or a signal has come.
fn await_value(sync: &mut SyncWord, deadline: Option<Instant>, interrupt: &Interrupt) -> Outcome<Option<u64>> {
    loop {
        let left = deadline.map_or(LOOK, |deadline| deadline.saturating_duration_since(Instant::now()));
        if interrupt.caught().is_some() || left.is_zero() {
            return Ok(None);
        }
        match sync.read(Wait::at_most(left.min(LOOK))) {
            Ok(value) => return Ok(Some(value)),
            Err(crossdock_nectarine::MailboxError::TimedOut) => {}
            Err(error) => return Err(failure(error.into())),
        }
    }
}
