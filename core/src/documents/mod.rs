//! Lines of JSON → texts and ids of documents.

pub mod json_lines;
