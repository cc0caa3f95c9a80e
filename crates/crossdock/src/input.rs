//! The input of `publish`: a file or standard input, plain or gzip, in an encoding that is guessed where it is not said, with
//! a schema that is inferred where there is none.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, IsTerminal, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use crossdock_format::Format;
use crossdock_format::csv::{CsvProblem, InferOptions, infer_csv_sample};
use crossdock_format::encoding::parquet::{ParquetDecoder, ReadAt};
use crossdock_format::encoding::{self, Decoder, Encoding, EncodingError, EncodingOptions, EncodingProblem, Schema};
use crossdock_format::json::{JsonInferOptions, JsonProblem, infer_json_sample};
use flate2::bufread::MultiGzDecoder;
use indicatif::ProgressBar;
use rustix::event::{PollFd, PollFlags, poll};

use crate::failure::{Failure, Outcome};
use crate::out;
use crate::quantity::count;
use crate::signals::Interrupt;

/// Bytes read at a time: rows that cross from one buffer to the next are rare, and system calls few.
const BUFFER_BYTES: usize = 256 << 10;
/// Rows that a schema is inferred from.
const SAMPLE_ROWS: usize = 1000;
/// Lines that a row of a JSON document is taken to have.
const LINES_PER_ROW: usize = 20;
/// Bytes that a schema is inferred from, where rows are so long that there are fewer of them.
const SAMPLE_BYTES: usize = 4 << 20;

/// How far the length of a line is counted that is too long for an inferred schema.
const COUNTED_BYTES: u64 = 64 << 20;

/// Longest header in which a delimiter is looked for.
const MAX_HEADER_BYTES: usize = 1 << 20;
/// The characters that separate the values of CSV, the likeliest first.
const DELIMITERS: [u8; 4] = [b';', b'\t', b'|', b','];

/// How what gzip has packed starts.
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// How inputs start that are surely in an encoding.
const MAGIC: [(&[u8], Encoding); 4] = [
    (b"PAR1", Encoding::Parquet),
    (b"ARROW1", Encoding::ArrowFile),
    (b"\xff\xff\xff\xff", Encoding::ArrowStream),
    (b"Obj\x01", Encoding::AvroFile),
];

/// An input, uncompressed.
pub(crate) struct Input {
    /// The file's name, or that it is standard input.
    pub(crate) name: String,
    reader: Box<dyn BufRead>,
    /// The file itself, where it can be read at any place and is not packed.
    file: Option<File>,
}

impl Input {
    /// Opens a file, or standard input for none and for `-`. Bytes read, before they are unpacked, show on `progress`. A signal ends
    /// the input with an error, also while it waits for more.
    pub(crate) fn open(path: Option<&Path>, interrupt: &Interrupt, progress: &ProgressBar) -> Outcome<Input> {
        let path = path.filter(|path| *path != Path::new("-"));
        let name = path.map_or_else(|| "standard input".to_owned(), |path| path.display().to_string());
        let cannot = |error: io::Error| Failure::failed(format!("cannot read {name}: {error}"));
        let mut whole = None;
        let source: Box<dyn ReadableFd> = match path {
            Some(path) => {
                let file = File::open(path).map_err(cannot)?;
                let metadata = file.metadata().map_err(cannot)?;
                if metadata.is_dir() {
                    return Err(Failure::failed(format!("cannot read {name}: it is a directory")));
                }
                if metadata.is_file() {
                    progress.set_length(metadata.len());
                    whole = Some(file.try_clone().map_err(cannot)?);
                }
                Box::new(file)
            }
            None => {
                if io::stdin().is_terminal() {
                    out::say("reading rows from the terminal; Ctrl-D ends them");
                }
                Box::new(io::stdin())
            }
        };
        let source = Interruptible { source, interrupt: interrupt.clone() };
        let mut plain = BufReader::with_capacity(BUFFER_BYTES, progress.wrap_read(source));
        let is_gzip = plain.fill_buf().map_err(cannot)?.starts_with(&GZIP);
        Ok(Input::of(name, plain, is_gzip, whole))
    }

    /// Opens a file to look at how it begins.
    pub(crate) fn peek(path: &Path) -> Outcome<Input> {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|error| cannot_read(&name, &error))?;
        let whole = file.try_clone().map_err(|error| cannot_read(&name, &error))?;
        let mut plain = BufReader::with_capacity(BUFFER_BYTES, file);
        let is_gzip = plain.fill_buf().map_err(|error| cannot_read(&name, &error))?.starts_with(&GZIP);
        Ok(Input::of(name, plain, is_gzip, Some(whole)))
    }

    fn of(name: String, plain: impl BufRead + 'static, is_gzip: bool, whole: Option<File>) -> Input {
        let reader: Box<dyn BufRead> = match is_gzip {
            true => Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(plain))),
            false => Box::new(plain),
        };
        Input { name, reader, file: whole.filter(|_| !is_gzip) }
    }

    /// The encoding by the name's ending, else by how the input starts; what looks like nothing else is taken for CSV.
    pub(crate) fn guess_encoding(&mut self) -> Outcome<Encoding> {
        if let Some(encoding) = Encoding::of_name(&self.name) {
            return Ok(encoding);
        }
        let start = self.reader.fill_buf().map_err(|error| cannot_read(&self.name, &error))?;
        let magic = MAGIC.iter().find(|(bytes, _)| start.starts_with(bytes));
        let first = start.iter().find(|byte| !byte.is_ascii_whitespace());
        Ok(match (magic, first) {
            (Some((_, encoding)), _) => *encoding,
            (None, Some(b'{')) => Encoding::Json,
            (None, Some(b'[')) if is_array(start) => Encoding::Json,
            (None, Some(b'<')) => Encoding::Xml,
            (None, _) => Encoding::Csv,
        })
    }

    /// Infers the format of CSV or, without options for that, of JSON from the first rows, which stay to be read.
    pub(crate) fn infer(&mut self, csv: Option<&EncodingOptions>) -> Outcome<Format> {
        let (sample, whole) = self.peek_rows(csv.is_none()).map_err(|error| cannot_read(&self.name, &error))?;
        // The sample proves nothing about nulls further down.
        let format = match csv {
            Some(options) => {
                let no_header = !options.csv_header;
                let infer = InferOptions { all_nullable: true, no_header, ..InferOptions::default() };
                infer_csv_sample(&sample, whole, &options.csv, &infer).map_err(|error| error.to_string())
            }
            None => {
                let infer = JsonInferOptions { all_nullable: true };
                infer_json_sample(&sample, whole, &infer).map_err(|error| error.to_string())
            }
        };
        if format.is_err() && !whole && sample.iter().filter(|byte| **byte == b'\n').count() == 0 {
            return Err(self.no_row(&sample, csv));
        }
        let format = format.map_err(|error| Failure::failed(format!("{}: {error}", self.name)));
        let rest = std::mem::replace(&mut self.reader, Box::new(io::empty()));
        self.reader = Box::new(Cursor::new(sample).chain(rest));
        format
    }

    /// The failure for an input whose first row is longer than what a schema is inferred from; it is JSON without options for CSV.
    fn no_row(&mut self, sample: &[u8], csv: Option<&EncodingOptions>) -> Failure {
        let name = &self.name;
        let looked = count(sample.len() as u64);
        if csv.is_none() && sample.trim_ascii_start().first() == Some(&b'[') {
            return Failure::failed(format!("{name}: found no whole object in the first {looked} bytes of the array"))
                .hint("name a schema with --schema");
        }
        let (mut found, mut is_end) = (sample.len() as u64, false);
        while !is_end && found <= COUNTED_BYTES {
            let length = match self.reader.fill_buf() {
                Ok(chunk) => {
                    let end = chunk.iter().position(|byte| *byte == b'\n');
                    is_end = end.is_some() || chunk.is_empty();
                    end.unwrap_or(chunk.len())
                }
                Err(error) => return cannot_read(name, &error),
            };
            found += length as u64;
            self.reader.consume(length);
        }
        let found = if is_end { count(found) } else { format!("more than {}", count(COUNTED_BYTES)) };
        let failure = Failure::failed(format!(
            "{name}: line 1 has {found} bytes, and a schema is inferred from the first {looked} bytes of an input"
        ));
        match csv {
            Some(options) => failure.hint(format!(
                "a CSV row may have {} bytes at most: spread the data of a longer one over several; --delimiter sets the \
                 separator of values, and --input another encoding",
                count(options.csv.max_row_bytes as u64)
            )),
            None => failure.hint(format!(
                "name a schema with --schema; a JSON object may have {} bytes at most: spread the data of a longer one over \
                 several",
                count(EncodingOptions::default().max_item_bytes as u64)
            )),
        }
    }

    /// The character that separates the names of a CSV header, where `delimiter` does not: `;`, a tab, `|` or a comma,
    /// whichever stands in it most often outside of quotes. `is_field` says whether a name is known to be a field's. The header
    /// stays to be read.
    pub(crate) fn find_delimiter(&mut self, delimiter: u8, is_field: impl Fn(&str) -> bool) -> Outcome<Option<u8>> {
        let Header { start, line, plain } =
            self.read_header(delimiter).map_err(|error| cannot_read(&self.name, &error))?;
        let header = start.get(line..).unwrap_or_default();
        let number_of = |wanted: u8| plain.iter().filter(|byte| **byte == wanted).count();
        let is_one_name = |header: &[u8]| str::from_utf8(header.trim_ascii()).is_ok_and(is_field);
        let found = match number_of(delimiter) == 0 && !is_one_name(header) {
            true => DELIMITERS.into_iter().rev().map(|byte| (number_of(byte), byte)).max_by_key(|(number, _)| *number),
            false => None,
        };
        let rest = std::mem::replace(&mut self.reader, Box::new(io::empty()));
        self.reader = Box::new(Cursor::new(start).chain(rest));
        Ok(found.filter(|(number, _)| *number > 0).map(|(_, byte)| byte))
    }

    /// Reads up to the end of the header: the first line that is not blank. A line ends where CSV has it, outside of quotes.
    fn read_header(&mut self, delimiter: u8) -> io::Result<Header> {
        let mut header = Header { start: Vec::new(), line: 0, plain: Vec::new() };
        let (mut in_quotes, mut before) = (false, b'\n');
        loop {
            let most = MAX_HEADER_BYTES - header.start.len();
            let chunk = self.reader.fill_buf()?;
            if chunk.is_empty() || most == 0 {
                return Ok(header);
            }
            let (mut taken, mut is_end) = (0, false);
            for &byte in chunk.iter().take(most) {
                let line = header.start.get(header.line..).unwrap_or_default();
                // A quote within a value that has none at its start is a character like any other.
                let is_after_separator = before == delimiter || DELIMITERS.contains(&before);
                let may_open = is_after_separator || before == b'"' || matches!(line, b"" | b"\xef\xbb\xbf");
                match byte {
                    b'"' if in_quotes || may_open => in_quotes = !in_quotes,
                    b'\r' | b'\n' if !in_quotes => is_end = !line.trim_ascii().is_empty(),
                    _ if !in_quotes => header.plain.push(byte),
                    _ => {}
                }
                taken += 1;
                header.start.push(byte);
                before = byte;
                if is_end {
                    break;
                }
                if matches!(byte, b'\r' | b'\n') && !in_quotes {
                    header.line = header.start.len();
                    header.plain.clear();
                }
            }
            self.reader.consume(taken);
            if is_end {
                return Ok(header);
            }
        }
    }

    /// The header and the first rows, and whether that is all.
    fn peek_rows(&mut self, is_json: bool) -> io::Result<(Vec<u8>, bool)> {
        let mut sample = Vec::new();
        let (mut lines, mut most_lines) = (0, SAMPLE_ROWS);
        while lines <= most_lines && sample.len() < SAMPLE_BYTES {
            let most = (SAMPLE_BYTES - sample.len()) as u64;
            if self.reader.by_ref().take(most).read_until(b'\n', &mut sample)? == 0 {
                return Ok((sample, true));
            }
            // Of an array, and of an object over several lines, a line is only a part of a row.
            let is_part = |line: &[u8]| matches!(line, [b'[', ..] | [b'{', .., b'{' | b'[' | b':' | b','] | b"{");
            if is_json && lines == 0 && is_part(sample.trim_ascii()) {
                most_lines *= LINES_PER_ROW;
            }
            lines += 1;
        }
        let whole = self.reader.fill_buf()?.is_empty();
        Ok((sample, whole))
    }
}

/// A header of CSV.
struct Header {
    /// The start of the input: it, and blank lines before it.
    start: Vec<u8>,
    /// Where it begins in that.
    line: usize,
    /// The part of it that is outside of quotes.
    plain: Vec<u8>,
}

/// Whether a text that starts with `[` is an array of objects rather than CSV, whose first column may be called so.
fn is_array(start: &[u8]) -> bool {
    let mut words = start.iter().filter(|byte| !byte.is_ascii_whitespace()).skip(1);
    words.next().is_none_or(|byte| matches!(byte, b'{' | b'[' | b']'))
}

fn cannot_read(name: &str, error: &io::Error) -> Failure {
    Failure::failed(format!("cannot read {name}: {error}"))
}

/// Makes records of an input's rows.
pub(crate) struct Rows {
    reader: Box<dyn BufRead>,
    decoder: Box<dyn Decoder>,
    /// The first row, if it was read ahead.
    ahead: Option<Result<Option<Vec<u8>>, RowError>>,
    /// The row that was read ahead, once it is given out.
    first: Vec<u8>,
}

/// The error of a row.
pub(crate) struct RowError {
    /// Line, column, what was found and what was expected.
    pub(crate) text: String,
    /// Whether the rows after it can be read.
    pub(crate) is_row: bool,
    /// Whether it is longer than a row may be.
    pub(crate) is_too_long: bool,
}

impl Rows {
    /// Rows of this format; what stands before them (a header) is read now.
    pub(crate) fn new(
        input: Input,
        encoding: Encoding,
        format: &Format,
        schema: Option<&Schema>,
        options: &EncodingOptions,
    ) -> Outcome<Rows> {
        let Input { name, mut reader, file } = input;
        if let (Encoding::Parquet, Some(file)) = (encoding, file) {
            let (_, decoder) = open_parquet(&name, file, Some(format), options)?;
            return Ok(Rows { reader, decoder, ahead: None, first: Vec::new() });
        }
        let decoder = encoding::decoder(encoding, format, schema, options);
        let mut decoder = decoder.map_err(|error| Failure::usage(format!("{name}: {error}")))?;
        let started = decoder.start(&mut reader);
        started.map_err(|error| Failure::failed(format!("{name}: {}", RowError::from(error).text)))?;
        Ok(Rows { reader, decoder, ahead: None, first: Vec::new() })
    }

    /// Rows of the format that the input itself says.
    pub(crate) fn open(input: Input, encoding: Encoding, options: &EncodingOptions) -> Outcome<(Format, Rows)> {
        let Input { name, mut reader, file } = input;
        if let (Encoding::Parquet, Some(file)) = (encoding, file) {
            let (format, decoder) = open_parquet(&name, file, None, options)?;
            return Ok((format, Rows { reader, decoder, ahead: None, first: Vec::new() }));
        }
        let opened = encoding::open(encoding, &mut reader, options);
        let (format, decoder) =
            opened.map_err(|error| Failure::failed(format!("{name}: {}", RowError::from(error).text)))?;
        Ok((format, Rows { reader, decoder, ahead: None, first: Vec::new() }))
    }

    /// Reads the first row, which stays to be given out: whether it is one, or there is none.
    pub(crate) fn read_ahead(&mut self) -> Result<(), &RowError> {
        let first = self.decoder.next_record(&mut self.reader);
        let first = first.map(|row| row.map(<[u8]>::to_vec)).map_err(RowError::from);
        self.ahead.insert(first).as_ref().map(drop)
    }

    /// The next row as a record; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>, RowError> {
        if let Some(ahead) = self.ahead.take() {
            let Some(first) = ahead? else { return Ok(None) };
            self.first = first;
            return Ok(Some(&self.first));
        }
        self.decoder.next_record(&mut self.reader).map_err(RowError::from)
    }
}

/// A Parquet file is read from its end: from the file itself, which then need not be held whole.
fn open_parquet(
    name: &str,
    file: File,
    format: Option<&Format>,
    options: &EncodingOptions,
) -> Outcome<(Format, Box<dyn Decoder>)> {
    let opened = ParquetDecoder::open(Arc::new(FileAt(file)), format, options);
    let (format, decoder) =
        opened.map_err(|error| Failure::failed(format!("{name}: {}", RowError::from(error).text)))?;
    Ok((format, Box::new(decoder)))
}

/// A file that is read at any place.
struct FileAt(File);

impl ReadAt for FileAt {
    fn length(&self) -> u64 {
        self.0.metadata().map_or(0, |metadata| metadata.len())
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        FileExt::read_at(&self.0, buffer, at)
    }
}

impl From<EncodingError> for RowError {
    fn from(error: EncodingError) -> RowError {
        let text = match &error.problem {
            EncodingProblem::Io(why) => format!("cannot read it: {why}"),
            _ => error.to_string(),
        };
        let is_too_long = match &error.problem {
            EncodingProblem::Json(error) => matches!(error.problem, JsonProblem::LineTooLong { .. }),
            EncodingProblem::Csv(error) => matches!(error.problem, CsvProblem::RowTooLong { .. }),
            problem => matches!(problem, EncodingProblem::TooLong { .. }),
        };
        RowError { text, is_row: error.is_item(), is_too_long }
    }
}

/// Something to read that can be waited for.
trait ReadableFd: Read + AsFd {}
impl<T: Read + AsFd> ReadableFd for T {}

/// Waits for input and for a signal at once: a blocking read alone would go on after a signal.
pub(crate) struct Interruptible {
    source: Box<dyn ReadableFd>,
    interrupt: Interrupt,
}

impl Interruptible {
    /// A file, or standard input.
    pub(crate) fn open(path: Option<&Path>, interrupt: &Interrupt) -> io::Result<Interruptible> {
        let source: Box<dyn ReadableFd> = match path {
            Some(path) => {
                let file = File::open(path)?;
                if file.metadata()?.is_dir() {
                    return Err(io::Error::other("it is a directory"));
                }
                Box::new(file)
            }
            None => Box::new(io::stdin()),
        };
        Ok(Interruptible { source, interrupt: interrupt.clone() })
    }
}

impl Read for Interruptible {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let interrupted = || io::Error::other("interrupted");
        wait_readable(self.source.as_fd(), self.interrupt.fd())?;
        if self.interrupt.caught().is_some() {
            return Err(interrupted());
        }
        self.source.read(buffer)
    }
}

/// Sleeps until one of the two is readable, or at its end.
pub(crate) fn wait_readable(source: BorrowedFd<'_>, interrupt: BorrowedFd<'_>) -> io::Result<()> {
    let mut fds = [PollFd::from_borrowed_fd(source, PollFlags::IN), PollFd::from_borrowed_fd(interrupt, PollFlags::IN)];
    loop {
        match poll(&mut fds, None) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
