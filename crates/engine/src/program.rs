//! The program of a handler: SQL or a native handler's name, and parameters; and what comes of it.

use std::collections::BTreeMap;
use std::fmt;

use crossdock_format::Format;
use crossdock_query::{Program, QueryError};

use crate::handler::{Handler, ParameterValues};
use crate::native::{Arguments, NativeKind, Natives};
use crate::select::{Form, ProgramPart, SelectHandler};

/// The work of a handler, whatever the format of what comes in. It is made anew for every format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerProgram {
    /// Its language and its text.
    pub source: HandlerSource,
    /// The values of its parameters, as text.
    pub parameters: BTreeMap<String, String>,
    /// Whether an expression of a query that has a row error is null, and the record goes on.
    pub null_for_errors: bool,
}

/// The language of a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandlerSource {
    /// A query, whose parameters are written `$name` in it.
    Sql(String),
    /// The name of one of the [`Natives`].
    Native(String),
}

impl HandlerProgram {
    /// A query.
    pub fn sql(sql: impl Into<String>) -> HandlerProgram {
        HandlerProgram { source: HandlerSource::Sql(sql.into()), parameters: BTreeMap::new(), null_for_errors: false }
    }

    /// A native handler whose parameters have the values that they have if none is given.
    pub fn native(name: impl Into<String>) -> HandlerProgram {
        HandlerProgram {
            source: HandlerSource::Native(name.into()),
            parameters: BTreeMap::new(),
            null_for_errors: false,
        }
    }

    /// With a value for a parameter.
    #[must_use]
    pub fn with(mut self, parameter: impl Into<String>, value: impl Into<String>) -> HandlerProgram {
        self.parameters.insert(parameter.into(), value.into());
        self
    }

    /// Checks all that can be checked without a format.
    ///
    /// # Errors
    /// The errors of [`HandlerProgram::make`] for any format.
    pub fn check(&self, natives: &Natives) -> Result<(), MakeError> {
        match &self.source {
            HandlerSource::Sql(sql) => Ok(crossdock_query::parse(sql)?.check_values(&self.parameters)?),
            HandlerSource::Native(name) => natives.get(name)?.read(&self.parameters).map(drop),
        }
    }

    /// The stream that a query names behind FROM; `None` for a native handler, whose input stream is given separately.
    ///
    /// # Errors
    /// The query cannot be read.
    pub fn reads(&self) -> Result<Option<String>, MakeError> {
        match &self.source {
            HandlerSource::Sql(sql) => Ok(Some(crossdock_query::parse(sql)?.stream().to_owned())),
            HandlerSource::Native(_) => Ok(None),
        }
    }

    /// The same, as one of the known streams is spelt that a name without quotes [means](crossdock_query::Select::find_stream).
    ///
    /// # Errors
    /// Also: several known streams may be meant.
    pub fn reads_among<'n>(&self, known: impl IntoIterator<Item = &'n str>) -> Result<Option<String>, MakeError> {
        let HandlerSource::Sql(sql) = &self.source else { return Ok(None) };
        let mut select = crossdock_query::parse(sql)?;
        select.find_stream(known)?;
        Ok(Some(select.stream().to_owned()))
    }

    /// Makes the handler for records of this format. Slow: not for a core.
    ///
    /// # Errors
    /// An error of the query or the parameters, or does not fit the format.
    pub fn make(&self, natives: &Natives, input: &Format) -> Result<Made, MakeError> {
        match &self.source {
            HandlerSource::Sql(sql) => {
                let select = crossdock_query::parse(sql)?;
                let select = if self.null_for_errors { select.with_null_for_errors() } else { select };
                let program = select.plan_with(input, &self.parameters)?;
                let handler = SelectHandler::new(program.clone());
                Ok(Made {
                    output: program.output.clone(),
                    form: HandlerForm { steps: handler.steps() },
                    is_metered: true,
                    parameters: Parameters(Prepares::Query(Box::new(program))),
                    handler: Box::new(handler),
                })
            }
            HandlerSource::Native(name) => {
                let kind = natives.get(name)?;
                let arguments = kind.read(&self.parameters)?;
                let (handler, output) = kind.make(input, &arguments)?;
                let is_metered = kind.is_metered();
                let form = HandlerForm { steps: vec![ProgramPart { condition: String::new(), form: Form::Native }] };
                let parameters = Parameters(Prepares::Native(kind.clone(), arguments));
                Ok(Made { handler, output, form, is_metered, parameters })
            }
        }
    }
}

/// A handler for one format of what comes in, ready to run, and what is known of it.
pub struct Made {
    /// The handler.
    pub handler: Box<dyn Handler>,
    /// The format of what leaves it; that of what comes in if records leave as they came.
    pub output: Format,
    /// How its parts run.
    pub form: HandlerForm,
    /// Whether it takes bounded steps, so that a c-core may run it.
    pub is_metered: bool,
    /// The parameters that its values are checked with; stays off the core.
    pub parameters: Parameters,
}

impl fmt::Debug for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Made { handler: _, output, form, is_metered, parameters: _ } = self;
        write!(f, "Made({form}, metered: {is_metered}, to {})", output.id())
    }
}

/// How the parts of a handler run. `Display` names each form once: `kernel, interpreted`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HandlerForm {
    /// The parts, in the order in which they run.
    pub steps: Vec<ProgramPart>,
}

impl fmt::Display for HandlerForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut named: Vec<Form> = Vec::new();
        for ProgramPart { form, .. } in &self.steps {
            // A form without work is nothing to name beside one with work.
            if !named.contains(form) && (*form != Form::Direct || self.steps.len() == 1) {
                let separator = if named.is_empty() { "" } else { ", " };
                write!(f, "{separator}{form}")?;
                named.push(*form);
            }
        }
        Ok(())
    }
}

/// Makes values of a handler's parameters ready, off the core, for [`Handler::set_parameters`].
#[derive(Clone, Debug)]
pub struct Parameters(Prepares);

#[derive(Clone, Debug)]
enum Prepares {
    Query(Box<Program>),
    Native(NativeKind, Arguments),
}

impl Parameters {
    /// The values that [`HandlerProgram::parameters`] is to have from now on, for the handler that these parameters were
    /// made with.
    ///
    /// # Errors
    /// The errors of [`HandlerProgram::make`] for them; [`MakeError::Fixed`] for one that needs another handler.
    pub fn prepare(&self, values: &BTreeMap<String, String>) -> Result<ParameterValues, MakeError> {
        match &self.0 {
            Prepares::Query(program) => match program.with_values(values) {
                Ok(program) => Ok(SelectHandler::prepare(program)),
                Err(error) => Err(replanned(program, values).unwrap_or(MakeError::Query(error))),
            },
            Prepares::Native(kind, arguments) => {
                let given = kind.read(values)?;
                match arguments.differs(&given, kind.parameters()) {
                    Some(parameter) => Err(MakeError::Fixed { parameter: parameter.to_owned() }),
                    None => Ok(ParameterValues::new(given)),
                }
            }
        }
    }
}

/// Values that do not fit the types that parameters have may yet give them others, where they took these from the values.
fn replanned(program: &Program, values: &BTreeMap<String, String>) -> Option<MakeError> {
    let fresh =
        crossdock_query::parse(&program.sql).and_then(|select| select.plan_with(&program.input, values)).ok()?;
    let (was, is) = (program.parameter_types(), fresh.parameter_types());
    let (parameter, _) = is.into_iter().find(|place| !was.contains(place))?;
    Some(MakeError::Fixed { parameter: parameter.to_owned() })
}

/// Why a handler cannot be made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MakeError {
    /// The query cannot be read, or does not fit the format.
    Query(QueryError),
    /// There is no such native handler.
    UnknownNative {
        /// The name that was asked for.
        name: String,
        /// The names that there are.
        known: Vec<String>,
    },
    /// A parameter's value is missing, or is none that it takes; or there is no such parameter.
    Parameter {
        /// The native handler.
        handler: String,
        /// The parameter.
        parameter: String,
        /// The error, and its remedy.
        problem: String,
    },
    /// The handler itself depends on this parameter: it cannot change while the handler runs.
    Fixed {
        /// The parameter.
        parameter: String,
    },
    /// A native handler has nothing to do with records of this format.
    Input {
        /// The native handler.
        handler: String,
        /// Why.
        problem: String,
    },
}

impl From<QueryError> for MakeError {
    fn from(error: QueryError) -> MakeError {
        MakeError::Query(error)
    }
}

impl fmt::Display for MakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MakeError::Query(error) => error.fmt(f),
            MakeError::UnknownNative { name, known } => {
                write!(f, "no native handler `{name}`; there are: {}", known.join(", "))
            }
            MakeError::Parameter { handler, parameter, problem } => {
                write!(f, "parameter `{parameter}` of {handler}: {problem}")
            }
            MakeError::Fixed { parameter } => {
                write!(f, "parameter `{parameter}` cannot change while the handler runs: deploy a new version with it")
            }
            MakeError::Input { handler, problem } => write!(f, "{handler}: {problem}"),
        }
    }
}

impl std::error::Error for MakeError {}
