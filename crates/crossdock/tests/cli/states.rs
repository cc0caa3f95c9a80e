//! Declared keys of streams, and queries of what is there.

use crate::place::{FLIGHTS_CSV, Sandbox, TRANSPORTS};
use serde_json::{Value, json};

fn rows(place: &Sandbox, sql: &str) -> Vec<Value> {
    let mut rows = place.run(["subscribe", sql]).with_code(0).json();
    rows.sort_by_key(Value::to_string);
    rows
}

const CHANGED_CSV: &str = "\
carrier,flight,origin,dest,dep_delay,note
UA,1546,EWR,SFO,3,
DL,121,JFK,ATL,4,
WN,1,LGA,MDW,5,
";

/// A query says as well how a slow subscriber of a state gets its rows.
fn conflates(place: &Sandbox, follows: &str) {
    let conflates = format!("{follows} ON SLOW CONFLATE BY (carrier)");
    assert_eq!(place.run(["subscribe", &conflates, "--until-end"]).with_code(0).json().len(), 3);
    let explained = place.run(["explain", &conflates]).with_code(0).stdout;
    assert!(explained.contains("conflate by (carrier)") && explained.contains("of the state are kept"), "{explained}");
    assert_eq!(
        place.run(["subscribe", follows, "--until-end", "--on-overflow", "disconnect"]).with_code(0).json().len(),
        3
    );
    for (clause, said) in [
        ("ON SLOW CONFLATE BY (flight)", "possible is: ON SLOW CONFLATE BY (carrier)"),
        ("ON SLOW SAMPLE 3", "another that is left out would make the subscriber's table wrong"),
        ("MAX RATE 1 PER SECOND BY carrier", "CONFLATE BY (the stream's key)"),
    ] {
        place.run(["subscribe", &format!("{follows} {clause}")]).with_code(2).saying(&[said]);
    }
}

#[test]
fn a_key_is_declared_read_changed_and_taken_back() {
    for way in TRANSPORTS {
        let (place, _daemon) = Sandbox::with_daemon();
        let place = place.by(way);
        let snapshot = "SELECT carrier, flight FROM A SNAPSHOT WHERE dest <> 'BQN'";
        place.run(["subscribe", snapshot]).with_code(2).saying(&["column 31", "no key", "streams set A --key"]);
        place.run(["explain", snapshot]).with_code(2).saying(&["no key"]);
        place
            .run(["streams", "set", "a", "--key", "carier"])
            .with_code(1)
            .saying(&["`carier`", "did you mean `carrier`?"]);
        place.run(["streams", "set", "A", "--key", "carrier", "--max-keys", "3", "--max-bytes", "1M"]).with_code(0);
        assert!(rows(&place, snapshot).is_empty());
        place.write("flights.csv", FLIGHTS_CSV);
        place.run(["publish", "A", "flights.csv"]).with_code(0);
        place.wait_for("handlers", |handlers| handlers[0]["taken"] == 4);
        let of = |carrier: &str, flight: u16| json!({ "carrier": carrier, "flight": flight });
        // The first of four is past the bound.
        assert_eq!(rows(&place, snapshot), [of("AA", 1141), of("DL", 120)]);
        let explained = place.run(["explain", snapshot]).with_code(0).stdout;
        assert!(explained.contains("at most 3 keys and 1048576 bytes"), "{explained}");
        let follows = "SELECT carrier, flight FROM A SNAPSHOT THEN CHANGES WHERE dest <> 'ATL'";
        // Nobody publishes it: its end comes with the snapshot.
        assert_eq!(place.run(["subscribe", follows, "--until-end"]).with_code(0).json().len(), 3);
        conflates(&place, follows);
        let process = place.spawn(["subscribe", follows, "--limit", "7"]);
        for _ in 0..3 {
            process.stdout_line(|line| line.contains("\"enter\""));
        }
        place.run(["streams", "set", "A", "--key", "carrier", "--max-keys", "4"]).with_code(0);
        place.write("changed.csv", CHANGED_CSV);
        place.run(["publish", "A", "changed.csv"]).with_code(0);
        let changes = process.end_by_itself().with_code(0).json();
        let change = |carrier: &str, flight: u16, change: &str| json!({ "carrier": carrier, "flight": flight, "_change": change });
        let wanted = [change("UA", 1546, "enter"), change("DL", 120, "leave"), change("AA", 1141, "leave")];
        assert_eq!(changes[..3], [&wanted[..2], &[change("WN", 1, "enter")]].concat(), "{changes:?}");
        assert_eq!(changes[3..], wanted[2..]);
        place.run(["streams", "set", "A", "--key", "flight"]).with_code(1).saying(&["--discard-state"]);
        let process = place.spawn(["subscribe", follows]);
        process.stdout_line(|line| line.contains("\"enter\""));
        place.run(["streams", "set", "A", "--no-key"]).with_code(0);
        process.end_by_itself().with_code(1).saying(&["state of stream `A` was withdrawn", "streams set A --key"]);
        place.run(["streams", "set", "A", "--no-key"]).with_code(1).saying(&["no key"]);
        place.run(["subscribe", snapshot]).with_code(2).saying(&["no key"]);
    }
}

#[test]
fn the_first_rows_in_order_are_shown_and_followed() {
    let (place, _daemon) =
        Sandbox::with_configured_daemon("[[stream]]\nname = \"A\"\nkey = [\"carrier\"]\nmax_bytes = \"1M\"\n");
    place.write("flights.csv", FLIGHTS_CSV);
    place.run(["publish", "A", "flights.csv"]).with_code(0);
    place.wait_for("handlers", |handlers| handlers[0]["taken"] == 4);
    let first = "SELECT carrier, flight FROM A SNAPSHOT ORDER BY flight DESC LIMIT 2";
    let shown = place.run(["subscribe", first]).with_code(0).json();
    let flights = |rows: &[Value]| rows.iter().map(|row| row["flight"].clone()).collect::<Vec<_>>();
    let all = place.run(["subscribe", "SELECT flight FROM A SNAPSHOT"]).with_code(0).json();
    let mut sorted = flights(&all);
    sorted.sort_by_key(|flight| std::cmp::Reverse(flight.as_u64()));
    assert_eq!(flights(&shown), sorted[..2], "{all:?}");
    let follows = "SELECT carrier, flight FROM A SNAPSHOT THEN CHANGES ORDER BY flight DESC LIMIT 2";
    let explained = place.run(["explain", follows]).with_code(0).stdout;
    assert!(
        explained.contains("order    the first 2 of that") && explained.contains("at most 1048576 bytes"),
        "{explained}"
    );
    let process = place.spawn(["subscribe", follows, "--limit", "4"]);
    for _ in 0..2 {
        process.stdout_line(|line| line.contains("\"enter\""));
    }
    place.write("more.csv", "carrier,flight,origin,dest,dep_delay,note\nXX,9999,EWR,SFO,3,\n");
    place.run(["publish", "A", "more.csv"]).with_code(0);
    let changes = process.end_by_itself().with_code(0).json();
    let last: Vec<_> = changes.iter().map(|row| (row["flight"].clone(), row["_change"].clone())).collect();
    assert_eq!(last, [(sorted[1].clone(), json!("leave")), (json!(9999), json!("enter"))]);
    for (sql, says) in [
        ("SELECT * FROM A ORDER BY flight LIMIT 2", "SNAPSHOT"),
        ("SELECT * FROM A SNAPSHOT ORDER BY flight", "no LIMIT"),
        ("SELECT * FROM A SNAPSHOT ORDER BY fligth LIMIT 2", "did you mean `flight`?"),
    ] {
        place.run(["subscribe", sql]).with_code(2).saying(&[says]);
        place.run(["explain", sql]).with_code(2).saying(&[says]);
    }
}

#[test]
fn the_query_of_a_subscription_is_changed_while_it_runs() {
    for way in TRANSPORTS {
        let (place, _daemon) = Sandbox::with_configured_daemon("[[stream]]\nname = \"A\"\nkey = [\"carrier\"]\n");
        let place = place.by(way);
        place.write("flights.csv", FLIGHTS_CSV);
        place.run(["publish", "A", "flights.csv"]).with_code(0);
        place.wait_for("handlers", |handlers| handlers[0]["taken"] == 4);
        let query = |condition: &str| format!("SELECT carrier, flight FROM A SNAPSHOT THEN CHANGES WHERE {condition}");
        let process = place.spawn(["subscribe", &query("origin = 'JFK'"), "--limit", "6"]);
        for _ in 0..3 {
            process.stdout_line(|line| line.contains("\"enter\""));
        }
        let id = place.list("subscriptions")[0]["id"].to_string();
        let set = |sql: &str| place.run(["subscriptions", "set", &id, sql]);
        set(&query("origin = 'EWR' OR flight < 500")).with_code(0);
        let changes = process.end_by_itself().with_code(0).json();
        let of = |carrier: &str, flight: u16, change: &str| {
            json!({ "carrier": carrier, "flight": flight, "_change": change }).to_string()
        };
        let mut difference: Vec<String> = changes.iter().map(Value::to_string).collect();
        difference.sort();
        let mut wanted = [of("UA", 1545, "enter"), of("AA", 1141, "leave"), of("B6", 725, "leave")];
        wanted.sort();
        assert_eq!(difference, wanted);
        // Of another one: what is refused leaves it unchanged.
        let process = place.spawn(["subscribe", "SELECT flight FROM A", "--limit", "2"]);
        place.wait_for("subscriptions", |all| all.iter().any(|of| of["sql"] == "SELECT flight FROM A"));
        let all = place.list("subscriptions");
        let id = all.iter().find(|of| of["sql"] == "SELECT flight FROM A").unwrap()["id"].to_string();
        let set = |sql: &str| place.run(["subscriptions", "set", &id, sql]);
        set("SELECT fligth FROM A").with_code(2).saying(&["column 8", "did you mean `flight`?"]);
        set("SELECT flight FROM B").with_code(2).saying(&["column 20", "stream `A`"]);
        set("SELECT flight FROM A SNAPSHOT").with_code(2).saying(&["without SNAPSHOT"]);
        place.run(["subscriptions", "set", "999", "SELECT * FROM A"]).with_code(1).saying(&["no subscription 999"]);
        set("SELECT flight, dest FROM A WHERE dep_delay > 0").with_code(0);
        place.run(["publish", "A", "flights.csv"]).with_code(0);
        let rows = process.end_by_itself().with_code(0).json();
        let of = |flight: u16, dest: &str| json!({ "flight": flight, "dest": dest });
        assert_eq!(rows, [of(1545, "IAH"), of(120, "LAX")]);
    }
}

#[test]
fn a_key_is_configured() {
    let key = "key = [\"carrier\"]\nmax_keys = \"2M\"\nmax_bytes = \"64M\"\nmax_age = \"24h\"\n";
    let (place, _daemon) = Sandbox::with_configured_daemon(&format!("[[stream]]\nname = \"B\"\n{key}"));
    let handlers = place.list("handlers");
    assert_eq!((&handlers[0]["name"], &handlers[0]["state_bytes_bound"]), (&json!("state of B"), &json!(64 << 20)));
    place.write("flights.csv", FLIGHTS_CSV);
    place.run(["publish", "B", "flights.csv"]).with_code(0);
    place.wait_for("handlers", |handlers| handlers[0]["taken"] == 4);
    assert_eq!(rows(&place, "SELECT carrier FROM B SNAPSHOT").len(), 4);
    for (section, words) in [
        ("[[stream]]\nname = \"B\"\n", "neither `schema`"),
        ("[[stream]]\nname = \"B\"\nschema = \"a.schema\"\nmax_keys = \"2M\"\n", "no `key`"),
        ("[[stream]]\nname = \"B\"\nkey = [\"k\"]\nmax_bytes = \"many\"\n", "such as 65536, 64M or 1G"),
    ] {
        place.write("bad.toml", section);
        place.run(["serve", "--config", "bad.toml"]).with_code(2).saying(&[words]);
    }
}

#[test]
fn a_publisher_declares_the_key_of_its_stream() {
    for way in TRANSPORTS {
        let (of_daemon, _daemon) = Sandbox::with_daemon();
        let place = of_daemon.by(way);
        place.write("rows.csv", "code,place,n\na,x,1\nb,x,2\na,x,3\na,y,4\n");
        place.write("rows.schema", "code string\nplace string\nn i64\n");
        let publish = ["publish", "K", "rows.csv", "--schema", "rows.schema", "--stream-key"];
        place.run(publish.iter().chain(&["code,place"])).with_code(0);
        let snapshot = "SELECT n FROM K SNAPSHOT";
        // The state has the first record, too.
        assert_eq!(rows(&place, snapshot), [json!({ "n": 2 }), json!({ "n": 3 }), json!({ "n": 4 })]);
        place.run(publish.iter().chain(&["place"])).with_code(1).saying(&["key"]);
        place.run(publish.iter().chain(&["code,place"])).with_code(0);
        place.run(publish.iter().chain(&["nothing"])).with_code(1).saying(&["key"]);
        place.write("other.schema", "code string\nplace string\nn i64\n");
        let unknown = ["publish", "L", "rows.csv", "--schema", "other.schema", "--stream-key", "cod"];
        place.run(unknown).with_code(1).saying(&["`cod`"]);
    }
}
