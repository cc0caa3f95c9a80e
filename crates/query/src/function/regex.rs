//! Regular expressions. A pattern is compiled once, when the query is planned; one search
//! takes time in proportion to the text, and the searches of one call are bounded.

use std::sync::Arc;

use crossdock_format::FieldType;
use regex_lite::{CaptureLocations, Regex, RegexBuilder};

use super::{Answer, Arguments, Body, Function, Gives, Kind, Prepared, Scratch, known_text};
use crate::expr::Expr;
use crate::interpret::{EvalError, MAX_MADE_TEXT_BYTES};

const TEXT: Gives = Gives::Type(FieldType::String);
const TEXT_PATTERN: &[Kind] = &[Kind::Text, Kind::Word];
const WITH_FLAGS: &[Kind] = &[Kind::Text, Kind::Word, Kind::Word];

/// The most bytes of a compiled pattern, which bound the time that a character of a text takes.
const MAX_COMPILED_BYTES: usize = 1 << 16;
/// The most bytes that the searches of one call may look at: each may look at the rest of the text.
const MAX_SEARCHED_BYTES: usize = 64 << 20;
/// The most groups of a pattern, the whole match included.
const MAX_GROUPS: usize = 32;

const SYNTAX: &str = "patterns have the syntax of the crate `regex-lite`: no look-around and no references; of several \
                      alternatives the first matches, not the longest; `\\w`, `\\d`, `\\b` and letters without case are \
                      ASCII. A pattern is a literal or a parameter. A text of more than 1 MiB is a row error";

const SEARCHES: &str = "each match is looked for in the rest of the text; more than 64 MiB of such rests for one text are a \
                        row error";

pub(super) const FUNCTIONS: &[Function] = &[
    operator("~", "whether the pattern matches somewhere", ("'JFK' ~ '^[JL]'", "true"), |arguments, _| is_match(arguments, true))
        .but(SYNTAX)
        .prepared(with_case),
    operator("~*", "the same, whatever the case", ("'jfk' ~* '^J'", "true"), |arguments, _| is_match(arguments, true))
        .prepared(any_case),
    operator("!~", "whether it matches nowhere", ("'JFK' !~ 'X'", "true"), |arguments, _| is_match(arguments, false))
        .prepared(with_case),
    operator("!~*", "the same, whatever the case", ("'JFK' !~* 'f'", "false"), |arguments, _| is_match(arguments, false))
        .prepared(any_case),
    Function::new(
        ("regexp_like", WITH_FLAGS, Gives::Type(FieldType::Bool)),
        "as `~`; the flag `'i'` takes the case away",
        ("regexp_like('JFK', 'f', 'i')", "true"),
        Body::Values(|arguments, _| is_match(arguments, true)),
    )
    .optional(1)
    .prepared(flags_third),
    Function::new(
        ("regexp_count", TEXT_PATTERN, Gives::Type(FieldType::I64)),
        "how often the pattern matches",
        ("regexp_count('a1b22', '[0-9]+')", "2"),
        Body::Values(|arguments, _| {
            let text = searched(arguments)?;
            let (mut count, mut from, mut budget) = (0, 0, MAX_SEARCHED_BYTES);
            for found in pattern(arguments)?.regex.find_iter(text) {
                spend(&mut budget, text.len().saturating_sub(from))?;
                from = found.end();
                count += 1;
            }
            Ok(Answer::Int(count))
        }),
    )
    .but(SEARCHES)
    .prepared(with_case),
    Function::new(
        ("regexp_substr", TEXT_PATTERN, TEXT),
        "the first match, or null",
        ("regexp_substr('flight 1545', '[0-9]+')", "1545"),
        Body::Values(|arguments, out| found(arguments, out, 0)),
    )
    .nullable()
    .prepared(with_case),
    Function::new(
        ("substring", TEXT_PATTERN, TEXT),
        "the first match, or its first group if the pattern has groups; null if there is none. Also `substring(text FROM 'pattern')`",
        ("substring('UA1545 EWR', '([0-9]+) ')", "1545"),
        Body::Values(|arguments, out| {
            let has_groups = pattern(arguments)?.regex.captures_len() > 1;
            found(arguments, out, has_groups.into())
        }),
    )
    .but("`regexp_match`, which gives an array, is not there")
    .nullable()
    .prepared(with_case),
    Function::new(
        ("regexp_replace", &[Kind::Text, Kind::Word, Kind::Text, Kind::Word], TEXT),
        "the first match (every one with the flag `'g'`) replaced; `\\1` is the first group, `\\&` the match",
        ("regexp_replace('a1b22', '([0-9]+)', '<\\1>', 'g')", "a<1>b<22>"),
        Body::Values(replace),
    )
    .but(SEARCHES)
    .optional(1)
    .prepared(flags_fourth),
];

/// A compiled pattern.
#[derive(Debug)]
pub(crate) struct Pattern {
    regex: Regex,
    /// Whether every match is replaced, not the first only.
    is_global: bool,
}

const fn operator(
    name: &'static str,
    meaning: &'static str,
    example: (&'static str, &'static str),
    run: fn(&Arguments<'_, '_>, &mut Scratch) -> Result<Answer, EvalError>,
) -> Function {
    Function::new((name, TEXT_PATTERN, Gives::Type(FieldType::Bool)), meaning, example, Body::Values(run))
}

fn with_case(arguments: &[Expr]) -> Result<Prepared, (usize, String)> {
    compiled(arguments, "", None)
}

fn any_case(arguments: &[Expr]) -> Result<Prepared, (usize, String)> {
    compiled(arguments, "i", None)
}

fn flags_third(arguments: &[Expr]) -> Result<Prepared, (usize, String)> {
    compiled(arguments, known_text(arguments, 2)?.unwrap_or_default(), Some(2))
}

fn flags_fourth(arguments: &[Expr]) -> Result<Prepared, (usize, String)> {
    compiled(arguments, known_text(arguments, 3)?.unwrap_or_default(), Some(3))
}

fn compiled(arguments: &[Expr], flags: &str, flags_at: Option<usize>) -> Result<Prepared, (usize, String)> {
    if let Some(unknown) = flags.chars().find(|flag| !"cgi".contains(*flag)) {
        return Err((flags_at.unwrap_or(1), format!("there is no flag '{unknown}'; there are 'g', 'i' and 'c'")));
    }
    // Without a pattern the result is null.
    let Some(text) = known_text(arguments, 1)? else { return Ok(Prepared::None) };
    let is_any_case = flags.chars().rev().find(|flag| "ci".contains(*flag)) == Some('i');
    let built = RegexBuilder::new(text)
        .case_insensitive(is_any_case)
        .dot_matches_new_line(true)
        .size_limit(MAX_COMPILED_BYTES)
        .build();
    let regex = built.map_err(|error| (1, format!("this pattern cannot be used: {error}")))?;
    if regex.captures_len() > MAX_GROUPS {
        return Err((1, format!("this pattern has more than {} groups", MAX_GROUPS - 1)));
    }
    Ok(Prepared::Pattern(Arc::new(Pattern { regex, is_global: flags.contains('g') })))
}

fn pattern<'m>(arguments: &Arguments<'_, 'm>) -> Result<&'m Pattern, EvalError> {
    match arguments.prepared {
        Prepared::Pattern(pattern) => Ok(pattern),
        _ => Err(EvalError::IllTyped),
    }
}

/// The text that is searched.
fn searched<'m>(arguments: &Arguments<'_, 'm>) -> Result<&'m str, EvalError> {
    let text = arguments.text(0)?;
    if text.len() > MAX_MADE_TEXT_BYTES {
        return Err(EvalError::Domain("a search in a text of more than 1 MiB"));
    }
    Ok(text)
}

/// Takes the bytes that a search may look at from those that are left for the call.
fn spend(budget: &mut usize, bytes: usize) -> Result<(), EvalError> {
    *budget = budget.checked_sub(bytes).ok_or(EvalError::Domain("too many matches in a long text"))?;
    Ok(())
}

fn is_match(arguments: &Arguments<'_, '_>, wanted: bool) -> Result<Answer, EvalError> {
    Ok(Answer::Bool(pattern(arguments)?.regex.is_match(searched(arguments)?) == wanted))
}

/// Memory for the groups of a pattern, which is kept from record to record.
fn groups<'s>(
    groups: &'s mut Vec<Option<CaptureLocations>>,
    regex: &Regex,
) -> Result<&'s mut CaptureLocations, EvalError> {
    let count = regex.captures_len();
    if groups.len() <= count {
        groups.resize(count + 1, None);
    }
    let kept = groups.get_mut(count).ok_or(EvalError::IllTyped)?;
    Ok(kept.get_or_insert_with(|| regex.capture_locations()))
}

/// A group of the first match.
fn found(arguments: &Arguments<'_, '_>, out: &mut Scratch, group: usize) -> Result<Answer, EvalError> {
    let (regex, text) = (&pattern(arguments)?.regex, searched(arguments)?);
    let locations = groups(&mut out.groups, regex)?;
    let matched = regex.captures_read(locations, text).and_then(|_| locations.get(group));
    Ok(matched.map_or(Answer::Null, |(from, to)| Answer::Part { argument: 0, from, to }))
}

fn replace(arguments: &Arguments<'_, '_>, out: &mut Scratch) -> Result<Answer, EvalError> {
    let (pattern, text, with) = (pattern(arguments)?, searched(arguments)?, arguments.text(2)?);
    // Where the next search begins, and up to where the text was copied: they differ behind an empty match.
    let (mut at, mut copied, mut budget) = (0, 0, MAX_SEARCHED_BYTES);
    while at <= text.len() {
        spend(&mut budget, text.len() - at)?;
        let locations = groups(&mut out.groups, &pattern.regex)?;
        let Some(found) = pattern.regex.captures_read_at(locations, text, at) else { break };
        let (start, end) = (found.start(), found.end());
        // An empty match right behind another is none.
        let is_again = start == end && copied == start && copied > 0;
        if !is_again {
            out.push(text.get(copied..start).unwrap_or_default().as_bytes())?;
            expand(with, text, out, pattern.regex.captures_len())?;
            copied = end;
            if !pattern.is_global {
                break;
            }
        }
        let next_char = text.get(end..).and_then(|rest| rest.chars().next()).map_or(1, char::len_utf8);
        at = if start == end { end + next_char } else { end };
    }
    out.push(text.get(copied..).unwrap_or_default().as_bytes())?;
    Ok(Answer::Made)
}

/// The replacement, with the groups of the match that was found last in place of `\1` and so on.
fn expand(with: &str, text: &str, out: &mut Scratch, count: usize) -> Result<(), EvalError> {
    let mut chars = with.chars();
    while let Some(char) = chars.next() {
        let group = match (char, chars.as_str().chars().next()) {
            ('\\', Some(digit @ '1'..='9')) => digit.to_digit(10),
            ('\\', Some('&')) => Some(0),
            ('\\', Some('\\')) => None,
            _ => {
                out.push_char(char)?;
                continue;
            }
        };
        chars.next();
        let Some(group) = group else {
            out.push_char('\\')?;
            continue;
        };
        let range = out.groups.get(count).and_then(Option::as_ref).and_then(|groups| groups.get(group as usize));
        if let Some((from, to)) = range {
            out.push(text.get(from..to).unwrap_or_default().as_bytes())?;
        }
    }
    Ok(())
}
