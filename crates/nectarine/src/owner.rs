//! Whether the process that answers at a daemon's attach address is the daemon.
//!
//! The address follows from the daemon's UDP address, and any user of the machine may take the name while no daemon has it. So a
//! process that derived the address accepts an answer of its own user, of root, and of the user whose socket has the UDP port. An
//! attach address that was given by name is the caller's choice, and is not checked.

use std::fs;

/// Where the kernel lists the UDP sockets of this network name space, with their users.
const TABLES: [&str; 2] = ["/proc/net/udp", "/proc/net/udp6"];

/// Accepts a daemon of user `uid` at UDP port `port`, or gives the reason to refuse it.
///
/// # Errors
/// The reason, in words.
pub(crate) fn check(uid: u32, port: u16) -> Result<(), String> {
    let own = rustix::process::geteuid().as_raw();
    // The usual case costs no look at the tables.
    if is_trusted(uid, own) {
        return Ok(());
    }
    let tables: Vec<String> = TABLES.iter().filter_map(|table| fs::read_to_string(table).ok()).collect();
    if tables.iter().any(|table| has_port(table, port, uid)) {
        return Ok(());
    }
    Err(format!(
        "a process of user id {uid} answers at the attach address of UDP port {port}, and the port is not that user's: it is not \
         the daemon"
    ))
}

fn is_trusted(uid: u32, own: u32) -> bool {
    uid == own || uid == 0
}

/// Whether a table of UDP sockets (proc(5), `/proc/net/udp`) lists one at `port` that belongs to user `uid`.
fn has_port(table: &str, port: u16, uid: u32) -> bool {
    table.lines().skip(1).any(|line| {
        let mut columns = line.split_ascii_whitespace().skip(1);
        let local = columns.next().and_then(|local| local.rsplit_once(':'));
        let of = columns.nth(5).and_then(|uid| uid.parse().ok());
        local.and_then(|(_, port)| u16::from_str_radix(port, 16).ok()) == Some(port) && of == Some(uid)
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that fails may panic
mod tests {
    use super::*;

    const TABLE: &str = "\
   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
  123: 0100007F:1D10 00000000:0000 07 00000000:00000000 00:00000000 00000000   990        0 20481 2 0000000000000000 0
  124: 00000000:0044 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 20482 2 0000000000000000 0
  125: short
";

    #[test]
    fn a_port_belongs_to_the_user_of_its_socket() {
        assert!(has_port(TABLE, 7440, 990));
        assert!(has_port(TABLE, 68, 0));
        for (port, uid) in [(7440, 0), (68, 990), (7441, 990), (0, 0)] {
            assert!(!has_port(TABLE, port, uid), "{port} {uid}");
        }
        for text in ["", "\n\n", "a\nb c d e f g h i j\n"] {
            assert!(!has_port(text, 7440, 990));
        }
        assert!(is_trusted(0, 7) && is_trusted(7, 7) && !is_trusted(8, 7));
    }

    #[test]
    fn the_kernels_table_lists_the_sockets_of_this_user() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let (port, own) = (socket.local_addr().unwrap().port(), rustix::process::geteuid().as_raw());
        assert!(has_port(&fs::read_to_string(TABLES[0]).unwrap(), port, own));
        check(own, port).unwrap();
        let refused = check(own.wrapping_add(1).max(1), port).unwrap_err();
        assert!(refused.contains("not the daemon"), "{refused}");
    }
}
