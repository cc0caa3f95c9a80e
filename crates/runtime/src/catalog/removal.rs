//! Streams and versions that nobody needs any more are removed.

use super::Catalog;
use crate::refusal::refuse;
use crossdock_control::conversions::Owner;
use crossdock_format::Format;
use crossdock_transport::FormatName;
use crossdock_transport::control::{Refusal, RefusalCode};

impl Catalog {
    /// Removes a stream that nobody uses: its versions, its policy, and the conversions that are kept for it.
    ///
    /// # Errors
    /// It is not known, somebody uses it, or the disk is behind; then nothing has changed.
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

    /// Removes the newest version of a stream that nobody uses; the numbers of the others stay. The format before is the newest
    /// one then, by which the stream's policy judges the next.
    ///
    /// # Errors
    /// There is no such version, it is not the newest or the only one, a conversion from it or to it is kept, somebody uses the
    /// stream, or the disk is behind; then nothing has changed.
    pub(crate) fn remove_version(&mut self, name: &str, version: &FormatName) -> Result<(), Refusal> {
        self.journal.check()?;
        let format = self.now.format_known(name, version)?.id();
        let number = self.check_unused(name)?;
        let Some(number) = number else { return Ok(()) };
        let versions: Vec<Format> = self.now.get(number).map_or_else(Vec::new, |entry| entry.formats().to_vec());
        let place = versions.iter().position(|known| known.id() == format);
        let state = |message: String| Err(refuse(RefusalCode::State, message));
        match place.map(|at| at + 1) {
            None => return state(format!("format {format} is no version of stream `{name}`")),
            Some(1) if versions.len() == 1 => {
                return state(format!("v1 is the only version of stream `{name}`: remove the stream"));
            }
            Some(version) if version < versions.len() => {
                let newest = versions.len();
                return state(format!(
                    "v{version} is not the newest version of stream `{name}`: the numbers of those behind it would change; \
                     remove v{newest} first"
                ));
            }
            Some(_) => {}
        }
        if let Some((_, from, to, _)) =
            self.registry.conversions().find(|(of, from, to, _)| *of == name && [*from, *to].contains(&format))
        {
            return state(format!("a conversion from {from} to {to} is kept for stream `{name}`: remove it first"));
        }
        let entry = self.registry.remove_version(name, format);
        self.journal.write(entry);
        self.make_anew(number, |formats| drop(formats.pop()));
        Ok(())
    }

    /// That a stream is known, and that nobody uses it; its number, if it is more than a policy.
    fn check_unused(&self, name: &str) -> Result<Option<u32>, Refusal> {
        let Some(entry) = self.now.find(name) else {
            return match self.registry.stream(name) {
                Some(_) => Ok(None),
                None => Err(refuse(RefusalCode::UnknownStream, format!("there is no stream `{name}`"))),
            };
        };
        let uses = self.uses.get(&entry.number()).copied().unwrap_or_default();
        let of_session = |owner| matches!(owner, Owner::Session(_));
        let why = match () {
            () if entry.made_by().is_some() => "a handler makes it: remove the handler",
            () if uses.publishers > 0 => "it has publishers: end them",
            () if uses.others > 0 => "it has subscribers: end them",
            () if entry.claims > 0 => "a handler reads it: remove the handler",
            () if entry.conversions().graph().conversions().iter().any(|c| of_session(c.owner)) => {
                "a session has registered a conversion for it: end the session"
            }
            () => return Ok(Some(entry.number())),
        };
        Err(refuse(RefusalCode::State, format!("stream `{name}` is in use, since {why} first")))
    }

    /// Makes the entry of a stream that nobody uses anew, with other formats: contexts only ever add to those of one that is there.
    fn make_anew(&mut self, number: u32, change: impl FnOnce(&mut Vec<Format>)) {
        let Some(before) = self.now.get(number).cloned() else { return };
        self.now_mut().remove(number);
        self.changed.insert(number);
        // Contexts take in that it has gone before it is there again, maybe by the same number.
        self.publish_snapshot();
        let anew = self.now_mut().insert(before.name(), before.conversions().policy);
        if let Some(entry) = self.entry_mut(anew) {
            entry.formats = before.formats.clone();
            change(&mut entry.formats);
            entry.is_kept = before.is_kept;
            entry.conversions = before.conversions.clone();
        }
        if let Some(by) = self.announcers.remove(&number) {
            self.announcers.insert(anew, by);
        }
    }

    /// Takes out the entry of a stream that nobody uses.
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
