//! Expressions as SQL that reads back to the same expression.

use std::fmt;

use crossdock_format::{FieldType, Format};
use sqlparser::keywords::ALL_KEYWORDS;

use crate::decimal::Decimal;
use crate::expr::{ArithmeticOp, Call, CompareOp, Constant, Expr, Node};
use crate::function::Kind;
use crate::program::{Output, Program, Projection};

/// An expression with the format whose fields it names; `Display` writes SQL.
#[derive(Clone, Copy, Debug)]
pub struct SqlText<'a> {
    expr: &'a Expr,
    format: &'a Format,
    with_values: bool,
}

impl Expr {
    /// The expression as SQL, with the names of `format`.
    pub fn sql<'a>(&'a self, format: &'a Format) -> SqlText<'a> {
        SqlText { expr: self, format, with_values: false }
    }
}

impl Program {
    /// The query as SQL with the names of its input: what it makes of a record once everything is settled, the view that it reads
    /// through included.
    #[must_use]
    pub fn to_sql(&self) -> String {
        let item = |output: &Output| {
            let value = output.expr.sql(&self.input);
            let field = output.plain_field().and_then(|index| self.input.fields().get(index));
            match field.is_some_and(|field| field.name == output.name) {
                true => value.to_string(),
                false => format!("{value} AS {}", Identifier(&output.name)),
            }
        };
        let items = match &self.projection {
            Projection::All => "*".to_owned(),
            Projection::Fields(outputs) => outputs.iter().map(item).collect::<Vec<_>>().join(", "),
        };
        let mut sql = format!("SELECT {items} FROM {}", Identifier(&self.stream));
        for (index, condition) in self.filter.iter().enumerate() {
            sql.push_str(if index == 0 { " WHERE " } else { " AND " });
            let text = condition.sql(&self.input);
            let in_parentheses = binding(condition) < Binding::Not;
            sql.push_str(&Operand { text, in_parentheses }.to_string());
        }
        sql
    }
}

/// How tightly a node binds, loosest first, as in PostgreSQL's grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Binding {
    Or,
    And,
    Not,
    Is,
    Comparison,
    Like,
    Concat,
    Sum,
    Product,
    Sign,
    Atom,
}

fn binding(expr: &Expr) -> Binding {
    match &expr.node {
        Node::Or(_) => Binding::Or,
        Node::And(_) => Binding::And,
        Node::Not(_) => Binding::Not,
        Node::IsNull { .. } | Node::IsTruth { .. } | Node::Distinct { .. } => Binding::Is,
        Node::Compare { .. } | Node::Quantified { .. } => Binding::Comparison,
        Node::In { .. } | Node::Between { .. } | Node::Like(_) => Binding::Like,
        Node::Concat(_) => Binding::Concat,
        Node::Arithmetic { op: ArithmeticOp::Add | ArithmeticOp::Subtract, .. } => Binding::Sum,
        Node::Arithmetic { .. } => Binding::Product,
        Node::Negate(_) => Binding::Sign,
        Node::Const(Constant::Int(value)) if *value < 0 => Binding::Sign,
        Node::Const(Constant::Decimal(value)) if is_plain(*value, expr.ty) && value.unscaled < 0 => Binding::Sign,
        Node::Call(call) if call.function.is_operator() => match call.function.name {
            "+" | "-" => Binding::Sum,
            "[]" => Binding::Atom,
            _ => Binding::Concat,
        },
        _ => Binding::Atom,
    }
}

/// Whether the digits alone say a decimal constant of this type.
fn is_plain(value: Decimal, ty: FieldType) -> bool {
    let is_wide = i64::try_from(value.unscaled).is_err() && u64::try_from(value.unscaled).is_err();
    matches!(ty, FieldType::Decimal { bytes: 16, scale } if scale == value.scale && (scale > 0 || is_wide))
        && value.unscaled != i128::MIN
}

/// The name of a type in CAST.
struct TypeName(FieldType);

impl fmt::Display for TypeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            FieldType::Decimal { bytes, scale } => {
                // A scale that has no room in the digits needs more bytes to be written.
                let precision = match bytes {
                    4 if scale <= 9 => 9,
                    4 | 8 if scale <= 18 => 18,
                    _ => 38,
                };
                write!(f, "numeric({precision}, {scale})")
            }
            ty => write!(f, "{ty}"),
        }
    }
}

impl fmt::Display for SqlText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.expr.node {
            Node::Field(index) => match self.format.fields().get(*index) {
                Some(field) => write!(f, "{}", Identifier(&field.name)),
                None => write!(f, "\"field {index}\""),
            },
            Node::Const(constant) => self.constant(f, constant),
            Node::Parameter(parameter) if self.with_values => self.constant(f, &parameter.value),
            Node::Parameter(parameter) => write!(f, "${}", parameter.name),
            Node::Compare { op, left, right } => self.binary(f, left, op.sql(), right, Binding::Like),
            Node::Quantified { op, is_all, left, right } => self.quantified(f, (*op, *is_all), left, right),
            Node::Distinct { negated, left, right } => {
                let op = if *negated { "IS NOT DISTINCT FROM" } else { "IS DISTINCT FROM" };
                self.binary(f, left, op, right, Binding::Comparison)
            }
            Node::And(all) => self.joined(f, all, " AND ", Binding::Not),
            Node::Or(all) => self.joined(f, all, " OR ", Binding::And),
            Node::Concat(all) => self.joined(f, all, " || ", Binding::Sum),
            Node::Not(operand) => write!(f, "NOT {}", self.at_least(operand, Binding::Not)),
            Node::Negate(operand) => write!(f, "- {}", self.at_least(operand, Binding::Atom)),
            Node::IsNull { negated, operand } => {
                write!(f, "{} IS {}NULL", self.at_least(operand, Binding::Comparison), not(*negated))
            }
            Node::IsTruth { truth, negated, operand } => {
                let truth = truth.map_or("UNKNOWN", |truth| if truth { "TRUE" } else { "FALSE" });
                write!(f, "{} IS {}{truth}", self.at_least(operand, Binding::Comparison), not(*negated))
            }
            Node::In { negated, operand, list } => {
                write!(f, "{} {}IN (", self.at_least(operand, Binding::Concat), not(*negated))?;
                self.joined(f, list, ", ", Binding::Or)?;
                f.write_str(")")
            }
            Node::Between { negated, operand, low, high } => {
                let [operand, low, high] = [operand, low, high].map(|expr| self.at_least(expr, Binding::Concat));
                write!(f, "{operand} {}BETWEEN {low} AND {high}", not(*negated))
            }
            Node::Like(like) => {
                let operand = self.at_least(&like.operand, Binding::Concat);
                let pattern = self.at_least(&like.pattern, Binding::Concat);
                let word = if like.any_case { "ILIKE" } else { "LIKE" };
                write!(f, "{operand} {}{word} {pattern}", not(like.negated))?;
                match like.escape {
                    Some('\\') => Ok(()),
                    Some('\'') => f.write_str(" ESCAPE ''''"),
                    Some(escape) => write!(f, " ESCAPE '{escape}'"),
                    None => f.write_str(" ESCAPE ''"),
                }
            }
            Node::Arithmetic { op, left, right } => {
                let (least, above) = match op {
                    ArithmeticOp::Add | ArithmeticOp::Subtract => (Binding::Sum, Binding::Product),
                    _ => (Binding::Product, Binding::Sign),
                };
                write!(f, "{} {} {}", self.at_least(left, least), op.sql(), self.at_least(right, above))
            }
            Node::Case { operand, branches, otherwise } => {
                self.case(f, operand.as_deref(), branches, otherwise.as_deref())
            }
            Node::Coalesce(options) => {
                f.write_str("COALESCE(")?;
                self.joined(f, options, ", ", Binding::Or)?;
                f.write_str(")")
            }
            Node::NullIf(left, right) => write!(f, "NULLIF({}, {})", self.of(left), self.of(right)),
            Node::Try(operand) => write!(f, "TRY({})", self.of(operand)),
            Node::Cast(operand) => write!(f, "CAST({} AS {})", self.of(operand), TypeName(self.expr.ty)),
            Node::Call(call) => self.call(f, call),
        }
    }
}

impl<'a> SqlText<'a> {
    /// The same with the values that parameters have now in place of their names.
    #[must_use]
    pub fn with_values(self) -> SqlText<'a> {
        SqlText { with_values: true, ..self }
    }

    fn of(&self, expr: &'a Expr) -> SqlText<'a> {
        SqlText { expr, ..*self }
    }

    fn at_least(&self, expr: &'a Expr, least: Binding) -> Operand<'a> {
        Operand { text: self.of(expr), in_parentheses: binding(expr) < least }
    }

    fn binary(
        &self,
        f: &mut fmt::Formatter<'_>,
        left: &'a Expr,
        op: &str,
        right: &'a Expr,
        least: Binding,
    ) -> fmt::Result {
        write!(f, "{} {op} {}", self.at_least(left, least), self.at_least(right, least))
    }

    fn quantified(
        &self,
        f: &mut fmt::Formatter<'_>,
        (op, is_all): (CompareOp, bool),
        left: &'a Expr,
        list: &'a Expr,
    ) -> fmt::Result {
        let word = if is_all { "ALL" } else { "ANY" };
        write!(f, "{} {} {word}({})", self.at_least(left, Binding::Like), op.sql(), self.of(list))
    }

    fn joined(&self, f: &mut fmt::Formatter<'_>, all: &'a [Expr], between: &str, least: Binding) -> fmt::Result {
        for (index, expr) in all.iter().enumerate() {
            let between = if index == 0 { "" } else { between };
            write!(f, "{between}{}", self.at_least(expr, least))?;
        }
        Ok(())
    }

    fn call(&self, f: &mut fmt::Formatter<'_>, call: &'a Call) -> fmt::Result {
        let Call { function, arguments, .. } = call;
        match (function.name, &arguments[..]) {
            ("+" | "-", [time, interval]) => {
                write!(f, "{} {} INTERVAL {}", self.at_least(time, Binding::Sum), function.name, self.of(interval))
            }
            ("[]", [list, index]) => {
                write!(f, "{}[{}]", self.at_least(list, Binding::Atom), self.at_least(index, Binding::Sum))
            }
            (name, [left, right]) if function.is_operator() => self.binary(f, left, name, right, Binding::Sum),
            ("extract", [field, time]) => write!(f, "EXTRACT({} FROM {})", self.of(field), self.of(time)),
            (name, arguments) => {
                write!(f, "{name}(")?;
                for (index, argument) in arguments.iter().enumerate() {
                    let between = if index == 0 { "" } else { ", " };
                    let is_interval = function.arguments.get(index) == Some(&Kind::Interval);
                    write!(f, "{between}{}{}", if is_interval { "INTERVAL " } else { "" }, self.of(argument))?;
                }
                f.write_str(")")
            }
        }
    }

    fn case(
        &self,
        f: &mut fmt::Formatter<'_>,
        operand: Option<&'a Expr>,
        branches: &'a [(Expr, Expr)],
        otherwise: Option<&'a Expr>,
    ) -> fmt::Result {
        f.write_str("CASE")?;
        if let Some(operand) = operand {
            write!(f, " {}", self.of(operand))?;
        }
        for (condition, result) in branches {
            write!(f, " WHEN {} THEN {}", self.of(condition), self.of(result))?;
        }
        if let Some(otherwise) = otherwise {
            write!(f, " ELSE {}", self.of(otherwise))?;
        }
        f.write_str(" END")
    }

    fn constant(&self, f: &mut fmt::Formatter<'_>, constant: &Constant) -> fmt::Result {
        let ty = self.expr.ty;
        match constant {
            Constant::Null if ty == FieldType::String => f.write_str("NULL"),
            Constant::Null => write!(f, "CAST(NULL AS {})", TypeName(ty)),
            Constant::Bool(true) => f.write_str("TRUE"),
            Constant::Bool(false) => f.write_str("FALSE"),
            Constant::Int(value) => write!(f, "{value}"),
            Constant::Float(value) => write!(f, "CAST('{value}' AS f64)"),
            Constant::Decimal(value) if is_plain(*value, ty) => write!(f, "{value}"),
            Constant::Decimal(value) => write!(f, "CAST('{value}' AS {})", TypeName(ty)),
            Constant::Timestamp(value) => match jiff::Timestamp::from_nanosecond((*value).into()) {
                Ok(time) => write!(f, "TIMESTAMP '{time}'"),
                Err(_) => write!(f, "CAST({value} AS timestamp)"),
            },
            Constant::Text(text) => write!(f, "'{}'", text.replace('\'', "''")),
            Constant::Bytes(bytes) => {
                f.write_str("CAST('\\x")?;
                for byte in bytes {
                    write!(f, "{byte:02x}")?;
                }
                f.write_str("' AS bytes)")
            }
        }
    }
}

struct Operand<'a> {
    text: SqlText<'a>,
    in_parentheses: bool,
}

impl fmt::Display for Operand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.in_parentheses { write!(f, "({})", self.text) } else { self.text.fmt(f) }
    }
}

/// A name, in double quotes unless it is plain.
struct Identifier<'a>(&'a str);

/// Words that the grammar knows, which are yet read as names where a column can stand.
const PLAIN_WORDS: &[&str] = &[
    "date", "day", "hour", "id", "key", "length", "level", "location", "minute", "month", "name", "owner", "percent",
    "second", "sequence", "source", "speed", "state", "status", "temp", "text", "time", "type", "value", "week",
    "year",
];

impl fmt::Display for Identifier<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.0;
        let starts_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        let plain = starts_well && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let is_keyword = || ALL_KEYWORDS.binary_search(&name.to_ascii_uppercase().as_str()).is_ok();
        if plain && (PLAIN_WORDS.contains(&name) || !is_keyword()) {
            f.write_str(name)
        } else {
            write!(f, "\"{}\"", name.replace('"', "\"\""))
        }
    }
}

fn not(negated: bool) -> &'static str {
    if negated { "NOT " } else { "" }
}

impl CompareOp {
    /// The operator in SQL.
    pub fn sql(self) -> &'static str {
        match self {
            CompareOp::Eq => "=",
            CompareOp::Ne => "<>",
            CompareOp::Lt => "<",
            CompareOp::Le => "<=",
            CompareOp::Gt => ">",
            CompareOp::Ge => ">=",
        }
    }
}

impl ArithmeticOp {
    /// The operator in SQL.
    pub fn sql(self) -> &'static str {
        match self {
            ArithmeticOp::Add => "+",
            ArithmeticOp::Subtract => "-",
            ArithmeticOp::Multiply => "*",
            ArithmeticOp::Divide => "/",
            ArithmeticOp::Remainder => "%",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossdock_format::FieldSpec;

    #[test]
    fn every_plain_word_reads_back_as_a_column() {
        for word in PLAIN_WORDS {
            assert_eq!(Identifier(word).to_string(), *word);
            let format = Format::natural([FieldSpec::new(*word, FieldType::I64)]).unwrap();
            let sql = format!(
                "SELECT {word}, {word} + 1, -{word} FROM s WHERE {word} = 1 AND ({word} > 2 OR {word} IS NULL)"
            );
            let program = crate::parse(&sql).unwrap().plan(&format).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(program.reads, [0], "{word}");
        }
    }

    #[test]
    fn names_that_are_not_plain_are_quoted() {
        for (name, shown) in [
            ("Origin", "Origin"),
            ("a b", "\"a b\""),
            ("select", "\"select\""),
            ("1a", "\"1a\""),
            ("a\"b", "\"a\"\"b\""),
        ] {
            assert_eq!(Identifier(name).to_string(), shown);
        }
    }
}
