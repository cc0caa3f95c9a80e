//! Joins with reference tables, as handlers and as subscriptions, while the table's file changes.

use super::*;
use crossdock_format::encoding::Encoding;
use crossdock_runtime::{StartError, TableSpec};
use std::path::Path;

/// A file with a label for each group but the last: its number and that much more.
fn write_labels(path: &Path, more: u64) {
    let text: String = (0..9).map(|grp| format!("{grp},{}\n", grp + more)).collect();
    // A reader of the file never sees a part of it.
    let next = path.with_extension("next");
    std::fs::write(&next, format!("grp,label\n{text}")).unwrap();
    std::fs::rename(next, path).unwrap();
}

fn labels(path: &Path) -> TableSpec {
    let format = Some(Format::parse_schema("grp i32\nlabel u64").unwrap());
    TableSpec { format, ..TableSpec::new("labels", path, Encoding::Csv, &["grp"]) }
}

const JOIN: &str = "SELECT n.number, t.label FROM N n LEFT JOIN labels t ON n.grp = t.grp";

/// The next rows of `JOIN`, this many: the number and the label.
fn next_rows(subscriber: &mut Subscriber, count: usize) -> Vec<(u64, Option<u64>)> {
    let mut rows = Vec::new();
    while rows.len() < count {
        match subscriber.next_event(Some(PATIENCE)).unwrap().expect("something comes") {
            Event::Records(records) => rows.extend(records.iter().map(|record| {
                let Value::Uint(number) = record.get(0) else { panic!("{record:?}") };
                let label = match record.get(1) {
                    Value::Uint(label) => Some(label),
                    _ => None,
                };
                (number, label)
            })),
            Event::Dropped { records, .. } => panic!("{records} were dropped"),
            _ => {}
        }
    }
    rows
}

/// Publishes ten records, and says by how much their labels are more than their groups; none of the last group has one.
fn round(publisher: &mut Publisher, subscribers: &mut [Subscriber], from: u64) -> Vec<u64> {
    publish(publisher, from, from + 10);
    publisher.flush().unwrap();
    let more = |subscriber: &mut Subscriber| {
        let rows = next_rows(subscriber, 10);
        assert!(rows.iter().map(|(number, _)| *number).eq(from..from + 10), "{rows:?}");
        assert_eq!(rows[9].1, None, "{rows:?}");
        let more: Vec<u64> = rows[..9].iter().map(|(number, label)| label.unwrap() - number % 10).collect();
        assert!(more.is_sorted(), "once the newer rows are seen, the former ones are not: {rows:?}");
        more[8]
    };
    subscribers.iter_mut().map(more).collect()
}

#[test]
fn a_changed_file_is_looked_up_from_then_on_and_a_wrong_one_is_not_taken() {
    for way in TRANSPORTS {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("labels.csv");
        write_labels(&path, 0);
        let (context, addr) = start(|config| config.tables = vec![labels(&path)]);
        let mut publisher = Publisher::builder(&addr).transport(way).stream("N").format(&numbers()).connect().unwrap();
        change(&context, ChangeRequest::Deploy(sql("labelled", JOIN)));
        let reader = |query: &str| Subscriber::builder(&addr).transport(way).sql(query).connect().unwrap();
        let mut readers = [reader(JOIN), reader("SELECT * FROM labelled")];
        let mut from = 0;
        let mut until_more = |readers: &mut [Subscriber], wanted: u64| loop {
            let more = round(&mut publisher, readers, from);
            from += 10;
            if more.iter().all(|more| *more == wanted) {
                return;
            }
        };
        until_more(&mut readers, 0);
        for more in [100, 200] {
            write_labels(&path, more);
            until_more(&mut readers, more);
        }
        let [table] = &context.tables().unwrap()[..] else { panic!() };
        assert_eq!((table.rows, table.keys, table.loads, table.failures), (9, 9, 3, 0), "{table:?}");
        assert!(table.bytes > 0 && table.loaded_at_ms > 0 && table.key == ["grp"], "{table:?}");
        // A file that does not fit the schema leaves the rows in place.
        std::fs::write(&path, "grp,label\n1,many\n").unwrap();
        let refused = loop {
            let [table] = &context.tables().unwrap()[..] else { panic!() };
            if table.failures == 1 {
                break table.clone();
            }
            until_more(&mut readers, 200);
        };
        let why = refused.failure.unwrap();
        assert!(why.contains("labels.csv: line 2, column `label`: ") && why.contains("many"), "{why}");
        let events = context.manager().events(0).unwrap();
        let kinds = |kind: &str| events.iter().filter(|event| event.kind == kind).count();
        assert_eq!((kinds("table_loaded"), kinds("table_failed")), (2, 1), "{events:?}");
        until_more(&mut readers, 200);
        let explained = context.explain(JOIN, &[]).unwrap().unwrap().plan;
        assert!(explained.contains("join with table labels by grp = grp"), "{explained}");
        assert!(
            explained.contains("table    labels: 9 rows by grp, ") && explained.contains("not taken"),
            "{explained}"
        );
        // Without a record that would bring it.
        write_labels(&path, 300);
        while context.tables().unwrap()[0].loads < 4 {
            std::thread::yield_now();
        }
        until_more(&mut readers, 300);
        publisher.finish().unwrap();
        context.stop().unwrap();
    }
}

#[test]
fn a_table_that_cannot_be_read_at_the_start_is_an_error_and_its_name_is_no_stream_s() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("labels.csv");
    std::fs::write(&path, "grp,label\n0,7\n1,many\n").unwrap();
    let mut config = ContextConfig { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), ..ContextConfig::default() };
    config.tables = vec![labels(&path)];
    let why = match ContextHandle::start(config).unwrap_err() {
        StartError::Table(why) => why,
        other => panic!("{other}"),
    };
    assert!(why.starts_with("table `labels`: ") && why.contains("labels.csv: line 3, column `label`: "), "{why}");
    write_labels(&path, 0);
    let (context, addr) = start(|config| config.tables = vec![labels(&path)]);
    let refused = Publisher::builder(&addr).stream("Labels").format(&numbers()).connect().unwrap_err().to_string();
    assert!(refused.contains("`labels` is a reference table"), "{refused}");
    let refused = context.declare_stream("labels", &numbers()).unwrap().unwrap_err();
    assert!(refused.contains("`labels` is a reference table"), "{refused}");
    let mut publisher = connect(&addr);
    publish(&mut publisher, 0, 1);
    publisher.flush().unwrap();
    let plan = context.manager().plan(ChangeRequest::Deploy(sql("labels", "SELECT * FROM N")), false).unwrap();
    let made = context.manager().change(ChangeRequest::Deploy(sql("labels", "SELECT * FROM N")), false).unwrap();
    assert!(made.is_err(), "{plan:?}");
    for (query, wanted) in [
        ("SELECT * FROM labels", "`labels` is a reference table, and no stream"),
        ("SELECT * FROM labels t JOIN N n ON n.grp = t.grp", "stands on the left of a join"),
        ("SELECT n.number FROM N n JOIN labels t ON n.number = t.label", "does not say which `grp` is looked up"),
    ] {
        let refused = Subscriber::builder(&addr).sql(query).connect().unwrap_err().to_string();
        assert!(refused.contains(wanted), "{refused}");
        let refused = context.explain(query, &[]).unwrap().unwrap_err().to_string();
        assert!(refused.contains(wanted), "{refused}");
        let change = ChangeRequest::Deploy(sql("wrong", query));
        let refused = context.manager().change(change, false).unwrap().unwrap_err().refusals.join("; ");
        assert!(refused.contains(wanted), "{refused}");
    }
    publisher.finish().unwrap();
    context.stop().unwrap();
}
