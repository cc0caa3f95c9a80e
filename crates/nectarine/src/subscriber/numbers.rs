//! Records that come once more, from a daemon that was started again.

use super::Subscriber;

impl Subscriber {
    /// Records that came once more, from a daemon that was started again and is `durable` ([`Records::repeated`](crate::Records::repeated)).
    #[must_use]
    pub fn repeated(&self) -> u64 {
        self.account.repeated()
    }
}
