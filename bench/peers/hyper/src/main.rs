//! The peer `peer-hyper PORT`: hyper on one thread, with HTTP/1.1 and HTTP/2 (with prior knowledge). It collects the
//! answers to pipelined requests, to send them in one write.

use std::{convert::Infallible, env, io, net::Ipv4Addr};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper_util::rt::TokioExecutor;
use hyper_util::server::conn::auto;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpSocket;

fn main() -> io::Result<()> {
    let port: u16 = env::args()
        .nth(1)
        .and_then(|p| p.parse().ok())
        .expect("usage: peer-hyper PORT");
    tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?
        .block_on(serve(port))
}

async fn serve(port: u16) -> io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind((Ipv4Addr::LOCALHOST, port).into())?;
    let listener = socket.listen(4096)?;
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        stream.set_nodelay(true)?;
        tokio::spawn(async move {
            let mut builder = auto::Builder::new(TokioExecutor::new());
            builder.http1().pipeline_flush(true);
            let connection = builder.serve_connection(TokioIo::new(stream), service_fn(answer));
            // Ignores errors, which occur if the load generator stops in the middle of a request.
            let _ = connection.await;
        });
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut response;
    if request.uri().path() == "/hello" {
        response = Response::new(Full::new(Bytes::from_static(b"Hello, World!")));
        response
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    } else {
        response = Response::new(Full::default());
        *response.status_mut() = StatusCode::NOT_FOUND;
    }
    Ok(response)
}
