//! Connection attempts in progress. The driver's events identify an attempt by its id, and the loop's operations
//! identify it by its token.

use crate::SocketId;
use crate::slots::{SLOTS_KEPT, Slots};
use std::collections::HashMap;
use std::io;

/// The attempts of one driver. `T` is the socket and its peer in the real drivers, and the peer's address in the
/// simulator.
#[derive(Debug)]
pub(crate) struct Connecting<T> {
    attempts: Slots<(u64, T)>,
    by_token: HashMap<u64, SocketId>,
}

impl<T> Connecting<T> {
    pub(crate) fn new() -> Connecting<T> {
        Connecting { attempts: Slots::new(), by_token: HashMap::new() }
    }

    /// Checks that no attempt in progress has the token.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::AlreadyExists`] if an attempt in progress has it.
    pub(crate) fn check(&self, token: u64) -> io::Result<()> {
        if !self.by_token.contains_key(&token) {
            return Ok(());
        }
        let text = format!("a connection attempt with the token {token} is in progress already");
        Err(io::Error::new(io::ErrorKind::AlreadyExists, text))
    }

    /// Adds an attempt and returns its id. Once the socket is connected, it gets another id.
    ///
    /// # Errors
    /// Returns the same error as [`check`](Self::check).
    pub(crate) fn insert(&mut self, token: u64, value: T) -> io::Result<SocketId> {
        self.check(token)?;
        let attempt = self.attempts.insert((token, value));
        self.by_token.insert(token, attempt);
        Ok(attempt)
    }

    pub(crate) fn get(&mut self, attempt: SocketId) -> Option<&mut T> {
        self.attempts.get(attempt).map(|(_, value)| value)
    }

    /// Removes an attempt and returns its token and value, or `None` if there is no such attempt.
    pub(crate) fn remove(&mut self, attempt: SocketId) -> Option<(u64, T)> {
        let (token, value) = self.attempts.remove(attempt)?;
        self.by_token.remove(&token);
        if self.by_token.is_empty() {
            self.by_token.shrink_to(SLOTS_KEPT);
        }
        Some((token, value))
    }

    /// Removes the attempt with this token and returns its id and value, or `None` if there is no such attempt.
    pub(crate) fn cancel(&mut self, token: u64) -> Option<(SocketId, T)> {
        let attempt = self.by_token.remove(&token)?;
        let (_, value) = self.attempts.remove(attempt)?;
        Some((attempt, value))
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = SocketId> {
        self.attempts.ids()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_names_one_attempt_until_it_ends() {
        let mut connecting = Connecting::new();
        let first = connecting.insert(7, 'a').expect("the token is free");
        assert_eq!(connecting.insert(7, 'b').expect_err("it is taken").kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(connecting.get(first), Some(&mut 'a'));
        assert_eq!(connecting.remove(first), Some((7, 'a')));
        assert_eq!(connecting.cancel(7), None);
        let second = connecting.insert(7, 'c').expect("the token is free again");
        assert_eq!(connecting.get(first), None);
        assert_eq!(connecting.cancel(7), Some((second, 'c')));
        assert_eq!(connecting.ids().count(), 0);
    }
}
