//! Sessions, as an application uses them: in cookies, and in a store of the application.

use highwire::App;
use highwire::cookie::{Cookie, Keys};
use highwire::session::{Session, SessionError, SessionStore, Sessions, StoreFuture, new_token};
use highwire::testing::Client;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn client(app: App) -> Client {
    Client::new(app).expect("an app")
}

/// A store of sessions in memory.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<BTreeMap<String, Vec<u8>>>>);

impl Memory {
    fn tokens(&self) -> Vec<String> {
        self.0.lock().expect("no panic").keys().cloned().collect()
    }
}

impl SessionStore for Memory {
    fn load<'s>(&'s self, token: &'s str) -> StoreFuture<'s, Option<Vec<u8>>> {
        Box::pin(async move {
            // Waits, as a store across a network would.
            highwire::time::sleep(Duration::from_millis(1)).await;
            if token == "broken" {
                Err("on purpose".into())
            } else {
                Ok(self.0.lock().expect("no panic").get(token).cloned())
            }
        })
    }

    fn save<'s>(&'s self, token: Option<&'s str>, data: Vec<u8>, _: Duration) -> StoreFuture<'s, String> {
        Box::pin(async move {
            let token = token.map_or_else(new_token, |token| Ok(token.to_string()))?;
            self.0.lock().expect("no panic").insert(token.clone(), data);
            Ok(token)
        })
    }

    fn remove<'s>(&'s self, token: &'s str) -> StoreFuture<'s, ()> {
        Box::pin(async move {
            self.0.lock().expect("no panic").remove(token);
            Ok(())
        })
    }
}

type Visits = Session<u32>;

async fn visit(mut session: Visits) -> Result<(Visits, String), SessionError> {
    let visits = session.load().await?.unwrap_or_default() + 1;
    session.save(&visits).await?;
    Ok((session, visits.to_string()))
}

async fn login(mut session: Visits) -> Result<(Visits, &'static str), SessionError> {
    session.renew().await?;
    session.save(&100).await?;
    Ok((session, "welcome"))
}

async fn logout(mut session: Visits) -> Result<(Visits, &'static str), SessionError> {
    session.end().await?;
    Ok((session, "bye"))
}

fn sessions(sessions: Sessions) -> Client {
    let look = async |mut session: Visits| Ok::<_, SessionError>(format!("{:?}", session.load().await?));
    client(
        App::new()
            .state(sessions)
            .get("/look", look)
            .post("/visit", visit)
            .post("/login", login)
            .post("/logout", logout)
            .post("/own", async |mut session: Visits| {
                session.save(&1).await?;
                let answer = highwire::Response::text("own");
                let cache = highwire::HeaderValue::from_static("private");
                Ok::<_, SessionError>((session, answer.with_header(highwire::header::CACHE_CONTROL, cache)))
            })
            .post("/unused", async |session: Visits| (session, "unused"))
            .post("/read", async |mut session: Visits| {
                let visits = session.load().await?;
                Ok::<_, SessionError>((session, format!("{visits:?}")))
            })
            .post("/large", async |mut session: Session<String>| {
                session.save(&"x".repeat(5000)).await?;
                Ok::<_, SessionError>((session, ""))
            }),
    )
}

/// Sends a request with a cookie. Returns the body of the response, and the cookie that it sets.
fn ask(client: &mut Client, path: &str, cookie: &str) -> (String, String) {
    let call = if path == "/look" { client.get(path) } else { client.post(path) };
    let answer = call.header("cookie", cookie).send();
    let set = answer.header("set-cookie").split(';').next().unwrap_or_default().to_string();
    (answer.text().to_string(), set)
}

#[test]
fn sessions_in_cookies() {
    let (old, new) = ([1; 32], [2; 32]);
    let in_cookies = |secrets: &[[u8; 32]]| sessions(Sessions::in_cookies(Keys::new(secrets).expect("secrets")));
    let mut client = in_cookies(&[old]);
    let answer = client.post("/visit").send();
    let attributes = answer.header("set-cookie").split_once(';').map(|(_, attributes)| attributes.to_string());
    assert_eq!(attributes.as_deref(), Some(" Path=/; Max-Age=86400; SameSite=Lax; Secure; HttpOnly"));
    let (_, first) = ask(&mut client, "/visit", "a=b");
    assert!(first.starts_with("__Host-session="), "{first}");
    let (visits, second) = ask(&mut client, "/visit", &first);
    assert_eq!(visits, "2");
    assert_eq!(ask(&mut client, "/look", &second), ("Some(2)".into(), "".into()));
    // A foreign cookie of that name before ours is skipped, but only the first four cookies count.
    assert_eq!(ask(&mut client, "/look", &format!("__Host-session=x; {second}")).0, "Some(2)");
    assert_eq!(ask(&mut client, "/look", &format!("{}{second}", "__Host-session=x; ".repeat(4))).0, "None");
    assert_eq!(ask(&mut client, "/logout", &second), ("bye".into(), "__Host-session=".into()));
    let mut rotated = in_cookies(&[new, old]);
    let (visits, third) = ask(&mut rotated, "/visit", &second);
    assert_eq!(visits, "3");
    assert_eq!(ask(&mut client, "/look", &third).0, "None", "the first key encrypts new cookies");
    assert_eq!(ask(&mut in_cookies(&[new]), "/look", &third).0, "Some(3)");
    assert_eq!(ask(&mut in_cookies(&[new]), "/look", &second).0, "None");
    assert_eq!(client.post("/large").send().status(), 500, "the session does not fit into a cookie");
}

#[test]
fn answers_for_one_visitor_are_not_for_caches() {
    let mut client = sessions(Sessions::in_cookies(Keys::random().expect("random bytes")));
    for (path, expected) in [
        ("/visit", "no-store"),
        ("/login", "no-store"),
        ("/logout", "no-store"),
        ("/read", "no-store"),
        ("/own", "private"),
        ("/unused", ""),
    ] {
        assert_eq!(client.post(path).send().header("cache-control"), expected, "{path}");
    }
}

#[test]
fn a_session_of_one_cookie_is_none_in_another() {
    let in_cookie = |name: &'static str| {
        let keys = Keys::new(&[[1; 32]]).expect("a secret");
        sessions(Sessions::in_cookies(keys).with_cookie(Cookie::new(name, "")))
    };
    let (_, visitor) = ask(&mut in_cookie("visitor"), "/visit", "");
    assert_eq!(ask(&mut in_cookie("visitor"), "/look", &visitor).0, "Some(1)");
    let other = visitor.replace("visitor=", "admin=");
    assert_eq!(ask(&mut in_cookie("admin"), "/look", &other).0, "None");
}

#[test]
fn sessions_in_cookies_expire_by_the_clock_of_the_test() {
    let keys = Keys::random().expect("random bytes");
    let mut client = sessions(Sessions::in_cookies(keys).max_age(Duration::from_secs(600)));
    let (_, first) = ask(&mut client, "/visit", "");
    client.advance(Duration::from_secs(500));
    let (visits, second) = ask(&mut client, "/visit", &first);
    assert_eq!(visits, "2");
    client.advance(Duration::from_secs(500));
    assert_eq!(ask(&mut client, "/look", &first).0, "None");
    assert_eq!(ask(&mut client, "/look", &second).0, "Some(2)");
    client.advance(Duration::from_secs(101));
    assert_eq!(ask(&mut client, "/look", &second).0, "None");
}

#[test]
fn sessions_in_a_store() {
    let memory = Memory::default();
    let cookie = Cookie::new("sid", "").secure(false);
    let mut client = sessions(Sessions::in_store(memory.clone()).with_cookie(cookie).max_age(Duration::from_secs(60)));
    let answer = client.post("/visit").send();
    let (first, attributes) = answer.header("set-cookie").split_once(';').expect("a cookie");
    let first = first.to_string();
    assert_eq!(attributes, " Path=/; Max-Age=60; SameSite=Lax; HttpOnly");
    assert_eq!(memory.tokens(), [first.trim_start_matches("sid=")]);
    assert_eq!(ask(&mut client, "/visit", &first), ("2".into(), first.clone()));
    let (_, renewed) = ask(&mut client, "/login", &first);
    assert_eq!(memory.tokens(), [renewed.trim_start_matches("sid=")], "the earlier token is removed");
    assert_ne!(renewed, first);
    assert_eq!(ask(&mut client, "/look", &first).0, "None");
    assert_eq!(ask(&mut client, "/look", &renewed).0, "Some(100)");
    assert_eq!(ask(&mut client, "/logout", &renewed), ("bye".into(), "sid=".into()));
    assert!(memory.tokens().is_empty());
    assert_eq!(client.get("/look").header("cookie", "sid=broken").send().status(), 500);
    // The server does not accept a token that a client has made up.
    let (_, chosen) = ask(&mut client, "/visit", "sid=chosen");
    assert_ne!(chosen, "sid=chosen");
    memory.0.lock().expect("no panic").insert("odd".into(), b"\"text\"".to_vec());
    assert_eq!(ask(&mut client, "/look", "sid=odd").0, "None", "the value has another type");
}
