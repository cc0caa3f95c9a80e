//! A schema and a format together: for each type of the schema in its order, what is done with its value.

use super::schema::{AvroField, AvroSchema, AvroType, Logical, VALUE};
use crate::builder::Place;
use crate::element::Group;
use crate::encoding::{EncodingError, EncodingProblem};
use crate::field::{Field, FieldType, enum_range};
use crate::format::Format;
use crate::shape::{Items, Named, Shape};

/// Most steps that are looked for to make a plan.
const MAX_WORK: usize = 1 << 18;

/// The plan for a record's values, and how errors name them.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) steps: Vec<ValuePlan>,
    pub(super) labels: Vec<Label>,
    /// Those of the fields that lie in no list: Avro has a value for each.
    pub(super) places: Vec<Place>,
}

/// A field for messages.
#[derive(Clone, Debug)]
pub(super) struct Label {
    pub(super) path: String,
    pub(super) field: Option<Field>,
}

/// The plan for a value of the schema.
#[derive(Clone, Debug)]
pub(super) enum ValuePlan {
    Leaf(Leaf),
    /// A value of this type that the format has no field for.
    Skip(usize),
    /// A branch of this type in a union, for a field that goes with other branches only: an error of the record.
    Refuse(usize, u32),
    Record(Option<Box<Group>>, Vec<ValuePlan>),
    /// A union: which of its branches is there, as a number, then that one.
    Branches(Vec<ValuePlan>, u32),
    /// The branch of a union that is null: nothing, for this.
    Null(Absent),
    List(Box<List>),
    /// A field that may be null, and that the schema lacks, has its default.
    Default(usize),
}

/// One value.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    pub(super) op: Op,
    pub(super) place: Place,
    /// Where the value is one of a union with null: which of the two branches is null.
    pub(super) null: Option<u8>,
    pub(super) label: u32,
}

/// An array or a map.
#[derive(Clone, Debug)]
pub(super) struct List {
    pub(super) field: usize,
    pub(super) is_record: bool,
    /// Of one element.
    pub(super) steps: Vec<ValuePlan>,
    pub(super) label: u32,
}

/// The meaning of null.
#[derive(Clone, Debug)]
pub(super) enum Absent {
    Leaf(Place),
    Group(Box<Group>),
}

/// How a value is read and stored.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Bool,
    Int32,
    Int64,
    /// An `int` or `long` whose type is not the field's own: the least and the greatest that the field has room for.
    Integer(i64, i64),
    Float,
    Double,
    /// A `float` into an `f64`.
    Widen,
    /// An `int` or `long` into a float, as the nearest of them: Avro's promotion, for reading.
    IntegerToF32,
    IntegerToF64,
    Text,
    Bytes,
    Fixed(usize),
    /// A time in units of this many nanoseconds.
    Time(i64),
    /// The number of each symbol of the schema, where the field has one.
    Symbols(Box<[Option<i64>]>),
    /// Of this many bytes, or behind their number.
    Decimal(Option<usize>),
}

/// The purpose of plans.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    Read { ignore_unknown: bool },
    Write,
}

impl Plan {
    /// The plan that reads or writes records of this format by this schema.
    pub(super) fn of(schema: &AvroSchema, format: &Format, purpose: Purpose) -> Result<Self, EncodingError> {
        // The layout that records are built in.
        let format = if purpose == Purpose::Write { format } else { format.natural_format() };
        let plan = Plan { steps: Vec::new(), labels: Vec::new(), places: Vec::new() };
        let mut compiler = Compiler { schema, purpose, plan, root: format, work: 0 };
        let members = Named::all(format, "");
        compiler.plan.steps = compiler.fields(schema.root, &members, "", format)?;
        // Attempts that were refused may have hidden it.
        compiler.check_work("")?;
        Ok(compiler.plan)
    }
}

struct Compiler<'a> {
    schema: &'a AvroSchema,
    root: &'a Format,
    purpose: Purpose,
    plan: Plan,
    /// Steps that were looked for so far: types that lie in several unions are looked at again and again.
    work: usize,
}

impl Compiler<'_> {
    fn label(&mut self, path: &str, field: Option<&Field>) -> u32 {
        self.plan.labels.push(Label { path: path.to_owned(), field: field.cloned() });
        // Fewer than there are steps, and there are `MAX_WORK` steps at most.
        (self.plan.labels.len() - 1) as u32
    }

    /// The fields of a record of the schema, for these of the format, or of the elements of the list that they lie in.
    fn fields(
        &mut self,
        record: usize,
        members: &[Named],
        path: &str,
        format: &Format,
    ) -> Result<Vec<ValuePlan>, EncodingError> {
        let schema = self.schema;
        let AvroType::Record(fields) = &schema.ty(record).kind else {
            return Err(EncodingError::schema("the schema has no record for it").in_field(path));
        };
        let mut found = vec![false; members.len()];
        let mut steps = Vec::with_capacity(fields.len());
        let names: Vec<String> = fields.iter().map(own_name).collect();
        let sources = self.sources(members, &names);
        for (field, name) in fields.iter().zip(&names) {
            match sources.iter().position(|source| *source == Some(name)) {
                Some(index) => {
                    found[index] = true;
                    steps.push(self.step(field.ty, &members[index], format)?);
                }
                None => steps.push(self.unknown(field, name, members, path)?),
            }
        }
        let lacks = members
            .iter()
            .zip(&found)
            .find(|(member, found)| !**found && (self.purpose == Purpose::Write || !member.may_be_missing()));
        match lacks {
            Some((member, _)) => {
                let message = format!("record {} has no such field", schema.ty(record).name);
                Err(EncodingError::schema(message).in_field(&member.path))
            }
            None => {
                let missing = members.iter().zip(&found).filter(|(_, found)| !**found);
                missing.for_each(|(member, _)| defaults(member, &mut steps));
                Ok(steps)
            }
        }
    }

    /// Which of the schema's names each member is read from or written to: its own, or the first of its aliases that there is and
    /// that is no other member's own.
    fn sources<'n>(&self, members: &[Named], names: &'n [String]) -> Vec<Option<&'n String>> {
        let find = |wanted: &String| names.iter().find(|name| *name == wanted);
        let is_own = |name: &String| members.iter().any(|member| member.name == *name);
        let by_alias = |member: &Named| {
            let evolution = member.evolution.as_ref().filter(|_| self.purpose != Purpose::Write)?;
            evolution.aliases.iter().filter(|alias| !is_own(alias)).find_map(find)
        };
        let mut sources: Vec<_> =
            members.iter().map(|member| find(&member.name).or_else(|| by_alias(member))).collect();
        for at in 1..sources.len() {
            if sources[at].is_some() && sources[..at].contains(&sources[at]) {
                sources[at] = None;
            }
        }
        sources
    }

    /// A field of the schema that the format lacks.
    fn unknown(
        &self,
        field: &AvroField,
        name: &str,
        members: &[Named],
        path: &str,
    ) -> Result<ValuePlan, EncodingError> {
        let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        match self.purpose {
            Purpose::Read { ignore_unknown: true } => Ok(ValuePlan::Skip(field.ty)),
            Purpose::Read { .. } => {
                let known: Vec<&str> = members.iter().take(20).map(|member| member.name.as_str()).collect();
                Err(EncodingError::new(EncodingProblem::Unknown { known: known.join(", ") }).in_field(path))
            }
            Purpose::Write => match self.null_branch(field.ty) {
                Some(_) => Ok(ValuePlan::Skip(field.ty)),
                None => Err(EncodingError::schema("the format lacks it, and every record has it").in_field(path)),
            },
        }
    }

    fn null_branch(&self, ty: usize) -> Option<usize> {
        match &self.schema.ty(ty).kind {
            AvroType::Union(branches) => {
                branches.iter().position(|branch| self.schema.ty(*branch).kind == AvroType::Null)
            }
            _ => None,
        }
    }

    fn step(&mut self, ty: usize, target: &Named, format: &Format) -> Result<ValuePlan, EncodingError> {
        self.work += 1;
        self.check_work(&target.path)?;
        let schema = self.schema;
        match (&schema.ty(ty).kind, &target.shape) {
            (AvroType::Union(branches), Shape::Union(group, variants)) => {
                self.union(branches, target, (group, variants), format)
            }
            (AvroType::Union(branches), Shape::Leaf(_, field))
                if branches.len() == 2 && field.ty != FieldType::List =>
            {
                self.nullable_leaf(ty, branches, target, format)
            }
            (AvroType::Union(branches), _) => self.branches(branches, target, format),
            (_, Shape::Union(_, variants)) if self.is_read() => self.variant(ty, variants, target, format),
            (AvroType::Record(_), Shape::Record(group, members)) => {
                let steps = self.fields(ty, members, &target.path, format)?;
                let group = group.optional.is_some().then(|| Box::new(group.clone()));
                Ok(ValuePlan::Record(group, steps))
            }
            (AvroType::Record(_), Shape::Leaf(..)) => match schema.wrapped(ty) {
                Some(inner) => self.step(inner, target, format),
                None => Err(self.mismatch(ty, target)),
            },
            (AvroType::Array(element) | AvroType::Map(element), Shape::Leaf(index, field))
                if field.ty == FieldType::List =>
            {
                let is_map = matches!(schema.ty(ty).kind, AvroType::Map(_));
                self.list(ty, *element, is_map, *index, field, target)
            }
            (_, Shape::Leaf(..)) => self.leaf(ty, target, None, format),
            _ => Err(self.mismatch(ty, target)),
        }
    }

    fn check_work(&self, path: &str) -> Result<(), EncodingError> {
        if self.work <= MAX_WORK {
            return Ok(());
        }
        Err(EncodingError::schema("the schema has too many types that lie in several unions").in_field(path))
    }

    fn is_read(&self) -> bool {
        self.purpose != Purpose::Write
    }

    /// A step, or nothing changed.
    fn attempt(&mut self, ty: usize, target: &Named, format: &Format) -> Result<ValuePlan, EncodingError> {
        let (labels, places) = (self.plan.labels.len(), self.plan.places.len());
        let step = self.step(ty, target, format);
        if step.is_err() {
            self.plan.labels.truncate(labels);
            self.plan.places.truncate(places);
        }
        step
    }

    /// A union for a target that is none: which branch is there is known for each value only. For reading, at least one has to go
    /// with the target.
    fn branches(&mut self, branches: &[usize], target: &Named, format: &Format) -> Result<ValuePlan, EncodingError> {
        let field = match &target.shape {
            Shape::Leaf(_, field) => Some(field),
            Shape::Record(..) | Shape::Union(..) => None,
        };
        let label = self.label(&target.path, field);
        let mut steps = Vec::with_capacity(branches.len());
        let (mut any, mut refused) = (false, None);
        for branch in branches {
            let is_null = self.schema.ty(*branch).kind == AvroType::Null;
            steps.push(match self.attempt_branch(*branch, target, format) {
                Err(error) if self.is_read() && !is_null => {
                    refused.get_or_insert(error);
                    ValuePlan::Refuse(*branch, label)
                }
                step => {
                    any |= !is_null;
                    step?
                }
            });
        }
        match refused.filter(|_| !any) {
            Some(error) => Err(error),
            None => Ok(ValuePlan::Branches(steps, label)),
        }
    }

    fn attempt_branch(&mut self, branch: usize, target: &Named, format: &Format) -> Result<ValuePlan, EncodingError> {
        match self.schema.ty(branch).kind {
            AvroType::Null => self.branch(branch, target, format),
            _ => self.attempt(branch, target, format),
        }
    }

    /// A value for a union: its variant is the one of the type's name, else the first that a type without a name can be promoted
    /// to.
    fn variant(
        &mut self,
        ty: usize,
        variants: &[Named],
        target: &Named,
        format: &Format,
    ) -> Result<ValuePlan, EncodingError> {
        let name = self.schema.variant_name(ty);
        let is_alias = |variant: &&Named| {
            let evolution = variant.evolution.as_ref().filter(|_| self.is_read());
            evolution.is_some_and(|evolution| evolution.aliases.contains(&name))
        };
        let by_name = variants.iter().find(|variant| variant.name == name);
        if let Some(variant) = by_name.or_else(|| variants.iter().find(is_alias)) {
            return self.step(ty, variant, format);
        }
        let found = self.schema.ty(ty);
        let is_promotion = |variant: &&Named| match &variant.shape {
            Shape::Leaf(_, field) => {
                self.is_read() && found.logical == Logical::None && promotes(&found.kind, field.ty)
            }
            Shape::Record(..) | Shape::Union(..) => false,
        };
        match variants.iter().find(is_promotion) {
            Some(variant) => self.step(ty, variant, format),
            None => {
                let message =
                    format!("the schema has a type `{name}` for it, which goes with none of the format's variants");
                Err(EncodingError::schema(message).in_field(&target.path))
            }
        }
    }

    /// A branch of a union whose value is the target's, whichever it is.
    fn branch(&mut self, branch: usize, target: &Named, format: &Format) -> Result<ValuePlan, EncodingError> {
        if self.schema.ty(branch).kind != AvroType::Null {
            return self.step(branch, target, format);
        }
        Ok(ValuePlan::Null(match &target.shape {
            Shape::Leaf(index, _) => Absent::Leaf(self.place(*index, target, format)?),
            Shape::Record(group, _) | Shape::Union(group, _) => Absent::Group(Box::new(group.clone())),
        }))
    }

    fn nullable_leaf(
        &mut self,
        ty: usize,
        branches: &[usize],
        target: &Named,
        format: &Format,
    ) -> Result<ValuePlan, EncodingError> {
        let null = self.null_branch(ty);
        let other = null.and_then(|null| branches.get(1 - null)).copied();
        match (null, other) {
            (Some(null), Some(other))
                if !matches!(self.schema.ty(other).kind, AvroType::Null | AvroType::Record(_)) =>
            {
                self.leaf(other, target, u8::try_from(null).ok(), format)
            }
            _ => self.branches(branches, target, format),
        }
    }

    fn union(
        &mut self,
        branches: &[usize],
        target: &Named,
        (group, variants): (&Group, &[Named]),
        format: &Format,
    ) -> Result<ValuePlan, EncodingError> {
        let label = self.label(&target.path, None);
        let mut steps = Vec::with_capacity(branches.len());
        for branch in branches {
            if self.schema.ty(*branch).kind == AvroType::Null {
                steps.push(ValuePlan::Null(Absent::Group(Box::new(group.clone()))));
                continue;
            }
            steps.push(self.variant(*branch, variants, target, format)?);
        }
        if self.purpose == Purpose::Write && steps.len() < variants.len() {
            let message = "the schema's union has no branch for some of the format's variants";
            return Err(EncodingError::schema(message).in_field(&target.path));
        }
        Ok(ValuePlan::Branches(steps, label))
    }

    fn list(
        &mut self,
        ty: usize,
        element: usize,
        is_map: bool,
        field: usize,
        target: &Field,
        named: &Named,
    ) -> Result<ValuePlan, EncodingError> {
        let Some(own) = target.element() else {
            return Err(self.mismatch(ty, named));
        };
        let (items, format) = (Items::of(own, &named.path), own.format());
        let label = self.label(&named.path, Some(target));
        let is_element_record = matches!(self.schema.ty(element).kind, AvroType::Record(_));
        let (is_record, steps) = match (&items, is_map) {
            (Items::Record(members), true) => match &members[..] {
                [key, value] => (true, vec![self.key(key, format)?, self.step(element, value, format)?]),
                _ => return Err(self.mismatch(ty, named)),
            },
            (Items::Scalar(_), true) => return Err(self.mismatch(ty, named)),
            (Items::Record(members), false) => match &members[..] {
                [value] if value.name == VALUE && !is_element_record => {
                    (true, vec![self.step(element, value, format)?])
                }
                members => (true, self.fields(element, members, &format!("{}[]", named.path), format)?),
            },
            (Items::Scalar(value), false) => (false, vec![self.step(element, value, format)?]),
        };
        Ok(ValuePlan::List(Box::new(List { field, is_record, steps, label })))
    }

    /// A map's keys are text.
    fn key(&mut self, target: &Named, format: &Format) -> Result<ValuePlan, EncodingError> {
        match &target.shape {
            Shape::Leaf(index, field) if field.ty.is_text() => {
                let label = self.label(&target.path, Some(field));
                let place = self.place(*index, target, format)?;
                Ok(ValuePlan::Leaf(Leaf { op: Op::Text, place, null: None, label }))
            }
            _ => Err(EncodingError::schema("the keys of Avro's maps are text").in_field(&target.path)),
        }
    }

    fn place(&self, index: usize, target: &Named, format: &Format) -> Result<Place, EncodingError> {
        let place = Place::of(format, index)
            .ok_or_else(|| EncodingError::schema("the format has no such field").in_field(&target.path))?;
        Ok(if format == self.root { place.promised() } else { place })
    }

    fn leaf(
        &mut self,
        ty: usize,
        target: &Named,
        null: Option<u8>,
        format: &Format,
    ) -> Result<ValuePlan, EncodingError> {
        let Shape::Leaf(index, field) = &target.shape else {
            return Err(self.mismatch(ty, target));
        };
        let Some(op) = self.op(ty, field) else {
            return Err(self.mismatch(ty, target));
        };
        let place = self.place(*index, target, format)?;
        self.plan.places.push(place);
        let label = self.label(&target.path, Some(field));
        Ok(ValuePlan::Leaf(Leaf { op, place, null, label }))
    }

    fn op(&self, ty: usize, field: &Field) -> Option<Op> {
        let found = self.schema.ty(ty);
        let integer = |(least, most): (i128, i128)| {
            // A bound beyond `long` is never found.
            let clamp = |bound: i128| bound.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
            Op::Integer(clamp(least), clamp(most))
        };
        let is_read = self.is_read();
        Some(match (&found.kind, found.logical, field.ty) {
            (_, Logical::Timestamp(unit), FieldType::Timestamp) => Op::Time(unit),
            (AvroType::Fixed(size), Logical::Decimal { scale, .. }, FieldType::Decimal { scale: own, .. })
                if scale == own =>
            {
                Op::Decimal(Some(*size))
            }
            (AvroType::Bytes, Logical::Decimal { scale, .. }, FieldType::Decimal { scale: own, .. })
                if scale == own =>
            {
                Op::Decimal(None)
            }
            (_, Logical::Decimal { .. }, FieldType::Decimal { .. }) => return None,
            (AvroType::Boolean, _, FieldType::Bool) => Op::Bool,
            (AvroType::Int, _, FieldType::I32) => Op::Int32,
            (AvroType::Long, _, FieldType::I64) => Op::Int64,
            (AvroType::Int | AvroType::Long, _, FieldType::Enum { bytes, signed }) => {
                integer(enum_range(bytes, signed))
            }
            (AvroType::Int | AvroType::Long, _, FieldType::F32) if is_read => Op::IntegerToF32,
            (AvroType::Int | AvroType::Long, _, FieldType::F64) if is_read => Op::IntegerToF64,
            (AvroType::Int | AvroType::Long, _, ty) => integer(ty.integer_range()?),
            (AvroType::Float, _, FieldType::F32) => Op::Float,
            (AvroType::Float, _, FieldType::F64) => Op::Widen,
            (AvroType::Double, _, FieldType::F64) => Op::Double,
            (AvroType::String, _, FieldType::String | FieldType::Char(_)) => Op::Text,
            (AvroType::Bytes, _, FieldType::String | FieldType::Char(_)) if is_read => Op::Text,
            (AvroType::Bytes, _, FieldType::Bytes) => Op::Bytes,
            (AvroType::String, _, FieldType::Bytes) if is_read => Op::Bytes,
            (AvroType::Fixed(size), _, FieldType::Bytes) => Op::Fixed(*size),
            (AvroType::Enum(symbols), _, FieldType::Enum { .. }) => {
                let enumeration = field.enumeration()?;
                let unknown = field.unknown_number().filter(|_| is_read);
                Op::Symbols(symbols.iter().map(|symbol| enumeration.number(symbol).or(unknown)).collect())
            }
            _ => return None,
        })
    }

    fn mismatch(&self, ty: usize, target: &Named) -> EncodingError {
        let own = match &target.shape {
            Shape::Leaf(_, field) => crate::notation::one_line(&field.type_spec()),
            Shape::Record(..) => "a record".to_owned(),
            Shape::Union(..) => "a union".to_owned(),
        };
        let message = format!("the schema has {}, which does not go with {own}", self.schema.ty(ty).kind.word());
        EncodingError::schema(message).in_field(&target.path)
    }
}

/// Gives what a member comes to its defaults, as far as it is there.
fn defaults(member: &Named, steps: &mut Vec<ValuePlan>) {
    match &member.shape {
        // Those that are never null have theirs without that.
        Shape::Leaf(index, field) if member.nullable && field.default_text().is_some() => {
            steps.push(ValuePlan::Default(*index));
        }
        Shape::Record(_, members) if !member.nullable => members.iter().for_each(|member| defaults(member, steps)),
        _ => {}
    }
}

/// The name of the format's field that a field of the schema is.
fn own_name(field: &AvroField) -> String {
    let noted = field.note.as_deref().and_then(|note| Format::parse_schema(note).ok());
    let spec = noted.and_then(|format| format.specs().into_iter().next());
    spec.map_or_else(|| field.name.clone(), |spec| spec.name)
}

/// Whether a value of a type without a name is one of a field's type, or can be promoted to it (Avro 1.12, "Schema Resolution").
fn promotes(from: &AvroType, to: FieldType) -> bool {
    match from {
        AvroType::Boolean => to == FieldType::Bool,
        AvroType::Int => matches!(to, FieldType::I32 | FieldType::I64 | FieldType::F32 | FieldType::F64),
        AvroType::Long => matches!(to, FieldType::I64 | FieldType::F32 | FieldType::F64),
        AvroType::Float => matches!(to, FieldType::F32 | FieldType::F64),
        AvroType::Double => to == FieldType::F64,
        AvroType::Bytes | AvroType::String => matches!(to, FieldType::Bytes | FieldType::String),
        AvroType::Null
        | AvroType::Fixed(_)
        | AvroType::Enum(_)
        | AvroType::Array(_)
        | AvroType::Map(_)
        | AvroType::Union(_)
        | AvroType::Record(_) => false,
    }
}
