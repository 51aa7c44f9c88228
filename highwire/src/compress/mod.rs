//! Compressed answers, and compressed bodies of requests: gzip, deflate, br and zstd.
//!
//! [`Compression`] is a [middleware](crate::middleware) that compresses answers for clients that accept it;
//! [`Decompression`] is one that lets handlers read what clients compressed. Each is put where it is wanted: around an
//! app, a nest or one handler.
//!
//! ```
//! use highwire::compress::{Coding, Compression, Decompression};
//! use highwire::testing::Client;
//! use highwire::App;
//!
//! let app = App::new()
//!     .get("/numbers", || (0..1000).map(|number| format!("{number}\n")).collect::<String>())
//!     .post("/length", |body: String| body.len().to_string())
//!     .with(Compression::new().level(Coding::Gzip, 4))
//!     .with(Decompression::new());
//! let mut client = Client::new(app)?;
//! let answer = client.get("/numbers").header("accept-encoding", "gzip").send();
//! assert_eq!((answer.header("content-encoding"), answer.header("vary")), ("gzip", "Accept-Encoding"));
//! assert!(answer.bytes().len() < 2000);
//! // The client says what it can take: without that, nothing is compressed.
//! assert_eq!(client.get("/numbers").send().header("content-encoding"), "");
//! # Ok::<(), highwire::Error>(())
//! ```
//!
//! What both cost, and what compressing secrets gives away, is in the page `docs/compression.md`.

mod compression;
mod decode;
mod decompression;
mod encode;
mod negotiate;
#[doc(hidden)]
pub mod testing;

use http::HeaderValue;
use std::cell::Cell;
use std::thread::LocalKey;

pub use compression::{Compression, compressible};
pub use decompression::{Decoded, Decompression};

/// A content coding (RFC 9110 section 8.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Coding {
    /// `zstd` (RFC 8878), with a window of at most 8 MiB (RFC 9659).
    Zstd,
    /// `br`: Brotli (RFC 7932).
    Brotli,
    /// `gzip` (RFC 1952).
    Gzip,
    /// `deflate`: the zlib format (RFC 1950), not bare deflate.
    Deflate,
}

impl Coding {
    /// All of them, in the order in which the server prefers them: by what they save for the work they cost.
    pub const ALL: [Coding; 4] = [Coding::Zstd, Coding::Brotli, Coding::Gzip, Coding::Deflate];

    /// Its name in fields.
    pub const fn name(self) -> &'static str {
        match self {
            Coding::Zstd => "zstd",
            Coding::Brotli => "br",
            Coding::Gzip => "gzip",
            Coding::Deflate => "deflate",
        }
    }

    const fn value(self) -> HeaderValue {
        HeaderValue::from_static(self.name())
    }

    /// The coding of that name, in any case. `x-gzip` is another name of gzip (RFC 9110 section 8.4.1.3).
    fn of(name: &[u8]) -> Option<Coding> {
        let is = |coding: &Coding| name.eq_ignore_ascii_case(coding.name().as_bytes());
        let coding = Coding::ALL.into_iter().find(is);
        coding.or_else(|| name.eq_ignore_ascii_case(b"x-gzip").then_some(Coding::Gzip))
    }
}

/// The elements of a list in fields, without the empty ones (RFC 9110 section 5.6.1).
fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
}

/// Bytes that encoders or decoders of a worker hold, as long as this lives.
#[derive(Debug)]
struct Hold {
    account: &'static LocalKey<Cell<usize>>,
    bytes: usize,
}

impl Hold {
    /// Takes bytes of an account, unless more than `most` would be taken then.
    fn take(account: &'static LocalKey<Cell<usize>>, bytes: usize, most: usize) -> Option<Hold> {
        let held = account.get() + bytes;
        (held <= most).then(|| {
            account.set(held);
            Hold { account, bytes }
        })
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.account.set(self.account.get() - self.bytes);
    }
}
