//! Unused streams and versions are removed.

use super::Catalog;
use crate::refusal::refuse;
use crossdock_control::conversions::Owner;
use crossdock_format::FormatId;
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
        let newest = number.and_then(|number| self.now.get(number)).map_or(0, |entry| entry.formats().len());
        let state = |message: String| Err(refuse(RefusalCode::State, message));
        if (version as usize) < newest {
            return state(format!(
                "v{version} is not the newest version of stream `{name}`: the numbers of those behind it would change; remove \
                 v{newest} first"
            ));
        }
        if newest == 1 {
            return state(format!("v1 is the only version of stream `{name}`: remove the stream"));
        }
        let of_version = |(of, from, to): &(&str, FormatId, FormatId)| *of == name && [*from, *to].contains(&format);
        let kept = self.registry.conversions().map(|(of, from, to, _)| (of, from, to)).find(of_version);
        if let Some((_, from, to)) = kept {
            return state(format!("a conversion from {from} to {to} is kept for stream `{name}`: remove it first"));
        }
        let entry = self.registry.remove_version(name, format);
        self.journal.write(entry);
        if let Some(number) = number {
            self.drop_newest(number, format);
        }
        Ok(())
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

    /// Replaces the entry of an unused stream by one without its newest format: contexts only ever add to the formats of a stream.
    fn drop_newest(&mut self, number: u32, newest: FormatId) {
        let Some(before) = self.now.get(number).cloned() else { return };
        self.now_mut().remove(number);
        self.changed.insert(number);
        // Contexts forget the stream before it is created again.
        self.publish_snapshot();
        let again = self.now_mut().insert(before.name(), before.conversions().policy);
        if let Some(entry) = self.entry_mut(again) {
            entry.formats = before.formats.clone();
            entry.formats.pop();
            entry.is_kept = before.is_kept;
            entry.conversions = before.conversions.clone();
            Arc::make_mut(&mut entry.conversions).graph.unguard(newest);
        }
        if let Some(by) = self.announcers.remove(&number) {
            self.announcers.insert(again, by);
        }
    }

    /// Takes out the entry of an unused stream.
    fn remove_entry(&mut self, number: u32) {
        if let Some(entry) = self.now.get(number) {
            self.conversions -= entry.conversions().graph().conversions().len();
        }
        self.uses.remove(&number);
        self.announcers.remove(&number);
        self.now_mut().remove(number);
        self.changed.insert(number);
    }
}
