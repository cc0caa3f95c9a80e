//! Handlers as people read them: a row each, one whole, and the chains that they make.

use std::collections::BTreeSet;

use crossdock_engine::Natives;
use crossdock_runtime::info::{HandlerInfo, LoadInfo};
use serde::Serialize;

use crate::quantity::{bytes, count};
use crate::table::{Side, Width, render};

pub(super) const HEADINGS: [(&str, Side); 8] = [
    ("handler", Side::Left),
    ("status", Side::Left),
    ("place", Side::Left),
    ("path", Side::Left),
    ("records/s", Side::Right),
    ("ns", Side::Right),
    ("needs", Side::Right),
    ("takes", Side::Right),
];

pub(super) fn row(handler: &HandlerInfo) -> Vec<String> {
    vec![
        format!("{} v{}", handler.name, handler.version),
        match (&*handler.status, handler.degraded.is_empty()) {
            ("running", false) => "degraded".to_owned(),
            (status, _) => status.to_owned(),
        },
        handler.context.clone().unwrap_or_else(|| "-".to_owned()),
        format!("{} → {}", handler.reads.join(", "), handler.makes),
        count(handler.rate_msgs_per_s),
        format!("{:.0}", handler.ns_per_record),
        per_mille_of_core(handler.predicted.time_ns_per_s),
        per_mille_of_core(handler.measured.time_ns_per_s),
    ]
}

/// Time of a core in a second: `12.5 ms/s`.
pub(crate) fn per_mille_of_core(ns_per_s: u64) -> String {
    match ns_per_s as f64 / 1e6 {
        0.0 => "0".to_owned(),
        ms @ ..0.1 => format!("{ms:.3} ms/s"),
        ms @ ..100.0 => format!("{ms:.1} ms/s"),
        ms => format!("{ms:.0} ms/s"),
    }
}

/// All that is known of one handler.
pub(super) fn whole(handler: &HandlerInfo) -> String {
    let load = |load: &LoadInfo| {
        let LoadInfo { time_ns_per_s, buffers, bytes_per_s } = *load;
        format!("{}, {} buffers, {}/s out", per_mille_of_core(time_ns_per_s), count(buffers), bytes(bytes_per_s))
    };
    let mut rows: Vec<[String; 2]> = Vec::new();
    let mut add = |name: &str, value: String| {
        if !value.is_empty() {
            rows.push([name.to_owned(), value]);
        }
    };
    let fixed = if handler.is_fixed { " (by who deployed it)" } else { "" };
    add("version", handler.version.to_string());
    add("status", handler.status.clone() + &handler.why.as_ref().map_or(String::new(), |why| format!(": {why}")));
    add("program", handler.program.clone());
    let parameters: Vec<String> = handler.parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
    add("parameters", parameters.join(", "));
    add("reads", handler.reads.join(", "));
    add("makes", handler.makes.clone());
    add("place", handler.context.as_ref().map_or(String::new(), |context| format!("{context}{fixed}")));
    add("centred on", handler.class.clone());
    add("state", handler.state.clone().unwrap_or_default());
    for input in &handler.inputs {
        let output = input.output.as_deref().unwrap_or("nothing: it does not fit");
        let sample = match input.sample_records {
            0 => "made-up records".to_owned(),
            records => format!("{} records", count(records)),
        };
        add("input", format!("{} {} → {output}", input.stream, input.format));
        add("", format!("{}, {:.0} ns a record, measured on {sample}", input.form, input.ns_per_record));
    }
    add("needs", load(&handler.predicted));
    add("reserved", handler.reserved.as_ref().map_or(String::new(), load));
    add("takes", load(&handler.measured));
    add("records/s", count(handler.rate_msgs_per_s));
    add("ns a record", format!("{:.0}; 99 of 100 below {}", handler.ns_per_record, count(handler.p99_ns_per_record)));
    add("records in", format!("{} ({})", count(handler.records_in), bytes(handler.bytes_in)));
    add("records out", format!("{} ({})", count(handler.records_out), bytes(handler.bytes_out)));
    add("row errors", count(handler.row_errors));
    for (reason, number) in &handler.dropped {
        add(&format!("dropped: {reason}"), count(*number));
    }
    add("over its budget", format!("{} batches", count(handler.overruns)));
    add("faults", count(handler.faults));
    add("batches waiting", format!("{} of {}", count(handler.queued), count(handler.queue_bound)));
    let degraded: Vec<String> = handler.degraded.iter().map(|(name, value)| format!("{name}={value}")).collect();
    add("degraded to", degraded.join(", "));
    if handler.sampled > 1 {
        add("sampled", format!("one record in {}", handler.sampled));
    }
    add("changes", count(handler.changes));
    render(&[("handler", Side::Left), (&handler.name, Side::Left)], rows.into_iter().map(Vec::from), Width::of_stdout())
}

/// The built-in handlers, with a row for each parameter.
pub(super) fn builtins(natives: &Natives, width: Width) -> String {
    let mut rows = Vec::new();
    for kind in natives.iter() {
        rows.push(vec![kind.name().to_owned(), String::new(), kind.about().to_owned()]);
        for parameter in kind.parameters() {
            let default =
                parameter.default.map_or("it must be given".to_owned(), |value| format!("{value:?} if left out"));
            let about = format!("{}: {}; {default}", parameter.about, parameter.kind);
            let star = if parameter.is_tunable { "" } else { " *" };
            rows.push(vec![String::new(), format!("{}{star}", parameter.name), about]);
        }
    }
    render(&[("handler", Side::Left), ("parameter", Side::Left), ("what it does", Side::Left)], rows, width)
        + "\n* another value takes another version of the handler\n"
}

/// A step of a chain, for scripts: one handler's way from one stream.
#[derive(Debug, Serialize)]
pub(crate) struct ChainStep<'a> {
    stream: &'a str,
    handler: &'a str,
    context: Option<&'a str>,
    makes: &'a str,
}

/// Every handler's ways, one by one.
pub(crate) fn chains(handlers: &[HandlerInfo]) -> Vec<ChainStep<'_>> {
    let steps = handlers.iter().flat_map(|handler| {
        let context = handler.context.as_deref();
        let step = move |stream| ChainStep { stream, handler: &handler.name, context, makes: &handler.makes };
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
        tree.below(source, 1);
    }
    tree.text
}

struct Tree<'a> {
    handlers: &'a [HandlerInfo],
    shown: BTreeSet<&'a str>,
    text: String,
}

impl<'a> Tree<'a> {
    fn below(&mut self, stream: &str, depth: usize) {
        let handlers: &'a [HandlerInfo] = self.handlers;
        for handler in handlers.iter().filter(|handler| handler.reads.iter().any(|read| read == stream)) {
            let place = handler.context.as_deref().unwrap_or(&handler.status);
            let line = format!("{:1$}→ {2} @{3} → {4}", "", 2 * depth, handler.name, place, handler.makes);
            // What several streams lead to is followed once.
            let is_new = self.shown.insert(&handler.name);
            self.text += &if is_new { format!("{line}\n") } else { format!("{line} (as above)\n") };
            if is_new {
                self.below(&handler.makes, depth + 1);
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
    fn built_in_handlers_fit_a_screen_with_all_their_parameters() {
        let built_in = Natives::built_in();
        let text = builtins(&built_in, Width::Columns(80));
        assert_eq!(text.lines().find(|line| line.chars().count() > 80), None, "{text}");
        for kind in built_in.iter() {
            assert!(text.contains(kind.name()) && kind.parameters().iter().all(|of| text.contains(of.name)), "{text}");
        }
    }

    #[test]
    fn time_of_a_core_reads_in_ms_a_second() {
        let shown = [0, 50_000, 12_500_000, 310_000_000].map(per_mille_of_core);
        assert_eq!(shown, ["0", "0.050 ms/s", "12.5 ms/s", "310 ms/s"]);
    }

    #[test]
    fn a_handler_fits_a_screen_and_shows_whole() {
        let mut late = handler("late", &["A"], "A.late", "c-core-0");
        late.rate_msgs_per_s = 2_100_000;
        late.ns_per_record = 123.4;
        late.predicted.time_ns_per_s = 310_000_000;
        let text = render(&HEADINGS, [row(&late)], Width::Columns(80));
        assert_eq!(text.lines().find(|line| line.chars().count() > 80), None, "{text}");
        assert!(text.contains("2,100,000") && text.contains("310"), "{text}");
        late.why = Some("it went over its budget".into());
        late.inputs = vec![HandlerInputInfo {
            stream: "A".into(),
            format: "f0".into(),
            form: "kernel".into(),
            ..HandlerInputInfo::default()
        }];
        (late.dropped, late.sampled) = (vec![("full".into(), 7)], 8);
        late.degraded = [("m".to_owned(), "60".to_owned())].into();
        assert_eq!(row(&late)[1], "degraded");
        let text = whole(&late);
        for expected in [
            "running: it went over its budget",
            "nothing: it does not fit",
            "made-up",
            "dropped: full",
            "one record in 8",
            "m=60",
        ] {
            assert!(text.contains(expected), "no `{expected}` in {text}");
        }
    }
}
