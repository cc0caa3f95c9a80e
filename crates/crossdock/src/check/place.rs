//! Paths that the daemon makes sockets and files at, and the kernel's version.

use std::io::ErrorKind;
use std::path::Path;

use crossdock_mailbox::attach::AttachAddr;

use super::finding::Finding;
use super::machine::{Machine, Place, Tried};
use super::wanted::Wanted;

/// The first kernel with all that is needed: memory that others can be kept from writing (`F_SEAL_FUTURE_WRITE`).
const OLDEST_KERNEL: (u32, u32) = (5, 1);

/// The findings.
pub(super) fn findings(machine: &Machine, wanted: &Wanted) -> Vec<Finding> {
    let listen = wanted.context.listen;
    let is_running = machine.running.is_some();
    let mut findings =
        vec![kernel(&machine.release), socket("control socket", &wanted.control, &machine.control, is_running)];
    if let (Some(address), Some(tried)) = (&wanted.attach, &machine.attach) {
        findings.push(attach(address, tried, machine.running == Some(listen)));
    }
    if let (Some(folder), Some(place)) = (&wanted.context.morph.state_dir, &machine.state) {
        findings.push(state(folder, place));
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

fn socket(item: &'static str, path: &Path, place: &Place, is_running: bool) -> Finding {
    let shown = path.display().to_string();
    match place {
        // The kernel's bound, with the zero byte behind the path.
        _ if path.as_os_str().len() > 107 => Finding::ok(item, "too long", "107 bytes")
            .problem(format_args!("a socket cannot have a path of more than 107 bytes: {shown}")),
        Place::Usable if is_running => Finding::ok(item, "used by the daemon", shown),
        Place::Usable => Finding::ok(item, "left behind", shown),
        Place::Absent => Finding::ok(item, "free", shown),
        Place::Taken => Finding::ok(item, "no socket", shown)
            .problem("something else has that name, which the daemon does not take away")
            .command(format_args!("ls -ld {}", path.display())),
        // Who passes the socket on may write where the daemon may not.
        Place::Refused(_) if is_running => Finding::ok(item, "used by the daemon", shown),
        Place::Refused(folder) => refused(Finding::ok(item, "refused", shown), folder),
    }
}

/// A folder that is not there or may not be written to, as a problem.
fn refused(finding: Finding, folder: &Path) -> Finding {
    let folder = folder.display();
    finding
        .problem(format_args!("no file can be made in {folder} by this user"))
        .command(format_args!("sudo install -d -o \"$(id -un)\" -m 0750 {folder}"))
        .lasting("/etc/tmpfiles.d/60-crossdock.conf", format_args!("d {folder} 0750 crossdock crossdock"))
}

fn attach(address: &AttachAddr, tried: &Tried<Place>, is_running: bool) -> Finding {
    let item = "attach socket";
    match (address, tried) {
        (AttachAddr::Path(path), Ok(place)) => socket(item, path, place, is_running),
        (_, Ok(_)) => Finding::ok(item, "free", address),
        (_, Err((ErrorKind::AddrInUse, _))) if is_running => Finding::ok(item, "used by the daemon", address),
        (_, Err((ErrorKind::AddrInUse, _))) => Finding::ok(item, "in use", address)
            .problem("another program has that name; end it, or set another `address` in [attach]")
            .command("sudo ss -xlp | grep crossdock-shm"),
        (_, Err((_, why))) => Finding::ok(item, "refused", address).problem(why),
    }
}

fn state(folder: &Path, place: &Place) -> Finding {
    let (item, shown) = ("state_dir", folder.display().to_string());
    match place {
        Place::Usable => Finding::ok(item, "writable", shown),
        Place::Absent => Finding::ok(item, "to be made", shown),
        Place::Taken => Finding::ok(item, "no folder", shown)
            .problem("something else has that name; set another `state_dir` in [morph]")
            .command(format_args!("ls -ld {}", folder.display())),
        Place::Refused(_) => refused(Finding::ok(item, "refused", shown), folder),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict;
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

    #[test]
    fn places_of_sockets_and_folders() {
        let folder = PathBuf::from("/run/crossdock");
        let path = folder.join("control.sock");
        for (place, running, verdict) in [
            (Place::Absent, false, Verdict::Ok),
            (Place::Usable, false, Verdict::Ok),
            (Place::Usable, true, Verdict::Ok),
            (Place::Refused(folder.clone()), true, Verdict::Ok),
            (Place::Taken, false, Verdict::Problem),
            (Place::Refused(folder.clone()), false, Verdict::Problem),
        ] {
            assert_eq!(socket("control socket", &path, &place, running).verdict, verdict, "{place:?} {running}");
        }
        let finding = socket("control socket", &path, &Place::Refused(folder.clone()), false);
        assert_eq!(finding.command.as_deref(), Some("sudo install -d -o \"$(id -un)\" -m 0750 /run/crossdock"));
        let long = PathBuf::from("x".repeat(108));
        assert_eq!(socket("control socket", &long, &Place::Absent, false).verdict, Verdict::Problem);
        assert_eq!(state(&folder, &Place::Absent).verdict, Verdict::Ok);
        assert_eq!(state(&folder, &Place::Refused(folder.clone())).verdict, Verdict::Problem);
    }

    #[test]
    fn a_name_that_another_has_is_a_problem_unless_that_is_the_daemon() {
        let address = AttachAddr::Abstract("crossdock-shm-127.0.0.1:7440".to_owned());
        let in_use = Err((ErrorKind::AddrInUse, String::new()));
        assert_eq!(attach(&address, &Ok(Place::Absent), false).verdict, Verdict::Ok);
        assert_eq!(attach(&address, &in_use, true).verdict, Verdict::Ok);
        assert_eq!(attach(&address, &in_use, false).verdict, Verdict::Problem);
    }
}
