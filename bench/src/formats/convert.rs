//! Conversion plans: 20 fields to 6, against the same written by hand; and chains of them, fused and not.

use super::Case;
use super::flight::Flights;
use crate::cpu::Error;
use crossdock_format::convert::{Plan, Rules};
use crossdock_format::{Format, Record, record_len};
use std::path::Path;

/// The six fields: one is renamed, one is widened, one may be null.
const SIX: &str = "carrier char[2]\nflight i64\norigin char[3]\ndest char[3]\ndelay f64 null\ndistance i32";

/// Where the header of `ffs` is, if it is installed: PBIO's later form, 53 ns for this conversion on another machine.
const FFS: [&str; 2] = ["/usr/include/ffs.h", "/usr/local/include/ffs.h"];

pub(super) fn cases(flights: &Flights) -> Result<Vec<Case<'_>>, Error> {
    match FFS.iter().find(|header| Path::new(header).exists()) {
        Some(header) => eprintln!("ffs: {header} is there, but this benchmark has no program for it"),
        None => eprintln!("ffs is not installed: convert_20_to_6 is not held against it"),
    }
    let six = Format::parse_schema(SIX)?;
    let plan = Plan::by_name(&flights.format, &six, &"rename dep_delay delay".parse()?)?;
    check_places(&flights.format, &six)?;
    let (mut by_plan, mut by_hand) = (Vec::new(), Vec::new());
    plan.run_payload(&flights.records, &mut by_plan, |_, _| {});
    hand_written(&flights.records, &mut by_hand);
    if by_plan != by_hand {
        return Err("the conversion written by hand gives other records than the plan".into());
    }
    let payload = &flights.records;
    let records = flights.each()?;
    let hand = |mut out: Vec<u8>| {
        move || {
            out.clear();
            hand_written(payload, &mut out);
            out.len() as u64
        }
    };
    let mut cases = Vec::new();
    let (all, mut out) = (plan.clone(), Vec::new());
    let by_payload = Case::new("convert_20_to_6", move || {
        out.clear();
        all.run_payload(payload, &mut out, |_, _| {});
        out.len() as u64
    });
    cases.push(by_payload.against("hand_written", hand(Vec::new())));
    let (one, mut out) = (plan, Vec::new());
    let one_by_one = Case::new("convert_one_by_one", move || {
        out.clear();
        for record in &records {
            // Counted by what is missing from the length, as any caller would.
            let _ = one.run(record, &mut out);
        }
        out.len() as u64
    });
    cases.push(one_by_one.against("hand_written", hand(Vec::new())));
    cases.extend(chains(flights)?);
    Ok(cases)
}

/// Refuses formats for which [`hand_written`] was not written.
fn check_places(from: &Format, to: &Format) -> Result<(), Error> {
    let at = |format: &Format, name: &str| format.field(name).map(|field| format.fields()[field].offset as usize);
    let wanted = [
        (at(from, "carrier"), FROM_CARRIER),
        (at(from, "flight"), FROM_FLIGHT),
        (at(from, "origin"), FROM_ORIGIN),
        (at(from, "dest"), FROM_DEST),
        (at(from, "dep_delay"), FROM_DELAY),
        (at(from, "distance"), FROM_DISTANCE),
        (at(to, "carrier"), 5),
        (at(to, "flight"), 8),
        (at(to, "origin"), 16),
        (at(to, "dest"), 19),
        (at(to, "delay"), 24),
        (at(to, "distance"), 32),
        (Some(to.fixed_bytes()), SIX_BYTES),
    ];
    match wanted.iter().find(|(found, wanted)| *found != Some(*wanted)) {
        None => Ok(()),
        Some((found, wanted)) => Err(format!("a field is at {found:?}, hand_written has {wanted}").into()),
    }
}

const FROM_DELAY: usize = 24;
const FROM_CARRIER: usize = 48;
const FROM_FLIGHT: usize = 52;
const FROM_ORIGIN: usize = 64;
const FROM_DEST: usize = 67;
const FROM_DISTANCE: usize = 80;
/// Null bit of `dep_delay`, in byte 4.
const FROM_DELAY_NULL: u8 = 1 << 1;
const SIX_BYTES: usize = 40;
/// As far as a record is looked at.
const LOOKED_AT: usize = 84;

/// The conversion by hand for just these two formats: nothing is looked up and nothing checked but that there is a record.
fn hand_written(payload: &[u8], out: &mut Vec<u8>) {
    let mut rest = payload;
    while let Some(length) = record_len(rest) {
        let (record, after) = rest.split_at(length);
        rest = after;
        let Some(record) = record.first_chunk::<LOOKED_AT>() else { return };
        let mut row = [0; SIX_BYTES];
        row[..4].copy_from_slice(&(SIX_BYTES as u32).to_le_bytes());
        row[4] = u8::from(record[4] & FROM_DELAY_NULL != 0);
        row[5..7].copy_from_slice(&record[FROM_CARRIER..FROM_CARRIER + 2]);
        let flight = i32::from_le_bytes(take(record, FROM_FLIGHT));
        row[8..16].copy_from_slice(&i64::from(flight).to_le_bytes());
        row[16..19].copy_from_slice(&record[FROM_ORIGIN..FROM_ORIGIN + 3]);
        row[19..22].copy_from_slice(&record[FROM_DEST..FROM_DEST + 3]);
        row[24..32].copy_from_slice(&record[FROM_DELAY..FROM_DELAY + 8]);
        row[32..36].copy_from_slice(&record[FROM_DISTANCE..FROM_DISTANCE + 4]);
        out.extend_from_slice(&row);
    }
}

#[inline]
fn take<const N: usize>(record: &[u8; LOOKED_AT], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&record[at..at + N]);
    bytes
}

/// The schema after each step of a chain, and the rules that lead there from the one before: every step widens, renames
/// or computes something.
const CHAIN: [(&str, &str); 6] = [
    ("id u32\ndelay i16\nseen i32\nfare f32\nkind char[4]", ""),
    ("id u64\ndelay i16\nat timestamp\nprice f32\nkind char[4]", "rename seen at\nunit at s\nrename fare price"),
    ("flight u64\ndelay i32\nat timestamp\nprice f32\nkind char[4]", "rename id flight"),
    ("flight u64\ndelay i32\nat timestamp\nprice f64\nkind char[4]", ""),
    ("flight u64\ndelay i64\nat timestamp\nprice f64\nkind char[8]", ""),
    ("flight u64\ndelay f64\nat timestamp\nprice f64\nkind char[8]\nsource u8", "default source 1"),
];

/// A chain of 1 to 5 steps, as one plan and as one after the other.
fn chains<'a>(flights: &Flights) -> Result<Vec<Case<'a>>, Error> {
    let formats = CHAIN.iter().map(|(schema, _)| Format::parse_schema(schema)).collect::<Result<Vec<_>, _>>()?;
    let mut plans = Vec::new();
    for (pair, (_, rules)) in formats.windows(2).zip(&CHAIN[1..]) {
        plans.push(Plan::by_name(&pair[0], &pair[1], &rules.parse()?)?);
    }
    let first = "rename sequence id\nrename distance delay\nrename flight seen\nrename dep_delay fare\nrename carrier kind\n\
                 default fare 0";
    let start = Plan::by_name(&flights.format, &formats[0], &first.parse::<Rules>()?)?;
    let mut payload = Vec::new();
    let records = start.run_payload(&flights.records, &mut payload, |_, _| {});
    Record::check(&formats[0], &payload)?;
    let mut cases = Vec::new();
    let mut fused = vec![plans[0].clone()];
    for next in &plans[1..] {
        let longer = fused.last().and_then(|fused| fused.compose(next));
        fused.push(longer.ok_or("the steps of a chain do not fit one another")?);
    }
    for (steps, fused) in (1..).zip(&fused) {
        let as_one = Case::new(&format!("morph_chain_{steps}"), pass(fused, &payload));
        let (input, own, mut outs) = (payload.clone(), plans[..steps].to_vec(), vec![Vec::new(); steps]);
        let one_by_one = move || {
            let mut from: &[u8] = &input;
            for (plan, out) in own.iter().zip(&mut outs) {
                out.clear();
                plan.run_payload(from, out, |_, _| {});
                from = out;
            }
            from.len() as u64
        };
        cases.push(Case { records, ..as_one }.against("not_fused", one_by_one));
    }
    if let [one, .., five] = &fused[..] {
        let five = Case::new("morph_chain_5_to_1", pass(five, &payload));
        cases.push(Case { records, ..five }.against("morph_chain_1", pass(one, &payload)));
    }
    Ok(cases)
}

/// Going over a payload with a plan.
fn pass<'a>(plan: &Plan, payload: &[u8]) -> impl FnMut() -> u64 + use<'a> {
    let (plan, payload, mut out) = (plan.clone(), payload.to_vec(), Vec::new());
    move || {
        out.clear();
        plan.run_payload(&payload, &mut out, |_, _| {});
        out.len() as u64
    }
}
