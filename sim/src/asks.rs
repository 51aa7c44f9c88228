//! Turns the behaviour cases into requests of the client, sends them, and compares the responses.
//!
//! The client does not send what two parties could read differently, and it writes the framing of messages itself. So a
//! case is left out if it is about such bytes; [`Reason`] has the reasons. A request that the server must refuse may be
//! refused by the client at the call.

use crate::answers::{Answer, compare, compare_interim};
use crate::corpus::Expected;
use crate::frames::{Field, Part, Request};
use crate::tls::{Clients, Http, Resumption, Version};
use crate::translate::Outcome;
use bytes::Bytes;
use highwire::client::{self, Body, Client, Redirects};
use highwire::{HeaderName, HeaderValue, Method};
use std::cell::RefCell;
use std::rc::Rc;

/// The reason why a request cannot be made by the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// A pseudo-field is missing, repeated or misplaced.
    Pseudo,
    /// The target is not the path of a URL, or its URL is written otherwise.
    Target,
    /// The framing of the body: an announced length that is wrong, or a body that does not end.
    Framing,
    /// A name in upper case, which the client writes in lower case.
    Name,
    /// A value has white space around it, which the client leaves out.
    Space,
    /// A `Host` beside `:authority`. The client sends one of them.
    Host,
    /// CONNECT and Upgrade, which have tests of their own.
    Tunnel,
    /// The case does not say what the server answers.
    NoAnswer,
}

/// A request of the client, and the expected response.
#[derive(Clone, Debug)]
pub struct Ask {
    method: Vec<u8>,
    authority: Vec<u8>,
    path: String,
    fields: Vec<Field>,
    body: Vec<Vec<u8>>,
    trailers: Vec<Field>,
    /// The expected response, or `None` if the server may also reset the stream or close the connection.
    expected: Option<Expected>,
    /// True if the client may refuse the request.
    is_malformed: bool,
    /// True if the request breaks a rule that only HTTP/2 has.
    is_http2_only: bool,
}

/// Returns the request of the client for a request in HTTP/2's form.
///
/// # Errors
/// Returns the reason if the client cannot make the request.
pub fn ask(request: &Request, outcome: &Outcome) -> Result<Ask, Reason> {
    let mut ask = Ask {
        method: only(request, b":method").ok_or(Reason::Pseudo)?,
        authority: only(request, b":authority").ok_or(Reason::Pseudo)?,
        path: String::from_utf8(only(request, b":path").ok_or(Reason::Pseudo)?).map_err(|_| Reason::Target)?,
        fields: request.fields.iter().filter(|(name, _)| !name.starts_with(b":")).cloned().collect(),
        body: Vec::new(),
        trailers: Vec::new(),
        expected: None,
        is_malformed: false,
        is_http2_only: false,
    };
    let pseudo = request.fields.iter().position(|(name, _)| !name.starts_with(b":")).unwrap_or(4);
    if only(request, b":scheme").as_deref() != Some(b"http") || pseudo != 4 || request.fields.len() < 4 {
        return Err(Reason::Pseudo);
    }
    if request.fields[pseudo..].iter().any(|(name, _)| name.starts_with(b":")) {
        return Err(Reason::Pseudo);
    }
    match outcome {
        Outcome::Answer(expected) => ask.expected = Some(expected.clone()),
        Outcome::Malformed(expected) => (ask.expected, ask.is_malformed) = (Some(expected.clone()), true),
        Outcome::Reset(_) => (ask.is_malformed, ask.is_http2_only) = (true, true),
        Outcome::Nothing => return Err(Reason::NoAnswer),
    }
    if ask.method == b"CONNECT" {
        return Err(Reason::Tunnel);
    }
    if request.open {
        return Err(Reason::Framing);
    }
    for part in &request.parts {
        match part {
            Part::Data(bytes) if ask.trailers.is_empty() => ask.body.push(bytes.clone()),
            Part::Trailers(fields) if ask.trailers.is_empty() => ask.trailers.clone_from(fields),
            _ => return Err(Reason::Framing),
        }
    }
    if ask.fields.iter().chain(&ask.trailers).any(|(name, _)| name.iter().any(u8::is_ascii_uppercase)) {
        return Err(Reason::Name);
    }
    if ask.fields.iter().chain(&ask.trailers).any(|(_, value)| value.trim_ascii() != value) {
        return Err(Reason::Space);
    }
    if ask.fields.iter().any(|(name, _)| name == b"host") {
        return Err(Reason::Host);
    }
    let length: usize = ask.body.iter().map(Vec::len).sum();
    let announced = ask.fields.iter().filter(|(name, _)| name == b"content-length");
    let announced: Vec<&[u8]> = announced.map(|(_, value)| &value[..]).collect();
    if announced.len() > 1 || announced.iter().any(|value| **value != *length.to_string().as_bytes()) {
        return Err(Reason::Framing);
    }
    ask.fields.retain(|(name, _)| name != b"content-length");
    let is_of_a_connection = |name: &[u8]| {
        let names: [&[u8]; 6] =
            [b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade", b"te"];
        names.contains(&name)
    };
    if ask.fields.iter().any(|(name, _)| is_of_a_connection(name)) {
        return Err(Reason::Framing);
    }
    let is_same = |url: &str| {
        client::Request::new(Method::GET, url)
            .is_ok_and(|request| request.uri().path_and_query().map(ToString::to_string) == Some(ask.path.clone()))
    };
    if !ask.path.starts_with('/') || !is_same(&format!("http://a{}", ask.path)) {
        return Err(Reason::Target);
    }
    Ok(ask)
}

fn only(request: &Request, wanted: &[u8]) -> Option<Vec<u8>> {
    let mut values = request.fields.iter().filter(|(name, _)| name == wanted).map(|(_, value)| value.clone());
    values.next().filter(|_| values.next().is_none())
}

/// Returns the settings of a client for cases: it changes neither requests nor responses.
pub fn settings() -> client::ClientBuilder {
    // A client that makes its configuration itself does so on the blocking pool, for which virtual time does not wait.
    let tls = Clients::new(Resumption::default()).config(Version::Tls13, Http::Two);
    Client::builder().redirects(Redirects::none()).retries(0).without_decompression().tls_config(tls)
}

impl Ask {
    /// Returns true if the request is one for this version of HTTP.
    pub fn is_for(&self, is_http2: bool) -> bool {
        is_http2 || !self.is_http2_only
    }

    /// Sends the request to a server, and compares the response with what is expected.
    ///
    /// # Errors
    /// Returns a description of the first difference.
    pub async fn play(&self, client: &Client, origin: &str, is_http2: bool) -> Result<(), String> {
        let interims = Rc::new(RefCell::new(Vec::new()));
        match self.answer(client, origin, interims.clone()).await {
            Ok(answer) => match &self.expected {
                Some(expected) => {
                    let mut expected = expected.clone();
                    if !is_http2 {
                        // The case is about HTTP/1.0, or its fields are those of HTTP/2.
                        expected
                            .absent
                            .retain(|name| !matches!(&**name, "connection" | "transfer-encoding" | "upgrade"));
                        if self.path == "/headers" {
                            // The server answers with the fields that it has received, and HTTP/1 has others.
                            (expected.body, expected.length) = (None, None);
                        }
                    }
                    compare_interim(&interims.borrow(), &expected)?;
                    compare(&answer, &expected).map_err(|error| format!("{error}\n{answer:?}"))
                }
                None if (400..500).contains(&answer.status) => Ok(()),
                None => Err(format!("an answer with status {}", answer.status)),
            },
            // The client refuses it, or the server resets the stream or ends the connection. It must not do nothing.
            Err(error) if self.is_malformed && !error.contains("too slow") => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn answer(&self, client: &Client, origin: &str, interims: Rc<RefCell<Vec<u16>>>) -> Result<Answer, String> {
        let said = |error: client::Error| format!("{error}: {error:?}");
        let method = Method::from_bytes(&self.method).map_err(|error| error.to_string())?;
        let mut request = client.request(method, &format!("{origin}{}", self.path));
        request = request.header("host", value(&self.authority)?);
        for (name, value) in fields(&self.fields)? {
            request = match name.as_str() {
                "expect" if value == "100-continue" => request.expect_continue(),
                _ => request.header(name, value),
            };
        }
        request = request.on_interim(move |status, _| interims.borrow_mut().push(status.as_u16()));
        let trailers = fields(&self.trailers)?;
        if !self.trailers.is_empty() {
            let (mut sender, body) = Body::channel();
            let parts = self.body.clone();
            highwire::spawn(async move {
                for part in parts {
                    if sender.send(part).await.is_err() {
                        return;
                    }
                }
                sender.finish();
            });
            request = request.body(body.with_trailers(move || trailers));
        } else if !self.body.is_empty() {
            request = request.body(Bytes::from(self.body.concat()));
        }
        let mut response = request.send().await.map_err(said)?;
        let status = response.status().as_u16();
        let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let pair = |(name, value): (&HeaderName, &HeaderValue)| (name.to_string(), text(value));
        let fields = response.headers().iter().map(pair).collect();
        let body = response.collect().await.map_err(said)?.to_vec();
        let trailers = response.trailers().iter().map(|(name, value)| pair((name, value))).collect();
        // The client does not tell how a body was framed.
        let chunked = self.expected.as_ref().is_some_and(|expected| expected.chunked);
        Ok(Answer { status, fields, body, trailers, chunked, ..Answer::default() })
    }
}

fn value(bytes: &[u8]) -> Result<HeaderValue, String> {
    HeaderValue::from_bytes(bytes).map_err(|error| error.to_string())
}

fn fields(of: &[Field]) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let name = |bytes: &[u8]| HeaderName::from_bytes(bytes).map_err(|error| error.to_string());
    of.iter().map(|(field, bytes)| Ok((name(field)?, value(bytes)?))).collect()
}
