//! Files below the configured directories, and nothing else.

use crate::ServicesConfig;
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, open, openat, openat2};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// Dumps of one run of the daemon at most, so that no task fills the disk.
const MAX_DUMPS: u32 = 256;

/// The two directories, opened once: what their names stand for later is of no matter.
pub(super) struct Files {
    files: Option<OwnedFd>,
    dumps: Option<OwnedFd>,
    dumped: u32,
}

impl Files {
    /// # Errors
    /// A configured directory cannot be opened.
    pub(super) fn open(config: &ServicesConfig) -> io::Result<Files> {
        let directory = |path: &Path| -> io::Result<OwnedFd> {
            let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
            let opened = open(path, flags, Mode::empty());
            opened
                .map_err(|error| io::Error::new(io::Error::from(error).kind(), format!("{}: {error}", path.display())))
        };
        Ok(Files {
            files: config.files.as_deref().map(directory).transpose()?,
            dumps: config.dumps.as_deref().map(directory).transpose()?,
            dumped: 0,
        })
    }

    /// Reads a file into `into`; how many bytes there were.
    ///
    /// # Errors
    /// In words, for the task's client.
    pub(super) fn read(&self, request: &[u8], into: &mut [u8]) -> Result<usize, String> {
        let directory =
            self.files.as_ref().ok_or("reading files is disabled in this daemon (`files` in [services])")?;
        let mut parts = request.splitn(2, |&byte| byte == 0);
        let name = parts.next().unwrap_or_default();
        let name = std::str::from_utf8(name).map_err(|_| "the file's name is not UTF-8")?;
        let from: u64 = match parts.next() {
            None => 0,
            Some(digits) => {
                let digits = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
                digits.ok_or("the offset after the file's name and a zero byte must be decimal digits")?
            }
        };
        let failed = |error: io::Error| format!("cannot read {name:?}: {error}");
        // Nothing outside the directory can be named, neither by `..` nor by a link; and a pipe is not waited for.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let file = openat2(directory, name, flags, Mode::empty(), resolve).map_err(|error| failed(error.into()))?;
        let about = fstat(&file).map_err(|error| failed(error.into()))?;
        if FileType::from_raw_mode(about.st_mode) != FileType::RegularFile {
            return Err(format!("{name:?} is not a file"));
        }
        let mut file = File::from(file);
        file.seek(SeekFrom::Start(from)).map_err(failed)?;
        let mut len = 0;
        while len < into.len() {
            match file.read(&mut into[len..]) {
                Ok(0) => break,
                Ok(bytes) => len += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(len)
    }

    /// Writes a new file; its name goes into `into`, as far as there is room.
    ///
    /// # Errors
    /// In words, for the task's client.
    pub(super) fn dump(&mut self, bytes: &[u8], into: &mut [u8]) -> Result<usize, String> {
        let directory = self.dumps.as_ref().ok_or("dumps are disabled in this daemon (`dumps` in [services])")?;
        if self.dumped >= MAX_DUMPS {
            return Err(format!("this daemon has written {MAX_DUMPS} dumps, its bound; move them away and restart it"));
        }
        self.dumped += 1;
        let name = format!("dump-{}-{}.bin", std::process::id(), self.dumped);
        let failed = |error: io::Error| format!("cannot write {name}: {error}");
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(directory, &name, flags, Mode::RUSR | Mode::WUSR).map_err(|error| failed(error.into()))?;
        File::from(file).write_all(bytes).map_err(failed)?;
        let len = name.len().min(into.len());
        into[..len].copy_from_slice(&name.as_bytes()[..len]);
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn nothing_outside_the_directory_is_read() {
        let root = std::env::temp_dir().join(format!("crossdock-files-{}", std::process::id()));
        let inside = root.join("inside");
        std::fs::create_dir_all(inside.join("sub")).unwrap();
        std::fs::write(root.join("secret"), "no").unwrap();
        std::fs::write(inside.join("sub/open"), "0123456789").unwrap();
        symlink("../secret", inside.join("out")).unwrap();
        symlink("sub/open", inside.join("in")).unwrap();
        let config = ServicesConfig { files: Some(inside.clone()), dumps: Some(inside.clone()) };
        let mut files = Files::open(&config).unwrap();
        let mut room = [0; 8];
        assert_eq!(files.read(b"sub/open", &mut room), Ok(8));
        assert_eq!(&room, b"01234567");
        assert_eq!(files.read(b"in\x008", &mut room), Ok(2));
        assert_eq!(&room[..2], b"89");
        assert_eq!(files.read(b"sub/../in", &mut room), Ok(8));
        let secret = root.join("secret");
        let absolute = secret.to_str().unwrap().as_bytes();
        let none: [&[u8]; 8] =
            [b"../secret", b"out", absolute, b"sub", b"none", b"in\0x", b"\xff", b"/proc/self/environ"];
        for wrong in none {
            assert!(files.read(wrong, &mut room).is_err(), "{}", String::from_utf8_lossy(wrong));
        }
        let mut name = [0; 64];
        let len = files.dump(b"bytes", &mut name).unwrap();
        let name = std::str::from_utf8(&name[..len]).unwrap();
        assert_eq!(std::fs::read(inside.join(name)).unwrap(), b"bytes");
        for _ in 1..MAX_DUMPS {
            files.dump(b"", &mut []).unwrap();
        }
        assert!(files.dump(b"", &mut []).unwrap_err().contains("256"));
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn an_unconfigured_directory_is_refused_and_a_missing_one_reported_at_the_start() {
        let mut files = Files::open(&ServicesConfig::default()).unwrap();
        assert!(files.read(b"a", &mut []).unwrap_err().contains("[services]"));
        assert!(files.dump(b"a", &mut []).unwrap_err().contains("[services]"));
        let config = ServicesConfig { files: Some("/nowhere/at/all".into()), dumps: None };
        assert!(Files::open(&config).err().unwrap().to_string().contains("/nowhere/at/all"));
    }
}
