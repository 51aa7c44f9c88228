//! Logs visitors in with a form, and keeps them logged in with a session.

use highwire::cookie::Keys;
use highwire::session::{Session, SessionError, Sessions};
use highwire::tls::TlsConfig;
use highwire::{App, Form, Html, IntoResponse, Redirect, Response, StatusCode};
use serde::{Deserialize, Serialize};

const PAGE: &str = "<!doctype html><title>Log in</title>
<form method=post action=/login>
<p><input name=name autocomplete=username> <input name=password type=password> <button>Log in</button></form>";

/// The session of a visitor. It is stored in a cookie that only a holder of the keys can read and make.
#[derive(Deserialize, Serialize)]
pub(crate) struct Visitor {
    name: String,
}

#[derive(Deserialize)]
struct Login {
    name: String,
    password: String,
}

/// Checks a password. A real program compares slow hashes, such as argon2, within `spawn_blocking`.
fn knows(login: &Login) -> bool {
    login.name == "ann" && login.password == "open sesame"
}

/// Returns the app. Browsers send session cookies only over HTTPS, and not with forms of other sites (`SameSite`).
pub(crate) fn app(keys: Keys) -> App {
    App::new()
        .get("/", home)
        .get("/login", || Html(PAGE))
        .post("/login", login)
        .post("/logout", logout)
        .state(Sessions::in_cookies(keys))
}

async fn home(mut session: Session<Visitor>) -> Result<Response, SessionError> {
    let answer = match session.load().await? {
        Some(Visitor { name }) => {
            Html(format!("<p>Hello, {name}!<form method=post action=/logout><button>Log out</button></form>"))
                .into_response()
        }
        None => Redirect::see_other("/login").into_response(),
    };
    // Returns the session too, which keeps caches from storing a page for one visitor.
    Ok((session, answer).into_response())
}

async fn login(mut session: Session<Visitor>, Form(login): Form<Login>) -> Result<Response, SessionError> {
    if !knows(&login) {
        return Ok((StatusCode::FORBIDDEN, Html(PAGE)).into_response());
    }
    // Discards the session from before the login, because another client may know that session's cookie.
    session.renew().await?;
    session.save(&Visitor { name: login.name }).await?;
    Ok((session, Redirect::see_other("/")).into_response())
}

async fn logout(mut session: Session<Visitor>) -> Result<impl IntoResponse, SessionError> {
    session.end().await?;
    Ok((session, Redirect::see_other("/login")))
}

#[allow(dead_code, reason = "the tests have the routes only")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Random keys are lost when the process ends, and all sessions with them. A real site loads a secret from a file.
    let tls = TlsConfig::new().self_signed(["localhost", "127.0.0.1"]);
    Ok(app(Keys::random()?).server()?.listen_tls("127.0.0.1:8443", tls)?.run()?)
}
