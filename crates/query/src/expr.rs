//! Typed expression code: what a checked query is made of.
//!
//! Every node knows its type and whether it can be null. Names are gone: a field is an index into the format that the
//! program was planned for. The meaning of a node is what [`crate::Interpreter`] does with it.

use crossdock_format::FieldType;

use crate::decimal::Decimal;
use crate::error::Position;
use crate::function::{Body, Function, Prepared};
use crate::interpret::MAX_MADE_TEXT_BYTES;

/// An expression that was checked: its operands fit its node, and `ty` and `nullable` are what it gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    /// The computation.
    pub node: Node,
    /// The type of the result.
    pub ty: FieldType,
    /// Whether the result can be null.
    pub nullable: bool,
}

/// The computation of an expression. Operands are boxed expressions; conditions follow SQL's three-valued logic.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// A field of the record, by its index in the format.
    Field(usize),
    /// A value that is known.
    Const(Constant),
    /// A value that stands for a parameter, and can be another one tomorrow.
    Parameter(Box<Parameter>),
    /// `left op right`; null if an operand is null. Numbers compare exactly, whatever their types; text and bytes by
    /// their bytes; NaN equals itself and is greater than every other number.
    Compare {
        /// Which comparison.
        op: CompareOp,
        /// The left operand.
        left: Box<Expr>,
        /// The right operand, of the same class of types.
        right: Box<Expr>,
    },
    /// `left op ANY(right)`: the comparison with one of the elements of a list, or with each, joined by OR; with ALL by AND. Of no
    /// elements the one is FALSE and the other TRUE; null if the list is null.
    Quantified {
        /// Which comparison.
        op: CompareOp,
        /// ALL.
        is_all: bool,
        /// The left operand, of the class of the elements.
        left: Box<Expr>,
        /// The list.
        right: Box<Expr>,
    },
    /// `left IS [NOT] DISTINCT FROM right`; never null.
    Distinct {
        /// IS NOT DISTINCT FROM.
        negated: bool,
        /// The left operand.
        left: Box<Expr>,
        /// The right operand.
        right: Box<Expr>,
    },
    /// All of them hold. From left to right, up to the first that is FALSE.
    And(Vec<Expr>),
    /// One of them holds. From left to right, up to the first that is TRUE.
    Or(Vec<Expr>),
    /// TRUE for FALSE, FALSE for TRUE, null for null.
    Not(Box<Expr>),
    /// `operand IS [NOT] NULL`; never null.
    IsNull {
        /// IS NOT NULL.
        negated: bool,
        /// The tested operand.
        operand: Box<Expr>,
    },
    /// `operand IS [NOT] TRUE | FALSE | UNKNOWN`; never null.
    IsTruth {
        /// TRUE, FALSE, or `None` for UNKNOWN.
        truth: Option<bool>,
        /// IS NOT.
        negated: bool,
        /// The tested operand, a condition.
        operand: Box<Expr>,
    },
    /// `operand [NOT] IN (list)`: `=` with each, joined by OR. From left to right, up to the first that is equal.
    In {
        /// NOT IN.
        negated: bool,
        /// The operand that is looked for.
        operand: Box<Expr>,
        /// Where; never empty.
        list: Vec<Expr>,
    },
    /// `operand [NOT] BETWEEN low AND high`: `operand >= low AND operand <= high`.
    Between {
        /// NOT BETWEEN.
        negated: bool,
        /// The compared operand.
        operand: Box<Expr>,
        /// The least value that is within.
        low: Box<Expr>,
        /// The greatest value that is within.
        high: Box<Expr>,
    },
    /// `operand [NOT] LIKE pattern`: `%` stands for any text, `_` for one character.
    Like(Box<Like>),
    /// `left op right` over numbers. Integers are computed exactly and must fit 64 bits, signed; decimals exactly and must
    /// fit 128; floats in 64 bits.
    Arithmetic {
        /// Which operation.
        op: ArithmeticOp,
        /// The left operand.
        left: Box<Expr>,
        /// The right operand.
        right: Box<Expr>,
    },
    /// `-operand`, a number.
    Negate(Box<Expr>),
    /// `a || b || …`, all text; null if one is null.
    Concat(Vec<Expr>),
    /// The first branch whose condition is TRUE, else `otherwise`, else null. A value that is not chosen is not computed.
    Case {
        /// `CASE operand WHEN value …`: a branch's condition is then a value that the operand is compared with.
        operand: Option<Box<Expr>>,
        /// Condition (or value) and result.
        branches: Vec<(Expr, Expr)>,
        /// ELSE.
        otherwise: Option<Box<Expr>>,
    },
    /// The first that is not null. An operand behind it is not computed.
    Coalesce(Vec<Expr>),
    /// Null if both are equal, else the first.
    NullIf(Box<Expr>, Box<Expr>),
    /// The operand as this node's type.
    Cast(Box<Expr>),
    /// A function or operator of the [table](crate::FUNCTIONS).
    Call(Box<Call>),
    /// The operand, or null where it has a row error.
    Try(Box<Expr>),
}

/// A value that is known when the query is planned. Equal ones are the same in every expression: floats also in the sign of a zero, decimals
/// also in the scale.
#[derive(Clone, Debug)]
pub enum Constant {
    /// No value.
    Null,
    /// A truth value.
    Bool(bool),
    /// A whole number; it fits `i64` or `u64`.
    Int(i128),
    /// A float.
    Float(f64),
    /// A decimal; it has the scale of its type.
    Decimal(Decimal),
    /// Nanoseconds since 1970-01-01T00:00:00Z.
    Timestamp(i64),
    /// Text, for `char[N]` and `string`; without NUL.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
}

impl PartialEq for Constant {
    fn eq(&self, other: &Constant) -> bool {
        match (self, other) {
            (Constant::Null, Constant::Null) => true,
            (Constant::Bool(one), Constant::Bool(other)) => one == other,
            (Constant::Int(one), Constant::Int(other)) => one == other,
            (Constant::Float(one), Constant::Float(other)) => one.to_bits() == other.to_bits(),
            (Constant::Decimal(one), Constant::Decimal(other)) => one == other,
            (Constant::Timestamp(one), Constant::Timestamp(other)) => one == other,
            (Constant::Text(one), Constant::Text(other)) => one == other,
            (Constant::Bytes(one), Constant::Bytes(other)) => one == other,
            _ => false,
        }
    }
}

/// A parameter at one place of a query: `$name`. It takes its type from there, and is never null.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// Its name, without the `$`.
    pub name: String,
    /// The value that it has now.
    pub value: Constant,
    /// Where it stands.
    pub at: Option<Position>,
}

/// Wherever it stands, it has one value.
impl PartialEq for Parameter {
    fn eq(&self, other: &Parameter) -> bool {
        self.name == other.name && self.value == other.value
    }
}

/// A call of a function of the table, with arguments of the types that it takes.
#[derive(Clone, Debug)]
pub struct Call {
    /// The entry of the table.
    pub function: &'static Function,
    /// Its arguments.
    pub arguments: Vec<Expr>,
    /// The part of the work that was done when the query was planned.
    pub(crate) prepared: Prepared,
}

/// The prepared part follows from the arguments.
impl PartialEq for Call {
    fn eq(&self, other: &Call) -> bool {
        self.function == other.function && self.arguments == other.arguments
    }
}

impl Call {
    /// A call of an entry of the table; the arguments have the types that it takes.
    ///
    /// # Errors
    /// An argument that is prepared when the query is planned is none that the function takes, in words.
    pub fn new(function: &'static Function, arguments: Vec<Expr>) -> Result<Call, String> {
        let mut call = Call { function, arguments, prepared: Prepared::None };
        call.prepare().map_err(|(_, problem)| problem)?;
        Ok(call)
    }

    /// Makes ready what does not depend on the record; an error with the number of the argument that it is in.
    pub(crate) fn prepare(&mut self) -> Result<(), (usize, String)> {
        if let Some(prepare) = self.function.prepare {
            self.prepared = prepare(&self.arguments)?;
        }
        Ok(())
    }
}

/// A pattern match.
#[derive(Clone, Debug, PartialEq)]
pub struct Like {
    /// NOT LIKE.
    pub negated: bool,
    /// ILIKE: letters match whatever their case.
    pub any_case: bool,
    /// The text.
    pub operand: Expr,
    /// The pattern.
    pub pattern: Expr,
    /// The character that takes the meaning from the one that follows it in the pattern: `\`, unless ESCAPE said otherwise.
    pub escape: Option<char>,
}

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompareOp {
    /// `=`
    Eq,
    /// `<>`
    Ne,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
}

/// An operation on two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ArithmeticOp {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`; of whole numbers, the quotient without its fraction.
    Divide,
    /// `%`; the remainder has the sign of the left operand.
    Remainder,
}

/// The classes of comparable values: values of one class, whatever their types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Bool,
    Number,
    Timestamp,
    Text,
    Bytes,
}

impl Class {
    pub(crate) fn of(ty: FieldType) -> Class {
        match ty {
            FieldType::Bool => Class::Bool,
            FieldType::Timestamp => Class::Timestamp,
            FieldType::Char(_) | FieldType::String => Class::Text,
            FieldType::Bytes => Class::Bytes,
            _ => Class::Number,
        }
    }
}

/// Whether a type is one of decimals.
pub(crate) fn is_decimal(ty: FieldType) -> bool {
    matches!(ty, FieldType::Decimal { .. })
}

/// Whether a type is one of floats.
pub(crate) fn is_float(ty: FieldType) -> bool {
    matches!(ty, FieldType::F32 | FieldType::F64)
}

impl CompareOp {
    /// Whether the comparison holds for operands in this order.
    pub fn holds(self, order: std::cmp::Ordering) -> bool {
        match self {
            CompareOp::Eq => order.is_eq(),
            CompareOp::Ne => order.is_ne(),
            CompareOp::Lt => order.is_lt(),
            CompareOp::Le => order.is_le(),
            CompareOp::Gt => order.is_gt(),
            CompareOp::Ge => order.is_ge(),
        }
    }

    /// The comparison that says the same with its operands exchanged.
    #[must_use]
    pub fn mirrored(self) -> CompareOp {
        match self {
            CompareOp::Eq | CompareOp::Ne => self,
            CompareOp::Lt => CompareOp::Gt,
            CompareOp::Le => CompareOp::Ge,
            CompareOp::Gt => CompareOp::Lt,
            CompareOp::Ge => CompareOp::Le,
        }
    }
}

impl Expr {
    /// A constant; null takes the type it stands in for.
    pub fn constant(value: Constant, ty: FieldType) -> Expr {
        let nullable = value == Constant::Null;
        Expr { node: Node::Const(value), ty, nullable }
    }

    /// A condition.
    pub(crate) fn condition(node: Node, nullable: bool) -> Expr {
        Expr { node, ty: FieldType::Bool, nullable }
    }

    /// The constant that this is, if it is one.
    pub fn as_constant(&self) -> Option<&Constant> {
        match &self.node {
            Node::Const(constant) => Some(constant),
            _ => None,
        }
    }

    /// The value that this has for every record: of a constant, and of a parameter, which may have another value later.
    pub fn as_known(&self) -> Option<&Constant> {
        match &self.node {
            Node::Parameter(parameter) => Some(&parameter.value),
            _ => self.as_constant(),
        }
    }

    /// The operands of this node, in the order in which they are computed.
    pub fn operands(&self) -> Vec<&Expr> {
        match &self.node {
            Node::Field(_) | Node::Const(_) | Node::Parameter(_) => vec![],
            Node::Compare { left, right, .. }
            | Node::Quantified { left, right, .. }
            | Node::Distinct { left, right, .. }
            | Node::Arithmetic { left, right, .. }
            | Node::NullIf(left, right) => vec![left, right],
            Node::And(all) | Node::Or(all) | Node::Concat(all) | Node::Coalesce(all) => all.iter().collect(),
            Node::Not(operand)
            | Node::Negate(operand)
            | Node::Cast(operand)
            | Node::Try(operand)
            | Node::IsNull { operand, .. }
            | Node::IsTruth { operand, .. } => vec![operand],
            Node::In { operand, list, .. } => std::iter::once(&**operand).chain(list).collect(),
            Node::Between { operand, low, high, .. } => vec![operand, low, high],
            Node::Like(like) => vec![&like.operand, &like.pattern],
            Node::Call(call) => call.arguments.iter().collect(),
            Node::Case { operand, branches, otherwise } => {
                let branches = branches.iter().flat_map(|(condition, result)| [condition, result]);
                operand.as_deref().into_iter().chain(branches).chain(otherwise.as_deref()).collect()
            }
        }
    }

    /// Whether computing this can end in a row error, for some record. Sure where it says no.
    pub fn is_fallible(&self) -> bool {
        self.fails_somewhere() || self.made_bytes().is_none_or(|bytes| bytes > MAX_MADE_TEXT_BYTES)
    }

    /// Whether it is a constant that is not TRUE.
    pub(crate) fn is_never_true(&self) -> bool {
        matches!(self.node, Node::Const(Constant::Bool(false) | Constant::Null))
    }

    /// The same with null in place of its row errors.
    pub(crate) fn or_null(self) -> Expr {
        if !self.is_fallible() {
            return self;
        }
        let ty = self.ty;
        Expr { node: Node::Try(Box::new(self)), ty, nullable: true }
    }

    fn fails_somewhere(&self) -> bool {
        let fails_itself = match &self.node {
            Node::Arithmetic { op, left, right } => self.integer_bounds().is_none_or(|bounds| {
                let divides = matches!(op, ArithmeticOp::Divide | ArithmeticOp::Remainder);
                let by_zero = divides && right.integer_bounds().is_none_or(|(least, most)| least <= 0 && most >= 0);
                by_zero || !within_i64(bounds) || is_float(left.ty) || is_float(right.ty)
            }),
            Node::Negate(operand) => !is_float(operand.ty) && !self.integer_bounds().is_some_and(within_i64),
            Node::Cast(operand) => !is_lossless(operand.ty, self.ty),
            Node::Like(like) => like.pattern.as_known().is_none(),
            Node::Call(call) => {
                let is_float = matches!(call.function.body, Body::Float(_));
                call.function.is_fallible && !is_float
            }
            Node::Try(_) => return false,
            _ => false,
        };
        fails_itself || self.operands().into_iter().any(Expr::fails_somewhere)
    }

    /// Between which values a whole number lies, before it is checked that it fits; `None` for other values.
    fn integer_bounds(&self) -> Option<(i128, i128)> {
        // An operand beyond i64 was a row error already. Constants may be wider, and are exact.
        let clip = |operand: &Expr| match operand.node {
            Node::Arithmetic { .. } | Node::Negate(_) => {
                let (least, most) = operand.integer_bounds()?;
                Some((least.max(i64::MIN.into()), most.min(i64::MAX.into())))
            }
            _ => operand.integer_bounds(),
        };
        match &self.node {
            Node::Const(Constant::Int(value)) => Some((*value, *value)),
            Node::Negate(operand) => clip(operand).map(|(least, most)| (-most, -least)),
            Node::Arithmetic { op, left, right } => {
                let (left, right) = (clip(left)?, clip(right)?);
                let corners = [(left.0, right.0), (left.0, right.1), (left.1, right.0), (left.1, right.1)];
                let of = |op: fn(i128, i128) -> i128| {
                    let values = corners.map(|(left, right)| op(left, right));
                    Some((values.into_iter().min()?, values.into_iter().max()?))
                };
                match op {
                    ArithmeticOp::Add => of(|left, right| left + right),
                    ArithmeticOp::Subtract => of(|left, right| left - right),
                    ArithmeticOp::Multiply => of(i128::saturating_mul),
                    // No quotient and no remainder is further from zero than what is divided; but see i64::MIN / -1.
                    ArithmeticOp::Divide | ArithmeticOp::Remainder if right.0 > 0 => {
                        Some((left.0.min(0), left.1.max(0)))
                    }
                    ArithmeticOp::Divide => Some((left.0.min(-left.1).min(0), left.1.max(-left.0).max(0))),
                    ArithmeticOp::Remainder => Some((left.0.min(0), left.1.max(0))),
                }
            }
            _ => self.ty.integer_range(),
        }
    }

    /// How many bytes of text computing this makes at most; `None` if the lengths of strings decide.
    fn made_bytes(&self) -> Option<usize> {
        let mut made: usize = match &self.node {
            // A text that is too long is null.
            Node::Try(operand) => {
                return Some(operand.made_bytes().map_or(MAX_MADE_TEXT_BYTES, |bytes| bytes.min(MAX_MADE_TEXT_BYTES)));
            }
            Node::Concat(parts) => parts.iter().map(Expr::text_bytes).sum::<Option<usize>>()?,
            Node::Call(call) => call.function.most_bytes.unwrap_or(0),
            Node::Cast(operand) if self.ty.is_text() && !operand.ty.is_text() => MAX_PRINTED_BYTES,
            _ => 0,
        };
        for operand in self.operands() {
            made = made.saturating_add(operand.made_bytes()?);
        }
        Some(made)
    }

    /// How long a text is at most; `None` if that is for the record to say.
    fn text_bytes(&self) -> Option<usize> {
        match (&self.node, self.ty) {
            (Node::Const(Constant::Text(text)), _) => Some(text.len()),
            (Node::Const(_), _) => Some(0),
            (_, FieldType::Char(most)) => Some(most.into()),
            (Node::Cast(operand), _) if !operand.ty.is_text() => Some(MAX_PRINTED_BYTES),
            (Node::Cast(operand) | Node::Try(operand), _) => operand.text_bytes(),
            (Node::Concat(parts), _) => parts.iter().map(Expr::text_bytes).sum(),
            (Node::Call(call), _) => call.function.most_bytes,
            _ => None,
        }
    }

    /// The operands of this node, to change.
    pub(crate) fn operands_mut(&mut self) -> Vec<&mut Expr> {
        match &mut self.node {
            Node::Field(_) | Node::Const(_) | Node::Parameter(_) => vec![],
            Node::Compare { left, right, .. }
            | Node::Quantified { left, right, .. }
            | Node::Distinct { left, right, .. }
            | Node::Arithmetic { left, right, .. }
            | Node::NullIf(left, right) => vec![left, right],
            Node::And(all) | Node::Or(all) | Node::Concat(all) | Node::Coalesce(all) => all.iter_mut().collect(),
            Node::Not(operand)
            | Node::Negate(operand)
            | Node::Cast(operand)
            | Node::Try(operand)
            | Node::IsNull { operand, .. }
            | Node::IsTruth { operand, .. } => vec![operand],
            Node::In { operand, list, .. } => std::iter::once(&mut **operand).chain(list).collect(),
            Node::Between { operand, low, high, .. } => vec![operand, low, high],
            Node::Like(like) => vec![&mut like.operand, &mut like.pattern],
            Node::Call(call) => call.arguments.iter_mut().collect(),
            Node::Case { operand, branches, otherwise } => {
                let branches = branches.iter_mut().flat_map(|(condition, result)| [condition, result]);
                operand.as_deref_mut().into_iter().chain(branches).chain(otherwise.as_deref_mut()).collect()
            }
        }
    }

    /// Exchanges the fields that this reads for others of the same type; `None` if one has no other.
    pub(crate) fn exchange_fields(&mut self, other: &dyn Fn(usize) -> Option<usize>) -> Option<()> {
        if let Node::Field(index) = &mut self.node {
            *index = other(*index)?;
        }
        self.operands_mut().into_iter().try_for_each(|operand| operand.exchange_fields(other))
    }

    /// Marks the fields that this reads.
    pub(crate) fn mark_fields(&self, read: &mut [bool]) {
        if let Node::Field(index) = self.node {
            debug_assert!(index < read.len(), "an expression reads fields of its input");
            if let Some(read) = read.get_mut(index) {
                *read = true;
            }
        }
        for operand in self.operands() {
            operand.mark_fields(read);
        }
    }
}

/// No number, truth value or timestamp has a longer text: a decimal has 39 digits, a sign, a point and a zero before it.
const MAX_PRINTED_BYTES: usize = 48;

fn within_i64((least, most): (i128, i128)) -> bool {
    least >= i64::MIN.into() && most <= i64::MAX.into()
}

/// Whether every value of `from` has a counterpart in `to` (rounding to a float counts as one).
fn is_lossless(from: FieldType, to: FieldType) -> bool {
    if let (Some(from), Some(to)) = (from.integer_range(), to.integer_range()) {
        return to.0 <= from.0 && from.1 <= to.1;
    }
    match (from, to) {
        (from, to) if from == to => true,
        (FieldType::F32 | FieldType::Decimal { .. }, FieldType::F64) => true,
        (from, to) if from.is_integer() && (is_float(to) || to == FieldType::Bool) => true,
        (FieldType::Bool, to) if to.is_integer() => true,
        (FieldType::Timestamp, FieldType::I64) | (FieldType::I64, FieldType::Timestamp) => true,
        // Text that is too long is cut, as in PostgreSQL.
        (from, to) if from.is_text() && to.is_text() => true,
        (FieldType::Bool | FieldType::Timestamp, to) if to.is_text() => true,
        (from, to) => (from.is_integer() || is_float(from) || is_decimal(from)) && to.is_text(),
    }
}
