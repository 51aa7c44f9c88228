//! A client for raw HTTP/1 bytes on real sockets or on any other stream.
//!
//! There are two ways to use it. [`exchange`] sends bytes, reads until the server closes the connection, and returns all
//! received bytes. [`Http1`] keeps a connection and reads response after response (RFC 9112 section 6.3). The client
//! shares no code with the engine.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// The default timeout of each read and write. It is far longer than an answer should take on a slow machine. A test
/// that must fail if a timeout of the server ends a wait needs a shorter one; see [`connect_within`].
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Returns true if a server listens at an address. Without a server, the kernel may give a client the same port as its own, so that the
/// client connects to itself. This does not count.
pub fn listens(address: impl ToSocketAddrs) -> bool {
    TcpStream::connect(address).is_ok_and(|stream| stream.local_addr().ok() != stream.peer_addr().ok())
}

/// Connects to an address, with [`PATIENCE`] for each read and write.
///
/// # Panics
/// Panics if no server listens at the address.
pub fn connect(address: &str) -> TcpStream {
    connect_within(address, PATIENCE)
}

/// Connects to an address, with a timeout for each read and write. Writes are sent at once (`TCP_NODELAY`).
///
/// # Panics
/// Panics if no server listens at the address.
pub fn connect_within(address: &str, patience: Duration) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap_or_else(|error| panic!("cannot connect to {address}: {error}"));
    stream.set_nodelay(true).expect("cannot set a socket option");
    stream.set_read_timeout(Some(patience)).expect("cannot set a socket option");
    stream.set_write_timeout(Some(patience)).expect("cannot set a socket option");
    stream
}

/// Sends GET on a new connection and returns the whole answer with its head.
///
/// # Panics
/// Panics if the server does not answer with text and close the connection.
pub fn get(address: &str, path: &str) -> String {
    exchange_text(connect(address), format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"))
}

/// Sends bytes and reads until the server closes the connection. Under TLS, the server must send close_notify first.
///
/// # Panics
/// Panics if the server does not read, does not close in time, or resets the connection.
pub fn exchange(mut stream: impl Read + Write, bytes: impl AsRef<[u8]>) -> Vec<u8> {
    stream.write_all(bytes.as_ref()).expect("cannot send to the server");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("cannot read to the end of the connection");
    answer
}

/// Does the same as [`exchange`] for an answer that is text.
///
/// # Panics
/// Panics if [`exchange`] does or if the answer is not UTF-8.
pub fn exchange_text(stream: impl Read + Write, bytes: impl AsRef<[u8]>) -> String {
    String::from_utf8(exchange(stream, bytes)).expect("the answer is not UTF-8")
}

/// Returns the bytes after the head of an answer. Does not decode chunks.
pub fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").map_or("", |(_, body)| body)
}

/// A response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// The status.
    pub status: u16,
    /// The fields of the head; names are in lower case.
    pub fields: Vec<(String, String)>,
    /// The body, decoded if it was chunked.
    pub body: Vec<u8>,
}

impl Response {
    /// Returns the value of the first field with this name, which must be in lower case.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(its, _)| its == name).map(|(_, value)| value.as_str())
    }

    /// Returns the body as text.
    ///
    /// # Panics
    /// Panics if the body is not UTF-8.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the body is not UTF-8")
    }
}

/// A client connection.
#[derive(Debug)]
pub struct Http1<S> {
    stream: S,
    /// Received bytes after the last response.
    unread: Vec<u8>,
}

impl<S: Read + Write> Http1<S> {
    /// Creates a client on a connected stream.
    pub fn new(stream: S) -> Http1<S> {
        Http1 { stream, unread: Vec::new() }
    }

    /// Returns the stream on which the client was created.
    pub fn stream(&mut self) -> &mut S {
        &mut self.stream
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// Returns an error, with the server's answer if there is one, if the bytes cannot be written.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        let sent = self.stream.write_all(bytes).and_then(|()| self.stream.flush());
        // The server may have answered before it closed.
        sent.map_err(|error| format!("cannot write to the server: {error}; its response: {:?}", self.response()))
    }

    /// Reads the next response and skips interim ones. The request must not be HEAD or CONNECT, because the heads of
    /// their responses do not show where these responses end.
    ///
    /// # Errors
    /// Returns an error if the connection ends or times out before the response is complete, or if the bytes are no
    /// response.
    pub fn response(&mut self) -> Result<Response, String> {
        loop {
            let mut response = self.head()?;
            if response.status == 101 || response.status >= 200 {
                response.body = self.response_body(&response)?;
                return Ok(response);
            }
        }
    }

    /// Reads until the server closes the connection. Returns the bytes after the last response.
    ///
    /// # Errors
    /// Returns an error if the server does not close in time or resets the connection.
    pub fn read_to_end(&mut self) -> Result<Vec<u8>, String> {
        let mut bytes = std::mem::take(&mut self.unread);
        match self.stream.read_to_end(&mut bytes) {
            Ok(_) => Ok(bytes),
            Err(error) => Err(format!("cannot read from the server after {} bytes: {error}", bytes.len())),
        }
    }

    fn head(&mut self) -> Result<Response, String> {
        let head = self.take_until(b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&head);
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok());
        let status = status.ok_or_else(|| format!("no HTTP/1 status in the head {head:?}"))?;
        let field = |line: &str| -> Result<(String, String), String> {
            let (name, value) = line.split_once(':').ok_or_else(|| format!("not a header field: {line:?}"))?;
            Ok((name.to_ascii_lowercase(), value.trim().to_string()))
        };
        let fields = lines.map(field).collect::<Result<Vec<_>, String>>()?;
        Ok(Response { status, fields, body: Vec::new() })
    }

    fn response_body(&mut self, head: &Response) -> Result<Vec<u8>, String> {
        if matches!(head.status, 101 | 204 | 304) {
            return Ok(Vec::new());
        }
        match (head.field("transfer-encoding"), head.field("content-length")) {
            (Some("chunked"), None) => self.chunked(),
            (None, Some(length)) => match length.parse() {
                Ok(length) => self.take(length),
                Err(_) => Err(format!("invalid Content-Length: {length:?}")),
            },
            (None, None) => self.read_to_end(),
            framing => Err(format!("unsupported Transfer-Encoding and Content-Length: {framing:?}")),
        }
    }

    fn chunked(&mut self) -> Result<Vec<u8>, String> {
        let mut body = Vec::new();
        loop {
            let line = self.take_until(b"\r\n")?;
            let line = String::from_utf8_lossy(&line);
            let digits = line.split(';').next().unwrap_or_default();
            match usize::from_str_radix(digits, 16) {
                Ok(0) => break,
                Ok(size) => body.extend(self.take(size)?),
                Err(_) => return Err(format!("invalid chunk size: {line:?}")),
            }
            if self.take(2)? != b"\r\n" {
                return Err(format!("a chunk has no line end; the body so far has {} bytes", body.len()));
            }
        }
        // Trailers end with an empty line.
        while !self.take_until(b"\r\n")?.is_empty() {}
        Ok(body)
    }

    /// Takes the bytes up to and including `end`, and returns the bytes before `end`. Reads from the stream until `end`
    /// has arrived.
    fn take_until(&mut self, end: &[u8]) -> Result<Vec<u8>, String> {
        loop {
            if let Some(at) = self.unread.windows(end.len()).position(|bytes| bytes == end) {
                return Ok(self.unread.drain(..at + end.len()).take(at).collect());
            }
            self.read()?;
        }
    }

    /// Takes `count` bytes. Reads from the stream until they have arrived.
    fn take(&mut self, count: usize) -> Result<Vec<u8>, String> {
        while self.unread.len() < count {
            self.read()?;
        }
        Ok(self.unread.drain(..count).collect())
    }

    fn read(&mut self) -> Result<(), String> {
        let mut buffer = [0; 16 * 1024];
        match self.stream.read(&mut buffer) {
            Ok(0) => {
                let unread = self.unread[..self.unread.len().min(1024)].escape_ascii();
                Err(format!("the server closed the connection; {} bytes are unread: {unread}", self.unread.len()))
            }
            Ok(count) => {
                self.unread.extend_from_slice(&buffer[..count]);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(format!("cannot read from the server: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream that returns the answer in pieces of at most `size` bytes.
    struct Pieces {
        answer: &'static [u8],
        size: usize,
    }

    impl Read for Pieces {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let size = self.size.min(buffer.len()).min(self.answer.len());
            let (piece, rest) = self.answer.split_at(size);
            buffer[..size].copy_from_slice(piece);
            self.answer = rest;
            Ok(size)
        }
    }

    impl Write for Pieces {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// Reads the expected number of responses, compares their statuses and bodies, and checks that no bytes follow.
    fn check(answer: &'static [u8], expected: &[(u16, &str)]) {
        for size in [1, 7, answer.len()] {
            let mut client = Http1::new(Pieces { answer, size });
            for (status, body) in expected {
                let response = client.response().expect("cannot read a response");
                assert_eq!((response.status, response.text()), (*status, *body), "in pieces of {size} bytes");
            }
            assert_eq!(client.read_to_end(), Ok(Vec::new()), "in pieces of {size} bytes");
        }
    }

    #[test]
    fn responses_end_where_their_heads_say() {
        check(
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 404 Not Found\r\ncontent-length:0\r\n\r\n",
            &[(200, "abc"), (404, "")],
        );
        check(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nx: y\r\n\r\n\
              HTTP/1.1 204 No Content\r\n\r\n",
            &[(200, "abc0123456789"), (204, "")],
        );
        check(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.0 200 OK\r\n\r\nto the end", &[(200, "to the end")]);
    }

    #[test]
    fn what_is_not_a_whole_response_is_an_error() {
        for answer in [
            &b""[..],
            b"HTTP/1.1 200 OK\r\n",
            b"HTTP/2.0 200 OK\r\n\r\n",
            b"HTTP/1.1 OK\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nx\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab",
            b"HTTP/1.1 200 OK\r\nContent-Length: 3, 3\r\n\r\nabc",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
        ] {
            let response = Http1::new(Pieces { answer, size: 5 }).response();
            assert!(response.is_err(), "{}: {response:?}", answer.escape_ascii());
        }
    }

    #[test]
    fn answers_are_read_to_their_end() {
        let answer = b"HTTP/1.1 200 OK\r\n\r\nabc";
        assert_eq!(exchange(Pieces { answer, size: 4 }, "GET"), answer);
        assert_eq!(body(&exchange_text(Pieces { answer, size: 4 }, b"GET")), "abc");
    }
}
