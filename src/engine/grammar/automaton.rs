//! A pushdown automaton over characters, made deterministic as a text goes on: a state is the set of places in the rules where
//! the text may stand, each with the places to return to.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use llguidance::toktrie::{Recognizer, SimpleVob, TokTrie};

use super::gbnf::{Choice, Item, Piece, Set};

/// Places in rules, of all rules together.
const MOST_OPS: usize = 1 << 20;

/// Places where a text may stand at once, states of a machine, and steps that it remembers. A grammar that leaves open for
/// long what a bracket will be closed with doubles its places with each; behind these bounds nothing fits.
const MOST_PLACES: usize = 1 << 15;
const MOST_STATES: usize = 1 << 18;
const MOST_STEPS: usize = 1 << 20;

/// What stands at a place of a rule.
#[derive(Clone, Copy, Debug)]
enum Op {
    /// A character of this set.
    Set(u32),
    Rule(u32),
    /// The end of an alternative.
    End,
}

/// The rules as places.
pub(super) struct Program {
    ops: Vec<Op>,
    sets: Vec<Set>,
    /// The first places of the alternatives of each rule.
    rules: Vec<Vec<u32>>,
    root: u32,
}

/// Makes a program of what was read.
pub(super) struct Builder {
    rules: Vec<Vec<Vec<(usize, Op)>>>,
    sets: HashMap<Set, u32>,
    size: usize,
}

impl Builder {
    /// For so many rules that have names.
    pub(super) fn new(rules: usize) -> Self {
        Self { rules: vec![Vec::new(); rules], sets: HashMap::new(), size: 0 }
    }

    pub(super) fn define(&mut self, rule: usize, choice: &Choice) {
        let alternatives = choice.iter().map(|items| items.iter().flat_map(|item| self.item(item)).collect());
        self.rules[rule] = alternatives.collect();
    }

    fn rule(&mut self, at: usize, alternatives: Vec<Vec<(usize, Op)>>) -> (usize, Op) {
        self.size += alternatives.iter().map(|own| own.len() + 1).sum::<usize>();
        self.rules.push(alternatives);
        (at, Op::Rule(self.rules.len() as u32 - 1))
    }

    fn set(&mut self, set: &Set) -> Op {
        let next = self.sets.len() as u32;
        Op::Set(*self.sets.entry(set.clone()).or_insert(next))
    }

    fn once(&mut self, item: &Item) -> Vec<(usize, Op)> {
        match &item.is {
            Piece::Text(text) => {
                let one = |c: char| Set { is_negated: false, ranges: vec![(c, c)] };
                text.chars().map(|c| (item.at, self.set(&one(c)))).collect()
            }
            Piece::Set(set) => vec![(item.at, self.set(set))],
            Piece::Rule(rule) => vec![(item.at, Op::Rule(*rule as u32))],
            Piece::Group(choice) => {
                let alternatives = choice.iter().map(|items| items.iter().flat_map(|item| self.item(item)).collect());
                let alternatives = alternatives.collect();
                vec![self.rule(item.at, alternatives)]
            }
        }
    }

    fn item(&mut self, item: &Item) -> Vec<(usize, Op)> {
        let once = self.once(item);
        let Some((min, max)) = item.times else { return once };
        // A copy for each time would be too much of something long: it becomes a rule.
        let once = if once.len() > 1 { vec![self.rule(item.at, vec![once])] } else { once };
        let mut ops: Vec<_> = once.iter().copied().cycle().take(once.len() * min as usize).collect();
        match max {
            None => {
                let own = self.rules.len();
                let more = [once, vec![(item.at, Op::Rule(own as u32))]].concat();
                ops.push(self.rule(item.at, vec![more, Vec::new()]));
            }
            Some(max) => {
                let mut rest = Vec::new();
                for _ in min..max {
                    if self.size > MOST_OPS {
                        break;
                    }
                    let more = [once.clone(), rest].concat();
                    rest = vec![self.rule(item.at, vec![more, Vec::new()])];
                }
                ops.extend(rest);
            }
        }
        self.size += ops.len();
        ops
    }

    /// The program that begins with this rule.
    ///
    /// # Errors
    /// When a rule begins with itself, or there is too much; and where that is.
    pub(super) fn finish(self, root: usize) -> Result<Program, (usize, String)> {
        if self.size > MOST_OPS {
            return Err((0, "the grammar is too large".into()));
        }
        if let Some(at) = left_recursion(&self.rules) {
            return Err((at, "this rule begins with itself (left recursion)".into()));
        }
        let mut program = Program { ops: Vec::new(), sets: Vec::new(), rules: Vec::new(), root: root as u32 };
        for alternatives in self.rules {
            let mut places = Vec::new();
            for ops in alternatives {
                places.push(program.ops.len() as u32);
                program.ops.extend(ops.into_iter().map(|(_, op)| op).chain([Op::End]));
            }
            program.rules.push(places);
        }
        let mut sets: Vec<(u32, Set)> = self.sets.into_iter().map(|(set, number)| (number, set)).collect();
        sets.sort_unstable_by_key(|(number, _)| *number);
        program.sets = sets.into_iter().map(|(_, set)| set).collect();
        Ok(program)
    }
}

/// Where a rule is named that can be reached from itself before any character, with something behind it to return to: the
/// stack would grow without end.
fn left_recursion(rules: &[Vec<Vec<(usize, Op)>>]) -> Option<usize> {
    let mut empty = vec![false; rules.len()];
    let passes = |op: Op, empty: &[bool]| matches!(op, Op::Rule(rule) if empty[rule as usize]);
    while let Some(more) = (0..rules.len())
        .find(|rule| !empty[*rule] && rules[*rule].iter().any(|ops| ops.iter().all(|(_, op)| passes(*op, &empty))))
    {
        empty[more] = true;
    }
    // Rules that each begins with: where, which, and whether it is the last of its alternative.
    let firsts = |rule: usize| {
        rules[rule].iter().flat_map(|ops| {
            let first = ops.iter().position(|(_, op)| !passes(*op, &empty)).map_or(ops.len(), |at| at + 1);
            ops[..first].iter().enumerate().filter_map(|(index, (at, op))| match op {
                Op::Rule(named) => Some((*at, *named as usize, index + 1 == ops.len())),
                _ => None,
            })
        })
    };
    let begins_with = |from: usize, what: usize| {
        let (mut seen, mut way) = (HashSet::from([from]), vec![from]);
        while let Some(rule) = way.pop() {
            if rule == what {
                return true;
            }
            way.extend(firsts(rule).map(|(_, next, _)| next).filter(|next| seen.insert(*next)));
        }
        false
    };
    (0..rules.len()).find_map(|rule| {
        firsts(rule).find(|(_, named, is_last)| !is_last && begins_with(*named, rule)).map(|(at, ..)| at)
    })
}

/// Behind which a rule goes on, and with what.
type Node = (u32, u32);
/// No more places to return to.
const NOTHING: u32 = u32::MAX;

/// Where a text may stand.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    /// Places where a character comes next.
    nodes: Vec<Node>,
    /// Whether the text may end here.
    is_complete: bool,
}

/// The states that were reached so far.
struct Machine {
    program: Program,
    nodes: Vec<Node>,
    by_node: HashMap<Node, u32>,
    all: Vec<State>,
    by_state: HashMap<State, u32>,
    /// Where a character leads; nowhere is none.
    steps: HashMap<(u32, char), Option<u32>>,
}

impl Machine {
    fn new(program: Program) -> (Self, Option<u32>) {
        let mut this = Self {
            nodes: Vec::new(),
            by_node: HashMap::new(),
            all: Vec::new(),
            by_state: HashMap::new(),
            steps: HashMap::new(),
            program,
        };
        let begin = this.program.rules[this.program.root as usize].iter().map(|place| (*place, NOTHING)).collect();
        let begin = this.state(begin);
        (this, begin)
    }

    /// The state of these places, with all that can be reached from them before a character.
    fn state(&mut self, mut way: Vec<Node>) -> Option<u32> {
        let mut seen: HashSet<Node> = way.iter().copied().collect();
        let mut state = State::default();
        while let Some((place, back)) = way.pop() {
            if seen.len() > MOST_PLACES || self.all.len() > MOST_STATES {
                return None;
            }
            let mut go = |node: Node, way: &mut Vec<Node>| {
                if seen.insert(node) {
                    way.push(node);
                }
            };
            match self.program.ops[place as usize] {
                Op::Set(_) => state.nodes.push((place, back)),
                Op::End if back == NOTHING => state.is_complete = true,
                Op::End => go(self.nodes[back as usize], &mut way),
                Op::Rule(rule) => {
                    // Nothing to return for: the caller's place is returned to at once.
                    let last = matches!(self.program.ops[place as usize + 1], Op::End);
                    let back = if last { back } else { self.node((place + 1, back)) };
                    self.program.rules[rule as usize].iter().for_each(|first| go((*first, back), &mut way));
                }
            }
        }
        state.nodes.sort_unstable();
        let next = self.all.len() as u32;
        let number = *self.by_state.entry(state.clone()).or_insert(next);
        if number == next {
            self.all.push(state);
        }
        Some(number)
    }

    fn node(&mut self, node: Node) -> u32 {
        let next = self.nodes.len() as u32;
        let number = *self.by_node.entry(node).or_insert(next);
        if number == next {
            self.nodes.push(node);
        }
        number
    }

    fn sets(&self, state: u32) -> impl Iterator<Item = (&Set, Node)> {
        self.all[state as usize].nodes.iter().filter_map(|node| match self.program.ops[node.0 as usize] {
            Op::Set(set) => Some((&self.program.sets[set as usize], *node)),
            _ => None,
        })
    }

    fn step(&mut self, state: u32, c: char) -> Option<u32> {
        if let Some(known) = self.steps.get(&(state, c)) {
            return *known;
        }
        let next: Vec<Node> =
            self.sets(state).filter(|(set, _)| set.has(c)).map(|(_, (place, back))| (place + 1, back)).collect();
        let next = if next.is_empty() { None } else { self.state(next) };
        if self.steps.len() > MOST_STEPS {
            self.steps.clear();
        }
        self.steps.insert((state, c), next);
        next
    }

    /// Where a byte leads.
    fn push(&mut self, at: At, byte: u8) -> Option<At> {
        let At { state, bytes, len } = at;
        if len == 0 && byte.is_ascii() {
            return Some(At { state: self.step(state, char::from(byte))?, ..At::default() });
        }
        let mut whole = bytes;
        *whole.get_mut(usize::from(len))? = byte;
        let whole = &whole[..=usize::from(len)];
        match std::str::from_utf8(whole) {
            Ok(text) => Some(At { state: self.step(state, text.chars().next()?)?, ..At::default() }),
            Err(error) if error.error_len().is_none() => {
                // Some character that begins so must be possible.
                let (low, high) = (completed(whole, 0x80)?, completed(whole, 0xbf)?);
                let fits = self.sets(state).any(|(set, _)| set.meets(low, high));
                let mut bytes = [0; 4];
                bytes[..whole.len()].copy_from_slice(whole);
                fits.then_some(At { state, bytes, len: len + 1 })
            }
            Err(_) => None,
        }
    }
}

/// The least or greatest character that begins with these bytes, where each of the others is `with`.
fn completed(bytes: &[u8], with: u8) -> Option<u32> {
    let (len, least) = match bytes[0] {
        0xc2..=0xdf => (2, 0x80),
        0xe0..=0xef => (3, 0x800),
        0xf0..=0xf4 => (4, 0x1_0000),
        _ => return None,
    };
    let first = u32::from(bytes[0]) & (0x7f >> len);
    let rest = (1..len).map(|index| u32::from(*bytes.get(index).unwrap_or(&with)) & 0x3f);
    Some(rest.fold(first, |code, bits| code << 6 | bits).max(least))
}

impl Set {
    fn has(&self, c: char) -> bool {
        self.ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != self.is_negated
    }

    /// Whether a character from `low` to `high` is one of these.
    fn meets(&self, low: u32, high: u32) -> bool {
        let covers = |range: &(char, char)| u32::from(range.0) <= low && high <= u32::from(range.1);
        let touches = |range: &(char, char)| u32::from(range.0) <= high && low <= u32::from(range.1);
        if self.is_negated { !self.ranges.iter().any(covers) } else { self.ranges.iter().any(touches) }
    }
}

/// A state, and the bytes of a character that is not complete.
#[derive(Clone, Copy, Debug, Default)]
struct At {
    state: u32,
    bytes: [u8; 4],
    len: u8,
}

/// A text so far, and what it may go on with.
#[derive(Clone)]
pub(super) struct Text {
    machine: Arc<Mutex<Machine>>,
    /// None where it does not fit.
    at: Option<At>,
}

impl Text {
    pub(super) fn new(program: Program) -> Self {
        let (machine, state) = Machine::new(program);
        Self { machine: Arc::new(Mutex::new(machine)), at: state.map(|state| At { state, ..At::default() }) }
    }

    fn lock(machine: &Mutex<Machine>) -> std::sync::MutexGuard<'_, Machine> {
        machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where these bytes lead.
    fn after(machine: &mut Machine, at: Option<At>, bytes: &[u8]) -> Option<At> {
        bytes.iter().try_fold(at?, |at, byte| machine.push(at, *byte))
    }

    pub(super) fn push(&mut self, bytes: &[u8]) -> bool {
        self.at = Self::after(&mut Self::lock(&self.machine), self.at, bytes);
        self.at.is_some()
    }

    /// How many of these pieces fit, one after the other.
    pub(super) fn fitting<'p>(&self, pieces: impl Iterator<Item = &'p [u8]>) -> usize {
        let mut machine = Self::lock(&self.machine);
        let mut at = self.at;
        pieces
            .take_while(|piece| {
                at = Self::after(&mut machine, at, piece);
                at.is_some() && !piece.is_empty()
            })
            .count()
    }

    pub(super) fn allowed(&self, trie: &TokTrie) -> SimpleVob {
        let mut allowed = trie.alloc_token_set();
        if let Some(at) = self.at {
            let mut walk = Walk { machine: &mut Self::lock(&self.machine), way: vec![at] };
            trie.add_bias(&mut walk, &mut allowed, &[]);
        }
        allowed
    }

    /// Whether the text may end here, and whether it has to.
    pub(super) fn may_end(&self) -> (bool, bool) {
        let machine = Self::lock(&self.machine);
        let state = self.at.filter(|at| at.len == 0).map(|at| &machine.all[at.state as usize]);
        let may = state.is_some_and(|state| state.is_complete);
        (may, may && state.is_some_and(|state| state.nodes.is_empty()))
    }
}

/// A walk along the trie of a vocabulary.
struct Walk<'s> {
    machine: &'s mut Machine,
    way: Vec<At>,
}

impl Recognizer for Walk<'_> {
    fn pop_bytes(&mut self, num: usize) {
        self.way.truncate(self.way.len() - num);
    }

    fn collapse(&mut self) {
        self.way.drain(..self.way.len() - 1);
    }

    fn trie_finished(&mut self) {}

    fn try_push_byte(&mut self, byte: u8) -> bool {
        let next = self.way.last().copied().and_then(|at| self.machine.push(at, byte));
        self.way.extend(next);
        next.is_some()
    }
}
