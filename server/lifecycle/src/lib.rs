//! Every lifecycle decision, as pure functions from a snapshot to a plan
