//! The bundled flights as 300-byte records.

use crate::cpu::Error;
use crossdock_format::{FieldSpec, FieldType, Format, RecordBuilder};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// Length of each record in bytes: 300 rounded up to the records' alignment.
pub(crate) const RECORD_BYTES: usize = 304;

/// Fields of the flights, and what fills the record up: a time stamp for latencies, and remarks.
pub(crate) const FIELDS: [(&str, FieldType); 21] = [
    ("year", FieldType::I32),
    ("month", FieldType::I32),
    ("day", FieldType::I32),
    ("dep_time", FieldType::I32),
    ("sched_dep_time", FieldType::I32),
    ("dep_delay", FieldType::F64),
    ("arr_time", FieldType::I32),
    ("sched_arr_time", FieldType::I32),
    ("arr_delay", FieldType::F64),
    ("carrier", FieldType::Char(2)),
    ("flight", FieldType::I32),
    ("tailnum", FieldType::String),
    ("origin", FieldType::Char(3)),
    ("dest", FieldType::Char(3)),
    ("air_time", FieldType::F64),
    ("distance", FieldType::I32),
    ("hour", FieldType::I32),
    ("minute", FieldType::I32),
    ("time_hour", FieldType::String),
    ("sent", FieldType::Timestamp),
    ("remarks", FieldType::String),
];

/// Index of the `sent` field.
pub(crate) const SENT: usize = 19;
/// Index of the `remarks` field.
pub(crate) const REMARKS: usize = 20;

/// The records' format.
pub(crate) fn format() -> Result<Format, Error> {
    Ok(Format::natural(FIELDS.map(|(name, ty)| FieldSpec::nullable(name, ty)))?)
}

/// The first `count` flights (all 336,776 are there), one after the other, [`RECORD_BYTES`] each.
pub(crate) fn records(format: &Format, count: usize) -> Result<Vec<u8>, Error> {
    let mut row = RecordBuilder::new(format);
    let mut records = Vec::with_capacity(count * RECORD_BYTES);
    for line in lines(count)? {
        row.clear();
        fill(&mut row, &line)?;
        row.set_text(REMARKS, "")?;
        let short = row.finish()?.len();
        let remarks = "x".repeat(RECORD_BYTES - short);
        row.clear();
        fill(&mut row, &line)?;
        row.set_text(REMARKS, &remarks)?;
        let record = row.finish()?;
        if record.len() != RECORD_BYTES {
            return Err(format!("a flight became {} bytes long", record.len()).into());
        }
        records.extend_from_slice(record);
    }
    Ok(records)
}

/// The first `count` lines of the data, its head left out.
pub(crate) fn lines(count: usize) -> Result<Vec<String>, Error> {
    Ok(bundled_lines("flights.csv.gz")?.skip(1).take(count).collect::<Result<_, _>>()?)
}

/// The lines of a bundled table, its head first.
pub(crate) fn bundled_lines(name: &str) -> Result<impl Iterator<Item = std::io::Result<String>> + use<>, Error> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data").join(name);
    let file = File::open(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(BufReader::new(flate2::read::GzDecoder::new(file)).lines())
}

/// Sets the fields of one line of the CSV; NA is null.
pub(crate) fn fill(row: &mut RecordBuilder, line: &str) -> Result<(), Error> {
    for (index, text) in line.split(',').enumerate() {
        match FIELDS[index].1 {
            _ if text == "NA" => row.set_null(index)?,
            FieldType::I32 => row.set_i64(index, text.parse()?)?,
            FieldType::F64 => row.set_f64(index, text.parse()?)?,
            _ => row.set_text(index, text)?,
        }
    }
    row.set_timestamp(SENT, 0)?;
    Ok(())
}

/// Where the `sent` field lies in a record, for stamping.
pub(crate) fn sent_offset(format: &Format) -> usize {
    format.fields()[SENT].offset as usize
}
