//! Formats from JSON Schema, and from JSON lines.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use crossdock_format::Record;
use crossdock_format::json::{
    JsonDecoder, JsonEncoder, JsonInferOptions, JsonOptions, import_json_schema, infer_json_sample,
};
use proptest::prelude::*;

#[test]
fn schemas_become_formats() {
    let schema = r##"{
        "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
        "$defs": {"pos": {"type": "object", "properties": {"x": {"type": "number"}, "y": {"type": ["number", "null"]}},
                          "required": ["x", "y"]}},
        "properties": {
            "a_id": {"type": "integer", "minimum": 0, "maximum": 18446744073709551615},
            "b_pos": {"$ref": "#/$defs/pos"},
            "c_side": {"enum": ["BUY", "SELL", null]},
            "d_tags": {"type": "array", "items": {"type": "string"}},
            "e_grid": {"type": "array", "minItems": 3, "maxItems": 3, "items": {"type": "integer"}},
            "f_legs": {"type": "array", "items": {"$ref": "#/$defs/pos"}},
            "g_when": {"type": "string", "format": "date-time"},
            "h_raw": {"anyOf": [{"type": "null"}, {"type": "string", "contentEncoding": "base64"}]},
            "i_ok": {"type": "boolean"}
        },
        "required": ["a_id", "b_pos", "c_side", "e_grid", "h_raw", "i_ok"]
    }"##;
    let expected = "a_id u64\nb_pos record {\n    x f64\n    y f64 null\n}\nc_side enum i32 { BUY = 0, SELL = 1 } null\n\
                    d_tags string[] null\ne_grid i64[3]\nf_legs record {\n    x f64\n    y f64 null\n}[] null\n\
                    g_when timestamp null\nh_raw bytes null\ni_ok bool\n";
    assert_eq!(import_json_schema(schema).unwrap().schema(), expected);
}

#[test]
fn schemas_are_refused_with_the_property() {
    let property = |schema: &str| format!("{{\"type\": \"object\", \"properties\": {{\"a\": {schema}}}}}");
    let cases = [
        ("{".to_owned(), "JSON Schema: it is no JSON"),
        ("true".to_owned(), "JSON Schema: expected a schema with a `type`"),
        ("{\"type\": \"string\"}".to_owned(), "JSON Schema: expected an object with properties"),
        (property("{\"type\": [\"string\", \"integer\"]}"), "JSON Schema, property `a`: several types in one place"),
        (property("{\"type\": \"array\"}"), "JSON Schema, property `a[]`: an array needs `items`"),
        (property("{\"type\": \"date\"}"), "JSON Schema, property `a`: the type `date` is no field's"),
        (property("{\"$ref\": \"other.json#/x\"}"), "JSON Schema, property `a`: `$ref` leads to `other.json#/x`"),
        (
            property("{\"$ref\": \"#/properties/a\"}"),
            "JSON Schema, property `a`: schemas nest more than 48 levels deep",
        ),
        (property("{\"$ref\": \"#\"}"), "JSON Schema, property `a.a"),
        (property("{\"enum\": [1, 2]}"), "JSON Schema, property `a`: `enum` has values that are no strings"),
        (property("{\"type\": \"object\"}"), "JSON Schema, property `a`: an object without `properties`"),
    ];
    for (schema, message) in cases {
        let error = import_json_schema(&schema).unwrap_err().to_string();
        assert!(error.starts_with(message), "{schema}: {error}");
    }
    // Each `$ref` twice the one before it: a few lines that would be millions of fields.
    let mut defs = String::from("\"d0\": {\"type\": \"object\", \"properties\": {\"x\": {\"type\": \"integer\"}}}");
    for n in 1..20 {
        let inner = format!("{{\"$ref\": \"#/d{}\"}}", n - 1);
        defs.push_str(&format!(
            ", \"d{n}\": {{\"type\": \"object\", \"properties\": {{\"l\": {inner}, \"r\": {inner}}}}}"
        ));
    }
    let bomb = format!("{{\"$ref\": \"#/d19\", {defs}}}");
    assert!(import_json_schema(&bomb).unwrap_err().message.contains("4096"));
}

#[test]
fn lines_become_formats() {
    let sample = br#"{"id":1,"x":1,"pos":{"a":true},"tags":["x"],"when":"2013-01-01T10:00:00Z","none":null,"empty":{}}
not json
{"id":2,"x":1.5,"pos":{"a":false,"b":-1},"tags":[],"when":"2013-01-01T10:00:00Z","none":null,"legs":[{"to":"JFK"}]}
{"id":18446744073709551615,"x":2,"pos":null,"tags":["2013-01-01T10:00:00Z"],"when":"2013-01-01T10:00:00Z"}
{"id":"cut o"#;
    let format = infer_json_sample(sample, false, &JsonInferOptions::default()).unwrap();
    let expected = "id u64\nx f64\npos record {\n    a bool\n    b i64 null\n} null\ntags string[]\n\
                    when timestamp\nnone string null\nlegs record {\n    to string\n}[] null\n";
    assert_eq!(format.schema(), expected);
    let cases = [
        ("{\"a\":1}\n{\"a\":\"x\"}\n", "line 2, field `a`: found a string, expected a number, as in the lines before"),
        ("{\"a\":{\"b\":[1]}}\n{\"a\":{\"b\":{}}}\n", "line 2, field `a.b`: found an object, expected an array"),
        ("[1]\n", "line 1: column 1: found no object"),
        ("{\n \"a\": 1,\n}\n", "line 3: column 1: key must be a string"),
        ("{\"a\":1}{\"a\":2}\n", "line 1: column 8: trailing characters"),
        ("\nnot json\n", "line 2: column 2: expected"),
    ];
    for (sample, message) in cases {
        let error = infer_json_sample(sample.as_bytes(), true, &JsonInferOptions::default()).unwrap_err().to_string();
        assert!(error.starts_with(message), "{sample}: {error}");
    }
}

/// Any JSON with one kind of value in each place.
fn object() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        any::<i32>().prop_map(serde_json::Value::from),
        any::<bool>().prop_map(serde_json::Value::from),
        "[a-z]{0,5}".prop_map(serde_json::Value::from),
    ];
    let value = leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            (inner.clone(), 0_usize..3).prop_map(|(element, count)| serde_json::Value::from(vec![element; count])),
            prop::collection::btree_map("[a-d]", inner, 1..4)
                .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
        ]
    });
    prop::collection::btree_map("[a-f]", value, 1..5)
        .prop_map(|members| serde_json::Value::Object(members.into_iter().collect()))
}

proptest! {
    #[test]
    fn an_inferred_format_reads_its_sample(object in object()) {
        let line = object.to_string();
        let format = infer_json_sample(line.as_bytes(), true, &JsonInferOptions::default())?;
        let mut decoder = JsonDecoder::new(&format, &JsonOptions::default());
        let bytes = decoder.decode(line.as_bytes())?.to_vec();
        let mut out = Vec::new();
        JsonEncoder::new(&format).record(&Record::check(&format, &bytes)?, &mut out);
        prop_assert_eq!(serde_json::from_slice::<serde_json::Value>(&out)?, object);
    }

    #[test]
    fn arbitrary_text_never_panics(text in "\\PC{0,80}") {
        let _ = import_json_schema(&text);
        let _ = infer_json_sample(text.as_bytes(), true, &JsonInferOptions::default());
    }
}
