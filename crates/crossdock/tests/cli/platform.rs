//! The platform from outside: its API, held against its own description, the metrics, and the commands.

use std::collections::BTreeSet;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::place::{Place, get, post, with_body};

/// The API's document, and what validates a body against one of its schemas.
struct Document(Value);

impl Document {
    fn of(place: &Place) -> Document {
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
    let (place, _daemon) = Place::with_configured_daemon("[[mailbox]]\nname = \"requests\"\n");
    let _subscriber = place.spawn(["subscribe", "SELECT flight FROM A", "--overflow", "drop_oldest"]);
    place.wait_for_subscriptions(1);
    let document = Document::of(&place);
    let paths = document.0["paths"].as_object().unwrap();
    let mut asked = 0;
    for (path, item) in paths.iter().filter(|(path, _)| path.starts_with("/v1/") && *path != "/v1/openapi.json") {
        if item["get"].is_object() {
            // A handler that is not there: 404, which is described, too.
            let (status, body) = place.http(&get(&path.replace("{name}", "nobody")));
            assert_eq!(status, if path.contains("{name}") { 404 } else { 200 }, "{path}: {body}");
            document.holds("get", path, status, &body);
            asked += 1;
        }
    }
    assert!(asked >= 14, "{asked}");
}

#[test]
fn the_document_has_the_router_s_paths_and_methods_and_no_others() {
    let (place, _daemon) = Place::with_daemon();
    let document = Document::of(&place);
    let paths = document.0["paths"].as_object().unwrap();
    for (path, item) in paths {
        let known: BTreeSet<&str> = item.as_object().unwrap().keys().map(String::as_str).collect();
        for method in ["get", "post", "put", "patch", "delete"] {
            // What is wrong with the body is found only where there is a route.
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
fn what_is_wrong_with_a_change_is_said_as_the_document_says() {
    let (place, _daemon) = Place::with_daemon();
    let document = Document::of(&place);
    for (method, path, body, status, told) in [
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
        ("put", "/v1/wanted", r#"{"handler":[]}"#, 400, "handlers"),
        ("get", "/v1/events?after=x", "", 400, "NUMBER"),
    ] {
        let (found, answer) = place.http(&with_body(&method.to_uppercase(), path, body));
        assert_eq!(found, status, "{method} {path}: {answer}");
        let pattern = path.split('?').next().unwrap_or(path).replace("nobody", "{name}");
        document.holds(method, &pattern, found, &answer);
        let hint = answer["error"]["hint"].as_str().unwrap_or_default();
        assert!(hint.contains(told), "{method} {path}: {answer}");
    }
}

#[test]
fn metrics_are_what_open_metrics_wants() {
    let (place, _daemon) = Place::with_configured_daemon("[[mailbox]]\nname = \"a \\\"quoted\\\" one\"\n");
    let _subscriber = place.spawn(["subscribe", "SELECT flight FROM A"]);
    place.wait_for_subscriptions(1);
    let (status, text) = place.http_text(&get("/metrics"));
    assert_eq!(status, 200);
    assert!(text.ends_with("\n# EOF\n"), "{text}");
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
        let wanted = if kind == "counter" { format!("{of}_total") } else { of.to_owned() };
        assert_eq!(name, wanted, "{line}");
        assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'), "{line}");
        assert!(labels.ends_with('}') && kind != "unknown", "{line}");
    }
    for wanted in [
        "process_cpu_time_seconds_total{cpu_mode=\"user\"} ",
        "messaging_client_consumed_messages_total{messaging_system=\"crossdock\",messaging_destination_name=\"A\"} 0",
        "crossdock_stream_subscriptions{stream=\"A\"} 1",
        "a \\\"quoted\\\" one\"} ",
    ] {
        assert!(text.contains(wanted), "no {wanted} in {text}");
    }
}

#[test]
fn events_are_followed_until_ctrl_c() {
    let (place, _daemon) = Place::with_daemon();
    let follower = place.spawn(["events", "--follow"]);
    place.run(["handler", "deploy", "wrong", "SELECT nothing FROM nowhere WHERE"]).with_code(1).saying(&["refused"]);
    follower.stdout_line(|line| line.contains(" refused wrong: ") || line.contains(" refused: "));
    follower.signal(Signal::INT);
    follower.end().with_code(0);
    let events = place.run(["events", "--json"]).with_code(0).json();
    assert!(!events.is_empty() && events.iter().all(|event| event["text"].is_string()));
    // The daemon has not been kept waiting by one who has gone.
    place.run(["events", "--after", "1000000"]).with_code(0).saying(&["nothing has happened"]);
}

#[test]
fn commands_on_handlers_say_what_would_mend_them() {
    let (place, _daemon) = Place::with_daemon();
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
    place.run(["plan", "empty.toml"]).with_code(0).saying(&["all is as wanted"]);
    place.run(["plan", "nothing.toml"]).with_code(2).saying(&["nothing.toml"]);
}

#[test]
fn a_plan_is_answered_and_changes_nothing() {
    let (place, _daemon) = Place::with_daemon();
    let document = Document::of(&place);
    let wish = r#"{"deploy":{"name":"late","sql":"SELECT * FROM A WHERE dep_delay > 15"}}"#;
    let (status, body) = place.http(&post("/v1/plan", wish));
    assert_eq!((status, &body["applied"]), (200, &json!(false)));
    document.holds("post", "/v1/plan", status, &body);
    assert!(place.list("handlers").is_empty());
}
