//! Conversions between records and the messages of other programs, as text.

use std::fmt;

use super::rules::{Quoted, RulesError, RulesProblem, shorten, split_words};
use crate::encoding::{Encoding, EncodingOptions, Framing, Loss, MessageForm, RegisteredSchema, Schema};

/// The name of the field that encoded messages are in, where nobody gives another.
pub const MESSAGE_FIELD: &str = "message";

/// In front of each line of a schema.
const SCHEMA_LINE: &str = "|";

/// How records are made of encoded messages, or such messages of records. Its text form begins with `decode ENCODING
/// [FIELD]` or `encode ENCODING`; then, a line each, `framing FRAMING`, `keep FIELD ...`, `ignore-unknown`, `allow LOSS`, and
/// `schema NAME [MESSAGE]`, `import NAME` and `schema-id ID NAME` with the text behind them, every line of it after a `|`. An
/// `import` is of the schema before it. Line ends stand between its lines, so a text
/// that ends in one has an empty last line; whatever the text, it comes back as it was.
///
/// ```
/// use crossdock_format::convert::{Codec, Conversion};
///
/// let text = "decode protobuf payload\nschema q.proto Quote\n|syntax = \"proto3\";\n|message Quote { int32 bid = 1; }\n";
/// let Conversion::Decode(Codec { field, schema: Some(schema), .. }) = text.parse()? else { panic!("no such thing") };
/// assert_eq!((field.as_str(), schema.message.as_deref()), ("payload", Some("Quote")));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub struct Codec {
    /// The encoding of the messages.
    pub encoding: Encoding,
    /// The field that they are in: of the source where they are decoded, of the target where they are encoded.
    pub field: String,
    /// The bytes in front of each message.
    pub framing: Framing,
    /// Fields beside the message that the records which are made of it have as well.
    pub keep: Vec<String>,
    /// Whether what the format has no field for is passed over.
    pub ignore_unknown: bool,
    /// Losses that are fine.
    pub allow: Vec<Loss>,
    /// The schema that the messages are written by, where the encoding needs one.
    pub schema: Option<Schema>,
    /// The schemas that the messages name by numbers, where their framing has those.
    pub registered: Vec<RegisteredSchema>,
}

impl Codec {
    /// Messages in this encoding, in the field [`MESSAGE_FIELD`], without a schema of their own.
    #[must_use]
    pub fn new(encoding: Encoding) -> Codec {
        Codec {
            encoding,
            field: MESSAGE_FIELD.to_owned(),
            framing: Framing::None,
            keep: Vec::new(),
            ignore_unknown: false,
            allow: Vec::new(),
            schema: None,
            registered: Vec::new(),
        }
    }

    /// How the messages are written down, for [`message_decoder`](crate::encoding::message_decoder) and
    /// [`message_encoder`](crate::encoding::message_encoder).
    #[must_use]
    pub fn form(&self) -> MessageForm<'_> {
        let Codec { encoding, framing, schema, registered, .. } = self;
        MessageForm { encoding: *encoding, framing: *framing, schema: schema.as_ref(), registered }
    }

    /// The same as options of [`crate::encoding`].
    #[must_use]
    pub fn options(&self) -> EncodingOptions {
        EncodingOptions { allow: self.allow.clone(), ignore_unknown: self.ignore_unknown, ..EncodingOptions::default() }
    }

    /// The text behind the first word.
    pub(super) fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} {}", self.encoding, Quoted(&self.field))?;
        if self.framing != Framing::None {
            writeln!(f, "framing {}", self.framing)?;
        }
        self.keep.iter().try_for_each(|field| writeln!(f, "keep {}", Quoted(field)))?;
        if self.ignore_unknown {
            writeln!(f, "ignore-unknown")?;
        }
        self.allow.iter().try_for_each(|loss| writeln!(f, "allow {loss}"))?;
        if let Some(schema) = &self.schema {
            write_schema(f, "schema", schema)?;
        }
        self.registered
            .iter()
            .try_for_each(|RegisteredSchema { id, schema }| write_schema(f, &format!("schema-id {id}"), schema))
    }

    /// Reads what [`Codec::write`] writes, with the first word.
    pub(super) fn parse(text: &str) -> Result<Codec, RulesError> {
        let mut codec = Codec::new(Encoding::Json);
        let mut schemas: Vec<WrittenSchema> = Vec::new();
        let mut has_head = false;
        for (line, text) in (1..).zip(text.strip_suffix('\n').unwrap_or(text).split('\n')) {
            let at_line = |problem| RulesError { line, problem };
            if let (Some(rest), Some(schema)) = (text.strip_prefix(SCHEMA_LINE), schemas.last_mut()) {
                schema.add_line(rest);
                continue;
            }
            let words = split_words(text).ok_or_else(|| at_line(RulesProblem::Quote { found: shorten(text) }))?;
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let syntax = |expected| Err(at_line(RulesProblem::Syntax { found: shorten(text), expected }));
            match words[..] {
                [] => {}
                ["decode" | "encode", encoding, ref field @ ..] if !has_head && field.len() <= 1 => {
                    has_head = true;
                    codec.encoding = encoding.parse().map_err(|error| at_line(RulesProblem::Encoding(error)))?;
                    if let Some(field) = field.first() {
                        codec.field = (*field).to_owned();
                    }
                }
                _ if !has_head => return syntax("`decode ENCODING FIELD` or `encode ENCODING FIELD`"),
                ["framing", framing] => {
                    codec.framing = framing.parse().map_err(|error| at_line(RulesProblem::Framing(error)))?;
                }
                ["keep", ref fields @ ..] if !fields.is_empty() => {
                    codec.keep.extend(fields.iter().map(|field| (*field).to_owned()));
                }
                ["ignore-unknown"] => codec.ignore_unknown = true,
                ["allow", loss] => {
                    codec.allow.push(loss.parse().map_err(|error| at_line(RulesProblem::Loss(error)))?);
                }
                _ => match WrittenSchema::begin(&words, schemas.last_mut()) {
                    Some(Begun::Schema(schema)) => schemas.push(schema),
                    Some(Begun::Import) => {}
                    None => {
                        return syntax(
                            "`framing FRAMING`, `keep FIELD`, `ignore-unknown`, `allow LOSS`, one `schema NAME [MESSAGE]`, \
                             `schema-id ID NAME`, or behind one of these `import NAME`; the lines of a schema begin with `|`",
                        );
                    }
                },
            }
        }
        for WrittenSchema { id, schema, .. } in schemas {
            match id {
                Some(id) => codec.registered.push(RegisteredSchema { id, schema }),
                None => codec.schema = Some(schema),
            }
        }
        Ok(codec)
    }
}

/// A schema whose lines are being read.
struct WrittenSchema {
    /// Its number, if it is one of those that messages name.
    id: Option<u32>,
    schema: Schema,
    /// Whether a line has come of the text that is read.
    has_lines: bool,
}

enum Begun {
    Schema(WrittenSchema),
    /// The next text is imported by the schema before it.
    Import,
}

impl WrittenSchema {
    /// The block that a line of these words begins, behind this schema; `None` if it is no such line.
    fn begin(words: &[&str], last: Option<&mut WrittenSchema>) -> Option<Begun> {
        let new = |id, name: &str, message: Option<&str>| {
            let schema = Schema::new(name, "", message.map(str::to_owned));
            Some(Begun::Schema(WrittenSchema { id, schema, has_lines: false }))
        };
        match (words, last) {
            (["schema", name], None) => new(None, name, None),
            (["schema", name, message], None) => new(None, name, Some(message)),
            (["schema-id", id, name], _) => new(Some(id.parse().ok()?), name, None),
            (["import", name], Some(last)) => {
                last.schema.imports.push(((*name).to_owned(), String::new()));
                last.has_lines = false;
                Some(Begun::Import)
            }
            _ => None,
        }
    }

    fn add_line(&mut self, line: &str) {
        let text = match self.schema.imports.last_mut() {
            Some((_, text)) => text,
            None => &mut self.schema.text,
        };
        if std::mem::replace(&mut self.has_lines, true) {
            text.push('\n');
        }
        text.push_str(line);
    }
}

fn write_schema(f: &mut fmt::Formatter<'_>, head: &str, schema: &Schema) -> fmt::Result {
    let text = |f: &mut fmt::Formatter<'_>, text: &str| {
        text.split('\n').try_for_each(|line| writeln!(f, "{SCHEMA_LINE}{line}"))
    };
    write!(f, "{head} {}", Quoted(&schema.name))?;
    match &schema.message {
        Some(message) => writeln!(f, " {}", Quoted(message))?,
        None => writeln!(f)?,
    }
    text(f, &schema.text)?;
    for (name, imported) in &schema.imports {
        writeln!(f, "import {}", Quoted(name))?;
        text(f, imported)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{Conversion, ConversionError};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_and_back() {
        let mut schema = Schema::new("a b.proto", "import \"c\";\n| x\n", Some("m.N".to_owned()));
        schema.imports = vec![("c".to_owned(), "y\n".to_owned())];
        let codec = Codec {
            field: "the body".to_owned(),
            ignore_unknown: true,
            allow: vec![Loss::Decimal, Loss::Null],
            ..Codec::new(Encoding::Cbor)
        };
        let registered = [7, u32::MAX].map(|id| RegisteredSchema { id, schema: schema.clone() });
        let framed = Codec {
            framing: Framing::Confluent,
            keep: vec!["a key".to_owned(), "topic".to_owned()],
            registered: registered.to_vec(),
            ..codec.clone()
        };
        let with_both = Codec { schema: Some(schema.clone()), ..framed.clone() };
        let codecs = [Codec::new(Encoding::Json), codec.clone(), framed, with_both];
        // Of a schema with a number, each message says which of its types it is of.
        let without_message = |mut codec: Codec| {
            codec.registered.iter_mut().for_each(|registered| registered.schema.message = None);
            codec
        };
        for codec in codecs.into_iter().map(without_message).chain([Codec { schema: Some(schema), ..codec }]) {
            for conversion in [Conversion::Decode(codec.clone()), Conversion::Encode(codec.clone())] {
                assert_eq!(conversion.to_string().parse(), Ok(conversion));
            }
        }
    }

    /// Texts with all that has a meaning somewhere.
    fn text() -> impl Strategy<Value = String> {
        "([a-z|#\"\\\\ \t]|\r|\n|\r\n|\u{2028}|é){0,12}"
    }

    proptest! {
        #[test]
        fn whatever_is_in_a_schema_comes_back(
            field in text(),
            name in text(),
            message in proptest::option::of(text()),
            own in text(),
            imports in proptest::collection::vec((text(), text()), 0..3),
        ) {
            let schema = Schema { imports, ..Schema::new(name, own, message) };
            let codec = Codec { field, schema: Some(schema), ..Codec::new(Encoding::Protobuf) };
            let conversion = Conversion::Decode(codec);
            prop_assert_eq!(conversion.to_string().parse(), Ok(conversion));
        }
    }

    #[test]
    fn lines_may_end_as_elsewhere() {
        let unix = "decode protobuf \"a b\"\nschema q.proto Q\n|syntax = \"proto3\";\n|\nimport \"c d\"\n|x\n";
        let Ok(Conversion::Decode(codec)) = unix.parse() else { panic!("is not taken") };
        let schema = codec.schema.clone().unwrap();
        assert_eq!((schema.text.as_str(), schema.imports[0].1.as_str()), ("syntax = \"proto3\";\n", "x"));
        let Ok(Conversion::Decode(dos)) = unix.replace('\n', "\r\n").parse() else { panic!("is not taken") };
        let schema = dos.schema.clone().unwrap();
        assert_eq!((schema.text.as_str(), schema.imports[0].1.as_str()), ("syntax = \"proto3\";\r\n\r", "x\r"));
        assert_eq!(Codec { schema: None, ..dos }, Codec { schema: None, ..codec });
    }

    #[test]
    fn refusals_name_the_line() {
        for (text, line, words) in [
            ("decode jsn", 1, "no encoding"),
            ("decode json a b", 1, "`decode ENCODING"),
            ("decode json\nallow everything", 2, "names no loss"),
            ("decode json\n\ndrop x", 3, "ignore-unknown"),
            ("decode json\nframing none of these", 2, "`framing FRAMING`"),
            ("decode json\nframing kafka", 2, "names no framing"),
            ("decode json\nkeep", 2, "`keep FIELD`"),
            ("decode json\nschema-id x y.proto", 2, "`schema-id ID NAME`"),
            ("decode json\n|x", 2, "begin with `|`"),
            ("decode json\nimport x", 2, "begin with `|`"),
        ] {
            let Err(ConversionError::Rules(error)) = text.parse::<Conversion>() else { panic!("{text:?} is taken") };
            assert_eq!(error.line, line, "{text:?}: {error}");
            assert!(error.to_string().contains(words), "{text:?}: {error}");
        }
    }
}
