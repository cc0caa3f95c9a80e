//! The first views of a user: the program without arguments, the list of demos, the tour, and what help says of its
//! surroundings.

use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::place::{Process, Sandbox};
use crate::top::Terminal;

#[test]
fn without_arguments_four_commands_are_shown() {
    let shown = Sandbox::new().run::<&str>([]).with_code(0).stdout;
    let commands: Vec<&str> = shown.lines().filter_map(|line| line.strip_prefix("  crossdock ")).collect();
    assert_eq!(commands.len(), 4, "{shown}");
    for (line, word) in commands.iter().zip(["tour ", "serve ", "subscribe ", "demo flights | crossdock publish "]) {
        assert!(line.starts_with(word), "{shown}");
    }
    assert!(shown.ends_with("crossdock --help for all commands.\n") && shown.lines().count() <= 10, "{shown}");
    // In this order, they show records; the daemon is the test's.
    let (place, _daemon) = Sandbox::with_configured_daemon("");
    let path = Path::new(env!("CARGO_BIN_EXE_crossdock")).parent().unwrap();
    let path = format!("{}:{}", path.display(), std::env::var("PATH").unwrap());
    let start = |line: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("exec crossdock {line}")]).current_dir(place.path(".")).stdin(Stdio::null());
        let named = place.command(["subscribe"]);
        command.envs(named.get_envs().filter_map(|(name, value)| Some((name, value?)))).env("PATH", &path);
        Process::spawn(&mut command)
    };
    let subscriber = start(commands[2]);
    place.wait_for_subscriptions(1);
    let publisher = start(&format!("{} --rate 10k", commands[3]));
    let ended = subscriber.end_by_itself().with_code(0);
    assert_eq!(ended.stdout.lines().count(), 5, "{}", ended.stdout);
    drop(publisher);
}

#[test]
fn a_demo_without_a_name_lists_the_demos() {
    let place = Sandbox::new();
    let shown = place.run(["demo"]).with_code(0).stdout;
    let demos: Vec<&str> = shown.lines().collect();
    assert!(demos.len() == 3 && demos[0].starts_with("crossdock demo airline An airline's"), "{shown}");
    assert!(demos.iter().all(|line| line.chars().count() <= 80), "{shown}");
    let objects = place.run(["demo", "--json"]).with_code(0).json();
    assert_eq!((&objects[0]["name"], &objects[1]["name"]), (&"airline".into(), &"morph".into()));
}

#[test]
fn help_and_the_manual_name_the_environment_and_the_exit_statuses() {
    let place = Sandbox::new();
    let help = place.run(["--help"]).with_code(0).stdout;
    let page = place.run(["man"]).with_code(0).stdout;
    for name in ["ADDRESS", "SOCKET", "TRANSPORT", "CONFIG", "HTTP", "TOKEN_FILE", "CA", "PIN"] {
        let name = format!("CROSSDOCK_{name}");
        assert!(help.contains(&name) && page.contains(&name), "{name}");
    }
    assert!(help.contains("\n\nExit status: 0 success") && page.contains("\n.SH \"EXIT STATUS\"\n"), "{page}");
    assert!(page.contains("\n.SH ENVIRONMENT\n"), "{page}");
    place.run(["man", "--directory", "pages"]).with_code(0);
    for entry in std::fs::read_dir(place.path("pages")).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("EXIT STATUS") || path.extension().is_some_and(|part| part == "5"), "{}", path.display());
    }
}

/// The tour, with its folder in that of the test.
fn tour(place: &Sandbox, arguments: &[&str]) -> std::process::Command {
    std::fs::create_dir_all(place.path("tmp")).unwrap();
    let mut command = place.command([&["tour"], arguments].concat());
    command.env("TMPDIR", place.path("tmp"));
    command
}

#[track_caller]
fn leaves_nothing(place: &Sandbox) {
    assert_eq!(std::fs::read_dir(place.path("tmp")).unwrap().count(), 0);
}

/// The content of the recording of the tour, without colours.
fn recorded() -> String {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/tour.cast");
    let cast = std::fs::read_to_string(file).unwrap();
    let mut lines = cast.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let header = lines.next().unwrap();
    assert_eq!((&header["version"], &header["width"]), (&2.into(), &80.into()));
    let (mut text, mut at) = (String::new(), 0.0);
    for event in lines {
        let time = event[0].as_f64().unwrap();
        assert!(time >= at && event[1] == "o", "{event}");
        at = time;
        text += event[2].as_str().unwrap();
    }
    ["\x1b[1m", "\x1b[2m", "\x1b[0m", "\r"].iter().fold(text, |text, code| text.replace(code, ""))
}

#[test]
fn the_tour_runs_its_commands_and_leaves_nothing() {
    let place = Sandbox::new();
    let ended = Process::spawn(&mut tour(&place, &["--no-wait"])).end().with_code(0);
    let text = ended.stdout;
    let mut left = text.as_str();
    // Each is shown before it runs, with its output behind it.
    for wanted in [
        "(1/8) ",
        "\n$ crossdock serve &\nserving on 127.0.0.1:",
        "\n$ crossdock publish A flights.csv --rate 2k &\n",
        "\n$ crossdock subscribe ",
        "\n{\"carrier\":",
        "\n$ crossdock handler deploy late ",
        "deploy  late ",
        "\n$ crossdock subscribe --limit 5 'SELECT * FROM late'\n{\"carrier\":",
        "\n$ crossdock handler swap late ",
        "to version 2",
        "\n$ crossdock subscribe --limit 5 'SELECT * FROM late'\n{\"carrier\":",
        "\"origin\":\"JFK\"",
        "\n$ crossdock top --once\ncrossdock 127.0.0.1:",
        " handlers (1), by name ",
        "crossdock --help",
    ] {
        let at = left.find(wanted).unwrap_or_else(|| panic!("no {wanted:?} in its place:\n{text}"));
        left = &left[at + wanted.len()..];
    }
    assert_eq!(text.lines().find(|line| line.chars().count() > 80), None, "{text}");
    let recorded = recorded();
    for line in text.lines().filter(|line| line.starts_with("$ ") || line.starts_with('(')) {
        assert!(recorded.contains(line), "docs/record-tour.sh is to be run again: no {line:?} in\n{recorded}");
    }
    assert_eq!(ended.stderr.matches("5 records (").count(), 3, "{}", ended.stderr);
    leaves_nothing(&place);
}

#[test]
fn the_tour_waits_for_enter_in_a_terminal_and_ends_on_a_signal() {
    let place = Sandbox::new();
    let mut terminal = Terminal::run(&tour(&place, &[]));
    for step in 1..=3 {
        let text = terminal.wait_for(|text| text.contains(&format!("({step}/8)")) && text.trim_end().ends_with("end]"));
        assert!(!text.contains(&format!("({}/8)", step + 1)), "{text}");
        terminal.press("\n");
    }
    terminal.wait_for(|text| text.contains("(4/8)") && text.trim_end().ends_with("end]"));
    kill_process(Pid::from_child(&terminal.program), Signal::INT).unwrap();
    assert_eq!(terminal.program.wait().unwrap().code(), Some(130));
    leaves_nothing(&place);
}

#[test]
fn the_tour_ends_with_its_reader() {
    let place = Sandbox::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let ended = tour(&place, &["--no-wait"]).stdout(writer).stderr(Stdio::piped()).output().unwrap();
    assert_eq!((ended.status.code(), String::from_utf8(ended.stderr).unwrap().as_str()), (Some(0), ""));
    leaves_nothing(&place);
}
