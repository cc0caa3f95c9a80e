//! `crossdock publish`: rows in, records out.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use crossdock_format::Format;
use crossdock_format::csv::CsvOptions;
use crossdock_format::encoding::{Encoding, EncodingOptions};
use crossdock_nectarine::{Error, PublishSummary, Publisher, PublisherEvent, Transport};
use indicatif::ProgressBar;
use rustix::fs::{FileType, fstat, stat};
use serde::Serialize;

use crate::cli::{OnError, Publish};
use crate::connecting::{self, link_failure};
use crate::failure::{Failure, Outcome};
use crate::input::{Input, RowError, Rows};
use crate::quantity::{bytes, count, counted, rate, seconds, slower_way, way};
use crate::schema::{self, SchemaFile};
use crate::signals::Interrupt;
use crate::skips::Skips;
use crate::trace::TraceOutput;
use crate::{out, progress};

/// Records between two looks at the clock, for progress.
const PROGRESS_RECORDS: u64 = 1024;
/// How long an interrupted command waits for what it has sent to be acknowledged.
const FAREWELL: Duration = Duration::from_secs(5);

/// The report in standard output with `--json`.
#[derive(Serialize)]
struct Report<'a> {
    stream: &'a str,
    records: u64,
    bytes: u64,
    skipped: u64,
    resent_packets: u64,
    dropped_records: u64,
    missing_packets: u64,
    seconds: f64,
    acknowledged: bool,
}

/// How the rows came to an end.
enum End {
    /// There are no more.
    Input,
    /// A signal.
    Signal(i32),
    /// A row is wrong, and that ends it; or the input cannot be read.
    Row(RowError),
    /// The daemon took no more.
    Link(Error),
}

/// Publishes an input's rows.
pub(crate) fn run(arguments: &Publish) -> Outcome {
    if arguments.await_subscribers.is_some() && !arguments.daemon.reconnect && arguments.min_subscribers == 0 {
        return Err(Failure::usage("--await-subscribers has no effect without --reconnect")
            .hint("add --reconnect, or --min-subscribers N to wait for N subscribers at the start"));
    }
    let trace = TraceOutput::begin(&arguments.tracing, "publish")?;
    let interrupt = Interrupt::install()?;
    let bar = progress::of_bytes();
    let proto_path = &arguments.coding.proto_path.directories;
    let schema = arguments.coding.schema.as_deref().map(|path| schema::read_with(path, proto_path)).transpose()?;
    // Subscribers need not wait for the first row of a stream whose format is known before it.
    let early = match &schema {
        Some(schema) if may_wait(arguments.file.as_deref()) => {
            Some(connect(arguments, &schema.format, &trace, &bar, &interrupt)?)
        }
        _ => None,
    };
    let opened = match open(arguments, schema, &bar, &interrupt) {
        Ok(opened) => opened,
        Err(failure) => {
            // No row has come, and that is a reported end: the stream's subscribers are not to take it for a crash.
            if let Some(publisher) = early {
                settle(&publisher, &interrupt);
                // The failure that led here is the one to report.
                let _ = finish_soon(publisher);
            }
            return Err(interrupt.caught().map_or(failure, Failure::Interrupted));
        }
    };
    let Opened { name, format, mut rows, is_inferred } = opened;
    // The daemon remembers a stream's formats: a format without records is not announced.
    if (is_inferred || !may_wait(arguments.file.as_deref()))
        && let Err(error) = rows.read_ahead()
        && (arguments.on_error == OnError::Stop || !error.is_row)
    {
        return Err(row_failure(error, &name, is_inferred));
    }
    let publisher = match early {
        Some(publisher) => publisher,
        None => connect(arguments, &format, &trace, &bar, &interrupt)?,
    };
    progress::show_length(&bar);

    let mut run =
        PublishRun { arguments, publisher, bar, interrupt, started: Instant::now(), skipped: Skips::default() };
    let end = run.send(rows);
    run.end(end, &name, is_inferred)
}

/// Whether the first row of an input may come at any time: of a file, also as standard input, it is there.
fn may_wait(file: Option<&Path>) -> bool {
    let waits = |found: FileType| !matches!(found, FileType::RegularFile | FileType::Directory);
    let found = match file.filter(|path| *path != Path::new("-")) {
        Some(path) => stat(path),
        None => fstat(io::stdin()),
    };
    found.is_ok_and(|found| waits(FileType::from_raw_mode(found.st_mode)))
}

/// After a signal, which was to end what came before: the publisher may wait again.
fn settle(publisher: &Publisher, interrupt: &Interrupt) {
    interrupt.settle();
    publisher.interrupter().withdraw();
    // The rest goes out now, whoever is there.
    publisher.stop_awaiting_subscribers();
}

/// Announces the stream. From here on, a signal ends the command cleanly.
fn connect(
    arguments: &Publish,
    format: &Format,
    trace: &TraceOutput,
    bar: &ProgressBar,
    interrupt: &Interrupt,
) -> Outcome<Publisher> {
    let mut builder = Publisher::builder(&arguments.daemon.address)
        .stream(&arguments.stream)
        .format(format)
        .key(&arguments.stream_key)
        .linger(arguments.linger)
        .class(arguments.class)
        .transport(arguments.daemon.transport)
        .reconnect(arguments.daemon.reconnect);
    if let Some((own, daemons)) = connecting::keys(&arguments.daemon.keys)? {
        builder = builder.keys(own, daemons);
    }
    if let Some(route) = connecting::route(&arguments.daemon.keys)? {
        builder = builder.route(route);
    }
    if let Some(bytes) = arguments.circuit {
        builder = builder.circuit(bytes);
    }
    if let Some(trace) = trace.get() {
        builder = builder.trace(trace);
    }
    if let Some(bound) = arguments.await_subscribers {
        let (shown, stream) = (bar.clone(), arguments.stream.clone());
        let on_event = move |event| shown.suspend(|| say_event(&stream, event, bound));
        builder = builder.await_subscribers(bound, arguments.min_subscribers).on_event(on_event);
    }
    let say = |line| bar.suspend(|| out::say(line));
    let publisher = connecting::connect(&arguments.daemon, say, |wait| builder.clone().wait_for_daemon(wait).connect())
        .map_err(link_failure)?;
    if let Some(reason) = publisher.not_attached() {
        bar.suspend(|| out::say(slower_way(&reason)));
    }
    let interrupter = publisher.interrupter();
    interrupt.on_raise(move || interrupter.interrupt());
    interrupt.arm();
    Ok(publisher)
}

/// Says what a publisher waits for.
fn say_event(stream: &str, event: PublisherEvent, bound: Duration) {
    match event {
        PublisherEvent::AwaitingSubscribers { present, wanted } => out::say(format_args!(
            "waiting for subscribers of {stream}, at most {}: there are {present} of {wanted}",
            seconds(bound)
        )),
        PublisherEvent::SubscribersAwaited { present, wanted } if present < wanted => out::say(format_args!(
            "publishing goes on after {}, with {present} of {wanted} subscribers",
            seconds(bound)
        )),
        PublisherEvent::SubscribersAwaited { present, .. } => {
            out::say(format_args!("publishing goes on, with {}", counted(present.into(), "subscriber")));
        }
        _ => {}
    }
}

/// An input that is ready to be read.
struct Opened {
    name: String,
    format: Format,
    rows: Rows,
    /// Whether the format was inferred.
    is_inferred: bool,
}

/// Opens the input, and finds out its encoding and format.
fn open(arguments: &Publish, schema: Option<SchemaFile>, bar: &ProgressBar, interrupt: &Interrupt) -> Outcome<Opened> {
    let mut input = Input::open(arguments.file.as_deref(), interrupt, bar)?;
    let name = input.name.clone();
    let encoding = match arguments.input {
        Some(encoding) => encoding,
        None => input.guess_encoding()?,
    };
    let mut options = encoding_options(arguments, &name);
    if encoding == Encoding::Csv && options.csv_header && arguments.csv.delimiter.is_none() {
        let is_field = |name: &str| schema.as_ref().is_some_and(|schema| schema.format.field(name).is_some());
        if let Some(found) = input.find_delimiter(options.csv.delimiter, is_field)? {
            let shown = if found == b'\t' { "a tab".to_owned() } else { format!("`{}`", char::from(found)) };
            bar.suspend(|| out::say(format_args!("values are separated by {shown} (--delimiter sets another)")));
            options.csv.delimiter = found;
        }
    }
    if let Some(SchemaFile { format, schema }) = schema {
        let rows = Rows::new(input, encoding, &format, Some(&schema), &options)?;
        return Ok(Opened { name, format, rows, is_inferred: false });
    }
    if encoding.carries_schema() {
        let (format, rows) = Rows::open(input, encoding, &options)?;
        return Ok(Opened { name, format, rows, is_inferred: false });
    }
    let format = infer(&mut input, encoding, &options, bar)?;
    let rows = Rows::new(input, encoding, &format, None, &options)?;
    Ok(Opened { name, format, rows, is_inferred: true })
}

fn encoding_options(arguments: &Publish, name: &str) -> EncodingOptions {
    let csv = match &arguments.null_words {
        Some(words) => {
            let null_words = std::iter::once(String::new()).chain(words.iter().cloned()).collect();
            CsvOptions { null_words, value_null_words: Vec::new(), ..CsvOptions::default() }
        }
        None => CsvOptions::default(),
    };
    let options = EncodingOptions { csv, ignore_unknown: arguments.ignore_unknown, ..arguments.coding.options() };
    arguments.csv.apply(name, options)
}

/// The format of a CSV or JSON input, which is shown in the notation that `--schema` reads.
fn infer(input: &mut Input, encoding: Encoding, options: &EncodingOptions, bar: &ProgressBar) -> Outcome<Format> {
    if !matches!(encoding, Encoding::Csv | Encoding::Json) {
        return Err(Failure::usage(format!("{}: {} needs a schema", input.name, encoding.name())).hint(
            "write its fields to a file, one line `name type` or `name type null` for each, and name that with \
             --schema, or name \
             a .proto, .avsc or .json (JSON Schema) file (or say --input csv, if it is CSV)",
        ));
    }
    let format = input.infer((encoding == Encoding::Csv).then_some(options))?;
    let fields = format.schema().trim_end().replace('\n', "\n  ");
    bar.suspend(|| {
        out::say(format_args!("schema inferred from the first rows (--schema FILE sets another):\n  {fields}"));
    });
    Ok(format)
}

struct PublishRun<'a> {
    arguments: &'a Publish,
    publisher: Publisher,
    bar: ProgressBar,
    interrupt: Interrupt,
    started: Instant,
    skipped: Skips,
}

impl PublishRun<'_> {
    /// Publishes rows until something ends it.
    fn send(&mut self, mut rows: Rows) -> End {
        let mut pace = self.arguments.rate.map(Pace::new);
        let mut records = 0_u64;
        loop {
            if let Some(signal) = self.interrupt.caught() {
                return End::Signal(signal);
            }
            let record = match rows.next() {
                Ok(Some(record)) => record,
                Ok(None) => return End::Input,
                // An input that waits ends so when a signal comes.
                Err(error) if !error.is_row && self.interrupt.caught().is_some() => continue,
                Err(error) => match self.bad_row(error) {
                    Some(end) => return end,
                    None => continue,
                },
            };
            match self.publisher.publish(record) {
                Ok(()) => records += 1,
                // Back to the loop's head, where the signal is found.
                Err(Error::Interrupted) => continue,
                Err(error @ (Error::TooLong { .. } | Error::DatagramTooLong { .. } | Error::Record(_))) => {
                    let is_too_long = !matches!(error, Error::Record(_));
                    let text = format!("record {}: {error}", records + self.skipped.count() + 1);
                    if let Some(end) = self.bad_row(RowError { text, is_row: true, is_too_long }) {
                        return end;
                    }
                }
                Err(error) => return End::Link(error),
            }
            if let Some(pace) = &mut pace {
                pace.keep(records, &self.interrupt);
            }
            if records.is_multiple_of(PROGRESS_RECORDS) && !self.bar.is_hidden() {
                let rate = rate(records, self.started.elapsed());
                self.bar.set_message(format!("{} records, {rate}", count(records)));
            }
        }
    }

    /// Skips a row and says so, or gives it as the end.
    fn bad_row(&mut self, error: RowError) -> Option<End> {
        if !error.is_row || self.arguments.on_error == OnError::Stop {
            return Some(End::Row(error));
        }
        if let Some(line) = self.skipped.add("rows", &error.text) {
            self.bar.suspend(|| out::say(line));
        }
        None
    }

    /// Hands over what is left, and says what came of it all.
    fn end(self, end: End, name: &str, is_inferred: bool) -> Outcome {
        let PublishRun { arguments, publisher, bar, interrupt, started, skipped } = self;
        let (before, transport) = (publisher.stats(), publisher.transport());
        if matches!(end, End::Signal(_)) {
            bar.suspend(|| {
                out::say(
                    "interrupted; waiting until the daemon has acknowledged all records (interrupt again to exit \
                          at once)",
                );
            });
        }
        let finished = match &end {
            End::Link(_) => None,
            End::Input => Some(publisher.finish()),
            End::Signal(_) => {
                // It was to end the loop, not what follows it.
                settle(&publisher, &interrupt);
                Some(finish_soon(publisher))
            }
            End::Row(_) => Some(finish_soon(publisher)),
        };
        bar.finish_and_clear();
        let acknowledged = matches!(finished, Some(Ok(_)));
        let summary = match &finished {
            Some(Ok(summary)) => *summary,
            _ => before,
        };
        let report = Report {
            stream: &arguments.stream,
            records: summary.records,
            bytes: summary.bytes,
            skipped: skipped.count(),
            resent_packets: summary.resent_packets,
            dropped_records: summary.dropped_records,
            missing_packets: summary.missing_packets,
            seconds: started.elapsed().as_secs_f64(),
            acknowledged,
        };
        say_summary(&report, &summary, started.elapsed(), transport);
        if arguments.json {
            out::print_json(&report)?;
        }
        if let Some(signal) = interrupt.caught() {
            return Err(Failure::Interrupted(signal));
        }
        match (end, finished) {
            (End::Row(error), _) => Err(row_failure(&error, name, is_inferred)),
            (End::Link(error), _) | (_, Some(Err(error))) => Err(link_failure(error)),
            (End::Signal(signal), _) => Err(Failure::Interrupted(signal)),
            (End::Input, _) => Ok(()),
        }
    }
}

/// Finishes, but does not wait long for a daemon that holds the publisher back.
fn finish_soon(publisher: Publisher) -> Result<PublishSummary, Error> {
    let interrupter = publisher.interrupter();
    // Detached: when the publisher is done earlier, the process ends and this with it.
    std::thread::spawn(move || {
        std::thread::sleep(FAREWELL);
        interrupter.interrupt();
    });
    publisher.finish()
}

fn say_summary(report: &Report<'_>, summary: &PublishSummary, time: Duration, transport: Transport) {
    let mut text = format!(
        "published {} ({}) to {} in {}, {}, {}",
        counted(report.records, "record"),
        bytes(summary.bytes),
        report.stream,
        seconds(time),
        rate(report.records, time),
        way(transport),
    );
    if report.skipped > 0 {
        text += &format!("; skipped {}", counted(report.skipped, "row"));
    }
    if report.dropped_records > 0 {
        text += &format!("; dropped {}, as the path had no room", counted(report.dropped_records, "record"));
    }
    if report.missing_packets > 0 {
        text += &format!("; {} did not arrive", counted(report.missing_packets, "packet"));
    }
    if !report.acknowledged {
        text += "; the last of them are not acknowledged";
    }
    out::say(text);
}

fn row_failure(error: &RowError, name: &str, is_inferred: bool) -> Failure {
    let failure = Failure::failed(format!("{name}: {}", error.text));
    match (error.is_row, is_inferred) {
        (true, _) if error.is_too_long => failure.hint(
            "spread the data of such a row over several, or put long text and lists into records of a stream of their own; \
             --on-error skip leaves such rows out",
        ),
        (true, true) => failure.hint("name a schema that fits with --schema, or skip such rows with --on-error skip"),
        (true, false) => failure.hint("correct the row or the schema, or skip such rows with --on-error skip"),
        (false, _) => failure,
    }
}

/// Keeps to a rate, counted from its start: a delay is caught up with.
struct Pace {
    started: Instant,
    per_s: f64,
    /// Records that may go before the clock is looked at again.
    free: u64,
}

impl Pace {
    fn new(per_s: f64) -> Pace {
        Pace { started: Instant::now(), per_s, free: 0 }
    }

    /// Sleeps until the record after these `records` is due.
    fn keep(&mut self, records: u64, interrupt: &Interrupt) {
        if records < self.free {
            return;
        }
        let due = Duration::from_secs_f64(records as f64 / self.per_s);
        let now = self.started.elapsed();
        if due > now {
            interrupt.sleep(due - now);
        }
        // At high rates a millisecond's worth goes at once: sleeps are no shorter.
        self.free = records + (self.per_s / 1000.0) as u64;
    }
}
