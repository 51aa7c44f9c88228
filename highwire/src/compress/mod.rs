//! Compression of responses and decompression of request bodies: gzip, deflate, br and zstd.
//!
//! [`Compression`] is a [middleware](crate::middleware) that compresses responses for clients that accept it.
//! [`Decompression`] is a middleware that decodes compressed request bodies for handlers. Add either to an app, a nest
//! or one handler.
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
//! // A response is compressed only if the client sends `Accept-Encoding`.
//! assert_eq!(client.get("/numbers").send().header("content-encoding"), "");
//! # Ok::<(), highwire::Error>(())
//! ```
//!
//! `docs/compression.md` describes the costs of both, and how the length of a compressed response can reveal secrets.

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
#[cfg(feature = "client")]
pub(crate) use decompression::decoding;
pub use decompression::{Decoded, Decompression};

/// A content coding (RFC 9110 section 8.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Coding {
    /// `zstd` (RFC 8878), with a window of at most 8 MiB (RFC 9659).
    Zstd,
    /// `br`: Brotli (RFC 7932).
    Brotli,
    /// `gzip` (RFC 1952).
    Gzip,
    /// `deflate`: the zlib format (RFC 1950). Bare deflate is read, too.
    Deflate,
}

impl Coding {
    /// All codings, in the server's default order of preference, which is by saved bytes relative to CPU time, best
    /// first.
    pub const ALL: [Coding; 4] = [Coding::Zstd, Coding::Brotli, Coding::Gzip, Coding::Deflate];

    /// Returns the coding's name in header fields.
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

    /// Returns the coding with that name, ignoring case. `x-gzip` is another name for gzip (RFC 9110 section 8.4.1.3).
    pub(crate) fn of(name: &[u8]) -> Option<Coding> {
        let is = |coding: &Coding| name.eq_ignore_ascii_case(coding.name().as_bytes());
        let coding = Coding::ALL.into_iter().find(is);
        coding.or_else(|| name.eq_ignore_ascii_case(b"x-gzip").then_some(Coding::Gzip))
    }
}

/// Splits a comma-separated field value into its elements, without the empty ones (RFC 9110 section 5.6.1).
fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
}

/// A reservation of memory for an encoder, or for the decoders of a body. Dropping it returns the bytes.
#[derive(Debug)]
struct Hold {
    account: &'static LocalKey<Cell<usize>>,
    bytes: usize,
}

impl Hold {
    /// Reserves bytes from an account. Returns `None` if the account would then exceed `most` bytes.
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
