//! One thread's end of a link: how it waits, and how it is interrupted.

use crate::error::Error;
use crate::incoming::Answer;
use crate::keeper::Keeper;
use crate::link::Link;
use crate::settings::Settings;
use crate::shared::{Inner, Shared, Task, Waker};
use crate::watch::Watch;
use crossdock_device::{Idle, Idler, nap};
use crossdock_mailbox::client;
use crossdock_transport::Request;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// The longest wait without a look at the clock, in ns.
const LONGEST_WAIT_NS: u64 = 1_000_000_000;

/// One thread's end of a link.
pub(crate) struct Client {
    pub(crate) shared: Arc<Shared>,
    watch: Watch,
    waker: Arc<Waker>,
    keeper: Arc<Keeper>,
}

impl Client {
    /// Makes a link and hands it to the keeper; connecting has begun.
    pub(crate) fn new(settings: Settings) -> Result<Client, Error> {
        #[cfg(feature = "simulation")]
        if settings.simulated.is_some() {
            return Client::with(Arc::new(Shared::new(Link::new(settings)?)), Arc::new(Keeper::absent()));
        }
        let shared = Arc::new(Shared::new(Link::new(settings)?));
        let keeper = Arc::new(Keeper::start(Arc::clone(&shared))?);
        Client::with(shared, keeper)
    }

    /// The same, and waits until the first session stands.
    ///
    /// # Errors
    /// Nobody answers, or the daemon lets nobody in.
    pub(crate) fn connect(settings: Settings) -> Result<Client, Error> {
        let mut client = Client::new(settings)?;
        client.wait(None, |inner| inner.link.is_up().then_some(()))?;
        Ok(client)
    }

    fn with(shared: Arc<Shared>, keeper: Arc<Keeper>) -> Result<Client, Error> {
        let watch = Watch::new()?;
        let waker = Arc::new(Waker::new(watch.doorbell()));
        Ok(Client { shared, watch, waker, keeper })
    }

    /// Drives the link and waits until `done` has something, the time is over, or the link has ended.
    pub(crate) fn wait<T>(
        &mut self,
        timeout: Option<Duration>,
        mut done: impl FnMut(&mut Inner) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let mut until_ns = None;
        let mut receive = false;
        let mut armed = false;
        loop {
            let mut inner = self.shared.lock();
            inner.woke(&self.waker);
            // The socket is read when the poller says so, which saves the system call that would find nothing.
            if receive || inner.link.is_polled() {
                inner.drive();
            } else {
                inner.drive_without_receiving();
            }
            let now_ns = inner.link.now_ns();
            inner.driven_ns = now_ns;
            inner.wake_others(&self.waker);
            if let Some(result) = done(&mut inner) {
                self.keeper.tick(&mut inner);
                return Ok(Some(result));
            }
            if let Some(fault) = inner.link.fault() {
                return Err(fault);
            }
            if self.waker.take_interrupted() {
                self.keeper.tick(&mut inner);
                return Err(Error::Interrupted);
            }
            let until_ns = *until_ns.get_or_insert_with(|| match timeout {
                Some(timeout) => now_ns.saturating_add(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX)),
                None => u64::MAX,
            });
            if now_ns >= until_ns || self.keeper.is_absent() {
                self.keeper.tick(&mut inner);
                return Ok(None);
            }
            let idle = inner.link.idler.choose(now_ns);
            receive = true;
            match idle {
                Idle::Nap => {
                    drop(inner);
                    nap(Idler::NAP);
                }
                // Others may need this core to send what is waited for.
                Idle::Spin => {
                    drop(inner);
                    let ns = Idler::yield_core();
                    self.shared.lock().link.idler.yielded(now_ns, ns);
                }
                // A packet that came before it was armed wakes nobody: one more look.
                Idle::Sleep if !std::mem::replace(&mut armed, true) && inner.link.arm() => {}
                Idle::Sleep => {
                    armed = false;
                    let pause_ns = until_ns.min(inner.due_ns()).saturating_sub(now_ns).min(LONGEST_WAIT_NS);
                    self.watch.watch(&inner.link);
                    inner.sleeps(&self.waker);
                    drop(inner);
                    receive = self.watch.sleep(pause_ns);
                    let link = &mut self.shared.lock().link;
                    link.idler.slept(now_ns, link.now_ns(), receive);
                }
            }
        }
    }

    /// Drives the link, and gives what `done` has. If it has nothing, has the keeper wake the task when something has happened.
    ///
    /// # Errors
    /// The link has ended.
    pub(crate) fn poll<T>(
        &self,
        waker: &std::task::Waker,
        mut done: impl FnMut(&mut Inner) -> Option<T>,
    ) -> Poll<Result<T, Error>> {
        let mut inner = self.shared.lock();
        inner.task = None;
        let mut armed = false;
        loop {
            inner.drive();
            if let Some(found) = done(&mut inner) {
                self.leave(&mut inner);
                return Poll::Ready(Ok(found));
            }
            if let Some(fault) = inner.link.fault() {
                return Poll::Ready(Err(fault));
            }
            // A packet that came before it was armed wakes nobody: one more look.
            if std::mem::replace(&mut armed, true) || !inner.link.arm() {
                break;
            }
        }
        inner.driven_ns = inner.link.now_ns();
        inner.wake_others(&self.waker);
        inner.task = Some(Task { waker: waker.clone(), is_watched: false });
        self.keeper.watch_for_task(&mut inner);
        Poll::Pending
    }

    /// Sends a request in the session that stands, and waits for its answer. Also returns the session's number.
    ///
    /// # Errors
    /// The daemon refuses, no session stands, or it is lost before the answer comes.
    pub(crate) fn ask(&mut self, request: impl FnOnce(&mut Inner, u32) -> Request) -> Result<(Answer, u64), Error> {
        let (id, session) = {
            let mut inner = self.shared.lock();
            inner.link.check_up()?;
            let id = inner.link.request_id();
            let request = request(&mut inner, id);
            inner.link.ask(request);
            inner.link.set_asking(true);
            (id, inner.link.session())
        };
        let answer = self.wait(None, |inner| match inner.link.answer(id) {
            Some(answer) => Some(answer),
            None if !inner.link.is_up() || inner.link.session() != session => Some(Err(inner.link.lost())),
            None => None,
        });
        self.shared.lock().link.set_asking(false);
        let answer = answer?.ok_or_else(|| Error::Malformed("the answer is missing".to_owned()))??;
        Ok((answer, session))
    }

    /// The present result of `done`, after a look at what has arrived; does not wait.
    pub(crate) fn look<T>(&self, mut done: impl FnMut(&mut Inner) -> Option<T>) -> Option<T> {
        let mut inner = self.shared.lock();
        let mut found = done(&mut inner);
        if found.is_none() {
            inner.drive();
            found = done(&mut inner);
        }
        self.leave(&mut inner);
        found
    }

    /// The application's thread has used the link and goes elsewhere.
    pub(crate) fn leave(&self, inner: &mut Inner) {
        inner.driven_ns = inner.link.now_ns();
        inner.wake_others(&self.waker);
        self.keeper.tick(inner);
    }

    /// Another thread's end of the same link.
    ///
    /// # Errors
    /// The kernel has no more descriptors.
    pub(crate) fn join(&self) -> Result<Client, Error> {
        Client::with(Arc::clone(&self.shared), Arc::clone(&self.keeper))
    }

    /// Says that the application's thread has left something that will be due.
    #[inline]
    pub(crate) fn tick(&self, inner: &mut Inner) {
        self.keeper.tick(inner);
    }

    pub(crate) fn interrupter(&self) -> Interrupter {
        Interrupter(Waiter::Link(Arc::clone(&self.waker)))
    }
}

/// Makes a call that waits return [`Error::Interrupted`], from another thread (a handler of Ctrl-C).
#[derive(Clone)]
pub struct Interrupter(Waiter);

/// The kind of waiter.
#[derive(Clone)]
enum Waiter {
    /// On a link.
    Link(Arc<Waker>),
    /// In shared memory, for a mailbox.
    Memory(client::Interrupter),
}

impl Interrupter {
    pub(crate) fn local(interrupter: client::Interrupter) -> Interrupter {
        Interrupter(Waiter::Memory(interrupter))
    }

    /// Interrupts the call that waits now, or the next one that would.
    pub fn interrupt(&self) {
        match &self.0 {
            Waiter::Link(waker) => waker.interrupt(),
            Waiter::Memory(interrupter) => interrupter.interrupt(),
        }
    }

    /// Withdraws an interruption that no call has met: for a caller that has seen otherwise why it was interrupted, and goes on to calls
    /// that may wait, such as [`Publisher::finish`](crate::Publisher::finish).
    pub fn withdraw(&self) {
        match &self.0 {
            Waiter::Link(waker) => drop(waker.take_interrupted()),
            Waiter::Memory(interrupter) => interrupter.withdraw(),
        }
    }
}

impl std::fmt::Debug for Interrupter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Interrupter").finish_non_exhaustive()
    }
}
