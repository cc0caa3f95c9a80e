//! Mailboxes of the daemon, and the tasks that read them.

use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::extract::{Extension, Path, State};
use axum::response::Response;
use crossdock_mailbox::host::{self, MailboxOptions};
use crossdock_nectarine::Implementation;
use crossdock_runtime::ContextHandle;
use crossdock_runtime::access::{Action, Caller};

use super::{answer, ask, changed, forbidden, read_body, read_path};
use crate::http::{Changed, ErrorBody, Mailboxes, NewMailbox, NewTask};

/// All mailboxes, by name
#[utoipa::path(
    get, path = "/v1/mailboxes", tag = "mailboxes",
    responses(
        (status = 200, body = Mailboxes, description = "The mailboxes"),
        (status = "default", body = ErrorBody, description = "What is wrong")
    )
)]
pub(super) async fn mailboxes(State(context): State<ContextHandle>) -> Response {
    answer(ask(context, |context| Ok(Mailboxes { mailboxes: context.mailboxes()? })).await)
}

/// Creates a mailbox of the daemon's own, which stays until it is removed
#[utoipa::path(
    post, path = "/v1/mailboxes", tag = "mailboxes", request_body = NewMailbox,
    responses(
        (status = 200, body = Changed, description = "The mailbox is there"),
        (status = 400, body = ErrorBody, description = "Why there is no such mailbox"),
        (status = "default", body = ErrorBody, description = "What is wrong")
    )
)]
pub(super) async fn create(
    State(context): State<ContextHandle>,
    Extension(caller): Extension<Caller>,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let new: NewMailbox = match read_body(body, r#"POST a JSON object, such as {"name":"orders"}"#) {
        Ok(new) => new,
        Err(response) => return *response,
    };
    if let Err(denial) = context.access().admit(&caller, Action::Mailbox(&new.name)) {
        return forbidden(&denial);
    }
    let implementation = match new.implementation {
        Implementation::Rings => host::Implementation::Rings,
        Implementation::SignalQueue => host::Implementation::SignalQueue,
    };
    let options = MailboxOptions { implementation, bound_messages: new.bound_messages, bound_bytes: new.bound_bytes };
    let note = "it lasts as long as this daemon; a [[mailbox]] section of the configuration creates it at each start";
    changed(ask(context, move |context| context.create_mailbox(&new.name, options)).await, Some(note.to_owned()))
}

/// Removes a mailbox, whoever created it, with the messages in it
#[utoipa::path(
    delete, path = "/v1/mailboxes/{name}", tag = "mailboxes",
    params(("name" = String, Path, description = "Its name")),
    responses(
        (status = 200, body = Changed, description = "The mailbox is removed"),
        (status = 400, body = ErrorBody, description = "Why it is not removed"),
        (status = "default", body = ErrorBody, description = "What is wrong")
    )
)]
pub(super) async fn remove(
    State(context): State<ContextHandle>,
    Extension(caller): Extension<Caller>,
    path: Result<Path<String>, PathRejection>,
) -> Response {
    let name = match read_path(path, "use DELETE /v1/mailboxes/orders") {
        Ok(name) => name,
        Err(response) => return *response,
    };
    match context.access().admit(&caller, Action::Mailbox(&name)) {
        Ok(_) => changed(ask(context.clone(), move |context| context.delete_mailbox(&name)).await, None),
        Err(denial) => forbidden(&denial),
    }
}

/// Has a task read a mailbox
#[utoipa::path(
    put, path = "/v1/mailboxes/{name}/task", tag = "mailboxes", request_body = NewTask,
    params(("name" = String, Path, description = "The mailbox's name")),
    responses(
        (status = 200, body = Changed, description = "The task reads the mailbox"),
        (status = 400, body = ErrorBody, description = "Why it does not"),
        (status = "default", body = ErrorBody, description = "What is wrong")
    )
)]
pub(super) async fn start_task(
    State(context): State<ContextHandle>,
    path: Result<Path<String>, PathRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let wanted = r#"PUT a JSON object, such as {"task":"echo","arguments":{"to":"replies"}}"#;
    let read = read_path(path, wanted).and_then(|name| Ok((name, read_body::<NewTask>(body, wanted)?)));
    match read {
        Ok((name, NewTask { task, arguments })) => {
            changed(ask(context, move |context| context.create_task(&task, &name, &arguments)).await, None)
        }
        Err(response) => *response,
    }
}

/// Ends the task that reads a mailbox
#[utoipa::path(
    delete, path = "/v1/mailboxes/{name}/task", tag = "mailboxes",
    params(("name" = String, Path, description = "The mailbox's name")),
    responses(
        (status = 200, body = Changed, description = "No task reads the mailbox any more"),
        (status = 400, body = ErrorBody, description = "Why that is not so"),
        (status = "default", body = ErrorBody, description = "What is wrong")
    )
)]
pub(super) async fn end_task(
    State(context): State<ContextHandle>,
    path: Result<Path<String>, PathRejection>,
) -> Response {
    match read_path(path, "use DELETE /v1/mailboxes/orders/task") {
        Ok(name) => changed(ask(context, move |context| context.end_task(&name)).await, None),
        Err(response) => *response,
    }
}
