//! In the place of `utf32` on other processors.

#[derive(Clone, Copy)]
pub enum Transcoder {}

impl Transcoder {
    pub fn of_processor() -> Option<Self> {
        None
    }

    pub fn utf32<'c>(self, _: &str, _: &'c mut Vec<u32>) -> &'c [u32] {
        match self {}
    }
}
