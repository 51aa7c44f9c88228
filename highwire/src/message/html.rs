//! Text in pages of HTML.

/// Escapes text for HTML, including attribute values in quotes.
pub(crate) fn escape_html(text: &str, page: &mut String) {
    for letter in text.chars() {
        match letter {
            '&' => page.push_str("&amp;"),
            '<' => page.push_str("&lt;"),
            '>' => page.push_str("&gt;"),
            '"' => page.push_str("&quot;"),
            '\'' => page.push_str("&#39;"),
            letter => page.push(letter),
        }
    }
}
