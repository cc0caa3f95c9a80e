//! Names that say nothing, and marks of work that was left undone.

use super::Finding;
use super::tokens::Kind;
use super::tree::{Source, Tree};

/// Modules that gather what found no other place.
const EMPTY_NAMES: [&str; 8] = ["common", "helper", "helpers", "manager", "misc", "util", "utilities", "utils"];

/// Marks of unfinished work in a comment. Put together here, so that this file does not find itself.
const MARKS: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// Module names and unfinished work.
pub(crate) fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    Ok(tree.sources.iter().flat_map(|source| [module_names(source), marks(source)].concat()).collect())
}

fn module_names(source: &Source) -> Vec<Finding> {
    let remedy = "name it after the one job that it does, or move its parts to where they are used";
    let mut findings = Vec::new();
    for pair in source.tokens.windows(2) {
        if let (true, Kind::Word(name)) = (pair[0].is("mod"), &pair[1].kind)
            && EMPTY_NAMES.contains(&name.as_str())
        {
            findings.push(Finding::new(&source.path, pair[0].line, format!("a module named `{name}`"), remedy));
        }
    }
    findings
}

fn marks(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, line) in source.text.lines().enumerate() {
        let Some((_, comment)) = line.split_once("//") else {
            continue;
        };
        let mut words = comment.split(|c: char| !c.is_ascii_alphanumeric());
        if let Some(mark) = words.find(|word| MARKS.contains(word)) {
            let remedy = "do it now, or open an issue and say here what holds today";
            findings.push(Finding::new(&source.path, at + 1, format!("`{mark}` in a comment"), remedy));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whats(text: &str) -> Vec<String> {
        let source = Source::new("crates/a/src/lib.rs", text).unwrap();
        [module_names(&source), marks(&source)].concat().into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn modules_that_gather_leftovers_are_found() {
        assert_eq!(
            whats("mod utils;\npub(crate) mod helpers { }\nmod handler_manager;"),
            ["a module named `utils`", "a module named `helpers`"]
        );
    }

    #[test]
    fn unfinished_work_is_found_in_comments_only() {
        assert_eq!(whats(&format!("fn f() {{}} // {}: more", MARKS[0])).len(), 1);
        assert_eq!(whats("let a = \"a\"; // a method\n// prefixme"), [""; 0]);
    }
}
