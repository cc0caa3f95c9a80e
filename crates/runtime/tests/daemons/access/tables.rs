//! Queries that look rows up in reference tables: a table is read like a stream of its name.

use super::*;
use crossdock_format::encoding::Encoding;
use crossdock_runtime::TableSpec;

/// A daemon with these rules, the stream `A`, and a table of crews.
fn start_with_table(rules: Vec<Rule>) -> (tempfile::TempDir, ContextHandle, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("crews.csv");
    std::fs::write(&path, "crew,base,salary\nann,JFK,10\nbob,EWR,20\n").unwrap();
    let table = TableSpec::new("crews", &path, Encoding::Csv, &["crew"]);
    let (context, addr) = start_changed(rules, |config| config.tables = vec![table]);
    (directory, context, addr)
}

#[test]
fn a_table_is_read_like_a_stream_of_its_name() {
    let query = "SELECT a.flight, c.base FROM A a LEFT JOIN crews c ON a.crew = c.crew";
    let salaries = query.replace("c.base", "c.salary");
    for (may_read, is_allowed, sees_salaries) in [
        (&["A", "crews"][..], true, true),
        (&["A"][..], false, false),
        (&["A", "SELECT crew, base FROM crews WHERE base = 'JFK'"][..], true, false),
    ] {
        let (_directory, context, addr) = start_with_table(vec![admin(), desk(&[], may_read)]);
        assert_eq!(context.check_access_rules().unwrap(), Ok(()));
        let caller = context.access().caller_of(&Identity::Key("desk".into())).unwrap();
        let explains = |sql: &str| context.explain_for(&caller, sql, &[]).unwrap().is_ok();
        assert_eq!((explains(query), explains(&salaries)), (is_allowed, sees_salaries), "{may_read:?}");
        let asked = |sql: &str| {
            let question = Question::Subscribe(sql.to_owned());
            context.check_access(&Identity::Key("desk".into()), &question).unwrap().map(|answer| answer.allowed)
        };
        assert_eq!(asked(query), Ok(is_allowed), "{may_read:?}");
        let connected = reader(&addr, DESK, query).connect();
        if !is_allowed {
            let refused = connected.err().unwrap().to_string();
            assert!(refused.contains("crews") && !refused.contains("salary"), "{refused}");
            context.stop().unwrap();
            continue;
        }
        let mut subscriber = connected.unwrap();
        let mut publisher = publisher(&addr, ADMIN, "A", &flights()).unwrap();
        let mut row = RecordBuilder::new(&flights());
        for (flight, crew) in [(1, "ann"), (2, "bob"), (3, "nobody")] {
            row.clear();
            row.set(0, Value::Uint(flight)).unwrap();
            row.set_text(1, "UA").unwrap();
            row.set(2, Value::Int(0)).unwrap();
            row.set_text(3, crew).unwrap();
            publisher.publish(row.finish().unwrap()).unwrap();
        }
        publisher.finish().unwrap();
        let mut bases = Vec::new();
        while bases.len() < 3 {
            if let Event::Records(records) = subscriber.next_event(Some(PATIENCE)).unwrap().unwrap() {
                bases.extend(records.iter().map(|record| match record.get(1) {
                    Value::Text(base) => String::from_utf8(base.to_vec()).unwrap(),
                    _ => "none".to_owned(),
                }));
            }
        }
        let wanted = if sees_salaries { ["JFK", "EWR", "none"] } else { ["JFK", "none", "none"] };
        assert_eq!(bases, wanted, "{may_read:?}");
        context.stop().unwrap();
    }
}
