//! Replaces `avx512` on other processors, and where the crate's feature `portable` is on.

use super::window::Rule;
use crate::split::sink::PIECES_MAX;

#[derive(Clone, Copy)]
pub enum Vectors {}

impl Vectors {
    pub fn of_processor() -> Option<Self> {
        None
    }

    pub fn fill<R: Rule>(self, _: &[u8], _: usize, _: &mut [usize; PIECES_MAX], _: usize) -> (usize, usize) {
        match self {}
    }
}
