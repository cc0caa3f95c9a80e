//! The daemon's side: routes over the context's handle, served by one thread of its own.

use std::io;
use std::net::{IpAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::Response;
use crossdock_runtime::ContextHandle;
use tokio::sync::oneshot;

use super::admission::{Admission, admit, no_token, wrong_token};
use super::connections;
use super::routes::{MOST_CHANGES, error, routes};
use super::token::Tokens;
use crate::failure::{Failure, Outcome};

/// Requests that wait for the context at a time, each in a thread of its own: lists, which are answered soon, beside
/// changes, which may take long.
pub(super) const MOST_WAITING: usize = 12 + MOST_CHANGES;
/// How long the end waits for requests that are being answered.
const GOODBYE: Duration = Duration::from_secs(1);

/// The running server. It ends when this is dropped.
pub(crate) struct Server {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves on a Unix socket and perhaps on TCP, where a change takes a token, or the access rules decide.
    pub(crate) fn start(
        context: ContextHandle,
        unix: UnixListener,
        tcp: Option<TcpListener>,
        tokens: Tokens,
    ) -> Outcome<Server> {
        let refused = |error: io::Error| Failure::failed(format!("cannot start the HTTP API: {error}"));
        unix.set_nonblocking(true).map_err(refused)?;
        if let Some(tcp) = &tcp {
            tcp.set_nonblocking(true).map_err(refused)?;
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(MOST_WAITING)
            .build()
            .map_err(refused)?;
        let (stop, stopped) = oneshot::channel();
        let serve = move || {
            // Errors end the API, not the daemon; they are logged.
            if let Err(error) = runtime.block_on(serve(context, unix, tcp, Arc::new(tokens), stopped)) {
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
    tokens: Arc<Tokens>,
    stopped: oneshot::Receiver<()>,
) -> io::Result<()> {
    let unix = tokio::net::UnixListener::from_std(unix)?;
    // A socket file is guarded by its mode; a TCP port by nothing but what the request says of itself.
    let has_rules = context.access().rules().is_some();
    let admission = Admission { context: context.clone(), tokens: Arc::clone(&tokens) };
    let routes = routes(context).layer(from_fn_with_state(admission, admit)).layer(from_fn(log));
    let over_tcp = match tcp {
        Some(tcp) => {
            let tcp = tokio::net::TcpListener::from_std(tcp)?;
            let mut routes = routes.clone();
            if !has_rules {
                routes = routes.layer(from_fn_with_state(tokens, refuse_changes));
            }
            Some(tokio::spawn(connections::serve(tcp, routes.layer(from_fn(refuse_foreign_pages)))))
        }
        None => None,
    };
    let over_unix = tokio::spawn(connections::serve(unix, routes));
    let _ = stopped.await;
    over_unix.abort();
    if let Some(over_tcp) = over_tcp {
        over_tcp.abort();
    }
    Ok(())
}

/// One line a request, at level `debug`.
async fn log(request: Request, next: Next) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let response = next.run(request).await;
    tracing::debug!(%method, path, status = response.status().as_u16(), "http");
    response
}

/// Anybody on this machine can connect over TCP: where no rules say otherwise, a caller that changes something has to say the token.
async fn refuse_changes(State(tokens): State<Arc<Tokens>>, request: Request, next: Next) -> Response {
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        return next.run(request).await;
    }
    if tokens.is_empty() {
        let hint = "use the control socket; or set `token_file` under [control] of the daemon's configuration, and send that \
                    token as `Authorization: Bearer TOKEN` (`crossdock --help`: --token-file)";
        return error(
            StatusCode::FORBIDDEN,
            "over TCP this API only answers GET: no token is configured".to_owned(),
            hint,
        );
    }
    if tokens.name_in(request.headers()).is_some() {
        return next.run(request).await;
    }
    match request.headers().contains_key(header::AUTHORIZATION) {
        true => wrong_token(),
        false => no_token(),
    }
}

/// A web page can make a browser send requests to loopback addresses, also under a name of the page's own that resolves to
/// one. Such a request says that name as its `Host`; only requests to loopback by its own names are answered. One that is sent
/// to loopback by its own name from a page of elsewhere says that page's `Origin`, if it could change anything.
async fn refuse_foreign_pages(request: Request, next: Next) -> Response {
    let Some(name) = foreign_name(request.headers()) else { return next.run(request).await };
    let hint = "send requests to 127.0.0.1, [::1] or localhost, and not from another site's page";
    error(StatusCode::FORBIDDEN, format!("`{name}` is not this machine's loopback"), hint)
}

/// The name in a request that is none of loopback's own, if there is one.
fn foreign_name(headers: &HeaderMap) -> Option<String> {
    let said = |name| headers.get(name).map(|value| value.to_str().unwrap_or(""));
    let host = said(header::HOST).unwrap_or("");
    let origin = said(header::ORIGIN).map(|origin| origin.split_once("://").map_or(origin, |(_, host)| host));
    let foreign = [Some(host), origin].into_iter().flatten().find(|name| !is_loopback_name(name));
    foreign.map(str::to_owned)
}

fn is_loopback_name(host: &str) -> bool {
    // An IPv6 address stands in brackets, with or without a port behind them.
    let name = match host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        Some((address, _)) => address,
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
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
