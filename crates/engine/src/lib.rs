//! Stream handlers and the forms of a program.
#![forbid(unsafe_code)]
#![allow(missing_docs)]
use crossdock_format::{Record, RecordBuilder};
use crossdock_mailbox::{Batch, Selection};
use crossdock_query::{Interpreter, Program, Projection};
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict { Forward, Emit(usize), Hold, Drop, HandOn }
pub trait Sink { fn push(&mut self, record: &[u8]); }
#[derive(Clone, Copy, Debug, Default)]
pub struct HandlerCounters { pub records_in: u64, pub passed: u64, pub row_errors: u64 }
pub trait Handler: Send { fn process(&mut self, batch: &Batch, selection: &mut Selection, out: &mut dyn Sink) -> Verdict; fn counters(&self) -> HandlerCounters; }
pub struct SelectHandler { program: Program, row: RecordBuilder, interp: Interpreter, counters: HandlerCounters }
impl SelectHandler { pub fn new(program: Program) -> Self { let row = RecordBuilder::new(&program.output); SelectHandler { program, row, interp: Interpreter::new(), counters: Default::default() } } }
impl Handler for SelectHandler {
    fn counters(&self) -> HandlerCounters { self.counters }
    fn process(&mut self, batch: &Batch, selection: &mut Selection, out: &mut dyn Sink) -> Verdict {
        let SelectHandler { program, row, interp, counters } = self;
        if !program.filter.is_empty() {
            selection.narrow(|i| match interp.matches(program, &Record::assume_checked(&program.input, batch.record(i))) { Ok(m) => m, Err(_) => { counters.row_errors += 1; false } });
        }
        if selection.is_empty() { return Verdict::Drop; }
        if matches!(program.projection, Projection::All) { return Verdict::Forward; }
        let mut n = 0;
        for i in selection.iter() { row.clear(); match interp.project(program, &Record::assume_checked(&program.input, batch.record(i)), row) { Ok(()) => if let Ok(b) = row.finish() { out.push(b); n += 1; }, Err(_) => counters.row_errors += 1 } }
        Verdict::Emit(n)
    }
}
