//! Narrows chains to the fields that are read: extraction before reformatting.

use crate::morph::compile::Part;
use crossdock_control::order::{Dependency, needed};
use crossdock_format::Format;

/// The parts of a chain, each making only the fields that a later part reads; of the last part, those flagged in
/// `reads`. The records differ only in fields that are not read, and the same records are refused. A part is unchanged
/// where all of its fields are read, or where it cannot make less.
pub(crate) fn narrow(parts: Vec<Part>, reads: &[bool]) -> Vec<Part> {
    // Records pass unchanged.
    let Some(last) = parts.last() else { return parts };
    let is_read = reads.iter().enumerate().filter(|(_, read)| **read).map(|(index, _)| index);
    let mut read = members(last.to(), is_read);
    if read.is_empty() {
        // Records are still to be counted.
        read.push(0);
    }
    let mut steps: Vec<Vec<Dependency>> = parts.iter().map(dependencies).collect();
    steps.push(vec![Dependency { reads: read, can_fail: true }]);
    // Each time around, one more part makes all that it can, or reads all that there is as well.
    for _ in 0..=2 * parts.len() {
        match narrowed(&parts, &needed(&steps)) {
            Ok(parts) => return parts,
            Err(whole) => {
                let found = steps.get_mut(whole).zip(parts.get(whole));
                debug_assert!(found.is_some(), "there is a step for each of the parts");
                let Some((step, part)) = found else { return parts };
                if step.iter().all(|making| making.can_fail) {
                    step.push(Dependency { reads: (0..part.from().tree().len()).collect(), can_fail: true });
                }
                step.iter_mut().for_each(|making| making.can_fail = true);
            }
        }
    }
    parts
}

/// The parts making these members; or which of them cannot.
fn narrowed(parts: &[Part], needed: &[Vec<bool>]) -> Result<Vec<Part>, usize> {
    let mut narrowed: Vec<Part> = Vec::with_capacity(parts.len());
    for (index, (part, needed)) in parts.iter().zip(needed).enumerate() {
        let is_needed = |member: usize| needed.get(member).is_some_and(|needed| *needed);
        let makes: Vec<bool> = part.to().members().into_iter().map(is_needed).collect();
        let from = narrowed.last().map_or(part.from(), Part::to);
        let is_whole = from == part.from() && makes.iter().all(|makes| *makes);
        let less = if is_whole { Some(part.clone()) } else { part.narrowed(from, &makes) };
        narrowed.push(less.ok_or(index)?);
    }
    Ok(narrowed)
}

/// The dependencies of each member of a part's format; after these, dependencies that matter only because they can
/// refuse a record.
fn dependencies(part: &Part) -> Vec<Dependency> {
    let of = part.to().members();
    let mut members_made = vec![Dependency::default(); part.to().tree().len()];
    for (index, (reads, can_fail)) in part.dependencies().into_iter().enumerate() {
        let reads = members(part.from(), reads.into_iter());
        match of.get(index).and_then(|member| members_made.get_mut(*member)) {
            Some(making) => {
                making.reads.extend(reads);
                making.can_fail |= can_fail;
            }
            None => members_made.push(Dependency { reads, can_fail }),
        }
    }
    members_made
}

/// The members that fields of these indices are or lie in.
fn members(format: &Format, fields: impl Iterator<Item = usize>) -> Vec<usize> {
    let of = format.members();
    fields.filter_map(|index| of.get(index).copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::narrow;
    use crate::morph::chain::{ConversionChain, Trial};
    use crate::morph::compile::{Compiled, Part};
    use crossdock_format::{Format, Record, RecordBuilder, Value};
    use std::sync::Arc;

    const BASE: &str = "a i32\nb i16 null\nc string\nd f64\ne u8";

    /// A next format for these fields, and how it is made: by name or by a query, with less or with more room.
    fn step(random: &mut fastrand::Rng, from: &Format) -> (Format, String) {
        let mut fields: Vec<_> = from.fields().iter().filter(|_| random.u8(..4) > 0).collect();
        if fields.is_empty() {
            fields.extend(from.fields().first());
        }
        random.shuffle(&mut fields);
        if random.bool() {
            let item = |random: &mut fastrand::Rng, name: &str| match (name, random.bool()) {
                ("c", true) => "c || 'x' AS c".to_owned(),
                (name, true) if name != "c" => format!("{name} + 1 AS {name}"),
                (name, _) => name.to_owned(),
            };
            let items: Vec<String> = fields.iter().map(|field| item(random, &field.name)).collect();
            let sql = format!("SELECT {} FROM x", items.join(", "));
            let to = crossdock_query::parse(&sql).and_then(|select| select.plan(from)).expect("it is SQL").output;
            return (to, sql);
        }
        let mut line = |name: &str| {
            let types: &[&str] = match name {
                "c" => &["string", "char[6]"],
                "d" => &["f64", "f32 null"],
                "b" => &["i16 null", "i32 null", "i8 null"],
                _ => &["i64", "u8", "i32 null"],
            };
            let ty = *random.choice(types).expect("there are some");
            // A nullable field stays nullable.
            let null = from.field(name).is_some_and(|at| from.fields()[at].nullable) && !ty.ends_with("null");
            format!("{name} {ty}{}\n", if null { " null" } else { "" })
        };
        let schema: String = fields.iter().map(|field| line(&field.name)).collect();
        (Format::parse_schema(&schema).expect("it is a schema"), String::new())
    }

    fn payload(random: &mut fastrand::Rng, format: &Format) -> Vec<u8> {
        let (mut row, mut payload) = (RecordBuilder::new(format), Vec::new());
        for _ in 0..20 {
            row.clear();
            let small = |random: &mut fastrand::Rng| {
                if random.u8(..4) > 0 { random.i64(0..100) } else { random.i64(0..30_000) }
            };
            row.set_i64(0, small(random)).expect("it fits");
            if random.bool() {
                row.set_i64(1, small(random)).expect("it fits");
            }
            row.set_text(2, &"texts and texts"[..random.usize(..15)]).expect("it fits");
            row.set_f64(3, small(random) as f64).expect("it fits");
            row.set_u64(4, random.u64(..256)).expect("it fits");
            payload.extend_from_slice(row.finish().expect("all is set"));
        }
        payload
    }

    /// The values of the fields of these names in what comes out of chains that follow one another, and how many
    /// records were refused.
    fn outcome(from: &Format, chains: &[&[Part]], payload: &[u8], names: &[&str]) -> (Vec<String>, u64) {
        let (mut at, mut payload, mut refused) = (from.clone(), payload.to_vec(), 0);
        for parts in chains {
            let made = parts.last().expect("there are some").to().clone();
            let chain = ConversionChain {
                number: 1,
                from: at.clone(),
                to: made.clone(),
                made: made.clone(),
                reads: Box::default(),
                steps: Vec::new(),
                weight: 0,
                parts: parts.to_vec(),
                tally: Arc::default(),
            };
            let mut trial = Trial::new(&chain).expect("memory, and parts of no encoding");
            if !payload.is_empty() {
                let batch = trial.batch(&payload, &at);
                assert_eq!(batch.payload_bytes(), payload.len());
                trial.run(&batch);
                payload = trial.made();
                refused += chain.tally.count().into_iter().sum::<u64>();
            }
            at = made;
        }
        let mut came = Vec::new();
        let sound = at.check_records(&payload, |start, len| {
            let record = Record::assume_checked(&at, &payload[start as usize..(start + len) as usize]);
            let value = |name: &&str| at.field(name).map_or(Value::Null, |field| record.get(field));
            came.push(format!("{:?}", names.iter().map(value).collect::<Vec<_>>()));
        });
        sound.expect("records of the format");
        (came, refused)
    }

    #[test]
    fn narrowed_chains_give_the_same_for_what_is_read_and_refuse_the_same() {
        let mut narrower = 0;
        for seed in 0..400 {
            let mut random = fastrand::Rng::with_seed(seed);
            let base = Format::parse_schema(BASE).expect("it is a schema");
            let (mut at, mut parts) = (base.clone(), Vec::new());
            for _ in 0..random.usize(1..5) {
                let (to, text) = step(&mut random, &at);
                let compiled = Compiled::new(&at, &to, &text).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
                parts.extend(compiled.parts);
                at = to;
            }
            if parts.is_empty() {
                continue;
            }
            let reads: Vec<bool> = at.fields().iter().map(|_| random.bool()).collect();
            let read = at.fields().iter().zip(&reads).filter(|(_, read)| **read);
            let names: Vec<&str> = read.map(|(field, _)| field.name.as_str()).collect();
            let less = narrow(parts.clone(), &reads);
            let fields = |parts: &[Part]| parts.iter().map(|part| part.to().fields().len()).sum::<usize>();
            narrower += usize::from(fields(&less) < fields(&parts));
            let payload = payload(&mut random, &base);
            let each: Vec<&[Part]> = parts.chunks(1).collect();
            let expected = outcome(&base, &each, &payload, &names);
            assert_eq!(outcome(&base, &[&parts], &payload, &names), expected, "seed {seed}");
            assert_eq!(outcome(&base, &[&less], &payload, &names), expected, "seed {seed}, narrowed");
        }
        assert!(narrower > 100, "{narrower}");
    }
}
