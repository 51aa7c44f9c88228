//! Files that belong to tasks.

use crate::error::{Error, not_found};
use crate::people::Person;
use crate::tasks::{Task, told};
use highwire::middleware::{Next, OwnedRequest, after, from_fn};
use highwire::topics::Topics;
use highwire::{
    App, AsyncFromRequest, FromRequest, HeaderValue, Json, Multipart, Path, Problem, Response, State, StatusCode,
    header, session::Session, spawn_blocking,
};
use sqlx::PgPool;
use std::path::PathBuf;

/// The folder of the files, with a folder for each task that has one.
#[derive(Clone)]
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
}

pub(crate) async fn attach(
    State(pool): State<PgPool>,
    topics: State<Topics>,
    folder: State<Folder>,
    _: Person,
    Path(id): Path<i64>,
    mut form: Multipart,
) -> Result<Json<Task>, Error> {
    let select = "select file from tasks where id = $1";
    let old: Option<Option<String>> = sqlx::query_scalar(select).bind(id).fetch_optional(&pool).await?;
    let old = old.ok_or_else(not_found)?;
    let part = form.next().await.transpose()?;
    let part = part.ok_or_else(|| Problem::new(StatusCode::BAD_REQUEST, "the form has no file"))?;
    // The client's file name is not trusted as a path: this one has no folder.
    let name = part.safe_file_name();
    let name = name.ok_or_else(|| Problem::new(StatusCode::BAD_REQUEST, "the file has no name"))?;
    // The file goes to the disk while it arrives. If the client leaves, it is removed.
    let spooled = part.spool(&folder.path).await?;
    let place = folder.path.join(id.to_string());
    let target = place.join(&name);
    spawn_blocking(move || {
        std::fs::create_dir_all(&place)?;
        // A hard link does not fail half-way, and the spooled name is removed in any case.
        let _ = std::fs::remove_file(&target);
        std::fs::hard_link(spooled.path(), &target)?;
        match old.filter(|old| place.join(old) != target) {
            Some(old) => std::fs::remove_file(place.join(old)),
            None => Ok(()),
        }
    })
    .await??;
    let update = "update tasks set file = $2 where id = $1 returning id, text, done, file";
    let task = sqlx::query_as(update).bind(id).bind(name).fetch_one(&pool).await?;
    Ok(Json(told(&topics, task)))
}

/// Serves the files to those who are logged in.
pub(crate) fn app(folder: PathBuf) -> App {
    App::new().files("/", folder).with(from_fn(only_people)).with(after(|response: &mut Response| {
        // A browser saves the file. It shows no page of somebody else under our name.
        response.set_header(header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    }))
}

async fn only_people(mut request: OwnedRequest, next: Next) -> Response {
    let session = Session::from_request(&mut request.request());
    let person = match session {
        Ok(session) => Person::from_parts(session).await,
        Err(refusal) => return refusal,
    };
    match person {
        Ok(_) => next.run(request).await,
        Err(refusal) => refusal,
    }
}
