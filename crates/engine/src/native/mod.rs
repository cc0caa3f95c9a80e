//! Native handlers: written in Rust, found by name, made from parameters.

mod append;
mod arguments;
mod changes;
mod convert;
mod number;
mod pass;
mod sample;
mod table;
mod tally;
mod work;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crossdock_format::Format;

use crate::handler::Handler;
use crate::program::MakeError;
use crate::stateful::Tables;

pub use arguments::{Arguments, Parameter, ParameterKind};
pub use tally::MAX_KEYS;
pub use work::MAX_WORK_NS;

/// A handler and the format of what leaves it.
pub type Native = (Box<dyn Handler>, Format);

type Make = dyn Fn(&Format, &Arguments) -> Result<Native, MakeError> + Send + Sync;

/// A kind of native handler: its name, its parameters, and how one is made.
#[derive(Clone)]
pub struct NativeKind {
    name: Arc<str>,
    about: &'static str,
    parameters: Arc<[Parameter]>,
    is_metered: bool,
    make: Arc<Make>,
}

impl NativeKind {
    /// A kind whose handlers `make` makes, off the core, for one format of what comes in. Its work for a record is not
    /// known to be bounded.
    ///
    /// A handler with parameters that can be changed while it runs keeps its [`Arguments`], and
    /// [exchanges](Arguments::exchange) them in [`Handler::set_parameters`].
    pub fn new(
        name: &str,
        about: &'static str,
        parameters: &[Parameter],
        make: impl Fn(&Format, &Arguments) -> Result<Native, MakeError> + Send + Sync + 'static,
    ) -> NativeKind {
        NativeKind { name: name.into(), about, parameters: parameters.into(), is_metered: false, make: Arc::new(make) }
    }

    /// Says that its handlers take bounded steps, and never block or allocate once they are warm: they may run on a c-core.
    #[must_use]
    pub fn metered(self) -> NativeKind {
        NativeKind { is_metered: true, ..self }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The work of its handlers, in one line.
    pub fn about(&self) -> &'static str {
        self.about
    }

    /// Its parameters.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// Whether its handlers take bounded steps.
    pub fn is_metered(&self) -> bool {
        self.is_metered
    }

    /// Reads values of its parameters.
    pub(crate) fn read(&self, given: &BTreeMap<String, String>) -> Result<Arguments, MakeError> {
        Arguments::read(&self.name, &self.parameters, given)
    }

    pub(crate) fn make(&self, input: &Format, arguments: &Arguments) -> Result<Native, MakeError> {
        (self.make)(input, arguments)
    }
}

impl fmt::Debug for NativeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NativeKind").field(&self.name).finish()
    }
}

/// The native handlers that there are, by name, and the reference tables that queries may name.
#[derive(Clone, Debug)]
pub struct Natives {
    by_name: BTreeMap<Arc<str>, NativeKind>,
    tables: Tables,
}

impl Natives {
    /// Those that are built in.
    pub fn built_in() -> Natives {
        let kinds = [
            pass::kind(),
            work::kind(),
            sample::kind(),
            number::kind(),
            tally::kind(),
            changes::kind(),
            convert::kind(),
        ];
        let mut natives = Natives { by_name: BTreeMap::new(), tables: Tables::default() };
        kinds.into_iter().for_each(|kind| natives.add(kind));
        natives
    }

    /// With these reference tables.
    #[must_use]
    pub fn with_tables(self, tables: Tables) -> Natives {
        Natives { tables, ..self }
    }

    /// The reference tables.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Adds a kind, in place of the one that had its name.
    pub fn add(&mut self, kind: NativeKind) {
        self.by_name.insert(kind.name.clone(), kind);
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = &NativeKind> {
        self.by_name.values()
    }

    /// The one with this name.
    ///
    /// # Errors
    /// There is none; the names that there are.
    pub fn get(&self, name: &str) -> Result<&NativeKind, MakeError> {
        self.by_name.get(name).ok_or_else(|| {
            let known = self.by_name.keys().map(ToString::to_string).collect();
            MakeError::UnknownNative { name: name.to_owned(), known }
        })
    }
}

impl Default for Natives {
    fn default() -> Natives {
        Natives::built_in()
    }
}
