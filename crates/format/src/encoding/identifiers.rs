//! Names that the schema languages of other systems can have.

use std::collections::HashSet;

/// Names, each once: letters, digits and underscores, a letter first.
#[derive(Default)]
pub(crate) struct Identifiers {
    taken: HashSet<String>,
}

impl Identifiers {
    /// A name like this one: letters, digits and underscores, a letter first.
    pub(crate) fn of(&mut self, name: &str) -> String {
        let mut word: String =
            name.chars().map(|char| if char.is_ascii_alphanumeric() { char } else { '_' }).take(200).collect();
        if !word.starts_with(|char: char| char.is_ascii_alphabetic()) {
            word.insert(0, 'f');
        }
        // Two names that differ in their underscores only would be one in JSON, which protobuf compilers refuse.
        let key = |word: &str| word.replace('_', "").to_ascii_lowercase();
        let stem = word.trim_end_matches('_').to_owned();
        let mut again = 1;
        while !self.taken.insert(key(&word)) {
            again += 1;
            word = format!("{stem}_x{again}");
        }
        word
    }
}
