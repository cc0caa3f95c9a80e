//! The page of `crossdock.toml`, made from the example, which documents every key.

use clap_mangen::roff::{Roff, bold, roman};

use super::{MANUAL, NO_DATE, marked, plain, source, verbatim};
use crate::config::EXAMPLE;

/// The page.
pub(super) fn page() -> String {
    let mut roff = Roff::new();
    roff.control("TH", ["crossdock.toml", "5", NO_DATE, &source(), MANUAL]);
    roff.control("SH", ["NAME"]);
    roff.text([roman("crossdock.toml - configuration of crossdock serve")]);
    roff.control("SH", ["SYNOPSIS"]);
    roff.text([bold("/etc/crossdock/crossdock.toml")]);
    roff.control("SH", ["DESCRIPTION"]);
    for (at, block) in blocks(EXAMPLE).iter().enumerate() {
        match at {
            0 => paragraphs(&mut roff, &block.text, false),
            _ => add(&mut roff, block),
        }
    }
    roff.control("SH", ["SEE ALSO"]);
    roff.text([roman("crossdock(1), crossdock-serve(1), crossdock-check(1)")]);
    plain(&roff.render())
}

/// Lines of the example that stand together.
#[derive(Default)]
struct Block<'a> {
    /// The section's head, such as `[context]`.
    section: Option<&'a str>,
    /// Its text, without the `#` in front.
    text: Vec<&'a str>,
    /// The keys with their defaults.
    keys: Vec<&'a str>,
}

/// The blocks, which blank lines part. A line is a comment if a space follows the `#`, and else a section or a key with its default.
fn blocks(example: &str) -> Vec<Block<'_>> {
    let mut blocks = vec![Block::default()];
    for line in example.lines() {
        let Some(line) = line.strip_prefix('#') else {
            blocks.push(Block::default());
            continue;
        };
        let Some(block) = blocks.last_mut() else { continue };
        match line.strip_prefix(' ') {
            Some(text) => block.text.push(text),
            None if line.is_empty() => block.text.push(""),
            None if line.starts_with('[') => block.section = Some(line),
            None => block.keys.push(line),
        }
    }
    blocks.retain(|block| block.section.is_some() || !block.text.is_empty() || !block.keys.is_empty());
    blocks
}

fn add(roff: &mut Roff, block: &Block<'_>) {
    let list = block.text.iter().position(|line| line.starts_with("[["));
    let (text, example) = block.text.split_at(list.unwrap_or(block.text.len()));
    match (block.section, example.first()) {
        (Some(section), _) => {
            roff.control("SH", [section]);
        }
        // A list of tables inside of a section stays there.
        (None, Some(head)) => {
            roff.control(if head.contains('.') { "SS" } else { "SH" }, [*head]);
        }
        (None, None) => {}
    }
    if let Some((first, rest)) = block.keys.split_first() {
        roff.control("TP", []).text([bold(*first)]);
        for key in rest {
            roff.control("TQ", []).text([bold(*key)]);
        }
    }
    paragraphs(roff, text, !block.keys.is_empty());
    if !example.is_empty() {
        if !text.is_empty() {
            roff.control("PP", []);
        }
        verbatim(roff, example.iter().copied());
    }
}

/// Text, in which empty lines part paragraphs.
fn paragraphs(roff: &mut Roff, lines: &[&str], is_indented: bool) {
    let mut text = lines.split(|line| line.is_empty()).filter(|paragraph| !paragraph.is_empty());
    for line in text.next().unwrap_or_default() {
        roff.text(marked(line));
    }
    for paragraph in text {
        roff.control(if is_indented { "IP" } else { "PP" }, []);
        paragraph.iter().for_each(|line| {
            roff.text(marked(line));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_section_and_key_of_the_example_is_in_the_page() {
        let page = page();
        let is_key = |line: &&str| line.starts_with(|c: char| c.is_ascii_lowercase() || c == '[');
        let lines = EXAMPLE.lines().filter_map(|line| line.strip_prefix('#')).filter(is_key);
        for line in lines {
            let shown = line.replace('-', "\\-");
            let is_there = match line.starts_with('[') {
                true => page.contains(&format!("\n.SH {shown}\n")),
                false => page.contains(&format!("\\fB{shown}\\fR\n")),
            };
            assert!(is_there, "{line}:\n{page}");
        }
        for list in ["SH [[stream]]", "SH [[handler]]", "SS [[node.peer]]", "SS [[platform.context]]"] {
            assert!(page.contains(&format!(".{list}\n")), "{list}:\n{page}");
        }
    }
}
