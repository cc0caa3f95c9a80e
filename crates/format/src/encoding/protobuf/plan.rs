//! A message type and a format together: for each field number, what is done with its value.

use super::schema::{Message, Presence, ProtoField, ProtoType, ProtobufSchema, VALUE};
use super::wire::{self, Wire};
use crate::builder::Place;
use crate::element::{Count, Group};
use crate::encoding::{EncodingError, EncodingProblem};
use crate::field::{Field, FieldType, enum_range};
use crate::format::Format;
use crate::shape::{Items, Named, Shape};

/// Most lists, nested messages and `oneof` fields that one message may have.
pub(super) const MAX_MARKS: usize = 256;

/// The plan for messages of a type, and how errors name the fields.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) root: MessagePlan,
    pub(super) nested: Vec<Nested>,
    pub(super) labels: Vec<Label>,
}

/// A field for messages.
#[derive(Clone, Debug)]
pub(super) struct Label {
    pub(super) path: String,
    pub(super) field: Option<Field>,
    /// Whether null is written as if it were a default value.
    pub(super) loses_null: bool,
}

/// The plan for the fields of a message, ordered by their numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct MessagePlan {
    pub(super) steps: Box<[FieldPlan]>,
    /// Fields that are zero where the message has nothing for them; lists that are empty.
    pub(super) zeros: Box<[Place]>,
    pub(super) oneofs: Box<[OneOfPlan]>,
}

/// Fields where the last one counts.
#[derive(Clone, Debug)]
pub(super) struct OneOfPlan {
    pub(super) group: Group,
    pub(super) mark: u16,
    /// The marks of its fields.
    pub(super) marks: Vec<u16>,
}

/// One field of a message, and where its values go.
#[derive(Clone, Copy, Debug)]
pub(super) struct FieldPlan {
    /// The tag that the field's values have.
    pub(super) tag: u32,
    pub(super) presence: Presence,
    pub(super) op: Op,
    pub(super) place: Place,
    pub(super) label: u32,
    /// Where it is noted that there was such a field, for those where that is of interest.
    pub(super) mark: u16,
    /// The group that it is one of, and one more.
    pub(super) oneof: u16,
}

/// The plan for a field that is not a single value.
#[derive(Clone, Debug)]
pub(super) enum Nested {
    Message {
        group: Option<Box<Group>>,
        plan: MessagePlan,
    },
    List(ListPlan),
    /// A message whose only field is the list's.
    Wrapped(ListPlan),
}

/// How a list's elements are read and written.
#[derive(Clone, Debug)]
pub(super) struct ListPlan {
    pub(super) field: usize,
    /// Of one element that stands alone.
    pub(super) element: FieldPlan,
    /// The tag of several behind one length, where that can be, and whether they are written so.
    pub(super) packed: Option<(u32, bool)>,
    /// Of the elements, where they are records.
    pub(super) record: Option<MessagePlan>,
}

/// How a value is read and stored.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Op {
    /// The low 32 bits of a varint.
    Var32,
    /// A varint.
    Var64,
    Zig32,
    Zig64,
    Fixed32,
    Fixed64,
    Bool,
    /// A `float` into an `f64`.
    Widen,
    /// An integer whose type is not the field's own.
    Integer(Number, Range),
    Char,
    Text,
    Bytes,
    Timestamp,
    /// Digits as text.
    Decimal,
    /// Something nested, of this index: behind a length, or, for a group, between tags.
    Nested {
        index: u32,
        is_group: bool,
    },
}

/// How an integer stands on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Number {
    /// `int32`: the low 32 bits of a varint.
    Int32,
    /// `int64`.
    Int64,
    Uint32,
    Uint64,
    Sint32,
    Sint64,
    Fixed32,
    Fixed64,
    Sfixed32,
    Sfixed64,
}

/// The integers that a field has room for, as far as they fit into 64 bits with a sign.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Range {
    pub(super) least: i64,
    pub(super) most: i64,
}

/// The purpose of plans.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    Read { ignore_unknown: bool },
    Write,
}

impl Plan {
    /// The plan that reads or writes records of this format as messages of this type.
    pub(super) fn of(schema: &ProtobufSchema, format: &Format, purpose: Purpose) -> Result<Self, EncodingError> {
        // The layout that records are built in.
        let format = if purpose == Purpose::Write { format } else { format.natural_format() };
        let plan = Plan { root: MessagePlan::default(), nested: Vec::new(), labels: Vec::new() };
        let mut compiler = Compiler { schema, purpose, plan };
        let root = compiler.message(schema.root(), &Named::all(format, ""), "", format)?;
        Ok(Plan { root, ..compiler.plan })
    }
}

impl MessagePlan {
    /// The step for a tag's field number. Messages mostly have their fields in the order of their numbers: those behind
    /// the last one are looked at first.
    #[inline]
    pub(super) fn find(&self, likely: usize, tag: u32) -> Option<usize> {
        const LOOK_AHEAD: usize = 8;
        let number = wire::number(tag);
        for (index, step) in self.steps.iter().enumerate().skip(likely).take(LOOK_AHEAD) {
            if wire::number(step.tag) >= number {
                if wire::number(step.tag) == number {
                    return Some(index);
                }
                break;
            }
        }
        self.steps.binary_search_by_key(&number, |step| wire::number(step.tag)).ok()
    }
}

struct Compiler<'a> {
    schema: &'a ProtobufSchema,
    purpose: Purpose,
    plan: Plan,
}

/// A message's plan, as it is made.
#[derive(Default)]
struct Parts {
    steps: Vec<FieldPlan>,
    zeros: Vec<Place>,
    oneofs: Vec<OneOfPlan>,
    marks: usize,
    /// Whether the message is the record, and not in another one.
    is_root: bool,
}

impl Parts {
    fn next_mark(&mut self) -> Result<u16, EncodingError> {
        self.marks += 1;
        match u16::try_from(self.marks - 1) {
            Ok(mark) if usize::from(mark) < MAX_MARKS => Ok(mark),
            _ => {
                let message = format!("a message has more than {MAX_MARKS} lists, messages and `oneof` fields");
                Err(EncodingError::schema(message))
            }
        }
    }
}

impl Compiler<'_> {
    fn label(&mut self, path: &str, field: Option<&Field>) -> u32 {
        self.plan.labels.push(Label { path: path.to_owned(), field: field.cloned(), loses_null: false });
        // Fewer than there are fields in both.
        (self.plan.labels.len() - 1) as u32
    }

    fn place(&self, index: usize, target: &Named, format: &Format) -> Result<Place, EncodingError> {
        Place::of(format, index)
            .ok_or_else(|| EncodingError::schema("the format has no such field").in_field(&target.path))
    }

    fn nested(&mut self, nested: Nested, is_group: bool) -> Op {
        self.plan.nested.push(nested);
        Op::Nested { index: (self.plan.nested.len() - 1) as u32, is_group }
    }

    /// The plan of a message for these fields of the format, or of the elements of the list that they lie in.
    fn message(
        &mut self,
        message: &Message,
        members: &[Named],
        path: &str,
        format: &Format,
    ) -> Result<MessagePlan, EncodingError> {
        let mut parts = Parts { is_root: path.is_empty(), ..Parts::default() };
        let mut found = vec![false; members.len()];
        for field in &message.fields {
            let name = field.oneof.map_or_else(|| field.own_name(), |oneof| message.oneofs[oneof].own_name());
            let Some(index) = members.iter().position(|member| member.name == name) else {
                self.unknown(field, name, members, path)?;
                continue;
            };
            found[index] = true;
            match (&members[index].shape, field.oneof) {
                (Shape::Union(group, variants), Some(_)) => {
                    self.variant(field, (group, variants), &members[index], &mut parts, format)?;
                }
                _ if field.oneof.is_some() => {
                    let message = "the message has a `oneof`, which goes with a union only".to_owned();
                    return Err(EncodingError::schema(message).in_field(&members[index].path));
                }
                _ => self.field(field, &members[index], &mut parts, 0, format)?,
            }
        }
        let lacks = members
            .iter()
            .zip(&found)
            .find(|(member, found)| !**found && (self.purpose == Purpose::Write || !member.may_be_missing()));
        if let Some((member, _)) = lacks {
            let message = format!("message {} has no such field", message.name);
            return Err(EncodingError::schema(message).in_field(&member.path));
        }
        let Parts { mut steps, zeros, oneofs, .. } = parts;
        steps.sort_by_key(|step| step.tag);
        Ok(MessagePlan { steps: steps.into(), zeros: zeros.into(), oneofs: oneofs.into() })
    }

    /// A field of the message that the format lacks.
    fn unknown(&self, field: &ProtoField, name: &str, members: &[Named], path: &str) -> Result<(), EncodingError> {
        let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        match self.purpose {
            Purpose::Read { ignore_unknown: false } => {
                let known: Vec<&str> = members.iter().take(20).map(|member| member.name.as_str()).collect();
                Err(EncodingError::new(EncodingProblem::Unknown { known: known.join(", ") }).in_field(path))
            }
            Purpose::Write if field.presence == Presence::Required => {
                Err(EncodingError::schema("the format lacks it, and every message has it").in_field(path))
            }
            _ => Ok(()),
        }
    }

    fn variant(
        &mut self,
        field: &ProtoField,
        (group, variants): (&Group, &[Named]),
        target: &Named,
        parts: &mut Parts,
        format: &Format,
    ) -> Result<(), EncodingError> {
        let Some(variant) = variants.iter().find(|variant| variant.name == field.own_name()) else {
            let message = format!("the message's `oneof` has `{}`, and the format's union does not", field.own_name());
            return Err(EncodingError::schema(message).in_field(&target.path));
        };
        let known = parts.oneofs.iter().position(|known| known.group.path == group.path);
        let index = match known {
            Some(index) => index,
            None => {
                let mark = parts.next_mark()?;
                parts.oneofs.push(OneOfPlan { group: group.clone(), mark, marks: Vec::new() });
                parts.oneofs.len() - 1
            }
        };
        // Fewer than MAX_MARKS.
        self.field(field, variant, parts, index as u16 + 1, format)
    }

    /// Adds what is done with a field; `oneof` is one more than the index of its group.
    fn field(
        &mut self,
        field: &ProtoField,
        target: &Named,
        parts: &mut Parts,
        oneof: u16,
        format: &Format,
    ) -> Result<(), EncodingError> {
        let is_zero = field.presence == Presence::Implicit && field.kind != ProtoType::Timestamp && oneof == 0;
        let is_list = matches!(field.presence, Presence::Repeated { .. });
        let (index, own) = match &target.shape {
            Shape::Leaf(index, own) => (*index, Some(own)),
            _ => (0, None),
        };
        let (op, wire) = self.op(field, target, false, format)?;
        let mut place = self.place(index, target, format)?;
        if is_zero && parts.is_root {
            // The record starts from zero.
            place = place.promised();
        }
        // A list of a fixed number of elements has no default.
        let may_be_empty = own.and_then(Field::element).is_none_or(|element| element.count == Count::Slot);
        if is_zero || (is_list && may_be_empty) {
            parts.zeros.push(place);
        }
        let is_marked = matches!(op, Op::Nested { .. }) || oneof > 0;
        let mark = if is_marked { parts.next_mark()? } else { 0 };
        if let Some(oneof) = parts.oneofs.get_mut(usize::from(oneof).wrapping_sub(1)) {
            oneof.marks.push(mark);
        }
        let label = self.label(&target.path, own);
        if let Some(label) = self.plan.labels.last_mut() {
            label.loses_null =
                target.nullable && oneof == 0 && (is_zero || is_list || field.presence == Presence::Required);
        }
        let tag = wire::tag(field.number, wire);
        parts.steps.push(FieldPlan { tag, presence: field.presence, op, place, label, mark, oneof });
        Ok(())
    }

    /// How values of a message's field become the target's, and their wire type.
    fn op(
        &mut self,
        field: &ProtoField,
        target: &Named,
        is_element: bool,
        format: &Format,
    ) -> Result<(Op, Wire), EncodingError> {
        let schema = self.schema;
        let is_list = matches!(field.presence, Presence::Repeated { .. }) && !is_element;
        match (&target.shape, field.kind) {
            (Shape::Leaf(index, own), _) if is_list => {
                let list = self.list(field, (*index, own), target)?;
                let wire = match list.packed {
                    Some((_, true)) => Wire::Length,
                    _ => Wire::of(list.element.tag).unwrap_or(Wire::Length),
                };
                Ok((self.nested(Nested::List(list), false), wire))
            }
            (Shape::Leaf(index, own), ProtoType::Message(message)) if own.ty == FieldType::List => {
                match schema.wrapped(message) {
                    Some(inner) => {
                        let list = self.list(inner, (*index, own), target)?;
                        Ok((self.nested(Nested::Wrapped(list), false), Wire::Length))
                    }
                    None => Err(mismatch(field, target)),
                }
            }
            (Shape::Leaf(_, own), _) => op_of(field, own).ok_or_else(|| mismatch(field, target)),
            (Shape::Record(group, members), ProtoType::Message(message) | ProtoType::Group(message)) if !is_list => {
                let plan = self.message(&schema.messages[message], members, &target.path, format)?;
                let group = group.optional.is_some().then(|| Box::new(group.clone()));
                let is_group = matches!(field.kind, ProtoType::Group(_));
                let wire = if is_group { Wire::Start } else { Wire::Length };
                Ok((self.nested(Nested::Message { group, plan }, is_group), wire))
            }
            // A union where no `oneof` can be: a message that has one.
            (Shape::Union(..), ProtoType::Message(message)) if !is_list => {
                let inner = Named { name: VALUE.to_owned(), ..target.clone() };
                let plan = self.message(&schema.messages[message], &[inner], &target.path, format)?;
                Ok((self.nested(Nested::Message { group: None, plan }, false), Wire::Length))
            }
            _ => Err(mismatch(field, target)),
        }
    }

    fn list(
        &mut self,
        field: &ProtoField,
        (index, own): (usize, &Field),
        target: &Named,
    ) -> Result<ListPlan, EncodingError> {
        let Some(element) = own.element() else {
            return Err(mismatch(field, target));
        };
        let (items, format) = (Items::of(element, &target.path), element.format());
        let label = self.label(&target.path, Some(own));
        let place = self.place(0, target, format)?;
        let step = |op: Op, wire: Wire, label: u32| FieldPlan {
            tag: wire::tag(field.number, wire),
            // An element is there, whatever it is.
            presence: Presence::Optional,
            op,
            place,
            label,
            mark: 0,
            oneof: 0,
        };
        let packed = match field.presence {
            Presence::Repeated { packed } if field.kind.is_packable() => {
                Some((wire::tag(field.number, Wire::Length), packed))
            }
            _ => None,
        };
        match (&items, field.kind) {
            (Items::Record(members), ProtoType::Message(message) | ProtoType::Group(message)) => {
                let is_group = matches!(field.kind, ProtoType::Group(_));
                let plan =
                    self.message(&self.schema.messages[message], members, &format!("{}[]", target.path), format)?;
                let wire = if is_group { Wire::Start } else { Wire::Length };
                let op = Op::Nested { index: u32::MAX, is_group };
                let element = step(op, wire, label);
                Ok(ListPlan { field: index, element, packed: None, record: Some(plan) })
            }
            (Items::Scalar(named), _) => {
                let (op, wire) = self.op(field, named, true, format)?;
                let own = match &named.shape {
                    Shape::Leaf(_, own) => Some(own),
                    _ => None,
                };
                let label = self.label(&named.path, own);
                let element = step(op, wire, label);
                Ok(ListPlan { field: index, element, packed, record: None })
            }
            _ => Err(mismatch(field, target)),
        }
    }
}

/// How single values of a message's field become values of the format's, and their wire type.
fn op_of(field: &ProtoField, own: &Field) -> Option<(Op, Wire)> {
    let ty = own.ty;
    let number = match field.kind {
        ProtoType::Int32 | ProtoType::Enum(_) => Number::Int32,
        ProtoType::Int64 => Number::Int64,
        ProtoType::Uint32 => Number::Uint32,
        ProtoType::Uint64 => Number::Uint64,
        ProtoType::Sint32 => Number::Sint32,
        ProtoType::Sint64 => Number::Sint64,
        ProtoType::Fixed32 => Number::Fixed32,
        ProtoType::Fixed64 => Number::Fixed64,
        ProtoType::Sfixed32 => Number::Sfixed32,
        ProtoType::Sfixed64 => Number::Sfixed64,
        _ => return other_op_of(field, ty),
    };
    let (least, most) = match ty {
        FieldType::Enum { bytes, signed } => enum_range(bytes, signed),
        _ => ty.integer_range()?,
    };
    let wire = match number {
        Number::Fixed32 | Number::Sfixed32 => Wire::Fixed32,
        Number::Fixed64 | Number::Sfixed64 => Wire::Fixed64,
        _ => Wire::Varint,
    };
    if Some(ty) != field.kind.field_type() {
        // Beyond i64 is only what a u64 holds: `Number::Uint64` into `u64`, which is no conversion.
        let clamp = |bound: i128| bound.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        return Some((Op::Integer(number, Range { least: clamp(least), most: clamp(most) }), wire));
    }
    let op = match number {
        Number::Int32 | Number::Uint32 => Op::Var32,
        Number::Int64 | Number::Uint64 => Op::Var64,
        Number::Sint32 => Op::Zig32,
        Number::Sint64 => Op::Zig64,
        Number::Fixed32 | Number::Sfixed32 => Op::Fixed32,
        Number::Fixed64 | Number::Sfixed64 => Op::Fixed64,
    };
    Some((op, wire))
}

fn other_op_of(field: &ProtoField, ty: FieldType) -> Option<(Op, Wire)> {
    Some(match (field.kind, ty) {
        (ProtoType::Bool, FieldType::Bool) => (Op::Bool, Wire::Varint),
        (ProtoType::Float, FieldType::F32) => (Op::Fixed32, Wire::Fixed32),
        (ProtoType::Float, FieldType::F64) => (Op::Widen, Wire::Fixed32),
        (ProtoType::Double, FieldType::F64) => (Op::Fixed64, Wire::Fixed64),
        (ProtoType::String, FieldType::String) => (Op::Text, Wire::Length),
        (ProtoType::String, FieldType::Char(_)) => (Op::Char, Wire::Length),
        (ProtoType::String, FieldType::Decimal { .. }) => (Op::Decimal, Wire::Length),
        (ProtoType::Bytes, FieldType::Bytes) => (Op::Bytes, Wire::Length),
        (ProtoType::Timestamp, FieldType::Timestamp) => (Op::Timestamp, Wire::Length),
        _ => return None,
    })
}

fn mismatch(field: &ProtoField, target: &Named) -> EncodingError {
    let own = match &target.shape {
        Shape::Leaf(_, own) => crate::notation::one_line(&own.type_spec()),
        Shape::Record(..) => "a record".to_owned(),
        Shape::Union(..) => "a union".to_owned(),
    };
    let repeated = if matches!(field.presence, Presence::Repeated { .. }) { "repeated " } else { "" };
    let message = format!("the message has {repeated}{}, which does not go with {own}", field.kind.word());
    EncodingError::schema(message).in_field(&target.path)
}
