//! Events, and handlers of one query that they go through.
#![allow(dead_code)] // each test takes what it needs

pub(crate) mod sql;

use std::sync::Arc;

use crossdock_engine::{Handler, HandlerCounters, StatefulHandler};
use crossdock_format::{Format, Record, RecordBuilder, Value};
use crossdock_mailbox::Selection;
use crossdock_query::{Operator, Port, Program, Stage, StageInput, StageOutput, StatefulProgram, parse};
use proptest::prelude::*;

use crate::support;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Event {
    pub(crate) ts: i64,
    pub(crate) k: Option<String>,
    pub(crate) v: Option<i64>,
    pub(crate) s: String,
    pub(crate) b: Option<bool>,
}

pub(crate) fn format() -> Format {
    Format::parse_schema("ts timestamp\nk string null\nv i64 null\ns string\nb bool null\n").unwrap()
}

impl Event {
    fn record(&self, row: &mut RecordBuilder) -> Vec<u8> {
        row.clear();
        row.set_timestamp(0, self.ts).unwrap();
        self.k.iter().for_each(|k| row.set_text(1, k).unwrap());
        self.v.iter().for_each(|v| row.set_i64(2, *v).unwrap());
        row.set_text(3, &self.s).unwrap();
        self.b.iter().for_each(|b| row.set_bool(4, *b).unwrap());
        row.finish().unwrap().to_vec()
    }

    /// As a row shows it.
    pub(crate) fn shown(&self) -> String {
        let opt = |value: Option<String>| value.unwrap_or("null".to_owned());
        let (v, b) = (self.v.map(|v| v.to_string()), self.b.map(|b| b.to_string()));
        format!("{}|{}|{}|{}|{}", self.ts, opt(self.k.clone()), opt(v), self.s, opt(b))
    }
}

/// Up to `most` events at times from -20 to 100.
pub(crate) fn events(most: usize) -> impl Strategy<Value = Vec<Event>> {
    let key = prop::option::weighted(0.9, prop::sample::select(vec!["a", "b", "a key of more than sixteen bytes", ""]));
    let event = (-20..100i64, key, prop::option::weighted(0.8, -5..5i64), "[a-c]{0,2}", any::<Option<bool>>());
    let event = event.prop_map(|(ts, k, v, s, b)| Event { ts, k: k.map(str::to_owned), v, s, b });
    prop::collection::vec(event, 1..most)
}

/// A row that closes what is open.
pub(crate) fn flush() -> Event {
    Event { ts: 1_000_000, k: Some("flush".to_owned()), v: None, s: String::new(), b: None }
}

/// The events in an order of arrival in which none is more than `lateness` older than the newest before it.
pub(crate) fn shuffled(events: &[Event], lateness: i64, seed: u64) -> Vec<Event> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut delayed: Vec<(i64, Event)> =
        events.iter().map(|event| (event.ts + random.i64(0..=lateness), event.clone())).collect();
    random.shuffle(&mut delayed);
    delayed.sort_by_key(|(at, _)| *at);
    delayed.into_iter().map(|(_, event)| event).collect()
}

pub(crate) fn input(lateness_ns: u64) -> StageInput {
    StageInput { row: format(), time: Some(0), lateness_ns, derived: None }
}

pub(crate) fn all_of(rows: &Format) -> Program {
    parse("SELECT * FROM rows").unwrap().plan(rows).unwrap()
}

pub(crate) fn of_stages(stages: Vec<Stage>) -> StatefulProgram {
    StatefulProgram { sql: String::new(), stages, sources: Vec::new(), max_state_bytes: 1 << 30, changes: false }
}

pub(crate) fn one_stage(operator: Operator, rows: Format, lateness_ns: u64) -> StatefulProgram {
    let inputs = if matches!(operator, Operator::Aggregate(_)) { 1 } else { 2 };
    let outputs = vec![StageOutput { then: all_of(&rows), to: None }];
    of_stages(vec![Stage { inputs: vec![input(lateness_ns); inputs], operator, rows, outputs }])
}

/// Handlers that take turns, and what leaves them.
pub(crate) struct QueryRun {
    /// For each input of the first stage, handlers of its stream.
    handlers: Vec<Vec<StatefulHandler>>,
    turn: (usize, usize),
    turns: usize,
    output: Format,
    pub(crate) rows: Vec<String>,
}

impl QueryRun {
    pub(crate) fn readers(program: &StatefulProgram, input: usize) -> Vec<(Port, Program)> {
        let read = parse("SELECT ts, k, v, s, b FROM s").unwrap().plan(&format()).unwrap();
        assert_eq!(program.stages[0].inputs[input].row, read.output);
        vec![(Port { stage: 0, input }, read)]
    }

    pub(crate) fn new(program: &Arc<StatefulProgram>, handlers: usize) -> QueryRun {
        let make = |input| {
            let make = || StatefulHandler::new(Arc::clone(program), QueryRun::readers(program, input)).unwrap();
            (0..handlers).map(|_| make()).collect()
        };
        let handlers = (0..program.stages[0].inputs.len()).map(make).collect();
        QueryRun { handlers, turn: (0, 0), turns: 0, output: program.output().clone(), rows: Vec::new() }
    }

    /// The handler that has the state.
    pub(crate) fn handler(&self) -> &StatefulHandler {
        &self.handlers[self.turn.0][self.turn.1]
    }

    pub(crate) fn state_bytes(&self) -> usize {
        self.handler().state_bytes()
    }

    /// Records of an input's stream, through the next of its handlers.
    pub(crate) fn feed(&mut self, input: usize, events: &[Event]) {
        self.turns += 1;
        let next = (input, self.turns % self.handlers[input].len());
        if next != self.turn {
            let state = self.handlers[self.turn.0][self.turn.1].hand_over().unwrap();
            self.handlers[next.0][next.1].take_over(state).unwrap();
            self.turn = next;
        }
        let mut row = RecordBuilder::new(&format());
        let records: Vec<Vec<u8>> = events.iter().map(|event| event.record(&mut row)).collect();
        let batch = support::batch(&records);
        let mut selection = Selection::all(batch.len());
        let mut out: Vec<Vec<u8>> = Vec::new();
        let _ = self.handlers[next.0][next.1].process(&batch, &mut selection, &mut out);
        self.show(&out);
    }

    pub(crate) fn advance(&mut self, now_ns: u64) -> usize {
        let mut out: Vec<Vec<u8>> = Vec::new();
        let made = self.handlers[self.turn.0][self.turn.1].advance(now_ns, &mut out);
        assert_eq!(made, out.len());
        self.show(&out);
        made
    }

    fn show(&mut self, out: &[Vec<u8>]) {
        self.rows.extend(out.iter().map(|row| show(&self.output, row)));
    }

    /// The counts of all handlers together.
    pub(crate) fn counters(&self) -> HandlerCounters {
        sum_of(self.handlers.iter().flatten().map(Handler::counters))
    }
}

/// A row's values with `|` between them.
pub(crate) fn show(format: &Format, row: &[u8]) -> String {
    let record = Record::check(format, row).unwrap();
    let value = |field: usize| match record.get(field) {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) | Value::Timestamp(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Float(value) => value.to_string(),
        Value::Decimal { unscaled, .. } => unscaled.to_string(),
        Value::Text(text) => String::from_utf8_lossy(text).into_owned(),
        value => format!("{value:?}"),
    };
    let fields: Vec<String> = (0..format.fields().len()).map(value).collect();
    fields.join("|")
}

pub(crate) fn sum_of(all: impl Iterator<Item = HandlerCounters>) -> HandlerCounters {
    let mut sum = HandlerCounters::default();
    for counters in all {
        sum.records_in += counters.records_in;
        sum.passed += counters.passed;
        sum.taken += counters.taken;
        sum.late += counters.late;
        sum.forgotten += counters.forgotten;
        sum.row_errors += counters.row_errors;
        sum.stage_errors += counters.stage_errors;
    }
    sum
}
