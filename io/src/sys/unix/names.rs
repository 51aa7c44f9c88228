//! The numbers of users and groups, by getpwnam_r(3) and getgrnam_r(3).

use std::ffi::{CStr, CString, c_char, c_int};
use std::io;

/// The most bytes that the description of a user or a group may take. A group may have many members.
const MOST_BYTES: usize = 1 << 20;

/// Returns the number of a user, given as a name or a number.
pub(crate) fn user(name: &str) -> io::Result<u32> {
    find("user", name, |name, buffer| {
        // SAFETY: an all-zero passwd is valid, as a place for the result.
        let mut found: libc::passwd = unsafe { std::mem::zeroed() };
        let mut result = std::ptr::null_mut();
        // SAFETY: the pointers are to a string that ends in NUL, to the places for the results, and to the buffer with its
        // length.
        let error =
            unsafe { libc::getpwnam_r(name.as_ptr(), &mut found, buffer.as_mut_ptr(), buffer.len(), &mut result) };
        (error, (!result.is_null()).then_some(found.pw_uid))
    })
}

/// Returns the number of a group, given as a name or a number.
pub(crate) fn group(name: &str) -> io::Result<u32> {
    find("group", name, |name, buffer| {
        // SAFETY: an all-zero group is valid, as a place for the result.
        let mut found: libc::group = unsafe { std::mem::zeroed() };
        let mut result = std::ptr::null_mut();
        // SAFETY: the pointers are to a string that ends in NUL, to the places for the results, and to the buffer with its
        // length.
        let error =
            unsafe { libc::getgrnam_r(name.as_ptr(), &mut found, buffer.as_mut_ptr(), buffer.len(), &mut result) };
        (error, (!result.is_null()).then_some(found.gr_gid))
    })
}

fn find(kind: &str, name: &str, look: impl Fn(&CStr, &mut [c_char]) -> (c_int, Option<u32>)) -> io::Result<u32> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let unknown = || io::Error::new(io::ErrorKind::NotFound, format!("there is no {kind} {name:?}"));
    let text = CString::new(name).map_err(|_| unknown())?;
    let mut buffer = vec![0; 1024];
    loop {
        match look(&text, &mut buffer) {
            (_, Some(number)) => return Ok(number),
            (libc::ERANGE, None) if buffer.len() < MOST_BYTES => buffer.resize(buffer.len() * 4, 0),
            // Other errors mean that there is no such name, or that it cannot be looked up.
            _ => return Err(unknown()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers() {
        assert_eq!((user("root").expect("a user"), user("65534").expect("a number")), (0, 65534));
        assert_eq!(group("0").expect("a number"), 0);
        assert_eq!(user("no-such-user").expect_err("no user").to_string(), "there is no user \"no-such-user\"");
        assert_eq!(group("a\0b").expect_err("no group").to_string(), "there is no group \"a\\0b\"");
    }
}
