//! The layouts in `examples/layouts`: the commands of their README, run as they stand there.

use crate::place::Sandbox;

const README: &str = include_str!("../../../../examples/layouts/README.md");
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/layouts/");

/// The words of a command of the README without the program's name; the paths in it hold from the repository's root.
fn words(line: &str) -> Vec<String> {
    let line = line.strip_prefix("crossdock ").unwrap().trim_end_matches(" &");
    let quoted = line.split('"').enumerate();
    let words = quoted.flat_map(|(index, part)| match index % 2 {
        0 => part.split_whitespace().map(|word| word.replace("examples/layouts/", FOLDER)).collect(),
        _ => vec![part.to_owned()],
    });
    words.collect()
}

/// The text of the blocks of a language, in order.
fn blocks(language: &str) -> Vec<&'static str> {
    let fence = format!("```{language}\n");
    README.split(fence.as_str()).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

#[test]
fn the_commands_of_the_readme_give_what_it_shows() {
    let (place, _daemon) = Sandbox::with_daemon();
    let (commands, outputs) = (blocks("sh"), blocks("json"));
    assert_eq!((commands.len(), outputs.len()), (4, 3));
    for (commands, output) in commands.iter().zip(outputs) {
        let (subscribe, publish) = commands.trim_end().split_once('\n').unwrap();
        let subscriber = place.spawn(words(subscribe));
        place.wait_for_subscriptions(1);
        place.run(words(publish)).with_code(0);
        assert_eq!(subscriber.end().with_code(0).stdout, output);
        place.wait_for_subscriptions(0);
    }
    let explained = place.run(words(commands[3].trim_end())).with_code(0);
    let cost = "msg.book.orders: read in place, after finding its place behind fields of variable length";
    assert!(explained.stdout.contains(cost), "{}", explained.stdout);
}

/// All messages go through unchanged, and those in JSON are written as the same bytes, with the lengths that they state.
#[test]
fn messages_come_out_as_they_went_in() {
    for (stream, name) in [("ITCH", "itch"), ("MDP", "mdp3")] {
        let (place, _daemon) = Sandbox::with_daemon();
        let schema = format!("{FOLDER}{name}.layout");
        let bytes = std::fs::read(format!("{FOLDER}{name}.bin")).unwrap();
        let whole = format!("SELECT * FROM {stream}");
        let subscribe = ["subscribe", &whole, "--wait", "--until-end"];
        let same = place.spawn_into("same.bin", [&subscribe[..], &["--output", "binary"]].concat());
        let lines = place.spawn(subscribe);
        place.wait_for_subscriptions(2);
        place.run(["publish", stream, &format!("{FOLDER}{name}.bin"), "--schema", &schema]).with_code(0);
        same.end().with_code(0);
        assert_eq!(std::fs::read(place.path("same.bin")).unwrap(), bytes);
        let lines = lines.end().with_code(0).stdout;
        place.wait_for_subscriptions(0);
        // Messages of types that the layouts list, and of this version of the schema: the others have bytes that
        // no field describes, so JSON lacks them.
        let known = |line: &str| !line.contains("\"msg\":null") && !line.contains("\"version\":13");
        let messages: Vec<(&str, &[u8])> = lines.split_inclusive('\n').zip(split(&bytes, name == "itch")).collect();
        let (known, wanted): (String, Vec<u8>) = messages
            .iter()
            .filter(|(line, _)| known(line))
            .fold(Default::default(), |(lines, bytes), (line, message)| (lines + line, [&bytes[..], message].concat()));
        assert_eq!(messages.len() - known.lines().count(), if name == "itch" { 1 } else { 2 });
        place.write("known.jsonl", &known);
        let written = place.spawn_into("written.bin", [&subscribe[..], &["--output", "binary"]].concat());
        let again = place.spawn(subscribe);
        place.wait_for_subscriptions(2);
        place.run(["publish", stream, "known.jsonl", "--schema", &schema]).with_code(0);
        written.end().with_code(0);
        assert_eq!(again.end().with_code(0).stdout, known);
        assert_eq!(std::fs::read(place.path("written.bin")).unwrap(), wanted);
    }
}

/// Messages by the two bytes of length that each starts with; ITCH's do not count themselves.
fn split(mut bytes: &[u8], is_itch: bool) -> Vec<&[u8]> {
    let mut messages = Vec::new();
    while let Some(length) = bytes.first_chunk().copied() {
        let length = if is_itch { u16::from_be_bytes(length) + 2 } else { u16::from_le_bytes(length) };
        let (message, rest) = bytes.split_at(length.into());
        messages.push(message);
        bytes = rest;
    }
    messages
}
