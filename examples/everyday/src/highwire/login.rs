//! A login with a session in an encrypted cookie.

use highwire::cookie::Keys;
use highwire::session::{Session, SessionError, Sessions};
use highwire::{App, Form, IntoResponse, Redirect, Response, StatusCode};

#[derive(serde::Deserialize)]
struct Login {
    name: String,
    password: String,
}

async fn home(mut session: Session<String>) -> Result<Response, SessionError> {
    match session.load().await? {
        Some(name) => Ok((session, format!("hello, {name}")).into_response()),
        None => Ok(Redirect::see_other("/login").into_response()),
    }
}

async fn log_in(mut session: Session<String>, Form(login): Form<Login>) -> Result<Response, SessionError> {
    if login.password != "open sesame" {
        return Ok(StatusCode::FORBIDDEN.into_response());
    }
    session.renew().await?;
    session.save(&login.name).await?;
    Ok((session, Redirect::see_other("/")).into_response())
}

pub fn app(secret: &[u8]) -> App {
    let keys = Keys::new(&[secret]).unwrap();
    App::new().get("/", home).post("/login", log_in).state(Sessions::in_cookies(keys))
}
