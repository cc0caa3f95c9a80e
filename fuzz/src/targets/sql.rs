//! SQL from anywhere, over several formats: refused in words, or a program that runs over records without harm, whose plan
//! can be printed, and whose conditions, printed and read again, mean the same.
//!
//! An input is a query and the values of its parameters (`name=value`), with bytes of 255 in between. Its first byte says
//! which of the formats the query is planned for.

use crate::{nested, small_stack};
use std::collections::BTreeMap;
use std::sync::LazyLock;

use crossdock_format::json::{JsonDecoder, JsonOptions};
use crossdock_format::{Format, Record, RecordBuilder};
use crossdock_query::{Interpreter, Program, Projection, Query, StatefulQuery, parse, parse_query, parse_subscription};

/// A format, and records of it.
type Sample = (Format, Vec<Vec<u8>>);

static SAMPLES: LazyLock<Vec<Sample>> = LazyLock::new(|| {
    let flat = "a i64 null\nb bool null\ns string null\nt timestamp null\nf f64 null\nu u64\nc char[3] null\ng bytes null\n\
                ab i8\nA f32\nl i32[] null\nm string[] null";
    vec![
        sample(
            flat,
            &[
                r#"{"u":0,"ab":0,"A":0}"#,
                r#"{"a":-9223372036854775808,"b":true,"s":"a_b%\\\\ö","t":"1970-01-01T00:00:00Z","f":-0.0,"u":18446744073709551615,"c":"x","g":"AP8=","ab":-128,"A":1e30,"l":[1,-2147483648],"m":["","a_b%"]}"#,
                r#"{"a":9223372036854775807,"b":false,"s":"","t":"2262-04-11T23:47:16Z","f":1e308,"u":1,"c":"xyz","g":"","ab":127,"A":-1,"l":[],"m":[]}"#,
            ],
        ),
        sample(
            nested::SCHEMA,
            &[
                "{}",
                r#"{"a":1,"b":"x","c":{"d":true,"e":null},"f":1.5,"h":[{"i":1,"j":["x",""]}],"k":[[1,2]],"l":{"m":7},"p":"X","q":"1.25"}"#,
            ],
        ),
        sample(
            "layout foreign big packed length n\nn u8\nk char[1]\na string slot u8 u8\nb i24",
            &[r#"{"k":"A","a":"abc","b":-5}"#],
        ),
    ]
});

/// Lines that the format has no room for are left out: a sample is whatever can be made.
fn sample(schema: &str, lines: &[&str]) -> Sample {
    let format = Format::parse_schema(schema).expect("a sound schema");
    let options = JsonOptions { ignore_unknown_fields: true, ..JsonOptions::default() };
    let decode = |line: &&str| JsonDecoder::new(&format, &options).decode(line.as_bytes()).map(<[u8]>::to_vec).ok();
    let records = lines.iter().filter_map(decode).collect();
    (format, records)
}

/// Takes one input.
pub fn fuzz(input: &[u8]) {
    let [choice, rest @ ..] = input else { return };
    let mut parts = rest.split(|byte| *byte == 0xff).map(std::str::from_utf8);
    let Some(Ok(sql)) = parts.next() else { return };
    let values = parts.filter_map(|part| part.ok()?.split_once('='));
    let values: BTreeMap<String, String> = values.map(|(name, value)| (name.into(), value.into())).collect();
    let sample = &SAMPLES[usize::from(*choice) % SAMPLES.len()];
    small_stack::run(|| {
        if let Ok(Query::Stateful(query)) = parse_query(sql) {
            with_state(&query, sql, &values, sample);
        }
        examine(sql, &values, sample);
    });
}

/// A query with state, all of whose streams have one format.
fn with_state(query: &StatefulQuery, sql: &str, values: &BTreeMap<String, String>, (format, records): &Sample) {
    assert_eq!(query.sql(), sql);
    let streams = query.streams();
    let formats: Vec<(&str, &Format)> = streams.iter().map(|stream| (*stream, format)).collect();
    let planned = query.plan(&formats, &BTreeMap::new()).or_else(|_| query.plan(&formats, values));
    let program = match planned {
        Ok(program) => program,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    assert!(!program.to_string().is_empty());
    let _ = query.result_select("result").plan(program.output());
    for (stage, output) in
        program.stages.iter().flat_map(|stage| stage.outputs.iter().map(move |output| (stage, output)))
    {
        assert_eq!(output.then.input.id(), stage.rows.id());
        if let Some(port) = output.to {
            assert_eq!(output.then.output.id(), program.stages[port.stage].inputs[port.input].row.id());
        }
    }
    let none = BTreeMap::new();
    let values = if query.parameters().is_empty() { &none } else { values };
    let mut interpreter = Interpreter::new();
    for stream in streams {
        let readers = query.readers(&program, stream, format, values).expect("the format that was planned");
        for (port, reader) in readers {
            let format_of_rows = &program.stages[port.stage].inputs[port.input].row;
            assert_eq!(reader.output.id(), format_of_rows.id());
            let mut row = RecordBuilder::new(format_of_rows);
            for record in records {
                let record = Record::check(format, record).expect("a decoder's own record");
                let passes = interpreter.matches(&reader, &record);
                assert!(reader.is_fallible() || passes.is_ok());
                if interpreter.project(&reader, &record, &mut row).is_ok()
                    && let Ok(bytes) = row.finish()
                {
                    Record::check(format_of_rows, bytes).expect("a row of the port's format");
                }
            }
        }
    }
}

fn examine(sql: &str, values: &BTreeMap<String, String>, (format, records): &Sample) {
    let planned = parse_subscription(sql).and_then(|select| {
        assert_eq!(select.sql(), sql);
        let part = select.on_slow().and_then(|policy| policy.reads().cloned());
        part.into_iter().chain([select.selected()]).for_each(|part| drop(part.plan(format)));
        let _ = select.unknown_stream(&["flights"]).to_string();
        select.plan(format).or_else(|_| select.plan_with(format, values))
    });
    let program = match planned {
        Ok(program) => program,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    assert!(!program.explain().to_string().is_empty());
    let mut row = RecordBuilder::new(&program.output);
    let mut interpreter = Interpreter::new();
    let again = printed(&program, format);
    for record in records {
        let record = Record::check(format, record).expect("a decoder's own record");
        let passes = interpreter.matches(&program, &record);
        assert!(program.is_fallible() || passes.is_ok());
        if let Some(again) = &again {
            assert_eq!(interpreter.matches(again, &record), passes, "{}", again.sql);
        }
        let made = interpreter.project(&program, &record, &mut row);
        if made.is_ok()
            && let Ok(bytes) = row.finish()
        {
            Record::check(&program.output, bytes).expect("a row of the output's format");
        }
    }
    if let Ok(other) = program.with_values(values) {
        assert_eq!(other.output.id(), program.output.id());
    }
    assert!(matches!(program.projection, Projection::All) || !program.output.fields().is_empty());
}

/// The program of the conditions as printed. A parameter is printed by its name, and brackets that are printed
/// count for the bounds.
fn printed(program: &Program, format: &Format) -> Option<Program> {
    if program.filter.is_empty() || !program.parameters.is_empty() {
        return None;
    }
    let conditions: Vec<String> = program.filter.iter().map(|condition| condition.sql(format).to_string()).collect();
    let sql = format!(
        "SELECT * FROM s WHERE {}",
        conditions.iter().map(|text| format!("({text})")).collect::<Vec<_>>().join(" AND ")
    );
    match parse(&sql).and_then(|select| select.plan(format)) {
        Ok(again) => Some(again),
        Err(error) => {
            let bounds = ["levels", "within each other", "operators", "bytes long"];
            assert!(bounds.iter().any(|bound| error.message.contains(bound)), "{sql}: {error}");
            None
        }
    }
}
