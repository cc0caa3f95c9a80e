//! What several requests are refused for.

use crossdock_format::Format;
use crossdock_transport::control::{Refusal, RefusalCode};
use crossdock_transport::{HEADER_BYTES, MAX_SUPER_BYTES};

/// A refusal with its message.
pub(crate) fn refuse(code: RefusalCode, message: impl Into<String>) -> Refusal {
    Refusal { code, message: message.into() }
}

/// Whether records of a format can be in a packet.
pub(crate) fn fits_a_packet(format: &Format) -> Result<(), Refusal> {
    let (bytes, most) = (format.fixed_bytes(), MAX_SUPER_BYTES - HEADER_BYTES);
    if bytes <= most {
        return Ok(());
    }
    let id = format.id();
    let message = format!("records of format {id} take {bytes} bytes at least; a packet holds {most}");
    Err(refuse(RefusalCode::Format, message))
}

/// The context has stopped, so it cannot answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the context has stopped")]
pub struct Stopped;
