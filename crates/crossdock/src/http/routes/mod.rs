//! Every route of the API, and the OpenAPI document, which is made of the same list.

mod formats;
mod lists;
mod platform;

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Query};
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use crossdock_query::QueryError;
use crossdock_runtime::{ContextHandle, Stopped};
use serde::Serialize;
use serde::de::DeserializeOwned;
use utoipa::OpenApi;
use utoipa::openapi::path::PathItem;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{ApiError, Changed, ErrorBody};

/// Longest body of a request: a query of any length that a person writes, or some hundred handlers.
const MAX_BODY_BYTES: usize = 256 << 10;

/// What stands at the document's head.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Crossdock",
        description = "The daemon's lists, and what is deployed on it. It is served on a Unix socket and, if configured, on \
                       loopback TCP. Whatever goes wrong is answered by an `ErrorBody` with a fitting status."
    ),
    tags(
        (name = "lists", description = "What is there"),
        (name = "formats", description = "Formats of streams, and conversions between them"),
        (name = "platform", description = "Handlers: what is deployed, where it runs, how that is changed"),
        (name = "api", description = "The API itself")
    )
)]
struct Head;

/// The routes, each with its description.
fn described() -> OpenApiRouter<ContextHandle> {
    OpenApiRouter::with_openapi(Head::openapi())
        .routes(routes!(lists::health))
        .routes(routes!(lists::streams))
        .routes(routes!(lists::subscriptions))
        .routes(routes!(lists::contexts))
        .routes(routes!(lists::clients))
        .routes(routes!(lists::mailboxes))
        .routes(routes!(lists::explain))
        .routes(routes!(formats::formats))
        .routes(routes!(formats::conversions, formats::keep_conversion, formats::discard_conversion))
        .routes(routes!(formats::paths))
        .routes(routes!(formats::check_format))
        .routes(routes!(formats::set_policy))
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

/// Every route of the API.
pub(super) fn routes(context: ContextHandle) -> Router {
    let (router, document) = described().split_for_parts();
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
    respond(StatusCode::OK, &described().split_for_parts().1)
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
fn is_of(path: &str, pattern: &str) -> bool {
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
    let answered = tokio::task::spawn_blocking(move || question(&context)).await;
    match answered {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(stopped)) => {
            Err(error(StatusCode::SERVICE_UNAVAILABLE, stopped.to_string(), "the daemon is ending; start it again"))
        }
        Err(failed) => Err(error(StatusCode::INTERNAL_SERVER_ERROR, failed.to_string(), "see the daemon's log")),
    }
}

/// What a request's body says.
fn read_body<T: DeserializeOwned>(body: Result<Bytes, BytesRejection>, wanted: &str) -> Result<T, Box<Response>> {
    let body = body.map_err(|rejection| Box::new(error(rejection.status(), rejection.body_text(), wanted)))?;
    let read = serde_json::from_slice(&body);
    read.map_err(|why| Box::new(error(StatusCode::BAD_REQUEST, format!("not such a request: {why}"), wanted)))
}

/// What stands behind the `?` of a request.
fn read_query<T>(query: Result<Query<T>, QueryRejection>, wanted: &str) -> Result<T, Box<Response>> {
    let read = query.map(|Query(query)| query);
    read.map_err(|rejection| Box::new(error(rejection.status(), rejection.body_text(), wanted)))
}

/// What is to be known of what is kept where that does not outlive the daemon.
fn lasting(context: &ContextHandle) -> Option<String> {
    let note =
        "it lasts as long as this daemon: to have it outlive that, set `state_dir` in [morph] of the configuration";
    (!context.keeps_state()).then(|| note.to_owned())
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

/// An error with what would mend it.
pub(super) fn error(status: StatusCode, message: String, hint: &str) -> Response {
    refused(status, ApiError { message, hint: Some(hint.to_owned()), text: None })
}

fn refused(status: StatusCode, error: ApiError) -> Response {
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

    #[test]
    fn a_path_is_named_by_its_pattern() {
        assert!(is_of("/v1/handlers", "/v1/handlers") && is_of("/v1/handlers/a", "/v1/handlers/{name}"));
        assert!(is_of("/v1/handlers/a/move", "/v1/handlers/{name}/move"));
        for path in ["/v1/handlers", "/v1/handlers/a/b", "/v1/other/a", ""] {
            assert!(!is_of(path, "/v1/handlers/{name}"), "{path}");
        }
    }

    #[test]
    fn every_operation_of_the_document_is_described_and_has_an_answer_and_an_error() {
        let document = serde_json::to_value(described().split_for_parts().1).unwrap();
        assert!(document["openapi"].as_str().is_some_and(|version| version.starts_with("3.1")));
        let paths = document["paths"].as_object().unwrap();
        for (path, item) in paths {
            for (method, operation) in item.as_object().unwrap() {
                let said = operation["summary"].as_str().unwrap_or_default();
                assert!(!said.is_empty() && operation["tags"][0].is_string(), "{method} {path}");
                let responses = operation["responses"].as_object().unwrap();
                assert!(responses.contains_key("200") && responses.contains_key("default"), "{method} {path}");
            }
        }
        // A schema that is referred to and not there would leave whoever reads the document with a loose end.
        let text = document.to_string();
        let referred = text.split("#/components/schemas/").skip(1).filter_map(|rest| rest.split('"').next());
        for name in referred {
            assert!(document["components"]["schemas"][name].is_object(), "{name}");
        }
    }
}
