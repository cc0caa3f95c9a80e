//! Code that must be absent: clocks, sockets, files and threads in the pure rooms; `async` and HTTP below the binary.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Finding;
use super::tokens::{self, Token, TokenKind};
use super::tree::{RustFile, Tree};

/// The rooms where time is an argument and bytes come from the caller.
const PURE: [&str; 4] = ["format", "query", "transport", "control"];

/// The paths that a pure room has no business with, by its path below `std`.
const IMPURE: [(&[&str], &str); 6] = [
    (&["net"], "a socket"),
    (&["fs"], "a file"),
    (&["thread"], "a thread"),
    (&["time", "Instant"], "a clock"),
    (&["time", "SystemTime"], "a clock"),
    (&["time", "*"], "perhaps a clock"),
];

/// Crates that give a pure room the same by another door.
const IMPURE_CRATES: [&str; 7] = ["libc", "mio", "nix", "polling", "rustix", "signal-hook", "socket2"];

/// The rooms above the data path, where `async` and HTTP may be.
const MAY_AWAIT: [&str; 5] = ["crossdock", "overlay", "bench", "fuzz", "xtask"];

/// Crates that bring an asynchronous runtime or HTTP with them.
const ASYNC_CRATES: [&str; 12] = [
    "actix-web",
    "async-executor",
    "async-io",
    "async-std",
    "axum",
    "futures-executor",
    "h2",
    "hyper",
    "reqwest",
    "smol",
    "tokio",
    "warp",
];

/// Every absence.
pub(crate) fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    let tests = test_files(&tree.sources);
    for source in tree.sources.iter().filter(|source| source.is_src() && !tests.contains(&source.path)) {
        let (code, _) = tokens::without_tests(&source.tokens);
        if PURE.contains(&source.room()) {
            findings.extend(impure(&source.path, &code));
        }
        if !MAY_AWAIT.contains(&source.room()) {
            findings.extend(awaits(&source.path, &code));
        }
    }
    findings.extend(crates(&tree.metadata));
    Ok(findings)
}

/// Clocks, sockets, files and threads in a file's code.
fn impure(path: &str, code: &[Token]) -> Vec<Finding> {
    let remedy = "take it as an argument (time as `now`, bytes as slices or a reader); only runtime, device and above touch the machine";
    let mut findings = Vec::new();
    for (used, line) in tokens::paths_from(code, "std") {
        for (banned, name) in IMPURE {
            if used.len() >= banned.len() && used.iter().zip(banned).all(|(a, b)| a == b) {
                findings.push(Finding::new(
                    path,
                    line,
                    format!("std::{} is {name} in a pure room", used.join("::")),
                    remedy,
                ));
            }
        }
    }
    for at in 2..code.len() {
        let called = code.get(at + 1).is_some_and(|next| next.kind == TokenKind::Open('('));
        if code[at].is("now") && called && tokens::is_path_mark(code, at - 2) {
            findings.push(Finding::new(path, code[at].line, "`…::now()` reads a clock in a pure room", remedy));
        }
    }
    findings
}

/// `async` and `.await` in a file's code.
fn awaits(path: &str, code: &[Token]) -> Vec<Finding> {
    let found = code.iter().filter(|token| token.is("async") || token.is("await"));
    let remedy = "the data path is polled loops over bounded rings; asynchronous code belongs in `crossdock`";
    found.map(|token| Finding::new(path, token.line, "`async` below the binary", remedy)).collect()
}

/// The files of modules that are declared `#[cfg(test)] mod name;`.
pub(super) fn test_files(sources: &[RustFile]) -> BTreeSet<String> {
    let mut folders = Vec::new();
    for source in sources {
        let (_, modules) = tokens::without_tests(&source.tokens);
        let (folder, file) = source.path.rsplit_once('/').unwrap_or(("", &source.path));
        let stem = file.trim_end_matches(".rs");
        let below = if matches!(stem, "lib" | "main" | "mod") { folder.into() } else { format!("{folder}/{stem}") };
        folders.extend(modules.into_iter().map(|name| format!("{below}/{name}")));
    }
    let is_test = |path: &&String| {
        folders.iter().any(|folder| path.trim_end_matches(".rs") == folder || path.starts_with(&format!("{folder}/")))
    };
    sources.iter().map(|source| &source.path).filter(is_test).cloned().collect()
}

/// Crates that a room must not reach: the direct ones of pure rooms, and all that lie below the rooms without `async`.
fn crates(metadata: &Value) -> Vec<Finding> {
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let name_of: BTreeMap<&str, &str> =
        packages.iter().filter_map(|p| Some((p["id"].as_str()?, p["name"].as_str()?))).collect();
    let below = normal_edges(metadata);
    let mut findings = Vec::new();
    for id in metadata["workspace_members"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        let name = name_of.get(id).copied().unwrap_or_default();
        let room = name.trim_start_matches("crossdock-");
        let manifest = manifest_of(metadata, id);
        if PURE.contains(&room) {
            for used in below.get(id).into_iter().flatten().filter_map(|dep| name_of.get(dep)) {
                if IMPURE_CRATES.contains(used) {
                    let remedy = "take it as an argument; a pure room touches no machine";
                    findings.push(Finding::new(&manifest, 1, format!("`{used}` in the pure room `{room}`"), remedy));
                }
            }
        }
        if !MAY_AWAIT.contains(&room) {
            for used in reached(id, &below).iter().filter_map(|dep| name_of.get(dep)) {
                if ASYNC_CRATES.contains(used) {
                    let remedy = format!("`cargo tree -p {name} -i {used}` shows why; leave it out below the binary");
                    findings.push(Finding::new(&manifest, 1, format!("`{name}` reaches `{used}`"), remedy));
                }
            }
        }
    }
    findings
}

/// A member's manifest, from the root.
fn manifest_of(metadata: &Value, id: &str) -> String {
    let root = metadata["workspace_root"].as_str().unwrap_or_default();
    let package = metadata["packages"].as_array().into_iter().flatten().find(|package| package["id"] == id);
    let path = package.and_then(|package| package["manifest_path"].as_str()).unwrap_or_default();
    path.strip_prefix(root).unwrap_or(path).trim_start_matches('/').into()
}

/// From each package to those it needs to run, by id.
fn normal_edges(metadata: &Value) -> BTreeMap<&str, Vec<&str>> {
    let mut edges: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for node in metadata["resolve"]["nodes"].as_array().into_iter().flatten() {
        let Some(from) = node["id"].as_str() else {
            continue;
        };
        for dep in node["deps"].as_array().into_iter().flatten() {
            let normal =
                dep["dep_kinds"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()));
            if let (true, Some(to)) = (normal, dep["pkg"].as_str()) {
                edges.entry(from).or_default().push(to);
            }
        }
    }
    edges
}

/// All packages below one.
fn reached<'a>(from: &'a str, edges: &BTreeMap<&'a str, Vec<&'a str>>) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut open = vec![from];
    while let Some(id) = open.pop() {
        for to in edges.get(id).into_iter().flatten().copied() {
            if seen.insert(to) {
                open.push(to);
            }
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn whats(text: &str) -> Vec<(usize, String)> {
        let code = tokens::without_tests(&tokens::tokens(text).unwrap()).0;
        impure("f.rs", &code).into_iter().map(|finding| (finding.line, finding.what)).collect()
    }

    #[test]
    fn clocks_sockets_files_and_threads_are_found() {
        let found = whats(
            "use std::{io, net::SocketAddr};\nfn f() { std::fs::read(p);\n let t = time::Instant::now(); }\nuse std::time::Instant;",
        );
        let lines: Vec<usize> = found.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [1, 2, 4, 3], "{found:?}");
    }

    #[test]
    fn pure_or_test_code_is_not_found() {
        let text = "use std::time::Duration; use std::io::BufRead; // std::fs\nfn f(now: u64) { now(); \"std::net\"; }\n\
            #[cfg(test)] mod tests { use std::fs; fn f() { std::time::Instant::now(); } }";
        assert_eq!(whats(text), []);
    }

    #[test]
    fn async_is_found() {
        let code = tokens::tokens("fn f() {\n async { g().await } }").unwrap();
        assert_eq!(awaits("f.rs", &code).len(), 2);
    }

    #[test]
    fn files_of_test_modules_are_known() {
        let source = |path: &str, text: &str| RustFile::new(path, text).unwrap();
        let sources = [
            source("crates/a/src/lib.rs", "#[cfg(test)] mod tests; mod b; mod testing;"),
            source("crates/a/src/b.rs", "#[cfg(test)] mod tests;"),
            source("crates/a/src/tests.rs", ""),
            source("crates/a/src/tests/more.rs", ""),
            source("crates/a/src/testing.rs", ""),
            source("crates/a/src/b/tests.rs", ""),
        ];
        let found: Vec<String> = test_files(&sources).into_iter().collect();
        assert_eq!(found, ["crates/a/src/b/tests.rs", "crates/a/src/tests.rs", "crates/a/src/tests/more.rs"]);
    }

    #[test]
    fn a_runtime_two_steps_below_is_found_and_one_only_for_tests_is_not() {
        let normal = json!([{ "kind": null }]);
        let metadata = json!({
            "workspace_root": "/r",
            "workspace_members": ["m", "q"],
            "packages": [
                { "id": "m", "name": "crossdock-mailbox", "manifest_path": "/r/crates/mailbox/Cargo.toml" },
                { "id": "q", "name": "crossdock-query", "manifest_path": "/r/crates/query/Cargo.toml" },
                { "id": "x", "name": "x" }, { "id": "t", "name": "tokio" }, { "id": "s", "name": "socket2" },
            ],
            "resolve": { "nodes": [
                { "id": "m", "deps": [{ "pkg": "x", "dep_kinds": normal }] },
                { "id": "x", "deps": [{ "pkg": "t", "dep_kinds": normal }] },
                { "id": "q", "deps": [{ "pkg": "s", "dep_kinds": normal }, { "pkg": "t", "dep_kinds": [{ "kind": "dev" }] }] },
            ] },
        });
        let found: Vec<(String, String)> = crates(&metadata).into_iter().map(|f| (f.file, f.what)).collect();
        assert_eq!(
            found,
            [
                ("crates/mailbox/Cargo.toml".into(), "`crossdock-mailbox` reaches `tokio`".into()),
                ("crates/query/Cargo.toml".into(), "`socket2` in the pure room `query`".into()),
            ]
        );
    }
}
