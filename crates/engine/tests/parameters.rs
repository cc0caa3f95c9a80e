//! A handler whose parameters were changed does what one does that was made with the new values, and what the interpreter
//! says.
#![allow(clippy::unwrap_used)] // a test that fails may panic

#[path = "../../query/tests/generate/mod.rs"]
mod generate;
mod support;

use std::collections::BTreeMap;

use crossdock_engine::{Handler, SelectHandler, Verdict};
use crossdock_format::RecordBuilder;
use crossdock_mailbox::Selection;
use crossdock_query::{Constant, Expr, Node, Parameter, Program, parse};
use generate::{Row, Scope, condition, format, row, value};
use proptest::prelude::*;
use support::{batch, interpreted};

const EVERYTHING: Scope = Scope { everything: true };

type Values = BTreeMap<String, String>;

/// Makes parameters of the constants that a text says, and gives their values.
fn parameterised(expr: &Expr, values: &mut Values) -> Expr {
    let mut expr = expr.clone();
    let text = match &expr.node {
        Node::Const(Constant::Int(value)) => Some(value.to_string()),
        Node::Const(Constant::Float(value)) if value.is_finite() => Some(format!("{value:?}")),
        Node::Const(Constant::Text(text)) => Some(text.clone()),
        Node::Const(Constant::Bool(truth)) => Some(truth.to_string()),
        _ => None,
    };
    if let Some(text) = text {
        let name = format!("p{}", values.len());
        values.insert(name.clone(), text);
        expr.node = Node::Parameter(Box::new(Parameter { name, value: Constant::Null, at: None }));
        return expr;
    }
    each(&mut expr, &mut |operand| *operand = parameterised(operand, values));
    expr
}

/// Visits the operands that constants stand in.
fn each(expr: &mut Expr, visit: &mut dyn FnMut(&mut Expr)) {
    match &mut expr.node {
        Node::Compare { left, right, .. }
        | Node::Quantified { left, right, .. }
        | Node::Distinct { left, right, .. }
        | Node::Arithmetic { left, right, .. } => {
            visit(left);
            visit(right);
        }
        Node::And(all) | Node::Or(all) | Node::Concat(all) | Node::Coalesce(all) => all.iter_mut().for_each(visit),
        Node::Not(operand) | Node::Try(operand) | Node::IsTruth { operand, .. } => visit(operand),
        Node::In { operand, list, .. } => {
            visit(operand);
            list.iter_mut().for_each(visit);
        }
        Node::Between { operand, low, high, .. } => [operand, low, high].into_iter().for_each(|expr| visit(expr)),
        Node::Like(like) => {
            visit(&mut like.operand);
            visit(&mut like.pattern);
        }
        _ => {}
    }
}

/// Another value of each parameter that may well be of its type.
fn others(values: &Values, seed: u64) -> Values {
    let mut random = fastrand::Rng::with_seed(seed);
    let other = |value: &String| match value.parse::<i64>() {
        Ok(_) => random.i64(-20..20).to_string(),
        Err(_) if value.parse::<f64>().is_ok() => format!("{:?}", random.i64(-40..40) as f64 / 8.0),
        Err(_) if value == "true" || value == "false" => random.bool().to_string(),
        Err(_) => ["JFK", "%", "a_", "", "LAX", "it's", "J%"][random.usize(0..7)].to_owned(),
    };
    let others: Vec<String> = values.values().map(other).collect();
    values.keys().cloned().zip(others).collect()
}

fn planned(sql: &str, values: &Values) -> Option<Program> {
    parse(sql).ok()?.plan_with(&format(), values).ok()
}

fn run(handler: &mut dyn Handler, records: &[Vec<u8>]) -> (Verdict, Vec<usize>, Vec<Vec<u8>>, u64) {
    let (mut selection, mut out) = (Selection::all(records.len()), Vec::new());
    let errors = handler.counters().row_errors;
    let verdict = handler.process(&batch(records), &mut selection, &mut out);
    (verdict, selection.iter().collect(), out, handler.counters().row_errors - errors)
}

/// Holds the changed handler to what it is to be; whether there was one.
fn hold(sql: &str, values: &Values, seed: u64, rows: &[Row]) -> Result<bool, TestCaseError> {
    let Some(program) = planned(sql, values) else { return Ok(false) };
    let after = others(values, seed);
    let Ok(changed) = program.with_values(&after) else { return Ok(false) };
    let mut builder = RecordBuilder::new(&format());
    let records: Vec<Vec<u8>> = rows.iter().map(|row| row.bytes(&mut builder)).collect();
    let mut handler = SelectHandler::new(program.clone());
    let before = run(&mut handler, &records);

    let mut patch = SelectHandler::prepare(changed.clone());
    let allocated = allocation_counter::measure(|| assert!(handler.set_parameters(&mut patch))).count_total;
    prop_assert_eq!(allocated, 0);
    let found = run(&mut handler, &records);
    prop_assert_eq!(&found, &run(&mut SelectHandler::new(changed.clone()), &records), "{} with {:?}", sql, after);
    let (passed, made, errors) = interpreted(&changed, &records, &(0..records.len()).collect::<Vec<_>>());
    prop_assert_eq!((&found.1, found.3), (&passed, errors), "{} with {:?}", sql, after);
    let left =
        if found.0 == Verdict::Forward { passed.iter().map(|&at| records[at].clone()).collect() } else { found.2 };
    prop_assert_eq!(left, made, "{} with {:?}", sql, after);
    // Planned anew with the values it is the same program, unless a value looks like one of another type.
    if let Some(fresh) = planned(sql, &after).filter(|fresh| fresh.parameter_types() == changed.parameter_types()) {
        // NaN is in there, and equals itself.
        prop_assert_eq!(format!("{:?}", changed.filter), format!("{:?}", fresh.filter), "{} with {:?}", sql, after);
        prop_assert_eq!(&changed.output, &fresh.output);
    }
    // And back.
    prop_assert!(handler.set_parameters(&mut patch));
    prop_assert_eq!(run(&mut handler, &records), before);
    Ok(true)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn changed_handlers_do_what_new_ones_do(
        filter in condition(3, EVERYTHING),
        made in prop::option::of(value(2, EVERYTHING)),
        rows in prop::collection::vec(row(), 1..12),
        seed in any::<u64>(),
    ) {
        let mut values = Values::new();
        let filter = parameterised(&filter, &mut values);
        let made = made.map(|made| parameterised(&made, &mut values));
        let list = made.map_or("*".to_owned(), |made| format!("s, {} AS x", made.sql(&format())));
        let sql = format!("SELECT {list} FROM s WHERE {}", filter.sql(&format()));
        hold(&sql, &values, seed, &rows)?;
    }

    /// Conditions of the forms that kernels have: all of them can be planned.
    #[test]
    fn kernels_are_changed_too(
        numbers in (-20..20i64, -20..20i64),
        rows in prop::collection::vec(row(), 1..12),
        seed in any::<u64>(),
    ) {
        for sql in [
            "SELECT * FROM s WHERE a > $x AND i <= $y",
            "SELECT * FROM s WHERE $x <> i AND u <> $z",
            "SELECT * FROM s WHERE i BETWEEN $x AND $y",
            "SELECT * FROM s WHERE i NOT BETWEEN $x AND $y",
            "SELECT * FROM s WHERE i IN ($x, $y, 3, 4, 5, 6, 7, 8, 9, 10)",
            "SELECT s, c FROM s WHERE c IN ($t, 'JFK') AND s NOT IN ($t, $p)",
            "SELECT s, c FROM s WHERE c >= $t AND s LIKE $p",
            "SELECT s || $t AS x, c FROM s WHERE s NOT LIKE $p AND f < $f",
            "SELECT * FROM s WHERE 7 / $x > 1 AND i > $y",
            "SELECT * FROM s WHERE a IS NOT DISTINCT FROM $x OR b = $b",
        ] {
            let mut values: Values = [("x", numbers.0.to_string()), ("y", numbers.1.to_string()), ("z", numbers.1.abs().to_string()),
                ("t", "JFK".to_owned()), ("p", "a%".to_owned()), ("f", "0.5".to_owned()), ("b", "true".to_owned())]
                .into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            values.retain(|name, _| sql.contains(&format!("${name}")));
            // A negative number is no u64: not changed then.
            let changed = hold(sql, &values, seed, &rows)?;
            prop_assert!(changed || sql.contains("$z"), "{sql}");
        }
    }
}

#[test]
fn values_for_another_query_or_format_are_not_taken() {
    let program = |sql: &str| planned(sql, &[("x".to_owned(), "1".to_owned())].into()).unwrap();
    let mut handler = SelectHandler::new(program("SELECT * FROM s WHERE a > $x"));
    assert!(!handler.set_parameters(&mut SelectHandler::prepare(program("SELECT * FROM s WHERE i > $x"))));
    let other = crossdock_format::Format::parse_schema("a i64").unwrap();
    let values = [("x".to_owned(), "1".to_owned())].into();
    let elsewhere = parse("SELECT * FROM s WHERE a > $x").unwrap().plan_with(&other, &values).unwrap();
    assert!(!handler.set_parameters(&mut SelectHandler::prepare(elsewhere)));
    assert!(handler.set_parameters(&mut SelectHandler::prepare(program("SELECT * FROM s WHERE a > $x"))));
}
