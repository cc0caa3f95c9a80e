//! The caller of each request, and the part of the API that the access rules leave it. Routes whose right depends on a name in the
//! request check that themselves.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use crossdock_runtime::access::{Action, Caller};
use crossdock_runtime::{ContextHandle, Network};

use super::connections::Peer;
use super::routes::{error, forbidden, is_of};
use super::token::TokenFiles;

/// The paths that all callers may read.
const OPEN: [&str; 2] = ["/v1/health", "/v1/openapi.json"];
/// Questions, which change nothing, though they come in a body.
const QUESTIONS: [&str; 3] = ["/v1/explain", "/v1/check", "/v1/access/check"];
/// Paths whose changes are checked by their routes.
const BY_ROUTE: [&str; 7] = [
    "/v1/handlers",
    "/v1/handlers/{name}",
    "/v1/handlers/{name}/move",
    "/v1/plan",
    "/v1/conversions",
    "/v1/mailboxes",
    "/v1/mailboxes/{name}",
];

/// The daemon, the tokens of its callers, and the networks whose hosts are let in as this machine's own users are.
#[derive(Clone)]
pub(super) struct Admission {
    pub(super) context: ContextHandle,
    pub(super) tokens: Arc<TokenFiles>,
    pub(super) trusted: Arc<[Network]>,
}

/// Whether a peer is on this machine or in a trusted network.
pub(super) fn is_near(peer: Option<Peer>, trusted: &[Network]) -> bool {
    let is_near = |ip: IpAddr| ip.to_canonical().is_loopback() || trusted.iter().any(|network| network.contains(ip));
    match peer {
        Some(Peer::User(_)) => true,
        Some(Peer::Address(ip)) => ip.is_some_and(is_near),
        None => false,
    }
}

/// Names the caller, and answers a request that it may not make.
pub(super) async fn admit(State(admission): State<Admission>, mut request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>().copied();
    let caller = match admission.caller(peer, request.headers()) {
        Ok(caller) => caller,
        Err(refused) => return *refused,
    };
    let access = admission.context.access();
    let refused = match (access.rules(), action_of(request.method(), request.uri().path())) {
        (None, _) => admission.without_rules(peer, &caller, request.method()),
        (Some(_), Some(action)) => access.admit(&caller, action).err().map(|denial| forbidden(&denial)),
        (Some(_), None) => None,
    };
    if let Some(refused) = refused {
        return refused;
    }
    request.extensions_mut().insert(caller);
    next.run(request).await
}

impl Admission {
    /// The caller that a connection or a token shows; a token that is none of the daemon's is refused. Without any tokens, what
    /// a request says as one means nothing.
    fn caller(&self, peer: Option<Peer>, headers: &HeaderMap) -> Result<Caller, Box<Response>> {
        match peer {
            Some(Peer::User(Some(uid))) => Ok(Caller::User(uid)),
            Some(Peer::Address(ip)) if headers.contains_key(header::AUTHORIZATION) && self.has_tokens() => {
                self.tokens.value().name_in(headers).map(Caller::Token).ok_or_else(|| {
                    let from = ip.map_or_else(|| "an unknown address".to_owned(), |ip| ip.to_string());
                    self.context.access().note_unknown_token(&from);
                    Box::new(unauthorized("the request's token is not the daemon's"))
                })
            }
            _ => Ok(Caller::Unknown),
        }
    }

    fn has_tokens(&self) -> bool {
        !self.tokens.value().is_empty()
    }

    /// The answer to a request that is refused, where there are no rules.
    fn without_rules(&self, peer: Option<Peer>, caller: &Caller, method: &Method) -> Option<Response> {
        match (caller, peer) {
            (Caller::Token(_), _) | (_, Some(Peer::User(_))) => None,
            _ => without_token(is_near(peer, &self.trusted), self.has_tokens(), method),
        }
    }
}

/// The answer to a request without a token, where there are no rules. A socket file is guarded by its mode; a TCP port by nothing
/// but what the request says of itself: so a change takes a token, and from other machines everything does.
fn without_token(is_near: bool, has_tokens: bool, method: &Method) -> Option<Response> {
    if is_near && matches!(*method, Method::GET | Method::HEAD) {
        return None;
    }
    if has_tokens {
        return Some(unauthorized(match is_near {
            true => "over TCP a request other than GET needs a token",
            false => "a request from another machine needs a token",
        }));
    }
    let hint = "use the control socket; or set `token_file` under [control] of the daemon's configuration, and send that token \
                as `Authorization: Bearer TOKEN` (`crossdock --help`: --token-file)";
    let message = match is_near {
        true => "over TCP this API only answers GET: no token is configured",
        false => "this API answers no other machines: no token is configured",
    };
    Some(error(StatusCode::FORBIDDEN, message.to_owned(), hint))
}

/// The right that a request takes; `None` for one that everybody has, or that its route checks.
fn action_of(method: &Method, path: &str) -> Option<Action<'static>> {
    let is_one_of = |patterns: &[&str]| patterns.iter().any(|pattern| is_of(path, pattern));
    match *method {
        Method::GET | Method::HEAD if is_one_of(&OPEN) => None,
        Method::GET | Method::HEAD => Some(Action::Read),
        Method::POST if is_one_of(&QUESTIONS) => Some(Action::Read),
        _ if is_one_of(&BY_ROUTE) => None,
        _ => Some(Action::Change),
    }
}

fn unauthorized(message: &str) -> Response {
    let hint = "send the token that `token_file` under [control] or [[access]] of the daemon's configuration holds, as \
                `Authorization: Bearer TOKEN`; commands take it from the file that --token-file names";
    let mut response = error(StatusCode::UNAUTHORIZED, message.to_owned(), hint);
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_rules_readers_of_this_machine_and_of_trusted_networks_need_no_token() {
        let status =
            |is_near, has_tokens, method| without_token(is_near, has_tokens, &method).map(|r| r.status().as_u16());
        for has_tokens in [false, true] {
            assert_eq!(status(true, has_tokens, Method::GET), None);
            let refused = Some(if has_tokens { 401 } else { 403 });
            for (is_near, method) in [(true, Method::POST), (false, Method::GET), (false, Method::POST)] {
                assert_eq!(status(is_near, has_tokens, method), refused);
            }
        }
        let trusted: Vec<Network> = vec!["10.0.0.0/8".parse().unwrap()];
        for (address, near) in
            [("127.0.0.1", true), ("::1", true), ("::ffff:127.0.0.1", true), ("10.1.2.3", true), ("192.0.2.1", false)]
        {
            let peer = Peer::Address(address.parse().ok());
            assert_eq!(is_near(Some(peer), &trusted), near, "{address}");
        }
        assert!(!is_near(None, &trusted) && !is_near(Some(Peer::Address(None)), &trusted));
        assert!(is_near(Some(Peer::User(None)), &[]));
    }

    #[test]
    fn a_request_takes_the_right_of_its_path_and_all_others_that_of_an_administrator() {
        let read = Some(Action::Read);
        for (method, path, action) in [
            ("GET", "/v1/health", None),
            ("HEAD", "/v1/openapi.json", None),
            ("GET", "/v1/streams", read),
            ("GET", "/v1/handlers/late", read),
            ("GET", "/metrics", read),
            ("POST", "/v1/explain", read),
            ("POST", "/v1/access/check", read),
            ("POST", "/v1/handlers", None),
            ("PATCH", "/v1/handlers/late", None),
            ("POST", "/v1/handlers/late/move", None),
            ("POST", "/v1/plan", None),
            ("DELETE", "/v1/conversions", None),
            ("DELETE", "/v1/mailboxes/task", None),
            ("PUT", "/v1/mailboxes/orders/task", Some(Action::Change)),
            ("PUT", "/v1/wanted", Some(Action::Change)),
            ("PUT", "/v1/subscriptions/3", Some(Action::Change)),
            ("POST", "/v1/policy", Some(Action::Change)),
            ("DELETE", "/v1/streams/A", Some(Action::Change)),
            ("POST", "/v1/health", Some(Action::Change)),
            ("POST", "/v1/handlers/", None),
            ("POST", "//v1/handlers", Some(Action::Change)),
        ] {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            assert_eq!(action_of(&method, path), action, "{method} {path}");
        }
    }
}
