//! The command line's side: one request over the control socket, or over TCP.

use std::fmt::{self, Display};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Runtime;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::token::Token;
use super::{ByteStream, ChangeAnswer, ErrorBody, socket, tls};
use crate::cli::{Control, HttpAddress};
use crate::failure::{Failure, Outcome};
use crate::signals::Interrupt;

/// The daemon answers questions between two batches; one that has not in this time never will.
const TIMEOUT: Duration = Duration::from_secs(10);
/// A change of handlers is compiled, and measured on samples, before it is made.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(120);
/// Longest answer that is read: the lists of a daemon with all its tables full.
const MAX_ANSWER_BYTES: usize = 256 << 20;

/// A daemon's API.
#[derive(Clone)]
pub(crate) struct Client {
    at: At,
}

/// Where it is.
#[derive(Clone)]
enum At {
    /// A control socket.
    Socket(PathBuf),
    /// An address.
    Tcp(Arc<Remote>),
}

/// An address, what is trusted there, and the token for it.
struct Remote {
    address: HttpAddress,
    tls: Option<TlsConnector>,
    token: Option<Token>,
}

impl Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            At::Socket(path) => path.display().fmt(f),
            At::Tcp(remote) => remote.address.fmt(f),
        }
    }
}

impl Client {
    /// The daemon that a command line names, or the usual one.
    pub(crate) fn new(control: &Control) -> Outcome<Client> {
        if let Some(address) = control.http.clone() {
            let token = control.token_file.as_deref().map(Token::read).transpose()?;
            let tls = address.is_tls.then(|| tls::connector(control.pin, control.ca.as_deref())).transpose()?;
            return Ok(Client { at: At::Tcp(Arc::new(Remote { address, tls, token })) });
        }
        if let Some(path) = &control.socket {
            return Ok(Client::of_socket(path));
        }
        let path = socket::path_of_daemon();
        if path != Path::new(socket::OF_SERVICE) {
            refuse_impostor(&path)?;
        }
        Ok(Client::of_socket(&path))
    }

    /// The daemon at this socket.
    pub(crate) fn of_socket(path: &Path) -> Client {
        Client { at: At::Socket(path.to_owned()) }
    }

    /// Reads a list.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Outcome<T> {
        self.call(Method::GET, path, Bytes::new(), TIMEOUT)
    }

    /// Asks a question.
    pub(crate) fn post<T: DeserializeOwned>(&self, path: &str, question: &impl Serialize) -> Outcome<T> {
        self.call(Method::POST, path, self.body(question)?, TIMEOUT)
    }

    /// Makes a request by any method, which is answered soon.
    pub(crate) fn ask<T: DeserializeOwned>(&self, method: Method, path: &str, what: &impl Serialize) -> Outcome<T> {
        self.call(method, path, self.body(what)?, TIMEOUT)
    }

    /// Has something taken out.
    pub(crate) fn delete<T: DeserializeOwned>(&self, path: &str, what: &impl Serialize) -> Outcome<T> {
        self.call(Method::DELETE, path, self.body(what)?, TIMEOUT)
    }

    /// Has what runs changed, by any method.
    pub(crate) fn change(&self, method: Method, path: &str, what: &impl Serialize) -> Outcome<ChangeAnswer> {
        self.call(method, path, self.body(what)?, CHANGE_TIMEOUT)
    }

    /// Hands on an answer's lines as they come, until it ends or a signal comes.
    pub(crate) fn follow(
        &self,
        path: &str,
        interrupt: &Interrupt,
        line: impl FnMut(&[u8]) -> Outcome + Send + 'static,
    ) -> Outcome {
        let runtime = self.runtime()?;
        let client = self.clone();
        let path = path.to_owned();
        let task = runtime.spawn(async move { client.lines(&path, line).await });
        let aborter = task.abort_handle();
        interrupt.on_raise(move || aborter.abort());
        match runtime.block_on(task) {
            Ok(outcome) => outcome,
            Err(failed) if failed.is_cancelled() => Ok(()),
            Err(failed) => Err(self.broken(&failed.to_string())),
        }
    }

    async fn lines(&self, path: &str, mut line: impl FnMut(&[u8]) -> Outcome) -> Outcome {
        let response = self.send(Method::GET, path, Bytes::new()).await?;
        let status = response.status();
        let mut body = response.into_body();
        let mut text = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| self.broken(&error.to_string()))?;
            text.extend_from_slice(frame.data_ref().map_or(&[][..], |data| &data[..]));
            while status == StatusCode::OK
                && let Some(end) = text.iter().position(|byte| *byte == b'\n')
            {
                line(&text[..end])?;
                text.drain(..=end);
            }
            if text.len() > MAX_ANSWER_BYTES {
                return Err(self.broken("its answer is too long"));
            }
        }
        if status == StatusCode::OK { Ok(()) } else { Err(self.error(status, &text)) }
    }

    fn body(&self, what: &impl Serialize) -> Outcome<Bytes> {
        let body = serde_json::to_vec(what).map_err(|error| self.broken(&error.to_string()))?;
        Ok(body.into())
    }

    fn runtime(&self) -> Outcome<Runtime> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
        runtime.map_err(|error| self.broken(&error.to_string()))
    }

    /// Asks for a verdict: that it is a no (status 409) is the inner failure.
    pub(crate) fn judge<T: DeserializeOwned>(
        &self,
        path: &str,
        question: &impl Serialize,
    ) -> Outcome<Result<T, Failure>> {
        match self.answer(Method::POST, path, self.body(question)?, TIMEOUT)? {
            (status @ StatusCode::CONFLICT, body) => Ok(Err(self.error(status, &body))),
            (status, body) => self.read(status, &body).map(Ok),
        }
    }

    fn call<T: DeserializeOwned>(&self, method: Method, path: &str, body: Bytes, timeout: Duration) -> Outcome<T> {
        let (status, body) = self.answer(method, path, body, timeout)?;
        self.read(status, &body)
    }

    fn answer(&self, method: Method, path: &str, body: Bytes, timeout: Duration) -> Outcome<(StatusCode, Bytes)> {
        let answered =
            self.runtime()?.block_on(async { tokio::time::timeout(timeout, self.exchange(method, path, body)).await });
        answered.unwrap_or_else(|_| Err(self.broken("it did not answer in time")))
    }

    fn read<T: DeserializeOwned>(&self, status: StatusCode, body: &[u8]) -> Outcome<T> {
        if status != StatusCode::OK {
            return Err(self.error(status, body));
        }
        serde_json::from_slice(body).map_err(|error| {
            self.broken(&format!("its answer cannot be read: {error}"))
                .hint("the daemon may be of another version than this program; compare `crossdock --version`")
        })
    }

    /// The message of an answer that is an error.
    fn error(&self, status: StatusCode, body: &[u8]) -> Failure {
        let Ok(ErrorBody { error, .. }) = serde_json::from_slice(body) else {
            return self.broken(&format!("it answered {status}"));
        };
        // The request is at fault, or how it was asked: only the first is the user's.
        let failure = |message: &str| match status {
            StatusCode::BAD_REQUEST => Failure::usage(message),
            _ => Failure::failed(message),
        };
        match (error.text, error.hint) {
            // It has the hint in it.
            (Some(text), _) if status == StatusCode::BAD_REQUEST => failure(&text),
            (Some(text), Some(hint)) => failure(&text).hint(hint),
            (Some(text), None) => failure(&text),
            (None, Some(hint)) => failure(&error.message).hint(hint),
            (None, None) => failure(&error.message),
        }
    }

    async fn exchange(&self, method: Method, path: &str, body: Bytes) -> Outcome<(StatusCode, Bytes)> {
        let response = self.send(method, path, body).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await;
        Ok((status, body.map_err(|error| self.broken(&error.to_string()))?.to_bytes()))
    }

    async fn send(&self, method: Method, path: &str, body: Bytes) -> Outcome<Response<Incoming>> {
        let (host, token) = match &self.at {
            At::Tcp(remote) if remote.tls.is_some() => (remote.address.to_string(), remote.token.as_ref()),
            At::Tcp(remote) => ("localhost".to_owned(), remote.token.as_ref()),
            At::Socket(_) => ("localhost".to_owned(), None),
        };
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, host)
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(token) = token.and_then(Token::header) {
            request = request.header(header::AUTHORIZATION, token);
        }
        let stream = tokio::time::timeout(TIMEOUT, self.connect()).await;
        let stream = stream.unwrap_or_else(|_| Err(self.broken("it did not answer in time")))?;
        let broken = |error: &dyn Display| self.broken(&error.to_string());
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| broken(&error))?;
        tokio::spawn(connection);
        let request = request.body(Full::new(body)).map_err(|error| broken(&error))?;
        sender.send_request(request).await.map_err(|error| broken(&error))
    }

    /// A connection, behind its TLS handshake if it has one.
    async fn connect(&self) -> Outcome<Box<dyn ByteStream>> {
        let remote = match &self.at {
            At::Socket(path) => {
                let stream = UnixStream::connect(path).await.map_err(|error| self.unreachable(&error))?;
                return Ok(Box::new(stream));
            }
            At::Tcp(remote) => remote,
        };
        let HttpAddress { host, port, .. } = &remote.address;
        let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(|error| self.unreachable(&error))?;
        let Some(tls) = &remote.tls else { return Ok(Box::new(stream)) };
        let name = ServerName::try_from(host.clone()).map_err(|error| self.broken(&error.to_string()))?;
        match tls.connect(name, stream).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => Err(match tls::explained(&error, host) {
                (why, Some(hint)) => self.broken(&why).hint(hint),
                (why, None) => self.broken(&why),
            }),
        }
    }

    fn unreachable(&self, error: &io::Error) -> Failure {
        let at = &self.at;
        let is_service = matches!(at, At::Socket(path) if path == Path::new(socket::OF_SERVICE));
        match error.kind() {
            io::ErrorKind::ConnectionRefused if matches!(at, At::Tcp(..)) => {
                Failure::failed(format!("no daemon answers at {at}"))
                    .hint("set `http` under [control] of its configuration to this address, or name its control socket with --socket")
            }
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                Failure::failed(format!("no daemon is running at {at}"))
                    .hint("start one with `crossdock serve`, or name its control socket with --socket")
            }
            io::ErrorKind::PermissionDenied if is_service => {
                Failure::failed(format!("you may not use the daemon at {at}"))
                    .hint("it is for the group `crossdock`: `sudo usermod -aG crossdock \"$USER\"`, and log in again")
            }
            io::ErrorKind::PermissionDenied => Failure::failed(format!("you may not use the daemon at {at}"))
                .hint("its control socket belongs to the user that started it"),
            _ => self.broken(&error.to_string()),
        }
    }

    fn broken(&self, why: &str) -> Failure {
        Failure::failed(format!("the request to the daemon at {} failed: {why}", self.at))
    }
}

/// `/tmp` is everybody's: a socket there under this user's number could be another's, who would then answer for the daemon.
fn refuse_impostor(path: &Path) -> Outcome {
    let us = rustix::process::getuid().as_raw();
    match std::fs::symlink_metadata(path) {
        Ok(metadata) if metadata.uid() != us && metadata.uid() != 0 => {
            Err(Failure::failed(format!("the control socket {} belongs to another user", path.display()))
                .hint("name the daemon's control socket with --socket if you trust it"))
        }
        _ => Ok(()),
    }
}
