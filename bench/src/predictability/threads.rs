//! The job in an ordinary program, a process of its own: a thread that receives datagrams, a thread for each handler, and channels
//! between. The last handler's thread sends the answers.

use super::{JobHandler, job, measured};
use crate::cores::{Cores, short_turns};
use crate::cpu::Error;
use crate::flights;
use crate::inside::{Runs, Shared, pinned, stamp_offset};
use crate::load;
use crate::process::{Process, say};
use crossdock_engine::{Handler, Sink, Verdict};
use crossdock_format::Format;
use crossdock_mailbox::{Batch, Pool, PoolConfig, Selection, Slice, Span};
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_recv_buffer_size_force};
use serde_json::json;
use std::net::{SocketAddr, UdpSocket};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// The longest datagram, in bytes.
const MOST_BYTES: usize = 64 << 10;
/// Receive buffer of a socket, in bytes: the daemon's.
const SOCKET_BYTES: usize = 4 << 20;
/// Batches of a pool: more than wait in channels when a thread stops for 100 ms.
const BATCHES: usize = 4096;
/// No datagram for this time means that the other end is gone.
const PATIENCE: Duration = Duration::from_secs(10);

/// A socket at a free port of loopback, with room for what comes while its thread waits for a processor.
fn socket() -> Result<UdpSocket, Error> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    set_socket_recv_buffer_size_force(&socket, SOCKET_BYTES)
        .or_else(|_| set_socket_recv_buffer_size(&socket, SOCKET_BYTES))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(socket)
}

/// A handler's output.
#[derive(Default)]
struct Rows {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

impl Sink for Rows {
    fn push(&mut self, record: &[u8]) {
        let (start, len) = (self.bytes.len() as u32, record.len() as u32);
        self.spans.push(Span { slice: 0, start, len });
        self.bytes.extend_from_slice(record);
    }
}

impl Rows {
    /// The batch of them; none if there are none.
    fn batch(&mut self, pool: &mut Pool, format: u64) -> Result<Option<Batch>, Error> {
        if self.spans.is_empty() {
            return Ok(None);
        }
        let mut buffer = pool.alloc(self.bytes.len()).ok_or("no buffer is free")?;
        buffer[..self.bytes.len()].copy_from_slice(&self.bytes);
        let mut batch = Batch::new();
        batch.format = format;
        batch.push_buffer(buffer.freeze())?;
        let (len, records) = (self.bytes.len() as u32, self.spans.len() as u32);
        batch.push_slice(Slice { buffer: 0, start: 0, len, records })?;
        batch.records.append(&mut self.spans);
        batch.select_all();
        self.bytes.clear();
        Ok(Some(batch))
    }
}

fn pool() -> Result<Pool, Error> {
    Ok(Pool::new(PoolConfig { classes: vec![(16 << 10, BATCHES)] })?)
}

/// Receives datagrams until an empty one; how many came.
fn receive(socket: &UdpSocket, output: &Sender<Batch>) -> Result<u64, Error> {
    let (format, mut pool) = (flights::format()?, pool()?);
    let mut datagram = vec![0; MOST_BYTES];
    let mut received = 0;
    loop {
        let len = socket.recv(&mut datagram)?;
        if len == 0 {
            return Ok(received);
        }
        received += 1;
        let batch = load::batch(&mut pool, &format, &datagram[..len])?;
        output.send(batch).map_err(|_| "a handler's thread has ended")?;
    }
}

/// One handler's thread: batch after batch, until the thread before it has ended.
fn work(
    step: JobHandler,
    input: &Receiver<Batch>,
    mut output: impl FnMut(Batch) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut handler: Box<dyn Handler> = step.entry.handler;
    let (mut pool, mut selection, mut rows) = (pool()?, Selection::default(), Rows::default());
    while let Ok(batch) = input.recv() {
        selection.select_all(batch.len());
        if handler.process(&batch, &mut selection, &mut rows) == Verdict::Forward {
            selection.iter().for_each(|index| rows.push(batch.record(index)));
        }
        if let Some(made) = rows.batch(&mut pool, step.output.id().0)? {
            output(made)?;
        }
    }
    Ok(())
}

/// The program's process: it answers to an address, and ends after an empty datagram, with an empty answer.
pub(super) fn serve(to: SocketAddr) -> Result<(), Error> {
    let (incoming, outgoing) = (socket()?, UdpSocket::bind("127.0.0.1:0")?);
    let mut steps = job()?;
    let last = steps.pop().ok_or("the job has no steps")?;
    say(&json!({"listen": incoming.local_addr()?.to_string()}));
    let words = |error: Error| error.to_string();
    let (received, answered) = std::thread::scope(|scope| {
        let (first, mut from) = channel();
        let receiving = scope.spawn(move || receive(&incoming, &first).map_err(words));
        let mut threads = Vec::new();
        for step in steps {
            let (output, next) = channel();
            let input = std::mem::replace(&mut from, next);
            let pass = move |made| output.send(made).map_err(|_| "a handler's thread has ended".into());
            threads.push(scope.spawn(move || work(step, &input, pass).map_err(words)));
        }
        let answers = move || {
            let mut answered = 0u64;
            let answer = |made: Batch| {
                outgoing.send_to(made.slice(0), to)?;
                answered += 1;
                Ok(())
            };
            work(last, &from, answer).and_then(|()| Ok(outgoing.send_to(&[], to)?)).map_err(words)?;
            Ok::<_, String>(answered)
        };
        let answering = scope.spawn(answers);
        let panicked = |_| "a thread panicked".to_owned();
        for thread in threads {
            thread.join().map_err(panicked)??;
        }
        Ok::<_, String>((receiving.join().map_err(panicked)??, answering.join().map_err(panicked)??))
    })?;
    say(&json!({"received": received, "answered": answered}));
    Ok(())
}

/// Takes answers until an empty one; their latencies, run by run, and how many came.
fn take_answers(socket: &UdpSocket, shared: &Shared, format: &Format) -> Result<(Vec<Vec<u64>>, u64), Error> {
    let (sent_at, mut runs) = (stamp_offset(format)?, Runs::new(shared));
    let (mut datagram, mut spans, mut answers) = (vec![0; MOST_BYTES], Vec::new(), 0);
    loop {
        let len = socket.recv(&mut datagram)?;
        if len == 0 {
            return Ok((runs.taken, answers));
        }
        answers += 1;
        spans.clear();
        format.check_records(&datagram[..len], |start, len| spans.push((start as usize, len as usize)))?;
        runs.take(sent_at, spans.iter().map(|&(start, len)| &datagram[start..start + len]));
    }
}

/// Latencies of the records that come out, in ns; an error if any datagram was lost.
pub(super) fn run(cores: Cores, run_ms: u64) -> Result<Vec<u64>, Error> {
    let (to, from) = (UdpSocket::bind("127.0.0.1:0")?, socket()?);
    let mut program =
        Process::role(&["predictability", "threads", &from.local_addr()?.to_string()].map(str::to_owned))?;
    let listening = program.next_report()?;
    to.connect(listening["listen"].as_str().ok_or("the program did not say where it listens")?)?;
    let output = job()?.pop().ok_or("the job has no steps")?.output;
    let (mut sent, mut answers) = (0u64, 0u64);
    let latencies = measured(
        run_ms,
        |shared| {
            pinned(cores.client)?;
            short_turns();
            shared.pace(|records| {
                sent += 1;
                to.send(records)?;
                Ok(())
            })?;
            to.send(&[])?;
            Ok(())
        },
        || Ok(()),
        |shared| {
            pinned(cores.client)?;
            short_turns();
            let (taken, came) = take_answers(&from, shared, &output)?;
            answers = came;
            Ok(taken)
        },
    )?;
    let counts = program.next_report()?;
    program.end()?;
    match (counts["received"].as_u64(), counts["answered"].as_u64()) {
        (Some(received), Some(answered)) if received == sent && answered == answers => Ok(latencies),
        _ => Err(format!("datagrams were lost: {sent} sent, {counts}, {answers} answers came").into()),
    }
}
