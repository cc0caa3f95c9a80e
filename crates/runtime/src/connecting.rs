//! Connects streams across the I/O contexts. Where there are several, the managers lead a stream from each context whose
//! sessions publish it to each whose sessions take it: a publisher is answered, and a subscription is there, once that is so.
//! Where there is one I/O context, nothing crosses.

use crate::context::Context;
use crate::inbox::AwaitedDelivery;
use crate::managers::request::{Connection, ControlRequest, Flow};
use crate::refusal::refuse;
use crate::streams::{Stream, StreamFacts};
use crossdock_format::Format;
use crossdock_transport::control::{Refusal, RefusalCode};

impl Context {
    /// Whether all that is published of a stream comes to the sessions here.
    pub(crate) fn is_delivered(&self, stream: usize) -> bool {
        self.place.is_only() || self.streams.get(stream).is_some_and(Stream::is_delivered)
    }

    /// Has all that is published of a stream come to the sessions here, and then runs a function.
    pub(crate) fn when_delivered(
        &mut self,
        stream: usize,
        then: impl FnOnce(&mut Context, Result<(), Refusal>) + Send + 'static,
    ) {
        if self.is_delivered(stream) {
            return then(self, Ok(()));
        }
        let Some(there) = self.streams.get_mut(stream) else { return then(self, Err(gone())) };
        let was_asked = there.await_delivery();
        self.inbox.await_delivery(AwaitedDelivery { stream, then: Box::new(then) });
        if !was_asked {
            self.connect(stream, false, Vec::new(), move |context, outcome| context.take_delivery(stream, outcome));
        }
    }

    fn take_delivery(&mut self, stream: usize, outcome: Result<Option<StreamFacts>, Refusal>) {
        let now_ns = self.net.now_ns();
        let Some(there) = self.streams.present_mut(stream) else { return };
        let outcome = outcome.map(|facts| facts.into_iter().for_each(|facts| there.learn(facts, now_ns)));
        there.note_delivery(outcome.is_ok());
        self.inbox.take_deliveries(stream).into_iter().for_each(|awaited| (awaited.then)(self, outcome.clone()));
        self.end_delivery(stream);
    }

    /// No session here takes a stream any more, perhaps.
    pub(crate) fn end_delivery(&mut self, stream: usize) {
        let Some(there) = self.streams.present_mut(stream) else { return };
        if there.end_delivery() {
            self.disconnect(stream, false);
        }
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
        let Some(there) = self.streams.get_mut(stream) else { return then(self, Err(gone())) };
        there.begin_announcing();
        self.connect(stream, true, formats, move |context, outcome| {
            if let Some(there) = context.streams.get_mut(stream) {
                there.end_announcing();
            }
            then(context, outcome.map(drop));
            context.end_published(stream);
        });
    }

    /// No session here publishes a stream any more, perhaps.
    pub(crate) fn end_published(&mut self, stream: usize) {
        if !self.place.is_only() && self.streams.get(stream).is_some_and(Stream::is_unpublished) {
            self.disconnect(stream, true);
        }
    }

    /// Asks the managers to connect a stream.
    fn connect(
        &mut self,
        stream: usize,
        is_publishing: bool,
        formats: Vec<Format>,
        then: impl FnOnce(&mut Context, Result<Option<StreamFacts>, Refusal>) + Send + 'static,
    ) {
        let flow = Flow { stream: stream as u32, at: self.graph.index(), is_publishing };
        let inbox = self.inbox.own().clone();
        let answer = Box::new(move |outcome: Result<Option<StreamFacts>, String>| {
            let outcome = outcome.map_err(|why| refuse(RefusalCode::Limit, why));
            // The context may have stopped.
            let _ = inbox.post(move |context| then(context, outcome));
        });
        // The managers may have ended before: the daemon stops.
        let _ = self.to_managers.send(ControlRequest::Connect(Box::new(Connection { flow, formats, then: answer })));
    }

    fn disconnect(&self, stream: usize, is_publishing: bool) {
        let flow = Flow { stream: stream as u32, at: self.graph.index(), is_publishing };
        // The managers may have ended before.
        let _ = self.to_managers.send(ControlRequest::Disconnect(flow));
    }
}

fn gone() -> Refusal {
    refuse(RefusalCode::UnknownStream, "the stream has gone")
}
