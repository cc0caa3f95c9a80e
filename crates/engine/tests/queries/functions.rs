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
    "repeat(c, 3)",
    "reverse(c)",
    "right(s, -2)",
    "substr(s, 2)",
    "strpos(s, '')",
    "replace(s, '', 'x')",
    "concat_ws(c, s, NULL, i)",
    "s LIKE c || '%'",
    "s ILIKE '%É%' OR c ILIKE 'JF_'",
    "s BETWEEN c AND 'b'",
    "c < s",
    "s IN (c, 'JFK', NULL)",
    "power(f, 2)",
    "cbrt(g)",
    "sin(g)",
    "atan2(f, g)",
    "exp(i)",
    "degrees(g)",
    "NOT (b OR f > g)",
    "CASE c WHEN 'a' THEN 1 WHEN s THEN 2 END",
    "nullif(b, f > 0)",
    "t",
    "x",
    "l",
    "m",
    "l[2]",
    "upper(m[1])",
    "array_position(m, coalesce(c, ''))",
    "array_to_string(m, '/')",
    "array_to_string(l, ', ')",
    "cardinality(l) + cardinality(m)",
    "m @> ARRAY['JFK', coalesce(c, '')]",
    "ARRAY['a'] <@ m",
    "m && ARRAY['LAX', coalesce(c, '')]",
];

/// Ours, and DuckDB's; `MICROS` is its time of the column `t`.
const UNLIKE: &[(&str, &str)] = &[
    // DuckDB computes it in the column's own type, which may be narrower.
    ("abs(a)", "abs(a::HUGEINT)"),
    ("d::text", "d::VARCHAR"),
    ("(d * 3)::text", "(d::DECIMAL(18, 2) * 3)::VARCHAR"),
    ("octet_length(s)", "strlen(s)"),
    ("char_length(c)", "length(c)"),
    ("to_hex(u)", "lower(to_hex(u))"),
    ("least(f, g)", "least(f::DOUBLE, g::DOUBLE)"),
    ("greatest(g, f)", "greatest(g::DOUBLE, f::DOUBLE)"),
    ("sign(f)", "CASE WHEN isnan(f) THEN f ELSE sign(f) END"),
    ("regexp_count(s, '[a-z]')", "len(regexp_extract_all(s, '[a-z]'))"),
    ("s ~ '^.{3}$'", "regexp_matches(s, '^.{3}$')"),
    ("TRY(t + INTERVAL '1 day 3 hours')", "TRY_CAST(t::HUGEINT + 97200000000000 AS BIGINT)"),
    ("TRY(t - INTERVAL '00:00:00.000001')", "TRY_CAST(t::HUGEINT - 1000 AS BIGINT)"),
    (
        "TRY(date_bin(INTERVAL '7 minutes', t, TIMESTAMP '2000-01-01'))",
        "TRY_CAST(floor_to(t::HUGEINT - 946684800000000000, 420000000000) + 946684800000000000 AS BIGINT)",
    ),
    ("TRY(date_trunc('second', t))", "TRY_CAST(floor_to(t::HUGEINT, 1000000000) AS BIGINT)"),
    ("TRY(date_trunc('day', t))", "TRY_CAST(floor_to(t::HUGEINT, 86400000000000) AS BIGINT)"),
    ("TRY(to_timestamp(a))", "TRY_CAST(a::HUGEINT * 1000000000 AS BIGINT)"),
    ("t::bigint", "t"),
    ("a::timestamp", "a"),
    ("t < TIMESTAMP '2013-01-03' AND t >= '1970-01-01'", "t < 1357171200000000000 AND t >= 0"),
    ("nullif(a, u)", "nullif(a::HUGEINT, u::HUGEINT)"),
    ("a = u OR a IN (u, i)", "a::HUGEINT = u::HUGEINT OR a::HUGEINT IN (u::HUGEINT, i::HUGEINT)"),
    ("a < u", "a::HUGEINT < u::HUGEINT"),
    // Beside a float a decimal is one.
    ("d < f", "d::DOUBLE < f::DOUBLE"),
    ("d = a", "d::DECIMAL(38, 2) = a::DECIMAL(38, 2)"),
    ("b::int + i", "b::INTEGER + i::BIGINT"),
    // Of whole numbers and floats comparisons are exact here; these floats are whole.
    ("a < 9007199254740992::float8", "a::HUGEINT < 9007199254740992"),
    ("u >= 9223372036854775808::float8", "u::HUGEINT >= 9223372036854775808"),
    ("a > f AND a < 1000 AND a > -1000", "a::DOUBLE > f::DOUBLE AND a < 1000 AND a > -1000"),
    ("repeat(s, i)", "repeat(s, i::BIGINT)"),
    ("s ~ '^[A-J]'", "regexp_matches(s, '^[A-J]')"),
    ("s ~* 'F|b'", "regexp_matches(s, 'F|b', 'i')"),
    (r"regexp_replace(s, '([a-z])', '<\1>', 'g')", r"regexp_replace(s, '([a-z])', '<\1>', 'g')"),
    ("regexp_substr(s, '[A-Z]+')", "nullif(regexp_extract(s, '[A-Z]+'), '')"),
    ("encode(sha256(s), 'hex')", "sha256(s)"),
    ("md5(s)", "md5(s)"),
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
    ("l[i]", "list_extract(l, nullif(greatest(i::BIGINT, 0), 0))"),
    ("array_length(l, 1)", "nullif(len(l), 0)"),
    // Of no list they have no rows.
    ("s = ANY(m)", "(CASE WHEN m IS NOT NULL THEN s = ANY(m) END)"),
    ("i <= ANY(l)", "(CASE WHEN l IS NOT NULL THEN i::BIGINT <= ANY(l) END)"),
    ("NOT s <> ALL(m)", "(CASE WHEN m IS NOT NULL THEN s = ANY(m) END)"),
    ("a > ALL(l)", "(CASE WHEN l IS NOT NULL THEN a::HUGEINT > ALL(l) END)"),
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
    /// Of numbers the types may differ. The last digit of a logarithm or a sine is that of a mathematical library.
    pub(crate) fn rule(&self) -> Rule {
        let of_library = ["cbrt(", "sin(", "exp(", "atan2(", "degrees(", "power("];
        if of_library.iter().any(|name| self.ours.starts_with(name)) { Rule::Near } else { Rule::Number }
    }

    /// DuckDB's, with null for its errors: its functions have other errors than ours, whose rows are left out.
    ///
    /// A query within the query, as ANY is to it, cannot stand there, and has none.
    pub(crate) fn theirs(&self) -> String {
        if [" ANY(", " ALL("].iter().any(|word| self.theirs.contains(word)) {
            return self.theirs.clone();
        }
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
