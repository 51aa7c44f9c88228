//! Receives a large file in a form, without holding it in memory.

use highwire::form::{Limits, MultipartError};
use highwire::{App, Html, IntoResponse, Multipart, Response, SpawnBlockingError, StatusCode, spawn_blocking};
use std::path::PathBuf;

const PAGE: &str = "<!doctype html><title>Upload</title>
<form method=post enctype=multipart/form-data>
<p><input name=title placeholder=Title> <input name=file type=file> <button>Send</button></form>";

/// Returns the app. It stores files in `folder`, which must exist.
pub(crate) fn app(folder: impl Into<PathBuf>) -> App {
    let folder = folder.into();
    App::new()
        .get("/", || Html(PAGE))
        .post("/", move |form: Multipart| upload(form, folder.clone()))
        .state(Limits::default().part_bytes(1 << 30).total_bytes(1 << 30))
}

async fn upload(mut form: Multipart, folder: PathBuf) -> Result<String, Failed> {
    let mut said = String::new();
    while let Some(part) = form.next().await {
        let part = part?;
        // The client's file name is not trusted as a path. A safe file name contains no folder, and only
        // files have one.
        let Some(name) = part.safe_file_name() else {
            let field = part.name().to_string();
            said += &format!("{field}: {}\n", part.text(200).await?);
            continue;
        };
        // Writes a temporary file while the part arrives. The file is removed on drop, also if a later step fails or
        // the client disconnects.
        let file = part.spool(&folder).await?;
        let (bytes, path) = (file.len(), folder.join(&name));
        // A hard link does not replace an existing file, so the first upload of a name stays.
        let stored = spawn_blocking(move || std::fs::hard_link(file.path(), path)).await?;
        stored.map_err(|error| Failed((StatusCode::CONFLICT, format!("{name}: {error}\n")).into_response()))?;
        said += &format!("{name}: {bytes} bytes\n");
    }
    Ok(said)
}

/// An error, in the form of its response.
struct Failed(Response);

impl From<MultipartError> for Failed {
    fn from(error: MultipartError) -> Failed {
        Failed(error.into_response())
    }
}

impl From<SpawnBlockingError> for Failed {
    fn from(error: SpawnBlockingError) -> Failed {
        Failed(error.into_response())
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        self.0
    }
}

#[allow(dead_code, reason = "the tests have the routes only")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    std::fs::create_dir_all("uploads")?;
    Ok(app("uploads").listen("127.0.0.1:8080")?.run()?)
}
