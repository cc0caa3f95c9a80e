//! Import cycles among the files of a crate: what one of them means can only be understood with all others of its cycle. No
//! crate has a larger one than it had when this list was last changed; the bounds only fall.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::absences::test_files;
use super::tokens;
use super::tree::{RustFile, Tree};

/// The files of a crate's largest import cycle, at most; other crates have none.
const BOUNDS: [(&str, usize); 6] =
    [("crossdock", 7), ("engine", 2), ("format", 6), ("mailbox", 6), ("query", 3), ("runtime", 2)];

/// A module's path inside its crate.
type Module = Vec<String>;

/// The import cycles that are larger than their crate's bound, and the bounds that are larger than need be.
pub(crate) fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    let tests = test_files(&tree.sources);
    let mut crates: BTreeMap<&str, BTreeMap<Module, &RustFile>> = BTreeMap::new();
    let is_product = |source: &&RustFile| source.path.starts_with("crates/") && source.is_src();
    for source in tree.sources.iter().filter(is_product).filter(|source| !tests.contains(&source.path)) {
        crates.entry(source.room()).or_default().insert(module(&source.path), source);
    }
    let mut findings = Vec::new();
    for (name, files) in &crates {
        let largest = cycles(&imports(files)).into_iter().max_by_key(Vec::len).unwrap_or_default();
        let bound = BOUNDS.iter().find(|(room, _)| room == name).map_or(0, |(_, bound)| *bound);
        let paths: Vec<&str> = largest.iter().filter_map(|module| Some(files.get(module)?.path.as_str())).collect();
        let first = paths.first().copied().unwrap_or("xtask/src/tidy/cycles.rs");
        if largest.len() > bound {
            let what =
                format!("an import cycle of {} files, where {bound} is the bound: {}", largest.len(), paths.join(", "));
            findings.push(Finding::new(first, 1, what, "move what two of them need into a file that imports neither"));
        } else if largest.len() < bound {
            let what =
                format!("the largest import cycle of `{name}` has {} files, and its bound is {bound}", largest.len());
            findings.push(Finding::new("xtask/src/tidy/cycles.rs", 1, what, "lower the bound in `BOUNDS`"));
        }
    }
    Ok(findings)
}

/// `crates/x/src/a/mod.rs` and `crates/x/src/a.rs` are `[a]`; `lib.rs` and `main.rs` are the root.
fn module(path: &str) -> Module {
    let below = path.split_once("/src/").map_or(path, |(_, below)| below).trim_end_matches(".rs");
    below.split('/').filter(|part| !matches!(*part, "lib" | "main" | "mod")).map(str::to_owned).collect()
}

/// The files that each file imports from.
fn imports(files: &BTreeMap<Module, &RustFile>) -> BTreeMap<Module, BTreeSet<Module>> {
    let mut edges: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
    for (from, source) in files {
        let (code, _) = tokens::without_tests(&source.tokens);
        let above = from.split_last().map_or(&[][..], |(_, above)| above);
        let named = ["crate", "super", "self"].map(|first| {
            let base = match first {
                "crate" => &[][..],
                "super" => above,
                _ => from.as_slice(),
            };
            tokens::paths_from(&code, first).into_iter().map(move |(path, _)| resolved(base, &path))
        });
        let imported = named.into_iter().flatten().filter_map(|path| file_of(files, path));
        // A module names what is in it, and need not know it for that.
        let other = imported.filter(|to| !from.starts_with(to));
        edges.insert(from.clone(), other.collect());
    }
    edges
}

/// A path from a module: further `super`s go up.
fn resolved(base: &[String], path: &[String]) -> Module {
    let mut at = base.to_vec();
    for part in path {
        match part.as_str() {
            "super" => drop(at.pop()),
            "self" => {}
            _ => at.push(part.clone()),
        }
    }
    at
}

/// The file in which a path's item is: the longest part of it that is a module with a file.
fn file_of(files: &BTreeMap<Module, &RustFile>, mut path: Module) -> Option<Module> {
    while !path.is_empty() && !files.contains_key(&path) {
        path.pop();
    }
    (!path.is_empty()).then_some(path)
}

/// The groups of files that all reach one another, of two files or more.
fn cycles(edges: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<Vec<Module>> {
    let reached: BTreeMap<&Module, BTreeSet<&Module>> = edges.keys().map(|from| (from, reach(edges, from))).collect();
    let mut seen: BTreeSet<&Module> = BTreeSet::new();
    let mut cycles = Vec::new();
    for (from, there) in &reached {
        if seen.contains(from) || !there.contains(from) {
            continue;
        }
        let is_back = |to: &&&Module| reached.get(**to).is_some_and(|back| back.contains(from));
        let group: Vec<&Module> = there.iter().filter(is_back).copied().collect();
        seen.extend(&group);
        cycles.push(group.into_iter().cloned().collect());
    }
    cycles
}

/// All files that one reaches by imports.
fn reach<'a>(edges: &'a BTreeMap<Module, BTreeSet<Module>>, from: &Module) -> BTreeSet<&'a Module> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&Module> = edges.get(from).into_iter().flatten().collect();
    while let Some(module) = next.pop() {
        if reached.insert(module) {
            next.extend(edges.get(module).into_iter().flatten());
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use super::*;

    fn files(texts: &[(&str, &str)]) -> Vec<RustFile> {
        texts.iter().map(|(path, text)| RustFile::new(&format!("crates/x/src/{path}"), text).unwrap()).collect()
    }

    fn largest(texts: &[(&str, &str)]) -> usize {
        let sources = files(texts);
        let files = sources.iter().map(|source| (module(&source.path), source)).collect();
        cycles(&imports(&files)).iter().map(Vec::len).max().unwrap_or(0)
    }

    #[test]
    fn files_that_reach_one_another_are_a_cycle() {
        let one_way = [("lib.rs", "mod a; mod b;"), ("a.rs", "use crate::b::B;"), ("b.rs", "pub struct B;")];
        assert_eq!(largest(&one_way), 0);
        let both = [("a.rs", "use crate::b::B;"), ("b.rs", "fn f() { crate::a::f() }")];
        assert_eq!(largest(&both), 2);
        let three = [
            ("a.rs", "use crate::b::{B, c::C};"),
            ("b/mod.rs", "mod c; pub struct B;"),
            ("b/c.rs", "use super::super::a;"),
        ];
        assert_eq!(largest(&three), 2, "a and b::c; b only names c");
        let in_tests =
            [("a.rs", "use crate::b::B;"), ("b.rs", "pub struct B; #[cfg(test)] mod tests { use crate::a; }")];
        assert_eq!(largest(&in_tests), 0);
    }
}
