//! The control socket's file: where it is, taking it over from a daemon that died, and taking it away again.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;

use crate::failure::{Failure, Outcome};

/// The default place of the control socket: in the user's runtime directory, or else in `/tmp` under the
/// user's number.
pub(crate) fn default_path() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
        Some(directory) if directory.is_absolute() => directory.join("crossdock.sock"),
        _ => PathBuf::from(format!("/tmp/crossdock-{}.sock", rustix::process::getuid().as_raw())),
    }
}

/// The control socket of the installed service.
pub(crate) const OF_SERVICE: &str = "/run/crossdock/control.sock";

/// The default control socket of commands: that of the user's own daemon, or that of the service if the first does not exist.
pub(crate) fn path_of_daemon() -> PathBuf {
    first_there(default_path(), Path::new(OF_SERVICE))
}

fn first_there(own: PathBuf, service: &Path) -> PathBuf {
    if std::fs::symlink_metadata(&own).is_err() && service.exists() { service.to_owned() } else { own }
}

/// The identity of a file among others that came to stand at its path: device, inode, and since inodes are used again,
/// when it was made (nothing ever changes the contents of a socket).
type Identity = (u64, u64, i64, i64);

fn identity(metadata: &Metadata) -> Identity {
    (metadata.dev(), metadata.ino(), metadata.mtime(), metadata.mtime_nsec())
}

/// A bound control socket, whose file goes when this does.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    identity: Identity,
}

impl SocketFile {
    /// Binds the socket, for this user only. A file that a dead daemon left there is taken away first; the socket of a
    /// living one is not.
    ///
    /// Sets the process's umask for the moment, so it must be called while no other thread makes files.
    pub(crate) fn bind(path: &Path) -> Outcome<(UnixListener, SocketFile)> {
        remove_stale(path)?;
        let former = rustix::process::umask(Mode::from_raw_mode(0o177));
        let bound = UnixListener::bind(path);
        rustix::process::umask(former);
        let listener = bound.map_err(|error| refused(path, &error))?;
        let metadata = std::fs::symlink_metadata(path).map_err(|error| refused(path, &error))?;
        Ok((listener, SocketFile { path: path.to_owned(), identity: identity(&metadata) }))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let found = std::fs::symlink_metadata(&self.path);
        if found.is_ok_and(|metadata| identity(&metadata) == self.identity) {
            // If it cannot be taken away, the next daemon finds nobody behind it and does it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Takes the file away if it is a socket that nobody listens on.
fn remove_stale(path: &Path) -> Outcome {
    let metadata = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(refused(path, &error)),
        Ok(metadata) => metadata,
    };
    let shown = path.display();
    if !metadata.file_type().is_socket() {
        return Err(Failure::failed(format!("cannot create the control socket {shown}: a file of that name exists"))
            .hint("name another path with --socket, or as `socket` under [control] in the configuration"));
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(Failure::failed(format!("a daemon is already listening on the control socket {shown}"))
            .hint("end it first, or name another path with --socket")),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(|error| refused(path, &error))
        }
        Err(error) => Err(refused(path, &error)),
    }
}

fn refused(path: &Path, error: &io::Error) -> Failure {
    Failure::failed(format!("cannot create the control socket {}: {error}", path.display()))
        .hint("name a path that you may write to (shorter than 108 bytes) with --socket")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_socket_is_the_users_own_and_goes_with_its_owner() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.sock");
        let (_listener, file) = SocketFile::bind(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(file);
        assert!(!path.exists());
    }

    #[test]
    fn the_service_is_asked_where_the_user_has_no_daemon() {
        let directory = tempfile::tempdir().unwrap();
        let (own, service) = (directory.path().join("own.sock"), directory.path().join("service.sock"));
        assert_eq!(first_there(own.clone(), &service), own, "neither is there");
        std::fs::write(&service, "").unwrap();
        assert_eq!(first_there(own.clone(), &service), service);
        std::fs::write(&own, "").unwrap();
        assert_eq!(first_there(own.clone(), &service), own);
    }

    #[test]
    fn a_living_daemons_socket_is_not_taken() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.sock");
        let (_listener, _file) = SocketFile::bind(&path).unwrap();
        let failure = SocketFile::bind(&path).unwrap_err();
        assert!(failure.text().contains("already listening"), "{}", failure.text());
        assert!(UnixStream::connect(&path).is_ok());
    }

    #[test]
    fn a_dead_daemons_socket_is_taken_over() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.sock");
        let (listener, file) = SocketFile::bind(&path).unwrap();
        drop(listener);
        let (_second, second_file) = SocketFile::bind(&path).unwrap();
        // The first one's file is no more: what stands there now is another's.
        drop(file);
        assert!(path.exists());
        drop(second_file);
        assert!(!path.exists());
    }

    #[test]
    fn a_file_that_is_no_socket_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("precious");
        std::fs::write(&path, "text").unwrap();
        assert!(SocketFile::bind(&path).unwrap_err().text().contains("a file of that name exists"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "text");
    }
}
