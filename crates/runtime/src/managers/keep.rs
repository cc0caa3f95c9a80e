//! Keeps the deployed handlers across restarts, in one file. The file is replaced as a whole, so that it holds the old
//! state or the new one and never a mixture.

use crate::managers::spec::HandlerSpec;
use serde::{Deserialize, Serialize};
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
}

#[derive(Serialize, Deserialize)]
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
pub fn write_kept(handlers: Vec<HandlerSpec>) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec_pretty(&Content { handlers })
}

impl Kept {
    pub(crate) fn new(directory: Option<PathBuf>) -> Kept {
        Kept { directory }
    }

    /// The kept handlers; and why they could not be read, if so.
    pub(crate) fn read(&self) -> (Vec<HandlerSpec>, Option<String>) {
        // Nothing is kept.
        let Some(directory) = &self.directory else { return (Vec::new(), None) };
        let path = directory.join(FILE);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return (Vec::new(), None),
            Err(error) => return (Vec::new(), Some(put_aside(directory, &error.to_string()))),
        };
        match read_kept(&bytes) {
            Ok(handlers) => (handlers, None),
            Err(error) => (Vec::new(), Some(put_aside(directory, &error.to_string()))),
        }
    }

    /// Keeps these handlers from now on. When it returns, they are on disk.
    ///
    /// # Errors
    /// In words; what was kept before is kept still.
    pub(crate) fn write(&self, handlers: Vec<HandlerSpec>) -> Result<(), String> {
        // Nothing is kept.
        let Some(directory) = &self.directory else { return Ok(()) };
        let bytes = write_kept(handlers).map_err(|error| error.to_string())?;
        replace(directory, &bytes).map_err(|error| format!("{}: {error}", directory.join(FILE).display()))
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
        let kept = Kept::new(Some(directory.path().to_owned()));
        assert_eq!(kept.read(), (Vec::new(), None));
        let spec = HandlerSpec { name: "late".into(), sql: Some("SELECT * FROM A".into()), ..HandlerSpec::default() };
        kept.write(vec![spec.clone()]).unwrap();
        assert_eq!(kept.read(), (vec![spec], None));
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
