//! `explain analyze`: the operators of what runs, with their counts.

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use crossdock_runtime::ContextHandle;
use crossdock_runtime::info::AnalyzeInfo;

use super::{answer, ask, error, read_path};
use crate::http::ErrorBody;

/// The operators of a running subscription, with their counts
#[utoipa::path(
    get, path = "/v1/subscriptions/{id}/analyze", tag = "lists",
    params(("id" = u64, Path, description = "Its number")),
    responses(
        (status = 200, body = AnalyzeInfo, description = "The operators, the output first"),
        (status = 404, body = ErrorBody, description = "There is no such subscription"),
        (status = "default", body = ErrorBody, description = "What is wrong")
    )
)]
pub(super) async fn subscription(
    State(context): State<ContextHandle>,
    path: Result<Path<u64>, PathRejection>,
) -> Response {
    let id = match read_path(path, "GET /v1/subscriptions/3/analyze") {
        Ok(id) => id,
        Err(response) => return *response,
    };
    let found = ask(context, move |context| context.analyze_subscription(id)).await;
    shown(found, || (format!("there is no subscription {id}"), "`crossdock subscriptions` lists them"))
}

/// The operators of a deployed handler, with their counts
#[utoipa::path(
    get, path = "/v1/handlers/{name}/analyze", tag = "platform",
    params(("name" = String, Path, description = "Its name")),
    responses(
        (status = 200, body = AnalyzeInfo, description = "The operators, the output first"),
        (status = 404, body = ErrorBody, description = "No handler has that name"),
        (status = "default", body = ErrorBody, description = "What is wrong")
    )
)]
pub(super) async fn handler(State(context): State<ContextHandle>, Path(name): Path<String>) -> Response {
    let asked = name.clone();
    let found = ask(context, move |context| context.analyze_handler(&asked)).await;
    shown(found, || (format!("there is no handler `{name}`"), "`crossdock handlers` lists them"))
}

fn shown(found: Result<Option<AnalyzeInfo>, Response>, missing: impl FnOnce() -> (String, &'static str)) -> Response {
    match found {
        Ok(Some(info)) => answer(Ok(info)),
        Ok(None) => {
            let (message, hint) = missing();
            error(StatusCode::NOT_FOUND, message, hint)
        }
        Err(response) => answer::<()>(Err(response)),
    }
}
