//! Responses of other people's servers that are unusual or break a rule, and what the client makes of them.

use highwire::StatusCode;
use highwire::client::{Client, Error, block_on};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

/// Starts a server that answers the request of each connection with what `answer` returns for its head, after its body if it
/// has one at once. Returns its URL.
fn serve(answer: fn(head: &str) -> Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            std::thread::spawn(move || {
                let (head, body) = head(&mut stream);
                let announced = head
                    .lines()
                    .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
                if let Some(rest) =
                    announced.unwrap_or(0_usize).checked_sub(body).filter(|_| !head.contains("100-continue"))
                {
                    stream.read_exact(&mut vec![0; rest]).expect("a body");
                }
                stream.write_all(&answer(&head)).expect("the client reads");
            });
        }
    });
    url
}

/// Receives a head. Returns it, and the number of bytes of the body that came with it.
fn head(stream: &mut TcpStream) -> (String, usize) {
    let mut received = Vec::new();
    loop {
        if let Some(end) = received.windows(4).position(|four| four == b"\r\n\r\n") {
            return (String::from_utf8_lossy(&received[..end]).into_owned(), received.len() - end - 4);
        }
        let mut bytes = [0; 4096];
        match stream.read(&mut bytes).expect("a request") {
            0 => return (String::from_utf8_lossy(&received).into_owned(), 0),
            count => received.extend_from_slice(&bytes[..count]),
        }
    }
}

fn ask<T>(test: impl AsyncFnOnce(Client) -> Result<T, Error> + 'static) -> T
where
    T: 'static,
{
    let asked = block_on(async { test(Client::new()).await });
    asked.expect("a worker").expect("responses")
}

#[test]
fn folded_lines_are_read_with_spaces() {
    let url = serve(|head| {
        match head.starts_with("GET /early") {
        true => b"HTTP/1.1 103 Early Hints\r\nLink: a;\r\n\tb\r\n\r\nHTTP/1.1 200 OK\r\nX: 1\r\n  2\r\nContent-Length: 2\r\n\r\nok".to_vec(),
        false => b"HTTP/1.1 200 OK\r\nX-Long: a\r\n b\r\n\tc\r\nContent-Length:\r\n 2\r\n\r\nok".to_vec(),
    }
    });
    ask(async move |client| {
        let response = client.get(&url).send().await?;
        assert_eq!(response.header("x-long"), Some("a b c"));
        assert_eq!(response.text().await?, "ok");
        let response = client.get(&format!("{url}/early")).send().await?;
        assert_eq!((response.header("x"), response.header("link")), (Some("1 2"), None));
        assert_eq!(response.text().await?, "ok");
        Ok(())
    });
}

#[test]
fn redirects_may_have_bytes_outside_of_ascii() {
    fn to(location: &[u8]) -> Vec<u8> {
        [b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nConnection: close\r\nLocation: ", location, b"\r\n\r\n"].concat()
    }
    let url = serve(|head| match head.split(' ').nth(1) {
        Some("/utf8") => to("/caf\u{e9}?q=\u{4e2d}".as_bytes()),
        Some("/latin1") => to(b"/caf\xe9"),
        Some(path) => {
            format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{path}", path.len()).into_bytes()
        }
        None => Vec::new(),
    });
    ask(async move |client| {
        for (path, expected) in [("utf8", "/caf%C3%A9?q=%E4%B8%AD"), ("latin1", "/caf%E9")] {
            let response = client.get(&format!("{url}/{path}")).send().await?;
            assert_eq!((response.status(), response.text().await?.as_str()), (StatusCode::OK, expected));
        }
        Ok(())
    });
}

#[test]
fn a_request_is_repeated_without_an_expectation_that_fails() {
    let url = serve(|head| match head.contains("100-continue") {
        true => b"HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec(),
        false => b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok".to_vec(),
    });
    ask(async move |client| {
        let response = client.post(&url).body(vec![b'x'; 100_000]).expect_continue().send().await?;
        assert_eq!((response.status(), response.stats().retries), (StatusCode::OK, 1));
        assert_eq!(response.text().await?, "ok");
        Ok(())
    });
}

#[test]
fn a_request_without_a_body_expects_nothing_and_is_not_repeated() {
    let url = serve(|head| {
        assert!(!head.contains("100-continue"));
        b"HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec()
    });
    ask(async move |client| {
        let response = client.post(&url).expect_continue().send().await?;
        assert_eq!((response.status().as_u16(), response.stats().retries), (417, 0));
        Ok(())
    });
}

#[test]
fn transfer_codings_are_not_asked_for() {
    let url = serve(|_| b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec());
    ask(async move |client| {
        let error = client.get(&url).header("te", "gzip").send().await.expect_err("an error");
        assert!(error.to_string().contains("`te` may only have the value `trailers`"), "{error}");
        assert_eq!(client.get(&url).header("te", "trailers").send().await?.status(), StatusCode::OK);
        Ok(())
    });
}
