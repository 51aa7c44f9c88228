//! Named values of requests: parameters of the path, of the query and of forms, cookies, and values as numbers.

use crate::data::Data;
use crate::deferred;
use crate::request::{check_whole, give_named_part, highwire_request, highwire_string, part};
use crate::result::{
    Failed, HIGHWIRE_INVALID_ARGUMENT, HIGHWIRE_OK, failed, give, guarded, highwire_result, null, text,
};
use percent_encoding::percent_decode;
use std::borrow::Cow;
use std::ffi::{c_char, c_void};

/// Gets a name and a value, which are valid until the callback returns. Returns 0 to go on with the next one; another
/// value ends the iteration, and the function returns `HIGHWIRE_OK`.
pub type highwire_pair_callback =
    Option<unsafe extern "C" fn(name: highwire_string, value: highwire_string, data: *mut c_void) -> i32>;

/// Gives the decoded value of a parameter of the route's path, such as `id` of `/users/{id}`, or `HIGHWIRE_NOT_FOUND`.
///
/// # Safety
/// `name` must be NULL or end with a NUL; `out` must be NULL or point to a `highwire_string`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_request_param(
    request: highwire_request,
    name: *const c_char,
    out: *mut highwire_string,
) -> highwire_result {
    // SAFETY: as the caller promises.
    unsafe {
        give_named_part(
            out,
            request,
            name,
            |current, name| {
                let value = current.request().params().get(name)?;
                Some(current.keep(value))
            },
            |deferred, name| deferred.param(name),
        )
    }
}

/// Gives a parameter of the route's path as a number: digits, maybe after a minus sign. Returns `HIGHWIRE_NOT_FOUND` if
/// there is no such parameter, and `HIGHWIRE_INVALID_ARGUMENT` if it is no number or has more than 64 bits.
///
/// # Safety
/// `name` must be NULL or end with a NUL; `out` must be NULL or point to an `int64_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_request_param_int(
    request: highwire_request,
    name: *const c_char,
    out: *mut i64,
) -> highwire_result {
    // SAFETY: as the caller promises.
    unsafe { give_number(request, name, out, highwire_request_param) }
}

/// Writes the decoded value of the first query parameter of that name to `out`. Returns `HIGHWIRE_NOT_FOUND` if there is none, or
/// if its value is not UTF-8. A name without a value has an empty one.
///
/// # Safety
/// As [`highwire_request_param`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_request_query_param(
    request: highwire_request,
    name: *const c_char,
    out: *mut highwire_string,
) -> highwire_result {
    // SAFETY: as the caller promises.
    unsafe {
        give_named_part(
            out,
            request,
            name,
            |current, name| {
                let value = value(current.request().query()?.as_bytes(), name)?;
                Some(current.keep(value))
            },
            |deferred, name| Some(deferred.keep(value(deferred.query()?.as_bytes(), name)?)),
        )
    }
}

/// Gives a parameter of the query as a number: see `highwire_request_param_int`.
///
/// # Safety
/// As [`highwire_request_param_int`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_request_query_int(
    request: highwire_request,
    name: *const c_char,
    out: *mut i64,
) -> highwire_result {
    // SAFETY: as the caller promises.
    unsafe { give_number(request, name, out, highwire_request_query_param) }
}

/// Calls the callback with each parameter of the query, decoded, in the order in which they were sent; a name may come
/// several times. Parameters that are not UTF-8 are left out.
///
/// # Safety
/// `callback` must be a function with the signature of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_request_each_query_param(
    request: highwire_request,
    callback: highwire_pair_callback,
    data: *mut c_void,
) -> highwire_result {
    let query = |query: Option<&str>| Some(query.unwrap_or_default().as_bytes().to_vec());
    guarded(|| {
        let query = part(request, |current| query(current.request().query()), |deferred| query(deferred.query()))?;
        // SAFETY: as the caller promises.
        unsafe { each(pairs(&query), callback, Data(data)) }
    })
}

/// Gives the decoded value of the first field of that name in a body of `application/x-www-form-urlencoded`, or
/// `HIGHWIRE_NOT_FOUND`, also if the value is not UTF-8. Returns `HIGHWIRE_WRONG_STATE` if the route does not take the body whole.
///
/// # Safety
/// As [`highwire_request_param`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_request_form_param(
    request: highwire_request,
    name: *const c_char,
    out: *mut highwire_string,
) -> highwire_result {
    let checked = guarded(|| check_whole(request));
    if checked != HIGHWIRE_OK {
        return checked;
    }
    // SAFETY: as the caller promises.
    unsafe {
        give_named_part(
            out,
            request,
            name,
            |current, name| {
                let body = current.body();
                let value = value(form(current.request().header("content-type"), &body)?, name)?;
                Some(current.keep(value))
            },
            |deferred, name| Some(deferred.keep(value(form(deferred.header("content-type"), &deferred.body)?, name)?)),
        )
    }
}

/// Gives a field of a form as a number: see `highwire_request_param_int`.
///
/// # Safety
/// As [`highwire_request_param_int`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_request_form_int(
    request: highwire_request,
    name: *const c_char,
    out: *mut i64,
) -> highwire_result {
    // SAFETY: as the caller promises.
    unsafe { give_number(request, name, out, highwire_request_form_param) }
}

/// Calls the callback with each field of a form, as `highwire_request_each_query_param` does with a query. Returns
/// `HIGHWIRE_NOT_FOUND` if the body is no form.
///
/// # Safety
/// `callback` must be a function with the signature of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_request_each_form_param(
    request: highwire_request,
    callback: highwire_pair_callback,
    data: *mut c_void,
) -> highwire_result {
    guarded(|| {
        check_whole(request)?;
        let body = part(
            request,
            |current| {
                let body = current.body();
                form(current.request().header("content-type"), &body)?;
                Some(body)
            },
            |deferred| form(deferred.header("content-type"), &deferred.body).map(|_| deferred.body.clone()),
        )?;
        // SAFETY: as the caller promises.
        unsafe { each(pairs(&body), callback, Data(data)) }
    })
}

/// Gives the value of a cookie, without the quotes around it, or `HIGHWIRE_NOT_FOUND`.
///
/// # Safety
/// As [`highwire_request_param`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_request_cookie(
    request: highwire_request,
    name: *const c_char,
    out: *mut highwire_string,
) -> highwire_result {
    // SAFETY: as the caller promises.
    unsafe {
        give_named_part(
            out,
            request,
            name,
            |current, name| cookie(current.request().headers(), name).map(highwire_string::of),
            |deferred, name| cookie(deferred.headers(), name).map(highwire_string::of),
        )
    }
}

/// Returns the value of a cookie.
fn cookie<'v>(mut fields: impl Iterator<Item = (&'v str, &'v [u8])>, name: &str) -> Option<&'v [u8]> {
    fields
        .find_map(|(field, line)| if field.eq_ignore_ascii_case("cookie") { cookie_of_line(line, name) } else { None })
}

fn cookie_of_line<'v>(line: &'v [u8], name: &str) -> Option<&'v [u8]> {
    line.split(|&byte| byte == b';').find_map(|pair| {
        let at = pair.iter().position(|&byte| byte == b'=')?;
        let value = pair[at + 1..].trim_ascii();
        let value = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value);
        (pair[..at].trim_ascii() == name.as_bytes()).then_some(value)
    })
}

/// Returns a body if its media type is that of a form.
fn form<'b>(content_type: Option<&[u8]>, body: &'b [u8]) -> Option<&'b [u8]> {
    let essence = content_type.unwrap_or_default().split(|&byte| byte == b';').next().unwrap_or_default();
    essence.trim_ascii().eq_ignore_ascii_case(b"application/x-www-form-urlencoded").then_some(body)
}

/// Returns the decoded names and values of urlencoded pairs. Leaves out those that are not UTF-8.
fn pairs(form: &[u8]) -> impl Iterator<Item = (String, String)> {
    let decoded = |text: &[u8]| -> Option<String> {
        let spaced: Cow<'_, [u8]> = if text.contains(&b'+') {
            text.iter().map(|&byte| if byte == b'+' { b' ' } else { byte }).collect()
        } else {
            text.into()
        };
        percent_decode(&spaced).decode_utf8().ok().map(Cow::into_owned)
    };
    form.split(|&byte| byte == b'&').filter(|pair| !pair.is_empty()).filter_map(move |pair| {
        let at = pair.iter().position(|&byte| byte == b'=');
        let (name, value) = at.map_or((pair, &[][..]), |at| (&pair[..at], &pair[at + 1..]));
        Some((decoded(name)?, decoded(value)?))
    })
}

/// Returns the first value of a name in urlencoded pairs.
fn value(form: &[u8], name: &str) -> Option<String> {
    pairs(form).find(|(its, _)| its == name).map(|(_, value)| value)
}

/// Calls a callback of the program with pairs, until it returns another value than 0.
///
/// # Safety
/// The callback is NULL or a function of its type.
unsafe fn each(
    pairs: impl Iterator<Item = (String, String)>,
    callback: highwire_pair_callback,
    data: Data,
) -> Result<(), Failed> {
    let Some(callback) = callback else { return null("callback") };
    for (name, value) in pairs {
        let (name, value) = (highwire_string::of(name.as_bytes()), highwire_string::of(value.as_bytes()));
        // SAFETY: as the caller promises. The function is C's and does not unwind.
        if unsafe { callback(name, value, data.0) } != 0 {
            break;
        }
    }
    Ok(())
}

/// A function that gives a named value of a request.
type Named = unsafe extern "C" fn(highwire_request, *const c_char, *mut highwire_string) -> highwire_result;

/// Gives a named value of a request as a number.
///
/// # Safety
/// `name` must be NULL or end with a NUL; `out` must be NULL or point to an `int64_t`.
unsafe fn give_number(request: highwire_request, name: *const c_char, out: *mut i64, named: Named) -> highwire_result {
    if out.is_null() {
        return guarded(|| null("out"));
    }
    let mut found = highwire_string::NONE;
    // Another thread may answer the request meanwhile. This keeps its strings.
    let held = deferred::get(request);
    // SAFETY: as the caller promises.
    let result = unsafe { named(request, name, &raw mut found) };
    if result != HIGHWIRE_OK {
        return result;
    }
    guarded(|| {
        // SAFETY: as the caller promises, and the value lives at least until the handler returns.
        let (name, value) = unsafe { (text(name, "name")?, found.bytes()) };
        let number =
            std::str::from_utf8(value).ok().filter(|text| !text.starts_with('+')).and_then(|text| text.parse().ok());
        let Some(number) = number else {
            // A client has sent this value, so it may be long.
            let value = String::from_utf8_lossy(&value[..value.len().min(40)]);
            return failed(
                HIGHWIRE_INVALID_ARGUMENT,
                format!("{name} is not a whole number of at most 64 bits: {value}"),
            );
        };
        // SAFETY: as the caller promises.
        unsafe { give(out, number, "out") }?;
        drop(held);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_decoded() {
        for (form, name, expected) in [
            ("a=1&b=2", "b", Some("2")),
            ("a=1&a=2", "a", Some("1")),
            ("a", "a", Some("")),
            ("a%20b=c+d%21", "a b", Some("c d!")),
            ("a=%ff", "a", None),
            ("a=%ff&a=1", "a", Some("1")),
            ("", "a", None),
            ("&&a=1&", "a", Some("1")),
        ] {
            assert_eq!(value(form.as_bytes(), name).as_deref(), expected, "{form}");
        }
        let all: Vec<_> = pairs(b"a=1&\xff=2&b=\xff&c&a=3").collect();
        let expected = [("a", "1"), ("c", ""), ("a", "3")].map(|(name, value)| (name.to_string(), value.to_string()));
        assert_eq!(all, expected, "bytes that are not UTF-8 harm no other pair");
    }

    #[test]
    fn cookies_are_found() {
        for (line, name, expected) in
            [("a=1; b=2", "b", Some("2")), ("a=\"x\"", "a", Some("x")), ("aa=1", "a", None), ("a", "a", None)]
        {
            let fields = [("Accept", "a=0".as_bytes()), ("Cookie", line.as_bytes())];
            assert_eq!(cookie(fields.into_iter(), name), expected.map(str::as_bytes), "{line}");
        }
    }
}
