//! Inference: what a sample says, and what it does not say.

use crossdock_format::Format;
use crossdock_format::csv::{CsvDecoder, CsvOptions, InferOptions, infer_csv, infer_csv_sample};

fn infer(sample: &str, options: &InferOptions) -> String {
    infer_csv_sample(sample.as_bytes(), true, &CsvOptions::default(), options).expect("a sound header").schema()
}

/// One column with these values.
fn column(values: &[&str]) -> String {
    let rows = values.iter().map(|value| [value]);
    let format = infer_csv(&["x"], rows, &CsvOptions::default(), &InferOptions::default()).expect("a sound name");
    format.schema().trim_end().to_owned()
}

#[test]
fn each_type_is_found_by_what_its_values_look_like() {
    let cases: &[(&[&str], &str)] = &[
        (&["1", "-2", "0"], "x i64"),
        (&["1", "NA", ""], "x i64 null"),
        (&[" 7", "8 "], "x i64"),
        (&["9223372036854775808", "1"], "x u64"),
        (&["9223372036854775808", "-1"], "x string"),
        (&["99999999999999999999"], "x string"),
        (&["00501", "10001"], "x string"),
        (&["+4912345", "+4912346"], "x string"),
        (&["0", "-0", "0.5"], "x f64"),
        (&["1", "2.5", "1e3"], "x f64"),
        (&["1.0", "9007199254740993"], "x string"),
        (&["1.0", "99999999999999999999"], "x string"),
        (&["01.5", "1.5"], "x string"),
        (&["inf", "nan"], "x string"),
        (&["inf", "1.5"], "x f64"),
        (&["1e999"], "x string"),
        (&["true", "FALSE", "True"], "x bool"),
        (&["t", "f"], "x string"),
        (&["2013-01-01T10:00:00Z", "2013-01-01T10:00:00.5+01:00"], "x timestamp"),
        (&["2013-01-01T10:00:00Z", "NA"], "x timestamp null"),
        (&["2013-01-01"], "x string"),
        (&["1", "a"], "x string"),
        (&["NA", "NA"], "x string"),
        (&["NA", "ab"], "x string"),
        (&["NA", "true"], "x bool null"),
        (&["", "ab"], "x string null"),
        (&[], "x string"),
    ];
    for (values, expected) in cases {
        assert_eq!(column(values), *expected, "{values:?}");
    }
}

#[test]
fn flights_and_weather_are_as_they_should_be() {
    let flights = "year,dep_time,carrier,tailnum,origin,air_time,time_hour\n\
                   2013,517,UA,N14228,EWR,227,2013-01-01T10:00:00Z\n\
                   2013,NA,EV,N18120,EWR,NA,2013-01-01T21:00:00Z\n\
                   2013,600,B6,N619A,JFK,158,2013-01-02T11:00:00Z\n";
    let plain = "year i64\ndep_time i64 null\ncarrier string\ntailnum string\norigin string\nair_time i64 null\ntime_hour timestamp\n";
    assert_eq!(infer(flights, &InferOptions::default()), plain);
    let small = InferOptions { narrow_integers: true, codes_as_char: true, ..InferOptions::default() };
    assert_eq!(
        infer(flights, &small),
        "year i16\ndep_time i16 null\ncarrier char[2]\ntailnum string\norigin char[3]\nair_time i16 null\ntime_hour timestamp\n"
    );
    let nullable = InferOptions { all_nullable: true, ..InferOptions::default() };
    assert_eq!(infer(flights, &nullable), plain.replace(" null", "").replace('\n', " null\n"));
    let weather = "origin,temp,wind_gust,precip,time_hour\n\
                   EWR,39.02,NA,0,2013-01-01T06:00:00Z\n\
                   EWR,39.02,20.7,0,2013-01-01T07:00:00Z\n";
    assert_eq!(
        infer(weather, &InferOptions::default()),
        "origin string\ntemp f64\nwind_gust f64 null\nprecip i64\ntime_hour timestamp\n"
    );
}

#[test]
fn quotes_do_not_make_text_and_quoted_null_words_are_null_only_elsewhere() {
    let sample = "n,t\n\"1\",\"NA\"\n\"NA\",\"ab\"\n";
    assert_eq!(infer(sample, &InferOptions::default()), "n i64 null\nt string\n");
    let csv = CsvOptions { quoted_nulls: true, ..CsvOptions::default() };
    let format = infer_csv_sample(sample.as_bytes(), true, &csv, &InferOptions::default()).unwrap();
    assert_eq!(format.schema(), "n i64 null\nt string\n");
}

#[test]
fn a_sample_may_be_cut_and_have_bad_rows() {
    let sample = "\u{feff},b\r\n1,2\r\nonly one\r\n3,4\r\n5,sixteen";
    let csv = CsvOptions::default();
    let cut = infer_csv_sample(sample.as_bytes(), false, &csv, &InferOptions::default()).unwrap();
    assert_eq!(cut.schema(), "column_1 i64\nb i64\n");
    assert_eq!(infer(sample, &InferOptions::default()), "column_1 i64\nb string\n");
    // The same rule names the column where the rows are read.
    let mut input = sample.as_bytes();
    let mut decoder = CsvDecoder::from_header(&cut, &mut input, &csv).unwrap();
    assert!(decoder.next_record(&mut input).unwrap().is_some());
    let open = infer_csv_sample(b"a,b\n1,\"2\n3,4\n", true, &csv, &InferOptions::default()).unwrap();
    assert_eq!(open.schema(), "a i64\nb i64\n");
}

#[test]
fn headers_that_make_no_format_are_refused() {
    let csv = CsvOptions::default();
    let message =
        |sample: &[u8], whole| infer_csv_sample(sample, whole, &csv, &InferOptions::default()).unwrap_err().to_string();
    assert_eq!(message(b"", true), "found nothing, expected a header row with the names of the columns");
    assert_eq!(message(b"a,b,c", false), "found nothing, expected a header row with the names of the columns");
    assert_eq!(message(b"a,b,a\n", true), "the header makes no format: there are two fields of the name `a`");
    let wide = vec!["x"; 5000].join(",");
    assert!(message(wide.as_bytes(), true).contains("at most 4096 fields"));
}

#[test]
fn every_sample_can_be_read_with_the_format_it_gave() {
    use proptest::prelude::*;
    let cell = "-?[0-9]{0,20}|[0-9]{1,3}\\.[0-9]{1,3}|true|FALSE|NA|\"NA\"|[ab]{0,3}|2013-01-01T00:00:00Z|nan|-inf|1e[0-9]{1,3}|\"a,b\"| 1 |\\+1";
    proptest!(|(rows in prop::collection::vec((cell, cell), 0..6), all_nullable: bool, narrow_integers: bool, codes_as_char: bool)| {
        let mut text = "a,b\n".to_owned();
        for (a, b) in &rows {
            text.push_str(&format!("{a},{b}\n"));
        }
        let csv = CsvOptions::default();
        let options = InferOptions { all_nullable, narrow_integers, codes_as_char, no_header: false };
        let format: Format = infer_csv_sample(text.as_bytes(), true, &csv, &options).unwrap();
        let mut input = text.as_bytes();
        let mut decoder = CsvDecoder::from_header(&format, &mut input, &csv).unwrap();
        for _ in &rows {
            let outcome = decoder.next_record(&mut input);
            prop_assert!(matches!(outcome, Ok(Some(_))), "{} {text:?} {outcome:?}", format.schema());
        }
    });
}
