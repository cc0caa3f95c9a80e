//! `tally`: running counts and sums by key.

use crossdock_format::{FieldType, Format, Record, Value};
use crossdock_mailbox::{Batch, Selection};

use super::append::Append;
use super::table::Kept;
use super::{Arguments, Native, NativeKind, Parameter, ParameterKind};
use crate::handler::{Handler, HandlerCounters, HandlerState, Sink, Verdict};
use crate::identity::compared;
use crate::kernel::Records;
use crate::program::MakeError;
use crate::warm::WarmPiece;

/// The most keys that a handler keeps something for. Each takes 64 to 72 bytes, so this is about 70 MB; there is room for a power of two.
pub const MAX_KEYS: u64 = 1 << 20;

/// How many keys a handler keeps something for, unless it is said.
pub(super) const MAX_KEYS_PARAMETER: Parameter = Parameter {
    name: "max_keys",
    about: "of how many keys it knows; past that, the one that did not come for the longest is forgotten, and counted",
    kind: ParameterKind::Whole { least: 1, most: MAX_KEYS },
    default: Some("4096"),
    is_tunable: false,
};

pub(super) fn kind() -> NativeKind {
    let fixed = |name, about, kind, default| Parameter { name, about, kind, default, is_tunable: false };
    let parameters = [
        fixed("key", "the fields whose values are counted by", ParameterKind::Fields, None),
        fixed("sum", "the field that is added up, a number; none: only counts", ParameterKind::Fields, Some("")),
        fixed("count_as", "the name of the count, a u64", ParameterKind::Text, Some("count")),
        fixed("sum_as", "the name of the sum, an i64 or f64", ParameterKind::Text, Some("sum")),
        MAX_KEYS_PARAMETER,
    ];
    NativeKind::new("tally", "puts the running count of its key, and a sum, behind each record", &parameters, make)
        .metered()
}

fn make(input: &Format, arguments: &Arguments) -> Result<Native, MakeError> {
    let key = arguments.fields("key", input)?;
    if key.is_empty() {
        return Err(arguments.refuse("key", "it names no field"));
    }
    for &field in &key {
        compared(input, field).map_err(|problem| arguments.refuse("key", problem))?;
    }
    let sum = match arguments.fields("sum", input)?[..] {
        [] => None,
        [field] => Some(summed(input, field).map_err(|problem| arguments.refuse("sum", problem))?),
        _ => return Err(arguments.refuse("sum", "one field is added up, not several")),
    };
    let ty = sum.as_ref().map_or(FieldType::I64, |sum| if sum.is_whole { FieldType::I64 } else { FieldType::F64 });
    let fields = [(arguments.text("count_as"), FieldType::U64), (arguments.text("sum_as"), ty)];
    let fields = &fields[..1 + usize::from(sum.is_some())];
    let append = Append::new(input, fields).map_err(|problem| arguments.refuse("count_as", problem))?;
    let output = append.output().clone();
    let mut state = format!("tally/1 key={}", arguments.names("key").join(","));
    if let Some(sum) = &sum {
        state.push_str(&format!(" sum={} {ty}", input.fields()[sum.field].name));
    }
    let kept = Kept::new(&state, arguments.whole("max_keys") as usize);
    let counters = HandlerCounters::default();
    let tally = Tally { input: input.clone(), key, sum, append, kept, counters };
    Ok((Box::new(tally), output))
}

struct Tally {
    input: Format,
    key: Vec<usize>,
    sum: Option<Summed>,
    append: Append,
    kept: Kept<Counted>,
    counters: HandlerCounters,
}

#[derive(Clone, Copy)]
struct Summed {
    field: usize,
    is_whole: bool,
}

/// The counts of a key.
#[derive(Clone, Copy, Default)]
struct Counted {
    count: u64,
    sum: Sum,
}

/// The sum in the form that it has in a record.
#[derive(Clone, Copy, Default)]
struct Sum([u8; 8]);

fn summed(input: &Format, field: usize) -> Result<Summed, String> {
    match input.fields()[field].ty {
        ty if ty.is_integer() => Ok(Summed { field, is_whole: true }),
        FieldType::F32 | FieldType::F64 => Ok(Summed { field, is_whole: false }),
        ty => Err(format!("`{}` is {ty}; what is added up is a whole number or a float", input.fields()[field].name)),
    }
}

impl Counted {
    /// With one more record; `None` if the sum then does not fit its type.
    fn with(self, value: Value<'_>) -> Option<Counted> {
        let whole = |value: i128| {
            let sum = i128::from(i64::from_le_bytes(self.sum.0)) + value;
            i64::try_from(sum).ok().map(|sum| Sum(sum.to_le_bytes()))
        };
        let sum = match value {
            Value::Int(value) => whole(value.into())?,
            Value::Uint(value) => whole(value.into())?,
            Value::Float(value) => Sum((f64::from_le_bytes(self.sum.0) + value).to_le_bytes()),
            _ => self.sum,
        };
        Some(Counted { count: self.count + 1, sum })
    }
}

impl Handler for Tally {
    fn process(&mut self, batch: &Batch, selection: &mut Selection, out: &mut dyn Sink) -> Verdict {
        let Tally { input, key, sum, append, kept, counters } = self;
        let table = kept.table();
        counters.records_in += selection.len() as u64;
        let mut made = 0;
        let mut records = Records::of(batch);
        for index in &*selection {
            let bytes = records.record(index);
            let record = Record::assume_checked(input, bytes);
            let key = table.key_of(&record, key);
            let (counted, _) = table.entry(key);
            let value = sum.map_or(Value::Null, |sum| record.get(sum.field));
            let row = counted.with(value).and_then(|with| {
                *counted = with;
                append.make(bytes, &[with.count.to_le_bytes(), with.sum.0]).ok()
            });
            match row {
                Some(row) => {
                    out.push(row);
                    made += 1;
                }
                None => counters.row_errors += 1,
            }
        }
        counters.passed += made as u64;
        counters.forgotten += table.take_forgotten();
        Verdict::emit(made)
    }

    fn counters(&self) -> HandlerCounters {
        self.counters
    }

    fn warm(&mut self, piece: &mut WarmPiece) {
        piece.touch_fields(&self.input);
        piece.touch(&self.key);
        self.append.warm(piece);
        self.kept.warm(piece);
        piece.own(std::slice::from_mut(&mut self.counters));
    }

    fn state_kind(&self) -> Option<&str> {
        Some(self.kept.kind())
    }

    fn hand_over(&mut self) -> Option<HandlerState> {
        self.kept.hand_over()
    }

    fn take_over(&mut self, state: HandlerState) -> Result<(), HandlerState> {
        self.kept.take_over(state)
    }
}
