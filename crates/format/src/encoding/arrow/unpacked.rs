//! Batches that are packed with Zstandard, for which the library needs one in C: made into batches that are not packed.

use arrow_buffer::Buffer;
use arrow_ipc::{CompressionType, DictionaryBatch, DictionaryBatchBuilder, RecordBatch, RecordBatchBuilder};
use flatbuffers::{FlatBufferBuilder, WIPOffset};

use super::ipc::broken;
use crate::encoding::EncodingError;
use crate::encoding::zstandard::unpack;

/// The multiple at which buffers begin, in bytes, as Arrow recommends.
const ALIGNMENT: usize = 64;

/// Whether a batch is packed with what the library does not unpack here.
pub(super) fn is_zstandard(batch: &RecordBatch<'_>) -> bool {
    batch.compression().is_some_and(|compression| compression.codec() == CompressionType::ZSTD)
}

/// The same batch, not packed: its description and its body. That its buffers lie in the body and come to no more than is
/// allowed was checked.
pub(super) fn batch(packed: &RecordBatch<'_>, body: &[u8]) -> Result<(Vec<u8>, Buffer), EncodingError> {
    let mut builder = FlatBufferBuilder::new();
    let (root, body) = rebuild(packed, body, &mut builder)?;
    builder.finish(root, None);
    Ok((builder.finished_data().to_vec(), body))
}

/// The same dictionary, with the batch that is in it.
pub(super) fn dictionary(packed: &DictionaryBatch<'_>, body: &[u8]) -> Result<(Vec<u8>, Buffer), EncodingError> {
    let mut builder = FlatBufferBuilder::new();
    let (data, body) = rebuild(&packed.data().ok_or_else(broken)?, body, &mut builder)?;
    let mut dictionary = DictionaryBatchBuilder::new(&mut builder);
    dictionary.add_id(packed.id());
    dictionary.add_data(data);
    dictionary.add_isDelta(packed.isDelta());
    let root = dictionary.finish();
    builder.finish(root, None);
    Ok((builder.finished_data().to_vec(), body))
}

fn rebuild<'b>(
    packed: &RecordBatch<'_>,
    body: &[u8],
    builder: &mut FlatBufferBuilder<'b>,
) -> Result<(WIPOffset<RecordBatch<'b>>, Buffer), EncodingError> {
    let (mut unpacked, mut buffers) = (Vec::new(), Vec::new());
    for buffer in packed.buffers().into_iter().flatten() {
        let (start, length) = (usize::try_from(buffer.offset()), usize::try_from(buffer.length()));
        let (Ok(start), Ok(length)) = (start, length) else { return Err(broken()) };
        let bytes = start.checked_add(length).and_then(|end| body.get(start..end)).ok_or_else(broken)?;
        let at = unpacked.len();
        match bytes.split_first_chunk() {
            None => {}
            // Not packed.
            Some((stated, bytes)) if i64::from_le_bytes(*stated) == -1 => unpacked.extend_from_slice(bytes),
            Some((stated, bytes)) => {
                let stated = usize::try_from(i64::from_le_bytes(*stated)).map_err(|_| broken())?;
                unpack(bytes, stated, &mut unpacked)?;
                if unpacked.len() - at != stated {
                    return Err(EncodingError::syntax("a packed buffer is not as long as it says"));
                }
            }
        }
        buffers.push(arrow_ipc::Buffer::new(at as i64, (unpacked.len() - at) as i64));
        unpacked.resize(unpacked.len().next_multiple_of(ALIGNMENT), 0);
    }
    let nodes: Vec<arrow_ipc::FieldNode> = packed.nodes().into_iter().flatten().copied().collect();
    let nodes = builder.create_vector(&nodes);
    let buffers = builder.create_vector(&buffers);
    let counts: Option<Vec<i64>> = packed.variadicBufferCounts().map(|counts| counts.iter().collect());
    let counts = counts.map(|counts| builder.create_vector(&counts));
    let mut batch = RecordBatchBuilder::new(builder);
    batch.add_length(packed.length());
    batch.add_nodes(nodes);
    batch.add_buffers(buffers);
    if let Some(counts) = counts {
        batch.add_variadicBufferCounts(counts);
    }
    Ok((batch.finish(), Buffer::from_vec(unpacked)))
}
