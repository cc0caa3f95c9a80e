//! The table of functions: every example gives what its entry says, reads back as it is shown, and stands in `docs/sql.md`.
//! `CROSSDOCK_UPDATE_CASES=1 cargo test -p crossdock-query --test functions` writes the table there.
#![allow(clippy::unwrap_used)] // a test that fails may panic

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use crossdock_format::{Format, Record, RecordBuilder, Value};
use crossdock_query::{
    AGGREGATES, AggregateArgument, FUNCTIONS, Function, Program, Projection, Query, parse, parse_query,
};

const START: &str = "<!-- functions: made from the table in crates/query/src/function -->\n";
const END: &str = "<!-- end of functions -->\n";

fn all() -> impl Iterator<Item = &'static Function> {
    FUNCTIONS.iter().flat_map(|(_, functions)| *functions)
}

fn format() -> Format {
    Format::parse_schema("x i64\nstops string[]\n").unwrap()
}

fn planned(sql: &str) -> Program {
    parse(sql).and_then(|select| select.plan(&format())).unwrap_or_else(|error| panic!("{error}"))
}

/// The only field of the output for a record, as text.
fn value(program: &Program) -> String {
    let format = format();
    let mut input = RecordBuilder::new(&format);
    input.set(0, Value::Int(1)).unwrap();
    input.begin_list(1).unwrap();
    ["DEN", "ORD"].into_iter().for_each(|stop| input.push(Value::Text(stop.as_bytes())).unwrap());
    input.end_list().unwrap();
    let bytes = input.finish().unwrap().to_vec();
    let mut output = RecordBuilder::new(&program.output);
    program.project(&Record::check(&format, &bytes).unwrap(), &mut output).unwrap();
    match Record::check(&program.output, output.finish().unwrap()).unwrap().get(0) {
        Value::Text(text) => String::from_utf8(text.to_vec()).unwrap(),
        Value::Null => "null".to_owned(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_example_gives_what_its_entry_says() {
    for function in all() {
        let program = planned(&format!("SELECT CAST(({}) AS text) AS y FROM s", function.example));
        assert_eq!(value(&program), function.gives, "{function:?}: {}", function.example);
    }
}

/// Without being folded, and after it was shown and read again.
#[test]
fn every_example_has_the_same_value_for_a_record() {
    for function in all() {
        // Of two values that are never equal the second is computed for the record, and is not known before.
        let sql = format!("SELECT CAST(CASE WHEN x = 1 THEN {} END AS text) AS y FROM s", function.example);
        let program = planned(&sql);
        assert_eq!(value(&program), function.gives, "{sql}");
        let Projection::Fields(fields) = &program.projection else { panic!("{sql}") };
        let shown = fields[0].expr.sql(&program.input).to_string();
        let again = planned(&format!("SELECT {shown} AS y FROM s"));
        assert_eq!(value(&again), function.gives, "{sql} is shown as {shown}");
        let Projection::Fields(fields) = &again.projection else { panic!("{sql}") };
        assert_eq!(fields[0].expr.sql(&again.input).to_string(), shown);
    }
}

#[test]
fn every_entry_says_what_it_does() {
    let mut meanings: BTreeMap<&str, bool> = BTreeMap::new();
    for function in all() {
        *meanings.entry(function.name).or_default() |= !function.meaning.is_empty();
        assert!(!function.example.is_empty(), "{function:?}");
        assert_eq!(function.name, function.name.to_lowercase());
    }
    for (name, has_meaning) in meanings {
        assert!(has_meaning, "{name} has no meaning");
    }
}

fn escaped(text: &str) -> String {
    text.replace('|', "\\|")
}

fn table() -> String {
    let mut out = String::new();
    for (section, functions) in FUNCTIONS {
        writeln!(
            out,
            "\n### {section}\n\n| function | meaning | example | otherwise in PostgreSQL |\n|---|---|---|---|"
        )
        .unwrap();
        for function in functions {
            let row = [
                format!("`{}`", function.signature()),
                function.meaning.to_owned(),
                format!("`{}` is `{}`", function.example, function.gives),
                function.deviation.to_owned(),
            ];
            writeln!(out, "| {} |", row.map(|cell| escaped(&cell)).join(" | ")).unwrap();
        }
    }
    out.push('\n');
    out
}

const AGGREGATES_START: &str = "<!-- aggregates: made from the table in crates/query/src/stateful/aggregates.rs -->\n";
const AGGREGATES_END: &str = "<!-- end of aggregates -->\n";

fn aggregates() -> String {
    let mut out = "\n| aggregate | meaning | otherwise in PostgreSQL |\n|---|---|---|\n".to_owned();
    for entry in &AGGREGATES {
        let row = [format!("`{}`", entry.signature()), entry.meaning.to_owned(), entry.deviation.to_owned()];
        writeln!(out, "| {} |", row.map(|cell| escaped(&cell)).join(" | ")).unwrap();
    }
    out.push('\n');
    out
}

#[test]
fn the_documentation_has_the_tables() {
    has(START, END, &table());
    has(AGGREGATES_START, AGGREGATES_END, &aggregates());
}

fn has(start: &str, end: &str, wanted: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sql.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(start).unwrap();
    let (found, after) = rest.split_once(end).unwrap();
    if std::env::var_os("CROSSDOCK_UPDATE_CASES").is_some() {
        std::fs::write(&path, format!("{before}{start}{wanted}{end}{after}")).unwrap();
    } else {
        let differs = found.lines().zip(wanted.lines()).find(|(found, wanted)| found != wanted);
        assert_eq!(found.len(), wanted.len(), "CROSSDOCK_UPDATE_CASES=1 writes the table: {differs:?}");
        assert_eq!(differs, None, "CROSSDOCK_UPDATE_CASES=1 writes the table");
    }
}

/// Each entry's name, called in a query as its arguments say, is that aggregate.
#[test]
fn every_aggregate_is_called_by_its_name() {
    let format = Format::parse_schema("x i64\ny f64\ns string\nb bool\n").unwrap();
    for entry in &AGGREGATES {
        let arguments: Vec<&str> = entry
            .arguments
            .iter()
            .map(|argument| match argument {
                AggregateArgument::Any | AggregateArgument::Number | AggregateArgument::Ordered => "x",
                AggregateArgument::Float => "y",
                AggregateArgument::Condition => "b",
                AggregateArgument::Text => "s",
                AggregateArgument::Separator => "', '",
                AggregateArgument::Fraction => "0.5",
            })
            .collect();
        let arguments = if arguments.is_empty() { "*".to_owned() } else { arguments.join(", ") };
        let sql = format!("SELECT {}({arguments}) FROM s", entry.name);
        let Query::Stateful(query) = parse_query(&sql).unwrap() else { panic!("{sql} has state") };
        let program = query.plan(&[("s", &format)], &BTreeMap::new()).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(program.output().fields()[0].name, entry.name);
        assert!(!entry.meaning.is_empty(), "{sql}");
    }
}
