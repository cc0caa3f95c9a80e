//! Records of a foreign target: each is made in the layout's natural twin, and then written as the layout has it.

use std::sync::Mutex;

use super::Inner;
use super::error::ConvertError;
use crate::foreign;
use crate::format::Format;
use crate::record::Record;

/// What comes behind a plan's code where the target is foreign.
pub(super) struct Encode {
    pub(super) format: Format,
    /// Room for a record of the twin, kept from run to run. Who finds it in use takes room of its own, and never waits.
    row: Mutex<Vec<u8>>,
}

impl Encode {
    pub(super) fn new(format: &Format) -> Encode {
        Encode { format: format.clone(), row: Mutex::default() }
    }

    /// Appends the new records for many; how many there were. Tells of those that are refused.
    pub(super) fn run<'r>(
        &self,
        inner: &Inner,
        records: impl Iterator<Item = &'r [u8]>,
        out: &mut Vec<u8>,
        refused: &mut dyn FnMut(usize, ConvertError),
    ) -> usize {
        let (mut kept, mut own) = (self.row.try_lock().ok(), Vec::new());
        let row = kept.as_deref_mut().unwrap_or(&mut own);
        let mut appended = 0;
        for (index, record) in records.enumerate() {
            row.clear();
            let made = match inner.one(record, row) {
                true => {
                    let twin = Record::assume_checked(&inner.body.to, row);
                    foreign::write(&self.format, &twin, out).map_err(ConvertError::from)
                }
                false => Err(inner.why(record)),
            };
            match made {
                Ok(()) => appended += 1,
                Err(error) => refused(index, error),
            }
        }
        appended
    }
}
