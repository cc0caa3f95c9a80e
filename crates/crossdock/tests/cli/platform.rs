//! The platform from outside: its API, held against its own description, the metrics, and the commands.

use std::collections::BTreeSet;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::place::{Daemon, FLIGHTS_CSV, Process, Sandbox, get, post, with_body, word_after};

/// The API's document, and what validates a body against one of its schemas.
struct Document(Value);

impl Document {
    fn of(place: &Sandbox) -> Document {
        let (status, document) = place.http(&get("/v1/openapi.json"));
        assert_eq!(status, 200);
        Document(document)
    }

    /// The schema of what an operation answers with this status.
    fn schema(&self, method: &str, path: &str, status: &str) -> Value {
        let responses = &self.0["paths"][path][method]["responses"];
        let response = if responses[status].is_null() { &responses["default"] } else { &responses[status] };
        let schema = &response["content"]["application/json"]["schema"];
        assert!(schema.is_object(), "{method} {path} has no JSON for {status}: {response}");
        json!({ "allOf": [schema], "components": self.0["components"] })
    }

    #[track_caller]
    fn holds(&self, method: &str, path: &str, status: u16, body: &Value) {
        let schema = self.schema(method, path, &status.to_string());
        let validator = jsonschema::validator_for(&schema).unwrap();
        let errors: Vec<String> = validator.iter_errors(body).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{method} {path} answered {status} {body}: {errors:#?}");
    }
}

#[test]
fn every_get_answers_as_the_document_says() {
    let (place, _daemon) = Sandbox::with_configured_daemon("[[mailbox]]\nname = \"requests\"\n");
    let _subscriber = place.spawn(["subscribe", "SELECT flight FROM A", "--on-overflow", "drop_oldest"]);
    place.wait_for_subscriptions(1);
    let (_, listed) = place.http(&get("/v1/subscriptions"));
    let subscription = listed["subscriptions"][0]["id"].to_string();
    let document = Document::of(&place);
    let paths = document.0["paths"].as_object().unwrap();
    let mut asked = 0;
    for (path, item) in paths.iter().filter(|(path, _)| path.starts_with("/v1/") && *path != "/v1/openapi.json") {
        if item["get"].is_object() {
            // A handler that is not there: 404, which is described, too.
            let (status, body) = place.http(&get(&path.replace("{name}", "nobody").replace("{id}", &subscription)));
            assert_eq!(status, if path.contains("{name}") { 404 } else { 200 }, "{path}: {body}");
            document.holds("get", path, status, &body);
            asked += 1;
        }
    }
    assert!(asked >= 14, "{asked}");
}

#[test]
fn the_document_has_the_router_s_paths_and_methods_and_no_others() {
    let (place, _daemon) = Sandbox::with_daemon();
    let document = Document::of(&place);
    let paths = document.0["paths"].as_object().unwrap();
    for (path, item) in paths {
        let known: BTreeSet<&str> = item.as_object().unwrap().keys().map(String::as_str).collect();
        for method in ["get", "post", "put", "patch", "delete"] {
            // An error of the body is found only where there is a route.
            let request = with_body(&method.to_uppercase(), &path.replace("{name}", "nobody"), "no JSON");
            let (status, body) = place.http_text(&request);
            assert_eq!(status == 405, !known.contains(method), "{method} {path}: {status} {body}");
        }
    }
    let (status, body) = place.http(&get("/v1/nothing"));
    let hint = body["error"]["hint"].as_str().unwrap_or_default();
    assert!(status == 404 && paths.keys().all(|path| hint.contains(path.as_str())), "{hint}");
}

#[test]
fn an_invalid_change_is_answered_as_the_document_says() {
    let (place, _daemon) = Sandbox::with_daemon();
    let document = Document::of(&place);
    for (method, path, body, status, words) in [
        ("post", "/v1/handlers", "{}x", 400, "such as"),
        ("post", "/v1/handlers", r#"{"name":"late","sqll":""}"#, 400, "such as"),
        ("post", "/v1/handlers?dry_run=perhaps", r#"{"name":"late","sql":""}"#, 400, "dry_run=true"),
        ("post", "/v1/handlers?dryrun=true", r#"{"name":"late","sql":""}"#, 400, "dry_run=true"),
        ("put", "/v1/handlers/nobody", r#"{"name":"somebody","sql":""}"#, 400, "leave it out"),
        ("put", "/v1/handlers/nobody", r#"{"sql":"SELECT * FROM A"}"#, 404, "no handlers"),
        ("patch", "/v1/handlers/nobody", r#"{"parameters":{"a":"1"}}"#, 404, "no handlers"),
        ("delete", "/v1/handlers/nobody", "", 404, "no handlers"),
        ("post", "/v1/handlers/nobody/move", r#"{"place":"g-core-0"}"#, 404, "no handlers"),
        ("get", "/v1/handlers/nobody", "", 404, "no handlers"),
        ("post", "/v1/plan", r#"{"deplo":{}}"#, 400, "deploy"),
        // The planner's own, for the parts of one query.
        ("post", "/v1/plan", r#"{"parts":[]}"#, 400, "deploy"),
        ("put", "/v1/wanted", r#"{"handler":[]}"#, 400, "handlers"),
        ("get", "/v1/events?after=x", "", 400, "NUMBER"),
    ] {
        let (found, answer) = place.http(&with_body(&method.to_uppercase(), path, body));
        assert_eq!(found, status, "{method} {path}: {answer}");
        let pattern = path.split('?').next().unwrap_or(path).replace("nobody", "{name}");
        document.holds(method, &pattern, found, &answer);
        let hint = answer["error"]["hint"].as_str().unwrap_or_default();
        assert!(hint.contains(words), "{method} {path}: {answer}");
    }
    let (_, answer) = place.http(&post("/v1/plan", r#"{"parts":[{"name":"late","sql":"SELECT * FROM A"}]}"#));
    let why = answer["error"]["message"].as_str().unwrap_or_default();
    assert!(why.contains("unknown variant `parts`"), "{answer}");
    let kinds = document.0["components"]["schemas"]["ChangeRequest"].to_string();
    assert!(kinds.contains("\"deploy\"") && !kinds.contains("\"parts\""), "{kinds}");
}

/// Panics unless a text is what OpenMetrics wants.
fn check_format(text: &str) {
    let (mut families, mut series, mut family) = (BTreeSet::new(), BTreeSet::new(), ("", ""));
    for line in text.lines().filter(|line| *line != "# EOF") {
        if let Some(about) = line.strip_prefix("# ") {
            let (word, rest) = about.split_once(' ').unwrap();
            let (name, value) = rest.split_once(' ').unwrap();
            match word {
                "TYPE" => {
                    assert!(families.insert(name.trim_end_matches("_total")), "{name} twice");
                    family = (name, value);
                }
                "HELP" => assert!(!value.is_empty(), "{line}"),
                "UNIT" => assert!(name.ends_with(value), "{line}"),
                _ => panic!("{line}"),
            }
            continue;
        }
        // name{labels} value; labels may have blanks.
        let (what, value) = line.rsplit_once(' ').unwrap();
        assert!(value.parse::<f64>().is_ok_and(f64::is_finite), "{line}");
        assert!(series.insert(what), "{what} twice");
        let (name, labels) = what.split_once('{').unwrap_or((what, "}"));
        let (of, kind) = family;
        let suffixes: &[&str] = match kind {
            "counter" => &["_total"],
            "histogram" => &["_sum", "_count", "_bucket"],
            "gauge" => &[""],
            _ => panic!("{line}"),
        };
        assert!(name.strip_prefix(of).is_some_and(|suffix| suffixes.contains(&suffix)), "{line}");
        assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'), "{line}");
        assert!(labels.ends_with('}'), "{line}");
    }
}

/// The value of a metric's one series whose labels have this text.
fn metric(text: &str, name: &str, label: &str) -> f64 {
    let is_it = |line: &&str| line.starts_with(&format!("{name}{{")) && line.contains(label);
    let line = text.lines().find(is_it).unwrap_or_else(|| panic!("no {name} with {label} in {text}"));
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

#[test]
fn work_is_counted_by_every_kind_of_metric() {
    let (place, _daemon) = Sandbox::with_daemon();
    place.run(["handler", "deploy", "late", LATE, "--param", "minutes=15"]).with_code(0);
    place.run(["handler", "deploy", "wrong", "SELECT nothing FROM A"]).with_code(1);
    assert_eq!(late_flights(&place, 1), [120]);
    let (_, text) = place.http_text(&get("/metrics"));
    check_format(&text);
    for (name, label, wanted) in [
        ("crossdock_handler_records_in_total", "handler=\"late\"", 4.0),
        ("crossdock_handler_records_out_total", "handler=\"late\"", 1.0),
        ("crossdock_stream_records_in_total", "stream=\"A\"", 4.0),
        // Its subscription has ended.
        ("crossdock_stream_records_out_total", "stream=\"late\"", 1.0),
        ("crossdock_context_records_in_total", "c-core-0", 4.0),
        ("crossdock_events_total", "kind=\"deployed\"", 1.0),
        ("crossdock_events_total", "kind=\"refused\"", 1.0),
        ("crossdock_change_request_to_effect_seconds_count", "", 1.0),
        ("crossdock_subscription_request_to_effect_seconds_count", "", 1.0),
    ] {
        assert_eq!(metric(&text, name, label), wanted, "{name}");
    }
    for (name, label) in [
        ("crossdock_context_busy_seconds_total", "c-core-0"),
        ("crossdock_context_handler_seconds_total", "c-core-0"),
        ("crossdock_handler_busy_seconds_total", "late"),
        ("crossdock_context_batch_wait_seconds_count", "c-core-0"),
        ("crossdock_context_batch_latency_seconds_count", "c-core-0"),
        ("crossdock_context_batch_latency_seconds_sum", "c-core-0"),
        ("crossdock_change_request_to_effect_seconds_sum", ""),
        ("process_start_time_seconds", ""),
    ] {
        assert!(metric(&text, name, label) > 0.0, "{name}");
    }
    // The lists say the same.
    let context = &place.run(["contexts", "--json"]).with_code(0).json()[1];
    assert_eq!((&context["name"], &context["records_in"]), (&json!("c-core-0"), &json!(4)));
    let whole = place.run(["handlers", "late"]).with_code(0).stdout;
    let line = whole.lines().find(|line| line.starts_with("records in"));
    assert!(line.is_some_and(|line| line.ends_with(" 4")), "{whole}");
}

#[test]
fn metrics_are_what_open_metrics_wants() {
    let (place, _daemon) = Sandbox::with_configured_daemon("[[mailbox]]\nname = \"a \\\"quoted\\\" one\"\n");
    let _subscriber = place.spawn(["subscribe", "SELECT flight FROM A"]);
    place.wait_for_subscriptions(1);
    let (status, text) = place.http_text(&get("/metrics"));
    assert_eq!(status, 200);
    assert!(text.ends_with("\n# EOF\n"), "{text}");
    check_format(&text);
    for wanted in [
        "process_cpu_time_seconds_total{cpu_mode=\"user\"} ",
        "crossdock_stream_records_in_total{stream=\"A\"} 0",
        "crossdock_stream_subscriptions{stream=\"A\"} 1",
        "a \\\"quoted\\\" one\"} ",
    ] {
        assert!(text.contains(wanted), "no {wanted} in {text}");
    }
}

#[test]
fn events_are_followed_until_ctrl_c() {
    let (place, _daemon) = Sandbox::with_daemon();
    let follower = place.spawn(["events", "--follow"]);
    place.run(["handler", "deploy", "wrong", "SELECT nothing FROM nowhere WHERE"]).with_code(1).saying(&["refused"]);
    follower.stdout_line(|line| line.contains(" refused wrong: ") || line.contains(" refused: "));
    follower.signal(Signal::INT);
    follower.end().with_code(0);
    let events = place.run(["events", "--json"]).with_code(0).json();
    assert!(!events.is_empty() && events.iter().all(|event| event["text"].is_string()));
    // The daemon has not been kept waiting by a client that has gone.
    place.run(["events", "--after", "1000000"]).with_code(0).saying(&["no events"]);
}

#[test]
fn commands_on_handlers_name_a_remedy() {
    let (place, _daemon) = Sandbox::with_daemon();
    place.run(["handlers"]).with_code(0).saying(&["no handlers: `crossdock handler deploy`"]);
    place.run(["handlers", "late"]).with_code(1).saying(&["there is no handler `late`", "there are no handlers"]);
    place.run(["handler", "deploy", "late"]).with_code(2).saying(&["neither a query nor --native", "SELECT"]);
    place.run(["handler", "deploy", "late", "SELECT 1", "--native", "x"]).with_code(2).saying(&["cannot be used with"]);
    place.run(["handler", "deploy", "late", "x", "--budget", "5"]).with_code(2).saying(&["5us"]);
    place.run(["handler", "set", "late", "minutes"]).with_code(2).saying(&["minutes=15"]);
    for command in
        [&["swap", "late", "SELECT * FROM A"][..], &["set", "late", "a=1"], &["move", "late"], &["remove", "late"]]
    {
        let command: Vec<&str> = ["handler"].iter().chain(command).copied().collect();
        place.run(command).with_code(1).saying(&["there is no handler `late`"]);
    }
    place.write("typo.toml", "[[handler]]\nname = \"late\"\nsqll = \"x\"\n");
    place.run(["plan", "typo.toml"]).with_code(2).saying(&["typo.toml:3:1", "did you mean `sql`?"]);
    place.write("empty.toml", "");
    place.run(["plan", "empty.toml"]).with_code(0).saying(&["everything is as requested"]);
    place.run(["plan", "nothing.toml"]).with_code(2).saying(&["nothing.toml"]);
}

#[test]
fn a_plan_is_answered_and_changes_nothing() {
    let (place, _daemon) = Sandbox::with_daemon();
    let document = Document::of(&place);
    let request = r#"{"deploy":{"name":"late","sql":"SELECT * FROM A WHERE dep_delay > 15"}}"#;
    let (status, body) = place.http(&post("/v1/plan", request));
    assert_eq!((status, &body["applied"]), (200, &json!(false)));
    document.holds("post", "/v1/plan", status, &body);
    assert!(place.list("handlers").is_empty());
}

#[test]
fn top_prints_one_screen_and_is_live_only_in_a_terminal() {
    let (place, _daemon) = Sandbox::with_daemon();
    let screen = place.run(["top", "--once"]).with_code(0).stdout;
    assert_eq!(screen.lines().count(), 24, "{screen}");
    assert_eq!(screen.lines().find(|line| line.chars().count() > 80), None, "{screen}");
    assert!(screen.starts_with("crossdock 127.0.0.1:") && screen.contains("contexts ("), "{screen}");
    place.run(["top"]).with_code(2).saying(&["not a terminal", "top --once"]);
    Sandbox::new().run(["top", "--once"]).with_code(1).saying(&["no daemon is running"]);
}

/// The carriers of late flights, each with its number.
const LATE: &str = "SELECT carrier, flight FROM A WHERE dep_delay > $minutes";

/// The flights of the four that a subscriber to `late` gets.
fn late_flights(place: &Sandbox, number: usize) -> Vec<u64> {
    let subscriber = place.spawn(["subscribe", "SELECT flight FROM late", "--limit", &number.to_string()]);
    place.wait_for_subscriptions(1);
    place.write("flights.csv", FLIGHTS_CSV);
    place.run(["publish", "A", "flights.csv", "--schema", "a.schema"]).with_code(0);
    let flights = subscriber.end().with_code(0).json();
    place.wait_for_subscriptions(0);
    flights.iter().filter_map(|flight| flight["flight"].as_u64()).collect()
}

#[test]
fn a_handler_is_deployed_changed_moved_and_removed() {
    let (place, _daemon) = Sandbox::with_daemon();
    let document = Document::of(&place);
    let deployed =
        place.run(["handler", "deploy", "late", LATE, "--param", "minutes=15", "--json"]).with_code(0).json();
    assert_eq!(
        (&deployed[0]["applied"], &deployed[0]["plan"]["changes"][0]["change"]),
        (&json!(true), &json!("deploy"))
    );
    assert_eq!(late_flights(&place, 1), [120]);

    for path in ["/v1/handlers", "/v1/wanted", "/v1/contexts", "/v1/history", "/v1/events", "/v1/streams"] {
        let (status, body) = place.http(&get(path));
        document.holds("get", path, status, &body);
    }
    let (status, late) = place.http(&get("/v1/handlers/late"));
    document.holds("get", "/v1/handlers/{name}", status, &late);
    assert_eq!(
        (&late["status"], &late["context"], &late["version"]),
        (&"running".into(), &"c-core-0".into(), &1.into())
    );
    let (_, metrics) = place.http_text(&get("/metrics"));
    assert!(metrics.contains("crossdock_handler_records_in_total{handler=\"late\"} "), "{metrics}");
    assert!(place.run(["paths"]).with_code(0).stdout.contains("A\n  → late @c-core-0 → late\n"));

    place.run(["handler", "set", "late", "minutes=1"]).with_code(0).saying(&["done: 1 change"]);
    assert_eq!(late_flights(&place, 2), [1545, 120]);
    place.run(["handler", "set", "late", "hours=1"]).with_code(1).saying(&["hours"]);
    place.run(["handler", "set", "lat", "minutes=1"]).with_code(1).saying(&["did you mean `late`?"]);
    place.run(["handler", "deploy", "late", LATE, "--param", "minutes=2"]).with_code(1).saying(&["exists already"]);

    let next = "SELECT carrier, flight FROM A WHERE dep_delay < $minutes";
    let planned = place.run(["handler", "swap", "late", next, "--dry-run", "--json"]).with_code(0).json();
    document.holds("put", "/v1/handlers/{name}", 200, &planned[0]);
    assert_eq!((&planned[0]["applied"], &planned[0]["plan"]["changes"][0]["change"]), (&json!(false), &json!("swap")));
    place.run(["handler", "swap", "late", next]).with_code(0).saying(&["done: "]);
    assert_eq!(late_flights(&place, 1), [1141]);

    place.run(["handler", "move", "late", "g-core-0"]).with_code(0).saying(&["done: "]);
    assert_eq!(late_flights(&place, 1), [1141]);
    let handler = &place.list("handlers")[0];
    assert_eq!((&handler["context"], &handler["version"]), (&json!("g-core-0"), &json!(2)));
    place.run(["handler", "move", "late", "nowhere"]).with_code(1).saying(&["nowhere"]);

    place.run(["handler", "remove", "late"]).with_code(0).saying(&["done: 1 change"]);
    assert!(place.list("handlers").is_empty());
    let events = place.run(["events"]).with_code(0).stdout;
    for kind in ["deployed late", "swapped late", "moved late", "removed late"] {
        assert!(events.contains(kind), "no `{kind}` in {events}");
    }
}

#[test]
fn handlers_of_a_file_are_planned_applied_and_there_at_the_start() {
    let handlers = format!(
        "[[handler]]\nname = \"late\"\nsql = \"{LATE}\"\nparameters = {{ minutes = 15 }}\n\
         [[handler]]\nname = \"later\"\nsql = \"SELECT * FROM late\"\nplace = \"g-core-0\"\n"
    );
    let (place, _daemon) = Sandbox::with_configured_daemon(&handlers);
    let names =
        |place: &Sandbox| -> Vec<Value> { place.list("handlers").iter().map(|of| of["name"].clone()).collect() };
    assert_eq!(names(&place), ["late", "later"]);
    place.run(["plan", "crossdock.toml"]).with_code(0).saying(&["everything is as requested"]);

    place.write("next.toml", handlers.replace("minutes = 15", "minutes = 30").replace("later", "latest"));
    let plan =
        place.run(["plan", "next.toml"]).with_code(0).saying(&["3 changes, none made", "crossdock apply next.toml"]);
    for change in ["set_parameters", "deploy", "remove"] {
        assert!(plan.stdout.contains(change), "no {change} in {}", plan.stdout);
    }
    place.run(["apply", "next.toml", "--keep"]).with_code(0).saying(&["done: 2 changes"]);
    assert_eq!(names(&place), ["late", "later", "latest"]);
    place.run(["apply", "next.toml"]).with_code(0).saying(&["done: 1 change "]);
    assert_eq!(names(&place), ["late", "latest"]);

    // One that cannot be is refused, and nothing changes.
    let wrong = "[[handler]]\nname = \"wrong\"\nsql = \"SELECT * FROM A\"\nplace = \"nowhere\"\n";
    place.write("wrong.toml", wrong);
    place.run(["plan", "wrong.toml"]).with_code(1).saying(&["the request is refused, and nothing changes", "nowhere"]);
    place.run(["apply", "wrong.toml"]).with_code(1).saying(&["refused", "nowhere"]);
    assert_eq!(names(&place), ["late", "latest"]);
}

#[test]
fn a_section_that_is_refused_at_the_start_leaves_the_others_running() {
    let good = "[[handler]]\nname = \"good\"\nsql = \"SELECT * FROM A\"\n";
    let kept = "[[handler]]\nname = \"kept\"\nsql = \"SELECT flight FROM A\"\n";
    let state = "[morph]\nstate_dir = \"kept\"\n";
    let (place, daemon) = Sandbox::with_configured_daemon(&format!("{state}{kept}"));
    assert_eq!(word_after(&daemon.line, "refused="), "0");
    daemon.process.signal(Signal::KILL);
    daemon.process.end();

    let config = std::fs::read_to_string(place.path("crossdock.toml")).unwrap();
    let wrong = "[[handler]]\nname = \"wrong\"\nsql = \"SELECT nothing FROM A\"\n";
    let sections = format!("{config}place = \"nowhere\"\n{wrong}{good}");
    let tasks = "[[mailbox]]\nname = \"m\"\n[[task]]\ntask = \"no_such_task\"\nmailbox = \"m\"\n";
    place.write("crossdock.toml", sections + tasks);
    let process = Process::spawn(&mut place.command(["serve", "--config", "crossdock.toml"]));
    let line = |words: &'static str| process.stderr_line(move |line| line.contains(words));
    assert!(line("cannot be declared").contains("task `no_such_task`"));
    assert!(
        line("cannot be deployed").contains("handler `kept` cannot be deployed; the kept handler of this name stays")
    );
    line("nowhere");
    assert!(line("cannot be deployed").contains("handler `wrong`"));
    assert_eq!(word_after(&line(" serving "), "refused="), "3");
    let handlers = place.list("handlers");
    let names: Vec<&Value> = handlers.iter().map(|of| &of["name"]).collect();
    assert_eq!(names, ["good", "kept"]);
    assert!(handlers.iter().all(|of| of["status"] == "running"), "{handlers:?}");
    // Each is noted once.
    let refused = |of: &str| {
        let is_it = |event: &&Value| event["kind"] == "refused" && event["text"].to_string().contains(of);
        place.list("events").iter().filter(is_it).count()
    };
    assert_eq!((refused("nowhere"), refused("nothing")), (1, 1));
}

#[test]
fn handlers_deployed_by_command_are_restored_after_a_restart() {
    let config = "[morph]\nstate_dir = \"kept\"\n";
    let (place, daemon) = Sandbox::with_configured_daemon(config);
    let deployed = place.run(["handler", "deploy", "late", LATE, "--param", "minutes=15"]).with_code(0);
    assert!(!deployed.stderr.contains("as long as this daemon"), "{}", deployed.stderr);
    daemon.process.signal(Signal::KILL);
    assert_eq!(daemon.process.end().code, None);
    let _second = Daemon::start(&mut place.command(["serve", "--config", "crossdock.toml"]));
    let handlers = place.list("handlers");
    assert_eq!(
        (handlers.len(), &handlers[0]["name"], &handlers[0]["parameters"]["minutes"]),
        (1, &json!("late"), &json!("15"))
    );
}

#[test]
fn a_handler_has_a_replica_at_each_io_context_and_is_one_again() {
    let (place, _daemon) = Sandbox::with_daemon();
    let document = Document::of(&place);
    let io = crate::place::io_count();
    let both = ["handler", "deploy", "late", LATE, "--param", "minutes=15", "--replicas", "--place", "c-core-0"];
    place.run(both).with_code(2).saying(&["every I/O context", "keep one of the two"]);
    let changes = if io == 1 { "done: 1 change".to_owned() } else { format!("done: {io} changes") };
    place.run(&both[..7]).with_code(0).saying(&[&changes]);
    assert_eq!(late_flights(&place, 1), [120]);
    let handlers = place.list("handlers");
    let names: Vec<&str> = handlers.iter().filter_map(|handler| handler["name"].as_str()).collect();
    let wanted: Vec<String> = (0..io).map(|at| format!("late@c-core-{at}")).collect();
    assert_eq!(names, wanted);
    assert!(handlers.iter().all(|handler| handler["replica_of"] == "late"), "{handlers:?}");
    assert!(place.run(["paths"]).with_code(0).stdout.contains("A\n  → late @c-core-0 → late\n"));
    assert!(place.run(["streams"]).with_code(0).stdout.contains("handler late"));
    let (status, replica) = place.http(&get("/v1/handlers/late%40c-core-0"));
    document.holds("get", "/v1/handlers/{name}", status, &replica);
    assert_eq!((status, &replica["context"]), (200, &json!("c-core-0")));
    let (status, wanted) = place.http(&get("/v1/wanted"));
    document.holds("get", "/v1/wanted", status, &wanted);
    assert_eq!((&wanted["handlers"][0]["name"], &wanted["handlers"][0]["replicas"]), (&json!("late"), &json!(true)));
    place.run(["handler", "set", "late", "minutes=1"]).with_code(0).saying(&[&changes]);
    assert_eq!(late_flights(&place, 2), [1545, 120]);
    place.run(["handler", "move", "late", "c-core-0"]).with_code(1).saying(&["none moves"]);
    place.run(["handler", "swap", "late", "--replicas=false"]).with_code(0);
    assert_eq!((late_flights(&place, 2), &place.list("handlers")[0]["name"]), (vec![1545, 120], &json!("late")));
    place.run(["handler", "swap", "late", "--replicas"]).with_code(0);
    place.run(["handler", "remove", "late"]).with_code(0).saying(&[&changes]);
    assert!(place.list("handlers").is_empty());
}

#[test]
fn built_in_handlers_say_what_they_take() {
    let place = Sandbox::new();
    let all = place.run(["handler", "builtins"]).with_code(0).stdout;
    assert!(all.contains("tally") && all.contains("key") && all.contains("pass"), "{all}");
}

#[test]
fn a_subscription_that_the_core_has_no_time_for_is_refused_by_its_figures() {
    let (place, _daemon) = Sandbox::with_daemon();
    let row = format!("UA,1545,EWR,IAH,2,{}\n", "a b c ".repeat(50));
    place.write("many.csv", "carrier,flight,origin,dest,dep_delay,note\n".to_owned() + &row.repeat(20_000));
    place.run(["publish", "A", "many.csv", "--schema", "a.schema"]).with_code(0);
    // As if each record were looked through a hundred times.
    let looks: Vec<String> = (0..100).map(|number| format!("note LIKE '%a{number}b%c%'")).collect();
    let dear = format!("SELECT flight FROM A WHERE {}", looks.join(" OR "));
    let explained = place.run(["explain", &dear]).with_code(0).stdout;
    let said = [
        "c-core-",
        " records a second, the stream's peak; the core has ",
        " left: the query would run as a handler in another context, or be refused\n",
    ];
    assert!(said.iter().all(|part| explained.contains(part)), "{explained}");
    let figures = ["the query needs ", " ms/s at ", " msgs/s, c-core-", "; elsewhere: ", "g-core-0 has "];
    place.run(["subscribe", &dear]).with_code(1).saying(&figures);
    assert_eq!(place.list("contexts")[0]["subscriptions_refused"], 1);
    let events = place.run(["events"]).with_code(0).stdout;
    assert!(events.contains("refused") && events.contains("a subscription to stream `A`: the query needs"), "{events}");
    // One that costs little is let in.
    let _subscriber = place.spawn(["subscribe", "SELECT flight FROM A WHERE dep_delay > 15"]);
    place.wait_for_subscriptions(1);
}
