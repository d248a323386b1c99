//! The gRPC side of the core: driver sessions, dispatch, class and secret service
