//! Parquet files in and out, by way of Arrow's columns: types, metadata and values are as with
//! [`arrow`](super::arrow), and what Crossdock wrote has exactly its format back.
//!
//! A Parquet file says at its end what is in it, so that it is not read from the front: [`ParquetDecoder::open`] takes
//! anything that can be read at any place ([`ReadAt`]) and holds a batch and a page a column. From a mere stream, the
//! whole file is gathered first, up to [`MAX_GATHERED_BYTES`].
//!
//! Files are written with Snappy, in groups of at most [`GROUP_ROWS`] records or about [`GROUP_BYTES`]; read with
//! Snappy, LZ4, gzip, Zstandard or nothing. Brotli is refused: a library that nothing else needs.
//!
//! The headers of a group's pages are looked at before the library reads them, so that none has it make room for more
//! than [`EncodingOptions::max_block_bytes`](super::EncodingOptions::max_block_bytes); where a page says how many lengths of texts
//! it has, that is held against the number of its values. So is the schema: the library makes a tree of it by recursion: it may
//! nest [`MAX_NESTING`](crate::MAX_NESTING) levels deep. Should the library panic over damaged bytes, that ends in an error like
//! any other.

mod decode;
mod encode;
mod lengths;
mod nesting;
mod pages;
mod thrift;
mod unpacked;

use std::io;

pub use decode::ParquetDecoder;
pub use encode::ParquetEncoder;

/// Most records of a row group that is written.
pub const GROUP_ROWS: usize = 1 << 17;
/// Bytes after which a row group is ended, about.
pub const GROUP_BYTES: usize = 16 << 20;
/// Longest file that is gathered from a stream, in bytes.
pub const MAX_GATHERED_BYTES: usize = 1 << 30;

/// Something that can be read at any place, such as a file.
pub trait ReadAt: Send + Sync {
    /// Its length in bytes.
    fn length(&self) -> u64;

    /// Reads from this place on, as much as there is room or is there at once; 0 at the end.
    ///
    /// # Errors
    /// It cannot be read.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize>;
}

impl ReadAt for Vec<u8> {
    fn length(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let rest = usize::try_from(at).ok().and_then(|at| self.get(at..)).unwrap_or_default();
        let taken = rest.len().min(buffer.len());
        buffer[..taken].copy_from_slice(&rest[..taken]);
        Ok(taken)
    }
}
