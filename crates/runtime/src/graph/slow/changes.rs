//! The part of a node whose query reads the state of a stream, behind the query.
//!
//! Such a query gives changes of rows, and a subscriber makes a table of them: none may be left out, unless a newer one of its
//! row says the same and more. So while the session takes nothing, the query runs on what comes as ever, and what it gives is kept: one
//! change of each row ([`ChangeMerger`](crossdock_engine::ChangeMerger)), or, where the policy is to end the session, all of them. Once
//! the session takes records again, these go first. There is no other record that could give way: past the bound the subscription ends.
//!
//! So there is as much room as the state itself may take: that of all its rows, where they are no longer than the records. It counts
//! among the states of queries, as the rows do that are kept in order.

use crate::graph::NodeId;
use crate::graph::bounds::MOST_MADE;
use crate::graph::build::Workspace;
use crate::graph::edge::Item;
use crate::graph::gauges::{Loss, NodeGauges};
use crate::graph::node::{Destination, Node, RunTime};
use crate::graph::run::Outcome;
use crate::graph::serve::Graph;
use crate::graph::session::{Egress, SessionStep};
use crate::graph::slow::{Policy, Slow};
use crate::graph::spill::Spill;

impl Slow {
    /// Whether it keeps what the query gives, rather than what comes for the query.
    #[inline]
    pub(in crate::graph) fn keeps_changes(&self) -> bool {
        matches!(self.policy, Policy::Changes { .. })
    }

    /// Why its subscription ends, if there was no room for a change.
    pub(in crate::graph) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Keeps what the query gave. Without room for all it is how many records were not kept.
    fn keep_changes(&mut self, rows: &Spill, gauges: &NodeGauges) -> Result<(), u64> {
        let waits = self.waits_for_rate();
        let Slow { policy, reducers, rate, hasher, kept, due_ns, most_bytes, .. } = self;
        let conflates = matches!(policy, Policy::Changes { conflates: true });
        let mut merger = reducers.iter_mut().find_map(|reducer| reducer.merger(rows.format)).filter(|_| conflates);
        let (mut conflated, mut kept_rows) = (0, 0);
        for row in rows.rows() {
            let (mut key, mut change) = (None, row);
            if let Some(merger) = &mut merger {
                let of = merger.key_of(hasher, row);
                key = Some(of);
                if let Some(before) = kept.get(of) {
                    match merger.merge(before, row) {
                        Ok(Some(merged)) => change = merged,
                        Ok(None) => {
                            kept.remove(of);
                            (conflated, kept_rows) = (conflated + 2, kept_rows + 1);
                            continue;
                        }
                        Err(_) => break,
                    }
                }
            }
            if !kept.has_room(key, change.len(), *most_bytes) {
                break;
            }
            let replaced = kept.put(key, rows.format, change, *most_bytes).replaced;
            (conflated, kept_rows) = (conflated + replaced, kept_rows + 1);
            if let Some(rate) = rate.as_ref().filter(|_| waits && replaced == 0) {
                let others_ns = if kept.len() > 1 { *due_ns } else { u64::MAX };
                *due_ns = rate.due_ns(key).min(others_ns);
            }
        }
        if conflated > 0 {
            gauges.lose(Loss::Conflated, conflated);
        }
        match rows.waiting() as u64 - kept_rows {
            0 => Ok(()),
            lost => Err(lost),
        }
    }

    /// Lets all changes go that it keeps; how many.
    pub(in crate::graph) fn forget_changes(&mut self) -> u64 {
        let (records, leaving) = self.clear();
        debug_assert!(leaving.is_none(), "changes leave without a batch");
        records
    }

    /// Takes changes that may leave now out, into a spill, which is empty.
    fn unload(&mut self, now_ns: u64, spill: &mut Spill) -> bool {
        if !self.load_next(now_ns) {
            return false;
        }
        spill.format = self.next.format;
        let has_room = self.next.rows().all(|row| spill.push(row));
        debug_assert!(has_room, "an empty spill has room for the records of a buffer");
        self.next.reset();
        true
    }

    /// There was no room for a change: its subscription is to end.
    #[cold]
    fn fail(&mut self) {
        self.failure = Some(format!(
            "the subscriber is too slow: the changes that wait for it, one of each row, take more than the {} bytes that the stream's \
             state may take: have fewer columns in the list or a narrower condition, or declare the key with more (--max-bytes)",
            self.most_bytes
        ));
    }
}

/// The steps of such nodes.
impl Graph {
    /// Runs the query on the next batch, and keeps what it gives.
    pub(super) fn keep_next(&mut self, id: NodeId, ws: &mut Workspace) -> Option<SessionStep> {
        let node = self.present_node_mut(id)?;
        let key = node.session()?.key;
        let (input, item, done) = node.take_next()?;
        let Item::Batch(batch) = item else {
            debug_assert!(false, "a batch is next");
            return None;
        };
        let Some(mut job) = self.begin(id, (input, batch, done), (MOST_MADE, RunTime::Long), ws) else {
            return Some(self.note_unread(id, key));
        };
        let (ran, mut rows) = job.run_aside(ws);
        let has_panicked = ran.0 == Outcome::Panicked;
        self.finish(job, ran, ws);
        if has_panicked {
            return Some(SessionStep::Failed(key));
        }
        let kept = match self.present_node_mut(id) {
            Some(Node { destination: Destination::Session(session), gauges, .. }) => {
                session.slow.as_deref_mut().map(|slow| slow.keep_changes(&rows, gauges))
            }
            _ => None,
        };
        rows.clear();
        ws.builder.spill = rows;
        match kept {
            Some(Err(lost)) => self.end_slow(id, key, lost),
            Some(Ok(())) | None => Some(self.own_end(id, key).unwrap_or(SessionStep::Ran(key))),
        }
    }

    /// Lets kept changes leave, as far as its session has room.
    pub(super) fn send_kept(
        &mut self,
        id: NodeId,
        to: (usize, usize),
        egress: &mut impl Egress,
        ws: &mut Workspace,
    ) -> Option<SessionStep> {
        let now_ns = self.now_ns;
        let Node { destination: Destination::Session(session), spill, .. } = self.present_node_mut(id)? else {
            return None;
        };
        let is_any = session.slow.as_deref_mut()?.unload(now_ns, spill);
        if is_any { self.run_session(id, to, egress, ws) } else { None }
    }

    /// There is no room for what the query gave: what was kept is lost with it, and the subscription ends, or its session.
    #[cold]
    fn end_slow(&mut self, id: NodeId, key: usize, lost: u64) -> Option<SessionStep> {
        let node = self.present_node_mut(id)?;
        let slow = node.slow_mut()?;
        let conflates = matches!(slow.policy, Policy::Changes { conflates: true });
        if conflates {
            slow.fail();
        }
        let lost = lost + slow.forget_changes();
        node.gauges.lose(Loss::QueueFull, lost);
        // A session that is to end for its queue ends for the loss.
        let ended = if conflates { self.lose_reader(id, key) } else { None };
        Some(ended.unwrap_or(SessionStep::Ran(key)))
    }
}
