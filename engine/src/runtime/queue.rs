//! A queue that usually has at most one element.

use std::collections::VecDeque;

/// A queue. Its first element needs no allocation, and memory for others is freed when the queue is empty, because there
/// are two queues for each idle tunnel.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    first: Option<T>,
    /// The elements behind `first`. There are none if `first` is `None`.
    #[expect(clippy::box_collection, reason = "the box is a quarter as large, and usually there is none")]
    rest: Option<Box<VecDeque<T>>>,
}

impl<T> Default for Queue<T> {
    fn default() -> Queue<T> {
        Queue { first: None, rest: None }
    }
}

impl<T> Queue<T> {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    #[inline]
    pub(crate) fn push_back(&mut self, element: T) {
        if self.first.is_none() {
            self.first = Some(element);
        } else {
            self.rest.get_or_insert_default().push_back(element);
        }
    }

    #[inline]
    pub(crate) fn pop_front(&mut self) -> Option<T> {
        let first = self.first.take();
        if let Some(rest) = &mut self.rest {
            self.first = rest.pop_front();
            if self.first.is_none() {
                self.rest = None;
            }
        }
        first
    }

    #[inline]
    pub(crate) fn front(&self) -> Option<&T> {
        self.first.as_ref()
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.as_ref().map_or(0, |rest| rest.len())
    }

    /// Takes the first element, if there is no other one.
    #[inline]
    pub(crate) fn pop_only(&mut self) -> Option<T> {
        if self.rest.is_none() { self.first.take() } else { None }
    }

    #[inline]
    #[cfg(feature = "tokio")]
    pub(crate) fn front_mut(&mut self) -> Option<&mut T> {
        self.first.as_mut()
    }

    pub(crate) fn back_mut(&mut self) -> Option<&mut T> {
        self.rest.as_mut().and_then(|rest| rest.back_mut()).or(self.first.as_mut())
    }
}

/// Takes the elements.
impl<T> Iterator for Queue<T> {
    type Item = T;
    fn next(&mut self) -> Option<T> {
        self.pop_front()
    }
}

impl<T> FromIterator<T> for Queue<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Queue<T> {
        let mut queue = Queue::default();
        elements.into_iter().for_each(|element| queue.push_back(element));
        queue
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwire_io::random::Seeded;

    #[test]
    fn it_does_what_a_deque_does() {
        let (mut queue, mut naive) = (Queue::default(), VecDeque::new());
        let mut random = Seeded::new(5);
        for number in 0..10_000 {
            if random.below(if number / 100 % 2 == 0 { 3 } else { 2 }) == 0 {
                assert_eq!(queue.pop_front(), naive.pop_front());
            } else {
                queue.push_back(number);
                naive.push_back(number);
            }
            if random.below(100) == 0 {
                let only = (naive.len() == 1).then(|| naive.pop_front()).flatten();
                assert_eq!(queue.pop_only(), only);
            }
            assert_eq!((queue.is_empty(), queue.back_mut().copied()), (naive.is_empty(), naive.back().copied()));
        }
        while let Some(number) = naive.pop_front() {
            assert_eq!(queue.pop_front(), Some(number));
        }
        assert!(queue.is_empty() && queue.rest.is_none());
        assert_eq!(queue.len(), 0);
        let queue: Queue<u32> = (0..5).collect();
        assert_eq!((queue.len(), queue.collect::<Vec<_>>()), (5, vec![0, 1, 2, 3, 4]));
    }
}
