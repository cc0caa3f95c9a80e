//! Random queries over random records, against DuckDB, row by row.
//!
//! `CROSSDOCK_DUCKDB_PYTHON` names a Python that has the module `duckdb` (`cargo xtask test` makes one); without it the
//! test says so and passes. `CROSSDOCK_DUCKDB_SEED` and `CROSSDOCK_DUCKDB_QUERIES` ask for other queries.
//!
//! The two differ on purpose where DuckDB differs from PostgreSQL: its whole numbers are computed as HUGEINT here, so
//! that they leave the range of `i64` where ours are a row error; `/` is `//`; what it makes an error is NULL by TRY.
//! Rows with a row error of ours are left out of the comparison of values, and looked at by a test of their own.
#![allow(clippy::unwrap_used, clippy::print_stdout)] // a test that fails may panic, and prints its seed

mod generate;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crossdock_format::{FieldType, Format, Record, RecordBuilder, Value};
use crossdock_query::{ArithmeticOp, Constant, Decimal, Expr, Interpreter, Like, Node, Program, Projection, parse};
use generate::{Row, Scope, condition, format, row, value};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

const LIKE_DUCKDB: Scope = Scope { everything: false };
const ROWS: usize = 2000;
/// For each of many functions.
const FEWER_ROWS: usize = 500;

/// Reads `{"rows": csv path, "queries": [...]}` and writes one line of JSON for a query: rows of texts and nulls.
const SCRIPT: &str = r#"
import decimal, duckdb, json, sys
task = json.load(sys.stdin)
db = duckdb.connect()
db.execute("SET error_on_division_by_zero=false")
db.execute("SET threads=1")
columns = {"id": "BIGINT", "a": "BIGINT", "i": "SMALLINT", "u": "UBIGINT", "f": "DOUBLE", "g": "FLOAT",
           "b": "BOOLEAN", "s": "VARCHAR", "c": "VARCHAR", "t": "BIGINT", "d": "DECIMAL(18,2)"}
db.execute("CREATE TABLE s AS SELECT * FROM read_csv(?, header=false, columns=?, nullstr='\\N', quote='\"', "
           "escape='\"', delim=',', auto_detect=false)", [task["rows"], columns])
def shown(value):
    if value is None or isinstance(value, str): return value
    if isinstance(value, bool): return "true" if value else "false"
    if isinstance(value, float): return repr(value + 0.0)
    if isinstance(value, decimal.Decimal): return format(value, "f")
    return str(value)
for query in task["queries"]:
    try:
        answer = [[shown(value) for value in row] for row in db.execute(query).fetchall()]
    except Exception as error:
        answer = {"error": str(error)}
    print(json.dumps(answer))
"#;

struct Duck {
    python: String,
    folder: PathBuf,
}

impl Drop for Duck {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Duck {
    fn new(test: &str) -> Option<Duck> {
        let Ok(python) = std::env::var("CROSSDOCK_DUCKDB_PYTHON") else {
            println!("skipped: CROSSDOCK_DUCKDB_PYTHON does not name a Python with the module duckdb");
            return None;
        };
        let folder = std::env::temp_dir().join(format!("crossdock-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Some(Duck { python, folder })
    }

    /// DuckDB's result for each query: rows of texts and nulls.
    fn ask(&self, rows: &[Row], queries: &[String]) -> Vec<serde_json::Value> {
        let csv = self.folder.join("rows.csv");
        std::fs::write(&csv, rows.iter().enumerate().map(|(id, row)| csv_line(id, row)).collect::<String>()).unwrap();
        let task = serde_json::json!({ "rows": csv, "queries": queries });
        let task_path = self.folder.join("task.json");
        std::fs::write(&task_path, task.to_string()).unwrap();
        let output = Command::new(&self.python)
            .args(["-c", SCRIPT])
            .stdin(std::fs::File::open(&task_path).unwrap())
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        assert!(output.status.success(), "the script failed");
        let answers = String::from_utf8(output.stdout).unwrap();
        let answers: Vec<serde_json::Value> = answers.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(answers.len(), queries.len());
        answers
    }
}

fn csv_line(id: usize, row: &Row) -> String {
    let Row { a, i, u, f, g, b, s, c, t, d } = row;
    let text = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    fn or_null(value: Option<String>) -> String {
        value.unwrap_or_else(|| "\\N".to_owned())
    }
    let fields = [
        id.to_string(),
        or_null(a.map(|a| a.to_string())),
        i.to_string(),
        or_null(u.map(|u| u.to_string())),
        or_null(f.map(|f| f.to_string())),
        g.to_string(),
        or_null(b.map(|b| b.to_string())),
        or_null(s.as_deref().map(text)),
        text(c),
        or_null(t.map(|t| t.to_string())),
        or_null(d.map(|units| Decimal { unscaled: units.into(), scale: 2 }.to_string())),
    ];
    fields.join(",") + "\n"
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn runner(salt: u8) -> TestRunner {
    let seed = setting("CROSSDOCK_DUCKDB_SEED", 2013);
    println!("CROSSDOCK_DUCKDB_SEED={seed}");
    let mut bytes = [salt; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

fn some<S: Strategy>(strategy: &S, runner: &mut TestRunner) -> S::Value {
    strategy.new_tree(runner).unwrap().current()
}

#[test]
fn random_queries_give_what_duckdb_gives() {
    let Some(duck) = Duck::new("queries") else { return };
    let mut runner = runner(1);
    let format = format();
    let rows: Vec<Row> = (0..ROWS).map(|_| some(&row(), &mut runner)).collect();
    let queries = setting("CROSSDOCK_DUCKDB_QUERIES", 300);
    let (filters, values) = (condition(3, LIKE_DUCKDB), value(3, LIKE_DUCKDB));
    let cases: Vec<(Expr, Vec<Expr>)> = (0..queries)
        .map(|_| (some(&filters, &mut runner), (0..2).map(|_| some(&values, &mut runner)).collect()))
        .collect();
    let theirs: Vec<String> = cases.iter().map(|(filter, values)| duck_query(&format, filter, values)).collect();
    let answers = duck.ask(&rows, &theirs);
    let mut input = RecordBuilder::new(&format);
    let records: Vec<Vec<u8>> = rows.iter().map(|row| row.bytes(&mut input)).collect();
    let (mut compared, mut errors, mut passed) = (0, 0, 0);
    for ((filter, values), (theirs, answer)) in cases.iter().zip(theirs.iter().zip(&answers)) {
        let ours = our_query(&format, filter, values);
        let program = parse(&ours).and_then(|select| select.plan(&format)).unwrap_or_else(|error| panic!("{error}"));
        let answer = answer.as_array().unwrap_or_else(|| panic!("{answer}\n{theirs}"));
        let mut answer = answer.iter().map(|row| row.as_array().unwrap()).peekable();
        for (id, bytes) in records.iter().enumerate() {
            let their_row = answer.next_if(|row| row[0] == id.to_string().as_str()).map(|row| &row[1..]);
            let record = Record::check(&format, bytes).unwrap();
            let Ok(our_row) = run(&program, &record) else {
                errors += 1;
                continue;
            };
            compared += 1;
            passed += usize::from(our_row.is_some());
            let same = match (&our_row, their_row) {
                (None, None) => true,
                (Some(ours), Some(theirs)) => ours.iter().zip(theirs).all(|(ours, theirs)| is_same(ours, theirs)),
                _ => false,
            };
            assert!(same, "{ours}\n{theirs}\n{:?}\nours: {our_row:?}\ntheirs: {their_row:?}", rows[id]);
        }
        assert!(answer.next().is_none(), "rows beyond the last: {theirs}");
    }
    println!("{queries} queries, {compared} rows compared, {passed} of them passed, {errors} row errors");
    assert!(compared > 2 * errors && passed > compared / 10, "too little was compared");
}

/// For one operation, ours is a row error exactly where DuckDB's result leaves the type.
#[test]
fn row_errors_are_where_duckdb_leaves_the_range() {
    let Some(duck) = Duck::new("errors") else { return };
    let mut runner = runner(2);
    let format = format();
    let rows: Vec<Row> = (0..ROWS).map(|_| some(&row(), &mut runner)).collect();
    let range = |value: &str| format!("({value}) NOT BETWEEN {} AND {}", i64::MIN, i64::MAX);
    let wide = |op: &str| {
        let value = format!("TRY(a::HUGEINT {op} u::HUGEINT)");
        format!("a IS NOT NULL AND u IS NOT NULL AND ({value} IS NULL OR {})", range(&value))
    };
    let cast = |column: &str, ty: &str| format!("{column} IS NOT NULL AND TRY_CAST({column} AS {ty}) IS NULL");
    let cases = [
        ("a + u", wide("+")),
        ("a - u", wide("-")),
        ("a * u", wide("*")),
        ("a / u", wide("//")),
        ("a % u", wide("%")),
        ("-a", range("-(a::HUGEINT)")),
        ("a::smallint", cast("a", "SMALLINT")),
        ("a::i8", cast("a", "TINYINT")),
        ("a::u64", cast("a", "UBIGINT")),
        ("a::u16", cast("a", "USMALLINT")),
        ("u::bigint", cast("u", "BIGINT")),
        ("f::bigint", cast("f", "BIGINT")),
        ("f::smallint", cast("f", "SMALLINT")),
        ("f::u8", cast("f", "UTINYINT")),
    ];
    let theirs: Vec<String> =
        cases.iter().map(|(_, wrong)| format!("SELECT id FROM s WHERE {wrong} ORDER BY id")).collect();
    let answers = duck.ask(&rows, &theirs);
    let mut input = RecordBuilder::new(&format);
    for ((ours, _), answer) in cases.iter().zip(answers) {
        let program = parse(&format!("SELECT {ours} FROM s")).unwrap().plan(&format).unwrap();
        let wrong = rows.iter().enumerate().filter(|(_, row)| {
            let bytes = row.bytes(&mut input);
            run(&program, &Record::check(&format, &bytes).unwrap()).is_err()
        });
        let wrong: Vec<String> = wrong.map(|(id, _)| id.to_string()).collect();
        let rows = answer.as_array().unwrap_or_else(|| panic!("{ours}: {answer}"));
        let expected: Vec<&str> = rows.iter().map(|row| row[0].as_str().unwrap()).collect();
        assert_eq!(wrong, expected, "{ours}");
        assert!(!expected.is_empty(), "{ours}: no row shows it");
    }
}

/// Functions that are written alike in both dialects.
const ALIKE: &[&str] = &[
    "upper(s)",
    "lower(s)",
    "length(s)",
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
    "abs(a)",
    "ceil(d)",
    "floor(d)",
    "round(d, 1)",
    "round(d, -1)",
    "d * 3",
    "d + 0.005",
    "d * 3 = 0.3",
    "d > 0.1",
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
];

/// Ours, and DuckDB's; `MICROS` is its time of the column `t`.
const UNLIKE: &[(&str, &str)] = &[
    ("repeat(s, i)", "repeat(s, i::BIGINT)"),
    ("s ~ '^[A-J]'", "regexp_matches(s, '^[A-J]')"),
    ("s ~* 'F|b'", "regexp_matches(s, 'F|b', 'i')"),
    (r"regexp_replace(s, '([a-z])', '<\1>', 'g')", r"regexp_replace(s, '([a-z])', '<\1>', 'g')"),
    ("regexp_substr(s, '[A-Z]+')", "nullif(regexp_extract(s, '[A-Z]+'), '')"),
    ("encode(sha256(s), 'hex')", "sha256(s)"),
    ("to_char(t, 'YYYY-MM-DD HH24:MI:SS')", "strftime(MICROS, '%Y-%m-%d %H:%M:%S')"),
    ("to_char(t, 'Dy DDD HH12 AM')", "strftime(MICROS, '%a %j %I %p')"),
    (
        "to_char(date_trunc('second', t) + INTERVAL '1 month -2 days', 'YYYY-MM-DD HH24:MI:SS')",
        "strftime(MICROS + INTERVAL 1 MONTH - INTERVAL 2 DAY, '%Y-%m-%d %H:%M:%S')",
    ),
    ("round(f)", "round_even(f, 0)"),
];

/// DuckDB's functions of times count microseconds, and its division of whole numbers does not round down.
const MICROS: &str = "make_timestamp(CASE WHEN t < 0 THEN (t - 999) // 1000 ELSE t // 1000 END)";

/// The functions to compare: ours, and DuckDB's.
fn functions() -> Vec<(String, String)> {
    let mut cases: Vec<(String, String)> = ALIKE.iter().map(|text| ((*text).to_owned(), (*text).to_owned())).collect();
    let extract = |field: &str| (format!("EXTRACT({field} FROM t)"), format!("EXTRACT({field} FROM {MICROS})"));
    for unit in ["minute", "hour", "day", "week", "month", "quarter", "year", "decade"] {
        let start = format!("epoch_ns(date_trunc('{unit}', {MICROS})::TIMESTAMP)");
        cases.push((format!("date_trunc('{unit}', t)"), start));
        cases.push(extract(unit));
    }
    cases.extend(["dow", "isodow", "doy", "isoyear"].map(extract));
    cases.extend(UNLIKE.iter().map(|(ours, theirs)| ((*ours).to_owned(), theirs.replace("MICROS", MICROS))));
    cases
}

/// A function over the columns, as ours and as DuckDB's, where the two are meant to be the same.
#[test]
fn functions_give_what_duckdb_gives() {
    let Some(duck) = Duck::new("functions") else { return };
    let mut runner = runner(3);
    let format = format();
    let rows: Vec<Row> = (0..FEWER_ROWS).map(|_| some(&row(), &mut runner)).collect();
    let cases = functions();
    let theirs: Vec<String> =
        cases.iter().map(|(_, theirs)| format!("SELECT id, TRY({theirs}) FROM s ORDER BY id")).collect();
    let answers = duck.ask(&rows, &theirs);
    let mut input = RecordBuilder::new(&format);
    let records: Vec<Vec<u8>> = rows.iter().map(|row| row.bytes(&mut input)).collect();
    for ((ours, theirs), answer) in cases.iter().zip(answers) {
        let sql = format!("SELECT {ours} AS x FROM s");
        let program = parse(&sql).and_then(|select| select.plan(&format)).unwrap_or_else(|error| panic!("{error}"));
        let answer = answer.as_array().unwrap_or_else(|| panic!("{theirs}: {answer}"));
        let mut compared = 0;
        for ((row, bytes), theirs) in rows.iter().zip(&records).zip(answer) {
            let Ok(Some(given)) = run(&program, &Record::check(&format, bytes).unwrap()) else { continue };
            compared += 1;
            assert!(is_same_number(&given[0], &theirs[1]), "{ours} is {given:?}, not {}, for {row:?}", theirs[1]);
        }
        assert!(compared > FEWER_ROWS / 4, "{ours} has too many row errors");
    }
}

/// As [`is_same`]; of numbers the types may differ.
fn is_same_number(ours: &Option<String>, theirs: &serde_json::Value) -> bool {
    if is_same(ours, theirs) {
        return true;
    }
    let number = |text: &str| text.rsplit(' ').next().and_then(|text| text.parse::<f64>().ok());
    match (ours.as_deref().and_then(number), theirs.as_str().and_then(number)) {
        (Some(ours), Some(theirs)) => ours == theirs || (ours.is_nan() && theirs.is_nan()),
        _ => false,
    }
}

/// The values of the output, as texts; `None` if the record does not pass, an error for a row error.
fn run(program: &Program, record: &Record<'_>) -> Result<Option<Vec<Option<String>>>, crossdock_query::EvalError> {
    let mut interpreter = Interpreter::new();
    if !interpreter.matches(program, record)? {
        return Ok(None);
    }
    let mut row = RecordBuilder::new(&program.output);
    let bytes = match program.projection {
        Projection::All => record.bytes(),
        Projection::Fields(_) => {
            interpreter.project(program, record, &mut row)?;
            row.finish().unwrap()
        }
    };
    let output = Record::check(&program.output, bytes).unwrap();
    let fields = 0..program.output.fields().len();
    Ok(Some(fields.map(|field| shown(output.get(field))).collect()))
}

fn shown(value: Value<'_>) -> Option<String> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(value) => value.to_string(),
        Value::Int(value) | Value::Timestamp(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Float(value) => format!("float {value}"),
        Value::Decimal { unscaled, scale } => format!("decimal {}", Decimal { unscaled, scale }),
        Value::Text(text) => String::from_utf8_lossy(text).into_owned(),
        value => format!("{value:?}"),
    })
}

fn is_same(ours: &Option<String>, theirs: &serde_json::Value) -> bool {
    match (ours, theirs.as_str()) {
        (None, None) => theirs.is_null(),
        (Some(ours), Some(theirs)) if ours.starts_with("decimal ") => {
            // Whatever the number of digits behind the point.
            let [ours, theirs] = [&ours["decimal ".len()..], theirs].map(|text| match text.contains('.') {
                true => text.trim_end_matches('0').trim_end_matches('.'),
                false => text,
            });
            ours == theirs || (ours.trim_start_matches('-') == "0" && theirs.trim_start_matches('-') == "0")
        }
        (Some(ours), Some(theirs)) => match ours.strip_prefix("float ") {
            Some(ours) => {
                let (ours, theirs): (f64, f64) = (ours.parse().unwrap(), theirs.parse().unwrap());
                ours == theirs || (ours.is_nan() && theirs.is_nan())
            }
            None => ours == theirs,
        },
        _ => false,
    }
}

fn our_query(format: &Format, filter: &Expr, values: &[Expr]) -> String {
    let mut sql = "SELECT ".to_owned();
    for (index, value) in values.iter().enumerate() {
        write!(sql, "{}{} AS x{index}", if index == 0 { "" } else { ", " }, value.sql(format)).unwrap();
    }
    write!(sql, " FROM s WHERE {}", filter.sql(format)).unwrap();
    sql
}

fn duck_query(format: &Format, filter: &Expr, values: &[Expr]) -> String {
    let mut sql = "SELECT id".to_owned();
    for value in values {
        write!(sql, ", {}", Duckish(value, format)).unwrap();
    }
    write!(sql, " FROM s WHERE {} ORDER BY id", Duckish(filter, format)).unwrap();
    sql
}

/// An expression in DuckDB's SQL.
struct Duckish<'a>(&'a Expr, &'a Format);

impl std::fmt::Display for Duckish<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let of = |expr: &Expr| Duckish(expr, self.1).to_string();
        let all = |all: &[Expr], between: &str| all.iter().map(of).collect::<Vec<_>>().join(between);
        let not = |negated: bool| if negated { "NOT " } else { "" };
        match &self.0.node {
            Node::Field(index) => f.write_str(&self.1.fields()[*index].name),
            Node::Const(constant) => duck_constant(f, constant, self.0.ty),
            Node::Parameter(parameter) => duck_constant(f, &parameter.value, self.0.ty),
            Node::Compare { op, left, right } => write!(f, "({} {} {})", of(left), op.sql(), of(right)),
            Node::Distinct { negated, left, right } => {
                write!(f, "({} IS {}DISTINCT FROM {})", of(left), not(*negated), of(right))
            }
            Node::And(conditions) => write!(f, "({})", all(conditions, " AND ")),
            Node::Or(conditions) => write!(f, "({})", all(conditions, " OR ")),
            Node::Not(operand) => write!(f, "(NOT {})", of(operand)),
            Node::IsNull { negated, operand } => write!(f, "({} IS {}NULL)", of(operand), not(*negated)),
            Node::IsTruth { truth, negated, operand } => {
                let truth = truth.map_or("UNKNOWN".to_owned(), |truth| truth.to_string());
                write!(f, "({} IS {}{truth})", of(operand), not(*negated))
            }
            Node::In { negated, operand, list } => {
                write!(f, "({} {}IN ({}))", of(operand), not(*negated), all(list, ", "))
            }
            Node::Between { negated, operand, low, high } => {
                write!(f, "({} {}BETWEEN {} AND {})", of(operand), not(*negated), of(low), of(high))
            }
            Node::Like(like) => {
                let Like { negated, any_case, operand, pattern, .. } = &**like;
                let word = if *any_case { "ILIKE" } else { "LIKE" };
                write!(f, "({} {}{word} {} ESCAPE '!')", of(operand), not(*negated), of(pattern))
            }
            Node::Arithmetic { op, left, right } if self.0.ty == FieldType::I64 => {
                let op = if *op == ArithmeticOp::Divide { "//" } else { op.sql() };
                write!(f, "TRY({}::HUGEINT {op} {}::HUGEINT)", of(left), of(right))
            }
            Node::Arithmetic { op, left, right } if is_decimal(self.0) => {
                let [left, right] = [left, right].map(|operand| exact(operand, &of(operand)));
                write!(f, "TRY({left} {} {right})", op.sql())
            }
            Node::Negate(operand) if is_decimal(self.0) => write!(f, "TRY(-{})", exact(operand, &of(operand))),
            Node::Call(call) => write!(f, "TRY({}({}))", call.function.name, all(&call.arguments, ", ")),
            Node::Arithmetic { op, left, right } => {
                let [left, right] = [left, right].map(|operand| double(operand, &of(operand)));
                write!(f, "TRY({left} {} {right})", op.sql())
            }
            Node::Negate(operand) if self.0.ty == FieldType::I64 => write!(f, "TRY(-({}::HUGEINT))", of(operand)),
            Node::Negate(operand) => write!(f, "(-{})", of(operand)),
            Node::Concat(parts) => write!(f, "({})", all(parts, " || ")),
            Node::Case { operand, branches, otherwise } => {
                f.write_str("(CASE")?;
                if let Some(operand) = operand {
                    write!(f, " {}", of(operand))?;
                }
                for (condition, result) in branches {
                    write!(f, " WHEN {} THEN {}", of(condition), of(result))?;
                }
                if let Some(otherwise) = otherwise {
                    write!(f, " ELSE {}", of(otherwise))?;
                }
                f.write_str(" END)")
            }
            Node::Try(operand) => write!(f, "TRY({})", of(operand)),
            Node::Coalesce(options) => write!(f, "COALESCE({})", all(options, ", ")),
            Node::NullIf(left, right) => write!(f, "NULLIF({}, {})", of(left), of(right)),
            Node::Cast(operand) if self.0.ty == FieldType::F64 => f.write_str(&double(operand, &of(operand))),
            Node::Cast(operand) if is_decimal(self.0) => f.write_str(&exact_as(&of(operand), self.0.ty)),
            Node::Cast(operand) => write!(f, "TRY_CAST({} AS {})", of(operand), duck_type(self.0.ty)),
        }
    }
}

fn is_decimal(expr: &Expr) -> bool {
    matches!(expr.ty, FieldType::Decimal { .. })
}

/// As a decimal of 38 digits, with its own scale.
fn exact(operand: &Expr, text: &str) -> String {
    exact_as(text, operand.ty)
}

fn exact_as(text: &str, ty: FieldType) -> String {
    let scale = match ty {
        FieldType::Decimal { scale, .. } => scale,
        _ => 0,
    };
    format!("TRY_CAST({text} AS DECIMAL(38, {scale}))")
}

/// As DOUBLE; through BIGINT, because DuckDB rounds a HUGEINT twice.
fn double(operand: &Expr, text: &str) -> String {
    match operand.ty {
        FieldType::I64 => format!("TRY_CAST(TRY_CAST({text} AS BIGINT) AS DOUBLE)"),
        _ => format!("TRY_CAST({text} AS DOUBLE)"),
    }
}

fn duck_constant(f: &mut std::fmt::Formatter<'_>, constant: &Constant, ty: FieldType) -> std::fmt::Result {
    match constant {
        Constant::Null if matches!(ty, FieldType::Decimal { .. }) => f.write_str(&exact_as("NULL", ty)),
        Constant::Null => write!(f, "CAST(NULL AS {})", duck_type(ty)),
        Constant::Decimal(value) => write!(f, "({value})"),
        Constant::Int(value) if (-9..99).contains(value) => write!(f, "({value})"),
        Constant::Bool(value) => write!(f, "{value}"),
        Constant::Int(value) => write!(f, "({value})::HUGEINT"),
        Constant::Float(value) => write!(f, "CAST('{value}' AS DOUBLE)"),
        // Read by DuckDB as text, so that our own reading and writing of times is looked at too.
        Constant::Timestamp(value) => {
            let time = jiff::Timestamp::from_nanosecond((*value).into()).unwrap();
            write!(f, "epoch_ns(TIMESTAMP_NS '{time}')")
        }
        Constant::Text(text) => write!(f, "'{}'", text.replace('\'', "''")),
        Constant::Bytes(_) => unreachable!("no bytes are made"),
    }
}

fn duck_type(ty: FieldType) -> &'static str {
    match ty {
        FieldType::Bool => "BOOLEAN",
        FieldType::I16 => "SMALLINT",
        FieldType::I64 => "BIGINT",
        FieldType::U64 => "UBIGINT",
        FieldType::F32 => "FLOAT",
        FieldType::F64 => "DOUBLE",
        FieldType::Timestamp => "BIGINT",
        FieldType::Char(_) | FieldType::String => "VARCHAR",
        other => unreachable!("no {other} is made"),
    }
}
