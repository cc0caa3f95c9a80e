//! Formats of streams: versions, how they may change, and what the registry keeps of them.

use super::journal::refusal_of;
use super::{Catalog, StreamEntry};
use crate::principal::{Bound, Principal};
use crate::refusal::refuse;
use crossdock_format::registry::{Policy, RegistryError};
use crossdock_format::{Format, FormatId};
use crossdock_transport::control::{Refusal, RefusalCode};
use std::sync::Arc;

/// Formats of one stream at most.
const MAX_FORMATS: usize = 64;
/// Formats of one stream that sessions of one origin bring at most, so that others can bring theirs.
const MAX_FORMATS_PER_PEER: usize = 48;

impl Catalog {
    /// A session publishes a stream in a format from now on; the stream's number.
    ///
    /// # Errors
    /// A handler makes the stream, its policy is against the format, or there is no room.
    pub(crate) fn publish(&mut self, name: &str, format: &Format) -> Result<u32, Refusal> {
        if let Some(handler) = self.now.find(name).and_then(StreamEntry::made_by) {
            let message = format!("stream `{name}` is produced by handler `{handler}`: publish to another stream");
            return Err(refuse(RefusalCode::State, message));
        }
        let is_new = self.now.find(name).is_none_or(|entry| !entry.has_format(format.id()));
        let number = self.make_known(name, format, true)?;
        self.uses.entry(number).or_default().publishers += 1;
        if is_new {
            self.unproven.insert((number, format.id()));
        }
        *self.publishing.entry((number, format.id())).or_default() += 1;
        self.now.get(number).into_iter().for_each(|entry| entry.activity().begin_publishing());
        Ok(number)
    }

    /// The same for a session of this origin, which may not announce all streams that there may be; how many is the daemon's bound,
    /// or the origin's own quota.
    ///
    /// # Errors
    /// As there, or the name differs from that of another stream in case alone, or the origin has announced as many streams as it
    /// may.
    pub(crate) fn publish_as(
        &mut self,
        (by, quota): (Principal, Option<u32>),
        name: &str,
        format: &Format,
    ) -> Result<u32, Refusal> {
        self.now.check_new_name(name)?;
        let is_new = self.now.find(name).is_none_or(|entry| entry.formats().is_empty());
        let bound = Bound::new(self.max_streams_per_peer, "max_streams_per_peer");
        let bound = quota.map_or(bound, |quota| bound.with_quota(quota));
        if is_new && self.announcers.values().filter(|announcer| **announcer == by).count() >= bound.most as usize {
            return Err(by.refuse_more("streams", bound));
        }
        let known = self.now.find(name).map(|entry| (entry.number(), entry.has_format(format.id())));
        let is_new_format = known.is_none_or(|(_, has_format)| !has_format);
        if let Some((number, false)) = known {
            let of_stream = self.bringers.range((number, FormatId(0))..=(number, FormatId(u64::MAX)));
            if of_stream.filter(|(_, bringer)| **bringer == by).count() >= MAX_FORMATS_PER_PEER {
                let message = format!(
                    "{by} has brought {MAX_FORMATS_PER_PEER} formats of stream `{name}`, the bound of one address or user: \
                     `crossdock formats rm` removes the newest one"
                );
                return Err(refuse(RefusalCode::Limit, message));
            }
        }
        let number = self.publish(name, format)?;
        if is_new {
            self.announcers.insert(number, by);
        }
        if is_new_format {
            self.bringers.insert((number, format.id()), by);
        }
        Ok(number)
    }

    /// Makes a format known on a stream, and keeps it; the stream's number.
    ///
    /// # Errors
    /// As [`Catalog::publish`].
    pub(crate) fn declare(&mut self, name: &str, format: &Format) -> Result<u32, Refusal> {
        let number = self.make_known(name, format, true)?;
        // It stays, whether a record comes or not.
        self.unproven.remove(&(number, format.id()));
        self.journal.release(name, format.id());
        Ok(number)
    }

    /// A handler makes a stream from now on, in these formats; the stream's number.
    ///
    /// # Errors
    /// Sessions publish it, its policy is against a format, its name differs from that of another stream in case alone, or there are
    /// too many streams.
    pub(crate) fn derive(&mut self, name: &str, handler: &str, formats: &[Format]) -> Result<u32, Refusal> {
        self.now.check_new_name(name)?;
        let number = self.stream_named(name)?;
        let publishers = self.uses.get(&number).map_or(0, |uses| uses.publishers);
        if publishers > 0 {
            let message = format!(
                "stream `{name}` is published by {publishers} sessions: give the handler another output stream"
            );
            return Err(refuse(RefusalCode::State, message));
        }
        let Some(entry) = self.present_mut(number) else { return Ok(number) };
        let is_new = entry.made_by.is_none();
        entry.claims += u32::from(is_new);
        entry.made_by = Some(handler.into());
        let mut make_known = |format: &Format| {
            self.make_known(name, format, false)?;
            self.journal.release(name, format.id());
            Ok(())
        };
        if let Err(refusal) = formats.iter().try_for_each(&mut make_known) {
            if is_new {
                // Nobody makes it then, so that others may.
                self.underive(number);
            }
            return Err(refusal);
        }
        Ok(number)
    }

    /// Makes a format known on a stream. One that a handler makes is kept with the handler, and in the registry only
    /// where that knows its stream.
    fn make_known(&mut self, name: &str, format: &Format, keeps: bool) -> Result<u32, Refusal> {
        let number = self.stream_named(name)?;
        let made_known = self.add_format(number, name, format, keeps);
        self.expiry.note_use_of_version(number, format.id());
        made_known.inspect_err(|_| self.forget_if_unused(number)).map(|()| number)
    }

    fn add_format(&mut self, number: u32, name: &str, format: &Format, keeps: bool) -> Result<(), Refusal> {
        if keeps || self.registry.stream(name).is_some() {
            self.keep_versions(number)?;
        }
        self.now.check_id(format)?;
        let Some(entry) = self.present(number) else { return Ok(()) };
        if entry.has_format(format.id()) {
            return Ok(());
        }
        if entry.formats().len() >= MAX_FORMATS {
            let message = format!(
                "stream `{name}` has {MAX_FORMATS} formats, the bound: `crossdock formats rm` removes the newest one"
            );
            return Err(refuse(RefusalCode::Limit, message));
        }
        let version = match entry.is_kept {
            true => self.note_version(name, format, self.is_guarded(number, format.id()))?,
            false => entry.newest_version() + 1,
        };
        if let Some(entry) = self.present_mut(number) {
            entry.add_version(version, format.clone());
        }
        Ok(())
    }

    /// Notes in the registry that a stream has a version, and that a conversion left it, if one did before it was a
    /// version. It is not on disk before the journal releases it, which it does at once if a conversion left it. The version's
    /// number.
    ///
    /// # Errors
    /// The stream's policy is against it, its id is another's, or there is no room.
    fn note_version(&mut self, stream: &str, format: &Format, was_left: bool) -> Result<u32, Refusal> {
        let announced = self.registry.announce(stream, format).map_err(|error| refusal_of(&error))?;
        if !announced.entries.is_empty() {
            self.journal.withhold(stream, format, announced.version);
        }
        if was_left {
            let guarded = self.registry.guard(stream, format.id()).map_err(|error| refusal_of(&error))?;
            self.journal.write(guarded);
        }
        Ok(announced.version as u32)
    }

    /// A stream and its versions are kept from now on, those too that handlers made before.
    ///
    /// # Errors
    /// As [`Catalog::note_version`].
    pub(super) fn keep_versions(&mut self, number: u32) -> Result<(), Refusal> {
        let Some(entry) = self.present(number) else { return Ok(()) };
        if entry.is_kept {
            return Ok(());
        }
        let (name, versions) = (entry.name().to_owned(), entry.formats().to_vec());
        for format in versions {
            self.note_version(&name, &format, self.is_guarded(number, format.id()))?;
            self.journal.release(&name, format.id());
        }
        if let Some(entry) = self.present_mut(number) {
            entry.is_kept = true;
        }
        Ok(())
    }

    /// Whether a format could be the next version of a stream, by the stream's policy.
    ///
    /// # Errors
    /// The obstacle.
    pub(crate) fn check_format(&self, stream: &str, format: &Format) -> Result<(), RegistryError> {
        self.registry.check(stream, format)
    }

    /// The number of a stream's versions; `None` if nothing is known of the stream.
    pub(crate) fn version_count(&self, stream: &str) -> Option<usize> {
        let kept = self.registry.stream(stream).map(|stream| stream.versions().len());
        kept.or_else(|| self.now.find(stream).map(|_| 0))
    }

    /// Sets how a stream's format may change from its next version on; the stream need not be there yet.
    ///
    /// # Errors
    /// The stream's name is invalid or differs from that of another in case alone, there are too many streams, or the disk is behind.
    pub(crate) fn set_policy(&mut self, stream: &str, policy: Policy) -> Result<(), Refusal> {
        self.now.check_new_name(stream)?;
        self.journal.check()?;
        let entry = self.registry.set_policy(stream, policy).map_err(|error| refusal_of(&error))?;
        self.journal.write([entry]);
        let number = self.now.find(stream).map(StreamEntry::number);
        if let Some(entry) = number.and_then(|number| self.entry_mut(number)) {
            Arc::make_mut(&mut entry.conversions).policy = policy;
        }
        Ok(())
    }
}
