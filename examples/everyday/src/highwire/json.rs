//! JSON in and out.

use highwire::{App, Json, Path, State, StatusCode};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

#[derive(Clone, serde::Deserialize, serde::Serialize)]
struct Note {
    text: String,
}

type Notes = Arc<Mutex<HashMap<u32, Note>>>;

fn show(notes: State<Notes>, Path(id): Path<u32>) -> Option<Json<Note>> {
    notes.lock().unwrap().get(&id).cloned().map(Json)
}

fn put(notes: State<Notes>, Path(id): Path<u32>, Json(note): Json<Note>) -> StatusCode {
    notes.lock().unwrap().insert(id, note);
    StatusCode::NO_CONTENT
}

pub fn app() -> App {
    App::new().get("/notes/{id}", show).put("/notes/{id}", put).state(Notes::default())
}
