//! Functions, as we write them and as DuckDB does.

use crate::case::Rule;

/// Functions that are written alike in both dialects.
const ALIKE: &[&str] = &[
    "upper(s)",
    "lower(s)",
    "length(s)",
    "octet_length(x)",
    "reverse(s)",
    "left(s, i)",
    "right(s, i)",
    "strpos(s, c)",
    "replace(s, 'a', c)",
    "translate(s, 'abJ', 'x')",
    "starts_with(s, c)",
    "ltrim(s)",
    "rtrim(s, 'X')",
    "ascii(s)",
    "concat(s, c, i)",
    "concat_ws('-', s, c)",
    "coalesce(nullif(s, c), 'none')",
    "greatest(s, c)",
    "least(a, i)",
    "sign(d)",
    "ceil(d)",
    "floor(d)",
    "round(d, 1)",
    "round(d, -1)",
    "d * 3",
    "d + 0.005",
    "d * 3 = 0.3",
    "d > 0.1",
    "d BETWEEN -1.5 AND 2",
    "gcd(i, 12)",
    "pi()",
    "chr(100 + i)",
    "ceil(f)",
    "floor(f)",
    "sqrt(f)",
    "greatest(a, NULL, i)",
    "position(c IN s)",
    "substring(s FROM 2 FOR 2)",
    "trim(BOTH 'X' FROM s)",
    "split_part(s, 'b', 2)",
    "lpad(s, 4, 'xy')",
    "rpad(s, 4, 'xy')",
    "json_array_length('[1, [2]]')",
    r#"'{"a":{"b":[1]}}' ->> 'a'"#,
    "f IN (1.5, -2.25, 0)",
    "f IS NOT DISTINCT FROM g",
    "e",
    "e = 'BUY'",
    "upper(e) || s",
    "coalesce(e, 'none') < 'SELL'",
    "x IS NULL",
    "nullif(b, f > 0)",
    "t",
    "x",
];

/// Ours, and DuckDB's; `MICROS` is its time of the column `t`.
const UNLIKE: &[(&str, &str)] = &[
    // DuckDB computes it in the column's own type, which may be narrower.
    ("abs(a)", "abs(a::HUGEINT)"),
    ("repeat(s, i)", "repeat(s, i::BIGINT)"),
    ("s ~ '^[A-J]'", "regexp_matches(s, '^[A-J]')"),
    ("s ~* 'F|b'", "regexp_matches(s, 'F|b', 'i')"),
    (r"regexp_replace(s, '([a-z])', '<\1>', 'g')", r"regexp_replace(s, '([a-z])', '<\1>', 'g')"),
    ("regexp_substr(s, '[A-Z]+')", "nullif(regexp_extract(s, '[A-Z]+'), '')"),
    ("encode(sha256(s), 'hex')", "sha256(s)"),
    ("encode(x, 'hex')", "lower(hex(x))"),
    ("encode(x, 'base64')", "base64(x)"),
    (r"x < '\x0a'", r"x < '\x0A'::BLOB"),
    (r"x = '\x00ff' OR x > '\xc3'", r"x = '\x00\xFF'::BLOB OR x > '\xC3'::BLOB"),
    ("to_char(t, 'YYYY-MM-DD HH24:MI:SS')", "strftime(MICROS, '%Y-%m-%d %H:%M:%S')"),
    ("to_char(t, 'Dy DDD HH12 AM')", "strftime(MICROS, '%a %j %I %p')"),
    (
        "to_char(date_trunc('second', t) + INTERVAL '1 month -2 days', 'YYYY-MM-DD HH24:MI:SS')",
        "strftime(MICROS + INTERVAL 1 MONTH - INTERVAL 2 DAY, '%Y-%m-%d %H:%M:%S')",
    ),
    ("round(f)", "round_even(f, 0)"),
    ("TRY(a::smallint)", "TRY_CAST(a AS SMALLINT)"),
    ("TRY(a::i8)", "TRY_CAST(a AS TINYINT)"),
    ("TRY(a::u64)", "TRY_CAST(a AS UBIGINT)"),
    ("TRY(a::u16)", "TRY_CAST(a AS USMALLINT)"),
    ("TRY(u::bigint)", "TRY_CAST(u AS BIGINT)"),
    ("TRY(f::bigint)", "TRY_CAST(f AS BIGINT)"),
    ("TRY(f::smallint)", "TRY_CAST(f AS SMALLINT)"),
    ("TRY(f::u8)", "TRY_CAST(f AS UTINYINT)"),
    ("TRY(mod(a, u)) IS NULL", "a IS NULL OR u IS NULL OR u = 0"),
];

/// DuckDB's functions of times count microseconds, and its division of whole numbers does not round down.
const MICROS: &str = "make_timestamp((floor_to(t::HUGEINT, 1000) // 1000)::BIGINT)";

/// A function over the columns, as ours and as DuckDB's, where the two are meant to be the same.
#[derive(Clone, Debug)]
pub(crate) struct FunctionPair {
    pub(crate) ours: String,
    pub(crate) theirs: String,
}

impl FunctionPair {
    /// Of numbers the types may differ.
    pub(crate) const RULE: Rule = Rule::Number;

    /// DuckDB's, with null for its errors: its functions have other errors than ours, whose rows are left out.
    pub(crate) fn theirs(&self) -> String {
        format!("TRY({})", self.theirs)
    }
}

/// All of them.
pub(crate) fn functions() -> Vec<FunctionPair> {
    let pair =
        |ours: &str, theirs: &str| FunctionPair { ours: ours.to_owned(), theirs: theirs.replace("MICROS", MICROS) };
    let mut pairs: Vec<FunctionPair> = ALIKE.iter().map(|text| pair(text, text)).collect();
    let extract = |field: &str| pair(&format!("EXTRACT({field} FROM t)"), &format!("EXTRACT({field} FROM MICROS)"));
    for unit in ["minute", "hour", "day", "week", "month", "quarter", "year", "decade"] {
        pairs.push(pair(
            &format!("date_trunc('{unit}', t)"),
            &format!("epoch_ns(date_trunc('{unit}', MICROS)::TIMESTAMP)"),
        ));
        pairs.push(extract(unit));
    }
    pairs.extend(["dow", "isodow", "doy", "isoyear"].map(extract));
    pairs.extend(UNLIKE.iter().map(|(ours, theirs)| pair(ours, theirs)));
    pairs
}
