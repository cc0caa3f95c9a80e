//! Avro schemas from anywhere: refused, or a format whose own schema is imported as the same format.

use crate::small_stack;
use crossdock_format::encoding::avro::AvroSchema;

/// Takes one input.
pub fn fuzz(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    small_stack::run(|| {
        let Ok(schema) = AvroSchema::parse(text) else { return };
        let again = AvroSchema::parse(schema.to_json()).expect("its own JSON");
        assert_eq!(again.to_json(), schema.to_json());
        let Ok(format) = schema.format() else { return };
        if let Ok(own) = AvroSchema::of(&format) {
            assert_eq!(own.format().expect("it stands for a format").describe(), format.describe());
        }
    });
}
