//! The kept part of the catalog: its changes go to the state thread, and requests wait until theirs is on disk.

use super::Catalog;
use crate::refusal::refuse;
use crate::state::StateSide;
use crossdock_format::registry::{Entry, RegistryError};
use crossdock_format::{Format, FormatId};
use crossdock_transport::control::{Refusal, RefusalCode};
use std::collections::VecDeque;

/// Called with a request's outcome.
pub(crate) type Answer = Box<dyn FnOnce(Result<(), Refusal>) + Send>;

/// The changes on their way to the disk; all of it does nothing where nothing is kept.
#[derive(Default)]
pub(super) struct Journal {
    state: Option<StateSide>,
    /// Versions of streams that are in the registry and not written down yet, since no record of them has come: a restart
    /// forgets them. Their streams, formats and numbers, in the order in which they were announced.
    withheld: Vec<(String, Format, usize)>,
    /// The number of the last entry that was written.
    last: u64,
    /// Requests that wait for an entry to be on disk.
    waiting: VecDeque<(u64, Answer)>,
}

impl Journal {
    pub(super) fn new(state: Option<StateSide>) -> Journal {
        Journal { state, ..Journal::default() }
    }

    /// Writes changes of the registry to disk. A withheld version that one of them needs is written before it, and one that
    /// they remove never is.
    pub(super) fn write(&mut self, entries: impl IntoIterator<Item = Entry>) {
        for entry in entries {
            match &entry {
                Entry::NoVersion { stream, format } => {
                    if let Some(at) = self.find_withheld(stream, *format) {
                        self.withheld.remove(at);
                        continue;
                    }
                }
                Entry::NoStream { stream } => self.withheld.retain(|(of, ..)| of != stream),
                Entry::Guarded { stream, format } => self.release(stream, *format),
                Entry::Conversion { stream, from, to, .. } => {
                    for format in [*from, *to] {
                        self.release(stream, format);
                        self.write_format(format);
                    }
                }
                Entry::Format(_) | Entry::Version { .. } | Entry::Policy { .. } | Entry::NoConversion { .. } => {}
            }
            self.append(entry);
        }
    }

    /// Withholds a stream's newest version until it is [released](Journal::release).
    pub(super) fn withhold(&mut self, stream: &str, format: &Format, number: usize) {
        if self.state.is_some() {
            self.withheld.push((stream.to_owned(), format.clone(), number));
        }
    }

    /// Writes a version of a stream to disk if it is withheld, with the number that it has.
    pub(super) fn release(&mut self, stream: &str, format: FormatId) {
        if let Some(at) = self.find_withheld(stream, format) {
            let (stream, format, number) = self.withheld.remove(at);
            let version = Entry::Version { stream, format: format.id(), number: Some(number) };
            self.append(Entry::Format(format));
            self.append(version);
        }
    }

    fn find_withheld(&self, stream: &str, format: FormatId) -> Option<usize> {
        self.withheld.iter().position(|(of, withheld, _)| of == stream && withheld.id() == format)
    }

    /// Writes a format that may be known as a withheld version only.
    fn write_format(&mut self, format: FormatId) {
        if let Some((_, format, _)) = self.withheld.iter().find(|(_, withheld, _)| withheld.id() == format) {
            self.append(Entry::Format(format.clone()));
        }
    }

    fn append(&mut self, entry: Entry) {
        if let Some(state) = &mut self.state {
            self.last = state.write(entry);
        }
    }

    /// Whether the disk keeps up with what is to be written.
    ///
    /// # Errors
    /// It does not.
    pub(super) fn check(&self) -> Result<(), Refusal> {
        match &self.state {
            Some(state) if !state.has_room() => {
                Err(refuse(RefusalCode::Limit, "too many changes wait to be written to disk: try again later"))
            }
            _ => Ok(()),
        }
    }
}

impl Catalog {
    /// Answers once all that was written down so far is on disk; at once where nothing is kept, or nothing was changed.
    pub(crate) fn answer_when_kept(&mut self, outcome: Result<(), Refusal>, answer: Answer) {
        let Journal { state, last, waiting, .. } = &mut self.journal;
        match state {
            Some(state) if outcome.is_ok() && state.outcome(*last).is_none() => waiting.push_back((*last, answer)),
            _ => answer(outcome),
        }
    }

    /// Hands entries over to the state thread as far as it has room, and answers the requests that waited for them.
    pub(crate) fn take_kept(&mut self) {
        // Nothing is kept.
        let Journal { state: Some(state), waiting, .. } = &mut self.journal else { return };
        state.hand_over();
        while let Some((number, _)) = waiting.front()
            && let Some(outcome) = state.outcome(*number)
            && let Some((_, answer)) = waiting.pop_front()
        {
            answer(outcome.map_err(|why| {
                let message =
                    format!("the change is made, but could not be written to disk, so a restart may undo it: {why}");
                refuse(RefusalCode::Limit, message)
            }));
        }
    }
}

/// A refusal of the registry.
pub(super) fn refusal_of(error: &RegistryError) -> Refusal {
    let code = match error {
        RegistryError::Full { .. } => RefusalCode::Limit,
        RegistryError::Name { .. } => RefusalCode::State,
        RegistryError::LongConversion { .. } => RefusalCode::Conversion,
        RegistryError::Collision { .. } | RegistryError::UnknownFormat { .. } | RegistryError::Incompatible { .. } => {
            RefusalCode::Format
        }
    };
    refuse(code, error.to_string())
}
