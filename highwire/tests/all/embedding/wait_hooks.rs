//! Tests that the functions of `App::on_wait` are called around each wait that blocks.

use highwire::App;
use highwire::server::{Driver, Engine, Runtime};
use std::cell::Cell;
use std::time::Duration;

thread_local! {
    static BEFORE: Cell<u32> = const { Cell::new(0) };
    static AFTER: Cell<u32> = const { Cell::new(0) };
}

#[test]
fn functions_are_called_around_waits_that_block() {
    let app = App::new().get("/", || "hello").on_wait(
        || {
            assert_eq!(BEFORE.get(), AFTER.get(), "no wait begins in another one");
            BEFORE.set(BEFORE.get() + 1);
        },
        || AFTER.set(AFTER.get() + 1),
    );
    let server = app.listen("127.0.0.1:0").expect("an address");
    let mut worker = server.into_worker(Runtime::new(Engine::Auto).expect("a driver")).expect("a worker");
    for _ in 0..3 {
        let _ = worker.turn_ready().expect("a turn");
    }
    assert_eq!((BEFORE.get(), AFTER.get()), (0, 0), "a turn that only looks does not wait");
    // The first turns may have work.
    for _ in 0..10 {
        let limit = worker.driver().now() + Duration::from_millis(10);
        worker.turn(Some(limit)).expect("a turn");
        assert_eq!(BEFORE.get(), AFTER.get());
    }
    assert!(BEFORE.get() > 0, "a turn without work waits");
}

#[test]
fn only_the_outermost_app_has_them() {
    let inner = App::new().get("/", || "inner").on_wait(|| (), || ());
    let error = App::new().nest("/in", inner).listen("127.0.0.1:0").expect_err("a mistake");
    assert!(error.to_string().contains("on_wait"), "{error}");
}
