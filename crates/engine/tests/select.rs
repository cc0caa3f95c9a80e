//! Queries over batches give what the interpreter says of each record.
#![allow(clippy::unwrap_used)] // a test that fails may panic

#[path = "../../query/tests/generate/mod.rs"]
mod generate;
mod support;

use crossdock_engine::{Form, Handler, SelectHandler, Verdict};
use crossdock_format::{Format, RecordBuilder, Value};
use crossdock_mailbox::{Batch, Selection, Slice, Span};
use crossdock_query::{CompareOp, Constant, Decimal, Expr, Like, Node, Program, parse};
use generate::{Scope, condition, row, value};
use proptest::prelude::*;
use support::{batch, hold_to_interpreter};

const EVERYTHING: Scope = Scope { everything: true };

fn planned(sql: &str, format: &Format) -> Program {
    parse(sql).and_then(|select| select.plan(format)).unwrap_or_else(|error| panic!("{error}"))
}

/// Every type, nullable and not.
fn wide_format() -> Format {
    let types =
        ["bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f32", "f64", "timestamp", "string", "bytes"];
    let chars = ["char[1]", "char[2]", "char[3]", "char[7]", "char[8]", "char[9]", "char[20]"];
    let mut schema = String::new();
    let decimals = ["decimal(4, scale 2)", "decimal(8, scale 3)", "decimal(8, scale 0)", "decimal(16, scale 1)"];
    for (index, ty) in types.iter().chain(&chars).chain(&decimals).enumerate() {
        schema.push_str(&format!("n{index} {ty} null\nv{index} {ty}\n"));
    }
    Format::parse_schema(&schema).unwrap()
}

fn whole() -> impl Strategy<Value = i128> {
    let edges = [8, 16, 32, 64]
        .into_iter()
        .flat_map(|bits: u32| [(1i128 << (bits - 1)) - 1, -(1i128 << (bits - 1)), (1i128 << bits) - 1]);
    let near = edges.chain([0, 1 << 53, (1 << 24) + 1]).flat_map(|edge| [edge - 1, edge, edge + 1]);
    let near: Vec<i128> = near.filter(|value| *value >= i64::MIN.into() && *value <= u64::MAX.into()).collect();
    prop_oneof![2 => -3i128..4, 1 => prop::sample::select(near)]
}

fn float() -> impl Strategy<Value = f64> {
    let odd = [
        0.0,
        -0.0,
        0.5,
        -1.5,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        127.5,
        1e30,
        9_223_372_036_854_775_808.0,
        0.1f32.into(),
    ];
    prop_oneof![3 => prop::sample::select(odd.to_vec()), 1 => whole().prop_map(|value| value as f64)]
}

fn bytes() -> impl Strategy<Value = String> {
    let texts = [
        "",
        "a",
        "ab",
        "abc",
        "b",
        "B",
        "abcdefg",
        "abcdefgh",
        "abcdefghi",
        "abcdefghj",
        "é",
        "aé",
        "日本",
        "JFK",
        "a%",
    ];
    prop::sample::select(texts.to_vec()).prop_map(str::to_owned)
}

/// One of each, from which a value of any type can be made.
type Values = (i128, f64, String, bool);

fn values() -> impl Strategy<Value = Values> {
    (whole(), float(), bytes(), any::<bool>())
}

fn scale_of(ty: crossdock_format::FieldType) -> u8 {
    match ty {
        crossdock_format::FieldType::Decimal { scale, .. } => scale,
        _ => 0,
    }
}

fn set(row: &mut RecordBuilder, index: usize, (whole, float, text, truth): &Values) {
    let field = row.format().fields()[index].clone();
    if field.nullable && *truth && text.is_empty() {
        row.set_null(index).unwrap();
        return;
    }
    let mut cut = text.as_str();
    if let crossdock_format::FieldType::Char(room) = field.ty {
        while cut.len() > room.into() {
            cut = &cut[..cut.char_indices().last().unwrap().0];
        }
    }
    let clamped = |value: i128| match field.ty.integer_range() {
        Some((least, most)) => value.clamp(least, most),
        None => value.clamp(i64::MIN.into(), i64::MAX.into()),
    };
    let candidates = [
        Value::Bool(*truth),
        Value::Int(clamped(*whole) as i64),
        Value::Uint(clamped(*whole) as u64),
        Value::Float(*float),
        Value::Timestamp(clamped(*whole) as i64),
        Value::Text(cut.as_bytes()),
        Value::Bytes(text.as_bytes()),
        Value::Decimal { unscaled: *whole, scale: scale_of(field.ty) },
        Value::Decimal { unscaled: i128::from(*whole as i8), scale: scale_of(field.ty) },
    ];
    let set = candidates.into_iter().any(|value| row.set(index, value).is_ok());
    // A float may be too large for f32.
    if !set {
        row.set(index, Value::Float(1.5)).unwrap();
    }
}

/// A field against constants: what kernels are made for.
fn simple_condition() -> impl Strategy<Value = String> {
    let fields = wide_format().fields().len();
    let ops = ["=", "<>", "<", "<=", ">", ">="];
    let forms = (0..10usize, prop::sample::select(ops.to_vec()), any::<bool>());
    (0..fields, forms, values(), values(), prop::collection::vec(values(), 1..12)).prop_map(
        |(field, (form, op, negated), one, other, list)| {
            let format = wide_format();
            let field = &format.fields()[field];
            let constant = |values: &Values| literal(field.ty, values);
            let name = &field.name;
            let not = if negated { "NOT " } else { "" };
            let is_bool = field.ty == crossdock_format::FieldType::Bool;
            match form {
                0 => format!("{name} IS {not}NULL"),
                1 => format!("{name} {not}BETWEEN {} AND {}", constant(&one), constant(&other)),
                2 | 3 => {
                    let list: Vec<String> = list.iter().map(constant).collect();
                    format!("{name} {not}IN ({})", list.join(", "))
                }
                4 if field.ty.is_text() => format!("{name} {not}LIKE '{}%'", one.2.replace('%', "")),
                5 if field.ty.is_text() => format!("{name} {not}LIKE '{}'", one.2),
                4 if is_bool => format!("{not}{name}"),
                5 if is_bool => format!("{name} IS {not}TRUE"),
                6 => format!("{name} IS {not}DISTINCT FROM {}", constant(&one)),
                7 => format!("{} {op} {name}", constant(&one)),
                _ => format!("{name} {op} {}", constant(&one)),
            }
        },
    )
}

fn literal(ty: crossdock_format::FieldType, (whole, float, text, truth): &Values) -> String {
    use crossdock_format::FieldType as T;
    match ty {
        T::Decimal { .. } if text == "B" && *truth => "NULL".to_owned(),
        _ if text == "B" && *truth => format!("CAST(NULL AS {ty})"),
        T::Bool => truth.to_string(),
        T::Timestamp => format!("CAST({} AS timestamp)", (*whole).clamp(i64::MIN.into(), i64::MAX.into())),
        T::Char(_) | T::String => format!("'{text}'"),
        T::Bytes => format!("'\\x{}'", text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>()),
        // As many digits behind the point as the column has, fewer, more.
        T::Decimal { scale, .. } if text.len() < 3 => {
            let digits = (usize::from(scale) + text.len()).saturating_sub(1);
            format!("{}", Decimal { unscaled: *whole, scale: digits as u8 })
        }
        _ if text == "abc" => format!("{whole}.5"),
        _ if *truth => format!("{whole}"),
        _ => format!("CAST('{float}' AS f64)"),
    }
}

#[test]
fn rows_are_the_same_however_many_are_made_together() {
    let format = Format::parse_schema("n i64\nm i16 null\nc char[9]\nb bool null\nlong char[3000]\n").unwrap();
    let mut row = RecordBuilder::new(&format);
    let records: Vec<Vec<u8>> = (0..100i64)
        .map(|n| {
            row.clear();
            row.set(0, Value::Int(n)).unwrap();
            row.set(1, if n % 3 == 0 { Value::Null } else { Value::Int(n % 50) }).unwrap();
            row.set(2, Value::Text(format!("{n}").as_bytes())).unwrap();
            row.set(3, if n % 5 == 0 { Value::Null } else { Value::Bool(n % 2 == 0) }).unwrap();
            row.set(4, Value::Text(b"long")).unwrap();
            row.finish().unwrap().to_vec()
        })
        .collect();
    // Some records are row errors, and of the long rows only a few are made together.
    for sql in [
        "SELECT m, n, b FROM a",
        "SELECT b, 100 / (n % 7) AS q, m, c, n FROM a WHERE n <> 33",
        "SELECT long, n, 1 / (n % 4) AS q, m FROM a",
        "SELECT b, m, 7 / (n % 9) AS q, 'x' || c AS t FROM a",
    ] {
        let program = planned(sql, &format);
        for count in [0, 1, 2, 31, 32, 33, 64, 100] {
            let selected: Vec<usize> = (0..count).collect();
            hold_to_interpreter(&program, &records, &selected).unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4 * ProptestConfig::default().cases))]

    #[test]
    fn kernels_say_what_the_interpreter_says(
        condition in simple_condition(),
        rows in prop::collection::vec(values(), 1..30),
    ) {
        let format = wide_format();
        let program = planned(&format!("SELECT * FROM s WHERE {condition}"), &format);
        let mut row = RecordBuilder::new(&format);
        let records: Vec<Vec<u8>> = rows.iter().map(|values| {
            row.clear();
            (0..format.fields().len()).for_each(|index| set(&mut row, index, values));
            row.finish().unwrap().to_vec()
        }).collect();
        let all: Vec<usize> = (0..records.len()).collect();
        hold_to_interpreter(&program, &records, &all).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn random_queries_say_what_the_interpreter_says(
        filters in prop::collection::vec(condition(2, EVERYTHING), 0..4),
        columns in prop::collection::vec(value(2, EVERYTHING), 0..5),
        plain in prop::collection::vec(prop::sample::select(vec!["a", "i", "u", "f", "g", "b", "s", "c", "t", "d"]), 0..9),
        rows in prop::collection::vec((row(), any::<bool>()), 1..24),
    ) {
        let format = generate::format();
        let mut list: Vec<String> = plain.iter().map(|name| (*name).to_owned()).collect();
        list.extend(columns.iter().map(|column| column.sql(&format).to_string()));
        let list = if list.is_empty() { "*".to_owned() } else { list.join(", ") };
        let filter = filters.iter().map(|filter| format!("({})", filter.sql(&format))).collect::<Vec<_>>().join(" AND ");
        let filter = if filter.is_empty() { filter } else { format!(" WHERE {filter}") };
        let sql = format!("SELECT {list} FROM s{filter}");
        let program = planned(&sql, &format);
        let mut builder = RecordBuilder::new(&format);
        let records: Vec<Vec<u8>> = rows.iter().map(|(row, _)| row.bytes(&mut builder)).collect();
        let selected: Vec<usize> = (0..rows.len()).filter(|&index| rows[index].1).collect();
        hold_to_interpreter(&program, &records, &selected).map_err(TestCaseError::fail)?;
    }

    /// Fields side by side are copied together.
    #[test]
    fn any_list_of_fields_is_copied(
        runs in prop::collection::vec((0usize..10, 1usize..10), 1..6),
        rows in prop::collection::vec(values(), 1..4),
    ) {
        let schema = "a char[3]\nb char[2]\nc char[1]\nd char[40]\ne i8\nf i32\ng i64\nh bool\ni i16 null\nj string\n";
        let format = Format::parse_schema(schema).unwrap();
        let fields = format.fields();
        let list = runs.iter().flat_map(|&(from, count)| fields.iter().skip(from).take(count));
        let list: Vec<&str> = list.map(|field| field.name.as_str()).collect();
        let program = planned(&format!("SELECT {} FROM s", list.join(", ")), &format);
        let mut row = RecordBuilder::new(&format);
        let records: Vec<Vec<u8>> = rows.iter().map(|values| {
            row.clear();
            (0..fields.len()).for_each(|index| set(&mut row, index, values));
            row.finish().unwrap().to_vec()
        }).collect();
        let all: Vec<usize> = (0..records.len()).collect();
        hold_to_interpreter(&program, &records, &all).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn bytes_that_are_no_records_do_no_harm(
        noise in prop::collection::vec(any::<u8>(), 0..400),
        spans in prop::collection::vec((0u16..3, 0u32..500, 0u32..500), 1..20),
        condition in simple_condition(),
    ) {
        let format = wide_format();
        let names: Vec<&str> = format.fields().iter().map(|field| field.name.as_str()).collect();
        let list = format!("SELECT {}, n3 + 1 FROM s", names.join(", "));
        for sql in [format!("SELECT * FROM s WHERE {condition}"), list] {
            let mut whole = batch(std::slice::from_ref(&noise));
            whole.records = spans.iter().map(|&(slice, start, len)| Span { slice, start, len }).collect();
            whole.slices.push(Slice { buffer: 9, start: 0, len: 100, records: 1 });
            let mut handler = SelectHandler::new(planned(&sql, &format));
            // Also more than there are.
            let mut selection = Selection::all(spans.len() + 2);
            let mut sink: Vec<Vec<u8>> = Vec::new();
            let _ = handler.process(&whole, &mut selection, &mut sink);
            for record in sink {
                let output = &handler.program().output;
                prop_assert!(crossdock_format::record_len(&record).is_some_and(|len| len >= output.fixed_bytes()));
            }
        }
    }
}

fn flights() -> Format {
    Format::parse_schema(
        "dep_delay i32 null\ncarrier char[2]\nflight i32\ntailnum string null\norigin char[3]\ndest char[3]\n",
    )
    .unwrap()
}

fn forms(sql: &str) -> Vec<(String, Form)> {
    let handler = SelectHandler::new(planned(sql, &flights()));
    handler.steps().into_iter().map(|step| (step.condition, step.form)).collect()
}

#[test]
fn common_conditions_are_kernels() {
    for condition in [
        "origin = 'JFK'",
        "origin <> 'JFK'",
        "'JFK' < origin",
        "dep_delay > 15",
        "dep_delay > 15.5",
        "NOT dep_delay = 15",
        "dep_delay BETWEEN -5 AND 5",
        "origin IN ('JFK', 'LGA', 'EWR', 'A', 'B', 'C', 'D', 'E', 'F', 'G')",
        "tailnum = 'N1'",
        "tailnum >= 'N1'",
        "tailnum IN ('N1', 'N2')",
        "tailnum LIKE 'N1%'",
        "tailnum LIKE 'N1'",
        "tailnum IS NOT NULL",
        "dep_delay IS NOT DISTINCT FROM NULL",
    ] {
        assert_eq!(forms(&format!("SELECT * FROM A WHERE {condition}"))[0].1, Form::Kernel, "{condition}");
    }
    for condition in [
        "dep_delay + 1 > 15",
        "origin = dest",
        "origin = 'JFK' OR dest = 'JFK'",
        "tailnum LIKE '%1'",
        "tailnum LIKE 'N\\%'",
    ] {
        assert_eq!(forms(&format!("SELECT * FROM A WHERE {condition}"))[0].1, Form::Interpreted, "{condition}");
    }
}

#[test]
fn cheap_conditions_come_first_but_not_past_one_that_can_fail() {
    let order = |sql: &str| forms(sql).into_iter().map(|(condition, _)| condition).collect::<Vec<_>>();
    assert_eq!(
        order("SELECT * FROM A WHERE origin = dest AND tailnum = 'N1' AND dep_delay > 15"),
        ["dep_delay > 15", "tailnum = 'N1'", "origin = dest", ""]
    );
    assert_eq!(
        order(
            "SELECT * FROM A WHERE tailnum = 'N1' AND flight > 5 AND 10 / flight > 1 AND origin = dest AND dep_delay > 15"
        ),
        ["flight > 5", "tailnum = 'N1'", "10 / flight > 1", "dep_delay > 15", "origin = dest", ""]
    );
}

#[test]
fn lists_of_fields_are_copied() {
    let form = |sql: &str| forms(sql).pop().unwrap().1;
    assert_eq!(form("SELECT * FROM A"), Form::Direct);
    assert_eq!(form("SELECT dest, tailnum, dep_delay, dest AS again FROM A"), Form::Kernel);
    assert_eq!(form("SELECT dest, flight + 1 FROM A"), Form::Interpreted);
}

#[test]
fn an_empty_batch_is_dropped() {
    for sql in ["SELECT * FROM A", "SELECT flight FROM A WHERE flight = 1"] {
        let mut handler = SelectHandler::new(planned(sql, &flights()));
        let mut sink: Vec<Vec<u8>> = Vec::new();
        let verdict = handler.process(&Batch::new(), &mut Selection::default(), &mut sink);
        assert_eq!(verdict, Verdict::Drop);
        assert_eq!(handler.counters(), crossdock_engine::HandlerCounters::default());
    }
}

/// A program can be put together by hand, and wrongly: then every record is a row error, and nothing panics.
#[test]
fn an_ill_typed_program_drops_its_records() {
    let format = flights();
    let mut row = RecordBuilder::new(&format);
    for (index, value) in [(1, "UA"), (4, "JFK"), (5, "LAX")] {
        row.set_text(index, value).unwrap();
    }
    row.set_i64(2, 7).unwrap();
    let records = vec![row.finish().unwrap().to_vec()];
    let field = |index: usize| Expr { node: Node::Field(index), ty: format.fields()[index].ty, nullable: true };
    let pattern = Expr::constant(Constant::Int(1), crossdock_format::FieldType::I64);
    let like = Like { negated: false, any_case: false, operand: field(2), pattern, escape: None };
    for node in [
        Node::Compare { op: CompareOp::Eq, left: Box::new(field(2)), right: Box::new(field(4)) },
        Node::Negate(Box::new(field(4))),
        Node::Field(2),
        Node::Field(99),
        Node::Like(Box::new(like)),
    ] {
        let mut program = planned("SELECT * FROM A", &format);
        program.filter = vec![Expr { node, ty: crossdock_format::FieldType::Bool, nullable: true }];
        hold_to_interpreter(&program, &records, &[0]).unwrap();
    }
}
