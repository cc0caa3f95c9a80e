//! The HTTP API: the daemon's lists and `explain` as JSON, on a Unix socket and, if configured, on loopback TCP.
//!
//! | request | answer |
//! |---|---|
//! | `GET /v1/health` | `{"status":"ok","version":"…","address":"…"}` |
//! | `GET /v1/streams` | `{"streams":[…]}` |
//! | `GET /v1/subscriptions` | `{"subscriptions":[…]}` |
//! | `GET /v1/formats` | `{"formats":[…]}` |
//! | `GET /v1/contexts` | `{"contexts":[…]}` |
//! | `GET /v1/clients` | `{"clients":[…]}` |
//! | `GET /v1/mailboxes` | `{"mailboxes":[…]}` |
//! | `GET /v1/conversions` | `{"conversions":[…]}` |
//! | `POST /v1/conversions` with `{"stream":"A","from":{"version":1},"to":{"id":"…"},"conversion":"…"}` | `{"note":…}`: it is kept; or 400 |
//! | `DELETE /v1/conversions` with the same, the conversion left out | `{"note":…}`: it no longer is; or 400 |
//! | `POST /v1/check` with `{"stream":"A","format":"…"}`, a description | `{"note":null}`: it could be the next version; or 400 |
//! | `POST /v1/policy` with `{"stream":"A","policy":"backward"}` | `{"note":…}`: it holds from the next version on; or 400 |
//! | `GET /v1/paths` | `{"paths":[…]}` |
//! | `POST /v1/explain` with `{"sql":"…"}` | the plan, or 400; with `"accept":[{"version":3}]` also how formats would come there |
//!
//! Whatever goes wrong is answered by `{"error":{"message":"…","hint":"…"}}` with a fitting status; a query's error also has
//! `text`, which is the message with the place in the query shown, as the command line prints it.

pub(crate) mod client;
pub(crate) mod server;
pub(crate) mod socket;

use crossdock_runtime::FormatName;
use serde::{Deserialize, Serialize};

/// The body of an answer that is an error.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ErrorBody {
    /// The error.
    pub(crate) error: ApiError,
}

/// What is wrong, and what would mend it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ApiError {
    /// What is wrong, in a sentence.
    pub(crate) message: String,
    /// What would mend it.
    pub(crate) hint: Option<String>,
    /// The whole error on several lines, with the place in the query, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
}

/// The body of `POST /v1/explain`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExplainRequest {
    /// The query.
    pub(crate) sql: String,
    /// The formats that the subscriber would accept, if it would say so: `{"version":3}` or `{"id":"…"}`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) accept: Vec<FormatName>,
}

/// The answer to `GET /v1/health`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Health {
    /// `ok`: the context answers.
    pub(crate) status: String,
    /// The daemon's version.
    pub(crate) version: String,
    /// The UDP address of the context.
    pub(crate) address: String,
}

/// The answer to what changed something.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Changed {
    /// What there is to know of it, if anything.
    pub(crate) note: Option<String>,
}

/// The body of `POST /v1/check`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FormatCheck {
    /// The stream.
    pub(crate) stream: String,
    /// The canonical description of what would be its next version.
    pub(crate) format: String,
}

/// The body of `POST /v1/policy`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StreamPolicy {
    /// The stream.
    pub(crate) stream: String,
    /// `none`, `backward`, `forward` or `full`.
    pub(crate) policy: String,
}
