//! A query with state → stages and the programs between them.
//!
//! Rows flow from streams, through stages, to the output. Whatever needs no state is gathered on the way (conditions, columns) until a
//! stage needs rows; it then becomes the program in front of that stage. So inner queries without state cost nothing, and a stage's rows
//! have the columns that somebody reads. A part that the query has several times is planned each time, and [shared](super::share) at the end.

use std::collections::BTreeMap;

use crossdock_format::{FieldSpec, FieldType, Format};
use sqlparser::ast;

use super::group::{self, Grouping, WindowOrder};
use super::join::{BoundJoin, apart};
use super::over::{OverCalls, OverStage, columns_over};
use super::program::{
    Aggregation, DerivedTime, FirstRows, JoinKind, MAX_STATE_BYTES, Operator, OverRows, Port, RowTime, Stage,
    StageInput, StageOutput, StatefulProgram, StreamSource, Window, stage_before,
};
use super::read::{Body, Changes, Joined, Rows, Tree};
use super::rows::{self, Flow, Origin, Row};
use super::share;
use super::table::{self, NamedTable, ReferenceTable};
use super::using::{self, UsingStep};
use crate::bind::{Binder, Table, as_interval, cast, common_type, interval_text, place};
use crate::error::{Position, QueryError};
use crate::expr::{Class, Constant, Expr, Node};
use crate::function::Interval;
use crate::parse::{Condition, SortDirection};
use crate::program::{Output, Program, Projection};
use crate::snapshot::{CHANGE, CHANGE_BYTES};
use crate::view::View;

/// The most selects that a query comes to once those of WITH stand wherever they are read.
const MAX_SELECTS: usize = 48;
/// The remedy for a stream without a format.
pub(super) const NO_FORMAT: &str = "the first publisher of a stream announces its format";

/// Plans one query.
pub(super) struct Planner<'q> {
    sql: &'q str,
    parameters: Vec<String>,
    values: &'q BTreeMap<String, String>,
    pub(super) null_for_errors: bool,
    spelt: &'q dyn Fn(&str, bool) -> (String, String),
    formats: &'q [(&'q str, &'q Format)],
    views: &'q BTreeMap<String, View>,
    tables: &'q [NamedTable],
    pub(super) stages: Vec<Stage>,
    sources: Vec<StreamSource>,
    selects: usize,
}

/// The rows of a query with all of its columns, and the columns' names.
#[derive(Debug)]
struct Planned {
    flow: Flow,
    names: Vec<String>,
}

/// A stream or query of FROM, planned: how it is called in messages, its rows, its columns.
struct Ready {
    name: String,
    flow: Flow,
    format: Format,
}

/// Plans a query: its stages, in order; `changes` is the place of `CHANGES`.
pub(super) fn plan(
    mut planner: Planner<'_>,
    tree: &Tree,
    changes: Option<&Changes>,
) -> Result<StatefulProgram, QueryError> {
    let Planned { mut flow, mut names } = planner.tree(tree)?;
    if let Some(changes) = changes {
        planner.with_changes(&mut flow, &mut names, changes)?;
    }
    if let Origin::Stream(_) = flow.origin {
        // Without a step that keeps state: one that lets rows pass.
        flow = planner.union(vec![flow], &names)?;
    }
    let (outputs, output) = planner.output(&flow, &names)?;
    let program = planner.program("rows", &flow, outputs, output);
    let last = match flow.origin {
        Origin::Stage(index) if index + 1 == planner.stages.len() => planner.stages.last_mut(),
        _ => None,
    };
    let Some(last) = last else {
        debug_assert!(false, "the output comes from the last stage");
        return Err(QueryError::new("the query has no last stage", None));
    };
    last.outputs = vec![StageOutput { then: program, to: None }];
    let (stages, sources) = share::share(planner.stages, planner.sources);
    Ok(StatefulProgram {
        sql: planner.sql.to_owned(),
        stages,
        sources,
        max_state_bytes: MAX_STATE_BYTES,
        changes: changes.is_some(),
    })
}

impl<'q> Planner<'q> {
    pub(super) fn new(
        sql: &'q str,
        parameters: Vec<String>,
        values: &'q BTreeMap<String, String>,
        null_for_errors: bool,
        spelt: &'q dyn Fn(&str, bool) -> (String, String),
        formats: &'q [(&'q str, &'q Format)],
        views: &'q BTreeMap<String, View>,
    ) -> Planner<'q> {
        let (stages, sources, selects) = (Vec::new(), Vec::new(), 0);
        let tables = &[];
        Planner { sql, parameters, values, null_for_errors, spelt, formats, views, tables, stages, sources, selects }
    }

    /// With the reference tables that the query names.
    pub(super) fn with_tables(self, tables: &'q [NamedTable]) -> Planner<'q> {
        Planner { tables, ..self }
    }

    fn tree(&mut self, tree: &Tree) -> Result<Planned, QueryError> {
        let mut all = Vec::with_capacity(tree.selects.len());
        for select in &tree.selects {
            self.selects += 1;
            if self.selects > MAX_SELECTS {
                let message = format!("the query comes to more than {MAX_SELECTS} selects");
                return Err(QueryError::new(message, select.at)
                    .hint("a query of WITH counts wherever it is read: join or unite fewer of them"));
            }
            all.push(self.select(select)?);
        }
        let Some(first) = all.first() else {
            debug_assert!(false, "a query has a select");
            return Err(QueryError::new("the query is empty", None));
        };
        let (count, names) = (first.names.len(), first.names.clone());
        if all.len() == 1
            && let Some(only) = all.pop()
        {
            return Ok(only);
        }
        for (planned, select) in all.iter().zip(&tree.selects) {
            if planned.names.len() != count {
                let message = format!(
                    "the selects of UNION ALL have equal columns: the first has {count}, and this one has {}",
                    planned.names.len()
                );
                return Err(QueryError::new(message, select.at).hint("NULL AS column stands for one that is missing"));
            }
        }
        let flows = self.alike(all, &names, tree)?;
        let flow = self.union(flows, &names)?;
        Ok(Planned { flow, names })
    }

    /// Rows of several selects with columns of the same types.
    fn alike(&self, all: Vec<Planned>, names: &[String], tree: &Tree) -> Result<Vec<Flow>, QueryError> {
        let mut flows: Vec<Flow> = all.into_iter().map(|planned| planned.flow).collect();
        for (index, name) in names.iter().enumerate() {
            let column = |flow: &Flow| flow.columns.get(index).cloned().flatten();
            let exprs: Option<Vec<Expr>> = flows.iter().map(column).collect();
            let Some(exprs) = exprs else { continue };
            let mut common: Option<FieldType> = None;
            for (expr, select) in exprs.iter().zip(&tree.selects) {
                if expr.as_constant() == Some(&Constant::Null) {
                    continue;
                }
                let joined = match common {
                    None => Some(expr.ty),
                    Some(common) => common_type(common, expr.ty),
                };
                let Some(joined) = joined else {
                    let first = common.map_or_else(String::new, |ty| ty.to_string());
                    let message = format!("column `{name}` is {} here, and {first} in a select before", expr.ty);
                    let error = QueryError::new(message, select.at);
                    return Err(error.hint("CAST(expression AS type) changes the type of one of them"));
                };
                common = Some(joined);
            }
            let ty = common.unwrap_or(FieldType::String);
            let nullable = exprs.iter().any(|expr| expr.nullable)
                || flows.iter().zip(&exprs).any(|(flow, expr)| rows::spec_of(name, expr, &flow.input).nullable);
            for (flow, expr) in flows.iter_mut().zip(exprs) {
                if let Some(column) = flow.columns.get_mut(index) {
                    *column = Some(same(expr, ty, nullable, &flow.input));
                }
            }
        }
        Ok(flows)
    }

    /// A stage that lets the rows of all inputs pass.
    fn union(&mut self, flows: Vec<Flow>, names: &[String]) -> Result<Flow, QueryError> {
        let stage = self.stages.len();
        let mut inputs = Vec::with_capacity(flows.len());
        let is_corrected = flows.iter().any(|flow| flow.is_corrected);
        let has_replaced = flows.iter().any(|flow| flow.has_replaced);
        for (input, flow) in flows.into_iter().enumerate() {
            let mut row = Row::default();
            for (column, name) in flow.columns.iter().zip(names) {
                if let Some(expr) = column {
                    row.outputs.push(Output { name: name.clone(), expr: expr.clone() });
                }
            }
            let row = self.connect(&flow, row, Port { stage, input })?;
            inputs.push(StageInput { row, time: None, lateness_ns: 0, derived: None });
        }
        let rows = inputs.first().map(|input| input.row.clone());
        let Some(rows) = rows.filter(|first| inputs.iter().all(|input| input.row.id() == first.id())) else {
            return Err(QueryError::new("the selects of UNION ALL have columns of different types", None));
        };
        Ok(Flow { is_corrected, has_replaced, ..self.stage(inputs, Operator::Union, rows) })
    }

    /// Adds a stage; its rows.
    pub(super) fn stage(&mut self, inputs: Vec<StageInput>, operator: Operator, rows: Format) -> Flow {
        let flow = Flow::all(Origin::Stage(self.stages.len()), rows.clone());
        let then = self.program("rows", &flow, Vec::new(), rows.clone());
        self.stages.push(Stage { inputs, operator, rows, outputs: vec![StageOutput { then, to: None }] });
        flow
    }

    /// Ends the gathering of what needs no state: rows of these columns go to the port. Their format.
    pub(super) fn connect(&mut self, flow: &Flow, row: Row, port: Port) -> Result<Format, QueryError> {
        let Row { mut outputs } = row.or_something();
        let names = rows::unique(outputs.iter().map(|output| output.name.as_str()));
        let mut specs = Vec::with_capacity(outputs.len());
        for (output, name) in outputs.iter_mut().zip(names) {
            let expr = std::mem::replace(&mut output.expr, Expr::constant(Constant::Null, FieldType::Bool));
            output.expr = rows::without_symbols(expr, &flow.input);
            specs.push(rows::spec_of(&name, &output.expr, &flow.input));
            output.name = name;
        }
        let row = rows::format_of(specs)?;
        match &flow.origin {
            Origin::Stream(stream) => {
                let program = self.program(stream, flow, outputs, row.clone());
                self.sources.push(StreamSource { stream: stream.clone(), port, program });
            }
            Origin::Table(table) => {
                debug_assert!(false, "the rows of a table are looked up");
                return Err(QueryError::new(format!("table `{table}` has no rows that come"), None));
            }
            Origin::Stage(from) => {
                let program = self.program("rows", flow, outputs, row.clone());
                if let Some(stage) = self.stages.get_mut(*from) {
                    stage.outputs = vec![StageOutput { then: program, to: Some(port) }];
                }
            }
        }
        Ok(row)
    }

    pub(super) fn program(&self, stream: &str, flow: &Flow, outputs: Vec<Output>, output: Format) -> Program {
        let outputs = if outputs.is_empty() { whole(&flow.input) } else { outputs };
        let names = (stream, self.sql, self.parameters.as_slice());
        rows::program_of(names, (&flow.input, flow.filter.clone()), (outputs, output))
    }

    /// The columns of the query's output.
    fn output(&self, flow: &Flow, names: &[String]) -> Result<(Vec<Output>, Format), QueryError> {
        let columns = flow.columns.iter().flatten().zip(names);
        let outputs: Vec<Output> =
            columns.map(|(expr, name)| Output { name: name.clone(), expr: expr.clone() }).collect();
        let specs = outputs.iter().map(|output| rows::spec_of(&output.name, &output.expr, &flow.input)).collect();
        Ok((outputs, rows::format_of(specs)?))
    }

    fn select(&mut self, body: &Body) -> Result<Planned, QueryError> {
        let mut ready = Vec::with_capacity(body.from.len());
        for joined in &body.from {
            ready.push(self.ready(joined)?);
        }
        let mut from = 0;
        let mut tables = Vec::with_capacity(ready.len());
        for (index, (joined, ready)) in body.from.iter().zip(&ready).enumerate() {
            let called = match &joined.alias {
                Some(_) => joined.called(),
                None => (ready.name.as_str(), false),
            };
            let is_optional = is_optional(&body.from, index);
            tables.push(Table { name: &ready.name, called, format: &ready.format, from, is_optional });
            from += ready.format.fields().len();
        }
        let lateness = body.lateness.as_ref();
        let lateness_ns = lateness.map(|lateness| interval_of(&lateness.expr, lateness)).transpose()?;
        let using = using::steps(&body.from, &tables)?;
        let binder = || {
            let binder = Binder::new(&tables, Some(self.values), self.null_for_errors);
            using.last().into_iter().fold(binder, |binder, step| binder.with_using(&step.columns))
        };
        let conditions = match &body.condition {
            Some(source) => {
                let binder = binder().without_aggregates("WHERE");
                // Joins look into conditions, and put null for the errors of what is left.
                let mut binder = if tables.len() > 1 { binder.with_errors() } else { binder };
                binder.conditions(&source.expr, source.at, "WHERE")?
            }
            None => Vec::new(),
        };
        let joins = self.joins(body, &tables, &using)?;
        let selected = group::selected(body, &tables, from, &binder)?;
        let mut wanted = vec![false; from];
        selected.mark(&mut wanted);
        let names: Vec<String> = selected.columns.iter().map(|column| column.name.clone()).collect();
        let called: Vec<String> = tables.iter().map(|table| table.called.0.to_owned()).collect();
        let columns: Vec<(usize, String)> = tables
            .iter()
            .enumerate()
            .flat_map(|(index, table)| table.format.fields().iter().map(move |field| (index, field.name.clone())))
            .collect();
        drop((tables, using));
        let flows: Vec<Flow> = ready.into_iter().map(|ready| ready.flow).collect();
        let mut flow = match <[Flow; 1]>::try_from(flows) {
            Ok([mut only]) => {
                for condition in &conditions {
                    only.filter_by(condition)?;
                }
                only
            }
            Err(flows) => {
                let joined = super::join::Joining { joins, conditions, wanted, columns, called, lateness_ns };
                joined.plan(self, flows)?
            }
        };
        if let Some(grouping) = &selected.grouping {
            flow = self.grouped(flow, grouping, (lateness_ns, body.at))?;
        }
        if let Some(first) = &selected.first {
            flow = self.first(&flow, first, &selected.columns)?;
        }
        if let Some(over) = &selected.over {
            flow = self.over(&flow, over, &selected.columns)?;
        }
        let columns: Result<Vec<Option<Expr>>, QueryError> =
            selected.columns.iter().map(|column| flow.placed(&column.expr).map(Some)).collect();
        Ok(Planned { flow: Flow { columns: columns?, ..flow }, names })
    }

    /// The joins of FROM, with their conditions.
    fn joins(&self, body: &Body, tables: &[Table<'_>], using: &[UsingStep]) -> Result<Vec<BoundJoin>, QueryError> {
        let mut joins = Vec::with_capacity(body.from.len());
        for ((number, joined), using) in body.from.iter().enumerate().zip(using) {
            let (rows, Some(joined)) = (&joined.rows, &joined.join) else { continue };
            // ON sees the streams before it, and its own.
            let seen = tables.get(..=number).unwrap_or_default();
            let binder = Binder::new(seen, Some(self.values), false).without_aggregates("ON");
            let conditions = match &joined.on {
                Some(on) => binder.with_using(&using.columns).conditions_of_join(&on.expr, on.at)?,
                None => using.conditions.clone(),
            };
            let at = joined.on.as_ref().and_then(|on| on.at).or(joined.at).or(body.at);
            let table = table::meant(self.tables, rows).cloned();
            let (kind, is_asof, is_mirrored) = (joined.kind, joined.is_asof, joined.is_mirrored);
            joins.push(BoundJoin { kind, is_asof, is_mirrored, conditions, at, table });
        }
        Ok(joins)
    }

    /// An expression that was bound with its row errors, as the query has it.
    pub(super) fn settled(&self, expr: Expr) -> Expr {
        if self.null_for_errors { expr.or_null() } else { expr }
    }

    /// The rows and columns of one stream or query of FROM.
    fn ready(&mut self, joined: &Joined) -> Result<Ready, QueryError> {
        match &joined.rows {
            Rows::Query(tree) => {
                let Planned { flow, names } = self.tree(tree)?;
                let specs: Vec<FieldSpec> = flow
                    .columns
                    .iter()
                    .flatten()
                    .zip(&names)
                    .map(|(expr, name)| rows::spec_of(name, expr, &flow.input))
                    .collect();
                let (name, _) = joined.called();
                Ok(Ready { name: name.to_owned(), flow, format: rows::format_of(specs)? })
            }
            Rows::Stream { name, is_quoted } => {
                if let Some(table) = table::meant(self.tables, &joined.rows) {
                    return self.ready_table(table, joined.at);
                }
                let (called, stream) = (self.spelt)(name, *is_quoted);
                let format = self.formats.iter().find(|(known, _)| *known == stream).map(|(_, format)| *format);
                let Some(format) = format else {
                    let error = QueryError::new(format!("stream `{stream}` has no format yet"), joined.at);
                    return Err(error.hint(NO_FORMAT));
                };
                let format = match self.views.get(&stream) {
                    Some(view) => view.plan(format).map_err(|_| {
                        let message = format!("the fields of stream {stream} that may be read are not in its format");
                        QueryError::new(message, joined.at)
                    })?,
                    None => {
                        let flow = Flow::all(Origin::Stream(stream.clone()), format.clone());
                        return Ok(Ready { name: called, flow, format: format.clone() });
                    }
                };
                let flow = Flow::all(Origin::Stream(stream.clone()), format.output.clone());
                Ok(Ready { name: called, flow, format: format.output })
            }
        }
    }

    /// The rows of a reference table, and the columns that the query may read.
    fn ready_table(&self, table: &ReferenceTable, at: Option<Position>) -> Result<Ready, QueryError> {
        let (name, input) = (table.name.clone(), &table.format);
        let all = Flow::all(Origin::Table(name.clone()), input.clone());
        let Some(view) = self.views.get(&name) else {
            return Ok(Ready { name, flow: all, format: input.clone() });
        };
        let view = view.plan(input).map_err(|_| {
            QueryError::new(format!("the fields of table {name} that may be read are not in its format"), at)
        })?;
        let columns = match &view.projection {
            Projection::All => all.columns,
            Projection::Fields(outputs) => outputs.iter().map(|output| Some(output.expr.clone())).collect(),
        };
        let flow = Flow { filter: view.filter, columns, ..Flow::all(Origin::Table(name.clone()), input.clone()) };
        Ok(Ready { name, flow, format: view.output })
    }

    /// Where the time of an input is one that the stage behind it knows a bound of: which. Else the input goes by the newest time of its
    /// rows and the lateness.
    ///
    /// # Errors
    /// The rows do not come in order of this time however orderly the streams are, and the query says no lateness.
    pub(super) fn derived_time(
        &self,
        flow: &Flow,
        row: &Row,
        time: usize,
        (lateness_ns, at): (Option<u64>, Option<Position>),
    ) -> Result<Option<DerivedTime>, QueryError> {
        let Origin::Stage(from) = flow.origin else { return Ok(None) };
        let (Some(stage), Some(time)) = (self.stages.get(from), row.outputs.get(time)) else { return Ok(None) };
        let (base, plus_ns) = apart(&time.expr);
        if let Node::Field(column) = base.node
            && let Some(of) = stage.row_time(column)
        {
            return Ok(Some(DerivedTime { of, plus_ns }));
        }
        let mut read = vec![false; stage.rows.fields().len()];
        time.expr.mark_fields(&mut read);
        if lateness_ns.is_some() || self.all_arrive(from, &read) {
            return Ok(None);
        }
        let name = time.expr.sql(&stage.rows);
        let message = format!("the rows of a group or a join do not come in order of `{name}`");
        let hint = "LATENESS INTERVAL '1 minute' says how much older than the newest such a time may be; in order come the end of a \
                    window, the start of one of fixed length, and the times that the join compares";
        Err(QueryError::new(message, at).hint(hint))
    }

    /// Whether these columns of a stage's rows come in the order in which a stream's records arrive.
    fn all_arrive(&self, stage: usize, columns: &[bool]) -> bool {
        let mut read = columns.iter().enumerate().filter(|(_, is_read)| **is_read);
        let Some(of) = self.stages.get(stage) else { return false };
        read.all(|(column, _)| {
            let passed = of.passed(column);
            passed.is_some_and(|passed| {
                passed.into_iter().all(|(input, column)| self.arrives(Port { stage, input }, column))
            })
        })
    }

    /// The same for a column of the rows that go to a port.
    fn arrives(&self, port: Port, column: usize) -> bool {
        let Some((before, output)) = stage_before(&self.stages, port) else { return true };
        let program = &self.stages[before].outputs[output].then;
        let mut read = vec![false; program.input.fields().len()];
        match &program.projection {
            Projection::All => read.iter_mut().skip(column).take(1).for_each(|read| *read = true),
            Projection::Fields(outputs) => {
                outputs.iter().skip(column).take(1).for_each(|of| of.expr.mark_fields(&mut read));
            }
        }
        self.all_arrive(before, &read)
    }

    /// OVER: a stage, whose rows have the columns of FROM that the select list reads, and the calls' results.
    fn over(&mut self, flow: &Flow, over: &OverCalls, columns: &[Output]) -> Result<Flow, QueryError> {
        let port = Port { stage: self.stages.len(), input: 0 };
        let OverStage { mut row, rows: mut work, places } = over.stage(flow, columns)?;
        let corrected = self.keys_of(flow).zip(over.reach()).filter(|_| work.partitions.len() == 1);
        if let Some((keys, reach)) = corrected {
            let key = |column| row.add_unnamed("key", rows::field(&flow.input, column), &flow.input);
            (work.identity, work.reach) = (Some((0..keys).map(key).collect()), reach);
            self.correct(flow);
        }
        let is_corrected = corrected.is_some();
        if flow.has_replaced || flow.is_corrected && !is_corrected {
            over.check_replaced()?;
        }
        let row = self.connect(flow, row, port)?;
        let (passed, rows) = (work.passed, rows::format_of(over.specs(&row, &work))?);
        let columns = columns_over(places, passed, &rows);
        let input = StageInput { row, time: None, lateness_ns: 0, derived: None };
        let has_replaced = flow.has_replaced;
        let mut flow =
            Flow { columns, is_corrected, has_replaced, ..self.stage(vec![input], Operator::Over(work), rows) };
        over.qualify.iter().try_for_each(|condition| flow.filter_by(condition))?;
        Ok(flow)
    }

    /// The number of keys of the groups whose rows these are, if groups without a window give them.
    fn keys_of(&self, flow: &Flow) -> Option<usize> {
        let Origin::Stage(from) = flow.origin else { return None };
        match &self.stages.get(from)?.operator {
            Operator::Aggregate(Aggregation { keys, .. }) if flow.is_corrected => Some(keys.len()),
            _ => None,
        }
    }

    /// Has the stage of these rows give those that others take the place of: what comes behind it takes them back.
    pub(super) fn correct(&mut self, flow: &Flow) {
        if let (Origin::Stage(from), true) = (&flow.origin, flow.is_corrected) {
            self.correct_stage(*from);
        }
    }

    fn correct_stage(&mut self, from: usize) {
        match self.stages.get_mut(from).map(|stage| &mut stage.operator) {
            Some(Operator::Aggregate(Aggregation { window: Window::Running, gives_changes, .. }))
            | Some(Operator::Over(OverRows { identity: Some(_), gives_changes, .. })) => *gives_changes = true,
            Some(Operator::Union) => {
                let goes = |output: &StageOutput| output.to.is_some_and(|to| to.stage == from);
                let gives = |stage: &Stage| stage.outputs.iter().any(goes);
                let before: Vec<usize> =
                    (0..from).filter(|number| self.stages.get(*number).is_some_and(gives)).collect();
                before.into_iter().for_each(|stage| self.correct_stage(stage));
            }
            _ => {}
        }
    }

    /// `CHANGES`: a column more, which the engine writes.
    fn with_changes(&mut self, flow: &mut Flow, names: &mut Vec<String>, changes: &Changes) -> Result<(), QueryError> {
        if !flow.is_corrected {
            let error = QueryError::new("CHANGES is of rows that change, and those of this query do not", changes.at);
            return Err(error.hint("groups without a window change: SELECT k, count(*) FROM s GROUP BY k CHANGES"));
        }
        if names.iter().any(|name| name == CHANGE) {
            let error =
                QueryError::new(format!("the query makes a column `{CHANGE}`, which CHANGES makes"), changes.at);
            return Err(error.hint(format!("give yours another name: {CHANGE} AS change")));
        }
        self.correct(flow);
        names.push(CHANGE.to_owned());
        flow.columns.push(Some(Expr::constant(Constant::Text("enter".to_owned()), FieldType::Char(CHANGE_BYTES))));
        Ok(())
    }

    /// ORDER BY … LIMIT of windows: a stage, whose rows have the columns of the groups that the select list reads, the values of ORDER BY, the
    /// keys of the groups and the window.
    fn first(&mut self, flow: &Flow, first: &WindowOrder, columns: &[Output]) -> Result<Flow, QueryError> {
        let mut read = vec![false; flow.columns.len()];
        columns.iter().for_each(|column| column.expr.mark_fields(&mut read));
        // The columns of a group's row are its keys, the window's start and end, and the aggregates.
        read.iter_mut().take(first.keys + 2).for_each(|read| *read = true);
        let mut row = Row::default();
        let mut places: Vec<Option<usize>> = Vec::with_capacity(read.len());
        for (column, read) in flow.columns.iter().zip(read) {
            let column = column.clone().filter(|_| read);
            places.push(column.map(|column| row.add_unnamed("column", column, &flow.input)));
        }
        let place = |index: usize| places.get(index).copied().flatten().unwrap_or_default();
        let window = (place(first.keys), place(first.keys + 1));
        let mut order = Vec::with_capacity(first.order.len() + first.keys);
        for (expr, direction) in &first.order {
            order.push((row.add_unnamed("order", flow.placed(expr)?, &flow.input), *direction));
        }
        let ascending = SortDirection { descending: false, nulls_first: false };
        order.extend((0..first.keys).map(|key| (place(key), ascending)));
        let rows = self.connect(flow, row, Port { stage: self.stages.len(), input: 0 })?;
        // Their time is the start: of a window at the end of all times, the end is none.
        let plus_ns = i64::try_from(first.size_ns).unwrap_or(i64::MAX).saturating_neg();
        let derived = Some(DerivedTime { of: RowTime::Closed, plus_ns });
        let input = StageInput { row: rows.clone(), time: Some(window.0), lateness_ns: 0, derived };
        let columns = places.into_iter().map(|place| place.map(|place| rows::field(&rows, place))).collect();
        let operator = Operator::First(FirstRows { order, limit: first.limit, window, size_ns: first.size_ns });
        Ok(Flow { columns, ..self.stage(vec![input], operator, rows) })
    }

    /// GROUP BY: a stage, and HAVING on its rows.
    fn grouped(
        &mut self,
        mut flow: Flow,
        grouping: &Grouping,
        (lateness_ns, at): (Option<u64>, Option<Position>),
    ) -> Result<Flow, QueryError> {
        let stage = self.stages.len();
        let port = Port { stage, input: 0 };
        grouping.check_replaced(&flow, at)?;
        let corrects = grouping.corrects(&flow);
        if corrects {
            grouping.check_corrected(at)?;
            self.correct(&flow);
        }
        // Of rows that change, a group is there as long as it has one.
        let once = grouping.once.as_ref().filter(|_| !corrects);
        let (row, time, mut aggregation) = grouping.row(&mut flow, self.null_for_errors)?;
        aggregation.gives_changes = corrects && grouping.once.is_some();
        let derived = match time {
            Some(time) => self.derived_time(&flow, &row, time, (lateness_ns, at))?,
            None => None,
        };
        let row = self.connect(&flow, row, port)?;
        let specs = grouping.specs(&row, &aggregation);
        let rows = rows::format_of(specs)?;
        let lateness_ns = lateness_ns.filter(|_| time.is_some()).unwrap_or(0);
        let input = StageInput { row, time, lateness_ns, derived };
        let mut flow = self.stage(vec![input], Operator::Aggregate(aggregation), rows);
        flow.is_corrected = grouping.is_running() && once.is_none();
        for condition in once.into_iter().chain(&grouping.having) {
            flow.filter_by(condition)?;
        }
        Ok(flow)
    }
}

/// Whether there may be no row of a stream of FROM beside one of the others.
fn is_optional(from: &[Joined], index: usize) -> bool {
    let kinds = from.iter().map(|joined| joined.join.as_ref().map(|join| (join.kind, join.is_mirrored)));
    kinds.enumerate().any(|(at, kind)| match kind {
        Some((JoinKind::Full, _)) => at >= index,
        Some((JoinKind::Left, true)) => at > index,
        Some((JoinKind::Left, false)) => at == index,
        _ => false,
    })
}

/// All fields of a format, unchanged.
fn whole(input: &Format) -> Vec<Output> {
    let fields = input.fields().iter().enumerate();
    fields.map(|(index, of)| Output { name: of.name.clone(), expr: rows::field(input, index) }).collect()
}

/// A column of UNION ALL as a value of the common type, which may be null in all selects if it may in one.
fn same(expr: Expr, ty: FieldType, nullable: bool, input: &Format) -> Expr {
    if expr.as_constant() == Some(&Constant::Null) {
        return Expr::constant(Constant::Null, ty);
    }
    let expr = rows::without_symbols(expr, input);
    let expr = if expr.ty == ty { expr } else { cast(expr, ty) };
    let is_list = ty == FieldType::List;
    match nullable && !is_list && !rows::spec_of("", &expr, input).nullable {
        true => rows::computed(expr),
        false => expr,
    }
}

/// An interval of fixed length, not below zero, in ns.
pub(super) fn interval_of(source: &ast::Expr, clause: &Condition) -> Result<u64, QueryError> {
    let at = place(source).or(clause.at);
    let hint = "an interval is written INTERVAL '5 seconds'";
    let Some(interval) = as_interval(source) else {
        return Err(QueryError::new("expected an interval", at).hint(hint));
    };
    let text = interval_text(source, interval)?;
    let interval = Interval::parse(&text).map_err(|problem| QueryError::new(problem, at).hint(hint))?;
    let Some(length) = interval.fixed() else {
        let error = QueryError::new("months are of different lengths", at);
        return Err(error.hint("write days, or hours: INTERVAL '30 days'"));
    };
    u64::try_from(length).map_err(|_| QueryError::new("the interval is below zero", at).hint(hint))
}

/// The class of types of an expression's values.
pub(super) fn is_time(expr: &Expr) -> bool {
    Class::of(expr.ty) == Class::Timestamp
}
