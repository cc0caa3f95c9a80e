//! Conversions from any format to another: drawn from a seed, with their rules, and with what these mean, which a naive
//! conversion follows value by value.

pub(crate) mod naive;

use crate::any::RandomWords;
use crossdock_format::convert::{Rule, Rules, TimeUnit};
use crossdock_format::{FieldSpec, FieldType, Format, TypeSpec};

/// A conversion from one format to another.
#[derive(Clone, Debug)]
pub(crate) struct Conversion {
    pub(crate) to: Format,
    pub(crate) rules: Rules,
    pub(crate) nodes: Vec<Node>,
}

/// A field, nested record or union of the target.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) nullable: bool,
    /// Its source: a path in the layout that the source's field lies in.
    pub(crate) from: Option<String>,
    pub(crate) has_default: bool,
    pub(crate) unit: TimeUnit,
    pub(crate) shape: Shape,
}

#[derive(Clone, Debug)]
pub(crate) enum Shape {
    Leaf(TypeSpec),
    Record(Vec<Node>),
    /// The variants, and those of the source's union that are not among them, nor left out by a rule.
    Union(Vec<Node>, Vec<String>),
    List(Box<Shape>, Option<u32>),
}

impl Shape {
    fn ty(&self) -> TypeSpec {
        let specs = |nodes: &[Node]| nodes.iter().map(Node::spec).collect();
        match self {
            Self::Leaf(ty) => ty.clone(),
            Self::Record(nodes) => TypeSpec::Record(specs(nodes)),
            Self::Union(nodes, _) => TypeSpec::Union(specs(nodes)),
            Self::List(element, count) => TypeSpec::List { element: Box::new(element.ty()), count: *count },
        }
    }
}

impl Node {
    fn spec(&self) -> FieldSpec {
        FieldSpec { nullable: self.nullable, ..FieldSpec::new(&self.name, self.shape.ty()) }
    }
}

/// The text of a default, and what it is.
pub(crate) fn default_text(ty: &TypeSpec) -> &'static str {
    match ty {
        TypeSpec::Scalar(FieldType::Bool) => "true",
        TypeSpec::Scalar(FieldType::F32 | FieldType::F64) => "1.5",
        TypeSpec::Scalar(FieldType::Timestamp) => "2013-01-01T05:00:00.25Z",
        TypeSpec::Scalar(FieldType::Char(_) | FieldType::String) => "a",
        TypeSpec::Scalar(FieldType::Bytes) => "AQID",
        TypeSpec::List { .. } => "[]",
        _ => "1",
    }
}

/// Where members are drawn: their paths in rules, and in the layout that they lie in.
#[derive(Clone)]
struct At {
    from: String,
    layout: String,
    to: String,
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

struct Draw {
    random: RandomWords,
    rules: Rules,
    letter: char,
    names: usize,
}

/// A conversion from a format; new names begin with the letter.
pub(crate) fn conversion(from: &Format, seed: u64, letter: char) -> Conversion {
    let mut draw = Draw { random: RandomWords(seed), rules: Rules::none(), letter, names: 0 };
    let at = At { from: String::new(), layout: String::new(), to: String::new() };
    let (nodes, _) = draw.members(&from.specs(), &at, false);
    let to = Format::natural(nodes.iter().map(Node::spec)).expect("names differ");
    // As text and back, which every rule must survive.
    let rules = draw.rules.to_string().parse().expect("what rules print, they read");
    Conversion { to, rules, nodes }
}

impl Draw {
    fn one_in(&mut self, bound: u64) -> bool {
        self.random.below(bound) == 0
    }

    fn rule(&mut self, rule: Rule) {
        self.rules = std::mem::take(&mut self.rules).with(rule).expect("one rule a field");
    }

    fn name(&mut self) -> String {
        self.names += 1;
        format!("{}{}", self.letter, self.names)
    }

    /// Members of the target made from these of the source, and those that nothing is made of.
    fn members(&mut self, specs: &[FieldSpec], at: &At, are_variants: bool) -> (Vec<Node>, Vec<String>) {
        let (mut nodes, mut lost) = (Vec::new(), Vec::new());
        for spec in specs {
            let (from, layout) = (join(&at.from, &spec.name), join(&at.layout, &spec.name));
            match self.random.below(16) {
                0 => lost.push(layout),
                1 => self.rule(Rule::Drop { field: from }),
                2 if !are_variants => self.wrapped_or_hoisted(spec, at, &mut nodes),
                compat => {
                    let mut name = spec.name.clone();
                    if compat < 5 {
                        name = self.name();
                        self.rule(Rule::Rename { from, to: join(&at.to, &name) });
                    }
                    let node = self.node(spec, name, at, are_variants);
                    nodes.push(node);
                }
            }
        }
        while nodes.is_empty() || self.one_in(4) {
            let name = self.name();
            let node = self.new_node(name, at, are_variants);
            nodes.push(node);
        }
        let turn = self.random.below(nodes.len() as u64) as usize;
        nodes.rotate_left(turn);
        (nodes, lost)
    }

    /// A single value that goes into a nested record, or the fields of a nested record that come out of it.
    fn wrapped_or_hoisted(&mut self, spec: &FieldSpec, at: &At, nodes: &mut Vec<Node>) {
        let inside = At { from: join(&at.from, &spec.name), layout: join(&at.layout, &spec.name), to: at.to.clone() };
        match &spec.ty {
            TypeSpec::Record(fields) => {
                for field in fields {
                    let name = self.name();
                    self.rule(Rule::Rename { from: join(&inside.from, &field.name), to: join(&at.to, &name) });
                    let node = self.node(field, name, &inside, false);
                    nodes.push(node);
                }
            }
            TypeSpec::Union(_) => {}
            _ => {
                let (around, name) = (self.name(), self.name());
                let to = join(&at.to, &around);
                self.rule(Rule::Rename { from: inside.from, to: join(&to, &name) });
                let node = self.node(spec, name, &At { to, ..at.clone() }, false);
                nodes.push(Node {
                    name: around,
                    nullable: self.one_in(2),
                    from: None,
                    has_default: false,
                    unit: TimeUnit::Nanoseconds,
                    shape: Shape::Record(vec![node]),
                });
            }
        }
    }

    /// The node made from a member of the source.
    fn node(&mut self, spec: &FieldSpec, name: String, at: &At, is_variant: bool) -> Node {
        let (to, layout) = (join(&at.to, &name), join(&at.layout, &spec.name));
        let from = join(&at.from, &spec.name);
        let (shape, unit) = self.shape(&spec.ty, &At { from, layout: layout.clone(), to: to.clone() });
        let nullable = match &shape {
            _ if is_variant => false,
            // One that cannot have a variant is refused at once.
            Shape::Union(variants, _) if variants.iter().all(|variant| variant.from.is_none()) => true,
            _ if self.one_in(4) => self.one_in(2),
            _ => spec.nullable,
        };
        let has_default = match &shape {
            Shape::Leaf(_) | Shape::List(_, None) => !is_variant && self.one_in(3),
            _ => false,
        };
        if has_default {
            self.rule(Rule::Default { field: to, value: default_text(&shape.ty()).to_owned() });
        }
        Node { name, nullable, from: Some(layout), has_default, unit, shape }
    }

    fn shape(&mut self, ty: &TypeSpec, at: &At) -> (Shape, TimeUnit) {
        let shape = match ty {
            TypeSpec::Record(fields) => Shape::Record(self.members(fields, at, false).0),
            TypeSpec::Union(variants) => {
                let (variants, lost) = self.members(variants, at, true);
                Shape::Union(variants, lost)
            }
            TypeSpec::List { element, count } => {
                let list = |path: &str| format!("{path}[]");
                let inside = At { from: list(&at.from), layout: String::new(), to: list(&at.to) };
                let inside = match **element {
                    TypeSpec::Record(_) => inside,
                    _ => At { layout: "element".to_owned(), ..inside },
                };
                let (element, unit) = self.shape(element, &inside);
                let count = match (count, self.random.below(8)) {
                    (None, 0) => Some(1 + self.random.below(2) as u32),
                    (Some(_), 0..3) => None,
                    (count, _) => *count,
                };
                return (Shape::List(Box::new(element), count), unit);
            }
            scalar => return self.scalar(scalar, &at.to),
        };
        (shape, TimeUnit::Nanoseconds)
    }

    fn scalar(&mut self, ty: &TypeSpec, to: &str) -> (Shape, TimeUnit) {
        let targets = targets(ty);
        let at = if self.one_in(2) { self.random.below(targets.len() as u64) as usize } else { 0 };
        let target = targets[at].clone();
        let unit = [TimeUnit::Seconds, TimeUnit::Milliseconds, TimeUnit::Microseconds, TimeUnit::Nanoseconds];
        let unit = unit[self.random.below(4) as usize];
        let is_time = |ty: &TypeSpec| *ty == FieldType::Timestamp;
        if is_time(ty) != is_time(&target) {
            self.rule(Rule::Unit { field: to.to_owned(), unit });
        }
        (Shape::Leaf(target), unit)
    }

    /// A node that the source knows nothing of.
    fn new_node(&mut self, name: String, at: &At, is_variant: bool) -> Node {
        let to = join(&at.to, &name);
        let nullable = !is_variant && self.one_in(2);
        if self.one_in(4) {
            // A nested record whose fields are new as well; it is null if it may be.
            let inside = At { to, ..at.clone() };
            let field = self.name();
            let field = self.new_leaf(field, &inside, nullable || is_variant);
            let shape = Shape::Record(vec![field]);
            let unit = TimeUnit::Nanoseconds;
            return Node { name, nullable, from: None, has_default: false, unit, shape };
        }
        Node { nullable: nullable && !is_variant, ..self.new_leaf(name, at, nullable || is_variant) }
    }

    fn new_leaf(&mut self, name: String, at: &At, nullable: bool) -> Node {
        let types = [FieldType::U16, FieldType::String, FieldType::F32, FieldType::Decimal { bytes: 8, scale: 2 }];
        let ty = TypeSpec::from(types[self.random.below(4) as usize]);
        let has_default = !nullable;
        if has_default {
            let value = default_text(&ty).to_owned();
            self.rule(Rule::Default { field: join(&at.to, &name), value });
        }
        Node { name, nullable, from: None, has_default, unit: TimeUnit::Nanoseconds, shape: Shape::Leaf(ty) }
    }
}

/// Types that a value of this one becomes by name; first the same.
fn targets(from: &TypeSpec) -> Vec<TypeSpec> {
    use FieldType as T;
    let integers = [T::I8, T::I16, T::I32, T::I64, T::U8, T::U16, T::U32, T::U64];
    let decimals = [(4, 1), (8, 3), (16, 0), (16, 20)].map(|(bytes, scale)| T::Decimal { bytes, scale });
    let mut scalars: Vec<FieldType> = Vec::new();
    let mut targets = vec![from.clone()];
    match from {
        TypeSpec::Enum { bytes, symbols, .. } => {
            scalars.extend([T::I64, T::I16, T::U8, T::String, T::Char(2), T::Char(1)]);
            targets.push(TypeSpec::Enum {
                bytes: if *bytes == 4 { 2 } else { 4 },
                signed: true,
                symbols: symbols.clone(),
            });
            let others = symbols.iter().enumerate().map(|(at, (symbol, _))| (symbol.clone(), 3 * at as i64));
            targets.push(TypeSpec::Enum { bytes: 1, signed: false, symbols: others.clone().collect() });
            targets.push(TypeSpec::Enum { bytes: 4, signed: true, symbols: others.skip(1).collect() });
        }
        TypeSpec::Scalar(T::Bool | T::Timestamp) => scalars.extend(integers),
        TypeSpec::Scalar(T::Char(_) | T::String | T::Bytes) => {
            scalars.extend([T::String, T::Bytes, T::Char(1), T::Char(8), T::Char(40)]);
            if *from != T::Bytes {
                let symbols = ["", "a", "JFK"].iter().skip(1).zip(5..).map(|(text, at)| ((*text).to_owned(), at));
                targets.push(TypeSpec::Enum { bytes: 2, signed: true, symbols: symbols.collect() });
            }
        }
        TypeSpec::Scalar(T::F32 | T::F64) => scalars.extend(integers.into_iter().chain([T::F32, T::F64])),
        TypeSpec::Scalar(T::Decimal { .. }) => scalars.extend([T::I64, T::U8, T::F64, T::F32]),
        _ => {
            scalars.extend(integers.into_iter().chain([T::F32, T::F64, T::Bool, T::Timestamp]));
            targets.push(TypeSpec::Enum { bytes: 2, signed: false, symbols: vec![("A".to_owned(), 1)] });
        }
    }
    if matches!(from, TypeSpec::Scalar(ty) if ty.is_integer() || matches!(ty, T::F32 | T::F64 | T::Decimal { .. })) {
        scalars.extend(decimals);
    }
    targets.extend(scalars.into_iter().map(TypeSpec::from));
    targets
}
