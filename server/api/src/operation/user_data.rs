//! User data.

use std::fmt;

/// Bytes that hold credentials: never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct UserData {
    bytes: Vec<u8>,
    format: String,
}

impl UserData {
    /// Wraps the bytes.
    pub const fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, format: String::new() }
    }

    /// With the format of the data for the driver, e.g. `cloud-config`.
    #[must_use]
    pub fn in_format(self, format: &str) -> Self {
        Self { format: format.to_owned(), ..self }
    }

    /// The format of the user data; may be empty.
    pub fn format(&self) -> &str {
        &self.format
    }

    /// The bytes, for the request to the driver.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes, given away.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// How many bytes.
    pub const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

impl fmt::Debug for UserData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UserData({} bytes)", self.len())
    }
}
