//! Reads llama.cpp's GBNF.

use std::collections::HashMap;

use super::automaton::{Builder, Program};
use super::{GrammarError, Place};

/// The rule that a grammar begins with.
const ROOT: &str = "root";
/// As in llama.cpp: more repetitions are refused.
const MOST_REPEATED: u32 = 2000;
/// Brackets inside each other: the parser calls itself.
const DEEPEST: usize = 200;
const UNENDING_SET: &str = "this set of characters has no end";

/// What a grammar means.
///
/// # Errors
/// The first thing that is wrong, and where.
pub(super) fn program(source: &str) -> Result<Program, GrammarError> {
    let wrong = |(at, cause): (usize, String)| GrammarError { place: Some(Place::of(source, at)), cause };
    let mut parser = Parser { source, at: 0, depth: 0, names: HashMap::new(), rules: Vec::new() };
    let root = parser.grammar().map_err(wrong)?;
    let mut builder = Builder::new(parser.rules.len());
    for (number, rule) in parser.rules.iter().enumerate() {
        builder.define(number, &rule.is);
    }
    builder.finish(root).map_err(wrong)
}

type Parsed<T> = Result<T, (usize, String)>;

/// Sequences, one of which is taken.
pub(super) type Choice = Vec<Vec<Item>>;

pub(super) struct Item {
    /// Where it stands.
    pub(super) at: usize,
    pub(super) is: Piece,
    /// How often, where not once; without end where the second is none.
    pub(super) times: Option<(u32, Option<u32>)>,
}

pub(super) enum Piece {
    Text(String),
    Set(Set),
    Rule(usize),
    Group(Choice),
}

/// Characters, by their ranges; or all others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Set {
    pub(super) is_negated: bool,
    pub(super) ranges: Vec<(char, char)>,
}

struct Rule {
    name: String,
    /// Where it is defined, or first named.
    at: usize,
    defined: bool,
    is: Choice,
}

struct Parser<'s> {
    source: &'s str,
    at: usize,
    depth: usize,
    names: HashMap<&'s str, usize>,
    rules: Vec<Rule>,
}

impl<'s> Parser<'s> {
    fn peek(&self) -> Option<char> {
        self.source[self.at..].chars().next()
    }

    fn take(&mut self, what: char) -> bool {
        let here = self.peek() == Some(what);
        self.at += if here { what.len_utf8() } else { 0 };
        here
    }

    fn fail<T>(&self, cause: impl Into<String>) -> Parsed<T> {
        Err((self.at, cause.into()))
    }

    fn space(&mut self, newlines: bool) {
        while let Some(c) = self.peek() {
            match c {
                ' ' | '\t' => self.at += 1,
                '\r' | '\n' if newlines => self.at += 1,
                '#' => self.at += self.source[self.at..].find(['\r', '\n']).unwrap_or(self.source.len() - self.at),
                _ => break,
            }
        }
    }

    fn name(&mut self) -> Option<&'s str> {
        let rest = &self.source[self.at..];
        let len = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(rest.len());
        self.at += len;
        (len > 0).then(|| &rest[..len])
    }

    fn named(&mut self, name: &'s str, at: usize) -> usize {
        let next = self.rules.len();
        let rule = *self.names.entry(name).or_insert(next);
        if rule == next {
            self.rules.push(Rule { name: name.to_owned(), at, defined: false, is: Vec::new() });
        }
        rule
    }

    /// All rules; answers which is the root.
    fn grammar(&mut self) -> Parsed<usize> {
        self.space(true);
        while self.at < self.source.len() {
            let start = self.at;
            let Some(name) = self.name() else { return self.fail("expected the name of a rule") };
            let rule = self.named(name, start);
            if self.rules[rule].defined {
                return Err((start, format!("the rule `{name}` is defined twice")));
            }
            self.space(false);
            if !self.source[self.at..].starts_with("::=") {
                return self.fail(format!("expected ::= after `{name}`"));
            }
            self.at += 3;
            self.space(true);
            (self.rules[rule].defined, self.rules[rule].at) = (true, start);
            self.rules[rule].is = self.choice(false)?;
            match self.peek() {
                None | Some('\r' | '\n') => self.space(true),
                Some(')') => return self.fail("a `)` too many"),
                Some(c) => return self.fail(format!("`{c}` is not part of a rule")),
            }
        }
        if let Some(missing) = self.rules.iter().find(|rule| !rule.defined) {
            return Err((missing.at, format!("there is no rule `{}`", missing.name)));
        }
        let root = self.names.get(ROOT).copied();
        root.ok_or_else(|| (0, format!("there is no rule `{ROOT}`, where a grammar begins")))
    }

    fn choice(&mut self, nested: bool) -> Parsed<Choice> {
        let mut choice = vec![self.sequence(nested)?];
        while self.take('|') {
            self.space(true);
            choice.push(self.sequence(nested)?);
        }
        Ok(choice)
    }

    fn sequence(&mut self, nested: bool) -> Parsed<Vec<Item>> {
        let mut items: Vec<Item> = Vec::new();
        let mut wrapped = 0;
        while let Some(c) = self.peek() {
            let start = self.at;
            let is = match c {
                '"' => self.text()?,
                '[' => self.class()?,
                '.' => {
                    self.at += 1;
                    // Anything is all but nothing.
                    Piece::Set(Set { is_negated: true, ranges: Vec::new() })
                }
                '<' | '!' => return self.fail("tokens by name are not supported here"),
                '(' => self.group()?,
                '*' | '+' | '?' | '{' => {
                    let times = self.times(nested)?;
                    match items.last_mut() {
                        // Repeated twice: a group of its own.
                        Some(Item { times: Some(_), .. }) if wrapped == DEEPEST => {
                            return Err((start, format!("more than {DEEPEST} repetitions of one thing")));
                        }
                        Some(Item { times: Some(_), .. }) => {
                            wrapped += 1;
                            let last = items.drain(items.len() - 1..).collect();
                            items.push(Item { at: start, is: Piece::Group(vec![last]), times: Some(times) });
                        }
                        Some(item) => item.times = Some(times),
                        None => return Err((start, format!("`{c}` has nothing before it to repeat"))),
                    }
                    self.space(nested);
                    continue;
                }
                c if c.is_ascii_alphanumeric() || c == '-' => {
                    let name = self.name().unwrap_or_default();
                    Piece::Rule(self.named(name, start))
                }
                _ => break,
            };
            wrapped = 0;
            items.push(Item { at: start, is, times: None });
            self.space(nested);
        }
        Ok(items)
    }

    fn text(&mut self) -> Parsed<Piece> {
        let start = self.at;
        self.at += 1;
        let mut text = String::new();
        while !self.take('"') {
            text.push(self.character(start, "this text has no end")?);
        }
        Ok(Piece::Text(text))
    }

    fn class(&mut self) -> Parsed<Piece> {
        let start = self.at;
        self.at += 1;
        let mut set = Set { is_negated: self.take('^'), ranges: Vec::new() };
        while !self.take(']') {
            let low = self.character(start, UNENDING_SET)?;
            let mut high = low;
            if self.peek() == Some('-') && !self.source[self.at + 1..].starts_with(']') {
                self.at += 1;
                let at = self.at;
                high = self.character(start, UNENDING_SET)?;
                if high < low {
                    return Err((at, "a range that ends before it begins".into()));
                }
            }
            set.ranges.push((low, high));
        }
        if set.ranges.is_empty() {
            return Err((start, "a set without characters".into()));
        }
        Ok(Piece::Set(set))
    }

    fn group(&mut self) -> Parsed<Piece> {
        let start = self.at;
        if self.depth == DEEPEST {
            return self.fail(format!("more than {DEEPEST} brackets inside each other"));
        }
        self.at += 1;
        self.space(true);
        self.depth += 1;
        let choice = self.choice(true)?;
        self.depth -= 1;
        if self.take(')') { Ok(Piece::Group(choice)) } else { Err((start, "this `(` is not closed".into())) }
    }

    fn character(&mut self, start: usize, unending: &str) -> Parsed<char> {
        let Some(c) = self.peek() else { return Err((start, unending.into())) };
        if c != '\\' {
            self.at += c.len_utf8();
            return Ok(c);
        }
        let escape = self.source[self.at + 1..].chars().next();
        let digits = match escape {
            Some('x') => 2,
            Some('u') => 4,
            Some('U') => 8,
            Some(c @ ('t' | 'r' | 'n' | '\\' | '"' | '[' | ']' | '-')) => {
                self.at += 2;
                return Ok(match c {
                    't' => '\t',
                    'r' => '\r',
                    'n' => '\n',
                    c => c,
                });
            }
            _ => return self.fail("an escape that GBNF does not have"),
        };
        let hex = self.source.get(self.at + 2..self.at + 2 + digits);
        let code = hex.and_then(|hex| u32::from_str_radix(hex, 16).ok());
        let Some(code) = code else { return self.fail(format!("expected {digits} hexadecimal digits")) };
        let Some(c) = char::from_u32(code) else { return self.fail("this is no character") };
        self.at += 2 + digits;
        Ok(c)
    }

    /// The bounds of `*`, `+`, `?` or `{m,n}`.
    fn times(&mut self, nested: bool) -> Parsed<(u32, Option<u32>)> {
        let start = self.at;
        let c = self.peek();
        self.at += 1;
        match c {
            Some('*') => return Ok((0, None)),
            Some('+') => return Ok((1, None)),
            Some('?') => return Ok((0, Some(1))),
            _ => {}
        }
        self.space(nested);
        let Some(min) = self.number()? else { return self.fail("expected a number") };
        self.space(nested);
        let mut max = Some(min);
        if self.take(',') {
            self.space(nested);
            max = self.number()?;
            self.space(nested);
        }
        if !self.take('}') {
            return self.fail("expected `}`");
        }
        if max.is_some_and(|max| max < min) {
            return Err((start, "at least more than at most".into()));
        }
        Ok((min, max))
    }

    fn number(&mut self) -> Parsed<Option<u32>> {
        let rest = &self.source[self.at..];
        let len = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        if len == 0 {
            return Ok(None);
        }
        let Some(number) = rest[..len].parse().ok().filter(|number| *number <= MOST_REPEATED) else {
            return self.fail(format!("at most {MOST_REPEATED} repetitions are possible"));
        };
        self.at += len;
        Ok(Some(number))
    }
}

#[cfg(test)]
mod tests {
    use super::program;

    fn wrong(source: &str) -> String {
        program(source).map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        for (source, said) in [
            ("", "line 1, column 1: there is no rule `root`, where a grammar begins"),
            ("root ::= \"a\" |\n  b\n", "line 2, column 3: there is no rule `b`"),
            ("root ::= [a\n", "line 1, column 10: this set of characters has no end"),
            ("root ::= (\"a\"\n", "line 1, column 10: this `(` is not closed"),
            ("# ä\nroot ::= \"ä\" \"\\q\"", "line 2, column 15: an escape that GBNF does not have"),
            ("root ::= a_b", "line 1, column 11: `_` is not part of a rule"),
            ("root ::= \"a\"{3000}", "line 1, column 14: at most 2000 repetitions are possible"),
            ("root ::= \"a\"{3,2}", "line 1, column 13: at least more than at most"),
            ("root ::= [b-a]", "line 1, column 13: a range that ends before it begins"),
            ("root ::= \"\\uD800\"", "line 1, column 11: this is no character"),
            ("root ::= root \"a\" | \"b\"", "line 1, column 10: this rule begins with itself (left recursion)"),
            (
                "root ::= a root \"x\" | \"y\"\na ::= b\nb ::= \"\"",
                "line 1, column 12: this rule begins with itself (left recursion)",
            ),
            (
                "root ::= a\na ::= b | \"x\"\nb ::= a \"y\"",
                "line 3, column 7: this rule begins with itself (left recursion)",
            ),
            ("root ::= * \"a\"", "line 1, column 10: `*` has nothing before it to repeat"),
            ("root ::= <|im_end|>", "line 1, column 10: tokens by name are not supported here"),
            ("root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1: the rule `root` is defined twice"),
            ("root := \"a\"", "line 1, column 6: expected ::= after `root`"),
        ] {
            assert_eq!(wrong(source), said, "{source}");
        }
        assert!(wrong(&format!("root ::= \"a\"{}", "*".repeat(9999))).contains("repetitions of one thing"));
        assert!(wrong(&format!("root ::= {}\"a\"{}", "(".repeat(9999), ")".repeat(9999))).contains("brackets"));
    }
}
