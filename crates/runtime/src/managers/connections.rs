//! Leads streams between I/O contexts: from those whose sessions publish them to those whose sessions take them.

use crate::graph::ContextIndex;
use crate::managers::request::{Connection, Flow};
use crate::managers::{IoHandle, Managers};
use crate::platform::overlay::Edit;
use crate::refusal::Stopped;
use crate::streams::StreamFacts;
use crossdock_format::Format;
use std::collections::{BTreeMap, BTreeSet};

/// What is led, or no longer.
fn edit(flow: Flow, is_led: bool) -> Edit {
    let Flow { stream, at, is_publishing } = flow;
    match is_publishing {
        true => Edit::Publish { stream, at, is_published: is_led },
        false => Edit::Deliver { stream, at, is_delivered: is_led },
    }
}

impl Managers {
    /// Leads a stream from an I/O context's sessions, or to them.
    pub(super) fn connect(&mut self, connection: Connection) {
        let Connection { flow, formats, then } = connection;
        self.disconnected.remove(&flow);
        let known = self.wait_for_formats(flow.stream, &formats).map_err(|stopped| stopped.to_string());
        let led = known.and_then(|()| self.change_flows(vec![edit(flow, true)]));
        // What is known elsewhere is what queries are measured on, before anything has come.
        let facts = |managers: &Managers| {
            let name = managers.name_of(flow.stream).ok()??;
            managers.facts(&BTreeSet::from([name])).ok()?.into_values().next()
        };
        then(led.map(|()| if flow.is_publishing { None } else { facts(self) }));
    }

    /// Ends what I/O contexts need no more. Not at once: where subscriptions come and go, the next one finds it there.
    pub(super) fn end_flows(&mut self) {
        if self.disconnected.is_empty() {
            return;
        }
        let edits = self.disconnected.iter().map(|flow| edit(*flow, false)).collect();
        // What a context that does not answer has a part in is tried again.
        if self.change_flows(edits).is_ok() {
            self.disconnected.clear();
        }
    }

    /// The home context, where the records of derived streams are counted.
    pub(super) fn home(&self) -> ContextIndex {
        debug_assert!(!self.io.is_empty(), "there is an I/O context");
        self.io.first().map_or(ContextIndex(0), |home| home.at)
    }

    /// The home context's name.
    pub(super) fn home_name(&self) -> &str {
        self.watch.name(self.home())
    }

    /// Waits until all I/O contexts have taken in formats of a stream, and the queries there are planned for them.
    ///
    /// # Errors
    /// A context has stopped.
    pub(super) fn wait_for_formats(&self, stream: u32, formats: &[Format]) -> Result<(), Stopped> {
        self.io.iter().try_for_each(|io| io.inbox.wait_for_formats(stream, formats))
    }

    /// The name of a stream that has this number.
    pub(super) fn name_of(&self, stream: u32) -> Result<Option<String>, Stopped> {
        Ok(self.catalog.snapshot()?.get(stream).map(|entry| entry.name().to_owned()))
    }

    /// What the I/O contexts know of streams, by name.
    ///
    /// # Errors
    /// A context has stopped.
    pub(super) fn facts(&self, names: &BTreeSet<String>) -> Result<BTreeMap<String, StreamFacts>, Stopped> {
        let mut all: BTreeMap<String, StreamFacts> = BTreeMap::new();
        for IoHandle { inbox, .. } in &self.io {
            let names = names.clone();
            let here = inbox.run(move |context| {
                let facts = |name: &String| context.streams.find(name).and_then(|key| context.facts(key));
                names.iter().filter_map(facts).collect::<Vec<StreamFacts>>()
            })?;
            for facts in here {
                match all.get_mut(&facts.name) {
                    Some(known) => known.add(facts),
                    None => drop(all.insert(facts.name.clone(), facts)),
                }
            }
        }
        Ok(all)
    }
}
