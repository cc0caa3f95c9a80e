//! A Rust file as a flat list of tokens with their lines, and the few shapes that the rules look for in it.

use std::collections::BTreeSet;
use std::ops::Range;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// One token, and the line it starts on, from 1.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Token {
    /// Its kind.
    pub(crate) kind: TokenKind,
    /// The line.
    pub(crate) line: usize,
}

/// The kind of a token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum TokenKind {
    /// A name or a keyword.
    Word(String),
    /// One character of punctuation; `::` is two of them.
    Mark(char),
    /// A number, a string, a character.
    Literal,
    /// `(`, `[` or `{`.
    Open(char),
    /// `)`, `]` or `}`.
    Close(char),
}

impl Token {
    /// Whether it is this word.
    pub(crate) fn is(&self, word: &str) -> bool {
        matches!(&self.kind, TokenKind::Word(name) if name == word)
    }

    fn is_mark(&self, mark: char) -> bool {
        self.kind == TokenKind::Mark(mark)
    }
}

/// The tokens of a file, or the line and the reason why it is no Rust.
pub(crate) fn tokens(text: &str) -> Result<Vec<Token>, (usize, String)> {
    let stream: TokenStream =
        text.parse().map_err(|e: proc_macro2::LexError| (e.span().start().line, e.to_string()))?;
    let mut flat = Vec::new();
    flatten(stream, &mut flat);
    Ok(flat)
}

fn flatten(stream: TokenStream, flat: &mut Vec<Token>) {
    for tree in stream {
        let line = tree.span().start().line;
        match tree {
            TokenTree::Ident(name) => flat.push(Token { kind: TokenKind::Word(name.to_string()), line }),
            TokenTree::Punct(mark) => flat.push(Token { kind: TokenKind::Mark(mark.as_char()), line }),
            TokenTree::Literal(_) => flat.push(Token { kind: TokenKind::Literal, line }),
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ('(', ')'),
                    Delimiter::Bracket => ('[', ']'),
                    Delimiter::Brace => ('{', '}'),
                    Delimiter::None => (' ', ' '),
                };
                flat.push(Token { kind: TokenKind::Open(open), line });
                flatten(group.stream(), flat);
                flat.push(Token { kind: TokenKind::Close(close), line: group.span_close().start().line });
            }
        }
    }
}

/// The place after the token that closes what opens at `open`.
pub(crate) fn after_group(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.kind {
            TokenKind::Open(_) => depth += 1,
            TokenKind::Close(_) if depth <= 1 => return at + 1,
            TokenKind::Close(_) => depth -= 1,
            _ => {}
        }
    }
    tokens.len()
}

/// Whether `::` stands at a place.
pub(crate) fn is_path_mark(tokens: &[Token], at: usize) -> bool {
    tokens.len() > at + 1 && tokens[at].is_mark(':') && tokens[at + 1].is_mark(':')
}

/// The functions with a body: name, place of `fn`, and the lines from `fn` to the closing brace.
pub(crate) fn functions(tokens: &[Token]) -> Vec<(String, Range<usize>)> {
    let mut found = Vec::new();
    for at in 0..tokens.len() {
        let (true, Some(TokenKind::Word(name))) = (tokens[at].is("fn"), tokens.get(at + 1).map(|next| &next.kind))
        else {
            continue;
        };
        let mut next = at + 2;
        while let Some(token) = tokens.get(next) {
            match token.kind {
                TokenKind::Open('{') => {
                    let end = after_group(tokens, next);
                    found.push((name.clone(), token_lines(tokens, at, end)));
                    break;
                }
                TokenKind::Open(_) => next = after_group(tokens, next),
                TokenKind::Mark(';') | TokenKind::Close(_) => break,
                _ => next += 1,
            }
        }
    }
    found
}

fn token_lines(tokens: &[Token], from: usize, end: usize) -> Range<usize> {
    tokens[from].line..tokens[end - 1].line + 1
}

/// Paths that begin at each `std` (or another first word): `use std::{fs, time::{Duration, Instant}}` gives
/// `[fs]`, `[time, Duration]`, `[time, Instant]`, each with the line of its last word.
pub(crate) fn paths_from(tokens: &[Token], first: &str) -> Vec<(Vec<String>, usize)> {
    let mut found = Vec::new();
    for at in 0..tokens.len() {
        if tokens[at].is(first) && is_path_mark(tokens, at + 1) {
            grow(tokens, at + 3, tokens[at].line, &mut Vec::new(), &mut found);
        }
    }
    found
}

/// Reads one branch of a path that may fork in braces; gives the place after it.
fn grow(
    tokens: &[Token],
    at: usize,
    line: usize,
    stem: &mut Vec<String>,
    found: &mut Vec<(Vec<String>, usize)>,
) -> usize {
    let Some(token) = tokens.get(at) else {
        return at;
    };
    match &token.kind {
        TokenKind::Word(name) => {
            stem.push(name.clone());
            let end = if is_path_mark(tokens, at + 1) {
                grow(tokens, at + 3, token.line, stem, found)
            } else {
                found.push((stem.clone(), token.line));
                at + 1
            };
            stem.pop();
            end
        }
        TokenKind::Open('{') => {
            let end = after_group(tokens, at);
            let mut next = at + 1;
            while next + 1 < end {
                let grown = grow(tokens, next, token.line, stem, found);
                next = grown.max(next + 1);
            }
            end
        }
        TokenKind::Mark('*') => {
            found.push(([stem.as_slice(), &["*".into()]].concat(), token.line));
            at + 1
        }
        _ => {
            if !stem.is_empty() && !token.is_mark(',') {
                found.push((stem.clone(), line));
            }
            at
        }
    }
}

/// The tokens without what is compiled only for tests, and the names of the modules in other files that are so.
pub(crate) fn without_tests(tokens: &[Token]) -> (Vec<Token>, BTreeSet<String>) {
    let (mut kept, mut modules) = (Vec::with_capacity(tokens.len()), BTreeSet::new());
    let mut at = 0;
    while at < tokens.len() {
        if let Some(after) = attribute(tokens, at)
            && is_test_only(&tokens[at..after])
        {
            let end = after_item(tokens, after);
            if let [Token { kind: TokenKind::Word(name), .. }, semicolon] = &tokens[end.saturating_sub(2)..end]
                && semicolon.is_mark(';')
                && tokens[after..end].iter().any(|token| token.is("mod"))
            {
                modules.insert(name.clone());
            }
            at = end;
        } else {
            kept.push(tokens[at].clone());
            at += 1;
        }
    }
    (kept, modules)
}

/// The place after `#[…]` where one begins at `at`.
fn attribute(tokens: &[Token], at: usize) -> Option<usize> {
    let bracket = tokens.get(at + 1)?.kind == TokenKind::Open('[');
    (tokens[at].is_mark('#') && bracket).then(|| after_group(tokens, at + 1))
}

/// `#[test]`, `#[cfg(test)]`, `#[cfg(all(test, …))]`; not `cfg(not(test))`, not `cfg(any(test, …))`.
fn is_test_only(attribute: &[Token]) -> bool {
    let words: Vec<&str> =
        attribute.iter().filter_map(|t| if let TokenKind::Word(w) = &t.kind { Some(&**w) } else { None }).collect();
    match words.as_slice() {
        ["test"] | ["cfg", "test"] => true,
        ["cfg", "all", rest @ ..] => rest.contains(&"test") && !rest.contains(&"not") && !rest.contains(&"any"),
        _ => false,
    }
}

/// The place after the item, statement, field or arm that begins at `at`, other attributes of it included.
fn after_item(tokens: &[Token], mut at: usize) -> usize {
    while let Some(after) = tokens.get(at).and_then(|_| attribute(tokens, at)) {
        at = after;
    }
    let head: Vec<&Token> = tokens[at..].iter().take(8).collect();
    let has = |word: &str| {
        head.iter().take_while(|t| !matches!(t.kind, TokenKind::Mark(_) | TokenKind::Open('{'))).any(|t| t.is(word))
    };
    let is_fn = has("fn");
    let to_semicolon = !is_fn && ["use", "const", "static", "type", "let"].iter().any(|word| has(word));
    let is_item = is_fn
        || to_semicolon
        || ["mod", "struct", "enum", "union", "trait", "impl", "macro_rules"].iter().any(|w| has(w));
    while let Some(token) = tokens.get(at) {
        match token.kind {
            TokenKind::Open('{') if !to_semicolon => return after_group(tokens, at),
            TokenKind::Open(_) => at = after_group(tokens, at),
            TokenKind::Mark(';') => return at + 1,
            TokenKind::Mark(',') if !is_item => return at + 1,
            TokenKind::Close(_) => return at,
            _ => at += 1,
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<Token> {
        tokens(text).unwrap()
    }

    fn words(tokens: &[Token]) -> String {
        let words =
            tokens.iter().filter_map(|t| if let TokenKind::Word(w) = &t.kind { Some(w.as_str()) } else { None });
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_and_strings_are_no_code() {
        let found = of("// unsafe\n/* unsafe */ let a = \"unsafe\"; /// unsafe\nfn f() {}");
        assert!(!found.iter().any(|token| token.is("unsafe")));
    }

    #[test]
    fn text_that_is_no_rust_is_reported_with_its_line() {
        assert_eq!(tokens("fn a() {}\n\nfn b( {}").unwrap_err().0, 3);
    }

    #[test]
    fn functions_have_their_lines_and_those_without_body_have_none() {
        let text = "fn a() {\n}\ntrait T { fn b(&self);\n fn c(x: [u8; 3]) -> u8 where u8: Copy {\n 1\n }\n}\nlet f: fn(u8) = g;";
        let found: Vec<_> = functions(&of(text)).into_iter().map(|(name, lines)| (name, lines.len())).collect();
        assert_eq!(found, [("a".to_owned(), 2), ("c".to_owned(), 3)]);
    }

    #[test]
    fn functions_inside_a_macro_count() {
        let found = functions(&of("proptest! {\n#[test]\nfn holds(x in 0..3) {\n}\n}"));
        assert_eq!(found[0].0, "holds");
    }

    #[test]
    fn paths_fork_in_braces() {
        let found =
            paths_from(&of("use std::{fs, time::{Duration,\nInstant}, io::*};\nlet t = std::thread::spawn(f);"), "std");
        let found: Vec<_> = found.iter().map(|(path, line)| (path.join("::"), *line)).collect();
        let expected = [("fs", 1), ("time::Duration", 1), ("time::Instant", 2), ("io::*", 2), ("thread::spawn", 3)];
        assert_eq!(found, expected.map(|(path, line)| (path.to_owned(), line)));
    }

    #[test]
    fn a_path_that_goes_on_in_generics_keeps_its_stem() {
        let found = paths_from(&of("std::vec::Vec::<u8>::new()"), "std");
        assert_eq!(found[0].0, ["vec", "Vec"]);
    }

    #[test]
    fn items_only_for_tests_are_left_out() {
        for (text, left) in [
            ("fn a() {} #[cfg(test)] mod tests { fn b() {} } fn c() {}", "fn a fn c"),
            ("#[cfg(test)] use std::{fs, net}; fn a() {}", "fn a"),
            ("#[cfg(all(test, loom))] mod m { } fn a() {}", "fn a"),
            ("#[cfg(not(test))] fn a() {}", "cfg not test fn a"),
            ("#[cfg(any(test, fuzzing))] fn a() {}", "cfg any test fuzzing fn a"),
            ("#[test] #[ignore] fn b() { x } fn a() {}", "fn a"),
            ("#[cfg(test)] pub(crate) const fn b() -> u8 { 1 } fn a() {}", "fn a"),
            ("#[cfg(test)] const B: P = P { x: 1 }; fn a() {}", "fn a"),
            ("struct A { #[cfg(test)] b: u8, c: u8 }", "struct A c u8"),
            ("struct A { c: u8, #[cfg(test)] b: u8 }", "struct A c u8"),
            ("#[cfg(test)] fn b<A, B>(a: A, b: B) where A: B { x } fn a() {}", "fn a"),
        ] {
            assert_eq!(words(&without_tests(&of(text)).0), left, "{text}");
        }
    }

    #[test]
    fn a_test_module_in_another_file_is_named() {
        let (_, modules) =
            without_tests(&of("#[cfg(test)]\nmod tests;\n#[cfg(test)] pub(crate) mod model;\nmod real;"));
        assert_eq!(modules.into_iter().collect::<Vec<_>>(), ["model", "tests"]);
    }
}
