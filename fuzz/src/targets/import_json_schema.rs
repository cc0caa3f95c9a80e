//! JSON Schema and JSON lines: a format comes out whose texts read back, or an error.

use crate::small_stack;
use crossdock_format::Format;
use crossdock_format::json::{JsonInferOptions, import_json_schema, infer_json_sample};

/// Takes one input.
pub fn fuzz(bytes: &[u8]) {
    small_stack::run(|| {
        let imported = str::from_utf8(bytes).ok().and_then(|text| import_json_schema(text).ok());
        let inferred = infer_json_sample(bytes, true, &JsonInferOptions::default()).ok();
        for format in imported.into_iter().chain(inferred) {
            assert_eq!(Format::parse(&format.describe()).expect("its own text").id(), format.id());
            assert_eq!(Format::parse_schema(&format.schema()).expect("its own text").id(), format.id());
        }
    });
}
