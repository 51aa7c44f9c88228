//! What is known of the sender of a request.

use std::net::IpAddr;

/// Who sent the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// A process on this machine, through a unix socket.
    Local,
    /// An internet address and port.
    Internet(IpAddr, u16),
}

impl From<highwire_io::Peer> for Peer {
    fn from(peer: highwire_io::Peer) -> Peer {
        match peer {
            highwire_io::Peer::Local => Peer::Local,
            highwire_io::Peer::Internet(ip, port) => Peer::Internet(ip, port),
        }
    }
}

impl From<Peer> for highwire_io::Peer {
    fn from(peer: Peer) -> highwire_io::Peer {
        match peer {
            Peer::Local => highwire_io::Peer::Local,
            Peer::Internet(ip, port) => highwire_io::Peer::Internet(ip, port),
        }
    }
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Peer::Local => f.write_str("unix"),
            Peer::Internet(ip, port) => std::net::SocketAddr::new(*ip, *port).fmt(f),
        }
    }
}

/// The TLS of the connection that a request came by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tls {
    /// The version: `TLSv1.3`.
    pub version: &'static str,
    /// The cipher suite: `TLS13_AES_256_GCM_SHA384`.
    pub cipher: &'static str,
    /// The name that the client asked for (SNI), in lower case.
    pub server_name: Option<String>,
    /// The protocol that both sides agreed on (ALPN): `h2`, `http/1.1`.
    pub alpn: Option<String>,
    /// The session goes on with an earlier one.
    pub resumed: bool,
    /// The certificate that the client has proved, where [it was asked](crate::tls::ClientAuth).
    pub client: Option<ClientCertificate>,
}

/// Who a client is, by its certificate: an authority that the server trusts has vouched for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientCertificate {
    /// The subject, as RFC 4514 writes it: `CN=alice,O=Example`.
    pub subject: Option<String>,
    /// The names that it is for: DNS names, addresses, URIs, mail addresses.
    pub names: Vec<String>,
    /// All of it, in DER.
    pub der: Vec<u8>,
}
