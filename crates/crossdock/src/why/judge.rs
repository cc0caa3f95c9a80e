//! The judgement on a record by a subscription's query, condition by condition.

use std::collections::BTreeMap;

use crossdock_format::{Format, Record, RecordBuilder};
use crossdock_query::{
    EvalError, Interpreter, OperatorKind, PlanOperator, Port, Program, Query, QueryError, ReferenceTable, SlowPolicy,
    Snapshot, parse_query,
};

use crate::failure::{Failure, Outcome};

/// The judgement on a record by a query.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Judgement {
    /// This condition is not TRUE: FALSE, or null.
    Filtered { condition: String, is_null: bool },
    /// An expression has no value for it.
    RowError { expression: String, error: String },
    /// A record is made of it.
    Meets,
    /// The same, unless its subscriber was slow when it came: this condition of `KEEP WHERE` is not TRUE.
    Unkept { condition: String, is_null: bool },
    /// It goes into the query's state, at this step: a join, a group, a window; or at several.
    Taken { step: String },
    /// The query does not fit its format, or is not known in full.
    Unknown(String),
}

/// A query that judges the records of one of its streams.
pub(super) struct Judge {
    query: Query,
    stream: String,
    /// The formats of the other streams.
    formats: BTreeMap<String, Format>,
    /// The programs for records of the format that came last, or why there are none.
    planned: Option<(Format, Result<Planned, String>)>,
    interpreter: Interpreter,
}

/// A query planned for one format of a stream.
struct Planned {
    /// A program for each place where the query reads the stream, and the step with state that its rows go to, if there is one.
    readers: Vec<(Program, String)>,
    /// The condition of `KEEP WHERE`.
    keeps: Option<Program>,
    /// Whether it has one step with state, to which each record goes once.
    is_one_step: bool,
}

impl Judge {
    /// A judge of records of a stream, by a subscription's query; `formats` has the latest format of each known stream.
    ///
    /// # Errors
    /// The query does not read the stream.
    pub(super) fn new(
        sql: &str,
        stream: &str,
        formats: BTreeMap<String, Format>,
        tables: &[ReferenceTable],
    ) -> Outcome<Judge> {
        let query = parse_query(sql).map_err(|error| {
            Failure::failed(format!("the subscription's query cannot be read: {error}"))
                .hint("the daemon may be of another version than this program; compare `crossdock --version`")
        })?;
        let mut query = match query {
            Query::Stateful(query) => Query::Stateful(query.with_tables(tables).map_err(Failure::usage)?),
            query @ Query::Select(_) => query,
        };
        let known = || formats.keys().map(String::as_str).chain((!formats.contains_key(stream)).then_some(stream));
        let reads = match &mut query {
            Query::Select(select) => select.find_stream(known()).map(|()| vec![select.stream().to_owned()]),
            Query::Stateful(query) => {
                query.find_streams(known()).map(|()| query.streams().into_iter().map(str::to_owned).collect())
            }
        }
        .map_err(Failure::usage)?;
        if !reads.iter().any(|name| name == stream) {
            return Err(Failure::usage(format!("the subscription does not read `{stream}`"))
                .hint(format!("it reads {}: {sql}", reads.join(", "))));
        }
        Ok(Judge { query, stream: stream.to_owned(), formats, planned: None, interpreter: Interpreter::new() })
    }

    /// The judgement on a record.
    pub(super) fn judgement(&mut self, record: &Record<'_>) -> Judgement {
        let format = record.format();
        if self.planned.as_ref().is_none_or(|(known, _)| known != format) {
            self.planned = Some((format.clone(), self.plan(format)));
        }
        let Planned { readers, keeps, .. } = match &self.planned {
            Some((_, Ok(planned))) => planned,
            Some((_, Err(error))) => return Judgement::Unknown(error.clone()),
            None => return Judgement::Unknown("the query has no plan".to_owned()),
        };
        let (mut steps, mut first) = (Vec::new(), None);
        for (program, step) in readers {
            match of_program(&mut self.interpreter, program, record) {
                Judgement::Meets => steps.push(step.as_str()),
                other => first = first.or(Some(other)),
            }
        }
        match (&self.query, first) {
            (Query::Stateful(_), _) if !steps.is_empty() => Judgement::Taken { step: steps.join("; ") },
            (_, Some(judgement)) => judgement,
            (Query::Select(select), None) if select.top_n().is_some() => Judgement::Unknown(
                "it meets the condition; whether it is among the first rows is not looked at".to_owned(),
            ),
            (Query::Select(_), None) => match keeps.as_ref().map(|keeps| is_kept(&mut self.interpreter, keeps, record))
            {
                Some(Err(unkept)) => unkept,
                Some(Ok(())) | None => Judgement::Meets,
            },
            (Query::Stateful(_), None) => {
                Judgement::Unknown("the query does not read records of this format".to_owned())
            }
        }
    }

    /// Whether the query, as it was planned last, has one step with state, to which each record goes once.
    pub(super) fn is_one_step(&self) -> bool {
        self.planned.iter().any(|(_, planned)| planned.as_ref().is_ok_and(|planned| planned.is_one_step))
    }

    /// Whether the query keeps state.
    pub(super) fn keeps_state(&self) -> bool {
        matches!(self.query, Query::Stateful(_))
    }

    /// The meaning of judgements for a query with `SNAPSHOT THEN CHANGES`, where they say less.
    pub(super) fn note(&self) -> Option<&'static str> {
        let Query::Select(select) = &self.query else { return None };
        match select.snapshot()? {
            Snapshot::Once => None,
            Snapshot::ThenChanges => {
                Some("a record that is filtered brings a `leave` where the one before it of its key met the query")
            }
            Snapshot::ThenDeltas => Some(
                "a record that is filtered brings a `leave` where the one before it of its key met the query; with DELTA one that \
                 changes no listed column brings nothing",
            ),
        }
    }

    /// The query planned for a format.
    fn plan(&self, format: &Format) -> Result<Planned, String> {
        let in_words = |error: QueryError| error.to_string();
        let parameters = match &self.query {
            Query::Select(select) => select.parameters(),
            Query::Stateful(query) => query.parameters(),
        };
        if let Some((name, _)) = parameters.first() {
            return Err(format!("the value of the query's parameter ${name} is not known here"));
        }
        match &self.query {
            Query::Select(select) => {
                let keeps = select.on_slow().filter(|policy| matches!(policy, SlowPolicy::Keep(_)));
                let keeps = keeps.as_ref().and_then(SlowPolicy::reads).map(|condition| condition.plan(format));
                let program = select.plan(format).map_err(in_words)?;
                let keeps = keeps.transpose().map_err(in_words)?;
                Ok(Planned { readers: vec![(program, String::new())], keeps, is_one_step: false })
            }
            Query::Stateful(query) => {
                let mut formats: Vec<(&str, &Format)> =
                    self.formats.iter().map(|(name, format)| (name.as_str(), format)).collect();
                formats.retain(|(name, _)| *name != self.stream);
                formats.push((&self.stream, format));
                let values = BTreeMap::new();
                let program = query.plan(&formats, &values).map_err(in_words)?;
                let readers = query.readers(&program, &self.stream, format, &values).map_err(in_words)?;
                let operators = program.operators();
                let step = |port: Port| {
                    let place = program.sources.len() + port.stage;
                    let is_it = |of: &&PlanOperator| of.kind == OperatorKind::Stage && of.place == place;
                    operators.iter().find(is_it).map_or_else(String::new, |of| of.text.clone())
                };
                let readers = readers.into_iter().map(|(port, reader)| (reader, step(port))).collect();
                let is_one_step = program.stages.len() == 1 && program.sources.len() == query.streams().len();
                Ok(Planned { readers, keeps: None, is_one_step })
            }
        }
    }
}

/// Whether a record is kept while its subscriber is slow; else the condition that is not TRUE. One that has a row error is null.
fn is_kept(interpreter: &mut Interpreter, keeps: &Program, record: &Record<'_>) -> Result<(), Judgement> {
    for condition in &keeps.filter {
        let value = interpreter.holds(condition, record).unwrap_or(None);
        if value != Some(true) {
            let condition = condition.sql(&keeps.input).to_string();
            return Err(Judgement::Unkept { condition, is_null: value.is_none() });
        }
    }
    Ok(())
}

/// The judgement on a record by a program: its conditions in order, up to the first that is not TRUE, then its columns.
fn of_program(interpreter: &mut Interpreter, program: &Program, record: &Record<'_>) -> Judgement {
    for condition in &program.filter {
        let text = || condition.sql(&program.input).to_string();
        match interpreter.holds(condition, record) {
            Ok(Some(true)) => {}
            Ok(other) => return Judgement::Filtered { condition: text(), is_null: other.is_none() },
            Err(error) => return Judgement::RowError { expression: text(), error: error.to_string() },
        }
    }
    match interpreter.project(program, record, &mut RecordBuilder::new(&program.output)) {
        Ok(()) => Judgement::Meets,
        Err(error) => {
            let expression = column_of(interpreter, program, record, &error);
            Judgement::RowError { expression, error: error.to_string() }
        }
    }
}

/// The column that has this error.
fn column_of(interpreter: &mut Interpreter, program: &Program, record: &Record<'_>, error: &EvalError) -> String {
    let crossdock_query::Projection::Fields(outputs) = &program.projection else { return "the columns".to_owned() };
    let failing = outputs.iter().find(|output| interpreter.value(&output.expr, record).as_ref().err() == Some(error));
    failing.map_or_else(|| "a column".to_owned(), |output| output.expr.sql(&program.input).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judgement(sql: &str, schema: &str, set: impl Fn(&mut RecordBuilder)) -> Judgement {
        let format = Format::parse_schema(schema).unwrap();
        let mut row = RecordBuilder::new(&format);
        set(&mut row);
        let bytes = row.finish().unwrap().to_vec();
        let others = BTreeMap::from([("w".to_owned(), Format::parse_schema("origin string\nat timestamp").unwrap())]);
        let mut judge = Judge::new(sql, "a", others, &[]).map_err(|failure| failure.text()).unwrap();
        judge.judgement(&Record::check(&format, &bytes).unwrap())
    }

    fn filtered(condition: &str, is_null: bool) -> Judgement {
        Judgement::Filtered { condition: condition.to_owned(), is_null }
    }

    #[test]
    fn the_first_condition_that_is_not_true_is_named() {
        let of = |x: i64, y: Option<i64>| {
            judgement("SELECT x FROM a WHERE x > 1 AND y < 5 AND x < 9", "x i64\ny i64 null", |row| {
                row.set_i64(0, x).unwrap();
                y.iter().for_each(|y| row.set_i64(1, *y).unwrap());
            })
        };
        assert_eq!(of(1, Some(1)), filtered("x > 1", false));
        assert_eq!(of(2, None), filtered("y < 5", true));
        assert_eq!(of(2, Some(7)), filtered("y < 5", false));
        assert_eq!(of(9, Some(1)), filtered("x < 9", false));
        assert_eq!(of(3, Some(1)), Judgement::Meets);
    }

    #[test]
    fn an_expression_that_fails_is_named() {
        let of = |sql: &str| judgement(sql, "x i64", |row| row.set_i64(0, 0).unwrap());
        let Judgement::RowError { expression, error } = of("SELECT x, 7 / x AS part FROM a") else {
            panic!("a row error")
        };
        assert!(expression == "7 / x" && error.contains("division by zero"), "{expression}: {error}");
        let Judgement::RowError { expression, .. } = of("SELECT x FROM a WHERE 1 / x > 2") else {
            panic!("a row error")
        };
        assert_eq!(expression, "1 / x > 2");
    }

    #[test]
    fn records_of_queries_with_state_are_taken_or_filtered() {
        let of = |sql: &str, text: &str| {
            judgement(sql, "origin string\nat timestamp", |row| {
                row.set_text(0, text).unwrap();
                row.set_timestamp(1, 0).unwrap();
            })
        };
        let grouped = "SELECT origin, count(*) FROM a WHERE origin <> 'JFK' GROUP BY origin";
        let taken = |judgement: Judgement, begin: &str| {
            let Judgement::Taken { step } = judgement else { panic!("{judgement:?}") };
            assert!(step.starts_with(begin), "{step}");
        };
        taken(of(grouped, "LGA"), "group by origin");
        assert_eq!(of(grouped, "JFK"), filtered("origin <> 'JFK'", false));
        let joined =
            "SELECT a.origin FROM a JOIN w ON a.origin = w.origin AND w.at BETWEEN a.at - INTERVAL '1' HOUR AND a.at";
        taken(of(joined, "JFK"), "join ");
    }

    #[test]
    fn a_record_that_keep_where_leaves_out_is_named_with_the_condition() {
        let of = |x: i64, y: Option<i64>| {
            let sql = "SELECT x FROM a WHERE x > 1 ON SLOW KEEP WHERE x > 2 AND 6 / y > 1";
            judgement(sql, "x i64\ny i64 null", |row| {
                row.set_i64(0, x).unwrap();
                y.iter().for_each(|y| row.set_i64(1, *y).unwrap());
            })
        };
        let unkept = |condition: &str, is_null| Judgement::Unkept { condition: condition.to_owned(), is_null };
        assert_eq!(of(1, Some(1)), filtered("x > 1", false));
        assert_eq!(of(2, Some(1)), unkept("x > 2", false));
        // A row error is null, as if `TRY` were around the condition.
        let divides = "TRY(6 / y > 1)";
        assert_eq!(of(3, Some(6)), unkept(divides, false));
        assert_eq!([of(3, None), of(3, Some(0))], [unkept(divides, true), unkept(divides, true)]);
        assert_eq!(of(3, Some(1)), Judgement::Meets);
    }

    #[test]
    fn another_stream_and_unknown_columns_are_said() {
        let failure = Judge::new("SELECT * FROM b", "a", BTreeMap::new(), &[]).err().unwrap();
        assert!(failure.text().contains("does not read `a`"), "{}", failure.text());
        let judgement = judgement("SELECT y FROM a", "x i64", |row| row.set_i64(0, 0).unwrap());
        assert!(matches!(&judgement, Judgement::Unknown(why) if why.contains("y")), "{judgement:?}");
    }
}
