//! Names that say nothing, words that the project does not use, and marks of work that was left undone.

use std::borrow::Cow;

use super::Finding;
use super::tokens::Kind;
use super::tree::{Source, Tree};

/// Modules that gather what found no other place.
const EMPTY_NAMES: [&str; 8] = ["common", "helper", "helpers", "manager", "misc", "util", "utilities", "utils"];

/// Marks of unfinished work in a comment. Put together here, so that this file does not find itself.
const MARKS: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// How a word of the table is found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Match {
    /// Whole words in any case; an underscore is a letter.
    Phrase,
    /// A whole identifier, in this case.
    Name,
    /// An identifier or a part of one between underscores, in this case.
    Part,
}

/// Words that the project does not use, and what to say instead.
const REPLACED: [(&str, Match, &str); 33] = [
    ("who asked", Match::Phrase, "the noun: the caller, the client"),
    ("who is attached", Match::Phrase, "the attached client"),
    ("for ever", Match::Phrase, "indefinitely"),
    ("has no like", Match::Phrase, "has no equivalent"),
    ("no more of", Match::Phrase, "the noun, and `no further`"),
    ("told", Match::Phrase, "reported, notified"),
    ("so many", Match::Phrase, "the number: `n` records"),
    ("thinned out", Match::Phrase, "sampled, shed"),
    ("what there is", Match::Phrase, "the noun: the current state, the free time"),
    ("look after", Match::Phrase, "the verb: restart, check"),
    ("looks after", Match::Phrase, "the verb: restarts, checks"),
    ("Wish", Match::Name, "ChangeRequest, or the noun of the request"),
    ("Becoming", Match::Name, "PlannedHandler"),
    ("AsTheyAre", Match::Name, "Route::Direct"),
    ("Workshop", Match::Name, "HandlerCompiler"),
    ("Station", Match::Name, "PathNode"),
    ("Scales", Match::Name, "CostModel"),
    ("Maker", Match::Name, "a name with `Builder`"),
    ("Outlook", Match::Name, "CompatReport"),
    ("Fate", Match::Name, "FieldCompat"),
    ("Sought", Match::Name, "Needle"),
    ("Twin", Match::Name, "the natural format"),
    ("GivingWay", Match::Name, "BackgroundThread"),
    ("OwnTime", Match::Name, "CpuTime"),
    ("Breach", Match::Name, "ProtocolViolation"),
    ("Parcel", Match::Name, "AttachReply"),
    ("keep_off", Match::Part, "exclude_cpus"),
    ("go_first", Match::Name, "raise_priority"),
    ("send_away", Match::Part, "disconnect"),
    ("roomy_s", Match::Part, "headroom_streak_s"),
    ("mends_text", Match::Part, "repairs_text"),
    ("crossdock_dock", Match::Part, "crossdock_io"),
    ("crossdock_metrics_left_out", Match::Part, "crossdock_metrics_omitted"),
];

/// The pages that keep to the table, beside those in `docs`.
const PAGES: [&str; 3] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"];

/// The configuration file with every key and its meaning.
const EXAMPLE: &str = "crates/crossdock/crossdock.example.toml";

/// This file, which has the table.
const TABLE: &str = "xtask/src/tidy/words.rs";

/// Module names, words and unfinished work.
pub(crate) fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    for source in &tree.sources {
        findings.extend(module_names(source));
        findings.extend(marks(source));
        if source.path != TABLE {
            findings.extend(replaced(&source.path, &source.text));
        }
    }
    for page in &tree.pages {
        if PAGES.contains(&page.path.as_str()) || page.path.starts_with("docs/") {
            findings.extend(replaced(&page.path, &page.text));
        }
    }
    let example = std::fs::read_to_string(tree.root.join(EXAMPLE)).map_err(|e| format!("{EXAMPLE}: {e}"))?;
    findings.extend(replaced(EXAMPLE, &example));
    Ok(findings)
}

/// The words of the table in a text: code, comments and strings.
fn replaced(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, line) in text.lines().enumerate() {
        for (word, how, instead) in REPLACED {
            if has(line, word, how) {
                findings.push(Finding::new(path, at + 1, format!("`{word}`"), format!("say instead: {instead}")));
            }
        }
    }
    findings
}

/// Whether a word stands by itself in a line.
fn has(line: &str, word: &str, how: Match) -> bool {
    let line = match how {
        Match::Phrase => Cow::Owned(line.to_ascii_lowercase()),
        Match::Name | Match::Part => Cow::Borrowed(line),
    };
    let is_letter = |c: char| c.is_alphanumeric() || (c == '_' && how != Match::Part);
    line.match_indices(word).any(|(from, _)| {
        let before = line[..from].chars().next_back();
        let after = line[from + word.len()..].chars().next();
        !before.is_some_and(is_letter) && !after.is_some_and(is_letter)
    })
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
    fn replaced_words_are_found_with_what_to_say_instead() {
        let found = replaced("a.rs", "fn f() {}\n// It waits For ever.\nlet name = \"crossdock_dock_turns\";\n");
        let lines: Vec<_> = found.iter().map(|one| (one.file.as_str(), one.line, one.what.as_str())).collect();
        assert_eq!(lines, [("a.rs", 2, "`for ever`"), ("a.rs", 3, "`crossdock_dock`")]);
        assert_eq!(found[0].remedy, "say instead: indefinitely");
        assert!(replaced("a.rs", "for everything\nWishes\ncrossdock_docked\nlet no_like = has_no_like();").is_empty());
    }

    #[test]
    fn a_word_inside_another_is_not_found() {
        assert!(has("It was told.", "told", Match::Phrase) && has("Told so", "told", Match::Phrase));
        for other in ["retold", "untold_x", "told_x", "x_told"] {
            assert!(!has(other, "told", Match::Phrase) && !has(other, "told", Match::Name), "{other}");
        }
        assert!(has("send_away_all", "send_away", Match::Part) && has("x_send_away", "send_away", Match::Part));
        assert!(!has("resend_away", "send_away", Match::Part) && !has("send_aways", "send_away", Match::Part));
        assert!(has("Option<Wish>", "Wish", Match::Name) && !has("a wish", "Wish", Match::Name));
    }

    #[test]
    fn unfinished_work_is_found_in_comments_only() {
        assert_eq!(whats(&format!("fn f() {{}} // {}: more", MARKS[0])).len(), 1);
        assert_eq!(whats("let a = \"a\"; // a method\n// prefixme"), [""; 0]);
    }
}
