//! Rows of fields out of bytes (RFC 4180, with what is usual beyond it: any delimiter, line ends of LF, CR or both, rows of
//! any number of fields, and text after a closing quote, which belongs to its field).
//!
//! The end of a row is looked for first: a line end that is in no quotes ([`Search`]). A row that lies in the reader's buffer
//! whole (nearly all do) is split there, another is gathered before. A row without quotes is only split at the delimiters, in
//! place.

use std::io::BufRead;

use super::{CsvError, CsvOptions, CsvProblem};
use crate::builder::ByteRun;
use crate::input::Input;
use crate::scan::split;

#[derive(Debug)]
pub(super) struct RowReader {
    input: Input,
    max_row_bytes: usize,
    /// The line on which the next row starts, if no blank lines come first.
    line: u64,
    /// The last row was ended by CR: an LF that follows belongs to it.
    after_cr: bool,
    /// The last row was too long, and has not ended yet.
    in_discarded_line: bool,
    /// A row that the reader's buffer did not hold whole.
    gathered: Vec<u8>,
    splitter: Splitter,
}

/// Splits rows into fields.
#[derive(Debug)]
struct Splitter {
    delimiter: u8,
    /// Whether a number ends at the delimiter.
    ends_numbers: bool,
    /// The fields of a row with quotes, without these, one after the other.
    text: Vec<u8>,
    fields: Vec<Bounds>,
}

/// Where a field is in the text, and whether it was in quotes.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    start: u32,
    end: u32,
    quoted: bool,
}

impl Bounds {
    /// Both places are within a row, which is shorter than 32 bits count.
    #[inline]
    fn new(start: usize, end: usize, quoted: bool) -> Self {
        Self { start: start as u32, end: end as u32, quoted }
    }
}

/// One row.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    /// The row as it was read, or its fields without quotes.
    text: &'a [u8],
    fields: &'a [Bounds],
    /// Whether each field is shown with what follows it, at which a number ends. Otherwise it is shown alone: digits of the next
    /// one would be taken for its own.
    is_delimited: bool,
}

impl<'a> Row<'a> {
    /// How many fields it has.
    #[inline]
    pub(super) fn len(self) -> usize {
        self.fields.len()
    }

    /// Its fields, each with whether it was in quotes.
    #[inline]
    pub(super) fn fields(self) -> impl Iterator<Item = (ByteRun<'a>, bool)> {
        self.fields.iter().map(move |Bounds { start, end, quoted }| {
            let (start, end) = (*start as usize, *end as usize);
            let ahead = self.text.get(start..).unwrap_or_default();
            let bytes = ahead.get(..end - start).unwrap_or_default();
            (ByteRun { bytes, ahead: if self.is_delimited { ahead } else { bytes } }, *quoted)
        })
    }
}

impl RowReader {
    pub(super) fn new(options: &CsvOptions) -> Result<Self, CsvError> {
        options.check()?;
        let delimiter = options.delimiter;
        Ok(Self {
            input: Input::default(),
            // One more is counted with.
            max_row_bytes: options.max_row_bytes.min(i32::MAX as usize),
            line: 1,
            after_cr: false,
            in_discarded_line: false,
            gathered: Vec::new(),
            splitter: Splitter {
                delimiter,
                ends_numbers: !is_of_number(delimiter),
                text: Vec::new(),
                fields: Vec::new(),
            },
        })
    }

    /// Reads one row and shows it to `visit`, with the line on which it starts. `None` at the end.
    #[inline]
    pub(super) fn read<R: BufRead + ?Sized, T>(
        &mut self,
        reader: &mut R,
        visit: impl FnOnce(u64, Row<'_>) -> T,
    ) -> Result<Option<T>, CsvError> {
        if self.in_discarded_line {
            self.discard_line(reader)?;
        }
        if !self.skip_blank_lines(reader)? {
            return Ok(None);
        }
        let row_line = self.line;
        let chunk = self.input.fill(reader).map_err(io_error(row_line))?;
        let mut search = Search::default();
        let Some(end) = search.end_of_row(within(chunk, self.max_row_bytes), self.splitter.delimiter) else {
            self.gather(reader, &mut search).or_else(|error| self.measured(error, reader))?;
            return Ok(Some(visit(row_line, self.splitter.split(&self.gathered, search.has_quotes))));
        };
        let row = &chunk[..end];
        let result = visit(row_line, self.splitter.split(row, search.has_quotes));
        self.line += 1 + if search.has_quotes { count_line_ends(row) } else { 0 };
        let read = end + if chunk[end..].starts_with(b"\r\n") { 2 } else { 1 };
        self.after_cr = chunk[read - 1] == b'\r';
        self.input.consume(reader, read);
        Ok(Some(result))
    }

    /// Goes to the first byte of the next row; false at the end.
    #[inline]
    fn skip_blank_lines<R: BufRead + ?Sized>(&mut self, reader: &mut R) -> Result<bool, CsvError> {
        loop {
            let chunk = self.input.fill(reader).map_err(io_error(self.line))?;
            match chunk.first() {
                None => return Ok(false),
                Some(b'\n') => {
                    self.line += u64::from(!self.after_cr);
                    self.after_cr = false;
                }
                Some(b'\r') => {
                    self.line += 1;
                    self.after_cr = true;
                }
                Some(_) => {
                    self.after_cr = false;
                    return Ok(true);
                }
            }
            self.input.consume(reader, 1);
        }
    }

    /// Gathers a row that the buffer holds a part of; `search` has come to the end of that part.
    fn gather<R: BufRead + ?Sized>(&mut self, reader: &mut R, search: &mut Search) -> Result<(), CsvError> {
        self.gathered.clear();
        loop {
            let chunk = self.input.fill(reader).map_err(io_error(self.line))?;
            let chunk = within(chunk, self.max_row_bytes - self.gathered.len());
            if chunk.is_empty() {
                // The end is as good as a line end, but none to a quote that is open.
                let searched = self.gathered.len();
                return if search.is_in_quotes() {
                    Err(self.give_up(CsvProblem::UnclosedQuote { searched }))
                } else {
                    Ok(())
                };
            }
            let before = self.gathered.len();
            self.gathered.extend_from_slice(chunk);
            if let Some(end) = search.end_of_row(&self.gathered, self.splitter.delimiter) {
                self.input.consume(reader, end + 1 - before);
                self.after_cr = self.gathered[end] == b'\r';
                self.gathered.truncate(end);
                self.line += 1 + count_line_ends(&self.gathered);
                return Ok(());
            }
            let taken = chunk.len();
            self.input.consume(reader, taken);
            if self.gathered.len() > self.max_row_bytes {
                let most = self.max_row_bytes;
                let is_open = search.is_in_quotes();
                return Err(self.give_up(if is_open {
                    CsvProblem::UnclosedQuote { searched: most }
                } else {
                    CsvProblem::RowTooLong { found: self.gathered.len() as u64, most }
                }));
            }
        }
    }

    /// The row is none. The text behind its first line is read again, so that a stray quote costs one line and not a
    /// thousand.
    #[cold]
    fn give_up(&mut self, problem: CsvProblem) -> CsvError {
        let error = CsvError { line: self.line, column: None, problem };
        match memchr::memchr2(b'\n', b'\r', &self.gathered) {
            Some(end) => {
                self.line += 1;
                self.after_cr = self.gathered[end] == b'\r';
                self.input.put_back(&self.gathered[end + 1..]);
            }
            None => self.in_discarded_line = true,
        }
        error
    }

    /// The error, with the length of the whole line if that is what is too long.
    #[cold]
    fn measured<R: BufRead + ?Sized>(&mut self, mut error: CsvError, reader: &mut R) -> Result<(), CsvError> {
        if let (CsvProblem::RowTooLong { found, .. }, true) = (&mut error.problem, self.in_discarded_line) {
            *found += self.discard_line(reader)?;
        }
        Err(error)
    }

    /// Skips the rest of a line that was too long to be a row: how many bytes that is, without its end.
    #[cold]
    fn discard_line<R: BufRead + ?Sized>(&mut self, reader: &mut R) -> Result<u64, CsvError> {
        let mut skipped = 0;
        loop {
            let chunk = self.input.fill(reader).map_err(io_error(self.line))?;
            let end = memchr::memchr2(b'\n', b'\r', chunk);
            let skip = end.map_or(chunk.len(), |end| end + 1);
            self.after_cr = end.is_some_and(|end| chunk[end] == b'\r');
            self.input.consume(reader, skip);
            skipped += end.unwrap_or(skip) as u64;
            if end.is_some() || skip == 0 {
                self.line += 1;
                self.in_discarded_line = false;
                return Ok(skipped);
            }
        }
    }
}

impl Splitter {
    /// The fields of a row; whether it has quotes that open a field.
    #[inline]
    fn split<'a>(&'a mut self, row: &'a [u8], has_quotes: bool) -> Row<'a> {
        self.fields.clear();
        if has_quotes {
            self.split_quoted(row);
            return Row { text: &self.text, fields: &self.fields, is_delimited: false };
        }
        let fields = &mut self.fields;
        split(row, self.delimiter, |start, end| fields.push(Bounds::new(start, end, false)));
        Row { text: row, fields: &self.fields, is_delimited: self.ends_numbers }
    }

    fn split_quoted(&mut self, row: &[u8]) {
        self.text.clear();
        let mut rest = Some(row);
        while let Some(field) = rest {
            let start = self.text.len();
            let inside = field.strip_prefix(b"\"");
            let unquoted = inside.map_or(field, |inside| self.take_quoted(inside));
            rest = self.take_unquoted(unquoted);
            self.fields.push(Bounds::new(start, self.text.len(), inside.is_some()));
        }
    }

    /// Takes text up to the quote that closes it: a row that was found whole has one; what follows it.
    fn take_quoted<'a>(&mut self, mut bytes: &'a [u8]) -> &'a [u8] {
        loop {
            let end = memchr::memchr(b'"', bytes).unwrap_or(bytes.len());
            self.text.extend_from_slice(&bytes[..end]);
            bytes = bytes.get(end + 1..).unwrap_or_default();
            // Two of them are one that closes nothing.
            match bytes.strip_prefix(b"\"") {
                Some(rest) => bytes = rest,
                None => return bytes,
            }
            self.text.push(b'"');
        }
    }

    /// Takes text up to a delimiter; what follows it, if there is one.
    fn take_unquoted<'a>(&mut self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let end = memchr::memchr(self.delimiter, bytes);
        self.text.extend_from_slice(&bytes[..end.unwrap_or(bytes.len())]);
        end.map(|end| &bytes[end + 1..])
    }
}

/// The search for a row's end, which may come in parts.
#[derive(Debug, Default)]
struct Search {
    /// As far as it has come.
    at: usize,
    state: State,
    /// Whether a field begins with a quote. Other quotes are text.
    has_quotes: bool,
}

/// Where a search is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// In no quotes.
    #[default]
    Unquoted,
    Quoted,
    /// Behind a quote within quotes: it closed them, if no other one follows.
    Closing,
}

impl Search {
    /// Where the line end is that ends the row which `bytes` begin with; `None` if it is not among them. The search goes on with
    /// the same bytes and more.
    #[inline]
    fn end_of_row(&mut self, bytes: &[u8], delimiter: u8) -> Option<usize> {
        loop {
            let rest = bytes.get(self.at..).unwrap_or_default();
            let found = match self.state {
                State::Unquoted => memchr::memchr3(b'\n', b'"', b'\r', rest),
                State::Quoted => memchr::memchr(b'"', rest),
                State::Closing => (!rest.is_empty()).then_some(0),
            };
            let Some(found) = found else {
                self.at = bytes.len();
                return None;
            };
            self.at += found;
            let is_quote = bytes[self.at] == b'"';
            match self.state {
                State::Unquoted if !is_quote => return Some(self.at),
                State::Unquoted => {
                    if self.at == 0 || bytes[self.at - 1] == delimiter {
                        (self.state, self.has_quotes) = (State::Quoted, true);
                    }
                }
                State::Quoted => self.state = State::Closing,
                State::Closing if is_quote => self.state = State::Quoted,
                State::Closing => {
                    self.state = State::Unquoted;
                    continue;
                }
            }
            self.at += 1;
        }
    }

    /// Whether quotes are open.
    fn is_in_quotes(&self) -> bool {
        self.state == State::Quoted
    }
}

/// Bytes up to the line end of the longest row: what is wrong with a longer one does not depend on the buffer.
#[inline]
fn within(chunk: &[u8], most: usize) -> &[u8] {
    chunk.get(..=most).unwrap_or(chunk)
}

/// Whether a byte may be a part of a number.
fn is_of_number(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.')
}

/// Line ends within a row; CRLF is one.
fn count_line_ends(raw: &[u8]) -> u64 {
    let mut ends = 0;
    let mut after_cr = false;
    for byte in raw {
        ends += u64::from(*byte == b'\r' || (*byte == b'\n' && !after_cr));
        after_cr = *byte == b'\r';
    }
    ends
}

fn io_error(line: u64) -> impl FnOnce(std::io::Error) -> CsvError {
    move |error| CsvError { line, column: None, problem: CsvProblem::Io(error) }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use proptest::prelude::*;

    use super::*;

    type Rows = Vec<Vec<Vec<u8>>>;

    /// All rows, through a buffer of this many bytes, and the errors with their lines.
    fn read_all(input: &[u8], buffer_bytes: usize, options: &CsvOptions) -> (Vec<u64>, Rows, Vec<String>) {
        let mut input = BufReader::with_capacity(buffer_bytes, input);
        let mut reader = RowReader::new(options).expect("sound options");
        let (mut lines, mut rows, mut errors) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            let row = reader.read(&mut input, |line, row| {
                let fields = row.fields().map(|(field, _)| field.bytes.to_vec()).collect();
                (line, fields)
            });
            match row {
                Ok(Some((line, row))) => {
                    lines.push(line);
                    rows.push(row);
                }
                Ok(None) => return (lines, rows, errors),
                Err(error) => errors.push(error.to_string()),
            }
        }
    }

    /// The csv crate's result.
    fn oracle(input: &[u8]) -> (Vec<u64>, Rows) {
        let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(input);
        let rows = reader.byte_records().map(|row| {
            let row = row.expect("flexible");
            (row.position().expect("read from an input").line(), row.iter().map(<[u8]>::to_vec).collect())
        });
        rows.unzip()
    }

    proptest! {
        #[test]
        fn rows_are_those_of_the_csv_crate(input in "[ab,\"\r\n\u{feff}]{0,40}", buffer_bytes in 1_usize..50) {
            let (lines, rows, errors) = read_all(input.as_bytes(), buffer_bytes, &CsvOptions::default());
            let whole = read_all(input.as_bytes(), 1 << 16, &CsvOptions::default());
            prop_assert_eq!(&(lines.clone(), rows.clone(), errors.clone()), &whole, "whatever the buffer");
            if errors.is_empty() {
                let (oracle_lines, oracle_rows) = oracle(input.as_bytes());
                prop_assert_eq!(rows, oracle_rows);
                // The csv crate counts LF only, and counts blank lines to the row behind them.
                if !input.contains('\r') && !input.contains("\n\n") && !input.trim_start_matches('\u{feff}').starts_with('\n') {
                    prop_assert_eq!(lines, oracle_lines);
                }
            }
        }

        #[test]
        fn long_rows_cost_themselves_alone(
            rows in prop::collection::vec("[ab,]{1,30}|\"[ab\n]{0,30}\"|\"[ab]{0,30}", 1..8),
            buffer_bytes in 1_usize..50,
        ) {
            let options = CsvOptions { max_row_bytes: 20, ..CsvOptions::default() };
            let mut input = rows.join("\n");
            input.push_str("\nlast,row\n");
            let (lines, found, errors) = read_all(input.as_bytes(), buffer_bytes, &options);
            prop_assert_eq!(&(lines.clone(), found.clone(), errors.clone()), &read_all(input.as_bytes(), 1 << 16, &options));
            // An open quote before it is within reach of swallowing it, and is then what the error reports.
            let is_there = found.last() == Some(&vec![b"last".to_vec(), b"row".to_vec()]);
            prop_assert!(is_there || input.contains('"'));
            if is_there {
                let expected = input.lines().count() as u64;
                prop_assert_eq!(lines.last().copied(), Some(expected));
            }
            for row in found {
                prop_assert!(row.iter().map(Vec::len).sum::<usize>() <= 20);
            }
        }
    }

    #[test]
    fn lines_are_counted_whatever_ends_them() {
        for (input, expected) in [
            ("a\nb\nc", vec![1, 2, 3]),
            ("a\r\nb\r\nc\r\n", vec![1, 2, 3]),
            ("a\rb\rc\r", vec![1, 2, 3]),
            ("\n\na\n\r\n\nb", vec![3, 6]),
            ("\"a\nb\"\nc", vec![1, 3]),
            ("\"a\r\nb\"\r\nc", vec![1, 3]),
            ("\"a\rb\"\rc", vec![1, 3]),
            ("\u{feff}a\nb", vec![1, 2]),
        ] {
            for buffer_bytes in 1..12 {
                let (lines, ..) = read_all(input.as_bytes(), buffer_bytes, &CsvOptions::default());
                assert_eq!(lines, expected, "{input:?} in {buffer_bytes}");
            }
        }
    }

    #[test]
    fn an_open_quote_costs_one_line() {
        let input = b"a,b\n1,\"x\n3,y\n4,z";
        for buffer_bytes in 1..20 {
            let (lines, rows, errors) = read_all(input, buffer_bytes, &CsvOptions::default());
            assert_eq!(errors, ["line 2: found a double quote that is not closed within 12 bytes"]);
            assert_eq!(lines, [1, 3, 4]);
            assert_eq!(rows[1..], [[b"3".to_vec(), b"y".to_vec()], [b"4".to_vec(), b"z".to_vec()]]);
        }
    }

    #[test]
    fn a_row_that_is_too_long_differs_from_a_quote_that_is_open() {
        let options = CsvOptions { max_row_bytes: 10, ..CsvOptions::default() };
        let long = "found a row of 11 bytes, expected at most 10";
        let open = "found a double quote that is not closed within 10 bytes";
        for (row, problem) in [
            ("aaaaaaaaaaa", Some(long)),
            ("aaaaa,\"aaaaaa", Some(open)),
            ("\"aaaaaaaaa\"", Some(long)),
            ("\"aaaa\"\"aaaaa", Some(open)),
            ("aaaaa\"aaaaa", Some(long)),
            ("\"aaaaaaaa\"", None),
            ("aaaaaaaaaa", None),
        ] {
            for (buffer_bytes, end) in [(1, "\n"), (3, "\r\n"), (1, "\r\n"), (100, "\r"), (1, "\r"), (100, "\n")] {
                let input = format!("a{end}{row}{end}b");
                let (lines, rows, errors) = read_all(input.as_bytes(), buffer_bytes, &options);
                let expected: Vec<String> = problem.iter().map(|problem| format!("line 2: {problem}")).collect();
                assert_eq!(errors, expected, "{row}");
                assert_eq!(rows.len(), if problem.is_some() { 2 } else { 3 });
                assert_eq!((rows.last(), lines.last()), (Some(&vec![b"b".to_vec()]), Some(&3)));
            }
        }
    }
}
