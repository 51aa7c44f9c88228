//! Forms: `application/x-www-form-urlencoded` and `multipart/form-data`.
//!
//! [`Form`] reads the fields of either into a type. [`Multipart`] returns the parts of a body while it is received;
//! each part can be read into memory or into a file:
//!
//! ```
//! use highwire::{App, IntoResponse, Multipart, form::MultipartError, testing::Client};
//!
//! async fn upload(mut multipart: Multipart) -> Result<String, MultipartError> {
//!     let mut said = String::new();
//!     while let Some(part) = multipart.next().await {
//!         let part = part?;
//!         let name = part.name().to_string();
//!         if part.file_name().is_some() {
//!             // The file is removed at the end of the block. `Spool::keep` would keep it.
//!             let file = part.spool(std::env::temp_dir()).await?;
//!             said += &format!("{name}: {} bytes\n", file.len());
//!         } else {
//!             said += &format!("{name}: {}\n", part.text(1000).await?);
//!         }
//!     }
//!     Ok(said)
//! }
//!
//! let body = "--B\r\nContent-Disposition: form-data; name=\"title\"\r\n\r\nFerris\r\n\
//!     --B\r\nContent-Disposition: form-data; name=\"image\"; filename=\"crab.png\"\r\n\r\n\x01\x02\x03\r\n--B--\r\n";
//! let mut client = Client::new(App::new().post("/images", upload))?;
//! let answer = client.post("/images").header("content-type", "multipart/form-data; boundary=B").body(body).send();
//! assert_eq!(answer.text(), "title: Ferris\nimage: 3 bytes\n");
//! # Ok::<(), highwire::Error>(())
//! ```

pub(crate) mod head;
mod multipart;
pub(crate) mod parser;
mod spool;
#[cfg(feature = "json")]
mod typed;
#[cfg(feature = "json")]
pub(crate) mod urlencoded;

pub use multipart::{Fault, Multipart, MultipartError, Part};
pub use spool::Spool;
pub(crate) use spool::remove_dropped;
#[cfg(feature = "json")]
pub use typed::Form;

/// The most fields of a query or a form. PHP and Express have the same default.
pub const MOST_FIELDS: usize = 1000;

/// Limits on multipart bodies. Set them for all routes by [`App::state`](crate::App::state), and for one request by
/// [`Multipart::limited`].
///
/// ```
/// let limits = highwire::form::Limits::default().part_bytes(5 << 30).total_bytes(5 << 30);
/// let app = highwire::App::new().state(limits);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The most parts of a body.
    pub parts: usize,
    /// The most bytes of a part's header fields, and the most bytes of the preamble before the first part.
    pub head_bytes: usize,
    /// The most bytes of one part's data.
    pub part_bytes: u64,
    /// The most bytes of the whole body.
    pub total_bytes: u64,
}

impl Limits {
    /// Sets [`parts`](Self#structfield.parts).
    #[must_use]
    pub fn parts(mut self, parts: usize) -> Limits {
        self.parts = parts;
        self
    }

    /// Sets [`head_bytes`](Self#structfield.head_bytes).
    #[must_use]
    pub fn head_bytes(mut self, head_bytes: usize) -> Limits {
        self.head_bytes = head_bytes;
        self
    }

    /// Sets [`part_bytes`](Self#structfield.part_bytes).
    #[must_use]
    pub fn part_bytes(mut self, part_bytes: u64) -> Limits {
        self.part_bytes = part_bytes;
        self
    }

    /// Sets [`total_bytes`](Self#structfield.total_bytes).
    #[must_use]
    pub fn total_bytes(mut self, total_bytes: u64) -> Limits {
        self.total_bytes = total_bytes;
        self
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            // This is also the limit of a form that is not multipart.
            parts: MOST_FIELDS,
            // A name, a file's name and a media type take a few hundred bytes.
            head_bytes: 8 * 1024,
            // This is enough for photographs and documents; apps that accept videos must set more.
            part_bytes: 64 << 20,
            total_bytes: 256 << 20,
        }
    }
}
