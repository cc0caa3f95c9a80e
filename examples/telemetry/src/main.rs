//! An example: a protocol of an application's own in a session between two programs, beside the three classes that every session
//! has. The protocol is in `sequenced.rs`; this file is the two programs.
//!
//! ```text
//! telemetry listen              prints its address, and each reading that comes
//! telemetry send ADDRESS COUNT  sends readings until COUNT were delivered, and prints what the other program has seen
//! ```

#![forbid(unsafe_code)]

mod sequenced;

use crossdock_nectarine::{Direct, Error};
use sequenced::{NUMBER, Seen, Telemetry};
use std::error;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);
/// Readings between two questions for what was seen.
const ASK_EVERY: u32 = 16;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments[..] {
        ["listen"] => listen(),
        ["send", address, count] => send(address, count),
        _ => {
            eprintln!("usage: telemetry listen | telemetry send ADDRESS COUNT");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("telemetry: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Takes readings until the other program ends the session.
fn listen() -> Result<(), Box<dyn error::Error>> {
    let mut session = Direct::listen("127.0.0.1:0".parse()?)?;
    let print = |number: u32, reading: &[u8]| {
        // Whoever reads them may have gone.
        let _ = writeln!(io::stdout(), "{number} {}", String::from_utf8_lossy(reading));
    };
    session.register(NUMBER, Telemetry::new(0, print))?;
    writeln!(io::stdout(), "{}", session.local_addr())?;
    loop {
        match session.turn() {
            Ok(()) => {}
            Err(Error::Closed(_)) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let seen = session.protocol_mut::<Telemetry>(NUMBER).map(|telemetry| telemetry.seen).unwrap_or_default();
        session.serve(|_, reply| {
            [seen.end, seen.delivered, seen.late].iter().for_each(|count| reply.extend(count.to_le_bytes()));
            Ok(())
        })?;
        std::thread::yield_now();
    }
}

/// Sends readings until `count` were delivered; calls of the other program go beside them.
fn send(address: &str, count: &str) -> Result<(), Box<dyn error::Error>> {
    let count: u32 = count.parse()?;
    let mut session = Direct::connect(address.parse()?, PATIENCE)?;
    session.register(NUMBER, Telemetry::new(1, |_, _| {}))?;
    let mut sent = 0;
    loop {
        session.turn()?;
        let reading = format!("{} hPa", 1000 + sent % 50);
        sent += u32::from(session.send_by(NUMBER, reading.as_bytes())?);
        if sent > 0 && sent.is_multiple_of(ASK_EVERY) {
            let seen = seen(&session.call(b"seen", PATIENCE)?).ok_or("the reply is not one of telemetry")?;
            if seen.delivered >= count {
                let Seen { end, delivered, late } = seen;
                writeln!(io::stdout(), "sent {sent}, seen up to {end}, delivered {delivered}, late {late}")?;
                return Ok(());
            }
        }
    }
}

/// The reply of the other program.
fn seen(reply: &[u8]) -> Option<Seen> {
    let mut counts = reply.chunks_exact(4).map(|count| count.try_into().map(u32::from_le_bytes));
    let mut next = || counts.next()?.ok();
    Some(Seen { end: next()?, delivered: next()?, late: next()? })
}
