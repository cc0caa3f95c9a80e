//! The table of allowed dependencies in ARCHITECTURE.md, held against what Cargo says.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Finding;
use super::tree::Tree;

/// The page that holds the table.
const PAGE: &str = "ARCHITECTURE.md";

/// The two columns that the table must have.
const ROOM: &str = "crate";
const MAY: &str = "may depend on";

/// The second column of a crate that may only be used by tests.
const TESTS_ONLY: &str = "for tests only";

/// The table against the manifests.
pub(crate) fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    let page = tree.pages.iter().find(|page| page.path == PAGE).ok_or(format!("there is no {PAGE}"))?;
    let rows = match rows(&page.text) {
        Ok(rows) => rows,
        Err(finding) => return Ok(vec![finding]),
    };
    Ok(compare(&rows, &packages(&tree.metadata)))
}

/// One row of the table.
#[derive(PartialEq, Eq, Debug)]
struct Row {
    line: usize,
    room: String,
    may: BTreeSet<String>,
    tests_only: bool,
}

/// A package of ours, by its short name: its manifest, and the rooms it needs to run or to build.
struct Package {
    room: String,
    manifest: String,
    needs: BTreeSet<String>,
}

/// Finds the table by its heading row and reads it.
fn rows(page: &str) -> Result<Vec<Row>, Finding> {
    let cells = |line: &str| -> Option<Vec<String>> {
        let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
        Some(inner.split('|').map(|cell| cell.trim().to_owned()).collect())
    };
    let mut lines = page.lines().enumerate();
    let heads = lines.by_ref().find_map(|(_, line)| {
        let heads = cells(line)?;
        Some((heads.iter().position(|head| head == ROOM)?, heads.iter().position(|head| head == MAY)?))
    });
    let Some((room_at, may_at)) = heads else {
        let remedy = format!("give it a table with the columns `{ROOM}` and `{MAY}`");
        return Err(Finding::new(PAGE, 1, "there is no table of allowed dependencies", remedy));
    };
    let mut rows = Vec::new();
    for (at, line) in lines.skip(1) {
        let Some(cells) = cells(line) else { break };
        let (Some(room), Some(may)) = (cells.get(room_at), cells.get(may_at)) else {
            break;
        };
        let [room] = &quoted(room)[..] else {
            let remedy = "write one crate's short name in backticks: | `query` |";
            return Err(Finding::new(PAGE, at + 1, format!("this row names no crate: {line}"), remedy));
        };
        let tests_only = may.contains(TESTS_ONLY);
        rows.push(Row { line: at + 1, room: room.clone(), may: quoted(may).into_iter().collect(), tests_only });
    }
    Ok(rows)
}

/// The words in backticks.
fn quoted(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The packages of Cargo: normal and build dependencies of the workspace's members on each other.
fn packages(metadata: &Value) -> Vec<Package> {
    let root = metadata["workspace_root"].as_str().unwrap_or_default();
    let members: BTreeSet<&str> =
        metadata["workspace_members"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let all = metadata["packages"].as_array().into_iter().flatten();
    let ours: Vec<&Value> =
        all.filter(|package| package["id"].as_str().is_some_and(|id| members.contains(id))).collect();
    let rooms: BTreeMap<&str, String> =
        ours.iter().filter_map(|p| p["name"].as_str()).map(|name| (name, short(name))).collect();
    let mut packages = Vec::new();
    for package in &ours {
        let mut needs = BTreeSet::new();
        for dep in package["dependencies"].as_array().into_iter().flatten() {
            if dep["kind"] != "dev"
                && let Some(room) = dep["name"].as_str().and_then(|name| rooms.get(name))
            {
                needs.insert(room.clone());
            }
        }
        let manifest = package["manifest_path"].as_str().unwrap_or_default();
        packages.push(Package {
            room: package["name"].as_str().map(short).unwrap_or_default(),
            manifest: manifest.strip_prefix(root).unwrap_or(manifest).trim_start_matches('/').into(),
            needs,
        });
    }
    packages
}

/// `crossdock-query` is `query`; the binary stays `crossdock`.
fn short(name: &str) -> String {
    name.strip_prefix("crossdock-").unwrap_or(name).into()
}

fn compare(rows: &[Row], packages: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let known: BTreeSet<&str> = packages.iter().map(|package| package.room.as_str()).collect();
    for row in rows {
        for name in std::iter::once(&row.room).chain(&row.may).filter(|name| !known.contains(name.as_str())) {
            let remedy = "name only crates of the workspace, by their short names";
            findings.push(Finding::new(PAGE, row.line, format!("there is no crate `{name}`"), remedy));
        }
    }
    for package in packages {
        let Some(row) = rows.iter().find(|row| row.room == package.room) else {
            let remedy = format!("add a row for it to the table in {PAGE}");
            let what = format!("`{}` is not in the table", package.room);
            findings.push(Finding::new(&package.manifest, 1, what, remedy));
            continue;
        };
        for needed in &package.needs {
            let tests_only = rows.iter().any(|other| other.room == *needed && other.tests_only);
            let what = format!("`{}` may not depend on `{needed}`", package.room);
            if tests_only {
                let remedy = "move it to [dev-dependencies]: it is for tests only";
                findings.push(Finding::new(&package.manifest, 1, what, remedy));
            } else if !row.may.contains(needed) {
                let remedy = format!("do without it, or argue for the change of the table at {PAGE}:{}", row.line);
                findings.push(Finding::new(&package.manifest, 1, what, remedy));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TABLE: &str = "# A\n\n| a | b |\n|---|---|\n| `x` | y |\n\n| crate | what | may depend on |\n|---|---|---|\n\
        | `format` | formats | – |\n| `query` | SQL | `format` |\n| `sim` | time | for tests only; `format` |\n\nmore | text\n";

    fn package(room: &str, needs: &[&str]) -> Package {
        let needs = needs.iter().map(|&name| name.to_owned()).collect();
        Package { room: room.into(), manifest: format!("crates/{room}/Cargo.toml"), needs }
    }

    #[test]
    fn the_table_is_found_by_its_columns_and_read() {
        let rows = rows(TABLE).unwrap();
        assert_eq!(rows.len(), 3);
        assert_eq!((rows[0].line, rows[0].room.as_str(), rows[0].may.len()), (9, "format", 0));
        assert!(rows[1].may.contains("format") && !rows[1].tests_only);
        assert!(rows[2].tests_only);
    }

    #[test]
    fn a_page_without_a_table_is_reported() {
        assert_eq!(rows("# A\n| a | b |\n").unwrap_err().what, "there is no table of allowed dependencies");
    }

    #[test]
    fn dependencies_that_the_table_allows_pass() {
        let rows = rows(TABLE).unwrap();
        let packages = [package("format", &[]), package("query", &["format"]), package("sim", &["format"])];
        assert_eq!(compare(&rows, &packages), []);
    }

    #[test]
    fn a_dependency_outside_the_table_is_reported_at_the_manifest() {
        let rows = rows(TABLE).unwrap();
        let packages = [package("format", &["query"]), package("query", &["sim"]), package("sim", &[])];
        let found = compare(&rows, &packages);
        assert_eq!(found[0].what, "`format` may not depend on `query`");
        assert_eq!(found[0].file, "crates/format/Cargo.toml");
        assert!(found[1].remedy.contains("[dev-dependencies]"));
    }

    #[test]
    fn crates_and_rows_without_each_other_are_reported() {
        let rows = rows(TABLE).unwrap();
        let found = compare(&rows, &[package("format", &[]), package("query", &[]), package("engine", &[])]);
        let whats: Vec<&str> = found.iter().map(|finding| finding.what.as_str()).collect();
        assert_eq!(whats, ["there is no crate `sim`", "`engine` is not in the table"]);
    }

    #[test]
    fn cargo_is_asked_for_what_is_needed_to_run() {
        let metadata = json!({
            "workspace_root": "/r",
            "workspace_members": ["q", "f"],
            "packages": [
                { "id": "f", "name": "crossdock-format", "manifest_path": "/r/crates/format/Cargo.toml", "dependencies": [] },
                { "id": "q", "name": "crossdock-query", "manifest_path": "/r/crates/query/Cargo.toml", "dependencies": [
                    { "name": "crossdock-format", "kind": null }, { "name": "serde", "kind": null },
                    { "name": "crossdock-query", "kind": "dev" },
                ] },
                { "id": "s", "name": "serde", "manifest_path": "/x/Cargo.toml", "dependencies": [] },
            ],
        });
        let found = packages(&metadata);
        assert_eq!(found.len(), 2);
        assert_eq!((found[1].room.as_str(), found[1].manifest.as_str()), ("query", "crates/query/Cargo.toml"));
        assert_eq!(found[1].needs.iter().collect::<Vec<_>>(), ["format"]);
    }
}
