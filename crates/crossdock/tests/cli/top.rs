//! `crossdock top` in a terminal of its own.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::place::{Daemon, PATIENCE, Sandbox, io_count};

const COLUMNS: usize = 80;
const ROWS: usize = 24;

/// A program in a terminal, and what stands on its screen.
pub(crate) struct Terminal {
    pub(crate) program: Child,
    keys: File,
    output: Receiver<Vec<u8>>,
    screen: Screen,
}

impl Terminal {
    pub(crate) fn run(command: &Command) -> Terminal {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let slave =
            || -> Stdio { rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap().into() };
        let size = Winsize { ws_col: COLUMNS as u16, ws_row: ROWS as u16, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&master, size).unwrap();
        // In a session of its own, so that the terminal of whoever runs the test is not its.
        let mut alone = Command::new("setsid");
        alone.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => alone.env(name, value),
                None => alone.env_remove(name),
            };
        }
        if let Some(directory) = command.get_current_dir() {
            alone.current_dir(directory);
        }
        let program = alone.stdin(slave()).stdout(slave()).stderr(slave()).spawn().unwrap();
        let keys = File::from(master);
        let mut reader = keys.try_clone().unwrap();
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // An error is the end: the other side is closed.
            while let Ok(length @ 1..) = reader.read(&mut bytes) {
                if sender.send(bytes[..length].to_vec()).is_err() {
                    break;
                }
            }
        });
        Terminal { program, keys, output, screen: Screen::default() }
    }

    /// Waits until the screen's text is as wanted.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, wanted: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let text = self.screen.text();
            if wanted(&text) {
                return text;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                Ok(bytes) => self.screen.take(&bytes),
                Err(why) => panic!("{why}:\n{text}"),
            }
        }
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It has ended already, unless the test failed.
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

/// As much of a terminal as the program uses: text, places, lines that move up, and the whole screen cleared.
struct Screen {
    cells: Vec<Vec<char>>,
    row: usize,
    column: usize,
    /// Bytes of a sequence or character that has not come whole.
    rest: Vec<u8>,
}

impl Default for Screen {
    fn default() -> Screen {
        Screen { cells: vec![vec![' '; COLUMNS]; ROWS], row: 0, column: 0, rest: Vec::new() }
    }
}

impl Screen {
    fn take(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        let bytes = std::mem::take(&mut self.rest);
        let whole = match std::str::from_utf8(&bytes) {
            Ok(text) => text,
            Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap(),
        };
        let mut left = whole;
        while let Some(c) = left.chars().next() {
            if c != '\x1b' {
                self.put(c);
                left = &left[c.len_utf8()..];
                continue;
            }
            let end = left.char_indices().skip(2).find(|(_, c)| c.is_ascii_alphabetic());
            match end {
                Some((at, last)) if left[1..].starts_with('[') => {
                    self.control(&left[2..at], last);
                    left = &left[at + 1..];
                }
                None => break,
                Some(_) => left = &left[2..],
            }
        }
        self.rest = bytes[whole.len() - left.len()..].to_vec();
    }

    fn put(&mut self, c: char) {
        match c {
            '\r' => self.column = 0,
            '\n' if self.row + 1 == ROWS => {
                self.cells.remove(0);
                self.cells.push(vec![' '; COLUMNS]);
            }
            '\n' => self.row += 1,
            _ => {
                if let Some(cell) = self.cells.get_mut(self.row).and_then(|row| row.get_mut(self.column)) {
                    *cell = c;
                }
                self.column += 1;
            }
        }
    }

    fn control(&mut self, parameters: &str, last: char) {
        match (last, parameters) {
            ('H', _) => {
                let mut numbers = parameters.split(';').map(|number| number.parse().unwrap_or(1));
                let mut next = || numbers.next().unwrap_or(1_usize).max(1) - 1;
                (self.row, self.column) = (next(), next());
            }
            ('J', "2") => self.cells = Screen::default().cells,
            _ => {}
        }
    }

    fn text(&self) -> String {
        self.cells.iter().map(|row| row.iter().collect::<String>().trim_end().to_owned() + "\n").collect()
    }
}

#[test]
fn top_stays_when_the_daemon_goes_and_shows_the_next_one_s_figures() {
    let (place, daemon) = Sandbox::with_daemon();
    let mut terminal = Terminal::run(&place.command(["top"]));
    let first = daemon.address.clone();
    let contexts = format!("contexts ({})", 1 + io_count());
    terminal.wait_for(|text| text.contains(&first) && text.contains(&contexts));
    daemon.process.signal(Signal::KILL);
    assert_eq!(daemon.process.end().code, None);
    let text = terminal.wait_for(|text| text.contains("does not answer: "));
    assert!(text.contains("no daemon is running") && text.contains(&contexts), "{text}");
    // Keys are answered meanwhile.
    terminal.press("?");
    terminal.wait_for(|text| text.contains("this help"));
    terminal.press("?");
    let second = Daemon::start(&mut place.serve());
    let address = second.address.clone();
    let text = terminal.wait_for(|text| text.contains(&address) && !text.contains("does not answer"));
    assert!(!text.contains(&first), "{text}");
    // Events of the new daemon, which numbers them anew.
    place.run(["handler", "deploy", "wrong", "SELECT nothing FROM nowhere WHERE"]).with_code(1);
    terminal.wait_for(|text| text.contains(" refused"));
    terminal.press("\t\t\t");
    terminal.wait_for(|text| text.contains("subscriptions (0)") || text.contains("streams (0)"));
    terminal.press("q");
    assert!(terminal.program.wait().unwrap().success());
}

#[test]
fn drops_and_hold_backs_are_in_top_and_in_the_log() {
    let bounds = "queue_bytes = 65536\nwindow_bytes = 131072\nidle_timeout_ms = 60000\n";
    let (place, daemon) = Sandbox::with_configured_daemon(bounds);
    // More than all queues on the way hold, that between two I/O contexts included.
    place.write("many.csv", "a,b\n".to_owned() + &"123456789,987654321\n".repeat(2_000_000));
    place.write("r.schema", "a i32\nb i32\n");
    let mut terminal = Terminal::run(&place.command(["top"]));
    let publish = |stream| ["publish", stream, "many.csv", "--schema", "r.schema"];
    let dropping = place.spawn(["subscribe", "SELECT * FROM D", "--wait", "--on-overflow", "drop_oldest"]);
    let blocking = place.spawn(["subscribe", "SELECT * FROM B", "--wait"]);
    place.wait_for_subscriptions(2);
    [&dropping, &blocking].iter().for_each(|subscriber| subscriber.signal(Signal::STOP));
    place.run(publish("D")).with_code(0);
    daemon.process.stderr_line(|line| {
        line.contains("kind=\"dropped\"") && line.contains("to `D` did not get") && line.contains("queue was full")
    });
    terminal.wait_for(|text| text.contains(" dropped c-core-"));
    let held_back = place.spawn(publish("B"));
    daemon
        .process
        .stderr_line(|line| line.contains("kind=\"blocked\"") && line.contains("holds back the publishers of `B`"));
    terminal.wait_for(|text| text.contains(" blocked c-core-"));
    terminal.press("\t\t\t");
    terminal.wait_for(|text| text.contains("subscriptions (2)") && text.contains("lost"));
    blocking.signal(Signal::CONT);
    held_back.end_by_itself().with_code(0);
    terminal.press("q");
    assert!(terminal.program.wait().unwrap().success());
}
