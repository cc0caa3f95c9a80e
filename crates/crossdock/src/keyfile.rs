//! Files with keys: a private key, which only its user may read, and a list of authorised public keys.

use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use crossdock_nectarine::PrivateKey;
use crossdock_runtime::AuthorizedKeys;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::failure::{Failure, Outcome};

/// Reads a private key from a file that not everybody may read.
///
/// # Errors
/// It cannot be read, is not kept secret, or is no key; and what would correct it.
pub(crate) fn read_private(path: &Path) -> Outcome<PrivateKey> {
    let refused = |why: String| Failure::usage(format!("cannot use the key in {}: {why}", path.display()));
    let makes = || format!("`crossdock keygen --output {}` makes one", path.display());
    if let Some(others) = access_of_others(path).map_err(|error| refused(error.to_string()).hint(makes()))? {
        return Err(refused(others)
            .hint(format!("`chmod 600 {}`, and make another key if this one may be known", path.display())));
    }
    let text = std::fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
    PrivateKey::of_file(&text).map_err(refused)
}

/// Others than a file's owner who have access to it, in a sentence.
///
/// # Errors
/// There is no such file, or it is not to be seen.
pub(crate) fn access_of_others(path: &Path) -> io::Result<Option<String>> {
    let there = std::fs::metadata(path)?;
    let mode = there.mode() & 0o777;
    // The superuser, who looks at it for the service, has no group in common with it.
    let is_own_group = there.gid() == rustix::process::getegid().as_raw() || rustix::process::geteuid().is_root();
    let others = others_with_access(mode, is_own_group);
    Ok(others.map(|others| format!("{others} access to the file (its mode is {mode:03o})")))
}

/// Others than the file's owner who have access by its mode. A service's own group may read: so root keeps a key for the service.
fn others_with_access(mode: u32, is_own_group: bool) -> Option<&'static str> {
    if mode & 0o007 != 0 {
        return Some("every user of this machine has");
    }
    match mode & 0o070 {
        0 => None,
        0o040 if is_own_group => None,
        0o040 => Some("users of a group that is not this process's own have"),
        _ => Some("users of a group have more than reading"),
    }
}

/// Makes a private key in a new file that only this user may read.
///
/// # Errors
/// There is such a file, or the system refuses it.
pub(crate) fn make_private(path: &Path) -> Outcome<PrivateKey> {
    let key = PrivateKey::from_random(random()?);
    let shown =
        format!("`crossdock keys show {}` prints its public key; a key that is replaced is lost", path.display());
    write_secret(path, &key.to_file(), &shown)?;
    Ok(key)
}

/// Makes a token for HTTP in a new file that only this user may read.
///
/// # Errors
/// There is such a file, or the system refuses it.
pub(crate) fn make_token(path: &Path) -> Outcome {
    let digits: String = random()?.iter().map(|byte| format!("{byte:02x}")).collect();
    write_secret(path, &format!("{digits}\n"), "name another file with --output; a token that is replaced is lost")
}

fn random() -> Outcome<[u8; 32]> {
    let mut random = [0; 32];
    match getrandom(&mut random[..], GetRandomFlags::empty()) {
        Ok(32) => Ok(random),
        Ok(_) => Err(Failure::failed("the system has too few random bytes")),
        Err(error) => Err(Failure::failed(format!("cannot get random bytes: {error}"))),
    }
}

/// Writes a secret to a new file; `kept` is the hint where there is one already.
fn write_secret(path: &Path, text: &str, kept: &str) -> Outcome {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            Failure::usage(format!("there is a file {} already", path.display())).hint(kept)
        }
        _ => Failure::failed(format!("cannot write {}: {error}", path.display())),
    };
    let mut file = std::fs::File::options().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)
}

/// Reads a list of authorised keys.
///
/// # Errors
/// It cannot be read, or a line of it is no key.
pub(crate) fn read_authorized(path: &Path) -> Outcome<AuthorizedKeys> {
    let refused = |why: String| Failure::usage(format!("cannot use the keys in {}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| {
        refused(error.to_string()).hint(format!("`crossdock keys add KEY NAME --file {}` makes it", path.display()))
    })?;
    AuthorizedKeys::of_file(&text).map_err(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_key_is_its_owners_and_may_be_read_by_the_services_own_group() {
        for (mode, is_own_group, is_kept) in [
            (0o600, false, true),
            (0o400, false, true),
            (0o640, true, true),
            (0o640, false, false),
            (0o660, true, false),
            (0o604, true, false),
        ] {
            assert_eq!(others_with_access(mode, is_own_group).is_none(), is_kept, "{mode:o}");
        }
    }
}
