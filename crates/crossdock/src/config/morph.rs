//! `[morph]`: how records are converted for subscribers that say which formats they accept, and what is kept.

use std::path::{Path, PathBuf};

use crossdock_runtime::{ByName, MorphConfig, Unreadable};
use serde::Deserialize;

use super::values::{off_or_path, within};

/// `[morph]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MorphSection {
    unreadable: Unreadable,
    #[serde(deserialize_with = "within::<_, u64, 4096, 1_099_511_627_776>")]
    hold_bytes: u64,
    #[serde(deserialize_with = "within::<_, u64, 4096, 1_099_511_627_776>")]
    hold_total_bytes: u64,
    hold_ms: u32,
    #[serde(deserialize_with = "ByNameWord::deserialize")]
    by_name: ByName,
    #[serde(deserialize_with = "off_or_path")]
    state_dir: Option<PathBuf>,
}

/// The words for [`ByName`].
#[derive(Deserialize)]
#[serde(remote = "ByName", rename_all = "snake_case")]
enum ByNameWord {
    Off,
    VersionsOfStream,
}

impl Default for MorphSection {
    fn default() -> MorphSection {
        let MorphConfig { unreadable, hold_bytes, hold_total_bytes, hold_ms, by_name, state_dir } =
            MorphConfig::default();
        MorphSection { unreadable, hold_bytes, hold_total_bytes, hold_ms, by_name, state_dir }
    }
}

impl MorphSection {
    /// The settings; the path is relative to `directory`, the configuration's.
    pub(super) fn settings(&self, directory: &Path) -> MorphConfig {
        let MorphSection { unreadable, hold_bytes, hold_total_bytes, hold_ms, by_name, .. } = *self;
        let state_dir = self.state_dir.as_ref().map(|path| directory.join(path));
        MorphConfig { unreadable, hold_bytes, hold_total_bytes, hold_ms, by_name, state_dir }
    }
}
