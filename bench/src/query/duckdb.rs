//! DuckDB with one thread, as the baseline: it runs the query once over rows that lie in its memory.

use super::rows::Rows;
use crate::cpu::Error;
use crate::process::Process;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The variable with a Python that can import DuckDB; `cargo xtask bench query` sets it.
const VARIABLE: &str = "CROSSDOCK_DUCKDB_PYTHON";

/// A running DuckDB.
pub(super) struct Duckdb {
    process: Process,
    tables: Vec<&'static str>,
}

/// The result of a query.
pub(super) struct Answer {
    pub(super) rows: u64,
    pub(super) took_s: f64,
    /// The rows, if they were wanted.
    pub(super) all: Value,
}

impl Duckdb {
    /// Starts it; `None`, with a line that says so, where there is none.
    pub(super) fn start() -> Result<Option<Duckdb>, Error> {
        let Some(python) = std::env::var_os(VARIABLE) else {
            eprintln!("no DuckDB to compare with: {VARIABLE} names no Python that can import it");
            return Ok(None);
        };
        let process = Process::python(Path::new(&python), include_str!("duckdb.py"))?;
        Ok(Some(Duckdb { process, tables: Vec::new() }))
    }

    /// Whether a table is loaded.
    pub(super) fn has(&self, table: &str) -> bool {
        self.tables.contains(&table)
    }

    /// Loads a stream's rows as a table.
    pub(super) fn load(&mut self, rows: &Rows) -> Result<(), Error> {
        let file = TempFile::write(&format!("{}.csv", rows.name), &rows.csv)?;
        let asked = json!({"table": rows.name, "csv": file.0.to_string_lossy(), "times": rows.times});
        match self.ask(&asked)?["rows"].as_u64() {
            Some(loaded) if loaded == rows.len() as u64 => self.tables.push(rows.name),
            loaded => {
                return Err(format!("DuckDB loaded {loaded:?} rows of {} into {}", rows.len(), rows.name).into());
            }
        }
        Ok(())
    }

    /// Runs a query; its rows are numbers if all of them are wanted.
    pub(super) fn run(&mut self, sql: &str, all: bool) -> Result<Answer, Error> {
        let mut answer = self.ask(&json!({"sql": sql, "all": all}))?;
        match (answer["rows"].as_u64(), answer["took_s"].as_f64()) {
            (Some(rows), Some(took_s)) => Ok(Answer { rows, took_s, all: answer["all"].take() }),
            _ => Err(format!("DuckDB answered {answer}").into()),
        }
    }

    fn ask(&mut self, what: &Value) -> Result<Value, Error> {
        self.process.write_line(&what.to_string())?;
        self.process.next_report()
    }
}

/// A file that goes when this is dropped.
pub(super) struct TempFile(pub(super) PathBuf);

impl TempFile {
    pub(super) fn write(name: &str, text: &str) -> Result<TempFile, Error> {
        let file = TempFile(std::env::temp_dir().join(format!("crossdock-bench-{}-{name}", std::process::id())));
        std::fs::write(&file.0, text)?;
        Ok(file)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _gone = std::fs::remove_file(&self.0);
    }
}
