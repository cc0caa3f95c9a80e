//! One type name means one thing in the workspace: the short names that every room might take have one definition.

use std::collections::BTreeMap;

use super::Finding;
use super::tokens::{Token, TokenKind};
use super::tree::{RustFile, Tree};

/// The names that say nothing by themselves. Others of the kind are words that the project does not use at all.
const NAMES: [&str; 6] = ["Place", "Step", "Run", "Source", "Target", "Kind"];

/// The names that are defined more than once.
pub(crate) fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    Ok(repeated(&tree.sources))
}

/// Each definition of a name but the first.
fn repeated(sources: &[RustFile]) -> Vec<Finding> {
    let mut first: BTreeMap<&str, String> = BTreeMap::new();
    let mut findings = Vec::new();
    for source in sources {
        for (name, line) in definitions(&source.tokens) {
            match first.get(name) {
                None => drop(first.insert(name, format!("{}:{line}", source.path))),
                Some(at) => {
                    let what = format!("a type named `{name}`, as at {at}");
                    let remedy = "name it after its meaning: `RingPosition`, `PacketKind`";
                    findings.push(Finding::new(&source.path, line, what, remedy));
                }
            }
        }
    }
    findings
}

/// The types of these names that a file defines, with their lines. Associated types belong to their trait.
fn definitions(tokens: &[Token]) -> Vec<(&'static str, usize)> {
    const KEYWORDS: [&str; 5] = ["struct", "enum", "union", "trait", "type"];
    // Whether each open brace is that of an `impl` or a trait; and the keyword that the next brace belongs to.
    let (mut open, mut head) = (Vec::new(), None);
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        match &token.kind {
            TokenKind::Open('{') => open.push(matches!(head.take(), Some("impl" | "trait"))),
            TokenKind::Close('}') => drop((open.pop(), head.take())),
            TokenKind::Mark(';') => head = None,
            TokenKind::Word(word) => {
                head = head.or(["impl", "trait", "fn"].into_iter().find(|keyword| keyword == word));
                let Some(TokenKind::Word(name)) = tokens.get(at + 1).map(|next| &next.kind) else { continue };
                let is_definition =
                    KEYWORDS.contains(&word.as_str()) && !(word == "type" && open.last() == Some(&true));
                if is_definition && let Some(name) = NAMES.into_iter().find(|known| known == name) {
                    found.push((name, tokens[at + 1].line));
                }
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> RustFile {
        RustFile::new(path, text).unwrap()
    }

    #[test]
    fn a_second_definition_is_found_with_the_place_of_the_first() {
        let sources = [
            file("a.rs", "pub(crate) struct Place;\nenum Kind { Step }"),
            file("b.rs", "use a::Place;\ntrait Place {}\ntype Run = Place;\nstruct PacketKind;"),
        ];
        let found: Vec<_> = repeated(&sources).into_iter().map(|one| (one.file, one.line, one.what)).collect();
        assert_eq!(found, [("b.rs".to_owned(), 2, "a type named `Place`, as at a.rs:1".to_owned())]);
    }

    #[test]
    fn associated_types_are_not_found() {
        let text = "impl Deref for A {\n type Target = [u8];\n fn f(x: impl Fn()) -> B { let x = 1; }\n type Target = u8;\n}\n\
            trait B { type Target; }\nfn f(x: impl Fn()) { type Target = u8; }\ntype Target = u8;";
        let lines: Vec<_> = definitions(&file("a.rs", text).tokens).into_iter().map(|(_, line)| line).collect();
        assert_eq!(lines, [7, 8]);
    }
}
