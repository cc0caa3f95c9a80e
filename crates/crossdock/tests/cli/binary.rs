//! Records as bytes: layouts of other programs, in and out unchanged, queried in place, and to and from other encodings.

use crate::place::{Sandbox, TRANSPORTS};

/// Messages as an exchange sends them.
const FEED: &str = "\
layout foreign big packed size variant
type   char[1]
flags  u8
time   timestamp size 6 unit ns
venue  u16 null unless bit 0 of flags
msg    union on type {
  'A' => add record { ref u64; shares u32; stock char[8] pad space }
  'D' 'X' => delete record { ref u64 }
}
";

/// The bytes before a message: its type, the flags, the time, the venue.
fn head(kind: u8, venue: u16) -> Vec<u8> {
    let mut bytes = vec![kind, u8::from(venue > 0), 0, 0, 0, 0, 1, 2];
    bytes.extend_from_slice(&venue.to_be_bytes());
    bytes
}

fn add(number: u64, shares: u32, stock: &[u8; 8]) -> Vec<u8> {
    [head(b'A', 7), number.to_be_bytes().to_vec(), shares.to_be_bytes().to_vec(), stock.to_vec()].concat()
}

fn delete(kind: u8, number: u64) -> Vec<u8> {
    [head(kind, 0), number.to_be_bytes().to_vec()].concat()
}

fn feed() -> Vec<u8> {
    [add(1, 300, b"ACME    "), delete(b'D', 9), add(2, 20, b"WIDGETCO"), delete(b'D', 1)].concat()
}

/// The same in JSON; what follows from the rest is left out.
const LINES: &str = r#"{"time":"1970-01-01T00:00:00.000000258Z","venue":7,"msg":{"add":{"ref":1,"shares":300,"stock":"ACME"}}}
{"time":"1970-01-01T00:00:00.000000258Z","msg":{"delete":{"ref":9}}}
{"time":"1970-01-01T00:00:00.000000258Z","venue":7,"msg":{"add":{"ref":2,"shares":20,"stock":"WIDGETCO"}}}
{"time":"1970-01-01T00:00:00.000000258Z","msg":{"delete":{"ref":1}}}
"#;

#[test]
fn a_feed_goes_through_as_it_is_and_is_queried_in_place() {
    for way in TRANSPORTS {
        let (place, _daemon) = Sandbox::with_daemon();
        let place = place.by(way);
        place.write("feed.layout", FEED);
        place.write("feed.bin", feed());
        place.write("feed.jsonl", LINES);
        for input in ["feed.bin", "feed.jsonl"] {
            let wait = ["--wait", "--until-end"];
            let whole = place
                .spawn_into("whole.bin", [&["subscribe", "SELECT * FROM F", "--output", "binary"][..], &wait].concat());
            let sql = "SELECT msg.add.stock AS stock, venue, msg.add.shares * 2 AS twice FROM F WHERE type = 'A'";
            let some = place.spawn([&["subscribe", sql][..], &wait].concat());
            let shown = place.spawn([&["subscribe", "SELECT * FROM F WHERE msg.delete.ref = 9"][..], &wait].concat());
            place.wait_for_subscriptions(3);
            place.run(["publish", "F", input, "--schema", "feed.layout"]).with_code(0).saying(&["published 4 records"]);
            whole.end().with_code(0).saying(&["4 records ("]);
            assert_eq!(std::fs::read(place.path("whole.bin")).unwrap(), feed(), "{input}");
            let rows =
                "{\"stock\":\"ACME\",\"venue\":7,\"twice\":600}\n{\"stock\":\"WIDGETCO\",\"venue\":7,\"twice\":40}\n";
            assert_eq!(some.end().with_code(0).stdout, rows, "{input}");
            let row = "{\"type\":\"D\",\"flags\":0,\"time\":\"1970-01-01T00:00:00.000000258Z\",\"venue\":null,\
                       \"msg\":{\"delete\":{\"ref\":9}}}\n";
            assert_eq!(shown.end().with_code(0).stdout, row, "{input}");
            place.wait_for_subscriptions(0);
        }
        let explained = place.run(["explain", "SELECT msg.add.stock FROM F WHERE type = 'A'"]).with_code(0);
        let cost = "msg.add.stock: read in place, after reading the field that selects the variant";
        assert!(explained.stdout.contains(cost), "{}", explained.stdout);
    }
}

#[test]
fn wrong_records_are_reported_with_their_number_place_and_field() {
    let (place, _daemon) = Sandbox::with_daemon();
    place.write("slots.layout", "layout foreign little packed length len +0\nlen u8\nname string slot u8 u8\n");
    // The second says that its name lies beyond its end.
    place.write("slots.bin", b"\x05\x03\x02ab\x05\x03\x09cd\x03\x03\x00");
    let publish = ["publish", "S", "slots.bin", "--schema", "slots.layout"];
    let words = ["slots.bin: item 2, byte 5, field `name`"];
    place.run(publish).with_code(1).saying(&words);
    let skipped = place.run(publish.into_iter().chain(["--on-error", "skip"])).with_code(0);
    skipped.saying(&["skipped: item 2, byte 5, field `name`", "published 2 records", "skipped 1 row"]);
    // A length that nobody has: what follows is not to be found.
    place.write("none.bin", b"\x05\x03\x02ab\x00\x03\x00\x03\x03\x00");
    let skipped = place.run(["publish", "S", "none.bin", "--schema", "slots.layout", "--on-error", "skip"]);
    skipped.with_code(1).saying(&["none.bin: item 2, byte 5", "length cannot be read", "published 1 record "]);
    place.write("cut.bin", b"\x05\x03\x02ab\x05\x03");
    let cut = place.run(["publish", "S", "cut.bin", "--schema", "slots.layout"]);
    cut.with_code(1).saying(&["cut.bin: item 2, byte 5: the input ends in the middle of it"]);
    place.run(["publish", "S", "cut.bin"]).with_code(2).saying(&["cut.bin: binary needs a schema", "--schema"]);
}

#[test]
fn rows_that_a_layout_has_no_room_for_are_refused_with_the_field() {
    let (place, _daemon) = Sandbox::with_daemon();
    place.write("feed.layout", FEED);
    place.write("feed.jsonl", LINES.replace("ACME", "A stock of this name"));
    let publish = ["publish", "F", "feed.jsonl", "--schema", "feed.layout"];
    place.run(publish).with_code(1).saying(&["feed.jsonl: ", "line 1, field `msg.add.stock`", "at most 8 bytes"]);
    place.write("feed.jsonl", LINES.replace("{\"time\"", "{\"type\":\"X\",\"time\""));
    place.run(publish).with_code(1).saying(&["feed.jsonl: item 1, field `type`: found a value that speaks of another"]);
}

#[test]
fn a_text_that_is_no_utf8_costs_its_record_and_not_the_subscriber() {
    let (place, _daemon) = Sandbox::with_daemon();
    place.write("f.layout", "layout foreign big packed\nn u8\nt char[2]\n");
    place.write("f.bin", b"\x01ab\x02\xffb\x03cd");
    let subscribe = ["subscribe", "SELECT * FROM F", "--wait", "--until-end"];
    let [skipping, two] = [&[][..], &["--limit", "2"]].map(|more| place.spawn([&subscribe[..], more].concat()));
    let stopping = place.spawn([&subscribe[..], &["--on-error", "stop"]].concat());
    place.wait_for_subscriptions(3);
    place.run(["publish", "F", "f.bin", "--schema", "f.layout"]).with_code(0);
    let rows = "{\"n\":1,\"t\":\"ab\"}\n{\"n\":3,\"t\":\"cd\"}\n";
    for subscriber in [skipping, two] {
        let ended = subscriber.end().with_code(0);
        assert_eq!(ended.stdout, rows);
        ended.saying(&["skipped: item 2, field `t`", "2 records (", "; skipped 1 record"]);
    }
    let ended = stopping.end().with_code(1);
    assert_eq!(ended.stdout, rows.split_inclusive('\n').next().unwrap());
    ended.saying(&["cannot write a record: item 2, field `t`", "--on-error skip"]);
}
