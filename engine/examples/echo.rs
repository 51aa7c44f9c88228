//! Sends the bodies of requests back. This server uses the engine alone, without routes, handlers or extractors. Run it
//! with:
//!
//! ```text
//! cargo run -p highwire-engine --example echo
//! curl --data hello http://127.0.0.1:8080/
//! ```

use bytes::Bytes;
use highwire_engine::http::StatusCode;
use highwire_engine::proto::{Head, Method};
use highwire_engine::request::{Caller, Ready};
use highwire_engine::{Begin, BodyUse, Config, Outcome, Response, Result, Server, Service};

/// The service of one worker.
struct Echo;

/// The number of the only route.
const ROUTE: u32 = 0;

impl Service for Echo {
    fn route(&mut self, head: &Head, _: &[u8], _: Caller<'_>) -> std::result::Result<u32, Box<Response>> {
        match head.method {
            Method::Get | Method::Head | Method::Post => Ok(ROUTE),
            _ => Err(Box::new(self.error(StatusCode::METHOD_NOT_ALLOWED, "only GET, HEAD and POST are allowed"))),
        }
    }

    fn body_use(&self, _: u32) -> BodyUse {
        BodyUse::Whole
    }

    fn begin(&mut self, request: Begin<'_>, answer: &mut Option<Response>) -> Outcome {
        let body = match std::mem::take(request.body) {
            Ready::Whole(body) => body,
            _ => Bytes::from_static(b"POST something, and it comes back\n"),
        };
        *answer = Some(Response::bytes("text/plain; charset=utf-8", body));
        Outcome::Ready
    }
}

fn main() -> Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_string());
    let server = Server::new(|_: &_| Echo, Config::default())?.listen(&address)?;
    println!("http://{}", server.addresses().join(" http://"));
    server.run()
}
