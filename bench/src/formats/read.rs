//! Reading three fields of a record, against flatbuffers; writing one, against rkyv.

use super::Case;
use super::flight::{Flight, Flights};
use crate::cpu::Error;
use crossdock_bench_peers::{Encoder, Typed, flat};
use crossdock_format::{Record, RecordBuilder, Value, View, record};

record! {
    /// The three fields that are read: a number that may be null, a text, a number.
    struct Three {
        dep_delay: Option<f64>,
        origin: [u8; 3],
        distance: i32,
    }
}

/// The use of the three: a sum over those that left from one airport.
#[inline]
fn use_up(sum: u64, dep_delay: Option<f64>, from_jfk: bool, distance: i32) -> u64 {
    let delay = dep_delay.unwrap_or(0.0) as i32;
    sum.wrapping_add(if from_jfk { delay.wrapping_add(distance) as u64 } else { 1 })
}

#[inline]
fn use_flat(sum: u64, flight: &flat::Flight<'_>) -> u64 {
    use_up(sum, flight.dep_delay(), flight.origin() == Some("JFK"), flight.distance())
}

#[inline]
fn use_ours(sum: u64, flight: &Three) -> u64 {
    use_up(sum, flight.dep_delay, flight.origin == *b"JFK", flight.distance)
}

/// Whether all texts of a flight are UTF-8: the verifier of flatbuffers looks at that, and the check of a record does not.
#[inline]
fn is_text(record: &Record<'_>, texts: &[usize]) -> bool {
    texts.iter().all(|field| match record.get(*field) {
        Value::Text(text) => std::str::from_utf8(text).is_ok(),
        _ => true,
    })
}

pub(super) fn cases(flights: &Flights) -> Result<Vec<Case<'_>>, Error> {
    let typed = typed(flights)?;
    let three = View::<Three>::bind(&flights.format)?;
    let format = &flights.format;
    let records = flights.each()?;
    let [flat, flat_verified] = [flat::Flights::of(&typed)?, flat::Flights::of(&typed)?];
    let sum = flat.iter().fold(0, |sum, flight| use_flat(sum, &flight));
    let own = |sum, record: &&[u8]| use_ours(sum, &three.read(&Record::assume_checked(format, record)));
    if sum != records.iter().fold(0, own) {
        return Err("flatbuffers and Crossdock read different flights".into());
    }
    let (checked, view) = (records.clone(), three.clone());
    let texts: Vec<usize> = (0..format.fields().len()).filter(|field| format.fields()[*field].ty.is_text()).collect();
    let read3 = Case::new("read3", move || {
        checked.iter().fold(0, |sum, record| match Record::check(format, record) {
            Ok(record) if is_text(&record, &texts) => use_ours(sum, &view.read(&record)),
            _ => sum,
        })
    });
    let read3 = read3.against("flatbuffers", move || {
        flat.buffers().fold(0, |sum, buffer| match flat::verified(buffer) {
            Ok(flight) => use_flat(sum, &flight),
            Err(_) => sum,
        })
    });
    let verified = Case::new("read3_verified", move || {
        records.iter().fold(0, |sum, record| use_ours(sum, &three.read(&Record::assume_checked(format, record))))
    });
    let verified =
        verified.against("flatbuffers", move || flat_verified.iter().fold(0, |sum, flight| use_flat(sum, &flight)));
    let mut cases = vec![read3, verified];
    cases.extend(encode(flights, &typed)?);
    Ok(cases)
}

/// A record of a flight that an application has in its own struct.
fn encode<'a>(flights: &'a Flights, typed: &[Typed]) -> Result<Vec<Case<'a>>, Error> {
    let whole = View::<Flight>::bind(&flights.format)?;
    let own: Vec<Flight<'a>> =
        flights.each()?.iter().map(|record| whole.read(&Record::assume_checked(&flights.format, record))).collect();
    let mut out = Vec::new();
    let (rows, view) = (own.clone(), whole);
    let by_view = Case::new("encode", move || {
        rows.iter().fold(0, |bytes, flight| {
            out.clear();
            let _ = view.write(flight, &mut out);
            bytes + out.len() as u64
        })
    });
    let (archived, mut rkyv) = (Encoder::flights(typed), Encoder::default());
    let by_view = by_view.against("rkyv", move || archived.iter().fold(0, |bytes, flight| bytes + rkyv.encode(flight)));
    let mut builder = RecordBuilder::new(&flights.format);
    let by_builder = Case::new("encode_by_builder", move || {
        own.iter().fold(0, |bytes, flight| bytes + build(&mut builder, flight).unwrap_or(0))
    });
    let (archived, mut rkyv) = (Encoder::flights(typed), Encoder::default());
    let by_builder =
        by_builder.against("rkyv", move || archived.iter().fold(0, |bytes, flight| bytes + rkyv.encode(flight)));
    Ok(vec![by_view, by_builder])
}

/// A record by setting each field.
fn build(builder: &mut RecordBuilder, flight: &Flight<'_>) -> Result<u64, Error> {
    let integer = |value: Option<i32>| value.map_or(Value::Null, |value| Value::Int(value.into()));
    let float = |value: Option<f64>| value.map_or(Value::Null, Value::Float);
    builder.clear();
    builder.set_u64(0, flight.year.into())?;
    builder.set_u64(1, flight.month.into())?;
    builder.set_u64(2, flight.day.into())?;
    builder.set(3, integer(flight.dep_time))?;
    builder.set_i64(4, flight.sched_dep_time.into())?;
    builder.set(5, float(flight.dep_delay))?;
    builder.set(6, integer(flight.arr_time))?;
    builder.set_i64(7, flight.sched_arr_time.into())?;
    builder.set(8, float(flight.arr_delay))?;
    builder.set_text(9, flight.carrier)?;
    builder.set_i64(10, flight.flight.into())?;
    builder.set(11, flight.tailnum.map_or(Value::Null, Value::Text))?;
    builder.set_text(12, flight.origin)?;
    builder.set_text(13, flight.dest)?;
    builder.set(14, float(flight.air_time))?;
    builder.set_i64(15, flight.distance.into())?;
    builder.set_i64(16, flight.hour.into())?;
    builder.set_i64(17, flight.minute.into())?;
    builder.set_text(18, flight.time_hour)?;
    builder.set_u64(19, flight.sequence)?;
    Ok(builder.finish()?.len() as u64)
}

/// The flights as the peers' applications have them.
pub(super) fn typed(flights: &Flights) -> Result<Vec<Typed>, Error> {
    let whole = View::<Flight>::bind(&flights.format)?;
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec());
    let mut typed = Vec::new();
    for record in flights.each()? {
        let flight = whole.read(&Record::check(&flights.format, record)?);
        typed.push(Typed {
            year: flight.year,
            month: flight.month,
            day: flight.day,
            dep_time: flight.dep_time,
            sched_dep_time: flight.sched_dep_time,
            dep_delay: flight.dep_delay,
            arr_time: flight.arr_time,
            sched_arr_time: flight.sched_arr_time,
            arr_delay: flight.arr_delay,
            carrier: text(&flight.carrier)?,
            flight: flight.flight,
            tailnum: flight.tailnum.map(text).transpose()?,
            origin: text(&flight.origin)?,
            dest: text(&flight.dest)?,
            air_time: flight.air_time,
            distance: flight.distance,
            hour: flight.hour,
            minute: flight.minute,
            time_hour: text(flight.time_hour)?,
            sequence: flight.sequence,
        });
    }
    Ok(typed)
}
