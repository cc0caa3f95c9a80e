//! An immutable view of the catalog: cheap to share, and the same for all who hold it.

use crate::catalog::Between;
use crate::catalog::activity::Activity;
use crate::morph::compile::Compiled;
use crate::names::meant;
use crate::refusal::refuse;
use crossdock_control::conversions::Graph;
use crossdock_engine::Tables;
use crossdock_format::registry::{Policy, RegistryError};
use crossdock_format::{Format, FormatId};
use crossdock_query::{QueryError, Select, StatefulQuery};
use crossdock_transport::FormatName;
use crossdock_transport::control::{Refusal, RefusalCode};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

/// The conversions between the formats of one stream.
#[derive(Clone, Default)]
pub(crate) struct Conversions {
    pub(super) graph: Graph,
    /// How the stream's format may change: what one version has to read of another is converted by name.
    pub(super) policy: Policy,
    /// The graph's compiled conversions, by their numbers.
    pub(super) compiled: BTreeMap<u64, Arc<Compiled>>,
}

impl Conversions {
    /// Which conversions there are, and the chains through them.
    pub(crate) fn graph(&self) -> &Graph {
        &self.graph
    }

    /// How the stream's format may change.
    pub(crate) fn policy(&self) -> Policy {
        self.policy
    }

    /// A conversion of the graph by its number, compiled.
    pub(crate) fn compiled(&self, number: u64) -> Option<&Compiled> {
        self.compiled.get(&number).map(|compiled| &**compiled)
    }

    /// A format that a conversion reads or makes.
    fn format(&self, id: FormatId) -> Option<&Format> {
        let mut ends = self.compiled.values().flat_map(|compiled| [&compiled.from, &compiled.to]);
        ends.find(|format| format.id() == id)
    }
}

impl std::fmt::Debug for Conversions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Conversions").field("graph", &self.graph).finish_non_exhaustive()
    }
}

/// One stream.
#[derive(Clone, Debug)]
pub(crate) struct StreamEntry {
    number: u32,
    name: Arc<str>,
    /// Newest last.
    formats: Vec<Format>,
    /// The numbers of these versions, which rise.
    numbers: Vec<u32>,
    /// Whether one of them was announced or declared, so that the registry has it; else handlers made them all.
    pub(super) is_kept: bool,
    pub(super) made_by: Option<Box<str>>,
    /// Handlers that read it or make it.
    pub(super) claims: u32,
    pub(super) conversions: Arc<Conversions>,
    activity: Arc<Activity>,
}

impl StreamEntry {
    /// Its activity.
    #[inline]
    pub(crate) fn activity(&self) -> &Activity {
        &self.activity
    }

    /// Whether sessions or handlers read it, in any context.
    pub(crate) fn is_read(&self) -> bool {
        self.activity.is_used() || self.claims > u32::from(self.made_by.is_some())
    }

    /// Its number, which batches carry.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its formats, newest last.
    pub(crate) fn formats(&self) -> &[Format] {
        &self.formats
    }

    /// The number of a format among its versions. Those of removed versions are missing.
    pub(crate) fn version(&self, id: FormatId) -> Option<u32> {
        let index = self.formats.iter().position(|format| format.id() == id)?;
        self.numbers.get(index).copied()
    }

    /// The format of a version.
    fn format_of_version(&self, number: u32) -> Option<&Format> {
        self.formats.get(self.numbers.binary_search(&number).ok()?)
    }

    /// The number of its newest version; 0 if it has none.
    pub(super) fn newest_version(&self) -> u32 {
        self.numbers.last().copied().unwrap_or(0)
    }

    /// Its versions, in words.
    fn describe_versions(&self) -> String {
        match &self.numbers[..] {
            [] => "the stream has no format yet: its first publisher announces one".to_owned(),
            [only] => format!("it has v{only} only"),
            [first, .., last] if (last - first) as usize == self.numbers.len() - 1 => {
                format!("it has v{first} to v{last}")
            }
            numbers => {
                let named: Vec<String> = numbers.iter().map(|number| format!("v{number}")).collect();
                format!("it has {}", named.join(", "))
            }
        }
    }

    /// Adds a version: the newest one, unless the registry knows newer ones.
    pub(super) fn add_version(&mut self, number: u32, format: Format) {
        let at = self.numbers.partition_point(|before| *before < number);
        self.numbers.insert(at, number);
        self.formats.insert(at, format);
    }

    /// Removes a version; the others keep their numbers.
    pub(super) fn remove_version(&mut self, id: FormatId) {
        if let Some(index) = self.formats.iter().position(|format| format.id() == id) {
            self.formats.remove(index);
            self.numbers.remove(index);
        }
    }

    /// The handler that makes it, if one does.
    pub(crate) fn made_by(&self) -> Option<&str> {
        self.made_by.as_deref()
    }

    /// Whether handlers read it or make it.
    pub(crate) fn is_claimed(&self) -> bool {
        self.claims > 0
    }

    /// How its format may change from its next version on.
    pub(crate) fn policy(&self) -> Policy {
        self.conversions.policy
    }

    /// The conversions between its formats.
    pub(crate) fn conversions(&self) -> &Arc<Conversions> {
        &self.conversions
    }

    /// A format that it has, or that one of its conversions reads or makes.
    pub(crate) fn format(&self, id: FormatId) -> Option<&Format> {
        let here = self.formats.iter().find(|format| format.id() == id);
        here.or_else(|| self.conversions.format(id))
    }

    /// Whether it has a format.
    pub(crate) fn has_format(&self, id: FormatId) -> bool {
        self.formats.iter().any(|format| format.id() == id)
    }

    /// Whether nothing here needs it to be remembered.
    pub(super) fn is_unused(&self) -> bool {
        let is_left = !self.is_kept || self.formats.is_empty();
        is_left && self.claims == 0 && self.made_by.is_none() && self.conversions.compiled.is_empty()
    }
}

/// Numbers that rest after their stream is gone, before one is given to another: a batch of the old one may still be on its way
/// between two contexts.
const RESTING: usize = 256;

/// All streams at one time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    /// By number.
    streams: Vec<Option<Arc<StreamEntry>>>,
    /// Numbers without a stream, the one that has been so for the longest first.
    unused: VecDeque<u32>,
    by_name: HashMap<Arc<str>, u32>,
    /// The reference tables, whose names no stream has.
    pub(super) tables: Tables,
}

impl Snapshot {
    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// All streams, by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<StreamEntry>> {
        self.streams.iter().flatten()
    }

    /// The reference tables.
    pub(crate) fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Finds the stream that a query names: [`Select::find_stream`].
    ///
    /// # Errors
    /// Several streams differ from the name in case alone; it is the name of a reference table.
    pub(crate) fn find_stream(&self, select: &mut Select) -> Result<(), QueryError> {
        select.check_no_table(self.tables.known())?;
        match self.find(select.stream()) {
            Some(entry) if !entry.formats().is_empty() => Ok(()),
            _ => select.find_stream(self.known_names()),
        }
    }

    /// Finds the streams that a query with state names: [`StatefulQuery::find_streams`].
    ///
    /// # Errors
    /// Several streams differ from a name in case alone.
    pub(crate) fn find_streams(&self, query: &mut StatefulQuery) -> Result<(), QueryError> {
        let known: Vec<&str> = self.known_names().collect();
        query.find_streams(known.iter().copied())
    }

    /// The newest format of each of these streams; none where one has no format yet.
    pub(crate) fn newest_formats<'a>(&'a self, streams: &'a [String]) -> Option<Vec<(&'a str, &'a Format)>> {
        streams.iter().map(|stream| Some((stream.as_str(), self.find(stream)?.formats().last()?))).collect()
    }

    /// The stream that a name in a command means: [`meant`], among the streams that have a format.
    ///
    /// # Errors
    /// Several streams differ from the name in case alone.
    pub(crate) fn meant(&self, name: &str) -> Result<String, Refusal> {
        meant(name, self.known_names()).map(str::to_owned).map_err(|why| refuse(RefusalCode::State, why))
    }

    /// Checks that a name, if it is new, does not differ from that of a stream in case alone, and is not that of a reference table: queries
    /// could mean either.
    ///
    /// # Errors
    /// It does, or is.
    pub(crate) fn check_new_name(&self, name: &str) -> Result<(), Refusal> {
        if let Some(table) = self.tables.known().find(|table| table.is_called(name)) {
            let message = format!(
                "`{}` is a reference table of the daemon's configuration ([[table]]), and no stream has its name: use another one",
                table.name
            );
            return Err(refuse(RefusalCode::State, message));
        }
        if self.find(name).is_some_and(|entry| !entry.formats().is_empty()) {
            return Ok(());
        }
        let wanted = name.to_lowercase();
        // One that a handler makes has its name before it has a format.
        let named = self.iter().filter(|entry| !entry.formats().is_empty() || entry.made_by().is_some());
        match named.map(|entry| entry.name()).find(|known| *known != name && known.to_lowercase() == wanted) {
            None => Ok(()),
            Some(known) => {
                let message = format!(
                    "there is a stream `{known}`, and the name `{name}` differs in case only: use its name, or another one"
                );
                Err(refuse(RefusalCode::State, message))
            }
        }
    }

    /// The names of the streams that have a format.
    pub(crate) fn known_names(&self) -> impl Iterator<Item = &str> {
        self.iter().filter(|entry| !entry.formats().is_empty()).map(|entry| entry.name())
    }

    /// The stream of a number.
    pub(crate) fn get(&self, number: u32) -> Option<&Arc<StreamEntry>> {
        self.streams.get(number as usize)?.as_ref()
    }

    /// The stream of a name.
    pub(crate) fn find(&self, name: &str) -> Option<&StreamEntry> {
        self.by_name.get(name).and_then(|number| self.get(*number)).map(|entry| &**entry)
    }

    pub(crate) fn insert(&mut self, name: &str, policy: Policy) -> u32 {
        let name: Arc<str> = name.into();
        let number = match self.unused.len() {
            ..=RESTING => {
                self.streams.push(None);
                // No more than there may be streams, and those at rest.
                self.streams.len() as u32 - 1
            }
            _ => self.unused.pop_front().unwrap_or_default(),
        };
        let entry = StreamEntry {
            number,
            name: Arc::clone(&name),
            formats: Vec::new(),
            numbers: Vec::new(),
            is_kept: false,
            made_by: None,
            claims: 0,
            conversions: Arc::new(Conversions { policy, ..Conversions::default() }),
            activity: Arc::default(),
        };
        if let Some(place) = self.streams.get_mut(number as usize) {
            *place = Some(Arc::new(entry));
        }
        self.by_name.insert(name, number);
        number
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut StreamEntry> {
        self.streams.get_mut(number as usize)?.as_mut().map(Arc::make_mut)
    }

    pub(crate) fn remove(&mut self, number: u32) {
        if let Some(entry) = self.streams.get_mut(number as usize).and_then(Option::take) {
            self.by_name.remove(&*entry.name);
            self.unused.push_back(number);
        }
    }

    /// The format that a name means on a stream; `None` for one that may come to be known.
    ///
    /// # Errors
    /// The name cannot mean any.
    pub(crate) fn format_named(&self, stream: &str, name: &FormatName) -> Result<Option<Format>, Refusal> {
        let stream = self.find(stream);
        match name {
            FormatName::Version(0) => Err(refuse(RefusalCode::UnknownFormat, "versions are counted from 1")),
            FormatName::Version(version) => Ok(stream.and_then(|stream| stream.format_of_version(*version)).cloned()),
            FormatName::Description(text) => {
                let format = Format::parse(text).map_err(|error| {
                    refuse(RefusalCode::Format, format!("a format's description is refused: {error}"))
                })?;
                self.check_id(&format).map(|()| Some(format))
            }
            FormatName::Id(text) => {
                let id: FormatId = text.parse().map_err(|error| refuse(RefusalCode::Format, format!("{error}")))?;
                let here = stream.and_then(|stream| stream.format(id));
                Ok(here.or_else(|| self.format(id)).cloned())
            }
        }
    }

    /// The format of an id, on any stream.
    fn format(&self, id: FormatId) -> Option<&Format> {
        self.iter().find_map(|stream| stream.format(id))
    }

    /// Whether the id of a format identifies it among those of all streams.
    ///
    /// # Errors
    /// Another format has the same id.
    pub(crate) fn check_id(&self, format: &Format) -> Result<(), Refusal> {
        match self.format(format.id()) {
            Some(known) if known != format => {
                Err(refuse(RefusalCode::Format, RegistryError::Collision { id: format.id() }.to_string()))
            }
            _ => Ok(()),
        }
    }

    /// The same; an unknown format is refused.
    ///
    /// # Errors
    /// The name means no format that is known.
    pub(crate) fn format_known(&self, stream: &str, name: &FormatName) -> Result<Format, Refusal> {
        self.format_named(stream, name)?.ok_or_else(|| self.unknown_format(stream, name))
    }

    /// The refusal of a name that means no format; it lists the formats that are known.
    pub(crate) fn unknown_format(&self, stream: &str, name: &FormatName) -> Refusal {
        let known = match (name, self.find(stream)) {
            (FormatName::Version(_), Some(stream)) => stream.describe_versions(),
            (FormatName::Version(_), None) => {
                "the stream has no format yet: its first publisher announces one".to_owned()
            }
            _ => "`crossdock formats` lists the known formats; a format that was not announced yet can be given as a \
                  schema"
                .to_owned(),
        };
        refuse(RefusalCode::UnknownFormat, format!("stream `{stream}` has no format {name}: {known}"))
    }

    /// Checks a conversion's text against its two formats, and compiles it. It takes a while: not for a core, nor for
    /// the control thread.
    ///
    /// # Errors
    /// A format is not known, or the conversion does not lead from the one to the other.
    pub(crate) fn compile(&self, between: &Between<'_>, text: &str) -> Result<Compiled, Refusal> {
        let from = self.format_known(between.stream, between.from)?;
        let to = self.format_known(between.stream, between.to)?;
        Compiled::new(&from, &to, text).map_err(|why| {
            let message = format!("the conversion from {} to {} is refused: {why}", from.id(), to.id());
            refuse(RefusalCode::Conversion, message)
        })
    }
}
