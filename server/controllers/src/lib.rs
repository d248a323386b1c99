//! The effect shell: observe, execute and record over the Kubernetes API and driver sessions
