//! Formats of streams, and conversions between them.

use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::extract::{Extension, Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use crossdock_format::Format;
use crossdock_format::registry::{Policy, RegistryError};
use crossdock_runtime::access::Caller;
use crossdock_runtime::{ContextHandle, KeptConversion};

use super::{admitted, answer, ask, ask_long, changed, error, lasting, read_body, read_path, refused};
use crate::http::{ApiError, Changed, Conversions, ErrorBody, FormatCheck, Formats, Paths, StreamPolicy, did_you_mean};

/// An example of a conversion.
const A_CONVERSION: &str =
    r#"give a JSON object, such as {"stream":"A","from":{"version":1},"to":{"version":2},"conversion":""}"#;

/// All formats that were announced on any stream
#[utoipa::path(
    get, path = "/v1/formats", tag = "formats",
    responses(
        (status = 200, body = Formats, description = "The formats"),
        (status = "default", body = ErrorBody, description = "What is wrong")
    )
)]
pub(super) async fn formats(State(context): State<ContextHandle>) -> Response {
    answer(ask(context, |context| Ok(Formats { formats: context.formats()? })).await)
}

/// All conversions between formats of streams
#[utoipa::path(
    get, path = "/v1/conversions", tag = "formats",
    responses(
        (status = 200, body = Conversions, description = "The conversions"),
        (status = "default", body = ErrorBody, description = "What is wrong")
    )
)]
pub(super) async fn conversions(State(context): State<ContextHandle>) -> Response {
    answer(ask(context, |context| Ok(Conversions { conversions: context.conversions()? })).await)
}

/// How records come to subscribers that say which formats they accept, and what nothing leads to
#[utoipa::path(
    get, path = "/v1/paths", tag = "formats",
    responses(
        (status = 200, body = Paths, description = "The paths"),
        (status = "default", body = ErrorBody, description = "What is wrong")
    )
)]
pub(super) async fn paths(State(context): State<ContextHandle>) -> Response {
    answer(ask(context, |context| Ok(Paths { paths: context.paths()? })).await)
}

/// Keeps a conversion, in place of the one that is kept between the same formats
#[utoipa::path(
    post, path = "/v1/conversions", tag = "formats", request_body = KeptConversion,
    responses(
        (status = 200, body = Changed, description = "The conversion is kept"),
        (status = 400, body = ErrorBody, description = "Why it is refused"),
        (status = "default", body = ErrorBody, description = "What is wrong")
    )
)]
pub(super) async fn keep_conversion(
    State(context): State<ContextHandle>,
    Extension(caller): Extension<Caller>,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let kept = match read_admitted(&context, caller, body).await {
        Ok(kept) => kept,
        Err(response) => return *response,
    };
    let note = lasting(&context);
    changed(ask_long(context, move |context| context.keep_conversion(&kept)).await, note)
}

/// Takes out a conversion that is kept; its text may be left out
#[utoipa::path(
    delete, path = "/v1/conversions", tag = "formats", request_body = KeptConversion,
    responses(
        (status = 200, body = Changed, description = "The conversion is removed"),
        (status = 400, body = ErrorBody, description = "Why it is not removed"),
        (status = "default", body = ErrorBody, description = "What is wrong")
    )
)]
pub(super) async fn discard_conversion(
    State(context): State<ContextHandle>,
    Extension(caller): Extension<Caller>,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let kept = match read_admitted(&context, caller, body).await {
        Ok(kept) => kept,
        Err(response) => return *response,
    };
    changed(ask_long(context, move |context| context.discard_conversion(&kept)).await, None)
}

/// The conversion that a request is about, if its caller may change it.
async fn read_admitted(
    context: &ContextHandle,
    caller: Caller,
    body: Result<Bytes, BytesRejection>,
) -> Result<KeptConversion, Box<Response>> {
    let kept: KeptConversion = read_body(body, A_CONVERSION)?;
    let stream = kept.stream.clone();
    admitted(ask(context.clone(), move |context| context.admit_conversion(&caller, &stream)).await)?;
    Ok(kept)
}

/// Says whether a format could be a stream's next version, by the stream's policy
#[utoipa::path(
    post, path = "/v1/check", tag = "formats", request_body = FormatCheck,
    responses(
        (status = 200, body = Changed, description = "It would be accepted"),
        (status = 400, body = ErrorBody, description = "Why it cannot be checked, such as an unknown stream"),
        (status = 409, body = ErrorBody, description = "Why it would be refused"),
        (status = "default", body = ErrorBody, description = "What is wrong")
    )
)]
pub(super) async fn check_format(
    State(context): State<ContextHandle>,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let wanted =
        r#"use POST with a JSON object, such as {"stream":"A","format":"…"} with a format's canonical description"#;
    let FormatCheck { stream, format } = match read_body(body, wanted) {
        Ok(check) => check,
        Err(response) => return *response,
    };
    let format = match Format::parse(&format) {
        Ok(format) => format,
        Err(why) => return error(StatusCode::BAD_REQUEST, format!("the format is invalid: {why}"), wanted),
    };
    let (name, streams) = (stream.clone(), context.clone());
    let checked = ask_long(context, move |context| match context.version_count(&stream)? {
        Some(versions) => Ok(Some((versions, context.check_format(&stream, &format)?))),
        None => Ok(None),
    });
    let (versions, checked) = match checked.await {
        Ok(Some((versions, checked))) => (versions, Ok(checked)),
        Ok(None) => return unknown_stream(streams, &name).await,
        // There is no note beside an error.
        Err(response) => (usize::MAX, Err(response)),
    };
    let note = (versions == 0).then(|| format!("stream `{name}` has no version yet: each format can be its first"));
    if let Ok(Err(why @ RegistryError::Incompatible { .. })) = &checked {
        return refused(StatusCode::CONFLICT, ApiError { message: why.to_string(), hint: None, text: None });
    }
    changed(checked.map(|checked| checked.map_err(|why| why.to_string())), note)
}

/// There is no stream of that name; says which there are.
async fn unknown_stream(context: ContextHandle, name: &str) -> Response {
    match ask(context, ContextHandle::streams).await {
        Ok(streams) => {
            let known = streams.iter().map(|stream| stream.name.as_str());
            let hint = did_you_mean(name, known, "streams");
            error(StatusCode::BAD_REQUEST, format!("there is no stream `{name}`"), &hint)
        }
        Err(response) => response,
    }
}

/// Removes an unused stream, with its versions, its policy and the conversions that are kept for it
#[utoipa::path(
    delete, path = "/v1/streams/{name}", tag = "formats",
    params(("name" = String, Path, description = "Its name")),
    responses(
        (status = 200, body = Changed, description = "The stream is removed"),
        (status = 400, body = ErrorBody, description = "Why it is not removed"),
        (status = "default", body = ErrorBody, description = "What is wrong")
    )
)]
pub(super) async fn remove_stream(
    State(context): State<ContextHandle>,
    path: Result<Path<String>, PathRejection>,
) -> Response {
    match read_path(path, "use DELETE /v1/streams/A") {
        Ok(stream) => changed(ask_long(context, move |context| context.remove_stream(&stream)).await, None),
        Err(response) => *response,
    }
}

/// Removes the newest version of an unused stream
#[utoipa::path(
    delete, path = "/v1/streams/{name}/versions/{version}", tag = "formats",
    params(
        ("name" = String, Path, description = "The stream's name"),
        ("version" = u32, Path, description = "The version's number, counted from 1")
    ),
    responses(
        (status = 200, body = Changed, description = "The version is removed"),
        (status = 400, body = ErrorBody, description = "Why it is not removed"),
        (status = "default", body = ErrorBody, description = "What is wrong")
    )
)]
pub(super) async fn remove_version(
    State(context): State<ContextHandle>,
    path: Result<Path<(String, u32)>, PathRejection>,
) -> Response {
    match read_path(path, "use DELETE /v1/streams/A/versions/2") {
        Ok((stream, version)) => {
            changed(ask_long(context, move |context| context.remove_version(&stream, version)).await, None)
        }
        Err(response) => *response,
    }
}

/// Sets how a stream's format may change from its next version on
#[utoipa::path(
    post, path = "/v1/policy", tag = "formats", request_body = StreamPolicy,
    responses(
        (status = 200, body = Changed, description = "The policy applies from the next version on"),
        (status = 400, body = ErrorBody, description = "Why it is refused"),
        (status = "default", body = ErrorBody, description = "What is wrong")
    )
)]
pub(super) async fn set_policy(State(context): State<ContextHandle>, body: Result<Bytes, BytesRejection>) -> Response {
    let wanted = r#"give a JSON object, such as {"stream":"A","policy":"backward"}"#;
    let StreamPolicy { stream, policy } = match read_body(body, wanted) {
        Ok(request) => request,
        Err(response) => return *response,
    };
    let policy: Policy = match policy.parse() {
        Ok(policy) => policy,
        Err(why) => return error(StatusCode::BAD_REQUEST, format!("`{policy}`: {why}"), wanted),
    };
    let note = lasting(&context);
    changed(ask_long(context, move |context| context.set_policy(&stream, policy)).await, note)
}
