//! The validators of a file (`ETag`, `Last-Modified`), and the conditions of requests (RFC 9110 sections 8.8 and 13).

use http::HeaderValue;
use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A file that changed less than this time ago may change again with the same date and length, because the clocks of
/// most file systems tick every few milliseconds, and of some only every second or two.
const YOUNG: Duration = Duration::from_secs(2);

/// Dates before this one (1990-01-01) count as placeholders of build tools and archives, such as 1970-01-01, 1980-01-01
/// (zip), 1980-02-01 (Gradle) and 1985-10-26 (npm). The tag of a file with such a date uses its change time (`ctime`),
/// and the file has no `Last-Modified`.
const FIRST_DATE: Duration = Duration::from_secs(631_152_000);

/// A file's ETag and Last-Modified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Validators {
    /// The tag in quotes, without the `W/` of a weak tag.
    tag: String,
    is_weak: bool,
    /// The date of `Last-Modified`, in whole seconds.
    modified: Option<SystemTime>,
    modified_text: String,
}

/// The properties of a file from which its validators are made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State<'a> {
    pub(crate) length: u64,
    pub(crate) modified: SystemTime,
    pub(crate) changed: SystemTime,
    /// The coding of the file's variant, or empty. Two variants have different bytes and therefore need different tags.
    pub(crate) coding: &'a str,
    pub(crate) now: SystemTime,
}

impl Validators {
    pub(crate) fn new(state: State<'_>) -> Validators {
        let since = |moment: SystemTime| moment.duration_since(UNIX_EPOCH).unwrap_or_default();
        let has_date = since(state.modified) >= FIRST_DATE;
        let stamp = if has_date { state.modified } else { state.changed };
        let (separator, length) = (if state.coding.is_empty() { "" } else { "-" }, state.length);
        let tag = format!("\"{:x}-{length:x}{separator}{}\"", since(stamp).as_nanos(), state.coding);
        // A date in the future must not be sent (section 8.8.2.1), and makes the tag weak, as a recent date does.
        let is_told = has_date && state.modified <= state.now;
        let modified = is_told.then(|| UNIX_EPOCH + Duration::from_secs(since(state.modified).as_secs()));
        let is_weak = state.now.duration_since(stamp).map_or(true, |age| age < YOUNG);
        Validators { tag, is_weak, modified, modified_text: modified.map_or_else(String::new, httpdate::fmt_http_date) }
    }

    /// Returns true if the file may still change without a change of its metadata.
    pub(crate) fn is_weak(&self) -> bool {
        self.is_weak
    }

    pub(crate) fn etag(&self) -> HeaderValue {
        let weak = if self.is_weak { "W/" } else { "" };
        HeaderValue::try_from(format!("{weak}{}", self.tag))
            .expect("hex digits and a coding in quotes are a valid field value")
    }

    pub(crate) fn last_modified(&self) -> Option<HeaderValue> {
        HeaderValue::try_from(&self.modified_text).ok().filter(|_| self.modified.is_some())
    }
}

/// The conditional fields of a request. Each value contains all lines of its field.
#[derive(Clone, Debug, Default)]
pub(crate) struct Conditions<'r> {
    pub(crate) if_match: Option<Cow<'r, [u8]>>,
    pub(crate) if_unmodified_since: Option<Cow<'r, [u8]>>,
    pub(crate) if_none_match: Option<Cow<'r, [u8]>>,
    pub(crate) if_modified_since: Option<Cow<'r, [u8]>>,
    pub(crate) if_range: Option<Cow<'r, [u8]>>,
}

/// The result of the conditions of a GET or HEAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// All conditions hold, or there are none.
    Send,
    /// The client has the current file (304).
    NotModified,
    /// The file is not in the state that the client requires (412).
    Failed,
}

impl Conditions<'_> {
    /// Evaluates all conditions but If-Range, in the order of section 13.2.2.
    pub(crate) fn judge(&self, of: &Validators) -> Verdict {
        if let Some(tags) = &self.if_match {
            if !names(tags, of, Comparison::Strong) {
                return Verdict::Failed;
            }
        } else if let (Some(date), Some(modified)) = (self.if_unmodified_since.as_deref().and_then(date), of.modified)
            && modified > date
        {
            return Verdict::Failed;
        }
        if let Some(tags) = &self.if_none_match {
            if names(tags, of, Comparison::Weak) {
                return Verdict::NotModified;
            }
        } else if let (Some(text), Some(modified)) = (self.if_modified_since.as_deref(), of.modified)
            && (text == of.modified_text.as_bytes() || date(text).is_some_and(|date| modified <= date))
        {
            return Verdict::NotModified;
        }
        Verdict::Send
    }

    /// Returns true if the request has no If-Range, or if If-Range matches the current file, so that a Range field
    /// counts (section 13.1.5).
    pub(crate) fn ranges_count(&self, of: &Validators) -> bool {
        let Some(value) = self.if_range.as_deref() else { return true };
        match value.first() {
            Some(b'"') => !of.is_weak && value == of.tag.as_bytes(),
            // A date identifies the file's state only if the file has not changed for some time. In that case its tag
            // is strong.
            _ => !of.is_weak && of.modified.is_some() && value == of.modified_text.as_bytes(),
        }
    }

    pub(crate) fn into_owned(self) -> Conditions<'static> {
        let owned = |value: Option<Cow<'_, [u8]>>| value.map(|value| Cow::Owned(value.into_owned()));
        Conditions {
            if_match: owned(self.if_match),
            if_unmodified_since: owned(self.if_unmodified_since),
            if_none_match: owned(self.if_none_match),
            if_modified_since: owned(self.if_modified_since),
            if_range: owned(self.if_range),
        }
    }
}

/// Parses a date in any of the three forms of RFC 9110 section 5.6.7. The caller ignores a malformed date.
fn date(text: &[u8]) -> Option<SystemTime> {
    httpdate::parse_http_date(std::str::from_utf8(text).ok()?).ok()
}

/// The way to compare tags (section 8.8.3.2).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    /// The tags are equal, and neither is weak.
    Strong,
    /// The tags are equal; either may be weak.
    Weak,
}

/// Returns true if a field's value is `*`, or a list of tags that contains the file's tag. A malformed list contains no
/// tag.
fn names(list: &[u8], of: &Validators, comparison: Comparison) -> bool {
    if list.trim_ascii() == b"*" {
        return true;
    }
    let (mut rest, mut found, mut is_between) = (list, false, true);
    loop {
        rest = match rest {
            [] => return found,
            [b' ' | b'\t', rest @ ..] => rest,
            [b',', rest @ ..] => {
                is_between = true;
                rest
            }
            _ if !is_between => return false,
            _ => {
                let (is_weak, opaque) = match rest {
                    [b'W', b'/', opaque @ ..] => (true, opaque),
                    opaque => (false, opaque),
                };
                let [b'"', inner @ ..] = opaque else { return false };
                let Some(end) = inner.iter().position(|&byte| byte == b'"') else { return false };
                if !inner[..end].iter().all(|&byte| byte == b'!' || (b'#'..=b'~').contains(&byte) || byte >= 0x80) {
                    return false;
                }
                let may = comparison == Comparison::Weak || !(is_weak || of.is_weak);
                found |= may && &opaque[..end + 2] == of.tag.as_bytes();
                is_between = false;
                &inner[end + 1..]
            }
        };
    }
}

/// The assertion of a fuzz target. The first byte selects the fields, the file's age and its coding; the lines after
/// this byte are the fields' values. The verdict must equal that of a naive [`twin`], which follows the text of section
/// 13.2.2 and splits lists at their quotes.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn assert_equals_twin(input: &[u8]) {
    let Some((&flags, text)) = input.split_first() else { return };
    let mut lines = text.split(|&byte| byte == b'\n');
    let mut next = |bit: u8| (flags >> bit & 1 == 1).then(|| Cow::Borrowed(lines.next().unwrap_or_default()));
    let conditions = Conditions {
        if_match: next(0),
        if_unmodified_since: next(1),
        if_none_match: next(2),
        if_modified_since: next(3),
        if_range: next(4),
    };
    // This is Friday, 15 January 2027, 08:00:00. The fuzzer's seeds contain the tag and the date.
    let modified = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    let age = if flags >> 5 & 1 == 1 { Duration::ZERO } else { YOUNG };
    let coding = if flags >> 6 & 1 == 1 { "br" } else { "" };
    let of = Validators::new(State { length: 16, modified, changed: modified, coding, now: modified + age });
    assert_eq!(of.modified_text, "Fri, 15 Jan 2027 08:00:00 GMT");
    assert_eq!(conditions.judge(&of), twin(&conditions, &of), "{}", input.escape_ascii());
    let counts = conditions.if_range.as_deref().is_none_or(|value| {
        let is_either = value == of.tag.as_bytes() || value == of.modified_text.as_bytes();
        is_either && !of.is_weak
    });
    assert_eq!(conditions.ranges_count(&of), counts, "{}", input.escape_ascii());
}

#[cfg(any(test, feature = "testing"))]
fn twin(conditions: &Conditions<'_>, of: &Validators) -> Verdict {
    let listed = |list: &[u8]| -> Vec<(bool, Vec<u8>)> {
        // Every second piece was between quotes.
        let pieces: Vec<&[u8]> = list.split(|&byte| byte == b'"').collect();
        let mut tags = Vec::new();
        for (number, piece) in pieces.iter().enumerate() {
            if number % 2 == 1 {
                if piece.iter().any(|&byte| byte <= b' ' || byte == 0x7f) {
                    return Vec::new();
                }
                tags.push((pieces[number - 1].ends_with(b"W/"), [b"\"", *piece, b"\""].concat()));
                continue;
            }
            let is_last = number + 1 == pieces.len();
            let blanks = if is_last { piece } else { piece.strip_suffix(b"W/").unwrap_or(piece) };
            let has_comma = blanks.contains(&b',');
            let needs_comma = number > 0 && !is_last;
            if !blanks.iter().all(|byte| b" \t,".contains(byte)) || needs_comma && !has_comma {
                return Vec::new();
            }
        }
        if pieces.len() % 2 == 1 { tags } else { Vec::new() }
    };
    let is_any = |list: &[u8]| list.trim_ascii() == b"*";
    let dated = |text: &[u8]| std::str::from_utf8(text).ok().and_then(|text| httpdate::parse_http_date(text).ok());
    let modified = of.modified.expect("the file has a date");
    match (&conditions.if_match, conditions.if_unmodified_since.as_deref().and_then(dated)) {
        (Some(list), _) => {
            let is_it = |(is_weak, tag): &(bool, Vec<u8>)| !is_weak && !of.is_weak && tag == of.tag.as_bytes();
            if !is_any(list) && !listed(list).iter().any(is_it) {
                return Verdict::Failed;
            }
        }
        (None, Some(date)) if modified > date => return Verdict::Failed,
        _ => {}
    }
    let is_known = match (&conditions.if_none_match, conditions.if_modified_since.as_deref().and_then(dated)) {
        (Some(list), _) => is_any(list) || listed(list).iter().any(|(_, tag)| tag == of.tag.as_bytes()),
        (None, date) => date.is_some_and(|date| modified <= date),
    };
    if is_known { Verdict::NotModified } else { Verdict::Send }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn validators(age: Duration, coding: &str) -> Validators {
        let modified = UNIX_EPOCH + Duration::new(1_800_000_000, 500);
        Validators::new(State { length: 255, modified, changed: modified, coding, now: modified + age })
    }

    #[test]
    fn tags_and_dates() {
        let old = validators(YOUNG, "");
        assert_eq!(old.etag(), "\"18fae27693b401f4-ff\"");
        assert_eq!(old.last_modified().expect("a date"), "Fri, 15 Jan 2027 08:00:00 GMT");
        assert_eq!(validators(YOUNG, "br").etag(), "\"18fae27693b401f4-ff-br\"");
        assert_eq!(validators(Duration::ZERO, "").etag(), "W/\"18fae27693b401f4-ff\"");
        let changed = UNIX_EPOCH + Duration::from_secs(1 << 30);
        // Placeholder dates of zip, Gradle, npm and others.
        for seconds in [0, 1, 315_532_800, 315_619_200, 318_211_200, 499_162_500] {
            let (modified, now) = (UNIX_EPOCH + Duration::from_secs(seconds), changed + YOUNG);
            let built = Validators::new(State { length: 1, modified, changed, coding: "", now });
            assert_eq!(built.etag(), "\"ee6b28000000000-1\"", "{seconds}");
            assert_eq!(built.last_modified(), None, "{seconds}");
        }
    }

    #[test]
    fn conditions_in_their_order() {
        const SAME: &str = "\"18fae27693b401f4-ff\"";
        const WEAK: &str = "W/\"18fae27693b401f4-ff\"";
        const DATE: &str = "Fri, 15 Jan 2027 08:00:00 GMT";
        const BEFORE: &str = "Fri, 15 Jan 2027 07:59:59 GMT";
        const AFTER: &str = "Friday, 15-Jan-27 08:00:01 GMT";
        use Verdict::{Failed, NotModified, Send};
        let old = validators(YOUNG, "");
        let list = format!("\"a\", {WEAK} ,, \"b\"");
        let strong_list = format!("\"a,b\",{SAME}");
        let broken = format!("{SAME} \"b\"");
        for (fields, expected) in [
            (&[][..], Send),
            (&[("if-match", SAME)], Send),
            (&[("if-match", WEAK)], Failed),
            (&[("if-match", "*")], Send),
            (&[("if-match", "\"other\"")], Failed),
            (&[("if-match", &strong_list)], Send),
            (&[("if-match", &broken)], Failed),
            (&[("if-match", "")], Failed),
            (&[("if-unmodified-since", DATE)], Send),
            (&[("if-unmodified-since", AFTER)], Send),
            (&[("if-unmodified-since", BEFORE)], Failed),
            (&[("if-unmodified-since", "yesterday")], Send),
            (&[("if-match", SAME), ("if-unmodified-since", BEFORE)], Send),
            (&[("if-none-match", SAME)], NotModified),
            (&[("if-none-match", WEAK)], NotModified),
            (&[("if-none-match", " * ")], NotModified),
            (&[("if-none-match", &list)], NotModified),
            (&[("if-none-match", &broken)], Send),
            (&[("if-none-match", "\"other\"")], Send),
            (&[("if-modified-since", DATE)], NotModified),
            (&[("if-modified-since", AFTER)], NotModified),
            (&[("if-modified-since", "Fri Jan 15 08:00:00 2027")], NotModified),
            (&[("if-modified-since", BEFORE)], Send),
            (&[("if-modified-since", "0")], Send),
            (&[("if-none-match", "\"other\""), ("if-modified-since", DATE)], Send),
            (&[("if-match", SAME), ("if-none-match", SAME)], NotModified),
            (&[("if-match", "\"other\""), ("if-none-match", SAME)], Failed),
            (&[("if-unmodified-since", BEFORE), ("if-modified-since", DATE)], Failed),
        ] {
            let value = |name| {
                let found = fields.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| Cow::Borrowed(value.as_bytes()))
            };
            let conditions = Conditions {
                if_match: value("if-match"),
                if_unmodified_since: value("if-unmodified-since"),
                if_none_match: value("if-none-match"),
                if_modified_since: value("if-modified-since"),
                if_range: None,
            };
            assert_eq!(conditions.judge(&old), expected, "{fields:?}");
        }
        for (value, of, counts) in [
            (SAME, &old, true),
            (WEAK, &old, false),
            (DATE, &old, true),
            (AFTER, &old, false),
            ("*", &old, false),
            (SAME, &validators(Duration::ZERO, ""), false),
            (DATE, &validators(Duration::ZERO, ""), false),
        ] {
            let if_range = Some(Cow::Borrowed(value.as_bytes()));
            assert_eq!(Conditions { if_range, ..Conditions::default() }.ranges_count(of), counts, "{value}");
        }
    }

    #[test]
    fn every_short_list_equals_its_twin() {
        let words = ["\"18fae27693b40000-10\"", "W/", "\"", ",", " ", "a", "*"];
        for number in 0..words.len().pow(5) {
            let list: String = (0..5).map(|place| words[number / words.len().pow(place) % words.len()]).collect();
            for flags in [0b1, 0b100, 0b10_0001] {
                assert_equals_twin(&[&[flags], list.as_bytes()].concat());
            }
        }
    }
}
