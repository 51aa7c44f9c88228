//! Uploads to the disk, as they arrive, of at most 10 MiB.

use axum::Router;
use axum::extract::multipart::MultipartError;
use axum::extract::{DefaultBodyLimit, Multipart, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::fs::File;
use tokio::io::AsyncWriteExt;

static NEXT: AtomicU64 = AtomicU64::new(0);

async fn upload(State(folder): State<PathBuf>, mut form: Multipart) -> Result<String, Response> {
    let mut bytes = 0;
    while let Some(mut part) = form.next_field().await.map_err(MultipartError::into_response)? {
        let path = folder.join(format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
        let failed = |_| StatusCode::INTERNAL_SERVER_ERROR.into_response();
        let mut file = File::create_new(&path).await.map_err(failed)?;
        let written = async {
            while let Some(chunk) = part.chunk().await.map_err(MultipartError::into_response)? {
                bytes += chunk.len();
                file.write_all(&chunk).await.map_err(failed)?;
            }
            file.flush().await.map_err(failed)
        };
        if let Err(response) = written.await {
            let _ = tokio::fs::remove_file(path).await;
            return Err(response);
        }
    }
    Ok(format!("{bytes} bytes"))
}

pub fn app(folder: PathBuf) -> Router {
    Router::new().route("/", post(upload)).layer(DefaultBodyLimit::max(10 << 20)).with_state(folder)
}
