//! Requests that offer and withdraw conversions, and that listen for wanted ones.

use crate::admission::QueryCostModel;
use crate::announcing::reply;
use crate::catalog::{Between, Catalog};
use crate::context::Context;
use crate::graph::Graph;
use crate::inbox::ContextInbox;
use crate::morph::Morph;
use crate::net::peers::PeerRef;
use crate::pending::Pending;
use crate::refusal::refuse;
use crate::streams::{Stream, Streams};
use crossdock_control::conversions::Owner;
use crossdock_format::Format;
use crossdock_transport::control::{Refusal, RefusalCode};
use crossdock_transport::{ControlMessage, FormatName, Notice};
use std::sync::Arc;

/// Most sessions that may listen on one stream: each is notified of every wanted conversion.
const MAX_LISTENERS: usize = 256;

/// A session's request to offer a conversion, or to withdraw it.
pub(crate) struct ConversionRequest {
    /// The request's number.
    pub(crate) id: u32,
    /// The stream's name.
    pub(crate) stream: String,
    /// The format that the conversion reads.
    pub(crate) from: FormatName,
    /// The format that it makes.
    pub(crate) to: FormatName,
    /// Whether it is kept, and not the session's.
    pub(crate) kept: bool,
}

impl ConversionRequest {
    fn between(&self) -> Between<'_> {
        Between { stream: &self.stream, from: &self.from, to: &self.to }
    }

    fn owner(&self, peer: PeerRef) -> Owner {
        if self.kept { Owner::Kept } else { Owner::Session(peer.serial) }
    }
}

impl Context {
    /// A session offers a conversion.
    pub(crate) fn register_conversion(&mut self, key: usize, request: ConversionRequest, text: String) {
        let Some(pending) = self.pause(key, request.id) else { return };
        if !request.kept {
            self.morph.owners.insert(pending.peer().serial);
        }
        let (owner, snapshot) = (request.owner(pending.peer()), self.streams.snapshot().clone());
        let work = move |_: &QueryCostModel| (snapshot.compile(&request.between(), &text), request.stream);
        self.plan(work, move |context, compiled| match compiled {
            Ok((Ok(compiled), stream)) => {
                let name = stream.clone();
                let change = move |catalog: &mut Catalog| catalog.register(owner, &stream, compiled);
                context.streams.change_kept(&context.inbox, pending, name, change);
            }
            Ok((Err(refusal), _)) => context.answer(&pending, Err(refusal)),
            Err(panicked) => context.answer(&pending, Err(refuse(RefusalCode::Conversion, panicked.to_string()))),
        });
    }

    /// A session withdraws a conversion.
    pub(crate) fn unregister_conversion(&mut self, key: usize, request: ConversionRequest) {
        let Some(pending) = self.pause(key, request.id) else { return };
        let (owner, snapshot) = (request.owner(pending.peer()), self.streams.snapshot().clone());
        let work = move |_: &QueryCostModel| {
            let id_of = |name| snapshot.format_known(&request.stream, name).map(|format| format.id());
            let ids = id_of(&request.from).and_then(|from| Ok((from, id_of(&request.to)?)));
            (ids, request.stream)
        };
        self.plan(work, move |context, found| match found {
            Ok((Ok((from, to)), stream)) => {
                let name = stream.clone();
                let change = move |catalog: &mut Catalog| catalog.unregister(owner, &stream, from, to);
                context.streams.change_kept(&context.inbox, pending, name, change);
            }
            Ok((Err(refusal), _)) => context.answer(&pending, Err(refusal)),
            Err(panicked) => context.answer(&pending, Err(refuse(RefusalCode::Conversion, panicked.to_string()))),
        });
    }

    /// A session listens for conversions that a stream's subscribers lack, and gets a notice of those that they lack
    /// now.
    pub(crate) fn listen_for_converters(&mut self, key: usize, id: u32, stream: String) {
        let Some(pending) = self.pause(key, id) else { return };
        self.use_stream(stream, true, move |context, entered| match entered {
            Ok(Some(key)) => context.take_listener(&pending, key),
            Ok(None) => context.answer(&pending, Err(refuse(RefusalCode::UnknownStream, "the stream is unknown"))),
            Err(refusal) => context.answer(&pending, Err(refusal)),
        });
    }

    fn take_listener(&mut self, pending: &Pending, stream_key: usize) {
        let (key, stream) = (self.net.still_there(pending.peer()), self.streams.present_mut(stream_key));
        // The peer may have gone meanwhile.
        let (Some(key), Some(stream)) = (key, stream) else { return self.streams.leave(stream_key) };
        let listeners = &mut stream.morphing_mut().listeners;
        if listeners.contains(&key) {
            self.streams.leave(stream_key);
            return self.answer(pending, Ok(()));
        }
        if listeners.len() >= MAX_LISTENERS {
            let message = format!("{MAX_LISTENERS} sessions listen on stream `{}`, the bound", stream.name());
            self.streams.leave(stream_key);
            return self.answer(pending, Err(refuse(RefusalCode::Limit, message)));
        }
        listeners.push(key);
        let (name, wanted) = (stream.name().to_owned(), stream.morphing().all_wanted());
        for (from, to) in wanted {
            self.send_control(key, &converter_wanted(&name, &from, &to).into());
        }
        self.answer(pending, Ok(()));
    }
}

impl Streams {
    /// Has the catalog make a change to a stream. The peer goes on as soon as it is made, and is answered once it is on
    /// disk, if it has to be, and all I/O contexts have planned routes by it.
    fn change_kept(
        &self,
        inbox: &ContextInbox,
        pending: Pending,
        stream: String,
        change: impl FnOnce(&mut Catalog) -> Result<(), Refusal> + Send + 'static,
    ) {
        let (inbox, inboxes, control) = (inbox.own().clone(), Arc::clone(inbox.all()), self.catalog().clone());
        self.catalog().post(move |catalog| {
            let outcome = change(catalog);
            catalog.publish_snapshot();
            let (later, peer, id) = (inbox.clone(), pending.peer(), pending.id());
            let answer = move |outcome| {
                let reply = move |context: &mut Context| {
                    // It may have gone meanwhile.
                    let Some(key) = context.net.still_there(peer) else { return };
                    context.send_control(key, &ControlMessage::Reply(reply(id, outcome)));
                };
                // By the control thread, since contexts do not wait for each other.
                let last = Arc::new(OnDrop(Some(move || {
                    control.post(move |_| {
                        let _ = later.post(reply);
                    });
                })));
                for inbox in inboxes.iter() {
                    let (stream, last) = (stream.clone(), Arc::clone(&last));
                    // The context may have stopped; so may the one that waits.
                    let _ = inbox.post(move |context| context.when_routed(&stream, move |_| drop(last)));
                }
            };
            catalog.answer_when_kept(outcome, Box::new(answer));
            let _ = inbox.post(move |context| context.go_on_unanswered(&pending));
        });
    }
}

impl Morph {
    /// A peer is gone, and its conversions with it.
    pub(crate) fn end_conversions(&mut self, peer: PeerRef, streams: &mut Streams, graph: &mut Graph) {
        let listens = |stream: &Stream| stream.morphing().listeners.contains(&peer.key);
        let keys: Vec<usize> = streams.keyed().filter(|(_, s)| listens(s)).map(|(key, _)| key).collect();
        for key in keys {
            if let Some(stream) = streams.get_mut(key) {
                stream.morphing_mut().listeners.retain(|&listener| listener != peer.key);
            }
            streams.leave(key);
        }
        if !self.owners.remove(&peer.serial) {
            return;
        }
        let owns = |stream: &Stream| {
            stream.entry().conversions().graph().conversions().iter().any(|c| c.owner == Owner::Session(peer.serial))
        };
        let theirs = streams.keyed().filter(|(_, stream)| owns(stream)).map(|(key, _)| key as u32).collect();
        self.gone.push((peer.serial, theirs));
        self.withdraw_conversions(streams, graph);
    }

    /// Withdraws the conversions of sessions that have gone, after the preceding records of their streams here have crossed to other
    /// contexts.
    pub(crate) fn withdraw_conversions(&mut self, streams: &Streams, graph: &mut Graph) {
        for (serial, theirs) in std::mem::take(&mut self.gone) {
            match theirs.iter().all(|stream| graph.has_crossed(*stream)) {
                true => streams.catalog().post(move |catalog| catalog.end_owner(serial)),
                false => self.gone.push((serial, theirs)),
            }
        }
    }
}

/// Runs a function once the last who holds it lets go of it.
struct OnDrop<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(|then| then());
    }
}

/// The notice to listeners that a conversion is wanted.
pub(crate) fn converter_wanted(stream: &str, from: &Format, to: &Format) -> Notice {
    Notice::ConverterWanted { stream: stream.to_owned(), from: from.describe(), to: to.describe() }
}
