//! Text from outside: whatever it says, the answer is a plan or an error, soon, and on a thread's usual stack.
#![allow(clippy::unwrap_used)] // a test that fails may panic

use crossdock_format::{FieldSpec, FieldType, Format, TypeSpec};
use crossdock_query::{MAX_NESTING, MAX_OPERATORS, MAX_SQL_BYTES, QueryError, parse};
use proptest::prelude::*;

fn format() -> Format {
    Format::natural([
        FieldSpec::nullable("a", FieldType::I64),
        FieldSpec::nullable("b", FieldType::Bool),
        FieldSpec::nullable("s", FieldType::String),
        FieldSpec::new("t", FieldType::Timestamp),
        FieldSpec::new("l", TypeSpec::list(FieldType::I64)),
    ])
    .unwrap()
}

/// Parses, plans, explains, clones and drops; whatever comes out, it came out.
fn digest(sql: &str) -> Result<(), QueryError> {
    let outcome = parse(sql).and_then(|select| select.clone().plan(&format()));
    if let Ok(program) = &outcome {
        let _ = program.explain().to_string();
    }
    outcome.map(|_| ()).inspect_err(|error| {
        let _ = error.to_string();
    })
}

/// The message of the error that must come.
fn refusal(sql: &str) -> String {
    digest(sql).unwrap_err().message
}

#[test]
fn chains_as_long_as_the_bound_are_no_danger() {
    let most = MAX_OPERATORS - 8;
    let chain = |operand: &str, operator: &str, count: usize| vec![operand; count].join(operator);
    // AND and OR may be as long as operators may be many; each term here has one operator of its own.
    digest(&format!("SELECT a FROM s WHERE {}", chain("a = 1", " AND ", most / 2))).unwrap();
    digest(&format!("SELECT a FROM s WHERE {}", chain("b", " OR ", most))).unwrap();
    digest(&format!("SELECT {} FROM s", chain("s", " || ", most))).unwrap();
    for operator in [" + ", " * ", " - ", " % "] {
        let message = refusal(&format!("SELECT {} FROM s", chain("a", operator, most)));
        assert!(message.contains("within each other"), "{message}");
    }
    for suffix in [" IS NULL", "::int", " IS NOT TRUE", " IN (1)", " NOTNULL", "[1]", " COLLATE c"] {
        let _ = digest(&format!("SELECT a{} FROM s", suffix.repeat(most / 4)));
    }
    for wrong in ["(a = 1", "a = 1)", "a + 'x'", "nope"] {
        let _ = digest(&format!("SELECT a FROM s WHERE {} AND {wrong}", chain("a = 1", " AND ", most / 2 - 8)));
        let _ = digest(&format!("SELECT a FROM s WHERE {} || {wrong}", chain("s", " || ", most - 8)));
    }
}

#[test]
fn nesting_is_bounded() {
    let nested = |open: &str, inner: &str, close: &str, depth: usize| {
        format!("SELECT {}{inner}{} FROM s", open.repeat(depth), close.repeat(depth))
    };
    let forms = [
        ("(", "a", ")"),
        ("- ", "a", ""),
        ("NOT ", "b", ""),
        ("CASE WHEN b THEN ", "a", " END"),
        ("CASE a WHEN 1 THEN 1 ELSE ", "a", " END"),
        ("COALESCE(a, ", "a", ")"),
        ("CAST(", "a", " AS bigint)"),
        ("a IN (1, ", "a", ")"),
        ("a + (", "a", ")"),
        ("a BETWEEN 1 AND (", "a", ")"),
        ("s LIKE (", "s", ")"),
        ("EXISTS (", "a", ")"),
        ("ARRAY[", "a", "]"),
        ("f(", "a", ")"),
        ("((a, ", "a", "))"),
        ("INTERVAL ", "'1'", ""),
        ("{fn f(", "a", ")}"),
        ("IF(", "a", ")"),
        ("case-", "c", ""),
        ("a.", "a", ""),
        ("CASE ", "a", ""),
        ("TIMESTAMP ", "'x'", ""),
        ("ROW(", "a", ")"),
        ("STRUCT(", "a", ")"),
        ("a -> ", "a", ""),
        ("[", "a", "]"),
        ("l[", "1", "]"),
        ("(l)[", "1", "]"),
        ("1 = ANY(", "l", ")"),
        ("1 < ALL(ARRAY[", "1", "])"),
        ("l @> ARRAY[", "1", "]"),
    ];
    for (open, inner, close) in forms {
        digest(&nested(open, inner, close, 2)).map_or_else(drop, drop);
        for depth in [MAX_NESTING - 4, MAX_NESTING, MAX_NESTING + 1, 500, 1000] {
            let _ = digest(&nested(open, inner, close, depth));
            let _ = digest(&format!("SELECT a FROM s WHERE {}", open.repeat(depth)));
            let _ = digest(&format!("SELECT a FROM {}", open.repeat(depth)));
        }
    }
    let message = refusal(&nested("(", "a", ")", MAX_NESTING + 1));
    assert!(message.contains("deeper than"), "{message}");
    digest(&nested("(", "a", ")", MAX_NESTING - 4)).unwrap();
}

#[test]
fn the_bounds_are_reported() {
    let long = format!("SELECT a FROM s WHERE s = '{}'", "x".repeat(MAX_SQL_BYTES));
    assert!(refusal(&long).contains("bytes long"));
    let many = format!("SELECT a FROM s WHERE {}", vec!["a = 1"; MAX_OPERATORS].join(" OR "));
    assert!(refusal(&many).contains("operators"));
    let list: Vec<String> = (0..9000).map(|number| number.to_string()).collect();
    digest(&format!("SELECT a FROM s WHERE a IN ({})", list.join(","))).unwrap();
    digest(&format!(
        "SELECT a FROM s WHERE a = ANY(ARRAY[{list}]) OR l @> ARRAY[{list}]",
        list = list[..5000].join(",")
    ))
    .unwrap();
    let columns = vec!["a"; 5000].join(",");
    assert!(refusal(&format!("SELECT {columns} FROM s")).contains("columns"));
    let message = refusal(&format!("SELECT {} FROM s", vec!["*"; 2000].join(",")));
    assert!(message.contains("columns"), "{message}");
}

#[test]
fn odd_texts() {
    for sql in [
        "",
        ";",
        " \n\t ",
        "--",
        "/*",
        "/* /* */",
        "\0",
        "SELECT \0 FROM s",
        "SELECT 'a\0b' FROM s",
        "SELECT E'\\0' FROM s",
        "SELECT U&'\\0000' FROM s",
        "SELECT $$a$$ FROM s",
        "SELECT $1 FROM s",
        "SELECT \u{feff}a FROM s",
        "SELECT é FROM s WHERE 日本 = '日本'",
        "SELECT a FROM \"\"",
        "SELECT a AS \"\u{1}\" FROM s",
        "SELECT -9223372036854775808, - 9223372036854775808, 18446744073709551615 FROM s",
        "SELECT -(9223372036854775808), -(-9223372036854775808) FROM s",
        "SELECT 1 / 0, 1 % 0, 9223372036854775807 + 1, -(-9223372036854775807 - 1) FROM s",
        "SELECT 1e308 * 10, 1e-308 / 1e10, 0.0 / 0.0 FROM s",
        "SELECT a FROM s WHERE a=-5 AND a>-5 AND a<-5 AND a<>-5 AND a*-5=a",
        "SELECT a FROM s WHERE s LIKE '%' ESCAPE '%'",
        "SELECT 'NaN'::f64 = 'NaN'::f64, 'inf'::f32 FROM s",
        "SELECT CAST('99999-01-01' AS timestamp) FROM s",
        "SELECT (((t)))::text::timestamp::bigint::timestamp FROM s",
    ] {
        let _ = digest(sql);
    }
    digest("SELECT a FROM s WHERE a=-5 AND a>-5 AND a<-5 AND a<>-5 AND a*-5=a").unwrap();
}

/// Pieces of queries, in no order.
const WORDS: &str = "SELECT FROM WHERE AND OR NOT IN BETWEEN LIKE ILIKE ESCAPE IS NULL TRUE CASE WHEN THEN ELSE END COALESCE \
    NULLIF CAST AS DISTINCT TIMESTAMP INTERVAL EXISTS ANY ALL ARRAY ROW AT TIME ZONE OVER FILTER a b s t l * , ( ) + - / % || = <> < \
    >= :: . ; [ ] { } 1 1.5 1e9 'x' '' '2013-01-01' \"a\" int char(3) text $1 : ~ -> @ @> && # ' \" /* -- \n é \0";

fn fragments() -> impl Strategy<Value = String> {
    let words = prop::sample::select(WORDS.split(' ').collect::<Vec<&str>>());
    prop::collection::vec(words, 0..40).prop_map(|words| words.join(" "))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_text_is_answered(sql in any::<String>()) {
        let _ = digest(&sql);
    }

    #[test]
    fn any_words_are_answered(words in fragments()) {
        let _ = digest(&words);
        let _ = digest(&format!("SELECT {words} FROM s"));
        let _ = digest(&format!("SELECT a FROM s WHERE {words}"));
    }
}
