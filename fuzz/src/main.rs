//! Hostile bytes against everything that takes them: one target a door.
//!
//! All targets are one program, so that what they have in common is compiled and linked once. The environment variable
//! `CROSSDOCK_FUZZ_TARGET` names the one that runs; `cargo xtask fuzz` sets it.
#![no_main]

mod by_schema;
mod formats;
mod guarded;
mod nested;
mod raw_side;
mod small_stack;
mod specs;
mod targets;

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

/// The table of the targets, by the names of their modules.
macro_rules! targets {
    ($($name:ident)*) => {
        const TARGETS: &[(&str, fn(&[u8]))] = &[$((stringify!($name), targets::$name::fuzz)),*];
    };
}

targets! {
    arrow_ipc avro_file avro_items binary change_requests client_greeting client_rings compose composed_records convert
    csv_decode cut_manifests envelopes format_description host_rings import_avro_schema import_json_schema import_proto items json_decode kept_handlers
    messages packet_header parquet protobuf_items records registry_log route_header saved_states session sql xml
}

static TARGET: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = std::env::var("CROSSDOCK_FUZZ_TARGET").unwrap_or_default();
    match TARGETS.iter().find(|(known, _)| *known == name) {
        Some((_, fuzz)) => *fuzz,
        None => {
            let known: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
            eprintln!("CROSSDOCK_FUZZ_TARGET is `{name}`: it names one of {}", known.join(", "));
            std::process::exit(2);
        }
    }
});

fuzz_target!(|input: &[u8]| TARGET(input));
