//! The parameters of a path: their positions and their decoded values.

use percent_encoding::percent_decode;
use std::borrow::Cow;

/// The positions of a match's parameters in the path. A worker reuses one value for all its requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Captures {
    ranges: Vec<(u32, u32)>,
}

impl Captures {
    #[inline]
    pub(super) fn clear(&mut self) {
        self.ranges.clear();
    }

    pub(super) fn push(&mut self, start: usize, end: usize) {
        self.ranges.push((start as u32, end as u32));
    }

    pub(super) fn pop(&mut self) {
        self.ranges.pop();
    }

    /// Returns the last parameter, still percent-encoded, or an empty slice if there is none.
    pub(crate) fn last<'p>(&self, path: &'p [u8]) -> &'p [u8] {
        let range = self.ranges.last().map(|&(start, end)| start as usize..end as usize);
        range.and_then(|range| path.get(range)).unwrap_or_default()
    }

    /// Returns the decoded values of the parameters, in the order of the template.
    pub(crate) fn values(&self, path: &[u8]) -> impl Iterator<Item = String> {
        self.ranges.iter().map(|&(start, end)| {
            let raw = path.get(start as usize..end as usize).unwrap_or_default();
            String::from_utf8_lossy(&decode_segment(raw)).into_owned()
        })
    }
}

/// The parameters of a matched path, by the names in its template.
///
/// ```
/// use highwire::testing::Client;
/// use highwire::{App, Request};
///
/// let app = App::new().get("/{repository}/blob/{*path}", |request: &Request<'_>| {
///     let params: Vec<_> = request.params().iter().map(|(name, value)| format!("{name}={value}")).collect();
///     params.join(" ")
/// });
/// let answer = Client::new(app)?.get("/highwire/blob/docs/a%20b.md").send();
/// assert_eq!(answer.text(), "repository=highwire path=docs/a b.md");
/// # Ok::<(), highwire::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Params<'r> {
    pub(crate) names: &'r [Box<str>],
    pub(crate) captures: &'r Captures,
    pub(crate) path: &'r [u8],
}

impl Params<'_> {
    /// Returns the decoded value of a parameter, or `None` if the template has no such parameter. Bytes that are not
    /// valid UTF-8 become U+FFFD.
    pub fn get(&self, name: &str) -> Option<String> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Returns the names and decoded values of the parameters, in the order of the template.
    pub fn iter(&self) -> impl Iterator<Item = (&str, String)> {
        self.names.iter().map(|name| &**name).zip(self.captures.values(self.path))
    }

    /// Returns the number of parameters.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Returns true if the template has no parameters.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

/// Decodes the percent-encoding of a path segment.
pub(super) fn decode_segment(segment: &[u8]) -> Cow<'_, [u8]> {
    if segment.contains(&b'%') { percent_decode(segment).into() } else { Cow::Borrowed(segment) }
}
