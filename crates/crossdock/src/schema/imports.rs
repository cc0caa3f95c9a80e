//! The files that a `.proto` imports.

use std::path::{Path, PathBuf};

/// Most files that a `.proto` file may import, by way of others too.
const MAX_IMPORTS: usize = 256;

/// The files that a `.proto` imports, and those that they do, from its own directory and then from these others. One that is not
/// there is left to whoever reads the schema: it may be known to all, as Google's own are.
pub(super) fn imports(own: &Path, others: &[PathBuf], text: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut wanted = imported(text);
    while let Some(name) = wanted.pop() {
        if found.len() >= MAX_IMPORTS || found.iter().any(|(known, _)| *known == name) {
            continue;
        }
        let mut directories = std::iter::once(own).chain(others.iter().map(PathBuf::as_path));
        if let Some(text) = directories.find_map(|directory| std::fs::read_to_string(directory.join(&name)).ok()) {
            wanted.extend(imported(&text));
            found.push((name, text));
        }
    }
    found
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Token<'a> {
    Word(&'a str),
    /// The text between the quotes, as it is written.
    Quoted(&'a str),
    Mark(char),
}

/// The words, strings and marks of a text, without comments.
struct Tokens<'a>(&'a str);

impl<'a> Tokens<'a> {
    fn skip(&mut self, bytes: usize) -> &'a str {
        let (skipped, rest) = self.0.split_at(bytes.min(self.0.len()));
        self.0 = rest;
        skipped
    }

    /// Passes over a text and its end, or over all if it has none.
    fn skip_past(&mut self, end: &str) {
        self.skip(self.0.find(end).map_or(self.0.len(), |at| at + end.len()));
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        loop {
            self.0 = self.0.trim_start();
            match self.0 {
                text if text.starts_with("//") => self.skip_past("\n"),
                text if text.starts_with("/*") => {
                    self.skip(2);
                    self.skip_past("*/");
                }
                _ => break,
            }
        }
        let first = self.0.chars().next()?;
        if first.is_ascii_alphanumeric() || first == '_' {
            let end = self.0.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '.');
            return Some(Token::Word(self.skip(end.unwrap_or(self.0.len()))));
        }
        self.skip(first.len_utf8());
        if first != '"' && first != '\'' {
            return Some(Token::Mark(first));
        }
        let mut is_escaped = false;
        let end = self.0.find(|c: char| {
            let is_end = c == first && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            is_end
        });
        let text = self.skip(end.unwrap_or(self.0.len()));
        self.skip(1);
        Some(Token::Quoted(text))
    }
}

/// The names in `import "…";`, with or without `public`, `weak` or `option`, wherever a statement begins.
fn imported(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    let (mut begins, mut is_import) = (true, false);
    for token in Tokens(text) {
        match token {
            Token::Word("import") if begins => is_import = true,
            Token::Word("public" | "weak" | "option") => {}
            Token::Quoted(name) if is_import => names.push(name.to_owned()),
            _ => is_import = false,
        }
        begins = matches!(token, Token::Mark(';' | '}'));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_are_found() {
        for (text, expected) in [
            (
                "syntax = \"proto3\";\nimport \"a/b.proto\";\n  import public 'c.proto';\nmessage import_me {}\n",
                &["a/b.proto", "c.proto"][..],
            ),
            ("syntax=\"proto3\";import \"b.proto\";import weak\"c.proto\";", &["b.proto", "c.proto"]),
            ("/* of // all */ import\n  // where\n  \"b.proto\"\n;", &["b.proto"]),
            ("// import \"a.proto\";\n/* import \"b.proto\"; */ option x = \"import \\\"c.proto\\\";\";", &[]),
            ("message import { string import = 1; } import 'd.proto';", &["d.proto"]),
            ("import", &[]),
            ("import \"open", &["open"]),
            ("/* open", &[]),
            ("ü import \"e.proto\";", &[]),
        ] {
            assert_eq!(imported(text), expected, "{text}");
        }
    }
}
