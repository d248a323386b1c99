//! The core: wiring of controllers and driver sessions, and its binary
