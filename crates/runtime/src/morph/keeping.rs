//! State that is kept across restarts: restored at the start, and written to disk as it changes.

use crate::announcing::Plans;
use crate::context::Context;
use crate::morph::requests::Between;
use crate::refusal::refuse;
use crossdock_control::conversions::Owner;
use crossdock_format::Format;
use crossdock_format::convert::Conversion;
use crossdock_format::registry::{Entry, Policy, Registry, RegistryError};
use crossdock_transport::control::{Refusal, RefusalCode};
use crossdock_transport::{FormatName, Reply};

/// A caller that is answered once an entry is on disk.
pub(crate) enum Asker {
    /// A session's request.
    Session { peer: usize, id: u32 },
    /// A caller of the handle.
    Handle(oneshot::Sender<Result<(), String>>),
}

impl Context {
    /// Takes in the kept state; returns the entries that no longer fit, in words.
    pub(crate) fn restore(&mut self, registry: &Registry) -> Vec<String> {
        let mut complaints = Vec::new();
        let refused =
            |stream: &str, what: &str, why: &str| format!("{what} of stream `{stream}` is not restored: {why}");
        self.morph.registry = registry.clone();
        for (name, kept) in registry.streams() {
            for format in kept.versions().iter().filter_map(|id| registry.format(*id)) {
                let declared = self.declare(name, format, &mut Plans::default());
                complaints.extend(declared.err().map(|why| refused(name, "a version", &why.message)));
            }
            if let Some(stream) = self.streams.find(name).and_then(|key| self.streams.get_mut(key)) {
                registry.guarded(name).for_each(|format| stream.morphing.graph.guard(format));
            }
        }
        for (name, from, to, conversion) in registry.conversions() {
            let description = |id| registry.format(id).map(|format| FormatName::Description(format.describe()));
            let (Some(from), Some(to)) = (description(from), description(to)) else { continue };
            let between = Between { stream: name, from: &from, to: &to };
            let registered = self.register_conversion(Owner::Kept, &between, &conversion.to_string());
            complaints.extend(registered.err().map(|why| refused(name, "a conversion", &why.message)));
        }
        complaints
    }

    /// Writes changes of the registry to disk, if there is a state directory.
    pub(crate) fn write_down(&mut self, entries: impl IntoIterator<Item = Entry>) {
        if let Some(state) = &mut self.morph.state {
            for entry in entries {
                self.morph.last_entry = state.write(entry);
            }
        }
    }

    /// Sets how a stream's format may change from its next version on.
    ///
    /// # Errors
    /// The stream's name is invalid, there are too many streams, or the disk is behind.
    pub(crate) fn set_policy(&mut self, stream: &str, policy: Policy) -> Result<(), Refusal> {
        self.check_disk()?;
        let entry = self.morph.registry.set_policy(stream, policy).map_err(|error| refusal_of(&error))?;
        self.write_down([entry]);
        Ok(())
    }

    /// Notes in the registry that a conversion leaves its format, if that is a version of the stream, and that it is
    /// kept if it is. A session's conversion leaves no more there than that, so however many come and go, it does not
    /// grow.
    ///
    /// # Errors
    /// A format's id is another's, or there is no room; then nothing has changed that is of effect.
    pub(crate) fn note_conversion(
        &mut self,
        owner: Owner,
        stream: &str,
        (from, to): (&Format, &Format),
        conversion: &Conversion,
    ) -> Result<(), Refusal> {
        // That a version was left is kept, so the version is.
        if let Some(key) = self.streams.find(stream) {
            self.keep_versions(key)?;
        }
        let registry = &mut self.morph.registry;
        let mut entries = Vec::new();
        let mut note = || -> Result<(), RegistryError> {
            registry.check_id(from)?;
            registry.check_id(to)?;
            if registry.stream(stream).is_some_and(|known| known.version(from.id()).is_some()) {
                entries.extend(registry.guard(stream, from.id())?);
            }
            if owner == Owner::Kept {
                entries.extend(registry.keep(stream, from, to, conversion)?);
            }
            Ok(())
        };
        let noted = note().map_err(|error| refusal_of(&error));
        self.write_down(entries);
        noted
    }

    /// Notes in the registry that a stream has a version, and that a conversion left it, if one did before it was a
    /// version.
    ///
    /// # Errors
    /// The stream's policy is against it, its id is another's, or there is no room.
    pub(crate) fn note_version(&mut self, stream: &str, format: &Format, was_left: bool) -> Result<(), Refusal> {
        let registry = &mut self.morph.registry;
        let mut entries = registry.announce(stream, format).map_err(|error| refusal_of(&error))?.entries;
        let guarded = if was_left { registry.guard(stream, format.id()) } else { Ok(None) };
        let noted = guarded.map(|guarded| entries.extend(guarded)).map_err(|error| refusal_of(&error));
        self.write_down(entries);
        noted
    }

    /// A stream and its versions are kept from now on, those too that handlers made before.
    ///
    /// # Errors
    /// As [`Context::note_version`].
    pub(crate) fn keep_versions(&mut self, key: usize) -> Result<(), Refusal> {
        let Some(stream) = self.streams.get(key).filter(|stream| !stream.is_kept) else { return Ok(()) };
        let of_it = |known: &crate::streams::StreamFormat| {
            (known.format.clone(), stream.morphing.graph.is_guarded(known.format.id()))
        };
        let (name, versions) = (stream.name.clone(), stream.formats.iter().map(of_it).collect::<Vec<_>>());
        for (format, was_left) in versions {
            self.note_version(&name, &format, was_left)?;
        }
        if let Some(stream) = self.streams.get_mut(key) {
            stream.is_kept = true;
        }
        Ok(())
    }

    /// Whether the disk keeps up with what is to be written.
    ///
    /// # Errors
    /// It does not.
    pub(crate) fn check_disk(&self) -> Result<(), Refusal> {
        match &self.morph.state {
            Some(state) if !state.has_room() => {
                Err(refuse(RefusalCode::Limit, "the disk is behind with what is to be kept: ask again later"))
            }
            _ => Ok(()),
        }
    }

    /// Answers once all that was written down so far is on disk; at once where nothing is kept, or nothing was changed.
    pub(crate) fn answer_when_kept(&mut self, asker: Asker, outcome: Result<(), Refusal>) {
        let waits =
            outcome.is_ok() && self.morph.state.as_ref().is_some_and(|s| s.outcome(self.morph.last_entry).is_none());
        if waits {
            self.morph.askers.push_back((self.morph.last_entry, asker));
        } else {
            self.answer_asker(asker, outcome);
        }
    }

    fn answer_asker(&mut self, asker: Asker, outcome: Result<(), Refusal>) {
        match asker {
            Asker::Session { peer, id } => {
                let reply = match outcome {
                    Ok(()) => Reply::Done { id },
                    Err(refusal) => Reply::Refused { id, refusal },
                };
                self.tell(peer, &reply.into());
            }
            // The caller may have gone.
            Asker::Handle(to) => drop(to.send(outcome.map_err(|refusal| refusal.message))),
        }
    }

    /// Hands entries over to the state thread as far as it has room, and answers the callers that waited for them.
    pub(crate) fn look_after_kept(&mut self) {
        let Some(state) = &mut self.morph.state else { return };
        state.hand_over();
        while let Some((number, _)) = self.morph.askers.front() {
            let Some(outcome) = self.morph.state.as_ref().and_then(|state| state.outcome(*number)) else { return };
            let Some((_, asker)) = self.morph.askers.pop_front() else { return };
            let outcome = outcome.map_err(|why| {
                let message = format!("it is done, but could not be written down, so a restart may undo it: {why}");
                refuse(RefusalCode::Limit, message)
            });
            self.answer_asker(asker, outcome);
        }
    }

    /// A peer is gone, and waits for no answer.
    pub(crate) fn forget_asker(&mut self, gone: usize) {
        self.morph.askers.retain(|(_, asker)| !matches!(*asker, Asker::Session { peer, .. } if peer == gone));
    }
}

/// A refusal of the registry.
pub(crate) fn refusal_of(error: &RegistryError) -> Refusal {
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
