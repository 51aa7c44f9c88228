//! Tests that keep-alive GETs allocate nothing in the steady state, with plain and with async handlers.
//!
//! This program needs `unsafe`, because `GlobalAlloc` is an unsafe trait.

mod memory;

use highwire::{App, Response};
use memory::{turn, worker};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::task::Poll;

/// The system's allocator, with a count of the allocations of each thread.
struct Counting;

thread_local! {
    /// The value is constant and has no destructor, so using it never allocates, at any time in a thread's life.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
}

// SAFETY: each method passes its arguments unchanged to `System`, which fulfills the contract. Counting neither
// allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller guarantees that the layout has a size other than zero, as `System` requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller guarantees that the layout has a size other than zero, as `System` requires.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: `pointer` is from `System`, as is every pointer from this allocator. The caller guarantees the rest.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` is from `System`, as is every pointer from this allocator. The caller guarantees the
        // layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// The number of requests before counting begins. After them, output buffers, tables and the pools of exchanges and
/// futures have grown.
const WARM_UP: usize = 100;

const REQUESTS: usize = 1000;

/// The number of turns for a request. That is enough to receive it, and for the wakes of its handler.
const TURNS: usize = 4;

fn hello() -> Response {
    Response::bytes("text/plain", bytes::Bytes::from_static(b"Hello, World!"))
}

/// Is pending once, and wakes its own task.
async fn pending_once() {
    let mut polled = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut polled, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

fn app() -> App {
    App::new()
        .get("/plain", hello)
        .get("/ready", async || hello())
        .get("/pending", async || {
            pending_once().await;
            hello()
        })
        .get("/users/{id}", hello)
        .get("/files/{*path}", hello)
}

/// Sends requests one after the other on one connection, and checks that answering them allocates nothing.
fn check(request: &str) {
    assert_eq!(allocations(app(), request), 0, "allocations for {REQUESTS} times\n{request}");
}

fn allocations(app: App, request: &str) -> u64 {
    let mut worker = worker(app);
    let mut before = 0;
    for number in 0..WARM_UP + REQUESTS {
        if number == WARM_UP {
            before = ALLOCATIONS.get();
        }
        let driver = worker.driver();
        driver.outgoing.clear();
        driver.incoming.extend_from_slice(request.as_bytes());
        for _ in 0..TURNS {
            turn(&mut worker);
        }
        let answer = &worker.driver().outgoing;
        assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n") && answer.ends_with(b"\r\n\r\nHello, World!"), "{request}");
    }
    ALLOCATIONS.get() - before
}

#[test]
fn a_plain_function() {
    check("GET /plain HTTP/1.1\r\nHost: localhost\r\n\r\n");
}

#[test]
fn an_async_function_that_is_ready_at_once() {
    check("GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n");
}

#[test]
fn an_async_function_that_is_pending_once() {
    check("GET /pending HTTP/1.1\r\nHost: localhost\r\n\r\n");
}

#[test]
fn a_route_with_parameters_that_nobody_takes() {
    check("GET /users/42?verbose=yes HTTP/1.1\r\nHost: localhost\r\n\r\n");
    check("GET /files/a/b/c.txt HTTP/1.1\r\nHost: localhost\r\n\r\n");
}

/// A request with as many and as long fields as browsers send.
#[test]
fn a_browsers_request() {
    let fields = "Host: localhost\r\nConnection: keep-alive\r\nCache-Control: max-age=0\r\n\
        sec-ch-ua: \"Chromium\";v=\"130\", \"Not?A_Brand\";v=\"99\"\r\nsec-ch-ua-mobile: ?0\r\nsec-ch-ua-platform: \"Linux\"\r\n\
        Upgrade-Insecure-Requests: 1\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Safari/537.36\r\n\
        Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\n\
        Sec-Fetch-Site: none\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-User: ?1\r\nSec-Fetch-Dest: document\r\n\
        Accept-Encoding: gzip, deflate, br, zstd\r\nAccept-Language: en-GB,en;q=0.9,de;q=0.8\r\n\
        Cookie: session=0123456789abcdef0123456789abcdef; theme=dark\r\nIf-None-Match: \"33a64df551425fcc\"\r\n\r\n";
    for path in ["/plain", "/ready", "/pending"] {
        check(&format!("GET {path} HTTP/1.1\r\n{fields}"));
    }
}

/// A small file from the cache. Only the check for changes allocates, about once a second.
#[test]
fn a_small_file() {
    let folder = std::env::temp_dir().join(format!("highwire-allocations-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("inner")).expect("a folder");
    let file = std::fs::File::create(folder.join("inner/hello.txt")).expect("a file");
    std::io::Write::write_all(&mut &file, b"Hello, World!").expect("its content");
    let date = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_610_697_600);
    file.set_modified(date).expect("a date");
    for (path, fields) in [("/inner/hello.txt", ""), ("/inner/hello.txt", "Accept-Encoding: gzip, br\r\nRange: x\r\n")]
    {
        let app = App::new().files("/static", highwire::Files::new(&folder));
        let count = allocations(app, &format!("GET /static{path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n"));
        // The driver lets 10 ms pass in each turn.
        let seconds = (REQUESTS * TURNS / 100) as u64;
        assert!(count <= 2 * seconds, "{count} allocations for {REQUESTS} times\n{fields}");
    }
    std::fs::remove_dir_all(folder).expect("the folder can be removed");
}

/// Tests the counter itself. If it did not count, the tests above would always pass.
#[test]
fn an_allocation_is_counted() {
    let before = ALLOCATIONS.get();
    let bytes = std::hint::black_box(vec![0_u8; 100]);
    assert_eq!(ALLOCATIONS.get() - before, 1);
    drop(bytes);
}
