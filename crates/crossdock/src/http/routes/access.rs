//! The access rules, and what they would decide.

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::StatusCode;
use axum::response::Response;
use crossdock_runtime::ContextHandle;
use crossdock_runtime::access::{Identity, Question};
use crossdock_runtime::info::AccessCheckInfo;

use super::{answer, ask_long, error, read_body};
use crate::http::{AccessCheck, AccessRules, ErrorBody};

/// The access rules in force, in the order of the configuration
#[utoipa::path(
    get, path = "/v1/access", tag = "lists",
    responses(
        (status = 200, body = AccessRules, description = "The rules"),
        (status = "default", body = ErrorBody, description = "What is wrong")
    )
)]
pub(super) async fn rules(State(context): State<ContextHandle>) -> Response {
    let in_force = context.access().rules().is_some();
    answer(Ok(AccessRules { in_force, rules: context.access_rules() }))
}

/// Whether an identity may do something, and by which rule; nothing is done
#[utoipa::path(
    post, path = "/v1/access/check", tag = "lists", request_body = AccessCheck,
    responses(
        (status = 200, body = AccessCheckInfo, description = "The decision"),
        (status = 400, body = ErrorBody, description = "Why there is none, such as an invalid query"),
        (status = "default", body = ErrorBody, description = "What is wrong")
    )
)]
pub(super) async fn check(State(context): State<ContextHandle>, body: Result<Bytes, BytesRejection>) -> Response {
    let wanted = r#"POST a JSON object, such as {"identity":"key:desk","sql":"SELECT * FROM A"}; `publish` names a stream instead, `mailbox` a mailbox, and `route` the nodes of a source route"#;
    let check: AccessCheck = match read_body(body, wanted) {
        Ok(check) => check,
        Err(response) => return *response,
    };
    let identity: Identity = match check.identity.parse() {
        Ok(identity) => identity,
        Err(why) => return error(StatusCode::BAD_REQUEST, why, wanted),
    };
    let route = Some(check.route).filter(|nodes| !nodes.is_empty());
    let question = match (check.sql, check.publish, check.mailbox, route) {
        (Some(sql), None, None, None) => Question::Subscribe(sql),
        (None, Some(stream), None, None) => Question::Publish(stream),
        (None, None, Some(mailbox), None) => Question::Mailbox(mailbox),
        (None, None, None, Some(nodes)) => Question::Route(nodes),
        _ => {
            let message = "a check is about one thing: a query, a stream, a mailbox or a route";
            return error(StatusCode::BAD_REQUEST, message.to_owned(), wanted);
        }
    };
    match ask_long(context, move |context| context.check_access(&identity, &question)).await {
        Ok(Ok(info)) => answer(Ok(info)),
        Ok(Err(why)) => error(StatusCode::BAD_REQUEST, why, "`crossdock access list` shows the rules in force"),
        Err(response) => response,
    }
}
