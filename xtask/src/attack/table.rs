//! The table of all attacks.
//!
//! The rows are in the modules that [`SECTIONS`] lists. [`spec::BASE`](super::spec::BASE) has the defaults.

use super::spec::Attack;
use super::{broker, draining, http1, http2, lying, proxy, tls, topics, websocket, websocket_http2};

/// The attacks of one section of the page.
pub(super) struct Section {
    pub(super) title: &'static str,
    /// The start of the attacks' names.
    pub(super) prefix: &'static str,
    /// A paragraph that explains what the section's attacks have in common, or nothing.
    pub(super) about: &'static str,
    attacks: &'static [&'static [Attack]],
}

const LYING: &str = "\
The server is a proxy in front of the demo. Clients request `/evil`, which the proxy passes on to an upstream that lies,
stalls or floods. The bystander's requests go through the proxy to the demo. The upstream's CPU time counts as the
attackers'. The proxy contains Highwire's client, so these attacks also show how the client resists a lying server.";

const PROXY: &str = "\
The server is a proxy in front of the demo, and the bystander's requests go through it. Connections to the demo that the
proxy keeps for further requests are not counted as descriptors that are left.";

const DRAINING: &str = "\
The server refuses the requests and closes the connections. It must read some of what follows, because a client that is
reset may lose the answer. Each client sends at most 4 MiB and then opens the next connection.";

pub(super) const SECTIONS: [Section; 9] = [
    Section { title: "HTTP/1", prefix: "http1-", about: "", attacks: &[http1::ATTACKS] },
    Section { title: "HTTP/2 with prior knowledge", prefix: "http2-", about: "", attacks: &[http2::ATTACKS] },
    Section { title: "TLS", prefix: "tls-", about: "", attacks: &[tls::ATTACKS] },
    Section {
        title: "WebSocket",
        prefix: "websocket-",
        about: "The server sends every message back. It compresses messages if the client proposes permessage-deflate.",
        attacks: &[websocket::ATTACKS, websocket_http2::ATTACKS],
    },
    Section {
        title: "Topics",
        prefix: "topics-",
        about: "The attackers use the demo's chat. A room is a topic, and keeps 100 messages.",
        attacks: &[topics::ATTACKS],
    },
    Section {
        title: "Topics with a broker",
        prefix: "broker-",
        about: "The attackers use the demo's chat, which shares its rooms through Redis on the same machine.",
        attacks: &[broker::ATTACKS],
    },
    Section { title: "Proxy", prefix: "proxy-", about: PROXY, attacks: &[proxy::ATTACKS] },
    Section { title: "Client and lying upstreams", prefix: "upstream-", about: LYING, attacks: &[lying::ATTACKS] },
    Section {
        title: "Refused clients that continue to send",
        prefix: "draining-",
        about: DRAINING,
        attacks: &[draining::ATTACKS],
    },
];

pub(super) fn all() -> impl Iterator<Item = &'static Attack> {
    SECTIONS.iter().flat_map(|section| section.attacks).copied().flatten()
}

pub(super) fn find(name: &str) -> Option<&'static Attack> {
    all().find(|attack| attack.name == name)
}

#[cfg(test)]
mod tests {
    use super::super::spec::{MOST_STREAMS, Payload, Target};
    use super::*;

    /// The smallest permitted number of attacks in the table.
    const LEAST: usize = 150;

    #[test]
    fn there_are_enough_attacks_with_names_of_their_own() {
        let mut names: Vec<&str> = all().map(|attack| attack.name).collect();
        assert!(names.len() >= LEAST, "{} attacks", names.len());
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for section in &SECTIONS {
            for attack in section.attacks.iter().copied().flatten() {
                assert!(attack.name.starts_with(section.prefix), "{}", attack.name);
                assert!(attack.what.ends_with('.') && !attack.what.contains('|'), "{}", attack.name);
            }
        }
    }

    #[test]
    fn every_payload_can_be_made() {
        for attack in all() {
            let mut out = [(attack.numbered_opening)(0), (attack.opening)()].concat();
            match attack.payload {
                Payload::Nothing => {}
                Payload::Same(bytes) => out.extend(bytes()),
                Payload::Numbered(fill) => (0..2).for_each(|round| fill(round, &mut out)),
                Payload::Streams { open, step, request } => {
                    assert!(open * step <= MOST_STREAMS, "{}", attack.name);
                    request(1, &mut out);
                }
                Payload::Data(data) => {
                    let bytes = (data.content)().len();
                    assert!(data.streams <= MOST_STREAMS && (1..=16_384).contains(&bytes), "{}", attack.name);
                }
            }
            let is_silent = attack.name.contains("silent") || attack.name.contains("close");
            assert!(is_silent || !out.is_empty(), "{}", attack.name);
        }
    }

    #[test]
    fn requests_to_the_upstream_have_one() {
        for attack in all() {
            let out = [(attack.numbered_opening)(0), (attack.opening)()].concat();
            let asks = out.windows(5).any(|window| window == b"/evil");
            let has = matches!(attack.target, Target::Proxy(Some(_)));
            // Attacks with an upstream may request it only in the payload.
            assert!(has || !asks, "{}", attack.name);
        }
    }
}
