//! Avro schemas and `.proto` files from anywhere: refused, or a format whose own schema is imported as the same format.
#![no_main]

mod guarded;

use crossdock_format::encoding::avro::AvroSchema;
use crossdock_format::encoding::protobuf::ProtobufSchema;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    guarded::panics_may_be_caught();
    if let Ok(format) = AvroSchema::parse(text).and_then(|schema| schema.format()) {
        if let Ok(own) = AvroSchema::of(&format) {
            assert_eq!(own.format().expect("it stands for a format").describe(), format.describe());
        }
    }
    if let Ok(format) = ProtobufSchema::import(&[("a.proto", text)], None).and_then(|schema| schema.format()) {
        let proto = ProtobufSchema::of(&format).to_proto();
        let own = ProtobufSchema::import(&[("a.proto", &proto)], Some("Record")).expect("it is well made");
        assert_eq!(own.format().expect("it stands for a format").describe(), format.describe());
    }
});
