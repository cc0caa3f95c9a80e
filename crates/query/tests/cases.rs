//! Queries as text, with what becomes of them beside them: `tests/cases/*.txt`.
//!
//! A file begins with `format`, a schema, `rows` and rows of values with `|` between them; `show plan` or `show rows`
//! says what is of interest. Then come queries, each on lines that start with `> `, followed by what it gives.
//! `CROSSDOCK_UPDATE_CASES=1 cargo test -p crossdock-query --test cases` writes what they give into the files; read the
//! difference before you keep it.
#![allow(clippy::unwrap_used)] // a test that fails may panic

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crossdock_format::{FieldType, Format, Record, RecordBuilder, Value};
use crossdock_query::{Decimal, Interpreter, Program, Projection, QueryError, parse};

struct Header {
    format: Format,
    rows: Vec<Vec<u8>>,
    show_plan: bool,
    show_rows: bool,
}

#[test]
fn cases() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let update = std::env::var_os("CROSSDOCK_UPDATE_CASES").is_some();
    let mut paths: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    let mut different = Vec::new();
    for path in paths.iter().filter(|path| path.extension().is_some_and(|extension| extension == "txt")) {
        let before = fs::read_to_string(path).unwrap();
        let after = rewritten(&before);
        if before != after {
            if update {
                fs::write(path, &after).unwrap();
            } else {
                different.push(format!("{}:\n{}", path.display(), first_difference(&before, &after)));
            }
        }
    }
    assert!(different.is_empty(), "CROSSDOCK_UPDATE_CASES=1 accepts this:\n{}", different.join("\n"));
}

fn first_difference(before: &str, after: &str) -> String {
    let at = before.lines().zip(after.lines()).take_while(|(before, after)| before == after).count();
    let from = at.saturating_sub(4);
    let window = |text: &str| text.lines().skip(from).take(9).collect::<Vec<_>>().join("\n");
    format!("line {}\n--- expected\n{}\n--- found\n{}\n", at + 1, window(before), window(after))
}

/// The file with what its queries give now.
fn rewritten(text: &str) -> String {
    let head_end = text.find("\n> ").map_or(text.len(), |at| at + 1);
    let (head, rest) = text.split_at(head_end);
    let header = header(head);
    let mut out = head.to_owned();
    let mut query = String::new();
    let mut comment = String::new();
    for line in rest.lines().chain(std::iter::once("")) {
        if let Some(part) = line.strip_prefix("> ").or((line == ">").then_some("")) {
            out.push_str(&std::mem::take(&mut comment));
            if !query.is_empty() {
                query.push('\n');
            }
            query.push_str(part);
            out.push_str(line);
            out.push('\n');
            continue;
        }
        if !query.is_empty() {
            let given = outcome(&header, &std::mem::take(&mut query));
            out.push_str(&given);
            out.push('\n');
        }
        if line.starts_with('#') {
            comment.push_str(line);
            comment.push_str("\n\n");
        }
    }
    out.push_str(&comment);
    out
}

fn header(text: &str) -> Header {
    let mut schema = String::new();
    let mut rows = Vec::new();
    let (mut show_plan, mut show_rows) = (false, false);
    let mut section = "";
    for line in text.lines() {
        match line.trim() {
            "format" => section = "format",
            "rows" => section = "rows",
            "show plan" => show_plan = true,
            "show rows" => show_rows = true,
            line if line.is_empty() || line.starts_with('#') => {}
            line if section == "format" => writeln!(schema, "{line}").unwrap(),
            line => rows.push(line.to_owned()),
        }
    }
    let format = Format::parse_schema(&schema).unwrap();
    let rows = rows.iter().map(|row| record(&format, row)).collect();
    Header { format, rows, show_plan, show_rows }
}

fn record(format: &Format, row: &str) -> Vec<u8> {
    let mut builder = RecordBuilder::new(format);
    let values: Vec<&str> = row.split('|').map(str::trim).collect();
    assert_eq!(values.len(), format.fields().len(), "{row}");
    for (index, (field, text)) in format.fields().iter().zip(values).enumerate() {
        let value = match field.ty {
            _ if text == "null" => Value::Null,
            FieldType::Bool => Value::Bool(text.parse().unwrap()),
            FieldType::F32 | FieldType::F64 => Value::Float(text.parse().unwrap()),
            FieldType::Timestamp => Value::Timestamp(text.parse::<jiff::Timestamp>().unwrap().as_nanosecond() as i64),
            FieldType::Char(_) | FieldType::String => Value::Text(text.trim_matches('\'').as_bytes()),
            FieldType::Bytes => Value::Bytes(text.as_bytes()),
            FieldType::U8 | FieldType::U16 | FieldType::U32 | FieldType::U64 => Value::Uint(text.parse().unwrap()),
            _ => Value::Int(text.parse().unwrap()),
        };
        builder.set(index, value).unwrap();
    }
    builder.finish().unwrap().to_vec()
}

fn outcome(header: &Header, sql: &str) -> String {
    match planned(header, sql) {
        Err(error) => format!("{error}\n"),
        Ok(program) => {
            let mut out = String::new();
            if header.show_plan {
                let explain = program.explain();
                let sent = serde_json::to_string(&explain).unwrap();
                assert_eq!(serde_json::from_str::<crossdock_query::Explain>(&sent).unwrap(), explain);
                let text = explain.to_string();
                // Format ids are the format crate's matter.
                for line in text.lines() {
                    out.push_str(line.split(" (format ").next().unwrap().trim_end());
                    out.push('\n');
                }
            }
            if header.show_rows {
                out.push_str(&run(header, &program));
            }
            out
        }
    }
}

fn planned(header: &Header, sql: &str) -> Result<Program, QueryError> {
    parse(sql)?.plan(&header.format)
}

fn run(header: &Header, program: &Program) -> String {
    let mut out = String::new();
    let mut interpreter = Interpreter::new();
    let mut builder = RecordBuilder::new(&program.output);
    for (index, row) in header.rows.iter().enumerate() {
        let record = Record::check(&header.format, row).unwrap();
        let passed = interpreter.matches(program, &record);
        assert_eq!(passed.unwrap_or(false), program.matches(&record));
        let made = match passed {
            Ok(false) => continue,
            Ok(true) if matches!(program.projection, Projection::All) => Ok(row.clone()),
            Ok(true) => {
                interpreter.project(program, &record, &mut builder).map(|()| builder.finish().unwrap().to_vec())
            }
            Err(error) => Err(error),
        };
        let shown = match made {
            Ok(bytes) => shown(&Record::check(&program.output, &bytes).unwrap(), &program.output),
            Err(error) => format!("row error: {error}"),
        };
        writeln!(out, "{}: {shown}", index + 1).unwrap();
    }
    if out.is_empty() {
        out.push_str("no row\n");
    }
    out
}

fn shown(record: &Record<'_>, format: &Format) -> String {
    let values = (0..format.fields().len()).map(|index| match record.get(index) {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Float(value) => format!("{value:?}"),
        Value::Timestamp(value) => jiff::Timestamp::from_nanosecond(value.into()).unwrap().to_string(),
        Value::Text(text) => format!("'{}'", String::from_utf8_lossy(text)),
        Value::Bytes(bytes) => format!("{bytes:02x?}"),
        Value::Decimal { unscaled, scale } => Decimal { unscaled, scale }.to_string(),
        value => format!("{value:?}"),
    });
    values.collect::<Vec<_>>().join(" | ")
}
