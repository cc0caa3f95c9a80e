//! Who makes and who reads which stream, and whether that can be.

use super::{Current, Difference, Note, Refusal, Wanted, WantedHandler};
use std::collections::{BTreeMap, BTreeSet};

/// The wanted handlers as a graph.
pub(super) struct Streams<'a> {
    /// Who makes a stream.
    makers: BTreeMap<&'a str, &'a str>,
    readers: BTreeMap<&'a str, Vec<&'a str>>,
    /// All handlers, each after those whose streams it reads.
    pub(super) order: Vec<&'a str>,
    /// What differs, of those where something does.
    pub(super) differences: BTreeMap<&'a str, Difference>,
    pub(super) notes: Vec<Note>,
}

impl<'a> Streams<'a> {
    /// # Errors
    /// What cannot be, whoever runs where.
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
        refusals.extend(streams.formats(wanted));
        refusals.extend(streams.states(current, wanted));
        if refusals.is_empty() { Ok(streams) } else { Err(refusals) }
    }

    /// Who makes a derived stream.
    pub(super) fn maker(&self, stream: &str) -> Option<&'a str> {
        self.makers.get(stream).copied()
    }

    /// Who reads a stream.
    pub(super) fn readers(&self, stream: &str) -> &[&'a str] {
        self.readers.get(stream).map_or(&[], Vec::as_slice)
    }

    fn is_of_streams(&self, handler: &str) -> bool {
        self.differences.get(handler).is_some_and(|difference| difference.is_of_streams())
    }

    fn join(&mut self, current: &Current, wanted: &'a Wanted) -> Vec<Refusal> {
        let mut refusals = Vec::new();
        let mut makers: BTreeMap<&str, Vec<&'a str>> = BTreeMap::new();
        for (name, handler) in wanted {
            let stream = handler.definition.makes.as_str();
            makers.entry(stream).or_default().push(name);
            if current.published.contains_key(stream) && self.is_of_streams(name) {
                refusals.push(Refusal::MakesPublished { handler: name.clone(), stream: stream.to_owned() });
            }
            for stream in &handler.definition.reads {
                self.readers.entry(stream).or_default().push(name);
            }
        }
        for (stream, handlers) in &makers {
            if handlers.len() > 1 {
                let handlers = handlers.iter().map(|&handler| handler.to_owned()).collect();
                refusals.push(Refusal::SameStream { stream: (*stream).to_owned(), handlers });
            }
        }
        self.makers = makers.into_iter().filter_map(|(stream, handlers)| Some((stream, *handlers.first()?))).collect();
        refusals
    }

    /// Puts the handlers in the order of the data.
    fn sort(&mut self, wanted: &'a Wanted) -> Option<Refusal> {
        let makers = |name: &str| {
            let reads = wanted.get(name).map(|handler| &handler.definition.reads);
            reads.into_iter().flatten().filter_map(|stream| self.makers.get(stream.as_str()).copied())
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
                // Of two makers of one stream only the first is in the graph; the refusal is already there.
                if let Some(left) = missing.get_mut(reader)
                    && self.maker(&wanted[name].definition.makes) == Some(name)
                {
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
    fn producers(&mut self, current: &Current, wanted: &Wanted) -> Vec<Refusal> {
        let made: BTreeMap<&str, &String> =
            current.handlers.iter().map(|(name, handler)| (handler.definition.makes.as_str(), name)).collect();
        let mut refusals = Vec::new();
        for (&stream, readers) in &self.readers {
            if self.makers.contains_key(stream) || current.published.contains_key(stream) {
                continue;
            }
            let (stream, readers) = (stream.to_owned(), readers.iter().map(|&reader| reader.to_owned()));
            match made.get(stream.as_str()) {
                Some(&handler) => {
                    refusals.push(Refusal::StillRead { handler: handler.clone(), stream, readers: readers.collect() });
                }
                None => {
                    let note = |handler| Note::NoProducer { handler, stream: stream.clone() };
                    self.notes.extend(readers.map(note));
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
                let Some((maker, made)) = self.maker(stream).and_then(|maker| Some((maker, wanted.get(maker)?))) else {
                    continue;
                };
                let formats: Vec<_> = made.definition.gives.difference(takes).copied().collect();
                if !formats.is_empty() && (self.is_of_streams(reader) || self.is_of_streams(maker)) {
                    let (maker, reader, stream) = (maker.to_owned(), reader.clone(), stream.clone());
                    refusals.push(Refusal::Formats { maker, reader, stream, formats });
                }
            }
        }
        refusals
    }

    /// Whether no state is lost of which nobody said that it may be.
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
