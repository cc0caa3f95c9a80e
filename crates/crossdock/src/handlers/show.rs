//! Handlers as people read them: a row each, one whole, and the chains that they make.

use std::collections::BTreeSet;

use crossdock_engine::Natives;
use crossdock_runtime::info::HandlerInfo;
use serde::Serialize;

use crate::lists::losses;
use crate::quantity::count;
use crate::show::{self, Column};
use crate::table::{Side, Width, render};

/// The columns of the list of handlers.
pub(super) const COLUMNS: [Column<HandlerInfo>; 9] = [
    Column::Made("handler", Side::Left, |handler| format!("{} v{}", handler.name, handler.version)),
    Column::Made("status", Side::Left, |handler| match (&*handler.status, handler.degraded.is_empty()) {
        ("running", false) => "degraded".to_owned(),
        ("running", true) if handler.sampled > 1 => format!("1 in {}", handler.sampled),
        (status, _) => status.to_owned(),
    }),
    Column::Of("context"),
    Column::Made("path", Side::Left, |handler| format!("{} → {}", handler.reads.join(", "), handler.makes)),
    Column::Of("rate_msgs_per_s"),
    Column::Made("ns", Side::Right, |handler| format!("{:.0}", handler.ns_per_record)),
    Column::Of("predicted"),
    Column::Of("measured"),
    Column::Made("lost", Side::Right, |handler| count(losses::of_handler(handler))),
];

/// All that is known of one handler.
pub(super) fn whole(handler: &HandlerInfo) -> String {
    let mut lines = show::lines(handler);
    for input in &handler.inputs {
        let why =
            input.why.as_ref().map_or(String::new(), |why| format!(": {}", why.lines().next().unwrap_or_default()));
        let output = input.output.clone().unwrap_or_else(|| format!("nothing: it does not fit{why}"));
        let sample = match input.sample_records {
            0 => "made-up records".to_owned(),
            records => format!("{} records", count(records)),
        };
        lines.push(["input".to_owned(), format!("{} {} → {output}", input.stream, input.format)]);
        let cost = format!("{}, {:.0} ns a record, measured on {sample}", input.form, input.ns_per_record);
        lines.push([String::new(), cost]);
    }
    let plan = handler.plan.iter().flat_map(|plan| plan.lines()).enumerate();
    lines.extend(plan.map(|(at, line)| [if at == 0 { "plan" } else { "" }.to_owned(), line.to_owned()]));
    render(&[("handler", Side::Left), ("", Side::Left)], lines.into_iter().map(Vec::from), Width::of_stdout())
}

/// The built-in handlers, with a row for each parameter.
pub(super) fn builtins(natives: &Natives, width: Width) -> String {
    let mut rows = Vec::new();
    for kind in natives.iter() {
        rows.push(vec![kind.name().to_owned(), String::new(), kind.about().to_owned()]);
        for parameter in kind.parameters() {
            let default = parameter.default.map_or("required".to_owned(), |value| format!("default {value:?}"));
            let about = format!("{}: {}; {default}", parameter.about, parameter.kind);
            let star = if parameter.is_tunable { "" } else { " *" };
            rows.push(vec![String::new(), format!("{}{star}", parameter.name), about]);
        }
    }
    render(&[("handler", Side::Left), ("parameter", Side::Left), ("description", Side::Left)], rows, width)
        + "\n* a new value needs a new version of the handler (`handler swap`)\n"
}

/// A built-in handler, for scripts.
#[derive(Debug, Serialize)]
pub(super) struct BuiltIn<'a> {
    name: &'a str,
    about: &'a str,
    parameters: Vec<BuiltInParameter<'a>>,
}

/// A parameter of a built-in handler, for scripts.
#[derive(Debug, Serialize)]
struct BuiltInParameter<'a> {
    name: &'a str,
    about: &'a str,
    kind: String,
    /// None for one that has to be given.
    default: Option<&'a str>,
    is_tunable: bool,
}

/// The built-in handlers, one by one.
pub(super) fn described(natives: &Natives) -> Vec<BuiltIn<'_>> {
    let kinds = natives.iter().map(|kind| {
        let parameters = kind.parameters().iter().map(|parameter| BuiltInParameter {
            name: parameter.name,
            about: parameter.about,
            kind: parameter.kind.to_string(),
            default: parameter.default,
            is_tunable: parameter.is_tunable,
        });
        BuiltIn { name: kind.name(), about: kind.about(), parameters: parameters.collect() }
    });
    kinds.collect()
}

/// A step of a chain, for scripts: one handler's way from one stream.
#[derive(Debug, Serialize)]
pub(crate) struct ChainStep<'a> {
    stream: &'a str,
    handler: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    replica_of: Option<&'a str>,
    context: Option<&'a str>,
    makes: &'a str,
}

/// Every handler's ways, one by one.
pub(crate) fn chains(handlers: &[HandlerInfo]) -> Vec<ChainStep<'_>> {
    let steps = handlers.iter().flat_map(|handler| {
        let (context, replica_of) = (handler.context.as_deref(), handler.replica_of.as_deref());
        let step =
            move |stream| ChainStep { stream, handler: &handler.name, replica_of, context, makes: &handler.makes };
        handler.reads.iter().map(move |stream| step(stream))
    });
    steps.collect()
}

/// The chains as lines: a stream, and below it what is made of it, each level further in.
pub(crate) fn tree(handlers: &[HandlerInfo]) -> String {
    let made: BTreeSet<&str> = handlers.iter().map(|handler| &*handler.makes).collect();
    let read: BTreeSet<&str> = handlers.iter().flat_map(|handler| handler.reads.iter().map(String::as_str)).collect();
    let mut tree = Tree { handlers, shown: BTreeSet::new(), text: String::new() };
    for source in read.difference(&made) {
        tree.text += &format!("{source}\n");
        tree.below((source, None), 1);
    }
    tree.text
}

struct Tree<'a> {
    handlers: &'a [HandlerInfo],
    shown: BTreeSet<&'a str>,
    text: String,
}

impl<'a> Tree<'a> {
    /// The tree of handlers below a stream, as far as it is made by the replica at a context if that is given.
    fn below(&mut self, (stream, of): (&str, Option<&str>), depth: usize) {
        let handlers: &'a [HandlerInfo] = self.handlers;
        // A replica reads what the replica at its own context makes.
        let is_fed =
            |handler: &&HandlerInfo| of.is_none() || handler.replica_of.is_none() || handler.context.as_deref() == of;
        for handler in handlers.iter().filter(|handler| handler.reads.iter().any(|read| read == stream)).filter(is_fed)
        {
            let place = handler.context.as_deref().unwrap_or(&handler.status);
            let name = handler.replica_of.as_ref().unwrap_or(&handler.name);
            let line = format!("{:1$}→ {2} @{3} → {4}", "", 2 * depth, name, place, handler.makes);
            // A stream that several streams lead to is followed once.
            let is_new = self.shown.insert(&handler.name);
            self.text += &if is_new { format!("{line}\n") } else { format!("{line} (as above)\n") };
            if is_new {
                let of = handler.context.as_deref().filter(|_| handler.replica_of.is_some());
                self.below((&handler.makes, of), depth + 1);
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crossdock_runtime::info::HandlerInputInfo;

    pub(crate) fn handler(name: &str, reads: &[&str], makes: &str, context: &str) -> HandlerInfo {
        HandlerInfo {
            name: name.into(),
            version: 1,
            reads: reads.iter().map(|&stream| stream.into()).collect(),
            makes: makes.into(),
            status: "running".into(),
            context: Some(context.into()),
            ..HandlerInfo::default()
        }
    }

    #[test]
    fn chains_read_from_the_top_and_are_followed_once() {
        let handlers = [
            handler("both", &["A", "B"], "A.both", "c-core-0"),
            handler("late", &["A"], "A.late", "c-core-0"),
            handler("totals", &["A.late"], "A.totals", "g-core-0"),
        ];
        let wanted = "\
A
  → both @c-core-0 → A.both
  → late @c-core-0 → A.late
    → totals @g-core-0 → A.totals
B
  → both @c-core-0 → A.both (as above)
";
        assert_eq!(tree(&handlers), wanted);
        assert_eq!(chains(&handlers).len(), 4);
        assert_eq!(tree(&[]), "");
    }

    #[test]
    fn a_replica_is_followed_by_what_reads_its_own_stream() {
        let replica = |name: &str, reads: &str, context: &str| HandlerInfo {
            replica_of: Some(name.into()),
            ..handler(&format!("{name}@{context}"), &[reads], name, context)
        };
        let handlers = [
            handler("all", &["late"], "all", "g-core-0"),
            replica("clean", "A", "c-core-0"),
            replica("clean", "A", "c-core-1"),
            replica("late", "clean", "c-core-0"),
            replica("late", "clean", "c-core-1"),
        ];
        let wanted = "\
A
  → clean @c-core-0 → clean
    → late @c-core-0 → late
      → all @g-core-0 → all
  → clean @c-core-1 → clean
    → late @c-core-1 → late
      → all @g-core-0 → all (as above)
";
        assert_eq!(tree(&handlers), wanted);
    }

    #[test]
    fn built_in_handlers_fit_a_screen_with_all_their_parameters() {
        let built_in = Natives::built_in();
        let text = builtins(&built_in, Width::Columns(80));
        assert_eq!(text.lines().find(|line| line.chars().count() > 80), None, "{text}");
        for kind in built_in.iter() {
            assert!(text.contains(kind.name()) && kind.parameters().iter().all(|of| text.contains(of.name)), "{text}");
        }
    }

    #[test]
    fn a_handler_fits_a_screen_and_shows_whole() {
        let mut late = handler("late", &["A"], "A.late", "c-core-0");
        late.rate_msgs_per_s = 2_100_000;
        late.ns_per_record = 123.4;
        late.predicted.time_ns_per_s = 310_000_000;
        late.row_errors = 12_345;
        let text = show::table(&COLUMNS, std::slice::from_ref(&late), Width::Columns(80));
        assert_eq!(text.lines().find(|line| line.chars().count() > 80), None, "{text}");
        assert!(text.contains("2,100,000") && text.contains("310") && text.contains("12,345"), "{text}");
        late.why = Some("it went over its budget".into());
        late.inputs = vec![HandlerInputInfo {
            stream: "A".into(),
            format: "f0".into(),
            why: None,
            form: "kernel".into(),
            ..HandlerInputInfo::default()
        }];
        (late.dropped, late.sampled) = (vec![("full".into(), 7)], 8);
        late.degraded = [("m".to_owned(), "60".to_owned())].into();
        assert_eq!((COLUMNS[1].cell(&late), COLUMNS[8].cell(&late)), ("degraded".to_owned(), "12,352".to_owned()));
        let text = whole(&late);
        for expected in
            ["it went over its budget", "nothing: it does not fit", "made-up", "dropped: full", "one record in", "m=60"]
        {
            assert!(text.contains(expected), "no `{expected}` in {text}");
        }
    }
}
