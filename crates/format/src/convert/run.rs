//! Running a plan.

use super::compile::CHUNK_RECORDS;
use super::error::{ConvertError, ConvertProblem, RefusedPart};
use super::step::{Found, Many, One, Op, Part, Step};
use super::{Inner, Plan};
use crate::foreign;
use crate::format::{LENGTH_BYTES, RECORD_ALIGN};
use crate::record::{Record, record_len};

impl Plan {
    /// Appends the new record for one of format [`Plan::from`], which was checked where it came in.
    ///
    /// # Errors
    /// Something in the record has no place in the new one; nothing was appended.
    #[inline]
    pub fn run(&self, record: &[u8], out: &mut Vec<u8>) -> Result<(), ConvertError> {
        self.inner.make(record, out)
    }

    /// Appends the new records for many, one behind the other, and reports those that are refused: the record's number,
    /// counted from 0, and why. Returns how many were appended.
    pub fn run_all<'r>(
        &self,
        records: impl IntoIterator<Item = &'r [u8]>,
        out: &mut Vec<u8>,
        mut refused: impl FnMut(usize, ConvertError),
    ) -> usize {
        let mut records = records.into_iter();
        if self.inner.foreign.is_some() {
            let mut appended = 0;
            for (index, record) in records.enumerate() {
                match self.inner.make(record, out) {
                    Ok(()) => appended += 1,
                    Err(error) => refused(index, error),
                }
            }
            return appended;
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
            let refused = &mut |index, error| refused(done + index, error);
            appended += self.inner.chunk((&chunk[..filled], false), &mut notes, out, refused);
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
        let from = self.from();
        if from.is_foreign() || self.inner.foreign.is_some() {
            return self.run_records(payload, out, &mut refused);
        }
        let mut rest = payload;
        let mut chunk: [&[u8]; CHUNK_RECORDS] = [&[]; CHUNK_RECORDS];
        let (mut flaws, mut lengths) = ([0; CHUNK_RECORDS], [0; CHUNK_RECORDS]);
        let most = self.inner.code.chunk_records;
        let (mut done, mut appended) = (0, 0);
        loop {
            let (filled, begun) = self.inner.begin(&mut rest, &mut chunk[..most], out);
            if filled == 0 {
                break;
            }
            let mut notes = Notes { flaws: &mut flaws[..filled], lengths: &mut lengths[..filled] };
            let refused = &mut |index, error| refused(done + index, error);
            appended += self.inner.chunk((&chunk[..filled], begun), &mut notes, out, refused);
            done += filled;
        }
        if !rest.is_empty() {
            refused(done, self.inner.too_short(rest));
        }
        appended
    }

    /// As [`Plan::run_payload`], where only a record's format says where the next one starts, or they go one by one.
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

/// The notes on each record of a chunk: whether it is refused, and its row's length in bytes.
struct Notes<'n> {
    flaws: &'n mut [u8],
    lengths: &'n mut [usize],
}

impl Inner {
    /// Appends the new record for one.
    fn make(&self, record: &[u8], out: &mut Vec<u8>) -> Result<(), ConvertError> {
        let start = out.len();
        match (self.one(record, out), &self.foreign) {
            (false, _) => Err(self.why(record)),
            (true, None) => Ok(()),
            (true, Some(format)) => foreign::write_over(format, out, start).map_err(ConvertError::from),
        }
    }

    /// Appends the row for one record; whether it could.
    fn one(&self, record: &[u8], out: &mut Vec<u8>) -> bool {
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

    /// Takes the records of a chunk from a payload; how many. Where rows are of one length, they are appended as far as
    /// that can be done meanwhile: then it is true.
    #[inline]
    fn begin<'r>(&self, payload: &mut &'r [u8], chunk: &mut [&'r [u8]], out: &mut Vec<u8>) -> (usize, bool) {
        let (from_bytes, to_bytes) = (self.body.from.fixed_bytes(), self.code.blank.len());
        if let (false, [], [Step { op: Op::Words(words), .. }, others @ ..]) =
            (self.code.is_identity, &*self.code.variable, &*self.code.steps)
        {
            let start = out.len();
            // No more records than there are bytes for.
            let room = chunk.len().min(payload.len() / from_bytes.max(1));
            out.extend_from_slice(self.code.blanks.get(..room * to_bytes).unwrap_or_default());
            let (rows, mut filled) = (&mut out[start..], 0);
            let (is_noted, bytes) = (!others.is_empty(), (from_bytes, to_bytes));
            words.run(Found { payload, places: chunk, is_noted, rows, bytes, done: &mut filled });
            out.truncate(start + filled * to_bytes);
            if filled > 0 {
                return (filled, true);
            }
        }
        let mut filled = 0;
        for place in chunk {
            let split = record_len(payload).and_then(|length| payload.split_at_checked(length));
            let Some((record, rest)) = split else { break };
            (*place, *payload) = (record, rest);
            filled += 1;
        }
        (filled, false)
    }

    /// Appends the rows for a chunk of records, or what they lack where it was begun; how many there are.
    fn chunk(
        &self,
        (records, begun): (&[&[u8]], bool),
        notes: &mut Notes<'_>,
        out: &mut Vec<u8>,
        refused: &mut dyn FnMut(usize, ConvertError),
    ) -> usize {
        let start = out.len() - if begun { records.len() * self.code.blank.len() } else { 0 };
        notes.flaws.fill(0);
        if self.code.is_identity {
            self.mark_short(records, notes.flaws);
            for (record, length) in records.iter().zip(&mut *notes.lengths) {
                out.extend_from_slice(record);
                *length = record.len();
            }
        } else if self.code.variable.is_empty() {
            notes.lengths.fill(self.code.blank.len());
            self.fixed((records, begun), notes.flaws, out);
        } else {
            self.mark_short(records, notes.flaws);
            self.varying(records, notes, out);
        }
        match notes.flaws.iter().fold(0, |all, flaw| all | flaw) {
            0 => records.len(),
            _ => self.take_out(records, notes, start, out, refused),
        }
    }

    /// Notes which records are shorter than the fixed part.
    fn mark_short(&self, records: &[&[u8]], flaws: &mut [u8]) {
        for (flaw, record) in flaws.iter_mut().zip(records) {
            *flaw = u8::from(record.len() < self.body.from.fixed_bytes());
        }
    }

    /// Rows of one length, which the first step may have begun.
    fn fixed(&self, (records, begun): (&[&[u8]], bool), flaws: &mut [u8], out: &mut Vec<u8>) {
        let (code, length) = (&self.code, self.code.blank.len() * records.len());
        if !begun {
            self.mark_short(records, flaws);
            out.extend_from_slice(code.blanks.get(..length).unwrap_or_default());
        }
        let start = out.len() - length;
        for step in code.steps.iter().skip(usize::from(begun)) {
            let rows = out[start..].chunks_exact_mut(code.blank.len());
            step.run(&self.body.from, Many { records: records.iter().copied(), rows, flaws });
        }
    }

    /// Rows of various lengths.
    fn varying(&self, records: &[&[u8]], notes: &mut Notes<'_>, out: &mut Vec<u8>) {
        let start = out.len();
        for ((record, length), flaw) in records.iter().zip(&mut *notes.lengths).zip(&mut *notes.flaws) {
            *length = self.append(record, out).unwrap_or(0);
            *flaw |= u8::from(*length == 0);
        }
        for step in &self.code.steps {
            let rows = Rows { rest: &mut out[start..], lengths: notes.lengths.iter() };
            step.run(&self.body.from, Many { records: records.iter().copied(), rows, flaws: notes.flaws });
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

    /// Takes the rows of records with flaws out again, and reports them; how many are left.
    #[cold]
    fn take_out(
        &self,
        records: &[&[u8]],
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
                refused(index, self.why(records.get(index).copied().unwrap_or_default()));
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
        flaw.unwrap_or_else(|| ConvertError::new(&self.body.to, RefusedPart::Record, ConvertProblem::RecordTooLong))
    }

    fn too_short(&self, bytes: &[u8]) -> ConvertError {
        let problem = ConvertProblem::Length { found: bytes.len(), expected: self.body.from.fixed_bytes() };
        ConvertError::new(&self.body.from, RefusedPart::Record, problem)
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
