//! The daemon's side: routes over the context's handle, served by one thread of its own.

use std::io;
use std::net::{IpAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use axum::serve::Listener;
use crossdock_runtime::ContextHandle;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::routes::{error, routes};
use crate::failure::{Failure, Outcome};

/// Connections served at a time: more than any number of terminals and scripts needs; the next wait in the backlog.
const MAX_CONNECTIONS: usize = 64;
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
    let routes = routes(context).layer(axum::middleware::from_fn(log));
    let over_unix = axum::serve(unix, routes.clone()).into_future();
    let over_tcp = match tcp {
        Some(tcp) => {
            let tcp = Bounded { listener: tokio::net::TcpListener::from_std(tcp)?, places };
            let routes = routes.layer(axum::middleware::from_fn(refuse_foreign_pages));
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

/// One line a request, at level `debug`.
async fn log(request: Request, next: Next) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let response = next.run(request).await;
    tracing::debug!(%method, path, status = response.status().as_u16(), "http");
    response
}

/// A web page can make a browser send requests to loopback addresses, also under a name of the page's own that resolves to
/// one. Such a request says that name as its `Host`; only requests to loopback by its own names are answered. One that is sent
/// to loopback by its own name from a page of elsewhere says that page's `Origin`, if it could change anything.
async fn refuse_foreign_pages(request: Request, next: Next) -> Response {
    let Some(name) = foreign_name(request.headers()) else { return next.run(request).await };
    let hint = "ask for 127.0.0.1, [::1] or localhost, and not from a page of elsewhere";
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

/// A listener that takes at most as many connections at a time as `places` has permits, over all listeners that share
/// it.
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
