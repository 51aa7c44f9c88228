//! A JSON API with shared state and errors.

use highwire::{App, IntoResponse, Json, Path, Response, State, StatusCode};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// A task in the list.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Task {
    title: String,
    #[serde(default)]
    done: bool,
}

/// All tasks by number, shared by all workers.
#[derive(Debug, Default)]
pub(crate) struct Tasks(Mutex<BTreeMap<u64, Task>>);

impl Tasks {
    fn with<T>(&self, act: impl FnOnce(&mut BTreeMap<u64, Task>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The errors of the handlers, each with its response.
#[derive(Debug)]
pub(crate) enum Error {
    /// No task has this number.
    NoSuchTask(u64),
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let Error::NoSuchTask(number) = self;
        (StatusCode::NOT_FOUND, format!("there is no task {number}\n")).into_response()
    }
}

/// Returns the app.
pub(crate) fn app() -> App {
    App::new()
        .get("/tasks", |tasks: State<Arc<Tasks>>| Json(tasks.with(|tasks| tasks.clone())))
        .post("/tasks", |tasks: State<Arc<Tasks>>, Json(task): Json<Task>| {
            let number = tasks.with(|tasks| {
                let number = tasks.last_key_value().map_or(1, |(last, _)| last + 1);
                tasks.insert(number, task);
                number
            });
            (StatusCode::CREATED, Json(number))
        })
        .get("/tasks/{number}", |tasks: State<Arc<Tasks>>, Path(number): Path<u64>| {
            tasks.with(|tasks| tasks.get(&number).cloned()).map(Json).ok_or(Error::NoSuchTask(number))
        })
        .delete("/tasks/{number}", |tasks: State<Arc<Tasks>>, Path(number): Path<u64>| {
            let removed = tasks.with(|tasks| tasks.remove(&number));
            removed.map(|_| StatusCode::NO_CONTENT).ok_or(Error::NoSuchTask(number))
        })
        .state(Arc::<Tasks>::default())
}

#[allow(dead_code, reason = "the tests have the routes only")]
fn main() -> highwire::Result<()> {
    app().listen("127.0.0.1:8080")?.run()
}
