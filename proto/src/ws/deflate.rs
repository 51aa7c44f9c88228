//! The negotiation of permessage-deflate (RFC 7692 section 7.1). The caller inflates and deflates.

use crate::scan;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

/// The name of the extension.
pub const NAME: &str = "permessage-deflate";

/// The bytes that end each deflated message, and that are not sent (RFC 7692 section 7.2.1).
pub const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];

/// The largest window of deflate, as an exponent of two.
pub const WINDOW_BITS_MOST: u8 = 15;

/// The smallest window that a peer may ask for.
const WINDOW_BITS_LEAST: u8 = 8;

/// The smallest window with which zlib can deflate without the zlib format. Smaller windows are therefore not agreed on.
pub const WINDOW_BITS_TO_SEND: u8 = 9;

/// The parameters on which a peer insists, or the wishes of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// True if the server may refer to its earlier messages (context takeover).
    pub server_takeover: bool,
    /// True if the client may refer to its earlier messages.
    pub client_takeover: bool,
    /// The window of the server's messages, as an exponent of two.
    pub server_window_bits: u8,
    /// The window of the client's messages, as an exponent of two.
    pub client_window_bits: u8,
}

impl Default for Parameters {
    /// The parameters of `permessage-deflate` without any parameter.
    fn default() -> Parameters {
        Parameters {
            server_takeover: true,
            client_takeover: true,
            server_window_bits: WINDOW_BITS_MOST,
            client_window_bits: WINDOW_BITS_MOST,
        }
    }
}

/// An element of `Sec-WebSocket-Extensions` that is a valid offer of, or agreement to, permessage-deflate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension {
    parameters: Parameters,
    /// True if the element contains `server_max_window_bits`.
    limits_server: bool,
    /// True if the element contains `client_max_window_bits`. Only then may the server limit the client's window.
    limits_client: bool,
}

/// Returns true if a `Sec-WebSocket-Extensions` follows its grammar (RFC 6455 section 9.1): a list of extensions, each a
/// token with parameters. A value may be quoted, and is a token without its quotes. If it does not follow the grammar, the
/// connection must fail.
pub fn is_list_of_extensions(list: &[u8]) -> bool {
    let is_token = |text: &[u8]| !text.is_empty() && text.iter().all(|&byte| scan::is(scan::NAME, byte));
    let is_parameter = |text: &[u8]| {
        let (name, value) = match text.iter().position(|&byte| byte == b'=') {
            Some(at) => (text[..at].trim_ascii_end(), Some(text[at + 1..].trim_ascii_start())),
            None => (text, None),
        };
        let unquoted = |value: &[u8]| match value {
            // A backslash escapes a character, which must be one of a token.
            [b'"', quoted @ .., b'"'] => {
                let mut plain = Vec::new();
                let mut bytes = quoted.iter();
                while let Some(&byte) = bytes.next() {
                    // Without a character to escape, the backslash stays, which is none of a token.
                    plain.push(if byte == b'\\' { *bytes.next().unwrap_or(&byte) } else { byte });
                }
                plain
            }
            value => value.to_vec(),
        };
        is_token(name) && value.is_none_or(|value| is_token(&unquoted(value)))
    };
    // Tokens contain neither commas nor semicolons, so neither do quoted values.
    let mut elements =
        list.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).filter(|element| !element.is_empty()).peekable();
    elements.peek().is_some()
        && elements.all(|element| {
            let mut parts = element.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
            parts.next().is_some_and(is_token) && parts.all(is_parameter)
        })
}

/// Returns the valid elements of a `Sec-WebSocket-Extensions` that are permessage-deflate, in their order. An element
/// with an unknown, repeated or invalid parameter is left out, because it must be declined. In an offer,
/// `client_max_window_bits` may have no value.
pub fn extensions(list: &[u8], is_offer: bool) -> impl Iterator<Item = Extension> {
    let mut is_quoted = false;
    // A value of another extension may contain a quoted comma.
    let elements = list.split(move |&byte| {
        is_quoted ^= byte == b'"';
        byte == b',' && !is_quoted
    });
    elements.filter_map(move |element| Extension::parse(element, is_offer))
}

impl Extension {
    fn parse(element: &[u8], is_offer: bool) -> Option<Extension> {
        let mut parts = element.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
        if !parts.next()?.eq_ignore_ascii_case(NAME.as_bytes()) {
            return None;
        }
        let mut extension = Extension { parameters: Parameters::default(), limits_server: false, limits_client: false };
        let parameters = &mut extension.parameters;
        for part in parts {
            let mut sides = part.splitn(2, |&byte| byte == b'=').map(<[u8]>::trim_ascii);
            let (name, value) = (sides.next()?, sides.next());
            match (&name.to_ascii_lowercase()[..], value) {
                (b"server_no_context_takeover", None) if parameters.server_takeover => {
                    parameters.server_takeover = false;
                }
                (b"client_no_context_takeover", None) if parameters.client_takeover => {
                    parameters.client_takeover = false;
                }
                (b"server_max_window_bits", Some(value)) if !extension.limits_server => {
                    extension.limits_server = true;
                    parameters.server_window_bits = window_bits(value)?;
                }
                (b"client_max_window_bits", value) if !extension.limits_client && (is_offer || value.is_some()) => {
                    extension.limits_client = true;
                    parameters.client_window_bits = value.map_or(Some(WINDOW_BITS_MOST), window_bits)?;
                }
                _ => return None,
            }
        }
        Some(extension)
    }

    /// Accepts a client's offer as far as the server's wishes permit. Returns `None` if it must be declined: its window
    /// for the server's messages is smaller than [`WINDOW_BITS_TO_SEND`].
    pub fn accept(&self, wishes: Parameters) -> Option<Agreement> {
        let offered = self.parameters;
        let server_window_bits = offered.server_window_bits.min(wishes.server_window_bits);
        let client_window_bits = match self.limits_client {
            true => offered.client_window_bits.min(wishes.client_window_bits),
            false => WINDOW_BITS_MOST,
        };
        let parameters = Parameters {
            server_takeover: offered.server_takeover && wishes.server_takeover,
            client_takeover: offered.client_takeover && wishes.client_takeover,
            server_window_bits,
            client_window_bits,
        };
        let answers_limit = self.limits_server;
        (server_window_bits >= WINDOW_BITS_TO_SEND).then_some(Agreement { parameters, answers_limit })
    }

    /// Returns what a server's answer to an offer of `wishes` agrees on. The offer must be the one that [`offer`] writes.
    /// Returns `None` if the answer is none that the offer permits: then the connection must fail.
    pub fn agreed(&self, wishes: Parameters) -> Option<Agreement> {
        let answer = self.parameters;
        let keeps_offer = answer.server_window_bits <= wishes.server_window_bits
            && (wishes.server_takeover || !answer.server_takeover)
            && answer.client_window_bits >= WINDOW_BITS_TO_SEND;
        let parameters = Parameters {
            client_takeover: answer.client_takeover && wishes.client_takeover,
            client_window_bits: answer.client_window_bits.min(wishes.client_window_bits),
            ..answer
        };
        keeps_offer.then_some(Agreement { parameters, answers_limit: false })
    }
}

/// Returns the number of a window, from 8 to 15, without leading zeros. It may be quoted.
fn window_bits(value: &[u8]) -> Option<u8> {
    let value = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value);
    let bits = match *value {
        [digit @ b'0'..=b'9'] => digit - b'0',
        [b'1', digit @ b'0'..=b'9'] => 10 + digit - b'0',
        _ => return None,
    };
    (WINDOW_BITS_LEAST..=WINDOW_BITS_MOST).contains(&bits).then_some(bits)
}

/// The parameters on which both peers have agreed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// The parameters.
    pub parameters: Parameters,
    /// True if the client has limited the server's window. The answer must then contain the limit, also the largest one
    /// (RFC 7692 section 7.1.2.1).
    answers_limit: bool,
}

impl Agreement {
    /// Returns the element of the server's `Sec-WebSocket-Extensions`. It contains the parameters that differ from the
    /// extension's defaults, and the limit of the server's window if the client has offered one.
    pub fn answer(&self) -> String {
        let mut text = write(self.parameters, false);
        if self.answers_limit && self.parameters.server_window_bits == WINDOW_BITS_MOST {
            text.push_str("; server_max_window_bits=15");
        }
        text
    }
}

/// Returns the element of a client's `Sec-WebSocket-Extensions` that offers the extension with these wishes. It always
/// permits the server to limit the client's window.
pub fn offer(wishes: Parameters) -> String {
    write(wishes, true)
}

fn write(parameters: Parameters, is_offer: bool) -> String {
    let mut text = String::from(NAME);
    for (takeover, name) in [
        (parameters.server_takeover, "; server_no_context_takeover"),
        (parameters.client_takeover, "; client_no_context_takeover"),
    ] {
        if !takeover {
            text.push_str(name);
        }
    }
    for (bits, name) in [
        (parameters.server_window_bits, "; server_max_window_bits"),
        (parameters.client_window_bits, "; client_max_window_bits"),
    ] {
        if bits < WINDOW_BITS_MOST {
            write!(text, "{name}={bits}").expect("writing to a string cannot fail");
        }
    }
    if is_offer && parameters.client_window_bits == WINDOW_BITS_MOST {
        text.push_str("; client_max_window_bits");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wishes(server_takeover: bool, client_takeover: bool, server: u8, client: u8) -> Parameters {
        Parameters { server_takeover, client_takeover, server_window_bits: server, client_window_bits: client }
    }

    /// The server's answer to a list of offers.
    fn answer(list: &str, wishes: Parameters) -> Option<String> {
        extensions(list.as_bytes(), true).find_map(|offer| offer.accept(wishes)).map(|agreed| agreed.answer())
    }

    #[test]
    fn a_list_follows_its_grammar() {
        for (list, expected) in [
            ("permessage-deflate", true),
            (" , permessage-deflate ;client_max_window_bits; a = \"b\" ,, x;y=1", true),
            ("x; y=\"a\\b\"", true),
            ("", false),
            (" , ", false),
            (";permessage-deflate", false),
            ("permessage-deflate; ;", false),
            ("permessage-deflate;", false),
            ("permessage-deflate; a=", false),
            ("permessage-deflate; =a", false),
            ("permessage-deflate; a=\"", false),
            ("permessage-deflate; a=\"\"", false),
            ("permessage-deflate; a=\"b c\"", false),
            ("permessage-deflate; a=\"b, c\"", false),
            ("permessage-deflate; a=b=c", false),
            ("x; y=\"a\\\"", false),
            ("a b", false),
            ("a, b c", false),
            ("\u{e9}", false),
        ] {
            assert_eq!(is_list_of_extensions(list.as_bytes()), expected, "{list}");
        }
    }

    #[test]
    fn offers_are_accepted_as_far_as_wished() {
        let (all, none) = (Parameters::default(), wishes(false, false, 12, 11));
        for (offer, with_all, with_none) in [
            (
                "permessage-deflate",
                "permessage-deflate",
                "permessage-deflate; server_no_context_takeover; client_no_context_takeover; server_max_window_bits=12",
            ),
            (
                "Permessage-Deflate ; client_max_window_bits",
                "permessage-deflate",
                "permessage-deflate; server_no_context_takeover; client_no_context_takeover; server_max_window_bits=12; client_max_window_bits=11",
            ),
            (
                "permessage-deflate; server_no_context_takeover; server_max_window_bits=10; client_max_window_bits=8",
                "permessage-deflate; server_no_context_takeover; server_max_window_bits=10; client_max_window_bits=8",
                "permessage-deflate; server_no_context_takeover; client_no_context_takeover; server_max_window_bits=10; client_max_window_bits=8",
            ),
            (
                "x-webkit; a=\"b,c\", permessage-deflate; server_max_window_bits=\"13\"; client_no_context_takeover",
                "permessage-deflate; client_no_context_takeover; server_max_window_bits=13",
                "permessage-deflate; server_no_context_takeover; client_no_context_takeover; server_max_window_bits=12",
            ),
            (
                "x; y=\"a, permessage-deflate, b\", permessage-deflate; server_max_window_bits=15",
                "permessage-deflate; server_max_window_bits=15",
                "permessage-deflate; server_no_context_takeover; client_no_context_takeover; server_max_window_bits=12",
            ),
            // The first offer that is acceptable counts.
            (
                "permessage-deflate; server_max_window_bits=8, permessage-deflate; server_max_window_bits=9",
                "permessage-deflate; server_max_window_bits=9",
                "permessage-deflate; server_no_context_takeover; client_no_context_takeover; server_max_window_bits=9",
            ),
        ] {
            assert_eq!(answer(offer, all).as_deref(), Some(with_all), "{offer}");
            assert_eq!(answer(offer, none).as_deref(), Some(with_none), "{offer}");
        }
    }

    #[test]
    fn invalid_offers_are_declined() {
        for offer in [
            "",
            "permessage-bzip2",
            "permessage-deflate; unknown",
            "permessage-deflate;",
            "permessage-deflate; server_no_context_takeover=1",
            "permessage-deflate; server_no_context_takeover; server_no_context_takeover",
            "permessage-deflate; client_no_context_takeover; client_no_context_takeover",
            "permessage-deflate; server_max_window_bits",
            "permessage-deflate; server_max_window_bits=7",
            "permessage-deflate; server_max_window_bits=8",
            "permessage-deflate; server_max_window_bits=16",
            "permessage-deflate; server_max_window_bits=09",
            "permessage-deflate; server_max_window_bits=+9",
            "permessage-deflate; server_max_window_bits=256",
            "permessage-deflate; server_max_window_bits=10; server_max_window_bits=10",
            "permessage-deflate; client_max_window_bits=0",
            "permessage-deflate; client_max_window_bits; client_max_window_bits",
            "permessage-deflate; client_max_window_bits=",
        ] {
            assert_eq!(answer(offer, Parameters::default()), None, "{offer}");
        }
    }

    #[test]
    fn a_client_accepts_only_answers_that_its_offer_permits() {
        let agreed = |answer: &str, wishes| {
            let answers: Vec<_> = extensions(answer.as_bytes(), false).collect();
            answers.first().and_then(|answer| answer.agreed(wishes)).map(|agreed| agreed.parameters)
        };
        let all = Parameters::default();
        assert_eq!(offer(all), "permessage-deflate; client_max_window_bits");
        assert_eq!(agreed("permessage-deflate", all), Some(all));
        assert_eq!(agreed("permessage-deflate; client_max_window_bits", all), None, "an answer needs the value");
        assert_eq!(agreed("permessage-deflate; client_max_window_bits=8", all), None, "zlib cannot do this");
        let small = wishes(false, true, 10, 12);
        assert_eq!(
            offer(small),
            "permessage-deflate; server_no_context_takeover; server_max_window_bits=10; client_max_window_bits=12"
        );
        assert_eq!(agreed("permessage-deflate", small), None);
        assert_eq!(agreed("permessage-deflate; server_no_context_takeover", small), None);
        assert_eq!(agreed("permessage-deflate; server_max_window_bits=10", small), None);
        assert_eq!(
            agreed("permessage-deflate; server_no_context_takeover; server_max_window_bits=9", small),
            Some(wishes(false, true, 9, 12))
        );
    }
}
