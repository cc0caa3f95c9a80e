//! A service: the thread that carries out the calls of all its callers, and the handle by which it ends.

use super::super::{Implementation, MailboxOptions, Node};
use super::admission::Admission;
use super::caller::Caller;
use super::control::Control;
use super::counts::ServiceCounts;
use super::waiting::{Awaited, Waiting};
use super::{OwnMailbox, check_name, service_mailbox};
use crate::error::Error;
use crate::shared::Inner;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

/// Memory for results that the thread keeps from one call to the next, in bytes.
const KEPT_BYTES: usize = 1 << 20;

/// A procedure that this program serves ([`Node::serve`]). Dropping it ends the service; the call that is carried out then is the
/// last one, and is waited for. After that any program may serve a procedure of this name. Callers with calls that wait get [`CallError::Gone`](crate::CallError::Gone).
#[must_use = "the service ends when this is dropped"]
pub struct Service {
    name: String,
    control: Arc<Control>,
    threads: [Option<JoinHandle<()>>; 2],
}

impl Service {
    pub(super) fn start<F>(node: &Node, name: &str, procedure: F) -> Result<Service, Error>
    where
        F: FnMut(&[u8], &mut Vec<u8>) -> Result<(), String> + Send + 'static,
    {
        check_name(name)?;
        // A session of its own, with the ports and the memory for its callers: they are not those of the program's other mailboxes and
        // services.
        let node = &node.again()?;
        let options = MailboxOptions { implementation: Implementation::SignalQueue, ..MailboxOptions::default() };
        let mailbox =
            OwnMailbox::create(&node.session, service_mailbox(name), options).map_err(|error| match error {
                Error::Exists(_) => Error::Exists(format!(
                    "a program serves procedure `{name}` on this node already: stop it first, or choose another name"
                )),
                other => other,
            })?;
        let hellos = node.reader(&mailbox.name)?;
        let waiting = Waiting::new(&node.session)?;
        let control = Arc::new(Control::new(hellos.interrupter(), waiting.wakener()));
        let callers = Callers { control: Arc::clone(&control), callers: Vec::new() };
        let serving = Serving { callers, waiting, procedure, reply: Vec::new() };
        let (node, named) = (node.clone(), name.to_owned());
        let admission = Admission { node, name: named, control: Arc::clone(&control), hellos, mailbox };
        // Dropped, it ends the thread that was started.
        let mut service = Service { name: name.to_owned(), control, threads: [None, None] };
        service.threads[0] = Some(spawn("crossdock-admit", move || admission.run())?);
        service.threads[1] = Some(spawn("crossdock-serve", move || serving.run())?);
        Ok(service)
    }

    /// The procedure's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its counts so far.
    #[must_use]
    pub fn counts(&self) -> ServiceCounts {
        self.control.counts()
    }

    /// Whether it serves: it ends by itself when the connection is lost, and is started again by [`Node::serve`].
    #[must_use]
    pub fn is_running(&self) -> bool {
        !self.control.has_ended()
    }

    /// Ends it. The same as dropping it.
    pub fn stop(self) {}

    /// Waits until it ends by itself, for a program that does nothing else: it serves until the connection is lost.
    ///
    /// # Errors
    /// Why it ended.
    pub fn wait(mut self) -> Result<(), Error> {
        self.join();
        self.control.take_fault().map_or(Ok(()), Err)
    }

    fn join(&mut self) {
        for thread in self.threads.iter_mut().filter_map(Option::take) {
            // A procedure may own what drops its service.
            if thread.thread().id() != thread::current().id() {
                let _ended = thread.join();
            }
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.control.end(None);
        self.join();
    }
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").field("name", &self.name).field("counts", &self.counts()).finish_non_exhaustive()
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Error> {
    thread::Builder::new().name(name.to_owned()).spawn(run).map_err(Error::system("starting a thread of the service"))
}

/// All callers.
struct Callers {
    control: Arc<Control>,
    callers: Vec<Caller>,
}

impl Awaited for Callers {
    #[inline]
    fn take_in(&mut self) -> bool {
        let Callers { control, callers } = self;
        let mut any = control.take_admitted(callers);
        for caller in callers {
            any |= caller.take_in(&control.counts);
        }
        any
    }

    fn is_due(&self, inner: &mut Inner) -> bool {
        self.control.has_changed() || self.callers.iter().any(|caller| caller.is_due(inner))
    }
}

/// The thread that carries out the calls.
struct Serving<F> {
    callers: Callers,
    waiting: Waiting,
    procedure: F,
    /// Kept for its memory.
    reply: Vec<u8>,
}

impl<F: FnMut(&[u8], &mut Vec<u8>) -> Result<(), String>> Serving<F> {
    /// Until the service stops or the connection is gone.
    fn run(mut self) {
        loop {
            if self.serve_each() {
                self.callers.take_in();
            } else {
                let owes_until = self.callers.callers.iter().filter_map(Caller::owes_until).min();
                if let Err(error) = self.waiting.wait(owes_until, &mut self.callers) {
                    return self.callers.control.end(Some(error));
                }
            }
            if self.callers.control.has_ended() {
                return;
            }
            self.forget();
        }
    }

    /// Carries out one call of each caller that has one; whether there was any.
    fn serve_each(&mut self) -> bool {
        let Serving { callers: Callers { control, callers }, procedure, reply, .. } = self;
        let mut any = false;
        for caller in callers {
            if control.has_ended() {
                break;
            }
            any |= caller.serve_next(procedure, reply, &control.counts);
        }
        reply.shrink_to(KEPT_BYTES);
        any
    }

    /// Callers that are gone make room for others.
    fn forget(&mut self) {
        let Callers { control, callers } = &mut self.callers;
        callers.extract_if(.., |caller| caller.is_gone()).for_each(|caller| control.forget(&caller));
    }
}
