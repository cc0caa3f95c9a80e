//! `[[table]]`: reference tables, in which queries look rows up.

use std::path::{Path, PathBuf};

use crossdock_format::Format;
use crossdock_format::encoding::Encoding;
use crossdock_runtime::settings::name;
use crossdock_runtime::{MAX_TABLE_BYTES, TableSpec};
use serde::{Deserialize, Deserializer, de};

use super::values::in_words;
use crate::failure::Outcome;
use crate::quantity::parse_bytes;
use crate::schema;

/// `[[table]]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TableSection {
    /// The table's name.
    #[serde(deserialize_with = "name")]
    pub(crate) name: String,
    /// The file with its rows; relative to the configuration's directory.
    pub(crate) path: PathBuf,
    /// The columns of its key: one by its name, or several.
    #[serde(deserialize_with = "columns")]
    key: Vec<String>,
    /// The file with its schema; relative to the configuration's directory. Without one the file says it, or its first rows do.
    #[serde(default)]
    schema: Option<PathBuf>,
    /// The file's encoding, where its ending does not say it.
    #[serde(default)]
    format: Option<TableEncoding>,
    /// The most memory of its rows.
    #[serde(default, deserialize_with = "memory")]
    max_bytes: Option<u64>,
}

/// An encoding of a table's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum TableEncoding {
    Csv,
    Parquet,
}

fn memory<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    in_words(deserializer, parse_bytes).map(Some)
}

/// One name, or a list of them.
fn columns<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(
        untagged,
        expecting = "the key is the name of a column, or a list of names, such as [\"carrier\", \"flight\"]"
    )]
    enum OneOrSeveral {
        One(String),
        Several(Vec<String>),
    }
    let columns = match OneOrSeveral::deserialize(deserializer)? {
        OneOrSeveral::One(column) => vec![column],
        OneOrSeveral::Several(columns) => columns,
    };
    match columns.is_empty() || columns.iter().any(String::is_empty) {
        true => Err(de::Error::custom("the key is the name of a column, or a list of names")),
        false => Ok(columns),
    }
}

impl TableSection {
    /// The encoding that its file has.
    fn encoding(&self) -> Option<Encoding> {
        match self.format {
            Some(TableEncoding::Csv) => Some(Encoding::Csv),
            Some(TableEncoding::Parquet) => Some(Encoding::Parquet),
            None => {
                let of_ending = Encoding::of_name(&self.path.to_string_lossy());
                of_ending.filter(|encoding| matches!(encoding, Encoding::Csv | Encoding::Parquet))
            }
        }
    }

    /// The declaration of the table. Paths are relative to `directory`.
    ///
    /// # Errors
    /// Its schema file cannot be read.
    pub(crate) fn spec(&self, directory: &Path) -> Outcome<TableSpec> {
        let read = |schema: &PathBuf| schema::read(&directory.join(schema)).map(|read| read.format);
        let format: Option<Format> = self.schema.as_ref().map(read).transpose()?;
        Ok(TableSpec {
            name: self.name.clone(),
            path: directory.join(&self.path),
            // Checked when the file was read.
            encoding: self.encoding().unwrap_or(Encoding::Csv),
            key: self.key.clone(),
            format,
            max_bytes: self.max_bytes.unwrap_or(MAX_TABLE_BYTES),
        })
    }

    /// Values that do not go together, each key being right for itself.
    pub(super) fn contradiction(&self) -> Option<String> {
        let why = format!(
            "[[table]] `{}`: the ending of {} says neither CSV nor Parquet: add format = \"csv\" or format = \"parquet\"",
            self.name,
            self.path.display()
        );
        self.encoding().is_none().then_some(why)
    }
}
