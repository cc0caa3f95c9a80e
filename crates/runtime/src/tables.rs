//! Reference tables: read from their files at the start, and again when these have changed, on a thread of their own. The rows
//! are an immutable snapshot, which the managers give to the handlers that look rows up in it.

mod file;

pub use file::FileState;

use crate::info::TableInfo;
use crate::managers::events::{About, Events};
use crossdock_engine::{SharedTable, TableRows, Tables};
use crossdock_format::csv::{CsvOptions, InferOptions, infer_csv_sample};
use crossdock_format::encoding::{self, Decoder, Encoding, EncodingError, EncodingOptions};
use crossdock_format::{FieldType, Format};
use crossdock_query::ReferenceTable;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How often it is looked whether a file has changed.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Bytes of a file that a format is inferred from.
const SAMPLE_BYTES: u64 = 4 << 20;
/// Bytes read at a time.
const BUFFER_BYTES: usize = 256 << 10;
/// Columns of a key.
const MOST_COLUMNS: usize = 16;
/// The most bytes of a table, where nothing else is declared.
pub const MAX_TABLE_BYTES: u64 = 256 << 20;

/// The declaration of a reference table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSpec {
    /// Its name, by which queries name it.
    pub name: String,
    /// The file with its rows.
    pub path: PathBuf,
    /// The file's encoding: CSV or Parquet.
    pub encoding: Encoding,
    /// The columns of its key.
    pub key: Vec<String>,
    /// The format of its rows; without one the file says it (Parquet), or its first rows do (CSV).
    pub format: Option<Format>,
    /// The most bytes of memory that its rows may take, with the index by key.
    pub max_bytes: u64,
}

impl TableSpec {
    /// The declaration without what may be left out.
    pub fn new(name: impl Into<String>, path: impl Into<PathBuf>, encoding: Encoding, key: &[&str]) -> TableSpec {
        let key = key.iter().map(|column| (*column).to_owned()).collect();
        TableSpec { name: name.into(), path: path.into(), encoding, key, format: None, max_bytes: MAX_TABLE_BYTES }
    }

    /// Reads the file as a daemon does when it starts: its rows, and the bytes of memory that they take.
    ///
    /// # Errors
    /// In words, with the file, the line and the column where one is at fault, and what is expected there.
    pub fn check(&self) -> Result<(u64, u64), String> {
        self.read(None).map(|(_, rows)| (rows.len(), rows.bytes()))
    }

    /// Reads the file: the table in the format that was decided before, if it was, and its rows.
    ///
    /// # Errors
    /// In words, with the file, the line and the column where one is at fault, and what is expected there.
    fn read(&self, decided: Option<&ReferenceTable>) -> Result<(ReferenceTable, TableRows), String> {
        let shown = self.path.display();
        let in_file = |why: String| format!("{shown}: {why}");
        let file = File::open(&self.path).map_err(|error| in_file(format!("cannot be read: {error}")))?;
        let metadata = file.metadata().map_err(|error| in_file(format!("cannot be read: {error}")))?;
        if !metadata.is_file() {
            return Err(in_file("is no file".to_owned()));
        }
        if self.encoding == Encoding::Parquet && metadata.len() > self.max_bytes {
            return Err(in_file(self.too_long(&format!("the file has {} bytes", metadata.len()))));
        }
        let format = decided.map(|table| &table.format).or(self.format.as_ref());
        let mut input = BufReader::with_capacity(BUFFER_BYTES, file);
        let (format, decoder) = self.decoder(format, &mut input).map_err(in_file)?;
        let table = match decided {
            Some(table) => table.clone(),
            None => self.table(format).map_err(in_file)?,
        };
        let records = self.records(decoder, &mut input).map_err(in_file)?;
        let rows = TableRows::new(&table, records, now_ns()).map_err(in_file)?;
        if rows.bytes() > self.max_bytes {
            return Err(in_file(self.too_long(&format!("its rows take {} bytes", rows.bytes()))));
        }
        if !rows.is_empty() && rows.without_key() == rows.len() {
            let why = format!("no row has a value in each column of its key ({})", self.key.join(", "));
            return Err(in_file(why));
        }
        Ok((table, rows))
    }

    /// The decoder of the file, for records of a format, or else of the one that the file says.
    fn decoder(
        &self,
        format: Option<&Format>,
        input: &mut BufReader<File>,
    ) -> Result<(Format, Box<dyn Decoder>), String> {
        let csv = CsvOptions::of_name(&self.path.to_string_lossy());
        // A column that was added does no harm to those that are read.
        let options = EncodingOptions { csv, ignore_unknown: true, ..EncodingOptions::default() };
        let refused = |error: EncodingError| error.to_string();
        let format = match (format, self.encoding) {
            (Some(format), _) => format.clone(),
            (None, Encoding::Csv) => inferred(input, &options.csv)?,
            (None, encoding) => return encoding::open(encoding, input, &options).map_err(refused),
        };
        let decoder = encoding::decoder(self.encoding, &format, None, &options).map_err(refused)?;
        Ok((format, decoder))
    }

    /// All records of the file, one behind the other.
    fn records(&self, mut decoder: Box<dyn Decoder>, input: &mut dyn BufRead) -> Result<Vec<u8>, String> {
        let mut records = Vec::new();
        while let Some(record) = decoder.next_record(input).map_err(|error| error.to_string())? {
            if (records.len() + record.len()) as u64 > self.max_bytes {
                return Err(self.too_long("its rows take more"));
            }
            records.extend_from_slice(record);
        }
        records.shrink_to_fit();
        Ok(records)
    }

    fn too_long(&self, found: &str) -> String {
        format!("{found}, and table `{}` has {} bytes at most (`max_bytes`)", self.name, self.max_bytes)
    }

    /// The table with rows of this format.
    fn table(&self, format: Format) -> Result<ReferenceTable, String> {
        if format.is_foreign() {
            return Err("a table's schema has no layout of another program: leave the line `layout` out".to_owned());
        }
        if self.key.is_empty() || self.key.len() > MOST_COLUMNS {
            return Err(format!("a table's key has 1 to {MOST_COLUMNS} columns"));
        }
        let mut key = Vec::with_capacity(self.key.len());
        for column in &self.key {
            let Some(index) = format.field(column) else {
                let known: Vec<&str> = format.fields().iter().map(|field| field.name.as_str()).collect();
                return Err(format!("the key's column `{column}` is not there; the columns are {}", known.join(", ")));
            };
            if key.contains(&index) {
                return Err(format!("the key has the column `{column}` twice"));
            }
            if format.fields().get(index).is_some_and(|field| field.ty == FieldType::List) {
                return Err(format!("the key's column `{column}` is a list, and lists are not compared"));
            }
            key.push(index);
        }
        Ok(ReferenceTable { name: self.name.clone(), format, key })
    }
}

/// The format of CSV by its first rows. Nothing is known of nulls further down, so that each column may be null.
fn inferred(input: &mut BufReader<File>, csv: &CsvOptions) -> Result<Format, String> {
    let mut sample = Vec::new();
    let read = input.by_ref().take(SAMPLE_BYTES).read_to_end(&mut sample);
    let read = read.and_then(|_| input.rewind());
    read.map_err(|error: io::Error| format!("cannot be read: {error}"))?;
    let infer = InferOptions { all_nullable: true, ..InferOptions::default() };
    let is_whole = (sample.len() as u64) < SAMPLE_BYTES;
    infer_csv_sample(&sample, is_whole, csv, &infer).map_err(|error| error.to_string())
}

/// The world's clock, in ns since 1970.
fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// Reads all tables for the first time.
///
/// # Errors
/// The first that cannot be read, in words.
pub(crate) fn read_all(specs: Vec<TableSpec>) -> Result<(Tables, Vec<WatchedTable>), String> {
    let (mut shared, mut watched) = (Vec::with_capacity(specs.len()), Vec::with_capacity(specs.len()));
    for spec in specs {
        // First: a change while it is read is one.
        let seen = FileState::of(&spec.path);
        let (table, rows) = spec.read(None).map_err(|why| format!("table `{}`: {why}", spec.name))?;
        shared.push(SharedTable::new(table, rows));
        watched.push(WatchedTable { spec, seen });
    }
    Ok((Tables::new(shared), watched))
}

/// A table whose file is looked at.
pub(crate) struct WatchedTable {
    spec: TableSpec,
    /// The state of the file that was last taken or refused; none where it was not there.
    seen: Option<FileState>,
}

impl WatchedTable {
    /// Reads the file again if it has changed. One that cannot be read leaves the rows in place, and is tried again once it has changed.
    fn look(&mut self, tables: &Tables, events: &Events) {
        let (state, name) = (FileState::of(&self.spec.path), &self.spec.name);
        let Some(shared) = tables.get(name).filter(|_| state != self.seen) else { return };
        match self.spec.read(Some(shared.table())) {
            // It was written meanwhile: what was read may be a part of it.
            _ if FileState::of(&self.spec.path) != state => {}
            Ok((_, rows)) => {
                self.seen = state;
                let text = format!("table `{name}` has {} rows now, {} bytes", rows.len(), rows.bytes());
                shared.set_rows(rows);
                events.note("table_loaded", About::default(), text);
            }
            Err(why) => {
                self.seen = state;
                if shared.note_failure(&why) {
                    let text = format!("table `{name}` keeps its rows: {why}");
                    events.note("table_failed", About::default(), text);
                }
            }
        }
    }
}

/// The thread that looks at the tables' files; it ends with this.
#[derive(Debug)]
pub(crate) struct TableThread {
    /// Closed to stop the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl TableThread {
    /// Starts the thread; none without tables.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn start(watched: Vec<WatchedTable>, tables: Tables, events: Events) -> io::Result<Option<TableThread>> {
        if watched.is_empty() {
            return Ok(None);
        }
        let (stop, stopped) = channel();
        let run = move || watch(watched, &tables, &events, &stopped);
        let thread = std::thread::Builder::new().name("tables".into()).spawn(run)?;
        Ok(Some(TableThread { stop: Some(stop), thread: Some(thread) }))
    }
}

impl Drop for TableThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn watch(mut watched: Vec<WatchedTable>, tables: &Tables, events: &Events, stopped: &Receiver<()>) {
    while stopped.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
        watched.iter_mut().for_each(|table| table.look(tables, events));
    }
}

/// The reports on all tables.
pub(crate) fn infos(tables: &Tables) -> Vec<TableInfo> {
    let info = |shared: &SharedTable| {
        let (table, rows) = (shared.table(), shared.rows());
        TableInfo {
            name: table.name.clone(),
            key: table.key_names().map(str::to_owned).collect(),
            rows: rows.len(),
            keys: rows.keys() as u64,
            rows_without_key: rows.without_key(),
            bytes: rows.bytes(),
            loaded_at_ms: rows.loaded_ns() / 1_000_000,
            loads: shared.loads(),
            failures: shared.failures(),
            failure: shared.failure(),
            schema: table.format.schema(),
        }
    };
    tables.iter().map(info).collect()
}

/// The tables of a query in words, a line each.
pub(crate) fn described(tables: &Tables, names: &[&str]) -> String {
    let line = |name: &&str| {
        let shared = tables.get(name)?;
        let rows = shared.rows();
        let key: Vec<&str> = shared.table().key_names().collect();
        let age_s = now_ns().saturating_sub(rows.loaded_ns()) / 1_000_000_000;
        let mut line = format!(
            "table    {name}: {} rows by {}, {} bytes, loaded {age_s} s ago\n",
            rows.len(),
            key.join(", "),
            rows.bytes()
        );
        if let Some(why) = shared.failure() {
            line.push_str(&format!("         a newer file was not taken: {why}\n"));
        }
        Some(line)
    };
    names.iter().filter_map(line).collect()
}

#[cfg(test)]
mod tests;
