//! `cargo xtask weight`: what each package costs to build, in CPU-seconds, and what would go with each dependency.
//!
//! The product is built from nothing in a folder of its own, with this program as Cargo's compiler wrapper
//! (`RUSTC_WRAPPER`): it runs the compiler and writes down the CPU time that the compiler took.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use lexopt::prelude::*;
use serde_json::{Value, json};

use crate::Ended;
use crate::place::{self, CargoWorkspace};
use crate::steps::in_words;

/// The page whose table names the groups of packages.
const PAGE: &str = "CONTRIBUTING.md";

/// The heading of that table.
const HEADING: &str = "| package | own | alone | purpose |";

/// The variable that makes this program a compiler wrapper: the file to which it writes.
const LOG_VARIABLE: &str = "CROSSDOCK_WEIGHT_LOG";

/// Rows that are shown without `--all`: what is below costs little.
const SHOWN_ROWS: usize = 30;

/// Kernel ticks a second (`USER_HZ`): 100 on every architecture that Linux has today.
const TICKS_PER_S: f64 = 100.0;

/// Set where Cargo runs this program in place of the compiler.
pub(crate) fn is_wrapper() -> bool {
    std::env::var_os(LOG_VARIABLE).is_some()
}

/// Runs the compiler that the first argument names, and adds a line to the log: package, version, ticks of CPU time.
pub(crate) fn wrap() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let Some(compiler) = args.next() else { return ExitCode::from(2) };
    let status = match Command::new(&compiler).args(args).status() {
        Ok(status) => status,
        Err(e) => {
            eprintln!("xtask weight: {}: {e}", compiler.display());
            return ExitCode::from(1);
        }
    };
    // Cargo sets these for each package; where it only asks the compiler about itself, they are missing.
    if let (Ok(name), Ok(version)) = (std::env::var("CARGO_PKG_NAME"), std::env::var("CARGO_PKG_VERSION"))
        && let Err(why) = note(&name, &version)
    {
        eprintln!("xtask weight: {why}");
        return ExitCode::from(1);
    }
    status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::from(1), ExitCode::from)
}

fn note(name: &str, version: &str) -> Result<(), String> {
    let ticks = children_ticks()?;
    let path = PathBuf::from(std::env::var_os(LOG_VARIABLE).unwrap_or_default());
    let file = OpenOptions::new().create(true).append(true).open(&path);
    // One write of a short line to a file opened for appending is not mixed with those of other compilers.
    let line = format!("{name} {version} {ticks}\n");
    file.and_then(|mut file| file.write_all(line.as_bytes())).map_err(|e| format!("{}: {e}", path.display()))
}

/// The CPU time of this process's ended children and theirs, in kernel ticks.
fn children_ticks() -> Result<u64, String> {
    let stat = std::fs::read_to_string("/proc/self/stat").map_err(|e| format!("/proc/self/stat: {e}"))?;
    ticks_in(&stat).ok_or_else(|| "/proc/self/stat has no children's times".to_owned())
}

/// Fields 16 and 17 of proc_pid_stat(5), `cutime` and `cstime`; the second field may hold anything in its parentheses.
fn ticks_in(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(13);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

/// The request of the command line.
struct Wanted {
    json: bool,
    all: bool,
}

/// Packages that are judged together, by their names.
type Group = Vec<String>;

/// `cargo xtask weight [--all] [--json]`.
pub(crate) fn run(place: &CargoWorkspace, args: Vec<OsString>) -> Result<Ended, String> {
    let mut wanted = Wanted { json: false, all: false };
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next().map_err(|e| e.to_string())? {
        match arg {
            Long("json") => wanted.json = true,
            Long("all") => wanted.all = true,
            other => return Ok(Ended::Usage(format!("weight: {}", other.unexpected()))),
        }
    }
    let folder = place.target.join("weight");
    let page = std::fs::read_to_string(place.root.join(PAGE)).map_err(|e| format!("{PAGE}: {e}"))?;
    let groups = groups(&page);
    let (own, total_s) = build(place, &folder)?;
    // Dependencies of other systems are not built.
    let filter = ["--filter-platform", &place::host()?];
    let graph = Graph::of(&place::metadata(&place.root.join("Cargo.toml"), &filter)?)?;
    let rows = rows(&own, &graph, &groups)?;
    let rest_s = total_s - own.values().sum::<f64>();
    show(&rows, total_s, rest_s, &wanted);
    std::fs::remove_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    Ok(Ended::Well)
}

/// Builds the product from nothing. Gives the time of each package, and all together with build scripts and Cargo
/// itself, in CPU-seconds.
fn build(place: &CargoWorkspace, folder: &Path) -> Result<(BTreeMap<String, f64>, f64), String> {
    match std::fs::remove_dir_all(folder) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(format!("{}: {e}", folder.display())),
        _ => std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?,
    }
    let log = folder.join("weight.log");
    let wrapper = std::env::current_exe().map_err(|e| format!("this program's own path: {e}"))?;
    let mut cargo = place.cargo(&["build", "--release", "--package", "crossdock"]);
    cargo.env("CARGO_TARGET_DIR", folder).env("RUSTC_WRAPPER", wrapper).env(LOG_VARIABLE, &log);
    let before = children_ticks()?;
    let status = cargo.status().map_err(|e| format!("{}: {e}", in_words(&cargo)))?;
    if !status.success() {
        return Err(format!("{} failed; correct what the compiler reports above", in_words(&cargo)));
    }
    let total_s = seconds(children_ticks()? - before);
    let text = std::fs::read_to_string(&log).map_err(|e| format!("{}: {e}", log.display()))?;
    Ok((per_package(&text), total_s))
}

fn seconds(ticks: u64) -> f64 {
    ticks as f64 / TICKS_PER_S
}

/// The log's lines, summed by `name version`.
fn per_package(log: &str) -> BTreeMap<String, f64> {
    let mut own: BTreeMap<String, f64> = BTreeMap::new();
    for line in log.lines() {
        if let Some((package, ticks)) = line.rsplit_once(' ')
            && let Ok(ticks) = ticks.parse::<u64>()
        {
            *own.entry(package.to_owned()).or_default() += seconds(ticks);
        }
    }
    own
}

/// The groups of the page's table: a row with several packages in its first cell is one.
fn groups(page: &str) -> Vec<Group> {
    let table = page.lines().skip_while(|line| *line != HEADING).skip(2).take_while(|line| line.starts_with('|'));
    let cells = table.filter_map(|line| line.trim_start_matches('|').split('|').next());
    let names = cells.map(|cell| cell.split(',').map(|name| name.trim().trim_matches('`').to_owned()).collect());
    names.filter(|group: &Group| group.len() > 1).collect()
}

/// The name in `name version`.
fn name_of(package: &str) -> &str {
    package.split(' ').next().unwrap_or_default()
}

/// The dependencies of the product's packages, by `name version`.
struct Graph {
    /// Packages of the workspace.
    ours: BTreeSet<String>,
    /// The product.
    root: String,
    needs: BTreeMap<String, BTreeSet<String>>,
}

impl Graph {
    /// Reads what `cargo metadata` says; development dependencies are left out, which no product has.
    fn of(metadata: &Value) -> Result<Graph, String> {
        let mut names: BTreeMap<&str, String> = BTreeMap::new();
        for package in metadata["packages"].as_array().into_iter().flatten() {
            let text = |key: &str| package[key].as_str().unwrap_or_default();
            names.insert(text("id"), format!("{} {}", text("name"), text("version")));
        }
        let name = |id: &Value| id.as_str().and_then(|id| names.get(id)).cloned();
        let ours: BTreeSet<String> =
            metadata["workspace_members"].as_array().into_iter().flatten().filter_map(name).collect();
        let root = ours.iter().find(|name| name.starts_with("crossdock ")).cloned();
        let mut needs = BTreeMap::new();
        for node in metadata["resolve"]["nodes"].as_array().into_iter().flatten() {
            let dependencies = node["deps"].as_array().into_iter().flatten();
            let built = dependencies.filter(|dependency| {
                let kinds = dependency["dep_kinds"].as_array();
                kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"] != "dev"))
            });
            let built = built.filter_map(|dependency| name(&dependency["pkg"])).collect();
            needs.insert(name(&node["id"]).ok_or("cargo metadata has a node without a package")?, built);
        }
        Ok(Graph { ours, root: root.ok_or("cargo metadata names no package `crossdock`")?, needs })
    }

    /// All that the product needs where these packages are left out.
    fn without(&self, left_out: &[&str]) -> BTreeSet<&str> {
        let mut found = BTreeSet::new();
        let mut open = vec![self.root.as_str()];
        while let Some(package) = open.pop() {
            if !left_out.contains(&package) && found.insert(package) {
                open.extend(self.needs.get(package).into_iter().flatten().map(String::as_str));
            }
        }
        found
    }

    /// The workspace's packages that name one of these themselves, by their names alone.
    fn takers(&self, packages: &[&str]) -> Vec<String> {
        let takes = |needs: &BTreeSet<String>| packages.iter().any(|package| needs.contains(*package));
        let takers = self.ours.iter().filter(|ours| self.needs.get(*ours).is_some_and(takes));
        takers.map(|ours| name_of(ours).to_owned()).collect()
    }
}

/// The cost of a package, or a group of them.
#[derive(Debug, PartialEq)]
struct Row {
    /// The package with its version, or the names of the group's.
    package: String,
    /// Its own compilation, in CPU-seconds.
    own_s: f64,
    /// The cost of all that would not be built without it, itself included, in CPU-seconds.
    with_s: f64,
    /// The workspace's packages that name it; empty where only other dependencies bring it.
    takers: Vec<String>,
}

/// A row for each group, and for each other package that was built; the dearest first.
///
/// # Errors
/// A group names a package that was not built.
fn rows(own: &BTreeMap<String, f64>, graph: &Graph, groups: &[Group]) -> Result<Vec<Row>, String> {
    let mut alone: BTreeSet<&str> = own.keys().map(String::as_str).collect();
    let mut rows = Vec::new();
    for group in groups {
        let mut packages = Vec::new();
        for name in group {
            let before = packages.len();
            packages.extend(own.keys().map(String::as_str).filter(|package| name_of(package) == name));
            if packages.len() == before {
                return Err(format!(
                    "{PAGE} has `{name}` in its table of packages, which was not built: correct the table"
                ));
            }
        }
        alone.retain(|package| !packages.contains(package));
        rows.push(row(group.join(", "), &packages, own, graph));
    }
    rows.extend(alone.into_iter().map(|package| row(package.to_owned(), &[package], own, graph)));
    rows.sort_by(|a, b| b.with_s.total_cmp(&a.with_s).then_with(|| a.package.cmp(&b.package)));
    Ok(rows)
}

fn row(package: String, packages: &[&str], own: &BTreeMap<String, f64>, graph: &Graph) -> Row {
    let own_s = packages.iter().filter_map(|package| own.get(*package)).sum();
    // Nothing is gained by asking what would go with a package of ours.
    let with_s = if packages.iter().any(|package| graph.ours.contains(*package)) {
        own_s
    } else {
        let still = graph.without(packages);
        own.iter().filter(|(other, _)| !still.contains(other.as_str())).map(|(_, s)| s).sum()
    };
    Row { package, own_s, with_s, takers: graph.takers(packages) }
}

/// Prints the table, or an object a line.
fn show(rows: &[Row], total_s: f64, rest_s: f64, wanted: &Wanted) {
    if wanted.json {
        for row in rows {
            println!(
                "{}",
                json!({"package": row.package, "own_cpu_s": row.own_s, "with_cpu_s": row.with_s, "taken_by": row.takers})
            );
        }
        println!("{}", json!({"package": null, "own_cpu_s": rest_s, "with_cpu_s": total_s, "taken_by": []}));
        return;
    }
    println!("{:>8} {:>8}  {:<32} taken by", "own", "alone", "package");
    let shown = if wanted.all { rows.len() } else { SHOWN_ROWS.min(rows.len()) };
    for row in &rows[..shown] {
        let taken = row.takers.join(", ");
        println!("{}", format!("{:>8.1} {:>8.1}  {:<32} {taken}", row.own_s, row.with_s, row.package).trim_end());
    }
    let others: f64 = rows[shown..].iter().map(|row| row.own_s).sum();
    if shown < rows.len() {
        println!("{others:>8.1} {:>8}  {} other rows: --all shows them", "", rows.len() - shown);
    }
    println!("{rest_s:>8.1} {:>8}  build scripts and Cargo itself", "");
    println!("{total_s:>8.1} {:>8}  CPU-seconds in all, from nothing", "");
    println!("\nown: the package's compilation. alone: what would not be built without it, itself included.");
    println!("Packages in one row are those of one row of the table in {PAGE}.");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_childrens_times_are_read_past_any_name() {
        let stat = "7 (a ) b) R 1 7 7 0 -1 4194304 100 2000 0 0 11 12 130 14 20 0 1 0 5 6 7";
        assert_eq!(ticks_in(stat), Some(144));
        assert_eq!(ticks_in("7 (a) R 1"), None);
    }

    #[test]
    fn compilations_of_one_package_are_summed() {
        let own = per_package("syn 2.0.1 150\nserde 1.0.0 20\nsyn 2.0.1 50\nsyn 3.0.0 10\n");
        assert_eq!(
            own.into_iter().collect::<Vec<_>>(),
            [("serde 1.0.0".to_owned(), 0.2), ("syn 2.0.1".to_owned(), 2.0), ("syn 3.0.0".to_owned(), 0.1)]
        );
    }

    /// The product needs `ours` and `http`; both need `bytes`, and `http` alone `hyper`.
    fn graph() -> Graph {
        let package = |id: &str, name: &str| json!({"id": id, "name": name, "version": "1.0.0"});
        let needs = |id: &str, needs: &[(&str, Value)]| {
            let deps: Vec<Value> =
                needs.iter().map(|(id, kind)| json!({"pkg": id, "dep_kinds": [{"kind": kind}]})).collect();
            json!({"id": id, "deps": deps})
        };
        Graph::of(&json!({
            "packages": [package("c", "crossdock"), package("o", "ours"), package("h", "http"), package("b", "bytes"),
                package("y", "hyper"), package("p", "proptest")],
            "workspace_members": ["c", "o"],
            "resolve": {"nodes": [
                needs("c", &[("o", Value::Null), ("h", Value::Null)]),
                needs("o", &[("b", Value::Null), ("p", json!("dev"))]),
                needs("h", &[("b", Value::Null), ("y", json!("build"))]),
                needs("b", &[]), needs("y", &[]), needs("p", &[]),
            ]}
        }))
        .unwrap()
    }

    #[test]
    fn a_dependency_counts_with_what_would_go_with_it() {
        let own = per_package("bytes 1.0.0 100\nhttp 1.0.0 200\nhyper 1.0.0 400\nours 1.0.0 800\n");
        let rows = rows(&own, &graph(), &[]).unwrap();
        let short: Vec<_> = rows.iter().map(|r| (r.package.as_str(), r.own_s, r.with_s, r.takers.join(","))).collect();
        assert_eq!(
            short,
            [
                ("ours 1.0.0", 8.0, 8.0, "crossdock".to_owned()),
                ("http 1.0.0", 2.0, 6.0, "crossdock".to_owned()),
                ("hyper 1.0.0", 4.0, 4.0, String::new()),
                ("bytes 1.0.0", 1.0, 1.0, "ours".to_owned()),
            ]
        );
    }

    #[test]
    fn packages_that_only_tests_need_are_not_in_the_product() {
        assert!(!graph().without(&[]).contains("proptest 1.0.0"));
    }

    #[test]
    fn packages_of_one_row_of_the_page_are_one_row() {
        let page = format!(
            "# Costs\n\n{HEADING}\n|---|---|---|---|\n| `ours` | 8 | 8 | |\n| `hyper`, `bytes` | 5 | 5 | HTTP |\n"
        );
        let groups = groups(&(page + "\n| `no`, `table` | |\n"));
        assert_eq!(groups, [["hyper", "bytes"]]);
        let own = per_package("bytes 1.0.0 100\nhttp 1.0.0 200\nhyper 1.0.0 400\nours 1.0.0 800\n");
        let rows = rows(&own, &graph(), &groups).unwrap();
        let short: Vec<_> = rows.iter().map(|r| (r.package.as_str(), r.own_s, r.with_s, r.takers.join(","))).collect();
        assert_eq!(
            short,
            [
                ("ours 1.0.0", 8.0, 8.0, "crossdock".to_owned()),
                ("http 1.0.0", 2.0, 6.0, "crossdock".to_owned()),
                ("hyper, bytes", 5.0, 5.0, "ours".to_owned()),
            ]
        );
        let lacks = super::rows(&own, &graph(), &[vec!["gone".to_owned()]]).unwrap_err();
        assert!(lacks.contains("`gone`"), "{lacks}");
    }

    #[test]
    fn the_page_has_the_table() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let page = std::fs::read_to_string(root.join(PAGE)).unwrap();
        assert!(groups(&page).iter().any(|group| group.contains(&"hyper".to_owned())));
    }
}
