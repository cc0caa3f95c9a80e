//! `crossdock bench`: load for a running daemon, and what it takes.

use std::time::{Duration, Instant};

use crossdock_nectarine::{
    Error, Interrupter, MailboxOptions, Message, Node, Put, Reader, Wait, Writer, WriterOptions,
};
use serde::Serialize;

use crate::cli::{BenchCommand, BenchMailbox};
use crate::failure::{Failure, Outcome};
use crate::mailbox::{MAX_MESSAGE_BYTES, connect, failure};
use crate::out;
use crate::quantity::{bytes, rate, seconds, way};
use crate::signals::Interrupt;
use crate::table::{Side, Width, render};

/// Messages of a call that puts many, and between two looks at the clock, at most; and their bytes.
const BURST: usize = 1024;
const BURST_BYTES: usize = 1 << 20;
/// Round trips before the first that counts: caches and page tables fill.
const WARM_UP: usize = 1000;
/// Round trips whose times are kept, in 4 bytes each.
const MOST_TIMES: usize = 1 << 24;

/// `crossdock bench`.
pub(crate) fn run(command: &BenchCommand) -> Outcome {
    match command {
        BenchCommand::Mailbox(arguments) => mailbox(arguments),
    }
}

/// The results of a case.
#[derive(Serialize)]
struct Measured {
    case: &'static str,
    /// Of each message.
    bytes: usize,
    messages: u64,
    seconds: f64,
    msgs_per_s: f64,
    /// Of a round trip; not in one direction.
    #[serde(skip_serializing_if = "Option::is_none")]
    rtt_ns_p50: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rtt_ns_p99: Option<u32>,
}

fn mailbox(arguments: &BenchMailbox) -> Outcome {
    let size = usize::try_from(arguments.size).unwrap_or(usize::MAX);
    if !(8..=MAX_MESSAGE_BYTES).contains(&arguments.size) {
        return Err(Failure::usage("--size is 8 bytes to 16 MiB, the longest message"));
    }
    if arguments.duration.is_zero() {
        return Err(Failure::usage("--for is longer than 0"));
    }
    let interrupt = Interrupt::install()?;
    let node = connect(&arguments.link, None)?;
    interrupt.arm();
    let mut all = Vec::new();
    for (case, task) in
        [("enqueue", "echo"), ("put_get", "copy"), ("one_way", "discard"), ("one_way_single", "discard")]
    {
        let pair = Pair::new(&node, (case, task), size).map_err(failure)?;
        let ends = [pair.writer.interrupter(), pair.reader.interrupter()];
        interrupt.on_raise(move || ends.iter().for_each(Interrupter::interrupt));
        let run = BenchRun { size, duration: arguments.duration, interrupt: &interrupt };
        let measured = match case {
            "enqueue" => run.round_trips(case, pair.enqueue_trips()),
            "put_get" => run.round_trips(case, pair.put_get_trips()),
            _ => run.one_way(case, pair.writer, case == "one_way").map_err(failure),
        };
        // Ended by a signal: what was measured until then says nothing.
        if let Some(signal) = interrupt.caught() {
            return Err(Failure::Interrupted(signal));
        }
        let measured = measured?;
        match arguments.json {
            true => out::print_json(&measured)?,
            false => all.push(measured),
        }
    }
    if !arguments.json {
        out::print(table(&all))?;
    }
    out::say(format_args!("messages of {}, {}", bytes(arguments.size), way(node.transport())));
    Ok(())
}

/// The cases, one in a line.
fn table(all: &[Measured]) -> String {
    let headings = [
        ("case", Side::Left),
        ("messages", Side::Right),
        ("time", Side::Right),
        ("rate", Side::Right),
        ("p50", Side::Right),
        ("p99", Side::Right),
    ];
    let rows = all.iter().map(|measured| {
        let time = Duration::from_secs_f64(measured.seconds);
        let trip = |ns: Option<u32>| ns.map_or(String::new(), |ns| format!("{:.2} us", f64::from(ns) / 1e3));
        vec![
            measured.case.to_owned(),
            measured.messages.to_string(),
            seconds(time),
            rate(measured.messages, time),
            trip(measured.rtt_ns_p50),
            trip(measured.rtt_ns_p99),
        ]
    });
    render(&headings, rows, Width::of_stdout())
}

/// A mailbox that a task reads, and the one that it answers in.
struct Pair {
    writer: Writer,
    reader: Reader,
    size: usize,
}

impl Pair {
    fn new(node: &Node, (case, task): (&str, &str), size: usize) -> Result<Pair, Error> {
        let [requests, replies] =
            ["requests", "replies"].map(|end| format!("bench {} {case} {end}", std::process::id()));
        for name in [&requests, &replies] {
            node.create_mailbox(name, MailboxOptions::default())?;
        }
        let answers = (task != "discard").then_some(("to", replies.as_str()));
        node.create_task(task, &requests, answers)?;
        let message_bytes = u32::try_from(size).ok();
        let writer = node.writer_with(&requests, WriterOptions { message_bytes, ..WriterOptions::default() })?;
        Ok(Pair { writer, reader: node.reader(&replies)?, size })
    }

    fn begin_put(&mut self) -> Outcome<Put> {
        let put = self.writer.begin_put_by(self.size, Wait::Poll).and_then(|put| put.ok_or(Error::Interrupted));
        put.map_err(failure)
    }

    fn begin_get(&mut self) -> Outcome<Message> {
        let message = self.reader.begin_get_by(Wait::Poll).and_then(|message| message.ok_or(Error::Interrupted));
        message.map_err(failure)
    }

    fn end_put(&mut self, put: Put) -> Outcome {
        self.writer.end_put(put).map_err(failure)
    }

    /// Hands on the message that came back last, or a first one, and gets it back.
    fn enqueue_trips(mut self) -> impl FnMut() -> Outcome {
        let mut last: Option<Message> = None;
        move || {
            match last.take() {
                Some(message) => self.reader.enqueue(message, &mut self.writer).map_err(failure)?,
                None => {
                    let mut put = self.begin_put()?;
                    put.fill(0);
                    self.end_put(put)?;
                }
            }
            last = Some(self.begin_get()?);
            Ok(())
        }
    }

    /// Fills a message, and reads the copy of it.
    fn put_get_trips(mut self) -> impl FnMut() -> Outcome {
        let mut number = 0u8;
        move || {
            number = number.wrapping_add(1);
            let mut put = self.begin_put()?;
            put.fill(number);
            self.end_put(put)?;
            let message = self.begin_get()?;
            let sum: u64 = message.iter().map(|&byte| u64::from(byte)).sum();
            let is_same = message.len() == self.size && sum == u64::from(number) * self.size as u64;
            self.reader.end_get(message);
            if is_same { Ok(()) } else { Err(Failure::failed("another message came back than was put")) }
        }
    }
}

/// A case that runs.
struct BenchRun<'a> {
    size: usize,
    duration: Duration,
    interrupt: &'a Interrupt,
}

impl BenchRun<'_> {
    /// Whether the case is over.
    fn is_over(&self, start: Instant) -> bool {
        start.elapsed() >= self.duration || self.interrupt.caught().is_some()
    }

    /// Makes round trips, each timed for itself: that a look at the clock takes about 25 ns is in the figures.
    fn round_trips(&self, case: &'static str, mut trip: impl FnMut() -> Outcome) -> Outcome<Measured> {
        let start = Instant::now();
        for _ in 0..WARM_UP {
            if self.is_over(start) {
                break;
            }
            trip()?;
        }
        let mut times: Vec<u32> = Vec::new();
        let start = Instant::now();
        let mut last = start;
        while last - start < self.duration && times.len() < MOST_TIMES && self.interrupt.caught().is_none() {
            trip()?;
            let now = Instant::now();
            times.push(u32::try_from((now - last).as_nanos()).unwrap_or(u32::MAX));
            last = now;
        }
        let messages = times.len() as u64;
        times.sort_unstable();
        let quantile = |part: f64| times.get((times.len() as f64 * part) as usize).copied();
        let (middle, slow) = (quantile(0.5), quantile(0.99));
        Ok(Measured { rtt_ns_p50: middle, rtt_ns_p99: slow, ..self.measured(case, messages, last - start) })
    }

    /// Puts messages as fast as the task takes them.
    fn one_way(&self, case: &'static str, mut writer: Writer, together: bool) -> Result<Measured, Error> {
        let burst = (BURST_BYTES / self.size).clamp(1, BURST);
        let (start, mut messages) = (Instant::now(), 0);
        while !self.is_over(start) {
            if together {
                writer.put_many_with(burst, self.size, |at, message| message.fill(at as u8))?;
            } else {
                for at in 0..burst {
                    let mut put = writer.begin_put(self.size)?;
                    put.fill(at as u8);
                    writer.end_put(put)?;
                }
            }
            messages += burst as u64;
        }
        writer.flush()?;
        Ok(self.measured(case, messages, start.elapsed()))
    }

    fn measured(&self, case: &'static str, messages: u64, time: Duration) -> Measured {
        let seconds = time.as_secs_f64();
        let msgs_per_s = messages as f64 / seconds.max(f64::MIN_POSITIVE);
        Measured { case, bytes: self.size, messages, seconds, msgs_per_s, rtt_ns_p50: None, rtt_ns_p99: None }
    }
}
