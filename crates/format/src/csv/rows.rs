//! Rows of fields out of bytes.
//!
//! A row that lies in the reader's buffer whole and has no quote in it (nearly all do) is only split at the delimiters,
//! in place. Every other row goes through csv-core.

use std::io::BufRead;

use csv_core::{ReadFieldResult, Reader, ReaderBuilder};

use super::{CsvError, CsvOptions, CsvProblem};
use crate::builder::Run;
use crate::input::Input;
use crate::scan::split;

#[derive(Debug)]
pub(super) struct RowReader {
    input: Input,
    parser: Reader,
    delimiter: u8,
    /// Whether a number ends at the delimiter.
    ends_numbers: bool,
    max_row_bytes: usize,
    /// The line on which the next row starts, if no blank lines come first.
    line: u64,
    /// The last row was ended by CR: an LF that follows belongs to it.
    after_cr: bool,
    /// The last row was too long, and has not ended yet.
    in_discarded_line: bool,
    /// The row as it was read, for the rows that csv-core reads: so that it can be put back.
    raw: Vec<u8>,
    /// Its fields without quotes, one after the other.
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
    pub(super) fn fields(self) -> impl Iterator<Item = (Run<'a>, bool)> {
        self.fields.iter().map(move |Bounds { start, end, quoted }| {
            let (start, end) = (*start as usize, *end as usize);
            let ahead = self.text.get(start..).unwrap_or_default();
            let bytes = ahead.get(..end - start).unwrap_or_default();
            (Run { bytes, ahead: if self.is_delimited { ahead } else { bytes } }, *quoted)
        })
    }
}

impl RowReader {
    pub(super) fn new(options: &CsvOptions) -> Result<Self, CsvError> {
        options.check()?;
        let mut parser = ReaderBuilder::new().delimiter(options.delimiter).build();
        start_over(&mut parser);
        Ok(Self {
            input: Input::default(),
            parser,
            delimiter: options.delimiter,
            ends_numbers: !is_of_number(options.delimiter),
            // One more is counted with.
            max_row_bytes: options.max_row_bytes.min(i32::MAX as usize),
            line: 1,
            after_cr: false,
            in_discarded_line: false,
            raw: Vec::new(),
            text: vec![0; 256],
            fields: Vec::new(),
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
        if let Some((line, end)) = plain_line(chunk, self.max_row_bytes) {
            let fields = &mut self.fields;
            fields.clear();
            split(line, self.delimiter, |start, end| fields.push(Bounds::new(start, end, false)));
            let result = visit(row_line, Row { text: line, fields, is_delimited: self.ends_numbers });
            self.input.consume(reader, end);
            self.line += 1;
            return Ok(Some(result));
        }
        self.parse_row(reader).or_else(|error| self.measured(error, reader))?;
        Ok(Some(visit(row_line, Row { text: &self.text, fields: &self.fields, is_delimited: false })))
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

    /// Reads a row with csv-core, which starts with the next byte.
    fn parse_row<R: BufRead + ?Sized>(&mut self, reader: &mut R) -> Result<(), CsvError> {
        self.raw.clear();
        self.fields.clear();
        let row_line = self.line;
        let mut written = 0;
        // The first byte of the field that is being read, once it is there.
        let mut quoted = None;
        loop {
            let chunk = self.input.fill(reader).map_err(io_error(row_line))?;
            let at_end = chunk.is_empty();
            // At the end a row is ended by a line end that is not there; a quote that is open swallows it.
            // No further than the line end of the longest row: what is wrong with a longer one does not depend on the
            // buffer.
            let within_bound = chunk.get(..self.max_row_bytes + 1 - self.raw.len()).unwrap_or(chunk);
            let bytes = if at_end { b"\n" } else { within_bound };
            if quoted.is_none() {
                quoted = bytes.first().map(|byte| *byte == b'"');
            }
            let (result, read, wrote) = self.parser.read_field(bytes, &mut self.text[written..]);
            written += wrote;
            if !at_end {
                self.raw.extend_from_slice(&bytes[..read]);
                self.input.consume(reader, read);
            }
            match result {
                ReadFieldResult::InputEmpty if at_end => {
                    let searched = self.raw.len();
                    return Err(self.give_up(CsvProblem::UnclosedQuote { searched }));
                }
                ReadFieldResult::InputEmpty | ReadFieldResult::End => {}
                ReadFieldResult::OutputFull => {
                    // No longer than the row, which is bounded below.
                    let room = self.text.len() * 2;
                    self.text.resize(room, 0);
                }
                ReadFieldResult::Field { record_end } => {
                    let start = self.fields.last().map_or(0, |before| before.end as usize);
                    self.fields.push(Bounds::new(start, written, quoted == Some(true)));
                    quoted = None;
                    if record_end {
                        break;
                    }
                }
            }
            if self.raw.len() > self.max_row_bytes {
                let problem = self.too_long();
                return Err(self.give_up(problem));
            }
        }
        self.after_cr = self.raw.last() == Some(&b'\r');
        self.line += count_line_ends(&self.raw);
        Ok(())
    }

    /// A row is over its bound: because a quote is open, if what would end the row does not. (A clone of the parser
    /// would not do to try it on: csv-core 0.1.13 clones its tables in part.)
    fn too_long(&mut self) -> CsvProblem {
        match self.parser.read_field(b"\n", &mut [0; 8]) {
            (ReadFieldResult::Field { .. }, ..) => {
                CsvProblem::RowTooLong { found: self.raw.len() as u64, most: self.max_row_bytes }
            }
            _ => CsvProblem::UnclosedQuote { searched: self.max_row_bytes },
        }
    }

    /// The row is none. What follows its first line is read again, so that a stray quote costs one line and not a
    /// thousand.
    #[cold]
    fn give_up(&mut self, problem: CsvProblem) -> CsvError {
        let error = CsvError { line: self.line, column: None, problem };
        start_over(&mut self.parser);
        match memchr::memchr2(b'\n', b'\r', &self.raw) {
            Some(end) => {
                self.line += 1;
                self.after_cr = self.raw[end] == b'\r';
                let rest = &self.raw[end + 1..];
                self.input.put_back(rest);
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

/// Puts the parser at the start of a row. It reads a blank line, after which byte order marks are none of its business.
fn start_over(parser: &mut Reader) {
    parser.reset();
    let _ = parser.read_field(b"\n", &mut [0; 8]);
}

/// Whether a byte may be a part of a number.
fn is_of_number(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.')
}

/// The line that the bytes start with, and where the next begins, if it is all there and has neither a quote nor a lone
/// CR.
#[inline]
fn plain_line(chunk: &[u8], max_row_bytes: usize) -> Option<(&[u8], usize)> {
    let end = memchr::memchr3(b'\n', b'"', b'\r', chunk)?;
    let line = chunk.get(..end)?;
    let next = match chunk.get(end..)? {
        [b'\n', ..] => end + 1,
        [b'\r', b'\n', ..] => end + 2,
        _ => return None,
    };
    (end <= max_row_bytes).then_some((line, next))
}

/// Line ends of a row; CRLF is one.
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

    /// What the csv crate makes of it.
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
            // An open quote before it is within reach of swallowing it, and is then what the error tells of.
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
