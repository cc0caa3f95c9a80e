//! `ORDER BY … LIMIT n` behind a snapshot: the first rows of all that are there, and, with `THEN CHANGES`, which rows those are from
//! then on.
//!
//! The expressions are a query of their own over the same stream, so names, types and errors are those of any query. As in PostgreSQL, a
//! name alone is first that of a column of the list, and a whole number the place of one.

use std::sync::Arc;

use crossdock_format::{FieldSpec, FieldType, Format};
use sqlparser::ast;

use crate::error::{Position, QueryError};
use crate::expr::{Expr, Node};
use crate::parse::{Clauses, Item, Parsed, ReadOrder, ReadOrderItem, Reader, Select, Snapshot, SortDirection};
use crate::program::{Output, Program, Projection, reads};
use crate::snapshot::{fields_of, natural};
use crate::tokens::ORDERS;

/// The most rows of `LIMIT`.
pub const MAX_LIMIT: u32 = 1000;
/// The most bytes of a row that is put in order, with the values of `ORDER BY`; a longer one is a row error.
pub const MAX_ORDERED_ROW_BYTES: usize = 8 << 10;
/// The most expressions of `ORDER BY`.
const MAX_ORDER: usize = 32;
/// The rows of a query with `ORDER BY` and `LIMIT`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TopN {
    /// How many there are at most.
    pub limit: u32,
    /// Whether they follow the changes, so that all rows have to be kept for which the condition holds.
    pub follows: bool,
}

impl TopN {
    /// The most bytes that the rows take which are kept for it, of a state that takes at most `state_bytes`.
    #[must_use]
    pub fn most_bytes(self, state_bytes: u64) -> u64 {
        match self.follows {
            true => state_bytes,
            // One more while it is put in.
            false => state_bytes.min((u64::from(self.limit) + 1) * 2 * MAX_ORDERED_ROW_BYTES as u64),
        }
    }
}

/// The first rows by an order, planned for the rows of a stream's state.
#[derive(Clone, Debug)]
pub struct TopNProgram {
    /// The query for what is kept of a row: its condition, and the columns that the select list reads, with those of the key.
    pub keep: Program,
    /// The values that a row is put in order by.
    pub order: Program,
    /// How each of them is.
    pub directions: Vec<SortDirection>,
    /// The columns of the key in the rows; rows whose values are equal are put in order by them.
    pub key: Vec<usize>,
    /// How many rows there are at most.
    pub limit: u32,
    /// The most bytes that what is kept may take.
    pub max_bytes: usize,
}

impl Select {
    /// The rows of its clauses `ORDER BY` and `LIMIT`, if it has them.
    #[must_use]
    pub fn top_n(&self) -> Option<TopN> {
        let clauses = self.clauses();
        let follows = clauses.snapshot?.snapshot != Snapshot::Once;
        clauses.limit.map(|limit| TopN { limit, follows })
    }

    /// Checks its clause `ORDER BY`, if it has one, against a format of its stream.
    ///
    /// # Errors
    /// An unknown column, a mismatch of types, a list; with its place in the text.
    pub fn check_order(&self, format: &Format) -> Result<(), QueryError> {
        self.order(format).map(drop)
    }

    /// The values of `ORDER BY` as a query of their own, and how each of them is put in order.
    fn order(&self, format: &Format) -> Result<Option<(Program, Vec<SortDirection>)>, QueryError> {
        let Some(order) = &self.clauses().order else { return Ok(None) };
        let items = order.by.iter().map(|by| self.ordered_by(by)).collect::<Result<Vec<Item>, _>>();
        let items = items.map_err(|error| error.over(self.sql()))?;
        let program = fields_of(self.with_parsed(Arc::new(Parsed::of(items, None))).plan(format)?)?;
        let outputs = outputs_of(&program);
        for (output, by) in outputs.iter().zip(&order.by) {
            let (message, hint) = match &output.expr {
                Expr { ty: FieldType::List, .. } => ("ORDER BY has a list, and lists are not compared", "leave it out"),
                Expr { node: Node::Const(_), .. } => {
                    ("ORDER BY has a constant, which puts nothing in order", "name a column, or its place in the list")
                }
                _ => continue,
            };
            return Err(QueryError::new(message, by.at).hint(hint).over(self.sql()));
        }
        Ok(Some((program, order.by.iter().map(|by| by.direction).collect())))
    }

    /// An expression of `ORDER BY`: an entry of the select list, where it names one.
    fn ordered_by(&self, by: &ReadOrderItem) -> Result<Item, QueryError> {
        let of_list = match &by.expr {
            ast::Expr::Value(ast::ValueWithSpan { value: ast::Value::Number(text, _), .. }) => {
                Some(self.item_at(text, by.at)?)
            }
            ast::Expr::Identifier(name) => self.item_called(name),
            _ => None,
        };
        Ok(Item::Expr { expr: Box::new(of_list.unwrap_or(&by.expr).clone()), alias: None, at: by.at })
    }

    /// The entry of the select list at this place.
    fn item_at(&self, place: &str, at: Option<Position>) -> Result<&ast::Expr, QueryError> {
        let items = self.items();
        let before = place.parse().ok().and_then(|place: usize| place.checked_sub(1)).unwrap_or(usize::MAX);
        let are_columns = items.iter().take(before.saturating_add(1)).all(|item| matches!(item, Item::Expr { .. }));
        match items.get(before) {
            Some(Item::Expr { expr, .. }) if are_columns => Ok(expr),
            _ if !are_columns => {
                Err(QueryError::new("the place of a column is not counted behind `*`", at).hint("name the column"))
            }
            _ => {
                let message = format!("ORDER BY {place} is no place of the select list, which has {}", items.len());
                Err(QueryError::new(message, at).hint("name a column, or its place in the list"))
            }
        }
    }

    /// The entry of the select list that was given this name.
    fn item_called(&self, name: &ast::Ident) -> Option<&ast::Expr> {
        let named = || {
            self.items().iter().filter_map(|item| match item {
                Item::Expr { expr, alias: Some(alias), .. } => Some((alias, &**expr)),
                _ => None,
            })
        };
        let exactly = named().find(|(alias, _)| alias.value == name.value);
        let is_like = |(alias, _): &(&ast::Ident, _)| {
            name.quote_style.is_none() && alias.value.to_lowercase() == name.value.to_lowercase()
        };
        exactly.or_else(|| named().find(is_like)).map(|(_, expr)| expr)
    }

    /// Plans `ORDER BY` and `LIMIT` for the rows of its stream's state, and the query for what is kept of each row; queries see what is
    /// `shown` of the rows.
    pub(crate) fn plan_top_n(
        &self,
        (rows, shown): (&Format, &Format),
        program: &Program,
    ) -> Result<Option<(TopNProgram, Program)>, QueryError> {
        let (Some(top), Some((order, directions))) = (self.top_n(), self.order(shown)?) else { return Ok(None) };
        let misfit = || self.snapshot_error("the query does not fit the state's rows", ORDERS);
        let mut key = Vec::with_capacity(self.state_key().len());
        for name in self.state_key() {
            let alike = || rows.fields().iter().position(|field| field.name.eq_ignore_ascii_case(name));
            key.push(rows.field(name).or_else(alike).ok_or_else(misfit)?);
        }
        let mut kept = reads(rows, &[], &program.projection);
        kept.extend_from_slice(&key);
        kept.sort_unstable();
        kept.dedup();
        let keep = kept_of(program, &kept).map_err(|error| error.over(self.sql()))?;
        let all = |program: &Program| vec![true; program.output.fields().len()];
        let of_kept = Program { filter: Vec::new(), ..program.clone() };
        let of_kept = of_kept.narrowed(&keep.output, &all(program)).ok_or_else(misfit)?;
        let order = Program { filter: Vec::new(), ..order };
        let order = order.narrowed(rows, &all(&order)).ok_or_else(misfit)?;
        let fixed = [&keep.output, &of_kept.output, &order.output].map(Format::fixed_bytes).into_iter().max();
        if fixed.is_some_and(|bytes| bytes > MAX_ORDERED_ROW_BYTES) {
            let message = format!("its rows are longer than the {MAX_ORDERED_ROW_BYTES} bytes that ORDER BY takes");
            return Err(self.snapshot_error(message, "have fewer columns in the list"));
        }
        let max_bytes = usize::try_from(top.most_bytes(self.state_bytes())).unwrap_or(usize::MAX);
        Ok(Some((TopNProgram { keep, order, directions, key, limit: top.limit, max_bytes }, of_kept)))
    }
}

/// The same query with these columns of its input in place of its own.
fn kept_of(program: &Program, columns: &[usize]) -> Result<Program, QueryError> {
    let rows = &program.input;
    let fields = || columns.iter().filter_map(|&index| Some((index, rows.fields().get(index)?)));
    let specs: Vec<FieldSpec> = fields().map(|(_, field)| field.spec()).collect();
    let output = |(index, field): (usize, &crossdock_format::Field)| Output {
        name: field.name.clone(),
        expr: Expr { node: Node::Field(index), ty: field.ty, nullable: field.nullable },
    };
    let projection = Projection::Fields(fields().map(output).collect());
    let reads = reads(rows, &program.filter, &projection);
    Ok(Program { projection, output: natural(specs)?, reads, ..program.clone() })
}

/// The columns that a program makes, where it does not leave its input unchanged.
pub(crate) fn outputs_of(program: &Program) -> &[Output] {
    match &program.projection {
        Projection::Fields(outputs) => outputs,
        Projection::All => &[],
    }
}

impl Reader {
    /// Goes on behind `ORDER BY …`, which is next.
    pub(crate) fn read_order(&mut self, clauses: &mut Clauses) -> Result<(), QueryError> {
        let at = self.here();
        if !self.takes_words(&["ORDER", "BY"]) {
            let _ = self.takes_words(&["ORDER"]);
            return Err(self.not_next("BY", ORDERS));
        }
        if clauses.order.is_some() {
            return Err(QueryError::new("ORDER BY comes once", at).hint(ORDERS));
        }
        let mut by = Vec::new();
        loop {
            let at = self.here();
            if self.is_word_at(0, "LIMIT") {
                return Err(self.not_next("an expression", ORDERS));
            }
            let expr = self.expr()?;
            let descending = self.takes_words(&["DESC"]);
            if !descending {
                let _ = self.takes_words(&["ASC"]);
            }
            // As in PostgreSQL, null is greater than all values.
            let nulls_first = match self.takes_words(&["NULLS"]) {
                false => descending,
                true if self.takes_words(&["FIRST"]) => true,
                true if self.takes_words(&["LAST"]) => false,
                true => return Err(self.not_next("FIRST or LAST", ORDERS)),
            };
            by.push(ReadOrderItem { expr, at, direction: SortDirection { descending, nulls_first } });
            if by.len() > MAX_ORDER {
                return Err(QueryError::new(format!("ORDER BY has more than {MAX_ORDER} expressions"), at));
            }
            if !self.parser.consume_token(&sqlparser::tokenizer::Token::Comma) {
                break;
            }
        }
        clauses.order = Some(Arc::new(ReadOrder { by, at }));
        Ok(())
    }

    /// Goes on behind `LIMIT n`, which is next.
    pub(crate) fn read_limit(&mut self, clauses: &mut Clauses) -> Result<(), QueryError> {
        let at = self.here();
        let _ = self.takes_words(&["LIMIT"]);
        if clauses.limit.is_some() {
            return Err(QueryError::new("LIMIT comes once", at).hint(ORDERS));
        }
        clauses.limit = Some(self.number(MAX_LIMIT, "the number of rows", ORDERS)?.get());
        clauses.limit_at = at;
        Ok(())
    }
}

/// Each of the two clauses has the other beside it.
pub(crate) fn check(clauses: &Clauses) -> Result<(), QueryError> {
    let (message, at) = match (&clauses.order, clauses.limit) {
        (Some(order), None) => ("ORDER BY has no LIMIT: it is not said how many rows are kept in order", order.at),
        (None, Some(_)) => ("LIMIT has no ORDER BY: it is not said which rows come first", clauses.limit_at),
        _ => return Ok(()),
    };
    Err(QueryError::new(message, at).hint(ORDERS))
}
