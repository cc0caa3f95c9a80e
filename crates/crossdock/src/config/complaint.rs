//! The error of a configuration file: its place, and the key that was perhaps meant.

use std::path::Path;

use super::{Config, SECTIONS};
use crate::failure::Failure;

/// The error of the file: its place, and the key that was perhaps meant.
pub(super) fn complaint(error: &toml::de::Error, text: &str, path: &Path) -> Failure {
    let start = error.span().map_or(0, |span| span.start).min(text.len());
    let before = text.get(..start).unwrap_or("");
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |start| start.chars().count()) + 1;
    let excerpt = text.lines().nth(line - 1).unwrap_or("").replace(char::is_control, " ");
    let (message, hint) = reworded(error.message());
    let failure =
        Failure::usage(format!("{}:{line}:{column}: {message}\n  {excerpt}\n  {:>column$}", path.display(), "^"));
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// serde's words for an unknown key or word, as a sentence, and as a hint what is known.
fn reworded(message: &str) -> (String, Option<String>) {
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let (Some((found, known)), Some(rest)) = (quoted.split_first(), message.strip_prefix("unknown ")) else {
        return (message.trim_end().to_owned(), None);
    };
    let what = match rest.split(' ').next() {
        Some("field") => "key",
        _ => "value",
    };
    let elsewhere = || {
        let mut sections = SECTIONS.into_iter();
        sections.find(|section| keys_of(section).iter().any(|key| key == found))
    };
    let nearest = known.iter().map(|key| (strsim::damerau_levenshtein(key, found), key)).min();
    let hint = match (nearest, elsewhere()) {
        _ if *found == "window_packets" => {
            "`window_bytes` replaces it: the same in bytes, 2097152 by default".to_owned()
        }
        (Some((0..=2, key)), _) => format!("did you mean `{key}`? known: {}", known.join(", ")),
        (_, Some(section)) if what == "key" => format!("`{found}` belongs into [{section}]"),
        _ => format!("known: {}", known.join(", ")),
    };
    (format!("unknown {what} `{found}`"), Some(hint))
}

/// The keys that a section may have, as serde lists them when it meets another.
pub(super) fn keys_of(section: &str) -> Vec<String> {
    let probe = toml::from_str::<Config>(&format!("[{section}]\n\"\" = 0\n"));
    let message = probe.err().map_or(String::new(), |error| error.message().to_owned());
    message.split('`').skip(1).step_by(2).skip(1).map(str::to_owned).collect()
}
