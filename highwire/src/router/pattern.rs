//! Path templates: `/users/{id}`, `/files/{*rest}`.

use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Segment {
    Exact(String),
    Parameter(String),
    Wildcard(String),
}

/// A parsed template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    text: String,
    segments: Vec<Segment>,
}

/// Why a template cannot be used. It is the program's mistake, told when the server is built.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PatternError {
    /// It does not begin with a slash.
    NoSlash(String),
    /// A brace is not closed, or stands inside a segment with other text.
    Brace(String),
    /// A parameter has no name.
    NoName(String),
    /// Two parameters have one name.
    SameName(String),
    /// Something follows a wildcard, which takes all the rest.
    AfterWildcard(String),
    /// The method and template are registered already.
    Repeated(String),
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PatternError::NoSlash(text) => write!(f, "the path {text:?} does not begin with a slash"),
            PatternError::Brace(text) => {
                write!(f, "the path {text:?}: a parameter is a whole segment, as in /users/{{id}}")
            }
            PatternError::NoName(text) => write!(f, "the path {text:?} has a parameter without a name"),
            PatternError::SameName(text) => write!(f, "the path {text:?} has two parameters of one name"),
            PatternError::AfterWildcard(text) => write!(f, "the path {text:?} goes on after a wildcard"),
            PatternError::Repeated(text) => write!(f, "the path {text:?} is registered twice for one method"),
        }
    }
}

impl std::error::Error for PatternError {}

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

    /// The path itself, where the template has no parameter.
    pub(super) fn whole(&self) -> Option<&[u8]> {
        self.segments.iter().all(|segment| matches!(segment, Segment::Exact(_))).then_some(self.text.as_bytes())
    }

    /// The parameters' names, in order.
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
        let cases: [(&str, Make); 8] = [
            ("a", PatternError::NoSlash),
            ("/{a", PatternError::Brace),
            ("/a{b}", PatternError::Brace),
            ("/{}", PatternError::NoName),
            ("/{*}", PatternError::NoName),
            ("/{a}/{a}", PatternError::SameName),
            ("/{*a}/b", PatternError::AfterWildcard),
            ("/{a}}", PatternError::Brace),
        ];
        for (text, error) in cases {
            assert_eq!(Pattern::parse(text), Err(error(text.to_string())));
        }
    }
}
