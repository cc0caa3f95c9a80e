//! The identity of this program: version, commit, features, and how it was built. The build script finds them out.

use std::sync::LazyLock;

use crossdock_format::Format;
use crossdock_format::encoding::{self, Encoding, EncodingOptions};
use serde::Serialize;

use crate::failure::Outcome;
use crate::out;

/// The version of the package.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The first 12 digits of the commit, with `-modified` behind them where the sources differ from it; or `unknown`.
pub(crate) const COMMIT: &str = env!("CROSSDOCK_BUILT_COMMIT");
/// The text that `-V` prints behind the name.
pub(crate) const SHORT: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("CROSSDOCK_BUILT_COMMIT"), ")");

/// The known facts of the build.
#[derive(Serialize)]
struct Build {
    version: &'static str,
    commit: &'static str,
    /// The day of the commit; none where it is not known.
    commit_date: Option<&'static str>,
    features: Vec<&'static str>,
    encodings: Vec<&'static str>,
    target: &'static str,
    profile: &'static str,
    compiler: &'static str,
}

impl Build {
    fn of_this() -> Build {
        let features = env!("CROSSDOCK_BUILT_FEATURES");
        Build {
            version: VERSION,
            commit: COMMIT,
            commit_date: Some(env!("CROSSDOCK_BUILT_COMMIT_DATE")).filter(|date| *date != "unknown"),
            features: features.split(' ').filter(|name| *name != "none").collect(),
            encodings: encodings().map(Encoding::name).collect(),
            target: env!("CROSSDOCK_BUILT_TARGET"),
            profile: env!("CROSSDOCK_BUILT_PROFILE"),
            compiler: env!("CROSSDOCK_BUILT_RUSTC"),
        }
    }
}

/// `crossdock version`.
pub(crate) fn run(json: bool) -> Outcome {
    if json {
        return out::print_json(&Build::of_this());
    }
    out::print(format!("crossdock {}\n", long()))
}

/// The text that `--version` prints behind the name.
pub(crate) fn long() -> &'static str {
    static LONG: LazyLock<String> = LazyLock::new(|| {
        let build = Build::of_this();
        let date = build.commit_date.map_or_else(String::new, |date| format!(" of {date}"));
        format!(
            "{VERSION}\n\
             commit:    {COMMIT}{date}\n\
             features:  {}\n\
             encodings: {}\n\
             target:    {}\n\
             profile:   {}\n\
             compiler:  {}",
            env!("CROSSDOCK_BUILT_FEATURES"),
            build.encodings.join(" "),
            build.target,
            build.profile,
            build.compiler,
        )
    });
    &LONG
}

/// The encodings that this build can write: those that bring libraries may have been left out of it.
fn encodings() -> impl Iterator<Item = Encoding> {
    let probe = Format::parse_schema("a i32").ok();
    let options = EncodingOptions::default();
    let is_there = move |encoding: &Encoding| {
        probe.as_ref().is_some_and(|format| encoding::encoder(*encoding, format, None, &options).is_ok())
    };
    Encoding::ALL.into_iter().filter(is_there)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commit_is_twelve_digits_or_said_to_be_unknown() {
        let digits = COMMIT.strip_suffix("-modified").unwrap_or(COMMIT);
        let is_hash = digits.len() == 12 && digits.chars().all(|c| c.is_ascii_hexdigit());
        // A package may give any name for it.
        let is_given = option_env!("CROSSDOCK_COMMIT").is_some_and(|given| given.starts_with(digits));
        assert!(is_hash || is_given || COMMIT == "unknown", "{COMMIT}");
        assert!(SHORT.starts_with(VERSION) && SHORT.contains(COMMIT), "{SHORT}");
    }

    #[test]
    fn every_encoding_of_this_build_is_named() {
        let all = Encoding::ALL.map(Encoding::name).join(" ");
        let line = long().lines().find_map(|line| line.strip_prefix("encodings: "));
        assert_eq!(line, Some(all.as_str()), "the binary has every encoding that there is");
    }
}
