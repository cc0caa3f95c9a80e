//! The daemon's side: routes over the context's handle, served by one thread of its own.

use std::io;
use std::net::{IpAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::Response;
use crossdock_runtime::{ContextHandle, Network};
use tokio::sync::oneshot;

use super::admission::{Admission, admit, is_near};
use super::connections::{self, Peer};
use super::routes::{MOST_CHANGES, error, routes};
use super::tls::TlsFiles;
use super::token::TokenFiles;
use crate::failure::{Failure, Outcome};

/// Requests that wait for the context at a time, each in a thread of its own: lists, which are answered soon, beside
/// changes, which may take long.
pub(super) const MOST_WAITING: usize = 12 + MOST_CHANGES;
/// How long the end waits for requests that are being answered.
const GOODBYE: Duration = Duration::from_secs(1);

/// The API's TCP side.
pub(crate) struct TcpSide {
    /// Where it listens.
    pub(crate) listener: TcpListener,
    /// Its certificate; without one, connections are not encrypted.
    pub(crate) tls: Option<Arc<TlsFiles>>,
    /// Networks whose hosts are let in as this machine's own users are.
    pub(crate) trusted: Vec<Network>,
}

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
        tcp: Option<TcpSide>,
        tokens: Arc<TokenFiles>,
    ) -> Outcome<Server> {
        let refused = |error: io::Error| Failure::failed(format!("cannot start the HTTP API: {error}"));
        unix.set_nonblocking(true).map_err(refused)?;
        if let Some(tcp) = &tcp {
            tcp.listener.set_nonblocking(true).map_err(refused)?;
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
            if let Err(error) = runtime.block_on(serve(context, unix, tcp, tokens, stopped)) {
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
    tcp: Option<TcpSide>,
    tokens: Arc<TokenFiles>,
    stopped: oneshot::Receiver<()>,
) -> io::Result<()> {
    let unix = tokio::net::UnixListener::from_std(unix)?;
    // A socket file is guarded by its mode; a TCP port by nothing but what the request says of itself.
    let trusted: Arc<[Network]> = tcp.as_ref().map(|tcp| tcp.trusted.clone()).unwrap_or_default().into();
    let admission = Admission { context: context.clone(), tokens, trusted: Arc::clone(&trusted) };
    let routes = routes(context.clone()).layer(from_fn_with_state(admission, admit)).layer(from_fn(log));
    let over_tcp = match tcp {
        Some(TcpSide { listener, tls, .. }) => {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let strangers = Strangers { trusted, is_encrypted: tls.is_some() };
            let routes = routes.clone().layer(from_fn_with_state(strangers, refuse_strangers));
            Some(tokio::spawn(connections::serve(listener, tls.map(|files| (files, context)), routes)))
        }
        None => None,
    };
    let over_unix = tokio::spawn(connections::serve(unix, None, routes));
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

/// The requests over TCP that are refused whatever they say of themselves.
#[derive(Clone)]
struct Strangers {
    trusted: Arc<[Network]>,
    is_encrypted: bool,
}

/// Refuses requests that come unencrypted from a network that is not trusted, and those of foreign web pages.
async fn refuse_strangers(State(strangers): State<Strangers>, request: Request, next: Next) -> Response {
    let Strangers { trusted, is_encrypted } = strangers;
    let peer = request.extensions().get::<Peer>().copied();
    if !is_encrypted && !is_near(peer, &trusted) {
        let hint = "set `tls_cert` and `tls_key` under [control] of the daemon's configuration, or list the network as \
                    `trusted` in [security]";
        let message = "the API is not encrypted here, and your address is in no trusted network".to_owned();
        return error(StatusCode::FORBIDDEN, message, hint);
    }
    let Some(name) = foreign_name(request.headers(), is_encrypted) else { return next.run(request).await };
    let hint = "send requests to localhost or an IP address (over TLS to any name of the daemon's certificate), and not from \
                another site's page";
    error(StatusCode::FORBIDDEN, format!("`{name}` is not this daemon's"), hint)
}

/// The name in a request that is not the daemon's, if there is one. A web page can make a browser send requests to the daemon,
/// also under a name of the page's own that resolves to the daemon's address. Such a request says that name as its `Host`: over
/// TLS, the browser has compared it with the certificate; otherwise only names that nobody else can have are answered. A page
/// that sends to the daemon by the daemon's own name says its `Origin`, if it could change anything.
fn foreign_name(headers: &HeaderMap, is_encrypted: bool) -> Option<String> {
    let said = |name| headers.get(name).map(|value| value.to_str().unwrap_or(""));
    let host = said(header::HOST).unwrap_or("");
    let is_own = is_encrypted || is_localhost(host) || ip_of(host).is_some();
    let origin = said(header::ORIGIN).map(|origin| origin.split_once("://").map_or(origin, |(_, host)| host));
    let is_elsewhere = |origin: &&str| {
        let is_loopback = is_localhost(origin) || ip_of(origin).is_some_and(|ip| ip.is_loopback());
        !is_loopback && !name_of(origin).eq_ignore_ascii_case(name_of(host))
    };
    let foreign = (!is_own).then_some(host).or_else(|| origin.filter(is_elsewhere));
    foreign.map(str::to_owned)
}

/// A host without its port. An IPv6 address stands in brackets, with or without a port behind them.
fn name_of(host: &str) -> &str {
    match host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        Some((address, _)) => address,
        None => host.split_once(':').map_or(host, |(name, _)| name),
    }
}

fn is_localhost(host: &str) -> bool {
    name_of(host).eq_ignore_ascii_case("localhost")
}

fn ip_of(host: &str) -> Option<IpAddr> {
    name_of(host).parse().ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;

    #[test]
    fn only_the_daemons_own_names_are_let_in() {
        let foreign = |host: &str, origin: Option<&str>, is_encrypted| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            if let Some(origin) = origin {
                headers.insert(header::ORIGIN, origin.parse().unwrap());
            }
            foreign_name(&headers, is_encrypted)
        };
        for host in
            ["localhost", "LOCALHOST:7441", "127.0.0.1", "127.0.0.1:7441", "[::1]:7441", "[::1]", "10.0.0.1:7441"]
        {
            assert_eq!(foreign(host, None, false), None);
        }
        for host in ["", "evil.example", "evil.example:7441", "localhost.evil.example"] {
            assert_eq!(foreign(host, None, false).as_deref(), Some(host));
            assert_eq!(foreign(host, None, true), None, "its certificate is for that name: {host}");
        }
        for is_encrypted in [false, true] {
            for origin in ["http://localhost:3000", "http://[::1]", "https://10.0.0.1:7441"] {
                assert_eq!(foreign("10.0.0.1:7441", Some(origin), is_encrypted), None, "{origin}");
            }
            for origin in ["https://pages.example", "null", "http://10.0.0.2:7441"] {
                assert!(foreign("10.0.0.1:7441", Some(origin), is_encrypted).is_some(), "{origin}");
            }
        }
    }
}
