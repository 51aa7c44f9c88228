//! Logs visitors in with a form, and keeps them logged in with a session. The pages are templates in
//! `examples/templates`.

use highwire::cookie::Keys;
use highwire::session::{Session, SessionError, Sessions};
use highwire::templates::{Template, TemplateError, Templates};
use highwire::tls::TlsConfig;
use highwire::{App, Form, IntoResponse, Redirect, Response, StatusCode};
use serde::{Deserialize, Serialize};

/// The pages. They are a part of the program; `Templates::folder` reads files instead.
const PAGES: [(&str, &str); 3] = [
    ("layout.html", include_str!("templates/layout.html")),
    ("login.html", include_str!("templates/login.html")),
    ("home.html", include_str!("templates/home.html")),
];

/// The values of the page with the form: the name that was typed in before, and why it was refused.
#[derive(Default, Serialize)]
struct LoginPage {
    name: String,
    error: Option<&'static str>,
}

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
pub(crate) fn app(keys: Keys) -> Result<App, TemplateError> {
    let app = App::new()
        .get("/", home)
        .get("/login", || Template("login.html", LoginPage::default()))
        .post("/login", login)
        .post("/logout", logout)
        .state(Sessions::in_cookies(keys))
        .state(Templates::new(PAGES)?);
    Ok(app)
}

async fn home(mut session: Session<Visitor>) -> Result<Response, SessionError> {
    let answer = match session.load().await? {
        Some(visitor) => Template("home.html", visitor).into_response(),
        None => Redirect::see_other("/login").into_response(),
    };
    // Returns the session too, which keeps caches from storing a page for one visitor.
    Ok((session, answer).into_response())
}

async fn login(mut session: Session<Visitor>, Form(login): Form<Login>) -> Result<Response, SessionError> {
    if !knows(&login) {
        let page = LoginPage { name: login.name, error: Some("The name or the password is wrong.") };
        return Ok((StatusCode::FORBIDDEN, Template("login.html", page)).into_response());
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
    Ok(app(Keys::random()?)?.server()?.listen_tls("127.0.0.1:8443", tls)?.run()?)
}
