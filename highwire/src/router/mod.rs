//! The router, which finds the route of a request by host, path template and method.
//!
//! A path is split at `/` before it is decoded, so that `%2F` is not a separator. In each segment an exact match takes
//! precedence over a parameter, and a parameter over a wildcard. The search backtracks: for `/users/me`, the route
//! `/users/me` wins over `/users/{id}`, but `/users/me/posts` still finds `/users/{id}/posts`.
//!
//! Routes without parameters are in a table by whole path, so that one look-up finds them.

mod params;
mod pattern;

pub(crate) use params::Captures;
pub use params::Params;
pub(crate) use pattern::Pattern;
pub use pattern::PatternError;

use highwire_proto::Method;
use params::decode_segment;
use pattern::Segment;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A route's number, in the order of registration.
pub(crate) type RouteId = u32;

/// The result of a look-up.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Route(RouteId),
    /// A GET route that answers HEAD; the response is sent without its body.
    HeadOfGet(RouteId),
    /// The allowed methods of a path that has routes, but none for this method. OPTIONS without a route gets this, too.
    Allowed(Allow),
    Nothing,
}

/// The methods of a path, for `Allow`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Allow {
    known: u16,
    others: Vec<Box<str>>,
    /// The route that passes the 405 or OPTIONS response through a nested app's middleware, if the path has one.
    pub(crate) missed: Option<RouteId>,
}

impl Allow {
    fn add(&mut self, methods: &Methods) {
        for (number, route) in methods.known.iter().enumerate() {
            if route.is_some() {
                self.known |= 1 << number;
            }
        }
        self.others.extend(methods.others.iter().map(|(name, _)| name.clone()));
        self.missed = self.missed.or(methods.missed);
    }

    /// Returns the value of `Allow`, which lists the methods that were registered by name, HEAD if there is GET, and
    /// always OPTIONS.
    pub(crate) fn value(&self) -> String {
        let has = |method: Method| self.known & 1 << method as u16 != 0;
        let named = [
            (Method::Get, "GET"),
            (Method::Head, "HEAD"),
            (Method::Post, "POST"),
            (Method::Put, "PUT"),
            (Method::Delete, "DELETE"),
            (Method::Connect, "CONNECT"),
            (Method::Options, "OPTIONS"),
            (Method::Trace, "TRACE"),
            (Method::Patch, "PATCH"),
        ];
        let offered = |method| match method {
            Method::Head => has(Method::Head) || has(Method::Get),
            Method::Options => true,
            method => has(method),
        };
        let known = named.into_iter().filter(|&(method, _)| offered(method)).map(|(_, name)| name);
        known.chain(self.others.iter().map(|name| &**name)).collect::<Vec<_>>().join(", ")
    }
}

/// The routes of one path, by method.
#[derive(Debug, Default)]
struct Methods {
    known: [Option<RouteId>; 9],
    others: Vec<(Box<str>, RouteId)>,
    /// A route for every method that has none of its own.
    any: Option<RouteId>,
    /// See [`Allow::missed`].
    missed: Option<RouteId>,
}

impl Methods {
    fn is_empty(&self) -> bool {
        self.known.iter().all(Option::is_none) && self.others.is_empty() && self.any.is_none()
    }

    #[inline]
    fn find(&self, method: Method, token: &[u8]) -> Option<Found> {
        let own = match method {
            Method::Extension => self.others.iter().find(|(name, _)| name.as_bytes() == token).map(|&(_, route)| route),
            method => self.known[method as usize],
        };
        match own.or(self.any) {
            Some(route) => Some(Found::Route(route)),
            None if method == Method::Head => self.known[Method::Get as usize].map(Found::HeadOfGet),
            None => None,
        }
    }
}

/// A node of the tree, which stands for one segment.
#[derive(Debug, Default)]
struct Node {
    exact: HashMap<Box<[u8]>, Node, PathHash>,
    parameter: Option<Box<Node>>,
    wildcard: Option<Box<Methods>>,
    here: Methods,
}

/// The routes of one host, or those for every host.
#[derive(Debug, Default)]
struct Tree {
    whole: HashMap<Box<[u8]>, Methods, PathHash>,
    root: Node,
}

/// All routes of an app.
#[derive(Debug, Default)]
pub(crate) struct Router {
    everywhere: Tree,
    /// The trees of single hosts, by host name in lower case, without the port.
    hosts: Vec<(Box<str>, Tree)>,
    /// Methods that have a route and are not named in [`Method`].
    extensions: Vec<Box<str>>,
    takes_any: bool,
    takes_connect: bool,
}

/// The methods that a registered route answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MethodFilter {
    One(http::Method),
    Any,
}

impl std::fmt::Display for MethodFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MethodFilter::One(method) => method.fmt(f),
            MethodFilter::Any => f.write_str("(any method)"),
        }
    }
}

impl Router {
    /// Registers a route. Returns an error if the pattern already has a route for the method.
    pub(crate) fn insert(
        &mut self,
        host: Option<&str>,
        filter: &MethodFilter,
        pattern: &Pattern,
        route: RouteId,
    ) -> Result<(), PatternError> {
        let methods = self.tree_at(host).methods_at(pattern);
        let place = match filter {
            MethodFilter::Any => &mut methods.any,
            MethodFilter::One(method) => match Method::from_token(method.as_str().as_bytes()) {
                Method::Extension => {
                    let name: Box<str> = method.as_str().into();
                    if methods.others.iter().any(|(other, _)| *other == name) {
                        return Err(PatternError::Repeated(pattern.to_string()));
                    }
                    methods.others.push((name.clone(), route));
                    self.extensions.push(name);
                    return Ok(());
                }
                method => &mut methods.known[method as usize],
            },
        };
        if place.replace(route).is_some() {
            return Err(PatternError::Repeated(pattern.to_string()));
        }
        self.takes_any |= *filter == MethodFilter::Any;
        self.takes_connect |= *filter == MethodFilter::One(http::Method::CONNECT);
        Ok(())
    }

    /// Registers the route for 405 and OPTIONS responses at a pattern, unless the pattern already has one.
    pub(crate) fn insert_missed(&mut self, host: Option<&str>, pattern: &Pattern, route: RouteId) {
        self.tree_at(host).methods_at(pattern).missed.get_or_insert(route);
    }

    fn tree_at(&mut self, host: Option<&str>) -> &mut Tree {
        let Some(host) = host else { return &mut self.everywhere };
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase().into_boxed_str();
        let at = self.hosts.iter().position(|(name, _)| *name == host).unwrap_or_else(|| {
            self.hosts.push((host, Tree::default()));
            self.hosts.len() - 1
        });
        &mut self.hosts[at].1
    }

    /// Returns false if no route answers the method, and the method is CONNECT or is not named in [`Method`]. Without a
    /// fallback, the response is then a 501.
    pub(crate) fn knows(&self, method: Method, token: &[u8]) -> bool {
        match method {
            // Without a route for CONNECT the server makes no tunnels, and CONNECT is a 501 even if the path has other
            // routes.
            Method::Connect => self.takes_any || self.takes_connect,
            Method::Extension => self.takes_any || self.extensions.iter().any(|name| name.as_bytes() == token),
            _ => true,
        }
    }

    /// Looks up a path without parameters, spelled as it was registered. This is the fast path of apps without routes
    /// for single hosts. If it returns `None`, another look-up may still find a route.
    #[inline]
    pub(crate) fn find_whole(&self, method: Method, path: &[u8]) -> Option<RouteId> {
        if !self.hosts.is_empty() || method == Method::Extension {
            return None;
        }
        self.everywhere.whole.get(path)?.known[method as usize]
    }

    /// Finds the route of a path whose dot segments are resolved. Stores the positions of the path's parameters in
    /// `captures`.
    #[inline]
    pub(crate) fn find(
        &self,
        host: &[u8],
        method: Method,
        token: &[u8],
        path: &[u8],
        captures: &mut Captures,
    ) -> Found {
        captures.clear();
        let mut allow = Allow::default();
        if !self.hosts.is_empty()
            && let Some(tree) = self.tree_of(host)
        {
            match tree.find(method, token, path, captures, &mut allow) {
                Some(found) => return found,
                None => captures.clear(),
            }
        }
        match self.everywhere.find(method, token, path, captures, &mut allow) {
            Some(found) => found,
            None if allow == Allow::default() => Found::Nothing,
            None => Found::Allowed(allow),
        }
    }

    fn tree_of(&self, host: &[u8]) -> Option<&Tree> {
        let name = match host.iter().rposition(|&byte| byte == b':') {
            Some(colon) if !host.ends_with(b"]") => &host[..colon],
            _ => host,
        };
        // `example.com.` is the same name in its absolute form (RFC 1034 section 3.1).
        let name = name.strip_suffix(b".").unwrap_or(name);
        self.hosts.iter().find(|(known, _)| known.as_bytes().eq_ignore_ascii_case(name)).map(|(_, tree)| tree)
    }

    /// Returns the methods of all routes, for `OPTIONS *`.
    pub(crate) fn all_methods(&self) -> Allow {
        fn add(node: &Node, allow: &mut Allow) {
            allow.add(&node.here);
            node.wildcard.iter().for_each(|methods| allow.add(methods));
            node.exact.values().chain(node.parameter.as_deref()).for_each(|node| add(node, allow));
        }
        let mut allow = Allow::default();
        for tree in std::iter::once(&self.everywhere).chain(self.hosts.iter().map(|(_, tree)| tree)) {
            tree.whole.values().for_each(|methods| allow.add(methods));
            add(&tree.root, &mut allow);
        }
        allow.others.sort();
        allow.others.dedup();
        allow
    }
}

impl Tree {
    fn methods_at(&mut self, pattern: &Pattern) -> &mut Methods {
        if let Some(path) = pattern.whole() {
            return self.whole.entry(path.into()).or_default();
        }
        let mut node = &mut self.root;
        for segment in pattern.segments() {
            node = match segment {
                Segment::Exact(text) => node.exact.entry(text.as_bytes().into()).or_default(),
                Segment::Parameter(_) => node.parameter.get_or_insert_default(),
                Segment::Wildcard(_) => return node.wildcard.get_or_insert_default(),
            };
        }
        &mut node.here
    }

    #[inline]
    fn find(
        &self,
        method: Method,
        token: &[u8],
        path: &[u8],
        captures: &mut Captures,
        allow: &mut Allow,
    ) -> Option<Found> {
        if let Some(methods) = self.whole.get(path) {
            if let Some(found) = methods.find(method, token) {
                return Some(found);
            }
            allow.add(methods);
        }
        self.find_slowly(method, token, path, captures, allow)
    }

    #[inline(never)]
    fn find_slowly(
        &self,
        method: Method,
        token: &[u8],
        path: &[u8],
        captures: &mut Captures,
        allow: &mut Allow,
    ) -> Option<Found> {
        if path.contains(&b'%') {
            // The path may be an encoded spelling of a path without parameters, such as `/%68ello`.
            let mut decoded = Vec::with_capacity(path.len());
            for segment in path.split(|&byte| byte == b'/').skip(1) {
                decoded.push(b'/');
                let segment = decode_segment(segment);
                if segment.contains(&b'/') {
                    decoded.clear();
                    break;
                }
                decoded.extend_from_slice(&segment);
            }
            if let Some(methods) = self.whole.get(&*decoded) {
                if let Some(found) = methods.find(method, token) {
                    return Some(found);
                }
                allow.add(methods);
            }
        }
        self.root.find(method, token, path, 1, captures, allow)
    }
}

impl Node {
    /// Finds the route for the rest of a path, which begins at `at`, after a slash.
    fn find(
        &self,
        method: Method,
        token: &[u8],
        path: &[u8],
        at: usize,
        captures: &mut Captures,
        allow: &mut Allow,
    ) -> Option<Found> {
        if at > path.len() {
            let found = self.here.find(method, token);
            if found.is_none() && !self.here.is_empty() {
                allow.add(&self.here);
            }
            return found;
        }
        let end = path[at..].iter().position(|&byte| byte == b'/').map_or(path.len(), |length| at + length);
        let segment = &path[at..end];
        let decoded = decode_segment(segment);
        if let Some(node) = self.exact.get(&*decoded)
            && let Some(found) = node.find(method, token, path, end + 1, captures, allow)
        {
            return Some(found);
        }
        if let Some(node) = &self.parameter
            && !segment.is_empty()
        {
            captures.push(at, end);
            if let Some(found) = node.find(method, token, path, end + 1, captures, allow) {
                return Some(found);
            }
            captures.pop();
        }
        if let Some(methods) = &self.wildcard {
            if let Some(found) = methods.find(method, token) {
                captures.push(at, path.len());
                return Some(found);
            }
            allow.add(methods);
        }
        None
    }
}

/// A hash without a seed, which takes eight bytes per step. Only the app inserts keys. A client's paths are looked up
/// but never stored, so a client cannot add keys that collide.
#[derive(Default)]
struct PathHasher {
    state: u64,
}

type PathHash = BuildHasherDefault<PathHasher>;

impl Hasher for PathHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut mix = |word: u64| self.state = (self.state.rotate_left(23) ^ word).wrapping_mul(FACTOR);
        let word =
            |at: usize| bytes.get(at..at + 8).and_then(|eight| eight.try_into().ok()).map_or(0, u64::from_le_bytes);
        let half =
            |at: usize| bytes.get(at..at + 4).and_then(|four| four.try_into().ok()).map_or(0, u32::from_le_bytes);
        match bytes.len() {
            // The last word overlaps the previous one if the length is not a multiple of 8, so that no byte is left
            // over.
            length @ 8.. => {
                (0..length - 8).step_by(8).for_each(|at| mix(word(at)));
                mix(word(length - 8) ^ length as u64);
            }
            length @ 4..8 => mix(u64::from(half(0)) | u64::from(half(length - 4)) << 32),
            _ => mix(bytes.iter().fold(bytes.len() as u64, |word, &byte| word << 8 | u64::from(byte))),
        }
    }

    #[inline]
    fn write_usize(&mut self, _: usize) {
        // Ignores the length prefix of slices, because `write` mixes in the length itself, except for slices of 4 to 7
        // bytes.
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.state ^ self.state >> 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn router(patterns: &[&str]) -> Router {
        let mut router = Router::default();
        for (number, text) in patterns.iter().enumerate() {
            let (method, text) = text.split_once(' ').expect("METHOD PATTERN");
            let filter = match method {
                "*" => MethodFilter::Any,
                method => MethodFilter::One(method.parse().expect("a method")),
            };
            let pattern = Pattern::parse(text).expect("a pattern");
            router.insert(None, &filter, &pattern, number as RouteId).expect("a new route");
        }
        router
    }

    fn check(patterns: &[&str], request: &str, expected: Result<(RouteId, &[&str]), &str>) {
        let router = router(patterns);
        let (token, path) = request.split_once(' ').expect("METHOD PATH");
        let method = Method::from_token(token.as_bytes());
        let mut captures = Captures::default();
        let found = router.find(b"", method, token.as_bytes(), path.as_bytes(), &mut captures);
        let values: Vec<_> = captures.values(path.as_bytes()).collect();
        let found = match found {
            Found::Route(route) | Found::HeadOfGet(route) => Ok((route, values)),
            Found::Allowed(allow) => Err(allow.value()),
            Found::Nothing => Err("not found".to_string()),
        };
        let expected = expected
            .map(|(route, values)| (route, values.iter().map(|value| (*value).to_string()).collect::<Vec<_>>()));
        assert_eq!(found, expected.map_err(str::to_string), "{request} in {patterns:?}");
    }

    #[test]
    fn exact_before_parameter_before_wildcard_with_backtracking() {
        let routes =
            ["GET /users/me", "GET /users/{id}", "GET /users/{id}/posts", "GET /{*rest}", "GET /users/me/{x}/end"];
        check(&routes, "GET /users/me", Ok((0, &[])));
        check(&routes, "GET /users/you", Ok((1, &["you"])));
        check(&routes, "GET /users/me/posts", Ok((2, &["me"])));
        check(&routes, "GET /users/me/a/end", Ok((4, &["a"])));
        check(&routes, "GET /users/me/a/other", Ok((3, &["users/me/a/other"])));
        check(&routes, "GET /", Ok((3, &[""])));
        check(&routes, "GET /users/", Ok((3, &["users/"])));
    }

    #[test]
    fn segments_are_split_before_they_are_decoded() {
        let routes = ["GET /hello", "GET /a/{x}", "GET /a/b/c", "GET /f/{*rest}"];
        check(&routes, "GET /%68ello", Ok((0, &[])));
        check(&routes, "GET /a/b%2Fc", Ok((1, &["b/c"])));
        check(&routes, "GET /a%2Fb/c", Err("not found"));
        check(&routes, "GET /a/b/%63", Ok((2, &[])));
        check(&routes, "GET /f/a%20b/c", Ok((3, &["a b/c"])));
    }

    #[test]
    fn methods() {
        let routes = ["GET /a", "POST /a", "PURGE /a", "* /b", "DELETE /c/{x}", "GET /c/{x}"];
        check(&routes, "HEAD /a", Ok((0, &[])));
        check(&routes, "PURGE /a", Ok((2, &[])));
        check(&routes, "PUT /a", Err("GET, HEAD, POST, OPTIONS, PURGE"));
        check(&routes, "OPTIONS /a", Err("GET, HEAD, POST, OPTIONS, PURGE"));
        check(&routes, "BREW /b", Ok((3, &[])));
        check(&routes, "PUT /c/1", Err("GET, HEAD, DELETE, OPTIONS"));
        check(&routes, "GET /d", Err("not found"));
    }

    #[test]
    fn hosts_go_before_the_rest() {
        let mut router = router(&["GET /x"]);
        let pattern = Pattern::parse("/x").expect("a pattern");
        router.insert(Some("Api.Example"), &MethodFilter::Any, &pattern, 7).expect("a new route");
        let mut captures = Captures::default();
        router.insert(Some("whole.example."), &MethodFilter::Any, &pattern, 8).expect("a new route");
        for (host, route) in [
            ("api.example", 7),
            ("API.example:8080", 7),
            ("api.example.", 7),
            ("api.example.:8080", 7),
            ("whole.example", 8),
            ("whole.example.", 8),
            ("api.example..", 0),
            ("example", 0),
            (".", 0),
            ("", 0),
        ] {
            let found = router.find(host.as_bytes(), Method::Get, b"GET", b"/x", &mut captures);
            assert_eq!(found, Found::Route(route), "{host}");
        }
    }

    #[test]
    fn a_route_registered_twice_is_an_error() {
        let mut router = router(&["GET /x/{a}"]);
        let pattern = Pattern::parse("/x/{b}").expect("a pattern");
        let filter = MethodFilter::One(http::Method::GET);
        assert!(matches!(router.insert(None, &filter, &pattern, 1), Err(PatternError::Repeated(_))));
    }
}
