//! `.proto` files from anywhere: refused, or a format whose own schema is imported as the same format. An input is one file
//! or several, with bytes of 255 in between: the first may import the others as `1.proto`, `2.proto` … The same bytes as a
//! compiled set of files are refused, or a schema.

use crate::{guarded, small_stack};
use crossdock_format::encoding::protobuf::ProtobufSchema;

/// Files beyond these would add nothing.
const MOST_FILES: usize = 8;

/// Takes one input.
pub fn fuzz(input: &[u8]) {
    guarded::panics_may_be_caught();
    small_stack::run(|| drop(ProtobufSchema::from_descriptor_set(input, None)));
    let parts: Result<Vec<&str>, _> = input.split(|byte| *byte == 0xff).take(MOST_FILES).map(str::from_utf8).collect();
    let Ok(parts) = parts else { return };
    small_stack::run(|| import(&parts));
}

fn import(parts: &[&str]) {
    let names: Vec<String> = (0..parts.len()).map(|number| format!("{number}.proto")).collect();
    let files: Vec<(&str, &str)> = names.iter().map(String::as_str).zip(parts.iter().copied()).collect();
    let Ok(format) = ProtobufSchema::import(&files, None).and_then(|schema| schema.format()) else { return };
    let proto = ProtobufSchema::of(&format).to_proto();
    let own = ProtobufSchema::import(&[("a.proto", &proto)], Some("Record")).expect("it is well made");
    assert_eq!(own.format().expect("it stands for a format").describe(), format.describe());
}
