//! The headers of a column's pages, read only for the lengths in them.
//!
//! The library makes room for a page by what its header says, up to 2 GiB. Its headers are structs of Thrift's compact
//! protocol. The first three fields are the page's kind and its two lengths; a struct for each kind of page has the encoding of
//! its values.

use std::io::{self, Read};

use super::thrift::{I32, STRUCT, Thrift, broken};

/// The most that the pages of a column take, in bytes.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Largest {
    /// The longest page once unpacked.
    pub(super) page: u64,
    /// The longest dictionary once unpacked.
    pub(super) dictionary: u64,
    /// Whether the lengths of a page's texts are coded as differences ([`super::lengths`]).
    pub(super) has_coded_lengths: bool,
}

/// The kind of page that holds a dictionary.
const DICTIONARY: i64 = 2;
/// The encodings of pages whose texts have their lengths in front: DELTA_LENGTH_BYTE_ARRAY and DELTA_BYTE_ARRAY.
const CODED_LENGTHS: [i64; 2] = [6, 7];
/// Longest header in bytes: it may hold the least and the greatest value of a page.
const MAX_HEADER_BYTES: u64 = 16 << 20;

/// Goes over the pages of a column chunk, which starts at the beginning of `input` and has `length` bytes. `skip`
/// passes over bytes of the input without reading them.
pub(super) fn largest<R: Read>(
    input: &mut R,
    length: u64,
    mut skip: impl FnMut(&mut R, u64) -> io::Result<()>,
) -> io::Result<Largest> {
    let mut largest = Largest::default();
    let mut left = length;
    while left > 0 {
        let mut header = Thrift::new(&mut *input, MAX_HEADER_BYTES.min(left));
        let (kind, unpacked, packed, has_coded_lengths) = header.page()?;
        let read = header.read();
        let length = read.checked_add(packed).filter(|length| *length <= left).ok_or_else(broken)?;
        left -= length;
        largest.page = largest.page.max(unpacked).max(packed);
        largest.has_coded_lengths |= has_coded_lengths;
        if kind == DICTIONARY {
            largest.dictionary = largest.dictionary.max(unpacked);
        }
        skip(input, packed)?;
    }
    Ok(largest)
}

impl<R: Read> Thrift<R> {
    /// A page's kind, its lengths unpacked and packed, and whether an encoding in it has coded lengths. A field that comes twice or
    /// is of another type is refused: the library may see it otherwise.
    fn page(&mut self) -> io::Result<(i64, u64, u64, bool)> {
        let (mut fields, mut has_coded_lengths) = ([None; 4], false);
        let mut id = 0_i64;
        while let Some((ty, next)) = self.field(id)? {
            id = next;
            match (id, usize::try_from(id).ok().and_then(|id| fields.get_mut(id))) {
                (1..=3, Some(field @ None)) if ty == I32 => *field = Some(self.integer()?),
                // The structs of a data page and of one of version 2.
                (5, _) if ty == STRUCT => has_coded_lengths |= self.has_coded_lengths(2)?,
                (8, _) if ty == STRUCT => has_coded_lengths |= self.has_coded_lengths(4)?,
                (1..=3 | 5 | 8, _) => return Err(broken()),
                _ => self.pass(ty)?,
            }
        }
        let [_, Some(kind), Some(unpacked), Some(packed)] = fields else { return Err(broken()) };
        let length = |bytes: i64| u64::try_from(bytes).map_err(|_| broken());
        Ok((kind, length(unpacked)?, length(packed)?, has_coded_lengths))
    }

    /// Whether the encoding that is the field `wanted` of a struct has coded lengths.
    fn has_coded_lengths(&mut self, wanted: i64) -> io::Result<bool> {
        let (mut id, mut found) = (0, None);
        while let Some((ty, next)) = self.field(id)? {
            id = next;
            match (id == wanted, ty, found) {
                (true, I32, None) => found = Some(self.integer()?),
                (true, ..) => return Err(broken()),
                _ => self.pass(ty)?,
            }
        }
        Ok(found.is_some_and(|encoding| CODED_LENGTHS.contains(&encoding)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn go(bytes: &[u8]) -> io::Result<Largest> {
        largest(&mut &bytes[..], bytes.len() as u64, |input, skipped| {
            *input = input.get(usize::try_from(skipped).unwrap_or(usize::MAX)..).ok_or_else(broken)?;
            Ok(())
        })
    }

    #[test]
    fn lengths_are_found_behind_all_kinds_of_fields() {
        // kind 2, unpacked 300, packed 1, a struct with a list, a double, text and a map-free rest, then the byte itself.
        let page = [
            0x15, 4, 0x15, 0xd8, 0x04, 0x15, 2, 0x1c, 0x19, 0x25, 2, 4, 0x17, 0, 0, 0, 0, 0, 0, 0, 0, 0x18, 2, b'a',
            b'b', 0x11, 0x12, 0, 0, 9,
        ];
        let found = go(&page).expect("a sound page");
        assert_eq!((found.page, found.dictionary), (300, 300));
        let two = [&[0x15, 0, 0x15, 20, 0x15, 0, 0][..], &page].concat();
        assert_eq!(go(&two).expect("two sound pages").page, 300);
        for (encoding, is_coded) in [(0, false), (6, true), (7, true)] {
            // A data page with 3 values, and one of version 2.
            let pages = [
                &[0x15, 0, 0x15, 2, 0x15, 0, 0x2c, 0x15, 6, 0x15, 2 * encoding, 0, 0][..],
                &[0x15, 6, 0x15, 2, 0x15, 0, 0x5c, 0x15, 6, 0x15, 0, 0x15, 6, 0x15, 2 * encoding, 0, 0],
            ];
            for page in pages {
                assert_eq!(go(page).expect("a sound page").has_coded_lengths, is_coded, "{page:?}");
            }
        }
        for cut in 1..page.len() {
            assert!(go(&page[..cut]).is_err(), "{cut}");
        }
    }

    #[test]
    fn bytes_that_are_no_header_are_refused() {
        // Nothing; no lengths; a negative length; a page beyond the chunk; a list without end; structs without end.
        for bytes in [
            &[0xff; 4][..],
            &[0x15, 4, 0],
            &[0x15, 4, 0x15, 3, 0x15, 0, 0],
            &[0x15, 4, 0x15, 2, 0x15, 200, 1, 0],
            &[0x19, 0xf3, 0xff, 0xff, 0xff, 0xff, 0x0f, 0],
            &[0x1c; 40],
            // A length that comes twice, or is no 32-bit integer; an encoding that comes twice, or is no integer; a data page that is
            // no struct.
            &[0x15, 4, 0x15, 2, 0x15, 0, 0x05, 4, 200, 1, 0],
            &[0x15, 4, 0x16, 2, 0x15, 0, 0],
            &[0x15, 0, 0x15, 2, 0x15, 0, 0x2c, 0x15, 6, 0x15, 0, 0x05, 4, 14, 0, 0],
            &[0x15, 0, 0x15, 2, 0x15, 0, 0x2c, 0x15, 6, 0x14, 14, 0, 0],
            &[0x15, 0, 0x15, 2, 0x15, 0, 0x25, 14, 0],
        ] {
            assert!(go(bytes).is_err(), "{bytes:?}");
        }
    }
}
