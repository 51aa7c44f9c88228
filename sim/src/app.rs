//! The app under test: the demo's routes, and routes that only tests need.

use bytes::Bytes;
use highwire::body::{self, BodyError, channel};
use highwire::{App, Body, InterimResponses, Response, StatusCode, Upgrade, header};
use http::{HeaderName, HeaderValue};
use sha2::{Digest, Sha256};
use std::time::Duration;

/// Returns the app with the demo's routes and those of the behaviour suite.
pub fn app() -> App {
    highwire_cli::demo::app()
        .get("/reason", || {
            Response::text("fine\n").with_reason("Fine By Me").map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
        })
        .get("/early", |interim: InterimResponses| {
            let link = HeaderValue::from_static("</style.css>; rel=preload");
            interim.send(StatusCode::EARLY_HINTS, [(header::LINK, link)]);
            "hints"
        })
        .get("/panic", panics)
        .post("/slow-upload", async |body: Body| slow_upload(body).await)
        .put("/item", || StatusCode::NO_CONTENT)
        .get("/upgrade", |upgrade: Upgrade| {
            upgrade.accept("echo", async |mut stream| {
                while let Ok(Some(bytes)) = stream.read().await {
                    if stream.write(bytes).await.is_err() {
                        break;
                    }
                }
            })
        })
        .get("/nobody", || StatusCode::NOT_MODIFIED)
        .get("/trailers", trailers)
        .get("/late-panic", async || {
            highwire::time::sleep(Duration::from_millis(1)).await;
            panics()
        })
        .configure(|config| {
            config.workers = 1;
            // A fixed budget, so that runs do not depend on the machine's memory.
            config.memory = Some(256 * 1024 * 1024);
        })
}

fn panics() -> &'static str {
    // Skips the panic hook, which would print a message for each of thousands of calls.
    std::panic::resume_unwind(Box::new("on purpose"))
}

/// Reads a body slowly: waits 20 ms before every eighth part, and 1 ms before each other part. Answers like `/upload`.
async fn slow_upload(mut body: Body) -> Result<String, BodyError> {
    let (mut hash, mut bytes, mut parts) = (Sha256::new(), 0, 0);
    loop {
        parts += 1;
        highwire::time::sleep(Duration::from_millis(if parts % 8 == 0 { 20 } else { 1 })).await;
        let Some(part) = body.next().await else { break };
        let part = part?;
        bytes += part.len();
        hash.update(&part);
    }
    let sum: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{{\"bytes\":{bytes},\"sha256\":\"{sum}\"}}\n"))
}

fn trailers() -> Response {
    let (mut sender, receiver) = channel();
    highwire::spawn(async move {
        for part in ["tr", "ail"] {
            if sender.send(Bytes::from_static(part.as_bytes())).await.is_err() {
                return;
            }
        }
        sender.finish();
    });
    let receiver: body::Receiver = receiver;
    Response::stream(receiver).with_trailers(|| vec![(HeaderName::from_static("x-sum"), HeaderValue::from_static("5"))])
}
