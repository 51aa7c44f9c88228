//! Names of topics, and filters that match them.

use std::fmt;

/// The most bytes of a topic's name or of a filter.
const NAME_BYTES: usize = 256;

/// The most levels of a topic's name or of a filter. A worker visits at most 2 to the power of this many places to find
/// the filters that match a topic.
const LEVELS: usize = 8;

/// Topics of presence begin with this. Wildcards at the first level do not match them, as in MQTT.
pub(super) const PRESENCE: &str = "$presence/";

/// The reason why a name or a filter is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidTopic {
    /// It is empty, or longer than 256 bytes.
    Length,
    /// It has more than eight levels.
    Levels,
    /// A level is empty.
    EmptyLevel,
    /// It contains a control character.
    Character,
    /// A wildcard is in a name, is not a level by itself, or is a `#` that is not the last level.
    Wildcard,
    /// It begins with `$`, which is reserved. Only subscribers may use `$presence/`.
    Reserved,
}

impl fmt::Display for InvalidTopic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            InvalidTopic::Length => "a topic must have 1 to 256 bytes",
            InvalidTopic::Levels => "a topic must have at most eight levels",
            InvalidTopic::EmptyLevel => "a level of a topic must not be empty",
            InvalidTopic::Character => "a topic must not contain control characters",
            InvalidTopic::Wildcard => "`+` and `#` must be whole levels of a filter, and `#` the last one",
            InvalidTopic::Reserved => "topics that begin with `$` are reserved",
        })
    }
}

impl std::error::Error for InvalidTopic {}

/// Checks the name of a topic.
pub(super) fn check_name(name: &str) -> Result<(), InvalidTopic> {
    check(name)?;
    match name.starts_with('$') {
        true => Err(InvalidTopic::Reserved),
        false if name.contains(['+', '#']) => Err(InvalidTopic::Wildcard),
        false => Ok(()),
    }
}

/// Checks a filter. Returns true if it has a wildcard.
pub(super) fn check_filter(filter: &str) -> Result<bool, InvalidTopic> {
    check(filter)?;
    let topic = filter.strip_prefix(PRESENCE).unwrap_or(filter);
    if topic.starts_with('$') {
        return Err(InvalidTopic::Reserved);
    }
    let mut levels = filter.split('/').peekable();
    let mut has_wildcard = false;
    while let Some(level) = levels.next() {
        let is_wildcard = level == "+" || (level == "#" && levels.peek().is_none());
        if level.contains(['+', '#']) && !is_wildcard {
            return Err(InvalidTopic::Wildcard);
        }
        has_wildcard |= is_wildcard;
    }
    Ok(has_wildcard)
}

fn check(text: &str) -> Result<(), InvalidTopic> {
    if text.is_empty() || text.len() > NAME_BYTES {
        return Err(InvalidTopic::Length);
    }
    if text.split('/').count() > LEVELS {
        return Err(InvalidTopic::Levels);
    }
    if text.split('/').any(str::is_empty) {
        return Err(InvalidTopic::EmptyLevel);
    }
    if text.chars().any(char::is_control) {
        return Err(InvalidTopic::Character);
    }
    Ok(())
}

/// Returns true if a valid filter matches the name of a topic. `+` stands for one level, and `#` for any number of
/// levels, also none.
pub(super) fn matches(filter: &str, name: &str) -> bool {
    if name.starts_with('$') && !filter.starts_with('$') {
        return false;
    }
    let (mut filter, mut name) = (filter.split('/'), name.split('/'));
    loop {
        match (filter.next(), name.next()) {
            (Some("#"), _) | (None, None) => return true,
            (Some(level), Some(other)) if level == "+" || level == other => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_match_as_in_mqtt() {
        for (filter, name, expected) in [
            ("a", "a", true),
            ("a", "b", false),
            ("a", "a/b", false),
            ("a/b", "a", false),
            ("+", "a", true),
            ("+", "a/b", false),
            ("a/+", "a/b", true),
            ("a/+", "a", false),
            ("+/b/+", "a/b/c", true),
            ("+/b/+", "a/c/c", false),
            ("#", "a", true),
            ("#", "a/b/c", true),
            ("a/#", "a", true),
            ("a/#", "a/b/c", true),
            ("a/#", "b/a", false),
            ("a/+/#", "a", false),
            ("a/+/#", "a/b", true),
            ("#", "$presence/a", false),
            ("+/a", "$presence/a", false),
            ("$presence/+", "$presence/a", true),
            ("$presence/#", "$presence/a/b", true),
        ] {
            assert!(check_filter(filter).is_ok(), "{filter}");
            assert_eq!(matches(filter, name), expected, "{filter} {name}");
        }
    }

    #[test]
    fn invalid_names_and_filters_are_refused() {
        for (text, name, filter) in [
            ("", Some(InvalidTopic::Length), Some(InvalidTopic::Length)),
            (&"x".repeat(257), Some(InvalidTopic::Length), Some(InvalidTopic::Length)),
            ("1/2/3/4/5/6/7/8", None, None),
            ("1/2/3/4/5/6/7/8/9", Some(InvalidTopic::Levels), Some(InvalidTopic::Levels)),
            ("/a", Some(InvalidTopic::EmptyLevel), Some(InvalidTopic::EmptyLevel)),
            ("a//b", Some(InvalidTopic::EmptyLevel), Some(InvalidTopic::EmptyLevel)),
            ("a/", Some(InvalidTopic::EmptyLevel), Some(InvalidTopic::EmptyLevel)),
            ("a\nb", Some(InvalidTopic::Character), Some(InvalidTopic::Character)),
            ("a/+", Some(InvalidTopic::Wildcard), None),
            ("a+", Some(InvalidTopic::Wildcard), Some(InvalidTopic::Wildcard)),
            ("#/a", Some(InvalidTopic::Wildcard), Some(InvalidTopic::Wildcard)),
            ("a/#", Some(InvalidTopic::Wildcard), None),
            ("$sys/a", Some(InvalidTopic::Reserved), Some(InvalidTopic::Reserved)),
            ("$presence/a", Some(InvalidTopic::Reserved), None),
            ("$presence/$presence/a", Some(InvalidTopic::Reserved), Some(InvalidTopic::Reserved)),
            ("é/ß a", None, None),
        ] {
            assert_eq!(check_name(text).err(), name, "{text:?} as a name");
            assert_eq!(check_filter(text).err(), filter, "{text:?} as a filter");
        }
    }
}
