//! Conversions between records and the messages of other programs, as text.

use std::fmt;

use super::rules::{Quoted, RulesError, RulesProblem, shorten, split_words};
use crate::encoding::{Encoding, EncodingOptions, Loss, Schema};

/// The name of the field that encoded messages are in, where nobody gives another.
pub const MESSAGE_FIELD: &str = "message";

/// In front of each line of a schema.
const SCHEMA_LINE: &str = "|";

/// How records are made of encoded messages, or such messages of records. Its text form begins with `decode ENCODING
/// [FIELD]` or `encode ENCODING`; then, a line each, `ignore-unknown`, `allow LOSS`, and `schema NAME [MESSAGE]` and `import
/// NAME` with the text behind them, every line of it after a `|`. Line ends stand between its lines, so a text
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
    /// Whether what the format has no field for is passed over.
    pub ignore_unknown: bool,
    /// Losses that are fine.
    pub allow: Vec<Loss>,
    /// The schema that the messages are written by, where the encoding needs one.
    pub schema: Option<Schema>,
}

impl Codec {
    /// Messages in this encoding, in the field [`MESSAGE_FIELD`], without a schema of their own.
    #[must_use]
    pub fn new(encoding: Encoding) -> Codec {
        Codec { encoding, field: MESSAGE_FIELD.to_owned(), ignore_unknown: false, allow: Vec::new(), schema: None }
    }

    /// The same as options of [`crate::encoding`].
    #[must_use]
    pub fn options(&self) -> EncodingOptions {
        EncodingOptions { allow: self.allow.clone(), ignore_unknown: self.ignore_unknown, ..EncodingOptions::default() }
    }

    /// What stands behind the first word.
    pub(super) fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} {}", self.encoding, Quoted(&self.field))?;
        if self.ignore_unknown {
            writeln!(f, "ignore-unknown")?;
        }
        self.allow.iter().try_for_each(|loss| writeln!(f, "allow {loss}"))?;
        let Some(schema) = &self.schema else { return Ok(()) };
        let text = |f: &mut fmt::Formatter<'_>, text: &str| {
            text.split('\n').try_for_each(|line| writeln!(f, "{SCHEMA_LINE}{line}"))
        };
        write!(f, "schema {}", Quoted(&schema.name))?;
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

    /// Reads what [`Codec::write`] writes, with the first word.
    pub(super) fn parse(text: &str) -> Result<Codec, RulesError> {
        let mut codec = Codec::new(Encoding::Json);
        // The schema's texts, with what is to be imported behind it, as they come.
        let mut texts: Vec<(String, Option<String>, Option<String>)> = Vec::new();
        let mut has_head = false;
        for (line, text) in (1..).zip(text.strip_suffix('\n').unwrap_or(text).split('\n')) {
            let at_line = |problem| RulesError { line, problem };
            if let (Some(rest), Some((_, _, schema))) = (text.strip_prefix(SCHEMA_LINE), texts.last_mut()) {
                match schema {
                    Some(schema) => schema.extend(["\n", rest]),
                    None => *schema = Some(rest.to_owned()),
                }
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
                ["ignore-unknown"] => codec.ignore_unknown = true,
                ["allow", loss] => {
                    codec.allow.push(loss.parse().map_err(|error| at_line(RulesProblem::Loss(error)))?);
                }
                ["schema", name] if texts.is_empty() => texts.push((name.to_owned(), None, None)),
                ["schema", name, message] if texts.is_empty() => {
                    texts.push((name.to_owned(), Some(message.to_owned()), None));
                }
                ["import", name] if !texts.is_empty() => texts.push((name.to_owned(), None, None)),
                _ => {
                    return syntax(
                        "`ignore-unknown`, `allow LOSS`, one `schema NAME [MESSAGE]`, or behind it `import NAME`; the \
                         lines of a schema begin with `|`",
                    );
                }
            }
        }
        let mut texts = texts.into_iter();
        codec.schema = texts.next().map(|(name, message, text)| Schema {
            imports: texts.map(|(name, _, text)| (name, text.unwrap_or_default())).collect(),
            ..Schema::new(name, text.unwrap_or_default(), message)
        });
        Ok(codec)
    }
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
        for codec in [Codec::new(Encoding::Json), codec.clone(), Codec { schema: Some(schema), ..codec }] {
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
    fn what_is_refused_says_the_line() {
        for (text, line, words) in [
            ("decode jsn", 1, "no encoding"),
            ("decode json a b", 1, "`decode ENCODING"),
            ("decode json\nallow everything", 2, "names no loss"),
            ("decode json\n\ndrop x", 3, "ignore-unknown"),
            ("decode json\n|x", 2, "begin with `|`"),
            ("decode json\nimport x", 2, "begin with `|`"),
        ] {
            let Err(ConversionError::Rules(error)) = text.parse::<Conversion>() else { panic!("{text:?} is taken") };
            assert_eq!(error.line, line, "{text:?}: {error}");
            assert!(error.to_string().contains(words), "{text:?}: {error}");
        }
    }
}
