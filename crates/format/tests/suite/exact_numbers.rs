//! Numbers are never rounded in silence: neither by an inferred type, nor on their way into a field of floats.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use crossdock_format::encoding::{self, Encoding, EncodingOptions, Loss};
use crossdock_format::json::{JsonDecoder, JsonInferOptions, JsonOptions, infer_json_sample};
use crossdock_format::{Format, Record, Value};

fn infer(sample: &str) -> String {
    match infer_json_sample(sample.as_bytes(), true, &JsonInferOptions::default()) {
        Ok(format) => format.schema().trim_end().to_owned(),
        Err(error) => error.to_string(),
    }
}

/// Members `x` with these values, a line each.
fn lines(values: &[&str]) -> String {
    values.iter().map(|value| format!("{{\"x\":{value}}}\n")).collect()
}

#[test]
fn inferred_types_hold_every_number() {
    let cases: &[(&[&str], &str)] = &[
        (&["1", "-2"], "x i64"),
        (&["18446744073709551615", "1"], "x u64"),
        (&["18446744073709551615", "-1"], "x decimal(16, scale 0)"),
        (&["-1", "9223372036854775808"], "x decimal(16, scale 0)"),
        (&["18446744073709551616"], "x decimal(16, scale 0)"),
        (&["9007199254740993", "1"], "x i64"),
        (&["9007199254740992", "0.5"], "x f64"),
        (&["9007199254740993", "0.5"], "x decimal(16, scale 1)"),
        (&["0.25", "9007199254740993"], "x decimal(16, scale 2)"),
        (&["1e300", "5"], "x f64"),
        (&["-0", "5"], "x f64"),
        (&["12345678901234567000", "0.5"], "x f64"),
    ];
    for (values, expected) in cases {
        assert_eq!(infer(&lines(values)), *expected, "{values:?}");
    }
}

#[test]
fn numbers_that_no_type_holds_are_an_error_with_their_place() {
    let cases: &[&[&str]] = &[
        &["1", "1e300", "9007199254740993"],
        &["9007199254740993", "2", "1e300"],
        &["1", "2", "340282366920938463463374607431768211456"],
    ];
    for values in cases {
        let error = infer(&lines(values));
        assert!(error.starts_with("line 3, field `x`: found ") && error.contains("rounded"), "{values:?}: {error}");
    }
    let nested = infer("{\"a\":{\"b\":[1e300]}}\n{\"a\":{\"b\":[9007199254740993]}}\n");
    assert!(nested.starts_with("line 2, field `a.b[]`: found 9007199254740993"), "{nested}");
}

#[test]
fn inferred_numbers_read_back_digit_by_digit() {
    let sample = lines(&["18446744073709551615", "-1", "9007199254740993", "0.5"]);
    let format = infer_json_sample(sample.as_bytes(), true, &JsonInferOptions::default()).unwrap();
    let mut decoder = JsonDecoder::new(&format, &JsonOptions::default());
    let (mut input, mut found) = (sample.as_bytes(), Vec::new());
    while let Some(record) = decoder.next_record(&mut input).unwrap() {
        match Record::check(&format, record).unwrap().get(0) {
            Value::Decimal { unscaled, .. } => found.push(unscaled),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(found, [184467440737095516150, -10, 90071992547409930, 5]);
}

/// The values of field 0, or the errors.
fn read(encoding: Encoding, schema: &str, input: &[u8], allow: &[Loss]) -> Vec<Result<String, String>> {
    let format = Format::parse_schema(schema).unwrap();
    let options = EncodingOptions { allow: allow.to_vec(), ..EncodingOptions::default() };
    let mut decoder = encoding::decoder(encoding, &format, None, &options).unwrap();
    let (mut input, mut found) = (input, Vec::new());
    loop {
        match decoder.next_record(&mut input) {
            Ok(Some(record)) => found.push(Ok(format!("{:?}", Record::check(&format, record).unwrap().get(0)))),
            Ok(None) => return found,
            Err(error) => {
                assert!(error.is_item(), "{error}");
                found.push(Err(error.to_string()));
            }
        }
    }
}

/// Records of one `i64`, in an encoding that we write.
fn written(encoding: Encoding, schema: &str, numbers: &[i64]) -> Vec<u8> {
    let format = Format::parse_schema(schema).unwrap();
    let mut encoder = encoding::encoder(encoding, &format, None, &EncodingOptions::default()).unwrap();
    let mut builder = crossdock_format::RecordBuilder::new(&format);
    let mut out = Vec::new();
    encoder.start(&mut out);
    for number in numbers {
        builder.clear();
        builder.set_i64(0, *number).unwrap();
        encoder.record(&Record::check(&format, builder.finish().unwrap()).unwrap(), &mut out).unwrap();
    }
    encoder.finish(&mut out).unwrap();
    out
}

#[test]
fn an_integer_between_two_floats_is_refused_unless_rounding_is_allowed() {
    const BETWEEN: i64 = (1 << 53) + 1;
    const NARROW: i64 = (1 << 24) + 1;
    for encoding in Encoding::ALL {
        if matches!(encoding, Encoding::Avro | Encoding::AvroFile | Encoding::Protobuf | Encoding::Binary) {
            // Their schemas distinguish integers from floats.
            continue;
        }
        for (ty, between, rounded) in [("f64", BETWEEN, "9007199254740992.0"), ("f32", NARROW, "16777216.0")] {
            let input = written(encoding, "a i64\nb i64 null", &[between, between - 1, -between]);
            let schema = format!("a {ty}\nb i64 null");
            let found = read(encoding, &schema, &input, &[]);
            assert_eq!(found.len(), 3, "{encoding}: {found:?}");
            assert_eq!(found[1], Ok(format!("Float({rounded})")), "{encoding}");
            for refused in [&found[0], &found[2]] {
                let error = refused.as_ref().unwrap_err();
                assert!(error.contains(&between.to_string()) && error.contains("`a`"), "{encoding}: {error}");
                assert!(error.contains("--allow rounding"), "{encoding}: {error}");
            }
            let allowed = read(encoding, &schema, &input, &[Loss::Rounding]);
            assert_eq!(allowed[0], Ok(format!("Float({rounded})")), "{encoding}");
            assert_eq!(allowed[2], Ok(format!("Float(-{rounded})")), "{encoding}");
        }
    }
}

#[test]
fn an_integer_beyond_64_bits_is_not_rounded_either() {
    for (schema, input) in [
        ("a f64", "{\"a\":18446744073709551617}\n"),
        ("a f64\nl f64[] null", "{\"a\":18446744073709551617}\n"),
        ("a f64", "{\"a\":-123456789012345678901234567890123456789012}\n"),
    ] {
        let found = read(Encoding::Json, schema, input.as_bytes(), &[]);
        assert!(found[0].as_ref().is_err_and(|error| error.contains("--allow rounding")), "{found:?}");
        assert!(read(Encoding::Json, schema, input.as_bytes(), &[Loss::Rounding])[0].is_ok());
    }
    let list = "{\"l\":[1,9007199254740993]}\n";
    let found = read(Encoding::Json, "l f64[]", list.as_bytes(), &[]);
    assert!(found[0].as_ref().is_err_and(|error| error.contains("`l[1]`")), "{found:?}");
    let csv = "l\n\"[1,9007199254740993]\"\n";
    assert!(read(Encoding::Csv, "l f64[]", csv.as_bytes(), &[])[0].is_err());
    assert!(read(Encoding::Csv, "l f64[]", csv.as_bytes(), &[Loss::Rounding])[0].is_ok());
}

#[test]
fn floats_as_programs_write_them_are_taken() {
    // JavaScript, Python, C.
    for number in ["12345678901234567000", "1.2345678901234567e+19", "12345678901234567000.000000"] {
        let input = format!("{{\"a\":{number}}}\n");
        let expected = Ok("Float(1.2345678901234567e19)".to_owned());
        assert_eq!(read(Encoding::Json, "a f64", input.as_bytes(), &[])[0], expected, "{number}");
        assert_eq!(read(Encoding::Csv, "a f64", format!("a\n{number}\n").as_bytes(), &[])[0], expected, "{number}");
    }
}
