//! Expressions in DuckDB's SQL.
//!
//! The dialects differ on purpose where DuckDB differs from PostgreSQL, and these rules make up for it: whole numbers are computed as
//! HUGEINT, and a result beyond `i64` is null, where ours is a row error; `/` is `//`; an error is null by TRY. Ours is compared with that
//! null where TRY stands in our query too; where it does not, a row with a row error of ours is left out.

use crossdock_format::{FieldType, Format};
use crossdock_query::{ArithmeticOp, Constant, Expr, Like, Node};

use crate::duck::quoted;
use crate::rebuild::with_operands;

/// An expression in DuckDB's SQL, over the columns of a format.
pub(crate) struct Duckish<'a>(pub(crate) &'a Expr, pub(crate) &'a Format);

/// The expression with TRY around each operation whose row error DuckDB's query has as null too.
///
/// Not around these, whose errors differ: operations on floats (DuckDB gives an infinity where ours, as in PostgreSQL, is a row error) and
/// casts of texts (DuckDB takes `3.5` as a BIGINT, PostgreSQL does not).
pub(crate) fn guarded(expr: &Expr) -> Expr {
    let inner = with_operands(expr, &mut |_, operand| match operand.node {
        // A literal and its sign, and arguments that are literals.
        Node::Const(_) => operand.clone(),
        _ => guarded(operand),
    });
    let is_exact = |ty: FieldType| ty.is_integer() || matches!(ty, FieldType::Decimal { .. });
    // TRY would also take the errors of its operands.
    let operands = inner.operands();
    let operands_fit = operands.iter().all(|operand| is_exact(operand.ty) || operand.ty == FieldType::Bool)
        && !operands.iter().any(|operand| operand.is_fallible());
    let is_guarded = match inner.node {
        Node::Arithmetic { .. } | Node::Negate(_) | Node::Call(_) => is_exact(inner.ty) && operands_fit,
        Node::Cast(ref operand) => {
            is_exact(inner.ty) && (operands_fit || (operand.ty == FieldType::F64 && !operand.is_fallible()))
        }
        _ => false,
    };
    if !is_guarded {
        return inner;
    }
    let ty = inner.ty;
    Expr { node: Node::Try(Box::new(inner)), ty, nullable: true }
}

impl std::fmt::Display for Duckish<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let of = |expr: &Expr| Duckish(expr, self.1).to_string();
        let all = |all: &[Expr], between: &str| all.iter().map(of).collect::<Vec<_>>().join(between);
        let not = |negated: bool| if negated { "NOT " } else { "" };
        match &self.0.node {
            Node::Field(index) => f.write_str(&self.1.fields()[*index].name),
            Node::Const(constant) => duck_constant(f, constant, self.0.ty),
            Node::Parameter(parameter) => duck_constant(f, &parameter.value, self.0.ty),
            Node::Compare { op, left, right } => write!(f, "({} {} {})", of(left), op.sql(), of(right)),
            Node::Quantified { op, is_all, left, right } => {
                // DuckDB has ANY and ALL as queries within the query, which cannot stand in TRY; of no list they have no rows.
                let (list, word) = (of(right), if *is_all { "and" } else { "or" });
                let each = format!("list_transform({list}, lambda one: {} {} one)", of(left), op.sql());
                write!(f, "(CASE WHEN len({list}) = 0 THEN {is_all} ELSE list_bool_{word}({each}) END)")
            }
            Node::Distinct { negated, left, right } => {
                write!(f, "({} IS {}DISTINCT FROM {})", of(left), not(*negated), of(right))
            }
            Node::And(conditions) => write!(f, "({})", all(conditions, " AND ")),
            Node::Or(conditions) => write!(f, "({})", all(conditions, " OR ")),
            Node::Not(operand) => write!(f, "(NOT {})", of(operand)),
            Node::IsNull { negated, operand } => write!(f, "({} IS {}NULL)", of(operand), not(*negated)),
            Node::IsTruth { truth, negated, operand } => {
                let truth = truth.map_or("UNKNOWN".to_owned(), |truth| truth.to_string());
                write!(f, "({} IS {}{truth})", of(operand), not(*negated))
            }
            Node::In { negated, operand, list } => {
                write!(f, "({} {}IN ({}))", of(operand), not(*negated), all(list, ", "))
            }
            Node::Between { negated, operand, low, high } => {
                write!(f, "({} {}BETWEEN {} AND {})", of(operand), not(*negated), of(low), of(high))
            }
            Node::Like(like) => {
                let Like { negated, any_case, operand, pattern, .. } = &**like;
                let word = if *any_case { "ILIKE" } else { "LIKE" };
                write!(f, "({} {}{word} {} ESCAPE '!')", of(operand), not(*negated), of(pattern))
            }
            Node::Concat(parts) => write!(f, "({})", all(parts, " || ")),
            Node::Case { operand, branches, otherwise } => {
                f.write_str("(CASE")?;
                operand.iter().try_for_each(|operand| write!(f, " {}", of(operand)))?;
                for (condition, result) in branches {
                    write!(f, " WHEN {} THEN {}", of(condition), of(result))?;
                }
                otherwise.iter().try_for_each(|otherwise| write!(f, " ELSE {}", of(otherwise)))?;
                f.write_str(" END)")
            }
            Node::Try(operand) => write!(f, "TRY({})", of(operand)),
            Node::Coalesce(options) => write!(f, "COALESCE({})", all(options, ", ")),
            Node::NullIf(left, right) => write!(f, "NULLIF({}, {})", of(left), of(right)),
            Node::Arithmetic { .. } | Node::Negate(_) | Node::Cast(_) | Node::Call(_) => self.computed(f),
        }
    }
}

impl Duckish<'_> {
    /// An operation that DuckDB computes in another type unless it is cast.
    fn computed(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let of = |expr: &Expr| Duckish(expr, self.1).to_string();
        match &self.0.node {
            Node::Arithmetic { op, left, right } if self.0.ty == FieldType::I64 => {
                let op = if *op == ArithmeticOp::Divide { "//" } else { op.sql() };
                write!(f, "TRY_CAST(TRY({}::HUGEINT {op} {}::HUGEINT) AS BIGINT)", of(left), of(right))
            }
            Node::Arithmetic { op, left, right } if is_decimal(self.0) => {
                let [left, right] = [left, right].map(|operand| exact(operand, &of(operand)));
                write!(f, "TRY({left} {} {right})", op.sql())
            }
            Node::Arithmetic { op, left, right } => {
                let [left, right] = [left, right].map(|operand| double(operand, &of(operand)));
                write!(f, "TRY({left} {} {right})", op.sql())
            }
            Node::Negate(operand) if is_decimal(self.0) => write!(f, "TRY(-{})", exact(operand, &of(operand))),
            Node::Negate(operand) if self.0.ty == FieldType::I64 => {
                write!(f, "TRY_CAST(TRY(-({}::HUGEINT)) AS BIGINT)", of(operand))
            }
            Node::Negate(operand) => write!(f, "(-{})", of(operand)),
            Node::Cast(operand) if self.0.ty == FieldType::F64 => f.write_str(&double(operand, &of(operand))),
            Node::Cast(operand) if is_decimal(self.0) => f.write_str(&exact_as(&of(operand), self.0.ty)),
            Node::Cast(operand) => write!(f, "TRY_CAST({} AS {})", of(operand), duck_type(self.0.ty)),
            Node::Call(call) if call.arguments[0].ty == FieldType::List => {
                match (call.function.name, &call.arguments[..]) {
                    // From its end it counts with numbers below zero.
                    ("[]", [list, index]) => {
                        write!(
                            f,
                            "list_extract({}, nullif(greatest(TRY_CAST({} AS BIGINT), 0), 0))",
                            of(list),
                            of(index)
                        )
                    }
                    ("cardinality", [list]) => write!(f, "len({})", of(list)),
                    (name, arguments) => {
                        write!(f, "{name}({})", arguments.iter().map(of).collect::<Vec<_>>().join(", "))
                    }
                }
            }
            // DuckDB computes it in the type of the operands, which may be narrower than ours.
            Node::Call(call) if self.0.ty == FieldType::I64 && call.arguments.iter().all(|one| one.ty.is_integer()) => {
                let arguments: Vec<String> = call.arguments.iter().map(|one| format!("{}::HUGEINT", of(one))).collect();
                write!(f, "TRY_CAST(TRY({}({})) AS BIGINT)", call.function.name, arguments.join(", "))
            }
            Node::Call(call) => {
                let arguments: Vec<String> = call.arguments.iter().map(of).collect();
                let name = match (call.function.name, self.0.ty) {
                    ("btrim", _) => "trim",
                    // Of two nearest whole numbers the even one.
                    ("round", FieldType::F64) => return write!(f, "TRY(round_even({}, 0))", arguments.join(", ")),
                    (name, _) => name,
                };
                write!(f, "TRY({name}({}))", arguments.join(", "))
            }
            _ => Ok(()),
        }
    }
}

fn is_decimal(expr: &Expr) -> bool {
    matches!(expr.ty, FieldType::Decimal { .. })
}

/// As a decimal of 38 digits, with its own scale.
fn exact(operand: &Expr, text: &str) -> String {
    exact_as(text, operand.ty)
}

fn exact_as(text: &str, ty: FieldType) -> String {
    let scale = match ty {
        FieldType::Decimal { scale, .. } => scale,
        _ => 0,
    };
    format!("TRY_CAST({text} AS DECIMAL(38, {scale}))")
}

/// As DOUBLE; through BIGINT, because DuckDB rounds a HUGEINT twice.
fn double(operand: &Expr, text: &str) -> String {
    match operand.ty {
        FieldType::I64 => format!("TRY_CAST(TRY_CAST({text} AS BIGINT) AS DOUBLE)"),
        _ => format!("TRY_CAST({text} AS DOUBLE)"),
    }
}

fn duck_constant(f: &mut std::fmt::Formatter<'_>, constant: &Constant, ty: FieldType) -> std::fmt::Result {
    match constant {
        Constant::Null if matches!(ty, FieldType::Decimal { .. }) => f.write_str(&exact_as("NULL", ty)),
        Constant::Null => write!(f, "CAST(NULL AS {})", duck_type(ty)),
        Constant::Decimal(value) => write!(f, "({value})"),
        Constant::Int(value) if (-9..99).contains(value) => write!(f, "({value})"),
        Constant::Bool(value) => write!(f, "{value}"),
        Constant::Int(value) => write!(f, "({value})::HUGEINT"),
        Constant::Float(value) => write!(f, "CAST('{value}' AS DOUBLE)"),
        // Read by DuckDB as text, so that our own reading and writing of times is compared too.
        Constant::Timestamp(value) => {
            let time = jiff::Timestamp::from_nanosecond((*value).into()).unwrap();
            write!(f, "epoch_ns(TIMESTAMP_NS '{time}')")
        }
        Constant::Text(text) => f.write_str(&quoted(text)),
        Constant::Bytes(_) => unreachable!("no bytes are made"),
    }
}

fn duck_type(ty: FieldType) -> &'static str {
    match ty {
        FieldType::Bool => "BOOLEAN",
        FieldType::I16 => "SMALLINT",
        FieldType::I64 => "BIGINT",
        FieldType::U64 => "UBIGINT",
        FieldType::F32 => "FLOAT",
        FieldType::F64 => "DOUBLE",
        FieldType::Timestamp => "BIGINT",
        FieldType::Char(_) | FieldType::String => "VARCHAR",
        other => unreachable!("no {other} is made"),
    }
}
