//! Records of other versions of a stream's format give exactly the rows that a plan with state has.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;

use crossdock_format::{FieldSpec, FieldType, Format, Record, RecordBuilder, Value};
use crossdock_query::{EvalError, Interpreter, Query, StatefulQuery, View, parse_query};

const TYPES: [FieldType; 12] = [
    FieldType::Bool,
    FieldType::I8,
    FieldType::I32,
    FieldType::I64,
    FieldType::U16,
    FieldType::U64,
    FieldType::F32,
    FieldType::F64,
    FieldType::Timestamp,
    FieldType::Char(3),
    FieldType::String,
    FieldType::Decimal { bytes: 8, scale: 2 },
];

fn wider(ty: FieldType) -> FieldType {
    match ty {
        FieldType::I8 => FieldType::I16,
        FieldType::I32 => FieldType::I64,
        FieldType::U16 => FieldType::U32,
        FieldType::F32 => FieldType::F64,
        FieldType::Char(_) => FieldType::String,
        ty => ty,
    }
}

fn value(ty: FieldType, number: i64) -> Value<'static> {
    const TEXTS: [&[u8]; 4] = [b"", b"a", b"xyz", "\u{e9}".as_bytes()];
    match ty {
        FieldType::Bool => Value::Bool(number % 2 == 0),
        FieldType::F32 | FieldType::F64 => Value::Float(number as f64 / 4.0),
        FieldType::Timestamp => Value::Timestamp(number * 1_000_000),
        FieldType::Char(_) | FieldType::String => Value::Text(TEXTS[number.unsigned_abs() as usize % 4]),
        FieldType::Decimal { scale, .. } => Value::Decimal { unscaled: number.into(), scale },
        FieldType::U16 | FieldType::U32 | FieldType::U64 => Value::Uint(number.unsigned_abs()),
        _ => Value::Int(number),
    }
}

fn format(fields: &[(usize, FieldType, bool)]) -> Format {
    let spec = |(number, ty, nullable): &(usize, FieldType, bool)| FieldSpec {
        nullable: *nullable,
        ..FieldSpec::new(format!("c{number}"), *ty)
    };
    Format::natural(fields.iter().map(spec)).unwrap()
}

fn query(sql: &str) -> StatefulQuery {
    let Query::Stateful(query) = parse_query(sql).unwrap() else { panic!("{sql} has state") };
    query
}

/// As text, whatever the width.
fn shown(value: Value<'_>) -> String {
    match value {
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        other => format!("{other:?}"),
    }
}

#[test]
fn other_versions_give_exactly_the_planned_rows() {
    for seed in 0..400 {
        let mut random = fastrand::Rng::with_seed(seed);
        let count = random.usize(1..8);
        let first: Vec<(usize, FieldType, bool)> =
            (0..count).map(|number| (number, TYPES[random.usize(..TYPES.len())], random.bool())).collect();
        // Another version: other places, wider and narrower columns, missing ones, further ones.
        let mut second = first.clone();
        second.retain(|(_, _, nullable)| !nullable || random.u8(..4) > 0);
        for (_, ty, nullable) in &mut second {
            *ty = if random.bool() { wider(*ty) } else { *ty };
            *nullable = random.bool();
        }
        second.push((99, FieldType::I8, false));
        random.shuffle(&mut second);
        let names: Vec<String> = first.iter().map(|(number, ..)| format!("c{number}")).collect();
        let names = names.join(", ");
        let query = query(&format!("SELECT {names}, count(*) FROM s GROUP BY {names}"));
        let (was, now) = (format(&first), format(&second));
        let program = query.plan(&[("s", &was)], &BTreeMap::new()).unwrap();
        let row = &program.stages[0].inputs[0].row;
        for format in [&was, &now] {
            let readers = query.readers(&program, "s", format, &BTreeMap::new()).unwrap();
            let [(_, reader)] = &readers[..] else { panic!("one place reads the stream") };
            assert_eq!(reader.output.id(), row.id());
            let mut record = RecordBuilder::new(format);
            for (index, field) in format.fields().iter().enumerate() {
                let null = field.nullable && random.bool();
                let value = if null { Value::Null } else { value(field.ty, random.i64(-100..100)) };
                record.set(index, value).unwrap();
            }
            let bytes = record.finish().unwrap().to_vec();
            let record = Record::check(format, &bytes).unwrap();
            let mut made = RecordBuilder::new(row);
            let result = Interpreter::new().project(reader, &record, &mut made);
            let lacks = row.fields().iter().any(|field| {
                !field.nullable && format.field(&field.name).is_some_and(|at| matches!(record.get(at), Value::Null))
            });
            assert_eq!(result, if lacks { Err(EvalError::IllTyped) } else { Ok(()) }, "seed {seed}");
            if lacks {
                continue;
            }
            let made = Record::check(row, made.finish().unwrap()).unwrap();
            for (index, field) in row.fields().iter().enumerate() {
                let wanted = format.field(&field.name).map_or(Value::Null, |at| record.get(at));
                assert_eq!(shown(made.get(index)), shown(wanted), "seed {seed}: {}", field.name);
            }
        }
    }
}

#[test]
fn a_view_stands_before_every_place_that_reads_its_stream() {
    let schema = "k i32\nv i32\nsecret string\nt timestamp\n";
    let format = Format::parse_schema(schema).unwrap();
    let view = View::parse("SELECT k, v, t FROM s WHERE v > 0").unwrap();
    let sql = "SELECT a.k, count(*) FROM s a JOIN s b ON a.k = b.k AND a.t = b.t WHERE b.v < 9 GROUP BY a.k";
    let query = query(sql).through("s", view.clone());
    let program = query.plan(&[("s", &format)], &BTreeMap::new()).unwrap();
    let other = Format::parse_schema("t timestamp\nsecret string\nv i64 null\nk i32\n").unwrap();
    for format in [&format, &other] {
        let readers = query.readers(&program, "s", format, &BTreeMap::new()).unwrap();
        assert_eq!(readers.len(), 2);
        for (_, reader) in &readers {
            assert_eq!(reader.filter[0].sql(format).to_string(), "v > 0", "the view's condition comes first");
        }
    }
    let Query::Stateful(secret) = parse_query("SELECT secret, count(*) FROM s GROUP BY secret").unwrap() else {
        panic!()
    };
    let secret = secret.through("s", view);
    let why = secret.plan(&[("s", &format)], &BTreeMap::new()).unwrap_err().to_string();
    assert!(why.contains("no column `secret`") && why.contains("known: k, v, t"), "{why}");
    let lacking = Format::parse_schema("k i32\n").unwrap();
    let why = query.readers(&program, "s", &lacking, &BTreeMap::new()).unwrap_err().to_string();
    assert!(why.contains("the fields of stream s that may be read are not in format"), "{why}");
}

#[test]
fn a_column_that_is_missing_or_of_another_kind_is_an_error() {
    let was = Format::parse_schema("a i32\nb string null\n").unwrap();
    let query = query("SELECT a, b, count(*) FROM s GROUP BY a, b");
    let program = query.plan(&[("s", &was)], &BTreeMap::new()).unwrap();
    for (schema, expected) in [
        ("b string\n", "column `a` of stream s is missing in format"),
        ("a timestamp[]\n", "column `a` of stream s has a type that cannot be cast in format"),
    ] {
        let now = Format::parse_schema(schema).unwrap();
        let why = query.readers(&program, "s", &now, &BTreeMap::new()).unwrap_err().to_string();
        assert!(why.contains(expected), "{why}");
    }
}

#[test]
fn parameters_streams_and_clauses() {
    let sql = "SELECT k, count(*) AS n FROM Orders WHERE v > $least GROUP BY k HAVING count(*) > $1 \
               ON SLOW KEEP WHERE n > 3 MAX RATE 2 PER SECOND BY k";
    let mut query = query(sql);
    query.find_streams(["ORDERS", "x"]).unwrap();
    assert_eq!(query.streams(), ["ORDERS"]);
    let names: Vec<&str> = query.parameters().iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["least", "1"]);
    let format = Format::parse_schema("k i32\nv i32\n").unwrap();
    let values =
        |least: &str| BTreeMap::from([("least".to_owned(), least.to_owned()), ("1".to_owned(), "2".to_owned())]);
    let why = query.plan(&[("ORDERS", &format)], &BTreeMap::new()).unwrap_err().to_string();
    assert!(why.contains("$least has no value"), "{why}");
    let program = query.plan(&[("ORDERS", &format)], &values("5")).unwrap();
    assert_eq!(program.stages[0].outputs[0].then.filter[0].sql(&program.stages[0].rows).to_string(), "\"count\" > $1");
    let readers = query.readers(&program, "ORDERS", &format, &values("7")).unwrap();
    assert!(format!("{:?}", readers[0].1.filter).contains("Int(7)"));
    let result = query.result_select("subscription-7");
    assert_eq!(result.stream(), "subscription-7");
    assert_eq!(result.max_rate().unwrap().to_string(), "2 per second by k");
    let kept = result.on_slow().unwrap();
    assert_eq!(kept.to_string(), "keep where n > 3");
    assert!(kept.reads().unwrap().plan(program.output()).is_ok());
    assert_eq!(result.plan(program.output()).unwrap().output.id(), program.output().id());
    assert!(query.check_no_clauses().is_err());
    let why = query.unknown_stream("ORDERS", &["ORDER"]).to_string();
    assert!(why.contains("no stream `ORDERS`") && why.contains("did you mean `ORDER`"), "{why}");
}
