//! Uploads to the disk, as they arrive, of at most 10 MiB.

use highwire::form::MultipartError;
use highwire::middleware::BodyLimit;
use highwire::{App, Handler, Multipart, State};
use std::path::PathBuf;

async fn upload(folder: State<PathBuf>, mut form: Multipart) -> Result<String, MultipartError> {
    let mut bytes = 0;
    while let Some(part) = form.next().await {
        let file = part?.spool(&*folder).await?;
        bytes += file.len();
        file.keep();
    }
    Ok(format!("{bytes} bytes"))
}

pub fn app(folder: PathBuf) -> App {
    App::new().post("/", upload.with(BodyLimit::new(10 << 20))).state(folder)
}
