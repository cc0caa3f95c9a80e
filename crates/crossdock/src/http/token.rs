//! The token with which a client may change what runs over TCP, where anybody on the machine can connect.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue, header};
use sha2::{Digest, Sha256};

use super::watched::Watched;
use crate::failure::{Failure, Outcome};

/// Fewest characters of a token: it must not be guessed by trying.
const LEAST_CHARS: usize = 16;

/// A token: visible ASCII characters.
#[derive(Clone)]
pub(crate) struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// Reads a token from a file that not everybody may read.
    ///
    /// # Errors
    /// It cannot be read, is not kept secret, or is no token; and what would correct it.
    pub(crate) fn read(path: &Path) -> Outcome<Token> {
        let refused = |why: String| Failure::usage(format!("cannot use the token in {}: {why}", path.display()));
        let makes = || format!("`crossdock keygen --token --output {}` makes such a file", path.display());
        let unreadable = |error: std::io::Error| refused(error.to_string()).hint(makes());
        let mode = std::fs::metadata(path).map_err(unreadable)?.mode() & 0o7777;
        if mode & 0o007 != 0 {
            return Err(refused(format!("every user of this machine has access to the file (its mode is {mode:03o})"))
                .hint(format!("`chmod 600 {}`, and create another token if this one may be known", path.display())));
        }
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        let token = text.trim();
        if token.len() < LEAST_CHARS || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(
                refused(format!("it is not {LEAST_CHARS} or more visible ASCII characters on one line")).hint(makes())
            );
        }
        Ok(Token(token.to_owned()))
    }

    /// The value of the header by which a request says it.
    pub(crate) fn header(&self) -> Option<HeaderValue> {
        let mut value = HeaderValue::try_from(format!("Bearer {}", self.0)).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// Whether a request says this token. How long that takes does not depend on how much of it is right.
    fn is_in(&self, headers: &HeaderMap) -> bool {
        let said = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let said =
            said.and_then(|value| value.split_once(' ')).filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        let Some((_, said)) = said else { return false };
        let [own, said] = [&self.0, said.trim()].map(|token| Sha256::digest(token.as_bytes()));
        own.iter().zip(&said).fold(0, |differ, (own, said)| differ | (own ^ said)) == 0
    }
}

/// Those of a daemon, out of their files.
pub(crate) type TokenFiles = Watched<Arc<Tokens>>;

/// The tokens by which callers are known, each by a name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tokens(Vec<(Arc<str>, Token)>);

impl Tokens {
    /// Adds a token; the name of the same one, if it is there already.
    pub(crate) fn add(&mut self, name: &str, token: Token) -> Option<Arc<str>> {
        let same = self.0.iter().find(|(_, known)| known.0 == token.0).map(|(name, _)| Arc::clone(name));
        self.0.push((name.into(), token));
        same
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The name of the token that a request says. All are compared, however early one is found.
    pub(super) fn name_in(&self, headers: &HeaderMap) -> Option<Arc<str>> {
        let said: Vec<&Arc<str>> =
            self.0.iter().filter(|(_, token)| token.is_in(headers)).map(|(name, _)| name).collect();
        said.first().map(|name| Arc::clone(name))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_token_is_read_from_a_file_that_is_kept_secret() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let read = |text: &str, mode: u32| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            Token::read(&path).map(|token| token.0).map_err(|failure| failure.text())
        };
        assert_eq!(read("0123456789abcdef\n", 0o600).as_deref(), Ok("0123456789abcdef"));
        assert!(read("0123456789abcdef\n", 0o640).is_ok(), "a group may share it");
        for (text, mode, why) in [
            ("0123456789abcdef", 0o644, "chmod 600"),
            ("0123456789abcdef", 0o602, "mode is 602"),
            ("short", 0o600, "16 or more"),
            ("0123456789abcdef 0123456789abcdef", 0o600, "visible ASCII"),
        ] {
            assert!(read(text, mode).is_err_and(|said| said.contains(why)), "{text} {mode:o}");
        }
        assert!(
            Token::read(&directory.path().join("none")).is_err_and(|failure| failure.text().contains("keygen --token"))
        );
    }

    #[test]
    fn a_request_says_the_token_or_not() {
        let token = Token("0123456789abcdef".to_owned());
        let is_in = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap());
            token.is_in(&headers)
        };
        assert!(is_in("Bearer 0123456789abcdef") && is_in("bearer 0123456789abcdef"));
        for value in
            ["Bearer 0123456789abcdeg", "Bearer 0123456789abcde", "Basic 0123456789abcdef", "0123456789abcdef", ""]
        {
            assert!(!is_in(value), "{value}");
        }
        assert!(!token.is_in(&HeaderMap::new()));
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, token.header().unwrap());
        assert!(token.is_in(&headers));
        let mut tokens = Tokens::default();
        assert!(tokens.is_empty() && tokens.name_in(&headers).is_none());
        assert_eq!(tokens.add("other", Token("fedcba9876543210".to_owned())), None);
        assert_eq!(tokens.add("ops", token.clone()), None);
        assert_eq!(tokens.name_in(&headers).as_deref(), Some("ops"));
        assert_eq!(tokens.add("again", token).as_deref(), Some("ops"));
    }
}
