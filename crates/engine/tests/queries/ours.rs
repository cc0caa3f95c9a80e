//! Runs a case here, by every form of its program, and compares the result with the expected rows.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crossdock_engine::Tables;
use crossdock_format::{FieldType, Format, Record, RecordBuilder, Value};
use crossdock_query::{Decimal, EvalError, Interpreter, Program, Projection, Query, parse, parse_query};

use crate::case::{Case, Rule, Stream, Values, record};
use crate::stateful_support::sql::{SqlRun, planned_with, table};
use crate::support::hold_to_interpreter;

/// The result of a case.
pub(crate) enum Outcome {
    /// For each record of the one stream: the row, none if the record does not pass, or a row error; and the types of the columns.
    Records(Vec<Result<Option<Values>, EvalError>>, Vec<FieldType>),
    /// The rows in the order in which they left; and the types of the columns.
    Rows(Vec<Values>, Vec<FieldType>),
}

/// The numbers of rows that were compared, and of those left out because ours is a row error.
#[derive(Clone, Copy, Default)]
pub(crate) struct Compared {
    pub(crate) rows: u64,
    pub(crate) errors: u64,
}

/// A case that fails.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The query is refused.
    Refused(String),
    /// Something panics.
    Panicked(String),
    /// The handler's result is not the interpreter's, or that of a query with state not the same where it is cut.
    Forms(String),
    /// The result is not the expected one.
    Differs(String),
    /// DuckDB has an error.
    Duck(String),
}

impl Failure {
    /// Whether a smaller case fails for what may be the same reason. A refusal is the same if its words are: numbers in them are positions.
    pub(crate) fn is_like(&self, other: &Failure) -> bool {
        let words = |why: &str| why.lines().next().unwrap_or_default().replace(|c: char| c.is_ascii_digit(), "");
        match (self, other) {
            (Failure::Refused(one), Failure::Refused(other)) | (Failure::Duck(one), Failure::Duck(other)) => {
                words(one) == words(other)
            }
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Refused(why) => write!(f, "the query is refused: {why}"),
            Failure::Panicked(why) => write!(f, "it panics: {why}"),
            Failure::Forms(why) => write!(f, "the handler's result is not the interpreter's: {why}"),
            Failure::Differs(why) => write!(f, "the result is not DuckDB's: {why}"),
            Failure::Duck(why) => write!(f, "DuckDB refuses its query, a fault of the generator: {why}"),
        }
    }
}

/// Compares the result of a case with the expected rows.
pub(crate) fn judge(case: &Case, expected: &[Values]) -> Result<Compared, Failure> {
    let outcome = catch_unwind(AssertUnwindSafe(|| run(case))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        Err(Failure::Panicked(text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("without a text").to_owned()))
    })?;
    match outcome {
        Outcome::Records(ours, types) => compare_records(case, &ours, &types, expected),
        Outcome::Rows(ours, types) => compare_rows(case, ours, &types, expected),
    }
    .map_err(Failure::Differs)
}

fn run(case: &Case) -> Result<Outcome, Failure> {
    match parse_query(&case.query).map_err(|error| Failure::Refused(error.to_string()))? {
        Query::Stateful(_) => stateful(case),
        _ => plain(case),
    }
}

/// A query without state: by the interpreter, and by the handler, which is held to it.
fn plain(case: &Case) -> Result<Outcome, Failure> {
    let format = case.streams[0].format();
    let refused = |error: crossdock_query::QueryError| Failure::Refused(error.to_string());
    let program = parse(&case.query).and_then(|select| select.plan(&format)).map_err(refused)?;
    let mut builder = RecordBuilder::new(&format);
    let records: Vec<Vec<u8>> = case.rows.iter().map(|(_, values)| record(&mut builder, values)).collect();
    let all: Vec<usize> = (0..records.len()).collect();
    hold_to_interpreter(&program, &records, &all).map_err(Failure::Forms)?;
    let rows = records.iter().map(|bytes| interpreted(&program, &Record::check(&format, bytes).unwrap())).collect();
    Ok(Outcome::Records(rows, types(&program.output)))
}

fn types(format: &Format) -> Vec<FieldType> {
    format.fields().iter().map(|field| field.ty).collect()
}

/// The row of a record; none if it does not pass, an error for a row error.
fn interpreted(program: &Program, record: &Record<'_>) -> Result<Option<Values>, EvalError> {
    let mut interpreter = Interpreter::new();
    if !interpreter.matches(program, record)? {
        return Ok(None);
    }
    let mut row = RecordBuilder::new(&program.output);
    let bytes = match program.projection {
        Projection::All => record.bytes(),
        Projection::Fields(_) => {
            interpreter.project(program, record, &mut row)?;
            row.finish().unwrap()
        }
    };
    Ok(Some(shown(&program.output, bytes)))
}

/// A query with state: rows that come one after the other from one stream are a batch. At the end all streams end.
fn stateful(case: &Case) -> Result<Outcome, Failure> {
    let streams: Vec<(String, String)> =
        case.streams.iter().map(|stream| (stream.name.clone(), stream.schema())).collect();
    let streams: Vec<(&str, &str)> = streams.iter().map(|(name, schema)| (name.as_str(), schema.as_str())).collect();
    let tables = tables(case);
    planned_with(&case.query, &streams, &tables).map_err(Failure::Refused)?;
    let mut run = SqlRun::with_tables(&case.query, &streams, &tables);
    let mut cut = SqlRun::reduced(&case.query, &streams, &tables);
    let mut builders: Vec<RecordBuilder> =
        case.streams.iter().map(|stream| RecordBuilder::new(&stream.format())).collect();
    let words = ["FROM", "JOIN"];
    let is_read = |name: &str| {
        tables.get(name).is_none() && words.iter().any(|word| case.query.contains(&format!("{word} {name}")))
    };
    for together in case.rows.chunk_by(|(one, _), (other, _)| one == other) {
        let stream = together[0].0;
        if !is_read(streams[stream].0) {
            continue;
        }
        let records: Vec<Vec<u8>> = together.iter().map(|(_, values)| record(&mut builders[stream], values)).collect();
        run.feed_records(streams[stream].0, &records);
        cut.feed_records(streams[stream].0, &records);
    }
    for (name, _) in streams.iter().filter(|(name, _)| is_read(name)) {
        run.end(name);
        cut.end(name);
    }
    if cut.made != run.made {
        return Err(Failure::Forms(format!("cut it makes {:?}, as a whole {:?}", cut.rows, run.rows)));
    }
    let rows = run.made.iter().map(|row| shown(run.output(), row)).collect();
    Ok(Outcome::Rows(rows, types(run.output())))
}

/// The reference tables of a case, each with all of its rows.
fn tables(case: &Case) -> Tables {
    let of_case = case.streams.iter().enumerate().filter(|(_, stream)| !stream.key.is_empty());
    let table = |(number, stream): (usize, &Stream)| {
        let mut builder = RecordBuilder::new(&stream.format());
        let rows = case.rows.iter().filter(|(of, _)| *of == number);
        let records: Vec<Vec<u8>> = rows.map(|(_, values)| record(&mut builder, values)).collect();
        let key: Vec<&str> = stream.key.iter().map(String::as_str).collect();
        table(&stream.name, &stream.schema(), &key, &records)
    };
    Tables::new(of_case.map(table).collect())
}

fn shown(format: &Format, row: &[u8]) -> Values {
    let record = Record::check(format, row).unwrap();
    (0..format.fields().len()).map(|field| shown_value(record.get(field))).collect()
}

fn shown_value(value: Value<'_>) -> Option<String> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(value) => value.to_string(),
        Value::Int(value) | Value::Timestamp(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Float(value) => format!("{:?}", value + 0.0),
        Value::Decimal { unscaled, scale } => Decimal { unscaled, scale }.to_string(),
        Value::Text(text) => String::from_utf8(text.to_vec()).unwrap(),
        Value::Bytes(bytes) => {
            format!("\\x{}", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
        }
        Value::Enum { symbol: Some(symbol), .. } => symbol.to_owned(),
        Value::List(list) => format!("[{}]", list.iter().filter_map(shown_value).collect::<Vec<_>>().join(", ")),
        value => format!("{value:?}"),
    })
}

/// Expected rows have the number of the record in front. Rows with a row error of ours are left out: they are no rows of the result, and
/// the default of a subscription drops and counts them.
fn compare_records(
    case: &Case,
    ours: &[Result<Option<Values>, EvalError>],
    types: &[FieldType],
    expected: &[Values],
) -> Result<Compared, String> {
    let mut compared = Compared::default();
    let mut expected = expected.iter().peekable();
    for (n, ours) in ours.iter().enumerate() {
        let theirs = expected.next_if(|row| row[0].as_deref() == Some(&n.to_string())).map(|row| &row[1..]);
        let Ok(ours) = ours else {
            compared.errors += 1;
            continue;
        };
        compared.rows += 1;
        let is_same = match (ours, theirs) {
            (None, None) => true,
            (Some(ours), Some(theirs)) => is_same_row(case, types, ours, theirs),
            _ => false,
        };
        if !is_same {
            return Err(format!("row {n} {:?}\nours: {ours:?}\ntheirs: {theirs:?}", case.rows[n].1));
        }
    }
    match expected.next() {
        Some(row) => Err(format!("a row beyond the last: {row:?}")),
        None => Ok(compared),
    }
}

/// Rows leave in an order that is not part of the result, so both sides are sorted, by what is compared exactly.
fn compare_rows(case: &Case, ours: Vec<Values>, types: &[FieldType], expected: &[Values]) -> Result<Compared, String> {
    let ours = match case.last_of {
        0 => ours,
        columns => last_of_each(ours, columns, case.query.ends_with(" CHANGES")),
    };
    let normal = |row: &Values| -> Values {
        row.iter().zip(types).map(|(value, ty)| value.as_ref().map(|value| normal(*ty, value))).collect()
    };
    let sorted = |rows: &[Values]| {
        let mut rows: Vec<Values> = rows.iter().map(normal).collect();
        let exact = |row: &Values| -> Values {
            let columns = row.iter().zip(&case.rules);
            columns.filter(|(_, rule)| **rule != Rule::Near).map(|(value, _)| value.clone()).collect()
        };
        rows.sort_by_key(exact);
        rows
    };
    let (ours, theirs) = (sorted(&ours), sorted(expected));
    let differs = ours.iter().zip(&theirs).find(|(ours, theirs)| !is_same_row(case, types, ours, theirs));
    if let Some((ours, theirs)) = differs {
        return Err(format!("of the sorted rows\nours: {ours:?}\ntheirs: {theirs:?}"));
    }
    if ours.len() != theirs.len() {
        return Err(format!("{} rows and {}\nours: {ours:?}\ntheirs: {theirs:?}", ours.len(), theirs.len()));
    }
    Ok(Compared { rows: ours.len() as u64, errors: 0 })
}

/// The last row for each value of the first columns. The last column of changes says whether a row leaves.
fn last_of_each(rows: Vec<Values>, columns: usize, are_changes: bool) -> Vec<Values> {
    let mut last: BTreeMap<Vec<Option<String>>, Values> = BTreeMap::new();
    for mut row in rows {
        let change = if are_changes { row.pop().flatten() } else { None };
        let key = row[..columns].to_vec();
        let before = if change.as_deref() == Some("leave") { last.remove(&key) } else { last.insert(key, row) };
        if let Some(change) = change {
            assert_eq!(before.is_some(), change != "enter", "{change} of a row that is, or is not, there");
        }
    }
    last.into_values().collect()
}

fn is_same_row(case: &Case, types: &[FieldType], ours: &[Option<String>], theirs: &[Option<String>]) -> bool {
    let is_same = |column: usize| match (&ours[column], &theirs[column]) {
        (Some(ours), Some(theirs)) => is_same(case.rules[column], types[column], ours, theirs),
        (ours, theirs) => ours.is_none() && theirs.is_none(),
    };
    ours.len() == theirs.len() && ours.len() == case.rules.len() && (0..ours.len()).all(is_same)
}

fn is_same(rule: Rule, ty: FieldType, ours: &str, theirs: &str) -> bool {
    if normal(ty, ours) == normal(ty, theirs) {
        return true;
    }
    let is_number = ty.is_integer() || matches!(ty, FieldType::F32 | FieldType::F64 | FieldType::Decimal { .. });
    let is_whole = |text: &str| text.parse::<i128>().is_ok();
    match (rule, ours.parse::<f64>(), theirs.parse::<f64>()) {
        (Rule::Number, Ok(one), Ok(other)) => is_number && one == other && !(is_whole(ours) && is_whole(theirs)),
        (Rule::Near, Ok(one), Ok(other)) => (one - other).abs() <= 1e-9 * (1.0 + one.abs().max(other.abs())),
        _ => false,
    }
}

/// A value's one text: decimals whatever the digits behind the point, floats as we print them, without a sign of zero.
fn normal(ty: FieldType, text: &str) -> String {
    match ty {
        FieldType::F32 | FieldType::F64 => {
            text.parse::<f64>().map_or(text.to_owned(), |value| format!("{:?}", value + 0.0))
        }
        FieldType::Decimal { .. } => {
            let digits = match text.contains('.') {
                true => text.trim_end_matches('0').trim_end_matches('.'),
                false => text,
            };
            if digits.trim_start_matches('-') == "0" { "0".to_owned() } else { digits.to_owned() }
        }
        _ => text.to_owned(),
    }
}
