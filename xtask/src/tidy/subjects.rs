//! The subject of a sentence is a noun: no sentence of a comment or page, and no function's name, begins with a pronoun
//! in its place. Questions may.

use super::Finding;
use super::tokens::TokenKind;
use super::tree::{RustFile, Text, Tree};
use super::words::{EXAMPLE, is_page};

/// The pronouns that stand for a noun.
const PRONOUNS: [&str; 2] = ["What", "Who"];

/// The pronouns as the start of a function's name.
const PREFIXES: [&str; 2] = ["what_", "who_"];

/// Sentences and functions' names.
pub(crate) fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    for source in &tree.sources {
        findings.extend(sentences(&source.path, comments(&source.text, "//")));
        findings.extend(functions(source));
    }
    for page in tree.pages.iter().filter(|page| is_page(page)) {
        findings.extend(of_page(page));
    }
    let example = std::fs::read_to_string(tree.root.join(EXAMPLE)).map_err(|e| format!("{EXAMPLE}: {e}"))?;
    findings.extend(sentences(EXAMPLE, comments(&example, "#")));
    Ok(findings)
}

fn of_page(page: &Text) -> Vec<Finding> {
    let lines = page.text.lines().enumerate().map(|(at, text)| Line { number: at + 1, text, begins: false });
    sentences(&page.path, lines)
}

/// A line of text, without the mark of a comment.
struct Line<'t> {
    /// From 1.
    number: usize,
    text: &'t str,
    /// Whether it does not go on from the line before.
    begins: bool,
}

/// The comments of a text. A comment behind code stands alone, and so does one with another mark than the one before.
fn comments<'t>(text: &'t str, mark: &'t str) -> impl Iterator<Item = Line<'t>> {
    let mut last = None;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let before = std::mem::take(&mut last);
        let from = line.match_indices(mark).map(|(from, _)| from).find(|from| !line[..*from].ends_with(':'))?;
        let comment = &line[from + mark.len()..];
        let text = comment.trim_start_matches(['/', '!']);
        let kind = comment.len() - text.len();
        let is_alone = line[..from].trim().is_empty();
        last = is_alone.then_some(kind);
        Some(Line { number: at + 1, text, begins: !is_alone || before != Some(kind) })
    })
}

/// The sentences with a pronoun as their subject.
fn sentences<'t>(path: &str, lines: impl Iterator<Item = Line<'t>>) -> Vec<Finding> {
    let mut findings = Vec::new();
    // The line and the pronoun that the open sentence begins with; absent where it begins otherwise.
    let mut open = None;
    let (mut is_start, mut is_code) = (true, false);
    for line in lines {
        let text = line.text.trim();
        if text.starts_with("```") {
            is_code = !is_code;
        }
        let is_new =
            line.begins || text.is_empty() || ["#", "- ", "* ", "```"].iter().any(|mark| text.starts_with(mark));
        if is_new {
            findings.extend(open.take().map(|(line, word)| finding(path, line, word)));
            is_start = true;
        }
        if is_code {
            continue;
        }
        for word in text.split_whitespace() {
            let name = word.trim_matches(|c: char| !c.is_alphanumeric() && c != '`');
            if is_start && !name.is_empty() {
                open = PRONOUNS.into_iter().find(|pronoun| *pronoun == name).map(|pronoun| (line.number, pronoun));
                is_start = false;
            }
            let end = word.trim_end_matches([')', '*', '"', '`', '_']);
            if word == "|" || end.ends_with(['.', '!', '?']) {
                findings
                    .extend(open.take().filter(|_| !end.ends_with('?')).map(|(line, word)| finding(path, line, word)));
                is_start = true;
            }
        }
    }
    findings.extend(open.map(|(line, word)| finding(path, line, word)));
    findings
}

fn finding(path: &str, line: usize, word: &str) -> Finding {
    Finding::new(path, line, format!("a sentence begins with `{word}`"), "begin with the noun that it stands for")
}

/// The functions that are named after a pronoun.
fn functions(source: &RustFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    for pair in source.tokens.windows(2) {
        if let (true, TokenKind::Word(name)) = (pair[0].is("fn"), &pair[1].kind)
            && PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        {
            let remedy = "begin with the noun that the pronoun stands for";
            findings.push(Finding::new(&source.path, pair[1].line, format!("a function named `{name}`"), remedy));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of the sentences found in a file, where `@` stands for the pronoun: so this file does not find itself.
    fn lines(text: &str) -> Vec<usize> {
        let text = text.replace('@', PRONOUNS[0]);
        sentences("a.rs", comments(&text, "//")).into_iter().map(|one| one.line).collect()
    }

    #[test]
    fn sentences_that_begin_with_a_pronoun_are_found() {
        assert_eq!(lines("/// @ is left is kept.\nfn f() {}"), [1]);
        assert_eq!(lines("// It waits. @ comes\n// later goes on.\nlet a = b; // @ is there."), [1, 3]);
        assert_eq!(lines("//! **@ is given back.** It is\n//!\n//! - @ is free\n//! # @ is lost"), [1, 3, 4]);
        assert_eq!(lines("/// (it was gone). @ is (left)."), [1]);
    }

    #[test]
    fn a_finding_names_the_pronoun() {
        let text = format!("// {} waits is woken.", PRONOUNS[1]);
        let found = sentences("a.rs", comments(&text, "//"));
        assert_eq!(found[0].what, format!("a sentence begins with `{}`", PRONOUNS[1]));
    }

    #[test]
    fn questions_and_pronouns_within_a_sentence_are_not_found() {
        assert_eq!(lines("// @ is left,\n// and why? Nothing."), [0; 0]);
        assert_eq!(lines("// The rest is @ is\n// @ it was. Whatever `@` is. `@` is a type."), [0; 0]);
        assert_eq!(lines("let a = \"http://a\";\nlet b = @::Group;\n/// ```\n/// @ is code.\n/// ```"), [0; 0]);
    }

    #[test]
    fn pages_are_searched_beside_their_code_and_tables() {
        let text = "| @ is lost? | @ is kept |\n\n```\n@ is code.\n```\n## @ it costs\n".replace('@', PRONOUNS[0]);
        let found = of_page(&Text { path: "README.md".into(), text });
        assert_eq!(found.iter().map(|one| one.line).collect::<Vec<_>>(), [1, 6]);
    }

    #[test]
    fn functions_named_after_a_pronoun_are_found() {
        let text = format!("fn {}is_left() {{}}\nfn whatever() {{}}\nfn f() {{ what_is(); }}", PREFIXES[0]);
        let found = functions(&RustFile::new("a.rs", &text).unwrap());
        assert_eq!(found.iter().map(|one| one.line).collect::<Vec<_>>(), [1]);
    }
}
