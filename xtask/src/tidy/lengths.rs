//! Files and functions that grew too long: a long one is a room to split, or stands in the list with its reason.

use super::Finding;
use super::allowed::{self, Allowance};
use super::tokens;
use super::tree::{ALLOWED, RustFile, Text, Tree};

/// The greatest number of lines of a file, tests included.
const FILE_LINES: usize = 800;

/// The greatest number of lines of a function, from `fn` to its closing brace.
const FUNCTION_LINES: usize = 70;

/// The page that a newcomer reads first, and the number of lines that it stays under: the rest is in `docs/`.
const FIRST_PAGE: (&str, usize) = ("README.md", 300);

/// The functions and files that are too long, and the allowances in vain.
pub(crate) fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    let (allowances, mut findings) = allowed::read(&tree.allowed);
    findings.extend(over(&tree.sources, &allowances));
    findings.extend(tree.pages.iter().filter_map(long_first_page));
    Ok(findings)
}

fn long_first_page(page: &Text) -> Option<Finding> {
    let (path, most) = FIRST_PAGE;
    let lines = page.text.lines().count();
    let is_long = page.path == path && lines >= most;
    let what = format!("the page has {lines} lines, not under {most}");
    is_long.then(|| Finding::new(path, most, what, "move a part of it to docs/"))
}

/// Something longer than the rule.
struct Long {
    path: String,
    function: Option<String>,
    line: usize,
    lines: usize,
}

fn over(sources: &[RustFile], allowances: &[Allowance]) -> Vec<Finding> {
    let long: Vec<Long> = sources.iter().flat_map(of_source).collect();
    let mut findings = Vec::new();
    for one in &long {
        let same = |allowance: &&Allowance| allowance.path == one.path && allowance.function == one.function;
        let most = allowances.iter().filter(same).map(|allowance| allowance.lines).max();
        if most.is_none_or(|most| one.lines > most) {
            let (what, rule) = match &one.function {
                Some(name) => (format!("fn {name}"), FUNCTION_LINES),
                None => ("the file".into(), FILE_LINES),
            };
            let what = format!("{what} has {} lines, over {}", one.lines, most.unwrap_or(rule));
            findings.push(Finding::new(
                &one.path,
                one.line,
                what,
                format!("split it, or list it in {ALLOWED} with its reason"),
            ));
        }
    }
    for allowance in allowances {
        if !long.iter().any(|one| one.path == allowance.path && one.function == allowance.function) {
            let what =
                format!("{} is not too long, or not there", allowance.function.as_ref().unwrap_or(&allowance.path));
            findings.push(Finding::new(ALLOWED, allowance.line, what, "take the line out"));
        }
    }
    findings
}

fn of_source(source: &RustFile) -> Vec<Long> {
    let mut long = Vec::new();
    let lines = source.text.lines().count();
    if lines > FILE_LINES {
        long.push(Long { path: source.path.clone(), function: None, line: FILE_LINES + 1, lines });
    }
    for (name, span) in tokens::functions(&source.tokens) {
        if span.len() > FUNCTION_LINES {
            long.push(Long { path: source.path.clone(), function: Some(name), line: span.start, lines: span.len() });
        }
    }
    long
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_page_stays_short() {
        let page = |path: &str, lines: usize| Text { path: path.into(), text: "a\n".repeat(lines) };
        assert!(long_first_page(&page("README.md", 299)).is_none());
        assert!(long_first_page(&page("README.md", 300)).is_some());
        assert!(long_first_page(&page("docs/sql.md", 300)).is_none());
    }

    fn source(lines: usize) -> RustFile {
        let body = "    a();\n".repeat(lines - 2);
        RustFile::new("a.rs", &format!("fn f() {{\n{body}}}\n")).unwrap()
    }

    fn allow(function: Option<&str>, lines: usize) -> Allowance {
        Allowance { line: 1, path: "a.rs".into(), function: function.map(str::to_owned), lines }
    }

    #[test]
    fn a_function_of_70_lines_passes_and_one_of_71_does_not() {
        assert_eq!(over(&[source(70)], &[]), []);
        let found = over(&[source(71)], &[]);
        assert_eq!(found[0].what, "fn f has 71 lines, over 70");
        assert_eq!((found[0].file.as_str(), found[0].line), ("a.rs", 1));
    }

    #[test]
    fn a_file_of_more_than_800_lines_is_reported_beside_its_function() {
        assert_eq!(over(&[source(801)], &[]).len(), 2);
    }

    #[test]
    fn the_list_allows_up_to_its_number_and_no_more() {
        assert_eq!(over(&[source(80)], &[allow(Some("f"), 80)]), []);
        assert_eq!(over(&[source(81)], &[allow(Some("f"), 80)])[0].what, "fn f has 81 lines, over 80");
    }

    #[test]
    fn an_allowance_that_nothing_needs_is_reported() {
        assert_eq!(over(&[source(60)], &[allow(Some("f"), 80)])[0].remedy, "take the line out");
        assert_eq!(over(&[source(60)], &[allow(None, 900)]).len(), 1);
    }
}
