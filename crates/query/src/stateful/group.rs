//! GROUP BY, HAVING, DISTINCT and the select list of a query with groups.

use crossdock_format::{FieldSpec, FieldType, Format};
use sqlparser::ast;

use super::over::OverCalls;
use super::plan::{interval_of, is_time};
use super::program::{Aggregation, MAX_WINDOWS, Window};
use super::read::Body;
use super::rows::{Flow, Row, type_of, unique};
use crate::bind::{Binder, BoundAggregate, Groups, Table, compare, is_null, place};
use crate::error::{Position, QueryError};
use crate::expr::{CompareOp, Constant, Expr, Node};
use crate::parse::{Condition, Item, ReadOrderItem, SortDirection};
use crate::program::Output;
use crate::tokens::ORDERS;

/// A select list; over the rows of groups if there are any, else over the columns of FROM.
pub(super) struct Selected {
    pub(super) columns: Vec<Output>,
    pub(super) grouping: Option<Grouping>,
    /// Calls with OVER, which the columns read behind those of FROM; only without groups.
    pub(super) over: Option<OverCalls>,
    /// ORDER BY … LIMIT; only of groups with windows of fixed length.
    pub(super) first: Option<WindowOrder>,
}

/// The rows of each window that come first.
pub(super) struct WindowOrder {
    /// Over the rows of the groups.
    pub(super) order: Vec<(Expr, SortDirection)>,
    pub(super) limit: u32,
    /// The number of the keys of the groups, which are their first columns.
    pub(super) keys: usize,
    pub(super) size_ns: u64,
}

impl Selected {
    /// Marks the columns of FROM that are read.
    pub(super) fn mark(&self, wanted: &mut [bool]) {
        match (&self.grouping, &self.over) {
            (Some(grouping), _) => grouping.exprs().for_each(|expr| expr.mark_fields(wanted)),
            (None, Some(over)) => over.mark(&self.columns, wanted),
            (None, None) => self.columns.iter().for_each(|column| column.expr.mark_fields(wanted)),
        }
    }
}

/// Groups of the rows of FROM.
pub(super) struct Grouping {
    keys: Vec<(String, Expr)>,
    window: Window,
    time: Option<Expr>,
    aggregates: Vec<BoundAggregate>,
    /// HAVING, over the rows of the groups.
    pub(super) having: Vec<Expr>,
    /// Without aggregates, and without a window: that a row is the first of its group.
    pub(super) once: Option<Expr>,
}

/// The keys and the window of GROUP BY.
struct Keys {
    keys: Vec<(String, Expr)>,
    window: Option<(Window, Option<Expr>)>,
}

impl Keys {
    /// The number of columns of a group's row before its aggregates.
    fn before_aggregates(&self) -> usize {
        self.keys.len() + if self.window.is_some() { 2 } else { 0 }
    }
}

/// Binds what follows WHERE. `base` is the number of columns of FROM.
pub(super) fn selected<'a>(
    body: &'a Body,
    tables: &'a [Table<'a>],
    base: usize,
    binder: &dyn Fn() -> Binder<'a>,
) -> Result<Selected, QueryError> {
    let keys = keys(body, tables, binder)?;
    // Which aggregates there are decides what the columns are columns of.
    let grouped = || {
        let groups = Groups::new(base, keys.window.is_some());
        binder().with_groups(groups).with_windows(&body.windows)
    };
    let mut first = grouped();
    let plain = first.columns(&body.items, &mut |_, expr, _| Ok(expr))?;
    if let Some(having) = &body.having {
        first.conditions(&having.expr, having.at, "HAVING")?;
    }
    let mut qualify = Vec::new();
    if let Some(source) = &body.qualify {
        first.know(&plain);
        qualify = first.conditions(&source.expr, source.at, "QUALIFY")?;
        if first.groups().is_none_or(|groups| groups.over.is_empty()) {
            let error = QueryError::new("QUALIFY is a condition on calls with OVER, and the query has none", source.at);
            return Err(error.hint("a condition on columns stands behind WHERE, one on groups behind HAVING"));
        }
    }
    let has_aggregates = first.groups().is_some_and(|groups| !groups.aggregates.is_empty());
    let has_groups = !body.keys.is_empty() || body.having.is_some() || has_aggregates;
    let over = OverCalls::of(first.groups(), has_groups || body.is_distinct, qualify)?;
    let size_ns = ordered_window(body, &keys)?;
    if !has_groups {
        return Ok(match body.is_distinct {
            true => distinct(plain, body.at)?,
            false => Selected { columns: plain, grouping: None, over, first: None },
        });
    }
    if body.is_distinct {
        let error = QueryError::new("SELECT DISTINCT of groups is not possible", body.at);
        return Err(error.hint("put the query in another: SELECT DISTINCT … FROM (SELECT … GROUP BY …) x"));
    }
    let mut binder = grouped();
    let columns = binder.columns(&body.items, &mut |binder, expr, at| regrouped(expr, &keys, base, binder, at))?;
    let mut having = Vec::new();
    if let Some(source) = &body.having {
        for condition in binder.conditions(&source.expr, source.at, "HAVING")? {
            having.push(regrouped(condition, &keys, base, &binder, source.at)?);
        }
    }
    let first = match size_ns.zip(body.first.as_ref()) {
        Some((size_ns, (read, limit))) => {
            let mut order = Vec::with_capacity(read.by.len());
            for by in &read.by {
                order.push((ordered_by(body, by, (&keys, base), &mut binder)?, by.direction));
            }
            Some(WindowOrder { order, limit: *limit, keys: keys.keys.len(), size_ns })
        }
        None => None,
    };
    let mut aggregates = binder.groups().map(|groups| groups.aggregates.clone()).unwrap_or_default();
    let is_running = keys.window.is_none();
    let is_once = is_running && aggregates.is_empty();
    let once = is_once.then(|| once(&mut aggregates, keys.before_aggregates()));
    let (window, time) = keys.window.unwrap_or((Window::Running, None));
    let grouping = Some(Grouping { keys: keys.keys, window, time, aggregates, having, once });
    Ok(Selected { columns, grouping, over: None, first })
}

/// The length of the windows whose rows ORDER BY … LIMIT puts in order, if it is there.
fn ordered_window(body: &Body, keys: &Keys) -> Result<Option<u64>, QueryError> {
    let Some((order, _)) = &body.first else { return Ok(None) };
    let message = match &keys.window {
        Some((Window::Tumble { size_ns } | Window::Hop { size_ns, .. }, _)) => return Ok(Some(*size_ns)),
        Some((Window::Session { .. }, _)) => {
            "ORDER BY … LIMIT is of windows of fixed length, and each key has sessions of its own"
        }
        Some((Window::Running, _)) | None => {
            "ORDER BY … LIMIT is of the rows of each window, and the query has none: its rows have no end to wait for"
        }
    };
    Err(QueryError::new(message, order.at).hint(ORDERS))
}

/// An expression of ORDER BY, over the rows of the groups: a whole number is the place of an entry of the list, and a name alone is first
/// that of an alias.
fn ordered_by<'a>(
    body: &'a Body,
    by: &'a ReadOrderItem,
    (keys, base): (&Keys, usize),
    binder: &mut Binder<'a>,
) -> Result<Expr, QueryError> {
    let called = |name: &ast::Ident, is_exact: bool| {
        body.items.iter().find_map(|item| match item {
            Item::Expr { expr, alias: Some(alias), .. } if alias.value == name.value => Some(&**expr),
            Item::Expr { expr, alias: Some(alias), .. }
                if !is_exact && name.quote_style.is_none() && alias.value.eq_ignore_ascii_case(&name.value) =>
            {
                Some(&**expr)
            }
            _ => None,
        })
    };
    let meant = match &by.expr {
        ast::Expr::Value(value) => match &value.value {
            ast::Value::Number(number, false) => numbered(body, number).ok_or_else(|| {
                let message = format!("ORDER BY {number} is no place of the select list");
                QueryError::new(message, by.at).hint("name a column, or its place in a list without `*`")
            })?,
            _ => &by.expr,
        },
        ast::Expr::Identifier(name) => called(name, true).or_else(|| called(name, false)).unwrap_or(&by.expr),
        _ => &by.expr,
    };
    let expr = binder.value_of(meant, by.at)?;
    let (message, hint) = match &expr {
        Expr { ty: FieldType::List, .. } => ("ORDER BY has a list, and lists are not compared", "leave it out"),
        Expr { node: Node::Const(_), .. } => {
            ("ORDER BY has a constant, which puts nothing in order", "name a column, or its place in the list")
        }
        _ => return regrouped(expr, keys, base, binder, by.at),
    };
    Err(QueryError::new(message, by.at).hint(hint))
}

/// The entry of the select list with this number, from 1, where no `*` makes that uncertain.
fn numbered<'a>(body: &'a Body, number: &str) -> Option<&'a ast::Expr> {
    let has_all = body.items.iter().any(|item| matches!(item, Item::All { .. }));
    let place = number.parse().ok().and_then(|number: usize| number.checked_sub(1)).filter(|_| !has_all)?;
    match body.items.get(place)? {
        Item::Expr { expr, .. } => Some(expr),
        Item::All { .. } => None,
    }
}

/// SELECT DISTINCT: groups by all columns.
fn distinct(columns: Vec<Output>, at: Option<Position>) -> Result<Selected, QueryError> {
    let mut keys: Vec<(String, Expr)> = Vec::new();
    let mut outputs = Vec::with_capacity(columns.len());
    for Output { name, expr } in columns {
        let (ty, nullable) = (expr.ty, expr.nullable);
        if ty == FieldType::List {
            let error = QueryError::new(format!("`{name}` is a list, which DISTINCT does not compare"), at);
            return Err(error.hint(LIST_KEYS));
        }
        let index = keys.iter().position(|(_, key)| *key == expr).unwrap_or_else(|| {
            keys.push((name.clone(), expr));
            keys.len() - 1
        });
        outputs.push(Output { name, expr: Expr { node: Node::Field(index), ty, nullable } });
    }
    let mut aggregates = Vec::new();
    let (having, once) = (Vec::new(), Some(once(&mut aggregates, keys.len())));
    let grouping = Grouping { keys, window: Window::Running, time: None, aggregates, having, once };
    Ok(Selected { columns: outputs, grouping: Some(grouping), over: None, first: None })
}

/// Without a window each row brings the present row of its group: the condition that this is the first one, and the aggregate it needs.
fn once(aggregates: &mut Vec<BoundAggregate>, at: usize) -> Expr {
    let index = at + aggregates.len();
    aggregates.push(BoundAggregate::of_rows());
    let count = Expr { node: Node::Field(index), ty: FieldType::I64, nullable: false };
    compare(CompareOp::Eq, count, Expr::constant(Constant::Int(1), FieldType::I64))
}

fn keys<'a>(body: &'a Body, tables: &'a [Table<'a>], binder: &dyn Fn() -> Binder<'a>) -> Result<Keys, QueryError> {
    let mut keys = Keys { keys: Vec::new(), window: None };
    for source in &body.keys {
        if let ast::Expr::Function(function) = &source.expr
            && let Some(window) = window(source, function, &mut binder().without_aggregates("GROUP BY"))?
        {
            if keys.window.is_some() {
                let error = QueryError::new("GROUP BY has one window", place(&source.expr));
                return Err(error.hint("another window is that of another query: SELECT … UNION ALL SELECT …"));
            }
            keys.window = Some(window);
            continue;
        }
        let mut binder = binder().without_aggregates("GROUP BY").with_errors();
        let meant = meant(body, source, tables, &binder)?;
        let expr = binder.value_of(meant, source.at)?;
        if expr.ty == FieldType::List {
            let error = QueryError::new("a list is no key of groups", place(&source.expr).or(source.at));
            return Err(error.hint(LIST_KEYS));
        }
        if !keys.keys.iter().any(|(_, key)| *key == expr) {
            keys.keys.push((binder.implied_name(meant), expr));
        }
    }
    Ok(keys)
}

/// The expression of a key: an entry of the select list where the key is its number, or its alias and no column.
fn meant<'a>(
    body: &'a Body,
    source: &'a Condition,
    tables: &[Table<'_>],
    binder: &Binder<'_>,
) -> Result<&'a ast::Expr, QueryError> {
    match &source.expr {
        ast::Expr::Value(value) => {
            let ast::Value::Number(number, false) = &value.value else { return Ok(&source.expr) };
            numbered(body, number).ok_or_else(|| {
                let error = QueryError::new("no entry of the select list has this number", place(&source.expr));
                error.hint("GROUP BY takes columns, expressions, and numbers of entries of the select list")
            })
        }
        ast::Expr::Identifier(name) if !tables.is_empty() && !binder.knows(name) => {
            let called = body.items.iter().find_map(|item| match item {
                Item::Expr { expr, alias: Some(alias), .. } if alias.value == name.value => Some(&**expr),
                _ => None,
            });
            Ok(called.unwrap_or(&source.expr))
        }
        _ => Ok(&source.expr),
    }
}

/// The remedy for a list as a key.
const LIST_KEYS: &str = "a key has single values, such as list[1], cardinality(list) or array_to_string(list, ',')";
const TUMBLE: &str = "TUMBLE(time, INTERVAL '1 hour')";
const HOP: &str =
    "HOP(time, INTERVAL '5 minutes', INTERVAL '1 hour'): how far apart windows begin, and how long they are";
const SESSION: &str = "SESSION(time, INTERVAL '10 minutes'): the pause that ends a session";

/// `TUMBLE`, `HOP` or `SESSION`: the window, and the time; `None` for other functions.
fn window<'a>(
    source: &'a Condition,
    function: &'a ast::Function,
    binder: &mut Binder<'a>,
) -> Result<Option<(Window, Option<Expr>)>, QueryError> {
    let name = function.name.to_string().to_ascii_lowercase();
    let (form, lengths) = match name.as_str() {
        "tumble" => (TUMBLE, 1),
        "hop" => (HOP, 2),
        "session" => (SESSION, 1),
        _ => return Ok(None),
    };
    let at = place(&source.expr).or(source.at);
    let wrong = || {
        QueryError::new(format!("{} does not have these arguments", name.to_uppercase()), at)
            .hint(format!("{form}; without the time, windows are of the time of arrival"))
    };
    let ast::FunctionArguments::List(list) = &function.args else { return Err(wrong()) };
    let arguments: Option<Vec<&ast::Expr>> = list
        .args
        .iter()
        .map(|argument| match argument {
            ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) => Some(expr),
            _ => None,
        })
        .collect();
    let arguments = arguments.ok_or_else(wrong)?;
    let (time, intervals) = match arguments.split_first() {
        Some((time, intervals)) if arguments.len() == lengths + 1 => (Some(*time), intervals),
        _ if arguments.len() == lengths => (None, &arguments[..]),
        _ => return Err(wrong()),
    };
    let mut lengths = Vec::with_capacity(intervals.len());
    for interval in intervals {
        let length = interval_of(interval, source).map_err(|error| match error.hint {
            None => error.hint(form),
            Some(_) => error,
        })?;
        if length == 0 {
            return Err(QueryError::new("the interval is empty", place(interval).or(at)).hint(form));
        }
        lengths.push(length);
    }
    let window = match (name.as_str(), &lengths[..]) {
        ("tumble", &[size_ns]) => Window::Tumble { size_ns },
        ("session", &[gap_ns]) => Window::Session { gap_ns },
        ("hop", &[slide_ns, size_ns]) if size_ns / slide_ns > MAX_WINDOWS => {
            let message =
                format!("each row would be in {} windows, and {MAX_WINDOWS} are possible", size_ns / slide_ns);
            return Err(QueryError::new(message, at).hint(HOP));
        }
        ("hop", &[slide_ns, size_ns]) if size_ns % slide_ns == 0 => Window::Hop { size_ns, slide_ns },
        ("hop", _) => {
            let error = QueryError::new("the length of HOP is a multiple of how far apart its windows begin", at);
            return Err(error.hint(HOP));
        }
        _ => return Err(wrong()),
    };
    let Some(time_at) = time else { return Ok(Some((window, None))) };
    let time = binder.value_of(time_at, source.at)?;
    if !is_time(&time) {
        let message = format!("the time of {} is a timestamp, and this is {}", name.to_uppercase(), time.ty);
        let error = QueryError::new(message, place(time_at).or(at));
        return Err(error.hint("to_timestamp(seconds), or CAST(nanoseconds AS timestamp), makes one"));
    }
    Ok(Some((window, Some(time))))
}

/// An expression over FROM and the aggregates as one over the rows of the groups: keys and aggregates become fields, and no other column
/// may be there.
fn regrouped(
    mut expr: Expr,
    keys: &Keys,
    base: usize,
    binder: &Binder<'_>,
    at: Option<Position>,
) -> Result<Expr, QueryError> {
    regroup(&mut expr, keys, base).map_err(|index| {
        let name = binder.shown_name(index);
        let message = format!("column `{name}` is neither a key of GROUP BY nor in an aggregate");
        let hint = format!("GROUP BY {name}, or an aggregate of it: last({name}), max({name}), count({name})");
        QueryError::new(message, binder.seen_at(index).or(at)).hint(hint)
    })?;
    Ok(expr)
}

/// The column that may not be there is the error.
fn regroup(expr: &mut Expr, keys: &Keys, base: usize) -> Result<(), usize> {
    if let Some(index) = keys.keys.iter().position(|(_, key)| key == expr) {
        expr.node = Node::Field(index);
        return Ok(());
    }
    if let Node::Field(index) = &mut expr.node {
        let Some(behind) = index.checked_sub(base) else { return Err(*index) };
        *index = keys.keys.len() + behind - if keys.window.is_some() { 0 } else { 2 };
        return Ok(());
    }
    expr.operands_mut().into_iter().try_for_each(|operand| regroup(operand, keys, base))
}

impl Grouping {
    /// The expressions over FROM that the groups need.
    pub(super) fn exprs(&self) -> impl Iterator<Item = &Expr> {
        let aggregates = self.aggregates.iter().flat_map(|of| of.arguments.iter().chain(&of.filter));
        self.keys.iter().map(|(_, key)| key).chain(&self.time).chain(aggregates)
    }

    /// The row that the groups read, the column of its time, and what is done with it. Rows without a time are left out.
    pub(super) fn row(
        &self,
        flow: &mut Flow,
        null_for_errors: bool,
    ) -> Result<(Row, Option<usize>, Aggregation), QueryError> {
        let mut row = Row::default();
        let mut keys = Vec::with_capacity(self.keys.len());
        for (name, key) in &self.keys {
            let key = flow.placed(key)?;
            // Keys are compared with the select list before this.
            let key = if null_for_errors { key.or_null() } else { key };
            keys.push(row.add(name, key));
        }
        let time = match &self.time {
            Some(time) => {
                let time = flow.placed(time)?;
                if time.nullable {
                    flow.filter.push(is_null(true, time.clone()));
                }
                Some(row.add_unnamed("time", time, &flow.input))
            }
            None => None,
        };
        let mut aggregates = Vec::with_capacity(self.aggregates.len());
        for aggregate in &self.aggregates {
            aggregates.push(row.add_aggregate(aggregate, flow)?);
        }
        let (corrects, gives_changes) = (self.corrects(flow), false);
        Ok((row, time, Aggregation { keys, window: self.window, aggregates, corrects, gives_changes }))
    }

    /// Whether there is no window.
    pub(super) fn is_running(&self) -> bool {
        self.window == Window::Running
    }

    /// Whether rows are taken out of the groups again.
    pub(super) fn corrects(&self, flow: &Flow) -> bool {
        self.is_running() && flow.is_corrected
    }

    /// Refuses rows of groups that change, where each would count beside the one that has taken its place: nothing is taken out of a
    /// window, and behind a step that took them one by one nothing says which has taken whose place. Each value once is no count.
    pub(super) fn check_replaced(&self, flow: &Flow, at: Option<Position>) -> Result<(), QueryError> {
        let (message, hint) = match (self.is_running(), flow.has_replaced) {
            (true, true) if self.once.is_none() => (
                "these rows are those of groups that change, joined one by one: the groups here would count each change",
                "a join with bounds of time, an ASOF JOIN and a reference table take each row that a group gives as one of its own: \
                 group behind the join only, or give the inner groups a window",
            ),
            (false, _) if flow.gives_replaced() => (
                "a window of groups that change would count a group once for each of its changes",
                "give the groups of the inner query a window too, or leave this one out: groups without a window are corrected",
            ),
            _ => return Ok(()),
        };
        Err(QueryError::new(message, at).hint(hint))
    }

    /// Refuses the aggregates that a row cannot be taken out of again.
    pub(super) fn check_corrected(&self, at: Option<Position>) -> Result<(), QueryError> {
        let Some(of) = self.aggregates.iter().find(|of| !of.function.can_correct()) else { return Ok(()) };
        let message = format!("{} of rows that change is not possible: a row cannot be taken out of it again", of.name);
        Err(QueryError::new(message, at).hint(
            "the inner query has groups without a window; possible over its rows are count, sum, avg, min, max, stddev, variance, \
             bool_and and bool_or, also with DISTINCT",
        ))
    }

    /// The columns of the groups' rows.
    pub(super) fn specs(&self, row: &Format, aggregation: &Aggregation) -> Vec<FieldSpec> {
        let mut specs: Vec<FieldSpec> = Vec::new();
        for index in &aggregation.keys {
            specs.extend(row.fields().get(*index).map(crossdock_format::Field::spec));
        }
        if self.window != Window::Running {
            specs.push(FieldSpec::new("window_start", FieldType::Timestamp));
            specs.push(FieldSpec::new("window_end", FieldType::Timestamp));
        }
        for (bound, planned) in self.aggregates.iter().zip(&aggregation.aggregates) {
            let spec = FieldSpec::new(bound.name, type_of(planned, row));
            specs.push(FieldSpec { nullable: bound.nullable, ..spec });
        }
        let names = unique(specs.iter().map(|spec| spec.name.as_str()));
        specs.iter_mut().zip(names).for_each(|(spec, name)| spec.name = name);
        specs
    }
}
