//! The rules of a conversion beyond the fields' names, and conversions as applications register them, as text.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use super::codec::Codec;
use crate::encoding::{EncodingNameError, FramingNameError, LossNameError};

/// Most rules that a conversion may have.
pub const MAX_RULES: usize = 4096;

/// The unit in which an integer field counts time since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum TimeUnit {
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Milliseconds,
    /// Microseconds.
    Microseconds,
    /// Nanoseconds, what a `timestamp` field counts in.
    Nanoseconds,
}

impl TimeUnit {
    /// Nanoseconds in one of it.
    #[must_use]
    pub const fn nanoseconds(self) -> i64 {
        match self {
            Self::Seconds => 1_000_000_000,
            Self::Milliseconds => 1_000_000,
            Self::Microseconds => 1000,
            Self::Nanoseconds => 1,
        }
    }
}

impl fmt::Display for TimeUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Seconds => "s",
            Self::Milliseconds => "ms",
            Self::Microseconds => "us",
            Self::Nanoseconds => "ns",
        })
    }
}

/// One rule. It names fields by their paths, such as `pos.x` or `legs[].km`: see [the module](super#paths).
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub enum Rule {
    /// `rename OLD NEW`: the target's field, nested record or list `to` is made from the source's `from`, which no other of its
    /// own name is then made from.
    Rename {
        /// Path in the source.
        from: String,
        /// Path in the target.
        to: String,
    },
    /// `default FIELD VALUE`: what the target's field holds where the source has no such field, or has null and the
    /// target's field is never null.
    Default {
        /// Path in the target.
        field: String,
        /// The value as text, as CSV has it; of a list, `[]`.
        value: String,
    },
    /// `drop FIELD`: the source's field, nested record or list is not used, even where the target has one of its name.
    Drop {
        /// Path in the source.
        field: String,
    },
    /// `unit FIELD s|ms|us|ns`: the integer field on one side counts time in this unit, where the other side's is a
    /// `timestamp`.
    Unit {
        /// Path in the target.
        field: String,
        /// Its unit.
        unit: TimeUnit,
    },
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rename { from, to } => write!(f, "rename {} {}", Quoted(from), Quoted(to)),
            Self::Default { field, value } => {
                write!(f, "default {} {}", Quoted(field), Quoted(value))
            }
            Self::Drop { field } => write!(f, "drop {}", Quoted(field)),
            Self::Unit { field, unit } => write!(f, "unit {} {unit}", Quoted(field)),
        }
    }
}

/// A word as rules have it: bare if nothing in it could be taken for something else, otherwise in double quotes, with
/// `\n` and `\r` for line ends, since a rule is one line.
pub(super) struct Quoted<'a>(pub(super) &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.0.is_empty() && !self.0.contains(|c: char| c.is_whitespace() || c.is_control() || "\"#\\".contains(c))
        {
            return f.write_str(self.0);
        }
        f.write_str("\"")?;
        for c in self.0.chars() {
            match c {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                c => f.write_char(c)?,
            }
        }
        f.write_str("\"")
    }
}

/// The words of a line up to a comment; `None` if a quote is not closed, or not followed by a blank.
pub(super) fn split_words(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() && !rest.starts_with('#') {
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        let (word, after) = match rest.strip_prefix('"') {
            Some(inside) => split_quoted(inside)?,
            None => (rest[..end].to_owned(), &rest[end..]),
        };
        words.push(word);
        rest = after.trim_start();
    }
    Some(words)
}

/// The text before the closing quote, unescaped, and what follows it.
fn split_quoted(inside: &str) -> Option<(String, &str)> {
    let mut word = String::new();
    let mut chars = inside.chars();
    loop {
        match chars.next()? {
            '"' => break,
            '\\' => word.push(match chars.next()? {
                'n' => '\n',
                'r' => '\r',
                c @ ('"' | '\\') => c,
                _ => return None,
            }),
            c => word.push(c),
        }
    }
    let after = chars.as_str();
    (after.is_empty() || after.starts_with(char::is_whitespace)).then_some((word, after))
}

/// Enough of a text to find it again.
pub(super) fn shorten(text: &str) -> String {
    text.trim().chars().take(80).flat_map(char::escape_debug).collect()
}

/// The rules of a conversion by name, beyond the names. The text form has one rule a line ([`Rule`] shows them); `#`
/// starts a comment, and names or values that are no plain words stand in double quotes.
///
/// ```
/// use crossdock_format::convert::Rules;
///
/// let rules: Rules = "rename delay dep_delay\ndefault carrier \"??\" # before 2014 there was none\n".parse()?;
/// assert_eq!(rules.to_string(), "rename delay dep_delay\ndefault carrier ??\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default, Hash)]
pub struct Rules {
    rules: Vec<Rule>,
}

impl Rules {
    /// No rules: by name alone.
    #[must_use]
    pub fn none() -> Rules {
        Rules::default()
    }

    /// The rules in order.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// These and one more.
    ///
    /// # Errors
    /// It contradicts one that is there, or there are [`MAX_RULES`].
    pub fn with(mut self, rule: Rule) -> Result<Rules, RulesError> {
        let line = self.rules.len() + 1;
        self.add(rule).map_err(|problem| RulesError { line, problem })?;
        Ok(self)
    }

    fn add(&mut self, rule: Rule) -> Result<(), RulesProblem> {
        if self.rules.len() == MAX_RULES {
            return Err(RulesProblem::TooMany);
        }
        let clash = self.rules.iter().find(|other| match (&rule, other) {
            (Rule::Rename { to, .. }, Rule::Rename { to: other, .. }) => to == other,
            (Rule::Default { field, .. }, Rule::Default { field: other, .. }) => field == other,
            (Rule::Unit { field, .. }, Rule::Unit { field: other, .. }) => field == other,
            (Rule::Rename { from, .. }, Rule::Drop { field })
            | (Rule::Drop { field }, Rule::Rename { from, .. })
            | (Rule::Drop { field }, Rule::Drop { field: from }) => from == field,
            _ => false,
        });
        match clash {
            Some(other) => Err(RulesProblem::Clash { rule: rule.to_string(), with: other.to_string() }),
            None => {
                self.rules.push(rule);
                Ok(())
            }
        }
    }
}

impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rules.iter().try_for_each(|rule| writeln!(f, "{rule}"))
    }
}

impl FromStr for Rules {
    type Err = RulesError;

    fn from_str(text: &str) -> Result<Rules, RulesError> {
        let mut rules = Rules::none();
        for (line, text) in (1..).zip(text.strip_prefix('\u{feff}').unwrap_or(text).lines()) {
            let at_line = |problem| RulesError { line, problem };
            let words = split_words(text).ok_or_else(|| at_line(RulesProblem::Quote { found: shorten(text) }))?;
            if let Some(rule) = rule_of(&words, text).map_err(at_line)? {
                rules.add(rule).map_err(at_line)?;
            }
        }
        Ok(rules)
    }
}

/// The rule of a line; `None` for a line that has none.
fn rule_of(words: &[String], text: &str) -> Result<Option<Rule>, RulesProblem> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let syntax = |expected| Err(RulesProblem::Syntax { found: shorten(text), expected });
    Ok(Some(match words[..] {
        [] => return Ok(None),
        ["rename", from, to] => Rule::Rename { from: from.to_owned(), to: to.to_owned() },
        ["rename", ..] => return syntax("`rename OLD NEW`"),
        ["default", field, value] => Rule::Default { field: field.to_owned(), value: value.to_owned() },
        ["default", ..] => return syntax("`default FIELD VALUE`, the value in double quotes if it has blanks"),
        ["drop", field] => Rule::Drop { field: field.to_owned() },
        ["drop", ..] => return syntax("`drop FIELD`"),
        ["unit", field, unit] => {
            let unit = match unit {
                "s" => TimeUnit::Seconds,
                "ms" => TimeUnit::Milliseconds,
                "us" => TimeUnit::Microseconds,
                "ns" => TimeUnit::Nanoseconds,
                _ => return syntax("`unit FIELD s`, or `ms`, `us`, `ns`"),
            };
            Rule::Unit { field: field.to_owned(), unit }
        }
        ["unit", ..] => return syntax("`unit FIELD s`, or `ms`, `us`, `ns`"),
        _ => return syntax("a rule: `rename OLD NEW`, `default FIELD VALUE`, `drop FIELD`, `unit FIELD ms`"),
    }))
}

/// Why a text is no rules.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct RulesError {
    /// The line, counted from 1.
    pub line: usize,
    /// The problem.
    pub problem: RulesProblem,
}

/// The problems of a rule.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RulesProblem {
    /// It is no rule.
    #[error("found `{found}`, expected {expected}")]
    Syntax {
        /// The line.
        found: String,
        /// The right value.
        expected: &'static str,
    },
    /// A quote is not closed.
    #[error("found `{found}`, expected a closing double quote, and a space behind it")]
    Quote {
        /// The line.
        found: String,
    },
    /// It contradicts an earlier rule.
    #[error("`{rule}` contradicts `{with}`; keep one of them")]
    Clash {
        /// The rule.
        rule: String,
        /// The earlier one.
        with: String,
    },
    /// It names no encoding.
    #[error(transparent)]
    Encoding(EncodingNameError),
    /// It names no loss.
    #[error(transparent)]
    Loss(LossNameError),
    /// It names no framing.
    #[error(transparent)]
    Framing(FramingNameError),
    /// There are too many.
    #[error("a conversion has at most {MAX_RULES} rules; one that needs more is better written as SQL")]
    TooMany,
}

/// A conversion from one format to another, as an application registers it.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub enum Conversion {
    /// By the fields' names, with rules: what [`Plan::by_name`](super::Plan::by_name) makes a plan of.
    ByName(Rules),
    /// A query whose select list gives the target's fields, by name.
    Sql(String),
    /// The target's records are in messages that are a field of the source's.
    Decode(Codec),
    /// The target's field holds the source's records as messages, each as one.
    Encode(Codec),
}

/// Longest text of a conversion, in bytes.
pub const MAX_CONVERSION_BYTES: usize = 64 << 10;

impl fmt::Display for Conversion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ByName(rules) => rules.fmt(f),
            Self::Sql(text) => f.write_str(text),
            Self::Decode(codec) => {
                f.write_str("decode ")?;
                codec.write(f)
            }
            Self::Encode(codec) => {
                f.write_str("encode ")?;
                codec.write(f)
            }
        }
    }
}

impl FromStr for Conversion {
    type Err = ConversionError;

    /// Reads a text that begins with `SELECT` as SQL (which is not looked into here), with `decode` or `encode` as a
    /// [`Codec`], any other as rules.
    fn from_str(text: &str) -> Result<Conversion, ConversionError> {
        if text.len() > MAX_CONVERSION_BYTES {
            return Err(ConversionError::TooLong { found: text.len() });
        }
        let head = text.trim_start();
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let word = head.split(|c| !is_word(c)).next().unwrap_or_default();
        Ok(match word {
            "decode" => Self::Decode(Codec::parse(text)?),
            "encode" => Self::Encode(Codec::parse(text)?),
            _ if word.eq_ignore_ascii_case("select") => Self::Sql(text.trim().to_owned()),
            _ => Self::ByName(text.parse()?),
        })
    }
}

/// Why a text is no conversion.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConversionError {
    /// The rules are wrong.
    #[error(transparent)]
    Rules(#[from] RulesError),
    /// It is too long.
    #[error("a conversion of {found} bytes, expected at most {MAX_CONVERSION_BYTES}")]
    TooLong {
        /// Its length in bytes.
        found: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        let text = "rename a \"b c\"\ndefault d 5\ndefault \"e \\\" f\" \"x y\"\ndrop g\nunit h ms\ndefault i \"\"\n";
        let rules: Rules = text.parse().unwrap();
        assert_eq!(rules.rules().len(), 6);
        assert_eq!(rules.to_string(), text);
        assert_eq!(Ok(rules.clone()), rules.to_string().parse());
        assert_eq!("\u{feff}# none\n\n  # at all".parse(), Ok(Rules::none()));
    }

    #[test]
    fn values_with_anything_in_them_come_back() {
        for value in ["", " ", "a\nb", "\r\n", "\"", "\\", "#", "\\n", "null", "é", "a#b"] {
            let rules = Rules::none().with(Rule::Default { field: "f".into(), value: value.into() }).unwrap();
            assert_eq!(rules.to_string().parse(), Ok(rules), "{value:?}");
        }
    }

    #[test]
    fn refusals_name_the_line() {
        for (text, line, words) in [
            ("rename a", 1, "`rename OLD NEW`"),
            ("\n\nfoo", 3, "expected a rule"),
            ("drop a\ndrop a", 2, "contradicts"),
            ("rename a b\nrename c b", 2, "contradicts `rename a b`"),
            ("rename a b\ndrop a", 2, "contradicts"),
            ("default a 1\ndefault a 2", 2, "contradicts"),
            ("unit a h", 1, "`ms`"),
            ("default \"a", 1, "closing double quote"),
            ("default a b c", 1, "in double quotes"),
        ] {
            let error = text.parse::<Rules>().unwrap_err();
            assert_eq!(error.line, line, "{text:?}: {error}");
            assert!(error.to_string().contains(words), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_conversion_is_sql_or_rules() {
        assert_eq!("  select a FROM x ".parse(), Ok(Conversion::Sql("select a FROM x".into())));
        assert_eq!("".parse(), Ok(Conversion::ByName(Rules::none())));
        assert!(matches!("selection a b".parse::<Conversion>(), Err(ConversionError::Rules(_))));
        let long = " ".repeat(MAX_CONVERSION_BYTES + 1);
        assert!(matches!(long.parse::<Conversion>(), Err(ConversionError::TooLong { .. })));
    }
}
