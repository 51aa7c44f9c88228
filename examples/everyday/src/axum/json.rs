//! JSON in and out.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

#[derive(Clone, serde::Deserialize, serde::Serialize)]
struct Note {
    text: String,
}

type Notes = Arc<Mutex<HashMap<u32, Note>>>;

async fn show(State(notes): State<Notes>, Path(id): Path<u32>) -> Result<Json<Note>, StatusCode> {
    notes.lock().unwrap().get(&id).cloned().map(Json).ok_or(StatusCode::NOT_FOUND)
}

async fn put(State(notes): State<Notes>, Path(id): Path<u32>, Json(note): Json<Note>) -> StatusCode {
    notes.lock().unwrap().insert(id, note);
    StatusCode::NO_CONTENT
}

pub fn app() -> Router {
    Router::new().route("/notes/{id}", get(show).put(put)).with_state(Notes::default())
}
