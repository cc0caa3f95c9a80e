//! The counts of lengths in front of a page's texts (the encodings DELTA_LENGTH_BYTE_ARRAY and DELTA_BYTE_ARRAY), held against
//! the number of values that the page has: the library makes room for as many as they say before it looks for them.

use parquet::basic::Encoding;
use parquet::column::page::Page;
use parquet::schema::types::ColumnDescriptor;

/// Whether a page's counts are sound, or it has none.
pub(super) fn are_sound(page: &Page, column: &ColumnDescriptor) -> bool {
    let sequences = match page.encoding() {
        Encoding::DELTA_LENGTH_BYTE_ARRAY => 1,
        // Of what each has in common with the one before, and of the rest.
        Encoding::DELTA_BYTE_ARRAY => 2,
        _ => return true,
    };
    let values = match page {
        Page::DataPage { buf, num_values, rep_level_encoding, def_level_encoding, .. } => {
            let levels = [(column.max_rep_level(), rep_level_encoding), (column.max_def_level(), def_level_encoding)];
            let behind = |bytes, (most, encoding)| behind_levels(bytes, most, encoding, *num_values);
            levels.into_iter().try_fold(&buf[..], behind)
        }
        Page::DataPageV2 { buf, rep_levels_byte_len, def_levels_byte_len, .. } => {
            buf.get(*rep_levels_byte_len as usize..).and_then(|bytes| bytes.get(*def_levels_byte_len as usize..))
        }
        // It has no such encoding.
        Page::DictionaryPage { .. } => None,
    };
    let most = u64::from(page.num_values());
    values.and_then(|values| (0..sequences).try_fold(values, |bytes, _| behind_sequence(bytes, most))).is_some()
}

/// The bytes behind the levels of a page's values; `most` is the greatest level.
fn behind_levels<'a>(bytes: &'a [u8], most: i16, encoding: &Encoding, values: u32) -> Option<&'a [u8]> {
    if most <= 0 {
        return Some(bytes);
    }
    #[expect(deprecated, reason = "old files have it")]
    if *encoding == Encoding::BIT_PACKED {
        let bits = u64::from(values) * u64::from(i16::BITS - most.leading_zeros());
        return bytes.get(usize::try_from(bits.div_ceil(8)).ok()?..);
    }
    let (length, bytes) = bytes.split_first_chunk()?;
    bytes.get(u32::from_le_bytes(*length) as usize..)
}

/// The bytes behind a sequence of up to `most` integers coded as differences (DELTA_BINARY_PACKED).
fn behind_sequence(mut bytes: &[u8], most: u64) -> Option<&[u8]> {
    let (block, parts, count) = (varint(&mut bytes)?, varint(&mut bytes)?, varint(&mut bytes)?);
    let _first = varint(&mut bytes)?;
    let part = block.checked_div(parts)?;
    if count > most || part == 0 {
        return None;
    }
    let mut left = count.saturating_sub(1);
    while left > 0 {
        let _least = varint(&mut bytes)?;
        let (widths, rest) = bytes.split_at_checked(usize::try_from(parts).ok()?)?;
        bytes = rest;
        for width in widths {
            if left == 0 {
                // The parts of a block that are not needed have no bytes.
                break;
            }
            left = left.saturating_sub(part);
            let taken = u64::from(*width).checked_mul(part)? / 8;
            bytes = bytes.get(usize::try_from(taken).ok()?..)?;
        }
    }
    Some(bytes)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_ends_where_its_last_part_does() {
        // 128 in 4 parts, 3 values from 5 on; the least difference 0; the first part has a bit for each, the others are not needed.
        let sound = [128, 1, 4, 3, 10, 0, 1, 9, 9, 9, 3, 0, 0, 0, 7];
        assert_eq!(behind_sequence(&sound, 3), Some(&[7][..]));
        assert_eq!(behind_sequence(&sound, 2), None, "more values than the page has");
        for cut in 0..14 {
            assert_eq!(behind_sequence(&sound[..cut], 3), None, "{cut}");
        }
        // One value is in front of all blocks; a block without parts, and one without values.
        assert_eq!(behind_sequence(&[128, 1, 4, 1, 10, 7], 3), Some(&[7][..]));
        assert_eq!(behind_sequence(&[128, 1, 0, 3, 10, 0], 3), None);
        assert_eq!(behind_sequence(&[0, 4, 3, 10, 0, 0, 0, 0, 0], 3), None);
        assert_eq!(behind_sequence(&[0xff; 40], 3), None);
    }

    #[test]
    fn levels_are_passed_over_in_both_encodings() {
        assert_eq!(behind_levels(&[7], 0, &Encoding::RLE, 3), Some(&[7][..]));
        assert_eq!(behind_levels(&[2, 0, 0, 0, 1, 1, 7], 1, &Encoding::RLE, 3), Some(&[7][..]));
        assert_eq!(behind_levels(&[9, 0, 0, 0, 1], 1, &Encoding::RLE, 3), None);
        #[expect(deprecated, reason = "old files have it")]
        let packed = Encoding::BIT_PACKED;
        // Levels up to 2 have 2 bits each.
        assert_eq!(behind_levels(&[1, 2, 7], 2, &packed, 5), Some(&[7][..]));
    }
}
