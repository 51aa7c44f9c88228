//! The codings of a file that a client accepts by `Accept-Encoding` (RFC 9110 section 12.5.3).

use crate::message::weight::{self, FULL, Weight};

/// A coding of a precompressed file. The order, from the best compression to the worst, decides between equal weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    Brotli,
    Zstandard,
    Gzip,
}

pub(super) const CODINGS: [Coding; 3] = [Coding::Brotli, Coding::Zstandard, Coding::Gzip];

impl Coding {
    /// Returns the coding's name in header fields.
    pub(super) fn name(self) -> &'static str {
        match self {
            Coding::Brotli => "br",
            Coding::Zstandard => "zstd",
            Coding::Gzip => "gzip",
        }
    }

    /// Returns the ending of the precompressed file's name, after the original name.
    pub(super) fn ending(self) -> &'static [u8] {
        match self {
            Coding::Brotli => b".br",
            Coding::Zstandard => b".zst",
            Coding::Gzip => b".gz",
        }
    }
}

/// The codings that the server may send to a client instead of the original file, most preferred first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    order: [Option<Coding>; CODINGS.len()],
}

impl Wanted {
    /// Parses the value of `Accept-Encoding`.
    pub(super) fn parse(value: &[u8]) -> Wanted {
        // Weights are in thousandths. A coding that the client does not name has the weight of `*`. If the client does
        // not name `identity`, the original file has the lowest weight that is not 0.
        let mut weights: [Option<Weight>; CODINGS.len()] = [None; CODINGS.len()];
        let (mut any, mut itself) = (None, None);
        for element in value.split(|&byte| byte == b',') {
            let (name, weight) = element_of(element);
            let place = match name {
                b"*" => &mut any,
                name if name.eq_ignore_ascii_case(b"identity") => &mut itself,
                name => {
                    let is_it = |coding: &Coding| {
                        name.eq_ignore_ascii_case(coding.name().as_bytes())
                            || *coding == Coding::Gzip && name.eq_ignore_ascii_case(b"x-gzip")
                    };
                    match CODINGS.iter().position(is_it) {
                        Some(at) => &mut weights[at],
                        None => continue,
                    }
                }
            };
            *place = Some(weight);
        }
        let itself = itself.unwrap_or(1);
        let weight = |coding: Coding| weights[coding as usize].or(any).unwrap_or(0);
        let mut order = CODINGS.map(|coding| Some(coding).filter(|&coding| weight(coding) >= itself.max(1)));
        order.sort_by_key(|coding| std::cmp::Reverse(coding.map(weight)));
        Wanted { order }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Coding> {
        self.order.into_iter().flatten()
    }
}

/// Returns a coding's name and its weight in thousandths. A malformed weight counts as 0.
fn element_of(element: &[u8]) -> (&[u8], Weight) {
    let mut parts = element.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
    let name = parts.next().unwrap_or_default();
    let weight = parts.find_map(|part| part.strip_prefix(b"q=").or_else(|| part.strip_prefix(b"Q=")));
    (name, weight.map_or(FULL, |weight| weight::parse(weight).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_decide_and_then_compression() {
        for (value, expected) in [
            ("", ""),
            ("identity", ""),
            ("gzip", "gzip"),
            ("gzip, deflate, br, zstd", "br zstd gzip"),
            ("gzip;q=1.0, br;q=0.5", "gzip br"),
            ("br;q=0.2, zstd;q=0.9, gzip;q=0.5", "zstd gzip br"),
            ("gzip;q=0", ""),
            ("gzip;q=.5, br;q=.4", "gzip br"),
            ("*", "br zstd gzip"),
            ("*, br;q=0", "zstd gzip"),
            ("*;q=0", ""),
            ("GZIP ; q=0.001", "gzip"),
            ("x-gzip", "gzip"),
            ("identity, gzip;q=0.5", ""),
            ("identity;q=0.5, gzip;q=0.5", "gzip"),
            ("identity;q=0, gzip;q=0.1", "gzip"),
            ("gzip;q=2", ""),
            ("gzip;q=0.1234", ""),
            ("gzip;q=", ""),
            ("gzip;q=1.001", ""),
            ("gzip;level=9;q=0.5", "gzip"),
            (",,gzip,", "gzip"),
            ("deflate, compress", ""),
        ] {
            let wanted: Vec<&str> = Wanted::parse(value.as_bytes()).iter().map(Coding::name).collect();
            assert_eq!(wanted.join(" "), expected, "{value}");
        }
    }
}
