//! The app's OpenAPI document.

use super::App;
use crate::openapi::{OpenApi, Publication, hidden};
use crate::{Error, Result};

impl App {
    /// Serves a document that describes the app's routes and those of the apps that are nested in it, and a page if the settings have
    /// one; see [`openapi`](crate::openapi). A route that the document cannot describe is an error when the server is built. Only the
    /// outermost app may call this, and once.
    pub fn openapi(mut self, settings: OpenApi) -> App {
        self.outermost.push("openapi");
        if self.openapi.is_some() {
            let text = "App::openapi was called twice; an app has one document".to_string();
            self.mistake = self.mistake.or(Some(Error::Setting(text)));
            return self;
        }
        let publication = Publication::new(settings);
        let mut app = self.get(publication.document_path(), hidden(publication.document()));
        if let Some((path, page)) = publication.page() {
            app = app.get(path, hidden(page));
        }
        app.openapi = Some(publication);
        app
    }

    /// Returns the document that the app would serve, for a file that other tools read, such as generators of clients.
    ///
    /// # Errors
    /// Returns an error if the app cannot be built, or if [`openapi`](Self::openapi) was not called.
    pub fn openapi_document(self) -> Result<String> {
        let publication = self.openapi.clone();
        let publication = publication.ok_or_else(|| Error::Setting("App::openapi was not called".to_string()))?;
        self.build()?;
        Ok(String::from_utf8_lossy(&publication.written()).into_owned())
    }
}
