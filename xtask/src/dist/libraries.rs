//! The licences of the libraries that the binary contains: whoever hands the binary on has to hand these on too.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use super::build::Build;
use super::release::{NAME, Release};
use super::tool::at;
use crate::place;

/// How the names of files with licences start.
const STARTS: [&str; 6] = ["COPYING", "COPYRIGHT", "LICENCE", "LICENSE", "NOTICE", "UNLICENSE"];

/// A library: name and version, its licence in SPDX's words, and the texts that came with it.
struct Library {
    name: String,
    licence: String,
    texts: Vec<String>,
}

/// A page with every library, and every text once.
pub(crate) fn page(build: &Build, release: &Release) -> Result<String, String> {
    let more = ["--locked", "--filter-platform", &release.target];
    let metadata = place::metadata(&build.root.join("Cargo.toml"), &more)?;
    let mut libraries = Vec::new();
    for package in linked(&metadata)? {
        // Packages of the workspace have no source: their licence is the product's.
        if package["source"].is_string() {
            libraries.push(read(package)?);
        }
    }
    Ok(text(&libraries))
}

/// The packages that the binary is linked with, by name and version.
fn linked(metadata: &Value) -> Result<Vec<&Value>, String> {
    let by_id = |list: &'static [&'static str]| -> BTreeMap<&str, &Value> {
        let array = list.iter().fold(metadata, |value, key| &value[key]).as_array();
        array.into_iter().flatten().filter_map(|one| Some((one["id"].as_str()?, one))).collect()
    };
    let packages = by_id(&["packages"]);
    let nodes = by_id(&["resolve", "nodes"]);
    let root = packages.iter().find(|(_, package)| package["name"] == NAME && package["source"].is_null());
    let mut waiting = vec![*root.ok_or("dist: cargo metadata has no package `crossdock`")?.0];
    let mut seen = BTreeSet::new();
    while let Some(id) = waiting.pop() {
        if !seen.insert(id) {
            continue;
        }
        for dependency in nodes.get(id).and_then(|node| node["deps"].as_array()).into_iter().flatten() {
            let kinds = dependency["dep_kinds"].as_array();
            if kinds.into_iter().flatten().any(|kind| kind["kind"].is_null()) {
                waiting.extend(dependency["pkg"].as_str());
            }
        }
    }
    let mut linked: Vec<&Value> = seen.iter().filter_map(|id| packages.get(id).copied()).collect();
    linked.sort_by_key(|package| (package["name"].as_str(), package["version"].as_str()));
    Ok(linked)
}

fn read(package: &Value) -> Result<Library, String> {
    let field = |name: &str| package[name].as_str().unwrap_or_default();
    let folder = Path::new(field("manifest_path")).parent().unwrap_or(Path::new("/"));
    let mut texts = Vec::new();
    let files = walkdir::WalkDir::new(folder).min_depth(1).max_depth(1).sort_by_file_name();
    for file in files {
        let file = file.map_err(|why| format!("dist: {why}"))?;
        let name = file.file_name().to_string_lossy().to_uppercase();
        if file.path().is_file() && STARTS.iter().any(|start| name.starts_with(start)) {
            let bytes = std::fs::read(file.path()).map_err(at(file.path()))?;
            texts.push(String::from_utf8_lossy(&bytes).replace('\r', ""));
        }
    }
    let licence = match field("license") {
        "" => "see the text".to_owned(),
        licence => licence.to_owned(),
    };
    Ok(Library { name: format!("{} {}", field("name"), field("version")), licence, texts })
}

/// The page: the libraries with the numbers of their texts, then the texts.
fn text(libraries: &[Library]) -> String {
    let mut page =
        "The binary of Crossdock contains these libraries, under these licences. The numbers are those of the \
        texts below;\na library without one came without a text.\n\n"
            .to_owned();
    let mut texts: Vec<&str> = Vec::new();
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    for library in libraries {
        let mut numbers = BTreeSet::new();
        for text in &library.texts {
            // Copies that differ in their line breaks only are one text.
            let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
            numbers.insert(*known.entry(words).or_insert_with(|| {
                texts.push(text);
                texts.len()
            }));
        }
        let numbers: Vec<_> = numbers.iter().map(|number| format!(" [{number}]")).collect();
        page += &format!("{}: {}{}\n", library.name, library.licence, numbers.concat());
    }
    for (index, text) in texts.iter().enumerate() {
        page += &format!("\n{:=<80}\n\n{}\n", format!("[{}] ", index + 1), text.trim_end());
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_two_libraries_share_stands_once() {
        let library = |name: &str, texts: &[&str]| Library {
            name: name.into(),
            licence: "MIT".into(),
            texts: texts.iter().map(|text| (*text).to_owned()).collect(),
        };
        let page = text(&[
            library("a 1.0.0", &["one\ntext"]),
            library("b 2.0.0", &["other", "one text\n"]),
            library("c 3.0.0", &[]),
        ]);
        let (list, texts) = page.split_once("\n\n").unwrap().1.split_once("\n\n").unwrap();
        assert_eq!(list, "a 1.0.0: MIT [1]\nb 2.0.0: MIT [1] [2]\nc 3.0.0: MIT");
        assert_eq!(texts.matches("one").count(), 1);
        assert!(texts.contains("[2] ====") && texts.ends_with("\n\nother\n"), "{texts}");
    }

    #[test]
    fn libraries_of_tests_and_of_the_build_are_not_in_the_binary() {
        let dependency = |name: &str, kind: Value| serde_json::json!({"pkg": name, "dep_kinds": [{"kind": kind}]});
        let package = |name: &str| {
            let source = if name == "crossdock" { None } else { Some("registry") };
            serde_json::json!({"id": name, "name": name, "version": "1.0.0", "source": source})
        };
        let of_product =
            [dependency("run", Value::Null), dependency("test", "dev".into()), dependency("build", "build".into())];
        let metadata = serde_json::json!({
            "packages": (["crossdock", "run", "below", "test", "build"].map(package)),
            "resolve": {"nodes": [
                {"id": "crossdock", "deps": of_product},
                {"id": "run", "deps": [dependency("below", Value::Null)]},
                {"id": "below", "deps": []},
            ]},
        });
        let names: Vec<_> = linked(&metadata).unwrap().iter().map(|package| package["name"].clone()).collect();
        assert_eq!(names, ["below", "crossdock", "run"]);
    }
}
