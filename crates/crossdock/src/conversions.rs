//! `crossdock conversions` and `crossdock paths`: how records of one format become those of another.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crossdock_format::convert::{Codec, Conversion};
use crossdock_format::encoding::{Encoding, Framing, RegisteredSchema, Schema, SchemaLanguage};
use crossdock_runtime::info::{ConversionInfo, PathInfo, PathStep};
use crossdock_runtime::{FormatName, KeptConversion};

use crate::cli::{AddConversion, Conversions, ConversionsCommand, List, MessageCoding, RemoveConversion};
use crate::failure::{Failure, Outcome};
use crate::formats::report;
use crate::handlers::{chains, tree};
use crate::http::client::Client;
use crate::lists::{client, objects, reports};
use crate::show::Column;
use crate::table::Side;
use crate::{http, out, schema};

/// `crossdock conversions`, and what is done to them.
pub(crate) fn run(arguments: &Conversions) -> Outcome {
    match &arguments.command {
        None => list(&arguments.list),
        Some(ConversionsCommand::Add(add)) => keep(add),
        Some(ConversionsCommand::Remove(remove)) => discard(remove),
    }
}

fn list(arguments: &List) -> Outcome {
    let http::Conversions { conversions } = client(arguments)?.get("/v1/conversions")?;
    let empty = "no conversions: programs register them, or `crossdock conversions add`";
    reports(arguments, &CONVERSION_COLUMNS, &conversions, empty)
}

const CONVERSION_COLUMNS: [Column<ConversionInfo>; 6] = [
    Column::Of("stream"),
    Column::Made("from", Side::Left, |conversion| named(&conversion.from, conversion.from_version)),
    Column::Made("to", Side::Left, |conversion| named(&conversion.to, conversion.to_version)),
    Column::Made("owner", Side::Left, |conversion| {
        conversion.owner.clone() + if conversion.in_force { "" } else { " (covered)" }
    }),
    Column::Made("ns", Side::Right, |conversion| format!("{:.0}", conversion.ns_per_record)),
    Column::Made("how", Side::Left, |conversion| how(&conversion.conversion)),
];

/// A conversion in a line.
fn how(text: &str) -> String {
    match text.trim() {
        "" => "by name".to_owned(),
        sql if sql.len() >= 6 && sql.is_char_boundary(6) && sql[..6].eq_ignore_ascii_case("select") => sql.to_owned(),
        // A schema is long, and its name says enough.
        codec if codec.starts_with("decode ") || codec.starts_with("encode ") => {
            codec.lines().filter(|line| !line.starts_with('|')).collect::<Vec<_>>().join("; ")
        }
        rules => format!("by name: {}", rules.lines().collect::<Vec<_>>().join("; ")),
    }
}

/// A format, by its version where it has one.
pub(crate) fn named(id: &str, version: Option<u32>) -> String {
    version.map_or_else(|| id.to_owned(), |version| format!("v{version}"))
}

/// `crossdock conversions add`.
fn keep(arguments: &AddConversion) -> Outcome {
    let AddConversion { stream, from, to, sql, rule, file, decode, encode, message, answer } = arguments;
    let conversion = match (sql, file, decode, encode) {
        (Some(sql), ..) => sql.clone(),
        (_, _, Some(encoding), _) => Conversion::Decode(codec(*encoding, message)?).to_string(),
        (_, _, _, Some(encoding)) => Conversion::Encode(codec(*encoding, message)?).to_string(),
        (_, Some(path), ..) => std::fs::read_to_string(path).map_err(|error| {
            Failure::usage(format!("cannot read the conversion {}: {error}", path.display()))
                .hint("the file has a query, or rules such as `rename old new`, one per line")
        })?,
        (None, None, None, None) => rule.iter().map(|rule| format!("{rule}\n")).collect(),
    };
    let directories = &message.proto_path.directories;
    let (from, to) = (format_named(from, directories)?, format_named(to, directories)?);
    let kept = KeptConversion { stream: stream.clone(), from, to, conversion };
    report(Client::new(&answer.control)?.post("/v1/conversions", &kept)?, answer.json)
}

/// How messages are written down.
fn codec(encoding: Encoding, arguments: &MessageCoding) -> Outcome<Codec> {
    let MessageCoding { field, framing, keep, schema, schemas, allow, ignore_unknown, proto_path } = arguments;
    let proto_path = &proto_path.directories;
    match (framing, schema, schemas) {
        (Framing::Confluent, Some(_), _) => {
            let why = "--schema does not go with --framing confluent, where each message names its schema by an id";
            return Err(Failure::usage(why).hint(
                "name the schemas by their ids: --schemas FILE, with {\"7\": \"quote.proto\"} or the registry's answer in it",
            ));
        }
        (Framing::Confluent, None, None) => {
            return Err(Failure::usage("--framing confluent needs --schemas FILE").hint(SCHEMAS_HINT));
        }
        (_, _, Some(_)) if *framing != Framing::Confluent => {
            let why = "--schemas is for messages that name their schemas by ids: --framing confluent";
            return Err(Failure::usage(why).hint("for messages of one schema, use --schema"));
        }
        _ => {}
    }
    let schema = schema.as_deref().map(|path| schema::read_with(path, proto_path)).transpose()?;
    let registered = match schemas {
        Some(path) => read_schemas(path, encoding, proto_path)?,
        None => Vec::new(),
    };
    Ok(Codec {
        encoding,
        field: field.clone(),
        framing: *framing,
        keep: keep.clone(),
        ignore_unknown: *ignore_unknown,
        allow: allow.clone(),
        schema: schema.map(|file| file.schema),
        registered,
    })
}

/// The content of a file of `--schemas`.
const SCHEMAS_HINT: &str = "the file has the answer of a schema registry to GET /schemas, \
                            [{\"id\": 7, \"schemaType\": \"PROTOBUF\", \"schema\": \"...\"}, ...], or a schema file for each \
                            id, {\"7\": \"quote.proto\"}";

/// The schemas of a registry that are of this encoding, or those of the files that are named by ids.
fn read_schemas(path: &Path, encoding: Encoding, proto_path: &[PathBuf]) -> Outcome<Vec<RegisteredSchema>> {
    let shown = path.display();
    let refuse = |why: String| Failure::usage(why).hint(SCHEMAS_HINT);
    let text =
        std::fs::read_to_string(path).map_err(|error| refuse(format!("cannot read the schemas {shown}: {error}")))?;
    let by_id = serde_json::from_str::<BTreeMap<String, String>>(&text).ok();
    let by_id =
        by_id.filter(|by_id| !by_id.is_empty() && by_id.keys().all(|key| key.bytes().all(|b| b.is_ascii_digit())));
    let Some(by_id) = by_id else {
        return RegisteredSchema::read_list(&text, encoding).map_err(|error| refuse(format!("{shown}: {error}")));
    };
    let directory = path.parent().unwrap_or(Path::new(""));
    let mut ids = BTreeSet::new();
    let read = |(id, file): (String, String)| {
        let number = id.parse().map_err(|_| refuse(format!("{shown}: `{id}` is no schema id: one has 32 bits")))?;
        if !ids.insert(number) {
            return Err(refuse(format!("{shown}: there are two schemas with the id {number}")));
        }
        // Each message says by its indexes which of the schema's messages it is.
        let schema = Schema { message: None, ..schema::read_text(&directory.join(&file), proto_path)? };
        let is_wanted = match encoding {
            Encoding::Protobuf => schema.language == SchemaLanguage::Protobuf,
            Encoding::Avro => schema.language == SchemaLanguage::Avro,
            Encoding::Json => schema.language == SchemaLanguage::JsonSchema,
            _ => false,
        };
        match is_wanted {
            true => Ok(RegisteredSchema { id: number, schema }),
            false => Err(refuse(format!("{shown}: schema {id}, {file}, is not of {encoding}"))),
        }
    };
    by_id.into_iter().map(read).collect()
}

/// `crossdock conversions remove`.
fn discard(arguments: &RemoveConversion) -> Outcome {
    let RemoveConversion { stream, from, to, proto_path, answer } = arguments;
    let directories = &proto_path.directories;
    let (from, to) = (format_named(from, directories)?, format_named(to, directories)?);
    let kept = KeptConversion { stream: stream.clone(), from, to, conversion: String::new() };
    report(Client::new(&answer.control)?.delete("/v1/conversions", &kept)?, answer.json)
}

/// A format as the command line names it: a version, an id, or a schema file.
pub(crate) fn format_named(text: &str, proto_path: &[PathBuf]) -> Outcome<FormatName> {
    match text.parse() {
        Ok(name) => Ok(name),
        Err(_) if std::path::Path::new(text).exists() => {
            Ok(FormatName::Description(schema::read_with(text.as_ref(), proto_path)?.format.describe()))
        }
        Err(why) => {
            Err(Failure::usage(why).hint("or the name of a schema file, for a format that was not announced yet"))
        }
    }
}

/// `crossdock paths`.
pub(crate) fn paths(arguments: &List) -> Outcome {
    let http::Paths { paths } = client(arguments)?.get("/v1/paths")?;
    let http::Handlers { handlers } = client(arguments)?.get("/v1/handlers")?;
    if arguments.json {
        objects(&paths)?;
        return objects(&chains(&handlers));
    }
    if !handlers.is_empty() {
        out::print(tree(&handlers) + if paths.is_empty() { "" } else { "\n" })?;
        if paths.is_empty() {
            return Ok(());
        }
    }
    let empty = "no paths: handlers have them (`crossdock handler deploy`), and subscribers that list the formats \
                 they accept (`crossdock subscribe --accept`)";
    reports(arguments, &PATH_COLUMNS, &paths, empty)?;
    for (path, refusal) in paths.iter().filter_map(|path| Some((path, path.refusal.as_ref()?))) {
        out::say(format_args!(
            "{}, {}: the latest refusal: {refusal}",
            path.stream,
            named(&path.from, path.from_version)
        ));
    }
    Ok(())
}

const PATH_COLUMNS: [Column<PathInfo>; 9] = [
    Column::Of("stream"),
    Column::Made("from", Side::Left, |path| named(&path.from, path.from_version)),
    Column::Made("through", Side::Left, way),
    Column::Made("ns", Side::Right, path_ns),
    Column::Of("subscriptions"),
    Column::Of("records_in"),
    Column::Of("records_out"),
    Column::Of("refused"),
    Column::Of("waiting"),
];

fn path_ns(path: &PathInfo) -> String {
    if path.is_missing { "-".to_owned() } else { format!("{:.0}", path.ns_per_record) }
}

/// The formats on a path, the accepted one last.
pub(crate) fn way(path: &PathInfo) -> String {
    if path.is_missing {
        return format!("no route to {}", named(&path.to, path.to_version));
    }
    let step = |step: &PathStep| {
        let to = named(&step.to, step.to_version);
        if step.registered { to } else { format!("{to} (by name)") }
    };
    match &path.steps[..] {
        [] => "unchanged".to_owned(),
        steps => steps.iter().map(step).collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversion_says_how_it_goes_in_a_line() {
        assert_eq!(how(""), "by name");
        assert_eq!(how("rename a b\ndrop c\n"), "by name: rename a b; drop c");
        assert_eq!(how("select a AS b FROM x"), "select a AS b FROM x");
        assert_eq!(how("dröp c"), "by name: dröp c");
        assert_eq!(
            how("decode protobuf body\nschema q.proto Q\n|message Q {}\n"),
            "decode protobuf body; schema q.proto Q"
        );
    }

    #[test]
    fn a_path_says_what_is_on_it_or_that_there_is_none() {
        let step =
            |version, registered| PathStep { to_version: version, to: "ab".into(), registered, ..PathStep::default() };
        let mut path = PathInfo { to: "cd".into(), ..PathInfo::default() };
        assert_eq!(way(&path), "unchanged");
        path.steps = vec![step(Some(2), true), step(None, false)];
        assert_eq!(way(&path), "v2, ab (by name)");
        path.is_missing = true;
        assert_eq!((way(&path).as_str(), path_ns(&path).as_str()), ("no route to cd", "-"));
    }

    #[test]
    fn a_format_is_a_version_an_id_or_a_file() {
        assert_eq!(format_named("v2", &[]).ok(), Some(FormatName::Version(2)));
        assert_eq!(format_named("00c0ffee00c0ffee", &[]).ok(), Some(FormatName::Id("00c0ffee00c0ffee".into())));
        assert!(format_named("no-such-file.schema", &[]).is_err_and(|failure| failure.text().contains("v3")));
    }
}
