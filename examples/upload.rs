//! How is a large file taken, with a form around it, without holding it in memory?

use highwire::form::{Limits, MultipartError};
use highwire::{App, Html, IntoResponse, Multipart, Response, SpawnBlockingError, StatusCode, spawn_blocking};
use std::path::PathBuf;

const PAGE: &str = "<!doctype html><title>Upload</title>
<form method=post enctype=multipart/form-data>
<p><input name=title placeholder=Title> <input name=file type=file> <button>Send</button></form>";

/// The routes. Files are kept in a folder that is there.
pub(crate) fn app(folder: impl Into<PathBuf>) -> App {
    let folder = folder.into();
    App::new().get("/", || Html(PAGE)).post("/", move |form: Multipart| upload(form, folder.clone())).state(Limits {
        part_bytes: 1 << 30,
        total_bytes: 1 << 30,
        ..Limits::default()
    })
}

async fn upload(mut form: Multipart, folder: PathBuf) -> Result<String, Failed> {
    let mut said = String::new();
    while let Some(part) = form.next().await {
        let part = part?;
        // What the client calls the file is no path: this is, at most, a name.
        let Some(name) = part.safe_file_name() else {
            let field = part.name().to_string();
            said += &format!("{field}: {}\n", part.text(200).await?);
            continue;
        };
        // Written as it comes. It is gone again if anything below fails, or if the client goes away.
        let file = part.spool(&folder).await?;
        let (bytes, path) = (file.len(), folder.join(&name));
        // A link does not replace what is there: a name that is taken stays with whoever had it first.
        let stored = spawn_blocking(move || std::fs::hard_link(file.path(), path)).await?;
        stored.map_err(|error| Failed((StatusCode::CONFLICT, format!("{name}: {error}\n")).into_response()))?;
        said += &format!("{name}: {bytes} bytes\n");
    }
    Ok(said)
}

/// The answer where something went wrong.
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
