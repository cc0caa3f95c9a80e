//! The trace of a command's session.

use crossdock_nectarine::Trace;

use crate::cli::Tracing;
use crate::failure::{Failure, Outcome};
use crate::out;

/// The trace that a command writes, if it writes one. The file is complete when this is dropped, so this is to outlive the session.
pub(crate) struct TraceOutput(Option<Trace>);

impl TraceOutput {
    /// Begins the trace of `crossdock COMMAND`. If the file cannot be written to its end, that is a warning.
    ///
    /// # Errors
    /// The file cannot be made or written.
    pub(crate) fn begin(arguments: &Tracing, command: &str) -> Outcome<TraceOutput> {
        let Some(path) = &arguments.trace else { return Ok(TraceOutput(None)) };
        let name = path.display().to_string();
        let warn = move |error| out::say(format_args!("warning: the trace {name} is incomplete: {error}"));
        let trace = Trace::create(path, &format!("crossdock {command}"), warn)
            .map_err(|error| Failure::usage(format!("cannot write the trace {}: {error}", path.display())))?;
        Ok(TraceOutput(Some(trace)))
    }

    /// The trace for the session.
    pub(crate) fn get(&self) -> Option<&Trace> {
        self.0.as_ref()
    }
}

impl Drop for TraceOutput {
    fn drop(&mut self) {
        if let Some(trace) = &self.0 {
            trace.finish();
        }
    }
}
