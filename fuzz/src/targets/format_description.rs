//! Formats as text: whatever is accepted is written back the same, with the same id.
use crossdock_format::Format;

/// Takes one input.
pub fn fuzz(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    if let Ok(format) = Format::parse(text) {
        assert_eq!(format.describe(), text);
    }
    if let Ok(format) = Format::parse_schema(text) {
        let again = Format::parse_schema(&format.schema()).expect("its own schema");
        assert_eq!(again.fields(), format.fields());
        let again = Format::parse(&format.describe()).expect("its own description");
        assert_eq!(again.fields(), format.fields());
        assert_eq!(again.id(), format.id());
    }
}
