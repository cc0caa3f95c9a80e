//! Compiles a conversion's text: to plans by field name, and to programs of queries.

use crate::planner::assert_off_contexts;
use crossdock_control::conversions::Cost;
use crossdock_engine::{DecodeHandler, EncodeHandler, Handler};
use crossdock_format::convert::{Codec, Conversion, MESSAGE_FIELD, Plan, Rule, Rules, expected_bytes};
use crossdock_format::{FieldSpec, FieldType, Format, ReadCost};
use crossdock_query::{Node, Program, Projection};
use std::collections::BTreeSet;

/// Estimated costs of a query's program, in ps: for a record, for each copied field, and for each computed field.
const SELECT_PS: (u64, u64, u64) = (15_000, 1500, 20_000);

/// Estimated costs of a message in some encoding, in ps: for the message, and for each of its fields.
const MESSAGE_PS: (u64, u64) = (100_000, 30_000);

/// A part of a chain that one pass over a batch carries out.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    /// By field name.
    Plan(Plan),
    /// By expressions.
    Select(Box<Program>),
    /// From or to messages in some encoding.
    Messages(Box<Messages>),
}

/// The description from which a handler of [`crossdock_engine`] that decodes or encodes messages is made.
#[derive(Clone, Debug)]
pub(crate) struct Messages {
    from: Format,
    to: Format,
    codec: Codec,
    encodes: bool,
}

impl Messages {
    /// The indices of the fields that decoding reads: the message's, and those of all that is kept beside it.
    fn reads(&self) -> Vec<usize> {
        let Codec { field, keep, .. } = &self.codec;
        let is_read = |name: &str| {
            let in_kept = |kept: &String| {
                name == kept || name.strip_prefix(kept.as_str()).is_some_and(|rest| rest.starts_with('.'))
            };
            name == field || keep.iter().any(in_kept)
        };
        let fields = self.from.fields().iter().enumerate();
        fields.filter(|(_, field)| is_read(&field.name)).map(|(index, _)| index).collect()
    }

    /// The handler.
    ///
    /// # Errors
    /// The mismatch, in words.
    pub(crate) fn handler(&self) -> Result<Box<dyn Handler + Send>, String> {
        // A schema may be compiled for it.
        assert_off_contexts();
        let Messages { from, to, codec, encodes } = self;
        let each = crossdock_engine::Messages::EachRecord;
        Ok(match encodes {
            true => Box::new(EncodeHandler::new(from, codec, each).map_err(|error| error.to_string())?),
            false => Box::new(DecodeHandler::new(from, codec, to).map_err(|error| error.to_string())?),
        })
    }
}

/// A checked conversion: it makes a record of the target format of any source record that it does not refuse.
#[derive(Clone, Debug)]
pub(crate) struct Compiled {
    pub(crate) from: Format,
    pub(crate) to: Format,
    /// As it was registered.
    pub(crate) conversion: Conversion,
    pub(crate) parts: Vec<Part>,
    pub(crate) cost: Cost,
}

impl Compiled {
    /// Checks a conversion and compiles it.
    ///
    /// # Errors
    /// The error in words: in its text, or a field that cannot be made.
    pub(crate) fn new(from: &Format, to: &Format, text: &str) -> Result<Compiled, String> {
        assert_off_contexts();
        let conversion: Conversion = text.parse().map_err(|error| format!("{error}"))?;
        let parts = match &conversion {
            Conversion::ByName(rules) => vec![Part::Plan(by_name(from, to, rules)?)],
            Conversion::Sql(sql) => select(from, to, sql)?,
            Conversion::Decode(codec) => vec![messages(from, to, codec, false)?],
            Conversion::Encode(codec) => encode(from, to, codec)?,
        };
        let cost = parts.iter().map(Part::cost).fold(Cost::default(), |sum, cost| Cost {
            ps: sum.ps.saturating_add(cost.ps),
            in_bytes: expected_bytes(from),
            out_bytes: cost.out_bytes,
        });
        Ok(Compiled { from: from.clone(), to: to.clone(), conversion, parts, cost })
    }
}

fn by_name(from: &Format, to: &Format, rules: &Rules) -> Result<Plan, String> {
    Plan::by_name(from, to, rules).map_err(|error| error.to_string())
}

fn messages(from: &Format, to: &Format, codec: &Codec, encodes: bool) -> Result<Part, String> {
    let messages = Messages { from: from.clone(), to: to.clone(), codec: codec.clone(), encodes };
    messages.handler().map(|_| Part::Messages(Box::new(messages)))
}

/// The parts that encode records as messages, and put these into the target's field.
fn encode(from: &Format, to: &Format, codec: &Codec) -> Result<Vec<Part>, String> {
    let message = FieldSpec::new(MESSAGE_FIELD, FieldType::Bytes);
    let made = Format::natural([message]).map_err(|error| error.to_string())?;
    let mut parts = vec![messages(from, &made, codec, true)?];
    if made.id() != to.id() {
        let rename = Rule::Rename { from: MESSAGE_FIELD.to_owned(), to: codec.field.clone() };
        let rules = if codec.field == MESSAGE_FIELD { Ok(Rules::none()) } else { Rules::none().with(rename) };
        parts.push(Part::Plan(by_name(&made, to, &rules.map_err(|error| error.to_string())?)?));
    }
    Ok(parts)
}

/// The parts of a query: its program, and a plan to the target's types and field order, if they differ.
fn select(from: &Format, to: &Format, sql: &str) -> Result<Vec<Part>, String> {
    let program =
        crossdock_query::parse(sql).and_then(|select| select.plan(from)).map_err(|error| error.to_string())?;
    if !program.filter.is_empty() {
        return Err(
            "a conversion produces one record for each record: leave out WHERE; a subscriber's query can have one"
                .to_owned(),
        );
    }
    let made = program.output.clone();
    let mut parts = match program.projection {
        Projection::All => Vec::new(),
        Projection::Fields(_) => vec![Part::Select(Box::new(program))],
    };
    if parts.is_empty() || made.id() != to.id() {
        parts.push(Part::Plan(by_name(&made, to, &Rules::none())?));
    }
    Ok(parts)
}

impl Part {
    /// The format of the records that it reads.
    pub(crate) fn from(&self) -> &Format {
        match self {
            Part::Plan(plan) => plan.from(),
            Part::Select(program) => &program.input,
            Part::Messages(messages) => &messages.from,
        }
    }

    /// The fields that each of its fields is made of, and whether some record is refused there.
    pub(crate) fn dependencies(&self) -> Vec<(Vec<usize>, bool)> {
        match self {
            Part::Plan(plan) => plan.dependencies(),
            Part::Select(program) => program.dependencies(),
            // One field's bytes are all fields of the other side, and a flaw anywhere refuses the message.
            Part::Messages(messages) => {
                let reads: Vec<usize> = match messages.encodes {
                    true => (0..messages.from.fields().len()).collect(),
                    false => messages.reads(),
                };
                vec![(reads, true); messages.to.fields().len()]
            }
        }
    }

    /// The same part for records with only the fields that it then reads, making only the fields in `makes`; `None`
    /// where that is not possible.
    pub(crate) fn narrowed(&self, from: &Format, makes: &[bool]) -> Option<Part> {
        match self {
            Part::Plan(plan) => plan.narrowed(from, makes).map(Part::Plan),
            Part::Select(program) => program.narrowed(from, makes).map(Box::new).map(Part::Select),
            Part::Messages(of) if *from == of.from => Some(self.clone()),
            // Encoding reads all fields.
            Part::Messages(of) if of.encodes => None,
            Part::Messages(of) => messages(from, &of.to, &of.codec, false).ok(),
        }
    }

    /// The format of the records that it makes.
    pub(crate) fn to(&self) -> &Format {
        match self {
            Part::Plan(plan) => plan.to(),
            Part::Select(program) => &program.output,
            Part::Messages(messages) => &messages.to,
        }
    }

    /// Its estimated cost for a record.
    pub(crate) fn cost(&self) -> Cost {
        match self {
            Part::Plan(plan) => plan_cost(plan),
            Part::Select(program) => {
                let (record, copied, computed) = SELECT_PS;
                let fields = match &program.projection {
                    Projection::All => &[][..],
                    Projection::Fields(outputs) => outputs,
                };
                let field = |node: &Node| if matches!(node, Node::Field(_)) { copied } else { computed };
                let ps = record + fields.iter().map(|output| field(&output.expr.node)).sum::<u64>();
                Cost { ps, in_bytes: expected_bytes(&program.input), out_bytes: expected_bytes(&program.output) }
            }
            Part::Messages(messages) => {
                let (from, to) = (&messages.from, &messages.to);
                let fields = from.fields().len().max(to.fields().len()) as u64;
                let ps = MESSAGE_PS.0 + MESSAGE_PS.1 * fields;
                Cost { ps, in_bytes: expected_bytes(from), out_bytes: expected_bytes(to) }
            }
        }
    }

    /// Describes it for people.
    pub(crate) fn describe(&self) -> String {
        match self {
            Part::Plan(plan) => {
                let read: BTreeSet<usize> = plan.dependencies().into_iter().flat_map(|(reads, _)| reads).collect();
                let fields = plan.from().fields();
                let costly = |index: &&usize| fields.get(**index).is_some_and(|f| f.read_cost() != ReadCost::Load);
                match read.iter().filter(costly).count() {
                    0 => format!("by name, {} of {} fields", read.len(), fields.len()),
                    // Of a foreign layout; what that costs the path's measure says.
                    some => format!(
                        "by name, {} of {} fields, {some} that cost more than a plain load",
                        read.len(),
                        fields.len()
                    ),
                }
            }
            Part::Messages(messages) => {
                let Messages { codec, encodes, .. } = &**messages;
                let (verb, preposition) = if *encodes { ("encoded as", "in") } else { ("decoded from", "of") };
                format!("{verb} {} {preposition} field {}", codec.encoding, codec.field)
            }
            Part::Select(program) => match &program.projection {
                Projection::All => "unchanged".to_owned(),
                Projection::Fields(outputs) => {
                    let sql = |output: &crossdock_query::Output| match output.expr.sql(&program.input).to_string() {
                        sql if sql == output.name => sql,
                        sql => format!("{sql} AS {}", output.name),
                    };
                    format!("computed: {}", outputs.iter().map(sql).collect::<Vec<_>>().join(", "))
                }
            },
        }
    }
}

/// The estimated cost of a plan by field name for a record.
pub(crate) fn plan_cost(plan: &Plan) -> Cost {
    let cost = plan.cost();
    Cost { ps: u64::from(cost.ns_per_record) * 1000, in_bytes: cost.bytes_in, out_bytes: cost.bytes_out }
}

/// Fuses the parts of a chain into as few as possible: consecutive plans become one, and intermediate fields that no
/// later part needs are not made.
pub(crate) fn fuse(parts: impl IntoIterator<Item = Part>) -> Vec<Part> {
    let mut fused: Vec<Part> = Vec::new();
    for part in parts {
        match (fused.last_mut(), part) {
            (Some(Part::Plan(before)), Part::Plan(plan)) => match before.compose(&plan) {
                Some(both) => *before = both,
                None => fused.push(Part::Plan(plan)),
            },
            (_, part) => fused.push(part),
        }
    }
    fused
}
