//! Many short texts in one piece of memory.

/// Sanity bound: the texts of the largest vocabularies have 3 MB together.
const MAX_BYTES: usize = 1 << 28;

/// Texts by number: all their bytes in one run, and where each ends.
#[derive(Debug, Default)]
pub(super) struct Texts {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Texts {
    /// Room for `count` texts of the usual length.
    pub(super) fn with_capacity(count: usize) -> Self {
        Self { bytes: Vec::with_capacity(8 * count), ends: Vec::with_capacity(count) }
    }

    /// Adds a text; none where there is no room for it.
    pub(super) fn push(&mut self, text: &[u8]) -> Option<()> {
        let end = self.bytes.len() + text.len();
        if end > MAX_BYTES {
            return None;
        }
        self.bytes.extend_from_slice(text);
        self.ends.push(end as u32);
        Some(())
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn get(&self, number: usize) -> Option<&[u8]> {
        let start = number.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).map(|end| *end as usize))?;
        self.bytes.get(start..*self.ends.get(number)? as usize)
    }

    /// The first number, of those that both have, whose texts differ.
    pub(super) fn first_difference(&self, other: &Self) -> Option<usize> {
        let both = self.len().min(other.len());
        let bytes = self.ends[..both].last().map_or(0, |end| *end as usize);
        // Equal ends and bytes are equal texts: two comparisons of memory.
        if self.ends[..both] == other.ends[..both] && self.bytes[..bytes] == other.bytes[..bytes] {
            return None;
        }
        (0..both).find(|number| self.get(*number) != other.get(*number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(all: &[&str]) -> Texts {
        let mut texts = Texts::with_capacity(all.len());
        all.iter().for_each(|text| texts.push(text.as_bytes()).unwrap());
        texts
    }

    #[test]
    fn texts_are_found_by_number() {
        let some = texts(&["", "a", "", "bc"]);
        let all: Vec<_> = (0..some.len()).map(|number| some.get(number).unwrap()).collect();
        assert_eq!(all, [&b""[..], b"a", b"", b"bc"]);
        assert_eq!(some.get(4), None);
        assert_eq!(texts(&[]).get(0), None);
    }

    #[test]
    fn the_first_difference_is_found() {
        let some = texts(&["a", "bc", "d"]);
        assert_eq!(some.first_difference(&texts(&["a", "bc", "d", "e"])), None);
        assert_eq!(some.first_difference(&texts(&["a", "bc"])), None);
        assert_eq!(some.first_difference(&texts(&[])), None);
        assert_eq!(some.first_difference(&texts(&["a", "bd", "d"])), Some(1));
        // The same bytes, cut elsewhere.
        assert_eq!(some.first_difference(&texts(&["ab", "c", "d"])), Some(0));
    }
}
