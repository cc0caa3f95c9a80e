//! Row groups with columns that are packed with Zstandard, for which the library needs one in C: it is given their pages
//! packed, and they are unpacked on the way out.

use std::sync::Arc;

use bytes::Bytes;
use parquet::arrow::arrow_reader::RowGroups;
use parquet::basic::Compression;
use parquet::column::page::{Page, PageIterator, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use parquet::file::serialized_reader::SerializedPageReader;

use super::decode::Chunks;
use crate::encoding::zstandard::unpack;

/// The pages of a column of `rows` rows, unpacked whatever they are packed with. A page is at most `most` bytes long.
pub(super) fn pages(
    source: &Chunks,
    column: &ColumnChunkMetaData,
    rows: usize,
    most: usize,
) -> Result<Box<dyn PageReader>> {
    let source = Arc::new(source.clone());
    if !is_zstandard(column) {
        return Ok(Box::new(SerializedPageReader::new(source, column, rows, None)?));
    }
    let packed = column.clone().into_builder().set_compression(Compression::UNCOMPRESSED).build()?;
    let packed = SerializedPageReader::new(source, &packed, rows, None)?;
    Ok(Box::new(Unpacked { packed: Box::new(packed), most }))
}

/// Whether a column is packed with what the library does not unpack here.
pub(super) fn is_zstandard(column: &ColumnChunkMetaData) -> bool {
    matches!(column.compression(), Compression::ZSTD(_))
}

/// One row group.
pub(super) struct Group {
    pub(super) source: Chunks,
    pub(super) metadata: Arc<ParquetMetaData>,
    /// Its index.
    pub(super) index: usize,
    /// Most bytes of a page.
    pub(super) most: usize,
}

impl RowGroups for Group {
    fn num_rows(&self) -> usize {
        usize::try_from(self.metadata.row_group(self.index).num_rows()).unwrap_or_default()
    }

    fn column_chunks(&self, column: usize) -> Result<Box<dyn PageIterator>> {
        let column = self.metadata.row_group(self.index).column(column);
        Ok(Box::new(Chunk(Some(pages(&self.source, column, self.num_rows(), self.most)))))
    }

    fn row_groups(&self) -> Box<dyn Iterator<Item = &RowGroupMetaData> + '_> {
        Box::new(std::iter::once(self.metadata.row_group(self.index)))
    }

    fn metadata(&self) -> &ParquetMetaData {
        &self.metadata
    }
}

/// The one chunk of a column.
struct Chunk(Option<Result<Box<dyn PageReader>>>);

impl Iterator for Chunk {
    type Item = Result<Box<dyn PageReader>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.take()
    }
}

impl PageIterator for Chunk {}

/// Unpacks pages.
struct Unpacked {
    packed: Box<dyn PageReader>,
    most: usize,
}

impl Unpacked {
    /// A page's bytes; those before `start` are not packed.
    fn unpack(&self, bytes: &Bytes, start: usize) -> Result<Bytes> {
        let Some((plain, packed)) = bytes.split_at_checked(start) else {
            return Err(ParquetError::General("the levels of a page are longer than the page".to_owned()));
        };
        let mut unpacked = plain.to_vec();
        let most = self.most.saturating_sub(start);
        unpack(packed, most, &mut unpacked).map_err(|error| ParquetError::General(error.to_string()))?;
        Ok(unpacked.into())
    }
}

impl PageReader for Unpacked {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let Some(mut page) = self.packed.get_next_page()? else { return Ok(None) };
        match &mut page {
            Page::DataPage { buf, .. } | Page::DictionaryPage { buf, .. } => *buf = self.unpack(buf, 0)?,
            Page::DataPageV2 { buf, is_compressed, def_levels_byte_len, rep_levels_byte_len, .. } if *is_compressed => {
                let levels = def_levels_byte_len.saturating_add(*rep_levels_byte_len);
                *buf = self.unpack(buf, usize::try_from(levels).unwrap_or(usize::MAX))?;
                *is_compressed = false;
            }
            Page::DataPageV2 { .. } => {}
        }
        Ok(Some(page))
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.packed.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.packed.skip_next_page()
    }

    fn at_record_boundary(&mut self) -> Result<bool> {
        self.packed.at_record_boundary()
    }
}

impl Iterator for Unpacked {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}
