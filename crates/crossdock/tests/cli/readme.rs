//! The README runs: every block of commands in it, in order, in a folder that is empty at first.

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::place::{PATIENCE, Sandbox, skip};

const README: &str = include_str!("../../../../README.md");

/// The words that the commands in a block must have printed, by a word of the block.
const PRINTED: [(&str, &str); 6] = [
    ("late.jsonl            # 1782", "1782 late.jsonl"),
    ("crossdock explain", "dep_delay / 60"),
    ("flights.parquet", "carrier"),
    ("--accept v3", "{\"carrier\":\"AA\",\"delay_s\":300}"),
    ("mailbox get answers", "hello"),
    ("/metrics", "crossdock_io_records_in_total"),
];

/// The commands of the blocks, in order.
fn blocks() -> Vec<&'static str> {
    README.split("```sh\n").skip(1).filter_map(|rest| rest.split_once("\n```").map(|(block, _)| block)).collect()
}

/// `cargo`, as far as the README needs it: what is built here already is run, and the long commands are tests of their own.
fn write_cargo(place: &Sandbox, mailbox: &Path) {
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in\n'build --release' | 'run --release -- demo airline' | 'xtask '*) ;;\n\
         *'--example mailbox -- '*) exec '{}' \"$CROSSDOCK_ADDRESS\" ;;\n*) echo \"what is cargo $*?\" >&2; exit 3 ;;\nesac\n",
        mailbox.display()
    );
    std::fs::create_dir(place.path("bin")).unwrap();
    let path = place.write("bin/cargo", script);
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn every_block_of_the_readme_runs() {
    let program = Path::new(env!("CARGO_BIN_EXE_crossdock")).parent().unwrap();
    let mailbox = program.join("examples/mailbox");
    let has_curl = Command::new("curl").arg("--version").stdout(Stdio::null()).status().is_ok_and(|it| it.success());
    if !mailbox.exists() || !has_curl {
        return skip(
            "the README's commands need curl, and the example `mailbox`, which `cargo test --workspace` builds",
        );
    }
    let place = Sandbox::new();
    write_cargo(&place, &mailbox);
    std::fs::create_dir(place.path("empty")).unwrap();
    let port = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let path = format!("{}:{}:{}", place.path("bin").display(), program.display(), std::env::var("PATH").unwrap());
    assert_eq!(blocks().len(), 10, "the README has more blocks, or fewer");
    for block in blocks() {
        let seconds = PATIENCE.as_secs().to_string();
        let mut command = Command::new("timeout");
        command
            .args(["--foreground", &seconds, "bash", "-eu", "-o", "pipefail", "-c", block])
            .current_dir(place.path("empty"));
        command.env("PATH", &path).env("CROSSDOCK_ADDRESS", format!("127.0.0.1:{port}"));
        command.env("CROSSDOCK_SOCKET", place.socket()).stdin(Stdio::null()).process_group(0);
        // Files, since a daemon that a failed block leaves would keep pipes open.
        let [stdout, stderr] = ["stdout", "stderr"].map(|name| place.path(name));
        command.stdout(File::create(&stdout).unwrap()).stderr(File::create(&stderr).unwrap());
        let mut child = command.spawn().unwrap();
        let status = child.wait().unwrap();
        let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
        let [stdout, stderr] = [stdout, stderr].map(|path| std::fs::read_to_string(path).unwrap());
        assert!(status.success(), "{status}:\n{block}\n--- stdout\n{stdout}\n--- stderr\n{stderr}");
        for (_, text) in PRINTED.iter().filter(|(word, _)| block.contains(word)) {
            assert!(stdout.contains(text), "no `{text}` of\n{block}\n--- stdout\n{stdout}\n--- stderr\n{stderr}");
        }
    }
}
