//! A file and its precompressed variants, with the rendered header fields of their responses. Every response with a file
//! is made from an [`Entry`]. The cache keeps the entries that may be used again, if it has room.

use super::Site;
use super::coding::{CODINGS, Coding, Wanted};
use super::load::{Content, Look, Obstacle, Part, Source};
use super::validators::{State, Validators};
use highwire_engine::file_part::begins_warm;
use highwire_engine::response::Rendered;
use highwire_io::Instant;
use highwire_io::file::{Metadata, Open};
use http::{HeaderName, HeaderValue, header};
use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

/// The estimated number of bytes that an entry needs for fields, heads and tables, beside its contents and path.
const ENTRY_BYTES: usize = 1024;

/// A file with its precompressed variants.
pub(super) struct Entry {
    path: Vec<u8>,
    itself: Variant,
    coded: [Option<Variant>; CODINGS.len()],
    pub(super) may_be_kept: bool,
    /// The time at which the open files were last seen unchanged.
    seen_at: Cell<Option<Instant>>,
}

/// The result of comparing an entry with the folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Current,
    Outdated,
    /// The system cannot look into the folder, for example because no descriptors are left or the disk has failed.
    Unknown,
}

/// One coding of a file, with its fields.
pub(super) struct Variant {
    pub(super) content: Content,
    pub(super) validators: Validators,
    pub(super) media_type: HeaderValue,
    /// The fields of a response with the file.
    pub(super) fields: Rc<Rendered>,
    /// The fields of a 304.
    pub(super) fields_unmodified: Rc<Rendered>,
    metadata: Metadata,
    /// The time until which the beginning of the file is assumed to be in memory.
    warm_until: Cell<Option<Instant>>,
}

/// How long the beginning of a file is assumed to stay in memory, because the kernel evicts recently read bytes last.
const WARM: Duration = Duration::from_secs(1);

impl Entry {
    pub(super) fn new(source: Source, site: &Site) -> Entry {
        let Source { path, itself, coded, may_be_kept, looked_at } = source;
        let variant = |part, coding| Variant::new(part, coding, &path, site, looked_at.date);
        let itself = variant(itself, None);
        let mut codings = CODINGS.into_iter();
        let coded = coded.map(|part| {
            let coding = codings.next();
            part.map(|part| variant(part, coding))
        });
        Entry { itself, coded, may_be_kept, path, seen_at: Cell::new(None) }
    }

    /// Returns the variant that the client prefers.
    pub(super) fn variant(&self, wanted: Wanted) -> &Variant {
        wanted.iter().find_map(|coding| self.coded[coding as usize].as_ref()).unwrap_or(&self.itself)
    }

    /// Returns the number of bytes of memory that keeping the entry costs, without the cache's copy of the path.
    pub(super) fn cost(&self) -> usize {
        let contents = self.variants().map(|variant| match &variant.content {
            Content::Bytes(bytes) => bytes.len(),
            Content::File(_) => 0,
        });
        ENTRY_BYTES + self.path.len() + contents.sum::<usize>()
    }

    /// Returns the number of files that the entry keeps open.
    pub(super) fn descriptors(&self) -> usize {
        self.files().count()
    }

    fn variants(&self) -> impl Iterator<Item = &Variant> {
        self.coded.iter().flatten().chain([&self.itself])
    }

    fn files(&self) -> impl Iterator<Item = (&Variant, &Open)> {
        self.variants().filter_map(|variant| match &variant.content {
            Content::File(held) => Some((variant, &held.file)),
            Content::Bytes(_) => None,
        })
    }

    /// Returns true if the metadata of the entry's open files has not changed since they were opened. All requests of a
    /// worker's turn have the same `now`, so the kernel is asked only once per turn, unless a file has changed.
    pub(super) fn is_unchanged(&self, now: Instant) -> bool {
        let is_same = |(variant, file): (&Variant, &Open)| file.metadata_now().is_ok_and(|now| now == variant.metadata);
        if self.seen_at.get() == Some(now) {
            return true;
        }
        let is_same = self.files().all(is_same);
        self.seen_at.set(is_same.then_some(now));
        is_same
    }

    /// Compares the entry with the folder. A look that would have to wait for the disk counts as a difference.
    pub(super) fn standing(&self, look: Look<'_>) -> Standing {
        let variants = CODINGS.into_iter().zip(&self.coded).filter(|_| look.site.precompressed);
        let variants = variants.map(|(coding, variant)| (Some(coding), variant.as_ref()));
        let mut standing = Standing::Current;
        for (coding, variant) in variants.chain([(None, Some(&self.itself))]) {
            match (look.metadata(&self.path, coding), variant) {
                // This file is unchanged. A file with a weak validator counts as changed, because its bytes may differ
                // under the same metadata.
                (Ok(metadata), Some(variant)) if metadata == variant.metadata && !variant.validators.is_weak() => {}
                (Err(Obstacle::Missing | Obstacle::Forbidden), None) => {}
                (Err(Obstacle::Failed), _) => standing = Standing::Unknown,
                _ => return Standing::Outdated,
            }
        }
        standing
    }
}

impl Variant {
    pub(super) fn length(&self) -> u64 {
        self.metadata.length
    }

    /// Returns true if the beginning of the file is in memory, or was at a check less than [`WARM`] ago.
    pub(super) fn begins_warm(&self, file: &Open, now: Instant) -> bool {
        if self.warm_until.get().is_some_and(|until| now < until) {
            return true;
        }
        let is_warm = begins_warm(file);
        self.warm_until.set(is_warm.then(|| now + WARM));
        is_warm
    }

    fn new(part: Part, coding: Option<Coding>, path: &[u8], site: &Site, now: SystemTime) -> Variant {
        let Part { metadata, content } = part;
        let Metadata { length, modified, changed, .. } = metadata;
        let name = coding.map_or("", Coding::name);
        let validators = Validators::new(State { length, modified, changed, coding: name, now });
        let media_type = site.media_type(path);
        let mut fields: Vec<(HeaderName, HeaderValue)> = Vec::with_capacity(8);
        fields.push((header::ETAG, validators.etag()));
        if let Some(modified) = validators.last_modified() {
            fields.push((header::LAST_MODIFIED, modified));
        }
        if let Some((_, value)) = site.cache_control.iter().find(|(pattern, _)| matches(pattern, path)) {
            fields.push((header::CACHE_CONTROL, value.clone()));
        }
        if site.precompressed {
            fields.push((header::VARY, HeaderValue::from_static("accept-encoding")));
        }
        let fields_unmodified = Rendered::new(fields.clone());
        if coding.is_some() {
            fields.push((header::CONTENT_ENCODING, HeaderValue::from_static(name)));
        }
        fields.push((header::ACCEPT_RANGES, HeaderValue::from_static("bytes")));
        fields.push((header::CONTENT_TYPE, media_type.clone()));
        let fields = Rendered::new(fields);
        Variant { content, validators, media_type, fields, fields_unmodified, metadata, warm_until: Cell::new(None) }
    }
}

/// Returns true if a path matches a pattern, in which the first `*` stands for any text.
fn matches(pattern: &str, path: &[u8]) -> bool {
    match pattern.split_once('*') {
        None => pattern.as_bytes() == path,
        Some((begin, end)) => {
            path.len() >= begin.len() + end.len()
                && path.starts_with(begin.as_bytes())
                && path.ends_with(end.as_bytes())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, path, expected) in [
            ("*", "a/b", true),
            ("*", "", true),
            ("*.css", "a/b.css", true),
            ("*.css", "css", false),
            ("assets/*", "assets/a", true),
            ("assets/*", "other/assets/a", false),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("index.html", "index.html", true),
            ("index.html", "a/index.html", false),
        ] {
            assert_eq!(matches(pattern, path.as_bytes()), expected, "{pattern} {path}");
        }
    }
}
