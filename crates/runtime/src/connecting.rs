//! Connects streams across the I/O contexts. Where there are several, the managers lead a stream from each context whose
//! sessions publish it to each whose sessions take it: a publisher is answered, and a subscription is there, once that is so.
//! Where there is one I/O context, nothing crosses.

use crate::context::Context;
use crate::inbox::{AwaitedDelivery, ContextInbox};
use crate::io::IoPlace;
use crate::managers::request::{Connection, ControlRequest, Flow, RequestQueue};
use crate::refusal::refuse;
use crate::streams::{Stream, StreamFacts, Streams};
use crossdock_format::Format;
use crossdock_transport::control::{Refusal, RefusalCode};

impl Streams {
    /// Whether all that is published of a stream comes to the sessions at this place.
    pub(crate) fn is_delivered(&self, stream: usize, place: IoPlace) -> bool {
        place.is_only() || self.get(stream).is_some_and(Stream::is_delivered)
    }

    /// No session here takes a stream any more, perhaps.
    pub(crate) fn end_delivery(&mut self, stream: usize, managers: &RequestQueue) {
        let Some(there) = self.present_mut(stream) else { return };
        if there.end_delivery() {
            self.disconnect(stream, false, managers);
        }
    }

    /// No session at this place publishes a stream any more, perhaps.
    pub(crate) fn end_published(&self, stream: usize, place: IoPlace, managers: &RequestQueue) {
        if !place.is_only() && self.get(stream).is_some_and(Stream::is_unpublished) {
            self.disconnect(stream, true, managers);
        }
    }

    fn disconnect(&self, stream: usize, is_publishing: bool, managers: &RequestQueue) {
        let flow = Flow { stream: stream as u32, at: self.at(), is_publishing };
        // The managers may have ended before.
        let _ = managers.send(ControlRequest::Disconnect(flow));
    }
}

impl ContextInbox {
    /// Asks the managers to connect a stream.
    fn connect(
        &self,
        flow: Flow,
        formats: Vec<Format>,
        managers: &RequestQueue,
        then: impl FnOnce(&mut Context, Result<Option<StreamFacts>, Refusal>) + Send + 'static,
    ) {
        let inbox = self.own().clone();
        let answer = Box::new(move |outcome: Result<Option<StreamFacts>, String>| {
            let outcome = outcome.map_err(|why| refuse(RefusalCode::Limit, why));
            // The context may have stopped.
            let _ = inbox.post(move |context| then(context, outcome));
        });
        // The managers may have ended before: the daemon stops.
        let _ = managers.send(ControlRequest::Connect(Box::new(Connection { flow, formats, then: answer })));
    }
}

impl Context {
    /// Has all that is published of a stream come to the sessions here, and then runs a function.
    pub(crate) fn when_delivered(
        &mut self,
        stream: usize,
        then: impl FnOnce(&mut Context, Result<(), Refusal>) + Send + 'static,
    ) {
        if self.streams.is_delivered(stream, self.place) {
            return then(self, Ok(()));
        }
        // It may have gone since it was asked about.
        let Some(there) = self.streams.get_mut(stream) else { return then(self, Err(gone())) };
        let was_asked = there.await_delivery();
        self.inbox.await_delivery(AwaitedDelivery { stream, then: Box::new(then) });
        if !was_asked {
            let flow = Flow { stream: stream as u32, at: self.streams.at(), is_publishing: false };
            let then = move |context: &mut Context, outcome| context.take_delivery(stream, outcome);
            self.inbox.connect(flow, Vec::new(), &self.to_managers, then);
        }
    }

    fn take_delivery(&mut self, stream: usize, outcome: Result<Option<StreamFacts>, Refusal>) {
        let now_ns = self.net.now_ns();
        let Some(there) = self.streams.present_mut(stream) else { return };
        let outcome = outcome.map(|facts| facts.into_iter().for_each(|facts| there.learn(facts, now_ns)));
        there.note_delivery(outcome.is_ok());
        self.inbox.take_deliveries(stream).into_iter().for_each(|awaited| (awaited.then)(self, outcome.clone()));
        self.streams.end_delivery(stream, &self.to_managers);
    }

    /// Leads what sessions here publish of a stream to all that take it, and then runs a function. All I/O contexts to which it
    /// comes have taken in these formats of the stream then.
    pub(crate) fn when_published(
        &mut self,
        stream: usize,
        formats: Vec<Format>,
        then: impl FnOnce(&mut Context, Result<(), Refusal>) + Send + 'static,
    ) {
        if self.place.is_only() {
            return then(self, Ok(()));
        }
        // It may have gone since it was asked about.
        let Some(there) = self.streams.get_mut(stream) else { return then(self, Err(gone())) };
        there.begin_announcing();
        let flow = Flow { stream: stream as u32, at: self.streams.at(), is_publishing: true };
        self.inbox.connect(flow, formats, &self.to_managers, move |context, outcome| {
            if let Some(there) = context.streams.get_mut(stream) {
                there.end_announcing();
            }
            then(context, outcome.map(drop));
            context.streams.end_published(stream, context.place, &context.to_managers);
        });
    }
}

fn gone() -> Refusal {
    refuse(RefusalCode::UnknownStream, "the stream has gone")
}
