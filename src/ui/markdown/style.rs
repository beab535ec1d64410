//! How a cell looks: attributes and one of the terminal's own sixteen colours, so it fits light and dark backgrounds.

use std::fmt::Write as _;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Style {
    attributes: u8,
    /// An index among the sixteen; none is the terminal's text colour.
    colour: Option<u8>,
}

impl Style {
    pub(super) const PLAIN: Self = Self::attribute(0);
    pub(super) const BOLD: Self = Self::attribute(1);
    pub(super) const DIM: Self = Self::attribute(1 << 1);
    pub(super) const ITALIC: Self = Self::attribute(1 << 2);
    pub(super) const UNDERLINED: Self = Self::attribute(1 << 3);
    pub(super) const STRUCK: Self = Self::attribute(1 << 4);
    pub(super) const CODE: Self = Self { attributes: 0, colour: Some(6) };

    const fn attribute(attributes: u8) -> Self {
        Self { attributes, colour: None }
    }

    pub(super) const fn coloured(colour: u8) -> Self {
        Self { attributes: 0, colour: Some(colour) }
    }

    /// Both looks; the other's colour wins.
    pub(super) fn with(self, other: Self) -> Self {
        Self { attributes: self.attributes | other.attributes, colour: other.colour.or(self.colour) }
    }

    /// Appends the sequence that changes one look into another (ECMA-48, SGR).
    pub(super) fn change(from: Self, to: Self, out: &mut String) {
        const CODES: [u8; 5] = [1, 2, 3, 4, 9];
        let reset = (from != Self::default() && to != Self::default()).then_some(0);
        let attributes =
            CODES.iter().enumerate().filter(|(bit, _)| to.attributes & (1 << bit) != 0).map(|(_, code)| *code);
        let colour = to.colour.map(|colour| if colour < 8 { 30 + colour } else { 82 + colour });
        out.push_str("\x1b[");
        for (number, code) in reset.into_iter().chain(attributes).chain(colour).enumerate() {
            let _ = write!(out, "{}{code}", if number > 0 { ";" } else { "" });
        }
        out.push('m');
    }
}
