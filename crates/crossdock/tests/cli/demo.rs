//! The demo, whole.

use crate::place::Sandbox;

#[test]
fn every_subscriber_gets_exactly_its_rows() {
    let lines = Sandbox::new().run(["demo", "airline", "--json"]).with_code(0).json();
    let of_kind = |kind: &str| lines.iter().filter(|line| line["kind"] == kind).collect::<Vec<_>>();
    let records: Vec<u64> = of_kind("stream").iter().filter_map(|line| line["records"].as_u64()).collect();
    assert_eq!(records, [336_776, 26_115]);
    // Counted with awk over the same files.
    let expected = [2096, 1782, 120_835, 111_279, 104_662, 385];
    let subscribers = of_kind("subscriber");
    assert_eq!(subscribers.len(), expected.len());
    for (line, expected) in subscribers.iter().zip(expected) {
        assert_eq!((&line["records"], &line["same"]), (&expected.into(), &true.into()), "{line}");
        assert_eq!(line["checksum"], line["expected_checksum"]);
    }
    let summary = of_kind("summary")[0];
    assert_eq!((&summary["records_in"], &summary["same"]), (&362_891.into(), &true.into()));
}

#[test]
fn a_converter_that_comes_late_loses_nothing_and_lets_no_name_through() {
    let lines = Sandbox::new().run(["demo", "morph", "--json"]).with_code(0).json();
    let of_kind = |kind: &str| lines.iter().filter(|line| line["kind"] == kind).collect::<Vec<_>>();
    let subscribers = of_kind("subscriber");
    let records: Vec<u64> = subscribers.iter().filter_map(|line| line["records"].as_u64()).collect();
    // Counted with awk over the same file.
    assert_eq!(records, [336_776, 9723]);
    for line in subscribers {
        assert_eq!((&line["same"], &line["dropped"]), (&true.into(), &0.into()), "{line}");
        assert!(line["waited"].as_u64() > Some(0), "{line}");
    }
    // The first step leaves the names out, and what nobody reads of the rest.
    let [path] = of_kind("path")[..] else { panic!("{lines:?}") };
    let steps = path["path"]["steps"].as_array().map_or(0, Vec::len);
    assert_eq!((steps, &path["path"]["refused"]), (2, &0.into()), "{path}");
    assert!(path["path"]["parts"][0].as_str().is_some_and(|part| part.ends_with(" of 21 fields")), "{path}");
    assert_eq!(of_kind("summary")[0]["same"], true);
}
