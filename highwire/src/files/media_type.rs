//! Media types by the endings of file names.
//!
//! A table is used instead of a library, because browsers act on only about a hundred types, each row is a complete
//! field value with its charset, and the choice is visible where registries disagree (`.js`, `.ts`, `.xml`). All other
//! files are `application/octet-stream`, which browsers save and do not run;
//! [`Files::media_type`](super::Files::media_type) adds types.

/// The type of files with an unknown ending or none.
pub(super) const UNKNOWN: &str = "application/octet-stream";

/// The length of the longest ending that is looked up, in bytes.
const ENDING_BYTES: usize = 16;

/// Returns the ending of a file's name after its last dot.
pub(super) fn ending(path: &[u8]) -> Option<&[u8]> {
    let name = &path[path.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1)..];
    let dot = name.iter().rposition(|&byte| byte == b'.')?;
    Some(&name[dot + 1..])
}

/// Returns the media type of a path.
pub(crate) fn of(path: &[u8]) -> &'static str {
    let Some(ending) = ending(path).filter(|ending| ending.len() <= ENDING_BYTES) else { return UNKNOWN };
    let ending = ending.to_ascii_lowercase();
    TYPES.binary_search_by(|(known, _)| known.as_bytes().cmp(&ending)).map_or(UNKNOWN, |at| TYPES[at].1)
}

/// Endings and their media types, sorted by ending for binary search.
const TYPES: &[(&str, &str)] = &[
    ("3gp", "video/3gpp"),
    ("7z", "application/x-7z-compressed"),
    ("aac", "audio/aac"),
    ("apng", "image/apng"),
    ("atom", "application/atom+xml"),
    ("avi", "video/x-msvideo"),
    ("avif", "image/avif"),
    ("bmp", "image/bmp"),
    ("br", "application/octet-stream"),
    ("bz2", "application/x-bzip2"),
    ("c", "text/plain; charset=utf-8"),
    ("cjs", "text/javascript; charset=utf-8"),
    ("conf", "text/plain; charset=utf-8"),
    ("css", "text/css; charset=utf-8"),
    ("csv", "text/csv; charset=utf-8"),
    ("deb", "application/vnd.debian.binary-package"),
    ("doc", "application/msword"),
    ("docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    ("eot", "application/vnd.ms-fontobject"),
    ("epub", "application/epub+zip"),
    ("flac", "audio/flac"),
    ("geojson", "application/geo+json"),
    ("gif", "image/gif"),
    ("glb", "model/gltf-binary"),
    ("gltf", "model/gltf+json"),
    ("gz", "application/gzip"),
    ("h", "text/plain; charset=utf-8"),
    ("heic", "image/heic"),
    ("heif", "image/heif"),
    ("htm", "text/html; charset=utf-8"),
    ("html", "text/html; charset=utf-8"),
    ("ico", "image/x-icon"),
    ("ics", "text/calendar; charset=utf-8"),
    ("iso", "application/x-iso9660-image"),
    ("jar", "application/java-archive"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript; charset=utf-8"),
    ("json", "application/json"),
    ("jsonld", "application/ld+json"),
    ("jxl", "image/jxl"),
    ("log", "text/plain; charset=utf-8"),
    ("m3u8", "application/vnd.apple.mpegurl"),
    ("m4a", "audio/mp4"),
    ("m4v", "video/mp4"),
    ("map", "application/json"),
    ("md", "text/markdown; charset=utf-8"),
    ("mjs", "text/javascript; charset=utf-8"),
    ("mkv", "video/matroska"),
    ("mov", "video/quicktime"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("mpd", "application/dash+xml"),
    ("mpeg", "video/mpeg"),
    ("mpg", "video/mpeg"),
    ("ndjson", "application/x-ndjson"),
    ("odp", "application/vnd.oasis.opendocument.presentation"),
    ("ods", "application/vnd.oasis.opendocument.spreadsheet"),
    ("odt", "application/vnd.oasis.opendocument.text"),
    ("oga", "audio/ogg"),
    ("ogg", "audio/ogg"),
    ("ogv", "video/ogg"),
    ("opus", "audio/ogg"),
    ("otf", "font/otf"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("ppt", "application/vnd.ms-powerpoint"),
    ("pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
    ("ps", "application/postscript"),
    ("py", "text/x-python; charset=utf-8"),
    ("rar", "application/vnd.rar"),
    ("rs", "text/plain; charset=utf-8"),
    ("rss", "application/rss+xml"),
    ("rtf", "application/rtf"),
    ("sh", "text/x-shellscript; charset=utf-8"),
    ("sql", "application/sql"),
    ("srt", "text/plain; charset=utf-8"),
    ("svg", "image/svg+xml"),
    ("svgz", "application/gzip"),
    ("tar", "application/x-tar"),
    ("tgz", "application/gzip"),
    ("tif", "image/tiff"),
    ("tiff", "image/tiff"),
    ("toml", "application/toml"),
    ("ts", "video/mp2t"),
    ("tsv", "text/tab-separated-values; charset=utf-8"),
    ("ttf", "font/ttf"),
    ("txt", "text/plain; charset=utf-8"),
    ("vcf", "text/vcard; charset=utf-8"),
    ("vtt", "text/vtt; charset=utf-8"),
    ("wasm", "application/wasm"),
    ("wav", "audio/wav"),
    ("weba", "audio/webm"),
    ("webm", "video/webm"),
    ("webmanifest", "application/manifest+json"),
    ("webp", "image/webp"),
    ("woff", "font/woff"),
    ("woff2", "font/woff2"),
    ("xhtml", "application/xhtml+xml"),
    ("xls", "application/vnd.ms-excel"),
    ("xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    ("xml", "application/xml"),
    ("xz", "application/x-xz"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("zip", "application/zip"),
    ("zst", "application/zstd"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order_and_within_its_bounds() {
        assert!(TYPES.windows(2).all(|pair| pair[0].0 < pair[1].0), "the endings are sorted");
        for (ending, media_type) in TYPES {
            assert!(ending.len() <= ENDING_BYTES && *ending == ending.to_ascii_lowercase(), "{ending}");
            assert_eq!(media_type.starts_with("text/"), media_type.ends_with("; charset=utf-8"), "{media_type}");
        }
    }

    #[test]
    fn types_are_found_by_the_last_ending_in_any_case() {
        for (path, media_type) in [
            ("index.html", "text/html; charset=utf-8"),
            ("a/b.min.JS", "text/javascript; charset=utf-8"),
            ("a.tar.gz", "application/gzip"),
            ("a.woff2", "font/woff2"),
            ("a.d/b", UNKNOWN),
            ("a.", UNKNOWN),
            ("Makefile", UNKNOWN),
            ("a.nobody-knows-this-one", UNKNOWN),
        ] {
            assert_eq!(of(path.as_bytes()), media_type, "{path}");
        }
    }
}
