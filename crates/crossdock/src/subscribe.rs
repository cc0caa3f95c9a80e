//! `crossdock subscribe`: a query in, rows out.

use std::time::{Duration, Instant};

use crossdock_format::Format;
use crossdock_format::csv::{CsvEncoder, CsvOptions};
use crossdock_format::json::JsonEncoder;
use crossdock_nectarine::{Error, Event, Records, Subscriber, Transport};

use crate::cli::{Encoding, Subscribe};
use crate::failure::{Failure, Outcome};
use crate::out;
use crate::quantity::{bytes, counted, seconds, way};
use crate::signals::Interrupt;

/// Bytes of rows that are gathered before they are written, while more records are there already.
const GATHER_BYTES: usize = 256 << 10;
/// How often a subscriber to whom nothing comes looks whether anybody still reads its output.
const LOOK: Duration = Duration::from_millis(250);

/// Why it ended.
enum End {
    /// It was asked to end here: by `--limit`, `--for` or `--until-end`.
    Done,
    /// A signal.
    Signal(i32),
}

/// Prints what the query selects.
pub(crate) fn run(arguments: &Subscribe) -> Outcome {
    let interrupt = Interrupt::install()?;
    let mut builder = Subscriber::builder(&arguments.daemon.address)
        .sql(&arguments.sql)
        .wait_for_stream(arguments.wait)
        .transport(arguments.daemon.transport)
        .reconnect(arguments.daemon.reconnect);
    if let Some(overflow) = arguments.overflow {
        builder = builder.overflow(overflow);
    }
    let subscriber = builder.connect().map_err(|error| match (&error, arguments.wait) {
        (Error::UnknownStream(_), None) => {
            Failure::usage(format!("{error}\nto wait until somebody publishes it, add --wait"))
        }
        _ => link_failure(error),
    })?;
    let interrupter = subscriber.interrupter();
    interrupt.on_raise(move || interrupter.interrupt());
    interrupt.arm();

    let started = Instant::now();
    let mut run = Run {
        arguments,
        subscriber,
        interrupt,
        deadline: arguments.duration.map(|duration| started + duration),
        printer: None,
        rows: Vec::new(),
        tally: Tally::default(),
    };
    let end = run.receive();
    let end = run.flush().and(end);
    if !matches!(end, Err(Failure::OutputClosed)) {
        run.tally.say(started.elapsed(), run.subscriber.transport());
    }
    match end? {
        End::Done => Ok(()),
        End::Signal(_) if arguments.has_no_end() => Ok(()),
        End::Signal(signal) => Err(Failure::Interrupted(signal)),
    }
}

impl Subscribe {
    /// Whether only a signal ends it.
    fn has_no_end(&self) -> bool {
        self.limit.is_none() && self.duration.is_none() && !self.until_end
    }
}

fn link_failure(error: Error) -> Failure {
    if error.is_usage() { Failure::usage(error) } else { Failure::failed(error) }
}

struct Run<'a> {
    arguments: &'a Subscribe,
    subscriber: Subscriber,
    interrupt: Interrupt,
    deadline: Option<Instant>,
    /// What makes rows of records; of the format that came last.
    printer: Option<(Format, Printer)>,
    /// Rows that have not been written.
    rows: Vec<u8>,
    tally: Tally,
}

impl Run<'_> {
    /// Prints until something ends it.
    fn receive(&mut self) -> Outcome<End> {
        if let Some(format) = self.subscriber.format().cloned() {
            // The header of an empty result is a result.
            self.print_as(&format)?;
        }
        loop {
            if self.arguments.limit.is_some_and(|limit| self.tally.records >= limit) {
                return Ok(End::Done);
            }
            if let Some(signal) = self.interrupt.caught() {
                return Ok(End::Signal(signal));
            }
            let Some(event) = self.next_event()? else {
                if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                    return Ok(End::Done);
                }
                continue;
            };
            match event {
                Event::Records(records) => self.print(&records)?,
                Event::Format(format) => self.print_as(&format)?,
                Event::StreamEnded { publishers_left: 0 } if self.arguments.until_end => return Ok(End::Done),
                Event::StreamEnded { .. } => {}
                Event::Dropped { records, reason } => {
                    self.tally.dropped += records;
                    out::say(format_args!("{} dropped by the daemon: {reason}", counted(records, "record")));
                }
                Event::Unreadable { message } => {
                    self.tally.unreadable += 1;
                    out::say(format_args!("a publisher's records do not fit the query: {message}"));
                }
                Event::Reconnected => out::say("the daemon was gone and is back; records between may be missing"),
            }
        }
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
        if event.is_none() && out::is_closed() {
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
        if self.printer.as_ref().is_none_or(|(format, _)| format != records.format()) {
            self.print_as(records.format())?;
        }
        let most = self.arguments.limit.map_or(u64::MAX, |limit| limit - self.tally.records);
        let Some((_, printer)) = &self.printer else { return Ok(()) };
        let before = self.rows.len();
        for record in records.iter().take(usize::try_from(most).unwrap_or(usize::MAX)) {
            match printer {
                Printer::Csv(encoder) => encoder.record(&record, &mut self.rows),
                Printer::Json(encoder) => encoder.record(&record, &mut self.rows),
            }
            self.tally.records += 1;
        }
        self.tally.bytes += (self.rows.len() - before) as u64;
        Ok(())
    }

    /// From here on, rows of this format; CSV gets a header, which a change of the format repeats.
    fn print_as(&mut self, format: &Format) -> Outcome {
        if self.printer.as_ref().is_some_and(|(known, _)| known == format) {
            return Ok(());
        }
        let printer = match self.arguments.output {
            Encoding::Json => Printer::Json(JsonEncoder::new(format)),
            Encoding::Csv => {
                let encoder = CsvEncoder::new(format, &CsvOptions::default()).map_err(Failure::failed)?;
                encoder.header(&mut self.rows);
                Printer::Csv(Box::new(encoder))
            }
        };
        self.printer = Some((format.clone(), printer));
        Ok(())
    }

    fn flush(&mut self) -> Outcome {
        if !self.rows.is_empty() {
            let written = out::print_until(&self.rows, &self.interrupt);
            self.rows.clear();
            self.tally.unwritten_bytes += written? as u64;
        }
        Ok(())
    }
}

/// What makes a row of a record.
enum Printer {
    Csv(Box<CsvEncoder>),
    Json(JsonEncoder),
}

/// What came.
#[derive(Default)]
struct Tally {
    records: u64,
    /// Bytes of the printed rows.
    bytes: u64,
    /// Bytes of them that nobody took before a signal came.
    unwritten_bytes: u64,
    /// Records dropped in the daemon.
    dropped: u64,
    /// Formats that the query does not fit.
    unreadable: u64,
}

impl Tally {
    fn say(&self, time: Duration, transport: Transport) {
        let records = counted(self.records, "record");
        let mut text = format!("{records} ({}) in {}, {}", bytes(self.bytes), seconds(time), way(transport));
        if self.unwritten_bytes > 0 {
            text += &format!("; the last {} were not read by anybody", bytes(self.unwritten_bytes));
        }
        if self.dropped > 0 {
            text += &format!("; {} dropped", counted(self.dropped, "record"));
        }
        if self.unreadable > 0 {
            text += &format!("; {} did not fit the query", counted(self.unreadable, "format"));
        }
        out::say(text);
    }
}
