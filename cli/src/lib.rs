//! The ostler command: up, reset, driver, crds
