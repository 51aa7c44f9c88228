//! A Rust file as the checks need it: its code without comments and literals, and the ranges under a `cfg`.
//!
//! This is not a parser. It recognizes comments, literals, attributes and brackets. It replaces comments and the
//! contents of literals by as many spaces as they have bytes, so that offsets are the same in `raw` and in `code`.

/// A Rust file.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) raw: String,
    /// `raw` with spaces in place of comments and of the contents of literals. The quotes stay.
    pub(super) code: String,
    /// The offset of each line's start.
    starts: Vec<usize>,
}

impl Source {
    pub(super) fn new(raw: &str) -> Self {
        let code = blank(raw);
        let starts = std::iter::once(0).chain(raw.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { raw: raw.to_owned(), code, starts }
    }

    /// Returns the line, counted from 1, of an offset.
    pub(super) fn line_of(&self, offset: usize) -> usize {
        self.starts.partition_point(|&start| start <= offset)
    }

    /// Returns the lines of `code` with their numbers, counted from 1.
    pub(super) fn code_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code.lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    /// Returns the offsets of `word` in the code, as a whole word.
    pub(super) fn words<'a>(&'a self, word: &'a str) -> impl Iterator<Item = usize> + 'a {
        words(&self.code, word)
    }

    /// Returns the ranges of the items under a `#[cfg(…)]` for whose text `wanted` returns true. For an inner attribute
    /// (`#![cfg(…)]`), that is the whole file.
    pub(super) fn under_cfg(&self, wanted: impl Fn(&str) -> bool) -> Vec<std::ops::Range<usize>> {
        let mut ranges = Vec::new();
        for (inner, open) in [(true, "#![cfg"), (false, "#[cfg")] {
            for (at, _) in self.code.match_indices(open) {
                let bracket = at + if inner { 2 } else { 1 };
                let end = close_of(&self.code, bracket);
                if !wanted(&self.raw[at..end]) || self.code[at..].starts_with("#[cfg_attr") {
                    continue;
                }
                ranges.push(if inner { 0..self.code.len() } else { at..item_end(&self.code, end) });
            }
        }
        ranges
    }

    /// Returns the ranges of the bodies of `impl Trait for Type`.
    pub(super) fn trait_impls(&self) -> Vec<std::ops::Range<usize>> {
        let mut ranges = Vec::new();
        for at in self.words("impl") {
            let Some(open) = self.code[at..].find(['{', ';']).map(|offset| at + offset) else { continue };
            // `for<'a>` belongs to a bound; `for` without `<` precedes the type.
            let head = &self.code[at..open];
            if words(head, "for").any(|word| !head[word + "for".len()..].starts_with('<')) {
                ranges.push(open..close_of(&self.code, open));
            }
        }
        ranges
    }

    /// Returns the names of modules in other files that this file declares within `ranges`.
    pub(super) fn modules_within(&self, ranges: &[std::ops::Range<usize>]) -> Vec<String> {
        let declared = self.words("mod").filter_map(|at| {
            let (name, _) = self.code[at + 3..].trim_start().split_once(|letter: char| !is_word(letter))?;
            let ends = self.code[at..].find([';', '{']).is_some_and(|end| self.code[at + end..].starts_with(';'));
            (ends && ranges.iter().any(|range| range.contains(&at))).then(|| name.to_owned())
        });
        declared.collect()
    }
}

/// Returns true if a character can be part of a name.
pub(super) fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// Returns the offsets of `word` in a text, as a whole word.
pub(super) fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    text.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |&at| !text[..at].ends_with(is_word) && !text[at + word.len()..].starts_with(is_word))
}

/// Returns the offset after the bracket that closes the bracket at `open`, or the end of the text if there is none.
pub(super) fn close_of(code: &str, open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, letter) in code[open..].char_indices() {
        match letter {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return open + at + 1;
                }
            }
            _ => {}
        }
    }
    code.len()
}

/// Returns the end of the item, statement, field or arm that begins at `from`, perhaps with further attributes.
fn item_end(code: &str, from: usize) -> usize {
    let mut at = from + (code[from..].len() - code[from..].trim_start().len());
    while code[at..].starts_with("#[") {
        at = close_of(code, at + 1);
        at += code[at..].len() - code[at..].trim_start().len();
    }
    // An item that begins with one of these words ends with a semicolon, even if it contains braces. Other items end
    // with a semicolon, a comma or their closing brace.
    let head =
        code[at..].trim_start_matches("pub ").trim_start_matches("pub(crate) ").trim_start_matches("pub(super) ");
    let by_semicolon =
        ["use ", "let ", "const ", "static ", "type ", "extern crate "].iter().any(|word| head.starts_with(word))
            && !head.starts_with("const fn")
            && !head.starts_with("const unsafe fn");
    while let Some(letter) = code[at..].chars().next() {
        match letter {
            ';' => return at + 1,
            ',' if !by_semicolon => return at + 1,
            ')' | ']' | '}' => return at,
            '{' => {
                at = close_of(code, at);
                if !by_semicolon {
                    return at;
                }
            }
            '(' | '[' => at = close_of(code, at),
            other => at += other.len_utf8(),
        }
    }
    at
}

/// Replaces each byte of comments and of the contents of literals by a space. Line ends stay.
fn blank(raw: &str) -> String {
    let mut code = String::with_capacity(raw.len());
    let mut rest = raw;
    let mut after_word = false;
    while let Some(letter) = rest.chars().next() {
        let (kept, blanked) = if rest.starts_with("//") {
            (0, rest.find('\n').unwrap_or(rest.len()))
        } else if rest.starts_with("/*") {
            (0, block_comment(rest))
        } else if let Some((prefix, end)) = string_literal(rest, after_word) {
            (prefix, end)
        } else if letter == '\'' {
            (1, char_literal(rest))
        } else {
            (letter.len_utf8(), letter.len_utf8())
        };
        after_word = is_word(letter) && blanked == letter.len_utf8();
        code.push_str(&rest[..kept]);
        let quoted = blanked > kept && kept > 0;
        let inside = &rest[kept..if quoted { blanked - 1 } else { blanked }];
        for letter in inside.chars() {
            if letter == '\n' {
                code.push('\n');
            } else {
                (0..letter.len_utf8()).for_each(|_| code.push(' '));
            }
        }
        if quoted {
            code.push(if letter == '\'' { '\'' } else { '"' });
        }
        rest = &rest[blanked..];
    }
    code
}

/// Returns the length of the block comment at the start. Block comments can be nested.
fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

/// Returns two lengths of the string literal at the start, or `None` if there is none: that of its prefix and opening
/// quote, and that of the whole. Byte strings, C strings and raw strings are literals, too.
///
/// At the end of a raw string with hashes, [`blank`] replaces the quote and hashes by spaces, and the last hash by a
/// quote.
fn string_literal(rest: &str, after_word: bool) -> Option<(usize, usize)> {
    let prefix = if after_word {
        ""
    } else {
        ["br", "cr", "b", "c", "r", ""].iter().find(|prefix| rest.starts_with(**prefix))?
    };
    let raw = prefix.ends_with('r');
    let hashes = if raw { rest[prefix.len()..].bytes().take_while(|&byte| byte == b'#').count() } else { 0 };
    let open = prefix.len() + hashes + 1;
    if !rest[prefix.len() + hashes..].starts_with('"') {
        return None;
    }
    if raw {
        let close = format!("\"{}", "#".repeat(hashes));
        let end = rest[open..].find(&close).map_or(rest.len(), |at| open + at + close.len());
        return Some((open, end));
    }
    let mut escaped = false;
    for (at, byte) in rest.bytes().enumerate().skip(open) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some((open, at + 1)),
            _ => {}
        }
    }
    Some((open, rest.len()))
}

/// Returns the length of the character literal at the start, or 1 if the quote begins a lifetime.
fn char_literal(rest: &str) -> usize {
    let mut letters = rest.char_indices().skip(1);
    match (letters.next(), letters.next()) {
        (Some((_, '\\')), Some(_)) => letters.find(|&(_, letter)| letter == '\'').map_or(1, |(at, _)| at + 1),
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_code_is_blanked() {
        for (raw, expected) in [
            ("a // unsafe\nb", "a          \nb"),
            ("a /* x /* y */ z */ b", "a                   b"),
            ("f(\"unsafe\")", "f(\"      \")"),
            (r##"f(r#"a"b"#)"##, r#"f(r#"    ")"#),
            (r#"f("a\"b", c)"#, r#"f("    ", c)"#),
            ("b\"x\" br\"y\" c\"z\"", "b\" \" br\" \" c\" \""),
            (r"'a' '\'' '\u{1F600}' 'é'", r"' ' '  ' '         ' '  '"),
            ("fn f<'a>(x: &'a str)", "fn f<'a>(x: &'a str)"),
            ("\"two\nlines\"", "\"   \n     \""),
            ("number\"x\"", "number\" \""),
            ("//", "  "),
            ("\"open", "\"   \""),
        ] {
            let code = Source::new(raw).code;
            assert_eq!(code, expected, "{raw}");
            assert_eq!(code.len(), raw.len(), "{raw}");
        }
    }

    #[test]
    fn an_item_ends_where_the_next_begins() {
        for (code, expected) in [
            ("#[cfg(test)]\nmod tests { fn f() {} }\nfn g() {}", "#[cfg(test)]\nmod tests { fn f() {} }"),
            ("#[cfg(test)] use a::{b, c}; fn g() {}", "#[cfg(test)] use a::{b, c};"),
            ("#[cfg(test)] #[path = \"x\"] mod t; fn g() {}", "#[cfg(test)] #[path = \"x\"] mod t;"),
            (
                "#[cfg(test)] pub const fn f(a: [u8; 2]) -> u8 { 1 } fn g() {}",
                "#[cfg(test)] pub const fn f(a: [u8; 2]) -> u8 { 1 }",
            ),
            ("struct S { #[cfg(test)] a: (u8, u8), b: u8 }", "#[cfg(test)] a: (u8, u8),"),
            ("fn f() { #[cfg(test)] g() }", "#[cfg(test)] g() "),
            ("#[cfg(test)] let x = if a { 1 } else { 2 }; y();", "#[cfg(test)] let x = if a { 1 } else { 2 };"),
            ("#![cfg(test)] fn f() {}", "#![cfg(test)] fn f() {}"),
        ] {
            let source = Source::new(code);
            let ranges = source.under_cfg(|text| text.contains("test"));
            assert_eq!(ranges.iter().map(|range| &source.raw[range.clone()]).collect::<Vec<_>>(), [expected]);
        }
    }

    #[test]
    fn modules_in_other_files_are_named() {
        let source = Source::new("#[cfg(test)]\nmod suite;\n#[cfg(test)]\nmod inner { mod deep; }\nmod open;");
        assert_eq!(source.modules_within(&source.under_cfg(|text| text.contains("test"))), ["suite", "deep"]);
    }
}
