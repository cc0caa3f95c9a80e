//! Reports on records of formats without a route, and asks for conversions of them. The records themselves wait in the
//! graph (`crate::graph::convert`).

use crate::context::Context;
use crate::counters::DropReason;
use crate::host::Host;
use crate::inbox::ContextInbox;
use crate::io::IoPlace;
use crate::managers::request::{ControlRequest, EventKind, RequestQueue};
use crate::morph::Route;
use crate::morph::requests::converter_wanted;
use crate::net::Net;
use crate::streams::{Stream, Streams};
use crate::subscriptions::Subscriptions;
use crossdock_format::Format;
use crossdock_transport::Notice;

/// Most conversions that may be wanted on one stream.
const MAX_WANTED: usize = 256;

impl Streams {
    /// Records of a stream went through a chain: counts those that it has lost. Of a node whose chain has panicked, these
    /// are `lost`.
    pub(crate) fn note_converted(
        &self,
        stream_key: usize,
        (chain, lost, has_failed): (Option<u64>, u64, bool),
        net: &mut Net,
        managers: &RequestQueue,
    ) {
        let Some(stream) = self.present(stream_key) else { return };
        let chain = chain.and_then(|number| stream.morphing().chain(number));
        let [refused, too_long] = chain.map(|chain| chain.tally.count()).unwrap_or_default();
        net.count_drop(DropReason::NotConvertible, refused + lost);
        net.count_drop(DropReason::TooLong, too_long);
        if has_failed {
            let formats = chain.map(|chain| format!("from {} to {} ", chain.from.id(), chain.to.id()));
            let text = format!(
                "the conversion {}of stream `{}` failed on a record because of a bug in the daemon: its records are \
                 dropped",
                formats.unwrap_or_default(),
                stream.name()
            );
            // The managers may have ended before.
            let _ = managers.send(ControlRequest::Event(EventKind::Failed, self.at(), text));
        }
    }
    /// Recomputes the conversions that subscriptions here want on a stream, and notifies listeners at all I/O contexts of the new
    /// ones.
    pub(crate) fn note_wanted(
        &mut self,
        stream_key: usize,
        subscriptions: &Subscriptions,
        (net, host): (&mut Net, &mut Host),
        (inbox, place): (&ContextInbox, IoPlace),
    ) {
        let Some(stream) = self.present(stream_key) else { return };
        let mut wanted: Vec<(Format, Format)> = Vec::new();
        for accept in stream.subscriptions().iter().filter_map(|&key| subscriptions.accept(key)) {
            for want in accept.missed.iter().flat_map(|from| accept.targets.iter().map(move |to| (from, to))) {
                let known = wanted.iter().any(|known| (known.0.id(), known.1.id()) == (want.0.id(), want.1.id()));
                if !known && wanted.len() < MAX_WANTED {
                    wanted.push((want.0.clone(), want.1.clone()));
                }
            }
        }
        let Some(stream) = self.present_mut(stream_key) else { return };
        if stream.morphing().wanted == wanted {
            return;
        }
        let before = std::mem::replace(&mut stream.morphing_mut().wanted, wanted.clone());
        stream.report_wanted(&before, &wanted, net, host);
        if !place.is_only() {
            inbox.at_others(place, self.catalog(), move |context| {
                let Context { streams, net, host, .. } = context;
                streams.take_wanted(stream_key, (place, &wanted), net, host);
            });
        }
    }

    /// Another I/O context wants these conversions on a stream now.
    fn take_wanted(
        &mut self,
        stream_key: usize,
        (place, wanted): (IoPlace, &[(Format, Format)]),
        net: &mut Net,
        host: &mut Host,
    ) {
        // This context may not have it yet, or no longer.
        let Some(stream) = self.get_mut(stream_key) else { return };
        let elsewhere = &mut stream.morphing_mut().wanted_elsewhere;
        let before = elsewhere.insert(place.index, wanted.to_vec()).unwrap_or_default();
        stream.report_wanted(&before, wanted, net, host);
    }
}

impl Stream {
    /// Notifies the listeners here of those conversions that were not wanted before.
    fn report_wanted(&self, before: &[(Format, Format)], wanted: &[(Format, Format)], net: &mut Net, host: &mut Host) {
        for (from, to) in wanted.iter().filter(|want| !before.contains(want)) {
            let notice = converter_wanted(self.name(), from, to);
            let listeners = self.morphing().listeners.iter();
            listeners.for_each(|listener| net.send(*listener, &notice.clone().into(), host.interface_mut()));
        }
    }
}

impl Context {
    /// The first record of a format without a route: notifies the subscriber, and asks the stream's listeners for a
    /// conversion.
    pub(crate) fn note_missed(&mut self, key: usize, format: u64) {
        // It may have ended with an event before this one.
        let Some(subscription) = self.subscriptions.get_mut(key) else { return };
        let (stream_key, peer, number) = (subscription.stream(), subscription.peer(), subscription.number());
        let accept = subscription.accept_mut();
        debug_assert!(accept.is_some(), "subscription {key} says what it accepts");
        let Some(accept) = accept else { return };
        if accept.route(format) != Route::Unreachable || accept.missed.iter().any(|missed| missed.id().0 == format) {
            return;
        }
        let Some(stream) = self.streams.present(stream_key) else { return };
        let missed = stream.formats().iter().find(|known| known.format.id().0 == format);
        debug_assert!(missed.is_some(), "format {format:x}, in which records came, is known");
        let Some(missed) = missed else { return };
        let missed = missed.format.clone();
        let targets = accept.targets.iter().filter(|_| accept.is_open).map(|target| target.id().to_string());
        let accepted: Vec<String> = accept.names.iter().map(short).chain(targets).collect();
        let message = format!(
            "no conversion of stream `{}` leads from format {} to {}; the programs that offer conversions on the \
             stream were asked for one (`crossdock conversions add` registers one)",
            stream.name(),
            missed.id(),
            accepted.join(" or "),
        );
        let (format, policy) = (missed.id().to_string(), accept.unreadable);
        accept.missed.push(missed);
        self.send_control(peer, &Notice::NoReader { subscription: number, format, policy, message }.into());
        let (peers, here) = ((&mut self.net, &mut self.host), (&self.inbox, self.place));
        self.streams.note_wanted(stream_key, &self.subscriptions, peers, here);
    }

    /// A subscription's routes were planned anew: notifies the subscriber of the missed formats that are readable now.
    pub(crate) fn note_readable(&mut self, key: usize) {
        let Some(subscription) = self.subscriptions.present_mut(key) else { return };
        let (stream_key, peer, number) = (subscription.stream(), subscription.peer(), subscription.number());
        let accept = subscription.accept_mut();
        debug_assert!(accept.is_some(), "subscription {key} says what it accepts");
        let Some(accept) = accept else { return };
        let missed = std::mem::take(&mut accept.missed);
        let routed = missed.into_iter().map(|format| (accept.route(format.id().0), format));
        let (readable, missed): (Vec<(Route, Format)>, _) = routed.partition(|(route, _)| *route != Route::Unreachable);
        accept.missed = missed.into_iter().map(|(_, format)| format).collect();
        let routes = accept.routes.clone();
        if !readable.is_empty() {
            self.sessions().0.flush(key);
        }
        for (route, format) in readable {
            let records = self.graph.held_records(key, format.id().0);
            let chain = self.streams.present(stream_key).map(|stream| stream.morphing().describe_route(route));
            let notice = Notice::Readable {
                subscription: number,
                format: format.id().to_string(),
                chain: chain.unwrap_or_default(),
                records,
            };
            self.send_control(peer, &notice.into());
        }
        // Records that were leaving when their route went wait again.
        for (format, _) in routes.into_iter().filter(|(_, route)| *route == Route::Unreachable) {
            if self.graph.held_records(key, format) > 0 {
                self.note_missed(key, format);
            }
        }
    }

    /// Drops records that have waited too long, and has the routes planned of streams that lost subscriptions.
    pub(crate) fn tick_waiting(&mut self) {
        while let Some(stream) = self.morph.stale.pop_first() {
            self.replan(stream);
        }
        if !self.morph.gone.is_empty() {
            self.morph.withdraw_conversions(&self.streams, &mut self.graph);
        }
        self.graph.expire_held(self.net.now_ns());
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
