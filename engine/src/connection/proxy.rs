//! The PROXY protocol of HAProxy, versions 1 and 2: a header with the client's address, which a TCP proxy sends before
//! the client's bytes.

use super::Connection;
use super::out::Out;
use crate::exchange::abort::Abort;
use crate::service::Service;
use crate::worker::context::WorkerContext;
use highwire_io::Peer;
use highwire_io::Queue;
use highwire_proto::Head;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The longest header that is accepted, in bytes. The addresses in it need at most 216 bytes; the rest is room for a
/// proxy's additional fields.
pub(super) const HEADER_BYTES: usize = 2048;

/// The longest header of version 1, in bytes (section 2.1 of the protocol's specification).
const TEXT_BYTES: usize = 107;

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// The result of reading a connection's first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// The bytes may be the beginning of a header.
    NeedMore,
    /// A header of `bytes` bytes. `peer` is the client; `None` if the header names no TCP client, as in a proxy's
    /// health check.
    Header { bytes: usize, peer: Option<Peer> },
    /// The bytes are not a valid header.
    Wrong,
}

/// Reads a header of either version from the front of `window`.
pub(super) fn read(window: &[u8]) -> Said {
    let known = window.len().min(SIGNATURE.len());
    if window[..known] == SIGNATURE[..known] && known > 0 {
        return if known == SIGNATURE.len() { binary(window) } else { Said::NeedMore };
    }
    text(window)
}

/// Reads a header of version 1, such as `PROXY TCP4 192.0.2.1 198.51.100.1 4711 443\r\n`.
fn text(window: &[u8]) -> Said {
    let known = window.len().min(6);
    if window[..known] != b"PROXY "[..known] {
        return Said::Wrong;
    }
    let Some(end) = window.windows(2).take(TEXT_BYTES - 1).position(|two| two == b"\r\n") else {
        return if window.len() < TEXT_BYTES { Said::NeedMore } else { Said::Wrong };
    };
    let bytes = end + 2;
    let Ok(line) = std::str::from_utf8(&window[6..end]) else { return Said::Wrong };
    let mut words = line.split(' ');
    let is_four = match words.next() {
        // The specification requires that the rest of the line is ignored.
        Some("UNKNOWN") => return Said::Header { bytes, peer: None },
        Some("TCP4") => true,
        Some("TCP6") => false,
        _ => return Said::Wrong,
    };
    let mut address = || {
        let address: IpAddr = words.next()?.parse().ok()?;
        (address.is_ipv4() == is_four).then_some(address)
    };
    let (Some(source), Some(_)) = (address(), address()) else { return Said::Wrong };
    let mut port = || {
        let digits = words.next()?;
        let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
        digits.parse::<u16>().ok().filter(|_| is_plain)
    };
    let (Some(port), Some(_)) = (port(), port()) else { return Said::Wrong };
    if words.next().is_some() {
        return Said::Wrong;
    }
    Said::Header { bytes, peer: Some(Peer::Internet(source.to_canonical(), port)) }
}

/// Reads a header of version 2, which consists of a signature, the version and command, the family, a length, addresses
/// and additional fields (section 2.2).
fn binary(window: &[u8]) -> Said {
    let Some(&[command, family, high, low]) = window.get(12..16).and_then(|rest| rest.first_chunk()) else {
        return Said::NeedMore;
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    let bytes = 16 + length;
    if !matches!(command, 0x20 | 0x21) || bytes > HEADER_BYTES {
        return Said::Wrong;
    }
    let Some(rest) = window.get(16..bytes) else { return Said::NeedMore };
    let port = |at: usize| rest.get(at..at + 2).map(|two| u16::from_be_bytes([two[0], two[1]]));
    let peer = match (command, family) {
        // This is the proxy's own connection, such as a health check.
        (0x20, _) => None,
        (_, 0x11) => {
            let Some((source, port)) = rest.first_chunk::<4>().zip(port(8)) else { return Said::Wrong };
            if rest.len() < 12 {
                return Said::Wrong;
            }
            Some(Peer::Internet(Ipv4Addr::from(*source).into(), port))
        }
        (_, 0x21) => {
            let Some((source, port)) = rest.first_chunk::<16>().zip(port(32)) else { return Said::Wrong };
            if rest.len() < 36 {
                return Said::Wrong;
            }
            Some(Peer::Internet(Ipv6Addr::from(*source).to_canonical(), port))
        }
        // Unix sockets, datagrams and unknown families name no TCP client.
        _ => None,
    };
    Said::Header { bytes, peer }
}

impl Connection {
    /// Handles received bytes while the PROXY header is incomplete.
    #[cold]
    pub(super) fn received_proxied(
        &mut self,
        bytes: &[u8],
        worker: &mut WorkerContext<impl Service>,
        head: &mut Head,
        queue: &mut Queue,
    ) {
        // `unread` stays small here, because `read` refuses a header of more than `HEADER_BYTES`.
        let mut window = self.transport.unread.take();
        window.extend_from_slice(bytes);
        match read(&window) {
            Said::NeedMore => {
                self.transport.unread.put(window, false);
                if !self.recharge(worker) {
                    self.with_out(worker, queue, |connection, worker, out| connection.abort(worker, out));
                }
            }
            Said::Wrong => {
                tracing::debug!(peer = %self.transport.peer(), "a connection does not begin with a valid PROXY header");
                self.with_out(worker, queue, |connection, worker, out| connection.abort(worker, out));
            }
            Said::Header { bytes, peer } => {
                self.transport.restart();
                if let Some(peer) = peer {
                    if !worker.shared.admit_for(self.transport.peer(), peer) {
                        return self
                            .with_out(worker, queue, |connection, worker, out| connection.refuse_peer(worker, out));
                    }
                    self.transport.set_peer(peer);
                }
                if !worker.shared.config().http1 && !self.is_secure() {
                    self.speak_http2(worker, queue);
                }
                if window.len() > bytes {
                    self.received(&window[bytes..], worker, head, queue);
                }
            }
        }
    }

    /// Refuses a connection whose client has too many connections already. Answers 503 or, under TLS, resets the
    /// connection.
    fn refuse_peer(&mut self, worker: &mut WorkerContext<impl Service>, out: &mut Out<'_>) {
        if out.tls.is_some() {
            return self.abort(worker, out);
        }
        self.end_with(Abort::TooManyConnections, worker, out);
        if !self.transport.is_ending() {
            self.finish(worker, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn internet(address: &str, port: u16) -> Option<Peer> {
        Some(Peer::Internet(address.parse().expect("an address"), port))
    }

    /// Checks that `header` is read as a header that names `peer`, and that each shorter beginning of it needs more
    /// bytes.
    fn check(header: &[u8], peer: Option<Peer>) {
        let bytes = header.len();
        let with_more = [header, b"GET / HTTP/1.1\r\n"].concat();
        assert_eq!(read(&with_more), Said::Header { bytes, peer }, "{header:?}");
        for end in 0..bytes {
            assert_eq!(read(&header[..end]), Said::NeedMore, "{end} of {header:?}");
        }
    }

    fn version_two(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = (rest.len() as u16).to_be_bytes();
        [SIGNATURE, &[command, family][..], &length, rest].concat()
    }

    #[test]
    fn both_versions_say_whose_connection_it_is() {
        check(b"PROXY TCP4 192.0.2.1 198.51.100.1 4711 443\r\n", internet("192.0.2.1", 4711));
        check(b"PROXY TCP6 2001:db8::1 ::1 0 65535\r\n", internet("2001:db8::1", 0));
        // A proxy that listens on IPv4 and IPv6 may write IPv4 addresses like this. The peer must be the plain IPv4
        // address, because all mapped addresses share one /64.
        check(b"PROXY TCP6 ::ffff:192.0.2.1 ::1 1 2\r\n", internet("192.0.2.1", 1));
        check(b"PROXY UNKNOWN\r\n", None);
        check(b"PROXY UNKNOWN ffff::1 what ever\r\n", None);
        let four = [192, 0, 2, 1, 198, 51, 100, 1, 0x12, 0x67, 1, 187];
        check(&version_two(0x21, 0x11, &four), internet("192.0.2.1", 4711));
        check(&version_two(0x21, 0x11, &[&four[..], &[4, 0, 1, 9]].concat()), internet("192.0.2.1", 4711));
        let mut six = [0; 36];
        (six[0], six[1], six[15], six[33]) = (0x20, 1, 9, 80);
        check(&version_two(0x21, 0x21, &six), internet("2001::9", 80));
        six[..16].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1]);
        check(&version_two(0x21, 0x21, &six), internet("192.0.2.1", 80));
        check(&version_two(0x20, 0, &[]), None);
        check(&version_two(0x20, 0x11, &four), None);
        check(&version_two(0x21, 0x31, &[0; 216]), None);
    }

    #[test]
    fn anything_else_is_wrong() {
        for wrong in [
            &b"GET / HTTP/1.1\r\n\r\n"[..],
            b"PROXY TCP4 192.0.2.1 198.51.100.1 4711\r\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.1 4711 443 \r\n",
            b"PROXY TCP4 ::1 ::1 1 2\r\n",
            b"PROXY TCP6 192.0.2.1 ::1 1 2\r\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.1 04711 443\r\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.1 +1 443\r\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.1 65536 443\r\n",
            b"PROXY UDP4 192.0.2.1 198.51.100.1 1 2\r\n",
            b"PROXY\tTCP4",
            b"\r\n\r\n\0\r\nQUIT\r",
            b"\x16\x03\x01",
            &[b"PROXY UNKNOWN ".to_vec(), vec![b'x'; 100]].concat(),
            &version_two(0x11, 0x11, &[0; 12]),
            &version_two(0x22, 0x11, &[0; 12]),
            &version_two(0x21, 0x11, &[0; 11]),
            &version_two(0x21, 0x21, &[0; 35]),
            &version_two(0x21, 0x11, &[0; HEADER_BYTES - 15]),
        ] {
            assert_eq!(read(wrong), Said::Wrong, "{}", String::from_utf8_lossy(wrong));
        }
    }
}
