//! `crossdock man`: manual pages, made from the definitions of the command line and from the example configuration. The same
//! definitions give the same bytes.

mod configuration;
mod notes;

use std::path::Path;

use clap::Command;
use clap_mangen::Man as Page;
use clap_mangen::roff::{Inline, Roff, bold, roman};

use crate::cli::{self, Man};
use crate::failure::{Failure, Outcome};
use crate::{out, version};

/// No day: a page is the same whenever it is made. The quotes are there since an argument without any text would be none.
const NO_DATE: &str = "\"\"";
/// The part of the manual that the pages belong to, in the middle of their heads.
const MANUAL: &str = "Crossdock";

/// Prints the page of the program, or writes all pages to a folder.
pub(crate) fn run(arguments: &Man) -> Outcome {
    let command = definition();
    let Some(directory) = &arguments.directory else { return out::print(page(&command, &command)) };
    let refused = |path: &Path, error: std::io::Error| {
        Failure::failed(format!("cannot write {}: {error}", path.display()))
            .hint("name a folder that you may write to with --directory")
    };
    std::fs::create_dir_all(directory).map_err(|error| refused(directory, error))?;
    for (name, text) in pages(&command) {
        let path = directory.join(name);
        std::fs::write(&path, text).map_err(|error| refused(&path, error))?;
    }
    Ok(())
}

/// The commands as pages show them: with the version of the package, so that pages are the same for any commit.
fn definition() -> Command {
    let mut command = cli::definition().disable_help_subcommand(true).version(version::VERSION);
    command.build();
    command
}

/// All pages: the files' names, and the text.
fn pages(program: &Command) -> Vec<(String, String)> {
    let mut pages = Vec::new();
    let mut rest = vec![program];
    while let Some(command) = rest.pop() {
        pages.push((format!("{}.1", name_of(command)), page(program, command)));
        rest.extend(command.get_subcommands().filter(|command| !command.is_hide_set()));
    }
    pages.push(("crossdock.toml.5".to_owned(), configuration::page()));
    pages.sort();
    pages
}

/// `crossdock-handler-deploy`.
fn name_of(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

/// The text behind the title in a page's head.
fn source() -> String {
    format!("crossdock {}", version::VERSION)
}

/// The page of a command.
fn page(program: &Command, command: &Command) -> String {
    let page = Page::new(command.clone()).date(NO_DATE).source(source()).manual(MANUAL);
    let mut text = Vec::new();
    // Writing to memory does not fail.
    let _ = page.render_title(&mut text);
    let mut text = String::from_utf8(text).unwrap_or_default();
    type Section = fn(&Page, &mut dyn std::io::Write) -> std::io::Result<()>;
    let mut add = |section: Section| {
        let mut part = Vec::new();
        let _ = section(&page, &mut part);
        text.push_str(&without_preamble(&String::from_utf8(part).unwrap_or_default()));
    };
    add(Page::render_name_section);
    add(Page::render_synopsis_section);
    add(Page::render_description_section);
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        add(Page::render_options_section);
    }
    if command.has_subcommands() {
        add(Page::render_subcommands_section);
    }
    let mut rest = Roff::new();
    if let Some(help) = command.get_after_long_help().or_else(|| command.get_after_help()) {
        notes::add(&mut rest, &help.to_string());
    }
    see_also(&mut rest, program, command);
    plain(&(text + &without_preamble(&rest.render())))
}

/// Characters beyond ASCII by their numbers, since some page viewers expect ASCII.
fn plain(page: &str) -> String {
    let escaped = |c: char| if c.is_ascii() { c.to_string() } else { format!("\\[u{:04X}]", u32::from(c)) };
    page.chars().map(escaped).collect()
}

/// Each part that is rendered begins with the same lines, which a page has once.
fn without_preamble(part: &str) -> String {
    part.find(".SH").map_or(String::new(), |start| part[start..].to_owned())
}

/// The other pages: the program's, the command's parts, the configuration's.
fn see_also(roff: &mut Roff, program: &Command, command: &Command) {
    let mut names = Vec::new();
    if name_of(command) != name_of(program) {
        names.push(format!("{}(1)", name_of(program)));
    }
    names.extend(command.get_subcommands().map(|part| format!("{}(1)", name_of(part))));
    names.push("crossdock.toml(5)".to_owned());
    names.sort();
    roff.control("SH", ["SEE ALSO"]);
    roff.text([roman(names.join(", "))]);
}

/// A line of text, in which what stands between backticks is bold.
fn marked(line: &str) -> Vec<Inline> {
    let parts = line.split('`').enumerate();
    parts.map(|(at, part)| if at % 2 == 1 { bold(part) } else { roman(part) }).collect()
}

/// Lines that are shown as they stand.
fn verbatim<'a>(roff: &mut Roff, lines: impl IntoIterator<Item = &'a str>) {
    roff.control("RS", ["4"]).control("nf", []);
    lines.into_iter().for_each(|line| {
        roff.text([roman(line)]);
    });
    roff.control("fi", []).control("RE", []);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_with_its_examples_and_options() {
        let program = definition();
        let pages = pages(&program);
        let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        for name in ["crossdock.1", "crossdock-serve.1", "crossdock-handler-deploy.1", "crossdock.toml.5"] {
            assert!(names.contains(&name), "{name} in {names:?}");
        }
        for (name, text) in &pages {
            assert!(text.is_ascii(), "{name}");
        }
        for (name, text) in pages.iter().filter(|(name, _)| name.ends_with(".1")) {
            assert!(text.contains(".SH NAME") && text.contains(".SH SYNOPSIS"), "{name}");
            assert_eq!(text.matches(".ie \\n(.g").count(), 1, "{name} has one preamble:\n{text}");
            // Parts of `formats` and `conversions` have theirs in the pages of those.
            let is_command = name.matches('-').count() == 1;
            assert!(text.contains(".SH EXAMPLES") || !is_command, "{name}:\n{text}");
        }
        let (_, serve) = pages.iter().find(|(name, _)| name == "crossdock-serve.1").unwrap();
        assert!(serve.contains("\\-\\-config") && serve.contains("crossdock serve \\-\\-config"), "{serve}");
    }

    #[test]
    fn pages_name_the_version_and_no_day() {
        let program = definition();
        let text = page(&program, &program);
        let head = text.lines().find(|line| line.starts_with(".TH")).unwrap();
        assert_eq!(head, format!(".TH crossdock 1 \"\" \"crossdock {}\" Crossdock", version::VERSION));
        assert!(!text.contains(version::COMMIT) || version::COMMIT == "unknown");
        assert_eq!(text, page(&definition(), &definition()), "the same bytes each time");
    }
}
