//! The text behind a command's options as sections of its page: examples, notes, exit status.

use clap_mangen::roff::Roff;

use super::{marked, verbatim};

/// Adds the text: `Examples:`, `Environment:` and `Exit status:` begin sections, indented lines are shown as they stand, the rest are notes.
pub(super) fn add(roff: &mut Roff, text: &str) {
    let mut section = Section { name: "", wants_paragraph: false };
    let mut lines = text.lines().peekable();
    let mut is_parted = false;
    while let Some(line) = lines.next() {
        if line.trim().is_empty() {
            section.wants_paragraph = true;
            is_parted = true;
            continue;
        }
        let was_parted = std::mem::take(&mut is_parted);
        if let Some(first) = line.strip_prefix("  ") {
            let own = if section.name.is_empty() { "NOTES" } else { section.name };
            section.enter(roff, own, true);
            let mut block = vec![first];
            while let Some(next) = lines.next_if(|line| line.starts_with("  ")) {
                block.push(&next[2..]);
            }
            verbatim(roff, block);
            section.wants_paragraph = true;
            continue;
        }
        let (next, line) = match line.strip_prefix("Exit status: ") {
            Some(rest) => ("EXIT STATUS", rest),
            None if matches!(line, "Example:" | "Examples:") => ("EXAMPLES", ""),
            None if line == "Environment:" => ("ENVIRONMENT", ""),
            None if section.name == "ENVIRONMENT" && !was_parted => (section.name, line),
            None if section.name == "EXIT STATUS" && !section.wants_paragraph => (section.name, line),
            None => ("NOTES", line),
        };
        section.enter(roff, next, false);
        if !line.is_empty() {
            roff.text(marked(line));
        }
    }
}

/// The section that the text is in.
struct Section {
    name: &'static str,
    /// Whether what comes next is parted from what came before.
    wants_paragraph: bool,
}

impl Section {
    /// Begins a section unless the text is in it already, or else a paragraph where one is wanted.
    fn enter(&mut self, roff: &mut Roff, name: &'static str, is_block: bool) {
        if self.name != name {
            roff.control("SH", [name]);
            // The heading's line `Examples:` has no text of its own.
            self.wants_paragraph = false;
        } else if self.wants_paragraph || (is_block && name != "EXAMPLES") {
            roff.control("PP", []);
        }
        self.name = name;
        self.wants_paragraph = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(text: &str) -> String {
        let mut roff = Roff::new();
        add(&mut roff, text);
        roff.to_roff()
    }

    #[test]
    fn examples_notes_and_exit_status_are_sections() {
        let text =
            "Examples:\n  crossdock top\n  .hidden\n\nKeys: `q` quits.\n\nMore.\n\nExit status: 0 if so,\n1 if not.";
        let block = ".RS 4\n.nf\ncrossdock top\n\\&.hidden\n.fi\n.RE\n";
        let notes = ".SH NOTES\nKeys: \\fBq\\fR quits.\n.PP\nMore.\n";
        assert_eq!(rendered(text), format!(".SH EXAMPLES\n{block}{notes}.SH \"EXIT STATUS\"\n0 if so,\n1 if not.\n"));
    }

    #[test]
    fn blocks_among_notes_stay_there() {
        let text = "First:\n  a\n    b\nthen.\n";
        assert_eq!(rendered(text), ".SH NOTES\nFirst:\n.PP\n.RS 4\n.nf\na\n  b\n.fi\n.RE\n.PP\nthen.\n");
    }
}
