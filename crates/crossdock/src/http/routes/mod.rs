//! Every route of the API, and the OpenAPI document, which is made of the same list.

mod access;
mod analyze;
mod formats;
mod lists;
mod mailboxes;
mod platform;

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Path, Query};
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use crossdock_query::QueryError;
use crossdock_runtime::access::Denial;
use crossdock_runtime::{ContextHandle, Stopped};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use utoipa::Modify;
use utoipa::openapi::OpenApi;
use utoipa::openapi::path::PathItem;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{ApiError, Changed, ErrorBody};

/// Longest body of a request: a query of any length that a person writes, or some hundred handlers.
pub(super) const MAX_BODY_BYTES: usize = 256 << 10;

/// Changes, and other requests that may take long, that are worked on at a time; others wait, and take no thread from lists.
pub(super) const MOST_CHANGES: usize = 4;
static CHANGES: Semaphore = Semaphore::const_new(MOST_CHANGES);

/// The head of the document.
#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Crossdock",
        description = "The daemon's lists, and what is deployed on it. It is served on a Unix socket and, if configured, on \
                       TCP, where any request but GET, and any from another machine, takes a token. Every error is answered with an \
                       `ErrorBody` and a fitting status."
    ),
    modifiers(&Tokens),
    tags(
        (name = "lists", description = "Lists of the daemon's objects"),
        (name = "formats", description = "Formats of streams, and conversions between them"),
        (name = "mailboxes", description = "Mailboxes, and the tasks that read them"),
        (name = "platform", description = "Handlers: what is deployed, where it runs, how that is changed"),
        (name = "api", description = "The API itself")
    )
)]
struct Head;

/// The name of the token in the document.
const TOKEN: &str = "token";

/// Describes the token.
struct Tokens;

impl Modify for Tokens {
    fn modify(&self, document: &mut OpenApi) {
        let description = "The content of `token_file` under [control] or [[access]] of the daemon's configuration. It is needed \
                           over TCP for any request but GET, for any from another machine, and, where there are access rules, for what they do not leave to \
                           everybody; never on the Unix socket.";
        let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(description)).build();
        document.components.get_or_insert_default().add_security_scheme(TOKEN, SecurityScheme::Http(scheme));
    }
}

/// The routes, each with its description.
fn described() -> OpenApiRouter<ContextHandle> {
    OpenApiRouter::with_openapi(<Head as utoipa::OpenApi>::openapi())
        .routes(routes!(lists::health))
        .routes(routes!(lists::streams))
        .routes(routes!(lists::tables))
        .routes(routes!(lists::subscriptions))
        .routes(routes!(lists::set_query))
        .routes(routes!(analyze::subscription))
        .routes(routes!(analyze::handler))
        .routes(routes!(lists::contexts))
        .routes(routes!(lists::sessions))
        .routes(routes!(lists::clients))
        .routes(routes!(mailboxes::mailboxes, mailboxes::create))
        .routes(routes!(mailboxes::remove))
        .routes(routes!(mailboxes::start_task, mailboxes::end_task))
        .routes(routes!(lists::explain))
        .routes(routes!(access::rules))
        .routes(routes!(access::check))
        .routes(routes!(formats::formats))
        .routes(routes!(formats::conversions, formats::keep_conversion, formats::discard_conversion))
        .routes(routes!(formats::paths))
        .routes(routes!(formats::check_format))
        .routes(routes!(formats::set_policy))
        .routes(routes!(formats::remove_stream))
        .routes(routes!(formats::remove_version))
        .routes(routes!(platform::set_state, platform::remove_state))
        .routes(routes!(platform::handlers, platform::deploy))
        .routes(routes!(platform::handler, platform::swap, platform::set_parameters, platform::remove))
        .routes(routes!(platform::move_handler))
        .routes(routes!(platform::wanted, platform::set_wanted))
        .routes(routes!(platform::plan))
        .routes(routes!(platform::events))
        .routes(routes!(platform::history))
        .routes(routes!(super::metrics::metrics))
        .routes(routes!(openapi))
}

/// The routes, and the document that describes them.
fn parts() -> (Router<ContextHandle>, OpenApi) {
    let (router, mut document) = described().split_for_parts();
    for item in document.paths.paths.values_mut() {
        let PathItem { post, put, patch, delete, .. } = item;
        for operation in [post, put, patch, delete].into_iter().flatten() {
            // None on the Unix socket.
            let none = SecurityRequirement::default();
            operation.security = Some(vec![none, SecurityRequirement::new(TOKEN, [""; 0])]);
        }
    }
    (router, document)
}

/// Every route of the API.
pub(super) fn routes(context: ContextHandle) -> Router {
    let (router, document) = parts();
    let paths: Vec<(String, String)> =
        document.paths.paths.into_iter().map(|(path, item)| (path, methods_of(&item).join(" or "))).collect();
    let known: Vec<&str> = paths.iter().map(|(path, _)| path.as_str()).collect();
    let known = format!("known: {}", known.join(", "));
    router
        .fallback(async move |uri: Uri| {
            error(StatusCode::NOT_FOUND, format!("there is nothing at {}", uri.path()), &known)
        })
        .method_not_allowed_fallback(async move |method: Method, uri: Uri| {
            let path = uri.path();
            let methods = paths.iter().find(|(pattern, _)| is_of(path, pattern)).map_or("GET", |(_, methods)| methods);
            error(StatusCode::METHOD_NOT_ALLOWED, format!("{path} does not take {method}"), &format!("use {methods}"))
        })
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .with_state(context)
}

/// The API's description of itself: OpenAPI 3.1
#[utoipa::path(
    get, path = "/v1/openapi.json", tag = "api",
    responses(
        (status = 200, body = Object, description = "This document"),
        (status = "default", body = ErrorBody, description = "What is wrong")
    )
)]
async fn openapi() -> Response {
    respond(StatusCode::OK, &parts().1)
}

/// The methods that a path takes.
fn methods_of(item: &PathItem) -> Vec<&'static str> {
    let operations = [
        ("GET", &item.get),
        ("POST", &item.post),
        ("PUT", &item.put),
        ("PATCH", &item.patch),
        ("DELETE", &item.delete),
    ];
    operations.into_iter().filter(|(_, operation)| operation.is_some()).map(|(method, _)| method).collect()
}

/// Whether a path is one of those that a pattern stands for, in which `{name}` is any one segment.
pub(super) fn is_of(path: &str, pattern: &str) -> bool {
    let (mut path, mut pattern) = (path.split('/'), pattern.split('/'));
    loop {
        match (path.next(), pattern.next()) {
            (None, None) => return true,
            (Some(segment), Some(wanted)) if wanted.starts_with('{') || segment == wanted => {}
            _ => return false,
        }
    }
}

/// Asks the context, in a thread that may wait: it answers between two batches.
pub(super) async fn ask<T, F>(context: ContextHandle, question: F) -> Result<T, Response>
where
    T: Send + 'static,
    F: FnOnce(&ContextHandle) -> Result<T, Stopped> + Send + 'static,
{
    answered(tokio::task::spawn_blocking(move || question(&context))).await
}

/// The same of a question whose answer may take long, such as a change: it waits for its turn without a thread.
pub(super) async fn ask_long<T, F>(context: ContextHandle, question: F) -> Result<T, Response>
where
    T: Send + 'static,
    F: FnOnce(&ContextHandle) -> Result<T, Stopped> + Send + 'static,
{
    // Never closed. It lasts until the answer, also if the client goes before.
    let turn = CHANGES.acquire().await;
    let question = move || {
        let _turn = turn;
        question(&context)
    };
    answered(tokio::task::spawn_blocking(question)).await
}

async fn answered<T>(question: JoinHandle<Result<T, Stopped>>) -> Result<T, Response> {
    match question.await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(stopped)) => {
            let hint = match stopped.is_stuck() {
                true => "see `crossdock contexts` and the daemon's log",
                false => "the daemon is ending; start it again",
            };
            Err(error(StatusCode::SERVICE_UNAVAILABLE, stopped.to_string(), hint))
        }
        Err(failed) => Err(error(StatusCode::INTERNAL_SERVER_ERROR, failed.to_string(), "see the daemon's log")),
    }
}

/// The value of a request's body.
fn read_body<T: DeserializeOwned>(body: Result<Bytes, BytesRejection>, wanted: &str) -> Result<T, Box<Response>> {
    let body = body.map_err(|rejection| Box::new(error(rejection.status(), rejection.body_text(), wanted)))?;
    let read = serde_json::from_slice(&body);
    read.map_err(|why| Box::new(error(StatusCode::BAD_REQUEST, format!("the request is invalid: {why}"), wanted)))
}

/// The values behind the `?` of a request.
fn read_query<T>(query: Result<Query<T>, QueryRejection>, wanted: &str) -> Result<T, Box<Response>> {
    let read = query.map(|Query(query)| query);
    read.map_err(|rejection| Box::new(error(rejection.status(), rejection.body_text(), wanted)))
}

/// The values in a request's path.
fn read_path<T>(path: Result<Path<T>, PathRejection>, wanted: &str) -> Result<T, Box<Response>> {
    let read = path.map(|Path(path)| path);
    read.map_err(|rejection| Box::new(error(rejection.status(), rejection.body_text(), wanted)))
}

/// The notice on state that is kept where that does not outlive the daemon.
fn lasting(context: &ContextHandle) -> Option<String> {
    let note =
        "it lasts as long as this daemon: to have it outlive that, set `state_dir` in [morph] of the configuration";
    (!context.keeps_state()).then(|| note.to_owned())
}

/// The answer to a request that the access rules refuse.
pub(super) fn forbidden(denial: &Denial) -> Response {
    error(StatusCode::FORBIDDEN, denial.to_string(), "`crossdock access list` shows the rules in force")
}

/// Nothing, if the access rules allow what was asked; otherwise the answer.
fn admitted(outcome: Result<Result<(), Denial>, Response>) -> Result<(), Box<Response>> {
    match outcome {
        Ok(Ok(())) => Ok(()),
        Ok(Err(denial)) => Err(Box::new(forbidden(&denial))),
        Err(response) => Err(Box::new(response)),
    }
}

fn changed(outcome: Result<Result<(), String>, Response>, note: Option<String>) -> Response {
    match outcome {
        Ok(Ok(())) => answer(Ok(Changed { note })),
        Ok(Err(message)) => refused(StatusCode::BAD_REQUEST, ApiError { message, hint: None, text: None }),
        Err(response) => response,
    }
}

fn answer<T: Serialize>(outcome: Result<T, Response>) -> Response {
    match outcome {
        Ok(value) => respond(StatusCode::OK, &value),
        Err(response) => response,
    }
}

fn query_error(refusal: &QueryError) -> Response {
    let text = Some(refusal.to_string());
    refused(StatusCode::BAD_REQUEST, ApiError { message: refusal.message.clone(), hint: refusal.hint.clone(), text })
}

/// An error with what would correct it.
pub(super) fn error(status: StatusCode, message: String, hint: &str) -> Response {
    refused(status, ApiError { message, hint: Some(hint.to_owned()), text: None })
}

/// An error as it is answered.
pub(super) fn refused(status: StatusCode, error: ApiError) -> Response {
    respond(status, &ErrorBody { error, plan: None })
}

fn respond(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => (status, [(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::server::MOST_WAITING;
    use crossdock_runtime::ContextConfig;
    use std::sync::mpsc::Receiver;
    use std::sync::{Arc, Mutex};

    /// A request that takes longer than this does not come at all.
    const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

    #[test]
    fn a_path_is_named_by_its_pattern() {
        assert!(is_of("/v1/handlers", "/v1/handlers") && is_of("/v1/handlers/a", "/v1/handlers/{name}"));
        assert!(is_of("/v1/handlers/a/move", "/v1/handlers/{name}/move"));
        for path in ["/v1/handlers", "/v1/handlers/a/b", "/v1/other/a", ""] {
            assert!(!is_of(path, "/v1/handlers/{name}"), "{path}");
        }
    }

    #[test]
    fn changes_that_take_long_leave_lists_their_threads() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .max_blocking_threads(MOST_WAITING)
            .build()
            .unwrap();
        let listen = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        let context = ContextHandle::start(ContextConfig { listen, ..ContextConfig::default() }).unwrap();
        let (let_go, waits) = std::sync::mpsc::channel::<()>();
        let waits = Arc::new(Mutex::new(waits));
        let change = |waits: Arc<Mutex<Receiver<()>>>| {
            tokio::spawn(ask_long(context.clone(), move |_| {
                let _ = waits.lock().map(|waits| waits.recv());
                Ok(())
            }))
        };
        runtime.block_on(async {
            let changes: Vec<_> = (0..2 * MOST_WAITING).map(|_| change(Arc::clone(&waits))).collect();
            // They have their turn before this one.
            tokio::task::yield_now().await;
            let list = ask(context.clone(), ContextHandle::streams);
            assert!(tokio::time::timeout(PATIENCE, list).await.is_ok_and(|list| list.is_ok()));
            assert!(changes.iter().all(|change| !change.is_finished()));
            drop(let_go);
            for change in changes {
                change.await.unwrap().unwrap();
            }
        });
        context.stop().unwrap();
    }

    #[test]
    fn every_operation_of_the_document_is_described_and_has_an_answer_and_an_error() {
        let document = serde_json::to_value(parts().1).unwrap();
        assert!(document["openapi"].as_str().is_some_and(|version| version.starts_with("3.1")));
        let paths = document["paths"].as_object().unwrap();
        for (path, item) in paths {
            for (method, operation) in item.as_object().unwrap() {
                let said = operation["summary"].as_str().unwrap_or_default();
                assert!(!said.is_empty() && operation["tags"][0].is_string(), "{method} {path}");
                let responses = operation["responses"].as_object().unwrap();
                assert!(responses.contains_key("200") && responses.contains_key("default"), "{method} {path}");
                let security = serde_json::json!([{}, { "token": [] }]);
                assert_eq!(operation.get("security"), (method != "get").then_some(&security), "{method} {path}");
            }
        }
        assert_eq!(document["components"]["securitySchemes"]["token"]["scheme"], "bearer");
        // A schema that is referred to and not there would leave whoever reads the document with a loose end.
        let text = document.to_string();
        let referred = text.split("#/components/schemas/").skip(1).filter_map(|rest| rest.split('"').next());
        for name in referred {
            assert!(document["components"]["schemas"][name].is_object(), "{name}");
        }
    }
}
