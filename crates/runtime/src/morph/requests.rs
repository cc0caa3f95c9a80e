//! Requests that offer and withdraw conversions, and that listen for wanted ones.

use crate::context::Context;
use crate::morph::compile::Compiled;
use crate::refusal::{fits_a_packet, refuse};
use crossdock_control::conversions::{MAX_CONVERSIONS, Owner, Refused};
use crossdock_format::{Format, FormatId};
use crossdock_transport::control::{Refusal, RefusalCode};
use crossdock_transport::{FormatName, Notice};

/// Most sessions that may listen on one stream: each is notified of every wanted conversion.
const MAX_LISTENERS: usize = 256;

/// The formats that a conversion stands between, as they were named, and its stream.
pub(crate) struct Between<'a> {
    pub(crate) stream: &'a str,
    pub(crate) from: &'a FormatName,
    pub(crate) to: &'a FormatName,
}

impl Context {
    /// The format that a name means on a stream; `None` for one that may come to be known.
    ///
    /// # Errors
    /// The name cannot mean any.
    pub(crate) fn format_named(&self, stream: Option<usize>, name: &FormatName) -> Result<Option<Format>, Refusal> {
        let stream = stream.and_then(|key| self.streams.get(key));
        match name {
            FormatName::Version(0) => Err(refuse(RefusalCode::UnknownFormat, "versions are counted from 1")),
            FormatName::Version(version) => {
                let at = *version as usize - 1;
                Ok(stream.and_then(|stream| stream.formats.get(at)).map(|known| known.format.clone()))
            }
            FormatName::Description(text) => {
                let format = Format::parse(text).map_err(|error| {
                    refuse(RefusalCode::Format, format!("a format's description is refused: {error}"))
                })?;
                fits_a_packet(&format)?;
                Ok(Some(format))
            }
            FormatName::Id(text) => {
                let id: FormatId = text.parse().map_err(|error| refuse(RefusalCode::Format, format!("{error}")))?;
                let here = stream.and_then(|stream| stream.format(id));
                Ok(here.or_else(|| self.streams.iter().find_map(|stream| stream.format(id))).cloned())
            }
        }
    }

    /// The same; an unknown format is refused.
    fn format_known(&self, stream: Option<usize>, name: &FormatName, of: &str) -> Result<Format, Refusal> {
        self.format_named(stream, name)?.ok_or_else(|| self.unknown_format(stream, name, of))
    }

    /// The refusal of a name that means no format; it lists the formats that are known.
    pub(crate) fn unknown_format(&self, stream: Option<usize>, name: &FormatName, of: &str) -> Refusal {
        let versions = stream.and_then(|key| self.streams.get(key)).map_or(0, |stream| stream.formats.len());
        let known = match (name, versions) {
            (FormatName::Version(_), 0) => "it has none yet: the first publisher brings one".to_owned(),
            (FormatName::Version(_), 1) => "it has v1 only".to_owned(),
            (FormatName::Version(_), last) => format!("it has v1 to v{last}"),
            _ => "`crossdock formats` lists those that are known; one that nobody announced yet can be given whole"
                .to_owned(),
        };
        refuse(RefusalCode::UnknownFormat, format!("stream `{of}` has no format {name}: {known}"))
    }

    /// Takes a conversion in. Nothing changes unless it is found to be right.
    ///
    /// # Errors
    /// Its formats are not known, it does not lead from the one to the other, or a table is full.
    pub(crate) fn register_conversion(
        &mut self,
        owner: Owner,
        between: &Between<'_>,
        text: &str,
    ) -> Result<(), Refusal> {
        let Between { stream: name, from, to } = *between;
        if owner == Owner::Kept {
            self.check_disk()?;
        }
        let found = self.streams.find(name);
        let from = self.format_known(found, from, name)?;
        let to = self.format_known(found, to, name)?;
        let compiled = Compiled::new(&from, &to, text).map_err(|why| {
            let message = format!("the conversion from {} to {} is refused: {why}", from.id(), to.id());
            refuse(RefusalCode::Conversion, message)
        })?;
        if from.id() == to.id() {
            return Err(refusal_of(Refused::Loop(from.id())));
        }
        if let Some(stream) = found.and_then(|key| self.streams.get(key)) {
            stream.morphing.graph.would_take(from.id(), to.id(), owner).map_err(refusal_of)?;
        }
        if self.morph.conversions >= MAX_CONVERSIONS {
            let message = format!("the daemon has {MAX_CONVERSIONS} conversions, its bound: take one back");
            return Err(refuse(RefusalCode::Limit, message));
        }
        let key = self.stream_named(name)?;
        self.note_conversion(owner, name, (&from, &to), &compiled.conversion)?;
        let Some(stream) = self.streams.get_mut(key) else { return Ok(()) };
        let (number, replaced) =
            stream.morphing.graph.add(from.id(), to.id(), owner, compiled.cost).map_err(refusal_of)?;
        if replaced.and_then(|replaced| stream.morphing.compiled.remove(&replaced)).is_none() {
            self.morph.conversions += 1;
        }
        stream.morphing.compiled.insert(number, compiled);
        self.replan(key);
        Ok(())
    }

    /// Takes a conversion out.
    ///
    /// # Errors
    /// There is none of this owner's between the two.
    pub(crate) fn unregister_conversion(&mut self, owner: Owner, between: &Between<'_>) -> Result<(), Refusal> {
        let Between { stream: name, from, to } = *between;
        let found = self.streams.find(name);
        if owner == Owner::Kept {
            self.check_disk()?;
        }
        let from = self.format_known(found, from, name)?;
        let to = self.format_known(found, to, name)?;
        let removed = found
            .and_then(|key| self.streams.get_mut(key))
            .and_then(|stream| stream.morphing.graph.remove(from.id(), to.id(), owner));
        let (Some(key), Some(removed)) = (found, removed) else {
            let whose = if owner == Owner::Kept { "kept" } else { "of this session" };
            let (from, to) = (from.id(), to.id());
            let message = format!("there is no conversion from {from} to {to} on stream `{name}` that is {whose}");
            return Err(refuse(RefusalCode::Conversion, message));
        };
        if let Some(stream) = self.streams.get_mut(key) {
            stream.morphing.compiled.remove(&removed.number);
            self.morph.conversions -= 1;
        }
        if owner == Owner::Kept {
            let entry = self.morph.registry.forget(name, from.id(), to.id());
            self.write_down(entry);
        }
        self.replan(key);
        self.streams.forget_if_unused(key);
        Ok(())
    }

    /// Notes that a peer wants to hear what a stream's subscribers lack, and tells it what that is now.
    ///
    /// # Errors
    /// The stream's name is none, or too many listen.
    pub(crate) fn listen_for_converters(&mut self, peer: usize, name: &str) -> Result<(), Refusal> {
        let key = self.stream_named(name)?;
        let Some(stream) = self.streams.get_mut(key) else { return Ok(()) };
        if stream.morphing.listeners.contains(&peer) {
            return Ok(());
        }
        if stream.morphing.listeners.len() >= MAX_LISTENERS {
            let message = format!("{MAX_LISTENERS} sessions listen on stream `{name}`, the bound");
            return Err(refuse(RefusalCode::Limit, message));
        }
        stream.morphing.listeners.push(peer);
        let (name, wanted) = (stream.name.clone(), stream.morphing.wanted.clone());
        for (from, to) in wanted {
            self.tell(peer, &converter_wanted(&name, &from, &to).into());
        }
        Ok(())
    }

    /// A peer is gone, and its conversions with it; kept ones that they covered are in force again.
    pub(crate) fn end_conversions(&mut self, peer: usize) {
        let concerned = |morphing: &super::Morphing| {
            let owned = |c: &crossdock_control::conversions::Conversion| c.owner == Owner::Session(peer as u64);
            morphing.listeners.contains(&peer) || morphing.graph.conversions().iter().any(owned)
        };
        let keys: Vec<usize> =
            self.streams.keyed().filter(|(_, stream)| concerned(&stream.morphing)).map(|(key, _)| key).collect();
        for key in keys {
            let Some(stream) = self.streams.get_mut(key) else { continue };
            stream.morphing.listeners.retain(|&listener| listener != peer);
            let gone = stream.morphing.graph.remove_session(peer as u64);
            for conversion in &gone {
                stream.morphing.compiled.remove(&conversion.number);
            }
            self.morph.conversions -= gone.len();
            if !gone.is_empty() {
                self.replan(key);
            }
            self.streams.forget_if_unused(key);
        }
    }
}

/// The notice to listeners that a conversion is wanted.
pub(crate) fn converter_wanted(stream: &str, from: &Format, to: &Format) -> Notice {
    Notice::ConverterWanted { stream: stream.to_owned(), from: from.describe(), to: to.describe() }
}

fn refusal_of(refused: Refused) -> Refusal {
    let code = match refused {
        Refused::Loop(_) => RefusalCode::Conversion,
        Refused::Full => RefusalCode::Limit,
    };
    refuse(code, refused.to_string())
}
