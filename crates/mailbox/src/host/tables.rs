//! The tables of clients and domains. Of each look-up it is said whether the entry may be gone: keys that clients or the daemon's
//! lists hold may be of what has left since; what is being worked on is there, and so is the domain of a message.

use super::client::{Client, ClientKey, Port};
use super::heap::{Heap, Heaps};
use super::mailbox::PortKey;
use super::message::{Area, Message};
use super::prepared::DomainSegments;
use std::sync::Arc;

/// Attached clients, by their places.
#[derive(Default)]
pub(super) struct Clients(Vec<Option<Box<Client>>>);

impl Clients {
    /// The first free place.
    pub(super) fn free_place(&self) -> usize {
        self.0.iter().position(Option::is_none).unwrap_or(self.0.len())
    }

    /// Puts a client at the place that its key names, which is free.
    pub(super) fn insert(&mut self, client: Client) {
        let at = client.key.index();
        if self.0.len() <= at {
            self.0.resize_with(at + 1, || None);
        }
        self.0[at] = Some(Box::new(client));
    }

    /// Takes a client out, unless it has left.
    pub(super) fn take(&mut self, key: ClientKey) -> Option<Box<Client>> {
        self.0.get_mut(key.index())?.take_if(|client| client.key == key)
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Client> {
        self.0.iter().flatten().map(Box::as_ref)
    }

    /// A client, unless it has left.
    #[inline(always)]
    pub(super) fn get(&self, key: ClientKey) -> Option<&Client> {
        self.0.get(key.index())?.as_deref().filter(|client| client.key == key)
    }

    /// See [`Clients::get`].
    #[inline(always)]
    pub(super) fn get_mut(&mut self, key: ClientKey) -> Option<&mut Client> {
        self.0.get_mut(key.index())?.as_deref_mut().filter(|client| client.key == key)
    }

    /// The client at a place that one of the daemon's lists names; it may have left since it was noted there.
    #[inline(always)]
    pub(super) fn at(&self, index: u32) -> Option<&Client> {
        self.0.get(index as usize)?.as_deref()
    }

    /// See [`Clients::at`].
    #[inline(always)]
    pub(super) fn at_mut(&mut self, index: u32) -> Option<&mut Client> {
        self.0.get_mut(index as usize)?.as_deref_mut()
    }

    /// The port that one of the daemon's lists names; it may have been closed since it was noted there.
    #[inline(always)]
    pub(super) fn port_at(&mut self, key: PortKey) -> Option<&mut Port> {
        self.at_mut(key.client)?.port_mut(key.port)
    }

    /// The client at a place where there is one: it was found there, its rings are polled, or a mailbox has it as its reader.
    #[inline(always)]
    #[track_caller]
    pub(super) fn present(&mut self, index: u32) -> Option<&mut Client> {
        let client = self.at_mut(index);
        debug_assert!(client.is_some(), "client {index} is worked on and attached");
        client
    }

    /// The port of a key for which there is one, for the same reasons.
    #[inline(always)]
    #[track_caller]
    pub(super) fn present_port(&mut self, key: PortKey) -> Option<&mut Port> {
        self.present(key.client)?.present_port(key.port)
    }
}

/// One protection domain.
pub(super) struct Domain {
    pub(super) name: String,
    /// Whoever attaches clients finds them by these again, as long as the domain lives.
    pub(super) segments: Arc<DomainSegments>,
    pub(super) heaps: Heaps,
    pub(super) clients: u32,
}

/// The domains of clients and messages. One is there as long as it has either.
#[derive(Default)]
pub(super) struct Domains(Vec<Option<Domain>>);

impl Domains {
    /// The number of the domain with these segments, which is added if it is not there.
    pub(super) fn find_or_add(&mut self, segments: &Arc<DomainSegments>) -> u16 {
        let same = |domain: &Domain| Arc::ptr_eq(&domain.segments, segments);
        let known = self.0.iter().position(|domain| domain.as_ref().is_some_and(same));
        known.map_or_else(|| self.add(segments), |at| at as u16)
    }

    fn add(&mut self, segments: &Arc<DomainSegments>) -> u16 {
        let heaps = segments.take_heaps();
        let domain = Domain { name: segments.name().to_owned(), segments: segments.clone(), heaps, clients: 0 };
        let at = self.0.iter().position(Option::is_none).unwrap_or(self.0.len());
        if at == self.0.len() {
            self.0.push(None);
        }
        self.0[at] = Some(domain);
        at as u16
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Domain> {
        self.0.iter().flatten()
    }

    /// The domain of a client or message.
    #[inline(always)]
    #[track_caller]
    pub(super) fn of(&self, at: u16) -> Option<&Domain> {
        let domain = self.0.get(usize::from(at)).and_then(Option::as_ref);
        debug_assert!(domain.is_some(), "domain {at} has a client or a message, and stays");
        domain
    }

    /// See [`Domains::of`].
    #[inline(always)]
    #[track_caller]
    pub(super) fn of_mut(&mut self, at: u16) -> Option<&mut Domain> {
        let domain = self.0.get_mut(usize::from(at)).and_then(Option::as_mut);
        debug_assert!(domain.is_some(), "domain {at} has a client or a message, and stays");
        domain
    }

    /// The heap that a message's buffer is of.
    #[inline(always)]
    #[track_caller]
    pub(super) fn heap(&self, message: &Message) -> Option<&Heap> {
        Some(&self.of(message.0.domain)?.heaps[message.0.area as usize])
    }

    /// Whether nobody else has a claim on a message's buffer.
    #[inline(always)]
    #[track_caller]
    pub(super) fn is_sole(&self, message: &Message) -> bool {
        // Most never were shared, and the heap's table is another cache line.
        !message.0.is_shared || self.heap(message).is_some_and(|heap| heap.is_sole(message.0.buffer))
    }

    /// A domain's heap, for a new message.
    #[inline(always)]
    #[track_caller]
    pub(super) fn heap_mut(&mut self, at: u16, area: Area) -> Option<&mut Heap> {
        Some(&mut self.of_mut(at)?.heaps[area as usize])
    }

    /// Copies all of a message into another of its length.
    #[inline(always)]
    #[track_caller]
    pub(super) fn copy(&self, from: &Message, to: &Message) {
        let (Some(outer), Some(inner)) = (self.heap(from), self.heap(to)) else { return };
        let (start, at) = (from.0.start as usize, to.0.start as usize);
        let is_copied = inner.segment.copy_from(at, &outer.segment, start, from.len());
        debug_assert!(is_copied, "messages lie in their segments");
    }

    /// Lets go of a domain without clients once none of its buffers is in use.
    pub(super) fn release_unused(&mut self, at: u16) {
        let unused = |d: &mut Domain| d.clients == 0 && d.heaps.iter().all(|heap| heap.in_use() == 0);
        let domain = self.0.get_mut(usize::from(at)).and_then(|domain| domain.take_if(unused));
        if let Some(Domain { segments, heaps, .. }) = domain {
            segments.keep_heaps(heaps);
        }
    }
}
