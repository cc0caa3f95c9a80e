//! The rows and fields of a stream that a query may read: a query that others read through.

use std::sync::Arc;

use crossdock_format::Format;
use sqlparser::ast;

use crate::error::QueryError;
use crate::parse::{Item, Select, parse};
use crate::program::Program;

/// The rows and fields of one stream that queries may read. They see the stream as this view leaves it: its columns and no
/// others, for `*` too, and the records that pass its condition ([`Select::through`]).
#[derive(Clone, Debug)]
pub struct View {
    select: Arc<Select>,
}

/// Views of the same text are the same.
impl PartialEq for View {
    fn eq(&self, other: &View) -> bool {
        self.sql() == other.sql()
    }
}

impl Eq for View {}

impl View {
    /// Reads a view: `SELECT columns FROM stream [WHERE condition]`. A record for which the condition has a row error does not pass,
    /// so that nobody learns of it.
    ///
    /// # Errors
    /// Those of [`parse`], an expression in the select list that is no column, or a parameter; with its place.
    pub fn parse(sql: &str) -> Result<View, QueryError> {
        let select = parse(sql)?;
        if let Some((name, at)) = select.parameters().first() {
            let error = QueryError::new(format!("a view has no parameters such as `${name}`"), *at);
            return Err(error.hint("write the value").over(sql));
        }
        for item in select.items() {
            if let Item::Expr { expr, at, .. } = item
                && !matches!(**expr, ast::Expr::Identifier(_) | ast::Expr::CompoundIdentifier(_))
            {
                let error = QueryError::new("the select list of a view has columns only", *at);
                return Err(error.hint("queries through the view may compute from its columns").over(sql));
            }
        }
        Ok(View { select: Arc::new(select.with_null_for_errors()) })
    }

    /// The stream that it is a view of.
    #[must_use]
    pub fn stream(&self) -> &str {
        self.select.stream()
    }

    /// Its text.
    #[must_use]
    pub fn sql(&self) -> &str {
        self.select.sql()
    }

    /// The view as a program: its output is what queries through it may read.
    ///
    /// # Errors
    /// An unknown column, a mismatch of types; with its place in the text.
    pub fn plan(&self, format: &Format) -> Result<Program, QueryError> {
        self.select.plan(format)
    }

    /// The error for its stream, where that is not among the known ones.
    #[must_use]
    pub fn unknown_stream(&self, known: &[&str]) -> QueryError {
        self.select.unknown_stream(known)
    }
}

impl Select {
    /// The same query, which sees of its stream only what `view` leaves: `*` means the view's columns, other columns are unknown,
    /// and records that do not pass the view's condition are not there. A query has one view at most, the last.
    #[must_use]
    pub fn through(self, view: View) -> Select {
        self.over(view.select)
    }

    /// The view that it reads through, if there is one.
    #[must_use]
    pub fn view(&self) -> Option<View> {
        self.over_what().map(|select| View { select: Arc::clone(select) })
    }
}
