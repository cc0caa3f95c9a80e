//! JSON lines: what is written reads back, serde_json reads it too, and what is wrong is named and skipped.

use std::collections::BTreeMap;
use std::io::BufReader;

use crate::any::{payload as any_payload, records as any_records};
use crate::arbitrary::{Owned, payload, rows};
use crate::tree::Tree;
use crossdock_format::json::{JsonDecoder, JsonEncoder, JsonOptions};
use crossdock_format::{Format, Record, Value};
use proptest::collection::vec;
use proptest::prelude::*;

fn encode(format: &Format, payload: &[u8]) -> Vec<u8> {
    let encoder = JsonEncoder::new(format);
    let mut text = Vec::new();
    let records = format.check_records(payload, |start, len| {
        let record = &payload[start as usize..(start + len) as usize];
        encoder.record(&Record::assume_checked(format, record), &mut text);
    });
    records.expect("sound records");
    text
}

/// All records, back to back, and the errors in words.
fn decode(format: &Format, text: &[u8], buffer_bytes: usize, options: &JsonOptions) -> (Vec<u8>, Vec<String>) {
    let mut decoder = JsonDecoder::new(format, options);
    let mut input = BufReader::with_capacity(buffer_bytes, text);
    let (mut payload, mut errors) = (Vec::new(), Vec::new());
    loop {
        match decoder.next_record(&mut input) {
            Ok(Some(record)) => payload.extend_from_slice(record),
            Ok(None) => return (payload, errors),
            Err(error) => {
                errors.push(error.to_string());
                // The bytes between the elements of an array.
                if !error.is_row() {
                    return (payload, errors);
                }
            }
        }
    }
}

/// A field of every type that is a single value, but decimals.
const ANY_TYPE: &str = "a i8 null\nb u16\nc i64 null\nd u64 null\ne f32 null\nf f64\ng bool null\nh char[3] null\n\
    i string null\nj timestamp null\nk enum u8 { red = 1, blue = 2 } null";

/// The result of `serde_json` for a line, and what its values are to the fields of a flat format.
mod oracle {
    use crossdock_format::{FieldType, Format, Value};
    use serde::de::{Deserializer, MapAccess, Visitor};
    use serde_json::value::RawValue;

    /// The members of an object in their order, those that are there twice too.
    struct Members(Vec<(String, Box<RawValue>)>);

    impl<'de> serde::Deserialize<'de> for Members {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct All;
            impl<'de> Visitor<'de> for All {
                type Value = Members;

                fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.write_str("an object")
                }

                fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                    let mut members = Vec::new();
                    while let Some(member) = map.next_entry()? {
                        members.push(member);
                    }
                    Ok(Members(members))
                }
            }
            deserializer.deserialize_map(All)
        }
    }

    /// The values in words, `None` for one that is left open; `None` for a line that is no record.
    pub(super) fn read(format: &Format, line: &[u8], ignore_unknown: bool) -> Option<Vec<Option<String>>> {
        let Members(members) = serde_json::from_slice(line).ok()?;
        let mut values: Vec<Option<Option<String>>> = vec![None; format.fields().len()];
        for (name, value) in members {
            let Some(index) = format.fields().iter().position(|field| field.name == name) else {
                // Halves of characters are refused wherever they are.
                let is_text = !value.get().starts_with('"') || serde_json::from_str::<String>(value.get()).is_ok();
                (ignore_unknown && is_text).then_some(())?;
                continue;
            };
            let field = &format.fields()[index];
            let value = value_of(field.ty, field.nullable, value.get())?;
            if values[index].replace(value).is_some() {
                return None;
            }
        }
        let fields = format.fields().iter().zip(values);
        fields.map(|(field, value)| value.or_else(|| field.nullable.then(|| Some("Null".to_owned())))).collect()
    }

    /// `None` for what is no value of the field; within, `None` for one that is left open.
    fn value_of(ty: FieldType, nullable: bool, value: &str) -> Option<Option<String>> {
        if value == "null" {
            return nullable.then(|| Some("Null".to_owned()));
        }
        let text: Option<String> = serde_json::from_str(value).ok();
        if nullable && text.as_deref() == Some("NA") {
            return Some(Some("Null".to_owned()));
        }
        let is_number = value.starts_with(|first: char| first == '-' || first.is_ascii_digit());
        let is_whole = is_number && value != "-0" && !value.contains(['.', 'e', 'E']);
        let whole: Option<i128> = value.parse().ok().filter(|_| is_whole);
        let found = match (ty, text.as_deref()) {
            (FieldType::Bool, _) => Value::Bool(serde_json::from_str(value).ok()?),
            (FieldType::String, Some(text)) => Value::Text(text.as_bytes()),
            (FieldType::Char(room), Some(text)) => {
                (text.len() <= room.into() && !text.ends_with('\0')).then_some(Value::Text(text.as_bytes()))?
            }
            // Dates, and times without a zone, are of UTC.
            (FieldType::Timestamp, Some(text)) => match text.trim().parse::<jiff::Timestamp>() {
                Ok(time) => Value::Timestamp(time.as_nanosecond().try_into().ok()?),
                Err(_) => return Some(None),
            },
            (FieldType::Enum { .. }, text) => {
                let number = match text {
                    Some("red") => 1,
                    Some("blue") => 2,
                    Some(text) => text.trim_ascii().parse().ok()?,
                    None => whole?,
                };
                let symbol = match number {
                    1 => Some("red"),
                    2 => Some("blue"),
                    _ => None,
                };
                Value::Enum { number: u8::try_from(number).ok()?.into(), symbol }
            }
            (FieldType::F32 | FieldType::F64, Some(text)) if !text.contains(|c: char| c.is_ascii_digit()) => {
                Value::Float(text.trim_ascii().parse().ok()?)
            }
            // One that would be rounded is refused, unless it is how JavaScript writes a float.
            (FieldType::F32 | FieldType::F64, None) if is_whole && value.len() > 7 => return Some(None),
            (FieldType::F32, None) if is_number => {
                Value::Float(value.parse::<f32>().ok().filter(|value| value.is_finite())?.into())
            }
            (FieldType::F64, None) if is_number => {
                Value::Float(value.parse().ok().filter(|value: &f64| value.is_finite())?)
            }
            (ty, None) => {
                let (least, most) = ty.integer_range()?;
                let number = whole.filter(|number| (least..=most).contains(number))?;
                match (least, u64::try_from(number)) {
                    (0, Ok(number)) => Value::Uint(number),
                    _ => Value::Int(number.try_into().ok()?),
                }
            }
            _ => return None,
        };
        Some(Some(format!("{found:?}")))
    }
}

/// A line with any members, some of them fields.
fn any_line() -> impl Strategy<Value = Vec<u8>> {
    let text = "[ -~é\\\\\\x00]{0,20}|NA|red|blue|2013-01-01T10:00:00(\\.[0-9]{1,9})?(Z|z|\\+00:00)";
    let value = prop_oneof![
        "-?[0-9]{1,20}",
        "-?[0-9]{1,3}",
        "-?[0-9]{1,9}\\.[0-9]{1,9}",
        "-?[0-9]{0,20}(\\.[0-9]{0,20})?([eE][+-]?[0-9]{0,3})?",
        "null|true|false|nul|[tfn]",
        text.prop_map(|text| format!("\"{text}\"")),
        r#""([a-zé]|\\["\\/bfnrtx]|\\u[0-9a-fA-F]{4}|\\u[dD][89a-f]3d\\ude[0-9a-g]{2}){0,6}""#,
        "\\[[0-9]{0,2}\\]|\\{\\}",
    ];
    let names = proptest::sample::subsequence(vec!["a", "c", "d", "e", "g", "h", "i", "j", "k"], 0..=9).prop_shuffle();
    let more = prop::option::weighted(0.1, "[a-kz]");
    (names, more, vec((" {0,2}", value), 10)).prop_map(|(names, more, values)| {
        let names = names.into_iter().chain(more.as_deref());
        let members =
            names.zip(&values).map(|(name, (blank, value))| format!("\"{name}\"{blank}:{blank}{value}{blank},"));
        format!("{{{}\"b\":7,\"f\":0.5}}", members.collect::<String>()).into_bytes()
    })
}

fn json_byte() -> impl Strategy<Value = u8> {
    prop_oneof![any::<u8>(), proptest::sample::select(b"0123456789-+.eE\"\\{}[]:, \tnabfu".to_vec())]
}

/// Any JSON value.
fn any_json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        "-?(0|[1-9][0-9]{0,20})(\\.[0-9]{1,3})?([eE][+-]?[0-9]{1,2})?",
        "null|true|false",
        r#""([a-zé ]|\\["\\/bfnrt]|\\u[0-9a-cA-C][0-9a-f]{3}|\\ud83d\\ude0[0-9a-f]){0,5}""#,
    ];
    let name = "[a-zé]{0,3}";
    leaf.prop_recursive(4, 20, 4, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(|items| format!("[ {} ]", items.join(" , "))),
            vec((name, inner), 0..4).prop_map(|members| {
                let members: Vec<String> = members.iter().map(|(name, value)| format!("\"{name}\" :{value}")).collect();
                format!("{{{}}}", members.join(","))
            }),
        ]
    })
}

/// A line as programs write it, with a few bytes of it changed.
fn changed_line() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![any::<u8>(), proptest::sample::select(b"0123456789-+.eE\"\\{}[]:, \tnabf".to_vec())];
    let changes = vec((any::<prop::sample::Index>(), prop::option::of(byte)), 0..4);
    (any::<(i8, u16, i64, u64, f32, f64, bool)>(), "[a-z ]{0,3}", "[a-z ]{0,12}", changes).prop_map(
        |((a, b, c, d, e, f, g), h, i, changes)| {
            let line = format!(
                "{{\"a\":{a},\"b\":{b},\"c\":{c},\"d\":{d},\"e\":{e:?},\"f\":{f:?},\"g\":{g},\"h\":\"{h}\",\"i\":\"{i}\",\
                 \"j\":\"2013-01-01T10:00:00Z\",\"k\":\"blue\"}}"
            );
            let mut line = line.into_bytes();
            for (at, byte) in changes {
                let at = at.index(line.len());
                match byte {
                    Some(byte) => line[at] = byte,
                    None => drop(line.remove(at)),
                }
            }
            line
        },
    )
}

proptest! {
    #[test]
    fn records_read_back((format, rows) in rows(), buffer_bytes in 1_usize..300) {
        let payload = payload(&format, &rows);
        let text = encode(&format, &payload);
        let (back, errors) = decode(&format, &text, buffer_bytes, &JsonOptions::default());
        prop_assert!(errors.is_empty(), "{errors:?} in {}", String::from_utf8_lossy(&text));
        prop_assert_eq!(back, payload);
    }

    #[test]
    fn serde_json_reads_what_is_written((format, rows) in rows()) {
        use serde_json::Value as Json;
        let text = String::from_utf8(encode(&format, &payload(&format, &rows))).unwrap();
        prop_assert_eq!(text.matches('\n').count(), rows.len());
        for (line, row) in text.lines().zip(&rows) {
            let Json::Object(object) = serde_json::from_str(line).unwrap() else { panic!("no object: {line}") };
            prop_assert_eq!(object.len(), row.len());
            for (field, value) in format.fields().iter().zip(row) {
                let found = &object[&field.name];
                match value {
                    Owned::Null => prop_assert!(found.is_null()),
                    Owned::Bool(value) => prop_assert_eq!(found.as_bool(), Some(*value)),
                    Owned::Int(value) => prop_assert_eq!(found.as_i64(), Some(*value)),
                    Owned::Uint(value) => prop_assert_eq!(found.as_u64(), Some(*value)),
                    Owned::Float(value) if value.is_infinite() => {
                        prop_assert_eq!(found.as_str(), Some(if *value > 0.0 { "inf" } else { "-inf" }));
                    }
                    Owned::Float(value) => {
                        let found = found.as_f64().unwrap();
                        prop_assert!(found == *value || f64::from(found as f32) == *value);
                    }
                    Owned::Timestamp(value) => {
                        let found: jiff::Timestamp = found.as_str().unwrap().parse().unwrap();
                        prop_assert_eq!(found.as_nanosecond(), i128::from(*value));
                    }
                    Owned::Text(value) => prop_assert_eq!(found.as_str(), Some(value.as_str())),
                    Owned::Bytes(_) => prop_assert!(found.is_string()),
                }
            }
        }
    }

    #[test]
    fn serde_json_and_we_read_each_others_nested_records((format, payload) in any_payload(), buffer_bytes in 1_usize..300) {
        use serde_json::Value as Json;
        let records = any_records(&format, &payload);
        let trees: Vec<Tree> = records.iter().map(Tree::of).collect();
        let text = String::from_utf8(encode(&format, &payload)).unwrap();
        prop_assert_eq!(text.lines().count(), trees.len());
        let mut theirs = String::new();
        for (line, tree) in text.lines().zip(&trees) {
            let written = serde_json::to_string(tree).unwrap();
            let found: Json = serde_json::from_str(line).unwrap();
            prop_assert_eq!(found, serde_json::from_str::<Json>(&written).unwrap(), "{}", line);
            theirs.push_str(&written);
            theirs.push('\n');
        }
        let (back, errors) = decode(&format, theirs.as_bytes(), buffer_bytes, &JsonOptions::default());
        prop_assert!(errors.is_empty(), "{errors:?} in {theirs}");
        prop_assert_eq!(any_records(&format, &back), records, "{}", theirs);
    }

    #[test]
    fn members_come_in_any_order_and_any_notation((format, rows) in rows(), turn in any::<prop::sample::Index>()) {
        let payload = payload(&format, &rows);
        let mut other = String::new();
        for line in String::from_utf8(encode(&format, &payload)).unwrap().lines() {
            let object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(line).unwrap();
            let mut members: Vec<String> = object
                .iter()
                // A name in escapes is the same name.
                .map(|(name, value)| {
                    let name: String = name.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
                    format!(" \"{name}\" :\t{value} ")
                })
                .collect();
            let turn = turn.index(members.len());
            members.rotate_left(turn);
            other.push_str(&format!("\n  {{{}}} \r\n", members.join(",")));
        }
        let (back, errors) = decode(&format, other.as_bytes(), 64, &JsonOptions::default());
        prop_assert!(errors.is_empty(), "{errors:?} in {other}");
        let mut found = Vec::new();
        let _ = format.check_records(&back, |start, len| found.push((start as usize, (start + len) as usize)));
        prop_assert_eq!(found.len(), rows.len());
        for ((start, end), row) in found.into_iter().zip(&rows) {
            let record = Record::check(&format, &back[start..end]).unwrap();
            for (field, value) in row.iter().enumerate() {
                prop_assert_eq!(record.get(field), value.value());
            }
        }
    }

    #[test]
    fn lines_are_read_as_the_library_reads_them(
        line in prop_oneof![any_line(), changed_line()],
        ignore_unknown_fields in any::<bool>(),
    ) {
        let null_words = vec!["NA".to_owned()];
        let options = JsonOptions { ignore_unknown_fields, null_words, ..JsonOptions::default() };
        let format = Format::parse_schema(ANY_TYPE).unwrap();
        let mut decoder = JsonDecoder::new(&format, &options);
        let found = decoder.decode(&line).map(|record| {
            let record = Record::check(&format, record).unwrap();
            // As text, since a negative zero is another text.
            (0..11).map(|field| format!("{:?}", record.get(field))).collect::<Vec<_>>()
        });
        let shown = String::from_utf8_lossy(&line);
        match (found, oracle::read(&format, &line, ignore_unknown_fields)) {
            (Ok(found), Some(expected)) => {
                for (found, expected) in found.iter().zip(expected) {
                    prop_assert!(expected.as_ref().is_none_or(|expected| expected == found), "{found} {expected:?} {shown}");
                }
            }
            (Err(_), None) => {}
            // Whether it fits was left open.
            (Err(_), Some(expected)) if expected.contains(&None) => {}
            (found, expected) => prop_assert!(false, "{found:?}, not {expected:?}: {shown}"),
        }
    }

    /// Passed over text is JSON as the library has it, and nothing else.
    #[test]
    fn passed_over_text_is_that_of_the_library(
        value in any_json(),
        changes in vec((any::<prop::sample::Index>(), prop::option::of(json_byte())), 0..3),
    ) {
        let mut line = format!("{{\"x\":{value},\"a\":1}}").into_bytes();
        for (at, byte) in changes {
            let at = at.index(line.len());
            match byte {
                Some(byte) => line[at] = byte,
                None => drop(line.remove(at)),
            }
        }
        let format = Format::parse_schema("a i8 null").unwrap();
        let options = JsonOptions { ignore_unknown_fields: true, ..JsonOptions::default() };
        let found = JsonDecoder::new(&format, &options).decode(&line).map(|_| ());
        // The library does not look whether what it passes over is UTF-8, nor for halves of characters.
        let is_json = str::from_utf8(&line)
            .is_ok_and(|line| serde_json::from_str::<BTreeMap<String, serde::de::IgnoredAny>>(line).is_ok());
        // Whatever else it is, it has to be JSON; what it says of `a` may be wrong all the same.
        if let Err(error) = &found {
            let is_of_a = error.field.as_deref() == Some("a");
            let is_half = error.to_string().contains("half of a character");
            prop_assert!(!is_json || is_of_a || is_half, "{error}: {}", String::from_utf8_lossy(&line));
        }
        prop_assert!(found.is_err() || is_json, "{}", String::from_utf8_lossy(&line));
    }

    #[test]
    fn hostile_bytes_never_panic(
        (format, rows) in rows(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        noise in vec(any::<u8>(), 0..100),
    ) {
        let mut text = encode(&format, &payload(&format, &rows));
        for (at, byte) in changes {
            if !text.is_empty() {
                let at = at.index(text.len());
                text[at] = byte;
            }
        }
        text.extend_from_slice(&noise);
        for ignore_unknown_fields in [false, true] {
            let options = JsonOptions { ignore_unknown_fields, ..JsonOptions::default() };
            let (payload, _) = decode(&format, &text, 32, &options);
            let checked = format.check_records(&payload, |_, _| {});
            prop_assert!(checked.is_ok(), "{checked:?}");
            let _ = JsonDecoder::new(&format, &options).decode(&text);
        }
    }
}

const SCHEMA: &str = "code char[3]\ndelay i16 null\nok bool null\nat timestamp null\nratio f32 null\nnote string null\nraw bytes null\nbig u64 null";

#[test]
fn flaws_are_named_and_skipped() {
    let format = Format::parse_schema(SCHEMA).unwrap();
    let known = "it has: code, delay, ok, at, ratio, note, raw, big";
    let cases = [
        ("", "column 1: found nothing, expected an object"),
        ("[1]", "found an array, expected an object, one member a field"),
        ("{\"code\":\"a\"", "column 12: found the end of the text, expected `,` or `}`"),
        ("{\"code\":\"a", "column 11: found the end of the text, expected the `\"` that ends the text"),
        ("{\"code\":\"a\"} {}", "column 14: found `{`, expected nothing more"),
        ("{\"code\":\"a\",}", "column 13: found `}`, expected a name in quotes"),
        ("{\"code\":\"\\ud800\"}", "column 16: found `\"`, expected the second half of a character"),
        ("{\"code\":\"\\x\"}", "column 11: found `x`, expected one of the escapes"),
        ("{\"code\":\"\t\"}", "column 10: found `\\t`, expected an escape in its place"),
        (
            "{\"code\":\"\\ude00\"}",
            "column 12: found `d`, expected the first half of a character in front of its second",
        ),
        ("{code:1}", "column 2: found `c`, expected a name in quotes"),
        ("{\"code\" 1}", "column 9: found `1`, expected `:` behind the name"),
        ("{\"delay\":01}", "column 10: found `0`, expected a number without zeros in front"),
        ("{\"delay\":1.}", "column 12: found `}`, expected a digit"),
        ("{\"delay\":nul}", "column 10: found `n`, expected a value"),
        ("{\"delay\":1}", "field `code`: the object lacks this member, and its field is not nullable"),
        ("{\"code\":null}", "field `code`: found null, expected char[3] (UTF-8 text of at most 3 bytes)"),
        ("{\"code\":\"JFKX\"}", "field `code`: found \"JFKX\", expected char[3] (UTF-8 text of at most 3 bytes)"),
        ("{\"code\":7}", "field `code`: found 7, expected char[3] (UTF-8 text of at most 3 bytes)"),
        ("{\"code\":\"a\",\"code\":\"b\"}", "field `code`: the object has this member twice"),
        ("{\"delay\":40000}", "field `delay`: found 40000, expected i16 (-32768 to 32767), or null"),
        ("{\"delay\":1.0}", "field `delay`: found 1.0, expected i16 (-32768 to 32767), or null"),
        ("{\"delay\":\"1\"}", "field `delay`: found \"1\", expected i16 (-32768 to 32767), or null"),
        ("{\"delay\":\"NA\"}", "field `delay`: found \"NA\", expected i16 (-32768 to 32767), or null"),
        ("{\"delay\":true}", "field `delay`: found true, expected i16 (-32768 to 32767), or null"),
        ("{\"delay\":[1]}", "field `delay`: found an array, expected i16 (-32768 to 32767), or null"),
        ("{\"ok\":{\"a\":1}}", "field `ok`: found an object, expected bool (true or false), or null"),
        ("{\"ok\":\"true\"}", "field `ok`: found \"true\", expected bool (true or false), or null"),
        ("{\"ratio\":1e39}", "field `ratio`: found 1e39, expected f32 (a number, up to 3.4e38 either way), or null"),
        ("{\"ratio\":1e999}", "field `ratio`: found 1e999, expected f32"),
        ("{\"big\":-1}", "field `big`: found -1, expected u64 (0 to 18446744073709551615), or null"),
        ("{\"big\":18446744073709551616}", "field `big`: found 18446744073709551616, expected u64"),
        ("{\"raw\":\"a\"}", "field `raw`: found \"a\", expected bytes (base64), or null"),
        ("{\"at\":0}", "field `at`: found 0, expected timestamp (an RFC 3339 string, such as \"2013-01-01T10:00:00Z\""),
        ("{\"at\":\"1/1/13\"}", "field `at`: found \"1/1/13\", expected timestamp (an RFC 3339 string"),
        ("{\"gate\":1}", &format!("field `gate`: the format has no field of this name; {known}")),
    ];
    for (object, message) in cases {
        let error =
            JsonDecoder::new(&format, &JsonOptions::default()).decode(object.as_bytes()).unwrap_err().to_string();
        let expected =
            if message.starts_with("field") { format!("line 1, {message}") } else { format!("line 1: {message}") };
        assert!(error.starts_with(&expected), "{object}: {error}");

        let text = format!("{{\"code\":\"a\"}}\n\n{object}\n{{\"code\":\"b\"}}");
        let (payload, errors) = decode(&format, text.as_bytes(), 16, &JsonOptions::default());
        if object.is_empty() {
            assert!(errors.is_empty(), "a blank line is none");
        } else {
            assert_eq!(errors, [error.replace("line 1", "line 3")]);
        }
        assert_eq!(format.check_records(&payload, |_, _| {}), Ok(2));
    }
}

#[test]
fn invalid_utf_8_is_refused() {
    let format = Format::parse_schema(SCHEMA).unwrap();
    let (payload, errors) = decode(&format, b"{\"code\":\"\xff\"}\n{\"code\":\"b\"}\n", 100, &JsonOptions::default());
    let expected = "found text that is no UTF-8, \"\u{fffd}\", expected char[3] (UTF-8 text of at most 3 bytes)";
    assert_eq!(errors, [format!("line 1, field `code`: {expected}")]);
    assert_eq!(format.check_records(&payload, |_, _| {}), Ok(1));
    let options = JsonOptions { repairs_text: true, ..JsonOptions::default() };
    let (payload, errors) = decode(&format, b"{\"code\":\"\xff\"}", 100, &options);
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(Record::check(&format, &payload).unwrap().get(0), Value::Text("\u{fffd}".as_bytes()));
}

#[test]
fn values_take_what_json_has_for_them() {
    let format = Format::parse_schema(SCHEMA).unwrap();
    let options = JsonOptions { null_words: vec!["NA".to_owned()], ..JsonOptions::default() };
    let mut decoder = JsonDecoder::new(&format, &options);
    let line = br#"{"code":"NA","delay":"NA","ok":true,"at":"1970-01-01T00:00:00.000000001Z","ratio":"-inf","note":"NA","raw":"AAEC"}"#;
    let record = decoder.decode(line).unwrap().to_vec();
    let record = Record::check(&format, &record).unwrap();
    let expected = [
        // Not nullable: the word stays a word.
        Value::Text(b"NA"),
        Value::Null,
        Value::Bool(true),
        Value::Timestamp(1),
        Value::Float(f64::NEG_INFINITY),
        Value::Null,
        Value::Bytes(&[0, 1, 2]),
        Value::Null,
    ];
    assert_eq!([0, 1, 2, 3, 4, 5, 6, 7].map(|field| record.get(field)), expected);
    let record = decoder.decode(b"{\"ratio\":1,\"code\":\"\"}").unwrap().to_vec();
    assert_eq!(Record::check(&format, &record).unwrap().get(4), Value::Float(1.0));

    let mut text = Vec::new();
    let floats = Format::parse_schema("a f64\nb f32").unwrap();
    let mut builder = crossdock_format::RecordBuilder::new(&floats);
    builder.set_f64(0, f64::NAN).unwrap();
    builder.set_f64(1, 0.1).unwrap();
    JsonEncoder::new(&floats).record(&Record::check(&floats, builder.finish().unwrap()).unwrap(), &mut text);
    assert_eq!(text, b"{\"a\":\"NaN\",\"b\":0.1}\n");
    let mut decoder = JsonDecoder::new(&floats, &JsonOptions::default());
    let record = decoder.decode(&text).unwrap();
    assert!(matches!(Record::check(&floats, record).unwrap().get(0), Value::Float(value) if value.is_nan()));
}

/// Its decimal is nearest to another `f32` when it has become an `f64` in between.
#[test]
fn an_f32_is_rounded_once() {
    let value = f32::from_bits(0x15ae_43fd);
    let format = Format::parse_schema("a f32").unwrap();
    let mut builder = crossdock_format::RecordBuilder::new(&format);
    builder.set_f64(0, value.into()).unwrap();
    let record = builder.finish().unwrap().to_vec();
    let text = encode(&format, &record);
    assert_eq!(text, b"{\"a\":7.038531e-26}\n");
    assert_eq!(decode(&format, &text, 100, &JsonOptions::default()), (record, vec![]));
}

#[test]
fn text_that_is_not_utf_8_is_still_json() {
    let format = Format::parse_schema("a string").unwrap();
    let mut builder = crossdock_format::RecordBuilder::new(&format);
    builder.set_text(0, b"a\xffb\"\n").unwrap();
    let mut text = Vec::new();
    JsonEncoder::new(&format).record(&Record::check(&format, builder.finish().unwrap()).unwrap(), &mut text);
    assert_eq!(String::from_utf8(text).unwrap(), "{\"a\":\"a\u{fffd}b\\\"\\n\"}\n");
}

#[test]
fn passed_over_text_has_a_bound() {
    let format = Format::parse_schema("a i8").unwrap();
    let options = JsonOptions { ignore_unknown_fields: true, max_line_bytes: 400, ..JsonOptions::default() };
    let nested = |depth: usize| format!("{{\"x\":{}1{},\"a\":1}}\n", "[".repeat(depth), "]".repeat(depth));
    let most = crossdock_format::MAX_NESTING;
    let objects = format!("{{\"x\":{}1{},\"a\":1}}\n", "{\"k\":".repeat(most), "}".repeat(most));
    let long = format!("{{\"a\":1{}}}\n", " ".repeat(400));
    // The nesting around them counts.
    let text = [nested(most - 1), nested(most), nested(100), objects, long, "{\"a\":1}".to_owned()].concat();
    let deep = "found values that nest more than 48 levels deep";
    for buffer_bytes in [1, 7, 100, 1000] {
        let (payload, errors) = decode(&format, text.as_bytes(), buffer_bytes, &options);
        assert_eq!(
            errors,
            [
                format!("line 2: {deep}"),
                format!("line 3: {deep}"),
                format!("line 4: {deep}"),
                "line 5: found an object of 407 bytes, expected at most 400".to_owned()
            ]
        );
        assert_eq!(format.check_records(&payload, |_, _| {}), Ok(2));
    }
}

#[test]
fn a_byte_order_mark_is_none_of_the_first_line() {
    let format = Format::parse_schema("a i8").unwrap();
    for buffer_bytes in 1..20 {
        let (payload, errors) =
            decode(&format, "\u{feff}{\"a\":1}\r\n".as_bytes(), buffer_bytes, &JsonOptions::default());
        assert!(errors.is_empty(), "{errors:?}");
        assert_eq!(format.check_records(&payload, |_, _| {}), Ok(1));
    }
}
