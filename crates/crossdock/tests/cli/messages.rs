//! Messages of Protobuf in a field, decoded in the daemon: bare, with the fields beside them, and in Confluent's frame.

use crate::place::Sandbox;

const DOCUMENTATION: &str = include_str!("../../../../docs/conversions.md");

/// A daemon with a stream of envelopes, and the files of the documentation's example.
fn place() -> (Sandbox, crate::place::Daemon) {
    let (place, daemon) = Sandbox::with_daemon();
    place.write("q.proto", "syntax = \"proto3\";\nmessage Quote { int32 bid = 1; string sym = 2; }\n");
    place.write("envelope.schema", "topic string\nkey bytes null\nbody bytes\n");
    place.write("quote.schema", "topic string\nbid i32\nsym string\n");
    place.write("messages.jsonl", "{\"topic\":\"ticks\",\"key\":null,\"body\":\"CAcSAkFC\"}\n");
    publish(&place, "messages.jsonl");
    (place, daemon)
}

fn publish(place: &Sandbox, file: &str) {
    place.run(["publish", "Q", file, "--schema", "envelope.schema"]).with_code(0);
}

/// The words of the documentation's line that starts so.
fn documented(start: &str) -> Vec<&'static str> {
    let line = DOCUMENTATION.lines().find(|line| line.starts_with(start)).unwrap();
    line.trim_start_matches("crossdock ").split_whitespace().collect()
}

#[test]
fn the_documented_example_works_as_written() {
    let (place, _daemon) = place();
    place
        .run(documented("crossdock conversions add Q v1 quote.schema --decode protobuf --field body --schema"))
        .with_code(0);
    let subscriber = place.spawn(["subscribe", "SELECT * FROM Q", "--accept", "quote.schema", "--limit", "1"]);
    place.wait_for_subscriptions(1);
    publish(&place, "messages.jsonl");
    let expected = "{\"topic\":\"ticks\",\"bid\":7,\"sym\":\"AB\"}\n";
    assert!(DOCUMENTATION.contains(expected.trim_end()));
    assert_eq!(subscriber.end().with_code(0).stdout, expected);
    // A field that a query does not read of the message or beside it is not made.
    for (sql, expected) in
        [("SELECT sym FROM Q", "{\"sym\":\"AB\"}\n"), ("SELECT topic FROM Q", "{\"topic\":\"ticks\"}\n")]
    {
        let subscriber = place.spawn(["subscribe", sql, "--accept", "quote.schema", "--limit", "1"]);
        place.wait_for_subscriptions(1);
        publish(&place, "messages.jsonl");
        assert_eq!(subscriber.end().with_code(0).stdout, expected);
    }
}

#[test]
fn messages_in_confluents_frame_are_read_by_the_schemas_that_they_name() {
    let (place, _daemon) = place();
    place.write(
        "schemas.json",
        r#"[{"subject":"q-value","version":1,"id":7,"schemaType":"PROTOBUF",
             "schema":"syntax = \"proto3\";\nmessage Quote { int32 bid = 1; string sym = 2; }"}]"#,
    );
    place.write("quote.schema", "bid i32\nsym string\n");
    place
        .run(documented("crossdock conversions add Q v1 quote.schema --decode protobuf --field body --framing"))
        .with_code(0);
    let subscriber = place.spawn(["subscribe", "SELECT * FROM Q", "--accept", "quote.schema", "--until-end", "--wait"]);
    place.wait_for_subscriptions(1);
    // 0, id 99 and id 7, one index that is 0, and the message.
    place.write(
        "framed.jsonl",
        "{\"topic\":\"t\",\"key\":null,\"body\":\"AAAAAGMACAcSAkFC\"}\n{\"topic\":\"t\",\"key\":null,\"body\":\"AAAAAAcACAcSAkFC\"}\n",
    );
    let mut publisher = place.spawn_fed(["publish", "Q", "--schema", "envelope.schema", "--input", "json"]);
    publisher.feed(&std::fs::read_to_string(place.path("framed.jsonl")).unwrap());
    place.wait_for("paths", |paths| paths.iter().any(|path| path["refused"] == 1));
    place.run(["paths"]).with_code(0).saying(&["found the schema id 99, expected one that is known: 7"]);
    publisher.end().with_code(0);
    assert_eq!(subscriber.end().stdout, "{\"bid\":7,\"sym\":\"AB\"}\n");
}

#[test]
fn schemas_by_their_ids_are_one_object_of_a_registry_or_files() {
    let (place, _daemon) = place();
    place.write("quote.schema", "bid i32\nsym string\n");
    std::fs::create_dir(place.path("registry")).unwrap();
    place.write("registry/quote.proto", "syntax = \"proto3\";\nmessage Quote { int32 bid = 1; string sym = 2; }");
    place.write("registry/files.json", r#"{"7": "quote.proto:Quote", "9": "quote.proto"}"#);
    place.write(
        "registry/one.json",
        r#"{"subject":"q-value","version":1,"id":7,"schemaType":"PROTOBUF",
            "schema":"syntax = \"proto3\";\nmessage Quote { int32 bid = 1; string sym = 2; }"}"#,
    );
    let add = ["conversions", "add", "Q", "v1", "quote.schema", "--decode", "protobuf", "--field", "body"];
    let framed = "{\"topic\":\"t\",\"key\":null,\"body\":\"AAAAAAcACAcSAkFC\"}\n";
    place.write("framed.jsonl", framed);
    for file in ["registry/one.json", "registry/files.json"] {
        place.run([&add[..], &["--framing", "confluent", "--schemas", file]].concat()).with_code(0);
        let sql = "SELECT * FROM Q";
        let subscriber = place.spawn(["subscribe", sql, "--accept", "quote.schema", "--limit", "1"]);
        place.wait_for_subscriptions(1);
        place.run(["publish", "Q", "framed.jsonl", "--schema", "envelope.schema"]).with_code(0);
        assert_eq!(subscriber.end().with_code(0).stdout, "{\"bid\":7,\"sym\":\"AB\"}\n");
        place.wait_for_subscriptions(0);
    }
}

#[test]
fn codecs_that_cannot_be_kept_or_framed_are_a_usage_error() {
    let (place, _daemon) = place();
    let add = ["conversions", "add", "Q", "v1", "quote.schema", "--decode", "protobuf", "--field", "body"];
    let with = |more: &[&'static str]| [&add[..], more].concat();
    place.run(with(&["--schema", "q.proto", "--framing", "kafka"])).with_code(2).saying(&["none, length, confluent"]);
    let confluent = |more: &[&'static str]| with(&[&["--framing", "confluent"], more].concat());
    place.write("schemas.json", r#"{"7": "q.proto"}"#);
    place
        .run(confluent(&["--schema", "q.proto"]))
        .with_code(2)
        .saying(&["--schema does not go with --framing confluent", "{\"7\": \"quote.proto\"}"]);
    place.run(confluent(&[])).with_code(2).saying(&["--framing confluent needs --schemas FILE"]);
    place.run(with(&["--schemas", "schemas.json"])).with_code(2).saying(&["--framing confluent", "use --schema"]);
    place.write("schemas.json", r#"{"7": "quote.schema"}"#);
    place
        .run(confluent(&["--schemas", "schemas.json"]))
        .with_code(2)
        .saying(&["schemas.json: schema 7, quote.schema, is not of protobuf"]);
    place.write("schemas.json", "{}");
    place
        .run(with(&["--framing", "confluent", "--schemas", "schemas.json"]))
        .with_code(2)
        .saying(&["schemas.json: expected a JSON array", "GET /schemas"]);
    let kept = place.run(with(&["--schema", "q.proto", "--keep", "topic,key"]));
    assert_ne!(kept.code, Some(0));
    kept.saying(&[
        "field `key`: it is to be kept, and the target format lacks it: add the line `key bytes null` to it",
    ]);
}
