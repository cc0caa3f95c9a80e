//! Unused streams and versions are removed.

use super::Catalog;
use crate::refusal::refuse;
use crossdock_control::conversions::Owner;
use crossdock_format::registry::Policy;
use crossdock_format::{Format, FormatId};
use crossdock_transport::FormatName;
use crossdock_transport::control::{Refusal, RefusalCode};
use std::sync::Arc;

impl Catalog {
    /// Removes an unused stream: its versions, its policy, and the conversions that are kept for it.
    ///
    /// # Errors
    /// It is not known, it is in use, or the disk is behind; then nothing has changed.
    pub(crate) fn remove_stream(&mut self, name: &str) -> Result<(), Refusal> {
        self.journal.check()?;
        let number = self.check_unused(name)?;
        let entry = self.registry.remove_stream(name);
        self.journal.write(entry);
        if let Some(number) = number {
            self.remove_entry(number);
        }
        Ok(())
    }

    /// Removes the newest version of an unused stream; the numbers of the others stay. The format before is the newest one then, by
    /// which the stream's policy judges the next.
    ///
    /// # Errors
    /// There is no such version, it is not the newest or the only one, a conversion from it or to it is kept, the stream is in use,
    /// or the disk is behind; then nothing has changed.
    pub(crate) fn remove_version(&mut self, name: &str, version: u32) -> Result<(), Refusal> {
        self.journal.check()?;
        let format = self.now.format_known(name, &FormatName::Version(version))?.id();
        let number = self.check_unused(name)?;
        let entry = number.and_then(|number| self.now.get(number));
        let (newest, count) = entry.map_or((0, 0), |entry| (entry.newest_version(), entry.formats().len()));
        let state = |message: String| Err(refuse(RefusalCode::State, message));
        if version < newest {
            return state(format!(
                "v{version} is not the newest version of stream `{name}`: remove v{newest} first, or let v{version} age out \
                 (`unused_stream_expiry_s`)"
            ));
        }
        if count == 1 {
            return state(format!("v{version} is the only version of stream `{name}`: remove the stream"));
        }
        if let Some((from, to)) = self.kept_conversion(name, format) {
            return state(format!("a conversion from {from} to {to} is kept for stream `{name}`: remove it first"));
        }
        self.drop_version(name, number, format);
        Ok(())
    }

    /// Forgets the newest formats of an unused stream that sessions brought and that no record came in. One with a newer format that
    /// stays does too, so that the numbers of versions stay. So does one that a kept conversion needs or that a conversion ever left,
    /// since what is made of it by name alone depends on that; and all stay while the disk is behind.
    pub(super) fn forget_unproven(&mut self, number: u32) {
        let Some(entry) = self.now.get(number).filter(|entry| !entry.formats().is_empty()) else { return };
        let name = entry.name().to_owned();
        while let Some(format) = self.now.get(number).and_then(|entry| entry.formats().last()).map(Format::id) {
            let of = (number, format);
            let is_unproven = self.unproven.contains(&of) && !self.publishing.contains_key(&of);
            let stays = |catalog: &Catalog| {
                catalog.kept_conversion(&name, format).is_some() || catalog.is_guarded(number, format)
            };
            let may_change = |catalog: &Catalog| catalog.check_unused(&name).is_ok() && catalog.journal.check().is_ok();
            if is_unproven && stays(self) {
                self.journal.release(&name, format);
                return;
            }
            if !is_unproven || !may_change(self) {
                return;
            }
            self.drop_version(&name, Some(number), format);
        }
        let has_policy = self.now.get(number).is_some_and(|entry| entry.policy() != Policy::default());
        if !has_policy && self.registry.conversions().all(|(of, ..)| of != name) {
            let entry = self.registry.remove_stream(&name);
            self.journal.write(entry);
        }
    }

    /// The ends of a kept conversion that leads from a format of a stream, or to it.
    fn kept_conversion(&self, name: &str, format: FormatId) -> Option<(FormatId, FormatId)> {
        let kept = self.registry.conversions().filter(|(of, ..)| *of == name).map(|(_, from, to, _)| (from, to));
        kept.into_iter().find(|(from, to)| [*from, *to].contains(&format))
    }

    /// Checks that a stream is known and unused; its number, if it has formats.
    pub(super) fn check_unused(&self, name: &str) -> Result<Option<u32>, Refusal> {
        let Some(entry) = self.now.find(name) else {
            // It may have a policy, or conversions that were not restored.
            let is_kept =
                self.registry.stream(name).is_some() || self.registry.conversions().any(|(of, ..)| of == name);
            let unknown = || refuse(RefusalCode::UnknownStream, format!("there is no stream `{name}`"));
            return if is_kept { Ok(None) } else { Err(unknown()) };
        };
        let uses = self.uses.get(&entry.number()).copied().unwrap_or_default();
        let of_session = |owner| matches!(owner, Owner::Session(_));
        let why = match () {
            () if entry.made_by().is_some() => "a handler produces it: remove the handler",
            () if uses.publishers > 0 => "it has publishers: end them",
            () if uses.others > 0 => "it has subscribers, or sessions that listen for conversions: end them",
            () if entry.claims > 0 => "a handler reads it: remove the handler",
            () if entry.conversions().graph().conversions().iter().any(|c| of_session(c.owner)) => {
                "a session has registered a conversion for it: end the session"
            }
            () => return Ok(Some(entry.number())),
        };
        Err(refuse(RefusalCode::State, format!("stream `{name}` is in use, since {why} first")))
    }

    /// Takes a version that nobody uses out of the registry and out of its stream. Contexts forget it with the snapshot.
    pub(super) fn drop_version(&mut self, name: &str, number: Option<u32>, format: FormatId) {
        let entry = self.registry.remove_version(name, format);
        self.journal.write(entry);
        let Some(number) = number else { return };
        self.unproven.remove(&(number, format));
        self.bringers.remove(&(number, format));
        if let Some(entry) = self.entry_mut(number) {
            entry.remove_version(format);
            Arc::make_mut(&mut entry.conversions).graph.unguard(format);
        }
    }

    /// Takes out the entry of an unused stream.
    fn remove_entry(&mut self, number: u32) {
        if let Some(entry) = self.now.get(number) {
            self.conversions -= entry.conversions().graph().conversions().len();
        }
        self.uses.remove(&number);
        self.forget_origins(number);
        self.unproven.retain(|(of, _)| *of != number);
        self.now_mut().remove(number);
        self.changed.insert(number);
    }
}
