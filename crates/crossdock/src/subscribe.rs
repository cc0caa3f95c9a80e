//! `crossdock subscribe`: a query in, rows out.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::time::{Duration, Instant};

use crossdock_format::Format;
use crossdock_format::encoding::Encoding;
use crossdock_nectarine::{
    Activity, DropCause, Error, Event, FormatRef, Records, RowErrors, Subscriber, SubscriberBuilder, Transport,
};
use crossdock_query::{Query, Snapshot};
use crossdock_runtime::FormatName;

use crate::cli::{OnError, OnRowError, Subscribe};
use crate::connecting::{self, link_failure};
use crate::conversions::format_named;
use crate::failure::{Failure, Outcome};
use crate::quantity::{bytes, count, counted, seconds, slower_way, way};
use crate::rows::{Rows, unwritten};
use crate::signals::Interrupt;
use crate::skips::Skips;
use crate::target::OutputTarget;
use crate::trace::TraceOutput;
use crate::{out, schema};

/// Bytes of rows that are gathered before they are written, while more records are there already.
const GATHER_BYTES: usize = 256 << 10;
/// How often a subscriber to whom nothing comes looks whether anybody still reads its output.
const LOOK: Duration = Duration::from_millis(250);

/// Why it ended.
enum End {
    /// It was asked to end here: by `--limit`, `--for` or `--until-end`.
    Done,
    /// Nobody publishes the stream, and nobody is waited for.
    Nobody,
    /// A signal.
    Signal(i32),
}

/// Prints what the query selects.
pub(crate) fn run(arguments: &Subscribe) -> Outcome {
    let output = arguments.encoding();
    refuse_terminal(output, arguments.to.is_none() && io::stdout().is_terminal())?;
    let schema = match &arguments.coding.schema {
        Some(path) => Some(schema::read_with(path, &arguments.coding.proto_path.directories)?.schema),
        None => None,
    };
    let trace = TraceOutput::begin(&arguments.tracing, "subscribe")?;
    let interrupt = Interrupt::install()?;
    let mut builder = builder_of(arguments)?;
    if let Some(trace) = trace.get() {
        builder = builder.trace(trace);
    }
    // Before any wait: a file that cannot be written is found now.
    let target = OutputTarget::new(arguments.to.as_deref())?;
    let connect = |wait| builder.clone().wait_for_daemon(wait).connect();
    let connected = connecting::connect(&arguments.daemon, out::say, connect);
    let subscriber = connected.map_err(|error| {
        target.discard();
        match (&error, arguments.wait) {
            (Error::UnknownStream(_), None) => {
                Failure::usage(format!("{error}\nto wait for its first publisher, add --wait"))
            }
            _ => link_failure(error),
        }
    })?;
    if let Some(reason) = subscriber.not_attached() {
        out::say(slower_way(&reason));
    }
    let interrupter = subscriber.interrupter();
    interrupt.on_raise(move || interrupter.interrupt());
    interrupt.arm();

    let started = Instant::now();
    let mut run = SubscribeRun {
        arguments,
        subscriber,
        interrupt,
        deadline: arguments.duration.map(|duration| started + duration),
        waits_until: None,
        target,
        output,
        printer: Rows::new(output, schema, arguments.csv.apply("", arguments.coding.options())),
        rows: Vec::new(),
        ends: Vec::new(),
        is_of_now: arguments.is_of_now(),
        unread: None,
        tally: Tally::default(),
    };
    let end = run.receive();
    let end = run.finish().and(end);
    let end = run.name(end);
    if !matches!(end, Err(Failure::OutputClosed)) {
        run.tally.uncounted_publishers = run.subscriber.uncounted_publishers();
        run.tally.repeated = run.subscriber.repeated();
        run.tally.say(started.elapsed(), run.subscriber.transport());
    }
    match end? {
        End::Done | End::Nobody => Ok(()),
        End::Signal(_) if arguments.has_no_end() => Ok(()),
        End::Signal(signal) => Err(Failure::Interrupted(signal)),
    }
}

/// The subscriber that the arguments ask for.
fn builder_of(arguments: &Subscribe) -> Outcome<SubscriberBuilder> {
    let mut builder = Subscriber::builder(&arguments.daemon.address)
        .sql(&arguments.sql)
        .wait_for_stream(arguments.wait)
        .one_format(!arguments.encoding().takes_any_format())
        .class(arguments.class)
        .transport(arguments.daemon.transport)
        .reconnect(arguments.daemon.reconnect);
    if let Some((own, daemons)) = connecting::keys(&arguments.daemon.keys)? {
        builder = builder.keys(own, daemons);
    }
    if let Some(route) = connecting::route(&arguments.daemon.keys)? {
        builder = builder.route(route);
    }
    if arguments.on_row_error == OnRowError::Null {
        builder = builder.row_errors(RowErrors::Null);
    }
    if let Some(overflow) = arguments.on_overflow {
        builder = builder.overflow(overflow);
    }
    if let Some(unreadable) = arguments.unreadable {
        builder = builder.unreadable(unreadable);
    }
    for format in &arguments.accept {
        builder = match format_named(format, &arguments.coding.proto_path.directories)? {
            FormatName::Description(text) => builder.accept(Format::parse(&text).map_err(Failure::usage)?),
            name => builder.accept(name.to_string().parse::<FormatRef>().map_err(Failure::usage)?),
        };
    }
    if io::stderr().is_terminal() {
        let stream = stream_of(&arguments.sql);
        let accepted = if arguments.accept.is_empty() { "" } else { " in an accepted format" };
        builder = builder.on_wait(move || {
            out::say(format_args!("waiting for `{stream}`: nobody has published it{accepted} yet; Ctrl-C ends"));
        });
    }
    Ok(builder)
}

impl Subscribe {
    /// The encoding of the output.
    fn encoding(&self) -> Encoding {
        let name = self.to.as_deref().and_then(Path::file_name).and_then(OsStr::to_str);
        self.output.or_else(|| Encoding::of_name(name?)).unwrap_or(Encoding::Json)
    }

    /// Whether its query is one of what is there now, and ends with that.
    fn is_of_now(&self) -> bool {
        let query = crossdock_query::parse_query(&self.sql);
        matches!(query, Ok(Query::Select(select)) if select.snapshot() == Some(Snapshot::Once))
    }

    /// Whether only a signal ends it.
    fn has_no_end(&self) -> bool {
        self.limit.is_none() && self.duration.is_none() && !self.until_end && !self.is_of_now()
    }
}

/// Binary data does not go to a terminal, which it would spoil.
fn refuse_terminal(output: Encoding, is_terminal: bool) -> Outcome {
    if !output.is_binary() || !is_terminal {
        return Ok(());
    }
    let ending = output.endings().first().copied().unwrap_or("bin");
    Err(Failure::usage(format!("{output} is binary, and standard output is a terminal"))
        .hint(format!("send it to a file or a program: > records.{ending}, or | program")))
}

/// Whether a query begins with what is there, whoever publishes now.
fn has_snapshot(sql: &str) -> bool {
    matches!(crossdock_query::parse_query(sql), Ok(Query::Select(select)) if select.snapshot().is_some())
}

/// The stream that a query reads, for people.
fn stream_of(sql: &str) -> String {
    match crossdock_query::parse_query(sql) {
        Ok(Query::Select(select)) => select.stream().to_owned(),
        Ok(Query::Stateful(query)) => query.streams().join(", "),
        Err(_) => "the stream".to_owned(),
    }
}

struct SubscribeRun<'a> {
    arguments: &'a Subscribe,
    subscriber: Subscriber,
    interrupt: Interrupt,
    deadline: Option<Instant>,
    /// Until when a publisher is waited for, while nobody publishes the stream.
    waits_until: Option<Instant>,
    target: OutputTarget,
    output: Encoding,
    /// The encoder that makes rows of records.
    printer: Rows,
    /// Rows that have not been written.
    rows: Vec<u8>,
    /// Where in them records end, and how many have come by then.
    ends: Vec<(usize, u64)>,
    /// Whether the query ends with what is there now.
    is_of_now: bool,
    /// Why a query with `SNAPSHOT` gets no more, where the daemon has said so.
    unread: Option<String>,
    tally: Tally,
}

impl SubscribeRun<'_> {
    /// Prints until something ends it.
    fn receive(&mut self) -> Outcome<End> {
        if let Some(format) = self.subscriber.format().cloned() {
            self.printer.check(&format)?;
            self.printer.expect(format);
        }
        if !self.may_come() {
            return Ok(End::Nobody);
        }
        loop {
            if self.arguments.limit.is_some_and(|limit| self.tally.records >= limit) {
                return Ok(End::Done);
            }
            if let Some(signal) = self.interrupt.caught() {
                return Ok(End::Signal(signal));
            }
            let Some(event) = self.next_event()? else {
                let has_passed = |time: Option<Instant>| time.is_some_and(|time| Instant::now() >= time);
                if has_passed(self.deadline) {
                    return Ok(End::Done);
                }
                if has_passed(self.waits_until) && !self.is_published() {
                    return Err(Failure::usage(format!(
                        "nobody has published `{}` within the time of --wait",
                        stream_of(&self.arguments.sql)
                    )));
                }
                continue;
            };
            if !matches!(event, Event::Reconnected | Event::Missed { .. }) {
                self.waits_until = None;
            }
            match event {
                Event::Records(records) => self.print(&records)?,
                Event::Format(format) => self.printer.expect(format),
                Event::StreamEnded { publishers_left, lost, .. } => {
                    if self.note_end(publishers_left, lost)? {
                        return Ok(End::Done);
                    }
                }
                Event::Dropped { records, cause, reason } => self.note_dropped(records, cause, &reason)?,
                Event::Held { message, .. } => out::say(format_args!("records wait in the daemon: {message}")),
                Event::Readable { format, chain, records } => {
                    let way: Vec<String> = chain.iter().map(ToString::to_string).collect();
                    let way =
                        if way.is_empty() { "unchanged".to_owned() } else { format!("through {}", way.join(", ")) };
                    let waited = counted(records, "record");
                    out::say(format_args!(
                        "records of format {format} are delivered from now on, {way}; {waited} waited"
                    ));
                }
                Event::Unreadable { message } if has_snapshot(&self.arguments.sql) => {
                    self.unread.get_or_insert(message);
                }
                Event::Unreadable { message } => {
                    self.tally.unreadable += 1;
                    out::say(format_args!("records do not reach the subscriber: {message}"));
                }
                Event::Reconnected => out::say("the connection to the daemon was lost and is restored"),
                Event::Missed { records, at_most } => self.note_missed(records, at_most),
            }
        }
    }

    /// Whether records may come: not for `--until-end` where nobody publishes. Prints what it waits for.
    fn may_come(&mut self) -> bool {
        if has_snapshot(&self.arguments.sql) {
            return true;
        }
        let Activity { publishers, records, latest_ms_ago } = self.subscriber.activity();
        if publishers != Some(0) {
            return true;
        }
        let passed = match latest_ms_ago {
            None => "none has passed yet".to_owned(),
            Some(ms) => {
                format!("{} passed, the latest {} ago", counted(records, "record"), seconds(Duration::from_millis(ms)))
            }
        };
        let ends = self.arguments.until_end && self.arguments.wait.is_none();
        if ends {
            out::say(format_args!(
                "nobody publishes the stream, and streams keep no records ({passed}); --wait waits for the next publisher"
            ));
        } else if io::stderr().is_terminal() {
            let stream = stream_of(&self.arguments.sql);
            out::say(format_args!(
                "waiting for a publisher of `{stream}`: streams keep no records ({passed}); Ctrl-C ends"
            ));
        }
        if self.arguments.until_end {
            self.waits_until = self.arguments.wait.and_then(|wait| Instant::now().checked_add(wait));
        }
        !ends
    }

    /// Whether somebody publishes the stream now, whose records have not come or do not meet the query's condition; asked once.
    fn is_published(&mut self) -> bool {
        self.waits_until = None;
        let daemon = &self.arguments.daemon;
        let mut asks = Subscriber::builder(&daemon.address).sql(&self.arguments.sql).transport(daemon.transport);
        if let Ok(Some((own, daemons))) = connecting::keys(&daemon.keys) {
            asks = asks.keys(own, daemons);
        }
        if let Ok(Some(route)) = connecting::route(&daemon.keys) {
            asks = asks.route(route);
        }
        // Where nobody can be asked, records may come as well.
        !asks.connect().is_ok_and(|other| other.activity().publishers == Some(0))
    }

    /// A publisher is gone. Whether that is the end that was asked for: not if one has gone that had not finished, but for
    /// `--reconnect` once those that are there have. The end of a state that is gone is one in any case.
    fn note_end(&mut self, publishers_left: u32, lost: u32) -> Outcome<bool> {
        if lost > 0
            && let Some(why) = self.unread.take()
        {
            return Err(Failure::failed(why));
        }
        let is_loss = lost > std::mem::replace(&mut self.tally.lost_publishers, lost);
        let is_end = publishers_left == 0 && (self.arguments.until_end || self.is_of_now);
        let (who, has, it) = match lost {
            1 => ("a publisher".to_owned(), "has", "it"),
            _ => (counted(lost.into(), "publisher"), "have", "they"),
        };
        let text =
            format!("{who} {has} gone without finishing: {it} crashed, or lost the connection; records may be missing");
        if is_end && lost > 0 && !self.arguments.daemon.reconnect {
            return Err(
                Failure::failed(text).hint("--reconnect goes on waiting for a publisher to come back and finish")
            );
        }
        if is_loss {
            out::say(format_args!("{text}; {} left", counted(publishers_left.into(), "publisher")));
        }
        Ok(is_end && !is_loss)
    }

    /// Records have passed while the connection was lost.
    fn note_missed(&mut self, records: Option<u64>, at_most: bool) {
        let Some(records) = records else {
            self.tally.missed_unknown = true;
            return out::say("records in between may be missing: those of this stream are not counted");
        };
        self.tally.missed += records;
        self.tally.missed_at_most |= at_most;
        let (up_to, condition) =
            if at_most { ("up to ", ", whether or not they meet the query's condition") } else { ("", "") };
        let records = counted(records, "record");
        out::say(format_args!(
            "{up_to}{records} of the stream passed while the connection was lost{condition}, and did not arrive"
        ));
    }

    fn note_dropped(&mut self, records: u64, cause: DropCause, reason: &str) -> Outcome {
        *self.tally.dropped.entry(cause).or_default() += records;
        let records = counted(records, "record");
        if cause.is_row_error() && self.arguments.on_row_error == OnRowError::Stop {
            let text = format!("the query cannot compute {records}: {reason}");
            return Err(Failure::failed(text).hint("--on-row-error skip leaves such records out; null makes them null"));
        }
        out::say(format_args!("{records} dropped by the daemon: {reason}"));
        Ok(())
    }

    /// The next event, or none when there was none for a while. Writes what was gathered before it waits.
    fn next_event(&mut self) -> Outcome<Option<Event>> {
        if self.rows.len() < GATHER_BYTES
            && let Some(event) = self.poll(Duration::ZERO)?
        {
            return Ok(Some(event));
        }
        self.flush()?;
        let left = self.deadline.map_or(LOOK, |deadline| deadline.saturating_duration_since(Instant::now()));
        let event = self.poll(left.min(LOOK))?;
        if event.is_none() && self.target.is_closed() {
            return Err(Failure::OutputClosed);
        }
        Ok(event)
    }

    fn poll(&mut self, timeout: Duration) -> Outcome<Option<Event>> {
        match self.subscriber.next_event(Some(timeout)) {
            Ok(event) => Ok(event),
            // The loop finds the signal.
            Err(Error::Interrupted) => Ok(None),
            Err(error) => Err(link_failure(error)),
        }
    }

    fn print(&mut self, records: &Records) -> Outcome {
        self.printer.begin(records.format(), &mut self.rows)?;
        let last = self.arguments.limit.unwrap_or(u64::MAX);
        let before = self.rows.len();
        for record in records.iter() {
            if self.tally.records >= last {
                break;
            }
            let (start, number) = (self.rows.len(), self.tally.records + self.tally.skipped.count() + 1);
            match self.printer.record(&record, number, &mut self.rows) {
                Ok(()) => {
                    self.tally.records += 1;
                    if self.rows.len() > start {
                        self.ends.push((self.rows.len(), self.tally.records));
                    }
                }
                Err(error) => {
                    if self.arguments.on_error == OnError::Stop {
                        return Err(unwritten(error).hint("--on-error skip goes on without it"));
                    }
                    self.tally.skipped.add("records", &error).into_iter().for_each(out::say);
                }
            }
        }
        self.tally.bytes += (self.rows.len() - before) as u64;
        Ok(())
    }

    /// Writes what an output ends with, also where it ends early.
    fn finish(&mut self) -> Outcome {
        let before = self.rows.len();
        let finished = match self.tally.written {
            None => self.printer.finish(&mut self.rows),
            // The text that was to stand in front of it is missing.
            Some(_) => Ok(()),
        };
        self.tally.bytes += (self.rows.len() - before) as u64;
        self.flush().and(finished)
    }

    /// A file gets its name if it came to its end.
    fn name(&self, end: Outcome<End>) -> Outcome<End> {
        let is_complete = match end {
            Ok(End::Nobody) => {
                self.target.discard();
                return end;
            }
            Ok(End::Done) => true,
            Ok(End::Signal(_)) => self.arguments.has_no_end(),
            Err(_) => false,
        };
        if is_complete && self.tally.unwritten_bytes == 0 {
            return self.target.complete().and(end);
        }
        self.target.leave();
        end
    }

    /// How many records have been written whole, if only `bytes` of the rows were.
    fn written_by(&self, bytes: usize) -> u64 {
        // Nothing can be read of such a file without its end.
        if matches!(self.output, Encoding::Parquet | Encoding::ArrowFile) {
            return 0;
        }
        let whole = self.ends.iter().take_while(|(end, _)| *end <= bytes).last();
        whole.map_or(self.tally.whole, |(_, records)| *records)
    }

    fn flush(&mut self) -> Outcome {
        if !self.rows.is_empty() {
            let (written, outcome) = self.target.write(&self.rows, &self.interrupt);
            if outcome.is_err() {
                self.tally.written = Some(self.written_by(written));
            } else {
                self.tally.unwritten_bytes += (self.rows.len() - written) as u64;
            }
            self.tally.whole = self.ends.last().map_or(self.tally.whole, |(_, records)| *records);
            self.rows.clear();
            self.ends.clear();
            outcome?;
        }
        Ok(())
    }
}

/// The records that came.
#[derive(Default)]
struct Tally {
    records: u64,
    /// Bytes of the printed rows.
    bytes: u64,
    /// Records whose rows have been written, as far as the encoder does not keep them.
    whole: u64,
    /// Records whose rows were written whole before writing failed, if it has.
    written: Option<u64>,
    /// Bytes of them that nobody took before a signal came.
    unwritten_bytes: u64,
    /// Records that the encoding cannot hold.
    skipped: Skips,
    /// Records dropped in the daemon, by cause.
    dropped: BTreeMap<DropCause, u64>,
    /// Records that passed while the connection was lost, and whether they may be fewer, or were not counted.
    missed: u64,
    missed_at_most: bool,
    missed_unknown: bool,
    /// Records that came once more, from a durable daemon that was started again.
    repeated: u64,
    /// Publishers that have not come back since; theirs are not counted.
    uncounted_publishers: u32,
    /// Formats that the query does not fit.
    unreadable: u64,
    /// Publishers that have gone without having finished.
    lost_publishers: u32,
}

impl Tally {
    fn say(&self, time: Duration, transport: Transport) {
        let records = match self.written {
            Some(written) => format!("{} of {} written", count(written), counted(self.records, "record")),
            None => counted(self.records, "record"),
        };
        let missed = match (self.missed, self.missed_at_most) {
            (0, _) => String::new(),
            (missed, at_most) => format!(", {}{} missed", if at_most { "up to " } else { "" }, count(missed)),
        };
        let (size, took) = (bytes(self.bytes), seconds(time));
        let mut text = format!("{records}{missed} ({size}) in {took}, {}", way(transport));
        if self.repeated > 0 {
            text += &format!("; {} of them once more after a restart of the daemon", count(self.repeated));
        }
        if self.missed_unknown {
            text += "; records may be missing from while the connection was lost";
        }
        if self.uncounted_publishers > 0 {
            let (publishers, has) = match self.uncounted_publishers {
                1 => ("1 publisher".to_owned(), "has"),
                many => (counted(many.into(), "publisher"), "have"),
            };
            text += &format!("; records of {publishers} that {has} not come back are not counted as missed");
        }
        if self.written.is_some() {
            text += "; the output is incomplete";
        }
        if self.unwritten_bytes > 0 {
            text += &format!("; the last {} were not read", bytes(self.unwritten_bytes));
        }
        if self.skipped.count() > 0 {
            text += &format!("; skipped {}", counted(self.skipped.count(), "record"));
        }
        if !self.dropped.is_empty() {
            let causes: Vec<String> =
                self.dropped.iter().map(|(cause, records)| format!("{cause}: {}", count(*records))).collect();
            text += &format!("; {} dropped ({})", counted(self.dropped.values().sum(), "record"), causes.join("; "));
        }
        if self.unreadable > 0 {
            text += &format!("; {} of records that do not arrive", counted(self.unreadable, "notice"));
        }
        out::say(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_text_goes_to_a_terminal() {
        for encoding in Encoding::ALL {
            assert!(refuse_terminal(encoding, false).is_ok());
            match refuse_terminal(encoding, true) {
                Ok(()) => assert!(matches!(encoding, Encoding::Json | Encoding::Csv | Encoding::Xml), "{encoding}"),
                Err(failure) => assert!(failure.text().contains("send it to a file"), "{encoding}"),
            }
        }
    }
}
