//! The command line of xtask. A command takes its options from it one by one, and [`Args::finish`] returns an error if
//! a word is left.
//!
//! The parser is hand-written, because a few commands with a dozen options do not justify a parser crate that takes ten
//! seconds to build.

use std::str::FromStr;

use crate::{Error, Result};

/// The words after a command's name.
pub(crate) struct Args {
    command: &'static str,
    words: Vec<String>,
}

impl Args {
    pub(crate) fn new(command: &'static str, words: Vec<String>) -> Self {
        Self { command, words }
    }

    /// Takes the flag `name` (for example `--quick`). Returns true if it was given.
    pub(crate) fn flag(&mut self, name: &str) -> bool {
        let before = self.words.len();
        self.words.retain(|word| word != name);
        self.words.len() < before
    }

    /// Takes every `name VALUE` and `name=VALUE`, and returns the values in the order of the command line.
    pub(crate) fn values(&mut self, name: &str) -> Result<Vec<String>> {
        let mut values = Vec::new();
        let mut rest = Vec::new();
        let mut words = std::mem::take(&mut self.words).into_iter();
        while let Some(word) = words.next() {
            if word == name {
                match words.next() {
                    Some(value) if !value.starts_with("--") => values.push(value),
                    _ => return Err(self.usage(&format!("{name} needs a value"))),
                }
            } else if let Some(value) = word.strip_prefix(name).and_then(|rest| rest.strip_prefix('=')) {
                values.push(value.to_owned());
            } else {
                rest.push(word);
            }
        }
        self.words = rest;
        Ok(values)
    }

    /// Takes every `name VALUE` and `name=VALUE`, and returns the last value.
    pub(crate) fn value<T: FromStr>(&mut self, name: &str) -> Result<Option<T>> {
        match self.values(name)?.pop() {
            None => Ok(None),
            Some(text) => match text.parse() {
                Ok(value) => Ok(Some(value)),
                Err(_) => Err(self.usage(&format!("`{text}` is not a valid value for {name}"))),
            },
        }
    }

    /// Takes the first word that does not begin with `-`.
    pub(crate) fn word(&mut self) -> Option<String> {
        let at = self.words.iter().position(|word| !word.starts_with('-'))?;
        Some(self.words.remove(at))
    }

    /// Returns an error if a word is left.
    pub(crate) fn finish(self) -> Result<()> {
        match self.words.first() {
            None => Ok(()),
            Some(word) => Err(self.usage(&format!("unknown argument `{word}`"))),
        }
    }

    fn usage(&self, message: &str) -> Error {
        Error::Usage(format!("{message}; see `cargo xtask {} --help`", self.command))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Args {
        Args::new("test", line.split_whitespace().map(str::to_owned).collect())
    }

    #[test]
    fn options_are_taken_in_either_form() {
        for line in ["--seconds 5 http", "http --seconds=5", "--seconds 9 --seconds 5 http"] {
            let mut args = args(line);
            assert_eq!(args.value::<u32>("--seconds"), Ok(Some(5)), "{line}");
            assert_eq!(args.word().as_deref(), Some("http"), "{line}");
            assert_eq!(args.finish(), Ok(()), "{line}");
        }
    }

    #[test]
    fn repeated_options_keep_their_order() {
        let mut args = args("--scenario a --quick --scenario=b");
        assert_eq!(args.values("--scenario"), Ok(vec!["a".to_owned(), "b".to_owned()]));
        assert!(args.flag("--quick") && !args.flag("--quick"));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for line in ["--seconds", "--seconds soon", "--seconds --quick"] {
            assert!(matches!(args(line).value::<u32>("--seconds"), Err(Error::Usage(_))), "{line}");
        }
        assert!(matches!(args("--colour").finish(), Err(Error::Usage(_))));
    }
}
