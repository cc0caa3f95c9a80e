//! Reference tables: their rows by key, which all handlers share, and how they are exchanged for newer ones.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossdock_format::{Format, Record, record_len};
use crossdock_query::{Operator, ReferenceTable, StatefulProgram};

use super::arena::Arena;
use super::keys::{ENTRY_BYTES, KeyColumns, Keys, NONE};
use crate::handler::ParameterValues;

/// Records begin at multiples of this many bytes.
const UNIT: usize = 8;

/// The rows of a reference table at one time, by key. They do not change, so that all handlers share them.
pub struct TableRows {
    format: Format,
    /// All rows, one behind the other, in the order of the file.
    records: Vec<u8>,
    /// Where each row with a key begins, in units of 8 bytes: those of one key are beside each other, in the order of the file.
    starts: Vec<u32>,
    /// By a key's number, where its rows begin in `starts`; a last one is behind all of them.
    firsts: Vec<u32>,
    keys: Keys,
    /// The keys that are too long for their entries.
    arena: Arena,
    rows: u64,
    without_key: u64,
    loaded_ns: u64,
}

impl TableRows {
    /// The rows of a table from records of its format, one behind the other, which were read at this time, in ns since 1970.
    ///
    /// # Errors
    /// In words: the key has a column that is none, or there are too many rows.
    pub fn new(table: &ReferenceTable, records: Vec<u8>, loaded_ns: u64) -> Result<TableRows, String> {
        if records.len() / UNIT >= NONE as usize {
            return Err(format!("a table has {} bytes at most", NONE as usize * UNIT));
        }
        let columns = KeyColumns::of(&table.format, &table.key, true)?;
        let (mut keys, mut arena, mut key) = (Keys::default(), Arena::default(), Vec::new());
        // The start of each row, and the number of its key.
        let (mut places, mut counts): (Vec<(u32, u32)>, Vec<u32>) = (Vec::new(), Vec::new());
        let (mut at, mut rows) = (0, 0);
        while let Some(rest) = records.get(at..)
            && let Some(length) = record_len(rest)
        {
            let record = Record::assume_checked(&table.format, &rest[..length]);
            if !columns.read(&record, &mut key) {
                let (number, is_new) = keys.enter(&key, &mut arena);
                if is_new {
                    counts.push(0);
                }
                counts[number as usize] += 1;
                places.push(((at / UNIT) as u32, number));
            }
            (at, rows) = (at + length, rows + 1);
        }
        let mut firsts = Vec::with_capacity(counts.len() + 1);
        let behind = counts.iter().fold(0, |first, count| {
            firsts.push(first);
            first + count
        });
        firsts.push(behind);
        let (mut next, mut starts) = (firsts.clone(), vec![0; places.len()]);
        for (start, number) in &places {
            let place = &mut next[*number as usize];
            starts[*place as usize] = *start;
            *place += 1;
        }
        let without_key = rows - places.len() as u64;
        let format = table.format.clone();
        Ok(TableRows { format, records, starts, firsts, keys, arena, rows, without_key, loaded_ns })
    }

    /// The format of its rows.
    pub fn format(&self) -> &Format {
        &self.format
    }

    /// How many there are.
    pub fn len(&self) -> u64 {
        self.rows
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// How many of them have a null in their key, so that no join finds them.
    pub fn without_key(&self) -> u64 {
        self.without_key
    }

    /// How many different keys they have.
    pub fn keys(&self) -> usize {
        self.keys.len()
    }

    /// The memory that they take with the index by key, in bytes.
    pub fn bytes(&self) -> u64 {
        let of_index = (self.starts.capacity() + self.firsts.capacity()) * size_of::<u32>();
        (self.records.capacity() + of_index + self.keys.len() * ENTRY_BYTES + self.arena.used()) as u64
    }

    /// When they were read, in ns since 1970-01-01 UTC.
    pub fn loaded_ns(&self) -> u64 {
        self.loaded_ns
    }

    /// The rows that have this key.
    #[inline]
    pub(super) fn of_key<'r>(&'r self, key: &[u8]) -> impl Iterator<Item = &'r [u8]> {
        let range = self.keys.find(key, &self.arena).and_then(|number| {
            let number = number as usize;
            Some(*self.firsts.get(number)? as usize..*self.firsts.get(number + 1)? as usize)
        });
        let starts = range.and_then(|range| self.starts.get(range)).unwrap_or_default();
        starts.iter().filter_map(|start| {
            let rest = self.records.get(*start as usize * UNIT..)?;
            rest.get(..record_len(rest)?)
        })
    }
}

impl fmt::Debug for TableRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TableRows({} rows, {} bytes)", self.len(), self.bytes())
    }
}

/// A reference table of a daemon, with the rows that it has now.
#[derive(Debug)]
pub struct SharedTable {
    table: ReferenceTable,
    rows: Mutex<Arc<TableRows>>,
    loads: AtomicU64,
    failures: AtomicU64,
    failure: Mutex<Option<String>>,
}

impl SharedTable {
    /// A table with its first rows.
    pub fn new(table: ReferenceTable, rows: TableRows) -> SharedTable {
        let (rows, failure) = (Mutex::new(Arc::new(rows)), Mutex::new(None));
        SharedTable { table, rows, loads: AtomicU64::new(1), failures: AtomicU64::new(0), failure }
    }

    /// The table as queries see it.
    pub fn table(&self) -> &ReferenceTable {
        &self.table
    }

    /// The rows that it has now. Not for a core.
    pub fn rows(&self) -> Arc<TableRows> {
        Arc::clone(&self.rows.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// It has other rows from now on.
    pub fn set_rows(&self, rows: TableRows) {
        let before = std::mem::replace(&mut *self.rows.lock().unwrap_or_else(PoisonError::into_inner), Arc::new(rows));
        *self.last_failure() = None;
        self.loads.fetch_add(1, Ordering::Release);
        drop(before);
    }

    /// Newer rows could not be read, for this reason: it keeps those that it has. Whether the reason is another than last time.
    pub fn note_failure(&self, why: &str) -> bool {
        self.failures.fetch_add(1, Ordering::Relaxed);
        let mut last = self.last_failure();
        let is_new = last.as_deref() != Some(why);
        *last = Some(why.to_owned());
        is_new
    }

    fn last_failure(&self) -> MutexGuard<'_, Option<String>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why the file could not be read when that was last tried, if it could not.
    pub fn failure(&self) -> Option<String> {
        self.last_failure().clone()
    }

    /// How often it got rows, the first ones too.
    pub fn loads(&self) -> u64 {
        self.loads.load(Ordering::Acquire)
    }

    /// How often newer rows could not be read.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }
}

/// The reference tables of a daemon.
#[derive(Clone, Debug, Default)]
pub struct Tables(Arc<[SharedTable]>);

impl Tables {
    /// These.
    pub fn new(tables: Vec<SharedTable>) -> Tables {
        Tables(tables.into())
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &SharedTable> {
        self.0.iter()
    }

    /// The tables as queries see them.
    pub fn known(&self) -> impl Iterator<Item = &ReferenceTable> {
        self.iter().map(SharedTable::table)
    }

    /// The one of this name.
    pub fn get(&self, name: &str) -> Option<&SharedTable> {
        self.iter().find(|shared| shared.table.name == name)
    }

    /// A number that is another one once a table has other rows.
    pub fn version(&self) -> u64 {
        self.iter().map(SharedTable::loads).sum()
    }
}

/// The order to a handler that looks rows up in a table: it is to go on with these. It is a small one, carried out between two batches.
#[derive(Clone, Debug)]
pub struct TableOrder {
    table: Arc<str>,
    rows: Arc<TableRows>,
}

impl TableOrder {
    /// To go on with the rows that a table has now.
    pub fn of(shared: &SharedTable) -> TableOrder {
        TableOrder { table: shared.table.name.as_str().into(), rows: shared.rows() }
    }

    /// The order in the form in which a handler takes it: [`Handler::set_parameters`](crate::Handler::set_parameters). The rows that it
    /// had are in there then, to be dropped off the core.
    #[must_use]
    pub fn into_values(self) -> ParameterValues {
        ParameterValues::new(self)
    }
}

/// The rows that the stages of a query look up, by the stage's number.
#[derive(Debug, Default)]
pub(super) struct StageTables(Vec<Option<StageTable>>);

#[derive(Debug)]
struct StageTable {
    name: Arc<str>,
    rows: Arc<TableRows>,
}

impl StageTables {
    /// Those that the tables have now.
    ///
    /// # Errors
    /// In words: one is not there, or is of another format than the query was planned for.
    pub(super) fn of(program: &StatefulProgram, tables: &Tables) -> Result<StageTables, String> {
        let of_stage = |stage: &crossdock_query::Stage| {
            let Operator::Lookup(lookup) = &stage.operator else { return Ok(None) };
            let name = &lookup.table;
            let shared = tables.get(name).ok_or_else(|| format!("there is no reference table `{name}`"))?;
            if shared.table.format != lookup.format || shared.table.key != lookup.key {
                return Err(format!("the reference table `{name}` has another format, or another key"));
            }
            Ok(Some(StageTable { name: name.as_str().into(), rows: shared.rows() }))
        };
        program.stages.iter().map(of_stage).collect::<Result<Vec<_>, String>>().map(StageTables)
    }

    /// The rows that a stage looks up.
    #[inline]
    pub(super) fn rows(&self, stage: usize) -> Option<&TableRows> {
        self.0.get(stage)?.as_ref().map(|table| &*table.rows)
    }

    /// Goes on with other rows of a table; those before are in the order then. Whether a stage looks rows up in it.
    pub(super) fn exchange(&mut self, order: &mut TableOrder) -> bool {
        let rows = Arc::clone(&order.rows);
        let mut is_used = false;
        for table in self.0.iter_mut().flatten().filter(|table| *table.name == *order.table) {
            // The last stage's is left in the order: none of them is dropped here for good.
            order.rows = std::mem::replace(&mut table.rows, Arc::clone(&rows));
            is_used = true;
        }
        is_used
    }
}
