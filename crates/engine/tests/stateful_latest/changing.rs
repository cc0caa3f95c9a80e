//! Queries of a state that are changed while they run, and the tables that their subscribers make of the difference.

use super::ordered::{First, ORDERS};
use super::*;

/// A query, and the value that it shows of a row, if it has it.
struct Asked {
    sql: &'static str,
    shown: fn(i64) -> Option<i64>,
}

static QUERIES: [Asked; 5] = [
    Asked {
        sql: "SELECT k, v FROM s SNAPSHOT THEN CHANGES WHERE v > 0",
        shown: |value| Some(value).filter(|value| *value > 0),
    },
    Asked { sql: "SELECT k, v FROM s SNAPSHOT THEN CHANGES", shown: Some },
    Asked {
        sql: "SELECT k, v + 1000 AS v FROM s SNAPSHOT THEN CHANGES WHERE v % 3 <> 0",
        shown: |value| Some(value + 1000).filter(|_| value % 3 != 0),
    },
    // Zero is a row error.
    Asked {
        sql: "SELECT k, 600 / v AS v FROM s SNAPSHOT THEN CHANGES WHERE v < 40",
        shown: |value| Some(value).filter(|value| *value < 40).and_then(|value| 600i64.checked_div(value)),
    },
    Asked {
        sql: "SELECT k, v FROM s SNAPSHOT THEN CHANGES WHERE 100 / (v + 7) > 3",
        shown: |value| Some(value).filter(|value| 100i64.checked_div(value + 7).is_some_and(|part| part > 3)),
    },
];

/// A handler of the next query in the place of one, with its progress.
pub(super) fn changed(
    handler: &mut dyn Handler,
    rows: &Format,
    (before, sql): (&str, &str),
    change: u64,
) -> SnapshotHandler {
    let (now, was) = (of_state(sql), of_state(before));
    now.check_change(&was, "state of s").unwrap();
    let (program, former) = (now.plan_snapshot(rows).unwrap(), was.plan_snapshot(rows).unwrap());
    now.check_columns(&program, &former).unwrap();
    let mut next = SnapshotHandler::changing(program, former, change);
    next.take_over(handler.hand_over().unwrap()).unwrap();
    next
}

impl Kept {
    /// Has the state walked over once more, for a reader whose query is another one now.
    pub(super) fn walk_again(&mut self) {
        self.order.walks += 1;
        self.order(self.order.readers);
    }
}

/// A subscription whose query changes.
struct Changing {
    reader: Reader,
    query: usize,
    changes: u64,
}

impl Changing {
    fn change(&mut self, kept: &mut Kept) {
        // The rows that it has got are yet to be complete.
        if self.reader.handler.holds_end() {
            return;
        }
        let before = self.query;
        self.query = (before + 1 + self.changes as usize % 3) % QUERIES.len();
        self.changes += 1;
        let queries = (QUERIES[before].sql, QUERIES[self.query].sql);
        self.reader.handler = changed(&mut self.reader.handler, &kept.rows, queries, self.changes);
        assert!(self.reader.handler.holds_end());
        kept.walk_again();
    }

    fn check(&mut self, kept: &Kept, model: &Model) {
        if self.reader.at < kept.log.len() || self.reader.handler.holds_end() {
            return;
        }
        let shown = |(key, value): &Row| Some((key.clone(), (QUERIES[self.query].shown)(*value)?));
        let wanted: Keyed = model.rows.iter().filter_map(shown).collect();
        assert_eq!(self.reader.table, wanted, "{}: {:?}", QUERIES[self.query].sql, self.reader.rows);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn a_table_equals_the_query_that_was_set_last(acts in acts(), most in 1..30usize, from in 0..QUERIES.len()) {
        let (mut kept, mut model) = (Kept::new(most as u64, 1 << 30, None), Model::default());
        let mut readers: Vec<Changing> = Vec::new();
        for (number, act) in acts.into_iter().enumerate() {
            match act {
                Act::Feed(rows) => {
                    kept.feed(&rows);
                    rows.iter().for_each(|row| drop(model.put(row, most)));
                }
                Act::Subscribe(_) if readers.len() < 3 => {
                    let query = (from + readers.len()) % QUERIES.len();
                    readers.push(Changing { reader: kept.subscribe(QUERIES[query].sql), query, changes: 0 });
                }
                Act::Subscribe(_) => readers[number % 3].change(&mut kept),
                Act::Walk => kept.walk(),
                Act::PassOn => {
                    kept.pass_on();
                    let at = number % readers.len().max(1);
                    readers.get_mut(at).into_iter().for_each(|reader| reader.change(&mut kept));
                }
                Act::Take(reader, rows) => {
                    let at = reader % readers.len().max(1);
                    if let Some(reader) = readers.get_mut(at) {
                        reader.reader.take(&kept.log, rows);
                        reader.check(&kept, &model);
                    }
                }
            }
        }
        // Each query follows the one before: complete, changed, complete again.
        for _ in 0..3 {
            kept.walk_to_the_end();
            for reader in &mut readers {
                while reader.reader.at < kept.log.len() {
                    reader.reader.take(&kept.log, 5);
                }
                prop_assert!(!reader.reader.handler.holds_end() && !reader.reader.handler.is_over());
                reader.check(&kept, &model);
                reader.change(&mut kept);
            }
        }
    }

    #[test]
    fn a_table_of_the_first_rows_equals_the_order_that_was_set_last(
        acts in acts(), most in 1..30usize, limit in prop_oneof![1..6usize, 1..40usize], from in 0..ORDERS.len(),
    ) {
        let (mut kept, mut model) = (Kept::new(most as u64, 1 << 30, None), Model::default());
        let mut readers: Vec<(First, u64)> = Vec::new();
        let change = |(first, changes): &mut (First, u64), kept: &mut Kept| {
            if first.reader.handler.holds_end() {
                return;
            }
            *changes += 1;
            let before = first.order.sql("THEN CHANGES", first.limit);
            first.order = &ORDERS[(from + *changes as usize) % ORDERS.len()];
            first.limit = (first.limit + 2 * *changes as usize) % 9 + 1;
            let sql = first.order.sql("THEN CHANGES", first.limit);
            first.reader.handler = changed(&mut first.reader.handler, &kept.rows, (&before, &sql), *changes);
            kept.walk_again();
        };
        for (number, act) in acts.into_iter().enumerate() {
            match act {
                Act::Feed(rows) => {
                    kept.feed(&rows);
                    rows.iter().for_each(|row| drop(model.put(row, most)));
                }
                Act::Subscribe(_) if readers.len() < 2 => {
                    let order = &ORDERS[(from + readers.len()) % ORDERS.len()];
                    let reader = kept.subscribe(&order.sql("THEN CHANGES", limit));
                    readers.push((First { reader, order, limit }, 0));
                }
                Act::Subscribe(_) | Act::PassOn => {
                    let at = number % readers.len().max(1);
                    readers.get_mut(at).into_iter().for_each(|reader| change(reader, &mut kept));
                }
                Act::Walk => kept.walk(),
                Act::Take(reader, rows) => {
                    let at = reader % readers.len().max(1);
                    readers.get_mut(at).into_iter().for_each(|(reader, _)| reader.take(&kept, &model, rows));
                }
            }
        }
        for _ in 0..3 {
            kept.walk_to_the_end();
            for reader in &mut readers {
                while reader.0.reader.at < kept.log.len() {
                    reader.0.take(&kept, &model, 3);
                }
                prop_assert!(!reader.0.reader.handler.holds_end());
                reader.0.take(&kept, &model, 0);
                change(reader, &mut kept);
            }
        }
    }
}

/// The last rows that a reader got, behind those that it has had.
fn new_rows(reader: &mut Reader, kept: &Kept) -> Vec<String> {
    let before = reader.rows.len();
    reader.take(&kept.log, usize::MAX);
    reader.rows.split_off(before)
}

#[test]
fn the_difference_is_given_and_rows_of_both_queries_bring_nothing() {
    let mut kept = Kept::new(100, 1 << 20, None);
    let row = |key: &str, value| (Some(key.to_owned()), value);
    kept.feed(&[row("a", 1), row("b", 2), row("c", 3), row("d", 4)]);
    let sql = |what: &str, condition: &str| format!("SELECT k, {what} FROM s SNAPSHOT THEN CHANGES WHERE {condition}");
    let queries =
        [sql("v", "v < 3"), sql("v", "v % 2 = 0"), sql("v * 1 AS v", "v > 1"), sql("v + 3 - v AS v", "v > 2")];
    let mut reader = kept.subscribe(&queries[0]);
    kept.walk_to_the_end();
    assert_eq!(new_rows(&mut reader, &kept), ["enter a 1", "enter b 2"]);
    let wanted: [&[&str]; 3] =
        [&["leave a 1", "enter d 4"], &["enter c 3"], &["leave b 2", "update d 3", "update f 3"]];
    for (number, wanted) in wanted.into_iter().enumerate() {
        let (before, sql) = (&queries[number], &queries[number + 1]);
        reader.handler = changed(&mut reader.handler, &kept.rows, (before, sql), number as u64 + 1);
        if number == 2 {
            // A new key before the walk is one for the query before.
            kept.feed(&[row("f", 6)]);
            assert_eq!(new_rows(&mut reader, &kept), ["enter f 6"]);
        }
        kept.walk_again();
        kept.walk_to_the_end();
        assert_eq!(new_rows(&mut reader, &kept), wanted, "{sql}");
    }
    // From then on by the last one, and nothing more of the others.
    kept.feed(&[row("b", 0), row("c", 9), row("d", 1)]);
    assert_eq!(new_rows(&mut reader, &kept), ["update c 3", "leave d 3"]);
    assert!(!reader.handler.holds_end() && reader.handler.counters().row_errors == 0);
}

#[test]
fn the_first_rows_of_another_order_are_compared_by_key() {
    let mut kept = Kept::new(100, 1 << 20, None);
    let row = |key: &str, value| (Some(key.to_owned()), value);
    kept.feed(&[row("a", 1), row("b", 2), row("c", 3), row("d", 4)]);
    let sql = |order: &str| format!("SELECT k, v FROM s SNAPSHOT THEN CHANGES ORDER BY {order}");
    let mut reader = kept.subscribe(&sql("v LIMIT 3"));
    kept.walk_to_the_end();
    assert_eq!(new_rows(&mut reader, &kept), ["enter a 1", "enter b 2", "enter c 3"]);
    reader.handler = changed(&mut reader.handler, &kept.rows, (&sql("v LIMIT 3"), &sql("v DESC LIMIT 2")), 1);
    // The list before goes on until the other is there.
    kept.feed(&[row("e", 0)]);
    assert_eq!(new_rows(&mut reader, &kept), ["leave c 3", "enter e 0"]);
    kept.walk_again();
    kept.walk_to_the_end();
    assert_eq!(new_rows(&mut reader, &kept), ["leave e 0", "leave a 1", "leave b 2", "enter d 4", "enter c 3"]);
    kept.feed(&[row("b", 9)]);
    assert_eq!(new_rows(&mut reader, &kept), ["leave c 3", "enter b 9"]);
    assert!(reader.handler.state_bytes() > 0);
}

/// As the daemon does it where a state's rows have had several formats: each has a handler of its own.
#[test]
fn a_state_that_begins_anew_is_lost_for_a_reader_whose_query_changes() {
    let mut kept = Kept::new(100, 1 << 20, None);
    kept.feed(&[(Some("a".into()), 1)]);
    let (before, sql) = (QUERIES[0].sql, QUERIES[1].sql);
    let mut reader = kept.subscribe(before);
    kept.walk_to_the_end();
    reader.take(&kept.log, usize::MAX);
    reader.handler = changed(&mut reader.handler, &kept.rows, (before, sql), 1);
    // The other handler begins anew, as after a fault.
    kept.has = 1;
    kept.walk_again();
    kept.feed(&[(Some("b".into()), 2)]);
    kept.walk_to_the_end();
    reader.take(&kept.log, usize::MAX);
    assert!(reader.handler.is_lost() && reader.rows == ["enter a 1"], "{:?}", reader.rows);
}

const DELTAS_OF_ALL: &str = "SELECT v, k, 'x' || word AS word, kind FROM s SNAPSHOT THEN CHANGES DELTA WHERE v < 40";

proptest! {
    #[test]
    fn a_table_of_deltas_equals_the_query_that_was_set_last(acts in acts(), most in 1..30usize) {
        let (mut kept, mut model) = (Kept::new(most as u64, 1 << 30, None), Model::default());
        let program = plan(DELTAS, &kept.rows);
        let output = program.output().clone();
        let (mut handler, mut deltas, mut at, mut changes) = (SnapshotHandler::new(program), Deltas::default(), 0, 0);
        kept.order.walks = 1;
        kept.order(1);
        let mut take = |handler: &mut SnapshotHandler, kept: &Kept, deltas: &mut Deltas, rows: usize| {
            let end = kept.log.len().min(at + rows);
            let (batch, mut out) = (support::batch(&kept.log[at..end]), Vec::<Vec<u8>>::new());
            at = end;
            let _ = handler.process(&batch, &mut Selection::all(batch.len()), &mut out);
            out.iter().for_each(|row| deltas.put(&Record::check(&output, row).unwrap()));
        };
        for act in acts {
            match act {
                Act::Feed(rows) => {
                    kept.feed(&rows);
                    rows.iter().for_each(|row| drop(model.put(row, most)));
                }
                Act::Take(_, rows) => take(&mut handler, &kept, &mut deltas, rows),
                Act::Walk => kept.walk(),
                Act::PassOn => kept.pass_on(),
                Act::Subscribe(_) if handler.holds_end() => {}
                Act::Subscribe(_) => {
                    let queries = if changes % 2 == 0 { (DELTAS, DELTAS_OF_ALL) } else { (DELTAS_OF_ALL, DELTAS) };
                    changes += 1;
                    handler = changed(&mut handler, &kept.rows, queries, changes);
                    kept.walk_again();
                }
            }
        }
        kept.walk_to_the_end();
        take(&mut handler, &kept, &mut deltas, 1 << 20);
        prop_assert!(!handler.holds_end());
        let is_first = changes % 2 == 0;
        let prefix = if is_first { "" } else { "x" };
        let whole = |(key, value): (Option<String>, i64)| {
            let kind = if value % 2 == 0 { "near" } else { "far" };
            (key, (value, format!("{prefix}{}", "w".repeat(value.unsigned_abs() as usize % 40)), kind.to_owned()))
        };
        let wanted: BTreeMap<_, _> = model.table(|value| if is_first { value > 0 } else { value < 40 }).into_iter().map(whole).collect();
        prop_assert_eq!(deltas.table, wanted);
    }
}
