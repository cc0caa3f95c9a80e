//! The command line's side: one request over the control socket.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use super::{ErrorBody, socket};
use crate::failure::{Failure, Outcome};

/// The daemon answers between two batches; one that has not in this time never will.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Longest answer that is read: the lists of a daemon with all its tables full.
const MAX_ANSWER_BYTES: usize = 256 << 20;

/// The daemon behind a control socket.
pub(crate) struct Client {
    path: PathBuf,
}

impl Client {
    /// The daemon at this socket, or at the usual one.
    pub(crate) fn new(path: Option<&Path>) -> Outcome<Client> {
        let Some(path) = path else {
            let path = socket::default_path();
            refuse_impostor(&path)?;
            return Ok(Client { path });
        };
        Ok(Client { path: path.to_owned() })
    }

    /// Reads a list.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Outcome<T> {
        self.call(Method::GET, path, Bytes::new())
    }

    /// Asks a question.
    pub(crate) fn post<T: DeserializeOwned>(&self, path: &str, question: &impl Serialize) -> Outcome<T> {
        let body = serde_json::to_vec(question).map_err(|error| self.broken(&error.to_string()))?;
        self.call(Method::POST, path, body.into())
    }

    /// Has something taken out.
    pub(crate) fn delete<T: DeserializeOwned>(&self, path: &str, what: &impl Serialize) -> Outcome<T> {
        let body = serde_json::to_vec(what).map_err(|error| self.broken(&error.to_string()))?;
        self.call(Method::DELETE, path, body.into())
    }

    fn call<T: DeserializeOwned>(&self, method: Method, path: &str, body: Bytes) -> Outcome<T> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = runtime.map_err(|error| self.broken(&error.to_string()))?;
        let answered =
            runtime.block_on(async { tokio::time::timeout(TIMEOUT, self.exchange(method, path, body)).await });
        let (status, body) = answered.unwrap_or_else(|_| Err(self.broken("it did not answer in time")))?;
        if status == StatusCode::OK {
            return serde_json::from_slice(&body).map_err(|error| {
                self.broken(&format!("its answer cannot be read: {error}"))
                    .hint("the daemon may be of another version than this program; compare `crossdock --version`")
            });
        }
        let Ok(ErrorBody { error }) = serde_json::from_slice(&body) else {
            return Err(self.broken(&format!("it answered {status}")));
        };
        // What was asked is at fault, or how it was asked: only the first is the user's.
        let failure = |message: &str| match status {
            StatusCode::BAD_REQUEST => Failure::usage(message),
            _ => Failure::failed(message),
        };
        Err(match (error.text, error.hint) {
            (Some(text), _) => failure(&text),
            (None, Some(hint)) => failure(&error.message).hint(hint),
            (None, None) => failure(&error.message),
        })
    }

    async fn exchange(&self, method: Method, path: &str, body: Bytes) -> Outcome<(StatusCode, Bytes)> {
        let stream = UnixStream::connect(&self.path).await.map_err(|error| self.unreachable(&error))?;
        let broken = |error: &dyn std::fmt::Display| self.broken(&error.to_string());
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| broken(&error))?;
        tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "localhost")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .map_err(|error| broken(&error))?;
        let response = sender.send_request(request).await.map_err(|error| broken(&error))?;
        let status = response.status();
        let body =
            Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await.map_err(|error| broken(&error))?;
        Ok((status, body.to_bytes()))
    }

    fn unreachable(&self, error: &io::Error) -> Failure {
        let path = self.path.display();
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                Failure::failed(format!("no daemon is running at {path}"))
                    .hint("start one with `crossdock serve`, or name its control socket with --socket")
            }
            io::ErrorKind::PermissionDenied => Failure::failed(format!("you may not use the daemon at {path}"))
                .hint("its control socket is for the user who started it"),
            _ => self.broken(&error.to_string()),
        }
    }

    fn broken(&self, why: &str) -> Failure {
        Failure::failed(format!("the daemon at {} cannot be asked: {why}", self.path.display()))
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
