//! `crossdock formats`: which there are, what a reader of one would see of another, and how they may change.

use std::io::{self, IsTerminal};

use crossdock_format::Format;
use crossdock_format::encoding::{EncodingOptions, SchemaNotation};
use crossdock_format::registry::Diff;
use crossdock_runtime::info::{FieldInfo, FormatInfo};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;

use crate::cli::{
    Answer, CheckFormat, Control, DiffFormats, ExportFormat, Formats, FormatsCommand, List, ProtoPath, RemoveStream,
    RemoveVersion, SetPolicy, ShowFormat,
};
use crate::failure::{Failure, Outcome};
use crate::http::client::Client;
use crate::http::{Changed, FormatCheck, StreamPolicy};
use crate::lists::{client, objects, reports};
use crate::show::Column;
use crate::table::Side;
use crate::{http, out, schema};

/// `crossdock formats`, and what is asked of them.
pub(crate) fn run(arguments: &Formats) -> Outcome {
    match &arguments.command {
        None => list(&arguments.list),
        Some(FormatsCommand::Show(show)) => self::show(show),
        Some(FormatsCommand::Export(export)) => self::export(export),
        Some(FormatsCommand::Diff(diff)) => self::diff(diff),
        Some(FormatsCommand::Check(check)) => self::check(check),
        Some(FormatsCommand::Policy(policy)) => set_policy(policy),
        Some(FormatsCommand::Rm(version)) => remove_version(version),
    }
}

fn list(arguments: &List) -> Outcome {
    let http::Formats { formats } = client(arguments)?.get("/v1/formats")?;
    reports(arguments, &FORMAT_COLUMNS, &formats, "no formats: a publisher announces its own")
}

const FORMAT_COLUMNS: [Column<FormatInfo>; 3] = [
    Column::Of("id"),
    Column::Made("version of", Side::Left, |format| streams(format).join(", ")),
    Column::Made("fields", Side::Left, fields),
];

fn fields(format: &FormatInfo) -> String {
    let field = |field: &FieldInfo| format!("{} {}{}", field.name, field.ty, if field.nullable { " null" } else { "" });
    format.fields.iter().map(field).collect::<Vec<String>>().join(", ")
}

/// The streams that have a format, as `A:v1`, which is how a format can be named.
fn streams(format: &FormatInfo) -> Vec<String> {
    let pairs = format.streams.iter().zip(&format.versions);
    pairs.map(|(stream, version)| format!("{stream}:v{version}")).collect()
}

/// `crossdock formats show`.
fn show(arguments: &ShowFormat) -> Outcome {
    let format = format_named(&arguments.format, &arguments.proto_path, &arguments.list.control)?;
    if arguments.list.json {
        #[derive(Serialize)]
        struct Shown {
            id: String,
            description: String,
            schema: String,
        }
        let (id, description, schema) = (format.id().to_string(), format.describe(), format.schema());
        return out::print_json(&Shown { id, description, schema });
    }
    out::print(format!("# format {}\n{}", format.id(), format.schema()))
}

/// `crossdock formats export`.
fn export(arguments: &ExportFormat) -> Outcome {
    let ExportFormat { format, notation, proto_path, control } = arguments;
    if *notation == SchemaNotation::Arrow && io::stdout().is_terminal() {
        return Err(Failure::usage("an Arrow file is binary, and standard output is a terminal")
            .hint("send it to a file or a program: > schema.arrow, or | program"));
    }
    let format = format_named(format, proto_path, control)?;
    out::print(notation.export(&format, &EncodingOptions::default()).map_err(Failure::usage)?)
}

/// `crossdock formats diff`.
fn diff(arguments: &DiffFormats) -> Outcome {
    let DiffFormats { reader, written, proto_path, list } = arguments;
    let reader = format_named(reader, proto_path, &list.control)?;
    let written = format_named(written, proto_path, &list.control)?;
    let diff = Diff::of(&reader, &written);
    if list.json {
        #[derive(Serialize)]
        struct Line {
            field: String,
            seen: String,
            compatible: bool,
        }
        let mut lines: Vec<Line> = Vec::new();
        for field in &diff.fields {
            let (seen, compatible) = (field.seen.to_string(), field.seen.is_compatible());
            lines.push(Line { field: field.name.clone(), seen, compatible });
        }
        let lost =
            diff.lost.iter().map(|field| Line { field: field.clone(), seen: "lost".to_owned(), compatible: true });
        lines.extend(lost);
        return objects(&lines);
    }
    out::print(diff.to_string())
}

/// The output of a check with `--json`.
#[derive(Serialize)]
struct Checked<'a> {
    stream: &'a str,
    compatible: bool,
    note: Option<String>,
}

/// `crossdock formats check`.
fn check(arguments: &CheckFormat) -> Outcome {
    let CheckFormat { stream, file, proto_path, answer } = arguments;
    let format = schema::read_with(file, &proto_path.directories)?.format.describe();
    let question = FormatCheck { stream: stream.clone(), format };
    let verdict = Client::new(&answer.control)?.judge("/v1/check", &question)?;
    let (compatible, note) = match &verdict {
        Ok(Changed { note }) => (true, note.clone()),
        Err(why) => (false, Some(why.message().to_owned())),
    };
    if answer.json {
        out::print_json(&Checked { stream, compatible, note })?;
    } else if compatible {
        note.into_iter().for_each(out::say);
    }
    verdict.map(drop)
}

/// `crossdock formats policy`.
fn set_policy(arguments: &SetPolicy) -> Outcome {
    let SetPolicy { stream, policy, answer } = arguments;
    let request = StreamPolicy { stream: stream.clone(), policy: policy.to_string() };
    report(Client::new(&answer.control)?.post("/v1/policy", &request)?, answer.json)
}

/// Says what a change came to.
pub(crate) fn report(changed: Changed, json: bool) -> Outcome {
    if json {
        return out::print_json(&changed);
    }
    changed.note.into_iter().for_each(out::say);
    Ok(())
}

/// A name as one segment of a path (RFC 3986, section 2.1).
pub(crate) fn segment(name: &str) -> impl std::fmt::Display + '_ {
    utf8_percent_encode(name, NON_ALPHANUMERIC)
}

fn delete(answer: &Answer, path: &str) -> Outcome {
    report(Client::new(&answer.control)?.delete(path, &())?, answer.json)
}

/// `crossdock formats rm`.
fn remove_version(arguments: &RemoveVersion) -> Outcome {
    let RemoveVersion { version: (stream, version), answer } = arguments;
    delete(answer, &format!("/v1/streams/{}/versions/{version}", segment(stream)))
}

/// `crossdock streams rm`.
pub(crate) fn remove_stream(arguments: &RemoveStream) -> Outcome {
    delete(&arguments.answer, &format!("/v1/streams/{}", segment(&arguments.stream)))
}

/// A format as the command line names it: `STREAM:v3`, an id, or a schema file.
fn format_named(text: &str, proto_path: &ProtoPath, control: &Control) -> Outcome<Format> {
    let hint =
        "a format is STREAM:v1, an id of 16 hexadecimal digits, or a schema file; `crossdock formats` lists them";
    let looks_known = text.rsplit_once(':').is_some_and(|(_, version)| is_version(version)) || is_id(text);
    if !looks_known && schema::is_file(text.as_ref()) {
        return Ok(schema::read_with(text.as_ref(), &proto_path.directories)?.format);
    }
    if !looks_known {
        return Err(Failure::usage(format!("`{text}` names no format")).hint(hint));
    }
    let http::Formats { formats } = Client::new(control)?.get("/v1/formats")?;
    let found = find(&formats, text, hint)?;
    Format::parse(&found.description).map_err(|error| {
        Failure::failed(format!("the daemon's format {} cannot be read: {error}", found.id))
            .hint("the daemon may be of another version than this program; compare `crossdock --version`")
    })
}

/// The format of an id, or of a version of a stream; the stream is found as in a query: if no name is the same, the only one that
/// differs in case alone.
fn find<'f>(formats: &'f [FormatInfo], text: &str, hint: &str) -> Outcome<&'f FormatInfo> {
    let named = |wanted: &dyn Fn(&str) -> bool| -> Vec<(&'f FormatInfo, String)> {
        let of = |format: &'f FormatInfo| streams(format).into_iter().map(move |name| (format, name));
        formats.iter().flat_map(of).filter(|(_, name)| wanted(name)).collect()
    };
    if let Some(same) = formats.iter().find(|format| format.id.eq_ignore_ascii_case(text)) {
        return Ok(same);
    }
    if let Some((same, _)) = named(&|name| name == text).first() {
        return Ok(same);
    }
    match &named(&|name| name.to_lowercase() == text.to_lowercase())[..] {
        [(only, _)] => Ok(only),
        [(_, first), (_, second), ..] => Err(Failure::usage(format!("{text} may be {first} or {second}"))
            .hint("write the name as `crossdock streams` lists it")),
        [] => Err(Failure::usage(format!("the daemon knows no format {text}")).hint(nearest(formats, text, hint))),
    }
}

/// The version that may have been meant by one that is not known, or else the hint.
fn nearest(formats: &[FormatInfo], text: &str, hint: &str) -> String {
    let Some((stream, _)) = text.rsplit_once(":v") else { return hint.to_owned() };
    let wanted = stream.to_lowercase();
    let names = formats.iter().flat_map(|format| format.streams.iter());
    let distance = |name: &&String| strsim::damerau_levenshtein(&wanted, &name.to_lowercase());
    match names.map(|name| (distance(&name), name)).min() {
        Some((0, name)) => {
            let has = |format: &&FormatInfo| format.streams.contains(name);
            match formats.iter().filter(has).count() {
                1 => format!("stream `{name}` has v1 only; {hint}"),
                last => format!("stream `{name}` has v1 to v{last}; {hint}"),
            }
        }
        Some((1..=2, name)) => format!("did you mean `{name}`? {hint}"),
        _ => hint.to_owned(),
    }
}

fn is_version(text: &str) -> bool {
    text.strip_prefix('v').is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

fn is_id(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_named_by_its_stream_and_version() {
        let format = FormatInfo {
            id: "00c0ffee00c0ffee".into(),
            streams: vec!["A".into(), "x:y".into()],
            versions: vec![2, 1],
            description: String::new(),
            fields: Vec::new(),
        };
        assert_eq!(streams(&format), ["A:v2", "x:y:v1"]);
        assert!(is_version("v12") && !is_version("v") && !is_version("12") && !is_version("v1a"));
        assert!(is_id("00c0ffee00c0ffee") && !is_id("00c0ffee"));
    }
}
