//! Conversion plans, composed: what two do as one is what they do one after the other.
//!
//! An input is three schemas, rules for either step, and records, with bytes of 255 in between.

use crate::formats::{schema, text};
use crossdock_format::convert::{ConvertProblem, Plan, Rules};
use crossdock_format::{Record, RecordBuilder};

/// Takes one input.
pub fn fuzz(input: &[u8]) {
    let mut parts = input.splitn(6, |byte| *byte == 0xff);
    let mut format = || schema(parts.next());
    let (Some(from), Some(between), Some(to)) = (format(), format(), format()) else { return };
    let mut rules = || text(parts.next())?.parse::<Rules>().ok();
    let (Some(first), Some(second)) = (rules(), rules()) else { return };
    let plans = (Plan::by_name(&from, &between, &first), Plan::by_name(&between, &to, &second));
    let (Ok(first), Ok(second)) = plans else { return };
    let Some(both) = first.compose(&second) else { return };
    let mut builder = RecordBuilder::new(&from);
    let mut rest = parts.next().unwrap_or_default();
    while let Ok(record) = Record::check(&from, rest) {
        rest = &rest[record.bytes().len()..];
        // As a builder writes it: where a nested record is null, so is all that is in it.
        builder.clear();
        let Ok(record) = builder.copy(&record).and_then(|()| builder.finish()) else { continue };
        let (mut made, mut wanted, mut found) = (Vec::new(), Vec::new(), Vec::new());
        let outcome = first.run(record, &mut made).and_then(|()| second.run(&made, &mut wanted));
        if matches!(&outcome, Err(error) if error.problem == ConvertProblem::RecordTooLong) {
            continue;
        }
        assert_eq!(both.run(record, &mut found).is_ok(), outcome.is_ok());
        assert!(found == wanted);
    }
}
