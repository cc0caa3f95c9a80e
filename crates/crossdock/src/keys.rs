//! `crossdock keygen` and `crossdock keys`.

use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crossdock_runtime::{Authorized, AuthorizedKeys};
use serde::Serialize;

use crate::cli::{AddKey, Keygen, KeysChange, KeysCommand, KeysFile, KeysList, RemoveKey};
use crate::config::Config;
use crate::failure::{Failure, Outcome};
use crate::{keyfile, out};

/// `crossdock keygen`.
pub(crate) fn keygen(arguments: &Keygen) -> Outcome {
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
    let (text, known) = read(&path)?;
    let client = arguments.client.trim();
    let is_meant = |authorized: &Authorized| authorized.key.to_string() == client || &*authorized.name == client;
    let meant = known.into_iter().filter(is_meant).count();
    if meant != 1 {
        let why = match meant {
            0 => "no client has this key or name".to_owned(),
            _ => format!("{meant} clients have this name: name the key"),
        };
        return Err(Failure::usage(format!("{}: {why}", path.display())));
    }
    // Comments and the order of the others stay.
    let stays = |line: &&str| line.trim().parse().map_or(true, |authorized| !is_meant(&authorized));
    let rest: String = text.lines().filter(stays).map(|line| format!("{line}\n")).collect();
    write(&path, &rest)
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

/// Replaces the file as a whole, so that a daemon never reads a part of it.
fn write(path: &Path, text: &str) -> Outcome {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let mode = std::fs::metadata(path).map_or(0o644, |there| there.mode() & 0o777);
    let replace = || {
        let mut file = std::fs::File::options().write(true).create(true).truncate(true).mode(mode).open(&part)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&part, path)
    };
    replace().map_err(|error| unwritten(path, &error))
}

fn unwritten(path: &Path, error: &std::io::Error) -> Failure {
    Failure::failed(format!("cannot write to {}: {error}", path.display()))
}
