"""Tests the app of mod.rs with Python's requests. Arguments: the URL, the path of a large file, and the hash of the file."""

import sys
import warnings

import requests

warnings.simplefilter("ignore")
base, path, total = sys.argv[1:]
with open(path, "rb") as file:
    large = file.read()

session = requests.Session()
session.verify = False
# Ignores the proxies that the environment sets.
session.trust_env = False


def ask(method, path, status, **rest):
    answer = session.request(method, base + path, timeout=60, **rest)
    assert answer.status_code == status, (method, path, answer.status_code, answer.text[:200])
    return answer


# Cookies, from one response to the next request.
ask("GET", "/cookies/set", 200)
assert set(session.cookies.keys()) == {"seen", "hidden", "strict"}, session.cookies
assert ask("GET", "/cookies", 200).json() == dict.fromkeys(["seen", "hidden", "strict"], "a b;\u00e9")
ask("GET", "/cookies/remove", 200)
assert len(session.cookies) == 0 and ask("GET", "/cookies", 200).json() == {}, session.cookies
assert [ask("GET", path, 200).text for path in ("/count", "/count", "/signed", "/count")] == ["1", "2", "1", "3"]

# Bodies.
assert ask("POST", "/json", 200, json={"a": [1, "\u00e9"]}).json() == {"a": [1, "\u00e9"]}
assert ask("POST", "/form", 200, data={"a": "b c&d", "e": "\u00e9"}).json() == {"a": "b c&d", "e": "\u00e9"}
parts = {"file": ("n\u00e4me.txt", b"content", "text/plain"), "other": ("o.bin", b"\0\r\n")}
told = [
    {"name": "note", "file": None, "media_type": None, "text": "a b"},
    {"name": "file", "file": "n\u00e4me.txt", "media_type": "text/plain", "text": "content"},
    {"name": "other", "file": "o.bin", "media_type": None, "text": "\0\r\n"},
]
assert ask("POST", "/parts", 200, files=parts, data={"note": "a b"}).json() == told
pieces = (large[at : at + 70_001] for at in range(0, len(large), 70_001))
assert ask("PUT", "/store/generated", 201, data=pieces).text == f"generated {len(large)} {total}"
with open(path, "rb") as file:
    assert ask("PUT", "/store/file", 201, data=file).text == f"file {len(large)} {total}"

# Credentials.
assert ask("GET", "/basic", 200, auth=("ada", "s\u00e9:cret".encode())).text == "hello ada"
ask("GET", "/basic", 401, auth=("ada", "wrong"))
assert ask("GET", "/bearer", 200, headers={"Authorization": "Bearer x1y2"}).text == "come in"

# Responses in each coding that this Python decodes. Prints the codings that it does not.
text = ask("GET", "/text", 200, headers={"Accept-Encoding": "identity"})
assert "content-encoding" not in text.headers and len(text.content) > 10_000, text.headers
known = requests.utils.default_headers()["Accept-Encoding"]
for coding in ("gzip", "deflate", "br", "zstd"):
    if coding not in known:
        print(coding)
        continue
    for path in ("/text", "/files/text.txt"):
        answer = ask("GET", path, 200, headers={"Accept-Encoding": coding})
        assert answer.headers["content-encoding"] == coding, answer.headers
        assert answer.content == text.content, (coding, len(answer.content))

# A download in pieces, and a range of it.
with ask("GET", "/files/large.bin", 200, stream=True) as answer:
    got = b"".join(answer.iter_content(9_999))
assert got == large, len(got)
assert ask("GET", "/files/large.bin", 206, headers={"Range": "bytes=5-99"}).content == large[5:100]
# A download that ends in the middle.
with ask("GET", "/files/large.bin", 200, stream=True) as answer:
    assert next(answer.iter_content(10)) == large[:10]

# Redirects.
for path, seen in (("/see-other", "GET "), ("/temporary", "POST some text"), ("/permanent", "POST some text")):
    answer = ask("POST", path, 200, data="some text")
    assert answer.text == seen and answer.history, (path, answer.text)
print("done")
