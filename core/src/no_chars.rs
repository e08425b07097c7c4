//! In the place of `chars` on other processors.

use crate::memory::out_buffer::Tail;

pub const WRITTEN_CHARS: usize = 0;

#[derive(Clone, Copy)]
pub enum Transcoder {}

impl Transcoder {
    pub fn of_processor() -> Option<Self> {
        None
    }

    pub fn chars<'c, const BYTES: usize>(self, _: &str, _: &'c mut Tail<u32>) -> &'c [u8] {
        match self {}
    }
}
