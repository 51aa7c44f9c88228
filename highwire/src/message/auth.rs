//! HTTP authentication: Basic (RFC 7617) and Bearer tokens (RFC 6750).

use crate::message::base64;
use crate::message::request::{FromRequest, OptionalFromRequest, Request};
use crate::{IntoResponse, Problem, Response};
use http::{HeaderValue, StatusCode, header};
use std::fmt;
use std::hint::black_box;

/// The realm in challenges. Set it with [`App::state`](crate::App::state); the default is the request's authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Realm(pub String);

/// An extractor of the name and password of Basic authentication. Responds with 401 and a challenge if they are missing
/// or malformed.
///
/// ```
/// use highwire::{App, Basic, Response, testing::Client};
///
/// let door = |basic: Basic| match basic.is("ada", "secret") {
///     true => Ok("come in"),
///     false => Err(basic.refuse()),
/// };
/// let mut client = Client::new(App::new().get("/door", door))?;
/// let answer = client.get("/door").send();
/// assert_eq!(answer.status(), 401);
/// assert_eq!(answer.header("www-authenticate"), "Basic realm=\"test\", charset=\"UTF-8\"");
/// assert_eq!(client.get("/door").header("authorization", "Basic YWRhOnNlY3JldA==").send().text(), "come in");
/// # Ok::<(), highwire::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Basic {
    /// The name, which has no colon.
    pub user: String,
    /// The password.
    pub password: String,
    realm: String,
}

/// Leaves out the password, so that it does not reach a log.
impl fmt::Debug for Basic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Basic").field("user", &self.user).finish_non_exhaustive()
    }
}

/// An extractor of the token of Bearer authentication. Responds with 401 and a challenge if it is missing or malformed.
///
/// ```
/// use highwire::{App, Bearer, testing::Client};
///
/// let door = |bearer: Bearer| if bearer.is("x1y2") { Ok("come in") } else { Err(bearer.refuse()) };
/// let mut client = Client::new(App::new().get("/door", door))?;
/// assert_eq!(client.get("/door").header("authorization", "Bearer x1y2").send().text(), "come in");
/// let answer = client.get("/door").header("authorization", "Bearer x1").send();
/// assert_eq!(answer.header("www-authenticate"), "Bearer realm=\"test\", error=\"invalid_token\"");
/// # Ok::<(), highwire::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Bearer {
    /// The token.
    pub token: String,
    realm: String,
}

/// Leaves out the token, so that it does not reach a log.
impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bearer").finish_non_exhaustive()
    }
}

impl Basic {
    /// Returns true if the name and the password equal `user` and `password`. The time of the comparison does not
    /// depend on how many characters are right.
    pub fn is(&self, user: &str, password: &str) -> bool {
        same(&self.user, user) & same(&self.password, password)
    }

    /// Returns the response to a wrong name or password, which is 401 with a challenge.
    pub fn refuse(&self) -> Response {
        refusal(&basic_challenge(&self.realm), "the name or the password is wrong")
    }
}

impl Bearer {
    /// Returns true if the request's token equals `token`. The time of the comparison does not depend on how many
    /// characters are right.
    pub fn is(&self, token: &str) -> bool {
        same(&self.token, token)
    }

    /// Returns the response to a wrong or expired token, which is 401 with `invalid_token`.
    pub fn refuse(&self) -> Response {
        refusal(&format!("{}, error=\"invalid_token\"", bearer_challenge(&self.realm)), "the token is not valid")
    }

    /// Returns the response to a valid token without the needed rights, which is 403 with `insufficient_scope`.
    pub fn forbid(&self) -> Response {
        let challenge = format!("{}, error=\"insufficient_scope\"", bearer_challenge(&self.realm));
        challenged(Problem::new(StatusCode::FORBIDDEN, "the token does not allow this"), &challenge)
    }
}

impl FromRequest for Basic {
    fn from_request(request: &mut Request<'_>) -> Result<Basic, Response> {
        let realm = realm(request);
        let found = credentials(request, "basic").and_then(|credentials| {
            let decoded = String::from_utf8(base64::decode(credentials)?).ok()?;
            let (user, password) = decoded.split_once(':')?;
            // The name and the password must not have control characters (RFC 7617 section 2).
            let fits = !decoded.chars().any(char::is_control);
            fits.then(|| (user.to_string(), password.to_string()))
        });
        match found {
            Some((user, password)) => Ok(Basic { user, password, realm }),
            None => Err(refusal(&basic_challenge(&realm), "this is for those who give a name and a password")),
        }
    }
}

impl FromRequest for Bearer {
    fn from_request(request: &mut Request<'_>) -> Result<Bearer, Response> {
        let realm = realm(request);
        let is_token = |token: &&str| {
            let characters = token.trim_end_matches('=');
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte);
            !characters.is_empty() && characters.bytes().all(fits)
        };
        match credentials(request, "bearer").filter(is_token) {
            Some(token) => Ok(Bearer { token: token.to_string(), realm }),
            None => Err(refusal(&bearer_challenge(&realm), "this is for those who have a token")),
        }
    }
}

/// `None` if the request has no credentials of this scheme.
impl OptionalFromRequest for Basic {
    fn from_request_optional(request: &mut Request<'_>) -> Result<Option<Basic>, Response> {
        authenticates_by(request, b"basic").then(|| Basic::from_request(request)).transpose()
    }
}

/// `None` if the request has no credentials of this scheme.
impl OptionalFromRequest for Bearer {
    fn from_request_optional(request: &mut Request<'_>) -> Result<Option<Bearer>, Response> {
        authenticates_by(request, b"bearer").then(|| Bearer::from_request(request)).transpose()
    }
}

/// Returns true if a request has credentials of a scheme. They may be malformed.
fn authenticates_by(request: &Request<'_>, scheme: &[u8]) -> bool {
    let mut fields = request.headers().filter(|(name, _)| name.eq_ignore_ascii_case("authorization"));
    fields.any(|(_, value)| {
        let known = value.split(|&byte| byte == b' ').next().unwrap_or_default();
        known.eq_ignore_ascii_case(scheme)
    })
}

/// Returns the credentials after the scheme in `Authorization`. If the request has more than one such field, returns
/// `None`, because two parties could use different ones.
fn credentials<'r>(request: &Request<'r>, scheme: &str) -> Option<&'r str> {
    let mut fields = request.headers().filter(|(name, _)| name.eq_ignore_ascii_case("authorization"));
    let (Some((_, value)), None) = (fields.next(), fields.next()) else { return None };
    let (known, rest) = std::str::from_utf8(value).ok()?.split_once(' ')?;
    known.eq_ignore_ascii_case(scheme).then(|| rest.trim_matches(' '))
}

fn realm(request: &Request<'_>) -> String {
    let realm = match request.values().get::<Realm>() {
        Some(realm) => realm.0.clone(),
        None => request.authority().to_string(),
    };
    // Escapes the realm for a quoted string in a header field.
    let mut quoted = String::with_capacity(realm.len());
    for character in realm.chars().filter(|character| !character.is_control()) {
        if matches!(character, '"' | '\\') {
            quoted.push('\\');
        }
        quoted.push(character);
    }
    quoted
}

fn basic_challenge(realm: &str) -> String {
    format!("Basic realm=\"{realm}\", charset=\"UTF-8\"")
}

fn bearer_challenge(realm: &str) -> String {
    format!("Bearer realm=\"{realm}\"")
}

fn refusal(challenge: &str, detail: &'static str) -> Response {
    challenged(Problem::new(StatusCode::UNAUTHORIZED, detail), challenge)
}

fn challenged(problem: Problem, challenge: &str) -> Response {
    let response = problem.into_response();
    match HeaderValue::from_bytes(challenge.as_bytes()) {
        Ok(value) => response.with_header(header::WWW_AUTHENTICATE, value),
        Err(_) => response,
    }
}

/// Compares two texts in a time that depends only on their lengths. The lengths are not secret, but the position of the
/// first difference is.
fn same(one: &str, other: &str) -> bool {
    let differ = one.bytes().zip(other.bytes()).fold(0, |differ, (one, other)| black_box(differ | (one ^ other)));
    one.len() == other.len() && differ == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_are_the_same() {
        for (one, other, expected) in
            [("", "", true), ("a", "a", true), ("a", "b", false), ("a", "aa", false), ("", "a", false)]
        {
            assert_eq!(same(one, other), expected, "{one:?} {other:?}");
        }
    }
}
