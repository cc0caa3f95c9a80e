//! The handlers that a change concerns. All others stay unchanged, and a plan needs nothing of them but what they take.
//!
//! A change concerns the handlers that it names and those that read what they make, directly or not: their formats, rates and
//! reservations may change with it. To plan these, all handlers are needed whose streams they read, directly or not.
//! The decision of a plan decides is the same as with all handlers: their order depends on nothing else.

use crate::load::{Contexts, Load};
use std::collections::{BTreeMap, BTreeSet};

/// The streams of a handler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Links {
    /// The streams that it reads.
    pub reads: BTreeSet<String>,
    /// The stream that it makes.
    pub makes: String,
}

/// The makers and readers of each stream, kept from change to change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamIndex {
    handlers: BTreeMap<String, Links>,
    makers: BTreeMap<String, BTreeSet<String>>,
    readers: BTreeMap<String, BTreeSet<String>>,
}

/// The handlers that a change concerns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Those that the change names, and those that read what they make, directly or not.
    pub affected: BTreeSet<String>,
    /// These, and all that are needed to plan them.
    pub handlers: BTreeSet<String>,
    /// Whether a path on which an affected handler lies has a reservation. Then all handlers are there that lie on paths with
    /// one of them.
    pub reserves: bool,
}

impl StreamIndex {
    /// A handler has these streams from now on.
    pub fn insert(&mut self, name: &str, links: Links) {
        if self.handlers.get(name) == Some(&links) {
            return;
        }
        self.remove(name);
        self.makers.entry(links.makes.clone()).or_default().insert(name.to_owned());
        for stream in &links.reads {
            self.readers.entry(stream.clone()).or_default().insert(name.to_owned());
        }
        self.handlers.insert(name.to_owned(), links);
    }

    /// A handler is gone.
    pub fn remove(&mut self, name: &str) {
        let Some(links) = self.handlers.remove(name) else { return };
        take_out(&mut self.makers, &links.makes, name);
        links.reads.iter().for_each(|stream| take_out(&mut self.readers, stream, name));
    }

    /// A handler's streams.
    #[must_use]
    pub fn links(&self, name: &str) -> Option<&Links> {
        self.handlers.get(name)
    }

    /// The streams that handlers make.
    pub fn made(&self) -> impl Iterator<Item = &str> {
        self.makers.keys().map(String::as_str)
    }

    /// The handlers that make a stream.
    pub fn makers(&self, stream: &str) -> impl Iterator<Item = &str> {
        self.makers.get(stream).into_iter().flatten().map(String::as_str)
    }

    /// The handlers that read a stream.
    pub fn readers(&self, stream: &str) -> impl Iterator<Item = &str> {
        self.readers.get(stream).into_iter().flatten().map(String::as_str)
    }

    /// The handlers that a change concerns, which gives handlers these streams, or removes them. `reserves` says whether a
    /// path that ends at a handler has a reservation, before the change or after it.
    #[must_use]
    pub fn scope(&self, changes: &BTreeMap<String, Option<Links>>, reserves: impl Fn(&str) -> bool) -> Scope {
        let mut after = StreamIndex::default();
        for (name, links) in changes {
            links.iter().for_each(|links| after.insert(name, links.clone()));
        }
        let both = [self, &after];
        let links = |name: &str| both.iter().filter_map(|index| index.handlers.get(name)).collect::<Vec<&Links>>();
        let makers = |stream: &str| both.iter().flat_map(|index| index.makers(stream)).collect::<Vec<&str>>();
        let readers = |stream: &str| both.iter().flat_map(|index| index.readers(stream)).collect::<Vec<&str>>();
        let fed = |name: &str| links(name).into_iter().flat_map(|links| readers(&links.makes)).collect::<Vec<&str>>();
        let feeding = |name: &str| {
            let reads = links(name).into_iter().flat_map(|links| &links.reads);
            reads.flat_map(|stream| makers(stream)).collect::<Vec<&str>>()
        };
        let affected = closure(changes.keys().map(String::as_str).collect(), fed);
        // Those that make the same stream: replicas, or one that cannot be there too.
        let made = changes.keys().flat_map(|name| links(name)).flat_map(|links| makers(&links.makes));
        let needed = closure(affected.iter().copied().chain(made).collect(), feeding);
        let reserves = affected.iter().any(|name| reserves(name));
        let needed = match reserves {
            true => closure(needed, |name| fed(name).into_iter().chain(feeding(name)).collect()),
            false => needed,
        };
        let owned = |names: BTreeSet<&str>| names.into_iter().map(str::to_owned).collect();
        Scope { affected: owned(affected), handlers: owned(needed), reserves }
    }
}

fn take_out(index: &mut BTreeMap<String, BTreeSet<String>>, stream: &str, name: &str) {
    if let Some(names) = index.get_mut(stream) {
        names.remove(name);
        if names.is_empty() {
            index.remove(stream);
        }
    }
}

/// These names and all that follow from them.
fn closure<'a>(mut names: BTreeSet<&'a str>, next: impl Fn(&'a str) -> Vec<&'a str>) -> BTreeSet<&'a str> {
    let mut left: Vec<&str> = names.iter().copied().collect();
    while let Some(name) = left.pop() {
        left.extend(next(name).into_iter().filter(|next| names.insert(next)));
    }
    names
}

/// The load of each handler at its context, and the sum by context, kept from change to change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    handlers: BTreeMap<String, (usize, Load)>,
    sums: Vec<Load>,
}

impl Ledger {
    /// A handler takes this at a context from now on; nothing anywhere if there is no context.
    pub fn set(&mut self, name: &str, takes: Option<(usize, Load)>) {
        let takes = takes.map(|(at, load)| (at, Contexts::bounded(load)));
        let before = match takes {
            Some((at, load)) => {
                self.sums.resize(self.sums.len().max(at + 1), Load::default());
                self.sums[at] = self.sums[at] + load;
                match self.handlers.get_mut(name) {
                    Some(known) => Some(std::mem::replace(known, (at, load))),
                    None => self.handlers.insert(name.to_owned(), (at, load)),
                }
            }
            None => self.handlers.remove(name),
        };
        if let Some((at, load)) = before {
            self.sums[at] = self.sums[at] - load;
        }
    }

    /// The sum of all handlers, by context.
    #[must_use]
    pub fn sums(&self) -> &[Load] {
        &self.sums
    }

    /// The load of the handlers that are not among these.
    #[must_use]
    pub fn others(&self, scope: &BTreeSet<String>) -> Others {
        let mut committed = self.sums.clone();
        let mut handlers = self.handlers.len();
        for (at, load) in scope.iter().filter_map(|name| self.handlers.get(name)) {
            committed[*at] = committed[*at] - *load;
            handlers -= 1;
        }
        Others { handlers, committed }
    }
}

/// The handlers that a change does not concern.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Others {
    /// Their number.
    pub handlers: usize,
    /// Their load, by context, in the order of the contexts.
    pub committed: Vec<Load>,
}
