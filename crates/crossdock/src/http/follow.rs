//! Events as they happen: an answer that ends with its client.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use crossdock_runtime::ContextHandle;
use hyper::body::Frame;
use tokio::sync::mpsc::{Receiver, channel};

use super::connections::Endless;

/// How often it is looked whether something has happened, while somebody follows.
const LOOK: Duration = Duration::from_millis(200);
/// Lots of events that wait for a client; it is not asked for more while they do.
const WAITING: usize = 4;

/// The events after a number, and those that come, an object a line.
pub(super) fn follow(context: ContextHandle, mut after: u64) -> Response {
    let (sender, lines) = channel(WAITING);
    let look = async move {
        loop {
            let manager = context.manager().clone();
            let Ok(Ok(events)) = tokio::task::spawn_blocking(move || manager.events(after)).await else { return };
            let mut text = Vec::new();
            for event in &events {
                // An event is texts and numbers: it can be written.
                if serde_json::to_writer(&mut text, event).is_ok() {
                    text.push(b'\n');
                }
                after = event.number;
            }
            if !text.is_empty() && sender.send(Bytes::from(text)).await.is_err() {
                return;
            }
            // Ends at once when the client has gone.
            if tokio::time::timeout(LOOK, sender.closed()).await.is_ok() {
                return;
            }
        }
    };
    tokio::spawn(look);
    (Extension(Endless), [(header::CONTENT_TYPE, "application/x-ndjson")], Body::new(Lines(lines))).into_response()
}

/// A body of what comes out of a queue.
pub(super) struct Lines(pub(super) Receiver<Bytes>);

impl HttpBody for Lines {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|lines| lines.map(|lines| Ok(Frame::data(lines))))
    }
}
