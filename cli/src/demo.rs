//! The routes of `highwire demo`, to try out and to benchmark.

use crate::chat;
use bytes::Bytes;
use futures_core::Stream;
use highwire::body::BodyError;
use highwire::form::{MultipartError, Part};
use highwire::topics::Topics;
use highwire::ws::{self, Deflate, Message, WebSocketSender, WebSocketUpgrade};
use highwire::{
    App, Body, IntoResponse, Json, Multipart, Path, Query, Request, Response, StatusCode, blocking, spawn_blocking,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::Read;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// The longest wait of `/sleep` and `/block`, shorter than the default handler timeout (60 s).
const LONGEST_MS: u64 = 50_000;

/// The most bytes of a message that `/ws` takes. The largest messages of the Autobahn test suite have 16 MiB.
const LARGEST_MESSAGE_BYTES: u64 = 16 * 1024 * 1024;

/// Returns the app of `highwire demo`, with a chat of this process alone.
pub fn app() -> App {
    app_with(chat::topics().build())
}

/// Returns the app of `highwire demo`, with the topics of its chat.
pub fn app_with(topics: Topics) -> App {
    let app = App::new()
        .get("/", || Response::html(include_str!("page.html")))
        .get("/hello", || Response::bytes("text/plain", Bytes::from_static(b"Hello, World!")))
        .get("/echo", echo)
        .get("/users/{id}", |Path(id): Path<String>| format!("user {id}\n"))
        .post("/upload", upload)
        .post("/body", |body: Bytes| body)
        .post("/json", |Json(value): Json<serde_json::Value>| Json(value))
        .post("/form", form)
        .get("/headers", headers)
        .get("/stream", |Query(Size { bytes }): Query<Size>| Response::stream(Letters { left: bytes }))
        .get("/ws", |upgrade: WebSocketUpgrade| {
            let deflate = Deflate::new().server_context_takeover(true).client_context_takeover(true);
            let upgrade = upgrade.any_origin().max_message_size(LARGEST_MESSAGE_BYTES);
            upgrade.deflate(deflate).on_message(echo_message)
        })
        .get("/sleep", async |Query(Wait { ms }): Query<Wait>| {
            let ms = ms.min(LONGEST_MS);
            highwire::time::sleep(Duration::from_millis(ms)).await;
            format!("slept {ms} ms\n")
        })
        .get(
            "/block",
            blocking(|Query(Wait { ms }): Query<Wait>| {
                let ms = ms.min(LONGEST_MS);
                std::thread::sleep(Duration::from_millis(ms));
                format!("blocked {ms} ms\n")
            }),
        );
    chat::add(app, topics)
}

/// Sends each message back.
fn echo_message(socket: &WebSocketSender, message: Result<Message, ws::Error>) {
    if let Ok(message @ (Message::Text(_) | Message::Binary(_))) = message {
        // Fails if the connection is broken, which ends it.
        let _ = socket.try_send(message);
    }
}

#[derive(Serialize)]
struct Echo {
    query: BTreeMap<String, String>,
}

fn echo(Query(query): Query<BTreeMap<String, String>>) -> Json<Echo> {
    Json(Echo { query })
}

#[derive(Serialize)]
struct Uploaded {
    bytes: u64,
    sha256: String,
}

/// A JSON response that ends with a line feed, for terminals.
struct Line<T>(T);

impl<T: Serialize> IntoResponse for Line<T> {
    fn into_response(self) -> Response {
        match serde_json::to_string(&self.0) {
            Ok(text) => Response::bytes("application/json", text + "\n"),
            Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        }
    }
}

async fn upload(mut body: Body) -> Result<Line<Uploaded>, Failed> {
    let (mut bytes, mut hash) = (0, Sha256::new());
    while let Some(part) = body.next().await {
        let part = part.map_err(Failed)?;
        bytes += part.len() as u64;
        hash.update(&part);
    }
    Ok(Line(Uploaded { bytes, sha256: hex(hash) }))
}

fn hex(hash: Sha256) -> String {
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The response (400) to an upload whose body could not be read to its end.
struct Failed(BodyError);

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        (StatusCode::BAD_REQUEST, format!("{}\n", self.0)).into_response()
    }
}

/// The size limit of a text field of `/form`, in bytes.
const MOST_TEXT_BYTES: usize = 64 * 1024;

/// One part of a form as `/form` reports it: the text itself, or a description of the file.
#[derive(Serialize)]
#[serde(untagged)]
enum Field {
    Text { name: String, text: String },
    File { name: String, file: String, media_type: Option<String>, bytes: u64, sha256: String },
}

async fn form(mut multipart: Multipart) -> Result<Line<Vec<Field>>, FormFailed> {
    let mut fields = Vec::new();
    while let Some(part) = multipart.next().await {
        fields.push(field(part?).await?);
    }
    Ok(Line(fields))
}

async fn field(part: Part<'_>) -> Result<Field, FormFailed> {
    let name = part.name().to_string();
    let Some(file) = part.file_name().map(str::to_string) else {
        return Ok(Field::Text { name, text: part.text(MOST_TEXT_BYTES).await? });
    };
    let media_type = part.content_type().map(str::to_string);
    let spool = part.spool(std::env::temp_dir()).await?;
    let (path, bytes) = (spool.path().to_path_buf(), spool.len());
    let sum = spawn_blocking(move || hash_file(&path));
    let sha256 = sum.await.map_err(IntoResponse::into_response)?.map_err(|error| {
        tracing::warn!(%error, "cannot read a spooled upload");
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    })?;
    Ok(Field::File { name, file, media_type, bytes, sha256 })
}

fn hash_file(path: &std::path::Path) -> std::io::Result<String> {
    let (mut file, mut hash, mut buffer) = (std::fs::File::open(path)?, Sha256::new(), vec![0; 64 * 1024]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hex(hash)),
            count => hash.update(&buffer[..count]),
        }
    }
}

/// The error response of `/form`.
struct FormFailed(Response);

impl From<MultipartError> for FormFailed {
    fn from(error: MultipartError) -> FormFailed {
        FormFailed(error.into_response())
    }
}

impl From<Response> for FormFailed {
    fn from(response: Response) -> FormFailed {
        FormFailed(response)
    }
}

impl IntoResponse for FormFailed {
    fn into_response(self) -> Response {
        self.0
    }
}

fn headers(request: &Request<'_>) -> Response {
    let mut lines = Vec::new();
    for (name, value) in request.headers() {
        lines.extend_from_slice(name.as_bytes());
        lines.extend_from_slice(b": ");
        lines.extend_from_slice(value);
        lines.push(b'\n');
    }
    Response::bytes("text/plain", lines)
}

#[derive(Deserialize)]
struct Size {
    #[serde(default)]
    bytes: u64,
}

#[derive(Deserialize)]
struct Wait {
    #[serde(default)]
    ms: u64,
}

/// Streams the letter x `left` times from a static buffer.
struct Letters {
    left: u64,
}

static LETTERS: [u8; 64 * 1024] = [b'x'; 64 * 1024];

impl Stream for Letters {
    type Item = Result<Bytes, std::convert::Infallible>;
    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let take = self.left.min(LETTERS.len() as u64);
        if take == 0 {
            return Poll::Ready(None);
        }
        self.left -= take;
        Poll::Ready(Some(Ok(Bytes::from_static(&LETTERS[..take as usize]))))
    }
}
