//! Schema files.

use std::path::Path;

use crossdock_format::Format;

use crate::failure::{Failure, Outcome};

/// Reads a schema file.
pub(crate) fn read(path: &Path) -> Outcome<Format> {
    let shown = path.display();
    let wanted = "a schema has a field a line, `name type` or `name type null`, such as `dep_delay i16 null`";
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::usage(format!("cannot read the schema {shown}: {error}")).hint(wanted))?;
    Format::parse_schema(&text).map_err(|error| match error.line {
        Some(line) => Failure::usage(format!("{shown}:{line}: {}", error.problem)).hint(wanted),
        None => Failure::usage(format!("{shown}: {error}")).hint(wanted),
    })
}
