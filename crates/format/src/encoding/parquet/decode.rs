//! Files to records.

use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;

use bytes::Bytes;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::arrow::{ProjectionMask, parquet_to_arrow_field_levels};
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use parquet::file::reader::{ChunkReader, Length};

use super::pages::{self, Largest};
use super::{MAX_GATHERED_BYTES, ReadAt, lengths, nesting, unpacked};
use crate::encoding::arrow::{BatchReader, import};
use crate::encoding::guard::guarded;
use crate::encoding::{Decoder, EncodingError, EncodingOptions, EncodingProblem};
use crate::format::Format;
use crate::nesting::MAX_NESTING;

/// Most rows of a batch: what is held of a file at once, in columns.
const BATCH_ROWS: usize = 1024;
/// Bytes at a file's end: the length of its metadata, and four that say what it is.
const FOOT_BYTES: u64 = 8;
/// Bytes that are read at a time where a length is not known.
const CHUNK_BYTES: usize = 16 << 10;

/// Reads records of one format from a Parquet file.
pub struct ParquetDecoder {
    format: Format,
    options: EncodingOptions,
    /// There once the end of the file has been read.
    file: Option<OpenFile>,
}

/// A file whose metadata is known.
struct OpenFile {
    source: Chunks,
    metadata: ArrowReaderMetadata,
    rows: BatchReader,
    /// The row group that comes next.
    next_group: usize,
    /// The batches of the present one.
    group: Option<ParquetRecordBatchReader>,
}

impl ParquetDecoder {
    /// A decoder to records of this format, which the columns go into by their names.
    #[must_use]
    pub fn new(format: &Format, options: &EncodingOptions) -> Self {
        Self { format: format.clone(), options: options.clone(), file: None }
    }

    /// A decoder of a file, to records of this format, or else of the format that the file says. The input that it is
    /// given to read from as a [`Decoder`] is not looked at.
    ///
    /// # Errors
    /// It is no Parquet file, or its columns do not go into the format.
    pub fn open(
        source: Arc<dyn ReadAt>,
        format: Option<&Format>,
        options: &EncodingOptions,
    ) -> Result<(Format, Self), EncodingError> {
        let source = Chunks(source);
        check_nesting(&source)?;
        let metadata =
            guarded(EncodingError::syntax, || ArrowReaderMetadata::load(&source, ArrowReaderOptions::new()))?;
        let format = match format {
            Some(format) => format.clone(),
            None => import(metadata.schema(), options)?,
        };
        let rows = BatchReader::new(&format, metadata.schema(), options)?;
        let file = OpenFile { source, metadata, rows, next_group: 0, group: None };
        Ok((format.clone(), Self { format, options: options.clone(), file: Some(file) }))
    }

    /// The same, of a file that is gathered from a stream.
    ///
    /// # Errors
    /// As [`ParquetDecoder::open`]; the file is longer than [`MAX_GATHERED_BYTES`].
    pub fn gather(
        input: &mut dyn BufRead,
        format: Option<&Format>,
        options: &EncodingOptions,
    ) -> Result<(Format, Self), EncodingError> {
        let mut bytes = Vec::new();
        input.take(MAX_GATHERED_BYTES as u64 + 1).read_to_end(&mut bytes)?;
        if bytes.len() > MAX_GATHERED_BYTES {
            let found = bytes.len() as u64;
            return Err(EncodingError::new(EncodingProblem::TooLong { found, most: MAX_GATHERED_BYTES }));
        }
        Self::open(Arc::new(bytes), format, options)
    }
}

impl Decoder for ParquetDecoder {
    fn start(&mut self, input: &mut dyn BufRead) -> Result<(), EncodingError> {
        if self.file.is_none() {
            self.file = Self::gather(input, Some(&self.format), &self.options)?.1.file;
        }
        Ok(())
    }

    fn next_record(&mut self, input: &mut dyn BufRead) -> Result<Option<&[u8]>, EncodingError> {
        self.start(input)?;
        let Some(file) = &mut self.file else { return Ok(None) };
        while !file.rows.has_rows() {
            if !file.load(self.options.max_block_bytes)? {
                return Ok(None);
            }
        }
        file.rows.next_record().transpose()
    }

    fn restart(&mut self) {
        self.file = None;
    }
}

impl OpenFile {
    /// Loads the next batch; false at the file's end.
    fn load(&mut self, max_block_bytes: usize) -> Result<bool, EncodingError> {
        loop {
            let mut group = match self.group.take() {
                Some(group) => group,
                None => match self.open_group(max_block_bytes)? {
                    Some(group) => group,
                    None => return Ok(false),
                },
            };
            // Taken out: one that panics is not gone on with.
            if let Some(batch) = guarded(EncodingError::syntax, || group.next().transpose())? {
                self.group = Some(group);
                self.rows.load(&batch)?;
                return Ok(true);
            }
        }
    }

    /// The next row group, after a look at its pages; `None` when there is no more.
    fn open_group(&mut self, most: usize) -> Result<Option<ParquetRecordBatchReader>, EncodingError> {
        let index = self.next_group;
        let Some(group) = self.metadata.metadata().row_groups().get(index) else { return Ok(None) };
        self.next_group += 1;
        let largest = self.largest(group, most)?;
        // A dictionary's value may be in every row: together they are to stay within the bound as well.
        let rows = (most as u64 / largest.dictionary.max(1)).clamp(1, BATCH_ROWS as u64) as usize;
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(self.source.clone(), self.metadata.clone());
        let mask = ProjectionMask::roots(builder.parquet_schema(), self.rows.projection().iter().copied());
        if !group.columns().iter().any(unpacked::is_zstandard) {
            let builder = builder.with_row_groups(vec![index]).with_projection(mask).with_batch_size(rows);
            return guarded(EncodingError::syntax, || builder.build()).map(Some);
        }
        let (source, metadata) = (self.source.clone(), Arc::clone(self.metadata.metadata()));
        let group = unpacked::Group { source, metadata, index, most };
        guarded(EncodingError::syntax, || {
            let fields = self.metadata.schema().fields();
            let levels = parquet_to_arrow_field_levels(builder.parquet_schema(), mask, Some(fields))?;
            ParquetRecordBatchReader::try_new_with_row_groups(&levels, &group, rows, None)
        })
        .map(Some)
    }

    fn largest(&self, group: &RowGroupMetaData, most: usize) -> Result<Largest, EncodingError> {
        let mut largest = Largest::default();
        let (schema, projection) = (self.metadata.metadata().file_metadata().schema_descr(), self.rows.projection());
        for (leaf, column) in group.columns().iter().enumerate() {
            let path = || column.column_path().string();
            if !matches!(
                column.compression(),
                Compression::UNCOMPRESSED
                    | Compression::SNAPPY
                    | Compression::GZIP(_)
                    | Compression::LZ4
                    | Compression::LZ4_RAW
                    | Compression::ZSTD(_)
            ) {
                let message = format!("it is packed with {}, which is not read", column.compression());
                return Err(EncodingError::schema(message).in_field(path()));
            }
            let start = column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset());
            let (start, length) = (u64::try_from(start), u64::try_from(column.compressed_size()));
            let (Ok(start), Ok(length)) = (start, length) else { return Err(damaged().in_field(path())) };
            let end = start.checked_add(length).filter(|end| *end <= self.source.len());
            end.ok_or_else(|| damaged().in_field(path()))?;
            let mut input = BufReader::with_capacity(1 << 10, At { source: self.source.clone(), at: start });
            let found = pages::largest(&mut input, length, |input, bytes| {
                input.seek_relative(i64::try_from(bytes).unwrap_or(i64::MAX))
            });
            let found = found.map_err(|error| EncodingError::syntax(error.to_string()).in_field(path()))?;
            if found.page > most as u64 {
                let problem = EncodingProblem::TooLong { found: found.page, most };
                return Err(EncodingError::new(problem).in_field(path()));
            }
            if found.has_coded_lengths && projection.contains(&schema.get_column_root_idx(leaf)) {
                self.check_lengths(group, column, most).map_err(|error| error.in_field(path()))?;
            }
            largest.page = largest.page.max(found.page);
            largest.dictionary = largest.dictionary.max(found.dictionary);
        }
        Ok(largest)
    }

    /// Looks at the counts of lengths in a column's pages.
    fn check_lengths(
        &self,
        group: &RowGroupMetaData,
        column: &ColumnChunkMetaData,
        most: usize,
    ) -> Result<(), EncodingError> {
        let rows = usize::try_from(group.num_rows()).unwrap_or_default();
        let sound = guarded(EncodingError::syntax, || {
            let mut pages = unpacked::pages(&self.source, column, rows, most)?;
            while let Some(page) = pages.get_next_page()? {
                if !lengths::are_sound(&page, column.column_descr()) {
                    return Ok(false);
                }
            }
            Ok::<_, ParquetError>(true)
        })?;
        if sound { Ok(()) } else { Err(EncodingError::syntax("the lengths of a page's texts are damaged")) }
    }
}

/// Refuses a file whose schema nests too deep. A file that is no Parquet file is left to the library.
fn check_nesting(source: &Chunks) -> Result<(), EncodingError> {
    let Some(end) = source.len().checked_sub(FOOT_BYTES) else { return Ok(()) };
    let foot = source.get_bytes(end, FOOT_BYTES as usize).map_err(|error| EncodingError::syntax(error.to_string()))?;
    let length = foot.first_chunk().map_or(0, |length| u64::from(u32::from_le_bytes(*length)));
    let Some(at) = end.checked_sub(length) else { return Ok(()) };
    let metadata = BufReader::with_capacity(CHUNK_BYTES, At { source: source.clone(), at });
    match nesting::is_bounded(metadata, length) {
        Ok(true) => Ok(()),
        Ok(false) => Err(EncodingError::syntax(format!("its schema nests more than {MAX_NESTING} levels deep"))),
        Err(error) => Err(EncodingError::syntax(error.to_string())),
    }
}

fn damaged() -> EncodingError {
    EncodingError::syntax("the file's metadata is damaged")
}

/// A source as the library wants it.
#[derive(Clone)]
pub(super) struct Chunks(Arc<dyn ReadAt>);

impl Length for Chunks {
    fn len(&self) -> u64 {
        self.0.length()
    }
}

impl ChunkReader for Chunks {
    type T = BufReader<At>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        Ok(BufReader::with_capacity(CHUNK_BYTES, At { source: self.clone(), at: start }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let there = self.len().saturating_sub(start);
        if there < length as u64 {
            return Err(ParquetError::EOF(format!("found {there} bytes at {start}, expected {length}")));
        }
        let mut bytes = Vec::with_capacity(length);
        At { source: self.clone(), at: start }.take(length as u64).read_to_end(&mut bytes)?;
        Ok(bytes.into())
    }
}

/// A source from some place on.
pub(super) struct At {
    source: Chunks,
    at: u64,
}

impl Read for At {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.source.0.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl io::Seek for At {
    fn seek(&mut self, position: io::SeekFrom) -> io::Result<u64> {
        let at = match position {
            io::SeekFrom::Start(at) => Some(at),
            io::SeekFrom::Current(by) => self.at.checked_add_signed(by),
            io::SeekFrom::End(by) => self.source.len().checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}
