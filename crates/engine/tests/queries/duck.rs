//! One DuckDB process that all cases of a run go through.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crossdock_format::{ElementKind, Field, FieldType, Format};

use crate::case::{Case, Values};

/// Reads lines of `{"setup": [statements], "queries": [...]}`, and writes one line for each: the rows of each query, or its error.
const SCRIPT: &str = r#"
import decimal, duckdb, json, sys
db = duckdb.connect()
db.execute("SET error_on_division_by_zero=false")
db.execute("SET threads=1")
# It would stand between the lines.
db.execute("SET enable_progress_bar=false")
# The tables are small: what the optimizer saves is less than what it takes.
db.execute("PRAGMA disable_optimizer")
# The greatest multiple of w that is not greater than x: DuckDB's `//` rounds towards zero.
db.execute("CREATE MACRO floor_to(x, w) AS CASE WHEN x >= 0 THEN x // w * w ELSE -((w - 1 - x) // w * w) END")
def shown(value):
    if value is None or isinstance(value, str): return value
    if isinstance(value, bool): return "true" if value else "false"
    if isinstance(value, float): return repr(value + 0.0)
    if isinstance(value, decimal.Decimal): return format(value, "f")
    if isinstance(value, bytes): return "\\x" + value.hex()
    if isinstance(value, list): return "[" + ", ".join(shown(one) for one in value) + "]"
    return str(value)
for line in sys.stdin:
    task = json.loads(line)
    for statement in task["setup"]: db.execute(statement)
    answers = []
    for query in task["queries"]:
        try:
            answers.append([[shown(value) for value in row] for row in db.execute(query).fetchall()])
        except Exception as error:
            answers.append({"error": str(error)})
    print(json.dumps(answers), flush=True)
"#;

/// The process, which ends with its standard input.
pub(crate) struct Duck {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Drop for Duck {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.process.wait();
    }
}

impl Duck {
    /// Starts it by the Python that `CROSSDOCK_DUCKDB_PYTHON` names; where there is none, it says so.
    pub(crate) fn start() -> Option<Duck> {
        let Ok(python) = std::env::var("CROSSDOCK_DUCKDB_PYTHON") else {
            println!("skipped: CROSSDOCK_DUCKDB_PYTHON does not name a Python with the module duckdb");
            return None;
        };
        let mut command = Command::new(&python);
        command.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut process = command.spawn().unwrap_or_else(|error| panic!("{python}: {error}"));
        let (input, output) = (process.stdin.take(), BufReader::new(process.stdout.take().unwrap()));
        Some(Duck { process, input, output })
    }

    /// The rows of each query over the rows of a case, or DuckDB's error.
    pub(crate) fn ask(&mut self, case: &Case, queries: &[String]) -> Vec<Result<Vec<Values>, String>> {
        let task = serde_json::json!({ "setup": tables(case), "queries": queries });
        let input = self.input.as_mut().unwrap();
        writeln!(input, "{task}").and_then(|()| input.flush()).expect("DuckDB has ended; its error is above");
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let answers: Vec<serde_json::Value> =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("DuckDB has ended; its error is above: {error}"));
        let rows = |answer: serde_json::Value| match answer.get("error") {
            Some(error) => Err(error.as_str().unwrap().to_owned()),
            None => Ok(serde_json::from_value(answer).unwrap()),
        };
        answers.into_iter().map(rows).collect()
    }
}

/// The statements that make a table of each stream's rows; its column `n` numbers them in order of arrival.
fn tables(case: &Case) -> Vec<String> {
    let mut statements = Vec::new();
    for (number, stream) in case.streams.iter().enumerate() {
        let format = stream.format();
        let mut create = format!("CREATE OR REPLACE TABLE {} (n BIGINT", stream.name);
        for field in format.fields() {
            write!(create, ", {} {}", field.name, column_type(field)).unwrap();
        }
        statements.push(create + ")");
        let rows = case.rows.iter().filter(|(of, _)| *of == number).enumerate();
        let rows: Vec<String> = rows.map(|(n, (_, values))| row(n, &format, values)).collect();
        if !rows.is_empty() {
            statements.push(format!("INSERT INTO {} VALUES {}", stream.name, rows.join(", ")));
        }
    }
    statements
}

fn row(n: usize, format: &Format, values: &Values) -> String {
    let mut row = format!("('{n}'");
    for (field, value) in format.fields().iter().zip(values) {
        match value {
            None => row += ", NULL",
            Some(text) if field.ty == FieldType::Bytes => write!(row, ", {}", blob(text)).unwrap(),
            Some(text) => write!(row, ", {}", quoted(text)).unwrap(),
        }
    }
    row + ")"
}

/// A text as a literal.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn blob(text: &str) -> String {
    let digits = text.strip_prefix("\\x").unwrap_or(text);
    let bytes: String = (0..digits.len() / 2).map(|at| format!("\\x{}", &digits[2 * at..2 * at + 2])).collect();
    format!("'{bytes}'")
}

/// The type of a table's column. Times are whole numbers there: DuckDB has no time at the ends of ours.
fn column_type(field: &Field) -> String {
    let name = match field.ty {
        FieldType::Bool => "BOOLEAN",
        FieldType::I8 => "TINYINT",
        FieldType::I16 => "SMALLINT",
        FieldType::I32 => "INTEGER",
        FieldType::I64 | FieldType::Timestamp => "BIGINT",
        FieldType::U8 => "UTINYINT",
        FieldType::U16 => "USMALLINT",
        FieldType::U32 => "UINTEGER",
        FieldType::U64 => "UBIGINT",
        FieldType::F32 => "FLOAT",
        FieldType::F64 => "DOUBLE",
        FieldType::Char(_) | FieldType::String | FieldType::Enum { .. } => "VARCHAR",
        FieldType::Bytes => "BLOB",
        FieldType::Decimal { bytes: 4, scale } => return format!("DECIMAL(9, {scale})"),
        FieldType::Decimal { bytes: 8, scale } => return format!("DECIMAL(18, {scale})"),
        FieldType::Decimal { scale, .. } => return format!("DECIMAL(38, {scale})"),
        FieldType::List => match field.element().unwrap().kind() {
            ElementKind::Scalar(of) => return format!("{}[]", column_type(of)),
            ElementKind::Record(_) => unreachable!("no list of records is made"),
        },
    };
    name.to_owned()
}
