//! The list of files and functions that may be longer than the rule, each with its reason.

use super::Finding;
use super::tree::Text;

/// One line of the list: `file PATH LINES reason…` or `fn PATH NAME LINES reason…`.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Allowance {
    /// The line of the list.
    pub(crate) line: usize,
    /// The file.
    pub(crate) path: String,
    /// The function, where it is about one.
    pub(crate) function: Option<String>,
    /// The greatest number of lines.
    pub(crate) lines: usize,
}

/// Reads the list; a line that cannot be read is a finding.
pub(crate) fn read(list: &Text) -> (Vec<Allowance>, Vec<Finding>) {
    let (mut allowances, mut findings) = (Vec::new(), Vec::new());
    for (at, text) in list.text.lines().enumerate() {
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        match parse(at + 1, text) {
            Some(allowance) => allowances.push(allowance),
            None => {
                let remedy =
                    "write `file PATH LINES reason…` or `fn PATH NAME LINES reason…`, with a reason of some words";
                findings.push(Finding::new(&list.path, at + 1, format!("cannot be read: {text}"), remedy));
            }
        }
    }
    (allowances, findings)
}

fn parse(line: usize, text: &str) -> Option<Allowance> {
    let mut words = text.split_whitespace();
    let kind = words.next()?;
    let path = words.next()?.into();
    let function = match kind {
        "file" => None,
        "fn" => Some(words.next()?.into()),
        _ => return None,
    };
    let lines = words.next()?.parse().ok()?;
    // Two words are no reason.
    (words.count() >= 3).then_some(Allowance { line, path, function, lines })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_and_a_line_without_a_reason_is_reported() {
        let text = "# long ones\n\nfile crates/a/src/b.rs 900 one grammar, read in order\n\
            fn crates/a/src/c.rs step 90 a table with one arm a case\nfile x.rs 900\nfolder x 1 a b c\n";
        let (allowances, findings) = read(&Text { path: "list".into(), text: text.into() });
        assert_eq!(allowances.len(), 2);
        assert_eq!((allowances[0].lines, allowances[0].function.as_deref()), (900, None));
        assert_eq!((allowances[1].lines, allowances[1].function.as_deref()), (90, Some("step")));
        assert_eq!(findings.iter().map(|finding| finding.line).collect::<Vec<_>>(), [5, 6]);
    }
}
