//! The dynamic table (RFC 7541 sections 2.3.2 and 4): a list of entries, the newest first, from which the oldest are
//! evicted to keep a bound in bytes.
//!
//! The text of all entries lies in one vector, an entry's name and value together, and new entries at the end. Evicting
//! moves nothing; the text of evicted entries stays in front until the vector is full. Then the live text moves to the
//! front if it fills at most half of the vector together with the new entry, else into a larger vector. On average a
//! byte is thus copied about once after it was added, the memory follows the use and not the bound, and an entry is
//! always one slice. A ring of the table's size would need half the memory, but would split entries or waste bytes at
//! its end.
//!
//! The position of an entry is a count of all bytes ever inserted, so that moving the text changes no entry.

use super::{Entry, FIELD_OVERHEAD};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// The first capacity for text in bytes. It holds a few fields, so that the vector does not grow from nothing in small
/// steps.
const FIRST_BYTES: usize = 256;

/// The position of an entry's text.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// The number of text bytes ever inserted before this entry, modulo 2^32. Only differences matter, and these are
    /// below 2^32.
    start: u32,
    name_bytes: u32,
    value_bytes: u32,
    name_index: u8,
}

impl Place {
    fn text_bytes(&self) -> u32 {
        self.name_bytes + self.value_bytes
    }
}

/// A dynamic table.
#[derive(Debug)]
pub(super) struct Table {
    text: Vec<u8>,
    /// The number of text bytes ever inserted before the first byte of `text`, modulo 2^32.
    base: u32,
    /// The entries' positions, the oldest first.
    places: VecDeque<Place>,
    bytes: u32,
    most_bytes: u32,
    version: u32,
}

impl Table {
    pub(super) const fn new(most_bytes: u32) -> Table {
        Table { text: Vec::new(), base: 0, places: VecDeque::new(), bytes: 0, most_bytes, version: 0 }
    }

    /// Returns the table's size in bytes as RFC 7541 section 4.1 defines it.
    pub(super) fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Returns the largest size in bytes that the table may have.
    pub(super) fn most_bytes(&self) -> u32 {
        self.most_bytes
    }

    /// Returns a number that changes whenever an index may refer to another entry.
    pub(super) fn version(&self) -> u32 {
        self.version
    }

    /// Changes the version.
    pub(super) fn renew(&mut self) {
        self.version = self.version.wrapping_add(1);
    }

    /// Returns the number of bytes of heap memory that the table holds.
    pub(super) fn memory_bytes(&self) -> usize {
        self.text.capacity() + self.places.capacity() * size_of::<Place>()
    }

    /// Returns the entry that is preceded by `newer` newer entries, if there is one.
    #[inline]
    pub(super) fn entry(&self, newer: usize) -> Option<Entry<'_>> {
        let place = self.places.get(self.places.len().checked_sub(newer + 1)?)?;
        let start = place.start.wrapping_sub(self.base) as usize;
        Some(Entry {
            text: &self.text[start..start + place.text_bytes() as usize],
            name_bytes: place.name_bytes as usize,
            name_index: place.name_index,
        })
    }

    /// Adds an entry and evicts old ones for it. An entry that is larger than the table empties the table and is not
    /// added, which is no error (RFC 7541 section 4.4).
    pub(super) fn insert(&mut self, name: &[u8], value: &[u8], name_index: u8) {
        self.renew();
        let text_bytes = name.len() + value.len();
        let cost = text_bytes + FIELD_OVERHEAD as usize;
        let most_bytes = self.most_bytes as usize;
        self.evict(most_bytes.saturating_sub(cost) as u32);
        if cost > most_bytes {
            self.evict_all();
            return;
        }
        if self.places.is_empty() {
            self.evict_all();
        }
        if self.text.len() + text_bytes > self.text.capacity() {
            self.make_room(text_bytes);
        }
        let start = self.base.wrapping_add(self.text.len() as u32);
        self.text.extend_from_slice(name);
        self.text.extend_from_slice(value);
        let (name_bytes, value_bytes) = (name.len() as u32, value.len() as u32);
        self.places.push_back(Place { start, name_bytes, value_bytes, name_index });
        self.bytes += cost as u32;
    }

    /// Changes the largest size, evicts entries beyond it, and frees memory that a table of this size does not need.
    pub(super) fn resize(&mut self, most_bytes: u32) {
        if most_bytes == self.most_bytes {
            return;
        }
        self.renew();
        self.most_bytes = most_bytes;
        self.evict(most_bytes);
        if self.text.capacity() > 2 * most_bytes as usize {
            self.move_live(self.live_bytes());
        }
        self.places.shrink_to((most_bytes / FIELD_OVERHEAD) as usize);
    }

    /// Evicts the oldest entries until the table's size is at most `most_bytes`.
    fn evict(&mut self, most_bytes: u32) {
        while self.bytes > most_bytes
            && let Some(place) = self.places.pop_front()
        {
            self.bytes -= place.text_bytes() + FIELD_OVERHEAD;
        }
    }

    /// Removes all entries. New text then begins at the vector's front.
    fn evict_all(&mut self) {
        self.places.clear();
        self.text.clear();
        self.bytes = 0;
    }

    fn live_bytes(&self) -> usize {
        self.bytes as usize - self.places.len() * FIELD_OVERHEAD as usize
    }

    /// Makes room for a new entry's text after the live text.
    fn make_room(&mut self, text_bytes: usize) {
        let needed = self.live_bytes() + text_bytes;
        if 2 * needed <= self.text.capacity() {
            let front = self.text.len() - self.live_bytes();
            self.text.copy_within(front.., 0);
            self.text.truncate(self.live_bytes());
            self.base = self.base.wrapping_add(front as u32);
        } else {
            // Twice the table's largest size suffices, because the needed bytes fit the table.
            let most = 2 * self.most_bytes as usize;
            self.move_live((2 * needed).next_power_of_two().max(FIRST_BYTES).min(most));
        }
    }

    /// Moves the live text to a vector of this capacity.
    fn move_live(&mut self, capacity: usize) {
        let front = self.text.len() - self.live_bytes();
        let mut text = Vec::with_capacity(capacity);
        text.extend_from_slice(&self.text[front..]);
        self.text = text;
        self.base = self.base.wrapping_add(front as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::String;

    /// A table as the RFC describes it: a list of entries, the newest first.
    struct Naive {
        entries: Vec<(String, String)>,
        most_bytes: usize,
    }

    impl Naive {
        fn bytes(&self) -> usize {
            self.entries.iter().map(|(name, value)| name.len() + value.len() + 32).sum()
        }

        fn fit(&mut self) {
            while self.bytes() > self.most_bytes {
                self.entries.pop();
            }
        }
    }

    fn check(table: &Table, naive: &Naive) {
        assert_eq!(table.places.len(), naive.entries.len());
        assert_eq!(table.bytes() as usize, naive.bytes());
        for (newer, (name, value)) in naive.entries.iter().enumerate() {
            let entry = table.entry(newer).expect("it was not evicted");
            assert_eq!((entry.name(), entry.value()), (name.as_bytes(), value.as_bytes()));
        }
        assert_eq!(table.entry(naive.entries.len()), None);
        assert_eq!(table.entry(usize::MAX - 1), None);
        assert!(table.text.capacity() <= 2 * naive.most_bytes, "{} bytes held", table.text.capacity());
        assert!(table.places.capacity() * 32 <= naive.most_bytes.next_power_of_two().max(128), "too many places");
    }

    #[test]
    fn it_is_a_list_that_forgets() {
        for most_bytes in [0, 31, 32, 33, 100, 256, 1000, 4096] {
            let mut table = Table::new(most_bytes);
            let mut naive = Naive { entries: Vec::new(), most_bytes: most_bytes as usize };
            for step in 0..2000_usize {
                if step % 97 == 96 {
                    let most_bytes = [most_bytes, most_bytes / 2, 0, most_bytes / 3][step / 97 % 4];
                    table.resize(most_bytes);
                    naive.most_bytes = most_bytes as usize;
                } else {
                    let name = format!("{step}{}", "n".repeat(step * 7 % 40));
                    let value = "v".repeat(if step % 50 == 0 { step * 3 } else { step * 13 % 90 });
                    table.insert(name.as_bytes(), value.as_bytes(), 0);
                    naive.entries.insert(0, (name, value));
                }
                naive.fit();
                check(&table, &naive);
            }
        }
    }

    #[test]
    fn an_entry_that_just_fits_stays_alone_and_a_larger_one_empties() {
        let mut table = Table::new(64);
        table.insert(b"a", b"", 0);
        table.insert(&[b'n'; 16], &[b'v'; 16], 7);
        assert_eq!((table.places.len(), table.bytes()), (1, 64));
        assert_eq!(table.entry(0).map(|entry| (entry.name_bytes, entry.name_index)), Some((16, 7)));
        table.insert(&[b'n'; 16], &[b'v'; 17], 0);
        assert_eq!((table.places.len(), table.bytes()), (0, 0));
    }

    #[test]
    fn the_version_tells_every_change_and_nothing_else() {
        let mut table = Table::new(64);
        let version = table.version();
        let _ = table.entry(0);
        table.resize(64);
        assert_eq!(table.version(), version);
        table.insert(b"a", b"b", 0);
        assert_ne!(table.version(), version);
        let version = table.version();
        table.resize(63);
        assert_ne!(table.version(), version);
    }

    #[test]
    fn the_steady_state_keeps_its_memory() {
        let mut table = Table::new(4096);
        let mut held = 0;
        for step in 0..10_000 {
            table.insert(b"date", format!("{step:029}").as_bytes(), 33);
            if step == 1000 {
                held = table.memory_bytes();
            }
        }
        assert_eq!(table.memory_bytes(), held);
    }

    #[test]
    fn counting_bytes_may_wrap_around() {
        let mut table = Table::new(256);
        table.base = u32::MAX - 50;
        for step in 0..100 {
            table.insert(b"name", format!("{step}").as_bytes(), 0);
            assert_eq!(table.entry(0).map(|entry| entry.value().to_vec()), Some(format!("{step}").into_bytes()));
        }
        assert!(table.base < 1000);
    }
}
