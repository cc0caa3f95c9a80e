//! Where an item ends, found without understanding it.

use super::{Dialect, Head, NO_PIECE};
use crate::encoding::reader::Reader;
use crate::nesting::MAX_NESTING;
use crate::tokens::Flaw;

/// How far an item has been looked at. It is gone on with when there are more bytes, so that a long item is looked at
/// once, in however many pieces it comes.
#[derive(Clone, Debug, Default)]
pub(super) struct Scan {
    /// Bytes that have been looked at.
    at: usize,
    /// The open containers.
    open: Vec<Open>,
}

/// How much of an array, a map or a text in pieces is to come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Open {
    /// This number of values.
    Values(u64),
    /// Values up to a break.
    Break,
    /// Names and values in turn up to a break; whether the last name has no value yet.
    Pairs { lacks_value: bool },
    /// Pieces of text or bytes up to a break.
    Pieces,
}

impl Scan {
    pub(super) fn clear(&mut self) {
        self.at = 0;
        self.open.clear();
    }

    /// Whether anything has been looked at.
    pub(super) fn is_begun(&self) -> bool {
        self.at > 0
    }

    /// Goes on with the item that the bytes start with; its length once it is whole.
    pub(super) fn resume<D: Dialect>(&mut self, bytes: &[u8]) -> Result<Option<usize>, Flaw> {
        loop {
            let rest = bytes.get(self.at..).unwrap_or_default();
            let mut reader = Reader::new(rest);
            let head = match D::head(&mut reader) {
                Ok(token) => token,
                Err(Flaw::Cut) => return Ok(None),
                Err(flaw) => return Err(flaw),
            };
            self.at += rest.len() - reader.left();
            if self.take(head)? {
                return Ok(Some(self.at));
            }
        }
    }

    /// Whether this ended the item.
    fn take(&mut self, head: Head<'_>) -> Result<bool, Flaw> {
        let is_piece = matches!(head, Head::Text(_) | Head::Bytes(_) | Head::Break);
        if self.open.last() == Some(&Open::Pieces) && !is_piece {
            return Err(NO_PIECE);
        }
        let opened = match head {
            Head::Tag(_) => return Ok(false),
            Head::Array(Some(len)) => Some(Open::Values(len)),
            Head::Map(Some(len)) => {
                Some(Open::Values(len.checked_mul(2).ok_or(Flaw::Found("a map of too many values"))?))
            }
            Head::Array(None) => Some(Open::Break),
            Head::Map(None) => Some(Open::Pairs { lacks_value: false }),
            Head::Pieces { .. } => Some(Open::Pieces),
            Head::Break => match self.open.pop() {
                Some(Open::Break | Open::Pieces | Open::Pairs { lacks_value: false }) => None,
                Some(Open::Pairs { .. }) => return Err(Flaw::Found("a map whose last name has no value")),
                _ => return Err(Flaw::Found("an end of nothing")),
            },
            _ => None,
        };
        match opened {
            Some(open) if open != Open::Values(0) => {
                if open != Open::Pieces && self.open.len() >= MAX_NESTING {
                    return Err(Flaw::TooDeep);
                }
                self.open.push(open);
                Ok(false)
            }
            _ => Ok(self.end_value()),
        }
    }

    /// Ends a value, and what it was the last one of.
    fn end_value(&mut self) -> bool {
        while let Some(open) = self.open.last_mut() {
            match open {
                Open::Break | Open::Pieces => return false,
                Open::Pairs { lacks_value } => {
                    *lacks_value = !*lacks_value;
                    return false;
                }
                Open::Values(left) if *left > 1 => {
                    *left -= 1;
                    return false;
                }
                Open::Values(_) => {
                    self.open.pop();
                }
            }
        }
        true
    }
}
