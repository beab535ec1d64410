//! Follows the converter through a regular expression. It copies much of it as it stands, between the quotes of a JSON
//! string, so whatever may match a quote, a backslash or a control character ends or breaks that string.

use super::{Finding, MOST_REPEATED};

type Checked<T> = Result<T, (Finding, String)>;

/// Groups inside each other.
const DEEPEST: usize = 100;

/// # Errors
/// The first thing that the converter stumbles on.
pub(super) fn check(pattern: &str) -> Checked<()> {
    match pattern.strip_prefix('^').and_then(|rest| rest.strip_suffix('$')) {
        Some(inner) => Walk { rest: inner, groups: Vec::new(), last: Last::Nothing }.run(),
        None => ignored("is not enforced unless it begins with `^` and ends with `$`"),
    }
}

fn refused<T>(cause: impl Into<String>) -> Checked<T> {
    Err((Finding::Refused, cause.into()))
}

fn ignored<T>(cause: impl Into<String>) -> Checked<T> {
    Err((Finding::Ignored, cause.into()))
}

/// What a quantifier would repeat.
#[derive(Clone, Copy, PartialEq)]
enum Last {
    Nothing,
    /// Something that the converter keeps together.
    One,
    /// Plain characters, which it parts before a quantifier.
    Text,
    /// An escaped character with none before it.
    Escape,
    /// An escaped character behind others, or one of several bytes: it does not part these rightly.
    Stuck,
    Repeated,
    /// A group with an empty alternative.
    Hollow,
}

struct Walk<'p> {
    rest: &'p str,
    /// For each group that is open, whether one of its alternatives is empty.
    groups: Vec<bool>,
    last: Last,
}

impl Walk<'_> {
    fn run(mut self) -> Checked<()> {
        while let Some(c) = self.rest.chars().next() {
            let whole = self.rest;
            self.rest = &whole[c.len_utf8()..];
            self.last = match c {
                '(' => {
                    let plain = self.rest.strip_prefix("?:");
                    self.rest = plain.unwrap_or(self.rest);
                    if plain.is_none() && self.rest.starts_with('?') {
                        return ignored("is not enforced: groups that begin with `(?` are not known, but `(?:`");
                    }
                    self.groups.push(false);
                    if self.groups.len() > DEEPEST {
                        return ignored(format!("is not enforced: more than {DEEPEST} groups inside each other"));
                    }
                    Last::Nothing
                }
                ')' => match self.groups.pop() {
                    None => return refused("has a `)` too many"),
                    Some(hollow) if hollow || self.last == Last::Nothing => Last::Hollow,
                    Some(_) => Last::One,
                },
                '|' => {
                    let empty = self.last == Last::Nothing;
                    self.groups.last_mut().into_iter().for_each(|hollow| *hollow |= empty);
                    Last::Nothing
                }
                '^' | '$' => return ignored(format!("is not enforced: a `{c}` in its middle")),
                '.' => return refused("has a `.`, which would match quotes and backslashes; list characters instead"),
                '[' => self.set()?,
                '*' | '+' | '?' => self.repeated(c)?,
                '{' => {
                    let last = self.repeated(c)?;
                    self.counts()?;
                    last
                }
                ']' | '}' => return ignored(format!("is not enforced: a `{c}` by itself; write `\\{c}`")),
                '\\' => {
                    if self.rest.is_empty() {
                        return refused("ends with a backslash");
                    }
                    let special = self.rest.chars().next().filter(|c| "^$.[]()|{}*+?".contains(*c));
                    match special {
                        Some(c) => self.rest = &self.rest[c.len_utf8()..],
                        None => takes(self.escape()?)?,
                    }
                    if matches!(self.last, Last::Text | Last::Escape | Last::Stuck) {
                        Last::Stuck
                    } else {
                        Last::Escape
                    }
                }
                c => {
                    takes(u32::from(c))?;
                    if c.is_ascii() { Last::Text } else { Last::Stuck }
                }
            };
        }
        if self.groups.is_empty() { Ok(()) } else { refused("has a `(` that is not closed") }
    }

    fn repeated(&self, c: char) -> Checked<Last> {
        match self.last {
            Last::Nothing => refused(format!("has a `{c}` with nothing before it to repeat")),
            Last::Hollow => refused(format!("has a `{c}` after a group with an empty alternative")),
            Last::Repeated => refused(format!("has a `{c}` after another quantifier")),
            Last::Stuck => {
                refused(format!("has a `{c}` that would not repeat the character before it; put that in `[]`"))
            }
            Last::One | Last::Text | Last::Escape => Ok(Last::Repeated),
        }
    }

    fn counts(&mut self) -> Checked<()> {
        let Some((counts, rest)) = self.rest.split_once('}') else {
            return ignored("is not enforced: a `{` that is not closed");
        };
        self.rest = rest;
        let (least, most) = counts.split_once(',').unwrap_or((counts, counts));
        let number = |text: &str, other: u64| if text.is_empty() { Some(other) } else { text.parse().ok() };
        let bounds = number(least, 0).zip(number(most, u64::MAX)).filter(|_| !counts.is_empty());
        match bounds {
            None => ignored(format!("is not enforced: `{{{counts}}}` is no repetition")),
            Some((least, most)) if least > most => refused(format!("has `{{{counts}}}`, at least more than at most")),
            Some((least, _)) if least > MOST_REPEATED => {
                refused(format!("has `{{{counts}}}`; at most {MOST_REPEATED} repetitions are possible"))
            }
            Some((_, most)) if most > MOST_REPEATED && most < u64::MAX => {
                ignored(format!("has `{{{counts}}}`, which above {MOST_REPEATED} is without end"))
            }
            Some(_) => Ok(()),
        }
    }

    /// The rest of `[...]`.
    fn set(&mut self) -> Checked<Last> {
        let not = self.rest.strip_prefix('^');
        self.rest = not.unwrap_or(self.rest);
        let mut ranges = Vec::new();
        while !self.rest.starts_with(']') {
            let low = self.member()?;
            let ranged = self.rest.strip_prefix('-').filter(|rest| !rest.starts_with(']'));
            self.rest = ranged.unwrap_or(self.rest);
            let high = if ranged.is_some() { self.member()? } else { low };
            if high < low {
                return refused("has a range that ends before it begins");
            }
            ranges.push(low..=high);
        }
        self.rest = &self.rest[1..];
        if ranges.is_empty() {
            return refused("has a `[]` without characters");
        }
        let within = |c: &u32| ranges.iter().any(|range| range.contains(c)) != not.is_some();
        match (0..0x20).chain([0x22, 0x5c]).find(within) {
            Some(_) if not.is_some() => refused(
                r#"has a `[^...]` that would match quotes, backslashes or control characters; add `"\\\x00-\x1F`"#,
            ),
            Some(c) => takes(c).map(|()| Last::One),
            None => Ok(Last::One),
        }
    }

    fn member(&mut self) -> Checked<u32> {
        let Some(c) = self.rest.chars().next() else { return refused("has a `[` that is not closed") };
        self.rest = &self.rest[c.len_utf8()..];
        if c == '\\' { self.escape() } else { Ok(u32::from(c)) }
    }

    /// What follows a backslash: the grammar's escapes, not those of regular expressions.
    fn escape(&mut self) -> Checked<u32> {
        let c = self.rest.chars().next().unwrap_or(' ');
        let digits = match c {
            'x' => 2,
            'u' => 4,
            'U' => 8,
            _ => 0,
        };
        let value = match c {
            't' => Some(9),
            'n' => Some(10),
            'r' => Some(13),
            '\\' | '"' | '[' | ']' | '-' => Some(u32::from(c)),
            _ if digits > 0 => self.rest.get(1..=digits).and_then(|hex| u32::from_str_radix(hex, 16).ok()),
            _ => None,
        };
        match value {
            Some(value) => {
                self.rest = &self.rest[1 + digits..];
                Ok(value)
            }
            None => ignored(format!("is not enforced: `\\{c}` is not known; list characters instead, such as `[0-9]`")),
        }
    }
}

/// What may stand in a JSON string as it is.
fn takes(c: u32) -> Checked<()> {
    match c {
        0x22 => refused("has a quote, which would end the JSON string"),
        0x5c => refused("has a backslash, which would begin an escape in the JSON string"),
        0..0x20 => refused("has a control character, which JSON does not allow in strings"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Finding, check};

    #[test]
    fn patterns_are_followed_as_the_converter_does() {
        for (pattern, finding, word) in [
            ("abc", Finding::Ignored, "begins with"),
            (r"^\d+$", Finding::Ignored, r"`\d`"),
            (r"^[\w.]$", Finding::Ignored, r"`\w`"),
            ("^(?=a)b$", Finding::Ignored, "(?:"),
            ("^a$b$", Finding::Ignored, "middle"),
            ("^a{x}$", Finding::Ignored, "{x}"),
            ("^a{0,3000}$", Finding::Ignored, "without end"),
            ("^a]$", Finding::Ignored, "by itself"),
            ("^(a$", Finding::Refused, "not closed"),
            ("^a)$", Finding::Refused, "too many"),
            ("^[a$", Finding::Refused, "not closed"),
            ("^*a$", Finding::Refused, "nothing before"),
            ("^(|*)$", Finding::Refused, "nothing before"),
            ("^a{3,1}$", Finding::Refused, "more than at most"),
            ("^a{3000}$", Finding::Refused, "2000"),
            ("^a+?$", Finding::Refused, "another quantifier"),
            (r"^a\.*$", Finding::Refused, "`*`"),
            ("^(|a)*$", Finding::Refused, "empty"),
            ("^é+$", Finding::Refused, "`+`"),
            ("^[]$", Finding::Refused, "without characters"),
            ("^[z-a]$", Finding::Refused, "ends before"),
            (r"^a\$", Finding::Refused, "backslash"),
            ("^.*$", Finding::Refused, "quotes"),
            ("^[^/]$", Finding::Refused, "[^...]"),
            ("^\"$", Finding::Refused, "quote"),
            (r"^\\$", Finding::Refused, "backslash"),
            (r"^\n$", Finding::Refused, "control"),
        ] {
            let said = check(pattern).unwrap_err();
            assert!(said.0 == finding && said.1.contains(word), "{pattern}: {said:?}");
        }
        for pattern in [
            "^$",
            "^[0-9]{3}-[0-9]{4}$",
            r"^(?:[a-z]+\.)*[a-zé\-]{2,}$",
            r#"^[^"\\\x00-\x1F]*$"#,
            r"^\.+a*|b?$",
            r"^[é]+\u00e9$",
        ] {
            assert_eq!(check(pattern), Ok(()), "{pattern}");
        }
    }
}
