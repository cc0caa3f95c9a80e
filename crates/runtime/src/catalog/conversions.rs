//! The conversions between the formats of streams: registered by sessions, or kept.

use super::journal::refusal_of;
use super::{Catalog, StreamEntry};
use crate::morph::compile::Compiled;
use crate::refusal::refuse;
use crossdock_control::conversions::{MAX_CONVERSIONS, Owner, Refused};
use crossdock_format::FormatId;
use crossdock_format::registry::RegistryError;
use crossdock_transport::control::{Refusal, RefusalCode};
use std::sync::Arc;

impl Catalog {
    /// Takes a compiled conversion in. Nothing changes unless it is found to be right.
    ///
    /// # Errors
    /// It leads nowhere, a format's id is another's, a table is full, or the disk is behind.
    pub(crate) fn register(&mut self, owner: Owner, stream: &str, compiled: Compiled) -> Result<(), Refusal> {
        if owner == Owner::Kept {
            self.journal.check()?;
        }
        let (from, to) = (compiled.from.id(), compiled.to.id());
        if from == to {
            return Err(refused(Refused::Loop(from)));
        }
        if let Some(entry) = self.now.find(stream) {
            entry.conversions().graph().would_take(from, to, owner).map_err(refused)?;
        }
        self.now.check_id(&compiled.from)?;
        self.now.check_id(&compiled.to)?;
        if self.conversions >= MAX_CONVERSIONS {
            let message = format!("the daemon has {MAX_CONVERSIONS} conversions, the bound: remove one");
            return Err(refuse(RefusalCode::Limit, message));
        }
        let number = self.stream_named(stream)?;
        let registered = self.add_conversion(owner, number, compiled);
        // One that came into being for nothing goes.
        self.forget_if_unused(number);
        registered
    }

    fn add_conversion(&mut self, owner: Owner, number: u32, compiled: Compiled) -> Result<(), Refusal> {
        self.note_conversion(owner, number, &compiled)?;
        let Some(entry) = self.present_mut(number) else { return Ok(()) };
        let conversions = Arc::make_mut(&mut entry.conversions);
        let (from, to) = (compiled.from.id(), compiled.to.id());
        let (added, replaced) = conversions.graph.add(from, to, owner, compiled.cost).map_err(refused)?;
        let replaced = replaced.and_then(|replaced| conversions.compiled.remove(&replaced));
        conversions.compiled.insert(added, Arc::new(compiled));
        self.conversions += usize::from(replaced.is_none());
        Ok(())
    }

    /// Notes in the registry that a conversion leaves its format, if that is a version of the stream, and that it is
    /// kept if it is. A session's conversion leaves no more there than that, so however many come and go, it does not
    /// grow.
    ///
    /// # Errors
    /// A format's id is another's, or there is no room; then nothing has changed that is of effect.
    fn note_conversion(&mut self, owner: Owner, number: u32, compiled: &Compiled) -> Result<(), Refusal> {
        // That a version was left is kept, so the version is.
        self.keep_versions(number)?;
        let Some(stream) = self.present(number).map(|entry| entry.name().to_owned()) else { return Ok(()) };
        let Compiled { from, to, conversion, .. } = compiled;
        let registry = &mut self.registry;
        let mut entries = Vec::new();
        let mut note = || -> Result<(), RegistryError> {
            registry.check_id(from)?;
            registry.check_id(to)?;
            if registry.stream(&stream).is_some_and(|known| known.version(from.id()).is_some()) {
                entries.extend(registry.guard(&stream, from.id())?);
            }
            if owner == Owner::Kept {
                entries.extend(registry.keep(&stream, from, to, conversion)?);
            }
            Ok(())
        };
        let noted = note().map_err(|error| refusal_of(&error));
        self.journal.write(entries);
        noted
    }

    /// Takes a conversion out.
    ///
    /// # Errors
    /// There is none of this owner's between the two formats, or the disk is behind.
    pub(crate) fn unregister(
        &mut self,
        owner: Owner,
        stream: &str,
        from: FormatId,
        to: FormatId,
    ) -> Result<(), Refusal> {
        if owner == Owner::Kept {
            self.journal.check()?;
        }
        let is_there = |entry: &&StreamEntry| entry.conversions().graph().find(from, to, owner).is_some();
        let Some(number) = self.now.find(stream).filter(is_there).map(StreamEntry::number) else {
            let whose = if owner == Owner::Kept { "kept" } else { "of this session" };
            let message = format!("there is no conversion from {from} to {to} on stream `{stream}` that is {whose}");
            return Err(refuse(RefusalCode::Conversion, message));
        };
        if let Some(entry) = self.present_mut(number) {
            let conversions = Arc::make_mut(&mut entry.conversions);
            if let Some(removed) = conversions.graph.remove(from, to, owner) {
                conversions.compiled.remove(&removed.number);
                self.conversions -= 1;
            }
        }
        if owner == Owner::Kept {
            let entry = self.registry.forget(stream, from, to);
            self.journal.write(entry);
        }
        self.forget_if_unused(number);
        Ok(())
    }

    /// A session has ended, and its conversions with it; kept ones that they covered are in force again.
    pub(crate) fn end_owner(&mut self, session: u64) {
        let owner = Owner::Session(session);
        let owns = |entry: &StreamEntry| entry.conversions().graph().conversions().iter().any(|c| c.owner == owner);
        let numbers: Vec<u32> = self.now.iter().filter(|entry| owns(entry)).map(|entry| entry.number()).collect();
        for number in numbers {
            let Some(entry) = self.present_mut(number) else { continue };
            let conversions = Arc::make_mut(&mut entry.conversions);
            let gone = conversions.graph.remove_session(session);
            for conversion in &gone {
                conversions.compiled.remove(&conversion.number);
            }
            self.conversions -= gone.len();
            self.forget_if_unused(number);
        }
    }
}

fn refused(refused: Refused) -> Refusal {
    let code = match refused {
        Refused::Loop(_) => RefusalCode::Conversion,
        Refused::Full => RefusalCode::Limit,
    };
    refuse(code, refused.to_string())
}
