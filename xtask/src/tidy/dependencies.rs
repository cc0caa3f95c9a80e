//! Every dependency on somebody else's crate says beside it why this one.

use super::Finding;
use super::tree::{Text, Tree};

/// The manifests of all packages; the root's shared versions are explained where they are taken.
pub(crate) fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    let packages = tree.manifests.iter().filter(|manifest| manifest.path != "Cargo.toml");
    Ok(packages.flat_map(unexplained).collect())
}

fn unexplained(manifest: &Text) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (mut in_table, mut explained, mut depth) = (false, false, 0_usize);
    for (at, line) in manifest.text.lines().enumerate() {
        let line = line.trim();
        let mut named = None;
        if depth == 0 && line.starts_with('[') {
            let head = line.trim_matches(['[', ']']);
            in_table = head.ends_with("dependencies");
            named = head.split_once("dependencies.").map(|(_, name)| name);
        } else if in_table && depth == 0 && !line.starts_with('#') {
            named = line.split_once(['=', '.']).map(|(name, _)| name.trim());
        }
        if let Some(name) = named.map(|name| name.trim_matches('"')) {
            let ours = name == "crossdock" || name.starts_with("crossdock-");
            if !ours && !explained && !line.contains(" # ") {
                let remedy = "write a comment line above it that says why this one";
                let what = format!("`{name}` has no reason beside it");
                findings.push(Finding::new(&manifest.path, at + 1, what, remedy));
            }
        }
        explained = line.starts_with('#');
        if !explained {
            let count = |marks: [char; 2]| line.matches(marks).count();
            depth = (depth + count(['{', '['])).saturating_sub(count(['}', ']']));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dependency_without_a_reason_is_found() {
        let text = "[package]\nname = \"a\"\n\n[dependencies]\ncrossdock-format.workspace = true\n# Small.\nlexopt = \"0.3\"\n\
            serde.workspace = true\nlibc = \"0.2\" # raw calls\n\n# of the whole table\n\n[dev-dependencies]\nproptest = { version = \"1\",\n  features = [\"std\"] }\n\
            [dependencies.csv]\nversion = \"1\"\n";
        let found = unexplained(&Text { path: "Cargo.toml".into(), text: text.into() });
        let found: Vec<_> = found.iter().map(|finding| (finding.line, finding.what.as_str())).collect();
        assert_eq!(
            found,
            [
                (8, "`serde` has no reason beside it"),
                (14, "`proptest` has no reason beside it"),
                (16, "`csv` has no reason beside it")
            ]
        );
    }
}
