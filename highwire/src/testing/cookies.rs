//! Cookies that a test client keeps between its requests.

use super::{RequestBuilder, TestResponse};

#[cfg(feature = "cookie-jar")]
mod kept {
    use super::{RequestBuilder, TestResponse};
    use crate::client::CookieJar;
    use crate::header;
    use crate::testing::Client;

    impl Client {
        /// Lets the client keep cookies, as a browser does: it adds those of the jar to each request without a `Cookie` field, and keeps those
        /// of each response of [`send`](RequestBuilder::send). The jar takes the app for a server of HTTPS, so it also keeps `Secure`
        /// cookies. Requests with another `Host` are those to another site. Requires the feature `cookie-jar`.
        ///
        /// ```
        /// use highwire::client::CookieJar;
        /// use highwire::cookie::Cookies;
        /// use highwire::testing::Client;
        /// use highwire::App;
        ///
        /// let app = App::new()
        ///     .post("/login", || ([("set-cookie", "name=ann; Secure")], "welcome"))
        ///     .get("/", |cookies: Cookies| cookies.get("name").map(|name| name.into_owned()));
        /// let mut client = Client::new(app)?.cookie_jar(CookieJar::new());
        /// assert_eq!(client.get("/").send().status(), 404);
        /// client.post("/login").send();
        /// assert_eq!(client.get("/").send().text(), "ann");
        /// # Ok::<(), highwire::Error>(())
        /// ```
        #[must_use]
        pub fn cookie_jar(mut self, jar: CookieJar) -> Client {
            self.jar = Some(jar);
            self
        }
    }

    /// The jar for a response, and the URL of its request.
    pub(in crate::testing) struct Cookies(Option<(CookieJar, String)>);

    impl Cookies {
        pub(in crate::testing) fn keep(self, answer: &TestResponse) {
            let Some((jar, url)) = self.0 else { return };
            for cookie in answer.headers().get_all(header::SET_COOKIE) {
                if let Ok(cookie) = cookie.to_str() {
                    let _ = jar.set(cookie, &url);
                }
            }
        }
    }

    impl RequestBuilder<'_> {
        fn url(&self) -> String {
            let host = self.fields.iter().find(|(name, _)| name == header::HOST);
            let host = host.and_then(|(_, value)| value.to_str().ok()).unwrap_or("test");
            format!("https://{host}{}", self.target)
        }

        pub(in crate::testing) fn cookies(&self) -> Cookies {
            Cookies(self.client.jar.clone().map(|jar| (jar, self.url())))
        }

        /// Adds the cookies of the client's jar.
        pub(in crate::testing) fn with_cookies(mut self) -> Self {
            let has_own = self.fields.iter().any(|(name, _)| name == header::COOKIE);
            if let Some(jar) = self.client.jar.as_ref().filter(|_| !has_own)
                && let Ok(Some(cookies)) = jar.get(&self.url())
            {
                self.fields.push((header::COOKIE, cookies));
            }
            self
        }
    }
}

#[cfg(not(feature = "cookie-jar"))]
mod kept {
    use super::{RequestBuilder, TestResponse};

    /// Without the feature `cookie-jar`, no cookies are kept.
    pub(in crate::testing) struct Cookies;

    impl Cookies {
        pub(in crate::testing) fn keep(self, _: &TestResponse) {}
    }

    impl RequestBuilder<'_> {
        pub(in crate::testing) fn cookies(&self) -> Cookies {
            Cookies
        }

        pub(in crate::testing) fn with_cookies(self) -> Self {
            self
        }
    }
}
