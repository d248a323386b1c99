//! Trying what a backup would be as a server, without a directory.

use std::path::PathBuf;

use super::{ApiServer, KEY_FILES, Limits, OpenError};
use crate::{
    auth::{Auth, certificates::Authority},
    clock::wall_clock,
    context::Context,
    store::{Store, secret::accept},
};

impl ApiServer {
    /// Opens in memory what [`ApiServer::open`] would open in a directory with these objects and with the files
    /// [`KEY_FILES`] that `text_of` has. An object or file that is refused here would be refused there.
    ///
    /// # Errors
    /// A key is missing or cannot be used, or the server cannot start.
    pub async fn try_out<'a>(
        store: Store,
        text_of: impl Fn(&str) -> Option<&'a str>,
    ) -> Result<Self, OpenError> {
        let texts = KEY_FILES.map(|name| (PathBuf::from(name), text_of(name).unwrap_or_default()));
        let [(token_file, token), (key_file, key), (_, authority)] = &texts;
        let unusable = |file: &PathBuf| {
            let directory = file.clone();
            move |source| OpenError::Keys { directory, source }
        };
        let token = accept(token_file, token).map_err(unusable(token_file))?;
        let key = accept(key_file, key).map_err(unusable(key_file))?;
        let context = Context { store, clock: wall_clock() };
        let auth = Auth::with(context.clone(), token, &key);
        let authority = Authority::read(authority)?;
        Self::over(context, auth, authority, None, (Limits::default(), None)).await
    }
}
