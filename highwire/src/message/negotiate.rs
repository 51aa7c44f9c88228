//! Content negotiation: chooses the server's offer that the client prefers (RFC 9110 section 12).
//!
//! The weight of an offer is the weight of the most specific range that matches the offer. Of offers with the same
//! weight, the first one wins.

use crate::message::media::{MediaType, Parameters, elements, is_token, trim};
use crate::message::request::{FromRequest, Request};
use crate::message::weight::{self, FULL, Weight};
use crate::{Problem, Response};
use http::StatusCode;
use std::borrow::Cow;

/// The media types, languages and charsets that a client accepts: an extractor.
///
/// ```
/// use highwire::{Accept, App, IntoResponse, Problem, Response, testing::Client};
///
/// let answer = |accept: Accept| -> Result<Response, Problem> {
///     Ok(match accept.media_type_or_406(&["application/json", "text/html"])? {
///         "text/html" => Response::html("<p>42"),
///         _ => Response::bytes("application/json", "42"),
///     })
/// };
/// let mut client = Client::new(App::new().get("/", answer))?;
/// assert_eq!(client.get("/").send().text(), "42");
/// assert_eq!(client.get("/").header("accept", "text/*, */*;q=0.1").send().text(), "<p>42");
/// assert_eq!(client.get("/").header("accept", "image/png").send().status(), 406);
/// # Ok::<(), highwire::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accept {
    media_types: Option<String>,
    languages: Option<String>,
    charsets: Option<String>,
}

/// Joins all fields of a name into one list, without elements that are not UTF-8. Returns `None` if there is no such
/// field, or if no element could be read, because an unreadable list does not mean that the client accepts nothing.
fn list(request: &Request<'_>, name: &str) -> Option<String> {
    let fields = request.headers().filter(|(known, _)| known.eq_ignore_ascii_case(name));
    let texts = fields.filter_map(|(_, value)| match String::from_utf8_lossy(value) {
        Cow::Borrowed(text) => Some(text.to_string()),
        Cow::Owned(text) => {
            let is_text = |element: &&str| !element.contains(char::REPLACEMENT_CHARACTER);
            let readable: Vec<&str> = elements(&text).filter(is_text).collect();
            (!readable.is_empty()).then(|| readable.join(","))
        }
    });
    texts.reduce(|list, text| list + "," + &text)
}

impl FromRequest for Accept {
    fn from_request(request: &mut Request<'_>) -> Result<Accept, Response> {
        Ok(Accept {
            media_types: list(request, "accept"),
            languages: list(request, "accept-language"),
            charsets: list(request, "accept-charset"),
        })
    }
}

impl Accept {
    /// Returns the media type that the client prefers. Offers are types such as `text/html`, with or without parameters
    /// (`text/html;level=1`). Returns the first offer if the request has no `Accept`, and `None` if the client accepts
    /// no offer.
    pub fn media_type<'o>(&self, offers: &[&'o str]) -> Option<&'o str> {
        best(self.media_types.as_deref(), offers, |range, offer| {
            // The grammar does not allow `*`, but some clients send it in place of `*/*`.
            if range == "*" {
                return Some(0);
            }
            let (range, offer) = (MediaType::parse(range)?, MediaType::parse(offer)?);
            media_range_fits(&range, &offer)
        })
    }

    /// As [`media_type`](Self::media_type), but returns an error in place of `None`.
    ///
    /// # Errors
    /// Returns a 406 with a list of the offers if the client accepts none of them.
    pub fn media_type_or_406<'o>(&self, offers: &[&'o str]) -> Result<&'o str, Problem> {
        self.media_type(offers).ok_or_else(|| {
            Problem::new(StatusCode::NOT_ACCEPTABLE, "none of the media types that there are is acceptable")
                .with("in", "accept")
                .with("available", &offers.join(", "))
        })
    }

    /// Returns the offered language that the client prefers, such as `de` or `pt-BR`, or the first offer if the request
    /// has no `Accept-Language`. A range matches offers that begin with it (RFC 4647 section 3.3.1): `de` matches
    /// `de-CH`. If this finds no offer, an offer also matches if a range begins with the offer: `de-CH` matches `de`
    /// (section 3.4).
    ///
    /// If this returns `None`, the server may still choose a language to send (RFC 9110 section 12.5.4).
    pub fn language<'o>(&self, offers: &[&'o str]) -> Option<&'o str> {
        let languages = self.languages.as_deref();
        let begins = |whole: &str, start: &str| {
            let fits = whole.get(..start.len()).is_some_and(|front| front.eq_ignore_ascii_case(start));
            fits && matches!(whole.as_bytes().get(start.len()), None | Some(b'-'))
        };
        let filtered = best(languages, offers, |range, offer| match range {
            "*" => Some(0),
            range => begins(offer, range).then_some(range.len() as u32),
        });
        // A range that matches in full still takes precedence over a shortened one, so `de;q=0` excludes `de`.
        filtered.or_else(|| {
            best(languages, offers, |range, offer| match begins(offer, range) {
                true => Some(1 << 16 | range.len() as u32),
                false => begins(range, offer).then_some(range.len() as u32),
            })
        })
    }

    /// Returns the charset that the client prefers. Prefer to send UTF-8 to every client, because RFC 9110 section
    /// 12.5.2 deprecates `Accept-Charset`.
    pub fn charset<'o>(&self, offers: &[&'o str]) -> Option<&'o str> {
        best(self.charsets.as_deref(), offers, |range, offer| match range {
            "*" => Some(0),
            range => range.eq_ignore_ascii_case(offer).then_some(1),
        })
    }
}

/// Returns how specific a media range is, or `None` if it does not match the offer. Type and subtype count more than
/// parameters. The offer must have all parameters of the range.
fn media_range_fits(range: &MediaType<'_>, offer: &MediaType<'_>) -> Option<u32> {
    let same = |range: &str, offer: &str| range == "*" || range.eq_ignore_ascii_case(offer);
    // `*/html` is not a valid range.
    if !same(range.kind(), offer.kind())
        || !same(range.subtype(), offer.subtype())
        || (range.kind() == "*" && range.subtype() != "*")
    {
        return None;
    }
    let mut parameters = 0;
    for (name, value) in range.parameters().flatten() {
        // Parameters after the weight do not belong to the range. RFC 9110 removed them from the grammar.
        if name.eq_ignore_ascii_case("q") {
            break;
        }
        let offered = offer.parameter(name)?;
        if !offered.eq_ignore_ascii_case(&value.text()) {
            return None;
        }
        parameters += 1;
    }
    let exact = |part: &str| u32::from(part != "*");
    Some((exact(range.kind()) + exact(range.subtype())) << 16 | parameters)
}

/// Returns the first offer with the highest weight, if that is not 0. Without a list, returns the first offer. `fits`
/// returns how specific a range is, or `None` if the range does not match the offer. Ignores malformed ranges.
fn best<'o>(list: Option<&str>, offers: &[&'o str], fits: impl Fn(&str, &str) -> Option<u32>) -> Option<&'o str> {
    let Some(list) = list else { return offers.first().copied() };
    let mut best: Option<(Weight, &'o str)> = None;
    for &offer in offers {
        let mut liked: Option<(u32, Weight)> = None;
        for (range, weight) in elements(list).filter_map(weighted) {
            if let Some(specific) = fits(range, offer)
                && liked.is_none_or(|(known, _)| specific > known)
            {
                liked = Some((specific, weight));
            }
        }
        if let Some((_, weight)) = liked
            && weight > best.map_or(0, |(known, _)| known)
        {
            best = Some((weight, offer));
        }
    }
    best.map(|(_, offer)| offer)
}

/// Splits an element into its range and its weight. Only a media range keeps its parameters. Returns `None` if the
/// element is malformed.
fn weighted(element: &str) -> Option<(&str, Weight)> {
    let end = element.find(';').unwrap_or(element.len());
    let mut weight = FULL;
    for parameter in Parameters::of(&element[end..]) {
        let (name, value) = parameter?;
        if name.eq_ignore_ascii_case("q") {
            weight = weight::parse(value.text().as_bytes())?;
            break;
        }
    }
    let name = trim(&element[..end]);
    match name.split_once('/') {
        Some(_) => Some((element, weight)),
        None => is_token(name).then_some((name, weight)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_types() {
        let check = |accept: Option<&str>, offers: &[&str], expected: Option<&str>| {
            let accept = Accept { media_types: accept.map(str::to_string), ..Accept::default() };
            assert_eq!(accept.media_type(offers), expected, "{accept:?} {offers:?}");
        };
        let both = &["application/json", "text/html"];
        check(None, both, Some("application/json"));
        check(None, &[], None);
        check(Some(""), both, None);
        check(Some("*/*"), both, Some("application/json"));
        check(Some("text/*"), both, Some("text/html"));
        check(Some("TEXT/HTML"), both, Some("text/html"));
        check(Some("text/html;q=0.9, */*;q=0.8"), both, Some("text/html"));
        check(Some("text/html;q=0.8, */*;q=0.9"), both, Some("application/json"));
        check(Some("text/html, application/xhtml+xml, */*;q=0.8"), both, Some("text/html"));
        check(Some("text/html;q=0, */*"), &["text/html"], None);
        check(Some("text/html;q=0.0, */*;q=0.001"), both, Some("application/json"));
        check(Some("image/png"), both, None);
        check(Some("text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2"), both, Some("text/html"));
        check(Some("*; q=.2"), both, Some("application/json"));
        check(Some("*/*;q=.2"), both, Some("application/json"));
        check(Some("text/*;q=.2, *;q=.1"), both, Some("text/html"));
        // The example of RFC 9110 section 12.5.1.
        let example =
            "text/*;q=0.3, text/plain;q=0.7, text/plain;format=flowed, text/plain;format=fixed;q=0.4, */*;q=0.5";
        check(Some(example), &["text/plain;format=flowed", "text/plain"], Some("text/plain;format=flowed"));
        check(Some(example), &["text/html", "image/jpeg"], Some("image/jpeg"));
        check(Some(example), &["image/jpeg", "text/plain"], Some("text/plain"));
        check(Some(example), &["text/plain;format=fixed", "image/jpeg"], Some("image/jpeg"));
        // Malformed ranges are ignored.
        check(Some("text/html;q=2, application/json;q=0.1"), both, Some("application/json"));
        check(Some("*/html"), both, None);
        check(Some("text/html;q=\"0.5\", ;, x y/z"), both, Some("text/html"));
        check(Some("text/html;q=0.5;q=1"), both, None);
    }

    #[test]
    fn languages() {
        let check = |languages: &str, offers: &[&str], expected: Option<&str>| {
            let accept = Accept { languages: Some(languages.to_string()), ..Accept::default() };
            assert_eq!(accept.language(offers), expected, "{accept:?} {offers:?}");
        };
        check("da, en-GB;q=0.8, en;q=0.7", &["en", "en-gb", "da"], Some("da"));
        check("da, en-GB;q=0.8, en;q=0.7", &["en-US", "en-gb"], Some("en-gb"));
        check("de-CH", &["fr", "de"], Some("de"));
        check("de-CH", &["den"], None);
        check("de", &["den"], None);
        check("de", &["de-AT"], Some("de-AT"));
        check("fr, *;q=0.1", &["en", "fr"], Some("fr"));
        check("fr, *;q=0.1", &["en"], Some("en"));
        check("en;q=0, *", &["en", "fr"], Some("fr"));
        check("de-CH;q=0.5, de;q=0", &["de"], None);
        check("de-\u{e9}", &["de"], None);
    }

    #[test]
    fn charsets() {
        let accept =
            Accept { charsets: Some("iso-8859-5, unicode-1-1;q=0.8, *;q=0.1".to_string()), ..Accept::default() };
        assert_eq!(accept.charset(&["utf-8", "ISO-8859-5"]), Some("ISO-8859-5"));
        assert_eq!(accept.charset(&["utf-8"]), Some("utf-8"));
    }
}
