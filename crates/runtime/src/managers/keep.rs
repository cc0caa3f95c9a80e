//! Keeps the deployed handlers across restarts, in one file. The file is replaced as a whole, so that it holds the old
//! state or the new one and never a mixture.

use crate::managers::spec::HandlerSpec;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The file's name in the directory for what is kept.
const FILE: &str = "handlers.json";
/// Its name while it is written.
const NEW_FILE: &str = "handlers.json.new";
/// The name to which a file that cannot be read is moved.
const UNREAD_FILE: &str = "handlers.json.unread";

/// Where the deployed handlers are kept, if they are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    directory: Option<PathBuf>,
    /// The text of each handler, by name, as it is on disk: a change makes those anew that it changes.
    texts: BTreeMap<String, String>,
}

/// The texts of handlers before they were changed; none of those that were not there.
pub(crate) type Former = BTreeMap<String, Option<String>>;

#[derive(Deserialize)]
struct Content {
    handlers: Vec<HandlerSpec>,
}

/// The handlers of a file in which a daemon keeps what is deployed.
///
/// # Errors
/// It is not such a file; where, and why.
pub fn read_kept(bytes: &[u8]) -> Result<Vec<HandlerSpec>, serde_json::Error> {
    serde_json::from_slice(bytes).map(|Content { handlers }| handlers)
}

/// A file of these handlers.
///
/// # Errors
/// None of a specification that there can be.
pub fn write_kept(handlers: &[HandlerSpec]) -> Result<Vec<u8>, serde_json::Error> {
    let texts: Vec<String> = handlers.iter().map(serde_json::to_string_pretty).collect::<Result<_, _>>()?;
    Ok(content(texts.iter()))
}

/// The file of handlers with these texts.
fn content<'a>(texts: impl Iterator<Item = &'a String>) -> Vec<u8> {
    let mut content = b"{\"handlers\": [".to_vec();
    for (number, text) in texts.enumerate() {
        content.extend(if number == 0 { &b"\n"[..] } else { &b",\n"[..] });
        content.extend(text.as_bytes());
    }
    content.extend(b"\n]}");
    content
}

impl Kept {
    pub(crate) fn new(directory: Option<PathBuf>) -> Kept {
        Kept { directory, texts: BTreeMap::new() }
    }

    /// The kept handlers; and why they could not be read, if so.
    pub(crate) fn read(&mut self) -> (Vec<HandlerSpec>, Option<String>) {
        // Nothing is kept.
        let Some(directory) = &self.directory else { return (Vec::new(), None) };
        let path = directory.join(FILE);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return (Vec::new(), None),
            Err(error) => return (Vec::new(), Some(put_aside(directory, &error.to_string()))),
        };
        match read_kept(&bytes) {
            Ok(handlers) => {
                let text = |spec: &HandlerSpec| Some((spec.name.clone(), serde_json::to_string_pretty(spec).ok()?));
                self.texts = handlers.iter().filter_map(text).collect();
                (handlers, None)
            }
            Err(error) => (Vec::new(), Some(put_aside(directory, &error.to_string()))),
        }
    }

    /// Keeps handlers in their new form from now on, or no longer; the others stay. When it returns, that is on disk. Returns
    /// what was kept before, to [be kept again](Kept::undo).
    ///
    /// # Errors
    /// In words; what was kept before is kept still.
    pub(crate) fn change<'a>(
        &mut self,
        changes: impl Iterator<Item = (&'a String, &'a Option<HandlerSpec>)>,
    ) -> Result<Former, String> {
        if self.directory.is_none() {
            // Nothing is kept.
            return Ok(Former::new());
        }
        let text = |(name, spec): (&String, &Option<HandlerSpec>)| {
            let text = spec.as_ref().map(serde_json::to_string_pretty).transpose();
            text.map(|text| (name.clone(), text)).map_err(|error| error.to_string())
        };
        let texts = changes.map(text).collect::<Result<Former, String>>()?;
        let former = self.replace_texts(texts);
        self.write().inspect_err(|_| drop(self.replace_texts(former.clone())))?;
        Ok(former)
    }

    /// Keeps handlers again as they were before a change.
    ///
    /// # Errors
    /// In words; what that change made of them is on disk still.
    pub(crate) fn undo(&mut self, former: Former) -> Result<(), String> {
        drop(self.replace_texts(former));
        self.write()
    }

    fn replace_texts(&mut self, texts: Former) -> Former {
        let replace = |(name, text): (String, Option<String>)| {
            let before = match text {
                Some(text) => self.texts.insert(name.clone(), text),
                None => self.texts.remove(&name),
            };
            (name, before)
        };
        texts.into_iter().map(replace).collect()
    }

    fn write(&self) -> Result<(), String> {
        let Some(directory) = &self.directory else { return Ok(()) };
        let written = replace(directory, &content(self.texts.values()));
        written.map_err(|error| format!("{}: {error}", directory.join(FILE).display()))
    }
}

/// Moves a file that cannot be read aside, since the next change would replace it; returns the outcome in words.
fn put_aside(directory: &Path, why: &str) -> String {
    let (path, unread) = (directory.join(FILE), directory.join(UNREAD_FILE));
    let kept = match std::fs::rename(&path, &unread) {
        Ok(()) => format!("the unchanged file is kept in {}", unread.display()),
        Err(error) => format!("and it cannot be renamed: {error}"),
    };
    format!("{}: {why}; {kept}", path.display())
}

/// Puts a file with these bytes in the place of the one that is there, if one is.
fn replace(directory: &Path, bytes: &[u8]) -> io::Result<()> {
    let new_path = directory.join(NEW_FILE);
    let mut file = File::create(&new_path)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&new_path, directory.join(FILE))?;
    File::open(directory)?.sync_all()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;

    #[test]
    fn kept_state_is_read_back_and_an_unreadable_file_is_renamed() {
        let directory = tempfile::tempdir().unwrap();
        let mut kept = Kept::new(Some(directory.path().to_owned()));
        assert_eq!(kept.read(), (Vec::new(), None));
        let spec = HandlerSpec { name: "late".into(), sql: Some("SELECT * FROM A".into()), ..HandlerSpec::default() };
        let named = |name: &str| (name.to_owned(), Some(HandlerSpec { name: name.into(), ..spec.clone() }));
        let change = |kept: &mut Kept, changes: &[(String, Option<HandlerSpec>)]| {
            kept.change(changes.iter().map(|(name, spec)| (name, spec))).unwrap()
        };
        let read = |directory: &Path| {
            let (handlers, complaint) = Kept::new(Some(directory.to_owned())).read();
            assert_eq!(complaint, None);
            handlers.into_iter().map(|spec| spec.name).collect::<Vec<String>>()
        };
        change(&mut kept, &[named("late")]);
        assert_eq!(Kept::new(Some(directory.path().to_owned())).read(), (vec![spec.clone()], None));
        change(&mut kept, &[named("early"), named("other")]);
        assert_eq!(read(directory.path()), ["early", "late", "other"]);
        // A daemon that starts has what is there.
        let mut kept = Kept::new(Some(directory.path().to_owned()));
        assert_eq!(kept.read().0.len(), 3);
        let former = change(&mut kept, &[("late".to_owned(), None), named("new")]);
        assert_eq!(read(directory.path()), ["early", "new", "other"]);
        kept.undo(former).unwrap();
        assert_eq!(read(directory.path()), ["early", "late", "other"]);
        std::fs::write(directory.path().join(FILE), b"{\"handlers\": 7}").unwrap();
        let (handlers, complaint) = kept.read();
        assert!(handlers.is_empty() && complaint.unwrap().contains("handlers.json.unread"));
        assert!(directory.path().join(UNREAD_FILE).exists());
        assert_eq!(Kept::default().read(), (Vec::new(), None));
    }

    #[test]
    fn a_file_with_the_former_names_of_the_fields_is_read() {
        let former = r#"{"handlers": [{"name": "n", "native": "number", "on": ["A"], "makes": "B",
            "degrade": {"field": "m"}, "may_sample": 8}]}"#;
        let spec = HandlerSpec {
            name: "n".into(),
            native: Some("number".into()),
            input_streams: vec!["A".into()],
            output_stream: Some("B".into()),
            overload_parameters: [("field".to_owned(), "m".to_owned())].into(),
            max_sampling: Some(8),
            ..HandlerSpec::default()
        };
        assert_eq!(read_kept(former.as_bytes()).unwrap(), [spec]);
    }
}
