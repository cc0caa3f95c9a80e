//! Queries that look rows up in reference tables: their plans, what is refused and where, and views of tables.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;

use crossdock_format::{FieldType, Format};
use crossdock_query::{
    JoinKind, Operator, Query, QueryError, ReferenceTable, Stage, StatefulProgram, StatefulQuery, TableLookup, View,
    parse_query,
};

const FLIGHTS: &str = "carrier char[2]\nflight i32\norigin string\ndest string null\nfare decimal(8, scale 2)\n\
                       delay f64 null\nts timestamp\n";
const WEATHER: &str = "station string\nts timestamp\ntemp f64 null\n";

fn tables() -> Vec<ReferenceTable> {
    let table = |name: &str, schema: &str, key: &[&str]| {
        let format = Format::parse_schema(schema).unwrap();
        let key = key.iter().map(|column| format.field(column).unwrap()).collect();
        ReferenceTable { name: name.to_owned(), format, key }
    };
    vec![
        table("airports", "code char[3]\ncity string null\nrunways u8\nkind enum u8 { hub = 1, field = 2 }", &["code"]),
        table("routes", "carrier string\nflight u32\nmeal bool", &["carrier", "flight"]),
        table("fares", "fare decimal(8, scale 1)\nclass string", &["fare"]),
    ]
}

fn with_tables(sql: &str) -> Result<StatefulQuery, QueryError> {
    match parse_query(sql)? {
        Query::Stateful(query) => query.with_tables(&tables()),
        Query::Select(select) => {
            select.check_no_table(&tables())?;
            panic!("{sql} has no state")
        }
    }
}

fn plan(query: &StatefulQuery) -> Result<StatefulProgram, QueryError> {
    let formats = [("flights", FLIGHTS), ("weather", WEATHER)];
    let formats = formats.map(|(name, schema)| (name, Format::parse_schema(schema).unwrap()));
    let formats: Vec<(&str, &Format)> = formats.iter().map(|(name, format)| (*name, format)).collect();
    query.plan(&formats, &BTreeMap::new())
}

fn planned(sql: &str) -> Result<StatefulProgram, QueryError> {
    with_tables(sql).and_then(|query| plan(&query))
}

fn lookups(program: &StatefulProgram) -> Vec<&TableLookup> {
    fn of(stage: &Stage) -> Option<&TableLookup> {
        match &stage.operator {
            Operator::Lookup(lookup) => Some(lookup),
            _ => None,
        }
    }
    program.stages.iter().filter_map(of).collect()
}

#[test]
fn a_table_is_no_stream_of_the_query_and_its_key_is_looked_up() {
    let query = with_tables("SELECT f.*, a.city FROM flights f JOIN AIRPORTS a ON f.origin = a.code").unwrap();
    assert_eq!((query.streams(), query.tables()), (vec!["flights"], vec!["airports"]));
    let program = plan(&query).unwrap();
    assert_eq!((program.tables(), program.sources.len(), program.stages.len()), (vec!["airports"], 1, 1));
    let [lookup] = lookups(&program)[..] else { panic!("{program}") };
    assert_eq!((lookup.kind, &lookup.key[..], &lookup.columns[..]), (JoinKind::Inner, &[0][..], &[1][..]));
    let output = program.output();
    assert_eq!(output.fields().len(), 8);
    assert!(output.fields()[7].nullable && output.fields()[7].name == "city");
    let text = program.to_string();
    assert!(text.contains("join with table airports by origin = code") && text.contains("keeps nothing"), "{text}");
}

#[test]
fn conditions_and_kinds_go_where_they_mean_the_same() {
    // WHERE sees the pairs; ON of LEFT JOIN says which there are.
    let sql = "SELECT f.flight, a.runways FROM flights f LEFT JOIN airports a ON a.code = f.origin AND a.runways > 2 AND \
               f.delay > 10 WHERE a.runways IS NULL OR a.kind = 'hub'";
    let program = planned(sql).unwrap();
    let [lookup] = lookups(&program)[..] else { panic!("{program}") };
    assert_eq!(lookup.kind, JoinKind::Left);
    assert_eq!(lookup.condition.as_ref().unwrap().filter.len(), 2, "{program}");
    assert_eq!(program.stages[0].outputs[0].then.filter.len(), 1, "{program}");
    assert!(program.output().fields()[1].nullable);
    // A comma, and the key in WHERE.
    let program = planned("SELECT city FROM flights f, airports a WHERE f.origin = a.code AND a.runways > 2").unwrap();
    let [lookup] = lookups(&program)[..] else { panic!("{program}") };
    assert!(lookup.condition.is_none());
    assert_eq!(program.stages[0].outputs[0].then.filter.len(), 1, "{program}");
    // Two tables, one of them twice, and a join of streams and a window behind them.
    let sql = "SELECT o.city, count(*) FROM flights f JOIN airports o ON f.origin = o.code LEFT JOIN airports d ON f.dest = d.code \
               JOIN routes r ON r.carrier = f.carrier AND r.flight = f.flight JOIN weather w ON w.station = o.city AND \
               w.ts BETWEEN f.ts - INTERVAL '1 hour' AND f.ts GROUP BY o.city, TUMBLE(f.ts, INTERVAL '1 hour')";
    let program = planned(sql).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((lookups(&program).len(), program.tables()), (3, vec!["airports", "routes"]));
    // Within a query, and with a constant.
    let sql = "SELECT city FROM (SELECT dest FROM flights) f JOIN airports a ON a.code = 'JFK'";
    assert!(planned(sql).is_ok());
}

#[test]
fn keys_of_other_types_are_cast_where_that_is_exact() {
    let type_of = |sql: &str| {
        let program = planned(sql).unwrap_or_else(|error| panic!("{error}"));
        let [lookup] = lookups(&program)[..] else { panic!("{program}") };
        let row = &program.stages
            [program.stages.iter().position(|s| matches!(s.operator, Operator::Lookup(_))).unwrap()]
        .inputs[0]
            .row;
        row.fields()[lookup.keys[lookup.keys.len() - 1]].ty
    };
    assert_eq!(type_of("SELECT 1 FROM flights f JOIN airports a ON f.origin = a.code"), FieldType::String);
    let of_routes = "SELECT 1 FROM flights f JOIN routes r ON f.carrier = r.carrier AND";
    assert_eq!(type_of(&format!("{of_routes} f.flight = r.flight")), FieldType::U64);
    assert_eq!(type_of(&format!("{of_routes} CAST(f.delay AS u16) = r.flight")), FieldType::U16);
    let decimal = FieldType::Decimal { bytes: 16, scale: 1 };
    assert_eq!(type_of("SELECT 1 FROM flights f JOIN fares t ON f.flight = t.fare"), decimal);
}

/// Queries, the column of the error's place, and parts of its message and its hint.
const REFUSED: &[(&str, u32, &str, &str)] = &[
    (
        "SELECT * FROM airports",
        15,
        "`airports` is a reference table, and no stream",
        "FROM stream s [LEFT] JOIN airports t",
    ),
    (
        "SELECT count(*) FROM airports GROUP BY code",
        22,
        "`airports` is a reference table, and no stream",
        "t ON s.column = t.code",
    ),
    (
        "SELECT 1 FROM airports a JOIN flights f ON f.origin = a.code",
        15,
        "the reference table `airports` stands on the left of a join",
        "[LEFT] JOIN airports t",
    ),
    (
        "SELECT 1 FROM flights f FULL JOIN airports a ON f.origin = a.code",
        35,
        "FULL JOIN with the reference table `airports` is not possible",
        "[LEFT] JOIN airports t",
    ),
    (
        "SELECT 1 FROM flights f ASOF JOIN airports a ON f.origin = a.code",
        35,
        "ASOF JOIN with the reference table `airports` is not possible",
        "[LEFT] JOIN airports t",
    ),
    (
        "SELECT 1 FROM flights f JOIN (SELECT code FROM airports) a ON f.origin = a.code",
        48,
        "`airports` is a reference table, and no stream",
        "[LEFT] JOIN airports t",
    ),
    (
        "SELECT 1 FROM flights f JOIN airports a ON f.dest = a.city",
        44,
        "the join with the reference table `airports` does not say which `code` is looked up",
        "ON f.column = a.code, and further conditions",
    ),
    (
        "SELECT 1 FROM flights f JOIN routes r ON f.carrier = r.carrier",
        42,
        "the join with the reference table `routes` does not say which `flight` is looked up",
        "ON f.column = r.carrier AND f.column = r.flight",
    ),
    (
        "SELECT 1 FROM flights f JOIN routes r ON f.carrier = r.carrier AND f.delay = r.flight",
        42,
        "the value that is looked up in `flight`, the key of table `routes`, is f64, and the key u32",
        "CAST(value AS u32)",
    ),
    (
        "SELECT 1 FROM flights f JOIN fares t ON f.fare = t.fare",
        41,
        "the value that is looked up in `fare`, the key of table `fares`, is decimal",
        "CAST(value AS decimal(18, 1))",
    ),
    ("SELECT a.iata FROM flights f JOIN airports a ON f.origin = a.code", 10, "no column `iata`", ""),
];

#[test]
fn a_table_where_it_cannot_stand_is_refused_at_its_place() {
    for &(sql, column, message, hint) in REFUSED {
        let error = planned(sql).err().unwrap_or_else(|| panic!("{sql} is planned"));
        assert!(error.message.contains(message), "{sql}: {error}");
        assert_eq!(error.position.map(|at| (at.line, at.column)), Some((1, column)), "{sql}: {error}");
        assert!(error.hint.as_deref().unwrap_or_default().contains(hint), "{sql}: {error}");
        assert!(error.to_string().contains(sql), "the text is shown: {error}");
    }
}

/// The rules of access give a view of a table as of a stream.
#[test]
fn a_view_of_a_table_leaves_its_columns_and_rows() {
    let sql = "SELECT f.flight, a.* FROM flights f LEFT JOIN airports a ON f.origin = a.code";
    let through = |sql: &str, view: &str| plan(&with_tables(sql)?.through("airports", View::parse(view)?));
    let program = through(sql, "SELECT code, city FROM airports WHERE runways > 2").unwrap();
    assert_eq!(program.output().fields().len(), 3);
    let [lookup] = lookups(&program)[..] else { panic!("{program}") };
    assert_eq!(&lookup.columns[..], [0, 1, 2], "the condition's column is read");
    assert_eq!(lookup.condition.as_ref().unwrap().filter.len(), 1);
    let inner = through(&sql.replace("LEFT ", ""), "SELECT code, city FROM airports WHERE runways > 2").unwrap();
    assert_eq!(inner.stages[0].outputs[0].then.filter.len(), 1, "{inner}");
    let hidden = through(sql, "SELECT city, runways FROM airports").unwrap_err();
    assert!(hidden.message.contains("no column `code`"), "{hidden}");
    let hidden = through(&sql.replace("a.*", "a.runways"), "SELECT code, city FROM airports").unwrap_err();
    assert!(hidden.message.contains("no column `runways`"), "{hidden}");
}
