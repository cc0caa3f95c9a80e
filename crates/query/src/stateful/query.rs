//! A query of any kind, and one with state: read once, planned for the formats of its streams.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use crossdock_format::Format;

use super::latest::{self, KeyedState};
use super::plan::{Planner, plan};
use super::program::{Port, StatefulProgram};
use super::read::{Changes, Rows, Tree, has_state, trees};
use super::rows;
use super::table::{self, NamedTable, ReferenceTable};
use crate::bind;
use crate::error::{Position, QueryError};
use crate::parse::{Clause, Clauses, Named, Reader, Select, parse_subscription};
use crate::program::Program;
use crate::slow;
use crate::tokens::{Form, tokens};
use crate::view::View;

/// A query.
#[derive(Clone, Debug)]
pub enum Query {
    /// Of one stream, whose records pass one by one.
    Select(Select),
    /// With joins, groups, rows before, or several streams.
    Stateful(StatefulQuery),
}

/// A query with state that was read, but knows no format yet.
#[derive(Clone, Debug)]
pub struct StatefulQuery {
    sql: String,
    tree: Arc<Tree>,
    changes: Option<Changes>,
    clauses: Clauses,
    parameters: Vec<(String, Option<Position>)>,
    streams: Vec<StreamName>,
    null_for_errors: bool,
    /// The reference tables among the names of FROM.
    tables: Vec<NamedTable>,
    /// The views that streams are read through.
    views: BTreeMap<String, View>,
    /// Where it is the state of a stream, rather than a text.
    state: Option<Arc<KeyedState>>,
}

/// A stream as the query names it, and its spelling.
#[derive(Clone, Debug)]
struct StreamName {
    written: String,
    is_quoted: bool,
    at: Option<Position>,
    spelt: String,
    /// The stream that is read in its place, whatever streams there are.
    instead: Option<String>,
}

impl StreamName {
    /// The stream that is read.
    fn stream(&self) -> &String {
        self.instead.as_ref().unwrap_or(&self.spelt)
    }
}

/// Reads a query of any kind, with the clauses of a subscription if it has some: one stream without state stays what
/// [`parse_subscription`] gives; one with `GROUP BY`, aggregates, `OVER`, `JOIN`, `UNION ALL`, `WITH` or a query within it has
/// state.
///
/// # Errors
/// Anything else is refused with its place and what is possible.
pub fn parse_query(sql: &str) -> Result<Query, QueryError> {
    if !has_state(&tokens(sql).map_err(|error| error.over(sql))?) {
        return parse_subscription(sql).map(Query::Select);
    }
    stateful(sql).map(Query::Stateful).map_err(|error| error.over(sql))
}

fn stateful(sql: &str) -> Result<StatefulQuery, QueryError> {
    let mut reader = Reader::new(sql, Form::Stateful)?;
    let tree = reader.tree()?;
    let changes = reader.changes();
    let clauses = reader.clauses(None)?;
    if changes.is_some() {
        slow::check_changes(&clauses)?;
    }
    if let Some(snapshot) = clauses.snapshot {
        let message =
            "SNAPSHOT is of one stream's own records: a query with joins, groups, OVER or several streams has none";
        return Err(QueryError::new(message, snapshot.at)
            .hint("possible is: SELECT columns FROM stream SNAPSHOT [THEN CHANGES] [WHERE condition]"));
    }
    reader.ends(Clause::Where)?;
    let mut parameters = std::mem::take(&mut reader.parameters);
    if let Some(end) = clauses.at {
        // Those of the clauses are not the query's.
        parameters.retain(|(_, at)| at.is_none_or(|at| end.is_behind(at)));
    }
    let mut query = StatefulQuery {
        sql: sql.to_owned(),
        tree: Arc::new(tree),
        changes,
        clauses,
        parameters,
        streams: Vec::new(),
        null_for_errors: false,
        tables: Vec::new(),
        views: BTreeMap::new(),
        state: None,
    };
    query.streams = stream_names(&query.tree);
    Ok(query)
}

/// The streams of a query, each name once, in the order in which they stand.
fn stream_names(tree: &Arc<Tree>) -> Vec<StreamName> {
    let mut names: Vec<StreamName> = Vec::new();
    for tree in trees(tree) {
        for joined in tree.selects.iter().flat_map(|select| &select.from) {
            if let Rows::Stream { name, is_quoted } = &joined.rows
                && !names.iter().any(|known| known.written == *name && known.is_quoted == *is_quoted)
            {
                let (written, spelt) = (name.clone(), name.clone());
                names.push(StreamName { written, is_quoted: *is_quoted, at: joined.at, spelt, instead: None });
            }
        }
    }
    names.sort_by_key(|name| name.at.map(|at| (at.line, at.column)));
    names
}

impl StatefulQuery {
    /// The state of a stream: what makes the rows that queries with `SNAPSHOT` read.
    #[must_use]
    pub fn of_state(state: KeyedState) -> StatefulQuery {
        let (written, spelt) = (state.stream.clone(), state.stream.clone());
        StatefulQuery {
            sql: state.text(),
            tree: Arc::new(Tree { selects: Vec::new() }),
            changes: None,
            clauses: Clauses::default(),
            parameters: Vec::new(),
            streams: vec![StreamName { written, is_quoted: true, at: None, spelt, instead: None }],
            null_for_errors: false,
            tables: Vec::new(),
            views: BTreeMap::new(),
            state: Some(Arc::new(state)),
        }
    }

    /// The text of the query.
    #[must_use]
    pub fn sql(&self) -> &str {
        &self.sql
    }

    /// The streams that it reads, each once: as written, or with their spelling once that was [found
    /// out](StatefulQuery::find_streams).
    #[must_use]
    pub fn streams(&self) -> Vec<&str> {
        let mut streams: Vec<&str> = Vec::with_capacity(self.streams.len());
        for name in &self.streams {
            if !streams.contains(&name.stream().as_str()) {
                streams.push(name.stream());
            }
        }
        streams
    }

    /// The same query, in which the names of these reference tables mean them: they are none of its [streams](StatefulQuery::streams).
    ///
    /// # Errors
    /// A table stands where it has no rows to begin with: alone or first in FROM, in a FULL or ASOF JOIN. Several differ from a name in
    /// case alone.
    pub fn with_tables<'t>(
        mut self,
        tables: impl IntoIterator<Item = &'t ReferenceTable>,
    ) -> Result<StatefulQuery, QueryError> {
        let tables: Vec<&ReferenceTable> = tables.into_iter().collect();
        if tables.is_empty() || self.state.is_some() {
            return Ok(self);
        }
        let mut streams = Vec::with_capacity(self.streams.len());
        for name in std::mem::take(&mut self.streams) {
            let named = Named { name: &name.written, is_quoted: name.is_quoted, at: name.at };
            match table::found(&named, &tables).map_err(|error| error.over(&self.sql))? {
                Some(table) => {
                    let (written, table) = (name.written.clone(), table.clone());
                    self.tables.push(NamedTable { written, is_quoted: name.is_quoted, table });
                }
                None => streams.push(name),
            }
        }
        self.streams = streams;
        table::check_places(&self.tree, &self.tables).map_err(|error| error.over(&self.sql))?;
        Ok(self)
    }

    /// The names of the reference tables that it looks rows up in, each once.
    #[must_use]
    pub fn tables(&self) -> Vec<&str> {
        let mut tables: Vec<&str> = self.tables.iter().map(|named| named.table.name.as_str()).collect();
        tables.sort_unstable();
        tables.dedup();
        tables
    }

    /// Finds its streams among the known ones, by the rule of [`Select::find_stream`].
    ///
    /// # Errors
    /// Several streams differ from a name in case alone.
    pub fn find_streams<'n>(&mut self, known: impl IntoIterator<Item = &'n str>) -> Result<(), QueryError> {
        let known: Vec<&str> = known.into_iter().collect();
        for name in self.streams.iter_mut().filter(|name| name.instead.is_none()) {
            let named = Named { name: &name.written, is_quoted: name.is_quoted, at: name.at };
            if let Some(spelt) = named.found(known.iter().copied()).map_err(|error| error.over(&self.sql))? {
                spelt.clone_into(&mut name.spelt);
            }
        }
        Ok(())
    }

    /// The same query over other streams in place of some of its own, by their spelling: over what [reductions](super::reduction) make.
    ///
    /// # Errors
    /// Several of these differ from a name in case alone.
    pub fn reading(mut self, instead: &BTreeMap<String, String>) -> Result<StatefulQuery, QueryError> {
        for name in &mut self.streams {
            let named = Named { name: &name.written, is_quoted: name.is_quoted, at: name.at };
            let found = named.found(instead.keys().map(String::as_str)).map_err(|error| error.over(&self.sql))?;
            if let Some(other) = instead.get(found.unwrap_or(&name.written)) {
                name.instead = Some(other.clone());
            }
        }
        Ok(self)
    }

    /// The error for one of its streams that is not there: see [`Select::unknown_stream`].
    #[must_use]
    pub fn unknown_stream(&self, stream: &str, known: &[&str]) -> QueryError {
        let name = self.streams.iter().find(|name| name.stream() == stream);
        let at = name.and_then(|name| name.at);
        Named { name: stream, is_quoted: false, at }.unknown(known).over(&self.sql)
    }

    /// The names of the query's parameters, without the `$`, each once, and where it first stands.
    #[must_use]
    pub fn parameters(&self) -> &[(String, Option<Position>)] {
        &self.parameters
    }

    /// Whether `values` has a value for each of the query's parameters, and no others.
    ///
    /// # Errors
    /// The first that is missing, with its place in the text, or that no parameter is called by.
    pub fn check_values(&self, values: &BTreeMap<String, String>) -> Result<(), QueryError> {
        bind::check_names(&self.parameters, values).map_err(|error| error.over(&self.sql))
    }

    /// The same query with null in place of row errors: see [`Select::with_null_for_errors`]. Arguments of aggregates and keys are null
    /// too where they have one.
    #[must_use]
    pub fn with_null_for_errors(self) -> StatefulQuery {
        StatefulQuery { null_for_errors: true, ..self }
    }

    /// The same query, which sees of `stream`, or of a table of that name, only what `view` leaves, wherever it reads it. The last view
    /// of a stream counts.
    #[must_use]
    pub fn through(mut self, stream: &str, view: View) -> StatefulQuery {
        self.views.insert(stream.to_owned(), view);
        self
    }

    /// The view that it reads a stream through, if there is one.
    #[must_use]
    pub fn view(&self, stream: &str) -> Option<&View> {
        self.views.get(stream)
    }

    /// All records of `stream`, which has the query's result, with the query's clauses `ON SLOW` and `MAX RATE`: their columns are those
    /// of the result.
    #[must_use]
    pub fn result_select(&self, stream: &str) -> Select {
        Select::of_result(&self.sql, stream, self.clauses.clone())
    }

    /// Its text without the clauses `ON SLOW` and `MAX RATE`, which are a subscription's: queries that differ in them only have the same rows.
    #[must_use]
    pub fn own_sql(&self) -> Cow<'_, str> {
        let Clauses { at: Some(first), state, .. } = &self.clauses else { return Cow::Borrowed(&self.sql) };
        let own = first.text_before(&self.sql);
        match state.filter(|state| state.at.is_some_and(|at| at.is_behind(*first))) {
            Some(state) => Cow::Owned(format!("{own}MAX STATE {} BYTES", state.bytes)),
            None => Cow::Borrowed(own.trim_end()),
        }
    }

    /// Whether it has the clause `ON SLOW` or `MAX RATE`.
    #[must_use]
    pub fn has_clauses(&self) -> bool {
        self.clauses.at.is_some()
    }

    /// The refusal of the clauses `ON SLOW` and `MAX RATE`, in a query that is not a subscription's.
    ///
    /// # Errors
    /// It has one of them; with its place in the text.
    pub fn check_no_clauses(&self) -> Result<(), QueryError> {
        self.clauses.refused().map_or(Ok(()), |error| Err(error.over(&self.sql)))
    }

    /// Settles names and types against the format of each stream, which decides the types of the rows, and plans the stages.
    ///
    /// # Errors
    /// A stream without a format, those of [`StatefulQuery::check_values`], an unknown column, a mismatch of types, a join without
    /// bounds, an expression that is not possible; with its place in the text.
    pub fn plan(
        &self,
        formats: &[(&str, &Format)],
        values: &BTreeMap<String, String>,
    ) -> Result<StatefulProgram, QueryError> {
        self.check_values(values)?;
        if let Some(state) = &self.state {
            return latest::plan(state, formats);
        }
        let names: Vec<String> = self.parameters.iter().map(|(name, _)| name.clone()).collect();
        let spelt = |name: &str, is_quoted: bool| {
            let found = self.streams.iter().find(|known| known.written == name && known.is_quoted == is_quoted);
            found.map_or_else(
                || (name.to_owned(), name.to_owned()),
                |known| (known.spelt.clone(), known.stream().clone()),
            )
        };
        let planner = Planner::new(&self.sql, names, values, self.null_for_errors, &spelt, formats, &self.views);
        let planner = planner.with_tables(&self.tables);
        let planned = plan(planner, &self.tree, self.changes.as_ref()).map_err(|error| error.over(&self.sql))?;
        Ok(StatefulProgram { max_state_bytes: self.max_state_bytes(), ..planned })
    }

    /// The most bytes that its state may take: those of its clause `MAX STATE`, or [`MAX_STATE_BYTES`](crate::MAX_STATE_BYTES); of the state
    /// of a stream its own bound.
    #[must_use]
    pub fn max_state_bytes(&self) -> usize {
        match &self.state {
            Some(state) => usize::try_from(state.max_bytes).unwrap_or(usize::MAX),
            None => self.clauses.max_state_bytes(),
        }
    }

    /// From records of `stream` in this format to rows of `program`: a program for each place where the query reads the stream. Each makes
    /// exactly the rows of its port. Columns of another version of the format are found by name and cast; one that is missing is null
    /// where it may be.
    ///
    /// # Errors
    /// A column that is missing or cannot be cast; a parameter without a value.
    pub fn readers(
        &self,
        program: &StatefulProgram,
        stream: &str,
        format: &Format,
        values: &BTreeMap<String, String>,
    ) -> Result<Vec<(Port, Program)>, QueryError> {
        self.check_values(values)?;
        let view = self.views.get(stream);
        let sources = program.sources.iter().filter(|source| source.stream == stream);
        let readers = sources.map(|source| {
            let reader = rows::reader(&source.program, view, format)?;
            Ok((source.port, if values.is_empty() { reader } else { reader.with_values(values)? }))
        });
        readers.collect::<Result<_, QueryError>>().map_err(|error| error.over(&self.sql))
    }
}
