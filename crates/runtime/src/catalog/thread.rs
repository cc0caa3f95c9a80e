//! The control thread: it has the catalog, and carries out requests one after the other, in the order in which they
//! come. Nothing that takes long runs here, so no request waits for what another one has compiled or measured.

use super::{Catalog, Snapshot};
use crate::refusal::Stopped;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;

/// A request.
type Request = Box<dyn FnOnce(&mut Catalog) + Send>;

enum Job {
    Request(Request),
    Stop,
}

/// The way to the catalog. Cheap to clone. The number of requests that wait is bounded by the numbers of sessions, their formats,
/// subscriptions and handlers. Each session, subscription and handler has one under way. A format adds one for its first record
/// and up to two for its end, and a session has up to 256 formats.
#[derive(Clone, Debug)]
pub(crate) struct CatalogHandle {
    jobs: Sender<Job>,
}

/// The catalog's end of a [`CatalogHandle`], before its thread is started.
pub(crate) struct Requests(Receiver<Job>);

impl Requests {
    /// Carries out what waits, on this thread. Whether anything did.
    #[cfg(test)]
    pub(crate) fn take_waiting(&self, catalog: &mut Catalog) -> bool {
        let mut any = false;
        while let Ok(Job::Request(request)) = self.0.try_recv() {
            request(catalog);
            catalog.expire(crossdock_device::now());
            catalog.publish_snapshot();
            any = true;
        }
        any
    }
}

/// The control thread; it ends with this.
#[derive(Debug)]
pub(crate) struct CatalogThread {
    handle: CatalogHandle,
    thread: Option<JoinHandle<()>>,
}

impl CatalogHandle {
    /// A handle, and the requests that come by it.
    pub(crate) fn new() -> (CatalogHandle, Requests) {
        let (jobs, requests) = channel();
        (CatalogHandle { jobs }, Requests(requests))
    }

    /// Makes a request without waiting for it.
    pub(crate) fn post(&self, request: impl FnOnce(&mut Catalog) + Send + 'static) {
        // It may have stopped.
        let _ = self.jobs.send(Job::Request(Box::new(request)));
    }

    /// Makes a request, and waits for its answer. Its changes are on their way to all contexts then.
    ///
    /// # Errors
    /// The catalog has stopped.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        request: impl FnOnce(&mut Catalog) -> T + Send + 'static,
    ) -> Result<T, Stopped> {
        let (answer, wait) = oneshot::channel();
        self.post(move |catalog| {
            let done = request(catalog);
            catalog.publish_snapshot();
            // The caller may have gone.
            let _ = answer.send(done);
        });
        crossdock_device::before_wait();
        wait.recv().map_err(|_| Stopped::default())
    }

    /// The catalog as it is now.
    ///
    /// # Errors
    /// The catalog has stopped.
    pub(crate) fn snapshot(&self) -> Result<Arc<Snapshot>, Stopped> {
        self.run(|catalog| catalog.snapshot())
    }
}

impl CatalogThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn start(mut catalog: Catalog, handle: &CatalogHandle, requests: Requests) -> io::Result<CatalogThread> {
        let run = move || {
            loop {
                let next = match catalog.expiry_due() {
                    None => requests.0.recv().map_err(RecvTimeoutError::from),
                    Some(due) => requests.0.recv_timeout(due.saturating_duration_since(crossdock_device::now())),
                };
                match next {
                    // A bug in a request costs that one: its answer goes with it.
                    Ok(Job::Request(request)) => drop(catch_unwind(AssertUnwindSafe(|| request(&mut catalog)))),
                    Err(RecvTimeoutError::Timeout) => {}
                    Ok(Job::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                }
                catalog.expire(crossdock_device::now());
                catalog.publish_snapshot();
            }
        };
        let thread = std::thread::Builder::new().name("control".into()).spawn(run)?;
        Ok(CatalogThread { handle: handle.clone(), thread: Some(thread) })
    }
}

impl Drop for CatalogThread {
    /// Requests that were made before are carried out.
    fn drop(&mut self) {
        let _ = self.handle.jobs.send(Job::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
