//! `SNAPSHOT`: a query of what is now, the last record by key of a stream that has a [state](crate::KeyedState), and `THEN CHANGES` of
//! what changes from then on.

use crossdock_format::{FieldSpec, FieldType, Format};
use sqlparser::tokenizer::Token;

use crate::error::{Position, QueryError};
use crate::expr::{Constant, Expr, Node};
use crate::parse::{Clauses, ReadPolicy, ReadSnapshot, Reader, Select, Snapshot};
use crate::program::{Output, Program, Projection};
use crate::slow::SlowPolicy;
use crate::top_n::{TopNProgram, outputs_of};

/// The forms; ends every message about another.
const SNAPSHOTS: &str = "possible is: SELECT columns FROM stream SNAPSHOT [THEN CHANGES [DELTA]] [WHERE condition] [ORDER BY columns LIMIT n]";
/// The column that says what a change is.
pub(crate) const CHANGE: &str = "_change";
/// Room for the longest word in it.
pub(crate) const CHANGE_BYTES: u16 = 6;
/// The column that says which columns have changed, of a query with `DELTA`: a bit for each, the lowest of the first byte first.
const CHANGED: &str = "_changed";

/// A query with `SNAPSHOT`, planned for the rows of a stream's state: their last column says what a row is about.
#[derive(Clone, Debug)]
pub struct SnapshotProgram {
    /// The query for a row that the subscriber has not had: of the snapshot, or `enter`.
    pub enter: Program,
    /// The same for one that it has had, `update`.
    pub update: Program,
    /// The same for one that it has, and that is no more, `leave`.
    pub leave: Program,
    /// The records that it gives.
    pub snapshot: Snapshot,
    /// With `DELTA`: how its records are made.
    pub deltas: Option<DeltaProgram>,
    /// With `ORDER BY`: the rows that it gives. All others are programs of what is kept of a row then.
    pub top: Option<TopNProgram>,
    /// With `ON SLOW CONFLATE BY`: the columns of the key in its records.
    pub conflated_by: Option<Vec<usize>>,
}

/// The records of a query with `DELTA`. They have the columns of the query, those that have not changed being null, `_change`, and
/// `_changed`: the columns that are there.
#[derive(Clone, Debug)]
pub struct DeltaProgram {
    /// The query's rows, without what has changed.
    pub rows: Program,
    /// Which of their columns are of the key: these are always there.
    pub key: Vec<bool>,
    /// The records.
    pub output: Format,
}

impl SnapshotProgram {
    /// The program of the rows of the state: its condition is that of the query.
    #[must_use]
    pub fn source(&self) -> &Program {
        self.top.as_ref().map_or(&self.enter, |top| &top.keep)
    }

    /// The format of the records that it gives.
    #[must_use]
    pub fn output(&self) -> &Format {
        self.deltas.as_ref().map_or(&self.enter.output, |deltas| &deltas.output)
    }
}

impl Select {
    /// The records of a stream's state that it gives, if it is a query of one.
    #[must_use]
    pub fn snapshot(&self) -> Option<Snapshot> {
        self.clauses().snapshot.map(|read| read.snapshot)
    }

    /// An error at its word `SNAPSHOT`.
    #[must_use]
    pub fn snapshot_error(&self, message: impl Into<String>, hint: impl Into<String>) -> QueryError {
        let at = self.clauses().snapshot.and_then(|read| read.at);
        QueryError::new(message, at).hint(hint).over(self.sql())
    }

    /// Plans a query with `SNAPSHOT` for the rows of its stream's state. With `THEN CHANGES` its rows have a column more, `_change`.
    ///
    /// # Errors
    /// Those of [`Select::plan`]; the query makes a column `_change` itself.
    pub fn plan_snapshot(&self, rows: &Format) -> Result<SnapshotProgram, QueryError> {
        let snapshot = self.snapshot().unwrap_or(Snapshot::Once);
        let shown = shown(rows).map_err(|error| error.over(self.sql()))?;
        let program = fields_of(self.plan(&shown)?)?;
        let makes = vec![true; program.output.fields().len()];
        let Some(program) = program.narrowed(rows, &makes) else {
            debug_assert!(false, "the rows have all that is shown of them");
            return Err(QueryError::new("the query does not fit the state's rows", None).over(self.sql()));
        };
        let (top, program) = match self.plan_top_n((rows, &shown), &program)? {
            Some((top, of_kept)) => (Some(top), of_kept),
            None => (None, program),
        };
        let conflated_by = self.conflated_by(&shown, &program)?;
        if snapshot == Snapshot::Once {
            let (enter, update, leave) = (program.clone(), program.clone(), program);
            return Ok(SnapshotProgram { enter, update, leave, snapshot, deltas: None, top, conflated_by });
        }
        if program.output.field(CHANGE).is_some() {
            let message = format!("the query makes a column `{CHANGE}`, which SNAPSHOT THEN CHANGES makes");
            return Err(self.snapshot_error(message, format!("give yours another name: {CHANGE} AS change")));
        }
        let with = |word: &str| with_change(&program, word).map_err(|error| error.over(self.sql()));
        let deltas = match snapshot {
            Snapshot::ThenDeltas => Some(self.deltas(&program)?),
            Snapshot::Once | Snapshot::ThenChanges => None,
        };
        let (enter, update, leave) = (with("enter")?, with("update")?, with("leave")?);
        Ok(SnapshotProgram { enter, update, leave, snapshot, deltas, top, conflated_by })
    }
}

impl Select {
    /// The records of its clause `DELTA`, of rows that `program` makes.
    fn deltas(&self, program: &Program) -> Result<DeltaProgram, QueryError> {
        let Projection::Fields(outputs) = &program.projection else {
            return Err(self.snapshot_error("the query has no columns", SNAPSHOTS));
        };
        if program.output.field(CHANGED).is_some() {
            let message = format!("the query makes a column `{CHANGED}`, which DELTA makes");
            return Err(self.snapshot_error(message, format!("give yours another name: {CHANGED} AS changed")));
        }
        let is_of_key = |output: &Output| {
            column_of(output, program)
                .is_some_and(|name| self.state_key().iter().any(|key| name.eq_ignore_ascii_case(key)))
        };
        let key: Vec<bool> = outputs.iter().map(is_of_key).collect();
        if key.iter().filter(|is_of_key| **is_of_key).count() < self.state_key().len() {
            let message = "DELTA gives the columns that have changed: without the key it is not clear in what row";
            return Err(self.snapshot_error(message, format!("have in the list: {}", self.state_key().join(", "))));
        }
        let with_null = |(field, is_of_key): (&crossdock_format::Field, &bool)| {
            let spec = field.spec();
            FieldSpec { nullable: spec.nullable || !is_of_key && field.ty != FieldType::List, ..spec }
        };
        let mut specs: Vec<FieldSpec> = program.output.fields().iter().zip(&key).map(with_null).collect();
        specs.push(FieldSpec::new(CHANGE, FieldType::Char(CHANGE_BYTES)));
        specs.push(FieldSpec::new(CHANGED, FieldType::Bytes));
        let output = natural(specs).map_err(|error| error.over(self.sql()))?;
        Ok(DeltaProgram { rows: program.clone(), key, output })
    }

    /// The columns of the key in what `program` makes, if its clause is `ON SLOW CONFLATE BY` the key of the state, whose rows queries see
    /// as `shown`.
    fn conflated_by(&self, shown: &Format, program: &Program) -> Result<Option<Vec<usize>>, QueryError> {
        let Some(SlowPolicy::Conflate(by)) = self.on_slow() else { return Ok(None) };
        let named = fields_of(by.select.plan(shown)?)?;
        let named: Vec<&str> = outputs_of(&named).iter().filter_map(|output| column_of(output, &named)).collect();
        let (key, at) = (self.state_key(), self.conflate_at());
        let is_key = named.iter().all(|name| key.iter().any(|key| key.eq_ignore_ascii_case(name)))
            && key.iter().all(|key| named.iter().any(|name| name.eq_ignore_ascii_case(key)));
        if !is_key {
            let message = "CONFLATE gives the newest change of each row, and rows are those of the stream's key";
            let hint = format!("possible is: ON SLOW CONFLATE BY ({})", key.join(", "));
            return Err(QueryError::new(message, at).hint(hint).over(self.sql()));
        }
        let is =
            |output: &Output, key: &str| column_of(output, program).is_some_and(|name| name.eq_ignore_ascii_case(key));
        let columns = key.iter().map(|key| outputs_of(program).iter().position(|output| is(output, key)));
        let Some(columns) = columns.collect::<Option<Vec<usize>>>() else {
            let message = "CONFLATE gives the newest change of each row: without the key it is not clear of what row";
            let hint = format!("have in the list: {}", key.join(", "));
            return Err(QueryError::new(message, at).hint(hint).over(self.sql()));
        };
        Ok(Some(columns))
    }
}

/// The column of its input that an output of a program is, unchanged.
fn column_of<'p>(output: &Output, program: &'p Program) -> Option<&'p str> {
    program.input.fields().get(output.plain_field()?).map(|field| field.name.as_str())
}

/// The part of a state's rows that queries see.
fn shown(rows: &Format) -> Result<Format, QueryError> {
    let count = rows.fields().len().saturating_sub(1);
    let specs: Vec<FieldSpec> = rows.fields().iter().take(count).map(crossdock_format::Field::spec).collect();
    natural(specs)
}

pub(crate) fn natural(specs: Vec<FieldSpec>) -> Result<Format, QueryError> {
    Format::natural(specs).map_err(|error| QueryError::new(format!("the columns make no format: {error}"), None))
}

/// The same program with its columns one by one.
pub(crate) fn fields_of(program: Program) -> Result<Program, QueryError> {
    let Projection::All = program.projection else { return Ok(program) };
    let field = |(index, of): (usize, &crossdock_format::Field)| Output {
        name: of.name.clone(),
        expr: Expr { node: Node::Field(index), ty: of.ty, nullable: of.nullable },
    };
    let outputs = program.input.fields().iter().enumerate().map(field).collect();
    Ok(Program { projection: Projection::Fields(outputs), ..program })
}

/// The same program with this word in a column more.
fn with_change(program: &Program, word: &str) -> Result<Program, QueryError> {
    let ty = FieldType::Char(CHANGE_BYTES);
    let mut specs: Vec<FieldSpec> = program.output.fields().iter().map(crossdock_format::Field::spec).collect();
    specs.push(FieldSpec::new(CHANGE, ty));
    let mut outputs = match &program.projection {
        Projection::Fields(outputs) => outputs.clone(),
        Projection::All => Vec::new(),
    };
    outputs.push(Output { name: CHANGE.to_owned(), expr: Expr::constant(Constant::Text(word.to_owned()), ty) });
    Ok(Program { projection: Projection::Fields(outputs), output: natural(specs)?, ..program.clone() })
}

impl Reader {
    /// Whether `SNAPSHOT` is next, rather than another name of the stream.
    pub(crate) fn is_at_snapshot(&self) -> bool {
        self.is_word_at(0, "SNAPSHOT")
    }

    /// `SNAPSHOT [THEN CHANGES [DELTA]]`, if it is next; `before` is one that was read already.
    pub(crate) fn snapshot(&mut self, before: Option<ReadSnapshot>) -> Result<Option<ReadSnapshot>, QueryError> {
        let at = self.here();
        if !self.takes_words(&["SNAPSHOT"]) {
            return Ok(before);
        }
        if before.is_some() {
            return Err(QueryError::new("SNAPSHOT comes once", at).hint(SNAPSHOTS));
        }
        let snapshot = match self.takes_words(&["THEN"]) {
            true if self.takes_words(&["CHANGES"]) => match self.takes_words(&["DELTA"]) {
                true => Snapshot::ThenDeltas,
                false => Snapshot::ThenChanges,
            },
            true => return Err(self.not_next("CHANGES", SNAPSHOTS)),
            false => Snapshot::Once,
        };
        if let Token::Word(word) = &self.parser.peek_token_ref().token
            && word.quote_style.is_none()
            && word.value.eq_ignore_ascii_case("changes")
        {
            return Err(self.not_next("THEN CHANGES", SNAPSHOTS));
        }
        Ok(Some(ReadSnapshot { snapshot, at }))
    }
}

/// A snapshot and its changes are of use only as a whole: no clause may leave a record out, but for changes that a newer one of the same
/// row follows. `at` is the place of the clause that was read last.
pub(crate) fn check(clauses: &Clauses, at: Option<Position>) -> Result<(), QueryError> {
    use ReadPolicy::{DropOldest, Keep, Sample};
    let loses = matches!(clauses.slow, Some(DropOldest | Keep(_) | Sample(_)));
    if clauses.snapshot.is_none() || !loses { Ok(()) } else { Err(loses_rows(at)) }
}

/// The same of `MAX RATE`, which stands at `at`, once all clauses are read.
pub(crate) fn check_rate(clauses: &Clauses, at: Option<Position>) -> Result<(), QueryError> {
    let conflates = matches!(clauses.slow, Some(ReadPolicy::Conflate(_)));
    if clauses.snapshot.is_none() || clauses.rate.is_none() || conflates { Ok(()) } else { Err(loses_rows(at)) }
}

fn loses_rows(at: Option<Position>) -> QueryError {
    let message = "SNAPSHOT gives every record: another that is left out would make the subscriber's table wrong";
    QueryError::new(message, at).hint(
        "possible beside SNAPSHOT are: ON SLOW BLOCK, which holds without it as well, DISCONNECT, and CONFLATE BY (the stream's key), \
         that with MAX RATE n PER SECOND [BY the key] or without",
    )
}
