//! Addresses to listen on or to connect to.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

/// The most bytes of a unix socket's path: those of `sockaddr_un`, less the NUL behind it.
const MOST_PATH_BYTES: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// An address to listen on or to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A TCP address.
    Tcp(SocketAddr),
    /// The path of a unix socket.
    Unix(PathBuf),
    /// The number of a listening descriptor that the process has inherited.
    Inherited(i32),
}

impl Address {
    /// Parses `HOST:PORT`, `:PORT` (all addresses of the machine, IPv4 and IPv6), `unix:PATH` or `fd:NUMBER`. Looks a
    /// host name up, which may block, and prefers its IPv4 addresses.
    ///
    /// # Errors
    /// Returns an error with the reason if the text is not an address or the host name cannot be resolved.
    pub fn parse(text: &str) -> io::Result<Address> {
        let invalid =
            |why: &str| io::Error::new(io::ErrorKind::InvalidInput, format!("{text:?} is not an address: {why}"));
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.len() {
                0 => Err(invalid("the path is empty")),
                1..=MOST_PATH_BYTES => Ok(Address::Unix(path.into())),
                _ => Err(invalid(&format!("the path of a unix socket has at most {MOST_PATH_BYTES} bytes"))),
            };
        }
        if let Some((_, rest)) = text.split_once("://") {
            return Err(invalid(&format!("write it without its scheme, as {}", rest.trim_end_matches('/'))));
        }
        if text.contains([',', ' ', '\t', '/']) {
            return Err(invalid("one address is HOST:PORT without blanks, commas or a path"));
        }
        if let Some(number) = text.strip_prefix("fd:") {
            return match number.parse() {
                Ok(number) if number >= 0 => Ok(Address::Inherited(number)),
                _ => Err(invalid("a descriptor is a number of 0 or more")),
            };
        }
        if let Some(port) = text.strip_prefix("*:") {
            return Err(invalid(&format!("use :{port} for all addresses")));
        }
        if text.parse::<u16>().is_ok() {
            let why =
                format!("the host is missing; use :{text} for all addresses, 127.0.0.1:{text} for local clients only");
            return Err(invalid(&why));
        }
        if text.parse::<Ipv6Addr>().is_ok() {
            // The last group may be meant as the port.
            let with_port = text
                .rsplit_once(':')
                .filter(|(ip, port)| ip.parse::<Ipv6Addr>().is_ok() && port.parse::<u16>().is_ok_and(|port| port > 0));
            let meant = with_port.map_or_else(String::new, |(ip, port)| format!(", or in [{ip}]:{port}"));
            let why = format!("an IPv6 address must be in brackets before its port, as in [{text}]:8080{meant}");
            return Err(invalid(&why));
        }
        let Some((host, port)) = text.rsplit_once(':').filter(|_| !text.ends_with(']')) else {
            return Err(invalid(&format!("the port is missing; add it as in {text}:8080")));
        };
        let Ok(port) = port.parse::<u16>() else { return Err(invalid("the port is not a number from 0 to 65535")) };
        if host.is_empty() {
            return Ok(Address::Tcp(SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port)));
        }
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        if let Ok(ip) = bare.unwrap_or(host).parse::<IpAddr>() {
            return match (ip, bare) {
                (IpAddr::V6(_), None) => Err(invalid("an IPv6 address must be in brackets, as in [::1]:8080")),
                _ => Ok(Address::Tcp(SocketAddr::new(ip, port))),
            };
        }
        let found = (host, port).to_socket_addrs().map_err(|error| invalid(&format!("{host}: {error}")))?;
        let mut found: Vec<_> = found.collect();
        found.sort_by_key(SocketAddr::is_ipv6);
        found.first().map(|&address| Address::Tcp(address)).ok_or_else(|| invalid("the name has no address"))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => write!(f, "{address}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Inherited(number) => write!(f, "fd:{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (text, shown) in [
            ("127.0.0.1:80", "127.0.0.1:80"),
            ("[::1]:80", "[::1]:80"),
            (":80", "[::]:80"),
            ("unix:/tmp/x", "unix:/tmp/x"),
            ("fd:3", "fd:3"),
        ] {
            assert_eq!(Address::parse(text).expect(text).to_string(), shown);
        }
        for (text, why) in [
            ("", "the port is missing"),
            ("8080", "use :8080 for all addresses, 127.0.0.1:8080 for local clients only"),
            ("*:80", "use :80 for all addresses"),
            ("127.0.0.1", "the port is missing; add it as in 127.0.0.1:8080"),
            ("localhost", "the port is missing; add it as in localhost:8080"),
            ("127.0.0.1:", "the port is not a number"),
            ("[::1]", "the port is missing; add it as in [::1]:8080"),
            ("http://127.0.0.1:80/", "write it without its scheme, as 127.0.0.1:80"),
            ("127.0.0.1:80,127.0.0.1:81", "without blanks, commas or a path"),
            (" 127.0.0.1:80", "without blanks, commas or a path"),
            (&format!("unix:/{}", "x".repeat(MOST_PATH_BYTES)), "the path of a unix socket has at most"),
            ("127.0.0.1:99999", "the port is not a number from 0 to 65535"),
            ("99999", "the port is missing"),
            ("::1", "as in [::1]:8080"),
            ("::", "as in [::]:8080"),
            ("unix:", "the path is empty"),
            ("fd:x", "a descriptor is a number of 0 or more"),
            ("fd:-1", "a descriptor is a number of 0 or more"),
            ("a b:80", "a b"),
        ] {
            let error = Address::parse(text).expect_err(text).to_string();
            assert!(error.contains(&format!("{text:?} is not an address: ")) && error.contains(why), "{error}");
        }
    }

    #[test]
    fn an_ipv6_address_without_brackets_is_told_what_may_be_meant() {
        for (text, expected) in [
            ("::1", "in brackets before its port, as in [::1]:8080"),
            ("::1:80", "in brackets before its port, as in [::1:80]:8080, or in [::1]:80"),
            ("::1:ab", "in brackets before its port, as in [::1:ab]:8080"),
            ("::1:99999", "the port is not a number from 0 to 65535"),
        ] {
            let error = Address::parse(text).expect_err("there are no brackets").to_string();
            assert!(error.ends_with(expected), "{error}");
        }
    }
}
