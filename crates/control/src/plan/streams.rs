//! The makers and readers of streams, and whether that can be.

use super::{Current, Difference, Note, Refusal, Wanted, WantedHandler};
use std::collections::{BTreeMap, BTreeSet};

/// The wanted handlers as a graph.
pub(super) struct Streams<'a> {
    /// The makers of a stream: one handler, or the replicas of one.
    makers: BTreeMap<&'a str, Vec<&'a str>>,
    readers: BTreeMap<&'a str, Vec<&'a str>>,
    /// All handlers, each after those whose streams it reads.
    pub(super) order: Vec<&'a str>,
    /// The differences, of those where something does.
    pub(super) differences: BTreeMap<&'a str, Difference>,
    pub(super) notes: Vec<Note>,
}

impl<'a> Streams<'a> {
    /// # Errors
    /// The contradictions, whoever runs where.
    pub(super) fn new(current: &'a Current, wanted: &'a Wanted) -> Result<Streams<'a>, Vec<Refusal>> {
        let difference = |(name, handler): (&'a String, &'a WantedHandler)| {
            let difference = Difference::between(current.handlers.get(name), handler, &current.contexts);
            difference.is_any().then_some((name.as_str(), difference))
        };
        let mut streams = Streams {
            makers: BTreeMap::new(),
            readers: BTreeMap::new(),
            order: Vec::new(),
            differences: wanted.iter().filter_map(difference).collect(),
            notes: Vec::new(),
        };
        let mut refusals = streams.join(current, wanted);
        refusals.extend(streams.sort(wanted));
        refusals.extend(streams.producers(current, wanted));
        refusals.extend(streams.replicas(wanted));
        refusals.extend(streams.formats(wanted));
        refusals.extend(streams.states(current, wanted));
        if refusals.is_empty() { Ok(streams) } else { Err(refusals) }
    }

    /// The makers of a derived stream.
    pub(super) fn makers(&self, stream: &str) -> &[&'a str] {
        self.makers.get(stream).map_or(&[], Vec::as_slice)
    }

    /// The readers of a stream.
    pub(super) fn readers(&self, stream: &str) -> &[&'a str] {
        self.readers.get(stream).map_or(&[], Vec::as_slice)
    }

    fn is_of_streams(&self, handler: &str) -> bool {
        self.differences.get(handler).is_some_and(|difference| difference.is_of_streams())
    }

    fn join(&mut self, current: &Current, wanted: &'a Wanted) -> Vec<Refusal> {
        let mut refusals = Vec::new();
        let mut handlers: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (name, handler) in wanted {
            let (stream, known_as) = (handler.definition.makes.as_str(), handler.definition.known_as(name));
            self.makers.entry(stream).or_default().push(name);
            let is_first = handlers.entry(stream).or_default().insert(known_as);
            if is_first && current.published.contains_key(stream) && self.is_of_streams(name) {
                refusals.push(Refusal::MakesPublished { handler: known_as.to_owned(), stream: stream.to_owned() });
            }
            for stream in &handler.definition.reads {
                self.readers.entry(stream).or_default().push(name);
            }
        }
        for (stream, handlers) in handlers.into_iter().filter(|(_, handlers)| handlers.len() > 1) {
            let handlers = handlers.into_iter().map(str::to_owned).collect();
            refusals.push(Refusal::SameStream { stream: stream.to_owned(), handlers });
        }
        refusals
    }

    /// Whether what replicas read is made at each context, where handlers make it.
    fn replicas(&self, wanted: &Wanted) -> Vec<Refusal> {
        let mut refusals = Vec::new();
        for (name, handler) in wanted.iter().filter(|(_, handler)| handler.definition.replica_of.is_some()) {
            for stream in &handler.definition.reads {
                let is_one = |maker: &&&str| wanted[**maker].definition.replica_of.is_none();
                let Some(maker) = self.makers(stream).iter().find(is_one) else { continue };
                let handler = handler.definition.known_as(name).to_owned();
                let refusal = Refusal::OneMaker { handler, stream: stream.clone(), maker: (*maker).to_owned() };
                add(&mut refusals, refusal);
            }
        }
        refusals
    }

    /// Puts the handlers in the order of the data.
    fn sort(&mut self, wanted: &'a Wanted) -> Option<Refusal> {
        let makers = |name: &str| {
            let reads = wanted.get(name).map(|handler| &handler.definition.reads);
            reads.into_iter().flatten().flat_map(|stream| self.makers(stream)).copied()
        };
        let mut missing: BTreeMap<&str, usize> =
            wanted.keys().map(|name| (name.as_str(), makers(name).count())).collect();
        let mut ready: BTreeSet<&'a str> =
            wanted.keys().map(String::as_str).filter(|name| missing.get(name) == Some(&0)).collect();
        let mut order = Vec::with_capacity(wanted.len());
        while let Some(name) = ready.pop_first() {
            order.push(name);
            missing.remove(name);
            for &reader in wanted.get(name).map_or(&[][..], |handler| self.readers(&handler.definition.makes)) {
                if let Some(left) = missing.get_mut(reader) {
                    *left -= 1;
                    if *left == 0 {
                        ready.insert(reader);
                    }
                }
            }
        }
        // Each of those left reads what another of them makes: going from maker to maker comes round.
        let mut cycle: Vec<&str> = missing.keys().next().copied().into_iter().collect();
        while let Some(&last) = cycle.last() {
            let from = makers(last).find(|maker| missing.contains_key(maker))?;
            if let Some(start) = cycle.iter().position(|name| *name == from) {
                let handlers = cycle[start..].iter().rev().map(|&name| name.to_owned()).collect();
                return Some(Refusal::Cycle { handlers });
            }
            cycle.push(from);
        }
        self.order = order;
        None
    }

    /// Whether each stream that is read has somebody who makes it.
    fn producers<'b>(&mut self, current: &'b Current, wanted: &Wanted) -> Vec<Refusal> {
        let maker = |(name, handler): (&'b String, &'b super::Deployed)| {
            (handler.definition.makes.as_str(), handler.definition.known_as(name))
        };
        let made: BTreeMap<&str, &str> = current.handlers.iter().map(maker).collect();
        let mut refusals = Vec::new();
        for (&stream, readers) in &self.readers {
            if self.makers.contains_key(stream) || current.published.contains_key(stream) {
                continue;
            }
            let stream = stream.to_owned();
            match made.get(stream.as_str()) {
                Some(&handler) => {
                    let known_as = |reader: &&str| wanted[*reader].definition.known_as(reader).to_owned();
                    let readers: BTreeSet<String> = readers.iter().map(known_as).collect();
                    let (handler, readers) = (handler.to_owned(), readers.into_iter().collect());
                    refusals.push(Refusal::StillRead { handler, stream, readers });
                }
                None => {
                    let note =
                        |reader: &&str| Note::NoProducer { handler: (*reader).to_owned(), stream: stream.clone() };
                    self.notes.extend(readers.iter().map(note));
                }
            }
        }
        for (name, handler) in wanted {
            for stream in &handler.definition.reads {
                let formats = current.published.get(stream).map(|published| &published.formats);
                if let (Some(takes), Some(formats)) = (&handler.definition.takes, formats)
                    && !formats.is_empty()
                    && takes.is_disjoint(formats)
                {
                    self.notes.push(Note::TakesNone { handler: name.clone(), stream: stream.clone() });
                }
            }
        }
        refusals
    }

    /// Whether the formats of neighbours fit, where one of them changes.
    fn formats(&self, wanted: &Wanted) -> Vec<Refusal> {
        let mut refusals = Vec::new();
        for (reader, handler) in wanted {
            let Some(takes) = &handler.definition.takes else { continue };
            for stream in &handler.definition.reads {
                for &maker in self.makers(stream) {
                    let made = &wanted[maker].definition;
                    let formats: Vec<_> = made.gives.difference(takes).copied().collect();
                    if !formats.is_empty() && (self.is_of_streams(reader) || self.is_of_streams(maker)) {
                        let [maker, reader] = [made.known_as(maker), handler.definition.known_as(reader)];
                        let (maker, reader, stream) = (maker.to_owned(), reader.to_owned(), stream.clone());
                        add(&mut refusals, Refusal::Formats { maker, reader, stream, formats });
                    }
                }
            }
        }
        refusals
    }

    /// Whether no state is lost unless somebody said that it may be.
    fn states(&self, current: &Current, wanted: &Wanted) -> Vec<Refusal> {
        let lost = |(name, difference): (&&'a str, &Difference)| {
            let (deployed, handler) = (current.handlers.get(*name)?, wanted.get(*name)?);
            let state = deployed.state.as_ref().filter(|state| !handler.takes_state.contains(*state))?;
            (difference.version && !handler.discard_state).then(|| Refusal::State {
                handler: (*name).to_owned(),
                from: deployed.definition.version,
                to: handler.definition.version,
                state: state.clone(),
            })
        };
        self.differences.iter().filter_map(lost).collect()
    }
}

/// Adds a refusal, unless another replica of the same handler has led to it already.
fn add(refusals: &mut Vec<Refusal>, refusal: Refusal) {
    if !refusals.contains(&refusal) {
        refusals.push(refusal);
    }
}
