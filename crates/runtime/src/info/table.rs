//! The report on a reference table.

use super::field::{Unit, counter, gauge, label, listed, reports};

reports! {
    /// One reference table: a row of `crossdock tables`.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct TableInfo {
        /// Its name.
        pub name: String = label("table").title("table"),
        /// The columns of its key.
        pub key: Vec<String>,
        /// Its rows.
        pub rows: u64 = gauge("crossdock_table_rows"),
        /// The different keys that they have.
        pub keys: u64 = gauge("crossdock_table_keys"),
        /// Rows with a null in their key, which no join finds.
        pub rows_without_key: u64 = gauge("crossdock_table_rows_without_key").title("without key"),
        /// The memory that they take with the index by key.
        pub bytes: u64 = gauge("crossdock_table_size").unit(Unit::Bytes),
        /// When they were read from the file.
        pub loaded_at_ms: u64 = gauge("crossdock_table_loaded").unit(Unit::AtMs).title("loaded at"),
        /// How often its file was read, at the start and after changes.
        pub loads: u64 = counter("crossdock_table_loads"),
        /// Changed files that were not taken, because they could not be read.
        pub failures: u64 = counter("crossdock_table_failures").title("refused"),
        /// Why the file could not be read when that was last tried; absent if it could.
        pub failure: Option<String> = listed().title("last refused"),
        /// The schema of its rows: a line for each column.
        pub schema: String,
    }
}
