//! Handlers: what is deployed, where it runs, how that is changed, what happened.

use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{Extension, Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use crossdock_runtime::access::Caller;
use crossdock_runtime::info::{HandlerInfo, PlanInfo};
use crossdock_runtime::{ChangeRequest, ContextHandle, HandlerSpec, StateSpec, Stopped};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{answer, ask, ask_long, error, forbidden, lasting, read_body, read_query, respond};
use crate::http::follow::follow;
use crate::http::{
    ApiError, ChangeAnswer, ErrorBody, Events, Handlers, History, MoveRequest, SetRequest, Wanted, did_you_mean,
    indented,
};

/// An example of a handler.
const A_HANDLER: &str = r#"give a JSON object, such as {"name":"late","sql":"SELECT * FROM A WHERE dep_delay > 15"}"#;
/// The options behind the `?` of a change.
const OPTIONS: &str = "a change takes ?dry_run=true and ?discard_state=true";

/// How a change is made.
#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct ChangeOptions {
    /// Whether a handler's state may be lost where its next version cannot take it.
    #[param(default = false, required = false)]
    discard_state: bool,
    /// Says what would change, and changes nothing.
    #[param(default = false, required = false)]
    dry_run: bool,
}

/// Which events are wanted.
#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct EventOptions {
    /// Only those after this number.
    #[param(default = 0, required = false)]
    after: u64,
    /// Goes on with those that come, as an object a line (`application/x-ndjson`), until the client has enough.
    #[param(default = false, required = false)]
    follow: bool,
}

/// All handlers, by name
#[utoipa::path(
    get, path = "/v1/handlers", tag = "platform",
    responses(
        (status = 200, body = Handlers, description = "The handlers"),
        (status = "default", body = ErrorBody, description = "What is wrong")
    )
)]
pub(super) async fn handlers(State(context): State<ContextHandle>) -> Response {
    answer(ask(context, |context| Ok(Handlers { handlers: all(context)? })).await)
}

/// All handlers. Where there are access rules, without their first row errors: these have values of records, which are not for all
/// that may read lists.
fn all(context: &ContextHandle) -> Result<Vec<HandlerInfo>, Stopped> {
    let mut handlers = context.manager().handlers()?;
    if context.access().rules().is_some() {
        handlers.iter_mut().for_each(|handler| handler.first_row_error = None);
    }
    Ok(handlers)
}

/// One handler
#[utoipa::path(
    get, path = "/v1/handlers/{name}", tag = "platform", params(("name" = String, Path, description = "Its name")),
    responses(
        (status = 200, body = HandlerInfo, description = "The handler"),
        (status = 404, body = ErrorBody, description = "No handler has that name"),
        (status = "default", body = ErrorBody, description = "What is wrong")
    )
)]
pub(super) async fn handler(State(context): State<ContextHandle>, Path(name): Path<String>) -> Response {
    match ask(context, all).await {
        Ok(mut handlers) => match handlers.iter().position(|handler| handler.name == name) {
            Some(at) => answer(Ok(handlers.swap_remove(at))),
            None => unknown(&name, handlers.iter().map(|handler| handler.name.as_str())),
        },
        Err(response) => response,
    }
}

/// Deploys a new handler
#[utoipa::path(
    post, path = "/v1/handlers", tag = "platform", request_body = HandlerSpec, params(ChangeOptions),
    responses(
        (status = 200, body = ChangeAnswer, description = "The changes"),
        (status = 409, body = ErrorBody, description = "Why it is refused; nothing has changed, unless the plan \
                                                        `is_begun`"),
        (status = "default", body = ErrorBody, description = "What is wrong")
    )
)]
pub(super) async fn deploy(
    State(context): State<ContextHandle>,
    Extension(caller): Extension<Caller>,
    options: Result<Query<ChangeOptions>, QueryRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    match read(options, body, A_HANDLER) {
        Ok((options, spec)) => change((context, caller), None, ChangeRequest::Deploy(spec), options).await,
        Err(response) => *response,
    }
}

/// Replaces a handler by its next version
#[utoipa::path(
    put, path = "/v1/handlers/{name}", tag = "platform", request_body = HandlerSpec,
    params(("name" = String, Path, description = "Its name"), ChangeOptions),
    responses(
        (status = 200, body = ChangeAnswer, description = "The changes"),
        (status = 404, body = ErrorBody, description = "No handler has that name"),
        (status = 409, body = ErrorBody, description = "Why it is refused; nothing has changed, unless the plan \
                                                        `is_begun`"),
        (status = "default", body = ErrorBody, description = "What is wrong")
    )
)]
pub(super) async fn swap(
    State(context): State<ContextHandle>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    options: Result<Query<ChangeOptions>, QueryRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let (options, mut spec): (_, HandlerSpec) = match read(options, body, A_HANDLER) {
        Ok(read) => read,
        Err(response) => return *response,
    };
    if spec.name.is_empty() {
        spec.name.clone_from(&name);
    } else if spec.name != name {
        let message = format!("the body is of handler `{}`, the path of `{name}`", spec.name);
        return error(StatusCode::BAD_REQUEST, message, "a swap keeps the name; leave it out of the body");
    }
    change((context, caller), Some(name), ChangeRequest::Swap(spec), options).await
}

/// Sets some of a handler's parameters
#[utoipa::path(
    patch, path = "/v1/handlers/{name}", tag = "platform", request_body = SetRequest,
    params(("name" = String, Path, description = "Its name"), ChangeOptions),
    responses(
        (status = 200, body = ChangeAnswer, description = "The changes"),
        (status = 404, body = ErrorBody, description = "No handler has that name"),
        (status = 409, body = ErrorBody, description = "Why it is refused; nothing has changed, unless the plan \
                                                        `is_begun`"),
        (status = "default", body = ErrorBody, description = "What is wrong")
    )
)]
pub(super) async fn set_parameters(
    State(context): State<ContextHandle>,
    Extension(caller): Extension<Caller>,
    Path(handler): Path<String>,
    options: Result<Query<ChangeOptions>, QueryRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    match read(options, body, r#"give a JSON object, such as {"parameters":{"minutes":"30"}}"#) {
        Ok((options, SetRequest { parameters })) => {
            change(
                (context, caller),
                Some(handler.clone()),
                ChangeRequest::SetParameters { handler, parameters },
                options,
            )
            .await
        }
        Err(response) => *response,
    }
}

/// Takes a handler out
#[utoipa::path(
    delete, path = "/v1/handlers/{name}", tag = "platform",
    params(("name" = String, Path, description = "Its name"), ChangeOptions),
    responses(
        (status = 200, body = ChangeAnswer, description = "The changes"),
        (status = 404, body = ErrorBody, description = "No handler has that name"),
        (status = 409, body = ErrorBody, description = "Why it is refused; nothing has changed, unless the plan \
                                                        `is_begun`"),
        (status = "default", body = ErrorBody, description = "What is wrong")
    )
)]
pub(super) async fn remove(
    State(context): State<ContextHandle>,
    Extension(caller): Extension<Caller>,
    Path(handler): Path<String>,
    options: Result<Query<ChangeOptions>, QueryRejection>,
) -> Response {
    match read_query(options, OPTIONS) {
        Ok(options) => {
            change((context, caller), Some(handler.clone()), ChangeRequest::Remove { handler }, options).await
        }
        Err(response) => *response,
    }
}

/// Moves a handler to a context, or to where it fits best
#[utoipa::path(
    post, path = "/v1/handlers/{name}/move", tag = "platform", request_body = MoveRequest,
    params(("name" = String, Path, description = "Its name"), ChangeOptions),
    responses(
        (status = 200, body = ChangeAnswer, description = "The changes"),
        (status = 404, body = ErrorBody, description = "No handler has that name"),
        (status = 409, body = ErrorBody, description = "Why it is refused; nothing has changed, unless the plan \
                                                        `is_begun`"),
        (status = "default", body = ErrorBody, description = "What is wrong")
    )
)]
pub(super) async fn move_handler(
    State(context): State<ContextHandle>,
    Extension(caller): Extension<Caller>,
    Path(handler): Path<String>,
    options: Result<Query<ChangeOptions>, QueryRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    match read(options, body, r#"give a JSON object, such as {"place":"g-core-0"}, or {} for where it fits best"#) {
        Ok((options, MoveRequest { place })) => {
            change((context, caller), Some(handler.clone()), ChangeRequest::Move { handler, place }, options).await
        }
        Err(response) => *response,
    }
}

/// The wanted state: all handlers' specifications, by name
#[utoipa::path(
    get, path = "/v1/wanted", tag = "platform",
    responses(
        (status = 200, body = Wanted, description = "The wanted state"),
        (status = "default", body = ErrorBody, description = "What is wrong")
    )
)]
pub(super) async fn wanted(State(context): State<ContextHandle>) -> Response {
    answer(ask(context, |context| Ok(Wanted { handlers: context.manager().specs()? })).await)
}

/// Comes to these handlers and no others: all of it, or nothing changes
#[utoipa::path(
    put, path = "/v1/wanted", tag = "platform", request_body = Wanted, params(ChangeOptions),
    responses(
        (status = 200, body = ChangeAnswer, description = "The changes"),
        (status = 409, body = ErrorBody, description = "Why it is refused; nothing has changed, unless the plan \
                                                        `is_begun`"),
        (status = "default", body = ErrorBody, description = "What is wrong")
    )
)]
pub(super) async fn set_wanted(
    State(context): State<ContextHandle>,
    Extension(caller): Extension<Caller>,
    options: Result<Query<ChangeOptions>, QueryRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    match read(options, body, r#"give a JSON object, such as {"handlers":[{"name":"late","sql":"SELECT * FROM A"}]}"#) {
        Ok((options, Wanted { handlers })) => {
            change((context, caller), None, ChangeRequest::All(handlers), options).await
        }
        Err(response) => *response,
    }
}

/// Changes of a plan that is not carried out
#[utoipa::path(
    post, path = "/v1/plan", tag = "platform", request_body = ChangeRequest, params(ChangeOptions),
    responses(
        (status = 200, body = ChangeAnswer, description = "The changes that would be made, or why they are refused"),
        (status = "default", body = ErrorBody, description = "What is wrong")
    )
)]
pub(super) async fn plan(
    State(context): State<ContextHandle>,
    Extension(caller): Extension<Caller>,
    options: Result<Query<ChangeOptions>, QueryRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    match read(options, body, r#"give a JSON object, such as {"deploy":{"name":"late","sql":"SELECT * FROM A"}}"#) {
        Ok((options, request)) => {
            change((context, caller), None, request, ChangeOptions { dry_run: true, ..options }).await
        }
        Err(response) => *response,
    }
}

/// Events of the platform, oldest first; the last thousand events are kept
#[utoipa::path(
    get, path = "/v1/events", tag = "platform", params(EventOptions),
    responses(
        (status = 200, description = "The events", content(
            (Events = "application/json"),
            (crossdock_runtime::info::EventInfo = "application/x-ndjson"),
        )),
        (status = "default", body = ErrorBody, description = "What is wrong")
    )
)]
pub(super) async fn events(
    State(context): State<ContextHandle>,
    options: Result<Query<EventOptions>, QueryRejection>,
) -> Response {
    match read_query(options, "events take ?after=NUMBER and ?follow=true") {
        Ok(EventOptions { after, follow: true }) => follow(context, after),
        Ok(EventOptions { after, .. }) => {
            answer(ask(context, move |context| Ok(Events { events: context.manager().events(after)? })).await)
        }
        Err(response) => *response,
    }
}

/// Declares the key of a stream, whose last record by key is kept from then on, or other bounds of that
#[utoipa::path(
    put, path = "/v1/streams/{name}/state", tag = "platform", request_body = StateSpec,
    params(("name" = String, Path, description = "The stream's name"), ChangeOptions),
    responses(
        (status = 200, body = ChangeAnswer, description = "The changes"),
        (status = 409, body = ErrorBody, description = "Why it is refused; nothing has changed, unless the plan \
                                                        `is_begun`"),
        (status = "default", body = ErrorBody, description = "What is wrong")
    )
)]
pub(super) async fn set_state(
    State(context): State<ContextHandle>,
    Extension(caller): Extension<Caller>,
    Path(stream): Path<String>,
    options: Result<Query<ChangeOptions>, QueryRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let (options, state): (_, StateSpec) =
        match read(options, body, r#"give a JSON object, such as {"key":["flight_id"]}"#) {
            Ok(read) => read,
            Err(response) => return *response,
        };
    let request = ask(context.clone(), move |context| context.state_change(&stream, Some(state))).await;
    match request {
        Ok(Ok(request)) => change((context, caller), None, request, options).await,
        Ok(Err(why)) => error(StatusCode::BAD_REQUEST, why, "`crossdock streams` lists the streams"),
        Err(response) => response,
    }
}

/// Takes the key of a stream back: its records are not kept any more
#[utoipa::path(
    delete, path = "/v1/streams/{name}/state", tag = "platform",
    params(("name" = String, Path, description = "The stream's name"), ChangeOptions),
    responses(
        (status = 200, body = ChangeAnswer, description = "The changes"),
        (status = 404, body = ErrorBody, description = "The stream has no key"),
        (status = 409, body = ErrorBody, description = "Why it is refused; nothing has changed, unless the plan \
                                                        `is_begun`"),
        (status = "default", body = ErrorBody, description = "What is wrong")
    )
)]
pub(super) async fn remove_state(
    State(context): State<ContextHandle>,
    Extension(caller): Extension<Caller>,
    Path(stream): Path<String>,
    options: Result<Query<ChangeOptions>, QueryRejection>,
) -> Response {
    let options = match read_query(options, OPTIONS) {
        Ok(options) => options,
        Err(response) => return *response,
    };
    let request = ask(context.clone(), move |context| context.state_change(&stream, None)).await;
    match request {
        Ok(Ok(request)) => change((context, caller), None, request, options).await,
        Ok(Err(why)) => error(StatusCode::NOT_FOUND, why, "`crossdock handlers` lists the states that are kept"),
        Err(response) => response,
    }
}

/// The last minutes of every context and handler, a second each
#[utoipa::path(
    get, path = "/v1/history", tag = "platform",
    responses(
        (status = 200, body = History, description = "The last minutes"),
        (status = "default", body = ErrorBody, description = "What is wrong")
    )
)]
pub(super) async fn history(State(context): State<ContextHandle>) -> Response {
    answer(ask(context, |context| Ok(History { history: context.manager().history()? })).await)
}

/// The value of a request for a change.
fn read<T: serde::de::DeserializeOwned>(
    options: Result<Query<ChangeOptions>, QueryRejection>,
    body: Result<Bytes, BytesRejection>,
    wanted: &str,
) -> Result<(ChangeOptions, T), Box<Response>> {
    Ok((read_query(options, OPTIONS)?, read_body(body, wanted)?))
}

/// Makes a change, of the handler of this name if it is one of a handler that must be there; or says what it would do.
async fn change(
    (context, caller): (ContextHandle, Caller),
    of: Option<String>,
    request: ChangeRequest,
    options: ChangeOptions,
) -> Response {
    let ChangeOptions { discard_state, dry_run } = options;
    let note = lasting(&context).filter(|_| !dry_run);
    let done = ask_long(context, move |context| {
        if let Err(denial) = context.admit_change(&caller, &request)? {
            return Ok(Err(forbidden(&denial)));
        }
        let manager = context.manager();
        if let Some(name) = of {
            let specs = manager.specs()?;
            if specs.iter().all(|spec| spec.name != name) {
                return Ok(Err(unknown(&name, specs.iter().map(|spec| spec.name.as_str()))));
            }
        }
        if dry_run {
            let plan = manager.plan(request, discard_state)?;
            return Ok(Ok(ChangeAnswer { applied: false, plan, took_us: None, note: None }));
        }
        Ok(match manager.change(request, discard_state)? {
            Ok(applied) => {
                let note = note.filter(|_| applied.plan.changes.iter().any(|change| change.change == "deploy"));
                Ok(ChangeAnswer { applied: true, plan: applied.plan, took_us: Some(applied.took_us), note })
            }
            Err(plan) => Err(conflict(plan)),
        })
    });
    match done.await {
        Ok(Ok(done)) => answer(Ok(done)),
        Ok(Err(response)) | Err(response) => response,
    }
}

/// A change that is refused, with all there is to know of it.
fn conflict(plan: PlanInfo) -> Response {
    let message = plan.refusals.first().cloned().unwrap_or_else(|| "the change is refused".to_owned());
    let what = match plan.is_begun {
        true => "the change was begun, and its completed steps stay",
        false => "the change is refused, so nothing has changed",
    };
    let text = Some(format!("{what}:{}", indented(&plan.refusals)));
    // Each reason says what would correct it.
    let error = ApiError { message, hint: None, text };
    respond(StatusCode::CONFLICT, &ErrorBody { error, plan: Some(plan) })
}

/// There is no handler of that name; says which there are.
fn unknown<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Response {
    error(StatusCode::NOT_FOUND, format!("there is no handler `{name}`"), &did_you_mean(name, known, "handlers"))
}
