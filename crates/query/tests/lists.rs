//! Lists as operands: of all types of elements, held to a loop over the values that were put in; what is refused, and how; and records
//! whose lists are wrong.
#![allow(clippy::unwrap_used)] // a test that fails may panic

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crossdock_format::{Format, Record, RecordBuilder, Value};
use crossdock_query::{CompareOp, Program, Query, parse, parse_query};
use proptest::prelude::*;

const OPS: [CompareOp; 6] = [CompareOp::Eq, CompareOp::Ne, CompareOp::Lt, CompareOp::Le, CompareOp::Gt, CompareOp::Ge];

fn planned(sql: &str, format: &Format) -> Program {
    parse(sql).and_then(|select| select.plan(format)).unwrap_or_else(|error| panic!("{error}"))
}

fn refused(sql: &str, format: &Format) -> String {
    match parse(sql).and_then(|select| select.plan(format)) {
        Err(error) => error.to_string(),
        Ok(program) => panic!("{sql} is {:?}", program.filter),
    }
}

/// The values of the select list for a record, as texts.
fn row(program: &Program, bytes: &[u8]) -> Vec<String> {
    let mut output = RecordBuilder::new(&program.output);
    program.project(&Record::check(&program.input, bytes).unwrap(), &mut output).unwrap();
    let record = Record::check(&program.output, output.finish().unwrap()).unwrap();
    (0..program.output.fields().len()).map(|field| shown(record.get(field))).collect()
}

fn shown(value: Value<'_>) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Text(text) => String::from_utf8_lossy(text).into_owned(),
        other => format!("{other:?}"),
    }
}

fn values(sql: &str, format: &Format, bytes: &[u8]) -> Vec<String> {
    row(&planned(sql, format), bytes)
}

/// A column of lists of one type, the other type that its elements are compared with, and some values, which rise: for records,
/// in SQL, and as texts.
struct Class {
    element: &'static str,
    other: &'static str,
    values: &'static [(Value<'static>, &'static str, &'static str)],
}

const CLASSES: &[Class] = &[
    Class {
        element: "i16",
        other: "i64",
        values: &[
            (Value::Int(-300), "-300", "-300"),
            (Value::Int(0), "0", "0"),
            (Value::Int(7), "7", "7"),
            (Value::Int(32767), "32767", "32767"),
        ],
    },
    Class {
        element: "u64",
        other: "u64",
        values: &[
            (Value::Uint(0), "0", "0"),
            (Value::Uint(3), "3", "3"),
            (Value::Uint(u64::MAX), "18446744073709551615", "18446744073709551615"),
        ],
    },
    Class {
        element: "f32",
        other: "f64",
        values: &[
            (Value::Float(-0.5), "-0.5", "-0.5"),
            (Value::Float(0.25), "0.25", "0.25"),
            (Value::Float(1e9), "1000000000", "1e+09"),
            (Value::Float(f64::INFINITY), "'inf'::float8", "Infinity"),
            (Value::Float(f64::NAN), "'NaN'::float8", "NaN"),
        ],
    },
    Class {
        element: "bool",
        other: "bool",
        values: &[(Value::Bool(false), "FALSE", "false"), (Value::Bool(true), "TRUE", "true")],
    },
    Class {
        element: "string",
        other: "char[9]",
        values: &[
            (Value::Text(b""), "''", ""),
            (Value::Text(b"DEN"), "'DEN'", "DEN"),
            (Value::Text(b"it's"), "'it''s'", "it's"),
            (Value::Text("é".as_bytes()), "'é'", "é"),
        ],
    },
    Class {
        element: "char[3]",
        other: "string",
        values: &[
            (Value::Text(b"a"), "'a'", "a"),
            (Value::Text(b"abc"), "'abc'", "abc"),
            (Value::Text(b"b"), "'b'", "b"),
        ],
    },
    Class {
        element: "bytes",
        other: "bytes",
        values: &[
            (Value::Bytes(b""), "'\\x'", "\\x"),
            (Value::Bytes(b"\x00\xff"), "'\\x00ff'", "\\x00ff"),
            (Value::Bytes(b"\x0a"), "'\\x0a'", "\\x0a"),
        ],
    },
    Class {
        element: "timestamp",
        other: "timestamp",
        values: &[
            (Value::Timestamp(-1_000_000_000), "'1969-12-31T23:59:59Z'", "1969-12-31T23:59:59Z"),
            (Value::Timestamp(0), "'1970-01-01'", "1970-01-01T00:00:00Z"),
        ],
    },
    Class {
        element: "decimal(4, scale 2)",
        other: "decimal(16, scale 4)",
        values: &[
            (Value::Decimal { unscaled: -150, scale: 2 }, "-1.5", "-1.50"),
            (Value::Decimal { unscaled: 0, scale: 2 }, "0", "0.00"),
            (Value::Decimal { unscaled: 1234, scale: 2 }, "12.34", "12.34"),
        ],
    },
    Class {
        element: "enum u8 { A = 1, B = 2 }",
        other: "string",
        values: &[(Value::Text(b"A"), "'A'", "A"), (Value::Text(b"B"), "'B'", "B")],
    },
];

/// A record: the value (a number of the class's, or null), a number or null, and the list of these values, or null.
fn record(class: &Class, format: &Format, x: Option<usize>, i: Option<i64>, list: Option<&[usize]>) -> Vec<u8> {
    let mut builder = RecordBuilder::new(format);
    let value = |number: usize| class.values[number].0;
    let x = match (x.map(value), class.other) {
        (Some(Value::Decimal { unscaled, scale: 2 }), "decimal(16, scale 4)") => {
            Value::Decimal { unscaled: unscaled * 100, scale: 4 }
        }
        (x, _) => x.unwrap_or(Value::Null),
    };
    builder.set(0, x).unwrap();
    builder.set(1, i.map_or(Value::Null, Value::Int)).unwrap();
    if let Some(list) = list {
        builder.begin_list(2).unwrap();
        list.iter().for_each(|number| builder.push(value(*number)).unwrap());
        builder.end_list().unwrap();
    }
    builder.finish().unwrap().to_vec()
}

fn format_of(class: &Class) -> Format {
    Format::parse_schema(&format!("x {} null\ni i64 null\nl {}[] null\n", class.other, class.element)).unwrap()
}

/// ANY or ALL as a loop with three truth values.
fn quantified(op: CompareOp, is_all: bool, x: Option<usize>, list: Option<&[usize]>) -> String {
    let Some(list) = list else { return "null".to_owned() };
    let mut truths = list.iter().map(|element| x.map(|x| op.holds(x.cmp(element))));
    let truth = match truths.clone().find(|truth| *truth == Some(!is_all)) {
        Some(truth) => truth,
        None if truths.any(|truth| truth.is_none()) => None,
        None => Some(is_all),
    };
    truth.map_or("null".to_owned(), |truth| truth.to_string())
}

fn or_null<T: ToString>(value: Option<T>) -> String {
    value.map_or("null".to_owned(), |value| value.to_string())
}

fn any_record()
-> impl Strategy<Value = (usize, Option<prop::sample::Index>, Option<i64>, Option<Vec<prop::sample::Index>>)> {
    (
        0..CLASSES.len(),
        prop::option::weighted(0.8, any::<prop::sample::Index>()),
        prop::option::weighted(0.8, prop_oneof![4 => -2i64..7, 1 => any::<i64>()]),
        prop::option::weighted(0.8, prop::collection::vec(any::<prop::sample::Index>(), 0..5)),
    )
}

proptest! {
    #[test]
    fn lists_are_what_a_loop_over_their_elements_says((class, x, i, list) in any_record()) {
        let class = &CLASSES[class];
        let number = |index: &prop::sample::Index| index.index(class.values.len());
        let (x, list) = (x.as_ref().map(number), list.map(|list| list.iter().map(number).collect::<Vec<_>>()));
        let format = format_of(class);
        let bytes = record(class, &format, x, i, list.as_deref());
        let literal = x.map_or("NULL", |x| class.values[x].1);
        for op in OPS {
            for (is_all, word) in [(false, "ANY"), (true, "ALL")] {
                let negated = if is_all { "ANY" } else { "ALL" };
                let sql = format!(
                    "SELECT x {op} {word}(l), {literal} {op} {word} (l), NOT x {op} {word}(l), NOT (x {not} {negated}(l)) FROM s",
                    op = op.sql(),
                    not = OPS[[1, 0, 5, 4, 3, 2][OPS.iter().position(|other| *other == op).unwrap()]].sql(),
                );
                let meant = quantified(op, is_all, x, list.as_deref());
                let opposite = match meant.as_str() { "true" => "false", "false" => "true", _ => "null" }.to_owned();
                prop_assert_eq!(values(&sql, &format, &bytes), [meant.clone(), meant.clone(), opposite, meant], "{}", sql);
            }
        }
        let elements = list.as_deref();
        let at = |i: i64| elements.and_then(|list| list.get(usize::try_from(i - 1).ok()?));
        let text = |element: &usize| class.values[*element].2.to_owned();
        let element_text = if class.element == "bytes" { "encode(l[i], 'hex')" } else { "l[i]::text" };
        let element = i.and_then(|i| at(i.max(i64::MIN + 1))).map(text);
        let element = if class.element == "bytes" { element.map(|text| text[2..].to_owned()) } else { element };
        let position = |from: usize| {
            let x = x?;
            elements?.iter().enumerate().skip(from).find(|(_, element)| **element == x).map(|(at, _)| at + 1)
        };
        let meant = [
            element.clone().unwrap_or("null".to_owned()),
            or_null(elements.map(<[usize]>::len)),
            or_null(elements.map(<[usize]>::len).filter(|len| *len > 0)),
            or_null(position(0)),
            or_null(position(1)),
            or_null(elements.map(|list| list.iter().map(text).collect::<Vec<_>>().join(", "))),
            i.map_or("null".to_owned(), |_| or_null(elements.map(|_| element.is_none()))),
        ];
        let sql = format!(
            "SELECT {element_text}, cardinality(l), array_length(l, 1), array_position(l, x), array_position(l, {literal}, 2), \
             array_to_string(l, ', '), CASE WHEN i IS NOT NULL AND l IS NOT NULL THEN l[i] IS NULL END FROM s"
        );
        let program = planned(&sql, &format);
        prop_assert_eq!(row(&program, &bytes), meant, "{}", sql);
        // As it is shown.
        prop_assert_eq!(row(&planned(&program.to_sql(), &format), &bytes), row(&program, &bytes), "{}", program.to_sql());
    }

    #[test]
    fn lists_of_records_from_elsewhere_are_checked_and_do_no_harm(
        (class, x, _, list) in any_record(),
        start in prop_oneof![any::<u32>(), 0..64u32],
        len in prop_oneof![any::<u32>(), 0..64u32],
    ) {
        let class = &CLASSES[class];
        let number = |index: &prop::sample::Index| index.index(class.values.len());
        let list: Vec<usize> = list.unwrap_or_default().iter().map(number).collect();
        let format = format_of(class);
        let mut bytes = record(class, &format, x.as_ref().map(number), Some(1), Some(&list));
        let slot = format.fields()[2].offset as usize;
        bytes[slot..slot + 4].copy_from_slice(&start.to_le_bytes());
        bytes[slot + 4..slot + 8].copy_from_slice(&len.to_le_bytes());
        let end = u64::from(start) + u64::from(len) * u64::from(format.fields()[2].element().unwrap().stride);
        if len > 0 && (end > bytes.len() as u64 || (start as usize) < format.fixed_bytes()) {
            let error = Record::check(&format, &bytes).unwrap_err();
            prop_assert!(error.to_string().contains('l'), "{error}");
        }
        // Read all the same: anything but a panic, or a walk over what is not there.
        let program = planned(
            "SELECT l[1], l[70], cardinality(l), array_position(l, x), array_to_string(l, ','), x = ANY(l) FROM s WHERE x <> ALL(l)",
            &format,
        );
        let record = Record::assume_checked(&format, &bytes);
        let _ = program.matches(&record);
        let _ = program.project(&record, &mut RecordBuilder::new(&program.output));
    }
}

fn journeys() -> (Format, Vec<u8>) {
    let format = Format::parse_schema(
        "carrier string\nstops string[]\nplan record { km u16[2] }\nlegs record { to string }[]\ngrid i32[][]\nmixed enum u8 { A = 1 }[]\nn i64\npayload bytes null\nnone string[] null\n",
    )
    .unwrap();
    let mut builder = RecordBuilder::new(&format);
    let field = |name: &str| format.field(name).unwrap();
    builder.set_text(field("carrier"), "UA").unwrap();
    builder.begin_list(field("stops")).unwrap();
    ["DEN", "ORD", "DEN"].into_iter().for_each(|stop| builder.push(Value::Text(stop.as_bytes())).unwrap());
    builder.end_list().unwrap();
    builder.begin_list(field("plan.km")).unwrap();
    [1400, 1500].into_iter().for_each(|km| builder.push(Value::Uint(km)).unwrap());
    builder.end_list().unwrap();
    builder.begin_list(field("legs")).unwrap();
    builder.begin_element().unwrap();
    builder.set_text(0, "ORD").unwrap();
    builder.end_element().unwrap();
    builder.end_list().unwrap();
    builder.begin_list(field("grid")).unwrap();
    builder.end_list().unwrap();
    builder.begin_list(field("mixed")).unwrap();
    // The second number has no symbol.
    [1, 9].into_iter().for_each(|number| builder.push(Value::Enum { number, symbol: None }).unwrap());
    builder.end_list().unwrap();
    builder.set(field("n"), Value::Int(2)).unwrap();
    let bytes = builder.finish().unwrap().to_vec();
    (format, bytes)
}

#[test]
fn operands_of_all_forms() {
    let (format, bytes) = journeys();
    for (expression, meant) in [
        ("stops[1]", "DEN"),
        ("(stops)[n]", "ORD"),
        ("s.stops[n + 1]", "DEN"),
        ("s.plan.km[2]", "1500"),
        ("plan.km[1] + 1", "1401"),
        ("upper(stops[4])", "null"),
        ("stops[0]", "null"),
        ("stops[- 1]", "null"),
        ("stops[NULL]", "null"),
        ("cardinality(legs)", "1"),
        ("cardinality(grid)", "0"),
        ("array_length(grid, 1)", "null"),
        ("array_length(stops, 2)", "null"),
        ("cardinality(plan.km)", "2"),
        ("array_position(stops, 'DEN', 2)", "3"),
        ("array_position(stops, 'DEN', -5)", "1"),
        ("array_position(stops, NULL)", "null"),
        ("array_position(plan.km, 1500.0)", "2"),
        ("1500 = ANY(plan.km)", "true"),
        ("stops[1] = SOME(stops)", "true"),
        ("1400.5 < ALL(plan.km)", "false"),
        ("NULL = ANY(stops)", "null"),
        // Of no elements.
        ("array_to_string(mixed, '-')", "A"),
        ("'A' = ANY(mixed)", "true"),
        ("'B' = ANY(mixed)", "null"),
        ("mixed[2]", "null"),
        ("carrier = ANY(ARRAY['AA', 'UA'])", "true"),
        ("carrier <> ALL(ARRAY['AA', 'UA'])", "false"),
        ("n <> ALL((ARRAY[1, NULL]))", "null"),
        ("stops @> ARRAY['ORD', 'DEN']", "true"),
        ("stops @> ARRAY[carrier, 'DEN']", "false"),
        ("ARRAY['ORD'] <@ stops", "true"),
        ("stops && ARRAY['JFK', 'ORD']", "true"),
        ("ARRAY['JFK'] && stops", "false"),
        ("none @> ARRAY['ORD', NULL]", "null"),
        ("none && ARRAY['ORD', carrier]", "null"),
        // A null is equal to nothing: an element without a symbol, and a value.
        ("mixed @> ARRAY['A']", "true"),
        ("mixed @> ARRAY['B']", "false"),
        ("mixed && ARRAY['B', 'C']", "false"),
        ("stops @> ARRAY['ORD', NULL]", "false"),
        ("stops && ARRAY['JFK', NULL]", "false"),
        ("stops && ARRAY[NULL, 'ORD']", "true"),
        ("ARRAY[nullif(carrier, 'UA')] <@ stops", "false"),
        ("legs IS NULL", "false"),
        ("(legs) IS NOT NULL", "true"),
    ] {
        let program = planned(&format!("SELECT {expression} AS y FROM s"), &format);
        assert_eq!(row(&program, &bytes), [meant], "{expression}");
        assert_eq!(row(&planned(&program.to_sql(), &format), &bytes), [meant], "{}", program.to_sql());
    }
    let program = planned(
        "SELECT stops[1], s.plan.km[1], (stops)[2], n FROM s WHERE 'ORD' = ANY(stops) AND NOT n <> ALL(plan.km)",
        &format,
    );
    let names: Vec<&str> = program.output.fields().iter().map(|field| field.name.as_str()).collect();
    assert_eq!(names, ["stops", "km", "stops_2", "n"]);
    let explained = program.explain();
    assert_eq!(explained.filter, ["'ORD' = ANY(stops)", "n = ANY(\"plan.km\")"]);
    assert!(!explained.row_errors_possible);
}

/// Parameters take the type of the elements, and of the number of one.
#[test]
fn parameters_stand_beside_lists() {
    let (format, bytes) = journeys();
    let sql = "SELECT stops[$at], array_position(plan.km, $km) FROM s WHERE $stop = ANY(stops)";
    let given = |at: &str, km: &str, stop: &str| {
        BTreeMap::from(
            [("at", at), ("km", km), ("stop", stop)].map(|(name, value)| (name.to_owned(), value.to_owned())),
        )
    };
    let program = parse(sql).unwrap().plan_with(&format, &given("2", "1500", "JFK")).unwrap();
    assert!(!program.matches(&Record::check(&format, &bytes).unwrap()));
    let program = program.with_values(&given("3", "7", "ORD")).unwrap();
    assert!(program.matches(&Record::check(&format, &bytes).unwrap()));
    assert_eq!(row(&program, &bytes), ["DEN", "null"]);
    let error = program.with_values(&given("x", "7", "ORD")).unwrap_err();
    assert!(error.to_string().contains("$at"), "{error}");
}

#[test]
fn misused_lists_are_refused_with_their_place_and_what_is_taken() {
    let (format, _) = journeys();
    for (expression, message) in [
        ("stops = 'ORD'", "line 1, column 8: `stops` is a list\n"),
        ("carrier IN (stops)", "`stops` is a list\n"),
        ("upper(stops)", "`upper` cannot be called with a list\n"),
        ("coalesce(stops, stops)", "`coalesce` cannot be called with a list, a list\n"),
        ("cardinality(carrier)", "`cardinality` cannot be called with string\n"),
        ("array_to_string(NULL, ',')", "`array_to_string` cannot be called with NULL, a text\n"),
        ("'UA' = ANY(carrier)", "line 1, column 19: ANY takes a list, and `carrier` is string\n"),
        ("'UA' = ANY('{UA}')", "line 1, column 19: ANY takes a list, and '{UA}' is a text\n"),
        ("5 = ANY(stops)", "line 1, column 8: `stops` is a list of string and 5 is a number: these do not compare\n"),
        (
            "'x' = ANY(plan.km)",
            "line 1, column 8: `plan.km` is a list of u16 and 'x' is a text: these do not compare\n",
        ),
        ("array_position(stops, n)", "`stops` is a list of string and `n` is i64: these do not compare\n"),
        ("'UA' LIKE ANY(stops)", "LIKE ANY is not possible\n"),
        ("'UA' ~ ANY(stops)", "~ before ANY is not possible\n"),
        ("'UA' = ANY(legs)", "`legs` is a list of records, and operands are elements that are single values\n"),
        ("grid[1]", "line 1, column 8: `grid` is a list of lists, and operands are elements that are single values\n"),
        ("grid[1][1]", "access to a part of a value is not possible\n"),
        ("legs[1].to", "access to a part of a value is not possible\n"),
        ("stops[1:2]", "line 1, column 8: a slice of a list is not possible\n"),
        ("stops['x']", "line 1, column 14: the number of an element is whole, and 'x' is a text\n"),
        ("stops[1.5]", "the number of an element is whole, and 1.5 is a number\n"),
        ("carrier[1]", "line 1, column 8: `carrier` is string, and only lists have elements\n"),
        ("n[1]", "line 1, column 8: `n` is i64, and only lists have elements\n"),
        ("payload[1]", "line 1, column 8: `payload` is bytes, and only lists have elements\n"),
        ("5[1]", "5 is a number, and only lists have elements\n"),
        ("stopps[1]", "stream s has no column `stopps`\n"),
        ("ARRAY[1, 2]", "an array by itself is not possible\n"),
        ("n > ANY(ARRAY[1, 2])", "> ANY of ARRAY[…] is not possible\n"),
        ("n = ANY(ARRAY[])", "the array is empty\n"),
        ("n = ANY(ARRAY['x'])", "these do not compare\n"),
        ("stops @> stops", "@> compares a list with ARRAY[…]\n"),
        ("stops <@ ARRAY['x']", "<@ compares a list with ARRAY[…]\n"),
        ("carrier && ARRAY['x']", "&& takes a list, and `carrier` is string\n"),
        ("list_contains(stops, 'x')", "there is no function `list_contains`\n"),
        ("n = ANY(SELECT 1)", "a query within a query is not possible\n"),
    ] {
        let error = refused(&format!("SELECT {expression} FROM s"), &format);
        assert!(error.contains(message), "{expression}: {error}");
        assert!(error.contains("\nhint: "), "{expression}: {error}");
    }
}

/// In queries with state a list is an operand wherever a column is: in conditions, keys, aggregates, and of `array_agg`.
#[test]
fn queries_with_state_have_operands_of_lists() {
    let (format, _) = journeys();
    let other = Format::parse_schema("stop string\nname string\n").unwrap();
    for sql in [
        "SELECT stops[1] AS first, sum(cardinality(stops)) AS n, count(*) FILTER (WHERE 'ORD' = ANY(stops)) AS of_ord FROM s \
         WHERE carrier <> ALL(stops) GROUP BY stops[1]",
        "SELECT carrier, (array_agg(n))[1] AS first FROM s GROUP BY carrier HAVING cardinality(array_agg(n)) > 2 AND 5 = ANY(array_agg(n))",
        "SELECT first, q.stops[2] AS second FROM (SELECT stops[1] AS first, stops FROM s WHERE cardinality(legs) > 0) q",
        "SELECT s.carrier, o.name FROM s JOIN o ON s.stops[1] = o.stop AND o.stop = ANY(s.stops)",
        "SELECT carrier, array_to_string(stops, ' ') AS way, lag(stops[1]) OVER (PARTITION BY stops[2]) AS before FROM s",
        "SELECT DISTINCT stops[1] AS first FROM s",
    ] {
        let Query::Stateful(query) = parse_query(sql).unwrap() else { panic!("{sql} has state") };
        let streams = [("s", &format), ("o", &other)];
        let read: Vec<(&str, &Format)> =
            streams.into_iter().filter(|(stream, _)| query.streams().contains(stream)).collect();
        query.plan(&read, &BTreeMap::new()).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    let Query::Stateful(query) =
        parse_query("SELECT (array_agg(carrier))[n] AS x FROM s GROUP BY n HAVING 5 = ANY(array_agg(carrier))")
            .unwrap()
    else {
        panic!("it has state")
    };
    let error = query.plan(&[("s", &format)], &BTreeMap::new()).unwrap_err().to_string();
    assert!(error.contains("is a list of string and 5 is a number"), "{error}");
}

#[test]
fn the_order_of_values_is_that_of_the_table() {
    for class in CLASSES {
        let order = |left: usize, right: usize| {
            let format = format_of(class);
            let bytes = record(class, &format, Some(left), None, Some(&[right]));
            values("SELECT x < ALL(l), x = ALL(l) FROM s", &format, &bytes)
        };
        for left in 0..class.values.len() {
            for right in 0..class.values.len() {
                let meant = [left.cmp(&right) == Ordering::Less, left == right].map(|truth| truth.to_string());
                assert_eq!(order(left, right), meant, "{}", class.element);
            }
        }
    }
}
