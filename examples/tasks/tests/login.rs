//! Needs a database of its own: `TEST_DATABASE_URL=postgres://… cargo test`. tests/service.rs runs it with a new PostgreSQL.

use highwire::client::CookieJar;
use highwire::cookie::Keys;
use highwire::testing::Client;
use std::collections::BTreeMap;

#[test]
fn people_share_tasks() {
    match std::env::var("TEST_DATABASE_URL") {
        Ok(url) => people_share_tasks_in(&url),
        Err(_) => eprintln!("not run: TEST_DATABASE_URL is not set"),
    }
}

pub(crate) fn people_share_tasks_in(url: &str) {
    // sqlx makes a pool only inside a runtime of tokio.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let _entered = runtime.enter();
    let pool = sqlx::PgPool::connect_lazy(url).expect("a URL");
    let app = tasks::app(pool, Keys::random().expect("random bytes"), std::env::temp_dir());
    // The database's time is real, so the time of the test is, too. The jar keeps cookies, as a browser does.
    let mut client = Client::new(app).expect("the app and the database").at_real_pace().cookie_jar(CookieJar::new());

    let new = BTreeMap::from([("text", "buy milk")]);
    assert_eq!(client.post("/tasks").json(&new).send().status(), 401);
    let ann = BTreeMap::from([("name", "ann of the test"), ("password", "open sesame")]);
    assert_eq!(client.post("/people").json(&ann).send().status(), 200);
    let mut events = client.get("/tasks/events").open();
    assert_eq!(events.received(&mut client).status(), 200);
    assert_eq!(client.post("/tasks").json(&new).send().status(), 201);
    assert!(client.get("/tasks").send().text().contains("buy milk"));
    assert!(events.received(&mut client).text().contains("buy milk"));
}
