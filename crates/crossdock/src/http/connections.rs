//! The connections of one listener: bounded for each peer and together, so that nobody shuts others out. A connection whose
//! client says nothing, or only follows events, gives way to a new one. That begins before the TLS handshake of a connection that
//! is encrypted, so that clients that do not go on with it shut nobody out either.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::response::Response;
use axum::serve::Listener;
use crossdock_runtime::ContextHandle;
use http_body_util::BodyExt;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;

use super::ByteStream;
use super::routes::{MAX_BODY_BYTES, error};
use super::tls::{self, TlsFiles};

/// Connections of one peer: more than any number of terminals and scripts of a user needs.
const MOST_OF_PEER: usize = 32;
/// Connections of all peers of a listener.
pub(crate) const MOST: usize = 128;
/// How long a client may take for the TLS handshake and a request's head, and then for its body; and stay connected between two
/// requests.
const SILENCE: Duration = Duration::from_secs(10);
/// How long a client may take to take in that it is refused.
const REFUSAL: Duration = Duration::from_millis(100);
/// Said to a client that has all of its connections in use.
const REFUSED: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n\
    {\"error\":{\"message\":\"too many of your requests are in progress\",\"hint\":\"wait until one of them is \
    answered\"}}\n";

/// Whose connection it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// A user of this machine, by number; nobody's is `None`.
    User(Option<u32>),
    /// An address.
    Address(Option<IpAddr>),
}

/// A connection that says whose it is.
pub(super) trait Peered: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Whose it is.
    fn peer(&self) -> Peer;

    /// The first byte that its client sends, which stays to be read; `None` where the client sends nothing.
    fn poll_first(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<u8>>>;
}

impl Peered for UnixStream {
    fn peer(&self) -> Peer {
        Peer::User(self.peer_cred().ok().map(|credentials| credentials.uid()))
    }

    /// It is guarded by its mode, and never encrypted.
    fn poll_first(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<Option<u8>>> {
        Poll::Ready(Ok(None))
    }
}

impl Peered for TcpStream {
    fn peer(&self) -> Peer {
        Peer::Address(self.peer_addr().ok().map(|address| address.ip()))
    }

    fn poll_first(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<u8>>> {
        let mut byte = [0];
        let mut place = ReadBuf::new(&mut byte);
        ready!(self.poll_peek(cx, &mut place))?;
        Poll::Ready(Ok(place.filled().first().copied()))
    }
}

/// Serves a listener's connections until the task is aborted: over TLS, if it has a certificate; the daemon counts handshakes that
/// fail.
pub(super) async fn serve<L>(mut listener: L, tls: Option<(Arc<TlsFiles>, ContextHandle)>, routes: Router) -> Infallible
where
    L: Listener<Io: Peered>,
{
    let connections = Arc::new(Connections::default());
    loop {
        // Errors, such as too many open files, are waited out there.
        let (mut io, _) = listener.accept().await;
        match connections.take(io.peer()) {
            Some(place) => {
                let place = Arc::new(place);
                let tls = tls.as_ref().map(|(files, daemon)| (tls::acceptor(files), daemon.clone()));
                let task = tokio::spawn(converse(io, tls, routes.clone(), Arc::clone(&place)));
                place.set_task(task.abort_handle());
            }
            None => drop(tokio::time::timeout(REFUSAL, refuse(&mut io)).await),
        }
    }
}

/// Answers the requests of a connection, behind its TLS handshake if it has one.
async fn converse<S: Peered>(
    io: S,
    tls: Option<(TlsAcceptor, ContextHandle)>,
    routes: Router,
    place: Arc<ConnectionSlot>,
) {
    let began = tokio::time::Instant::now();
    let (io, routes): (Box<dyn ByteStream>, Router) = match tls {
        None => (Box::new(io), routes),
        Some(tls) => match tokio::time::timeout(SILENCE, shake_hands(io, tls)).await {
            Ok(Ok((io, true))) => (io, routes),
            Ok(Ok((io, false))) => (io, Router::new().fallback(refuse_plain)),
            Ok(Err(error)) => return tracing::debug!(%error, "a TLS handshake failed"),
            Err(_) => return,
        },
    };
    answer_all(io, routes, place, SILENCE.saturating_sub(began.elapsed())).await;
}

/// The connection behind its handshake, and true; or as it came, and false, if its client does not begin one.
async fn shake_hands<S: Peered>(
    mut io: S,
    (tls, daemon): (TlsAcceptor, ContextHandle),
) -> io::Result<(Box<dyn ByteStream>, bool)> {
    let first = poll_fn(|cx| io.poll_first(cx)).await?;
    let io: Box<dyn ByteStream> = Box::new(io);
    match first {
        Some(tls::FIRST_BYTE) => {
            let mut handshake = Handshake { daemon, is_done: false };
            let io = tls.accept(io).await?;
            handshake.is_done = true;
            Ok((Box::new(io), true))
        }
        Some(_) => Ok((io, false)),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// A TLS handshake that has begun. It counts as failed if it ends before it is done: by an error, by the time that it takes, or as its
/// connection gives way to another.
struct Handshake {
    daemon: ContextHandle,
    is_done: bool,
}

impl Drop for Handshake {
    fn drop(&mut self) {
        if !self.is_done {
            self.daemon.access().count_failed_handshake();
        }
    }
}

/// The answer to any request that comes unencrypted where it may not.
async fn refuse_plain() -> Response {
    let hint = "begin the address with https:// (commands: --http https://HOST:PORT, with --ca or --pin)";
    error(StatusCode::BAD_REQUEST, "this port speaks TLS, and the request came without".to_owned(), hint)
}

/// Answers the requests of a connection; a head may take `patience`.
async fn answer_all(io: Box<dyn ByteStream>, routes: Router, place: Arc<ConnectionSlot>, patience: Duration) {
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(place.peer);
        answer(request, routes.clone(), Arc::clone(&place))
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(patience);
    // A connection that breaks off is its client's affair.
    let _ = http.serve_connection(TokioIo::new(io), service).await;
}

/// In the extensions of an answer that ends with its client only.
#[derive(Clone, Copy, Debug)]
pub(super) struct Endless;

/// Answers one request. The connection is at work from the request's end to the answer's, or to the beginning of one that is
/// [`Endless`].
async fn answer(
    request: Request<Incoming>,
    routes: Router,
    place: Arc<ConnectionSlot>,
) -> Result<Response, Infallible> {
    let (parts, body) = request.into_parts();
    let Ok(body) = tokio::time::timeout(SILENCE, read(body)).await else {
        let hint = "send all of the request at once";
        let message = format!("the request's body did not come within {} s", SILENCE.as_secs());
        return Ok(error(StatusCode::REQUEST_TIMEOUT, message, hint));
    };
    let work = Work::begin(place);
    let response = TowerToHyperService::new(routes).call(Request::from_parts(parts, Body::from(body))).await?;
    if response.extensions().get::<Endless>().is_some() {
        return Ok(response);
    }
    let whole = move |body: Body| {
        Body::new(body.map_frame(move |frame| {
            // It lasts as long as the answer.
            let _ = &work;
            frame
        }))
    };
    Ok(response.map(whole))
}

/// A request's body; of one that is too long as much as the routes need to refuse it.
async fn read(mut body: Incoming) -> Bytes {
    let mut bytes = Vec::new();
    while bytes.len() <= MAX_BODY_BYTES
        && let Some(Ok(frame)) = body.frame().await
    {
        bytes.extend_from_slice(frame.data_ref().map_or(&[][..], |data| &data[..]));
    }
    bytes.into()
}

async fn refuse(io: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
    // A new connection's buffer has room for all of it.
    poll_fn(|cx| Pin::new(&mut *io).poll_write(cx, REFUSED)).await.map(drop)
}

/// The connections of a listener, by number.
#[derive(Debug, Default)]
struct Connections(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    next: u64,
    open: BTreeMap<u64, Connection>,
}

#[derive(Debug)]
struct Connection {
    peer: Peer,
    /// Since when it waits for its client; `None` while a request is answered.
    silent_since: Option<Instant>,
    /// The task that serves it, once it does.
    task: Option<AbortHandle>,
}

impl Connections {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a connection. Where there is none left, the connection that has been silent longest is ended for it, of
    /// those of the same peer if it has too many; `None` if none is silent.
    fn take(self: &Arc<Connections>, peer: Peer) -> Option<ConnectionSlot> {
        let mut table = self.table();
        let mut given_way = None;
        let of_peer = table.open.values().filter(|connection| connection.peer == peer).count();
        if of_peer >= MOST_OF_PEER || table.open.len() >= MOST {
            let may_go = |connection: &Connection| of_peer < MOST_OF_PEER || connection.peer == peer;
            let silent = table.open.iter().filter(|(_, connection)| may_go(connection));
            let silent = silent.filter_map(|(number, connection)| Some((connection.silent_since?, *number)));
            let (_, number) = silent.min()?;
            given_way = table.open.remove(&number).and_then(|connection| connection.task);
        }
        let number = table.next;
        table.next += 1;
        table.open.insert(number, Connection { peer, silent_since: Some(Instant::now()), task: None });
        drop(table);
        if let Some(task) = given_way {
            task.abort();
        }
        Some(ConnectionSlot { connections: Arc::clone(self), number, peer })
    }
}

/// A connection's place among those that are served.
#[derive(Debug)]
struct ConnectionSlot {
    connections: Arc<Connections>,
    number: u64,
    peer: Peer,
}

impl ConnectionSlot {
    fn change(&self, change: impl FnOnce(&mut Connection)) {
        // It may have given way meanwhile.
        if let Some(connection) = self.connections.table().open.get_mut(&self.number) {
            change(connection);
        }
    }

    fn set_task(&self, task: AbortHandle) {
        self.change(|connection| connection.task = Some(task));
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.connections.table().open.remove(&self.number);
    }
}

/// A request that is being answered.
struct Work(Arc<ConnectionSlot>);

impl Work {
    fn begin(place: Arc<ConnectionSlot>) -> Work {
        place.change(|connection| connection.silent_since = None);
        Work(place)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.0.change(|connection| connection.silent_since = Some(Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::follow::Lines;
    use axum::Extension;
    use axum::response::IntoResponse;
    use axum::routing::get;
    use tokio::sync::mpsc::channel;

    fn user(number: u32) -> Peer {
        Peer::User(Some(number))
    }

    fn count(connections: &Connections, peer: Peer) -> usize {
        connections.table().open.values().filter(|connection| connection.peer == peer).count()
    }

    /// In virtual time: the clock goes on when nothing else is to be done.
    #[tokio::test(start_paused = true)]
    async fn a_connection_whose_client_does_not_go_on_is_ended() {
        let whole = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab";
        for (said, answer) in [
            ("", None),
            ("GET / HTTP/1.1\r\nHo", None),
            ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nab", Some("HTTP/1.1 408 ")),
            (whole, Some("HTTP/1.1 404 ")),
        ] {
            let (io, client) = UnixStream::pair().unwrap();
            assert_eq!(client.try_write(said.as_bytes()).unwrap(), said.len());
            let place = Arc::new(Connections::default()).take(user(1)).unwrap();
            converse(io, None, Router::new(), Arc::new(place)).await;
            let mut answered = [0; 4096];
            client.readable().await.unwrap();
            let count = client.try_read(&mut answered).unwrap_or(0);
            let answered = String::from_utf8_lossy(&answered[..count]);
            assert!(answer.map_or(answered.is_empty(), |answer| answered.starts_with(answer)), "{said}: {answered}");
        }
    }

    #[test]
    fn the_longest_silent_connection_of_a_peer_with_too_many_gives_way() {
        let connections = Arc::new(Connections::default());
        let other = connections.take(user(2)).unwrap();
        let places: Vec<ConnectionSlot> = (0..MOST_OF_PEER + 5).filter_map(|_| connections.take(user(1))).collect();
        assert_eq!(places.len(), MOST_OF_PEER + 5);
        assert_eq!((count(&connections, user(1)), count(&connections, user(2))), (MOST_OF_PEER, 1));
        let open: Vec<u64> = connections.table().open.keys().copied().collect();
        assert!(!open.contains(&places[4].number) && open.contains(&places[5].number) && open.contains(&other.number));
        drop(places);
        assert_eq!(count(&connections, user(1)), 0);
    }

    #[test]
    fn a_connection_that_is_at_work_is_not_ended_and_a_peer_with_no_other_is_refused() {
        let connections = Arc::new(Connections::default());
        let places: Vec<Arc<ConnectionSlot>> =
            (0..MOST_OF_PEER).filter_map(|_| connections.take(user(1))).map(Arc::new).collect();
        let mut work: Vec<Work> = places.iter().map(|place| Work::begin(Arc::clone(place))).collect();
        assert!(connections.take(user(1)).is_none());
        assert!(connections.take(user(2)).is_some(), "others are not concerned");
        drop(work.pop());
        assert!(connections.take(user(1)).is_some());
        assert_eq!(count(&connections, user(1)), MOST_OF_PEER - 1, "the new place was given back");
    }

    #[tokio::test]
    async fn clients_that_follow_events_give_way_to_one_that_asks() {
        let following = Arc::new(Mutex::new(Vec::new()));
        let senders = Arc::clone(&following);
        let endless = move || async move {
            let (sender, lines) = channel(1);
            senders.lock().unwrap().push(sender);
            (Extension(Endless), Body::new(Lines(lines))).into_response()
        };
        let routes = Router::new().route("/", get(endless)).route("/other", get(|| async { "answered" }));
        let connections = Arc::new(Connections::default());
        let mut clients = Vec::new();
        for path in std::iter::repeat_n("/", MOST_OF_PEER).chain(["/other"]) {
            let (io, client) = UnixStream::pair().unwrap();
            let place = Arc::new(connections.take(user(1)).expect("one that follows gives way"));
            let task = tokio::spawn(converse(io, None, routes.clone(), Arc::clone(&place)));
            place.set_task(task.abort_handle());
            client.try_write(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).unwrap();
            let mut answered = [0; 4096];
            client.readable().await.unwrap();
            let count = client.try_read(&mut answered).unwrap();
            assert!(answered[..count].starts_with(b"HTTP/1.1 200 "), "{path}");
            clients.push(client);
        }
        assert_eq!(count(&connections, user(1)), MOST_OF_PEER);
        assert_eq!(following.lock().unwrap().len(), MOST_OF_PEER);
    }

    #[test]
    fn peers_together_have_a_bound_too() {
        let connections = Arc::new(Connections::default());
        let places: Vec<ConnectionSlot> =
            (0..MOST as u32 + 3).filter_map(|number| connections.take(user(number))).collect();
        assert_eq!((places.len(), connections.table().open.len()), (MOST + 3, MOST));
    }
}
