//! The demo, whole.

use crate::place::Place;

#[test]
fn every_subscriber_gets_exactly_its_rows() {
    let lines = Place::new().run(["demo", "airline", "--json"]).with_code(0).json();
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
