//! Names, passwords and sessions.

use crate::error::Error;
use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use highwire::session::Session;
use highwire::{AsyncFromRequest, IntoResponse, Json, Problem, Response, State, StatusCode, Valid, spawn_blocking};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;

#[derive(Deserialize, garde::Validate)]
pub(crate) struct Credentials {
    #[garde(length(chars, min = 1, max = 50))]
    name: String,
    #[garde(length(min = 8, max = 200))]
    password: String,
}

/// The person who is logged in. The session's cookie has it, encrypted.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Person {
    pub(crate) id: i64,
    pub(crate) name: String,
}

impl AsyncFromRequest for Person {
    type Parts = Session<Person>;

    async fn from_parts(mut session: Session<Person>) -> Result<Person, Response> {
        let person = session.load().await.map_err(IntoResponse::into_response)?;
        person.ok_or_else(|| Problem::new(StatusCode::UNAUTHORIZED, "log in first").into_response())
    }
}

pub(crate) async fn sign_up(
    State(pool): State<PgPool>,
    session: Session<Person>,
    Valid(Json(Credentials { name, password })): Valid<Json<Credentials>>,
) -> Result<impl IntoResponse, Error> {
    // A hash takes tens of milliseconds. On the worker, all its other requests would wait for it.
    let hash =
        spawn_blocking(move || Argon2::default().hash_password(password.as_bytes()).map(|hash| hash.to_string()));
    let hash = hash.await?.map_err(|error| Error::Server(error.to_string().into()))?;
    let insert = "insert into people (name, password) values ($1, $2) on conflict do nothing returning id";
    let id = sqlx::query_scalar(insert).bind(&name).bind(hash).fetch_optional(&pool).await?;
    let id = id.ok_or_else(|| Problem::new(StatusCode::CONFLICT, "this name is taken"))?;
    begin(session, Person { id, name }).await
}

pub(crate) async fn log_in(
    State(pool): State<PgPool>,
    session: Session<Person>,
    Json(Credentials { name, password }): Json<Credentials>,
) -> Result<impl IntoResponse, Error> {
    let select = "select id, password from people where name = $1";
    let found: Option<(i64, String)> = sqlx::query_as(select).bind(&name).fetch_optional(&pool).await?;
    let (id, hash) = found.map_or((None, UNKNOWN.to_string()), |(id, hash)| (Some(id), hash));
    let matches = spawn_blocking(move || {
        let hash = PasswordHash::new(&hash);
        hash.is_ok_and(|hash| Argon2::default().verify_password(password.as_bytes(), &hash).is_ok())
    });
    match (matches.await?, id) {
        (true, Some(id)) => begin(session, Person { id, name }).await,
        _ => Err(Problem::new(StatusCode::FORBIDDEN, "the name or the password is wrong").into()),
    }
}

/// A hash that no password has, so that an unknown name takes as long as a wrong password.
const UNKNOWN: &str = "$argon2id$v=19$m=19456,t=2,p=1$c29tZSBzYWx0IGhlcmU$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

async fn begin(mut session: Session<Person>, person: Person) -> Result<impl IntoResponse, Error> {
    // A new session, so that an old cookie that somebody else knows is not valid for it.
    session.renew().await?;
    session.save(&person).await?;
    Ok((session, Json(person)))
}

pub(crate) async fn log_out(mut session: Session<Person>) -> Result<impl IntoResponse, Error> {
    session.end().await?;
    Ok((session, StatusCode::NO_CONTENT))
}
