//! Packets that a peer sends while one of its requests is with the planner or the catalog: they wait, in order, until
//! the answer is there. So a session's requests take effect in the order in which they were sent, and so do its records.
//!
//! A session over packets can have at most its credit waiting, for data and for control: neither is renewed once a packet
//! of its waits. An attached client's packets stay in its own memory, and it gets no new buffers.

use crate::context::{Context, InWork};
use crate::net::frames::Data;
use crate::net::payload::Deferred;

impl Context {
    /// Takes what a peer has sent since it was paused, up to the next request that pauses it.
    pub(crate) fn resume(&mut self, key: usize) {
        if !self.net.unpause(key) {
            return;
        }
        if self.net.note_lagging(key) {
            return self.tick_lagging();
        }
        while let Some(deferred) = self.net.next_deferred_packets(key) {
            match deferred {
                Deferred::Packets { buffer, header, spans, stride } => {
                    self.in_work = Some(InWork::Deferred(key));
                    self.deliver(key, Data { buffer, header, spans: &spans, stride }, 0);
                    self.in_work = None;
                }
                Deferred::End(why) => return self.remove_peer(key, why, None),
            }
        }
        self.grant_credit(key);
        self.net.touch(key);
    }

    /// A session over packets has ended: at once, or behind what waits.
    pub(crate) fn end_session(&mut self, key: usize, why: &'static str) {
        if !self.net.defer_end(key, why) {
            self.remove_peer(key, why, None);
        }
    }
}
