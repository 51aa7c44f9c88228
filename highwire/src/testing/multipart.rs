//! Forms with files, for tests of uploads.

use super::RequestBuilder;
use crate::client::multipart::Form;

impl RequestBuilder<'_> {
    /// Sets the body to a form with files, and `Content-Type` to `multipart/form-data`. The form is that of the client.
    ///
    /// ```
    /// use highwire::client::multipart::{Form, Part};
    /// use highwire::testing::Client;
    /// use highwire::{App, Multipart};
    ///
    /// let app = App::new().post("/photos", async |mut form: Multipart| {
    ///     let mut names = Vec::new();
    ///     while let Some(Ok(part)) = form.next().await {
    ///         names.push(format!("{} {}", part.name(), part.file_name().unwrap_or("-")));
    ///     }
    ///     names.join(", ")
    /// });
    /// let form = Form::new().text("title", "A photo").part("photo", Part::bytes(&b"..."[..]).file_name("p.png"));
    /// assert_eq!(Client::new(app)?.post("/photos").multipart(form).send().text(), "title -, photo p.png");
    /// # Ok::<(), highwire::Error>(())
    /// ```
    ///
    /// # Panics
    /// Panics if a field of the form is a stream.
    pub fn multipart(self, form: Form) -> Self {
        let (content_type, body) = form.into_bytes().expect("a form without streams");
        self.header("content-type", content_type).body(body)
    }
}
