//! A query through a view gives what it would give if its stream had only what the view leaves.
#![allow(clippy::unwrap_used)] // a test that fails may panic

mod generate;

use crossdock_format::{FieldSpec, FieldType, Format, Record, RecordBuilder, Value};
use crossdock_query::{EvalError, Interpreter, Program, Projection, View, parse};
use generate::{Scope, condition, format, row, value};
use proptest::prelude::*;

const EVERYTHING: Scope = Scope { everything: true };

/// The row that a program makes of a record: `None` if the record does not pass.
fn made(program: &Program, record: &[u8]) -> Result<Option<Vec<u8>>, EvalError> {
    let checked = Record::check(&program.input, record).unwrap();
    if !Interpreter::new().matches(program, &checked)? {
        return Ok(None);
    }
    if matches!(program.projection, Projection::All) {
        return Ok(Some(record.to_vec()));
    }
    let mut row = RecordBuilder::new(&program.output);
    Interpreter::new().project(program, &checked, &mut row)?;
    Ok(Some(row.finish().unwrap().to_vec()))
}

/// The values of a row by name, in a form that compares.
fn values(format: &Format, row: &[u8]) -> Vec<String> {
    let record = Record::check(format, row).unwrap();
    format.fields().iter().enumerate().map(|(at, field)| format!("{}: {:?}", field.name, record.get(at))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4 * ProptestConfig::default().cases))]

    #[test]
    fn a_query_through_a_view_is_the_query_over_what_the_view_leaves(
        shown in prop::collection::vec(any::<bool>(), 32),
        rows_shown in prop::option::of(condition(3, EVERYTHING)),
        takes_all in any::<bool>(),
        exprs in prop::collection::vec(value(2, EVERYTHING), 1..4),
        filter in prop::option::of(condition(3, EVERYTHING)),
        rows in prop::collection::vec(row(), 6),
    ) {
        let format = format();
        let columns: Vec<String> = format
            .fields()
            .iter()
            .zip(&shown)
            .filter(|(_, shown)| **shown)
            .map(|(field, _)| format!("\"{}\"", field.name))
            .collect();
        let columns = if columns.is_empty() { "*".to_owned() } else { columns.join(", ") };
        let of = |condition: &Option<crossdock_query::Expr>| {
            condition.as_ref().map_or_else(String::new, |condition| format!(" WHERE {}", condition.sql(&format)))
        };
        let view = View::parse(&format!("SELECT {columns} FROM s{}", of(&rows_shown))).unwrap();
        let view_program = view.plan(&format).unwrap();
        prop_assert!(!view_program.is_fallible());
        let items: Vec<String> =
            exprs.iter().enumerate().map(|(at, expr)| format!("{} AS x{at}", expr.sql(&format))).collect();
        let items = if takes_all { "*".to_owned() } else { items.join(", ") };
        let sql = format!("SELECT {items} FROM s{}", of(&filter));
        let select = parse(&sql).unwrap();
        let over_the_view = select.clone().plan(&view_program.output);
        let through = select.through(view).plan(&format);
        let (over_the_view, through) = match (over_the_view, through) {
            (Ok(over), Ok(through)) => (over, through),
            (over, through) => {
                prop_assert_eq!(over.map(drop), through.map(drop), "{}", sql);
                return Ok(());
            }
        };
        prop_assert_eq!(&over_the_view.output, &through.output);
        let may_read = |index: &usize| {
            let name = &format.fields()[*index].name;
            view_program.reads.contains(index) || view_program.output.field(name).is_some()
        };
        prop_assert!(through.reads.iter().all(may_read));
        let mut input = RecordBuilder::new(&format);
        for row in rows {
            let bytes = row.bytes(&mut input);
            let meant = match made(&view_program, &bytes).unwrap() {
                Some(seen) => made(&over_the_view, &seen),
                None => Ok(None),
            };
            let given = made(&through, &bytes);
            let shown = |made: Result<Option<Vec<u8>>, EvalError>| {
                made.map(|row| row.map(|row| values(&through.output, &row)))
            };
            prop_assert_eq!(shown(given), shown(meant), "{} of {:?}", sql, row);
        }
    }
}

fn flights() -> Format {
    Format::natural([
        FieldSpec::new("carrier", FieldType::String),
        FieldSpec::new("flight", FieldType::I64),
        FieldSpec::nullable("delay", FieldType::I64),
        FieldSpec::new("crew.name", FieldType::String),
    ])
    .unwrap()
}

#[test]
fn a_hidden_column_is_an_unknown_one() {
    let view = View::parse("SELECT carrier, flight FROM A WHERE delay > 0").unwrap();
    let plan = |sql: &str| parse(sql).unwrap().through(view.clone()).plan(&flights());
    let all = plan("SELECT * FROM A").unwrap();
    assert_eq!(all.output.fields().iter().map(|field| &*field.name).collect::<Vec<_>>(), ["carrier", "flight"]);
    assert_eq!(all.to_sql(), "SELECT carrier, flight FROM A WHERE \"delay\" > 0");
    for sql in ["SELECT delay FROM A", "SELECT 1 FROM A WHERE A.delay > 2", "SELECT \"crew.name\" FROM A"] {
        let why = plan(sql).unwrap_err().to_string();
        assert!(why.contains("has no column") && why.contains("known: carrier, flight"), "{sql}: {why}");
        assert!(!why.contains("known: carrier, flight,"), "{why}");
    }
    let composed = plan("SELECT flight + 1 AS next FROM A WHERE carrier = 'UA' OR flight < 9").unwrap();
    let sql = "SELECT flight + 1 AS \"next\" FROM A WHERE \"delay\" > 0 AND (carrier = 'UA' OR flight < 9)";
    assert_eq!(composed.to_sql(), sql);
    assert!(plan("SELECT * FROM A WHERE 1 > 2").unwrap().passes_nothing());
    // Its own columns are not named where they are missing.
    let other = Format::natural([FieldSpec::new("secret", FieldType::I64)]).unwrap();
    let why = parse("SELECT * FROM A").unwrap().through(view.clone()).plan(&other).unwrap_err().to_string();
    assert!(why.contains("may be read are not in format") && !why.contains("secret"), "{why}");
}

#[test]
fn a_view_has_columns_and_no_parameters() {
    for (sql, why) in [
        ("SELECT delay + 1 FROM A", "line 1, column 8: the select list of a view has columns only"),
        ("SELECT * FROM A WHERE delay > $least", "line 1, column 31: a view has no parameters such as `$least`"),
        ("SELECT * FROM A ORDER BY delay", "ORDER BY is not possible"),
    ] {
        let refused = View::parse(sql).unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
    }
    let view = View::parse("SELECT carrier AS airline FROM A").unwrap();
    let program = parse("SELECT airline FROM A").unwrap().through(view).plan(&flights()).unwrap();
    assert_eq!(program.to_sql(), "SELECT carrier AS airline FROM A");
}

#[test]
fn a_record_for_which_a_view_has_a_row_error_is_not_there() {
    let view = View::parse("SELECT carrier, flight FROM A WHERE 100 / flight > 1").unwrap();
    let program = parse("SELECT flight FROM A").unwrap().through(view).plan(&flights()).unwrap();
    let mut input = RecordBuilder::new(&flights());
    let mut passes = |flight: i64| {
        for (at, value) in [(0, Value::Text(b"UA")), (1, Value::Int(flight)), (3, Value::Text(b"Ada"))] {
            input.set(at, value).unwrap();
        }
        let bytes = input.finish().unwrap().to_vec();
        Interpreter::new().matches(&program, &Record::check(&flights(), &bytes).unwrap())
    };
    assert_eq!([0, 5, 99].map(&mut passes), [Ok(false), Ok(true), Ok(false)]);
}
