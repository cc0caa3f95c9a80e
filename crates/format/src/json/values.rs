//! Where one value of an input ends and the next begins: lines, or the elements of an array and objects over several
//! lines.

use std::io::BufRead;

use super::{JsonError, JsonProblem};
use crate::input::Input;

/// Most blanks in front of the first value: what is looked through before anything is known of the input.
const MAX_BLANKS: usize = 1 << 16;

/// How the values of an input are laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Layout {
    /// A value a line, so that a line that is wrong ends where the line does.
    Lines,
    /// Elements of arrays, or values one after the other, over any number of lines.
    Documents,
}

impl Layout {
    /// The layout of an input that starts with these bytes; `None` while they do not say. An object whose first line ends
    /// where more of it has to come (behind `{`, `[`, `:` or `,`) goes on in the next. Any other line is one that is wrong where
    /// it is no whole object, so that the lines behind it can still be read.
    pub(super) fn of(start: &[u8]) -> Option<Self> {
        let start = start.trim_ascii_start();
        match start.first()? {
            b'[' => return Some(Self::Documents),
            b'{' => {}
            _ => return Some(Self::Lines),
        }
        let (line, is_whole) = match memchr::memchr(b'\n', start) {
            Some(end) => (start.get(..end).unwrap_or_default(), true),
            None => (start, false),
        };
        if Extent::default().of(line).1 {
            return Some(Self::Lines);
        }
        let goes_on = matches!(line.trim_ascii_end().last(), Some(b'{' | b'[' | b':' | b','));
        is_whole.then_some(if goes_on { Self::Documents } else { Self::Lines })
    }
}

/// The token that may come next where no value is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum ExpectedToken {
    /// A value or an array of values; or the end.
    #[default]
    Top,
    /// An array's first element, or its end.
    First,
    /// An element, behind a comma.
    Element,
    /// A comma, or the array's end.
    Behind,
}

/// Where a value starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Start {
    /// The line, from 1.
    pub(super) line: u64,
    /// How many bytes of the line are in front.
    pub(super) column: usize,
}

/// Values out of bytes.
#[derive(Debug, Default)]
pub(super) struct ValueReader {
    input: Input,
    /// Not known before the first value.
    layout: Option<Layout>,
    place: ExpectedToken,
    /// The line of the value that was read last; in documents, the line that was read up to.
    pub(super) line: u64,
    /// In documents, how many bytes of that line were read.
    column: usize,
    /// A value that the reader's buffer does not hold whole.
    carried: Vec<u8>,
}

impl ValueReader {
    /// Reads a value, which in lines may be blank, and shows it to `visit`, with where it starts. `None` at the
    /// end.
    #[inline]
    pub(super) fn read<R: BufRead + ?Sized, T>(
        &mut self,
        reader: &mut R,
        most: usize,
        visit: impl FnOnce(Start, &[u8]) -> T,
    ) -> Result<Option<T>, JsonError> {
        match self.layout {
            Some(Layout::Lines) => self.line(reader, most, visit),
            Some(Layout::Documents) => self.element(reader, most, visit),
            None => match self.find_layout(reader)? {
                Layout::Lines => self.line(reader, most, visit),
                Layout::Documents => self.element(reader, most, visit),
            },
        }
    }

    #[cold]
    fn find_layout<R: BufRead + ?Sized>(&mut self, reader: &mut R) -> Result<Layout, JsonError> {
        let found = loop {
            let chunk = self.input.fill(reader).map_err(|error| JsonError::at(1, JsonProblem::Io(error)))?;
            let layout = if self.carried.is_empty() { Layout::of(chunk) } else { None };
            if let Some(layout) = layout {
                break layout;
            }
            let length = chunk.len();
            self.carried.extend_from_slice(chunk);
            self.input.consume(reader, length);
            match Layout::of(&self.carried) {
                Some(layout) => break layout,
                None if length == 0 || self.carried.len() > MAX_BLANKS => break Layout::Lines,
                None => {}
            }
        };
        self.input.put_back(&self.carried);
        self.carried.clear();
        self.line = u64::from(found == Layout::Documents);
        self.layout = Some(found);
        Ok(found)
    }

    #[inline]
    fn line<R: BufRead + ?Sized, T>(
        &mut self,
        reader: &mut R,
        most: usize,
        visit: impl FnOnce(Start, &[u8]) -> T,
    ) -> Result<Option<T>, JsonError> {
        self.line += 1;
        let line = self.line;
        self.carried.clear();
        let (mut is_too_long, mut length) = (false, 0);
        loop {
            let chunk = self.input.fill(reader).map_err(|error| JsonError::at(line, JsonProblem::Io(error)))?;
            let end = memchr::memchr(b'\n', chunk);
            let part = chunk.get(..end.unwrap_or(chunk.len())).unwrap_or_default();
            let is_last = end.is_some() || chunk.is_empty();
            if chunk.is_empty() && self.carried.is_empty() && !is_too_long {
                return Ok(None);
            }
            is_too_long |= self.carried.len() + part.len() > most;
            length += part.len() as u64;
            let consumed = part.len() + usize::from(end.is_some());
            if is_last && !is_too_long && self.carried.is_empty() {
                let result = visit(Start { line, column: 0 }, part);
                self.input.consume(reader, consumed);
                return Ok(Some(result));
            }
            if is_too_long {
                // Nothing is kept of it but where it ends.
                self.carried.clear();
            } else {
                self.carried.extend_from_slice(part);
            }
            self.input.consume(reader, consumed);
            if is_last && is_too_long {
                return Err(JsonError::at(line, JsonProblem::LineTooLong { found: length, most }));
            }
            if is_last {
                return Ok(Some(visit(Start { line, column: 0 }, &self.carried)));
            }
        }
    }

    /// The next element of an array, or value outside of one.
    fn element<R: BufRead + ?Sized, T>(
        &mut self,
        reader: &mut R,
        most: usize,
        visit: impl FnOnce(Start, &[u8]) -> T,
    ) -> Result<Option<T>, JsonError> {
        if !self.skip_to_value(reader)? {
            return Ok(None);
        }
        let (line, start) = (self.line, Start { line: self.line, column: self.column });
        self.carried.clear();
        let (mut extent, mut is_too_long, mut length) = (Extent::default(), false, 0);
        loop {
            let chunk = self.input.fill(reader).map_err(|error| JsonError::at(line, JsonProblem::Io(error)))?;
            let (taken, is_whole) = extent.of(chunk);
            let part = chunk.get(..taken).unwrap_or_default();
            let is_last = is_whole || chunk.is_empty();
            is_too_long |= self.carried.len() + part.len() > most;
            length += part.len() as u64;
            self.line += memchr::memchr_iter(b'\n', part).count() as u64;
            self.column = memchr::memrchr(b'\n', part).map_or(self.column + part.len(), |end| part.len() - end - 1);
            if is_last && !is_too_long && self.carried.is_empty() {
                let result = visit(start, part);
                self.input.consume(reader, taken);
                return Ok(Some(result));
            }
            if is_too_long {
                self.carried.clear();
            } else {
                self.carried.extend_from_slice(part);
            }
            self.input.consume(reader, taken);
            if is_last && is_too_long {
                return Err(JsonError::at(line, JsonProblem::LineTooLong { found: length, most }));
            }
            if is_last {
                return Ok(Some(visit(start, &self.carried)));
            }
        }
    }

    /// Passes over what stands between values; false at the input's end.
    fn skip_to_value<R: BufRead + ?Sized>(&mut self, reader: &mut R) -> Result<bool, JsonError> {
        loop {
            let line = self.line;
            let chunk = self.input.fill(reader).map_err(|error| JsonError::at(line, JsonProblem::Io(error)))?;
            let Some(byte) = chunk.first().copied() else {
                return match self.place {
                    ExpectedToken::Top => Ok(false),
                    _ => Err(self.between("the end of the input".to_owned(), "`]` at the end of the array")),
                };
            };
            let next = match (self.place, byte) {
                (place, b' ' | b'\t' | b'\r' | b'\n') => place,
                (ExpectedToken::Top, b'[') => ExpectedToken::First,
                (ExpectedToken::First | ExpectedToken::Behind, b']') => ExpectedToken::Top,
                (ExpectedToken::Behind, b',') => ExpectedToken::Element,
                (ExpectedToken::Behind, _) => return Err(self.between(shown(byte), "`,` or `]`")),
                (place, b'{' | b'[' | b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => {
                    self.place = if place == ExpectedToken::Top { ExpectedToken::Top } else { ExpectedToken::Behind };
                    return Ok(true);
                }
                _ => return Err(self.between(shown(byte), "an object")),
            };
            self.place = next;
            self.line += u64::from(byte == b'\n');
            self.column = if byte == b'\n' { 0 } else { self.column + 1 };
            self.input.consume(reader, 1);
        }
    }

    #[cold]
    fn between(&self, found: String, expected: &'static str) -> JsonError {
        JsonError::at(self.line, JsonProblem::Between { found, expected })
    }
}

fn shown(byte: u8) -> String {
    format!("`{}`", crate::text::shorten(&[byte]))
}

/// How far a value reaches; not all its bytes need be there. Its content is not judged.
#[derive(Default)]
struct Extent {
    /// Arrays and objects that are open.
    depth: usize,
    in_text: bool,
    is_escaped: bool,
    /// The first byte of the value.
    first: Option<u8>,
}

impl Extent {
    /// How many of these bytes, which follow those before, belong to the value; and whether it ends with them.
    fn of(&mut self, bytes: &[u8]) -> (usize, bool) {
        for (at, byte) in bytes.iter().enumerate() {
            let first = *self.first.get_or_insert(*byte);
            if self.in_text {
                match (self.is_escaped, byte) {
                    (true, _) => self.is_escaped = false,
                    (false, b'\\') => self.is_escaped = true,
                    (false, b'"') => self.in_text = false,
                    _ => {}
                }
            } else {
                match byte {
                    b'"' => self.in_text = true,
                    b'{' | b'[' => self.depth += 1,
                    b'}' | b']' if self.depth > 0 => self.depth -= 1,
                    // A number or a word ends where something else begins.
                    b',' | b'}' | b']' | b' ' | b'\t' | b'\r' | b'\n' if self.depth == 0 => return (at, true),
                    _ => continue,
                }
            }
            if self.depth == 0 && !self.in_text && matches!(first, b'{' | b'[' | b'"') {
                return (at + 1, true);
            }
        }
        (bytes.len(), false)
    }
}
