//! The HTTP API: the daemon's lists and what is deployed on it as JSON, on a Unix socket and, if configured, on TCP, where a
//! change takes a token, and which is encrypted (`tls`) beyond this machine and the networks that are trusted.
//!
//! `GET /v1/openapi.json` describes all of it; module `routes` has the list that this is made of. Here are the bodies, which
//! the daemon writes and the command line reads. `GET /metrics` is for Prometheus.
//!
//! Whatever goes wrong is answered by `{"error":{"message":"…","hint":"…"}}` with a fitting status; a query's error also has
//! `text`, which is the message with the place in the query shown, as the command line prints it, and a refused change `plan`.

mod admission;
pub(crate) mod client;
pub(crate) mod connections;
mod follow;
mod metrics;
mod process;
mod routes;
pub(crate) mod server;
pub(crate) mod socket;
pub(crate) mod tls;
pub(crate) mod token;
pub(crate) mod watched;

use std::collections::BTreeMap;

use crossdock_nectarine::Implementation;
use crossdock_runtime::info::{
    AccessRuleInfo, ClientInfo, ContextInfo, ControlInfo, ConversionInfo, EventInfo, FormatInfo, FormatNameSchema,
    HandlerContextInfo, HandlerInfo, HistoryInfo, MailboxInfo, PathInfo, PlanInfo, SessionInfo, StreamInfo,
    SubscriptionInfo, TableInfo,
};
use crossdock_runtime::{FormatName, HandlerSpec};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};
use utoipa::ToSchema;

/// A connection of any kind: requests and answers are the same on all, and so is their code.
trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for S {}

/// The body of an answer that is an error.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ErrorBody {
    /// The error.
    pub(crate) error: ApiError,
    /// Of a change that is refused: what it would have done, and why it cannot be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) plan: Option<PlanInfo>,
}

/// The fault, and its remedy.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ApiError {
    /// The fault, in a sentence.
    pub(crate) message: String,
    /// The remedy.
    pub(crate) hint: Option<String>,
    /// The whole error on several lines, with the place in the query, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
}

/// The body of `POST /v1/explain`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExplainRequest {
    /// The query.
    pub(crate) sql: String,
    /// The formats that the subscriber would accept, if it would say so: `{"version":3}` or `{"id":"…"}`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<FormatNameSchema>)]
    pub(crate) accept: Vec<FormatName>,
}

/// The answer to `GET /v1/health`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Health {
    /// `ok`: the context answers.
    pub(crate) status: String,
    /// The daemon's version.
    pub(crate) version: String,
    /// The commit that the daemon was built from, or `unknown`.
    pub(crate) commit: String,
    /// The UDP address of the context.
    pub(crate) address: String,
}

/// The access rules.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct AccessRules {
    /// Whether there are rules: without any, whoever is let in may do everything.
    pub(crate) in_force: bool,
    /// The list.
    pub(crate) rules: Vec<AccessRuleInfo>,
}

/// The body of `POST /v1/access/check`: an identity, and one thing that it would do.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AccessCheck {
    /// `key:NAME`, `uid:NUMBER`, `token:NAME` or `everybody`.
    pub(crate) identity: String,
    /// A query that it would subscribe to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sql: Option<String>,
    /// A stream that it would publish.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) publish: Option<String>,
    /// A mailbox that it would use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mailbox: Option<String>,
    /// The nodes of a source route, in order, that its packets would take; this daemon's is among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) route: Vec<String>,
}

/// The answer to what changed something.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Changed {
    /// Details, if any.
    pub(crate) note: Option<String>,
}

/// The body of `POST /v1/check`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FormatCheck {
    /// The stream.
    pub(crate) stream: String,
    /// The canonical description of what would be its next version.
    pub(crate) format: String,
}

/// The body of `POST /v1/policy`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StreamPolicy {
    /// The stream.
    pub(crate) stream: String,
    /// `none`, `backward`, `forward`, `full`, or one of the last three with `_transitive` behind it.
    pub(crate) policy: String,
}

/// The answer to `GET /v1/contexts`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Contexts {
    /// The I/O contexts together, by what their packets, sessions and tables count.
    pub(crate) contexts: Vec<ContextInfo>,
    /// All contexts, that one first, by what handlers run there and what room there is.
    #[serde(default)]
    pub(crate) platform: Vec<HandlerContextInfo>,
    /// The changes on the platform.
    #[serde(default)]
    pub(crate) control: ControlInfo,
}

/// All streams.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Streams {
    /// The list.
    pub(crate) streams: Vec<StreamInfo>,
}

/// All subscriptions.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Subscriptions {
    /// The list.
    pub(crate) subscriptions: Vec<SubscriptionInfo>,
}

/// The body of `PUT /v1/subscriptions/{id}`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SubscriptionQuery {
    /// The query that the subscription is to have.
    pub(crate) sql: String,
}

/// All formats.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Formats {
    /// The list.
    pub(crate) formats: Vec<FormatInfo>,
}

/// All sessions over packets.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Sessions {
    /// The list.
    pub(crate) sessions: Vec<SessionInfo>,
}

/// All clients.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Clients {
    /// The list.
    pub(crate) clients: Vec<ClientInfo>,
}

/// All mailboxes.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Mailboxes {
    /// The list.
    pub(crate) mailboxes: Vec<MailboxInfo>,
}

/// All reference tables.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct TableInfos {
    /// The list.
    pub(crate) tables: Vec<TableInfo>,
}

/// The body of `POST /v1/mailboxes`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewMailbox {
    /// Its name.
    pub(crate) name: String,
    /// How messages pass through it: `rings` (the default) or `signal_queue`.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub(crate) implementation: Implementation,
    /// How many messages it holds before writers wait; the configured default without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) bound_messages: Option<u32>,
    /// How many bytes it holds before writers wait; the configured default without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) bound_bytes: Option<u64>,
}

/// The body of `PUT /v1/mailboxes/{name}/task`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewTask {
    /// Which one, such as `echo`.
    pub(crate) task: String,
    /// Its arguments, such as `to`.
    #[serde(default)]
    pub(crate) arguments: BTreeMap<String, String>,
}

/// All conversions.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Conversions {
    /// The list.
    pub(crate) conversions: Vec<ConversionInfo>,
}

/// All paths.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Paths {
    /// The list.
    pub(crate) paths: Vec<PathInfo>,
}

/// All handlers.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Handlers {
    /// The list.
    pub(crate) handlers: Vec<HandlerInfo>,
}

/// The wanted state: handlers' specifications.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    /// The list.
    pub(crate) handlers: Vec<HandlerSpec>,
}

/// Events, oldest first.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Events {
    /// The list.
    pub(crate) events: Vec<EventInfo>,
}

/// The last minutes.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct History {
    /// The list.
    pub(crate) history: Vec<HistoryInfo>,
}

/// The body of `PATCH /v1/handlers/{name}`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SetRequest {
    /// Values by the parameters' names; others stay.
    pub(crate) parameters: BTreeMap<String, String>,
}

/// The body of `POST /v1/handlers/{name}/move`.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MoveRequest {
    /// The context's name; where it fits best when absent.
    pub(crate) place: Option<String>,
}

/// The answer to a change of the platform, or to what it would do.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ChangeAnswer {
    /// Whether it was made; with `dry_run` it never is.
    pub(crate) applied: bool,
    /// The plan that was or would be carried out, or why it cannot be.
    pub(crate) plan: PlanInfo,
    /// From the request to the last context's having taken it, in us.
    pub(crate) took_us: Option<u64>,
    /// Details, if any.
    pub(crate) note: Option<String>,
}

/// Reasons one below the other, each with all of its lines.
pub(crate) fn indented(reasons: &[String]) -> String {
    reasons.iter().flat_map(|reason| reason.lines()).map(|line| format!("\n  {line}")).collect()
}

/// The names that exist, and the one that was perhaps meant.
pub(crate) fn did_you_mean<'a>(name: &str, known: impl Iterator<Item = &'a str>, what: &str) -> String {
    let mut known: Vec<&str> = known.collect();
    known.sort_unstable();
    let nearest = known.iter().map(|known| (strsim::damerau_levenshtein(known, name), *known)).min();
    // Up to a third of the letters may be wrong.
    let meant = nearest.filter(|(distance, _)| *distance <= 1 + name.chars().count() / 3);
    let meant = meant.map_or(String::new(), |(_, known)| format!("did you mean `{known}`? "));
    match known.len() {
        0 => format!("there are no {what}"),
        1..=20 => format!("{meant}{what}: {}", known.join(", ")),
        more => format!("{meant}there are {more} {what}; `crossdock {what}` lists them"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_is_answered_with_a_suggestion_and_the_known_names() {
        let known = ["late", "early"];
        assert_eq!(did_you_mean("lat", known.into_iter(), "handlers"), "did you mean `late`? handlers: early, late");
        assert_eq!(did_you_mean("quite else", known.into_iter(), "handlers"), "handlers: early, late");
        assert_eq!(did_you_mean("x", [].into_iter(), "handlers"), "there are no handlers");
        let many: Vec<String> = (0..30).map(|number| format!("h{number}")).collect();
        let hint = did_you_mean("h300", many.iter().map(String::as_str), "handlers");
        assert_eq!(hint, "did you mean `h0`? there are 30 handlers; `crossdock handlers` lists them");
    }
}
