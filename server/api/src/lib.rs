//! Names, enums and API types of Ostler. No I/O
