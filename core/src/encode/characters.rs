//! The first symbols of a character-level vocabulary: a token for each character, else one for each of its bytes.
//!
//! Invariant: a symbol depends on nothing but its character, so a text may be cut between any two characters. Cost: one look-up.

use rustc_hash::FxHashMap;

/// What SentencePiece writes for a space. The tokens have spaces in its place; a text may have either, and both are merged alike.
pub const MARK: char = '\u{2581}';

/// The tokens of single characters and of single bytes.
pub struct Characters {
    /// By byte: the token of the ASCII character, else the one that stands for the byte of an unknown character.
    byte_ids: [u32; 256],
    /// The tokens of the characters outside ASCII.
    ids: FxHashMap<[u8; 4], u32>,
}

impl Characters {
    /// `byte_ids`: the token of each byte. Of the `tokens`, only single characters outside ASCII matter.
    pub fn new<'b>(byte_ids: [u32; 256], tokens: impl Iterator<Item = (u32, &'b [u8])>) -> Self {
        let mut ids: FxHashMap<_, _> = tokens
            .filter(|(_, bytes)| !bytes.is_ascii() && n_bytes_of(bytes[0]) == bytes.len())
            .filter_map(|(id, bytes)| Some((key_of(bytes)?, id)))
            .collect();
        ids.extend(key_of(MARK.to_string().as_bytes()).map(|key| (key, byte_ids[usize::from(b' ')])));
        Self { byte_ids, ids }
    }

    /// The symbol that begins at `at` of `piece`, and its number of bytes.
    pub fn symbol(&self, piece: &[u8], at: usize) -> (u32, usize) {
        let byte = piece[at];
        if byte >= 0xc2 {
            let n_bytes = n_bytes_of(byte);
            let key = piece.get(at..at + n_bytes).and_then(key_of);
            if let Some(&id) = key.and_then(|key| self.ids.get(&key)) {
                return (id, n_bytes);
            }
        }
        (self.byte_ids[usize::from(byte)], 1)
    }
}

/// The number of bytes of the character that begins with `first`.
fn n_bytes_of(first: u8) -> usize {
    match first {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xff => 4,
        _ => 1,
    }
}

fn key_of(character: &[u8]) -> Option<[u8; 4]> {
    let mut key = [0; 4];
    key.get_mut(..character.len())?.copy_from_slice(character);
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_is_its_token_and_an_unknown_one_its_bytes() {
        let tokens = ["ä", "中", "😀", "äb", "x"].map(str::as_bytes);
        let characters = Characters::new(
            std::array::from_fn(|byte| byte as u32),
            tokens.iter().enumerate().map(|(i, token)| (300 + i as u32, *token)),
        );
        let text = "xä中😀ö \u{2581}".as_bytes();
        let (mut at, mut found) = (0, Vec::new());
        while at < text.len() {
            let (id, n_bytes) = characters.symbol(text, at);
            found.push(id);
            at += n_bytes;
        }
        assert_eq!(found, [0x78, 300, 301, 302, 0xc3, 0xb6, 0x20, 0x20]);
    }
}
