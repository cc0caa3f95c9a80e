//! The example as two processes.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_telemetry");

#[test]
fn readings_pass_between_two_programs_beside_their_calls() {
    let mut listening = Command::new(PROGRAM).arg("listen").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(listening.stdout.take().unwrap()).lines();
    let address = lines.next().unwrap().unwrap();
    let sent = Command::new(PROGRAM).args(["send", &address, "200"]).output().unwrap();
    let said = String::from_utf8(sent.stdout).unwrap();
    assert!(sent.status.success(), "{said}{}", String::from_utf8_lossy(&sent.stderr));
    // The session is over, and so is the program that listens.
    let readings: Vec<(u32, String)> = lines
        .map(|line| {
            let line = line.unwrap();
            let (number, reading) = line.split_once(' ').unwrap();
            (number.parse().unwrap(), reading.to_owned())
        })
        .collect();
    assert!(listening.wait().unwrap().success());
    assert!(readings.len() >= 200, "{said}{}", readings.len());
    assert!(readings.is_sorted_by(|(before, _), (after, _)| before < after), "{readings:?}");
    for (number, reading) in &readings {
        assert_eq!(*reading, format!("{} hPa", 1000 + number % 50));
    }
    let counts: Vec<u32> = said.split(|c: char| !c.is_ascii_digit()).filter_map(|count| count.parse().ok()).collect();
    let [sent, end, delivered, late] = counts[..] else { panic!("{said}") };
    assert!(end <= sent && delivered + late <= end && delivered >= 200, "{said}");
}

#[test]
fn wrong_arguments_are_refused_with_the_right_ones() {
    let refused = Command::new(PROGRAM).arg("send").output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8(refused.stderr).unwrap().contains("telemetry send ADDRESS COUNT"));
}
