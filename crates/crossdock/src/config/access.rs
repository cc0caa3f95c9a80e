//! `[[access]]`: what an identity may do.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use crossdock_nectarine::PublicKey;
use crossdock_runtime::access::{Administration, Identity, Pattern, Quotas, Readable, Rule, Rules};
use crossdock_runtime::settings::perhaps_within;
use serde::{Deserialize, Deserializer, de};

use crate::failure::{Failure, Outcome};
use crate::http::token::{Token, TokenFiles, Tokens};
use crate::http::watched::Watched;

/// The name of the token that `token_file` in `[control]` has.
const OF_CONTROL: &str = "control";

/// `[[access]]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AccessSection {
    /// The identity: a key, by its name or itself.
    key: Option<String>,
    /// The identity: a user of this machine.
    uid: Option<u32>,
    /// The identity: a token, by a name.
    token: Option<String>,
    /// The file with the token; relative to the configuration's directory.
    token_file: Option<PathBuf>,
    /// The identity: all that have no section of their own.
    everybody: bool,
    #[serde(deserialize_with = "texts")]
    publish: Vec<Pattern>,
    #[serde(deserialize_with = "texts")]
    subscribe: Vec<Readable>,
    #[serde(deserialize_with = "texts")]
    convert: Vec<Pattern>,
    #[serde(deserialize_with = "texts")]
    handlers: Vec<Pattern>,
    #[serde(deserialize_with = "texts")]
    mailboxes: Vec<Pattern>,
    #[serde(deserialize_with = "texts")]
    route: Vec<Pattern>,
    administration: Part,
    #[serde(deserialize_with = "perhaps_within::<_, u32, 0, 65_536>")]
    max_sessions: Option<u32>,
    #[serde(deserialize_with = "perhaps_within::<_, u32, 0, 1_048_576>")]
    max_streams: Option<u32>,
    #[serde(deserialize_with = "perhaps_within::<_, u32, 0, 1_048_576>")]
    max_mailboxes: Option<u32>,
    #[serde(deserialize_with = "perhaps_within::<_, u32, 0, 1_048_576>")]
    max_subscriptions: Option<u32>,
}

/// The part of the control API.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Part {
    #[default]
    None,
    Read,
    Change,
}

impl AccessSection {
    /// The identity that the section is for.
    fn identity(&self) -> Result<Identity, String> {
        let key = self.key.as_deref().map(|key| match key.parse::<PublicKey>() {
            Ok(key) => Identity::Key(key.to_string().into()),
            Err(_) => Identity::Key(key.into()),
        });
        let token = self.token.as_deref().map(|name| Identity::Token(name.into()));
        let named = [key, self.uid.map(Identity::User), token, self.everybody.then_some(Identity::Everybody)];
        let mut named = named.into_iter().flatten();
        match (named.next(), named.next()) {
            (Some(Identity::Key(name) | Identity::Token(name)), None) if name.trim().is_empty() => {
                Err("the name of its identity is empty".to_owned())
            }
            (Some(identity), None) => Ok(identity),
            (None, _) => Err("a section has an identity: `key`, `uid`, `token` or `everybody = true`".to_owned()),
            (Some(one), Some(other)) => Err(format!("a section has one identity, not {one} and {other}")),
        }
    }

    fn rule(&self) -> Result<Rule, String> {
        let identity = self.identity()?;
        let is_control = self.token.as_deref() == Some(OF_CONTROL);
        match (&self.token, &self.token_file) {
            (Some(name), None) if !is_control => {
                return Err(format!("`token_file` is the file with the token `{name}`, and is missing"));
            }
            (Some(_), Some(_)) if is_control => {
                return Err(format!("the token `{OF_CONTROL}` is in the file that `token_file` in [control] names"));
            }
            (None, Some(_)) => return Err(format!("`token_file` goes with a `token`, not with {identity}")),
            _ => {}
        }
        Ok(Rule {
            identity,
            publish: self.publish.clone(),
            subscribe: self.subscribe.clone(),
            convert: self.convert.clone(),
            handlers: self.handlers.clone(),
            mailboxes: self.mailboxes.clone(),
            route: self.route.clone(),
            administration: match self.administration {
                Part::None => Administration::None,
                Part::Read => Administration::Read,
                Part::Change => Administration::Change,
            },
            quotas: Quotas {
                sessions: self.max_sessions,
                streams: self.max_streams,
                mailboxes: self.max_mailboxes,
                subscriptions: self.max_subscriptions,
            },
        })
    }
}

/// The rules of all sections; none if there are no sections.
///
/// # Errors
/// The first section that is wrong, by its number, or two that contradict each other.
pub(super) fn rules(sections: &[AccessSection]) -> Result<Option<Arc<Rules>>, String> {
    if sections.is_empty() {
        return Ok(None);
    }
    let rule = |(at, section): (usize, &AccessSection)| {
        section.rule().map_err(|why| format!("[[access]], section {}: {why}", at + 1))
    };
    let rules: Vec<Rule> = sections.iter().enumerate().map(rule).collect::<Result<_, _>>()?;
    Rules::new(rules).map(|rules| Some(Arc::new(rules))).map_err(|why| format!("[[access]]: {why}"))
}

/// The tokens of callers of the HTTP API: those of the sections, and that of `[control]`.
///
/// # Errors
/// A file cannot be read, or is not kept secret; or two names have the same token.
pub(super) fn tokens(sections: &[AccessSection], control: Option<&Path>, directory: &Path) -> Outcome<TokenFiles> {
    let of_sections =
        sections.iter().filter_map(|section| Some((section.token.as_deref()?, section.token_file.as_deref()?)));
    let all = control.map(|file| (OF_CONTROL, file)).into_iter().chain(of_sections);
    let all: Vec<(String, PathBuf)> = all.map(|(name, file)| (name.to_owned(), directory.join(file))).collect();
    let paths = all.iter().map(|(_, path)| path.clone()).collect();
    Watched::read("list of tokens", paths, move || read_tokens(&all).map(Arc::new))
}

/// The tokens of these names in these files.
fn read_tokens(all: &[(String, PathBuf)]) -> Outcome<Tokens> {
    let mut tokens = Tokens::default();
    for (name, path) in all {
        if let Some(other) = tokens.add(name, Token::read(path)?) {
            return Err(Failure::usage(format!("the tokens `{other}` and `{name}` are the same: create another one")));
        }
    }
    Ok(tokens)
}

/// A list of texts that are read.
fn texts<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: std::fmt::Display>,
{
    let all = Vec::<String>::deserialize(deserializer)?;
    all.iter().map(|text| text.parse().map_err(|why| de::Error::custom(format!("`{text}`: {why}")))).collect()
}
