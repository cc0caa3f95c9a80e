//! Calls of functions within random expressions: those that mean the same in both databases.

use crossdock_format::FieldType;
use crossdock_query::{Constant, Expr, Kind, Node};
use fastrand::Rng;

use crate::generate::call;
use crate::rebuild::with_operands;

/// The expression with calls around some of its operands.
pub(crate) fn with_calls(expr: &Expr, random: &mut Rng) -> Expr {
    let is_call = matches!(expr.node, Node::Call(_));
    let inner = with_operands(expr, &mut |_, operand| match operand.node {
        // A literal: a pattern, or an argument that has to be one. One that the planner reads as another type's, such as a time's.
        Node::Const(_) => operand.clone(),
        // The unary minus and a cast know literals, and none is to come under them.
        _ if is_call => operand.clone(),
        _ => with_calls(operand, random),
    });
    match inner.ty {
        FieldType::String if random.u8(0..5) == 0 => of_text(inner, random),
        FieldType::I64 if random.u8(0..8) == 0 => of_whole(inner, random),
        FieldType::F64 if random.u8(0..6) == 0 => of_float(inner, random),
        _ => inner,
    }
}

fn whole(value: i64) -> Expr {
    Expr::constant(Constant::Int(value.into()), FieldType::I64)
}

fn text(value: &str) -> Expr {
    Expr::constant(Constant::Text(value.to_owned()), FieldType::String)
}

/// Left out are functions that differ where ours is PostgreSQL's: `substr` from before the text, `initcap`, `lpad` without a filling, and
/// `translate` with characters that come twice.
fn of_text(operand: Expr, random: &mut Rng) -> Expr {
    let ty = FieldType::String;
    let words = ["a", "b", "", "é", "日", "J"];
    let word = text(words[random.usize(0..words.len())]);
    // DuckDB replaces nothing for an empty text too, but splits at it.
    let part = text(["a", "b", "é", "日本"][random.usize(0..4)]);
    let small = whole(random.i64(-3..6));
    match random.u8(0..14) {
        0 => call("upper", Kind::Text, vec![operand], ty),
        1 => call("lower", Kind::Text, vec![operand], ty),
        2 => call("reverse", Kind::Text, vec![operand], ty),
        3 => call("btrim", Kind::Text, vec![operand], ty),
        4 => call("ltrim", Kind::Text, vec![operand, word], ty),
        5 => call("rtrim", Kind::Text, vec![operand], ty),
        6 => call("left", Kind::Text, vec![operand, small], ty),
        7 => call("right", Kind::Text, vec![operand, small], ty),
        8 => call("replace", Kind::Text, vec![operand, part, word], ty),
        9 => call("concat", Kind::Printed, vec![operand, word], ty),
        10 => call("greatest", Kind::Same, vec![operand, word], ty),
        11 => call("split_part", Kind::Text, vec![operand, part, whole(random.i64(1..4))], ty),
        12 => call("substr", Kind::Text, vec![operand, whole(random.i64(1..5)), whole(random.i64(0..4))], ty),
        _ => call("rpad", Kind::Text, vec![operand, whole(random.i64(0..7)), part], ty),
    }
}

/// The operand may be beyond the range of its type in DuckDB's query, where it is null.
fn of_whole(operand: Expr, random: &mut Rng) -> Expr {
    let ty = FieldType::I64;
    match random.u8(0..3) {
        0 => call("abs", Kind::Integer, vec![operand], ty),
        1 => call("mod", Kind::Integer, vec![operand, whole(random.i64(1..9))], ty),
        _ => call("greatest", Kind::Same, vec![operand, whole(random.i64(-3..9))], ty),
    }
}

fn of_float(operand: Expr, random: &mut Rng) -> Expr {
    let names = ["abs", "ceil", "floor", "trunc", "round", "sqrt"];
    call(names[random.usize(0..names.len())], Kind::Float, vec![operand], FieldType::F64)
}
