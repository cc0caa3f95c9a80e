//! `crossdock keygen` and `crossdock keys`.

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use crossdock_nectarine::PublicKey;
use crossdock_runtime::{Authorized, AuthorizedKeys};
use serde::Serialize;

use crate::cli::{AddKey, Keygen, KeysChange, KeysCommand, KeysFile, KeysList, RemoveKey};
use crate::config::Config;
use crate::failure::{Failure, Outcome};
use crate::{keyfile, out};

/// `crossdock keygen`.
pub(crate) fn keygen(arguments: &Keygen) -> Outcome {
    if arguments.token {
        keyfile::make_token(&arguments.output)?;
        out::say(format_args!(
            "the token is in {}: it is a `token_file` under [control] or [[access]] of the daemon's configuration, and a \
             command's --token-file",
            arguments.output.display()
        ));
        return Ok(());
    }
    let key = keyfile::make_private(&arguments.output)?;
    out::say(format_args!("the private key is in {}; this is the public key:", arguments.output.display()));
    out::print(format!("{}\n", key.public()))
}

/// `crossdock keys`.
pub(crate) fn run(arguments: &KeysCommand) -> Outcome {
    match &arguments.command {
        None => list(&arguments.list),
        Some(KeysChange::Add(add)) => self::add(add),
        Some(KeysChange::Rm(remove)) => self::remove(remove),
        Some(KeysChange::Show(show)) => out::print(format!("{}\n", keyfile::read_private(&show.file)?.public())),
    }
}

/// A key in the list.
#[derive(Serialize)]
struct Listed {
    key: String,
    name: String,
    /// `daemon`, or `client`.
    role: &'static str,
}

fn list(arguments: &KeysList) -> Outcome {
    let mut listed = Vec::new();
    let clients = match (&arguments.file.file, read_config(&arguments.file)?) {
        (Some(file), _) => keyfile::read_authorized(file)?,
        (None, Some((config, directory))) => {
            if let Some(path) = &config.security.key {
                let key = keyfile::read_private(&directory.join(path))?.public().to_string();
                listed.push(Listed { key, name: String::new(), role: "daemon" });
            }
            config.security.clients(&directory)?
        }
        (None, None) => return Err(no_file()),
    };
    let clients = clients.into_iter().map(|Authorized { key, name }| (key.to_string(), name.to_string()));
    listed.extend(clients.map(|(key, name)| Listed { key, name, role: "client" }));
    let line = |key: &Listed| match arguments.json {
        true => serde_json::to_string(key).unwrap_or_default() + "\n",
        false => format!("{} {} {}", key.key, key.role, key.name).trim_end().to_owned() + "\n",
    };
    if listed.is_empty() && !arguments.json {
        out::say("no keys: `crossdock keys add KEY NAME` authorises a client");
    }
    out::print(listed.iter().map(line).collect::<String>())
}

fn add(arguments: &AddKey) -> Outcome {
    let path = place(&arguments.file)?;
    let (text, known) = read(&path)?;
    if known.name_of(&arguments.key).is_some() {
        return Err(Failure::usage(format!("{} has the key {} already", path.display(), arguments.key)));
    }
    let name = arguments.name.as_deref().unwrap_or_default().trim();
    if name.contains(char::is_control) {
        return Err(Failure::usage("a name has no control characters"));
    }
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    write(&path, &format!("{text}{end}{}\n", Authorized { key: arguments.key, name: name.into() }))
}

fn remove(arguments: &RemoveKey) -> Outcome {
    let path = place(&arguments.file)?;
    let (text, _) = read(&path)?;
    let client = arguments.client.trim();
    let is_meant = |authorized: &Authorized| authorized.key.to_string() == client || &*authorized.name == client;
    // Lines, for a key may have more than one.
    let lines = || text.lines().map(|line| (line, line.trim().parse::<Authorized>().ok()));
    let meant: BTreeSet<PublicKey> =
        lines().filter_map(|(_, of)| of).filter(is_meant).map(|authorized| authorized.key).collect();
    let key = match (meant.len(), meant.first()) {
        (1, Some(key)) => *key,
        (0, _) => return Err(Failure::usage(format!("{}: no client has this key or name", path.display()))),
        (many, _) => {
            return Err(Failure::usage(format!("{}: {many} clients have this name: name the key", path.display())));
        }
    };
    // Comments and the order of the others stay.
    let (_, rest): (Vec<_>, Vec<_>) = lines().partition(|(_, of)| of.as_ref().is_some_and(is_meant));
    write(&path, &rest.iter().map(|(line, _)| format!("{line}\n")).collect::<String>())?;
    if rest.iter().any(|(_, of)| of.as_ref().is_some_and(|of| of.key == key)) {
        let path = path.display();
        out::say(format_args!(
            "the key is still authorised by another line of {path}: `crossdock keys rm {key}` removes all"
        ));
    }
    let config = read_config(&arguments.file)?;
    if config.is_some_and(|(config, _)| config.security.authorized.iter().any(|of| of.key == key)) {
        out::say(
            "the key is still authorised in the configuration (`authorized` in [security]), where it has to be removed",
        );
    }
    Ok(())
}

/// The configuration that an option or the environment names, with its directory.
fn read_config(arguments: &KeysFile) -> Outcome<Option<(Config, PathBuf)>> {
    let Some(path) = arguments.config.as_ref().filter(|_| arguments.file.is_none()) else { return Ok(None) };
    let directory = path.parent().unwrap_or(Path::new("")).to_owned();
    Ok(Some((Config::read(path)?, directory)))
}

/// The file of the authorised keys.
fn place(arguments: &KeysFile) -> Outcome<PathBuf> {
    match (&arguments.file, read_config(arguments)?) {
        (Some(file), _) => Ok(file.clone()),
        (None, Some((config, directory))) => {
            let path = config.security.authorized_file.as_ref().map(|path| directory.join(path));
            path.ok_or_else(|| {
                Failure::usage("the configuration has no `authorized_file` in [security]")
                    .hint("set it there, or name the file with --file")
            })
        }
        (None, None) => Err(no_file()),
    }
}

fn no_file() -> Failure {
    Failure::usage("no file of keys is named").hint("name it with --file, or the daemon's configuration with --config")
}

/// The text of the file and the keys in it; nothing, if there is no such file yet.
fn read(path: &Path) -> Outcome<(String, AuthorizedKeys)> {
    if !path.exists() {
        return Ok((String::new(), AuthorizedKeys::default()));
    }
    let keys = keyfile::read_authorized(path)?;
    let text = std::fs::read_to_string(path).map_err(|error| unwritten(path, &error))?;
    Ok((text, keys))
}

/// Replaces the file as a whole, so that a daemon never reads a part of it; and by one that the same users may read.
fn write(path: &Path, text: &str) -> Outcome {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    let there = match std::fs::metadata(path) {
        Ok(there) => Some(there),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(unwritten(path, &error)),
    };
    let mode = if there.is_some() { 0o600 } else { 0o644 };
    let file = std::fs::File::options().write(true).create_new(true).mode(mode).open(&part);
    let mut file = file.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => unwritten(&part, &error)
            .hint("another `crossdock keys` is at work, or was stopped: then remove this file, and try again"),
        _ => unwritten(&part, &error),
    })?;
    let mut replace = || {
        if let Some(there) = &there {
            fchown(&file, Some(there.uid()), Some(there.gid())).map_err(|error| {
                io::Error::new(error.kind(), format!("it would have another owner or group ({error})"))
            })?;
            file.set_permissions(Permissions::from_mode(there.mode() & 0o777))?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&part, path)
    };
    replace().map_err(|error| {
        let _ = std::fs::remove_file(&part);
        unwritten(path, &error)
    })
}

fn unwritten(path: &Path, error: &io::Error) -> Failure {
    Failure::failed(format!("cannot write to {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_keys_keeps_its_owner_group_and_mode() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("clients.keys");
        std::fs::write(&path, "old").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        // Only the superuser gives files away; for others the file stays their own.
        let _ = std::os::unix::fs::chown(&path, Some(65_532), Some(65_531));
        let state = || std::fs::metadata(&path).map(|there| (there.uid(), there.gid(), there.mode())).unwrap();
        let before = state();
        write(&path, "new").unwrap_or_else(|_| panic!("not written"));
        assert_eq!((state(), std::fs::read_to_string(&path).unwrap().as_str()), (before, "new"));
        // A part that another has begun is not taken over.
        let part = directory.path().join("clients.keys.part");
        std::fs::write(&part, "").unwrap();
        assert!(write(&path, "newer").is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
    }
}
