//! Random queries without state: a condition and two expressions over records of one random format.

use std::fmt::Write as _;

use crossdock_format::{Format, RecordBuilder};
use crossdock_query::{Decimal, Expr};
use fastrand::Rng;
use proptest::strategy::{BoxedStrategy, Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::calls::with_calls;
use crate::case::{Case, Rule, Stream, Values, record};
use crate::duckish::{Duckish, guarded};
use crate::functions::{FunctionPair, functions};
use crate::generate::{self, Row, Scope, condition, row, value};
use crate::rebuild::smaller;
use crate::spec::{Spec, Texts};

pub(crate) const LIKE_DUCKDB: Scope = Scope { everything: false };

/// Rows of a batch: each query has a chance that each of its branches is taken by some.
const ROWS: usize = 24;

/// A value of the select list.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    Expr(Expr),
    Function(FunctionPair),
}

/// A query of this kind.
#[derive(Clone, Debug)]
pub(crate) struct ExpressionSpec {
    filter: Option<Expr>,
    items: Vec<Item>,
}

/// Makes batches of rows, and queries over them.
pub(crate) struct ExpressionsBuilder {
    runner: TestRunner,
    random: Rng,
    rows: BoxedStrategy<Row>,
    filters: BoxedStrategy<Expr>,
    values: BoxedStrategy<Expr>,
    functions: Vec<FunctionPair>,
}

impl ExpressionsBuilder {
    pub(crate) fn new() -> ExpressionsBuilder {
        ExpressionsBuilder {
            runner: TestRunner::default(),
            random: Rng::with_seed(0),
            rows: row().boxed(),
            filters: condition(3, LIKE_DUCKDB),
            values: value(3, LIKE_DUCKDB),
            functions: functions(),
        }
    }

    /// Rows of a random format, and this many queries over them.
    pub(crate) fn batch(&mut self, seed: u64, queries: usize) -> (Case, Vec<Spec>) {
        self.random = Rng::with_seed(seed);
        self.runner = runner(seed);
        let shapes = shapes(&mut self.random);
        let stream = stream(&shapes, &mut self.random);
        let is_foreign = stream.layout.is_some();
        let mut rows = Vec::new();
        for _ in 0..ROWS {
            let row = some(&self.rows, &mut self.runner);
            // Nothing for the column with the bits of the nulls, which follow from the values.
            let mut values: Values = if is_foreign { vec![None] } else { Vec::new() };
            values.extend(shapes.iter().map(|shape| shape.value(&row, &mut self.random)));
            rows.push((0, values));
        }
        let case = Case { streams: vec![stream], rows, query: String::new(), rules: Vec::new(), last_of: 0 };
        // Values that the format does not take are a fault of this generator, to be seen here.
        let format = case.streams[0].format();
        let mut builder = RecordBuilder::new(&format);
        case.rows.iter().for_each(|(_, values)| drop(record(&mut builder, values)));
        (case, (0..queries).map(|_| Spec::Expression(self.spec())).collect())
    }

    fn spec(&mut self) -> ExpressionSpec {
        let is_guarded = self.random.bool();
        let has_calls = self.random.bool();
        let as_wanted = |expr: Expr, random: &mut Rng| {
            let expr = if has_calls { with_calls(&expr, random) } else { expr };
            if is_guarded { guarded(&expr) } else { expr }
        };
        let has_filter = self.random.u8(0..8) > 0;
        let filter = has_filter.then(|| as_wanted(some(&self.filters, &mut self.runner), &mut self.random));
        let items = (0..2).map(|_| match self.random.u8(0..4) {
            0 => Item::Function(self.functions[self.random.usize(0..self.functions.len())].clone()),
            _ => Item::Expr(as_wanted(some(&self.values, &mut self.runner), &mut self.random)),
        });
        let items = items.collect();
        ExpressionSpec { filter, items }
    }
}

/// The runner that makes the random expressions of a seed.
pub(crate) fn runner(seed: u64) -> TestRunner {
    let mut bytes = [1; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

pub(crate) fn some<S: Strategy>(strategy: &S, runner: &mut TestRunner) -> S::Value {
    strategy.new_tree(runner).unwrap().current()
}

/// A column of the table of [`generate::format`], or one beside them, in a type of its class.
struct Shape {
    name: &'static str,
    ty: &'static str,
    nullable: bool,
    /// Of whole numbers the least and the greatest; of decimals those of its units.
    range: (i128, i128),
}

/// The columns in a random order, each with a random type of those that the queries may find there.
fn shapes(random: &mut Rng) -> Vec<Shape> {
    let whole = |types: &[&'static str], random: &mut Rng| types[random.usize(0..types.len())];
    let mut shapes = Vec::new();
    for name in ["a", "i", "u", "f", "g", "b", "s", "c", "t", "d", "e", "x", "l", "m"] {
        let ty = match name {
            "a" => whole(&["i64", "i64", "i32", "i16"], random),
            // Not `i64`: compared with a decimal DuckDB has no room for it.
            "i" => whole(&["i16", "i8", "i32"], random),
            "u" => whole(&["u64", "u64", "u32", "u8"], random),
            "f" => whole(&["f64", "f64", "f32"], random),
            "g" => whole(&["f32", "f64"], random),
            "b" => "bool",
            "s" => whole(&["string", "string", "char[40]"], random),
            "c" => whole(&["char[3]", "string", "char[9]"], random),
            "t" => "timestamp",
            "d" => whole(&["decimal(8, scale 2)", "decimal(4, scale 2)"], random),
            "e" => "enum u8 { BUY = 66, SELL = 83, OTHER = 1 }",
            "l" => whole(&["i64[]", "i32[]", "i16[]"], random),
            "m" => whole(&["string[]", "char[3][]"], random),
            _ => "bytes",
        };
        let range = match ty.trim_end_matches("[]") {
            "i8" => (i8::MIN.into(), i8::MAX.into()),
            "i16" => (i16::MIN.into(), i16::MAX.into()),
            "i32" => (i32::MIN.into(), i32::MAX.into()),
            "u8" => (0, u8::MAX.into()),
            "u32" => (0, u32::MAX.into()),
            "u64" => (0, u64::MAX.into()),
            // As many digits as DuckDB's type has.
            "decimal(4, scale 2)" => (-999_999_999, 999_999_999),
            _ => (i64::MIN.into(), i64::MAX.into()),
        };
        let nullable = random.u8(0..4) > 0;
        shapes.push(Shape { name, ty, nullable, range });
    }
    random.shuffle(&mut shapes);
    shapes
}

/// The stream of these columns: in the natural layout, or, one in three, in one of another program, which is read in place.
fn stream(shapes: &[Shape], random: &mut Rng) -> Stream {
    let name = "s".to_owned();
    if random.u8(0..3) > 0 {
        let column =
            |shape: &Shape| format!("{} {}{}", shape.name, shape.ty, if shape.nullable { " null" } else { "" });
        return Stream::new(&name, shapes.iter().map(column).collect());
    }
    let layout = ["layout foreign big packed", "layout foreign little packed"][random.usize(0..2)];
    let mut columns = vec!["bits u16".to_owned()];
    for (bit, Shape { name, ty, nullable, .. }) in shapes.iter().enumerate() {
        // It has no elements of variable length.
        let ty = if *ty == "string[]" { "char[3][]" } else { *ty };
        let length = if ["string", "bytes"].contains(&ty) || ty.ends_with("[]") { " inline u16" } else { "" };
        let null = if *nullable { format!(" null unless bit {bit} of bits") } else { String::new() };
        columns.push(format!("{name} {ty}{length}{null}"));
    }
    Stream { layout: Some(layout.to_owned()), ..Stream::new(&name, columns) }
}

impl Shape {
    fn value(&self, row: &Row, random: &mut Rng) -> Option<String> {
        let odd = random.u8(0..8) == 0;
        let whole = |value: i128| {
            let (least, most) = self.range;
            let value = if value < least || value > most { value.rem_euclid(most - least + 1) + least } else { value };
            value.clamp(least, most).to_string()
        };
        let float =
            |value: f64| if self.ty == "f32" { format!("{:?}", f64::from(value as f32)) } else { format!("{value:?}") };
        let odd_float = [f64::MAX, f64::MIN, f64::MIN_POSITIVE, 5e-324, -0.0, 1e15, 9_223_372_036_854_775_808.0, 2.5];
        let odd_time = [i64::MIN, i64::MAX, i64::MIN + 1, i64::MAX - 1, -1, 951_782_400_000_000_000, 999_999_999];
        let value = match self.name {
            "a" => row.a.map(|a| whole(a.into())),
            "i" => Some(whole(row.i.into())),
            "u" => row.u.map(|u| whole(u.into())),
            "f" if odd => Some(float(odd_float[random.usize(0..odd_float.len())])),
            "f" => row.f.map(float),
            "g" => Some(float(row.g.into())),
            "b" => row.b.map(|b| b.to_string()),
            "s" => row.s.clone(),
            "c" => Some(row.c.clone()),
            "t" if odd => Some(odd_time[random.usize(0..odd_time.len())].to_string()),
            "t" => row.t.map(|t| t.to_string()),
            "d" => row.d.map(|units| {
                let unscaled = whole(units.into()).parse().unwrap();
                Decimal { unscaled, scale: 2 }.to_string()
            }),
            "l" => row
                .l
                .as_ref()
                .map(|l| format!("[{}]", l.iter().map(|one| whole((*one).into())).collect::<Vec<_>>().join(", "))),
            "m" => Some(serde_json::to_string(&row.m).unwrap()),
            "e" => Some(["BUY", "SELL", "OTHER"][random.usize(0..3)].to_owned()),
            _ => {
                Some(["\\x", "\\x00", "\\x00ff", "\\x61", "\\xc3a9", "\\x0a0b0c0d0e0f"][random.usize(0..6)].to_owned())
            }
        };
        // A column of the generator that may be null is compared where it may not, and the other way round.
        match (value, self.nullable) {
            (None, false) => Some(self.instead().to_owned()),
            (Some(_), true) if !odd && random.u8(0..16) == 0 => None,
            (value, _) => value,
        }
    }

    /// The value in the place of a null.
    fn instead(&self) -> &'static str {
        match self.name {
            "b" => "false",
            "s" => "",
            "d" => "0.00",
            "l" => "[]",
            _ => "0",
        }
    }
}

impl ExpressionSpec {
    pub(crate) fn texts(&self) -> Texts {
        let format = generate::format();
        let (mut ours, mut theirs) = ("SELECT ".to_owned(), "SELECT n".to_owned());
        for (index, item) in self.items.iter().enumerate() {
            let between = if index == 0 { "" } else { ", " };
            let (our_item, their_item) = item.texts(&format);
            write!(ours, "{between}{our_item} AS x{index}").unwrap();
            write!(theirs, ", {their_item}").unwrap();
        }
        (ours, theirs) = (ours + " FROM s", theirs + " FROM s");
        if let Some(filter) = &self.filter {
            write!(ours, " WHERE {}", filter.sql(&format)).unwrap();
            write!(theirs, " WHERE {}", Duckish(filter, &format)).unwrap();
        }
        let rules = self.items.iter().map(|item| match item {
            Item::Expr(_) => Rule::Exact,
            Item::Function(pair) => pair.rule(),
        });
        Texts { ours, theirs: theirs + " ORDER BY n", rules: rules.collect(), last_of: 0 }
    }

    pub(crate) fn smaller(&self) -> Vec<ExpressionSpec> {
        let mut found = Vec::new();
        let with = |items: Vec<Item>| ExpressionSpec { items, ..self.clone() };
        if let Some(filter) = &self.filter {
            found.push(ExpressionSpec { filter: None, ..self.clone() });
            found.extend(smaller(filter).into_iter().map(|less| ExpressionSpec { filter: Some(less), ..self.clone() }));
        }
        for (place, item) in self.items.iter().enumerate() {
            if self.items.len() > 1 {
                found.push(with(
                    self.items
                        .iter()
                        .enumerate()
                        .filter(|(at, _)| *at != place)
                        .map(|(_, item)| item.clone())
                        .collect(),
                ));
            }
            let Item::Expr(expr) = item else { continue };
            for less in smaller(expr) {
                let mut items = self.items.clone();
                items[place] = Item::Expr(less);
                found.push(with(items));
            }
        }
        found
    }
}

impl Item {
    pub(crate) fn texts(&self, format: &Format) -> (String, String) {
        match self {
            Item::Expr(expr) => (expr.sql(format).to_string(), Duckish(expr, format).to_string()),
            Item::Function(pair) => (pair.ours.clone(), pair.theirs()),
        }
    }
}
