//! Where requests go, and what they are: the URL, the addresses, and the request's bytes.

use bytes::Bytes;
use highwire_io::Address;
use highwire_proto::h1::{self, FieldWriter};
use highwire_proto::{Length, Role, Version};
use std::net::ToSocketAddrs;

/// The version of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Http {
    /// HTTP/1.0, with persistent connections if the server agrees.
    #[value(name = "1.0")]
    One0,
    /// HTTP/1.1.
    #[value(name = "1.1")]
    One1,
    /// HTTP/2; without TLS, the server must expect it (prior knowledge).
    #[value(name = "2")]
    Two,
}

/// What every request has.
#[derive(Clone, Debug)]
pub struct Target {
    /// The URL as given, for reports.
    pub url: String,
    /// True for `https:`.
    pub is_secure: bool,
    /// The name for TLS.
    pub name: String,
    /// The addresses of the server. Connections use them in turn.
    pub addresses: Vec<Address>,
    /// The value of `Host` and `:authority`.
    pub authority: String,
    /// The path and the query.
    pub path: String,
    /// The method.
    pub method: String,
    /// The fields beside `Host`.
    pub fields: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
}

/// The parts of a target that options set.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    /// The method; GET, or POST if there is a body.
    pub method: Option<String>,
    /// The fields.
    pub fields: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
    /// HOST:PORT to connect to, in place of the URL's.
    pub connect_to: Option<String>,
    /// The path of a unix socket to connect to.
    pub unix: Option<String>,
    /// The name for TLS, in place of the URL's.
    pub sni: Option<String>,
}

impl Target {
    /// Reads the URL, and looks its name up.
    ///
    /// # Errors
    /// Returns a text that says what is wrong with which part.
    pub fn new(text: &str, parts: Parts) -> Result<Target, String> {
        let with_scheme = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let url = url::Url::parse(&with_scheme).map_err(|error| format!("{text}: {error}"))?;
        let is_secure = match url.scheme() {
            "http" => false,
            "https" => true,
            other => return Err(format!("{text}: the scheme {other:?} is none of http and https")),
        };
        let host = url.host_str().ok_or_else(|| format!("{text}: the URL has no host"))?;
        let port = url.port_or_known_default().unwrap_or(80);
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let addresses = match (&parts.unix, &parts.connect_to) {
            (Some(path), _) => {
                vec![Address::parse(&format!("unix:{path}")).map_err(|error| format!("{path}: {error}"))?]
            }
            (None, Some(to)) => resolve(to, to)?,
            (None, None) => resolve((bare, port), &format!("{bare}, port {port}"))?,
        };
        let mut fields = parts.fields;
        let named = |fields: &[(String, String)], wanted: &str| {
            fields.iter().position(|(name, _)| name.eq_ignore_ascii_case(wanted))
        };
        let authority = match named(&fields, "host") {
            Some(at) => fields.remove(at).1,
            None => url.port().map_or(host.to_owned(), |port| format!("{host}:{port}")),
        };
        if named(&fields, "user-agent").is_none() {
            fields.push(("User-Agent".into(), concat!("highwire-bench/", env!("CARGO_PKG_VERSION")).into()));
        }
        let path = url.query().map_or(url.path().to_owned(), |query| format!("{}?{query}", url.path()));
        let method = parts.method.unwrap_or_else(|| if parts.body.is_empty() { "GET" } else { "POST" }.into());
        Ok(Target {
            url: with_scheme,
            is_secure,
            name: parts.sni.unwrap_or_else(|| bare.to_owned()),
            addresses,
            authority,
            path,
            method,
            fields,
            body: parts.body,
        })
    }

    /// True if all requests stay on this machine.
    pub fn is_local(&self) -> bool {
        self.addresses.iter().all(|address| match address {
            Address::Tcp(address) => address.ip().is_loopback(),
            _ => true,
        })
    }

    /// Returns the head of a request of HTTP/1, and the state of a connection that has sent it. The body follows the head.
    ///
    /// # Errors
    /// Returns a text if the method or a field is not allowed.
    pub fn http1(&self, version: Version, keep_alive: bool) -> Result<(Vec<u8>, h1::Connection), String> {
        let (mut connection, mut out) = (h1::Connection::new(Role::Client), Vec::new());
        let length = if self.body.is_empty() { Length::Empty } else { Length::Exact(self.body.len() as u64) };
        let (method, target) = (self.method.as_str(), self.path.as_str());
        let request = h1::Request { method, target, version, length, keep_alive, upgrade: false };
        let mistake = |error| format!("the request cannot be sent, because of its method, path or fields: {error:?}");
        connection.send_request(request, &mut out, |writer| self.write_fields(writer)).map_err(mistake)?;
        let mut body = Vec::new();
        connection.send_data(&self.body, &mut body).map_err(mistake)?;
        connection.send_end(&mut body, |_| ()).map_err(mistake)?;
        Ok((out, connection))
    }

    /// Returns the fields as HTTP/2 sends them: with names in lower case, and without those that describe a connection.
    pub fn http2_fields(&self) -> Vec<(String, String)> {
        let of_connection = ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];
        let lower = self.fields.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone()));
        lower.filter(|(name, _)| !of_connection.contains(&name.as_str())).collect()
    }

    fn write_fields(&self, writer: &mut FieldWriter<'_>) {
        writer.field(b"Host", self.authority.as_bytes());
        self.fields.iter().for_each(|(name, value)| writer.field(name.as_bytes(), value.as_bytes()));
    }
}

fn resolve(to: impl ToSocketAddrs, text: &str) -> Result<Vec<Address>, String> {
    let mut found: Vec<_> = to.to_socket_addrs().map_err(|error| format!("{text}: {error}"))?.collect();
    // Loopback often has two addresses, of which the server listens on one. One family keeps the run comparable.
    if found.iter().any(|address| address.is_ipv4()) {
        found.retain(|address| address.is_ipv4());
    }
    if found.is_empty() {
        Err(format!("{text}: the name has no address"))
    } else {
        Ok(found.into_iter().map(Address::Tcp).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_becomes_a_request() {
        let fields = vec![("Accept".to_owned(), "*/*".to_owned()), ("host".to_owned(), "a.example".to_owned())];
        let parts = Parts { fields, body: Bytes::from_static(b"body"), ..Parts::default() };
        let target = Target::new("127.0.0.1:81/x?y=1", parts).expect("a target");
        assert_eq!((target.method.as_str(), target.is_secure, target.is_local()), ("POST", false, true));
        let (head, _) = target.http1(Version::Http11, true).expect("a request");
        let head = String::from_utf8(head).expect("text");
        let agent = concat!("User-Agent: highwire-bench/", env!("CARGO_PKG_VERSION"));
        let expected =
            format!("POST /x?y=1 HTTP/1.1\r\nHost: a.example\r\nAccept: */*\r\n{agent}\r\nContent-Length: 4\r\n\r\n");
        assert_eq!(head, expected);
    }

    #[test]
    fn mistakes_are_named() {
        for (url, part) in [("ftp://a/", "ftp"), ("http://", "host"), ("http://127.0.0.1:99999/", "port")] {
            let error = Target::new(url, Parts::default()).expect_err(url);
            assert!(error.contains(part), "{error}");
        }
        let parts = Parts { method: Some("A B".into()), ..Parts::default() };
        let target = Target::new("http://127.0.0.1/", parts).expect("a target");
        assert!(target.http1(Version::Http11, true).is_err());
    }
}
