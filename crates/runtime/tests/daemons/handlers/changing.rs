//! Groups that change, with the clause CHANGES, at a daemon.

use super::stateful::{publish_timed, publisher_of, timed};
use super::*;

/// A group is there while its count is odd.
const ODD: &str = "SELECT k, count(*) AS n FROM A GROUP BY k HAVING count(*) % 2 = 1 CHANGES";

/// The table that changes make, and the number of each kind of them.
fn table(subscriber: &mut Subscriber) -> (BTreeMap<u64, i64>, [u64; 3]) {
    let (mut table, mut kinds) = (BTreeMap::new(), [0; 3]);
    loop {
        match subscriber.next_event(Some(PATIENCE)).unwrap().expect("something comes") {
            Event::Records(records) => {
                for record in records.iter() {
                    let (Value::Uint(k), Value::Int(n), Value::Text(change)) =
                        (record.get(0), record.get(1), record.get(2))
                    else {
                        panic!("{:?}", record.format())
                    };
                    let is_kind = |kind: &&str| change.starts_with(kind.as_bytes());
                    let kind = ["enter", "update", "leave"].iter().position(is_kind).unwrap();
                    kinds[kind] += 1;
                    let before = if kind == 2 { table.remove(&k) } else { table.insert(k, n) };
                    assert_eq!(before.is_some(), kind > 0, "group {k} has the row that changes");
                }
            }
            Event::StreamEnded { publishers_left: 0, .. } => return (table, kinds),
            Event::Dropped { records, .. } => panic!("{records} were dropped"),
            _ => {}
        }
    }
}

#[test]
fn changes_of_groups_make_the_table_of_all_rows() {
    for way in TRANSPORTS {
        let (context, addr) = start(|_| {});
        let mut publisher = publisher_of(&addr, "A", &timed(), way);
        let connect = |sql: &str| Subscriber::builder(&addr).transport(way).sql(sql).connect().unwrap();
        let plain = "SELECT k, count(*) AS n FROM A GROUP BY k CHANGES";
        let (mut odd, mut all) = (connect(ODD), connect(plain));
        // Keys are remainders by 7: of 100 numbers two have 15, five 14.
        publish_timed(&mut publisher, 0..100);
        publisher.finish().unwrap();
        let (table_of_odd, kinds) = table(&mut odd);
        assert_eq!(table_of_odd, BTreeMap::from([(0, 15), (1, 15)]), "{way:?}");
        assert_eq!(kinds, [51, 0, 49], "a group that is no longer odd leaves");
        let (table_of_all, kinds) = table(&mut all);
        assert_eq!(table_of_all, (0..7).map(|k| (k, if k < 2 { 15 } else { 14 })).collect(), "{way:?}");
        assert_eq!(kinds, [7, 93, 0]);
        drop(context);
    }
}
