//! Compares the speed of the head parser with that of httparse. Prints the nanoseconds per head in the best of several
//! rounds.
use std::hint::black_box;
use std::time::Instant;

const SMALL: &[u8] = b"GET /hello HTTP/1.1\r\nHost: localhost:8080\r\nAccept: */*\r\n\r\n";
const BROWSER: &[u8] = b"GET /products/list?category=books&page=3&sort=price HTTP/1.1\r\n\
Host: www.example.com\r\nConnection: keep-alive\r\n\
sec-ch-ua: \"Chromium\";v=\"130\", \"Google Chrome\";v=\"130\", \"Not?A_Brand\";v=\"99\"\r\n\
sec-ch-ua-mobile: ?0\r\nsec-ch-ua-platform: \"Linux\"\r\nUpgrade-Insecure-Requests: 1\r\n\
User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 Safari/537.36\r\n\
Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8\r\n\
Sec-Fetch-Site: none\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n\
Accept-Encoding: gzip, deflate, br, zstd\r\nAccept-Language: en-US,en;q=0.9,de;q=0.8\r\n\
Cookie: session=0123456789abcdef\r\n\r\n";

/// The number of copies of the head in the buffer, one after the other, like pipelined requests. One `black_box` hides
/// the buffer from the compiler. A `black_box` per head would add loads and stores that a server does not execute.
const COPIES: usize = 16;

const ROUNDS: usize = 15;
const PASSES: usize = 12_500;

fn best(name: &str, bytes: &[u8], mut parse: impl FnMut(&[u8])) {
    let buffer = black_box(bytes.repeat(COPIES));
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..PASSES {
            buffer.chunks_exact(bytes.len()).for_each(&mut parse);
        }
        best = best.min(start.elapsed().as_nanos() as f64 / (PASSES * COPIES) as f64);
    }
    println!("{name:30} {best:8.1} ns");
}

fn main() {
    let limits = highwire_proto::Limits::default();
    let mut head = highwire_proto::Head::default();
    let only = std::env::args().nth(1);
    for (name, bytes) in [("60 bytes", SMALL), ("700 bytes", BROWSER)] {
        if only.as_ref().is_some_and(|only| !name.starts_with(only.as_str())) {
            continue;
        }
        println!("{name}: {} bytes", bytes.len());
        best("proto", bytes, |bytes| {
            let parsed = highwire_proto::h1::parse_request(bytes, &limits, &mut head);
            assert_eq!(parsed, Ok(Some(bytes.len())));
        });
        best("httparse", bytes, |bytes| {
            let mut headers = [std::mem::MaybeUninit::uninit(); 100];
            let mut request = httparse::Request::new(&mut []);
            let parsed = request.parse_with_uninit_headers(bytes, &mut headers);
            assert_eq!(parsed, Ok(httparse::Status::Complete(bytes.len())));
        });
        best("proto, whole connection", bytes, |bytes| {
            let mut connection = highwire_proto::h1::Connection::new(highwire_proto::Role::Server);
            let received = connection.receive(bytes, &mut head, &limits);
            assert!(black_box(received).is_ok());
        });
    }
}
