//! The server in process and over HTTPS.
