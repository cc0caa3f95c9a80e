//! Decoders: JSON and CSV to records, against serde to a struct.

use super::Case;
use super::flight::Flights;
use super::read::typed;
use crate::cpu::Error;
use crossdock_bench_peers::{self as peers, Typed};
use crossdock_format::Record;
use crossdock_format::csv::{CsvDecoder, CsvEncoder, CsvOptions};
use crossdock_format::encoding::EncodingOptions;
use crossdock_format::encoding::avro::{AvroDecoder, AvroSchema};
use crossdock_format::encoding::protobuf::{ProtobufDecoder, ProtobufSchema};
use crossdock_format::json::{JsonDecoder, JsonEncoder, JsonOptions};

pub(super) fn cases(flights: &Flights) -> Result<Vec<Case<'_>>, Error> {
    let mut cases = json(flights)?;
    cases.extend(csv(flights)?);
    cases.extend(protobuf(flights)?);
    cases.extend(avro(flights)?);
    Ok(cases)
}

/// Lines of JSON, an object a flight.
fn json(flights: &Flights) -> Result<Vec<Case<'_>>, Error> {
    let encoder = JsonEncoder::new(&flights.format);
    let mut text = Vec::new();
    for record in flights.each()? {
        encoder.record(&Record::check(&flights.format, record)?, &mut text);
    }
    let expected = typed(flights)?;
    let found: Vec<Typed> = peers::json_lines(&text).map(serde_json::from_slice).collect::<Result<_, _>>()?;
    if expected != found {
        return Err("serde_json reads other flights than were written".into());
    }
    let mut decoder = JsonDecoder::new(&flights.format, &JsonOptions::default());
    let theirs = text.clone();
    let case = Case::new("json_decode", move || {
        let (mut input, mut bytes) = (&text[..], 0);
        while let Ok(Some(record)) = decoder.next_record(&mut input) {
            bytes += record.len() as u64;
        }
        bytes
    });
    Ok(vec![case.against("serde_json_typed", move || {
        let flights = peers::json_lines(&theirs).map(serde_json::from_slice::<Typed>);
        flights.fold(0, |sum, flight| sum + flight.map_or(0, |flight| flight.sequence))
    })])
}

/// A file of CSV with a header.
fn csv(flights: &Flights) -> Result<Vec<Case<'_>>, Error> {
    let options = CsvOptions::default();
    let encoder = CsvEncoder::new(&flights.format, &options)?;
    let mut text = Vec::new();
    encoder.header(&mut text);
    for record in flights.each()? {
        encoder.record(&Record::check(&flights.format, record)?, &mut text);
    }
    if peers::csv_flights(&text).collect::<Vec<_>>() != typed(flights)? {
        return Err("csv reads other flights than were written".into());
    }
    let theirs = text.clone();
    let format = flights.format.clone();
    let case = Case::new("csv_decode", move || {
        let (mut input, mut bytes) = (&text[..], 0);
        let Ok(mut decoder) = CsvDecoder::from_header(&format, &mut input, &options) else { return 0 };
        while let Ok(Some(record)) = decoder.next_record(&mut input) {
            bytes += record.len() as u64;
        }
        bytes
    });
    Ok(vec![
        case.against("csv_crate_serde", move || {
            peers::csv_flights(&theirs).fold(0, |sum, flight| sum + flight.sequence)
        }),
    ])
}

/// Messages of Protobuf, as prost writes them.
fn protobuf(flights: &Flights) -> Result<Vec<Case<'_>>, Error> {
    let expected = peers::messages(&typed(flights)?);
    let messages: Vec<Vec<u8>> = expected.iter().map(peers::Message::encode_to_vec).collect();
    let schema = ProtobufSchema::import(&[("flight.proto", peers::PROTO)], None)?;
    let mut decoder = ProtobufDecoder::new(&flights.format, &EncodingOptions::default(), Some(&schema))?;
    for (record, message) in flights.each()?.into_iter().zip(&messages) {
        if decoder.decode(message)? != record {
            return Err("prost writes another flight than it was given".into());
        }
    }
    let theirs = messages.clone();
    let case = Case::new("protobuf_decode", move || {
        messages.iter().fold(0, |bytes, message| bytes + decoder.decode(message).map_or(0, <[u8]>::len) as u64)
    });
    Ok(vec![case.against("prost_decode", move || {
        theirs.iter().fold(0, |sum, message| sum + peers::decode(message).map_or(0, |flight| flight.sequence))
    })])
}

/// Data of Avro's binary encoding.
fn avro(flights: &Flights) -> Result<Vec<Case<'_>>, Error> {
    let expected = typed(flights)?;
    let data: Vec<Vec<u8>> = expected.iter().map(peers::avro_datum).collect();
    let library = peers::AvroFlights::new()?;
    let mut found = Vec::new();
    library.decode(data.iter().map(Vec::as_slice), |flight| found.push(flight))?;
    if found != expected {
        return Err("apache-avro reads other flights than were written".into());
    }
    let schema = AvroSchema::parse(peers::AVRO)?;
    let mut decoder = AvroDecoder::new(&flights.format, &EncodingOptions::default(), Some(&schema))?;
    for (record, datum) in flights.each()?.into_iter().zip(&data) {
        if decoder.decode(datum)? != record {
            return Err("a datum of Avro gives another flight than it was made of".into());
        }
    }
    let theirs = data.clone();
    let case = Case::new("avro_decode", move || {
        data.iter().fold(0, |bytes, datum| bytes + decoder.decode(datum).map_or(0, <[u8]>::len) as u64)
    });
    Ok(vec![case.against("apache_avro", move || {
        let mut sum = 0;
        let outcome = library.decode(theirs.iter().map(Vec::as_slice), |flight| sum += flight.sequence);
        outcome.map_or(0, |()| sum)
    })])
}
