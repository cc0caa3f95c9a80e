//! Batches of given records.
#![allow(dead_code)] // each test takes what it needs

use crossdock_engine::{Handler, SelectHandler, Sink, Verdict};
use crossdock_format::{Record, RecordBuilder};
use crossdock_mailbox::{Batch, Pool, PoolConfig, Selection, Slice, Span};
use crossdock_query::{Interpreter, Program, Projection};

/// Counts rows and keeps none.
pub(crate) struct RowCount(pub(crate) usize);

impl Sink for RowCount {
    fn push(&mut self, _record: &[u8]) {
        self.0 += 1;
    }
}

/// The records, packed into slices of a few, in buffers that they fill to the end.
pub(crate) fn batch(records: &[Vec<u8>]) -> Batch {
    let mut batch = Batch::new();
    for packet in records.chunks(3) {
        let bytes: usize = packet.iter().map(Vec::len).sum();
        let mut pool = Pool::new(PoolConfig { classes: vec![(bytes.max(1), 1)] }).unwrap();
        let mut buffer = pool.alloc(bytes).unwrap();
        // The buffer's length is rounded up; the records stand at its end, so that nothing may be read behind them.
        let start = buffer.capacity() - bytes;
        let mut at = start;
        let slice = batch.slices.len() as u16;
        for record in packet {
            buffer[at..at + record.len()].copy_from_slice(record);
            batch.records.push(Span { slice, start: at as u32, len: record.len() as u32 });
            at += record.len();
        }
        let buffer = batch.push_buffer(buffer.freeze()).unwrap();
        let slice = Slice { buffer, start: start as u32, len: bytes as u32, records: packet.len() as u32 };
        batch.push_slice(slice).unwrap();
    }
    batch.select_all();
    batch
}

/// The interpreter's result for the selected records: those that leave, unchanged or new, and how many row errors.
pub(crate) fn interpreted(
    program: &Program,
    records: &[Vec<u8>],
    selected: &[usize],
) -> (Vec<usize>, Vec<Vec<u8>>, u64) {
    let mut interpreter = Interpreter::new();
    let mut row = RecordBuilder::new(&program.output);
    let (mut passed, mut rows, mut row_errors) = (Vec::new(), Vec::new(), 0);
    for &index in selected {
        let record = Record::check(&program.input, &records[index]).unwrap();
        match interpreter.matches(program, &record) {
            Ok(true) => passed.push(index),
            Ok(false) => continue,
            Err(_) => {
                row_errors += 1;
                continue;
            }
        }
        match program.projection {
            Projection::All => rows.push(records[index].clone()),
            Projection::Fields(_) => match interpreter.project(program, &record, &mut row) {
                Ok(()) => rows.push(row.finish().unwrap().to_vec()),
                Err(_) => row_errors += 1,
            },
        }
    }
    (passed, rows, row_errors)
}

/// Runs the handler over the selected records and holds it to the interpreter.
pub(crate) fn hold_to_interpreter(program: &Program, records: &[Vec<u8>], selected: &[usize]) -> Result<(), String> {
    let batch = batch(records);
    let mut selection = Selection::all(records.len());
    selection.narrow(|index| selected.contains(&index));
    let mut handler = SelectHandler::new(program.clone());
    let mut sink: Vec<Vec<u8>> = Vec::new();
    let verdict = handler.process(&batch, &mut selection, &mut sink);
    let (passed, rows, row_errors) = interpreted(program, records, selected);
    let is_whole = matches!(program.projection, Projection::All);
    let expected = match rows.len() {
        0 => Verdict::Drop,
        _ if is_whole => Verdict::Forward,
        count => Verdict::Emit(count),
    };
    let found: Vec<usize> = selection.iter().collect();
    let emitted = if is_whole { found.iter().map(|&index| records[index].clone()).collect() } else { sink };
    let counters = handler.counters();
    for (what, is_same) in [
        ("the records that pass WHERE", found == passed),
        ("the rows", emitted == rows),
        ("the verdict", verdict == expected),
        ("the row errors", counters.row_errors == row_errors),
        ("the records that came in", counters.records_in == selected.len() as u64),
        ("the records that passed", counters.passed == rows.len() as u64),
    ] {
        if !is_same {
            return Err(format!(
                "{what} differ for {}\n{:?}\nfound {found:?} {verdict:?} {counters:?}\nexpected {passed:?} {expected:?} {row_errors}\n\
                 rows {emitted:?}\nexpected {rows:?}",
                program.sql,
                handler.steps()
            ));
        }
    }
    Ok(())
}
