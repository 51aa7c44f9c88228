//! A demo with TLS for tests: an authority, files with a certificate that the authority issued for this machine, and
//! TLS clients.

#[path = "../../../../highwire/tests/tls_peer/mod.rs"]
pub(crate) mod tls_peer;

use crate::demo::{Demo, HIGHWIRE, PATIENCE};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::Arc;
use tls_peer::{Authority, Folder, Pem};

/// The names in the certificate of the site.
pub(crate) const NAMES: &[&str] = &["localhost", "127.0.0.1"];

/// An authority and a folder with `ca.pem`, `site.pem` and `site.key`.
pub(crate) struct Site {
    pub(crate) authority: Authority,
    folder: Folder,
}

/// A TLS connection. Reading to its end fails if the server closes without `close_notify`.
pub(crate) type Stream = StreamOwned<ClientConnection, TcpStream>;

impl Site {
    pub(crate) fn new() -> Site {
        let site = Site { authority: Authority::new("an authority of tests"), folder: Folder::new() };
        site.write("ca.pem", &site.authority.pem);
        site.install(&site.authority.issue(NAMES));
        site
    }

    /// Writes a certificate and its key to `site.pem` and `site.key`, replacing each file atomically.
    pub(crate) fn install(&self, pem: &Pem) {
        self.write("site.pem", &pem.chain);
        self.write("site.key", &pem.key);
    }

    /// Writes a file and returns its path.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        self.folder.write(name, content).display().to_string()
    }

    /// Returns a file's path.
    pub(crate) fn file(&self, name: &str) -> String {
        self.folder.file(name).display().to_string()
    }

    /// Makes an empty folder and returns its path.
    pub(crate) fn folder(&self, name: &str) -> String {
        std::fs::create_dir(self.folder.file(name)).expect("a folder");
        self.file(name)
    }

    /// Starts the demo with a cleartext and a TLS listener.
    pub(crate) fn start(&self, engine: &str, arguments: &[&str]) -> Option<Demo> {
        Demo::of(self.command(engine, arguments), engine)
    }

    /// Returns the command that [`start`](Self::start) runs.
    pub(crate) fn command(&self, engine: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(HIGHWIRE);
        command.args(["demo", "--engine", engine, "--listen", "127.0.0.1:0", "--tls-listen", "127.0.0.1:0"]);
        command.args(["--cert", &self.file("site.pem"), "--key", &self.file("site.key")]).args(arguments);
        command.env_remove("SSLKEYLOGFILE");
        command
    }
}

/// Connects and completes the TLS handshake.
pub(crate) fn open(demo: &Demo, config: Arc<ClientConfig>) -> std::io::Result<Stream> {
    let mut socket = TcpStream::connect(&demo.tls_addresses[0])?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let name = ServerName::try_from("localhost").expect("a name");
    let mut session = ClientConnection::new(config, name).expect("a client");
    while session.is_handshaking() {
        session.complete_io(&mut socket)?;
    }
    Ok(StreamOwned::new(session, socket))
}

/// Sends GET by HTTP/1.1 and returns the answer up to `last_words`.
pub(crate) fn ask(stream: &mut Stream, path: &str, last_words: &str) -> String {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("a successful write");
    read_to(stream, last_words)
}

/// Reads until the received text ends with `last_words`.
pub(crate) fn read_to(stream: &mut Stream, last_words: &str) -> String {
    let mut answer = Vec::new();
    while !answer.ends_with(last_words.as_bytes()) {
        let mut part = [0; 4096];
        let count = stream.read(&mut part).expect("an answer");
        assert_ne!(count, 0, "the end instead of {last_words:?}");
        answer.extend_from_slice(&part[..count]);
    }
    String::from_utf8(answer).expect("text")
}
