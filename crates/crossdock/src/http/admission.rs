//! The caller of each request, and the part of the API that the access rules leave it. Routes whose right depends on a name in the
//! request check that themselves.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use crossdock_runtime::ContextHandle;
use crossdock_runtime::access::{Action, Caller};

use super::connections::Peer;
use super::routes::{error, forbidden, is_of};
use super::token::Tokens;

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

/// The daemon, and the tokens of its callers.
#[derive(Clone)]
pub(super) struct Admission {
    pub(super) context: ContextHandle,
    pub(super) tokens: Arc<Tokens>,
}

/// Names the caller, and answers a request that the rules refuse.
pub(super) async fn admit(State(admission): State<Admission>, mut request: Request, next: Next) -> Response {
    let Admission { context, tokens } = admission;
    let peer = request.extensions().get::<Peer>().copied();
    let caller = match peer {
        Some(Peer::User(Some(uid))) => Caller::User(uid),
        Some(Peer::Address(_)) if request.headers().contains_key(header::AUTHORIZATION) => {
            match tokens.name_in(request.headers()) {
                Some(name) => Caller::Token(name),
                // Without rules a wrong token matters to changes only, which are checked by themselves.
                None if context.access().rules().is_none() => Caller::Unknown,
                None => return wrong_token(),
            }
        }
        _ => Caller::Unknown,
    };
    if let Some(action) = action_of(request.method(), request.uri().path())
        && let Err(denial) = context.access().admit(&caller, action)
    {
        return forbidden(&denial);
    }
    request.extensions_mut().insert(caller);
    next.run(request).await
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

/// The answer to a request with a token that is none of the daemon's.
pub(super) fn wrong_token() -> Response {
    unauthorized("the request's token is not the daemon's")
}

/// The answer to a change over TCP without a token.
pub(super) fn no_token() -> Response {
    unauthorized("over TCP a request other than GET needs a token")
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
