//! Formats as text and their ids: one text for a format, one format for a text, one id for both.

use crate::arbitrary::format;
use crossdock_format::{FieldSpec, FieldType, Format, FormatId, FormatProblem, MAX_FIELDS};
use proptest::prelude::*;

proptest! {
    #[test]
    fn descriptions_read_back(format in format()) {
        let text = format.describe();
        let back = Format::parse(&text).unwrap();
        prop_assert_eq!(back.fields(), format.fields());
        prop_assert_eq!(back.id(), format.id());
        prop_assert_eq!(back.describe(), text);
        prop_assert_eq!(format.id().to_string().parse::<FormatId>(), Ok(format.id()));
    }

    #[test]
    fn schemas_read_back(format in format()) {
        let back = Format::parse_schema(&format.schema()).unwrap();
        prop_assert_eq!(back.fields(), format.fields());
    }

    #[test]
    fn a_changed_description_is_another_format_or_none(
        format in format(),
        at in any::<prop::sample::Index>(),
        with in any::<char>(),
    ) {
        let text = format.describe();
        let mut chars: Vec<char> = text.chars().collect();
        let at = at.index(chars.len());
        if chars[at] == with {
            return Ok(());
        }
        chars[at] = with;
        let changed: String = chars.into_iter().collect();
        if let Ok(other) = Format::parse(&changed) {
            prop_assert_eq!(other.describe(), changed);
            prop_assert_ne!(other.id(), format.id());
        }
    }

    #[test]
    fn arbitrary_text_never_panics(text in "\\PC{0,60}", lines in prop::collection::vec("[a-z\" \\\\#]{0,9} ?(i32|char\\[[0-9]{0,6}\\]|bool)? ?(null)?", 0..6)) {
        let _ = Format::parse(&text);
        let _ = Format::parse_schema(&text);
        let body = lines.join("\n");
        let _ = Format::parse(&format!("crossdock-format/1 natural 8\n{body}"));
        let _ = Format::parse_schema(&body);
    }
}

#[test]
fn fields_lie_at_natural_alignment() {
    let specs = [
        FieldSpec::nullable("a", FieldType::U8),
        FieldSpec::new("b", FieldType::I64),
        FieldSpec::new("c", FieldType::Char(3)),
        FieldSpec::nullable("d", FieldType::String),
        FieldSpec::new("e", FieldType::F32),
        FieldSpec::new("f", FieldType::Bool),
        FieldSpec::nullable("g", FieldType::Timestamp),
        FieldSpec::new("h", FieldType::I16),
    ];
    let format = Format::natural(specs).unwrap();
    let places: Vec<(u32, u32, Option<u16>)> =
        format.fields().iter().map(|field| (field.offset, field.size, field.null_bit)).collect();
    let expected = [
        (5, 1, Some(0)),
        (8, 8, None),
        (16, 3, None),
        (20, 8, Some(1)),
        (28, 4, None),
        (32, 1, None),
        (40, 8, Some(2)),
        (48, 2, None),
    ];
    assert_eq!(places, expected);
    assert_eq!(format.fixed_bytes(), 56);
}

/// The text and the id are a contract between machines and between versions: they may never change.
#[test]
fn the_canonical_text_is_fixed() {
    let format =
        Format::parse_schema("carrier char[2]\ndep_delay i32 null\n\"tail number\" string null # made up\n").unwrap();
    let text = "crossdock-format/1 natural 24\n\
                carrier char[2] at 5 size 2 little\n\
                dep_delay i32 at 8 size 4 little null 0\n\
                \"tail number\" string at 12 size 8 little null 1\n";
    assert_eq!(format.describe(), text);
    assert_eq!(format.id().to_string(), "6d72a8b03b1fc0b1");
    assert_eq!(format.schema(), "carrier char[2]\ndep_delay i32 null\n\"tail number\" string null\n");
}

#[test]
fn the_id_is_the_start_of_the_sha_256_as_a_little_endian_number() {
    use sha2::{Digest, Sha256};
    let format = Format::parse_schema("x bool").unwrap();
    let hash: [u8; 32] = Sha256::digest(format.describe()).into();
    assert_eq!(format.id().0, u64::from_le_bytes(hash[..8].try_into().unwrap()));
}

#[test]
fn schemas_are_refused_with_the_line() {
    let cases = [
        ("", "a format has at least one field"),
        ("# nothing\n\n", "a format has at least one field"),
        ("a i32\nb int\n", "line 2: `int` is no field type; known: bool"),
        ("a i32\n\na i64\n", "line 3: there are two fields of the name `a`"),
        ("a\n", "line 1: found `a`, expected a name and a type"),
        ("a i32 nul\n", "line 1: found `a i32 nul`, expected `name type`, and `null` behind it"),
        ("a char[0]\n", "line 1: `char[0]` is no field type"),
        ("a char[65536]\n", "line 1: `char[65536]` is no field type"),
        ("a char[+5]\n", "line 1: `char[+5]` is no field type"),
        ("\"a i32\n", "line 1: found `\\\"a i32`, expected a closing double quote"),
        ("\"a\"i32\n", "line 1: found `\\\"a\\\"i32`, expected a closing double quote, and a space behind it"),
        ("\"\" i32\n", "line 1: the name of field 1 is empty"),
        ("a\u{7}b i32\n", "line 1: the name of field 1 has control characters"),
    ];
    for (text, message) in cases {
        let error = Format::parse_schema(text).unwrap_err().to_string();
        assert!(error.starts_with(message), "{text:?}: {error}");
    }
    let long = format!("{} i32", "x".repeat(256));
    assert_eq!(
        Format::parse_schema(&long).unwrap_err().to_string(),
        "line 1: the name of field 1 is longer than 255 bytes"
    );
    let format = Format::parse_schema("\u{feff}a i32 not null\r\nb bool null\r\n").unwrap();
    assert_eq!(format.schema(), "a i32\nb bool null\n");
}

#[test]
fn descriptions_are_refused_with_the_line() {
    let cases = [
        ("", "line 1: found ``, expected `crossdock-format/1 natural BYTES`"),
        ("crossdock-format/2 natural 8\na i8 at 4 size 1 little\n", "line 1: found `crossdock-format/2"),
        ("crossdock-format/1 natural 16\na i8 at 4 size 1 little\n", "line 1: not the canonical description"),
        ("crossdock-format/1 natural 8\na i8 at 5 size 1 little\n", "line 2: not the canonical description"),
        ("crossdock-format/1 natural 8\na i8 at 4 size 1 big\n", "line 2: not the canonical description"),
        ("crossdock-format/1 natural 8\na i8 at 4 size 1 little", "line 2: not the canonical description"),
        ("crossdock-format/1 natural 8\na i8 at 4 size 1 little\n\n", "line 3: not the canonical description"),
        ("crossdock-format/1 natural 8\na i9 at 4 size 1 little\n", "line 2: `i9` is no field type"),
        ("crossdock-format/1 natural 8\na i8\na i8\n", "line 3: there are two fields of the name `a`"),
        ("crossdock-format/1 natural 8\n", "a format has at least one field"),
    ];
    for (text, message) in cases {
        let error = Format::parse(text).unwrap_err().to_string();
        assert!(error.starts_with(message), "{text:?}: {error}");
    }
}

#[test]
fn formats_are_bounded() {
    let many = |fields: usize| Format::natural((0..fields).map(|n| FieldSpec::new(format!("f{n}"), FieldType::Bool)));
    assert!(many(MAX_FIELDS).is_ok());
    assert_eq!(many(MAX_FIELDS + 1).unwrap_err().problem, FormatProblem::TooManyFields);
    let wide =
        |fields: usize| Format::natural((0..fields).map(|n| FieldSpec::new(format!("f{n}"), FieldType::Char(65535))));
    assert!(wide(15).is_ok());
    assert!(matches!(wide(17).unwrap_err().problem, FormatProblem::FixedPartTooLong { .. }));
    assert!(matches!(
        Format::natural([FieldSpec::new("x", FieldType::Char(0))]).unwrap_err().problem,
        FormatProblem::EmptyChar { .. }
    ));
    let endless = Format::parse_schema(&"x bool\n".repeat(MAX_FIELDS + 1)).unwrap_err();
    assert_eq!(endless.line, Some(MAX_FIELDS + 1));
}

#[test]
fn types_read_back() {
    for word in "bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 timestamp char[1] char[65535] string bytes".split(' ') {
        assert_eq!(word.parse::<FieldType>().unwrap().to_string(), word);
    }
    for word in ["", "Bool", "char", "char[]", "char[-1]", "char[01]", "char[1", "int"] {
        assert!(word.parse::<FieldType>().is_err(), "{word}");
    }
    for text in ["", "0", "00000000000000000", "000000000000000g", "+00000000000000f"] {
        assert!(text.parse::<FormatId>().is_err(), "{text}");
    }
}
