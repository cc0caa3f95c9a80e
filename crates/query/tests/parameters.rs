//! Queries with parameters mean what the queries mean that have the values written in them.
#![allow(clippy::unwrap_used)] // a test that fails may panic

mod generate;

use std::collections::BTreeMap;

use crossdock_format::{Format, Record, RecordBuilder};
use crossdock_query::{EvalError, Interpreter, Program, Projection, QueryError, parse};
use generate::{Row, format, row};
use proptest::prelude::*;

type Values = BTreeMap<String, String>;

fn values(pairs: &[(&str, &str)]) -> Values {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn planned(sql: &str, values: &Values, format: &Format) -> Result<Program, QueryError> {
    parse(sql)?.plan_with(format, values)
}

/// A query with parameters `$x` and `$y`, and values of them that go together. The query without parameters has the
/// second text in place of `$x`, and the third in place of `$y`.
struct Case {
    sql: &'static str,
    values: &'static [[(&'static str, &'static str); 2]],
}

/// Texts as given, and as written.
const CASES: &[Case] = &[
    Case {
        sql: "SELECT * FROM s WHERE a > $x AND i <= $y",
        values: &[[("5", "5"), ("-3", "-3")], [("-9223372036854775808", "-9223372036854775808"), (" 7 ", "7")]],
    },
    Case {
        sql: "SELECT * FROM s WHERE $x < f OR g = $y",
        values: &[[("1.5", "1.5"), ("2", "2.0")], [("-1e3", "-1e3"), ("0.125", "0.125")]],
    },
    Case {
        sql: "SELECT * FROM s WHERE u IN ($x, 3, $y)",
        values: &[[("18446744073709551615", "18446744073709551615"), ("0", "0")], [("4", "4"), ("5", "5")]],
    },
    Case {
        sql: "SELECT * FROM s WHERE s = $x OR c IN ($y, 'JFK')",
        values: &[[("it's", "'it''s'"), ("5", "'5'")], [("", "''"), ("x%", "'x%'")]],
    },
    Case {
        sql: "SELECT * FROM s WHERE s LIKE $x OR c NOT ILIKE $y",
        values: &[[("%a%", "'%a%'"), ("J_K", "'J_K'")], [("A\\%", "'A\\%'"), ("x%", "'x%'")]],
    },
    Case {
        sql: "SELECT * FROM s WHERE t >= $x AND t IS DISTINCT FROM $y",
        values: &[
            [("2013-01-02T05:00:00Z", "'2013-01-02T05:00:00Z'"), ("1970-01-01", "'1970-01-01'")],
            [("2013-01-01 05:00:00", "'2013-01-01 05:00:00'"), ("2013-01-01T07:00:00+02:00", "'2013-01-01T05:00:00Z'")],
        ],
    },
    Case {
        sql: "SELECT * FROM s WHERE a BETWEEN $x AND $y",
        values: &[[("1", "1"), ("9", "9")], [("9", "9"), ("1", "1")], [("-5", "-5"), ("-5", "-5")]],
    },
    Case {
        sql: "SELECT * FROM s WHERE a NOT BETWEEN $x AND $y AND NOT $y <> i",
        values: &[[("1", "1"), ("9", "9")], [("0", "0"), ("0", "0")]],
    },
    Case {
        sql: "SELECT * FROM s WHERE d > $x AND d * 2 < $y",
        values: &[[("0.1", "0.1"), ("100.5", "100.5")], [("-1", "-1"), (" 0.125 ", "0.125")]],
    },
    Case {
        sql: "SELECT s, regexp_replace(s, $x, '-', 'g') AS r FROM s WHERE s ~ $y",
        values: &[[("^[A-J]", "'^[A-J]'"), ("a", "'a'")], [("a|b", "'a|b'"), ("\\d", "'\\d'")]],
    },
    Case {
        sql: "SELECT left(s, $x) AS l, date_trunc($y, t) AS d FROM s",
        values: &[[("2", "2"), ("hour", "'hour'")], [("-1", "-1"), ("week", "'week'")]],
    },
    Case {
        sql: "SELECT * FROM s WHERE b = $x OR $y",
        values: &[[("true", "TRUE"), ("f", "FALSE")], [("no", "FALSE"), ("on", "TRUE")]],
    },
    Case {
        sql: "SELECT a + $x AS sum, a / $y AS quotient FROM s",
        values: &[[("5", "5"), ("2", "2")], [("9223372036854775807", "9223372036854775807"), ("0", "0")]],
    },
    Case {
        sql: "SELECT f * $x AS p, -($y) AS n, i - $y AS m FROM s",
        values: &[[("2", "2"), ("7", "7")], [("-7.25", "-7.25"), ("-9223372036854775808", "-9223372036854775808")]],
    },
    Case {
        sql: "SELECT $x AS x, s || $y AS y FROM s WHERE $x = a",
        values: &[[("5", "5"), ("5", "'5'")], [("-12", "-12"), ("", "''")]],
    },
    Case {
        sql: "SELECT CASE WHEN a > $x THEN i ELSE $y END AS k FROM s",
        values: &[[("2", "2"), ("7", "CAST(7 AS smallint)")], [("-2", "-2"), ("-32768", "CAST(-32768 AS smallint)")]],
    },
    Case {
        sql: "SELECT COALESCE(s, $x) AS k, CASE c WHEN $y THEN 1 WHEN 'LAX' THEN 2 END AS l FROM s",
        values: &[[("none", "'none'"), ("JFK", "'JFK'")], [("5", "'5'"), ("a", "'a'")]],
    },
    Case {
        sql: "SELECT CAST($x AS smallint) AS k, $y::text || 'x' AS l, NULLIF(a, $x) AS m FROM s",
        values: &[[("5", "'5'"), ("5", "'5'")], [("-1", "'-1'"), ("true", "'true'")]],
    },
    Case {
        sql: "SELECT * FROM s WHERE $x = $y OR COALESCE($x, $y) > 3",
        values: &[[("5", "5"), ("5", "5")], [("1", "1"), ("9", "9")]],
    },
    Case {
        sql: "SELECT * FROM s WHERE $x IS NOT NULL AND a IN (1, NULL, $x) AND $x <> $y",
        values: &[[("5", "5"), ("4", "4")], [("2", "2"), ("2", "2")]],
    },
];

/// A number is written as one where numbers stand: `NULLIF(a, '5')` is refused, `NULLIF(a, $x)` is not.
fn written(sql: &str, [x, y]: &[(&str, &str); 2]) -> String {
    sql.replace("NULLIF(a, $x)", &format!("NULLIF(a, {})", x.0)).replace("$x", x.1).replace("$y", y.1)
}

fn outcome(program: &Program, row: &Row) -> Result<Option<Vec<u8>>, EvalError> {
    let mut input = RecordBuilder::new(&program.input);
    let bytes = row.bytes(&mut input);
    let record = Record::check(&program.input, &bytes).unwrap();
    let mut interpreter = Interpreter::new();
    if !interpreter.matches(program, &record)? {
        return Ok(None);
    }
    if matches!(program.projection, Projection::All) {
        return Ok(Some(bytes.clone()));
    }
    let mut made = RecordBuilder::new(&program.output);
    interpreter.project(program, &record, &mut made)?;
    Ok(Some(made.finish().unwrap().to_vec()))
}

proptest! {
    #[test]
    fn parameters_mean_their_values(rows in prop::collection::vec(row(), 6), first in 0..9usize, then in 0..9usize) {
        let format = format();
        for case in CASES {
            let pick = |index: usize| &case.values[index % case.values.len()];
            let [from, to] = [pick(first), pick(then)];
            let given = |[x, y]: &[(&str, &str); 2]| values(&[("x", x.0), ("y", y.0)]);
            let before = planned(case.sql, &given(from), &format).unwrap_or_else(|error| panic!("{error}"));
            prop_assert_eq!(&before.parameters, &["x", "y"].iter().filter(|name| case.sql.contains(&format!("${name}"))).map(ToString::to_string).collect::<Vec<_>>());
            let changed = before.with_values(&given(to)).unwrap_or_else(|error| panic!("{error}"));
            prop_assert_eq!(changed.output.id(), before.output.id());
            let fresh = planned(case.sql, &given(to), &format).unwrap();
            let sql = written(case.sql, to);
            let literal = parse(&sql).and_then(|select| select.plan(&format)).unwrap_or_else(|error| panic!("{error}"));
            let types = |program: &Program| program.output.fields().iter().map(|field| field.ty).collect::<Vec<_>>();
            prop_assert_eq!(types(&fresh), types(&literal), "{}", case.sql);
            for row in &rows {
                let expected = outcome(&literal, row);
                for program in [&changed, &fresh] {
                    let found = outcome(program, row);
                    let shape = |outcome: &Result<Option<Vec<u8>>, EvalError>| outcome.as_ref().map(Option::is_some).map_err(|e| *e);
                    prop_assert_eq!(shape(&found), shape(&expected), "{} with {:?} for {:?}", case.sql, to, row);
                    // A value of a parameter may be null where that of a constant is known not to be.
                    if program.output.id() == literal.output.id() {
                        prop_assert_eq!(&found, &expected, "{} with {:?} for {:?}", case.sql, to, row);
                    }
                }
            }
        }
    }
}

#[test]
fn a_parameter_is_never_folded_away() {
    let format = format();
    for (sql, was, is, passes) in [
        ("SELECT * FROM s WHERE $x", "true", "false", false),
        ("SELECT * FROM s WHERE $x AND TRUE", "false", "true", true),
        ("SELECT * FROM s WHERE $x > 5", "1", "6", true),
        ("SELECT * FROM s WHERE NOT ($x + 1 = 3 OR FALSE)", "1", "2", false),
        ("SELECT * FROM s WHERE CASE WHEN $x = 'a' THEN TRUE ELSE FALSE END", "b", "a", true),
        ("SELECT * FROM s WHERE COALESCE(NULL, $x) || 'b' LIKE 'a_'", "b", "a", true),
    ] {
        let program = planned(sql, &values(&[("x", was)]), &format).unwrap();
        let row = Row {
            a: None,
            i: 0,
            u: None,
            f: None,
            g: 0.0,
            b: None,
            s: None,
            c: String::new(),
            t: None,
            d: None,
            l: None,
            m: vec![],
        };
        assert_eq!(outcome(&program, &row).unwrap().is_some(), !passes, "{sql}");
        let program = program.with_values(&values(&[("x", is)])).unwrap();
        assert_eq!(outcome(&program, &row).unwrap().is_some(), passes, "{sql}");
        assert!(!program.passes_nothing());
    }
}

#[test]
fn parameters_are_shown_by_name() {
    let program =
        planned("SELECT a + $1 AS b FROM s WHERE $late < i", &values(&[("1", "2"), ("late", "3")]), &format());
    let explained = program.unwrap().explain();
    assert_eq!(explained.filter, ["i > $late"]);
    assert_eq!(explained.output[0].from.as_deref(), Some("a + $1"));
    let names: Vec<String> =
        parse("SELECT $b, $a, $b FROM s").unwrap().parameters().iter().map(|p| p.0.clone()).collect();
    assert_eq!(names, ["b", "a"]);
}

#[test]
fn values_that_do_not_fit_are_refused_at_their_place() {
    let refused = |sql: &str, given: &[(&str, &str)]| planned(sql, &values(given), &format()).unwrap_err().to_string();
    for (sql, given, expected) in [
        ("SELECT * FROM s WHERE a > $late", &[][..], "line 1, column 27: the parameter $late has no value"),
        ("SELECT * FROM s", &[("x", "1")], "the query has no parameter `x`\nhint: a parameter is written $name"),
        (
            "SELECT $late AS x FROM s",
            &[("late", "1"), ("lat", "1")],
            "the query has no parameter `lat`\nhint: did you mean `late`?",
        ),
        (
            "SELECT * FROM s WHERE a > $1",
            &[("1", "1.5")],
            "line 1, column 27: the parameter $1 is i64 here, and `1.5` is none",
        ),
        (
            "SELECT * FROM s WHERE u = $1",
            &[("1", "-1")],
            "line 1, column 27: the parameter $1 is u64 here, and `-1` is none",
        ),
        (
            "SELECT * FROM s WHERE f < $1",
            &[("1", "x")],
            "line 1, column 27: the parameter $1 is f64 here, and `x` is none",
        ),
        ("SELECT * FROM s WHERE f < $1", &[("1", "1e999")], "line 1, column 27: the parameter $1 is f64 here"),
        (
            "SELECT * FROM s WHERE t = $t",
            &[("t", "noon")],
            "line 1, column 27: the parameter $t is timestamp here, and `noon` is none",
        ),
        ("SELECT * FROM s WHERE b AND $t", &[("t", "5 a")], "line 1, column 29: the parameter $t is bool here"),
        (
            "SELECT COALESCE(i, $x) AS k FROM s",
            &[("x", "40000")],
            "line 1, column 20: the parameter $x is i16 here, and `40000` is none",
        ),
        ("SELECT COALESCE(c, $x) AS k FROM s", &[("x", "long")], "line 1, column 20: the parameter $x is char[3] here"),
        ("SELECT a + $x AS k FROM s", &[("x", "b")], "line 1, column 12: + takes numbers"),
        ("SELECT s || $x AS k FROM s", &[("x", "a\0")], "line 1, column 13: the parameter $x: a text cannot hold NUL"),
        (
            "SELECT * FROM s WHERE s LIKE $x",
            &[("x", "a\\")],
            "line 1, column 30: the pattern ends in its escape character",
        ),
    ] {
        let found = refused(sql, given);
        assert!(found.starts_with(expected), "{found}\nexpected {expected}");
    }
    // The same for values that come later.
    let program =
        planned("SELECT * FROM s WHERE a > $x AND s LIKE $y", &values(&[("x", "1"), ("y", "%")]), &format()).unwrap();
    for (given, expected) in [
        (&[("x", "1")][..], "the parameter $y has no value"),
        (&[("x", "1"), ("y", "%"), ("z", "%")], "the query has no parameter `z`"),
        (&[("x", "1.0"), ("y", "%")], "line 1, column 27: the parameter $x is i64 here, and `1.0` is none"),
        (&[("x", "1"), ("y", "a\\")], "line 1, column 41: the pattern of $y ends in its escape character"),
    ] {
        let found = program.with_values(&values(given)).unwrap_err().to_string();
        assert!(found.starts_with(expected), "{found}\nexpected {expected}");
    }
}

proptest! {
    /// Any text is a value or refused.
    #[test]
    fn any_value_is_taken_or_refused(x in "\\PC{0,12}|[-+0-9.eE \0]{0,12}", y in any::<String>()) {
        for case in CASES {
            let given = values(&[("x", &x), ("y", &y)]);
            if let Ok(program) = planned(case.sql, &given, &format()) {
                prop_assert!(program.with_values(&given).is_ok());
            }
        }
    }
}
