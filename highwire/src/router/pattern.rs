//! Path templates, such as `/users/{id}` and `/files/{*rest}`.
//!
//! A segment that begins with `:` or `*` is an error, because other routers write parameters and wildcards like this,
//! and such a template would silently match only its literal text. There is no escape, so a handler for such a path
//! must take the segment as a parameter and compare its value.

use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Segment {
    Exact(String),
    Parameter(String),
    Wildcard(String),
}

/// A parsed path template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    text: String,
    segments: Vec<Segment>,
}

/// The reason why a path template cannot be used. The methods that build the server report this error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PatternError {
    /// The template does not begin with a slash.
    NoSlash(String),
    /// The braces do not enclose one whole segment, or the name in them contains a brace or a star.
    Brace(String),
    /// A segment begins with a colon or a star, as parameters and wildcards do in other routers.
    OtherSyntax(String),
    /// A parameter has no name.
    NoName(String),
    /// Two parameters have the same name.
    SameName(String),
    /// A segment follows a wildcard, which matches the whole rest of the path.
    AfterWildcard(String),
    /// The template is registered twice for the same method.
    Repeated(String),
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PatternError::NoSlash(text) => write!(f, "the path {text:?} does not begin with a slash"),
            PatternError::Brace(text) => {
                write!(f, "the path {text:?}: a parameter is a whole segment, as in /users/{{id}}")
            }
            PatternError::OtherSyntax(text) => {
                write!(f, "the path {text:?}: a parameter is written in braces, as in {:?}", in_braces(text))
            }
            PatternError::NoName(text) => write!(f, "the path {text:?} has a parameter without a name"),
            PatternError::SameName(text) => write!(f, "the path {text:?} has two parameters with the same name"),
            PatternError::AfterWildcard(text) => write!(f, "the path {text:?} has segments after its wildcard"),
            PatternError::Repeated(text) => write!(f, "the path {text:?} is registered twice for one method"),
        }
    }
}

impl std::error::Error for PatternError {}

impl From<PatternError> for highwire_engine::Error {
    fn from(error: PatternError) -> highwire_engine::Error {
        highwire_engine::Error::Service(error.into())
    }
}

/// Rewrites a template of another router in the syntax of this one: `/users/:id` as `/users/{id}`, `/files/*path` as
/// `/files/{*path}`.
fn in_braces(text: &str) -> String {
    let segment = |part: &str| match part.split_at_checked(1) {
        Some((":", name)) => format!("{{{}}}", if name.is_empty() { "name" } else { name }),
        Some(("*", name)) => {
            let name = name.trim_start_matches('*');
            format!("{{*{}}}", if name.is_empty() { "rest" } else { name })
        }
        _ => part.to_string(),
    };
    text.split('/').map(segment).collect::<Vec<_>>().join("/")
}

impl Pattern {
    pub(crate) fn parse(text: &str) -> Result<Pattern, PatternError> {
        let Some(rest) = text.strip_prefix('/') else { return Err(PatternError::NoSlash(text.to_string())) };
        let mut segments = Vec::new();
        let mut names = Vec::new();
        for part in rest.split('/') {
            if matches!(segments.last(), Some(Segment::Wildcard(_))) {
                return Err(PatternError::AfterWildcard(text.to_string()));
            }
            let Some(name) = part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) else {
                if part.contains(['{', '}']) {
                    return Err(PatternError::Brace(text.to_string()));
                }
                if part.starts_with([':', '*']) {
                    return Err(PatternError::OtherSyntax(text.to_string()));
                }
                segments.push(Segment::Exact(part.to_string()));
                continue;
            };
            let (wildcard, name) = match name.strip_prefix('*') {
                Some(name) => (true, name),
                None => (false, name),
            };
            if name.is_empty() {
                return Err(PatternError::NoName(text.to_string()));
            }
            if name.contains(['{', '}', '*']) {
                return Err(PatternError::Brace(text.to_string()));
            }
            if names.contains(&name) {
                return Err(PatternError::SameName(text.to_string()));
            }
            names.push(name);
            let name = name.to_string();
            segments.push(if wildcard { Segment::Wildcard(name) } else { Segment::Parameter(name) });
        }
        Ok(Pattern { text: text.to_string(), segments })
    }

    pub(super) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Returns the path if the template has neither parameters nor a wildcard.
    pub(super) fn whole(&self) -> Option<&[u8]> {
        self.segments.iter().all(|segment| matches!(segment, Segment::Exact(_))).then_some(self.text.as_bytes())
    }

    /// Returns the names of the parameters and the wildcard, in the order of the template.
    pub(crate) fn names(&self) -> Vec<Box<str>> {
        let name = |segment: &Segment| match segment {
            Segment::Exact(_) => None,
            Segment::Parameter(name) | Segment::Wildcard(name) => Some(name.as_str().into()),
        };
        self.segments.iter().filter_map(name).collect()
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_named() {
        type Make = fn(String) -> PatternError;
        let cases: [(&str, Make); 12] = [
            ("a", PatternError::NoSlash),
            ("/{a", PatternError::Brace),
            ("/a{b}", PatternError::Brace),
            ("/{}", PatternError::NoName),
            ("/{*}", PatternError::NoName),
            ("/{a}/{a}", PatternError::SameName),
            ("/{*a}/b", PatternError::AfterWildcard),
            ("/{a}}", PatternError::Brace),
            ("/users/:id", PatternError::OtherSyntax),
            ("/users/:id/posts", PatternError::OtherSyntax),
            ("/files/*path", PatternError::OtherSyntax),
            ("/files/*", PatternError::OtherSyntax),
        ];
        for (text, error) in cases {
            assert_eq!(Pattern::parse(text), Err(error(text.to_string())));
        }
    }

    #[test]
    fn another_routers_syntax_is_answered_with_ours() {
        for (text, hint) in [
            ("/users/:id", "/users/{id}"),
            ("/:a/b/:c", "/{a}/b/{c}"),
            ("/files/*path", "/files/{*path}"),
            ("/files/*", "/files/{*rest}"),
            ("/files/**", "/files/{*rest}"),
        ] {
            let error = Pattern::parse(text).expect_err(text).to_string();
            assert_eq!(error, format!("the path {text:?}: a parameter is written in braces, as in {hint:?}"));
        }
    }

    #[test]
    fn a_colon_or_a_star_behind_other_text_is_literal() {
        for text in ["/v1/users:undelete", "/a*b", "/time/12:30"] {
            assert_eq!(Pattern::parse(text).map(|pattern| pattern.to_string()), Ok(text.to_string()));
        }
    }
}
