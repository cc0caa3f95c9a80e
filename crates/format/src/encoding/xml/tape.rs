//! A record's element, read to its end: before anything is made of it, it is known to be XML, and the next one can be read
//! whatever is wrong with it. It takes about as many bytes here as it has in the input.

use memchr::memchr;
use quick_xml::events::{BytesRef, BytesStart, Event};
use quick_xml::reader::Reader;
use quick_xml::{Error as XmlError, XmlVersion, escape};

use super::decode::{Bounded, Flaw, too_deep};
use crate::builder::ByteRun;
use crate::text;

// The byte that a piece begins with, and what ends a name or a text: bytes that UTF-8 does not have.
const ELEMENT: u8 = 0xf8;
const NIL: u8 = 0xf9;
const NOT_NIL: u8 = 0xfa;
const ATTRIBUTE: u8 = 0xfb;
const TEXT: u8 = 0xfc;
const END: u8 = 0xfd;
const STOP: u8 = 0xff;

/// The pieces of a record's element, one after the other; its buffer is used again for the next.
#[derive(Debug, Default)]
pub(super) struct Tape {
    bytes: Vec<u8>,
    /// How many elements are open.
    open: usize,
    /// Whether the last piece is a text, with which the next one goes together.
    is_in_text: bool,
}

/// A part of an element.
#[derive(Clone, Copy)]
pub(super) enum Piece<'a> {
    /// The start of an element, with what it says of itself by `xsi:nil`. Its attributes come next.
    Element {
        name: &'a [u8],
        nil: Option<bool>,
    },
    Attribute {
        name: &'a [u8],
        value: ByteRun<'a>,
    },
    /// All text up to the next element or end.
    Text(ByteRun<'a>),
    /// The end of an element.
    End,
}

/// The rest of a tape.
#[derive(Clone, Copy)]
pub(super) struct Pieces<'a> {
    rest: &'a [u8],
}

impl Tape {
    /// How a name is written, behind the byte that says what has it.
    pub(super) fn written(name: &str) -> Vec<u8> {
        [name.as_bytes(), &[STOP]].concat()
    }

    /// All pieces.
    pub(super) fn pieces(&self) -> Pieces<'_> {
        Pieces { rest: &self.bytes }
    }

    /// The start of a record's element. A record is there, whatever that says of itself.
    pub(super) fn begin(&mut self, tag: &BytesStart<'_>) -> Result<(), Flaw> {
        self.bytes.clear();
        self.open = 0;
        self.start(tag)?;
        if let Some(first) = self.bytes.first_mut() {
            *first = ELEMENT;
        }
        Ok(())
    }

    /// The end of the innermost element.
    pub(super) fn end(&mut self) {
        self.bytes.push(END);
        self.open = self.open.saturating_sub(1);
        self.is_in_text = false;
    }

    /// Reads what is left of the record that [`Tape::begin`] began.
    pub(super) fn read(
        &mut self,
        reader: &mut Reader<Bounded<'_>>,
        buffer: &mut Vec<u8>,
        most_deep: usize,
    ) -> Result<(), Flaw> {
        while self.open > 0 {
            buffer.clear();
            match reader.read_event_into(buffer)? {
                Event::Start(_) if self.open >= most_deep => return Err(too_deep()),
                Event::Start(tag) => self.start(&tag)?,
                Event::Empty(tag) => {
                    self.start(&tag)?;
                    self.end();
                }
                Event::End(_) => self.end(),
                Event::Text(text) => self.text(&text.xml10_content()),
                Event::CData(text) => self.text(&text.xml10_content()),
                Event::GeneralRef(reference) => self.reference(&reference)?,
                Event::PI(_) | Event::Comment(_) => {}
                Event::DocType(_) | Event::Decl(_) => {
                    return Err(Flaw::Syntax("found a declaration in the middle of a record".to_owned()));
                }
                Event::Eof => return Err(Flaw::Cut),
            }
        }
        Ok(())
    }

    /// The start of an element, with those attributes that may be fields.
    fn start(&mut self, tag: &BytesStart<'_>) -> Result<(), Flaw> {
        let start = self.bytes.len();
        self.bytes.push(ELEMENT);
        self.run(tag.name().as_ref());
        for attribute in tag.attributes() {
            let attribute = attribute.map_err(XmlError::from)?;
            let name: &str = attribute.key.as_ref();
            let prefix = name.split_once(':').map_or("", |(prefix, _)| prefix);
            if name == "xmlns" || prefix == "xmlns" {
                continue;
            }
            if name.ends_with(":nil") {
                let is_nil = matches!(attribute.value.trim(), "true" | "1");
                self.bytes[start] = if is_nil { NIL } else { NOT_NIL };
            } else if !matches!(prefix, "xml" | "xsi") {
                let value = attribute.normalized_value(XmlVersion::Implicit1_0)?;
                self.bytes.push(ATTRIBUTE);
                self.run(name);
                self.run(&value);
            }
        }
        self.open += 1;
        self.is_in_text = false;
        Ok(())
    }

    fn text(&mut self, text: &str) {
        if std::mem::replace(&mut self.is_in_text, true) {
            self.bytes.pop();
        } else {
            self.bytes.push(TEXT);
        }
        self.run(text);
    }

    fn run(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.push(STOP);
    }

    /// One of the five entities that XML has of its own, or a character by its number.
    fn reference(&mut self, reference: &BytesRef<'_>) -> Result<(), Flaw> {
        if let Some(c) = reference.resolve_char_ref()? {
            self.text(c.encode_utf8(&mut [0; 4]));
            return Ok(());
        }
        match escape::resolve_xml_entity(reference) {
            Some(text) => self.text(text),
            None => {
                let name = text::shorten(reference.as_bytes());
                let message =
                    format!("found the entity `&{name};`, expected one of amp, lt, gt, quot, apos, or a number");
                return Err(Flaw::Syntax(message));
            }
        }
        Ok(())
    }
}

impl<'a> Pieces<'a> {
    /// Takes the piece that comes next; behind the last one, there are ends without end.
    pub(super) fn next(&mut self) -> Piece<'a> {
        let Some((first, rest)) = self.rest.split_first() else { return Piece::End };
        self.rest = rest;
        match *first {
            ELEMENT => Piece::Element { name: self.run().bytes, nil: None },
            NIL => Piece::Element { name: self.run().bytes, nil: Some(true) },
            NOT_NIL => Piece::Element { name: self.run().bytes, nil: Some(false) },
            ATTRIBUTE => Piece::Attribute { name: self.run().bytes, value: self.run() },
            TEXT => Piece::Text(self.run()),
            _ => Piece::End,
        }
    }

    /// The piece that comes next, without taking it.
    pub(super) fn peek(mut self) -> Piece<'a> {
        self.next()
    }

    /// Passes over the piece that comes next, and over all of an element.
    pub(super) fn skip(&mut self) {
        if let Piece::Element { .. } = self.next() {
            self.skip_rest();
        }
    }

    /// Passes over what is left of an element whose start was taken.
    pub(super) fn skip_rest(&mut self) {
        let mut open = 1;
        while open > 0 && !self.rest.is_empty() {
            match self.next() {
                Piece::Element { .. } => open += 1,
                Piece::End => open -= 1,
                Piece::Attribute { .. } | Piece::Text(_) => {}
            }
        }
    }

    /// The name of an element or attribute that comes next, as [`Tape::written`] has it, and what is behind that.
    pub(super) fn written_name(&self) -> Option<&'a [u8]> {
        self.rest.split_first().filter(|(first, _)| **first != TEXT).map(|(_, name)| name)
    }

    /// How many bytes are left.
    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }

    /// The same when this number of bytes were left.
    pub(super) fn with_left(whole: &'a Tape, left: usize) -> Self {
        Self { rest: whole.bytes.get(whole.bytes.len().saturating_sub(left)..).unwrap_or_default() }
    }

    fn run(&mut self) -> ByteRun<'a> {
        let ahead = self.rest;
        let (bytes, behind) = ahead.split_at(memchr(STOP, ahead).unwrap_or(ahead.len()));
        self.rest = behind.get(1..).unwrap_or_default();
        ByteRun { bytes, ahead }
    }
}
