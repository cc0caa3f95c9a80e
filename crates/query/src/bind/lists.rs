//! Lists as operands: comparisons with their elements, and the elements themselves. A list is a column: expressions make none.

use crossdock_format::{ElementKind, FieldType};
use sqlparser::ast::{self, AccessExpr, BinaryOperator, Subscript};

use super::names::place;
use super::ops::compare_op;
use super::{Binder, Bound, BoundOverFunction, Literal, WINDOW_FIELDS, build, not_possible};
use crate::error::QueryError;
use crate::expr::{CompareOp, Expr, Node};

/// Forms in which a list is an operand; ends messages about others.
pub(super) const LIST_FORMS: &str =
    "a list can be selected, and asked whether it IS NULL; operands are: 'UA' = ANY(list), list[1], cardinality(list)";

impl<'a> Binder<'a> {
    /// `left op ANY(right)`, or ALL, of a list or of `ARRAY[…]`.
    pub(super) fn quantified(
        &mut self,
        (op, is_all): (&BinaryOperator, bool),
        left: &'a ast::Expr,
        right: &'a ast::Expr,
    ) -> Result<Expr, QueryError> {
        let word = if is_all { "ALL" } else { "ANY" };
        let Some(op) = compare_op(op) else {
            return Err(not_possible(&format!("{op} before {word}"), left).hint("possible are: = <> < <= > >="));
        };
        match (op, is_all, array_of(right)) {
            (_, _, Some([])) => Err(empty_array(right)),
            (CompareOp::Eq, false, Some(items)) => self.is_in(false, left, items),
            (CompareOp::Ne, true, Some(items)) => self.is_in(true, left, items),
            (op, _, Some(_)) => {
                let what = format!("{} {word} of ARRAY[…]", op.sql());
                let hint = "possible are = ANY(ARRAY[a, b]) and <> ALL(ARRAY[a, b]); least(a, b) and greatest(a, b) are compared";
                Err(not_possible(&what, left).hint(hint))
            }
            (_, _, None) => {
                let mut operand = self.bind(left)?;
                let list = self.list(right, word)?;
                let mut element = self.element(&list)?;
                self.reconcile(&mut element, &mut operand)?;
                Ok(build::quantified((op, is_all), operand.expr, list.expr, element.expr.nullable))
            }
        }
    }

    /// `list @> ARRAY[…]` (and `<@` the other way round): all of these are in it; `list && ARRAY[…]`: one of them is.
    pub(super) fn contains(
        &mut self,
        op: &BinaryOperator,
        left: &'a ast::Expr,
        right: &'a ast::Expr,
    ) -> Result<Expr, QueryError> {
        let is_all = *op != BinaryOperator::PGOverlap;
        let (list, array) = if *op == BinaryOperator::ArrowAt { (right, left) } else { (left, right) };
        let (list, array) = if !is_all && array_of(list).is_some() { (array, list) } else { (list, array) };
        let (None, Some(items)) = (array_of(list), array_of(array)) else {
            let error = QueryError::new(format!("{op} compares a list with ARRAY[…]"), place(left));
            return Err(error.hint("list @> ARRAY['UA', 'DL'], ARRAY['UA', 'DL'] <@ list, list && ARRAY['UA', 'DL']"));
        };
        let list = self.list(list, &op.to_string())?;
        let mut element = self.element(&list)?;
        let mut conditions = Vec::with_capacity(items.len());
        for item in items {
            let mut item = self.bind(item)?;
            self.reconcile(&mut element, &mut item)?;
            let (nullable, list) = (element.expr.nullable, list.expr.clone());
            conditions.push(build::quantified((CompareOp::Eq, false), item.expr, list, nullable));
        }
        if conditions.is_empty() {
            return Err(empty_array(array));
        }
        // As in PostgreSQL, a null is equal to nothing here.
        let has_nulls = conditions.iter().any(|condition| condition.nullable);
        let conditions = match has_nulls {
            true => conditions.into_iter().map(|condition| build::is_truth(Some(true), false, condition)).collect(),
            false => conditions,
        };
        let all = if is_all { build::and(conditions) } else { build::or(conditions) };
        Ok(match list.expr.nullable {
            true => build::case(None, vec![(build::is_null(true, list.expr), all)], None, FieldType::Bool),
            false => all,
        })
    }

    /// `list[index]`; the names of a stream or of nested records may stand before that of the list.
    pub(super) fn access(
        &mut self,
        source: &'a ast::Expr,
        root: &'a ast::Expr,
        chain: &'a [AccessExpr],
    ) -> Result<Expr, QueryError> {
        let part = || {
            let error = not_possible("access to a part of a value", source);
            let has_subscript = chain.iter().any(|access| matches!(access, AccessExpr::Subscript(_)));
            if has_subscript { error.hint(LIST_FORMS) } else { error }
        };
        let (index, names) = match chain.split_last() {
            Some((AccessExpr::Subscript(Subscript::Index { index }), names)) => (index, names),
            Some((AccessExpr::Subscript(Subscript::Slice { .. }), _)) => {
                let hint = "list[1] is the first element; expressions make no lists";
                return Err(not_possible("a slice of a list", source).hint(hint));
            }
            _ => return Err(part()),
        };
        let mut list = match root {
            root if names.is_empty() => self.bind_any(root)?,
            ast::Expr::Identifier(first) => {
                let rest = names.iter().map(|name| match name {
                    AccessExpr::Dot(ast::Expr::Identifier(name)) => Some(name.clone()),
                    _ => None,
                });
                let parts: Option<Vec<ast::Ident>> = std::iter::once(Some(first.clone())).chain(rest).collect();
                let expr = self.compound(&parts.ok_or_else(part)?)?;
                Bound { expr, literal: Literal::None, source: root }
            }
            _ => return Err(part()),
        };
        if list.expr.ty != FieldType::List {
            self.settle(&mut list);
            let is = self.is_of_type(list.source, list.expr.ty, list.literal);
            let error = QueryError::new(format!("{is}, and only lists have elements"), place(root));
            return Err(error.hint(match list.expr.ty.is_text() {
                true => "substr(text, 1, 1) is its first character, text -> 0 the first element of a JSON array",
                false => LIST_FORMS,
            }));
        }
        let mut index = self.bind(index)?;
        self.settle_as(&mut index, FieldType::I64)?;
        if index.literal != Literal::Null && !index.expr.ty.is_integer() {
            let is = self.is_of_type(index.source, index.expr.ty, index.literal);
            let error = QueryError::new(format!("the number of an element is whole, and {is}"), place(index.source));
            return Err(error.hint("list[1] is the first element"));
        }
        self.call_of(source, "[]", vec![list, index])
    }

    /// An operand that is a list, for `what`.
    fn list(&mut self, source: &'a ast::Expr, what: &str) -> Result<Bound<'a>, QueryError> {
        let list = self.bind_any(source)?;
        if list.expr.ty == FieldType::List {
            return Ok(list);
        }
        let is = self.is_of_type(source, list.expr.ty, list.literal);
        let error = QueryError::new(format!("{what} takes a list, and {is}"), place(source));
        Err(error.hint("a list is a column such as one of type string[], or ARRAY['UA', 'DL']"))
    }

    /// A value in the place of a list that its elements may have: other operands are compared with it.
    pub(super) fn element(&self, list: &Bound<'a>) -> Result<Bound<'a>, QueryError> {
        let (ty, is_nullable) = self.element_type(&list.expr).map_err(|elements| {
            let described = self.is_of_type(list.source, FieldType::List, Literal::None);
            let message = format!("{described} of {elements}, and operands are elements that are single values");
            QueryError::new(message, place(list.source)).hint("cardinality(list) is the number of its elements")
        })?;
        let expr = Expr { ty, nullable: list.expr.nullable || is_nullable, ..list.expr.clone() };
        Ok(Bound { expr, literal: Literal::Element, source: list.source })
    }

    /// The type of a list's elements, and whether one may be null; else their kind, in a word.
    fn element_type(&self, list: &Expr) -> Result<(FieldType, bool), &'static str> {
        let Node::Field(index) = list.node else { return Err("unknown elements") };
        if let Some(groups) = &self.groups
            && let Some(made) = index.checked_sub(groups.base + WINDOW_FIELDS)
        {
            let over = groups.over.get(made).and_then(|call| match &call.function {
                BoundOverFunction::Aggregate(aggregate, _) => Some(aggregate),
                _ => None,
            });
            let first = groups.aggregates.get(made).or(over).and_then(|aggregate| aggregate.arguments.first());
            return first.map(|first| (first.ty, false)).ok_or("unknown elements");
        }
        match self.declared(index).and_then(|(_, field)| field.element()).map(|element| element.kind()) {
            Some(ElementKind::Scalar(field)) => match field.ty {
                FieldType::List => Err("lists"),
                FieldType::Enum { .. } => Ok((FieldType::String, true)),
                ty => Ok((ty, false)),
            },
            Some(ElementKind::Record(_)) => Err("records"),
            None => Err("unknown elements"),
        }
    }
}

/// The values of `ARRAY[…]`.
fn array_of(source: &ast::Expr) -> Option<&[ast::Expr]> {
    match source {
        ast::Expr::Array(array) => Some(&array.elem),
        ast::Expr::Nested(inner) => array_of(inner),
        _ => None,
    }
}

fn empty_array(array: &ast::Expr) -> QueryError {
    QueryError::new("the array is empty", place(array)).hint("ARRAY['UA', 'DL'] has two values")
}
