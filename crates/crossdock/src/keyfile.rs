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
    let mode = std::fs::metadata(path).map_err(|error| refused(error.to_string()).hint(makes()))?.mode() & 0o7777;
    if mode & 0o007 != 0 {
        return Err(refused(format!("every user of this machine has access to the file (its mode is {mode:03o})"))
            .hint(format!("`chmod 600 {}`, and make another key if this one may be known", path.display())));
    }
    let text = std::fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
    PrivateKey::of_file(&text).map_err(refused)
}

/// Makes a private key in a new file that only this user may read.
///
/// # Errors
/// There is such a file, or the system refuses it.
pub(crate) fn make_private(path: &Path) -> Outcome<PrivateKey> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::AlreadyExists => Failure::usage(format!("there is a file {} already", path.display())).hint(
            format!("`crossdock keys show {}` prints its public key; a key that is replaced is lost", path.display()),
        ),
        _ => Failure::failed(format!("cannot write {}: {error}", path.display())),
    };
    let mut random = [0; 32];
    let filled = getrandom(&mut random[..], GetRandomFlags::empty());
    if filled.map_err(|error| failed(error.into()))? < random.len() {
        return Err(Failure::failed("the system has too few random bytes"));
    }
    let key = PrivateKey::from_random(random);
    let mut file = std::fs::File::options().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
    file.write_all(key.to_file().as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    Ok(key)
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
