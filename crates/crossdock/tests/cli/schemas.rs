//! Schema files of other systems: what they import, what of them is ignored, and what is wrong in them.

use crate::place::Place;
use serde_json::{Value, json};

#[test]
fn what_is_wrong_in_a_schema_is_said_once_and_with_its_place() {
    let place = Place::new();
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
