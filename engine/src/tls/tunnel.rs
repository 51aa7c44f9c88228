//! TLS on a raw stream that a task of ours has opened: a task encrypts and decrypts between two raw streams.

use super::error::TlsError;
use super::session::{Progress, Session};
use super::side::Client;
use crate::context;
use crate::promise::{Promise, promise};
use crate::raw::{Ended, RAW_BYTES, Raw, RawReader, RawStream, RawWriter};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Performs a TLS handshake with a server on a raw stream, and returns the stream of the decrypted bytes. The server's
/// certificate must be valid for `name`, as far as the configuration verifies certificates. There is no deadline.
///
/// # Errors
/// Returns an error if the handshake fails.
///
/// # Panics
/// Panics if no worker runs on this thread.
pub async fn connect(
    stream: RawStream,
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
) -> Result<RawStream, TlsError> {
    let mut hello = Vec::new();
    let session = Session::connect(config, name, &mut hello)?;
    let (reader, mut writer) = stream.split();
    // Fails if the connection is broken, which the next read reports.
    let _ = writer.queue(hello.into());
    let (promise, mut asked) = promise();
    let promise = Some(promise);
    context::spawn(Pump { session, reader, writer: Some(writer), raw: None, promise, peer_ended: false });
    let result = poll_fn(|cx| asked.poll(cx)).await;
    result.unwrap_or_else(|| Err(TlsError::Local("the worker has ended".into())))
}

/// The bytes that a session of rustls takes, about.
const SESSION_BYTES: usize = 10 * 1024;

/// The task between the two streams.
struct Pump {
    session: Session<Client>,
    reader: RawReader,
    /// The writer of the encrypted bytes, until our direction has ended.
    writer: Option<RawWriter>,
    /// The decrypted bytes, after the handshake.
    raw: Option<Rc<RefCell<Raw>>>,
    /// The promise of the decrypted bytes' stream, during the handshake.
    promise: Option<Promise<Result<RawStream, TlsError>>>,
    /// True if the server has ended its direction.
    peer_ended: bool,
}

impl Pump {
    fn end_handshake(&mut self, error: TlsError) {
        if let Some(promise) = self.promise.take() {
            promise.keep(Err(error));
        }
    }

    fn write(&mut self, bytes: Vec<u8>) {
        if let Some(writer) = &mut self.writer {
            // Fails if the connection is broken, which the next read reports.
            let _ = writer.queue(bytes.into());
        }
    }

    /// Ends both streams.
    fn fail(&mut self, error: TlsError) {
        match &self.raw {
            Some(raw) => raw.borrow_mut().end(Ended::Broken),
            None => self.end_handshake(error),
        }
        self.writer = None;
    }

    /// Decrypts what arrives while there is room for it. Returns true if the stream has ended.
    fn receive(&mut self, cx: &mut Context<'_>) -> bool {
        loop {
            if self.raw.as_ref().is_some_and(|raw| {
                let mut raw = raw.borrow_mut();
                raw.paused = raw.held() >= RAW_BYTES;
                raw.paused
            }) {
                let is_broken = self.reader.ended() == Some(Ended::Broken);
                if is_broken {
                    self.raw.iter().for_each(|raw| raw.borrow_mut().end(Ended::Broken));
                }
                return is_broken;
            }
            let bytes = match self.reader.poll_read(cx) {
                Poll::Pending => return false,
                Poll::Ready(Ok(Some(bytes))) => bytes,
                Poll::Ready(Ok(None)) if self.reader.ended() == Some(Ended::Draining) => {
                    self.raw.iter().for_each(|raw| raw.borrow_mut().drain());
                    continue;
                }
                Poll::Ready(ended) => {
                    let is_idle = ended.is_ok() && self.reader.ended() == Some(Ended::Idle);
                    match &self.raw {
                        Some(raw) => raw.borrow_mut().end(if is_idle { Ended::Idle } else { Ended::Broken }),
                        None => {
                            self.end_handshake(TlsError::Peer("it has ended the connection".into()));
                            self.writer = None;
                        }
                    }
                    return true;
                }
            };
            let (mut plain, mut out) = (Vec::new(), Vec::new());
            let progress = self.session.receive(&bytes, &mut plain, &mut out);
            self.write(out);
            match progress {
                Ok(Progress::Handshaking) => continue,
                Ok(progress) => {
                    let raw = self.raw.get_or_insert_with(|| {
                        let raw = Rc::new(RefCell::new(Raw::new(cx.waker().clone())));
                        if self.reader.ended() == Some(Ended::Draining) {
                            raw.borrow_mut().drain();
                        }
                        if let Some(promise) = self.promise.take() {
                            promise.keep(Ok(RawStream::new(raw.clone())));
                        }
                        raw
                    });
                    if !plain.is_empty() {
                        raw.borrow_mut().push(&plain);
                    }
                    if progress == Progress::PeerClosed {
                        raw.borrow_mut().end(Ended::Peer);
                    }
                    if progress != Progress::Open {
                        self.peer_ended = true;
                        return true;
                    }
                }
                Err(error) => {
                    self.fail(error);
                    return true;
                }
            }
        }
    }

    /// Encrypts the written bytes while there is room for them.
    fn send(&mut self, cx: &mut Context<'_>) {
        let Some(raw) = self.raw.clone() else { return };
        let mut raw = raw.borrow_mut();
        let mut out = Vec::new();
        while let Some(writer) = &mut self.writer {
            if out.len() >= RAW_BYTES || writer.poll_room(cx).is_pending() {
                break;
            }
            let Some(bytes) = raw.take_written() else { break };
            if let Err(error) = self.session.send(&bytes, &mut out) {
                drop(raw);
                return self.fail(error);
            }
        }
        if !out.is_empty() {
            self.write(out);
            raw.wake_writer();
            // The rest follows when these bytes are sent.
            cx.waker().wake_by_ref();
        } else if !raw.has_outgoing() {
            raw.mark_flushed();
            // The session cannot receive after its close_notify, so it is sent last.
            if raw.is_written() && (raw.is_finished() || self.peer_ended) && self.writer.is_some() {
                let mut end = Vec::new();
                self.session.close(&mut end);
                self.write(end);
                self.writer = None;
            }
        }
    }
}

impl Future for Pump {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.promise.iter().for_each(|promise| promise.watch(cx.waker()));
        let has_ended = self.peer_ended || self.receive(cx);
        self.send(cx);
        let held = self.raw.as_ref().map_or(0, |raw| {
            let raw = raw.borrow();
            raw.held() + raw.kept + raw.outgoing_held()
        });
        let held = held + self.session.held_bytes() + SESSION_BYTES;
        self.reader.keep(held);
        let is_finished = self.raw.as_ref().is_some_and(|raw| raw.borrow().is_finished());
        let is_abandoned = self.promise.as_ref().is_some_and(Promise::is_abandoned);
        if is_abandoned || (self.writer.is_none() && (has_ended || is_finished)) {
            return Poll::Ready(());
        }
        Poll::Pending
    }
}
