//! Conversions between the formats of a stream: offering them, taking them back, hearing which are wanted.

use crate::client::{Client, Interrupter};
use crate::error::Error;
use crate::incoming::Incoming;
use crate::link::NOBODY;
use crate::settings::{Settings, setting_methods};
use crate::shared::Inner;
use crossdock_format::convert::Conversion;
use crossdock_format::{Format, FormatId};
use crossdock_transport::{FormatName, Notice, Request};
use std::time::Duration;

/// A format, as a subscriber or a conversion names it.
#[derive(Clone, Debug, PartialEq)]
pub enum FormatRef {
    /// Itself: the daemon need not know it yet.
    Format(Format),
    /// By its id, which somebody has announced.
    Id(FormatId),
    /// As a version of the stream, counted from 1 in the order in which they were first announced.
    Version(u32),
}

impl From<&Format> for FormatRef {
    fn from(format: &Format) -> FormatRef {
        FormatRef::Format(format.clone())
    }
}

impl From<Format> for FormatRef {
    fn from(format: Format) -> FormatRef {
        FormatRef::Format(format)
    }
}

impl From<FormatId> for FormatRef {
    fn from(id: FormatId) -> FormatRef {
        FormatRef::Id(id)
    }
}

impl std::str::FromStr for FormatRef {
    type Err = String;

    /// `v3`, or an id of 16 hexadecimal digits.
    fn from_str(text: &str) -> Result<FormatRef, String> {
        match text.parse()? {
            FormatName::Version(version) => Ok(FormatRef::Version(version)),
            FormatName::Id(id) => id.parse().map(FormatRef::Id).map_err(|error| format!("{error}")),
            FormatName::Description(text) => Format::parse(&text).map(FormatRef::Format).map_err(|e| e.to_string()),
        }
    }
}

impl FormatRef {
    pub(crate) fn name(&self) -> FormatName {
        match self {
            FormatRef::Format(format) => FormatName::Description(format.describe()),
            FormatRef::Id(id) => FormatName::Id(id.to_string()),
            FormatRef::Version(version) => FormatName::Version(*version),
        }
    }
}

/// A conversion that a subscriber of a stream lacks.
#[derive(Clone, Debug, PartialEq)]
pub struct ConverterWanted {
    /// The stream.
    pub stream: String,
    /// The format that records come in.
    pub from: Format,
    /// A format that the subscriber accepts.
    pub to: Format,
}

impl ConverterWanted {
    /// The content of a notice of the daemon, if it is this.
    pub(crate) fn of(notice: Notice) -> Option<ConverterWanted> {
        let Notice::ConverterWanted { stream, from, to } = notice else { return None };
        // One that does not parse is of a daemon that knows more than this version.
        let (from, to) = (Format::parse(&from).ok()?, Format::parse(&to).ok()?);
        Some(ConverterWanted { stream, from, to })
    }
}

/// Registers a conversion of this session's, or keeps one. This session's is registered again in every session that follows.
pub(crate) fn register(
    client: &mut Client,
    stream: &str,
    (from, to): (&FormatRef, &FormatRef),
    conversion: &Conversion,
    kept: bool,
) -> Result<(), Error> {
    let request = |id| Request::RegisterConversion {
        id,
        stream: stream.to_owned(),
        from: from.name(),
        to: to.name(),
        conversion: conversion.to_string(),
        kept,
    };
    client.ask(|_, id| request(id))?;
    if !kept {
        let mut inner = client.shared.lock();
        forget(&mut inner, stream, (from, to));
        inner.link.again(request(NOBODY));
    }
    Ok(())
}

/// Takes a conversion back.
pub(crate) fn unregister(
    client: &mut Client,
    stream: &str,
    (from, to): (&FormatRef, &FormatRef),
    kept: bool,
) -> Result<(), Error> {
    if !kept {
        forget(&mut client.shared.lock(), stream, (from, to));
    }
    let (stream, from, to) = (stream.to_owned(), from.name(), to.name());
    client.ask(|_, id| Request::UnregisterConversion { id, stream, from, to, kept }).map(drop)
}

/// No session that follows registers this conversion.
fn forget(inner: &mut Inner, stream: &str, between: (&FormatRef, &FormatRef)) {
    let (from, to) = (between.0.name(), between.1.name());
    inner.link.not_again(|request| match request {
        Request::RegisterConversion { stream: of, from: known, to: made, .. } => {
            of == stream && *known == from && *made == to
        }
        _ => false,
    });
}

/// Has the daemon report which conversions a stream's subscribers lack, in this session and in all that follow.
pub(crate) fn listen(client: &mut Client, stream: &str) -> Result<(), Error> {
    let request = |id| Request::ListenForConverters { id, stream: stream.to_owned() };
    client.ask(|_, id| request(id))?;
    client.shared.lock().link.again(request(NOBODY));
    Ok(())
}

/// The next conversion that is wanted; `None` when none was within the timeout.
pub(crate) fn wanted(client: &mut Client, timeout: Option<Duration>) -> Result<Option<ConverterWanted>, Error> {
    client.wait(timeout, |inner| {
        let inbox = &mut inner.link.inbox;
        let is_want = |incoming: &Incoming| matches!(incoming, Incoming::Notice(Notice::ConverterWanted { .. }));
        let at = inbox.iter().position(is_want)?;
        match inbox.remove(at)? {
            Incoming::Notice(notice) => ConverterWanted::of(notice),
            _ => None,
        }
    })
}

/// Sets up a [`Converter`].
#[derive(Clone, Debug)]
pub struct ConverterBuilder {
    settings: Settings,
    stream: Option<String>,
}

impl ConverterBuilder {
    /// The stream whose formats it converts; it need not be there yet.
    #[must_use]
    pub fn stream(mut self, name: impl Into<String>) -> Self {
        self.stream = Some(name.into());
        self
    }

    setting_methods!();

    /// Connects, and listens for what is wanted.
    ///
    /// # Errors
    /// Nobody answers, or the daemon refuses the stream's name.
    pub fn connect(self) -> Result<Converter, Error> {
        let stream = self.stream.ok_or(Error::Incomplete("a converter needs a stream"))?;
        let mut client = Client::connect(self.settings)?;
        listen(&mut client, &stream)?;
        Ok(Converter { client, stream })
    }
}

/// Converts the formats of a stream: it registers conversions, which the daemon runs for the stream's subscribers, and
/// is notified of the ones they lack. Its conversions go away with it, but for those that are to be kept. After it
/// reconnects to a daemon that was gone, it registers them again.
pub struct Converter {
    client: Client,
    stream: String,
}

impl Converter {
    /// Begins to set up a converter at the daemon's address, `host:port`.
    #[must_use]
    pub fn builder(addr: impl Into<String>) -> ConverterBuilder {
        ConverterBuilder { settings: Settings::new(addr), stream: None }
    }

    /// The stream.
    #[must_use]
    pub fn stream(&self) -> &str {
        &self.stream
    }

    /// Registers a conversion for as long as this converter is there; in place of the one that it registered between the same
    /// formats before. From the next batch on it is used.
    ///
    /// # Errors
    /// The daemon does not know the formats, or the conversion does not lead from the one to the other; nothing has changed
    /// then.
    pub fn register(
        &mut self,
        from: impl Into<FormatRef>,
        to: impl Into<FormatRef>,
        conversion: &Conversion,
    ) -> Result<(), Error> {
        register(&mut self.client, &self.stream, (&from.into(), &to.into()), conversion, false)
    }

    /// Has the daemon keep a conversion, also when this converter has gone; a daemon with a `state_dir`, also when it is
    /// restarted.
    ///
    /// # Errors
    /// As [`Converter::register`].
    pub fn keep(
        &mut self,
        from: impl Into<FormatRef>,
        to: impl Into<FormatRef>,
        conversion: &Conversion,
    ) -> Result<(), Error> {
        register(&mut self.client, &self.stream, (&from.into(), &to.into()), conversion, true)
    }

    /// Withdraws a conversion that this converter registered.
    ///
    /// # Errors
    /// It registered none between the two.
    pub fn unregister(&mut self, from: impl Into<FormatRef>, to: impl Into<FormatRef>) -> Result<(), Error> {
        unregister(&mut self.client, &self.stream, (&from.into(), &to.into()), false)
    }

    /// Takes a conversion out that the daemon keeps.
    ///
    /// # Errors
    /// It keeps none between the two.
    pub fn discard(&mut self, from: impl Into<FormatRef>, to: impl Into<FormatRef>) -> Result<(), Error> {
        unregister(&mut self.client, &self.stream, (&from.into(), &to.into()), true)
    }

    /// The next conversion that a subscriber lacks; those that were lacking when this converter connected come first. `None`
    /// when none was within the timeout; without one it waits as long as it takes.
    ///
    /// # Errors
    /// The link has ended for good, or the call was interrupted.
    pub fn next_wanted(&mut self, timeout: Option<Duration>) -> Result<Option<ConverterWanted>, Error> {
        wanted(&mut self.client, timeout)
    }

    /// Makes a waiting call return, from another thread.
    #[must_use]
    pub fn interrupter(&self) -> Interrupter {
        self.client.interrupter()
    }
}

impl Drop for Converter {
    fn drop(&mut self) {
        self.client.shared.lock().link.say_close();
    }
}

impl std::fmt::Debug for Converter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Converter").field("stream", &self.stream).finish_non_exhaustive()
    }
}
