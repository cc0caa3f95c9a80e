//! Paths that the daemon makes sockets and files at, and the kernel's version.

use std::fmt::Display;
use std::io::ErrorKind;
use std::path::Path;

use crossdock_mailbox::attach::AttachAddr;

use super::finding::Finding;
use super::machine::{Machine, PathState, Tried};
use super::wanted::Wanted;

/// The first kernel with all that is needed: memory that others can be kept from writing (`F_SEAL_FUTURE_WRITE`).
const OLDEST_KERNEL: (u32, u32) = (5, 1);

/// The findings.
pub(super) fn findings(machine: &Machine, wanted: &Wanted) -> Vec<Finding> {
    let control = socket("control socket", &wanted.control, &machine.control, machine.running.is_some(), wanted);
    let mut findings = vec![kernel(&machine.release), control];
    if let (Some(address), Some(tried)) = (&wanted.attach, &machine.attach) {
        findings.push(attach(address, tried, machine, wanted));
    }
    if let (Some(folder), Some(place)) = (&wanted.context.morph.state_dir, &machine.state) {
        findings.push(state(folder, place, wanted));
    }
    findings
}

fn kernel(release: &str) -> Finding {
    let (major, minor) = OLDEST_KERNEL;
    let wanted = format!("{major}.{minor} or later");
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    let (Some(Ok(found_major)), Some(Ok(found_minor))) = (numbers.next(), numbers.next()) else {
        return Finding::unknown("kernel", wanted, format_args!("the release `{release}` has no number"));
    };
    let finding = Finding::ok("kernel", release, wanted);
    match (found_major, found_minor) < OLDEST_KERNEL {
        true => finding.problem("memory cannot be shared with processes so that they can only read it"),
        false => finding,
    }
}

fn socket(item: &'static str, path: &Path, place: &PathState, is_running: bool, wanted: &Wanted) -> Finding {
    let shown = path.display().to_string();
    match place {
        // The kernel's bound, with the zero byte behind the path.
        _ if path.as_os_str().len() > 107 => Finding::ok(item, "too long", "107 bytes")
            .problem(format_args!("a socket cannot have a path of more than 107 bytes: {shown}")),
        PathState::Usable if is_running => Finding::ok(item, "used by the daemon", shown),
        PathState::Usable => Finding::ok(item, "left behind", shown),
        PathState::Absent => Finding::ok(item, "free", shown),
        PathState::Taken => Finding::ok(item, "no socket", shown)
            .problem("something else has that name, and the daemon does not remove it")
            .command(format_args!("ls -ld {}", path.display())),
        // systemd, or another user's daemon, may write where this user may not.
        _ if is_running => Finding::ok(item, "used by the daemon", shown),
        PathState::Foreign(user) => foreign(item, shown, user, wanted),
        PathState::Refused(folder) => refused(Finding::ok(item, "refused", shown), folder),
        PathState::Missing(folder) => missing(Finding::ok(item, "refused", shown), folder),
    }
}

/// The place of another user's daemon: only that user can check it.
fn foreign(item: &'static str, shown: impl Display, user: &str, wanted: &Wanted) -> Finding {
    let why =
        format_args!("it belongs to the user {user}, which is right if the daemon runs as {user}; check as that user");
    let finding = Finding::unknown(item, shown, why);
    Finding { found: format!("user {user}"), ..finding }.command(wanted.check_as(user))
}

/// An address in use, where another user's daemon has the sockets' places.
pub(super) fn foreign_address(item: &'static str, shown: impl Display, user: &str, wanted: &Wanted) -> Finding {
    let why = format!("it is in use, most likely by the daemon of the user {user}; check as that user");
    Finding { why, ..foreign(item, shown, user, wanted) }
}

/// A folder that is there and may not be written to, as a problem.
fn refused(finding: Finding, folder: &Path) -> Finding {
    let folder = folder.display();
    finding
        .problem(format_args!(
            "this user cannot create a file in {folder}: run the daemon as a user who can, or set another path"
        ))
        .command(format_args!("ls -ld {folder}"))
}

/// A folder that is not there and cannot be made, as a problem.
fn missing(finding: Finding, folder: &Path) -> Finding {
    let folder = folder.display();
    finding
        .problem(format_args!("{folder} does not exist, and this user cannot create it"))
        .command(format_args!("sudo install -d -o \"$(id -un)\" -m 0750 {folder}"))
        .lasting("/etc/tmpfiles.d/60-crossdock.conf", format_args!("d {folder} 0750 crossdock crossdock"))
}

fn attach(address: &AttachAddr, tried: &Tried<PathState>, machine: &Machine, wanted: &Wanted) -> Finding {
    let item = "attach socket";
    let is_running = machine.running == Some(wanted.context.listen);
    match (address, tried, machine.other_user()) {
        (AttachAddr::Path(path), Ok(place), _) => socket(item, path, place, is_running, wanted),
        (_, Ok(_), _) => Finding::ok(item, "free", address),
        (_, Err((ErrorKind::AddrInUse, _)), _) if is_running => Finding::ok(item, "used by the daemon", address),
        (_, Err((ErrorKind::AddrInUse, _)), Some(user)) => foreign_address(item, address, user, wanted),
        (_, Err((ErrorKind::AddrInUse, _)), None) => Finding::ok(item, "in use", address)
            .problem("another program has that name; end it, or set another `address` in [attach]")
            .command("sudo ss -xlp | grep crossdock-shm"),
        (_, Err((_, why)), _) => Finding::ok(item, "refused", address).problem(why),
    }
}

fn state(folder: &Path, place: &PathState, wanted: &Wanted) -> Finding {
    let (item, shown) = ("state_dir", folder.display().to_string());
    match place {
        PathState::Usable => Finding::ok(item, "writable", shown),
        PathState::Absent => Finding::ok(item, "to be made", shown),
        PathState::Taken => Finding::ok(item, "no folder", shown)
            .problem("something else has that name; set another `state_dir` in [morph]")
            .command(format_args!("ls -ld {}", folder.display())),
        PathState::Foreign(user) => foreign(item, shown, user, wanted),
        PathState::Refused(_) => refused(Finding::ok(item, "refused", shown), folder),
        PathState::Missing(_) => missing(Finding::ok(item, "refused", shown), folder),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict;
    use super::super::network;
    use super::super::tests::{machine, wanted};
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn an_old_kernel_is_a_problem_and_a_strange_one_unknown() {
        for (release, verdict) in [
            ("6.8.0-45-generic", Verdict::Ok),
            ("5.1", Verdict::Ok),
            ("5.0.21", Verdict::Problem),
            ("4.19.0-27-amd64", Verdict::Problem),
            ("10.0", Verdict::Ok),
            ("", Verdict::Unknown),
            ("five.one", Verdict::Unknown),
        ] {
            assert_eq!(kernel(release).verdict, verdict, "{release}");
        }
    }

    fn packaged() -> Wanted {
        Wanted { file: Some("/etc/crossdock/crossdock.toml".into()), ..wanted() }
    }

    #[test]
    fn places_of_sockets_and_folders() {
        let folder = PathBuf::from("/run/crossdock");
        let path = folder.join("control.sock");
        let finding = |place, running| socket("control socket", &path, &place, running, &packaged());
        for (place, running, verdict) in [
            (PathState::Absent, false, Verdict::Ok),
            (PathState::Usable, false, Verdict::Ok),
            (PathState::Usable, true, Verdict::Ok),
            (PathState::Refused(folder.clone()), true, Verdict::Ok),
            (PathState::Foreign("crossdock".to_owned()), true, Verdict::Ok),
            (PathState::Foreign("crossdock".to_owned()), false, Verdict::Unknown),
            (PathState::Taken, false, Verdict::Problem),
            (PathState::Refused(folder.clone()), false, Verdict::Problem),
            (PathState::Missing(folder.clone()), false, Verdict::Problem),
        ] {
            assert_eq!(finding(place.clone(), running).verdict, verdict, "{place:?} {running}");
        }
        let command = finding(PathState::Missing(folder.clone()), false).command;
        assert_eq!(command.as_deref(), Some("sudo install -d -o \"$(id -un)\" -m 0750 /run/crossdock"));
        let long = PathBuf::from("x".repeat(108));
        let finding = socket("control socket", &long, &PathState::Absent, false, &packaged());
        assert_eq!(finding.verdict, Verdict::Problem);
        assert_eq!(state(&folder, &PathState::Absent, &packaged()).verdict, Verdict::Ok);
        let finding = state(&folder, &PathState::Refused(folder.clone()), &packaged());
        assert_eq!((finding.verdict, finding.command.as_deref()), (Verdict::Problem, Some("ls -ld /run/crossdock")));
        assert_eq!(finding.lasting, None, "a folder that is there keeps its owner");
    }

    #[test]
    fn the_daemon_of_another_user_is_to_be_checked_as_that_user() {
        let mut wanted = packaged();
        wanted.context.morph.state_dir = Some("/var/lib/crossdock".into());
        let other = || PathState::Foreign("crossdock".to_owned());
        let in_use = || (ErrorKind::AddrInUse, String::new());
        let machine = Machine {
            control: other(),
            state: Some(other()),
            attach: Some(Err(in_use())),
            udp: Err(in_use()),
            ..machine()
        };
        for item in ["control socket", "attach socket", "state_dir", "UDP address"] {
            let findings = [findings(&machine, &wanted), network::findings(&machine, &wanted)].concat();
            let finding = findings.iter().find(|finding| finding.item == item).unwrap();
            assert_eq!(finding.verdict, Verdict::Unknown, "{finding:?}");
            let command = "sudo -u crossdock crossdock check --config /etc/crossdock/crossdock.toml";
            assert_eq!(finding.command.as_deref(), Some(command), "{item}");
        }
        assert_eq!(wanted.check_as("#61184").split(" --").next(), Some("sudo -u '#61184' crossdock check"));
    }

    #[test]
    fn a_name_that_another_has_is_a_problem_unless_that_is_the_daemon() {
        let address = AttachAddr::Abstract("crossdock-shm-127.0.0.1:7440".to_owned());
        let in_use = Err((ErrorKind::AddrInUse, String::new()));
        let running = Machine { running: Some(wanted().context.listen), ..machine() };
        for (tried, machine, verdict) in [
            (Ok(PathState::Absent), machine(), Verdict::Ok),
            (in_use.clone(), running, Verdict::Ok),
            (in_use, machine(), Verdict::Problem),
        ] {
            assert_eq!(attach(&address, &tried, &machine, &wanted()).verdict, verdict, "{tried:?}");
        }
    }
}
