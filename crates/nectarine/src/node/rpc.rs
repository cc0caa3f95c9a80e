//! Procedures that programs offer by name, and calls of them (Nectar paper, sections 3.2 and 4: request-response, the transport of
//! "client-server RPC calls"). All of it is mailboxes: it goes by shared memory or by packets as they do.
//!
//! A service's mailbox `rpc.NAME` has any number of writers. A caller makes a mailbox for its replies, and says hello with the random
//! number from which the names of both its mailboxes follow. The service makes the one for the requests: it belongs to the service's
//! session and goes with it, so no later service carries out what was asked of an earlier one. Both are of one writer and one
//! reader, the quickest there are. Call numbers rise, and the service drops one that it has had: each call is carried out at most once.

mod admission;
mod caller;
mod control;
mod counts;
pub(crate) mod header;
mod procedure;
mod serving;
mod waiting;

pub use counts::ServiceCounts;
pub use procedure::{Call, Procedure, Reply};
pub use serving::Service;

use super::session::NodeSession;
use super::{MailboxOptions, Node};
use crate::error::Error;
use crossdock_mailbox::client::MailboxError;
use crossdock_transport::Request;
use std::sync::Arc;
use std::time::Duration;

/// Callers of a service at a time: each takes two of the 62 ports that a session has for its mailboxes by shared memory.
const MOST_CALLERS: usize = 24;
/// Calls of one caller that wait for their results: more would wait behind one another in the service, which carries out one at a time.
const MOST_CALLS: usize = 64;
/// Longest name of a procedure, in bytes: a mailbox's name has 255, and holds a prefix and a number too.
const MOST_NAME_BYTES: usize = 200;
/// Longest text of an error, in bytes: it is made for a person to read.
const MOST_TEXT_BYTES: usize = 4096;

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The procedure's own error.
    #[error("{0}")]
    Failed(String),
    /// The procedure panicked; its service goes on.
    #[error("the procedure panicked: {0}")]
    Panicked(String),
    /// Nobody serves it.
    #[error("no program serves procedure `{0}` on this node: start it first, or check the name")]
    NoProcedure(String),
    /// The deadline passed before the result came. The call may have been carried out, and is not carried out twice.
    #[error("the deadline passed before the result came; the call may or may not have been carried out")]
    DeadlinePassed,
    /// The service or the connection is gone. The call may have been carried out.
    #[error("the service of procedure `{name}` is gone ({reason}); the call may or may not have been carried out")]
    Gone {
        /// The procedure's name.
        name: String,
        /// Why.
        reason: String,
    },
    /// The request is longer than a message may be.
    #[error("the request has {bytes} bytes, and one may have at most {most}: send it in parts")]
    TooLong {
        /// Its length in bytes.
        bytes: usize,
        /// The fitting length, in bytes.
        most: usize,
    },
    /// The procedure was carried out, and its result is longer than a message may be.
    #[error("the result has {bytes} bytes, and one may have at most {most}: ask for it in parts")]
    ReplyTooLong {
        /// Its length in bytes.
        bytes: usize,
        /// The fitting length, in bytes.
        most: usize,
    },
    /// As many calls wait for their results as may.
    #[error("{most} calls of this procedure wait for their results, the most at a time: wait for some first")]
    TooManyCalls {
        /// How many there may be.
        most: usize,
    },
    /// The service has as many callers as it may.
    #[error("the service of procedure `{name}` has as many callers as it can: drop one, or share one")]
    TooManyCallers {
        /// The procedure's name.
        name: String,
    },
    /// Something else about the node.
    #[error("{0}")]
    Node(#[from] Error),
}

impl Node {
    /// Offers a procedure by name on this node to callers anywhere, until the [`Service`] is dropped. It has a connection of its own
    /// to the daemon, so neither its callers nor their messages take anything from the program's mailboxes. A thread of its own calls
    /// `procedure`, one call at a time, with the request's bytes, read in place, and an empty vector for the result's; an error is
    /// the caller's [`CallError::Failed`]. If it panics, that is the caller's [`CallError::Panicked`], and the next call comes.
    ///
    /// No caller delays others: a result for which there is no room in its caller's mailbox waits until the call's deadline, and with it
    /// the further calls of this caller.
    ///
    /// # Errors
    /// The name does not fit; a program serves it on this node already; the connection is gone.
    ///
    /// # Examples
    /// ```no_run
    /// use crossdock_nectarine::Node;
    /// use std::time::Duration;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let node = Node::connect("127.0.0.1:7440")?;
    /// let service = node.serve("reverse", |request: &[u8], reply: &mut Vec<u8>| {
    ///     reply.extend(request.iter().rev());
    ///     Ok(())
    /// })?;
    ///
    /// // Here or in any other program:
    /// let reverse = node.procedure("reverse")?;
    /// let reply = reverse.call(b"desserts", Duration::from_secs(1))?;
    /// assert_eq!(&*reply, b"stressed");
    /// service.stop();
    /// # Ok(())
    /// # }
    /// ```
    pub fn serve<F>(&self, name: &str, procedure: F) -> Result<Service, Error>
    where
        F: FnMut(&[u8], &mut Vec<u8>) -> Result<(), String> + Send + 'static,
    {
        Service::start(self, name, procedure)
    }

    /// Finds a procedure that a program serves on this node, for calls by one thread. Each further thread takes its own.
    ///
    /// # Errors
    /// [`CallError::NoProcedure`]; [`CallError::TooManyCallers`]; [`CallError::DeadlinePassed`] if its program does not answer within
    /// the node's `connect_timeout`; the connection is gone.
    ///
    /// # Examples
    /// Several calls at a time:
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let node = crossdock_nectarine::Node::connect("127.0.0.1:7440")?;
    /// let square = node.procedure("square")?;
    /// let deadline = std::time::Duration::from_secs(1);
    /// let calls = (0..8u8).map(|number| square.begin_call(&[number], deadline)).collect::<Result<Vec<_>, _>>()?;
    /// for call in calls {
    ///     println!("{:?}", &*call.wait()?);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn procedure(&self, name: &str) -> Result<Procedure, CallError> {
        Procedure::find(self, name)
    }
}

/// The name of a service's mailbox.
fn service_mailbox(name: &str) -> String {
    format!("rpc.{name}")
}

/// The name of a caller's mailbox for requests. No service has such a name.
fn request_mailbox(name: &str, caller: u64) -> String {
    format!("rpc-request.{name}.{caller:016x}")
}

/// The name of a caller's mailbox for replies. No service has such a name.
fn reply_mailbox(name: &str, caller: u64) -> String {
    format!("rpc-reply.{name}.{caller:016x}")
}

/// Refuses a name that no procedure has.
fn check_name(name: &str) -> Result<(), Error> {
    let fits = (1..=MOST_NAME_BYTES).contains(&name.len()) && !name.contains(|c: char| c == '/' || c.is_control());
    fits.then_some(()).ok_or(Error::ProcedureName { most: MOST_NAME_BYTES })
}

/// The excess of a message without a header's bytes: its length and what fits; `None` if that is not the error.
fn too_long(error: &Error) -> Option<(usize, usize)> {
    match *error {
        Error::RemoteTooLong { bytes, most } | Error::Memory(MailboxError::TooLong { bytes, most }) => {
            let without_header = |bytes: usize| bytes.saturating_sub(header::HEADER_BYTES);
            Some((without_header(bytes), without_header(most)))
        }
        _ => None,
    }
}

/// A mailbox of this process, which goes soon after this is dropped.
struct OwnMailbox {
    session: Arc<NodeSession>,
    /// The session in which it was made.
    number: u64,
    name: String,
    is_deleted: bool,
}

impl OwnMailbox {
    fn create(session: &Arc<NodeSession>, name: String, options: MailboxOptions) -> Result<OwnMailbox, Error> {
        let MailboxOptions { implementation, bound_messages, bound_bytes } = options;
        let wanted = name.clone();
        let request = |id| Request::CreateMailbox { id, name: wanted, implementation, bound_messages, bound_bytes };
        let (_, number) = session.ask_after(|_, id| request(id))?;
        Ok(OwnMailbox { session: Arc::clone(session), number, name, is_deleted: false })
    }
}

impl OwnMailbox {
    /// Waits until it is gone: then another program may make one of that name.
    fn delete(mut self) {
        self.session.delete_mailbox(self.number, &self.name);
        self.is_deleted = true;
    }
}

impl Drop for OwnMailbox {
    fn drop(&mut self) {
        if !self.is_deleted {
            self.session.forget_mailbox(self.number, &self.name);
        }
    }
}

/// A deadline as a header has it.
fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_fits_or_is_refused_with_what_fits() {
        for name in ["a", "a.b", "übung 7", &"n".repeat(200)] {
            check_name(name).unwrap();
            let mailbox = reply_mailbox(name, u64::MAX);
            assert!(mailbox.len() <= 255 && mailbox != service_mailbox(name));
        }
        for name in ["", "a/b", "a\nb", &"n".repeat(201)] {
            let error = check_name(name).unwrap_err();
            assert!(error.is_usage() && error.to_string().contains("1 to 200 bytes"), "{error}");
        }
    }
}
