//! Queries with state in SQL, over rows written as text.

use std::collections::BTreeMap;
use std::sync::Arc;

use crossdock_engine::{
    Handler, HandlerCounters, ParameterValues, SavedStateError, SelectHandler, SharedTable, StatefulHandler,
    TableOrder, TableRows, Tables, Verdict, seal_state,
};
use crossdock_format::{FieldType, Format, RecordBuilder, Value};
use crossdock_mailbox::Selection;
use crossdock_query::{Program, Query, ReferenceTable, StatefulProgram, StatefulQuery, parse_query, reduction};

use super::show;
use crate::support;

/// The handlers of one query, a stream each, and the rows that leave them.
pub(crate) struct SqlRun {
    handlers: Vec<(String, Format, StatefulHandler)>,
    /// For each of them what runs in front of it, where the query was cut.
    reductions: Vec<Option<Program>>,
    turn: Option<usize>,
    output: Format,
    pub(crate) rows: Vec<String>,
    /// The same rows, as records.
    pub(crate) made: Vec<Vec<u8>>,
}

/// The plan of a query over streams with these schemas; the refusal is an error.
pub(crate) fn planned(sql: &str, streams: &[(&str, &str)]) -> Result<StatefulProgram, String> {
    planned_with(sql, streams, &Tables::default()).map(|(_, program)| program)
}

/// The same of a query that may look rows up in tables.
pub(crate) fn planned_with(
    sql: &str,
    streams: &[(&str, &str)],
    tables: &Tables,
) -> Result<(StatefulQuery, StatefulProgram), String> {
    let formats: Vec<(&str, Format)> =
        streams.iter().map(|(name, schema)| (*name, Format::parse_schema(schema).unwrap())).collect();
    let formats: Vec<(&str, &Format)> = formats.iter().map(|(name, format)| (*name, format)).collect();
    let Ok(Query::Stateful(query)) = parse_query(sql) else { panic!("{sql} is no query with state") };
    let query = query.with_tables(tables.known()).map_err(|error| error.to_string())?;
    let program = query.plan(&formats, &BTreeMap::new()).map_err(|error| error.to_string())?;
    Ok((query, program))
}

/// A reference table with the key of these columns.
pub(crate) fn table(name: &str, schema: &str, key: &[&str], records: &[Vec<u8>]) -> SharedTable {
    let format = Format::parse_schema(schema).unwrap();
    let key = key.iter().map(|column| format.field(column).unwrap()).collect();
    let table = ReferenceTable { name: name.to_owned(), format, key };
    let rows = TableRows::new(&table, records.concat(), 0).unwrap();
    SharedTable::new(table, rows)
}

/// Records of a schema, their columns written as text and separated by `|`.
pub(crate) fn records(schema: &str, rows: &[&str]) -> Vec<Vec<u8>> {
    let format = Format::parse_schema(schema).unwrap();
    let mut builder = RecordBuilder::new(&format);
    rows.iter().map(|row| record(&format, &mut builder, row)).collect()
}

impl SqlRun {
    pub(crate) fn new(sql: &str, streams: &[(&str, &str)]) -> SqlRun {
        SqlRun::bounded(sql, streams, usize::MAX)
    }

    /// With this bound of the state, in bytes.
    pub(crate) fn bounded(sql: &str, streams: &[(&str, &str)], max_state_bytes: usize) -> SqlRun {
        SqlRun::over(sql, streams, &Tables::default(), max_state_bytes)
    }

    /// With these reference tables.
    pub(crate) fn with_tables(sql: &str, streams: &[(&str, &str)], tables: &Tables) -> SqlRun {
        SqlRun::over(sql, streams, tables, usize::MAX)
    }

    fn over(sql: &str, streams: &[(&str, &str)], tables: &Tables, max_state_bytes: usize) -> SqlRun {
        let planned = planned_with(sql, streams, tables);
        let (query, program) = planned.unwrap_or_else(|error| panic!("{error}"));
        let program = Arc::new(StatefulProgram { max_state_bytes, ..program });
        let handler = |(name, schema): &(&str, &str)| {
            let format = Format::parse_schema(schema).unwrap();
            let readers = query.readers(&program, name, &format, &BTreeMap::new()).unwrap();
            ((*name).to_owned(), format, StatefulHandler::with_tables(Arc::clone(&program), readers, tables).unwrap())
        };
        let handlers: Vec<_> = streams.iter().map(handler).collect();
        SqlRun::of(handlers, vec![None; streams.len()], &program)
    }

    fn of(
        handlers: Vec<(String, Format, StatefulHandler)>,
        reductions: Vec<Option<Program>>,
        program: &StatefulProgram,
    ) -> SqlRun {
        let output = program.output().clone();
        SqlRun { handlers, reductions, turn: None, output, rows: Vec::new(), made: Vec::new() }
    }

    /// The same query, cut: with a reduction in front of each stream that can have one.
    pub(crate) fn reduced(sql: &str, streams: &[(&str, &str)], tables: &Tables) -> SqlRun {
        let planned = planned_with(sql, streams, tables);
        let (query, program) = planned.unwrap_or_else(|error| panic!("{error}"));
        let (mut reductions, mut formats, mut instead) = (Vec::new(), Vec::new(), BTreeMap::new());
        for (name, schema) in streams {
            let format = Format::parse_schema(schema).unwrap();
            let reduced = reduction(&query.readers(&program, name, &format, &BTreeMap::new()).unwrap());
            let named = reduced.as_ref().map(|_| format!("part of {name}"));
            instead.extend(named.iter().map(|named| ((*name).to_owned(), named.clone())));
            let format = reduced.as_ref().map_or(format, |reduced| reduced.output.clone());
            formats.push((named.unwrap_or_else(|| (*name).to_owned()), format));
            reductions.push(reduced);
        }
        let rest = query.reading(&instead).unwrap();
        let of_plan: Vec<(&str, &Format)> = formats.iter().map(|(name, format)| (name.as_str(), format)).collect();
        // The text may name columns that the plan does without; such a query is not cut.
        let Ok(program) = rest.plan(&of_plan, &BTreeMap::new()) else {
            return SqlRun::with_tables(sql, streams, tables);
        };
        let program = Arc::new(StatefulProgram { max_state_bytes: usize::MAX, ..program });
        let handler = |((name, _), (part, format)): (&(&str, &str), &(String, Format))| {
            let readers = rest.readers(&program, part, format, &BTreeMap::new()).unwrap();
            let handler = StatefulHandler::with_tables(Arc::clone(&program), readers, tables).unwrap();
            ((*name).to_owned(), format.clone(), handler)
        };
        SqlRun::of(streams.iter().zip(&formats).map(handler).collect(), reductions, &program)
    }

    /// Gives the state to the handler of a stream, and returns its place.
    fn turn_to(&mut self, stream: &str) -> usize {
        let next = self.handlers.iter().position(|(name, ..)| name == stream).unwrap();
        if let Some(before) = self.turn.replace(next).filter(|before| *before != next) {
            let state = self.handlers[before].2.hand_over().unwrap();
            self.handlers[next].2.take_over(state).unwrap();
        }
        next
    }

    /// A stream ends, and all that is due with that is done.
    pub(crate) fn end(&mut self, stream: &str) {
        self.begin_end(stream);
        self.finish();
    }

    /// A stream ends, and what is due with that is yet to be done.
    pub(crate) fn begin_end(&mut self, stream: &str) {
        let next = self.turn_to(stream);
        self.handlers[next].2.end_stream();
    }

    /// Rows of a stream in batches, their columns separated by `|`.
    pub(crate) fn feed<S: AsRef<str>>(&mut self, stream: &str, rows: &[S]) {
        let next = self.turn_to(stream);
        let (_, format, _) = &self.handlers[next];
        let format = self.reductions[next].as_ref().map_or(format, |reduction| &reduction.input);
        let mut builder = RecordBuilder::new(format);
        let records: Vec<Vec<u8>> = rows.iter().map(|row| record(format, &mut builder, row.as_ref())).collect();
        self.feed_records(stream, &records);
    }

    /// Records of a stream in batches.
    pub(crate) fn feed_records(&mut self, stream: &str, records: &[Vec<u8>]) {
        let next = self.turn_to(stream);
        let (_, _, handler) = &mut self.handlers[next];
        let mut out: Vec<Vec<u8>> = Vec::new();
        for records in records.chunks(512) {
            let reduced = self.reductions[next].as_ref().map(|program| reduced(program, records));
            let records = reduced.as_deref().unwrap_or(records);
            if records.is_empty() {
                continue;
            }
            let batch = support::batch(records);
            let _ = handler.process(&batch, &mut Selection::all(batch.len()), &mut out);
        }
        self.keep(out);
    }

    fn keep(&mut self, made: Vec<Vec<u8>>) {
        self.rows.extend(made.iter().map(|row| show(&self.output, row)));
        self.made.extend(made);
    }

    /// Goes on with the state of another query.
    pub(crate) fn take_over(&mut self, other: &mut SqlRun) {
        let state = other.handlers[other.turn.unwrap_or(0)].2.hand_over().unwrap();
        self.turn = Some(0);
        self.handlers[0].2.take_over(state).unwrap();
    }

    /// The state as bytes.
    pub(crate) fn saved(&self) -> Vec<u8> {
        let mut saved = Vec::new();
        assert!(self.handler().save(&mut saved));
        seal_state(&mut saved);
        saved
    }

    /// Begins with a state that was saved.
    pub(crate) fn restore(&mut self, saved: &[u8]) -> Result<(), SavedStateError> {
        self.turn = Some(0);
        self.handlers[0].2.restore(saved)
    }

    /// The wall clock is at this time; how many rows that makes.
    pub(crate) fn advance(&mut self, now_ns: u64) -> usize {
        let mut out: Vec<Vec<u8>> = Vec::new();
        let made = self.handlers[self.turn.unwrap_or(0)].2.advance(now_ns, &mut out);
        self.keep(out);
        made
    }

    /// Lets the clock run until nothing is due any more by then.
    pub(crate) fn finish(&mut self) {
        while self.handler().due_ns().is_some_and(|due_ns| due_ns == 0) {
            self.advance(0);
        }
    }

    /// All handlers take the rows that a table has now.
    pub(crate) fn exchange(&mut self, shared: &SharedTable) {
        for (_, _, handler) in &mut self.handlers {
            assert!(handler.set_parameters(&mut TableOrder::of(shared).into_values()));
        }
    }

    /// Whether the first handler takes an order.
    pub(crate) fn takes(&mut self, mut order: ParameterValues) -> bool {
        self.handlers[0].2.set_parameters(&mut order)
    }

    /// The handler that has the state.
    pub(crate) fn handler(&self) -> &StatefulHandler {
        &self.handlers[self.turn.unwrap_or(0)].2
    }

    /// The format of the rows.
    pub(crate) fn output(&self) -> &Format {
        &self.output
    }

    /// The rows, sorted.
    pub(crate) fn sorted(&self) -> Vec<String> {
        let mut rows = self.rows.clone();
        rows.sort();
        rows
    }

    /// The counts of all handlers together.
    pub(crate) fn counters(&self) -> HandlerCounters {
        super::sum_of(self.handlers.iter().map(|(.., handler)| handler.counters()))
    }
}

/// The records that a reduction makes.
fn reduced(program: &Program, records: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let (mut handler, batch) = (SelectHandler::new(program.clone()), support::batch(records));
    let (mut selection, mut made) = (Selection::all(batch.len()), Vec::new());
    match handler.process(&batch, &mut selection, &mut made) {
        Verdict::Forward => selection.iter().map(|index| records[index].clone()).collect(),
        _ => made,
    }
}

fn record(format: &Format, builder: &mut RecordBuilder, row: &str) -> Vec<u8> {
    builder.clear();
    for ((index, field), text) in format.fields().iter().enumerate().zip(row.split('|')) {
        let value = match field.ty {
            _ if text == "null" => continue,
            FieldType::Timestamp => Value::Timestamp(text.parse().unwrap()),
            FieldType::F32 | FieldType::F64 => Value::Float(text.parse().unwrap()),
            FieldType::Bool => Value::Bool(text == "true"),
            FieldType::String | FieldType::Char(_) => Value::Text(text.as_bytes()),
            FieldType::Decimal { scale, .. } => Value::Decimal { unscaled: text.parse().unwrap(), scale },
            _ => Value::Int(text.parse().unwrap()),
        };
        builder.set(index, value).unwrap();
    }
    builder.finish().unwrap().to_vec()
}
