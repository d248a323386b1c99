//! The driver contract: the .proto files and the code generated from them
