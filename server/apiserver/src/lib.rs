//! An embedded Kubernetes-compatible API server. It knows no Machine.
