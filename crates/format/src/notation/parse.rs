//! Reads the notations: people's, and the canonical one, which has places behind the types.

use std::sync::Arc;

use super::shorten;
use crate::field::FieldType;
use crate::format::{Format, FormatError, FormatProblem};
use crate::problem::FieldTypeError;
use crate::spec::{Evolution, FieldSpec, TypeSpec};
use crate::{MAX_DEPTH, MAX_FIELDS};

/// Most values of one variant.
const MAX_CASES: usize = 256;

/// Whose notation it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Dialect {
    /// The words behind a type say whether the field may be null.
    People,
    /// As a description is written: places, and the null bit.
    Canonical,
}

/// A field as the text has it.
pub(crate) struct Node<'t> {
    pub(crate) line: usize,
    /// The line that it starts on, for messages.
    pub(crate) text: &'t str,
    pub(crate) name: String,
    pub(crate) ty: Ty,
    /// The words behind the type.
    pub(crate) words: Vec<String>,
    /// The words in front of a variant.
    pub(crate) cases: Vec<String>,
    pub(crate) inner: Vec<Node<'t>>,
}

/// A type as the text has it. The fields of records and unions are the node's.
#[derive(Clone)]
pub(crate) enum Ty {
    Scalar(FieldType),
    /// A whole number of 3, 5, 6 or 7 bytes.
    Odd {
        bytes: u8,
        signed: bool,
    },
    Enum {
        bytes: u8,
        signed: bool,
        symbols: Vec<(String, i64)>,
    },
    Record,
    /// With the discriminator, if one is named.
    Union(Option<String>),
    List {
        element: Box<Ty>,
        count: Option<u32>,
    },
}

/// Fields as the text has them; it starts on line `first_line`.
pub(crate) fn parse_nodes(text: &str, first_line: usize) -> Result<Vec<Node<'_>>, FormatError> {
    let line_text = first_line_of(text);
    let mut parser = Parser { rest: text, line: first_line, line_text, fields: 0, depth: 0 };
    parser.fields(false, false)
}

/// Fields to a format in the natural layout; the text starts on line `first_line`.
pub(crate) fn parse_fields(text: &str, first_line: usize, dialect: Dialect) -> Result<Format, FormatError> {
    let mut lines = Vec::new();
    let specs = specs(parse_nodes(text, first_line)?, dialect, &mut lines)?;
    Format::natural(specs).map_err(|error| {
        let line = error.problem.field().and_then(|field| lines.get(field).copied());
        FormatError { line, ..error }
    })
}

/// Declarations for the natural layout, and the lines of all fields in the order in which they are declared.
fn specs(nodes: Vec<Node<'_>>, dialect: Dialect, lines: &mut Vec<usize>) -> Result<Vec<FieldSpec>, FormatError> {
    nodes.into_iter().map(|node| spec(node, dialect, lines)).collect()
}

fn spec(node: Node<'_>, dialect: Dialect, lines: &mut Vec<usize>) -> Result<FieldSpec, FormatError> {
    lines.push(node.line);
    let refuse = |problem| FormatError { line: Some(node.line), problem };
    let words: Vec<&str> = node.words.iter().map(String::as_str).collect();
    let syntax = |expected: &str| {
        let (found, expected) = (shorten(node.text.trim()), expected.to_owned());
        refuse(FormatProblem::Syntax { found, expected })
    };
    let (words, evolution) = evolution(&words).map_err(syntax)?;
    let nullable = match (dialect, words) {
        (_, []) | (Dialect::People, ["not", "null"]) => false,
        // Also in a description: fields of elements have no places.
        (_, ["null"]) => true,
        // Their errors are found when the format's own description is compared.
        (Dialect::Canonical, words) => words.get(5) == Some(&"null"),
        _ => return Err(syntax("`name type`, and `null` behind it if the field may be null")),
    };
    if !node.cases.is_empty() {
        let expected = "a variant without values; these are for `layout foreign`".to_owned();
        return Err(refuse(FormatProblem::Syntax { found: shorten(node.text.trim()), expected }));
    }
    let fields = specs(node.inner, dialect, lines)?;
    let ty = type_spec(node.ty, fields).map_err(refuse)?;
    Ok(FieldSpec { name: node.name, ty, nullable, evolution })
}

/// The words behind a type: the words up to those that speak of other versions, and what these say.
///
/// # Errors
/// The words expected in their place.
fn evolution<'w>(words: &'w [&'w str]) -> Result<(&'w [&'w str], Option<Arc<Evolution>>), &'static str> {
    let is_ours = |word: &&str| ["default", "unknown", "alias"].contains(word);
    let first = words.iter().position(is_ours).unwrap_or(words.len());
    let (before, mut rest) = words.split_at(first);
    let mut found = Evolution::default();
    while let [word, value, after @ ..] = rest {
        match *word {
            "default" if found.default.is_none() => found.default = Some((*value).to_owned()),
            "unknown" if found.unknown.is_none() => found.unknown = Some((*value).to_owned()),
            "alias" => found.aliases.push((*value).to_owned()),
            _ => return Err("`default VALUE`, `unknown SYMBOL`, each once, and `alias NAME` behind a field's type"),
        }
        rest = after;
    }
    match rest {
        [] => Ok((before, (first < words.len()).then(|| found.into()))),
        _ => Err("a value, symbol or name behind `default`, `unknown` or `alias`"),
    }
}

fn type_spec(ty: Ty, fields: Vec<FieldSpec>) -> Result<TypeSpec, FormatProblem> {
    Ok(match ty {
        Ty::Scalar(ty) => TypeSpec::Scalar(ty),
        Ty::Odd { bytes, signed } => {
            let found = format!("{}{}", if signed { 'i' } else { 'u' }, u32::from(bytes) * 8);
            return Err(FormatProblem::UnknownType(FieldTypeError { found }));
        }
        Ty::Enum { bytes, signed, symbols } => TypeSpec::Enum { bytes, signed, symbols },
        Ty::Record => TypeSpec::Record(fields),
        Ty::Union(None) => TypeSpec::Union(fields),
        Ty::Union(Some(on)) => {
            let expected = "`union {`; a discriminator is for `layout foreign`".to_owned();
            return Err(FormatProblem::Syntax { found: format!("union on {}", shorten(&on)), expected });
        }
        Ty::List { element, count } => TypeSpec::List { element: Box::new(type_spec(*element, fields)?), count },
    })
}

fn first_line_of(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

struct Parser<'t> {
    rest: &'t str,
    line: usize,
    /// The whole of that line, for messages.
    line_text: &'t str,
    /// How many fields there were.
    fields: usize,
    depth: usize,
}

impl<'t> Parser<'t> {
    /// Fields up to the closing brace, or to the end of the text.
    fn fields(&mut self, is_inner: bool, have_cases: bool) -> Result<Vec<Node<'t>>, FormatError> {
        let mut nodes = Vec::new();
        loop {
            self.skip(|c| c.is_whitespace() || c == ';');
            if self.rest.is_empty() || self.rest.starts_with('}') {
                if self.rest.is_empty() == is_inner {
                    let found = if is_inner { "the end".to_owned() } else { shorten(self.line_text) };
                    let expected = if is_inner { "a closing brace" } else { "a field; no brace is open" };
                    return Err(self.syntax(found, expected));
                }
                return Ok(nodes);
            }
            if self.fields == MAX_FIELDS {
                return Err(self.error(FormatProblem::TooManyFields));
            }
            self.fields += 1;
            nodes.push(self.field(have_cases)?);
        }
    }

    fn field(&mut self, has_cases: bool) -> Result<Node<'t>, FormatError> {
        let (line, text) = (self.line, self.line_text);
        let cases = if has_cases { self.cases()? } else { Vec::new() };
        let name = self.name()?;
        self.skip_within_line();
        if self.at_end_of_field() {
            return Err(self.syntax(shorten(text.trim()), "a name and a type"));
        }
        let mut inner = Vec::new();
        let ty = self.ty(&mut inner)?;
        let words = self.words()?;
        Ok(Node { line, text, name, ty, words, cases, inner })
    }

    /// The values of a discriminator, and `=>`.
    fn cases(&mut self) -> Result<Vec<String>, FormatError> {
        let mut cases = Vec::new();
        loop {
            self.skip_within_line();
            if let Some(after) = self.rest.strip_prefix("=>") {
                self.rest = after;
                self.skip_within_line();
                return Ok(cases);
            }
            if self.at_end_of_field() || cases.len() == MAX_CASES {
                return Err(self.syntax(shorten(self.line_text.trim()), "`VALUE => name type`"));
            }
            cases.push(self.word()?);
        }
    }

    /// A name, bare or in quotes.
    fn name(&mut self) -> Result<String, FormatError> {
        let Some(inside) = self.rest.strip_prefix('"') else {
            let end = self.rest.find(|c: char| c.is_whitespace() || "{};,".contains(c)).unwrap_or(self.rest.len());
            return Ok(self.take(end).to_owned());
        };
        match split_quoted(inside) {
            Some((name, after)) if !name.contains('\n') => {
                self.rest = after;
                Ok(name)
            }
            _ => Err(self.syntax(shorten(first_line_of(self.rest)), "a closing double quote, and a space behind it")),
        }
    }

    fn ty(&mut self, inner: &mut Vec<Node<'t>>) -> Result<Ty, FormatError> {
        let word = self.type_word();
        match word {
            "record" | "union" => {
                let on = if word == "union" { self.discriminator()? } else { None };
                self.skip(char::is_whitespace);
                if !self.rest.starts_with('{') {
                    return Err(
                        self.syntax(shorten(first_line_of(self.rest)), "an opening brace, and fields behind it")
                    );
                }
                self.take(1);
                self.deeper()?;
                *inner = self.fields(true, on.is_some())?;
                self.depth -= 1;
                self.take(1);
                let ty = if word == "union" { Ty::Union(on) } else { Ty::Record };
                self.suffixes_of(ty)
            }
            "enum" => {
                let ty = self.enumeration()?;
                self.suffixes_of(ty)
            }
            word => {
                let (base, suffixes) = split_suffixes(word);
                let unknown = || FieldTypeError { found: word.chars().take(40).collect() };
                let ty = match base {
                    "u24" | "u40" | "u48" | "u56" | "i24" | "i40" | "i48" | "i56" => {
                        let bits: u8 = base.get(1..).and_then(|bits| bits.parse().ok()).unwrap_or(24);
                        Ty::Odd { bytes: bits / 8, signed: base.starts_with('i') }
                    }
                    base => Ty::Scalar(base.parse().map_err(|_| self.error(FormatProblem::UnknownType(unknown())))?),
                };
                self.listed(ty, suffixes, word)
            }
        }
    }

    /// `on FIELD`.
    fn discriminator(&mut self) -> Result<Option<String>, FormatError> {
        self.skip_within_line();
        match self.rest.strip_prefix("on").filter(|after| after.starts_with(char::is_whitespace)) {
            Some(after) => {
                self.rest = after;
                self.skip_within_line();
                self.name().map(Some)
            }
            None => Ok(None),
        }
    }

    /// `enum u8 { A = 1, B = 2 }`, behind its first word.
    fn enumeration(&mut self) -> Result<Ty, FormatError> {
        self.skip_within_line();
        let expected = "`enum TYPE { SYMBOL = NUMBER, … }` with a TYPE of i8, i16, i32, i64, u8, u16, u32";
        let word = self.type_word();
        let (bytes, signed) = match word {
            "i8" => (1, true),
            "i16" => (2, true),
            "" | "i32" => (4, true),
            "i64" => (8, true),
            "u8" => (1, false),
            "u16" => (2, false),
            "u32" => (4, false),
            other => return Err(self.syntax(shorten(other), expected)),
        };
        let mut symbols = Vec::new();
        self.skip(char::is_whitespace);
        if !self.rest.starts_with('{') {
            return Err(self.syntax(shorten(first_line_of(self.rest)), expected));
        }
        self.take(1);
        loop {
            self.skip(|c| c.is_whitespace() || c == ',' || c == ';');
            if self.rest.is_empty() {
                return Err(self.syntax("the end".to_owned(), "a closing brace"));
            }
            if self.rest.starts_with('}') {
                self.take(1);
                return Ok(Ty::Enum { bytes, signed, symbols });
            }
            let symbol = self.symbol()?;
            symbols.push(symbol);
        }
    }

    /// `SYMBOL = NUMBER`; a character in single quotes is the number of its byte.
    fn symbol(&mut self) -> Result<(String, i64), FormatError> {
        // Looked for only where something is wrong: a line may have very many symbols.
        let start = self.rest;
        let found = || shorten(first_line_of(start));
        let name = match self.rest.starts_with('"') {
            true => self.name()?,
            false => {
                let end = self.rest.find(|c: char| c.is_whitespace() || "=,;{}".contains(c)).unwrap_or(self.rest.len());
                self.take(end).to_owned()
            }
        };
        self.skip_within_line();
        let expected = "`SYMBOL = NUMBER`";
        let Some(after) = self.rest.strip_prefix('=') else { return Err(self.syntax(found(), expected)) };
        self.rest = after;
        self.skip_within_line();
        let word = self.word()?;
        match character(&word).map(i64::from).or_else(|| word.parse().ok()) {
            Some(number) => Ok((name, number)),
            None => Err(self.syntax(found(), expected)),
        }
    }

    /// `[]` and `[N]` behind a closing brace.
    fn suffixes_of(&mut self, ty: Ty) -> Result<Ty, FormatError> {
        if !self.rest.starts_with('[') {
            return Ok(ty);
        }
        let word = self.type_word();
        let (base, suffixes) = split_suffixes(word);
        if !base.is_empty() {
            return Err(self.syntax(shorten(word), "`[]` or `[N]`"));
        }
        self.listed(ty, suffixes, word)
    }

    /// The type as the element of lists that lie in each other.
    fn listed(&self, ty: Ty, suffixes: Vec<Option<u32>>, word: &str) -> Result<Ty, FormatError> {
        if suffixes.len() > MAX_DEPTH {
            return Err(self.error(FormatProblem::TooDeep { name: shorten(word) }));
        }
        let list = |element, count| Ty::List { element: Box::new(element), count };
        Ok(suffixes.into_iter().fold(ty, list))
    }

    /// The words behind a type, up to the end of the field.
    fn words(&mut self) -> Result<Vec<String>, FormatError> {
        let mut words = Vec::new();
        loop {
            self.skip_within_line();
            if self.at_end_of_field() {
                return Ok(words);
            }
            words.push(self.word()?);
            if self.rest.starts_with(['{', ',']) {
                return Err(self.syntax(shorten(self.line_text.trim()), "the end of the field"));
            }
        }
    }

    /// A name, or a character in single quotes, which may be any.
    fn word(&mut self) -> Result<String, FormatError> {
        match self.rest.get(..3).filter(|word| character(word).is_some()) {
            Some(_) => Ok(self.take(3).to_owned()),
            None => self.name(),
        }
    }

    fn deeper(&mut self) -> Result<(), FormatError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.error(FormatProblem::TooDeep { name: shorten(self.line_text.trim()) }));
        }
        Ok(())
    }

    /// A word that may have blanks within parentheses.
    fn type_word(&mut self) -> &'t str {
        let mut parentheses = 0_usize;
        let end = self.rest.find(|c: char| {
            match c {
                '(' => parentheses += 1,
                ')' => parentheses = parentheses.saturating_sub(1),
                _ => {}
            }
            c == '\n' || (parentheses == 0 && (c.is_whitespace() || "{};,".contains(c)))
        });
        self.take(end.unwrap_or(self.rest.len()))
    }

    fn at_end_of_field(&self) -> bool {
        self.rest.is_empty() || self.rest.starts_with(['\n', ';', '}', '#'])
    }

    fn skip_within_line(&mut self) {
        self.rest = self.rest.trim_start_matches(|c: char| c.is_whitespace() && c != '\n');
    }

    /// Passes over such characters and comments, and counts lines.
    fn skip(&mut self, mut is_skipped: impl FnMut(char) -> bool) {
        loop {
            if self.rest.starts_with('#') {
                let end = self.rest.find('\n').unwrap_or(self.rest.len());
                self.rest = &self.rest[end..];
            }
            let Some(next) = self.rest.chars().next().filter(|c| is_skipped(*c)) else { return };
            self.rest = &self.rest[next.len_utf8()..];
            if next == '\n' {
                self.line += 1;
                self.line_text = first_line_of(self.rest);
            }
        }
    }

    fn take(&mut self, bytes: usize) -> &'t str {
        let (taken, rest) = self.rest.split_at_checked(bytes).unwrap_or((self.rest, ""));
        self.rest = rest;
        taken
    }

    fn error(&self, problem: FormatProblem) -> FormatError {
        FormatError { line: Some(self.line), problem }
    }

    fn syntax(&self, found: String, expected: &str) -> FormatError {
        self.error(FormatProblem::Syntax { found, expected: expected.to_owned() })
    }
}

/// The byte of a character in single quotes.
pub(crate) fn character(word: &str) -> Option<u8> {
    match word.as_bytes() {
        [b'\'', byte @ b' '..=b'~', b'\''] => Some(*byte),
        _ => None,
    }
}

/// The text before the closing quote, unescaped, and what follows it.
fn split_quoted(inside: &str) -> Option<(String, &str)> {
    let mut word = String::new();
    let mut chars = inside.chars();
    loop {
        match chars.next()? {
            '"' => break,
            '\\' => match chars.next()? {
                c @ ('"' | '\\') => word.push(c),
                _ => return None,
            },
            c => word.push(c),
        }
    }
    let after = chars.as_str();
    let is_apart = after.is_empty() || after.starts_with(|c: char| c.is_whitespace() || ";}=,".contains(c));
    is_apart.then_some((word, after))
}

/// A type without the `[]` and `[N]` behind it, and these from left to right. Brackets that are no such stay with the
/// type, which is then none; those of `char[N]` are its own.
fn split_suffixes(word: &str) -> (&str, Vec<Option<u32>>) {
    let own = if word.starts_with("char[") { word.find(']').map_or(word.len(), |end| end + 1) } else { 0 };
    let Some(start) = word.get(own..).and_then(|rest| rest.find('[')).map(|at| own + at) else {
        return (word, Vec::new());
    };
    let mut suffixes = Vec::new();
    let mut rest = &word[start..];
    while !rest.is_empty() {
        let Some((inside, after)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) else {
            return (word, Vec::new());
        };
        match inside.parse::<u32>() {
            _ if inside.is_empty() => suffixes.push(None),
            Ok(count) if !inside.starts_with(['0', '+']) => suffixes.push(Some(count)),
            _ => return (word, Vec::new()),
        }
        rest = after;
    }
    (&word[..start], suffixes)
}
