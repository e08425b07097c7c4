//! Lines of JSON to the texts and ids of documents.

pub mod json_lines;
