//! Changes that a slow subscriber has not got yet, as one change of each row, and the tables that it makes of them.

use super::changing::changed;
use super::ordered::ORDERS;
use super::*;
use crossdock_engine::{ChangeMerger, Key, KeyHasher};

const CLAUSE: &str = "ON SLOW CONFLATE BY (k)";

/// A query, and the value that it shows of a row, if it has it.
type Asked = (&'static str, fn(i64) -> Option<i64>);

static QUERIES: [Asked; 3] = [
    ("SELECT k, v FROM s SNAPSHOT THEN CHANGES WHERE v > 0 ON SLOW CONFLATE BY (k)", |value| {
        Some(value).filter(|value| *value > 0)
    }),
    ("SELECT k, v FROM s t ON SLOW CONFLATE BY (t.K) SNAPSHOT THEN CHANGES", Some),
    ("SELECT k, v + 1000 AS v FROM s SNAPSHOT THEN CHANGES WHERE v % 3 <> 0 ON SLOW CONFLATE BY (\"k\")", |value| {
        Some(value + 1000).filter(|_| value % 3 != 0)
    }),
];

/// A subscription whose changes wait until it takes them.
struct Slow {
    handler: SnapshotHandler,
    merger: ChangeMerger,
    hasher: KeyHasher,
    output: Format,
    at: usize,
    /// One change of each row, in the order in which the first of each came.
    waiting: Vec<(Key, Vec<u8>)>,
}

impl Slow {
    fn new(sql: &str, kept: &mut Kept) -> Slow {
        let program = plan(sql, &kept.rows);
        let (merger, output) = (ChangeMerger::of(&program).unwrap(), program.output().clone());
        let at = kept.log.len();
        kept.order.walks += 1;
        kept.order(kept.order.readers + 1);
        let (hasher, waiting) = (KeyHasher::default(), Vec::new());
        Slow { handler: SnapshotHandler::new(program), merger, hasher, output, at, waiting }
    }

    /// Has the query run on the next rows of the state's, up to `most` of them.
    fn run(&mut self, log: &[Vec<u8>], most: usize) {
        let end = log.len().min(self.at.saturating_add(most));
        let (batch, mut out) = (support::batch(&log[self.at..end]), Vec::<Vec<u8>>::new());
        self.at = end;
        let _ = self.handler.process(&batch, &mut Selection::all(batch.len()), &mut out);
        for row in out {
            let key = self.merger.key_of(&mut self.hasher, &row);
            let Some(at) = self.waiting.iter().position(|(of, _)| *of == key) else {
                self.waiting.push((key, row));
                continue;
            };
            match self.merger.merge(&self.waiting[at].1, &row).unwrap() {
                Some(merged) => self.waiting[at].1 = merged.to_vec(),
                None => drop(self.waiting.remove(at)),
            }
        }
    }

    /// Takes what waits.
    fn take(&mut self, mut take: impl FnMut(&Record<'_>)) {
        self.waiting.drain(..).for_each(|(_, row)| take(&Record::check(&self.output, &row).unwrap()));
    }

    /// Whether it has all that the state has given so far.
    fn is_complete(&self, kept: &Kept) -> bool {
        self.at == kept.log.len() && self.waiting.is_empty() && !self.handler.holds_end()
    }
}

/// Takes a change into a table by key. Each is of a row that is there, or begins one that is not.
fn put(table: &mut Keyed, row: &Record<'_>) {
    let text = |name: &str| match row.field(name) {
        Some(Value::Text(text)) => Some(String::from_utf8(text.to_vec()).unwrap()),
        _ => None,
    };
    let (key, change) = (text("k"), text("_change").unwrap());
    let Some(Value::Int(value)) = row.field("v") else { panic!("a value") };
    let had = if change == "leave" { table.remove(&key) } else { table.insert(key.clone(), value) };
    assert_eq!(had.is_some(), change != "enter", "{change} of {key:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn a_table_of_conflated_changes_equals_the_query_that_was_set_last(acts in acts(), most in 1..30usize) {
        let (mut kept, mut model) = (Kept::new(most as u64, 1 << 30, None), Model::default());
        let mut reader = Slow::new(QUERIES[0].0, &mut kept);
        let (mut query, mut changes, mut table) = (0, 0, Keyed::new());
        let check = |reader: &Slow, kept: &Kept, model: &Model, query: usize, table: &Keyed| {
            if reader.is_complete(kept) {
                let shown = |(key, value): &Row| Some((key.clone(), (QUERIES[query].1)(*value)?));
                assert_eq!(*table, model.rows.iter().filter_map(shown).collect::<Keyed>(), "{}", QUERIES[query].0);
            }
        };
        for act in acts {
            match act {
                Act::Feed(rows) => {
                    kept.feed(&rows);
                    rows.iter().for_each(|row| drop(model.put(row, most)));
                }
                Act::Subscribe(_) if !reader.handler.holds_end() => {
                    let before = query;
                    query = (before + 1) % QUERIES.len();
                    changes += 1;
                    let queries = (QUERIES[before].0, QUERIES[query].0);
                    // The clause stays: its columns are written otherwise here.
                    let plain = |sql: &str| sql.split("ON SLOW").next().unwrap().replace(" t ", " SNAPSHOT THEN CHANGES");
                    let (was, now) = (plain(queries.0), plain(queries.1));
                    reader.handler = changed(&mut reader.handler, &kept.rows, (&was, &now), changes);
                    kept.walk_again();
                }
                Act::Walk | Act::Subscribe(_) => kept.walk(),
                Act::PassOn => kept.pass_on(),
                Act::Take(4.., _) => reader.take(|row| put(&mut table, row)),
                Act::Take(_, rows) => reader.run(&kept.log, 3 * rows),
            }
            check(&reader, &kept, &model, query, &table);
        }
        kept.walk_to_the_end();
        reader.run(&kept.log, usize::MAX);
        reader.take(|row| put(&mut table, row));
        prop_assert!(reader.is_complete(&kept));
        check(&reader, &kept, &model, query, &table);
    }

    #[test]
    fn a_table_of_conflated_deltas_equals_the_query(acts in acts(), most in 1..30usize) {
        let (mut kept, mut model) = (Kept::new(most as u64, 1 << 30, None), Model::default());
        let mut reader = Slow::new(&format!("{DELTAS} {CLAUSE}"), &mut kept);
        let mut deltas = Deltas::default();
        for act in acts {
            match act {
                Act::Feed(rows) => {
                    kept.feed(&rows);
                    rows.iter().for_each(|row| drop(model.put(row, most)));
                }
                Act::Walk | Act::Subscribe(_) => kept.walk(),
                Act::PassOn => kept.pass_on(),
                Act::Take(5.., _) => reader.take(|row| deltas.put(row)),
                Act::Take(_, rows) => reader.run(&kept.log, 3 * rows),
            }
        }
        kept.walk_to_the_end();
        reader.run(&kept.log, usize::MAX);
        reader.take(|row| deltas.put(row));
        let whole = |(key, value): (Option<String>, i64)| {
            let kind = if value % 2 == 0 { "near" } else { "far" };
            (key, (value, "w".repeat(value.unsigned_abs() as usize % 40), kind.to_owned()))
        };
        let wanted: BTreeMap<_, _> = model.table(|value| value > 0).into_iter().map(whole).collect();
        prop_assert_eq!(deltas.table, wanted);
    }

    #[test]
    fn a_table_of_conflated_first_rows_equals_the_order(
        acts in acts(), most in 1..30usize, limit in 1..9usize, order in 0..ORDERS.len(),
    ) {
        let (mut kept, mut model) = (Kept::new(most as u64, 1 << 30, None), Model::default());
        let order = &ORDERS[order];
        let mut reader = Slow::new(&format!("{} {CLAUSE}", order.sql("THEN CHANGES", limit)), &mut kept);
        let mut table = Keyed::new();
        for act in acts {
            match act {
                Act::Feed(rows) => {
                    kept.feed(&rows);
                    rows.iter().for_each(|row| drop(model.put(row, most)));
                }
                Act::Walk | Act::Subscribe(_) => kept.walk(),
                Act::PassOn => kept.pass_on(),
                Act::Take(4.., _) => reader.take(|row| put(&mut table, row)),
                Act::Take(_, rows) => reader.run(&kept.log, 3 * rows),
            }
            if reader.is_complete(&kept) {
                prop_assert_eq!(&table, &order.rows(&model, limit).into_iter().collect::<Keyed>());
            }
        }
        kept.walk_to_the_end();
        reader.run(&kept.log, usize::MAX);
        reader.take(|row| put(&mut table, row));
        prop_assert_eq!(table, order.rows(&model, limit).into_iter().collect::<Keyed>());
    }
}

#[test]
fn two_changes_of_a_row_are_one() {
    let row = |value| (Some("a".to_owned()), value);
    // From no row or one; the values since, those below zero being none of the query's; what comes of them.
    for (before, since, wanted) in [
        (-1, &[1][..], Some(("enter", 1))),
        (-1, &[1, 2, 3], Some(("enter", 3))),
        (-1, &[1, -1], None),
        (-1, &[1, 2, -1], None),
        (-1, &[1, -1, 4], Some(("enter", 4))),
        (9, &[1, 2], Some(("update", 2))),
        (9, &[1, -1], Some(("leave", 1))),
        (9, &[-1, 3], Some(("update", 3))),
        (9, &[-1, 3, -1, 4, 5], Some(("update", 5))),
        (9, &[-1, 3, -1], Some(("leave", 3))),
    ] {
        let mut kept = Kept::new(10, 1 << 20, None);
        kept.feed(&[row(before)]);
        let mut reader = Slow::new(QUERIES[0].0, &mut kept);
        kept.walk_to_the_end();
        reader.run(&kept.log, usize::MAX);
        reader.take(|_| {});
        since.iter().for_each(|value| kept.feed(&[row(*value)]));
        reader.run(&kept.log, usize::MAX);
        let mut came = Vec::new();
        reader.take(|row| {
            let (Some(Value::Text(change)), Some(Value::Int(value))) = (row.field("_change"), row.field("v")) else {
                panic!("a change")
            };
            came.push((String::from_utf8(change.to_vec()).unwrap(), value));
        });
        let wanted: Vec<_> = wanted.into_iter().map(|(change, value)| (change.to_owned(), value)).collect();
        assert_eq!(came, wanted, "{before} {since:?}");
    }
}

#[test]
fn only_the_key_of_the_state_conflates_and_the_list_has_it() {
    let rows = Kept::new(1, 1, None).rows;
    let why = |sql: &str| of_state(sql).plan_snapshot(&rows).unwrap_err().to_string();
    for columns in ["v", "k, v"] {
        let other = why(&format!("SELECT * FROM s SNAPSHOT THEN CHANGES ON SLOW CONFLATE BY ({columns})"));
        assert!(other.contains("possible is: ON SLOW CONFLATE BY (K)") && other.contains("column 60"), "{other}");
    }
    let missing = why("SELECT v FROM s SNAPSHOT THEN CHANGES ON SLOW CONFLATE BY (k)");
    assert!(missing.contains("have in the list: K"), "{missing}");
    let unknown = why("SELECT * FROM s SNAPSHOT ON SLOW CONFLATE BY (wrod)");
    assert!(unknown.contains("did you mean `word`?"), "{unknown}");
    let once = plan("SELECT v, k FROM s SNAPSHOT ON SLOW CONFLATE BY (k)", &rows);
    assert_eq!(once.conflated_by, Some(vec![1]));
    assert!(ChangeMerger::of(&once).is_some());
    assert!(ChangeMerger::of(&plan("SELECT v FROM s SNAPSHOT THEN CHANGES ON SLOW DISCONNECT", &rows)).is_none());
}
