//! Lists of integers → the body of a Parquet data page, before compression (Parquet's documents "Encodings.md" and "Data Pages",
//! version 1 of the page): repetition levels, definition levels, then the integers in the encoding BYTE_STREAM_SPLIT.
//!
//! No list and no integer is null, so that the levels follow from the lengths of the lists: a few bytes a list, instead of a level
//! for each integer. Cost: O(lists + integers) in time; a page takes 4 bytes an integer, and up to 8 bytes a list for levels.

use std::ops::Range;

/// Integers that Parquet stores in 32 bits.
pub trait Int: Copy {
    /// The integer in 32 bits, with its sign.
    fn wide(self) -> u32;
}

impl Int for u16 {
    fn wide(self) -> u32 {
        u32::from(self)
    }
}

impl Int for u32 {
    fn wide(self) -> u32 {
        self
    }
}

impl Int for i8 {
    fn wide(self) -> u32 {
        i32::from(self).cast_unsigned()
    }
}

impl Int for i32 {
    fn wide(self) -> u32 {
        self.cast_unsigned()
    }
}

/// What a page holds: part of a column of lists.
#[derive(Debug, PartialEq)]
pub struct Part {
    /// The lists that begin in it.
    pub rows: Range<usize>,
    /// The integers, by their place in the column.
    pub values: Range<usize>,
    /// Whether it goes on with the list before.
    pub goes_on: bool,
}

impl Part {
    /// The number of its levels: of its integers, and of its empty lists.
    pub fn n_levels(&self, offsets: &[i32]) -> usize {
        let n_empty = self.rows.clone().filter(|&row| offsets[row] == offsets[row + 1]).count();
        self.values.len() + n_empty
    }
}

/// Cuts a column into parts of `n_values_max` integers and as many lists at most. Only a list with more integers than that is cut itself.
///
/// `offsets`: where each list begins among the integers, and where the last one ends.
pub fn parts(offsets: &[i32], n_values_max: usize) -> Vec<Part> {
    let n_rows = offsets.len().saturating_sub(1);
    let place = |row: usize| offsets[row] as usize;
    let mut parts = Vec::new();
    let mut row = 0;
    while row < n_rows {
        let first = row;
        row += 1;
        while row < n_rows && row - first < n_values_max && place(row + 1) - place(first) <= n_values_max {
            row += 1;
        }
        let end = place(row);
        let mut at = place(first);
        let cut = end.min(at + n_values_max);
        parts.push(Part { rows: first..row, values: at..cut, goes_on: false });
        at = cut;
        while at < end {
            let cut = end.min(at + n_values_max);
            parts.push(Part { rows: row..row, values: at..cut, goes_on: true });
            at = cut;
        }
    }
    parts
}

/// Makes `body` that of the page of a part. `values`: the integers of the whole column.
pub fn write<I: Int>(offsets: &[i32], values: &[I], part: &Part, body: &mut Vec<u8>) {
    let mut lists = Runs::default();
    let mut filled = Runs::default();
    if part.goes_on {
        lists.add(1, part.values.len());
        filled.add(1, part.values.len());
    }
    for row in part.rows.clone() {
        let end = (offsets[row + 1] as usize).min(part.values.end);
        let n = end - offsets[row] as usize;
        lists.add(0, 1);
        lists.add(1, n.saturating_sub(1));
        filled.add(u8::from(n > 0), n.max(1));
    }
    let values = &values[part.values.clone()];
    body.clear();
    body.extend(lists.end());
    body.extend(filled.end());
    for shift in [0, 8, 16, 24] {
        body.extend(values.iter().map(|value| (value.wide() >> shift) as u8));
    }
}

/// Levels of 0 and 1 in Parquet's RLE encoding of one bit, with its length in front.
#[derive(Default)]
struct Runs {
    bytes: Vec<u8>,
    level: u8,
    n: usize,
}

impl Runs {
    fn add(&mut self, level: u8, n: usize) {
        if n == 0 {
            return;
        }
        if level != self.level {
            self.flush();
            self.level = level;
        }
        self.n += n;
    }

    fn flush(&mut self) {
        if self.n == 0 {
            return;
        }
        let mut header = (self.n as u64) << 1; // the lowest bit 0: a run
        while header >= 0x80 {
            self.bytes.push(header as u8 | 0x80);
            header >>= 7;
        }
        self.bytes.extend([header as u8, self.level]);
        self.n = 0;
    }

    fn end(mut self) -> Vec<u8> {
        self.flush();
        let mut all = (self.bytes.len() as u32).to_le_bytes().to_vec();
        all.append(&mut self.bytes);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body<I: Int>(offsets: &[i32], values: &[I], part: &Part) -> Vec<u8> {
        let mut body = vec![9];
        write(offsets, values, part, &mut body);
        body
    }

    #[test]
    fn parts_end_where_lists_end() {
        let found = parts(&[0, 3, 3, 7, 8], 5);
        assert_eq!(
            found,
            [Part { rows: 0..2, values: 0..3, goes_on: false }, Part { rows: 2..4, values: 3..8, goes_on: false }]
        );
    }

    #[test]
    fn a_list_that_is_too_long_for_a_part_is_cut() {
        let found = parts(&[0, 1, 6, 7], 2);
        let expected = [
            Part { rows: 0..1, values: 0..1, goes_on: false },
            Part { rows: 1..2, values: 1..3, goes_on: false },
            Part { rows: 2..2, values: 3..5, goes_on: true },
            Part { rows: 2..2, values: 5..6, goes_on: true },
            Part { rows: 2..3, values: 6..7, goes_on: false },
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_column_begins_where_its_first_list_does() {
        assert_eq!(parts(&[4, 6], 9), [Part { rows: 0..1, values: 4..6, goes_on: false }]);
        assert_eq!(parts(&[4], 9), []);
    }

    #[test]
    fn a_page_has_levels_and_then_streams_of_bytes() {
        let offsets = [0, 2, 2, 3];
        let part = &parts(&offsets, 9)[0];
        assert_eq!(part.n_levels(&offsets), 4);
        let lists = [6, 0, 0, 0, 1 << 1, 0, 1 << 1, 1, 2 << 1, 0];
        let filled = [6, 0, 0, 0, 2 << 1, 1, 1 << 1, 0, 1 << 1, 1];
        let streams = [1, 4, 255, 2, 5, 255, 0, 0, 255, 0, 0, 255];
        let values = [0x201, 0x504, -1];
        assert_eq!(body(&offsets, &values, part), [&lists[..], &filled, &streams].concat());
    }

    #[test]
    fn a_cut_list_goes_on_without_a_new_one() {
        let offsets = [0, 300];
        let found = parts(&offsets, 200);
        let values: Vec<u16> = vec![7; 300];
        assert_eq!(body(&offsets, &values, &found[0])[..14], [5, 0, 0, 0, 2, 0, 0x8e, 3, 1, 3, 0, 0, 0, 0x90]);
        assert_eq!(body(&offsets, &values, &found[1])[..12], [3, 0, 0, 0, 0xc8, 1, 1, 3, 0, 0, 0, 0xc8]);
    }

    #[test]
    fn integers_keep_their_sign() {
        let streams = |values: &[i8]| body(&[0, 1], values, &parts(&[0, 1], 9)[0])[12..].to_vec();
        assert_eq!(streams(&[-100]), [156, 255, 255, 255]);
        assert_eq!(streams(&[1]), [1, 0, 0, 0]);
    }
}
