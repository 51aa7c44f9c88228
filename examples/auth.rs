//! Requires authentication for a part of the routes.

use highwire::middleware::{Next, OwnedRequest, from_fn};
use highwire::{App, Extension, HeaderValue, IntoResponse, StatusCode, header, time};
use std::time::Duration;

/// The user who has sent the request.
#[derive(Clone, Debug)]
pub(crate) struct User {
    name: &'static str,
}

/// Looks up the user of a token. Waits, as a query to a database would.
async fn look_up(token: &[u8]) -> Option<User> {
    time::sleep(Duration::from_millis(2)).await;
    (token == b"Bearer open-sesame").then_some(User { name: "Ali" })
}

/// Returns the app.
pub(crate) fn app() -> App {
    let private = App::new().get("/me", |Extension(user): Extension<User>| format!("You are {}.", user.name)).with(
        from_fn(async |mut request: OwnedRequest, next: Next| {
            let token = request.request().header("authorization").unwrap_or_default().to_vec();
            match look_up(&token).await {
                Some(user) => {
                    request.request().extensions().insert(user);
                    next.run(request).await
                }
                None => {
                    let challenge = HeaderValue::from_static("Bearer");
                    ([(header::WWW_AUTHENTICATE, challenge)], StatusCode::UNAUTHORIZED).into_response()
                }
            }
        }),
    );
    App::new().get("/", || "Anybody may see this.").nest("/private", private)
}

#[allow(dead_code, reason = "the tests have the routes only")]
fn main() -> highwire::Result<()> {
    app().listen("127.0.0.1:8080")?.run()
}
