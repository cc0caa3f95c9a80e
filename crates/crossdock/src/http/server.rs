//! The daemon's side: routes over the context's handle, served by one thread of its own.

use std::io;
use std::net::{IpAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::Listener;
use crossdock_format::Format;
use crossdock_format::registry::Policy;
use crossdock_query::QueryError;
use crossdock_runtime::{ContextHandle, ExplainError, KeptConversion, Stopped};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::{ApiError, Changed, ErrorBody, ExplainRequest, FormatCheck, Health, StreamPolicy};
use crate::failure::{Failure, Outcome};

/// Connections served at a time: more than any number of terminals and scripts needs; the next wait in the backlog.
const MAX_CONNECTIONS: usize = 64;
/// Longest body of a request: a query of any length that a person writes.
const MAX_BODY_BYTES: usize = 64 << 10;
/// Requests that wait for the context at a time, each in a thread of its own.
const MAX_WAITING: usize = 4;
/// How long the end waits for requests that are being answered.
const GOODBYE: Duration = Duration::from_secs(1);

/// The running server. It ends when this is dropped.
pub(crate) struct Server {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves on a Unix socket and perhaps on TCP. The address is the context's, for `health`.
    pub(crate) fn start(context: ContextHandle, unix: UnixListener, tcp: Option<TcpListener>) -> Outcome<Server> {
        let refused = |error: io::Error| Failure::failed(format!("cannot start the HTTP API: {error}"));
        unix.set_nonblocking(true).map_err(refused)?;
        if let Some(tcp) = &tcp {
            tcp.set_nonblocking(true).map_err(refused)?;
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(MAX_WAITING)
            .build()
            .map_err(refused)?;
        let (stop, stopped) = oneshot::channel();
        let serve = move || {
            // Errors end the API, not the daemon; they are logged.
            if let Err(error) = runtime.block_on(serve(context, unix, tcp, stopped)) {
                tracing::error!(%error, "the HTTP API has ended");
            }
            runtime.shutdown_timeout(GOODBYE);
        };
        let thread = std::thread::Builder::new().name("http".to_owned()).spawn(serve).map_err(refused)?;
        Ok(Server { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // It ends by itself and does not panic; if it did, that has been said already.
            let _ = thread.join();
        }
    }
}

/// Serves until `stopped` comes, or its sender goes.
async fn serve(
    context: ContextHandle,
    unix: UnixListener,
    tcp: Option<TcpListener>,
    stopped: oneshot::Receiver<()>,
) -> io::Result<()> {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let unix = Bounded { listener: tokio::net::UnixListener::from_std(unix)?, places: places.clone() };
    // A socket file is guarded by its mode; a TCP port by nothing but what the request says of itself.
    let over_unix = axum::serve(unix, routes(context.clone())).into_future();
    let over_tcp = match tcp {
        Some(tcp) => {
            let tcp = Bounded { listener: tokio::net::TcpListener::from_std(tcp)?, places };
            let routes = routes(context).layer(axum::middleware::from_fn(refuse_foreign_pages));
            Some(tokio::spawn(axum::serve(tcp, routes).into_future()))
        }
        None => None,
    };
    let over_unix = tokio::spawn(over_unix);
    let _ = stopped.await;
    over_unix.abort();
    if let Some(over_tcp) = over_tcp {
        over_tcp.abort();
    }
    Ok(())
}

/// Every route of the API.
fn routes(context: ContextHandle) -> Router {
    Router::new()
        .route("/v1/health", get(health))
        .route("/v1/streams", get(streams))
        .route("/v1/subscriptions", get(subscriptions))
        .route("/v1/formats", get(formats))
        .route("/v1/contexts", get(contexts))
        .route("/v1/clients", get(clients))
        .route("/v1/mailboxes", get(mailboxes))
        .route("/v1/conversions", get(conversions).post(keep_conversion).delete(discard_conversion))
        .route("/v1/paths", get(paths))
        .route("/v1/check", post(check_format))
        .route("/v1/policy", post(set_policy))
        .route("/v1/explain", post(explain))
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(axum::middleware::from_fn(log))
        .with_state(context)
}

async fn health(State(context): State<ContextHandle>) -> Response {
    let health = |context: &ContextHandle| {
        // It is well if it answers at all.
        context.context()?;
        let (status, version) = ("ok".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
        Ok(Health { status, version, address: context.local_addr().to_string() })
    };
    answer(ask(context, health).await)
}

async fn streams(State(context): State<ContextHandle>) -> Response {
    answer(ask(context, |context| Ok(json!({ "streams": context.streams()? }))).await)
}

async fn subscriptions(State(context): State<ContextHandle>) -> Response {
    answer(ask(context, |context| Ok(json!({ "subscriptions": context.subscriptions()? }))).await)
}

async fn formats(State(context): State<ContextHandle>) -> Response {
    answer(ask(context, |context| Ok(json!({ "formats": context.formats()? }))).await)
}

async fn contexts(State(context): State<ContextHandle>) -> Response {
    answer(ask(context, |context| Ok(json!({ "contexts": [context.context()?] }))).await)
}

async fn clients(State(context): State<ContextHandle>) -> Response {
    answer(ask(context, |context| Ok(json!({ "clients": context.clients()? }))).await)
}

async fn mailboxes(State(context): State<ContextHandle>) -> Response {
    answer(ask(context, |context| Ok(json!({ "mailboxes": context.mailboxes()? }))).await)
}

async fn conversions(State(context): State<ContextHandle>) -> Response {
    answer(ask(context, |context| Ok(json!({ "conversions": context.conversions()? }))).await)
}

async fn paths(State(context): State<ContextHandle>) -> Response {
    answer(ask(context, |context| Ok(json!({ "paths": context.paths()? }))).await)
}

async fn keep_conversion(State(context): State<ContextHandle>, body: Result<Bytes, BytesRejection>) -> Response {
    let kept: KeptConversion = match read_body(body, A_CONVERSION) {
        Ok(kept) => kept,
        Err(response) => return *response,
    };
    let note = lasting(&context);
    changed(ask(context, move |context| context.keep_conversion(&kept)).await, note)
}

async fn discard_conversion(State(context): State<ContextHandle>, body: Result<Bytes, BytesRejection>) -> Response {
    let kept: KeptConversion = match read_body(body, A_CONVERSION) {
        Ok(kept) => kept,
        Err(response) => return *response,
    };
    changed(ask(context, move |context| context.discard_conversion(&kept)).await, None)
}

/// What is to be known of what is kept where that does not outlive the daemon.
fn lasting(context: &ContextHandle) -> Option<String> {
    let note =
        "it lasts as long as this daemon: to have it outlive that, set `state_dir` in [morph] of the configuration";
    (!context.keeps_state()).then(|| note.to_owned())
}

async fn check_format(State(context): State<ContextHandle>, body: Result<Bytes, BytesRejection>) -> Response {
    let wanted = r#"give a JSON object, such as {"stream":"A","format":"…"} with a format's canonical description"#;
    let FormatCheck { stream, format } = match read_body(body, wanted) {
        Ok(check) => check,
        Err(response) => return *response,
    };
    let format = match Format::parse(&format) {
        Ok(format) => format,
        Err(why) => return error(StatusCode::BAD_REQUEST, format!("the format is none: {why}"), wanted),
    };
    changed(ask(context, move |context| context.check_format(&stream, &format)).await, None)
}

async fn set_policy(State(context): State<ContextHandle>, body: Result<Bytes, BytesRejection>) -> Response {
    let wanted = r#"give a JSON object, such as {"stream":"A","policy":"backward"}"#;
    let StreamPolicy { stream, policy } = match read_body(body, wanted) {
        Ok(wish) => wish,
        Err(response) => return *response,
    };
    let policy: Policy = match policy.parse() {
        Ok(policy) => policy,
        Err(why) => return error(StatusCode::BAD_REQUEST, format!("`{policy}`: {why}"), wanted),
    };
    let note = lasting(&context);
    changed(ask(context, move |context| context.set_policy(&stream, policy)).await, note)
}

/// What a conversion looks like.
const A_CONVERSION: &str =
    r#"give a JSON object, such as {"stream":"A","from":{"version":1},"to":{"version":2},"conversion":""}"#;

/// What a request says.
fn read_body<T: DeserializeOwned>(body: Result<Bytes, BytesRejection>, wanted: &str) -> Result<T, Box<Response>> {
    let body = body.map_err(|rejection| Box::new(error(rejection.status(), rejection.body_text(), wanted)))?;
    let read = serde_json::from_slice(&body);
    read.map_err(|why| Box::new(error(StatusCode::BAD_REQUEST, format!("not such a request: {why}"), wanted)))
}

fn changed(outcome: Result<Result<(), String>, Response>, note: Option<String>) -> Response {
    match outcome {
        Ok(Ok(())) => answer(Ok(Changed { note })),
        Ok(Err(why)) => {
            respond(StatusCode::BAD_REQUEST, &ErrorBody { error: ApiError { message: why, hint: None, text: None } })
        }
        Err(response) => response,
    }
}

async fn explain(State(context): State<ContextHandle>, body: Result<Bytes, BytesRejection>) -> Response {
    let wanted = r#"POST a JSON object, such as {"sql":"SELECT * FROM A"}"#;
    let body = match body {
        Ok(body) => body,
        Err(rejection) => return error(rejection.status(), rejection.body_text(), wanted),
    };
    let request: ExplainRequest = match serde_json::from_slice(&body) {
        Ok(request) => request,
        Err(why) => return error(StatusCode::BAD_REQUEST, format!("not a request to explain: {why}"), wanted),
    };
    match ask(context, move |context| context.explain(&request.sql, &request.accept)).await {
        Ok(Ok(plan)) => answer(Ok(plan)),
        Ok(Err(ExplainError::Query(refusal))) => query_error(&refusal),
        Ok(Err(ExplainError::Format(why))) => {
            error(StatusCode::BAD_REQUEST, why, "`crossdock formats` lists those that are known")
        }
        Err(response) => answer::<()>(Err(response)),
    }
}

async fn unknown_path(uri: Uri) -> Response {
    let known = "known: /v1/health, /v1/streams, /v1/subscriptions, /v1/formats, /v1/contexts, /v1/clients, \
                 /v1/mailboxes, /v1/conversions, /v1/paths, /v1/check, /v1/policy, \
                 /v1/explain";
    error(StatusCode::NOT_FOUND, format!("there is nothing at {}", uri.path()), known)
}

async fn wrong_method(method: Method, uri: Uri) -> Response {
    let hint = match uri.path() {
        "/v1/explain" | "/v1/check" | "/v1/policy" => "use POST",
        "/v1/conversions" => "use GET, POST or DELETE",
        _ => "use GET",
    };
    error(StatusCode::METHOD_NOT_ALLOWED, format!("{} does not take {method}", uri.path()), hint)
}

/// Asks the context, in a thread that may wait: it answers between two batches.
async fn ask<T, F>(context: ContextHandle, question: F) -> Result<T, Response>
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

fn answer<T: Serialize>(outcome: Result<T, Response>) -> Response {
    match outcome {
        Ok(value) => respond(StatusCode::OK, &value),
        Err(response) => response,
    }
}

fn query_error(refusal: &QueryError) -> Response {
    let text = Some(refusal.to_string());
    let error = ApiError { message: refusal.message.clone(), hint: refusal.hint.clone(), text };
    respond(StatusCode::BAD_REQUEST, &ErrorBody { error })
}

fn error(status: StatusCode, message: String, hint: &str) -> Response {
    respond(status, &ErrorBody { error: ApiError { message, hint: Some(hint.to_owned()), text: None } })
}

fn respond(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => (status, [(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// One line a request, for who asked for that level.
async fn log(request: Request, next: Next) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let response = next.run(request).await;
    tracing::debug!(%method, path, status = response.status().as_u16(), "http");
    response
}

/// A web page can make a browser send requests to loopback addresses, also under a name of the page's own that resolves to
/// one. Such a request says that name as its `Host`; only requests to loopback by its own names are answered.
async fn refuse_foreign_pages(request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or("");
    if is_loopback_name(host) {
        return next.run(request).await;
    }
    let hint = "ask for 127.0.0.1, [::1] or localhost";
    error(StatusCode::FORBIDDEN, format!("`{host}` is not this machine's loopback"), hint)
}

fn is_loopback_name(host: &str) -> bool {
    // An IPv6 address stands in brackets, with or without a port behind them.
    let name = match host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        Some((address, _)) => address,
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

/// A listener that takes so many connections at a time, over all that share its places.
struct Bounded<L> {
    listener: L,
    places: Arc<Semaphore>,
}

impl<L: Listener> Listener for Bounded<L> {
    type Io = Placed<L::Io>;
    type Addr = L::Addr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        // The semaphore is never closed; if it were, connections would go on being taken.
        let place = self.places.clone().acquire_owned().await.ok();
        let (io, address) = self.listener.accept().await;
        (Placed { io, _place: place }, address)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

/// A connection, and its place among those that are served.
struct Placed<S> {
    io: S,
    _place: Option<OwnedSemaphorePermit>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Placed<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Placed<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopbacks_own_names_are_let_in() {
        for host in ["localhost", "LOCALHOST:7441", "127.0.0.1", "127.0.0.1:7441", "[::1]:7441", "[::1]"] {
            assert!(is_loopback_name(host), "{host}");
        }
        for host in ["", "evil.example", "evil.example:7441", "localhost.evil.example", "10.0.0.1:7441", "[::2]"] {
            assert!(!is_loopback_name(host), "{host}");
        }
    }
}
