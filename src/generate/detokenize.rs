//! Bytes of tokens to text: held back until they make whole characters.

/// Turns a stream of bytes into text. A character may be spread over several tokens.
#[derive(Debug, Default)]
pub(super) struct Utf8 {
    pending: Vec<u8>,
}

impl Utf8 {
    /// Adds bytes and appends every character that is complete now. Bytes that can never become one are shown as U+FFFD.
    pub(super) fn push(&mut self, bytes: &[u8], text: &mut String) {
        self.pending.extend_from_slice(bytes);
        let mut rest = self.pending.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(whole) => {
                    text.push_str(whole);
                    rest = &[];
                    break;
                }
                Err(error) => {
                    let (whole, after) = rest.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(whole));
                    let Some(invalid) = error.error_len() else {
                        rest = after;
                        break;
                    };
                    text.push(char::REPLACEMENT_CHARACTER);
                    rest = &after[invalid..];
                }
            }
        }
        let kept = rest.len();
        self.pending.drain(..self.pending.len() - kept);
    }

    /// Whether no character is unfinished.
    pub(super) fn is_whole(&self) -> bool {
        self.pending.is_empty()
    }

    /// The end of the stream: an unfinished character is shown as U+FFFD.
    pub(super) fn finish(&mut self, text: &mut String) {
        if !self.pending.is_empty() {
            self.pending.clear();
            text.push(char::REPLACEMENT_CHARACTER);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cut_at_every_byte_comes_out_whole() {
        let samples = ["Grüße", "你好，世界", "👩‍👩‍👧‍👦 family", "a\u{0301}e\u{0301}", "नमस्ते", "\u{10FFFF}\u{0}x"];
        for sample in samples {
            let bytes = sample.as_bytes();
            for cut in 0..=bytes.len() {
                let (mut utf8, mut text) = (Utf8::default(), String::new());
                utf8.push(&bytes[..cut], &mut text);
                assert!(sample.starts_with(&text), "{text:?} shows more than there is");
                utf8.push(&bytes[cut..], &mut text);
                utf8.finish(&mut text);
                assert_eq!(text, sample);
            }
            let (mut utf8, mut text) = (Utf8::default(), String::new());
            bytes.iter().for_each(|byte| utf8.push(&[*byte], &mut text));
            assert_eq!(text, sample);
        }
    }

    #[test]
    fn invalid_bytes_are_what_the_standard_library_makes_of_them() {
        let samples: [&[u8]; 5] = [b"a\xffb", b"\xe4\xbd", b"\xf0\x9f\x98x", b"\xc0\xaf", b"\xed\xa0\x80z"];
        for bytes in samples {
            for cut in 0..=bytes.len() {
                let (mut utf8, mut text) = (Utf8::default(), String::new());
                utf8.push(&bytes[..cut], &mut text);
                utf8.push(&bytes[cut..], &mut text);
                utf8.finish(&mut text);
                assert_eq!(text, String::from_utf8_lossy(bytes), "{bytes:?} cut at {cut}");
            }
        }
    }
}
