//! Conversion plans: any two formats, any rules, any records. One at a time gives what many at a time give, and a record that
//! passes its check gives one that does.
//!
//! An input is two schemas, rules and records, with bytes of 255 in between.

use crate::formats::{schema, text};
use crossdock_format::Record;
use crossdock_format::convert::{Plan, Rules};

/// Takes one input.
pub fn fuzz(input: &[u8]) {
    let mut parts = input.splitn(4, |byte| *byte == 0xff);
    let (Some(from), Some(to)) = (schema(parts.next()), schema(parts.next())) else { return };
    let Some(Ok(rules)) = text(parts.next()).map(str::parse::<Rules>) else { return };
    let plan = match Plan::by_name(&from, &to, &rules) {
        Ok(plan) => plan,
        Err(error) => return drop(error.to_string()),
    };
    let payload = parts.next().unwrap_or_default();
    // Bytes that nobody checked.
    let mut out = Vec::new();
    if let Err(error) = plan.run(payload, &mut out) {
        assert!(out.is_empty() && !error.to_string().is_empty());
    }
    let mut records = Vec::new();
    let checked = from.check_records(payload, |start, len| records.push((start as usize, len as usize)));
    let end = records.last().map_or(0, |(start, len)| start + len);
    assert_eq!(checked.is_ok(), end == payload.len());
    let payload = &payload[..end];
    let records: Vec<&[u8]> = records.iter().map(|(start, len)| &payload[*start..start + len]).collect();
    let (mut wanted, mut refused) = (Vec::new(), Vec::new());
    for (index, record) in records.iter().enumerate() {
        let start = wanted.len();
        match plan.run(record, &mut wanted) {
            Ok(()) => {
                let made = Record::check(&to, &wanted[start..]).expect("a sound record gives one");
                assert_eq!(made.bytes().len(), wanted.len() - start);
            }
            Err(error) => {
                assert!(plan.may_refuse() && wanted.len() == start && !error.to_string().is_empty());
                refused.push(index);
            }
        }
    }
    let (mut out, mut reported) = (Vec::new(), Vec::new());
    let appended = plan.run_all(records.iter().copied(), &mut out, |index, _| reported.push(index));
    assert_eq!(appended, records.len() - refused.len());
    assert!(out == wanted && reported == refused);
    let (mut out, mut reported) = (Vec::new(), Vec::new());
    plan.run_payload(payload, &mut out, |index, _| reported.push(index));
    assert!(out == wanted && reported == refused);
}
