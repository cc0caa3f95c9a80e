//! Random records of one format and random well-typed expressions over them.
#![allow(dead_code)] // each test takes what it needs

use crossdock_format::{FieldSpec, FieldType, Format, RecordBuilder, TypeSpec, Value};
use crossdock_query::{ArithmeticOp, Call, CompareOp, Constant, Decimal, Expr, Function, Kind, Like, Node};
use proptest::prelude::*;

/// The kinds of expressions to make.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope {
    /// Also what another database does otherwise: numbers as text and back, comparisons of `i64` with `f64`.
    pub(crate) everything: bool,
}

/// A record's values, in the order of [`format`]'s fields.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) a: Option<i64>,
    pub(crate) i: i16,
    pub(crate) u: Option<u64>,
    pub(crate) f: Option<f64>,
    pub(crate) g: f32,
    pub(crate) b: Option<bool>,
    pub(crate) s: Option<String>,
    pub(crate) c: String,
    pub(crate) t: Option<i64>,
    /// In hundredths.
    pub(crate) d: Option<i64>,
    pub(crate) l: Option<Vec<i64>>,
    pub(crate) m: Vec<String>,
}

pub(crate) fn format() -> Format {
    Format::natural([
        FieldSpec::nullable("a", FieldType::I64),
        FieldSpec::new("i", FieldType::I16),
        FieldSpec::nullable("u", FieldType::U64),
        FieldSpec::nullable("f", FieldType::F64),
        FieldSpec::new("g", FieldType::F32),
        FieldSpec::nullable("b", FieldType::Bool),
        FieldSpec::nullable("s", FieldType::String),
        FieldSpec::new("c", FieldType::Char(3)),
        FieldSpec::nullable("t", FieldType::Timestamp),
        FieldSpec::nullable("d", FieldType::Decimal { bytes: 8, scale: 2 }),
        FieldSpec::nullable("l", TypeSpec::list(FieldType::I64)),
        FieldSpec::new("m", TypeSpec::list(FieldType::String)),
    ])
    .unwrap()
}

impl Row {
    pub(crate) fn bytes(&self, builder: &mut RecordBuilder) -> Vec<u8> {
        builder.clear();
        let or_null = |value: Option<Value<'static>>| value.unwrap_or(Value::Null);
        let values = [
            or_null(self.a.map(Value::Int)),
            Value::Int(self.i.into()),
            or_null(self.u.map(Value::Uint)),
            or_null(self.f.map(Value::Float)),
            Value::Float(self.g.into()),
            or_null(self.b.map(Value::Bool)),
            self.s.as_ref().map_or(Value::Null, |text| Value::Text(text.as_bytes())),
            Value::Text(self.c.as_bytes()),
            or_null(self.t.map(Value::Timestamp)),
            or_null(self.d.map(|units| Value::Decimal { unscaled: units.into(), scale: 2 })),
        ];
        for (field, value) in values.into_iter().enumerate() {
            builder.set(field, value).unwrap();
        }
        if let Some(l) = &self.l {
            builder.begin_list(10).unwrap();
            l.iter().for_each(|value| builder.push(Value::Int(*value)).unwrap());
            builder.end_list().unwrap();
        }
        builder.begin_list(11).unwrap();
        self.m.iter().for_each(|text| builder.push(Value::Text(text.as_bytes())).unwrap());
        builder.end_list().unwrap();
        builder.finish().unwrap().to_vec()
    }
}

const TEXTS: &[&str] = &[
    "", "JFK", "LAX", "LGA", "jfk", "J", "a", "ab", "abab", "A%", "a_b", "it's", "\"x\"", "é", "Äpfel", "äpfel",
    "日本", "5", "-12", "3.5", "007", "true", " 1", "x,y", "N\\A",
];
const SHORT_TEXTS: &[&str] = &["", "JFK", "LAX", "jfk", "é", "a", "ab", "日", "5", "x%"];
const PATTERNS: &[&str] =
    &["%", "", "_", "JFK", "J%", "%A%", "%a_", "__", "a!%", "a!_b", "%é%", "%b%b", "_F%", "ä%", "%'%", "x%y", "日_"];

pub(crate) fn row() -> impl Strategy<Value = Row> {
    let whole = prop_oneof![
        6 => -20i64..20,
        2 => any::<i32>().prop_map(i64::from),
        1 => any::<i64>(),
        1 => prop::sample::select(vec![i64::MIN, i64::MAX, i64::MIN + 1, 1 << 53, (1 << 53) + 1]),
    ];
    let elements = prop::collection::vec(prop_oneof![6 => -9i64..20, 1 => any::<i64>()], 0..4);
    let texts = prop::collection::vec(prop::sample::select(SHORT_TEXTS).prop_map(str::to_owned), 0..4);
    let unsigned = prop_oneof![6 => 0u64..20, 1 => any::<u64>(), 1 => prop::sample::select(vec![u64::MAX, 1 << 63])];
    (
        (prop::option::weighted(0.8, whole), -9i16..9, prop::option::weighted(0.8, unsigned)),
        (prop::option::weighted(0.8, float()), float().prop_map(|value| value as f32)),
        prop::option::weighted(0.7, any::<bool>()),
        prop::option::weighted(0.8, prop::sample::select(TEXTS)),
        (prop::sample::select(SHORT_TEXTS), prop::option::weighted(0.8, elements), texts),
        (prop::option::weighted(0.8, time()), prop::option::weighted(0.8, hundredths())),
    )
        .prop_map(|((a, i, u), (f, g), b, s, (c, l, m), (t, d))| Row {
            a,
            i,
            u,
            f,
            g,
            b,
            s: s.map(str::to_owned),
            c: c.to_owned(),
            t,
            d,
            l,
            m,
        })
}

/// Units of a `decimal(8, scale 2)`.
fn hundredths() -> impl Strategy<Value = i64> {
    prop_oneof![6 => -500i64..500, 1 => any::<i32>().prop_map(i64::from), 1 => -(10_i64.pow(17))..10_i64.pow(17)]
}

fn float() -> impl Strategy<Value = f64> {
    prop_oneof![
        6 => (-40i32..40).prop_map(|eighths| f64::from(eighths) / 8.0),
        1 => -1e6..1e6f64,
        1 => prop::sample::select(vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 0.0, 1e300, 1e-300, 0.1]),
    ]
}

fn time() -> impl Strategy<Value = i64> {
    prop_oneof![
        3 => (0i64..6).prop_map(|day| 1_357_016_400_000_000_000 + day * 86_400_000_000_000),
        1 => prop::sample::select(vec![0, -1, 1, 1_357_016_400_123_456_789]),
    ]
}

fn expr(node: Node, ty: FieldType) -> Expr {
    // Nullability is for the planner to find out; that anything may be null is always right.
    Expr { node, ty, nullable: true }
}

fn field(name: &str) -> Expr {
    let format = format();
    let index = format.field(name).unwrap();
    expr(Node::Field(index), format.fields()[index].ty)
}

fn one_of(names: &'static [&'static str]) -> BoxedStrategy<Expr> {
    prop::sample::select(names).prop_map(field).boxed()
}

fn null(ty: FieldType) -> BoxedStrategy<Expr> {
    Just(Expr::constant(Constant::Null, ty)).boxed()
}

type Exprs = BoxedStrategy<Expr>;

/// A condition.
pub(crate) fn condition(depth: u32, scope: Scope) -> Exprs {
    let leaf = prop_oneof![
        4 => one_of(&["b"]),
        1 => any::<bool>().prop_map(|truth| Expr::constant(Constant::Bool(truth), FieldType::Bool)),
        1 => null(FieldType::Bool),
    ];
    if depth == 0 {
        return leaf.boxed();
    }
    let inner = condition(depth - 1, scope);
    let bool_of = |node| expr(node, FieldType::Bool);
    let is_truth =
        (prop::option::of(any::<bool>()), any::<bool>(), inner.clone()).prop_map(move |(truth, negated, operand)| {
            bool_of(Node::IsTruth { truth, negated, operand: Box::new(operand) })
        });
    prop_oneof![
        1 => leaf,
        6 => comparison(depth, scope),
        1 => with_elements(depth, scope),
        2 => like(depth, scope),
        2 => prop::collection::vec(inner.clone(), 2..4).prop_map(move |all| bool_of(Node::And(all))),
        2 => prop::collection::vec(inner.clone(), 2..4).prop_map(move |all| bool_of(Node::Or(all))),
        2 => inner.clone().prop_map(move |operand| bool_of(Node::Not(Box::new(operand)))),
        1 => is_truth,
        1 => alternatives(inner.clone(), inner, FieldType::Bool),
    ]
    .boxed()
}

const OPS: [CompareOp; 6] = [CompareOp::Eq, CompareOp::Ne, CompareOp::Lt, CompareOp::Le, CompareOp::Gt, CompareOp::Ge];

/// Comparisons with the elements of a list.
fn with_elements(depth: u32, scope: Scope) -> Exprs {
    let pair = prop_oneof![
        integer(depth - 1, scope).prop_map(|value| (value, field("l"))),
        text(depth - 1, scope).prop_map(|value| (value, field("m"))),
    ];
    (prop::sample::select(&OPS[..]), any::<bool>(), pair)
        .prop_map(|(op, is_all, (left, right))| {
            let [left, right] = [left, right].map(Box::new);
            expr(Node::Quantified { op, is_all, left, right }, FieldType::Bool)
        })
        .boxed()
}

/// Whole numbers that are computed from lists.
fn of_lists(inner: Exprs, scope: Scope) -> Exprs {
    prop_oneof![
        2 => inner.clone().prop_map(|index| call("[]", Kind::Values, vec![field("l"), index], FieldType::I64)),
        1 => inner.prop_map(|value| call("array_position", Kind::Values, vec![field("l"), value], FieldType::I64)),
        1 => text(0, scope)
            .prop_map(|value| call("array_position", Kind::Values, vec![field("m"), value], FieldType::I64)),
        1 => one_of(&["l", "m"]).prop_map(|list| call("cardinality", Kind::List, vec![list], FieldType::I64)),
    ]
    .boxed()
}

/// Texts that are computed from lists.
fn text_of_lists(index: Exprs) -> Exprs {
    let between = || Expr::constant(Constant::Text(", ".to_owned()), FieldType::String);
    prop_oneof![
        index.prop_map(|index| call("[]", Kind::Values, vec![field("m"), index], FieldType::String)),
        one_of(&["l", "m"]).prop_map(move |list| call(
            "array_to_string",
            Kind::Values,
            vec![list, between()],
            FieldType::String
        )),
    ]
    .boxed()
}

/// A condition on lists: on their elements, on what is computed from them, or on whether they are null.
pub(crate) fn list_condition(scope: Scope) -> Exprs {
    let is_null = (any::<bool>(), one_of(&["l", "m"]).prop_map(Box::new))
        .prop_map(|(negated, operand)| expr(Node::IsNull { negated, operand }, FieldType::Bool));
    prop_oneof![
        4 => with_elements(2, scope),
        2 => comparison_of(&list_number(scope)),
        1 => comparison_of(&list_text(scope)),
        1 => is_null,
    ]
    .boxed()
}

/// A whole number that is computed from a list.
pub(crate) fn list_number(scope: Scope) -> Exprs {
    of_lists(integer(1, scope), scope)
}

/// A text that is computed from a list.
pub(crate) fn list_text(scope: Scope) -> Exprs {
    text_of_lists(integer(1, scope))
}

/// Conditions over two or more values of one class.
fn comparison(depth: u32, scope: Scope) -> Exprs {
    let whole = prop_oneof![3 => integer(depth - 1, scope), 1 => one_of(&["u"]), 1 => wide_constant()].boxed();
    let number =
        if scope.everything { prop_oneof![whole.clone(), float_expr(depth - 1, scope)].boxed() } else { whole };
    // Another database may have no room to compare decimals of many digits.
    let exact = match scope.everything {
        true => prop_oneof![4 => decimal(depth - 1, scope), 1 => integer(depth - 1, scope), 1 => float_expr(0, scope)]
            .boxed(),
        false => prop_oneof![4 => decimal(0, scope), 1 => one_of(&["i"])].boxed(),
    };
    prop_oneof![
        3 => comparison_of(&number),
        2 => comparison_of(&float_expr(depth - 1, scope)),
        2 => comparison_of(&exact),
        3 => comparison_of(&text(depth - 1, scope)),
        1 => comparison_of(&if scope.everything { timestamp() } else { plain_timestamp() }),
        1 => comparison_of(&condition(depth - 1, scope)),
    ]
    .boxed()
}

fn comparison_of(value: &Exprs) -> Exprs {
    let bool_of = |node| expr(node, FieldType::Bool);
    let pair = || (value.clone().prop_map(Box::new), value.clone().prop_map(Box::new));
    let operand = value.clone().prop_map(Box::new);
    prop_oneof![
        4 => (prop::sample::select(&OPS[..]), pair())
            .prop_map(move |(op, (left, right))| bool_of(Node::Compare { op, left, right })),
        1 => (any::<bool>(), pair())
            .prop_map(move |(negated, (left, right))| bool_of(Node::Distinct { negated, left, right })),
        1 => (any::<bool>(), operand.clone(), prop::collection::vec(value.clone(), 1..4))
            .prop_map(move |(negated, operand, list)| bool_of(Node::In { negated, operand, list })),
        1 => (any::<bool>(), operand.clone(), pair())
            .prop_map(move |(negated, operand, (low, high))| bool_of(Node::Between { negated, operand, low, high })),
        1 => (any::<bool>(), operand).prop_map(move |(negated, operand)| bool_of(Node::IsNull { negated, operand })),
    ]
    .boxed()
}

fn like(depth: u32, scope: Scope) -> Exprs {
    let pattern = prop_oneof![
        4 => prop::sample::select(PATTERNS).prop_map(|text| Expr::constant(Constant::Text(text.to_owned()), FieldType::String)),
        1 => one_of(&["c"]),
        1 => null(FieldType::String),
    ];
    (any::<bool>(), any::<bool>(), text(depth - 1, scope), pattern)
        .prop_map(|(negated, any_case, operand, pattern)| {
            let like = Like { negated, any_case, operand, pattern, escape: Some('!') };
            expr(Node::Like(Box::new(like)), FieldType::Bool)
        })
        .boxed()
}

fn timestamp() -> Exprs {
    let plain = plain_timestamp();
    let word = |text: &str| Expr::constant(Constant::Text(text.to_owned()), FieldType::String);
    let cut = (prop::sample::select(vec!["minute", "week", "quarter", "century"]), plain.clone())
        .prop_map(move |(unit, time)| call("date_trunc", Kind::Word, vec![word(unit), time], FieldType::Timestamp));
    let intervals = vec!["1 month", "-3 days 01:00:00.5", "400 years"];
    let moved = (prop::sample::select(vec!["+", "-"]), plain.clone(), prop::sample::select(intervals)).prop_map(
        move |(op, time, interval)| call(op, Kind::Timestamp, vec![time, word(interval)], FieldType::Timestamp),
    );
    prop_oneof![4 => plain, 1 => cut, 1 => moved].boxed()
}

fn plain_timestamp() -> Exprs {
    prop_oneof![
        3 => one_of(&["t"]),
        2 => time().prop_map(|time| Expr::constant(Constant::Timestamp(time), FieldType::Timestamp)),
        1 => null(FieldType::Timestamp),
    ]
    .boxed()
}

/// A constant that may be beyond `i64`; it must not meet a unary minus, with which it would be one literal.
fn wide_constant() -> Exprs {
    let wide = prop::sample::select(vec![i128::from(u64::MAX), 1 << 63, i128::from(i64::MAX)]);
    wide.prop_map(|value| Expr::constant(Constant::Int(value), FieldType::U64)).boxed()
}

/// CASE in both forms, COALESCE, NULLIF.
fn alternatives(value: Exprs, condition: Exprs, ty: FieldType) -> Exprs {
    let branches = |when: Exprs| prop::collection::vec((when, value.clone()), 1..3);
    let otherwise = prop::option::of(value.clone().prop_map(Box::new));
    prop_oneof![
        (branches(condition), otherwise.clone())
            .prop_map(move |(branches, otherwise)| { expr(Node::Case { operand: None, branches, otherwise }, ty) }),
        (value.clone(), branches(value.clone()), otherwise).prop_map(move |(operand, branches, otherwise)| {
            expr(Node::Case { operand: Some(Box::new(operand)), branches, otherwise }, ty)
        }),
        prop::collection::vec(value.clone(), 1..4).prop_map(move |options| expr(Node::Coalesce(options), ty)),
        (value.clone(), value).prop_map(move |(left, right)| expr(Node::NullIf(Box::new(left), Box::new(right)), ty)),
    ]
    .boxed()
}

fn cast(operand: Exprs, ty: FieldType) -> Exprs {
    operand.prop_map(move |operand| expr(Node::Cast(Box::new(operand)), ty)).boxed()
}

/// The planner refuses to cast a literal (with its sign) that the type does not hold.
fn not_literal(operand: Exprs, instead: &'static str) -> Exprs {
    let replaced = move |operand: Expr| match operand.node {
        Node::Const(_) | Node::Negate(_) => field(instead),
        _ => operand,
    };
    operand.prop_map(replaced).boxed()
}

/// A whole number, of a type that a signed one holds.
pub(crate) fn integer(depth: u32, scope: Scope) -> Exprs {
    let leaf = prop_oneof![
        4 => one_of(&["a", "i"]),
        3 => (-9i128..99).prop_map(|value| Expr::constant(Constant::Int(value), FieldType::I64)),
        1 => prop::sample::select(vec![i128::from(i64::MIN), i64::MAX.into(), 1 << 40])
            .prop_map(|value| Expr::constant(Constant::Int(value), FieldType::I64)),
        1 => null(FieldType::I64),
    ]
    .boxed();
    if depth == 0 {
        return leaf;
    }
    let inner = integer(depth - 1, scope);
    let operand = prop_oneof![4 => inner.clone(), 1 => one_of(&["u"])];
    let ops = vec![
        ArithmeticOp::Add,
        ArithmeticOp::Subtract,
        ArithmeticOp::Multiply,
        ArithmeticOp::Divide,
        ArithmeticOp::Remainder,
    ];
    let arithmetic = (prop::sample::select(ops), operand.clone(), operand).prop_map(|(op, left, right)| {
        let (left, right) = (Box::new(left), Box::new(right));
        expr(Node::Arithmetic { op, left, right }, FieldType::I64)
    });
    prop_oneof![
        2 => leaf,
        4 => arithmetic,
        1 => inner.clone().prop_map(|operand| expr(Node::Negate(Box::new(operand)), FieldType::I64)),
        2 => alternatives(inner.clone(), condition(depth - 1, scope), FieldType::I64),
        1 => of_lists(inner.clone(), scope),
        1 => cast(not_literal(inner, "a"), FieldType::I16),
        1 => cast(one_of(&["u"]), FieldType::I64),
        1 => cast(not_literal(float_expr(depth - 1, scope), "f"), FieldType::I64),
        1 => cast(condition(depth - 1, scope), FieldType::I64),
        // Not of a literal: the planner refuses a text that says no number.
        1 => cast(one_of(&["s", "c"]), FieldType::I64),
    ]
    .boxed()
}

/// A number with a fraction.
pub(crate) fn float_expr(depth: u32, scope: Scope) -> Exprs {
    let leaf = prop_oneof![
        4 => one_of(&["f"]),
        3 => float().prop_map(|value| Expr::constant(Constant::Float(value), FieldType::F64)),
        1 => null(FieldType::F64),
    ]
    .boxed();
    if depth == 0 {
        return leaf;
    }
    let inner = float_expr(depth - 1, scope);
    let other = prop_oneof![3 => inner.clone(), 1 => integer(depth - 1, scope), 1 => one_of(&["g"])];
    let ops = vec![
        ArithmeticOp::Add,
        ArithmeticOp::Subtract,
        ArithmeticOp::Multiply,
        ArithmeticOp::Divide,
        ArithmeticOp::Remainder,
    ];
    let arithmetic =
        (prop::sample::select(ops), inner.clone(), other, any::<bool>()).prop_map(|(op, one, other, swap)| {
            let (left, right) = if swap { (other, one) } else { (one, other) };
            expr(Node::Arithmetic { op, left: Box::new(left), right: Box::new(right) }, FieldType::F64)
        });
    let from_text = cast(one_of(&["s", "c"]), FieldType::F64);
    prop_oneof![
        2 => leaf,
        4 => arithmetic,
        1 => inner.clone().prop_map(|operand| expr(Node::Negate(Box::new(operand)), FieldType::F64)),
        2 => alternatives(inner, condition(depth - 1, scope), FieldType::F64),
        1 => cast(integer(depth - 1, scope), FieldType::F64),
        1 => cast(one_of(&["g"]), FieldType::F64),
        1 => from_text,
    ]
    .boxed()
}

/// A call of the entry whose first argument is of this kind.
pub(crate) fn call(name: &str, first: Kind, arguments: Vec<Expr>, ty: FieldType) -> Expr {
    let function = Function::named(name).find(|function| function.arguments[0] == first).unwrap();
    expr(Node::Call(Box::new(Call::new(function, arguments).unwrap())), ty)
}

fn scale(expr: &Expr) -> u8 {
    match expr.ty {
        FieldType::Decimal { scale, .. } => scale,
        _ => 0,
    }
}

fn of_scale(scale: u8) -> FieldType {
    FieldType::Decimal { bytes: 16, scale }
}

/// A decimal of at most 3 digits behind the point for each of the numbers that are multiplied.
pub(crate) fn decimal(depth: u32, scope: Scope) -> Exprs {
    let literal = (-2000i128..2000, 1u8..4)
        .prop_map(|(unscaled, scale)| Expr::constant(Constant::Decimal(Decimal { unscaled, scale }), of_scale(scale)));
    let leaf = prop_oneof![4 => one_of(&["d"]), 3 => literal, 1 => null(of_scale(1))].boxed();
    if depth == 0 {
        return leaf;
    }
    let inner = decimal(depth - 1, scope);
    let whole = prop_oneof![
        one_of(&["a", "i"]),
        (-9i128..99).prop_map(|value| Expr::constant(Constant::Int(value), FieldType::I64))
    ];
    let mut ops = vec![ArithmeticOp::Add, ArithmeticOp::Subtract, ArithmeticOp::Multiply];
    if scope.everything {
        // DuckDB computes these as floats.
        ops.extend([ArithmeticOp::Divide, ArithmeticOp::Remainder]);
    }
    let other = prop_oneof![3 => inner.clone(), 1 => whole];
    let arithmetic =
        (prop::sample::select(ops), inner.clone(), other, any::<bool>()).prop_map(|(op, one, other, swap)| {
            let (left, right) = if swap { (other, one) } else { (one, other) };
            let (a, b) = (scale(&left), scale(&right));
            let scale = match op {
                ArithmeticOp::Multiply => a + b,
                ArithmeticOp::Divide => a.max(b).max(16),
                _ => a.max(b),
            };
            // A product of quotients may have too many digits; the planner refuses it.
            let op = if scale > 38 { ArithmeticOp::Subtract } else { op };
            let ty = of_scale(if scale > 38 { a.max(b) } else { scale });
            expr(Node::Arithmetic { op, left: Box::new(left), right: Box::new(right) }, ty)
        });
    let roundings = if scope.everything { vec!["round", "trunc"] } else { vec!["round"] };
    let rounded = (prop::sample::select(roundings), inner.clone(), -2i128..6).prop_map(|(name, operand, digits)| {
        let literal = Expr::constant(Constant::Int(digits), FieldType::I64);
        call(name, Kind::Decimal, vec![operand, literal], of_scale(digits.max(0) as u8))
    });
    let of_one =
        (prop::sample::select(vec!["abs", "ceil", "floor", "sign"]), inner.clone()).prop_map(|(name, operand)| {
            let ty = of_scale(if name == "abs" { scale(&operand) } else { 0 });
            call(name, Kind::Decimal, vec![operand], ty)
        });
    let negated = inner.clone().prop_map(|operand| {
        let ty = of_scale(scale(&operand));
        expr(Node::Negate(Box::new(operand)), ty)
    });
    prop_oneof![
        2 => leaf,
        5 => arithmetic,
        1 => rounded,
        1 => of_one,
        1 => negated,
        1 => alternatives(cast(inner, of_scale(3)), condition(depth - 1, scope), of_scale(3)),
        1 => cast(one_of(&["a", "i"]), of_scale(2)),
    ]
    .boxed()
}

/// Functions of texts that have a text, over texts and small numbers.
fn text_call(inner: &Exprs) -> Exprs {
    let small = (-3i128..6).prop_map(|value| Expr::constant(Constant::Int(value), FieldType::I64));
    let word = |words: &'static [&'static str]| {
        prop::sample::select(words).prop_map(|text| Expr::constant(Constant::Text(text.to_owned()), FieldType::String))
    };
    let of_texts = |names: &'static [&'static str], count: usize| {
        (prop::sample::select(names), prop::collection::vec(inner.clone(), count))
            .prop_map(|(name, arguments)| call(name, Kind::Text, arguments, FieldType::String))
    };
    let patterns = &["a", "[A-J]+", "(.)b", "^.", "", "日|é", "\\d+"][..];
    prop_oneof![
        of_texts(&["upper", "lower", "initcap", "reverse", "btrim", "ltrim", "rtrim"], 1),
        of_texts(&["btrim", "ltrim", "rtrim"], 2),
        of_texts(&["replace", "translate"], 3),
        (prop::sample::select(vec!["left", "right", "lpad", "rpad", "repeat", "substr"]), inner.clone(), small.clone())
            .prop_map(|(name, text, count)| call(name, Kind::Text, vec![text, count], FieldType::String)),
        (inner.clone(), inner.clone(), small).prop_map(|(text, by, number)| call(
            "split_part",
            Kind::Text,
            vec![text, by, number],
            FieldType::String
        )),
        prop::collection::vec(inner.clone(), 1..4).prop_map(|arguments| call(
            "concat",
            Kind::Printed,
            arguments,
            FieldType::String
        )),
        prop::collection::vec(inner.clone(), 2..4).prop_map(|arguments| call(
            "concat_ws",
            Kind::Text,
            arguments,
            FieldType::String
        )),
        (prop::sample::select(vec!["greatest", "least"]), prop::collection::vec(inner.clone(), 1..4))
            .prop_map(|(name, arguments)| call(name, Kind::Same, arguments, FieldType::String)),
        (inner.clone(), word(patterns)).prop_map(|(text, pattern)| call(
            "regexp_substr",
            Kind::Text,
            vec![text, pattern],
            FieldType::String
        )),
        (inner.clone(), word(patterns), word(&["", "<\\1\\&>", "x"]), word(&["g", "", "gi"])).prop_map(
            |(text, pattern, with, flags)| {
                call("regexp_replace", Kind::Text, vec![text, pattern, with, flags], FieldType::String)
            }
        ),
    ]
    .boxed()
}

/// A text.
pub(crate) fn text(depth: u32, scope: Scope) -> Exprs {
    let leaf = prop_oneof![
        4 => one_of(&["s", "c"]),
        3 => prop::sample::select(TEXTS).prop_map(|text| Expr::constant(Constant::Text(text.to_owned()), FieldType::String)),
        1 => null(FieldType::String),
    ]
    .boxed();
    if depth == 0 {
        return leaf;
    }
    let inner = text(depth - 1, scope);
    let concat =
        prop::collection::vec(inner.clone(), 2..4).prop_map(|parts| expr(Node::Concat(parts), FieldType::String));
    let plain = prop_oneof![
        3 => leaf,
        2 => concat,
        2 => alternatives(inner.clone(), condition(depth - 1, scope), FieldType::String),
        1 => text_of_lists(integer(0, scope)),
        1 => cast(integer(depth - 1, scope), FieldType::String),
        1 => cast(condition(depth - 1, scope), FieldType::String),
    ];
    if !scope.everything {
        return plain.boxed();
    }
    prop_oneof![
        6 => plain,
        3 => text_call(&inner),
        1 => cast(decimal(depth - 1, scope), FieldType::String),
        1 => cast(float_expr(depth - 1, scope), FieldType::String),
        1 => cast(timestamp(), FieldType::String),
        1 => cast(inner, FieldType::Char(2)),
    ]
    .boxed()
}

/// A value of any type.
pub(crate) fn value(depth: u32, scope: Scope) -> Exprs {
    let exact = decimal(depth, scope);
    prop_oneof![integer(depth, scope), float_expr(depth, scope), exact, text(depth, scope), condition(depth, scope)]
        .boxed()
}
