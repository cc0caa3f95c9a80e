//! Names that say nothing, words that the project does not use, and marks of work that was left undone.

use super::Finding;
use super::tokens::TokenKind;
use super::tree::{RustFile, Text, Tree};

/// Modules that gather what found no other place.
const EMPTY_NAMES: [&str; 8] = ["common", "helper", "helpers", "manager", "misc", "util", "utilities", "utils"];

/// Marks of unfinished work in a comment. Put together here, so that this file does not find itself.
const MARKS: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// How a row of the table is found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Match {
    /// Words that follow one another, in any case: in comments and strings, also across the end of a line, and in an
    /// identifier, where a word ends at `_` and before a capital letter. `#` is any number.
    Words,
    /// The name, in this case, of a type, trait, module, function or constant of ours.
    Defined,
    /// An option of the command line.
    Flag,
}

use Match::{Defined, Flag, Words};

/// Words that the project does not use, and what to say instead.
///
/// Not in it are words that the field needs in another sense: `late`, `parked`, `hold` and `held` (a late record, what a
/// buffer holds), `measure` for `weigh` as a noun, `behind` and `apart` as places, `Second` as a unit of time, `ask` and
/// `way` outside of names, `give way` as a verb.
const REPLACED: [(&str, Match, &str); 106] = [
    ("who asked", Words, "the noun: the caller, the client"),
    ("who ask", Words, "the noun: the callers, the requests"),
    ("who asks", Words, "the noun: the caller, the request"),
    ("who is", Words, "the noun: the caller, the client"),
    ("who are", Words, "the noun: the callers, the clients"),
    ("who has", Words, "the noun: the caller, the client"),
    ("who was", Words, "the noun: the caller, the client"),
    ("of which", Words, "a sentence of its own: `its`, `each`, or the noun"),
    ("so many", Words, "the number: `n` records"),
    ("as they are", Words, "unchanged"),
    ("for ever", Words, "indefinitely"),
    ("once all that came", Words, "after the preceding records"),
    ("no longer there", Words, "gone"),
    ("has no like", Words, "has no equivalent"),
    ("to the word", Words, "round-trips exactly"),
    ("is no text", Words, "binary data, is not text"),
    ("are no text", Words, "binary data, are not text"),
    ("be no text", Words, "binary data, not be text"),
    ("is settled by", Words, "is controlled by"),
    ("are settled by", Words, "are controlled by"),
    ("some #", Words, "about"),
    ("no more of", Words, "the noun, and `no further`"),
    ("what there is", Words, "the noun: the current state, the free time"),
    ("thinned out", Words, "sampled, shed"),
    ("look after", Words, "the verb: restart, check; `tick`"),
    ("looks after", Words, "the verb: restarts, checks; `tick`"),
    ("looked after", Words, "the verb: restarted, checked"),
    ("tell", Words, "report, notify, say; `tell apart`: distinguish"),
    ("tells", Words, "reports, notifies, says; `tells of`: describes"),
    ("told", Words, "reported, notified"),
    ("telling", Words, "reporting, saying"),
    ("untold", Words, "pending"),
    ("news", Words, "event, change"),
    ("leave view", Words, "publish_snapshot"),
    ("mend", Words, "repair, correct; `restart_failed`"),
    ("mends", Words, "repairs, corrects"),
    ("mended", Words, "repaired, corrected"),
    ("mending", Words, "repairing, correcting"),
    ("reckon", Words, "compute, count; `recompute`"),
    ("reckons", Words, "computes, counts"),
    ("reckoned", Words, "computed, counted"),
    ("reckoning", Words, "computing, counting"),
    ("wish", Words, "request; `ChangeRequest`"),
    ("becoming", Words, "`PlannedHandler`"),
    ("dock", Words, "I/O context"),
    ("docked", Words, "at an I/O context"),
    ("standby", Words, "planner"),
    ("straggle", Words, "draining"),
    ("straggler", Words, "draining"),
    ("stragglers", Words, "draining, the latest"),
    ("thins", Words, "samples, sheds"),
    ("hold up", Words, "delay, block"),
    ("holds up", Words, "delays, blocks"),
    ("holds it up", Words, "delays, blocks"),
    ("holds nobody up", Words, "delays nobody"),
    ("hold others up", Words, "delay, block"),
    ("held up", Words, "delayed, waiting for credit"),
    ("workshop", Words, "`HandlerCompiler`"),
    ("weigh", Words, "measure"),
    ("weighs", Words, "measures"),
    ("weighed", Words, "measured"),
    ("makings", Words, "`dependencies()`"),
    ("twin", Words, "the natural format"),
    ("twins", Words, "the natural formats"),
    ("outlook", Words, "`CompatReport`"),
    ("fate", Words, "`FieldCompat`, or what becomes of it"),
    ("sought", Words, "`Needle`"),
    ("giving way", Words, "`BackgroundThread`"),
    ("keep off", Words, "`exclude_cpus`"),
    ("keeps off", Words, "excludes"),
    ("breach", Words, "`ProtocolViolation`"),
    ("breaches", Words, "violations"),
    ("send away", Words, "disconnect"),
    ("sends away", Words, "disconnects"),
    ("sent away", Words, "disconnected"),
    ("parcel", Words, "`AttachReply`"),
    ("roomy", Words, "`headroom_streak_s`"),
    ("give away", Words, "offload"),
    ("gives away", Words, "offloads"),
    ("take back", Words, "reclaim, withdraw"),
    ("takes back", Words, "reclaims, withdraws"),
    ("handler natives", Words, "handler builtins"),
    ("metrics left out", Words, "crossdock_metrics_omitted"),
    ("go_first", Defined, "raise_priority"),
    ("Ask", Defined, "ControlRequest"),
    ("Way", Defined, "Route"),
    ("ways", Defined, "routes"),
    ("WAYS", Defined, "routes"),
    ("Behind", Defined, "LoadShedder"),
    ("Terms", Defined, "SchedulingPolicy"),
    ("Station", Defined, "PathNode"),
    ("Scales", Defined, "CostModel"),
    ("Making", Defined, "BatchBuilder"),
    ("Maker", Defined, "a name with `Builder`"),
    ("OwnTime", Defined, "CpuTime"),
    ("Apart", Defined, "CachePadded"),
    ("Trip", Defined, "Displacement"),
    ("Second", Defined, "Sample"),
    ("Drop", Defined, "DropReason"),
    ("Sync", Defined, "SyncWord"),
    ("--may-sample", Flag, "--max-sampling"),
    ("--degrade", Flag, "--overload-param"),
    ("--on", Flag, "--input-stream"),
    ("--as", Flag, "--output-stream"),
    ("--reserve-path", Flag, "--reserve-path-rate"),
    ("--overflow", Flag, "--on-overflow"),
];

/// The pages that keep to the table, beside those in `docs`.
const PAGES: [&str; 3] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"];

/// The configuration file with every key and its meaning.
pub(super) const EXAMPLE: &str = "crates/crossdock/crossdock.example.toml";

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
            findings.extend(defined(source));
        }
    }
    for page in tree.pages.iter().filter(|page| is_page(page)) {
        findings.extend(replaced(&page.path, &page.text));
    }
    let example = std::fs::read_to_string(tree.root.join(EXAMPLE)).map_err(|e| format!("{EXAMPLE}: {e}"))?;
    findings.extend(replaced(EXAMPLE, &example));
    Ok(findings)
}

/// Whether a page keeps to the words of the project.
pub(super) fn is_page(page: &Text) -> bool {
    PAGES.contains(&page.path.as_str()) || page.path.starts_with("docs/")
}

fn finding(path: &str, line: usize, word: &str, instead: &str) -> Finding {
    Finding::new(path, line, format!("`{word}`"), format!("say instead: {instead}"))
}

/// The words and options of the table in a text: code, comments and strings.
fn replaced(path: &str, text: &str) -> Vec<Finding> {
    let words = words(text);
    let mut findings = Vec::new();
    for (row, how, instead) in REPLACED {
        match how {
            Words => {
                let row_words: Vec<&str> = row.split(' ').collect();
                let found = words.windows(row_words.len()).filter(|found| is_row(found, &row_words));
                findings.extend(found.map(|found| finding(path, found[0].line, row, instead)));
            }
            Flag => {
                for (at, line) in text.lines().enumerate() {
                    if has_flag(line, row) {
                        findings.push(finding(path, at + 1, row, instead));
                    }
                }
            }
            Defined => {}
        }
    }
    findings
}

/// The names of the table that are defined in a file.
fn defined(source: &RustFile) -> Vec<Finding> {
    const KEYWORDS: [&str; 9] = ["struct", "enum", "trait", "type", "union", "mod", "fn", "const", "static"];
    let mut findings = Vec::new();
    for pair in source.tokens.windows(2) {
        let (true, TokenKind::Word(name)) = (KEYWORDS.iter().any(|keyword| pair[0].is(keyword)), &pair[1].kind) else {
            continue;
        };
        for (row, how, instead) in REPLACED {
            if how == Defined && row == name {
                findings.push(finding(&source.path, pair[1].line, row, instead));
            }
        }
    }
    findings
}

/// A word of a text: letters alone, or digits alone.
struct Word {
    /// In small letters.
    text: String,
    /// The line, from 1.
    line: usize,
    /// Whether nothing but `_`, blanks and the marks of a comment or of a string that goes on stand before it.
    follows: bool,
}

/// The words of a text. An identifier is one for each of its parts.
fn words(text: &str) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    let (mut line, mut follows, mut last) = (1, false, ' ');
    for c in text.chars() {
        if c.is_alphanumeric() {
            let begins = !last.is_alphanumeric()
                || last.is_numeric() != c.is_numeric()
                || (last.is_lowercase() && c.is_uppercase());
            if begins {
                words.push(Word { text: String::new(), line, follows });
            }
            if let Some(word) = words.last_mut() {
                word.text.extend(c.to_lowercase());
            }
            follows = true;
        } else {
            follows &= c.is_whitespace() || matches!(c, '_' | '/' | '!' | '\\');
            line += usize::from(c == '\n');
        }
        last = c;
    }
    words
}

/// Whether words are those of a row.
fn is_row(found: &[Word], row: &[&str]) -> bool {
    let is_word =
        |(word, row): (&Word, &&str)| word.text == *row || (*row == "#" && word.text.chars().all(char::is_numeric));
    found.iter().zip(row).all(is_word) && found[1..].iter().all(|word| word.follows)
}

/// Whether an option stands by itself in a line.
fn has_flag(line: &str, flag: &str) -> bool {
    let goes_on = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    line.match_indices(flag).any(|(from, _)| {
        let before = line[..from].chars().next_back();
        let after = line[from + flag.len()..].chars().next();
        !before.is_some_and(goes_on) && !after.is_some_and(goes_on)
    })
}

fn module_names(source: &RustFile) -> Vec<Finding> {
    let remedy = "name it after the one job that it does, or move its parts to where they are used";
    let mut findings = Vec::new();
    for pair in source.tokens.windows(2) {
        if let (true, TokenKind::Word(name)) = (pair[0].is("mod"), &pair[1].kind)
            && EMPTY_NAMES.contains(&name.as_str())
        {
            findings.push(Finding::new(&source.path, pair[0].line, format!("a module named `{name}`"), remedy));
        }
    }
    findings
}

fn marks(source: &RustFile) -> Vec<Finding> {
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
        let source = RustFile::new("crates/a/src/lib.rs", text).unwrap();
        [module_names(&source), marks(&source)].concat().into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn modules_that_gather_leftovers_are_found() {
        assert_eq!(
            whats("mod utils;\npub(crate) mod helpers { }\nmod handler_manager;"),
            ["a module named `utils`", "a module named `helpers`"]
        );
    }

    fn rows(text: &str) -> Vec<(usize, String)> {
        replaced("a.rs", text).into_iter().map(|one| (one.line, one.what)).collect()
    }

    #[test]
    fn replaced_words_are_found_with_what_to_say_instead() {
        let found = replaced("a.rs", "fn f() {}\n// It waits For ever.\nlet name = \"crossdock_dock_turns\";\n");
        let lines: Vec<_> = found.iter().map(|one| (one.file.as_str(), one.line, one.what.as_str())).collect();
        assert_eq!(lines, [("a.rs", 2, "`for ever`"), ("a.rs", 3, "`dock`")]);
        assert_eq!(found[0].remedy, "say instead: indefinitely");
        assert_eq!(rows("for everything\nWishes\ncrossdock_docks\nlet x = has_no(like);\n"), []);
    }

    #[test]
    fn words_are_found_across_lines_and_in_identifiers() {
        assert_eq!(rows("/// two, of\n    /// which one\n"), [(1, "`of which`".into())]);
        assert_eq!(rows("\"two, of \\\n  which\""), [(1, "`of which`".into())]);
        assert_eq!(
            rows("fn keep_off() {}\nenum AsTheyAre {}\nconst KEEP_OFF: u8"),
            [(2, "`as they are`".into()), (1, "`keep off`".into()), (3, "`keep off`".into()),]
        );
        assert_eq!(rows("two of. Which\nkeep(off)\nx.keep.off"), []);
    }

    #[test]
    fn a_word_inside_another_is_not_found() {
        for found in ["It was told.", "Told so", "x_told", "told_x", "NotToldX"] {
            assert_eq!(rows(found), [(1, "`told`".into())], "{found}");
        }
        for other in ["retold", "Retolds", "tolds_x", "xtold"] {
            assert_eq!(rows(other), [], "{other}");
        }
    }

    #[test]
    fn a_number_is_any() {
        assert_eq!(rows("some 10 ns"), [(1, "`some #`".into())]);
        assert_eq!(rows("some ns"), []);
    }

    #[test]
    fn options_are_found_whole() {
        assert_eq!(rows("`--on`, --on-overflow\n--max-sampling"), [(1, "`--on`".into())]);
    }

    #[test]
    fn names_are_found_where_they_are_defined() {
        let source =
            RustFile::new("a.rs", "struct Way;\nuse std::sync;\nfn f<T: Sync + Drop>() -> Way {}\nmod ways;").unwrap();
        let found: Vec<_> = defined(&source).into_iter().map(|one| (one.line, one.what)).collect();
        assert_eq!(found, [(1, "`Way`".into()), (4, "`ways`".into())]);
    }

    #[test]
    fn unfinished_work_is_found_in_comments_only() {
        assert_eq!(whats(&format!("fn f() {{}} // {}: more", MARKS[0])).len(), 1);
        assert_eq!(whats("let a = \"a\"; // a method\n// prefixme"), [""; 0]);
    }
}
