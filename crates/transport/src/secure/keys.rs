//! Keys, their texts in files, and the list of authorised ones.

use curve25519_dalek::montgomery::MontgomeryPoint;
use std::collections::HashMap;
use std::fmt::{self, Display};
use std::str::FromStr;
use std::sync::Arc;

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;
/// Random bytes that a handshake takes: an ephemeral key, and an index.
pub const RANDOM_BYTES: usize = 4 + KEY_BYTES;

/// The public key of a private one, by X25519.
pub(super) fn public_of(private: &[u8; KEY_BYTES]) -> [u8; KEY_BYTES] {
    MontgomeryPoint::mul_base_clamped(*private).to_bytes()
}

/// A private key. It is never shown by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct PrivateKey([u8; KEY_BYTES]);

impl PrivateKey {
    /// The key that these random bytes make.
    #[must_use]
    pub fn from_random(random: [u8; KEY_BYTES]) -> PrivateKey {
        PrivateKey(random)
    }

    /// The public key that belongs to it.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey(public_of(&self.0))
    }

    pub(super) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// The text of a file with this key.
    #[must_use]
    pub fn to_file(&self) -> String {
        format!("# A private key of Crossdock; the public key is {}\n{}\n", self.public(), Hex(&self.0))
    }

    /// Reads the text of a file with a key: one line of hexadecimal digits, beside empty lines and comments (`#`).
    ///
    /// # Errors
    /// The reason for which it has no key, in words.
    pub fn of_file(text: &str) -> Result<PrivateKey, String> {
        let mut lines = meaningful(text);
        match (lines.next(), lines.next()) {
            (Some((_, key)), None) => parse(key).map(PrivateKey),
            (Some(_), Some((line, _))) => Err(format!("line {line}: a file of a private key has one key")),
            (None, _) => Err("there is no key in it".to_owned()),
        }
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey")
    }
}

/// A public key: the identity of a client or a daemon.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; KEY_BYTES]);

impl PublicKey {
    /// The key of these bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; KEY_BYTES]) -> PublicKey {
        PublicKey(bytes)
    }

    /// The bytes of the key.
    #[must_use]
    pub fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Hex(&self.0).fmt(f)
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Hex(&self.0).fmt(f)
    }
}

impl FromStr for PublicKey {
    type Err = String;

    fn from_str(text: &str) -> Result<PublicKey, String> {
        parse(text).map(PublicKey)
    }
}

/// Bytes as lower-case hexadecimal digits.
struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

fn parse(text: &str) -> Result<[u8; KEY_BYTES], String> {
    let wrong = || format!("a key is {} hexadecimal digits (`crossdock keygen` makes one)", 2 * KEY_BYTES);
    if text.len() != 2 * KEY_BYTES || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    let mut key = [0; KEY_BYTES];
    for (at, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).map_err(|_| wrong())?;
    }
    Ok(key)
}

/// The lines that are neither empty nor comments, with their numbers.
fn meaningful(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
    lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

/// A client that may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authorized {
    /// Its key.
    pub key: PublicKey,
    /// Its name for people; may be empty.
    pub name: Arc<str>,
}

impl FromStr for Authorized {
    type Err = String;

    /// Reads `KEY NAME`; the name may be missing.
    fn from_str(text: &str) -> Result<Authorized, String> {
        let (key, name) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        Ok(Authorized { key: key.parse()?, name: name.trim().into() })
    }
}

impl fmt::Display for Authorized {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let space = if self.name.is_empty() { "" } else { " " };
        write!(f, "{}{space}{}", self.key, self.name)
    }
}

/// The clients that may connect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthorizedKeys(HashMap<PublicKey, Arc<str>>);

impl AuthorizedKeys {
    /// Reads the text of a file of authorised keys: a line `KEY NAME` each, beside empty lines and comments (`#`).
    ///
    /// # Errors
    /// The first line that is not one, and why, in words.
    pub fn of_file(text: &str) -> Result<AuthorizedKeys, String> {
        let read = |(line, text): (usize, &str)| {
            let authorized = text.parse::<Authorized>();
            authorized.map_err(|why| format!("line {line}: {why}"))
        };
        meaningful(text).map(read).collect()
    }

    /// The name of a key's client, if it may connect.
    #[must_use]
    pub fn name_of(&self, key: &PublicKey) -> Option<&Arc<str>> {
        self.0.get(key)
    }

    /// Whether nobody may connect.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

impl FromIterator<Authorized> for AuthorizedKeys {
    fn from_iter<I: IntoIterator<Item = Authorized>>(keys: I) -> AuthorizedKeys {
        AuthorizedKeys(keys.into_iter().map(|Authorized { key, name }| (key, name)).collect())
    }
}

impl Extend<Authorized> for AuthorizedKeys {
    fn extend<I: IntoIterator<Item = Authorized>>(&mut self, keys: I) {
        self.0.extend(keys.into_iter().map(|Authorized { key, name }| (key, name)));
    }
}

impl IntoIterator for AuthorizedKeys {
    type Item = Authorized;
    type IntoIter = std::vec::IntoIter<Authorized>;

    /// In the order of the keys.
    fn into_iter(self) -> Self::IntoIter {
        let mut all: Vec<Authorized> = self.0.into_iter().map(|(key, name)| Authorized { key, name }).collect();
        all.sort_by_key(|authorized| authorized.key);
        all.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn private(first: u8) -> PrivateKey {
        PrivateKey::from_random([first; KEY_BYTES])
    }

    #[test]
    fn a_private_key_reads_back_from_its_file_and_is_never_shown() {
        let key = private(7);
        let file = key.to_file();
        assert_eq!(PrivateKey::of_file(&file), Ok(key.clone()));
        assert!(file.contains(&key.public().to_string()), "{file}");
        assert_eq!(format!("{key:?}"), "PrivateKey");
        for (text, words) in [("", "no key"), ("# only this\n", "no key"), ("abc", "64 hexadecimal digits")] {
            assert!(PrivateKey::of_file(text).unwrap_err().contains(words), "{text}");
        }
        let two = format!("{}\n{file}", "00".repeat(KEY_BYTES));
        assert!(PrivateKey::of_file(&two).unwrap_err().starts_with("line 3: "), "one key a file");
    }

    #[test]
    fn authorised_keys_have_names_and_a_wrong_line_is_named() {
        let (a, b) = (private(1).public(), private(2).public());
        let keys = AuthorizedKeys::of_file(&format!("# clients\n\n{a} desk in Oslo \n{b}\n")).unwrap();
        assert_eq!(keys.name_of(&a).map(|name| &**name), Some("desk in Oslo"));
        assert_eq!(keys.name_of(&b).map(|name| &**name), Some(""));
        assert_eq!(keys.name_of(&private(3).public()), None);
        let shown: Vec<String> = keys.clone().into_iter().map(|key| key.to_string()).collect();
        assert_eq!(AuthorizedKeys::of_file(&shown.join("\n")), Ok(keys));
        let why = AuthorizedKeys::of_file(&format!("{a}\n{b}x desk\n")).unwrap_err();
        assert!(why.starts_with("line 2: a key is 64 hexadecimal digits"), "{why}");
        assert!("é".repeat(32).parse::<PublicKey>().is_err());
    }
}
