//! The handlers that a change request makes of those that it names; and the running ones, where a handler has replicas.

use super::Prepared;
use crate::managers::Managers;
use crate::managers::deployed::Deployed;
use crate::managers::request::ChangeRequest;
use crate::managers::spec::HandlerSpec;
use std::collections::{BTreeMap, BTreeSet};

/// The specifications of handlers that change, as asked for, by name; none for a handler that goes.
pub(super) type WantedSpecs = BTreeMap<String, Option<HandlerSpec>>;

impl Managers {
    /// The running handlers of one: itself, or its replicas.
    pub(in crate::managers) fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a String, &'a Deployed)> {
        let replicas = HandlerSpec::replica_name(name, "");
        let is_replica = {
            let replicas = replicas.clone();
            move |(of, _): &(&String, &Deployed)| of.starts_with(&replicas)
        };
        let single = self.handlers.get_key_value(name).into_iter();
        let all = single.chain(self.handlers.range(replicas..).take_while(is_replica));
        all.filter(move |(_, there)| there.spec.asked_name() == name)
    }

    /// The names of all handlers, as they were asked for.
    fn names(&self) -> BTreeSet<&str> {
        self.handlers.values().map(|there| there.spec.asked_name()).collect()
    }

    /// The specification of a handler that is there, as it was asked for.
    ///
    /// # Errors
    /// It is not there.
    fn asked(&self, name: &str) -> Result<HandlerSpec, String> {
        self.named(name).next().map(|(_, there)| there.spec.asked()).ok_or_else(|| {
            let names: Vec<&str> = self.names().into_iter().collect();
            let there = if names.is_empty() {
                "none is deployed".to_owned()
            } else {
                format!("deployed are: {}", names.join(", "))
            };
            format!("there is no handler `{name}`; {there}")
        })
    }

    /// The handlers that a change makes of those that it names.
    pub(super) fn want(&self, change: &ChangeRequest) -> Result<WantedSpecs, String> {
        let one = |name: &str, spec: Option<HandlerSpec>| BTreeMap::from([(name.to_owned(), spec)]);
        Ok(match change {
            ChangeRequest::Deploy(spec) => match self.named(&spec.name).next() {
                Some((_, there)) if there.spec.asked() != *spec => {
                    let name = &spec.name;
                    return Err(format!("handler `{name}` exists already: swap it, or give this one another name"));
                }
                _ => one(&spec.name, Some(spec.clone())),
            },
            ChangeRequest::Swap(spec) => {
                self.asked(&spec.name)?;
                one(&spec.name, Some(spec.clone()))
            }
            ChangeRequest::SetParameters { handler, parameters } => {
                let mut spec = self.asked(handler)?;
                spec.parameters.extend(parameters.clone());
                one(handler, Some(spec))
            }
            ChangeRequest::Move { handler, place } => {
                let spec = self.asked(handler)?;
                if spec.replicas {
                    return Err(format!(
                        "handler `{handler}` has a replica at each I/O context, and none moves: swap it for a version \
                         without replicas"
                    ));
                }
                one(handler, Some(HandlerSpec { place: place.clone(), ..spec }))
            }
            ChangeRequest::Remove { handler } => {
                self.asked(handler)?;
                one(handler, None)
            }
            ChangeRequest::Parts(specs) => {
                if let Some(spec) = specs.iter().find(|spec| self.named(&spec.name).next().is_some()) {
                    return Err(format!("handler `{}` exists already", spec.name));
                }
                specs.iter().map(|spec| (spec.name.clone(), Some(spec.clone()))).collect()
            }
            ChangeRequest::All(specs) => {
                let mut wanted: WantedSpecs = self.names().into_iter().map(|name| (name.to_owned(), None)).collect();
                wanted.extend(specs.iter().map(|spec| (spec.name.clone(), Some(spec.clone()))));
                if wanted.values().flatten().count() < specs.len() {
                    return Err("two handlers have the same name".to_owned());
                }
                // Subscriptions' queries are not part of a request, and stay as long as their subscriptions.
                wanted.retain(|name, _| !self.is_query(name));
                wanted
            }
        })
    }

    /// The nodes of the handlers that change: each, or its replicas; nothing for what no longer runs.
    pub(super) fn nodes(&self, prepared: &mut Prepared, discard_state: bool) -> WantedSpecs {
        let mut nodes = BTreeMap::new();
        let (mut refusals, names) = (Vec::new(), || self.io.iter().map(|io| self.watch.name(io.at)));
        for (name, spec) in &prepared.wanted {
            nodes.extend(self.named(name).map(|(node, _)| (node.clone(), None)));
            let Some(spec) = spec else { continue };
            refusals.extend(spec.check().err().map(|why| format!("handler `{name}`: {why}")));
            nodes.extend(spec.at_contexts(names()).into_iter().map(|spec| (spec.name.clone(), Some(spec))));
            // Another version takes its state over, but replicas have none.
            let there = self.handlers.get(name).filter(|_| spec.replicas && !discard_state);
            if let Some(state) = there.and_then(|there| there.entries.iter().find_map(|entry| entry.state.as_ref())) {
                refusals.push(format!(
                    "handler `{name}` keeps state `{state}`, which replicas cannot take: it would be lost; --discard-state says \
                     that may be"
                ));
            }
        }
        refusals.into_iter().for_each(|why| prepared.refuse(why));
        nodes
    }
}
