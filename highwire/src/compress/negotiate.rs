//! Selection of a response's coding by `Accept-Encoding` (RFC 9110 section 12.5.3) from the codings that the server
//! offers.
//!
//! The coding with the highest weight wins; among equal weights, the server's order decides. The response has no coding
//! (`identity`) if the client gives `identity` a higher weight than all offered codings, sends no `Accept-Encoding`, or
//! accepts none of the offered codings. Malformed elements are ignored.

use super::{Coding, elements};
use crate::message::weight::{self, FULL, Weight};

/// The weights that a client gives to the codings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Accepted {
    codings: [Option<Weight>; Coding::ALL.len()],
    identity: Option<Weight>,
    /// The weight of `*`, which applies to all codings that the field does not name.
    others: Option<Weight>,
}

impl Accepted {
    /// Reads the values of all `Accept-Encoding` fields of a request.
    pub(super) fn of<'r>(values: impl Iterator<Item = &'r [u8]>) -> Accepted {
        let mut accepted = Accepted::default();
        for element in values.flat_map(elements) {
            let Some((name, weight)) = weighted(element) else { continue };
            let place = match (name, Coding::of(name)) {
                (_, Some(coding)) => &mut accepted.codings[coding as usize],
                (b"*", None) => &mut accepted.others,
                _ if name.eq_ignore_ascii_case(b"identity") => &mut accepted.identity,
                _ => continue,
            };
            place.get_or_insert(weight);
        }
        accepted
    }

    pub(super) fn weight(&self, coding: Coding) -> Weight {
        self.codings[coding as usize].or(self.others).unwrap_or(0)
    }

    /// Returns the best of `offered`, which is in the server's order, or `None` if the response gets no coding.
    pub(super) fn best(&self, offered: &[Coding]) -> Option<Coding> {
        let mut best = (None, self.identity.unwrap_or(0));
        for &coding in offered {
            let weight = self.weight(coding);
            // A coding wins over `identity` of the same weight, because it saves bytes.
            if weight > best.1 || (weight == best.1 && weight > 0 && best.0.is_none()) {
                best = (Some(coding), weight);
            }
        }
        best.0
    }
}

/// Returns an element's name and weight, or `None` if it is malformed.
fn weighted(element: &[u8]) -> Option<(&[u8], Weight)> {
    let mut parts = element.splitn(2, |&byte| byte == b';').map(<[u8]>::trim_ascii);
    let name = parts.next().filter(|name| !name.is_empty())?;
    match parts.next() {
        None => Some((name, FULL)),
        Some([b'q' | b'Q', b'=', value @ ..]) => Some((name, weight::parse(value)?)),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Coding::{Brotli, Deflate, Gzip, Zstd};

    #[track_caller]
    fn check(fields: &[&str], expected: Option<Coding>) {
        let accepted = Accepted::of(fields.iter().map(|field| field.as_bytes()));
        assert_eq!(accepted.best(&Coding::ALL), expected, "{fields:?}");
    }

    #[test]
    fn the_highest_weight_wins_then_the_servers_order() {
        for (fields, expected) in [
            (&[][..], None),
            (&[""], None),
            (&["gzip"], Some(Gzip)),
            (&["GZip"], Some(Gzip)),
            (&["x-gzip"], Some(Gzip)),
            (&["gzip, deflate, br, zstd"], Some(Zstd)),
            (&["gzip, deflate, br"], Some(Brotli)),
            (&["deflate, gzip"], Some(Gzip)),
            (&["gzip", "br"], Some(Brotli)),
            (&[" , gzip ,, "], Some(Gzip)),
            (&["gzip;q=1, br;q=0.999"], Some(Gzip)),
            (&["gzip;q=0.5, br;q=0.501"], Some(Brotli)),
            (&["gzip;q=.5, br;q=.4"], Some(Gzip)),
            (&["gzip ; q=0.5,\tdeflate;Q=0.50"], Some(Gzip)),
            (&["deflate;q=0.9, gzip;q=0.8"], Some(Deflate)),
            (&["gzip;q=0"], None),
            (&["gzip;q=0.000"], None),
            (&["gzip;q=0.001"], Some(Gzip)),
            (&["gzip;q=1.000"], Some(Gzip)),
            (&["*"], Some(Zstd)),
            (&["*;q=0"], None),
            (&["zstd;q=0, *"], Some(Brotli)),
            (&["gzip;q=0.2, *;q=0.1"], Some(Gzip)),
            (&["gzip, *;q=0"], Some(Gzip)),
            (&["identity"], None),
            (&["identity, gzip"], Some(Gzip)),
            (&["identity;q=1, gzip;q=0.5"], None),
            (&["identity;q=0.5, gzip;q=0.5"], Some(Gzip)),
            (&["identity;q=0"], None),
            (&["identity;q=0, deflate;q=0.1"], Some(Deflate)),
            (&["compress, exi, pack200-gzip"], None),
            (&["gzip;q=0, gzip"], None),
            // Malformed elements are ignored.
            (&["gzip;q=1.001"], None),
            (&["gzip;q=2"], None),
            (&["gzip;q=."], None),
            (&["gzip;q=0.1234"], None),
            (&["gzip;q=-1"], None),
            (&["gzip;q="], None),
            (&["gzip;q"], None),
            (&["gzip;level=9"], None),
            (&["gzip;q=0.5;x=y"], None),
            (&["gz ip, ;q=1, br"], Some(Brotli)),
            (&["gzip;q=1e0, deflate"], Some(Deflate)),
        ] {
            check(fields, expected);
        }
    }

    #[test]
    fn what_is_not_offered_is_not_chosen() {
        let accepted = Accepted::of([&b"zstd, br;q=0.9, gzip;q=0.8"[..]].into_iter());
        assert_eq!(accepted.best(&[Gzip, Brotli]), Some(Brotli));
        assert_eq!(accepted.best(&[Deflate]), None);
        assert_eq!(accepted.best(&[]), None);
    }
}
