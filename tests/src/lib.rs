//! Harness, end to end and repository tests of Ostler
