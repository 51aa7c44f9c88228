//! A client keeps the cookies of its sites.

use crate::served::{serve, stop};
use highwire::client::{Client, CookieJar, Error, block_on};
use highwire::{App, FromRequest, Redirect, Request, Response, header};

/// Returns what the request has as `Cookie`.
struct Cookies(String);

impl FromRequest for Cookies {
    fn from_request(request: &mut Request<'_>) -> Result<Cookies, Response> {
        Ok(Cookies(String::from_utf8_lossy(request.header("cookie").unwrap_or_default()).into_owned()))
    }
}

fn with_cookies(response: impl highwire::IntoResponse, cookies: &[&str]) -> Response {
    cookies.iter().fold(response.into_response(), |response, cookie| {
        response.with_header(header::SET_COOKIE, cookie.parse().expect("a valid value"))
    })
}

fn app() -> App {
    App::new()
        .get("/login", || with_cookies(Redirect::temporary("/home"), &["id=7; HttpOnly", "theme=dark; Path=/home"]))
        .get("/home", |Cookies(cookies): Cookies| cookies)
        .get("/many", || {
            let many: Vec<String> = (0..80).map(|number| format!("c{number}=1")).collect();
            with_cookies("many", &many.iter().map(String::as_str).collect::<Vec<_>>())
        })
        .get("/logout", || with_cookies("bye", &["id=; Max-Age=0"]))
}

#[test]
fn cookies_are_kept_and_sent_also_over_redirects() {
    let (handle, url) = serve(app());
    let jar = CookieJar::new();
    let client = Client::builder().base_url(&url).cookie_jar(jar.clone()).build().expect("a client");
    let asked = block_on(async {
        let text = async |request: highwire::client::RequestBuilder| request.send().await?.text().await;
        assert_eq!(text(client.get("/login")).await?, "theme=dark; id=7");
        assert_eq!(text(client.get("/home")).await?, "theme=dark; id=7");
        assert_eq!(text(client.get("/home").header("cookie", "own=1")).await?, "own=1");
        text(client.get("/logout")).await?;
        assert_eq!(text(client.get("/home")).await?, "theme=dark");
        text(client.get("/many")).await?;
        assert_eq!(jar.len(), 51, "one response sets at most 50 cookies");
        // Another client of the same jar.
        let other = Client::builder().cookie_jar(jar.clone()).build()?;
        jar.clear();
        jar.set("shared=1", &url)?;
        assert_eq!(text(other.get(&format!("{url}/home"))).await?, "shared=1");
        Ok::<_, Error>(())
    });
    asked.expect("a worker").expect("responses");
    stop([handle]);
}
