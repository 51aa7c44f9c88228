//! What the client makes of each reply: of those that are usual, of odd ones that servers really send, and of wrong ones.
//! A server on a real socket sends each reply of a table to one request. The client keeps its connections between the
//! rows, so a reply that poisons the pool fails a later row, too.

use highwire::client::{Bounds, Client, Error, Redirects, Timeouts, block_on};
use highwire::{Method, StatusCode};
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

/// What the server does after a reply.
#[derive(Clone, Copy, PartialEq)]
enum Then {
    /// It waits for the next request.
    Stays,
    /// It closes its direction, and then the connection.
    Ends,
    /// It resets the connection.
    Resets,
}

use Then::{Ends, Resets, Stays};

/// A reply and its expected result: the status and the body, or the error; and true if the connection is used again.
struct Row {
    name: String,
    method: Method,
    reply: Vec<u8>,
    then: Then,
    expected: String,
    is_kept: bool,
}

#[derive(Default)]
struct Table {
    rows: Vec<Row>,
}

impl Table {
    fn add(&mut self, name: &str, reply: impl Into<Vec<u8>>, then: Then, expected: &str, is_kept: bool) {
        self.with(Method::GET, name, reply, then, expected, is_kept);
    }

    fn with(
        &mut self,
        method: Method,
        name: &str,
        reply: impl Into<Vec<u8>>,
        then: Then,
        expected: &str,
        is_kept: bool,
    ) {
        let (name, expected) = (name.to_string(), expected.to_string());
        self.rows.push(Row { name, method, reply: reply.into(), then, expected, is_kept });
    }
}

const HEAD: &str = "HTTP/1.1 200 OK\r\n";

fn table() -> Table {
    let mut table = Table::default();
    usual(&mut table);
    status_lines(&mut table);
    fields(&mut table);
    lengths(&mut table);
    chunks(&mut table);
    ends(&mut table);
    interims(&mut table);
    sizes(&mut table);
    table
}

fn usual(table: &mut Table) {
    table.add("a length", format!("{HEAD}Content-Length: 5\r\n\r\nhello"), Stays, "200 hello", true);
    table.add("a length of 0", format!("{HEAD}Content-Length: 0\r\n\r\n"), Stays, "200 ", true);
    table.add(
        "chunks",
        format!("{HEAD}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
        Stays,
        "200 hello",
        true,
    );
    table.add("until the end", format!("{HEAD}\r\nhello"), Ends, "200 hello", false);
    table.add("an empty body until the end", format!("{HEAD}\r\n"), Ends, "200 ", false);
    for status in [204, 304] {
        let reply = format!("HTTP/1.1 {status} X\r\n\r\n");
        table.add(&format!("{status} has no body"), reply, Stays, &format!("{status} "), true);
        let reply = format!("HTTP/1.1 {status} X\r\nContent-Length: 5\r\n\r\n");
        table.add(&format!("{status} may announce a body"), reply, Stays, &format!("{status} "), true);
    }
    let reply = format!("{HEAD}Content-Length: 500\r\n\r\n");
    table.with(Method::HEAD, "HEAD with a length", reply, Stays, "200 ", true);
    let reply = format!("{HEAD}Transfer-Encoding: chunked\r\n\r\n");
    table.with(Method::HEAD, "HEAD with chunks", reply, Stays, "200 ", true);
    let reply = format!("{HEAD}\r\n");
    table.with(Method::HEAD, "HEAD without a length", reply, Stays, "200 ", true);
    let reply = format!("{HEAD}Content-Length: 5\r\n\r\nhello");
    table.with(Method::HEAD, "HEAD with a body", reply, Stays, "200 ", false);
    table.add("close", format!("{HEAD}Connection: close\r\nContent-Length: 2\r\n\r\nok"), Ends, "200 ok", false);
    let reply = format!("{HEAD}Connection: Keep-Alive, foo\r\nContent-Length: 2\r\n\r\nok");
    table.add("other connection options", reply, Stays, "200 ok", true);
    let reply = format!("{HEAD}connection: foo, CLOSE\r\nContent-Length: 2\r\n\r\nok");
    table.add("close in a list", reply, Stays, "200 ok", false);
    table.add("1.0", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", Stays, "200 ok", false);
    let reply = "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok";
    table.add("1.0 that stays", reply, Stays, "200 ok", true);
    table.add("1.0 until the end", "HTTP/1.0 200 OK\r\n\r\nok", Ends, "200 ok", false);
    for status in
        [200, 201, 202, 203, 206, 226, 299, 300, 305, 400, 401, 404, 407, 410, 418, 429, 451, 500, 502, 503, 599]
    {
        let reply = format!("HTTP/1.1 {status} Text\r\nContent-Length: 1\r\n\r\nx");
        table.add(&format!("the status {status}"), reply, Stays, &format!("{status} x"), true);
    }
    for status in [600, 799, 999] {
        let reply = format!("HTTP/1.1 {status} Text\r\nContent-Length: 1\r\n\r\nx");
        table.add(&format!("the status {status}"), reply, Stays, &format!("{status} x"), true);
    }
    let reply = "HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n";
    table.add("a redirect without Location", reply, Stays, "302 ", true);
    let reply = "HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n";
    table.add("205", reply, Stays, "205 ", true);
}

fn status_lines(table: &mut Table) {
    let ok = "Content-Length: 2\r\n\r\nok";
    table.add("no reason", format!("HTTP/1.1 200 \r\n{ok}"), Stays, "200 ok", true);
    table.add("no space before the reason", format!("HTTP/1.1 200\r\n{ok}"), Stays, "200 ok", true);
    table.add(
        "a reason in Latin-1",
        [b"HTTP/1.1 200 \xe9\r\n".as_slice(), ok.as_bytes()].concat(),
        Stays,
        "200 ok",
        true,
    );
    table.add("a long reason", format!("HTTP/1.1 200 {}\r\n{ok}", "x".repeat(500)), Stays, "200 ok", true);
    table.add("a later minor version", format!("HTTP/1.9 200 OK\r\n{ok}"), Stays, "200 ok", true);
    for (name, line, error) in [
        ("no version", "200 OK", "InvalidVersion"),
        ("HTTP/0.9 text", "<html>hello</html>", "InvalidVersion"),
        ("version 2", "HTTP/2.0 200 OK", "UnsupportedVersion"),
        ("version 3", "HTTP/3 200 OK", "InvalidVersion"),
        ("version 0.9", "HTTP/0.9 200 OK", "UnsupportedVersion"),
        ("a version in lower case", "http/1.1 200 OK", "InvalidVersion"),
        ("another protocol", "ICY 200 OK", "InvalidVersion"),
        ("SSH", "SSH-2.0-OpenSSH_9", "InvalidVersion"),
        ("SMTP", "220 mail ESMTP", "InvalidVersion"),
        ("a version of two digits", "HTTP/1.10 200 OK", "InvalidStatus"),
        ("two spaces", "HTTP/1.1  200 OK", "InvalidStatus"),
        ("a tab", "HTTP/1.1\t200 OK", "InvalidStatus"),
        ("two digits", "HTTP/1.1 20 OK", "InvalidStatus"),
        ("four digits", "HTTP/1.1 2000 OK", "InvalidStatus"),
        ("letters", "HTTP/1.1 abc OK", "InvalidStatus"),
        ("a negative status", "HTTP/1.1 -20 OK", "InvalidStatus"),
        ("a status below 100", "HTTP/1.1 099 OK", "InvalidStatus"),
        ("no status", "HTTP/1.1 ", "InvalidStatus"),
        ("a control byte in the reason", "HTTP/1.1 200 O\x01K", "InvalidStatus"),
        ("NUL in the reason", "HTTP/1.1 200 O\0K", "InvalidStatus"),
    ] {
        table.add(name, format!("{line}\r\n{ok}"), Stays, error, false);
    }
    table.add("a space before", format!(" HTTP/1.1 200 OK\r\n{ok}"), Stays, "InvalidVersion", false);
    table.add("an empty line before", format!("\r\nHTTP/1.1 200 OK\r\n{ok}"), Stays, "InvalidVersion", false);
    table.add("binary", vec![0x16, 3, 1, 0, 5, 1, 2, 3, 4, 5], Stays, "InvalidVersion", false);
    table.add("an HTTP/2 SETTINGS frame", vec![0, 0, 0, 4, 0, 0, 0, 0, 0], Stays, "InvalidVersion", false);
}

fn fields(table: &mut Table) {
    let ok = "Content-Length: 2\r\n\r\nok";
    for (name, line) in [
        ("no space after the colon", "A:b"),
        ("spaces around the value", "A:   b   "),
        ("a tab in the value", "A: b\tc"),
        ("an empty value", "A:"),
        ("bytes above 127", "A: \u{e9}"),
        ("each character of a token", "!#$%&'*+-.^_`|~09azAZ: b"),
        ("a space before the colon", "A : b"),
        ("blanks before the colon", "A \t : b"),
        ("a repeated field", "A: b\r\nA: c"),
        ("a field in several cases", "CoNtEnT-tYpE: text/plain"),
        ("a folded line", "A: b\r\n c"),
        ("a folded line with a tab", "A: b\r\n\tc"),
        ("two cookies", "Set-Cookie: a=b\r\nSet-Cookie: c=d"),
        ("an empty Connection", "Connection: "),
        ("Keep-Alive", "Keep-Alive: timeout=5, max=100"),
    ] {
        table.add(name, format!("{HEAD}{line}\r\n{ok}"), Stays, "200 ok", true);
    }
    for (name, line, error) in [
        ("no name", ": b", "InvalidFieldName"),
        ("no colon", "A b", "SpaceBeforeColon"),
        ("a space in the name", "A B: c", "SpaceBeforeColon"),
        ("a control byte in the name", "A\x01: b", "InvalidFieldName"),
        ("a letter beyond ASCII in the name", "\u{e9}: b", "InvalidFieldName"),
        ("a quote in the name", "\"A\": b", "InvalidFieldName"),
        ("NUL in the value", "A: b\0c", "InvalidFieldValue"),
        ("a control byte in the value", "A: b\x01c", "InvalidFieldValue"),
        ("DEL in the value", "A: b\x7fc", "InvalidFieldValue"),
        ("CR in the value", "A: b\rc", "InvalidLineEnd"),
    ] {
        table.add(name, format!("{HEAD}{line}\r\n{ok}"), Stays, error, false);
    }
    table.add("LF alone", "HTTP/1.1 200 OK\nContent-Length: 2\n\nok", Stays, "InvalidLineEnd", false);
    table.add("LF alone in a field", format!("{HEAD}A: b\n{ok}"), Stays, "InvalidLineEnd", false);
    table.add("a space before the first field", format!("{HEAD} A: b\r\n{ok}"), Stays, "ObsoleteFold", false);
}

fn lengths(table: &mut Table) {
    for (name, lines, error) in [
        ("two equal lengths", "Content-Length: 2\r\nContent-Length: 2", "RepeatedContentLength"),
        ("two lengths, one with a blank", "Content-Length: 2\r\nContent-Length : 3", "RepeatedContentLength"),
        ("two lengths", "Content-Length: 2\r\nContent-Length: 3", "RepeatedContentLength"),
        ("a list of lengths", "Content-Length: 2, 2", "InvalidContentLength"),
        ("a negative length", "Content-Length: -2", "InvalidContentLength"),
        ("a length with a sign", "Content-Length: +2", "InvalidContentLength"),
        ("a hexadecimal length", "Content-Length: 0x2", "InvalidContentLength"),
        ("an empty length", "Content-Length: ", "InvalidContentLength"),
        ("a length with a letter", "Content-Length: 2a", "InvalidContentLength"),
        ("a length with a point", "Content-Length: 2.0", "InvalidContentLength"),
        ("a length with a space", "Content-Length: 1 2", "InvalidContentLength"),
        ("a length beyond 64 bits", "Content-Length: 99999999999999999999", "InvalidContentLength"),
        ("a length and chunks", "Content-Length: 2\r\nTransfer-Encoding: chunked", "LengthAndCoding"),
        ("chunks and a length", "Transfer-Encoding: chunked\r\nContent-Length: 2", "LengthAndCoding"),
        ("an unknown coding", "Transfer-Encoding: foo", "InvalidTransferEncoding"),
        ("gzip before chunked", "Transfer-Encoding: gzip, chunked", "UnknownTransferCoding"),
        ("chunked twice", "Transfer-Encoding: chunked, chunked", "InvalidTransferEncoding"),
        (
            "chunked in two fields",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            "InvalidTransferEncoding",
        ),
        ("chunked is not last", "Transfer-Encoding: chunked, gzip", "InvalidTransferEncoding"),
        ("an empty coding", "Transfer-Encoding: ", "InvalidTransferEncoding"),
        ("identity", "Transfer-Encoding: identity", "InvalidTransferEncoding"),
        ("a coding with a parameter", "Transfer-Encoding: chunked;a=b", "InvalidTransferEncoding"),
        ("a coding in quotes", "Transfer-Encoding: \"chunked\"", "InvalidTransferEncoding"),
        ("a control byte in the coding", "Transfer-Encoding: \x0bchunked", "InvalidFieldValue"),
    ] {
        table.add(name, format!("{HEAD}{lines}\r\n\r\nok"), Stays, error, false);
    }
    let reply = format!("{HEAD}Transfer-Encoding: Chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n");
    table.add("chunked in another case", reply, Stays, "200 ok", true);
    let reply = "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    table.add("chunks in 1.0", reply, Stays, "CodingInOldVersion", false);
    let reply = format!("{HEAD}Content-Length: 002\r\n\r\nok");
    table.add("a length with zeros before", reply, Stays, "200 ok", true);
    let reply = "HTTP/1.1 204 X\r\nTransfer-Encoding: chunked\r\n\r\n";
    table.add("204 with chunks", reply, Stays, "204 ", true);
    let reply = format!("{HEAD}Content-Length: 2\r\n\r\nok!");
    table.add("more than the length", reply, Stays, "200 ok", false);
    let reply = format!("{HEAD}Content-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged");
    table.add("a second response", reply, Stays, "200 ok", false);
}

fn chunks(table: &mut Table) {
    let head = format!("{HEAD}Transfer-Encoding: chunked\r\n\r\n");
    for (name, body, expected) in [
        ("several chunks", "1\r\na\r\n2\r\nbc\r\n0\r\n\r\n", "200 abc"),
        ("a size in capitals", "A\r\n0123456789\r\n0\r\n\r\n", "200 0123456789"),
        ("a size with zeros before", "0002\r\nok\r\n000\r\n\r\n", "200 ok"),
        ("an extension", "2;a=b\r\nok\r\n0\r\n\r\n", "200 ok"),
        ("an extension in quotes", "2;a=\"b;c\"\r\nok\r\n0;d\r\n\r\n", "200 ok"),
        ("trailers", "2\r\nok\r\n0\r\nA: b\r\n\r\n", "200 ok"),
        ("a folded trailer", "2\r\nok\r\n0\r\nA: b\r\n c\r\n\r\n", "200 ok"),
        ("no chunk but the last", "0\r\n\r\n", "200 "),
    ] {
        table.add(name, format!("{head}{body}"), Stays, expected, true);
    }
    for (name, body) in [
        ("a size that is no number", "x\r\nok\r\n0\r\n\r\n"),
        ("an empty size", "\r\nok\r\n0\r\n\r\n"),
        ("a negative size", "-2\r\nok\r\n0\r\n\r\n"),
        ("a size with 0x", "0x2\r\nok\r\n0\r\n\r\n"),
        ("a size beyond 64 bits", "10000000000000000\r\nok"),
        ("a space before the size", " 2\r\nok\r\n0\r\n\r\n"),
        ("LF after the size", "2\nok\r\n0\r\n\r\n"),
        ("no line end after the data", "2\r\nokxx0\r\n\r\n"),
        ("LF after the data", "2\r\nok\n0\r\n\r\n"),
        ("a chunk that is longer than its size", "1\r\nok\r\n0\r\n\r\n"),
        ("a control byte in an extension", "2;a\x01\r\nok\r\n0\r\n\r\n"),
        ("CR in an extension", "2;a\rb\r\nok\r\n0\r\n\r\n"),
        ("a wrong trailer", "2\r\nok\r\n0\r\nA b\r\n\r\n"),
        ("a space before the first trailer", "2\r\nok\r\n0\r\n A: b\r\n\r\n"),
        ("LF in the trailers", "2\r\nok\r\n0\r\nA: b\n\r\n"),
    ] {
        table.add(name, format!("{head}{body}"), Stays, "body CutShort", false);
    }
    let long = format!("{head}2;{}\r\nok\r\n0\r\n\r\n", "x".repeat(5000));
    table.add("a long extension", long, Stays, "body CutShort", false);
    let many = format!("{head}2\r\nok\r\n0\r\n{}\r\n", "A: b\r\n".repeat(200));
    table.add("many trailers", many, Stays, "body CutShort", false);
    table.add("data after the last chunk", format!("{head}2\r\nok\r\n0\r\n\r\nmore"), Stays, "200 ok", false);
}

fn ends(table: &mut Table) {
    table.add("nothing", "", Ends, "Lost", false);
    table.add("nothing and a reset", "", Resets, "Lost", false);
    table.add("half a status line", "HTTP/1.1 2", Ends, "Lost", false);
    table.add("half a status line and a reset", "HTTP/1.1 2", Resets, "Lost", false);
    table.add("half a head", format!("{HEAD}Content-Le"), Ends, "Lost", false);
    table.add("half a body", format!("{HEAD}Content-Length: 5\r\n\r\nhe"), Ends, "body CutShort", false);
    table.add("half a body and a reset", format!("{HEAD}Content-Length: 5\r\n\r\nhe"), Resets, "body CutShort", false);
    table.add("no body", format!("{HEAD}Content-Length: 5\r\n\r\n"), Ends, "body CutShort", false);
    table.add("until a reset", format!("{HEAD}\r\nhello"), Resets, "body CutShort", false);
    let head = format!("{HEAD}Transfer-Encoding: chunked\r\n\r\n");
    for (name, body) in [
        ("no chunk", ""),
        ("half a size", "5"),
        ("half a chunk", "5\r\nhe"),
        ("no last chunk", "2\r\nok\r\n"),
        ("half a last chunk", "2\r\nok\r\n0\r\n"),
        ("half a trailer", "2\r\nok\r\n0\r\nA: b"),
    ] {
        table.add(name, format!("{head}{body}"), Ends, "body CutShort", false);
    }
    table.add("silence", "", Stays, "TimedOut(Head)", false);
    table.add("silence in the status line", "HTTP/1.1 2", Stays, "TimedOut(Head)", false);
    table.add("silence in the head", format!("{HEAD}A: b\r\n"), Stays, "TimedOut(Head)", false);
    table.add("silence in the body", format!("{HEAD}Content-Length: 5\r\n\r\nhe"), Stays, "body TooSlow", false);
    table.add("silence before the body", format!("{HEAD}Content-Length: 5\r\n\r\n"), Stays, "body TooSlow", false);
    table.add("silence in a chunk", format!("{head}5\r\nhe"), Stays, "body TooSlow", false);
    table.add("silence before the last chunk", format!("{head}2\r\nok\r\n"), Stays, "body TooSlow", false);
    table.add("silence in a body until the end", format!("{HEAD}\r\nhello"), Stays, "body TooSlow", false);
}

fn interims(table: &mut Table) {
    let last = format!("{HEAD}Content-Length: 2\r\n\r\nok");
    for (name, interim) in [
        ("100", "HTTP/1.1 100 Continue\r\n\r\n"),
        ("102", "HTTP/1.1 102 Processing\r\n\r\n"),
        ("103", "HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n"),
        ("199", "HTTP/1.1 199 X\r\n\r\n"),
        ("several", "HTTP/1.1 103 X\r\nA: b\r\n\r\nHTTP/1.1 100 X\r\n\r\n"),
    ] {
        table.add(&format!("interim: {name}"), format!("{interim}{last}"), Stays, "200 ok", true);
    }
    let most = "HTTP/1.1 103 X\r\n\r\n".repeat(32);
    table.add("32 interim responses", format!("{most}{last}"), Stays, "200 ok", true);
    let many = "HTTP/1.1 103 X\r\n\r\n".repeat(33);
    table.add("33 interim responses", format!("{many}{last}"), Stays, "TooManyInterims", false);
    table.add("interim and the end", "HTTP/1.1 100 Continue\r\n\r\n", Ends, "Lost", false);
    table.add("interim and silence", "HTTP/1.1 100 Continue\r\n\r\n", Stays, "TimedOut(Head)", false);
    let reply = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n";
    table.add("101 that was not asked for", reply, Stays, "UnexpectedData", false);
    table.add(
        "a wrong interim response",
        format!("HTTP/1.1 100 X\r\nA b\r\n\r\n{last}"),
        Stays,
        "SpaceBeforeColon",
        false,
    );
}

fn sizes(table: &mut Table) {
    let ok = "Content-Length: 2\r\n\r\nok";
    let large = format!("{HEAD}A: {}\r\n{ok}", "x".repeat(16_000));
    table.add("a field of 16 KB", large, Stays, "200 ok", true);
    let large = format!("{HEAD}A: {}\r\n{ok}", "x".repeat(17_000));
    table.add("a field that is too long", large, Stays, "FieldTooLong", false);
    let mut many = String::from(HEAD);
    (0..99).for_each(|at| write!(many, "A{at}: b\r\n").expect("writing to a String cannot fail"));
    table.add("100 fields", format!("{many}{ok}"), Stays, "200 ok", true);
    table.add("too many fields", format!("{many}B: c\r\n{ok}"), Stays, "TooManyFields", false);
    let head = format!("{HEAD}{}", format!("A: {}\r\n", "x".repeat(8000)).repeat(5));
    table.add("a head that is too large", format!("{head}{ok}"), Stays, "HeadTooLarge", false);
    let endless = format!("{HEAD}A: {}", "x".repeat(200_000));
    table.add("a field without end", endless, Stays, "FieldTooLong", false);
    let body = "x".repeat(300_000);
    let reply = format!("{HEAD}Content-Length: 300000\r\n\r\n{body}");
    table.add("a body of 300 KB", reply, Stays, &format!("200 {body}"), true);
    let reply = format!("{HEAD}Content-Length: 2000000\r\n\r\n{}", "x".repeat(2_000_000));
    table.add("a body that is longer than the caller allows", reply, Stays, "body TooLarge", false);
    let reply = format!("{HEAD}Content-Length: 9000000000000000000\r\n\r\nx");
    table.add("a length of 9 exabytes", reply, Ends, "body TooLarge", false);
    let reply = format!("{HEAD}Content-Length: 9999999999999999999\r\n\r\nx");
    table.add("the largest length", reply, Ends, "body TooLarge", false);
}

/// Sends the replies: the number in a request's path is that of the row.
fn serve(listener: &TcpListener, rows: &[(Vec<u8>, Then)]) {
    std::thread::scope(|scope| {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut first = [0];
            if stream.peek(&mut first).is_ok() && first[0] == b'!' {
                return;
            }
            scope.spawn(move || while answer(&mut stream, rows).is_some() {});
        }
    });
}

/// Answers one request. Returns `None` if the connection has ended.
fn answer(stream: &mut TcpStream, rows: &[(Vec<u8>, Then)]) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).expect("a head in ASCII");
    let number: usize = head.split([' ', '/']).find_map(|word| word.parse().ok()).expect("a number");
    let (reply, then) = &rows[number];
    // The client may have ended the connection already.
    stream.write_all(reply).ok()?;
    match then {
        Stays => Some(()),
        Ends => {
            stream.shutdown(Shutdown::Write).ok()?;
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest);
            None
        }
        Resets => {
            // The client reads the reply first.
            stream.set_read_timeout(Some(Duration::from_millis(50))).ok()?;
            let _ = stream.read(&mut [0]);
            socket2::SockRef::from(&*stream).set_linger(Some(Duration::ZERO)).ok()?;
            None
        }
    }
}

/// Returns an error in the words of the table.
fn said(error: &Error) -> String {
    use highwire::client::Failure;
    match error.failure() {
        Some(Failure::Malformed(error)) => format!("{error:?}"),
        Some(failure) => format!("{failure:?}"),
        None if error.is_body() || error.is_timeout() => {
            let text = error.to_string();
            let kinds = [("cut short", "CutShort"), ("too slowly", "TooSlow"), ("more than", "TooLarge")];
            let kind = kinds.iter().find(|(part, _)| text.contains(part)).map_or("?", |(_, kind)| kind);
            format!("body {kind}")
        }
        None => error.to_string(),
    }
}

#[test]
fn each_reply_has_its_result_and_none_poisons_the_pool() {
    let table = table();
    assert!(table.rows.len() >= 150, "{} rows", table.rows.len());
    let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
    let address = listener.local_addr().expect("an address");
    let replies: Vec<_> = table.rows.iter().map(|row| (row.reply.clone(), row.then)).collect();
    let server = std::thread::spawn(move || serve(&listener, &replies));
    let short = Duration::from_millis(200);
    let client = Client::builder()
        .timeouts(Timeouts::default().head(short).body(short))
        .bounds(Bounds::default().connections(4))
        .redirects(Redirects::none())
        .max_body_bytes(1_000_000)
        .retries(0)
        .build()
        .expect("a client");
    let wrong = block_on(async {
        let mut wrong = Vec::new();
        for (number, row) in table.rows.iter().enumerate() {
            let sent = client.request(row.method.clone(), &format!("http://{address}/{number}")).send().await;
            let got = match sent {
                Ok(response) => {
                    let status = response.status();
                    response.bytes().await.map(|body| (status, body))
                }
                Err(error) => Err(error),
            };
            let got = match got {
                Ok((status, body)) => format!("{} {}", StatusCode::as_u16(&status), String::from_utf8_lossy(&body)),
                Err(error) => said(&error),
            };
            // Bytes behind the response may arrive a moment later.
            highwire::time::sleep(Duration::from_millis(2)).await;
            let is_kept = client.connections() == (1, 1);
            if got != row.expected || is_kept != row.is_kept {
                let short = |text: &str| text.chars().take(80).collect::<String>();
                let (got, expected) = (short(&got), short(&row.expected));
                wrong.push(format!("{}: {got:?} {is_kept}, expected {expected:?} {}", row.name, row.is_kept));
            }
            // Each row begins with at most one connection, which the last one has left.
            while client.connections().0 > client.connections().1 {
                highwire::time::sleep(Duration::from_millis(1)).await;
            }
        }
        wrong
    });
    drop(client);
    TcpStream::connect(address).expect("a connection").write_all(b"!").expect("the server reads");
    server.join().expect("the server");
    let wrong = wrong.expect("a worker");
    assert!(wrong.is_empty(), "{} of {} rows:\n{}", wrong.len(), table.rows.len(), wrong.join("\n"));
}
