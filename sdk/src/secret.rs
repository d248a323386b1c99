//! Credentials: short-lived, never printed, wiped when dropped.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use zeroize::Zeroizing;

use crate::error::DriverError;

/// The secrets of a class, merged. Wiped from memory when the last clone is dropped.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret {
    data: Arc<BTreeMap<String, Zeroizing<Vec<u8>>>>,
}

impl Secret {
    pub(crate) fn new(data: impl IntoIterator<Item = (String, Vec<u8>)>) -> Self {
        let data = data.into_iter().map(|(key, value)| (key, Zeroizing::new(value))).collect();
        Self { data: Arc::new(data) }
    }

    /// The value of a key, if there is one.
    pub fn get(&self, key: &str) -> Option<&[u8]> {
        self.data.get(key).map(|value| value.as_slice())
    }

    /// The value of a key as text; `UNAUTHENTICATED` if it is missing or is no text.
    pub fn text(&self, key: &str) -> Result<&str, DriverError> {
        let refused = |why| {
            DriverError::unauthenticated(format!("key {key} of the secret {why}"))
                .reason("SECRET_INCOMPLETE")
                .not_applied()
        };
        let value = self.get(key).ok_or_else(|| refused("is missing"))?;
        std::str::from_utf8(value).map_err(|_| refused("is not UTF-8"))
    }

    /// The keys, which are no secret to the driver that asked; do not log them all the same.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.data.keys().map(String::as_str)
    }

    /// The values, to be kept out of texts.
    pub(crate) fn values(&self) -> impl Iterator<Item = &[u8]> {
        self.data.values().map(|value| value.as_slice())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret(<{} keys>)", self.data.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret() -> Secret {
        Secret::new([("password".to_owned(), b"canary-7f3a".to_vec())])
    }

    #[test]
    fn debug_shows_neither_keys_nor_values() {
        assert_eq!(format!("{:?}", secret()), "Secret(<1 keys>)");
    }

    #[test]
    fn a_missing_key_is_named() {
        let error = secret().text("user").unwrap_err();
        assert!(error.message().contains("user"), "{error}");
    }
}
