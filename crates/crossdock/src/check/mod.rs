//! `crossdock check`: whether this machine is set up for a configuration, and the commands that set it up.
//!
//! Only `machine` reads the system; the other modules are functions from its values to findings.

mod cgroup;
mod cores;
pub(crate) mod files;
mod finding;
mod limits;
mod machine;
mod memory;
mod network;
#[cfg(test)]
mod packaging;
mod place;
mod tables;
mod wanted;

use std::path::{Path, PathBuf};

use self::finding::{Finding, Verdict};
use self::machine::Machine;
use self::wanted::Wanted;
use crate::cli::Check;
use crate::config::Config;
use crate::failure::{Failure, Outcome};
use crate::out;
use crate::table::{Side, Width, render, wrapped};

/// The configuration of the service that a package installs.
const PACKAGED: &str = "/etc/crossdock/crossdock.toml";

/// Prints the findings.
pub(crate) fn run(arguments: &Check) -> Outcome {
    let file = configuration(arguments.config.as_deref(), Path::new(PACKAGED));
    let config = match &file {
        Some(path) => Config::read(path)?,
        None => Config::default(),
    };
    if let (Some(file), None) = (&file, &arguments.config) {
        let file = file.display();
        out::say(format_args!("checking for the installed service's configuration, {file}; --config names another"));
    }
    let directory = file.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
    let wanted = Wanted { file: file.clone(), ..Wanted::of(&config, directory) };
    let findings = findings(&Machine::read(&wanted), &wanted);
    match arguments.json {
        true => findings.iter().try_for_each(out::print_json)?,
        false => out::print(text(&findings, Width::of_stdout()))?,
    }
    match findings.iter().filter(|finding| finding.verdict == Verdict::Problem).count() {
        0 => Ok(()),
        number => {
            let names: Vec<&str> =
                findings.iter().filter(|found| found.verdict == Verdict::Problem).map(|found| found.item).collect();
            let word = if number == 1 { "problem" } else { "problems" };
            Err(Failure::failed(format!("{number} {word}: {}", names.join(", ")))
                .hint("each is listed above with its command; run `crossdock check` again afterwards"))
        }
    }
}

/// The file to check for: the one that was given, else that of an installed package, if there is one.
fn configuration(given: Option<&Path>, packaged: &Path) -> Option<PathBuf> {
    given.or_else(|| packaged.exists().then_some(packaged)).map(Path::to_owned)
}

/// All findings, in the order in which they are shown.
fn findings(machine: &Machine, wanted: &Wanted) -> Vec<Finding> {
    let parts = [
        place::findings(machine, wanted),
        tables::findings(machine),
        network::findings(machine, wanted),
        memory::findings(machine, wanted),
        cores::findings(machine, wanted),
        limits::findings(machine, wanted),
    ];
    parts.concat()
}

/// The table, and under it what is to be done.
fn text(findings: &[Finding], width: Width) -> String {
    let headings = [("item", Side::Left), ("found", Side::Left), ("wanted", Side::Left), ("verdict", Side::Left)];
    let row = |finding: &Finding| {
        vec![finding.item.to_owned(), finding.found.clone(), finding.wanted.clone(), finding.verdict.to_string()]
    };
    let mut text = render(&headings, findings.iter().map(row), width);
    for finding in findings.iter().filter(|finding| finding.verdict != Verdict::Ok) {
        text.push('\n');
        text.push_str(&wrapped(&format!("{} ({}): {}", finding.item, finding.verdict, finding.why), 0));
        // Commands stay on one line, so that they can be copied.
        text.extend(finding.command.iter().flat_map(|command| ["    ", command, "\n"]));
        if let Some((file, line)) = finding.lasting.as_ref().and_then(|lasting| lasting.split_once(": ")) {
            text.extend(["  to make it last, in ", file, ":\n    ", line, "\n"]);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::machine::{Limit, Offload, PathState};
    use super::*;
    use std::collections::BTreeMap;

    /// The needs of the default configuration.
    pub(super) fn wanted() -> Wanted {
        Wanted::of(&Config::default(), Path::new(""))
    }

    /// A machine that says nothing, and on which everything can be done.
    pub(super) fn machine() -> Machine {
        let none = Limit { soft: u64::MAX, hard: u64::MAX };
        Machine {
            status: None,
            meminfo: None,
            release: "6.8.0".to_owned(),
            files: none,
            locked: none,
            nice: none,
            settings: BTreeMap::new(),
            cpus: None,
            quota: None,
            room_bytes: None,
            siblings: BTreeMap::new(),
            governors: BTreeMap::new(),
            memfd: Ok(()),
            udp: Ok(Offload { gso: true, gro: true }),
            offload: Ok(Offload { gso: true, gro: true }),
            http: None,
            control: PathState::Absent,
            attach: Some(Ok(PathState::Absent)),
            state: None,
            tables: Vec::new(),
            running: None,
        }
    }

    #[test]
    fn an_installed_packages_configuration_is_checked_unless_another_is_given() {
        let manifest = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/crossdock.example.toml"));
        let (given, none) = (Path::new("own.toml"), Path::new("/nonexistent/crossdock.toml"));
        assert_eq!(configuration(None, manifest).as_deref(), Some(manifest));
        assert_eq!(configuration(Some(given), manifest).as_deref(), Some(given));
        assert_eq!(configuration(None, none), None);
    }

    #[test]
    fn a_machine_that_says_nothing_has_no_problem() {
        let findings = findings(&machine(), &wanted());
        assert!(findings.len() > 12);
        for finding in &findings {
            assert!(matches!(finding.verdict, Verdict::Ok | Verdict::Unknown), "{finding:?}");
            assert_eq!(finding.why.is_empty(), finding.verdict == Verdict::Ok, "{finding:?}");
        }
    }

    #[test]
    fn remedies_are_listed_under_the_table_within_80_columns() {
        let mut machine = machine();
        machine.settings.insert("/proc/sys/net/core/rmem_max", "212992\n".to_owned());
        machine.control = PathState::Missing("/run/crossdock".into());
        let text = text(&findings(&machine, &wanted()), Width::Columns(80));
        assert!(text.lines().all(|line| line.starts_with(' ') || line.chars().count() <= 80), "{text}");
        assert!(text.contains("\n    sudo sysctl -w net.core.rmem_max=4194304\n"), "{text}");
        assert!(
            text.contains("in /etc/sysctl.d/70-crossdock-local.conf:\n    net.core.rmem_max = 4194304\n"),
            "{text}"
        );
        assert!(text.contains("\ncontrol socket (problem): "), "{text}");
    }

    #[test]
    fn each_finding_is_one_object_with_all_keys() {
        let keys = ["command", "found", "item", "lasting", "verdict", "wanted", "why"];
        for finding in findings(&machine(), &wanted()) {
            let object = serde_json::to_value(&finding).unwrap();
            assert_eq!(object.as_object().unwrap().keys().collect::<Vec<_>>(), keys.iter().collect::<Vec<_>>());
        }
    }
}
