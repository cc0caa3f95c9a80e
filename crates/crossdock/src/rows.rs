//! Rows of records, in one encoding, whatever formats the records have.

use crossdock_format::Format;
use crossdock_format::Record;
use crossdock_format::convert::{Plan, Rules};
use crossdock_format::encoding::{self, Encoder, Encoding, EncodingError, EncodingOptions, Schema};
use crossdock_format::registry::{Diff, Seen};

use crate::failure::{Failure, Outcome};

/// The remedy where the output does not take a format of the stream.
const OTHER_FORMAT: &str = "name the fields in the query; or register a conversion to the output's format with `crossdock \
                            conversions add` before `subscribe` starts (`crossdock formats` lists the stream's versions; \
                            --accept chooses one)";

/// Writes rows. The output begins with the first record, since a stream may remember formats without records.
pub(crate) struct Rows {
    encoding: Encoding,
    schema: Option<Schema>,
    options: EncodingOptions,
    /// The format of an output without a record.
    expected: Option<Format>,
    /// The encoder that makes rows of records of a format.
    writer: Option<(Format, Box<dyn Encoder>)>,
    /// The plan that makes records of the writer's format of those that come now, where they have another.
    conversion: Option<Plan>,
    /// A record that was converted.
    converted: Vec<u8>,
}

impl Rows {
    /// Rows in an encoding.
    pub(crate) fn new(encoding: Encoding, schema: Option<Schema>, options: EncodingOptions) -> Rows {
        Rows { encoding, schema, options, expected: None, writer: None, conversion: None, converted: Vec::new() }
    }

    /// Checks that records of this format can be written; there may be none.
    pub(crate) fn check(&self, format: &Format) -> Outcome {
        self.writer_of(format).map(drop).map_err(|failure| failure.hint(OTHER_FORMAT))
    }

    /// Records of this format may come.
    pub(crate) fn expect(&mut self, format: Format) {
        self.expected = Some(format);
    }

    /// Records of this format come from here on. Where an output has one format from its start to its end, they are converted to
    /// that by the names of the fields, if nothing of them is lost.
    pub(crate) fn begin(&mut self, format: &Format, out: &mut Vec<u8>) -> Outcome {
        match &self.writer {
            Some((known, _)) if known == format => self.conversion = None,
            Some(_) if self.conversion.as_ref().is_some_and(|conversion| conversion.from() == format) => {}
            Some((known, _)) if !self.encoding.takes_any_format() => {
                self.conversion = Some(conversion(format, known).map_err(|why| self.refused(&why))?);
            }
            _ => {
                let mut writer = self.writer_of(format)?;
                writer.start(out);
                self.writer = Some((format.clone(), writer));
            }
        }
        Ok(())
    }

    /// Appends a record, which is the one of this number, of the format that [came last](Rows::begin). On an error, which is
    /// given in words, nothing was appended.
    #[inline]
    pub(crate) fn record(&mut self, record: &Record<'_>, number: u64, out: &mut Vec<u8>) -> Result<(), String> {
        let Some((format, writer)) = &mut self.writer else { return Ok(()) };
        let named = |error: EncodingError| error.of_item(number).to_string();
        let Some(conversion) = &self.conversion else { return writer.record(record, out).map_err(named) };
        self.converted.clear();
        conversion.run(record.bytes(), &mut self.converted).map_err(|error| format!("record {number}: {error}"))?;
        writer.record(&Record::assume_checked(format, &self.converted), out).map_err(named)
    }

    /// Appends what an output ends with; one without a record has its header too.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) -> Outcome {
        if self.writer.is_none()
            && let Some(format) = self.expected.take()
        {
            self.begin(&format, out)?;
        }
        match &mut self.writer {
            Some((_, writer)) => writer.finish(out).map_err(unwritten),
            None => Ok(()),
        }
    }

    fn writer_of(&self, format: &Format) -> Outcome<Box<dyn Encoder>> {
        encoding::encoder(self.encoding, format, self.schema.as_ref(), &self.options).map_err(Failure::usage)
    }

    fn refused(&self, why: &str) -> Failure {
        let text = format!(
            "records of another format follow, and {} output has one format: {why}; the output so far is complete",
            self.encoding
        );
        Failure::failed(text).hint(OTHER_FORMAT)
    }
}

/// A record that the encoding has no way to write.
pub(crate) fn unwritten(error: impl std::fmt::Display) -> Failure {
    Failure::failed(format!("cannot write a record: {error}"))
}

/// How records of one format become records of another with all that is in them; or what is in the way.
fn conversion(from: &Format, to: &Format) -> Result<Plan, String> {
    let Diff { fields, lost } = Diff::of(to, from);
    let mut why: Vec<String> = lost.iter().map(|field| format!("it has no field `{field}`")).collect();
    why.extend(fields.iter().filter_map(|field| match &field.seen {
        Seen::Unreadable(problem) => Some(format!("field `{}`: {problem}", field.name)),
        _ => None,
    }));
    if !why.is_empty() {
        return Err(why.join(", "));
    }
    Plan::by_name(from, to, &Rules::none()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossdock_format::{RecordBuilder, Value};

    fn format(schema: &str) -> Format {
        Format::parse_schema(schema).unwrap()
    }

    fn record(format: &Format, a: i64) -> Vec<u8> {
        let mut builder = RecordBuilder::new(format);
        builder.set(0, Value::Int(a)).unwrap();
        builder.finish().unwrap().to_vec()
    }

    #[test]
    fn an_output_of_one_format_takes_others_that_lose_nothing() {
        let (wide, narrow, more) = (format("a i64\nb i32 null"), format("a i16"), format("a i64\nc i64 null"));
        let mut rows = Rows::new(Encoding::Csv, None, EncodingOptions::default());
        let mut out = Vec::new();
        rows.expect(more.clone());
        for (number, format) in [&wide, &narrow, &narrow, &wide].into_iter().enumerate() {
            rows.begin(format, &mut out).unwrap();
            let bytes = record(format, number as i64);
            rows.record(&Record::assume_checked(format, &bytes), 1, &mut out).unwrap();
        }
        assert_eq!(String::from_utf8_lossy(&out), "a,b\n0,\n1,\n2,\n3,\n");
        let text = rows.begin(&more, &mut out).unwrap_err().text();
        assert!(text.contains("csv output has one format: it has no field `c`") && text.contains("--accept"), "{text}");
        // A field that has been renamed is read by its alias, and one that has been added has its default.
        let renamed = format("number i64 alias a\nc string default x");
        let mut rows = Rows::new(Encoding::Csv, None, EncodingOptions::default());
        out.clear();
        for format in [&renamed, &narrow] {
            rows.begin(format, &mut out).unwrap();
            let mut builder = RecordBuilder::new(format);
            builder.set(0, Value::Int(7)).unwrap();
            if format.fields().len() > 1 {
                builder.set(1, Value::Text(b"y")).unwrap();
            }
            let bytes = builder.finish().unwrap().to_vec();
            rows.record(&Record::assume_checked(format, &bytes), 1, &mut out).unwrap();
        }
        assert_eq!(String::from_utf8_lossy(&out), "number,c\n7,y\n7,x\n");
        // The other way, a value may have no room.
        let mut rows = Rows::new(Encoding::Csv, None, EncodingOptions::default());
        rows.begin(&narrow, &mut out).unwrap();
        rows.begin(&format("a i64"), &mut out).unwrap();
        let bytes = record(&wide, 1 << 40);
        let why = rows.record(&Record::assume_checked(&wide, &bytes), 7, &mut out).unwrap_err();
        assert!(why.starts_with("record 7: "), "{why}");
    }

    #[test]
    fn an_output_without_a_record_has_the_header_of_what_was_expected() {
        let mut rows = Rows::new(Encoding::Csv, None, EncodingOptions::default());
        let mut out = Vec::new();
        rows.expect(format("a i64"));
        rows.expect(format("b i64\nc i64"));
        rows.finish(&mut out).unwrap();
        assert_eq!(out, b"b,c\n");
    }

    #[test]
    fn a_format_that_the_output_does_not_take_is_refused_with_what_helps() {
        let avro = r#"{"type":"record","name":"R","fields":[{"name":"a","type":"long"}]}"#;
        let schema = Schema::new("r.avsc", avro.to_owned(), None);
        let rows = Rows::new(Encoding::Avro, Some(schema), EncodingOptions::default());
        assert!(rows.check(&format("a i64")).is_ok());
        let text = rows.check(&format("a i64\nb i64")).unwrap_err().text();
        assert!(text.contains("hint: name the fields in the query") && text.contains("--accept"), "{text}");
    }
}
