//! How deep the schema of a file nests. The file has it as a list, each group with the number of its children, and the
//! library makes a tree by recursion.

use std::io::{self, Read};

use super::thrift::{BINARY, I8, I32, LIST, STRUCT, Thrift, broken};
use crate::nesting::MAX_NESTING;

/// The number of the field with the schema among those of a file's metadata.
const SCHEMA: i64 = 2;

/// Whether the schema in a file's metadata, of `length` bytes, keeps the bound. Its fields have to be of the types that the
/// library reads, whatever type is written: it might see another schema.
pub(super) fn is_bounded(metadata: impl Read, length: u64) -> io::Result<bool> {
    let mut metadata = Thrift::new(metadata, length);
    let mut id = 0;
    while let Some((ty, next)) = metadata.field(id)? {
        id = next;
        match (id, ty) {
            (SCHEMA, LIST) => return metadata.is_schema_bounded(),
            (1, I32) => metadata.pass(ty)?,
            (1 | SCHEMA, _) => return Err(broken()),
            _ => metadata.pass(ty)?,
        }
    }
    // The library says that there is none.
    Ok(true)
}

impl<R: Read> Thrift<R> {
    fn is_schema_bounded(&mut self) -> io::Result<bool> {
        // Of each group that is open, how many of its children are to come.
        let mut open: Vec<u32> = Vec::with_capacity(MAX_NESTING);
        for _ in 0..self.structs()? {
            while open.pop_if(|left| *left == 0).is_some() {}
            if let Some(left) = open.last_mut() {
                *left -= 1;
            }
            match u32::try_from(self.children()?) {
                Ok(0) => {}
                Ok(_) if open.len() >= MAX_NESTING => return Ok(false),
                Ok(children) => open.push(children),
                Err(_) => return Err(broken()),
            }
        }
        Ok(true)
    }

    /// Reads an element; the number of its children.
    fn children(&mut self) -> io::Result<i32> {
        let (mut id, mut children) = (0, 0);
        while let Some((ty, next)) = self.field(id)? {
            id = next;
            match (id, ty) {
                // The library takes the low 32 bits.
                (5, I32) => children = self.integer()? as i32,
                (10, STRUCT) => self.logical_type()?,
                (1..=3 | 6..=9, I32) | (4, BINARY) => self.pass(ty)?,
                (1..=10, _) => return Err(broken()),
                _ => self.pass(ty)?,
            }
        }
        Ok(children)
    }

    /// Passes over the union of logical types.
    fn logical_type(&mut self) -> io::Result<()> {
        let mut logical = 0;
        while let Some((ty, next)) = self.field(logical)? {
            logical = next;
            if ty != STRUCT {
                return Err(broken());
            }
            let mut id = 0;
            while let Some((ty, next)) = self.field(id)? {
                id = next;
                let is_expected = match (logical, id) {
                    // A decimal's digits, the algorithm of a geography.
                    (5, 1 | 2) | (18, 2) => ty == I32,
                    // Whether a time is UTC, whether an integer has a sign.
                    (7 | 8, 1) | (10, 2) => matches!(ty, 1 | 2),
                    // A time's unit.
                    (7 | 8, 2) => ty == STRUCT,
                    // The width of an integer, the version of a variant.
                    (10 | 16, 1) => ty == I8,
                    // A system of coordinates.
                    (17 | 18, 1) => ty == BINARY,
                    _ => true,
                };
                if !is_expected {
                    return Err(broken());
                }
                self.pass(ty)?;
            }
        }
        Ok(())
    }
}
