//! Access rules from the command line: `crossdock access`, the control API by user and by token, and a daemon whose rules are wrong.

use crate::place::{Daemon, FLIGHTS_CSV, FLIGHTS_SCHEMA, Sandbox, exchange, get, post, with_io_contexts, word_after};
use std::fs::Permissions;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;

const TOKEN: &str = "a-token-of-these-tests";

/// A place with a schema, and a configuration with these rules.
fn with_rules(rules: &str) -> Sandbox {
    let place = Sandbox::new();
    place.write("a.schema", FLIGHTS_SCHEMA);
    place.write("flights.csv", FLIGHTS_CSV);
    std::fs::set_permissions(place.write("ops.token", TOKEN), Permissions::from_mode(0o600)).unwrap();
    let config = format!(
        "[context]\nlisten = \"127.0.0.1:0\"\n[control]\nhttp = \"127.0.0.1:0\"\n\
         [[stream]]\nname = \"A\"\nschema = \"a.schema\"\n{rules}"
    );
    place.write("crossdock.toml", with_io_contexts(&config));
    place
}

fn uid() -> u32 {
    rustix::process::getuid().as_raw()
}

#[test]
fn the_rights_of_a_rule_are_listed_checked_and_all_that_there_are() {
    let uid = uid();
    let mut place = with_rules(&format!(
        "[[access]]\nuid = {uid}\npublish = [\"A\"]\nadministration = \"read\"\nmax_streams = 3\n\
         subscribe = [\"SELECT carrier, flight FROM A WHERE dep_delay > 0\", \"B\"]\n"
    ));
    let daemon = Daemon::start(&mut place.command(["serve", "--config", "crossdock.toml"]));
    place.uses(&daemon.address);
    let place = place.by("shm");
    let listed = place.run(["access", "list"]).with_code(0).stdout;
    let wanted = format!(
        "uid:{uid}\n  publish         A\n  subscribe       SELECT carrier, flight FROM A WHERE dep_delay > 0\n  \
         subscribe       B\n  administration  read\n  at most         3 streams\n"
    );
    assert_eq!(listed, wanted);
    let rules = place.run(["access", "list", "--json"]).with_code(0).json();
    assert_eq!((rules.len(), rules[0]["max_streams"].as_u64()), (1, Some(3)));

    let me = format!("uid:{uid}");
    let checked = place.run(["access", "check", &me, "SELECT * FROM A WHERE flight > 9", "--json"]).with_code(0).json();
    let query = "SELECT carrier, flight FROM A WHERE dep_delay > 0 AND flight > 9";
    assert_eq!((&checked[0]["rule"], &checked[0]["query"]), (&me.as_str().into(), &query.into()), "{checked:?}");
    let hidden = place.run(["access", "check", &me, "SELECT note FROM A"]).with_code(1);
    assert!(hidden.stdout.contains("refused") && hidden.stdout.contains("no column `note`"), "{}", hidden.stdout);
    place.run(["access", "check", &me, "--publish", "A"]).with_code(0);
    let refused = place.run(["access", "check", "uid:4000000000", "--publish", "A"]).with_code(1);
    assert!(refused.stdout.contains("uid = 4000000000"), "{}", refused.stdout);
    place.run(["access", "check", "nobody", "--publish", "A"]).with_code(2).saying(&["no authorised key"]);

    let subscriber = place.spawn(["subscribe", "SELECT * FROM A", "--output", "csv", "--limit", "2"]);
    place.wait_for_subscriptions(1);
    place.run(["publish", "A", "flights.csv", "--schema", "a.schema"]).with_code(0);
    assert_eq!(subscriber.end().with_code(0).stdout, "carrier,flight\nUA,1545\nDL,120\n");
    place.run(["subscribe", "SELECT note FROM A"]).with_code(2).saying(&["no column `note`", "known: carrier, flight"]);
    let publish = ["publish", "C", "flights.csv", "--schema", "a.schema"];
    place.run(publish).with_code(1).saying(&["may not publish stream `C`", "publish = [\"C\"]"]);
    place.run(["handler", "deploy", "h", "SELECT * FROM A"]).with_code(1).saying(&["handlers = [\"h\"]"]);
    place.run(["streams", "rm", "A"]).with_code(1).saying(&["administration = \"change\""]);
    let kinds = place.run(["events", "--json"]).with_code(0).json();
    assert!(kinds.iter().any(|event| event["kind"] == "access_refused"), "{kinds:?}");
    let (_, metrics) = place.http_text(&get("/metrics"));
    for line in ["action=\"publish\"} 1", "action=\"handler\"} 1", "action=\"administration\"} 1"] {
        assert!(metrics.contains(&format!("crossdock_access_refused_total{{{line}")), "{line}: {metrics}");
    }
}

/// The records of an inquiry are those that its caller may read.
#[test]
fn why_shows_the_rows_and_columns_of_the_callers_rule() {
    let mut place = with_rules(&format!(
        "[[access]]\nuid = {}\npublish = [\"A\"]\nadministration = \"read\"\n\
         subscribe = [\"SELECT carrier, flight FROM A WHERE dep_delay > 0\"]\n",
        uid()
    ));
    let daemon = Daemon::start(&mut place.command(["serve", "--config", "crossdock.toml"]));
    place.uses(&daemon.address);
    let place = place.by("shm");
    let _reader = place.spawn(["subscribe", "SELECT carrier FROM A WHERE flight > 1000"]);
    place.wait_for_subscriptions(1);
    let id = place.run(["subscriptions", "--json"]).with_code(0).json()[0]["id"].to_string();
    let why = ["why", "A", "TRUE", "--subscription", &id, "--trace", "--limit", "2"];
    let trace = place.spawn(why);
    place.wait_for_subscriptions(2);
    place.run(["publish", "A", "flights.csv", "--schema", "a.schema"]).with_code(0);
    let said = trace.end_by_itself().with_code(0).stdout;
    assert!(said.contains("1545") && said.contains("filtered: flight > 1000 is false"), "{said}");
    assert!(!said.contains("dep_delay") && !said.contains("dest"), "{said}");
    let hidden = ["why", "A", "note = 'x'", "--subscription", &id, "--trace"];
    place.run(hidden).with_code(2).saying(&["no column `note`", "known: carrier, flight"]);
}

#[test]
fn over_tcp_the_rules_of_tokens_and_of_everybody_hold() {
    let rules = "[[access]]\ntoken = \"ops\"\ntoken_file = \"ops.token\"\nadministration = \"change\"\n\
                 [[access]]\neverybody = true\nmailboxes = [\"open\"]\n";
    let place = with_rules(rules);
    let daemon = Daemon::start(&mut place.command(["serve", "--config", "crossdock.toml"]));
    let address = word_after(&daemon.line, "http=").to_owned();
    let ask = |request: &str, token: Option<&str>| {
        let said = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        let request = request.replace("Connection:", &format!("{said}Connection:"));
        exchange(&mut TcpStream::connect(&address).unwrap(), &request)
    };
    let (change, mailbox) =
        (post("/v1/plan", r#"{"all":[]}"#), |name: &str| post("/v1/mailboxes", &format!(r#"{{"name":"{name}"}}"#)));
    for (request, token, status) in [
        (get("/v1/health"), None, 200),
        (get("/v1/streams"), None, 403),
        (get("/v1/streams"), Some(TOKEN), 200),
        (get("/v1/streams"), Some("another-token-than-that"), 401),
        (change.clone(), None, 403),
        (change, Some(TOKEN), 200),
        (mailbox("open"), None, 200),
        (mailbox("closed"), None, 403),
        (mailbox("closed"), Some(TOKEN), 200),
    ] {
        let (found, body) = ask(&request, token);
        assert_eq!(found, status, "{request} {body}");
    }
    // The control socket has no exception: this user has no rule but everybody's.
    let (status, body) = place.http(&get("/v1/streams"));
    let message = body["error"]["message"].as_str().unwrap_or_default();
    assert!(status == 403 && message.contains("in the [[access]] section of everybody"), "{body}");
}

#[test]
fn a_daemon_whose_rules_do_not_fit_does_not_start() {
    for (rules, code, texts) in [
        (
            "[[access]]\nuid = 1\nsubscribe = [\"SELECT captain FROM A\"]\n",
            2,
            &["uid:1", "no column `captain`", "line 1"][..],
        ),
        ("[[access]]\nuid = 1\nsubscribe = [\"SELECT * FROM Flights\"]\n", 2, &["no stream `Flights`", "known: A"]),
        ("[[access]]\nuid = 1\nsubscribe = [\"SELECT a + FROM A\"]\n", 2, &["crossdock.toml:", "subscribe = ["]),
        ("[[access]]\nuid = 1\n[[access]]\nuid = 1\n", 2, &["two rules are for uid:1"]),
        ("[[access]]\nkey = \"desk\"\n", 2, &["no authorised key has the name `desk`"]),
        ("[[access]]\npublish = [\"A\"]\n", 2, &["section 1", "`everybody = true`"]),
        ("[[access]]\nuid = 1\neverybody = true\n", 2, &["one identity"]),
        ("[[access]]\ntoken = \"ops\"\n", 2, &["`token_file`"]),
        ("[[access]]\nuid = 1\npublsh = [\"A\"]\n", 2, &["did you mean `publish`?"]),
    ] {
        let place = with_rules(rules);
        place.run(["serve", "--config", "crossdock.toml"]).with_code(code).saying(texts);
    }
}
