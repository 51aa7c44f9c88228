//! A login with a session in an encrypted cookie.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum::{Form, Router};
use axum_extra::extract::PrivateCookieJar;
use axum_extra::extract::cookie::{Cookie, Key, SameSite};

#[derive(serde::Deserialize)]
struct Login {
    name: String,
    password: String,
}

async fn home(jar: PrivateCookieJar) -> Response {
    match jar.get("__Host-session") {
        Some(name) => ([("cache-control", "no-store")], format!("hello, {}", name.value())).into_response(),
        None => Redirect::to("/login").into_response(),
    }
}

async fn log_in(jar: PrivateCookieJar, Form(login): Form<Login>) -> Response {
    if login.password != "open sesame" {
        return StatusCode::FORBIDDEN.into_response();
    }
    let cookie = Cookie::build(("__Host-session", login.name)).path("/").secure(true).http_only(true);
    let jar = jar.add(cookie.same_site(SameSite::Lax));
    (jar, [("cache-control", "no-store")], Redirect::to("/")).into_response()
}

pub fn app(secret: &[u8]) -> Router {
    Router::new().route("/", get(home)).route("/login", post(log_in)).with_state(Key::from(secret))
}
