//! Checks a grammar before llama.cpp sees it: llama.cpp prints what it finds wrong to stderr, says not where, and does
//! not come back from some grammars (rules that begin with themselves behind an empty one, thousands of brackets).

use std::collections::HashMap;

use crate::engine::{GrammarError, Place};

/// The rule that a grammar begins with.
pub(super) const ROOT: &str = "root";
/// llama.cpp's: more repetitions are refused, or silently without end.
const MOST_REPEATED: u64 = 2000;
/// Brackets inside each other: llama.cpp's parser calls itself.
const DEEPEST: usize = 200;
/// Rules that begin with each other in a row: its search for left recursion calls itself.
const LONGEST_CHAIN: usize = 5000;

/// # Errors
/// The first thing that is wrong, and where.
pub(super) fn check(source: &str) -> Result<(), GrammarError> {
    let mut parser = Parser { source, at: 0, depth: 0, symbols: 0, names: HashMap::new(), rules: Vec::new() };
    parser
        .grammar()
        .and_then(|()| parser.whole())
        .map_err(|(at, cause)| GrammarError { place: Some(Place::of(source, at)), cause })
}

type Checked<T> = Result<T, (usize, String)>;

/// Something in a sequence, as far as the search for left recursion asks.
enum Item {
    Text,
    /// A rule, named at this place; with whether it may be left out.
    Rule {
        rule: usize,
        at: usize,
        optional: bool,
    },
}

#[derive(Default)]
struct Rule {
    defined: bool,
    /// Where it is defined, or first named.
    at: usize,
    name: String,
    alternatives: Vec<Vec<Item>>,
}

struct Parser<'s> {
    source: &'s str,
    at: usize,
    depth: usize,
    /// Rules as llama.cpp counts them, those that it makes for repetitions included.
    symbols: u64,
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

    fn fail<T>(&self, cause: impl Into<String>) -> Checked<T> {
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
            self.symbols += 1;
            self.rules.push(Rule { at, name: name.to_owned(), ..Rule::default() });
        }
        rule
    }

    fn grammar(&mut self) -> Checked<()> {
        if let Some(at) = self.source.find('\0') {
            return Err((at, "a NUL byte".into()));
        }
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
            self.alternatives(rule, false)?;
            match self.peek() {
                None | Some('\r' | '\n') => self.space(true),
                Some(')') => return self.fail("a `)` too many"),
                Some(c) => return self.fail(format!("`{c}` is not part of a rule")),
            }
        }
        Ok(())
    }

    fn alternatives(&mut self, rule: usize, nested: bool) -> Checked<()> {
        loop {
            let sequence = self.sequence(nested)?;
            self.rules[rule].alternatives.push(sequence);
            if !self.take('|') {
                return Ok(());
            }
            self.space(true);
        }
    }

    fn sequence(&mut self, nested: bool) -> Checked<Vec<Item>> {
        let mut items: Vec<Item> = Vec::new();
        // What a repetition would repeat: whether there is something, and llama.cpp's count of its rules.
        let mut last: Option<(usize, u64)> = None;
        while let Some(c) = self.peek() {
            let start = self.at;
            let before = items.len();
            match c {
                '"' => {
                    self.at += 1;
                    while !self.take('"') {
                        self.character(start, "this text has no end")?;
                        items.truncate(before);
                        items.push(Item::Text);
                    }
                    last = (items.len() > before).then_some((before, 1));
                }
                '[' => {
                    self.at += 1;
                    self.take('^');
                    let first = self.at;
                    while !self.take(']') {
                        let low = self.character(start, "this set of characters has no end")?;
                        let range = self.peek() == Some('-') && !self.source[self.at + 1..].starts_with(']');
                        if range {
                            self.at += 1;
                            let at = self.at;
                            if self.character(start, "this set of characters has no end")? < low {
                                return Err((at, "a range that ends before it begins".into()));
                            }
                        }
                    }
                    if self.at == first + 1 {
                        return Err((start, "a set without characters".into()));
                    }
                    items.push(Item::Text);
                    last = Some((before, 1));
                }
                '.' => {
                    self.at += 1;
                    items.push(Item::Text);
                    last = Some((before, 1));
                }
                '<' | '!' => return self.fail("tokens by name are not supported here"),
                '(' => {
                    if self.depth == DEEPEST {
                        return self.fail(format!("more than {DEEPEST} brackets inside each other"));
                    }
                    self.at += 1;
                    self.space(true);
                    let rules = self.symbols;
                    self.symbols += 1;
                    let rule = self.rules.len();
                    self.rules.push(Rule { defined: true, at: start, ..Rule::default() });
                    self.depth += 1;
                    self.alternatives(rule, true)?;
                    self.depth -= 1;
                    if !self.take(')') {
                        return Err((start, "this `(` is not closed".into()));
                    }
                    items.push(Item::Rule { rule, at: start, optional: false });
                    last = Some((before, (self.symbols - rules).max(1)));
                }
                '*' | '+' | '?' | '{' => {
                    let (min, max) = self.repetition(nested)?;
                    let Some((from, rules)) = last else {
                        return Err((start, format!("`{c}` has nothing before it to repeat")));
                    };
                    let total = max.filter(|max| *max > 0).unwrap_or(min).max(1);
                    if rules * total > MOST_REPEATED {
                        return Err((start, format!("more than {MOST_REPEATED} rules come of this repetition")));
                    }
                    self.symbols += max.map_or(1, |max| max.saturating_sub(min));
                    last = (max != Some(0)).then_some((from, rules * total));
                    if min == 0 {
                        Self::leave_out(&mut items, from);
                    }
                }
                c if c.is_ascii_alphanumeric() || c == '-' => {
                    let name = self.name().unwrap_or_default();
                    let rule = self.named(name, start);
                    items.push(Item::Rule { rule, at: start, optional: false });
                    last = Some((before, 1));
                }
                _ => break,
            }
            self.space(nested);
        }
        Ok(items)
    }

    /// What was repeated may be missing: a rule that may be left out.
    fn leave_out(items: &mut Vec<Item>, from: usize) {
        // Text that may be missing neither begins with a rule nor keeps the next from being the first.
        let rule = items.drain(from..).next().filter(|item| matches!(item, Item::Rule { .. }));
        if let Some(Item::Rule { rule, at, .. }) = rule {
            items.push(Item::Rule { rule, at, optional: true });
        }
    }

    fn character(&mut self, start: usize, unending: &str) -> Checked<u32> {
        let at = self.at;
        match self.peek() {
            None | Some('\n') if self.peek().is_none() => Err((start, unending.into())),
            Some('\\') => {
                let escape = self.source[at + 1..].chars().next();
                let digits = match escape {
                    Some('x') => 2,
                    Some('u') => 4,
                    Some('U') => 8,
                    Some(c @ ('t' | 'r' | 'n' | '\\' | '"' | '[' | ']' | '-')) => {
                        self.at += 2;
                        return Ok(match c {
                            't' => 9,
                            'r' => 13,
                            'n' => 10,
                            c => u32::from(c),
                        });
                    }
                    _ => return self.fail("an escape that GBNF does not have"),
                };
                let hex = self.source.get(at + 2..at + 2 + digits);
                match hex.and_then(|hex| u32::from_str_radix(hex, 16).ok()) {
                    // llama.cpp takes it for the end of the text.
                    Some(0) if escape != Some('x') => self.fail("a NUL character"),
                    Some(value) => {
                        self.at += 2 + digits;
                        Ok(value)
                    }
                    None => self.fail(format!("expected {digits} hexadecimal digits")),
                }
            }
            Some(c) => {
                self.at += c.len_utf8();
                Ok(u32::from(c))
            }
            None => Err((start, unending.into())),
        }
    }

    /// The bounds of `*`, `+`, `?` or `{m,n}`.
    fn repetition(&mut self, nested: bool) -> Checked<(u64, Option<u64>)> {
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

    fn number(&mut self) -> Checked<Option<u64>> {
        let rest = &self.source[self.at..];
        let len = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        if len == 0 {
            return Ok(None);
        }
        let number = rest[..len].parse().ok().filter(|number| *number <= MOST_REPEATED);
        let Some(number) = number else {
            return self.fail(format!("at most {MOST_REPEATED} repetitions are possible"));
        };
        self.at += len;
        Ok(Some(number))
    }

    /// What only the whole grammar shows.
    fn whole(&self) -> Checked<()> {
        if let Some(missing) = self.rules.iter().find(|rule| !rule.defined) {
            return Err((missing.at, format!("there is no rule `{}`", missing.name)));
        }
        if !self.names.contains_key(ROOT) {
            return Err((0, format!("there is no rule `{ROOT}`, where a grammar begins")));
        }
        let mut empty = vec![false; self.rules.len()];
        let passes = |item: &Item, empty: &[bool]| match item {
            Item::Text => false,
            Item::Rule { rule, optional, .. } => *optional || empty[*rule],
        };
        loop {
            let mut more = false;
            for (number, rule) in self.rules.iter().enumerate() {
                let now = rule.alternatives.iter().any(|items| items.iter().all(|item| passes(item, &empty)));
                more |= now && !std::mem::replace(&mut empty[number], now);
            }
            if !more {
                break;
            }
        }
        let firsts = |rule: usize| {
            let mut firsts = Vec::new();
            for items in &self.rules[rule].alternatives {
                for item in items {
                    if let Item::Rule { rule, at, .. } = item {
                        firsts.push((*rule, *at));
                    }
                    if !passes(item, &empty) {
                        break;
                    }
                }
            }
            firsts
        };
        // Depth first, without recursion: 0 not seen, 1 on the way, 2 done.
        let mut seen = vec![0u8; self.rules.len()];
        for start in 0..self.rules.len() {
            if seen[start] > 0 {
                continue;
            }
            let mut way = vec![(start, firsts(start))];
            seen[start] = 1;
            while let Some((rule, left)) = way.last_mut() {
                let Some((next, at)) = left.pop() else {
                    seen[*rule] = 2;
                    way.pop();
                    continue;
                };
                match seen[next] {
                    0 if way.len() >= LONGEST_CHAIN => {
                        return Err((at, format!("more than {LONGEST_CHAIN} rules begin with each other")));
                    }
                    0 => {
                        seen[next] = 1;
                        way.push((next, firsts(next)));
                    }
                    1 => {
                        let name =
                            way.iter().rev().map(|(rule, _)| &self.rules[*rule].name).find(|name| !name.is_empty());
                        let name = name.cloned().unwrap_or_default();
                        return Err((at, format!("the rule `{name}` begins with itself (left recursion)")));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::check;

    fn wrong(source: &str) -> String {
        check(source).unwrap_err().to_string()
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
            ("root ::= ((\"a\"{0,44}){0,44}){0,44}", "line 1, column 29: more than 2000 rules come of this repetition"),
            ("root ::= root \"a\" | \"b\"", "line 1, column 10: the rule `root` begins with itself (left recursion)"),
            (
                "root ::= a root \"x\" | \"y\"\na ::= b\nb ::= \"\"",
                "line 1, column 12: the rule `root` begins with itself (left recursion)",
            ),
            ("root ::= * \"a\"", "line 1, column 10: `*` has nothing before it to repeat"),
            ("root ::= <|im_end|>", "line 1, column 10: tokens by name are not supported here"),
            ("root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1: the rule `root` is defined twice"),
            ("root := \"a\"", "line 1, column 6: expected ::= after `root`"),
        ] {
            assert_eq!(wrong(source), said, "{source}");
        }
        assert!(wrong(&format!("root ::= {}\"a\"{}", "(".repeat(9999), ")".repeat(9999))).contains("brackets"));
    }

    #[test]
    fn grammars_that_llama_cpp_takes_pass() {
        for source in [
            "root ::= \"a\"",
            "root ::= (\n \"a\" # one\n | b\n)+\n\nb ::= [^\\n\\x41-\\x5A] . {2,3}\n",
            "root ::= (\"a\"*)*",
            "root ::= \"\" | [a-] | [-a]",
            "ws ::= | \" \" | \"\\n\"{1,2} [ \\t]{0,20}\nroot ::= ws \"x\" ws",
        ] {
            assert_eq!(check(source), Ok(()), "{source}");
        }
    }
}
