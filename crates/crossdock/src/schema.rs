//! Schema files.

mod imports;

use std::path::{Path, PathBuf};

use crossdock_format::Format;
use crossdock_format::csv::CsvOptions;
use crossdock_format::encoding::{Encoding, EncodingOptions, Schema, SchemaLanguage};

use crate::failure::{Failure, Outcome};
use crate::input::{Input, Rows};
use crate::out;

/// The forms of a schema file.
const WANTED: &str = "a schema has one field per line, `name type` or `name type null`, such as `dep_delay i16 null`; \
                      or it is a .proto, an .avsc, a JSON Schema in .json, or a data file that contains its schema";
/// Ignored parts of a schema that are listed.
const SHOWN_IGNORED: usize = 5;

/// A schema file, and the format that it says.
pub(crate) struct SchemaFile {
    pub(crate) format: Format,
    pub(crate) schema: Schema,
}

/// Reads a schema file: `FILE`, or `FILE:MESSAGE` where there is no file of that whole name.
pub(crate) fn read(path: &Path) -> Outcome<SchemaFile> {
    read_with(path, &[])
}

/// The same, with further directories for the files that a `.proto` imports.
pub(crate) fn read_with(path: &Path, proto_path: &[PathBuf]) -> Outcome<SchemaFile> {
    let (file, message) = split(path);
    let shown = file.display();
    if let Some(encoding) = Encoding::of_name(&file.to_string_lossy()).filter(|encoding| says_fields(*encoding, file)) {
        let format = of_data(file, encoding)?;
        let schema = Schema::new("inferred", format.schema(), None);
        return Ok(SchemaFile { format, schema });
    }
    let schema = read_text(path, proto_path)?;
    if schema.language == SchemaLanguage::Crossdock {
        refuse_message(file, message, "a schema of one field per line")?;
        let format = Format::parse_schema(&schema.text).map_err(|error| match error.line {
            Some(line) => Failure::usage(format!("{shown}:{line}: {}", error.problem)).hint(WANTED),
            None => Failure::usage(format!("{shown}: {error}")).hint(WANTED),
        })?;
        return Ok(SchemaFile { format, schema });
    }
    if schema.language == SchemaLanguage::JsonSchema {
        refuse_message(file, message, "a JSON Schema")?;
    }
    let format = schema.format().map_err(|error| {
        let error = error.to_string();
        // Errors in the text of a `.proto` begin with its name.
        let own = error.strip_prefix(&*schema.name).filter(|rest| rest.starts_with(':'));
        Failure::usage(own.map_or_else(|| format!("{shown}: {error}"), |rest| format!("{shown}{rest}")))
    })?;
    say_ignored(file, &schema.ignored());
    Ok(SchemaFile { format, schema })
}

/// The text of a schema file, and of the files that it imports; which message of it is meant may be open.
pub(crate) fn read_text(path: &Path, proto_path: &[PathBuf]) -> Outcome<Schema> {
    let (path, message) = split(path);
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::usage(format!("cannot read the schema {}: {error}", path.display())).hint(WANTED))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut schema = Schema::new(name, text, message.map(str::to_owned));
    if schema.language == SchemaLanguage::Protobuf {
        schema.imports = imports::imports(path.parent().unwrap_or(Path::new("")), proto_path, &schema.text);
    }
    Ok(schema)
}

/// Refuses `FILE:MESSAGE` where the file has no messages with names.
fn refuse_message(path: &Path, message: Option<&str>, what: &str) -> Outcome {
    let Some(message) = message else { return Ok(()) };
    let shown = path.display();
    Err(Failure::usage(format!("{shown}:{message}: {what} has no messages to choose from"))
        .hint(format!("give the file alone: {shown}")))
}

/// Says what of a schema the format does not have.
fn say_ignored(path: &Path, ignored: &[String]) {
    if ignored.is_empty() {
        return;
    }
    let more = match ignored.len().saturating_sub(SHOWN_IGNORED) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let listed = ignored.iter().take(SHOWN_IGNORED).cloned().collect::<Vec<_>>().join(", ");
    out::say(format_args!("{}: a format has no equivalent for this, so it is ignored: {listed}{more}", path.display()));
}

/// Whether a file of this encoding says which fields it has, or shows it by its first rows. A file that ends in `.json`
/// is a JSON Schema.
fn says_fields(encoding: Encoding, path: &Path) -> bool {
    let is_rows = matches!(encoding, Encoding::Csv | Encoding::Json);
    encoding.carries_schema() || (is_rows && path.extension().is_none_or(|ending| ending != "json"))
}

/// The format of a file of data: what it says itself, else what its first rows look like.
fn of_data(path: &Path, encoding: Encoding) -> Outcome<Format> {
    let mut input = Input::peek(path)?;
    let mut csv = CsvOptions::of_name(&input.name);
    if encoding == Encoding::Csv
        && let Some(found) = input.find_delimiter(csv.delimiter, |_| false)?
    {
        csv.delimiter = found;
    }
    let options = EncodingOptions { csv, ..EncodingOptions::default() };
    match encoding {
        Encoding::Csv => input.infer(Some(&options)),
        Encoding::Json => input.infer(None),
        _ => Ok(Rows::open(input, encoding, &options)?.0),
    }
}

/// Whether there is such a schema file.
pub(crate) fn is_file(path: &Path) -> bool {
    split(path).0.exists()
}

fn split(path: &Path) -> (&Path, Option<&str>) {
    match path.to_str().and_then(|text| text.rsplit_once(':')) {
        Some((file, message)) if !path.exists() && !message.contains('/') => (Path::new(file), Some(message)),
        _ => (path, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_stands_behind_the_last_colon() {
        let (path, message) = split(Path::new("dir/feed.proto:market.Tick"));
        assert_eq!((path, message), (Path::new("dir/feed.proto"), Some("market.Tick")));
        assert_eq!(split(Path::new("dir/feed.proto")).1, None);
        assert_eq!(split(Path::new("a:b/feed.proto")).1, None);
    }
}
