//! The notation of Haywire's programs: settings, routes, methods, status lines.

use crate::log::complain;
use highwire::{Request, StatusCode};

/// The settings of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) address: String,
    pub(super) port: u32,
    pub(super) threads: u32,
    pub(super) balancer: String,
    /// 0 is the default.
    pub(super) backlog: u32,
    /// The longest body. 0 is the default.
    pub(super) most_bytes: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        let (address, balancer) = ("0.0.0.0".to_string(), String::new());
        Settings { address, port: 8000, threads: 0, balancer, backlog: 0, most_bytes: 0 }
    }
}

impl Settings {
    /// Reads `key = value` lines. Sections, comments (`;`, `#`), `http_` before a key and unknown keys are ignored.
    pub(super) fn parse(text: &str) -> Settings {
        let mut settings = Settings::default();
        for line in text.lines() {
            let line = line.split([';', '#']).next().unwrap_or_default();
            let Some((key, value)) = line.split_once(['=', ':']) else { continue };
            let (key, value) = (key.trim(), value.trim());
            let number = || {
                value.parse().unwrap_or_else(|_| {
                    complain("haywire", format_args!("{key}: {value:?} is not a number; using 0"));
                    0
                })
            };
            match key.strip_prefix("http_").unwrap_or(key) {
                "listen_address" => settings.address = value.to_string(),
                "listen_port" => settings.port = number(),
                "thread_count" => settings.threads = number(),
                "balancer" => settings.balancer = value.to_string(),
                "listen_backlog" => settings.backlog = number(),
                "max_request_size" => settings.most_bytes = number(),
                _ => {}
            }
        }
        settings
    }
}

/// Returns the pattern of a route for our router: segments that begin with `*` are parameters.
pub(super) fn pattern(route: &str) -> String {
    let segments = route.split('?').next().unwrap_or_default().split('/').filter(|segment| !segment.is_empty());
    let pattern: String = segments
        .enumerate()
        .map(|(at, segment)| if segment.starts_with('*') { format!("/{{any{at}}}") } else { format!("/{segment}") })
        .collect();
    if pattern.is_empty() { "/".to_string() } else { pattern }
}

/// The methods by their numbers.
const METHODS: &[&str] = &[
    "DELETE",
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "CONNECT",
    "OPTIONS",
    "TRACE",
    "COPY",
    "LOCK",
    "MKCOL",
    "MOVE",
    "PROPFIND",
    "PROPPATCH",
    "SEARCH",
    "UNLOCK",
    "REPORT",
    "MKACTIVITY",
    "CHECKOUT",
    "MERGE",
    "M-SEARCH",
    "NOTIFY",
    "SUBSCRIBE",
    "UNSUBSCRIBE",
    "PATCH",
    "PURGE",
    "MKCALENDAR",
];

/// The parts of a request's head that are numbers.
pub(super) struct Head {
    pub(super) major: u16,
    pub(super) minor: u16,
    pub(super) method: u8,
    pub(super) keeps_alive: bool,
}

/// Returns the numbers of a request's head. The number of an unknown method is that of GET.
pub(super) fn head(request: &Request<'_>) -> Head {
    let (major, minor) = match request.version() {
        http::Version::HTTP_10 => (1, 0),
        http::Version::HTTP_2 => (2, 0),
        _ => (1, 1),
    };
    let has = |token: &str| {
        let value = request.header("connection").unwrap_or_default();
        value.split(|&byte| byte == b',').any(|part| part.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
    };
    let keeps_alive = if minor == 0 && major == 1 { has("keep-alive") } else { !has("close") };
    let method = METHODS.iter().position(|known| *known == request.method()).unwrap_or(1);
    Head { major, minor, method: method as u8, keeps_alive }
}

/// Returns the status of a line such as `200 OK`, and its reason if it is not the usual one. An invalid line becomes
/// 500.
pub(super) fn status(line: &[u8]) -> (StatusCode, Option<String>) {
    let line = String::from_utf8_lossy(line);
    let line = line.trim_end_matches('\0').trim();
    let (code, reason) = line.split_once(' ').unwrap_or((line, ""));
    let code = code.parse().ok().filter(|code| (200..=999).contains(code));
    let Some(status) = code.and_then(|code| StatusCode::from_u16(code).ok()) else {
        return (StatusCode::INTERNAL_SERVER_ERROR, None);
    };
    // The engine knows the usual reasons, and writes them faster.
    let is_usual = reason.is_empty() || (code_has_own(status) && status.canonical_reason() == Some(reason));
    (status, (!is_usual).then(|| reason.to_string()))
}

/// Returns true for statuses whose reasons are the same everywhere.
fn code_has_own(status: StatusCode) -> bool {
    matches!(status.as_u16(), 200 | 201 | 204 | 301 | 304 | 400 | 401 | 403 | 404 | 405 | 500 | 503)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_of_a_file_counts() {
        let text = "; comment\n[http]\nlisten_address = 127.0.0.1\nlisten_port=9000\nthread_count = 2 # two\n\
                    balancer = reuseport\nparser = http_parser\ntcp_nodelay = true\nlisten_backlog = 7\n\
                    max_request_size = 100\n";
        let expected = Settings {
            address: "127.0.0.1".into(),
            port: 9000,
            threads: 2,
            balancer: "reuseport".into(),
            backlog: 7,
            most_bytes: 100,
        };
        assert_eq!(Settings::parse(text), expected);
        assert_eq!(Settings::parse("nonsense\n[x]\n"), Settings::default());
    }

    #[test]
    fn routes_become_patterns() {
        for (route, expected) in [
            ("/", "/"),
            ("", "/"),
            ("/a/b/", "/a/b"),
            ("/w/*", "/w/{any1}"),
            ("/*x/b", "/{any0}/b"),
            ("//a//b", "/a/b"),
            ("/a?b", "/a"),
        ] {
            assert_eq!(pattern(route), expected, "{route}");
        }
    }

    #[test]
    fn status_lines_are_read() {
        for (line, code, reason) in [
            ("200 OK", 200, None),
            ("404 Not Found\0", 404, None),
            ("302 Moved Temporarily", 302, Some("Moved Temporarily")),
            ("418 I'm a teapot", 418, Some("I'm a teapot")),
            ("299", 299, None),
            ("", 500, None),
            ("abc", 500, None),
            ("100 Continue", 500, None),
        ] {
            let (status, its) = status(line.as_bytes());
            assert_eq!((status.as_u16(), its.as_deref()), (code, reason), "{line}");
        }
    }
}
