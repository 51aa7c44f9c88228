//! The table of all attacks.
//!
//! The rows are in `http1`, `http2` and `tls`. [`spec::BASE`](super::spec::BASE) has the defaults.

use super::spec::Attack;
use super::{http1, http2, tls};

pub(super) fn all() -> impl Iterator<Item = &'static Attack> {
    http1::ATTACKS.iter().chain(http2::ATTACKS).chain(tls::ATTACKS)
}

pub(super) fn find(name: &str) -> Option<&'static Attack> {
    all().find(|attack| attack.name == name)
}

#[cfg(test)]
mod tests {
    use super::super::spec::{MOST_STREAMS, Payload, Protocol};
    use super::*;

    /// The smallest permitted number of attacks in the table.
    const LEAST: usize = 44;

    #[test]
    fn there_are_enough_attacks_with_names_of_their_own() {
        let mut names: Vec<&str> = all().map(|attack| attack.name).collect();
        assert!(names.len() >= LEAST, "{} attacks", names.len());
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for attack in all() {
            let prefix = match attack.protocol {
                Protocol::Http1 => "http1-",
                Protocol::Http2 => "http2-",
                Protocol::Tls => "tls-",
            };
            assert!(attack.name.starts_with(prefix), "{}", attack.name);
            assert!(attack.what.ends_with('.') && !attack.what.contains('|'), "{}", attack.name);
        }
    }

    #[test]
    fn every_payload_can_be_made() {
        for attack in all() {
            let mut out = (attack.opening)();
            match attack.payload {
                Payload::Nothing => {}
                Payload::Same(bytes) => out.extend(bytes()),
                Payload::Numbered(fill) => (0..2).for_each(|round| fill(round, &mut out)),
                Payload::Streams { open, step, request } => {
                    assert!(open * step <= MOST_STREAMS, "{}", attack.name);
                    request(1, &mut out);
                }
                Payload::Data(data) => {
                    assert!(data.streams <= MOST_STREAMS && data.bytes <= 16_384, "{}", attack.name);
                }
            }
            let is_silent = attack.name.contains("silent") || attack.name.contains("close");
            assert!(is_silent || !out.is_empty(), "{}", attack.name);
        }
    }
}
