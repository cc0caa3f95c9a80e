//! Avro's object container files.

use std::io::{BufRead, Read as _};
use std::str::FromStr;

use ruzstd::encoding::{CompressionLevel, compress};
use sha2::{Digest, Sha256};

use super::decode::{Stop, Table};
use super::encode::{AvroEncoder, push_long};
use super::schema::AvroSchema;
use crate::encoding::reader::{ReadFlaw, Reader, unzigzag};
use crate::encoding::window::{Attempt, Window};
use crate::encoding::zstandard::unpack as unpack_zstandard;
use crate::encoding::{Decoder, Encoder, EncodingError, EncodingOptions, EncodingProblem};
use crate::format::Format;
use crate::record::Record;
use crate::text;

const MAGIC: &[u8; 4] = b"Obj\x01";
const SCHEMA_KEY: &[u8] = b"avro.schema";
const CODEC_KEY: &[u8] = b"avro.codec";
const SYNC_BYTES: usize = 16;
/// A block is written when it has this many bytes.
const BLOCK_BYTES: usize = 64 << 10;
/// Most entries that a file's header may have.
const MAX_ENTRIES: usize = 1 << 12;

/// How the blocks of a file are packed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AvroCodec {
    /// Not at all.
    #[default]
    Null,
    /// Deflate (RFC 1951).
    Deflate,
    /// Snappy, with a checksum behind it.
    Snappy,
    /// Zstandard.
    Zstandard,
}

impl AvroCodec {
    /// Its name in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Deflate => "deflate",
            Self::Snappy => "snappy",
            Self::Zstandard => "zstandard",
        }
    }
}

impl FromStr for AvroCodec {
    type Err = EncodingError;

    fn from_str(name: &str) -> Result<Self, EncodingError> {
        let known = [Self::Null, Self::Deflate, Self::Snappy, Self::Zstandard];
        known.into_iter().find(|codec| codec.name() == name).ok_or_else(|| {
            let name = text::shorten(name.as_bytes());
            EncodingError::schema(format!(
                "blocks are packed with `{name}`; known: null, deflate, snappy, zstandard. Have it written with one of \
                 these"
            ))
        })
    }
}

/// The header at a file's start.
#[derive(Clone, Debug)]
struct Header {
    schema: AvroSchema,
    codec: AvroCodec,
    sync: [u8; SYNC_BYTES],
}

/// Reads object container files, whose schema is in the file, into records of one format.
#[derive(Debug)]
pub struct AvroFileDecoder {
    /// `None` for that of the file's own schema.
    format: Format,
    options: EncodingOptions,
    window: Window,
    /// There once the header was read.
    body: Option<Body>,
}

#[derive(Debug)]
struct Body {
    codec: AvroCodec,
    sync: [u8; SYNC_BYTES],
    table: Table,
    /// The block that is being read, unpacked; how far; and how many datums it still has.
    block: Vec<u8>,
    at: usize,
    left: u64,
    /// Datums that there were.
    items: u64,
}

impl AvroFileDecoder {
    /// A decoder of a file into records of this format, which the file's schema must go with.
    #[must_use]
    pub fn new(format: &Format, options: &EncodingOptions) -> Self {
        Self { format: format.clone(), options: options.clone(), window: Window::default(), body: None }
    }

    /// Reads a file's header: the format of its records, and a decoder that goes on behind it.
    ///
    /// # Errors
    /// It is no such file; its schema is none, or no format; its codec is not known.
    pub fn open(input: &mut dyn BufRead, options: &EncodingOptions) -> Result<(Format, Self), EncodingError> {
        let mut window = Window::default();
        let header = read_header(&mut window, input, options)?;
        let format = header.schema.format()?;
        let body = Body::new(header, &format, options)?;
        Ok((format.clone(), Self { format, options: options.clone(), window, body: Some(body) }))
    }

    fn body(&mut self, input: &mut dyn BufRead) -> Result<(&mut Body, &mut Window), EncodingError> {
        let body = match self.body.take() {
            Some(body) => body,
            None => {
                let header = read_header(&mut self.window, input, &self.options)?;
                Body::new(header, &self.format, &self.options)?
            }
        };
        Ok((self.body.insert(body), &mut self.window))
    }
}

impl Decoder for AvroFileDecoder {
    fn start(&mut self, input: &mut dyn BufRead) -> Result<(), EncodingError> {
        self.body(input)?;
        Ok(())
    }

    fn next_record(&mut self, input: &mut dyn BufRead) -> Result<Option<&[u8]>, EncodingError> {
        let most = self.options.max_item_bytes;
        let (body, window) = self.body(input)?;
        while body.left == 0 {
            if body.at < body.block.len() {
                return Err(window.place(EncodingError::syntax("a block is longer than its datums")));
            }
            let (codec, sync, block) = (body.codec, body.sync, &mut body.block);
            match window.next(input, most, |bytes| read_block(bytes, codec, &sync, most, block))? {
                None => return Ok(None),
                Some(count) => (body.left, body.at) = (count, 0),
            }
        }
        body.left -= 1;
        body.items += 1;
        let items = body.items;
        let place = |error: EncodingError| EncodingError { item: items, ..window.place(error) };
        let bytes = body.block.get(body.at..).unwrap_or_default();
        let datum = match body.table.datum(bytes) {
            Ok(datum) => datum,
            Err(Stop::Cut) => return Err(place(EncodingError::syntax("a block is shorter than its datums"))),
            Err(stop) => return Err(place(stop.explain())),
        };
        body.at += datum.bytes;
        body.table.finish(datum).map(Some).map_err(place)
    }

    fn restart(&mut self) {
        self.window = Window::default();
        self.body = None;
    }
}

impl Body {
    fn new(header: Header, format: &Format, options: &EncodingOptions) -> Result<Self, EncodingError> {
        let Header { schema, codec, sync } = header;
        let table = Table::new(schema, format, options)?;
        Ok(Self { codec, sync, table, block: Vec::new(), at: 0, left: 0, items: 0 })
    }
}

fn read_header(
    window: &mut Window,
    input: &mut dyn BufRead,
    options: &EncodingOptions,
) -> Result<Header, EncodingError> {
    let header = window.next(input, options.max_item_bytes, |bytes| match header(bytes) {
        Ok((bytes, header)) => Ok(Attempt::Done { bytes, value: header? }),
        Err(ReadFlaw::Cut) => Ok(Attempt::Short { at_least: 0 }),
        Err(ReadFlaw::Varint) => Err(EncodingError::syntax("the header has a number of more than ten bytes")),
    })?;
    header.ok_or_else(|| EncodingError::new(EncodingProblem::Cut))
}

/// A header and its length in bytes; an error in the header is one within.
#[allow(clippy::type_complexity, reason = "both kinds of error are of this one function")]
fn header(bytes: &[u8]) -> Result<(usize, Result<Header, EncodingError>), ReadFlaw> {
    let wrong = |message: &str| Ok((0, Err(EncodingError::syntax(message))));
    let mut reader = Reader::new(bytes);
    let known = bytes.get(..MAGIC.len()).unwrap_or(bytes);
    if !MAGIC.starts_with(known) {
        return wrong("found no `Obj` and 1: this is no Avro object container file");
    }
    reader.fixed::<4>()?;
    let (mut schema, mut codec, mut entries) = (None, None, 0);
    loop {
        let count = unzigzag(reader.varint()?);
        if count == 0 {
            break;
        }
        if count < 0 {
            reader.varint()?;
        }
        for _ in 0..count.unsigned_abs() {
            entries += 1;
            if entries > MAX_ENTRIES {
                return wrong("the header has too many entries");
            }
            let mut part = || {
                let len = u64::try_from(unzigzag(reader.varint()?)).unwrap_or(u64::MAX);
                Ok(reader.take(len)?.bytes)
            };
            let (key, value) = (part()?, part()?);
            match key {
                SCHEMA_KEY => schema = Some(value),
                CODEC_KEY => codec = Some(value),
                _ => {}
            }
        }
    }
    let sync = reader.fixed()?;
    let read = || {
        let schema = schema.and_then(|schema| str::from_utf8(schema).ok());
        let schema = schema.ok_or_else(|| EncodingError::syntax("the header has no schema"))?;
        let codec = String::from_utf8_lossy(codec.unwrap_or(b"null"));
        Ok(Header { schema: AvroSchema::parse(schema)?, codec: codec.parse()?, sync })
    };
    Ok((bytes.len() - reader.left(), read()))
}

/// Reads a block and unpacks it into `block`; how many datums it has.
fn read_block(
    bytes: &[u8],
    codec: AvroCodec,
    sync: &[u8; SYNC_BYTES],
    most: usize,
    block: &mut Vec<u8>,
) -> Result<Attempt<u64>, EncodingError> {
    let mut reader = Reader::new(bytes);
    let mut number = || match reader.varint() {
        Ok(value) => Ok(Some(unzigzag(value))),
        Err(ReadFlaw::Cut) => Ok(None),
        Err(ReadFlaw::Varint) => Err(EncodingError::syntax("a block has a number of more than ten bytes")),
    };
    let (Some(count), Some(len)) = (number()?, number()?) else {
        return Ok(Attempt::Short { at_least: 0 });
    };
    let (Ok(count), Ok(len)) = (u64::try_from(count), u64::try_from(len)) else {
        return Err(EncodingError::syntax("a block has less than no datums or bytes"));
    };
    if len > most as u64 {
        return Err(EncodingError::new(EncodingProblem::TooLong { found: len, most }));
    }
    let head = bytes.len() - reader.left();
    let whole = head + len as usize + SYNC_BYTES;
    let (Ok(packed), Ok(found)) = (reader.take(len), reader.fixed::<SYNC_BYTES>()) else {
        return Ok(Attempt::Short { at_least: whole });
    };
    if found != *sync {
        return Err(EncodingError::syntax("the marker behind a block is not the file's"));
    }
    unpack(packed.bytes, codec, most, block)?;
    Ok(Attempt::Done { bytes: whole, value: count })
}

fn unpack(packed: &[u8], codec: AvroCodec, most: usize, block: &mut Vec<u8>) -> Result<(), EncodingError> {
    let wrong = |codec: &str| EncodingError::syntax(format!("a block that is no {codec}, or damaged"));
    let too_long = |found: usize| EncodingError::new(EncodingProblem::TooLong { found: found as u64, most });
    block.clear();
    match codec {
        AvroCodec::Null => block.extend_from_slice(packed),
        AvroCodec::Deflate => {
            let inflater = flate2::read::DeflateDecoder::new(packed);
            let bound = (most as u64).saturating_add(1);
            inflater.take(bound).read_to_end(block).map_err(|_| wrong("deflate"))?;
            if block.len() > most {
                return Err(too_long(block.len()));
            }
        }
        AvroCodec::Snappy => {
            let (packed, sum) = packed.split_last_chunk::<4>().ok_or_else(|| wrong("snappy"))?;
            let len = snap::raw::decompress_len(packed).map_err(|_| wrong("snappy"))?;
            if len > most {
                return Err(too_long(len));
            }
            block.resize(len, 0);
            let len = snap::raw::Decoder::new().decompress(packed, block).map_err(|_| wrong("snappy"))?;
            block.truncate(len);
            if crc32(block) != u32::from_be_bytes(*sum) {
                return Err(EncodingError::syntax("a block whose checksum is not its own"));
            }
        }
        AvroCodec::Zstandard => unpack_zstandard(packed, most, block)?,
    }
    Ok(())
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

/// Writes records of one format as an object container file.
///
/// Records are kept until a block of about 64 KiB is full, or until [`Encoder::finish`].
#[derive(Debug)]
pub struct AvroFileEncoder {
    encoder: AvroEncoder,
    codec: AvroCodec,
    sync: [u8; SYNC_BYTES],
    block: Vec<u8>,
    count: u64,
    packed: Vec<u8>,
    records: u64,
}

impl AvroFileEncoder {
    /// An encoder by this schema, as [`AvroEncoder::new`] makes it; blocks are not packed.
    ///
    /// # Errors
    /// As [`AvroEncoder::new`].
    pub fn new(format: &Format, options: &EncodingOptions, schema: Option<&AvroSchema>) -> Result<Self, EncodingError> {
        let encoder = AvroEncoder::new(format, options, schema)?;
        // Something that the blocks hardly have in them; the same for the same schema, so that files can be compared.
        let hash = Sha256::digest(encoder.schema.to_json().as_bytes());
        let mut sync = [0; SYNC_BYTES];
        sync.iter_mut().zip(hash.iter()).for_each(|(to, from)| *to = *from);
        let (block, packed) = (Vec::new(), Vec::new());
        Ok(Self { encoder, codec: AvroCodec::Null, sync, block, count: 0, packed, records: 0 })
    }

    /// The same encoder with blocks that are packed so.
    #[must_use]
    pub fn with_codec(self, codec: AvroCodec) -> Self {
        Self { codec, ..self }
    }

    fn flush(&mut self, out: &mut Vec<u8>) -> Result<(), EncodingError> {
        if self.count == 0 {
            return Ok(());
        }
        self.packed.clear();
        let failed = |error: std::io::Error| EncodingError::new(EncodingProblem::Io(error));
        match self.codec {
            AvroCodec::Null => {}
            AvroCodec::Deflate => {
                let level = flate2::Compression::default();
                flate2::read::DeflateEncoder::new(&self.block[..], level)
                    .read_to_end(&mut self.packed)
                    .map_err(failed)?;
            }
            AvroCodec::Snappy => {
                self.packed.resize(snap::raw::max_compress_len(self.block.len()), 0);
                let packed = snap::raw::Encoder::new().compress(&self.block, &mut self.packed);
                let len = packed.map_err(|error| EncodingError::schema(error.to_string()))?;
                self.packed.truncate(len);
                self.packed.extend_from_slice(&crc32(&self.block).to_be_bytes());
            }
            AvroCodec::Zstandard => compress(&self.block[..], &mut self.packed, CompressionLevel::Fastest),
        }
        let bytes = if self.codec == AvroCodec::Null { &self.block } else { &self.packed };
        push_long(out, self.count as i64);
        push_long(out, bytes.len() as i64);
        out.extend_from_slice(bytes);
        out.extend_from_slice(&self.sync);
        self.block.clear();
        self.count = 0;
        Ok(())
    }
}

impl Encoder for AvroFileEncoder {
    fn start(&mut self, out: &mut Vec<u8>) {
        self.block.clear();
        (self.count, self.records) = (0, 0);
        out.extend_from_slice(MAGIC);
        push_long(out, 2);
        let schema = self.encoder.schema.to_json().as_bytes();
        for (key, value) in [(SCHEMA_KEY, schema), (CODEC_KEY, self.codec.name().as_bytes())] {
            for part in [key, value] {
                push_long(out, part.len() as i64);
                out.extend_from_slice(part);
            }
        }
        push_long(out, 0);
        out.extend_from_slice(&self.sync);
    }

    fn record(&mut self, record: &Record<'_>, out: &mut Vec<u8>) -> Result<(), EncodingError> {
        self.records += 1;
        self.encoder.datum(record, &mut self.block).map_err(|error| error.of_item(self.records))?;
        self.count += 1;
        if self.block.len() >= BLOCK_BYTES {
            self.flush(out)?;
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), EncodingError> {
        self.flush(out)
    }
}
