//! The packaged files agree with `check` and with one another.

use std::path::{Path, PathBuf};

use super::wanted::Wanted;
use crate::config::Config;
use crate::http::socket;

fn packaging() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging")
}

fn read(name: &str) -> String {
    std::fs::read_to_string(packaging().join(name)).unwrap()
}

/// The values of a key, one for each line that has it.
fn values<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    let value = |line: &'a str| line.strip_prefix(key)?.trim_start().strip_prefix('=').map(str::trim);
    text.lines().filter_map(value).collect()
}

fn wanted() -> Wanted {
    let path = packaging().join("crossdock.toml");
    Wanted::of(&Config::read(&path).unwrap_or_else(|failure| panic!("{}", failure.text())), Path::new("/etc/crossdock"))
}

#[test]
fn the_service_has_the_limits_that_its_configuration_wants() {
    let (service, wanted) = (read("systemd/crossdock.service"), wanted());
    let files: u64 = values(&service, "LimitNOFILE")[0].parse().unwrap();
    assert!(files >= wanted.files(), "{files} < {}", wanted.files());
    assert_eq!(values(&service, "LimitMEMLOCK"), ["infinity"]);
    let folder = format!("/var/lib/{}", values(&service, "StateDirectory")[0]);
    assert_eq!(wanted.context.morph.state_dir.as_deref(), Some(Path::new(&folder)));
}

#[test]
fn the_sockets_of_the_unit_are_those_of_the_configuration() {
    let (unit, wanted) = (read("systemd/crossdock.socket"), wanted());
    assert_eq!(values(&unit, "ListenStream"), [wanted.control.to_str().unwrap()]);
    assert_eq!(wanted.control, Path::new(socket::OF_SERVICE));
    assert_eq!(values(&unit, "ListenDatagram"), [wanted.context.listen.to_string()]);
    let attach = wanted.attach.unwrap().to_string();
    assert_eq!(values(&unit, "ListenSequentialPacket"), [attach.strip_prefix("unix:").unwrap()]);
    assert_eq!(values(&unit, "Accept"), ["no"]);
}

#[test]
fn the_settings_of_the_kernel_are_those_that_are_advised() {
    let (settings, wanted) = (read("sysctl/60-crossdock.conf"), wanted());
    for key in ["net.core.rmem_max", "net.core.wmem_max"] {
        assert_eq!(values(&settings, key), [wanted.context.socket_buffer_bytes.to_string()], "{key}");
    }
}
