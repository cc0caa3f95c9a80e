//! The first rows of a state in order, and the tables that subscribers make of their changes.

use super::*;

/// A query of the first rows in order, the rows that it reads, and the order: by a value that may be null, of a row.
pub(super) struct Ordered {
    order: &'static str,
    compare: fn(&Row, &Row) -> std::cmp::Ordering,
}

/// Null is greater than every value.
fn nulls_last<T: Ord>(one: &Option<T>, other: &Option<T>) -> std::cmp::Ordering {
    one.is_none().cmp(&other.is_none()).then_with(|| one.cmp(other))
}

/// `NULLIF(v % 5, 0)`
fn part(row: &Row) -> Option<i64> {
    Some(row.1 % 5).filter(|part| *part != 0)
}

pub(super) static ORDERS: [Ordered; 6] = [
    Ordered {
        order: "v % 7 DESC, NULLIF(v % 5, 0)",
        compare: |a, b| (b.1 % 7).cmp(&(a.1 % 7)).then_with(|| nulls_last(&part(a), &part(b))),
    },
    Ordered { order: "NULLIF(v % 5, 0) DESC", compare: |a, b| nulls_last(&part(b), &part(a)) },
    Ordered { order: "NULLIF(v % 5, 0) ASC NULLS FIRST", compare: |a, b| part(a).cmp(&part(b)) },
    Ordered {
        order: "nullif(s.v % 5, 0) DESC NULLS LAST, 2",
        compare: |a, b| part(b).cmp(&part(a)).then(a.1.cmp(&b.1)),
    },
    Ordered { order: "k DESC", compare: |a, b| nulls_last(&b.0, &a.0) },
    Ordered {
        order: "word DESC, (v / 20.0)::float, third",
        compare: |a, b| (b.1.abs() % 40).cmp(&(a.1.abs() % 40)).then(a.1.cmp(&b.1)),
    },
];

impl Ordered {
    pub(super) fn sql(&self, snapshot: &str, limit: usize) -> String {
        let order = self.order;
        format!("SELECT k, v, v / 3 AS third FROM s SNAPSHOT {snapshot} WHERE v > -20 ORDER BY {order} LIMIT {limit}")
    }

    /// The rows of a state that its query gives.
    pub(super) fn rows(&self, model: &Model, limit: usize) -> Vec<Row> {
        let mut rows: Vec<Row> = model.rows.iter().filter(|(_, value)| *value > -20).cloned().collect();
        rows.sort_by(|a, b| (self.compare)(a, b).then_with(|| nulls_last(&a.0, &b.0)));
        rows.truncate(limit);
        rows
    }
}

/// A reader of the first rows in order.
pub(super) struct First<'a> {
    pub(super) reader: Reader,
    pub(super) order: &'a Ordered,
    pub(super) limit: usize,
}

impl First<'_> {
    pub(super) fn take(&mut self, kept: &Kept, model: &Model, most: usize) {
        self.reader.take(&kept.log, most);
        let is_within = self.reader.table.len() <= self.limit;
        assert!(is_within || self.reader.handler.holds_end(), "{:?}", self.reader.rows);
        if self.reader.at == kept.log.len() && !self.reader.handler.holds_end() {
            let wanted: Keyed = self.order.rows(model, self.limit).into_iter().collect();
            assert_eq!(self.reader.table, wanted, "{}: {:?}", self.order.order, self.reader.rows);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn a_table_of_the_first_rows_equals_the_sorted_state(
        acts in acts(), most in 1..30usize, limit in prop_oneof![1..6usize, 1..40usize], from in 0..ORDERS.len(),
    ) {
        let (mut kept, mut model) = (Kept::new(most as u64, 1 << 30, None), Model::default());
        let mut readers: Vec<First> = Vec::new();
        for act in acts {
            match act {
                Act::Feed(rows) => {
                    kept.feed(&rows);
                    rows.iter().for_each(|row| drop(model.put(row, most)));
                }
                Act::Subscribe(_) => {
                    let order = &ORDERS[(from + readers.len()) % ORDERS.len()];
                    let reader = kept.subscribe(&order.sql("THEN CHANGES", limit));
                    readers.push(First { reader, order, limit });
                }
                Act::Walk => kept.walk(),
                Act::PassOn => kept.pass_on(),
                Act::Take(reader, rows) => {
                    let at = reader % readers.len().max(1);
                    readers.get_mut(at).into_iter().for_each(|reader| reader.take(&kept, &model, rows));
                }
            }
        }
        kept.walk_to_the_end();
        for reader in &mut readers {
            while reader.reader.at < kept.log.len() {
                reader.take(&kept, &model, 3);
            }
            prop_assert!(!reader.reader.handler.holds_end());
            reader.take(&kept, &model, 0);
        }
        // All that is there, once more: in order.
        for order in &ORDERS {
            let wanted = order.rows(&model, limit);
            let shown = |word: &str| -> Vec<String> {
                let row = |(key, value): &Row| format!("{word} {} {value}", key.as_deref().unwrap_or("null"));
                wanted.iter().map(row).collect()
            };
            let (mut once, mut follows) = (kept.subscribe(&order.sql("", limit)), kept.subscribe(&order.sql("THEN CHANGES", limit)));
            kept.walk_to_the_end();
            once.take(&kept.log, usize::MAX);
            prop_assert!(once.handler.is_over() && once.handler.failure().is_none());
            prop_assert_eq!(once.rows, shown("-"));
            follows.take(&kept.log, usize::MAX);
            prop_assert_eq!(follows.rows, shown("enter"));
        }
    }
}

#[test]
fn a_row_that_leaves_the_first_makes_room_for_the_next() {
    let mut kept = Kept::new(4, 1 << 20, None);
    let row = |key: &str, value| (Some(key.to_owned()), value);
    kept.feed(&[row("a", 50), row("b", 40), row("c", 30), row("d", 30)]);
    let follow = |kept: &mut Kept, sql: &str| {
        let reader = kept.subscribe(sql);
        kept.walk_to_the_end();
        reader
    };
    let mut reader = follow(&mut kept, "SELECT k, v FROM s SNAPSHOT THEN CHANGES WHERE v > 9 ORDER BY v DESC LIMIT 2");
    // It stays with another value, it goes behind another, its row is the same, it leaves the condition, its key is forgotten.
    for of in [row("a", 60), row("b", 20), row("a", 60), row("c", 5), row("e", 10), row("f", 10)] {
        kept.feed(&[of]);
    }
    reader.take(&kept.log, usize::MAX);
    let wanted = [
        "enter a 50",
        "enter b 40",
        "update a 60",
        "leave b 40",
        "enter c 30",
        "leave c 30",
        "enter d 30",
        "leave d 30",
        "enter b 20",
        "leave b 20",
        "enter e 10",
    ];
    assert_eq!(reader.rows, wanted);
    // Rows that cannot be computed, and those that are too long, are not among them.
    let mut fallible = follow(&mut kept, "SELECT k, v FROM s SNAPSHOT THEN CHANGES ORDER BY 100 / (v - 10) LIMIT 9");
    fallible.take(&kept.log, usize::MAX);
    assert_eq!((fallible.rows.len(), fallible.handler.counters().row_errors), (2, 2), "{:?}", fallible.rows);
    let long = "SELECT k, v, repeat(word, 500) AS long FROM s SNAPSHOT THEN CHANGES ORDER BY v LIMIT 9";
    let mut long = follow(&mut kept, long);
    kept.feed(&[row("a", 41), row("f", 20)]);
    long.take(&kept.log, usize::MAX);
    // The word of `a` has 20 letters and then 1, that of `f` 10 and then 20.
    assert!(long.rows.iter().all(|row| !row.contains("60") && !row.contains(" 20")), "{:?}", long.rows);
    assert!(long.rows.ends_with(&["enter a 41".into(), "leave f 10".into()]), "{:?}", long.rows);
    assert!(long.handler.refusal().is_some(), "the first that was too long is an example");
}

#[test]
fn a_reader_for_whose_rows_there_is_no_room_is_over_and_says_why() {
    let mut kept = Kept::new(1000, 1 << 20, None);
    let rows: Vec<Row> = (1..=500).map(|number| (Some(format!("key {number}")), number)).collect();
    kept.feed(&rows[..50]);
    let sql = "SELECT k, v FROM s SNAPSHOT THEN CHANGES ORDER BY v LIMIT 3";
    let program = of_bounded(sql, 10_000).plan_snapshot(&kept.rows).unwrap();
    let mut reader = kept.subscribe(sql);
    reader.handler = SnapshotHandler::new(program);
    kept.walk_to_the_end();
    reader.take(&kept.log, usize::MAX);
    assert_eq!((reader.rows.len(), reader.handler.failure()), (3, None));
    assert!(reader.handler.state_bytes() > 1000 && reader.handler.state_bytes() <= 10_000);
    kept.feed(&rows);
    reader.take(&kept.log, usize::MAX);
    let why = reader.handler.failure().unwrap();
    assert!(reader.handler.is_lost() && reader.handler.state_bytes() == 0 && why.contains("10000 bytes"), "{why}");
    // Without changes it keeps no more than the first.
    let program =
        of_bounded("SELECT k, v FROM s SNAPSHOT ORDER BY v DESC LIMIT 3", 10_000).plan_snapshot(&kept.rows).unwrap();
    let mut once = kept.subscribe("SELECT k, v FROM s SNAPSHOT");
    (once.output, once.handler) = (program.enter.output.clone(), SnapshotHandler::new(program));
    kept.walk_to_the_end();
    once.take(&kept.log, usize::MAX);
    assert_eq!(once.rows, ["- key 500 500", "- key 499 499", "- key 498 498"]);
}

#[test]
fn deltas_of_the_first_rows_have_the_columns_that_changed() {
    let mut kept = Kept::new(9, 1 << 20, None);
    let row = |key: &str, value| (Some(key.to_owned()), value);
    kept.feed(&[row("a", 5), row("b", 4), row("c", 3)]);
    let program = plan("SELECT k, v, kind FROM s SNAPSHOT THEN CHANGES DELTA ORDER BY v DESC LIMIT 2", &kept.rows);
    let output = program.output().clone();
    let mut reader = kept.subscribe("SELECT k, v FROM s SNAPSHOT THEN CHANGES");
    reader.handler = SnapshotHandler::new(program);
    kept.walk_to_the_end();
    kept.feed(&[row("a", 7), row("b", 1)]);
    let (batch, mut out) = (support::batch(&kept.log), Vec::<Vec<u8>>::new());
    let _ = reader.handler.process(&batch, &mut Selection::all(batch.len()), &mut out);
    let text = |value: Value<'_>| match value {
        Value::Text(text) => String::from_utf8(text.to_vec()).unwrap(),
        Value::Int(value) => value.to_string(),
        Value::Bytes(bytes) => format!("{:b}", bytes[0]),
        _ => "-".to_owned(),
    };
    let made = out.iter().map(|row| {
        let row = Record::check(&output, row).unwrap();
        (0..5).map(|column| text(row.get(column))).collect::<Vec<_>>().join(" ")
    });
    let wanted = ["a 5 far enter 111", "b 4 near enter 111", "a 7 - update 10", "b - - leave 0", "c 3 far enter 111"];
    assert_eq!(made.collect::<Vec<_>>(), wanted);
}
