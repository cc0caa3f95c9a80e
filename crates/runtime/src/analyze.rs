//! `explain analyze`: the operators of subscriptions and handlers at work, with their counts. All of it is read off gauges that are
//! written once a batch.

use crate::handle::ContextHandle;
use crate::info::{AnalyzeInfo, HandlerInfo, OperatorInfo, SubscriptionInfo};
use crate::losses::Losses;
use crate::managers::view::{ShownHandler, View};
use crate::refusal::Stopped;
use crate::streams::Streams;
use crate::subscriptions::Subscriptions;
use crossdock_engine::{HandlerForm, SelectHandler};
use crossdock_format::Format;
use crossdock_query::{OperatorKind, PlanOperator, Query, Select};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// A subscription as its context knows it.
pub(crate) struct AnalyzedSubscription {
    info: SubscriptionInfo,
    /// The stream that it takes, which a handler may make.
    stream: String,
    select: Arc<Select>,
    format: Option<Format>,
    /// The counts of its node: `info` also has those of the handlers that run its query.
    filtered: u64,
    row_errors: u64,
    lost: Losses,
    busy_ns: u64,
}

impl Subscriptions {
    /// A subscription with what is counted of it, by its number. Its row is among `infos`.
    fn analyzed(&self, id: u64, infos: Vec<SubscriptionInfo>, streams: &Streams) -> Option<AnalyzedSubscription> {
        let (_, subscription) = self.iter().find(|(_, subscription)| subscription.id() == id)?;
        let info = infos.into_iter().find(|info| info.id == id)?;
        let stream = streams.get(subscription.stream())?;
        let format = stream.formats().last().map(|known| known.format.clone());
        let (select, gauges) = (Arc::clone(subscription.select()), subscription.gauges());
        let (filtered, row_errors) = (gauges.filtered.get(), gauges.row_errors.get());
        let (lost, busy_ns) = (Losses::of(gauges), gauges.busy_ns.get());
        let stream = stream.name().to_owned();
        Some(AnalyzedSubscription { info, stream, select, format, filtered, row_errors, lost, busy_ns })
    }
}

impl ContextHandle {
    /// The operators of a running subscription with their counts; `None` if it is not there.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn analyze_subscription(&self, id: u64) -> Result<Option<AnalyzeInfo>, Stopped> {
        let found = self.ask_all(move |context| {
            let (place, of) = ((&context.net, &context.host), (&context.graph, &*context.access));
            let infos = context.subscriptions.infos(&context.name, place, of);
            context.subscriptions.analyzed(id, infos, &context.streams)
        })?;
        let Some(subscription) = found.into_iter().flatten().next() else { return Ok(None) };
        let view = self.manager().view()?;
        let mut tree = OperatorTree::new(&view);
        tree.subscription(&subscription);
        let SubscriptionInfo { id, sql, .. } = subscription.info;
        Ok(Some(tree.report(format!("subscription {id}"), sql)))
    }

    /// The operators of a deployed handler with their counts; `None` if it is not there.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn analyze_handler(&self, name: &str) -> Result<Option<AnalyzeInfo>, Stopped> {
        let view = self.manager().view()?;
        let Some(handler) = view.handlers.get(name) else { return Ok(None) };
        let mut tree = OperatorTree::new(&view);
        tree.handler(name, handler, 0);
        Ok(Some(tree.report(format!("handler {name}"), handler.info.program.clone())))
    }
}

/// Operators, from the output on.
struct OperatorTree<'v> {
    view: &'v View,
    operators: Vec<OperatorInfo>,
    /// The handlers that are in it.
    shown: BTreeSet<&'v str>,
}

impl<'v> OperatorTree<'v> {
    fn new(view: &'v View) -> OperatorTree<'v> {
        OperatorTree { view, operators: Vec::new(), shown: BTreeSet::new() }
    }

    fn report(self, of: String, sql: String) -> AnalyzeInfo {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        AnalyzeInfo { of, sql, at_ns: now.as_nanos() as u64, operators: self.operators }
    }

    /// A session, the query in front of it, and what makes the records of that.
    fn subscription(&mut self, subscription: &AnalyzedSubscription) {
        let AnalyzedSubscription { info, stream, select, format, filtered, row_errors, lost, busy_ns } = subscription;
        let passed = info.records_in.saturating_sub(filtered + row_errors);
        let lost = lost.by_words();
        self.operators.push(OperatorInfo {
            text: format!("session {}, {}", info.peer, info.overflow),
            context: Some(info.context.clone()),
            records_in: Some(passed),
            records_out: Some(info.records_out),
            lost: occurred(lost),
            kept_bytes: Some(info.backlog_bytes),
            kept_bytes_bound: Some(info.queue_bytes),
            ..OperatorInfo::default()
        });
        let program =
            format.as_ref().filter(|_| select.snapshot().is_none()).and_then(|format| select.plan(format).ok());
        let operators = match &program {
            Some(program) => program.operators(),
            None => vec![PlanOperator { depth: 0, kind: OperatorKind::Stream, place: 0, text: stream.clone() }],
        };
        let counts = NodeCounts { records_in: info.records_in, filtered: *filtered, made: passed };
        let first = self.operators.len();
        operators.iter().for_each(|operator| self.stateless(operator, 1, &counts));
        if let Some(node) = self.operators.get_mut(first) {
            node.context = Some(info.context.clone());
            node.form = program.map(|program| HandlerForm { steps: SelectHandler::new(program).steps() }.to_string());
            cost(node, *busy_ns, info.records_in);
        }
        self.made(stream, 1);
    }

    /// An operator of a query without state, in the node with these counts.
    fn stateless(&mut self, operator: &PlanOperator, depth: usize, counts: &NodeCounts) {
        let passed = counts.records_in.saturating_sub(counts.filtered);
        let (records_in, records_out) = match operator.kind {
            OperatorKind::Project => (Some(passed), Some(counts.made)),
            OperatorKind::Filter => (Some(counts.records_in), Some(passed)),
            _ => (None, Some(counts.records_in)),
        };
        self.operators.push(OperatorInfo {
            depth: (depth + operator.depth) as u32,
            text: text_of(operator),
            records_in,
            records_out,
            ..OperatorInfo::default()
        });
    }

    /// The handler that makes a stream, if one does, as the input of the operator that was added last.
    fn made(&mut self, stream: &str, depth: usize) {
        let view = self.view;
        let depth = self.operators.last().map_or(depth, |last| last.depth as usize + 1);
        let makers = view.handlers.iter().filter(|(_, shown)| shown.info.makes == stream);
        makers.for_each(|(name, handler)| self.handler(name, handler, depth));
    }

    /// A handler, and the operators of its query.
    fn handler(&mut self, name: &'v str, shown: &'v ShownHandler, depth: usize) {
        if !self.shown.insert(name) {
            return;
        }
        let gauges = &shown.gauges;
        let info = &shown.info;
        let mut lost = gauges.losses();
        lost.extend([
            ("row errors".to_owned(), gauges.row_errors.get()),
            ("late".to_owned(), gauges.late.get()),
            ("forgotten".to_owned(), gauges.forgotten.get()),
            ("errors within".to_owned(), gauges.stage_errors.get()),
        ]);
        let keeps = info.state_bytes_bound > 0;
        let mut node = OperatorInfo {
            depth: depth as u32,
            text: format!("handler {name}"),
            context: info.context.clone(),
            form: form_of(info),
            records_in: Some(gauges.records_in.get()),
            records_out: Some(gauges.records_out.get()),
            lost: occurred(lost),
            kept_bytes: keeps.then(|| gauges.state_bytes.get()),
            kept_bytes_bound: keeps.then_some(info.state_bytes_bound),
            ..OperatorInfo::default()
        };
        cost(&mut node, gauges.busy_ns.get(), gauges.records_in.get());
        self.operators.push(node);
        if shown.operators.is_empty() || !keeps {
            return self.without_state(shown, depth + 1);
        }
        for operator in shown.operators.iter() {
            self.stateful(operator, shown, depth + 1);
            if operator.kind == OperatorKind::Stream {
                self.made(stream_of(operator), depth + 1);
            }
        }
    }

    /// The operators of a handler's query without state; of another handler the streams that it reads.
    fn without_state(&mut self, shown: &ShownHandler, depth: usize) {
        let (info, gauges) = (&shown.info, &shown.gauges);
        let planned = || {
            let (_, format) = shown.inputs.last()?;
            let Ok(Query::Select(select)) = crossdock_query::parse_query(&info.program) else { return None };
            Some(select.plan_with(format, &info.parameters).ok()?.operators())
        };
        let operators = match shown.operators.is_empty() {
            true => planned().unwrap_or_default(),
            false => shown.operators.to_vec(),
        };
        let counts = NodeCounts {
            records_in: gauges.records_in.get(),
            filtered: gauges.filtered.get(),
            made: gauges.records_out.get(),
        };
        if let Some(stream) = operators.last() {
            operators.iter().for_each(|operator| self.stateless(operator, depth, &counts));
            return self.made(stream_of(stream), depth);
        }
        for name in &info.reads {
            let records_out = (info.reads.len() == 1).then_some(counts.records_in);
            let text = format!("{} {name}", OperatorKind::Stream.word());
            self.operators.push(OperatorInfo { depth: depth as u32, text, records_out, ..OperatorInfo::default() });
            self.made(name, depth);
        }
    }

    /// An operator of a query with state.
    fn stateful(&mut self, operator: &PlanOperator, shown: &ShownHandler, depth: usize) {
        let counts = shown.gauges.operators.get(operator.place);
        let (mut records_in, mut records_out) = (None, None);
        let (mut lost, mut kept) = (Vec::new(), None::<(u64, u64)>);
        // Behind conditions on its rows, those are counted that pass.
        let has_having = self.operators.last().is_some_and(|above| {
            above.depth as usize + 1 == depth + operator.depth && above.text.starts_with("filter ")
        });
        if let Some(counts) = counts {
            match operator.kind {
                OperatorKind::Stream => records_out = Some(counts.rows_in),
                OperatorKind::Filter => (records_in, records_out) = (Some(counts.rows_in), Some(counts.rows_out)),
                OperatorKind::Project => records_out = Some(counts.rows_out),
                OperatorKind::Having => records_out = Some(counts.rows_out),
                OperatorKind::Again => records_out = (!has_having).then_some(counts.rows_out),
                OperatorKind::Stage => {
                    records_in = Some(counts.rows_in);
                    records_out = (!has_having).then_some(counts.rows_out);
                    lost = vec![("late".to_owned(), counts.late), ("forgotten".to_owned(), counts.forgotten)];
                    kept = Some((counts.kept_rows, counts.kept_bytes)).filter(|(rows, bytes)| rows + bytes > 0);
                }
            }
        }
        self.operators.push(OperatorInfo {
            depth: (depth + operator.depth) as u32,
            text: text_of(operator),
            records_in,
            records_out,
            lost: occurred(lost),
            kept_rows: kept.map(|(rows, _)| rows),
            kept_bytes: kept.map(|(_, bytes)| bytes),
            ..OperatorInfo::default()
        });
    }
}

/// The counts of a node that runs a query without state.
struct NodeCounts {
    records_in: u64,
    filtered: u64,
    made: u64,
}

/// Gives a node its time.
fn cost(node: &mut OperatorInfo, busy_ns: u64, records: u64) {
    node.busy_ns = Some(busy_ns);
    node.ns_per_record = (records > 0).then(|| busy_ns as f64 / records as f64);
}

fn text_of(operator: &PlanOperator) -> String {
    format!("{} {}", operator.kind.word(), operator.text).trim_start().to_owned()
}

/// The name of the stream of such an operator.
fn stream_of(operator: &PlanOperator) -> &str {
    operator.text.split(", time ").next().unwrap_or_default()
}

/// The forms of a handler's entries, each once.
fn form_of(info: &HandlerInfo) -> Option<String> {
    let mut forms: Vec<&str> = info.inputs.iter().map(|input| &*input.form).filter(|form| !form.is_empty()).collect();
    forms.sort_unstable();
    forms.dedup();
    (!forms.is_empty()).then(|| forms.join(", "))
}

/// Reasons that occurred.
fn occurred(mut lost: Vec<(String, u64)>) -> Vec<(String, u64)> {
    lost.retain(|(_, records)| *records > 0);
    lost
}
