//! Running a plan.

use super::compile::CHUNK_RECORDS;
use super::error::{ConvertError, ConvertProblem, Place};
use super::step::{Many, One, Part, Within};
use super::{Inner, Plan};
use crate::format::{LENGTH_BYTES, RECORD_ALIGN};
use crate::record::Record;

impl Plan {
    /// Appends the new record for one of format [`Plan::from`], which was checked where it came in.
    ///
    /// # Errors
    /// Something in the record has no place in the new one; nothing was appended.
    #[inline]
    pub fn run(&self, record: &[u8], out: &mut Vec<u8>) -> Result<(), ConvertError> {
        if let Some(encode) = &self.inner.encode {
            let mut outcome = Ok(());
            encode.run(&self.inner, [record].into_iter(), out, &mut |_, error| outcome = Err(error));
            return outcome;
        }
        match self.inner.one(record, out) {
            true => Ok(()),
            false => Err(self.inner.why(record)),
        }
    }

    /// Appends the new records for many, one behind the other, and tells of those that are refused: the record's number,
    /// counted from 0, and why. Returns how many were appended.
    pub fn run_all<'r>(
        &self,
        records: impl IntoIterator<Item = &'r [u8]>,
        out: &mut Vec<u8>,
        mut refused: impl FnMut(usize, ConvertError),
    ) -> usize {
        let mut records = records.into_iter();
        if let Some(encode) = &self.inner.encode {
            return encode.run(&self.inner, records, out, &mut refused);
        }
        let mut chunk: [&[u8]; CHUNK_RECORDS] = [&[]; CHUNK_RECORDS];
        let (mut flaws, mut lengths) = ([0; CHUNK_RECORDS], [0; CHUNK_RECORDS]);
        let most = self.inner.code.chunk_records;
        let (mut done, mut appended) = (0, 0);
        loop {
            let mut filled = 0;
            for (place, record) in chunk[..most].iter_mut().zip(records.by_ref()) {
                *place = record;
                filled += 1;
            }
            if filled == 0 {
                return appended;
            }
            let mut notes = Notes { flaws: &mut flaws[..filled], lengths: &mut lengths[..filled] };
            let records = Records::Slices(&chunk[..filled]);
            appended += self.inner.chunk(records, &mut notes, out, &mut |index, error| refused(done + index, error));
            done += filled;
        }
    }

    /// As [`Plan::run_all`], for records back to back, as a packet's payload has them. Bytes at the end that are no
    /// record are refused as one.
    pub fn run_payload(
        &self,
        payload: &[u8],
        out: &mut Vec<u8>,
        mut refused: impl FnMut(usize, ConvertError),
    ) -> usize {
        let mut rest = payload;
        let mut starts = [0; CHUNK_RECORDS];
        let (mut flaws, mut lengths) = ([0; CHUNK_RECORDS], [0; CHUNK_RECORDS]);
        let most = self.inner.code.chunk_records;
        let (mut done, mut appended) = (0, 0);
        let from = self.from();
        if from.is_foreign() || self.inner.encode.is_some() {
            return self.run_records(payload, out, &mut refused);
        }
        while let Some(stride) = from.record_len(rest) {
            let alike = alike(rest, stride, most);
            let (records, after) = if alike == most || alike * stride == rest.len() {
                let (bytes, after) = rest.split_at(alike * stride);
                (Records::Strided { bytes, stride }, after)
            } else {
                let (mut end, mut filled) = (0, 0);
                for place in &mut starts[..most] {
                    let Some(length) = rest.get(end..).and_then(|rest| from.record_len(rest)) else { break };
                    let Ok(start) = u32::try_from(end) else { break };
                    *place = start;
                    end += length;
                    filled += 1;
                }
                let (bytes, after) = rest.split_at(end);
                (Records::Starts { bytes, starts: &starts[..filled] }, after)
            };
            rest = after;
            let filled = records.len();
            let mut notes = Notes { flaws: &mut flaws[..filled], lengths: &mut lengths[..filled] };
            appended += self.inner.chunk(records, &mut notes, out, &mut |index, error| refused(done + index, error));
            done += filled;
        }
        if !rest.is_empty() {
            refused(done, self.inner.too_short(rest));
        }
        appended
    }

    /// As [`Plan::run_payload`], where only a record's format tells where the next one starts, or they go one by one.
    fn run_records(&self, payload: &[u8], out: &mut Vec<u8>, refused: &mut dyn FnMut(usize, ConvertError)) -> usize {
        let (mut rest, mut done) = (payload, 0);
        let records = std::iter::from_fn(|| {
            let (record, after) = rest.split_at_checked(self.from().record_len(rest)?)?;
            rest = after;
            done += 1;
            Some(record)
        });
        let appended = self.run_all(records, out, &mut *refused);
        if !rest.is_empty() {
            refused(done, self.inner.too_short(rest));
        }
        appended
    }
}

/// How many records of the same length these bytes begin with, `most` being the most that are counted. Each is looked for
/// where it would be, so that one look does not wait for another.
fn alike(bytes: &[u8], length: usize, most: usize) -> usize {
    // The lengths fit 32 bits: they are read from as many.
    let word = (length as u32).to_le_bytes();
    let records = bytes.chunks_exact(length).take(most);
    records.take_while(|record| record.first_chunk() == Some(&word)).count()
}

/// The records of a chunk, one or more.
#[derive(Clone, Copy)]
enum Records<'r> {
    /// Anywhere.
    Slices(&'r [&'r [u8]]),
    /// Back to back: where each starts.
    Starts { bytes: &'r [u8], starts: &'r [u32] },
    /// Back to back and all of one length.
    Strided { bytes: &'r [u8], stride: usize },
}

impl<'r> Records<'r> {
    fn len(self) -> usize {
        match self {
            Self::Slices(slices) => slices.len(),
            Self::Starts { starts, .. } => starts.len(),
            Self::Strided { bytes, stride } => bytes.len() / stride,
        }
    }

    fn get(self, index: usize) -> &'r [u8] {
        match self {
            Self::Slices(slices) => slices.get(index).copied(),
            Self::Starts { bytes, starts } => {
                let place = |index| starts.get(index).map_or(bytes.len(), |start| *start as usize);
                bytes.get(place(index)..place(index + 1))
            }
            Self::Strided { bytes, stride } => bytes.get(index * stride..(index + 1) * stride),
        }
        .unwrap_or_default()
    }
}

/// What is noted of each record of a chunk: whether it is refused, and its row's length in bytes.
struct Notes<'n> {
    flaws: &'n mut [u8],
    lengths: &'n mut [usize],
}

impl Inner {
    /// Appends the row for one record; whether it could.
    pub(super) fn one(&self, record: &[u8], out: &mut Vec<u8>) -> bool {
        let start = out.len();
        let mut refused = record.len() < self.body.from.fixed_bytes();
        if self.code.is_identity {
            out.extend_from_slice(if refused { &[] } else { record });
            return !refused;
        }
        if self.code.variable.is_empty() {
            out.extend_from_slice(&self.code.blank);
        } else {
            refused |= self.append(record, out).is_none();
        }
        if !refused {
            let row = &mut out[start..];
            for step in &self.code.steps {
                step.run(&self.body.from, One { record, row, refused: &mut refused });
            }
        }
        if refused {
            out.truncate(start);
        }
        !refused
    }

    /// Appends the rows for a chunk of records; how many there are.
    fn chunk(
        &self,
        records: Records<'_>,
        notes: &mut Notes<'_>,
        out: &mut Vec<u8>,
        refused: &mut dyn FnMut(usize, ConvertError),
    ) -> usize {
        let start = out.len();
        notes.flaws.fill(0);
        let fixed_bytes = self.body.from.fixed_bytes();
        match records {
            Records::Strided { stride, .. } if stride >= fixed_bytes => {}
            _ => {
                for (index, flaw) in notes.flaws.iter_mut().enumerate() {
                    *flaw = u8::from(records.get(index).len() < fixed_bytes);
                }
            }
        }
        if self.code.is_identity {
            for (index, length) in notes.lengths.iter_mut().enumerate() {
                out.extend_from_slice(records.get(index));
                *length = records.get(index).len();
            }
        } else if self.code.variable.is_empty() {
            notes.lengths.fill(self.code.blank.len());
            self.fixed(records, notes.flaws, out);
        } else {
            self.varying(records, notes, out);
        }
        match notes.flaws.iter().fold(0, |all, flaw| all | flaw) {
            0 => records.len(),
            _ => self.take_out(records, notes, start, out, refused),
        }
    }

    /// Rows of one length.
    fn fixed(&self, records: Records<'_>, flaws: &mut [u8], out: &mut Vec<u8>) {
        let (code, start) = (&self.code, out.len());
        out.extend_from_slice(code.blanks.get(..code.blank.len() * flaws.len()).unwrap_or_default());
        let all = &mut out[start..];
        for step in &code.steps {
            let rows = all.chunks_exact_mut(code.blank.len());
            match records {
                Records::Slices(slices) => {
                    step.run(&self.body.from, Many { records: slices.iter().copied(), rows, flaws });
                }
                Records::Strided { bytes, stride } => {
                    step.run(&self.body.from, Many { records: bytes.chunks_exact(stride), rows, flaws });
                }
                Records::Starts { bytes, starts } => {
                    let records = starts.iter().map(|start| Within { payload: bytes, start: *start });
                    step.run(&self.body.from, Many { records, rows, flaws });
                }
            }
        }
    }

    /// Rows of various lengths.
    fn varying(&self, records: Records<'_>, notes: &mut Notes<'_>, out: &mut Vec<u8>) {
        let start = out.len();
        let mut slices: [&[u8]; CHUNK_RECORDS] = [&[]; CHUNK_RECORDS];
        let slices = match records {
            Records::Slices(slices) => slices,
            _ => {
                for (index, slice) in slices[..notes.flaws.len()].iter_mut().enumerate() {
                    *slice = records.get(index);
                }
                &slices[..notes.flaws.len()]
            }
        };
        for ((record, length), flaw) in slices.iter().zip(&mut *notes.lengths).zip(&mut *notes.flaws) {
            *length = self.append(record, out).unwrap_or(0);
            *flaw |= u8::from(*length == 0);
        }
        for step in &self.code.steps {
            let rows = Rows { rest: &mut out[start..], lengths: notes.lengths.iter() };
            step.run(&self.body.from, Many { records: slices.iter().copied(), rows, flaws: notes.flaws });
        }
    }

    /// Appends a row with its variable part and nothing else in it; its length in bytes. Appends nothing if it fails.
    fn append(&self, bytes: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        let start = out.len();
        out.extend_from_slice(&self.code.blank);
        if !self.code.fill(&self.body.from, Part { bytes, base: 0 }, out, start, 0) {
            out.truncate(start);
            return None;
        }
        let length = (out.len() - start).next_multiple_of(RECORD_ALIGN);
        out.resize(start + length, 0);
        out[start..start + LENGTH_BYTES].copy_from_slice(&(length as u32).to_le_bytes());
        Some(length)
    }

    /// Takes the rows of records with flaws out again, and tells of them; how many are left.
    #[cold]
    fn take_out(
        &self,
        records: Records<'_>,
        notes: &Notes<'_>,
        start: usize,
        out: &mut Vec<u8>,
        refused: &mut dyn FnMut(usize, ConvertError),
    ) -> usize {
        let (mut from, mut to, mut kept) = (start, start, 0);
        for (index, (flaw, length)) in notes.flaws.iter().zip(&*notes.lengths).enumerate() {
            if *flaw == 0 {
                out.copy_within(from..from + *length, to);
                to += length;
                kept += 1;
            } else {
                refused(index, self.why(records.get(index)));
            }
            from += length;
        }
        out.truncate(to);
        kept
    }

    /// Why a record is refused.
    pub(super) fn why(&self, bytes: &[u8]) -> ConvertError {
        if bytes.len() < self.body.from.fixed_bytes() {
            return self.too_short(bytes);
        }
        let flaw = self.body.flaw(&Record::assume_checked(&self.body.from, bytes));
        flaw.unwrap_or_else(|| ConvertError::new(&self.body.to, Place::Record, ConvertProblem::RecordTooLong))
    }

    fn too_short(&self, bytes: &[u8]) -> ConvertError {
        let problem = ConvertProblem::Length { found: bytes.len(), expected: self.body.from.fixed_bytes() };
        ConvertError::new(&self.body.from, Place::Record, problem)
    }
}

/// Rows of various lengths, one behind the other.
struct Rows<'a, 'l> {
    rest: &'a mut [u8],
    lengths: std::slice::Iter<'l, usize>,
}

impl<'a> Iterator for Rows<'a, '_> {
    type Item = &'a mut [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a mut [u8]> {
        let length = *self.lengths.next()?;
        let (row, rest) = std::mem::take(&mut self.rest).split_at_mut_checked(length)?;
        self.rest = rest;
        Some(row)
    }
}
