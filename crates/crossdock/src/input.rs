//! What `publish` reads: a file or standard input, plain or gzip, in an encoding that is guessed where it is not said, with
//! a schema that is inferred where there is none.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, IsTerminal, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use crossdock_format::Format;
use crossdock_format::csv::{CsvDecoder, CsvError, CsvOptions, CsvProblem, InferOptions, infer_csv_sample};
use crossdock_format::json::{JsonDecoder, JsonError, JsonOptions, JsonProblem};
use flate2::bufread::MultiGzDecoder;
use indicatif::ProgressBar;
use rustix::event::{PollFd, PollFlags, poll};

use crate::cli::Encoding;
use crate::failure::{Failure, Outcome};
use crate::out;
use crate::signals::Interrupt;

/// Bytes read at a time: rows that cross from one buffer to the next are rare, and system calls few.
const BUFFER_BYTES: usize = 256 << 10;
/// Rows that a schema is inferred from.
const SAMPLE_ROWS: usize = 1000;
/// Bytes that a schema is inferred from, where rows are so long that there are fewer of them.
const SAMPLE_BYTES: usize = 4 << 20;

/// An input, uncompressed.
pub(crate) struct Input {
    /// The file's name, or that it is standard input.
    pub(crate) name: String,
    reader: Box<dyn BufRead>,
}

impl Input {
    /// Opens a file, or standard input for none and for `-`. Bytes read, before they are unpacked, show on `progress`. A signal ends
    /// the input with an error, also while it waits for more.
    pub(crate) fn open(path: Option<&Path>, interrupt: &Interrupt, progress: &ProgressBar) -> Outcome<Input> {
        let path = path.filter(|path| *path != Path::new("-"));
        let name = path.map_or_else(|| "standard input".to_owned(), |path| path.display().to_string());
        let cannot = |error: io::Error| Failure::failed(format!("cannot read {name}: {error}"));
        let source: Box<dyn Source> = match path {
            Some(path) => {
                let file = File::open(path).map_err(cannot)?;
                let metadata = file.metadata().map_err(cannot)?;
                if metadata.is_dir() {
                    return Err(Failure::failed(format!("cannot read {name}: it is a directory")));
                }
                if metadata.is_file() {
                    progress.set_length(metadata.len());
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
        let is_gzip = plain.fill_buf().map_err(cannot)?.starts_with(&[0x1f, 0x8b]);
        let reader: Box<dyn BufRead> = match is_gzip {
            true => Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(plain))),
            false => Box::new(plain),
        };
        Ok(Input { name, reader })
    }

    /// The encoding by the name's ending, else by the first byte that is no blank: JSON lines start with a brace.
    pub(crate) fn guess_encoding(&mut self) -> Outcome<Encoding> {
        let name = self.name.to_ascii_lowercase();
        let name = name.strip_suffix(".gz").unwrap_or(&name);
        let ends_in = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
        if ends_in(&[".json", ".jsonl", ".ndjson"]) {
            return Ok(Encoding::Json);
        }
        if ends_in(&[".csv", ".tsv"]) {
            return Ok(Encoding::Csv);
        }
        let start = self.reader.fill_buf().map_err(|error| cannot_read(&self.name, &error))?;
        let first = start.iter().find(|byte| !byte.is_ascii_whitespace());
        Ok(if first == Some(&b'{') { Encoding::Json } else { Encoding::Csv })
    }

    /// Infers a CSV input's format from its first rows, which stay to be read.
    pub(crate) fn infer_csv(&mut self, options: &CsvOptions) -> Outcome<Format> {
        let (sample, whole) = self.peek_rows().map_err(|error| cannot_read(&self.name, &error))?;
        // The sample proves nothing about nulls further down.
        let infer = InferOptions { all_nullable: true, ..InferOptions::default() };
        let format = infer_csv_sample(&sample, whole, options, &infer)
            .map_err(|error| Failure::failed(format!("{}: {error}", self.name)));
        let rest = std::mem::replace(&mut self.reader, Box::new(io::empty()));
        self.reader = Box::new(Cursor::new(sample).chain(rest));
        format
    }

    /// The header and the first rows, and whether that is all.
    fn peek_rows(&mut self) -> io::Result<(Vec<u8>, bool)> {
        let mut sample = Vec::new();
        for _ in 0..=SAMPLE_ROWS {
            if sample.len() >= SAMPLE_BYTES {
                break;
            }
            let most = (SAMPLE_BYTES - sample.len()) as u64;
            if self.reader.by_ref().take(most).read_until(b'\n', &mut sample)? == 0 {
                return Ok((sample, true));
            }
        }
        let whole = self.reader.fill_buf()?.is_empty();
        Ok((sample, whole))
    }
}

fn cannot_read(name: &str, error: &io::Error) -> Failure {
    Failure::failed(format!("cannot read {name}: {error}"))
}

/// Makes records of an input's rows.
pub(crate) struct Rows {
    reader: Box<dyn BufRead>,
    decoder: Decoder,
}

enum Decoder {
    Csv(Box<CsvDecoder>),
    Json(Box<JsonDecoder>),
}

/// What was wrong with a row.
pub(crate) struct RowError {
    /// Line, column, what was found and what was expected.
    pub(crate) text: String,
    /// Whether the rows after it can be read.
    pub(crate) is_row: bool,
}

impl Rows {
    /// Rows of this format; a CSV header is read now.
    pub(crate) fn new(input: Input, encoding: Encoding, format: &Format, csv: &CsvOptions) -> Outcome<Rows> {
        let Input { name, mut reader } = input;
        let decoder = match encoding {
            Encoding::Json => Decoder::Json(Box::new(JsonDecoder::new(format, &JsonOptions::default()))),
            Encoding::Csv => {
                let decoder = CsvDecoder::from_header(format, &mut reader, csv);
                Decoder::Csv(Box::new(decoder.map_err(|error| Failure::failed(format!("{name}: {error}")))?))
            }
        };
        Ok(Rows { reader, decoder })
    }

    /// The next row as a record; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>, RowError> {
        match &mut self.decoder {
            Decoder::Csv(decoder) => decoder.next_record(&mut self.reader).map_err(RowError::from),
            Decoder::Json(decoder) => decoder.next_record(&mut self.reader).map_err(RowError::from),
        }
    }
}

impl From<CsvError> for RowError {
    fn from(error: CsvError) -> RowError {
        let text = match &error.problem {
            CsvProblem::Io(why) => format!("cannot read it: {why}"),
            _ => error.to_string(),
        };
        RowError { text, is_row: error.is_row() }
    }
}

impl From<JsonError> for RowError {
    fn from(error: JsonError) -> RowError {
        let text = match &error.problem {
            JsonProblem::Io(why) => format!("cannot read it: {why}"),
            _ => error.to_string(),
        };
        RowError { text, is_row: error.is_row() }
    }
}

/// Something to read that can be waited for.
trait Source: Read + AsFd {}
impl<T: Read + AsFd> Source for T {}

/// Waits for input and for a signal at once: a blocking read alone would go on after a signal.
struct Interruptible {
    source: Box<dyn Source>,
    interrupt: Interrupt,
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
fn wait_readable(source: BorrowedFd<'_>, interrupt: BorrowedFd<'_>) -> io::Result<()> {
    let mut fds = [PollFd::from_borrowed_fd(source, PollFlags::IN), PollFd::from_borrowed_fd(interrupt, PollFlags::IN)];
    loop {
        match poll(&mut fds, None) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
