//! The tasks: a JSON API, and events for those who watch.

use crate::error::{Error, not_found};
use crate::people::Person;
use highwire::sse::LastEventId;
use highwire::topics::{Start, Topics};
use highwire::{IntoResponse, Json, Path, Query, State, StatusCode, Valid};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;

#[derive(Serialize, sqlx::FromRow)]
pub(crate) struct Task {
    id: i64,
    text: String,
    done: bool,
    file: Option<String>,
}

#[derive(Deserialize, garde::Validate)]
pub(crate) struct NewTask {
    #[garde(length(chars, min = 1, max = 500))]
    text: String,
}

#[derive(Deserialize)]
pub(crate) struct Change {
    done: bool,
}

#[derive(Deserialize)]
pub(crate) struct Page {
    #[serde(default)]
    after: i64,
}

pub(crate) async fn list(
    State(pool): State<PgPool>,
    _: Person,
    Query(page): Query<Page>,
) -> Result<Json<Vec<Task>>, Error> {
    let select = "select id, text, done, file from tasks where id > $1 order by id limit 50";
    Ok(Json(sqlx::query_as(select).bind(page.after).fetch_all(&pool).await?))
}

pub(crate) async fn add(
    State(pool): State<PgPool>,
    topics: State<Topics>,
    person: Person,
    Valid(Json(new)): Valid<Json<NewTask>>,
) -> Result<(StatusCode, Json<Task>), Error> {
    let insert = "insert into tasks (text, person) values ($1, $2) returning id, text, done, file";
    let task = sqlx::query_as(insert).bind(new.text).bind(person.id).fetch_one(&pool).await?;
    Ok((StatusCode::CREATED, Json(told(&topics, task))))
}

pub(crate) async fn change(
    State(pool): State<PgPool>,
    topics: State<Topics>,
    _: Person,
    Path(id): Path<i64>,
    Json(change): Json<Change>,
) -> Result<Json<Task>, Error> {
    let update = "update tasks set done = $2 where id = $1 returning id, text, done, file";
    let task: Option<Task> = sqlx::query_as(update).bind(id).bind(change.done).fetch_optional(&pool).await?;
    Ok(Json(told(&topics, task.ok_or_else(not_found)?)))
}

/// Tells a task to those who watch.
pub(crate) fn told(topics: &Topics, task: Task) -> Task {
    if let Err(error) = topics.publish("tasks", serde_json::json!(task).to_string()) {
        tracing::error!(%error, "nobody hears of a task");
    }
    task
}

pub(crate) async fn watch(topics: State<Topics>, _: Person, last: LastEventId) -> impl IntoResponse {
    topics.events("tasks", Start::Next, last)
}
