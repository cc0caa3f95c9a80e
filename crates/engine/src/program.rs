//! The program of a handler: SQL or a native handler's name, and parameters; and what comes of it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crossdock_format::Format;
use crossdock_query::{KeyedState, Program, Query, QueryError, StatefulProgram, StatefulQuery};

use crate::handler::{Handler, ParameterValues};
use crate::native::{Arguments, NativeKind, Natives};
use crate::select::{Form, ProgramPart, SelectHandler};
use crate::stateful::{StatefulHandler, Tables};

/// The work of a handler, whatever the format of what comes in. It is made anew for every format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerProgram {
    /// Its language and its text.
    pub source: HandlerSource,
    /// The values of its parameters, as text.
    pub parameters: BTreeMap<String, String>,
    /// Whether an expression of a query that has a row error is null, and the record goes on.
    pub null_for_errors: bool,
    /// Set for a subscription's query with state: the texts of the views that it reads streams through, by stream. The clauses
    /// for a slow subscriber are not the handler's.
    pub subscription_views: Option<BTreeMap<String, String>>,
    /// The part of a query with state that it is, where such a query was cut; all of it when absent.
    pub part: Option<QueryPart>,
}

/// A part of a query with state, which runs as a handler of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueryPart {
    /// The [reduction](crossdock_query::reduction) of one of its streams.
    Reduction {
        /// The stream.
        stream: String,
        /// The formats that decided the query's rows.
        decided: Vec<(String, Format)>,
    },
    /// All of it, over reduced streams: their names by those of the streams that the query names.
    Rest(BTreeMap<String, String>),
}

/// The language of a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandlerSource {
    /// A query, whose parameters are written `$name` in it.
    Sql(String),
    /// The name of one of the [`Natives`].
    Native(String),
    /// The state of a stream.
    State(KeyedState),
}

impl HandlerProgram {
    /// A query.
    pub fn sql(sql: impl Into<String>) -> HandlerProgram {
        HandlerProgram::of(HandlerSource::Sql(sql.into()))
    }

    /// A native handler whose parameters have the values that they have if none is given.
    pub fn native(name: impl Into<String>) -> HandlerProgram {
        HandlerProgram::of(HandlerSource::Native(name.into()))
    }

    fn of(source: HandlerSource) -> HandlerProgram {
        HandlerProgram {
            source,
            parameters: BTreeMap::new(),
            null_for_errors: false,
            subscription_views: None,
            part: None,
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
            HandlerSource::Sql(_) | HandlerSource::State(_) => match self.query()? {
                Some(Query::Select(select)) => Ok(select.check_values(&self.parameters)?),
                Some(Query::Stateful(query)) => Ok(query.check_values(&self.parameters)?),
                None => Ok(()),
            },
            HandlerSource::Native(name) => natives.get(name)?.read(&self.parameters).map(drop),
        }
    }

    /// The streams that a query names behind FROM and JOIN, each once; none for a native handler, whose input streams are given separately.
    ///
    /// # Errors
    /// The query cannot be read.
    pub fn reads(&self) -> Result<Vec<String>, MakeError> {
        self.reads_among(std::iter::empty(), &Tables::default())
    }

    /// The same, as those of the known streams are spelt that names without quotes [mean](crossdock_query::Select::find_stream). Reference
    /// tables are none of them.
    ///
    /// # Errors
    /// Also: several known streams may be meant by one; a table stands where it has no rows to begin with.
    pub fn reads_among<'n>(
        &self,
        known: impl IntoIterator<Item = &'n str, IntoIter: Clone>,
        tables: &Tables,
    ) -> Result<Vec<String>, MakeError> {
        let known = known.into_iter();
        Ok(match self.query()? {
            None => Vec::new(),
            Some(Query::Select(mut select)) => {
                select.check_no_table(tables.known())?;
                select.find_stream(known)?;
                vec![select.stream().to_owned()]
            }
            Some(Query::Stateful(query)) => {
                let mut query = with_tables(query, tables, &known)?;
                query.find_streams(known)?;
                query.streams().into_iter().map(str::to_owned).collect()
            }
        })
    }

    /// Whether it is a query with state, which may read several streams.
    pub fn is_stateful(&self) -> bool {
        !self.is_reduction() && matches!(self.query(), Ok(Some(Query::Stateful(_))))
    }

    /// Whether it is the part of a query that keeps no state.
    fn is_reduction(&self) -> bool {
        matches!(self.part, Some(QueryPart::Reduction { .. }))
    }

    /// The reduction of a stream's records in this format for a query with state. Where it lets all pass, it changes nothing.
    ///
    /// # Errors
    /// The query does not fit the format; it is no [part](QueryPart::Reduction) of that kind.
    pub fn plan_reduction(&self, tables: &Tables, input: &Format) -> Result<Program, MakeError> {
        let Some(QueryPart::Reduction { stream, decided }) = &self.part else { return Err(MakeError::NotStateful) };
        let (query, program) = self.plan_stateful(decided, tables)?;
        let readers = query.readers(&program, stream, input, &self.parameters)?;
        let all = |name: &str| -> Result<Program, MakeError> {
            let quoted = name.replace('"', "\"\"");
            Ok(crossdock_query::parse(&format!("SELECT * FROM \"{quoted}\""))?.plan(input)?)
        };
        crossdock_query::reduction(&readers).map_or_else(|| all(stream), Ok)
    }

    /// The query, if it is one.
    fn query(&self) -> Result<Option<Query>, MakeError> {
        let sql = match &self.source {
            HandlerSource::Sql(sql) => sql,
            HandlerSource::State(state) => return Ok(Some(Query::Stateful(StatefulQuery::of_state(state.clone())))),
            HandlerSource::Native(_) => return Ok(None),
        };
        let query = match crossdock_query::parse_query(sql)? {
            // The clauses of a subscription are refused where they stand.
            Query::Select(_) => Query::Select(crossdock_query::parse(sql)?),
            Query::Stateful(query) => {
                if self.subscription_views.is_none() {
                    query.check_no_clauses()?;
                }
                match &self.part {
                    Some(QueryPart::Rest(instead)) => Query::Stateful(query.reading(instead)?),
                    _ => Query::Stateful(query),
                }
            }
        };
        Ok(Some(match query {
            Query::Select(select) if self.null_for_errors => Query::Select(select.with_null_for_errors()),
            Query::Stateful(query) if self.null_for_errors => Query::Stateful(query.with_null_for_errors()),
            query => query,
        }))
    }

    /// The plan of a query with state, for the format of each of its streams that decides its rows, and for the reference tables that it
    /// may name.
    ///
    /// # Errors
    /// An error of the query or the parameters, or does not fit the formats; it is no query with state.
    pub fn plan_stateful(
        &self,
        decided: &[(String, Format)],
        tables: &Tables,
    ) -> Result<(StatefulQuery, StatefulProgram), MakeError> {
        let query = match self.query()? {
            Some(Query::Stateful(query)) => {
                with_tables(query, tables, &decided.iter().map(|(stream, _)| stream.as_str()))?
            }
            Some(Query::Select(_)) | None => return Err(MakeError::NotStateful),
        };
        let views = self.subscription_views.iter().flatten();
        let mut query = views.into_iter().try_fold(query, |query, (stream, view)| {
            Ok::<_, QueryError>(query.through(stream, crossdock_query::View::parse(view)?))
        })?;
        query.find_streams(decided.iter().map(|(stream, _)| stream.as_str()))?;
        let formats: Vec<(&str, &Format)> = decided.iter().map(|(stream, format)| (stream.as_str(), format)).collect();
        let program = query.plan(&formats, &self.parameters)?;
        Ok((query, program))
    }

    /// Makes the handler of a query with state for the records of one of its streams, in this format. All that are made for the same
    /// formats that decide its rows share their state. Slow: not for a core.
    ///
    /// # Errors
    /// An error of the query or the parameters, or does not fit the formats; it is no query with state.
    pub fn make_stateful(
        &self,
        (decided, tables): (&[(String, Format)], &Tables),
        stream: &str,
        format: &Format,
    ) -> Result<Made, MakeError> {
        let (query, program) = self.plan_stateful(decided, tables)?;
        let readers = query.readers(&program, stream, format, &self.parameters)?;
        let output = program.output().clone();
        let handler = StatefulHandler::with_tables(Arc::new(program), readers, tables)
            .map_err(|problem| MakeError::Stages { problem })?;
        let form = HandlerForm { steps: handler.steps() };
        let handler = Box::new(handler);
        Ok(Made {
            handler,
            output,
            form,
            is_metered: true,
            parameters: Parameters(Prepares::Stateful(Box::new(self.clone()))),
        })
    }

    /// Makes the handler for records of this format. Slow: not for a core.
    ///
    /// # Errors
    /// An error of the query or the parameters, or does not fit the format.
    pub fn make(&self, natives: &Natives, input: &Format) -> Result<Made, MakeError> {
        match &self.source {
            HandlerSource::Sql(_) if self.is_reduction() => Ok(of_query(self.plan_reduction(natives.tables(), input)?)),
            HandlerSource::Sql(_) | HandlerSource::State(_) => {
                let Some(Query::Select(select)) = self.query()? else {
                    // Only for one stream it could be made here.
                    let streams = self.reads_among(std::iter::empty(), natives.tables())?;
                    let [stream] = &streams[..] else { return Err(MakeError::Streams { streams }) };
                    let decided = [(stream.clone(), input.clone())];
                    return self.make_stateful((&decided, natives.tables()), stream, input);
                };
                Ok(of_query(select.plan_with(input, &self.parameters)?))
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

/// The handler of a query without state.
fn of_query(program: Program) -> Made {
    let handler = SelectHandler::new(program.clone());
    Made {
        output: program.output.clone(),
        form: HandlerForm { steps: handler.steps() },
        is_metered: true,
        parameters: Parameters(Prepares::Query(Box::new(program))),
        handler: Box::new(handler),
    }
}

/// The query, in which names mean these reference tables, but for those that are known to mean streams: the rules of access decided so for
/// a subscription whose stream is yet to come.
fn with_tables<'n>(
    query: StatefulQuery,
    tables: &Tables,
    streams: &(impl Iterator<Item = &'n str> + Clone),
) -> Result<StatefulQuery, QueryError> {
    query.with_tables(tables.known().filter(|table| !streams.clone().any(|stream| table.is_called(stream))))
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
    /// A query with state, by the program that it was made from: its plan depends on them.
    Stateful(Box<HandlerProgram>),
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
            Prepares::Stateful(program) => {
                HandlerProgram { parameters: values.clone(), ..HandlerProgram::clone(program) }
                    .check(&Natives::built_in())?;
                let differs = |(name, value): &(&String, &String)| program.parameters.get(*name) != Some(*value);
                let parameter = values.iter().find(differs).map(|(name, _)| name.clone());
                Err(MakeError::Fixed { parameter: parameter.unwrap_or_default() })
            }
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
    /// Each of the streams that a query reads has a handler of its own, made for the formats of all.
    Streams {
        /// The streams.
        streams: Vec<String>,
    },
    /// The plan of a query with state contradicts itself, which is a mistake of Crossdock's.
    Stages {
        /// The contradiction.
        problem: String,
    },
    /// It is no query with state.
    NotStateful,
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
            MakeError::Streams { streams } => {
                write!(f, "the query reads streams `{}`: it is planned for the formats of all", streams.join("`, `"))
            }
            MakeError::Stages { problem } => write!(f, "the query cannot run: {problem}"),
            MakeError::NotStateful => f.write_str("it is no query that keeps state"),
            MakeError::Input { handler, problem } => write!(f, "{handler}: {problem}"),
        }
    }
}

impl std::error::Error for MakeError {}
