//! JSON Schema and JSON lines: a format comes out whose texts read back, or an error.
#![no_main]

use crossdock_format::Format;
use crossdock_format::json::{JsonInferOptions, import_json_schema, infer_json_sample};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let imported = str::from_utf8(bytes).ok().and_then(|text| import_json_schema(text).ok());
    let inferred = infer_json_sample(bytes, true, &JsonInferOptions::default()).ok();
    for format in imported.into_iter().chain(inferred) {
        assert_eq!(Format::parse(&format.describe()).expect("its own text").id(), format.id());
        assert_eq!(Format::parse_schema(&format.schema()).expect("its own text").id(), format.id());
    }
});
