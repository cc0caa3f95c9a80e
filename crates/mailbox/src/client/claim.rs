//! The claim on one side of a mailbox: kept by its writer or reader and by every message that came by it.

use super::held::Records;
use super::inner::Inner;
use super::wait::{Interrupt, WaitsAt};
use crate::shared::SLOTS;
use std::fmt;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, PoisonError, Weak};

/// One side of a mailbox that the daemon opened for this process, for as long as anything of it is in use: closing it takes
/// the buffers back that it has out, so it may be closed only once there are none.
pub(crate) struct Claim {
    pub(crate) inner: Arc<Inner>,
    /// The client's number for the side; none for the session, which ends with the attachment.
    number: Option<u16>,
    /// Absent over the signal queue.
    port: Option<u16>,
    /// Of the port's slots; none over the signal queue, whose slots all sides share.
    pub(crate) records: Records,
    /// For a call of this side that waits.
    pub(crate) interrupt: Interrupt,
    /// Messages that came over direct rings and were dropped rather than ended.
    pub(crate) dropped: AtomicU32,
}

/// Makes a call of one writer or reader that waits return `Interrupted`, from another thread.
#[derive(Clone)]
pub struct Interrupter(Weak<Claim>);

impl Interrupter {
    pub(crate) fn new(claim: &Arc<Claim>) -> Interrupter {
        Interrupter(Arc::downgrade(claim))
    }

    /// Interrupts the call that waits now, or the next one that would. Nothing, if its writer or reader is gone.
    pub fn interrupt(&self) {
        if let Some(claim) = self.0.upgrade() {
            claim.interrupt.set();
            claim.inner.arrivals.signal();
        }
    }

    /// Withdraws an interruption that no call has met.
    pub fn withdraw(&self) {
        if let Some(claim) = self.0.upgrade() {
            claim.interrupt.clear();
        }
    }
}

impl fmt::Debug for Interrupter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interrupter").finish_non_exhaustive()
    }
}

impl Claim {
    pub(crate) fn new(inner: &Arc<Inner>, number: Option<u16>, port: Option<u16>) -> Arc<Claim> {
        // Of a mailbox, as many again for the slots of the writer at the other end of direct rings.
        let count = port.map_or(0, |_| if number.is_some() { 2 * SLOTS } else { SLOTS });
        let records = Records::new(count, port.unwrap_or_default());
        let (interrupt, dropped) = (Interrupt::of(port.map_or(WaitsAt::NoPort, WaitsAt::Port)), AtomicU32::new(0));
        Arc::new(Claim { inner: inner.clone(), number, port, records, interrupt, dropped })
    }

    /// The client's number for the side, if it has one.
    pub(crate) fn number(&self) -> Option<u16> {
        self.number
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let (Some(number), inner) = (self.number, &self.inner) else { return };
        if let Some(port) = self.port {
            inner.ports.release(port);
        }
        crate::failpoint::failpoint!("claim.dropped");
        let unused = inner.unused.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(unused) = unused {
            unused(number);
        }
    }
}
