//! `unsafe` only in the rooms that need it, every block with the invariant that makes it right.

use super::Finding;
use super::tokens::TokenKind;
use super::tree::{RustFile, Tree};

/// The rooms that hold memory or devices in their hands. (Bindings, by their folder.)
const ROOMS: [&str; 3] = ["mailbox", "device", "engine"];

/// Where code is that the benchmarks' peers make their users write: what flatc would generate, derives of rkyv.
const PEERS: &str = "bench/peers/";

/// Every `unsafe` of the tree.
pub(crate) fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    Ok(tree.sources.iter().flat_map(of_source).collect())
}

fn of_source(source: &RustFile) -> Vec<Finding> {
    let allowed =
        ["bindings/", PEERS].iter().any(|folder| source.path.starts_with(folder)) || ROOMS.contains(&source.room());
    let mut findings = Vec::new();
    for (at, token) in source.tokens.iter().enumerate().filter(|(_, token)| token.is("unsafe")) {
        if !allowed {
            let remedy = "use the safe face of mailbox or device, or a library's; this room forbids unsafe code";
            findings.push(Finding::new(&source.path, token.line, format!("`unsafe` in `{}`", source.room()), remedy));
            continue;
        }
        let promises = match source.tokens.get(at + 1).map(|next| &next.kind) {
            Some(TokenKind::Open('{')) => true,
            Some(TokenKind::Word(word)) => word == "impl",
            _ => false,
        };
        if promises && !is_argued(&source.text, token.line) {
            let remedy = "write the line `// SAFETY: …` above it, naming the invariant that makes it right";
            findings.push(Finding::new(&source.path, token.line, "`unsafe` without its SAFETY: line", remedy));
        }
    }
    if !allowed && is_root(&source.path) && !source.text.contains("#![forbid(unsafe_code)]") {
        let remedy = "add `#![forbid(unsafe_code)]` after the crate's first comment";
        findings.push(Finding::new(&source.path, 1, "the crate does not forbid unsafe code", remedy));
    }
    findings
}

/// Whether a file is the root of a package's library or binary. Fuzz targets are not: libFuzzer's macro calls C.
fn is_root(path: &str) -> bool {
    !path.starts_with("fuzz/") && (path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs"))
}

/// Whether a SAFETY: comment stands on the line or right above the statement that the line belongs to.
fn is_argued(text: &str, line: usize) -> bool {
    let lines: Vec<&str> = text.lines().take(line).map(str::trim).collect();
    let Some((own, above)) = lines.split_last() else {
        return false;
    };
    if own.contains("SAFETY:") {
        return true;
    }
    let mut in_comment = false;
    for before in above.iter().rev() {
        if before.starts_with("//") {
            in_comment = true;
            if before.contains("SAFETY:") {
                return true;
            }
        } else if in_comment || before.is_empty() || before.ends_with([';', '}']) {
            // The comment, or the statement before, ended without it.
            return false;
        } else if before.ends_with('{') && !before.starts_with('#') {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whats(path: &str, text: &str) -> Vec<(usize, String)> {
        let source = RustFile::new(path, text).unwrap();
        of_source(&source).into_iter().map(|finding| (finding.line, finding.what)).collect()
    }

    #[test]
    fn other_rooms_have_none() {
        let text = "#![forbid(unsafe_code)]\nfn f() { unsafe { g() } } // unsafe\n";
        assert_eq!(whats("crates/query/src/lib.rs", text), [(2, "`unsafe` in `query`".into())]);
        assert_eq!(whats("crates/query/src/lib.rs", ""), [(1, "the crate does not forbid unsafe code".into())]);
        assert_eq!(whats("crates/query/src/plan.rs", "fn f() {}"), []);
    }

    #[test]
    fn a_block_needs_its_line() {
        let path = "crates/mailbox/src/pool.rs";
        assert_eq!(whats(path, "fn f() {\n    unsafe { g() }\n}").len(), 1);
        assert_eq!(whats(path, "// SAFETY: f's\nfn f() {\n    unsafe { g() }\n}").len(), 1, "that comment is f's");
        assert_eq!(whats(path, "fn f() {\n    // SAFETY: alive\n    a();\n    unsafe { g() }\n}").len(), 1);
        for good in [
            "fn f() {\n    // SAFETY: it lives\n    // as long as we\n    unsafe { g() }\n}",
            "fn f() {\n    // SAFETY: in bounds\n    let x = a\n        .b(unsafe { g() });\n}",
            "fn f() { /* SAFETY: in bounds */ unsafe { g() } }",
            "// SAFETY: no thread keeps it\n#[cfg(x)]\nunsafe impl Send for A {}",
            "unsafe fn f() {}",
        ] {
            assert_eq!(whats(path, good), [], "{good}");
        }
    }

    #[test]
    fn an_impl_needs_its_line() {
        assert_eq!(whats("crates/device/src/a.rs", "struct A;\nunsafe impl Send for A {}").len(), 1);
    }
}
