//! A worker's cache of requested files. It holds the bytes of small files, and keeps large files open.
//!
//! Each kind has its own limit. Only paths of existing files are cached, so that a client cannot fill the cache with
//! invented paths. To make room, the CLOCK algorithm removes entries that have not been used for long: a hand circles
//! over the entries, clears the mark of each entry that was used since the hand's last visit, and removes the first
//! entry without a mark.

use super::entry::Entry;
use super::open::Keeping;
use highwire_io::Instant;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

/// How long an entry is served after a check without another look into the folder. The first request after this time
/// makes the worker compare the entry with the folder again.
const FRESH: Duration = Duration::from_secs(1);

/// How long an entry is served if the system cannot check it, counted from its last successful check. A server that has
/// run out of descriptors gets some back when connections end; until then it sends cached files instead of errors.
const DOUBT: Duration = Duration::from_secs(60);

/// The time after which a file is closed if it is not requested. Requests for other files trigger the check. The cache
/// may close the file earlier to make room. The bytes of a deleted file stay on the disk while the file is open.
const IDLE: Duration = Duration::from_secs(60);

/// The most descriptors of large files that a worker keeps for a folder. This is few compared with the worker's
/// connections, and enough for the large files of most sites.
const OPEN_FILES: usize = 64;

/// The divisor for a lower limit in processes with few descriptors. Each worker keeps at most 1/256 of the process's
/// descriptors for a folder.
const OPEN_SHARE: usize = 256;

/// The cache of one folder in one worker. The module describes it.
pub(super) struct Cache {
    /// Small files; their weight is in bytes.
    small: Kind,
    /// Files that are kept open; their weight is in descriptors.
    open: Kind,
}

/// Entries with a limit on their total weight.
struct Kind {
    most: usize,
    /// The largest permitted weight of one entry.
    most_of_one: usize,
    weight: usize,
    places: HashMap<Box<[u8]>, usize>,
    kept: Vec<Kept>,
    hand: usize,
    /// The index that [`Kind::close_idle`] checks next.
    next: usize,
}

struct Kept {
    path: Box<[u8]>,
    entry: Rc<Entry>,
    weight: usize,
    was_used: bool,
    looked_at: Instant,
    /// The time at which a check last found the entry equal to the files in the folder.
    seen_at: Instant,
    /// The entry's reserved places among the open files of all caches.
    _keeping: Keeping,
}

/// The result of [`Cache::get`].
pub(super) enum Known {
    Fresh(Rc<Entry>),
    /// The caller must compare the entry with the folder, and call [`Cache::confirm`], [`Cache::doubt`] or
    /// [`Cache::remove`].
    Stale(Rc<Entry>),
    Nothing,
}

impl Cache {
    /// Creates a cache for up to `most_bytes` bytes of small files. If this is 0, the cache does not keep large files
    /// open either.
    pub(super) fn new(most_bytes: usize) -> Cache {
        let open = if most_bytes == 0 { 0 } else { OPEN_FILES.min(highwire_io::memory::descriptors() / OPEN_SHARE) };
        Cache::with_open(most_bytes, open)
    }

    fn with_open(most_bytes: usize, open: usize) -> Cache {
        // One small file may use a fourth of the bytes. One large file with its precompressed siblings may use all
        // descriptors, because it needs few, and if the limit is low, keeping one file is better than keeping none.
        Cache { small: Kind::new(most_bytes, most_bytes / 4), open: Kind::new(open, open) }
    }

    pub(super) fn get(&mut self, path: &[u8], now: Instant) -> Known {
        self.open.close_idle(now);
        match self.small.get(path, now) {
            Known::Nothing => self.open.get(path, now),
            known => known,
        }
    }

    /// Records that the entry is equal to the files in the folder.
    pub(super) fn confirm(&mut self, path: &[u8], now: Instant) {
        self.small.confirm(path, now);
        self.open.confirm(path, now);
    }

    /// Records that the system could not compare the entry with the folder. Returns true if it may still be served.
    pub(super) fn doubt(&mut self, path: &[u8], now: Instant) -> bool {
        self.small.doubt(path, now) || self.open.doubt(path, now)
    }

    pub(super) fn remove(&mut self, path: &[u8]) {
        self.small.remove(path);
        self.open.remove(path);
    }

    /// Adds an entry, unless it has more weight than one entry may have.
    pub(super) fn insert(&mut self, path: &[u8], entry: &Rc<Entry>, now: Instant, keeping: Keeping) {
        self.remove(path);
        match entry.descriptors() {
            0 => self.small.insert(path, entry, entry.cost() + path.len(), now, keeping),
            count => self.open.insert(path, entry, count, now, keeping),
        }
    }
}

impl Kind {
    fn new(most: usize, most_of_one: usize) -> Kind {
        Kind { most, most_of_one, weight: 0, places: HashMap::new(), kept: Vec::new(), hand: 0, next: 0 }
    }

    fn get(&mut self, path: &[u8], now: Instant) -> Known {
        let Some(&place) = self.places.get(path) else { return Known::Nothing };
        let kept = &mut self.kept[place];
        kept.was_used = true;
        match now.since(kept.looked_at) < FRESH {
            true => Known::Fresh(kept.entry.clone()),
            false => Known::Stale(kept.entry.clone()),
        }
    }

    fn confirm(&mut self, path: &[u8], now: Instant) {
        if let Some(&place) = self.places.get(path) {
            let kept = &mut self.kept[place];
            (kept.looked_at, kept.seen_at) = (now, now);
        }
    }

    fn doubt(&mut self, path: &[u8], now: Instant) -> bool {
        let Some(&place) = self.places.get(path) else { return false };
        let kept = &mut self.kept[place];
        kept.looked_at = now;
        now.since(kept.seen_at) < DOUBT
    }

    fn remove(&mut self, path: &[u8]) {
        let Some(place) = self.places.remove(path) else { return };
        self.weight -= self.kept.swap_remove(place).weight;
        if let Some(moved) = self.kept.get(place)
            && let Some(its) = self.places.get_mut(&moved.path)
        {
            *its = place;
        }
    }

    fn insert(&mut self, path: &[u8], entry: &Rc<Entry>, weight: usize, now: Instant, keeping: Keeping) {
        if weight > self.most_of_one {
            return;
        }
        while self.weight + weight > self.most {
            self.throw_one_out();
        }
        self.weight += weight;
        self.places.insert(path.into(), self.kept.len());
        let (path, entry) = (path.into(), entry.clone());
        let (looked_at, seen_at) = (now, now);
        self.kept.push(Kept { path, entry, weight, was_used: false, looked_at, seen_at, _keeping: keeping });
    }

    fn throw_one_out(&mut self) {
        loop {
            let place = if self.hand < self.kept.len() { self.hand } else { 0 };
            // Removal moves the last entry to this place. The hand skips that entry, so that it has a full round to be
            // used.
            self.hand = place + 1;
            let kept = &mut self.kept[place];
            if !std::mem::take(&mut kept.was_used) {
                let path = kept.path.clone();
                return self.remove(&path);
            }
        }
    }

    /// Checks the next entry, and removes it if no request has led to a look at its file for [`IDLE`].
    fn close_idle(&mut self, now: Instant) {
        self.next = if self.next < self.kept.len() { self.next } else { 0 };
        let Some(kept) = self.kept.get(self.next) else { return };
        if now.since(kept.looked_at) > IDLE {
            let path = kept.path.clone();
            self.remove(&path);
        } else {
            self.next += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Site;
    use crate::files::coding::{CODINGS, Wanted};
    use crate::files::load::{Content, Moment, Part, Source};
    use crate::files::open::OpenFiles;
    use std::time::UNIX_EPOCH;

    const NOW: Instant = Instant { nanoseconds: 0 };

    fn keeping() -> Keeping {
        OpenFiles::new(4).keep(0).expect("a reservation of no places")
    }

    fn entry(length: usize) -> Rc<Entry> {
        entry_of(length, Content::Bytes(vec![0; length].into()))
    }

    fn open_entry() -> Rc<Entry> {
        let folder = highwire_io::file::Folder::open(&std::env::temp_dir()).expect("a folder");
        let file = highwire_io::file::Files::open(&folder, b"")
            .expect("the folder itself, which takes a descriptor like any file");
        let held = OpenFiles::new(4).hold(file).expect("the first open file");
        entry_of(1 << 20, Content::File(held))
    }

    fn entry_of(length: usize, content: Content) -> Rc<Entry> {
        entry_in(length, content, [const { None }; CODINGS.len()])
    }

    fn entry_in(length: usize, content: Content, coded: [Option<Content>; CODINGS.len()]) -> Rc<Entry> {
        let metadata = highwire_io::file::Metadata {
            is_folder: false,
            length: length as u64,
            modified: UNIX_EPOCH,
            changed: UNIX_EPOCH,
            number: 0,
        };
        let itself = Part { metadata, content };
        let coded = coded.map(|content| content.map(|content| Part { metadata, content }));
        let looked_at = Moment { instant: NOW, date: UNIX_EPOCH };
        let source = Source { path: b"a".to_vec(), itself, coded, may_be_kept: true, looked_at };
        let site = Site::open(crate::files::Files::new(std::env::temp_dir())).expect("a folder");
        Rc::new(Entry::new(source, &site))
    }

    fn has(cache: &mut Cache, path: &str) -> bool {
        !matches!(cache.get(path.as_bytes(), NOW), Known::Nothing)
    }

    #[test]
    fn an_entry_is_fresh_for_a_while_and_then_looked_at() {
        for entry in [entry(10), open_entry()] {
            let mut cache = Cache::with_open(1 << 20, OPEN_FILES);
            cache.insert(b"a", &entry, NOW, keeping());
            assert!(matches!(cache.get(b"a", NOW + FRESH / 2), Known::Fresh(_)));
            assert!(matches!(cache.get(b"a", NOW + FRESH), Known::Stale(_)));
            cache.confirm(b"a", NOW + FRESH);
            assert!(matches!(cache.get(b"a", NOW + FRESH), Known::Fresh(_)));
            cache.remove(b"a");
            assert!(!has(&mut cache, "a"));
            assert_eq!((cache.small.weight, cache.open.weight), (0, 0));
        }
    }

    fn check(kind: &Kind, most: usize) {
        assert!(kind.weight <= most);
        assert_eq!(kind.weight, kind.kept.iter().map(|kept| kept.weight).sum::<usize>());
        assert!(kind.places.iter().all(|(path, &place)| kind.kept[place].path == *path));
        assert_eq!(kind.places.len(), kind.kept.len());
    }

    #[test]
    fn the_bound_holds_and_what_is_asked_for_stays() {
        let mut cache = Cache::with_open(100_000, OPEN_FILES);
        let (small, large, open) = (entry(9_000), entry(30_000), open_entry());
        cache.insert(b"large", &large, NOW, keeping());
        assert!(!has(&mut cache, "large"), "the entry is larger than a fourth of the limit");
        for (entry, name) in [(&small, "small"), (&open, "open")] {
            cache.insert(b"wanted", entry, NOW, keeping());
            for number in 0..100 {
                cache.insert(format!("{name}{number}").as_bytes(), entry, NOW, keeping());
                assert!(has(&mut cache, "wanted"), "after {number}");
                check(&cache.small, 100_000);
                check(&cache.open, OPEN_FILES);
            }
            let living = (0..100).filter(|number| has(&mut cache, &format!("{name}{number}"))).count();
            assert!((1..OPEN_FILES).contains(&living), "{living} entries are left");
        }
        let mut none = Cache::new(0);
        none.insert(b"a", &open, NOW, keeping());
        assert!(!has(&mut none, "a"), "a cache of 0 bytes keeps nothing");
    }

    #[test]
    fn where_few_may_be_open_one_with_its_siblings_is_kept() {
        let held = || match &open_entry().variant(Wanted::default()).content {
            Content::File(held) => held.clone(),
            Content::Bytes(_) => unreachable!("the entry has an open file"),
        };
        for (most, siblings, is_kept) in [(4, 3, true), (4, 0, true), (1, 0, true), (1, 1, false), (0, 0, false)] {
            let mut cache = Cache::with_open(1 << 20, most);
            let coded = std::array::from_fn(|at| (at < siblings).then(held).map(Content::File));
            let entry = entry_in(1 << 20, Content::File(held()), coded);
            cache.insert(b"a", &entry, NOW, keeping());
            assert_eq!(has(&mut cache, "a"), is_kept, "{most} descriptors, {siblings} siblings");
            check(&cache.open, most);
        }
    }

    #[test]
    fn files_that_nobody_asks_for_are_closed_by_and_by() {
        let mut cache = Cache::with_open(1 << 20, OPEN_FILES);
        let later = NOW + IDLE + FRESH;
        for number in 0..10 {
            cache.insert(format!("{number}").as_bytes(), &open_entry(), NOW, keeping());
        }
        cache.confirm(b"3", later);
        for _ in 0..20 {
            cache.get(b"3", later);
            check(&cache.open, OPEN_FILES);
        }
        assert_eq!((cache.open.kept.len(), has(&mut cache, "3")), (1, true));
    }
}
