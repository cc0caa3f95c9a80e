//! The flight of benchmark `formats` as the peers declare it, each as its users would.
//!
//! Derives of `rkyv`, and what `flatc` writes for flatbuffers, are unsafe code by nature; they live here so that the
//! benchmark itself forbids it. Nothing else uses this crate.

pub mod flat;

use apache_avro::reader::datum::GenericDatumReader;
use rkyv::api::high::to_bytes_in_with_alloc;
use rkyv::rancor::Panic;
use rkyv::ser::allocator::Arena;
use rkyv::util::AlignedVec;
use serde::Deserialize;

/// A flight for serde: JSON, CSV and Avro decode it. Text owns its bytes, as applications that keep rows have it.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
// As the record of the schema is called, which Avro's library asks for.
#[serde(rename = "Flight")]
#[allow(missing_docs, reason = "fields are named as in the data")]
pub struct Typed {
    pub year: u16,
    pub month: u8,
    pub day: u8,
    pub dep_time: Option<i32>,
    pub sched_dep_time: i32,
    pub dep_delay: Option<f64>,
    pub arr_time: Option<i32>,
    pub sched_arr_time: i32,
    pub arr_delay: Option<f64>,
    pub carrier: String,
    pub flight: i32,
    pub tailnum: Option<String>,
    pub origin: String,
    pub dest: String,
    pub air_time: Option<f64>,
    pub distance: i32,
    pub hour: i32,
    pub minute: i32,
    pub time_hour: String,
    #[serde(deserialize_with = "long")]
    pub sequence: u64,
}

/// A number of 64 bits by way of one with a sign: Avro has no other, and its library takes none for an unsigned one.
fn long<'de, D: serde::Deserializer<'de>>(parser: D) -> Result<u64, D::Error> {
    u64::try_from(i64::deserialize(parser)?).map_err(serde::de::Error::custom)
}

/// A flight for rkyv, with arrays where lengths are known.
#[derive(Clone, PartialEq, Debug, rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
#[allow(missing_docs, reason = "fields are named as in the data")]
pub struct Archived {
    pub year: u16,
    pub month: u8,
    pub day: u8,
    pub dep_time: Option<i32>,
    pub sched_dep_time: i32,
    pub dep_delay: Option<f64>,
    pub arr_time: Option<i32>,
    pub sched_arr_time: i32,
    pub arr_delay: Option<f64>,
    pub carrier: [u8; 2],
    pub flight: i32,
    pub tailnum: Option<String>,
    pub origin: [u8; 3],
    pub dest: [u8; 3],
    pub air_time: Option<f64>,
    pub distance: i32,
    pub hour: i32,
    pub minute: i32,
    pub time_hour: String,
    pub sequence: u64,
}

/// A flight for prost, as `prost-build` writes it.
#[derive(Clone, PartialEq, prost::Message)]
#[allow(missing_docs, reason = "fields are named as in the data")]
pub struct Message {
    #[prost(uint32, tag = "1")]
    pub year: u32,
    #[prost(uint32, tag = "2")]
    pub month: u32,
    #[prost(uint32, tag = "3")]
    pub day: u32,
    #[prost(int32, optional, tag = "4")]
    pub dep_time: Option<i32>,
    #[prost(int32, tag = "5")]
    pub sched_dep_time: i32,
    #[prost(double, optional, tag = "6")]
    pub dep_delay: Option<f64>,
    #[prost(int32, optional, tag = "7")]
    pub arr_time: Option<i32>,
    #[prost(int32, tag = "8")]
    pub sched_arr_time: i32,
    #[prost(double, optional, tag = "9")]
    pub arr_delay: Option<f64>,
    #[prost(string, tag = "10")]
    pub carrier: String,
    #[prost(int32, tag = "11")]
    pub flight: i32,
    #[prost(string, optional, tag = "12")]
    pub tailnum: Option<String>,
    #[prost(string, tag = "13")]
    pub origin: String,
    #[prost(string, tag = "14")]
    pub dest: String,
    #[prost(double, optional, tag = "15")]
    pub air_time: Option<f64>,
    #[prost(int32, tag = "16")]
    pub distance: i32,
    #[prost(int32, tag = "17")]
    pub hour: i32,
    #[prost(int32, tag = "18")]
    pub minute: i32,
    #[prost(string, tag = "19")]
    pub time_hour: String,
    #[prost(uint64, tag = "20")]
    pub sequence: u64,
}

/// [`Message`] in the notation of Protobuf.
pub const PROTO: &str = r#"syntax = "proto3";
message Flight {
  uint32 year = 1;
  uint32 month = 2;
  uint32 day = 3;
  optional int32 dep_time = 4;
  int32 sched_dep_time = 5;
  optional double dep_delay = 6;
  optional int32 arr_time = 7;
  int32 sched_arr_time = 8;
  optional double arr_delay = 9;
  string carrier = 10;
  int32 flight = 11;
  optional string tailnum = 12;
  string origin = 13;
  string dest = 14;
  optional double air_time = 15;
  int32 distance = 16;
  int32 hour = 17;
  int32 minute = 18;
  string time_hour = 19;
  uint64 sequence = 20;
}
"#;

/// Encodes flights with rkyv into a buffer, and with an arena, that are used again.
#[derive(Default)]
pub struct Encoder {
    buffer: AlignedVec,
    arena: Arena,
}

impl Encoder {
    /// The flights as rkyv's application has them.
    #[must_use]
    pub fn flights(typed: &[Typed]) -> Vec<Archived> {
        fn array<const N: usize>(text: &str) -> [u8; N] {
            text.as_bytes().try_into().unwrap_or([0; N])
        }
        let flight = |flight: &Typed| Archived {
            year: flight.year,
            month: flight.month,
            day: flight.day,
            dep_time: flight.dep_time,
            sched_dep_time: flight.sched_dep_time,
            dep_delay: flight.dep_delay,
            arr_time: flight.arr_time,
            sched_arr_time: flight.sched_arr_time,
            arr_delay: flight.arr_delay,
            carrier: array(&flight.carrier),
            flight: flight.flight,
            tailnum: flight.tailnum.clone(),
            origin: array(&flight.origin),
            dest: array(&flight.dest),
            air_time: flight.air_time,
            distance: flight.distance,
            hour: flight.hour,
            minute: flight.minute,
            time_hour: flight.time_hour.clone(),
            sequence: flight.sequence,
        };
        typed.iter().map(flight).collect()
    }

    /// Encodes a flight; how many bytes it takes.
    #[inline]
    pub fn encode(&mut self, flight: &Archived) -> u64 {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        match to_bytes_in_with_alloc::<_, _, Panic>(flight, buffer, self.arena.acquire()) {
            Ok(buffer) => self.buffer = buffer,
            Err(never) => match never {},
        }
        self.buffer.len() as u64
    }
}

/// The lines of a file of JSON.
pub fn json_lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty())
}

/// The flights of a file of CSV with a header.
pub fn csv_flights(text: &[u8]) -> impl Iterator<Item = Typed> {
    csv::Reader::from_reader(text).into_deserialize().filter_map(Result::ok)
}

/// The flights as prost's application has them.
#[must_use]
pub fn messages(typed: &[Typed]) -> Vec<Message> {
    let message = |flight: &Typed| Message {
        year: flight.year.into(),
        month: flight.month.into(),
        day: flight.day.into(),
        dep_time: flight.dep_time,
        sched_dep_time: flight.sched_dep_time,
        dep_delay: flight.dep_delay,
        arr_time: flight.arr_time,
        sched_arr_time: flight.sched_arr_time,
        arr_delay: flight.arr_delay,
        carrier: flight.carrier.clone(),
        flight: flight.flight,
        tailnum: flight.tailnum.clone(),
        origin: flight.origin.clone(),
        dest: flight.dest.clone(),
        air_time: flight.air_time,
        distance: flight.distance,
        hour: flight.hour,
        minute: flight.minute,
        time_hour: flight.time_hour.clone(),
        sequence: flight.sequence,
    };
    typed.iter().map(message).collect()
}

/// A message of Protobuf as prost reads it.
///
/// # Errors
/// It is none.
#[inline]
pub fn decode(message: &[u8]) -> Result<Message, prost::DecodeError> {
    prost::Message::decode(message)
}

impl Message {
    /// The message's bytes.
    #[must_use]
    pub fn encode_to_vec(&self) -> Vec<u8> {
        prost::Message::encode_to_vec(self)
    }
}

/// [`Typed`] as a schema of Avro.
pub const AVRO: &str = r#"{"type": "record", "name": "Flight", "fields": [
  {"name": "year", "type": "int"}, {"name": "month", "type": "int"}, {"name": "day", "type": "int"},
  {"name": "dep_time", "type": ["null", "int"]}, {"name": "sched_dep_time", "type": "int"},
  {"name": "dep_delay", "type": ["null", "double"]}, {"name": "arr_time", "type": ["null", "int"]},
  {"name": "sched_arr_time", "type": "int"}, {"name": "arr_delay", "type": ["null", "double"]},
  {"name": "carrier", "type": "string"}, {"name": "flight", "type": "int"},
  {"name": "tailnum", "type": ["null", "string"]}, {"name": "origin", "type": "string"},
  {"name": "dest", "type": "string"}, {"name": "air_time", "type": ["null", "double"]},
  {"name": "distance", "type": "int"}, {"name": "hour", "type": "int"}, {"name": "minute", "type": "int"},
  {"name": "time_hour", "type": "string"}, {"name": "sequence", "type": "long"}
]}"#;

/// Flights of Avro, read with the schema that they were written with, straight into the struct: the library's fastest
/// way.
#[derive(Debug)]
pub struct AvroFlights {
    schema: apache_avro::Schema,
}

impl AvroFlights {
    /// With schema [`AVRO`].
    ///
    /// # Errors
    /// The library does not take the schema.
    pub fn new() -> Result<AvroFlights, Box<apache_avro::Error>> {
        Ok(AvroFlights { schema: apache_avro::Schema::parse_str(AVRO).map_err(Box::new)? })
    }

    /// The flights, each a datum.
    ///
    /// # Errors
    /// The schema refers to what is not there, or a datum is none; then what came before it is lost.
    pub fn decode<'d>(
        &self,
        data: impl Iterator<Item = &'d [u8]>,
        mut each: impl FnMut(Typed),
    ) -> Result<(), Box<apache_avro::Error>> {
        let reader = GenericDatumReader::builder(&self.schema).build().map_err(Box::new)?;
        for mut datum in data {
            each(reader.read_deser(&mut datum).map_err(Box::new)?);
        }
        Ok(())
    }
}

/// A datum of Avro by hand: the library writes what serde gives, and [`Typed`] is for reading only.
#[must_use]
pub fn avro_datum(flight: &Typed) -> Vec<u8> {
    let mut out = Vec::new();
    let mut long = |out: &mut Vec<u8>, value: i64| {
        let mut rest = ((value << 1) ^ (value >> 63)) as u64;
        while rest > 0x7f {
            out.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        out.push(rest as u8);
    };
    fn text(out: &mut Vec<u8>, text: &str, long: &mut impl FnMut(&mut Vec<u8>, i64)) {
        long(out, text.len() as i64);
        out.extend_from_slice(text.as_bytes());
    }
    fn double(out: &mut Vec<u8>, value: Option<f64>) {
        out.push(if value.is_some() { 2 } else { 0 });
        out.extend(value.into_iter().flat_map(f64::to_le_bytes));
    }
    for value in [flight.year.into(), flight.month.into(), flight.day.into()] {
        long(&mut out, value);
    }
    let maybe = |out: &mut Vec<u8>, value: Option<i32>, long: &mut dyn FnMut(&mut Vec<u8>, i64)| {
        out.push(if value.is_some() { 2 } else { 0 });
        if let Some(value) = value {
            long(out, value.into());
        }
    };
    maybe(&mut out, flight.dep_time, &mut long);
    long(&mut out, flight.sched_dep_time.into());
    double(&mut out, flight.dep_delay);
    maybe(&mut out, flight.arr_time, &mut long);
    long(&mut out, flight.sched_arr_time.into());
    double(&mut out, flight.arr_delay);
    text(&mut out, &flight.carrier, &mut long);
    long(&mut out, flight.flight.into());
    out.push(if flight.tailnum.is_some() { 2 } else { 0 });
    if let Some(tailnum) = &flight.tailnum {
        text(&mut out, tailnum, &mut long);
    }
    text(&mut out, &flight.origin, &mut long);
    text(&mut out, &flight.dest, &mut long);
    double(&mut out, flight.air_time);
    for value in [flight.distance, flight.hour, flight.minute] {
        long(&mut out, value.into());
    }
    text(&mut out, &flight.time_hour, &mut long);
    long(&mut out, flight.sequence as i64);
    out
}
