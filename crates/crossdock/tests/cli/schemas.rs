//! Schema files of other systems: what they import, what of them is ignored, and what is wrong in them.

use crate::place::Sandbox;
use serde_json::{Value, json};

fn in_a_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_proto_is_read_with_what_it_imports_however_it_is_written() {
    let place = Sandbox::new();
    place.write("b.proto", "syntax = \"proto3\"; message B { int32 c = 1; }");
    for (number, import) in [
        "import \"b.proto\";",
        "/* a comment */ import \"b.proto\";",
        "import // the name follows\n  \"b.proto\";",
        "\nimport public 'b.proto';\n",
    ]
    .into_iter()
    .enumerate()
    {
        let file = format!("a{number}.proto");
        place.write(&file, format!("syntax = \"proto3\"; {import} message A {{ B b = 1; }}"));
        let shown = in_a_line(&place.run(["formats", "show", &file]).with_code(0).stdout);
        assert!(shown.contains("b record { c i32 } null"), "{import}: {shown}");
    }
}

#[test]
fn imports_are_found_below_the_directories_that_are_named() {
    let place = Sandbox::new();
    std::fs::create_dir_all(place.path("protos/market")).unwrap();
    std::fs::create_dir_all(place.path("more")).unwrap();
    place.write("protos/market/a.proto", "syntax = \"proto3\"; import \"market/b.proto\"; message A { B b = 1; }");
    place.write("protos/market/b.proto", "syntax = \"proto3\"; import \"c.proto\"; message B { C c = 1; }");
    place.write("more/c.proto", "syntax = \"proto3\"; message C { int32 d = 1; }");
    let file = "protos/market/a.proto:A";
    let show = ["formats", "show", file];
    place.run(show).with_code(2).saying(&["error: protos/market/a.proto:1:20: import 'market/b.proto' not found"]);
    let with = ["--proto-path", "protos", "--proto-path", "more"];
    let shown = in_a_line(&place.run([&show[..], &with].concat()).with_code(0).stdout);
    assert!(shown.contains("b record { c record { d i32 } null } null"), "{shown}");
    let exported = ["formats", "export", file, "--notation", "avsc"];
    place.run([&exported[..], &with].concat()).with_code(0);
    place.run([&["formats", "diff", file, file][..], &with].concat()).with_code(0);
}

#[test]
fn errors_of_a_schema_are_reported_once_and_with_their_place() {
    let place = Sandbox::new();
    let deep = format!("{}int32 a = 1;{}", "message M { ".repeat(60), "}".repeat(60));
    place.write("deep.proto", format!("syntax = \"proto3\";\n{deep}"));
    let said = place.run(["formats", "show", "deep.proto"]).with_code(2).saying(&["error: deep.proto: line 2: "]);
    assert!(!said.stderr.contains("deep.proto: deep.proto"), "{}", said.stderr);
    let fields: Vec<Value> = (0..4100).map(|number| json!({"name": format!("f{number}"), "type": "int"})).collect();
    place.write("wide.avsc", json!({"type": "record", "name": "W", "fields": fields}).to_string());
    place
        .run(["formats", "show", "wide.avsc"])
        .with_code(2)
        .saying(&["error: wide.avsc: the record `W` has more than 4096 fields"]);
    let field = json!({"name": "a", "type": "int"});
    place.write("x.avsc", json!({"type": "record", "name": "n.X", "fields": [field]}).to_string());
    let refused = place.run(["formats", "show", "x.avsc:Nonsense"]).with_code(2);
    refused.saying(&["x.avsc: there is no record `Nonsense`; there is: n.X"]);
    for name in ["x.avsc:X", "x.avsc:n.X"] {
        place.run(["formats", "show", name]).with_code(0);
    }
    place.write("x.json", r#"{"type":"object","properties":{"a":{"type":"integer"}}}"#);
    place.write("x.schema", "a i32\n");
    for name in ["x.json:X", "x.schema:X"] {
        place
            .run(["formats", "show", name])
            .with_code(2)
            .saying(&["has no messages to choose from", "give the file alone"]);
    }
}

#[test]
fn defaults_of_an_avro_schema_are_those_of_the_format_and_others_are_named() {
    let place = Sandbox::new();
    let fields = json!([
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 1_500},
        {"name": "fare", "default": "\u{04}\u{d2}",
         "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "loss", "default": "\u{ff}",
         "type": [{"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "null"]},
        {"name": "side", "type": {"type": "enum", "name": "Side", "symbols": ["BUY", "SELL"]}, "default": "SELL"},
    ]);
    place.write("x.avsc", json!({"type": "record", "name": "X", "fields": fields}).to_string());
    let shown = place.run(["formats", "show", "x.avsc"]).with_code(0);
    assert_eq!(shown.stderr, "");
    for line in [
        "at timestamp default 1970-01-01T00:00:01.5Z",
        "fare decimal(4, scale 2) default 12.34",
        "loss decimal(4, scale 2) null default -0.01",
        "side enum i32 { BUY = 0, SELL = 1 } default SELL",
    ] {
        assert!(shown.stdout.contains(line), "{line}: {}", shown.stdout);
    }
    // They are in the schema that is made for the format, too.
    let exported = place.run(["formats", "export", "x.avsc", "--notation", "avsc"]).with_code(0).stdout;
    let exported: Value = serde_json::from_str(&exported).unwrap();
    let defaults: Vec<&Value> = exported["fields"].as_array().unwrap().iter().map(|field| &field["default"]).collect();
    assert_eq!(
        defaults,
        [&json!(1_500_000_000), &json!("\0\0\u{04}\u{d2}"), &json!("\u{ff}".repeat(4)), &json!("SELL")]
    );

    let fields = json!([
        {"name": "list", "type": {"type": "array", "items": "int"}, "default": [1]},
        {"name": "either", "type": ["int", "string"], "default": 1},
        {"name": "empty", "type": {"type": "array", "items": "int"}, "default": []},
    ]);
    place.write("y.avsc", json!({"type": "record", "name": "Y", "fields": fields}).to_string());
    let shown = place.run(["formats", "show", "y.avsc"]).with_code(0);
    let said = "y.avsc: a format has no equivalent for this, so it is ignored: the default of `list`, the default of `either`\n";
    assert_eq!(shown.stderr, said);
}
