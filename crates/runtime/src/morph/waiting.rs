//! Records of formats without a route: the conversion is asked for, the records wait or are dropped, and waiting ones
//! leave once there is a route.

use crate::Overflow;
use crate::context::Context;
use crate::counters::DropReason;
use crate::morph::requests::converter_wanted;
use crate::morph::{Route, chain, hold::Held};
use crossdock_format::Format;
use crossdock_format::record_len;
use crossdock_mailbox::Batch;
use crossdock_transport::Notice;
use crossdock_transport::control::Unreadable;

/// Pieces of waiting records that leave in one turn at most: others have their turn too.
const PIECES_A_TURN: usize = 8;
/// The part of a record's longest wait within which others may join it.
const MERGE_PART: u64 = 16;
/// Most conversions that may be wanted on one stream.
const MAX_WANTED: usize = 256;

impl Context {
    /// A batch goes through a chain, once for all subscriptions that take it; the result is given to their nodes.
    pub(crate) fn convert(&mut self, stream: usize, chain: usize, batch: &Batch, subscribers: &[(usize, usize)]) {
        let Some(slot) = self.streams.get_mut(stream).and_then(|s| s.morphing.chains.get_mut(chain)) else { return };
        // Both are there, as no chain runs within another; what is taken is put back.
        let Some(mut pool) = self.morph.pool.take() else { return };
        let Some(mut run) = slot.take() else { return self.morph.pool = Some(pool) };
        let (graph, ws) = (&mut self.graph, &mut self.workspace);
        let mut no_buffer = 0;
        let tally = run.run(&mut pool, batch, &mut |made| {
            // The buffer is the chain's, and the next batch needs it.
            let Some(copy) = ws.compact(made) else { return no_buffer += made.len() as u64 };
            let copy = ws.spares.share(copy);
            subscribers.iter().for_each(|(_, key)| graph.offer(*key, &copy));
            ws.spares.keep_shared(copy);
        });
        self.morph.pool = Some(pool);
        if let Some(slot) = self.streams.get_mut(stream).and_then(|s| s.morphing.chains.get_mut(chain)) {
            *slot = Some(run);
        }
        let lost = tally.refused + tally.too_long + no_buffer;
        if lost > 0 {
            self.counters.drop(DropReason::NotConvertible, tally.refused);
            self.counters.drop(DropReason::TooLong, tally.too_long);
            self.counters.drop(DropReason::NoBuffer, no_buffer);
            for &(_, key) in subscribers {
                if let Some(subscription) = self.subscriptions.get_mut(key) {
                    subscription.lose(lost);
                }
            }
        }
    }

    /// A batch without a route now: it waits, or is dropped.
    pub(crate) fn put_aside(&mut self, key: usize, batch: &Batch) {
        self.note_missed(key, batch.format);
        let Some(subscription) = self.subscriptions.get_mut(key) else { return };
        let records = batch.len() as u64;
        let Some(accept) = subscription.accept.as_deref_mut() else { return };
        if accept.unreadable == Unreadable::Drop {
            self.counters.drop(DropReason::Unreadable, records);
            subscription.lose(records);
            return;
        }
        let longest_ns = u64::from(self.config.morph.hold_ms) * 1_000_000;
        let before = accept.hold.bytes();
        accept.hold.push(batch, self.now_ns, longest_ns / MERGE_PART);
        self.morph.held_bytes += accept.hold.bytes() - before;
        if let Some(oldest) = accept.hold.oldest_ns() {
            self.morph.expires_ns = self.morph.expires_ns.min(oldest.saturating_add(longest_ns));
        }
        if !self.morph.holding.contains(&key) {
            self.morph.holding.push(key);
        }
        self.bound_hold(key);
    }

    /// Holds the waiting records to their bounds. Over the total bound, the subscription with the most waiting records
    /// loses some. Records that are leaving are bounded by holding back their publishers, where the subscriber's policy
    /// is to block.
    fn bound_hold(&mut self, pushed: usize) {
        let (hold_bytes, hold_total_bytes) = (self.config.morph.hold_bytes, self.config.morph.hold_total_bytes);
        loop {
            let bytes = |key: usize| self.accept(key).map_or(0, |accept| accept.hold.bytes());
            let key = match () {
                () if bytes(pushed) > hold_bytes => pushed,
                () if self.morph.held_bytes > hold_total_bytes => {
                    self.morph.holding.iter().copied().max_by_key(|key| bytes(*key)).unwrap_or(pushed)
                }
                () => return,
            };
            let Some(accept) = self.accept_mut(key).filter(|accept| !accept.blocks) else { return };
            let before = accept.hold.bytes();
            let Some(held) = accept.hold.pop() else { return };
            self.morph.held_bytes -= before - accept.hold.bytes();
            self.counters.drop(DropReason::HoldFull, held.records);
            self.count_lost(key, &held);
            self.tell_dropped(key, false);
        }
    }

    fn count_lost(&mut self, key: usize, held: &Held) {
        if let Some(subscription) = self.subscriptions.get_mut(key) {
            subscription.lose(held.records);
        }
    }

    /// The first record of a format without a route: notifies the subscriber, and asks the stream's listeners for a
    /// conversion.
    fn note_missed(&mut self, key: usize, format: u64) {
        let Some(subscription) = self.subscriptions.get_mut(key) else { return };
        let Some(accept) = subscription.accept.as_deref_mut() else { return };
        if accept.way(format) != Route::None || accept.missed.iter().any(|missed| missed.id().0 == format) {
            return;
        }
        let (stream_key, peer, number) = (subscription.stream, subscription.peer, subscription.number);
        let Some(stream) = self.streams.get(stream_key) else { return };
        let Some(missed) = stream.formats.iter().find(|known| known.format.id().0 == format) else { return };
        let missed = missed.format.clone();
        let accepted: Vec<String> = accept.names.iter().map(short).collect();
        let message = format!(
            "nothing converts records of stream `{}` from format {} to {}; the applications on the stream that listen for it \
             were asked for a conversion (`crossdock conversions add` registers one)",
            stream.name,
            missed.id(),
            accepted.join(" or "),
        );
        let (format, policy) = (missed.id().to_string(), accept.unreadable);
        accept.missed.push(missed);
        self.tell(peer, &Notice::NoReader { subscription: number, format, policy, message }.into());
        self.note_wanted(stream_key);
    }

    /// Recomputes the conversions wanted on a stream, and notifies listeners of the new ones.
    pub(crate) fn note_wanted(&mut self, stream_key: usize) {
        let Some(stream) = self.streams.get(stream_key) else { return };
        let mut wanted: Vec<(Format, Format)> = Vec::new();
        for accept in stream.subscriptions.iter().filter_map(|&key| self.accept(key)) {
            for want in accept.missed.iter().flat_map(|from| accept.targets.iter().map(move |to| (from, to))) {
                let known = wanted.iter().any(|known| (known.0.id(), known.1.id()) == (want.0.id(), want.1.id()));
                if !known && wanted.len() < MAX_WANTED {
                    wanted.push((want.0.clone(), want.1.clone()));
                }
            }
        }
        let Some(stream) = self.streams.get_mut(stream_key) else { return };
        let before = std::mem::replace(&mut stream.morphing.wanted, wanted);
        let (name, listeners) = (stream.name.clone(), stream.morphing.listeners.clone());
        let is_new = |want: &&(Format, Format)| !before.contains(want);
        let new: Vec<Notice> =
            stream.morphing.wanted.iter().filter(is_new).map(|(from, to)| converter_wanted(&name, from, to)).collect();
        for notice in new {
            for &listener in &listeners {
                self.tell(listener, &notice.clone().into());
            }
        }
    }

    /// A subscription's routes were planned anew: notifies the subscriber of the missed formats that are readable now,
    /// and their waiting records begin to leave.
    pub(crate) fn note_readable(&mut self, key: usize) {
        let Some(accept) = self.accept_mut(key) else { return };
        let missed = std::mem::take(&mut accept.missed);
        let (readable, missed): (Vec<Format>, Vec<Format>) =
            missed.into_iter().partition(|format| accept.way(format.id().0) != Route::None);
        accept.missed = missed;
        let waiting = accept.hold.formats();
        if !readable.is_empty() {
            self.flush_subscription(key);
        }
        for format in readable {
            let Some(subscription) = self.subscriptions.get(key) else { return };
            let Some(accept) = &subscription.accept else { return };
            let way = accept.way(format.id().0);
            let records = accept.hold.records_of(format.id().0);
            let chain = self.streams.get(subscription.stream).map(|stream| stream.morphing.describe_way(way));
            let notice = Notice::Readable {
                subscription: subscription.number,
                format: format.id().to_string(),
                chain: chain.unwrap_or_default(),
                records,
            };
            let peer = subscription.peer;
            self.tell(peer, &notice.into());
        }
        // Records that were leaving when their route went wait again.
        for &format in &waiting {
            self.note_missed(key, format);
        }
        if self.accept(key).is_some_and(|accept| waiting.iter().any(|&format| accept.way(format) != Route::None)) {
            self.begin_to_drain(key);
        }
    }

    /// The readable waiting records of a subscription leave from the next turn on. New records join the end meanwhile,
    /// so publishers are held back where no record may be lost.
    fn begin_to_drain(&mut self, key: usize) {
        let Some(subscription) = self.subscriptions.get_mut(key) else { return };
        let blocks = subscription.overflow == Overflow::Block;
        let Some(accept) = subscription.accept.as_deref_mut() else { return };
        if accept.drains || accept.hold.is_empty() {
            return;
        }
        (accept.drains, accept.blocks) = (true, blocks);
        self.morph.is_due = true;
        if blocks {
            self.graph.withhold(key, true);
        }
    }

    /// Sends readable waiting records, drops records that have waited too long, and plans the routes of streams that
    /// lost subscriptions. Returns whether more can leave at once.
    pub(crate) fn look_after_waiting(&mut self) -> bool {
        self.morph.is_due = false;
        for stream in std::mem::take(&mut self.morph.stale) {
            self.replan(stream);
        }
        if self.morph.holding.is_empty() {
            return false;
        }
        let mut again = false;
        for key in self.morph.holding.clone() {
            again |= self.drain(key);
        }
        if self.now_ns >= self.morph.expires_ns {
            self.expire();
        }
        let subscriptions = &self.subscriptions;
        let waits = |key: &usize| {
            let accept = subscriptions.get(*key).and_then(|subscription| subscription.accept.as_ref());
            accept.is_some_and(|accept| accept.drains || !accept.hold.is_empty())
        };
        self.morph.holding.retain(waits);
        again
    }

    /// Sends some of the waiting records of a subscription, as far as its queue has room; returns whether more can
    /// leave at once.
    fn drain(&mut self, key: usize) -> bool {
        for _ in 0..PIECES_A_TURN {
            let Some(subscription) = self.subscriptions.get(key) else { return false };
            let stream = subscription.stream;
            if !subscription.accept.as_ref().is_some_and(|accept| accept.drains) {
                return false;
            }
            if self.graph.session_room(key) == 0 || self.is_short_of_buffers() {
                // Acks and what attached clients give back make room.
                return false;
            }
            let Some(accept) = self.accept_mut(key) else { return false };
            let before = accept.hold.bytes();
            let ways = &accept.ways;
            let way = |format| ways.iter().find(|(id, _)| *id == format).map_or(Route::None, |(_, way)| *way);
            let Some(held) = accept.hold.pop_readable(|format| way(format) != Route::None) else {
                self.end_drain(key);
                return false;
            };
            let way = way(held.format);
            let after = accept.hold.bytes();
            self.morph.held_bytes -= before - after;
            self.release(key, stream, way, &held);
            self.serve_sessions();
        }
        true
    }

    /// Records that waited go their way.
    fn release(&mut self, key: usize, stream: usize, way: Route, held: &Held) {
        let Some(mut pool) = self.morph.pool.take() else { return };
        let mut batch = self.workspace.spares.take();
        let known = self.streams.get(stream).and_then(|stream| {
            stream.formats.iter().map(|known| &known.format).find(|format| format.id().0 == held.format)
        });
        let len_of = |bytes: &[u8]| known.map_or_else(|| record_len(bytes), |format| format.record_len(bytes));
        let filled = chain::fill(&mut batch, &mut pool, &held.bytes, held.format, len_of);
        self.morph.pool = Some(pool);
        if filled < held.bytes.len() {
            let left = held.records.saturating_sub(batch.len() as u64);
            self.counters.drop(DropReason::NoBuffer, left);
            self.count_lost(key, &Held { records: left, bytes: Vec::new(), ..*held });
        }
        batch.stream = stream as u32;
        match way {
            Route::Chain(chain) => self.convert(stream, chain, &batch, &[(chain, key)]),
            Route::Direct => match self.workspace.compact(&batch) {
                Some(copy) => {
                    let copy = self.workspace.spares.share(copy);
                    self.graph.offer(key, &copy);
                }
                None => {
                    self.counters.drop(DropReason::NoBuffer, batch.len() as u64);
                    self.count_lost(key, &Held { records: batch.len() as u64, bytes: Vec::new(), ..*held });
                }
            },
            Route::None => {}
        }
        self.workspace.spares.keep(batch);
    }

    /// Nothing more that waits can be read.
    fn end_drain(&mut self, key: usize) {
        let Some(accept) = self.accept_mut(key) else { return };
        accept.drains = false;
        if std::mem::take(&mut accept.blocks) {
            self.graph.withhold(key, false);
        }
        self.tell_late_end(key);
    }

    /// Drops what has waited too long, and finds when that will next be so.
    fn expire(&mut self) {
        let longest_ns = u64::from(self.config.morph.hold_ms) * 1_000_000;
        let before_ns = (self.now_ns + 1).saturating_sub(longest_ns);
        let mut next_ns = u64::MAX;
        for key in self.morph.holding.clone() {
            while let Some(accept) = self.subscriptions.get_mut(key).and_then(|s| s.accept.as_deref_mut()) {
                // Records that are leaving are not dropped any more.
                if accept.drains {
                    next_ns = next_ns.min(self.now_ns + longest_ns);
                    break;
                }
                let before = accept.hold.bytes();
                let Some(held) = accept.hold.pop_older(before_ns) else {
                    let oldest_ns = accept.hold.oldest_ns().unwrap_or(u64::MAX);
                    next_ns = next_ns.min(oldest_ns.saturating_add(longest_ns));
                    break;
                };
                self.morph.held_bytes -= before - accept.hold.bytes();
                self.counters.drop(DropReason::HoldExpired, held.records);
                self.count_lost(key, &held);
            }
            self.tell_dropped(key, false);
            self.tell_late_end(key);
        }
        self.morph.expires_ns = next_ns;
    }

    /// Reports a publisher's end after the waiting records, once none waits.
    fn tell_late_end(&mut self, key: usize) {
        let Some(subscription) = self.subscriptions.get_mut(key) else { return };
        let stream = subscription.stream;
        let Some(accept) = subscription.accept.as_deref_mut() else { return };
        if !accept.hold.is_empty() || !std::mem::take(&mut accept.end_pending) {
            return;
        }
        let publishers = self.streams.get(stream).map_or(0, |stream| stream.publishers.len()) as u32;
        self.graph.offer_end(key, publishers);
    }

    /// A subscription goes, and with it what waits for it.
    pub(crate) fn forget_waiting(&mut self, key: usize, accept: &super::Accept) {
        self.morph.held_bytes -= accept.hold.bytes();
        self.morph.holding.retain(|&holding| holding != key);
    }
}

/// A format's name in a sentence.
pub(crate) fn short(name: &crossdock_transport::FormatName) -> String {
    match name {
        crossdock_transport::FormatName::Description(text) => {
            Format::parse(text).map_or_else(|_| "a format".to_owned(), |format| format.id().to_string())
        }
        name => name.to_string(),
    }
}

impl super::Morphing {
    /// The ids of the formats on a way, the accepted one last.
    pub(crate) fn describe_way(&self, way: Route) -> Vec<String> {
        let Route::Chain(chain) = way else { return Vec::new() };
        let run = self.chains.get(chain).and_then(Option::as_ref);
        run.map(|run| run.steps.iter().map(|step| step.to.to_string()).collect()).unwrap_or_default()
    }
}
