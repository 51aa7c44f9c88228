//! Upgrades of the crate hyper, for services that take over a connection, such as axum's WebSocket.
//!
//! Only hyper can make its `OnUpgrade`. So for each request that proposes another protocol, a connection of hyper serves a
//! made-up request from a pipe in memory. When our service accepts the protocol, hyper's connection does too, and hands
//! its end of the pipe to the service. A task on the worker then copies the raw bytes between the pipe and the connection.

use crate::message::upgrade::{Ended, RawReader, RawStream, RawWriter};
use bytes::{Buf, Bytes, BytesMut};
use highwire_engine::raw::Switch;
use highwire_engine::{Asked, Promise, promise};
use http::{Method, Request, Response, StatusCode, Version, header};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::task::unconstrained;

/// The most bytes that wait in each direction of a pipe.
const PIPE_BYTES: usize = 16 * 1024;

/// The request that hyper's connection serves. Its protocol's name is not shown to the service.
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: pipe\r\nconnection: upgrade\r\nupgrade: raw\r\n\r\n";

/// The end of hyper's response head.
const HEAD_END: &[u8] = b"\r\n\r\n";

/// The bytes for which the connection is charged: both directions of the pipe, which keep their memory after use.
const HELD_BYTES: usize = 2 * PIPE_BYTES;

/// The size of the first buffer of a read, which an idle connection keeps.
const FEW_BYTES: usize = 1024;

/// An upgrade that the service may accept.
pub(super) struct Offer {
    /// Our end of the pipe.
    pipe: DuplexStream,
    /// hyper's connection on the other end.
    connection: Pin<Box<dyn Future<Output = ()>>>,
    is_accepted: Rc<Cell<bool>>,
    /// Becomes ready when the service drops its end of the pipe.
    dropped: Asked<()>,
    /// The status with which the service accepts.
    status: StatusCode,
}

/// Offers an upgrade to the service, if the request proposes another protocol or a tunnel. Changes the request to the
/// one that hyper passes to services.
pub(super) fn offer(parts: &mut http::request::Parts, upgrade: &crate::Upgrade) -> Option<Offer> {
    let is_http2 = parts.version == Version::HTTP_2;
    let protocol = match upgrade.proposed() {
        [] if !upgrade.is_tunnel() => return None,
        [protocol, ..] if is_http2 => Some(hyper::ext::Protocol::from(protocol.as_str())),
        _ => None,
    };
    if let Some(protocol) = protocol {
        parts.method = Method::CONNECT;
        parts.extensions.insert(protocol);
    }
    let (mut pipe, theirs) = tokio::io::duplex(PIPE_BYTES);
    let (held, dropped) = promise();
    let theirs = Theirs { pipe: TokioIo::new(theirs), _held: held };
    let (is_accepted, made) = (Rc::new(Cell::new(false)), Rc::new(RefCell::new(None)));
    let service = service_fn({
        let (is_accepted, made) = (is_accepted.clone(), made.clone());
        move |request: Request<hyper::body::Incoming>| {
            *made.borrow_mut() = Some(hyper::upgrade::on(request));
            let is_accepted = is_accepted.clone();
            poll_fn(
                move |_| if is_accepted.get() { Poll::Ready(Ok::<_, Infallible>(switching())) } else { Poll::Pending },
            )
        }
    });
    let connection = http1::Builder::new().serve_connection(theirs, service).with_upgrades();
    // Without an error, hyper's connection ends when it has handed over the pipe.
    let mut connection: Pin<Box<dyn Future<Output = ()>>> = Box::pin(unconstrained(async { drop(connection.await) }));
    let mut cx = Context::from_waker(Waker::noop());
    // The pipe has room for the request, and hyper's connection reads it in one poll.
    let _ = pin!(unconstrained(pipe.write_all(REQUEST))).poll(&mut cx);
    let _ = connection.as_mut().poll(&mut cx);
    parts.extensions.insert(made.take()?);
    let has_tunnel = is_http2 || upgrade.is_tunnel();
    let status = if has_tunnel { StatusCode::OK } else { StatusCode::SWITCHING_PROTOCOLS };
    Some(Offer { pipe, connection, is_accepted, dropped, status })
}

fn switching() -> Response<String> {
    let fields = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS).header(header::CONNECTION, "upgrade");
    fields.header(header::UPGRADE, "raw").body(String::new()).expect("valid fields")
}

impl Offer {
    /// Returns the switch to the other protocol, if the service's status accepts it and the service has its `OnUpgrade`.
    /// Otherwise the `OnUpgrade` fails.
    pub(super) fn answered(self, status: StatusCode) -> Option<Switch> {
        if status != self.status {
            return None;
        }
        let Offer { pipe, mut connection, is_accepted, mut dropped, .. } = self;
        is_accepted.set(true);
        // The pipe has room for the response, so one poll ends hyper's connection, and the service has its end.
        let mut cx = Context::from_waker(Waker::noop());
        let _ = connection.as_mut().poll(&mut cx);
        drop(connection);
        if dropped.poll(&mut cx).is_ready() {
            // The status of a service that answers any request says nothing.
            return None;
        }
        Some(Switch::new(async move |stream| {
            // An error ends the task, which drops the connection's stream and our end of the pipe.
            let _ = unconstrained(copy(stream, pipe, dropped)).await;
        }))
    }
}

/// The service's end of the pipe.
struct Theirs {
    pipe: TokioIo<DuplexStream>,
    /// Is dropped after `pipe`. This makes [`Offer::dropped`] ready.
    _held: Promise<()>,
}

impl hyper::rt::Read for Theirs {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_read(cx, buffer)
    }
}

impl hyper::rt::Write for Theirs {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.pipe).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_shutdown(cx)
    }
}

/// Copies bytes in both directions, until both have ended, or the service's bytes have and it has dropped its end.
async fn copy(stream: RawStream, mut pipe: DuplexStream, mut dropped: Asked<()>) -> io::Result<()> {
    let rest = behind_head(&mut pipe).await?;
    let (reader, writer) = stream.split();
    let pipe = RefCell::new(pipe);
    let (mut received, mut sent) = (pin!(receive(reader, &pipe)), pin!(send(rest, &pipe, writer)));
    let (mut has_received, mut has_sent, mut is_dropped) = (false, false, false);
    poll_fn(|cx| {
        if !has_received && let Poll::Ready(result) = received.as_mut().poll(cx) {
            has_received = true;
            result?;
        }
        if !has_sent && let Poll::Ready(result) = sent.as_mut().poll(cx) {
            has_sent = true;
            result?;
        }
        is_dropped = is_dropped || dropped.poll(cx).is_ready();
        if has_sent && (has_received || is_dropped) { Poll::Ready(Ok(())) } else { Poll::Pending }
    })
    .await
}

/// Reads hyper's response head from the pipe. Returns the bytes behind it, which the service has written already.
async fn behind_head(pipe: &mut DuplexStream) -> io::Result<Bytes> {
    let mut bytes = BytesMut::new();
    loop {
        if let Some(at) = memchr::memmem::find(&bytes, HEAD_END) {
            return Ok(bytes.split_off(at + HEAD_END.len()).freeze());
        }
        bytes.reserve(FEW_BYTES);
        if poll_fn(|cx| poll_read(pipe, cx, &mut bytes)).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Gives the peer's bytes to the service.
async fn receive(mut reader: RawReader, service: &RefCell<DuplexStream>) -> io::Result<()> {
    loop {
        match reader.read().await {
            Ok(Some(mut bytes)) => {
                while !bytes.is_empty() {
                    reader.keep(HELD_BYTES + bytes.len());
                    match poll_fn(|cx| Pin::new(&mut *service.borrow_mut()).poll_write(cx, &bytes)).await {
                        Ok(written) => bytes.advance(written),
                        // The service has dropped its end. Its last bytes are still to be sent.
                        Err(_) => return Ok(()),
                    }
                }
                reader.keep(HELD_BYTES);
            }
            // hyper does not tell services that the server stops. They have until the engine cuts the connection.
            Ok(None) if reader.ended() == Some(Ended::Draining) => {}
            Ok(None) if reader.ended() == Some(Ended::Peer) => {
                return poll_fn(|cx| Pin::new(&mut *service.borrow_mut()).poll_shutdown(cx)).await;
            }
            Ok(None) | Err(_) => return Err(io::ErrorKind::ConnectionReset.into()),
        }
    }
}

/// Sends the service's bytes to the peer.
async fn send(first: Bytes, service: &RefCell<DuplexStream>, mut writer: RawWriter) -> io::Result<()> {
    let (mut bytes, mut room) = (first, FEW_BYTES);
    loop {
        if !bytes.is_empty() && writer.write(bytes).await.is_err() {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let mut buffer = BytesMut::with_capacity(room);
        if poll_fn(|cx| poll_read(&mut service.borrow_mut(), cx, &mut buffer)).await? == 0 {
            return Ok(());
        }
        // A service that has filled the buffer probably has more.
        room = if buffer.len() == buffer.capacity() { PIPE_BYTES } else { FEW_BYTES };
        bytes = buffer.freeze();
    }
}

fn poll_read(pipe: &mut DuplexStream, cx: &mut Context<'_>, buffer: &mut BytesMut) -> Poll<io::Result<usize>> {
    pin!(pipe.read_buf(buffer)).poll(cx)
}
