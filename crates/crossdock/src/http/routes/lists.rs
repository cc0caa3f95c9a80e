//! The lists that the I/O contexts report of themselves, and `explain`.

use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::extract::{Extension, Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use crossdock_runtime::access::Caller;
use crossdock_runtime::info::ExplainInfo;
use crossdock_runtime::{ContextHandle, ExplainError, SetQueryError};

use super::{answer, ask, ask_long, error, forbidden, query_error, read_body, read_path, refused};
use crate::http::{
    ApiError, Changed, Clients, Contexts, ErrorBody, ExplainRequest, Health, Sessions, Streams, SubscriptionQuery,
    Subscriptions, TableInfos,
};
use crate::version;

/// Whether the daemon is well
#[utoipa::path(
    get, path = "/v1/health", tag = "lists",
    responses(
        (status = 200, body = Health, description = "It is well"),
        (status = "default", body = ErrorBody, description = "What is wrong")
    )
)]
pub(super) async fn health(State(context): State<ContextHandle>) -> Response {
    let health = |context: &ContextHandle| {
        // It is well if it answers at all.
        context.context()?;
        let [status, version, commit] = ["ok", version::VERSION, version::COMMIT].map(str::to_owned);
        Ok(Health { status, version, commit, address: context.local_addr().to_string() })
    };
    answer(ask(context, health).await)
}

/// All streams, in the order in which they were first announced
#[utoipa::path(
    get, path = "/v1/streams", tag = "lists",
    responses(
        (status = 200, body = Streams, description = "The streams"),
        (status = "default", body = ErrorBody, description = "What is wrong")
    )
)]
pub(super) async fn streams(State(context): State<ContextHandle>) -> Response {
    answer(ask(context, |context| Ok(Streams { streams: context.streams()? })).await)
}

/// All reference tables, in the order of the configuration
#[utoipa::path(
    get, path = "/v1/tables", tag = "lists",
    responses(
        (status = 200, body = TableInfos, description = "The tables"),
        (status = "default", body = ErrorBody, description = "What is wrong")
    )
)]
pub(super) async fn tables(State(context): State<ContextHandle>) -> Response {
    answer(ask(context, |context| Ok(TableInfos { tables: context.tables()? })).await)
}

/// All subscriptions, oldest first
#[utoipa::path(
    get, path = "/v1/subscriptions", tag = "lists",
    responses(
        (status = 200, body = Subscriptions, description = "The subscriptions"),
        (status = "default", body = ErrorBody, description = "What is wrong")
    )
)]
pub(super) async fn subscriptions(State(context): State<ContextHandle>) -> Response {
    answer(ask(context, |context| Ok(Subscriptions { subscriptions: context.subscriptions()? })).await)
}

/// Gives a subscription another query while it runs
#[utoipa::path(
    put, path = "/v1/subscriptions/{id}", tag = "lists", request_body = SubscriptionQuery,
    params(("id" = u64, Path, description = "Its number")),
    responses(
        (status = 200, body = Changed, description = "It has the query"),
        (status = 400, body = ErrorBody, description = "What is wrong with the query"),
        (status = 404, body = ErrorBody, description = "There is no such subscription"),
        (status = 409, body = ErrorBody, description = "Why it keeps the query before"),
        (status = "default", body = ErrorBody, description = "What is wrong")
    )
)]
pub(super) async fn set_query(
    State(context): State<ContextHandle>,
    path: Result<Path<u64>, PathRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let wanted = r#"PUT a JSON object to /v1/subscriptions/3, such as {"sql":"SELECT * FROM A"}"#;
    let read = read_path(path, wanted).and_then(|id| Ok((id, read_body::<SubscriptionQuery>(body, wanted)?)));
    let (id, SubscriptionQuery { sql }) = match read {
        Ok(read) => read,
        Err(response) => return *response,
    };
    match ask_long(context, move |context| context.set_subscription_query(id, &sql)).await {
        Ok(Ok(())) => answer(Ok(Changed { note: None })),
        Ok(Err(SetQueryError::UnknownSubscription)) => {
            let hint = "`crossdock subscriptions` lists them";
            error(StatusCode::NOT_FOUND, format!("there is no subscription {id}"), hint)
        }
        Ok(Err(SetQueryError::Query(text))) => {
            let message = text.lines().next().unwrap_or_default().to_owned();
            refused(StatusCode::BAD_REQUEST, ApiError { message, hint: None, text: Some(text) })
        }
        Ok(Err(SetQueryError::Refused(message))) => {
            refused(StatusCode::CONFLICT, ApiError { message, hint: None, text: None })
        }
        Err(response) => response,
    }
}

/// The I/O contexts, by their counters; and all contexts, by what runs there
#[utoipa::path(
    get, path = "/v1/contexts", tag = "lists",
    responses(
        (status = 200, body = Contexts, description = "The contexts"),
        (status = "default", body = ErrorBody, description = "What is wrong")
    )
)]
pub(super) async fn contexts(State(context): State<ContextHandle>) -> Response {
    let contexts = |context: &ContextHandle| {
        let manager = context.manager();
        Ok(Contexts { contexts: vec![context.context()?], platform: manager.contexts()?, control: manager.control() })
    };
    answer(ask(context, contexts).await)
}

/// All sessions over packets
#[utoipa::path(
    get, path = "/v1/sessions", tag = "lists",
    responses(
        (status = 200, body = Sessions, description = "The sessions"),
        (status = "default", body = ErrorBody, description = "What is wrong")
    )
)]
pub(super) async fn sessions(State(context): State<ContextHandle>) -> Response {
    answer(ask(context, |context| Ok(Sessions { sessions: context.sessions()? })).await)
}

/// All processes that are attached by shared memory
#[utoipa::path(
    get, path = "/v1/clients", tag = "lists",
    responses(
        (status = 200, body = Clients, description = "The clients"),
        (status = "default", body = ErrorBody, description = "What is wrong")
    )
)]
pub(super) async fn clients(State(context): State<ContextHandle>) -> Response {
    answer(ask(context, |context| Ok(Clients { clients: context.clients()? })).await)
}

/// How a query would run, and what that would cost
#[utoipa::path(
    post, path = "/v1/explain", tag = "lists", request_body = ExplainRequest,
    responses(
        (status = 200, body = ExplainInfo, description = "The plan"),
        (status = 400, body = ErrorBody, description = "What is wrong with the query"),
        (status = "default", body = ErrorBody, description = "What is wrong")
    )
)]
pub(super) async fn explain(
    State(context): State<ContextHandle>,
    Extension(caller): Extension<Caller>,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let request: ExplainRequest = match read_body(body, r#"POST a JSON object, such as {"sql":"SELECT * FROM A"}"#) {
        Ok(request) => request,
        Err(response) => return *response,
    };
    match ask_long(context, move |context| context.explain_for(&caller, &request.sql, &request.accept)).await {
        Ok(Ok(plan)) => answer(Ok(plan)),
        Ok(Err(ExplainError::Query(refusal))) => query_error(&refusal),
        Ok(Err(ExplainError::Format(why))) => {
            error(StatusCode::BAD_REQUEST, why, "`crossdock formats` lists those that are known")
        }
        Ok(Err(ExplainError::Denied(denial))) => forbidden(&denial),
        Err(response) => answer::<()>(Err(response)),
    }
}
