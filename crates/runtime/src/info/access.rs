//! The reports on access rules.

use crossdock_control::access::Rule;
use serde::{Deserialize, Serialize};

/// One access rule: a row of `crossdock access list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AccessRuleInfo {
    /// The identity that it is for: `key:NAME`, `uid:NUMBER`, `token:NAME` or `everybody`.
    pub identity: String,
    /// Streams that it may publish, as patterns.
    pub publish: Vec<String>,
    /// Streams that it may read: patterns, and queries with the rows and fields that it sees.
    pub subscribe: Vec<String>,
    /// Streams whose conversions it may change.
    pub convert: Vec<String>,
    /// Handlers that it may deploy and change.
    pub handlers: Vec<String>,
    /// Mailboxes that it may use.
    pub mailboxes: Vec<String>,
    /// Neighbours that it may send packets with source routes to, over this node.
    #[serde(default)]
    pub route: Vec<String>,
    /// The part of the control API that it may use: `none`, `read` or `change`.
    pub administration: String,
    /// Its quota of sessions, if it has one of its own.
    pub max_sessions: Option<u32>,
    /// Its quota of streams.
    pub max_streams: Option<u32>,
    /// Its quota of mailboxes.
    pub max_mailboxes: Option<u32>,
    /// Its quota of subscriptions.
    pub max_subscriptions: Option<u32>,
}

impl AccessRuleInfo {
    pub(crate) fn of(rule: &Rule) -> AccessRuleInfo {
        fn texts<T: ToString>(all: &[T]) -> Vec<String> {
            all.iter().map(T::to_string).collect()
        }
        AccessRuleInfo {
            identity: rule.identity.to_string(),
            publish: texts(&rule.publish),
            subscribe: texts(&rule.subscribe),
            convert: texts(&rule.convert),
            handlers: texts(&rule.handlers),
            mailboxes: texts(&rule.mailboxes),
            route: texts(&rule.route),
            administration: rule.administration.name().to_owned(),
            max_sessions: rule.quotas.sessions,
            max_streams: rule.quotas.streams,
            max_mailboxes: rule.quotas.mailboxes,
            max_subscriptions: rule.quotas.subscriptions,
        }
    }
}

/// The decision on an action that nobody has taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AccessCheckInfo {
    /// Whether it would be allowed.
    pub allowed: bool,
    /// The caller, in words.
    pub caller: String,
    /// The identity of the rule that holds for the caller; none where it has no rule, or there are no rules.
    pub rule: Option<String>,
    /// The rows and fields of the stream that the caller sees, if not all.
    pub view: Option<String>,
    /// The query that would run, with the view in it; none if the stream has no format yet.
    pub query: Option<String>,
    /// Why it would be refused, and what would allow it.
    pub refusal: Option<String>,
}
