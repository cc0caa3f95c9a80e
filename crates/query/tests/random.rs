//! Random expressions: printed as SQL, read, planned and folded, they give what they give unchanged.
#![allow(clippy::unwrap_used)] // a test that fails may panic

mod generate;

use crossdock_format::{Format, Record, RecordBuilder, Value};
use crossdock_query::{EvalError, Expr, Interpreter, Node, Program, Projection, parse};
use generate::{Scope, condition, format, row, value};
use proptest::prelude::*;

const EVERYTHING: Scope = Scope { everything: true };

/// The value of an expression for a record, in a form that compares (NaN with NaN too).
fn given(outcome: Result<Vec<u8>, EvalError>, output: &Format) -> String {
    match outcome {
        Ok(bytes) => match Record::check(output, &bytes).unwrap().get(0) {
            // -0 and 0 are the same to SQL, so folding may take either.
            Value::Float(value) => format!("{:?}", value + 0.0),
            Value::Int(value) => format!("whole {value}"),
            Value::Uint(value) => format!("whole {value}"),
            value => format!("{value:?}"),
        },
        Err(error) => format!("{error:?}"),
    }
}

fn compute(expr: &Expr, record: &Record<'_>) -> String {
    let field = crossdock_format::FieldSpec::nullable("x", expr.ty);
    let output = Format::natural([field]).unwrap();
    let mut row = RecordBuilder::new(&output);
    let outcome = Interpreter::new().set(expr, record, &mut row, 0).map(|()| row.finish().unwrap().to_vec());
    given(outcome, &output)
}

fn planned(sql: &str, format: &Format) -> Result<Program, TestCaseError> {
    parse(sql).and_then(|select| select.plan(format)).map_err(|error| TestCaseError::fail(error.to_string()))
}

/// WHERE's rule: from left to right, up to the first that is not TRUE, wherever the parentheses of its ANDs are.
fn passes(filter: &Expr, record: &Record<'_>) -> Result<bool, EvalError> {
    if let Node::And(all) = &filter.node {
        for condition in all {
            if !passes(condition, record)? {
                return Ok(false);
            }
        }
        return Ok(true);
    }
    Ok(Interpreter::new().holds(filter, record)? == Some(true))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4 * ProptestConfig::default().cases))]

    #[test]
    fn plans_have_the_meaning_of_their_query(expr in value(3, EVERYTHING), rows in prop::collection::vec(row(), 4)) {
        let format = format();
        let sql = format!("SELECT {} AS x FROM s", expr.sql(&format));
        let program = planned(&sql, &format)?;
        let mut input = RecordBuilder::new(&format);
        let mut output = RecordBuilder::new(&program.output);
        for row in rows {
            let bytes = row.bytes(&mut input);
            let record = Record::check(&format, &bytes).unwrap();
            let outcome = match program.projection {
                Projection::All => Ok(bytes.clone()),
                Projection::Fields(_) => Interpreter::new().project(&program, &record, &mut output)
                    .map(|()| output.finish().unwrap().to_vec()),
            };
            if !program.is_fallible() {
                prop_assert!(outcome.is_ok(), "{sql} for {row:?}");
            }
            let planned = given(outcome, &program.output);
            prop_assert_eq!(planned, compute(&expr, &record), "{} for {:?}", sql, row);
        }
    }

    #[test]
    fn null_takes_the_place_of_row_errors(
        expr in value(3, EVERYTHING),
        filter in condition(3, EVERYTHING),
        rows in prop::collection::vec(row(), 4),
    ) {
        let format = format();
        let sql = format!("SELECT {} AS x FROM s WHERE {}", expr.sql(&format), filter.sql(&format));
        let plain = planned(&sql, &format)?;
        let nulls = parse(&sql).unwrap().with_null_for_errors().plan(&format).unwrap();
        prop_assert!(!nulls.is_fallible());
        prop_assert_eq!(nulls.output.fields()[0].nullable, plain.output.fields()[0].nullable || plain.dependencies()[0].1);
        let mut input = RecordBuilder::new(&format);
        let mut output = RecordBuilder::new(&nulls.output);
        for row in rows {
            let bytes = row.bytes(&mut input);
            let record = Record::check(&format, &bytes).unwrap();
            let passes = Interpreter::new().matches(&nulls, &record).unwrap();
            prop_assert_eq!(passes, Interpreter::new().matches(&plain, &record).unwrap_or(false), "{} for {:?}", &sql, row);
            Interpreter::new().project(&nulls, &record, &mut output).unwrap();
            let given = given(Ok(output.finish().unwrap().to_vec()), &nulls.output);
            let meant = compute(&expr, &record);
            let is_error = ["OutOfRange", "DivisionByZero", "NotAValue", "BadPattern", "TextTooLong", "Domain"];
            let meant = if is_error.iter().any(|error| meant.starts_with(error)) { "Null".to_owned() } else { meant };
            prop_assert_eq!(given, meant, "{} for {:?}", sql, row);
        }
    }

    #[test]
    fn narrowed_plans_give_the_rest_of_their_fields(
        exprs in prop::collection::vec(value(2, EVERYTHING), 2..5),
        makes in prop::collection::vec(any::<bool>(), 5),
        rows in prop::collection::vec(row(), 4),
    ) {
        let format = format();
        let items: Vec<String> =
            exprs.iter().enumerate().map(|(at, expr)| format!("{} AS x{at}", expr.sql(&format))).collect();
        let program = planned(&format!("SELECT {} FROM s", items.join(", ")), &format)?;
        let dependencies = program.dependencies();
        prop_assert_eq!(dependencies.len(), program.output.fields().len());
        let mut made: Vec<bool> = dependencies.iter().zip(&makes).map(|((_, fails), makes)| *makes || *fails).collect();
        if !made.contains(&true) {
            prop_assert!(program.narrowed(&format, &made).is_none());
            made[0] = true;
        }
        // Only what is read is left of the records, the other way round.
        let read = |index: usize| dependencies.iter().zip(&made).any(|((reads, _), made)| *made && reads.contains(&index));
        let left: Vec<usize> = (0..format.fields().len()).rev().filter(|index| read(*index)).collect();
        let Ok(input) = Format::natural(left.iter().map(|index| format.fields()[*index].spec())) else { return Ok(()) };
        let narrowed = program.narrowed(&input, &made).unwrap();
        prop_assert_eq!(narrowed.reads.len(), left.len());
        let (mut wide, mut narrow) = (RecordBuilder::new(&format), RecordBuilder::new(&input));
        let (mut whole, mut part) = (RecordBuilder::new(&program.output), RecordBuilder::new(&narrowed.output));
        for row in rows {
            let bytes = row.bytes(&mut wide);
            let record = Record::check(&format, &bytes).unwrap();
            narrow.clear();
            for (to, from) in left.iter().enumerate() {
                narrow.set(to, record.get(*from)).unwrap();
            }
            let less = narrow.finish().unwrap().to_vec();
            let less = Record::check(&input, &less).unwrap();
            let meant = Interpreter::new().project(&program, &record, &mut whole);
            let given = Interpreter::new().project(&narrowed, &less, &mut part);
            prop_assert_eq!(meant.is_ok(), given.is_ok());
            if meant.is_err() {
                continue;
            }
            let (meant, given) = (whole.finish().unwrap().to_vec(), part.finish().unwrap().to_vec());
            let (meant, given) =
                (Record::check(&program.output, &meant).unwrap(), Record::check(&narrowed.output, &given).unwrap());
            for (at, field) in narrowed.output.fields().iter().enumerate() {
                let value = meant.get(program.output.field(&field.name).unwrap());
                prop_assert_eq!(format!("{:?}", given.get(at)), format!("{value:?}"));
            }
        }
    }

    #[test]
    fn where_passes_what_was_meant(filter in condition(3, EVERYTHING), rows in prop::collection::vec(row(), 4)) {
        let format = format();
        let sql = format!("SELECT * FROM s WHERE {}", filter.sql(&format));
        let program = planned(&sql, &format)?;
        // The shown plan reads back, and means the same. (A constant that was folded is a literal there, and one
        // that cannot be cast is refused, where the expression was a row error.)
        let shown = program.explain().filter.iter().map(|one| format!("({one})")).collect::<Vec<_>>().join(" AND ");
        let again = if shown.is_empty() {
            Ok(program.clone())
        } else {
            parse(&format!("SELECT * FROM s WHERE {shown}")).and_then(|select| select.plan(&format))
        };
        let again = match again {
            Ok(again) => again,
            Err(error) if error.message.contains("does not say a value") => program.clone(),
            Err(error) => return Err(TestCaseError::fail(format!("{error}"))),
        };
        let mut input = RecordBuilder::new(&format);
        for row in rows {
            let bytes = row.bytes(&mut input);
            let record = Record::check(&format, &bytes).unwrap();
            let meant = passes(&filter, &record);
            prop_assert_eq!(Interpreter::new().matches(&program, &record), meant, "{} for {:?}", sql, row);
            prop_assert_eq!(program.matches(&record), meant.unwrap_or(false));
            prop_assert_eq!(Interpreter::new().matches(&again, &record), meant, "{} for {:?}", shown, row);
        }
    }
}
