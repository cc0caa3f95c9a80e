//! Which stream a query names.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

/// The stream that `FROM` names among these.
fn found(from: &str, known: &[&str]) -> Result<String, String> {
    let mut select = crossdock_query::parse(&format!("SELECT * FROM {from}")).unwrap();
    let found = select.find_stream(known.iter().copied());
    found.map(|()| select.stream().to_owned()).map_err(|error| error.to_string())
}

#[test]
fn a_name_without_quotes_also_means_the_only_one_that_differs_in_case() {
    for (from, known, expected) in [
        ("A", &["A", "a"][..], "A"),
        ("a", &["A", "a"], "a"),
        ("a", &["A"], "A"),
        ("\"a\"", &["A"], "a"),
        ("ÄB", &["äb"], "äb"),
        ("b", &["A"], "b"),
        ("a", &[], "a"),
        ("orders", &["ORDERS", "ORDERS"], "ORDERS"),
        ("orders AS o", &["Orders"], "Orders"),
    ] {
        assert_eq!(found(from, known).as_deref(), Ok(expected), "{from} in {known:?}");
    }
    let why = found("abc", &["Abc", "x", "aBc"]).unwrap_err();
    assert!(why.contains("stream `abc` may be `Abc` or `aBc`") && why.contains("double quotes"), "{why}");
}
