//! Makes checked nodes: their types, whether they can be null, and constants in place of what is known.

use crossdock_format::FieldType;

use super::types::scale_of;
use crate::expr::{ArithmeticOp, Call, CompareOp, Constant, Expr, Like, Node, is_decimal, is_float};
use crate::function::Body;
use crate::interpret;

/// `left op right`; what is known goes to the right.
pub(crate) fn compare(op: CompareOp, left: Expr, right: Expr) -> Expr {
    let nullable = left.nullable || right.nullable;
    let (op, left, right) = if left.as_known().is_some() && right.as_known().is_none() {
        (op.mirrored(), right, left)
    } else {
        (op, left, right)
    };
    let node = Node::Compare { op, left: Box::new(left), right: Box::new(right) };
    folded(Expr::condition(node, nullable))
}

/// `left op ANY(right)`, or ALL, of a list whose elements may be null or not.
pub(super) fn quantified((op, is_all): (CompareOp, bool), left: Expr, right: Expr, has_nulls: bool) -> Expr {
    let nullable = left.nullable || right.nullable || has_nulls;
    Expr::condition(Node::Quantified { op, is_all, left: Box::new(left), right: Box::new(right) }, nullable)
}

pub(super) fn distinct(negated: bool, left: Expr, right: Expr) -> Expr {
    folded(Expr::condition(Node::Distinct { negated, left: Box::new(left), right: Box::new(right) }, false))
}

pub(super) fn and(all: Vec<Expr>) -> Expr {
    junction(all, false)
}

pub(super) fn or(all: Vec<Expr>) -> Expr {
    junction(all, true)
}

/// AND is decided by FALSE, OR by TRUE. An operand behind a deciding constant is never computed; what precedes it matters
/// only if it can have a row error.
fn junction(all: Vec<Expr>, decisive: bool) -> Expr {
    let mut kept: Vec<Expr> = Vec::with_capacity(all.len());
    for condition in all {
        match condition.as_constant() {
            Some(Constant::Bool(truth)) if *truth != decisive => {}
            Some(Constant::Bool(_)) => {
                if !kept.iter().any(Expr::is_fallible) {
                    return condition;
                }
                kept.push(condition);
                break;
            }
            _ => kept.push(condition),
        }
    }
    match kept.len() {
        0 => Expr::constant(Constant::Bool(!decisive), FieldType::Bool),
        1 => kept.swap_remove(0),
        _ => {
            let nullable = kept.iter().any(|condition| condition.nullable);
            let node = if decisive { Node::Or(kept) } else { Node::And(kept) };
            folded(Expr::condition(node, nullable))
        }
    }
}

/// NOT, moved into the operand where that has a form for it.
pub(super) fn not(operand: Expr) -> Expr {
    let Expr { node, ty, nullable } = operand;
    let node = match node {
        Node::Not(inner) => return *inner,
        // There is an order among all values (NaN is the greatest number), so this holds.
        Node::Compare { op, left, right } => Node::Compare { op: negated(op), left, right },
        Node::Quantified { op, is_all, left, right } => {
            Node::Quantified { op: negated(op), is_all: !is_all, left, right }
        }
        Node::Distinct { negated, left, right } => Node::Distinct { negated: !negated, left, right },
        Node::IsNull { negated, operand } => Node::IsNull { negated: !negated, operand },
        Node::IsTruth { truth, negated, operand } => Node::IsTruth { truth, negated: !negated, operand },
        Node::In { negated, operand, list } => Node::In { negated: !negated, operand, list },
        Node::Between { negated, operand, low, high } => Node::Between { negated: !negated, operand, low, high },
        Node::Like(like) => Node::Like(Box::new(Like { negated: !like.negated, ..*like })),
        node => Node::Not(Box::new(Expr { node, ty, nullable })),
    };
    folded(Expr::condition(node, nullable))
}

fn negated(op: CompareOp) -> CompareOp {
    match op {
        CompareOp::Eq => CompareOp::Ne,
        CompareOp::Ne => CompareOp::Eq,
        CompareOp::Lt => CompareOp::Ge,
        CompareOp::Le => CompareOp::Gt,
        CompareOp::Gt => CompareOp::Le,
        CompareOp::Ge => CompareOp::Lt,
    }
}

pub(crate) fn is_null(negated: bool, operand: Expr) -> Expr {
    if !operand.nullable && !operand.is_fallible() {
        return Expr::constant(Constant::Bool(negated), FieldType::Bool);
    }
    folded(Expr::condition(Node::IsNull { negated, operand: Box::new(operand) }, false))
}

pub(super) fn is_truth(truth: Option<bool>, negated: bool, operand: Expr) -> Expr {
    folded(Expr::condition(Node::IsTruth { truth, negated, operand: Box::new(operand) }, false))
}

/// `operand [NOT] IN (list)`; a list of one is a comparison.
pub(super) fn is_in(negated: bool, operand: Expr, mut list: Vec<Expr>) -> Expr {
    if list.len() == 1 {
        let op = if negated { CompareOp::Ne } else { CompareOp::Eq };
        return compare(op, operand, list.swap_remove(0));
    }
    let nullable = operand.nullable || list.iter().any(|item| item.nullable);
    folded(Expr::condition(Node::In { negated, operand: Box::new(operand), list }, nullable))
}

pub(super) fn between(negated: bool, operand: Expr, low: Expr, high: Expr) -> Expr {
    let nullable = operand.nullable || low.nullable || high.nullable;
    let [operand, low, high] = [operand, low, high].map(Box::new);
    folded(Expr::condition(Node::Between { negated, operand, low, high }, nullable))
}

pub(super) fn like(like: Like) -> Expr {
    let nullable = like.operand.nullable || like.pattern.nullable;
    folded(Expr::condition(Node::Like(Box::new(like)), nullable))
}

/// Whole numbers give `i64`, anything with a float gives `f64`, anything else a decimal.
pub(crate) fn arithmetic(op: ArithmeticOp, left: Expr, right: Expr) -> Expr {
    let ty = if is_float(left.ty) || is_float(right.ty) {
        FieldType::F64
    } else if is_decimal(left.ty) || is_decimal(right.ty) {
        FieldType::Decimal { bytes: 16, scale: interpret::result_scale(op, scale_of(left.ty), scale_of(right.ty)) }
    } else {
        FieldType::I64
    };
    let nullable = left.nullable || right.nullable;
    folded(Expr { node: Node::Arithmetic { op, left: Box::new(left), right: Box::new(right) }, ty, nullable })
}

pub(super) fn negate(operand: Expr) -> Expr {
    let ty = match operand.ty {
        ty if is_float(ty) => ty,
        FieldType::Decimal { scale, .. } => FieldType::Decimal { bytes: 16, scale },
        _ => FieldType::I64,
    };
    let nullable = operand.nullable;
    folded(Expr { node: Node::Negate(Box::new(operand)), ty, nullable })
}

pub(super) fn concat(parts: Vec<Expr>) -> Expr {
    let nullable = parts.iter().any(|part| part.nullable);
    folded(Expr { node: Node::Concat(parts), ty: FieldType::String, nullable })
}

pub(super) fn case(operand: Option<Expr>, branches: Vec<(Expr, Expr)>, otherwise: Option<Expr>, ty: FieldType) -> Expr {
    let nullable = otherwise.as_ref().is_none_or(|otherwise| otherwise.nullable)
        || branches.iter().any(|(_, result)| result.nullable);
    let (operand, otherwise) = (operand.map(Box::new), otherwise.map(Box::new));
    folded(Expr { node: Node::Case { operand, branches, otherwise }, ty, nullable })
}

pub(super) fn coalesce(options: Vec<Expr>, ty: FieldType) -> Expr {
    let nullable = options.iter().all(|option| option.nullable);
    folded(Expr { node: Node::Coalesce(options), ty, nullable })
}

pub(super) fn null_if(left: Expr, right: Expr) -> Expr {
    let ty = left.ty;
    folded(Expr { node: Node::NullIf(Box::new(left), Box::new(right)), ty, nullable: true })
}

/// The operand as another type; as it is if it has that type.
pub(crate) fn cast(operand: Expr, ty: FieldType) -> Expr {
    if operand.ty == ty {
        return operand;
    }
    let nullable = operand.nullable;
    folded(Expr { node: Node::Cast(Box::new(operand)), ty, nullable })
}

/// A call of a function that gives this type.
pub(super) fn call(call: Call, ty: FieldType) -> Expr {
    let mut arguments = call.arguments.iter();
    let nullable = call.function.is_nullable
        || match call.function.body {
            // Nothing that is null comes through where another value takes its place.
            Body::Nulls(_) => arguments.all(|argument| argument.nullable),
            _ => arguments.any(|argument| argument.nullable),
        };
    folded(Expr { node: Node::Call(Box::new(call)), ty, nullable })
}

/// The most bytes of a text that takes the place of the call that makes it.
const MAX_FOLDED_BYTES: usize = 4096;

/// Whether a value takes the place of the node that gives it: calls can make much longer texts than a query has.
fn is_kept(node: &Node, constant: &Constant) -> bool {
    let length = match constant {
        Constant::Text(text) => text.len(),
        Constant::Bytes(bytes) => bytes.len(),
        _ => 0,
    };
    length <= MAX_FOLDED_BYTES || !matches!(node, Node::Call(_) | Node::Concat(_))
}

/// A node whose operands are all constants, as the constant that it gives. If that is a row error the node stays, and is
/// the row error of every record that comes to it.
fn folded(expr: Expr) -> Expr {
    if expr.operands().iter().any(|operand| operand.as_constant().is_none()) {
        return expr;
    }
    match interpret::constant(&expr).filter(|constant| is_kept(&expr.node, constant)) {
        Some(constant) => Expr::constant(constant, expr.ty),
        None => expr,
    }
}
