//! A context's part in consistent cuts of the whole graph ([`crate::managers`], `cuts`): it takes no records in until its part was copied,
//! says whether all that it had for `block` subscriptions is with their subscribers, and answers publishers once a cut is on disk.

use crate::announcing::reply;
use crate::context::Context;
use crate::net::peers::Peer;
use crossdock_transport::Notice;

impl Context {
    /// The cut of this number begins: what publishers send waits from now on. Whether a publisher that has finished waits for a cut.
    pub(crate) fn hold_intake(&mut self, cut: u64) -> bool {
        self.durability.begun = self.durability.begun.max(cut);
        self.net.hold_intake(true);
        !self.durability.finishing.is_empty()
    }

    /// Goes on with what publishers send.
    pub(crate) fn release_intake(&mut self) {
        self.net.hold_intake(false);
        let publish = |(_, peer): &(usize, &Peer)| !peer.publishing().is_empty() && !peer.is_paused();
        let held: Vec<usize> = self.net.peers().filter(publish).map(|(key, _)| key).collect();
        for key in held {
            // It may have gone with what another one had sent.
            if self.net.peer(key).is_some_and(|peer| !peer.is_paused()) {
                self.resume(key);
            }
        }
    }

    /// Whether the subscribers that block have all that was made for them.
    pub(crate) fn has_delivered(&mut self) -> bool {
        let blocking = self.subscriptions.iter().filter(|(_, subscription)| subscription.blocks());
        let blocking: Vec<(usize, usize)> = blocking.map(|(key, subscription)| (key, subscription.peer())).collect();
        let mut is_delivered = true;
        for (key, peer) in blocking {
            self.sessions().0.flush(key);
            is_delivered &= self.net.backlog(peer, self.host.interface()).bytes == 0;
        }
        is_delivered
    }

    /// A publisher has finished a stream: it is answered once that is in a cut on disk.
    pub(crate) fn finish_durably(&mut self, key: usize, id: u32) {
        let Some(peer) = self.net.reference(key) else { return };
        self.durability.finishing.push((self.durability.begun + 1, peer, id));
    }

    /// The cut of this number is on disk, and the catalog knows it: publishers are notified.
    pub(crate) fn report_durable(&mut self, cut: u64) {
        let mut finishing = std::mem::take(&mut self.durability.finishing);
        finishing.retain(|&(least, peer, id)| {
            let key = self.net.still_there(peer);
            if let Some(key) = key.filter(|_| least <= cut) {
                self.send_control(key, &reply(id, Ok(())).into());
            }
            key.is_some() && least > cut
        });
        self.durability.finishing = finishing;
        let mut notices = Vec::new();
        for (key, peer) in self.net.peers() {
            for publishing in peer.publishing() {
                if let Some(records) = publishing.taken.as_ref().and_then(|taken| taken.count.durable_change()) {
                    notices.push((key, Notice::Durable { stream: publishing.number, records }));
                }
            }
        }
        notices.into_iter().for_each(|(key, notice)| self.send_control(key, &notice.into()));
    }
}
