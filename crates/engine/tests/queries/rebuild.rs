//! Expressions with other operands, and smaller ones that may fail as a failing one does.

use crossdock_format::FieldType;
use crossdock_query::{Call, Constant, Expr, Like, Node};

/// The expression with what `change` makes of each operand, which it gets with its number.
pub(crate) fn with_operands(expr: &Expr, change: &mut dyn FnMut(usize, &Expr) -> Expr) -> Expr {
    let mut number = 0;
    let mut of = |operand: &Expr| {
        number += 1;
        change(number - 1, operand)
    };
    let node = match &expr.node {
        Node::Field(_) | Node::Const(_) | Node::Parameter(_) => expr.node.clone(),
        Node::Compare { op, left, right } => {
            Node::Compare { op: *op, left: Box::new(of(left)), right: Box::new(of(right)) }
        }
        Node::Quantified { op, is_all, left, right } => {
            Node::Quantified { op: *op, is_all: *is_all, left: Box::new(of(left)), right: Box::new(of(right)) }
        }
        Node::Distinct { negated, left, right } => {
            Node::Distinct { negated: *negated, left: Box::new(of(left)), right: Box::new(of(right)) }
        }
        Node::Arithmetic { op, left, right } => {
            Node::Arithmetic { op: *op, left: Box::new(of(left)), right: Box::new(of(right)) }
        }
        Node::NullIf(left, right) => Node::NullIf(Box::new(of(left)), Box::new(of(right))),
        Node::And(all) => Node::And(all.iter().map(of).collect()),
        Node::Or(all) => Node::Or(all.iter().map(of).collect()),
        Node::Concat(all) => Node::Concat(all.iter().map(of).collect()),
        Node::Coalesce(all) => Node::Coalesce(all.iter().map(of).collect()),
        Node::Not(operand) => Node::Not(Box::new(of(operand))),
        Node::Negate(operand) => Node::Negate(Box::new(of(operand))),
        Node::Cast(operand) => Node::Cast(Box::new(of(operand))),
        Node::Try(operand) => Node::Try(Box::new(of(operand))),
        Node::IsNull { negated, operand } => Node::IsNull { negated: *negated, operand: Box::new(of(operand)) },
        Node::IsTruth { truth, negated, operand } => {
            Node::IsTruth { truth: *truth, negated: *negated, operand: Box::new(of(operand)) }
        }
        Node::In { negated, operand, list } => {
            let operand = Box::new(of(operand));
            Node::In { negated: *negated, operand, list: list.iter().map(of).collect() }
        }
        Node::Between { negated, operand, low, high } => {
            let operand = Box::new(of(operand));
            Node::Between { negated: *negated, operand, low: Box::new(of(low)), high: Box::new(of(high)) }
        }
        Node::Like(like) => {
            let (operand, pattern) = (of(&like.operand), of(&like.pattern));
            Node::Like(Box::new(Like { operand, pattern, ..(**like).clone() }))
        }
        Node::Call(call) => {
            let arguments: Vec<Expr> = call.arguments.iter().map(of).collect();
            // Arguments that were prepared when the call was made are changed only into ones that can be.
            Call::new(call.function, arguments).map_or_else(|_| expr.node.clone(), |call| Node::Call(Box::new(call)))
        }
        Node::Case { operand, branches, otherwise } => {
            let operand = operand.as_deref().map(&mut of).map(Box::new);
            let branches = branches.iter().map(|(when, then)| (of(when), of(then))).collect();
            Node::Case { operand, branches, otherwise: otherwise.as_deref().map(&mut of).map(Box::new) }
        }
    };
    Expr { node, ..expr.clone() }
}

/// Types whose values may stand for each other: all whole numbers are computed as one type.
fn is_alike(one: FieldType, other: FieldType) -> bool {
    one == other || (one.is_integer() && other.is_integer())
}

/// The node without one of its parts, where it has parts that can be left out.
fn with_fewer(expr: &Expr) -> Vec<Expr> {
    let without = |all: &Vec<Expr>, least: usize| -> Vec<Vec<Expr>> {
        let places = if all.len() > least { 0..all.len() } else { 0..0 };
        places
            .map(|place| all.iter().enumerate().filter(|(at, _)| *at != place).map(|(_, one)| one.clone()).collect())
            .collect()
    };
    let nodes: Vec<Node> = match &expr.node {
        Node::And(all) => without(all, 2).into_iter().map(Node::And).collect(),
        Node::Or(all) => without(all, 2).into_iter().map(Node::Or).collect(),
        Node::Concat(all) => without(all, 2).into_iter().map(Node::Concat).collect(),
        Node::Coalesce(all) => without(all, 1).into_iter().map(Node::Coalesce).collect(),
        Node::In { negated, operand, list } => {
            let lists = without(list, 1).into_iter();
            lists.map(|list| Node::In { negated: *negated, operand: operand.clone(), list }).collect()
        }
        Node::Case { operand, branches, otherwise } => {
            let mut nodes = Vec::new();
            for place in 0..branches.len() {
                if branches.len() > 1 {
                    let mut branches = branches.clone();
                    branches.remove(place);
                    nodes.push(Node::Case { operand: operand.clone(), branches, otherwise: otherwise.clone() });
                }
            }
            if otherwise.is_some() {
                nodes.push(Node::Case { operand: operand.clone(), branches: branches.clone(), otherwise: None });
            }
            nodes
        }
        _ => Vec::new(),
    };
    nodes.into_iter().map(|node| Expr { node, ..expr.clone() }).collect()
}

/// Expressions of the same type with less in them: an operand in the place of the whole, fewer parts, a null, and the same of each operand.
pub(crate) fn smaller(expr: &Expr) -> Vec<Expr> {
    let operands = expr.operands();
    if operands.is_empty() {
        return Vec::new();
    }
    let mut found: Vec<Expr> =
        operands.iter().filter(|operand| is_alike(operand.ty, expr.ty)).map(|operand| (*operand).clone()).collect();
    found.push(Expr::constant(Constant::Null, expr.ty));
    found.extend(with_fewer(expr));
    for (place, operand) in operands.iter().enumerate() {
        for less in smaller(operand) {
            found.push(with_operands(expr, &mut |at, other| if at == place { less.clone() } else { other.clone() }));
        }
    }
    found
}
