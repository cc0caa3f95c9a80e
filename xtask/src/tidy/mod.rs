//! `cargo xtask tidy`: what must hold of the source as a whole. Each finding says where it is and a remedy.

mod absences;
mod allowed;
mod cycles;
mod dependencies;
mod lengths;
mod links;
mod rooms;
mod subjects;
mod tokens;
mod tree;
mod types;
mod unsafety;
mod words;

use std::fmt;

use crate::steps::{Outcome, Steps};
use tree::Tree;

/// Something that breaks a rule.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Finding {
    /// The file, from the root of the workspace.
    pub(crate) file: String,
    /// The line, from 1.
    pub(crate) line: usize,
    /// The fault.
    pub(crate) what: String,
    /// The remedy.
    pub(crate) remedy: String,
}

impl Finding {
    /// A finding at a line of a file.
    pub(crate) fn new(file: &str, line: usize, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Finding { file: file.into(), line, what: what.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}\n    remedy: {}", self.file, self.line, self.what, self.remedy)
    }
}

/// A rule over the whole tree.
type Check = fn(&Tree) -> Result<Vec<Finding>, String>;

/// The rules that need no compiler, in the order in which they are reported.
const CHECKS: [(&str, Check); 10] = [
    ("tidy: dependency table", rooms::check),
    ("tidy: reasons for dependencies", dependencies::check),
    ("tidy: absences", absences::check),
    ("tidy: unsafe", unsafety::check),
    ("tidy: import cycles", cycles::check),
    ("tidy: words", words::check),
    ("tidy: subjects", subjects::check),
    ("tidy: type names", types::check),
    ("tidy: lengths", lengths::check),
    ("tidy: Markdown links", links::check),
];

/// Every rule, as steps; those without a compiler first, since they answer at once.
pub(crate) fn run(steps: &mut Steps<'_>) {
    let mut tree = None;
    steps.step("tidy: read the tree", |steps| match Tree::read(steps.place) {
        Ok(read) => {
            let note = format!("{} Rust files, {} Markdown files", read.sources.len(), read.pages.len());
            tree = Some(read);
            Outcome::Passed(note)
        }
        Err(why) => Outcome::Failed(why),
    });
    if let Some(tree) = tree {
        for (name, check) in CHECKS {
            steps.step(name, |_| outcome(check(&tree)));
        }
    }
    let place = steps.place;
    format_step(steps, "tidy: rustfmt", &["fmt", "--all"]);
    if place.root.join("fuzz/Cargo.toml").exists() {
        format_step(steps, "tidy: rustfmt fuzz", &["fmt", "--manifest-path", "fuzz/Cargo.toml"]);
    }
    let clippy = place.cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]);
    steps.command(
        "tidy: clippy",
        clippy,
        "do what each lint says, or `#[expect(…, reason = \"…\")]` it where it is wrong",
    );
    let mut doc = place.cargo(&["doc", "--workspace", "--no-deps"]);
    doc.env("RUSTDOCFLAGS", "-D warnings");
    steps.command("tidy: doc links", doc, "write the path that rustdoc can find, or plain `code` without brackets");
}

/// Whether `cargo fmt` would change anything.
fn format_step(steps: &mut Steps<'_>, name: &str, args: &[&str]) {
    let mut fmt = steps.place.cargo(args);
    fmt.args(["--check", "--", "--color", "never"]);
    steps.command(name, fmt, &format!("cargo {}", args.join(" ")));
}

/// A check's answer as a step's outcome.
fn outcome(answer: Result<Vec<Finding>, String>) -> Outcome {
    match answer {
        Err(why) => Outcome::Failed(why),
        Ok(findings) if findings.is_empty() => Outcome::Passed(String::new()),
        Ok(mut findings) => {
            findings.sort();
            Outcome::Failed(findings.iter().map(|finding| format!("{finding}\n")).collect())
        }
    }
}
