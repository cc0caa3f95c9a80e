//! `convert`: records of one format as records of another.

use crossdock_format::Format;
use crossdock_format::convert::{Conversion, MESSAGE_FIELD, Plan, Rules};
use crossdock_mailbox::{Batch, Selection};

use super::{Arguments, Native, NativeKind, Parameter, ParameterKind};
use crate::codec::{DecodeHandler, EncodeHandler, Messages};
use crate::handler::{Handler, HandlerCounters, Sink, Verdict};
use crate::kernel::Records;
use crate::program::MakeError;

/// Number of records that are converted at a time: what they become is then still in the first-level cache.
const CHUNK_RECORDS: usize = 64;

pub(super) fn kind() -> NativeKind {
    let text = |name, about, default| Parameter {
        name,
        about,
        kind: ParameterKind::Text,
        default: Some(default),
        is_tunable: false,
    };
    let parameters = [
        text("to", "the format of what is made, as a schema or a description; not for `encode`", ""),
        text("by", "the conversion: rules by field name, `decode ENCODING [FIELD]` or `encode ENCODING`", ""),
    ];
    NativeKind::new("convert", "makes records of another format, or decodes or encodes messages", &parameters, make)
        .metered()
}

fn make(input: &Format, arguments: &Arguments) -> Result<Native, MakeError> {
    let conversion: Conversion =
        arguments.text("by").parse().map_err(|error| arguments.refuse("by", format!("{error}")))?;
    match conversion {
        Conversion::ByName(rules) => by_name(input, &format(arguments)?, &rules, arguments),
        Conversion::Sql(_) => Err(arguments.refuse("by", "a query is a handler by itself: deploy it as SQL")),
        Conversion::Decode(codec) => {
            let to = format(arguments)?;
            let handler = DecodeHandler::new(input, &codec, &to);
            let handler = handler.map_err(|error| arguments.refuse("by", error.to_string()))?;
            Ok((Box::new(handler), to))
        }
        Conversion::Encode(codec) => {
            if codec.field != MESSAGE_FIELD || !arguments.text("to").is_empty() {
                let problem =
                    format!("messages are made in a field `{MESSAGE_FIELD}`, the only one: leave out FIELD and `to`");
                return Err(arguments.refuse("by", problem));
            }
            let handler = EncodeHandler::new(input, &codec, Messages::EachRecord);
            let handler = handler.map_err(|error| arguments.refuse("by", error.to_string()))?;
            let output = handler.output().clone();
            Ok((Box::new(handler), output))
        }
    }
}

fn format(arguments: &Arguments) -> Result<Format, MakeError> {
    let text = arguments.text("to");
    if text.trim().is_empty() {
        return Err(arguments.refuse("to", "the format of what is made is missing"));
    }
    let schema = Format::parse_schema(text);
    schema.or_else(|error| Format::parse(text).map_err(|_| arguments.refuse("to", error.to_string())))
}

fn by_name(input: &Format, to: &Format, rules: &Rules, arguments: &Arguments) -> Result<Native, MakeError> {
    let plan = Plan::by_name(input, to, rules).map_err(|error| arguments.refuse("by", error.to_string()))?;
    let handler = Convert { plan, made: Vec::new(), counters: HandlerCounters::default() };
    Ok((Box::new(handler), to.clone()))
}

struct Convert {
    plan: Plan,
    made: Vec<u8>,
    counters: HandlerCounters,
}

impl Handler for Convert {
    fn process(&mut self, batch: &Batch, selection: &mut Selection, out: &mut dyn Sink) -> Verdict {
        let Convert { plan, made, counters } = self;
        counters.records_in += selection.len() as u64;
        let (mut records, mut selected) = (Records::of(batch), selection.iter());
        let mut passed = 0;
        loop {
            made.clear();
            let mut taken = 0;
            let chunk = selected.by_ref().take(CHUNK_RECORDS).map(|index| {
                taken += 1;
                records.record(index)
            });
            plan.run_all(chunk, made, |_, _| counters.row_errors += 1);
            if taken == 0 {
                break;
            }
            let mut left = &made[..];
            while let Some((record, rest)) = plan.to().record_len(left).and_then(|len| left.split_at_checked(len)) {
                out.push(record);
                (left, passed) = (rest, passed + 1);
            }
        }
        counters.passed += passed as u64;
        Verdict::emit(passed)
    }

    fn counters(&self) -> HandlerCounters {
        self.counters
    }
}
