//! The error of a query, its place, and its remedy.

use std::fmt;

use serde::{Deserialize, Serialize};
use sqlparser::tokenizer::{Location, Span};

/// Where in the SQL text something stands. Lines and columns count from 1; columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Position {
    /// The line, from 1.
    pub line: u32,
    /// The character in the line, from 1.
    pub column: u32,
}

impl Position {
    /// Whether it is behind another one.
    pub(crate) fn is_behind(self, other: Position) -> bool {
        (self.line, self.column) > (other.line, other.column)
    }

    /// The text in front of it.
    pub(crate) fn text_before(self, text: &str) -> &str {
        let line: usize = text.split_inclusive('\n').take(self.line as usize - 1).map(str::len).sum();
        let characters = text.get(line..).unwrap_or_default().char_indices();
        let column = characters.map(|(column, _)| column).nth(self.column as usize - 1);
        column.and_then(|column| text.get(..line + column)).unwrap_or(text)
    }

    /// The parser marks what it made up itself with line 0; such a place is no place.
    pub(crate) fn of(location: Location) -> Option<Position> {
        let line = u32::try_from(location.line).ok().filter(|&line| line > 0)?;
        let column = u32::try_from(location.column).ok().filter(|&column| column > 0)?;
        Some(Position { line, column })
    }

    /// The same for the parser, of one character.
    pub(crate) fn to_span(self) -> Span {
        let at = Location { line: self.line.into(), column: self.column.into() };
        Span { start: at, end: at }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// Why a query cannot be run. `Display` gives the place, the message, the line of SQL with a caret under it, and the
/// hint:
///
/// ```text
/// line 1, column 34: no column `dset` in stream A
///   SELECT carrier, flight FROM A WHERE dset = 'LAX'
///                                       ^
/// hint: did you mean `dest`? known: carrier, dest, flight, origin
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryError {
    /// The error, in one sentence without a full stop.
    pub message: String,
    /// Where, if it is at one place.
    pub position: Option<Position>,
    /// The known names, possible or near, if that helps.
    pub hint: Option<String>,
    /// The line of SQL at `position`, cut to a window around the column where it is long.
    pub excerpt: Option<Excerpt>,
}

/// A piece of one line of SQL, and where in it the caret belongs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Excerpt {
    /// The text, on one line, without control characters.
    pub text: String,
    /// How many characters stand before the caret.
    pub caret: usize,
}

/// Characters of a long line that are shown on each side of the caret.
const EXCERPT_SIDE: usize = 60;

impl QueryError {
    pub(crate) fn new(message: impl Into<String>, position: Option<Position>) -> QueryError {
        QueryError { message: message.into(), position, hint: None, excerpt: None }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> QueryError {
        self.hint = Some(hint.into());
        self
    }

    /// Adds the line of `sql` that the position names.
    pub(crate) fn over(mut self, sql: &str) -> QueryError {
        if let (None, Some(position)) = (&self.excerpt, self.position) {
            self.excerpt = excerpt(sql, position);
        }
        self
    }
}

fn excerpt(sql: &str, position: Position) -> Option<Excerpt> {
    let line = sql.split('\n').nth(position.line as usize - 1)?;
    let column = position.column as usize - 1;
    let length = line.chars().count();
    let caret = column.min(length);
    let from = if length <= 2 * EXCERPT_SIDE { 0 } else { caret.saturating_sub(EXCERPT_SIDE) };
    let to = if length <= 2 * EXCERPT_SIDE { length } else { (caret + EXCERPT_SIDE).min(length) };
    let mut text = String::new();
    if from > 0 {
        text.push_str("... ");
    }
    let caret = caret - from + text.len();
    text.extend(line.chars().skip(from).take(to - from).map(|c| if c.is_control() { ' ' } else { c }));
    if to < length {
        text.push_str(" ...");
    }
    Some(Excerpt { text: text.trim_end().to_owned(), caret })
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(position) = self.position {
            write!(f, "{position}: ")?;
        }
        f.write_str(&self.message)?;
        if let Some(Excerpt { text, caret }) = &self.excerpt {
            write!(f, "\n  {text}\n  {:caret$}^", "")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "\nhint: {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for QueryError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(line: u32, column: u32) -> Option<Position> {
        Some(Position { line, column })
    }

    #[test]
    fn a_caret_stands_under_the_column_of_its_line() {
        let error = QueryError::new("no", at(2, 3)).over("SELECT\n\tab c\nFROM");
        assert_eq!(error.to_string(), "line 2, column 3: no\n   ab c\n    ^");
    }

    #[test]
    fn a_long_line_is_cut_to_a_window() {
        let sql = format!("{}X{}", "a".repeat(500), "b".repeat(500));
        let error = QueryError::new("no", at(1, 501)).over(&sql);
        let shown = error.to_string();
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines[1].len() < 150, "{shown}");
        assert_eq!(lines[1].find('X'), lines[2].find('^'));
    }

    #[test]
    fn a_place_past_the_end_does_not_panic() {
        for (line, column) in [(1, 999), (2, 1), (u32::MAX, u32::MAX)] {
            let _ = QueryError::new("no", at(line, column)).over("abc").to_string();
        }
    }
}
