//! JSON that is not an object a line: arrays of objects, and objects over several lines.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::{BufReader, Read};

use crossdock_format::json::{JsonDecoder, JsonInferOptions, JsonOptions, infer_json_sample};
use crossdock_format::{Format, Record, Value};

const SCHEMA: &str = "a i64\nt string null";

/// The values of `a`, and the errors, in their order.
fn read(text: &str, buffer_bytes: usize) -> Vec<Result<i64, String>> {
    let format = Format::parse_schema(SCHEMA).unwrap();
    let options = JsonOptions { max_line_bytes: 60, ..JsonOptions::default() };
    let mut decoder = JsonDecoder::new(&format, &options);
    let mut input = BufReader::with_capacity(buffer_bytes, text.as_bytes());
    let mut found = Vec::new();
    loop {
        match decoder.next_record(&mut input) {
            Ok(Some(record)) => match Record::check(&format, record).unwrap().get(0) {
                Value::Int(value) => found.push(Ok(value)),
                other => panic!("{other:?}"),
            },
            Ok(None) => return found,
            Err(error) => {
                found.push(Err(error.to_string()));
                if !error.is_row() {
                    return found;
                }
            }
        }
    }
}

#[test]
fn arrays_and_pretty_printed_objects_are_read() {
    for text in [
        "[{\"a\":1},{\"a\":2}]",
        "[{\"a\":1},{\"a\":2}]\n",
        "\u{feff} \r\n [ {\"a\":1} , {\"a\":2} ] \n",
        "[\n  {\n    \"a\": 1,\n    \"t\": \"],[}{ \\\" \\\\\"\n  },\n  {\n    \"a\": 2\n  }\n]\n",
        "{\n  \"a\": 1\n}\n{\n  \"a\": 2\n}\n",
        "{  \r\n\"a\":1}{\"a\":2}",
        "{ \"a\": 1,\n  \"t\": \"x\" }\n{\"a\":2}\n",
        "{\"a\":\n1}\n{\"a\":\n2}",
        "[{\"a\":1}]\n[{\"a\":2}]\n[]",
        "{\"a\":1}\n{\"a\":2}\n",
    ] {
        for buffer_bytes in [1, 2, 3, 7, 1000] {
            assert_eq!(read(text, buffer_bytes), [Ok(1), Ok(2)], "{text:?} {buffer_bytes}");
        }
    }
    assert_eq!(read("[]", 10), []);
    assert_eq!(read(" [ ] ", 1), []);
}

#[test]
fn an_element_that_is_wrong_is_one_error_with_its_line() {
    let long = " ".repeat(60);
    let text = format!(
        "[\n{{\"a\":1}},\n{{\n\"a\":\"x\"}},\n7,\n\"s\", null,\n{{\"a\":{long}1}},\n{{\n\"a\":1 1\n}},\n[1],\n{{\"a\":2}}\n]"
    );
    for buffer_bytes in [1, 5, 1000] {
        let found = read(&text, buffer_bytes);
        let errors: Vec<&str> = found.iter().filter_map(|found| found.as_ref().err().map(String::as_str)).collect();
        assert_eq!((&found[0], found.last()), (&Ok(1), Some(&Ok(2))), "{found:?}");
        let expected = [
            "line 4, field `a`: found \"x\", expected i64",
            "line 5: found 7, expected an object",
            "line 6: found \"s\", expected an object",
            "line 6: found null, expected an object",
            "line 7: found an object of 67 bytes, expected at most 60",
            "line 9: column 7",
            "line 11: found an array, expected an object",
        ];
        assert_eq!(errors.len(), expected.len(), "{errors:?}");
        for (error, expected) in errors.iter().zip(expected) {
            assert!(error.starts_with(expected), "{error}, not {expected}");
        }
    }
}

#[test]
fn columns_are_those_of_the_line() {
    let text = "[{\"a\":1}, {\"a\":2 2},\n  {\"a\":x},\n  {\n   \"a\" 3},\n {\"t\":\"\n\"}]";
    for buffer_bytes in [1, 5, 1000] {
        let found: Vec<String> = read(text, buffer_bytes).into_iter().filter_map(Result::err).collect();
        let places = ["line 1: column 18: ", "line 2: column 8: ", "line 4: column 8: ", "line 5: column 8: "];
        assert_eq!(found.len(), places.len(), "{found:?}");
        assert!(found.iter().zip(places).all(|(error, place)| error.starts_with(place)), "{found:?}");
    }
}

#[test]
fn wrong_text_between_elements_ends_the_input() {
    for (text, records, error) in [
        ("[{\"a\":1} {\"a\":2}]", 1, "line 1: found `{`, expected `,` or `]`"),
        ("[{\"a\":1},\n]", 1, "line 2: found `]`, expected an object"),
        ("[{\"a\":1}", 1, "line 1: found the end of the input, expected `]` at the end of the array"),
        ("[{\"a\":1},", 1, "line 1: found the end of the input"),
        ("[", 0, "line 1: found the end of the input"),
        ("[,", 0, "line 1: found `,`, expected an object"),
        ("[{\"a\":1}]\n]", 1, "line 2: found `]`, expected an object"),
    ] {
        let found = read(text, 1);
        assert_eq!(found.len(), records + 1, "{text}: {found:?}");
        assert!(found[records].as_ref().is_err_and(|found| found.starts_with(error)), "{text}: {found:?}");
    }
    assert!(read("[{\"a\":1", 3)[0].as_ref().is_err_and(|error| error.contains("found the end of the text")));
}

/// An input that ends with a panic: nothing may be read behind what is needed.
struct Then(&'static [u8]);

impl Read for Then {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        assert!(!self.0.is_empty(), "read behind the element");
        let length = self.0.len().min(buffer.len());
        buffer[..length].copy_from_slice(&self.0[..length]);
        self.0 = &self.0[length..];
        Ok(length)
    }
}

#[test]
fn an_array_is_read_element_by_element() {
    let format = Format::parse_schema(SCHEMA).unwrap();
    let mut decoder = JsonDecoder::new(&format, &JsonOptions::default());
    let mut input = BufReader::new(Then(b"[\n{\"a\":1},{\"a\":2}"));
    for _ in 0..2 {
        assert!(decoder.next_record(&mut input).unwrap().is_some());
    }
}

#[test]
fn a_line_that_is_cut_off_costs_no_other_line() {
    let found = read("{\"a\":1\n{\"a\":2}\n", 100);
    assert!(matches!(&found[..], [Err(_), Ok(2)]), "{found:?}");
}

#[test]
fn the_format_of_an_array_is_inferred() {
    let infer = |sample: &str, whole| {
        infer_json_sample(sample.as_bytes(), whole, &JsonInferOptions::default()).map(|format| format.schema())
    };
    let expected = "z i64\na string null\n";
    for sample in [
        "[{\"z\":1,\"a\":null},{\"z\":2,\"a\":\"x\"}]",
        "[\n{\"z\":1},\n{\"z\":2,\n\"a\":\"x\"}\n]",
        "{\n\"z\":1\n}\n{\"z\":2,\"a\":\"x\"}\n",
        "{\"z\":1}\n{\"z\":2,\"a\":\"x\"}\n",
    ] {
        assert_eq!(infer(sample, true).unwrap(), expected, "{sample:?}");
    }
    // The element that is cut off says nothing.
    assert_eq!(infer("[{\"z\":1},{\"z\":2,\"a\":\"x\"},{\"z\":\"", false).unwrap(), expected);
    let error = infer("[\n{\"z\":1},\n{\"z\":\"x\"}]", true).unwrap_err().to_string();
    assert!(error.starts_with("line 3, field `z`: "), "{error}");
    assert!(infer("[]", true).is_err() && infer("[1]", true).is_err());
}
