use super::*;
use crossdock_format::Record;
use std::path::Path;

fn spec(path: &Path, key: &[&str]) -> TableSpec {
    TableSpec::new("airports", path, Encoding::Csv, key)
}

/// The table of a file with this text.
fn read(text: &str, key: &[&str], change: impl FnOnce(TableSpec) -> TableSpec) -> Result<TableRows, String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("airports.csv");
    std::fs::write(&path, text).unwrap();
    let shown = format!("{}: ", path.display());
    let read = change(spec(&path, key)).read(None);
    read.map(|(_, rows)| rows).map_err(|why| why.strip_prefix(&shown).unwrap_or(&why).to_owned())
}

fn with_schema(schema: &str) -> impl FnOnce(TableSpec) -> TableSpec {
    let format = Some(Format::parse_schema(schema).unwrap());
    |spec| TableSpec { format, ..spec }
}

#[test]
fn a_file_is_read_by_its_schema_or_by_its_first_rows() {
    let text = "code,city,runways\nJFK,New York,4\nEWR,Newark,3\nJFK,Queens,4\n,Nowhere,0\n";
    let rows = read(text, &["code"], |spec| spec).unwrap();
    assert_eq!((rows.len(), rows.keys(), rows.without_key()), (4, 2, 1));
    let wanted = Format::parse_schema(
        "code string null
city string null
runways i64 null",
    )
    .unwrap();
    assert_eq!(*rows.format(), wanted);
    let rows = read(text, &["code", "runways"], with_schema("code char[3] null\nrunways u8")).unwrap();
    assert_eq!((rows.len(), rows.keys()), (4, 2), "a column without a field is passed over");
    assert!(rows.bytes() > 0 && Record::check(rows.format(), &[]).is_err());
}

#[test]
fn a_wrong_file_is_refused_with_its_place() {
    let text = "code,runways\nJFK,4\nEWR,three\n";
    let schema = || with_schema("code char[3]\nrunways u8");
    let why = read(text, &["code"], schema()).unwrap_err();
    assert!(why.starts_with("line 3, column `runways`: ") && why.contains("three"), "{why}");
    let why = read(text, &["iata"], schema()).unwrap_err();
    assert_eq!(why, "the key's column `iata` is not there; the columns are code, runways");
    let why = read(text, &["code", "code"], |spec| spec).unwrap_err();
    assert_eq!(why, "the key has the column `code` twice");
    let why = read("code,runways\n,4\n", &["code"], |spec| spec).unwrap_err();
    assert_eq!(why, "no row has a value in each column of its key (code)");
    let why = read(text, &["code"], |spec| TableSpec { max_bytes: 40, ..spec }).unwrap_err();
    assert_eq!(why, "its rows take more, and table `airports` has 40 bytes at most (`max_bytes`)");
    let why = read(text, &["code"], |spec| TableSpec { path: spec.path.join("no"), ..spec }).unwrap_err();
    assert!(why.contains("cannot be read: "), "{why}");
    let why = read(text, &["code"], |spec| TableSpec { path: "/".into(), ..spec }).unwrap_err();
    assert_eq!(why, "/: is no file");
}

#[test]
fn a_changed_file_is_taken_and_a_wrong_one_leaves_the_rows_in_place() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("airports.csv");
    std::fs::write(&path, "code,city\nJFK,New York\n").unwrap();
    let (tables, mut watched) = read_all(vec![spec(&path, &["code"])]).unwrap();
    let (events, shared) = (Events::default(), tables.get("airports").unwrap());
    let mut look = || {
        watched[0].look(&tables, &events);
        (shared.rows().len(), shared.loads(), shared.failures())
    };
    assert_eq!(look(), (1, 1, 0), "it has not changed");
    std::fs::write(&path, "code,city\nJFK,New York\nEWR,Newark\n").unwrap();
    assert_eq!(look(), (2, 2, 0));
    std::fs::write(&path, "code,city\nJFK\n").unwrap();
    assert_eq!(look(), (2, 2, 1), "a row without its columns");
    assert!(shared.failure().unwrap().contains("line 2"), "{:?}", shared.failure());
    assert_eq!(look(), (2, 2, 1), "it is tried again once it has changed");
    std::fs::remove_file(&path).unwrap();
    assert_eq!(look(), (2, 2, 2), "a file that is gone");
    assert_eq!(look(), (2, 2, 2));
    std::fs::write(&path, "code,city,country\nJFK,New York,US\n").unwrap();
    assert_eq!(look(), (1, 3, 2), "a further column is passed over");
    assert_eq!(shared.failure(), None);
    let kinds: Vec<String> = events.after(0).into_iter().map(|event| event.kind).collect();
    assert_eq!(kinds, ["table_loaded", "table_failed", "table_failed", "table_loaded"]);
    let text = described(&tables, &["airports"]);
    assert!(text.starts_with("table    airports: 1 rows by code, ") && text.contains(" bytes, loaded "), "{text}");
}
