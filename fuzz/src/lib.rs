//! Parses heads with httparse, in the form that `highwire_proto::testing` compares with ours: the head's length and its
//! parts.

use std::vec::Vec;

/// The largest number of fields of a head. It is larger than any limit that the targets use.
const FIELDS: usize = 128;

/// Parses a request's head into method, target, minor version, then the name and value of each field.
pub fn request(bytes: &[u8]) -> Option<(usize, Vec<Vec<u8>>)> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    let Ok(httparse::Status::Complete(length)) = request.parse(bytes) else { return None };
    let mut parts = Vec::from([request.method?.into(), request.path?.into(), Vec::from([b'0' + request.version?])]);
    add(request.headers, &mut parts);
    Some((length, parts))
}

/// Parses a response's head into minor version, status, reason, then the name and value of each field.
pub fn response(bytes: &[u8]) -> Option<(usize, Vec<Vec<u8>>)> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut response = httparse::Response::new(&mut fields);
    let mut config = httparse::ParserConfig::default();
    // Our client removes it, as RFC 9112 section 5.1 wants of a proxy.
    config.allow_spaces_after_header_name_in_responses(true);
    let Ok(httparse::Status::Complete(length)) = config.parse_response(&mut response, bytes) else { return None };
    let status = std::format!("{}", response.code?).into_bytes();
    let mut parts = Vec::from([Vec::from([b'0' + response.version?]), status, response.reason?.into()]);
    add(response.headers, &mut parts);
    Some((length, parts))
}

fn add(fields: &[httparse::Header<'_>], parts: &mut Vec<Vec<u8>>) {
    for field in fields {
        parts.extend([field.name.into(), field.value.into()]);
    }
}
