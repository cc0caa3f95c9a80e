//! Threads that do pieces of work away from the cores, in the order in which these are given. In a simulation there is no such thread: its
//! work is done when the simulation says so ([`crate::starting::simulated`]).

use std::io;
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;

/// A thread that does what it is given until the other side has gone. When this is dropped, all of it is done.
#[derive(Debug)]
pub(crate) struct WorkerThread(Option<JoinHandle<()>>);

impl WorkerThread {
    /// Starts the thread. `work` gets a piece of work, and may take those that wait behind it.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn start<W: Send + 'static>(
        name: &str,
        given: Receiver<W>,
        mut work: impl FnMut(W, &Receiver<W>) + Send + 'static,
    ) -> io::Result<WorkerThread> {
        #[cfg(test)]
        if crossdock_device::simulated::is_active() {
            simulated::enlist(Box::new(move || given.try_recv().map(|first| work(first, &given)).is_ok()));
            return Ok(WorkerThread(None));
        }
        let run = move || {
            while let Ok(first) = given.recv() {
                work(first, &given);
            }
        };
        std::thread::Builder::new().name(name.into()).spawn(run).map(|thread| WorkerThread(Some(thread)))
    }
}

impl Drop for WorkerThread {
    /// The other side has gone.
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            let _ = thread.join();
        }
    }
}

/// The work of threads that a simulated daemon would have.
#[cfg(test)]
pub(crate) mod simulated {
    use std::cell::RefCell;

    /// Does the next piece of work, if there is one; whether there was.
    pub(crate) type NextPiece = Box<dyn FnMut() -> bool>;

    thread_local! {
        static ENLISTED: RefCell<Vec<NextPiece>> = const { RefCell::new(Vec::new()) };
    }

    /// Adds the work of a thread.
    pub(super) fn enlist(work: NextPiece) {
        ENLISTED.with_borrow_mut(|all| all.push(work));
    }

    /// Takes all work that was added.
    pub(crate) fn take_enlisted() -> Vec<NextPiece> {
        ENLISTED.take()
    }
}
