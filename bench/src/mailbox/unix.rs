//! The baseline `unix_stream`: a stream socket of the Unix family, plainly and well used.
//!
//! Both sides do with a message what the mailbox cases do: fill every byte, read every byte. They do it in buffers that
//! they keep, which is less than the mailboxes' allocating and freeing.

use super::measure::{BATCH, ONE_WAY_BYTES, SINGLE, check, fill, for_a_while, round_trips};
use crate::cpu::Error;
use crate::process::say;
use crossdock_device::pin_to_cpu;
use serde_json::json;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Instant;

/// The most that the receiver of a one-way run takes with one call.
const RECEIVE_BYTES: usize = 1 << 16;

/// How both sides wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Waiting {
    /// They try again at once
    Polling,
    /// The kernel wakes them
    Blocking,
}

/// A name without a file.
fn address(name: &str) -> Result<SocketAddr, Error> {
    Ok(SocketAddr::from_abstract_name(name)?)
}

/// The echoing side: one connection, until its end.
pub(super) fn echo(name: &str, bytes: usize, waiting: Waiting, cpu: usize) -> Result<(), Error> {
    let listener = UnixListener::bind_addr(&address(name)?)?;
    pin_to_cpu(cpu)?;
    say(&json!({"ready": true}));
    let (mut stream, _) = listener.accept()?;
    stream.set_nonblocking(waiting == Waiting::Polling)?;
    let (mut message, mut reply) = (vec![0; bytes], vec![0; bytes]);
    while read_whole(&mut stream, &mut message)? {
        // Reads all and fills all, as the mailbox task `copy` does.
        reply.copy_from_slice(&message);
        write_whole(&mut stream, &reply)?;
    }
    Ok(())
}

/// The pinging side.
pub(super) fn ping(name: &str, bytes: usize, waiting: Waiting, cpu: usize) -> Result<(), Error> {
    pin_to_cpu(cpu)?;
    let mut stream = UnixStream::connect_addr(&address(name)?)?;
    stream.set_nonblocking(waiting == Waiting::Polling)?;
    let (mut message, mut reply) = (vec![0; bytes], vec![0; bytes]);
    let mut number = 0;
    let batch = if waiting == Waiting::Polling && bytes < RECEIVE_BYTES { BATCH } else { SINGLE };
    round_trips(batch, || {
        number += 1;
        fill(&mut message, number);
        write_whole(&mut stream, &message)?;
        if !read_whole(&mut stream, &mut reply)? {
            return Err("the other side has ended".into());
        }
        check(&reply, bytes, number)
    })
}

/// The receiving side of a one-way run.
pub(super) fn sink(name: &str, cpu: usize) -> Result<(), Error> {
    let listener = UnixListener::bind_addr(&address(name)?)?;
    pin_to_cpu(cpu)?;
    say(&json!({"ready": true}));
    let (mut stream, _) = listener.accept()?;
    stream.set_nonblocking(true)?;
    let mut received = vec![0; RECEIVE_BYTES];
    let mut sum = 0u64;
    loop {
        match stream.read(&mut received) {
            Ok(0) => break,
            Ok(len) => sum = sum.wrapping_add(received[..len].iter().map(|&byte| u64::from(byte)).sum()),
            Err(error) if may_try_again(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    write_whole(&mut stream, &sum.to_le_bytes())
}

/// The sending side of a one-way run: one message a write, as many as the socket takes.
pub(super) fn source(name: &str, cpu: usize) -> Result<(), Error> {
    pin_to_cpu(cpu)?;
    let mut stream = UnixStream::connect_addr(&address(name)?)?;
    stream.set_nonblocking(true)?;
    let mut message = [0; ONE_WAY_BYTES];
    let mut expected = 0u64;
    let start = Instant::now();
    let messages = for_a_while(|first, count| {
        for number in first..first + count as u64 {
            fill(&mut message, number);
            expected += u64::from(number as u8) * ONE_WAY_BYTES as u64;
            write_whole(&mut stream, &message)?;
        }
        Ok(())
    })?;
    stream.shutdown(Shutdown::Write)?;
    let mut sum = [0; 8];
    if !read_whole(&mut stream, &mut sum)? || u64::from_le_bytes(sum) != expected {
        return Err("not all messages arrived as they were sent".into());
    }
    say(&json!({"msgs_per_s": messages as f64 / start.elapsed().as_secs_f64()}));
    Ok(())
}

fn may_try_again(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Fills `message` from the socket; `false` where it ended before the first byte.
fn read_whole(stream: &mut UnixStream, message: &mut [u8]) -> Result<bool, Error> {
    let mut have = 0;
    while have < message.len() {
        match stream.read(&mut message[have..]) {
            Ok(0) if have == 0 => return Ok(false),
            Ok(0) => return Err("the socket ended within a message".into()),
            Ok(len) => have += len,
            Err(error) if may_try_again(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}

fn write_whole(stream: &mut UnixStream, message: &[u8]) -> Result<(), Error> {
    let mut gone = 0;
    while gone < message.len() {
        match stream.write(&message[gone..]) {
            Ok(len) => gone += len,
            Err(error) if may_try_again(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
