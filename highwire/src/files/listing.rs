//! The listing of a folder, as an HTML page.

use crate::message::html::escape_html;
use highwire_io::file::Listing;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC};
use std::fmt::Write;
use std::time::{Duration, UNIX_EPOCH};

/// The most items on a page. A longer list is of no use to a reader, and its page would be megabytes long.
pub(super) const MOST_ITEMS: usize = 10_000;

/// The characters that are percent-encoded in a link, which are all but the unreserved ones (RFC 3986 section 2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The last second of the year 9999. A file's date may be later, but an HTTP date has only four digits for the year.
const LAST_DATE: Duration = Duration::from_secs(253_402_300_799);

const STYLE: &str = "body{font:1rem/1.6 system-ui,sans-serif;margin:1rem auto;max-width:60rem;padding:0 1rem}\
h1{font-size:1.2rem;overflow-wrap:anywhere}table{border-collapse:collapse;width:100%}\
td{border-top:1px solid #8884;padding:.3rem .5rem;vertical-align:top}td:first-child{overflow-wrap:anywhere;width:99%}\
td+td{text-align:right;white-space:nowrap}a{display:block}\
@media(max-width:40rem){td+td+td{display:none}}@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}a{color:#8bf}}";

/// Returns the page of a folder: first folders, then files, both sorted by the bytes of their names.
pub(super) fn page(path: &[u8], mut listing: Listing) -> String {
    listing
        .items
        .sort_by(|(one, its), (other, others)| others.is_folder.cmp(&its.is_folder).then_with(|| one.cmp(other)));
    let mut title = String::from("/");
    escape_html(&String::from_utf8_lossy(path), &mut title);
    if !path.is_empty() {
        title.push('/');
    }
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
        <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
        <style>{STYLE}</style>\n<h1>{title}</h1>\n<table>\n"
    );
    if !path.is_empty() {
        page.push_str("<tr><td><a href=\"../\">../</a></td><td></td><td></td></tr>\n");
    }
    for (name, metadata) in &listing.items {
        let slash = if metadata.is_folder { "/" } else { "" };
        page.push_str("<tr><td><a href=\"./");
        for part in percent_encoding::percent_encode(name, RESERVED) {
            page.push_str(part);
        }
        page.push_str(slash);
        page.push_str("\">");
        escape_html(&String::from_utf8_lossy(name), &mut page);
        page.push_str(slash);
        let size = if metadata.is_folder { String::new() } else { size(metadata.length) };
        let date = httpdate::fmt_http_date(metadata.modified.min(UNIX_EPOCH + LAST_DATE));
        writeln!(page, "</a></td><td>{size}</td><td>{date}</td></tr>").expect("writing to a string cannot fail");
    }
    page.push_str("</table>\n");
    if listing.more {
        writeln!(page, "<p>There is more than these {MOST_ITEMS}.</p>").expect("writing to a string cannot fail");
    }
    page
}

/// Returns true if the listing shows an item with this name, because a request for it can succeed.
pub(super) fn is_shown(name: &[u8], hidden: bool) -> bool {
    (hidden || !name.starts_with(b".")) && !name.contains(&b'\\')
}

/// Formats a number of bytes for readers, such as `5.0 MiB`.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let power = (bytes.ilog2() / 10).min(UNITS.len() as u32);
    format!("{:.1} {}", bytes as f64 / (1_u64 << (10 * power)) as f64, UNITS[power as usize - 1])
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwire_io::file::Metadata;

    fn item(name: &[u8], is_folder: bool, length: u64) -> (Vec<u8>, Metadata) {
        let modified = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        (name.to_vec(), Metadata { is_folder, length, modified, changed: modified, number: 0 })
    }

    #[test]
    fn a_page_is_sorted_and_escaped() {
        let items = vec![
            item(b"b", false, 10),
            item(b"<script>alert('\"&", false, 5 << 20),
            item(b"a b\xff", false, 1536),
            item(b"z", true, 4096),
            item(b"javascript:x", false, 1),
        ];
        let page = page(b"x/<y>", Listing { items, more: true });
        let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("<tr>")).collect();
        let date = "<td>Fri, 15 Jan 2027 08:00:00 GMT</td></tr>";
        assert_eq!(
            rows,
            [
                "<tr><td><a href=\"../\">../</a></td><td></td><td></td></tr>".to_string(),
                format!("<tr><td><a href=\"./z/\">z/</a></td><td></td>{date}"),
                format!(
                    "<tr><td><a href=\"./%3Cscript%3Ealert%28%27%22%26\">&lt;script&gt;alert(&#39;&quot;&amp;</a></td>\
                    <td>5.0 MiB</td>{date}"
                ),
                format!("<tr><td><a href=\"./a%20b%FF\">a b\u{fffd}</a></td><td>1.5 KiB</td>{date}"),
                format!("<tr><td><a href=\"./b\">b</a></td><td>10 B</td>{date}"),
                format!("<tr><td><a href=\"./javascript%3Ax\">javascript:x</a></td><td>1 B</td>{date}"),
            ]
        );
        assert!(page.contains("<title>/x/&lt;y&gt;/</title>") && page.contains("There is more"));
        assert!(page.contains("width=device-width"));
    }

    #[test]
    fn what_cannot_be_asked_for_is_not_shown() {
        for (name, hidden, expected) in [
            (&b"a"[..], false, true),
            (b".hidden", false, false),
            (b".hidden", true, true),
            (b"back\\slash", false, false),
            (b"back\\slash", true, false),
        ] {
            assert_eq!(is_shown(name, hidden), expected, "{}", String::from_utf8_lossy(name));
        }
    }

    #[test]
    fn the_folder_itself_has_nothing_above_it() {
        let page = page(b"", Listing { items: vec![item(b".hidden", false, 1)], more: false });
        assert!(page.contains("<h1>/</h1>") && page.contains(".hidden") && !page.contains("../"));
    }
}
