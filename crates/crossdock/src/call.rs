//! `crossdock call`: a procedure of a program on a node.

use std::io::{IsTerminal, Read};

use crossdock_nectarine::CallError;

use crate::cli::Call;
use crate::failure::{Failure, Outcome};
use crate::mailbox::{MAX_MESSAGE_BYTES, find};
use crate::trace::TraceOutput;
use crate::{mailbox, out};

/// Calls a procedure and prints the result's bytes.
pub(crate) fn run(arguments: &Call) -> Outcome {
    let trace = TraceOutput::begin(&arguments.tracing, "call")?;
    let request = match &arguments.request {
        Some(request) => request.clone().into_bytes(),
        None => read_request()?,
    };
    let (node, name) = find(&arguments.link, &arguments.service, trace.get())?;
    let procedure = node.procedure(name).map_err(failure)?;
    let reply = procedure.call(&request, arguments.deadline).map_err(failure)?;
    out::print(&*reply)?;
    // On a terminal, the next prompt has a line of its own.
    if std::io::stdout().is_terminal() && reply.last() != Some(&b'\n') { out::print("\n") } else { Ok(()) }
}

fn read_request() -> Outcome<Vec<u8>> {
    let mut request = Vec::new();
    std::io::stdin()
        .lock()
        .take(MAX_MESSAGE_BYTES + 1)
        .read_to_end(&mut request)
        .map_err(|error| Failure::failed(format!("standard input cannot be read: {error}")))?;
    Ok(request)
}

fn failure(error: CallError) -> Failure {
    match error {
        CallError::Node(error) => mailbox::failure(error),
        CallError::DeadlinePassed => Failure::failed(error).hint("--deadline sets a longer one"),
        error => Failure::failed(error),
    }
}
