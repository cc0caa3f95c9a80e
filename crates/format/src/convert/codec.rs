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
/// NAME` with the text behind them, every line of it after a `|`.
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
            text.lines().try_for_each(|line| writeln!(f, "{SCHEMA_LINE}{line}"))
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
        let mut texts: Vec<(String, Option<String>, String)> = Vec::new();
        let mut has_head = false;
        for (line, text) in (1..).zip(text.lines()) {
            let at_line = |problem| RulesError { line, problem };
            if let (Some(rest), Some((_, _, schema))) = (text.strip_prefix(SCHEMA_LINE), texts.last_mut()) {
                schema.push_str(rest);
                schema.push('\n');
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
                ["schema", name] if texts.is_empty() => texts.push((name.to_owned(), None, String::new())),
                ["schema", name, message] if texts.is_empty() => {
                    texts.push((name.to_owned(), Some(message.to_owned()), String::new()));
                }
                ["import", name] if !texts.is_empty() => texts.push((name.to_owned(), None, String::new())),
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
            imports: texts.map(|(name, _, text)| (name, text)).collect(),
            ..Schema::new(name, text, message)
        });
        Ok(codec)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Conversion, ConversionError};
    use super::*;

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
