//! Tasks that people share: docs/tutorial.md builds this service step by step.

mod error;
mod files;
mod people;
mod tasks;

use highwire::cookie::Keys;
use highwire::middleware::{BodyLimit, RateLimit, RequestSpan};
use highwire::session::Sessions;
use highwire::topics::{Topic, Topics};
use highwire::{App, Handler};
use sqlx::PgPool;
use std::path::PathBuf;
use std::time::Duration;

/// The largest file of a task.
const FILE_BYTES: u64 = 20 << 20;

/// Passwords are costly to check, and must not be guessed: ten a minute from each address.
fn few() -> RateLimit {
    RateLimit::new(10, Duration::from_secs(60))
}

/// Returns the app. `keys` encrypt the sessions, and `folder` has the files.
pub fn app(pool: PgPool, keys: Keys, folder: PathBuf) -> App {
    let topics = Topics::builder().topic("tasks", Topic::new().history(100)).build();
    let schema = pool.clone();
    let tasks = App::new()
        .get("/", tasks::list)
        .post("/", tasks::add)
        .patch("/{id}", tasks::change)
        .post("/{id}/file", files::attach.with(BodyLimit::new(FILE_BYTES)))
        .get("/events", tasks::watch);
    App::new()
        .get("/", || "tasks\n")
        .nest("/people", App::new().post("/", people::sign_up).with(few()))
        .nest("/session", App::new().post("/", people::log_in).delete("/", people::log_out).with(few()))
        .nest("/tasks", tasks)
        .nest("/files", files::app(folder.clone()))
        .metrics("/metrics")
        .problems()
        .with(RequestSpan)
        .state(pool)
        .state(topics)
        .state(files::Folder { path: folder })
        .state(Sessions::in_cookies(keys))
        .on_start(move || {
            let schema = schema.clone();
            async move { sqlx::raw_sql(include_str!("../schema.sql")).execute(&schema).await.map(drop) }
        })
}
