//! Sessions over simulated devices: what connects does not wait, no other thread keeps the link, and a test lets time pass
//! (`crossdock_device::simulated`) and has each client go on when something has arrived or is due.

use crate::client::Client;
use crossdock_device::Device;
use std::sync::Arc;

/// The way to a client's simulated device.
#[derive(Clone)]
pub struct SimulatedDevice {
    open: Arc<dyn Fn() -> Box<dyn Device> + Send + Sync>,
    holds_bytes: usize,
}

impl SimulatedDevice {
    /// A device that `open` makes, whose socket has a receive buffer of `holds_bytes` bytes.
    pub fn new(holds_bytes: usize, open: impl Fn() -> Box<dyn Device> + Send + Sync + 'static) -> SimulatedDevice {
        SimulatedDevice { open: Arc::new(open), holds_bytes }
    }

    /// The device, and the bytes of its socket's receive buffer.
    pub(crate) fn open(&self) -> (Box<dyn Device>, usize) {
        ((self.open)(), self.holds_bytes)
    }
}

impl std::fmt::Debug for SimulatedDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimulatedDevice").field("holds_bytes", &self.holds_bytes).finish_non_exhaustive()
    }
}

/// Does all that is due now; returns in how many ns something is due next.
pub(crate) fn go_on(client: &Client) -> u64 {
    let mut inner = client.shared.lock();
    inner.drive();
    inner.due_ns().saturating_sub(inner.link.now_ns())
}
