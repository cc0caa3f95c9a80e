//! Stream handlers, and the forms of a program.
//!
//! A [`Handler`] takes a batch, a selection of its records, and says with one [`Verdict`] what became of them. A
//! [`SelectHandler`] runs a query's program: its conditions go over the batch column by column and narrow the selection,
//! those of a common form as *kernels* (a load at a known offset and a comparison), the others through the interpreter
//! of `crossdock-query`, which says what a program means. The output is the batch as it came, or new records, copied
//! field by field or computed.
//!
//! A [`HandlerProgram`] says what a handler is made from: a query, or the name of one of the [`Natives`], which are
//! written in Rust, and the values of its parameters. For each format of what comes in, a handler of its own is
//! [made](HandlerProgram::make) of it, off the core; what it then costs, [`measure`] says. Between two batches a handler
//! can hand its state over to the next version of it, and exchange its parameters' values.
//!
//! A [`StatefulHandler`] runs a query that keeps rows or groups between batches: joins and windows.
//!
//! Handlers neither block nor allocate for a record once they are warm, and what they do for a record is bounded by the
//! program and the record's length.
#![forbid(unsafe_code)]

mod codec;
mod filter;
mod handler;
mod identity;
mod kernel;
mod key;
mod measure;
mod native;
mod program;
mod project;
mod row_error;
mod saved;
mod select;
mod snapshot;
mod stateful;
mod warm;

pub use codec::{DecodeHandler, EncodeHandler, MAX_RECORDS_PER_MESSAGE, Messages};
pub use handler::{Handler, HandlerCounters, HandlerState, OperatorCounters, ParameterValues, Sink, Verdict};
pub use identity::{Key, KeyFields, KeyHasher};
pub use measure::{Measured, measure};
pub use native::{Arguments, MAX_KEYS, MAX_WORK_NS, Native, NativeKind, Natives, Parameter, ParameterKind};
pub use program::{HandlerForm, HandlerProgram, HandlerSource, Made, MakeError, Parameters, QueryPart};
pub use row_error::{RowError, RowErrorCounts};
pub use saved::{SavedStateError, TOO_MANY_ROWS, seal_state};
pub use select::{Form, ProgramPart, SelectHandler};
pub use snapshot::{ChangeMerger, SnapshotHandler};
pub use stateful::{SharedTable, StateOrder, StatefulHandler, TableOrder, TableRows, Tables};
pub use warm::WarmPiece;
