//! Elements to records.

use std::borrow::Cow;
use std::io::{self, BufRead, Read};

use quick_xml::Error as XmlError;
use quick_xml::events::Event;
use quick_xml::events::attributes::AttrError;
use quick_xml::reader::Reader;

use super::tape::Tape;
use super::tokens::XmlTokens;
use crate::encoding::{Decoder, EncodingError, EncodingOptions, EncodingProblem, Loss};
use crate::format::Format;
use crate::nesting::{MAX_NESTING, TOO_DEEP};
use crate::text::{self, Rounding};
use crate::tokens::{Rules, TokenDecoder};

/// Reads records of one format from XML documents. Apart from two small allocations of the parser a record, it makes none
/// once its buffers have grown.
#[derive(Debug)]
pub struct XmlDecoder {
    around: Around,
    decoder: TokenDecoder,
    /// The record that was read last.
    tape: Tape,
    /// The last text with elements in between.
    gathered: Vec<u8>,
    ignore_unknown: bool,
    max_item_bytes: usize,
    /// Records so far, with those that were wrong.
    items: u64,
    /// Bytes of the input before those of the present reader.
    at: u64,
    buffer: Vec<u8>,
}

/// U+FEFF in UTF-8.
const BYTE_ORDER_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];

/// The text around the records.
#[derive(Debug)]
struct Around {
    /// Name of the elements that are records; `None` for the children of the root.
    element: Option<String>,
    /// Names of the elements that are open.
    open: Vec<String>,
    /// Whether there has been any.
    started: bool,
}

/// Why the input cannot be read on.
pub(super) enum Flaw {
    /// It is no XML, or not such as is read here.
    Syntax(String),
    /// It ends too early.
    Cut,
    /// The parser says so, or the reader.
    Xml(XmlError),
}

impl From<XmlError> for Flaw {
    fn from(error: XmlError) -> Self {
        Self::Xml(error)
    }
}

impl XmlDecoder {
    /// A decoder to records of this format.
    #[must_use]
    pub fn new(format: &Format, options: &EncodingOptions) -> Self {
        let rules = Rules {
            ignore_unknown: options.ignore_unknown,
            // Text that is no UTF-8 does not come this far.
            repairs_text: false,
            rounding: Rounding::of(options.allows(Loss::Rounding)),
            null_words: Vec::new(),
        };
        Self {
            around: Around { element: options.xml_element.clone(), open: Vec::new(), started: false },
            decoder: TokenDecoder::new(format, rules, Tape::written),
            tape: Tape::default(),
            gathered: Vec::new(),
            ignore_unknown: options.ignore_unknown,
            max_item_bytes: options.max_item_bytes,
            items: 0,
            at: 0,
            buffer: Vec::new(),
        }
    }

    /// Reads up to the end of the next record's element; false at the input's end.
    fn read(&mut self, input: &mut dyn BufRead) -> Result<bool, EncodingError> {
        let most = self.max_item_bytes;
        if self.at == 0 {
            self.at = skip_byte_order_mark(input).map_err(|error| EncodingError::new(EncodingProblem::Io(error)))?;
        }
        let mut reader = Reader::from_reader(Bounded { input, left: most, is_begun: false });
        // The ends of elements around the record are not this reader's to match.
        reader.config_mut().allow_unmatched_ends = true;
        let Self { around, tape, buffer, .. } = self;
        let outcome = around.find_record(tape, &mut reader, buffer, most).and_then(|found| {
            if found {
                tape.read(&mut reader, buffer, MAX_NESTING.saturating_sub(around.open.len()))?;
            }
            Ok(found)
        });
        let at = self.at + reader.buffer_position();
        self.at = at;
        outcome.map_err(|flaw| {
            let problem = match flaw {
                Flaw::Xml(XmlError::Io(_)) if reader.get_ref().left == 0 => {
                    EncodingProblem::TooLong { found: most as u64 + 1, most }
                }
                Flaw::Xml(XmlError::Io(error)) => EncodingProblem::Io(io::Error::new(error.kind(), error)),
                Flaw::Xml(error) => EncodingProblem::Syntax { message: error.to_string() },
                Flaw::Syntax(message) => EncodingProblem::Syntax { message },
                Flaw::Cut => EncodingProblem::Cut,
            };
            EncodingError { item: self.items + 1, at: Some(at), ..EncodingError::new(problem) }
        })
    }
}

impl Decoder for XmlDecoder {
    fn next_record(&mut self, input: &mut dyn BufRead) -> Result<Option<&[u8]>, EncodingError> {
        if !self.read(input)? {
            return Ok(None);
        }
        self.items += 1;
        let (item, at) = (self.items, Some(self.at));
        let mut tokens = XmlTokens::new(&self.tape, self.ignore_unknown, &mut self.gathered);
        let outcome = match self.decoder.item(&mut tokens) {
            Ok(()) => self.decoder.finish().map_err(EncodingError::from),
            Err(stop) => Err(stop.into()),
        };
        outcome.map(Some).map_err(|error| EncodingError { item, at, ..error })
    }

    fn restart(&mut self) {
        self.around.open.clear();
        self.around.started = false;
        self.items = 0;
        self.at = 0;
    }
}

impl Around {
    /// Reads up to the start of the next record, with which `tape` begins then; false at the input's end.
    fn find_record(
        &mut self,
        tape: &mut Tape,
        reader: &mut Reader<Bounded<'_>>,
        buffer: &mut Vec<u8>,
        most: usize,
    ) -> Result<bool, Flaw> {
        loop {
            buffer.clear();
            reader.get_mut().left = most;
            match reader.read_event_into(buffer)? {
                Event::Start(tag) if self.is_record(tag.name().as_ref()) => {
                    self.started = true;
                    tape.begin(&tag)?;
                    return Ok(true);
                }
                Event::Empty(tag) if self.is_record(tag.name().as_ref()) => {
                    self.started = true;
                    tape.begin(&tag)?;
                    tape.end();
                    return Ok(true);
                }
                Event::Start(tag) => self.enter(tag.name().as_ref())?,
                Event::Empty(_) => self.started = true,
                Event::End(tag) => self.leave(tag.name().as_ref())?,
                Event::Text(text) if is_blank(text.as_bytes()) => {}
                Event::Text(_) | Event::CData(_) | Event::GeneralRef(_) => self.text()?,
                Event::Decl(declaration) => check_declaration(declaration.encoding())?,
                Event::DocType(_) => {
                    let message = "found a document type declaration, which is not read; take it out of the input";
                    return Err(Flaw::Syntax(message.to_owned()));
                }
                Event::PI(_) | Event::Comment(_) => {}
                Event::Eof if !self.started => {
                    return Err(Flaw::Syntax("found nothing, expected an XML document".to_owned()));
                }
                Event::Eof if self.open.is_empty() => return Ok(false),
                Event::Eof => return Err(Flaw::Cut),
            }
        }
    }

    fn is_record(&self, name: &str) -> bool {
        match &self.element {
            Some(element) => name == element || local(name.as_bytes()) == element.as_bytes(),
            None => self.open.len() == 1,
        }
    }

    fn enter(&mut self, name: &str) -> Result<(), Flaw> {
        if self.open.len() >= MAX_NESTING {
            return Err(too_deep());
        }
        self.started = true;
        self.open.push(name.to_owned());
        Ok(())
    }

    fn leave(&mut self, name: &str) -> Result<(), Flaw> {
        match self.open.pop() {
            Some(open) if open == name => Ok(()),
            open => {
                let expected = open.map_or("an element's start".to_owned(), |open| format!("</{open}>"));
                let found = text::shorten(name.as_bytes());
                Err(Flaw::Syntax(format!("found </{found}>, expected {expected}")))
            }
        }
    }

    /// Text is fine where elements other than records are looked into.
    fn text(&self) -> Result<(), Flaw> {
        match (&self.element, self.open.len()) {
            (Some(_), 1..) => Ok(()),
            _ => Err(Flaw::Syntax("found text between records, expected an element".to_owned())),
        }
    }
}

/// Skips a byte order mark, in however many pieces it comes; how many bytes there were of it. Input that is only its
/// beginning is not text, and what follows it no document.
fn skip_byte_order_mark(input: &mut dyn BufRead) -> io::Result<u64> {
    let mut skipped = 0;
    for byte in BYTE_ORDER_MARK {
        let available = loop {
            match input.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        if available.first() != Some(&byte) {
            break;
        }
        input.consume(1);
        skipped += 1;
    }
    if skipped == 0 || skipped == BYTE_ORDER_MARK.len() as u64 {
        return Ok(skipped);
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "the input begins with a byte order mark that is cut short"))
}

/// A name without its prefix.
pub(super) fn local(name: &[u8]) -> &[u8] {
    name.rsplit(|byte| *byte == b':').next().unwrap_or(name)
}

pub(super) fn is_blank(text: &[u8]) -> bool {
    text.iter().all(u8::is_ascii_whitespace)
}

pub(super) fn too_deep() -> Flaw {
    Flaw::Syntax(format!("found {TOO_DEEP}"))
}

/// Only UTF-8 is read; ASCII is a part of it.
fn check_declaration(encoding: Option<Result<Cow<'_, str>, AttrError>>) -> Result<(), Flaw> {
    let Some(encoding) = encoding else { return Ok(()) };
    let encoding = encoding.map_err(XmlError::from)?;
    match ["utf-8", "utf8", "us-ascii", "ascii"].iter().any(|known| encoding.eq_ignore_ascii_case(known)) {
        true => Ok(()),
        false => {
            let found = text::shorten(encoding.as_bytes());
            Err(Flaw::Syntax(format!("found the character encoding `{found}`, expected UTF-8; convert the input")))
        }
    }
}

/// An input that fails when more than `left` bytes are taken.
pub(super) struct Bounded<'a> {
    input: &'a mut dyn BufRead,
    left: usize,
    /// The parser has looked for a byte order mark, which stands at the start of a document and not of each record: it is
    /// shown less than one has bytes.
    is_begun: bool,
}

impl Read for Bounded<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let taken = available.len().min(buffer.len());
        buffer[..taken].copy_from_slice(&available[..taken]);
        self.consume(taken);
        Ok(taken)
    }
}

impl BufRead for Bounded<'_> {
    #[inline]
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let available = self.input.fill_buf()?;
        if self.left == 0 && !available.is_empty() {
            return Err(io::Error::other("an item is too long"));
        }
        let most = if self.is_begun { self.left } else { self.left.min(BYTE_ORDER_MARK.len() - 1) };
        self.is_begun = true;
        Ok(&available[..available.len().min(most)])
    }

    #[inline]
    fn consume(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes);
        self.input.consume(bytes);
    }
}
