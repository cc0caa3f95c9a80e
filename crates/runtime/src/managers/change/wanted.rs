//! What is wanted, as it was asked for and kept; and what runs of it, where a handler has replicas.

use super::Prepared;
use crate::managers::Managers;
use crate::managers::request::ChangeRequest;
use crate::managers::spec::HandlerSpec;
use std::collections::BTreeMap;

impl Managers {
    /// The specifications of all handlers, as they were asked for, by name.
    pub(in crate::managers) fn specs(&self) -> BTreeMap<String, HandlerSpec> {
        let asked = self.handlers.values().map(|handler| handler.spec.asked());
        asked.map(|spec| (spec.name.clone(), spec)).collect()
    }

    /// All handlers as they are to be.
    pub(super) fn want(&self, change: &ChangeRequest, prepared: &mut Prepared) -> Result<(), String> {
        let mut wanted = self.specs();
        let names: Vec<String> = wanted.keys().cloned().collect();
        let known = |name: &str| {
            if names.iter().any(|known| known == name) {
                return Ok(());
            }
            let there = if names.is_empty() {
                "none is deployed".to_owned()
            } else {
                format!("deployed are: {}", names.join(", "))
            };
            Err(format!("there is no handler `{name}`; {there}"))
        };
        match change {
            ChangeRequest::Deploy(spec) if wanted.get(&spec.name).is_some_and(|there| there != spec) => {
                return Err(format!("handler `{}` exists already: swap it, or give this one another name", spec.name));
            }
            ChangeRequest::Deploy(spec) => drop(wanted.insert(spec.name.clone(), spec.clone())),
            ChangeRequest::Swap(spec) => {
                known(&spec.name)?;
                wanted.insert(spec.name.clone(), spec.clone());
            }
            ChangeRequest::SetParameters { handler, parameters } => {
                known(handler)?;
                if let Some(spec) = wanted.get_mut(handler) {
                    spec.parameters.extend(parameters.clone());
                }
            }
            ChangeRequest::Move { handler, place } => {
                known(handler)?;
                if let Some(spec) = wanted.get_mut(handler) {
                    if spec.replicas {
                        return Err(format!(
                            "handler `{handler}` has a replica at each I/O context, and none moves: swap it for a version \
                             without replicas"
                        ));
                    }
                    spec.place.clone_from(place);
                }
            }
            ChangeRequest::Remove { handler } => {
                known(handler)?;
                wanted.remove(handler);
            }
            ChangeRequest::All(specs) => {
                wanted = specs.iter().map(|spec| (spec.name.clone(), spec.clone())).collect();
                if wanted.len() < specs.len() {
                    return Err("two handlers have the same name".to_owned());
                }
                // Subscriptions' queries are not part of a request, and stay as long as their subscriptions.
                let queries = self.handlers.iter().filter(|(name, _)| self.is_query(name));
                wanted.extend(queries.map(|(name, there)| (name.clone(), there.spec.clone())));
            }
        }
        prepared.wanted = wanted;
        Ok(())
    }

    /// What is to run: a handler, or its replicas, for each that is wanted.
    pub(super) fn nodes(&self, prepared: &mut Prepared, discard_state: bool) -> BTreeMap<String, HandlerSpec> {
        let mut nodes = BTreeMap::new();
        let (mut refusals, names) = (Vec::new(), || self.io.iter().map(|io| self.watch.name(io.at)));
        for (name, spec) in &prepared.wanted {
            refusals.extend(spec.check().err().map(|why| format!("handler `{name}`: {why}")));
            nodes.extend(spec.at_contexts(names()).into_iter().map(|spec| (spec.name.clone(), spec)));
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
