//! The peer `peer-may PORT`: may_minihttp with one coroutine worker.

use std::{env, io, os::fd::BorrowedFd};

use may_minihttp::{HttpService, HttpServiceFactory, Request, Response};
use socket2::SockRef;

struct Hello;

impl HttpService for Hello {
    fn call(&mut self, request: Request, response: &mut Response) -> io::Result<()> {
        if request.path() == "/hello" {
            response
                .header("Content-Type: text/plain")
                .body("Hello, World!");
        } else {
            response.status_code(404, "Not Found");
        }
        Ok(())
    }
}

struct Factory;

impl HttpServiceFactory for Factory {
    type Service = Hello;

    /// On Unix, `id` is the connection's descriptor. Only here can the program set TCP_NODELAY.
    fn new_service(&self, id: usize) -> Hello {
        // SAFETY: `id` is the descriptor of a connection that may_minihttp keeps open during this call.
        let stream = unsafe { BorrowedFd::borrow_raw(id as i32) };
        // Usually fails only if the client has already closed the connection.
        let _ = SockRef::from(&stream).set_tcp_nodelay(true);
        Hello
    }
}

fn main() -> io::Result<()> {
    let port: u16 = env::args()
        .nth(1)
        .and_then(|p| p.parse().ok())
        .expect("usage: peer-may PORT");
    may::config().set_workers(1);
    Factory
        .start(("127.0.0.1", port))?
        .join()
        .expect("the acceptor runs until the process is killed");
    Ok(())
}
